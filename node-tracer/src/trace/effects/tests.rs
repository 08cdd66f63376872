//! When is looked at what and what is told of it; that looking works is tested
//! on real namespaces, which needs root.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
    thread,
};

use super::{attachments::Attachment, *};
use event::{
    CniEffect, CniInterface, CniResult, Device, Netns, ReservationHolder, Route, TraceKind,
    testing::*,
};
use node::{
    hostlocal::Lookup,
    netlink::{DatedAddress, Target, Visit, Way},
    procfs::Bounded,
};

mod attachments;
mod judge;
mod outcome;
mod real;
mod schedule;
mod tables;

const MS: Duration = Duration::from_millis(1);

fn key(id: &str) -> Key {
    Key {
        container_id: id.to_owned(),
        ifname: String::from("eth0"),
    }
}

fn procfs() -> Procfs {
    Procfs::new(Path::new("/"), Bounded::default())
}

fn op(id: &str, command: &'static str) -> Operation {
    let key = key(id);
    Operation {
        key,
        command: command.into(),
    }
}

/// Sandbox `id` of pod shop/db-0 in a namespace: its ADD.
fn add(id: &str, inode: u32) -> CniCall {
    CniCall {
        ipam: Some(String::from("host-local")),
        parent_pid: 7,
        ..call("ADD", id, inode, NEW, "db-0")
    }
}

fn result(last: u8) -> CniResult {
    let interface = |name: &str, sandbox: Option<&str>| CniInterface {
        name: name.to_owned(),
        mac: None,
        sandbox: sandbox.map(str::to_owned),
    };
    CniResult {
        ips: vec![ip(last)],
        gateways: Vec::new(),
        interfaces: vec![
            interface("cni0", None),
            interface("veth1", None),
            interface("eth0", Some(MOUNT)),
        ],
    }
}

fn visit(inode: u32, devices: &[Device], addresses: &[u8], routed: &[u8]) -> Visit {
    let route = |last: &u8| -> Route { route_to(*last, 8) };
    let at = |last: &u8| DatedAddress {
        address: address(*last),
        made: None,
    };
    Visit {
        netns: ns(inode),
        user_ns: None,
        addresses: addresses.iter().map(at).collect(),
        devices: devices.to_vec(),
        routes: routed.iter().map(route).collect(),
        neighbours: Vec::new(),
        home_nsid: None,
        forwarding: event::forwarding::Forwarding::default(),
        addresses_cut: false,
        cut: false,
    }
}

fn held_by(id: Option<&str>) -> Lookup {
    Lookup {
        stores: vec![PathBuf::from(STORE)],
        holder: id.map(|id| ReservationHolder {
            path: PathBuf::from(STORE).join("10.0.0.5"),
            container_id: id.to_owned(),
            ifname: None,
            pod: None,
        }),
        ..Lookup::default()
    }
}

fn found(visits: &[Visit], id: Option<&str>) -> Found {
    let visits = visits.iter().cloned();
    Found {
        at: s(9),
        visits: visits.map(|it| (it.netns.inode, Some(it))).collect(),
        lookups: BTreeMap::from([(ip(5), held_by(id))]),
    }
}

fn whole(id: Option<&str>) -> Found {
    let sandbox = visit(200, &[veth(3, "eth0", 8)], &[5], &[]);
    let host = visit(1, &[veth(8, "veth1", 3)], &[], &[5]);
    found(&[sandbox, host], id)
}

#[test]
fn calls_of_others_and_of_loopback_are_not_looked_at() {
    assert!(operation(&add("a", 100)).is_some());
    let not = [
        CniCall {
            trusted: false,
            ..add("a", 100)
        },
        CniCall {
            delegated: true,
            ..add("a", 100)
        },
        CniCall {
            ifname: String::from("lo"),
            ..add("a", 100)
        },
        call("CHECK", "a", 100, NEW, "db-0"),
    ];
    for call in not {
        assert_eq!(operation(&call), None, "{call:?}");
    }
}

#[test]
fn a_look_that_reaches_nothing_says_so() {
    let worker = Worker::start(None).unwrap();
    let job = Job {
        targets: vec![Target {
            inode: 5,
            ways: vec![Way::File(PathBuf::from("/nowhere"))],
            is_hosts: false,
        }],
        addresses: BTreeSet::from([IpAddr::from([10, 0, 0, 5])]),
    };
    worker.ask(job).unwrap();
    let found = loop {
        match worker.answer().unwrap() {
            Some(found) => break found,
            None => thread::sleep(MS),
        }
    };
    assert_eq!(found.visits, BTreeMap::from([(5, None)]));
    assert!(found.lookups.is_empty(), "without stores nothing is free");
}

#[test]
fn namespaces_that_come_and_go_do_not_have_the_host_listed_without_end() {
    let mut unplaced = Unplaced::default();
    let begin = Instant::now();
    let mut looks = 0;
    for n in 0..100 {
        let now = begin + Duration::from_millis(u64::from(n) * 20);
        unplaced.set(&BTreeSet::from([ns(100 + n)]), now);
        looks += usize::from(!unplaced.due(now, std::iter::empty()).is_empty());
    }
    assert_eq!(looks, 2, "in two seconds");
}
