//! The sandboxes and containers of the node, as runtimes list them and as what
//! is left of them shows.
//!
//! Each source keeps its own list, because they differ in what they prove: a
//! container that CRI does not list can still run, and one that has a folder
//! or a cgroup need not.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

use event::{Netns, RuntimeSandbox, clock::Timestamp};

/// The source that asks the runtime itself.
pub const CRI: &str = "cri";
/// Sandboxes at most, of one source.
pub const MAX_SANDBOXES: usize = 16_384;
/// Sandboxes that are remembered once they are gone, of one source.
const MAX_GONE: usize = 4_096;
/// IDs at most, of one source.
const MAX_IDS: usize = 131_072;
const MAX_SOURCES: usize = 8;

#[derive(Debug, Default)]
pub struct Runtime {
    lists: BTreeMap<String, SandboxList>,
    containers: BTreeMap<String, BTreeSet<String>>,
    /// What is missing in those lists of containers, and why.
    partial: BTreeMap<String, String>,
    dropped: u64,
}

/// What one source lists.
#[derive(Debug)]
pub struct SandboxList {
    /// `cri` or `bundles`.
    pub source: String,
    /// An endpoint or a folder.
    pub endpoint: String,
    /// The runtime's name and version.
    pub runtime: Option<String>,
    /// The time for which it is true: when it was asked for.
    pub at: Timestamp,
    /// What is missing in it, and why.
    pub partial: Option<String>,
    sandboxes: BTreeMap<String, RuntimeSandbox>,
    /// When each was told last, by itself or with all.
    told: HashMap<String, Timestamp>,
    /// Sandbox by the ID of each of its containers, and its own.
    by_container: HashMap<String, String>,
    by_inode: HashMap<u32, BTreeSet<String>>,
    by_uid: HashMap<String, BTreeSet<String>>,
    /// Those that were there and are not any more, as far as there is room. IDs do
    /// not come back.
    gone: VecDeque<String>,
}

impl SandboxList {
    /// All sandboxes, by ID.
    pub fn sandboxes(&self) -> impl Iterator<Item = &RuntimeSandbox> {
        self.sandboxes.values()
    }

    pub fn of_container(&self, id: &str) -> Option<&RuntimeSandbox> {
        self.sandboxes.get(self.by_container.get(id)?)
    }

    /// Whether the runtime has a sandbox no more that had its network by then. It
    /// lists one only when it has started it, some time after that: what it never
    /// listed may be starting.
    pub fn has_removed(&self, id: &str, by: Timestamp) -> bool {
        const STARTS: Duration = Duration::from_secs(30);
        let had = || self.gone.iter().any(|gone| gone == id) || self.at > by.plus(STARTS);
        self.partial.is_none() && self.of_container(id).is_none() && had()
    }

    /// The sandboxes in a network namespace: one, unless the list is stale.
    pub fn in_netns(&self, netns: Netns) -> impl Iterator<Item = &RuntimeSandbox> {
        let ids = self.by_inode.get(&netns.inode).into_iter().flatten();
        ids.filter_map(|id| self.sandboxes.get(id))
    }

    /// The sandboxes of a pod, living and dead.
    pub fn of_pod(&self, uid: &str) -> impl Iterator<Item = &RuntimeSandbox> {
        let ids = self.by_uid.get(uid).into_iter().flatten();
        ids.filter_map(|id| self.sandboxes.get(id))
    }

    /// When this sandbox was told last.
    pub(super) fn told_at(&self, id: &str) -> Option<Timestamp> {
        self.told.get(id).copied()
    }

    /// Whether there was room.
    fn put(&mut self, sandbox: &RuntimeSandbox, at: Timestamp) -> bool {
        if !self.sandboxes.contains_key(&sandbox.id) && self.sandboxes.len() >= MAX_SANDBOXES {
            return false;
        }
        self.take(&sandbox.id);
        let id = &sandbox.id;
        for each in sandbox.ids() {
            self.by_container.insert(each.to_owned(), id.clone());
        }
        if let Some(netns) = sandbox.netns {
            let there = self.by_inode.entry(netns.inode).or_default();
            there.insert(id.clone());
        }
        if let Some(uid) = &sandbox.pod.uid {
            let there = self.by_uid.entry(uid.clone()).or_default();
            there.insert(id.clone());
        }
        self.told.insert(id.clone(), at);
        self.sandboxes.insert(id.clone(), sandbox.clone());
        true
    }

    /// Remembers that one was there.
    fn goes(&mut self, id: &str) {
        if self.gone.len() >= MAX_GONE {
            self.gone.pop_front();
        }
        self.gone.push_back(id.to_owned());
    }

    fn take(&mut self, id: &str) -> bool {
        let Some(old) = self.sandboxes.remove(id) else {
            return false;
        };
        self.told.remove(id);
        for each in old.ids() {
            self.by_container.remove(each);
        }
        let inode = old.netns.map(|netns| netns.inode);
        if let Some(inode) = inode {
            remove(&mut self.by_inode, &inode, id);
        }
        if let Some(uid) = &old.pod.uid {
            remove(&mut self.by_uid, uid, id);
        }
        true
    }
}

/// Takes an ID out of an index; what is empty goes.
fn remove<K: Eq + Hash>(index: &mut HashMap<K, BTreeSet<String>>, key: &K, id: &str) {
    if let Some(there) = index.get_mut(key) {
        there.remove(id);
        if there.is_empty() {
            index.remove(key);
        }
    }
}

impl Runtime {
    /// All lists; the runtime's own answer first.
    pub fn lists(&self) -> impl Iterator<Item = &SandboxList> {
        let (cri, others): (Vec<_>, Vec<_>) =
            self.lists.values().partition(|list| list.source == CRI);
        cri.into_iter().chain(others)
    }

    /// What the runtime itself answered last, if it ever did.
    pub fn cri(&self) -> Option<&SandboxList> {
        self.lists.get(CRI)
    }

    /// The sandbox of an ID that is a sandbox's or a container's, and who
    /// lists it.
    pub fn of_container(&self, id: &str) -> Option<(&SandboxList, &RuntimeSandbox)> {
        self.lists()
            .find_map(|list| Some((list, list.of_container(id)?)))
    }

    /// The source that shows that a container exists or existed until just
    /// now: CRI (ready or not), the runtime's folders, a cgroup, a shim.
    pub fn shows(&self, id: &str) -> Option<&str> {
        let listed = self.of_container(id).map(|(list, _)| list.source.as_str());
        listed.or_else(|| {
            let mut sources = self.containers.iter();
            sources.find_map(|(source, ids)| ids.contains(id).then_some(source.as_str()))
        })
    }

    /// Sources that list containers by ID alone: `cgroup`, `shim`.
    pub fn container_sources(&self) -> impl Iterator<Item = (&str, &BTreeSet<String>)> {
        let sources = self.containers.iter();
        sources.map(|(source, ids)| (source.as_str(), ids))
    }

    /// What is missing in a source's list of containers, and why.
    pub fn containers_partial(&self, source: &str) -> Option<&str> {
        self.partial.get(source).map(String::as_str)
    }

    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn listed(
        &mut self,
        source: &str,
        endpoint: &str,
        runtime: Option<&str>,
        at: Timestamp,
        partial: Option<&str>,
        sandboxes: &[RuntimeSandbox],
    ) -> bool {
        if !self.lists.contains_key(source) && self.lists.len() >= MAX_SOURCES {
            return false;
        }
        let mut list = SandboxList {
            source: source.to_owned(),
            endpoint: endpoint.to_owned(),
            runtime: runtime.map(str::to_owned),
            at,
            partial: partial.map(str::to_owned),
            sandboxes: BTreeMap::new(),
            told: HashMap::new(),
            by_container: HashMap::new(),
            by_inode: HashMap::new(),
            by_uid: HashMap::new(),
            gone: VecDeque::new(),
        };
        for sandbox in sandboxes {
            self.dropped += u64::from(!list.put(sandbox, at));
        }
        if let Some(before) = self.lists.remove(source) {
            list.gone = before.gone;
            for id in before.sandboxes.keys() {
                if !list.sandboxes.contains_key(id) {
                    list.goes(id);
                }
            }
        }
        self.lists.insert(source.to_owned(), list);
        true
    }

    pub(super) fn added(&mut self, source: &str, at: Timestamp, sandbox: &RuntimeSandbox) -> bool {
        let Some(list) = self.lists.get_mut(source) else {
            return self.listed(source, "", None, at, None, std::slice::from_ref(sandbox));
        };
        list.at = at;
        let same = list.sandboxes.get(&sandbox.id) == Some(sandbox);
        self.dropped += u64::from(!list.put(sandbox, at));
        !same
    }

    pub(super) fn removed(&mut self, source: &str, at: Timestamp, id: &str) -> bool {
        let Some(list) = self.lists.get_mut(source) else {
            return false;
        };
        list.at = at;
        let was_there = list.take(id);
        if was_there {
            list.goes(id);
        }
        was_there
    }

    pub(super) fn containers(
        &mut self,
        source: &str,
        partial: Option<&str>,
        ids: &BTreeSet<String>,
    ) -> bool {
        if !self.containers.contains_key(source) && self.containers.len() >= MAX_SOURCES {
            return false;
        }
        let missing = match partial {
            Some(why) => self.partial.insert(source.to_owned(), why.to_owned()),
            None => self.partial.remove(source),
        };
        self.dropped += ids.len().saturating_sub(MAX_IDS) as u64;
        let ids: BTreeSet<String> = ids.iter().take(MAX_IDS).cloned().collect();
        let old = self.containers.insert(source.to_owned(), ids.clone());
        old != Some(ids) || missing.as_deref() != partial
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::testing::*;
    use event::{PodRef, RuntimeContainer};

    fn sandbox(id: &str, inode: u32, uid: &str) -> RuntimeSandbox {
        RuntimeSandbox {
            id: id.to_owned(),
            pod: PodRef {
                uid: Some(uid.to_owned()),
                ..PodRef::default()
            },
            netns: Some(ns(inode)),
            containers: vec![RuntimeContainer {
                id: format!("{id}-app"),
                ..RuntimeContainer::default()
            }],
            ..RuntimeSandbox::default()
        }
    }

    #[test]
    fn a_sandbox_is_found_by_each_of_its_ids_until_it_is_removed() {
        let mut runtime = Runtime::default();
        runtime.listed(
            "bundles",
            "/run",
            None,
            s(1),
            None,
            &[sandbox("b", 100, OLD)],
        );
        runtime.listed("cri", "/sock", None, s(1), None, &[sandbox("a", 100, OLD)]);
        assert_eq!(runtime.shows("a-app"), Some("cri"));
        assert_eq!(runtime.shows("b"), Some("bundles"));
        let (list, found) = runtime.of_container("a-app").unwrap();
        assert_eq!((list.source.as_str(), found.id.as_str()), ("cri", "a"));
        let cri = runtime.cri().unwrap();
        assert_eq!(cri.in_netns(ns(100)).count(), 1);
        assert_eq!(cri.of_pod(OLD).count(), 1);
        assert!(runtime.removed("cri", s(2), "a"));
        assert!(!runtime.removed("cri", s(2), "a"));
        assert_eq!(runtime.shows("a-app"), None);
        let cri = runtime.cri().unwrap();
        assert_eq!(cri.in_netns(ns(100)).count() + cri.of_pod(OLD).count(), 0);
    }

    #[test]
    fn a_sandbox_that_changes_is_told_once() {
        let mut runtime = Runtime::default();
        runtime.listed("cri", "/sock", None, s(1), None, &[sandbox("a", 100, OLD)]);
        assert!(!runtime.added("cri", s(2), &sandbox("a", 100, OLD)));
        assert!(runtime.added("cri", s(3), &sandbox("a", 200, OLD)));
        let cri = runtime.cri().unwrap();
        assert_eq!(
            (cri.in_netns(ns(100)).count(), cri.in_netns(ns(200)).count()),
            (0, 1)
        );
    }

    #[test]
    fn a_list_that_is_told_again_is_all_there_is() {
        let mut runtime = Runtime::default();
        let (a, b) = (sandbox("a", 100, OLD), sandbox("b", 200, NEW));
        let both = [a.clone(), b.clone()];
        runtime.listed("cri", "/sock", None, s(1), Some("slow"), &both);
        runtime.added("cri", s(2), &a);
        assert!(runtime.cri().unwrap().partial.is_some(), "not by a change");
        runtime.listed("cri", "/sock", None, s(3), None, std::slice::from_ref(&b));
        let cri = runtime.cri().unwrap();
        assert_eq!((cri.partial.as_deref(), cri.at), (None, s(3)));
        assert_eq!((cri.told_at("a"), cri.told_at("b")), (None, Some(s(3))));
        assert_eq!(cri.in_netns(ns(100)).count(), 0);
        assert_eq!(cri.of_pod(NEW).count(), 1);
        // What is told by itself next to it is no news.
        assert!(!runtime.added("cri", s(3), &b));
        runtime.listed("cri", "/sock", None, s(4), Some("slow"), &both);
        assert!(runtime.cri().unwrap().partial.is_some());
        assert_eq!(runtime.take_dropped(), 0);
    }

    #[test]
    fn a_cgroup_shows_a_container_that_no_list_has() {
        let mut runtime = Runtime::default();
        let ids = BTreeSet::from([String::from("x")]);
        assert!(runtime.containers("cgroup", None, &ids));
        assert!(!runtime.containers("cgroup", None, &ids));
        assert!(runtime.containers("cgroup", Some("too many"), &ids));
        assert_eq!(runtime.containers_partial("cgroup"), Some("too many"));
        assert_eq!(runtime.shows("x"), Some("cgroup"));
        assert_eq!(runtime.shows("y"), None);
    }
}
