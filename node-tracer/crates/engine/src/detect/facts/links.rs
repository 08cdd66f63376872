//! Which network an address is on: what the device that has it is plugged into.
//!
//! Two holders of one address disturb each other only if they meet: at one
//! bridge, below one parent device (macvlan, ipvlan), or in the routing of one
//! namespace or VRF, which is where a routed pod's veth ends. Tunnels, taps,
//! dummies and bridges that nothing leads out of meet nobody else.
//!
//! That a veth ends on the host shows nothing by itself: a table of one tenant may
//! lead there, or a switch outside of the kernel. A pod's own address is routed by
//! whatever its CNI does. Any other one meets whom the host's tables lead to.

use std::{collections::BTreeSet, net::IpAddr};

use crate::{
    detect::{
        View,
        facts::{own, veth_pairs::VethEnd},
        is_routable,
    },
    model::netns::{HeldAddress, NetnsEntry, Serial, Wiring},
};
use event::{
    Address, Device, Network,
    forwarding::{Forwarding, TableRoute, prefix_has},
};

/// A place where holders of one address meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::detect) enum Link {
    /// A device of a namespace, by index: a bridge, or the parent of others.
    Device(Serial, u32),
    /// The routing of a namespace, or of one of its VRFs, by index.
    Routing(Serial, Option<u32>),
    /// A table that the namespace looks up for some packets alone.
    Table(Serial, u32),
}

/// What a device is plugged into; `None` if that is not known.
///
/// `is_own` is whether the address is known to be its pod's: if so, it is on the
/// network that the pod's other devices lead to, whatever device holds it.
pub(in crate::detect) fn links(
    view: &View<'_>,
    entry: &NetnsEntry,
    held: Option<&Address>,
    address: IpAddr,
    is_own: bool,
) -> Option<BTreeSet<Link>> {
    let reader = &Reader {
        view,
        address,
        is_own,
    };
    let wiring = entry.wiring.as_ref()?;
    let mut devices = wiring.devices.iter();
    let device = held.and_then(|held| devices.find(|device| device.name == held.ifname));
    let is_closed = |held: &Address| {
        let is_loopback = held.ifname == "lo";
        is_loopback || held.link_kind.as_deref().is_some_and(own::is_closed)
    };
    let of_device = match device {
        Some(device) => of_device(reader, entry, wiring, device, true)?,
        // Loopback devices are not listed. Any other has come, or has been
        // renamed, since the list was made: on the host it is routed.
        None if entry.host || held.is_none_or(is_closed) => BTreeSet::new(),
        None => return None,
    };
    let own = [Link::Routing(entry.serial, vrf(wiring, device))];
    let mut links: BTreeSet<Link> = own.into_iter().chain(of_device).collect();
    if is_own && links.iter().all(|link| link.is_in(entry.serial)) && !entry.host {
        links.extend(ways_out(reader, entry, wiring)?);
    }
    Some(links)
}

/// What a configured network plugs pods into; `None` if that is not known.
pub(in crate::detect) fn of_network(
    view: &View<'_>,
    network: &Network,
    address: IpAddr,
) -> Option<BTreeSet<Link>> {
    let host = view.model.netns.live().find(|entry| entry.host)?;
    // Its veth ends on no bridge.
    if network.plugin == "ptp" {
        return Some(BTreeSet::from([Link::Routing(host.serial, None)]));
    }
    let wiring = host.wiring.as_ref()?;
    let name = network.device.as_deref()?;
    let mut devices = wiring.devices.iter();
    let device = devices.find(|device| device.name == name)?;
    let mut links = BTreeSet::from([Link::Device(host.serial, device.index)]);
    if device.is_bridge() {
        let reader = &Reader {
            view,
            address,
            is_own: true,
        };
        plug_in(reader, host, wiring, device, &mut links)?;
    }
    Some(links)
}

/// Whether something in a namespace leads from a device to another namespace
/// or out of the node.
pub(in crate::detect) fn leads_out(view: &View<'_>, entry: &NetnsEntry, ifname: &str) -> bool {
    let Some(wiring) = &entry.wiring else {
        return false;
    };
    let mut devices = wiring.devices.iter();
    let Some(device) = devices.find(|device| device.name == ifname) else {
        return false;
    };
    let mut ports = ports(wiring, device).chain([device]);
    ports.any(|port| is_port_out(view, entry, port))
}

/// Whether a port of a pod's bridge leads out. A veth whose other end is nobody's,
/// or was not found, can lead to what the pod has made for itself.
fn is_port_out(view: &View<'_>, entry: &NetnsEntry, port: &Device) -> bool {
    let is_veth = matches!(port.kind.as_deref(), Some("veth" | "netkit"));
    let end = view.veth_pairs().other_end(entry, port);
    let leads_there = end.is_some_and(|end| end.entry.host || end.entry.sandbox.pod.is_some());
    is_way_out(view, entry, port) && (!is_veth || leads_there)
}

impl Link {
    fn is_in(self, serial: Serial) -> bool {
        match self {
            Self::Device(at, _) | Self::Routing(at, _) | Self::Table(at, _) => at == serial,
        }
    }
}

/// Who asks where devices lead to, for which address.
struct Reader<'v, 'a> {
    view: &'v View<'a>,
    address: IpAddr,
    /// It is known to be its pod's.
    is_own: bool,
}

/// What all devices of a namespace that lead out are plugged into; `None` if
/// that is not known of one.
fn ways_out(
    reader: &Reader<'_, '_>,
    entry: &NetnsEntry,
    wiring: &Wiring,
) -> Option<BTreeSet<Link>> {
    let out = wiring.devices.iter();
    let out = out.filter(|device| is_way_out(reader.view, entry, device));
    let each = out.map(|device| of_device(reader, entry, wiring, device, false));
    let all: Option<Vec<_>> = each.collect();
    Some(all?.into_iter().flatten().collect())
}

/// Whether a device itself leads out of its namespace: not through a bridge
/// that it is, and not to a namespace that lives behind this one.
fn is_way_out(view: &View<'_>, entry: &NetnsEntry, device: &Device) -> bool {
    match device.kind.as_deref() {
        Some("veth" | "netkit") => {
            let end = view.veth_pairs().other_end(entry, device);
            // Where several could be the other end, none is meant.
            let leads_out = match end {
                Some(end) => is_outside(entry, end.entry),
                None => !view.veth_pairs().leads_past_host(entry, device),
            };
            device.link_nsid.is_some() && leads_out
        }
        Some("macvlan" | "ipvlan" | "macvtap" | "ipvtap" | "vlan" | "ipoib") => {
            device.link_nsid.is_some()
        }
        _ => device.hardware.is_some(),
    }
}

/// Whether a namespace is no part of what another one's pod made for itself.
fn is_outside(entry: &NetnsEntry, other: &NetnsEntry) -> bool {
    let is_same_pod = entry.sandbox.uid().is_some() && other.sandbox.uid() == entry.sandbox.uid();
    other.host || !is_same_pod
}

fn of_device(
    reader: &Reader<'_, '_>,
    entry: &NetnsEntry,
    wiring: &Wiring,
    device: &Device,
    with_ports: bool,
) -> Option<BTreeSet<Link>> {
    // What has it for a parent meets it there.
    let mut links = BTreeSet::from([Link::Device(entry.serial, device.index)]);
    match device.kind.as_deref() {
        Some("veth" | "netkit") => {
            let end = reader.view.veth_pairs().other_end(entry, device)?;
            match end.device.master.map(|index| end.wiring.device(index)) {
                None => links.extend(routed(reader, entry, device, end)?),
                // The master is missing on the list.
                Some(None) => return None,
                Some(Some(master)) => plug_in(reader, end.entry, end.wiring, master, &mut links)?,
            }
            if let Some(master) = device.master.and_then(|index| wiring.device(index)) {
                plug_in(reader, entry, wiring, master, &mut links)?;
            }
        }
        Some("macvlan" | "ipvlan" | "macvtap" | "ipvtap") => {
            let parent = device.link?;
            let parents = match device.link_nsid {
                None => Some(entry),
                Some(nsid) => peer(reader.view, entry, wiring, nsid),
            };
            let parents = parents?;
            parents.wiring.as_ref()?.device(parent)?;
            links.insert(Link::Device(parents.serial, parent));
        }
        // Each is the only one of its number on its parent, and the host's
        // parents are all there are. On a device of a pod's own, one of another
        // pod can have the same number: the list does not have it.
        Some("vlan") => {
            let parent = device.link.filter(|_| device.link_nsid.is_none());
            let parent = parent.and_then(|index| wiring.device(index));
            if !entry.host && parent.is_some_and(|it| is_way_out(reader.view, entry, it)) {
                return None;
            }
        }
        Some("bridge") if with_ports && !entry.host => {
            let out = ports(wiring, device);
            for port in out.filter(|port| is_port_out(reader.view, entry, port)) {
                links.extend(of_device(reader, entry, wiring, port, false)?);
            }
        }
        // What is behind a wire is not known, but for the host's own.
        None if device.hardware.is_some() && !entry.host => return None,
        Some("openvswitch" | "bond" | "team" | "ipoib") if !entry.host => return None,
        _ => {}
    }
    Some(links)
}

/// What a veth that ends on no bridge meets at its other end; `None` if no route of
/// the host leads to it. Of other namespaces the tables are not read in whole.
fn routed(
    reader: &Reader<'_, '_>,
    entry: &NetnsEntry,
    device: &Device,
    end: VethEnd<'_>,
) -> Option<BTreeSet<Link>> {
    let Reader { view, address, .. } = *reader;
    let serial = end.entry.serial;
    let is_own = reader.is_own || own::is_default_devices(view.model, entry, address, &device.name);
    if is_own || entry.host || !end.entry.host {
        return Some(BTreeSet::from([Link::Routing(serial, None)]));
    }
    let tables = &end.entry.forwarding.as_ref()?.forwarding;
    let routes = view.routes_over(serial, end.device.index).iter();
    // A default route is for what is elsewhere.
    let routes = routes.filter(|route| route.to.1 > 0 && prefix_has(route.to, address));
    let links = routes.map(|route| match is_for_all(tables, route, address) {
        true => Link::Routing(serial, None),
        false => Link::Table(serial, route.table),
    });
    let links: BTreeSet<Link> = links.collect();
    (!links.is_empty()).then_some(links)
}

/// Whether packets to an address are looked up in a route's table, whoever sends them.
fn is_for_all(tables: &Forwarding, route: &TableRoute, address: IpAddr) -> bool {
    tables.rules.iter().any(|rule| {
        rule.table == route.table
            && rule.is_for_all_to(address)
            && rule.suppress.is_none_or(|most| most < route.to.1.into())
    })
}

/// The namespace that another one calls by a number: the one that a veth pair
/// leads to which has the same number. Where none has, it is the host's, whose
/// devices CNI takes.
fn peer<'a>(
    view: &View<'a>,
    entry: &NetnsEntry,
    wiring: &Wiring,
    nsid: i32,
) -> Option<&'a NetnsEntry> {
    let host = || view.model.netns.live().find(|other| other.host);
    if wiring.host_nsid == Some(nsid) && !entry.host {
        return host();
    }
    let devices = wiring.devices.iter();
    let mut veth_pairs = devices.filter(|it| it.is_pair_end() && it.link_nsid == Some(nsid));
    match veth_pairs.next() {
        Some(end) => Some(view.veth_pairs().other_end(entry, end)?.entry),
        None if wiring.host_nsid.is_some() => None,
        None => host(),
    }
}

/// What a port of a bridge or of a VRF meets there; `None` if the master keeps
/// that to itself.
fn plug_in(
    reader: &Reader<'_, '_>,
    entry: &NetnsEntry,
    wiring: &Wiring,
    master: &Device,
    links: &mut BTreeSet<Link>,
) -> Option<()> {
    match master.kind.as_deref() {
        Some("vrf") => {
            links.insert(Link::Routing(entry.serial, Some(master.index)));
        }
        Some("bridge") => {
            for bridge in joined(wiring, master) {
                // It keeps the numbers of its ports' VLANs to itself.
                if bridge.vlan_filtering {
                    return None;
                }
                links.insert(Link::Device(entry.serial, bridge.index));
                // A bridge with an address is a device of the namespace's routing:
                // of that family, and not by the address that each has of itself or
                // that a pod behind it has made the kernel give it.
                let routes =
                    |held: IpAddr| is_routable(held) && held.is_ipv4() == reader.address.is_ipv4();
                let held = entry.addresses.iter();
                let held = held.filter(|HeldAddress { address: held, .. }| {
                    held.ifname == bridge.name && routes(held.address)
                });
                let entered: Vec<_> = held.map(|held| wiring.is_entered(held)).collect();
                if entered.contains(&Some(true)) {
                    links.insert(Link::Routing(entry.serial, vrf(wiring, Some(bridge))));
                } else if entered.contains(&None) {
                    return None;
                }
            }
        }
        _ => return None,
    }
    Some(())
}

/// A bridge and those that veth pairs join to it.
fn joined<'a>(wiring: &'a Wiring, bridge: &'a Device) -> Vec<&'a Device> {
    let mut all = vec![bridge];
    let mut at = 0;
    while let Some(bridge) = all.get(at) {
        at += 1;
        let veth_pairs = ports(wiring, bridge).filter(|port| port.link_nsid.is_none());
        let ends = veth_pairs.filter(|port| port.is_veth());
        let ends = ends.filter_map(|port| wiring.device(port.link?));
        let masters = ends.filter_map(|end| wiring.device(end.master?));
        let found: Vec<&Device> = masters.filter(|it| it.is_bridge()).collect();
        for other in found {
            if !all.iter().any(|known| known.index == other.index) {
                all.push(other);
            }
        }
    }
    all
}

fn ports<'a>(wiring: &'a Wiring, bridge: &Device) -> impl Iterator<Item = &'a Device> {
    let index = bridge.index;
    let devices = wiring.devices.iter();
    devices.filter(move |device| device.master == Some(index))
}

fn vrf(wiring: &Wiring, device: Option<&Device>) -> Option<u32> {
    let master = wiring.device(device?.master?)?;
    let is_vrf = master.kind.as_deref() == Some("vrf");
    is_vrf.then_some(master.index)
}
