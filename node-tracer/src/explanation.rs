//! The contract's `type: "explanation"` record, without the record's frame.
//!
//! Keys are added, never renamed. Everything in it is as some source told it;
//! where a source told nothing, a value is absent and `unknown` says why.

mod cni;
mod netns;
mod pods;

use serde::{Deserialize, Serialize};

pub(crate) use self::{
    cni::{CallPart, CallResult, ReservationPart, StorePart},
    netns::{
        AddressPart, DevicePart, GatewayPart, KnownBy, NetnsPart, NetnsState, PeerPart, PodState,
        RoutePart,
    },
    pods::{PodPart, SandboxPart},
};
use crate::{
    clock::Timestamp,
    finding::{Finding, Holder, State},
};

/// All that is known of one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Explanation {
    /// What was asked about.
    pub(crate) subject: Subject,
    /// The answer in one sentence.
    pub(crate) answer: String,
    /// The network namespaces that it is, is in, or is held by.
    pub(crate) netns: Vec<NetnsPart>,
    /// The task that was asked about, and stuck tasks of the subject that are
    /// in none of these namespaces.
    pub(crate) tasks: Vec<Holder>,
    /// Reservations of its addresses, and for its containers.
    pub(crate) reservations: Vec<ReservationPart>,
    /// host-local's stores that were read.
    pub(crate) stores: Vec<StorePart>,
    /// CNI's calls for it.
    pub(crate) cni_calls: Vec<CallPart>,
    /// Its sandboxes as runtimes list them.
    pub(crate) sandboxes: Vec<SandboxPart>,
    /// Its pods as the API server has them, or has them not.
    pub(crate) pods: Vec<PodPart>,
    /// What is wrong with any of these.
    pub(crate) findings: Vec<FindingPart>,
    /// What happened, in order.
    pub(crate) timeline: Vec<Moment>,
    /// What could not be found out, and therefore is not claimed.
    pub(crate) unknown: Vec<String>,
    /// What was looked at.
    pub(crate) looked_at: Vec<String>,
    /// What to do, in order.
    pub(crate) advice: Vec<String>,
}

/// What was asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subject {
    /// As it was typed.
    pub(crate) asked: String,
    /// As what it was taken.
    pub(crate) kind: Kind,
    /// In full: a whole ID for a prefix.
    pub(crate) value: String,
    /// Something is known of it.
    pub(crate) found: bool,
    /// Everything that could tell of it was read. If it was not found and this
    /// is false, it may be there all the same.
    pub(crate) complete: bool,
    /// What else the word could have meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) also: Vec<String>,
}

/// Kinds of subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// An IP address.
    Address,
    /// A pod by namespace and name.
    Pod,
    /// A pod by UID.
    PodUid,
    /// A pod sandbox or container, by its ID or the beginning of it.
    Container,
    /// A network namespace by inode.
    Netns,
    /// A network namespace by path.
    NetnsPath,
    /// A process or thread.
    Pid,
}

/// A finding as in its own record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FindingPart {
    /// It is open.
    pub(crate) state: State,
    /// The finding.
    #[serde(flatten)]
    pub(crate) finding: Finding,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// When.
    pub(crate) at: Timestamp,
    /// What.
    pub(crate) what: String,
    /// Who says so.
    pub(crate) source: String,
}
