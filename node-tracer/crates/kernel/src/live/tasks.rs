//! Kernel tasks as events name them: with pod and container, state letter,
//! and a stack in words.

use std::collections::{HashMap, HashSet};

use node_tracer_ebpf::record::{self, Owner as Answers, Task as KernelTask, TaskRow, owner::USER};

use crate::ebpf::{
    inventory::TaskEntry,
    symbols::{Symbols, is_bpf_frame},
};
use event::Task;
use node::{
    cgroup::CgroupOwner,
    procfs::{Owner, Procfs},
};
use sys::clock::KernelClock;

/// `PF_KTHREAD`
pub(super) const PF_KTHREAD: u32 = 0x0020_0000;
/// `TASK_UNINTERRUPTIBLE`
const UNINTERRUPTIBLE: u32 = 2;
/// `TASK_FROZEN`
const FROZEN: u32 = 0x8000;
/// Nanoseconds of one clock tick in /proc (`USER_HZ` is 100 everywhere).
const TICK: u64 = 10_000_000;
/// Owners kept; beyond, all are looked up anew.
const MAX_OWNERS: usize = 32_768;

/// So many are not worth going through.
const FEW_OWNERS: usize = 256;

/// Whose tasks are, looked up once a task.
#[derive(Debug)]
pub(super) struct Owners {
    procfs: Procfs,
    /// What could be found out; what could not is asked again.
    known: HashMap<(u32, u64), Option<CgroupOwner>>,
}

impl Owners {
    /// Nothing looked up yet.
    pub(super) fn new(procfs: Procfs) -> Self {
        Self {
            procfs,
            known: HashMap::new(),
        }
    }

    /// The pod that a task belongs to, if that is known.
    pub(super) fn of(&mut self, task: &KernelTask) -> Option<CgroupOwner> {
        self.look_up(&[key(task)]);
        self.known.get(&key(task)).cloned().flatten()
    }

    /// Whether a task's process belongs to a pod; `None` if that cannot be told.
    pub(super) fn in_pod(&mut self, task: &KernelTask) -> Option<bool> {
        if let Some(known) = self.known.get(&key(task)) {
            return Some(known.is_some());
        }
        self.make_room();
        // The thread itself may have ended: a runtime's that was in a namespace
        // of its own does. Or the first one may have, which seems to be in no
        // pod then.
        for thread in [task.tgid, task.tid] {
            self.read(vec![(thread, key(task))]);
            if let Some(Some(_)) = self.known.get(&key(task)) {
                break;
            }
        }
        self.known.get(&key(task)).map(Option::is_some)
    }

    /// Forgets tasks that are not on this list, once they are more than those
    /// that are: most of them have ended. Who is needed again is asked again.
    pub(super) fn forget_all_but(&mut self, present: impl ExactSizeIterator<Item = (u32, u64)>) {
        if self.known.len() <= 2 * present.len() + FEW_OWNERS {
            return;
        }
        let present: HashSet<(u32, u64)> = present.collect();
        self.known.retain(|task, _| present.contains(task));
        // Room that will be needed again stays.
        if self.known.capacity() > 4 * (self.known.len() + FEW_OWNERS) {
            self.known.shrink_to(self.known.len() + FEW_OWNERS);
        }
    }

    /// Looks up all owners that are not known yet, in one go.
    pub(super) fn look_up(&mut self, tasks: &[(u32, u64)]) {
        self.make_room();
        let new = tasks.iter().filter(|task| !self.known.contains_key(task));
        let new: Vec<(u32, (u32, u64))> = new.map(|task| (task.0, *task)).collect();
        if !new.is_empty() {
            self.read(new);
        }
    }

    fn make_room(&mut self) {
        if self.known.len() > MAX_OWNERS {
            self.known.clear();
        }
    }

    /// Reads whose tasks are by these threads.
    fn read(&mut self, tasks: Vec<(u32, (u32, u64))>) {
        let tids = tasks.iter().map(|(tid, _)| *tid).collect();
        let owners = self.procfs.task_owners(tids);
        for ((_, task), owner) in tasks.into_iter().zip(owners) {
            match owner {
                Owner::Pod(owner) => drop(self.known.insert(task, Some(owner))),
                Owner::NoPod => drop(self.known.insert(task, None)),
                Owner::Unknown => {}
            }
        }
    }
}

/// What names a task for good. By thread: a process whose first thread has
/// ended keeps its cgroup in the others only.
pub(super) fn key(task: &KernelTask) -> (u32, u64) {
    (task.tid, task.start_boottime)
}

/// Whether a row is of a kernel thread.
pub(super) fn is_kernel_thread(row: &TaskRow) -> bool {
    row.flags & PF_KTHREAD != 0
}

/// The user that a task runs as, or whose file system a thread of the kernel
/// waits for; `None` if it is root.
pub(super) fn user(row: &TaskRow) -> Option<u32> {
    let uid = match row.owner {
        Answers { kind: USER, id } if is_kernel_thread(row) => id,
        _ => row.task.euid,
    };
    (uid != 0).then_some(uid)
}

/// Whether a task is in uninterruptible sleep, and not for a reason that is no
/// trouble.
pub(super) fn is_blocked(entry: &TaskEntry) -> bool {
    state_letter(entry.row.state) == 'D' && entry.not_stuck.is_none()
}

/// Whether the freezer has a task, by its state (`TASK_FROZEN`). Before Linux
/// 6.1 there was no such state: frozen tasks are told by where they sleep.
pub(super) fn is_frozen(row: &TaskRow) -> bool {
    row.state & FROZEN != 0
}

/// Whether SIGKILL wakes a task (`TASK_WAKEKILL`); `None` where its state is
/// only known by its letter.
pub(super) fn is_killable(entry: &TaskEntry, iterated: bool) -> Option<bool> {
    const WAKEKILL: u32 = 0x100;
    iterated.then_some(entry.row.state & WAKEKILL != 0)
}

/// The task of a kernel record. `owner` is that of its process.
pub(super) fn task(task: &KernelTask, owner: Option<CgroupOwner>, clock: KernelClock) -> Task {
    let by_name_alone = owner.as_ref().is_some_and(|owner| owner.by_name_alone);
    let (pod_uid, container_id) = match owner {
        Some(owner) => (Some(owner.pod_uid), owner.container_id),
        None => (None, None),
    };
    Task {
        pid: task.tgid,
        tid: task.tid,
        comm: String::from_utf8_lossy(record::text(&task.comm)).into_owned(),
        state: None,
        start_ticks: (task.start_boottime != 0).then_some(task.start_boottime / TICK),
        started: (task.start_boottime != 0).then(|| clock.since_boot(task.start_boottime)),
        pod_uid,
        container_id,
        by_name_alone,
        ..Task::default()
    }
}

/// The task of a list, with its state.
pub(super) fn listed(entry: &TaskEntry, owner: Option<CgroupOwner>, clock: KernelClock) -> Task {
    Task {
        state: Some(state_letter(entry.row.state)),
        not_stuck: entry.not_stuck,
        kernel_thread: is_kernel_thread(&entry.row),
        ..task(&entry.row.task, owner, clock)
    }
}

/// The state letter of ps(1) for `task.__state`.
fn state_letter(state: u32) -> char {
    /// `TASK_NOLOAD`: an idle kernel thread.
    const NOLOAD: u32 = 0x400;
    match state {
        0 => 'R',
        // As /proc has it.
        _ if state & FROZEN != 0 => 'D',
        _ if state & UNINTERRUPTIBLE != 0 && state & NOLOAD != 0 => 'I',
        _ if state & UNINTERRUPTIBLE != 0 => 'D',
        _ if state & 1 != 0 => 'S',
        _ if state & 0x4 != 0 => 'T',
        _ if state & 0x8 != 0 => 't',
        _ => 'R',
    }
}

pub(super) fn state_bits(letter: char) -> u32 {
    match letter {
        'R' => 0,
        'D' => UNINTERRUPTIBLE,
        'T' => 0x4,
        't' => 0x8,
        'I' => 0x402,
        _ => 1,
    }
}

/// A stack in words, without the tracer's own frames.
pub(super) fn stack(entry: &TaskEntry, symbols: Option<&Symbols>) -> Vec<String> {
    frames(entry, symbols).collect()
}

/// The innermost part of a stack, which says where the task sleeps.
pub(super) fn place(entry: &TaskEntry, symbols: Option<&Symbols>) -> Vec<String> {
    frames(entry, symbols).take(INNERMOST).collect()
}

/// Frames of the scheduler, and what called it.
const INNERMOST: usize = 8;

fn frames<'a>(
    entry: &'a TaskEntry,
    symbols: Option<&'a Symbols>,
) -> impl Iterator<Item = String> + 'a {
    let frames = symbols.into_iter().flat_map(|symbols| {
        let addresses = entry.stack.iter();
        addresses.map(|address| match symbols.resolve(*address) {
            Some((name, offset)) => format!("{name}+{offset:#x}"),
            None => format!("{address:#x}"),
        })
    });
    frames.skip_while(|frame| is_bpf_frame(frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_bits_are_the_letters_of_ps() {
        for (bits, letter) in [
            (0, 'R'),
            (1, 'S'),
            (2, 'D'),
            (0x102, 'D'),
            (0x2102, 'D'),
            (0x8000, 'D'),
            (0x402, 'I'),
            (4, 'T'),
        ] {
            assert_eq!(state_letter(bits), letter, "{bits:#x}");
        }
    }

    #[test]
    fn bits_and_letters_agree() {
        for letter in ['R', 'S', 'D', 'T', 't', 'I'] {
            assert_eq!(state_letter(state_bits(letter)), letter);
        }
    }

    #[test]
    fn owners_of_tasks_that_are_gone_are_forgotten_when_they_are_many() {
        let root = tempfile::tempdir().unwrap();
        let procfs = Procfs::new(root.path(), node::procfs::Bounded::default());
        let mut owners = Owners::new(procfs);
        let task = |tid: u32| (tid, u64::from(tid));
        owners.known = (0..2_000).map(|tid| (task(tid), None)).collect();
        owners.forget_all_but((0..900).map(task));
        assert_eq!(owners.known.len(), 2_000, "not so many more than there are");
        owners.forget_all_but([5, 1_999, 7_000].map(task).into_iter());
        let mut left: Vec<u32> = owners.known.keys().map(|(tid, _)| *tid).collect();
        left.sort_unstable();
        assert_eq!(left, [5, 1_999]);
        assert!(owners.known.capacity() < 1_000, "the room for them is kept");
    }

    #[test]
    fn a_start_is_told_in_the_ticks_of_proc() {
        let kernel = KernelTask {
            start_boottime: 123_456_789_012,
            ..KernelTask::default()
        };
        assert_eq!(
            task(&kernel, None, KernelClock::now()).start_ticks,
            Some(12_345)
        );
    }
}
