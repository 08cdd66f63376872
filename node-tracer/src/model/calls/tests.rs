use super::*;
use crate::model::story::*;

fn end(seconds: i64, exit_code: i32) -> End {
    End {
        at: s(seconds),
        exit_code: Some(exit_code),
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
    assert!(!calls.netns_gone(other, s(4)), "another of that number");
    assert!(calls.netns_gone(ns(100), s(4)));
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
