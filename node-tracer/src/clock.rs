//! Points in time: RFC 3339 in UTC outside, nanoseconds since 1970 inside.
//!
//! Inside, time is [`steady`]: a wall clock that is set changes no duration and
//! no order. Kernel records carry `CLOCK_MONOTONIC`; [`KernelClock`] converts
//! them.

pub(crate) mod steady;

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time, UTC: steady inside, the wall clock's in any text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Timestamp(i64);

const SECOND: i64 = 1_000_000_000;

impl Timestamp {
    /// 1970: of what has no time.
    pub(crate) const EPOCH: Self = Self(0);

    /// The present.
    pub(crate) fn now() -> Self {
        Self(read(libc::CLOCK_MONOTONIC).saturating_add(steady::anchor()))
    }

    /// From nanoseconds since 1970.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Seconds since 1970.
    pub(crate) fn seconds(self) -> f64 {
        self.0.saturating_add(steady::shift()) as f64 / SECOND as f64
    }

    /// How long after `earlier` this is; zero if it is before.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// This much later.
    pub(crate) fn plus(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)),
        )
    }

    /// This much earlier; later, if it is negative. Milliseconds.
    pub(crate) fn minus_ms(self, by: i64) -> Self {
        Self(self.0.saturating_sub(by.saturating_mul(SECOND / 1_000)))
    }

    /// This much earlier.
    pub(crate) fn minus(self, by: Duration) -> Self {
        let nanos = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(nanos))
    }

    /// From seconds since 1970 and nanoseconds, as the system has them.
    pub(crate) fn from_parts(seconds: i64, nanos: i64) -> Self {
        let shown = seconds.saturating_mul(SECOND).saturating_add(nanos);
        Self(shown.saturating_sub(steady::shift()))
    }

    /// Seconds since 1970 and nanoseconds, as the system takes them.
    pub(crate) fn parts(self) -> (i64, i64) {
        let shown = self.0.saturating_add(steady::shift());
        (shown.div_euclid(SECOND), shown.rem_euclid(SECOND))
    }

    /// Reads RFC 3339; `None` if it is not.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let time = humantime::parse_rfc3339_weak(text).ok()?;
        Some(time.into())
    }

    /// The time of day with milliseconds, UTC: for people.
    pub(crate) fn time_of_day(self) -> String {
        let text = self.to_string();
        text.get(11..23).unwrap_or(&text).to_owned()
    }

    /// For the file system.
    pub(crate) fn system_time(self) -> SystemTime {
        let shown = self.0.saturating_add(steady::shift());
        let nanos = Duration::from_nanos(shown.unsigned_abs());
        if shown >= 0 {
            UNIX_EPOCH + nanos
        } else {
            UNIX_EPOCH - nanos
        }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let nanos = |d: Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
        let shown = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => nanos(after),
            Err(before) => -nanos(before.duration()),
        };
        Self(shown.saturating_sub(steady::shift()))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_micros(self.system_time().max(UNIX_EPOCH)).fmt(f)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // All nine digits, so that a recording replays to the same moments.
        let time = humantime::format_rfc3339_nanos(self.system_time().max(UNIX_EPOCH));
        serializer.collect_str(&time)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| de::Error::custom(format_args!("{text:?} is not an RFC 3339 time")))
    }
}

fn read(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec; the clocks asked for here always exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * SECOND + time.tv_nsec
}

/// The kernel's monotonic clock, ns: the one that its records carry.
pub(crate) fn monotonic_now() -> u64 {
    u64::try_from(read(libc::CLOCK_MONOTONIC)).unwrap_or(0)
}

/// How long the node has been up, suspended or not (`CLOCK_BOOTTIME`): no step
/// of the wall clock changes it.
pub(crate) fn uptime() -> Duration {
    Duration::from_nanos(u64::try_from(read(libc::CLOCK_BOOTTIME)).unwrap_or(0))
}

/// Turns the kernel's monotonic clock into [`Timestamp`]s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelClock {
    /// Steady time less monotonic, ns.
    monotonic_offset: i64,
    /// Steady time less boottime, ns: a machine that is suspended changes it.
    boottime_offset: i64,
}

impl KernelClock {
    /// Measures the offsets now.
    pub(crate) fn now() -> Self {
        let anchor = steady::anchor();
        let suspended = steady::suspended();
        Self {
            monotonic_offset: anchor,
            boottime_offset: anchor - suspended,
        }
    }

    /// A kernel time stamp (`bpf_ktime_get_ns`) as a point in time.
    pub(crate) fn timestamp(self, monotonic_ns: u64) -> Timestamp {
        Timestamp(
            i64::try_from(monotonic_ns)
                .unwrap_or(i64::MAX)
                .saturating_add(self.monotonic_offset),
        )
    }

    /// A time of rtnetlink, in hundredths of a second since boot, as a point in
    /// time: to about a second, as the kernel's ticks begin a moment after its
    /// clock. The count has 32 bits, so that it begins anew every 497 days.
    pub(crate) fn of_jiffies(self, hundredths: u32) -> Timestamp {
        const NANOS: u64 = 10_000_000;
        let now = monotonic_now() / NANOS;
        let age = (now as u32).wrapping_sub(hundredths);
        // Of what was made while the clock was read.
        let age = if age > u32::MAX - 1_000 { 0 } else { age };
        self.timestamp(now.saturating_sub(u64::from(age)) * NANOS)
    }

    /// A task's start (`CLOCK_BOOTTIME` ns) as a point in time.
    pub(crate) fn since_boot(self, boottime_ns: u64) -> Timestamp {
        Timestamp(
            i64::try_from(boottime_ns)
                .unwrap_or(i64::MAX)
                .saturating_add(self.boottime_offset),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_survives_its_text() {
        let time = Timestamp::from_nanos(1_763_704_512_123_456_789);
        let json = serde_json::to_string(&time).unwrap();
        assert_eq!(json, "\"2025-11-21T05:55:12.123456789Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), time);
        assert_eq!(time.to_string(), "2025-11-21T05:55:12.123456Z");
        assert_eq!(time.time_of_day(), "05:55:12.123");
    }

    #[test]
    fn text_that_is_no_time_is_refused() {
        assert!(serde_json::from_str::<Timestamp>("\"yesterday\"").is_err());
    }

    #[test]
    fn kernel_time_and_the_wall_clock_agree() {
        let before = Timestamp::now();
        let kernel = KernelClock::now().timestamp(monotonic_now());
        let apart = kernel.since(before).max(before.since(kernel));
        assert!(apart < Duration::from_secs(1), "{apart:?}");
    }
}
