//! When the node's tables are read, and what of them is told.

use super::{super::tables::Tables, *};
use ::node::netlink::News;
use event::forwarding::{DatedNeighbour, Forwarding, MAIN_TABLE, PolicyRule};

const NODE: NodeNetns = NodeNetns { inode: 7, pid: 1 };

fn seen(tables: &[u32], state: &str) -> Visit {
    let rules = tables.iter().map(|table| PolicyRule {
        table: *table,
        ..PolicyRule::default()
    });
    let dated = DatedNeighbour {
        neighbour: neighbour(2, state),
        confirmed: None,
    };
    Visit {
        forwarding: Forwarding {
            rules: rules.collect(),
            routes: [5, 6]
                .map(|last| table_route(MAIN_TABLE, &format!("10.0.0.{last}"), 8))
                .into(),
            neighbours: vec![dated],
            ..Forwarding::default()
        },
        ..visit(NODE.inode, &[veth(8, "veth1", 3)], &[], &[5])
    }
}

/// What is told of what is read.
fn read(tables: &mut Tables, visit: Option<&Visit>, now: Instant) -> Vec<&'static str> {
    let now = tables.next().map_or(now, |next| next.max(now));
    assert!(tables.begin(now));
    let mut out = Vec::new();
    tables.take(|_| visit, s(9), now, &mut out);
    out.iter().map(|event| event.what.name()).collect()
}

fn followed() -> Tables {
    let mut tables = Tables::new();
    tables.of(NODE, &procfs(), Instant::now());
    tables
}

#[test]
fn the_tables_are_told_once_and_again_when_they_decide_otherwise() {
    let (mut tables, now) = (followed(), Instant::now());
    let all = ["netns-devices", "netns-forwarding"];
    assert_eq!(read(&mut tables, Some(&seen(&[1, 2], "stale")), now), all);
    assert_eq!(
        read(&mut tables, Some(&seen(&[1, 2], "delay")), now),
        [""; 0]
    );
    let mut in_other_order = seen(&[1, 2], "reachable");
    in_other_order.forwarding.routes.reverse();
    assert_eq!(read(&mut tables, Some(&in_other_order), now), [""; 0]);
    // Of rules of one priority the older is asked first.
    assert_eq!(
        read(&mut tables, Some(&seen(&[2, 1], "stale")), now),
        all[1..]
    );
    assert_eq!(
        read(&mut tables, Some(&seen(&[2, 1], "permanent")), now),
        all[1..]
    );
    tables.tell_again(now);
    assert_eq!(
        read(&mut tables, Some(&seen(&[2, 1], "permanent")), now),
        all
    );
}

#[test]
fn tables_that_wait_to_be_read_again_are_out_of_date_until_then() {
    let (mut tables, now) = (followed(), Instant::now());
    let heard = |tables: &mut Tables| {
        let mut out = Vec::new();
        tables.heard(&News::Much, now, &mut out);
        out.len()
    };
    read(&mut tables, Some(&seen(&[1], "stale")), now);
    assert_eq!((heard(&mut tables), heard(&mut tables)), (1, 0));
    let known = ["netns-forwarding-outdated"];
    assert_eq!(read(&mut tables, Some(&seen(&[1], "stale")), now), known);
    assert_eq!(heard(&mut tables), 1);
    let new = ["netns-forwarding"];
    assert_eq!(read(&mut tables, Some(&seen(&[2], "stale")), now), new);
}

#[test]
fn tables_that_cannot_be_read_are_tried_again_and_that_is_told_once() {
    let (mut tables, now) = (followed(), Instant::now());
    assert_eq!(read(&mut tables, None, now), ["source-failed"]);
    assert_eq!(read(&mut tables, None, now), [""; 0]);
    let told = read(&mut tables, Some(&seen(&[1], "stale")), now);
    assert_eq!(told[0], "source-recovered");
}

#[test]
fn two_looks_are_seconds_apart_however_much_changes() {
    let (mut tables, begin) = (followed(), Instant::now());
    let mut looks = 0;
    for tenth in 0..300 {
        let now = begin + 100 * MS * tenth;
        tables.tell_again(now);
        if tables.begin(now) {
            tables.take(|_| None, s(9), now, &mut Vec::new());
            looks += 1;
        }
    }
    assert!((6..=10).contains(&looks), "{looks} in 30 s");
}

#[test]
fn what_was_read_of_another_namespace_is_not_the_nodes() {
    let (mut tables, now) = (followed(), Instant::now());
    assert!(tables.begin(now));
    tables.of(NodeNetns { inode: 9, pid: 60 }, &procfs(), now);
    let mut out = Vec::new();
    tables.take(|_| None, s(9), now, &mut out);
    assert_eq!(out, []);
    assert!(tables.begin(now), "it is read at once");
}
