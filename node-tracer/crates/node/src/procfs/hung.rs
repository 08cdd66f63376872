//! Whose reads hang, and how many of whose may.
//!
//! An exec, a mapping or a mount that waits for a file server keeps whoever
//! reads its process's files, and any user can run a file server and have as
//! many such processes as it likes. So each reader that hangs is counted for
//! whose process it is about. While one does, that party's other processes are
//! read last, and beyond a bound not at all; everybody else's are read as ever.
//!
//! Whose a process is, is read from its `status` and `cgroup`, which take none
//! of the locks that such a process holds.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use super::{Procfs, read_file, status_field};
use crate::cgroup::{Maker, Owner, Place};

/// Readers that may hang for all users together, and for anybody else.
const OF_USERS: usize = 3;
const OF_OTHERS: usize = 4;

/// For whom a reader that hangs is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Party {
    Pod(String),
    /// Root's processes in one cgroup.
    Root(String),
    /// All users that are in no pod, and what cannot be told.
    Users,
}

impl Party {
    fn may_hang(&self) -> usize {
        match self {
            Self::Users => OF_USERS,
            Self::Pod(_) | Self::Root(_) => OF_OTHERS,
        }
    }

    fn of(proc: &Path, tid: u32, place: Option<&Place>) -> Self {
        let folder = proc.join(tid.to_string());
        let text = |file| read_file(&folder.join(file)).ok().flatten();
        let cgroup = text("cgroup").unwrap_or_default();
        let cgroup = String::from_utf8_lossy(&cgroup);
        // Nobody but root can make a folder where the kubelet makes a pod's.
        let owner = place.map(|place| place.owner(&cgroup, |_| Maker::Unknown));
        if let Some(Owner::Pod(pod)) = owner {
            return Self::Pod(pod.pod_uid);
        }
        let uid = text("status").and_then(|status| status_field(&status, "Uid:"));
        match uid.as_deref().and_then(|uid| uid.split_whitespace().next()) {
            Some("0") => Self::Root(cgroup.into_owned()),
            _ => Self::Users,
        }
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
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.0.store(true, SeqCst);
    }
}

/// The readers that hang, with the task that each reads of.
#[derive(Clone, Debug, Default)]
pub(super) struct Hung(Arc<Mutex<Vec<(u32, Party, Reader)>>>);

/// When a task is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    First,
    /// After all others, and with less patience: one of the same party hangs.
    Last,
    Never,
}

impl Procfs {
    /// A reader of this task hangs.
    pub(super) fn hangs(&self, tid: u32, reader: Reader) {
        let party = self.parties(vec![tid]).pop().unwrap_or(Party::Users);
        tracing::debug!("a read of task {tid} hangs, of {party:?}");
        self.hung.lock().push((tid, party, reader));
    }

    /// When each of these is read.
    pub(super) fn turns(&self, tids: &[u32]) -> Vec<Turn> {
        let hung = {
            let mut hung = self.hung.lock();
            hung.retain(|(_, _, reader)| !reader.0.load(SeqCst));
            hung.clone()
        };
        if hung.is_empty() {
            return vec![Turn::First; tids.len()];
        }
        let turn = |(tid, party): (&u32, Party)| {
            let hang = hung.iter().filter(|(_, other, _)| *other == party).count();
            match hang {
                _ if hung.iter().any(|(other, ..)| other == tid) => Turn::Never,
                0 => Turn::First,
                hang if hang < party.may_hang() => Turn::Last,
                _ => Turn::Never,
            }
        };
        tids.iter()
            .zip(self.parties(tids.to_vec()))
            .map(turn)
            .collect()
    }

    /// In a thread of its own, too: of what does not answer here either nothing
    /// is told.
    fn parties(&self, tids: Vec<u32>) -> Vec<Party> {
        let count = tids.len();
        let proc = self.proc.clone();
        // To look for it may hang itself.
        let place = self.place.get().cloned();
        let read = move || {
            let each = tids
                .into_iter()
                .map(|tid| Party::of(&proc, tid, place.as_deref()));
            each.collect()
        };
        let read = self.bounded.read(super::PROCESS_PATIENCE, read);
        read.unwrap_or_else(|_| vec![Party::Users; count])
    }
}

impl Hung {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u32, Party, Reader)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
