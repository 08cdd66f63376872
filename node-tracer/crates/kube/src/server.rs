//! An API server that does what a test has written down.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::Credentials;

/// A secret that must be in no message.
pub const TOKEN: &str = "s3cr3t-t0k3n";

/// What a request is answered with.
#[derive(Clone)]
pub enum Reply {
    Json(u16, Value),
    /// A page of something else.
    Text(u16, String),
    /// Lines, each after a pause, and how they end.
    Stream(Vec<(Duration, Value)>, StreamEnd),
    /// A refusal, and after how many seconds to ask again.
    Later(u16, u32),
    /// Nothing, ever.
    Hang,
}

#[derive(Clone, Copy, PartialEq)]
pub enum StreamEnd {
    /// In order.
    Clean,
    Cut,
    Hang,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `GET`, ...
    pub method: String,
    pub path: String,
    /// What was sent with it.
    pub body: String,
}

pub struct Server {
    pub address: String,
    requests: Arc<Mutex<Vec<Asked>>>,
    folder: tempfile::TempDir,
}

impl Server {
    /// Answers each request by what is asked for and how many came before.
    pub fn new(answer: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&requests), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                thread::spawn(move || serve(stream.unwrap(), &seen, &*answer));
            }
        });
        Self {
            address,
            requests,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A fixed answer for lists, and a quiet watch.
    pub fn listing(list: Reply) -> Self {
        Self::new(move |path, _| match path.contains("watch=") {
            true => Reply::Stream(Vec::new(), StreamEnd::Hang),
            false => list.clone(),
        })
    }

    /// The paths that were asked for.
    pub fn requests(&self) -> Vec<String> {
        let asked = self.asked();
        asked.into_iter().map(|asked| asked.path).collect()
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.requests.lock().unwrap().clone()
    }

    /// A kubeconfig that leads here.
    pub fn kubeconfig(&self) -> PathBuf {
        let path = self.folder.path().join("kubeconfig");
        std::fs::write(
            &path,
            kubeconfig(
                &format!("http://{}", self.address),
                json!({ "token": TOKEN }),
            ),
        )
        .unwrap();
        path
    }

    pub fn credentials(&self) -> Credentials {
        Credentials::find(self.folder.path(), Some(&self.kubeconfig())).unwrap()
    }
}

/// A kubeconfig of one cluster and one user. JSON is YAML.
pub fn kubeconfig(server: &str, user: Value) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "c", "cluster": { "server": server } }],
        "users": [{ "name": "u", "user": user }],
        "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
        "current-context": "x",
    })
    .to_string()
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Asked>>, answer: &dyn Fn(&str, usize) -> Reply) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let lines = reader.by_ref().lines().map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let Some(first) = head.first() else { return };
    assert!(head.iter().any(|line| line.ends_with(TOKEN)));
    let agent = concat!("user-agent: node-tracer/", env!("CARGO_PKG_VERSION"));
    assert!(head.iter().any(|line| line.eq_ignore_ascii_case(agent)));
    let length = head.iter().find_map(|line| {
        line.to_lowercase()
            .strip_prefix("content-length: ")?
            .parse()
            .ok()
    });
    let mut body = String::new();
    let sent = reader.take(length.unwrap_or(0)).read_to_string(&mut body);
    sent.unwrap();
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let count = {
        let mut seen = seen.lock().unwrap();
        seen.push(Asked {
            method,
            path: path.clone(),
            body,
        });
        seen.len() - 1
    };
    // Who asked may not have waited.
    let _ = reply(stream, answer(&path, count));
}

fn reply(mut stream: TcpStream, answer: Reply) -> std::io::Result<()> {
    let head = |code: u16| format!("HTTP/1.1 {code} x\r\nConnection: close\r\n");
    match answer {
        Reply::Json(code, body) => reply(stream, Reply::Text(code, body.to_string())),
        Reply::Text(code, body) => {
            write!(
                stream,
                "{}Content-Length: {}\r\n\r\n{body}",
                head(code),
                body.len()
            )
        }
        Reply::Later(code, seconds) => {
            let head = head(code);
            write!(
                stream,
                "{head}Retry-After: {seconds}\r\nContent-Length: 0\r\n\r\n"
            )
        }
        Reply::Hang => {
            thread::sleep(Duration::from_secs(60));
            Ok(())
        }
        Reply::Stream(lines, end) => {
            write!(stream, "{}Transfer-Encoding: chunked\r\n\r\n", head(200))?;
            for (pause, line) in lines {
                thread::sleep(pause);
                let line = format!("{line}\n");
                write!(stream, "{:x}\r\n{line}\r\n", line.len())?;
            }
            match end {
                StreamEnd::Clean => write!(stream, "0\r\n\r\n"),
                StreamEnd::Cut => write!(stream, "ff\r\n{{\"type\":"),
                StreamEnd::Hang => reply(stream, Reply::Hang),
            }
        }
    }
}

pub fn pod(name: &str, version: u64) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"),
            "resourceVersion": version.to_string(),
        },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "app", "env": [{ "name": "A" }] }] },
        "status": { "phase": "Running", "podIP": "10.0.0.5" },
    })
}

/// A page of a list.
pub fn page(names: &[&str], version: u64, next: &str) -> Value {
    let items: Vec<Value> = names.iter().map(|name| pod(name, version)).collect();
    json!({
        "kind": "PodList", "apiVersion": "v1", "items": items,
        "metadata": { "resourceVersion": version.to_string(), "continue": next },
    })
}

/// A failure as the server words it.
pub fn status(code: u16, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "code": code,
    })
}

/// An event of a watch.
pub fn event(kind: &str, object: Value) -> Value {
    json!({ "type": kind, "object": object })
}
