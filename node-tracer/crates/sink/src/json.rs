//! One JSON object a line: the contract's records, for scripts.
//!
//! All records are printed but the clock's ticks. Characters that act on a
//! terminal are written as `\u` escapes: the same data, and harmless to look
//! at.

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

use super::{Lines, Shown, Sink, SinkError};
use event::wording::escape::is_hidden;
use event::{
    Event, What,
    record::{Body, Record},
};

/// Prints records as JSON lines.
pub struct JsonSink<W> {
    lines: Lines<W>,
}

impl<W: io::Write> JsonSink<W> {
    /// Prints to `out`.
    pub fn new(out: W) -> Self {
        Self {
            lines: Lines::new(out),
        }
    }
}

impl<W: io::Write> Sink for JsonSink<W> {
    fn write(&mut self, record: &Record<'_>) -> Result<Shown, SinkError> {
        if let Body::Event(Event {
            what: What::Tick, ..
        }) = record.body
        {
            return Ok(Shown::No);
        }
        let mut line = line(record)?;
        line.push(b'\n');
        self.lines.put(&line)?;
        Ok(Shown::Yes)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.lines.flush()
    }
}

/// A record as one line of JSON, without the newline.
pub fn line(record: &Record<'_>) -> Result<Vec<u8>, SinkError> {
    let mut line = Vec::with_capacity(512);
    record.serialize(&mut Serializer::with_formatter(&mut line, Harmless))?;
    Ok(line)
}

/// Compact JSON with what cannot be seen written out.
struct Harmless;

impl Formatter for Harmless {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|&(_, c)| is_hidden(c)) {
            CompactFormatter.write_string_fragment(writer, &rest[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::clock::Timestamp;

    fn printed(what: What) -> String {
        let mut out = Vec::new();
        let event = Event {
            time: Timestamp::from_nanos(0),
            what,
        };
        JsonSink::new(&mut out)
            .write(&Record::event("n", &event))
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn ticks_are_not_printed() {
        assert_eq!(printed(What::Tick), "");
    }

    #[test]
    fn hostile_text_is_the_same_data_in_one_harmless_line() {
        let hostile = "\x1b[2J\u{9b}\u{202e}\u{e0041}\n\"\\\x7f";
        let line = printed(What::SourceRecovered {
            source: hostile.to_owned(),
        });
        assert!(
            !line.trim_end_matches('\n').chars().any(is_hidden),
            "{line:?}"
        );
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["source"], hostile);
    }

    #[test]
    fn a_gone_reader_is_named_as_such() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let event = Event {
            time: Timestamp::from_nanos(0),
            what: What::SourceRecovered {
                source: "pods".to_owned(),
            },
        };
        let result = JsonSink::new(writer).write(&Record::event("n", &event));
        assert!(matches!(result, Err(SinkError::Closed)));
    }
}
