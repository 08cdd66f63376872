//! A node with a real container runtime: containerd, runc and the CNI plugins, this
//! machine's or newer ones ([`Generation`]).
//!
//! Needs root, Debian's packages containerd, runc, containernetworking-plugins,
//! busybox-static and iproute2 ([`NEEDS`]), and a kernel with overlayfs; no
//! network, no registry, no service manager. It runs in a mount and a network
//! namespace of its own, on a root directory of its own that is in memory: all
//! usual paths (/run/containerd, /var/lib/cni, /etc/cni/net.d, /run/netns) are
//! the node's there, and the host reaches them below [`Containerd::root`]. PIDs
//! and cgroups are the host's; the pods' are below `/nt-test-PID-N/kubepods`.
//! On drop, or when the program that made it dies, everything it started is
//! killed. (A process in uninterruptible sleep is not: let it go first.)

pub mod generation;
pub mod image;
pub mod incident;
pub(crate) mod node;
mod setup;

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use crate::cri::message::PodSandboxMetadata;
use crate::cri::{Cri, PodConfig};
use crate::kubepods::Kubepods;
use crate::own_root::Node;
use crate::stage::{IP, Need};
use crate::tracer::Tracer;
use crate::{process, wait};

pub use generation::Generation;
pub use setup::{Setup, Subnet};

pub const NEEDS: &[Need] = &[
    Need::Root,
    Need::Cgroup,
    Need::Cni,
    Need::Program("containerd", "containerd"),
    Need::Program("ctr", "containerd"),
    Need::Program("runc", "runc"),
    Need::Program("sha256sum", "coreutils"),
    Need::StaticBusybox,
    IP,
];

/// What a node with newer programs needs: they are its own.
pub const NEWER: &[Need] = &[
    Need::Root,
    Need::Cgroup,
    Need::NewerNode,
    Need::Program("sha256sum", "coreutils"),
    IP,
];

/// The runtime's socket, on the node.
pub const SOCKET: &str = "/run/containerd/containerd.sock";
/// Name of the pod network.
pub const NETWORK: &str = "stage";
pub const BRIDGE: &str = "cni0";
/// Where its reservations are, on the node.
pub const STORE: &str = "/var/lib/cni/networks/stage";

/// A sandbox as the runtime made it.
#[derive(Clone, Debug)]
pub struct Sandbox {
    pub id: String,
    /// What was asked for.
    pub config: PodConfig,
    /// Its address; none on the host network.
    pub ip: Option<Ipv4Addr>,
    /// Path of its network namespace, on the node; none on the host network.
    pub netns_path: Option<PathBuf>,
    /// Inode of the network namespace that it is in.
    pub netns_inode: u64,
    /// Its first process.
    pub pid: u32,
}

/// For what a runtime does in a moment, on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(60);
/// For all that it has started to end.
const PATIENCE: Duration = Duration::from_secs(40);

/// Waits until a container's process is its own program: the runtime says that
/// it has started a moment before.
fn wait_for_program(pid: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/comm");
    wait::until("the container's program", LIMIT, || {
        let comm = fs::read_to_string(&path).with_context(|| format!("process {pid} has ended"))?;
        let starter = comm.starts_with("runc:") || comm.trim() == "crun";
        Ok((!starter).then_some(()))
    })
}

impl Sandbox {
    /// Has a runtime of this machine make a pod's sandbox.
    pub(crate) fn make(cri: &Cri, config: PodConfig) -> anyhow::Result<Self> {
        let id = cri.run_sandbox(&config)?;
        Self::of(cri, id, config)
    }

    /// A sandbox that is there, whoever has made it.
    pub(crate) fn of(cri: &Cri, id: String, config: PodConfig) -> anyhow::Result<Self> {
        let status = cri.sandbox_status(&id)?;
        let pid = cri.sandbox_pid(&status)?;
        wait_for_program(pid)?;
        let namespaces = status.all["info"]["runtimeSpec"]["linux"]["namespaces"].as_array();
        let netns_path = namespaces
            .into_iter()
            .flatten()
            .find(|namespace| namespace["type"] == "network")
            .and_then(|namespace| namespace["path"].as_str())
            .filter(|path| !path.is_empty() && !config.host_network)
            .map(PathBuf::from);
        Ok(Self {
            id,
            config,
            ip: status.ip.parse().ok(),
            netns_path,
            netns_inode: fs::metadata(format!("/proc/{pid}/ns/net"))
                .with_context(|| format!("the sandbox's process {pid}"))?
                .ino(),
            pid,
        })
    }

    /// Makes and starts a container of busybox in it. `mounts` are (folder or
    /// file of the node, path in the container). Returns its ID and process ID.
    pub(crate) fn run_container(
        &self,
        cri: &Cri,
        name: &str,
        argv: &[&str],
        mounts: &[(&Path, &str)],
    ) -> anyhow::Result<(String, u32)> {
        let made = cri.run_container(&self.id, &self.config, name, image::BOX, argv, mounts)?;
        wait_for_program(made.1)?;
        Ok(made)
    }
}

/// Frees an address as a collector does that trusts the API server alone: the
/// reservation goes, and this address is the next to be given out. Returns the
/// file that was removed.
pub(crate) fn collect(store: &Path, address: Ipv4Addr) -> anyhow::Result<PathBuf> {
    let reservation = store.join(address.to_string());
    fs::remove_file(&reservation).with_context(|| format!("rm {}", reservation.display()))?;
    let before = Ipv4Addr::from(u32::from(address) - 1);
    fs::write(store.join("last_reserved_ip.0"), before.to_string())
        .context("set last_reserved_ip.0 back")?;
    Ok(reservation)
}

#[derive(Debug)]
pub struct Containerd {
    // Dropped in this order: what is in the cgroups ends with the helper.
    cri: Cri,
    node: Node,
    pods: Kubepods,
    runtime_pid: u32,
}

impl Containerd {
    /// Starts one with a large pod network.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(Subnet::Large, &[])
    }

    /// Starts one that has these folders of the host too, at the same paths.
    pub fn start_with(subnet: Subnet, volumes: &[&Path]) -> anyhow::Result<Self> {
        Self::start_as(Setup {
            subnet,
            volumes,
            ..Setup::default()
        })
    }

    /// Starts one as it is wanted. Back when pods can be made.
    pub fn start_as(setup: Setup<'_>) -> anyhow::Result<Self> {
        let plugins = match setup.plugins {
            Some(folder) => folder,
            None => {
                let folder = setup.generation.plugins();
                folder.context("the CNI plugins are not installed")?
            }
        };
        let versions = setup.generation.cni_versions();
        let network = setup
            .network
            .map_or_else(|| setup.subnet.network(versions), Value::clone);
        let pods = Kubepods::reserve();
        let mut log_path = PathBuf::new();
        let node = Node::start("containerd", PATIENCE, |command, folder| {
            log_path = folder.join("log");
            command.arg(setup.generation.as_str());
            command.arg(plugins).arg(network.to_string());
            command.args(setup.volumes);
            command.stderr(fs::File::create(&log_path)?);
            Ok(())
        })?;
        let line = node.helper.line("the node", LIMIT).with_context(|| {
            let log = fs::read_to_string(&log_path).unwrap_or_default();
            let lines: Vec<&str> = log.lines().rev().take(5).collect();
            format!("its last lines, the last one first:\n{}", lines.join("\n"))
        })?;
        let runtime_pid = line.strip_prefix("ready ").with_context(|| line.clone())?;
        let runtime_pid = runtime_pid.parse()?;
        let cri = Cri::connect(&node.host_path(Path::new(SOCKET)))?;
        // The import is known to the CRI part a moment later.
        wait::until("the images", Duration::from_secs(20), || {
            let there = cri.images()?;
            let has = |image: &str| there.iter().any(|tag| tag == image);
            Ok((has(image::PAUSE) && has(image::BOX)).then_some(()))
        })?;
        Ok(Self {
            cri,
            node,
            pods,
            runtime_pid,
        })
    }

    /// Another CRI client, for a thread of its own.
    pub fn connect(&self) -> anyhow::Result<Cri> {
        Cri::connect(&self.socket())
    }

    /// Starts `trace -o json ARGS` on this node, and waits until it watches.
    pub fn trace(&self, args: &[&str]) -> anyhow::Result<Tracer> {
        let mut line = self.command(crate::tracer::binary()?)?;
        line.args(["trace", "-o", "json", "--root"])
            .arg(self.root())
            .args(args);
        let mut tracer = Tracer::start(&mut line, |_| ())?;
        tracer.wait_until_ready()?;
        Ok(tracer)
    }

    /// The CRI client of the stage itself.
    pub fn cri(&self) -> &Cri {
        &self.cri
    }

    /// The process whose namespaces and root are the node's.
    pub fn pid(&self) -> u32 {
        self.node.helper.pid()
    }

    pub fn runtime_pid(&self) -> u32 {
        self.runtime_pid
    }

    /// The node's root, as the host sees it: for `--root`.
    pub fn root(&self) -> PathBuf {
        self.node.root()
    }

    /// A path of the node, as the host sees it.
    pub fn host_path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.node.host_path(path.as_ref())
    }

    /// Name of the cgroup below which all pods' are.
    pub fn cgroup_top(&self) -> &str {
        self.pods.top()
    }

    /// The runtime's socket, as the host sees it.
    pub fn socket(&self) -> PathBuf {
        self.host_path(SOCKET)
    }

    /// The folder of the pod network's reservations, as the host sees it.
    pub fn store(&self) -> PathBuf {
        self.host_path(STORE)
    }

    /// A command that runs in the node's network namespace, on the host's root.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> anyhow::Result<Command> {
        self.node.command(program.as_ref())
    }

    /// Stops the runtime in its tracks: its socket accepts and never answers.
    /// Everything else goes on. Until [`thaw`](Self::thaw) no call here works.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal(libc::SIGSTOP)
    }

    /// Lets it go on.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal(libc::SIGCONT)
    }

    fn signal(&self, signal: libc::c_int) -> anyhow::Result<()> {
        // The helper ends as soon as containerd does, so the PID is its own.
        process::signal(self.runtime_pid, signal).context("signal containerd")
    }

    /// What a pod's sandbox is made of, for calls of one's own.
    pub fn pod_config(
        &self,
        name: &str,
        namespace: &str,
        uid: &str,
        attempt: u32,
        host_network: bool,
    ) -> PodConfig {
        PodConfig {
            metadata: PodSandboxMetadata {
                name: name.to_owned(),
                uid: uid.to_owned(),
                namespace: namespace.to_owned(),
                attempt,
            },
            cgroup_parent: self.pods.pod(uid),
            host_network,
            host_pid: false,
        }
    }

    /// Makes a pod's sandbox.
    pub fn run_pod(
        &self,
        name: &str,
        namespace: &str,
        uid: &str,
        attempt: u32,
        host_network: bool,
    ) -> anyhow::Result<Sandbox> {
        let config = self.pod_config(name, namespace, uid, attempt, host_network);
        let id = self.cri.run_sandbox(&config)?;
        self.sandbox(id, config)
    }

    /// A sandbox that is there, whoever has made it.
    pub fn sandbox(&self, id: String, config: PodConfig) -> anyhow::Result<Sandbox> {
        Sandbox::of(&self.cri, id, config)
    }

    /// Makes and starts a container of busybox in a sandbox. `mounts` are
    /// (folder or file of the node, path in the container). Returns its ID and
    /// process ID.
    pub fn run_container(
        &self,
        sandbox: &Sandbox,
        name: &str,
        argv: &[&str],
        mounts: &[(&Path, &str)],
    ) -> anyhow::Result<(String, u32)> {
        sandbox.run_container(&self.cri, name, argv, mounts)
    }

    /// Stops a sandbox with its containers. Returns whether the runtime was
    /// done within `limit`.
    pub fn stop(&self, sandbox: &Sandbox, limit: Duration) -> anyhow::Result<bool> {
        self.cri.stop_sandbox(&sandbox.id, limit)
    }

    /// Removes a sandbox that is stopped.
    pub fn remove(&self, sandbox: &Sandbox) -> anyhow::Result<()> {
        self.cri.remove_sandbox(&sandbox.id)
    }

    /// Frees an address as a collector does that trusts the API server alone.
    /// Returns the reservation that was removed.
    pub fn collect(&self, address: Ipv4Addr) -> anyhow::Result<PathBuf> {
        collect(&self.store(), address)
    }
}
