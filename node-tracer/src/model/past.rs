//! What a tracer that runs for months may forget.

use std::collections::HashSet;

use super::{Model, attachment::Cni, runtime::CRI};
use crate::{
    clock::Timestamp,
    event::{PodRef, StoreKind},
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
        let (mut living, mut older) = (HashSet::new(), HashSet::new());
        for entry in netns.live() {
            let id = entry.sandbox.id.as_deref();
            living.extend(id);
            living.extend(entry.sandbox.containers.iter().map(String::as_str));
            // Its own ADD was before the tracer: what was called for others of
            // its pod's name is not compared with it there.
            if id.is_none_or(|id| calls.of_container(id).next().is_none()) {
                older.extend(entry.sandbox.pod.as_ref().and_then(pod_name));
            }
        }
        let holders = holders(cni, allocations);
        calls.forget_past(now, |attachment| {
            let id = attachment.container_id.as_str();
            let name = attachment.pod.as_ref().and_then(pod_name);
            living.contains(id)
                || name.is_some_and(|name| older.contains(&name))
                || holders.contains(id)
                || runtime.of_container(id).is_some()
                || runtime.shows(id).is_some()
                || cni.of_container(id).next().is_some()
                || may_be_reserved(cni, attachment)
        });
    }
}

/// Namespace and name, if both are known.
fn pod_name(pod: &PodRef) -> Option<(&str, &str)> {
    Some((pod.namespace.as_deref()?, pod.name.as_deref()?))
}

/// Who has reserved an address, as last told.
fn holders<'a>(cni: &'a Cni, allocations: &'a Allocations) -> HashSet<&'a str> {
    let stores = cni.stores().flat_map(|listed| &listed.store.reservations);
    let listed = stores.map(|reservation| &reservation.holder);
    let all = listed.chain(allocations.holders());
    all.map(|holder| holder.container_id.as_str()).collect()
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
