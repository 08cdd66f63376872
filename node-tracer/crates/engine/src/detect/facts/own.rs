//! Which addresses are a pod's own.
//!
//! What the API server, the runtime, libcni, a CNI ADD or a store of
//! reservations calls a pod's address is one, wherever the kernel has it: on a
//! dummy or a bridge (KubeVirt), on a device that is called `lo`, or nowhere
//! (gVisor takes it off the device and answers for it itself). Of what nobody
//! names, those on devices that lead out of the namespace are.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use crate::{
    detect::{View, facts::links, heard, is_routable},
    model::{Model, netns::NetnsEntry, sandbox::PodEvidence},
};
use event::{Address, Device, clock::Timestamp};

/// What Kubernetes' runtimes call a pod's own device.
const DEFAULT: &str = "eth0";

/// Kinds of devices that nothing leads out of by themselves.
const INNER_KINDS: [&str; 15] = [
    "bridge",
    "dummy",
    "tun",
    "wireguard",
    "ipip",
    "ip6tnl",
    "sit",
    "gre",
    "ip6gre",
    "vti",
    "vti6",
    "xfrm",
    "vxlan",
    "geneve",
    "nlmon",
];

/// Whether nothing leads out of a device of a kind, whatever else there is.
pub(in crate::detect) fn is_closed(kind: &str) -> bool {
    kind != "bridge" && INNER_KINDS.contains(&kind)
}

/// Addresses of one namespace that a finding lists.
pub const MAX_LISTED: usize = 64;

/// Addresses that a pod's namespace has as its own: those of the kernel, and
/// those that it is called by and the kernel does not show. Of very many, those
/// that something calls the pod's come first, and the rest is left out.
pub fn addresses(view: &View<'_>, entry: &NetnsEntry) -> Vec<IpAddr> {
    let mut own: Vec<IpAddr> = Vec::new();
    let model = view.model;
    let uid = entry.sandbox.uid();
    let pod = uid.and_then(|uid| model.pods.pod(uid));
    let in_api = pod.filter(|pod| !pod.host_network);
    let in_api = in_api.into_iter().flat_map(|pod| pod.ips.iter().copied());
    let names: BTreeSet<IpAddr> = names(model, entry).into_iter().chain(in_api).collect();
    let has_id = entry.sandbox.id.is_some() || !entry.sandbox.containers.is_empty();
    let is_named = |address: IpAddr| {
        names.contains(&address) || (has_id && is_reserved(model, entry, address))
    };
    let mut ways_out: HashMap<&str, bool> = HashMap::new();
    for held in entry.addresses.iter() {
        let Address {
            address,
            ifname,
            link_kind,
            ..
        } = &held.address;
        if own.len() > MAX_LISTED {
            break;
        }
        let kind = link_kind.as_deref();
        let is_loopback = ifname == "lo" && kind.is_none();
        let is_inner = is_loopback || kind.is_some_and(|kind| INNER_KINDS.contains(&kind));
        let mut leads_out = || {
            let way = ways_out.entry(ifname);
            *way.or_insert_with(|| links::leads_out(view, entry, ifname))
        };
        let is_own = !is_inner || is_named(*address) || (kind == Some("bridge") && leads_out());
        if is_own && is_routable(*address) && !own.contains(address) {
            own.push(*address);
        }
    }
    if own.len() > MAX_LISTED {
        let is_its = |address: &IpAddr| is_routable(*address) && model.netns.has(entry, *address);
        let named: Vec<IpAddr> = names.into_iter().filter(is_its).take(MAX_LISTED).collect();
        own.retain(|address| !named.contains(address));
        own.splice(0..0, named);
        own.truncate(MAX_LISTED);
    }
    for address in unseen(view, entry) {
        if is_routable(address) && !own.contains(&address) {
            own.push(address);
        }
    }
    own
}

/// Addresses that the pod is called by and that no device of its namespace has,
/// while the device that got them is there and no CNI DEL has begun: whatever
/// answers for them is in the namespace.
pub(in crate::detect) fn unseen(view: &View<'_>, entry: &NetnsEntry) -> Vec<IpAddr> {
    let sandbox = &entry.sandbox;
    // A DEL may be among the records that were lost.
    let lost = view.model.losses.last;
    let is_left = sandbox.del.is_some()
        || sandbox.deleting.is_some()
        || lost.is_some_and(|lost| lost >= entry.seen);
    if entry.host || is_left || sandbox.pod.is_none() {
        return Vec::new();
    }
    if !hides_address(entry) {
        return Vec::new();
    }
    // The API server names the newest sandbox's, by no ID, which may be another.
    if !sandbox.named && sandbox.add.is_none() {
        return Vec::new();
    }
    let mut named = called_by_sandbox(view.model, entry);
    named.sort_unstable();
    named.dedup();
    let netns = &view.model.netns;
    named.retain(|address| is_routable(*address) && !netns.has(entry, *address));
    named
}

/// Whether a pod's own device is there, and shows no address, nor does the bridge
/// that it may be a port of: what runs in the namespace may answer for one itself.
pub(in crate::detect) fn hides_address(entry: &NetnsEntry) -> bool {
    let Some(wiring) = &entry.wiring else {
        return false;
    };
    let mut devices = wiring.devices.iter();
    let Some(device) = devices.find(|device| device.name == DEFAULT) else {
        return false;
    };
    let master = device.master.and_then(|index| wiring.device(index));
    let shows = |device: &Device| {
        let mut held = entry.addresses.iter().map(|held| &held.address);
        held.any(|held| held.ifname == device.name && is_routable(held.address))
    };
    !shows(device) && !master.is_some_and(shows)
}

/// The namespaces that have addresses which the kernel does not show, by
/// address.
pub(in crate::detect) fn all_unseen<'a>(view: &View<'a>) -> BTreeMap<IpAddr, Vec<&'a NetnsEntry>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for entry in view.model.netns.live() {
        for address in unseen(view, entry) {
            all.entry(address).or_default().push(entry);
        }
    }
    all
}

/// Whether anything but the kernel says that an address is a namespace's pod's.
pub fn is_named(model: &Model, entry: &NetnsEntry, address: IpAddr) -> bool {
    names(model, entry).contains(&address)
        || is_reserved(model, entry, address)
        || is_in_api(model, entry, address)
}

/// Whether the API server has an address as the pod's.
fn is_in_api(model: &Model, entry: &NetnsEntry, address: IpAddr) -> bool {
    let pod = entry.sandbox.uid().and_then(|uid| model.pods.pod(uid));
    pod.is_some_and(|pod| !pod.host_network && pod.ips.contains(&address))
}

/// Addresses that the runtime, libcni, a CNI ADD and stores have for the
/// namespace's own sandbox; of stores, those that it really has.
fn called_by_sandbox(model: &Model, entry: &NetnsEntry) -> Vec<IpAddr> {
    let mut named = names(model, entry);
    let held = entry.addresses.iter().map(|held| held.address.address);
    named.extend(held.filter(|address| is_reserved(model, entry, *address)));
    named
}

/// Addresses that the runtime, libcni and a CNI ADD have for the namespace's own
/// sandbox.
fn names(model: &Model, entry: &NetnsEntry) -> Vec<IpAddr> {
    let mut named = Vec::new();
    let sandbox = &entry.sandbox;
    let ids = sandbox.id.iter().chain(&sandbox.containers);
    for id in ids {
        let listed = model
            .runtime
            .lists()
            .filter_map(|list| list.of_container(id));
        named.extend(listed.flat_map(|listed| listed.ips.iter().copied()));
        named.extend(
            model
                .cni
                .of_container(id)
                .flat_map(|each| each.ips.iter().copied()),
        );
        named.extend(model.calls.of_container(id).flat_map(|each| each.ips()));
    }
    named
}

/// Whether a store has an address for the namespace's own sandbox.
pub(in crate::detect) fn is_reserved(model: &Model, entry: &NetnsEntry, address: IpAddr) -> bool {
    let answer = model
        .allocations
        .get(address)
        .and_then(|known| known.answer.as_ref());
    let answered = answer.and_then(|answer| answer.holder.as_ref());
    let listed = || {
        model
            .cni
            .reservations(address)
            .map(|(_, listed)| &listed.holder)
    };
    let mut holders = answered.into_iter().chain(listed());
    holders.any(|holder| entry.sandbox.has_container(&holder.container_id))
}

/// Whether an address is the one that its pod is reached by in the pod network,
/// in which each is unique: the API server or the runtime have it for the pod;
/// or CNI gave it to the device that they ask for; or, where nobody names any, that
/// device has it.
pub(in crate::detect) fn is_primary(
    view: &View<'_>,
    entry: &NetnsEntry,
    address: IpAddr,
    ifname: Option<&str>,
) -> bool {
    let model = view.model;
    let sandbox = &entry.sandbox;
    if entry.host || sandbox.pod.is_none() {
        return false;
    }
    let runtime = |id: &str| {
        let listed = heard(model).and_then(|list| list.of_container(id));
        listed.map_or(&[][..], |listed| listed.ips.as_slice())
    };
    let listed = sandbox.id.as_deref().map_or(&[][..], runtime);
    if listed.contains(&address) || is_in_api(model, entry, address) {
        return true;
    }
    let is_default = |name: &str| name == DEFAULT;
    let id = sandbox.id.as_deref().unwrap_or_default();
    let cached = model.cni.of_container(id);
    let mut cached = cached.filter(|each| is_default(&each.ifname));
    let called = model.calls.of_container(id);
    let mut called = called.filter(|each| is_default(&each.ifname));
    if cached.any(|each| each.ips.contains(&address))
        || called.any(|each| each.ips().contains(&address))
    {
        return true;
    }
    let is_told = matches!(
        sandbox.known,
        Some(PodEvidence::Cni { .. } | PodEvidence::Cache { .. } | PodEvidence::Runtime { .. })
    );
    is_told && ifname.is_some_and(|name| is_default_devices(model, entry, address, name))
}

/// Whether an address is one of the device that runtimes ask for, and nobody calls the
/// pod by others alone.
pub(in crate::detect) fn is_default_devices(
    model: &Model,
    entry: &NetnsEntry,
    address: IpAddr,
    ifname: &str,
) -> bool {
    let is_called = || {
        let called = called_by_sandbox(model, entry);
        called.is_empty() || called.contains(&address)
    };
    ifname == DEFAULT && is_called()
}

/// Since when a namespace has an address that the kernel does not show: since
/// something called it by that.
pub(in crate::detect) fn named_since(
    model: &Model,
    entry: &NetnsEntry,
    address: IpAddr,
) -> Timestamp {
    let id = entry.sandbox.id.as_deref();
    let cached = id.into_iter().flat_map(|id| model.cni.of_container(id));
    let cached = cached.filter(|each| each.ips.contains(&address));
    let cached = cached.map(|each| each.written).min();
    let listed = id.and_then(|id| model.runtime.of_container(id));
    let listed = listed.and_then(|(_, sandbox)| sandbox.created);
    cached.or(listed).unwrap_or(entry.seen)
}
