//! A record, taken apart: envelope by envelope, down to the message that
//! somebody meant.
//!
//! The outermost envelope says host and writer, the innermost what, how bad
//! and, as a rule, when more precisely. Any may stand in any other.

use std::borrow::Cow;

use super::{
    super::entry::Level,
    begin::{self, Form},
    blocks, clean, header, pairs, quote,
    stamp::{self, Stamp},
};

/// Envelopes in each other; more than four have not been seen.
const DEEPEST: usize = 8;

/// What stands beside a message.
pub(super) type Fields<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// What a record says.
#[derive(Debug, Default)]
pub(super) struct Parsed<'a> {
    /// Its times, the outermost first.
    pub(super) stamps: Vec<Stamp>,
    pub(super) host: Option<&'a str>,
    pub(super) ident: Option<&'a str>,
    pub(super) pid: Option<u32>,
    /// The innermost level of a writer.
    pub(super) level: Option<Level>,
    pub(super) passed_on: Option<Level>,
    pub(super) message: Cow<'a, str>,
    /// All fields, the outermost first.
    pub(super) fields: Fields<'a>,
    pub(super) depth: usize,
}

/// What is left after an envelope.
pub(super) enum Inside<'a> {
    /// Part of the text.
    Text(&'a str),
    /// A text that had to be unquoted.
    Unquoted(String),
}

impl<'a> From<Cow<'a, str>> for Inside<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        match text {
            Cow::Borrowed(text) => Self::Text(text),
            Cow::Owned(text) => Self::Unquoted(text),
        }
    }
}

impl<'a> Parsed<'a> {
    /// Takes all envelopes off a text.
    pub(super) fn peel(&mut self, text: &'a str) {
        let mut text = text.trim_end();
        while self.depth < DEEPEST {
            // The kernel indents the frames of a stack.
            let is_frame = || self.ident == Some("kernel");
            if self.depth > 0 && blocks::is_inside(text.as_bytes()) && !is_frame() {
                return;
            }
            match self.envelope(text) {
                None => break,
                Some(inside) => {
                    self.depth += 1;
                    match inside {
                        Inside::Text(inner) => text = inner.trim_end(),
                        Inside::Unquoted(inner) => {
                            self.owned(&inner);
                            return;
                        }
                    }
                }
            }
        }
        self.message = Cow::Borrowed(text);
    }

    /// The same of a text that does not live as long.
    fn owned(&mut self, text: &str) {
        let mut inner = Parsed {
            depth: self.depth,
            ..Parsed::default()
        };
        let cleaned = clean::cleaned(text);
        inner.peel(cleaned.as_deref().unwrap_or(text));
        self.depth = inner.depth;
        self.stamps.append(&mut inner.stamps);
        self.pid = self.pid.or(inner.pid);
        self.level = inner.level.or(self.level);
        self.passed_on = inner.passed_on.or(self.passed_on);
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let fields = inner.fields.into_iter();
        self.fields
            .extend(fields.map(|(key, value)| (owned(key), owned(value))));
        self.message = owned(inner.message);
    }

    /// Takes one envelope off; `None` if there is none.
    fn envelope(&mut self, text: &'a str) -> Option<Inside<'a>> {
        let Some(form) = begin::begins(text.as_bytes()) else {
            return self.remainder(text);
        };
        let stamped = |stamp: Option<(Stamp, &'a str)>| stamp;
        Some(match form {
            Form::Short => {
                let rest = self.stamped(stamped(stamp::short(text)))?;
                Inside::Text(self.syslog(rest, true))
            }
            Form::Full => {
                let rest = self.stamped(stamp::full(text))?;
                Inside::Text(self.syslog(rest, true))
            }
            Form::Unix => {
                let rest = self.stamped(stamp::unix(text))?;
                Inside::Text(self.syslog(rest, true))
            }
            Form::Local => {
                let (stamp, rest) = stamp::local(text)?;
                self.stamps.extend(stamp);
                Inside::Text(self.syslog(rest, true))
            }
            Form::Bracketed => self.console(text)?,
            Form::Iso | Form::Dated | Form::Cri | Form::CriPartial => {
                let comma = text.get(..20).is_some_and(|time| time.ends_with(','));
                let rest = self.stamped(stamp::iso(text))?;
                self.dated(rest, form, comma)?
            }
            Form::Go => Inside::Text(self.stamped(stamp::slashes(text))?.trim_start()),
            Form::Priority => {
                let (number, rest) = text.get(1..)?.split_once('>')?;
                self.passed_on = Some(header::level_of(number.parse::<u64>().ok()? % 8));
                Inside::Text(match rest.strip_prefix("1 ") {
                    Some(rest) => self.rfc5424(rest)?,
                    None => rest,
                })
            }
            Form::Dmesg => Inside::Text(self.kernel(text)?),
            Form::Klog => self.klog(text)?,
            Form::Logfmt | Form::Level => self.logfmt(text)?,
            Form::Json | Form::Docker | Form::JournalJson => self.object(text)?,
            Form::Export => return None,
        })
    }

    /// Envelopes that only stand inside others.
    fn remainder(&mut self, text: &'a str) -> Option<Inside<'a>> {
        if self.depth == 0 {
            return None;
        }
        // slog and zap print the level first.
        if text.starts_with("msg=") {
            return self.logfmt(text);
        }
        None
    }

    pub(super) fn stamped(&mut self, found: Option<(Stamp, &'a str)>) -> Option<&'a str> {
        let (stamp, rest) = found?;
        self.stamps.push(stamp);
        Some(rest)
    }

    /// `E1105 10:11:12.123456    1234 file.go:123] message`, and klog's
    /// structured form: `"message" key="value"`.
    fn klog(&mut self, text: &'a str) -> Option<Inside<'a>> {
        let length = begin::klog_header(text.as_bytes())?;
        let rest = self.stamped(stamp::klog(text.get(length..)?))?;
        let (header, message) = rest.split_once(']')?;
        let (thread, place) = header.trim().split_once(' ')?;
        self.level = Some(match text.as_bytes().first()? {
            b'I' => Level::Info,
            b'W' => Level::Warning,
            _ => Level::Error,
        });
        self.pid = self.pid.or(thread.parse().ok());
        self.fields.push(("caller".into(), place.trim().into()));
        let message = message.strip_prefix(' ').unwrap_or(message);
        let Some(structured) = message.strip_prefix('"') else {
            return Some(Inside::Text(message));
        };
        let (inner, after) = quote::quoted(structured);
        let before = self.fields.len();
        let left = pairs::take(after, &mut self.fields);
        if left.is_empty() {
            return Some(inner.into());
        }
        // An ordinary message that begins with a quote.
        self.fields.truncate(before);
        Some(Inside::Text(message))
    }

    /// `time="..." level=info msg="..." key=value`
    fn logfmt(&mut self, text: &'a str) -> Option<Inside<'a>> {
        let mut fields = Vec::new();
        let left = pairs::take(text, &mut fields);
        let mut message = None;
        for (key, value) in fields {
            match &*key {
                "time" | "ts" | "t" => match stamp::any(&value) {
                    Some(stamp) => self.stamps.push(stamp),
                    None => self.fields.push((key, value)),
                },
                "level" | "lvl" => match header::level(&value) {
                    Some(level) => self.level = Some(level),
                    None => self.fields.push((key, value)),
                },
                "msg" if message.is_none() => message = Some(value),
                _ => self.fields.push((key, value)),
            }
        }
        match message {
            Some(message) => Some(message.into()),
            // Something else that begins like it.
            None if !left.is_empty() => Some(Inside::Text(left)),
            None => Some(Inside::Text("")),
        }
    }
}
