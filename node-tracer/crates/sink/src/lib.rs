//! Where records go: text for people, JSON lines for scripts, journald,
//! Events of Kubernetes, metrics.
//!
//! A sink decides how a record looks and whether it is worth printing there;
//! it never judges. Text and JSON write to whatever [`Write`](io::Write) they
//! are given, one record with one write, so that a reader sees whole lines
//! only. What to do about a sink that fails is main's decision. A stream's
//! sinks write into an [`Outlet`], so that no reader keeps it waiting.

#![forbid(unsafe_code)]

use std::{borrow::Cow, io, path::PathBuf};

use event::{Event, record::Record};

#[cfg(test)]
mod golden;
pub mod journald;
pub mod json;
pub mod metrics;
pub mod outlet;
pub mod text;

pub use {
    journald::JournaldSink,
    json::JsonSink,
    outlet::{Outlet, Weight},
    text::TextSink,
};

pub trait Sink {
    /// Writes one record, or leaves it out if this sink does not show such.
    fn write(&mut self, record: &Record<'_>) -> Result<Shown, SinkError>;

    /// Takes in a part of a look. Looks are told by what they show in the end,
    /// so hardly a sink cares.
    fn look(&mut self, _: &Event) {}

    /// Passes on what may still be held back.
    fn flush(&mut self) -> Result<(), SinkError>;
}

/// What a sink did with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Yes,
    /// This sink does not show such records, so that nothing was tried.
    No,
}

/// A record did not get to where it should.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The reader is gone (`node-tracer ... | head`): nothing is wrong, and
    /// nothing is left to do.
    #[error("the reader of the output is gone")]
    Closed,
    #[error(
        "standard output is closed, so nothing can be told; for the exit code alone: >/dev/null"
    )]
    Missing,
    /// It is not read fast enough, and no more can wait.
    #[error("the output is not read, or too slowly")]
    Slow,
    /// The output cannot be written: disk full, device error.
    #[error("cannot write the output")]
    Write(#[source] io::Error),
    /// A record has no JSON form.
    #[error("cannot put a record into JSON")]
    Encode(#[from] serde_json::Error),
    /// journald cannot be reached. The next write tries again.
    #[error("journald does not take a record at {}", path.display())]
    Journal {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl From<io::Error> for SinkError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            io::ErrorKind::WouldBlock => Self::Slow,
            _ => Self::Write(error),
        }
    }
}

pub struct Lines<W> {
    out: W,
    /// A write failed in the middle of a line.
    torn: bool,
}

impl<W: io::Write> Lines<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out, torn: false }
    }

    /// Writes `lines`, which end with a newline, and flushes.
    ///
    /// After a write that failed half-way (disk full), the next one begins on
    /// a line of its own, so that one record is lost and not two.
    pub fn put(&mut self, lines: &[u8]) -> Result<(), SinkError> {
        let whole = if self.torn {
            Cow::Owned([b"\n", lines].concat())
        } else {
            Cow::Borrowed(lines)
        };
        let mut written = 0;
        while written < whole.len() {
            match self.out.write(&whole[written..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(count) => {
                    written += count;
                    self.torn = whole[written - 1] != b'\n';
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(self.out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for so many bytes.
    struct Disk {
        room: usize,
        data: Vec<u8>,
    }

    impl io::Write for Disk {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            match data.len().min(self.room) {
                0 => Err(io::Error::from(io::ErrorKind::StorageFull)),
                count => {
                    self.room -= count;
                    self.data.extend_from_slice(&data[..count]);
                    Ok(count)
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn after_a_full_disk_the_next_record_is_whole() {
        let mut lines = Lines::new(Disk {
            room: 6,
            data: vec![],
        });
        lines.put(b"one\n").unwrap();
        assert!(matches!(lines.put(b"two\n"), Err(SinkError::Write(_))));
        assert!(matches!(lines.put(b"three\n"), Err(SinkError::Write(_))));
        lines.out.room = 100;
        lines.put(b"four\n").unwrap();
        lines.put(b"five\n").unwrap();
        assert_eq!(
            String::from_utf8_lossy(&lines.out.data),
            "one\ntw\nfour\nfive\n"
        );
    }

    #[test]
    fn a_closed_pipe_is_told_from_a_failure() {
        let closed = SinkError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(matches!(closed, SinkError::Closed));
    }
}
