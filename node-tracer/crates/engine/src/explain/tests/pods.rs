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
