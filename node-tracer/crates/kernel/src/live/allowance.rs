//! How much may be told of what one changes without end.

use super::budget::MINUTE;

/// So much at once, and so much a minute after that. What is told can be more
/// than there was room for; then nothing is told until that is made up for.
#[derive(Debug)]
pub(super) struct Allowance {
    left: i64,
    most: i64,
    a_minute: u32,
    since: u64,
}

impl Allowance {
    /// Of whom nothing has been told yet.
    pub(super) const fn new(most: u32, a_minute: u32) -> Self {
        Self {
            left: most as i64,
            most: most as i64,
            a_minute,
            since: 0,
        }
    }

    /// Whether there is room at this time, monotonic ns.
    pub(super) fn has_room(&mut self, time: u64) -> bool {
        let passed = time.saturating_sub(self.since);
        let earned = u128::from(passed) * u128::from(self.a_minute) / u128::from(MINUTE);
        if earned > 0 || self.left >= self.most {
            let earned = i64::try_from(earned).unwrap_or(i64::MAX);
            self.left = self.left.saturating_add(earned).min(self.most);
            self.since = self.since.max(time);
        }
        self.left > 0
    }

    /// How much may be told, as of the last question whether there is room.
    pub(super) fn room(&self) -> usize {
        self.left.try_into().unwrap_or(0)
    }

    /// So much is told.
    pub(super) fn spend(&mut self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.left = self.left.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_beyond_is_made_up_for() {
        let mut budget = Allowance::new(10, 60);
        let second = MINUTE / 60;
        assert!(budget.has_room(second));
        budget.spend(15);
        assert!(!budget.has_room(second) && !budget.has_room(6 * second));
        assert!(budget.has_room(7 * second));
    }

    #[test]
    fn who_was_quiet_has_no_more_than_at_first() {
        let mut budget = Allowance::new(10, 60);
        assert!(budget.has_room(100 * MINUTE));
        budget.spend(10);
        assert!(!budget.has_room(100 * MINUTE));
    }

    #[test]
    fn looks_that_follow_each_other_closely_earn_what_the_time_does() {
        let mut budget = Allowance::new(10, 60);
        budget.has_room(1);
        budget.spend(10);
        let room = (0..3_000).filter(|ms| budget.has_room(MINUTE + ms * 1_000_000));
        assert!(room.count() > 0);
    }
}
