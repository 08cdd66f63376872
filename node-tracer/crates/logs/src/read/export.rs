//! `journalctl -o export`: fields a line each, binary ones with their length,
//! and an empty line after each entry.

use super::{
    LogReader,
    journal::JournalEntry,
    lines::{LONGEST, Next},
};

/// journald takes no larger fields.
const LARGEST: u64 = 1 << 30;

impl LogReader {
    /// Reads the entry of which the first line was taken.
    pub(super) fn export_entry(&mut self) -> JournalEntry {
        let mut entry = JournalEntry::default();
        loop {
            let line = match self.lines.peek() {
                Next::Line(line) => line,
                Next::Unknown => {
                    self.fill();
                    continue;
                }
                Next::End => return entry,
            };
            let text = self.lines.text(&line.place);
            if text.is_empty() {
                self.lines.take(&line);
                return entry;
            }
            let equals = memchr::memchr(b'=', text);
            let name = text.get(..equals.unwrap_or(text.len())).unwrap_or_default();
            let of_name = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_';
            let damaged = name.is_empty() || name.len() > 64 || !name.iter().all(of_name);
            if damaged || (name == b"__CURSOR" && equals.is_some()) {
                // The end is missing; this is something else.
                self.damaged += u64::from(damaged);
                return entry;
            }
            let wanted = JournalEntry::wants(name).then(|| String::from_utf8_lossy(name));
            if let Some(equals) = equals {
                if let Some(name) = wanted {
                    let value = text.get(equals + 1..).unwrap_or_default();
                    entry.field(&name, String::from_utf8_lossy(value));
                }
                self.lines.take(&line);
                continue;
            }
            let name = wanted.map(std::borrow::Cow::into_owned);
            self.lines.take(&line);
            let mut value = Vec::new();
            if !self.binary(&mut value) {
                return entry;
            }
            if let Some(name) = name {
                entry.field(&name, String::from_utf8_lossy(&value));
            }
        }
    }

    /// Reads a binary field; `false` if it makes no sense.
    fn binary(&mut self, value: &mut Vec<u8>) -> bool {
        let mut length = Vec::new();
        if self.copy(8, &mut length) < 8 {
            self.damaged += 1;
            return false;
        }
        let length = length.try_into().map_or(0, u64::from_le_bytes);
        if length > LARGEST {
            self.damaged += 1;
            return false;
        }
        let read = self.copy(length, value);
        self.lines.cut += u64::from(read > value.len() as u64);
        self.damaged += u64::from(read < length);
        // Its newline.
        self.copy(1, &mut Vec::new());
        read == length
    }

    /// Copies so many bytes, the beginning if it is too long. How many there
    /// were.
    fn copy(&mut self, bytes: u64, into: &mut Vec<u8>) -> u64 {
        let mut left = bytes;
        while left > 0 {
            let place = self.lines.take_bytes(left);
            let piece = self.lines.text(&place);
            if piece.is_empty() {
                if self.lines.is_over() {
                    break;
                }
                self.fill();
                continue;
            }
            left -= piece.len() as u64;
            let newlines = memchr::memchr_iter(b'\n', piece).count() as u64;
            let room = LONGEST.saturating_sub(into.len());
            into.extend_from_slice(piece.get(..room).unwrap_or(piece));
            self.lines.number += newlines;
        }
        bytes - left
    }
}
