//! What CNI ADD and DEL have really done: looked at a moment after the last
//! plugin of an operation has ended, in the sandbox's network namespace, on
//! the host and in host-local's files.
//!
//! Around a DEL of one sandbox, every other living sandbox of the same pod name
//! is looked at, too: as the DEL starts, and again for some seconds after its
//! end, as agents of a CNI take things away with some delay. Sandboxes that are
//! older than the tracer are known by libcni's cache and looked at once in the
//! beginning, for what they have. What is found missing is looked at again and
//! again until it is there or the sandbox is gone.
//!
//! The looks are made by a thread of their own, one after the other, each of
//! bounded time: the event loop only hands over what is due and takes what was
//! found. What there is no time for is counted as lost.
//!
//! Of the host's devices only those that belong to a sandbox are told, as
//! traces in its [`CniEffect`](What::CniEffect): the whole list would be the
//! longest record of all, once for each pod that starts, and out of date with
//! the next. Only where two namespaces have one address, and it is not known
//! whether they share a network, are their devices told with the host's.

mod attachments;
mod judge;
mod schedule;
mod tables;
#[cfg(test)]
mod tests;
mod worker;

use event::{
    CniCall, CniCommand, Event, Netns, Trace, What, fault, forwarding::FORWARDING,
    record::CoverageItem,
};
use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use self::{
    attachments::{Attachments, Key},
    judge::Observations,
    schedule::{Due, Operation, Schedule},
    tables::Tables,
    worker::{Found, Job, Worker},
};
use node::{
    home::{Home, NodeNetns},
    hostlocal::Stores,
    procfs::Procfs,
};

/// How often an answer is looked for while one is awaited.
const WAIT: Duration = Duration::from_millis(10);
/// Under which name looks that were not made are counted.
const NOT_LOOKED: &str = "cni-effects-not-looked-at";

/// How soon a namespace is looked at again that could not be placed in a
/// network, at first and at last.
const SOONEST: Duration = Duration::from_millis(200);
const LATEST: Duration = Duration::from_secs(60);
/// The rest between two such looks where others are to be placed: the host's
/// list is long, and anybody can make namespaces.
const REST: Duration = Duration::from_secs(1);
/// Namespaces that are looked at for that at once.
const MAX_PLACED: usize = 512;

pub(super) struct Effects {
    known: Attachments,
    schedule: Schedule,
    worker: Result<Worker, String>,
    procfs: Procfs,
    home: Home,
    /// The node's network namespace, where the runtime is: mostly where process 1
    /// is, but a node can be a container itself.
    host: Option<NodeNetns>,
    tables: Tables,
    may_enter: bool,
    /// What the worker was last given.
    under_way: Option<Due>,
    unplaced: Unplaced,
}

/// Namespaces whose devices are to be told with the host's.
#[derive(Debug, Default)]
struct Unplaced {
    netns: BTreeSet<Netns>,
    /// When they are looked at next; the pause grows while nothing comes of it.
    next: Option<Instant>,
    /// When they were looked at last.
    looked: Option<Instant>,
    pause: Duration,
    /// They were looked at: what they are plugged into is not the host's.
    is_elsewhere: bool,
    /// The worker has been given them.
    is_under_way: bool,
}

impl Unplaced {
    fn set(&mut self, wanted: &BTreeSet<Netns>, now: Instant) {
        if self.netns == *wanted {
            return;
        }
        self.netns.clone_from(wanted);
        self.pause = SOONEST;
        self.is_elsewhere = false;
        let rested = self.looked.map_or(now, |looked| looked + REST);
        self.next = (!wanted.is_empty()).then_some(now.max(rested));
    }

    /// The namespaces that are to be looked at now: at first they alone, with
    /// the host's, and then all, as any can have the other end of their veth pairs.
    fn due(&mut self, now: Instant, all: impl Iterator<Item = u32>) -> Vec<u32> {
        if self.next.is_none_or(|next| now < next) {
            return Vec::new();
        }
        self.looked = Some(now);
        self.next = Some(now + self.pause);
        self.pause = (2 * self.pause).min(LATEST);
        self.is_under_way = true;
        let with_all = std::mem::replace(&mut self.is_elsewhere, true);
        let wanted = self.netns.iter().map(|netns| netns.inode);
        let all = all.filter(|_| with_all);
        wanted.chain(all).take(MAX_PLACED).collect()
    }
}

impl Effects {
    /// Begins. Without the stores below the host's root, nothing is said of
    /// reservations; without a thread, of nothing.
    pub(super) fn new(procfs: &Procfs, root: &Path, may_enter: bool) -> Self {
        let stores = Stores::discover(root);
        if let Err(error) = &stores {
            tracing::debug!("{}", fault::chain(error));
        }
        let mut this = Self {
            known: Attachments::new(procfs.clone(), root),
            schedule: Schedule::default(),
            worker: Worker::start(stores.ok()).map_err(|error| fault::chain(&error)),
            home: Home::new(procfs.clone()),
            procfs: procfs.clone(),
            host: None,
            tables: Tables::new(),
            under_way: None,
            unplaced: Unplaced::default(),
            may_enter,
        };
        this.settle(Instant::now(), &mut Vec::new());
        this
    }

    /// What of it is seen.
    pub(super) fn coverage(&self) -> [CoverageItem; 2] {
        let (mechanism, reason, unknown) = match &self.worker {
            Ok(_) if !self.may_enter => {
                let how = "reservation files, after each CNI call";
                let reason = "no rtnetlink: entering network namespaces takes CAP_SYS_ADMIN";
                let unknown = "what CNI ADD and DEL have really done in the namespaces";
                (
                    Some(String::from(how)),
                    Some(String::from(reason)),
                    vec![String::from(unknown)],
                )
            }
            Ok(_) => {
                let how = "rtnetlink and reservation files, after each CNI call";
                (Some(String::from(how)), None, Vec::new())
            }
            Err(error) => {
                let unknown = String::from("what CNI ADD and DEL have really done");
                (None, Some(error.clone()), vec![unknown])
            }
        };
        let tables = self.tables.coverage(match &self.worker {
            Ok(_) if self.may_enter => Ok(()),
            Ok(_) => Err("entering network namespaces takes CAP_SYS_ADMIN"),
            Err(error) => Err(error),
        });
        let effects = CoverageItem {
            signal: String::from("cni-effect"),
            mechanism,
            reason,
            unknown,
        };
        [effects, tables]
    }

    /// Takes in what has happened, and adds to it what was found meanwhile.
    /// `unplaced` are namespaces of which it matters what they are plugged into.
    pub(super) fn step(&mut self, unplaced: &BTreeSet<Netns>, events: &mut Vec<Event>) {
        let now = Instant::now();
        self.unplaced.set(unplaced, now);
        self.see(events, now);
        self.settle(now, events);
        self.take(now, events);
        self.go(now);
        let lost = self.schedule.take_dropped();
        if lost > 0 {
            let cause = NOT_LOOKED.to_owned();
            let time = sys::clock::now();
            let what = What::EventsLost { cause, count: lost };
            events.push(Event { time, what });
        }
    }

    /// The process that listens on the runtime's socket.
    pub(super) fn listens(&mut self, pid: u32) {
        self.home.listens(pid);
    }

    /// The node's network namespace.
    pub(super) fn node(&self) -> Option<u32> {
        self.home.node().map(|node| node.inode)
    }

    /// What was told of the node's tables is to be told again.
    pub(super) fn tell_again(&mut self) {
        self.tables.tell_again(Instant::now());
    }

    /// Finds out where the node is, and what is new there.
    fn settle(&mut self, now: Instant, out: &mut Vec<Event>) {
        self.host = self.home.node().or(self.host);
        if let Some(node) = self.host.filter(|_| self.may_enter) {
            self.tables.of(node, &self.procfs, now);
        }
        self.tables.step(now, out);
    }

    /// How long until [`step`](Self::step) has something to do.
    pub(super) fn pause(&self) -> Duration {
        if self.worker.is_err() {
            return Duration::MAX;
        }
        if self.under_way.is_some() {
            return WAIT;
        }
        let next = self.schedule.next().into_iter().chain(self.unplaced.next);
        let next = next.chain(self.tables.next());
        let pause = next
            .min()
            .map(|next| next.saturating_duration_since(Instant::now()));
        pause.unwrap_or(Duration::MAX)
    }

    /// Takes in what has happened.
    fn see(&mut self, events: &[Event], now: Instant) {
        for Event { what, .. } in events {
            match what {
                What::NetnsFound {
                    netns, host: true, ..
                } => {
                    let (inode, pid) = (netns.inode, 1);
                    self.host.get_or_insert(NodeNetns { inode, pid });
                }
                What::NetnsHolders {
                    netns,
                    tasks,
                    mounts,
                    ..
                } => self.known.held(*netns, tasks, mounts),
                What::NetnsDying { netns, .. } | What::NetnsDestroyed { netns } => {
                    for key in self.known.netns_gone(*netns, now) {
                        self.schedule.forget(&key);
                    }
                }
                What::AttachmentsListed { attachments, .. } => {
                    for attachment in attachments {
                        if let Some(key) = self.known.cached(attachment) {
                            self.schedule.look(key, now);
                        }
                    }
                }
                What::CniStarted { call } => {
                    if let Some(operation) = operation(call) {
                        self.started(operation, call, now);
                    }
                }
                What::CniCall {
                    call,
                    exit_code,
                    result,
                    ..
                } => {
                    let Some(operation) = operation(call) else {
                        continue;
                    };
                    let ok = *exit_code == Some(0);
                    let concerns = self.concerns(&operation, call);
                    if ok && concerns && call.command == CniCommand::Add {
                        self.known.added(call, result.as_ref());
                        if self.known.has_others(call, now) {
                            // A DEL of those may be under way.
                            self.schedule.watch(&operation.key, now);
                        }
                    }
                    if call.command == CniCommand::Del {
                        self.known.del_seen(call, now);
                        for namesake in self.known.namesakes(call) {
                            self.schedule.watch(&namesake, now);
                        }
                    }
                    if concerns {
                        self.schedule.ended(operation, call.pid, ok, now);
                    }
                }
                _ => {}
            }
        }
        self.forget_unknown(now);
    }

    /// What is not known any more is not looked at again either.
    fn forget_unknown(&mut self, now: Instant) {
        self.known.forget_past(now);
        for key in self.known.take_forgotten() {
            self.schedule.forget(&key);
        }
    }

    fn started(&mut self, operation: Operation, call: &CniCall, now: Instant) {
        // What plugins make on the host is where their caller is.
        self.home.calls(call.parent_pid);
        if call.command == CniCommand::Del {
            self.known.del_seen(call, now);
            for namesake in self.known.namesakes(call) {
                self.schedule.look(namesake, now);
            }
            // What its ADD has done is not to be seen any more.
            self.known.leaves(&operation.key);
            self.schedule.forget(&operation.key);
        }
        if self.concerns(&operation, call) {
            self.schedule.started(operation, call.pid, now);
        }
    }

    /// Whether there is anything to look at: of an attachment without a network
    /// namespace, and of which nothing is known, there is not.
    fn concerns(&self, operation: &Operation, call: &CniCall) -> bool {
        call.netns.is_some() || self.known.get(&operation.key).is_some()
    }

    /// Hands over what is due, unless something is under way.
    fn go(&mut self, now: Instant) {
        let Ok(worker) = &self.worker else {
            return;
        };
        if self.under_way.is_some() {
            return;
        }
        let unplaced = self.unplaced.due(now, self.known.places());
        let due = self.schedule.due(now);
        let reads_tables = self.tables.begin(now);
        if due.is_none() && unplaced.is_empty() && !reads_tables {
            return;
        }
        let due = due.unwrap_or_default();
        let mut job = self.job(&due);
        let mut targets: BTreeSet<u32> = job.targets.iter().map(|it| it.inode).collect();
        for inode in unplaced {
            if targets.insert(inode) {
                job.targets.extend(self.known.place(inode));
            }
        }
        match worker.ask(job) {
            Ok(()) => self.under_way = Some(due),
            // It has ended: what it has not answered says so.
            Err(_) => self.under_way = Some(due),
        }
    }

    /// What is to be looked at for these.
    fn job(&self, due: &Due) -> Job {
        let mut job = Job::default();
        job.targets
            .extend(self.host.map(|host| self.known.host_target(host)));
        for key in due.keys() {
            let Some(attachment) = self.known.get(key) else {
                continue;
            };
            if let Some(target) = self.known.target(attachment) {
                let known = job.targets.iter().any(|it| it.inode == target.inode);
                if !known {
                    job.targets.push(target);
                }
            }
            let addresses = attachment.addresses.iter();
            job.addresses.extend(addresses.copied());
        }
        job
    }

    /// Takes what was found, if it is there.
    fn take(&mut self, now: Instant, out: &mut Vec<Event>) {
        let found = match &self.worker {
            Ok(worker) => worker.answer(),
            Err(_) => return,
        };
        match found {
            Ok(None) => {}
            Ok(Some(found)) => {
                if let Some(due) = self.under_way.take() {
                    self.tell(due, found, now, out);
                }
            }
            Err(error) => {
                self.worker = Err(error.clone());
                self.under_way = None;
                let time = sys::clock::now();
                for source in ["cni-effect", FORWARDING] {
                    let (source, error) = (source.to_owned(), error.clone());
                    let what = What::SourceFailed { source, error };
                    out.push(Event { time, what });
                }
            }
        }
    }

    fn tell(&mut self, due: Due, found: Found, now: Instant, out: &mut Vec<Event>) {
        let time = found.at;
        let host = self.host.map(|host| host.inode);
        let with_host = std::mem::take(&mut self.unplaced.is_under_way);
        let visit = |inode: u32| found.visits.get(&inode)?.as_ref();
        self.tables.take(visit, time, now, out);
        for visit in found.visits.values().flatten() {
            let is_host = Some(visit.netns.inode) == host;
            // What is left out of a list would look as if it were gone.
            if (with_host || !is_host) && !visit.cut {
                let what = What::NetnsDevices {
                    netns: visit.netns,
                    devices: visit.devices.clone(),
                    routes: visit.routes.clone(),
                    neighbours: visit.neighbours.clone(),
                    host_nsid: visit.host_nsid(|home| Some(home) == host),
                };
                out.push(Event { time, what });
            }
        }
        let sights = Observations {
            found: &found,
            host,
        };
        let operations = due.operations.iter().filter(|(_, ok)| *ok);
        let operations = operations.map(|(it, _)| (&it.key, &it.command));
        let again = due.again.iter().map(|key| (key, &CniCommand::Add));
        let all: BTreeSet<(&Key, &CniCommand)> = operations.chain(again).collect();
        for (key, command) in all {
            let Some(attachment) = self.known.get_mut(key) else {
                continue;
            };
            if *command == CniCommand::Add && attachment.netns.is_none() {
                continue; // it is gone meanwhile
            }
            let mut effect = sights.effect(attachment, key, command);
            let again = due.again.contains(key);
            if *command == CniCommand::Add {
                match sights.is_sound(attachment, &effect) {
                    true => self.schedule.sound(key),
                    false => self.schedule.doubt(key, now),
                }
                if !again && sights.lacks_neighbour(attachment) {
                    self.schedule.settle(key, now);
                }
            }
            // Where a plugin leaves none (ENI, ipvlan), that it was looked at is
            // worth telling to who waits for it: after another sandbox's DEL.
            let looked = again && *command == CniCommand::Add && sights.saw(attachment);
            if *command == CniCommand::Del {
                let known = &self.known;
                let its = |trace: &Trace| !known.is_anothers(key, trace);
                effect
                    .traces
                    .retain(|trace| trace.there != Some(true) || its(trace));
                if let Some(attachment) = self.known.get(key) {
                    let clean = sights.is_clean(attachment, &effect);
                    self.known.taken_back(key, clean, now);
                }
            }
            if looked || !effect.traces.is_empty() {
                out.push(Event {
                    time,
                    what: What::CniEffect { effect },
                });
            }
        }
    }
}

/// The operation that a call is part of, if the runtime itself has called.
fn operation(call: &CniCall) -> Option<Operation> {
    if !matches!(call.command, CniCommand::Add | CniCommand::Del) {
        return None;
    }
    let named = !call.container_id.is_empty() && call.ifname != "lo";
    (call.trusted && !call.delegated && named).then(|| Operation {
        key: Key {
            container_id: call.container_id.clone(),
            ifname: call.ifname.clone(),
        },
        command: call.command.clone(),
    })
}
