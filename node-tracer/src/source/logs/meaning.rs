//! What logs tell of CNI calls, sandboxes, endpoints and the kernel.

use super::entry::Entry;
use crate::event::Event;

/// Words of which one is in every line that is of interest here. Lines without
/// any are not looked at.
pub(crate) const NEEDLES: &[&str] = &[];

/// What is being told of one node: calls that have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct Meaning;

impl Meaning {
    /// Takes a message in; what it tells.
    pub(crate) fn events(&mut self, _entry: &Entry<'_>) -> Vec<Event> {
        Vec::new()
    }
}
