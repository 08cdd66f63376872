use super::*;
use crate::events::tests::ghost;
use event::{
    PodRef,
    finding::{Finding, Phase, Rule, Severity},
};

fn told(phase: Phase, state: State) -> EventChange {
    let mut finding = ghost();
    finding.detail.phase = Some(phase);
    EventChange::of(sys::clock::now(), &finding, state)
}

/// Ledger, with a moment to count from.
fn ledger() -> (Ledger, Instant) {
    (Ledger::new("node-1"), Instant::now())
}

/// All that is due by then, each answered so.
fn run(ledger: &mut Ledger, now: Instant, answer: impl Fn(&Request) -> WriteResult) -> Vec<String> {
    let mut said = Vec::new();
    while let Some((key, due)) = ledger.next(now)
        && due <= now
    {
        let request = ledger.request(&key).unwrap();
        let (verb, object) = match &request {
            Request::Create(object) => (String::from("create"), object),
            Request::Learn(object) => (String::from("learn"), object),
            Request::Count(object, count) => (format!("count {count}"), object),
        };
        let stage = object.name.rsplit('.').next().unwrap();
        said.push(format!("{verb} {:?} {stage}", object.about));
        ledger.answered(&key, answer(&request), now);
        assert!(said.len() < 100, "{said:?}");
    }
    said
}

fn takes(request: &Request) -> WriteResult {
    WriteResult::Done(match request {
        Request::Create(_) => 1,
        Request::Learn(_) => 7,
        Request::Count(_, count) => *count,
    })
}

#[test]
fn a_finding_is_created_once_then_counted_and_no_more_often_than_a_minute() {
    let (mut ledger, start) = ledger();
    ledger.take(&told(Phase::Suspected, State::Open), start);
    let created = run(&mut ledger, start, takes);
    assert_eq!(created, ["create Node suspected", "create Pod suspected"]);
    for second in 1..60 {
        let now = start + Duration::from_secs(second);
        ledger.take(&told(Phase::Suspected, State::Updated), now);
        assert!(run(&mut ledger, now, takes).is_empty(), "{second}");
    }
    let now = start + PAUSE;
    let counted = run(&mut ledger, now, takes);
    assert_eq!(counted, ["count 2 Node suspected", "count 2 Pod suspected"]);
    assert!(run(&mut ledger, now + STILL_SO - PAUSE, takes).is_empty());
    let still = run(&mut ledger, now + STILL_SO, takes);
    assert_eq!(still, ["count 3 Node suspected", "count 3 Pod suspected"]);
}

#[test]
fn another_phase_is_another_event_and_the_end_is_one_too() {
    let (mut ledger, start) = ledger();
    let step = |ledger: &mut Ledger, phase, state| {
        ledger.take(&told(phase, state), start);
        run(ledger, start, takes)
    };
    step(&mut ledger, Phase::Suspected, State::Open);
    let armed = step(&mut ledger, Phase::Armed, State::Updated);
    assert_eq!(armed, ["create Node armed", "create Pod armed"]);
    let over = step(&mut ledger, Phase::Armed, State::Resolved);
    assert_eq!(over, ["create Node resolved", "create Pod resolved"]);
    assert!(ledger.items.is_empty());
}

#[test]
fn what_was_never_told_has_no_end() {
    let (mut ledger, start) = ledger();
    ledger.take(&told(Phase::Armed, State::Resolved), start);
    assert!(ledger.items.is_empty());
}

#[test]
fn what_is_there_already_is_counted_on() {
    let (mut ledger, start) = ledger();
    ledger.take(&told(Phase::Armed, State::Open), start);
    let said = run(&mut ledger, start, |request| match request {
        Request::Create(_) => WriteResult::Exists,
        other => takes(other),
    });
    assert!(said.contains(&String::from("learn Pod armed")), "{said:?}");
    assert!(
        said.contains(&String::from("count 8 Pod armed")),
        "{said:?}"
    );
}

#[test]
fn what_the_api_has_forgotten_is_created_again() {
    let (mut ledger, start) = ledger();
    ledger.take(&told(Phase::Armed, State::Open), start);
    run(&mut ledger, start, takes);
    let said = run(&mut ledger, start + STILL_SO, |request| match request {
        Request::Count(..) => WriteResult::NotFound,
        other => takes(other),
    });
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said.contains(&String::from("create Pod armed")), "{said:?}");
}

#[test]
fn a_namespace_that_is_gone_costs_its_event_alone_and_is_not_asked_again() {
    let (mut ledger, start) = ledger();
    ledger.take(&told(Phase::Suspected, State::Open), start);
    run(&mut ledger, start, |request| match request {
        Request::Create(object) if object.about == About::Pod => WriteResult::NotFound,
        other => takes(other),
    });
    let later = start + PAUSE;
    ledger.take(&told(Phase::Suspected, State::Updated), later);
    assert_eq!(run(&mut ledger, later, takes), ["count 2 Node suspected"]);
    ledger.take(&told(Phase::Suspected, State::Resolved), later);
    assert_eq!(run(&mut ledger, later, takes), ["create Node resolved"]);
    assert!(ledger.items.is_empty());
}

#[test]
fn what_is_allowed_later_is_written_then_if_it_is_still_so() {
    let (mut ledger, start) = ledger();
    let forbidden = |_: &Request| WriteResult::Never(Outcome::Forbidden);
    ledger.take(&told(Phase::Armed, State::Open), start);
    assert_eq!(run(&mut ledger, start, forbidden).len(), 2);
    ledger.take(&told(Phase::Armed, State::Updated), start + PAUSE);
    assert!(run(&mut ledger, start + PAUSE, takes).is_empty());
    let later = start + STILL_SO;
    let created = run(&mut ledger, later, takes);
    assert_eq!(created, ["create Node armed", "create Pod armed"]);
    ledger.take(&told(Phase::Armed, State::Resolved), later);
    assert_eq!(run(&mut ledger, later, forbidden).len(), 2);
    assert!(ledger.items.is_empty());
}

/// What comes of each second in which something is due, and how often something
/// was tried.
fn outage(ledger: &mut Ledger, start: Instant, seconds: u64) -> (Vec<Outcome>, usize) {
    let (mut outcomes, mut tried) = (Vec::new(), 0);
    for second in 0..seconds {
        let now = start + Duration::from_secs(second);
        if let Some((key, due)) = ledger.next(now)
            && due <= now
        {
            tried += 1;
            outcomes.extend(ledger.answered(&key, WriteResult::Later, now));
        }
    }
    (outcomes, tried)
}

#[test]
fn what_is_not_taken_is_put_off_and_written_later_if_it_is_still_so() {
    let (mut ledger, start) = ledger();
    ledger.take(&told(Phase::Suspected, State::Open), start);
    let until = GIVE_UP + STILL_SO;
    let (outcomes, tried) = outage(&mut ledger, start, until.as_secs() - 60);
    assert_eq!(outcomes, [Outcome::Expired, Outcome::Expired]);
    assert!(tried as u64 <= 2 * (GIVE_UP.as_secs() / AGAIN.as_secs() + 1));
    // Nothing is tried more often for being told again.
    ledger.take(&told(Phase::Suspected, State::Updated), start + GIVE_UP * 2);
    assert!(run(&mut ledger, start + GIVE_UP * 2, takes).is_empty());
    let later = start + until + AGAIN;
    let created = run(&mut ledger, later, takes);
    assert_eq!(created, ["create Node suspected", "create Pod suspected"]);
}

#[test]
fn nothing_is_tried_for_ever() {
    let (mut ledger, start) = ledger();
    ledger.take(&told(Phase::Suspected, State::Open), start);
    ledger.take(&told(Phase::Suspected, State::Resolved), start);
    let (outcomes, _) = outage(&mut ledger, start, GIVE_UP.as_secs() + 60);
    assert_eq!(outcomes, [Outcome::Expired; 4]);
    assert!(ledger.items.is_empty());
}

#[test]
fn what_waits_for_its_turn_is_not_late() {
    let (mut ledger, start) = ledger();
    ledger.take(&told(Phase::Suspected, State::Open), start);
    let turn = start + GIVE_UP * 2;
    let (key, _) = ledger.next(turn).unwrap();
    assert_eq!(ledger.answered(&key, WriteResult::Later, turn), None);
    let created = run(&mut ledger, turn + AGAIN, takes);
    assert_eq!(created, ["create Pod suspected", "create Node suspected"]);
}

#[test]
fn what_is_put_off_and_over_is_let_go() {
    let (mut ledger, start) = ledger();
    ledger.take(&told(Phase::Suspected, State::Open), start);
    outage(&mut ledger, start, GIVE_UP.as_secs() + 60);
    ledger.take(&told(Phase::Suspected, State::Resolved), start + GIVE_UP);
    assert!(ledger.items.is_empty());
}

#[test]
fn what_becomes_mild_is_not_counted_any_more_and_still_has_its_end() {
    let (mut ledger, start) = ledger();
    ledger.take(&told(Phase::Armed, State::Open), start);
    run(&mut ledger, start, takes);
    let mild = told(Phase::Armed, State::Updated).into_mild();
    ledger.take(&mild, start + PAUSE);
    assert!(run(&mut ledger, start + 3 * STILL_SO, takes).is_empty());
    let again = start + 3 * STILL_SO;
    ledger.take(&told(Phase::Armed, State::Updated), again);
    let counted = run(&mut ledger, again, takes);
    assert_eq!(counted, ["count 2 Node armed", "count 2 Pod armed"]);
    ledger.take(&mild, again);
    ledger.take(&told(Phase::Armed, State::Resolved), again);
    let over = run(&mut ledger, again, takes);
    assert_eq!(over, ["create Node resolved", "create Pod resolved"]);
    assert!(ledger.items.is_empty());
}

#[test]
fn what_becomes_mild_before_it_is_written_is_written_once() {
    let (mut ledger, start) = ledger();
    ledger.take(&told(Phase::Armed, State::Open), start);
    ledger.take(&told(Phase::Armed, State::Updated).into_mild(), start);
    let created = run(&mut ledger, start, takes);
    assert_eq!(created, ["create Node armed", "create Pod armed"]);
    assert!(run(&mut ledger, start + STILL_SO, takes).is_empty());
}

/// A change of one of many findings.
fn numbered(number: usize, state: State) -> EventChange {
    let mut finding: Finding = ghost();
    finding.id = format!("{number:016x}");
    EventChange::of(sys::clock::now(), &finding, state)
}

/// Opens findings until there is no room for one more.
fn fill(ledger: &mut Ledger, now: Instant) {
    for number in 0..MOST / 2 {
        assert_eq!(ledger.take(&numbered(number, State::Open), now), 0);
    }
}

#[test]
fn there_is_room_for_so_many() {
    let (mut ledger, start) = ledger();
    let mut take = |number| ledger.take(&numbered(number, State::Open), start);
    let left_out: usize = (0..MOST).map(&mut take).sum();
    assert_eq!(left_out, 0, "they wait");
    assert_eq!(take(MOST), 2);
    assert_eq!((ledger.items.len(), ledger.aside.len()), (MOST, MOST));
}

#[test]
fn what_is_new_takes_the_place_of_what_is_only_counted() {
    let (mut ledger, start) = ledger();
    fill(&mut ledger, start);
    while let Some((key, due)) = ledger.next(start)
        && due <= start
    {
        ledger.answered(&key, WriteResult::Done(1), start);
    }
    let left_out = ledger.take(&numbered(MOST, State::Open), start);
    assert_eq!((ledger.items.len(), left_out), (MOST, 2));
    let created = run(&mut ledger, start, takes);
    assert_eq!(created, ["create Node armed", "create Pod armed"]);
}

#[test]
fn an_end_takes_the_place_of_what_was_not_written_yet() {
    let (mut ledger, start) = ledger();
    fill(&mut ledger, start);
    for number in 0..MOST / 2 {
        ledger.take(&numbered(number, State::Resolved), start);
        assert!(ledger.items.len() <= MOST);
    }
    let ends = ledger.items.values();
    assert!(ends.clone().all(|item| item.standing == EventState::End));
    assert_eq!(ends.count(), MOST);
    // And there is no room for what is new before they are written.
    ledger.take(&numbered(MOST, State::Open), start);
    assert_eq!((ledger.items.len(), ledger.aside.len()), (MOST, 2));
    while let Some((key, due)) = ledger.next(start)
        && due <= start
    {
        ledger.answered(&key, WriteResult::Done(1), start);
    }
    ledger.take(&numbered(MOST, State::Resolved), start);
    while let Some((key, _)) = ledger.next(start) {
        ledger.answered(&key, WriteResult::Done(1), start);
    }
    assert!(ledger.items.is_empty());
}

/// A stuck task's, of a user, or of a container of no pod.
fn of(uid: Option<u32>, number: usize, state: State) -> EventChange {
    let mut finding = ghost();
    finding.id = format!("{number:016x}");
    finding.severity = Severity::Warning;
    (finding.pod, finding.detail.uid) = (None, uid);
    EventChange::of(sys::clock::now(), &finding, state)
}

/// The findings that are written in these many requests, by number.
fn written(ledger: &mut Ledger, now: Instant, requests: usize) -> Vec<usize> {
    let mut numbers = Vec::new();
    for _ in 0..requests {
        let (key, _) = ledger.next(now).unwrap();
        let number = key.1.split('.').nth(1).unwrap();
        numbers.push(usize::from_str_radix(number, 16).unwrap());
        ledger.answered(&key, WriteResult::Done(1), now);
    }
    numbers
}

#[test]
fn no_number_of_users_findings_keeps_another_from_being_written_next() {
    let (mut ledger, start) = ledger();
    for number in 0..2 * MOST {
        let uid = u32::try_from(1_000 + number % 70).unwrap();
        ledger.take(&of(Some(uid), number, State::Open), start);
    }
    ledger.take(&of(None, 9_000, State::Open), start);
    let mut critical = ghost();
    (critical.pod, critical.id) = (None, format!("{:016x}", 9_001));
    ledger.take(
        &EventChange::of(sys::clock::now(), &critical, State::Open),
        start,
    );
    assert_eq!(written(&mut ledger, start, 2), [9_001, 9_000]);
    let next = written(&mut ledger, start, 70);
    let users: std::collections::BTreeSet<_> = next.iter().map(|number| number % 70).collect();
    assert_eq!(users.len(), 70, "one of each in turn");
}

#[test]
fn what_had_no_room_is_written_when_there_is() {
    let (mut ledger, start) = ledger();
    for number in 0..MOST + 100 {
        assert_eq!(ledger.take(&of(Some(1_000), number, State::Open), start), 0);
    }
    let mut all = written(&mut ledger, start, MOST + 100);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), MOST + 100);
}

#[test]
fn what_is_new_goes_before_what_is_counted_and_what_is_over() {
    let (mut ledger, start) = ledger();
    for number in 0..40 {
        ledger.take(&numbered(number, State::Open), start);
    }
    while let Some((key, due)) = ledger.next(start)
        && due <= start
    {
        ledger.answered(&key, WriteResult::Done(1), start);
    }
    let now = start + PAUSE;
    for number in 0..20 {
        ledger.take(&numbered(number, State::Updated), now);
    }
    ledger.take(&numbered(20, State::Resolved), now);
    let later = now + Duration::from_secs(1);
    ledger.take(&numbered(40, State::Open), later);
    let said = run(&mut ledger, later, takes);
    assert_eq!(
        said[..5],
        [
            "create Node armed",
            "create Pod armed",
            "create Node resolved",
            "create Pod resolved",
            "count 2 Node armed",
        ]
    );
    assert_eq!(said.len(), 4 + 2 * 20);
}

#[test]
fn no_stream_of_new_findings_keeps_an_end_from_being_written() {
    let (mut ledger, start) = ledger();
    ledger.take(&numbered(0, State::Open), start);
    run(&mut ledger, start, takes);
    ledger.take(&numbered(0, State::Resolved), start);
    let ends = ledger.items.len();
    let mut said = Vec::new();
    for number in 1..=20 {
        ledger.take(&numbered(number, State::Open), start);
        let (key, _) = ledger.next(start).unwrap();
        said.push(ledger.items[&key].standing);
        ledger.answered(&key, WriteResult::Done(1), start);
    }
    let told = said.iter().filter(|standing| **standing == EventState::End);
    assert_eq!((ends, told.count()), (2, 2), "{said:?}");
    assert_eq!(said[..4], [EventState::Now; 4]);
}

#[test]
fn what_is_never_taken_keeps_nothing_from_its_turn() {
    let (mut ledger, start) = ledger();
    ledger.take(&numbered(0, State::Open), start);
    run(&mut ledger, start, takes);
    let now = start + PAUSE;
    ledger.take(&numbered(0, State::Updated), now);
    ledger.take(&numbered(1, State::Open), now);
    let said = run(&mut ledger, now, |request| match request {
        Request::Create(_) => WriteResult::Later,
        other => takes(other),
    });
    assert_eq!(said[2..], ["count 2 Node armed", "count 2 Pod armed"]);
}

#[test]
fn a_finding_of_no_phase_is_another_event_when_it_is_worse() {
    let (mut ledger, start) = ledger();
    let mut finding = ghost();
    finding.rule = Rule::DuplicateAddress;
    finding.detail.phase = None;
    finding.pod = None::<PodRef>;
    let mut step = |severity| {
        finding.severity = severity;
        ledger.take(
            &EventChange::of(sys::clock::now(), &finding, State::Updated),
            start,
        );
        run(&mut ledger, start, takes)
    };
    assert_eq!(step(Severity::Warning), ["create Node warning"]);
    assert_eq!(step(Severity::Critical), ["create Node critical"]);
}
