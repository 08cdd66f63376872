//! What is told of failures: one line for each kind.

use std::collections::BTreeSet;

/// The kind of failures that can be over.
pub(crate) const AWAY: &str = "away";

pub(crate) struct Complaints {
    /// What is not written.
    about: &'static str,
    /// What follows from a failure.
    then: &'static str,
    told: BTreeSet<&'static str>,
}

impl Complaints {
    pub(crate) fn new(about: &'static str, then: &'static str) -> Self {
        Self {
            about,
            then,
            told: BTreeSet::new(),
        }
    }

    /// Tells of a failure, if it is the first of its kind.
    pub(crate) fn tell(&mut self, kind: &'static str, what: &str) {
        if self.told.insert(kind) {
            tracing::warn!("{}: {what}; {}", self.about, self.then);
        }
    }

    /// Whatever fails from now on is news, if the server was away.
    pub(crate) fn works(&mut self) {
        if self.told.contains(AWAY) {
            self.told.clear();
            tracing::warn!("{}: the API server answers again", self.about);
        }
    }
}
