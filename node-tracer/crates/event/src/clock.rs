//! Points in time: RFC 3339 in UTC outside, nanoseconds since 1970 inside.
//!
//! Inside, time is [`steady`]: a wall clock that is set changes no duration and
//! no order.

pub mod steady;

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time, UTC: steady inside, the wall clock's in any text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(i64);

const SECOND: i64 = 1_000_000_000;

impl Timestamp {
    /// 1970: of what has no time.
    pub const EPOCH: Self = Self(0);

    /// From steady nanoseconds since 1970.
    pub fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Seconds since 1970.
    pub fn seconds(self) -> f64 {
        self.0.saturating_add(steady::shift()) as f64 / SECOND as f64
    }

    /// How long after `earlier` this is; zero if it is before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    pub fn plus(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)),
        )
    }

    /// This much earlier; later, if it is negative. Milliseconds.
    pub fn minus_ms(self, by: i64) -> Self {
        Self(self.0.saturating_sub(by.saturating_mul(SECOND / 1_000)))
    }

    pub fn minus(self, by: Duration) -> Self {
        let nanos = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(nanos))
    }

    /// From seconds since 1970 and nanoseconds, as the system has them.
    pub fn from_parts(seconds: i64, nanos: i64) -> Self {
        let shown = seconds.saturating_mul(SECOND).saturating_add(nanos);
        Self(shown.saturating_sub(steady::shift()))
    }

    /// Seconds since 1970 and nanoseconds, as the system takes them.
    pub fn parts(self) -> (i64, i64) {
        let shown = self.0.saturating_add(steady::shift());
        (shown.div_euclid(SECOND), shown.rem_euclid(SECOND))
    }

    /// Reads RFC 3339; `None` if it is not.
    pub fn parse(text: &str) -> Option<Self> {
        let time = humantime::parse_rfc3339_weak(text).ok()?;
        Some(time.into())
    }

    /// The time of day with milliseconds, UTC: for people.
    pub fn time_of_day(self) -> String {
        let text = self.to_string();
        text.get(11..23).unwrap_or(&text).to_owned()
    }

    /// For the file system.
    pub fn system_time(self) -> SystemTime {
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
}
