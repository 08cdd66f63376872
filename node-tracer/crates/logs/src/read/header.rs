//! What stands in front of messages: the envelopes one by one.

use std::borrow::Cow;

use super::{
    super::entry::Level,
    begin::Form,
    json::{self, Json},
    pairs,
    peel::{Inside, Parsed},
    stamp,
};

/// Writers that syslog lines name without a process.
const WRITERS: [&str; 8] = [
    "kernel",
    "kubelet",
    "dockerd",
    "docker",
    "containerd",
    "crio",
    "systemd",
    "cri-dockerd",
];

pub(super) fn level(name: &str) -> Option<Level> {
    Some(match name.to_ascii_lowercase().as_str() {
        "trace" | "debug" | "verbose" => Level::Debug,
        "info" | "notice" | "information" => Level::Info,
        "warn" | "warning" => Level::Warning,
        "error" | "err" | "fatal" | "panic" | "dpanic" | "crit" | "critical" | "alert"
        | "emerg" => Level::Error,
        _ => return None,
    })
}

/// A level by syslog's number.
pub(super) fn level_of(severity: u64) -> Level {
    match severity {
        0..=3 => Level::Error,
        4 => Level::Warning,
        5 | 6 => Level::Info,
        _ => Level::Debug,
    }
}

/// A level by klog's or etcd's letter.
fn level_by_letter(letter: &str) -> Option<Level> {
    Some(match letter {
        "D" | "T" => Level::Debug,
        "I" | "N" => Level::Info,
        "W" => Level::Warning,
        "E" | "C" | "F" => Level::Error,
        _ => return None,
    })
}

/// `kubelet[123]` taken apart. A unit is named without `.service`.
fn writer(word: &str) -> (&str, Option<u32>) {
    let (name, pid) = match word
        .strip_suffix(']')
        .and_then(|word| word.rsplit_once('['))
    {
        Some((name, pid)) => (name, pid.parse().ok()),
        None => (word, None),
    };
    (name.strip_suffix(".service").unwrap_or(name), pid)
}

impl<'a> Parsed<'a> {
    /// ` host ident[pid]: message`, behind a time. Without `certain` it may be
    /// something else that is dated.
    pub(super) fn syslog(&mut self, text: &'a str, certain: bool) -> &'a str {
        let text = text.strip_prefix(' ').unwrap_or(text);
        // Only the outermost envelope names a host.
        if self.host.is_some() {
            return text;
        }
        let Some((host, rest)) = text.split_once(' ') else {
            return text;
        };
        let name = |b: u8| b.is_ascii_alphanumeric() || b"._-:".contains(&b);
        if host.is_empty() || !host.bytes().all(name) || host.ends_with(':') {
            return text;
        }
        let end = rest
            .find([':', ' '])
            .map(|at| match rest.as_bytes().get(at) {
                Some(b':') => at,
                // A name may have spaces; then it has a process, too.
                _ => rest.find("]: ").map_or(rest.len(), |at| at + 1),
            });
        let ident = end.and_then(|end| rest.get(..end)).unwrap_or_default();
        let after = rest
            .get(ident.len()..)
            .and_then(|rest| rest.strip_prefix(':'));
        let (Some(after), 1..=96) = (after, ident.len()) else {
            // `host last message repeated 3 times`
            if certain {
                self.host = Some(host);
                return rest;
            }
            return text;
        };
        let (ident, pid) = writer(ident);
        if !certain && pid.is_none() && !WRITERS.contains(&ident) {
            return text;
        }
        self.host = Some(host);
        self.ident = self.ident.or(Some(ident));
        self.pid = self.pid.or(pid);
        after.strip_prefix(' ').unwrap_or(after)
    }

    /// What follows a date of which only that is clear.
    pub(super) fn dated(&mut self, rest: &'a str, form: Form, comma: bool) -> Option<Inside<'a>> {
        if matches!(form, Form::Cri | Form::CriPartial) {
            // ` stderr F message`
            let mut words = rest.get(1..)?.splitn(3, ' ');
            let (_stream, _tag) = (words.next()?, words.next());
            return Some(Inside::Text(words.next().unwrap_or_default()));
        }
        if let Some(columns) = rest.strip_prefix('\t') {
            return self.columns(columns);
        }
        let text = rest.strip_prefix(' ').unwrap_or(rest);
        if let Some(bracket) = text.strip_prefix('[') {
            return Some(Inside::Text(self.bracketed(text, bracket)));
        }
        // etcd's: ` I | message`
        if let Some((letter, message)) = text.split_once(" | ")
            && let Some(level) = level_by_letter(letter)
        {
            self.level = Some(level);
            return Some(Inside::Text(message));
        }
        if comma && form == Form::Iso {
            // `dmesg --time-format iso`
            self.ident = self.ident.or(Some("kernel"));
            return Some(Inside::Text(text));
        }
        if self.depth == 0 && form == Form::Iso {
            let inner = self.syslog(rest, false);
            if self.host.is_some() {
                return Some(Inside::Text(inner));
            }
        }
        // A level may stand alone.
        if let Some((word, message)) = text.split_once(' ')
            && let Some(level) = level(word.trim_end_matches(':'))
            && word.bytes().all(|b| b.is_ascii_uppercase() || b == b':')
        {
            self.level = Some(level);
            return Some(Inside::Text(message.trim_start()));
        }
        Some(Inside::Text(text))
    }

    /// Calico's ` [INFO][1234] file.go 123: message Key="value"`, multus'
    /// ` [error] message`.
    fn bracketed(&mut self, text: &'a str, bracket: &'a str) -> &'a str {
        let Some((name, after)) = bracket.split_once(']') else {
            return text;
        };
        let Some(level) = level(name) else {
            return text;
        };
        self.level = Some(level);
        let Some((pid, after)) = after
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
        else {
            return after.trim_start();
        };
        self.pid = self.pid.or(pid.parse().ok());
        let message = after.trim_start();
        // `cni-plugin/k8s.go 313: `
        let Some((place, message)) = message.split_once(": ") else {
            return message;
        };
        let Some((file, line)) = place.split_once(' ') else {
            return after.trim_start();
        };
        if !file.ends_with(".go") || !line.bytes().all(|b| b.is_ascii_digit()) {
            return after.trim_start();
        }
        self.fields.push(("caller".into(), place.into()));
        self.trailing(message)
    }

    /// `[2023-11-05T10:11:12.123Z]: message`, and logrus on a terminal:
    /// `ERRO[2023-11-05T10:11:12Z] message   key=value`, with seconds since its
    /// start instead of the time.
    pub(super) fn console(&mut self, text: &'a str) -> Option<Inside<'a>> {
        let (name, rest) = text.split_once('[')?;
        let (time, message) = rest.split_once(']')?;
        let stamp = stamp::iso(time).or_else(|| stamp::slashes(time));
        self.stamps.extend(stamp.map(|(stamp, _)| stamp));
        let message = message.strip_prefix(':').unwrap_or(message).trim_start();
        if name.is_empty() {
            return Some(Inside::Text(message));
        }
        self.level = match name {
            "ERRO" | "FATA" | "PANI" => Some(Level::Error),
            "WARN" => Some(Level::Warning),
            "INFO" => Some(Level::Info),
            _ => Some(Level::Debug),
        };
        Some(Inside::Text(self.trailing(message)))
    }

    /// A message without quotes in front of pairs.
    fn trailing(&mut self, text: &'a str) -> &'a str {
        let bytes = text.as_bytes();
        let name = |b: &&u8| b.is_ascii_alphanumeric() || b"_.-".contains(b);
        for sign in memchr::memchr_iter(b'=', bytes) {
            // Calico quotes values or prints Go's structs; plain words are
            // part of the message.
            let key = bytes.iter().take(sign).rev().take_while(name).count();
            let begin = sign - key;
            let space = begin.checked_sub(1);
            if key == 0
                || space.and_then(|at| bytes.get(at)) != Some(&b' ')
                || bytes.get(sign + 1) == Some(&b' ')
            {
                continue;
            }
            let before = self.fields.len();
            let pairs = text.get(begin..).unwrap_or_default();
            if pairs::take(pairs, &mut self.fields).is_empty() {
                return text.get(..begin - 1).unwrap_or(text);
            }
            self.fields.truncate(before);
            break;
        }
        text
    }

    /// zap's console form: columns with tabs between them, JSON in the last.
    fn columns(&mut self, text: &'a str) -> Option<Inside<'a>> {
        let mut message = None;
        for column in text.split('\t') {
            if let (None, Some(level)) = (&message, level(column)) {
                self.level = Some(level);
            } else if column.starts_with('{')
                && let Some(members) = json::object(column)
            {
                let shown = |(key, value): (_, Json<'a>)| (key, value.shown());
                self.fields.extend(members.into_iter().map(shown));
            } else if column.contains(".go:") && !column.contains(' ') {
                self.fields.push(("caller".into(), column.into()));
            } else {
                message = Some(column);
            }
        }
        Some(Inside::Text(message.unwrap_or_default()))
    }

    /// Of syslog's newer protocol, behind `<34>1 `: time, host, program,
    /// process, message ID, structured data, message.
    pub(super) fn rfc5424(&mut self, text: &'a str) -> Option<&'a str> {
        let rest = match text.strip_prefix('-') {
            Some(rest) => rest,
            None => self.stamped(stamp::iso(text))?,
        };
        let mut words = rest.strip_prefix(' ')?.splitn(5, ' ');
        let known = |word: &'a str| (word != "-").then_some(word);
        self.host = self.host.or(known(words.next()?));
        self.ident = self.ident.or(known(words.next()?));
        self.pid = self.pid.or(words.next()?.parse().ok());
        let _message_id = words.next()?;
        let data = words.next().unwrap_or_default();
        let message = match data.strip_prefix('-') {
            Some(message) => message,
            None => {
                // Elements follow each other without a space.
                let end = data.find("] ").map_or(data.len(), |at| at + 1);
                data.get(end..)?
            }
        };
        let message = message.strip_prefix(' ').unwrap_or(message);
        Some(message.strip_prefix('\u{feff}').unwrap_or(message))
    }

    /// `[   12.345678] message`, `[Sun Nov  5 10:11:12 2023] message`.
    pub(super) fn kernel(&mut self, text: &'a str) -> Option<&'a str> {
        let text = match text.starts_with('[') {
            true => text,
            false => {
                // `kern  :info  : [   12.345678] `
                self.level = level(text.get(7..13)?.trim());
                text.get(15..)?
            }
        };
        let rest = match self.stamped(stamp::uptime(text)) {
            Some(rest) => rest,
            None => {
                let inner = text.strip_prefix('[')?;
                let stamp = stamp::ctime(inner).or_else(|| stamp::full(inner));
                let rest = self.stamped(stamp)?;
                rest.get(rest.find(']')? + 1..)?
            }
        };
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        // `journalctl -o short-monotonic`: `host kernel: `, `host unit[1]: `
        if self.depth == 0 && self.host.is_none() {
            let inner = self.syslog(rest, false);
            if self.host.is_some() {
                return Some(inner);
            }
        }
        self.ident = self.ident.or(Some("kernel"));
        Some(rest)
    }

    /// JSON of any writer.
    pub(super) fn object(&mut self, text: &'a str) -> Option<Inside<'a>> {
        let members = json::object(text)?;
        let mut message: Option<Cow<'a, str>> = None;
        for (key, value) in members {
            match (&*key, value) {
                ("msg" | "message" | "MESSAGE" | "M" | "log", Json::Text(text))
                    if message.is_none() =>
                {
                    message = Some(text);
                }
                ("ts" | "time" | "timestamp" | "@timestamp" | "t", value) => {
                    let stamp = match &value {
                        Json::Text(text) => stamp::any(text),
                        value => value.number().and_then(stamp::epoch),
                    };
                    match stamp {
                        Some(stamp) => self.stamps.push(stamp),
                        None => self.fields.push((key, value.shown())),
                    }
                }
                ("level" | "lvl" | "severity" | "L", Json::Text(text)) => match level(&text) {
                    Some(level) => self.level = Some(level),
                    None => self.fields.push((key, text)),
                },
                ("stream", _) => {}
                (_, value) => self.fields.push((key, value.shown())),
            }
        }
        Some(message?.into())
    }
}
