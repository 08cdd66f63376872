//! How long to leave a server that has failed alone.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

/// Pauses between attempts: each up to twice as long as the one before could be,
/// and of any length below that. All nodes of a cluster lose the server at the same
/// moment.
#[derive(Debug)]
pub(crate) struct Retry {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Retry {
    /// The first pause, and the longest.
    pub(crate) fn new((first, most): (Duration, Duration)) -> Self {
        Self {
            first,
            most,
            next: first,
        }
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// The next pause may be as long as this, or longer if it could be before.
    pub(crate) fn spread(&mut self, over: Duration) {
        self.next = self.next.max(over);
    }

    /// The longest that the next pause may be.
    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next.mul_f64(random());
        self.next = (self.next * 2).min(self.most);
        pause
    }
}

/// Between 0 and 1; every [`RandomState`] is another.
pub fn random() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 32;
    bits as f64 / f64::from(u32::MAX)
}
