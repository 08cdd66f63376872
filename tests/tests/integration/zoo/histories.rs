//! What happens over minutes, as recordings of a trace.

use serde_json::Value;

use super::expect::Expect;
use super::recording::header;

/// A row that is told event by event.
pub(super) struct History {
    /// What happens.
    pub(super) name: &'static str,
    events: Vec<Value>,
    pub(super) expect: Vec<Expect>,
}

impl History {
    /// The recording.
    pub(super) fn lines(&self) -> Vec<Value> {
        let mut lines = vec![header("trace")];
        lines.extend(self.events.iter().cloned());
        lines
    }
}

/// All rows.
pub(super) fn rows() -> Vec<History> {
    Vec::new()
}
