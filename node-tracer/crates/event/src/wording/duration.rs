//! Lengths of time.

use std::time::Duration;

/// A length of time, in the two units that matter.
pub fn length(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        // 59.95 s and up would be rounded to 60.0 s.
        _ if time < Duration::from_millis(1000) => format!("{} ms", time.as_millis()),
        _ if time < Duration::from_millis(59_950) => format!("{:.1} s", time.as_secs_f64()),
        0..3600 => format!(
            "{} min {:02} s",
            minutes.max(1),
            if minutes == 0 { 0 } else { seconds % 60 }
        ),
        3600..86_400 => format!("{hours} h {:02} min", minutes % 60),
        _ => format!("{days} d {:02} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_said_in_the_units_that_matter() {
        let said = |ms| length(Duration::from_millis(ms));
        assert_eq!(said(35), "35 ms");
        assert_eq!(said(5_040), "5.0 s");
        assert_eq!(said(59_949), "59.9 s");
        assert_eq!(said(59_950), "1 min 00 s");
        assert_eq!(said(60_000), "1 min 00 s");
        assert_eq!(said(292_000), "4 min 52 s");
        assert_eq!(said(7_500_000), "2 h 05 min");
        assert_eq!(said(273_600_000), "3 d 04 h");
    }
}
