//! One container is gone; the others exist, each by another proof.

use crate::detect::{View, leaked_reservation};
use crate::testing::Node;
use event::{
    Device, Event, Network, What,
    finding::{Finding, Rule, Severity, State},
    forwarding::{Forwarding, LOCAL_TABLE, RouteKind, TableRoute},
    testing::*,
};

mod others;

const LEAK: Rule = Rule::LeakedReservation;
/// Long after all that the stories have reserved.
const NOW: i64 = 1_000;

/// What the rule says of a story at its end.
fn leak(story: &[Event]) -> Option<Finding> {
    let told = Node::of(story).of_rule(NOW, LEAK);
    told.into_iter().next().map(|(finding, _)| finding)
}

/// Which addresses it says are leaked, by their last part.
fn leaked(story: &[Event]) -> Vec<u8> {
    let finding = leak(story);
    let reservations = finding.into_iter().flat_map(|it| it.detail.reservations);
    reservations
        .map(|each| match each.address {
            std::net::IpAddr::V4(v4) => v4.octets()[3],
            std::net::IpAddr::V6(_) => 0,
        })
        .collect()
}

/// CRI, cgroups and a configured network; nothing in the store is anybody's.
fn node() -> Vec<Event> {
    vec![
        host(0),
        networks(1, &[network("bridge", &[range(1, 254)])]),
        cri(2, &[]),
        containers(2, "cgroup", &[]),
    ]
}

fn with(events: Vec<Event>) -> Vec<Event> {
    [node(), events].concat()
}

fn gap(story: &[Event]) -> Option<String> {
    let node = Node::of(story);
    let settings = crate::Settings {
        boot_id: "boot".into(),
        node: "node-1".into(),
        node_is_named: true,
        stall_threshold: std::time::Duration::from_secs(5),
        surveyed: false,
    };
    leaked_reservation::gap(&View::new(node.0.model(), &settings, s(NOW)))
}

#[test]
fn what_is_reserved_for_nobody_is_listed_oldest_first() {
    let mut stopped = sandbox("stopped", 300, OTHER);
    (stopped.ready, stopped.netns) = (Some(false), None);
    let story = with(vec![
        cri(3, &[sandbox("lives", 200, NEW), stopped]),
        stored(
            10,
            &[
                (5, "gone-b", -50),
                (6, "lives", -60),
                (7, "gone-a", -90),
                (8, "stopped", -80),
                (9, "", -70),
            ],
        ),
    ]);
    let found = leak(&story).unwrap();
    assert_eq!(leaked(&story), [7, 9, 5]);
    assert_eq!((found.severity, found.since), (Severity::Warning, s(10)));
    assert_eq!(
        found.title,
        "pods: 3 of 5 IPs are reserved for containers that are gone"
    );
    assert_eq!(found.addresses, [ip(7), ip(9), ip(5)]);
    let claims: Vec<_> = found.evidence.iter().map(|it| it.claim.as_str()).collect();
    assert_eq!(
        claims,
        [
            "/var/lib/cni/networks/pods has 5 reservations",
            "2 of them: CRI: sandbox Ready or NotReady",
            "3 of them: no container of that ID in any of: cri (2 sandboxes, ready or not), \
             cgroup (0 containers), 1 network namespace",
            "1 of these: the file is empty, so no CNI DEL can free the IP",
            "10.0.0.7 was reserved for gone-a (eth0)",
            "10.0.0.9 was reserved; the file is empty and names no container",
            "10.0.0.5 was reserved for gone-b (eth0)",
        ]
    );
    let record = &found.detail.reservations[2];
    assert_eq!(
        (record.container_id.as_str(), record.ifname.as_deref()),
        ("gone-b", Some("eth0"))
    );
}

#[test]
fn what_a_local_route_takes_is_not_said_to_be_leaked() {
    let story = |to: &str, local_cut| {
        let route = TableRoute {
            kind: RouteKind::Local,
            ..table_route(LOCAL_TABLE, to, 3)
        };
        let forwarding = Forwarding {
            rules: kernels_rules(),
            routes: vec![route],
            local_cut,
            ..Forwarding::default()
        };
        let file = stored(10, &[(5, "x", -90), (6, "y", -90)]);
        with(vec![found(3, 300), forwards(4, 300, &forwarding), file])
    };
    assert_eq!(leaked(&story("10.0.1.0/24", false)), [5, 6]);
    assert_eq!(leaked(&story("10.0.0.5", false)), [6]);
    assert!(leak(&story("10.0.0.0/24", false)).is_none());
    let info = leak(&story("10.0.1.0/24", true)).unwrap();
    assert_eq!(info.severity, Severity::Info, "there may be another route");
}

#[test]
fn every_proof_of_life_counts_alone() {
    let file = |id: &str| stored(10, &[(5, id, -90)]);
    let story = |more: Vec<Event>| with([more, vec![file("x")]].concat());
    assert_eq!(leaked(&story(vec![])), [5], "no proof");

    let mut of_container = sandbox("y", 200, NEW);
    of_container.containers = vec![event::RuntimeContainer {
        id: "x".into(),
        ..Default::default()
    }];
    let bundle = What::SandboxesListed {
        source: "bundles".into(),
        endpoint: "/run/containerd".into(),
        runtime: None,
        partial: None,
        sandboxes: vec![sandbox("x", 200, NEW)],
    };
    let in_netns = vec![
        found(3, 100),
        holders(4, 100, &[pod_task(7, "pause", OLD, "x")], &[]),
    ];
    for (proof, events) in [
        ("cri", vec![cri(3, &[sandbox("x", 200, NEW)])]),
        ("cri's container", vec![cri(3, &[of_container])]),
        ("bundles", vec![at(3, bundle)]),
        ("cgroup", vec![containers(3, "cgroup", &["x"])]),
        ("shim", vec![containers(3, "shim", &["x"])]),
        ("netns", in_netns.clone()),
        (
            "attachment",
            vec![
                found(3, 100),
                attached(4, &[attachment("x", Some(100), 9, -90)]),
            ],
        ),
        ("address", vec![found(3, 100), added(4, 100, 5)]),
    ] {
        assert_eq!(leak(&story(events)), None, "{proof}");
    }
    // And none of these counts when it is over.
    for (proof, events) in [
        ("netns", [in_netns, vec![dying(6, 100)]].concat()),
        (
            "attachment",
            vec![attached(4, &[attachment("x", None, 9, -90)])],
        ),
        (
            "a PID that is used again",
            vec![attached(4, &[attachment("x", Some(1), 9, -90)])],
        ),
        (
            "address",
            vec![found(3, 100), added(4, 100, 5), removed(5, 100, 5)],
        ),
    ] {
        assert_eq!(leaked(&story(events)), [5], "{proof}");
    }
}

#[test]
fn a_file_of_the_last_minute_may_be_an_add_in_progress() {
    for id in ["", "x"] {
        let story = with(vec![stored(NOW, &[(5, id, NOW - 59)])]);
        let mut node = Node::of(&story);
        assert_eq!(node.of_rule(NOW, LEAK), [], "{id:?}");
        node.only(NOW + 1, LEAK, State::Open);
    }
}

#[test]
fn an_empty_file_whose_address_is_in_use_is_no_leak() {
    let story = with(vec![
        found(3, 100),
        added(4, 100, 5),
        stored(10, &[(5, "", -90)]),
    ]);
    assert_eq!(leak(&story), None);
}

#[test]
fn an_address_that_root_of_a_pod_has_put_anywhere_proves_nothing() {
    let told = |uid: Option<u32>, devices_of_it: &[Event]| {
        let made = found(3, 200);
        let made = uid.map_or(made.clone(), |uid| of_user(made, uid));
        let mut story = with(vec![made, added(3, 200, 5)]);
        story.extend_from_slice(devices_of_it);
        story.push(stored(10, &[(5, "gone", -50), (6, "other", -60)]));
        leaked(&story)
    };
    let eth0 = [veth(3, "eth0", 8)];
    let closed = [Device {
        link: None,
        link_nsid: None,
        kind: Some("dummy".into()),
        ..veth(3, "eth0", 8)
    }];
    let dummy = [devices(4, 200, &closed, &[], &[])];
    let cabled = [devices(4, 200, &eth0, &[], &[])];
    let plugged = [
        cabled[0].clone(),
        devices(4, 1, &[veth(8, "cali1", 3)], &[], &[]),
    ];
    assert_eq!(told(None, &dummy), [6], "the host's");
    assert_eq!(told(Some(0), &dummy), [6, 5]);
    assert_eq!(told(Some(0), &cabled), [6], "it may be a pod's");
    let inside = [host_called(-1, cabled[0].clone())];
    assert_eq!(told(Some(0), &inside), [6, 5], "nothing leads to the host");
    assert_eq!(told(Some(0), &plugged), [6], "it is");
    assert_eq!(told(Some(1_000), &plugged), [6, 5]);
}

#[test]
fn a_ghosts_reservation_is_the_ghosts() {
    let mut story = with(ghost_story());
    story.push(cri(70, &[]));
    story.push(stored(70, &[(5, "sandbox-old", 2)]));
    assert_eq!(leak(&story), None);
}

#[test]
fn an_ordinary_deletion_between_two_listings_is_no_leak() {
    // The store as it was before the sandbox went.
    let mut story = with(vec![
        cri(3, &[sandbox("x", 100, OLD)]),
        stored(10, &[(5, "x", -90)]),
    ]);
    assert_eq!(leak(&story), None);
    let removed = What::SandboxRemoved {
        source: "cri".into(),
        id: "x".into(),
    };
    story.push(at(20, removed));
    assert_eq!(leak(&story), None);
    assert!(gap(&story).unwrap().contains("was listed before"));
    story.push(stored(21, &[(5, "x", -90)]));
    assert_eq!(leaked(&story), [5]);
    assert_eq!(gap(&story), None);
}

#[test]
fn without_cri_cgroups_are_worth_a_remark() {
    let without = |failed: bool| {
        let mut story = vec![
            host(0),
            containers(2, "cgroup", &["lives"]),
            stored(10, &[(5, "x", -90), (6, "lives", -90)]),
        ];
        if failed {
            story.push(cri_fails(11));
        }
        leak(&story).unwrap()
    };
    let unasked = without(false);
    assert_eq!(unasked.severity, Severity::Info);
    assert_eq!(
        unasked.title,
        "pods: 1 of 2 IPs is reserved for a container without a cgroup"
    );
    assert!(unasked.unknown[0].ends_with("CRI was not asked"));
    assert!(without(true).unknown[0].ends_with("does not answer: no answer in 1 s"));
}

#[test]
fn without_cri_and_cgroups_nothing_is_judged() {
    let story = [
        host(0),
        containers(2, "shim", &[]),
        stored(10, &[(5, "x", -90)]),
    ];
    assert_eq!(leak(&story), None);
    assert!(gap(&story).unwrap().contains("CRI was not asked"));
    assert_eq!(gap(&[host(0)]), None, "there was no store to judge");
}

#[test]
fn what_cri_had_listed_before_it_failed_still_lives() {
    let story = with(vec![
        cri(3, &[sandbox("x", 100, OLD)]),
        cri_fails(4),
        stored(10, &[(5, "x", -90), (6, "y", -90)]),
    ]);
    assert_eq!(leaked(&story), [6]);
    assert_eq!(leak(&story).unwrap().severity, Severity::Info);
}

#[test]
fn a_store_that_no_network_names_and_nobody_uses_is_left_over() {
    let left_over = |networks_: &[Network], reservations: &[(u8, &str, i64)], path: &str| {
        let mut store = stored(10, reservations);
        if let What::StoreListed { store } = &mut store.what {
            store.path = path.into();
        }
        let story = with(vec![
            networks(3, networks_),
            containers(3, "cgroup", &["lives"]),
            store,
        ]);
        leak(&story).unwrap()
    };
    let bridge = [network("bridge", &[])];
    let old = "/var/lib/cni/networks/cbr0";
    let found = left_over(&bridge, &[(5, "x", -90)], old);
    assert_eq!(found.severity, Severity::Info);
    assert!(found.title.ends_with("no network uses them"));
    assert!(found.advice[0].starts_with("nothing to do"));

    let used = left_over(&bridge, &[(5, "x", -90), (6, "lives", -90)], old);
    assert_eq!(used.severity, Severity::Warning, "one is in use");
    let terway = [network("terway", &[])];
    let flat = left_over(&terway, &[(5, "x", -90)], "/var/lib/cni/networks");
    assert_eq!(flat.severity, Severity::Warning, "Terway's own");
    let plain = left_over(&bridge, &[(5, "x", -90)], "/var/lib/cni/networks");
    assert_eq!(plain.severity, Severity::Info);
}

#[test]
fn the_advice_moves_single_files_under_the_lock_and_quotes_nobody() {
    let docker = "291716a39be97105e9169863bf847e714b3e7aed9a9add7a330e79f8a089b97b";
    let story = with(vec![
        containers(3, "cgroup", &["lives"]),
        stored(
            10,
            &[
                (5, "$(reboot)", -99),
                (6, docker, -98),
                (7, "", -97),
                (8, "lives", -96),
            ],
        ),
    ]);
    let advice = leak(&story).unwrap().advice;
    assert!(advice[0].contains("1 of its reservations are in use"));
    assert_eq!(advice[1..3], crate::detect::repair());
    let by_hand = |step: &String| [" mv ", "rm -", "flock"].iter().any(|it| step.contains(it));
    assert!(!advice.iter().any(by_hand), "{advice:?}");
    assert!(advice.iter().all(|step| !step.contains("reboot")));
}

#[test]
fn thousands_are_counted_and_a_bounded_number_is_listed() {
    let mut store = event::Store {
        path: STORE.into(),
        ..Default::default()
    };
    for place in 0..5_000_u32 {
        let mut each = reserve((5, "x", -90));
        each.address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + place).into();
        store.reservations.push(each);
    }
    let found = leak(&with(vec![at(10, What::StoreListed { store })])).unwrap();
    assert!(found.title.starts_with("pods: 5000 of 5000 IPs are"));
    assert_eq!(found.detail.reservations.len(), 4_096);
    assert!(found.unknown.iter().any(|it| it.contains("the other 904")));
}

#[test]
fn the_id_is_the_stores() {
    let one = leak(&with(vec![stored(10, &[(5, "x", -90)])])).unwrap();
    let later = leak(&with(vec![stored(20, &[(9, "y", -80)])])).unwrap();
    assert_eq!(one.id, later.id);
}

fn leak_of_scan(story: &[Event]) -> Finding {
    let told = Node::of_looks(story).of_rule(NOW, LEAK);
    told.into_iter().next().unwrap().0
}

fn moves(found: &Finding) -> bool {
    found
        .advice
        .iter()
        .any(|step| step.contains("node-tracer repair --apply"))
}

#[test]
fn a_namespace_that_could_not_be_read_may_have_the_address() {
    let mut story = with(vec![
        found(3, 100),
        devices(4, 1, &[], &[], &[]),
        devices(4, 100, &[], &[], &[]),
        stored(10, &[(5, "x", -90)]),
    ]);
    let read = leak_of_scan(&story);
    assert_eq!((read.severity, moves(&read)), (Severity::Warning, true));
    story.push(found(5, 200));
    let unread = leak_of_scan(&story);
    assert_eq!((unread.severity, moves(&unread)), (Severity::Info, false));
    assert!(
        unread.unknown[0].ends_with("1 network namespace could not be read"),
        "{:?}",
        unread.unknown
    );
    assert!(unread.title.contains("not every netns"));
    // One that is dying has none.
    story.push(dying(6, 200));
    assert_eq!(leak_of_scan(&story).severity, Severity::Warning);
    // A trace does not look at all devices: nothing is missing.
    story.retain(|event| !matches!(event.what, What::NetnsDevices { .. }));
    assert_eq!(leak(&story).unwrap().severity, Severity::Warning);
}

#[test]
fn where_not_even_the_hosts_namespace_could_be_read_nothing_is_certain() {
    // rtnetlink's lock was held from the first visit on, or there are no
    // rights to enter any: of none are there devices.
    let mut story = with(vec![found(3, 100), stored(10, &[(5, "x", -90)])]);
    let none = leak_of_scan(&story);
    assert_eq!((none.severity, moves(&none)), (Severity::Info, false));
    assert!(
        none.unknown[0].ends_with("2 network namespaces could not be read"),
        "{:?}",
        none.unknown
    );
    // The pod's could be read after all.
    story.push(devices(11, 100, &[], &[], &[]));
    let hosts = leak_of_scan(&story);
    assert_eq!((hosts.severity, moves(&hosts)), (Severity::Info, false));
    assert!(hosts.unknown[0].ends_with("1 network namespace could not be read"));
    story.push(devices(12, 1, &[], &[], &[]));
    assert_eq!(leak_of_scan(&story).severity, Severity::Warning);
}

#[test]
fn a_namespace_that_was_not_found_may_have_the_address() {
    let why = "not all that can lead to a network namespace could be looked at: tasks of 3 \
               processes";
    let source = || String::from(crate::model::netns::NETNS);
    let failed = What::SourceFailed {
        source: source(),
        error: why.into(),
    };
    let mut story = with(vec![
        devices(4, 1, &[], &[], &[]),
        stored(10, &[(5, "x", -90)]),
        at(11, failed),
    ]);
    let perhaps = leak_of_scan(&story);
    assert_eq!((perhaps.severity, moves(&perhaps)), (Severity::Info, false));
    assert!(perhaps.unknown[0].ends_with(why), "{:?}", perhaps.unknown);
    let basis = |found: &Finding, text: &str| {
        let mut claims = found.evidence.iter();
        claims.any(|it| it.claim.ends_with(text))
    };
    assert!(basis(&perhaps, "1 network namespace (there may be more)"));
    story.push(at(12, What::SourceRecovered { source: source() }));
    let whole = leak_of_scan(&story);
    assert_eq!((whole.severity, moves(&whole)), (Severity::Warning, true));
    assert!(basis(&whole, "1 network namespace"));
}

#[test]
fn what_a_part_of_cris_list_lacks_may_be_on_the_rest() {
    let story = with(vec![
        half_of_cri(3, &[sandbox("lives", 200, NEW)]),
        stored(10, &[(5, "x", -90), (6, "lives", -90)]),
    ]);
    let found = leak(&story).unwrap();
    assert_eq!(leaked(&story), [5]);
    assert_eq!(found.severity, Severity::Info);
    assert!(
        found.unknown[0].ends_with("CRI does not list all: no status of 1 sandbox"),
        "{:?}",
        found.unknown
    );
}

#[test]
fn an_address_that_the_next_network_gives_out_leaves_a_store_left_over() {
    let mut store = stored(10, &[(5, "x", -90), (6, "y", -90)]);
    if let What::StoreListed { store } = &mut store.what {
        store.path = "/var/lib/cni/networks/cbr0".into();
    }
    let held = [found(3, 100), added(4, 100, 5)];
    let of_the_new = cri(5, &[sandbox("new", 100, NEW)]);
    let leftover = leak(&with([&held[..], &[of_the_new, store.clone()]].concat())).unwrap();
    assert_eq!(leftover.severity, Severity::Info);
    assert!(leftover.title.ends_with("no network uses them"));
    // Of whom nothing tells may have it out of this store, as buildkit's do.
    let used = leak(&with([&held[..], &[store]].concat())).unwrap();
    assert!(!used.title.contains("no network"), "{used:#?}");
    let mut advice = used.advice.iter();
    assert!(!advice.any(|step| step.contains("the folder can go")));
}

#[test]
fn antreas_agent_gives_back_what_no_pod_has() {
    let advice = |plugin: &str| {
        let story = with(vec![
            networks(3, &[network(plugin, &[range(1, 254)])]),
            stored(10, &[(5, "x", -90)]),
        ]);
        leak(&story).unwrap().advice.join("\n")
    };
    assert!(advice("antrea").contains("component=antrea-agent"));
    assert!(!advice("antrea").contains("flock"));
    assert!(advice("bridge").contains("node-tracer repair"));
}

#[test]
fn what_shows_a_sandbox_that_cri_has_forgotten_must_have_been_read() {
    let file = stored(10, &[(5, "x", -90)]);
    let host_seen = devices(4, 1, &[], &[], &[]);
    let whole = with(vec![host_seen, file]);
    let judged = |more: &[Event]| {
        let found = leak_of_scan(&[&whole[..], more].concat());
        let says = |text: &str| found.unknown.iter().any(|it| it.contains(text));
        let about = [
            "containers still run",
            "libcni attached",
            "one of them may be",
        ];
        let told = about.iter().position(|text| says(text));
        assert_eq!(
            found.severity == Severity::Info,
            told.is_some(),
            "{found:#?}"
        );
        assert_eq!(moves(&found), told.is_none(), "{found:#?}");
        told
    };
    let fails = |source: &str| {
        let (source, error) = (source.to_owned(), String::from("no answer in 5 s"));
        at(11, What::SourceFailed { source, error })
    };
    assert_eq!(judged(&[]), None);
    assert_eq!(judged(&[fails("cgroup")]), Some(0));
    let mut half = containers(11, "cgroup", &[]);
    if let What::ContainersListed { partial, .. } = &mut half.what {
        *partial = Some("more than 65536 cgroups".into());
    }
    assert_eq!(judged(&[half]), Some(0));
    assert_eq!(judged(&[fails("libcni")]), Some(1));
    let mut cache = attached(11, &[]);
    if let What::AttachmentsListed { unread, .. } = &mut cache.what {
        unread.push("pods-x-eth0: permission denied".into());
    }
    assert_eq!(judged(&[cache]), Some(1));
    // gVisor's address is on no device; without libcni's cache nobody names it.
    let sandboxs = |mount: &str| {
        let eth0 = [veth(3, "eth0", 8)];
        vec![
            found(5, 200),
            holders(5, 200, &[], &[mount]),
            devices(6, 200, &eth0, &[], &[]),
        ]
    };
    assert_eq!(judged(&sandboxs(SANDBOX_MOUNT)), Some(2));
    assert_eq!(judged(&sandboxs("/run/netns/blue")), None, "a person's");
    let mut users = sandboxs(SANDBOX_MOUNT);
    users[0] = of_user(users[0].clone(), 1_000);
    assert_eq!(judged(&users), None, "in mounts of their own");
    let mut with_net1 = sandboxs(SANDBOX_MOUNT);
    let mut net1 = added(6, 200, 77);
    if let What::AddressAdded { address, .. } = &mut net1.what {
        address.ifname = "net1".into();
    }
    with_net1.push(net1);
    assert_eq!(judged(&with_net1), Some(2), "another network's");
    let mut with_app = sandboxs(SANDBOX_MOUNT);
    let app = [pod_task(9, "app", NEW, "app")];
    with_app[1] = holders(5, 200, &app, &[SANDBOX_MOUNT]);
    assert_eq!(judged(&with_app), Some(2), "its sandbox's ID is not known");
    with_app.push(added(6, 200, 77));
    assert_eq!(judged(&with_app), None, "it has its own");
    let mut known = sandboxs(SANDBOX_MOUNT);
    known.push(cri(7, &[sandbox("other", 200, NEW)]));
    known.push(stored(10, &[(5, "x", -90)]));
    assert_eq!(judged(&known), None, "another's");
    // Nobody has listed the cgroups.
    let never: Vec<Event> = whole
        .iter()
        .filter(|event| !matches!(event.what, What::ContainersListed { .. }))
        .cloned()
        .collect();
    assert_eq!(leak_of_scan(&never).severity, Severity::Info);
}
