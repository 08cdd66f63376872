//! A Prometheus that scrapes tracers and evaluates their alerts.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{LIMIT, Service, free_port};
use crate::scratch::Scratch;
use crate::wait;

#[derive(Debug)]
pub struct Prometheus {
    service: Service,
    port: u16,
    // Dropped last: everything is in it.
    _folder: Scratch,
}

impl Prometheus {
    /// Starts it with these rules; it scrapes this port of loopback twice a
    /// second, as the job `node-tracer`, and evaluates as often. Back when it
    /// answers.
    pub fn start(rules: &Path, scraped: u16) -> anyhow::Result<Self> {
        let folder = Scratch::create()?;
        let port = free_port()?;
        let config = json!({
            "global": { "scrape_interval": "500ms", "evaluation_interval": "500ms" },
            "rule_files": [rules],
            "scrape_configs": [{
                "job_name": "node-tracer",
                "static_configs": [{ "targets": [format!("127.0.0.1:{scraped}")] }],
            }],
        });
        // JSON is YAML.
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config.to_string())?;
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--log.level=warn");
        let mut this = Self {
            service: Service::start(&mut command, &folder.path().join("prometheus.log"))?,
            port,
            _folder: folder,
        };
        wait::until("Prometheus", LIMIT, || {
            this.service.lives()?;
            Ok(this.get("/-/ready").ok())
        })?;
        Ok(this)
    }

    /// The body of the answer to a request.
    fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        // An answer of HTTP/1.0 is not in chunks.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
        ensure!(head.contains(" 200 "), "{path}: {answer}");
        Ok(body.to_owned())
    }

    /// The alerts of this name that fire.
    pub fn firing(&mut self, alert: &str) -> anyhow::Result<Vec<Value>> {
        self.service.lives()?;
        let answer: Value = serde_json::from_str(&self.get("/api/v1/alerts")?)?;
        let all = answer["data"]["alerts"].as_array().context("no alerts")?;
        let fires = |one: &&Value| one["labels"]["alertname"] == alert && one["state"] == "firing";
        Ok(all.iter().filter(fires).cloned().collect())
    }

    /// The labels of the series that an expression gives now.
    pub fn query(&mut self, expression: &str) -> anyhow::Result<Vec<Value>> {
        self.service.lives()?;
        let encoded: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect();
        let answer = self.get(&format!("/api/v1/query?query={encoded}"))?;
        let answer: Value = serde_json::from_str(&answer)?;
        let result = answer["data"]["result"].as_array().context("no result")?;
        Ok(result.iter().map(|one| one["metric"].clone()).collect())
    }
}
