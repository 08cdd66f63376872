//! Namespaces that a pod made for itself: they are no sandboxes.

use crate::{
    detect::{View, facts::common::is_routable},
    model::{netns::NetnsEntry, sandbox::PodEvidence},
};
use std::net::IpAddr;

/// Whether a namespace is one that a pod made for itself; see [`inner`].
pub fn is_inner(view: &View<'_>, entry: &NetnsEntry) -> bool {
    let known = view.inner.borrow().get(&entry.serial).copied();
    known.unwrap_or_else(|| {
        let is_inner = inner(view, entry);
        view.inner.borrow_mut().insert(entry.serial, is_inner);
        is_inner
    })
}

/// A namespace that a pod made for itself: another user than root has made its
/// user namespace, and nobody has plugged it in; or the API server has other addresses
/// for the pod; or the runtime or CNI have another namespace for it than this
/// one, which only a cgroup ties to the pod; or it is cabled to another one of
/// the pod, where a sandbox is cabled to the host. What an ADD, a runtime's
/// list or libcni names is a sandbox, if not the pod's newest, and so is what
/// has an address of the pod's own or of another of its sandboxes.
fn inner(view: &View<'_>, entry: &NetnsEntry) -> bool {
    let model = view.model;
    let own = entry.sandbox.add.is_some() || entry.sandbox.named;
    let Some(uid) = entry.sandbox.uid().filter(|_| !own) else {
        return false;
    };
    if entry.is_users() && !view.is_plugged_in(entry) {
        return true;
    }
    let ips = model
        .pods
        .pod(uid)
        .map(|pod| pod.ips.as_slice())
        .unwrap_or_default();
    let has = |entry: &NetnsEntry, address: IpAddr| model.netns.has(entry, address);
    let others = || {
        let its = view.of_pod(uid).iter();
        its.filter(|other| other.serial != entry.serial)
    };
    let is_sandbox = |other: &NetnsEntry| other.sandbox.add.is_some() || other.sandbox.named;
    // Of two that have very many addresses, the one with fewer is gone through.
    let shares = |other: &NetnsEntry| {
        let (few, many) = match other.addresses.len() < entry.addresses.len() {
            true => (other, entry),
            false => (entry, other),
        };
        let mut held = few.addresses.iter().map(|held| held.address.address);
        held.any(|address| is_routable(address) && has(many, address))
    };
    let of_sibling = || others().any(|other| is_sandbox(other) && shares(other));
    let is_own = |address: &IpAddr| is_routable(*address) && has(entry, *address);
    let of_runtime = || {
        let mut lists = model.runtime.lists();
        lists.any(|list| {
            list.of_pod(uid)
                .any(|sandbox| sandbox.ips.iter().any(is_own))
        })
    };
    let of_cni = || {
        let mut its = model.cni.of_pod(uid);
        its.any(|each| each.ips.iter().any(is_own))
    };
    if ips.iter().any(is_own) || of_sibling() || of_runtime() || of_cni() {
        return false;
    }
    if let Some(leads_out) = leads_out(view, entry, uid) {
        return !leads_out;
    }
    // The API server knows the addresses of the pod's newest sandbox alone: of
    // another one's namespace they say nothing.
    let is_older = || {
        let id = entry.sandbox.id.as_deref();
        let differs = |other: &str| id.is_some_and(|id| id != other);
        let has_any = |other: &NetnsEntry| ips.iter().any(|ip| has(other, *ip));
        others().any(|other| other.sandbox.id.as_deref().is_some_and(differs) && has_any(other))
    };
    if !ips.is_empty() && !is_older() {
        return true;
    }
    let by_cgroup = matches!(entry.sandbox.known, Some(PodEvidence::Cgroup { .. }));
    others().any(|other| {
        let earlier = other.sandbox.add.is_some_and(|add| add < entry.seen);
        let told = other.sandbox.id.is_some() || other.sandbox.add.is_some();
        (entry.created && earlier) || (by_cgroup && told)
    })
}

/// Whether anything leads out of a namespace to where no other one of its pod
/// is, as a sandbox's device does; `None` if its devices are not known, or if it
/// has no such device and no other namespace of the pod is known.
fn leads_out(view: &View<'_>, entry: &NetnsEntry, uid: &str) -> Option<bool> {
    let others = || {
        let its = view.of_pod(uid).iter();
        its.filter(|other| other.serial != entry.serial)
    };
    let wiring = entry.wiring.as_ref()?;
    let has = |other: &NetnsEntry, index: u32, far: Option<u32>| {
        let wiring = other.wiring.as_ref();
        let device = wiring.and_then(|wiring| wiring.device(index));
        device.is_some_and(|device| match far {
            Some(far) => device.link == Some(far),
            None => device.can_be_parent(),
        })
    };
    let mut is_cabled = false;
    for device in &wiring.devices {
        if device.hardware.is_some() {
            return Some(true);
        }
        let Some(link) = device.link.filter(|_| device.link_nsid.is_some()) else {
            continue;
        };
        // The other end of a veth names this one; a parent names nobody.
        let far = device.is_veth().then_some(device.index);
        let mut hosts = view.model.netns.live().filter(|other| other.host);
        let in_pod = others().any(|other| has(other, link, far));
        let on_host = hosts.any(|host| has(host, link, far));
        match (in_pod, on_host) {
            (true, false) => is_cabled = true,
            (false, true) => return Some(true),
            (true, true) | (false, false) => return None,
        }
    }
    is_cabled.then_some(false)
}
