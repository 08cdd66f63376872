//! missing-del: a sandbox is gone, and nobody has called CNI DEL for it: what
//! ADD has reserved for it stays reserved.
//!
//! All of these must be so:
//!
//! 1. there was an ADD: it was seen, or libcni remembers it (its cache keeps an
//!    ADD until a DEL has succeeded);
//! 2. the sandbox is gone: its namespace is, or its pod is and the namespace,
//!    if it still lives, has no address left. (One that has is
//!    [`ghost_sandbox`](super::ghost_sandbox)'s: its DEL could not come, and
//!    giving its address back would do harm);
//! 3. since that ADD no DEL was seen, neither begun nor ended, for [`GRACE`]:
//!    some runtimes call it after the namespace has gone, and after a restart
//!    the kubelet takes its time. If it comes late, the finding is over. Where
//!    only libcni remembers the ADD, [`GRACE`] counts from the look that found
//!    the namespace gone (after a restart of the node, all are), unless the
//!    runtime says that it has no such sandbox: then nobody will call DEL;
//! 4. no store that knows says that the address has been given back.
//!
//! Without a store that says that it is reserved it is `info`, and so it is
//! while the runtime lists the sandbox, or may, also where nobody has asked it: for
//! [`HOPE`], as it calls DEL when it removes the sandbox. It is
//! `info`, too, where the store is left over from an earlier CNI, as
//! [`leaked_reservation`](super::leaked_reservation) has it: no pod is given an
//! address out of it; and where records were lost since the ADD, as the DEL may
//! have been one of them. What
//! only libcni remembers is `info`, too, while the runtime does not answer, or a
//! namespace could not be found or read, which may be the sandbox's; and so is a
//! sandbox whose namespace was not seen to go, where a task of it could live of
//! which only a cgroup tells that could not be read.
//!
//! Where only libcni remembers the ADD, and no configured network uses the store any
//! more while one gives the address out, the network was renamed or the like: a DEL may
//! have run, with the configuration of its time, and have found nothing to free.

use crate::{
    detect::{
        View, answering,
        facts::{
            calls::pod_gone,
            ghosts, leaks,
            living::{has_address, is_running},
            own,
            stays::{Named, given, uses_host_local},
        },
        heard, is_routable, named, unfound, unlisted, unread,
    },
    model::{Model, calls::AttachmentCalls, netns::NetnsEntry},
};
mod advice;
mod finding;

use std::{cell::OnceCell, collections::BTreeMap, net::IpAddr, path::Path, time::Duration};

pub(super) use crate::detect::facts::stays::{Stays, stays};
use event::{
    Attachment, Netns, Network, PodRef, StoreKind,
    clock::Timestamp,
    finding::{Finding, Severity},
};

/// What an ordinary removal, and a restart of the runtime, may take.
const GRACE: Duration = Duration::from_secs(60);
/// A runtime that lists a sandbox for so long after its end will not call DEL.
const HOPE: Duration = Duration::from_secs(600);
/// More attachments of one network that only libcni's cache knows are told
/// together.
const MANY: usize = 4;

/// An attachment that nobody has taken back.
#[derive(Debug)]
struct Case<'a> {
    /// `CNI_CONTAINERID`
    id: &'a str,
    /// `CNI_IFNAME`
    ifname: &'a str,
    pod: PodRef,
    /// What ADD gave it.
    ips: Vec<IpAddr>,
    /// The network, if its name is known.
    network: Option<&'a str>,
    gone: Gone<'a>,
    /// When the ADD ended, or was last seen.
    added: Timestamp,
    called: Option<&'a AttachmentCalls>,
    cached: Option<&'a Attachment>,
}

/// Why its sandbox is gone.
#[derive(Clone, Copy, Debug)]
enum Gone<'a> {
    /// Its namespace was seen to go.
    Netns(Timestamp),
    /// Its namespace was not there when libcni's cache was read.
    Found(Timestamp),
    /// Its pod is gone; the namespace, if it is known to live, has no address.
    Pod(Timestamp, Option<&'a NetnsEntry>),
}

impl Gone<'_> {
    /// When, or when it was noticed.
    fn at(self) -> Timestamp {
        match self {
            Self::Netns(at) | Self::Found(at) | Self::Pod(at, _) => at,
        }
    }

    /// Whether nobody has seen its namespace, so that a task of it, which its
    /// cgroup tells, would show that it lives.
    fn is_inferred(self) -> bool {
        matches!(self, Self::Found(_) | Self::Pod(_, None))
    }
}

/// A case with what has become of its reservation.
#[derive(Debug)]
struct Missing<'a> {
    case: Case<'a>,
    stays: Stays<'a>,
    /// Its reservation is in a store that is not in use any more.
    left_over: bool,
    /// The network that gives its address out now, where its own is not configured
    /// any more and a DEL may have run.
    successor: Option<&'a Network>,
    severity: Severity,
}

/// One finding an attachment; those of one network that only libcni knows are
/// one if they are many.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut old: BTreeMap<&str, Vec<Missing<'_>>> = BTreeMap::new();
    let left_over = OnceCell::new();
    for case in cases(view) {
        let Some(missing) = judged(view, case, left_over.get_or_init(|| left_over_stores(view)))
        else {
            continue;
        };
        match missing.case.cached {
            Some(cached) if missing.case.called.is_none() => {
                old.entry(&cached.network).or_default().push(missing);
            }
            _ => findings.push(missing.finding(view)),
        }
    }
    for (network, all) in old {
        match all.len() > MANY {
            true => findings.extend(finding::many(view, network, &all)),
            false => findings.extend(all.iter().map(|missing| missing.finding(view))),
        }
    }
    findings
}

/// Addresses whose reservations have to be asked for, each with when that came
/// to matter. Those that are told together were listed, and are too many.
pub fn addresses(view: &View<'_>) -> Vec<(Timestamp, IpAddr)> {
    let cases = cases(view);
    let mut old: BTreeMap<&str, usize> = BTreeMap::new();
    for network in cases.iter().filter_map(Case::old_network) {
        *old.entry(network).or_default() += 1;
    }
    let is_one_of_many = |case: &Case<'_>| {
        let network = case.old_network();
        network.is_some_and(|network| old.get(network).is_some_and(|all| *all > MANY))
    };
    let few = cases.iter().filter(|case| !is_one_of_many(case));
    let addresses = few.flat_map(|case| case.ips.iter().map(|ip| (case.gone.at(), *ip)));
    addresses.collect()
}

/// Stores that no configured network and no container uses any more.
fn left_over_stores<'a>(view: &View<'a>) -> Vec<&'a Path> {
    let stores = view.model.cni.stores();
    let stores = stores.filter(|listed| leaks::is_left_over(view, listed));
    stores.map(|listed| listed.store.path.as_path()).collect()
}

fn judged<'a>(view: &View<'a>, case: Case<'a>, left_over: &[&Path]) -> Option<Missing<'a>> {
    let asked = case.gone.at();
    let found = matches!(case.gone, Gone::Found(_));
    let disowned = found && case.is_disowned(view);
    if !disowned && !view.passed(asked.plus(GRACE)) {
        return None;
    }
    let networks = Named {
        network: case.network,
        host_local: case.called.is_some_and(uses_host_local),
        added: Some(case.added),
    };
    let stays = stays(view, case.id, &case.ips, networks, asked);
    let failed = case.called.is_some_and(|calls| calls.added().is_none());
    let is_left_over = matches!(stays, Stays::Reserved { holder, .. }
        if left_over.iter().any(|store| holder.path.parent() == Some(*store)
            || holder.path == *store));
    let severity = match stays {
        Stays::NotYet | Stays::Free => return None,
        // What has failed need not have reserved anything.
        Stays::Unknown if failed => return None,
        Stays::Unknown => Severity::Info,
        Stays::Reserved { .. } if is_left_over => Severity::Info,
        // Its namespace may be one that nobody has seen, or seen into.
        Stays::Reserved { .. }
            if case.called.is_none() && (unread(view) > 0 || unfound(view.model).is_some()) =>
        {
            Severity::Info
        }
        Stays::Reserved { .. } if case.gone.is_inferred() && unlisted(view).is_some() => {
            Severity::Info
        }
        // The DEL may be among the records that were lost.
        Stays::Reserved { .. } if case.may_have_been_lost(view.model) => Severity::Info,
        // Whoever does not answer may be about to call DEL.
        Stays::Reserved { .. } if found && !disowned && answering(view.model).is_none() => {
            Severity::Info
        }
        Stays::Reserved { .. } => {
            let listed = heard(view.model).and_then(|list| list.of_container(case.id));
            // A runtime that does not tell all may have it, unless it has said
            // before that it has not.
            let may_be = || answering(view.model).is_none() && !case.is_disowned(view);
            let may_be = listed.is_some() || may_be();
            match may_be && !view.passed(asked.plus(HOPE)) {
                true => Severity::Info,
                false => Severity::Warning,
            }
        }
    };
    let successor = match stays {
        Stays::Reserved {
            address,
            holder,
            kind: Some(StoreKind::HostLocal),
            ..
        } if case.called.is_none() && !is_left_over => {
            let store = holder.path.parent();
            store.and_then(|store| leaks::successor(view, store, address))
        }
        _ => None,
    };
    Some(Missing {
        case,
        stays,
        left_over: is_left_over,
        successor,
        severity,
    })
}

/// All that may become findings as time goes on.
fn cases<'a>(view: &View<'a>) -> Vec<Case<'a>> {
    let model = view.model;
    let mut cases = Vec::new();
    let called = model.calls.forsaken().filter(|calls| !calls.is_adding());
    cases.extend(called.filter_map(|calls| Case::called(view, calls)));
    let cached = model.cni.attachments();
    cases.extend(cached.filter_map(|attachment| Case::cached(view, attachment)));
    for entry in model.netns.live().filter(|entry| !entry.host) {
        cases.extend(Case::empty(view, entry));
    }
    // What still has its address is a ghost, or another's.
    let held = |case: &Case<'_>| case.ips.iter().any(|address| has_address(view, *address));
    cases.retain(|case| !held(case));
    cases
}

impl<'a> Case<'a> {
    /// Whether records were lost since its ADD, its DEL perhaps among them.
    fn may_have_been_lost(&self, model: &Model) -> bool {
        let last = model.losses.last;
        last.is_some_and(|last| last >= self.added)
    }

    /// One whose ADD was seen.
    fn called(view: &View<'a>, calls: &'a AttachmentCalls) -> Option<Self> {
        let pod = named(
            view.model,
            of_kubernetes(calls.pod.as_ref(), &calls.ifname)?,
        );
        let gone = match calls.netns_gone {
            // It was mistaken for gone.
            Some(_) if calls.netns.is_some_and(|netns| lives(view, netns)) => return None,
            Some(at) => Gone::Netns(at),
            // Where it is was never known.
            None => {
                let mut live = view.model.netns.live();
                if live.any(|entry| entry.sandbox.has_container(&calls.container_id)) {
                    return None;
                }
                Gone::Pod(pod_gone(view, &pod, calls.last)?, None)
            }
        };
        Some(Self::of_calls(view, calls, pod, gone))
    }

    fn of_calls(view: &View<'a>, calls: &'a AttachmentCalls, pod: PodRef, gone: Gone<'a>) -> Self {
        let mut cached = view.model.cni.of_container(&calls.container_id);
        let mut networks = calls.chain().filter_map(|plugin| plugin.network.as_deref());
        Self {
            id: &calls.container_id,
            ifname: &calls.ifname,
            pod,
            ips: given(view, calls),
            network: networks.next(),
            gone,
            added: calls.added().unwrap_or(calls.last),
            called: Some(calls),
            cached: cached.find(|each| each.ifname == calls.ifname),
        }
    }

    /// One that only libcni's cache knows.
    fn cached(view: &View<'a>, attachment: &'a Attachment) -> Option<Self> {
        let model = view.model;
        let Attachment {
            container_id: id,
            ifname,
            ..
        } = attachment;
        let pod = of_kubernetes(attachment.pod.as_ref(), ifname)?;
        let at = model.cni.attachments_at()?;
        let went = attachment
            .netns
            .and_then(|netns| model.calls.went(netns.inode));
        let gone = match attachment.netns {
            None if !attachment.netns_path.is_empty() => Gone::Found(at),
            Some(netns) => match went.filter(|went| *went > at) {
                Some(went) => Gone::Netns(went),
                // A process's path leads elsewhere once its number is another's.
                None if model.netns.get(netns).is_some_and(|entry| entry.host) => Gone::Found(at),
                None => return None,
            },
            None => return None,
        };
        if model.calls.get(id, ifname).is_some() || view.containers().contains(id.as_str()) {
            return None;
        }
        if matches!(gone, Gone::Found(_)) && is_running(view, id) {
            return None;
        }
        Some(Self {
            id,
            ifname,
            pod: named(model, pod),
            ips: routable(&attachment.ips),
            network: Some(&attachment.network),
            gone,
            added: attachment.written,
            called: None,
            cached: Some(attachment),
        })
    }

    /// The network, if only libcni's cache knows of the attachment.
    fn old_network(&self) -> Option<&'a str> {
        let cached = self.cached.filter(|_| self.called.is_none());
        cached.map(|cached| cached.network.as_str())
    }

    /// Whether the runtime has said, since the ADD, that it has no such
    /// sandbox. IDs do not come back: it remains so while it does not answer.
    fn is_disowned(&self, view: &View<'_>) -> bool {
        let list = view.model.runtime.cri();
        list.is_some_and(|list| list.has_removed(self.id, self.added))
    }

    /// One whose namespace lives on without its address, and without its pod.
    fn empty(view: &View<'a>, entry: &'a NetnsEntry) -> Option<Self> {
        let at = ghosts::gone(view, entry)?;
        let id = entry.sandbox.id.as_deref()?;
        // Nobody has looked for addresses in what has not been visited.
        if entry.wiring.is_none() || !own::addresses(view, entry).is_empty() {
            return None;
        }
        let mut all = view.model.calls.of_container(id);
        let calls = all.find(|calls| calls.ifname != "lo" && calls.added().is_some())?;
        let pod = named(view.model, calls.pod.as_ref()?);
        let gone = Gone::Pod(at, Some(entry));
        (!calls.has_del()).then(|| Self::of_calls(view, calls, pod, gone))
    }
}

/// Whether this very namespace lives: a number alone may be another's by now.
fn lives(view: &View<'_>, netns: Netns) -> bool {
    let entry = view.model.netns.get(netns);
    let same = entry.filter(|entry| netns.cookie.is_some() && entry.id.cookie == netns.cookie);
    same.is_some_and(|entry| entry.dying.is_none())
}

/// The pod, if it is a pod's own network and not its loopback. Containers of
/// others than Kubernetes (podman, nerdctl) have none.
fn of_kubernetes<'a>(pod: Option<&'a PodRef>, ifname: &str) -> Option<&'a PodRef> {
    let pod = pod.filter(|pod| pod.name.is_some() || pod.uid.is_some());
    pod.filter(|_| ifname != "lo")
}

fn routable(ips: &[IpAddr]) -> Vec<IpAddr> {
    let ips = ips.iter().copied();
    ips.filter(|address| is_routable(*address)).collect()
}

#[cfg(test)]
mod tests;
