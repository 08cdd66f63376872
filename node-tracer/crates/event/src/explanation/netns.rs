//! What the kernel says of a subject: its network namespaces.

use std::{net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Dad, Netns, PodRef, clock::Timestamp, finding::Holder};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetnsPart {
    /// Inode number and cookie.
    #[serde(flatten)]
    pub id: Netns,
    pub host: bool,
    pub state: NetnsState,
    /// Since when its last reference is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dying_since: Option<Timestamp>,
    /// Where it is or was mounted.
    pub paths: Vec<PathBuf>,
    /// Its addresses; of the host's own only those that matter here.
    pub addresses: Vec<AddressPart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// What has become of its pod, as far as pod lists tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_state: Option<PodState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// How its pod is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_by: Option<KnownBy>,
    pub holders: Vec<Holder>,
    /// How many tasks are in it; not all of them are among the holders.
    pub task_count: usize,
    /// Its devices, without the loopback device; of the host's own only those
    /// that matter here.
    pub devices: Vec<DevicePart>,
    pub gateways: Vec<GatewayPart>,
    /// Its routes: default, and to single addresses.
    pub routes: Vec<RoutePart>,
    /// A pod's own policy rules, and its routes in tables of its own, as ip(8) has
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
}

/// Whether a network namespace lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetnsState {
    Living,
    /// Its last reference is gone; the kernel takes it down.
    Dying,
}

/// What has become of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodState {
    Listed,
    /// It is listed and is to be deleted.
    Terminating,
    /// It is or was listed, and uses the host's network.
    Exempt,
    /// It is listed, and has run to its end.
    Finished,
    /// It is not on the list and would have to be.
    Gone,
}

/// An address in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressPart {
    pub address: IpAddr,
    pub prefix: u8,
    pub ifname: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// When it was added; absent if it was there before anybody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why the kernel does not use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dad: Option<Dad>,
}

/// How a namespace's pod is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownBy {
    /// `kernel` (a cgroup), `cni`, `libcni`, `cri`, `bundles`.
    pub source: String,
    /// When the source told it.
    pub at: Timestamp,
}

/// A device in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicePart {
    pub index: u32,
    pub name: String,
    /// veth, ipvlan, bridge, ...; absent for a physical one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// `IFF_UP`
    pub up: bool,
    /// The hardware behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// The bridge or bond that it is a port of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// The other end of a veth, where it was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerPart>,
}

/// The other end of a veth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerPart {
    pub name: String,
    /// The namespace that it is in.
    pub netns: Netns,
    pub host: bool,
    /// The bridge or bond that it is a port of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayPart {
    pub address: IpAddr,
    /// The device that leads to it.
    pub ifname: String,
    /// Its neighbour entry's state, as ip-neighbour(8) names it; absent if
    /// there is no entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<String>,
    /// The MAC address in that entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutePart {
    /// `default`, or an address with its prefix length.
    pub to: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    pub ifname: String,
}
