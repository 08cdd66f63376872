//! Devices that the kernel cannot remove yet, as its log tells.

use std::collections::BTreeMap;

use event::clock::Timestamp;

/// Devices at most; further ones are left out.
const MAX_DEVICES: usize = 256;

/// All of them, by name.
#[derive(Debug, Default)]
pub struct WaitingDevices {
    by_name: BTreeMap<String, Waiting>,
    dropped: u64,
}

#[derive(Clone, Debug)]
pub struct Waiting {
    /// When that was first told.
    pub first: Timestamp,
    /// When it was last told: every ten seconds while it lasts.
    pub last: Timestamp,
    pub times: u64,
    /// References that are left.
    pub references: Option<i64>,
}

impl WaitingDevices {
    pub fn all(&self) -> impl Iterator<Item = (&str, &Waiting)> {
        self.by_name
            .iter()
            .map(|(name, each)| (name.as_str(), each))
    }

    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn waits(&mut self, name: &str, references: Option<i64>, time: Timestamp) -> bool {
        if !self.by_name.contains_key(name) && self.by_name.len() >= MAX_DEVICES {
            self.dropped += 1;
            return false;
        }
        let waiting = self.by_name.entry(name.to_owned()).or_insert(Waiting {
            first: time,
            last: time,
            times: 0,
            references,
        });
        waiting.last = waiting.last.max(time);
        waiting.times += 1;
        waiting.references = references;
        true
    }
}
