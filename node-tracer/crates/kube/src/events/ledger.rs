//! What is to be written, and when: each Event once, then counted, and nothing
//! for ever.
//!
//! An Event that is new goes before those that are counted or ended, so that a
//! hundred findings that change do not hide the next one. Where there is no room
//! for it, what matters least has to go ([`Item::worth`]); the end of a finding
//! always has room: it takes the place of what it ends.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{
    Outcome,
    object::{About, Object, Told, objects},
};
use event::finding::State;

/// Events that are kept in mind.
const MOST: usize = 1_024;
/// An Event's series is counted no more often than this.
const PAUSE: Duration = Duration::from_secs(60);
/// The API forgets an Event after an hour as a rule: one whose finding is still
/// open is counted anew before.
const STILL_SO: Duration = Duration::from_secs(30 * 60);
/// What the API server has not taken so long after it was first tried is given
/// up: for [`STILL_SO`], if its finding is still so then.
pub(super) const GIVE_UP: Duration = Duration::from_secs(10 * 60);
/// What was not taken lets others have their turn.
const AGAIN: Duration = Duration::from_secs(5);

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
    standing: Standing,
    step: Step,
    /// When it is to be done, if there is something to do.
    due: Option<Instant>,
    /// Since when that is tried in vain.
    tried: Option<Instant>,
    /// When it was written last.
    written: Option<Instant>,
    /// It was given up.
    dead: bool,
}

/// What an Event says of its finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// That it is so now.
    Now,
    /// That it was so, before it became too mild to be told. No more of it is
    /// counted, but its end is still to be told.
    Mild,
    /// That it was so, before it was otherwise or over. Nothing will follow on
    /// it.
    Past,
    /// That it is over.
    End,
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
        let mut wanted = match told.mild {
            true => Vec::new(),
            false => objects(told, &self.node),
        };
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
        let standing = match over {
            true => Standing::End,
            false => Standing::Now,
        };
        self.leave(told, &wanted);
        let mut left_out = 0;
        for object in wanted {
            let key = (object.namespace.clone(), object.name.clone());
            if let Some(item) = self.items.get_mut(&key) {
                item.standing = standing;
                item.again(now);
                continue;
            }
            if self.items.len() >= MOST {
                left_out += 1;
                if !self.make_room(standing) {
                    continue;
                }
            }
            let item = Item {
                finding: told.id.clone(),
                object,
                standing,
                step: Step::Create,
                due: Some(now),
                tried: None,
                written: None,
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
    fn leave(&mut self, told: &Told, wanted: &[Object]) {
        self.items.retain(|(namespace, name), item| {
            let same = |object: &Object| object.namespace == *namespace && object.name == *name;
            if item.finding != told.id || wanted.iter().any(same) {
                return true;
            }
            item.standing = match item.standing {
                Standing::Now | Standing::Mild if told.mild => Standing::Mild,
                Standing::Now | Standing::Mild | Standing::Past => Standing::Past,
                Standing::End => Standing::End,
            };
            if item.standing == Standing::Mild && item.written.is_some() {
                item.due = None;
            }
            item.is_kept()
        });
    }

    /// Takes the one out that matters least, if it matters less than a new one
    /// of this standing.
    fn make_room(&mut self, standing: Standing) -> bool {
        let worth = |(key, item): (_, &Item)| Some((item.worth()?, item.written, key));
        let least = self.items.iter().filter_map(worth).min();
        let Some((worth, _, key)) = least else {
            return false;
        };
        if standing == Standing::End && worth > Worth::History {
            return false;
        }
        let key: Key = Key::clone(key);
        self.items.remove(&key).is_some()
    }

    /// What is to be done first, and when.
    pub(super) fn next(&self, now: Instant) -> Option<(Key, Instant)> {
        let due = self
            .items
            .iter()
            .filter_map(|(key, item)| Some((item.due?, item.turn(), key)));
        let first = due.min_by(|(one, turn, key), (other, others, others_key)| {
            let by_turn = match *one <= now && *other <= now {
                true => turn.cmp(others),
                false => Ordering::Equal,
            };
            by_turn.then(one.cmp(other)).then(key.cmp(others_key))
        });
        let (due, _, key) = first?;
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
        // Of what was, nothing is tried a second time.
        let waits = matches!(item.standing, Standing::Now | Standing::Mild) || outcome.is_none();
        if !waits || !item.is_kept() {
            self.items.remove(key);
        }
        outcome
    }

    /// Whether nothing is to be written, now or later.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// What an item may be taken out for, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// It is to be written and not so any more.
    History,
    /// Nothing is to be written for it at the moment.
    Quiet,
    /// It is there, and would be counted.
    Written,
}

/// Who is first of those that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// What is so now and was never told.
    New,
    /// What else is not there.
    Missing,
    /// What is there.
    There,
}

impl Item {
    /// Whether anything is to be done with it, now or later.
    fn is_kept(&self) -> bool {
        match self.standing {
            Standing::Now => true,
            Standing::Mild => !self.dead,
            Standing::Past | Standing::End => !self.dead && self.written.is_none(),
        }
    }

    /// `None`: it must not be taken out.
    fn worth(&self) -> Option<Worth> {
        match (self.standing, self.step) {
            (Standing::End, _) => None,
            (Standing::Past, _) => Some(Worth::History),
            (Standing::Mild, _) => Some(Worth::Quiet),
            (Standing::Now, _) if self.dead => Some(Worth::Quiet),
            (Standing::Now, Step::Create) => None,
            (Standing::Now, Step::Learn | Step::Count(_)) => Some(Worth::Written),
        }
    }

    fn turn(&self) -> Turn {
        let is_first = !self.dead && self.written.is_none();
        match (self.step, self.standing) {
            (Step::Create, Standing::Now) if is_first => Turn::New,
            (Step::Create, _) => Turn::Missing,
            (Step::Learn | Step::Count(_), _) => Turn::There,
        }
    }

    /// Its finding was told again.
    fn again(&mut self, now: Instant) {
        let Some(written) = self.written.filter(|_| !self.dead) else {
            return;
        };
        let soonest = (written + PAUSE).max(now);
        if self.due.is_none_or(|due| due > soonest) {
            self.due = Some(soonest);
        }
    }

    fn answered(&mut self, answer: Answer, now: Instant) -> Option<Outcome> {
        let tried = *self.tried.get_or_insert(now);
        let late = now.saturating_duration_since(tried) >= GIVE_UP;
        match (self.step, answer) {
            (Step::Create, Answer::Done(_)) => self.written(1, now, Outcome::Created),
            (Step::Learn, Answer::Done(count)) => self.goes_on(Step::Count(count.max(1)), now),
            (Step::Count(_), Answer::Done(count)) => self.written(count, now, Outcome::Updated),
            (_, Answer::Never(Outcome::Forbidden)) => {
                self.dead = true;
                self.put_off(now, Outcome::Forbidden)
            }
            (_, Answer::Never(outcome)) => self.given_up(outcome),
            (step, _) if late => {
                // What is counted is there.
                self.dead = !matches!(step, Step::Count(_));
                self.put_off(now, Outcome::Expired)
            }
            (_, Answer::Later) => {
                self.due = Some(now + AGAIN);
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
        self.tried = None;
        self.due = (self.standing == Standing::Now).then_some(now + STILL_SO);
        Some(outcome)
    }

    /// It may be taken by then, and the finding still be so.
    fn put_off(&mut self, now: Instant, outcome: Outcome) -> Option<Outcome> {
        self.tried = None;
        self.due = Some(now + STILL_SO);
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
mod tests;
