//! Where the node sends what it has for an address.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Neighbour, Netns, PodRef, clock::Timestamp};

/// The way of a packet from this node to one address, as the kernel's tables
/// decide it. Marks, ports and programs (netfilter, eBPF) are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathPart {
    pub to: IpAddr,
    /// The node's network namespace.
    pub netns: Netns,
    /// When its tables were read.
    pub at: Timestamp,
    /// The rule that decides, as ip-rule(8) prints it; absent if there is no route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// The route, as ip-route(8) prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// What that does: `unicast`, `local`, `blackhole`, `unreachable`, `prohibit`,
    /// or `none`, if there is no route.
    pub kind: String,
    /// The device that it leaves by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The neighbour entry of the gateway, or of the address itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<Neighbour>,
    /// When the neighbour was last sure to be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Timestamp>,
    /// The port of the bridge, or the node behind the tunnel, that the frame goes
    /// to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Whose device that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comes_to: Option<PathEnd>,
    /// Whether that is who should have the address, as far as this node shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_right: Option<bool>,
    /// Why.
    pub verdict: String,
    /// Policy rules for this address alone, in the order in which they are asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
}

/// The namespace that a packet comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEnd {
    pub netns: Netns,
    pub device: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
}
