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
            ipam,
        },
        joined,
    },
    model::{Model, netns::NetnsEntry, pods::PodPresence},
};
mod address_state;
mod advice;
mod elsewhere;
mod evidence;
mod finding;
mod set_aside;
mod unknowns;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use event::{
    NotStuck, Task,
    finding::{Finding, Phase},
    wording::plural::counted,
};

pub use elsewhere::PODS_BY_IP;

/// Addresses of ghosts, each with how far that ghost has come by it: who has them in
/// the cluster matters.
pub fn addresses(view: &View<'_>) -> BTreeMap<IpAddr, Phase> {
    let ghosts = candidates(view).filter_map(|entry| verdict(view, entry));
    ghosts
        .flat_map(|ghost| finding::phases(view, &ghost))
        .collect()
}

pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let ghosts = candidates(view).filter_map(|entry| verdict(view, entry));
    ghosts.map(|ghost| finding::finding(view, &ghost)).collect()
}

/// Whether there is a pod of which the list in force says nothing, because it may be
/// older than the pod is. A pod that starts is told of in a moment.
pub fn needs_proof(view: &View<'_>) -> bool {
    const MOMENT: Duration = Duration::from_secs(2);
    let pods = &view.model.pods;
    let Some(list) = pods.list() else {
        return false;
    };
    let is_unknown = |entry: &NetnsEntry| {
        let uid = entry.sandbox.uid();
        // The UID of a static pod is no list's.
        let is_lacking = uid.is_some_and(|uid| {
            uid.contains('-') && !pods.is_claimed(uid) && !pods.has_lost_mirror(uid)
        });
        is_lacking
            && matches!(entry.sandbox.presence, PodPresence::Unknown)
            && (entry.seen < list.at || view.passed(entry.seen.plus(MOMENT)))
    };
    let mut guests = view.model.netns.live().filter(|entry| !entry.host);
    guests.any(is_unknown) || view.lacks_proof()
}

/// What a list does not show that need not have all of the node's pods, and why.
pub fn unlisted(doubt: &str) -> String {
    format!("ghost-sandbox: whether pods that are not on the list still exist: {doubt}")
}

/// What the list does not show of pods that it lacks.
#[derive(Debug, Default)]
pub struct Uncovered {
    /// Why the list shows of no pod that it is gone.
    doubt: Option<String>,
    /// Kubernetes namespaces of which the list has no pod.
    elsewhere: BTreeSet<String>,
    /// Sandboxes that the list is not later than, and those whose pod has no UID
    /// to look for.
    younger: usize,
    nameless: usize,
    /// Pods that only their cgroup's name tells of.
    unvouched: usize,
    /// Static pods: without their mirror, and by what another pod says.
    mirrored: BTreeSet<String>,
    claimed: BTreeSet<String>,
}

/// See [`Uncovered`].
pub fn uncovered(view: &View<'_>) -> Uncovered {
    let list = view.model.pods.list();
    let mut uncovered = Uncovered {
        doubt: list.and_then(|list| list.doubt.clone()),
        ..Uncovered::default()
    };
    let sandboxes = view.model.netns.live().filter(|entry| !entry.host);
    for entry in sandboxes {
        let Some(pod) = &entry.sandbox.pod else {
            let by_name = entry.tasks.iter().any(|task| task.by_name_alone);
            uncovered.unvouched += usize::from(by_name);
            continue;
        };
        let uid = pod.uid.as_deref();
        match entry.sandbox.presence {
            PodPresence::Unlisted(_) if !is_covered(view, entry) => {
                let namespace = pod.namespace.as_deref().unwrap_or("(not known)");
                uncovered.elsewhere.insert(namespace.to_owned());
            }
            PodPresence::Unknown if uid.is_some_and(|uid| view.model.pods.has_lost_mirror(uid)) => {
                uncovered.mirrored.insert(pod.label().to_owned());
            }
            PodPresence::Unknown if uid.is_some_and(|uid| view.model.pods.is_claimed(uid)) => {
                uncovered.claimed.insert(pod.label().to_owned());
            }
            // The UID of a static pod is no list's.
            PodPresence::Unknown if uid.is_none_or(|uid| uid.contains('-')) => {
                // A pod that starts is listed in a moment.
                let is_new = !view.settings.surveyed && !view.passed(entry.seen.plus(GRACE));
                let count = match uid {
                    Some(_) => &mut uncovered.younger,
                    None => &mut uncovered.nameless,
                };
                *count += usize::from(!is_new && list.is_some());
            }
            _ => {}
        }
    }
    uncovered
}

impl Uncovered {
    /// The same in words.
    pub fn gaps(&self) -> Vec<String> {
        let mut gaps: Vec<String> = self.doubt.as_deref().map(unlisted).into_iter().collect();
        if self.unvouched > 0 {
            gaps.push(format!(
                "ghost-sandbox: whose {} are: only cgroup names say so, and no source has these \
                 pods",
                counted(self.unvouched, "network namespace")
            ));
        }
        if !self.elsewhere.is_empty() {
            gaps.push(format!(
                "ghost-sandbox: whether the pods of the namespaces {} still exist: the pod list has \
                 none of these namespaces, or none of this node",
                joined(&self.elsewhere)
            ));
        }
        if !self.claimed.is_empty() {
            gaps.push(format!(
                "ghost-sandbox: whether the pods {} still exist: another pod claims to be the mirror \
                 of a static pod with this UID, which anybody can write",
                joined(&self.claimed)
            ));
        }
        if !self.mirrored.is_empty() {
            gaps.push(format!(
                "ghost-sandbox: whether the static pods {} still exist: the API lost their mirrors, \
                 which does not end them",
                joined(&self.mirrored)
            ));
        }
        let younger = self.younger + self.nameless;
        if younger > 0 {
            gaps.push(format!(
                "ghost-sandbox: whether the pods of {younger} sandboxes still exist: the pod list is \
                 older than they are, or their UIDs are unknown"
            ));
        }
        gaps
    }

    /// Why the list itself cannot tell that a pod is gone, in short: it is not
    /// of this node, lacks Kubernetes namespaces that have pods here, or is old.
    pub fn off(&self) -> Option<String> {
        if self.doubt.is_some() {
            Some(String::from(
                "the pod list may be of another node or cluster",
            ))
        } else if !self.elsewhere.is_empty() {
            Some(format!(
                "the pod list has no pod of {} on this node",
                joined(&self.elsewhere)
            ))
        } else if self.younger > 0 {
            Some(format!(
                "the pod list is older than {}",
                counted(self.younger, "sandbox")
            ))
        } else {
            None
        }
    }
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
