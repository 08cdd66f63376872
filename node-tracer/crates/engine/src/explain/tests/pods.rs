//! What is said of a pod's name that several sandboxes or pods have had.

use super::*;
use event::Pod;

const FIRST: &str = "aaaaaaaaaaaaa000000000000000000000000000000000000000000000000000";
const SECOND: &str = "bbbbbbbbbbbbb000000000000000000000000000000000000000000000000000";

/// A pod of a StatefulSet was deleted by force, and came back under its name.
fn reborn(back: Pod) -> Node {
    Node::of(&[
        host(0),
        created(1, 100),
        added(3, 100, 5),
        listed(6, &[pod("db-0", OLD, &[ip(5)])]),
        holders(7, 100, &[pod_task(9, "pause", OLD, FIRST)], &[MOUNT]),
        listed(60, &[back]),
    ])
}

fn pending() -> Pod {
    Pod {
        phase: Some(String::from("Pending")),
        ..pod("db-0", NEW, &[])
    }
}

/// Two sandboxes of a pod, the second one made after the first.
fn twice(uid: &str) -> Vec<Event> {
    let sandbox = |id: &str, attempt: u32, inode, last: u8| RuntimeSandbox {
        id: id.to_owned(),
        pod: PodRef {
            namespace: Some(String::from("shop")),
            name: Some(String::from("db-0")),
            uid: Some(uid.to_owned()),
        },
        attempt,
        ready: Some(attempt > 0),
        created: Some(s(i64::from(attempt) * 20)),
        netns: Some(ns(inode)),
        ips: vec![ip(last)],
        ..RuntimeSandbox::default()
    };
    let sandboxes = What::SandboxesListed {
        source: String::from("cri"),
        endpoint: String::from("/run/containerd/containerd.sock"),
        runtime: None,
        partial: None,
        sandboxes: vec![sandbox(FIRST, 0, 100, 5), sandbox(SECOND, 1, 200, 6)],
    };
    vec![
        host(0),
        created(1, 100),
        added(3, 100, 5),
        created(20, 200),
        added(21, 200, 6),
        listed(22, &[pod("db-0", uid, &[ip(6)])]),
        holders(23, 100, &[], &[MOUNT]),
        holders(
            23,
            200,
            &[pod_task(9, "pause", uid, SECOND)],
            &["/run/netns/cni-2"],
        ),
        at(24, sandboxes),
    ]
}

#[test]
fn a_pod_is_not_given_what_a_deleted_one_of_its_name_holds() {
    let mut node = reborn(pending());
    let new = "pod shop/db-0 is Pending; no netns of it found; incomplete";
    for word in ["shop/db-0", OLD, NEW] {
        let early = ask(&node, word, 70).unwrap();
        let old =
            "deleted shop/db-0 still has 10.0.0.5 in netns 100, held open by pause (9) and 1 more";
        assert_eq!(early.answer, format!("{old}; {new}"));
        assert_eq!(
            early.advice,
            ["look again in a minute: the deletion of shop/db-0 may still be under way"]
        );
    }
    node.tick(200);
    for word in ["shop/db-0", OLD, NEW] {
        assert_eq!(
            explained(&node, word).answer,
            format!("shop/db-0 (deleted) GHOST: still holds 10.0.0.5; {new}")
        );
    }
}

#[test]
fn each_pod_of_a_name_has_its_own_namespaces() {
    let mut node = reborn(pod("db-0", NEW, &[ip(6)]));
    node.tell_all(&[
        created(61, 200),
        added(61, 200, 6),
        holders(62, 200, &[pod_task(10, "pause", NEW, SECOND)], &[]),
    ]);
    let new = "pod shop/db-0 is Running; it has 10.0.0.6 in netns 200";
    let answer = ask(&node, "shop/db-0", 70).unwrap().answer;
    assert!(answer.starts_with("deleted shop/db-0 still has 10.0.0.5 in netns 100, "));
    assert!(answer.ends_with(&format!("; {new}")), "{answer}");
    // That another one suffers from the old one is no matter of the new one.
    node.tell_all(&[
        listed(
            70,
            &[pod("db-0", NEW, &[ip(6)]), pod("web", OTHER, &[ip(5)])],
        ),
        created(71, 300),
        added(71, 300, 5),
        holders(72, 300, &[pod_task(11, "pause", OTHER, "cc")], &[]),
    ]);
    node.tick(200);
    assert_eq!(
        explained(&node, "shop/db-0").answer,
        format!("shop/db-0 (deleted) CONFLICT: 10.0.0.5 also held by running shop/web; {new}")
    );
}

#[test]
fn all_that_a_pods_ghosts_hold_is_named_first_what_the_first_steps_are_about() {
    let mut node = Node::of(&twice(OLD));
    node.tell(listed(60, &[pod("other", OTHER, &[ip(9)])]));
    node.tick(200);
    let told = explained(&node, "shop/db-0");
    let ghosts = told.findings.iter().map(|part| &part.finding);
    let ghosts = ghosts.filter(|finding| finding.rule == event::finding::Rule::GhostSandbox);
    let held: Vec<String> = ghosts.map(|ghost| ghost.addresses[0].to_string()).collect();
    assert_eq!(held.len(), 2);
    let held = held.join(", ");
    assert_eq!(
        told.answer,
        format!("shop/db-0 (deleted) GHOST: still holds {held}")
    );
    let mut steps = told.advice.iter();
    let named = steps.find_map(|step| Some(step.split_once("10.0.0.")?.1.to_owned()));
    assert!(named.unwrap().starts_with(&held[7..8]), "{:?}", told.advice);
    // One namespace of them has one address.
    assert_eq!(
        explained(&node, "inode:200").answer,
        format!("netns 200 of shop/db-0 GHOST: its pod still holds {held}")
    );
}

#[test]
fn of_several_sandboxes_of_a_pod_the_present_one_is_told_from_earlier_ones() {
    let node = Node::of(&twice(OLD));
    assert_eq!(
        explained(&node, "shop/db-0").answer,
        "pod shop/db-0 is Running; its present sandbox bbbbbbbbbbbbb has 10.0.0.6 in netns 200; \
         its earlier sandbox aaaaaaaaaaaaa still has 10.0.0.5 in netns 100"
    );
}

#[test]
fn a_sandbox_is_not_given_what_another_one_of_its_pod_has() {
    let node = Node::of(&twice(OLD));
    for (id, has) in [
        (FIRST, "10.0.0.5 in netns 100"),
        (SECOND, "10.0.0.6 in netns 200"),
    ] {
        let short = &id[..13];
        assert_eq!(
            explained(&node, id).answer,
            format!("{short} is a sandbox of shop/db-0; it has {has}")
        );
    }
}
