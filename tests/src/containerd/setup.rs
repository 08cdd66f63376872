//! What a node is to be like.

use std::path::Path;

use serde_json::{Value, json};

use super::{BRIDGE, Generation, NETWORK};

/// How large the pod network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subnet {
    /// Five pods (/29), so that addresses come round soon.
    Small,
    /// Two hundred and more (/24).
    Large,
}

impl Subnet {
    /// 198.18.0.0/15 is for testing (RFC 2544); see [`network`](crate::network).
    fn text(self) -> String {
        let octet = std::process::id() % 255;
        match self {
            Self::Small => format!("198.19.{octet}.0/29"),
            Self::Large => format!("198.19.{octet}.0/24"),
        }
    }

    /// The pod network by bridge and host-local, for these versions of the
    /// specification.
    pub(crate) fn network(self, versions: &[&str]) -> Value {
        json!({
            "cniVersion": versions.first(),
            "cniVersions": versions,
            "name": NETWORK,
            "plugins": [{
                "type": "bridge",
                "bridge": BRIDGE,
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": self.text() }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            }],
        })
    }
}

/// What a node is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Whose programs it runs.
    pub generation: Generation,
    /// How large the pod network is.
    pub subnet: Subnet,
    /// Folders of the host that it has too, at the same paths.
    pub volumes: &'a [&'a Path],
    /// The folder of CNI plugins, one of the volumes; otherwise the generation's.
    pub plugins: Option<&'a Path>,
    /// The CNI configuration (a list of plugins); otherwise bridge and host-local.
    pub network: Option<&'a Value>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self {
            generation: Generation::Machine,
            subnet: Subnet::Large,
            volumes: &[],
            plugins: None,
            network: None,
        }
    }
}
