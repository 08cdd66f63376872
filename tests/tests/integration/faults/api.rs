//! An API server that refuses, expires, goes and comes back.

use node_tracer_tests::test;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use node_tracer_tests::pods::node_name;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::tracer::{Tracer, is_event};
use node_tracer_tests::wait;
use serde_json::{Value, json};

/// A failure that lasts is told after ten seconds; a loaded machine adds to that.
const SOON: Duration = Duration::from_secs(40);
const UID: &str = "5f0d3c38-0001-4a7b-9c1d-3b7f00000001";

/// What the server does now.
#[derive(Clone, Debug, PartialEq)]
enum Mood {
    /// This status to everything.
    Refuse(u16),
    /// A list of these names, and a watch that says nothing.
    List(Vec<&'static str>),
    /// Takes connections and is silent.
    Silent,
    /// Lets every connection go.
    Gone,
}

#[derive(Debug)]
struct State {
    mood: Mood,
    open: Vec<TcpStream>,
}

/// A server of a scripted mood.
struct Server {
    port: u16,
    state: Arc<Mutex<State>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    fn start(mood: Mood) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(Mutex::new(State {
            mood,
            open: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        // It ends with the tests' process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || drop(serve(stream, &state)));
            }
        });
        Ok(Self { port, state })
    }

    /// Another mood; what is under way ends with it, first with an event.
    fn turn(&self, mood: Mood, last: Option<&Value>) {
        let mut state = lock(&self.state);
        state.mood = mood;
        for mut stream in state.open.drain(..) {
            if let Some(event) = last {
                let line = format!("{event}\n");
                let _ = write!(stream, "{:x}\r\n{line}\r\n0\r\n\r\n", line.len());
            }
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn kubeconfig(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let path = folder.join("kubeconfig");
        let server = format!("http://127.0.0.1:{}", self.port);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{ "name": "c", "cluster": { "server": server } }],
            "users": [{ "name": "u", "user": { "token": "a-token-of-nobody" } }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
        });
        fs::write(&path, config.to_string())?;
        Ok(path)
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    loop {
        let mut request = String::new();
        loop {
            match lines.next() {
                Some(Ok(line)) if line.is_empty() => break,
                Some(Ok(line)) => request += &line,
                _ => return Ok(()),
            }
        }
        let mut stream = stream.try_clone()?;
        let mut state = lock(state);
        match &state.mood {
            Mood::Gone => return stream.shutdown(Shutdown::Both),
            Mood::Silent => state.open.push(stream),
            Mood::Refuse(code) => answer(&mut stream, *code, &status(*code))?,
            Mood::List(_) if request.contains("watch=") => {
                stream.write_all(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                    Transfer-Encoding: chunked\r\n\r\n",
                )?;
                state.open.push(stream);
            }
            Mood::List(names) => {
                let items: Vec<Value> = names.iter().map(|name| pod(name)).collect();
                let list = json!({
                    "kind": "PodList", "apiVersion": "v1",
                    "metadata": { "resourceVersion": "10" }, "items": items,
                });
                answer(&mut stream, 200, &list)?;
            }
        }
    }
}

fn answer(stream: &mut TcpStream, code: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    write!(
        stream,
        "HTTP/1.1 {code} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn status(code: u16) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": format!("scripted {code}"), "code": code,
    })
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "shop", "uid": UID },
        "spec": { "nodeName": node_name() }, "status": { "phase": "Running" },
    })
}

fn is_told(record: &Value, event: &str) -> bool {
    is_event(record, event) && record["source"] == "pods"
}

fn count(tracer: &Tracer, event: &str) -> usize {
    let records = tracer.records();
    records
        .iter()
        .filter(|record| is_told(record, event))
        .count()
}

/// A tracer that asks this server.
fn trace(server: &Server, folder: &Scratch) -> anyhow::Result<Tracer> {
    let config = server.kubeconfig(folder.path())?.display().to_string();
    Tracer::trace_with(&["--pods", "auto", "--kubeconfig", &config], &[])
}

test!(
    super::NEEDS,
    faults_api_server_that_refuses_and_expires_is_told_and_asked_again
);
fn faults_api_server_that_refuses_and_expires_is_told_and_asked_again() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let server = Server::start(Mood::Refuse(401))?;
    let mut tracer = trace(&server, &folder)?;
    let failed = |code: &'static str| {
        move |record: &Value| {
            let error = record["error"].as_str().unwrap_or_default();
            is_told(record, "source-failed") && error.contains(code)
        }
    };
    tracer.wait_for("401 to be told", SOON, failed("401"))?;
    server.turn(Mood::Refuse(403), None);
    tracer.wait_for("403 to be told", SOON, failed("403"))?;
    server.turn(Mood::List(vec!["web-0"]), None);
    tracer.wait_for("the list", SOON, |record| is_event(record, "pods-listed"))?;
    tracer.wait_for("the end of the failure", SOON, |record| {
        is_told(record, "source-recovered")
    })?;

    // What is over within a moment is no failure, and nothing is missed.
    let before = count(&tracer, "source-failed");
    let expired = json!({ "type": "ERROR", "object": status(410) });
    server.turn(Mood::Refuse(503), Some(&expired));
    wait::pause(Duration::from_millis(500))?;
    server.turn(Mood::List(Vec::new()), None);
    tracer.wait_for("the deletion", SOON, |record| {
        is_event(record, "pod-deleted") && record["pod"]["uid"] == UID
    })?;
    let after = count(&tracer, "source-failed");
    ensure!(
        after == before,
        "told although it was over: {after}, not {before}"
    );
    end(tracer, &server)
}

test!(
    super::NEEDS,
    faults_api_server_that_goes_and_comes_back_is_no_deletion
);
/// Nobody there; then somebody, nobody for a while, and somebody again.
fn faults_api_server_that_goes_and_comes_back_is_no_deletion() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let server = Server::start(Mood::Gone)?;
    let mut tracer = trace(&server, &folder)?;
    tracer.wait_for("the failure to be told", SOON, |record| {
        is_told(record, "source-failed")
    })?;
    server.turn(Mood::List(vec!["web-0"]), None);
    tracer.wait_for("its end", SOON, |record| {
        is_told(record, "source-recovered")
    })?;
    server.turn(Mood::Gone, None);
    wait::pause(Duration::from_secs(2))?;
    // Nobody has said that the pod is gone.
    let deleted = |record: &Value| is_event(record, "pod-deleted");
    ensure!(!tracer.records().iter().any(deleted), "a deletion");
    server.turn(Mood::List(Vec::new()), None);
    // All nodes of a cluster lose the server together, and each comes back later.
    tracer.wait_for("the deletion", 4 * SOON, deleted)?;
    server.turn(Mood::Silent, None);
    end(tracer, &server)
}

fn end(tracer: Tracer, server: &Server) -> anyhow::Result<()> {
    let ended = tracer.stop()?;
    server.turn(Mood::Gone, None);
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    Ok(())
}
