//! Points in time as Go programs write them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use event::clock::Timestamp;

/// Nanoseconds since 1970; `None` for what is before, and for none at all.
pub(super) fn unix_nanos(nanos: i64) -> Option<Timestamp> {
    let since = Duration::from_nanos(u64::try_from(nanos).ok().filter(|nanos| *nanos > 0)?);
    Some(Timestamp::from(UNIX_EPOCH + since))
}

/// `time.RFC3339Nano`, as JSON has it, or `time.Time.String`:
/// `2026-07-01 12:00:00.5 +0000 UTC m=+0.1`. Go's zero time is none.
pub(super) fn parse(text: &str) -> Option<Timestamp> {
    let mut words = text.split(' ');
    let first = words.next()?;
    let (date, rest) = match first.split_once('T') {
        Some((date, rest)) => (date, rest.to_owned()),
        None => (first, format!("{}{}", words.next()?, words.next()?)),
    };
    let zone = rest.find(['Z', '+', '-'])?;
    let (clock, zone) = rest.split_at_checked(zone)?;
    let time = humantime::parse_rfc3339(&format!("{date}T{clock}Z")).ok()?;
    let time = match zone.strip_prefix('Z') {
        Some(rest) => rest.is_empty().then_some(time)?,
        None => {
            let ahead = zone.starts_with('+');
            let digits: String = zone.get(1..)?.split(':').collect();
            let number = |at: std::ops::Range<usize>| digits.get(at)?.parse::<u64>().ok();
            if digits.len() != 4 || !digits.bytes().all(|c| c.is_ascii_digit()) {
                return None;
            }
            let offset = Duration::from_secs(number(0..2)? * 3_600 + number(2..4)? * 60);
            if ahead {
                time.checked_sub(offset)?
            } else {
                time.checked_add(offset)?
            }
        }
    };
    (time > SystemTime::UNIX_EPOCH).then(|| Timestamp::from(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_writes_times_in_two_ways() {
        for text in [
            "2026-07-01T12:00:00.5Z",
            "2026-07-01T20:00:00.5+08:00",
            "2026-07-01T06:30:00.5-05:30",
            "2026-07-01 12:00:00.5 +0000 UTC",
            "2026-07-01 20:00:00.500000000 +0800 CST m=+12.25",
        ] {
            let time = parse(text).map(|time| time.to_string());
            assert_eq!(
                time.as_deref(),
                Some("2026-07-01T12:00:00.500000Z"),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            " ",
            "0001-01-01T00:00:00Z",
            "2026-07-01",
            "2026-07-01 12:00:00",
            "2026-07-01T12:00:00+0",
            "2026-07-01T12:00:00+ü8:00",
            "2026-07-01T12:00:00+99:99:99",
            "2026-13-01T12:00:00Z",
            "2026-07-01T12:00:00Zulu",
            "üüüü-07-01T12:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(unix_nanos(0), None);
        assert_eq!(unix_nanos(-1), None);
        let time = unix_nanos(1_500_000_000).map(|time| time.to_string());
        assert_eq!(time.as_deref(), Some("1970-01-01T00:00:01.500000Z"));
    }
}
