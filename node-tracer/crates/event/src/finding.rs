//! What the tracer concludes: a finding is a chain of claims, each with its
//! source and time, and what is not known is named.
//!
//! The serde form is the contract's `type: "finding"` record (without the
//! record's frame, which the sink adds).

pub use crate::rule::Rule;

use std::{net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{CniError, Netns, NotStuck, PodRef, clock::Timestamp, is_false};

/// One finding in its present state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Which rule found it.
    pub rule: Rule,
    /// How bad it is.
    pub severity: Severity,
    /// The same finding has the same ID in every run on the same boot.
    pub id: String,
    /// Since when it is so; see [`Detail::first_seen`].
    pub since: Timestamp,
    pub title: String,
    /// The pod it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// The pod sandbox it is about: the infra container's ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// The network namespace it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<FindingNetns>,
    /// Addresses it is about.
    pub addresses: Vec<IpAddr>,
    /// What keeps the namespace, or is stuck.
    pub holders: Vec<Holder>,
    /// The claims, in the order in which they lead to the verdict.
    pub evidence: Vec<Evidence>,
    /// What could not be found out, and therefore is not claimed.
    pub unknown: Vec<String>,
    /// What to do, in order.
    pub advice: Vec<String>,
    /// What only this rule says.
    #[serde(flatten)]
    pub detail: Detail,
}

/// How bad a finding is; from [`Severity::Warning`] on it makes the exit code 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Info,
    /// Will hurt, or may.
    Warning,
    /// Hurts a pod now, or the next one that starts.
    Critical,
}

/// Whether a finding is new, has changed, or is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Seen for the first time.
    Open,
    /// Still so, but something about it has changed.
    Updated,
    Resolved,
}

/// A network namespace as findings name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingNetns {
    /// Inode number and cookie.
    #[serde(flatten)]
    pub id: Netns,
    /// Where it is, or was, mounted.
    #[serde(serialize_with = "crate::as_text")]
    pub paths: Vec<PathBuf>,
}

/// Something that keeps a network namespace, or a task that is stuck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Holder {
    /// A task in the namespace.
    Task {
        pid: u32,
        tid: u32,
        comm: String,
        /// State letter of ps(1).
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<char>,
        /// Since when it is stuck.
        #[serde(skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
        /// The kernel function that it sleeps in.
        #[serde(skip_serializing_if = "Option::is_none")]
        wchan: Option<String>,
        /// Its kernel stack, innermost first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stack: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        container_id: Option<String>,
        /// It is in state D and not stuck.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_stuck: Option<NotStuck>,
        /// It slept already when it was first seen, which is `since`.
        #[serde(default, skip_serializing_if = "is_false")]
        first_seen: bool,
    },
    /// An nsfs mount of the namespace.
    Mount {
        #[serde(serialize_with = "crate::one_as_text")]
        path: PathBuf,
    },
    /// A descriptor of the namespace in a process that is not in it.
    Fd {
        pid: u32,
        fd: u32,
        /// Name of the process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comm: Option<String>,
    },
    /// A socket in the namespace, of a process that is not in it.
    Socket {
        pid: u32,
        fd: u32,
        /// Name of the process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comm: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    pub claim: String,
    /// Who says so: `kernel`, `pods`, `cni`, `host-local`, ...
    pub source: String,
    pub at: Timestamp,
}

/// Fields that not every finding has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Detail {
    /// The same in all findings of one incident: the ID of the one that was found
    /// first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<String>,
    /// `since` is when it was first seen: when it began is not known.
    #[serde(default, skip_serializing_if = "is_false")]
    pub first_seen: bool,
    /// ghost-sandbox: how far it has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// ghost-sandbox: the pod of another node that has its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_by: Option<TakenBy>,
    /// ghost-sandbox, unreserved-address: when the address may be handed out, at the
    /// latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// leaked-reservation: which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<LeakedReservation>,
    /// range-exhausted: addresses that are reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// range-exhausted: those of them that are reserved for nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaked: Option<u64>,
    /// range-exhausted: addresses that can be given out at all. Ranges of IPv6
    /// can be larger than a number of JSON: then `u64::MAX`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// stale-del: what it did to the newer sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// stale-del: the sandbox that the DEL was for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_container_id: Option<String>,
    /// stale-del: the newer sandbox of the same pod name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_container_id: Option<String>,
    /// add-failed, sandbox-create-failed: why, in one word of a fixed list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// sandbox-create-failed: what that follows from, of the same list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_cause: Option<String>,
    /// add-failed, sandbox-create-failed, del-retry, sandbox-churn: how often
    /// it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    /// add-failed, del-retry: what the plugin said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<CniError>,
    /// duplicate-address: how many addresses they share, if more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_count: Option<u64>,
    /// duplicate-address: users whose own namespaces have the addresses, and take
    /// nothing from anybody; the first few of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<u32>,
    /// blocked-task: the user who runs what is stuck, if that is not root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// stale-path: the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<StaleEntry>,
    /// events-lost: how many, by cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<std::collections::BTreeMap<String, u64>>,
}

/// A pod of another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenBy {
    pub node: String,
    pub namespace: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// An entry of the node's tables that leads astray.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleEntry {
    pub kind: EntryKind,
    /// As ip(8) prints it.
    pub entry: String,
    /// The address that it is for.
    pub address: IpAddr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Of a neighbour, the MAC address that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryKind {
    Rule,
    Route,
    Neighbour,
}

/// A reservation that nobody uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeakedReservation {
    pub path: PathBuf,
    pub address: IpAddr,
    /// The container that it is reserved for; empty if the file is empty.
    pub container_id: String,
    /// The interface; old files have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
    /// When the address was reserved. When the container went is not written
    /// anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Timestamp>,
}

/// What a stale DEL did to the newer sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// The newer sandbox has lost something that it had.
    Harmful,
    /// It was looked at afterwards and has all it had.
    Harmless,
    /// It was not looked at, or not for long enough.
    Unknown,
}

/// How far a ghost has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The pod is gone, the namespace is held, the address is still reserved.
    Suspected,
    /// The address can be handed out.
    Armed,
    /// The address has been handed out.
    Conflict,
}

impl Finding {
    /// Tells all its times by another clock; what it says in words stays as it is.
    pub fn change_clock(&mut self, to: &dyn Fn(Timestamp) -> Timestamp) {
        self.since = to(self.since);
        for claim in &mut self.evidence {
            claim.at = to(claim.at);
        }
        for holder in &mut self.holders {
            if let Holder::Task { since, .. } = holder {
                *since = since.map(to);
            }
        }
        for reserved in &mut self.detail.reservations {
            reserved.reserved = reserved.reserved.map(to);
        }
        self.detail.due = self.detail.due.map(to);
    }

    /// The incident that it belongs to; by itself it is one of its own.
    pub fn incident(&self) -> &str {
        self.detail.incident.as_ref().unwrap_or(&self.id)
    }
}

impl Severity {
    /// The name in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

impl State {
    /// The name in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Updated => "updated",
            Self::Resolved => "resolved",
        }
    }
}

impl Phase {
    /// The name in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Suspected => "suspected",
            Self::Armed => "armed",
            Self::Conflict => "conflict",
        }
    }
}

/// The ID of a finding: the same for the same rule and subject on one boot.
///
/// `subject` must hold only what any run can see: an inode, a thread ID with
/// its start time, a pod's UID, an address.
pub fn finding_id(boot_id: &str, rule: Rule, subject: &str) -> String {
    // FNV-1a, 64 bits: short to read aloud, and no secret is at stake.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in [boot_id, rule.as_str(), subject] {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_depends_on_boot_rule_and_subject_and_on_nothing_else() {
        let id = |boot, rule, subject| finding_id(boot, rule, subject);
        let one = id("b1", Rule::GhostSandbox, "4026532200");
        assert_eq!(one, id("b1", Rule::GhostSandbox, "4026532200"));
        assert_ne!(one, id("b2", Rule::GhostSandbox, "4026532200"));
        assert_ne!(one, id("b1", Rule::BlockedTask, "4026532200"));
        assert_ne!(one, id("b1", Rule::GhostSandbox, "4026532201"));
    }

    #[test]
    fn a_descriptor_is_a_holder_of_the_contracts_kind() {
        let holder = Holder::Fd {
            pid: 77,
            fd: 3,
            comm: Some("x".into()),
        };
        let json = serde_json::json!({"kind": "fd", "pid": 77, "fd": 3, "comm": "x"});
        assert_eq!(serde_json::to_value(&holder).unwrap(), json);
        assert_eq!(serde_json::from_value::<Holder>(json).unwrap(), holder);
    }
}
