//! One look at the node's kernel state without eBPF: every task, every network
//! namespace that anything leads to, what is in it and what holds it, and every
//! task that is stuck.
//!
//! A namespace is found by what keeps it alive: a task (thread by thread), a
//! mount in any mount namespace, a descriptor, a socket. The last two are told
//! only of namespaces that nothing before them leads to: there they are what
//! matters, and everywhere else somebody has a descriptor for a good reason. A
//! namespace that is being taken down is not found, as nothing leads to it.
//!
//! Nothing here is held from one read to the next, so things change meanwhile:
//! a namespace that is gone when it is visited is left out without a word. One
//! that is there and cannot be read is told with what holds it.
//!
//! What is stuck in the kernel can hold the lock behind rtnetlink: the visits
//! come last, and their hanging takes nothing from what is read otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::Duration,
};

use self::{
    holders::{Holders, Owners},
    host::Host,
    places::{Places, Stray},
    visits::{Failures, Visits, visit},
};
use crate::{
    containers,
    netlink::{DatedAddress, Target, Visit},
    procfs::{Bounded, HostUsers, Missed, Procfs, ProcfsError, TaskEntry, Tasks},
};
use event::{Event, Netns, What, clock::Timestamp, fault};
use sys::clock::KernelClock;

mod holders;
mod host;
mod places;
mod stalls;
mod visits;

/// What a look at the node has brought.
#[derive(Debug, Default)]
pub struct Survey {
    /// `NetnsFound`, `AddressAdded`, `NetnsDevices`, `NetnsForwarding` and, but for the host's own,
    /// `NetnsHolders` of each namespace; then `TaskBlocked`. Of one that cannot
    /// be read neither addresses nor devices, and its identity has no cookie.
    pub events: Vec<Event>,
    /// What could not be read, and why; what is there is unknown.
    pub unread: Vec<String>,
    /// Namespaces of which not all is told, until that is said.
    cut: Vec<u32>,
    /// Those of the host's own user namespace that have more addresses than are
    /// kept.
    pub addresses_cut: BTreeSet<u32>,
    /// How many tasks there are.
    pub tasks: usize,
    /// How many network namespaces were read.
    pub netns: usize,
    /// Processes that have the name of a container's shim.
    pub shims: Vec<u32>,
    /// Inodes of the network namespaces that anything leads to, read or not.
    pub seen: BTreeSet<u32>,
    /// Those that were read.
    pub read: BTreeSet<u32>,
    /// Everything that can lead to a namespace was looked through; if not,
    /// there may be more than those that were seen. A guarded process 1 does not
    /// count: it holds no pod's.
    pub nets_whole: bool,
    /// Why not, as far as that can be said.
    pub nets_missed: Vec<String>,
    /// Of every task in uninterruptible sleep it is known whether it has been
    /// there for the threshold.
    pub stalls_whole: bool,
}

/// Looks at the node. A task counts as stuck once it has been in
/// uninterruptible sleep for `stall_threshold`. Where more tasks are stuck than
/// are told of, the task or process that was `asked` about is among those.
///
/// # Errors
/// The tasks cannot be listed: it is not a proc file system, or it does not
/// answer.
pub fn survey(
    procfs: &Procfs,
    stall_threshold: Duration,
    asked: Option<u32>,
    runtime: Option<u32>,
) -> Result<Survey, ProcfsError> {
    let (tasks, mounts) = both(|| procfs.tasks(), || procfs.nsfs_mounts());
    let Tasks {
        list: tasks,
        missed,
        hidden,
    } = tasks?;
    let mut found = Survey {
        tasks: tasks.len(),
        shims: shims(&tasks),
        // Where there are none of the kernel's, there are more processes.
        nets_whole: tasks.iter().any(|entry| entry.kernel)
            && missed.count == 0
            && hidden.count == 0,
        ..Survey::default()
    };
    let all_tasks = missed.count == 0;
    let missed = missed.say(|n| format!("tasks of {n} processes"));
    let hidden = hidden.say(|n| format!("the network namespaces of {n} tasks"));
    found.unread.extend(missed.into_iter().chain(hidden));
    let host = host::netns(&tasks, runtime, &mut found.unread);
    if !found.nets_whole {
        found.nets_missed.clone_from(&found.unread);
    }
    let mut places = Places::of(&tasks);
    match mounts {
        Ok(mounts) => {
            places.mounts = mounts.mounts;
            found.unfound(mounts.partial, some(mounts.unread.iter().map(chain)));
        }
        Err(error) => found.unfound(true, vec![chain(&error)]),
    }
    // What most namespaces are reached by is known by now: while they are
    // visited, stuck tasks, descriptors and sockets are looked at.
    let (known, targets) = (places.known(), places.targets(procfs, &host.all));
    let inhabited: BTreeSet<u32> = places.tasks.keys().copied().collect();
    let mounted = places.mounts.keys().copied();
    let pinned: BTreeSet<u32> = mounted.filter(|inode| !inhabited.contains(inode)).collect();
    let processes = places::processes(&tasks, &host.all);
    let visits_reads = Bounded::default();
    let ((stuck, owners, stray), mut visits) = both(
        || {
            let stuck = stalls::find(procfs, &tasks, stall_threshold, asked);
            let owners = Owners::look_up(procfs, holders::named(&places, &host.all));
            let stray = Stray::find(procfs, &processes, &inhabited, &pinned);
            (stuck, owners, stray)
        },
        || visit(targets.clone(), &visits_reads),
    );
    let (owners, missed) = owners;
    found.unread.extend(say_owners(&missed));
    found.unread.extend(stuck.unread);
    found.stalls_whole = stuck.whole && all_tasks;
    places.fds = stray.fds;
    places.sockets = stray.sockets;
    found.unfound(stray.partial, stray.unread);
    found.seen = places.known();
    let targets = places.targets(procfs, &host.all).into_iter();
    let targets: Vec<Target> = targets
        .filter(|target| !known.contains(&target.inode))
        .collect();
    if !targets.is_empty() {
        visits.extend(visit(targets, &visits_reads));
    }
    let holders = Holders {
        places: &places,
        owners,
        clock: KernelClock::now(),
    };
    let host = (&host, procfs.host_users());
    found.tell_all(visits, host, &holders, stuck.events);
    Ok(found)
}

/// Of how many processes it is not known whose they are.
fn say_owners(missed: &Missed) -> Option<String> {
    missed.say(|n| format!("the pods of {n} processes"))
}

fn shims(tasks: &[TaskEntry]) -> Vec<u32> {
    let leaders = tasks.iter().map(|entry| &entry.task);
    let shims = leaders.filter(|task| task.tid == task.pid && containers::is_shim(&task.comm));
    shims.map(|task| task.pid).collect()
}

fn chain(error: &(impl std::error::Error + 'static)) -> String {
    fault::chain(error)
}

/// Does two things at the same time, or one after the other if there is no
/// thread to be had.
fn both<A, B: Send>(first: impl FnOnce() -> A, second: impl Fn() -> B + Sync) -> (A, B) {
    thread::scope(|scope| {
        let builder = thread::Builder::new().name(String::from("survey"));
        let running = builder.spawn_scoped(scope, &second);
        let first = first();
        let second = match running.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(second)) => second,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => second(),
        };
        (first, second)
    })
}

impl Survey {
    /// What of a search could not be read, and whether there may be more
    /// namespaces for that.
    fn unfound(&mut self, partial: bool, unread: Vec<String>) {
        if partial {
            self.nets_whole = false;
            self.nets_missed.extend(unread.iter().cloned());
        }
        self.unread.extend(unread);
    }

    fn push(&mut self, time: Timestamp, what: What) {
        self.events.push(Event { time, what });
    }

    /// Tells of the namespaces, then of what is stuck.
    fn tell_all(
        &mut self,
        visits: Visits,
        (hosts, users): (&Host, HostUsers),
        holders: &Holders<'_>,
        mut stuck: Vec<Event>,
    ) {
        let time = sys::clock::now();
        let mut cookies = BTreeMap::new();
        let mut failures = Failures::default();
        for (inode, outcome) in visits {
            let host = hosts.all.contains(&inode);
            let node = hosts.node == Some(inode);
            match outcome {
                Ok(Some(mut visit)) => {
                    visit.user_ns = visit.user_ns.and_then(|user_ns| users.other(user_ns));
                    cookies.insert(inode, visit.netns.cookie);
                    let nsid = visit.host_nsid(|home| hosts.node == Some(home));
                    self.tell(time, visit, nsid, (host, node), holders);
                }
                Ok(None) => {}
                Err(error) => {
                    failures.add(inode, &error);
                    let cookie = None;
                    let netns = Netns { inode, cookie };
                    let user_ns = None;
                    let found = What::NetnsFound {
                        netns,
                        host,
                        node,
                        user_ns,
                    };
                    self.push(time, found);
                    if !host {
                        self.push(time, holders.event(netns));
                    }
                }
            }
        }
        self.netns = cookies.len();
        self.read = cookies.keys().copied().collect();
        self.unread.extend(failures.problems());
        let cut = std::mem::take(&mut self.cut).into_iter();
        self.unread.extend(some(cut.map(|inode| {
            format!(
                "netns {inode}: it has more devices, addresses, routes or neighbours than are kept"
            )
        })));
        for event in &mut stuck {
            if let What::TaskBlocked {
                netns: Some(netns), ..
            } = &mut event.what
            {
                netns.cookie = cookies.get(&netns.inode).copied().flatten();
            }
        }
        self.events.extend(stuck);
    }

    /// Tells of one namespace.
    fn tell(
        &mut self,
        time: Timestamp,
        visit: Visit,
        host_nsid: Option<i32>,
        (host, node): (bool, bool),
        holders: &Holders<'_>,
    ) {
        let Visit {
            netns,
            user_ns,
            home_nsid: _,
            addresses,
            devices,
            routes,
            neighbours,
            forwarding,
            addresses_cut,
            cut,
        } = visit;
        let found = What::NetnsFound {
            netns,
            host,
            node,
            user_ns,
        };
        self.push(time, found);
        for DatedAddress { address, made } in addresses {
            let added = What::AddressAdded {
                netns,
                address,
                found: true,
                made,
            };
            self.push(time, added);
        }
        if !host {
            self.push(time, holders.event(netns));
        }
        let devices = What::NetnsDevices {
            netns,
            devices,
            routes,
            neighbours,
            host_nsid,
        };
        self.push(time, devices);
        // Every namespace has rules; without any nothing of it was kept.
        if !forwarding.rules.is_empty() {
            let what = What::NetnsForwarding {
                netns,
                followed: false,
                forwarding,
            };
            self.push(time, what);
        }
        if addresses_cut || cut {
            self.cut.push(netns.inode);
        }
        // Any user could have rules switched off else.
        if addresses_cut && user_ns.is_none() {
            self.addresses_cut.insert(netns.inode);
        }
    }
}

/// The first few of many errors of a kind, and how many there are besides:
/// without rights there is one for each process.
fn some(errors: impl ExactSizeIterator<Item = String>) -> Vec<String> {
    const TOLD: usize = 3;
    let more = errors.len().saturating_sub(TOLD);
    let mut told: Vec<String> = errors.take(TOLD).collect();
    if more > 0 {
        told.push(format!("{more} more of this kind"));
    }
    told
}

#[cfg(test)]
mod tests;
