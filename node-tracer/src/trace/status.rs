//! How the trace stands, in the last line of the terminal: `2 incidents open,
//! 14 events/s, none lost`.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use crate::progress::{self, Shown};
use engine::Engine;
use event::wording::plural;

/// What is shown as long as this lives.
#[derive(Debug)]
pub(super) struct StatusLine {
    now: &'static Mutex<Counts>,
    _shown: Shown,
}

/// Counts of the whole run, apart from what is open.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    incidents: usize,
    events: u64,
    lost: u64,
}

impl StatusLine {
    /// Shows the line; `None` where there is no terminal that somebody looks at.
    pub(super) fn show() -> Option<Self> {
        // The line is the process's, and there is one.
        static NOW: Mutex<Counts> = Mutex::new(Counts {
            incidents: 0,
            events: 0,
            lost: 0,
        });
        let rate = Mutex::new(Rate::default());
        let shown = progress::show(move |_| {
            let now = *NOW.lock().unwrap_or_else(PoisonError::into_inner);
            let mut rate = rate.lock().unwrap_or_else(PoisonError::into_inner);
            text(now, rate.step(Instant::now(), now.events))
        });
        shown.is_shown().then_some(Self {
            now: &NOW,
            _shown: shown,
        })
    }

    pub(super) fn set(&self, engine: &Engine) {
        let summary = engine.summary();
        let standing = Counts {
            incidents: engine.incident_count(),
            events: summary.events,
            lost: plural::total(summary.lost.values()),
        };
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }
}

/// Events a second, over the last second and a bit.
#[derive(Debug, Default)]
struct Rate {
    last: Option<(Instant, u64)>,
    rate: u64,
}

impl Rate {
    fn step(&mut self, now: Instant, events: u64) -> u64 {
        let (since, before) = *self.last.get_or_insert((now, events));
        let passed = now.saturating_duration_since(since).as_millis();
        if passed >= 1_000 {
            let more = u128::from(events.saturating_sub(before));
            self.rate = u64::try_from(more * 1_000 / passed).unwrap_or(u64::MAX);
            self.last = Some((now, events));
        }
        self.rate
    }
}

fn text(now: Counts, rate: u64) -> String {
    let open = match now.incidents {
        0 => String::from("no incident"),
        incidents => format!("{} open", plural::counted(incidents, "incident")),
    };
    let lost = match now.lost {
        0 => String::from("none lost"),
        lost => format!("{lost} LOST"),
    };
    format!("{open}, {rate} events/s, {lost} (Ctrl-C ends)")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_line_says_what_is_open_how_fast_and_what_is_lost() {
        let standing = |incidents, lost| Counts {
            incidents,
            events: 7,
            lost,
        };
        assert_eq!(
            text(standing(0, 0), 3),
            "no incident, 3 events/s, none lost (Ctrl-C ends)"
        );
        let text = text(standing(2, 9), 0);
        assert!(text.starts_with("2 incidents open") && text.contains("9 LOST"));
    }

    #[test]
    fn a_rate_is_of_the_last_second() {
        let mut rate = Rate::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(rate.step(at(0), 100), 0);
        assert_eq!(rate.step(at(500), 200), 0);
        assert_eq!(rate.step(at(2_000), 500), 200);
        assert_eq!(rate.step(at(3_000), 500), 0);
    }
}
