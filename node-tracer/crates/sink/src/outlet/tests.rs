use std::sync::mpsc::{self, Receiver, Sender};

use super::*;

const SOON: Duration = Duration::from_secs(10);

/// A reader that takes a record when the test says so, and what to answer.
fn reader(room: usize) -> (Outlet, Sender<Result<(), SinkError>>, Receiver<String>) {
    let (answer, answers) = mpsc::channel();
    let (record, records) = mpsc::channel();
    let outlet = Outlet::with_room(room, "the test", apart::spawn, move |data: &[u8]| {
        record
            .send(String::from_utf8_lossy(data).into_owned())
            .map_err(|_| SinkError::Closed)?;
        answers.recv().unwrap_or(Err(SinkError::Closed))
    });
    (outlet.unwrap(), answer, records)
}

fn next(records: &Receiver<String>) -> String {
    records.recv_timeout(SOON).unwrap()
}

fn lost(slow: u64, failed: u64) -> Lost {
    let closed = 0;
    Lost {
        slow,
        failed,
        closed,
    }
}

fn disk_full() -> SinkError {
    io::Error::from(io::ErrorKind::StorageFull).into()
}

/// Waits until the thread has taken note of the last answer.
fn settled(outlet: &Outlet) {
    outlet.drain(SOON, SOON);
}

#[test]
fn a_reader_that_stops_costs_nobody_time_and_what_has_no_room_is_counted() {
    let (outlet, answer, records) = reader(4 * (EACH + 1));
    outlet.put(b"0").unwrap();
    assert_eq!(next(&records), "0");
    let start = Instant::now();
    let put: Vec<bool> = (1..9_u8).map(|n| outlet.put(&[b'0' + n]).is_ok()).collect();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(put, [true, true, true, false, false, false, false, false]);
    assert_eq!(outlet.take_lost(), Lost::default(), "it is not over yet");
    assert_eq!(
        outlet.untold(),
        Lost {
            slow: 5,
            ..Lost::default()
        }
    );

    // It reads again: in order, and what was lost is told once.
    for expected in ["1", "2", "3"] {
        answer.send(Ok(())).unwrap();
        assert_eq!(next(&records), expected);
    }
    answer.send(Ok(())).unwrap();
    settled(&outlet);
    assert_eq!(
        outlet.take_lost(),
        Lost {
            slow: 5,
            ..Lost::default()
        }
    );
    assert_eq!(outlet.take_lost(), Lost::default());
    outlet.put(b"x").unwrap();
    assert_eq!(next(&records), "x");
}

#[test]
fn events_leave_the_last_part_to_findings() {
    let (outlet, _answer, records) = reader(4 * (EACH + 1));
    outlet.put(b"0").unwrap();
    next(&records);
    outlet.next_are(Weight::Event);
    let events = (0..9).filter(|_| outlet.put(b"e").is_ok()).count();
    assert_eq!(events, 2);
    outlet.next_are(Weight::Finding);
    outlet.put(b"f").unwrap();
    assert!(matches!(outlet.put(b"f"), Err(SinkError::Slow)));
}

#[test]
fn a_record_larger_than_the_queue_is_written_too() {
    let (outlet, answer, records) = reader(10);
    let large = "x".repeat(1_000);
    outlet.put(large.as_bytes()).unwrap();
    assert_eq!(next(&records), large);
    assert!(matches!(outlet.put(b"y"), Err(SinkError::Slow)));
    answer.send(Ok(())).unwrap();
    settled(&outlet);
    outlet.put(b"y").unwrap();
}

#[test]
fn what_cannot_be_written_is_counted_and_told_when_it_works_again() {
    let (outlet, answer, records) = reader(ROOM);
    for record in [b"1", b"2"] {
        outlet.put(record).unwrap();
        next(&records);
        answer.send(Err(disk_full())).unwrap();
        settled(&outlet);
        assert_eq!(outlet.take_lost(), Lost::default());
    }
    outlet.put(b"3").unwrap();
    next(&records);
    answer.send(Ok(())).unwrap();
    settled(&outlet);
    assert_eq!(outlet.take_lost(), lost(0, 2));
}

#[test]
fn one_that_was_not_taken_in_time_is_tried_again() {
    let (outlet, answer, records) = reader(ROOM);
    outlet.put(b"1").unwrap();
    for _ in 0..3 {
        assert_eq!(next(&records), "1");
        answer.send(Err(SinkError::Slow)).unwrap();
    }
    assert_eq!(next(&records), "1");
    answer.send(Ok(())).unwrap();
    settled(&outlet);
    assert_eq!(outlet.untold(), Lost::default());
}

#[test]
fn a_gone_reader_ends_it() {
    let (outlet, answer, records) = reader(ROOM);
    outlet.put(b"1").unwrap();
    next(&records);
    answer.send(Err(SinkError::Closed)).unwrap();
    settled(&outlet);
    assert!(outlet.is_closed());
    assert!(matches!(outlet.put(b"2"), Err(SinkError::Closed)));
}

#[test]
fn the_end_waits_as_long_as_something_moves_and_no_longer() {
    let (outlet, answer, records) = reader(ROOM);
    for record in [b"1", b"2", b"3"] {
        outlet.put(record).unwrap();
    }
    next(&records);
    let patience = Duration::from_millis(100);
    let start = Instant::now();
    outlet.drain(patience, SOON);
    assert!(start.elapsed() >= patience && start.elapsed() < SOON);
    assert_eq!(outlet.untold(), lost(3, 0));
    // The last words are tried all the same; once only is each counted.
    outlet.put(b"end").unwrap();
    outlet.drain(patience, SOON);
    assert_eq!(outlet.untold(), lost(4, 0));
    // The reader was there after all.
    answer.send(Ok(())).unwrap();
    settled(&outlet);
    assert_eq!(outlet.untold(), lost(3, 0));
}

#[test]
fn what_nobody_is_left_to_read_is_counted_and_told_once() {
    let (outlet, answer, records) = reader(100 * EACH);
    for record in [b"0", b"1"] {
        outlet.put(record).unwrap();
    }
    assert_eq!(next(&records), "0");
    answer.send(Err(SinkError::Closed)).unwrap();
    settled(&outlet);
    assert!(matches!(outlet.put(b"2"), Err(SinkError::Closed)));
    let lost = |closed| Lost {
        closed,
        ..Lost::default()
    };
    assert_eq!(outlet.take_lost(), lost(3));
    assert!(outlet.put(b"3").is_err());
    assert_eq!(outlet.take_lost(), lost(0), "it would only add to itself");
    assert_eq!(outlet.untold(), lost(1));
}
