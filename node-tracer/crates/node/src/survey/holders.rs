//! What keeps each namespace alive, as events name it.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
};

use super::places::Places;
use crate::{
    cgroup::CgroupOwner,
    procfs::{Missed, Owner, Procfs, TaskEntry},
};
use event::{MAX_HOLDERS, Netns, Task, What};
use sys::clock::KernelClock;

/// Nanoseconds of one clock tick in /proc (`USER_HZ` is 100 everywhere).
const TICK: u64 = 10_000_000;

/// Puts the tasks worth naming first: stuck ones, then one a process, oldest
/// first.
pub(super) fn sort(tasks: &mut [&TaskEntry]) {
    tasks.sort_by_key(|entry| {
        let task = &entry.task;
        (
            !task.is_in_d(),
            task.tid != task.pid,
            task.start_ticks,
            task.tid,
        )
    });
}

/// The tasks that will be named, of all namespaces but the host's.
pub(super) fn named<'a>(
    places: &Places<'a>,
    host: &BTreeSet<u32>,
) -> impl Iterator<Item = &'a TaskEntry> {
    let tasks = places.tasks.iter();
    let tasks = tasks.filter(|(inode, _)| !host.contains(inode));
    tasks.flat_map(|(_, tasks)| tasks.iter().take(MAX_HOLDERS).copied())
}

/// The holders of all namespaces.
pub(super) struct Holders<'a> {
    pub(super) places: &'a Places<'a>,
    /// Of those that will be named.
    pub(super) owners: Owners,
    pub(super) clock: KernelClock,
}

impl Holders<'_> {
    /// What keeps one namespace alive.
    pub(super) fn event(&self, netns: Netns) -> What {
        let inode = netns.inode;
        let tasks = self.places.tasks.get(&inode);
        let tasks = tasks.map(Vec::as_slice).unwrap_or_default();
        let mut mounts: Vec<PathBuf> = Vec::new();
        for mount in self.places.mounts.get(&inode).into_iter().flatten() {
            let path = mount.on_node();
            if !mounts.iter().any(|told| event::mount::is_same(told, &path)) {
                mounts.push(path);
            }
        }
        let named = tasks.iter().take(MAX_HOLDERS);
        What::NetnsHolders {
            netns,
            tasks: named
                .map(|entry| self.owners.task(entry, self.clock))
                .collect(),
            task_count: tasks.len(),
            mounts,
            fds: self.places.fds.get(&inode).cloned().unwrap_or_default(),
            sockets: self.places.sockets.get(&inode).cloned().unwrap_or_default(),
        }
    }
}

/// Whose tasks are, looked up once a process.
pub(super) struct Owners(HashMap<u32, CgroupOwner>);

impl Owners {
    /// Also told is of how many processes it could not be read.
    pub(super) fn look_up<'a>(
        procfs: &Procfs,
        tasks: impl Iterator<Item = &'a TaskEntry>,
    ) -> (Self, Missed) {
        // All threads of a process are of one container. By one of those that
        // were found in a namespace: a leader that is dead may be in none, and
        // in no cgroup either.
        let mut processes: HashMap<u32, u32> = HashMap::new();
        for entry in tasks.filter(|entry| !entry.kernel) {
            processes.entry(entry.task.pid).or_insert(entry.task.tid);
        }
        let (pids, tids): (Vec<u32>, Vec<u32>) = processes.into_iter().unzip();
        let (owners, missed) = procfs.owners_and_missed(tids);
        let owners = pids.into_iter().zip(owners);
        let owners = owners.filter_map(|(pid, owner)| match owner {
            Owner::Pod(owner) => Some((pid, owner)),
            Owner::NoPod | Owner::Unknown => None,
        });
        (Self(owners.collect()), missed)
    }

    pub(super) fn task(&self, entry: &TaskEntry, clock: KernelClock) -> Task {
        let owner = self.0.get(&entry.task.pid);
        let start = entry.task.start_ticks;
        Task {
            started: start.map(|ticks| clock.since_boot(ticks.saturating_mul(TICK))),
            pod_uid: owner.map(|owner| owner.pod_uid.clone()),
            container_id: owner.and_then(|owner| owner.container_id.clone()),
            by_name_alone: owner.is_some_and(|owner| owner.by_name_alone),
            ..entry.task.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuck_tasks_are_named_before_processes_and_those_before_threads() {
        let entry = |pid: u32, tid: u32, state: char, start: u64| TaskEntry {
            task: Task {
                pid,
                tid,
                state: Some(state),
                start_ticks: Some(start),
                ..Task::default()
            },
            netns: Some(5),
            kernel: false,
        };
        let all = [
            entry(7, 9, 'S', 1),
            entry(8, 8, 'S', 30),
            entry(7, 7, 'Z', 20),
            entry(7, 12, 'D', 40),
        ];
        let mut tasks: Vec<&TaskEntry> = all.iter().collect();
        sort(&mut tasks);
        let tids: Vec<u32> = tasks.iter().map(|entry| entry.task.tid).collect();
        assert_eq!(tids, [12, 7, 8, 9]);
    }
}
