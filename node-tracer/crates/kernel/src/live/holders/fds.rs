//! The search for descriptors that hold namespaces, in a thread of its own: of
//! which namespaces, when, and what is known from it.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::mpsc::{self, TryRecvError},
    thread,
};

use super::{super::Live, PAUSE};
use event::{FdHolder, Netns};
use node::procfs::{FdHolders, Procfs, ProcfsError};
use sys::clock::monotonic_now as now;

/// Pause between walks over all descriptors, ns.
const FDS_PAUSE: u64 = 5_000_000_000;
/// The same descriptors are looked for again so that the walks take at most
/// one part in so many of the time.
const FDS_SHARE: u64 = 100;

/// The search for descriptors, one at a time.
#[derive(Debug, Default)]
pub(super) struct FdSearch {
    /// Namespaces that neither a task nor a mount was found of at the last
    /// look; whether also at the one before.
    unheld: HashMap<Netns, bool>,
    /// What was found of these; `None` if they were searched for in vain and
    /// not all could be read. None of them is missing in `unheld`.
    pub(super) found: HashMap<Netns, Option<Vec<FdHolder>>>,
    running: Option<Running>,
    /// When the last one returned, and how long it took.
    last: Option<(u64, u64)>,
}

/// A search under way.
#[derive(Debug)]
struct Running {
    since: u64,
    netns: Vec<Netns>,
    answer: mpsc::Receiver<Result<FdHolders, ProcfsError>>,
}

/// Whether to wait for a search to return; that takes a bounded time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Yes,
    No,
}

impl Live {
    /// Looks for descriptors of these namespaces, when the time has come; at
    /// the first look at once.
    pub(super) fn look_at_fds(&mut self, unheld: HashSet<Netns>, first: bool) {
        let search = &mut self.holders.fds;
        search.finish(Wait::No);
        search.note(unheld, first);
        if search.is_due(now()) {
            search.start(&self.procfs);
            if first {
                search.finish(Wait::Yes);
            }
        }
        if let Some(next) = search.next(now()) {
            self.due.holders_at(next);
        }
    }
}

impl FdSearch {
    /// The descriptors to be told of a namespace; `None` while they are not
    /// known and matter.
    pub(super) fn of(&self, netns: Netns) -> Option<&[FdHolder]> {
        match self.unheld.contains_key(&netns) {
            true => self.found.get(&netns)?.as_deref(),
            false => Some(&[]),
        }
    }

    /// Takes in which namespaces a look found nothing of. Those that `surely`
    /// are so need no second look: nothing has just happened to them.
    fn note(&mut self, unheld: HashSet<Netns>, surely: bool) {
        let before = std::mem::take(&mut self.unheld);
        let unheld = unheld.into_iter();
        self.unheld = unheld
            .map(|netns| (netns, surely || before.contains_key(&netns)))
            .collect();
        self.found
            .retain(|netns, _| self.unheld.contains_key(netns));
    }

    /// Namespaces to search for that have not been searched for yet.
    fn is_wanted(&self) -> bool {
        let mut sure = self.unheld.iter().filter(|(_, sure)| **sure);
        sure.any(|(netns, _)| !self.found.contains_key(netns))
    }

    /// When a search may begin that is not the first for any of its
    /// namespaces, or that is.
    fn not_before(&self, wanted: bool) -> u64 {
        match self.last {
            None => 0,
            Some((end, _)) if wanted => end + FDS_PAUSE,
            Some((end, took)) => end + FDS_PAUSE.max(took * FDS_SHARE),
        }
    }

    fn is_due(&self, time: u64) -> bool {
        let any = self.unheld.values().any(|sure| *sure);
        self.running.is_none() && any && time >= self.not_before(self.is_wanted())
    }

    /// When to look again for the search's sake.
    fn next(&self, time: u64) -> Option<u64> {
        let soon = time + PAUSE;
        let unsure = self.unheld.values().any(|sure| !sure);
        if self.running.is_some() || unsure {
            return Some(soon);
        }
        self.is_wanted().then(|| soon.max(self.not_before(true)))
    }

    fn start(&mut self, procfs: &Procfs) {
        let sure = self.unheld.iter().filter(|(_, sure)| **sure);
        let netns: Vec<Netns> = sure.map(|(netns, _)| *netns).collect();
        let inodes: BTreeSet<u32> = netns.iter().map(|netns| netns.inode).collect();
        let procfs = procfs.clone();
        let (sender, answer) = mpsc::sync_channel(1);
        let search = move || {
            // Nobody listens any more if the tracer ends.
            let _ = sender.send(procfs.fd_holders(&inodes));
        };
        // Without a thread the sender is dropped: the search has failed.
        if let Err(error) = thread::Builder::new()
            .name(String::from("fd-search"))
            .spawn(search)
        {
            tracing::debug!("{}", event::fault::chain(&error));
        }
        self.running = Some(Running {
            since: now(),
            netns,
            answer,
        });
    }

    /// Takes in the answer, if it is there. Of what a search did not find
    /// although it may be there, what was found before is left.
    fn finish(&mut self, wait: Wait) {
        let Some(running) = &mut self.running else {
            return;
        };
        let answer = match wait {
            Wait::Yes => running.answer.recv().map_err(TryRecvError::from),
            Wait::No => running.answer.try_recv(),
        };
        let FdHolders {
            mut holders,
            complete,
        } = match answer {
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => FdHolders::default(),
            Ok(Err(error)) => {
                tracing::debug!("{}", event::fault::chain(&error));
                FdHolders::default()
            }
            Ok(Ok(answer)) => {
                if !answer.complete {
                    tracing::debug!("not all descriptors could be looked at");
                }
                answer
            }
        };
        for netns in std::mem::take(&mut running.netns) {
            if self.unheld.contains_key(&netns) {
                let found = self.found.entry(netns).or_default();
                let holders = holders.remove(&netns.inode);
                if complete || holders.is_some() {
                    *found = Some(holders.unwrap_or_default());
                }
            }
        }
        let end = now();
        self.last = Some((end, end.saturating_sub(running.since)));
        self.running = None;
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::{super::tests::netns, *};
    use node::procfs::Bounded;

    fn procfs(root: &Path) -> Procfs {
        Procfs::new(root, Bounded::default())
    }

    /// A process with one descriptor, 3.
    fn process(root: &Path, pid: u32, target: &str) {
        let folder = root.join(format!("proc/{pid}"));
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::write(folder.join("comm"), "leaky\n").unwrap();
        symlink(target, folder.join("fd/3")).unwrap();
    }

    fn leaky(pid: u32) -> FdHolder {
        let comm = Some(String::from("leaky"));
        FdHolder { pid, fd: 3, comm }
    }

    #[test]
    fn descriptors_are_looked_for_where_two_looks_found_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 7, "net:[100]");
        let mut search = FdSearch::default();
        assert_eq!((search.is_due(9), search.next(9)), (false, None));
        search.note([netns(100)].into(), false);
        assert!(!search.is_due(9), "its last task may just be gone");
        assert_eq!(search.next(9), Some(9 + PAUSE));
        assert_eq!(search.of(netns(100)), None, "not known yet");
        assert_eq!(search.of(netns(200)), Some(&[][..]), "of no interest");
        search.note([netns(100), netns(300)].into(), false);
        assert!(search.is_due(9));
        search.start(&procfs(root.path()));
        assert!(!search.is_due(u64::MAX), "one at a time");
        search.finish(Wait::Yes);
        assert_eq!(search.of(netns(100)), Some(&[leaky(7)][..]));
        assert_eq!(search.of(netns(300)), None, "it came too late for the walk");
        search.note([netns(200)].into(), false);
        assert!(search.found.is_empty(), "forgotten with the need");
    }

    #[test]
    fn walks_are_five_seconds_apart_and_long_ones_are_rare() {
        let mut search = FdSearch::default();
        let (end, took) = (7 * FDS_PAUSE, FDS_PAUSE / 10);
        search.last = Some((end, took));
        search.note([netns(100)].into(), true);
        assert!(!search.is_due(end + FDS_PAUSE - 1) && search.is_due(end + FDS_PAUSE));
        assert_eq!(search.next(end), Some(end + FDS_PAUSE));
        search.found.insert(netns(100), Some(vec![leaky(7)]));
        assert_eq!(search.next(end), None, "nothing new is waited for");
        let again = end + took * FDS_SHARE;
        assert!(!search.is_due(again - 1) && search.is_due(again));
    }

    #[test]
    fn a_walk_that_fails_says_nothing_new_and_is_not_waited_for_again() {
        let root = tempfile::tempdir().unwrap();
        let mut search = FdSearch::default();
        search.note([netns(100), netns(200)].into(), true);
        search.found.insert(netns(100), Some(vec![leaky(7)]));
        search.start(&procfs(root.path()));
        search.finish(Wait::Yes);
        assert_eq!(search.of(netns(100)), Some(&[leaky(7)][..]));
        assert_eq!(search.of(netns(200)), None);
        assert_eq!(search.next(9), None);
    }

    #[test]
    fn a_walk_that_does_not_see_all_says_what_it_finds_and_nothing_of_the_rest() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 7, "net:[100]");
        let guarded = root.path().join("proc/8");
        fs::create_dir_all(&guarded).unwrap();
        fs::write(guarded.join("fd"), "no folder").unwrap();
        let mut search = FdSearch::default();
        search.note([netns(100), netns(200), netns(300)].into(), true);
        search.found.insert(netns(200), Some(vec![leaky(8)]));
        search.start(&procfs(root.path()));
        search.finish(Wait::Yes);
        assert_eq!(search.of(netns(100)), Some(&[leaky(7)][..]));
        assert_eq!(search.of(netns(200)), Some(&[leaky(8)][..]), "as before");
        assert_eq!(search.of(netns(300)), None);
        assert_eq!(search.next(9), None, "it is not repeated for that alone");
        fs::remove_file(guarded.join("fd")).unwrap();
        search.start(&procfs(root.path()));
        search.finish(Wait::Yes);
        assert_eq!(search.of(netns(100)), Some(&[leaky(7)][..]));
        for inode in [200, 300] {
            assert_eq!(search.of(netns(inode)), Some(&[][..]), "all were seen");
        }
    }
}
