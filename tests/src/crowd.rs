//! A node with many pods: thousands of network namespaces and tasks, all real.
//!
//! Each pod is a process with several threads, in a network and a mount
//! namespace and a cgroup of its own; a veth pair to a bridge, an IPv4 address,
//! a default route, and a name in /run/netns. The node has a root of its own
//! ([`Crowd::root`]); PIDs and cgroups are the host's. Everything is made
//! by one helper process, without a runtime: in seconds, not in minutes.

mod build;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

pub(crate) use build::serve;

use crate::kubepods::Kubepods;
use crate::own_root::Node;
use crate::stage::{IP, Need};

pub const NEEDS: &[Need] = &[Need::Root, Need::Cgroup, IP];

/// For the whole of it to be made, and to be gone.
const LIMIT: Duration = Duration::from_secs(180);
/// PIDs that are left to others.
const SPARE_PIDS: u64 = 2_000;

/// A running crowd. Dropping it ends all processes and waits until the kernel
/// has taken all namespaces apart.
#[derive(Debug)]
pub struct Crowd {
    // Dropped in this order: what is in the cgroups ends with the helper.
    node: Node,
    _pods: Kubepods,
}

/// A number in a file of /proc/sys/kernel.
fn kernel_limit(name: &str) -> anyhow::Result<u64> {
    let path = format!("/proc/sys/kernel/{name}");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    text.trim().parse().context(path)
}

/// Tasks that are there now, threads included.
fn tasks_now() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    let count = text.split(' ').nth(3).and_then(|pair| pair.split_once('/'));
    count
        .and_then(|(_, all)| all.parse().ok())
        .context("/proc/loadavg")
}

/// Fails, with the remedy, where so many tasks do not fit.
fn room_for(tasks: u64) -> anyhow::Result<()> {
    let now = tasks_now()?;
    for name in ["pid_max", "threads-max"] {
        let limit = kernel_limit(name)?;
        anyhow::ensure!(
            now + tasks + SPARE_PIDS <= limit,
            "{tasks} tasks do not fit: kernel.{name} is {limit}, {now} are there: \
             sysctl -w kernel.{name}={}",
            (limit * 2).max(now + tasks + SPARE_PIDS)
        );
    }
    Ok(())
}

impl Crowd {
    /// Makes so many pods, with so many tasks in all.
    pub fn build(netns: u32, tasks: u32) -> anyhow::Result<Self> {
        anyhow::ensure!(0 < netns && netns <= tasks, "each pod has a task");
        room_for(tasks.into())?;
        let pods = Kubepods::reserve();
        let node = Node::start("crowd", LIMIT, |command, _| {
            command.arg(pods.top());
            command.args([netns.to_string(), tasks.to_string()]);
            Ok(())
        })?;
        node.helper.wait_until_ready("the crowd", LIMIT)?;
        Ok(Self { node, _pods: pods })
    }

    /// The process whose namespaces and root are the node's.
    pub fn pid(&self) -> u32 {
        self.node.helper.pid()
    }

    /// The node's root, as the host sees it: for `--root`.
    pub fn root(&self) -> PathBuf {
        self.node.root()
    }

    /// Inodes of the pods' network namespaces.
    pub fn inodes(&self) -> anyhow::Result<Vec<u64>> {
        let folder = self.root().join("run/netns");
        let names = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        names
            .map(|name| Ok(fs::metadata(name?.path())?.ino()))
            .collect()
    }

    /// A command that runs in the node's network namespace, on the host's root.
    pub fn command(&self, program: &Path) -> anyhow::Result<Command> {
        self.node.command(program.as_os_str())
    }
}
