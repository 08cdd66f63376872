//! `eni`: the node's own network devices, and what depends on each: a view of the
//! model that the look at the node has filled.

use std::collections::BTreeSet;

use crate::{
    Engine,
    detect::{
        View,
        facts::{functions, paths::NodeTables},
        is_routable, pod_of,
    },
    model::netns::{NetnsEntry, Wiring},
};
use event::order::Order as _;
use event::{
    Device, PciFunction,
    clock::Timestamp,
    eni::{Eni, EniKind, EniPod, EniProblem, Enis},
    finding::{Rule, Severity},
    forwarding::{LOCAL_TABLE, MAIN_TABLE, RouteKind},
};

/// All of them: the node's first, by name.
pub fn enis(engine: &Engine, now: Timestamp) -> Enis {
    let view = View::new(engine.model(), engine.settings(), now);
    let mut interfaces = Vec::new();
    for entry in view.model.netns.live() {
        let Some(wiring) = &entry.wiring else {
            continue;
        };
        let devices = wiring.devices.iter();
        let mut its: Vec<Eni> = devices
            .filter_map(|device| eni(engine, &view, entry, wiring, device))
            .collect();
        its.order_by(|a, b| a.name.cmp(&b.name));
        interfaces.extend(its);
    }
    interfaces.order_by_key(|it| !it.host);
    let lost = functions::without_device(&view);
    interfaces.extend(
        lost.iter()
            .map(|(_, function)| without_device(engine, function)),
    );
    let mut unknown: Vec<String> = engine.gaps().to_vec();
    let unread = view
        .model
        .netns
        .live()
        .filter(|entry| entry.wiring.is_none());
    unknown.extend(unread.map(|entry| format!("the devices of netns {}", entry.id.inode)));
    if NodeTables::of(&view).is_none() {
        unknown.push(String::from("the node's rules and routes"));
    }
    Enis {
        interfaces,
        unknown,
    }
}

/// How a pod's device is stacked on one of the node's.
fn stacked(device: &Device) -> Option<&str> {
    let kind = device.kind.as_deref()?;
    matches!(kind, "ipvlan" | "macvlan" | "ipvtap" | "macvtap").then_some(kind)
}

fn eni(
    engine: &Engine,
    view: &View<'_>,
    entry: &NetnsEntry,
    wiring: &Wiring,
    device: &Device,
) -> Option<Eni> {
    let pods = pods(view, entry, wiring, device);
    let is_physical = device.hardware.is_some() && device.kind.is_none() && device.name != "lo";
    let is_parent = entry.host && pods.iter().any(|pod| pod.by != "rule" && pod.by != "has");
    if !is_physical && !is_parent {
        return None;
    }
    let function = functions::of_device(view, device);
    let physical_function = function.and_then(|it| it.physical.clone());
    let held = entry.addresses.iter().map(|held| &held.address);
    let its = held.filter(|address| address.ifname == device.name);
    let tables = tables(view, entry, device);
    let asks = |rule: &&event::forwarding::PolicyRule| tables.contains(&rule.table);
    let node = NodeTables::of(view).filter(|node| node.entry.serial == entry.serial);
    let rules = node
        .iter()
        .flat_map(|node| node.forwarding.rules.iter().filter(asks));
    Some(Eni {
        name: Some(device.name.clone()),
        kind: match (is_physical, &physical_function) {
            (true, Some(_)) => EniKind::VirtualFunction,
            (true, None) => EniKind::Physical,
            (false, _) => EniKind::Parent,
        },
        mac: device.mac.clone(),
        pci: functions::address_of(view, device),
        physical_function,
        netns: Some(entry.id),
        host: entry.host,
        up: device.up,
        addresses: its
            .map(|address| address.address)
            .filter(|address| is_routable(*address))
            .collect(),
        rules: rules.map(|rule| rule.text()).collect(),
        problems: problems(engine, entry, device, &tables, &pods),
        tables: tables.into_iter().collect(),
        pods,
    })
}

/// Tables whose default route leads out by a device of the node.
fn tables(view: &View<'_>, entry: &NetnsEntry, device: &Device) -> BTreeSet<u32> {
    let node = NodeTables::of(view).filter(|node| node.entry.serial == entry.serial);
    let routes = node.iter().flat_map(|node| &node.forwarding.routes);
    let its = routes.filter(|route| {
        let is_default = route.to.1 == 0 && route.kind == RouteKind::Unicast;
        is_default && route.device == Some(device.index)
    });
    let tables = its.map(|route| route.table);
    tables
        .filter(|table| !matches!(*table, MAIN_TABLE | LOCAL_TABLE))
        .collect()
}

fn pods(view: &View<'_>, entry: &NetnsEntry, wiring: &Wiring, device: &Device) -> Vec<EniPod> {
    let mut pods = BTreeSet::new();
    let address_on = |entry: &NetnsEntry, name: &str| {
        let held = entry.addresses.iter().map(|held| &held.address);
        let mut its = held.filter(|address| address.ifname == name);
        its.find(|address| is_routable(address.address))
            .map(|it| it.address)
    };
    if !entry.host {
        let its = pod_of(view.model, entry).map(|pod| EniPod {
            pod,
            address: address_on(entry, &device.name),
            by: String::from("has"),
        });
        return its.into_iter().collect();
    }
    for other in view.model.netns.live().filter(|other| !other.host) {
        let Some(pod) = pod_of(view.model, other) else {
            continue;
        };
        for its in other.wiring.iter().flat_map(|wiring| &wiring.devices) {
            let leads_here = its.link == Some(device.index) && its.link_nsid.is_some();
            if let Some(kind) = stacked(its).filter(|_| leads_here) {
                pods.insert(EniPod {
                    pod: pod.clone(),
                    address: address_on(other, &its.name),
                    by: kind.to_owned(),
                });
            }
        }
    }
    let tables = tables(view, entry, device);
    let node = NodeTables::of(view).filter(|node| node.wiring.at == wiring.at);
    let rules = node.iter().flat_map(|node| &node.forwarding.rules);
    for rule in rules.filter(|rule| tables.contains(&rule.table)) {
        let Some(address) = rule.single_from() else {
            continue;
        };
        for other in view
            .model
            .netns
            .with_address(address)
            .filter(|other| !other.host)
        {
            if let Some(pod) = pod_of(view.model, other) {
                pods.insert(EniPod {
                    pod,
                    address: Some(address),
                    by: String::from("rule"),
                });
            }
        }
    }
    pods.into_iter().collect()
}

fn problems(
    engine: &Engine,
    entry: &NetnsEntry,
    device: &Device,
    tables: &BTreeSet<u32>,
    pods: &[EniPod],
) -> Vec<EniProblem> {
    let open = engine.open().into_iter();
    let about = open.filter(|finding| match finding.rule {
        Rule::TrappedDevice => {
            let netns = finding.netns.as_ref().map(|netns| netns.id.inode);
            netns == Some(entry.id.inode) && finding.title.starts_with(&format!("{} ", device.name))
        }
        Rule::StalePath => {
            let table = finding.detail.path.as_ref().and_then(|path| path.table);
            entry.host && table.is_some_and(|table| tables.contains(&table))
        }
        _ => false,
    });
    let mut problems: Vec<EniProblem> = about
        .map(|finding| EniProblem {
            severity: finding.severity,
            text: finding.title.clone(),
            finding: Some(finding.id.clone()),
        })
        .collect();
    // One that waits for a pod in the CNI's pool may be down.
    if !device.up && !pods.is_empty() {
        problems.push(EniProblem {
            severity: Severity::Warning,
            text: format!("{} is down, and pods depend on it", device.name),
            finding: None,
        });
    }
    problems
}

fn without_device(engine: &Engine, function: &PciFunction) -> Eni {
    let open = engine.open().into_iter();
    let about = open.filter(|finding| {
        finding.rule == Rule::TrappedDevice && finding.title.contains(&function.address)
    });
    Eni {
        name: None,
        kind: match function.physical {
            Some(_) => EniKind::VirtualFunction,
            None => EniKind::Physical,
        },
        mac: None,
        pci: Some(function.address.clone()),
        physical_function: function.physical.clone(),
        netns: None,
        host: false,
        up: false,
        addresses: Vec::new(),
        tables: Vec::new(),
        rules: Vec::new(),
        pods: Vec::new(),
        problems: about
            .map(|finding| EniProblem {
                severity: finding.severity,
                text: finding.title.clone(),
                finding: Some(finding.id.clone()),
            })
            .collect(),
    }
}
