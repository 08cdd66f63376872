//! What runtimes and the API server say of a subject.

use std::net::IpAddr;

use serde::{Deserialize, Serialize, Serializer, ser::Error as _};
use serde_json::Value;

use crate::{PodRef, RuntimeSandbox, clock::Timestamp, is_false};

/// A pod sandbox as one source lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPart {
    /// `cri` or `bundles`.
    pub source: String,
    /// Where it is listed.
    pub endpoint: String,
    #[serde(flatten, serialize_with = "whole")]
    pub sandbox: RuntimeSandbox,
}

/// A sandbox with all of its lists: the contract has them also where they are
/// empty.
fn whole<S: Serializer>(sandbox: &RuntimeSandbox, serializer: S) -> Result<S::Ok, S::Error> {
    let mut value = serde_json::to_value(sandbox).map_err(S::Error::custom)?;
    if let Some(keys) = value.as_object_mut() {
        for key in ["ips", "containers"] {
            keys.entry(key).or_insert_with(|| Value::Array(Vec::new()));
        }
    }
    value.serialize(serializer)
}

/// A pod as the API server has it, or has it not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodPart {
    /// Namespace, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// UID; absent where only a name is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// `status.phase`, as last listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// `metadata.deletionTimestamp`: when it should be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Timestamp>,
    /// `spec.nodeName`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// `spec.hostNetwork`
    #[serde(default, skip_serializing_if = "is_false")]
    pub host_network: bool,
    /// `status.podIPs`, as last listed.
    pub ips: Vec<IpAddr>,
    /// Where the list is from; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The time for which the list is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Whether it is on the list; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<bool>,
    /// Since when it is missing from the lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_since: Option<Timestamp>,
    /// Why its absence from the list does not prove that it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

impl PodPart {
    /// How it is named elsewhere.
    pub fn reference(&self) -> PodRef {
        PodRef {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    #[test]
    fn a_sandboxs_lists_are_there_when_they_are_empty() {
        let part = SandboxPart {
            source: String::from("cri"),
            endpoint: String::from("/sock"),
            sandbox: sandbox("a", 100, OLD),
        };
        let json = serde_json::to_value(&part).unwrap();
        let keys: Vec<&str> = json
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            keys,
            [
                "attempt",
                "containers",
                "endpoint",
                "id",
                "ips",
                "netns",
                "pod",
                "ready",
                "source"
            ]
        );
        assert_eq!(serde_json::from_value::<SandboxPart>(json).unwrap(), part);
    }
}
