//! Which lines are one record: terminals, editors and web pages wrap long
//! lines, with an indentation or without, at words or in their middle; programs
//! write messages of several lines.

use super::{
    begin::{self, Form},
    blocks::message_at,
    journal,
    lines::{LONGEST, Place},
};

/// Spaces that are an indentation. Fewer are part of the text: a line may have
/// been wrapped in front of them.
const INDENTED: usize = 4;
/// The kernel's longest message.
const OF_KERNEL: usize = 1 << 10;
/// The narrowest that lines are wrapped at.
const NARROWEST: usize = 20;

/// A record that may go on in the next line.
#[derive(Debug)]
pub(super) struct Pending {
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
    Apart,
    /// As if nothing were between them, but for so many bytes of indentation.
    Wrapped(usize),
    /// The same with a space, which whoever wrapped them has left out.
    Spaced(usize),
    /// With a newline, which the writer wrote; without so many bytes.
    Newline(usize),
}

/// How a log's lines are wrapped, if they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wrapping {
    /// Its lines have this width, but for the last of each record.
    pub(super) width: Option<usize>,
    /// Spaces in front of what goes on, at least.
    pub(super) indent: Option<usize>,
}

/// Finds out how a log's lines are wrapped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wrapped {
    /// The widest line so far.
    widest: usize,
    /// How many are as wide.
    lines: u32,
    /// The last line was as wide.
    last: bool,
    /// How often what followed one of these did not look like a record and
    /// was not indented,
    flush: u32,
    /// and how often it was.
    indented: u32,
    /// A record has begun, and no empty line come since.
    inside: bool,
    /// The fewest spaces in front of what goes on.
    indent: Option<usize>,
}

impl Wrapped {
    /// Takes a line in.
    pub(super) fn line(&mut self, line: &[u8]) {
        let (wide, begins) = (columns(line), begin::begins(line).is_some());
        let spaces = spaces(line);
        if wide > self.widest {
            (self.widest, self.lines) = (wide, 0);
            (self.flush, self.indented) = (0, 0);
        } else if self.last && wide > 0 && !begins {
            let indented = spaces >= INDENTED || line.starts_with(b"\t");
            self.indented += u32::from(indented);
            self.flush += u32::from(!indented);
        }
        self.last = wide == self.widest;
        self.lines += u32::from(self.last);
        self.inside = begins || (self.inside && wide > 0);
        if self.inside && !begins && spaces >= INDENTED && spaces < wide {
            self.indent = Some(self.indent.map_or(spaces, |least| least.min(spaces)));
        }
    }

    /// How they are, once all lines are in.
    pub(super) fn how(self) -> Wrapping {
        let (flush, indented) = (self.flush, self.indented);
        let told = flush + indented > 0 && self.lines > 1 && self.widest >= NARROWEST;
        Wrapping {
            width: told.then_some(self.widest),
            indent: match told && flush > indented {
                true => Some(0),
                false => self.indent,
            },
        }
    }
}

/// The quotes of a thread, `> `, in front of a line.
pub(super) fn quotes(line: &[u8]) -> usize {
    let mut at = 0;
    while line.get(at) == Some(&b'>') {
        at += 1 + usize::from(line.get(at + 1) == Some(&b' '));
    }
    at
}

/// The spaces in front of a line.
pub(super) fn spaces(line: &[u8]) -> usize {
    line.iter().take_while(|byte| **byte == b' ').count()
}

/// Characters, which is near enough to columns.
pub(super) fn columns(line: &[u8]) -> usize {
    line.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// Whether a line goes on with a record. `text`: what the record says so far.
/// `wrapping`: how the log's lines are wrapped.
pub(super) fn joint(
    pending: &mut Pending,
    text: &[u8],
    line: &[u8],
    form: Option<Form>,
    wrapping: Wrapping,
) -> Joint {
    // `journalctl -o verbose`: a field a line.
    if journal::is_verbose(pending.form, text) && form.is_none() && spaces(line) >= INDENTED {
        return Joint::Newline(INDENTED);
    }
    // klog's values of several lines: `key=<`, lines behind a tab, ` >`. They
    // hold whatever somebody else wants: empty lines, and more than is kept.
    let indented = matches!(line.first(), Some(b' ' | b'\t'));
    if (pending.block || text.ends_with(b"=<")) && (form.is_none() || indented) {
        pending.block = !line.starts_with(b" >");
        return Joint::Newline(0);
    }
    if text.len() >= LONGEST || form == Some(pending.form) {
        return Joint::Apart;
    }
    if wrapping.width.is_some() && !pending.folded {
        pending.width = columns(text);
    }
    let full = wrapping.width == Some(pending.width);
    if form.is_some() {
        // Inside of an envelope there may be whatever else begins a record.
        return match full || is_bare(text) {
            true => Joint::Wrapped(0),
            false => Joint::Apart,
        };
    }
    if line.is_empty() || (line.trim_ascii().is_empty() && !full) {
        // journalctl and dmesg indent empty lines of a message, too.
        return match spaces(line) >= INDENTED {
            true => Joint::Newline(line.len()),
            false => Joint::Apart,
        };
    }
    let tabs = line.iter().take_while(|byte| **byte == b'\t').count();
    let spaces = spaces(line);
    let indent = if tabs > 0 {
        tabs
    } else if spaces >= INDENTED {
        // journalctl puts the lines of a message below each other.
        if message_at(text) == Some(spaces) {
            return Joint::Newline(spaces);
        }
        // What was wrapped in front of a space has one more.
        match wrapping.indent {
            Some(0) if !full => spaces,
            Some(indent) => indent.min(spaces),
            None => spaces,
        }
    } else {
        0
    };
    if indent > 0 {
        let rest = line.get(indent..).unwrap_or_default();
        return match pending.open.lacks_space(text, rest) {
            true => Joint::Spaced(indent),
            false => Joint::Wrapped(indent),
        };
    }
    if full || pending.open.after(text) {
        return Joint::Wrapped(0);
    }
    // Any user can have the kernel quote a newline. Older versions of dmesg do
    // not indent what follows; it has no time, as all else has.
    let is_prompt = matches!(line.first(), Some(b'$' | b'#' | b'`'));
    match pending.form == Form::Dmesg && text.len() < OF_KERNEL && !is_prompt {
        true => Joint::Newline(0),
        false => Joint::Apart,
    }
}

/// Whether a record is nothing but an envelope.
fn is_bare(text: &[u8]) -> bool {
    let text = text.trim_ascii_end();
    text.ends_with(b"]:") && text.len() < 128
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

    /// Whether a space is missing between a record and what goes on with it:
    /// `container` and `"5eed..."`, `(a=1,` and `b=2)`. Editors that wrap in
    /// front of a space leave it out. In most places that cannot be known.
    fn lacks_space(&mut self, text: &[u8], next: &[u8]) -> bool {
        self.after(text);
        match (text.last(), next.first()) {
            _ if self.quoted => false,
            (Some(last), Some(b'"')) => last.is_ascii_alphanumeric(),
            (Some(b','), Some(next)) => self.depth > 0 && next.is_ascii_alphabetic(),
            _ => false,
        }
    }
}
