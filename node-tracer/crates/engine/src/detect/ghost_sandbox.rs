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

use crate::{
    detect::{
        View,
        facts::{
            ghosts::{GRACE, candidates, gone, is_covered, verdict},
            inner::is_inner,
        },
        joined,
    },
    model::{Model, netns::NetnsEntry, pods::Standing},
};
mod advice;
mod claims;
mod doubts;
mod fate;
mod ipam;
mod telling;

use std::collections::BTreeSet;

use event::{NotStuck, Task, finding::Finding, wording::plural::counted};

pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let ghosts = candidates(view).filter_map(|entry| verdict(view, entry));
    ghosts.map(|ghost| telling::finding(view, &ghost)).collect()
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

/// Namespaces whose pod is gone and of which it cannot be told yet whether
/// their deletion is still under way.
pub fn undecided<'a>(view: &View<'a>) -> Vec<&'a NetnsEntry> {
    let open = candidates(view).filter(|entry| {
        let is_gone = gone(view, entry).is_some();
        is_gone && !is_inner(view, entry) && entry.held_at.is_some()
    });
    open.filter(|entry| verdict(view, entry).is_none())
        .collect()
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
