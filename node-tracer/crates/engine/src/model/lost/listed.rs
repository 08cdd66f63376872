//! What lists show: compared with what was there before.

use event::{CniCommand, CniEffect, Route, Store, Trace, TraceKind, clock::Timestamp};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
    path::Path,
};

use super::{Given, Kind, Lost, Tables};
use crate::model::netns::{NetnsEntry, NetnsTable, Wiring};

impl Lost {
    /// The devices of a sandbox.
    pub(super) fn sandbox_listed(
        &mut self,
        entry: &NetnsEntry,
        given: &Given<'_>,
        wiring: &Wiring,
    ) -> bool {
        let at = wiring.at;
        // Only what is on an attachment's interface is its.
        let name = |index| {
            let device = wiring.device(index).map(|device| device.name.as_str());
            device.filter(|name| given.has_device(name))
        };
        let devices = wiring
            .devices
            .iter()
            .filter(|it| given.has_device(&it.name));
        let routes = wiring.entered_routes();
        let routes = routes.filter_map(|route| Some(route_name(route, name(route.device)?)));
        let permanent = wiring.neighbours.iter().filter(|neighbour| {
            let mut routes = wiring.entered_routes();
            neighbour.state == "permanent"
                && name(neighbour.device).is_some()
                && routes.any(|route| route.gateway == Some(neighbour.address))
        });
        let now: [(Kind, BTreeSet<String>); 3] = [
            (Kind::Device, devices.map(|it| it.name.clone()).collect()),
            (Kind::Route, routes.collect()),
            (
                Kind::Neighbour,
                permanent.map(|it| it.address.to_string()).collect(),
            ),
        ];
        let mut changed = false;
        for (kind, now) in now {
            for name in &now {
                changed |= self.seen(entry, kind, name, at);
            }
            // What attachments there are may only have been learnt meanwhile.
            changed |= self.lost_all(entry, kind, at, |name| {
                let other = kind == Kind::Device && !given.has_device(name);
                !now.contains(name) && !other
            });
        }
        changed
    }

    /// The devices of the host: the other ends of the sandboxes' veth pairs, and
    /// the routes to their addresses.
    pub(super) fn host_listed(&mut self, tables: Tables<'_>, wiring: &Wiring) -> bool {
        let at = wiring.at;
        self.host_listed = Some(at);
        let names: HashSet<&str> = wiring.devices.iter().map(|it| it.name.as_str()).collect();
        let by_index: HashMap<u32, _> = wiring.devices.iter().map(|it| (it.index, it)).collect();
        let routed: HashSet<IpAddr> = wiring.entered_routes().filter_map(single).collect();
        let mut changed = false;
        for entry in tables.netns.live().filter(|entry| !entry.host) {
            let given = tables.given(entry);
            let devices = entry.wiring.iter().flat_map(|wiring| &wiring.devices);
            let devices = devices.filter(|it| given.has_device(&it.name));
            for device in devices.filter(|it| it.is_veth() && it.link_nsid.is_some()) {
                let end = device.link.and_then(|peer| by_index.get(&peer));
                let end = end.filter(|end| end.is_veth() && end.link == Some(device.index));
                if let Some(end) = end {
                    self.renamed(entry, &end.name, &names);
                    changed |= self.seen(entry, Kind::Veth, &end.name, at);
                }
            }
            for held in entry.addresses.iter() {
                let address = held.address.address;
                if routed.contains(&address) && given.has_address(&held.address) {
                    changed |= self.seen(entry, Kind::HostRoute, &address.to_string(), at);
                }
            }
            if !self.sandboxes.contains_key(&entry.id.inode) {
                continue;
            }
            changed |= self.lost_all(entry, Kind::Veth, at, |name| !names.contains(name));
            changed |= self.lost_all(entry, Kind::HostRoute, at, |name| {
                let address = name.parse().ok();
                address.is_some_and(|address| !routed.contains(&address))
            });
        }
        changed
    }

    /// A host-side end that has another name now is not lost: whoever may make devices
    /// on the host can rename them, too.
    fn renamed(&mut self, entry: &NetnsEntry, end: &str, names: &HashSet<&str>) {
        let Some(had) = self.had(entry) else {
            return;
        };
        if had.items.contains_key(&(Kind::Veth, end.to_owned())) {
            return;
        }
        let mut items = had.items.iter();
        let old = items.find(|((kind, name), item)| {
            *kind == Kind::Veth && item.loss.is_none() && !names.contains(name.as_str())
        });
        if let Some(item) = old
            .map(|(key, _)| key.clone())
            .and_then(|key| had.items.remove(&key))
        {
            had.items.insert((Kind::Veth, end.to_owned()), item);
        }
    }

    /// What an attachment has left: only of ADDs, as what a DEL has not taken
    /// away is no sandbox's any more.
    pub(super) fn looked_at(
        &mut self,
        table: &NetnsTable,
        effect: &CniEffect,
        time: Timestamp,
    ) -> bool {
        let entry = effect.netns.and_then(|netns| table.get(netns));
        let Some(entry) = entry.filter(|_| effect.command == CniCommand::Add) else {
            return false;
        };
        let mut changed = false;
        for trace in &effect.traces {
            let kind = match trace.kind {
                TraceKind::Address => Kind::Address,
                TraceKind::Veth => Kind::Veth,
                TraceKind::Route => Kind::HostRoute,
                TraceKind::Reservation => Kind::Reservation,
            };
            changed |= match trace.there {
                Some(true) => self.seen(entry, kind, &trace.name, time),
                Some(false) => self.lost_all(entry, kind, time, |name| name == trace.name),
                None => false,
            };
        }
        let on_host = |trace: &&Trace| matches!(trace.kind, TraceKind::Veth | TraceKind::Route);
        let mut unseen = effect.traces.iter().filter(on_host);
        if unseen.all(|trace| trace.there.is_some())
            && let Some(had) = self.had(entry)
        {
            had.looked = Some(time);
            let pod = had.pod.clone();
            // Somebody may wait for this look.
            changed |= self.dels.iter().any(|it| Some(&it.pod) == pod.as_ref());
        }
        changed
    }

    pub(super) fn store_listed(
        &mut self,
        table: &NetnsTable,
        store: &Store,
        time: Timestamp,
    ) -> bool {
        let mut by_id: HashMap<&str, BTreeSet<String>> = HashMap::new();
        for each in &store.reservations {
            let paths = by_id.entry(each.holder.container_id.as_str()).or_default();
            paths.insert(each.holder.path.display().to_string());
        }
        let whole = store.unread.is_empty() && store.blocked.is_empty();
        let mut changed = false;
        for entry in table.live().filter(|entry| !entry.host) {
            let Some(id) = entry.sandbox.id.as_deref() else {
                continue;
            };
            let paths = by_id.get(id);
            for name in paths.into_iter().flatten() {
                changed |= self.seen(entry, Kind::Reservation, name, time);
            }
            if whole && self.sandboxes.contains_key(&entry.id.inode) {
                changed |= self.lost_all(entry, Kind::Reservation, time, |name| {
                    let here = Path::new(name).parent() == Some(store.path.as_path());
                    here && !paths.is_some_and(|paths| paths.contains(name))
                });
            }
        }
        changed
    }
}

/// The one address that a route leads to.
fn single(route: &Route) -> Option<IpAddr> {
    let (address, length) = route.to?;
    let whole = if address.is_ipv4() { 32 } else { 128 };
    (length == whole).then_some(address)
}

/// `default via 169.254.1.1 dev eth0`, as ip-route(8) has it.
fn route_name(route: &Route, device: &str) -> String {
    let to = match route.to {
        None => String::from("default"),
        Some((address, _)) => address.to_string(),
    };
    let via = route.gateway.map(|gateway| format!(" via {gateway}"));
    format!("{to}{} dev {device}", via.unwrap_or_default())
}
