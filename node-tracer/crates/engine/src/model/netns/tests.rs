use std::path::Path;

use super::*;
use crate::model::{Model, TABLE_FULL};
use event::{Event, testing::*};

fn model(events: &[Event]) -> Model {
    let mut model = Model::default();
    for event in events {
        model.apply(event);
        model.netns.check();
    }
    model
}

/// Without cookies, as on old kernels.
fn bare(inode: u32) -> Netns {
    Netns {
        inode,
        cookie: None,
    }
}

#[test]
fn a_namespace_lives_from_creation_to_destruction() {
    let model = model(&[created(1, 100), added(2, 100, 5), dying(3, 100)]);
    let entry = model.netns.get(ns(100)).unwrap();
    assert_eq!(
        (entry.seen, entry.dying, entry.addresses.len()),
        (s(1), Some(s(3)), 0)
    );
    let model = self::model(&[created(1, 100), dying(3, 100), destroyed(4, 100)]);
    assert!(model.netns.get(ns(100)).is_none());
    assert_eq!(model.netns.last_destroyed(), Some(s(4)));
}

#[test]
fn an_inode_that_is_created_again_ends_the_older_one() {
    let mut table = NetnsTable::default();
    assert!(table.created(bare(100), s(1)));
    table.address_added(bare(100), s(2), &address(5), false, None);
    assert!(table.created(bare(100), s(3)));
    table.check();
    let entry = table.get(bare(100)).unwrap();
    assert_eq!(
        (entry.seen, entry.addresses.len(), table.addresses.len()),
        (s(3), 0, 0)
    );
}

#[test]
fn a_cookie_tells_namesakes_apart() {
    let other = Netns {
        inode: 100,
        cookie: Some(7),
    };
    let mut table = NetnsTable::default();
    table.created(ns(100), s(1));
    assert!(table.get(other).is_none());
    table.address_added(other, s(2), &address(5), false, None);
    table.check();
    assert_eq!(table.get(other).unwrap().addresses.len(), 1);
    // Late news of the one that is gone raises nobody.
    assert!(!table.address_added(ns(100), s(3), &address(6), false, None));
    assert_eq!(table.get(bare(100)).unwrap().id, other);
}

#[test]
fn a_cookie_that_is_told_later_is_kept() {
    let mut table = NetnsTable::default();
    table.created(bare(100), s(1));
    table.found(ns(100), false, false, s(2));
    assert_eq!(table.get(bare(100)).unwrap().id, ns(100));
    assert_eq!(table.live().count(), 1);
}

#[test]
fn late_news_of_the_dead_raises_nobody() {
    for id in [ns(100), bare(100)] {
        let mut table = NetnsTable::default();
        table.created(id, s(1));
        table.destroyed(id, s(5));
        assert!(!table.address_added(id, s(4), &address(5), false, None));
        assert!(!table.created(id, s(1)));
        let tasks = [task(7, "x")];
        let held = Held {
            tasks: &tasks,
            task_count: 1,
            mounts: &[],
            fds: &[],
            sockets: &[],
        };
        assert!(!table.held(id, s(4), held));
        assert_eq!(table.entries.len(), 0);
        assert!(table.created(bare(100), s(6)), "the next one of the number");
        table.destroyed(id, s(5));
        assert!(table.get(bare(100)).is_some(), "told twice");
    }
}

#[test]
fn a_mount_that_another_process_of_its_container_has_is_held_as_before() {
    let mut table = NetnsTable::default();
    table.found(ns(100), false, false, s(1));
    let mut told = |second: i64, tid: u32| {
        let mounts = [event::mount::of_process(
            tid,
            Path::new("/host/run/netns/a"),
        )];
        let held = Held {
            tasks: &[],
            task_count: 0,
            mounts: &mounts,
            fds: &[],
            sockets: &[],
        };
        let changed = table.held(ns(100), s(second), held);
        let entry = table.get(ns(100)).unwrap();
        (changed, entry.held_at, entry.mounts == mounts)
    };
    assert_eq!(told(2, 7), (true, Some(s(2)), true));
    assert_eq!(told(3, 8), (true, Some(s(2)), true), "since then");
    assert_eq!(told(4, 8), (false, Some(s(2)), true));
}

#[test]
fn a_creation_that_is_told_late_is_of_the_one_that_is_known() {
    let mut table = NetnsTable::default();
    table.address_added(bare(100), s(3), &address(5), false, None);
    table.created(bare(100), s(2));
    let entry = table.get(bare(100)).unwrap();
    assert_eq!(
        (entry.seen, entry.created, entry.addresses.len()),
        (s(2), true, 1)
    );
}

#[test]
fn destruction_without_dying_is_an_end_too() {
    let model = model(&[
        created(1, 100),
        added(2, 100, 5),
        destroyed(4, 100),
        destroyed(4, 100),
    ]);
    assert_eq!(
        (model.netns.entries.len(), model.netns.addresses.len()),
        (0, 0)
    );
}

#[test]
fn a_dying_namespace_with_tasks_in_it_is_not_dying() {
    let tasks = [task(7, "x")];
    let model = model(&[created(1, 100), dying(3, 100), holders(4, 100, &tasks, &[])]);
    assert_eq!(model.netns.get(ns(100)).unwrap().dying, None);
}

#[test]
fn the_hosts_namespace_does_not_die() {
    let model = model(&[host(0), dying(1, 1), destroyed(2, 1)]);
    assert!(
        model
            .netns
            .get(ns(1))
            .is_some_and(|entry| entry.host && entry.dying.is_none())
    );
}

#[test]
fn a_full_table_keeps_the_old_and_counts_the_new() {
    let mut model = Model::default();
    for inode in 0..MAX_NETNS as u32 {
        model.apply(&created(1, 100 + inode));
    }
    assert_eq!(model.losses.first, None);
    model.apply(&created(2, 50));
    assert_eq!(model.losses.by_cause[TABLE_FULL], 1);
    assert!(model.netns.get(ns(50)).is_none() && model.netns.get(ns(100)).is_some());
    model.apply(&dying(3, 200));
    model.apply(&created(4, 50));
    assert!(model.netns.get(ns(50)).is_some() && model.netns.get(ns(200)).is_none());
    model.netns.check();
}

/// Addresses of the same namespace, beginning with this number.
fn give(model: &mut Model, inode: u32, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut wide = address(0);
        wide.address = std::net::Ipv4Addr::from(0x0a00_0000 + number).into();
        model.apply(&at(
            1,
            event::What::AddressAdded {
                netns: ns(inode),
                address: wide,
                found: true,
                made: None,
            },
        ));
    }
}

#[test]
fn addresses_are_bounded_and_who_has_few_does_not_suffer_from_who_has_many() {
    let all = event::MAX_ADDRESSES as u32;
    let mut model = Model::default();
    give(&mut model, 100, 0..all);
    give(&mut model, 101, all..2 * all);
    give(&mut model, 102, 0..10);
    model.netns.check();
    let of = |inode| model.netns.get(ns(inode)).unwrap().addresses.len() as u32;
    assert!(of(100) >= 100_000, "{}", of(100));
    assert!(of(101) >= 1_000, "{}", of(101));
    assert_eq!(of(102), 10);
    let kept = of(100) + of(101) + of(102);
    assert_eq!(
        model.losses.by_cause[TABLE_FULL],
        u64::from(2 * all + 10 - kept)
    );
}

/// A CNI ADD that names the namespace before its creation is told.
fn named_early() -> NetnsTable {
    let mut table = NetnsTable::default();
    let entry = table.resolve(bare(100), s(1)).unwrap();
    entry
        .sandbox
        .note_add(&call("ADD", "sandbox-old", 100, OLD, "a"), s(1));
    table
}

#[test]
fn a_creation_with_a_cookie_is_of_the_one_that_was_named_without() {
    let mut table = named_early();
    assert!(table.created(ns(100), s(2)));
    table.check();
    let entry = table.get(ns(100)).unwrap();
    assert_eq!((entry.id, entry.created), (ns(100), true));
    assert_eq!(entry.sandbox.id.as_deref(), Some("sandbox-old"));
    assert_eq!(table.live().count(), 1);
}

#[test]
fn a_creation_is_not_of_one_that_goes_or_was_confirmed() {
    let mut table = named_early();
    table.dying(bare(100), s(2));
    assert!(table.created(ns(100), s(3)));
    assert_eq!(table.get(ns(100)).unwrap().sandbox.id, None);
    let mut table = named_early();
    table.destroyed(bare(100), s(2));
    assert!(table.created(ns(100), s(3)));
    assert_eq!(table.get(ns(100)).unwrap().sandbox.id, None);
    let mut table = named_early();
    table.created(ns(100), s(2));
    let next = Netns {
        inode: 100,
        cookie: Some(7),
    };
    assert!(table.created(next, s(3)));
    table.check();
    assert_eq!(table.get(next).unwrap().sandbox.id, None);
}

#[test]
fn a_late_creation_of_a_dead_one_takes_nothing_from_a_living_one() {
    let other = Netns {
        inode: 100,
        cookie: Some(7),
    };
    let mut table = NetnsTable::default();
    table.destroyed(other, s(0));
    table.resolve(bare(100), s(1));
    for seconds in [0, 2] {
        assert!(!table.created(other, s(seconds)));
        let id = table.get(bare(100)).map(|entry| entry.id);
        assert_eq!(id, Some(bare(100)));
    }
}

#[test]
fn a_task_that_goes_on_is_not_remembered_as_stuck() {
    let stuck = Task {
        state: Some('D'),
        ..task(9, "checkout-api")
    };
    let namesake = Task {
        start_ticks: Some(1),
        ..stuck.clone()
    };
    for (told, state) in [(stuck.clone(), None), (namesake, Some('D'))] {
        let mut model = model(&[
            created(1, 100),
            holders(2, 100, std::slice::from_ref(&stuck), &[]),
        ]);
        let over = event::What::TaskUnblocked {
            task: told,
            since: s(0),
            duration_ms: 1_000,
        };
        assert_eq!(model.apply(&at(3, over)), state.is_none());
        assert_eq!(model.netns.get(ns(100)).unwrap().tasks[0].state, state);
    }
}
