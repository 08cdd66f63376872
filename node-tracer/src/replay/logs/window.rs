//! Events put in order, as far as they are not too far apart.

use std::{collections::BTreeMap, io};

use event::{Event, clock::Timestamp};

/// Events that are held back, at most. A page is sorted as a whole.
const MAX_HELD: usize = 8_192;
/// What these hold, at most, in bytes.
const MAX_BYTES: usize = 32 << 20;
/// Events of one moment among which a repeated one is looked for.
const MAX_SAME: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Window {
    held: BTreeMap<(Timestamp, u64), (usize, Event)>,
    bytes: usize,
    number: u64,
    /// The time of the last one that was let go.
    gone: Option<Timestamp>,
    /// Events that were let go before all had come.
    spilled: bool,
    /// Events that came after later ones had been let go.
    late: u64,
    /// Events that came again.
    again: u64,
}

impl Window {
    /// Takes an event of a host in, unless it is there already.
    pub(super) fn put(&mut self, place: usize, event: Event) {
        let time = event.time;
        let same = self.held.range((time, 0)..=(time, u64::MAX));
        let mut same = same.rev().take(MAX_SAME).map(|(_, held)| held);
        if same.any(|(other, held)| *other == place && *held == event) {
            self.again += 1;
            return;
        }
        self.number += 1;
        self.bytes += size(&event);
        self.held.insert((time, self.number), (place, event));
    }

    /// The next event, if it is time for it: when there are too many, or `all`
    /// have come.
    pub(super) fn take(&mut self, all: bool) -> Option<(usize, Event)> {
        if !all && self.held.len() <= MAX_HELD && self.bytes <= MAX_BYTES {
            return None;
        }
        self.spilled |= !all;
        let ((time, _), next) = self.held.pop_first()?;
        self.bytes = self.bytes.saturating_sub(size(&next.1));
        self.late += u64::from(self.gone.is_some_and(|gone| time < gone));
        self.gone = self.gone.max(Some(time));
        Some(next)
    }

    /// Whether any was let go before all had come.
    pub(super) fn spilled(&self) -> bool {
        self.spilled
    }

    /// What that costs, in words.
    pub(super) fn gap(&self) -> Option<String> {
        (self.late > 0).then(|| {
            format!(
                "the order of {} events: the logs are further out of order than {MAX_HELD} events, \
                 or {} MiB of them, and these were taken as they came",
                self.late,
                MAX_BYTES >> 20
            )
        })
    }
}

/// What an event holds, near enough: itself, and what it is to be read from.
fn size(event: &Event) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(size_of::<Event>());
    // What cannot be written has been counted as far as it could.
    let _partly = serde_json::to_writer(&mut count, event);
    count.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::{What, testing::*};

    fn lost(seconds: i64, count: u64) -> Event {
        let cause = String::from("x");
        at(seconds, What::EventsLost { cause, count })
    }

    #[test]
    fn a_page_is_sorted_as_a_whole_and_says_nothing_twice() {
        let mut window = Window::default();
        for (seconds, count) in [(5, 1), (3, 1), (5, 1), (5, 2), (1, 1), (3, 1)] {
            window.put(0, lost(seconds, count));
        }
        // Another host may say the same.
        window.put(1, lost(3, 1));
        assert!(window.take(false).is_none(), "more may come");
        let taken = std::iter::from_fn(|| window.take(true));
        let taken: Vec<_> = taken.map(|(place, event)| (place, event.time)).collect();
        let expected = [(0, s(1)), (0, s(3)), (1, s(3)), (0, s(5)), (0, s(5))];
        assert_eq!(taken, expected);
        assert_eq!((window.again, window.gap()), (2, None));
        assert!(!window.spilled());
    }

    #[test]
    fn a_window_holds_so_many_bytes_however_few_events_these_are() {
        let mut window = Window::default();
        let long = |seconds| {
            let cause = "\u{1f980}".repeat(MAX_BYTES / 16);
            at(seconds, What::EventsLost { cause, count: 1 })
        };
        for seconds in 0..8 {
            window.put(0, long(seconds));
        }
        let mut taken = 0;
        while window.take(false).is_some() {
            taken += 1;
        }
        assert_eq!(taken, 5, "three of a quarter each, and what is around them");
        while window.take(true).is_some() {}
        assert_eq!(window.bytes, 0);
    }

    #[test]
    fn what_comes_too_late_is_taken_and_counted() {
        let mut window = Window::default();
        for seconds in 0..=MAX_HELD as i64 {
            window.put(0, lost(100 + seconds, 1));
        }
        assert_eq!(window.take(false).unwrap().1.time, s(100));
        assert!(window.take(false).is_none(), "the window is full, no more");
        window.put(0, lost(1, 1));
        assert_eq!(window.take(false).unwrap().1.time, s(1));
        assert!(window.gap().unwrap().contains("of 1 events"));
        assert!(window.spilled());
    }
}
