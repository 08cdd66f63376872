//! How text looks: colours, durations, moments, short IDs.

use std::fmt::Display;

use super::wrap;
use event::{
    PodRef, Task,
    clock::Timestamp,
    finding::Severity,
    wording::{escape::Printable, plural as words},
};

/// What a piece of text is, and thereby its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Critical,
    Warning,
    Info,
    /// Over, in order.
    Good,
    /// The line to read first.
    Title,
    Quiet,
    Plain,
}

impl Style {
    /// The SGR parameters (ECMA-48) of the style.
    fn sgr(self) -> Option<&'static str> {
        match self {
            Self::Critical => Some("1;31"),
            // Yellow cannot be read on white.
            Self::Warning => Some("1;35"),
            Self::Info => Some("36"),
            Self::Good => Some("32"),
            Self::Title => Some("1"),
            Self::Quiet => Some("2"),
            Self::Plain => None,
        }
    }
}

impl From<Severity> for Style {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Critical => Self::Critical,
            Severity::Warning => Self::Warning,
            Severity::Info => Self::Info,
        }
    }
}

/// Colours text, or leaves it; breaks it into lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Painter {
    /// The output is a terminal that shows colours.
    pub(super) colour: bool,
    /// Columns of a line.
    pub(super) width: usize,
}

impl Painter {
    /// `text` in `style`. Padding belongs into `text`: a terminal's codes have
    /// no width, but `format!` counts them.
    pub(super) fn paint(self, style: Style, text: impl Display) -> String {
        let text = text.to_string();
        match style.sgr() {
            Some(sgr) if self.colour && !text.trim().is_empty() => {
                format!("\x1b[{sgr}m{text}\x1b[0m")
            }
            _ => text,
        }
    }

    /// Text in lines, see [`wrap::lines`].
    pub(super) fn lines(self, text: &str, first: usize, rest: usize) -> Vec<String> {
        wrap::lines(text, self.width, first, rest)
    }

    /// Text in lines, see [`wrap::hanging`].
    pub(super) fn hanging(self, text: &str, first: usize, rest: usize) -> String {
        wrap::hanging(text, self.width, first, rest)
    }
}

/// A date, UTC.
pub(super) fn date(time: Timestamp) -> String {
    let text = time.to_string();
    text.get(..10).unwrap_or(&text).to_owned()
}

/// A moment, with the date where it is not `today`'s.
pub(super) fn moment(time: Timestamp, today: Timestamp) -> String {
    match date(time) {
        day if day == date(today) => time.time_of_day(),
        day => format!("{day} {}", time.time_of_day()),
    }
}

/// A sandbox or container ID as crictl(1) shortens it.
pub(super) fn short_id(id: &str) -> String {
    Printable(id.chars().take(13).collect::<String>()).to_string()
}

/// `comm[pid]`, with the thread where it is not the first.
pub(super) fn task(comm: &str, pid: u32, tid: u32) -> String {
    match tid == pid {
        true => format!("{}[{pid}]", Printable(comm)),
        false => format!("{}[{pid}/{tid}]", Printable(comm)),
    }
}

/// An event's task: who, and in which pod.
pub(super) fn event_task(of: &Task) -> String {
    task(&of.comm, of.pid, of.tid)
}

/// A pod by name, with its UID.
pub(super) fn pod(pod: &PodRef) -> String {
    let label = Printable(pod.label()).to_string();
    match (&pod.name, &pod.uid) {
        (Some(_), Some(uid)) => format!("{label}  uid {}", Printable(uid)),
        _ => label,
    }
}

/// A pod by name alone.
pub(super) fn pod_name(pod: &PodRef) -> String {
    Printable(pod.label()).to_string()
}

/// A number with its noun: `1 task`, `2 tasks`.
pub(super) fn count(number: u64, noun: &str) -> String {
    format!("{} {}", grouped(number), words::after(number, noun))
}

/// A number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_204), "1,204");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }

    #[test]
    fn a_moment_of_another_day_has_its_date() {
        let time = |text| Timestamp::parse(text).unwrap();
        let today = time("2025-11-21T00:00:01Z");
        assert_eq!(
            moment(time("2025-11-21T05:53:10.5Z"), today),
            "05:53:10.500"
        );
        assert_eq!(
            moment(time("2025-11-20T23:59:59Z"), today),
            "2025-11-20 23:59:59.000"
        );
    }

    #[test]
    fn there_is_no_colour_unless_asked_for() {
        let width = 110;
        let paint = |colour| Painter { colour, width }.paint(Style::Critical, "x");
        assert_eq!(paint(false), "x");
        assert_eq!(paint(true), "\x1b[1;31mx\x1b[0m");
    }
}
