//! Very many calls of the API: a cluster's objects.

use std::fs;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{Kube, SERVER};

/// Calls of one run of curl: what its configuration takes is memory.
const OF_ONE_RUN: usize = 1_000;

/// One call of the API that changes something.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: &'static str,
    pub path: String,
    pub body: Option<Value>,
}

impl Call {
    fn kind(&self) -> &'static str {
        match self.method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        }
    }

    /// It in curl's configuration.
    fn lines(&self, kube: &Kube) -> String {
        let file = |name| kube.authority.file(name).display().to_string();
        let body = self.body.as_ref().map(Value::to_string);
        let options = [
            ("request", Some(self.method.to_owned())),
            ("url", Some(format!("{SERVER}{}", self.path))),
            ("header", Some(format!("Content-Type: {}", self.kind()))),
            ("data-binary", body),
            ("cacert", Some(file("ca.crt"))),
            ("cert", Some(file("admin.crt"))),
            ("key", Some(file("admin.key"))),
            ("output", Some("/dev/null".to_owned())),
            (
                "write-out",
                Some("%{http_code} %{url_effective}\n".to_owned()),
            ),
            ("max-time", Some("120".to_owned())),
        ];
        let line = |(name, value): (&str, Option<String>)| {
            let value = value?.replace('\\', "\\\\").replace('"', "\\\"");
            Some(format!("{name} = \"{}\"\n", value.replace('\n', "\\n")))
        };
        options.into_iter().filter_map(line).collect()
    }
}

impl Kube {
    /// Makes all of these calls as the cluster's administrator, several at once and
    /// in any order. Each is to go well.
    pub fn call_all(&self, calls: &[Call]) -> anyhow::Result<()> {
        let file = self.scratch().join("calls");
        for some in calls.chunks(OF_ONE_RUN) {
            let lines: Vec<String> = some.iter().map(|call| call.lines(self)).collect();
            fs::write(&file, lines.join("next\n")).context("write curl's configuration")?;
            let output = self
                .node
                .command("curl")?
                .args(["--silent", "--parallel", "--parallel-max", "16", "--config"])
                .arg(&file)
                .stdin(Stdio::null())
                .output()
                .context("start curl")?;
            let said = String::from_utf8_lossy(&output.stdout);
            let failed = said.lines().find(|line| !line.starts_with("20"));
            ensure!(
                failed.is_none() && said.lines().count() == some.len(),
                "{}: {}",
                failed.unwrap_or("not all calls were made"),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(())
    }
}
