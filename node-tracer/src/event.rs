//! What happens on the node, as every source tells it and the model takes it.
//!
//! The serde form of an [`Event`] is both the line of a recording and, with
//! the record's frame around it, the `type: "event"` line of `-o json`. An
//! event says what was seen and where it was seen, never what it means.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize, Serializer};

mod cni;
mod lists;
mod start;

pub(crate) use self::{
    cni::{CniCall, CniEffect, CniError, CniInterface, CniResult, Trace, TraceKind},
    lists::{
        Attachment, Device, Neighbour, Network, Range, Reservation, Route, RuntimeContainer,
        RuntimeSandbox, Store, StoreKind,
    },
    start::{Endpoint, FullFilesystem, OomKill, StartFailure},
};
use crate::clock::Timestamp;

/// One thing that happened, or was found to be so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// When it happened, as near as the source can tell.
    pub(crate) time: Timestamp,
    /// What.
    #[serde(flatten)]
    pub(crate) what: What,
}

/// Kinds of events. Variants and fields are added, never renamed: recordings
/// and scripts hold the names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum What {
    /// A network namespace was made.
    NetnsCreated {
        /// Which.
        netns: Netns,
        /// The task that made it, where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<Task>,
    },
    /// A network namespace was there when the tracer first looked.
    NetnsFound {
        /// Which.
        netns: Netns,
        /// Whether it is the host's own.
        host: bool,
    },
    /// The last reference to a network namespace is gone; the kernel will take
    /// it down.
    NetnsDying {
        /// Which.
        netns: Netns,
        /// The task that dropped it, where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<Task>,
    },
    /// The kernel has taken a network namespace down.
    NetnsDestroyed {
        /// Which.
        netns: Netns,
    },
    /// What keeps a network namespace alive, as it is now.
    NetnsHolders {
        /// Which.
        netns: Netns,
        /// Tasks in it; at most [`MAX_HOLDERS`] are listed.
        tasks: Vec<Task>,
        /// How many tasks there are.
        task_count: usize,
        /// Where it is mounted.
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
        /// Where.
        netns: Netns,
        /// Which.
        #[serde(flatten)]
        address: Address,
        /// It was there when the tracer first looked.
        #[serde(default, skip_serializing_if = "is_false")]
        found: bool,
    },
    /// An address was removed.
    AddressRemoved {
        /// Where.
        netns: Netns,
        /// Which.
        #[serde(flatten)]
        address: Address,
    },
    /// A task has been in uninterruptible sleep for longer than the threshold.
    TaskBlocked {
        /// The task.
        task: Task,
        /// When it went to sleep, or was first seen asleep.
        since: Timestamp,
        /// It slept already when the tracer first looked: `since` is the
        /// latest possible time.
        #[serde(default, skip_serializing_if = "is_false")]
        found: bool,
        /// Its network namespace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        netns: Option<Netns>,
        /// The kernel function that it sleeps in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wchan: Option<String>,
        /// Its kernel stack, innermost first, as `function+0xoffset`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stack: Vec<String>,
    },
    /// A task that had been reported as blocked sleeps no more.
    TaskUnblocked {
        /// The task.
        task: Task,
        /// When it had gone to sleep.
        since: Timestamp,
        /// How long it slept, ms.
        duration_ms: u64,
    },
    /// A CNI plugin has started. Its end is the [`CniCall`](What::CniCall).
    CniStarted {
        /// The call as far as it is known.
        #[serde(flatten)]
        call: CniCall,
    },
    /// A CNI plugin was called and has ended.
    CniCall {
        /// The call.
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
        /// The source vouches that every pod of this node is on it.
        #[serde(default, skip_serializing_if = "is_false")]
        whole: bool,
        /// The pods.
        pods: Vec<Pod>,
    },
    /// A pod that was on an earlier list is not on this one.
    PodDeleted {
        /// The pod.
        pod: PodRef,
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
        /// The sandboxes.
        sandboxes: Vec<RuntimeSandbox>,
    },
    /// A sandbox that was not on the runtime's last list, or has changed.
    SandboxAdded {
        /// As in [`What::SandboxesListed`].
        source: String,
        /// The sandbox.
        #[serde(flatten)]
        sandbox: RuntimeSandbox,
    },
    /// A sandbox that the runtime lists no more.
    SandboxRemoved {
        /// As in [`What::SandboxesListed`].
        source: String,
        /// Its ID.
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
        /// The folder.
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
    /// A store of IPAM reservations, whole.
    StoreListed {
        /// The store.
        #[serde(flatten)]
        store: Store,
    },
    /// The devices of a network namespace, as they are now.
    NetnsDevices {
        /// Which namespace.
        netns: Netns,
        /// The devices, by index.
        devices: Vec<Device>,
        /// Default routes, and routes to single addresses.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        routes: Vec<Route>,
        /// Neighbours that are gateways of these, and permanent ones.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        neighbours: Vec<Neighbour>,
    },
    /// A sandbox, or what a pod needs besides it, could not be made.
    SandboxFailed {
        /// What was said of it.
        #[serde(flatten)]
        failure: StartFailure,
    },
    /// A pod's entry in a CNI's own data was written.
    EndpointWritten {
        /// The entry.
        #[serde(flatten)]
        endpoint: Endpoint,
    },
    /// It was deleted.
    EndpointDeleted {
        /// The entry.
        #[serde(flatten)]
        endpoint: Endpoint,
    },
    /// A CNI DEL has left it where it is, as it is of another sandbox.
    EndpointKept {
        /// The sandbox that the DEL was for.
        del: String,
        /// The entry.
        #[serde(flatten)]
        endpoint: Endpoint,
    },
    /// The kernel has chosen a task to be killed, as memory is short.
    OomKilled {
        /// The task, and why.
        #[serde(flatten)]
        kill: OomKill,
    },
    /// A file system that pods need was full when one of them failed to start.
    FilesystemFull {
        /// Which, and how full.
        #[serde(flatten)]
        full: FullFilesystem,
    },
    /// The kernel waits for the last references to a device that is being
    /// removed (`unregister_netdevice: waiting for ... to become free`).
    DeviceWaiting {
        /// The device's name.
        device: String,
        /// How many references there still are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        references: Option<i64>,
    },
    /// A source does not answer; what only it knows is unknown.
    SourceFailed {
        /// Its name.
        source: String,
        /// What failed, on what.
        error: String,
    },
    /// A source that had failed answers again.
    SourceRecovered {
        /// Its name.
        source: String,
    },
    /// Records were lost before they reached the tracer.
    EventsLost {
        /// Why.
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
    /// The kind's name in records.
    pub(crate) fn name(&self) -> &'static str {
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
            Self::CniStarted { .. } => "cni-started",
            Self::CniCall { .. } => "cni-call",
            Self::CniEffect { .. } => "cni-effect",
            Self::Reservation { .. } => "reservation",
            Self::PodsListed { .. } => "pods-listed",
            Self::PodDeleted { .. } => "pod-deleted",
            Self::SandboxesListed { .. } => "sandboxes-listed",
            Self::SandboxAdded { .. } => "sandbox-added",
            Self::SandboxRemoved { .. } => "sandbox-removed",
            Self::ContainersListed { .. } => "containers-listed",
            Self::AttachmentsListed { .. } => "attachments-listed",
            Self::NetworksListed { .. } => "networks-listed",
            Self::StoreListed { .. } => "store-listed",
            Self::NetnsDevices { .. } => "netns-devices",
            Self::SandboxFailed { .. } => "sandbox-failed",
            Self::EndpointWritten { .. } => "endpoint-written",
            Self::EndpointDeleted { .. } => "endpoint-deleted",
            Self::EndpointKept { .. } => "endpoint-kept",
            Self::OomKilled { .. } => "oom-killed",
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
pub(crate) const MAX_HOLDERS: usize = 32;

/// A network namespace's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Netns {
    /// Inode number; the kernel uses it again after the namespace's end.
    pub(crate) inode: u32,
    /// `net_cookie`; never used again. Absent where the kernel has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cookie: Option<u64>,
}

/// A task: one thread of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Process ID, as seen from the host.
    pub(crate) pid: u32,
    /// Thread ID.
    pub(crate) tid: u32,
    /// Name, as the kernel has it; may hold anything.
    pub(crate) comm: String,
    /// State letter of ps(1), where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<char>,
    /// Start, in clock ticks since boot (field 22 of /proc/PID/stat): with the
    /// thread ID it names a task for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_ticks: Option<u64>,
    /// The same as a point in time, where known: a pod list that is older than
    /// all of a pod's tasks proves nothing about the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<Timestamp>,
    /// UID of the pod whose cgroup it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod_uid: Option<String>,
    /// ID of the container whose cgroup it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) container_id: Option<String>,
}

/// A descriptor of a network namespace: its process keeps the namespace alive
/// without being in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FdHolder {
    /// The process.
    pub(crate) pid: u32,
    /// The descriptor's number in it.
    pub(crate) fd: u32,
    /// The process's name, where known; may hold anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) comm: Option<String>,
}

/// An address on a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Address {
    /// The address.
    pub(crate) address: IpAddr,
    /// Prefix length.
    pub(crate) prefix: u8,
    /// The device's name.
    pub(crate) ifname: String,
    /// The device's kind: veth, ipvlan, bridge, ...; absent for a device
    /// without (a physical one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link_kind: Option<String>,
}

/// A pod by name. Two pods of the same name differ in UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PodRef {
    /// Namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<String>,
}

/// A pod as the API server has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pod {
    /// `metadata.namespace`
    pub(crate) namespace: String,
    /// `metadata.name`
    pub(crate) name: String,
    /// `metadata.uid`, and for a mirror pod the static pod's own UID
    /// (annotation `kubernetes.io/config.hash`), which its cgroup is named by.
    pub(crate) uids: BTreeSet<String>,
    /// `spec.nodeName`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// `spec.hostNetwork`
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) host_network: bool,
    /// `status.phase`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<String>,
    /// `metadata.deletionTimestamp`: it is Terminating; the time by which it
    /// should be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deletion: Option<Timestamp>,
    /// `status.podIPs`
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ips: Vec<IpAddr>,
}

/// Who holds a reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReservationHolder {
    /// The file.
    pub(crate) path: PathBuf,
    /// The container ID in it; empty if the file is empty.
    pub(crate) container_id: String,
    /// The interface name in it; old files have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ifname: Option<String>,
    /// The pod, in stores that name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<PodRef>,
}

impl PodRef {
    /// `namespace/name`, or the UID if there is no name.
    pub(crate) fn label(&self) -> String {
        match (&self.namespace, &self.name, &self.uid) {
            (Some(namespace), Some(name), _) => format!("{namespace}/{name}"),
            (None, Some(name), _) => name.clone(),
            (_, None, Some(uid)) => format!("pod {uid}"),
            (_, None, None) => String::from("unknown pod"),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Paths that anybody on the node can choose, as text: bytes that are none of
/// UTF-8 are lost, which costs a character and not the whole line.
pub(crate) fn as_text<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::story::*;

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
