//! Tasks in uninterruptible sleep for longer than the threshold.
//!
//! Who is in state D and not stuck does not get in: no rule need know of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use event::{FuseMount, Netns, Task, clock::Timestamp, sleep};

/// Blocked tasks at most.
pub const MAX_BLOCKED: usize = 8_192;

#[derive(Clone, Debug, PartialEq)]
pub struct Blocked {
    pub task: Task,
    /// Since when it sleeps.
    pub since: Timestamp,
    /// It slept already when first seen: `since` is the latest possible time.
    pub found: bool,
    pub netns: Option<Netns>,
    /// The kernel function that it sleeps in.
    pub wchan: Option<String>,
    /// Its kernel stack, innermost first.
    pub stack: Vec<String>,
    /// Whether SIGKILL wakes it, by its state.
    pub killable: Option<bool>,
    /// Whether one is pending.
    pub sigkill_pending: Option<bool>,
    /// The FUSE mounts that it may wait for.
    pub fuse: Vec<FuseMount>,
    /// When it was looked at.
    pub seen: Timestamp,
}

/// Tasks of one owner that are told as a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Crowd {
    /// UID of the owner's pod.
    pub pod_uid: Option<String>,
    /// The user that the first of them runs as.
    pub uid: Option<u32>,
    /// How many there are besides those of which each is told.
    pub count: u64,
    /// There are more than are counted.
    pub at_least: bool,
    /// Since when the one sleeps that has slept longest.
    pub since: Timestamp,
    /// Those that have slept longest.
    pub examples: Vec<Task>,
}

/// Crowds at most; a tracer has fewer.
pub const MAX_CROWDS: usize = 4_096;

/// All of them, by thread ID: a task that is stuck cannot give its ID away.
#[derive(Debug, Default)]
pub struct BlockedTasks {
    by_tid: BTreeMap<u32, Blocked>,
    by_inode: HashMap<u32, BTreeSet<u32>>,
    crowds: BTreeMap<u32, Crowd>,
    dropped: u64,
}

impl Blocked {
    /// Whether this is the same task, not only the same thread ID.
    pub fn is(&self, task: &Task) -> bool {
        let start = (self.task.start_ticks, task.start_ticks);
        self.task.tid == task.tid && !matches!(start, (Some(a), Some(b)) if a != b)
    }

    /// Whether it is in state D for a reason that is no trouble.
    fn is_not_stuck(&self) -> bool {
        let by_place = || sleep::not_stuck(&self.stack, self.wchan.as_deref());
        self.task.not_stuck.or_else(by_place).is_some()
    }
}

impl BlockedTasks {
    /// All, by thread ID.
    pub fn iter(&self) -> impl Iterator<Item = &Blocked> {
        self.by_tid.values()
    }

    /// Those that are told as a number, by their crowds' own numbers.
    pub fn crowds(&self) -> impl Iterator<Item = (u32, &Crowd)> {
        self.crowds.iter().map(|(number, crowd)| (*number, crowd))
    }

    /// The blocked state of a task.
    pub fn get(&self, task: &Task) -> Option<&Blocked> {
        self.by_tid
            .get(&task.tid)
            .filter(|blocked| blocked.is(task))
    }

    /// Those that sleep in a network namespace, by thread ID.
    pub fn in_netns(&self, netns: Netns) -> impl Iterator<Item = &Blocked> {
        let tids = self.by_inode.get(&netns.inode).into_iter().flatten();
        tids.filter_map(|tid| self.by_tid.get(tid))
            .filter(move |blocked| {
                let cookies = (blocked.netns.and_then(|n| n.cookie), netns.cookie);
                !matches!(cookies, (Some(a), Some(b)) if a != b)
            })
    }

    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn blocked(&mut self, mut blocked: Blocked) -> bool {
        let tid = blocked.task.tid;
        if blocked.is_not_stuck() {
            return self.remove(tid);
        }
        match self.by_tid.get(&tid) {
            Some(known) if known.since == blocked.since && known.is(&blocked.task) => {
                // The same stall told again: what was read once stays, a stack
                // may be unreadable the second time.
                if blocked.stack.is_empty() {
                    blocked.stack.clone_from(&known.stack);
                }
                if blocked.fuse.is_empty() {
                    blocked.fuse.clone_from(&known.fuse);
                }
                blocked.wchan = blocked.wchan.or_else(|| known.wchan.clone());
                blocked.netns = blocked.netns.or(known.netns);
                blocked.killable = blocked.killable.or(known.killable);
                blocked.sigkill_pending = blocked.sigkill_pending.or(known.sigkill_pending);
                if blocked.sigkill_pending == known.sigkill_pending {
                    blocked.seen = known.seen;
                }
                if *known == blocked {
                    return false;
                }
            }
            Some(_) => {}
            None if self.by_tid.len() >= MAX_BLOCKED => {
                self.dropped += 1;
                return true;
            }
            None => {}
        }
        self.remove(tid);
        if let Some(netns) = blocked.netns {
            self.by_inode.entry(netns.inode).or_default().insert(tid);
        }
        self.by_tid.insert(tid, blocked);
        true
    }

    /// What is told of a crowd now.
    pub(super) fn crowd(&mut self, number: u32, crowd: Crowd) -> bool {
        if crowd.count == 0 {
            return self.crowds.remove(&number).is_some();
        }
        if self.crowds.len() >= MAX_CROWDS && !self.crowds.contains_key(&number) {
            self.dropped += crowd.count;
            return true;
        }
        let changed = self.crowds.get(&number) != Some(&crowd);
        self.crowds.insert(number, crowd);
        changed
    }

    pub(super) fn unblocked(&mut self, task: &Task) -> bool {
        self.get(task).is_some() && self.remove(task.tid)
    }

    fn remove(&mut self, tid: u32) -> bool {
        let Some(old) = self.by_tid.remove(&tid) else {
            return false;
        };
        if let Some(inode) = old.netns.map(|netns| netns.inode)
            && let Some(tids) = self.by_inode.get_mut(&inode)
        {
            tids.remove(&tid);
            if tids.is_empty() {
                self.by_inode.remove(&inode);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::NotStuck;
    use event::testing::*;

    fn blocked(tid: u32, since: i64) -> Blocked {
        Blocked {
            task: task(tid, "reader"),
            since: s(since),
            found: false,
            netns: Some(ns(100)),
            wchan: None,
            stack: vec!["request_wait_answer+0x1".into()],
            killable: None,
            sigkill_pending: None,
            fuse: Vec::new(),
            seen: s(since + 5),
        }
    }

    #[test]
    fn who_is_frozen_or_waits_for_a_vfork_child_does_not_count() {
        let mut table = BlockedTasks::default();
        let by_stack = Blocked {
            stack: vec!["kernel_clone+0x1af".into(), "__do_sys_vfork+0x43".into()],
            ..blocked(7, 1)
        };
        assert!(!table.blocked(by_stack.clone()));
        let mut told = blocked(8, 1);
        told.task.not_stuck = Some(NotStuck::Frozen);
        assert!(!table.blocked(told));
        assert_eq!(table.iter().count(), 0);
        table.blocked(blocked(7, 1));
        assert!(table.blocked(by_stack), "nor any longer");
        assert_eq!(table.iter().count(), 0);
    }

    #[test]
    fn a_sigkill_that_was_sent_since_is_told_and_its_absence_once() {
        let mut table = BlockedTasks::default();
        let look = |pending, seen| Blocked {
            sigkill_pending: Some(pending),
            seen: s(seen),
            ..blocked(7, 1)
        };
        assert!(table.blocked(look(false, 10)));
        assert!(!table.blocked(look(false, 20)));
        assert!(table.blocked(look(true, 30)));
        let known = table.iter().next().unwrap();
        assert_eq!((known.sigkill_pending, known.seen), (Some(true), s(30)));
    }

    #[test]
    fn a_task_is_blocked_until_it_is_unblocked() {
        let mut table = BlockedTasks::default();
        assert!(table.blocked(blocked(7, 1)));
        assert!(!table.blocked(blocked(7, 1)), "told twice");
        assert_eq!(table.in_netns(ns(100)).count(), 1);
        assert!(table.unblocked(&task(7, "reader")));
        assert!(!table.unblocked(&task(7, "reader")));
        assert_eq!((table.iter().count(), table.by_inode.len()), (0, 0));
    }

    #[test]
    fn another_task_of_the_same_thread_id_does_not_unblock_it() {
        let mut table = BlockedTasks::default();
        table.blocked(blocked(7, 1));
        let other = Task {
            start_ticks: Some(1),
            ..task(7, "reader")
        };
        assert!(!table.unblocked(&other));
        assert!(table.unblocked(&Task {
            start_ticks: None,
            ..other
        }));
    }

    #[test]
    fn a_stack_that_was_read_once_stays() {
        let mut table = BlockedTasks::default();
        table.blocked(blocked(7, 1));
        table.blocked(Blocked {
            stack: Vec::new(),
            wchan: Some("x".into()),
            ..blocked(7, 1)
        });
        let kept = table.iter().next().unwrap();
        assert_eq!((kept.stack.len(), kept.wchan.as_deref()), (1, Some("x")));
    }

    #[test]
    fn a_full_table_leaves_new_ones_out_and_counts_them() {
        let mut table = BlockedTasks::default();
        for tid in 0..MAX_BLOCKED as u32 + 3 {
            table.blocked(blocked(tid, 1));
        }
        assert_eq!(
            (table.iter().count(), table.take_dropped()),
            (MAX_BLOCKED, 3)
        );
        assert!(table.get(&task(0, "reader")).is_some());
    }
}
