//! Pods as the API server has them, and those that it had.
//!
//! A list proves something only of pods that existed when it was true: one
//! that is older than a sandbox proves nothing about that sandbox's pod.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use event::{Pod, PodRef, clock::Timestamp};

pub const MAX_PODS: usize = 65_536;
/// Pods that went; the ones that went first are forgotten, which costs a name.
/// By a whole list such a pod is still not there.
const MAX_DEPARTED: usize = 4_096;

/// Pods as last listed, and those that went.
#[derive(Debug, Default)]
pub struct Pods {
    list: Option<List>,
    departed: BTreeMap<String, Departed>,
    order: VecDeque<String>,
    dropped: u64,
}

/// The list in force: the latest one, whoever gave it.
#[derive(Debug)]
pub struct List {
    pub source: String,
    /// The time for which it is true, at the latest.
    pub at: Timestamp,
    /// The time for which it is true for certain: it proves nothing of a pod
    /// that is younger.
    pub proves: Timestamp,
    /// Kubernetes namespaces that pods on it are in.
    namespaces: BTreeSet<String>,
    /// Its source vouches that all of the node's pods are on it.
    pub vouched: bool,
    /// It was kept whole; only then it proves that a pod is not there.
    whole: bool,
    /// Why it shows of no pod that it is gone.
    pub doubt: Option<String>,
    pods: Vec<Pod>,
    by_uid: HashMap<String, usize>,
    /// UIDs like the API server's that pods say static pods have, each with how
    /// many do.
    claims: BTreeMap<String, usize>,
}

/// A pod that was on an earlier list.
#[derive(Debug)]
struct Departed {
    /// As last listed; apart, as maps keep more room than is filled.
    pod: Box<Pod>,
    /// When it was first missed.
    at: Timestamp,
}

/// What the lists say of a sandbox's pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodPresence {
    /// Nothing: there is no list that could know.
    #[default]
    Unknown,
    Listed,
    /// It is there and should be gone by then.
    Terminating(Timestamp),
    /// It is or was there and uses the host's network: no namespace is its
    /// sandbox.
    Exempt,
    /// It is there and has run to its end, at that time: its sandbox should be
    /// gone, and some IPAMs take its address back.
    Finished(Timestamp),
    /// It was there and is not any more.
    Gone(Timestamp),
    /// It is not there, on the first list that could have had it.
    Unlisted(Timestamp),
}

impl Pods {
    /// Why nothing is known of a pod of which no list tells.
    pub fn silence(&self) -> &'static str {
        match self.list {
            None => "no API access",
            Some(_) => "the pod list is older than it, or of other pods",
        }
    }

    /// The list in force.
    pub fn list(&self) -> Option<&List> {
        self.list.as_ref()
    }

    pub fn listed_pod(&self, uid: &str) -> Option<&Pod> {
        let list = self.list.as_ref()?;
        list.pods.get(*list.by_uid.get(uid)?)
    }

    /// The pod of this UID, listed now or earlier.
    pub fn pod(&self, uid: &str) -> Option<&Pod> {
        self.listed_pod(uid)
            .or_else(|| Some(&*self.departed.get(uid)?.pod))
    }

    /// Pods that were on an earlier list, each with when it was first missed.
    pub fn departed(&self) -> impl Iterator<Item = (&Pod, Timestamp)> {
        let departed = self.departed.values();
        departed.map(|departed| (&*departed.pod, departed.at))
    }

    /// When the pod of this UID was first missed, if it was on an earlier list
    /// and is not on this one.
    pub fn departed_at(&self, uid: &str) -> Option<Timestamp> {
        let departed = self.departed.get(uid);
        let departed = departed.filter(|departed| !departed.is_mirror_of(uid));
        departed.map(|departed| departed.at)
    }

    /// Whether the mirror of the static pod of this UID was on an earlier list
    /// and is not on this one.
    pub fn has_lost_mirror(&self, uid: &str) -> bool {
        let departed = self.departed.get(uid);
        departed.is_some_and(|departed| departed.is_mirror_of(uid))
    }

    /// Whether nothing but what another pod says of itself speaks for a pod of
    /// this UID.
    pub fn is_claimed(&self, uid: &str) -> bool {
        let list = self.list.as_ref();
        let is_known = self.pod(uid).is_some();
        !is_known && list.is_some_and(|list| list.claims.contains_key(uid))
    }

    /// A listed pod of the same name.
    pub fn namesake(&self, namespace: &str, name: &str) -> Option<&Pod> {
        let mut pods = self.list.iter().flat_map(|list| &list.pods);
        pods.find(|pod| pod.name == name && pod.namespace == namespace)
    }

    /// What the lists say of a pod that existed at a time.
    pub(super) fn presence(&self, uid: &str, existed: Timestamp) -> PodPresence {
        if let Some(pod) = self.listed_pod(uid) {
            // What becomes of the mirror, or of what has only written that it is
            // one, is not the static pod's fate.
            let is_mirror = is_mirror_of(pod, uid) && !pod.host_network;
            return match pod.deletion.filter(|_| !is_mirror) {
                _ if is_mirror => PodPresence::Listed,
                _ if pod.host_network => PodPresence::Exempt,
                _ if is_finished(pod) => PodPresence::Finished(pod.finished.unwrap_or(existed)),
                Some(by) => PodPresence::Terminating(by),
                None => PodPresence::Listed,
            };
        }
        if let Some(departed) = self.departed.get(uid) {
            return match departed.pod.host_network {
                true => PodPresence::Exempt,
                false if departed.is_mirror_of(uid) => PodPresence::Unknown,
                false => PodPresence::Gone(departed.at),
            };
        }
        match &self.list {
            // It may be a static pod, and gone as well.
            Some(_) if self.is_claimed(uid) => PodPresence::Unknown,
            // A static pod runs whether or not its mirror is in the API, and
            // only its UID has no hyphens.
            Some(list) if list.whole && list.proves > existed && uid.contains('-') => {
                PodPresence::Unlisted(list.at)
            }
            _ => PodPresence::Unknown,
        }
    }

    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn listed(
        &mut self,
        source: &str,
        at: Timestamp,
        made_after: Option<Timestamp>,
        vouched: bool,
        pods: &[Pod],
    ) -> bool {
        if self.list.as_ref().is_some_and(|list| at < list.at) {
            return false;
        }
        // It was made after the one before, whose newest pod it may lack.
        let proven = self
            .list
            .as_ref()
            .map_or(Timestamp::EPOCH, |list| list.proves);
        // A time that was still to come says nothing of the list's age.
        let proves = match made_after {
            None => at,
            Some(made_after) if made_after <= at => made_after.max(proven),
            Some(_) => proven,
        };
        let whole = pods.len() <= MAX_PODS;
        self.dropped += pods.len().saturating_sub(MAX_PODS) as u64;
        let pods = &pods[..pods.len().min(MAX_PODS)];
        let pods: Vec<Pod> = pods.iter().map(|pod| self.seen(pod, at)).collect();
        let namespaces = pods.iter().map(|pod| pod.namespace.clone()).collect();
        let (mut by_uid, mut claims) = (HashMap::new(), BTreeMap::new());
        for (place, pod) in pods.iter().enumerate() {
            for uid in &pod.uids {
                by_uid.entry(uid.clone()).or_insert(place);
            }
            for claim in &pod.claims {
                *claims.entry(claim.clone()).or_default() += 1;
            }
        }
        let source = source.to_owned();
        let new = List {
            source,
            at,
            proves,
            namespaces,
            vouched,
            whole,
            doubt: None,
            pods,
            by_uid,
            claims,
        };
        let before = self.departed.len();
        self.departed.retain(|uid, _| !new.by_uid.contains_key(uid));
        if self.departed.len() < before {
            self.order.retain(|uid| self.departed.contains_key(uid));
        }
        let old = self.list.replace(new);
        // A list of one namespace after one of another says nothing of the first.
        let is_other = |old: &List| {
            let new = self.list.as_ref().map(|list| &list.namespaces);
            let single = |all: &BTreeSet<String>| all.len() == 1;
            !vouched
                && single(&old.namespaces)
                && new.is_some_and(|new| single(new) && *new != old.namespaces)
        };
        if let (true, Some(old)) = (whole, old.filter(|old| !is_other(old))) {
            let new = self.list.as_ref().map_or(&[][..], |list| &list.pods);
            let gone: Vec<Pod> = gone(&old.pods, new).cloned().collect();
            for pod in &gone {
                self.depart(pod, at);
            }
        }
        true
    }

    /// A pod as it was seen at a time. It had run to its end when it was first
    /// seen so, whatever later time it has for that.
    fn seen(&self, pod: &Pod, at: Timestamp) -> Pod {
        let mut pod = pod.clone();
        if is_finished(&pod) {
            let known = pod.uids.iter().filter_map(|uid| self.pod(uid));
            let known = { known }.find(|known| is_same(known, &pod));
            let known = known.filter(|known| is_finished(known));
            let known = known.and_then(|known| known.finished);
            pod.finished = [known, pod.finished, Some(at)].into_iter().flatten().min();
        }
        pod
    }

    /// Why the list in force shows of no pod that it is gone.
    pub(super) fn doubted(&mut self, doubt: Option<&str>) {
        if let Some(list) = &mut self.list {
            list.doubt = doubt.map(str::to_owned);
        }
    }

    pub(super) fn deleted(&mut self, pod: &PodRef, time: Timestamp) -> bool {
        let Some(uid) = &pod.uid else {
            return false;
        };
        let Some(list) = &mut self.list else {
            return false;
        };
        let is_it = |it: &Pod| it.uids.contains(uid) && has_name(it, pod);
        let place = list.pods.iter().position(is_it);
        let Some(gone) = place.and_then(|place| list.take(place)) else {
            return false;
        };
        self.depart(&gone, time);
        true
    }

    /// A pod is so now. The list is no truer for it: what is not on it may be
    /// gone only if it was not there when the list was made.
    pub(super) fn changed(&mut self, pod: &Pod, time: Timestamp) -> bool {
        let pod = &self.seen(pod, time);
        let Some(list) = &mut self.list else {
            return false;
        };
        let mut known = list.pods.iter().enumerate();
        let known = known.find(|(_, known)| is_same(known, pod));
        if let Some((place, _)) = known {
            if list.pods.get(place) == Some(pod) {
                return false;
            }
            list.take(place);
        }
        if list.pods.len() >= MAX_PODS {
            list.whole = false;
            self.dropped += 1;
            return true;
        }
        list.add(pod);
        let before = self.departed.len();
        for uid in &pod.uids {
            self.departed.remove(uid);
        }
        if self.departed.len() < before {
            self.order.retain(|uid| self.departed.contains_key(uid));
        }
        true
    }

    fn depart(&mut self, pod: &Pod, at: Timestamp) {
        let list = self.list.as_ref();
        let is_gone = |uid: &&String| list.is_none_or(|list| !list.by_uid.contains_key(*uid));
        for uid in pod.uids.iter().filter(is_gone) {
            let departed = Departed {
                pod: Box::new(pod.clone()),
                at,
            };
            if self.departed.insert(uid.clone(), departed).is_none() {
                self.order.push_back(uid.clone());
            }
        }
        while self.order.len() > MAX_DEPARTED {
            if let Some(first) = self.order.pop_front() {
                self.departed.remove(&first);
            }
        }
    }
}

impl Departed {
    /// Whether it stood for a static pod of this UID, which runs on whatever
    /// becomes of what stands for it. (Kubelet lists static pods themselves.)
    fn is_mirror_of(&self, uid: &str) -> bool {
        is_mirror_of(&self.pod, uid)
    }
}

fn is_mirror_of(pod: &Pod, uid: &str) -> bool {
    !uid.contains('-') && pod.uids.iter().any(|own| own.contains('-'))
}

impl List {
    fn add(&mut self, pod: &Pod) {
        let place = self.pods.len();
        let uids = pod.uids.iter().cloned();
        for uid in uids {
            self.by_uid.entry(uid).or_insert(place);
        }
        for claim in &pod.claims {
            *self.claims.entry(claim.clone()).or_default() += 1;
        }
        if self.namespaces.len() < MAX_PODS {
            self.namespaces.insert(pod.namespace.clone());
        }
        self.pods.push(pod.clone());
    }

    /// Takes a pod off it; the last one gets its place.
    fn take(&mut self, place: usize) -> Option<Pod> {
        let last = self.pods.len().checked_sub(1)?;
        if place > last {
            return None;
        }
        let taken = self.pods.swap_remove(place);
        for claim in &taken.claims {
            let left = self.claims.get(claim).map_or(0, |count| count - 1);
            match left {
                0 => self.claims.remove(claim),
                left => self.claims.insert(claim.clone(), left),
            };
        }
        for uid in &taken.uids {
            if self.by_uid.get(uid) == Some(&place) {
                self.by_uid.remove(uid);
            }
        }
        if let Some(moved) = self.pods.get(place) {
            for uid in &moved.uids {
                if let Some(its) = self.by_uid.get_mut(uid).filter(|its| **its == last) {
                    *its = place;
                }
            }
        }
        Some(taken)
    }

    pub fn pods(&self) -> &[Pod] {
        &self.pods
    }

    /// Whether the list covers a Kubernetes namespace, as far as its pods show.
    /// What lists pods lists those of one namespace or of all; of a namespace
    /// that is not known only a list of all can tell.
    pub fn covers(&self, namespace: Option<&str>) -> bool {
        self.vouched
            || match namespace {
                Some(namespace) => self.namespaces.contains(namespace),
                None => self.namespaces.len() > 1,
            }
    }

    /// Whether a pod on the list says that it is on a node of this name.
    pub fn names_node(&self, node: &str) -> bool {
        let mut nodes = self.pods.iter().filter_map(|pod| pod.node.as_deref());
        nodes.any(|name| name == node)
    }

    /// Whether the list can have the pods of a node: one of another node, or of
    /// another cluster, lacks them.
    pub fn is_of_node(&self, node: &str) -> bool {
        let mut nodes = self.pods.iter().filter_map(|pod| pod.node.as_deref());
        self.vouched || nodes.clone().next().is_none() || nodes.any(|name| name == node)
    }
}

/// Whether two are one pod, or mirrors of one static pod. What another pod writes
/// that it is the mirror of makes it no other's.
pub fn is_same(one: &Pod, other: &Pod) -> bool {
    (&one.namespace, &one.name) == (&other.namespace, &other.name)
        && !one.uids.is_disjoint(&other.uids)
}

/// Whether a pod has the name of a reference, as far as that has one.
fn has_name(pod: &Pod, reference: &PodRef) -> bool {
    let same = |own: &str, other: &Option<String>| other.as_ref().is_none_or(|it| it == own);
    same(&pod.name, &reference.name) && same(&pod.namespace, &reference.namespace)
}

/// Whether none of its containers runs or will run again.
fn is_finished(pod: &Pod) -> bool {
    matches!(pod.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// The pods of one list that the next does not have.
pub fn deleted(old: &[Pod], new: &[Pod]) -> Vec<PodRef> {
    gone(old, new).map(reference).collect()
}

/// Those of which the next list has neither themselves nor the mirror that took
/// their place (see [`is_same`]), and could have.
fn gone<'a>(old: &'a [Pod], new: &'a [Pod]) -> impl Iterator<Item = &'a Pod> {
    let kept: BTreeSet<(&str, &str, &str)> = new.iter().flat_map(names).collect();
    let nodes: BTreeSet<&str> = new.iter().filter_map(|pod| pod.node.as_deref()).collect();
    let namespaces: BTreeSet<&str> = new.iter().map(|pod| pod.namespace.as_str()).collect();
    // What lists pods lists those of one node or of all, and those of one
    // namespace or of all. A node may have pods of one alone; not a cluster.
    let could_have = move |pod: &Pod| {
        let its = pod.node.as_deref();
        let of_its_node = nodes.len() != 1 || its.is_none_or(|its| nodes.contains(its));
        let of_its_namespace =
            namespaces.len() != 1 || nodes.len() < 2 || namespaces.contains(pod.namespace.as_str());
        of_its_node && of_its_namespace
    };
    old.iter()
        .filter(move |pod| could_have(pod) && !names(pod).any(|name| kept.contains(&name)))
}

/// What a pod is known by from one list to the next.
fn names(pod: &Pod) -> impl Iterator<Item = (&str, &str, &str)> {
    let uids = pod.uids.iter();
    uids.map(|uid| (pod.namespace.as_str(), pod.name.as_str(), uid.as_str()))
}

/// How a pod is named in records. A mirror pod has two UIDs; the static pod's
/// own, without hyphens, is the one that its cgroup has.
pub fn reference(pod: &Pod) -> PodRef {
    let uid = pod
        .uids
        .iter()
        .find(|uid| !uid.contains('-'))
        .or_else(|| pod.uids.first());
    PodRef {
        namespace: Some(pod.namespace.clone()),
        name: Some(pod.name.clone()),
        uid: uid.cloned(),
    }
}

#[cfg(test)]
mod tests;
