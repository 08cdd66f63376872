//! add-failed: CNI ADD fails for a pod's sandbox, so the pod does not start.
//!
//! One finding a pod, whichever sandbox it is tried with: the kubelet makes a
//! new one each time. Once is a warning, as a plugin that starts together with
//! the node fails once or twice; from [`MANY`] times on it is critical. It is
//! over when the plugin that failed succeeds for the pod, when the pod is gone,
//! or when nothing was tried for [`SILENCE`](super::facts::calls::SILENCE).
//!
//! Whoever makes pods can make them fail as fast as they like: of pods of one
//! namespace that begin to fail of one cause, those that are past some in a
//! minute are one finding together ([`crowd`]).
//!
//! The `cause` is one of those that sandbox-create-failed has, by the same words
//! ([`diagnosis`]). Where it is an address that somebody else has, [`other_owner`] says
//! who.

use crate::{
    detect::{
        View,
        add_failed::{crowd::Crowd, other_owner::OtherOwner},
        facts::calls::failing,
        is_routable, named,
    },
    model::calls::{AttachmentCalls, CallResult, Failing, PodCalls},
};
mod advice;
mod crowd;
mod finding;
mod other_owner;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

pub(super) use crate::detect::add_failed::crowd::Crowded;
use diagnosis::{Cause, Remedy};
use event::{PodRef, clock::Timestamp, finding::Finding};

/// So many failures are more than a plugin's bad start.
const MANY: u64 = 3;
/// Addresses that are looked for in one message.
const ADDRESSES: usize = 4;

/// A pod that gets no network.
struct Failed<'a> {
    calls: &'a PodCalls,
    /// The interface that fails, and how.
    ifname: &'a str,
    failing: &'a Failing,
    /// The attachment of the last sandbox.
    attachment: Option<&'a AttachmentCalls>,
    pod: PodRef,
    cause: Cause,
    /// What the plugin, or one that it called, says more exactly.
    remedy: Option<&'static Remedy>,
    /// Who has the address that it should get.
    other_owners: Vec<OtherOwner<'a>>,
}

/// The findings of pods that are told of as one of a crowd, each by itself: for
/// who asks about one of them.
pub fn of_crowds(view: &View<'_>) -> Vec<Finding> {
    let pods = view.model.calls.restless_pods();
    let failed = pods.filter_map(|pod| Failed::of(view, pod));
    let crowded = failed.filter(|failed| view.crowded().key(failed.calls).is_some());
    crowded.map(|failed| failed.finding(view)).collect()
}

/// One finding a pod, and one for each crowd.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let failed = view
        .model
        .calls
        .restless_pods()
        .filter_map(|pod| Failed::of(view, pod));
    let told = failed
        .filter(|failed| failed.failing.times >= MANY || !view.is_early(failed.failing.since));
    let mut findings = Vec::new();
    let mut crowds: BTreeMap<_, Crowd<'_>> = BTreeMap::new();
    for failed in told {
        match view.crowded().key(failed.calls) {
            Some(key) => crowds.entry(key).or_default().add(failed),
            None => findings.push(failed.finding(view)),
        }
    }
    let crowds = crowds.into_iter();
    findings.extend(crowds.filter_map(|(key, crowd)| crowd.finding(view, key)));
    findings
}

/// Addresses whose reservations have to be asked for, each with when that came
/// to matter.
pub fn addresses(view: &View<'_>) -> Vec<(Timestamp, IpAddr)> {
    let failed = view
        .model
        .calls
        .restless_pods()
        .filter_map(|pod| Failed::of(view, pod));
    let addresses = failed.flat_map(|failed| {
        let since = failed.failing.since;
        let other_owners = failed.other_owners.into_iter();
        other_owners.map(move |other_owner| (since, other_owner.address))
    });
    addresses.collect()
}

impl<'a> Failed<'a> {
    fn of(view: &View<'a>, calls: &'a PodCalls) -> Option<Self> {
        let (ifname, failing) = failing(view, calls)?;
        let attachment = view.model.calls.get(&failing.last_id, ifname);
        let own = failing.end.plugin_failure();
        let children = || children_of(attachment).map(CallResult::plugin_failure);
        let cause = Cause::of_call(own, children());
        let mut failed = Self {
            calls,
            ifname,
            failing,
            attachment,
            pod: named(view.model, &calls.pod),
            cause,
            remedy: std::iter::once(own)
                .chain(children())
                .find_map(|failure| cause.remedy_of_plugin(failure)),
            other_owners: Vec::new(),
        };
        if failed.cause == Cause::AddressInUse {
            let addresses = failed.wanted();
            let own = &failing.last_id;
            let other_owners = addresses
                .into_iter()
                .map(|each| OtherOwner::of(view, each, own));
            failed.other_owners = other_owners.collect();
        }
        Some(failed)
    }

    /// The addresses that it should have got: the first one of the message, or
    /// else what the plugin's own IPAM gave it.
    fn wanted(&self) -> Vec<IpAddr> {
        let error = self.failing.end.error.as_ref();
        let told = error.and_then(|error| {
            let details = error.details.as_deref().unwrap_or_default();
            let both = [error.msg.as_str(), details];
            both.into_iter().flat_map(addresses_in).next()
        });
        if let Some(told) = told {
            return vec![told];
        }
        let plugins = self.attachment.into_iter().flat_map(|each| &each.plugins);
        let results = plugins.filter_map(|plugin| plugin.add.as_ref()?.success()?.result.as_ref());
        let given: BTreeSet<IpAddr> = results.flat_map(|result| result.ips.clone()).collect();
        let given = given.into_iter().filter(|address| is_routable(*address));
        given.take(ADDRESSES).collect()
    }
}

/// How plugins failed that the one that fails has called.
fn children_of(attachment: Option<&AttachmentCalls>) -> impl Iterator<Item = &CallResult> {
    let plugins = attachment.into_iter().flat_map(|each| &each.plugins);
    let children = plugins.filter(|plugin| plugin.delegated);
    children.filter_map(|plugin| plugin.add.as_ref()?.failure())
}

/// Addresses of pods in a text, in order.
fn addresses_in(text: &str) -> impl Iterator<Item = IpAddr> {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    let words = text.split(move |c: char| !is_part(c));
    // `IP:10.0.0.5` leaves `:10.0.0.5`, and a sentence ends with a full stop.
    let parsed = words.filter_map(|word| {
        let bare = word.trim_start_matches(':').trim_end_matches(['.', ':']);
        word.parse().ok().or_else(|| bare.parse().ok())
    });
    parsed.filter(|address| is_routable(*address))
}

#[cfg(test)]
mod tests;
