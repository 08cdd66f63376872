//! How much may be told of pods, bytes: what the API server says and what those
//! do who change pods is written down, once or more often.

use std::time::Duration;

use tokio::time::Instant;

/// In a second, for good: half a megabyte a minute.
const RATE: usize = 8 << 10;
/// At once: all pods of a node that starts.
const MOST: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Budget {
    left: usize,
    at: Instant,
}

impl Budget {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            left: MOST,
            at: now,
        }
    }

    /// Takes so much, if there is as much.
    pub(super) fn take(&mut self, weight: usize, now: Instant) -> bool {
        let more = RATE as f64 * now.saturating_duration_since(self.at).as_secs_f64();
        if more >= 1.0 {
            self.left = MOST.min(self.left + more as usize);
            self.at = now;
        }
        let left = self.left.checked_sub(weight);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

/// How long it takes until as much may be told again.
pub(super) fn worth(weight: usize) -> Duration {
    Duration::from_secs_f64(weight as f64 / RATE as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_told_than_the_rate_whatever_there_is_to_tell() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let minute = (0..60_000).map(|ms| start + Duration::from_millis(ms));
        let told = minute.filter(|now| budget.take(400, *now)).count() * 400;
        assert!((60 * RATE..=60 * RATE + MOST).contains(&told), "{told}");
    }
}
