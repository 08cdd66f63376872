//! A sandbox that lives, and may be newer than one that a DEL is for.

use std::net::IpAddr;

use crate::{
    detect::{View, facts::own, is_routable},
    model::{calls::AttachmentCalls, netns::NetnsEntry},
};
use event::{PodRef, clock::Timestamp};

/// A living sandbox whose CNI ADD is known.
pub(super) struct Newer<'a> {
    pub(super) entry: &'a NetnsEntry,
    pub(super) id: &'a str,
    pub(super) pod: PodRef,
    /// When its ADD started, if that was seen; else when it had succeeded.
    pub(super) added: Timestamp,
    /// Who says so: `cni`, or `libcni`, whose cache has the time of its end.
    pub(super) source: &'static str,
    /// The addresses that it was given.
    pub(super) ips: Vec<IpAddr>,
}

impl<'a> Newer<'a> {
    /// `None` for what is no sandbox, is going, or is not set up.
    pub(super) fn of(view: &View<'a>, entry: &'a NetnsEntry) -> Option<Self> {
        let model = view.model;
        let sandbox = &entry.sandbox;
        let leaving = sandbox.del.is_some() || sandbox.deleting.is_some();
        if entry.host || leaving {
            return None;
        }
        let id = sandbox.id.as_deref()?;
        let pod = sandbox.pod.clone()?;
        pod.namespace.as_ref().and(pod.name.as_ref())?;
        let calls: Vec<&AttachmentCalls> = model.calls.of_container(id).collect();
        if calls
            .iter()
            .any(|calls| calls.has_del() || calls.netns_gone.is_some())
        {
            return None;
        }
        let seen = calls.iter().filter(|calls| calls.added().is_some());
        let started = seen.clone().flat_map(|calls| calls.chain());
        let started = started.filter_map(|plugin| Some(plugin.add.as_ref()?.started));
        let cached = model.cni.of_container(id).map(|cached| cached.written);
        let started = started.min().map(|at| (at, "cni"));
        let (added, source) = started.or_else(|| cached.min().map(|at| (at, "libcni")))?;
        // The loopback plugin answers with its own.
        let given = seen.flat_map(|calls| calls.ips());
        let mut ips: Vec<IpAddr> = given.filter(|ip| is_routable(*ip)).collect();
        ips.retain(|address| is_routable(*address));
        let cached = model.cni.of_container(id).flat_map(|cached| &cached.ips);
        for address in own::addresses(view, entry).iter().chain(cached) {
            if is_routable(*address) && !ips.contains(address) {
                ips.push(*address);
            }
        }
        Some(Self {
            entry,
            id,
            pod,
            added,
            source,
            ips,
        })
    }
}
