//! What became of each reservation of a plan or a backup: the bodies of the
//! `type: "repair"` and `type: "repair-summary"` records.

use std::{net::IpAddr, path::Path};

use serde::{Deserialize, Serialize};

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Reservations are given back.
    Apply,
    /// They are put back.
    Undo,
}

/// How it went with one reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Result {
    /// Apply: the file is gone, and the address can be given out.
    Released,
    /// Apply: the file is as it was.
    Kept,
    /// Undo: the file is there again.
    Restored,
    /// Undo: nothing had to be done.
    Unchanged,
    /// Undo: the address has a new owner.
    Taken,
    /// The system did not do it.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was being done.
    pub action: Action,
    pub path: String,
    pub address: IpAddr,
    /// For whom it was reserved; empty if the file was.
    pub container_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
    pub result: Result,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// What was being done.
    pub action: Action,
    pub done: usize,
    /// Not done, as things had changed.
    pub kept: usize,
    /// Not done, as the system refused.
    pub failed: usize,
    /// The host's root that was given.
    pub root: String,
    /// Where the copies are.
    pub backup: String,
    /// How long host-local's lock was held at most, ms.
    pub locked_ms: u64,
    /// What else there is to say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Totals {
    pub fn new(action: Action, root: &Path, backup: String) -> Self {
        Self {
            action,
            root: root.to_string_lossy().into_owned(),
            done: 0,
            kept: 0,
            failed: 0,
            backup,
            locked_ms: 0,
            notes: Vec::new(),
        }
    }

    pub fn count(&mut self, outcome: &Outcome) {
        match outcome.result {
            Result::Released | Result::Restored | Result::Unchanged => self.done += 1,
            Result::Kept | Result::Taken => self.kept += 1,
            Result::Failed => self.failed += 1,
        }
    }
}
