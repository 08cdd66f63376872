//! How often something is written.

use std::time::{Duration, Instant};

/// So many at once, and then one each so often.
pub(crate) struct Rate {
    burst: u32,
    each: Duration,
    /// The moment at which the burst is whole again.
    whole: Instant,
}

impl Rate {
    pub(crate) fn new(now: Instant, burst: u32, each: Duration) -> Self {
        Self {
            burst,
            each,
            whole: now,
        }
    }

    /// When there may be another one.
    pub(crate) fn next(&self) -> Instant {
        let rest = self.each * self.burst.saturating_sub(1);
        self.whole.checked_sub(rest).unwrap_or(self.whole)
    }

    pub(crate) fn take(&mut self, now: Instant) {
        self.whole = self.whole.max(now) + self.each;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: u32 = 50;
    const EACH: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_is_let_through_and_then_one_a_second() {
        let start = Instant::now() + Duration::from_secs(3_600);
        let mut rate = Rate::new(start, BURST, EACH);
        for _ in 0..BURST {
            assert!(rate.next() <= start);
            rate.take(start);
        }
        assert_eq!(rate.next(), start + EACH);
        rate.take(start + EACH);
        assert_eq!(rate.next(), start + 2 * EACH);
        // After a rest there is a burst again.
        let rested = start + EACH * (BURST + 10);
        assert!(rate.next() + EACH * (BURST - 1) <= rested);
    }
}
