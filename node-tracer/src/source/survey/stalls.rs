//! The tasks that are stuck, with where in the kernel.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use super::{Survey, holders::Owners};
use crate::{
    clock::{KernelClock, Timestamp, monotonic_now},
    event::{Netns, What},
    report,
    source::procfs::{Procfs, ProcfsError, TaskEntry},
};

/// Stuck tasks that are told; the server of a file system can be waited for by
/// all threads of a node.
const MAX_STALLS: usize = 4096;

/// How long the stacks of all of them may take to read.
const STACKS: Duration = Duration::from_secs(1);

/// Tells of every task that has been in uninterruptible sleep for the
/// threshold.
pub(super) fn tell(
    procfs: &Procfs,
    tasks: &[TaskEntry],
    netns: &BTreeMap<u32, Netns>,
    threshold: Duration,
    out: &mut Survey,
) {
    let asleep: HashMap<u32, &TaskEntry> = tasks
        .iter()
        .filter(|entry| entry.task.state == Some('D'))
        .map(|entry| (entry.task.tid, entry))
        .collect();
    let mut stalls = procfs.stalls(asleep.keys().copied().collect(), threshold);
    // The oldest tell most.
    stalls.sort_by_key(|stall| (std::cmp::Reverse(stall.age), stall.tid));
    if stalls.len() > MAX_STALLS {
        let (more, of) = (stalls.len() - MAX_STALLS, stalls.len());
        out.unread
            .push(format!("{more} of {of} tasks in uninterruptible sleep"));
        stalls.truncate(MAX_STALLS);
    }
    let stuck = stalls.iter().filter_map(|stall| asleep.get(&stall.tid));
    let owners = Owners::look_up(procfs, stuck.copied());
    let (clock, start) = (KernelClock::now(), Instant::now());
    let mut failed = None;
    for stall in &stalls {
        let Some(entry) = asleep.get(&stall.tid) else {
            continue;
        };
        let ago = stall.age.saturating_add(stall.seen.elapsed());
        let ago = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
        let since = clock.timestamp(monotonic_now().saturating_sub(ago));
        let (wchan, stack) = match start.elapsed() < STACKS {
            true => place(procfs, stall.tid, &mut failed),
            false => (None, Vec::new()),
        };
        let blocked = What::TaskBlocked {
            task: owners.task(entry, clock),
            since,
            found: true,
            netns: entry.netns.and_then(|inode| netns.get(&inode).copied()),
            wchan,
            stack,
        };
        out.push(Timestamp::now(), blocked);
    }
    if let Some(error) = failed {
        out.unread.push(report::chain(&error));
    }
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
