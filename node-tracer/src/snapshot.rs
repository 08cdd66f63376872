//! One look at the node: every source once, as events. eBPF is asked for one thing
//! alone, where it may be: which network namespaces there are.
//!
//! The kernel's own state is read first and the pods last: a list that was made
//! after a sandbox was seen can prove that its pod is gone. The container
//! runtime is asked meanwhile. No source waits for another, and each has its
//! own time-out, so that a look takes hardly longer than the slowest of them.

mod answers;
mod differences;
mod ipam;

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

pub(crate) use self::differences::Differences;

use self::answers::Answers;
use crate::{
    config::{Config, Cri, Pods},
    progress,
};
use event::{
    Event, Netns, Network, What, fault,
    record::{CoverageItem, NO_RUNTIME},
    wording::plural::counted,
};
use kernel::live::{AllNets, ListedNetns};
use node::{
    bundles, cni, containers, cri,
    hostlocal::{self, Stores},
    kubelet, pci,
    pods::{Listing, PodsError, PodsReader},
    procfs::{Bounded, NoAnswer, Procfs},
    root::Root,
    survey,
};

/// How long the container runtime may take to answer.
const CRI_PATIENCE: Duration = Duration::from_millis(1_000);
/// How long it may take to connect to it.
const LISTENER_PATIENCE: Duration = Duration::from_millis(200);
/// How long CNI's files may take.
const FILES_PATIENCE: Duration = Duration::from_millis(1_000);

/// How long nothing may come of the list of pods that was given: without it
/// hardly anything is certain.
const LIST_PATIENCE: Duration = Duration::from_secs(2);

/// How long the kubelet's files may take: they matter little.
const KUBELET_PATIENCE: Duration = Duration::from_millis(500);
/// Namespaces that are told of which only the kernel's list has: anybody can make
/// many.
const MAX_UNSEEN: usize = 1_024;
/// What is not known without that list.
pub(crate) const UNLISTED: &str = "network namespaces that nothing leads to which was looked at";
/// How long the API server may take.
pub(crate) const API_PATIENCE: Duration = Duration::from_millis(1_200);

/// What a look has brought.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) events: Vec<Event>,
    pub(crate) items: Vec<CoverageItem>,
    /// Inodes of all network namespaces that there are, read or not.
    pub(crate) seen: BTreeSet<u32>,
    /// Those of which all addresses are told.
    pub(crate) read: BTreeSet<u32>,
    /// There are no others.
    pub(crate) nets_whole: bool,
    /// All stuck tasks are told.
    pub(crate) stalls_whole: bool,
}

impl Snapshot {
    /// Names and versions of the container runtimes that have answered.
    pub(crate) fn runtimes(&self) -> Option<&str> {
        self.events.iter().find_map(|event| match &event.what {
            What::SandboxesListed { runtime, .. } => runtime.as_deref(),
            _ => None,
        })
    }

    /// The namespaces on the kernel's list; none, and a gap, if that cannot be read.
    fn listed_or_gap(&mut self, listed: Result<Vec<ListedNetns>, String>) -> Vec<ListedNetns> {
        listed.unwrap_or_else(|why| {
            let mut items = self.items.iter_mut();
            if let Some(kernel) = items.find(|item| item.signal == "kernel") {
                let gap = format!("{UNLISTED}: the kernel's own list cannot be read: {why}");
                kernel.unknown.push(gap);
            }
            Vec::new()
        })
    }
}

/// Everything that looks need and that is prepared once.
#[derive(Debug)]
pub(crate) struct NodeReader<'a> {
    config: &'a Config,
    procfs: Procfs,
    root: Arc<Root>,
    pods: Option<PodsReader>,
    cri_patience: Duration,
    /// The task or process that is asked about.
    asked: Option<u32>,
    nets: RefCell<KernelsList>,
}

/// The kernel's own list of network namespaces.
#[derive(Debug, Default)]
enum KernelsList {
    #[default]
    NotAsked,
    /// While it is loaded the node is looked at.
    Loading(thread::JoinHandle<Result<AllNets, String>>),
    Loaded(Box<AllNets>),
    /// It cannot be read, and why.
    Unreadable(String),
}

impl<'a> NodeReader<'a> {
    /// Prepares.
    ///
    /// # Errors
    /// The host's root cannot be opened, or `--cri` names no endpoint.
    pub(crate) fn new(config: &'a Config) -> anyhow::Result<Self> {
        if let Cri::Endpoint(text) = &config.cri {
            cri::Endpoint::parse(text)?;
        }
        Ok(Self {
            config,
            procfs: Procfs::new(&config.node.root, Bounded::default()),
            root: Arc::new(Root::open(&config.node.root)?),
            pods: match &config.pods {
                Pods::File(path) => Some(PodsReader::new(path)),
                Pods::Auto | Pods::None => None,
            },
            cri_patience: CRI_PATIENCE,
            asked: None,
            nets: RefCell::default(),
        })
    }

    /// From now on tells of network namespaces on the kernel's own list, too, that
    /// nothing leads to which is looked at: where it can be read.
    pub(crate) fn read_kernels_list(&self) {
        let load = || AllNets::load(Path::new("/proc")).map_err(|error| fault::chain(&error));
        let thread = thread::Builder::new().name(String::from("netns-list"));
        self.nets.replace(match thread.spawn(load) {
            Ok(loading) => KernelsList::Loading(loading),
            Err(error) => KernelsList::Unreadable(fault::chain(&error)),
        });
    }

    /// The same, to tell of this task or process in any case.
    pub(crate) fn about(self, asked: Option<u32>) -> Self {
        Self { asked, ..self }
    }

    /// The same, with so much time for the container runtime to answer: for one
    /// that needs the whole answer more than a quick one.
    pub(crate) fn patient(self, cri_patience: Duration) -> Self {
        Self {
            cri_patience,
            ..self
        }
    }

    /// The process file system that is looked at.
    pub(crate) fn procfs(&self) -> &Procfs {
        &self.procfs
    }

    /// The stores of reservations, to be asked about single addresses.
    ///
    /// # Errors
    /// The host's root cannot be opened.
    pub(crate) fn stores(&self) -> anyhow::Result<Stores> {
        Ok(Stores::discover(&self.config.node.root)?)
    }

    /// Looks.
    ///
    /// # Errors
    /// The tasks cannot be listed, the list of pods that was given is none, or
    /// the credentials that were given cannot be used.
    pub(crate) fn look(&mut self) -> anyhow::Result<Snapshot> {
        let started = Instant::now();
        let first = self.pods.as_mut();
        let first = first.and_then(|file| file.wait(LIST_PATIENCE));
        let (first, hangs) = match first.transpose() {
            Ok(first) => (first, None),
            Err(error @ PodsError::Hangs { .. }) => (None, Some(fault::chain(&error))),
            Err(error) => return Err(error.into()),
        };
        let mut looked = Snapshot::default();
        answers::owners(&self.procfs, &mut looked);
        let shims = {
            let _shown = progress::doing("reading tasks and network namespaces");
            self.kernel(&mut looked)?
        };
        // Only now: what they do not know of what was seen is left over, or
        // has gone meanwhile, which a second look shows.
        let asked = self.ask_runtime();
        let listed = self.ask_api_server()?;
        self.remains(shims, &mut looked);
        match asked {
            Asked::Thread(thread) => {
                let _shown = progress::waiting("CRI");
                let answers = thread.join().unwrap_or_default();
                looked.events.extend(answers.events);
                looked.items.push(answers.item);
            }
            Asked::Not(item) => looked.items.push(item),
        }
        // After the runtime: a sandbox that was removed in between would look
        // as if it had left its reservations behind.
        let shown = progress::doing("reading CNI's files");
        let networks = self.cni(true, &mut looked);
        drop(shown);
        let _shown = progress::waiting("the API server");
        self.ipam_api(&networks, started, &mut looked);
        let listed = match hangs {
            Some(reason) => Listed::Not(reason),
            None => listed,
        };
        self.pods(first, listed, &mut looked);
        Ok(looked)
    }

    /// Looks a second time at what can change while it is looked at. The
    /// runtime and the API server are not asked again.
    ///
    /// # Errors
    /// The tasks cannot be listed.
    pub(crate) fn look_again(&self) -> anyhow::Result<Snapshot> {
        let mut looked = Snapshot::default();
        let shims = self.kernel(&mut looked)?;
        self.remains(shims, &mut looked);
        self.cni(true, &mut looked);
        Ok(looked)
    }

    /// What tells of sandboxes that are older than a trace, of which it has not
    /// seen the CNI calls: the runtime's folders, libcni's cache.
    pub(crate) fn look_back(&self) -> Snapshot {
        let mut looked = Snapshot::default();
        answers::owners(&self.procfs, &mut looked);
        let bundles = bundles::list(&self.config.node.root, &self.procfs);
        answers::bundles(bundles, &mut looked);
        self.cni(false, &mut looked);
        looked
    }

    /// Tasks, namespaces, devices. Returns the processes that may be shims.
    fn kernel(&self, looked: &mut Snapshot) -> anyhow::Result<Vec<u32>> {
        let started = Instant::now();
        let found = survey::survey(
            &self.procfs,
            self.config.stall_threshold,
            self.asked,
            self.listener(),
        )?;
        tracing::debug!("the kernel's state took {:?}", started.elapsed());
        looked.items.push(CoverageItem {
            signal: String::from("kernel"),
            mechanism: Some(format!(
                "/proc and rtnetlink (tasks: {}, network namespaces: {})",
                found.tasks, found.netns
            )),
            reason: None,
            unknown: found.unread,
        });
        looked.events.extend(found.events);
        let root = Arc::clone(&self.root);
        let reads = self.procfs.bounded_reads();
        let functions = reads.read(FILES_PATIENCE, move || pci::functions(&root));
        if let Some(functions) = functions.ok().flatten() {
            let what = What::PciListed { functions };
            let time = sys::clock::now();
            looked.events.push(Event { time, what });
        }
        if !found.nets_whole {
            looked
                .events
                .push(answers::not_all_netns(&found.nets_missed));
        }
        looked.seen = found.seen;
        looked.read = &found.read - &found.addresses_cut;
        looked.nets_whole = found.nets_whole;
        looked.stalls_whole = found.stalls_whole;
        self.unseen_nets(looked)?;
        let cut = found.addresses_cut.difference(&looked.read).count();
        if cut > 0 {
            let missed = format!(
                "{} with more addresses than are kept",
                counted(cut, "network namespace")
            );
            looked.events.push(answers::not_all_netns(&[missed]));
        }
        Ok(found.shims)
    }

    /// Those on the kernel's list that are not being taken down, and not among these.
    ///
    /// # Errors
    /// Why the list cannot be read.
    fn listed_nets(&self, read: &BTreeSet<u32>) -> Result<Vec<ListedNetns>, String> {
        let mut list = self.nets.borrow_mut();
        *list = match std::mem::take(&mut *list) {
            KernelsList::Loading(loading) => match loading.join() {
                Ok(Ok(nets)) => KernelsList::Loaded(Box::new(nets)),
                Ok(Err(why)) => KernelsList::Unreadable(why),
                Err(_) => KernelsList::Unreadable(String::from("its thread has ended")),
            },
            other => other,
        };
        let nets = match &mut *list {
            KernelsList::Loaded(nets) => nets,
            KernelsList::Unreadable(why) => return Err(why.clone()),
            KernelsList::NotAsked | KernelsList::Loading(_) => return Ok(Vec::new()),
        };
        let others = nets.others(read).map_err(|error| fault::chain(&error))?;
        Ok(others.into_iter().filter(|each| !each.ends).collect())
    }

    /// Tells of namespaces that were not read, or not whole, though something may
    /// have led there. What has just come into being is read by then.
    fn unseen_nets(&self, looked: &mut Snapshot) -> anyhow::Result<()> {
        let first = looked.listed_or_gap(self.listed_nets(&looked.read));
        if first.is_empty() {
            return Ok(());
        }
        let read = {
            let again = survey::survey(
                &self.procfs,
                self.config.stall_threshold,
                self.asked,
                self.listener(),
            )?;
            &looked.read | &(&again.read - &again.addresses_cut)
        };
        let second = looked.listed_or_gap(self.listed_nets(&read));
        let time = sys::clock::now();
        let users = self.procfs.host_users();
        let earlier: HashMap<u32, &ListedNetns> =
            first.iter().map(|it| (it.netns.inode, it)).collect();
        let stays = |listed: &ListedNetns| {
            let earlier = earlier.get(&listed.netns.inode);
            earlier.is_some_and(|earlier| earlier.is(listed))
        };
        let unseen: Vec<ListedNetns> = second.into_iter().filter(stays).collect();
        if unseen.len() > MAX_UNSEEN || unseen.iter().any(|listed| listed.cut) {
            let missed = String::from("very many namespaces or addresses that nothing leads to");
            looked.nets_whole = false;
            looked.events.push(answers::not_all_netns(&[missed]));
        }
        let found = looked.events.iter().filter_map(|event| match event.what {
            What::NetnsFound { netns, .. } => Some((netns.inode, netns)),
            _ => None,
        });
        let found: HashMap<u32, Netns> = found.collect();
        for listed in unseen.into_iter().take(MAX_UNSEEN) {
            let inode = listed.netns.inode;
            looked.seen.insert(inode);
            if !listed.cut {
                looked.read.insert(inode);
            }
            let netns = found.get(&inode).copied().unwrap_or(listed.netns);
            let mut told = Vec::new();
            if !found.contains_key(&inode) {
                told.push(What::NetnsFound {
                    netns,
                    host: false,
                    node: false,
                    user_ns: listed.user_ns.and_then(|user_ns| users.other(user_ns)),
                });
            }
            let addresses = listed.addresses.into_iter();
            told.extend(addresses.map(|address| What::AddressAdded {
                netns,
                address,
                found: true,
                made: None,
            }));
            looked.events.extend(Event::all_of(time, told));
        }
        Ok(())
    }

    /// The runtime's sockets.
    ///
    /// # Errors
    /// Where they are named or lie does not answer.
    fn endpoints(&self) -> Result<Vec<cri::Endpoint>, NoAnswer> {
        match &self.config.cri {
            Cri::None => Ok(Vec::new()),
            Cri::Auto => {
                let root = self.config.node.root.clone();
                let find = move || cri::endpoints(&root);
                self.procfs.bounded_reads().read(FILES_PATIENCE, find)
            }
            Cri::Endpoint(text) => Ok(cri::Endpoint::parse(text).into_iter().collect()),
        }
    }

    /// The process that listens on the runtime's socket: where it runs pods are
    /// plugged in.
    fn listener(&self) -> Option<u32> {
        let (root, procfs) = (&self.config.node.root, &self.procfs);
        let endpoints = self.endpoints().unwrap_or_default();
        let mut listeners = endpoints.iter();
        listeners.find_map(|each| cri::listener(each, root, procfs, LISTENER_PATIENCE))
    }

    /// Asks the runtime's sockets, all at once.
    fn ask_runtime(&self) -> Asked {
        let root = self.config.node.root.clone();
        if self.config.cri == Cri::None {
            return Asked::Not(answers::not_asked("--cri none"));
        }
        let endpoints = match self.endpoints() {
            Ok(endpoints) => endpoints,
            Err(error) => return Asked::Not(answers::not_asked(&fault::chain(&error))),
        };
        if endpoints.is_empty() {
            let reason = format!("{NO_RUNTIME}; give --cri ENDPOINT");
            return Asked::Not(answers::not_asked(&reason));
        }
        let procfs = self.procfs.clone();
        let found = self.config.cri == Cri::Auto;
        let time = sys::clock::now();
        let patience = self.cri_patience;
        let ask = move || {
            let asked: Vec<_> = endpoints
                .into_iter()
                .map(|endpoint| {
                    let (root, procfs) = (root.clone(), procfs.clone());
                    thread::spawn(move || cri::list(&endpoint, &root, &procfs, patience))
                })
                .collect();
            let answers = asked.into_iter().filter_map(|thread| thread.join().ok());
            Answers::of(time, found, answers)
        };
        match thread::Builder::new().name(String::from("cri")).spawn(ask) {
            Ok(thread) => Asked::Thread(thread),
            Err(error) => Asked::Not(answers::not_asked(&format!("no thread to ask: {error}"))),
        }
    }

    /// What to ask the API server with, if it is to be asked and can be.
    pub(crate) fn credentials(&self) -> Option<kube::Credentials> {
        let is_asked = self.config.pods == Pods::Auto;
        let found = is_asked.then(|| credentials(self.config, &self.procfs));
        found?.ok()?.ok()
    }

    /// Begins to ask the API server, if it is to be asked and can be.
    fn ask_api_server(&self) -> anyhow::Result<Listed> {
        if self.config.pods != Pods::Auto {
            return Ok(Listed::NotAsked);
        }
        let given = self.config.kubeconfig.is_some();
        let credentials = match credentials(self.config, &self.procfs) {
            Ok(Ok(credentials)) => credentials,
            Ok(Err(error)) if given => return Err(error.into()),
            Ok(Err(error)) => return Ok(Listed::Not(fault::chain(&error))),
            Err(error) => return Ok(Listed::Not(fault::chain(&error))),
        };
        let node = self.config.node.name.clone();
        let place = credentials.place();
        let ask = move || kube::list_blocking(&credentials, &node, API_PATIENCE);
        match thread::Builder::new().name(String::from("pods")).spawn(ask) {
            Ok(thread) => Ok(Listed::Thread(thread, place)),
            Err(error) => Ok(Listed::Not(format!("no thread to ask: {error}"))),
        }
    }

    /// What the runtime has left on disk, cgroups and shims.
    fn remains(&self, shims: Vec<u32>, looked: &mut Snapshot) {
        let root = &self.config.node.root;
        let bundles = bundles::list(root, &self.procfs);
        let found = [
            (
                containers::CGROUP,
                containers::in_cgroups(root, &self.procfs),
            ),
            (
                containers::SHIM,
                containers::of_shims(root, &self.procfs, shims),
            ),
        ];
        answers::bundles(bundles, looked);
        for (source, existing) in found {
            answers::containers(source, existing, looked);
        }
    }

    /// CNI's configuration, libcni's cache and the stores of reservations, each
    /// with a time of its own: the largest is not to cost the smallest. Returns
    /// the networks.
    fn cni(&self, with_stores: bool, looked: &mut Snapshot) -> Vec<Network> {
        let now = sys::clock::now();
        let mut networks = Vec::new();
        // By itself: the kubelet's folder is often on another disk. Without it
        // the rules say that `maxPods` is not known.
        let root = Arc::clone(&self.root);
        let reads = self.procfs.bounded_reads();
        let limit = reads.read(KUBELET_PATIENCE, move || kubelet::max_pods(&root));
        let limit = limit.ok().flatten().map(|limit| What::MaxPods { limit });
        let limit = limit.map(|what| Event { time: now, what });
        looked.events.extend(limit);
        self.files("networks", looked, move |root, _| {
            vec![cni::Configuration::read(root).event(now)]
        });
        if let Some(What::NetworksListed {
            networks: listed, ..
        }) = looked.events.last().map(|event| &event.what)
        {
            networks.clone_from(listed);
        }
        self.files("libcni", looked, move |root, procfs| {
            let resolve = |path: &str| netns_at(root, procfs, Path::new(path));
            cni::attachments(root, &resolve, now)
        });
        if with_stores {
            self.ipam_files(&networks, looked);
            let configured = networks.clone();
            self.files("host-local", looked, move |root, _| {
                hostlocal::look(root, &configured, now)
            });
        }
        networks
    }

    /// Reads files that can be on a disk that hangs, and tells of them as one
    /// source.
    fn files(
        &self,
        source: &str,
        looked: &mut Snapshot,
        read: impl FnOnce(&Root, &Procfs) -> Vec<Event> + Send + 'static,
    ) {
        let (root, procfs) = (Arc::clone(&self.root), self.procfs.clone());
        let reads = self.procfs.bounded_reads();
        match reads.read(FILES_PATIENCE, move || read(&root, &procfs)) {
            Ok(events) => {
                looked.items.push(answers::of_cni(source, &events));
                looked.events.extend(events);
            }
            Err(error) => answers::files_failed(source, &error, looked),
        }
    }

    /// The namespace at a path of the host.
    pub(crate) fn netns_at(&self, path: &Path) -> Option<Netns> {
        let (root, procfs) = (Arc::clone(&self.root), self.procfs.clone());
        let path = path.to_owned();
        let find = move || netns_at(&root, &procfs, &path);
        let found = self.procfs.bounded_reads().read(FILES_PATIENCE, find);
        found.ok().flatten()
    }

    /// The list of pods, whichever it is.
    fn pods(&self, first: Option<Listing>, listed: Listed, looked: &mut Snapshot) {
        let (listing, by, failure) = match listed {
            Listed::NotAsked => (first, None, None),
            Listed::Not(reason) => (None, None, Some(reason)),
            Listed::Thread(thread, place) => match thread.join() {
                Ok(Ok(listing)) => (Some(listing), Some(place), None),
                Ok(Err(error)) => (None, None, Some(fault::chain(&error))),
                Err(_) => (
                    None,
                    None,
                    Some(String::from("asking the API server failed")),
                ),
            },
        };
        let item = answers::of_pods(&self.config.pods, listing.as_ref(), by, failure.as_deref());
        looked.items.push(item);
        let time = sys::clock::now();
        let what = match (listing, failure) {
            (Some(listing), _) => What::PodsListed {
                source: listing.source,
                at: listing.at,
                made_after: listing.made_after,
                whole: listing.whole,
                doubt: listing.doubt,
                pods: listing.pods,
            },
            (None, Some(error)) => What::SourceFailed {
                source: String::from("pods"),
                error,
            },
            (None, None) => return,
        };
        looked.events.push(Event { time, what });
    }
}

/// The credentials for the API server. They can be in a home directory that
/// hangs.
pub(crate) fn credentials(
    config: &Config,
    procfs: &Procfs,
) -> Result<Result<kube::Credentials, kube::KubeError>, NoAnswer> {
    let (root, given) = (config.node.root.clone(), config.kubeconfig.clone());
    let find = move || kube::Credentials::find(&root, given.as_deref());
    procfs.bounded_reads().read(FILES_PATIENCE, find)
}

/// The namespace at a path of the host; that of a process needs no following
/// of a link out of the root.
fn netns_at(root: &Root, procfs: &Procfs, path: &Path) -> Option<Netns> {
    let text = path.to_str().unwrap_or_default();
    let other = text.strip_prefix("/proc/");
    let pid = other.and_then(|other| other.strip_suffix("/ns/net")?.parse().ok());
    let inode = match pid {
        Some(pid) => procfs.netns_of(pid),
        None => root.nsfs_inode(path),
    };
    inode.map(|inode| Netns {
        inode,
        cookie: None,
    })
}

/// The runtime, being asked.
enum Asked {
    Thread(thread::JoinHandle<Answers>),
    Not(CoverageItem),
}

/// The API server, being asked.
enum Listed {
    NotAsked,
    /// Why it is not, or why the file that was given is not read.
    Not(String),
    /// With the place of the credentials.
    Thread(thread::JoinHandle<Result<Listing, kube::KubeError>>, String),
}
