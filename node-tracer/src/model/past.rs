//! What a tracer that runs for months may forget.

use std::collections::HashSet;

use super::{Model, attachment::Cni, runtime::CRI};
use crate::{
    clock::Timestamp,
    event::StoreKind,
    model::{allocation::Allocations, calls::AttachmentCalls},
};

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
        let mut living = HashSet::new();
        for entry in netns.live() {
            living.extend(entry.sandbox.id.as_deref());
            living.extend(entry.sandbox.containers.iter().map(String::as_str));
        }
        let holders = holders(cni, allocations);
        calls.forget_past(now, |attachment| {
            let id = attachment.container_id.as_str();
            living.contains(id)
                || holders.contains(id)
                || runtime.of_container(id).is_some()
                || runtime.shows(id).is_some()
                || cni.of_container(id).next().is_some()
                || may_be_reserved(cni, attachment)
        });
    }
}

/// Who has reserved an address, as last told.
fn holders<'a>(cni: &'a Cni, allocations: &'a Allocations) -> HashSet<&'a str> {
    let stores = cni.stores().flat_map(|listed| &listed.store.reservations);
    let listed = stores.map(|reservation| &reservation.holder);
    let all = listed.chain(allocations.holders());
    all.map(|holder| holder.container_id.as_str()).collect()
}

/// Whether a list from the API server, which tells of all nodes, is of before
/// the attachment was taken back: what it has left would seem another node's.
fn may_be_reserved(cni: &Cni, attachment: &AttachmentCalls) -> bool {
    let in_api = |kind| matches!(kind, StoreKind::Calico | StoreKind::Whereabouts);
    let mut stores = cni.stores();
    stores.any(|listed| in_api(listed.store.kind) && listed.at <= attachment.last)
}

#[cfg(test)]
mod tests;
