//! A host with one veth that leads nowhere, among others that do not.

use crate::detect::{View, orphan_veth};
use crate::testing::Node;
use event::{
    Device, Event, Route, What,
    finding::{Finding, Rule, Severity},
    testing::*,
    wording::advice::command,
};

const NOW: i64 = 1_000;
const CALI: &str = "cali9118ebbb10b";

fn all(story: &[Event]) -> Vec<Finding> {
    let told = Node::of_looks(story).of_rule(NOW, Rule::OrphanVeth);
    told.into_iter().map(|(finding, _)| finding).collect()
}

fn gap(story: &[Event]) -> Option<String> {
    let node = Node::of_looks(story);
    let settings = crate::Settings {
        boot_id: "boot".into(),
        node: "node-1".into(),
        node_is_named: true,
        stall_threshold: std::time::Duration::from_secs(5),
        surveyed: true,
    };
    orphan_veth::gap(&View::new(node.0.model(), &settings, s(NOW)))
}

/// The host's address on a device, which only root can have given it.
fn addressed(name: &str) -> Event {
    let mut event = added(5, 1, 1);
    if let What::AddressAdded { address, .. } = &mut event.what {
        address.ifname = name.into();
    }
    event
}

/// The host with a pod's end (8) and another device; a pod at the other end
/// of the first.
fn node(other: Device, routes: &[Route]) -> Vec<Event> {
    let of_pod = veth(8, "cali0123456789a", 3);
    vec![
        host(0),
        found(1, 100),
        added(2, 100, 5),
        devices(5, 1, &[of_pod, other], routes, &[]),
        devices(5, 100, &[veth(3, "eth0", 8)], &[], &[]),
    ]
}

#[test]
fn a_host_end_whose_peer_is_nowhere_is_an_orphan() {
    let [found] = &all(&node(veth(9, CALI, 3), &[]))[..] else {
        panic!()
    };
    assert_eq!(found.severity, Severity::Info);
    assert_eq!(found.title, "veth cali9118ebbb10b leads to no pod");
    assert!(found.addresses.is_empty());
    assert!(
        found
            .advice
            .last()
            .unwrap()
            .starts_with("ip link del dev cali9118ebbb10b    # ")
    );
}

#[test]
fn what_is_in_another_namespace_is_looked_at_and_removed_there() {
    let mut story = node(veth(8, "cali0123456789a", 3), &[]);
    story.push(found(6, 300));
    story.push(devices(6, 300, &[veth(9, CALI, 77)], &[], &[]));
    let commands = |story: &[Event]| -> Vec<String> {
        let [found] = &all(story)[..] else { panic!() };
        let commands = found.advice.iter().filter_map(|step| command(step));
        commands.map(|it| it.command.to_owned()).collect()
    };
    assert_eq!(commands(&story), Vec::<String>::new(), "there is no way in");
    story.push(holders(7, 300, &[], &["/run/netns/blue"]));
    let way = "nsenter --net=/run/netns/blue ";
    let is_there = |command: &String| command.starts_with(way) && command.ends_with(CALI);
    assert!(commands(&story).iter().all(is_there));
    assert_eq!(commands(&story).len(), 3);
}

#[test]
fn a_path_in_a_containers_root_is_the_last_way_in() {
    let containers = "/proc/7/root/run/netns/blue";
    let ways = [
        (
            &[][..],
            &[containers, "/run/netns/blue"][..],
            "/run/netns/blue",
        ),
        (&[task(7, "nginx")], &[containers], "/proc/7/ns/net"),
        (&[], &[containers], containers),
    ];
    for (tasks, mounts, way) in ways {
        let mut story = node(veth(8, "cali0123456789a", 3), &[]);
        story.push(found(6, 300));
        story.push(devices(6, 300, &[veth(9, CALI, 77)], &[], &[]));
        story.push(holders(7, 300, tasks, mounts));
        let [found] = &all(&story)[..] else { panic!() };
        let way = format!("nsenter --net={way} ");
        let removes = found.advice.last().unwrap();
        assert!(removes.starts_with(&way), "{removes}");
    }
}

#[test]
fn traffic_that_still_goes_there_makes_it_worse() {
    let [found] = &all(&node(veth(9, CALI, 3), &[route_to(5, 9), route_to(6, 8)]))[..] else {
        panic!()
    };
    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(found.addresses, [ip(5)]);
    assert!(found.title.ends_with("10.0.0.5 is still routed to it"));
    let astray = &found.evidence.last().unwrap().claim;
    assert!(astray.starts_with("netns 100 has 10.0.0.5"), "{astray}");

    let bridge = Device {
        index: 4,
        name: "cni0".into(),
        kind: Some("bridge".into()),
        ..Device::default()
    };
    let port = Device {
        master: Some(4),
        ..veth(9, "veth1a2b3c4d", 3)
    };
    let mut story = node(port, &[]);
    if let What::NetnsDevices { devices, .. } = &mut story[3].what {
        devices.push(bridge);
    }
    story.push(addressed("cni0"));
    let [found] = &all(&story)[..] else { panic!() };
    assert_eq!(found.severity, Severity::Warning);
    assert!(found.title.ends_with("; still a port of cni0"));
}

#[test]
fn only_names_that_cni_plugins_give_count() {
    let is = |name: &str| !all(&node(veth(9, name, 3), &[])).is_empty();
    for name in [
        CALI,
        "eni0a1b2c3d4e5",
        "lxc0123456789ab",
        "veth1a2b3c4d",
        "azv0123456789a",
        "gke0123456789a",
        "vethwepl1a2b3c4",
        "0a1b2c3d4e5f_h",
        "0a1b2c3d4e5f6a7",
    ] {
        assert!(is(name), "{name}");
    }
    for name in [
        "veth1a2b3c4",
        "veth0",
        "vethblue",
        "cali",
        "calicoctl",
        "lxc_health",
        "lxcbr0",
        "ve-web",
        "nginx-1a2b3c",
        "blue",
    ] {
        assert!(!is(name), "{name}");
    }
    let vlan = Device {
        kind: Some("vlan".into()),
        ..veth(9, CALI, 3)
    };
    assert_eq!(all(&node(vlan, &[])), []);
}

#[test]
fn peers_agree_on_both_indices() {
    // Another namespace has a device of that index, with another peer.
    let mut story = node(veth(9, CALI, 3), &[]);
    assert_eq!(all(&story).len(), 1);
    story.push(found(6, 200));
    story.push(devices(6, 200, &[veth(3, "eth0", 9)], &[], &[]));
    assert_eq!(all(&story), []);
}

#[test]
fn while_a_namespace_is_unread_nothing_is_said() {
    let mut story = node(veth(9, CALI, 3), &[]);
    assert_eq!(gap(&story), None);
    story.push(found(6, 200));
    assert_eq!(all(&story), []);
    let told = gap(&story).unwrap();
    assert!(told.contains("of 1 network namespace could"), "{told}");
    // It is being taken down, and its end of the veth pair with it.
    story.push(dying(7, 200));
    assert_eq!(all(&story), []);
    story.push(destroyed(8, 200));
    assert_eq!(all(&story).len(), 1);
    // No devices were ever listed: nothing to say, nothing to miss.
    assert_eq!(gap(&[host(0), found(1, 100)]), None);
}

#[test]
fn a_peer_in_a_namespace_that_is_dying_is_not_lost() {
    let mut story = node(veth(9, CALI, 3), &[]);
    story.push(found(6, 200));
    story.push(devices(6, 200, &[veth(3, "eth0", 9)], &[], &[]));
    story.push(dying(7, 200));
    assert_eq!(all(&story), []);
}

#[test]
fn both_ends_on_the_host_are_told_by_a_pods_name_only() {
    let beside = |name: &str, other: &str| {
        let here = |device: Device| Device {
            link_nsid: None,
            ..device
        };
        let mut story = node(here(veth(9, name, 10)), &[]);
        if let What::NetnsDevices { devices, .. } = &mut story[3].what {
            devices.push(here(veth(10, other, 9)));
        }
        all(&story)
    };
    let [found] = &beside(CALI, "tmp9118e")[..] else {
        panic!()
    };
    assert!(
        found
            .evidence
            .iter()
            .any(|it| it.claim.starts_with("its peer, tmp9118e"))
    );
    assert_eq!(beside(CALI, "cali0000000000b").len(), 1);
    assert_eq!(beside("veth1a2b3c4d", "veth5e6f7a8b"), []);
    assert_eq!(beside("veth0", "veth1"), []);
}

#[test]
fn the_end_of_a_ready_sandbox_that_was_not_found_is_its() {
    let mut story = node(veth(9, CALI, 3), &[route_to(6, 9)]);
    assert_eq!(all(&story).len(), 1);
    let mut hidden = sandbox("a", 300, NEW);
    hidden.ips = vec![ip(6)];
    story.push(cri(6, &[hidden]));
    assert_eq!(all(&story), []);
}

#[test]
fn a_device_beside_it_is_not_the_peer_elsewhere() {
    // Their indices agree by chance.
    let mut story = node(veth(9, CALI, 10), &[]);
    if let What::NetnsDevices { devices, .. } = &mut story[3].what {
        devices.push(veth(10, "blue", 9));
    }
    assert_eq!(all(&story).len(), 1);
}

#[test]
fn while_a_namespace_is_dying_an_orphan_is_worth_a_remark() {
    let mut story = node(veth(9, CALI, 3), &[route_to(5, 9)]);
    let one = all(&story).remove(0);
    assert_eq!(one.severity, Severity::Warning);
    assert!(one.unknown[1].starts_with("whether the kernel still takes its peer's netns down"));
    story.push(found(6, 200));
    story.push(devices(6, 200, &[veth(4, "eth0", 12)], &[], &[]));
    assert_eq!(all(&story)[0].severity, Severity::Warning);
    story.push(dying(7, 200));
    assert_eq!(all(&story)[0].severity, Severity::Info);
}

#[test]
fn a_sandbox_of_which_cri_has_not_told_can_be_at_any_end() {
    let story = node(veth(9, CALI, 3), &[route_to(6, 9)]);
    let with = |event: Event| all(&[story.clone(), vec![event]].concat());
    assert_eq!(with(cri(6, &[]))[0].severity, Severity::Warning);
    for event in [half_of_cri(6, &[]), cri_fails(6)] {
        let one = with(event).remove(0);
        assert_eq!(one.severity, Severity::Info);
        assert!(one.unknown[2].starts_with("whether its peer is in a sandbox"));
    }
    let mut hidden = sandbox("a", 300, NEW);
    hidden.ips = vec![ip(6)];
    assert_eq!(with(half_of_cri(6, &[hidden])), []);
}

/// The device as a port of a bridge of that name, without and with a pod on it.
fn port_of(name_of_bridge: &str, name: &str, with_pod: bool) -> Vec<Finding> {
    let bridge = Device {
        index: 4,
        name: name_of_bridge.into(),
        kind: Some("bridge".into()),
        ..Device::default()
    };
    let port = |device: Device| Device {
        master: Some(4),
        ..device
    };
    let mut story = node(port(veth(9, name, 3)), &[]);
    if let What::NetnsDevices { devices, .. } = &mut story[3].what {
        devices.push(bridge);
        devices[0].name = String::from("first");
        if with_pod {
            devices[0] = port(devices[0].clone());
        }
    }
    story.push(addressed(name_of_bridge));
    story.push(networks(5, &[network("bridge", &[])]));
    story.push(cri(6, &[sandbox("a", 100, NEW)]));
    all(&story)
}

#[test]
fn what_it_is_a_port_of_tells_whose_it_is() {
    for bridge in ["cni0", "cbr0", "kube-bridge", "weave"] {
        assert_eq!(
            port_of(bridge, "anything", false)[0].severity,
            Severity::Warning
        );
    }
    assert_eq!(port_of("br0", "anything", false), []);
    assert_eq!(
        port_of("cni0", "ve-web", false).len(),
        1,
        "whatever its name"
    );
    assert_eq!(
        port_of("br0", "veth1a2b3c4d", false).len(),
        1,
        "by its name"
    );
    assert_eq!(port_of("br0", "anything", true).len(), 1, "a pod is on it");
    assert_eq!(
        port_of("ovs-system", "nginx-1a2b3c", false).len(),
        1,
        "Antrea's"
    );
    assert_eq!(port_of("ovs-system", "0a1b2c3d4e5f6a7", false).len(), 1);
    assert_eq!(
        port_of("ovs-system", "qvo0123-45", false),
        [],
        "OpenStack's"
    );
    for bridge in [
        "docker0",
        "br-0123456789ab",
        "podman1",
        "cni-podman0",
        "lxcbr0",
        "lxdbr0",
        "incusbr0",
        "virbr0",
        "buildkit0",
        "nerdctl0",
    ] {
        assert_eq!(port_of(bridge, "veth1a2b3c4d", true), [], "{bridge}");
    }
}

#[test]
fn what_a_pod_advertises_makes_no_device_a_pods() {
    let by_kernel = Route {
        by_kernel: true,
        ..route_to(7, 9)
    };
    assert_eq!(all(&node(veth(9, "anything", 3), &[by_kernel])), []);
}

#[test]
fn what_a_plugin_answered_with_or_is_routed_there_is_a_pods() {
    assert_eq!(all(&node(veth(9, "anything", 3), &[])), []);
    let routed = all(&node(veth(9, "anything", 3), &[route_to(7, 9)]));
    assert_eq!(routed[0].severity, Severity::Warning);
    let add = call("ADD", "sandbox-x", 100, OTHER, "x");
    let interface = event::CniInterface {
        name: String::from("anything"),
        ..event::CniInterface::default()
    };
    let result = event::CniResult {
        interfaces: vec![interface],
        ..event::CniResult::default()
    };
    let mut answer = ended(2, add);
    if let What::CniCall { result: told, .. } = &mut answer.what {
        *told = Some(result);
    }
    let mut story = node(veth(9, "anything", 3), &[]);
    story.insert(2, answer);
    let found = all(&story);
    assert!(
        found[0].evidence[0]
            .claim
            .ends_with("was made by CNI ADD of sandbox sandbox-x")
    );
}

#[test]
fn a_plain_name_says_nothing_where_another_cni_is_configured() {
    let mut story = node(veth(9, "veth1a2b3c4d", 3), &[]);
    story.push(networks(6, &[network("bridge", &[])]));
    assert_eq!(all(&story).len(), 1);
    story.push(networks(7, &[network("cilium-cni", &[])]));
    assert_eq!(all(&story), []);
}

#[test]
fn it_is_since_the_first_look_that_found_it_so() {
    let mut tale = Node::of_looks(&node(veth(9, CALI, 3), &[]));
    assert_eq!(tale.of_rule(NOW, Rule::OrphanVeth)[0].0.since, s(5));
    for seconds in [NOW + 10, NOW + 20] {
        let host = [veth(8, "cali0123456789a", 3), veth(9, CALI, 3)];
        tale.tell(devices(seconds, 1, &host, &[route_to(5, 9)], &[]));
        tale.tick(seconds + 2);
        assert_eq!(tale.0.open()[0].since, s(5));
    }
}

#[test]
fn a_plain_name_shows_little_where_the_nodes_cni_is_not_known() {
    let bridge = Device {
        index: 4,
        name: "br0".into(),
        kind: Some("bridge".into()),
        ..Device::default()
    };
    let port = Device {
        master: Some(4),
        ..veth(9, "veth1a2b3c4d", 3)
    };
    let mut story = node(port, &[]);
    if let What::NetnsDevices { devices, .. } = &mut story[3].what {
        devices.push(bridge);
    }
    story.push(addressed("br0"));
    let of = |plugin: &str| {
        let networks = networks(5, &[network(plugin, &[])]);
        let found = all(&[&story[..], &[networks]].concat());
        found.first().map(|found| found.severity)
    };
    assert_eq!(of("bridge"), Some(Severity::Warning));
    assert_eq!(of("calico"), None);
    let found = all(&story).remove(0);
    assert_eq!(found.severity, Severity::Info);
    let mut unknown = found.unknown.iter();
    assert!(unknown.any(|it| it.starts_with("whether it was a pod's")));
}

#[test]
fn what_a_pod_can_have_made_on_the_host_is_no_warning() {
    let bridge = Device {
        index: 4,
        name: "cbr0".into(),
        kind: Some("bridge".into()),
        ..Device::default()
    };
    let port = Device {
        master: Some(4),
        ..veth(9, CALI, 3)
    };
    let mut story = node(port, &[]);
    if let What::NetnsDevices { devices, .. } = &mut story[3].what {
        devices.push(bridge);
    }
    let found = all(&story).remove(0);
    assert_eq!(found.severity, Severity::Info);
    let said = |found: &Finding| {
        let mut unknown = found.unknown.iter();
        unknown.any(|it| it.starts_with("whether it was a pod's"))
    };
    assert!(said(&found));
    // An address on the bridge, and what libcni's cache has of the device, are root's.
    let cached = event::Attachment {
        host_devices: vec![CALI.into()],
        ..attachment("sandbox-x", None, 7, 2)
    };
    for roots in [addressed("cbr0"), attached(6, &[cached])] {
        let found = all(&[&story[..], &[roots]].concat()).remove(0);
        assert_eq!((found.severity, said(&found)), (Severity::Warning, false));
    }
}

#[test]
fn very_many_are_one_finding_and_those_that_root_names_have_theirs() {
    let many = |count: u32| {
        let name = |index| format!("cali{index:08x}");
        let all: Vec<Device> = (9..9 + count).map(|it| veth(it, &name(it), 3)).collect();
        vec![
            host(0),
            devices(5, 1, &all, &[route_to(5, 8 + count)], &[]),
            found(5, 100),
            devices(5, 100, &[], &[], &[]),
        ]
    };
    assert_eq!(all(&many(16)).len(), 16);
    let found = all(&many(1_016));
    assert_eq!(found.len(), 17);
    let crowd = |it: &&Finding| {
        it.title
            .starts_with("1000 more veths lead to no pod, as cali0")
    };
    let crowd = found.iter().find(crowd).unwrap();
    assert_eq!(crowd.severity, Severity::Info);
    assert!(!crowd.advice.iter().any(|step| step.contains("ip link del")));
    let warnings = found.iter().filter(|it| it.severity == Severity::Warning);
    assert_eq!(
        warnings.map(|it| it.addresses.clone()).collect::<Vec<_>>(),
        [[ip(5)]]
    );
}

#[test]
fn the_many_of_one_kubernetes_namespace_do_not_hide_the_one_of_another() {
    let name = |index| format!("veth{index}");
    let cached = |index: u32| {
        let mut of = attachment(&name(index), None, 7, 2);
        of.host_devices = vec![name(index)];
        if let Some(pod) = &mut of.pod {
            pod.namespace = Some(if index < 99 { "evil" } else { "shop" }.into());
        }
        of
    };
    let indexes: Vec<u32> = (9..59).chain([99]).collect();
    let ends: Vec<Device> = indexes.iter().map(|it| veth(*it, &name(*it), 3)).collect();
    let answers: Vec<_> = indexes.iter().map(|it| cached(*it)).collect();
    let story = [
        host(0),
        devices(5, 1, &ends, &[], &[]),
        found(5, 100),
        devices(5, 100, &[], &[], &[]),
        attached(6, &answers),
    ];
    let told = all(&story);
    assert_eq!(told.len(), 17);
    let singly = told
        .iter()
        .filter(|it| it.title.starts_with("veth veth99 "));
    assert_eq!(singly.count(), 1, "{told:#?}");
}

#[test]
fn while_not_all_namespaces_can_be_found_nothing_is_said() {
    let mut story = node(veth(9, CALI, 3), &[route_to(5, 9)]);
    assert_eq!((all(&story).len(), gap(&story)), (1, None));
    let source = crate::model::netns::NETNS.into();
    let error = String::from("it took too long");
    story.push(at(6, What::SourceFailed { source, error }));
    assert_eq!(all(&story), []);
    let told = gap(&story).unwrap();
    assert_eq!(
        told,
        "orphan-veth: whether a pod is at the other end of 1 veth: it took too long"
    );
}
