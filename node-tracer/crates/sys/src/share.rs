//! Work that is repeated as often as something happens, but not at all cost.

/// A share of the time that a piece of work may take, with a reserve: after a
/// rest it may come in a burst.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// One part in so many.
    parts: u64,
    /// What may be taken in advance: so much work, times `parts`, ns.
    ahead: u64,
    /// It is put off by no more, ns.
    most: u64,
    /// The work so far is paid for by then, monotonic ns.
    paid: u64,
}

impl Share {
    /// At most one part in so many of the time; after a rest, work for `burst` ns
    /// without a pause; but put off by `most` ns, however long it took.
    pub const fn new(parts: u64, burst: u64, most: u64) -> Self {
        Self {
            parts,
            ahead: burst * parts,
            most,
            paid: 0,
        }
    }

    /// It was done between these times, monotonic ns.
    pub fn spend(&mut self, start: u64, end: u64) {
        let took = end.saturating_sub(start);
        let paid = self.paid.max(start) + took.saturating_mul(self.parts);
        self.paid = paid.min(end + self.ahead + self.most);
    }

    /// When it may be done again, monotonic ns.
    pub fn not_before(&self) -> u64 {
        self.paid.saturating_sub(self.ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;

    /// Does work of a millisecond as often as it may, and says how often.
    fn runs(share: &mut Share, from: u64, to: u64) -> u64 {
        let (mut time, mut count) = (from, 0);
        while time < to {
            share.spend(time, time + MS);
            time = share.not_before().max(time + MS);
            count += 1;
        }
        count
    }

    #[test]
    fn work_takes_its_share_and_no_more() {
        let mut share = Share::new(100, 0, SECOND);
        assert_eq!(runs(&mut share, SECOND, 11 * SECOND), 100);
    }

    #[test]
    fn what_took_very_long_is_put_off_once_and_not_for_ever() {
        let mut share = Share::new(100, 10 * MS, SECOND);
        share.spend(100 * SECOND, 200 * SECOND);
        assert_eq!(share.not_before(), 201 * SECOND);
    }

    #[test]
    fn after_a_rest_it_comes_in_a_burst() {
        let mut share = Share::new(100, 10 * MS, SECOND);
        let first = runs(&mut share, 100 * SECOND, 101 * SECOND);
        assert_eq!(first, 10 + 10);
        assert_eq!(runs(&mut share, 101 * SECOND, 102 * SECOND), 10, "used up");
        assert_eq!(runs(&mut share, 200 * SECOND, 201 * SECOND), 20);
    }
}
