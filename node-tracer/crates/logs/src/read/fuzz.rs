//! Logs of chance. A byte of its own stands for a very long word, so that small
//! inputs meet the longest line and the end of the buffer.

use std::{io::Read, time::SystemTime};

use super::{lines::LONGEST, *};
use crate::entry::Level;
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
const MOST: u64 = 4 << 20;
/// What stands for a long word, and how long that is: three fill the longest line.
const LONG: u8 = 0x1f;
const LETTERS: usize = LONGEST / 3 + 1;

/// A log in any form, packed or not: read to its end, no entry without bytes of
/// its own, none too long, and the same however the bytes come.
pub fn fuzz(data: &[u8]) {
    thread_local! {
        // It takes longer to compile them than to read what a fuzzer writes.
        static WORDS: Words = Words::new(&["ailed", "CNI"]);
    }
    let mut text = Vec::new();
    for (number, part) in data.split(|byte| *byte == LONG).take(16).enumerate() {
        if number > 0 {
            text.resize(text.len() + LETTERS, b'x');
        }
        text.extend_from_slice(part);
    }
    let whole = read(&text, usize::MAX, Words::new(&[]));
    let is_long = text.len() > LETTERS;
    let (piece, some) = match data.len() % 3 {
        0 => (if is_long { 4_099 } else { 7 }, true),
        _ if is_long => (4_096 + data.len() % 61, false),
        _ => (1 + data.len() % 61, false),
    };
    let words = match some {
        true => WORDS.with(Words::clone),
        false => Words::new(&[]),
    };
    let pieces = read(&text, piece, words);
    if !some {
        assert_eq!(whole, pieces, "in pieces of {piece}");
    } else {
        assert!(pieces.len() <= whole.len());
    }
}

fn read(data: &[u8], piece: usize, words: Words) -> Vec<Kept> {
    let pipe = Pipe {
        rest: io::Cursor::new(data.to_vec()),
        piece,
    };
    let modified = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_763_700_000);
    let Ok(input) = Input::new(String::from("x"), Some(modified), Box::new(pipe)) else {
        return Vec::new();
    };
    let mut reader = LogReader::new(input, words, LogOptions::default());
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
