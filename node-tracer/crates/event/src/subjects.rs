//! What events are about: namespaces, tasks, addresses, pods.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::is_false;
use crate::clock::Timestamp;

/// A network namespace's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Netns {
    /// Inode number; the kernel uses it again after the namespace's end.
    pub inode: u32,
    /// `net_cookie`; never used again. Absent where the kernel has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<u64>,
}

/// A user namespace. Whoever makes one may make network namespaces in it and
/// give them any address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UserNs {
    pub inode: u32,
    /// The user who made it, as the host numbers users.
    pub uid: u32,
}

/// A task: one thread of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Process ID, as seen from the host.
    pub pid: u32,
    pub tid: u32,
    /// Name, as the kernel has it; may hold anything.
    pub comm: String,
    /// State letter of ps(1), where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<char>,
    /// Start, in clock ticks since boot (field 22 of /proc/PID/stat): with the
    /// thread ID it names a task for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ticks: Option<u64>,
    /// The same as a point in time, where known: a pod list that is older than
    /// all of a pod's tasks proves nothing about the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// UID of the pod whose cgroup it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// ID of the container whose cgroup it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    /// The user it runs as, where that is known and not root. Of a thread of the
    /// kernel the user whose FUSE file system it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Only the name of that cgroup says so: who has made it could not be read.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_name_alone: bool,
    /// It is in state D and not stuck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_stuck: Option<NotStuck>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub kernel_thread: bool,
}

impl Task {
    /// Whether it is in uninterruptible sleep because it waits for something
    /// that may not come.
    pub fn is_in_d(&self) -> bool {
        self.state == Some('D') && self.not_stuck.is_none()
    }
}

/// Why a task in state D is not stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotStuck {
    /// The freezer of its cgroup (version 1) has stopped it.
    Frozen,
    /// It is a vfork(2) parent and sleeps until its child has called exec or
    /// exit.
    Vfork,
    /// It is a reader of the tracer that runs, and waits with whatever it reads of.
    Reader,
}

impl NotStuck {
    /// What stands behind the state letter.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Frozen => "frozen by its cgroup",
            Self::Vfork => "waits for its vfork child",
            Self::Reader => "reads for the tracer",
        }
    }
}

/// A descriptor of a network namespace: its process keeps the namespace alive
/// without being in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdHolder {
    pub pid: u32,
    /// The descriptor's number in it.
    pub fd: u32,
    /// The process's name, where known; may hold anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
}

/// A FUSE mount that a stuck task may wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FuseMount {
    /// Where it is mounted, as the task sees it.
    #[serde(serialize_with = "crate::one_as_text")]
    pub path: PathBuf,
    /// Its folder below /sys/fs/fuse/connections.
    pub connection: u32,
    /// The host shows that folder, so the mount can be aborted there.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_control: bool,
    /// The processes that serve it, as far as they were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<FuseServer>,
    /// The kernel says that they serve this mount (Linux 6.18 does); otherwise
    /// they serve some FUSE mount.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_served_surely: bool,
}

/// A process that serves a FUSE mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FuseServer {
    pub pid: u32,
    pub comm: String,
}

/// An address on a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address {
    pub address: IpAddr,
    pub prefix: u8,
    pub ifname: String,
    /// The device's kind: veth, ipvlan, bridge, ...; absent for a device
    /// without (a physical one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_kind: Option<String>,
    /// Why the kernel does not use an IPv6 address, if that is so and was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dad: Option<Dad>,
}

/// How far duplicate address detection is with an address that is not used yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dad {
    /// The kernel still asks the link for it: `IFA_F_TENTATIVE`.
    Tentative,
    /// Another host on the link has answered: `IFA_F_DADFAILED`.
    Failed,
}

impl Address {
    /// Whether the kernel has found it in use by another host on the link.
    pub fn is_refused(&self) -> bool {
        self.dad == Some(Dad::Failed)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// The source of addresses: it fails while some are there and not known.
pub const ADDRESSES: &str = "addresses";
/// Addresses of all namespaces together that are kept.
pub const MAX_ADDRESSES: usize = 131_072;
/// So many of each namespace are kept in any case.
const ADDRESSES_OF_EACH: usize = 16;
/// Beyond so many in one namespace, some room is left to others.
const MANY_ADDRESSES: usize = 1_024;
const LEFT_TO_OTHERS: usize = 16_384;

/// Whether one more address is kept, of a namespace that has `own` of them, where
/// all namespaces together have `all`. Anybody who may make a namespace can put
/// any number into it: who has few is not to suffer from who has many.
pub fn has_room(own: usize, all: usize) -> bool {
    let room = match own < MANY_ADDRESSES {
        true => MAX_ADDRESSES,
        false => MAX_ADDRESSES - LEFT_TO_OTHERS,
    };
    own < ADDRESSES_OF_EACH || all < room
}

/// A pod by name. Two pods of the same name differ in UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodRef {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl PodRef {
    /// `namespace/name`, or the UID if there is no name.
    pub fn label(&self) -> String {
        match (&self.namespace, &self.name, &self.uid) {
            (Some(namespace), Some(name), _) => format!("{namespace}/{name}"),
            (None, Some(name), _) => name.clone(),
            (_, None, Some(uid)) => format!("pod {uid}"),
            (_, None, None) => String::from("unknown pod"),
        }
    }

    /// Namespace and name, if both are known.
    pub fn full_name(&self) -> Option<(&str, &str)> {
        Some((self.namespace.as_deref()?, self.name.as_deref()?))
    }
}

/// A pod as the API server has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pod {
    /// `metadata.namespace`
    pub namespace: String,
    /// `metadata.name`
    pub name: String,
    /// `metadata.uid`, and for a mirror pod the static pod's own UID
    /// (annotation `kubernetes.io/config.hash`), which its cgroup is named by.
    pub uids: BTreeSet<String>,
    /// UIDs like the API server's that it says are of a static pod for which it
    /// stands. A static pod's file can have such a UID, but anybody who makes a pod
    /// can write another pod's there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub claims: BTreeSet<String>,
    /// `spec.nodeName`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// `spec.hostNetwork`
    #[serde(default, skip_serializing_if = "is_false")]
    pub host_network: bool,
    /// `status.phase`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// `metadata.deletionTimestamp`: it is Terminating; the time by which it
    /// should be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Timestamp>,
    /// `spec.terminationGracePeriodSeconds`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u64>,
    /// When it had run to its end, if its phase says that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Timestamp>,
    /// `status.podIPs`
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
}

/// Who holds a reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationHolder {
    pub path: PathBuf,
    /// The container ID in it; empty if the file is empty.
    pub container_id: String,
    /// The interface name in it; old files have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
    /// The pod, in stores that name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
}
