//! CNI calls: what was asked, what was answered, and what has come of it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Netns, PodRef, is_false};

/// A call of a CNI plugin (CNI spec, section 2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CniCall {
    /// `CNI_COMMAND`: ADD, DEL, CHECK, GC, STATUS, VERSION.
    pub(crate) command: String,
    /// `CNI_CONTAINERID`
    pub(crate) container_id: String,
    /// `CNI_IFNAME`
    pub(crate) ifname: String,
    /// `CNI_NETNS`; empty in the second DEL of an ordinary removal.
    pub(crate) netns_path: String,
    /// The namespace at that path as the plugin started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) netns: Option<Netns>,
    /// The plugin's name: the last part of its path.
    pub(crate) plugin: String,
    /// The path it was started by.
    pub(crate) plugin_path: String,
    /// Its process ID.
    pub(crate) pid: u32,
    /// Its parent's.
    pub(crate) parent_pid: u32,
    /// Its parent's name.
    pub(crate) parent_comm: String,
    /// Its parent is a plugin of the same call.
    pub(crate) delegated: bool,
    /// `name` in its configuration. Read in the kernel while the plugin runs,
    /// so it is known at its end, and often not yet at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<String>,
    /// `type` of the IPAM in its configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ipam: Option<String>,
    /// `cniVersion` of its configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cni_version: Option<String>,
    /// The pod, from `CNI_ARGS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<PodRef>,
    /// `K8S_POD_INFRA_CONTAINER_ID` in `CNI_ARGS`: the sandbox, by the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) infra_container_id: Option<String>,
    /// The plugin ran as root on the host under a container runtime. What
    /// others say under the CNI variables' names is recorded and never
    /// believed.
    pub(crate) trusted: bool,
    /// Why it is not trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) distrust: Option<String>,
    /// A log tells of it, and nothing else was seen: what is empty in it is
    /// not known, and its times are those of the first and the last line.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) log: bool,
}

/// What a plugin answered (CNI spec, section 5): the part that tells of
/// addresses and interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CniResult {
    /// Addresses that it gave.
    #[serde(default)]
    pub(crate) ips: Vec<IpAddr>,
    /// Their gateways.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) gateways: Vec<IpAddr>,
    /// Interfaces that it made, on the host and in the sandbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) interfaces: Vec<CniInterface>,
}

/// An interface in a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CniInterface {
    /// Its name.
    pub(crate) name: String,
    /// MAC address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mac: Option<String>,
    /// Path of the namespace it is in, or what the plugin wrote there; absent
    /// for one on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<String>,
}

/// The error that a plugin answered with (CNI spec, section 5, "Error").
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CniError {
    /// `code`: below 100 the specification's, from 100 the plugin's own.
    /// Absent where the output was text and no JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<u64>,
    /// `msg`
    pub(crate) msg: String,
    /// `details`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<String>,
}

/// What has come of an ADD or DEL that said it succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CniEffect {
    /// `ADD` or `DEL`.
    pub(crate) command: String,
    /// The attachment's `CNI_CONTAINERID`.
    pub(crate) container_id: String,
    /// Its `CNI_IFNAME`.
    pub(crate) ifname: String,
    /// Its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<PodRef>,
    /// The sandbox's namespace, if it is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) netns: Option<Netns>,
    /// What an attachment leaves on a node: after ADD it should be there,
    /// after DEL it should be gone.
    pub(crate) traces: Vec<Trace>,
}

/// One thing that belongs to an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trace {
    /// What kind of thing.
    pub(crate) kind: TraceKind,
    /// Which: an address, a device, a route's destination, a store's file.
    pub(crate) name: String,
    /// Whether it is there; `None` if that could not be looked at.
    pub(crate) there: Option<bool>,
}

/// Kinds of [`Trace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TraceKind {
    /// The address in the sandbox's namespace.
    Address,
    /// The host's end of the cable.
    Veth,
    /// The host's route to the address.
    Route,
    /// The address's entry in a store of reservations.
    Reservation,
}

impl CniEffect {
    /// What should be there after ADD and is not, or should be gone after DEL
    /// and is there.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &Trace> {
        let wanted = self.command == "ADD";
        let traces = self.traces.iter();
        traces.filter(move |trace| trace.there == Some(!wanted))
    }
}
