//! The contract's `type: "explanation"` record, without the record's frame.
//!
//! Keys are added, never renamed. Everything in it is as some source told it;
//! where a source told nothing, a value is absent and `unknown` says why.

mod cni;
mod netns;
mod path;
mod pods;

use serde::{Deserialize, Serialize};

pub use self::{
    cni::{CallPart, CallResult, ReservationPart, StorePart},
    netns::{
        AddressPart, DevicePart, GatewayPart, KnownBy, NetnsPart, NetnsState, PeerPart, PodState,
        RoutePart,
    },
    path::{PathEnd, PathPart},
    pods::{PodPart, SandboxPart},
};
use crate::{
    clock::Timestamp,
    eni::Eni,
    finding::{Finding, Holder, State},
    not_checked::NotChecked,
};

/// All that is known of one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// What was asked about.
    pub subject: Subject,
    /// The answer in one sentence.
    pub answer: String,
    /// The network namespaces that it is, is in, or is held by.
    pub netns: Vec<NetnsPart>,
    /// The task that was asked about, and stuck tasks of the subject that are
    /// in none of these namespaces.
    pub tasks: Vec<Holder>,
    /// The node's network device that was asked about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eni: Vec<Eni>,
    /// Where this node sends what it has for its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<PathPart>,
    /// Reservations of its addresses, and for its containers.
    pub reservations: Vec<ReservationPart>,
    /// host-local's stores that were read.
    pub stores: Vec<StorePart>,
    pub cni_calls: Vec<CallPart>,
    /// Its sandboxes as runtimes list them.
    pub sandboxes: Vec<SandboxPart>,
    /// Its pods as the API server has them, or has them not.
    pub pods: Vec<PodPart>,
    /// What is wrong with any of these.
    pub findings: Vec<FindingPart>,
    /// What happened, in order.
    pub timeline: Vec<Moment>,
    /// What could not be found out, and therefore is not claimed.
    pub unknown: Vec<String>,
    /// Rules that a missing source has switched off: that they found nothing says
    /// nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_checked: Vec<NotChecked>,
    pub looked_at: Vec<String>,
    /// What to do, in order.
    pub advice: Vec<String>,
}

/// What was asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// As it was typed.
    pub asked: String,
    /// As what it was taken.
    pub kind: Kind,
    /// In full: a whole ID for a prefix.
    pub value: String,
    /// Something is known of it.
    pub found: bool,
    /// Everything that could tell of it was read. If it was not found and this
    /// is false, it may be there all the same.
    pub complete: bool,
    /// What else the word could have meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Address,
    /// A pod by namespace and name.
    Pod,
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
pub struct FindingPart {
    pub state: State,
    #[serde(flatten)]
    pub finding: Finding,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment {
    pub at: Timestamp,
    pub what: String,
    pub source: String,
    /// From here on two have the same address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
    /// It belongs to the course of things and decides nothing: a start, or what
    /// another moment says as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub minor: bool,
}
