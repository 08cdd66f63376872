//! Physical lines, out of one buffer that never grows: a line is a piece of
//! it, and is not copied.

use std::{
    io::{self, Read},
    ops::Range,
};

/// The longest line, and the longest record of several. The rest is cut off.
pub(super) const LONGEST: usize = 256 << 10;
/// What is held at a time; as much is looked at before anything is given out.
pub(super) const BUFFER: usize = 1 << 20;

/// A place in the log: bytes from its beginning, unpacked.
pub(super) type Place = Range<u64>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Without its end.
    pub(super) place: Place,
    /// Where the next one begins.
    next: u64,
    /// It is longer than allowed.
    cut: bool,
}

impl Line {
    /// Whether it is longer than allowed.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }
}

/// What is next in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Line(Line),
    /// That is not known until more is read.
    Unknown,
    /// Nothing: the log has ended.
    End,
}

pub(super) struct Lines {
    input: Box<dyn Read>,
    buffer: Box<[u8]>,
    /// The place of the buffer's first byte.
    base: u64,
    /// The place of the first byte that was not taken.
    at: u64,
    /// The place behind the last byte that was read.
    end: u64,
    /// What was taken from here on is still needed.
    held: Option<u64>,
    /// In the rest of a line that is cut off.
    skipping: bool,
    /// There is no more.
    over: bool,
    pub(super) number: u64,
    /// Lines and records that were too long.
    pub(super) cut: u64,
}

impl Lines {
    /// From the beginning of a log.
    pub(super) fn new(input: Box<dyn Read>) -> Self {
        Self {
            input,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            base: 0,
            at: 0,
            end: 0,
            held: None,
            skipping: false,
            over: false,
            number: 0,
            cut: 0,
        }
    }

    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.end
    }

    /// The place of the first byte in the buffer.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// What stands at a place that is still held.
    pub(super) fn text(&self, place: &Place) -> &[u8] {
        let index = |at: u64| usize::try_from(at.saturating_sub(self.base)).unwrap_or(usize::MAX);
        let range = index(place.start)..index(place.end);
        self.buffer.get(range).unwrap_or_default()
    }

    /// All that is in the buffer from a place on.
    pub(super) fn from(&self, start: u64) -> &[u8] {
        self.text(&(start..self.end))
    }

    /// Keeps what stands from a place on, until told otherwise.
    pub(super) fn hold(&mut self, from: Option<u64>) {
        self.held = from;
    }

    /// The next line, if it is in the buffer; it is not taken.
    pub(super) fn peek(&mut self) -> Next {
        loop {
            let window = self.text(&(self.at..self.end));
            if self.skipping {
                match memchr::memchr(b'\n', window) {
                    Some(newline) => {
                        self.at += newline as u64 + 1;
                        self.skipping = false;
                    }
                    None => {
                        self.at = self.end;
                        return self.unknown();
                    }
                }
                continue;
            }
            // A file that was truncated while it was written begins with
            // nothing, as much as had been written before.
            if window.first() == Some(&0) {
                let nothing = window.iter().take_while(|byte| **byte == 0).count();
                self.at += nothing as u64;
                continue;
            }
            let newline = memchr::memchr(b'\n', window);
            let length = newline.unwrap_or(window.len());
            let cut = length > LONGEST;
            if newline.is_none() && !cut {
                if !self.over {
                    return Next::Unknown;
                }
                if window.is_empty() {
                    return Next::End;
                }
            }
            let carriage = length > 0 && window.get(length - 1) == Some(&b'\r');
            let shown = (length - usize::from(carriage)).min(LONGEST);
            return Next::Line(Line {
                place: self.at..self.at + shown as u64,
                next: self.at + (length + usize::from(newline.is_some())) as u64,
                cut,
            });
        }
    }

    fn unknown(&self) -> Next {
        match self.over {
            true => Next::End,
            false => Next::Unknown,
        }
    }

    /// Takes a line that [`peek`](Self::peek) has shown.
    pub(super) fn take(&mut self, line: &Line) {
        self.at = line.next;
        self.number += 1;
        if line.cut {
            self.cut += 1;
            let ended = self.text(&(line.next - 1..line.next)) == b"\n";
            self.skipping = !ended;
        }
    }

    /// Takes bytes that are no line, as many as are in the buffer and no more
    /// than that.
    pub(super) fn take_bytes(&mut self, most: u64) -> Place {
        let end = self.end.min(self.at.saturating_add(most));
        let place = self.at..end;
        self.at = end;
        place
    }

    /// Reads on. What is neither held nor untaken is forgotten; nothing that
    /// is held may be longer than half of the buffer.
    pub(super) fn fill(&mut self) -> io::Result<()> {
        let keep = self.held.unwrap_or(self.at).min(self.at);
        let from = usize::try_from(keep - self.base).unwrap_or(usize::MAX);
        let to = usize::try_from(self.end - self.base).unwrap_or(usize::MAX);
        if from > 0 && from <= to {
            self.buffer.copy_within(from..to, 0);
            self.base = keep;
        }
        // As much as fits, so that work on the buffer is worth its while.
        loop {
            let filled = usize::try_from(self.end - self.base).unwrap_or(usize::MAX);
            let room = self.buffer.get_mut(filled..).unwrap_or_default();
            if room.is_empty() {
                return Ok(());
            }
            match self.input.read(room) {
                Ok(0) => {
                    self.over = true;
                    return Ok(());
                }
                Ok(read) => self.end += read as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // It cannot be read any further; what was is given out.
                    self.over = true;
                    return Err(error);
                }
            }
        }
    }

    /// Whether there is no more to read.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}
