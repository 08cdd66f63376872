//! The messages of CRI v1 that are used, with the field numbers of the
//! published `runtime/v1/api.proto`. Fields that are not used are left out:
//! what is not here is skipped while an answer is decoded.

use std::collections::HashMap;

use prost::Message;

/// A method of the runtime service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Method {
    pub(super) name: &'static str,
    pub(super) path: &'static str,
}

/// `Version`
pub(super) const VERSION: Method = Method {
    name: "Version",
    path: "/runtime.v1.RuntimeService/Version",
};

/// `ListPodSandbox`
pub(super) const LIST_POD_SANDBOX: Method = Method {
    name: "ListPodSandbox",
    path: "/runtime.v1.RuntimeService/ListPodSandbox",
};

/// `PodSandboxStatus`
pub(super) const POD_SANDBOX_STATUS: Method = Method {
    name: "PodSandboxStatus",
    path: "/runtime.v1.RuntimeService/PodSandboxStatus",
};

/// `ListContainers`
pub(super) const LIST_CONTAINERS: Method = Method {
    name: "ListContainers",
    path: "/runtime.v1.RuntimeService/ListContainers",
};

/// `NamespaceMode.NODE`
pub(super) const NAMESPACE_NODE: i32 = 2;

/// `VersionRequest`
#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionRequest {
    /// Of the kubelet's side.
    #[prost(string, tag = "1")]
    pub(super) version: String,
}

/// `VersionResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionResponse {
    /// `containerd`, `cri-o`, `docker`, …
    #[prost(string, tag = "2")]
    pub(super) runtime_name: String,
    /// As the runtime writes it.
    #[prost(string, tag = "3")]
    pub(super) runtime_version: String,
}

/// `ListPodSandboxRequest`, without a filter.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListPodSandboxRequest {}

/// `ListPodSandboxResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListPodSandboxResponse {
    /// Sandboxes in any state.
    #[prost(message, repeated, tag = "1")]
    pub(super) items: Vec<PodSandbox>,
}

/// `PodSandbox`
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandbox {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) metadata: Option<PodSandboxMetadata>,
    /// `PodSandboxState`: 0 is ready, 1 is not.
    #[prost(int32, tag = "3")]
    pub(super) state: i32,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub(super) created_at: i64,
}

/// `PodSandboxMetadata`
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
    /// Counts the sandboxes of the pod.
    #[prost(uint32, tag = "4")]
    pub(super) attempt: u32,
}

/// `PodSandboxStatusRequest`
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxStatusRequest {
    #[prost(string, tag = "1")]
    pub(super) pod_sandbox_id: String,
    /// With `info`.
    #[prost(bool, tag = "2")]
    pub(super) verbose: bool,
}

/// `PodSandboxStatusResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxStatusResponse {
    /// What every runtime tells.
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<PodSandboxStatus>,
    /// What this runtime tells besides.
    #[prost(map = "string, string", tag = "2")]
    pub(super) info: HashMap<String, String>,
}

/// `PodSandboxStatus`
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxStatus {
    #[prost(message, optional, tag = "5")]
    pub(super) network: Option<PodSandboxNetworkStatus>,
    #[prost(message, optional, tag = "6")]
    pub(super) linux: Option<LinuxPodSandboxStatus>,
}

/// `PodSandboxNetworkStatus`
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxNetworkStatus {
    /// The first address; may be empty.
    #[prost(string, tag = "1")]
    pub(super) ip: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) additional_ips: Vec<PodIp>,
}

/// `PodIP`
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodIp {
    #[prost(string, tag = "1")]
    pub(super) ip: String,
}

/// `LinuxPodSandboxStatus`
#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxPodSandboxStatus {
    #[prost(message, optional, tag = "1")]
    pub(super) namespaces: Option<Namespace>,
}

/// `Namespace`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Namespace {
    #[prost(message, optional, tag = "2")]
    pub(super) options: Option<NamespaceOption>,
}

/// `NamespaceOption`
#[derive(Clone, PartialEq, Message)]
pub(super) struct NamespaceOption {
    /// `NamespaceMode` of the network.
    #[prost(int32, tag = "1")]
    pub(super) network: i32,
}

/// `ListContainersRequest`, without a filter.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListContainersRequest {}

/// `ListContainersResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListContainersResponse {
    /// Containers in any state, without infra containers.
    #[prost(message, repeated, tag = "1")]
    pub(super) containers: Vec<Container>,
}

/// `Container`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Container {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) pod_sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    pub(super) metadata: Option<ContainerMetadata>,
    /// `ContainerState`
    #[prost(int32, tag = "6")]
    pub(super) state: i32,
}

/// `ContainerMetadata`
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerMetadata {
    /// Its name in the pod.
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

impl Container {
    /// `ContainerState` in words.
    pub(super) fn state_name(&self) -> &'static str {
        match self.state {
            0 => "created",
            1 => "running",
            2 => "exited",
            _ => "unknown",
        }
    }
}
