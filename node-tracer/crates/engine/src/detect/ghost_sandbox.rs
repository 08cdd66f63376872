//! ghost-sandbox: a pod sandbox's network namespace outlives its pod and holds
//! the pod's address.
//!
//! All of these must be so, each known and none guessed:
//!
//! 1. the namespace was the pod's sandbox: CNI ADD or a holder's cgroup say so;
//! 2. it still has an address of its own, and something keeps it: a task, a
//!    mount, a descriptor, or what a look at all of these did not find (a
//!    namespace that nothing keeps is dying);
//! 3. the pod is gone: from a list that had it, or that could have had it
//!    (later than the pod's sandbox, and of its Kubernetes namespace). Or the
//!    pod should long be gone, or has run to its end;
//! 4. this is no ordinary deletion: that was so [`GRACE`] and the pod's own
//!    grace period ago, or a task in the namespace is stuck and so ends the
//!    deletion's hopes, or another namespace has the address already, or the
//!    runtime has removed the sandbox.
//!
//! Where no list tells of the pod, nothing is said of it: that another has its
//! address is duplicate-address.
//!
//! What it leads to depends on the address's reservation (see [`Phase`]) and on
//! who gives the addresses out: some take it back under the ghost, which makes
//! a conflict of it, others wait for a CNI DEL that does not come, which makes
//! it a leak (see [`ipam`]).
//!
//! [`Phase`]: event::finding::Phase

mod advice;
mod claims;
mod doubts;
mod fate;
mod ipam;
mod telling;

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use super::{View, duplicate_address, joined, own, stuck_in};
use crate::model::{Model, netns::NetnsEntry, pods::Standing, runtime::CRI, task::Blocked};
use event::{NotStuck, Task, clock::Timestamp, finding::Finding, wording::plural::counted};

/// What an ordinary deletion may take.
const GRACE: Duration = Duration::from_secs(30);
/// What it may take once the pod's own grace period is over.
const AFTER_GRACE: Duration = Duration::from_secs(10);

/// A namespace that is a ghost, and why.
#[derive(Debug)]
pub struct Ghost<'a> {
    pub entry: &'a NetnsEntry,
    /// Since when: the pod is gone, or should be.
    pub since: Timestamp,
    /// The addresses it holds.
    pub addresses: Vec<IpAddr>,
    /// Stuck tasks in it.
    pub stuck: Vec<&'a Blocked>,
}

pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let ghosts = candidates(view).filter_map(|entry| verdict(view, entry));
    ghosts.map(|ghost| telling::finding(view, &ghost)).collect()
}

/// Namespaces that may become ghosts as time goes on.
pub fn candidates<'a>(view: &View<'a>) -> impl Iterator<Item = &'a NetnsEntry> {
    view.model.netns.live().filter(|entry| {
        use Standing::{Exempt, Finished, Gone, Listed, Terminating, Unknown, Unlisted};
        match entry.sandbox.standing {
            Gone(_) | Unlisted(_) | Terminating(_) | Finished(_) => {
                !entry.host && !own::addresses(view, entry).is_empty()
            }
            Unknown | Listed | Exempt => false,
        }
    })
}

/// Whether a namespace is a ghost.
pub fn verdict<'a>(view: &View<'a>, entry: &'a NetnsEntry) -> Option<Ghost<'a>> {
    if entry.host || entry.dying.is_some() || entry.sandbox.uid().is_none() {
        return None;
    }
    let since = over_since(view, entry)?;
    let stuck = stuck_in(view.model, entry);
    let looked_at = !stuck.is_empty() || entry.held_at.is_some();
    let addresses = own::addresses(view, entry);
    if addresses.is_empty() || !looked_at {
        return None;
    }
    let hopeless = match entry.sandbox.standing {
        Standing::Terminating(_) => false,
        _ => {
            !stuck.is_empty()
                || is_in_conflict(view, entry, &addresses)
                || is_removed(view.model, entry)
        }
    };
    let may_last_until = since.plus(patience(view.model, entry));
    if !hopeless && !view.passed(may_last_until) {
        return None;
    }
    // A pod that is still in the API is only late, unless it cannot end.
    let is_late = matches!(entry.sandbox.standing, Standing::Terminating(_)) && stuck.is_empty();
    let inner = duplicate_address::is_inner(view, entry);
    (!is_late && !inner).then_some(Ghost {
        entry,
        since,
        addresses,
        stuck,
    })
}

/// How long the sandbox of a pod that is gone may stay in good order.
fn patience(model: &Model, entry: &NetnsEntry) -> Duration {
    // The time by which a terminating pod should be gone is after its grace
    // period, and so is the end of one that has run to it.
    let is_forced = matches!(
        entry.sandbox.standing,
        Standing::Gone(_) | Standing::Unlisted(_)
    );
    let pod = entry.sandbox.uid().and_then(|uid| model.pods.pod(uid));
    let own = pod.filter(|_| is_forced).and_then(|pod| pod.grace_seconds);
    let own = own.map(|seconds| Duration::from_secs(seconds).saturating_add(AFTER_GRACE));
    own.unwrap_or_default().max(GRACE)
}

/// Since when a namespace's pod has no use for it any more: it is gone, should
/// be gone, or has run to its end.
fn over_since(view: &View<'_>, entry: &NetnsEntry) -> Option<Timestamp> {
    match entry.sandbox.standing {
        Standing::Terminating(since) | Standing::Finished(since) => Some(since),
        _ => gone(view, entry),
    }
}

/// Whether no list that is believed tells of a namespace's pod.
pub(super) fn is_untold(view: &View<'_>, entry: &NetnsEntry) -> bool {
    match entry.sandbox.standing {
        Standing::Unknown => true,
        Standing::Unlisted(_) => !is_covered(view, entry),
        _ => false,
    }
}

/// What a list does not show that need not have all of the node's pods, and why.
pub fn unlisted(doubt: &str) -> String {
    format!("ghost-sandbox: whether pods that are not on the list still exist: {doubt}")
}

/// What the list does not show of pods that it lacks.
pub fn uncovered(view: &View<'_>) -> Vec<String> {
    let (mut elsewhere, mut younger) = (BTreeSet::new(), 0_usize);
    let (mut mirrored, mut claimed) = (BTreeSet::new(), BTreeSet::new());
    let sandboxes = view.model.netns.live().filter(|entry| !entry.host);
    let mut unvouched = 0_usize;
    for entry in sandboxes {
        let Some(pod) = &entry.sandbox.pod else {
            unvouched += usize::from(entry.tasks.iter().any(|task| task.by_name_alone));
            continue;
        };
        let uid = pod.uid.as_deref();
        match entry.sandbox.standing {
            Standing::Unlisted(_) if !is_covered(view, entry) => {
                let namespace = pod.namespace.as_deref();
                elsewhere.insert(namespace.unwrap_or("(not known)"));
            }
            Standing::Unknown if uid.is_some_and(|uid| view.model.pods.has_lost_mirror(uid)) => {
                mirrored.insert(pod.label());
            }
            Standing::Unknown if uid.is_some_and(|uid| view.model.pods.is_claimed(uid)) => {
                claimed.insert(pod.label());
            }
            // The UID of a static pod is no list's.
            Standing::Unknown if uid.is_none_or(|uid| uid.contains('-')) => {
                // A pod that starts is listed in a moment.
                let is_new = !view.settings.surveyed && !view.passed(entry.seen.plus(GRACE));
                younger += usize::from(!is_new);
            }
            _ => {}
        }
    }
    let list = view.model.pods.list();
    let doubt = list.and_then(|list| list.doubt.as_deref());
    let mut gaps: Vec<String> = doubt.map(unlisted).into_iter().collect();
    if unvouched > 0 {
        gaps.push(format!(
            "ghost-sandbox: whose {} are: only the names of cgroups say so, and nobody knows \
             these pods",
            counted(unvouched, "network namespace")
        ));
    }
    if !elsewhere.is_empty() {
        gaps.push(format!(
            "ghost-sandbox: whether the pods of the Kubernetes namespaces {} still exist: the pod \
             list has none of these namespaces, or none of this node",
            joined(elsewhere)
        ));
    }
    if !claimed.is_empty() {
        gaps.push(format!(
            "ghost-sandbox: whether the pods {} still exist: another pod says that it is the mirror \
             of a static pod with this UID, which anybody can write",
            joined(claimed)
        ));
    }
    if !mirrored.is_empty() {
        gaps.push(format!(
            "ghost-sandbox: whether the static pods {} still exist: the API server has lost their \
             mirrors, which does not end them",
            joined(mirrored)
        ));
    }
    if younger > 0 && view.model.pods.list().is_some() {
        gaps.push(format!(
            "ghost-sandbox: whether the pods of {younger} sandboxes still exist: the pod list is not \
             later than they are, or their UIDs are not known"
        ));
    }
    gaps
}

/// Whether the list can show that a namespace's pod is gone.
fn is_covered(view: &View<'_>, entry: &NetnsEntry) -> bool {
    let pod = entry.sandbox.pod.as_ref();
    view.list_covers(pod.and_then(|pod| pod.namespace.as_deref()))
}

/// Namespaces whose pod is gone and of which it cannot be told yet whether
/// their deletion is still under way.
pub fn undecided<'a>(view: &View<'a>) -> Vec<&'a NetnsEntry> {
    let open = candidates(view).filter(|entry| {
        let is_gone = gone(view, entry).is_some();
        is_gone && !duplicate_address::is_inner(view, entry) && entry.held_at.is_some()
    });
    open.filter(|entry| verdict(view, entry).is_none())
        .collect()
}

/// Since when a namespace's pod is known to be gone.
pub fn gone(view: &View<'_>, entry: &NetnsEntry) -> Option<Timestamp> {
    match entry.sandbox.standing {
        Standing::Unlisted(_) if !is_covered(view, entry) => None,
        Standing::Gone(since) | Standing::Unlisted(since) => Some(since),
        Standing::Unknown
        | Standing::Listed
        | Standing::Exempt
        | Standing::Finished(_)
        | Standing::Terminating(_) => None,
    }
}

/// Whether another namespace than the host's has one of the addresses, too, as
/// [`duplicate_address`] sees it.
fn is_in_conflict(view: &View<'_>, entry: &NetnsEntry, addresses: &[IpAddr]) -> bool {
    let mut addresses = addresses.iter();
    addresses.any(|address| !rivals(view, entry, *address).is_empty())
}

/// The other namespaces than the host's that have one of a namespace's
/// addresses, each with when it got it.
fn rivals<'a>(
    view: &View<'a>,
    entry: &NetnsEntry,
    address: IpAddr,
) -> Vec<(&'a NetnsEntry, Timestamp)> {
    let others = duplicate_address::rivals(view, entry, address).into_iter();
    others
        .filter(|owner| !owner.entry.host)
        .map(|owner| (owner.entry, owner.since))
        .collect()
}

/// Whether the runtime, asked, knows the sandbox no more: it removes one only
/// after its namespace.
fn is_removed(model: &Model, entry: &NetnsEntry) -> bool {
    let (Some(list), Some(id)) = (model.runtime.cri(), &entry.sandbox.id) else {
        return false;
    };
    model.failure(CRI).is_none()
        && list.partial.is_none()
        && list.at > entry.seen
        && list.of_container(id).is_none()
        && list.in_netns(entry.id).next().is_none()
}

/// A task in a namespace that is in uninterruptible sleep, if not for long
/// enough to be called stuck.
fn asleep(entry: &NetnsEntry) -> Option<&Task> {
    let mut tasks = entry.tasks.iter();
    tasks.find(|task| task.is_in_d())
}

/// Whether all tasks in a namespace that are known are frozen.
fn is_frozen(entry: &NetnsEntry) -> bool {
    let mut tasks = entry.tasks.iter();
    !entry.tasks.is_empty() && tasks.all(|task| task.not_stuck == Some(NotStuck::Frozen))
}

fn is_elsewhere(model: &Model, container: &str) -> bool {
    model
        .netns
        .live()
        .any(|entry| entry.sandbox.has_container(container))
}

#[cfg(test)]
mod tests;
