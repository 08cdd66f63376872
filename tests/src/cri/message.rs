//! The messages of CRI v1 that the stage uses, with the fields that it uses.
//!
//! Numbers are those of k8s.io/cri-api, pkg/apis/runtime/v1/api.proto.

use std::collections::HashMap;

#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// How many sandboxes the pod had before.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

/// Which namespaces a sandbox shares with the node (2: the node's own).
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NamespaceOption {
    #[prost(int32, tag = "1")]
    pub(crate) network: i32,
    #[prost(int32, tag = "2")]
    pub(crate) pid: i32,
    #[prost(int32, tag = "3")]
    pub(crate) ipc: i32,
    #[prost(message, optional, tag = "5")]
    pub(crate) userns_options: Option<UserNamespace>,
}

/// How a sandbox's users are mapped (0: as those of the pod).
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct UserNamespace {
    #[prost(int32, tag = "1")]
    pub(crate) mode: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SecurityContext {
    #[prost(message, optional, tag = "1")]
    pub(crate) namespace_options: Option<NamespaceOption>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LinuxPodSandboxConfig {
    #[prost(string, tag = "1")]
    pub(crate) cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) security_context: Option<SecurityContext>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<PodSandboxMetadata>,
    #[prost(string, tag = "2")]
    pub(crate) hostname: String,
    #[prost(map = "string, string", tag = "6")]
    pub(crate) labels: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub(crate) linux: Option<LinuxPodSandboxConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) config: Option<PodSandboxConfig>,
}

/// A sandbox's or a container's ID: the whole of several requests and answers.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Id {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

/// An answer, or a question, without content.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Empty {}

/// A runtime's name and version.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VersionResponse {
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    #[prost(string, tag = "3")]
    pub runtime_version: String,
    #[prost(string, tag = "4")]
    pub runtime_api_version: String,
}

/// Asks for a sandbox's or a container's status.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StatusRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(bool, tag = "2")]
    pub(crate) verbose: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Network {
    #[prost(string, tag = "1")]
    pub(crate) ip: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) additional_ips: Vec<PodIp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodIp {
    #[prost(string, tag = "1")]
    pub(crate) ip: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodSandboxStatus {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) metadata: Option<PodSandboxMetadata>,
    #[prost(int32, tag = "3")]
    pub(crate) state: i32,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub(crate) created_at: i64,
    #[prost(message, optional, tag = "5")]
    pub(crate) network: Option<Network>,
    #[prost(message, optional, tag = "6")]
    pub(crate) linux: Option<LinuxPodSandboxStatus>,
    #[prost(map = "string, string", tag = "7")]
    pub(crate) labels: HashMap<String, String>,
    #[prost(string, tag = "9")]
    pub(crate) runtime_handler: String,
    /// A field that no version has yet.
    #[prost(string, tag = "1000")]
    pub(crate) future: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LinuxPodSandboxStatus {
    #[prost(message, optional, tag = "1")]
    pub(crate) namespaces: Option<Namespaces>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Namespaces {
    #[prost(message, optional, tag = "2")]
    pub(crate) options: Option<NamespaceOption>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodSandboxStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<PodSandboxStatus>,
    #[prost(map = "string, string", tag = "2")]
    pub(crate) info: HashMap<String, String>,
    /// Of each container the ID alone.
    #[prost(message, repeated, tag = "3")]
    pub(crate) containers_statuses: Vec<Id>,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub(crate) timestamp: i64,
    /// A field that no version has yet.
    #[prost(string, tag = "1000")]
    pub(crate) future: String,
}

/// A line of the list of sandboxes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandbox {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    /// 0: ready; 1: not ready.
    #[prost(int32, tag = "3")]
    pub state: i32,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    #[prost(map = "string, string", tag = "5")]
    pub labels: HashMap<String, String>,
    #[prost(string, tag = "7")]
    pub runtime_handler: String,
    /// A field that no version has yet.
    #[prost(string, tag = "1000")]
    pub future: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListPodSandboxResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) items: Vec<PodSandbox>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

/// A line of the list of containers.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Container {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) pod_sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) metadata: Option<ContainerMetadata>,
    /// 1: running.
    #[prost(int32, tag = "6")]
    pub(crate) state: i32,
    #[prost(string, tag = "10")]
    pub(crate) image_id: String,
    /// A field that no version has yet.
    #[prost(string, tag = "1000")]
    pub(crate) future: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListContainersResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) containers: Vec<Container>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ImageSpec {
    #[prost(string, tag = "1")]
    pub(crate) image: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Mount {
    #[prost(string, tag = "1")]
    pub(crate) container_path: String,
    #[prost(string, tag = "2")]
    pub(crate) host_path: String,
    #[prost(bool, tag = "3")]
    pub(crate) readonly: bool,
    #[prost(int32, tag = "5")]
    pub(crate) propagation: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Capability {
    #[prost(string, repeated, tag = "1")]
    pub(crate) add: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) drop: Vec<String>,
}

/// A profile of seccomp or AppArmor (0: the runtime's default; 1: none).
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Profile {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerSecurity {
    #[prost(message, optional, tag = "1")]
    pub(crate) capabilities: Option<Capability>,
    #[prost(message, optional, tag = "3")]
    pub(crate) namespace_options: Option<NamespaceOption>,
    #[prost(bool, tag = "7")]
    pub(crate) readonly_rootfs: bool,
    #[prost(bool, tag = "11")]
    pub(crate) no_new_privs: bool,
    #[prost(message, optional, tag = "15")]
    pub(crate) seccomp: Option<Profile>,
    #[prost(message, optional, tag = "16")]
    pub(crate) apparmor: Option<Profile>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LinuxContainerConfig {
    #[prost(message, optional, tag = "2")]
    pub(crate) security_context: Option<ContainerSecurity>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    pub(crate) image: Option<ImageSpec>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) command: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) mounts: Vec<Mount>,
    #[prost(map = "string, string", tag = "9")]
    pub(crate) labels: HashMap<String, String>,
    #[prost(message, optional, tag = "15")]
    pub(crate) linux: Option<LinuxContainerConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExecSyncRequest {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) cmd: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExecSyncResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) stdout: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) stderr: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CreateContainerRequest {
    #[prost(string, tag = "1")]
    pub(crate) pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pub(crate) sandbox_config: Option<PodSandboxConfig>,
}

/// Of a container's status the verbose part alone.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerStatusResponse {
    #[prost(map = "string, string", tag = "2")]
    pub(crate) info: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Image {
    #[prost(string, repeated, tag = "2")]
    pub(crate) repo_tags: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListImagesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) images: Vec<Image>,
}
