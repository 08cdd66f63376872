//! A plan: which reservations are to be released, what was seen of them, and
//! for how long that holds. It is what `repair -o json` prints and `--apply`
//! takes.
//!
//! The body of the contract's `type: "plan"` record. A plan that has a key
//! that is not known here is refused: whoever wrote it meant something that
//! would not be done.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    finding::{Evidence, Holder, Rule, Severity},
};

/// The form of plans that this program writes and takes.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`VERSION`]
    pub version: u32,
    pub tool: String,
    /// The boot that it holds for.
    pub boot_id: String,
    /// The folder that was the host's root.
    pub root: RootFolder,
    /// When the node was looked at: the beginnings of both looks. They are the
    /// same if there was nothing to look at again.
    pub observed: [Timestamp; 2],
    /// How long the node was up at the second look, ms.
    pub uptime_ms: u64,
    /// How far the looks were apart, and how old a reservation had to be, ms.
    pub grace_ms: u64,
    /// How long it may be applied, counted from the second look, ms.
    pub valid_for_ms: u64,
    /// The same as a point in time.
    pub expires: Timestamp,
    pub releases: Vec<Release>,
    /// What is left alone, and why.
    pub withheld: Vec<Withheld>,
    /// The stores that were looked at.
    pub stores: Vec<StoreSeen>,
    /// Why nothing can be released at all; empty if that is not so.
    pub refused: Vec<String>,
    /// What only a person can do.
    pub by_hand: Vec<ByHand>,
    /// What could not be found out.
    pub unknown: Vec<String>,
}

/// A root folder by what it is, whatever its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootFolder {
    /// As it was given.
    pub path: String,
    pub device: u64,
    pub inode: u64,
}

/// One reservation that is to be released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    pub store: PathBuf,
    /// The file in it.
    pub path: PathBuf,
    /// The address that it reserves.
    pub address: IpAddr,
    /// For whom; empty if the file is empty.
    pub container_id: String,
    /// For which interface; old files have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
    /// The network, by the CNI configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// All of the file, base64.
    #[serde(with = "bytes")]
    pub content: Vec<u8>,
    pub size: u64,
    pub device: u64,
    pub inode: u64,
    /// When it was written.
    pub modified: Timestamp,
    /// When anything about it was last changed.
    pub changed: Timestamp,
    /// Why it is leaked.
    pub evidence: Vec<Evidence>,
}

/// One reservation that is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Withheld {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// For whom it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
    pub reason: Reason,
    pub why: String,
}

/// Why a reservation is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Something shows that its container, or its address, is in use.
    Live,
    /// A CNI plugin runs for its container.
    PluginRuns,
    /// A pod has the address by the API server.
    PodHasIt,
    /// Another reservation of the same container is in use.
    CompanionLive,
    /// It, or what CNI remembers of it, is younger than the grace.
    Young,
    /// The looks do not agree, or it is not what was planned any more.
    Changed,
    /// Its container's ID is none that a runtime of Kubernetes gives.
    ForeignId,
    /// The file is none of host-local's, or cannot be read.
    Unreadable,
    /// The file has another name somewhere else.
    HardLink,
    /// The file cannot be removed: chattr +i, or a path with links.
    Fixed,
    /// No configured network gives the address out.
    LeftOver,
    /// The store is another plugin's, or is used by one.
    OtherIpam,
    /// A source did not say.
    Unknown,
}

/// A store, as it was at the second look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSeen {
    pub path: String,
    /// The network, by the CNI configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// How many reservations it has.
    pub reservations: usize,
    /// What its leaks were told from: the finding's evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
}

/// A finding that the tool does nothing about, and what a person can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByHand {
    /// What kind of trouble it is.
    pub kind: String,
    /// The rule that found it.
    pub rule: Rule,
    /// How bad it is.
    pub severity: Severity,
    pub finding: String,
    pub title: String,
    /// The pod, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The addresses that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Which process, mount or descriptor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
    /// What to do, in order.
    pub steps: Vec<String>,
}

impl Plan {
    /// The least time between looks, and the least age of a reservation.
    pub fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }

    /// Whether there is anything that anybody could do.
    pub fn asks_for_something(&self) -> bool {
        let bad = |each: &ByHand| each.severity >= Severity::Warning;
        !self.releases.is_empty() || self.by_hand.iter().any(bad)
    }
}

/// An absolute path of names alone, as it would be written.
pub fn is_plain(path: &Path) -> bool {
    let Some(text) = path.to_str() else {
        return false;
    };
    let mut parts = text.split('/');
    parts.next() == Some("")
        && text.len() > 1
        && parts.all(|part| !part.is_empty() && part != "." && part != "..")
}

/// Bytes as base64 (RFC 4648).
pub mod bytes {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_plain_or_it_is_not() {
        for plain in ["/a", "/var/lib/cni/networks/x.y"] {
            assert!(is_plain(Path::new(plain)), "{plain}");
        }
        for other in [
            "", "/", "a", "/a/", "/a//b", "/a/./b", "/a/../b", "//a", "/..",
        ] {
            assert!(!is_plain(Path::new(other)), "{other}");
        }
    }
}
