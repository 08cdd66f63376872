use super::*;
use crate::model::story::*;

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
        node.tell(stuck(1, pid, 100));
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

/// Random numbers for tests (Knuth's MMIX generator).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32 % sides
    }
}

/// Any event about few enough things that they meet.
fn any_event(dice: &mut Dice, seconds: i64) -> Event {
    let inode = 100 + dice.roll(6);
    let last = 5 + dice.roll(3) as u8;
    let pid = 10 + dice.roll(5);
    let uid = [OLD, NEW, OTHER][dice.roll(3) as usize];
    let sandbox = format!("sandbox-{}", dice.roll(4));
    let tasks = [pod_task(pid, "x", uid, &sandbox), task(pid + 1, "y")];
    let some = &tasks[..dice.roll(3) as usize];
    let command = ["ADD", "DEL", "CHECK"][dice.roll(3) as usize];
    let mut event = match dice.roll(17) {
        0 | 1 => created(seconds, inode),
        2 => found(seconds, inode),
        3 => dying(seconds, inode),
        4 => destroyed(seconds, inode),
        5 => holders(seconds, inode, some, &[MOUNT][..dice.roll(2) as usize]),
        6..=8 => added(seconds, inode, last),
        9 => removed(seconds, inode, last),
        10 => stuck(seconds, pid, inode),
        11 => unstuck(seconds, pid),
        12 => calls(seconds, call(command, &sandbox, inode, uid, "a")),
        13 => ended(seconds, call(command, &sandbox, inode, uid, "a")),
        14 => held_by_fds(seconds, inode, &[leaked_fd(3)][..dice.roll(2) as usize]),
        15 => reserved(seconds, [None, Some("sandbox-1")][dice.roll(2) as usize]),
        _ => {
            let mut pods = vec![pod("a", OLD, &[]), pod("b", NEW, &[]), pod("c", OTHER, &[])];
            pods.truncate(dice.roll(4) as usize);
            listed(seconds, &pods)
        }
    };
    if dice.roll(3) == 0 {
        forget_cookies(&mut event.what);
    }
    event
}

fn forget_cookies(what: &mut What) {
    match what {
        What::NetnsCreated { netns, .. }
        | What::NetnsFound { netns, .. }
        | What::NetnsDying { netns, .. }
        | What::NetnsDestroyed { netns }
        | What::NetnsHolders { netns, .. }
        | What::AddressAdded { netns, .. }
        | What::AddressRemoved { netns, .. } => netns.cookie = None,
        _ => {}
    }
}

#[test]
fn in_whatever_order_events_come_findings_are_about_what_is_there() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut node = Node::default();
        let mut open = BTreeSet::new();
        node.tell(host(0));
        for step in 0..300 {
            // Some come late.
            let late = i64::from(dice.roll(4));
            node.0.apply(&any_event(&mut dice, step - late));
            for (finding, state) in node.tick(step) {
                let known = match state {
                    State::Open => open.insert(finding.id.clone()),
                    State::Updated => open.contains(&finding.id),
                    State::Resolved => open.remove(&finding.id),
                };
                assert!(known, "seed {seed}, step {step}: {state:?} {finding:#?}");
                let netns = &node.0.model.netns;
                let is_alive = |id| netns.get(id).is_some_and(|entry| entry.dying.is_none());
                let of_live = matches!(finding.rule, Rule::GhostSandbox | Rule::DuplicateAddress);
                if of_live && state != State::Resolved {
                    let about = finding.netns.as_ref().unwrap().id;
                    assert!(is_alive(about), "seed {seed}, step {step}: {finding:#?}");
                }
            }
            node.0.model.netns.check();
        }
        assert_eq!(open, node.0.open.keys().cloned().collect());
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
