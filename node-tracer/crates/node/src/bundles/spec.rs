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

/// What a container is in its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// It is the sandbox (the infra container).
    pub sandbox: bool,
    pub sandbox_id: String,
    pub pod: PodRef,
    /// How often the sandbox was made anew, where that is written.
    pub attempt: u32,
    /// The container's name in the pod; empty for a sandbox.
    pub name: String,
}

/// CRI-O's `Metadata` annotation: of a sandbox, or of a container.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    uid: String,
    attempt: u32,
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

    /// What the container is in its pod; `None` if it is in none, or is of a
    /// runtime that writes it down otherwise.
    pub fn role(&self) -> Option<Role> {
        let mut role = self.containerd().or_else(|| self.crio())?;
        if role.pod.uid.is_none() {
            let path = self.linux.as_ref()?.cgroups_path.as_deref();
            role.pod.uid = path
                .and_then(cgroup::owner_of_path)
                .map(|owner| owner.pod_uid);
        }
        is_id(&role.sandbox_id).then_some(role)
    }

    /// The pod's addresses, where they are written (CRI-O).
    pub fn ips(&self) -> Vec<IpAddr> {
        let annotations = self.annotations.iter().flatten();
        let addresses = annotations.filter_map(|(key, value)| {
            let index = key.strip_prefix("io.kubernetes.cri-o.IP")?;
            (index.is_empty() || index.starts_with('.')).then_some(value.as_str()?)
        });
        collect_ips(addresses)
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
            attempt: 0,
            name: get("container-name").unwrap_or_default(),
        })
    }

    fn crio(&self) -> Option<Role> {
        let get = |key: &str| self.annotation("io.kubernetes.cri-o.", key);
        let sandbox = is_sandbox(&get("ContainerType")?)?;
        // A container's has its own name, and none of the rest.
        let metadata: Metadata = self
            .raw("io.kubernetes.cri-o.", "Metadata")
            .and_then(|json| serde_json::from_str(json).ok())
            .unwrap_or_default();
        let uid = sandbox.then(|| text(&metadata.uid));
        Some(Role {
            sandbox,
            sandbox_id: get("SandboxID")?,
            pod: PodRef {
                namespace: get("Namespace"),
                name: get("KubeName"),
                uid: uid.filter(|uid| !uid.is_empty()),
            },
            attempt: if sandbox { metadata.attempt } else { 0 },
            name: if sandbox {
                String::new()
            } else {
                text(&metadata.name)
            },
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
        if let Ok(ip) = address.parse::<IpAddr>()
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
