//! What CNI says of a subject: reservations and calls.

use std::{net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    event::{Netns, PodRef},
};

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
    /// Addresses of the subject that are taken there by something that cannot
    /// be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) blocked: Vec<IpAddr>,
    /// When it was read.
    pub(crate) at: Timestamp,
    /// Not all of it could be read. In the record `unknown` says so, with the
    /// reason.
    #[serde(skip)]
    pub(crate) partial: bool,
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
