use std::path::PathBuf;

use crate::testing::Node;
use event::{
    Attachment, Device, Event, Network, Range, RuntimeSandbox, What,
    finding::{Rule, Severity, State},
    testing::*,
};

const UNRESERVED: Rule = Rule::UnreservedAddress;
const STORE: &str = "/var/lib/cni/networks/podnet";

fn sandbox(ready: bool) -> RuntimeSandbox {
    RuntimeSandbox {
        id: String::from("a"),
        pod: call("ADD", "a", 100, OLD, "a").pod.unwrap(),
        ready: Some(ready),
        netns: Some(ns(100)),
        ips: vec![ip(5)],
        ..RuntimeSandbox::default()
    }
}

fn cri(seconds: i64, sandbox: RuntimeSandbox) -> Event {
    at(
        seconds,
        What::SandboxesListed {
            source: String::from("cri"),
            endpoint: String::from("/run/containerd.sock"),
            runtime: None,
            partial: None,
            sandboxes: vec![sandbox],
        },
    )
}

fn attached(ifname: &str) -> Event {
    let attachment = Attachment {
        path: PathBuf::from("/var/lib/cni/results/podnet-a-eth0"),
        network: String::from("podnet"),
        container_id: String::from("a"),
        ifname: ifname.to_owned(),
        netns_path: String::new(),
        netns: Some(ns(100)),
        mac: None,
        host_devices: Vec::new(),
        pod: Some(sandbox(true).pod),
        ips: vec![ip(5)],
        written: s(2),
    };
    at(
        3,
        What::AttachmentsListed {
            folder: PathBuf::from("/var/lib/cni/results"),
            attachments: vec![attachment],
            unread: Vec::new(),
        },
    )
}

fn networks(ipam: &str) -> Event {
    configured(3, &[podnet(ipam)])
}

fn podnet(ipam: &str) -> Network {
    let [first, last] = [ip(1), ip(250)];
    Network {
        file: PathBuf::from("/etc/cni/net.d/10.conflist"),
        name: String::from("podnet"),
        plugin: String::from("bridge"),
        ipam: Some(ipam.to_owned()),
        device: None,
        store: (ipam == "host-local").then(|| PathBuf::from(STORE)),
        ranges: vec![Range {
            set: 0,
            subnet: String::new(),
            first,
            last,
            gateway: None,
        }],
    }
}

fn configured(seconds: i64, networks: &[Network]) -> Event {
    event::testing::networks(seconds, networks)
}

/// What the stores say of the pod's address.
fn answered(seconds: i64, store: &str, holder: Option<&str>) -> Event {
    let holder = holder.map(|id| event::ReservationHolder {
        path: PathBuf::from(store).join(ip(5).to_string()),
        ..reservation(id)
    });
    at(
        seconds,
        What::Reservation {
            address: ip(5),
            stores: vec![PathBuf::from(store)],
            holder,
        },
    )
}

/// A pod that runs, without what the stores say.
fn running() -> Vec<Event> {
    vec![
        host(0),
        created(1, 100),
        added(2, 100, 5),
        attached("eth0"),
        networks("host-local"),
        cri(3, sandbox(true)),
        listed(3, &[pod("a", OLD, &[ip(5)])]),
    ]
}

fn with(mut story: Vec<Event>, more: Event) -> Vec<Event> {
    story.push(more);
    story
}

fn is_quiet(story: &[Event]) -> bool {
    Node::of(story).of_rule(30, UNRESERVED).is_empty()
}

#[test]
fn a_running_pods_address_that_is_free_is_critical_and_the_advice_puts_it_back() {
    let story = with(running(), answered(10, STORE, None));
    let (open, _) = Node::of(&story).only(30, UNRESERVED, State::Open);
    assert_eq!(open.severity, Severity::Critical);
    assert_eq!(
        (open.addresses, open.detail.due),
        (vec![ip(5)], Some(s(10)))
    );
    let file = format!("{STORE}/{}", ip(5));
    let restores = |step: &String| step.contains("sh -Cc") && step.contains(&file);
    assert!(open.advice.iter().any(restores), "{:?}", open.advice);
    let story = with(story, answered(20, STORE, Some("a")));
    assert!(is_quiet(&story), "reserved again");
}

#[test]
fn it_is_told_once_it_has_stayed_free_without_a_del_and_not_before() {
    let story = with(running(), answered(10, STORE, None));
    let mut node = Node::of(&story);
    assert_eq!(node.of_rule(12, UNRESERVED), [], "a DEL may be on its way");
    assert_eq!(node.0.watched().addresses, [ip(5)].into());
    node.tell(calls(13, call("DEL", "a", 100, OLD, "a")));
    assert_eq!(node.of_rule(30, UNRESERVED), []);
    let mut node = Node::of(&story);
    node.tick(12);
    assert_eq!(node.0.pending(), Some(s(15)));
    node.only(15, UNRESERVED, State::Open);
    assert_eq!(
        node.0.watched().addresses,
        [ip(5)].into(),
        "until it is mended"
    );
}

#[test]
fn one_that_is_reserved_for_somebody_else_is_not_put_back() {
    let story = with(running(), answered(10, STORE, Some("b")));
    let (open, _) = Node::of(&story).only(30, UNRESERVED, State::Open);
    assert_eq!(open.severity, Severity::Warning, "nothing shows that one");
    assert!(!open.advice.iter().any(|step| step.contains("flock")));
}

#[test]
fn what_the_stores_said_before_the_add_or_not_at_all_is_no_finding() {
    assert!(is_quiet(&running()), "nobody was asked");
    assert!(is_quiet(&with(running(), answered(2, STORE, None))));
    let silent = at(
        20,
        What::Reservation {
            address: ip(5),
            stores: Vec::new(),
            holder: None,
        },
    );
    assert!(is_quiet(&with(
        with(running(), answered(10, STORE, None)),
        silent
    )));
}

#[test]
fn another_networks_store_or_ipam_says_nothing() {
    let other = answered(10, "/var/lib/cni/networks/other", None);
    assert!(is_quiet(&with(running(), other)));
    for ipam in ["static", "calico-ipam", "cilium"] {
        let story = with(running(), networks(ipam));
        assert!(is_quiet(&with(story, answered(10, STORE, None))), "{ipam}");
    }
}

#[test]
fn a_pod_that_does_not_live_or_is_about_to_go_needs_no_reservation() {
    let free = || answered(10, STORE, None);
    let story = with(running(), cri(5, sandbox(false)));
    assert!(is_quiet(&with(story, free())), "not ready");
    let del = call("DEL", "a", 100, OLD, "a");
    let story = with(running(), calls(9, del));
    assert!(is_quiet(&with(story, free())), "a DEL runs");
    for source in [5, 6] {
        let mut story = running();
        story.remove(source);
        let story = with(story, free());
        assert!(
            is_quiet(&story),
            "one source alone does not show that it lives"
        );
    }
}

#[test]
fn a_second_networks_interface_is_not_judged() {
    let mut story = running();
    story[3] = attached("net1");
    assert!(is_quiet(&with(story, answered(10, STORE, None))));
}

const NEW_STORE: &str = "/var/lib/cni/networks/newnet";

/// A network of another name, which plugs pods into a bridge.
fn newnet(bridge: &str) -> Network {
    Network {
        file: PathBuf::from("/etc/cni/net.d/05-newnet.conflist"),
        name: String::from("newnet"),
        device: Some(bridge.to_owned()),
        store: Some(PathBuf::from(NEW_STORE)),
        ..podnet("host-local")
    }
}

/// The pod is on the bridge cni0, its address is reserved in its own network's store,
/// and these networks are configured by now.
fn reconfigured(networks: &[Network]) -> Vec<Event> {
    let bridge = |index, name: &str| Device {
        index,
        name: name.to_owned(),
        kind: Some(String::from("bridge")),
        ..Device::default()
    };
    let end = Device {
        master: Some(7),
        ..veth(9, "veth1", 3)
    };
    let hosts = [bridge(7, "cni0"), bridge(8, "br1"), end];
    let mut story = running();
    story.extend([
        devices(4, 100, &[veth(3, "eth0", 9)], &[], &[]),
        devices(4, 1, &hosts, &[], &[]),
        answered(10, STORE, Some("a")),
        configured(20, networks),
    ]);
    story
}

#[test]
fn what_the_network_in_use_can_give_out_on_the_same_link_is_critical_whoever_gave_it() {
    let told = |networks: &[Network]| Node::of(&reconfigured(networks)).of_rule(30, UNRESERVED);
    // Renamed; and beside the old one, in the file that is in use.
    for networks in [
        &[newnet("cni0")][..],
        &[newnet("cni0"), podnet("host-local")],
    ] {
        let found = told(networks).pop().expect("it can be given out").0;
        assert_eq!(found.severity, Severity::Critical);
        assert_eq!((found.since, found.detail.due), (s(20), Some(s(20))));
        let claims: Vec<_> = found.evidence.iter().map(|it| it.claim.as_str()).collect();
        let free = format!("{} is free in {NEW_STORE}", ip(5));
        assert!(claims.contains(&free.as_str()), "{claims:#?}");
        let renamed = |claim: &&str| claim.contains("renamed or changed") && claim.contains(STORE);
        assert!(claims.iter().any(renamed), "{claims:#?}");
        let file = format!("{NEW_STORE}/{}", ip(5));
        let reserves = |step: &String| step.contains("mkdir -p") && step.contains(&file);
        assert!(found.advice.iter().any(reserves), "{:#?}", found.advice);
    }
    let small = Network {
        ranges: vec![range(100, 250)],
        ..newnet("cni0")
    };
    assert_eq!(told(&[small]), [], "out of its ranges");
    assert_eq!(told(&[newnet("br1")]), [], "on another bridge");
    let unused = [podnet("host-local"), newnet("cni0")];
    assert_eq!(told(&unused), [], "new pods are not attached to it");
}

#[test]
fn where_it_is_not_known_what_the_network_in_use_plugs_pods_into_it_is_info() {
    let other = Network {
        plugin: String::from("calico"),
        device: None,
        ..newnet("")
    };
    for network in [other, newnet("br-that-is-not-there")] {
        let story = reconfigured(&[network]);
        let (found, _) = Node::of(&story).only(30, UNRESERVED, State::Open);
        assert_eq!(found.severity, Severity::Info);
        let asks = |line: &String| line.contains("on the same link");
        assert!(found.unknown.iter().any(asks), "{:#?}", found.unknown);
    }
}

#[test]
fn the_store_of_the_network_in_use_must_have_been_read_without_it() {
    let story = reconfigured(&[newnet("cni0")]);
    let answer = |stores: &[&str], of: &str, id: &str| {
        let mut event = answered(22, of, Some(id));
        if let What::Reservation { stores: all, .. } = &mut event.what {
            *all = stores.iter().map(PathBuf::from).collect();
        }
        Node::of(&with(story.clone(), event))
            .of_rule(40, UNRESERVED)
            .pop()
            .map(|(found, _)| found.severity)
    };
    let both = [NEW_STORE, STORE];
    assert_eq!(answer(&both, STORE, "a"), Some(Severity::Critical));
    assert_eq!(answer(&both, NEW_STORE, "a"), None, "it has it");
    assert_eq!(answer(&both, NEW_STORE, "b"), Some(Severity::Warning));
    // The answer names the first that has it, and the other may have it, too.
    assert_eq!(answer(&[STORE, NEW_STORE], STORE, "a"), None);
    let unread = What::SourceFailed {
        source: String::from("host-local"),
        error: String::from("newnet: input/output error"),
    };
    assert!(is_quiet(&with(story, at(22, unread))));
}
