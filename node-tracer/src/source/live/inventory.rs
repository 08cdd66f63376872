//! Listing tasks and namespaces: by the kernel's iterators where it has them,
//! else by comparison of /proc, mounts and rtnetlink.
//!
//! A namespace that is known by its number alone has the number in place of
//! its `struct net`'s address (a kernel address is never so small), until a
//! record tells the address.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use node_tracer_ebpf::record::{COMM_LEN, Net, Task as KernelTask, TaskRow};

use super::{
    Live,
    nets::{List, Seen},
    now, seen, tasks,
};
use crate::{
    event::Address,
    source::{
        ebpf::{ProbeError, inventory::TaskEntry},
        netlink::{self, Way},
        procfs::{self, ProcfsError},
    },
};

/// How long rtnetlink may take in one namespace.
const NETLINK_PATIENCE: Duration = Duration::from_millis(500);
/// Nanoseconds of a clock tick in /proc.
const TICK: u64 = 10_000_000;

/// Why something cannot be listed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InventoryError {
    /// An iterator failed.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// /proc failed.
    #[error(transparent)]
    Procfs(#[from] ProcfsError),
}

/// Which iterators there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Iterators {
    /// `task_rows`
    pub(super) tasks: bool,
    /// `net_walk`
    pub(super) nets: bool,
}

impl Live {
    /// Every task; `outside_only` may leave out tasks in the host's network
    /// namespace that are not blocked. Whether the list is whole is noted in
    /// `tasks_whole`.
    pub(super) fn list_tasks(
        &mut self,
        outside_only: bool,
    ) -> Result<Vec<TaskEntry>, InventoryError> {
        if let (true, Some(probes)) = (self.iterators.tasks, &mut self.probes) {
            self.tasks_whole = true;
            return Ok(probes.tasks(outside_only.then_some(self.init_net))?);
        }
        let tasks = self.procfs.tasks()?;
        self.tasks_whole = tasks.missed.count == 0;
        Ok(tasks.list.iter().map(entry).collect())
    }

    /// Every namespace with its addresses; `None` if the list did not hold
    /// still. `tasks`: all tasks outside the host's namespace, if they have
    /// just been listed.
    pub(super) fn list_nets(
        &mut self,
        tasks: Option<&[TaskEntry]>,
    ) -> Result<Option<List>, InventoryError> {
        let start = now();
        if let (true, Some(probes)) = (self.iterators.nets, &mut self.probes) {
            let entries = probes.netns(self.init_net)?;
            return Ok(entries.map(|entries| List {
                nets: entries.iter().map(seen).collect(),
                whole: true,
                start,
                end: now(),
            }));
        }
        match tasks {
            Some(tasks) => self.compare(tasks, start).map(Some),
            None => {
                let tasks = self.list_tasks(false)?;
                self.compare(&tasks, start).map(Some)
            }
        }
    }

    /// Namespaces that tasks are in, then those that only a mount leads to.
    fn compare(&mut self, tasks: &[TaskEntry], start: u64) -> Result<List, InventoryError> {
        let mut found: BTreeMap<u32, (Net, Vec<Way>)> = BTreeMap::new();
        for TaskEntry { row, .. } in tasks.iter().filter(|e| e.row.task.net_inum != 0) {
            let net = Net {
                address: row.net_address,
                cookie: row.net_cookie,
                inum: row.task.net_inum,
                refs: -1,
            };
            let (_, ways) = found.entry(net.inum).or_insert((net, Vec::new()));
            if ways.len() < MAX_WAYS {
                ways.push(Way::File(self.procfs.task_netns_path(row.task.tid)));
            }
        }
        let mounts = self.procfs.nsfs_mounts()?;
        for (inode, mounts) in mounts.mounts {
            let net = Net {
                address: inode.into(),
                cookie: 0,
                inum: inode,
                refs: -1,
            };
            let (_, ways) = found.entry(inode).or_insert((net, Vec::new()));
            for mount in mounts.iter().take(MAX_WAYS) {
                ways.push(Way::Mount {
                    root: self.procfs.root_path(mount.tid),
                    path: mount.path.clone(),
                });
            }
        }
        let seen = found.into_values().map(|(net, ways)| {
            let addresses = self.addresses(net.inum, &ways);
            Seen { net, addresses }
        });
        Ok(List {
            nets: seen.collect(),
            whole: self.tasks_whole && !mounts.partial,
            start,
            end: now(),
        })
    }

    /// The addresses of a namespace, by the first way that leads there; `None`
    /// if none does.
    fn addresses(&self, inode: u32, ways: &[Way]) -> Option<BTreeSet<Address>> {
        let mut failed = None;
        for way in ways {
            // One lock is behind all of them: who waits for it takes no other
            // read's place, and nobody else comes to wait.
            if self.entered.abandoned() > 0 {
                return None;
            }
            match netlink::addresses(way, &self.entered, NETLINK_PATIENCE) {
                Ok(snapshot) if snapshot.inode == inode => {
                    return Some(snapshot.addresses.into_iter().collect());
                }
                Ok(_) => {} // the path leads elsewhere by now
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            tracing::debug!("{}", crate::fault::chain(&error));
        }
        None
    }
}

/// Ways into a namespace that are tried.
const MAX_WAYS: usize = 3;

/// A task of /proc as the iterator would show it.
pub(super) fn entry(entry: &procfs::TaskEntry) -> TaskEntry {
    let procfs::TaskEntry { task, netns, .. } = entry;
    let mut comm = [0; COMM_LEN];
    let name = task.comm.as_bytes();
    let length = name.len().min(COMM_LEN - 1);
    comm[..length].copy_from_slice(&name[..length]);
    let inum = netns.unwrap_or(0);
    TaskEntry {
        row: TaskRow {
            task: KernelTask {
                tid: task.tid,
                tgid: task.pid,
                comm,
                start_boottime: task.start_ticks.unwrap_or(0) * TICK,
                net_inum: inum,
                ..KernelTask::default()
            },
            net_address: inum.into(),
            state: tasks::state_bits(task.state.unwrap_or('S')),
            ..TaskRow::default()
        },
        stack: Vec::new(),
    }
}

/// Stalls where no hook tells of them: tasks found asleep in two looks are
/// taken to have slept in between.
#[derive(Debug, Default)]
pub(super) struct Polled {
    asleep: HashMap<(u32, u64), Asleep>,
}

/// One task that was found asleep.
#[derive(Debug)]
struct Asleep {
    since: u64,
    reported: bool,
    task: KernelTask,
}

/// What a look has brought.
#[derive(Debug, Default)]
pub(super) struct PolledLook {
    /// Past the threshold now: thread ID to the time it was first seen asleep.
    pub(super) due: HashMap<u32, u64>,
    /// Reported before, and awake: the task and when it was first seen asleep.
    pub(super) awake: Vec<(KernelTask, u64)>,
}

impl Polled {
    /// The tasks that were found asleep, by thread ID.
    pub(super) fn asleep(&self) -> impl Iterator<Item = u32> {
        self.asleep.keys().map(|(tid, _)| *tid)
    }

    /// Takes in a listing of tasks. Of those that are `unread` nothing is
    /// known: they stay what they were.
    pub(super) fn look(
        &mut self,
        tasks: &[TaskEntry],
        unread: &BTreeSet<u32>,
        now: u64,
        threshold: u64,
    ) -> PolledLook {
        let mut look = PolledLook::default();
        let mut before = std::mem::take(&mut self.asleep);
        for entry in tasks.iter().filter(|entry| tasks::is_blocked(&entry.row)) {
            let task = entry.row.task;
            let mut asleep = before.remove(&tasks::key(&task)).unwrap_or(Asleep {
                since: now,
                reported: false,
                task,
            });
            if !asleep.reported && now.saturating_sub(asleep.since) >= threshold {
                asleep.reported = true;
                look.due.insert(task.tid, asleep.since);
            }
            self.asleep.insert(tasks::key(&task), asleep);
        }
        let (same, over): (HashMap<_, _>, HashMap<_, _>) = before
            .into_iter()
            .partition(|((tid, _), _)| unread.contains(tid));
        self.asleep.extend(same);
        let awake = over.into_values().filter(|asleep| asleep.reported);
        look.awake = awake.map(|asleep| (asleep.task, asleep.since)).collect();
        look
    }

    /// Takes in a task whose sleep is known to have begun earlier.
    pub(super) fn seed(&mut self, task: KernelTask, since: u64, reported: bool) {
        self.asleep.insert(
            tasks::key(&task),
            Asleep {
                since,
                reported,
                task,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(tid: u32) -> TaskEntry {
        let mut entry = TaskEntry {
            row: TaskRow::default(),
            stack: Vec::new(),
        };
        entry.row.task.tid = tid;
        entry.row.state = tasks::state_bits('D');
        entry
    }

    /// A look that misses nothing.
    fn look(polled: &mut Polled, tasks: &[TaskEntry], now: u64) -> PolledLook {
        polled.look(tasks, &BTreeSet::new(), now, 50)
    }

    #[test]
    fn a_polled_stall_is_due_once_and_its_end_is_told() {
        let mut polled = Polled::default();
        assert!(look(&mut polled, &[blocked(1)], 100).due.is_empty());
        assert_eq!(
            look(&mut polled, &[blocked(1)], 150).due,
            HashMap::from([(1, 100)])
        );
        assert!(look(&mut polled, &[blocked(1)], 160).due.is_empty());
        assert_eq!(look(&mut polled, &[], 170).awake.len(), 1);
        assert!(look(&mut polled, &[], 180).awake.is_empty());
    }

    #[test]
    fn a_short_polled_sleep_is_not_told() {
        let mut polled = Polled::default();
        look(&mut polled, &[blocked(1)], 100);
        let look = look(&mut polled, &[], 120);
        assert!(look.due.is_empty() && look.awake.is_empty());
    }

    #[test]
    fn a_polled_sleep_goes_on_while_it_cannot_be_read() {
        let mut polled = Polled::default();
        let unread = BTreeSet::from([1]);
        look(&mut polled, &[blocked(1)], 100);
        assert!(polled.look(&[], &unread, 130, 50).due.is_empty());
        assert_eq!(
            look(&mut polled, &[blocked(1)], 150).due,
            HashMap::from([(1, 100)]),
            "it has slept all the time"
        );
        assert!(polled.look(&[], &unread, 160, 50).awake.is_empty());
        assert_eq!(polled.asleep().collect::<Vec<u32>>(), [1]);
        assert_eq!(look(&mut polled, &[], 170).awake.len(), 1);
        assert_eq!(polled.asleep().count(), 0);
    }
}
