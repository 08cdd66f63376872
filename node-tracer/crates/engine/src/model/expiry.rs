//! What a tracer that runs for months may forget.

use std::collections::{HashMap, HashSet};

use super::{Model, attachment::Cni, runtime::CRI};
use crate::model::{allocation::Allocations, calls::AttachmentCalls};
use event::{PodRef, StoreKind, clock::Timestamp};

impl Model {
    /// Forgets what was called for attachments that nobody knows of any more,
    /// if it may. Without a whole list of sandboxes that would not be known.
    pub(super) fn forget_past(&mut self, now: Timestamp) {
        if !self.forgets || !self.calls.is_past_due(now) {
            return;
        }
        let listed = self.runtime.cri();
        if self.failure(CRI).is_some() || listed.is_none_or(|list| list.partial.is_some()) {
            return;
        }
        let Self {
            netns,
            runtime,
            cni,
            allocations,
            calls,
            ..
        } = self;
        let (mut living, mut older) = (HashSet::new(), HashSet::new());
        for entry in netns.live() {
            let id = entry.sandbox.id.as_deref();
            living.extend(id);
            living.extend(entry.sandbox.containers.iter().map(String::as_str));
            // Its own ADD was before the tracer: what was called for others of
            // its pod's name is not compared with it there.
            if id.is_none_or(|id| calls.of_container(id).next().is_none()) {
                older.extend(entry.sandbox.pod.as_ref().and_then(PodRef::full_name));
            }
        }
        let (listed, answered) = (holders(cni), answered(allocations));
        calls.forget_past(now, |attachment| {
            let id = attachment.container_id.as_str();
            let name = attachment.pod.as_ref().and_then(PodRef::full_name);
            living.contains(id)
                || name.is_some_and(|name| older.contains(&name))
                || listed.contains(id)
                || answered.get(id).is_some_and(|at| *at > attachment.last)
                || runtime.of_container(id).is_some()
                || runtime.shows(id).is_some()
                || cni.of_container(id).next().is_some()
                || may_be_reserved(cni, attachment)
        });
    }
}

/// Who has reserved an address, by the lists of the stores.
fn holders(cni: &Cni) -> HashSet<&str> {
    let all = cni.stores().flat_map(|listed| &listed.store.reservations);
    all.map(|each| each.holder.container_id.as_str()).collect()
}

/// The same by what was asked for one address, and when that was last: an
/// address that nothing asks for any more is not told to be free.
fn answered(allocations: &Allocations) -> HashMap<&str, Timestamp> {
    let mut answered = HashMap::new();
    for (holder, at) in allocations.holders() {
        let last = answered.entry(holder.container_id.as_str()).or_insert(at);
        *last = at.max(*last);
    }
    answered
}

/// Whether Whereabouts, whose pools tell of all nodes, has not been listed since
/// the attachment was taken back: what it has left would seem another node's.
fn may_be_reserved(cni: &Cni, attachment: &AttachmentCalls) -> bool {
    let whereabouts = StoreKind::Whereabouts;
    let mut plugins = attachment.plugins.iter();
    let used = plugins.any(|each| {
        let names = [Some(each.plugin.as_str()), each.ipam.as_deref()];
        names.contains(&Some(whereabouts.as_str()))
    });
    let mut stores = cni.stores();
    let listed = stores.any(|it| it.store.kind == whereabouts && it.at > attachment.last);
    used && !listed
}

#[cfg(test)]
mod tests;
