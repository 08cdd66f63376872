use super::*;
use crate::testing::Node;
use event::testing::{generator::Dice, *};

/// The incident with a tick after every event and one each second.
fn recording() -> Vec<Event> {
    let mut story = ghost_story();
    story.push(reserved(90, None));
    story.extend(successor(92));
    story.extend([
        unstuck(100, 9),
        removed(101, 100, 5),
        dying(102, 100),
        destroyed(102, 100),
    ]);
    let mut ticked: Vec<Event> = Vec::new();
    for event in story {
        let last = ticked.last().map_or(event.time, |event| event.time);
        let mut time = last.plus(Duration::from_secs(1));
        while time < event.time {
            ticked.push(Event {
                time,
                what: What::Tick,
            });
            time = time.plus(Duration::from_secs(1));
        }
        let time = event.time;
        ticked.extend([
            event,
            Event {
                time,
                what: What::Tick,
            },
        ]);
    }
    ticked
}

fn run(events: &[Event]) -> Vec<(Finding, State)> {
    let mut node = Node::default();
    events
        .iter()
        .flat_map(|event| node.0.apply(event))
        .collect()
}

#[test]
fn a_recording_replays_to_the_same_findings() {
    let events = recording();
    let lines: Vec<String> = events
        .iter()
        .map(|event| serde_json::to_string(event).unwrap())
        .collect();
    let replayed: Vec<Event> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(replayed, events);
    let told = run(&events);
    assert_eq!(run(&replayed), told);
    let count = |state| told.iter().filter(|(_, s)| *s == state).count();
    assert_eq!(count(State::Open), count(State::Resolved), "{told:#?}");
}

#[test]
fn the_same_ticks_give_the_same_findings_whether_or_not_others_are_between() {
    let told = |every: bool| {
        let mut node = Node::of(&ghost_story());
        (64..200)
            .filter(|t| every || *t == 64 || *t == 199)
            .flat_map(|t| node.tick(t))
            .count()
    };
    assert_eq!(told(true), told(false), "time alone is no news");
}

#[test]
fn nothing_is_evaluated_while_nothing_changes() {
    let mut node = Node::of(&ghost_story());
    assert!(!node.tick(70).is_empty());
    assert_eq!(node.0.pending(), None);
    assert!(!node.0.stale);
    node.tell(reserved(71, Some("sandbox-old")));
    assert!(!node.0.stale, "nothing new");
    node.tell(reserved(72, None));
    assert!(node.0.stale);
}

#[test]
fn changes_are_told_once_a_second_and_what_is_worse_at_once() {
    let mut node = Node::of(&ghost_story());
    let half = |seconds: i64| s(seconds).plus(Duration::from_millis(500));
    assert!(!node.tick(70).is_empty());
    let tasks = [
        pod_task(9, "checkout-api", OLD, "app-old"),
        pod_task(10, "sh", OLD, "app-old"),
    ];
    node.tell(holders(70, 100, &tasks, &[MOUNT]));
    let tick = Event {
        time: half(70),
        what: What::Tick,
    };
    assert_eq!(node.0.apply(&tick), [], "too soon");
    assert_eq!(node.0.pending(), Some(s(71)));
    let told = node.tick(71);
    assert_eq!((told.len(), told[0].1), (1, State::Updated));
    node.tell(reserved(71, None));
    let told = node.0.apply(&Event {
        time: half(71),
        what: What::Tick,
    });
    assert_eq!(told[0].0.severity, Severity::Critical, "armed, at once");
}

#[test]
fn what_matters_is_watched() {
    let mut node = Node::of(&ghost_story()[..7]);
    node.tick(7);
    assert_eq!(*node.0.watched(), Watch::default());
    node.tell_all(&ghost_story()[7..8]);
    node.tick(60);
    let watched = node.0.watched().clone();
    assert_eq!(
        (watched.netns, watched.addresses),
        ([ns(100)].into(), [ip(5)].into())
    );
    let del = call("DEL", "sandbox-old", 100, OLD, "checkout-x8k2p");
    node.tell_all(&[ended(61, del), dying(61, 100)]);
    node.tick(62);
    assert_eq!(*node.0.watched(), Watch::default());
}

#[test]
fn the_stores_of_a_ghosts_address_are_asked_before_it_is_told() {
    let mut node = Node::of(&ghost_story());
    assert_eq!(node.0.possible_ghosts(s(66)), [ip(5)].into());
    node.only(67, Rule::GhostSandbox, State::Open);
    assert_eq!(
        node.0.possible_ghosts(s(67)),
        BTreeSet::new(),
        "nothing is new"
    );
    assert_eq!(node.0.watched().addresses, [ip(5)].into());
}

#[test]
fn what_a_list_may_only_be_too_old_for_is_to_be_proven() {
    let proof = |made_after: Option<i64>, of_old: bool| {
        let mut story = ghost_story()[..7].to_vec();
        for event in &mut story {
            if let What::PodsListed {
                made_after: after,
                pods,
                ..
            } = &mut event.what
            {
                *after = made_after.map(s);
                pods.retain(|pod| of_old || !pod.uids.contains(OLD));
            }
        }
        let mut node = Node::of(&story);
        node.tick(20);
        node.0.watched().proof
    };
    assert!(!proof(Some(-100), true), "it is on the list");
    assert!(proof(Some(-100), false));
    assert!(!proof(None, false), "the list has proven it");
}

#[test]
fn the_summary_counts_each_finding_once_by_its_worst() {
    let mut node = Node::default();
    for event in recording() {
        node.0.apply(&event);
    }
    let summary = node.0.summary();
    let count = |rule, severity| summary.findings[&rule].get(&severity).copied().unwrap_or(0);
    assert_eq!(count(Rule::GhostSandbox, Severity::Critical), 1);
    assert_eq!(count(Rule::GhostSandbox, Severity::Warning), 0);
    assert_eq!(summary.worst(), Some(Severity::Critical));
    let ticks = recording()
        .iter()
        .filter(|event| event.what == What::Tick)
        .count();
    assert_eq!(summary.events as usize, recording().len() - ticks);
    assert!(node.0.open().is_empty());
}

#[test]
fn a_storm_of_findings_is_evaluated_less_often() {
    let mut node = Node::default();
    for pid in 0..4_000 {
        let mut event = stuck(1, pid, 100);
        if let What::TaskBlocked { task, .. } = &mut event.what {
            // Of a pod's many all but a few are one finding.
            task.pod_uid = None;
        }
        node.tell(event);
    }
    assert_eq!(node.tick(10).len(), 4_000);
    node.tell(unstuck(10, 7));
    let soon = Event {
        time: s(10).plus(Duration::from_millis(100)),
        what: What::Tick,
    };
    assert_eq!(node.0.apply(&soon), []);
    assert_eq!(
        node.0.pending(),
        Some(s(10).plus(Duration::from_millis(250)))
    );
    assert_eq!(node.tick(11).len(), 1);
}

#[test]
fn in_whatever_order_events_come_findings_are_about_what_is_there() {
    for seed in 0..20 {
        let held = std::panic::catch_unwind(|| orders::check_any(&mut Dice::Seed(seed), 200));
        assert!(held.is_ok(), "seed {seed}");
    }
}

#[test]
fn what_a_fuzzer_found_once_stays_found() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/engine");
    let seeds: Vec<_> = std::fs::read_dir(seeds).unwrap().collect();
    assert!(!seeds.is_empty());
    for seed in seeds {
        let path = seed.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let held = std::panic::catch_unwind(|| orders::check(&bytes));
        assert!(held.is_ok(), "{}", path.display());
    }
}

#[test]
fn what_is_found_of_one_thing_does_not_depend_on_when_others_happen() {
    for seed in 0..20 {
        let check = || orders::check_independence(&mut Dice::Seed(seed), 80);
        assert!(std::panic::catch_unwind(check).is_ok(), "seed {seed}");
    }
}

#[test]
fn time_that_goes_back_stops_no_verdict() {
    let told = |steps: &[(i64, &[Event])]| {
        let mut node = Node::default();
        let mut rules = Vec::new();
        for (time, events) in steps {
            for event in *events {
                node.0.apply(event);
            }
            let found = node.tick(*time);
            rules.extend(
                found
                    .into_iter()
                    .map(|(finding, state)| (finding.rule, state)),
            );
        }
        rules
    };
    let lost = |time, count| {
        let cause = String::from("ring-full");
        [at(time, What::EventsLost { cause, count })]
    };
    let (first, second) = (lost(5_000, 1), lost(100, 2));
    let steps: [(i64, &[Event]); 3] = [(5_000, &first), (100, &second), (102, &[])];
    let expected = [
        (Rule::EventsLost, State::Open),
        (Rule::EventsLost, State::Updated),
    ];
    assert_eq!(told(&steps), expected);
}

#[test]
fn what_comes_and_goes_is_told_a_few_times_and_over_when_it_stays_away() {
    let mut node = Node::of(&ghost_story());
    node.tell_all(&successor(92));
    let mut told = node.tick(93);
    for second in 94..394 {
        // A pod's second address comes and goes.
        let change = match second % 2 {
            0 => removed(second, 200, 5),
            _ => added(second, 200, 5),
        };
        node.tell(change);
        told.extend(node.tick(second));
    }
    told.retain(|(finding, _)| finding.rule == Rule::DuplicateAddress);
    assert!(told.len() <= 12, "{}", told.len());
    let (finding, _) = told.last().unwrap();
    assert!(
        finding.unknown.iter().any(|it| it == RESTLESS),
        "{finding:#?}"
    );
    node.tell(removed(394, 200, 5));
    let over: Vec<_> = (394..500).flat_map(|second| node.tick(second)).collect();
    let is_over = |(finding, state): &(Finding, State)| {
        finding.rule == Rule::DuplicateAddress && *state == State::Resolved
    };
    assert_eq!(over.iter().filter(|told| is_over(told)).count(), 1);
}

#[test]
fn what_changes_all_the_time_is_told_ever_more_rarely() {
    let mut node = Node::of(&ghost_story());
    node.tell_all(&successor(92));
    let mut told = node.tick(93);
    for second in 94..694 {
        // A second address of the pod's that a third one has comes and goes.
        let change = match second % 4 {
            0 => added(second, 200, 77),
            2 => removed(second, 200, 77),
            1 => added(second, 100, 77),
            _ => removed(second, 100, 77),
        };
        node.tell(change);
        told.extend(node.tick(second));
    }
    told.retain(|(finding, _)| {
        finding
            .addresses
            .iter()
            .any(|it| it.to_string() == "10.0.0.77")
    });
    assert!((1..40).contains(&told.len()), "{}", told.len());
}
