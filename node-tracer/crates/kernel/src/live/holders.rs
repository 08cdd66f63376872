//! What keeps each namespace alive, compared from look to look so that only
//! changes are told.
//!
//! Descriptors are looked for where two looks found neither a task nor a
//! mount, all of them in one walk over the node's descriptors, beside the
//! event loop. Until the walk has returned, nothing new is told of these: what
//! was told last holds them no more, and what does is not known. Nor is
//! anything told where nothing was found and not all could be read.

mod fds;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::PathBuf,
};

use self::fds::FdSearch;
use super::{Live, tasks};
use crate::ebpf::inventory::TaskEntry;
use event::mount::{Place, is_same, name, place};
use event::order::Order as _;
use event::{Event, FdHolder, MAX_HOLDERS, Netns, Task, What};
use node::procfs::NsfsMount;
use sys::{clock::monotonic_now as now, share::Share};

/// Pause between looks at tasks, ns.
const PAUSE: u64 = 200_000_000;
/// These looks take at most one part in so many of the time, and after a rest so
/// many ns at once.
const SHARE: u64 = 200;
const BURST: u64 = 20_000_000;
/// But none is put off for longer, ns.
const MAX_PAUSE: u64 = 2_000_000_000;
/// Pause between looks at the mounts of every mount namespace, ns.
const MOUNTS_PAUSE: u64 = 1_000_000_000;
/// These looks take at most one part in so many of the time.
const MOUNTS_SHARE: u64 = 100;
/// Paths of a namespace, and mount namespaces of a path, that are remembered.
const MAX_MOUNTS: usize = 32;

#[derive(Debug)]
pub(super) struct Holders {
    told: HashMap<Netns, LastHolders>,
    not_before: u64,
    looks: Share,
    /// By the namespace's inode.
    mounts: BTreeMap<u32, Vec<Mount>>,
    /// Namespaces that the host itself has mounted, by inode.
    by_host: BTreeSet<u32>,
    /// The last look at the mounts missed none.
    mounts_whole: bool,
    mounts_not_before: u64,
    fds: FdSearch,
}

/// A path at which a namespace is mounted.
#[derive(Debug)]
struct Mount {
    path: PathBuf,
    /// The mount namespaces that have it there.
    mount_ns: Vec<u32>,
}

/// What was last told of a namespace, as far as a change of it matters.
#[derive(Debug, PartialEq)]
struct LastHolders {
    tasks: Vec<(u32, Option<u64>, bool)>,
    task_count: usize,
    mounts: Vec<PathBuf>,
    fds: Vec<FdHolder>,
}

impl Holders {
    pub(super) fn new() -> Self {
        Self {
            told: HashMap::new(),
            not_before: 0,
            looks: Share::new(SHARE, BURST, MAX_PAUSE),
            mounts: BTreeMap::new(),
            by_host: BTreeSet::new(),
            mounts_whole: false,
            mounts_not_before: 0,
            fds: FdSearch::default(),
        }
    }

    /// Whether the last look is long enough ago.
    pub(super) fn may_look(&self, time: u64) -> bool {
        time >= self.not_before
    }

    /// When the next look may be.
    pub(super) fn not_before(&self) -> u64 {
        self.not_before
    }

    /// A look has taken from `start` to `end`.
    pub(super) fn looked(&mut self, start: u64, end: u64) {
        self.looks.spend(start, end);
        self.not_before = self.looks.not_before().max(start + PAUSE);
    }

    /// A namespace is gone, and its mounts with it: the next one may get its
    /// number before they are looked at again.
    pub(super) fn forget(&mut self, netns: Netns) {
        self.told.remove(&netns);
        self.mounts.remove(&netns.inode);
        self.fds.found.remove(&netns);
    }

    /// Takes in the mounts that were found. If not the `whole` of them could be
    /// read, those in mount namespaces that none was found of are what they were.
    fn mounted(&mut self, found: BTreeMap<u32, Vec<NsfsMount>>, whole: bool) {
        let before = std::mem::take(&mut self.mounts);
        let by_host = |mounts: &Vec<NsfsMount>| mounts.iter().any(|mount| mount.host);
        let of_host = found.iter().filter(|(_, mounts)| by_host(mounts));
        self.by_host = of_host.map(|(inode, _)| *inode).collect();
        let all = found.values().flatten();
        let read: HashSet<u32> = all.map(|mount| mount.mount_ns).collect();
        for (inode, mounts) in found {
            for mount in mounts {
                self.add_mount(inode, mount.on_node(), mount.mount_ns);
            }
        }
        self.mounts_whole = whole;
        if whole {
            return;
        }
        for (inode, mounts) in before {
            for Mount { path, mount_ns } in mounts {
                for unread in mount_ns.into_iter().filter(|ns| !read.contains(ns)) {
                    self.add_mount(inode, path.clone(), unread);
                }
            }
        }
    }

    /// Whether the host, which only root may let mount anything, has mounted it.
    pub(super) fn is_mounted_by_host(&self, inode: u32) -> bool {
        self.by_host.contains(&inode)
    }

    /// By which task a mount was told that is not the node's.
    fn tid_of(&self, inode: u32, mount: &NsfsMount) -> Option<u32> {
        let mut told = self.mounts.get(&inode)?.iter();
        told.find_map(|told| match place(&told.path) {
            Place::Process(tid, path) | Place::User(tid, path)
                if path == mount.path && told.mount_ns.contains(&mount.mount_ns) =>
            {
                Some(tid)
            }
            _ => None,
        })
    }

    /// A mount stays told by the same task as long as that has it: in a container
    /// that starts a process each second another one can be the first.
    fn keep_tids(
        &self,
        found: &mut BTreeMap<u32, Vec<NsfsMount>>,
        mount_ns_of: &dyn Fn(u32) -> Option<u32>,
    ) {
        let mut there = HashMap::new();
        for (inode, mounts) in found {
            for mount in mounts.iter_mut().filter(|mount| !mount.host) {
                let told = self.tid_of(*inode, mount);
                let Some(tid) = told.filter(|tid| *tid != mount.tid) else {
                    continue;
                };
                let mount_ns = *there.entry(tid).or_insert_with(|| mount_ns_of(tid));
                if mount_ns == Some(mount.mount_ns) {
                    mount.tid = tid;
                }
            }
        }
    }

    fn add_mount(&mut self, inode: u32, path: PathBuf, mount_ns: u32) {
        let mounts = self.mounts.entry(inode).or_default();
        let told = mounts.iter_mut().find(|mount| is_same(&mount.path, &path));
        if let Some(mount) = told {
            if mount.mount_ns.len() < MAX_MOUNTS {
                mount.mount_ns.push(mount_ns);
            }
            if matches!(place(&path), Place::Node(_)) {
                mount.path = path;
            }
        } else if mounts.len() < MAX_MOUNTS {
            let mount_ns = vec![mount_ns];
            mounts.push(Mount { path, mount_ns });
        }
    }

    /// The mounts and descriptors to be told of a namespace in which so many
    /// tasks were found; `None` while it is not known whether there are none.
    fn of(
        &self,
        netns: Netns,
        task_count: usize,
        tasks_whole: bool,
    ) -> Option<(Vec<PathBuf>, Vec<FdHolder>)> {
        let fds = self.fds.of(netns)?.to_vec();
        let mounts = self.mounts.get(&netns.inode).into_iter().flatten();
        let mounts: Vec<PathBuf> = mounts.map(|mount| mount.path.clone()).collect();
        let none = mounts.is_empty() && fds.is_empty();
        let known = task_count > 0 || (tasks_whole && (self.mounts_whole || !none));
        known.then_some((mounts, fds))
    }
}

impl Live {
    /// Tells the holders of every namespace but the host's where they have
    /// changed. `all` must hold every task outside the initial namespace.
    pub(super) fn look_at_holders(&mut self, all: &[TaskEntry], first: bool, out: &mut Vec<Event>) {
        let start = now();
        if first || start >= self.holders.mounts_not_before {
            self.look_at_mounts();
            let took = now() - start;
            self.holders.mounts_not_before = start + MOUNTS_PAUSE.max(took * MOUNTS_SHARE);
        }
        let living: HashMap<u32, Netns> = self
            .nets
            .living()
            .chain(self.user_nets.living())
            .filter(|netns| !self.is_hosts(netns.inode))
            .map(|netns| (netns.inode, netns))
            .collect();
        let mut by_netns: HashMap<Netns, Vec<&TaskEntry>> =
            living.values().map(|netns| (*netns, Vec::new())).collect();
        for entry in all {
            let row = &entry.row;
            let outside = row.net_address != self.init_net && !self.is_hosts(row.task.net_inum);
            if outside && let Some(mut netns) = self.netns_of_row(row) {
                if netns.cookie.is_none() {
                    netns = living.get(&netns.inode).copied().unwrap_or(netns);
                }
                // Of one that is not followed nothing is told.
                if let Some(entries) = by_netns.get_mut(&netns) {
                    entries.push(entry);
                }
            }
        }
        // One that was told by another name than it was destroyed by stays else.
        let told = &mut self.holders.told;
        told.retain(|netns, _| by_netns.contains_key(netns));
        let by_netns: Vec<(Netns, usize, Vec<&TaskEntry>)> = by_netns
            .into_iter()
            .map(|(netns, entries)| (netns, entries.len(), first_ones(entries)))
            .collect();
        let named = by_netns.iter().flat_map(|(_, _, entries)| entries);
        let named: Vec<_> = named.map(|entry| tasks::key(&entry.row.task)).collect();
        self.owners
            .forget_all_but(all.iter().map(|entry| tasks::key(&entry.row.task)));
        self.owners.look_up(&named);
        let unheld = by_netns
            .iter()
            .filter(|(netns, count, _)| {
                *count == 0 && !self.holders.mounts.contains_key(&netns.inode)
            })
            .map(|(netns, ..)| *netns)
            .collect();
        self.look_at_fds(unheld, first);
        let time = self.time(start);
        for (netns, task_count, entries) in by_netns {
            let Some((mounts, fds)) = self.holders.of(netns, task_count, self.tasks_whole) else {
                continue;
            };
            let mut held: Vec<Task> = Vec::new();
            for entry in entries {
                let owner = self.owners.of(&entry.row.task);
                held.push(tasks::listed(entry, owner, self.clock));
            }
            let told = LastHolders {
                tasks: held
                    .iter()
                    .map(|t| (t.tid, t.start_ticks, t.is_in_d()))
                    .collect(),
                task_count,
                // By which task of a container matters where the mount does.
                mounts: match task_count {
                    0 => mounts.clone(),
                    _ => mounts
                        .iter()
                        .map(|path| name(path).map_or(path.clone(), Cow::into_owned))
                        .collect(),
                },
                fds: fds.clone(),
            };
            let changed = self.holders.told.get(&netns) != Some(&told);
            let length: usize = mounts.iter().map(|path| path.as_os_str().len()).sum();
            if changed && self.user_nets.tells(netns, 1 + length / 256, start) {
                self.holders.told.insert(netns, told);
                let what = What::NetnsHolders {
                    netns,
                    tasks: held,
                    task_count,
                    mounts,
                    fds,
                    sockets: Vec::new(),
                };
                out.push(Event { time, what });
            }
        }
    }

    /// Whether a namespace is the host's. Where namespaces are listed by
    /// comparison, its address is its number.
    fn is_hosts(&self, inode: u32) -> bool {
        self.nets.host.has(inode) || u64::from(inode) == self.init_net
    }

    pub(super) fn look_at_mounts(&mut self) {
        match self.procfs.nsfs_mounts() {
            Ok(mut found) => {
                let mount_ns_of = |tid| self.procfs.mount_ns_of(tid);
                self.holders.keep_tids(&mut found.mounts, &mount_ns_of);
                self.holders.mounted(found.mounts, !found.partial);
                for error in found.unread {
                    tracing::debug!("{}", event::fault::chain(&error));
                }
            }
            Err(error) => {
                tracing::warn!("{}", event::fault::chain(&error));
                self.holders.mounts_whole = false;
                self.drop("mounts-unreadable", 1);
            }
        }
    }
}

/// The tasks worth naming: stuck ones first, then one a process, oldest first.
fn first_ones(mut entries: Vec<&TaskEntry>) -> Vec<&TaskEntry> {
    let rank = |entry: &TaskEntry| {
        let row = &entry.row;
        (
            !tasks::is_blocked(entry),
            row.task.tid != row.task.tgid,
            row.task.start_boottime,
            row.task.tid,
        )
    };
    entries.order_by_key(|entry| rank(entry));
    entries.truncate(MAX_HOLDERS);
    entries
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    pub(super) fn netns(inode: u32) -> Netns {
        Netns {
            inode,
            cookie: None,
        }
    }

    const HOST: u32 = 1;
    const OTHER: u32 = 2;

    /// The paths of a namespace, each in a mount namespace.
    fn mounts(inode: u32, all: &[(&str, u32)]) -> BTreeMap<u32, Vec<NsfsMount>> {
        let mount = |(path, mount_ns): &(&str, u32)| NsfsMount {
            path: PathBuf::from(path),
            mount_ns: *mount_ns,
            tid: 7,
            host: *mount_ns == HOST,
            of_user: false,
        };
        BTreeMap::from([(inode, all.iter().map(mount).collect())])
    }

    /// What is told of a namespace without tasks, where all tasks are listed.
    fn told(holders: &Holders, inode: u32) -> Option<(Vec<PathBuf>, Vec<FdHolder>)> {
        holders.of(netns(inode), 0, true)
    }

    fn mounted_at(path: &str) -> Option<(Vec<PathBuf>, Vec<FdHolder>)> {
        Some((vec![PathBuf::from(path)], Vec::new()))
    }

    #[test]
    fn mounts_that_cannot_be_read_are_what_they_were() {
        let mut holders = Holders::new();
        let all = [("/a", HOST), ("/a", OTHER), ("/b", HOST)];
        holders.mounted(mounts(100, &all), true);
        holders.mounted(mounts(200, &[("/c", HOST)]), false);
        assert_eq!(told(&holders, 100), mounted_at("/a"), "of the other alone");
        assert_eq!(told(&holders, 200), mounted_at("/c"));
        holders.mounted(BTreeMap::new(), false);
        assert_eq!(told(&holders, 100), mounted_at("/a"));
        holders.mounted(mounts(200, &[("/c", HOST)]), true);
        assert_eq!(told(&holders, 100), Some((vec![], vec![])));
    }

    #[test]
    fn mounts_that_are_never_read_again_are_remembered_to_a_limit() {
        let mut holders = Holders::new();
        for mount_ns in 0..100 {
            let path = format!("/{mount_ns}");
            let all = [("/a", mount_ns), (path.as_str(), mount_ns)];
            holders.mounted(mounts(100, &all), false);
        }
        let all = &holders.mounts[&100];
        assert_eq!((all.len(), all[0].mount_ns.len()), (MAX_MOUNTS, MAX_MOUNTS));
        let newest = Path::new("/proc/7/root/99");
        assert_eq!(all[1].path, newest, "what is there comes first");
    }

    #[test]
    fn a_mount_stays_told_by_the_task_that_has_it() {
        let mut holders = Holders::new();
        holders.mounted(mounts(100, &[("/a", OTHER)]), true);
        let told_by = |mount_ns: Option<u32>| {
            let mut found = mounts(100, &[("/a", OTHER)]);
            found.get_mut(&100).unwrap()[0].tid = 3;
            holders.keep_tids(&mut found, &|_| mount_ns);
            found[&100][0].tid
        };
        assert_eq!(told_by(Some(OTHER)), 7);
        assert_eq!(told_by(Some(HOST)), 3, "the number is another's now");
        assert_eq!(told_by(None), 3);
    }

    #[test]
    fn what_may_be_held_unseen_is_not_told_as_held_by_nothing() {
        let mut holders = Holders::new();
        let nothing = Some((vec![], vec![]));
        assert_eq!(told(&holders, 100), None, "no look has succeeded");
        holders.mounted(mounts(200, &[("/c", HOST)]), false);
        assert_eq!(told(&holders, 100), None);
        assert_eq!(holders.of(netns(100), 1, true), nothing, "but by a task");
        holders.mounted(mounts(200, &[("/c", HOST)]), true);
        assert_eq!(told(&holders, 100), nothing);
        assert_eq!(holders.of(netns(100), 0, false), None);
        assert_eq!(holders.of(netns(200), 0, false), None, "one may be in it");
        assert_eq!(holders.of(netns(100), 1, false), nothing);
    }

    #[test]
    fn the_mounts_of_one_that_is_gone_are_not_the_next_ones() {
        let mut holders = Holders::new();
        for inode in [100, 200] {
            let path = PathBuf::from(format!("/run/netns/cni-{inode}"));
            holders.add_mount(inode, path, HOST);
        }
        holders.forget(netns(100));
        let left: Vec<&u32> = holders.mounts.keys().collect();
        assert_eq!(left, [&200]);
    }
}
