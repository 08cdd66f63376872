//! The table of blocked tasks, seen from the tracer.
//!
//! The kernel side writes each sleep in state D into a table and strikes it
//! out when it is over. A sleep that begins after a look at the table cannot
//! pass the threshold earlier than one threshold after that look; so the next
//! look is due then, or when the oldest entry passes, and a node where
//! nothing is stuck is looked at once in that time.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use node_tracer_ebpf::{
    map,
    record::{Blocked, MAX_BLOCKED, Owner, TaskRow},
};

use super::probes::{ProbeError, Probes, Value};

/// What a look at the table found.
#[derive(Debug, Default)]
pub struct DueStalls {
    /// Past the threshold and not yet reported: thread ID to the time it went
    /// to sleep (monotonic ns).
    pub due: HashMap<u32, u64>,
    /// When to look again, monotonic ns.
    pub next: u64,
}

/// Entries looked at; twice what the table can hold.
const MAX_ENTRIES: usize = 2 * MAX_BLOCKED as usize;
/// Never looks more often, however many tasks are about to pass.
const MIN_PAUSE: Duration = Duration::from_millis(20);

impl Probes {
    /// Looks at the table.
    pub fn blocked(&self, now: u64, threshold: Duration) -> DueStalls {
        // A table that changes while it is gone through can start again from
        // the front, and again.
        let entries = self.blocked.iter().take(MAX_ENTRIES).filter_map(Result::ok);
        look(
            entries.map(|(tid, Value(entry))| (tid, entry)),
            now,
            threshold,
        )
    }

    /// Where the sleeps of an owner are counted ([`Blocked::crowd`]).
    pub fn crowd(&self, owner: Owner) -> u32 {
        owner.crowd(self.crowd_seed)
    }

    /// Marks a stall as reported, so that its end is reported too.
    pub fn mark_reported(&mut self, tid: u32, since: u64) -> Result<(), ProbeError> {
        // Only if it is still there: a task that has just been woken must not
        // come back as asleep.
        const BPF_EXIST: u64 = 2;
        let Some(entry) = self.sleeping_since(tid, since) else {
            return Ok(());
        };
        let entry = Value(Blocked {
            reported: 1,
            ..entry
        });
        match self.blocked.insert(tid, entry, BPF_EXIST) {
            Ok(()) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Err(source) => Err(ProbeError::Map {
                name: map::BLOCKED,
                source,
            }),
        }
    }

    /// Writes down a task that slept before the programs were attached.
    pub fn add_blocked(&mut self, row: &TaskRow, since: u64) -> Result<(), ProbeError> {
        const BPF_NOEXIST: u64 = 1;
        let (owner, tid) = (row.owner, row.task.tid);
        let crowd = self.crowd(owner);
        let entry = Value(Blocked {
            since,
            reported: 0,
            crowd,
            owner,
        });
        let blocked = &mut self.blocked;
        match self
            .asleep
            .counting(crowd, || blocked.insert(tid, entry, BPF_NOEXIST))
        {
            Ok(()) => Ok(()),
            // Already there: the kernel side has seen it itself.
            Err(aya::maps::MapError::SyscallError(_)) => Ok(()),
            Err(source) => Err(ProbeError::Map {
                name: map::BLOCKED,
                source,
            }),
        }
    }

    /// Strikes out a task that sleeps no more without a wake-up being seen;
    /// not if it has gone to sleep anew.
    pub fn forget_blocked(&mut self, tid: u32, since: u64) {
        if let Some(entry) = self.sleeping_since(tid, since) {
            // Gone already is as good.
            if self.blocked.remove(&tid).is_ok() {
                self.asleep.one_less(entry.crowd);
            }
        }
    }

    /// The threads that are in the table.
    pub fn followed(&self) -> HashSet<u32> {
        let entries = self.blocked.keys().take(MAX_ENTRIES);
        entries.filter_map(Result::ok).collect()
    }

    fn sleeping_since(&self, tid: u32, since: u64) -> Option<Blocked> {
        let Value(entry) = self.blocked.get(&tid, 0).ok()?;
        (entry.since == since).then_some(entry)
    }
}

fn is_gone(error: &aya::maps::MapError) -> bool {
    match error {
        aya::maps::MapError::KeyNotFound | aya::maps::MapError::ElementNotFound => true,
        aya::maps::MapError::SyscallError(error) => {
            error.io_error.raw_os_error() == Some(libc::ENOENT)
        }
        _ => false,
    }
}

fn look(entries: impl Iterator<Item = (u32, Blocked)>, now: u64, threshold: Duration) -> DueStalls {
    let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    let threshold = nanos(threshold);
    let mut look = DueStalls {
        due: HashMap::new(),
        next: now.saturating_add(threshold),
    };
    for (
        tid,
        Blocked {
            since, reported, ..
        },
    ) in entries
    {
        if reported != 0 {
            continue;
        }
        let passes = since.saturating_add(threshold);
        if passes <= now {
            look.due.insert(tid, since);
        } else {
            look.next = look.next.min(passes);
        }
    }
    look.next = look.next.max(now.saturating_add(nanos(MIN_PAUSE)));
    look
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const THRESHOLD: Duration = Duration::from_secs(5);

    fn asleep(since: u64) -> Blocked {
        Blocked {
            since,
            ..Blocked::default()
        }
    }

    #[test]
    fn an_empty_table_is_looked_at_once_a_threshold() {
        let look = look([].into_iter(), 100 * SECOND, THRESHOLD);
        assert!(look.due.is_empty());
        assert_eq!(look.next, 105 * SECOND);
    }

    #[test]
    fn the_next_look_is_when_the_oldest_sleep_passes() {
        let entries = [(1, asleep(98 * SECOND)), (2, asleep(99 * SECOND))];
        let look = look(entries.into_iter(), 100 * SECOND, THRESHOLD);
        assert!(look.due.is_empty());
        assert_eq!(look.next, 103 * SECOND);
    }

    #[test]
    fn a_sleep_past_the_threshold_is_due_once() {
        let mut reported = asleep(80 * SECOND);
        reported.reported = 1;
        let entries = [(1, asleep(95 * SECOND)), (2, reported)];
        let look = look(entries.into_iter(), 100 * SECOND, THRESHOLD);
        assert_eq!(look.due, HashMap::from([(1, 95 * SECOND)]));
        assert_eq!(look.next, 105 * SECOND);
    }
}
