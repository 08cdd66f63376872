//! What each attachment should have, and the ways to its namespace.

mod expiry;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use event::{
    Attachment as Cached, CniCall, CniResult, Netns, PodRef, Task, Trace, TraceKind,
    mount::{self, Place},
};
use node::{
    home::NodeNetns,
    netlink::{Target, Way},
    procfs::Procfs,
};

/// Attachments at most; the one that was called for longest ago makes room.
const MAX_KNOWN: usize = 4_096;
/// How long what a DEL takes away may take to go.
const LATELY: Duration = Duration::from_secs(30);
/// Namespaces whose tasks and mounts are remembered.
const MAX_HOMES: usize = 16_384;
/// Tasks, and mounts, by which a namespace is reached.
const MAX_WAYS: usize = 3;
/// Addresses, and names of devices, of one attachment.
const MAX_NAMES: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// `CNI_CONTAINERID`
    pub(super) container_id: String,
    /// `CNI_IFNAME`
    pub(super) ifname: String,
}

/// What an attachment should have.
#[derive(Debug, Default)]
pub(super) struct Attachment {
    pub(super) pod: Option<PodRef>,
    /// Its namespace, if that is still there.
    pub(super) netns: Option<Netns>,
    /// Its namespace was there, and is gone.
    pub(super) gone: bool,
    /// A DEL of it has begun.
    leaving: bool,
    /// `CNI_NETNS`, and the process that named it.
    place: Option<(u32, String)>,
    pub(super) addresses: Vec<IpAddr>,
    /// Host interfaces that its plugins told of.
    pub(super) told: Vec<String>,
    /// The host-side end of its veth pair, as it was found.
    pub(super) veth: Option<String>,
    /// Its index, by which another of the same name is told from it.
    pub(super) veth_index: Option<u32>,
    /// Addresses that the host has had a route to.
    pub(super) routed: BTreeSet<IpAddr>,
    /// Where its addresses have been reserved for it.
    pub(super) stored: BTreeMap<IpAddr, PathBuf>,
    /// host-local gave the addresses.
    pub(super) host_local: bool,
    /// What was found in its namespace.
    pub(super) had: BTreeSet<String>,
    /// Its last DEL has left nothing.
    clean: bool,
    /// Since when there is nothing left of it, its namespace included.
    past: Option<Instant>,
    age: u64,
}

/// What leads to a namespace.
#[derive(Debug)]
struct Home {
    tids: Vec<u32>,
    mounts: Vec<PathBuf>,
}

#[derive(Debug)]
pub(super) struct Attachments {
    procfs: Procfs,
    /// The host's root as the tracer sees it.
    root: PathBuf,
    attachments: BTreeMap<Key, Attachment>,
    /// By `namespace/name` of the pod.
    by_pod: HashMap<(String, String), BTreeSet<Key>>,
    by_inode: HashMap<u32, BTreeSet<Key>>,
    homes: HashMap<u32, Home>,
    ages: BTreeMap<u64, Key>,
    age: u64,
    /// The last DEL by `namespace/name` of the pod: the container that it is for.
    dels: HashMap<(String, String), (String, Instant)>,
    /// Attachments of which nothing is left, by since when.
    past: BTreeSet<(Instant, Key)>,
    /// What was forgotten, since the last time it was asked for.
    forgotten: Vec<Key>,
}

impl Attachments {
    pub(super) fn new(procfs: Procfs, root: &Path) -> Self {
        Self {
            procfs,
            root: root.to_owned(),
            attachments: BTreeMap::new(),
            by_pod: HashMap::new(),
            by_inode: HashMap::new(),
            homes: HashMap::new(),
            ages: BTreeMap::new(),
            age: 0,
            dels: HashMap::new(),
            past: BTreeSet::new(),
            forgotten: Vec::new(),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Attachment> {
        self.attachments.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Attachment> {
        self.attachments.get_mut(key)
    }

    /// What keeps a namespace, by which it is reached.
    pub(super) fn held(&mut self, netns: Netns, tasks: &[Task], mounts: &[PathBuf]) {
        let room = self.homes.len() < MAX_HOMES;
        if !room && !self.homes.contains_key(&netns.inode) {
            return;
        }
        let tids = tasks.iter().take(MAX_WAYS).map(|task| task.tid);
        let home = Home {
            tids: tids.collect(),
            mounts: mounts.iter().take(MAX_WAYS).cloned().collect(),
        };
        self.homes.insert(netns.inode, home);
    }

    /// A namespace is gone, or about to go. Returns whose it was.
    pub(super) fn netns_gone(&mut self, netns: Netns, now: Instant) -> Vec<Key> {
        self.homes.remove(&netns.inode);
        let mut gone = Vec::new();
        for key in self.by_inode.get(&netns.inode).into_iter().flatten() {
            let Some(attachment) = self.attachments.get_mut(key) else {
                continue;
            };
            let cookies = (attachment.netns.and_then(|own| own.cookie), netns.cookie);
            if !matches!(cookies, (Some(a), Some(b)) if a != b) {
                attachment.netns = None;
                attachment.gone = true;
                gone.push(key.clone());
            }
        }
        for key in &gone {
            forget(&mut self.by_inode, &netns.inode, key);
            self.is_past(key, now);
        }
        gone
    }

    /// libcni remembers an ADD. Returns its name if its namespace is there and
    /// nothing was known of it.
    pub(super) fn cached(&mut self, cached: &Cached) -> Option<Key> {
        let key = Key {
            container_id: cached.container_id.clone(),
            ifname: cached.ifname.clone(),
        };
        let netns = cached.netns?;
        if self.attachments.contains_key(&key) || key.ifname == "lo" {
            return None;
        }
        self.index(&key, cached.pod.as_ref(), Some(netns));
        let attachment = self.attachments.get_mut(&key)?;
        attachment.place = Some((1, cached.netns_path.clone()));
        add(&mut attachment.addresses, &cached.ips);
        Some(key)
    }

    /// An ADD has succeeded.
    pub(super) fn added(&mut self, call: &CniCall, result: Option<&CniResult>) {
        let key = Key {
            container_id: call.container_id.clone(),
            ifname: call.ifname.clone(),
        };
        self.index(&key, call.pod.as_ref(), call.netns);
        let Some(attachment) = self.attachments.get_mut(&key) else {
            return;
        };
        attachment.place = Some((call.parent_pid, call.netns_path.clone()));
        attachment.leaving = false;
        attachment.host_local |= call.ipam.as_deref() == Some("host-local");
        if let Some(result) = result {
            add(&mut attachment.addresses, &result.ips);
            let on_host = result.interfaces.iter().filter(|it| it.sandbox.is_none());
            let names: Vec<String> = on_host.map(|it| it.name.clone()).collect();
            add(&mut attachment.told, &names);
        }
    }

    /// A DEL of an attachment has begun.
    pub(super) fn leaves(&mut self, key: &Key) {
        self.is_not_past(key);
        if let Some(attachment) = self.attachments.get_mut(key) {
            attachment.leaving = true;
        }
    }

    /// Whether a DEL of another sandbox of the same pod name may be under way:
    /// one is known, living or not, or a DEL of one that is forgotten was seen.
    pub(super) fn has_others(&self, call: &CniCall, now: Instant) -> bool {
        let Some(pod) = call.pod.as_ref().and_then(name_of) else {
            return false;
        };
        let lately = self.dels.get(&pod);
        let lately = lately.is_some_and(|(container, at)| {
            *container != call.container_id && now.saturating_duration_since(*at) < LATELY
        });
        let keys = self.by_pod.get(&pod);
        let mut keys = keys.into_iter().flatten();
        lately || keys.any(|key| key.container_id != call.container_id)
    }

    /// A DEL has begun or ended.
    pub(super) fn del_seen(&mut self, call: &CniCall, now: Instant) {
        self.dels
            .retain(|_, (_, at)| now.saturating_duration_since(*at) < LATELY);
        if let Some(pod) = call.pod.as_ref().and_then(name_of)
            && self.dels.len() < MAX_KNOWN
        {
            self.dels.insert(pod, (call.container_id.clone(), now));
        }
    }

    /// Living sandboxes of the pod name that a call names, without that which
    /// it is for.
    pub(super) fn namesakes(&self, call: &CniCall) -> Vec<Key> {
        let pod = call.pod.as_ref().and_then(name_of);
        let keys = pod.and_then(|pod| self.by_pod.get(&pod));
        let others = keys.into_iter().flatten();
        let others = others.filter(|key| key.container_id != call.container_id);
        let alive = |key: &&Key| {
            let attachment = self.get(key);
            attachment.is_some_and(|it| it.netns.is_some() && !it.leaving)
        };
        others.filter(alive).cloned().collect()
    }

    /// The ways to an attachment's namespace.
    pub(super) fn target(&self, attachment: &Attachment) -> Option<Target> {
        let netns = attachment.netns?;
        let mount = |pid: u32, path: &Path| Way::Mount {
            root: self.procfs.root_path(pid),
            path: path.to_owned(),
        };
        let home = self.homes.get(&netns.inode);
        let tids = home.into_iter().flat_map(|home| &home.tids);
        let mut ways: Vec<Way> = tids
            .map(|tid| Way::File(self.procfs.task_netns_path(*tid)))
            .collect();
        if let Some((pid, path)) = &attachment.place {
            let process = path.strip_prefix("/proc/");
            let process = process.and_then(|path| path.strip_suffix("/ns/net")?.parse().ok());
            match process {
                Some(process) => ways.push(Way::File(self.procfs.task_netns_path(process))),
                None if is_runtimes(path) => {
                    // As the runtime sees it; it may have been started anew.
                    ways.push(mount(*pid, Path::new(path)));
                    ways.push(mount(1, Path::new(path)));
                    ways.push(Way::Mount {
                        root: self.root.clone(),
                        path: PathBuf::from(path),
                    });
                }
                None => {}
            }
        }
        let mounts = home.into_iter().flat_map(|home| &home.mounts);
        ways.extend(mounts.flat_map(|path| self.ways_of_mount(path)));
        (!ways.is_empty()).then_some(Target {
            inode: netns.inode,
            ways,
            is_hosts: false,
        })
    }

    /// The ways to a namespace, whatever is attached to it.
    pub(super) fn place(&self, inode: u32) -> Option<Target> {
        let home = self.homes.get(&inode)?;
        let tids = home.tids.iter();
        let tasks = tids.map(|tid| Way::File(self.procfs.task_netns_path(*tid)));
        let mounts = home.mounts.iter();
        let mounts = mounts.flat_map(|path| self.ways_of_mount(path));
        let ways: Vec<Way> = tasks.chain(mounts).collect();
        (!ways.is_empty()).then_some(Target {
            inode,
            ways,
            is_hosts: false,
        })
    }

    /// Through a user's mounts nothing is opened: tasks are the way there.
    fn ways_of_mount(&self, path: &Path) -> Vec<Way> {
        let (roots, path) = match mount::place(path) {
            Place::Node(path) => (
                vec![self.procfs.root_path(1), self.root.clone()],
                path.to_owned(),
            ),
            Place::Process(tid, path) => (vec![self.procfs.root_path(tid)], path),
            Place::User(..) => return Vec::new(),
        };
        let way = |root| Way::Mount {
            root,
            path: path.clone(),
        };
        roots.into_iter().map(way).collect()
    }

    /// All namespaces that something is known to lead to.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> {
        self.homes.keys().copied()
    }

    /// The ways to the host's.
    pub(super) fn host_target(&self, host: NodeNetns) -> Target {
        // The kernel's first thread is there, too, where process 1 is guarded.
        let ways = [host.pid, 1, 2].map(|pid| Way::File(self.procfs.task_netns_path(pid)));
        Target {
            inode: host.inode,
            ways: ways.to_vec(),
            is_hosts: true,
        }
    }

    /// Makes an attachment known, as of now.
    fn index(&mut self, key: &Key, pod: Option<&PodRef>, netns: Option<Netns>) {
        if !self.attachments.contains_key(key) && self.attachments.len() >= MAX_KNOWN {
            self.forget_oldest();
        }
        self.age += 1;
        self.is_not_past(key);
        let attachment = self.attachments.entry(key.clone()).or_default();
        self.ages.remove(&attachment.age);
        attachment.age = self.age;
        self.ages.insert(self.age, key.clone());
        if let Some(name) = pod.and_then(name_of) {
            attachment.pod = pod.cloned();
            self.by_pod.entry(name).or_default().insert(key.clone());
        }
        if let Some(netns) = netns {
            if let Some(old) = attachment.netns.filter(|old| old.inode != netns.inode) {
                forget(&mut self.by_inode, &old.inode, key);
            }
            attachment.netns = Some(netns);
            attachment.gone = false;
            let there = self.by_inode.entry(netns.inode).or_default();
            there.insert(key.clone());
        }
    }

    /// How many there are, by each of the tables that has all of them.
    #[cfg(test)]
    pub(super) fn len(&self) -> [usize; 4] {
        let of_pods = self.by_pod.values().map(BTreeSet::len).sum();
        let past = self.attachments.values().filter(|it| it.past.is_some());
        let indexed = self.by_inode.values().map(BTreeSet::len).sum::<usize>();
        let gone = self.attachments.values().filter(|it| it.netns.is_none());
        assert_eq!(past.count(), self.past.len());
        [
            self.attachments.len(),
            self.ages.len(),
            of_pods,
            indexed + gone.count(),
        ]
    }

    /// Whether something that is there is a living attachment's other than
    /// this one: plugins that name a veth after the pod give the next sandbox
    /// of its name the same one, and an address goes to somebody else as soon
    /// as it is released.
    pub(super) fn is_anothers(&self, key: &Key, trace: &Trace) -> bool {
        let others = self.attachments.iter().filter(|(its, _)| *its != key);
        let mut alive = others.filter(|(_, it)| it.netns.is_some() && !it.leaving);
        let own = self.get(key).and_then(|own| own.netns);
        let address: Option<IpAddr> = trace.name.parse().ok();
        let has = |it: &Attachment| address.is_some_and(|its| it.addresses.contains(&its));
        alive.any(|(_, it)| match trace.kind {
            TraceKind::Veth => {
                it.veth.as_ref() == Some(&trace.name) || it.told.contains(&trace.name)
            }
            TraceKind::Route => has(it),
            // One namespace can have been given to two.
            TraceKind::Address => {
                let inode = |netns: Option<Netns>| netns.map(|netns| netns.inode);
                inode(own) == inode(it.netns) && has(it)
            }
            TraceKind::Reservation => false, // that names its owner
        })
    }
}

/// Where runtimes put namespaces: a path that a plugin was given is not
/// followed anywhere else.
fn is_runtimes(path: &str) -> bool {
    const PLACES: [&str; 2] = ["/run/netns/", "/var/run/netns/"];
    PLACES.iter().any(|place| path.starts_with(place))
}

fn add<T: Clone + PartialEq>(known: &mut Vec<T>, new: &[T]) {
    for each in new {
        if known.len() < MAX_NAMES && !known.contains(each) {
            known.push(each.clone());
        }
    }
}

fn name_of(pod: &PodRef) -> Option<(String, String)> {
    Some((pod.namespace.clone()?, pod.name.clone()?))
}

/// Takes a key out of an index; what is empty goes.
fn forget<K: Eq + std::hash::Hash>(index: &mut HashMap<K, BTreeSet<Key>>, at: &K, key: &Key) {
    if let Some(there) = index.get_mut(at) {
        there.remove(key);
        if there.is_empty() {
            index.remove(at);
        }
    }
}
