//! Whose reads hang, and how many of whose may.
//!
//! An exec, a mapping or a mount that waits for a file server keeps whoever
//! reads its process's files, and any user can run a file server and have as
//! many such processes as it likes. So each reader that hangs is counted for
//! whose process it is about. While one does, that party's other processes are
//! read last, and beyond a bound not at all; everybody else's are read as ever.
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
/// root's together (what is left is for root's), and in one walk for those who
/// cannot be told from each other.
const OF_USERS: usize = 3;
const OF_OTHERS: usize = 4;
const OF_ALL_BUT_ROOT: usize = 5;
pub(super) const UNTOLD: usize = 2;
/// How long it may take to tell whose processes are.
const TELLING: Duration = PROCESS_PATIENCE.checked_div(2).unwrap();

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
pub(super) struct Hung(Arc<Mutex<All>>);

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
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.readers.retain(|one| one.reader.hangs());
        all
    }

    /// Whether no reader hangs.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().readers.is_empty()
    }

    /// A reader hangs.
    pub(super) fn add(&self, tid: u32, what: &str, party: Option<Party>, reader: Reader) {
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
        let hang = all.readers.iter();
        let its = hang.clone().filter(|one| one.party.as_ref() == Some(party));
        let its = its
            .count()
            .max(before.iter().filter(|it| *it == party).count());
        let of_others = |one: &&One| one.party.as_ref().is_some_and(|party| !party.is_root());
        match its {
            0 => Turn::First,
            _ if its >= party.may_hang() => Turn::Never,
            _ if !party.is_root() && hang.filter(of_others).count() >= OF_ALL_BUT_ROOT => {
                Turn::Never
            }
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
        let Ok(texts) = self.bounded.read(PROCESS_PATIENCE, read) else {
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
