//! DELs that fail, and how often.

use crate::testing::Node;
use event::{
    CniCall, Event,
    finding::{Rule, Severity, State},
    testing::*,
};

const RETRY: Rule = Rule::DelRetry;
const ID: &str = "sandbox-old";
const ABSENT: &str = "resource does not exist: WorkloadEndpoint(node=slave-197, orchestrator=k8s)";

fn of(command: &str, plugin: &str, pid: u32) -> CniCall {
    CniCall {
        plugin: plugin.to_owned(),
        pid,
        ..call(command, ID, 100, OLD, "etcd1-0")
    }
}

fn added_by(plugins: &[&str]) -> Vec<Event> {
    let all = plugins.iter().zip(1..);
    let all = all.flat_map(|(plugin, at)| {
        let add = of("ADD", plugin, 77);
        [calls(at, add.clone()), answered(at, add, 5)]
    });
    all.collect()
}

fn fails(seconds: i64, plugin: &str) -> [Event; 2] {
    let del = of("DEL", plugin, 1_000 + seconds as u32);
    [calls(seconds, del.clone()), failed(seconds, del, ABSENT)]
}

fn said(lines: &[String], part: &str) -> bool {
    lines.iter().any(|line| line.contains(part))
}

#[test]
fn the_third_failure_in_a_row_is_one_too_many() {
    let mut node = Node::of(&added_by(&["calico"]));
    node.tell_all(&fails(100, "calico"));
    node.tell_all(&fails(110, "calico"));
    assert_eq!(node.of_rule(111, RETRY), []);
    node.tell_all(&fails(120, "calico"));
    let (found, _) = node.only(121, RETRY, State::Open);
    assert_eq!((found.severity, found.since), (Severity::Warning, s(100)));
    assert_eq!(found.detail.attempts, Some(3));
    assert_eq!(found.detail.error.as_ref().unwrap().msg, ABSENT);
    assert_eq!(found.sandbox_id.as_deref(), Some(ID));
    assert_eq!(found.addresses, [ip(5)]);
    assert!(found.title.contains("again and again") && found.title.contains("does not exist"));
    let pace = "calico, called about every 10 s, failed";
    assert!(found.evidence.iter().any(|e| e.claim.starts_with(pace)));
    assert!(said(&found.advice, "update calico"));
    // The next one runs: that says nothing yet.
    node.tell(calls(130, of("DEL", "calico", 5)));
    assert_eq!(node.of_rule(131, RETRY), []);
    node.tell(ended(132, of("DEL", "calico", 5)));
    node.only(133, RETRY, State::Resolved);
}

#[test]
fn one_failure_is_told_when_the_log_ends_unless_something_ended_it() {
    let own = |command: &str| CniCall {
        log: true,
        pid: 0,
        ..of(command, "calico", 0)
    };
    let del = [calls(100, own("DEL")), failed(100, own("DEL"), ABSENT)];
    let end = |story: &[Event]| {
        let mut node = Node::of(&[]);
        node.0.wait_for_tries(std::time::Duration::from_secs(60));
        node.tell_all(story);
        assert_eq!(node.of_rule(500, RETRY), [], "the next try may succeed");
        node.0.wait_for_tries(std::time::Duration::ZERO);
        node.of_rule(501, RETRY)
    };
    let found = end(&del);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].0.title.contains("no success in the log"),
        "{found:?}"
    );
    assert_eq!(found[0].0.severity, Severity::Warning);
    let add = [calls(90, own("ADD")), failed(91, own("ADD"), ABSENT)];
    assert_eq!(end(&[add, del].concat()), [], "it is part of that failure");
}

#[test]
fn silence_ends_it() {
    let mut node = Node::of(&added_by(&["calico"]));
    for seconds in [100, 110, 120] {
        node.tell_all(&fails(seconds, "calico"));
    }
    node.only(121, RETRY, State::Open);
    assert_eq!(node.of_rule(719, RETRY), []);
    node.only(720, RETRY, State::Resolved);
}

#[test]
fn two_failures_and_a_success_are_ordinary() {
    let mut story = added_by(&["calico"]);
    for round in 0..5 {
        story.extend(fails(100 + round * 30, "calico"));
        story.extend(fails(110 + round * 30, "calico"));
        story.push(ended(120 + round * 30, of("DEL", "calico", 9)));
    }
    assert_eq!(Node::of(&story).of_rule(300, RETRY), []);
}

#[test]
fn a_plugin_that_fails_keeps_those_before_it_from_being_called() {
    let mut story = added_by(&["bridge", "portmap"]);
    for seconds in [100, 110, 120] {
        story.extend(fails(seconds, "portmap"));
    }
    story.push(reserved(121, Some(ID)));
    let (found, _) = Node::of(&story).only(122, RETRY, State::Open);
    let claims: Vec<_> = found.evidence.iter().map(|e| e.claim.clone()).collect();
    assert!(said(&claims, "bridge does not run"), "{claims:#?}");
    assert!(said(&claims, "10.0.0.5 is reserved for sandbox-old"));
    assert!(said(&found.advice, "leave the reservation of 10.0.0.5"));
    // If the first one fails, nothing waits behind it.
    let mut story = added_by(&["bridge", "portmap"]);
    for seconds in [100, 110, 120] {
        story.push(ended(seconds, of("DEL", "portmap", seconds as u32)));
        story.extend(fails(seconds, "bridge"));
    }
    let (found, _) = Node::of(&story).only(122, RETRY, State::Open);
    let claims: Vec<_> = found.evidence.iter().map(|e| e.claim.clone()).collect();
    assert!(!said(&claims, "is not called"), "{claims:#?}");
}

#[test]
fn what_was_before_the_tracer_is_not_guessed() {
    let mut story = Vec::new();
    for seconds in [100, 110, 120] {
        story.extend(fails(seconds, "portmap"));
    }
    let (found, _) = Node::of(&story).only(122, RETRY, State::Open);
    assert!(said(&found.unknown, "its ADD was before the first look"));
    assert!(said(&found.unknown, "whether its IP is still reserved"));
}

#[test]
fn a_newer_sandbox_of_the_name_is_pointed_out() {
    let mut story = added_by(&["calico"]);
    let newer = CniCall {
        plugin: "calico".into(),
        ..call("ADD", "sandbox-new", 200, NEW, "etcd1-0")
    };
    story.extend([calls(50, newer.clone()), answered(51, newer, 6)]);
    for seconds in [100, 110, 120] {
        story.extend(fails(seconds, "calico"));
    }
    let (found, _) = Node::of(&story).only(122, RETRY, State::Open);
    let claims: Vec<_> = found.evidence.iter().map(|e| e.claim.clone()).collect();
    assert!(said(&claims, "a newer sandbox of the same pod name lives"));
    assert!(said(&found.advice, "stale-del"));
}
