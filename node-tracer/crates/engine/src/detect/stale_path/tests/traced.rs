//! The same tables in a trace, which is told them again after each change.

use super::*;
use event::{What, finding::State};

/// The events of a trace that has just read the tables, at the 5th second.
pub(super) fn traced(text: &str) -> Vec<Event> {
    let mut events = Story::of(text).events();
    for event in &mut events {
        if let What::NetnsForwarding { followed, .. } = &mut event.what {
            *followed = true;
        }
    }
    events
}

/// The node's tables of a text, as they are read at a time.
fn tables(text: &str, seconds: i64) -> Vec<Event> {
    let tables = traced(text).into_iter().filter(tables_of_node);
    tables.map(|event| at(seconds, event.what)).collect()
}

fn tables_of_node(event: &Event) -> bool {
    matches!(&event.what, What::NetnsForwarding { netns, .. } | What::NetnsDevices { netns, .. }
        if *netns == ns(1))
}

/// A node that is traced, and whose pods are looked at when that is asked for.
fn node(text: &str) -> Node {
    let mut node = Node::of(&traced(text));
    node.tick(100);
    look(&mut node, text, 101);
    node
}

/// Looks at what is asked for, as a text says.
fn look(node: &mut Node, text: &str, seconds: i64) {
    let wanted = node.0.watched().unplaced.clone();
    for event in traced(text) {
        if let What::NetnsDevices { netns, .. } = &event.what
            && wanted.contains(netns)
        {
            node.tell(at(seconds, event.what));
        }
    }
}

fn told(node: &mut Node, seconds: i64) -> Vec<Finding> {
    let told = node.of_rule(seconds, Rule::StalePath).into_iter();
    told.map(|(finding, _)| finding).collect()
}

/// What is open.
fn open(node: &mut Node) -> Vec<Finding> {
    node.tick(NOW);
    let open = node.0.open().into_iter();
    let its = open.filter(|finding| finding.rule == Rule::StalePath);
    its.cloned().collect()
}

const STALE: &str = "gone 10.77.0.9\nrule 1536: from 10.77.0.9 lookup 1099\n";

#[test]
fn what_cnis_keep_on_purpose_is_no_finding() {
    for (name, text) in healthy() {
        assert_eq!(open(&mut node(text)), [], "{name}");
    }
}

#[test]
fn a_stale_rule_is_found_on_a_node_of_every_cni() {
    for (name, text) in healthy() {
        let found = open(&mut node(&format!("{text}\n{STALE}")));
        let entries: Vec<_> = found.iter().map(entry).collect();
        assert_eq!(entries, ["1536: from 10.77.0.9 lookup 1099"], "{name}");
    }
}

#[test]
fn an_entry_is_told_once_it_has_stood_and_is_over_when_it_is_gone() {
    let older = AWS.replace("rule 1536", "rule 1536: from 10.0.0.5 lookup 3\nrule 1536");
    let mut node = node(AWS);
    assert_eq!(told(&mut node, 150), []);
    node.tell_all(&tables(&older, 200));
    assert_eq!(told(&mut node, 201), []);
    // Another change does not make it younger.
    node.tell_all(&tables(&format!("{older}route 10.9.0.1 dev eth1\n"), 202));
    let (found, _) = node.only(203, Rule::StalePath, State::Open);
    assert_eq!((found.since, found.severity), (s(200), Severity::Critical));
    node.tell_all(&tables(AWS, 210));
    node.only(211, Rule::StalePath, State::Resolved);
}

#[test]
fn nothing_new_is_told_of_tables_that_are_out_of_date() {
    let older = AWS.replace("rule 1536", "rule 1536: from 10.0.0.5 lookup 3\nrule 1536");
    let outdated = |seconds, outdated| {
        let netns = ns(1);
        at(seconds, What::NetnsForwardingOutdated { netns, outdated })
    };
    let mut node = node(AWS);
    node.tell_all(&tables(&older, 200));
    node.tell(outdated(201, true));
    assert_eq!(told(&mut node, 300), [], "it may have gone at the 202nd");
    node.tell(outdated(301, false));
    node.only(302, Rule::StalePath, State::Open);
    node.tell(outdated(303, true));
    assert_eq!(told(&mut node, 400), [], "what was seen to stand stays");
}

#[test]
fn while_a_cni_call_for_it_runs_nothing_is_told() {
    let older = AWS.replace("rule 1536", "rule 1536: from 10.0.0.5 lookup 3\nrule 1536");
    let mut node = node(&older);
    node.tick(150);
    let add = call("ADD", "sandbox-100", 100, "uid-100", "pod-100");
    node.tell(calls(160, add.clone()));
    node.only(161, Rule::StalePath, State::Resolved);
    node.tell(ended(170, add));
    node.only(171, Rule::StalePath, State::Open);
}

#[test]
fn what_one_look_has_shown_proves_nothing_later() {
    let events = Story::of(&format!("{AWS}{STALE}")).events();
    assert_eq!(open(&mut Node::of(&events)), []);
}

#[test]
fn a_neighbour_is_told_after_the_pods_devices_were_read_again() {
    let other = AWS.replace(
        "lladdr 5e:00:00:00:00:05 reachable",
        "lladdr 5e:00:00:00:00:99 permanent",
    );
    let mut stale = Node::of(&traced(&other));
    assert_eq!(told(&mut stale, 100), []);
    assert_eq!(stale.0.watched().unplaced, BTreeSet::from([ns(100)]));
    look(&mut stale, &other, 101);
    assert_eq!(told(&mut stale, 102).len(), 1);
    // The pod has given its device that address itself.
    let mut own = Node::of(&traced(&other));
    own.tick(100);
    look(
        &mut own,
        &AWS.replace("5e:00:00:00:00:05\n", "5e:00:00:00:00:99\n"),
        101,
    );
    assert_eq!(open(&mut own), []);
}

#[test]
fn a_neighbour_that_the_kernel_asks_again_is_told_if_that_does_not_mend_it() {
    let other = AWS.replace("5e:00:00:00:00:05 reachable", "5e:00:00:00:00:99 stale");
    let mut node = node(AWS);
    node.tell_all(&tables(&other, 200));
    assert_eq!(told(&mut node, 210), []);
    look(&mut node, &other, 211);
    assert_eq!(told(&mut node, 212), []);
    assert_eq!(told(&mut node, 216).len(), 1);
}

/// A sandbox with 10.0.0.9 whose ADD is seen, with the rule that it enters, until its
/// namespace is gone.
fn short_life() -> (Node, String) {
    let with_rule = format!("{AWS}rule 1536: from 10.0.0.9 lookup 3\n");
    let mut node = node(AWS);
    let add = call("ADD", "short", 900, NEW, "short");
    node.tell_all(&[created(200, 900), calls(200, add.clone())]);
    node.tell_all(&[added(201, 900, 9), answered(202, add, 9)]);
    node.tell_all(&tables(&with_rule, 203));
    node.tell_all(&[dying(300, 900), destroyed(300, 900)]);
    (node, with_rule)
}

#[test]
fn whose_a_rule_was_is_known_from_the_add_that_was_seen() {
    let (mut node, _) = short_life();
    assert_eq!(told(&mut node, 305), [], "CRI may still call DEL");
    node.tell(cri(310, &Story::of(AWS).sandboxes));
    let (found, _) = node.only(311, Rule::StalePath, State::Open);
    assert_eq!(found.sandbox_id.as_deref(), Some("short"));
    assert!(
        found
            .evidence
            .iter()
            .any(|it| it.claim.starts_with("CNI ADD gave 10.0.0.9")),
        "{:#?}",
        found.evidence
    );
}

#[test]
fn a_rule_that_is_older_than_the_pods_namespace_is_another_pods() {
    let rule = "rule 1000: from 10.0.0.8 lookup 3\n";
    let next = "pod 10.0.0.8 eni8a2b3c4d5e6 5e:00:00:00:00:08\n";
    let second = "rule 1000: from 10.0.0.8 lookup 2\n";
    let of = |at_first: &str| {
        let mut node = node(AWS);
        node.tell_all(&tables(&format!("{AWS}{at_first}"), 190));
        node.tell(created(200, 104));
        let pod = traced(&format!("{AWS}{next}")).into_iter();
        let its = pod.filter(|it| !tables_of_node(it));
        node.tell_all(&its.map(|it| at(202, it.what)).collect::<Vec<_>>());
        node.tell_all(&tables(&format!("{AWS}{next}{rule}{second}"), 203));
        told(&mut node, 300).len()
    };
    assert_eq!(of(rule), 1);
    assert_eq!(of(""), 0, "both can be the pod's own");
}

#[test]
fn a_rule_that_a_del_has_left_is_stale_a_minute_later() {
    let (mut node, with_rule) = short_life();
    let del = call("DEL", "short", 900, NEW, "short");
    node.tell_all(&[calls(301, del.clone()), ended(302, del)]);
    node.tell(cri(310, &Story::of(AWS).sandboxes));
    assert_eq!(told(&mut node, 330), [], "an agent may take it away");
    assert_eq!(told(&mut node, 363).len(), 1);
    node.tell_all(&tables(AWS, 370));
    node.only(371, Rule::StalePath, State::Resolved);
    // Somebody else has entered it since.
    node.tell_all(&tables(&with_rule, 400));
    assert_eq!(open(&mut node), []);
}

#[test]
fn tables_that_cannot_be_read_any_more_leave_it_open_and_that_is_said() {
    let mut node = node(&format!("{AWS}{STALE}"));
    node.tick(150);
    let source = String::from(FORWARDING);
    let error = String::from("no answer");
    node.tell(at(160, What::SourceFailed { source, error }));
    let (found, _) = node.only(200, Rule::StalePath, State::Updated);
    assert!(
        found.unknown.iter().any(|it| it.ends_with("no answer")),
        "{:?}",
        found.unknown
    );
    assert!(
        node.0
            .gaps()
            .iter()
            .any(|gap| gap.starts_with("stale-path"))
    );
}

#[test]
fn many_entries_are_judged_once_a_second_and_right() {
    let many: String = (0..600)
        .map(|n| format!("route 10.9.{}.{} dev eth1\n", n / 250, n % 250))
        .collect();
    let text = format!("{AWS}{many}");
    let older = text.replace("rule 1536", "rule 1536: from 10.0.0.5 lookup 3\nrule 1536");
    let mut node = node(&text);
    node.tell_all(&tables(&older, 200));
    let all = (201..210).filter(|second| !told(&mut node, *second).is_empty());
    assert_eq!(all.count(), 1);
}
