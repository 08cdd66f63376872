//! The time axis: where a moment is, in percent of the width. Long times in
//! which nothing happened are shortened, so that what happened can be seen.

use std::time::{Duration, SystemTime};

use event::clock::Timestamp;
use event::order::Order as _;

/// The shortest time that is shortened.
const MIN_CUT: Duration = Duration::from_secs(30);
/// How often it is at least as long as all that is left.
const RATIO: u32 = 3;
/// What is too short to be drawn apart: it does not count as left.
const ONE_MOMENT: Duration = Duration::from_millis(500);
/// Times that are shortened.
const MAX_CUTS: usize = 6;
/// Width of a shortened time, percent.
const CUT_WIDTH: f64 = 6.0;
/// The least width of what lies between two, percent.
const MIN_WIDTH: f64 = 4.0;
/// The least distance of two ticks, percent.
const TICK_DISTANCE: f64 = 8.5;
/// Distances of ticks, ms.
const STEPS: [u64; 34] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    15_000,
    30_000,
    60_000,
    120_000,
    300_000,
    600_000,
    900_000,
    1_800_000,
    3_600_000,
    7_200_000,
    10_800_000,
    21_600_000,
    43_200_000,
    86_400_000,
    172_800_000,
    345_600_000,
    604_800_000,
    1_209_600_000,
    2_419_200_000,
    7_257_600_000,
    31_536_000_000,
];
const DAY: u64 = 86_400_000;

#[derive(Clone, Debug)]
pub struct Axis {
    parts: Vec<Part>,
}

/// A part with one scale.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    from: Timestamp,
    to: Timestamp,
    /// Its left end, percent.
    left: f64,
    /// Percent.
    width: f64,
    cut: bool,
}

/// A mark on the axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Percent.
    pub x: f64,
    /// The time of day.
    pub label: String,
    /// The date, where it is another one than before.
    pub date: Option<String>,
    /// It goes without a label where there is little room.
    pub minor: bool,
}

/// A time that is shortened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// Its middle, percent.
    pub x: f64,
    /// How long it really is.
    pub length: Duration,
}

impl Axis {
    /// For these moments, in any order.
    pub fn new(moments: impl IntoIterator<Item = Timestamp>) -> Self {
        let mut moments: Vec<Timestamp> = moments.into_iter().collect();
        moments.sort_unstable();
        moments.dedup();
        let first = moments.first().copied().unwrap_or_else(epoch);
        let last = moments.last().copied().unwrap_or(first);
        if last.since(first) < Duration::from_secs(1) {
            // All of it is one moment, as in a scan.
            let one = Part {
                from: first,
                to: first.plus(Duration::from_secs(1)),
                left: 0.0,
                width: 100.0,
                cut: false,
            };
            return Self { parts: vec![one] };
        }
        let gaps: Vec<(Timestamp, Timestamp)> =
            moments.windows(2).map(|pair| (pair[0], pair[1])).collect();
        Self::of_gaps(first, last, &cuts(&gaps))
    }

    /// From the first moment to the last, with some times shortened.
    fn of_gaps(first: Timestamp, last: Timestamp, cuts: &[(Timestamp, Timestamp)]) -> Self {
        let cut: Duration = cuts.iter().map(|(from, to)| to.since(*from)).sum();
        let shown = last.since(first).saturating_sub(cut);
        let mut parts = Vec::new();
        let mut at = first;
        for (from, to) in cuts {
            // What is at its ends is not drawn into it.
            let margin = (shown / 16).min(to.since(*from) / 4);
            let (from, to) = (from.plus(margin), to.minus(margin));
            parts.push((at, from, false));
            parts.push((from, to, true));
            at = to;
        }
        parts.push((at, last, false));
        let length = |(from, to, _): &(Timestamp, Timestamp, bool)| to.since(*from).as_secs_f64();
        let scaled: f64 = parts.iter().filter(|part| !part.2).map(length).sum();
        let count = parts.iter().filter(|part| !part.2).count() as f64;
        let free = 100.0 - CUT_WIDTH * cuts.len() as f64 - MIN_WIDTH * count;
        let mut left = 0.0;
        let parts = parts.into_iter().map(|part| {
            let width = match part.2 {
                true => CUT_WIDTH,
                false => MIN_WIDTH + free * length(&part) / scaled.max(1e-9),
            };
            let (from, to, cut) = part;
            let part = Part {
                from,
                to,
                left,
                width,
                cut,
            };
            left += width;
            part
        });
        Self {
            parts: parts.collect(),
        }
    }

    /// Where a moment is, percent; what is before or after the axis is at its
    /// end.
    pub fn x(&self, at: Timestamp) -> f64 {
        let part = self.parts.iter().find(|part| at <= part.to);
        let Some(part) = part else { return 100.0 };
        let length = part.to.since(part.from).as_secs_f64().max(1e-9);
        part.left + part.width * (at.since(part.from).as_secs_f64() / length).min(1.0)
    }

    pub fn cuts(&self) -> Vec<Cut> {
        let cuts = self.parts.iter().filter(|part| part.cut);
        let cut = |part: &Part| Cut {
            x: part.left + part.width / 2.0,
            length: part.to.since(part.from),
        };
        cuts.map(cut).collect()
    }

    /// Where the axis is labelled.
    pub fn ticks(&self) -> Vec<Tick> {
        let mut ticks: Vec<Tick> = Vec::new();
        let mut date = String::new();
        for part in self.parts.iter().filter(|part| !part.cut) {
            for (at, step) in part.ticks() {
                let x = self.x(at);
                let room = ticks.last().is_none_or(|last| x - last.x >= TICK_DISTANCE);
                if !room {
                    continue;
                }
                let text = at.to_string();
                let day = text.get(..10).unwrap_or_default().to_owned();
                ticks.push(Tick {
                    x,
                    label: label(&text, step),
                    date: (day != date).then(|| day.clone()),
                    minor: ticks.len() % 2 == 1,
                });
                date = day;
            }
        }
        ticks
    }
}

impl Part {
    /// Its ticks, and how far they are apart, ms.
    fn ticks(&self) -> Vec<(Timestamp, u64)> {
        let length = self.to.since(self.from).as_millis().max(1) as f64;
        let wide = |step: &&u64| **step as f64 / length * self.width >= TICK_DISTANCE;
        let step = STEPS.iter().find(wide).copied().unwrap_or(31_536_000_000);
        let begin = u64::try_from(self.from.since(epoch()).as_millis()).unwrap_or(0);
        let first = begin.div_ceil(step) * step;
        let ticks = (0..64).map(|number| first + number * step);
        let ticks = ticks.map(|ms| epoch().plus(Duration::from_millis(ms)));
        let ticks: Vec<_> = ticks
            .take_while(|at| *at <= self.to)
            .map(|at| (at, step))
            .collect();
        match ticks.is_empty() {
            // Even a part without a round time has one label: in it, a minute
            // is exact enough unless it is shorter.
            true => vec![(self.from, 1_000)],
            false => ticks,
        }
    }
}

/// The long times in which nothing happened: as many of the longest as make
/// the rest visible, in order.
fn cuts(gaps: &[(Timestamp, Timestamp)]) -> Vec<(Timestamp, Timestamp)> {
    let length = |gap: &(Timestamp, Timestamp)| gap.1.since(gap.0);
    let mut longest: Vec<_> = gaps.to_vec();
    longest.order_by_key(|gap| std::cmp::Reverse(length(gap)));
    let rest = |number: usize| -> Duration {
        let rest = longest.iter().skip(number).map(length);
        rest.filter(|length| *length >= ONE_MOMENT).sum()
    };
    let helps = |number: &usize| {
        let shortest = longest.get(number - 1).map(length).unwrap_or_default();
        let rest = rest(*number);
        shortest >= MIN_CUT && !rest.is_zero() && shortest >= rest * RATIO
    };
    let number = (1..=MAX_CUTS.min(longest.len())).rev().find(helps);
    longest.truncate(number.unwrap_or(0));
    longest.sort_unstable();
    longest
}

/// The part of a time that its neighbours do not share.
fn label(text: &str, step: u64) -> String {
    let (from, to) = match step {
        DAY.. => return String::from("00:00"),
        60_000.. => (11, 16),
        1_000.. => (11, 19),
        100.. => (11, 21),
        10.. => (11, 22),
        _ => (11, 23),
    };
    text.get(from..to).unwrap_or(text).to_owned()
}

fn epoch() -> Timestamp {
    Timestamp::from(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    /// Moments of one day, seconds after 08:53:30.
    fn axis(seconds: &[f64]) -> Axis {
        let begin = time("2026-11-21T08:53:30Z");
        let at = |seconds: &f64| begin.plus(Duration::from_secs_f64(*seconds));
        Axis::new(seconds.iter().map(at))
    }

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn an_incident_of_seconds_has_ticks_of_a_second() {
        let axis = axis(&[0.0, 1.5, 5.5, 9.0]);
        assert_eq!(axis.cuts(), []);
        let labels = labels(&axis);
        assert_eq!(labels[..3], ["08:53:30", "08:53:31", "08:53:32"]);
        assert_eq!(axis.ticks()[0].date.as_deref(), Some("2026-11-21"));
        assert!(axis.ticks()[1..].iter().all(|tick| tick.date.is_none()));
    }

    #[test]
    fn two_bursts_hours_apart_are_both_seen_and_the_time_between_is_said() {
        let axis = axis(&[0.0, 2.0, 5.0, 7_205.0, 7_206.0, 115_206.0, 115_209.0]);
        let cuts = axis.cuts();
        assert_eq!(cuts.len(), 2);
        let begin = time("2026-11-21T08:53:30Z");
        let at = |seconds: u64| axis.x(begin.plus(Duration::from_secs(seconds)));
        assert!(at(5) - at(0) > 15.0, "{axis:?}");
        assert!(at(7_206) > at(5) + CUT_WIDTH);
        assert_eq!(at(115_209), 100.0);
        let dates: Vec<_> = axis.ticks().into_iter().filter_map(|it| it.date).collect();
        assert_eq!(dates, ["2026-11-21", "2026-11-22"]);
    }

    #[test]
    fn what_is_spread_evenly_is_not_shortened() {
        let hours: Vec<f64> = (0..30).map(|n| f64::from(n) * 8_600.0).collect();
        let axis = axis(&hours);
        assert_eq!(axis.cuts(), []);
        assert!(axis.ticks().len() <= 12);
    }

    #[test]
    fn moments_keep_their_order_and_ticks_their_distance() {
        for seconds in [
            &[0.0, 0.02, 0.4][..],
            &[0.0, 30.0, 61.0, 400.0],
            &[0.0, 0.1, 3_600.0, 3_600.1, 90_000.0],
            &[
                0.0,
                1.0,
                40.0,
                41.0,
                90.0,
                91.0,
                2_000.0,
                2_003.0,
                86_400.0 * 400.0,
            ],
        ] {
            let axis = axis(seconds);
            let begin = time("2026-11-21T08:53:30Z");
            let xs = seconds
                .iter()
                .map(|it| axis.x(begin.plus(Duration::from_secs_f64(*it))));
            let xs: Vec<f64> = xs.collect();
            assert!(
                xs.is_sorted() && xs[0] >= 0.0 && xs[xs.len() - 1] <= 100.0,
                "{xs:?}"
            );
            let ticks = axis.ticks();
            assert!(!ticks.is_empty());
            let near = ticks.windows(2).any(|it| it[1].x - it[0].x < TICK_DISTANCE);
            assert!(!near, "{ticks:?}");
        }
    }

    #[test]
    fn one_moment_is_an_axis_too() {
        let axis = axis(&[0.0]);
        assert!(!axis.ticks().is_empty());
        assert_eq!(Axis::new([]).cuts(), []);
    }
}
