//! What a look at the node's state brings: lists of runtimes and CNI, and
//! devices.

use std::{net::IpAddr, path::PathBuf};

use super::{at, ip, ns, s};
use crate::{
    Attachment, Device, Event, Neighbour, Network, PodRef, Range, Reservation, ReservationHolder,
    Route, RuntimeSandbox, Store, What,
    forwarding::{
        DEFAULT_TABLE, DatedNeighbour, Forwarding, FrameRoute, LOCAL_TABLE, MAIN_TABLE, PolicyRule,
        RouteKind, RuleAction, TableRoute,
    },
};

/// The store that the stories' network keeps its reservations in.
pub const STORE: &str = "/var/lib/cni/networks/pods";
/// A mount as containerd names a sandbox's.
pub const SANDBOX_MOUNT: &str = "/run/netns/cni-4f2a7c1e-9d3b-4f60-8a51-0c6e2d9b7f13";
/// The gateway that CNIs make up.
pub const GATEWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 1, 1));

pub fn a_pod(uid: &str, name: &str) -> PodRef {
    PodRef {
        namespace: Some(String::from("shop")),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
    }
}

/// A sandbox that is ready.
pub fn sandbox(id: &str, inode: u32, uid: &str) -> RuntimeSandbox {
    RuntimeSandbox {
        id: id.to_owned(),
        pod: a_pod(uid, "checkout-x8k2p"),
        ready: Some(true),
        netns: Some(ns(inode)),
        ..RuntimeSandbox::default()
    }
}

pub fn cri(seconds: i64, sandboxes: &[RuntimeSandbox]) -> Event {
    let what = What::SandboxesListed {
        source: String::from("cri"),
        endpoint: String::from("/run/containerd/containerd.sock"),
        runtime: Some(String::from("containerd 2.1.4")),
        partial: None,
        sandboxes: sandboxes.to_vec(),
    };
    at(seconds, what)
}

/// CRI does not answer.
pub fn cri_fails(seconds: i64) -> Event {
    let what = What::SourceFailed {
        source: String::from("cri"),
        error: String::from("no answer in 1 s"),
    };
    at(seconds, what)
}

/// Containers that a source shows: `cgroup`, `shim`.
pub fn containers(seconds: i64, source: &str, ids: &[&str]) -> Event {
    let what = What::ContainersListed {
        source: source.to_owned(),
        partial: None,
        ids: ids.iter().map(|id| (*id).to_owned()).collect(),
    };
    at(seconds, what)
}

/// An ADD of 10.0.0.LAST in a namespace that is still there.
pub fn attachment(id: &str, inode: Option<u32>, last: u8, written: i64) -> Attachment {
    Attachment {
        path: PathBuf::from(format!("/var/lib/cni/results/pods-{id}-eth0")),
        network: String::from("pods"),
        container_id: id.to_owned(),
        ifname: String::from("eth0"),
        netns_path: String::from(SANDBOX_MOUNT),
        netns: inode.map(ns),
        mac: None,
        host_devices: Vec::new(),
        pod: Some(a_pod(super::OLD, "checkout-x8k2p")),
        ips: vec![ip(last)],
        written: s(written),
    }
}

pub fn attached(seconds: i64, attachments: &[Attachment]) -> Event {
    let what = What::AttachmentsListed {
        folder: PathBuf::from("/var/lib/cni/results"),
        attachments: attachments.to_vec(),
        unread: Vec::new(),
    };
    at(seconds, what)
}

/// `FIRST-LAST` of 10.0.0.0/24, whose gateway is 10.0.0.1.
pub fn range(first: u8, last: u8) -> Range {
    Range {
        set: 0,
        subnet: String::from("10.0.0.0/24"),
        first: ip(first),
        last: ip(last),
        gateway: Some(ip(1)),
    }
}

/// The network of [`STORE`].
pub fn network(plugin: &str, ranges: &[Range]) -> Network {
    Network {
        file: PathBuf::from("/etc/cni/net.d/10-pods.conflist"),
        name: String::from("pods"),
        plugin: plugin.to_owned(),
        ipam: Some(String::from("host-local")),
        device: None,
        store: Some(PathBuf::from(STORE)),
        ranges: ranges.to_vec(),
    }
}

pub fn networks(seconds: i64, networks: &[Network]) -> Event {
    let what = What::NetworksListed {
        networks: networks.to_vec(),
        unread: Vec::new(),
    };
    at(seconds, what)
}

/// `(10.0.0.LAST, container, when)`
pub fn reserve((last, id, modified): (u8, &str, i64)) -> Reservation {
    Reservation {
        address: ip(last),
        holder: ReservationHolder {
            path: PathBuf::from(format!("{STORE}/10.0.0.{last}")),
            container_id: id.to_owned(),
            ifname: (!id.is_empty()).then(|| String::from("eth0")),
            pod: None,
        },
        modified: s(modified),
    }
}

/// [`STORE`], whole.
pub fn stored(seconds: i64, reservations: &[(u8, &str, i64)]) -> Event {
    let store = Store {
        path: PathBuf::from(STORE),
        reservations: reservations.iter().copied().map(reserve).collect(),
        ..Store::default()
    };
    at(seconds, What::StoreListed { store })
}

/// One end of a veth pair between two namespaces.
pub fn veth(index: u32, name: &str, peer: u32) -> Device {
    Device {
        index,
        name: name.to_owned(),
        kind: Some(String::from("veth")),
        mac: Some(format!("ee:ee:ee:ee:00:{index:02x}")),
        up: true,
        link: Some(peer),
        link_nsid: Some(0),
        ..Device::default()
    }
}

/// A device with hardware behind it.
pub fn physical(index: u32, name: &str) -> Device {
    Device {
        index,
        name: name.to_owned(),
        mac: Some(String::from("00:16:3e:00:00:06")),
        up: true,
        hardware: Some(String::from("pci 0000:00:06.0")),
        ..Device::default()
    }
}

pub fn devices(
    seconds: i64,
    inode: u32,
    devices: &[Device],
    routes: &[Route],
    neighbours: &[Neighbour],
) -> Event {
    let what = What::NetnsDevices {
        netns: ns(inode),
        devices: devices.to_vec(),
        routes: routes.to_vec(),
        neighbours: neighbours.to_vec(),
        host_nsid: None,
    };
    at(seconds, what)
}

/// How a namespace sends packets.
pub fn forwards(seconds: i64, inode: u32, forwarding: &Forwarding) -> Event {
    let what = What::NetnsForwarding {
        netns: ns(inode),
        followed: false,
        forwarding: forwarding.clone(),
    };
    at(seconds, what)
}

/// The same in a trace, which tells each change.
pub fn follows(seconds: i64, inode: u32, forwarding: &Forwarding) -> Event {
    let mut event = forwards(seconds, inode, forwarding);
    if let What::NetnsForwarding { followed, .. } = &mut event.what {
        *followed = true;
    }
    event
}

/// The rules that every namespace begins with.
pub fn kernels_rules() -> Vec<PolicyRule> {
    let rule = |priority, table, ipv6| PolicyRule {
        priority,
        table,
        ipv6,
        protocol: 2,
        ..PolicyRule::default()
    };
    vec![
        rule(0, LOCAL_TABLE, false),
        rule(32_766, MAIN_TABLE, false),
        rule(32_767, DEFAULT_TABLE, false),
        rule(0, LOCAL_TABLE, true),
        rule(32_766, MAIN_TABLE, true),
    ]
}

/// A route of a table, as `10.0.0.0/24`, over a device.
pub fn table_route(table: u32, to: &str, device: u32) -> TableRoute {
    let (address, length) = to.split_once('/').unwrap_or((to, "32"));
    TableRoute {
        table,
        to: (
            address.parse().expect("an address"),
            length.parse().expect("a length"),
        ),
        kind: RouteKind::Unicast,
        gateway: None,
        device: Some(device),
        metric: 0,
        protocol: 3,
        dead: false,
        by_kernel: false,
    }
}

/// Something of everything.
pub fn whole_forwarding() -> Forwarding {
    let selective = PolicyRule {
        priority: 20,
        ipv6: false,
        from: Some((ip(5), 32)),
        to: Some((ip(0), 24)),
        iif: Some("cali1".into()),
        oif: Some("eth1".into()),
        mark: Some((0x80, 0xff)),
        narrower: true,
        not: true,
        action: RuleAction::Goto,
        table: 0,
        goto: 32_766,
        suppress: Some(0),
        detached: true,
        protocol: 3,
    };
    Forwarding {
        rules: kernels_rules().into_iter().chain([selective]).collect(),
        routes: vec![
            TableRoute {
                gateway: Some(GATEWAY),
                metric: 512,
                dead: true,
                by_kernel: true,
                ..table_route(1_002, "0.0.0.0/0", 2)
            },
            TableRoute {
                device: None,
                kind: RouteKind::Throw,
                ..table_route(1_002, "10.1.0.0/16", 0)
            },
        ],
        neighbours: vec![DatedNeighbour {
            neighbour: neighbour(2, "stale"),
            confirmed: Some(s(1)),
        }],
        frames: vec![FrameRoute {
            mac: "ee:ee:ee:ee:ee:01".into(),
            device: 7,
            remote: Some(ip(9)),
        }],
        cut: true,
        local_cut: true,
    }
}

/// The same of a namespace that has this ID for the host's.
pub fn host_called(id: i32, mut devices: Event) -> Event {
    if let What::NetnsDevices { host_nsid, .. } = &mut devices.what {
        *host_nsid = Some(id);
    }
    devices
}

/// The route to 10.0.0.LAST alone.
pub fn route_to(last: u8, device: u32) -> Route {
    Route {
        to: Some((ip(last), 32)),
        device,
        ..Route::default()
    }
}

pub fn default_route(gateway: IpAddr, device: u32) -> Route {
    Route {
        gateway: Some(gateway),
        device,
        ..Route::default()
    }
}

pub fn neighbour(device: u32, state: &str) -> Neighbour {
    Neighbour {
        address: GATEWAY,
        device,
        mac: Some(String::from("ee:ee:ee:ee:00:07")),
        state: state.to_owned(),
    }
}

pub fn half_of_cri(seconds: i64, some: &[RuntimeSandbox]) -> Event {
    let mut event = cri(seconds, some);
    if let What::SandboxesListed { partial, .. } = &mut event.what {
        *partial = Some(String::from("no status of 1 sandbox"));
    }
    event
}
