//! The incident of [`containerd::incident`](crate::containerd::incident) with
//! nobody playing the cluster: the pod is made, deleted and made again by the
//! API, and kubelet does what kubelet does.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::pod::LIMIT;
use super::{Kube, PodSpec, Running};
use crate::hangfs::HangFs;
use crate::process::{stack, state, wchan};
use crate::stage::Need;
use crate::{stage, wait};

/// All that a [`KubeIncident`] needs.
pub const NEEDS: &[Need] = &{
    let mut needs = [Need::Fuse; super::NEEDS.len() + 1];
    let mut at = 0;
    while at < super::NEEDS.len() {
        needs[at + 1] = super::NEEDS[at];
        at += 1;
    }
    needs
};

/// Where the volume is, in the container.
const VOLUME: &str = "/hang";

/// What does not die.
#[derive(Clone, Debug)]
pub struct Stuck {
    pub pid: u32,
    /// Where in the kernel it sleeps.
    pub wchan: String,
    /// Function names of its kernel stack, innermost first.
    pub stack: Vec<String>,
}

/// A node of a cluster with one incident on it. Dropping it, at any step,
/// removes all.
#[derive(Debug)]
pub struct KubeIncident {
    // Dropped in this order: the file system lets go of the reader first.
    hangfs: HangFs,
    kube: Kube,
    old: Option<Running>,
}

impl KubeIncident {
    /// The node and the volume; no pods yet.
    pub fn new() -> anyhow::Result<Self> {
        let missing = stage::missing(NEEDS);
        ensure!(missing.is_empty(), "{}", missing.join("; "));
        let hangfs = HangFs::mount()?;
        let kube = Kube::start(&[hangfs.mount_point()])?;
        Ok(Self {
            hangfs,
            kube,
            old: None,
        })
    }

    /// The node and its cluster.
    pub fn kube(&self) -> &Kube {
        &self.kube
    }

    /// Kills kubelet; see [`Kube::kill_kubelet`].
    pub fn kill_kubelet(&mut self) {
        self.kube.kill_kubelet();
    }

    /// Step 1: the first pod, whose container reads from the volume.
    pub fn start_old_pod(&mut self, name: &str) -> anyhow::Result<Running> {
        let from = format!("if={VOLUME}/hang");
        let running = self.kube.run_pod(&PodSpec {
            name,
            argv: &["/bin/dd", &from, "of=/dev/null", "bs=4", "count=1"],
            volume: Some((self.hangfs.mount_point(), VOLUME)),
            grace: 2,
        })?;
        self.hangfs.wait_for_reader(running.pid)?;
        Ok(self.old.insert(running).clone())
    }

    /// Step 2: `kubectl delete pod --force --grace-period=0`. The object is gone
    /// at once; kubelet has everything killed, and one process does not die.
    pub fn force_delete(&mut self) -> anyhow::Result<Stuck> {
        let old = self.old.as_ref().context("there is no old pod yet")?;
        self.kube.force_delete(&old.pod)?;
        let object = self.kube.object(&old.pod)?;
        ensure!(
            object.is_none(),
            "the object stays: {}",
            object.context("")?
        );
        let pid = old.pid;
        wait::until(&format!("process {pid} to be in state D"), LIMIT, || {
            Ok((state(pid) == Some('D') && wchan(pid) != "0").then_some(()))
        })?;
        Ok(Stuck {
            pid,
            wchan: wchan(pid),
            stack: stack(pid),
        })
    }

    /// Step 3: a collector that trusts the API server gives the address back.
    /// Returns the reservation file that was removed.
    pub fn garbage_collect(&mut self) -> anyhow::Result<PathBuf> {
        let old = self.old.as_ref().context("there is no old pod yet")?;
        let address = old.sandbox.ip.context("no address")?;
        self.kube.node().collect(address)
    }

    /// Step 4: the second pod, which gets it.
    pub fn start_new_pod(&mut self, name: &str) -> anyhow::Result<Running> {
        self.kube.run_pod(&PodSpec {
            name,
            argv: &["/bin/sleep", "100000"],
            volume: None,
            grace: 0,
        })
    }

    /// Step 5: the volume fails the read, the reader ends, and kubelet, which
    /// has not given up, has the old sandbox stopped.
    pub fn release(&mut self) -> anyhow::Result<()> {
        self.hangfs.release();
        let Some(old) = self.old.take() else {
            return Ok(());
        };
        wait::until("the reader to end", Duration::from_secs(10), || {
            Ok(matches!(state(old.pid), None | Some('Z')).then_some(()))
        })?;
        let path = old.sandbox.netns_path.context("no namespace")?;
        let path = self.kube.node().host_path(path);
        wait::until("kubelet to end the old sandbox", LIMIT, || {
            Ok((!path.exists()).then_some(()))
        })
        .with_context(|| self.kube.words())
    }
}
