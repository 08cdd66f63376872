//! When is looked, and at how much.

use super::*;

#[test]
fn an_operation_is_looked_at_when_the_last_of_its_plugins_has_ended() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    schedule.started(op("a", "ADD"), 1, t);
    schedule.ended(op("a", "ADD"), 1, true, t + 10 * MS);
    assert_eq!(schedule.next(), Some(t + 60 * MS));
    // The next one of the chain takes long.
    schedule.started(op("a", "ADD"), 2, t + 20 * MS);
    assert_eq!(schedule.due(t + 500 * MS), None);
    schedule.ended(op("a", "ADD"), 2, true, t + 600 * MS);
    assert_eq!(schedule.due(t + 649 * MS), None);
    let due = schedule.due(t + 650 * MS).unwrap();
    assert_eq!(due.operations, [(op("a", "ADD"), true)]);
    assert_eq!(
        (schedule.next(), schedule.due(t + 2_000 * MS)),
        (None, None)
    );
}

#[test]
fn an_operation_of_which_one_plugin_failed_has_failed() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    schedule.ended(op("a", "DEL"), 1, false, t);
    schedule.ended(op("a", "DEL"), 2, true, t + MS);
    let due = schedule.due(t + 60 * MS).unwrap();
    assert_eq!(due.operations, [(op("a", "DEL"), false)]);
}

#[test]
fn a_plugin_that_never_ends_is_not_waited_for_nor_called_a_loss() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    schedule.started(op("a", "ADD"), 1, t);
    let due = schedule
        .due(t + Duration::from_secs(60))
        .unwrap_or_default();
    assert_eq!(due, Due::default());
    assert_eq!((schedule.next(), schedule.take_dropped()), (None, 0));
}

#[test]
fn batches_are_apart_and_bounded_and_nothing_gets_lost_between_them() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    for i in 0..100 {
        schedule.ended(op(&format!("c{i}"), "ADD"), 1, true, t);
    }
    let (mut now, mut sizes) = (t + 50 * MS, Vec::new());
    while let Some(due) = schedule.due(now) {
        sizes.push(due.operations.len());
        assert_eq!(schedule.due(now + 99 * MS), None);
        now += 100 * MS;
    }
    assert_eq!(sizes, [32, 32, 32, 4]);
    assert_eq!(schedule.take_dropped(), 0);
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    for i in 0..10_000 {
        schedule.ended(op(&format!("c{i}"), "ADD"), 1, true, t);
    }
    assert_eq!(schedule.take_dropped(), 10_000 - 8_192);
}

#[test]
fn a_sandbox_is_watched_for_ten_seconds_after_the_last_del_of_another() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    schedule.watch(&key("b"), t);
    schedule.watch(&key("b"), t + 20 * MS);
    let mut looks = Vec::new();
    let mut now = t;
    while let Some(next) = schedule.next() {
        now = now.max(next);
        if schedule.due(now).is_some() {
            looks.push(now.duration_since(t).as_millis());
        }
    }
    assert_eq!(looks, [70, 1_070, 5_070, 10_220]);
}

#[test]
fn what_is_taken_down_is_not_looked_at_as_if_it_were_set_up() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    schedule.ended(op("a", "ADD"), 1, true, t);
    schedule.watch(&key("a"), t);
    schedule.forget(&key("a"));
    schedule.ended(op("a", "DEL"), 2, true, t + MS);
    let due = schedule.due(t + 60 * MS).unwrap();
    assert_eq!(due.operations, [(op("a", "DEL"), true)]);
    assert_eq!((due.again.len(), schedule.next()), (0, None));
}

#[test]
fn what_is_missing_is_looked_for_again_and_not_for_ever() {
    let mut schedule = Schedule::default();
    let mut now = Instant::now();
    let begin = now;
    schedule.doubt(&key("b"), now);
    assert_eq!(schedule.next(), Some(now + 1_000 * MS));
    let mut looks = 0;
    while let Some(next) = schedule.next() {
        now = next;
        assert!(schedule.due(now).is_some());
        schedule.doubt(&key("b"), now);
        looks += 1;
    }
    assert_eq!(looks, 90);
    let hours = now.duration_since(begin).as_secs() / 3_600;
    assert_eq!(hours, 1);
    schedule.sound(&key("b"));
    schedule.doubt(&key("b"), now);
    assert!(schedule.next().is_some());
    schedule.forget(&key("b"));
    assert_eq!(schedule.next(), None);
}
