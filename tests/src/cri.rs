//! A client of the container runtime's interface (CRI v1), as kubelet is one.
//!
//! For the stage, which makes pods with it, and for the bench, which asks what
//! `crictl` would ask. Calls block; each has a time limit, which goes to the
//! server as well.

pub mod message;

use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tonic::body::Body;

use message::{
    Capability, ContainerConfig, ContainerMetadata, ContainerSecurity, ContainerStatusResponse,
    CreateContainerRequest, Empty, ExecSyncRequest, ExecSyncResponse, Id, ImageSpec,
    LinuxContainerConfig, LinuxPodSandboxConfig, ListImagesResponse, ListPodSandboxResponse, Mount,
    NamespaceOption, PodSandbox, PodSandboxConfig, PodSandboxMetadata, PodSandboxStatusResponse,
    Profile, RunPodSandboxRequest, SecurityContext, StatusRequest,
};

/// For a call that is to be answered. Long, as kubelet's is: a sandbox takes
/// half a minute in an emulated machine whose host does much else.
const LIMIT: Duration = Duration::from_secs(120);

/// A connection to a runtime.
#[derive(Debug)]
pub struct Cri {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
}

/// hyper's connection as tonic wants one.
#[derive(Clone, Debug)]
struct Channel(SendRequest<Body>);

impl tower_service::Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = std::pin::Pin<
        Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send + 'static>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// What a sandbox is made of.
#[derive(Clone, Debug)]
pub struct PodConfig {
    pub metadata: PodSandboxMetadata,
    /// Where its containers' cgroups are.
    pub cgroup_parent: String,
    /// Whether it is in the node's own network namespace.
    pub host_network: bool,
    /// Whether its processes see the node's.
    pub host_pid: bool,
}

/// A container without privileges but with capabilities, on the node's root:
/// what a DaemonSet of this tracer is.
#[derive(Clone, Debug)]
pub struct Daemon<'a> {
    /// Its name in the pod.
    pub name: &'a str,
    /// What it is made from.
    pub image: &'a str,
    pub argv: &'a [&'a str],
    pub capabilities: &'a [&'a str],
    /// Where the node's root is, with all below it, read-only.
    pub root: &'a str,
    /// (path of the node, path in the container)
    pub mounts: &'a [(&'a Path, &'a str)],
}

impl PodConfig {
    /// The labels that kubelet gives all containers and sandboxes.
    fn labels(&self) -> [(String, String); 3] {
        let PodSandboxMetadata {
            name,
            uid,
            namespace,
            ..
        } = &self.metadata;
        [
            ("io.kubernetes.pod.name", name),
            ("io.kubernetes.pod.namespace", namespace),
            ("io.kubernetes.pod.uid", uid),
        ]
        .map(|(key, value)| (key.to_owned(), value.clone()))
    }

    fn namespaces(&self) -> NamespaceOption {
        const NODE: i32 = 2;
        const CONTAINER: i32 = 1;
        NamespaceOption {
            network: if self.host_network { NODE } else { 0 },
            pid: if self.host_pid { NODE } else { CONTAINER },
            ..NamespaceOption::default()
        }
    }

    fn message(&self) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: Some(self.metadata.clone()),
            hostname: match self.host_network {
                true => String::new(),
                false => self.metadata.name.clone(),
            },
            labels: self.labels().into(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup_parent.clone(),
                security_context: Some(SecurityContext {
                    namespace_options: Some(self.namespaces()),
                }),
            }),
        }
    }
}

#[derive(Clone, Debug)]
pub struct SandboxStatus {
    /// Whether it is ready.
    pub ready: bool,
    /// Its address; empty on the host network.
    pub ip: String,
    /// All of it, as `crictl inspectp` prints it.
    pub all: Value,
}

/// The runtime's own part of an answer: JSON in a string.
fn info(text: Option<&String>) -> Value {
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// The process ID in the runtime's own part of an answer.
fn pid(info: &Value) -> anyhow::Result<u32> {
    info["pid"]
        .as_u64()
        .filter(|&pid| pid > 0)
        .map(|pid| pid as u32)
        .with_context(|| format!("the runtime tells no process ID: {info}"))
}

impl Cri {
    pub fn connect(socket: &Path) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let send = runtime
            .block_on(async {
                let stream = tokio::net::UnixStream::connect(socket).await?;
                let (send, connection) =
                    http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
                // Its errors are those of the calls on it.
                tokio::spawn(connection);
                anyhow::Ok(send)
            })
            .with_context(|| format!("connect to {}", socket.display()))?;
        Ok(Self {
            runtime,
            channel: Channel(send),
        })
    }

    fn call<Q, A>(
        &self,
        path: &'static str,
        question: Q,
        limit: Duration,
    ) -> Result<A, tonic::Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut request = tonic::Request::new(question);
        request.set_timeout(limit);
        let channel = self.channel.clone();
        let answer = async {
            let origin = Uri::from_static("http://localhost");
            let mut client = tonic::client::Grpc::with_origin(channel, origin);
            let ready = client.ready().await;
            ready.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
            let codec = tonic_prost::ProstCodec::<Q, A>::default();
            let path = PathAndQuery::from_static(path);
            client.unary(request, path, codec).await
        };
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(limit, answer).await });
        match answer {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_) => Err(tonic::Status::deadline_exceeded("no answer in time")),
        }
    }

    /// Tags of all images.
    pub fn images(&self) -> anyhow::Result<Vec<String>> {
        let path = "/runtime.v1.ImageService/ListImages";
        let answer: ListImagesResponse = self.call(path, Empty {}, LIMIT).context("ListImages")?;
        let images = answer.images.into_iter();
        Ok(images.flat_map(|image| image.repo_tags).collect())
    }

    /// All sandboxes, ready or not.
    pub fn sandboxes(&self) -> anyhow::Result<Vec<PodSandbox>> {
        let path = "/runtime.v1.RuntimeService/ListPodSandbox";
        let answer: ListPodSandboxResponse =
            self.call(path, Empty {}, LIMIT).context("ListPodSandbox")?;
        Ok(answer.items)
    }

    /// Asks how the runtime and its network are, as kubelet does every 5 seconds.
    /// Since containerd 2.0 this has each CNI plugin tell its status.
    pub fn status(&self) -> anyhow::Result<()> {
        let path = "/runtime.v1.RuntimeService/Status";
        let Empty {} = self.call(path, Empty {}, LIMIT).context("Status")?;
        Ok(())
    }

    /// Makes a sandbox and returns its ID.
    pub fn run_sandbox(&self, pod: &PodConfig) -> anyhow::Result<String> {
        let path = "/runtime.v1.RuntimeService/RunPodSandbox";
        let request = RunPodSandboxRequest {
            config: Some(pod.message()),
        };
        let answer: Id = self
            .call(path, request, LIMIT)
            .with_context(|| format!("RunPodSandbox {}", pod.metadata.name))?;
        Ok(answer.id)
    }

    /// A sandbox's status, with the runtime's own part.
    pub fn sandbox_status(&self, id: &str) -> anyhow::Result<SandboxStatus> {
        let path = "/runtime.v1.RuntimeService/PodSandboxStatus";
        let request = StatusRequest {
            id: id.to_owned(),
            verbose: true,
        };
        let answer: PodSandboxStatusResponse = self
            .call(path, request, LIMIT)
            .with_context(|| format!("PodSandboxStatus {id}"))?;
        let status = answer.status.context("a status without a status")?;
        let metadata = status.metadata.unwrap_or_default();
        let ip = status.network.unwrap_or_default().ip;
        let ready = status.state == 0;
        let state = if ready {
            "SANDBOX_READY"
        } else {
            "SANDBOX_NOTREADY"
        };
        let all = json!({
            "status": {
                "id": status.id,
                "metadata": {
                    "attempt": metadata.attempt, "name": metadata.name,
                    "namespace": metadata.namespace, "uid": metadata.uid,
                },
                "network": { "ip": &ip },
                "state": state,
            },
            "info": info(answer.info.get("info")),
        });
        Ok(SandboxStatus { ready, ip, all })
    }

    /// Process ID of a sandbox's first process, as the runtime tells it.
    pub fn sandbox_pid(&self, status: &SandboxStatus) -> anyhow::Result<u32> {
        pid(&status.all["info"])
    }

    /// Makes a container in a sandbox, and starts it. `mounts` are (path of
    /// the node, path in the container). Returns its ID and process ID.
    pub fn run_container(
        &self,
        sandbox: &str,
        pod: &PodConfig,
        name: &str,
        image: &str,
        argv: &[&str],
        mounts: &[(&Path, &str)],
    ) -> anyhow::Result<(String, u32)> {
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: name.to_owned(),
            }),
            image: Some(ImageSpec {
                image: image.to_owned(),
            }),
            command: argv.iter().map(|&arg| arg.to_owned()).collect(),
            mounts: mounts.iter().map(mount).collect(),
            ..ContainerConfig::default()
        };
        self.start_container(sandbox, pod, config)
    }

    /// Makes and starts a [`Daemon`]. Returns its ID and process ID.
    pub fn run_daemon(
        &self,
        sandbox: &str,
        pod: &PodConfig,
        daemon: &Daemon<'_>,
    ) -> anyhow::Result<(String, u32)> {
        const HOST_TO_CONTAINER: i32 = 1;
        const UNCONFINED: i32 = 1;
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let root = Mount {
            container_path: daemon.root.to_owned(),
            host_path: String::from("/"),
            readonly: true,
            propagation: HOST_TO_CONTAINER,
        };
        let security = ContainerSecurity {
            capabilities: Some(Capability {
                add: names(daemon.capabilities),
                drop: names(&["ALL"]),
            }),
            namespace_options: Some(pod.namespaces()),
            readonly_rootfs: true,
            no_new_privs: true,
            // The runtime's default.
            seccomp: Some(Profile::default()),
            apparmor: Some(Profile { kind: UNCONFINED }),
        };
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: daemon.name.to_owned(),
            }),
            image: Some(ImageSpec {
                image: daemon.image.to_owned(),
            }),
            command: names(daemon.argv),
            mounts: daemon.mounts.iter().map(mount).chain([root]).collect(),
            linux: Some(LinuxContainerConfig {
                security_context: Some(security),
            }),
            ..ContainerConfig::default()
        };
        self.start_container(sandbox, pod, config)
    }

    fn start_container(
        &self,
        sandbox: &str,
        pod: &PodConfig,
        config: ContainerConfig,
    ) -> anyhow::Result<(String, u32)> {
        let name = config.metadata.clone().unwrap_or_default().name;
        let mut labels: std::collections::HashMap<String, String> = pod.labels().into();
        labels.insert("io.kubernetes.container.name".to_owned(), name.clone());
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(ContainerConfig { labels, ..config }),
            sandbox_config: Some(pod.message()),
        };
        let made: Id = self
            .call("/runtime.v1.RuntimeService/CreateContainer", request, LIMIT)
            .with_context(|| format!("CreateContainer {name}"))?;
        let _: Empty = self
            .call(
                "/runtime.v1.RuntimeService/StartContainer",
                made.clone(),
                LIMIT,
            )
            .with_context(|| format!("StartContainer {name}"))?;
        let pid = self.container_pid(&made.id)?;
        Ok((made.id, pid))
    }

    /// Runs a program in a container to its end; what it has written to its
    /// standard output.
    pub fn exec(&self, container: &str, argv: &[&str]) -> anyhow::Result<String> {
        let path = "/runtime.v1.RuntimeService/ExecSync";
        let request = ExecSyncRequest {
            container_id: container.to_owned(),
            cmd: argv.iter().map(|&arg| arg.to_owned()).collect(),
        };
        let answer: ExecSyncResponse = self
            .call(path, request, LIMIT)
            .with_context(|| format!("ExecSync {argv:?}"))?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        anyhow::ensure!(
            !text.is_empty(),
            "{argv:?}: nothing, and {}",
            String::from_utf8_lossy(&answer.stderr)
        );
        Ok(text)
    }

    /// Process ID of a container, as the runtime tells it.
    pub fn container_pid(&self, id: &str) -> anyhow::Result<u32> {
        let path = "/runtime.v1.RuntimeService/ContainerStatus";
        let question = StatusRequest {
            id: id.to_owned(),
            verbose: true,
        };
        let status: ContainerStatusResponse = self
            .call(path, question, LIMIT)
            .with_context(|| format!("ContainerStatus {id}"))?;
        pid(&info(status.info.get("info")))
    }

    /// Stops a sandbox and its containers. Returns whether the runtime was
    /// done within `limit`.
    pub fn stop_sandbox(&self, id: &str, limit: Duration) -> anyhow::Result<bool> {
        let path = "/runtime.v1.RuntimeService/StopPodSandbox";
        match self.call::<_, Empty>(path, Id { id: id.to_owned() }, limit) {
            Ok(Empty {}) => Ok(true),
            Err(status) if late(&status) => Ok(false),
            Err(status) => Err(status).with_context(|| format!("StopPodSandbox {id}")),
        }
    }

    pub fn remove_sandbox(&self, id: &str) -> anyhow::Result<()> {
        let path = "/runtime.v1.RuntimeService/RemovePodSandbox";
        let _: Empty = self
            .call(path, Id { id: id.to_owned() }, LIMIT)
            .with_context(|| format!("RemovePodSandbox {id}"))?;
        Ok(())
    }
}

fn mount(&(from, to): &(&Path, &str)) -> Mount {
    Mount {
        container_path: to.to_owned(),
        host_path: from.display().to_string(),
        ..Mount::default()
    }
}

/// Whether a call failed because its time was up. (containerd passes the
/// deadline of an inner call on under other codes.)
fn late(status: &tonic::Status) -> bool {
    matches!(
        status.code(),
        tonic::Code::DeadlineExceeded | tonic::Code::Cancelled
    ) || status.message().contains("deadline exceeded")
}
