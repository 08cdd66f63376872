//! The old sandbox's DEL, and what the new one has afterwards.

mod doubt;
mod harm;
mod ordinary;
mod reach;

use super::*;
use crate::testing::Node;
use event::CniCommand;
use event::{
    CniCall, CniEffect, Device, Event, PodRef, Route, Trace, TraceKind,
    finding::{Rule, Severity, State},
    testing::*,
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
        command: CniCommand::Del,
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
