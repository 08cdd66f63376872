//! What keeps a pod from starting, as its node tells it.

use std::{net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{PodRef, Task};
use crate::clock::Timestamp;

/// A sandbox, or what a pod needs besides it, could not be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFailure {
    /// Who says so: `kubelet`, `containerd`, `cri-o`, `dockerd`, `events`
    /// (Kubernetes events), `kernel`, `cni`.
    pub source: String,
    /// The pod, as far as it is named.
    #[serde(default)]
    pub pod: PodRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// Which of the pod's sandboxes, if that is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// A Kubernetes event's reason: `FailedCreatePodSandBox`, `FailedMount`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was said, in its own words, without secrets.
    pub message: String,
    /// How often, where one message stands for many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Timestamp>,
    /// The pod got over it: who says so tells of its start after that, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mended: bool,
}

/// A pod's entry in a CNI's own data: Calico's WorkloadEndpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Where it is: `calico`.
    pub store: String,
    pub key: String,
    /// Whose it is, by that key.
    pub pod: PodRef,
    /// The interface, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
    /// The sandbox that it was written for, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    /// Its addresses, where known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
}

/// The kernel has chosen a task to be killed, as memory is short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomKill {
    pub task: Task,
    /// The memory cgroup whose limit was reached; absent where it was the
    /// node's memory, or is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memcg: Option<String>,
    /// Whether it was a cgroup's limit, not the node's memory, that was
    /// reached, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<bool>,
}

/// A file system that is full, as it was when a pod failed to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullFilesystem {
    /// A folder on it that pods need.
    pub path: PathBuf,
    /// Its size, bytes.
    pub bytes: u64,
    /// What of that is free, to anybody but root, bytes.
    pub bytes_free: u64,
    /// Its inodes; 0 where they are made as they are needed.
    pub inodes: u64,
    pub inodes_free: u64,
}
