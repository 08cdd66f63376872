//! The incident of [`incident`](crate::incident), by a real runtime: the pod
//! `stuck` reads a file that hangs and is force-deleted, its sandbox cannot be
//! stopped, its address is freed, and the pod `reborn` gets it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use super::{Containerd, Generation, LIMIT, Sandbox, Setup, Subnet, collect};
use crate::cri::{Cri, PodConfig};
use crate::hangfs::HangFs;
use crate::incident::Stuck;
use crate::pods::{Pod, PodsFile};
use crate::process::{stack, state, wchan};
use crate::scratch::Scratch;
use crate::stage::{self, Need, and};
use crate::wait;

/// All that a [`RealIncident`] needs.
pub const NEEDS: &[Need] = &and::<{ super::NEEDS.len() + 1 }>(super::NEEDS, Need::Fuse);
/// The same with newer programs.
pub const NEWER: &[Need] = &and::<{ super::NEWER.len() + 1 }>(super::NEWER, Need::Fuse);

/// Where the volume is, in the container.
const VOLUME: &str = "/hang";

/// What the incident takes of a node.
pub trait Node {
    /// The client of its runtime.
    fn cri(&self) -> &Cri;
    /// What a pod's sandbox is made of there.
    fn pod_config(&self, pod: &Pod) -> PodConfig;
    /// The folder of the pod network's reservations.
    fn store(&self) -> PathBuf;
    /// Time that kubelet would give the runtime; here as short as it may be.
    fn deadline(&self) -> Duration {
        Duration::from_secs(2)
    }
}

impl Node for Containerd {
    fn cri(&self) -> &Cri {
        self.cri()
    }

    fn pod_config(&self, pod: &Pod) -> PodConfig {
        self.pod_config(&pod.name, &pod.namespace, &pod.uid, 0, false)
    }

    fn store(&self) -> PathBuf {
        self.store()
    }
}

/// A node with one incident on it. Dropping it, at any step, removes all.
#[derive(Debug)]
pub struct RealIncident<N = Containerd> {
    // Dropped in this order: the file system lets go of the reader first.
    hangfs: HangFs,
    node: N,
    pods: PodsFile,
    old: Option<(Pod, Sandbox, Stuck)>,
    _scratch: Option<Scratch>,
}

impl RealIncident {
    /// The node, the volume, and the list of pods, which is empty.
    pub fn new() -> anyhow::Result<Self> {
        Self::of(Generation::Machine)
    }

    /// The same with these programs.
    pub fn of(generation: Generation) -> anyhow::Result<Self> {
        let missing = stage::missing(match generation {
            Generation::Machine => NEEDS,
            Generation::Newer | Generation::Crun => NEWER,
        });
        anyhow::ensure!(missing.is_empty(), "{}", missing.join("; "));
        let scratch = Scratch::create()?;
        let hangfs = HangFs::mount()?;
        let node = Containerd::start_as(Setup {
            generation,
            subnet: Subnet::Small,
            volumes: &[hangfs.mount_point()],
            ..Setup::default()
        })?;
        Ok(Self {
            hangfs,
            node,
            pods: PodsFile::create(scratch.path())?,
            old: None,
            _scratch: Some(scratch),
        })
    }

    /// Removes everything, and makes sure of it.
    pub fn clean(self) -> anyhow::Result<()> {
        drop(self);
        stage::nothing_left()
    }
}

impl<N: Node> RealIncident<N> {
    /// On a node that is there already, with its list of pods.
    pub(crate) fn on(node: N, pods: PodsFile) -> anyhow::Result<Self> {
        Ok(Self {
            hangfs: HangFs::mount()?,
            node,
            pods,
            old: None,
            _scratch: None,
        })
    }

    pub fn node(&self) -> &N {
        &self.node
    }

    /// The file for `--pods`.
    pub fn pods_file(&self) -> &Path {
        self.pods.path()
    }

    fn run(&mut self, name: &str) -> anyhow::Result<(Pod, Sandbox)> {
        let pod = Pod::new("shop", name)?;
        self.pods.put(&pod, None)?;
        let sandbox = Sandbox::make(self.node.cri(), self.node.pod_config(&pod))?;
        let address = sandbox.ip.context("the sandbox has no address")?;
        self.pods.put(&pod, Some(address))?;
        Ok((pod, sandbox))
    }

    /// Step 1: the first pod, with a container that reads from the volume.
    pub fn start_old_pod(&mut self) -> anyhow::Result<Sandbox> {
        let (pod, sandbox) = self.run("stuck")?;
        let from = format!("if={VOLUME}/hang");
        let argv = ["/bin/dd", &from, "of=/dev/null", "bs=4", "count=1"];
        let volume = self.hangfs.mount_point().to_owned();
        let mounts = [(volume.as_path(), VOLUME)];
        let (container_id, pid) = sandbox.run_container(self.node.cri(), "app", &argv, &mounts)?;
        self.hangfs.wait_for_reader(pid)?;
        let stuck = Stuck {
            pid,
            container_id,
            wchan: String::new(),
            stack: Vec::new(),
        };
        self.old = Some((pod, sandbox.clone(), stuck));
        Ok(sandbox)
    }

    /// Step 2: forced deletion. The object is gone; the runtime kills all
    /// processes, and does not come back because one does not die.
    pub fn force_delete(&mut self) -> anyhow::Result<Stuck> {
        let (pod, sandbox, stuck) = self.old.as_mut().context("there is no old pod yet")?;
        self.pods.remove(pod)?;
        let stopped = self
            .node
            .cri()
            .stop_sandbox(&sandbox.id, self.node.deadline())?;
        anyhow::ensure!(!stopped, "StopPodSandbox came back");
        let pid = stuck.pid;
        wait::until(&format!("process {pid} to be in state D"), LIMIT, || {
            Ok((state(pid) == Some('D') && wchan(pid) != "0").then_some(()))
        })?;
        stuck.wchan = wchan(pid);
        stuck.stack = stack(pid);
        Ok(stuck.clone())
    }

    /// Step 3: the address goes back to the pool, as the next to be given out.
    /// Returns the reservation file that was removed.
    pub fn garbage_collect(&mut self) -> anyhow::Result<PathBuf> {
        let (_, sandbox, _) = self.old.as_ref().context("there is no old pod yet")?;
        collect(&self.node.store(), sandbox.ip.context("no address")?)
    }

    /// Step 4: the second pod, which gets it.
    pub fn start_new_pod(&mut self) -> anyhow::Result<Sandbox> {
        let (_, sandbox) = self.run("reborn")?;
        sandbox.run_container(self.node.cri(), "app", &["/bin/sleep", "100000"], &[])?;
        Ok(sandbox)
    }

    /// Steps 1 to 4. Returns the old sandbox, what is stuck, and the new sandbox.
    pub fn stage(&mut self) -> anyhow::Result<(Sandbox, Stuck, Sandbox)> {
        let old = self.start_old_pod()?;
        let stuck = self.force_delete()?;
        self.garbage_collect()?;
        Ok((old, stuck, self.start_new_pod()?))
    }

    /// Step 5: the volume fails the read, the reader ends, and the runtime
    /// stops and removes the old sandbox.
    pub fn release(&mut self) -> anyhow::Result<()> {
        self.hangfs.release();
        let Some((_, sandbox, stuck)) = self.old.take() else {
            return Ok(());
        };
        wait::until("the reader to end", LIMIT, || {
            Ok(matches!(state(stuck.pid), None | Some('Z')).then_some(()))
        })?;
        // The first stop holds the sandbox until it has noticed.
        wait::until("the sandbox to stop", LIMIT, || {
            let cri = self.node.cri();
            let stopped = cri.stop_sandbox(&sandbox.id, Duration::from_secs(5));
            Ok(stopped.unwrap_or(false).then_some(()))
        })?;
        self.node.cri().remove_sandbox(&sandbox.id)
    }
}
