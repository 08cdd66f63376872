//! A container runtime's socket whose answers are a script's: CRI v1, with the
//! sandboxes that it is told of, and the ways in which real ones fail.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::sync::oneshot;

use crate::cri::message::{
    Empty, ListPodSandboxResponse, Network, PodSandbox, PodSandboxMetadata, PodSandboxStatus,
    PodSandboxStatusResponse, StatusRequest,
};

/// How it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// As it should.
    #[default]
    Well,
    /// It takes calls and never answers.
    Silent,
    /// It has just been started, and lists nothing.
    Empty,
    /// It lists sandboxes, but not their containers.
    InPart,
}

#[derive(Debug, Default)]
struct Script {
    mood: Mood,
    sandboxes: BTreeMap<String, Option<IpAddr>>,
}

/// A runtime. It ends when this is dropped.
#[derive(Debug)]
pub struct ScriptedCri {
    script: Arc<Mutex<Script>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScriptedCri {
    /// Listens there.
    pub fn start(socket: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(socket.parent().context("a socket in no folder")?)?;
        let listener = UnixListener::bind(socket).context("the runtime's socket")?;
        listener.set_nonblocking(true)?;
        let script = Arc::new(Mutex::new(Script::default()));
        let (stop, stopped) = oneshot::channel();
        let told = Arc::clone(&script);
        let thread = std::thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let Ok(runtime) = builder.enable_all().build() else {
                return;
            };
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    _ = serve(listener, told) => {}
                }
            });
        });
        Ok(Self {
            script,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Adds a sandbox, with the address that it says it has.
    pub fn add(&self, id: &str, address: Option<IpAddr>) {
        lock(&self.script).sandboxes.insert(id.to_owned(), address);
    }

    /// Takes one away.
    pub fn remove(&self, id: &str) {
        lock(&self.script).sandboxes.remove(id);
    }

    /// Answers so from now on.
    pub fn be(&self, mood: Mood) {
        lock(&self.script).mood = mood;
    }
}

impl Drop for ScriptedCri {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: UnixListener, script: Arc<Mutex<Script>>) -> std::io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let script = Arc::clone(&script);
        let service = service_fn(move |request| respond(request, Arc::clone(&script)));
        let server = http2::Builder::new(TokioExecutor::new());
        tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
    }
}

async fn respond(
    request: Request<Incoming>,
    script: Arc<Mutex<Script>>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default();
    let method = method.to_owned();
    let body = request.into_body().collect().await;
    let body = body.map(http_body_util::Collected::to_bytes);
    if lock(&script).mood == Mood::Silent {
        return std::future::pending().await;
    }
    let answer = answer(&method, body.as_deref().unwrap_or_default(), &lock(&script));
    let (status, mut frame) = match answer {
        Some(message) => {
            let length = u32::try_from(message.len()).unwrap_or_default();
            let mut frame = vec![0];
            frame.extend(length.to_be_bytes());
            frame.extend(message);
            (0, frame)
        }
        None => (5, Vec::new()),
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(status));
    let body = Full::new(Bytes::from(std::mem::take(&mut frame)));
    let body = body.with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}

/// The message, or `None` for "not found".
fn answer(method: &str, body: &[u8], script: &Script) -> Option<Vec<u8>> {
    let all = match script.mood {
        Mood::Empty => &BTreeMap::new(),
        Mood::Well | Mood::InPart | Mood::Silent => &script.sandboxes,
    };
    let metadata = |id: &str| PodSandboxMetadata {
        name: format!("pod-{}", id.get(..8).unwrap_or(id)),
        uid: id.to_owned(),
        namespace: String::from("shop"),
        attempt: 0,
    };
    match method {
        "ListPodSandbox" => {
            let items = all.keys().map(|id| PodSandbox {
                id: id.clone(),
                metadata: Some(metadata(id)),
                state: 0,
            });
            let items = items.collect();
            Some(ListPodSandboxResponse { items }.encode_to_vec())
        }
        "PodSandboxStatus" => {
            let asked = StatusRequest::decode(body.get(5..)?).ok()?;
            let address = (*all.get(&asked.id)?).map(|address| address.to_string());
            let status = PodSandboxStatus {
                metadata: Some(metadata(&asked.id)),
                id: asked.id,
                state: 0,
                network: Some(Network {
                    ip: address.unwrap_or_default(),
                }),
            };
            let status = Some(status);
            let info = std::collections::HashMap::new();
            Some(PodSandboxStatusResponse { status, info }.encode_to_vec())
        }
        "ListContainers" if script.mood == Mood::InPart => None,
        _ => Some(Empty {}.encode_to_vec()),
    }
}
