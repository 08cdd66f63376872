//! What the kernel says of a subject: its network namespaces.

use std::{net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    event::{Netns, PodRef},
    finding::Holder,
};

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
    /// It is or was listed, and uses the host's network.
    Exempt,
    /// It is listed, and has run to its end.
    Finished,
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
