//! Recordings: one line that says what was recorded, then one event a line in
//! its serde form, and between them what else the run went by.
//!
//! A recording holds all that verdicts depend on: every event in the order in
//! which the engine was given it, ticks too; for a scan, where each look ended
//! ([`Marker`]); in the [`Header`] what findings' IDs are made from. So a replay
//! gives the same findings with the same IDs. It is readable by the owner
//! alone.
//!
//! One that has reached half of its size limit goes on in a new file with a
//! header of its own ([`Header::part`]); the newest two are kept.

mod long_texts;
mod reader;
mod recorder;
mod tape;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use self::{
    long_texts::LongTexts,
    reader::{Line, LineEnd, Lines, ReadError, Recording, takes_too_much, values},
    recorder::{Recorder, RecordingError},
    tape::{Opened, STDOUT},
};
use crate::config::Node;
use engine::detect::Settings;
use event::{clock::Timestamp, record::CoverageItem};

/// The `type` of the first line.
pub(crate) const KIND: &str = "recording";

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// [`SCHEMA`](event::record::SCHEMA)
    pub(crate) schema: String,
    /// `recording`
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) time: Timestamp,
    pub(crate) node: String,
    /// The boot that findings' IDs belong to.
    pub(crate) boot_id: String,
    pub(crate) stall_threshold_ms: u64,
    /// The same to the nanosecond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stall_threshold_ns: Option<u64>,
    #[serde(default)]
    pub(crate) command: Command,
    /// The version that has written it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// How many parts were before this one; the run began with the first.
    #[serde(default, skip_serializing_if = "is_first")]
    pub(crate) part: u64,
}

fn is_first(part: &u64) -> bool {
    *part == 0
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Command {
    /// `trace`: findings are told as they come.
    #[default]
    Trace,
    /// `scan`: findings are told at the end.
    Scan,
}

/// What is no event, and a replay needs all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Marker {
    /// What the run could see, as its coverage record said it.
    Coverage { signals: Vec<CoverageItem> },
    /// scan: a look was taken in as a whole.
    Looked,
    /// scan: no other look follows that could confirm what is doubtful.
    Judged,
    /// The run ended of its own accord, and this is all.
    Ended { time: Timestamp },
}

impl Header {
    fn new(command: Command, node: &Node, stall_threshold: Duration) -> Self {
        Self {
            schema: event::record::SCHEMA.to_owned(),
            kind: KIND.to_owned(),
            time: sys::clock::now(),
            node: node.name.clone(),
            boot_id: node.boot_id.clone(),
            stall_threshold_ms: u64::try_from(stall_threshold.as_millis()).unwrap_or(u64::MAX),
            stall_threshold_ns: u64::try_from(stall_threshold.as_nanos()).ok(),
            command,
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            part: 0,
        }
    }

    /// Whether another begins the next part of the same recording.
    pub(crate) fn goes_on_in(&self, other: &Self) -> bool {
        let next = Self {
            part: self.part + 1,
            ..self.clone()
        };
        next == *other
    }

    /// What the rules were told.
    pub(crate) fn settings(&self) -> Settings {
        let exact = self.stall_threshold_ns.map(Duration::from_nanos);
        Settings {
            boot_id: self.boot_id.clone(),
            node: self.node.clone(),
            node_is_named: false,
            stall_threshold: exact.unwrap_or(Duration::from_millis(self.stall_threshold_ms)),
            surveyed: self.command == Command::Scan,
        }
    }
}

impl Command {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Scan => "scan",
        }
    }
}

#[cfg(test)]
mod tests;
