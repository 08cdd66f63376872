//! What is known of the node: every event so far, folded into tables.
//!
//! [`Model::apply`] does no I/O and reads no clock: the same events give the
//! same model. It draws no conclusions either; those are `detect`'s.
//!
//! Each table is bounded. What a full table does not take is counted under
//! [`TABLE_FULL`], so that a finding says that there may be more:
//!
//! | table | holds | when full |
//! |---|---|---|
//! | network namespaces | [`netns::MAX_NETNS`] | the longest dying one makes room; if none is dying, the new one is left out |
//! | addresses | [`MAX_ADDRESSES`](event::MAX_ADDRESSES) | the new one is left out, unless its namespace has few |
//! | crowds of blocked tasks | [`task::MAX_CROWDS`] | the new one is left out |
//! | blocked tasks | [`task::MAX_BLOCKED`] | the new one is left out |
//! | pods on the list | [`pods::MAX_PODS`] | the rest is left out, and the list proves no absence any more |
//! | reservations | [`allocation::MAX_ANSWERS`] | the one that was answered longest ago makes room |
//! | addresses asked about in the cluster | [`cluster::MAX_ADDRESSES`] | the one that was asked about longest ago makes room |
//! | sandboxes, containers, attachments, reservations | the constants of [`runtime`] and [`attachment`] | the rest is left out |
//! | attachments with their CNI calls | [`calls::MAX_ATTACHMENTS`] | the one that was called for longest ago makes room |
//! | pods that do not start | [`starts::MAX_PODS`] | the one that was told of longest ago makes room |
//! | a CNI's endpoints | [`endpoints::MAX_ENDPOINTS`] | the one that was told of longest ago makes room |
//! | what sandboxes had | as many as namespaces, and the constants of [`lost`] | the new one is left out |
//! | causes of loss, failed sources | [`MAX_NAMES`] | counted under [`OTHER`] / left out |
//!
//! What is old stays, because a ghost is older than what it harms. Only what
//! was called for a sandbox that is gone without a trace is forgotten while
//! tracing ([`Model::forgetting`]).

pub mod allocation;
pub mod attachment;
pub mod calls;
pub mod cluster;
pub mod endpoints;
mod expiry;
mod listed;
pub mod lost;
pub mod netns;
pub mod pods;
mod resolve_owner;
pub mod runtime;
pub mod sandbox;
pub mod starts;
pub mod task;
pub mod waiting;

use event::{
    CniCall, CniCommand, Event, MAX_HOLDERS, MaxPods, Netns, PciFunction, Task, What,
    clock::Timestamp,
};
use std::{collections::BTreeMap, time::Duration};

use allocation::Allocations;
use attachment::Cni;
use calls::{CallResult, Calls};
use cluster::Cluster;
use endpoints::Endpoints;
use lost::Lost;
use netns::NetnsTable;
use pods::Pods;
use resolve_owner::HostEnds;
use runtime::Runtime;
use sandbox::CallEnd;
use starts::Starts;
use task::BlockedTasks;
use waiting::WaitingDevices;

/// Cause under which entries are counted that a full table did not take.
pub const TABLE_FULL: &str = "model-table-full";
/// Cause under which losses are counted when there are too many causes.
pub const OTHER: &str = "other";
/// Causes of loss, and failed sources, that are kept by name.
pub const MAX_NAMES: usize = 64;

/// The name that all sources of pods share.
const SHARED: &str = "pods";

/// The name of what tells processes' pods by their cgroups, in events.
pub const OWNERS: &str = "pods by cgroup";

/// All that is known of the node.
#[derive(Debug, Default)]
pub struct Model {
    /// Network namespaces with their addresses, holders and sandboxes.
    pub netns: NetnsTable,
    /// Tasks in uninterruptible sleep.
    pub blocked: BlockedTasks,
    /// Pods as last listed, and those that went.
    pub pods: Pods,
    /// Who has some addresses in the whole cluster.
    pub cluster: Cluster,
    /// What stores of reservations said.
    pub allocations: Allocations,
    /// Sandboxes and containers, as runtimes and their remains show them.
    pub runtime: Runtime,
    /// CNI's networks, attachments and reservations, as last listed.
    pub cni: Cni,
    /// The host-side ends of veth pairs.
    host_ends: HostEnds,
    /// CNI calls that were seen.
    pub calls: Calls,
    /// What living sandboxes had and have lost.
    pub lost: Lost,
    /// Pods that do not start.
    pub starts: Starts,
    /// How many pods the kubelet runs at most, if its files say so.
    pub max_pods: Option<MaxPods>,
    /// The PCI bus's Ethernet controllers, and when they were read.
    pub functions: Option<(Timestamp, Vec<PciFunction>)>,
    /// Pods' entries in a CNI's own data.
    pub endpoints: Endpoints,
    /// Devices that the kernel cannot remove yet.
    pub waiting: WaitingDevices,
    /// Records that never became events.
    pub losses: Losses,
    /// Sources that do not answer: since when, and what they say.
    failed: BTreeMap<String, Failure>,
    /// See [`Model::forgetting`].
    forgets: bool,
}

/// A source that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub since: Timestamp,
    pub error: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// How many, by cause.
    pub by_cause: BTreeMap<String, u64>,
    /// When the first loss was noticed.
    pub first: Option<Timestamp>,
    pub last: Option<Timestamp>,
    /// Since when they come without a pause of [`Losses::QUIET`].
    pub spell: Option<Timestamp>,
}

impl Losses {
    /// After so long without a further one, a tracer's losses are over: what
    /// they left open has been looked at again many times by then.
    pub const QUIET: Duration = Duration::from_secs(600);

    fn add(&mut self, cause: &str, count: u64, time: Timestamp) -> bool {
        if count == 0 {
            return false;
        }
        let known = self.by_cause.contains_key(cause) || self.by_cause.len() < MAX_NAMES;
        let cause = if known { cause } else { OTHER };
        let sum = self.by_cause.entry(cause.to_owned()).or_default();
        *sum = sum.saturating_add(count);
        self.first.get_or_insert(time);
        let goes_on = self.last.is_some_and(|last| time < last.plus(Self::QUIET));
        self.spell = self.spell.filter(|_| goes_on).or(Some(time));
        self.last = Some(time);
        true
    }
}

impl Model {
    /// One of a tracer that runs for long, and forgets calls that no rule asks
    /// for any more.
    pub fn forgetting() -> Self {
        Self {
            forgets: true,
            ..Self::default()
        }
    }

    /// Whether it is of a tracer that runs for long.
    pub fn runs_on(&self) -> bool {
        self.forgets
    }

    /// Takes one event in. Returns whether anything changed by it that a
    /// verdict may depend on.
    pub fn apply(&mut self, event: &Event) -> bool {
        let time = event.time;
        let tables = lost::Tables {
            netns: &self.netns,
            calls: &self.calls,
            cni: &self.cni,
        };
        let lost = self.lost.take(tables, time, &event.what);
        let changed = self.take(time, &event.what)
            | self.made(time, &event.what)
            | lost
            | self.netns.take_removed();
        let full = self.netns.take_dropped()
            + self.blocked.take_dropped()
            + self.pods.take_dropped()
            + self.allocations.take_dropped()
            + self.cluster.take_dropped()
            + self.runtime.take_dropped()
            + self.cni.take_dropped()
            + self.calls.take_dropped()
            + self.lost.take_dropped()
            + self.starts.take_dropped()
            + self.endpoints.take_dropped()
            + self.waiting.take_dropped();
        self.losses.add(TABLE_FULL, full, time) || changed
    }

    /// How the source of pods failed, if it does not answer at present: by the
    /// list's name, or by the one that all sources of pods share.
    pub fn pods_failure(&self) -> Option<&Failure> {
        let name = self.pods.list().map(|list| list.source.as_str());
        let own = name.and_then(|name| self.failed.get(name));
        own.or_else(|| self.failed.get(SHARED))
    }

    /// How a source failed, if it does not answer at present.
    pub fn failure(&self, source: &str) -> Option<&Failure> {
        self.failed.get(source)
    }

    /// Sources that do not answer at present, by name.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &Failure)> {
        let failed = self.failed.iter();
        failed.map(|(source, failure)| (source.as_str(), failure))
    }

    /// Whether a pod's sandbox was made that was told to fail.
    fn made(&mut self, time: Timestamp, what: &What) -> bool {
        let pod = match what {
            What::SandboxAdded { sandbox, .. } if sandbox.ready == Some(true) => &sandbox.pod,
            What::PodStarted { pod } => pod,
            What::CniCall {
                call,
                exit_code: Some(0),
                ..
            } if call.log && !call.delegated && call.command == CniCommand::Add => {
                match &call.pod {
                    Some(pod) => pod,
                    None => return false,
                }
            }
            _ => return false,
        };
        self.starts.made(pod, time) | self.calls.made(pod, time)
    }

    fn take(&mut self, time: Timestamp, what: &What) -> bool {
        match what {
            What::NetnsCreated {
                netns,
                task: _,
                user_ns,
            } => self.netns.created(*netns, time) | self.netns.owned(*netns, *user_ns),
            What::NetnsFound {
                netns,
                host,
                node,
                user_ns,
            } => self.netns.found(*netns, *host, *node, time) | self.netns.owned(*netns, *user_ns),
            What::NetnsDying { netns, task: _ } => {
                self.netns_gone(*netns, time) | self.netns.dying(*netns, time)
            }
            What::NetnsDestroyed { netns } => {
                self.netns_gone(*netns, time) | self.netns.destroyed(*netns, time)
            }
            What::NetnsHolders {
                netns,
                tasks,
                task_count,
                mounts,
                fds,
                sockets,
            } => {
                let held = netns::Held {
                    tasks,
                    task_count: *task_count,
                    mounts,
                    fds,
                    sockets,
                };
                self.netns.held(*netns, time, held)
                    | self.attribute(*netns, time, tasks)
                    | self.resolve_owner(*netns, time)
            }
            What::AddressAdded {
                netns,
                address,
                found,
                made,
            } => {
                self.netns
                    .address_added(*netns, time, address, *found, *made)
                    | self.resolve_owner(*netns, time)
            }
            What::AddressRemoved { netns, address } => {
                self.netns.address_removed(*netns, time, address)
            }
            What::TaskBlocked {
                task,
                since,
                found,
                netns,
                wchan,
                stack,
                killable,
                sigkill_pending,
                fuse,
            } => {
                let changed = self.blocked.blocked(task::Blocked {
                    task: task.clone(),
                    since: *since,
                    found: *found,
                    netns: *netns,
                    wchan: wchan.clone(),
                    stack: stack.clone(),
                    killable: *killable,
                    sigkill_pending: *sigkill_pending,
                    fuse: fuse.clone(),
                    seen: time,
                });
                let task = std::slice::from_ref(task);
                netns.is_some_and(|netns| self.attribute(netns, time, task)) | changed
            }
            What::TasksBlocked {
                crowd,
                pod_uid,
                uid,
                count,
                at_least,
                ended: _,
                since,
                examples,
            } => {
                let known = task::Crowd {
                    pod_uid: pod_uid.clone(),
                    uid: *uid,
                    count: *count,
                    at_least: *at_least,
                    since: *since,
                    examples: examples.clone(),
                };
                self.blocked.crowd(*crowd, known)
            }
            What::TaskUnblocked {
                task,
                since: _,
                duration_ms: _,
            } => self.blocked.unblocked(task) | self.netns.unblocked(task),
            What::CniStarted { call } => self.call(call, time, None),
            What::CniCall {
                call,
                exit_code,
                signal,
                duration_ms,
                result,
                error,
                unread: _,
            } => {
                let end = CallResult {
                    at: time,
                    log: call.log,
                    exit_code: *exit_code,
                    signal: *signal,
                    duration_ms: *duration_ms,
                    result: result.clone(),
                    error: error.clone(),
                };
                self.call(call, time, Some(&end))
            }
            What::CniEffect { effect } => self.calls.effect(effect, time),
            What::Reservation {
                address,
                stores,
                holder,
            } => self
                .allocations
                .answer(*address, time, stores, holder.as_ref()),
            What::PodsListed {
                source,
                at,
                made_after,
                whole,
                doubt,
                pods,
            } => {
                self.failed.remove(SHARED);
                self.failed.remove(source);
                // A list from the future would keep all later ones out.
                let at = (*at).min(time);
                let is_new = self.pods.listed(source, at, *made_after, *whole, pods);
                if is_new {
                    self.pods.doubted(doubt.as_deref());
                }
                is_new && self.stand_all(time)
            }
            What::PodsWithAddress { address, at, pods } => {
                self.cluster.take_answer(*address, (*at).min(time), pods)
            }
            What::PodChanged { pod } => self.pods.changed(pod, time) && self.stand_all(time),
            What::PodDeleted { pod } => self.pods.deleted(pod, time) && self.stand_all(time),
            What::SourceFailed { source, error } => self.source_failed(source, error, time),
            What::SourceRecovered { source } => self.failed.remove(source).is_some(),
            What::EventsLost { cause, count } => self.losses.add(cause, *count, time),
            What::SandboxesListed { .. }
            | What::SandboxAdded { .. }
            | What::SandboxRemoved { .. }
            | What::ContainersListed { .. }
            | What::AttachmentsListed { .. }
            | What::NetworksListed { .. }
            | What::MaxPods { .. }
            | What::StoreListed { .. } => self.take_list(time, what),
            What::NetnsDevices {
                netns,
                devices,
                routes,
                neighbours,
                host_nsid,
            } => {
                let wiring = netns::Wiring {
                    at: time,
                    devices: devices.clone(),
                    routes: routes.clone(),
                    neighbours: neighbours.clone(),
                    host_nsid: *host_nsid,
                };
                self.netns.wired(*netns, time, wiring)
                    | self.host_wired(*netns, time, devices)
                    | self.resolve_owner(*netns, time)
            }
            What::NetnsForwarding {
                netns,
                followed,
                forwarding,
            } => self.netns.forwards(*netns, time, *followed, forwarding),
            What::NetnsForwardingOutdated { netns, outdated } => {
                let since = outdated.then_some(time);
                self.netns.forwarding_outdated(*netns, time, since)
            }
            What::PciListed { functions } => {
                let old = self.functions.replace((time, functions.clone()));
                old.is_none_or(|(_, old)| old != *functions)
            }
            What::SandboxFailed { failure } => self.starts.failed(failure, time),
            // See `made`.
            What::PodStarted { .. } => false,
            What::OomKilled { kill } => self.starts.killed(kill, time),
            What::FilesystemFull { full } => self.starts.filled(full, time),
            What::EndpointWritten { endpoint } => self.endpoints.written(endpoint, time),
            What::EndpointDeleted { endpoint } => self.endpoints.deleted(endpoint, time),
            What::EndpointKept { del, endpoint } => self.endpoints.kept(endpoint, del, time),
            What::DeviceWaiting { device, references } => {
                self.waiting.waits(device, *references, time)
            }
            // Nobody believes what they say.
            What::UntrustedCalls { .. } | What::UntrustedNetns { .. } => false,
            // The first few say what there is to be said.
            What::TasksOomKilled { .. } => false,
            What::ClockStepped { .. } | What::Tick => false,
        }
    }

    /// Which pod a namespace belongs to, by the cgroups of tasks in it.
    fn attribute(&mut self, netns: Netns, time: Timestamp, tasks: &[Task]) -> bool {
        let Some(entry) = self.netns.resolve(netns, time).filter(|entry| !entry.host) else {
            return false;
        };
        // A task that sleeps in it is there, even if it is not in this event.
        let stuck = self.blocked.in_netns(entry.id).take(MAX_HOLDERS);
        let tasks = tasks.iter().chain(stuck.map(|blocked| &blocked.task));
        let tasks = tasks
            .filter(|task| resolve_owner::is_vouched(task, &self.runtime, &self.cni, &self.pods));
        let changed = entry.sandbox.note_tasks(tasks, &self.pods, time);
        changed | entry.sandbox.stand(&self.pods, entry.seen)
    }

    /// What was called for a namespace that goes, and what it still has.
    fn netns_gone(&mut self, netns: Netns, time: Timestamp) -> bool {
        let entry = self.netns.get(netns);
        let held = entry.into_iter().flat_map(|entry| entry.addresses.iter());
        let held = held.map(|held| held.address.address).collect();
        self.calls.netns_gone(netns, time, held)
    }

    /// A CNI call, started or ended. Only a trusted one counts.
    fn call(&mut self, call: &CniCall, time: Timestamp, end: Option<&CallResult>) -> bool {
        if !call.trusted {
            return false;
        }
        let noted = self.calls.note(call, time, end);
        let end = end.map(|end| CallEnd {
            at: end.at,
            exit_code: end.exit_code,
            failed: end.is_failed(),
        });
        self.forget_past(time);
        noted | self.sandbox_call(call, time, end)
    }

    /// What a call says of the namespace it is for.
    fn sandbox_call(&mut self, call: &CniCall, time: Timestamp, end: Option<CallEnd>) -> bool {
        match call.command {
            CniCommand::Add => {
                let entry = call.netns.and_then(|netns| self.netns.resolve(netns, time));
                let Some(entry) = entry.filter(|entry| !entry.host) else {
                    return false;
                };
                entry.sandbox.note_add(call, time) | entry.sandbox.stand(&self.pods, entry.seen)
            }
            CniCommand::Del => {
                let inode = call.netns.map(|netns| netns.inode);
                let mut changed = false;
                for entry in self.netns.live_mut() {
                    let its = entry.sandbox.has_container(&call.container_id)
                        || (entry.sandbox.id.is_none() && inode == Some(entry.id.inode));
                    changed |= its && entry.sandbox.note_del(call, time, end);
                }
                changed
            }
            _ => false,
        }
    }

    /// Looks every sandbox's pod up again.
    fn stand_all(&mut self, time: Timestamp) -> bool {
        let pods = &self.pods;
        for entry in self.netns.live_mut() {
            resolve_owner::note_late(entry, &self.runtime, &self.cni, pods, time);
            entry.sandbox.stand(pods, entry.seen);
        }
        true
    }

    fn source_failed(&mut self, source: &str, error: &str, time: Timestamp) -> bool {
        if let Some(known) = self.failed.get_mut(source) {
            let changed = known.error != error;
            error.clone_into(&mut known.error);
            return changed;
        }
        if self.failed.len() >= MAX_NAMES {
            return false;
        }
        let failure = Failure {
            since: time,
            error: error.to_owned(),
        };
        self.failed.insert(source.to_owned(), failure);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::testing::*;

    #[test]
    fn a_source_fails_until_it_answers_again() {
        let mut model = Model::default();
        let failed = |error: &str| What::SourceFailed {
            source: "pods".into(),
            error: error.into(),
        };
        assert!(model.apply(&at(1, failed("timed out"))));
        assert!(!model.apply(&at(2, failed("timed out"))));
        assert_eq!(model.pods_failure().unwrap().since, s(1));
        assert!(model.apply(&at(
            3,
            What::SourceRecovered {
                source: "pods".into()
            }
        )));
        assert!(model.pods_failure().is_none());
    }

    #[test]
    fn losses_add_up_by_cause_and_the_causes_are_bounded() {
        let mut model = Model::default();
        for i in 0..200 {
            let lost = What::EventsLost {
                cause: format!("cause {i}"),
                count: 2,
            };
            model.apply(&at(i, lost));
        }
        assert_eq!(model.losses.by_cause.len(), MAX_NAMES + 1);
        assert_eq!(model.losses.by_cause.values().sum::<u64>(), 400);
        assert_eq!(
            (model.losses.first, model.losses.last),
            (Some(s(0)), Some(s(199)))
        );
    }

    #[test]
    fn an_event_that_says_nothing_new_changes_nothing() {
        let mut model = Model::default();
        for event in ghost_story() {
            model.apply(&event);
            let is_call = matches!(event.what, What::CniCall { .. } | What::PodsListed { .. });
            assert!(is_call || !model.apply(&event), "{event:?}");
        }
    }
}
