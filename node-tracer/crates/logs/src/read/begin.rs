//! The first look at a line: whether a record begins here, and in which form.
//! It is taken at every line of a log, so it looks at a few bytes.

use super::heads;

/// The form of a record, by its outermost envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `Dec 12 20:21:27 host ident[1]: `
    Short,
    /// `2023-11-05T10:11:12+0000 host ident[1]: `, and whatever else begins
    /// with a date and a `T`.
    Iso,
    /// `Sun 2023-11-05 10:11:12 UTC host unit[1]: `
    Full,
    /// `1699179072.123456 host ident[1]: `
    Unix,
    /// `<30>...`
    Priority,
    /// `[   12.345678] `, `[Sun Nov  5 10:11:12 2023] `
    Dmesg,
    /// `E1105 10:11:12.123456    1234 file.go:1] `
    Klog,
    /// `time="..." level=info msg="..."`
    Logfmt,
    /// The same without a time in front.
    Level,
    /// `{"ts":...}`
    Json,
    /// `{"log":"...","stream":"stderr","time":"..."}`
    Docker,
    /// `2023-11-05T10:11:12.123456789Z stderr F `
    Cri,
    /// The same of a line that goes on in the next record.
    CriPartial,
    /// `2023-11-05 10:11:12.123 [INFO][1234] `, etcd's ` I | `
    Dated,
    /// `2023/11/05 10:11:12 `
    Go,
    /// `journalctl -o json`
    JournalJson,
    /// `journalctl -o export`
    Export,
    /// `Okt 05 10:11:12 host ident[1]: `, in any language
    Local,
    /// `[2023-11-05T10:11:12.123Z] `, `ERRO[2023-11-05T10:11:12Z] `, `FATA[0012] `
    Bracketed,
}

impl Form {
    /// All of them, in the order of their numbers.
    pub(super) const ALL: [Self; 19] = [
        Self::Short,
        Self::Iso,
        Self::Full,
        Self::Unix,
        Self::Priority,
        Self::Dmesg,
        Self::Klog,
        Self::Logfmt,
        Self::Level,
        Self::Json,
        Self::Docker,
        Self::Cri,
        Self::CriPartial,
        Self::Dated,
        Self::Go,
        Self::JournalJson,
        Self::Export,
        Self::Local,
        Self::Bracketed,
    ];

    /// Whether `host ident[pid]: ` may stand behind its time.
    pub(super) fn names_a_writer(self) -> bool {
        matches!(
            self,
            Self::Short
                | Self::Iso
                | Self::Full
                | Self::Unix
                | Self::Priority
                | Self::Dmesg
                | Self::Local
        )
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Short => "syslog or journalctl -o short",
            Self::Iso => "syslog or journalctl -o short-iso",
            Self::Full => "journalctl -o short-full",
            Self::Unix => "journalctl -o short-unix",
            Self::Priority => "syslog with priorities",
            Self::Dmesg => "dmesg",
            Self::Klog => "klog",
            Self::Logfmt | Self::Level => "logrus",
            Self::Json => "JSON",
            Self::Docker => "docker's json-file",
            Self::Cri | Self::CriPartial => "CRI container log",
            Self::Dated => "dated lines (Calico, etcd)",
            Self::Go => "Go's log package",
            Self::JournalJson => "journalctl -o json",
            Self::Export => "journalctl -o export",
            Self::Local => "journalctl -o short in another language",
            Self::Bracketed => "times in brackets",
        }
    }
}

/// Whether a record begins with this line. What a line of a wrapped record
/// begins with can look the same; that is for [`fold`](super::fold) to tell.
pub(super) fn begins(line: &[u8]) -> Option<Form> {
    let known = match line.first()? {
        b'A'..=b'Z' => letters(line),
        b'0'..=b'9' => digits(line),
        b'{' => object(line),
        b't' | b'l' => logfmt(line),
        b'[' if dmesg(line) => Some(Form::Dmesg),
        b'[' => bracketed(line).then_some(Form::Bracketed),
        b'<' => priority(line),
        b'_' => line.starts_with(b"__CURSOR=").then_some(Form::Export),
        b'k' | b'u' | b'd' | b's' if decoded(line) => Some(Form::Dmesg),
        _ => None,
    };
    known.or_else(|| local(line).then_some(Form::Local))
}

/// `[2023-11-05T10:11:12`, `[2023/11/05 10:11:12`, with a space for the `T`.
fn bracketed(line: &[u8]) -> bool {
    let inner = from(line, 1);
    let clock = looks_like(from(inner, 11), b"00:00:00");
    let date = looks_like(inner, b"0000-00-00") || looks_like(inner, b"0000/00/00");
    date && clock && matches!(inner.get(10), Some(b'T' | b' '))
}

/// `ERRO[2023-11-05T10:11:12Z]`, `FATA[0012]`: logrus on a terminal.
fn console(line: &[u8]) -> bool {
    let known: [&[u8]; 7] = [
        b"TRAC", b"DEBU", b"INFO", b"WARN", b"ERRO", b"FATA", b"PANI",
    ];
    // A terminal's level is coloured.
    let rest = from(line, 4);
    let rest = from(rest, heads::colour(rest).unwrap_or(0));
    known.iter().any(|level| line.starts_with(level))
        && (bracketed(rest) || looks_like(rest, b"[0000]"))
}

/// A word that may be a month's name, a day, a clock.
fn local(line: &[u8]) -> bool {
    let Some(end) = line.iter().take(20).position(|byte| *byte == b' ') else {
        return false;
    };
    // What is indented is no name: klog puts a tab before what others have said.
    let is_name = |word: &[u8]| {
        let other = |byte: &u8| !byte.is_ascii_digit();
        word.iter().any(other) && !word.starts_with(b"\t")
    };
    end > 1 && line.get(..end).is_some_and(is_name) && month(from(line, end + 1))
}

/// Whether these bytes stand at the places that have them and digits at the
/// places that have `0`.
fn looks_like(line: &[u8], pattern: &[u8]) -> bool {
    let fits = |(byte, pattern): (&u8, &u8)| match pattern {
        b'0' => byte.is_ascii_digit(),
        pattern => byte == pattern,
    };
    line.len() >= pattern.len() && line.iter().zip(pattern).all(fits)
}

fn from(line: &[u8], at: usize) -> &[u8] {
    line.get(at..).unwrap_or_default()
}

fn letters(line: &[u8]) -> Option<Form> {
    if line.get(3) == Some(&b' ') {
        return match line.get(..3)? {
            b"Jan" | b"Feb" | b"Mar" | b"Apr" | b"May" | b"Jun" | b"Jul" | b"Aug" | b"Sep"
            | b"Oct" | b"Nov" | b"Dec" => month(from(line, 4)).then_some(Form::Short),
            b"Mon" | b"Tue" | b"Wed" | b"Thu" | b"Fri" | b"Sat" | b"Sun" => {
                looks_like(from(line, 4), b"0000-00-00 00:00:00").then_some(Form::Full)
            }
            _ => None,
        };
    }
    match console(line) {
        true => Some(Form::Bracketed),
        false => klog_header(line).map(|_| Form::Klog),
    }
}

/// `12 20:21:27`, the day padded or not.
fn month(rest: &[u8]) -> bool {
    looks_like(rest, b"00 00:00:00")
        || looks_like(rest, b" 0 00:00:00")
        || looks_like(rest, b"0 00:00:00")
}

/// klog's letter or word: how long it is. `E1105 10:`, `ERROR:1105 10:`.
pub(super) fn klog_header(line: &[u8]) -> Option<usize> {
    let length = match line.first()? {
        b'I' | b'W' | b'E' | b'F' if line.get(1)?.is_ascii_digit() => 1,
        b'I' if line.starts_with(b"INFO:") => 5,
        b'W' if line.starts_with(b"WARNING:") => 8,
        b'E' if line.starts_with(b"ERROR:") => 6,
        b'F' if line.starts_with(b"FATAL:") => 6,
        _ => return None,
    };
    looks_like(from(line, length), b"0000 00:00:00.0").then_some(length)
}

fn digits(line: &[u8]) -> Option<Form> {
    match line.get(4)? {
        b'-' => {
            let space = line.get(10) == Some(&b' ');
            let clock = looks_like(line, b"0000-00-00") && looks_like(from(line, 11), b"00:00:00");
            if !clock || !(space || line.get(10) == Some(&b'T')) {
                return None;
            }
            // Behind a time there is a space; a quote is the end of a value.
            let of_time = |b: &&u8| b.is_ascii_digit() || b".,:+-Z".contains(b);
            let length = 19 + from(line, 19).iter().take(20).take_while(of_time).count();
            match line.get(length) {
                Some(b' ' | b'\t') | None => {}
                Some(_) => return None,
            }
            if space {
                return Some(Form::Dated);
            }
            Some(match from(line, length + 1) {
                rest if !rest.starts_with(b"std") => Form::Iso,
                rest if !rest.starts_with(b"stdout ") && !rest.starts_with(b"stderr ") => Form::Iso,
                rest if rest.get(7) == Some(&b'P') => Form::CriPartial,
                _ => Form::Cri,
            })
        }
        b'/' => looks_like(line, b"0000/00/00 00:00:00").then_some(Form::Go),
        _ => looks_like(line, b"0000000000.000000 ").then_some(Form::Unix),
    }
}

fn object(line: &[u8]) -> Option<Form> {
    if line.starts_with(b"{\"log\":\"") {
        return Some(Form::Docker);
    }
    let rest = from(line, 1).trim_ascii_start();
    match rest.first() {
        // The first line of an object that is printed over several.
        None => Some(Form::JournalJson),
        Some(b'"') if memchr::memmem::find(rest, b"\"__REALTIME_TIMESTAMP\"").is_some() => {
            Some(Form::JournalJson)
        }
        Some(b'"') => Some(Form::Json),
        // As a web page has it.
        Some(b'&') if rest.starts_with(b"&quot;") => Some(Form::Json),
        Some(_) => None,
    }
}

fn logfmt(line: &[u8]) -> Option<Form> {
    let starts = |name: &[u8]| line.starts_with(name);
    if starts(b"time=") || starts(b"ts=") || starts(b"t=2") {
        return Some(Form::Logfmt);
    }
    starts(b"level=").then_some(Form::Level)
}

fn dmesg(line: &[u8]) -> bool {
    let rest = from(line, 1).trim_ascii_start();
    match rest.first() {
        Some(b'0'..=b'9') => {
            let digits = rest
                .iter()
                .take(10)
                .take_while(|b| b.is_ascii_digit())
                .count();
            looks_like(from(rest, digits), b".000000]")
                || looks_like(from(rest, digits), b".000000[")
                || looks_like(from(rest, digits), b".000000][")
        }
        Some(b'M' | b'T' | b'W' | b'F' | b'S') => {
            month(from(rest, 8)) && looks_like(from(rest, 19), b" 0000]")
                || looks_like(from(rest, 4), b"0000-00-00 00:00:00")
        }
        _ => false,
    }
}

/// `kern  :info  : [   12.345678] `: `dmesg -x`.
fn decoded(line: &[u8]) -> bool {
    line.get(6) == Some(&b':') && line.get(13..15) == Some(b": ") && dmesg(from(line, 15))
}

/// `<30>1 2023-...`, `<30>Dec 12 ...`, `<6>[   12.345678] `
fn priority(line: &[u8]) -> Option<Form> {
    let digits = from(line, 1)
        .iter()
        .take(3)
        .take_while(|b| b.is_ascii_digit())
        .count();
    let rest = from(line, digits + 1).strip_prefix(b">")?;
    let known = rest.starts_with(b"1 ") || begins(rest).is_some();
    (digits > 0 && !rest.starts_with(b"<") && known).then_some(Form::Priority)
}
