//! What is to be written, and when: each Event once, then counted, and nothing
//! for ever.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{
    Outcome,
    object::{About, Object, Told, objects},
};
use crate::finding::State;

/// Events that are kept in mind.
const MOST: usize = 1_024;
/// An Event's series is counted no more often than this.
const PAUSE: Duration = Duration::from_secs(60);
/// The API forgets an Event after an hour as a rule: one whose finding is still
/// open is counted anew before.
const STILL_SO: Duration = Duration::from_secs(30 * 60);
/// What the API server has not taken by then is given up.
const GIVE_UP: Duration = Duration::from_secs(10 * 60);

/// Namespace and name of an Event.
pub(super) type Key = (String, String);

/// See the module's documentation.
pub(super) struct Ledger {
    node: String,
    items: BTreeMap<Key, Item>,
}

struct Item {
    finding: String,
    object: Object,
    step: Step,
    /// When it is to be done, if there is something to do.
    due: Option<Instant>,
    /// Since when it is waited for.
    since: Instant,
    /// When it was written last.
    written: Option<Instant>,
    /// Nothing will follow on it.
    over: bool,
    /// It was given up.
    dead: bool,
}

/// What is to be done next with an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    /// It is there, from a tracer before this one: how often it was counted is
    /// to be found out.
    Learn,
    /// It was counted so often.
    Count(u32),
}

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    /// This object is to be made.
    Create(Object),
    /// This one is to be read.
    Learn(Object),
    /// This one was seen so often.
    Count(Object, u32),
}

/// What a request was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is done; the object was counted so often.
    Done(u32),
    /// There is such an object already.
    Exists,
    /// There is no such object, or no such namespace.
    NotFound,
    /// Not this one, and not later either.
    Never(Outcome),
    /// Perhaps later.
    Later,
}

impl Ledger {
    /// Of a node, with its name as the API has it.
    pub(super) fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            items: BTreeMap::new(),
        }
    }

    /// The node's name as the API has it.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Takes a change of a finding in. Returns how many Events there was no room
    /// for.
    pub(super) fn take(&mut self, told: &Told, now: Instant) -> usize {
        let mut wanted = objects(told, &self.node);
        let over = told.state == State::Resolved;
        if over {
            // Of what was never told nobody wants to know that it is over.
            let known = self.of(&told.id);
            let known: Vec<About> = known
                .filter(|item| !item.dead)
                .map(|item| item.object.about)
                .collect();
            wanted.retain(|object| known.contains(&object.about));
        }
        self.leave(&told.id, &wanted);
        let mut left_out = 0;
        for object in wanted {
            let key = (object.namespace.clone(), object.name.clone());
            if let Some(item) = self.items.get_mut(&key) {
                item.again(now);
                continue;
            }
            if self.items.len() >= MOST {
                left_out += 1;
                continue;
            }
            let item = Item {
                finding: told.id.clone(),
                object,
                step: Step::Create,
                due: Some(now),
                since: now,
                written: None,
                over,
                dead: false,
            };
            self.items.insert(key, item);
        }
        left_out
    }

    fn of(&self, finding: &str) -> impl Iterator<Item = &Item> {
        let of_it = move |item: &&Item| item.finding == finding;
        self.items.values().filter(of_it)
    }

    /// Events of a finding that are not wanted any more: what is written stays
    /// written, and what is not yet is still to be.
    fn leave(&mut self, finding: &str, wanted: &[Object]) {
        self.items.retain(|(namespace, name), item| {
            let same = |object: &Object| object.namespace == *namespace && object.name == *name;
            if item.finding != finding || wanted.iter().any(same) {
                return true;
            }
            item.over = true;
            !item.dead && item.written.is_none()
        });
    }

    /// What is to be done first, and when.
    pub(super) fn next(&self) -> Option<(Key, Instant)> {
        let due = self
            .items
            .iter()
            .filter_map(|(key, item)| Some((item.due?, key)));
        let (due, key) = due.min()?;
        Some((key.clone(), due))
    }

    /// The request for it.
    pub(super) fn request(&self, key: &Key) -> Option<Request> {
        let Item { object, step, .. } = self.items.get(key)?;
        let object = object.clone();
        Some(match step {
            Step::Create => Request::Create(object),
            Step::Learn => Request::Learn(object),
            Step::Count(count) => Request::Count(object, count.saturating_add(1)),
        })
    }

    /// What came of it, to be counted if it is an end.
    pub(super) fn answered(&mut self, key: &Key, answer: Answer, now: Instant) -> Option<Outcome> {
        let item = self.items.get_mut(key)?;
        let outcome = item.answered(answer, now);
        if item.over && (item.dead || item.written.is_some()) {
            self.items.remove(key);
        }
        outcome
    }
}

impl Item {
    /// Its finding was told again.
    fn again(&mut self, now: Instant) {
        let Some(written) = self.written.filter(|_| !self.dead) else {
            return;
        };
        let soonest = (written + PAUSE).max(now);
        if self.due.is_none_or(|due| due > soonest) {
            self.due = Some(soonest);
            self.since = soonest;
        }
    }

    fn answered(&mut self, answer: Answer, now: Instant) -> Option<Outcome> {
        let late = now.saturating_duration_since(self.since) >= GIVE_UP;
        match (self.step, answer) {
            (Step::Create, Answer::Done(_)) => self.written(1, now, Outcome::Created),
            (Step::Learn, Answer::Done(count)) => self.goes_on(Step::Count(count.max(1)), now),
            (Step::Count(_), Answer::Done(count)) => self.written(count, now, Outcome::Updated),
            (_, Answer::Never(Outcome::Forbidden)) => {
                self.given_up(Outcome::Forbidden);
                // It may be allowed by then, and the finding still be open.
                self.due = Some(now + STILL_SO);
                self.since = now + STILL_SO;
                Some(Outcome::Forbidden)
            }
            (_, Answer::Never(outcome)) => self.given_up(outcome),
            (Step::Count(_), Answer::Later) if late => {
                // The Event itself is there.
                self.due = Some(now + STILL_SO);
                self.since = now + STILL_SO;
                Some(Outcome::Expired)
            }
            (_, _) if late => self.given_up(Outcome::Expired),
            (_, Answer::Later) => {
                self.due = Some(now);
                None
            }
            (Step::Create, Answer::Exists) => self.goes_on(Step::Learn, now),
            (Step::Create, Answer::NotFound) => self.given_up(Outcome::NamespaceGone),
            // The API has forgotten it.
            (Step::Learn | Step::Count(_), Answer::NotFound) => self.goes_on(Step::Create, now),
            (Step::Learn | Step::Count(_), Answer::Exists) => self.given_up(Outcome::Refused),
        }
    }

    fn goes_on(&mut self, step: Step, now: Instant) -> Option<Outcome> {
        self.step = step;
        self.due = Some(now);
        None
    }

    fn written(&mut self, count: u32, now: Instant, outcome: Outcome) -> Option<Outcome> {
        self.step = Step::Count(count);
        self.dead = false;
        self.written = Some(now);
        self.due = Some(now + STILL_SO);
        self.since = now + STILL_SO;
        Some(outcome)
    }

    /// Until its finding is over.
    fn given_up(&mut self, outcome: Outcome) -> Option<Outcome> {
        self.dead = true;
        self.due = None;
        Some(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Timestamp,
        event::PodRef,
        finding::{Finding, Phase, Rule, Severity},
        sink::kube_events::tests::ghost,
    };

    fn told(phase: Phase, state: State) -> Told {
        let mut finding = ghost();
        finding.detail.phase = Some(phase);
        Told::of(Timestamp::now(), &finding, state)
    }

    /// Ledger, with a moment to count from.
    fn ledger() -> (Ledger, Instant) {
        (Ledger::new("node-1"), Instant::now())
    }

    /// All that is due by then, each answered so.
    fn run(ledger: &mut Ledger, now: Instant, answer: impl Fn(&Request) -> Answer) -> Vec<String> {
        let mut said = Vec::new();
        while let Some((key, due)) = ledger.next()
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

    fn takes(request: &Request) -> Answer {
        Answer::Done(match request {
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
        assert!(ledger.items.is_empty() && ledger.next().is_none());
    }

    #[test]
    fn what_was_never_told_has_no_end() {
        let (mut ledger, start) = ledger();
        ledger.take(&told(Phase::Armed, State::Resolved), start);
        assert!(ledger.next().is_none());
    }

    #[test]
    fn what_is_there_already_is_counted_on() {
        let (mut ledger, start) = ledger();
        ledger.take(&told(Phase::Armed, State::Open), start);
        let said = run(&mut ledger, start, |request| match request {
            Request::Create(_) => Answer::Exists,
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
            Request::Count(..) => Answer::NotFound,
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
            Request::Create(object) if object.about == About::Pod => Answer::NotFound,
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
        let forbidden = |_: &Request| Answer::Never(Outcome::Forbidden);
        ledger.take(&told(Phase::Armed, State::Open), start);
        assert_eq!(run(&mut ledger, start, forbidden).len(), 2);
        ledger.take(&told(Phase::Armed, State::Updated), start + PAUSE);
        assert!(run(&mut ledger, start + PAUSE, takes).is_empty());
        let later = start + STILL_SO;
        let created = run(&mut ledger, later, takes);
        assert_eq!(created, ["create Node armed", "create Pod armed"]);
        ledger.take(&told(Phase::Armed, State::Resolved), later);
        assert_eq!(run(&mut ledger, later, forbidden).len(), 2);
        assert!(ledger.items.is_empty() && ledger.next().is_none());
    }

    #[test]
    fn nothing_is_tried_for_ever() {
        let (mut ledger, start) = ledger();
        ledger.take(&told(Phase::Suspected, State::Open), start);
        let mut outcomes = Vec::new();
        for second in 0..2_000 {
            let now = start + Duration::from_secs(second);
            if let Some((key, _)) = ledger.next() {
                outcomes.extend(ledger.answered(&key, Answer::Later, now));
            }
        }
        assert_eq!(outcomes, [Outcome::Expired, Outcome::Expired]);
        assert!(ledger.next().is_none());
    }

    #[test]
    fn there_is_room_for_so_many() {
        let (mut ledger, start) = ledger();
        let mut left_out = 0;
        for number in 0..MOST {
            let mut finding: Finding = ghost();
            finding.id = format!("{number:016x}");
            left_out += ledger.take(&Told::of(Timestamp::now(), &finding, State::Open), start);
        }
        assert_eq!((ledger.items.len(), left_out), (MOST, MOST));
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
            ledger.take(&Told::of(Timestamp::now(), &finding, State::Updated), start);
            run(&mut ledger, start, takes)
        };
        assert_eq!(step(Severity::Warning), ["create Node warning"]);
        assert_eq!(step(Severity::Critical), ["create Node critical"]);
    }
}
