//! Whether the pod of a namespace is gone, since when, and whether the
//! namespace is a ghost.

use std::{net::IpAddr, time::Duration};

use super::{common::stuck_in, conflicts, inner::is_inner, own};
use crate::{
    detect::{View, answering},
    model::{Model, calls::AttachmentCalls, netns::NetnsEntry, pods::PodPresence, task::Blocked},
};
use event::clock::Timestamp;

/// What an ordinary deletion may take.
pub(in crate::detect) const GRACE: Duration = Duration::from_secs(30);
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

/// Namespaces that may become ghosts as time goes on.
pub fn candidates<'a>(view: &View<'a>) -> impl Iterator<Item = &'a NetnsEntry> {
    view.model.netns.live().filter(|entry| {
        use PodPresence::{Exempt, Finished, Gone, Listed, Terminating, Unknown, Unlisted};
        match entry.sandbox.presence {
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
    let hopeless = match entry.sandbox.presence {
        PodPresence::Terminating(_) => false,
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
    let is_late = matches!(entry.sandbox.presence, PodPresence::Terminating(_)) && stuck.is_empty();
    let inner = is_inner(view, entry);
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
        entry.sandbox.presence,
        PodPresence::Gone(_) | PodPresence::Unlisted(_)
    );
    let pod = entry.sandbox.uid().and_then(|uid| model.pods.pod(uid));
    let own = pod.filter(|_| is_forced).and_then(|pod| pod.grace_seconds);
    let own = own.map(|seconds| Duration::from_secs(seconds).saturating_add(AFTER_GRACE));
    own.unwrap_or_default().max(GRACE)
}

/// Since when a namespace's pod has no use for it any more: it is gone, should
/// be gone, or has run to its end.
fn over_since(view: &View<'_>, entry: &NetnsEntry) -> Option<Timestamp> {
    match entry.sandbox.presence {
        PodPresence::Terminating(since) | PodPresence::Finished(since) => Some(since),
        _ => gone(view, entry),
    }
}

/// Whether no list that is believed tells of a namespace's pod.
pub fn is_untold(view: &View<'_>, entry: &NetnsEntry) -> bool {
    match entry.sandbox.presence {
        PodPresence::Unknown => true,
        PodPresence::Unlisted(_) => !is_covered(view, entry),
        _ => false,
    }
}

/// Whether the list can show that a namespace's pod is gone.
pub(in crate::detect) fn is_covered(view: &View<'_>, entry: &NetnsEntry) -> bool {
    let pod = entry.sandbox.pod.as_ref();
    view.list_covers(pod.and_then(|pod| pod.namespace.as_deref()))
}

/// Since when a namespace's pod is known to be gone.
pub fn gone(view: &View<'_>, entry: &NetnsEntry) -> Option<Timestamp> {
    match entry.sandbox.presence {
        PodPresence::Unlisted(_) if !is_covered(view, entry) => None,
        PodPresence::Gone(since) | PodPresence::Unlisted(since) => Some(since),
        PodPresence::Unknown
        | PodPresence::Listed
        | PodPresence::Exempt
        | PodPresence::Finished(_)
        | PodPresence::Terminating(_) => None,
    }
}

/// Whether another namespace than the host's has one of the addresses, too, as
/// [`duplicate_address`](crate::detect::duplicate_address) sees it.
fn is_in_conflict(view: &View<'_>, entry: &NetnsEntry, addresses: &[IpAddr]) -> bool {
    let mut addresses = addresses.iter();
    addresses.any(|address| !other_owners(view, entry, *address).is_empty())
}

/// The other namespaces than the host's that have one of a namespace's
/// addresses, each with when it got it.
pub(in crate::detect) fn other_owners<'a>(
    view: &View<'a>,
    entry: &NetnsEntry,
    address: IpAddr,
) -> Vec<(&'a NetnsEntry, Timestamp)> {
    let others = conflicts::other_owners(view, entry, address).into_iter();
    others
        .filter(|owner| !owner.entry.host)
        .map(|owner| (owner.entry, owner.since))
        .collect()
}

/// Whether the runtime, asked, knows the sandbox no more: it removes one only
/// after its namespace.
pub(in crate::detect) fn is_removed(model: &Model, entry: &NetnsEntry) -> bool {
    let (Some(list), Some(id)) = (answering(model), &entry.sandbox.id) else {
        return false;
    };
    list.at > entry.seen
        && had_network(model, entry, id).is_some_and(|by| list.has_removed(id, by))
        && list.in_netns(entry.id).next().is_none()
}

/// By when a sandbox had its network, unless it is being given one.
fn had_network(model: &Model, entry: &NetnsEntry, id: &str) -> Option<Timestamp> {
    let calls = || model.calls.of_container(id);
    if calls().any(AttachmentCalls::is_adding) {
        return None;
    }
    if let Some(added) = calls().filter_map(AttachmentCalls::added).max() {
        return Some(added);
    }
    let written = model.cni.of_container(id).map(|cached| cached.written);
    // Others can have come in later.
    let sandbox = &entry.sandbox;
    let own = entry.tasks.iter().filter(|task| {
        let container = task.container_id.as_deref();
        container.is_some_and(|id| sandbox.has_container(id))
    });
    let started = own.filter_map(|task| task.started);
    written.chain(started).chain([entry.seen]).min()
}
