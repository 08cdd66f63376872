//! CNI calls: what was asked, what was answered, and what has come of it.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::{Netns, PodRef, is_false};

/// What a plugin is asked to do: `CNI_COMMAND` (CNI spec, section 2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum CniCommand {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
    /// What the specification does not have; empty if none was given.
    Other(Box<str>),
}

impl CniCommand {
    pub const fn as_str(&self) -> &str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
            Self::Other(other) => other,
        }
    }
}

impl Default for CniCommand {
    fn default() -> Self {
        Self::Other(Box::default())
    }
}

impl From<&str> for CniCommand {
    fn from(text: &str) -> Self {
        match text {
            "ADD" => Self::Add,
            "DEL" => Self::Del,
            "CHECK" => Self::Check,
            "GC" => Self::Gc,
            "STATUS" => Self::Status,
            "VERSION" => Self::Version,
            other => Self::Other(other.into()),
        }
    }
}

impl From<String> for CniCommand {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<CniCommand> for String {
    fn from(command: CniCommand) -> Self {
        command.as_str().to_owned()
    }
}

impl fmt::Display for CniCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A call of a CNI plugin (CNI spec, section 2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CniCall {
    /// `CNI_COMMAND`
    pub command: CniCommand,
    /// `CNI_CONTAINERID`
    pub container_id: String,
    /// `CNI_IFNAME`
    pub ifname: String,
    /// `CNI_NETNS`; empty in the second DEL of an ordinary removal.
    pub netns_path: String,
    /// The namespace at that path as the plugin started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<Netns>,
    /// The plugin's name: the last part of its path.
    pub plugin: String,
    /// The path it was started by.
    pub plugin_path: String,
    pub pid: u32,
    pub parent_pid: u32,
    pub parent_comm: String,
    /// Its parent is a plugin of the same call.
    pub delegated: bool,
    /// `name` in its configuration. Read in the kernel while the plugin runs,
    /// so it is known at its end, and often not yet at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// `type` of the IPAM in its configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipam: Option<String>,
    /// `cniVersion` of its configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni_version: Option<String>,
    /// The pod, from `CNI_ARGS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// `K8S_POD_INFRA_CONTAINER_ID` in `CNI_ARGS`: the sandbox, by the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_container_id: Option<String>,
    /// The plugin ran as root on the host under a container runtime. What
    /// others say under the CNI variables' names is recorded and never
    /// believed.
    pub trusted: bool,
    /// Why it is not trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distrust: Option<String>,
    /// A log tells of it, and nothing else was seen: what is empty in it is
    /// not known, and its times are those of the first and the last line.
    #[serde(default, skip_serializing_if = "is_false")]
    pub log: bool,
}

/// What a plugin answered (CNI spec, section 5): the part that tells of
/// addresses and interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniResult {
    /// Addresses that it gave.
    #[serde(default)]
    pub ips: Vec<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<IpAddr>,
    /// Interfaces that it made, on the host and in the sandbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<CniInterface>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniInterface {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Path of the namespace it is in, or what the plugin wrote there; absent
    /// for one on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
}

/// The error that a plugin answered with (CNI spec, section 5, "Error").
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniError {
    /// `code`: below 100 the specification's, from 100 the plugin's own.
    /// Absent where the output was text and no JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u64>,
    /// `msg`
    pub msg: String,
    /// `details`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
}

/// What has come of an ADD or DEL that said it succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniEffect {
    /// ADD or DEL.
    pub command: CniCommand,
    /// The attachment's `CNI_CONTAINERID`.
    pub container_id: String,
    /// Its `CNI_IFNAME`.
    pub ifname: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// The sandbox's namespace, if it is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<Netns>,
    /// What an attachment leaves on a node: after ADD it should be there,
    /// after DEL it should be gone.
    pub traces: Vec<Trace>,
}

/// One thing that belongs to an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// What kind of thing.
    pub kind: TraceKind,
    /// Which: an address, a device, a route's destination, a store's file.
    pub name: String,
    /// Whether it is there; `None` if that could not be looked at.
    pub there: Option<bool>,
}

/// Kinds of [`Trace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceKind {
    /// The address in the sandbox's namespace.
    Address,
    /// The host-side end of the veth pair.
    Veth,
    /// The host's route to the address.
    Route,
    /// The address's entry in a store of reservations.
    Reservation,
}

impl CniEffect {
    /// What should be there after ADD and is not, or should be gone after DEL
    /// and is there.
    pub fn failures(&self) -> impl Iterator<Item = &Trace> {
        let wanted = self.command == CniCommand::Add;
        let traces = self.traces.iter();
        traces.filter(move |trace| trace.there == Some(!wanted))
    }
}
