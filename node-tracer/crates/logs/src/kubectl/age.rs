//! Ages as kubectl prints them: `5s`, `3m12s`, `16h`, `7d18h`, `2y30d`.

use std::time::Duration;

/// No age is longer, seconds: fifty years ago there was no Kubernetes.
const MOST: u64 = 50 * 365 * 86_400;

/// An age; `None` if it is none.
pub(super) fn read(text: &str) -> Option<Duration> {
    let mut total = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        let unit = rest.get(digits..)?.chars().next()?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'y' => 365 * 86_400,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(seconds)?)?;
        rest = rest.get(digits + 1..)?;
    }
    (!text.is_empty() && total <= MOST).then(|| Duration::from_secs(total))
}

/// Whether it stands where an age does, although none is known.
pub(super) fn is_age(text: &str) -> bool {
    matches!(text, "<unknown>" | "<invalid>") || read(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read() {
        for (text, seconds) in [
            ("5s", 5),
            ("3m12s", 192),
            ("16h", 57_600),
            ("7d18h", 669_600),
            ("2y30d", 65_664_000),
        ] {
            assert_eq!(read(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "s",
            "5",
            "5x",
            "m5",
            "-5s",
            "99999999999999999999s",
            "88888888882m",
            "5s!",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert!(is_age("<unknown>") && !is_age("kubelet"));
    }
}
