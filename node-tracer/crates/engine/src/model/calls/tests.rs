use super::*;
use event::CniCommand;
use event::{CniCall, testing::*};

fn end(seconds: i64, exit_code: i32) -> CallResult {
    CallResult {
        at: s(seconds),
        exit_code: Some(exit_code),
        log: false,
        signal: None,
        duration_ms: 9.5,
        result: None,
        error: None,
    }
}

fn seen(calls: &mut Calls, seconds: i64, call: &CniCall, exit_code: i32) {
    assert!(calls.note(call, s(seconds), None));
    assert!(calls.note(call, s(seconds), Some(&end(seconds, exit_code))));
}

fn plugin(name: &str, command: &str) -> CniCall {
    CniCall {
        plugin: name.to_owned(),
        ..call(command, "sandbox-old", 100, OLD, "a")
    }
}

fn only(calls: &Calls) -> &AttachmentCalls {
    let mut all = calls.attachments();
    let one = all.next().unwrap();
    assert!(all.next().is_none());
    one
}

#[test]
fn an_attachment_is_deleted_when_every_plugin_of_the_chain_is() {
    let mut calls = Calls::default();
    seen(&mut calls, 1, &plugin("bridge", "ADD"), 0);
    seen(&mut calls, 2, &plugin("portmap", "ADD"), 0);
    assert_eq!(only(&calls).added(), Some(s(2)));
    seen(&mut calls, 3, &plugin("portmap", "DEL"), 0);
    assert_eq!(only(&calls).deleted(), None, "the bridge's DEL is missing");
    seen(&mut calls, 4, &plugin("bridge", "DEL"), 1);
    assert_eq!(only(&calls).deleted(), None, "it failed");
    seen(&mut calls, 5, &plugin("bridge", "DEL"), 0);
    assert_eq!(only(&calls).deleted(), Some(s(5)));
    seen(&mut calls, 6, &plugin("bridge", "ADD"), 0);
    assert_eq!(only(&calls).deleted(), None, "it was added again");
}

#[test]
fn failures_in_a_row_are_counted_until_one_succeeds() {
    let mut calls = Calls::default();
    for seconds in 1..4 {
        seen(&mut calls, seconds, &plugin("bridge", "DEL"), 1);
    }
    let (failing, end) = only(&calls).del_failure().unwrap();
    assert_eq!((failing.failed_dels, failing.dels), (3, 3));
    assert_eq!((failing.failing_since, end.at), (Some(s(1)), s(3)));
    seen(&mut calls, 5, &plugin("bridge", "DEL"), 0);
    assert!(only(&calls).del_failure().is_none());
}

#[test]
fn what_a_plugin_delegates_is_no_part_of_the_chain() {
    let mut calls = Calls::default();
    seen(&mut calls, 1, &plugin("bridge", "ADD"), 0);
    let ipam = CniCall {
        delegated: true,
        ..plugin("host-local", "ADD")
    };
    seen(&mut calls, 1, &ipam, 1);
    assert_eq!(only(&calls).plugins.len(), 2);
    assert!(only(&calls).add_failure().is_none());
    assert_eq!(only(&calls).added(), Some(s(1)));
}

#[test]
fn pods_of_a_name_are_found_together_and_a_namespace_takes_its_attachments_along() {
    let mut calls = Calls::default();
    seen(&mut calls, 1, &call("ADD", "one", 100, OLD, "db-0"), 0);
    seen(&mut calls, 2, &call("ADD", "two", 200, NEW, "db-0"), 0);
    seen(&mut calls, 3, &call("ADD", "three", 300, OTHER, "db-1"), 0);
    let pod = call("ADD", "", 0, OLD, "db-0").pod.unwrap();
    let ids: Vec<_> = calls
        .of_pod_name(&pod)
        .map(|each| each.container_id.as_str())
        .collect();
    assert_eq!(ids, ["one", "two"]);
    let other = Netns {
        inode: 100,
        cookie: Some(1),
    };
    assert!(
        !calls.netns_gone(other, s(4), Vec::new()),
        "another of that number"
    );
    assert!(calls.netns_gone(ns(100), s(4), Vec::new()));
    let one = calls.of_container("one").next().unwrap();
    assert_eq!(one.netns_gone, Some(s(4)));
}

#[test]
fn the_table_is_bounded_and_its_indexes_with_it() {
    let mut calls = Calls::default();
    for i in 0..=MAX_ATTACHMENTS {
        let name = format!("pod-{i}");
        let add = call("ADD", &format!("{i:08}"), 100 + i as u32, OLD, &name);
        calls.note(&add, s(i as i64), None);
    }
    assert_eq!(calls.attachments.len(), MAX_ATTACHMENTS);
    assert_eq!(calls.by_age.len(), MAX_ATTACHMENTS);
    assert_eq!(calls.by_pod.len(), MAX_ATTACHMENTS);
    assert_eq!(calls.by_inode.len(), MAX_ATTACHMENTS);
    assert_eq!(calls.take_dropped(), 1);
    assert!(calls.of_container("00000000").next().is_none());
}

#[test]
fn a_del_that_runs_again_does_not_hide_the_failures_before_it() {
    let mut calls = Calls::default();
    seen(&mut calls, 1, &plugin("bridge", "DEL"), 1);
    let again = CniCall {
        pid: 78,
        ..plugin("bridge", "DEL")
    };
    calls.note(&again, s(2), None);
    assert!(only(&calls).del_failure().is_some());
    assert_eq!(calls.with_failed_dels().count(), 1);
    calls.note(&again, s(3), Some(&end(3, 0)));
    assert_eq!(calls.with_failed_dels().count(), 0);
}

#[test]
fn an_attachment_is_forsaken_while_its_namespace_is_gone_and_no_del_has_come() {
    let mut calls = Calls::default();
    seen(&mut calls, 1, &plugin("bridge", "ADD"), 0);
    assert_eq!(calls.forsaken().count(), 0, "its namespace is there");
    calls.netns_gone(ns(100), s(2), Vec::new());
    assert_eq!(calls.forsaken().count(), 1);
    assert_eq!(calls.went(100), Some(s(2)));
    calls.note(&plugin("bridge", "DEL"), s(3), None);
    assert_eq!(calls.forsaken().count(), 0, "DEL has begun");
    let unknown = CniCall {
        netns: None,
        ..call("ADD", "two", 200, NEW, "b")
    };
    seen(&mut calls, 4, &unknown, 0);
    let ids: Vec<_> = calls.forsaken().map(|each| &each.container_id).collect();
    assert_eq!(ids, ["two"], "its namespace was never known");
}

#[test]
fn what_makes_room_leaves_no_index_behind() {
    let mut calls = Calls::default();
    for i in 0..=MAX_ATTACHMENTS {
        let unknown = CniCall {
            netns: None,
            ..call("ADD", &format!("{i:08}"), 100, OLD, "a")
        };
        calls.note(&unknown, s(i as i64), None);
    }
    assert_eq!(calls.forsaken().count(), MAX_ATTACHMENTS);
    assert_eq!(calls.forsaken.len(), MAX_ATTACHMENTS);
}

#[test]
fn a_pods_sandboxes_are_counted_once_each_until_there_is_a_pause() {
    let mut calls = Calls::default();
    for i in 0..20 {
        let id = format!("s{i}");
        for ifname in ["lo", "eth0"] {
            let add = CniCall {
                ifname: ifname.into(),
                ..call("ADD", &id, 100, OLD, "a")
            };
            seen(&mut calls, i * 10, &add, 0);
        }
    }
    let pod = calls.pods().next().unwrap();
    assert_eq!((pod.sandboxes, pod.since), (20, s(0)));
    assert_eq!(pod.made.len(), 16);
    seen(&mut calls, 2_000, &call("ADD", "late", 100, OLD, "a"), 0);
    let pod = calls.pods().next().unwrap();
    assert_eq!((pod.sandboxes, pod.since), (1, s(2_000)));
}

#[test]
fn a_pods_adds_fail_until_the_plugin_that_failed_succeeds() {
    let mut calls = Calls::default();
    let add = |plugin: &str, id: &str| CniCall {
        plugin: plugin.to_owned(),
        ..call("ADD", id, 100, OLD, "a")
    };
    for (seconds, id) in [(1, "one"), (11, "two")] {
        seen(&mut calls, seconds, &add("bridge", id), 0);
        seen(&mut calls, seconds, &add("portmap", id), 1);
        let del = CniCall {
            command: CniCommand::Del,
            ..add("portmap", id)
        };
        seen(&mut calls, seconds, &del, 0);
    }
    let failing = |calls: &Calls| calls.pods().next().unwrap().failing.get("eth0").cloned();
    let known = failing(&calls).unwrap();
    assert_eq!((known.times, known.since), (2, s(1)));
    assert_eq!(
        (known.first_id.as_str(), known.last_id.as_str()),
        ("one", "two")
    );
    assert_eq!(known.plugin, "portmap");
    seen(&mut calls, 20, &add("portmap", "three"), 0);
    assert!(failing(&calls).is_none());
    seen(&mut calls, 30, &add("portmap", "four"), 1);
    seen(&mut calls, 30 + 601, &add("portmap", "five"), 1);
    assert_eq!(failing(&calls).unwrap().times, 1, "the other was long ago");
    assert_eq!(calls.restless_pods().count(), 1);
    seen(&mut calls, 640, &add("portmap", "six"), 0);
    assert_eq!(
        calls.restless_pods().count(),
        0,
        "two sandboxes, and it is well"
    );
}

#[test]
fn the_table_of_pods_is_bounded() {
    let mut calls = Calls::default();
    for i in 0..=pods::MAX_PODS {
        let uid = format!("uid-{i}");
        calls.note(&call("ADD", &uid, 100, &uid, "a"), s(i as i64), None);
    }
    assert_eq!(calls.pods().count(), pods::MAX_PODS);
    assert!(calls.pods().all(|pod| pod.id() != "uid-0"));
}

#[test]
fn an_interface_that_only_another_plugin_asked_for_has_a_chain_of_its_own() {
    let mut calls = Calls::default();
    let of = |name: &str, command: &str| CniCall {
        ifname: "net1".into(),
        delegated: true,
        ..plugin(name, command)
    };
    seen(&mut calls, 1, &of("bridge", "ADD"), 0);
    seen(&mut calls, 1, &of("host-local", "ADD"), 0);
    assert_eq!(only(&calls).added(), Some(s(1)));
    calls.netns_gone(ns(100), s(2), Vec::new());
    assert_eq!(calls.forsaken().count(), 1);
    seen(&mut calls, 3, &of("bridge", "DEL"), 0);
    assert_eq!(only(&calls).deleted(), None, "host-local's is missing");
    seen(&mut calls, 3, &of("host-local", "DEL"), 0);
    assert_eq!(only(&calls).deleted(), Some(s(3)));
    assert_eq!(calls.forsaken().count(), 0);
    for i in 0..MAX_ATTACHMENTS {
        let add = call("ADD", &format!("{i:08}"), 100 + i as u32, OLD, "a");
        calls.note(&add, s(4), None);
    }
    assert_eq!(calls.take_dropped(), 0, "what was taken back is no loss");
}
