//! What is to be written, and when: each Event once, then counted, and nothing
//! for ever.
//!
//! An Event that is new goes before those that are counted or ended, so that a
//! hundred findings that change do not hide the next one; of these the worst go
//! first, users' last, and the owners take turns ([`Ledger::next`]). But however
//! many are new, one request of a few is for the others: that a finding is over is
//! told, too. Where there
//! is no room for it, what matters least has to go ([`Worth`]), or the new one
//! waits aside until there is. The end of a finding always has room: it takes
//! the place of what it ends.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use super::{
    Outcome,
    object::{About, EventChange, Object, Whose, objects},
};
use event::finding::{Severity, State};
use event::order::Order as _;

/// Events that are kept in mind, and that wait aside.
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

/// After so many Events that are new, one of the others has its turn.
const NEW_ONES: u32 = 4;

/// Namespace and name of an Event.
pub(super) type Key = (String, String);

pub(super) struct Ledger {
    node: String,
    items: BTreeMap<Key, Item>,
    /// What is so now, was never told, and had no room.
    aside: BTreeMap<Key, Item>,
    /// How many that were new have had their turn while another one waited.
    new_ones: u32,
}

struct Item {
    finding: String,
    severity: Severity,
    whose: Whose,
    object: Object,
    standing: EventState,
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
enum EventState {
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
pub(super) enum WriteResult {
    /// It is done; the object was counted so often.
    Done(u32),
    /// There is such an object already.
    Exists,
    /// There is no such object, or no such namespace.
    NotFound,
    /// Not this one, and not later either.
    Never(Outcome),
    Later,
}

impl Ledger {
    /// Of a node, with its name as the API has it.
    pub(super) fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            items: BTreeMap::new(),
            aside: BTreeMap::new(),
            new_ones: 0,
        }
    }

    /// The node's name as the API has it.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Takes a change of a finding in. Returns how many Events are not told, or
    /// not any more, as there was no room for them.
    pub(super) fn take(&mut self, told: &EventChange, now: Instant) -> usize {
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
            true => EventState::End,
            false => EventState::Now,
        };
        self.leave(told, &wanted);
        let mut left_out = self.leave_aside(told, &wanted);
        for object in wanted {
            let key = (object.namespace.clone(), object.name.clone());
            if let Some(item) = self.items.get_mut(&key) {
                item.standing = standing;
                item.again(now);
                continue;
            }
            let item = Item {
                finding: told.id.clone(),
                severity: told.severity,
                whose: told.whose(),
                object,
                standing,
                step: Step::Create,
                due: Some(now),
                tried: None,
                written: None,
                dead: false,
            };
            left_out += self.admit(key, item);
        }
        while self.items.len() < MOST && !self.aside.is_empty() {
            self.take_from_aside();
        }
        left_out
    }

    /// Takes an Event in that is not there, if need be in the place of another
    /// one. Returns how many there was no room for.
    fn admit(&mut self, key: Key, item: Item) -> usize {
        let without_room = match self.items.len() < MOST {
            true => None,
            false => match self.worth_less(&item) {
                Some(least) => self.items.remove_entry(&least),
                None => return self.put_aside(key, item),
            },
        };
        self.items.insert(key, item);
        without_room.map_or(0, |(key, item)| self.put_aside(key, item))
    }

    /// What has no room waits, if it is news. Returns how many do not.
    fn put_aside(&mut self, key: Key, item: Item) -> usize {
        let is_news = item.standing == EventState::Now && item.turn() == Turn::New;
        if !is_news || self.aside.len() >= MOST {
            return 1;
        }
        self.aside.insert(key, item);
        0
    }

    /// Takes in what waits aside, as far as there is room by now.
    fn take_from_aside(&mut self) {
        if self.aside.is_empty() {
            return;
        }
        let owners = self.owners();
        let waiting = self.aside.iter();
        let best = waiting.max_by_key(|(_, item)| item.worth(&owners));
        let key = best.map(|(key, _)| key.clone()).unwrap_or_default();
        if let Some(item) = self.aside.remove(&key) {
            self.admit(key, item);
        }
    }

    /// How many Events each owner has.
    fn owners(&self) -> HashMap<Whose, usize> {
        let mut owners = HashMap::new();
        for item in self.items.values() {
            *owners.entry(item.whose).or_default() += 1;
        }
        owners
    }

    fn of(&self, finding: &str) -> impl Iterator<Item = &Item> {
        let of_it = move |item: &&Item| item.finding == finding;
        self.items.values().filter(of_it)
    }

    /// Events of a finding that are not wanted any more: what is written stays
    /// written, and what is not yet is still to be.
    fn leave(&mut self, told: &EventChange, wanted: &[Object]) {
        self.items.retain(|(namespace, name), item| {
            let same = |object: &Object| object.namespace == *namespace && object.name == *name;
            if item.finding != told.id || wanted.iter().any(same) {
                return true;
            }
            item.standing = match item.standing {
                EventState::Now | EventState::Mild if told.mild => EventState::Mild,
                EventState::Now | EventState::Mild | EventState::Past => EventState::Past,
                EventState::End => EventState::End,
            };
            if item.standing == EventState::Mild && item.written.is_some() {
                item.due = None;
            }
            item.is_kept()
        });
    }

    /// What of a finding waits aside and is not wanted any more, or will be
    /// tried anew. Returns how many were never told.
    fn leave_aside(&mut self, told: &EventChange, wanted: &[Object]) -> usize {
        let mut never_told = 0;
        self.aside.retain(|(namespace, name), item| {
            let same = |object: &Object| object.namespace == *namespace && object.name == *name;
            let leaves = item.finding == told.id;
            never_told += usize::from(leaves && !wanted.iter().any(same));
            !leaves
        });
        never_told
    }

    /// What matters least, if it matters less than a new one.
    fn worth_less(&self, new: &Item) -> Option<Key> {
        let mut owners = self.owners();
        let worth = |(key, item): (_, &Item)| Some((item.worth(&owners)?, item.written, key));
        let (least, _, key) = self.items.iter().filter_map(worth).min()?;
        let key: Key = Key::clone(key);
        if new.standing == EventState::End {
            return (least.kind == Kind::History).then_some(key);
        }
        *owners.entry(new.whose).or_default() += 1;
        (Some(least) < new.worth(&owners)).then_some(key)
    }

    /// What is to be done first, and when: of what is due the worst, of users
    /// last, and of each owner one in turn; now and then one that is not new.
    pub(super) fn next(&self, now: Instant) -> Option<(Key, Instant)> {
        let all = self.items.iter();
        let due = all.filter_map(|(key, item)| Some((item.due?, key, item)));
        let (mut due, later): (Vec<_>, Vec<_>) = due.partition(|(due, ..)| *due <= now);
        if due.is_empty() {
            let first = later.into_iter().min_by_key(|(due, key, _)| (*due, *key));
            return first.map(|(due, key, _)| (key.clone(), due));
        }
        let is_new = |item: &Item| item.turn() == Turn::New;
        if self.new_ones >= NEW_ONES && due.iter().any(|(.., item)| !is_new(item)) {
            due.retain(|(.., item)| !is_new(item));
        }
        due.order_by_key(|(due, key, _)| (*due, *key));
        let mut turns: HashMap<_, usize> = HashMap::new();
        let first = due.into_iter().min_by_key(|(due, key, item)| {
            let rank = (item.turn(), Reverse(item.severity), item.is_users());
            let turn = turns.entry((rank, item.whose)).or_default();
            *turn += 1;
            (rank, *turn, *due, *key)
        });
        first.map(|(due, key, _)| (key.clone(), due))
    }

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
    pub(super) fn answered(
        &mut self,
        key: &Key,
        answer: WriteResult,
        now: Instant,
    ) -> Option<Outcome> {
        let is_new = |item: &Item| item.turn() == Turn::New;
        let mut others = self.items.values().filter(|item| !is_new(item));
        let waits = others.any(|other| other.due.is_some_and(|due| due <= now));
        let item = self.items.get_mut(key)?;
        self.new_ones = match waits && is_new(item) {
            true => self.new_ones.saturating_add(1),
            false => 0,
        };
        let outcome = item.answered(answer, now);
        // Of what was, nothing is tried a second time.
        let waits =
            matches!(item.standing, EventState::Now | EventState::Mild) || outcome.is_none();
        if !waits || !item.is_kept() {
            self.items.remove(key);
        }
        self.take_from_aside();
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
struct Worth {
    is_now: bool,
    severity: Severity,
    is_others: bool,
    kind: Kind,
    /// Each is worth less, the more its owner has.
    share: Reverse<usize>,
}

/// Parts of [`Worth`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// It is to be written and not so any more.
    History,
    /// Nothing is to be written for it at the moment.
    Quiet,
    /// It is there, and would be counted.
    Written,
    /// It is to be written.
    New,
}

/// Who is first of those that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Turn {
    /// What is so now and was never told.
    New,
    /// What else is not there.
    Missing,
    There,
}

impl Item {
    /// Whether anything is to be done with it, now or later.
    fn is_kept(&self) -> bool {
        match self.standing {
            EventState::Now => true,
            EventState::Mild => !self.dead,
            EventState::Past | EventState::End => !self.dead && self.written.is_none(),
        }
    }

    /// What it is worth among these owners; `None`: it must not be taken out.
    fn worth(&self, owners: &HashMap<Whose, usize>) -> Option<Worth> {
        let kind = match (self.standing, self.step) {
            (EventState::End, _) => return None,
            (EventState::Past, _) => Kind::History,
            (EventState::Mild, _) => Kind::Quiet,
            (EventState::Now, _) if self.dead => Kind::Quiet,
            (EventState::Now, Step::Create) => Kind::New,
            (EventState::Now, Step::Learn | Step::Count(_)) => Kind::Written,
        };
        Some(Worth {
            is_now: kind > Kind::History,
            severity: self.severity,
            is_others: !self.is_users(),
            kind,
            share: Reverse(owners.get(&self.whose).copied().unwrap_or(0)),
        })
    }

    fn is_users(&self) -> bool {
        matches!(self.whose, Whose::User(_))
    }

    fn turn(&self) -> Turn {
        let is_first = !self.dead && self.written.is_none();
        match (self.step, self.standing) {
            (Step::Create, EventState::Now) if is_first => Turn::New,
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

    fn answered(&mut self, answer: WriteResult, now: Instant) -> Option<Outcome> {
        let tried = *self.tried.get_or_insert(now);
        let late = now.saturating_duration_since(tried) >= GIVE_UP;
        match (self.step, answer) {
            (Step::Create, WriteResult::Done(_)) => self.written(1, now, Outcome::Created),
            (Step::Learn, WriteResult::Done(count)) => self.goes_on(Step::Count(count.max(1)), now),
            (Step::Count(_), WriteResult::Done(count)) => {
                self.written(count, now, Outcome::Updated)
            }
            (_, WriteResult::Never(Outcome::Forbidden)) => {
                self.dead = true;
                self.put_off(now, Outcome::Forbidden)
            }
            (_, WriteResult::Never(outcome)) => self.given_up(outcome),
            (step, _) if late => {
                // What is counted is there.
                self.dead = !matches!(step, Step::Count(_));
                self.put_off(now, Outcome::Expired)
            }
            (_, WriteResult::Later) => {
                self.due = Some(now + AGAIN);
                None
            }
            (Step::Create, WriteResult::Exists) => self.goes_on(Step::Learn, now),
            (Step::Create, WriteResult::NotFound) => self.given_up(Outcome::NamespaceGone),
            // The API has forgotten it.
            (Step::Learn | Step::Count(_), WriteResult::NotFound) => {
                self.goes_on(Step::Create, now)
            }
            (Step::Learn | Step::Count(_), WriteResult::Exists) => self.given_up(Outcome::Refused),
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
        self.due = (self.standing == EventState::Now).then_some(now + STILL_SO);
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
