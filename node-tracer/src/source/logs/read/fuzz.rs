//! Logs of chance. Under `cfg(fuzzing)` the longest line and the buffer are
//! small, so that both are met.

use std::{io::Read, time::SystemTime};

use super::{lines::LONGEST, *};
use crate::source::logs::entry::Level;
use event::clock::Timestamp;

/// What is kept of an entry to compare it.
type Kept = (
    Option<Timestamp>,
    Option<Level>,
    String,
    Vec<(String, String)>,
    u64,
);

/// A pipe that gives so many bytes at a time.
struct Pipe {
    rest: io::Cursor<Vec<u8>>,
    piece: usize,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.piece.min(buffer.len());
        self.rest.read(&mut buffer[..most])
    }
}

/// Unpacked, no more than that: a fuzzer finds out how to pack much nothing.
const MOST: u64 = 1 << 20;

/// A log in any form, packed or not: read to its end, no entry without bytes of
/// its own, none too long, and the same however the bytes come.
pub(crate) fn fuzz(data: &[u8]) {
    let whole = read(data, usize::MAX, &[]);
    let (piece, words) = match data.len() % 3 {
        0 => (7, &["ailed", "CNI"][..]),
        _ => (1 + data.len() % 61, &[][..]),
    };
    let pieces = read(data, piece, words);
    if words.is_empty() {
        assert_eq!(whole, pieces, "in pieces of {piece}");
    } else {
        assert!(pieces.len() <= whole.len());
    }
}

fn read(data: &[u8], piece: usize, needles: &[&str]) -> Vec<Kept> {
    let pipe = Pipe {
        rest: io::Cursor::new(data.to_vec()),
        piece,
    };
    let modified = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_763_700_000);
    let Ok(input) = Input::new(String::from("x"), Some(modified), Box::new(pipe)) else {
        return Vec::new();
    };
    let mut reader = LogReader::new(input, needles, LogOptions::default());
    let (mut all, mut line): (Vec<Kept>, u64) = (Vec::new(), 0);
    while reader.bytes() < MOST {
        let Some(entry) = reader.next().expect("there is no disk") else {
            break;
        };
        assert!(
            entry.message.len() <= 4 * LONGEST,
            "{}",
            entry.message.len()
        );
        let fields = entry.fields.iter();
        let fields: Vec<_> = fields
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect();
        let size: usize = fields.iter().map(|(a, b)| a.len() + b.len()).sum();
        assert!(size <= 8 * LONGEST, "{size}");
        assert!(line <= entry.line, "{} after {line}", entry.line);
        line = entry.line;
        all.push((
            entry.time,
            entry.level,
            entry.message.to_string(),
            fields,
            line,
        ));
        assert!(all.len() as u64 <= reader.bytes() + 1);
    }
    assert!(line <= reader.bytes() + 1);
    for seen in reader.formats() {
        assert!(seen.records > 0 && seen.first.is_some() == seen.last.is_some());
    }
    reader.gaps().texts();
    all
}
