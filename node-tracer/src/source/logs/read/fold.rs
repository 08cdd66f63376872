//! Which lines are one record: terminals, editors and web pages wrap long
//! lines, with an indentation or without, at words or in their middle; programs
//! write messages of several lines.

use super::{
    begin::{self, Form},
    lines::{LONGEST, Place},
};

/// Spaces that are an indentation. Fewer are part of the text: a line may have
/// been wrapped in front of them.
const INDENTED: usize = 4;
/// The narrowest that lines are wrapped at.
const NARROWEST: usize = 20;

/// A record that may go on in the next line.
#[derive(Debug)]
pub(super) struct Pending {
    /// Its form.
    pub(super) form: Form,
    /// The number of its first line.
    pub(super) line: u64,
    /// Its only line, in the buffer. Unless it has several:
    pub(super) place: Place,
    /// then they are in the reader's.
    pub(super) folded: bool,
    /// How wide its last line is.
    pub(super) width: usize,
    /// Whether something in it is open.
    pub(super) open: Open,
    /// Whether a value of several lines is.
    pub(super) block: bool,
}

impl Pending {
    /// A record whose first line this is.
    pub(super) fn new(form: Form, line: u64, place: Place) -> Self {
        Self {
            form,
            line,
            place,
            folded: false,
            width: 0,
            open: Open::default(),
            block: false,
        }
    }
}

/// How a line goes on with the record before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joint {
    /// It does not.
    Apart,
    /// As if nothing were between them, but for so many bytes of indentation.
    Wrapped(usize),
    /// With a newline, which the writer wrote; without so many bytes.
    Newline(usize),
}

/// The width at which a log's lines are wrapped, if they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Width {
    /// The widest line so far.
    widest: usize,
    /// How many are as wide.
    lines: u32,
    /// The last line was as wide.
    last: bool,
    /// What followed one of these did not look like a record.
    wrapped: bool,
}

impl Width {
    /// Takes a line in.
    pub(super) fn line(&mut self, line: &[u8]) {
        let wide = columns(line);
        if self.last && wide > 0 && begin::begins(line).is_none() {
            self.wrapped = true;
        }
        if wide > self.widest {
            *self = Self {
                widest: wide,
                ..Self::default()
            };
        }
        self.last = wide == self.widest;
        self.lines += u32::from(self.last);
    }

    /// The width, once all lines are in.
    pub(super) fn wrapped_at(self) -> Option<usize> {
        let told = self.wrapped && self.lines > 1 && self.widest >= NARROWEST;
        told.then_some(self.widest)
    }
}

/// Characters, which is near enough to columns.
pub(super) fn columns(line: &[u8]) -> usize {
    line.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// Whether a line goes on with a record. `text`: what the record says so far.
/// `width`: what the log's lines are wrapped at.
pub(super) fn joint(
    pending: &mut Pending,
    text: &[u8],
    line: &[u8],
    form: Option<Form>,
    width: Option<usize>,
) -> Joint {
    if text.len() >= LONGEST || form == Some(pending.form) {
        return Joint::Apart;
    }
    if width.is_some() && !pending.folded {
        pending.width = columns(text);
    }
    let full = width == Some(pending.width);
    if form.is_some() {
        // Inside of an envelope there may be whatever else begins a record.
        return match full || is_bare(text) {
            true => Joint::Wrapped(0),
            false => Joint::Apart,
        };
    }
    if line.is_empty() || (line.trim_ascii().is_empty() && !full) {
        return Joint::Apart;
    }
    // klog's values of several lines: `key=<`, lines, ` >`.
    if pending.block || text.ends_with(b"=<") {
        pending.block = !line.starts_with(b" >");
        return Joint::Newline(0);
    }
    let tabs = line.iter().take_while(|byte| **byte == b'\t').count();
    if tabs > 0 {
        return Joint::Wrapped(tabs);
    }
    let spaces = line.iter().take_while(|byte| **byte == b' ').count();
    if spaces >= INDENTED {
        // journalctl puts the lines of a message below each other.
        return match message_at(text) == Some(spaces) {
            true => Joint::Newline(spaces),
            false => Joint::Wrapped(spaces),
        };
    }
    match full || pending.open.after(text) {
        true => Joint::Wrapped(0),
        false => Joint::Apart,
    }
}

/// Whether a record is nothing but an envelope.
fn is_bare(text: &[u8]) -> bool {
    let text = text.trim_ascii_end();
    text.ends_with(b"]:") && text.len() < 128
}

/// Where a syslog line's message begins.
fn message_at(text: &[u8]) -> Option<usize> {
    let head = text.get(..text.len().min(160))?;
    memchr::memmem::find(head, b": ").map(|at| at + 2)
}

/// Whether quotes or brackets of a record are open.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// How much of it was looked at.
    seen: usize,
    depth: u32,
    quoted: bool,
    /// The last byte was a backslash.
    escaped: bool,
}

impl Open {
    /// The answer for a record that has grown since the last time.
    pub(super) fn after(&mut self, text: &[u8]) -> bool {
        for byte in text.get(self.seen..).unwrap_or_default() {
            let escaped = std::mem::take(&mut self.escaped);
            match byte {
                b'\\' if self.quoted => self.escaped = !escaped,
                b'"' if !escaped => self.quoted = !self.quoted,
                _ if self.quoted => {}
                b'{' | b'[' | b'(' => self.depth += 1,
                b'}' | b']' | b')' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        self.seen = text.len();
        self.quoted || self.depth > 0
    }
}
