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
//! a namespace that is gone when it is visited is left out without a word.

use std::{collections::BTreeMap, thread, time::Duration};

use self::{
    holders::{Holders, Owners},
    places::{Places, Stray},
};
use crate::{
    clock::{KernelClock, Timestamp},
    event::{Event, What},
    report,
    source::{
        containers,
        netlink::{self, NetlinkError, Target, Visit},
        procfs::{Procfs, ProcfsError, TaskEntry},
    },
};

mod holders;
mod host;
mod places;
mod stalls;

/// How long rtnetlink may take in one namespace.
const VISIT: Duration = Duration::from_millis(500);
/// How long it may take in all of them.
const VISITS: Duration = Duration::from_secs(10);

/// What a look at the node has brought.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// `NetnsFound`, `AddressAdded`, `NetnsDevices` and, but for the host's own,
    /// `NetnsHolders` of each namespace; then `TaskBlocked`.
    pub(crate) events: Vec<Event>,
    /// What could not be read, and why; what is there is unknown.
    pub(crate) unread: Vec<String>,
    /// How many tasks there are.
    pub(crate) tasks: usize,
    /// How many network namespaces were read.
    pub(crate) netns: usize,
    /// Processes that have the name of a container's shim.
    pub(crate) shims: Vec<u32>,
}

/// Looks at the node. A task counts as stuck once it has been in
/// uninterruptible sleep for `stall_threshold`.
///
/// # Errors
/// The tasks cannot be listed: it is not a proc file system, or it does not
/// answer.
pub(crate) fn survey(procfs: &Procfs, stall_threshold: Duration) -> Result<Survey, ProcfsError> {
    let (tasks, mounts) = both(|| procfs.tasks(), || procfs.nsfs_mounts());
    let tasks = tasks?;
    let mut found = Survey {
        tasks: tasks.len(),
        shims: shims(&tasks),
        ..Survey::default()
    };
    let host = host::netns(procfs, &tasks, &mut found.unread);
    let mut places = Places::of(&tasks);
    match mounts {
        Ok(mounts) => {
            places.mounts = mounts.mounts;
            found.unread.extend(mounts.unread.iter().map(chain));
        }
        Err(error) => found.unread.push(chain(&error)),
    }
    // What most namespaces are reached by is known by now: while they are
    // visited, descriptors and sockets are looked at.
    let (known, targets) = (places.known(), places.targets(procfs));
    let processes = places::processes(&tasks, &host);
    let (stray, (mut visits, owners)) = both(
        || Stray::find(procfs, &processes, &known),
        || {
            let named = holders::named(&places, &host);
            let visits = visit(procfs, targets.clone());
            (visits, Owners::look_up(procfs, named))
        },
    );
    places.fds = stray.fds;
    places.sockets = stray.sockets;
    found.unread.extend(stray.unread);
    let targets = places.targets(procfs).into_iter();
    let targets: Vec<Target> = targets
        .filter(|target| !known.contains(&target.inode))
        .collect();
    if !targets.is_empty() {
        visits.extend(visit(procfs, targets));
    }

    let mut identities = BTreeMap::new();
    let time = Timestamp::now();
    let holders = Holders {
        places: &places,
        owners,
        clock: KernelClock::now(),
    };
    for outcome in visits {
        match outcome {
            Ok(Some(visit)) => {
                identities.insert(visit.netns.inode, visit.netns);
                let host = host.contains(&visit.netns.inode);
                found.tell(time, visit, host, &holders);
            }
            Ok(None) => {}
            Err(error) => found.unread.push(chain(&error)),
        }
    }
    found.netns = identities.len();
    stalls::tell(procfs, &tasks, &identities, stall_threshold, &mut found);
    Ok(found)
}

fn shims(tasks: &[TaskEntry]) -> Vec<u32> {
    let leaders = tasks.iter().map(|entry| &entry.task);
    let shims = leaders.filter(|task| task.tid == task.pid && containers::is_shim(&task.comm));
    shims.map(|task| task.pid).collect()
}

fn chain(error: &(impl std::error::Error + 'static)) -> String {
    report::chain(error)
}

fn visit(procfs: &Procfs, targets: Vec<Target>) -> Vec<Result<Option<Visit>, NetlinkError>> {
    netlink::visit_all(targets, procfs.bounded_reads(), VISIT, VISITS)
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
    fn push(&mut self, time: Timestamp, what: What) {
        self.events.push(Event { time, what });
    }

    /// Tells of one namespace.
    fn tell(&mut self, time: Timestamp, visit: Visit, host: bool, holders: &Holders<'_>) {
        let Visit {
            netns,
            addresses,
            devices,
            routes,
            neighbours,
            cut,
        } = visit;
        self.push(time, What::NetnsFound { netns, host });
        for address in addresses {
            let added = What::AddressAdded {
                netns,
                address,
                found: true,
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
        };
        self.push(time, devices);
        if cut {
            let inode = netns.inode;
            self.unread.push(format!(
                "netns {inode}: it has more devices, addresses, routes or neighbours than are kept"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
