//! Calls in the ordinary course of things are no finding.

use super::*;

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
    story.retain(|event| !matches!(event.what, event::What::NetnsDestroyed { .. }));
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
