//! What happens on the node, as every source tells it and the model takes it.
//!
//! The serde form of an [`Event`] is both the line of a recording and, with
//! the record's frame around it, the `type: "event"` line of `-o json`. An
//! event says what was seen and where it was seen, never what it means.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests read what is expected from files"
    )
)]

pub mod clock;
pub mod eni;
pub mod explanation;
pub mod fault;
pub mod finding;
pub mod forwarding;
pub mod mount;
pub mod not_checked;
pub mod order;
pub mod record;
pub mod repair;
pub mod rule;
pub mod signal;
pub mod sleep;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod wording;

use std::{
    collections::BTreeSet,
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, Serializer};

mod cni;
mod start;
mod state;
mod subjects;

pub use self::{
    cni::{CniCall, CniCommand, CniEffect, CniError, CniInterface, CniResult, Trace, TraceKind},
    start::{Endpoint, FullFilesystem, OomKill, StartFailure},
    state::{
        Attachment, Device, MaxPods, Neighbour, Network, PciFunction, Range, Reservation, Route,
        RuntimeContainer, RuntimeSandbox, Store, StoreKind,
    },
    subjects::{
        ADDRESSES, Address, Dad, FdHolder, FuseMount, FuseServer, MAX_ADDRESSES, Netns, NotStuck,
        Pod, PodRef, ReservationHolder, Task, UserNs, has_room,
    },
};
use crate::{clock::Timestamp, forwarding::Forwarding};

/// One thing that happened, or was found to be so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When it happened, as near as the source can tell.
    pub time: Timestamp,
    #[serde(flatten)]
    pub what: What,
}

impl Event {
    /// All that was found in one look.
    pub fn all_of(time: Timestamp, found: Vec<What>) -> Vec<Self> {
        let found = found.into_iter();
        found.map(|what| Self { time, what }).collect()
    }
}

/// Kinds of events. Variants and fields are added, never renamed: recordings
/// and scripts hold the names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum What {
    /// A network namespace was made.
    NetnsCreated {
        netns: Netns,
        /// The task that made it, where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<Task>,
        /// The user namespace that it belongs to, if that is not the host's
        /// and is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user_ns: Option<UserNs>,
    },
    /// A network namespace was there when the tracer first looked.
    NetnsFound {
        netns: Netns,
        /// Whether it is the host's own.
        host: bool,
        /// Of several such, the node's: the container runtime runs in it and plugs
        /// pods into it. A node can be in a namespace itself. (`node` is the frame's.)
        #[serde(rename = "has_runtime", default, skip_serializing_if = "is_false")]
        node: bool,
        /// As in [`What::NetnsCreated`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user_ns: Option<UserNs>,
    },
    /// The last reference to a network namespace is gone; the kernel will take
    /// it down.
    NetnsDying {
        netns: Netns,
        /// The task that dropped it, where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<Task>,
    },
    /// The kernel has taken a network namespace down.
    NetnsDestroyed { netns: Netns },
    /// What keeps a network namespace alive, as it is now.
    NetnsHolders {
        netns: Netns,
        /// Tasks in it; at most [`MAX_HOLDERS`] are listed.
        tasks: Vec<Task>,
        /// How many tasks there are.
        task_count: usize,
        /// Where it is mounted. What is mounted where a user can mount is at
        /// [`mount::of_process`].
        #[serde(serialize_with = "as_text")]
        mounts: Vec<PathBuf>,
        /// Descriptors of it; looked for only where there is neither a task
        /// nor a mount.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fds: Vec<FdHolder>,
        /// Sockets in it whose processes are not; looked for only where there
        /// is nothing else.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sockets: Vec<FdHolder>,
    },
    /// An address was added in a network namespace, or found there.
    AddressAdded {
        netns: Netns,
        #[serde(flatten)]
        address: Address,
        /// It was there when the tracer first looked.
        #[serde(default, skip_serializing_if = "is_false")]
        found: bool,
        /// When it was added by the kernel's own time, of one that was there
        /// already: `IFA_CACHEINFO`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        made: Option<Timestamp>,
    },
    AddressRemoved {
        netns: Netns,
        #[serde(flatten)]
        address: Address,
    },
    /// A task has been in uninterruptible sleep for longer than the threshold.
    TaskBlocked {
        task: Task,
        /// When it went to sleep, or was first seen asleep.
        since: Timestamp,
        /// It slept already when the tracer first looked: `since` is the
        /// latest possible time.
        #[serde(default, skip_serializing_if = "is_false")]
        found: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        netns: Option<Netns>,
        /// The kernel function that it sleeps in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wchan: Option<String>,
        /// Its kernel stack, innermost first, as `function+0xoffset`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stack: Vec<String>,
        /// Whether SIGKILL wakes it, by its state (`TASK_WAKEKILL`); absent if
        /// that could not be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        killable: Option<bool>,
        /// Whether it has been sent a SIGKILL that has not ended it; absent if
        /// that could not be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sigkill_pending: Option<bool>,
        /// The FUSE mounts that it may wait for, if it waits for one.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fuse: Vec<FuseMount>,
    },
    /// A task that had been reported as blocked sleeps no more.
    TaskUnblocked {
        task: Task,
        /// When it had gone to sleep.
        since: Timestamp,
        /// How long it slept, ms.
        duration_ms: u64,
    },
    /// More tasks of one owner have been in uninterruptible sleep for longer
    /// than the threshold than are told one by one.
    TasksBlocked {
        /// Names the owner for as long as the tracer runs.
        crowd: u32,
        /// UID of the owner's pod.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pod_uid: Option<String>,
        /// The user that the first of them runs as.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
        /// How many sleep now, besides those that are told one by one.
        count: u64,
        /// There are more than are counted.
        #[serde(default, skip_serializing_if = "is_false")]
        at_least: bool,
        /// How many sleep no more that were not told one by one, since the last
        /// such event.
        ended: u64,
        /// Since when the one sleeps that has slept longest.
        since: Timestamp,
        /// Those that have slept longest.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        examples: Vec<Task>,
    },
    /// A CNI plugin has started. Its end is the [`CniCall`](What::CniCall).
    CniStarted {
        /// The call as far as it is known.
        #[serde(flatten)]
        call: CniCall,
    },
    /// A CNI plugin was called and has ended.
    CniCall {
        #[serde(flatten)]
        call: CniCall,
        /// Its exit status; absent if a signal ended it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// The signal that ended it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// From exec to exit.
        duration_ms: f64,
        /// What it answered, if it did and that could be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<CniResult>,
        /// The error that it answered with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<CniError>,
        /// Why neither is known, although there should be one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unread: Option<String>,
    },
    /// CNI calls of somebody who is not trusted that were not told one by one.
    UntrustedCalls {
        /// The user who answers for them; absent for many of different users
        /// and containers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
        /// The plugin of the last of them, for one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<Task>,
        count: u64,
        /// How many with those that such events have told before.
        total: u64,
        /// When the first was; the event's time is that of the last.
        since: Timestamp,
    },
    /// Network namespaces that users have made in user namespaces of their own,
    /// and that are not followed, as there are too many.
    UntrustedNetns {
        /// The user who has most of them; absent if there are none any more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
        /// How many there are.
        count: u64,
    },
    /// What a successful CNI ADD or DEL has really done: looked at in the
    /// kernel and in the stores, shortly after the call.
    CniEffect {
        /// What was looked at, and whose.
        #[serde(flatten)]
        effect: CniEffect,
    },
    /// Whether a store of IPAM reservations holds an address, as it is now.
    Reservation {
        /// The address asked about.
        address: IpAddr,
        /// The stores that were looked at and could be read.
        stores: Vec<PathBuf>,
        /// Who has it; `None` if it is free in all of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<ReservationHolder>,
    },
    /// All pods that the API server knows, as a source listed them.
    PodsListed {
        /// Where the list is from.
        source: String,
        /// The time for which it is true.
        at: Timestamp,
        /// The newest time on it, where only that shows that it was not made
        /// earlier: a file can be written long after its list was made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        made_after: Option<Timestamp>,
        /// The source vouches that every pod of this node is on it.
        #[serde(default, skip_serializing_if = "is_false")]
        whole: bool,
        /// Why it shows of no pod that it is gone, where that is known: which
        /// right is missing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        doubt: Option<String>,
        pods: Vec<Pod>,
    },
    /// A pod of the source that listed them is new, or has changed. What else is
    /// on the list stays as true as it was.
    PodChanged {
        /// The pod as it is now.
        pod: Box<Pod>,
    },
    /// A pod that was on an earlier list is not on this one.
    PodDeleted { pod: PodRef },
    /// The pods of the whole cluster that have an address by their status.
    PodsWithAddress {
        address: IpAddr,
        /// The time for which that is true.
        at: Timestamp,
        pods: Vec<Pod>,
    },
    /// The pod sandboxes of the node as a container runtime, or what it has left
    /// on disk, lists them: all that the source knows.
    SandboxesListed {
        /// `cri`, or `bundles` (the runtime's folders; no socket is asked).
        source: String,
        /// Where they are listed: an endpoint, a folder.
        endpoint: String,
        /// The runtime's name and version, where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        runtime: Option<String>,
        /// What is missing in the list, and why: one that is not on it may be
        /// there all the same.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partial: Option<String>,
        sandboxes: Vec<RuntimeSandbox>,
    },
    /// A sandbox that was not on the runtime's last list, or has changed.
    SandboxAdded {
        /// As in [`What::SandboxesListed`].
        source: String,
        #[serde(flatten)]
        sandbox: RuntimeSandbox,
    },
    /// A sandbox that the runtime lists no more.
    SandboxRemoved {
        /// As in [`What::SandboxesListed`].
        source: String,
        id: String,
    },
    /// Containers of which a source shows that they exist: all it knows.
    ContainersListed {
        /// `cgroup` or `shim`.
        source: String,
        /// What is missing, and why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partial: Option<String>,
        /// IDs of containers and sandboxes.
        ids: BTreeSet<String>,
    },
    /// libcni's memory of the ADDs that it has not taken back.
    AttachmentsListed {
        folder: PathBuf,
        /// One for each file that was understood.
        attachments: Vec<Attachment>,
        /// What could not be read or understood, and why.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unread: Vec<String>,
    },
    /// The pod networks that the node's CNI configuration names.
    NetworksListed {
        /// The networks, the one in use first.
        networks: Vec<Network>,
        /// What could not be read or understood, and why.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unread: Vec<String>,
    },
    /// How many pods the kubelet runs at most, as its files say.
    MaxPods {
        #[serde(flatten)]
        limit: MaxPods,
    },
    /// A store of IPAM reservations, whole.
    StoreListed {
        #[serde(flatten)]
        store: Store,
    },
    /// The devices of a network namespace, as they are now.
    NetnsDevices {
        netns: Netns,
        /// The devices, by index.
        devices: Vec<Device>,
        /// Default routes, and routes to single addresses.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        routes: Vec<Route>,
        /// Neighbours that are gateways of these, and permanent ones.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        neighbours: Vec<Neighbour>,
        /// The ID that it has for the host's namespace, which is the `link_nsid` of
        /// devices that lead there; negative if it has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host_nsid: Option<i32>,
    },
    /// How a network namespace sends packets, as it is now: of the node's own, and
    /// of others that have rules or tables of their own.
    NetnsForwarding {
        netns: Netns,
        /// It is told again whenever it changes; otherwise it is what one look has
        /// shown.
        #[serde(default, skip_serializing_if = "is_false")]
        followed: bool,
        #[serde(flatten)]
        forwarding: Forwarding,
    },
    /// Since now that is out of date, or not any more: the kernel has told of changes,
    /// and it is not time yet to read it again; or it was read, and is the same.
    NetnsForwardingOutdated { netns: Netns, outdated: bool },
    /// The Ethernet controllers that the PCI bus has, whichever namespace their
    /// network devices are in.
    PciListed { functions: Vec<PciFunction> },
    /// A sandbox, or what a pod needs besides it, could not be made.
    SandboxFailed {
        /// What was said of it.
        #[serde(flatten)]
        failure: StartFailure,
    },
    /// A pod's entry in a CNI's own data was written.
    EndpointWritten {
        #[serde(flatten)]
        endpoint: Endpoint,
    },
    EndpointDeleted {
        #[serde(flatten)]
        endpoint: Endpoint,
    },
    /// A CNI DEL has left it where it is, as it is of another sandbox.
    EndpointKept {
        /// The sandbox that the DEL was for.
        del: String,
        #[serde(flatten)]
        endpoint: Endpoint,
    },
    /// The kernel has chosen a task to be killed, as memory is short.
    OomKilled {
        /// The task, and why.
        #[serde(flatten)]
        kill: OomKill,
    },
    /// Tasks of one owner that the kernel has chosen to be killed and that were
    /// not told one by one.
    TasksOomKilled {
        /// The user who answers for them; absent for many of different users
        /// and containers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
        /// The last of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<Task>,
        count: u64,
        /// How many with those that such events have told before.
        total: u64,
        /// When the first was; the event's time is that of the last.
        since: Timestamp,
    },
    /// A container of a pod was started, so its sandbox is there: by a log.
    PodStarted { pod: PodRef },
    /// A file system that pods need was full when one of them failed to start.
    FilesystemFull {
        #[serde(flatten)]
        full: FullFilesystem,
    },
    /// The kernel waits for the last references to a device that is being
    /// removed (`unregister_netdevice: waiting for ... to become free`).
    DeviceWaiting {
        device: String,
        /// How many references there still are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        references: Option<i64>,
    },
    /// A source does not answer; what only it knows is unknown.
    SourceFailed {
        source: String,
        /// What failed, on what.
        error: String,
    },
    /// A source that had failed answers again.
    SourceRecovered { source: String },
    /// Records were lost before they reached the tracer.
    EventsLost {
        cause: String,
        /// How many, since the last such event of the cause.
        count: u64,
    },
    /// The wall clock was set, or the machine was suspended. Durations leave
    /// it out; times are the new clock's from here on, this event's too, also
    /// of what was before.
    ClockStepped {
        /// What was added to the clock, ms.
        by_ms: i64,
        /// The machine was suspended meanwhile.
        #[serde(default, skip_serializing_if = "is_false")]
        suspended: bool,
    },
    /// Nothing happened; time has passed. Rules are applied at these.
    Tick,
}

impl What {
    /// Whether it is for the engine alone, and for the recording: a node's whole
    /// tables are no record.
    pub fn is_internal(&self) -> bool {
        matches!(
            self,
            Self::NetnsForwarding { .. } | Self::NetnsForwardingOutdated { .. }
        )
    }

    /// The kind's name in records.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NetnsCreated { .. } => "netns-created",
            Self::NetnsFound { .. } => "netns-found",
            Self::NetnsDying { .. } => "netns-dying",
            Self::NetnsDestroyed { .. } => "netns-destroyed",
            Self::NetnsHolders { .. } => "netns-holders",
            Self::AddressAdded { .. } => "address-added",
            Self::AddressRemoved { .. } => "address-removed",
            Self::TaskBlocked { .. } => "task-blocked",
            Self::TaskUnblocked { .. } => "task-unblocked",
            Self::TasksBlocked { .. } => "tasks-blocked",
            Self::CniStarted { .. } => "cni-started",
            Self::CniCall { .. } => "cni-call",
            Self::UntrustedCalls { .. } => "untrusted-calls",
            Self::UntrustedNetns { .. } => "untrusted-netns",
            Self::CniEffect { .. } => "cni-effect",
            Self::Reservation { .. } => "reservation",
            Self::PodsListed { .. } => "pods-listed",
            Self::PodChanged { .. } => "pod-changed",
            Self::PodDeleted { .. } => "pod-deleted",
            Self::PodsWithAddress { .. } => "pods-with-address",
            Self::SandboxesListed { .. } => "sandboxes-listed",
            Self::SandboxAdded { .. } => "sandbox-added",
            Self::SandboxRemoved { .. } => "sandbox-removed",
            Self::ContainersListed { .. } => "containers-listed",
            Self::AttachmentsListed { .. } => "attachments-listed",
            Self::NetworksListed { .. } => "networks-listed",
            Self::MaxPods { .. } => "max-pods",
            Self::StoreListed { .. } => "store-listed",
            Self::NetnsDevices { .. } => "netns-devices",
            Self::NetnsForwarding { .. } => "netns-forwarding",
            Self::NetnsForwardingOutdated { .. } => "netns-forwarding-outdated",
            Self::PciListed { .. } => "pci-listed",
            Self::SandboxFailed { .. } => "sandbox-failed",
            Self::EndpointWritten { .. } => "endpoint-written",
            Self::EndpointDeleted { .. } => "endpoint-deleted",
            Self::EndpointKept { .. } => "endpoint-kept",
            Self::OomKilled { .. } => "oom-killed",
            Self::TasksOomKilled { .. } => "tasks-oom-killed",
            Self::PodStarted { .. } => "pod-started",
            Self::FilesystemFull { .. } => "filesystem-full",
            Self::DeviceWaiting { .. } => "device-waiting",
            Self::SourceFailed { .. } => "source-failed",
            Self::SourceRecovered { .. } => "source-recovered",
            Self::EventsLost { .. } => "events-lost",
            Self::ClockStepped { .. } => "clock-stepped",
            Self::Tick => "tick",
        }
    }
}

/// Tasks, and descriptors, that [`What::NetnsHolders`] lists by name.
pub const MAX_HOLDERS: usize = 32;

/// Paths that anybody on the node can choose, as text: bytes that are none of
/// UTF-8 are lost, which costs a character and not the whole line.
pub fn as_text<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

/// As [`as_text`].
fn one_as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

pub fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    #[test]
    fn holders_told_before_there_were_descriptors_are_read_and_written_as_they_were() {
        let event = holders(5, 100, &[], &["/run/netns/a"]);
        let json = serde_json::to_value(&event).unwrap();
        assert_eq!(json.get("fds"), None);
        assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event);
    }

    #[test]
    fn a_duration_is_read_as_it_was_written_to_the_last_bit() {
        let mut event = ended(5, call("DEL", "a", 100, OLD, "b"));
        if let What::CniCall { duration_ms, .. } = &mut event.what {
            *duration_ms = 418.001_000_000_000_03;
        }
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event);
    }

    #[test]
    fn descriptors_have_the_contracts_keys() {
        let nameless = FdHolder {
            comm: None,
            ..leaked_fd(4)
        };
        let event = held_by_fds(5, 100, &[leaked_fd(3), nameless]);
        let json = serde_json::to_value(&event).unwrap();
        let fds = serde_json::json!([
            {"pid": 77, "fd": 3, "comm": "cni-daemon"},
            {"pid": 77, "fd": 4},
        ]);
        assert_eq!(json["fds"], fds);
        assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event);
    }
}
