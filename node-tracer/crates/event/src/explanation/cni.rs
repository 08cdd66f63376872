//! What CNI says of a subject: reservations and calls.

use std::{net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{CniCommand, Netns, PodRef, clock::Timestamp};

/// A reservation in a host-local store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationPart {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<PathBuf>,
    /// The pod network whose store that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    pub path: PathBuf,
    pub address: IpAddr,
    /// The container that it is reserved for; empty if the file is empty.
    pub container_id: String,
    /// The interface; old files have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<Timestamp>,
    /// Whose it is, in words.
    pub whose: String,
    /// Whether it is in use: that container exists, or a namespace has the
    /// address; absent if it cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<bool>,
    /// The source that shows that it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_by: Option<String>,
}

/// A host-local store that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorePart {
    pub path: PathBuf,
    /// The pod network whose store it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// How many reservations are in it.
    pub reservations: usize,
    /// Addresses of the subject that are taken there by something that cannot
    /// be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<IpAddr>,
    /// When it was read.
    pub at: Timestamp,
    /// Not all of it could be read. In the record `unknown` says so, with the
    /// reason.
    #[serde(skip)]
    pub partial: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPart {
    /// ADD or DEL.
    pub command: CniCommand,
    /// `CNI_CONTAINERID`
    pub container_id: String,
    /// `CNI_IFNAME`, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
    /// The pod network, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// `CNI_NETNS`, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns_path: Option<String>,
    /// The namespace that is there now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<Netns>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<CallResult>,
    /// When it was first seen to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Its exit status, where it was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// `libcni cache`, or `cni`: the kernel saw the plugin run.
    pub source: String,
    /// The file in the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// What a CNI call gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallResult {
    pub ips: Vec<IpAddr>,
}
