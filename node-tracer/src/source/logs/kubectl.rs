//! What `kubectl describe pod` and `kubectl get events` print.

use crate::{clock::Timestamp, event::Event};

/// Such a text, being read.
#[derive(Debug)]
pub(crate) struct Kubectl {
    /// When it was printed, as near as that is known: ages count from there.
    _printed: Timestamp,
}

impl Kubectl {
    /// From its beginning.
    pub(crate) fn new(printed: Timestamp) -> Self {
        Self { _printed: printed }
    }

    /// Takes a line in; what it tells.
    pub(crate) fn line(&mut self, _line: &str) -> Vec<Event> {
        Vec::new()
    }

    /// What is left when the text has ended.
    pub(crate) fn end(&mut self) -> Vec<Event> {
        Vec::new()
    }
}
