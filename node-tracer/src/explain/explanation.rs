//! The contract's `type: "explanation"` record, without the record's frame.
//!
//! Keys are added, never renamed. Everything in it is as some source told it;
//! where a source told nothing, a value is absent and `unknown` says why.

use std::{net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    event::{Netns, PodRef, RuntimeContainer, is_false},
    finding::{Finding, Holder, State},
};

/// All that is known of one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Explanation {
    /// What was asked about.
    pub(crate) subject: Subject,
    /// The answer in one sentence.
    pub(crate) answer: String,
    /// The network namespaces that it is, is in, or is held by.
    pub(crate) netns: Vec<NetnsPart>,
    /// The task that was asked about, and stuck tasks of the subject that are
    /// in none of these namespaces.
    pub(crate) tasks: Vec<Holder>,
    /// Reservations of its addresses, and for its containers.
    pub(crate) reservations: Vec<ReservationPart>,
    /// host-local's stores that were read.
    pub(crate) stores: Vec<StorePart>,
    /// CNI's calls for it.
    pub(crate) cni_calls: Vec<CallPart>,
    /// Its sandboxes as runtimes list them.
    pub(crate) sandboxes: Vec<SandboxPart>,
    /// Its pods as the API server has them, or has them not.
    pub(crate) pods: Vec<PodPart>,
    /// What is wrong with any of these.
    pub(crate) findings: Vec<FindingPart>,
    /// What happened, in order.
    pub(crate) timeline: Vec<Moment>,
    /// What could not be found out, and therefore is not claimed.
    pub(crate) unknown: Vec<String>,
    /// What was looked at.
    pub(crate) looked_at: Vec<String>,
    /// What to do, in order.
    pub(crate) advice: Vec<String>,
}

/// What was asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subject {
    /// As it was typed.
    pub(crate) asked: String,
    /// As what it was taken.
    pub(crate) kind: Kind,
    /// In full: a whole ID for a prefix.
    pub(crate) value: String,
    /// Something is known of it.
    pub(crate) found: bool,
    /// Everything that could tell of it was read. If it was not found and this
    /// is false, it may be there all the same.
    pub(crate) complete: bool,
    /// What else the word could have meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) also: Vec<String>,
}

/// Kinds of subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// An IP address.
    Address,
    /// A pod by namespace and name.
    Pod,
    /// A pod by UID.
    PodUid,
    /// A pod sandbox or container, by its ID or the beginning of it.
    Container,
    /// A network namespace by inode.
    Netns,
    /// A network namespace by path.
    NetnsPath,
    /// A process or thread.
    Pid,
}

/// A network namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NetnsPart {
    /// Inode number and cookie.
    #[serde(flatten)]
    pub(crate) id: Netns,
    /// It is the host's own.
    pub(crate) host: bool,
    /// Whether it lives.
    pub(crate) state: NetnsState,
    /// Since when its last reference is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dying_since: Option<Timestamp>,
    /// Where it is or was mounted.
    pub(crate) paths: Vec<PathBuf>,
    /// Its addresses; of the host's own only those that matter here.
    pub(crate) addresses: Vec<AddressPart>,
    /// Its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<PodRef>,
    /// What has become of its pod, as far as pod lists tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod_state: Option<PodState>,
    /// Its pod sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox_id: Option<String>,
    /// How its pod is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) known_by: Option<KnownBy>,
    /// What keeps it.
    pub(crate) holders: Vec<Holder>,
    /// How many tasks are in it; not all of them are among the holders.
    pub(crate) task_count: usize,
    /// Its devices, without the loopback device; of the host's own only those
    /// that matter here.
    pub(crate) devices: Vec<DevicePart>,
    /// Its default gateways.
    pub(crate) gateways: Vec<GatewayPart>,
    /// Its routes: default, and to single addresses.
    pub(crate) routes: Vec<RoutePart>,
}

/// Whether a network namespace lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NetnsState {
    /// Something holds it.
    Living,
    /// Its last reference is gone; the kernel takes it down.
    Dying,
}

/// What has become of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PodState {
    /// It is listed.
    Listed,
    /// It is listed and is to be deleted.
    Terminating,
    /// It is or was listed, and uses the host's network or has finished.
    Exempt,
    /// It is not on the list and would have to be.
    Gone,
}

/// An address in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddressPart {
    /// The address.
    pub(crate) address: IpAddr,
    /// Prefix length.
    pub(crate) prefix: u8,
    /// The device.
    pub(crate) ifname: String,
    /// The device's kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// When it was added; absent if it was there before anybody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
}

/// How a namespace's pod is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownBy {
    /// `kernel` (a cgroup), `cni`, `libcni`, `cri`, `bundles`.
    pub(crate) source: String,
    /// When the source told it.
    pub(crate) at: Timestamp,
}

/// A device in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DevicePart {
    /// Interface index.
    pub(crate) index: u32,
    /// Name.
    pub(crate) name: String,
    /// veth, ipvlan, bridge, ...; absent for a physical one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// MAC address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mac: Option<String>,
    /// `IFF_UP`
    pub(crate) up: bool,
    /// The hardware behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hardware: Option<String>,
    /// The bridge or bond that it is a port of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) master: Option<String>,
    /// The other end of a veth, where it was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<PeerPart>,
}

/// The other end of a veth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerPart {
    /// Its name.
    pub(crate) name: String,
    /// The namespace that it is in.
    pub(crate) netns: Netns,
    /// That is the host's own.
    pub(crate) host: bool,
    /// The bridge or bond that it is a port of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) master: Option<String>,
}

/// A default gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GatewayPart {
    /// Its address.
    pub(crate) address: IpAddr,
    /// The device that leads to it.
    pub(crate) ifname: String,
    /// Its neighbour entry's state, as ip-neighbour(8) names it; absent if
    /// there is no entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) neighbour: Option<String>,
    /// The MAC address in that entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mac: Option<String>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RoutePart {
    /// `default`, or an address with its prefix length.
    pub(crate) to: String,
    /// Next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gateway: Option<IpAddr>,
    /// The device.
    pub(crate) ifname: String,
}

/// A reservation in a host-local store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReservationPart {
    /// The store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<PathBuf>,
    /// The pod network whose store that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<String>,
    /// The file.
    pub(crate) path: PathBuf,
    /// The address.
    pub(crate) address: IpAddr,
    /// The container that it is reserved for; empty if the file is empty.
    pub(crate) container_id: String,
    /// The interface; old files have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ifname: Option<String>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) modified: Option<Timestamp>,
    /// Whose it is, in words.
    pub(crate) whose: String,
    /// Whether it is in use: that container exists, or a namespace has the
    /// address; absent if it cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) live: Option<bool>,
    /// The source that shows that it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shown_by: Option<String>,
}

/// A host-local store that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StorePart {
    /// The folder.
    pub(crate) path: PathBuf,
    /// The pod network whose store it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<String>,
    /// How many reservations are in it.
    pub(crate) reservations: usize,
    /// When it was read.
    pub(crate) at: Timestamp,
}

/// A CNI call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallPart {
    /// `ADD` or `DEL`.
    pub(crate) command: String,
    /// `CNI_CONTAINERID`
    pub(crate) container_id: String,
    /// `CNI_IFNAME`, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ifname: Option<String>,
    /// The pod network, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<String>,
    /// `CNI_NETNS`, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) netns_path: Option<String>,
    /// The namespace that is there now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) netns: Option<Netns>,
    /// The pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<PodRef>,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<CallResult>,
    /// When it was first seen to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Timestamp>,
    /// Its exit status, where it was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<i32>,
    /// `libcni cache`, or `cni`: the kernel saw the plugin run.
    pub(crate) source: String,
    /// The file in the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<PathBuf>,
}

/// What a CNI call gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallResult {
    /// Addresses.
    pub(crate) ips: Vec<IpAddr>,
}

/// A pod sandbox as one source lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxPart {
    /// `cri` or `bundles`.
    pub(crate) source: String,
    /// Where it is listed.
    pub(crate) endpoint: String,
    /// Its ID.
    pub(crate) id: String,
    /// Its pod.
    pub(crate) pod: PodRef,
    /// How often the pod's sandbox was made anew.
    pub(crate) attempt: u32,
    /// Whether it is ready; absent where the source cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ready: Option<bool>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<Timestamp>,
    /// Process ID of its infra container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<u32>,
    /// Where its network namespace is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) netns_path: Option<String>,
    /// The namespace that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) netns: Option<Netns>,
    /// It uses the host's network.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) host_network: bool,
    /// Its addresses.
    pub(crate) ips: Vec<IpAddr>,
    /// Its containers.
    pub(crate) containers: Vec<RuntimeContainer>,
}

/// A pod as the API server has it, or has it not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodPart {
    /// Namespace, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// Name, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// UID; absent where only a name is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<String>,
    /// `status.phase`, as last listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<String>,
    /// `metadata.deletionTimestamp`: when it should be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deletion: Option<Timestamp>,
    /// `spec.nodeName`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// `spec.hostNetwork`
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) host_network: bool,
    /// `status.podIPs`, as last listed.
    pub(crate) ips: Vec<IpAddr>,
    /// Where the list is from; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// The time for which the list is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<Timestamp>,
    /// Whether it is on the list; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listed: Option<bool>,
    /// Since when it is missing from the lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) missing_since: Option<Timestamp>,
    /// Why its absence from the list does not prove that it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) doubt: Option<String>,
}

impl PodPart {
    /// How it is named elsewhere.
    pub(super) fn reference(&self) -> PodRef {
        PodRef {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }
}

/// A finding as in its own record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FindingPart {
    /// It is open.
    pub(crate) state: State,
    /// The finding.
    #[serde(flatten)]
    pub(crate) finding: Finding,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// When.
    pub(crate) at: Timestamp,
    /// What.
    pub(crate) what: String,
    /// Who says so.
    pub(crate) source: String,
}
