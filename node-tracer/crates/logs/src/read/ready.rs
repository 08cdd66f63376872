//! The record that is given out: it lives in the reader until the next one.

use std::borrow::Cow;

use super::{
    super::entry::{Entry, Level},
    begin::{self, Form},
    calendar::Calendar,
    clean, heads,
    journal::JournalEntry,
    peel::Parsed,
    stamp::{self, Stamp},
};
use event::clock::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Ready {
    /// What is to be taken apart.
    pub(super) text: String,
    /// It is no record and stays as it is.
    pub(super) plain: bool,
    /// The number of its first line.
    pub(super) line: u64,
    /// What envelopes that are no part of the text said.
    pub(super) stamps: Vec<Stamp>,
    pub(super) host: Option<String>,
    /// Its writer, by them.
    pub(super) ident: Option<String>,
    /// Its process, by them.
    pub(super) pid: Option<u32>,
    pub(super) level: Option<Level>,
    /// Journald says that a daemon of the node wrote it, or the kernel.
    pub(super) vouched: bool,
    /// How many there were.
    pub(super) envelopes: usize,
}

impl Ready {
    /// Makes room for the next, keeping the memory.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        // A long one is not kept for ever.
        self.text.shrink_to(64 << 10);
        self.plain = false;
        self.stamps.clear();
        self.host = None;
        self.ident = None;
        self.pid = None;
        self.level = None;
        self.vouched = false;
        self.envelopes = 0;
    }

    /// Takes text that may not be UTF-8.
    pub(super) fn set(&mut self, text: &[u8]) {
        self.clear();
        match std::str::from_utf8(text) {
            Ok(text) => self.text.push_str(text),
            Err(_) => self.text.push_str(&String::from_utf8_lossy(text)),
        }
        if let Some(cleaned) = clean::cleaned(&self.text) {
            self.text = cleaned;
        }
    }

    pub(super) fn parse(&self) -> Parsed<'_> {
        let mut parsed = Parsed {
            stamps: self.stamps.clone(),
            host: self.host.as_deref(),
            ident: self.ident.as_deref(),
            pid: self.pid,
            passed_on: self.level,
            depth: self.envelopes,
            ..Parsed::default()
        };
        parsed.peel(&self.text);
        parsed
    }

    /// The time of a record of a form.
    pub(super) fn time(&self, form: Form, calendar: &mut Calendar) -> Option<Timestamp> {
        if form == Form::JournalJson
            && let Some(entry) = JournalEntry::from_json(&self.text)
        {
            return calendar.time(&[entry.stamp()?]);
        }
        calendar.time(&self.parse().stamps)
    }

    /// Looks at a line that is not its turn yet, for what it says of others.
    pub(super) fn look_at(&mut self, line: &[u8], calendar: &mut Calendar) {
        let head = match begin::begins(line) {
            Some(_) => 0,
            None => heads::length(line),
        };
        let line = line.get(head..).unwrap_or_default();
        match begin::begins(line) {
            None => {
                // `-- Logs begin at Sun 2023-11-05 10:11:12 CST, end at ...`
                let begin = line
                    .strip_prefix(b"-- ")
                    .map(|_| String::from_utf8_lossy(line));
                let at = begin.as_ref().and_then(|line| line.split_once(" at "));
                if let Some((stamp, _)) = at.and_then(|(_, time)| stamp::full(time)) {
                    calendar.learn(&[stamp]);
                }
            }
            // These say all of their own times and nothing of others'.
            Some(Form::JournalJson | Form::Export) => {}
            Some(_) => {
                self.set(line);
                let parsed = self.parse();
                calendar.learn(&parsed.stamps);
                if let Some((uptime, at)) = clock_set(&parsed) {
                    calendar.started(uptime, at);
                }
            }
        }
    }

    /// As it is given out, and whether it could be understood.
    pub(super) fn entry(&self, calendar: &mut Calendar) -> (Entry<'_>, bool) {
        let mut entry = Entry {
            time: None,
            host: None,
            ident: None,
            pid: None,
            level: None,
            own_level: None,
            message: Cow::Borrowed(&self.text),
            fields: Vec::new(),
            line: self.line,
        };
        if self.plain {
            return (entry, true);
        }
        let parsed = self.parse();
        let understood = parsed.depth > 0;
        entry.time = calendar.time(&parsed.stamps);
        entry.host = parsed.host;
        entry.ident = parsed.ident;
        entry.pid = parsed.pid;
        entry.level = parsed.level.or(parsed.passed_on);
        entry.own_level = parsed.level;
        entry.message = parsed.message;
        entry.fields = parsed.fields;
        (entry, understood)
    }
}

/// Uptime and time, by the kernel's own word: it says what it reads from the
/// clock when it starts.
fn clock_set(parsed: &Parsed<'_>) -> Option<(i64, i64)> {
    let uptime = parsed.stamps.iter().find_map(|stamp| match stamp {
        Stamp::Uptime(nanos) => Some(*nanos),
        _ => None,
    })?;
    let (_, set) = parsed.message.split_once("setting system clock to ")?;
    let (_, seconds) = set.split_once('(')?;
    let seconds: i64 = seconds.split_once(')')?.0.parse().ok()?;
    Some((uptime, seconds.checked_mul(stamp::SECOND)?))
}
