//! The old sandbox's DEL, and what the new one has afterwards.

use super::*;
use crate::{
    event::{CniCall, CniEffect, Device, Event, PodRef, Route, Trace, TraceKind},
    finding::{Rule, Severity, State},
    model::story::*,
};

const RULE: Rule = Rule::StaleDel;

fn old_add() -> CniCall {
    CniCall {
        plugin: String::from("calico"),
        ..call("ADD", "old", 100, OLD, "db-0")
    }
}

/// As kubelet tries it again: the namespace is gone.
fn old_del() -> CniCall {
    CniCall {
        netns: None,
        netns_path: String::new(),
        pid: 99,
        command: String::from("DEL"),
        ..old_add()
    }
}

fn new_call(command: &str) -> CniCall {
    CniCall {
        plugin: String::from("calico"),
        ..call(command, "new", 200, NEW, "db-0")
    }
}

fn inside(seconds: i64, state: &str) -> Event {
    let routes = [default_route(GATEWAY, 3)];
    let neighbours = [neighbour(3, state)];
    devices(seconds, 200, &[veth(3, "eth0", 8)], &routes, &neighbours)
}

fn outside(seconds: i64, ends: &[Device], routed: &[u8]) -> Event {
    let routes: Vec<Route> = routed.iter().map(|last| route_to(*last, 8)).collect();
    devices(seconds, 1, ends, &routes, &[])
}

/// All is there.
fn looked(seconds: i64) -> Vec<Event> {
    let end = [veth(8, "cali1", 3)];
    vec![inside(seconds, "permanent"), outside(seconds, &end, &[5])]
}

/// The old sandbox was made at 1 and has died; the new one is set up at 12.
fn two() -> Vec<Event> {
    let mut story = vec![
        host(0),
        created(1, 100),
        calls(1, old_add()),
        answered(2, old_add(), 4),
        destroyed(5, 100),
        created(10, 200),
        calls(11, new_call("ADD")),
        added(11, 200, 5),
        answered(12, new_call("ADD"), 5),
        stored(12, &[(5, "new", 11)]),
    ];
    story.extend(looked(13));
    story
}

/// The old sandbox's DEL, from 20 to 21.
fn stale() -> Vec<Event> {
    [two(), vec![calls(20, old_del()), ended(21, old_del())]].concat()
}

fn harm(after: Event) -> Finding {
    let mut node = Node::of(&[stale(), vec![after]].concat());
    let (finding, _) = node.only(26, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Harmful), "{finding:#?}");
    assert_eq!(finding.severity, Severity::Critical);
    finding
}

#[test]
fn a_lost_address_is_harm_with_the_whole_story() {
    let finding = harm(removed(22, 200, 5));
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
                "the newer sandbox has lost its address 10.0.0.5",
                "kernel",
                s(22)
            ),
        ]
    );
    assert!(
        finding
            .title
            .contains("shop/db-0 has lost its address 10.0.0.5")
    );
    assert!(finding.unknown.is_empty(), "{:?}", finding.unknown);
    let advice = finding.advice.join("\n");
    for part in [
        "kubectl delete pod -n shop db-0",
        "calicoctl get workloadendpoint -n shop",
        "crictl pods --id old",
        "cni-plugin#383",
    ] {
        assert!(advice.contains(part), "{advice}");
    }
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
    assert_eq!(told(outside(22, &[], &[5]), "its host end cali1"), "kernel");
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
    node.tell(removed(22, 200, 5));
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
    let mut node = Node::of(&[stale(), vec![removed(22, 200, 5)]].concat());
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
    story.push(removed(22, 200, 5));
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
    story.push(removed(22, 200, 5));
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
fn without_looks_it_is_not_known_and_that_is_said() {
    let mut node = Node::of(&stale());
    node.only(21, RULE, State::Open);
    assert_eq!(node.of_rule(33, RULE), []);
    let (finding, _) = node.only(34, RULE, State::Updated);
    assert_eq!(finding.detail.effect, Some(Effect::Unknown));
    assert_eq!(finding.severity, Severity::Info);
    assert!(finding.unknown[0].contains("could not be looked at afterwards"));
    // A look that comes after all decides.
    node.tell_all(&looked(40));
    node.tell(effect_of_nothing(40));
    let (finding, _) = node.only(41, RULE, State::Updated);
    assert_eq!(finding.detail.effect, Some(Effect::Harmless));

    // Nobody knows what it had before.
    let before = |event: &Event| event.time < s(13);
    let mut story: Vec<Event> = stale();
    story.retain(|event| before(event) || event.time > s(13));
    story.extend(looked(32));
    let (finding, _) = Node::of(&story).only(33, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Unknown));
    assert!(finding.unknown[0].contains("before the DEL was not looked at"));
    assert_eq!(finding.severity, Severity::Info);
}

/// Something that makes rules be asked again.
fn effect_of_nothing(seconds: i64) -> Event {
    created(seconds, 900)
}

#[test]
fn a_loss_that_may_be_older_is_told_with_that_doubt() {
    let end = [veth(8, "cali1", 3)];
    let mut story = two();
    story.extend([calls(500, old_del()), ended(501, old_del())]);
    story.push(outside(502, &end, &[]));
    let (finding, _) = Node::of(&story).only(510, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Harmful));
    assert!(finding.unknown[0].starts_with("whether the host's route to 10.0.0.5 was still there"));
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

/// Nothing is found, at once and later.
fn quiet(story: &[Event]) {
    let mut node = Node::of(story);
    for seconds in [22, 25, 35, 60] {
        assert_eq!(node.of_rule(seconds, RULE), [], "at {seconds}");
    }
}

#[test]
fn ordinary_removal_is_no_finding() {
    let with_netns = CniCall {
        netns: Some(ns(200)),
        ..new_call("DEL")
    };
    let empty = CniCall {
        netns: None,
        netns_path: String::new(),
        pid: 98,
        ..new_call("DEL")
    };
    let tale = [
        calls(20, with_netns.clone()),
        removed(20, 200, 5),
        outside(20, &[], &[]),
        ended(21, with_netns),
        dying(21, 200),
        destroyed(21, 200),
        // RemovePodSandbox.
        calls(22, empty.clone()),
        ended(22, empty),
    ];
    quiet(&[two(), tale.to_vec()].concat());
    // The same without a second sandbox ever.
    let only: Vec<Event> = two().into_iter().filter(|it| it.time >= s(10)).collect();
    quiet(&[vec![host(0)], only, tale.to_vec()].concat());
}

#[test]
fn the_runtimes_second_del_of_a_sandbox_that_was_taken_back_is_ordinary() {
    let second = CniCall {
        netns: None,
        netns_path: String::new(),
        pid: 98,
        ..old_del()
    };
    let tale = vec![calls(20, second.clone()), ended(21, second.clone())];
    let mut taken_back = two();
    taken_back.insert(4, calls(4, old_del()));
    taken_back.insert(5, ended(5, old_del()));
    quiet(&[taken_back.clone(), tale.clone()].concat());
    // By its pod's name it took the newer sandbox's address all the same.
    let harm = [taken_back, tale.clone(), vec![removed(21, 200, 5)]].concat();
    let (finding, _) = Node::of(&harm).only(25, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Harmful));
    // It was never taken back before.
    let first = [two(), tale].concat();
    let (finding, _) = Node::of(&first).only(25, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Unknown));
}

#[test]
fn a_del_before_the_newer_sandboxs_add_is_ordinary() {
    let mut story = two();
    story.insert(4, calls(4, old_del()));
    story.insert(5, ended(5, old_del()));
    quiet(&story);
}

#[test]
fn a_del_of_the_newer_sandbox_does_the_older_one_no_wrong() {
    // The old one lives on, as a ghost; the new one is taken down.
    let mut story = two();
    story.retain(|event| !matches!(event.what, crate::event::What::NetnsDestroyed { .. }));
    story.push(calls(20, new_call("DEL")));
    story.push(ended(21, new_call("DEL")));
    quiet(&story);
}

#[test]
fn pods_of_one_name_in_two_namespaces_are_two() {
    let mut del = old_del();
    del.container_id = String::from("foreign");
    del.pod = Some(PodRef {
        namespace: Some(String::from("test")),
        ..a_pod(OLD, "db-0")
    });
    let tale = vec![calls(20, del.clone()), ended(21, del), removed(22, 200, 5)];
    quiet(&[two(), tale].concat());
}

#[test]
fn a_newer_sandbox_that_is_removed_just_after_is_no_harm() {
    // Its own DEL is told after the first thing that it takes away.
    let own = new_call("DEL");
    let tale = vec![removed(22, 200, 5), calls(22, own.clone()), ended(23, own)];
    let mut node = Node::of(&stale());
    node.only(21, RULE, State::Open);
    node.tell_all(&tale);
    node.only(23, RULE, State::Resolved);
    assert_eq!(node.of_rule(40, RULE), []);
}

#[test]
fn a_process_number_that_is_used_again_makes_no_stale_del() {
    // The old sandbox's DEL ended unseen; its number is that of the new ADD.
    let mut story = two();
    let pid = new_call("ADD").pid;
    story.insert(5, calls(6, CniCall { pid, ..old_del() }));
    quiet(&story);
}

#[test]
fn an_add_that_is_older_than_the_tracer_is_known_by_libcnis_cache() {
    let cached = |id: &str, inode, uid: &str, last, written| crate::event::Attachment {
        pod: Some(a_pod(uid, "db-0")),
        ..attachment(id, inode, last, written)
    };
    let base = |written_old| {
        let mut story = vec![host(0), found(0, 200), added(0, 200, 5)];
        let new = cached("new", Some(200), NEW, 5, -50);
        let old = cached("old", None, OLD, 4, written_old);
        story.push(attached(1, &[new, old]));
        story.extend(looked(2));
        story.extend([calls(20, old_del()), ended(21, old_del())]);
        story.extend(looked(31));
        story
    };
    let (finding, _) = Node::of(&base(-900)).only(32, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Harmless));
    let sources: Vec<&str> = finding
        .evidence
        .iter()
        .map(|it| it.source.as_str())
        .collect();
    assert_eq!(sources, ["libcni", "libcni", "cni", "kernel"]);
    assert_eq!(
        Node::of(&base(-10)).of_rule(32, RULE),
        [],
        "it is the newer one"
    );
}

#[test]
fn an_old_sandbox_of_which_only_the_del_is_seen_is_old() {
    let story: Vec<Event> = stale().into_iter().filter(|it| it.time >= s(10)).collect();
    let story = [vec![host(0)], story, vec![removed(22, 200, 5)]].concat();
    let (finding, _) = Node::of(&story).only(26, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Harmful));
    assert!(finding.unknown[0].starts_with("when the old sandbox was made"));
}

#[test]
fn the_same_two_sandboxes_are_the_same_finding_however_often_it_is_tried() {
    let id = harm(removed(22, 200, 5)).id;
    let again = [stale(), vec![calls(30, old_del()), removed(31, 200, 5)]].concat();
    let (finding, _) = Node::of(&again).only(33, RULE, State::Open);
    assert_eq!(finding.id, id);
    let claims: Vec<&str> = finding
        .evidence
        .iter()
        .map(|it| it.claim.as_str())
        .collect();
    let tried = "(the last of 2 that were seen); it still runs";
    assert!(
        claims.iter().any(|claim| claim.contains(tried)),
        "{claims:?}"
    );
}

/// What the newer sandbox was found to have of what its ADD gave it.
fn effect(seconds: i64, there: Option<bool>) -> Event {
    let effect = CniEffect {
        command: String::from("ADD"),
        container_id: String::from("new"),
        ifname: String::from("eth0"),
        pod: None,
        netns: Some(ns(200)),
        traces: vec![Trace {
            kind: TraceKind::Address,
            name: String::from("10.0.0.5"),
            there,
        }],
    };
    at(seconds, crate::event::What::CniEffect { effect })
}

#[test]
fn where_the_add_ended_after_the_del_what_it_gave_tells() {
    // The DEL is under way when the newer sandbox is made.
    let story = || {
        let mut story: Vec<Event> = two();
        story.retain(|event| event.time < s(12));
        story.extend([
            calls(11, old_del()),
            ended(12, old_del()),
            answered(12, new_call("ADD"), 5),
        ]);
        story.extend(looked(13));
        story
    };
    let judged = |after: &[Event]| {
        let mut node = Node::of(&[story(), after.to_vec()].concat());
        let (finding, _) = node.only(26, RULE, State::Open);
        (finding.detail.effect.unwrap(), finding.severity)
    };
    let unknown = (Effect::Unknown, Severity::Info);
    let harmless = (Effect::Harmless, Severity::Info);
    assert_eq!(judged(&looked(23)), unknown, "nobody knows of the address");
    assert_eq!(judged(&[effect(22, Some(true))]), harmless);
    let with = |seconds, there| [looked(23), vec![effect(seconds, there)]].concat();
    assert_eq!(
        judged(&with(13, Some(true))),
        harmless,
        "and looked at later"
    );
    assert_eq!(judged(&[effect(21, Some(true))]), unknown, "too early");
    assert_eq!(judged(&[effect(22, None)]), unknown, "it was not seen");
    assert_eq!(judged(&with(22, None)), unknown);
}

#[test]
fn a_del_whose_end_was_lost_is_not_waited_for_for_ever() {
    let mut story = two();
    story.push(calls(20, old_del()));
    let mut node = Node::of(&story);
    let (finding, _) = node.only(21, RULE, State::Open);
    assert!(
        finding
            .evidence
            .iter()
            .any(|it| it.claim.ends_with("it still runs"))
    );
    assert_eq!(node.of_rule(619, RULE), []);
    let (finding, _) = node.only(620, RULE, State::Updated);
    assert_eq!(finding.detail.effect, Some(Effect::Unknown));
    assert_eq!(finding.severity, Severity::Info);
    assert!(finding.unknown[0].contains("when the DEL ended was not seen"));
    let claims = finding.evidence.iter();
    assert!(
        claims
            .clone()
            .any(|it| it.claim.ends_with("its end was not seen"))
    );
    node.only(620 + 15 * 60, RULE, State::Resolved);
}
