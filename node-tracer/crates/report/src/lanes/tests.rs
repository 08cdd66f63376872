use super::*;
use engine::testing::Node;
use event::{Event, What, testing::*};

fn lanes(events: &[Event]) -> Lanes {
    let mut lanes = Lanes::default();
    events.iter().for_each(|event| lanes.apply(event));
    lanes
}

/// The lane of a sandbox.
fn of<'a>(lanes: &'a Lanes, id: &str) -> &'a Lane {
    lanes.get(lanes.ids[id]).unwrap()
}

fn kinds(lane: &Lane) -> Vec<(Timestamp, MarkKind)> {
    lane.marks.iter().map(|mark| (mark.at, mark.kind)).collect()
}

#[test]
fn a_sandbox_has_what_happened_to_it() {
    let mut events = ghost_story();
    events.push(reserved(90, None));
    let lanes = lanes(&events);
    assert_eq!(lanes.all().count(), 1, "the host's is no lane");
    let old = of(&lanes, "sandbox-old");
    assert_eq!(old.created, Some(s(1)));
    assert_eq!(old.pod.as_ref().unwrap().label(), "shop/checkout-x8k2p");
    assert_eq!(
        (old.held[0].address, old.held[0].since),
        (ip(5), Some(s(3)))
    );
    assert_eq!(old.stalls[0].since, s(62));
    assert_eq!(
        kinds(old),
        [(s(4), MarkKind::Add), (s(90), MarkKind::Freed)]
    );
    assert_eq!(
        old.calls.len(),
        1,
        "the end of a call replaces its beginning"
    );
}

#[test]
fn an_address_that_another_one_has_is_given_again() {
    let add = call("ADD", "sandbox-old", 100, OLD, "old");
    let again = call("ADD", "sandbox-new", 200, NEW, "new");
    let lanes = lanes(&[
        created(1, 100),
        answered(2, add, 5),
        created(3, 200),
        added(4, 200, 5),
        answered(5, again, 5),
    ]);
    assert_eq!(
        kinds(of(&lanes, "sandbox-new")),
        [(s(5), MarkKind::GivenAgain)]
    );
}

#[test]
fn a_reservation_that_was_always_free_was_not_freed() {
    let mut events = ghost_story();
    events.retain(|event| !matches!(event.what, What::Reservation { .. }));
    events.extend([
        reserved(90, None),
        reserved(91, None),
        reserved(92, Some("sandbox-old")),
    ]);
    let lanes = lanes(&events);
    let old = of(&lanes, "sandbox-old");
    assert_eq!(
        old.marks[1].text,
        "not reserved when it was first looked at"
    );
    assert_eq!(old.marks.len(), 2);
}

#[test]
fn a_store_that_lacks_what_it_had_has_freed_it() {
    let mut events = ghost_story();
    events.retain(|event| !matches!(event.what, What::Reservation { .. }));
    events.extend([
        stored(70, &[(5, "sandbox-old", 2), (6, "x", 2)]),
        stored(80, &[(6, "x", 2)]),
        stored(90, &[(6, "x", 2)]),
    ]);
    let lanes = lanes(&events);
    let freed = of(&lanes, "sandbox-old").marks.last().unwrap().clone();
    assert_eq!(
        (freed.at, freed.kind, freed.addresses),
        (s(80), MarkKind::Freed, vec![ip(5)])
    );
}

#[test]
fn what_only_a_plugin_said_ends_with_its_del() {
    let del = call("DEL", "sandbox-old", 100, OLD, "old");
    let add = call("ADD", "sandbox-old", 100, OLD, "old");
    let lanes = lanes(&[answered(2, add, 5), ended(9, del)]);
    let old = of(&lanes, "sandbox-old");
    assert_eq!(old.held[0].until, Some(s(9)));
    assert_eq!(
        old.first_del(s(3)),
        Some(s(9).minus(std::time::Duration::from_micros(9_500)))
    );
}

#[test]
fn a_sandbox_that_was_known_by_its_id_gets_its_namespace() {
    let mut del = call("DEL", "sandbox-old", 100, OLD, "old");
    del.netns = None;
    let add = call("ADD", "sandbox-old", 100, OLD, "old");
    let lanes = lanes(&[failed(1, del, "x"), created(2, 100), answered(3, add, 5)]);
    assert_eq!(lanes.all().count(), 1);
    let old = of(&lanes, "sandbox-old");
    assert_eq!(old.netns, Some(ns(100)));
    assert_eq!(
        kinds(old),
        [(s(1), MarkKind::DelFailed), (s(3), MarkKind::Add)]
    );
}

#[test]
fn an_inode_that_is_used_again_is_another_lane() {
    let lanes = lanes(&[
        created(1, 100),
        added(2, 100, 5),
        created(3, 100),
        added(4, 100, 6),
    ]);
    assert_eq!(lanes.all().count(), 2);
}

#[test]
fn a_call_that_is_not_believed_says_nothing_of_a_sandbox() {
    let mut forged = call("ADD", "forged", 100, OLD, "old");
    forged.trusted = false;
    let lanes = lanes(&[created(1, 100), answered(2, forged, 5)]);
    let (_, lane) = lanes.all().next().unwrap();
    assert_eq!((&lane.sandbox_id, lane.marks.len()), (&None, 0));
}

#[test]
fn however_many_come_and_go_those_that_matter_stay() {
    let mut node = Node::of(&ghost_story());
    let mut lanes = lanes(&ghost_story());
    for (finding, _) in node.tick(70) {
        lanes.name(&finding, s(70));
    }
    for number in 0..3 * MAX_LANES as u32 {
        lanes.apply(&created(100, 1_000 + number));
        lanes.apply(&destroyed(101, 1_000 + number));
    }
    assert!(lanes.all().count() <= MAX_LANES);
    assert!(lanes.live.len() <= MAX_LANES);
    assert!(!of(&lanes, "sandbox-old").named.is_empty());
    let gone = 3 * MAX_LANES as u64 + 1 - lanes.all().count() as u64;
    assert_eq!(lanes.left_out(), gone);
}

#[test]
fn one_lane_is_bounded() {
    let mut events = vec![created(1, 100)];
    for number in 0..2_000 {
        let mut add = call("ADD", "sandbox-old", 100, OLD, "old");
        add.pid = number;
        events.push(failed(i64::from(number), add, &format!("error {number}")));
        events.push(stuck(i64::from(number), 1_000 + number, 100));
        events.push(added(i64::from(number), 100, (number % 250) as u8));
    }
    let lanes = lanes(&events);
    let old = of(&lanes, "sandbox-old");
    assert!(old.marks.len() <= 128 && old.calls.len() <= 128);
    assert!(old.stalls.len() <= 32 && old.held.len() <= 32);
    assert!(old.left_out > 3_000);
}
