//! The incident: a force-deleted pod keeps its address, and a second pod gets
//! the same one.
//!
//! Told step by step with real kernel objects; each step returns the facts
//! that the tracer is to find out by itself:
//!
//! 1. [`Incident::start_old_pod`]: a sandbox with an address, a container that
//!    reads from a volume;
//! 2. [`Incident::force_delete`]: the API server forgets the pod, the runtime
//!    kills its processes, and the reader, in the kernel, does not die;
//! 3. [`Incident::garbage_collect`]: a collector that trusts the API server
//!    gives the address back to the pool;
//! 4. [`Incident::start_new_pod`]: the next sandbox gets it;
//! 5. [`Incident::release`]: the volume answers at last, the reader dies, and
//!    the runtime can finish with the old sandbox.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use crate::cgroup::Cgroup;
use crate::cni::Attachment;
use crate::hangfs::HangFs;
use crate::netns::Netns;
use crate::network::Network;
use crate::pods::{Pod, PodsFile};
use crate::process::{self, PodProcess};
use crate::scratch::{Scratch, container_id};
use crate::stage;

/// Name of the process that blocks.
pub const READER: &str = "checkout-api";

/// A pod's sandbox as the node has it.
#[derive(Clone, Debug)]
pub struct Sandbox {
    pub pod: Pod,
    /// Its ID, which is CNI's container ID too.
    pub id: String,
    /// Its network namespace: path and inode.
    pub netns_path: PathBuf,
    /// See `netns_path`.
    pub netns_inode: u64,
    pub address: Ipv4Addr,
    pub pause_pid: u32,
}

/// The container process that does not die.
#[derive(Clone, Debug)]
pub struct Stuck {
    pub pid: u32,
    pub container_id: String,
    /// Where in the kernel it sleeps (empty if that cannot be read).
    pub wchan: String,
    /// Function names of its kernel stack, innermost first.
    pub stack: Vec<String>,
}

/// A sandbox with all that it is made of. Dropped in this order: the
/// processes, then what they were in.
#[derive(Debug)]
struct Live {
    reader: Option<(PodProcess, String, Cgroup)>,
    pause: Option<PodProcess>,
    _cgroup: Cgroup,
    netns: Netns,
    sandbox: Sandbox,
}

/// The stage with one incident on it. Dropping it, at any step, removes all.
#[derive(Debug)]
pub struct Incident {
    // Dropped in this order: the file system lets go of the reader first.
    hangfs: HangFs,
    old: Option<Live>,
    new: Option<Live>,
    network: Network,
    pods: PodsFile,
    node: Netns,
    _scratch: Scratch,
}

impl Incident {
    /// Makes the node: a network namespace with the pod network in it, the
    /// volume, and the list of pods, which is empty.
    pub fn new() -> anyhow::Result<Self> {
        Self::on(Network::start)
    }

    /// The same with addresses given by hand, as if no plugins were installed.
    pub fn without_cni() -> anyhow::Result<Self> {
        Self::on(|node, _| Network::plain(node))
    }

    fn on(network: impl FnOnce(&Netns, &Path) -> anyhow::Result<Network>) -> anyhow::Result<Self> {
        let missing = stage::missing(stage::INCIDENT);
        anyhow::ensure!(missing.is_empty(), "{}", missing.join("; "));
        let scratch = Scratch::create()?;
        let node = Netns::create()?;
        Ok(Self {
            hangfs: HangFs::mount()?,
            old: None,
            new: None,
            network: network(&node, scratch.path())?,
            pods: PodsFile::create(scratch.path())?,
            node,
            _scratch: scratch,
        })
    }

    /// The file for `--pods`.
    pub fn pods_file(&self) -> &Path {
        self.pods.path()
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The network namespace that plays the node's own.
    pub fn node(&self) -> &Netns {
        &self.node
    }

    /// As kubelet and the runtime do it: the pod is in the API, then the
    /// namespace, CNI ADD, the pause process, the pod's address in the API.
    fn start_pod(&mut self, name: &str) -> anyhow::Result<Live> {
        let pod = Pod::new("shop", name)?;
        self.pods.put(&pod, None)?;
        let id = container_id()?;
        let cgroup = Cgroup::create(&pod.uid, &id)?;
        let netns = Netns::create()?;
        let attachment = Attachment {
            container_id: &id,
            netns: &netns,
            pod: &pod,
        };
        let address = self.network.attach(&self.node, attachment)?;
        let pause = PodProcess::pause(&netns, Some(&cgroup))?;
        self.pods.put(&pod, Some(address))?;
        let sandbox = Sandbox {
            pod,
            id,
            netns_path: netns.path().to_owned(),
            netns_inode: netns.inode(),
            address,
            pause_pid: pause.pid(),
        };
        Ok(Live {
            reader: None,
            pause: Some(pause),
            _cgroup: cgroup,
            netns,
            sandbox,
        })
    }

    /// Step 1: the first pod, with a container that reads from the volume.
    pub fn start_old_pod(&mut self) -> anyhow::Result<Sandbox> {
        let mut live = self.start_pod("checkout-5b7d9c-x8k2p")?;
        let container = container_id()?;
        let cgroup = Cgroup::create(&live.sandbox.pod.uid, &container)?;
        let reader = PodProcess::reader(READER, &live.netns, Some(&cgroup), &mut self.hangfs)?;
        live.reader = Some((reader, container, cgroup));
        Ok(self.old.insert(live).sandbox.clone())
    }

    /// Step 2: `kubectl delete pod --force --grace-period=0`. The object is
    /// gone; on the node all processes get SIGKILL, and one does not die.
    pub fn force_delete(&mut self) -> anyhow::Result<Stuck> {
        let old = self.old.as_mut().context("there is no old pod yet")?;
        self.pods.remove(&old.sandbox.pod)?;
        drop(old.pause.take());
        let (reader, container, _) = old.reader.as_mut().context("it was released already")?;
        reader.kill_into_d()?;
        let pid = reader.pid();
        Ok(Stuck {
            pid,
            container_id: container.clone(),
            wchan: process::wchan(pid),
            stack: process::stack(pid),
        })
    }

    /// Takes the old namespace's name away, as a runtime does that goes on
    /// without waiting: only the stuck process holds it then.
    pub fn drop_old_name(&mut self) -> anyhow::Result<()> {
        self.old
            .as_mut()
            .context("there is no old pod yet")?
            .netns
            .delete()
    }

    /// Step 3: the address goes back to the pool, as the next to be given out.
    /// Returns the reservation file that was removed (none without CNI).
    pub fn garbage_collect(&mut self) -> anyhow::Result<Option<PathBuf>> {
        let old = self.old.as_ref().context("there is no old pod yet")?;
        self.network.collect(old.sandbox.address)
    }

    /// Step 4: the second pod.
    pub fn start_new_pod(&mut self) -> anyhow::Result<Sandbox> {
        let live = self.start_pod("checkout-5b7d9c-q4w7z")?;
        Ok(self.new.insert(live).sandbox.clone())
    }

    /// Step 5: the volume fails the read, the reader ends, and the runtime
    /// removes the old sandbox: CNI DEL, then the namespace.
    pub fn release(&mut self) -> anyhow::Result<()> {
        self.hangfs.release();
        let Some(mut old) = self.old.take() else {
            return Ok(());
        };
        if let Some((reader, ..)) = &mut old.reader {
            reader.wait_for_end(Duration::from_secs(10))?;
        }
        self.take_back(old)
    }

    /// After all of that: the second pod is deleted as pods are.
    pub fn end_new_pod(&mut self) -> anyhow::Result<()> {
        let Some(mut new) = self.new.take() else {
            return Ok(());
        };
        self.pods.remove(&new.sandbox.pod)?;
        drop(new.pause.take());
        self.take_back(new)
    }

    /// CNI DEL, then the namespace.
    fn take_back(&mut self, mut live: Live) -> anyhow::Result<()> {
        let attachment = Attachment {
            container_id: &live.sandbox.id,
            netns: &live.netns,
            pod: &live.sandbox.pod,
        };
        if live.netns.path().exists() {
            self.network.detach(attachment)?;
        }
        live.netns.delete()
    }

    /// Removes everything, and makes sure of it.
    pub fn clean(mut self) -> anyhow::Result<()> {
        let released = self.release();
        drop(self);
        released?;
        stage::nothing_left()
    }
}
