use std::net::IpAddr;

use crate::{
    detect::{duplicate_address::View, facts::inner::is_inner},
    testing::Node,
};
use event::finding::Finding;
use event::forwarding::{Forwarding, MAIN_TABLE, PolicyRule, TableRoute};
use event::{
    Device, Event, Pod, RuntimeContainer, RuntimeSandbox, What,
    finding::{Holder, Rule, Severity, State},
    testing::*,
    wording::advice::command,
};

const DUPLICATE: Rule = Rule::DuplicateAddress;

/// Two namespaces with an address, and nothing on what they are plugged into.
fn bare_pair() -> Vec<Event> {
    vec![
        host(0),
        created(1, 100),
        created(2, 200),
        added(3, 100, 5),
        added(4, 200, 5),
    ]
}

/// The same, on one bridge.
fn pair() -> Vec<Event> {
    let mut story = bare_pair();
    story.extend(plugged(&[100, 200], &[BRIDGE, BRIDGE]));
    story
}

/// Indexes of devices of the host: two bridges, and no master at all.
const BRIDGE: u32 = 5;
const OTHER_BRIDGE: u32 = 6;
const ROUTED: u32 = 0;

fn device(index: u32, name: &str, kind: &str) -> Device {
    Device {
        index,
        name: name.to_owned(),
        kind: Some(kind.to_owned()),
        ..Device::default()
    }
}

/// Namespaces whose eth0 is a veth with the other end in a master on the host.
fn plugged(inodes: &[u32], masters: &[u32]) -> Vec<Event> {
    let mut hosts = vec![
        device(BRIDGE, "cni0", "bridge"),
        device(OTHER_BRIDGE, "br1", "bridge"),
        device(7, "blue", "vrf"),
        device(8, "red", "vrf"),
    ];
    let mut story = Vec::new();
    for (inode, master) in inodes.iter().zip(masters) {
        let end = inode + 1;
        story.push(devices(4, *inode, &[veth(3, "eth0", end)], &[], &[]));
        hosts.push(Device {
            master: Some(*master).filter(|master| *master != ROUTED),
            ..veth(end, "veth1", 3)
        });
    }
    story.push(devices(4, 1, &hosts, &[], &[]));
    story
}

/// Two namespaces with the same address on devices of a kind that are plugged
/// into nothing.
fn on(ifname: &str, kind: Option<&str>) -> usize {
    let mut story = pair();
    for event in &mut story {
        match &mut event.what {
            What::AddressAdded { address, .. } => {
                address.ifname = ifname.to_owned();
                address.link_kind = kind.map(str::to_owned);
            }
            What::NetnsDevices { netns, devices, .. } if *netns != ns(1) => {
                *devices = vec![device(3, ifname, kind.unwrap_or_default())];
            }
            _ => {}
        }
    }
    Node::of(&story).of_rule(5, DUPLICATE).len()
}

/// How bad it is that two namespaces have an address behind masters.
fn between(one: u32, other: u32) -> Option<Severity> {
    let mut story = pair();
    story.extend(plugged(&[100, 200], &[one, other]));
    let told = Node::of(&story).of_rule(5, DUPLICATE).pop();
    told.map(|(finding, _)| finding.severity)
}

#[test]
fn namespaces_that_share_many_addresses_are_one_finding_of_the_same_id() {
    let mut story = pair();
    let (first, _) = Node::of(&story).only(5, DUPLICATE, State::Open);
    assert_eq!(first.detail.address_count, None);
    // Earlier ones by number, later ones by time.
    let numbers = (0..4_u8).chain(6..100);
    for number in numbers.clone() {
        story.extend([added(6, 100, number), added(6, 200, number)]);
    }
    let (all, _) = Node::of(&story).only(7, DUPLICATE, State::Open);
    assert_eq!(all.id, first.id);
    assert_eq!(all.addresses[0], first.addresses[0]);
    let count = 1 + numbers.count();
    assert_eq!(all.detail.address_count, Some(count as u64));
    assert!(all.addresses.len() <= 64, "{}", all.addresses.len());
    let more = format!("and {} more are used by", count - 1);
    assert!(all.title.contains(&more), "{}", all.title);
}

#[test]
fn a_pod_whose_devices_are_not_read_yet_may_be_plugged_in_anywhere() {
    // The other's are: nobody calls the address its own.
    let mut story = bare_pair();
    story.extend(plugged(&[100], &[BRIDGE]));
    story.push(listed(5, &[pod("b", NEW, &[ip(5)])]));
    story.push(holders(5, 200, &[pod_task(8, "pause", NEW, "b")], &[]));
    let mut node = Node::of(&story);
    let (doubtful, _) = node.only(6, DUPLICATE, State::Open);
    let differ = |finding: &Finding| finding.title.contains("networks may differ");
    assert!(differ(&doubtful), "{}", doubtful.title);
    let unplaced = node.0.watched().unplaced.clone();
    assert!(unplaced.contains(&ns(200)), "its devices are to be read");
    let mut apart = Node::of(&story);
    node.tell_all(&plugged(&[100, 200], &[BRIDGE, BRIDGE]));
    let (certain, _) = node.only(7, DUPLICATE, State::Updated);
    assert!(!differ(&certain), "{}", certain.title);
    apart.tell_all(&plugged(&[100, 200], &[BRIDGE, OTHER_BRIDGE]));
    assert_eq!(apart.of_rule(7, DUPLICATE), []);
}

#[test]
fn what_others_share_hides_no_address_that_a_pod_is_called_by() {
    let mut story = pair();
    for number in (0..4).chain(6..100) {
        story.extend([added(3, 100, number), added(3, 200, number)]);
    }
    story.extend([added(3, 100, 200), added(3, 200, 200)]);
    assert!(!judges(&story, 200));
    let named = RuntimeSandbox {
        ips: vec![ip(200)],
        ..sandbox("other", 0, OLD)
    };
    story.push(cri(5, &[named]));
    assert!(judges(&story, 200));
}

/// Whether an address is looked at by itself.
fn judges(story: &[Event], number: u8) -> bool {
    let node = Node::of(story);
    let view = View::new(node.0.model(), node.0.settings(), s(6));
    view.shared().each.contains_key(&ip(number))
}

#[test]
fn holders_conflict_if_they_share_a_bridge_a_vrf_or_the_hosts_routing() {
    for place in [BRIDGE, 7, ROUTED] {
        assert_eq!(between(place, place), Some(Severity::Warning), "{place}");
    }
    for (one, other) in [
        (BRIDGE, OTHER_BRIDGE),
        (7, 8),
        (7, ROUTED),
        (BRIDGE, ROUTED),
    ] {
        assert_eq!(between(one, other), None, "{one} {other}");
    }
}

/// Two pods whose devices of a name have one address and end on the host, on no
/// bridge, with these routes of the host's and rules besides the kernel's.
fn behind_plain_veths(ifname: &str, routes: &[TableRoute], rules: &[PolicyRule]) -> Vec<Event> {
    let mut story = pair();
    story.extend(plugged(&[100, 200], &[ROUTED, ROUTED]));
    for event in &mut story {
        match &mut event.what {
            What::AddressAdded { address, .. } => address.ifname = ifname.to_owned(),
            What::NetnsDevices { netns, devices, .. } if *netns != ns(1) => {
                devices[0].name = ifname.to_owned();
            }
            _ => {}
        }
    }
    story.push(holders(5, 100, &[pod_task(7, "pause", OLD, "a")], &[]));
    story.push(holders(5, 200, &[pod_task(8, "pause", NEW, "b")], &[]));
    let tables = Forwarding {
        rules: kernels_rules().into_iter().chain(rules.to_vec()).collect(),
        routes: routes.to_vec(),
        ..Forwarding::default()
    };
    story.push(forwards(5, 1, &tables));
    story
}

/// The host-side veths of these.
const ENDS: [u32; 2] = [101, 201];

fn severity(story: &[Event]) -> Option<Severity> {
    let told = Node::of(story).of_rule(6, DUPLICATE).pop();
    told.map(|(finding, _)| finding.severity)
}

#[test]
fn behind_plain_veths_holders_conflict_if_one_table_leads_to_both() {
    let to = |table, end: usize| table_route(table, "10.0.0.5", ENDS[end]);
    let network = |table, to, end: usize| table_route(table, to, ENDS[end]);
    let of_tenant = |table| PolicyRule {
        priority: 50,
        iif: Some(format!("tenant{table}")),
        table,
        ..PolicyRule::default()
    };
    let for_all = PolicyRule {
        iif: None,
        to: Some((ip(0), 24)),
        ..of_tenant(201)
    };
    let tenants = [of_tenant(201), of_tenant(202)];
    let common = Some(Severity::Critical);
    let unknown = Some(Severity::Info);
    for (what, routes, rules, expected) in [
        (
            "main",
            vec![to(MAIN_TABLE, 0), to(MAIN_TABLE, 1)],
            vec![],
            common,
        ),
        (
            "a network and an address of it",
            vec![network(MAIN_TABLE, "10.0.0.0/24", 0), to(MAIN_TABLE, 1)],
            vec![],
            common,
        ),
        (
            "one tenant",
            vec![to(201, 0), to(201, 1)],
            tenants.to_vec(),
            common,
        ),
        (
            "main and a table for all",
            vec![to(MAIN_TABLE, 0), to(201, 1)],
            vec![for_all],
            common,
        ),
        (
            "two tenants",
            vec![to(201, 0), to(202, 1)],
            tenants.to_vec(),
            None,
        ),
        (
            "main and a tenant",
            vec![to(MAIN_TABLE, 0), to(202, 1)],
            tenants.to_vec(),
            None,
        ),
        ("nothing", vec![], vec![], unknown),
        (
            "nothing leads to one",
            vec![to(MAIN_TABLE, 0)],
            vec![],
            unknown,
        ),
        (
            "a default route",
            vec![to(MAIN_TABLE, 0), network(MAIN_TABLE, "0.0.0.0/0", 1)],
            vec![],
            unknown,
        ),
    ] {
        let mut story = behind_plain_veths("net1", &routes, &rules);
        assert_eq!(severity(&story), expected, "{what}");
        // Of what was not read it is not known.
        story.retain(|event| !matches!(event.what, What::NetnsForwarding { .. }));
        assert_eq!(severity(&story), unknown, "{what}");
    }
}

#[test]
fn the_address_of_a_pods_own_device_conflicts_wherever_it_is_routed() {
    let tenant = |table, end: usize| table_route(table, "10.0.0.5", ENDS[end]);
    for routes in [
        vec![],
        vec![tenant(MAIN_TABLE, 1)],
        vec![tenant(201, 0), tenant(202, 1)],
    ] {
        let story = behind_plain_veths("eth0", &routes, &[]);
        assert_eq!(severity(&story), Some(Severity::Critical), "{routes:?}");
    }
    // Not one that a pod has taken in addition, where nothing leads to it.
    let mut story = behind_plain_veths("eth0", &[], &[]);
    story.push(listed(
        6,
        &[pod("a", OLD, &[ip(8)]), pod("b", NEW, &[ip(9)])],
    ));
    let named = [(100, "a", OLD, 8), (200, "b", NEW, 9)];
    let named = named.map(|(inode, id, uid, last)| RuntimeSandbox {
        ips: vec![ip(last)],
        ..sandbox(id, inode, uid)
    });
    story.push(cri(6, &named));
    assert_eq!(severity(&story), Some(Severity::Info));
}

#[test]
fn a_bridge_with_an_address_is_part_of_the_hosts_routing() {
    let mut story = pair();
    story.extend(plugged(&[100, 200], &[BRIDGE, ROUTED]));
    let mut gateway = added(4, 1, 1);
    if let What::AddressAdded { address, .. } = &mut gateway.what {
        address.ifname = String::from("cni0");
        address.link_kind = Some(String::from("bridge"));
    }
    assert_eq!(Node::of(&story).tick(5), []);
    story.push(gateway);
    Node::of(&story).only(5, DUPLICATE, State::Open);
}

/// A pod, and a namespace of a user who numbers devices so that they look as if
/// they were plugged into the pod's bridge.
fn imitated(uid: u32) -> Vec<Event> {
    let mut story = pair();
    story[2] = of_user(created(2, 200), uid);
    let add = call("ADD", "a", 100, OLD, "a");
    story.extend([calls(4, add.clone()), ended(4, add)]);
    story
}

#[test]
fn what_a_user_has_made_is_nobodys_rival() {
    let (open, _) = Node::of(&imitated(65_534)).only(5, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Info);
    assert!(
        open.title.ends_with("a netns that user 65534 made"),
        "{}",
        open.title
    );
    assert_eq!(open.pod.unwrap().uid.as_deref(), Some(OLD));
    // Plugged into nothing, it is worth no word; nor are two such among themselves.
    let mut story = imitated(65_534);
    story.push(devices(5, 200, &[device(3, "eth0", "dummy")], &[], &[]));
    assert_eq!(Node::of(&story).of_rule(6, DUPLICATE), []);
    let mut story = pair();
    for (event, inode) in story[1..].iter_mut().zip([100, 200]) {
        *event = of_user(created(1, inode), 65_534);
    }
    assert_eq!(Node::of(&story).of_rule(6, DUPLICATE), []);
}

#[test]
fn a_pod_with_a_user_namespace_of_its_own_is_a_rival() {
    let mut story = imitated(0);
    let add = call("ADD", "b", 200, NEW, "b");
    story.extend([calls(4, add.clone()), ended(4, add)]);
    let (open, _) = Node::of(&story).only(5, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Critical);
}

#[test]
fn a_nameless_namespace_that_is_plugged_into_the_host_is_a_rival_whoever_made_it() {
    let of = |uid, host_nsid| {
        let mut story = imitated(uid);
        let inside = story.iter_mut().find(
            |event| matches!(&event.what, What::NetnsDevices { netns, .. } if *netns == ns(200)),
        );
        let inside = inside.unwrap();
        *inside = host_called(host_nsid, inside.clone());
        story
    };
    let plugged_in = |host_nsid| of(0, host_nsid);
    let severity = |story: &[Event]| Node::of(story).only(5, DUPLICATE, State::Open).0.severity;
    assert_eq!(severity(&imitated(0)), Severity::Info, "by its own numbers");
    assert_eq!(severity(&plugged_in(7)), Severity::Info, "in another one");
    let (open, _) = Node::of(&plugged_in(0)).only(5, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Warning);
    let has = |texts: &[String], word: &str| texts.iter().any(|text| text.contains(word));
    assert!(has(&open.unknown, "whose netns 200 is"), "{open:?}");
    assert!(!has(&open.advice, "nothing to do"), "{open:?}");
    // A pod with NET_ADMIN has given its device to a user.
    assert_eq!(severity(&of(65_534, 0)), Severity::Warning);
    assert_eq!(severity(&of(65_534, 7)), Severity::Info);
    // Where it is not known what it is plugged into, it may be one.
    let mut story = imitated(0);
    story.push(devices(5, 200, &[veth(9, "eth0", 99)], &[], &[]));
    let (open, _) = Node::of(&story).only(6, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Info);
    assert!(!has(&open.advice, "nothing to do"), "{open:?}");
    // The veth pair can be another's.
    let mut story = imitated(0);
    story.extend([
        found(5, 300),
        devices(5, 300, &[veth(3, "eth0", 201)], &[], &[]),
    ]);
    let told = Node::of(&story).of_rule(6, DUPLICATE);
    assert!(told.iter().all(|(it, _)| it.severity == Severity::Info));
}

#[test]
fn many_namespaces_of_users_are_one_finding_of_few_words() {
    let mut story = imitated(1_000);
    for inode in 300..400 {
        story.extend([of_user(created(5, inode), inode), added(5, inode, 5)]);
    }
    let (open, _) = Node::of(&story).only(6, DUPLICATE, State::Open);
    assert!(
        open.title.contains("in netns of more than 3 users"),
        "{}",
        open.title
    );
    assert!(open.title.len() < 200 && open.evidence.len() <= 6);
}

/// What a trace tells of users' namespaces in three minutes in which something
/// happens each second.
fn told_of_users(mut node: Node, each: impl Fn(i64) -> Vec<Event>) -> Vec<State> {
    let mut told = Vec::new();
    for second in 6..186 {
        for event in each(second) {
            node.tell(event);
        }
        let of_users = node.of_rule(second, DUPLICATE).into_iter();
        told.extend(of_users.map(|(_, state)| state));
    }
    told
}

#[test]
fn a_user_who_takes_and_leaves_many_addresses_of_pods_is_told_a_few_times() {
    let mut story = imitated(1_000);
    story.extend((10..250).map(|last| added(5, 100, last)));
    let flapping = told_of_users(Node::of(&story), |second| {
        let all = 10..250;
        match second % 2 {
            0 => all.map(|last| added(second, 200, last)).collect(),
            _ => all.map(|last| removed(second, 200, last)).collect(),
        }
    });
    assert!(flapping.len() <= 9, "{}", flapping.len());
    let gone = |second| match second {
        6 => vec![removed(6, 200, 5)],
        _ => Vec::new(),
    };
    let once = told_of_users(Node::of(&imitated(1_000)), gone);
    assert_eq!(once, [], "gone before it was looked at");
    let mut node = Node::of(&imitated(1_000));
    node.only(5, DUPLICATE, State::Open);
    assert_eq!(told_of_users(node, gone), [State::Resolved]);
}

#[test]
fn each_of_a_few_users_is_told_and_one_with_ever_new_ids_is_not_told_without_end() {
    let mut story = imitated(1_000);
    story.extend([of_user(created(4, 300), 1_001), added(4, 300, 5)]);
    let mut node = Node::of(&story);
    let told = node.of_rule(5, DUPLICATE);
    assert_eq!(told.len(), 2, "{told:?}");
    let ever_new = told_of_users(Node::of(&imitated(1_000)), |second| {
        let inode = 1_000 + second as u32;
        let mut events = vec![
            of_user(created(second, inode), inode),
            added(second, inode, 5),
        ];
        events.extend((second > 6).then(|| destroyed(second, inode - 1)));
        events
    });
    let opened = ever_new.iter().filter(|state| **state == State::Open);
    assert!((2..=16).contains(&opened.count()), "{ever_new:?}");
}

#[test]
fn who_shares_very_many_addresses_hides_no_address_of_others() {
    let mut story = pair();
    let shared = |inode, number: u32| {
        let mut event = added(4, inode, 0);
        if let What::AddressAdded { address, .. } = &mut event.what {
            address.address = std::net::Ipv4Addr::from_bits(0x0a01_0000 + number).into();
        }
        event
    };
    // Any two of them share one, so that no two sets of owners are the same.
    story.extend((300..370).map(|inode| created(4, inode)));
    let mut number = 0;
    for one in 300..370 {
        for other in one + 1..370 {
            story.extend([shared(one, number), shared(other, number)]);
            number += 1;
        }
    }
    // A greater one of two others.
    story.extend([removed(4, 100, 5), removed(4, 200, 5)]);
    story.extend([shared(100, 1 << 16), shared(200, 1 << 16)]);
    let mut node = Node::of(&story);
    let told = node.of_rule(5, DUPLICATE);
    let is_it = |finding: &Finding| finding.title.starts_with("10.2.0.0 is used by two");
    assert!(told.iter().any(|(finding, _)| is_it(finding)));
    let gap =
        |gap: &&String| gap.contains("addresses that are in several") && gap.contains("netns 3");
    assert_eq!(node.0.gaps().iter().filter(gap).count(), 1);
}

/// Two pods with an IPv6 address on two bridges, one of which has another at
/// this time.
fn on_bridges_with_an_address(of_bridge: Option<i64>, advertised: bool) -> Option<Severity> {
    let shared = |event: &mut Event, last: u16| {
        if let What::AddressAdded { address, .. } = &mut event.what {
            (address.address, address.prefix) = (v6(last), 64);
        }
    };
    let mut story = bare_pair();
    story.iter_mut().for_each(|event| shared(event, 5));
    story.extend(plugged(&[100, 200], &[BRIDGE, OTHER_BRIDGE]));
    for (number, name) in [(1, "cni0"), (2, "br1")] {
        let mut own = added(of_bridge.unwrap_or(3), 1, 1);
        shared(&mut own, number);
        if let What::AddressAdded { address, .. } = &mut own.what {
            (address.ifname, address.link_kind) = (name.into(), Some("bridge".into()));
        }
        story.push(own);
    }
    if let Some(What::NetnsDevices { devices, .. }) = story
        .iter_mut()
        .map(|event| &mut event.what)
        .find(|what| matches!(what, What::NetnsDevices { netns, .. } if *netns == ns(1)))
        && advertised
    {
        devices[0].advertised = vec![v6(1)];
    }
    let told = Node::of(&story).of_rule(6, DUPLICATE).pop();
    told.map(|(finding, _)| finding.severity)
}

fn v6(last: u16) -> IpAddr {
    IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last])
}

#[test]
fn an_address_that_a_pod_advertises_to_a_bridge_joins_it_to_no_network() {
    let (listed, later) = (Some(3), Some(5));
    assert_eq!(
        on_bridges_with_an_address(listed, false),
        Some(Severity::Warning)
    );
    assert_eq!(on_bridges_with_an_address(listed, true), None);
    // Who has made it is not known yet.
    assert_eq!(
        on_bridges_with_an_address(later, false),
        Some(Severity::Info)
    );
}

/// Two pods on two bridges, with what else the host has.
fn on_two_bridges(more: &[Device], bend: fn(&mut Device)) -> Option<Severity> {
    let mut story = pair();
    story.extend(plugged(&[100, 200], &[BRIDGE, OTHER_BRIDGE]));
    if let Some(What::NetnsDevices { devices, .. }) = story.last_mut().map(|it| &mut it.what) {
        devices.extend_from_slice(more);
        devices.iter_mut().for_each(bend);
    }
    let told = Node::of(&story).of_rule(5, DUPLICATE).pop();
    told.map(|(finding, _)| finding.severity)
}

#[test]
fn bridges_that_a_cable_joins_are_one_network() {
    let port = |index, peer, bridge| Device {
        master: Some(bridge),
        link_nsid: None,
        ..veth(index, "cable", peer)
    };
    let joined = [port(20, 21, BRIDGE), port(21, 20, OTHER_BRIDGE)];
    assert_eq!(on_two_bridges(&[], |_| {}), None);
    assert_eq!(on_two_bridges(&joined, |_| {}), Some(Severity::Warning));
}

#[test]
fn of_a_bridge_that_keeps_vlans_apart_it_is_not_known_who_meets_there() {
    let filters = |device: &mut Device| {
        let is_bridge = device.kind.as_deref() == Some("bridge");
        device.vlan_filtering = is_bridge;
        // All on one bridge.
        device.master = device.master.map(|_| BRIDGE);
    };
    assert_eq!(on_two_bridges(&[], filters), Some(Severity::Info));
}

#[test]
fn a_holder_of_the_parent_device_itself_meets_those_below_it() {
    // The node's uplink can be a veth: kind, LXC.
    let mut story = pair();
    story.retain(
        |event| !matches!(&event.what, What::AddressAdded { netns, .. } if *netns == ns(200)),
    );
    story.push(added(4, 1, 5));
    story.push(devices(5, 1, &[veth(2, "eth0", 77)], &[], &[]));
    story.push(devices(5, 200, &[veth(77, "outside", 2)], &[], &[]));
    let below = Device {
        link: Some(2),
        link_nsid: Some(0),
        ..device(3, "eth0", "macvlan")
    };
    story.push(devices(5, 100, &[below], &[], &[]));
    Node::of(&story).only(6, DUPLICATE, State::Open);
}

#[test]
fn holders_below_one_parent_device_conflict_and_below_two_they_do_not() {
    let below = |parents: [u32; 2]| {
        let mut story = pair();
        let hosts = [physical(2, "eth0"), physical(4, "eth1")];
        story.push(devices(5, 1, &hosts, &[], &[]));
        for (inode, parent) in [100, 200].into_iter().zip(parents) {
            let net1 = Device {
                link: Some(parent),
                link_nsid: Some(0),
                ..device(3, "eth0", "macvlan")
            };
            story.push(devices(5, inode, &[net1], &[], &[]));
        }
        Node::of(&story).of_rule(6, DUPLICATE).len()
    };
    assert_eq!((below([2, 2]), below([2, 4])), (1, 0));
}

#[test]
fn the_parent_of_a_device_is_in_the_namespace_that_a_cable_of_the_same_number_leads_to() {
    // Two nodes in containers, whose eth0 has the number of the host's.
    let mut story = pair();
    let mut hosts = vec![physical(2, "eth0")];
    for (node, inode, end) in [(10, 100, 50), (20, 200, 51)] {
        let own = [veth(2, "eth0", end), veth(end + 10, "veth0", 3)];
        story.extend([found(1, node), devices(5, node, &own, &[], &[])]);
        hosts.push(veth(end, "veth1", 2));
        let net1 = Device {
            link: Some(2),
            ..veth(4, "net1", 2)
        };
        let net1 = Device {
            kind: Some(String::from("macvlan")),
            ..net1
        };
        let its = [veth(3, "eth0", end + 10), net1];
        story.push(devices(5, inode, &its, &[], &[]));
    }
    story.push(devices(5, 1, &hosts, &[], &[]));
    for event in &mut story {
        if let What::AddressAdded { address, .. } = &mut event.what {
            address.ifname = String::from("net1");
        }
    }
    assert_eq!(Node::of(&story).of_rule(6, DUPLICATE), []);
}

#[test]
fn a_device_that_is_missing_on_a_list_is_plugged_in_somewhere_unknown() {
    // It came, or was given another name, after the list was made.
    for its in [vec![], vec![veth(3, "renamed", 101)]] {
        let mut story = pair();
        story.push(devices(5, 100, &its, &[], &[]));
        let mut node = Node::of(&story);
        let (open, _) = node.only(6, DUPLICATE, State::Open);
        assert_eq!(open.severity, Severity::Info);
        assert!(node.0.watched().unplaced.contains(&ns(100)));
    }
}

#[test]
fn which_partition_of_an_infiniband_port_a_device_is_in_is_not_known() {
    let mut story = pair();
    for inode in [100, 200] {
        let its = Device {
            link: Some(2),
            link_nsid: Some(0),
            ..device(3, "eth0", "ipoib")
        };
        story.push(devices(5, inode, &[its], &[], &[]));
    }
    let (open, _) = Node::of(&story).only(6, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Info);
}

#[test]
fn a_netkit_is_a_cable_like_a_veth() {
    let mut story = pair();
    story.extend(plugged(&[100, 200], &[ROUTED, ROUTED]));
    for event in &mut story {
        if let What::NetnsDevices { devices, .. } = &mut event.what {
            let ends = devices.iter_mut().filter(|device| device.is_veth());
            ends.for_each(|end| end.kind = Some(String::from("netkit")));
        }
    }
    let (open, _) = Node::of(&story).only(5, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Warning);
}

#[test]
fn where_the_network_is_not_known_nothing_worse_than_info_is_said() {
    let mut story = pair();
    story.retain(|event| !matches!(event.what, What::NetnsDevices { .. }));
    let mut node = Node::of(&story);
    let (open, _) = node.only(5, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Info);
    let doubt = |text: &String| text.contains("whether they share a network");
    assert!(open.unknown.iter().any(doubt), "{:?}", open.unknown);
    let unplaced = &node.0.watched().unplaced;
    assert_eq!(
        unplaced.len(),
        2,
        "what they are plugged into is to be read"
    );
    node.tell_all(&plugged(&[100, 200], &[BRIDGE, OTHER_BRIDGE]));
    node.only(6, DUPLICATE, State::Resolved);
}

#[test]
fn the_addresses_that_pods_are_reached_by_are_in_one_network() {
    let mut story = vec![host(0)];
    for (inode, uid, name) in [(100, OLD, "a"), (200, NEW, "b")] {
        let add = call("ADD", name, inode, uid, name);
        story.extend([created(1, inode), calls(2, add), added(3, inode, 5)]);
    }
    let (open, _) = Node::of(&story).only(5, DUPLICATE, State::Open);
    assert_eq!(
        open.severity,
        Severity::Critical,
        "before anything is wired"
    );
    // A second network's device.
    for event in &mut story {
        if let What::AddressAdded { address, .. } = &mut event.what {
            address.ifname = String::from("net1");
        }
    }
    let (open, _) = Node::of(&story).only(5, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Info);
}

#[test]
fn the_address_of_a_tunnel_of_the_node_is_no_pods() {
    let story = |holder: u32| {
        let mut tunnel = added(1, holder, 5);
        if let What::AddressAdded { address, .. } = &mut tunnel.what {
            address.ifname = String::from("tunl0");
            address.link_kind = Some(String::from("ipip"));
        }
        let mut story = vec![host(0), created(1, 100), created(1, 200), tunnel];
        story.push(added(2, 200, 5));
        story.extend(plugged(&[100, 200], &[ROUTED, ROUTED]));
        story.push(holders(3, 200, &[pod_task(20, "pause", NEW, "b")], &[]));
        story
    };
    let (open, _) = Node::of(&story(1)).only(5, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Critical);
    assert_eq!(
        Node::of(&story(100)).of_rule(5, DUPLICATE),
        [],
        "another's VPN"
    );
}

#[test]
fn a_sandbox_that_has_its_pods_address_twice_is_none_that_the_pod_made() {
    // Attempt 0 stays behind with the address that attempt 1 has again.
    let mut story = pair();
    let again = call("ADD", "sandbox-new", 200, OLD, "a");
    story.insert(4, calls(2, again));
    story.push(holders(5, 100, &[pod_task(9, "app", OLD, "app-old")], &[]));
    story.push(listed(6, &[pod("a", OLD, &[ip(5)])]));
    let (open, _) = Node::of(&story).only(7, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Critical);
}

#[test]
fn an_address_that_the_kernel_does_not_show_is_the_pods_all_the_same() {
    // gVisor takes the address off eth0 and answers for it itself.
    let mut story = pair();
    story.retain(|event| {
        !matches!(&event.what,
        What::AddressAdded { netns, .. } if *netns == ns(100))
    });
    let mut its = sandbox("sandbox-a", 100, OLD);
    its.ips = vec![ip(5)];
    story.push(cri(5, &[its.clone()]));
    story.push(holders(6, 200, &[pod_task(20, "pause", NEW, "b")], &[]));
    let (open, _) = Node::of(&story).only(7, DUPLICATE, State::Open);
    let doubt = |text: &String| text.contains("no device there has it");
    assert!(open.unknown.iter().any(doubt), "{:?}", open.unknown);
    // That it has another network's, or one of its own making, changes nothing.
    let mut net1 = added(6, 100, 77);
    if let What::AddressAdded { address, .. } = &mut net1.what {
        address.ifname = String::from("net1");
    }
    let (open, _) = Node::of(&[&story[..], &[net1]].concat()).only(7, DUPLICATE, State::Open);
    assert_eq!(open.addresses, [ip(5)]);
    // What has lost its device has lost the address.
    story.push(devices(6, 100, &[], &[], &[]));
    assert_eq!(Node::of(&story).of_rule(7, DUPLICATE), []);
}

#[test]
fn a_pod_is_named_for_deletion_only_if_it_is_known_to_be_the_wrong_one() {
    let lost = |story: &mut Vec<Event>| {
        let cause = String::from("ring-full");
        story.push(at(6, What::EventsLost { cause, count: 1 }));
    };
    let nothing = |_: &mut Vec<Event>| {};
    let named = |found: bool,
                 made: [Option<i64>; 2],
                 reserved_for: Option<&str>,
                 more: &dyn Fn(&mut Vec<Event>)| {
        let mut story = pair();
        let mut times = made.into_iter();
        for event in &mut story {
            if let What::AddressAdded { found: f, made, .. } = &mut event.what {
                *f = found;
                *made = times.next().flatten().map(s);
            }
        }
        for (inode, uid, id) in [(100, OLD, "sandbox-a"), (200, NEW, "sandbox-b")] {
            story.push(holders(6, inode, &[pod_task(inode, "pause", uid, id)], &[]));
        }
        story.push(listed(
            6,
            &[pod("a", OLD, &[ip(5)]), pod("b", NEW, &[ip(5)])],
        ));
        let of = |id: &str, inode, uid: &str, name: &str| {
            let mut its = sandbox(id, inode, uid);
            its.pod.name = Some(name.to_owned());
            its
        };
        let one = of("sandbox-a", 100, OLD, "a");
        story.push(cri(5, &[one, of("sandbox-b", 200, NEW, "b")]));
        for event in &mut story {
            if let What::PodsListed { whole, .. } = &mut event.what {
                *whole = true;
            }
        }
        story.extend(reserved_for.map(|id| reserved(6, Some(id))));
        more(&mut story);
        let (open, _) = Node::of(&story).only(7, DUPLICATE, State::Open);
        let mut commands = open.advice.iter().filter_map(|step| command(step));
        let delete = "kubectl delete pod ";
        commands.find_map(|it| Some(it.command.strip_prefix(delete)?.to_owned()))
    };
    assert_eq!(named(true, [None, None], None, &nothing), None);
    assert_eq!(
        named(true, [Some(-9), Some(-5)], None, &nothing),
        None,
        "a guess"
    );
    assert_eq!(named(false, [None, None], None, &nothing), None, "a guess");
    let b = Some(String::from("-n shop b"));
    assert_eq!(named(true, [None, None], Some("sandbox-a"), &nothing), b);
    assert_eq!(
        named(true, [Some(-9), Some(-5)], Some("sandbox-a"), &nothing),
        b
    );
    let a_third = named(true, [None, None], Some("sandbox-a"), &lost);
    assert_eq!(a_third, None, "what was lost may have told of a third");
    let a = Some(String::from("-n shop a"));
    assert_eq!(named(false, [None, None], Some("sandbox-b"), &nothing), a);
}

#[test]
fn the_same_address_twice_is_told_until_one_goes() {
    for end in [removed(9, 100, 5), dying(9, 100), destroyed(9, 200)] {
        let mut node = Node::of(&pair());
        let (open, _) = node.only(5, DUPLICATE, State::Open);
        assert_eq!((open.severity, open.since), (Severity::Warning, s(4)));
        assert_eq!(open.addresses, [ip(5)]);
        assert_eq!(open.title, "10.0.0.5 is used by two unknown netns");
        assert_eq!(node.tick(8), []);
        node.tell(end);
        assert_eq!(node.only(9, DUPLICATE, State::Resolved).0.id, open.id);
    }
}

#[test]
fn it_is_critical_if_two_pods_have_it() {
    let mut story = pair();
    let new = [pod_task(20, "pause", NEW, "sandbox-new")];
    story.push(holders(5, 200, &new, &[]));
    let (open, _) = Node::of(&story).only(6, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Warning, "the other is nobody's");
    story.push(holders(
        5,
        100,
        &[pod_task(10, "pause", OLD, "sandbox-old")],
        &[],
    ));
    let (open, _) = Node::of(&story).only(6, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Critical);
    assert_eq!(open.pod.unwrap().uid.as_deref(), Some(NEW));
    assert!(
        open.unknown
            .iter()
            .any(|unknown| unknown.contains("still exists"))
    );
}

#[test]
fn what_keeps_a_namespace_without_tasks_and_mounts_is_told_or_unknown() {
    let mut story = pair();
    story.push(held_by_fds(5, 100, &[leaked_fd(3)]));
    story.push(held_by_fds(5, 200, &[]));
    let (open, _) = Node::of(&story).only(6, DUPLICATE, State::Open);
    let fd = "descriptor 3 of cni-daemon (77)";
    assert_eq!(open.title, "10.0.0.5 is used by two unknown netns");
    assert!(
        open.evidence
            .iter()
            .any(|claim| claim.claim.ends_with(&format!("{fd} holds it open")))
    );
    assert_eq!(
        open.unknown,
        [
            format!("whose netns 100 ({fd}) is").as_str(),
            "what holds netns 200 open: no task, mount or descriptor was found; a socket can do it",
            "whose netns 200 is"
        ]
    );
}

#[test]
fn addresses_that_are_shared_on_purpose_do_not_count() {
    for kind in ["bridge", "dummy", "tun", "wireguard", "ipip"] {
        assert_eq!(on("x0", Some(kind)), 0, "{kind}");
    }
    assert_eq!(on("lo", None), 0);
}

#[test]
fn the_hosts_own_addresses_count() {
    let mut story = vec![host(0), created(1, 100), added(2, 1, 5), added(3, 100, 5)];
    story.extend(plugged(&[100], &[ROUTED]));
    let mut node = Node::of(&story);
    let (open, _) = node.only(4, DUPLICATE, State::Open);
    assert!(open.title.contains("the host and "), "{}", open.title);
}

#[test]
fn one_namespace_with_an_address_on_two_devices_is_no_duplicate() {
    let mut again = added(4, 100, 5);
    if let What::AddressAdded { address, .. } = &mut again.what {
        address.ifname = String::from("eth1");
    }
    let mut node = Node::of(&[created(1, 100), added(3, 100, 5), again]);
    assert_eq!(node.tick(5), []);
}

#[test]
fn three_are_one_finding() {
    let mut story = pair();
    story.extend([created(4, 300), added(5, 300, 5)]);
    story.extend(plugged(&[100, 200, 300], &[BRIDGE, BRIDGE, BRIDGE]));
    let (open, _) = Node::of(&story).only(6, DUPLICATE, State::Open);
    assert!(open.title.contains("is used by 3 netns"), "{}", open.title);
    assert_eq!(open.netns.unwrap().id, ns(300), "the newest");
}

#[test]
fn a_running_del_is_given_a_moment() {
    let add = call("ADD", "sandbox-old", 100, OLD, "a");
    let del = call("DEL", "sandbox-old", 100, OLD, "a");
    let mut story = pair();
    story.insert(2, calls(2, add));
    story.push(calls(5, del.clone()));
    let mut node = Node::of(&story);
    assert_eq!(node.tick(6), []);
    node.only(15, DUPLICATE, State::Open);
    let mut node = Node::of(&story);
    node.tell(ended(7, del.clone()));
    assert_eq!(
        node.tick(7),
        [],
        "the next plugin of the list is on its way"
    );
    node.only(8, DUPLICATE, State::Open);
    let mut node = Node::of(&story);
    node.tell(failed(7, del, "no such file"));
    node.only(7, DUPLICATE, State::Open);
}

#[test]
fn namespaces_that_pods_made_for_themselves_do_not_count() {
    let mut story = bare_pair();
    story.push(listed(
        5,
        &[pod("a", OLD, &[ip(77)]), pod("b", NEW, &[ip(78)])],
    ));
    story.push(holders(6, 100, &[pod_task(20, "dind", OLD, "a")], &[]));
    story.push(holders(6, 200, &[pod_task(30, "dind", NEW, "b")], &[]));
    assert_eq!(Node::of(&story).tick(7), []);
}

#[test]
fn a_ghost_among_the_owners_is_named() {
    let mut node = Node::of(&ghost_story());
    node.tell_all(&successor(64));
    let (open, _) = node.only(67, DUPLICATE, State::Open);
    assert_eq!(
        open.title,
        "10.0.0.5 is used by a deleted pod and another pod"
    );
    assert!(
        open.advice
            .iter()
            .any(|advice| advice.contains("is a ghost"))
    );
    assert!(
        open.evidence
            .iter()
            .any(|claim| claim.claim.contains("checkout-api (9), in state D in request_wait_answer, holds netns 100 of the deleted pod shop/checkout-x8k2p open"))
    );
    assert_eq!(
        open.pod.unwrap().uid.as_deref(),
        Some(NEW),
        "the one that suffers"
    );
}

#[test]
fn what_is_left_of_a_pod_is_told_before_what_suffers_whichever_was_found_first() {
    let old = [pod_task(9, "app", OLD, "app-old")];
    let new = [pod_task(20, "pause", NEW, "sandbox-new")];
    let elsewhere = Pod {
        namespace: String::from("kube-system"),
        ..pod("other", OTHER, &[])
    };
    let living = [elsewhere, pod("b", NEW, &[])];
    let story = [
        host(0),
        found(0, 200),
        found(0, 100),
        added(0, 200, 5),
        added(0, 100, 5),
        holders(0, 200, &new, &[]),
        holders(0, 100, &old, &[]),
        listed(5, &living),
    ];
    let story = [&story[..], &plugged(&[100, 200], &[BRIDGE, BRIDGE])].concat();
    let (open, _) = Node::of(&story).only(6, DUPLICATE, State::Open);
    let title = "by a deleted and a running pod";
    assert!(open.title.ends_with(title), "{}", open.title);
    assert_eq!(open.netns.unwrap().id, ns(200), "the one that suffers");
    let pids: Vec<u32> = open
        .holders
        .iter()
        .filter_map(|holder| match holder {
            Holder::Task { pid, .. } => Some(*pid),
            _ => None,
        })
        .collect();
    assert_eq!(pids, [9, 20]);
    let claims: Vec<&str> = open
        .evidence
        .iter()
        .map(|claim| claim.claim.as_str())
        .filter(|claim| claim.contains(" holds "))
        .collect();
    let of_old = format!("app (9) holds netns 100 of the deleted pod {OLD} open");
    assert_eq!(
        claims,
        [of_old.as_str(), "pause (20) holds netns 200 of shop/b open"]
    );
}

/// Docker in docker: a pod's own namespace with the address that every such
/// pod has.
#[test]
fn what_only_a_cgroup_ties_to_a_pod_that_has_its_sandbox_elsewhere_does_not_count() {
    let inner = |inode: u32, uid: &str| {
        let tasks = [pod_task(inode, "app", uid, "inner")];
        [
            found(1, inode),
            added(1, inode, 77),
            holders(1, inode, &tasks, &[]),
        ]
    };
    let outer = |inode: u32, uid: &str, id: &str, last: u8| {
        let attachment = event::Attachment {
            pod: Some(event::PodRef {
                uid: Some(uid.to_owned()),
                ..event::PodRef::default()
            }),
            ..attachment(id, Some(inode), last, 0)
        };
        let events = [
            found(1, inode),
            added(1, inode, last),
            holders(1, inode, &[pod_task(inode, "pause", uid, id)], &[]),
        ];
        (events, attachment)
    };
    let (a, cached_a) = outer(100, OLD, "sandbox-a", 5);
    let (b, cached_b) = outer(200, NEW, "sandbox-b", 6);
    let pods = [a, b, inner(300, OLD), inner(400, NEW)].concat();
    let twice = |story: &[Event]| Node::of(story).of_rule(9, Rule::DuplicateAddress).len();
    assert_eq!(twice(&pods), 1, "nothing tells them from sandboxes");
    let cached = attached(2, &[cached_a, cached_b]);
    assert_eq!(twice(&[pods, vec![cached]].concat()), 0);
}

/// Of such a pod only cgroups tell: the sandbox is cabled to the host, too.
#[test]
fn a_sandbox_with_a_cable_to_what_its_pod_made_is_not_inside() {
    let end = |inode, devices_: &[Device]| devices(2, inode, devices_, &[], &[]);
    let tasks = |inode: u32| [pod_task(inode, "app", OLD, "app")];
    let story = [
        host(0),
        found(1, 100),
        found(1, 200),
        added(1, 100, 5),
        added(1, 200, 77),
        holders(1, 100, &tasks(100), &[]),
        holders(1, 200, &tasks(200), &[]),
        end(1, &[veth(9, "veth1", 2)]),
        end(100, &[veth(2, "eth0", 9), veth(4, "veth2", 3)]),
        end(200, &[veth(3, "eth0", 4)]),
    ];
    let node = Node::of(&story);
    let view = View::new(node.0.model(), node.0.settings(), s(2));
    let inner = |inode| is_inner(&view, view.model.netns.get(ns(inode)).unwrap());
    assert_eq!((inner(100), inner(200)), (false, true));
}

#[test]
fn a_vlan_on_a_pods_own_device_can_be_another_pods() {
    let mut story = pair();
    for inode in [100, 200] {
        let parent = Device {
            link: Some(2),
            link_nsid: Some(0),
            ..device(2, "net1", "macvlan")
        };
        let tagged = Device {
            link: Some(2),
            ..device(3, "eth0", "vlan")
        };
        story.push(devices(5, inode, &[parent, tagged], &[], &[]));
    }
    let (open, _) = Node::of(&story).only(6, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Info);
}

/// The pod's new sandbox has another address than the old one, which a task
/// keeps: the API server's answer is about the new one.
fn replaced(old: Event) -> Vec<Event> {
    let ours = pod("checkout-x8k2p", OLD, &[ip(6)]);
    let theirs = pod("checkout-q4w7z", NEW, &[ip(5)]);
    let again = call("ADD", "sandbox-new", 200, OLD, "checkout-x8k2p");
    let other = call("ADD", "sandbox-other", 300, NEW, "checkout-q4w7z");
    vec![
        host(0),
        found(1, 100),
        added(1, 100, 5),
        holders(1, 100, &[pod_task(9, "app", OLD, "app-old")], &[]),
        old,
        stuck(10, 9, 100),
        created(20, 200),
        calls(20, again),
        added(21, 200, 6),
        listed(25, &[ours, theirs]),
        created(30, 300),
        calls(30, other),
        added(31, 300, 5),
    ]
}

#[test]
fn the_sandbox_that_a_pod_had_before_is_not_one_that_it_made_for_itself() {
    let by_container = RuntimeSandbox {
        netns: None,
        containers: vec![RuntimeContainer {
            id: String::from("app-old"),
            ..RuntimeContainer::default()
        }],
        ..sandbox("sandbox-old", 100, OLD)
    };
    let ways = [
        attached(2, &[attachment("sandbox-old", Some(100), 5, 0)]),
        cri(2, &[sandbox("sandbox-old", 100, OLD)]),
        cri(2, &[by_container]),
    ];
    for old in ways {
        let mut node = Node::of(&replaced(old));
        let (open, _) = node.only(40, DUPLICATE, State::Open);
        assert_eq!((open.severity, open.since), (Severity::Critical, s(31)));
        assert_eq!(open.title, "10.0.0.5 is used by two running pods");
        node.tell(listed(50, &[pod("checkout-q4w7z", NEW, &[ip(5)])]));
        let (ghost, _) = node.only(51, Rule::GhostSandbox, State::Open);
        assert_eq!(ghost.netns.unwrap().id, ns(100));
    }
}

/// The runtime does not say where its sandboxes are: the tasks that tie a
/// namespace to one are in the pod's own, too.
#[test]
fn what_a_runtime_knows_by_a_container_alone_may_be_the_pods_own() {
    let of = |id: &str, uid: &str, container: &str| RuntimeSandbox {
        netns: None,
        containers: vec![RuntimeContainer {
            id: container.to_owned(),
            ..RuntimeContainer::default()
        }],
        ..sandbox(id, 0, uid)
    };
    let mut story = bare_pair();
    story.extend([
        listed(5, &[pod("a", OLD, &[ip(77)]), pod("b", NEW, &[ip(78)])]),
        cri(5, &[of("sandbox-a", OLD, "a"), of("sandbox-b", NEW, "b")]),
        holders(6, 100, &[pod_task(20, "dind", OLD, "a")], &[]),
        holders(6, 200, &[pod_task(30, "dind", NEW, "b")], &[]),
    ]);
    assert_eq!(Node::of(&story).of_rule(7, DUPLICATE), []);
}

/// Pod OLD's sandbox gets an IPv6 address, which the kernel refuses.
fn refused(is_named: bool) -> Vec<Event> {
    let mut story = vec![
        host(0),
        created(1, 100),
        added(2, 100, 5),
        refuse(added(4, 100, 0)),
    ];
    if is_named {
        let named = RuntimeSandbox {
            ips: vec![ip(5), IPV6],
            ..sandbox("a", 100, OLD)
        };
        story.push(cri(5, &[named]));
    }
    story
}

const IPV6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5));

fn refuse(mut event: Event) -> Event {
    if let What::AddressAdded { address, .. } = &mut event.what {
        address.address = IPV6;
        address.dad = Some(event::Dad::Failed);
    }
    event
}

#[test]
fn an_address_that_another_host_on_the_link_has_is_a_duplicate() {
    let (open, _) = Node::of(&refused(true)).only(6, DUPLICATE, State::Open);
    assert_eq!(open.severity, Severity::Critical);
    assert_eq!(open.addresses, [IPV6]);
    let claims = open.evidence.iter().map(|each| &each.claim);
    assert_eq!(
        claims.filter(|claim| claim.contains("DAD failed")).count(),
        1
    );
    let (unnamed, _) = Node::of(&refused(false)).only(6, DUPLICATE, State::Open);
    assert_eq!(unnamed.severity, Severity::Warning);
}

#[test]
fn one_that_is_only_tentative_or_found_free_since_is_none() {
    let mut story = refused(true);
    let again = |dad| {
        let mut event = refuse(added(6, 100, 0));
        if let What::AddressAdded { address, .. } = &mut event.what {
            address.dad = dad;
        }
        event
    };
    for dad in [None, Some(event::Dad::Tentative)] {
        story.push(again(dad));
        assert_eq!(Node::of(&story).of_rule(7, DUPLICATE), []);
    }
    story.push(again(Some(event::Dad::Failed)));
    Node::of(&story).only(7, DUPLICATE, State::Open);
}

#[test]
fn the_kernels_word_is_evidence_where_the_other_namespace_is_known() {
    let mut story = refused(true);
    story.extend([created(2, 200), refuse(added(4, 200, 0))]);
    if let Some(What::AddressAdded { address, .. }) = story.last_mut().map(|last| &mut last.what) {
        address.dad = None;
    }
    story.extend(plugged(&[100, 200], &[BRIDGE, BRIDGE]));
    let (open, _) = Node::of(&story).only(6, DUPLICATE, State::Open);
    assert_eq!(
        open.id,
        Node::of(&story).only(6, DUPLICATE, State::Open).0.id
    );
    assert!(open.title.contains("is used by"), "{}", open.title);
    let mut claims = open.evidence.iter().map(|each| &each.claim);
    assert!(claims.any(|claim| claim.contains("DAD failed")));
}

#[test]
fn a_users_namespace_refuses_whatever_it_likes() {
    let mut story = refused(false);
    story[1] = of_user(created(1, 100), 65_534);
    assert_eq!(Node::of(&story).of_rule(6, DUPLICATE), []);
}
