//! The contract's `type: "eni"` record, without the record's frame: the node's own
//! network devices, and what depends on each.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Netns, PodRef, finding::Severity};

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enis {
    pub interfaces: Vec<Eni>,
    /// What could not be read, and therefore is not told.
    pub unknown: Vec<String>,
}

/// A physical device, a virtual function, or what pods' ipvlan and macvlan devices
/// are stacked on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eni {
    /// Absent of a function that no network namespace has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub kind: EniKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its PCI address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<String>,
    /// The physical function, of a virtual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_function: Option<String>,
    /// The network namespace that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<Netns>,
    /// That is the node's.
    pub host: bool,
    pub up: bool,
    pub addresses: Vec<IpAddr>,
    /// Routing tables whose default route leads out by it, besides the main one's.
    pub tables: Vec<u32>,
    /// Policy rules that ask these tables.
    pub rules: Vec<String>,
    /// Pods that have it, are stacked on it, or whose packets leave by it.
    pub pods: Vec<EniPod>,
    /// What is wrong with it.
    pub problems: Vec<EniProblem>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EniKind {
    Physical,
    VirtualFunction,
    /// Made by a program, and others are stacked on it.
    Parent,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EniPod {
    #[serde(flatten)]
    pub pod: PodRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// How it depends on it: `has`, `ipvlan`, `macvlan`, `rule`.
    pub by: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EniProblem {
    pub severity: Severity,
    pub text: String,
    /// The finding that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
}

impl EniKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Physical => "physical",
            Self::VirtualFunction => "VF",
            Self::Parent => "parent",
        }
    }
}
