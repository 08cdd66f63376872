//! Whose an address was: attachments of sandboxes that are gone, by libcni's cache
//! and by the calls that a trace has seen; and whose is being worked on.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    time::Duration,
};

use super::Owner;
use crate::{
    detect::{View, answering, facts::living::is_left_over},
    model::{
        Model,
        calls::AttachmentCalls,
        netns::{KnownForwarding, NetnsEntry},
    },
};
use event::{Attachment, clock::Timestamp};

/// A trace reads what has changed so much later, at most.
const LAG: Duration = Duration::from_secs(10);
/// Agents take things away some time after the DEL has ended.
const AFTER_DEL: Duration = Duration::from_secs(60);

pub(super) struct Owners<'a> {
    known: &'a KnownForwarding,
    /// Those in libcni's cache, by address.
    cached: HashMap<IpAddr, &'a Attachment>,
    /// When the cache was read, or the tables were for the first time.
    listed: Timestamp,
    /// Those whose ADD was seen, and since when nobody has to take their entries
    /// away any more.
    called: HashMap<IpAddr, (Over, &'a AttachmentCalls)>,
    /// Addresses that a CNI call is under way for, and the namespaces.
    busy: HashSet<IpAddr>,
    busy_in: HashSet<u32>,
}

/// How an attachment has ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Over {
    /// Without a DEL that succeeded, when its namespace went.
    Forgotten(Timestamp),
    /// By one, long enough ago; its namespace went before.
    Deleted(Timestamp),
}

impl<'a> Owners<'a> {
    pub(super) fn new(view: &View<'a>, known: &'a KnownForwarding) -> Self {
        let model = view.model;
        let is_taken_back = |id: &str| {
            let mut calls = model.calls.attachments().filter(|it| it.container_id == id);
            calls.any(|it| it.deleted().is_some() || it.is_deleting())
        };
        let cached = model.cni.attachments();
        let cached = cached.filter(|it| is_left_over(view, it) && !is_taken_back(&it.container_id));
        let cached = cached.flat_map(|it| it.ips.iter().map(move |ip| (*ip, it)));
        let mut called: HashMap<IpAddr, (Over, &AttachmentCalls)> = HashMap::new();
        let (mut busy, mut busy_in) = (HashSet::new(), HashSet::new());
        for calls in model.calls.attachments() {
            if calls.is_adding() || calls.is_deleting() {
                busy.extend(calls.ips());
                busy.extend(calls.held.iter().copied());
                busy_in.extend(calls.netns.map(|netns| netns.inode));
                continue;
            }
            let Some(over) = over(view, calls) else {
                continue;
            };
            for ip in calls.ips() {
                let one = called.entry(ip).or_insert((over, calls));
                if one.1.last < calls.last {
                    *one = (over, calls);
                }
            }
        }
        let listed = model.cni.attachments_at();
        Self {
            known,
            cached: cached.collect(),
            listed: listed.unwrap_or(known.first).max(known.first),
            called,
            busy,
            busy_in,
        }
    }

    /// Who had an address, if an entry for it that is known since then is of his time.
    pub(super) fn of(&self, address: IpAddr, since: Timestamp) -> Option<Owner<'a>> {
        let cached = self.cached.get(&address).copied();
        let cached = cached.filter(|_| !self.known.followed || since <= self.listed);
        let called = || {
            let (over, calls) = *self.called.get(&address)?;
            let is_its = match over {
                Over::Forgotten(gone) => since <= gone.plus(LAG),
                // Its own DEL takes away what its ADD has entered, and no more.
                Over::Deleted(gone) => {
                    calls.first <= since && self.known.first < since && since <= gone.plus(LAG)
                }
            };
            is_its.then_some(Owner::Called(calls))
        };
        cached.map(Owner::LeftOver).or_else(called)
    }

    /// The same if his device had this MAC address.
    pub(super) fn of_mac(&self, address: IpAddr, mac: &str, since: Timestamp) -> Option<Owner<'a>> {
        let owner = self.of(address, since)?;
        let is_its = match owner {
            Owner::LeftOver(attachment) => is_mac(attachment.mac.as_deref(), mac),
            Owner::Called(calls) => calls.macs().any(|its| is_mac(Some(its), mac)),
            _ => false,
        };
        is_its.then_some(owner)
    }

    pub(super) fn is_busy(&self, address: IpAddr) -> bool {
        self.busy.contains(&address)
    }

    pub(super) fn is_busy_in(&self, entry: &NetnsEntry) -> bool {
        self.busy_in.contains(&entry.id.inode)
    }
}

/// Whether an address was given to another sandbox than this one, after a time if that
/// is known: by CNI, CRI or the list of this node's pods.
pub(super) fn is_given_later(
    view: &View<'_>,
    address: IpAddr,
    holder: &NetnsEntry,
    time: Option<Timestamp>,
) -> bool {
    let (model, node) = (view.model, view.settings.node.as_str());
    let is_later = |given| time.is_none_or(|time| given > time);
    let (own, uid) = (holder.sandbox.id.as_deref(), holder.sandbox.uid());
    let mut cached = model.cni.attachments().filter(|it| is_later(it.written));
    let mut called = model.calls.attachments();
    let lists = model.runtime.lists();
    let mut listed = lists.flat_map(|list| list.sandboxes());
    let pods = model
        .pods
        .list()
        .map(|list| list.pods())
        .unwrap_or_default();
    cached.any(|it| Some(it.container_id.as_str()) != own && it.ips.contains(&address))
        || called.any(|it| {
            let is_other = Some(it.container_id.as_str()) != own;
            is_other && it.added().is_some_and(is_later) && it.ips().contains(&address)
        })
        || listed.any(|it| {
            let is_other = Some(it.id.as_str()) != own && !it.host_network;
            is_other && it.created.is_none_or(is_later) && it.ips.contains(&address)
        })
        || pods.iter().any(|pod| {
            let is_here = pod.node.as_deref().is_none_or(|it| it == node);
            let runs = pod.phase.as_deref() == Some("Running") && !pod.host_network;
            let is_other = uid.is_none_or(|uid| !pod.uids.iter().any(|it| it == uid));
            is_here && runs && is_other && pod.ips.contains(&address)
        })
}

fn is_mac(its: Option<&str>, mac: &str) -> bool {
    its.is_some_and(|its| its.eq_ignore_ascii_case(mac))
}

/// Whether an attachment has certainly ended.
fn over(view: &View<'_>, calls: &AttachmentCalls) -> Option<Over> {
    calls.added()?;
    let gone = calls.netns_gone?;
    match calls.deleted() {
        Some(deleted) => view
            .passed(deleted.max(gone).plus(AFTER_DEL))
            .then_some(Over::Deleted(gone)),
        None => is_disowned(view.model, calls, gone).then_some(Over::Forgotten(gone)),
    }
}

/// Whether the runtime, asked since, does not have the sandbox: nobody will call
/// DEL.
fn is_disowned(model: &Model, calls: &AttachmentCalls, gone: Timestamp) -> bool {
    let list = answering(model).filter(|list| list.at > gone);
    list.is_some_and(|list| list.of_container(&calls.container_id).is_none())
}
