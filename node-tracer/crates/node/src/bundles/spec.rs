//! The few parts of an OCI runtime specification (`config.json`) that say
//! whose a container is and which network namespace it has.
//!
//! The rest is skipped while it is read: `process.env` holds secrets.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Deserialize;
use serde_json::Value;

use crate::cgroup;
use event::PodRef;

/// Longest text that is kept of what others have written. Names and UIDs of
/// Kubernetes have at most 253 characters.
const MAX_TEXT: usize = 256;

/// Longest container ID that is believed; the runtimes' have 64 characters.
const MAX_ID: usize = 128;

/// Addresses of one sandbox that are kept.
const MAX_IPS: usize = 16;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Spec {
    annotations: Option<BTreeMap<String, Value>>,
    linux: Option<Linux>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Linux {
    namespaces: Option<Vec<Namespace>>,
    #[serde(rename = "cgroupsPath")]
    cgroups_path: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Namespace {
    #[serde(rename = "type")]
    kind: String,
    path: Option<String>,
}

/// The network namespace that a specification asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    Host,
    /// The one at a path.
    At(String),
    /// One of its own that has no name.
    Own,
}

/// Who has written a specification. Each has annotations of its own, and those
/// of the other are then anybody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    Containerd,
    Crio,
}

/// What a container is in its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// It is the sandbox (the infra container).
    pub sandbox: bool,
    pub sandbox_id: String,
    pub pod: PodRef,
    /// The container's name in the pod; empty for a sandbox.
    pub name: String,
}

impl Spec {
    /// The network; `None` if the specification does not say.
    pub fn network(&self) -> Option<Network> {
        let namespaces = self.linux.as_ref()?.namespaces.as_ref()?;
        let network = namespaces.iter().find(|each| each.kind == "network");
        Some(match network.map(|each| each.path.as_deref()) {
            None => Network::Host,
            // Cut, it would be another path.
            Some(Some(path)) if path.len() > libc::PATH_MAX as usize => return None,
            Some(Some(path)) if !path.is_empty() => Network::At(path.to_owned()),
            Some(_) => Network::Own,
        })
    }

    /// What the container of this ID is in its pod; `None` if it is in none, or
    /// is of a runtime that writes it down otherwise.
    pub fn role(&self, writer: Writer, id: &str) -> Option<Role> {
        let mut role = match writer {
            Writer::Containerd => self.containerd(),
            Writer::Crio => self.crio(id),
        }?;
        // No pod's owner has a word in it, and older runtimes write no other.
        let path = self
            .linux
            .as_ref()
            .and_then(|it| it.cgroups_path.as_deref());
        let owner = path.and_then(cgroup::owner_of_path);
        let uid = owner.map(|owner| owner.pod_uid);
        role.pod.uid = uid.or(role.pod.uid);
        is_id(&role.sandbox_id).then_some(role)
    }

    /// The pod's addresses, where they are written (CRI-O). Without a network of
    /// its own a pod has none there, but what its owner has put in their place.
    pub fn ips(&self) -> Vec<IpAddr> {
        let has_own = matches!(self.network(), Some(Network::At(_)));
        let result = self.raw("io.kubernetes.cri-o.", "CNIResult");
        let result = result.filter(|_| has_own).unwrap_or_default();
        let result: Value = serde_json::from_slice(result.as_bytes()).unwrap_or_default();
        let ips = result.get("ips").and_then(Value::as_array);
        let addresses = ips.into_iter().flatten();
        collect_ips(addresses.filter_map(|ip| ip.get("address")?.as_str()))
    }

    fn containerd(&self) -> Option<Role> {
        let get = |key: &str| self.annotation("io.kubernetes.cri.", key);
        Some(Role {
            sandbox: is_sandbox(&get("container-type")?)?,
            sandbox_id: get("sandbox-id")?,
            pod: PodRef {
                namespace: get("sandbox-namespace"),
                name: get("sandbox-name"),
                uid: get("sandbox-uid"),
            },
            name: get("container-name").unwrap_or_default(),
        })
    }

    /// CRI-O writes a pod's own annotations and labels among these, over its own
    /// of a sandbox. The last are the kubelet's labels, and in a container's the
    /// ID of its sandbox.
    fn crio(&self, id: &str) -> Option<Role> {
        let get = |key: &str| self.annotation("io.kubernetes.", key);
        let name = get("container.name")?;
        let sandbox = name == "POD";
        Some(Role {
            sandbox,
            sandbox_id: match sandbox {
                true => id.to_owned(),
                false => get("cri-o.SandboxID")?,
            },
            pod: PodRef {
                namespace: get("pod.namespace"),
                name: get("pod.name"),
                uid: get("pod.uid"),
            },
            name: if sandbox { String::new() } else { name },
        })
    }

    fn raw(&self, prefix: &str, key: &str) -> Option<&str> {
        let value = self.annotations.as_ref()?.get(&format!("{prefix}{key}"))?;
        value.as_str().filter(|value| !value.is_empty())
    }

    fn annotation(&self, prefix: &str, key: &str) -> Option<String> {
        self.raw(prefix, key).map(text)
    }
}

/// Whether this can be a container's ID, and thus the name of its folder.
pub fn is_id(id: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let first = id.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric());
    first && id.len() <= MAX_ID && id.bytes().all(allowed)
}

/// The beginning of a text, short enough to be kept.
pub fn text(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// Addresses, with or without prefix length, each once; those of the loopback
/// device are none of a pod's.
pub fn collect_ips<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    let mut ips = Vec::new();
    for text in texts {
        let address = text.split('/').next().unwrap_or_default();
        if let Ok(ip) = address.parse::<IpAddr>().map(|ip| ip.to_canonical())
            && !ip.is_loopback()
            && !ip.is_unspecified()
            && !ips.contains(&ip)
            && ips.len() < MAX_IPS
        {
            ips.push(ip);
        }
    }
    ips
}

fn is_sandbox(kind: &str) -> Option<bool> {
    match kind {
        "sandbox" => Some(true),
        "container" => Some(false),
        _ => None,
    }
}
