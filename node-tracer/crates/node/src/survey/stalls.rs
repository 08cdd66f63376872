//! The tasks that are stuck, with where in the kernel.

use std::{
    collections::HashMap,
    os::unix::fs::MetadataExt as _,
    time::{Duration, Instant},
};

use super::{holders::Owners, say_owners};
use crate::procfs::{FuseServers, Procfs, ProcfsError, Stall, Stalls, TaskEntry, Whose, in_turn};
use event::order::Order as _;
use event::{Event, Netns, Task, What, fault, sleep};
use sys::clock::{KernelClock, monotonic_now};

/// What was found of the tasks in uninterruptible sleep.
#[derive(Debug)]
pub(super) struct Stuck {
    /// A `TaskBlocked` of each; the identity of its network namespace has no
    /// cookie yet.
    pub(super) events: Vec<Event>,
    pub(super) unread: Vec<String>,
    /// All of them could be judged, and are told.
    pub(super) whole: bool,
}

/// Stuck tasks that are told; the server of a file system can be waited for by
/// all threads of a node.
const MAX_STALLS: usize = 4096;

/// How long the stacks of all of them may take to read.
const STACKS: Duration = Duration::from_secs(1);

/// Tasks that are named of those of which it is not known since when they sleep.
const MAX_NAMED: usize = 5;

/// The user that a task runs as: whose its folder is. Threads of the kernel run
/// as root, whoever answers for them.
fn user(procfs: &Procfs, task: &Task, whose: Whose) -> Option<u32> {
    let uid = match whose {
        Whose::User(uid) if task.kernel_thread => Some(uid).filter(|uid| *uid != u32::MAX),
        _ => {
            let folder = procfs.folder().join(task.tid.to_string());
            folder.metadata().ok().map(|folder| folder.uid())
        }
    };
    uid.filter(|uid| *uid != 0)
}

/// Puts stuck tasks so that those are told of first, and with their stacks, that
/// tell most: what was asked about, then each owner's in turn, the oldest first.
fn order(
    procfs: &Procfs,
    mut stalls: Vec<Stall>,
    is_asked: impl Fn(&Stall) -> bool,
) -> Vec<(Whose, Stall)> {
    stalls.order_by_key(|stall| (std::cmp::Reverse(stall.age), stall.tid));
    let whose = procfs.whose(stalls.iter().map(|stall| stall.tid).collect());
    let mut stalls = in_turn(whose.into_iter().zip(stalls).collect());
    stalls.order_by_key(|(_, stall)| !is_asked(stall));
    stalls
}

/// Every task that has been in uninterruptible sleep for the threshold. Those of
/// the task or process that was `asked` about are looked at in any case.
pub(super) fn find(
    procfs: &Procfs,
    tasks: &[TaskEntry],
    threshold: Duration,
    asked: Option<u32>,
) -> Stuck {
    let asleep: HashMap<u32, &TaskEntry> = tasks
        .iter()
        .filter(|entry| entry.task.is_in_d())
        .map(|entry| (entry.task.tid, entry))
        .collect();
    let Stalls {
        stuck: stalls,
        undated,
        missed,
    } = procfs.stalls(asleep.keys().copied().collect(), threshold);
    let mut found = Stuck {
        events: Vec::new(),
        unread: Vec::new(),
        whole: missed.count == 0 && undated.is_empty() && stalls.len() <= MAX_STALLS,
    };
    found
        .unread
        .extend(missed.say(|n| format!("{n} tasks in uninterruptible sleep")));
    for stall in undated.iter().take(MAX_NAMED) {
        let Some(entry) = asleep.get(&stall.tid) else {
            continue;
        };
        // As the kernel has it: it may hold anything.
        let (tid, comm) = (stall.tid, &entry.task.comm);
        let age = stall.age.as_secs_f64();
        found.unread.push(format!(
            "since when task {tid} ({comm:?}) is in uninterruptible sleep: for {age:.1} s at least"
        ));
    }
    if let Some(more @ 1..) = undated.len().checked_sub(MAX_NAMED) {
        found.unread.push(format!(
            "since when {more} more tasks are in uninterruptible sleep"
        ));
    }
    let is_asked = |stall: &Stall| {
        let pid = asleep.get(&stall.tid).map(|entry| entry.task.pid);
        asked.is_some() && (asked == Some(stall.tid) || asked == pid)
    };
    let places = procfs.apart();
    let mut stalls = order(&places, stalls, is_asked);
    if stalls.len() > MAX_STALLS {
        let (more, of) = (stalls.len() - MAX_STALLS, stalls.len());
        found
            .unread
            .push(format!("{more} of {of} tasks in uninterruptible sleep"));
        stalls.truncate(MAX_STALLS);
    }
    let stuck = stalls
        .iter()
        .filter_map(|(_, stall)| asleep.get(&stall.tid));
    let (owners, missed) = Owners::look_up(procfs, stuck.copied());
    found.unread.extend(say_owners(&missed));
    // Stacks hang most easily of all files, where a task is stuck in exec.
    let (clock, start) = (KernelClock::now(), Instant::now());
    let mut failed = None;
    let mut unplaced = 0;
    let mut servers = FuseServers::default();
    for (whose, stall) in &stalls {
        let Some(entry) = asleep.get(&stall.tid) else {
            continue;
        };
        let since = clock.timestamp(monotonic_now().saturating_sub(stall.so_far()));
        let (wchan, stack) = if start.elapsed() < STACKS {
            place(&places, stall.tid, &mut failed)
        } else {
            unplaced += 1;
            (None, Vec::new())
        };
        if sleep::not_stuck(&stack, wchan.as_deref()).is_some() {
            continue;
        }
        let fuse = match start.elapsed() < STACKS {
            true => servers.waited_for(&places, stall.tid, &stack, wchan.as_deref()),
            false => Vec::new(),
        };
        let mut task = owners.task(entry, clock);
        task.uid = user(procfs, &task, *whose);
        let what = What::TaskBlocked {
            task,
            since,
            found: !stall.dated,
            netns: entry.netns.map(|inode| Netns {
                inode,
                cookie: None,
            }),
            wchan,
            stack,
            killable: None,
            sigkill_pending: places.sigkill_pending(stall.tid),
            fuse,
        };
        let time = sys::clock::now();
        found.events.push(Event { time, what });
    }
    if let Some(error) = failed {
        found.unread.push(fault::chain(&error));
    }
    if unplaced > 0 {
        found.unread.push(format!(
            "where in the kernel {unplaced} more tasks are stuck: it took too long"
        ));
    }
    found
}

/// Where a task sleeps: the function, and the stack.
fn place(
    procfs: &Procfs,
    tid: u32,
    failed: &mut Option<ProcfsError>,
) -> (Option<String>, Vec<String>) {
    let mut keep = |error: ProcfsError| {
        failed.get_or_insert(error);
    };
    let wchan = procfs.wchan(tid).unwrap_or_else(|error| {
        keep(error);
        None
    });
    let stack = procfs.kernel_stack(tid).unwrap_or_else(|error| {
        keep(error);
        Vec::new()
    });
    (wchan, stack)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::{Bounded, whose::tests::crowded};

    #[test]
    #[ignore = "needs root"]
    fn what_was_asked_about_and_each_owners_oldest_come_first() {
        let root = tempfile::tempdir().unwrap();
        crowded(root.path());
        let stall = |tid: u32| Stall {
            tid,
            seen: Instant::now(),
            age: Duration::from_secs(1_000 - u64::from(tid)),
            dated: true,
        };
        let procfs = Procfs::new(root.path(), Bounded::default());
        let stalls = order(&procfs, (2..103).map(stall).collect(), |it| it.tid == 99);
        let first: Vec<u32> = stalls.iter().take(6).map(|(_, it)| it.tid).collect();
        assert_eq!(first, [99, 102, 100, 2, 101, 3]);
        assert_eq!(stalls.len(), 101);
    }
}
