//! One pod's gateway, with each state of the entry.

use crate::detect::{View, missing_gateway_neighbour};
use crate::testing::Node;
use event::{
    Event, Neighbour, Pod, RuntimeSandbox, Task, What,
    finding::{Finding, Rule, Severity},
    testing::*,
    wording::advice::command,
};

const NOW: i64 = 1_000;

fn missing(story: &[Event]) -> Option<Finding> {
    let told = Node::of(story).of_rule(NOW, Rule::MissingGatewayNeighbour);
    assert!(told.len() < 2, "{told:#?}");
    told.into_iter().next().map(|(finding, _)| finding)
}

fn wired(inode: u32, link: u32, neighbours: &[Neighbour]) -> Event {
    let eth0 = veth(3, "eth0", link);
    devices(6, inode, &[eth0], &[default_route(GATEWAY, 3)], neighbours)
}

/// A pod that runs; the node's CNI is of that name.
fn node(plugin: &str, neighbours: &[Neighbour]) -> Vec<Event> {
    let task = pod_task(7, "app", OLD, "app-old");
    vec![
        host(0),
        networks(1, &[network(plugin, &[])]),
        found(1, 100),
        added(2, 100, 5),
        holders(3, 100, &[task], &[SANDBOX_MOUNT]),
        listed(4, &[pod("checkout-x8k2p", OLD, &[ip(5)])]),
        devices(5, 1, &[veth(7, "cali0123456789a", 3)], &[], &[]),
        wired(100, 7, neighbours),
    ]
}

fn state(state: &str) -> Vec<Neighbour> {
    vec![neighbour(3, state)]
}

#[test]
fn where_the_cni_writes_one_its_absence_is_a_fault() {
    for plugin in ["aws-cni", "terway", "terway-cni"] {
        let found = missing(&node(plugin, &[])).unwrap();
        assert_eq!(found.severity, Severity::Warning);
    }
    let found = missing(&node("aws-cni", &[])).unwrap();
    assert_eq!(
        found.title,
        "shop/checkout-x8k2p has no neighbour entry for its gateway 169.254.1.1"
    );
    assert_eq!(found.addresses, [ip(5)]);
    let last = command(found.advice.last().unwrap()).unwrap();
    assert_eq!(last.command, "kubectl delete pod -n shop checkout-x8k2p");
    assert!(last.comment.unwrap().contains("without an owner is lost"));
    assert_eq!(
        command(&found.advice[0]).unwrap().command,
        format!(
            "nsenter --net={SANDBOX_MOUNT} ip neigh replace 169.254.1.1 lladdr ee:ee:ee:ee:00:07 \
             dev eth0 nud permanent"
        )
    );
}

#[test]
fn a_usable_entry_is_no_fault() {
    for usable in ["permanent", "noarp", "reachable", "stale", "delay", "probe"] {
        for plugin in ["aws-cni", "calico", "bridge"] {
            assert_eq!(missing(&node(plugin, &state(usable))), None, "{usable}");
        }
    }
}

#[test]
fn an_entry_that_got_no_answer_is_a_fault_everywhere() {
    let severity = |plugin, of| missing(&node(plugin, &state(of))).unwrap().severity;
    assert_eq!(severity("aws-cni", "failed"), Severity::Critical);
    assert_eq!(severity("aws-cni", "incomplete"), Severity::Critical);
    assert_eq!(severity("calico", "failed"), Severity::Critical);
    assert_eq!(severity("calico", "incomplete"), Severity::Warning);
    let calico = missing(&node("calico", &state("incomplete"))).unwrap();
    assert!(calico.unknown[1].contains("only just asked"));
    assert!(
        calico
            .advice
            .iter()
            .any(|step| step.contains("conf/cali0123456789a/proxy_arp"))
    );
}

#[test]
fn what_an_ipv6_gateway_lacks_is_looked_for_among_ipv6() {
    let gateway = "fe80::1".parse().unwrap();
    let failed = Neighbour {
        address: gateway,
        ..neighbour(3, "failed")
    };
    let mut story = node("calico", &[]);
    let route = default_route(gateway, 3);
    story[7] = devices(6, 100, &[veth(3, "eth0", 7)], &[route], &[failed]);
    let found = missing(&story).unwrap();
    let has = |part: &str| found.advice.iter().any(|step| step.contains(part));
    assert!(has(
        "ip neigh replace fe80::1 lladdr ee:ee:ee:ee:00:07 dev eth0 nud permanent"
    ));
    assert!(has("ip -6 addr show dev cali0123456789a "));
    assert!(has("ip -6 route show dev cali0123456789a "));
    assert!(!has("ipv4"));
}

#[test]
fn an_entry_that_comes_and_goes_may_be_absent() {
    for plugin in ["calico", "bridge"] {
        assert_eq!(missing(&node(plugin, &[])), None, "{plugin}");
    }
    // Unless other pods have a permanent one.
    let mut story = node("calico", &[]);
    story.push(found(6, 200));
    story.push(wired(200, 8, &state("reachable")));
    assert_eq!(missing(&story), None);
    story.push(wired(200, 8, &state("permanent")));
    let found = missing(&story).unwrap();
    assert_eq!(found.severity, Severity::Warning);
    assert!(
        found.evidence[2]
            .claim
            .starts_with("1 other namespace on the node")
    );
}

#[test]
fn one_pod_that_has_written_an_entry_speaks_for_no_other() {
    let story = |permanent: u32| {
        let mut story = node("calico", &[]);
        for (place, inode) in (0..).zip([200, 300, 400]) {
            let state = if place < permanent {
                state("permanent")
            } else {
                Vec::new()
            };
            story.extend([found(6, inode), wired(inode, inode, &state)]);
        }
        missing(&story)
    };
    assert_eq!(story(1), None, "it may have done so itself");
    assert!(story(2).is_some(), "most have it");
}

#[test]
fn only_made_up_gateways_at_the_end_of_a_veth_count() {
    let bent = |bend: fn(&mut What)| {
        let mut story = node("aws-cni", &[]);
        bend(&mut story[7].what);
        missing(&story)
    };
    assert!(bent(|_| {}).is_some());
    let ordinary = bent(|what| {
        if let What::NetnsDevices { routes, .. } = what {
            routes[0].gateway = Some(ip(1));
        }
    });
    assert_eq!(ordinary, None);
    let ipvlan = bent(|what| {
        if let What::NetnsDevices { devices, .. } = what {
            devices[0].kind = Some("ipvlan".into());
        }
    });
    assert_eq!(ipvlan, None);
    let not_default = bent(|what| {
        if let What::NetnsDevices { routes, .. } = what {
            routes[0].to = Some((ip(9), 32));
        }
    });
    assert_eq!(not_default, None);
}

#[test]
fn only_pods_that_live_and_stay_count() {
    let story = |place: usize, event: Event| {
        let mut story = node("aws-cni", &[]);
        story[place] = event;
        missing(&story)
    };
    let nobody = holders(3, 100, &[], &[SANDBOX_MOUNT]);
    assert_eq!(story(4, nobody), None);
    let plugin = Task {
        pod_uid: None,
        container_id: None,
        ..pod_task(7, "aws-cni", OLD, "x")
    };
    let adding = holders(3, 100, &[plugin], &[SANDBOX_MOUNT]);
    assert_eq!(story(4, adding), None, "a task that is no container's");
    let terminating = Pod {
        deletion: Some(s(5)),
        ..pod("checkout-x8k2p", OLD, &[])
    };
    assert_eq!(story(5, listed(4, &[terminating])), None);
    let mut ghost = ghost_story();
    ghost.push(networks(63, &[network("aws-cni", &[])]));
    ghost.push(Event {
        time: s(64),
        ..wired(100, 7, &[])
    });
    assert_eq!(missing(&ghost), None, "nobody misses a ghost's");
    // Kata's tasks are elsewhere.
    let mut kata = node("aws-cni", &[]);
    kata.remove(4);
    assert_eq!(missing(&kata), None);
    kata.push(cri(5, &[sandbox("a", 100, OLD)]));
    assert!(missing(&kata).is_some());
    kata.push(cri(
        6,
        &[RuntimeSandbox {
            ready: Some(false),
            ..sandbox("a", 100, OLD)
        }],
    ));
    assert_eq!(missing(&kata), None);
}

#[test]
fn add_writes_the_entry_last() {
    let mut story = node("aws-cni", &[]);
    story.push(attached(5, &[attachment("x", Some(100), 5, NOW - 2)]));
    story[2] = created(1, 100);
    let late: Vec<Event> = story
        .into_iter()
        .map(|mut event| {
            if event.time > s(0) {
                event.time = s(NOW - 2);
            }
            event
        })
        .collect();
    assert_eq!(missing(&late), None);
}

#[test]
fn another_gateways_entry_is_no_sign() {
    let mut story = node("calico", &[]);
    let other = "169.254.2.2".parse().unwrap();
    let permanent = Neighbour {
        address: other,
        ..neighbour(3, "permanent")
    };
    let eth0 = veth(3, "eth0", 8);
    let route = default_route(other, 3);
    story.push(found(6, 200));
    story.push(devices(6, 200, &[eth0], &[route], &[permanent]));
    assert_eq!(missing(&story), None);
}

#[test]
fn whether_a_pod_lives_is_asked_only_where_an_entry_is_missing() {
    // The answer depends on the pod's age: asking for it sets a time.
    let asks = |plugin: &str| {
        let mut story = node(plugin, &[]);
        story[2] = created(1, 100);
        for event in &mut story {
            event.time = s(NOW - 2);
        }
        let node = Node::of(&story);
        let view = View::new(node.0.model(), node.0.settings(), s(NOW));
        assert_eq!(missing_gateway_neighbour::detect(&view), []);
        view.next().is_some()
    };
    assert!(asks("aws-cni"));
    assert!(!asks("calico"), "it has no entry while it is idle");
}

#[test]
fn a_look_as_the_add_ends_proves_nothing() {
    let add = || event::CniCall {
        plugin: String::from("aws-cni"),
        ..call("ADD", "app", 100, OLD, "checkout-x8k2p")
    };
    let told = |state: &[Neighbour], looks: &[i64]| {
        let mut story = node("aws-cni", &[]);
        story[2] = created(1, 100);
        story.pop();
        story.extend([calls(2, add()), ended(10, add())]);
        for seconds in looks {
            let mut look = wired(100, 7, state);
            look.time = s(*seconds);
            story.push(look);
        }
        missing(&story).map(|finding| finding.severity)
    };
    for entry in [state("incomplete"), state("failed"), Vec::new()] {
        assert_eq!(told(&entry, &[10]), None);
        assert_eq!(told(&entry, &[10, 14]), None);
        assert!(told(&entry, &[10, 15]).is_some());
    }
    // That the later look found the same is asked for.
    let mut story = node("aws-cni", &[]);
    story[2] = created(1, 100);
    story.pop();
    story.extend([calls(980, add()), ended(990, add())]);
    let look = |seconds| Event {
        time: s(seconds),
        ..wired(100, 7, &[])
    };
    story.push(look(990));
    let mut tale = Node::of(&story);
    let rule = Rule::MissingGatewayNeighbour;
    assert_eq!(tale.of_rule(991, rule), []);
    tale.tell(look(995));
    assert_eq!(tale.of_rule(996, rule).len(), 1);
}

/// Two pods: the second has a permanent entry, the first has `eth0` and a
/// second device as told.
fn beside(plugin: &str, calls: &[Event], eth0: bool, second: &str) -> Option<Finding> {
    let mut story = node(plugin, &[]);
    story.truncate(7);
    story.extend_from_slice(calls);
    let both = [veth(3, "eth0", 7), veth(4, second, 9)];
    let routes = [default_route(GATEWAY, 3), default_route(GATEWAY, 4)];
    let known = [neighbour(3, "permanent"), neighbour(4, "permanent")];
    let has = if eth0 { &known[..1] } else { &known[1..] };
    story.push(devices(6, 100, &both, &routes, has));
    story.push(found(6, 200));
    story.push(wired(200, 8, &state("permanent")));
    missing(&story)
}

#[test]
fn only_the_interface_that_the_cni_gave_the_pod_counts() {
    for plugin in ["aws-cni", "calico"] {
        assert!(beside(plugin, &[], false, "net1").is_some(), "{plugin}");
        assert_eq!(beside(plugin, &[], true, "net1"), None, "{plugin}");
    }
    // Multus has asked for the second one.
    let net1 = || event::CniCall {
        ifname: String::from("net1"),
        plugin: String::from("bridge"),
        delegated: true,
        ..call("ADD", "sandbox-a", 100, OLD, "checkout-x8k2p")
    };
    let tale = [calls(2, net1()), ended(2, net1())];
    assert_eq!(beside("aws-cni", &tale, true, "net1"), None);
}

#[test]
fn a_cni_with_a_real_gateway_writes_no_entry() {
    for plugin in ["bridge", "ptp", "macvlan", "flannel", "cilium-cni"] {
        assert_eq!(beside(plugin, &[], false, "net1"), None, "{plugin}");
        for state in ["failed", "incomplete"] {
            let story = node(plugin, &[neighbour(3, state)]);
            assert_eq!(missing(&story), None, "{plugin}, {state}");
        }
    }
}

#[test]
fn a_default_route_that_the_pod_made_itself_is_not_the_cnis() {
    let own = "169.254.99.1".parse().unwrap();
    for plugin in ["aws-cni", "terway", "calico"] {
        for state in [None, Some("failed")] {
            let mut story = node(plugin, &[]);
            story.pop();
            let entry = state.map(|state| Neighbour {
                address: own,
                ..neighbour(3, state)
            });
            let known: Vec<_> = entry
                .into_iter()
                .chain([neighbour(3, "permanent")])
                .collect();
            let routes = [default_route(GATEWAY, 3), default_route(own, 3)];
            story.push(devices(6, 100, &[veth(3, "eth0", 7)], &routes, &known));
            assert_eq!(missing(&story), None, "{plugin}");
        }
    }
}

#[test]
fn it_is_since_the_first_look_that_found_it_so() {
    let mut tale = Node::of(&node("aws-cni", &state("incomplete")));
    let rule = Rule::MissingGatewayNeighbour;
    assert_eq!(tale.of_rule(NOW, rule)[0].0.since, s(6));
    for seconds in [NOW + 10, NOW + 20] {
        let mut look = wired(100, 7, &state("failed"));
        look.time = s(seconds);
        tale.tell(look);
        tale.tick(seconds + 2);
        assert_eq!(tale.0.open()[0].since, s(6));
    }
}
