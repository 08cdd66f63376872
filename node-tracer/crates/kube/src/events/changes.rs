//! What was told and is not taken in yet. Who tells never waits, and who takes
//! in may be long at something else, such as a request that is not answered.
//!
//! There is room by findings and not by changes: of each stage of a finding the
//! latest is kept, with the time of the first. A finding that was let in is
//! followed to its end; there is always room for that.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::object::{EventChange, Whose};
use event::finding::State;

/// Findings that are followed at the same time: more than there is room for
/// Events of them.
pub(super) const MOST: usize = 2_048;
/// Of users' so many.
const MOST_OF_USERS: usize = MOST / 2;

/// The end that tells; the other one learns when it is dropped.
pub(super) struct Sender(Arc<Shared>);

/// The end that takes in.
pub(super) struct Listener(Arc<Shared>);

#[derive(Default)]
struct Shared {
    changes: Mutex<Changes>,
    news: Notify,
}

/// A finding that is followed.
struct Followed {
    untold: Vec<EventChange>,
    is_users: bool,
}

#[derive(Default)]
struct Changes {
    /// What is to be taken in of each finding that is followed, oldest first.
    findings: BTreeMap<String, Followed>,
    /// How many of them are users'.
    users: usize,
    /// Those of them of which there is something.
    order: Vec<String>,
    left_out: bool,
    closed: bool,
}

/// What was told since it was taken in last.
#[derive(Default)]
pub(super) struct Taken {
    /// Oldest first, for each finding.
    pub(super) changes: Vec<EventChange>,
    /// There was no room for some.
    pub(super) left_out: bool,
    /// Nobody tells anything any more.
    pub(super) closed: bool,
}

pub(super) fn pair() -> (Sender, Listener) {
    let shared = Arc::new(Shared::default());
    (Sender(Arc::clone(&shared)), Listener(shared))
}

impl Sender {
    /// Whether this finding was let in and is not over.
    pub(super) fn follows(&self, finding: &str) -> bool {
        self.0.lock().findings.contains_key(finding)
    }

    /// Tells of a change. Returns whether there was room; of a finding that is
    /// not followed and nothing to tell of there is nothing to leave out.
    pub(super) fn tell(&self, told: EventChange) -> bool {
        let mut changes = self.0.lock();
        let is_users = matches!(told.whose(), Whose::User(_));
        let room = changes.findings.len() < MOST && (!is_users || changes.users < MOST_OF_USERS);
        let Changes {
            findings,
            users,
            order,
            left_out,
            closed: _,
        } = &mut *changes;
        let untold = match findings.entry(told.id.clone()) {
            Entry::Occupied(followed) => &mut followed.into_mut().untold,
            Entry::Vacant(_) if told.mild || told.state == State::Resolved => return true,
            Entry::Vacant(_) if !room => {
                *left_out = true;
                self.0.news.notify_one();
                return false;
            }
            Entry::Vacant(new) => {
                *users += usize::from(is_users);
                let followed = Followed {
                    untold: Vec::new(),
                    is_users,
                };
                &mut new.insert(followed).untold
            }
        };
        if untold.is_empty() {
            order.push(told.id.clone());
        }
        match untold.last_mut() {
            Some(last) if last.stage() == told.stage() => last.with_news(told),
            // Not for ever more of one that goes to and fro.
            _ => {
                untold.retain(|earlier| earlier.stage() != told.stage());
                untold.push(told);
            }
        }
        self.0.news.notify_one();
        true
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.news.notify_one();
    }
}

impl Listener {
    pub(super) fn take(&self) -> Taken {
        let mut shared = self.0.lock();
        let shared = &mut *shared;
        let mut taken = Taken {
            changes: Vec::new(),
            left_out: std::mem::take(&mut shared.left_out),
            closed: shared.closed,
        };
        for finding in std::mem::take(&mut shared.order) {
            let Entry::Occupied(mut untold) = shared.findings.entry(finding) else {
                continue;
            };
            taken.changes.append(&mut untold.get_mut().untold);
            let last = taken.changes.last();
            if last.is_some_and(|last| last.state == State::Resolved) {
                shared.users -= usize::from(untold.remove().is_users);
            }
        }
        taken
    }

    /// Until there is something, or was since the last time.
    pub(super) async fn wait(&self) {
        self.0.news.notified().await;
    }
}

impl Shared {
    /// It is whole at any time.
    fn lock(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::tests::ghost;
    use event::finding::{Finding, Phase};

    fn numbered(number: usize, phase: Phase) -> Finding {
        let mut finding = ghost();
        finding.id = format!("{number:016x}");
        finding.detail.phase = Some(phase);
        finding
    }

    fn told(number: usize, phase: Phase, state: State) -> EventChange {
        EventChange::of(sys::clock::now(), &numbered(number, phase), state)
    }

    fn stages(listener: &Listener) -> Vec<&'static str> {
        let taken = listener.take().changes;
        taken.iter().map(EventChange::stage).collect()
    }

    #[test]
    fn each_stage_is_told_once_in_its_order_and_the_end_lets_the_finding_go() {
        let (sender, listener) = pair();
        for _ in 0..100 {
            assert!(sender.tell(told(1, Phase::Suspected, State::Open)));
        }
        assert!(sender.tell(told(1, Phase::Armed, State::Updated)));
        assert_eq!(stages(&listener), ["suspected", "armed"]);
        assert!(stages(&listener).is_empty());
        for phase in [Phase::Armed, Phase::Conflict, Phase::Armed] {
            assert!(sender.tell(told(1, phase, State::Updated)));
        }
        assert!(sender.follows("0000000000000001"));
        assert!(sender.tell(told(1, Phase::Armed, State::Resolved)));
        assert_eq!(stages(&listener), ["conflict", "armed", "resolved"]);
        assert!(!sender.follows("0000000000000001"));
    }

    #[test]
    fn the_latest_is_told_with_the_time_of_the_first() {
        let (sender, listener) = pair();
        let first = sys::clock::now();
        let mut finding = numbered(1, Phase::Armed);
        finding.pod = None;
        sender.tell(EventChange::of(first, &finding, State::Open));
        sender.tell(told(1, Phase::Armed, State::Updated));
        let taken = listener.take().changes;
        let expected = EventChange::of(first, &numbered(1, Phase::Armed), State::Updated);
        assert_eq!(format!("{taken:?}"), format!("{:?}", [expected]));
    }

    #[test]
    fn what_is_full_lets_nothing_new_in_but_each_end() {
        let (sender, listener) = pair();
        let open = |number| sender.tell(told(number, Phase::Armed, State::Open));
        let room = (0..2 * MOST).filter(|number| open(*number)).count();
        assert_eq!(room, MOST);
        let taken = listener.take();
        assert!(taken.left_out && taken.changes.len() == MOST);
        assert!(!listener.take().left_out);
        // What is taken in is still followed.
        assert!(!open(MOST));
        for number in 0..2 * MOST {
            assert!(sender.tell(told(number, Phase::Armed, State::Resolved)));
        }
        let over = listener.take().changes;
        assert!(over.iter().all(|told| told.state == State::Resolved));
        assert_eq!(over.len(), MOST);
        assert!(open(MOST));
    }

    #[test]
    fn users_leave_room_for_others() {
        let (sender, listener) = pair();
        let of_user = |number, state| {
            let mut finding = numbered(number, Phase::Armed);
            (finding.pod, finding.detail.uid) = (None, Some(1000));
            sender.tell(EventChange::of(sys::clock::now(), &finding, state))
        };
        let open = |number| of_user(number, State::Open);
        let room = (0..2 * MOST).filter(|number| open(*number)).count();
        assert_eq!(room, MOST_OF_USERS);
        assert!(sender.tell(told(3 * MOST, Phase::Armed, State::Open)));
        of_user(0, State::Resolved);
        listener.take();
        assert!(open(MOST) && !open(MOST + 1));
    }

    #[test]
    fn of_what_was_never_told_neither_mildness_nor_end_is() {
        let (sender, listener) = pair();
        assert!(sender.tell(told(1, Phase::Armed, State::Resolved)));
        assert!(sender.tell(told(2, Phase::Armed, State::Updated).into_mild()));
        assert!(listener.take().changes.is_empty());
        drop(sender);
        assert!(listener.take().closed);
    }
}
