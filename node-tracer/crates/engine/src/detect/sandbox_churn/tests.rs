//! Pods whose sandboxes do not last, and pods that only look so.

use crate::testing::Node;
use event::{
    CniCall, Event, RuntimeSandbox,
    finding::{Finding, Rule, Severity, State},
    testing::*,
};

const CHURN: Rule = Rule::SandboxChurn;

fn of(command: &str, i: i64, uid: &str) -> CniCall {
    let inode = 100 + i as u32;
    call(command, &format!("sandbox-{i}"), inode, uid, "db-0")
}

/// Sandbox `i` is tried and fails; the runtime cleans up.
fn tried(seconds: i64, i: i64, uid: &str) -> [Event; 4] {
    [
        calls(seconds, of("ADD", i, uid)),
        failed(
            seconds,
            of("ADD", i, uid),
            "no IP addresses available in range set: a-b",
        ),
        calls(seconds, of("DEL", i, uid)),
        ended(seconds, of("DEL", i, uid)),
    ]
}

/// Sandbox `i` is set up and taken down again.
fn lived(seconds: i64, i: i64, uid: &str) -> [Event; 4] {
    [
        calls(seconds, of("ADD", i, uid)),
        ended(seconds, of("ADD", i, uid)),
        calls(seconds + 4, of("DEL", i, uid)),
        ended(seconds + 4, of("DEL", i, uid)),
    ]
}

fn at_end(story: &[Event], seconds: i64) -> Option<Finding> {
    let told = Node::of(story).of_rule(seconds, CHURN);
    assert!(told.len() <= 1, "{told:#?}");
    told.into_iter().next().map(|(finding, _)| finding)
}

#[test]
fn the_third_sandbox_in_ten_minutes_is_churn_until_it_stops() {
    let mut node = Node::default();
    node.tell_all(&tried(10, 0, OLD));
    node.tell_all(&tried(20, 1, OLD));
    assert_eq!(node.of_rule(21, CHURN), []);
    node.tell_all(&tried(30, 2, OLD));
    let (found, _) = node.only(31, CHURN, State::Open);
    assert_eq!((found.severity, found.since), (Severity::Warning, s(10)));
    assert_eq!(found.detail.attempts, Some(3));
    assert_eq!(found.sandbox_id.as_deref(), Some("sandbox-2"));
    assert!(found.title.ends_with("CNI ADD fails"), "{}", found.title);
    let said = found
        .evidence
        .iter()
        .any(|e| e.claim.contains("no IP addresses"));
    assert!(said, "{found:#?}");
    assert!(found.advice[0].contains("add-failed"));
    node.tell_all(&tried(40, 3, OLD));
    let (more, _) = node.only(41, CHURN, State::Updated);
    assert_eq!(more.detail.attempts, Some(4));
    assert_eq!(node.of_rule(639, CHURN), []);
    node.only(640, CHURN, State::Resolved);
}

#[test]
fn sandboxes_that_live_a_moment_are_told_apart() {
    let story: Vec<_> = (0..3).flat_map(|i| lived(i * 60, i, OLD)).collect();
    let found = at_end(&story, 200).unwrap();
    assert!(found.title.ends_with("; CNI ADD works"));
    assert!(
        found
            .unknown
            .iter()
            .any(|line| line.contains("what ended those"))
    );
    let far: Vec<_> = (0..3).flat_map(|i| lived(i * 400, i, OLD)).collect();
    assert!(at_end(&far, 810).is_none(), "three in 800 s");
}

#[test]
fn a_stateful_sets_pod_that_is_made_anew_is_another() {
    let uid = |i: i64| format!("0a1b2c3d-0000-4000-8000-{i:012}");
    let story: Vec<_> = (0..9).flat_map(|i| lived(i * 10, i, &uid(i))).collect();
    assert!(at_end(&story, 100).is_none());
}

#[test]
fn the_second_del_and_the_loopback_make_no_sandbox() {
    let lo = |event: &CniCall| CniCall {
        ifname: "lo".into(),
        ..event.clone()
    };
    let mut story = Vec::new();
    for i in 0..2 {
        story.extend(lived(i * 10, i, OLD));
        story.push(calls(i * 10, lo(&of("ADD", i, OLD))));
        let second = CniCall {
            netns: None,
            pid: 99,
            ..of("DEL", i, OLD)
        };
        story.push(ended(i * 10 + 5, second));
    }
    assert!(at_end(&story, 60).is_none());
}

#[test]
fn containers_without_a_pod_are_none_and_names_without_uid_are_in_doubt() {
    let bent = |bend: fn(&mut CniCall)| {
        let story: Vec<Event> = (0..3)
            .flat_map(|i| {
                let mut add = of("ADD", i, OLD);
                bend(&mut add);
                [calls(i * 10, add.clone()), ended(i * 10, add)]
            })
            .collect();
        at_end(&story, 60)
    };
    assert!(bent(|call| call.pod = None).is_none());
    let nameless = bent(|call| call.pod.as_mut().unwrap().uid = None).unwrap();
    assert!(nameless.unknown[0].contains("no UID"), "{nameless:#?}");
}

#[test]
fn a_pod_that_is_gone_churns_no_more() {
    let mut story: Vec<_> = (0..3).flat_map(|i| lived(i * 10, i, OLD)).collect();
    story.push(listed(25, &[pod("db-0", OLD, &[])]));
    assert!(at_end(&story, 60).is_some());
    story.push(listed(30, &[]));
    assert!(at_end(&story, 60).is_none());
}

fn made(attempt: u32, created: i64, ready: bool) -> RuntimeSandbox {
    RuntimeSandbox {
        attempt,
        created: Some(s(created)),
        ready: Some(ready),
        netns: None,
        ..sandbox(&format!("sandbox-{attempt}"), 100, OLD)
    }
}

#[test]
fn the_runtimes_own_count_tells_one_look() {
    let found = at_end(
        &[cri(100, &[made(687, 90, false), made(688, 95, true)])],
        101,
    )
    .unwrap();
    assert_eq!(found.detail.attempts, Some(688));
    assert_eq!(found.sandbox_id.as_deref(), Some("sandbox-688"));
    assert!(found.unknown[0].contains("only a trace sees"));
    let died = at_end(&[cri(100, &[made(5, 95, false)])], 101).unwrap();
    assert_eq!(died.detail.attempts, Some(5));
}

#[test]
fn a_count_that_stands_still_is_history() {
    let rebooted = [cri(100, &[made(3, -90_000, false), made(4, 95, true)])];
    assert!(at_end(&rebooted, 101).is_none());
    let old = [cri(9_000, &[made(687, 90, false), made(688, 95, true)])];
    assert!(at_end(&old, 9_001).is_none());
    let young = [cri(100, &[made(0, 90, false), made(1, 95, true)])];
    assert!(at_end(&young, 101).is_none());
    let silent = [
        cri(100, &[made(687, 90, false), made(688, 95, true)]),
        cri_fails(100),
    ];
    assert!(at_end(&silent, 101).is_none());
}

#[test]
fn the_highest_number_that_is_known_is_told() {
    let mut story: Vec<_> = (0..3).flat_map(|i| lived(i * 10, i, OLD)).collect();
    story.push(cri(30, &[made(688, 25, false)]));
    assert_eq!(at_end(&story, 60).unwrap().detail.attempts, Some(688));
}

/// The CNI agent comes 40 s late: three sandboxes in vain, and then one more.
fn late_agent() -> Vec<Event> {
    let mut story: Vec<_> = (0..3).flat_map(|i| tried(10 + i * 12, i, OLD)).collect();
    story.extend([calls(50, of("ADD", 3, OLD)), ended(52, of("ADD", 3, OLD))]);
    story
}

#[test]
fn a_sandbox_that_lasts_ends_it() {
    let mut node = Node::of(&late_agent());
    node.only(53, CHURN, State::Open);
    assert_eq!(node.of_rule(111, CHURN), []);
    node.only(112, CHURN, State::Resolved);
    // Not if it is taken down again, goes, or is only half set up.
    let and = |more: Event| at_end(&[late_agent(), vec![more]].concat(), 200);
    assert!(and(calls(90, of("DEL", 3, OLD))).is_some());
    assert!(and(dying(90, 103)).is_some());
    let second = CniCall {
        plugin: "portmap".into(),
        ..of("ADD", 3, OLD)
    };
    assert!(and(failed(90, second, "no")).is_some());
    assert!(and(found(90, 103)).is_none());
}

#[test]
fn what_has_settled_is_not_told_by_the_runtimes_count_instead() {
    let mut story = late_agent();
    story.push(cri(60, &[made(2, 34, false), made(3, 50, true)]));
    assert!(at_end(&story, 100).is_some());
    assert!(at_end(&story, 112).is_none());
    story.push(cri(120, &[made(3, 50, false)]));
    assert!(at_end(&story, 121).is_some(), "it died");
}
