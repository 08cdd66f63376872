//! How often something is told that somebody may do without end.
//!
//! So many times in a minute, then in two minutes, in four, up to an hour. Who
//! has done nothing for an hour begins anew.

use super::SECOND;

/// Of what one does, so much is told one by one.
pub(super) const SINGLY: u32 = 16;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;

/// What was told of somebody; see the module's documentation. Times are the
/// kernel's, monotonic ns.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// The time that it is for, and how long that is.
    since: u64,
    period: u64,
    spent: u32,
    /// When it was last asked.
    asked: u64,
}

impl Budget {
    /// Whether one more can be told, of so many.
    pub(super) fn has_room(&mut self, time: u64, budget: u32) -> bool {
        let is_over = time.saturating_sub(self.since) >= self.period;
        if self.period == 0 || !self.was_asked(time, HOUR) {
            (self.since, self.period, self.spent) = (time, MINUTE, 0);
        } else if is_over {
            (self.since, self.spent) = (time, 0);
            self.period = (2 * self.period).min(HOUR);
        }
        self.asked = self.asked.max(time);
        self.spent < budget
    }

    /// One is told.
    pub(super) fn spend(&mut self) {
        self.spent += 1;
    }

    /// Whether it was asked within that time.
    pub(super) fn was_asked(&self, now: u64, within: u64) -> bool {
        self.period > 0 && now.saturating_sub(self.asked) < within
    }
}
