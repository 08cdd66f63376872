//! The newer sandbox has lost something, or has not.

use super::*;

fn harm(after: Event) -> Finding {
    let mut node = Node::of(&[stale(), vec![after]].concat());
    let (finding, _) = node.only(26, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Harmful), "{finding:#?}");
    assert_eq!(finding.severity, Severity::Critical);
    finding
}

#[test]
fn a_lost_address_is_harm_with_the_whole_story() {
    let finding = harm(removed(21, 200, 5));
    assert_eq!(finding.detail.old_container_id.as_deref(), Some("old"));
    assert_eq!(finding.detail.new_container_id.as_deref(), Some("new"));
    assert_eq!(finding.sandbox_id.as_deref(), Some("new"));
    assert_eq!(finding.netns.as_ref().unwrap().id, ns(200));
    assert_eq!(finding.addresses, [ip(5)]);
    let pod = finding.pod.as_ref().unwrap();
    assert_eq!(
        (pod.label(), pod.uid.as_deref()),
        (String::from("shop/db-0"), Some(NEW))
    );
    assert_eq!(finding.since, s(20));
    let claims: Vec<_> = finding
        .evidence
        .iter()
        .map(|each| (each.claim.as_str(), each.source.as_str(), each.at))
        .collect();
    assert_eq!(
        claims,
        [
            ("CNI ADD of the old sandbox old", "cni", s(1)),
            (
                "CNI ADD of the newer sandbox new of the same pod name, which has 10.0.0.5",
                "cni",
                s(11)
            ),
            (
                "CNI DEL of the old sandbox by calico, with an empty CNI_NETNS; it succeeded",
                "cni",
                s(20)
            ),
            (
                "the newer sandbox lost its address 10.0.0.5",
                "kernel",
                s(21)
            ),
        ]
    );
    assert!(
        finding
            .title
            .contains("shop/db-0 lost its address 10.0.0.5")
    );
    assert!(finding.unknown.is_empty(), "{:?}", finding.unknown);
    let advice = finding.advice.join("\n");
    let order = [
        "kubectl cordon node-1",
        "crictl rmp old",
        "calicoctl get workloadendpoint -n shop",
        "kubectl delete pod -n shop db-0",
        "cni-plugin#383",
        "kubectl uncordon node-1",
    ];
    let places = order.map(|part| advice.find(part));
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{advice}"
    );
}

#[test]
fn anything_else_that_is_lost_is_harm_too() {
    let end = [veth(8, "cali1", 3)];
    let told = |after, words: &str| {
        let finding = harm(after);
        let last = finding.evidence.last().unwrap();
        assert!(last.claim.contains(words), "{}", last.claim);
        assert!(finding.title.contains(words), "{}", finding.title);
        last.source.clone()
    };
    assert_eq!(
        told(outside(22, &[], &[5]), "its host-side veth cali1"),
        "kernel"
    );
    assert_eq!(
        told(outside(25, &end, &[]), "the host's route to 10.0.0.5"),
        "kernel"
    );
    assert_eq!(
        told(
            inside(22, "failed"),
            "its gateway's neighbour entry 169.254.1.1"
        ),
        "kernel"
    );
    let path = format!("its reservation {STORE}/10.0.0.5");
    assert_eq!(told(stored(22, &[]), &path), "host-local");
}

#[test]
fn harm_is_told_until_it_is_repaired() {
    let mut node = Node::of(&stale());
    node.only(21, RULE, State::Open);
    node.tell(removed(21, 200, 5));
    node.only(23, RULE, State::Updated);
    // The runtime's own last DEL changes nothing.
    node.tell(calls(30, old_del()));
    node.tell(ended(31, old_del()));
    node.tell_all(&looked(42));
    for seconds in [43, 1_000, 5_000] {
        let told = node.of_rule(seconds, RULE);
        let resolved = told.iter().any(|(_, state)| *state == State::Resolved);
        assert!(!resolved, "{told:#?}");
    }
    node.tell(added(5_001, 200, 5));
    node.only(5_002, RULE, State::Resolved);
}

#[test]
fn harm_ends_with_the_sandbox_that_it_was_done_to() {
    let mut node = Node::of(&[stale(), vec![removed(21, 200, 5)]].concat());
    node.only(26, RULE, State::Open);
    node.tell(calls(30, new_call("DEL")));
    node.only(31, RULE, State::Resolved);
}

#[test]
fn a_sandbox_that_has_all_it_had_was_not_harmed() {
    let mut node = Node::of(&stale());
    let (pending, _) = node.only(21, RULE, State::Open);
    assert_eq!(pending.detail.effect, Some(Effect::Unknown));
    assert_eq!(pending.severity, Severity::Info);
    assert!(
        pending.unknown[0].contains("10 s after the DEL"),
        "{:?}",
        pending.unknown
    );
    node.tell_all(&looked(26));
    assert_eq!(node.of_rule(27, RULE), []);
    node.tell_all(&looked(31));
    let (finding, _) = node.only(32, RULE, State::Updated);
    assert_eq!(finding.detail.effect, Some(Effect::Harmless));
    assert_eq!(finding.severity, Severity::Info);
    let claim = &finding.evidence.last().unwrap().claim;
    for part in ["eth0", "cali1", "10.0.0.5", "default via 169.254.1.1"] {
        assert!(claim.contains(part), "{claim}");
    }
    assert!(finding.advice.is_empty(), "{:?}", finding.advice);
    assert_eq!(node.of_rule(300, RULE), []);
    node.only(322, RULE, State::Resolved);
}

#[test]
fn the_loopback_device_is_of_no_account() {
    let lo = |call: CniCall| CniCall {
        ifname: String::from("lo"),
        plugin: String::from("loopback"),
        ..call
    };
    let mut story = two();
    story.push(calls(20, lo(old_del())));
    story.push(ended(20, lo(old_del())));
    assert_eq!(Node::of(&story).of_rule(20, RULE), []);
    story.extend([calls(20, old_del()), ended(21, old_del())]);
    story.push(removed(21, 200, 5));
    let (finding, _) = Node::of(&story).only(26, RULE, State::Open);
    let claims = finding.evidence.iter();
    assert!(!claims.clone().any(|it| it.claim.contains("loopback")));
    assert_eq!(claims.count(), 4);
}

#[test]
fn a_failed_del_says_what_the_plugin_said() {
    let mut story = two();
    story.push(calls(20, old_del()));
    story.push(failed(21, old_del(), "etcd: context deadline exceeded"));
    story.push(removed(21, 200, 5));
    let (finding, _) = Node::of(&story).only(26, RULE, State::Open);
    let claims: Vec<&str> = finding
        .evidence
        .iter()
        .map(|it| it.claim.as_str())
        .collect();
    let said = "failed with exit status 1: etcd: context deadline exceeded";
    assert!(
        claims.iter().any(|claim| claim.ends_with(said)),
        "{claims:?}"
    );
}

#[test]
fn losses_of_another_time_are_not_its_harm() {
    let late = [stale(), looked(31), vec![removed(40, 200, 5)]].concat();
    let (finding, _) = Node::of(&late).only(41, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Harmless));
    let mut early = two();
    early.push(removed(15, 200, 5));
    early.extend([calls(20, old_del()), ended(21, old_del())]);
    early.extend(looked(31));
    let (finding, _) = Node::of(&early).only(41, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Harmless));
}

#[test]
fn the_same_two_sandboxes_are_the_same_finding_however_often_it_is_tried() {
    let id = harm(removed(21, 200, 5)).id;
    let again = [
        stale(),
        vec![
            calls(30, old_del()),
            ended(31, old_del()),
            removed(31, 200, 5),
        ],
    ]
    .concat();
    let (finding, _) = Node::of(&again).only(33, RULE, State::Open);
    assert_eq!(finding.id, id);
    let claims: Vec<&str> = finding
        .evidence
        .iter()
        .map(|it| it.claim.as_str())
        .collect();
    let tried = "(the last of 2 that were seen); it succeeded";
    assert!(
        claims.iter().any(|claim| claim.contains(tried)),
        "{claims:?}"
    );
}
