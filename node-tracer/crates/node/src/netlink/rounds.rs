//! Visits of many namespaces: a few threads, each of which goes from one
//! namespace to the next.
//!
//! A thread goes on its round for half of the time that one visit may take,
//! then comes home and ends; so one that has not come home by the end of that
//! time has been stuck in one visit for half of it at least. It is abandoned
//! as [`Bounded`] says, that visit is given up, and a new thread does the rest,
//! unless so many hang that it must be that lock.
//! More than a few threads bring nothing: most of a visit is under a lock that
//! the kernel has but one of.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use super::{Home, NetlinkError, Room, Visit, Way};
use crate::procfs::{Bounded, NoAnswer};

/// Threads that visit at the same time.
const THREADS: usize = 2;

/// Visits that may hang at the same time before no other is begun. One that
/// ends after all counts no more: it was slow, not stuck.
const MAX_HUNG: usize = 2;

/// A namespace to visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub inode: u32,
    /// Ways that should lead there, the best first.
    pub ways: Vec<Way>,
    /// It is the host's: all of it is kept.
    pub is_hosts: bool,
}

/// A visit's outcome; `None` if no way leads to the namespace any more.
type Outcome<T = Visit> = Result<Option<T>, NetlinkError>;

/// How a namespace is visited, and what is kept of that.
struct Visitor<T> {
    visit: fn(&Home, &Target) -> Outcome<T>,
    fit: fn(T, &Target, &Room) -> T,
}

/// What the threads share; one that is abandoned keeps it.
struct Rounds<T> {
    targets: Vec<Target>,
    visitor: Visitor<T>,
    room: Room,
    /// The first target that nobody has begun with.
    next: AtomicUsize,
    outcomes: Mutex<Vec<Option<Outcome<T>>>>,
}

/// Visits all of these, each for at most `patience`, and together for about
/// `limit`. The outcomes are in the targets' order. `bounded` must be the
/// visits' own: all of them wait for one lock of the kernel's, and what waits
/// for others must not be refused for it.
pub fn visit_all(
    targets: Vec<Target>,
    bounded: &Bounded,
    patience: Duration,
    limit: Duration,
) -> Vec<Outcome> {
    let visitor = Visitor {
        visit: Home::visit_target,
        fit: Visit::fit,
    };
    all(targets, visitor, bounded, patience, limit)
}

fn all<T: Send + 'static>(
    targets: Vec<Target>,
    visitor: Visitor<T>,
    bounded: &Bounded,
    patience: Duration,
    limit: Duration,
) -> Vec<Outcome<T>> {
    let rounds = Arc::new(Rounds {
        outcomes: Mutex::new(targets.iter().map(|_| None).collect()),
        next: AtomicUsize::new(0),
        targets,
        visitor,
        room: Room::new(),
    });
    let end = Instant::now() + limit;
    thread::scope(|scope| {
        for _ in 1..THREADS {
            let rounds = &rounds;
            // Without it, this thread does all.
            let _ = thread::Builder::new()
                .name(String::from("netns-visits"))
                .spawn_scoped(scope, || rounds.go(bounded, patience, end));
        }
        rounds.go(bounded, patience, end);
    });
    rounds.outcomes()
}

impl<T: Send + 'static> Rounds<T> {
    /// Sends threads on rounds until nothing is left to begin with.
    fn go(self: &Arc<Self>, bounded: &Bounded, patience: Duration, end: Instant) {
        while self.next.load(SeqCst) < self.targets.len()
            && Instant::now() < end
            && bounded.abandoned() < MAX_HUNG
        {
            let rounds = Arc::clone(self);
            let at = Arc::new(AtomicUsize::new(usize::MAX));
            let under_way = Arc::clone(&at);
            let answer = bounded.run_apart(patience, move || rounds.round(&at, patience / 2));
            let Err(source) = answer else {
                continue;
            };
            let stuck = under_way.load(SeqCst);
            match (self.targets.get(stuck), &source) {
                (Some(target), _) => {
                    let path = target.path();
                    self.keep(stuck, Err(NetlinkError::NoAnswer { path, source }));
                }
                // It has not begun with any: there is no thread to be had.
                (None, NoAnswer::TimedOut { .. }) => {}
                (None, _) => break,
            }
        }
    }

    fn round(&self, at: &AtomicUsize, time: Duration) {
        let start = Instant::now();
        // Home again when this is dropped.
        let home = match Home::open() {
            Ok(home) => home,
            Err(error) => return self.keep(self.next.fetch_add(1, SeqCst), Err(error)),
        };
        while start.elapsed() < time {
            let index = self.next.fetch_add(1, SeqCst);
            let Some(target) = self.targets.get(index) else {
                return;
            };
            at.store(index, SeqCst);
            let outcome = (self.visitor.visit)(&home, target);
            let fitting = |visit| (self.visitor.fit)(visit, target, &self.room);
            self.keep(index, outcome.map(|visit| visit.map(fitting)));
            at.store(usize::MAX, SeqCst);
        }
    }

    /// Keeps an outcome, unless there is a better one.
    fn keep(&self, index: usize, outcome: Outcome<T>) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = outcomes.get_mut(index)
            && !matches!(place, Some(Ok(_)))
        {
            *place = Some(outcome);
        }
    }

    fn outcomes(&self) -> Vec<Outcome<T>> {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let outcomes = std::mem::take(&mut *outcomes).into_iter();
        let each = outcomes.zip(&self.targets).map(|(outcome, target)| {
            outcome.unwrap_or_else(|| {
                Err(NetlinkError::NotTried {
                    path: target.path(),
                })
            })
        });
        each.collect()
    }
}

impl Target {
    fn path(&self) -> std::path::PathBuf {
        self.ways.first().map(Way::path).unwrap_or_default()
    }
}

impl Home {
    /// Visits by the first way that leads to the target.
    fn visit_target(&self, target: &Target) -> Outcome {
        let mut failed = None;
        for way in &target.ways {
            match self.visit(way) {
                Ok(visit) if visit.netns.inode == target.inode => return Ok(Some(visit)),
                // The way leads elsewhere by now.
                Ok(_) => {}
                Err(error) if error.is_gone() => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(None), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::atomic::AtomicBool};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// What has been visited is kept whole.
    fn visited<T: Send + 'static>(
        targets: Vec<Target>,
        visit: fn(&Home, &Target) -> Outcome<T>,
        bounded: &Bounded,
        patience: Duration,
        limit: Duration,
    ) -> Vec<Outcome<T>> {
        let fit = |visit, _: &Target, _: &Room| visit;
        all(targets, Visitor { visit, fit }, bounded, patience, limit)
    }

    fn targets(count: u32) -> Vec<Target> {
        let target = |inode| Target {
            inode,
            ways: vec![Way::File(PathBuf::from(format!("/{inode}")))],
            is_hosts: false,
        };
        (0..count).map(target).collect()
    }

    #[test]
    fn what_many_namespaces_have_is_kept_up_to_a_bound_and_a_few_of_each_in_any_case() {
        let room = Room::new();
        let kept = |count: usize, few: usize| {
            let mut list: Vec<usize> = (0..count).collect();
            let cut = room.fit(&mut list, few);
            (list.len(), cut)
        };
        assert_eq!(kept(60_000, 64), (60_000, false));
        let (rest, cut) = kept(60_000, 64);
        assert!(cut && rest < 6_000);
        assert_eq!(kept(100, 64), (64, true));
        assert_eq!(kept(100, 8), (8, true));
        assert_eq!(kept(8, 8), (8, false));
    }

    #[test]
    fn each_is_visited_once_and_told_in_order() {
        let visit = |_: &Home, target: &Target| Ok(Some(target.inode));
        let bounded = Bounded::default();
        let outcomes = visited(targets(500), visit, &bounded, LONG, LONG);
        let found: Vec<u32> = outcomes.into_iter().map(|o| o.unwrap().unwrap()).collect();
        assert_eq!(found, (0..500).collect::<Vec<u32>>());
        assert_eq!(bounded.abandoned(), 0);
    }

    #[test]
    fn a_visit_that_hangs_is_given_up_and_the_rest_is_done() {
        static RELEASED: AtomicBool = AtomicBool::new(false);
        let visit = |_: &Home, target: &Target| {
            while target.inode == 7 && !RELEASED.load(SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            Ok(Some(target.inode))
        };
        let bounded = Bounded::default();
        let patience = Duration::from_millis(200);
        let outcomes = visited(targets(100), visit, &bounded, patience, LONG);
        assert_eq!(bounded.abandoned(), 1);
        for (inode, outcome) in outcomes.iter().enumerate() {
            match outcome {
                Err(NetlinkError::NoAnswer { path, .. }) if inode == 7 => {
                    assert_eq!(path, &PathBuf::from("/7"));
                }
                outcome => assert!(matches!(outcome, Ok(Some(_))), "{inode}: {outcome:?}"),
            }
        }
        RELEASED.store(true, SeqCst);
    }

    #[test]
    fn when_all_hang_few_are_left_behind_and_no_more_is_waited() {
        static RELEASED: AtomicBool = AtomicBool::new(false);
        let visit = |_: &Home, target: &Target| {
            while target.inode >= 10 && !RELEASED.load(SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            Ok(Some(target.inode))
        };
        let bounded = Bounded::default();
        let patience = Duration::from_millis(200);
        let outcomes = visited(targets(100), visit, &bounded, patience, LONG);
        // All threads but one may be in another visit meanwhile.
        let few = MAX_HUNG..MAX_HUNG + THREADS;
        assert!(few.contains(&bounded.abandoned()));
        let hung = |outcome: &&Outcome<u32>| matches!(outcome, Err(NetlinkError::NoAnswer { .. }));
        assert!(few.contains(&outcomes.iter().filter(hung).count()));
        let read = outcomes.iter().filter(|outcome| outcome.is_ok());
        assert_eq!(read.count(), 10);
        RELEASED.store(true, SeqCst);
    }

    #[test]
    fn what_there_was_no_time_for_is_said() {
        let visit = |_: &Home, _: &Target| -> Outcome<()> {
            thread::sleep(Duration::from_millis(20));
            Ok(None)
        };
        let limit = Duration::from_millis(50);
        let outcomes = visited(targets(100), visit, &Bounded::default(), limit, limit);
        let not_tried =
            |outcome: &&Outcome<()>| matches!(outcome, Err(NetlinkError::NotTried { .. }));
        assert!(outcomes.iter().filter(not_tried).count() > 50);
        assert!(outcomes.iter().any(|outcome| matches!(outcome, Ok(None))));
    }
}
