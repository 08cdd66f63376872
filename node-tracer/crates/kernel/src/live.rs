//! The running kernel as a source of events: takes stock, then turns kernel
//! records into events and looks again where a record only says that
//! something has happened.

mod all_nets;
mod allowance;
mod budget;
mod cni;
mod crowds;
mod holders;
mod inventory;
mod nets;
mod reading;
mod records;
mod repeats;
mod stalls;
mod start;
mod tasks;
mod user_nets;

pub use self::all_nets::{AllNets, AllNetsError, ListedNetns};
#[cfg(feature = "testing")]
pub use self::cni::fuzz;

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use node_tracer_ebpf::record::{self, TaskRow};
use tokio::io::{Interest, unix::AsyncFd};

use self::{
    budget::Apart,
    cni::CniTable,
    crowds::Crowds,
    holders::Holders,
    inventory::{Iterators, Polled, Unread},
    nets::{ListedNet, NetTable},
    reading::Readings,
    repeats::Repeats,
    stalls::ReportedStall,
    tasks::Owners,
    user_nets::UserNets,
};
use super::ebpf::{
    Probes,
    plan::{Mechanism, Plan, Signal},
    records::Record,
    symbols::Symbols,
};
use event::{Event, Netns, What, clock::Timestamp};
use node::procfs::{FuseServers, HostUsers, Procfs};
use sys::{
    clock::{KernelClock, monotonic_now as now},
    share::Share,
};

/// What the source is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// From when on a stall is reported.
    pub stall_threshold: Duration,
}

/// Records taken from the ring buffer before the caller gets a turn.
const BATCH: usize = 4096;
/// Batches taken before a walk.
const BATCHES: usize = 4;
/// Pause between walks; more if a walk takes long.
const WALK_PAUSE: u64 = 2_000_000;
/// The same for a comparison, which takes longer.
const COMPARISON_PAUSE: u64 = 100_000_000;
/// Walks take at most one part in so many of the time, and after a rest so much
/// of it at once. (A comparison, which is all there is then, takes more.)
const WALK_SHARE: u64 = 200;
const COMPARISON_SHARE: u64 = 20;
const WALK_BURST: u64 = 20 * MILLISECOND;
/// But none is put off for longer, however long they take.
const MAX_WALK_PAUSE: u64 = 500 * MILLISECOND;
/// One that no record asked for, at rest, does not take more than this part
/// where records ask for most: the list is as long as there are pods.
const UNASKED_SHARE: u64 = 1_000;
/// But is not put off for longer, however long the last one took.
const UNASKED_PAUSE: u64 = 10 * SECOND;
/// A look at the kernel's worker takes at most one part in so many of the time.
const WORKER_SHARE: u64 = 100;
/// When the list is looked at after a device change, and again as long as
/// nothing new is on it: a namespace comes shortly after its loopback device.
const AFTER_DEVICE: u64 = 1_000_000;
/// When it is looked at after `cleanup_net` was queued: it has begun by then, so
/// that one walk does for both.
const AFTER_CLEANUP: u64 = 3_000_000;
/// When it is looked at again otherwise.
const AFTER_WALK: u64 = 10_000_000;
/// The same while `cleanup_net` runs: a record tells when it has returned.
const WHILE_CLEANING: u64 = 250 * MILLISECOND;
/// A plugin has read its configuration by then.
const AFTER_START: u64 = 100_000_000;
const SECOND: u64 = 1_000_000_000;

/// The source. Kernel programs are attached while it lives.
pub struct Live {
    probes: Option<Probes>,
    plan: Plan,
    /// What never has anything to read, where there are no probes.
    silence: (io::PipeReader, io::PipeWriter),
    procfs: Procfs,
    config: Config,
    symbols: Option<Symbols>,
    clock: KernelClock,
    init_net: u64,
    host_users: HostUsers,
    nets: NetTable,
    user_nets: UserNets,
    cni: CniTable,
    /// The process that listens on the runtime's socket, once it was asked.
    listener: Option<u32>,
    /// CNI calls that are not trusted.
    callers: Apart<Repeats>,
    /// Tasks that were chosen to be killed.
    kills: Apart<Repeats>,
    /// Who serves the FUSE mounts that stuck tasks wait for.
    fuse: FuseServers,
    owners: Owners,
    holders: Holders,
    iterators: Iterators,
    /// The last list of tasks lacks none.
    tasks_whole: bool,
    /// Namespaces whose addresses cannot be read.
    unread: Unread,
    /// Namespaces whose addresses are read apart.
    readings: Readings,
    /// Records tell of namespaces and addresses, so that few walks are for what
    /// no record tells.
    asked: bool,
    /// Stalls, where no hook tells of them.
    polled: Option<Polled>,
    /// Stalls of many tasks of one owner.
    crowds: Apart<Crowds>,
    /// Tasks that were found asleep and are not in the kernel's table, by thread
    /// ID: when they had started, and since when they are seen asleep.
    unfollowed: HashMap<u32, (u64, u64)>,
    /// Stalls that were told and have not ended, by thread ID.
    told: HashMap<u32, ReportedStall>,
    /// Sleeps whose beginning nobody saw: since when they were seen, by thread
    /// ID.
    undated: HashMap<u32, u64>,
    /// Sleeps, by thread and beginning, that were seen not to be stalls.
    not_stuck: HashMap<u32, u64>,
    /// Sleeps past the threshold whose tasks the last look found awake though
    /// their ends are not recorded yet: since when, by thread ID.
    woken: HashMap<u32, u64>,
    /// Records that could not be handled, by cause.
    dropped: HashMap<&'static str, u64>,
    /// Inodes of namespaces that were made, and when their holders are to be
    /// looked for: nobody holds one that has ended by then.
    made: Vec<(u64, u32)>,
    due: Due,
}

/// When what is to be done next, monotonic ns.
#[derive(Debug)]
struct Due {
    walk: Option<u64>,
    walk_not_before: u64,
    walks: Share,
    /// The next that no record asks for.
    unasked_walk: u64,
    /// No look at the kernel's worker before this.
    worker: u64,
    holders: Option<u64>,
    /// The same, if one of the namespaces in [`Live::made`] still lives.
    made: Option<u64>,
    reading: Option<u64>,
    stalls: u64,
    /// The next look for tasks that the kernel's table has no room for.
    unfollowed: Option<u64>,
    second: u64,
}

impl Due {
    const fn new(iterators: Iterators) -> Self {
        let share = if iterators.nets {
            WALK_SHARE
        } else {
            COMPARISON_SHARE
        };
        Self {
            walk: None,
            walk_not_before: 0,
            walks: Share::new(share, WALK_BURST, MAX_WALK_PAUSE),
            unasked_walk: 0,
            worker: 0,
            holders: None,
            made: None,
            reading: None,
            stalls: 0,
            unfollowed: None,
            second: 0,
        }
    }

    fn walk_at(&mut self, time: u64) {
        let time = time.max(self.walk_not_before);
        self.walk = Some(self.walk.map_or(time, |due| due.min(time)));
    }

    fn holders_at(&mut self, time: u64) {
        self.holders = Some(self.holders.map_or(time, |due| due.min(time)));
    }

    fn next(&self) -> u64 {
        let optional = [
            self.walk,
            self.holders,
            self.made,
            self.reading,
            self.unfollowed,
        ];
        let optional = optional.into_iter().flatten();
        optional.fold(self.stalls.min(self.second), u64::min)
    }
}

impl Live {
    /// What each signal rests on.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Readable when there are records.
    ///
    /// # Errors
    /// There is no room for another descriptor, or no event loop.
    pub fn readable(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let ring = match &self.probes {
            Some(probes) => probes.as_fd(),
            None => self.silence.0.as_fd(),
        };
        let copy = ring.try_clone_to_owned()?;
        // SAFETY: nobody but the guard has the copy, and the guard closes it.
        let guard = unsafe { AsyncFd::register_with_interest(copy, Interest::READABLE) };
        Ok(guard?)
    }

    /// Believes CNI calls of the process that listens on the runtime's socket.
    pub fn trust(&mut self, listener: Option<u32>) {
        if listener == self.listener {
            return;
        }
        self.listener = listener;
        let mounts = listener.and_then(|pid| self.procfs.mount_namespace(pid));
        if let (Some(inode), Some(probes)) = (mounts, &mut self.probes) {
            probes.is_home(inode);
        }
    }

    /// Which namespace is the node's, by whoever knows. It is told where the host has
    /// others.
    pub fn node_is(&mut self, inode: u32, out: &mut Vec<Event>) {
        let hosts = self.nets.host;
        let is_only = inode == hosts.first && hosts.node.is_none() && !hosts.are_two;
        if is_only || hosts.node == Some(inode) {
            return;
        }
        // One that is not listed yet is asked for again.
        let mut living = self.nets.living();
        let Some(netns) = living.find(|netns| netns.inode == inode) else {
            return;
        };
        drop(living);
        self.nets.host.node = Some(inode);
        let what = What::NetnsFound {
            netns,
            host: true,
            node: true,
            user_ns: None,
        };
        let time = self.time(now());
        out.push(Event { time, what });
    }

    /// Asks for a new look at what holds each namespace.
    pub fn want_holders(&mut self) {
        self.due.holders_at(now());
    }

    /// How long until [`run_due`](Self::run_due) has something to do.
    pub fn pause(&self) -> Duration {
        Duration::from_nanos(self.due.next().saturating_sub(now()))
    }

    fn time(&self, monotonic: u64) -> Timestamp {
        self.clock.timestamp(monotonic)
    }

    /// Takes what is still waiting, and tells what was lost since the last
    /// time. Bounded: records may go on coming.
    pub fn finish(&mut self, out: &mut Vec<Event>) {
        self.look_at_nets(out);
        self.tell_callers(now(), true, out);
        self.tell_kills(now(), true, out);
        self.tell_crowds(now(), true, out);
        self.tell_losses(out);
    }

    /// Does what is due. `watched`: some finding wants fresh holders.
    pub fn run_due(&mut self, watched: bool, out: &mut Vec<Event>) {
        let time = now();
        if time >= self.due.second {
            self.clock = KernelClock::now();
            self.due.second = time + SECOND;
            if time >= self.due.unasked_walk {
                self.due.walk_at(time);
            }
            if watched || !self.told.is_empty() {
                self.due.holders_at(time);
            }
            self.tell_losses(out);
            self.look_for_withheld(time);
            self.tell_callers(time, false, out);
            self.tell_kills(time, false, out);
            self.tell_crowds(time, false, out);
            self.look_for_unfollowed(time);
            self.peek(time);
            self.ended_unseen(time, out);
        }
        if time >= self.due.stalls {
            self.look_at_stalls(time, out);
        }
        if self.due.unfollowed.is_some_and(|due| time >= due) {
            self.look_at_unfollowed(time, out);
        }
        if self.due.walk.is_some_and(|due| time >= due) {
            self.look_at_nets(out);
        }
        if self.due.reading.is_some_and(|due| time >= due) {
            self.read_on(out);
        }
        if self.due.made.is_some_and(|due| time >= due) {
            let old = self.made.partition_point(|(due, _)| *due <= time);
            let mut old = self.made.drain(..old);
            if old.any(|(_, inode)| self.nets.lives(inode)) {
                self.due.holders_at(time);
            }
            drop(old);
            self.due.made = self.made.first().map(|(due, _)| *due);
        }
        if self.due.holders.is_some_and(|due| time >= due) {
            self.due.holders = None;
            if self.holders.may_look(time) {
                match self.list_tasks(true) {
                    Ok(outside) => {
                        self.look_at_holders(&outside, false, out);
                        self.check_told(&outside, out);
                    }
                    Err(error) => self.failed(&error),
                }
                self.holders.looked(time, now());
            } else {
                self.due.holders_at(self.holders.not_before());
            }
        }
    }

    /// Has the kernel look into the pipes of plugins that do not end.
    fn peek(&mut self, time: u64) {
        let readable = self.plan.mechanism(Signal::CniResult) != Mechanism::None;
        if readable && self.cni.lacks_config(time.saturating_sub(AFTER_START)) {
            self.note(|probes| probes.peek());
        }
    }

    fn look_at_nets(&mut self, out: &mut Vec<Event>) {
        self.due.walk = None;
        let start = now();
        self.walk(out);
        let end = now();
        let pause = if self.iterators.nets {
            WALK_PAUSE
        } else {
            COMPARISON_PAUSE
        };
        let due = &mut self.due;
        due.walks.spend(start, end);
        due.walk_not_before = due.walks.not_before().max(end + pause);
        due.walk = due.walk.map(|time| time.max(due.walk_not_before));
        if self.asked {
            self.due.unasked_walk = end + UNASKED_PAUSE.min((end - start) * UNASKED_SHARE);
        }
    }

    fn walk(&mut self, out: &mut Vec<Event>) {
        // Records from before the walk come first. If they come faster than
        // they can be taken, the walk is late, not wrong.
        for _ in 0..BATCHES {
            if !self.drain(out) {
                break;
            }
        }
        self.look_at_worker();
        let start = now();
        let seen = match self.list_nets(None) {
            Ok(seen) => seen,
            Err(error) => {
                self.failed(&error);
                None
            }
        };
        let end = now();
        let Some(seen) = seen else {
            self.drop("netns-list-unreadable", 1);
            return self.due.walk_at(end + AFTER_WALK);
        };
        // Some records of the time of the walk explain what the list shows, and
        // come before it: a run of cleanup_net that began, devices that were
        // made, namespaces that are on it. All others come after.
        let waiting = self.fetch().0;
        let is_creation = |record: &Result<_, _>| matches!(record, Ok(Record::NetnsCreated(_)));
        let listed: HashMap<u64, u64> = match waiting.iter().any(is_creation) {
            true => seen.nets.iter(),
            false => [].iter(),
        }
        .map(|seen| (seen.net.address, seen.net.cookie))
        .collect();
        let mut changes = Vec::new();
        let mut seen = seen;
        let users = self.take_users(&mut seen.nets);
        self.user_nets
            .listed(users, seen.whole, start, &mut changes);
        let mut later = Vec::new();
        for record in waiting {
            match record {
                Ok(Record::CleanupStarted(started)) if started.header.time <= end => {
                    self.nets.cleanup_started(started.header.time);
                    self.due.walk_at(started.header.time + AFTER_CLEANUP);
                }
                Ok(Record::DeviceChanged(changed)) if changed.header.time <= end => {
                    self.nets.device_changed(changed.header.time, changed.task);
                }
                Ok(Record::NetnsCreated(made))
                    if listed.get(&made.net.address) == Some(&made.net.cookie) =>
                {
                    self.created(&made, &mut changes);
                }
                other => later.push(other),
            }
        }
        self.nets.walked(seen, &mut changes);
        self.tell(changes, out);
        self.take_all(later, out);
        if let Some(time) = self.nets.unannounced() {
            self.due.walk_at(time);
        }
        if self.nets.has_missing() {
            let cleaning = self.nets.is_cleaning();
            let after = if cleaning { WHILE_CLEANING } else { AFTER_WALK };
            self.due.walk_at(end + after);
        }
        if self.nets.expects_one() {
            self.due.walk_at(end + AFTER_DEVICE);
        }
        self.want_readings();
        self.tell_left_out(out);
        let overflow = self.nets.take_overflow();
        self.drop("netns-table-full", overflow);
        if let Some(others) = self.user_nets.others(end) {
            let user_nets::Others { count, uid } = others;
            let what = What::UntrustedNetns { uid, count };
            let time = self.time(end);
            out.push(Event { time, what });
        }
    }

    /// Takes the namespaces in users' user namespaces, and in those that root in
    /// a container has made, out of a list. Those that a CNI plugin was called
    /// for, or that the host has mounted, are the node's, as are the sandboxes
    /// of pods with `hostUsers: false`.
    fn take_users(&mut self, nets: &mut Vec<ListedNet>) -> Vec<ListedNet> {
        let all = std::mem::take(nets);
        let (users, others) = all.into_iter().partition(|seen| {
            let net = seen.net;
            let of_node = self.holders.is_mounted_by_host(net.inum) || self.nets.has(net);
            self.user_ns(net.user).is_some() && !of_node
        });
        *nets = others;
        users
    }

    /// Whether the kernel takes namespaces down, if a record of the end of one
    /// may have been lost.
    fn look_at_worker(&mut self) {
        let start = now();
        if start < self.due.worker || !self.nets.in_doubt() {
            return;
        }
        match self.procfs.takes_namespaces_down() {
            Ok(true) => {}
            Ok(false) => self.nets.worker_rests(start),
            Err(error) => self.failed(&error),
        }
        let end = now();
        self.due.worker = end + SECOND.max((end - start) * WORKER_SHARE);
    }

    /// The namespace of a task, as other events name it.
    fn netns_of_row(&mut self, row: &TaskRow) -> Option<Netns> {
        (row.task.net_inum != 0).then(|| {
            self.nets.identify(record::Net {
                address: row.net_address,
                cookie: row.net_cookie,
                inum: row.task.net_inum,
                refs: -1,
                user: record::NetUser::default(),
            })
        })
    }

    /// Looks for the changes that the kernel's programs did not tell, as their
    /// makers had had as many records as they may.
    fn look_for_withheld(&mut self, time: u64) {
        let withheld = self.probes.as_mut().map_or(0, Probes::withheld_changes);
        if withheld > 0 {
            self.nets.records_lost(time);
            self.ask_readings();
            self.due.walk_at(time);
        }
    }

    fn tell_losses(&mut self, out: &mut Vec<Event>) {
        let time = sys::clock::now();
        let kernel = self.probes.as_mut().map_or_else(Vec::new, |probes| {
            probes.flush_log();
            probes.lost()
        });
        if !kernel.is_empty() {
            self.nets.records_lost(now());
            // The list has what they would have told.
            self.due.walk_at(now());
        }
        let own = self.dropped.drain();
        let all = kernel.into_iter().chain(own);
        for (cause, count) in all.filter(|(_, count)| *count > 0) {
            out.push(Event {
                time,
                what: What::EventsLost {
                    cause: cause.to_owned(),
                    count,
                },
            });
        }
    }

    fn drop(&mut self, cause: &'static str, count: u64) {
        if count > 0 {
            *self.dropped.entry(cause).or_default() += count;
        }
    }

    fn note(&mut self, write: impl FnOnce(&mut Probes) -> Result<(), crate::ebpf::ProbeError>) {
        if let Some(Err(error)) = self.probes.as_mut().map(write) {
            self.failed(&error);
        }
    }

    fn failed(&mut self, error: &(dyn std::error::Error + 'static)) {
        tracing::warn!("{}", event::fault::chain(error));
        self.drop("kernel-look-failed", 1);
    }
}

const MILLISECOND: u64 = 1_000_000;
/// Holders are looked at this long after a change, for all that belongs to it
/// to have happened.
const HOLDERS_AFTER: u64 = 20 * MILLISECOND;
/// How long after a namespace was made.
const HOLDERS_AFTER_MAKING: u64 = 100 * MILLISECOND;
