//! Network namespaces: their addresses, wiring, pod and holders.

use crate::detect::facts::ghosts;
use std::collections::BTreeSet;

use super::related::Related;
use crate::{
    detect::{View, holders_of, pod_of},
    model::{
        netns::{NetnsEntry, Wiring},
        pods::PodPresence,
        sandbox::PodEvidence,
    },
};
use event::explanation::{
    AddressPart, DevicePart, GatewayPart, KnownBy, NetnsPart, NetnsState, PeerPart, PodState,
    RoutePart,
};
use event::{
    Device, Route,
    forwarding::{LOCAL_TABLE, MAIN_TABLE, TableRoute, table_name},
};

/// Every namespace of a subject.
pub(super) fn parts(view: &View<'_>, related: &Related<'_>) -> Vec<NetnsPart> {
    let entries = related.netns.values();
    entries.map(|entry| part(view, related, entry)).collect()
}

fn part(view: &View<'_>, related: &Related<'_>, entry: &NetnsEntry) -> NetnsPart {
    let addresses = addresses(related, entry);
    let names: BTreeSet<&str> = addresses.iter().map(|each| each.ifname.as_str()).collect();
    // Of the host's many devices those that have the address.
    let shown = |device: &&Device| {
        device.name != "lo" && (!entry.host || names.contains(device.name.as_str()))
    };
    let wiring = entry.wiring.as_ref();
    let devices = wiring.map(|wiring| {
        let shown = wiring.devices.iter().filter(shown);
        shown
            .map(|each| device(view, entry, wiring, each))
            .collect()
    });
    let wiring = wiring.filter(|_| !entry.host);
    NetnsPart {
        id: entry.id,
        host: entry.host,
        state: match entry.dying {
            None => NetnsState::Living,
            Some(_) => NetnsState::Dying,
        },
        dying_since: entry.dying,
        paths: entry.paths.iter().cloned().collect(),
        pod: pod_of(view.model, entry).filter(|_| !entry.host),
        pod_state: pod_state(view, entry),
        sandbox_id: entry.sandbox.id.clone(),
        known_by: entry.sandbox.known.map(known_by),
        holders: match entry.host {
            true => Vec::new(),
            false => holders_of(view.model, entry),
        },
        task_count: entry.task_count,
        devices: devices.unwrap_or_default(),
        gateways: wiring.map(gateways).unwrap_or_default(),
        routes: wiring.map(routes).unwrap_or_default(),
        rules: wiring.map(|it| rules(entry, it)).unwrap_or_default(),
        addresses,
    }
}

fn addresses(related: &Related<'_>, entry: &NetnsEntry) -> Vec<AddressPart> {
    let matter = |address| !entry.host || related.addresses.contains(address);
    let held = entry.addresses.iter();
    held.filter(|held| matter(&held.address.address))
        .map(|held| AddressPart {
            address: held.address.address,
            prefix: held.address.prefix,
            ifname: held.address.ifname.clone(),
            kind: held.address.link_kind.clone(),
            since: held.made.or((!held.found).then_some(held.since)),
            dad: held.address.dad,
        })
        .collect()
}

fn pod_state(view: &View<'_>, entry: &NetnsEntry) -> Option<PodState> {
    if entry.host {
        return None;
    }
    match entry.sandbox.presence {
        PodPresence::Listed => Some(PodState::Listed),
        PodPresence::Terminating(_) => Some(PodState::Terminating),
        PodPresence::Exempt => Some(PodState::Exempt),
        PodPresence::Finished(_) => Some(PodState::Finished),
        // A list that is not believed proves nothing.
        PodPresence::Gone(_) | PodPresence::Unlisted(_) => {
            ghosts::gone(view, entry).map(|_| PodState::Gone)
        }
        PodPresence::Unknown => None,
    }
}

fn known_by(known: PodEvidence) -> KnownBy {
    let (PodEvidence::Cgroup { pid: _, at }
    | PodEvidence::Cache { at }
    | PodEvidence::Runtime { source: _, at }
    | PodEvidence::Cni { at }) = known;
    KnownBy {
        source: known.source().to_owned(),
        at,
    }
}

fn device(view: &View<'_>, entry: &NetnsEntry, wiring: &Wiring, device: &Device) -> DevicePart {
    DevicePart {
        index: device.index,
        name: device.name.clone(),
        kind: device.kind.clone(),
        mac: device.mac.clone(),
        up: device.up,
        hardware: device.hardware.clone(),
        master: master(wiring, device),
        peer: peer(view, entry, device),
    }
}

fn master(wiring: &Wiring, device: &Device) -> Option<String> {
    let master = wiring.device(device.master?)?;
    Some(master.name.clone())
}

/// The other end of a veth.
fn peer(view: &View<'_>, entry: &NetnsEntry, device: &Device) -> Option<PeerPart> {
    let other = view.veth_pairs().other_end(entry, device)?;
    Some(PeerPart {
        name: other.device.name.clone(),
        netns: other.entry.id,
        host: other.entry.host,
        master: master(other.wiring, other.device),
    })
}

fn gateways(wiring: &Wiring) -> Vec<GatewayPart> {
    let defaults = wiring.routes.iter().filter(|route| route.to.is_none());
    defaults
        .filter_map(|route| {
            let address = route.gateway?;
            let mut neighbours = wiring.neighbours.iter();
            let neighbour =
                neighbours.find(|each| each.address == address && each.device == route.device);
            Some(GatewayPart {
                address,
                ifname: name(wiring, route.device),
                neighbour: neighbour.map(|each| each.state.clone()),
                mac: neighbour.and_then(|each| each.mac.clone()),
            })
        })
        .collect()
}

fn routes(wiring: &Wiring) -> Vec<RoutePart> {
    let part = |route: &Route| RoutePart {
        to: match route.to {
            None => String::from("default"),
            Some((address, prefix)) => format!("{address}/{prefix}"),
        },
        gateway: route.gateway,
        ifname: name(wiring, route.device),
    };
    wiring.routes.iter().map(part).collect()
}

/// What a pod decides otherwise than by its main table.
fn rules(entry: &NetnsEntry, wiring: &Wiring) -> Vec<String> {
    let Some(known) = &entry.forwarding else {
        return Vec::new();
    };
    let own = known.forwarding.rules.iter();
    let own = own.filter(|rule| !rule.is_kernels());
    let tables = known.forwarding.routes.iter();
    let tables = tables.filter(|route| !matches!(route.table, MAIN_TABLE | LOCAL_TABLE));
    let route = |route: &TableRoute| {
        let text = route.text(|index| name(wiring, index));
        format!("table {}: {text}", table_name(route.table))
    };
    own.map(|rule| format!("rule {}", rule.text()))
        .chain(tables.map(route))
        .collect()
}

fn name(wiring: &Wiring, device: u32) -> String {
    match wiring.device(device) {
        Some(device) => device.name.clone(),
        None => format!("device {device}"),
    }
}
