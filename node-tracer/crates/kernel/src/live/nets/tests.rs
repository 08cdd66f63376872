use super::*;

const TRACEPOINTS: Trust = Trust {
    creations: true,
    ends: true,
    runs: true,
    list: true,
};
const HOOKS: Trust = Trust {
    creations: false,
    ends: false,
    runs: false,
    list: true,
};
const COMPARISON: Trust = Trust {
    creations: true,
    ends: true,
    runs: false,
    list: false,
};

impl NetTable {
    fn walked_at(&mut self, nets: Vec<ListedNet>, time: u64, out: &mut Vec<Change>) {
        let list = List {
            nets,
            whole: true,
            start: time,
            end: time,
        };
        self.walked(list, out);
    }
}

fn net(address: u64, cookie: u64, inum: u32, refs: i32) -> Net {
    Net {
        address,
        cookie,
        inum,
        refs,
        user: NetUser::default(),
    }
}

fn task(tid: u32) -> KernelTask {
    KernelTask {
        tid,
        tgid: tid,
        ..KernelTask::default()
    }
}

fn seen(net: Net) -> ListedNet {
    ListedNet {
        net,
        addresses: Some(BTreeSet::new()),
        cut: false,
        left_out: 0,
    }
}

fn with_address(net: Net, address: &str) -> ListedNet {
    let address = Address {
        address: address.parse().unwrap(),
        prefix: 24,
        ifname: String::from("eth0"),
        link_kind: None,
        dad: None,
    };
    ListedNet {
        net,
        addresses: Some(BTreeSet::from([address])),
        cut: false,
        left_out: 0,
    }
}

fn id(cookie: u64, inode: u32) -> Netns {
    Netns {
        inode,
        cookie: Some(cookie),
    }
}

#[test]
fn a_namespace_that_was_announced_is_reported_once() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
    table.walked_at(vec![seen(net(1, 10, 100, 1))], 90_000_000, &mut out);
    table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
    assert_eq!(
        out,
        [Change::Created(
            id(10, 100),
            5,
            Some(task(7)),
            NetUser::default()
        )]
    );
}

#[test]
fn a_namespace_on_the_list_is_given_time_to_be_announced() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.device_changed(900_000, task(7));
    table.walked_at(vec![seen(net(1, 10, 100, 1))], 1_000_000, &mut out);
    assert_eq!(out, []);
    table.walked_at(vec![seen(net(1, 10, 100, 1))], 70_000_000, &mut out);
    assert_eq!(
        out,
        [Change::Created(
            id(10, 100),
            900_000,
            Some(task(7)),
            NetUser::default()
        )]
    );
}

#[test]
fn a_namespace_with_an_address_is_reported_before_the_address() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.walked_at(
        vec![with_address(net(1, 10, 100, 1), "10.0.0.2")],
        1,
        &mut out,
    );
    assert!(matches!(out[0], Change::Created(..)));
    assert!(matches!(out[1], Change::AddressAdded(..)));
}

#[test]
fn a_count_of_zero_is_dying_and_the_end_of_the_run_is_destroyed() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
    out.clear();
    table.cleanup_queued(10);
    table.walked_at(vec![seen(net(1, 10, 100, 0))], 11, &mut out);
    assert_eq!(out, [Change::Dying(id(10, 100), 10, None)]);
    out.clear();
    table.cleanup_started(12);
    table.walked_at(vec![], 13, &mut out);
    assert_eq!(out, [], "the run is under way");
    table.cleanup_ended(20);
    table.walked_at(vec![], 21, &mut out);
    assert_eq!(out, [Change::Destroyed(id(10, 100), 20)]);
}

#[test]
fn a_namespace_of_the_next_run_is_not_destroyed_by_the_end_of_this_one() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
    out.clear();
    table.cleanup_ended(20);
    table.cleanup_started(21);
    table.walked_at(vec![], 22, &mut out);
    assert_eq!(out, [Change::Dying(id(10, 100), 22, None)]);
    table.cleanup_ended(30);
    out.clear();
    table.walked_at(vec![], 31, &mut out);
    assert_eq!(out, [Change::Destroyed(id(10, 100), 30)]);
}

#[test]
fn a_successor_at_the_same_place_with_the_same_number_is_another() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
    out.clear();
    table.created(net(1, 11, 100, 1), 9, task(7), &mut out);
    assert_eq!(
        out,
        [
            Change::Dying(id(10, 100), 9, None),
            Change::Destroyed(id(10, 100), 9),
            Change::Created(id(11, 100), 9, Some(task(7)), NetUser::default()),
        ]
    );
}

#[test]
fn a_cookie_that_is_given_later_is_taken_over() {
    let mut table = NetTable::new(HOOKS);
    let mut out = Vec::new();
    table.created(net(1, 0, 100, 1), 5, task(7), &mut out);
    table.walked_at(vec![seen(net(1, 42, 100, 1))], 6, &mut out);
    out.clear();
    table.dying(net(1, 42, 100, 0), 7, task(7), &mut out);
    table.destroyed(net(1, 42, 100, 0), 8, &mut out);
    assert_eq!(
        out,
        [
            Change::Dying(id(42, 100), 7, Some(task(7))),
            Change::Destroyed(id(42, 100), 8),
        ]
    );
}

/// With hooks: one namespace, which the second walk does not list. Any that
/// follow are given.
fn unlisted(dying: bool, list: bool) -> (NetTable, impl FnMut(&mut NetTable, u64) -> Vec<Change>) {
    let mut table = NetTable::new(Trust { list, ..HOOKS });
    let walk = |table: &mut NetTable, time| {
        let mut out = Vec::new();
        table.walked_at(vec![], time, &mut out);
        out
    };
    let mut out = Vec::new();
    table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
    table.walked_at(vec![seen(net(1, 10, 100, 1))], 6, &mut out);
    if dying {
        table.dying(net(1, 10, 100, 0), 7, task(7), &mut out);
    }
    assert_eq!(walk(&mut table, 10), []);
    (table, walk)
}

const LONG: u64 = 100 * LOST_AFTER;

#[test]
fn with_hooks_being_missing_ends_nothing_however_long_it_takes() {
    for (dying, list) in [(true, true), (true, false), (false, false)] {
        let (mut table, mut walk) = unlisted(dying, list);
        // Lost, but before it was last listed.
        table.records_lost(6);
        assert!(!table.in_doubt());
        assert_eq!(walk(&mut table, LONG), [], "{dying} {list}");
    }
}

#[test]
fn with_hooks_and_lost_records_it_ends_once_the_worker_rests() {
    for (dying, list) in [(true, true), (true, false), (false, true)] {
        let (mut table, mut walk) = unlisted(dying, list);
        table.records_lost(11);
        assert!(table.in_doubt());
        assert_eq!(walk(&mut table, LONG), [], "{dying} {list}");
        table.worker_rests(LONG + 1);
        let ended = walk(&mut table, LONG + 2);
        let end = Change::Destroyed(id(10, 100), LONG + 1);
        assert_eq!(ended.last(), Some(&end), "{dying} {list}");
        assert!(!table.in_doubt());
    }
}

#[test]
fn what_a_comparison_does_not_list_has_not_ended_when_the_worker_rests() {
    let (mut table, mut walk) = unlisted(false, false);
    table.records_lost(11);
    table.worker_rests(12);
    assert_eq!(walk(&mut table, LOST_AFTER), []);
    // Nothing better can be known.
    assert_eq!(walk(&mut table, LOST_AFTER + 11).len(), 2);
}

#[test]
fn a_namespace_known_by_number_gets_the_address_that_a_record_tells() {
    let mut table = NetTable::new(HOOKS);
    let mut out = Vec::new();
    table.seed(vec![seen(net(100, 0, 100, -1))], 0, &mut Vec::new());
    table.dying(net(0xffff_8880_0000_1000, 7, 100, 0), 5, task(1), &mut out);
    table.destroyed(net(0xffff_8880_0000_1000, 7, 100, 0), 6, &mut out);
    assert_eq!(
        out,
        [
            Change::Dying(id(7, 100), 5, Some(task(1))),
            Change::Destroyed(id(7, 100), 6)
        ]
    );
}

#[test]
fn a_list_by_numbers_finds_those_known_by_address() {
    let mut table = NetTable::new(COMPARISON);
    let mut out = Vec::new();
    table.created(net(0xffff_8880_0000_1000, 7, 100, 1), 5, task(1), &mut out);
    out.clear();
    table.walked_at(vec![seen(net(100, 0, 100, -1))], 10, &mut out);
    assert_eq!(out, []);
    table.walked_at(vec![], 20, &mut out);
    table.walked_at(vec![], 30, &mut out);
    assert!(matches!(
        out.as_slice(),
        [Change::Dying(..), Change::Destroyed(..)]
    ));
}

#[test]
fn addresses_are_compared_from_walk_to_walk() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.seed(
        vec![with_address(net(1, 10, 100, 1), "10.0.0.2")],
        0,
        &mut Vec::new(),
    );
    table.walked_at(
        vec![with_address(net(1, 10, 100, 1), "10.0.0.3")],
        1,
        &mut out,
    );
    assert!(matches!(
        out.as_slice(),
        [Change::AddressRemoved(..), Change::AddressAdded(..)]
    ));
}

/// Addresses of a reading, by their last number.
fn addresses(numbers: impl IntoIterator<Item = u8>) -> BTreeSet<Address> {
    let each = numbers.into_iter().map(|number| Address {
        address: std::net::Ipv4Addr::new(10, 0, 0, number).into(),
        prefix: 32,
        ifname: String::from("eth0"),
        link_kind: None,
        dad: None,
    });
    each.collect()
}

/// What is told of a table with a namespace of which the list has one address.
fn cut() -> (NetTable, Net) {
    let net = net(1, 10, 100, 1);
    let mut table = NetTable::new(TRACEPOINTS);
    let first = ListedNet {
        addresses: Some(addresses([1])),
        cut: true,
        ..seen(net)
    };
    table.seed(vec![first], 7, &mut Vec::new());
    (table, net)
}

#[test]
fn what_a_list_lacks_is_read_on_and_was_there_at_the_start() {
    let (mut table, net) = cut();
    assert_eq!(table.cut(0).collect::<Vec<_>>(), [net]);
    let mut out = Vec::new();
    table.reads(net);
    table.read(net, 8, &addresses([1, 2]), &mut out);
    table.read(net, 9, &addresses([3]), &mut out);
    table.has_read(net, 9, 0, false, &mut out);
    assert_eq!(out.len(), 2);
    assert!(
        out.iter()
            .all(|it| matches!(it, Change::AddressFound(_, 7, _)))
    );
    out.clear();
    table.reads(net);
    table.read(net, 20, &addresses([1, 2, 4]), &mut out);
    assert!(matches!(out.as_slice(), [Change::AddressAdded(_, 20, _)]));
    table.has_read(net, 20, 0, false, &mut out);
    assert!(matches!(
        out.last(),
        Some(Change::AddressRemoved(_, 20, gone)) if gone.to_string() == "10.0.0.3/32"
    ));
}

#[test]
fn what_is_left_out_stays_told_while_it_is_read_again() {
    let (mut table, net) = cut();
    let mut out = Vec::new();
    table.reads(net);
    table.has_read(net, 8, 500, false, &mut out);
    assert_eq!(table.left_out(), 500);
    table.reads(net);
    assert_eq!(table.left_out(), 500);
    table.has_read(net, 9, 0, false, &mut out);
    assert_eq!(table.left_out(), 0);
}

#[test]
fn a_list_that_is_cut_takes_nothing_away() {
    let (mut table, net) = cut();
    let mut out = Vec::new();
    table.read(net, 8, &addresses([2]), &mut out);
    out.clear();
    let first = ListedNet {
        addresses: Some(addresses([1])),
        cut: true,
        ..seen(net)
    };
    table.walked_at(vec![first], 9, &mut out);
    assert_eq!(out, []);
}

#[test]
fn what_one_torn_reading_misses_is_still_there_and_what_all_miss_is_not() {
    let (mut table, net) = cut();
    let mut out = Vec::new();
    let mut pass = |numbers: &[u8]| {
        out.clear();
        table.reads(net);
        table.read(net, 8, &addresses(numbers.iter().copied()), &mut out);
        table.has_read(net, 8, 0, true, &mut out);
        out.len()
    };
    assert_eq!(pass(&[1, 2]), 1);
    assert_eq!(pass(&[1]), 0);
    assert_eq!(pass(&[1, 2]), 0);
    assert_eq!([pass(&[1]), pass(&[1]), pass(&[1])], [0, 0, 1]);
}

#[test]
fn an_address_of_two_prefixes_that_loses_one_is_still_told() {
    let (mut table, net) = cut();
    let mut wide = addresses([2]).pop_first().unwrap();
    wide.prefix = 24;
    let both: BTreeSet<Address> = addresses([2]).into_iter().chain([wide.clone()]).collect();
    let mut out = Vec::new();
    table.reads(net);
    table.read(net, 8, &both, &mut out);
    table.has_read(net, 8, 0, false, &mut out);
    out.clear();
    table.reads(net);
    table.read(net, 9, &BTreeSet::from([wide.clone()]), &mut out);
    table.has_read(net, 9, 0, false, &mut out);
    let added = Change::AddressAdded(id(10, 100), 9, wide);
    assert_eq!(out.last(), Some(&added));
}

#[test]
fn a_namespace_made_while_the_list_was_read_is_not_missing_from_it() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.created(net(1, 10, 100, 1), 50, task(7), &mut out);
    out.clear();
    table.walked_at(vec![], 40, &mut out);
    table.walked_at(vec![seen(net(1, 10, 100, 1))], 60, &mut out);
    assert_eq!(out, []);
}

#[test]
fn one_look_at_the_list_does_not_destroy() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
    out.clear();
    table.walked_at(vec![], 10, &mut out);
    assert_eq!(out, [Change::Dying(id(10, 100), 10, None)]);
    assert!(table.has_missing());
    // No run of cleanup_net has been heard of, but there must have been one.
    assert!(table.in_doubt());
    table.walked_at(vec![], 20, &mut out);
    assert_eq!(out.len(), 1);
    table.worker_rests(21);
    table.walked_at(vec![], 22, &mut out);
    assert_eq!(out[1..], [Change::Destroyed(id(10, 100), 21)]);
}

/// A list of nothing, made between two times.
fn none_between(start: u64, end: u64) -> List {
    List {
        nets: Vec::new(),
        whole: true,
        start,
        end,
    }
}

#[test]
fn a_run_that_began_while_the_list_was_read_has_not_returned_by_that() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
    out.clear();
    table.cleanup_started(105);
    table.walked(none_between(100, 160), &mut out);
    for time in [200, 1_000_000_000, 100_000_000_000] {
        table.walked_at(vec![], time, &mut out);
    }
    assert_eq!(out, [Change::Dying(id(10, 100), 100, None)]);
}

#[test]
fn the_end_of_one_run_is_not_that_of_the_next_which_was_heard_of_before() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
    out.clear();
    table.cleanup_started(90);
    table.cleanup_started(131);
    table.walked(none_between(100, 160), &mut out);
    table.cleanup_ended(130);
    table.walked_at(vec![], 100_000_000_000, &mut out);
    assert_eq!(out, [Change::Dying(id(10, 100), 100, None)]);
}

#[test]
fn what_a_comparison_overlooks_once_is_neither_dying_nor_gone() {
    let mut table = NetTable::new(COMPARISON);
    let mut out = Vec::new();
    let there = || vec![seen(net(100, 0, 100, -1))];
    table.seed(there(), 0, &mut Vec::new());
    table.walked_at(vec![], 10, &mut out);
    table.walked_at(there(), 20, &mut out);
    // What could not be read says nothing.
    for start in [30, 40] {
        let list = List {
            whole: false,
            ..none_between(start, start + 1)
        };
        table.walked(list, &mut out);
    }
    assert_eq!(out, []);
    table.walked_at(vec![], 50, &mut out);
    assert_eq!(out, []);
    table.walked_at(vec![], 60, &mut out);
    assert!(matches!(
        out.as_slice(),
        [Change::Dying(_, 50, None), Change::Destroyed(_, 60)]
    ));
}

#[test]
fn addresses_that_cannot_be_read_are_those_of_before() {
    let mut table = NetTable::new(COMPARISON);
    let mut out = Vec::new();
    let there = with_address(net(100, 0, 100, -1), "10.0.0.2");
    let unread = ListedNet {
        addresses: None,
        ..there.clone()
    };
    table.seed(vec![there.clone()], 0, &mut Vec::new());
    table.walked_at(vec![unread], 10, &mut out);
    table.walked_at(vec![there], 20, &mut out);
    assert_eq!(out, []);
}

#[test]
fn a_run_that_does_not_return_destroys_nothing() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
    out.clear();
    table.cleanup_started(9);
    for time in [10, 20, 1_000_000_000, 100_000_000_000] {
        table.walked_at(vec![], time, &mut out);
    }
    assert_eq!(out, [Change::Dying(id(10, 100), 10, None)]);
    // Nor does a loss, until the worker is seen at rest.
    let long = 200_000_000_000;
    table.records_lost(long);
    table.walked_at(vec![], long + 1, &mut out);
    assert_eq!(out.len(), 1);
    table.worker_rests(long + 4);
    table.walked_at(vec![], long + 5, &mut out);
    assert_eq!(out[1..], [Change::Destroyed(id(10, 100), long + 4)]);
}

#[test]
fn with_hooks_a_second_creation_in_the_same_place_is_another_namespace() {
    let mut table = NetTable::new(HOOKS);
    let mut out = Vec::new();
    table.created(net(1, 0, 100, 1), 5, task(7), &mut out);
    table.created(net(1, 0, 100, 1), 9, task(7), &mut out);
    let created = out
        .iter()
        .filter(|change| matches!(change, Change::Created(..)))
        .count();
    let destroyed = out
        .iter()
        .filter(|change| matches!(change, Change::Destroyed(..)))
        .count();
    assert_eq!((created, destroyed), (2, 1));
}

#[test]
fn with_hooks_a_lost_creation_is_reported_by_the_list_in_the_end() {
    let mut table = NetTable::new(HOOKS);
    let mut out = Vec::new();
    table.walked_at(vec![seen(net(1, 10, 100, 1))], 1, &mut out);
    assert_eq!(out, []);
    let again = table.unannounced().unwrap();
    table.walked_at(vec![seen(net(1, 10, 100, 1))], again, &mut out);
    assert_eq!(
        out,
        [Change::Created(id(10, 100), 1, None, NetUser::default())]
    );
    assert_eq!(table.unannounced(), None);
}

#[test]
fn with_hooks_a_count_of_zero_that_no_hook_told_is_dying() {
    let mut table = NetTable::new(HOOKS);
    let mut out = Vec::new();
    table.created(net(1, 10, 100, 2), 5, task(7), &mut out);
    out.clear();
    table.walked_at(vec![seen(net(1, 10, 100, 0))], 10, &mut out);
    assert_eq!(out, [Change::Dying(id(10, 100), 10, None)]);
}

#[test]
fn an_address_is_told_after_its_namespace() {
    let mut table = NetTable::new(HOOKS);
    let mut out = Vec::new();
    table.walked_at(vec![seen(net(1, 10, 100, 1))], 1, &mut out);
    let ListedNet { addresses, .. } = with_address(net(1, 10, 100, 1), "10.0.0.2");
    for address in addresses.into_iter().flatten() {
        assert!(table.address(net(1, 10, 100, 1), 2, address.clone(), true, &mut out));
        assert!(!table.address(net(9, 90, 900, 1), 2, address, true, &mut out));
    }
    assert!(matches!(
        out.as_slice(),
        [Change::Created(..), Change::AddressAdded(..)]
    ));
}

#[test]
fn a_device_made_long_before_is_not_the_namespaces() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.device_changed(1, task(7));
    table.walked_at(vec![seen(net(1, 10, 100, 1))], 1 + MAKING, &mut out);
    table.walked_at(
        vec![seen(net(1, 10, 100, 1))],
        2 + MAKING + ANNOUNCEMENT_GRACE,
        &mut out,
    );
    assert_eq!(
        out,
        [Change::Created(
            id(10, 100),
            1 + MAKING,
            None,
            NetUser::default()
        )]
    );
}

#[test]
fn of_two_tasks_that_make_devices_neither_is_named() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.device_changed(1, task(7));
    table.device_changed(2, task(8));
    table.walked_at(
        vec![with_address(net(1, 10, 100, 1), "10.0.0.2")],
        3,
        &mut out,
    );
    assert_eq!(
        out[0],
        Change::Created(id(10, 100), 3, None, NetUser::default())
    );
}

#[test]
fn a_namespace_that_is_spoken_of_is_reported_at_once() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.walked_at(vec![seen(net(1, 10, 100, 1))], 3, &mut out);
    assert_eq!(table.claim(100, 4, &mut out), Some(id(10, 100)));
    assert_eq!(
        out,
        [Change::Created(id(10, 100), 3, None, NetUser::default())]
    );
    assert_eq!(table.claim(101, 4, &mut out), None);
}

#[test]
fn a_namespace_is_no_younger_than_the_first_word_of_it() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    // The tracer was late: the plugin was executed at 3.
    table.noticed(net(1, 10, 100, 1), 9, &mut out);
    assert_eq!(table.claim(100, 3, &mut out), Some(id(10, 100)));
    assert_eq!(
        out,
        [Change::Created(id(10, 100), 3, None, NetUser::default())]
    );
}

#[test]
fn whose_a_namespace_is_is_told_once_it_is_known() {
    let of_user = |address, cookie| Net {
        user: NetUser {
            inum: 9,
            owner: 1_000,
        },
        ..net(address, cookie, 100, 1)
    };
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
    assert_eq!(table.take_learned(), []);
    table.walked_at(vec![seen(of_user(1, 10))], 6, &mut out);
    let told = (id(10, 100), of_user(1, 10).user);
    assert_eq!(table.take_learned(), [told]);
    table.walked_at(vec![seen(of_user(1, 10))], 7, &mut out);
    assert_eq!(table.take_learned(), [], "once");
    // Known when it is reported, or of a successor in the same place.
    table.created(of_user(2, 20), 8, task(7), &mut out);
    table.created(net(2, 30, 100, 1), 9, task(7), &mut out);
    table.created(of_user(2, 40), 10, task(7), &mut out);
    assert_eq!(table.take_learned(), []);
}

#[test]
fn of_one_inode_number_there_is_one_namespace_wherever_it_is() {
    let mut table = NetTable::new(TRACEPOINTS);
    let mut out = Vec::new();
    for n in 1..=3 {
        table.created(net(n, 10 * n, 100, 1), n, task(7), &mut out);
    }
    table.created(net(3, 40, 101, 1), 4, task(7), &mut out);
    assert_eq!((table.known.len(), table.by_inode.len()), (1, 1));
    let ended = |change: &&Change| matches!(change, Change::Destroyed(..));
    assert_eq!(out.iter().filter(ended).count(), 3);
    table.created(net(101, 0, 101, 1), 5, task(7), &mut out);
    assert_eq!((table.known.len(), table.by_inode.len()), (1, 1));
}

#[test]
fn who_changes_addresses_without_end_is_told_of_within_a_budget() {
    let mut table = NetTable::new(HOOKS);
    let net = net(1, 1, 1, 1);
    let mut told = Vec::new();
    table.created(net, 1, KernelTask::default(), &mut told);
    let one = addresses([1]).pop_first().unwrap();
    let changes = 10 * u64::from(CHANGES_AT_ONCE);
    for time in 0..changes {
        assert!(table.address(net, 1 + time, one.clone(), time % 2 == 0, &mut told));
    }
    assert!(told.len() <= CHANGES_AT_ONCE as usize + 1, "{}", told.len());
    assert!(table.left_out() > 0, "what is not known is said");
    told.clear();
    let later = 60_000_000_000;
    assert_eq!(table.cut(changes).count(), 0, "nor is it read");
    assert_eq!(table.cut(later).collect::<Vec<_>>(), [net]);
}

#[test]
fn a_reading_of_very_many_addresses_tells_no_more_of_them_than_the_budget() {
    const MANY: u32 = 3 * CHANGES_AT_ONCE;
    let mut table = NetTable::new(HOOKS);
    let net = net(1, 1, 1, 1);
    let mut told = Vec::new();
    table.created(net, 1, KernelTask::default(), &mut told);
    let ip = |number: u32| Address {
        address: std::net::Ipv4Addr::from(0x0a00_0000 + number).into(),
        ..addresses([1]).pop_first().unwrap()
    };
    let all: BTreeSet<_> = (0..MANY).map(ip).collect();
    let mut time = 1;
    let mut read = |all: &BTreeSet<_>, time| {
        let mut told = Vec::new();
        assert_eq!(table.cut(time).count(), usize::from(time > 1));
        table.reads(net);
        table.read(net, time, all, &mut told);
        table.has_read(net, time, 0, false, &mut told);
        (told.len(), table.left_out())
    };
    let (first, left_out) = read(&all, time);
    assert_eq!(first, CHANGES_AT_ONCE as usize);
    assert_eq!(left_out, u64::from(MANY - CHANGES_AT_ONCE));
    for _ in 0..16 {
        time += 60_000_000_000;
        assert_eq!(read(&all, time).0, CHANGES_A_MINUTE as usize);
    }
    assert_eq!(
        read(&all, time + 60_000_000_000).1,
        0,
        "all of them in the end"
    );
    // That they are gone is told no faster.
    let none = BTreeSet::new();
    let (gone, left_out) = read(&none, time + 120_000_000_000);
    assert_eq!((gone, left_out), (2 * CHANGES_A_MINUTE as usize, 1));
}

#[test]
fn what_is_spoken_of_is_found_among_very_many_without_going_through_them() {
    const MANY: u32 = 20_000;
    let mut table = NetTable::new(HOOKS);
    let mut out = Vec::new();
    for n in 0..MANY {
        table.noticed(net((1 << 40) + u64::from(n), 0, n, 1), 1, &mut out);
    }
    let started = std::time::Instant::now();
    let found = (0..MANY).filter(|n| table.claim(*n, 2, &mut out).is_some());
    assert_eq!(found.count(), MANY as usize);
    assert!(
        started.elapsed().as_millis() < 500,
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn an_address_that_another_host_turns_out_to_have_is_told_once_more_and_when_that_is_over() {
    let net = net(1, 10, 100, 1);
    let mut table = NetTable::new(TRACEPOINTS);
    let listed = |dad| {
        let mut listed = with_address(net, "fd00::5");
        let all = listed.addresses.take().into_iter().flatten();
        listed.addresses = Some(all.map(|address| Address { dad, ..address }).collect());
        vec![listed]
    };
    let mut told = |time, dad| {
        let mut out = Vec::new();
        table.walked_at(listed(dad), time, &mut out);
        let address = |change| match change {
            Change::AddressAdded(_, _, address) => Some(address.dad),
            _ => None,
        };
        out.into_iter().filter_map(address).collect::<Vec<_>>()
    };
    assert_eq!(
        told(1, Some(Dad::Tentative)),
        [None],
        "that is over at once"
    );
    assert_eq!(told(2, None), []);
    assert_eq!(told(3, Some(Dad::Failed)), [Some(Dad::Failed)]);
    assert_eq!(told(4, Some(Dad::Failed)), []);
    assert_eq!(told(5, None), [None]);
}
