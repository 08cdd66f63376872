//! A container runtime's socket whose answers are a script's: CRI v1, with the
//! sandboxes that it is told of, and the ways in which real ones fail.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io::Read as _;
use std::net::IpAddr;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use serde_json::json;
use tokio::sync::oneshot;

use crate::cri::message::{
    Container, ContainerMetadata, Empty, Id, LinuxPodSandboxStatus, ListContainersResponse,
    ListPodSandboxResponse, NamespaceOption, Namespaces, Network, PodIp, PodSandbox,
    PodSandboxMetadata, PodSandboxStatus, PodSandboxStatusResponse, StatusRequest, UserNamespace,
    VersionResponse,
};
use crate::netns::Netns;
use crate::{helper, wait};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Well,
    /// It takes calls and never answers.
    Silent,
    /// It has just been started, and lists nothing.
    Empty,
    /// It lists sandboxes, but not their containers.
    InPart,
}

/// A sandbox as it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    /// `SANDBOX_READY`
    pub ready: bool,
    pub addresses: Vec<IpAddr>,
    /// Path of its network namespace.
    pub netns: Option<String>,
    pub host_network: bool,
    /// How long ago it was made.
    pub age: Duration,
    /// Its running containers: ID and name.
    pub containers: Vec<(String, String)>,
    /// The runtime's own part of its status, word for word; made as containerd
    /// makes it if there is none.
    pub info: Option<String>,
    /// The list has it, and its status is an error, as with cri-dockerd where Docker
    /// has lost the container.
    pub lost: bool,
}

/// What one runtime answers otherwise than another.
#[derive(Clone, Debug)]
pub struct Product {
    pub version: VersionResponse,
    /// Status and message of gRPC for a sandbox that is not there.
    pub absent: (u16, String),
}

impl Default for Product {
    fn default() -> Self {
        Self {
            version: VersionResponse::default(),
            absent: (5, String::from("not found")),
        }
    }
}

#[derive(Debug, Default)]
struct Script {
    mood: Mood,
    product: Product,
    sandboxes: BTreeMap<String, Sandbox>,
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
        let sandbox = Sandbox {
            name: format!("pod-{}", id.get(..8).unwrap_or(id)),
            namespace: String::from("shop"),
            uid: id.to_owned(),
            ready: true,
            addresses: address.into_iter().collect(),
            ..Sandbox::default()
        };
        self.put(id, sandbox);
    }

    /// Adds one, or changes what is told of it.
    pub fn put(&self, id: &str, sandbox: Sandbox) {
        lock(&self.script).sandboxes.insert(id.to_owned(), sandbox);
    }

    pub fn remove(&self, id: &str) {
        lock(&self.script).sandboxes.remove(id);
    }

    /// Answers as this runtime from now on.
    pub fn play(&self, product: Product) {
        lock(&self.script).product = product;
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

/// The helper that is a runtime in a namespace of its own.
pub(crate) const ROLE: &str = "scripted-cri";

/// A runtime that is a process in a network namespace. It ends when this is dropped.
#[derive(Debug)]
pub struct RuntimeProcess(Child);

impl RuntimeProcess {
    /// Starts one with these sandboxes: ID, address, and path of the namespace.
    pub fn start(
        netns: &Netns,
        socket: &Path,
        sandboxes: &[(String, Vec<IpAddr>, String)],
    ) -> anyhow::Result<Self> {
        let mut command = helper::command(None, Some(netns), ROLE);
        let command = command.arg(socket).arg(serde_json::to_string(sandboxes)?);
        let this = Self(command.spawn().context("the runtime")?);
        wait::until("the runtime listens", Duration::from_secs(10), || {
            Ok(socket.exists().then_some(()))
        })?;
        Ok(this)
    }
}

impl Drop for RuntimeProcess {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

pub(crate) fn serve_until_closed(socket: &str, sandboxes: &str) -> anyhow::Result<()> {
    let cri = ScriptedCri::start(Path::new(socket))?;
    let sandboxes: Vec<(String, Vec<IpAddr>, String)> = serde_json::from_str(sandboxes)?;
    for (id, addresses, netns) in sandboxes {
        let sandbox = Sandbox {
            name: format!("pod-{}", id.get(..8).unwrap_or(&id)),
            namespace: String::from("shop"),
            uid: id.clone(),
            ready: true,
            addresses,
            netns: Some(netns),
            ..Sandbox::default()
        };
        cri.put(&id, sandbox);
    }
    std::io::stdin()
        .read_to_end(&mut Vec::new())
        .context("stdin")?;
    Ok(())
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
    let body = body.as_deref().unwrap_or_default();
    let answer = answer(&method, body, &mut lock(&script));
    let mut trailers = HeaderMap::new();
    let (status, mut frame) = match answer {
        Some(message) => {
            let length = u32::try_from(message.len()).unwrap_or_default();
            let mut frame = vec![0];
            frame.extend(length.to_be_bytes());
            frame.extend(message);
            (0, frame)
        }
        None => {
            let (status, message) = lock(&script).product.absent.clone();
            if let Ok(message) = HeaderValue::try_from(message) {
                trailers.insert("grpc-message", message);
            }
            (status, Vec::new())
        }
    };
    trailers.insert("grpc-status", HeaderValue::from(status));
    let body = Full::new(Bytes::from(std::mem::take(&mut frame)));
    let body = body.with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}

/// What the tracer has no use for, and is sent by runtimes of today or of later.
const HANDLER: &str = "runc";
const FUTURE: &str = "a field of a later version";

fn nanoseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok();
    let since = since.and_then(|since| since.as_nanos().try_into().ok());
    since.unwrap_or_default()
}

/// The message, or `None` if what was asked for is not there.
fn answer(method: &str, body: &[u8], script: &mut Script) -> Option<Vec<u8>> {
    if let "StopPodSandbox" | "RemovePodSandbox" = method {
        let asked = StatusRequest::decode(body.get(5..)?).ok()?;
        // A part of an ID is enough, as in containerd.
        let mut ids = script.sandboxes.keys();
        let id = ids.find(|id| id.starts_with(&asked.id))?.clone();
        match method {
            "StopPodSandbox" => script.sandboxes.get_mut(&id)?.ready = false,
            _ => drop(script.sandboxes.remove(&id)),
        }
    }
    let all = match script.mood {
        Mood::Empty => &BTreeMap::new(),
        Mood::Well | Mood::InPart | Mood::Silent => &script.sandboxes,
    };
    match method {
        "Version" => Some(script.product.version.encode_to_vec()),
        "ListPodSandbox" => {
            let items = all.iter().map(|(id, sandbox)| PodSandbox {
                id: id.clone(),
                metadata: Some(sandbox.metadata()),
                state: sandbox.state(),
                created_at: sandbox.created_at(),
                labels: sandbox.labels(),
                runtime_handler: HANDLER.to_owned(),
                future: FUTURE.to_owned(),
            });
            let items = items.collect();
            Some(ListPodSandboxResponse { items }.encode_to_vec())
        }
        "PodSandboxStatus" => {
            let asked = StatusRequest::decode(body.get(5..)?).ok()?;
            let mut described = all.iter().filter(|(_, sandbox)| !sandbox.lost);
            let (_, sandbox) = described.find(|(id, _)| id.starts_with(&asked.id))?;
            let mut addresses = sandbox.addresses.iter().map(ToString::to_string);
            let network = Network {
                ip: addresses.next().unwrap_or_default(),
                additional_ips: addresses.map(|ip| PodIp { ip }).collect(),
            };
            let status = PodSandboxStatus {
                metadata: Some(sandbox.metadata()),
                id: asked.id,
                state: sandbox.state(),
                created_at: sandbox.created_at(),
                network: Some(network),
                linux: Some(sandbox.linux()),
                labels: sandbox.labels(),
                runtime_handler: HANDLER.to_owned(),
                future: FUTURE.to_owned(),
            };
            let ids = sandbox.containers.iter();
            let answer = PodSandboxStatusResponse {
                status: Some(status),
                info: sandbox.info(),
                containers_statuses: ids.map(|(id, _)| Id { id: id.clone() }).collect(),
                timestamp: nanoseconds(SystemTime::now()),
                future: FUTURE.to_owned(),
            };
            Some(answer.encode_to_vec())
        }
        "ListContainers" if script.mood == Mood::InPart => None,
        "ListContainers" => {
            const RUNNING: i32 = 1;
            let containers = all.iter().flat_map(|(id, sandbox)| {
                sandbox.containers.iter().map(|(own, name)| Container {
                    id: own.clone(),
                    pod_sandbox_id: id.clone(),
                    metadata: Some(ContainerMetadata { name: name.clone() }),
                    state: RUNNING,
                    image_id: format!("sha256:{own}"),
                    future: FUTURE.to_owned(),
                })
            });
            let containers = containers.collect();
            Some(ListContainersResponse { containers }.encode_to_vec())
        }
        _ => Some(Empty {}.encode_to_vec()),
    }
}

impl Sandbox {
    fn metadata(&self) -> PodSandboxMetadata {
        PodSandboxMetadata {
            name: self.name.clone(),
            uid: self.uid.clone(),
            namespace: self.namespace.clone(),
            attempt: 0,
        }
    }

    fn state(&self) -> i32 {
        i32::from(!self.ready)
    }

    /// Nanoseconds since 1970; 0 if it is not told.
    fn created_at(&self) -> i64 {
        match self.age.is_zero() {
            true => 0,
            false => nanoseconds(SystemTime::now() - self.age),
        }
    }

    /// The kubelet's labels.
    fn labels(&self) -> HashMap<String, String> {
        let labels = [
            ("io.kubernetes.pod.name", &self.name),
            ("io.kubernetes.pod.namespace", &self.namespace),
            ("io.kubernetes.pod.uid", &self.uid),
        ];
        HashMap::from(labels.map(|(key, value)| (key.to_owned(), value.clone())))
    }

    fn linux(&self) -> LinuxPodSandboxStatus {
        const NODE: i32 = 2;
        let options = NamespaceOption {
            network: if self.host_network { NODE } else { 0 },
            userns_options: Some(UserNamespace { mode: NODE }),
            ..NamespaceOption::default()
        };
        let options = Some(options);
        LinuxPodSandboxStatus {
            namespaces: Some(Namespaces { options }),
        }
    }

    /// The runtime's own part, as containerd writes it unless it is given.
    fn info(&self) -> HashMap<String, String> {
        if let Some(info) = &self.info {
            return HashMap::from([(String::from("info"), info.clone())]);
        }
        let network = match (&self.netns, self.host_network) {
            (_, true) => json!([{ "type": "pid" }]),
            (Some(path), false) => json!([{ "type": "pid" }, { "type": "network", "path": path }]),
            (None, false) => return HashMap::new(),
        };
        let info = json!({ "runtimeSpec": { "linux": { "namespaces": network } } });
        HashMap::from([(String::from("info"), info.to_string())])
    }
}
