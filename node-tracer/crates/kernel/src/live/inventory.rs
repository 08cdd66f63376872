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

use node_tracer_ebpf::record::{COMM_LEN, Net, NetUser, Owner, Task as KernelTask, TaskRow, owner};

use super::{
    Live,
    nets::{List, ListedNet},
    now,
    reading::seen,
    tasks,
};
use crate::ebpf::{ProbeError, inventory::TaskEntry};
use event::order::Order as _;
use event::{NotStuck, has_room, sleep};
use node::{
    netlink::{self, NetlinkError, Snapshot, Way},
    procfs::{self, Bounded, NoAnswer, Procfs, ProcfsError, Whose},
};

/// How long rtnetlink may take in one namespace.
const NETLINK_PATIENCE: Duration = Duration::from_millis(500);
/// Nanoseconds of a clock tick in /proc.
const TICK: u64 = 10_000_000;

/// Why something cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// /proc failed.
    #[error(transparent)]
    Procfs(#[from] ProcfsError),
}

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
            let mut tasks = probes.tasks(outside_only.then_some(self.init_net))?;
            self.note_not_stuck(&mut tasks);
            return Ok(tasks);
        }
        let tasks = self.procfs.tasks()?;
        self.tasks_whole = tasks.missed.count == 0;
        Ok(entries(&self.procfs, &tasks.list))
    }

    /// Notes who of an iterator's tasks is in state D and not stuck.
    fn note_not_stuck(&self, tasks: &mut [TaskEntry]) {
        let (mut unplaced, mut workers) = (Vec::new(), Vec::new());
        for entry in tasks.iter_mut() {
            if tasks::is_frozen(&entry.row) {
                entry.not_stuck = Some(NotStuck::Frozen);
            } else if tasks::is_blocked(entry) && tasks::is_kernel_thread(&entry.row) {
                let place = tasks::place(entry, self.symbols.as_ref());
                if place.is_empty() || sleep::has_any(sleep::FUSE, &place) {
                    workers.push(entry.row.task.tid);
                }
            } else if tasks::is_blocked(entry) {
                let place = tasks::place(entry, self.symbols.as_ref());
                entry.not_stuck = sleep::not_stuck(&place, None);
                if place.is_empty() {
                    unplaced.push(entry.row.task.tid);
                }
            }
        }
        let found = self.procfs.not_stuck(unplaced);
        if !found.is_empty() {
            for entry in tasks.iter_mut().filter(|entry| entry.not_stuck.is_none()) {
                entry.not_stuck = found.get(&entry.row.task.tid).copied();
            }
        }
        if !workers.is_empty() {
            let workers = tasks.iter_mut().filter(|entry| {
                let tid = entry.row.task.tid;
                tasks::is_kernel_thread(&entry.row) && workers.contains(&tid)
            });
            give_owners(&self.procfs, workers.collect());
        }
    }

    /// Every namespace with its addresses; `None` if the list did not hold
    /// still. `tasks`: all tasks outside the host's namespace, if they have
    /// just been listed.
    pub(super) fn list_nets(
        &mut self,
        tasks: Option<&[TaskEntry]>,
    ) -> Result<Option<List>, InventoryError> {
        let start = now();
        let limit = self.item_limit();
        if let (true, Some(probes)) = (self.iterators.nets, &mut self.probes) {
            let entries = probes.netns(self.init_net, limit)?;
            return Ok(entries.map(|entries| List {
                nets: entries.iter().map(|entry| seen(entry, limit)).collect(),
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
                user: NetUser::default(),
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
                user: NetUser::default(),
            };
            let (_, ways) = found.entry(inode).or_insert((net, Vec::new()));
            for mount in mounts.iter().take(MAX_WAYS) {
                ways.push(Way::Mount {
                    root: self.procfs.root_path(mount.tid),
                    path: mount.path.clone(),
                });
            }
        }
        // What only a mount leads to comes last: any user can put one where it
        // hangs.
        let mut found: Vec<(Net, Vec<Way>)> = found.into_values().collect();
        found.order_by_key(|(_, ways)| !matches!(ways.first(), Some(Way::File(_))));
        self.unread.begin(start);
        let mut all = 0;
        let mut nets = Vec::new();
        for (mut net, ways) in found {
            let read = self.unread.read(net.inum, &ways, netlink::addresses);
            let user_ns = read.as_ref().and_then(|snapshot| snapshot.user_ns);
            net.user = user_ns.map_or(net.user, |user_ns| NetUser {
                inum: user_ns.inode,
                owner: user_ns.uid,
            });
            let cut = read.as_ref().is_some_and(|snapshot| snapshot.cut);
            let mut left_out = u64::from(cut);
            let addresses = read.map(|snapshot| {
                let mut kept = BTreeSet::new();
                for address in snapshot.addresses {
                    match has_room(kept.len(), all + kept.len()) {
                        true => _ = kept.insert(address),
                        false => left_out += 1,
                    }
                }
                kept
            });
            all += addresses.as_ref().map_or(0, BTreeSet::len);
            nets.push(ListedNet {
                net,
                addresses,
                cut: false,
                left_out,
            });
        }
        Ok(List {
            nets,
            whole: self.tasks_whole && !mounts.partial,
            start,
            end: now(),
        })
    }
}

/// Namespaces whose addresses a comparison could not read.
///
/// A read hangs for one of two reasons. What leads to the namespace lies on a
/// file system that hangs: that costs this namespace alone, and it is left
/// alone for a while. Or the namespace was entered, and somebody does not let go
/// of the kernel's RTNL lock: that is behind all of them, so the second one of
/// these is the last that is tried before one of them ends.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// Reads that hang, or did a short while ago.
    hung: BTreeMap<u32, Hung>,
    /// Namespaces that the last comparison could not read, and why.
    missed: BTreeMap<u32, String>,
    /// Those of the one before: one that ends meanwhile is missed once.
    before: BTreeMap<u32, String>,
    /// The time of that comparison, ns.
    time: u64,
}

#[derive(Debug)]
struct Hung {
    /// Whose thread it is.
    bounded: Bounded,
    /// Since when, ns.
    since: u64,
    /// It waits in the namespace, not on the way.
    arrived: bool,
}

/// How long a way that hung is left alone, ns.
const WAY_PAUSE: u64 = 60_000_000_000;
/// Reads that may hang in namespaces before no other is begun.
const MAX_ARRIVED: usize = 2;
/// Reads that may hang at the same time.
const MAX_HUNG: usize = 8;
/// Namespaces that are named.
const MAX_NAMED: usize = 4;

type Read = fn(&Way, &Bounded, Duration) -> Result<Snapshot, NetlinkError>;

impl Unread {
    fn begin(&mut self, time: u64) {
        self.time = time;
        self.before = std::mem::take(&mut self.missed);
        self.hung.retain(|_, hung| {
            let hangs = hung.bounded.abandoned() > 0;
            hangs || (!hung.arrived && time.saturating_sub(hung.since) < WAY_PAUSE)
        });
    }

    /// What is in a namespace, by the first way that leads there; `None` if none
    /// does.
    fn read(&mut self, inode: u32, ways: &[Way], read: Read) -> Option<Snapshot> {
        let arrived = self.hung.values().filter(|hung| hung.arrived).count();
        // Of the ways of tasks none has its own file system.
        let is_safe = matches!(ways.first(), Some(Way::File(_)));
        let is_full = self.hung.len() >= MAX_HUNG && !is_safe;
        if arrived >= MAX_ARRIVED || is_full || self.hung.contains_key(&inode) {
            let why = self.before.get(&inode).cloned();
            let not_tried = || String::from("not tried, as other reads hang");
            self.missed.insert(inode, why.unwrap_or_else(not_tried));
            return None;
        }
        for way in ways {
            let bounded = Bounded::default();
            let error = match read(way, &bounded, NETLINK_PATIENCE) {
                Ok(snapshot) if snapshot.inode == inode => return Some(snapshot),
                Ok(_) => continue, // the path leads elsewhere by now
                Err(error) => error,
            };
            self.missed.insert(inode, event::fault::chain(&error));
            let arrived = match error {
                NetlinkError::NoAnswer {
                    source: NoAnswer::TimedOut { .. },
                    ..
                } => true,
                NetlinkError::WayHangs {
                    source: NoAnswer::TimedOut { .. },
                    ..
                } => false,
                _ => continue,
            };
            let hung = Hung {
                bounded,
                since: self.time,
                arrived,
            };
            self.hung.insert(inode, hung);
            break;
        }
        None
    }

    /// Why addresses are not known, if that is so.
    pub(super) fn gap(&self) -> Option<String> {
        let is_told =
            |inode: &u32| self.hung.contains_key(inode) || self.before.contains_key(inode);
        let missed: Vec<_> = self
            .missed
            .iter()
            .filter(|(inode, _)| is_told(inode))
            .collect();
        let (_, why) = missed.first()?;
        let named = missed.iter().take(MAX_NAMED);
        let named: Vec<String> = named.map(|(inode, _)| inode.to_string()).collect();
        let more = match missed.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "the addresses of netns {}{more} could not be read: {why}",
            named.join(", ")
        ))
    }
}

/// Ways into a namespace that are tried.
const MAX_WAYS: usize = 3;

/// Tasks of /proc as the iterator would show them.
pub(super) fn entries(procfs: &Procfs, tasks: &[procfs::TaskEntry]) -> Vec<TaskEntry> {
    let mut entries: Vec<TaskEntry> = tasks.iter().map(entry).collect();
    let asleep = entries.iter_mut().filter(|entry| tasks::is_blocked(entry));
    give_owners(procfs, asleep.collect());
    entries
}

/// Asks /proc who answers for these tasks.
fn give_owners(procfs: &Procfs, mut tasks: Vec<&mut TaskEntry>) {
    let tids = tasks.iter().map(|entry| entry.row.task.tid).collect();
    for (entry, owner) in tasks.iter_mut().zip(owners(procfs, tids)) {
        entry.row.owner = owner;
    }
}

/// Who answers for these threads, in their order, as far as /proc tells it. Of
/// those that it does not tell it of, nobody that can be told apart.
pub(super) fn owners(procfs: &Procfs, tids: Vec<u32>) -> impl Iterator<Item = Owner> {
    procfs.whose(tids).into_iter().map(|whose| {
        let (kind, id) = match whose {
            Whose::Host => return Owner::HOST,
            Whose::Container(inode) => (owner::CONTAINER, inode),
            Whose::User(u32::MAX) => return Owner::default(),
            Whose::User(uid) => (owner::USER, uid),
        };
        Owner { kind, id }
    })
}

fn entry(entry: &procfs::TaskEntry) -> TaskEntry {
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
            flags: match task.kernel_thread {
                true => tasks::PF_KTHREAD,
                false => 0,
            },
            owner: Owner::HOST,
            ..TaskRow::default()
        },
        stack: Vec::new(),
        not_stuck: task.not_stuck,
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
    /// When it last ran before that, by the scheduler's clock; 0 if not known.
    last_ran: u64,
    reported: bool,
    task: KernelTask,
    owner: Owner,
}

impl Asleep {
    fn awake(&self) -> Awake {
        Awake {
            task: self.task,
            owner: self.owner,
            since: self.since,
        }
    }
}

/// A sleep that was reported and is over.
#[derive(Debug)]
pub(super) struct Awake {
    pub(super) task: KernelTask,
    pub(super) owner: Owner,
    /// Since when it was first seen.
    pub(super) since: u64,
}

/// What a look has brought.
#[derive(Debug, Default)]
pub(super) struct PolledLook {
    /// Past the threshold now: thread ID to the time it was first seen asleep.
    pub(super) due: HashMap<u32, u64>,
    /// Reported before, and awake.
    pub(super) awake: Vec<Awake>,
}

impl Polled {
    /// The tasks that were found asleep, by thread ID.
    pub(super) fn asleep(&self) -> impl Iterator<Item = u32> {
        self.asleep.keys().map(|(tid, _)| *tid)
    }

    /// Those whose stall was due: thread ID, owner, and since when.
    pub(super) fn reported(&self) -> impl Iterator<Item = (u32, Owner, u64)> {
        let reported = self.asleep.values().filter(|asleep| asleep.reported);
        reported.map(|asleep| (asleep.task.tid, asleep.owner, asleep.since))
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
        for entry in tasks.iter().filter(|entry| tasks::is_blocked(entry)) {
            let TaskRow {
                task,
                exec_start,
                owner,
                ..
            } = entry.row;
            let known = before.remove(&tasks::key(&task));
            let (same, ran) = match known {
                Some(known) if known.last_ran == exec_start => (Some(known), None),
                other => (None, other),
            };
            let ran = ran.filter(|asleep| asleep.reported);
            look.awake.extend(ran.map(|asleep| asleep.awake()));
            let mut asleep = same.unwrap_or(Asleep {
                since: now,
                last_ran: exec_start,
                reported: false,
                task,
                owner,
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
        look.awake.extend(awake.map(|asleep| asleep.awake()));
        look
    }

    /// Takes in a task whose sleep is known to have begun earlier.
    pub(super) fn seed(&mut self, row: &TaskRow, since: u64, reported: bool) {
        self.asleep.insert(
            tasks::key(&row.task),
            Asleep {
                since,
                last_ran: row.exec_start,
                reported,
                task: row.task,
                owner: row.owner,
            },
        );
    }

    /// Since when a task sleeps is known by now, and whether it is reported for
    /// that.
    pub(super) fn dated(&mut self, tid: u32, since: u64, reported: bool) {
        let mut asleep = self.asleep.values_mut();
        if let Some(asleep) = asleep.find(|asleep| asleep.task.tid == tid) {
            (asleep.since, asleep.reported) = (since, reported);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(tid: u32) -> TaskEntry {
        let mut entry = TaskEntry {
            row: TaskRow::default(),
            stack: Vec::new(),
            not_stuck: None,
        };
        entry.row.task.tid = tid;
        entry.row.state = tasks::state_bits('D');
        entry
    }

    /// A look that misses nothing.
    fn look(polled: &mut Polled, tasks: &[TaskEntry], now: u64) -> PolledLook {
        polled.look(tasks, &BTreeSet::new(), now, 50)
    }

    fn way(name: &str) -> [Way; 1] {
        match name {
            "task" => [Way::File("/proc/7/ns/net".into())],
            name => [Way::Mount {
                root: "/proc/7/root".into(),
                path: name.into(),
            }],
        }
    }

    /// A read that hangs on the way, or once it has arrived, unless the way is a
    /// good one.
    fn hangs(way: &Way, bounded: &Bounded, _: Duration) -> Result<Snapshot, NetlinkError> {
        let (wait, path) = match way {
            Way::Mount { path, .. } if path.ends_with("hangs") => (true, path.clone()),
            Way::Mount { path, .. } if path.ends_with("lock") => (true, path.clone()),
            _ => (false, "".into()),
        };
        let read = move || {
            if wait {
                loop {
                    std::thread::park();
                }
            }
        };
        match bounded.run_apart(Duration::from_millis(20), read) {
            Ok(()) => Ok(Snapshot {
                user_ns: None,
                inode: 1,
                addresses: Vec::new(),
                cut: false,
            }),
            Err(source) if path.ends_with("lock") => Err(NetlinkError::NoAnswer { path, source }),
            Err(source) => Err(NetlinkError::WayHangs { path, source }),
        }
    }

    #[test]
    fn a_way_that_hangs_costs_its_own_namespace_and_that_is_said() {
        let mut unread = Unread::default();
        unread.begin(1);
        assert!(unread.read(1, &way("task"), hangs).is_some());
        assert_eq!(unread.gap(), None);
        for inode in 10..30 {
            assert!(unread.read(inode, &way("hangs"), hangs).is_none());
        }
        assert_eq!(unread.hung.len(), MAX_HUNG, "no more threads");
        assert!(unread.read(1, &way("task"), hangs).is_some());
        let told = unread.gap().unwrap();
        assert!(told.contains("netns 10, 11, 12, 13 and"), "{told}");
        unread.begin(2);
        assert_eq!(unread.gap(), None);
        assert!(unread.read(10, &way("task"), hangs).is_none(), "left alone");
    }

    #[test]
    fn a_lock_that_is_not_let_go_is_waited_for_twice() {
        let mut unread = Unread::default();
        unread.begin(1);
        for inode in 10..30 {
            assert!(unread.read(inode, &way("lock"), hangs).is_none());
        }
        assert_eq!(unread.hung.len(), MAX_ARRIVED);
        assert!(unread.read(1, &way("task"), hangs).is_none());
        assert!(unread.gap().unwrap().contains("no answer within"));
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
    fn a_task_that_has_run_between_two_looks_sleeps_anew() {
        let mut polled = Polled::default();
        let ran = |last_ran| {
            let mut entry = blocked(1);
            entry.row.exec_start = last_ran;
            [entry]
        };
        look(&mut polled, &ran(5), 100);
        assert!(look(&mut polled, &ran(6), 150).due.is_empty());
        let due = HashMap::from([(1, 150)]);
        assert_eq!(look(&mut polled, &ran(6), 200).due, due);
        let busy = look(&mut polled, &ran(7), 250);
        assert_eq!((busy.awake.len(), busy.due.len()), (1, 0));
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
