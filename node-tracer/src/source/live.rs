//! The running kernel as a source of events: takes stock, then turns kernel
//! records into events and looks again where a record only says that
//! something has happened.

mod cni;
mod holders;
mod inventory;
mod nets;
mod tasks;

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    os::fd::{AsRawFd, RawFd},
    path::Path,
    time::Duration,
};

use node_tracer_ebpf::record::{self, AddressRecord, NetnsRecord, Task as KernelTask, TaskRow};

pub(crate) use self::cni::Host;
use self::{
    cni::{CniTable, Parent, Started},
    holders::Holders,
    inventory::{InventoryError, Iterators, Polled},
    nets::{Change, NetTable, Seen, Trust},
    tasks::Owners,
};
use super::{
    ebpf::{
        LoadError, Probes,
        inventory::{NetEntry, TaskEntry},
        plan::{Mechanism, Signal},
        records::{CniExec, DecodeError, Record},
        symbols::Symbols,
    },
    procfs::Procfs,
};
use crate::{
    clock::{KernelClock, Timestamp, monotonic_now as now},
    event::{Address, Event, Netns, What},
};

/// What the source is told.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// From when on a stall is reported.
    pub(crate) stall_threshold: Duration,
    /// Keeps every signal at or below a mechanism; for tests.
    pub(crate) limit: Option<Mechanism>,
}

/// Why the source cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The kernel programs cannot be had.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The first look failed.
    #[error("the kernel's tasks and namespaces cannot be listed")]
    Inventory(#[source] InventoryError),
    /// Namespaces come and go faster than they can be listed.
    #[error("the kernel's list of network namespaces does not hold still; try again")]
    Restless,
    /// Tasks are seen from inside a PID namespace.
    #[error(
        "the host's tasks cannot be seen: node-tracer must run in the host's PID namespace \
         (hostPID: true, or --pid=host)"
    )]
    PidNamespace,
}

/// Records taken from the ring buffer before the caller gets a turn.
const BATCH: usize = 4096;
/// Batches taken before a walk.
const BATCHES: usize = 4;
/// Pause between walks; more if a walk takes long.
const WALK_PAUSE: u64 = 2_000_000;
/// The same for a comparison, which takes longer.
const COMPARISON_PAUSE: u64 = 100_000_000;
/// How often the first listing is tried.
const STOCK_ATTEMPTS: usize = 5;
/// A walk takes at most one part in so many of the time.
const WALK_SHARE: u64 = 20;
/// When the list is looked at after a device change, and again as long as
/// nothing new is on it: a namespace comes shortly after its loopback device.
const AFTER_DEVICE: u64 = 1_000_000;
/// When it is looked at again otherwise.
const AFTER_WALK: u64 = 10_000_000;
const SECOND: u64 = 1_000_000_000;

/// The source. Kernel programs are attached while it lives.
pub(crate) struct Live {
    probes: Probes,
    procfs: Procfs,
    config: Config,
    symbols: Option<Symbols>,
    clock: KernelClock,
    init_net: u64,
    host_netns: u32,
    nets: NetTable,
    cni: CniTable,
    owners: Owners,
    holders: Holders,
    iterators: Iterators,
    /// Stalls, where no hook tells of them.
    polled: Option<Polled>,
    /// Stalls that were told and have not ended, by thread ID.
    told: HashMap<u32, Told>,
    /// Records that could not be handled, by cause.
    dropped: HashMap<&'static str, u64>,
    due: Due,
}

/// A stall that was told.
#[derive(Debug)]
struct Told {
    task: KernelTask,
    since: u64,
    /// Looks in a row in which it did not sleep.
    awake: u32,
}

/// Stalls whose end is checked; beyond, only their records end them.
const MAX_TOLD: usize = 8192;

/// When what is to be done next, monotonic ns.
#[derive(Debug, Default)]
struct Due {
    walk: Option<u64>,
    walk_not_before: u64,
    holders: Option<u64>,
    stalls: u64,
    second: u64,
}

impl Due {
    fn walk_at(&mut self, time: u64) {
        let time = time.max(self.walk_not_before);
        self.walk = Some(self.walk.map_or(time, |due| due.min(time)));
    }

    fn holders_at(&mut self, time: u64) {
        self.holders = Some(self.holders.map_or(time, |due| due.min(time)));
    }

    fn next(&self) -> u64 {
        let optional = [self.walk, self.holders].into_iter().flatten();
        optional.fold(self.stalls.min(self.second), u64::min)
    }
}

impl Live {
    /// Attaches the programs and takes stock. Returns what was found as
    /// events, and warnings for the user.
    pub(crate) fn start(
        config: Config,
        procfs: Procfs,
    ) -> Result<(Self, Vec<Event>, Vec<String>), StartError> {
        let (probes, warnings) =
            Probes::load(Path::new("/proc"), config.stall_threshold, config.limit)?;
        let clock = KernelClock::now();
        let planned: Vec<&str> = probes
            .plan
            .attachments()
            .iter()
            .map(|attach| attach.program)
            .collect();
        let iterators = Iterators {
            tasks: planned.contains(&"task_rows"),
            nets: planned.contains(&"net_walk"),
        };
        let hooked = |signal| {
            matches!(
                probes.plan.mechanism(signal),
                Mechanism::Fentry | Mechanism::Kprobe
            )
        };
        let trust = Trust {
            creations: !hooked(Signal::NetnsCreated),
            ends: !hooked(Signal::NetnsDestroyed),
        };
        let polled = !planned
            .iter()
            .any(|program| program.starts_with("task_switch"));
        let mut live = Self {
            nets: NetTable::new(trust),
            cni: CniTable::new(Host::default()),
            owners: Owners::new(procfs.clone()),
            holders: Holders::default(),
            symbols: Symbols::load(Path::new("/proc/kallsyms")).ok(),
            dropped: HashMap::new(),
            due: Due::default(),
            host_netns: 0,
            init_net: 0,
            polled: polled.then(Polled::default),
            told: HashMap::new(),
            iterators,
            procfs,
            config,
            clock,
            probes,
        };
        let all = live.list_tasks(false).map_err(StartError::Inventory)?;
        let kthreadd = all
            .iter()
            .find(|entry| entry.row.task.tid == 2)
            .map(|entry| entry.row);
        live.init_net = match kthreadd {
            Some(row) if row.task.comm.starts_with(b"kthreadd\0") => row.net_address,
            _ => return Err(StartError::PidNamespace),
        };
        let host;
        (live.host_netns, host) = self::host(&live.procfs, &all);
        live.cni = CniTable::new(host);
        let mut out = Vec::new();
        live.take_stock(&all, &mut out)?;
        Ok((live, out, warnings))
    }

    /// What each signal rests on.
    pub(crate) fn probes(&mut self) -> &mut Probes {
        &mut self.probes
    }

    /// Asks for a new look at what holds each namespace.
    pub(crate) fn want_holders(&mut self) {
        self.due.holders_at(now());
    }

    /// How long until [`run_due`](Self::run_due) has something to do.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_nanos(self.due.next().saturating_sub(now()))
    }

    fn time(&self, monotonic: u64) -> Timestamp {
        self.clock.timestamp(monotonic)
    }

    fn is_host(&self, net: &record::Net) -> bool {
        net.address == self.init_net || net.inum == self.host_netns
    }

    fn take_stock(&mut self, all: &[TaskEntry], out: &mut Vec<Event>) -> Result<(), StartError> {
        let start = now();
        let time = self.time(start);
        let mut seen = None;
        for _ in 0..STOCK_ATTEMPTS {
            seen = self.list_nets(Some(all)).map_err(StartError::Inventory)?;
            if seen.is_some() {
                break;
            }
        }
        let seen = seen.ok_or(StartError::Restless)?;
        self.nets.seed(&seen, start);
        for Seen { net, addresses } in seen {
            let netns = nets::identity(net);
            out.push(Event {
                time,
                what: What::NetnsFound {
                    netns,
                    host: self.is_host(&net),
                },
            });
            for address in addresses {
                out.push(Event {
                    time,
                    what: What::AddressAdded {
                        netns,
                        address,
                        found: true,
                    },
                });
            }
            if net.refs == 0 {
                out.push(Event {
                    time,
                    what: What::NetnsDying { netns, task: None },
                });
            }
        }
        self.look_at_holders(all, true, out);
        self.stock_of_stalls(all, start, out);
        self.due = Due {
            stalls: start + MILLISECOND,
            second: start + SECOND,
            ..Due::default()
        };
        Ok(())
    }

    /// Tasks that slept already. When a task last ran is known by the
    /// scheduler's clock.
    fn stock_of_stalls(&mut self, all: &[TaskEntry], start: u64, out: &mut Vec<Event>) {
        // Each CPU counts for itself, so a task is compared with whatever ran
        // last on its CPU; where that is long ago the stall seems shorter.
        let mut newest: HashMap<u32, u64> = HashMap::new();
        for TaskEntry { row, .. } in all.iter().filter(|entry| entry.row.cpu != u32::MAX) {
            let newest = newest.entry(row.cpu).or_default();
            *newest = row.exec_start.max(*newest);
        }
        let threshold = u64::try_from(self.config.stall_threshold.as_nanos()).unwrap_or(u64::MAX);
        for entry in all.iter().filter(|entry| tasks::is_blocked(&entry.row)) {
            let asleep = match entry.row.exec_start {
                0 => 0,
                last_ran => newest
                    .get(&entry.row.cpu)
                    .map_or(0, |now| now.saturating_sub(last_ran)),
            };
            let since = start.saturating_sub(asleep);
            let tid = entry.row.task.tid;
            let reported = asleep >= threshold;
            match &mut self.polled {
                Some(polled) => polled.seed(entry.row.task, since, reported),
                None => self.note(|probes| probes.add_blocked(tid, since)),
            }
            if reported {
                if self.polled.is_none() {
                    self.note(|probes| probes.mark_reported(tid, since));
                }
                out.push(self.blocked(entry, since, true));
            }
        }
    }

    /// Takes waiting records; whether there may be more.
    pub(crate) fn drain(&mut self, out: &mut Vec<Event>) -> bool {
        let records = self.fetch();
        let more = records.len() == BATCH;
        self.take_all(records, out);
        more
    }

    /// At most one batch of waiting records.
    fn fetch(&mut self) -> Vec<Result<Record, DecodeError>> {
        let mut records = Vec::new();
        self.probes
            .drain(BATCH, |bytes| records.push(Record::decode(bytes)));
        records
    }

    fn take_all(&mut self, records: Vec<Result<Record, DecodeError>>, out: &mut Vec<Event>) {
        let mut changes = Vec::new();
        for record in records {
            match record {
                Ok(record) => self.take(record, &mut changes, out),
                Err(error) => {
                    tracing::debug!("{error}");
                    self.drop("undecodable", 1);
                }
            }
        }
        self.tell(changes, out);
    }

    fn take(&mut self, record: Record, changes: &mut Vec<Change>, out: &mut Vec<Event>) {
        match record {
            Record::NetnsCreated(made) => self.created(&made, changes),
            Record::NetnsDying(dying) => {
                self.nets
                    .dying(dying.net, dying.header.time, dying.task, changes);
            }
            Record::NetnsDestroyed(gone) => {
                self.nets.destroyed(gone.net, gone.header.time, changes);
            }
            Record::CleanupQueued(queued) => {
                self.nets.cleanup_queued(queued.header.time);
                self.due.walk_at(queued.header.time);
            }
            Record::CleanupStarted(started) => {
                self.nets.cleanup_started(started.header.time);
                self.due.walk_at(started.header.time);
            }
            Record::CleanupEnded(ended) => {
                self.nets.cleanup_ended(ended.header.time);
                self.due.walk_at(ended.header.time);
            }
            Record::AddressAdded(added) => self.address(&added, true, changes),
            Record::AddressRemoved(removed) => self.address(&removed, false, changes),
            Record::AddressesChanged(changed) => self.due.walk_at(changed.header.time),
            Record::DeviceChanged(changed) => {
                self.nets.device_changed(changed.header.time, changed.task);
                self.due.walk_at(changed.header.time + AFTER_DEVICE);
            }
            Record::TaskUnblocked(record) => {
                self.told.remove(&record.task.tid);
                let event = self.unblocked(&record.task, record.since, record.header.time);
                out.push(event);
            }
            Record::CniExec(exec) => self.cni_exec(&exec, changes, out),
            Record::CniExit(exit) => {
                if let Some(ended) = self.cni.exit(&exit) {
                    out.push(Event {
                        time: self.time(exit.header.time),
                        what: What::CniCall {
                            call: ended.call,
                            exit_code: ended.exit_code,
                            signal: ended.signal,
                            duration_ms: (ended.duration / 1000) as f64 / 1000.0,
                        },
                    });
                    self.due.walk_at(exit.header.time);
                    self.due.holders_at(exit.header.time + HOLDERS_AFTER);
                }
            }
        }
    }

    fn created(&mut self, made: &NetnsRecord, changes: &mut Vec<Change>) {
        let time = made.header.time;
        self.nets.created(made.net, time, made.task, changes);
        self.due.holders_at(time + HOLDERS_AFTER);
    }

    fn address(&mut self, record: &AddressRecord, added: bool, changes: &mut Vec<Change>) {
        if let Some(address) = address(record)
            && !self
                .nets
                .address(record.net, record.header.time, address, added, changes)
        {
            // Its creation was lost; the list has it.
            self.due.walk_at(record.header.time);
        }
    }

    fn cni_exec(&mut self, exec: &CniExec, changes: &mut Vec<Change>, out: &mut Vec<Event>) {
        let (procfs, owners) = (&self.procfs, &mut self.owners);
        let parent = || Parent {
            exe: procfs.exe_name(exec.parent.tgid).ok().flatten(),
            in_pod: owners.in_pod(&exec.parent),
        };
        match self.cni.exec(exec, parent) {
            Started::Call(mut call) => {
                if exec.truncated && call.trusted {
                    self.drop("cni-environment-truncated", 1);
                }
                if call.trusted
                    && let Some(inode) = self.procfs.netns_at(call.parent_pid, &call.netns_path)
                {
                    let netns = self.netns_called(inode, changes);
                    // It is told before what is done in it.
                    self.tell(std::mem::take(changes), out);
                    self.cni.set_netns(call.pid, netns);
                    call.netns = Some(netns);
                }
                let time = self.time(exec.time);
                out.push(Event {
                    time,
                    what: What::CniStarted { call: *call },
                });
            }
            Started::Nothing => {}
            Started::TableFull => self.drop("cni-table-full", 1),
        }
    }

    /// The namespace that a plugin is called for; it may be so new that
    /// nothing has told of it yet.
    fn netns_called(&mut self, inode: u32, changes: &mut Vec<Change>) -> Netns {
        if let Some(netns) = self.nets.claim(inode, changes) {
            return netns;
        }
        let start = now();
        let seen = self.list_nets(None).ok().flatten().unwrap_or_default();
        if let Some(Seen { net, .. }) = seen.iter().find(|seen| seen.net.inum == inode) {
            self.nets.noticed(*net, start, changes);
        }
        let unknown = Netns {
            inode,
            cookie: None,
        };
        self.nets.claim(inode, changes).unwrap_or(unknown)
    }

    fn tell(&mut self, changes: Vec<Change>, out: &mut Vec<Event>) {
        for change in changes {
            let (time, what) = match change {
                Change::Created(netns, time, task) => {
                    let task = task.map(|task| self.task(&task));
                    (time, What::NetnsCreated { netns, task })
                }
                Change::Dying(netns, time, task) => {
                    let task = task.map(|task| self.task(&task));
                    (time, What::NetnsDying { netns, task })
                }
                Change::Destroyed(netns, time) => {
                    self.holders.forget(netns);
                    (time, What::NetnsDestroyed { netns })
                }
                Change::AddressAdded(netns, time, address) => {
                    self.due.holders_at(time + HOLDERS_AFTER);
                    (
                        time,
                        What::AddressAdded {
                            netns,
                            address,
                            found: false,
                        },
                    )
                }
                Change::AddressRemoved(netns, time, address) => {
                    (time, What::AddressRemoved { netns, address })
                }
            };
            out.push(Event {
                time: self.time(time),
                what,
            });
        }
    }

    /// Without a look at its cgroup: the tasks of storms are gone at once.
    fn task(&self, task: &KernelTask) -> crate::event::Task {
        tasks::task(task, None, self.clock)
    }

    /// Does what is due. `watched`: some finding wants fresh holders.
    pub(crate) fn run_due(&mut self, watched: bool, out: &mut Vec<Event>) {
        let time = now();
        if time >= self.due.second {
            self.clock = KernelClock::now();
            self.due.second = time + SECOND;
            self.due.walk_at(time);
            if watched || !self.told.is_empty() {
                self.due.holders_at(time);
            }
            self.tell_losses(out);
        }
        if time >= self.due.stalls {
            self.look_at_stalls(time, out);
        }
        if self.due.walk.is_some_and(|due| time >= due) {
            self.look_at_nets(out);
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
            } else {
                self.due.holders_at(self.holders.not_before());
            }
        }
    }

    fn look_at_nets(&mut self, out: &mut Vec<Event>) {
        self.due.walk = None;
        // Records from before the walk come first. If they come faster than
        // they can be taken, the walk is late, not wrong.
        for _ in 0..BATCHES {
            if !self.drain(out) {
                break;
            }
        }
        let start = now();
        let seen = match self.list_nets(None) {
            Ok(seen) => seen,
            Err(error) => {
                self.failed(&error);
                None
            }
        };
        let end = now();
        let pause = if self.iterators.nets {
            WALK_PAUSE
        } else {
            COMPARISON_PAUSE
        };
        self.due.walk_not_before = end + pause.max((end - start) * WALK_SHARE);
        let Some(seen) = seen else {
            self.drop("netns-list-unreadable", 1);
            return self.due.walk_at(end + AFTER_WALK);
        };
        // Some records of the time of the walk explain what the list shows, and
        // come before it: a run of cleanup_net that began, devices that were
        // made, namespaces that are on it. All others come after.
        let listed: HashMap<u64, u64> = seen
            .iter()
            .map(|seen| (seen.net.address, seen.net.cookie))
            .collect();
        let mut changes = Vec::new();
        let mut later = Vec::new();
        for record in self.fetch() {
            match record {
                Ok(Record::CleanupStarted(started)) if started.header.time <= end => {
                    self.nets.cleanup_started(started.header.time);
                    self.due.walk_at(started.header.time);
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
        self.nets.walked(seen, start, &mut changes);
        self.tell(changes, out);
        self.take_all(later, out);
        if let Some(time) = self.nets.unannounced() {
            self.due.walk_at(time);
        }
        if self.nets.has_missing() {
            self.due.walk_at(end + AFTER_WALK);
        }
        if self.nets.expects_one() {
            self.due.walk_at(end + AFTER_DEVICE);
        }
        let overflow = self.nets.take_overflow();
        self.drop("netns-table-full", overflow);
    }

    fn look_at_stalls(&mut self, time: u64, out: &mut Vec<Event>) {
        let threshold = self.config.stall_threshold;
        if self.polled.is_none() {
            let look = self.probes.blocked(time, threshold);
            self.due.stalls = look.next;
            if look.due.is_empty() {
                return;
            }
            match self.list_tasks(true) {
                Ok(outside) => self.tell_stalls(&outside, look.due, out),
                Err(error) => self.failed(&error),
            }
            return;
        }
        let threshold = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
        self.due.stalls = time + (threshold / 4).clamp(50 * MILLISECOND, SECOND);
        let outside = match self.list_tasks(true) {
            Ok(outside) => outside,
            Err(error) => return self.failed(&error),
        };
        let look = self
            .polled
            .as_mut()
            .map(|polled| polled.look(&outside, time, threshold));
        let look = look.unwrap_or_default();
        for (task, since) in look.awake {
            let event = self.unblocked(&task, since, time);
            out.push(event);
        }
        if !look.due.is_empty() {
            self.tell_stalls(&outside, look.due, out);
        }
    }

    fn tell_stalls(&mut self, outside: &[TaskEntry], due: HashMap<u32, u64>, out: &mut Vec<Event>) {
        let rows: HashMap<u32, &TaskEntry> = outside
            .iter()
            .map(|entry| (entry.row.task.tid, entry))
            .collect();
        for (tid, since) in due {
            match rows.get(&tid) {
                Some(entry) if tasks::is_blocked(&entry.row) => {
                    if self.polled.is_none() {
                        self.note(|probes| probes.mark_reported(tid, since));
                    }
                    out.push(self.blocked(entry, since, false));
                }
                _ => self.probes.forget_blocked(tid, since),
            }
        }
        if self.holders.may_look(now()) {
            self.look_at_holders(outside, false, out);
        } else {
            self.due.holders_at(self.holders.not_before());
        }
    }

    /// Ends stalls that were told and are over without a record of it: one
    /// can get lost, and a thaw wakes nobody.
    fn check_told(&mut self, outside: &[TaskEntry], out: &mut Vec<Event>) {
        if self.polled.is_some() || self.told.is_empty() {
            return;
        }
        let blocked: HashMap<u32, u64> = outside
            .iter()
            .filter(|entry| tasks::is_blocked(&entry.row))
            .map(|entry| tasks::key(&entry.row.task))
            .collect();
        let mut over = Vec::new();
        for (tid, told) in &mut self.told {
            if blocked.get(tid) == Some(&told.task.start_boottime) {
                told.awake = 0;
            } else {
                // Twice: the record may be on its way.
                told.awake += 1;
                if told.awake > 1 {
                    over.push(*tid);
                }
            }
        }
        for tid in over {
            if let Some(told) = self.told.remove(&tid) {
                self.probes.forget_blocked(tid, told.since);
                let event = self.unblocked(&told.task, told.since, now());
                out.push(event);
            }
        }
    }

    fn unblocked(&mut self, task: &KernelTask, since: u64, time: u64) -> Event {
        let owner = self.owners.of(task);
        Event {
            time: self.time(time),
            what: What::TaskUnblocked {
                task: tasks::task(task, owner, self.clock),
                since: self.time(since),
                duration_ms: time.saturating_sub(since) / MILLISECOND,
            },
        }
    }

    fn blocked(&mut self, entry: &TaskEntry, since: u64, found: bool) -> Event {
        let row = &entry.row;
        let tid = row.task.tid;
        if self.told.len() < MAX_TOLD {
            self.told.insert(
                tid,
                Told {
                    task: row.task,
                    since,
                    awake: 0,
                },
            );
        }
        let netns = self.netns_of_row(row);
        let owner = match tasks::is_kernel_thread(row) {
            true => None,
            false => self.owners.of(&row.task),
        };
        let mut stack = tasks::stack(entry, self.symbols.as_ref());
        if stack.is_empty() {
            stack = self.procfs.kernel_stack(tid).unwrap_or_default();
        }
        let wchan = self
            .procfs
            .wchan(tid)
            .ok()
            .flatten()
            .or_else(|| tasks::wchan(&stack));
        Event {
            time: self.time(now()),
            what: What::TaskBlocked {
                task: tasks::task_of_row(row, owner, self.clock),
                since: self.time(since),
                found,
                netns,
                wchan,
                stack,
            },
        }
    }

    /// The namespace of a task, as other events name it.
    fn netns_of_row(&mut self, row: &TaskRow) -> Option<Netns> {
        (row.task.net_inum != 0).then(|| {
            self.nets.identify(record::Net {
                address: row.net_address,
                cookie: row.net_cookie,
                inum: row.task.net_inum,
                refs: -1,
            })
        })
    }

    fn tell_losses(&mut self, out: &mut Vec<Event>) {
        let time = Timestamp::now();
        self.probes.flush_log();
        let kernel = self.probes.lost();
        if !kernel.is_empty() {
            self.nets.records_lost();
        }
        let own = self.dropped.drain();
        for (cause, count) in kernel.into_iter().chain(own) {
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

    fn note(&mut self, write: impl FnOnce(&mut Probes) -> Result<(), super::ebpf::ProbeError>) {
        if let Err(error) = write(&mut self.probes) {
            self.failed(&error);
        }
    }

    fn failed(&mut self, error: &(dyn std::error::Error + 'static)) {
        tracing::warn!("{}", crate::report::chain(error));
        self.drop("kernel-look-failed", 1);
    }
}

impl AsRawFd for Live {
    /// Readable when there are records.
    fn as_raw_fd(&self) -> RawFd {
        self.probes.as_raw_fd()
    }
}

const MILLISECOND: u64 = 1_000_000;
/// Holders are looked at this long after a change, for all that belongs to it
/// to have happened.
const HOLDERS_AFTER: u64 = 20 * MILLISECOND;

/// The host's namespaces: those of its first process.
fn host(procfs: &Procfs, all: &[TaskEntry]) -> (u32, Host) {
    let row = |pid: u32| {
        all.iter()
            .find(|e| e.row.task.tid == pid)
            .map(|e| e.row.task)
    };
    let first = row(1)
        .or_else(|| row(std::process::id()))
        .unwrap_or_default();
    let host = Host {
        pid_ns: first.pid_inum,
        mnt_ns: first.mnt_inum,
    };
    // With --root the host is what that root's first process is in.
    (procfs.netns_of(1).unwrap_or(first.net_inum), host)
}

fn seen(entry: &NetEntry) -> Seen {
    let addresses: BTreeSet<Address> = entry.addresses.iter().filter_map(address).collect();
    Seen {
        net: entry.net,
        addresses,
    }
}

/// The address of a record; `None` if it is of an unknown family.
fn address(record: &AddressRecord) -> Option<Address> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(record::text(bytes)).into_owned();
    let address = match record.family {
        4 => IpAddr::from(record.address.first_chunk::<4>().copied()?),
        6 => IpAddr::from(record.address),
        _ => return None,
    };
    if address.is_unspecified() {
        return None; // no address, or one that is just being taken off
    }
    Some(Address {
        address,
        prefix: record.prefix,
        ifname: text(&record.ifname),
        link_kind: Some(text(&record.link_kind)).filter(|kind| !kind.is_empty()),
    })
}
