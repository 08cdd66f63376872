//! What a look at the node lists: a runtime's sandboxes, CNI's attachments,
//! networks and stores, a namespace's devices.

use std::{net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{Netns, PodRef, ReservationHolder, is_false};
use crate::clock::Timestamp;

/// A pod sandbox as a container runtime has it (CRI `PodSandboxStatus`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeSandbox {
    pub id: String,
    #[serde(default)]
    pub pod: PodRef,
    /// How often the pod's sandbox was made anew.
    #[serde(default)]
    pub attempt: u32,
    /// `SANDBOX_READY`; `None` where the source cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Process ID of its infra container, if that is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Where its network namespace is mounted, as the runtime sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns_path: Option<String>,
    /// The namespace that is there, or that the infra container is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<Netns>,
    /// It uses the host's network.
    #[serde(default, skip_serializing_if = "is_false")]
    pub host_network: bool,
    /// Its addresses, as the runtime has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
    /// Its containers, without the infra container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<RuntimeContainer>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeContainer {
    pub id: String,
    /// Its name in the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `created`, `running`, `exited` or `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Process ID, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// A CNI ADD as libcni remembers it, until a DEL of the same attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub path: PathBuf,
    pub network: String,
    /// `CNI_CONTAINERID`
    pub container_id: String,
    /// `CNI_IFNAME`
    pub ifname: String,
    /// `CNI_NETNS`
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub netns_path: String,
    /// The namespace that is there now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<Netns>,
    /// MAC address of the interface in the sandbox, as the plugin told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Devices on the host that the plugin told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_devices: Vec<String>,
    /// The pod, from the cached `CNI_ARGS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// Addresses in the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
    /// When the ADD ended: the file's modification time.
    pub written: Timestamp,
}

/// A pod network as the CNI configuration has it. Of the rest of the
/// configuration nothing is kept: it can hold tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    pub file: PathBuf,
    pub name: String,
    /// The main plugin's `type`.
    pub plugin: String,
    /// The `type` of its IPAM; for plugins that bring their own, their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipam: Option<String>,
    /// The device of the host that it plugs pods into: the bridge, or the parent of
    /// theirs; absent if the configuration does not say that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// host-local: where the reservations are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<PathBuf>,
    /// host-local: what it gives out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<Range>,
}

/// How many pods the kubelet runs at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxPods {
    /// `maxPods`, those on the host's network included.
    pub pods: u32,
    /// The file that says so.
    pub file: PathBuf,
}

/// Addresses that host-local may give out, ends included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Which range set it is of: an attachment gets one address of each set.
    pub set: usize,
    /// `subnet`
    pub subnet: String,
    /// The first address.
    pub first: IpAddr,
    pub last: IpAddr,
    /// The gateway, which is not given out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// What keeps the reservations.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum StoreKind {
    /// Files of the reference plugin host-local
    /// (plugins/ipam/host-local/backend/disk).
    #[default]
    HostLocal,
    /// Terway's `ResRelation.db` (bbolt).
    Terway,
    /// The checkpoint of AWS VPC CNI's ipamd (JSON).
    Aws,
    /// Calico's IPAM blocks, from the API server.
    Calico,
    /// Whereabouts' IPPools, from the API server.
    Whereabouts,
    /// Cilium's queue of deletions that wait for its agent.
    Cilium,
}

impl StoreKind {
    pub const ALL: [Self; 6] = [
        Self::HostLocal,
        Self::Terway,
        Self::Aws,
        Self::Calico,
        Self::Whereabouts,
        Self::Cilium,
    ];

    /// The name in records, and of the source in evidence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostLocal => "host-local",
            Self::Terway => "terway",
            Self::Aws => "aws",
            Self::Calico => "calico",
            Self::Whereabouts => "whereabouts",
            Self::Cilium => "cilium",
        }
    }

    /// Whether a network has its addresses out of such a store, by its
    /// configuration.
    pub fn serves(self, network: &Network) -> bool {
        let ipam = match self {
            Self::HostLocal => "host-local",
            Self::Terway => "terway",
            Self::Aws => "aws-cni",
            Self::Calico => "calico-ipam",
            Self::Whereabouts => "whereabouts",
            Self::Cilium => "cilium",
        };
        network.ipam.as_deref() == Some(ipam)
    }

    fn is_host_local(&self) -> bool {
        *self == Self::HostLocal
    }
}

/// A store of reservations, as it was listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Store {
    /// host-local: the folder. Otherwise the file, or the API's resource.
    pub path: PathBuf,
    #[serde(default, skip_serializing_if = "StoreKind::is_host_local")]
    pub kind: StoreKind,
    /// Its reservations, by address.
    pub reservations: Vec<Reservation>,
    /// Addresses that are taken by something that cannot be read: host-local
    /// gives no address out whose name is there, whatever it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<IpAddr>,
    /// `last_reserved_ip.N`, by range set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_reserved: Vec<(String, IpAddr)>,
    /// Names of files that are none of host-local's; some of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<String>,
    /// What could not be read or understood, and why. It may hold an address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub address: IpAddr,
    /// Whose it is and where that is written.
    #[serde(flatten)]
    pub holder: ReservationHolder,
    /// When it was made: the store's own note of it, or the file's
    /// modification time.
    pub modified: Timestamp,
}

/// A network device (rtnetlink `RTM_NEWLINK`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Device {
    /// Interface index, unique in its namespace.
    pub index: u32,
    pub name: String,
    /// veth, ipvlan, bridge, ...; absent for a device without (a physical one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// `IFF_UP`
    #[serde(default, skip_serializing_if = "is_false")]
    pub up: bool,
    /// `IFLA_LINK`: index of a veth's peer, or of what it is stacked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<u32>,
    /// `IFLA_LINK_NETNSID`: that one is in another namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_nsid: Option<i32>,
    /// Index of the bridge or bond that it is a port of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<u32>,
    /// The bus and name of the hardware behind it
    /// (`IFLA_PARENT_DEV_BUS_NAME`, `IFLA_PARENT_DEV_NAME`), as `pci 0000:00:06.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// A bridge that keeps its ports apart by VLAN.
    #[serde(default, skip_serializing_if = "is_false")]
    pub vlan_filtering: bool,
    /// IPv6 addresses of a bridge that the kernel may have made itself, of the
    /// router advertisement that whoever is at a port sends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advertised: Vec<IpAddr>,
}

/// A function of a PCI device: an Ethernet controller with a driver of the kernel's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciFunction {
    /// `0000:00:06.0`
    pub address: String,
    pub driver: String,
    /// The function that has made it, of a virtual one (SR-IOV).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical: Option<String>,
    /// Devices of other buses that it carries, as `virtio1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carries: Vec<String>,
}

/// A route (`RTM_NEWROUTE`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// Destination and prefix length; `None` is the default route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<(IpAddr, u8)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Index of the device.
    pub device: u32,
    /// The kernel has made it itself, of a neighbour's router advertisement or
    /// redirect, or for an IPv6 address of the device: nobody has entered it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_kernel: bool,
}

/// A neighbour (`RTM_NEWNEIGH`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    pub address: IpAddr,
    /// Index of the device.
    pub device: u32,
    /// Its MAC address, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// As ip-neighbour(8) names it: `permanent`, `reachable`, `stale`,
    /// `delay`, `probe`, `incomplete`, `failed`, `noarp`.
    pub state: String,
}

impl RuntimeSandbox {
    /// The IDs of the sandbox and of its containers.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        let containers = self.containers.iter().map(|each| each.id.as_str());
        std::iter::once(self.id.as_str()).chain(containers)
    }
}

impl Device {
    /// Whether it is one end of a veth pair.
    pub fn is_veth(&self) -> bool {
        self.kind.as_deref() == Some("veth")
    }

    pub fn is_bridge(&self) -> bool {
        self.kind.as_deref() == Some("bridge")
    }

    /// Whether macvlan or ipvlan devices can be stacked on it. On one of these
    /// none is: the kernel stacks it on the same parent.
    pub fn can_be_parent(&self) -> bool {
        let kind = self.kind.as_deref();
        !matches!(kind, Some("macvlan" | "ipvlan" | "macvtap" | "ipvtap"))
    }

    /// Whether it leads where another one does, under the same name.
    pub fn is_plugged_as(&self, other: &Self) -> bool {
        (&self.name, self.index, self.link, self.link_nsid)
            == (&other.name, other.index, other.link, other.link_nsid)
    }

    /// Whether it is one end of a pair of devices (veth, netkit).
    pub fn is_pair_end(&self) -> bool {
        matches!(self.kind.as_deref(), Some("veth" | "netkit"))
    }
}
