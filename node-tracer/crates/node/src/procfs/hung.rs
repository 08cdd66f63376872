//! Whose reads hang, and how many of whose may.
//!
//! An exec, a mapping or a mount that waits for a file server keeps whoever
//! reads its process's files, and any user can run a file server and have as
//! many such processes as it likes. So each reader that hangs is counted for
//! whose process it is about. While one does, that party's other processes are
//! read last, and beyond a bound not at all; everybody else's are read as ever.
//! Users' have besides one time for all that hangs of theirs, however many ways
//! there are to read it: once it is spent, none of theirs is read for a while.
//!
//! Whose a process is, is read from its `status` and `cgroup`, which take none
//! of the locks that such a process holds. Should a reader of these hang, for
//! the lock of a stuck cgroup operation, nobody is told from anybody.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use super::{PROCESS_PATIENCE, Procfs, read_file, status_field};
use crate::cgroup::{Maker, Owner};

/// Readers that may hang for all users together, for anybody else, for all but
/// root's together (of one of whom nothing hangs yet, one may in the first place;
/// what is left is for root's), and in one walk for those who cannot be told from
/// each other.
const OF_USERS: usize = 3;
const OF_OTHERS: usize = 4;
const OF_ALL_BUT_ROOT: usize = 5;
const FIRST_OF_ALL_BUT_ROOT: usize = OF_ALL_BUT_ROOT + 1;
pub(super) const UNTOLD: usize = 2;
/// How long it may take to tell whose processes are.
const TELLING: Duration = PROCESS_PATIENCE.checked_div(2).unwrap();
/// How long may be waited in vain for users' processes, all together, and in how
/// long. One that hangs in a walk over all takes two thirds of it.
const USERS_TIME: Duration = Duration::from_secs(3);
const USERS_WHILE: Duration = Duration::from_secs(60);

/// For whom a reader that hangs is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Party {
    Pod(String),
    /// Root's processes in one cgroup.
    Root(String),
    /// All users that are in no pod.
    Users,
}

impl Party {
    fn may_hang(&self) -> usize {
        match self {
            Self::Users => OF_USERS,
            Self::Pod(_) | Self::Root(_) => OF_OTHERS,
        }
    }

    fn is_root(&self) -> bool {
        matches!(self, Self::Root(_))
    }
}

/// A reader that may hang, until it has ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Reader(Arc<AtomicBool>);

/// Says that the reader has ended, on any way out.
pub(super) struct Ending(Reader);

impl Reader {
    pub(super) fn ending(&self) -> Ending {
        Ending(self.clone())
    }

    fn hangs(&self) -> bool {
        !self.0.load(SeqCst)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.0.store(true, SeqCst);
    }
}

/// One that hangs.
#[derive(Clone, Debug)]
struct One {
    tid: u32,
    /// What it reads of the task.
    what: String,
    party: Option<Party>,
    reader: Reader,
}

/// The readers that hang.
#[derive(Clone, Debug, Default)]
pub(super) struct Hung {
    all: Arc<Mutex<All>>,
    /// One for all that are [beside](Hung::beside) each other.
    spent: Arc<Mutex<Spent>>,
}

/// The time in which readers of users' processes were waited for in vain.
#[derive(Debug, Default)]
struct Spent {
    since: Option<Instant>,
    /// What was before is counted.
    until: Option<Instant>,
    time: Duration,
}

impl Spent {
    /// It was waited for so long until `now`. Who waits at the same time as
    /// another waits once.
    fn add(&mut self, waited: Duration, now: Instant) {
        let uncounted = |until| now.saturating_duration_since(until);
        let waited = self
            .until
            .map_or(waited, |until| waited.min(uncounted(until)));
        if self.time(now).is_zero() {
            (self.since, self.time) = (Some(now), Duration::ZERO);
        }
        self.time += waited;
        self.until = Some(now);
    }

    fn time(&self, now: Instant) -> Duration {
        let is_of_now = |since| now.saturating_duration_since(since) < USERS_WHILE;
        match self.since.is_some_and(is_of_now) {
            true => self.time,
            false => Duration::ZERO,
        }
    }
}

#[derive(Debug, Default)]
struct All {
    readers: Vec<One>,
    /// What reads whose processes are.
    telling: Option<Reader>,
}

/// When a task is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    First,
    /// After all others: one of the same party hangs.
    Last,
    Never,
}

impl Hung {
    fn lock(&self) -> MutexGuard<'_, All> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.readers.retain(|one| one.reader.hangs());
        all
    }

    /// For other readers, of whom no fewer may hang for these; users have one
    /// time for both.
    pub(super) fn beside(&self) -> Self {
        Self {
            all: Arc::default(),
            spent: Arc::clone(&self.spent),
        }
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no reader hangs, and none did for a user a while ago: whose
    /// processes are does not matter.
    pub(super) fn is_quiet(&self) -> bool {
        self.lock().readers.is_empty() && self.spent().time(Instant::now()).is_zero()
    }

    /// A reader hangs, and was waited for.
    pub(super) fn add(
        &self,
        tid: u32,
        what: &str,
        party: Option<Party>,
        (reader, waited): (Reader, Duration),
    ) {
        if party == Some(Party::Users) {
            self.spent().add(waited, Instant::now());
        }
        tracing::debug!("{what} of task {tid} does not answer, of {party:?}");
        self.lock().readers.push(One {
            tid,
            what: what.to_owned(),
            party,
            reader,
        });
    }

    /// When this is read of a task. `before` are those of whom something has hung
    /// in the same walk, and may answer by now.
    pub(super) fn turn(
        &self,
        tid: u32,
        what: &str,
        party: Option<&Party>,
        before: &[Party],
    ) -> Turn {
        let all = self.lock();
        if all
            .readers
            .iter()
            .any(|one| one.tid == tid && one.what == what)
        {
            return Turn::Never;
        }
        let Some(party) = party else {
            return match all.readers.is_empty() {
                true => Turn::First,
                false => Turn::Last,
            };
        };
        let spent = match party {
            Party::Users => self.spent().time(Instant::now()),
            Party::Pod(_) | Party::Root(_) => Duration::ZERO,
        };
        if spent >= USERS_TIME {
            return Turn::Never;
        }
        let hang = all.readers.iter();
        let its = hang.clone().filter(|one| one.party.as_ref() == Some(party));
        let its = its
            .count()
            .max(before.iter().filter(|it| *it == party).count());
        let of_others = |one: &&One| one.party.as_ref().is_some_and(|party| !party.is_root());
        let others = match party.is_root() {
            true => 0,
            false => hang.filter(of_others).count(),
        };
        match its {
            0 if others >= FIRST_OF_ALL_BUT_ROOT => Turn::Never,
            0 if spent.is_zero() => Turn::First,
            0 => Turn::Last,
            _ if its >= party.may_hang() || others >= OF_ALL_BUT_ROOT => Turn::Never,
            _ => Turn::Last,
        }
    }
}

impl Procfs {
    /// Whose these are, as far as that is told in time.
    pub(super) fn parties(&self, tids: &[u32]) -> Vec<Option<Party>> {
        let mut parties = vec![None; tids.len()];
        if self.hung.lock().telling.as_ref().is_some_and(Reader::hangs) {
            return parties;
        }
        let reader = Reader::default();
        let (ending, proc, asked) = (reader.ending(), self.proc.clone(), tids.to_vec());
        let read = move || {
            let _ending = ending;
            let end = Instant::now() + TELLING;
            let each = asked.into_iter().take_while(|_| Instant::now() < end);
            each.map(|tid| texts(&proc, tid)).collect::<Vec<_>>()
        };
        // What says whose they are is not to wait for what hangs of theirs.
        let Ok(texts) = self.node.read(PROCESS_PATIENCE, read) else {
            self.hung.lock().telling = Some(reader);
            return parties;
        };
        // To look for it may hang itself.
        let place = self.place.get().cloned();
        let mut folders = BTreeSet::new();
        for (cgroup, _) in &texts {
            if let Some(place) = &place {
                place.owner(cgroup, |folder| {
                    folders.insert(folder);
                    Maker::Unknown
                });
            }
        }
        let makers = self.makers(folders);
        for (party, (cgroup, uid)) in parties.iter_mut().zip(texts) {
            let maker = |folder| makers.get(&folder).copied().unwrap_or(Maker::Unknown);
            let owner = place.as_ref().map(|place| place.owner(&cgroup, maker));
            *party = Some(match (owner, uid.as_deref()) {
                (Some(Owner::Pod(pod)), _) if !pod.by_name_alone => Party::Pod(pod.pod_uid),
                (_, Some("0")) => Party::Root(cgroup),
                _ => Party::Users,
            });
        }
        parties
    }
}

/// A task's cgroups, and who has started its program.
fn texts(proc: &Path, tid: u32) -> (String, Option<String>) {
    let folder = proc.join(tid.to_string());
    let text = |file| read_file(&folder.join(file)).ok().flatten();
    let cgroup = text("cgroup").unwrap_or_default();
    let uid = text("status").and_then(|status| status_field(&status, "Uid:"));
    let uid = uid.and_then(|uid| uid.split_whitespace().next().map(str::to_owned));
    (String::from_utf8_lossy(&cgroup).into_owned(), uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pod(name: &str) -> Party {
        Party::Pod(name.to_owned())
    }

    fn root() -> Party {
        Party::Root(String::from("0::/system.slice/cron.service"))
    }

    /// One more of this party hangs; for as long as the answer is kept.
    fn hang(hung: &Hung, tid: u32, party: Party, waited: Duration) -> Ending {
        let reader = Reader::default();
        let ending = reader.ending();
        hung.add(tid, "stat", Some(party), (reader, waited));
        ending
    }

    fn turn(hung: &Hung, party: &Party) -> Turn {
        hung.turn(1_000, "stat", Some(party), &[])
    }

    #[test]
    fn users_have_one_time_for_all_that_hangs_of_theirs_wherever_it_is_read() {
        let hung = Hung::default();
        let apart = hung.beside();
        drop(hang(&hung, 1, Party::Users, SECOND));
        assert_eq!(turn(&hung, &Party::Users), Turn::Last);
        assert_eq!(turn(&apart, &Party::Users), Turn::Last);
        hung.spent().time = USERS_TIME;
        for hung in [&hung, &apart] {
            assert!(!hung.is_quiet(), "although nothing hangs any more");
            assert_eq!(turn(hung, &Party::Users), Turn::Never);
            assert_eq!(turn(hung, &pod("a")), Turn::First);
            assert_eq!(turn(hung, &root()), Turn::First);
        }
    }

    #[test]
    fn what_is_waited_for_at_the_same_time_is_counted_once_and_for_a_while() {
        let (mut spent, start) = (Spent::default(), Instant::now());
        spent.add(2 * SECOND, start);
        spent.add(2 * SECOND, start);
        assert_eq!(spent.time(start), 2 * SECOND);
        spent.add(SECOND, start + 5 * SECOND);
        assert_eq!(spent.time(start + 5 * SECOND), 3 * SECOND);
        assert_eq!(spent.time(start + USERS_WHILE), Duration::ZERO);
        spent.add(SECOND, start + USERS_WHILE);
        assert_eq!(spent.time(start + USERS_WHILE), SECOND);
    }

    #[test]
    fn however_many_pods_something_hangs_of_some_readers_are_left_for_root() {
        let hung = Hung::default();
        let mut hangs = Vec::new();
        for tid in 0..6 {
            let pod = pod(&tid.to_string());
            assert_eq!(turn(&hung, &pod), Turn::First);
            hangs.push(hang(&hung, tid, pod, SECOND));
        }
        assert_eq!(turn(&hung, &pod("new")), Turn::Never);
        assert_eq!(turn(&hung, &Party::Users), Turn::Never);
        assert_eq!(turn(&hung, &root()), Turn::First);
    }
}
