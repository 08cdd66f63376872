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
//!    (later than the pod's sandbox). Or the pod should long be gone;
//! 4. this is no ordinary deletion: the pod is gone for [`GRACE`], or a task in
//!    the namespace is stuck and so ends the deletion's hopes, or the pod is
//!    gone and another namespace has the address already, or the runtime has
//!    removed the sandbox.
//!
//! Where no list tells of the pod, it is a ghost all the same if a task in it
//! is stuck and its address has been given to another: no live pod's would be.
//!
//! What it leads to depends on the address's reservation (see [`Phase`]) and on
//! who gives the addresses out: some take it back under the ghost, which makes
//! a conflict of it, others wait for a CNI DEL that does not come, which makes
//! it a leak (see [`ipam`]).
//!
//! [`Phase`]: crate::finding::Phase

mod advice;
mod claims;
mod doubts;
mod fate;
mod ipam;
mod telling;

use std::{net::IpAddr, time::Duration};

use super::{View, duplicate_address, is_routable, stuck_in};
use crate::{
    clock::Timestamp,
    event::Task,
    finding::Finding,
    model::{Model, netns::NetnsEntry, pods::Standing, runtime::CRI, task::Blocked},
};

/// What an ordinary deletion may take.
const GRACE: Duration = Duration::from_secs(30);
/// A list that lacks so many sandboxes' pods may be the wrong list.
const MANY: usize = 3;

/// A namespace that is a ghost, and why.
#[derive(Debug)]
pub(crate) struct Ghost<'a> {
    /// The namespace.
    pub(crate) entry: &'a NetnsEntry,
    /// Since when: the pod is gone, or should be.
    pub(crate) since: Timestamp,
    /// The addresses it holds.
    pub(crate) addresses: Vec<IpAddr>,
    /// Stuck tasks in it.
    pub(crate) stuck: Vec<&'a Blocked>,
}

/// One finding a ghost.
pub(crate) fn detect(view: &View<'_>) -> Vec<Finding> {
    let ghosts = candidates(view.model).filter_map(|entry| verdict(view, entry));
    ghosts.map(|ghost| telling::finding(view, &ghost)).collect()
}

/// Namespaces that may become ghosts as time goes on.
pub(crate) fn candidates(model: &Model) -> impl Iterator<Item = &NetnsEntry> {
    model.netns.live().filter(|entry| {
        use Standing::{Exempt, Gone, Listed, Terminating, Unknown, Unlisted};
        match entry.sandbox.standing {
            Gone(_) | Unlisted(_) | Terminating(_) => !entry.host && !addresses(entry).is_empty(),
            Unknown => {
                let mut stuck = model.blocked.in_netns(entry.id);
                entry.sandbox.uid().is_some() && !entry.host && stuck.next().is_some()
            }
            Listed | Exempt => false,
        }
    })
}

/// Whether a namespace is a ghost.
pub(crate) fn verdict<'a>(view: &View<'a>, entry: &'a NetnsEntry) -> Option<Ghost<'a>> {
    if entry.host || entry.dying.is_some() || entry.sandbox.uid().is_none() {
        return None;
    }
    let addresses = addresses(entry);
    let stuck = stuck_in(view.model, entry);
    let looked_at = !stuck.is_empty() || entry.held_at.is_some();
    if addresses.is_empty() || !looked_at {
        return None;
    }
    let since = match entry.sandbox.standing {
        Standing::Terminating(by) => {
            (!stuck.is_empty() && view.passed(by.plus(GRACE))).then_some(by)?
        }
        _ if is_untold(view, entry) => {
            let since = taken_since(view, entry, &addresses)?;
            (!stuck.is_empty()).then_some(since)?
        }
        _ => {
            let since = gone(view, entry)?;
            let hopeless = !stuck.is_empty()
                || is_in_conflict(view, entry, &addresses)
                || is_removed(view.model, entry);
            (hopeless || view.passed(since.plus(GRACE))).then_some(since)?
        }
    };
    let inner = duplicate_address::is_inner(view.model, entry);
    (!inner).then_some(Ghost {
        entry,
        since,
        addresses,
        stuck,
    })
}

/// Whether no list that is believed tells of a namespace's pod.
pub(super) fn is_untold(view: &View<'_>, entry: &NetnsEntry) -> bool {
    match entry.sandbox.standing {
        Standing::Unknown => true,
        Standing::Unlisted(_) => view.list_is_doubtful(),
        _ => false,
    }
}

/// Namespaces whose pod is gone and of which it cannot be told yet whether
/// their deletion is still under way.
pub(crate) fn undecided<'a>(view: &View<'a>) -> Vec<&'a NetnsEntry> {
    let open = candidates(view.model).filter(|entry| {
        let is_gone = gone(view, entry).is_some();
        is_gone && !duplicate_address::is_inner(view.model, entry) && entry.held_at.is_some()
    });
    open.filter(|entry| verdict(view, entry).is_none())
        .collect()
}

/// Since when a namespace's pod is known to be gone.
pub(crate) fn gone(view: &View<'_>, entry: &NetnsEntry) -> Option<Timestamp> {
    match entry.sandbox.standing {
        Standing::Unlisted(_) if view.list_is_doubtful() => None,
        Standing::Gone(since) | Standing::Unlisted(since) => Some(since),
        Standing::Unknown | Standing::Listed | Standing::Exempt | Standing::Terminating(_) => None,
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
    if view.model.netns.with_address(address).nth(1).is_none() {
        return Vec::new();
    }
    let owners = duplicate_address::owners(view, address);
    let is_own = |owner: &NetnsEntry| owner.serial == entry.serial;
    if !owners.iter().any(|(owner, _)| is_own(owner)) {
        return Vec::new();
    }
    let others = owners.into_iter();
    others
        .filter(|(owner, _)| !owner.host && !is_own(owner))
        .map(|(owner, held)| (owner, super::held_since(view.model, owner, held)))
        .collect()
}

/// Since when one of the addresses of a pod of which no list tells has been
/// another's: another pod's namespace has it, too, or it is reserved for the
/// sandbox of another namespace.
fn taken_since(view: &View<'_>, entry: &NetnsEntry, addresses: &[IpAddr]) -> Option<Timestamp> {
    let uid = entry.sandbox.uid()?;
    let of_other_pod = |(rival, _): &(&NetnsEntry, Timestamp)| {
        rival.sandbox.uid().is_some_and(|other| other != uid)
    };
    let reserved = |address: &IpAddr| {
        let answer = view.model.allocations.get(*address)?.answer.as_ref()?;
        let id = &answer.holder.as_ref()?.container_id;
        let other = !entry.sandbox.has_container(id) && is_elsewhere(view.model, id);
        other.then_some(answer.since)
    };
    let rivals = addresses
        .iter()
        .flat_map(|address| rivals(view, entry, *address));
    let given = rivals.filter(of_other_pod).map(|(_, since)| since);
    given.chain(addresses.iter().filter_map(reserved)).min()
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

/// Whether the list may be one namespace's or another cluster's: it lacks most
/// of the pods on the node, and nothing shows that it is whole. Pods that were
/// on an earlier list need no such proof.
pub(super) fn list_is_doubtful(view: &View<'_>) -> bool {
    let Some(list) = view.model.pods.list() else {
        return true;
    };
    let of = |wanted: fn(&Standing) -> bool| {
        let live = view.model.netns.live();
        live.filter(move |entry| wanted(&entry.sandbox.standing))
    };
    // What the runtime does not know either is no sign of a wrong list.
    let lacking = of(|standing| matches!(standing, Standing::Unlisted(_)))
        .filter(|entry| !is_removed(view.model, entry))
        .count();
    let listed =
        of(|standing| matches!(standing, Standing::Listed | Standing::Terminating(_))).count();
    let partial = list.namespaces < 2 && !list.vouched;
    lacking >= MANY
        && lacking > listed
        && (partial || !view.model.pods.knows_node(&view.settings.node))
}

/// A task in a namespace that is in uninterruptible sleep, if not for long
/// enough to be called stuck.
fn asleep(entry: &NetnsEntry) -> Option<&Task> {
    let mut tasks = entry.tasks.iter();
    tasks.find(|task| task.is_in_d())
}

/// Addresses that a pod has as its own.
pub(crate) fn addresses(entry: &NetnsEntry) -> Vec<IpAddr> {
    let held = entry.addresses.iter().map(|held| &held.address);
    let own = held.filter(|address| {
        let kind = address.link_kind.as_deref();
        address.ifname != "lo" && !matches!(kind, Some("bridge" | "dummy" | "wireguard"))
    });
    own.map(|address| address.address)
        .filter(|address| is_routable(*address))
        .collect()
}

fn is_elsewhere(model: &Model, container: &str) -> bool {
    model
        .netns
        .live()
        .any(|entry| entry.sandbox.has_container(container))
}

#[cfg(test)]
mod tests;
