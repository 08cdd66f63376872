//! Logs, read: any form, compressed or not, in bounded memory.
//!
//! ```text
//! input    a file or a pipe, unpacked
//! lines    one buffer, and the lines in it
//! begin    per line: does a record begin here, and of which form
//! heads    what others have put before it
//! clean    and into it
//! fold     which lines are one record
//! blocks   and which records are one
//! needles  does the record matter; the others are not looked at again
//! peel     envelope by envelope, down to the message
//! calendar its time, with what the record leaves out
//! ```
//!
//! Whatever a log holds, it is read to its end: what cannot be understood is
//! given out as it stands, what is too long is cut, and both are counted.

mod begin;
mod blocks;
mod calendar;
mod clean;
mod completeness;
mod container;
mod export;
mod fold;
mod header;
mod heads;
mod input;
mod journal;
mod json;
mod lines;
mod needles;
mod pairs;
mod partial;
mod peel;
mod quote;
mod ready;
mod record;
mod stamp;
mod zstd;

use std::{fmt, io};

use self::begin::Form;
use self::{
    blocks::Blocks,
    calendar::Calendar,
    completeness::FormCounts,
    fold::{Joint, Pending, Wrapped, Wrapping},
    lines::{Line, Lines, Next},
    needles::Needles,
    partial::Pieces,
    ready::Ready,
};
pub use self::{
    completeness::{FormCount, Gaps},
    input::{BytesRead, Input},
    needles::Words,
};
use super::entry::Entry;

/// So many bytes tell whether it is a text.
const BEGINNING: usize = 8 << 10;

/// A log cannot be read. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// No such file, or no right to it.
    #[error("cannot open {name}")]
    Open {
        name: String,
        #[source]
        source: io::Error,
    },
    /// The disk, the pipe.
    #[error("cannot read the log {name}")]
    Read {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("{name} is {found} and cannot be read as a log: {advice}")]
    Foreign {
        name: String,
        /// What it is instead.
        found: &'static str,
        advice: String,
    },
}

impl LogError {
    fn foreign(name: &str, found: &'static str, advice: &str) -> Self {
        Self::Foreign {
            name: name.to_owned(),
            found,
            advice: advice.to_owned(),
        }
    }
}

/// What is known of a log that it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// The year of its first line.
    pub year: Option<i16>,
    /// Seconds east of UTC of times without a zone.
    pub offset: Option<i32>,
}

/// A log being read.
pub struct LogReader {
    name: String,
    packed: Option<&'static str>,
    lines: Lines,
    needles: Needles,
    calendar: Calendar,
    told: FormCounts,
    /// The last record, as long as more lines may belong to it.
    pending: Option<Pending>,
    /// Its text, if it has several lines.
    joined: Vec<u8>,
    pieces: Pieces,
    blocks: Blocks,
    /// Of a value of several lines only lines are left: what begins with a tab
    /// is passed over until its end.
    torn: bool,
    ready: Ready,
    /// How the log's lines are wrapped.
    wrapping: Wrapping,
    /// The month of the last record whose time has no year.
    month: [u8; 3],
    /// Spaces before each line: whoever has quoted the log put them there.
    margin: usize,
    /// The last record stands in a thread's quotes.
    quoted: bool,
    /// Its beginning is a text's: nothing in it ends a string.
    text: bool,
    /// The log's beginning was looked at.
    begun: bool,
    boot: Option<String>,
    damaged: u64,
    /// The pod whose container wrote the log, if that is no daemon of the node.
    tenant: Option<String>,
    /// The log is not where the logs of containers are.
    pathless: bool,
    /// Some records are of a container of which that does not say whose it is.
    of_container: bool,
    /// Records that somebody else than the node's daemons wrote.
    others: u64,
    /// Of some records nobody says who wrote them.
    unvouched: bool,
    broken_off: Option<String>,
    /// Why it cannot be read on: told once all before it is given out.
    failed: Option<io::Error>,
}

impl fmt::Debug for LogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader")
            .field("name", &self.name)
            .field("line", &self.lines.number)
            .finish_non_exhaustive()
    }
}

impl LogReader {
    /// Of an input. Of records with an envelope only those are given out in
    /// which one of `words` stands, as the log writes it (JSON escapes
    /// quotes, `<`, `>` and `&`); of text without any envelope, each line.
    pub fn new(input: Input, words: Words, options: LogOptions) -> Self {
        let pod = container::of_path(input.name());
        let tenant = pod.filter(|(namespace, _)| !container::is_of_the_system(namespace));
        Self {
            tenant: tenant.map(|(namespace, name)| format!("{namespace}/{name}")),
            pathless: pod.is_none(),
            of_container: false,
            others: 0,
            unvouched: false,
            name: input.name().to_owned(),
            packed: input.packed(),
            calendar: Calendar::new(options, input.modified()),
            lines: Lines::new(Box::new(input)),
            needles: Needles::new(words),
            told: FormCounts::default(),
            pending: None,
            joined: Vec::new(),
            pieces: Pieces::default(),
            blocks: Blocks::default(),
            torn: false,
            ready: Ready::default(),
            wrapping: Wrapping::default(),
            month: [0; 3],
            margin: 0,
            quoted: false,
            text: true,
            begun: false,
            boot: None,
            damaged: 0,
            broken_off: None,
            failed: None,
        }
    }

    /// Its name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it was compressed.
    pub fn packed(&self) -> Option<&'static str> {
        self.packed
    }

    /// Bytes read so far, unpacked.
    pub fn bytes(&self) -> u64 {
        self.lines.bytes()
    }

    /// Lines read so far.
    pub fn lines(&self) -> u64 {
        self.lines.number
    }

    /// Whether its beginning is a text's.
    pub fn is_text(&self) -> bool {
        self.text
    }

    /// The boot that the last records are of, if the log says so.
    pub fn boot_id(&self) -> Option<&str> {
        self.boot.as_deref()
    }

    /// The forms that were seen so far.
    pub fn formats(&self) -> Vec<FormCount> {
        self.told.seen()
    }

    /// What had to be assumed and what is missing, so far.
    pub fn gaps(&self) -> Gaps {
        Gaps {
            assumed_year: self.calendar.assumed_year,
            assumed_zone: self.calendar.assumed_zone,
            cut: self.lines.cut + self.pieces.cut,
            damaged: self.damaged,
            unvouched: self.unvouched,
            of_container: self.of_container,
            others: self.others,
            tenant: self.tenant.clone(),
            broken_off: self.broken_off.clone(),
        }
    }

    /// The next message; `None` after the last.
    #[expect(clippy::should_implement_trait, reason = "what it gives is lent")]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, LogError> {
        if !std::mem::replace(&mut self.begun, true) {
            self.look_ahead();
        }
        if self.advance() {
            let (entry, understood) = self.ready.entry(&mut self.calendar);
            self.damaged += u64::from(!understood);
            let writer = entry.ident.and_then(diagnosis::gate::writer);
            let named = entry.host.is_some() && writer.is_some();
            self.unvouched |= named && !self.ready.vouched;
            return Ok(Some(entry));
        }
        match self.failed.take() {
            None => Ok(None),
            Some(source) => Err(LogError::Read {
                name: self.name.clone(),
                source,
            }),
        }
    }

    /// Reads on. What fails is kept for the end.
    fn fill(&mut self) {
        if let Err(error) = self.lines.fill() {
            let is_other = error.raw_os_error().is_some() || input::is_endless(&error);
            if is_other || self.packed.is_none() {
                self.failed = Some(error);
            } else {
                let packed = self.packed.unwrap_or("compressed");
                let bytes = self.lines.bytes();
                self.broken_off = Some(match error.kind() {
                    io::ErrorKind::UnexpectedEof => {
                        format!("its {packed} data ends too early, after {bytes} bytes unpacked")
                    }
                    _ => format!(
                        "its {packed} data is damaged after {bytes} bytes unpacked: {error}"
                    ),
                });
            }
        }
    }

    /// Looks at all that is in the buffer before anything is given out: how
    /// lines are wrapped, which zone and year they are of.
    fn look_ahead(&mut self) {
        self.fill();
        if self.lines.from(0).starts_with(b"\xef\xbb\xbf") {
            self.lines.take_bytes(3);
        }
        let mut wrapped = Wrapped::default();
        let mut ready = Ready::default();
        // A file that was truncated while it was written begins with these.
        let beginning = self.lines.from(0).iter().take(BEGINNING);
        self.text = !beginning
            .skip_while(|byte| **byte == 0)
            .any(|byte| *byte == 0);
        let all = || self.lines.from(0).split(|byte| *byte == b'\n');
        let filled = all().filter(|line| !line.trim_ascii().is_empty());
        let margin = filled.map(fold::spaces).min().unwrap_or(0);
        let begins = |line: &[u8]| begin::begins(line.get(margin..).unwrap_or_default()).is_some();
        self.margin = match all().any(begins) {
            true => margin,
            false => 0,
        };
        for line in all() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = line.get(self.margin..).unwrap_or_default();
            if line.len() <= lines::LONGEST {
                wrapped.line(line);
                ready.look_at(line, &mut self.calendar);
            }
        }
        self.wrapping = wrapped.how();
        // A log that begins inside of a value of klog's.
        let mut filled = all().filter(|line| !line.trim_ascii().is_empty());
        self.torn = filled.next().is_some_and(|line| line.starts_with(b"\t"))
            && filled.any(|line| begin::begins(line) == Some(Form::Klog));
    }

    /// Goes on to the next record that is given out; `false` at the end.
    fn advance(&mut self) -> bool {
        loop {
            while let Some(whole) = self.blocks.next() {
                if self.needles.is_in(whole.text.as_bytes()) {
                    self.ready = whole;
                    return true;
                }
            }
            match self.lines.peek() {
                Next::Line(line) => {
                    if self.line(line) {
                        return true;
                    }
                }
                Next::Unknown => {
                    self.settle();
                    self.fill();
                }
                Next::End => {
                    if let Some(pending) = self.pending.take() {
                        if self.finish(&pending) {
                            return true;
                        }
                    } else if let Some(left) = self.pieces.left() {
                        if self.needles.is_in(&left) {
                            self.ready.set(&left);
                            self.ready.line = self.lines.number;
                            return true;
                        }
                    } else if !self.blocks.is_empty() {
                        self.blocks.end();
                    } else {
                        self.settle();
                        return false;
                    }
                }
            }
        }
    }

    /// Takes the next line, or gives out what came before it.
    fn line(&mut self, mut line: Line) -> bool {
        let mut text = self.lines.text(&line.place);
        // RFC 7464's sequences; server-sent events.
        if let [0x1e, rest @ ..] | [b'd', b'a', b't', b'a', b':', b' ', rest @ ..] = text
            && rest.first() == Some(&b'{')
        {
            line.place.start += (text.len() - rest.len()) as u64;
            text = rest;
        }
        let is_block = self.pending.as_ref().is_some_and(|pending| {
            let so_far = match pending.folded {
                true => &self.joined,
                false => self.lines.text(&pending.place),
            };
            pending.block || so_far.ends_with(b"=<")
        });
        let margin = fold::spaces(text).min(self.margin);
        line.place.start += margin as u64;
        text = text.get(margin..).unwrap_or_default();
        let quoted = text.first() == Some(&b'>');
        let mut form = begin::begins(text);
        if self.torn {
            let ends = text.starts_with(b" >");
            self.torn = !ends && form != Some(Form::Klog);
            if ends || text.starts_with(b"\t") {
                self.lines.take(&line);
                return false;
            }
        }
        let mut head = 0;
        // A value of several lines may hold whatever it wants, and what is
        // indented goes on with what was before it.
        let goes_on = matches!(text.first(), Some(b' ' | b'\t')) && self.pending.is_some();
        if form.is_none() && !is_block && !goes_on {
            if self.quoted && self.pending.is_some() {
                let quotes = fold::quotes(text);
                line.place.start += quotes as u64;
                text = text.get(quotes..).unwrap_or_default();
            }
            head = heads::length(text);
            form = begin::begins(text.get(head..).unwrap_or_default());
        }
        if let Some(mut pending) = self.pending.take() {
            let so_far = match pending.folded {
                true => &self.joined,
                false => self.lines.text(&pending.place),
            };
            let joint = fold::joint(&mut pending, so_far, text, form, self.wrapping);
            if joint == Joint::Apart {
                // Somebody else's record stands in the middle of a value.
                self.torn |= is_block && pending.form == Form::Klog && form != Some(Form::Klog);
                // The line is looked at again if something is given out first.
                if self.finish(&pending) {
                    return true;
                }
            } else {
                self.join(&mut pending, &line, joint);
                self.pending = Some(pending);
                return false;
            }
        }
        self.lines.take(&line);
        self.quoted = quoted;
        line.place.start += head as u64;
        match form {
            None => self.plain(&line),
            Some(Form::Export) => self.exported(),
            Some(form) => {
                let mut pending = Pending::new(form, self.lines.number, line.place.clone());
                if line.is_cut() {
                    // Its rest, which is passed over, must not be held with it.
                    self.unfold(&mut pending);
                } else {
                    self.lines.hold(Some(line.place.start));
                }
                self.pending = Some(pending);
                false
            }
        }
    }

    /// Copies a record of one line out of the buffer.
    fn unfold(&mut self, pending: &mut Pending) {
        self.joined.clear();
        self.joined.shrink_to(64 << 10);
        let first = self.lines.text(&pending.place);
        self.joined.extend_from_slice(first);
        pending.folded = true;
        self.lines.hold(None);
    }

    /// Adds a line to a record.
    fn join(&mut self, pending: &mut Pending, line: &Line, joint: Joint) {
        if !pending.folded {
            self.unfold(pending);
        }
        let text = self.lines.text(&line.place);
        pending.width = match self.wrapping.width {
            Some(_) => fold::columns(text),
            None => 0,
        };
        let without = match joint {
            Joint::Apart => 0,
            Joint::Wrapped(bytes) => bytes,
            Joint::Spaced(bytes) => {
                self.joined.push(b' ');
                bytes
            }
            Joint::Newline(bytes) => {
                self.joined.push(b'\n');
                bytes
            }
        };
        let text = text.get(without..).unwrap_or_default();
        let room = lines::LONGEST.saturating_sub(self.joined.len());
        let kept = text.get(..room).unwrap_or(text);
        self.joined.extend_from_slice(kept);
        let cut = text.len() > room;
        self.lines.cut += u64::from(cut);
        self.lines.take(line);
    }
}

#[cfg(feature = "testing")]
mod fuzz;
#[cfg(feature = "testing")]
pub use fuzz::fuzz;

#[cfg(test)]
mod tests;
