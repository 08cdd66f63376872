use std::path::PathBuf;

use crate::testing::Node;
use event::{
    Attachment, Event, Network, Range, RuntimeSandbox, What,
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
    let [first, last] = [ip(1), ip(250)];
    let network = Network {
        file: PathBuf::from("/etc/cni/net.d/10.conflist"),
        name: String::from("podnet"),
        plugin: String::from("bridge"),
        ipam: Some(ipam.to_owned()),
        store: (ipam == "host-local").then(|| PathBuf::from(STORE)),
        ranges: vec![Range {
            set: 0,
            subnet: String::new(),
            first,
            last,
            gateway: None,
        }],
    };
    at(
        3,
        What::NetworksListed {
            networks: vec![network],
            unread: Vec::new(),
        },
    )
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
