//! The time that one search through the descriptors, or the mounts, of all
//! processes may take, and who may take how much of it.
//!
//! What root of the host has open comes first and may take all of it. Of the
//! others each may take a quarter, and all users together a half: who has
//! millions of descriptors, or thousands of mount namespaces, hides their own.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{
    PROCESS_PATIENCE, Procfs,
    each::Answers,
    whose::{Whose, in_turn},
};

/// The most that one process may take that is not root's on the host: so much
/// less than the patience with one that nobody takes it for one that hangs.
const MAX_ONE: Duration = PROCESS_PATIENCE.checked_div(4).unwrap();

/// The time of one search.
pub(super) struct Shares {
    limit: Duration,
    spent: Mutex<BTreeMap<Party, Duration>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    One(Whose),
    AllUsers,
}

impl Shares {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            spent: Mutex::default(),
        }
    }

    /// By whom what is done for an owner is counted, and what they may take.
    fn parties(&self, whose: Whose) -> Vec<(Party, Duration)> {
        let one = (Party::One(whose), self.limit / 4);
        match whose {
            Whose::Host => Vec::new(),
            Whose::Container(_) => vec![one],
            Whose::User(_) => vec![one, (Party::AllUsers, self.limit / 2)],
        }
    }

    /// How long this owner's next process may take.
    pub(super) fn left(&self, whose: Whose) -> Duration {
        let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.parties(whose).into_iter().map(|(party, may)| {
            let spent = spent.get(&party).copied().unwrap_or_default();
            may.saturating_sub(spent).min(MAX_ONE)
        });
        left.min().unwrap_or(self.limit)
    }

    pub(super) fn spend(&self, whose: Whose, time: Duration) {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        for (party, _) in self.parties(whose) {
            *spent.entry(party).or_default() += time;
        }
    }
}

impl Procfs {
    /// Searches each of these processes, each until the time given to it is over.
    /// What was found comes with its process, in the order of the search.
    pub(super) fn share<T: Send + 'static>(
        &self,
        pids: Vec<u32>,
        limit: Duration,
        search: impl Fn(&Path, u32, Instant) -> T + Send + Sync + 'static,
    ) -> (Vec<u32>, Answers<T>) {
        let whose = self.whose(pids.clone());
        let mut all = in_turn(whose.into_iter().zip(pids).collect());
        all.sort_by_key(|(whose, _)| *whose != Whose::Host);
        let pids: Vec<u32> = all.iter().map(|(_, pid)| *pid).collect();
        let owners: BTreeMap<u32, Whose> =
            all.into_iter().map(|(whose, pid)| (pid, whose)).collect();
        let shares = Shares::new(limit);
        let end = Instant::now() + limit;
        let answers = self.each(
            pids.clone(),
            PROCESS_PATIENCE,
            Some(end),
            move |proc, pid| {
                let whose = owners.get(&pid).copied().unwrap_or(Whose::User(u32::MAX));
                let start = Instant::now();
                let found = search(proc, pid, end.min(start + shares.left(whose)));
                shares.spend(whose, start.elapsed());
                found
            },
        );
        (pids, answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::{Bounded, whose::tests::crowded};

    #[test]
    #[ignore = "needs root"]
    fn who_takes_long_to_search_takes_no_time_from_others() {
        let root = tempfile::tempdir().unwrap();
        crowded(root.path());
        let procfs = Procfs::new(root.path(), Bounded::default());
        let limit = Duration::from_millis(400);
        // Everything of user 1000 takes as long as it may.
        let search = |_: &Path, pid: u32, end: Instant| {
            if (2..100).contains(&pid) {
                std::thread::sleep(end.saturating_duration_since(Instant::now()));
            }
            end > Instant::now()
        };
        let (pids, answers) = procfs.share((1..103).collect(), limit, search);
        let done: Vec<u32> = pids
            .iter()
            .zip(&answers.each)
            .filter_map(|(pid, done)| (*done == Some(true)).then_some(*pid))
            .collect();
        assert_eq!(done, [1, 102, 100, 101]);
        assert!(
            answers.each.iter().all(Option::is_some),
            "all had their turn"
        );
    }
}
