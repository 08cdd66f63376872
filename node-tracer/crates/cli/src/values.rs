//! What is typed behind an option, and what it stands for.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

/// `5s`, `500ms`, `2m`; a number without a unit is refused, as it would be
/// read as seconds by one and as milliseconds by the other.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration.is_zero() => Err(String::from("it must be longer than zero")),
        Ok(duration) if duration > MAX_DURATION => Err(String::from("at most one year")),
        Ok(duration) => Ok(duration),
        Err(_) if text.parse::<f64>().is_ok() => Err(format!(
            "it has no unit; write it like {text}s, 500ms or 2m"
        )),
        Err(_) => Err(String::from(
            "it is no duration; write it like 5s, 500ms or 2m",
        )),
    }
}

/// `9464`, `:9464`, `127.0.0.1:9464`, `[::]:9464`.
pub(super) fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    text.parse().map_err(|_| {
        String::from("write it like 9464 (this machine only), 0.0.0.0:9464 or [::]:9464")
    })
}

/// Less would hold little more than the start.
const LEAST_SIZE: u64 = 1 << 20;

/// `512M`, `1G`: bytes, by powers of 1,024.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let wrong = || String::from("write it like 64M or 1G, at least 1M");
    let (number, shift) = match text.split_at_checked(text.len().saturating_sub(1)) {
        Some((number, "M")) => (number, 20),
        Some((number, "G")) => (number, 30),
        _ => return Err(wrong()),
    };
    let plain = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse::<u64>().ok().filter(|_| plain);
    let size = number.and_then(|number| number.checked_mul(1 << shift));
    size.filter(|size| *size >= LEAST_SIZE).ok_or_else(wrong)
}

/// `+08:00`, `-0330`, `+8`, `Z`: seconds east of UTC.
pub(super) fn offset(text: &str) -> Result<i32, String> {
    let wrong = || String::from("write it like +08:00, -0330 or Z");
    if matches!(text, "Z" | "z" | "UTC") {
        return Ok(0);
    }
    let (sign, digits) = match text.split_at_checked(1) {
        Some(("+", digits)) => (1, digits),
        Some(("-", digits)) => (-1, digits),
        _ => return Err(wrong()),
    };
    let (hours, minutes) = match (digits.split_once(':'), digits.len()) {
        (Some(parts), _) => parts,
        (None, 4) => digits.split_at(2),
        (None, _) => (digits, "0"),
    };
    let number = |text: &str, max: i32| {
        let plain = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        let number = text.parse::<i32>().ok().filter(|_| plain);
        number.filter(|number| *number <= max)
    };
    let (hours, minutes) = number(hours, 14)
        .zip(number(minutes, 59))
        .ok_or_else(wrong)?;
    Ok(sign * (hours * 3_600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_this_machines_own_unless_told_otherwise() {
        let of = |text| metrics_address(text).map(|address| address.to_string());
        assert_eq!(of("9464").unwrap(), "127.0.0.1:9464");
        assert_eq!(of(":9464").unwrap(), "127.0.0.1:9464");
        assert_eq!(of("0.0.0.0:9464").unwrap(), "0.0.0.0:9464");
        assert_eq!(of("[::1]:9464").unwrap(), "[::1]:9464");
        for wrong in ["", "localhost", "70000", "10.0.0.1", "::1:9464:x"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_size_has_a_unit_and_is_not_too_small() {
        assert_eq!(size("1M"), Ok(1 << 20));
        assert_eq!(size("2G"), Ok(2 << 30));
        for wrong in [
            "",
            "M",
            "0M",
            "1",
            "1K",
            "+1M",
            "1 M",
            "1é",
            "99999999999999G",
        ] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_offset_is_hours_and_minutes_east_of_utc() {
        assert_eq!(offset("+08:00"), Ok(8 * 3_600));
        assert_eq!(offset("-0330"), Ok(-(3 * 3_600 + 30 * 60)));
        assert_eq!(offset("+8"), Ok(8 * 3_600));
        assert_eq!(offset("Z"), Ok(0));
        for wrong in [
            "", "8", "08:00", "+", "+15", "+08:60", "+8:0:0", "+-8", "CST",
        ] {
            assert!(offset(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_need_a_unit_and_a_length() {
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(duration("5").is_err());
        assert!(duration("0s").is_err());
        assert!(duration("2000000years").is_err());
        assert!(duration("-3s").is_err());
    }
}
