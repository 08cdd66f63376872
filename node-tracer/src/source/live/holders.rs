//! What keeps each namespace alive, compared from look to look so that only
//! changes are told.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use super::{Live, tasks};
use crate::{
    clock::monotonic_now as now,
    event::{Event, MAX_HOLDERS, Netns, Task, What},
    source::ebpf::inventory::TaskEntry,
};

/// Pause between looks at tasks, ns.
const PAUSE: u64 = 200_000_000;
/// Pause between looks at the mounts of every mount namespace, ns.
const MOUNTS_PAUSE: u64 = 1_000_000_000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Holders {
    told: HashMap<Netns, Told>,
    looked: u64,
    mounts: BTreeMap<u32, Vec<PathBuf>>,
    mounts_looked: u64,
}

/// What was last told of a namespace, as far as a change of it matters.
#[derive(Debug, PartialEq)]
struct Told {
    tasks: Vec<(u32, Option<u64>, bool)>,
    task_count: usize,
    mounts: Vec<PathBuf>,
}

impl Holders {
    /// Whether the last look is long enough ago.
    pub(super) fn may_look(&self, time: u64) -> bool {
        time >= self.not_before()
    }

    /// When the next look may be.
    pub(super) fn not_before(&self) -> u64 {
        self.looked + PAUSE
    }

    /// A namespace is gone.
    pub(super) fn forget(&mut self, netns: Netns) {
        self.told.remove(&netns);
    }
}

impl Live {
    /// Tells the holders of every namespace but the host's where they have
    /// changed. `all` must hold every task outside the initial namespace.
    pub(super) fn look_at_holders(&mut self, all: &[TaskEntry], first: bool, out: &mut Vec<Event>) {
        let time = now();
        self.holders.looked = time;
        if first || time >= self.holders.mounts_looked + MOUNTS_PAUSE {
            self.holders.mounts_looked = time;
            self.look_at_mounts();
        }
        let mut by_netns: HashMap<Netns, Vec<&TaskEntry>> = HashMap::new();
        for entry in all {
            let row = &entry.row;
            let outside = row.net_address != self.init_net && row.task.net_inum != self.host_netns;
            if outside && let Some(netns) = tasks::netns_of_row(row) {
                by_netns.entry(netns).or_default().push(entry);
            }
        }
        for netns in self.nets.living() {
            if netns.inode != self.host_netns {
                by_netns.entry(netns).or_default();
            }
        }
        let by_netns: Vec<(Netns, usize, Vec<&TaskEntry>)> = by_netns
            .into_iter()
            .map(|(netns, entries)| (netns, entries.len(), first_ones(entries)))
            .collect();
        let named = by_netns.iter().flat_map(|(_, _, entries)| entries);
        let named: Vec<_> = named.map(|entry| tasks::key(&entry.row.task)).collect();
        self.owners.look_up(&named);
        let time = self.time(time);
        for (netns, task_count, entries) in by_netns {
            let mut held: Vec<Task> = Vec::new();
            for entry in entries {
                let owner = self.owners.of(&entry.row.task);
                held.push(tasks::task_of_row(&entry.row, owner, self.clock));
            }
            let mounts = self.holders.mounts.get(&netns.inode).cloned().unwrap_or_default();
            let told = Told {
                tasks: held.iter().map(|t| (t.tid, t.start_ticks, t.state == Some('D'))).collect(),
                task_count,
                mounts: mounts.clone(),
            };
            if self.holders.told.get(&netns) != Some(&told) {
                self.holders.told.insert(netns, told);
                let what = What::NetnsHolders { netns, tasks: held, task_count, mounts };
                out.push(Event { time, what });
            }
        }
    }

    fn look_at_mounts(&mut self) {
        match self.procfs.nsfs_mounts() {
            Ok(found) => {
                self.holders.mounts.clear();
                for (inode, mounts) in found.mounts {
                    let paths = self.holders.mounts.entry(inode).or_default();
                    for mount in mounts {
                        if !paths.contains(&mount.path) {
                            paths.push(mount.path);
                        }
                    }
                }
                for error in found.unread {
                    tracing::debug!("{}", crate::report::chain(&error));
                }
            }
            Err(error) => {
                tracing::warn!("{}", crate::report::chain(&error));
                self.drop("mounts-unreadable", 1);
            }
        }
    }
}

/// The tasks worth naming: stuck ones first, then one a process, oldest first.
fn first_ones(mut entries: Vec<&TaskEntry>) -> Vec<&TaskEntry> {
    let rank = |entry: &TaskEntry| {
        let row = &entry.row;
        (!tasks::is_blocked(row), row.task.tid != row.task.tgid, row.task.start_boottime, row.task.tid)
    };
    entries.sort_by_key(|entry| rank(entry));
    entries.truncate(MAX_HOLDERS);
    entries
}
