//! Recordings, written.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;

use super::{Command, Header, Note};
use crate::{config::Node, event::Event};

/// A recording cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the recording {}", path.display())]
pub(crate) struct RecordingError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// A recording being written.
#[derive(Debug)]
pub(crate) struct Recorder {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Recorder {
    /// Begins a recording in a new file; one that exists is left alone.
    pub(crate) fn create(
        path: &Path,
        command: Command,
        node: &Node,
        stall_threshold: Duration,
    ) -> Result<Self, RecordingError> {
        let failed = |source| RecordingError {
            path: path.to_owned(),
            source,
        };
        // What pods are called and where they ran is nobody else's business.
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        let mut recorder = Self {
            path: path.to_owned(),
            out: BufWriter::new(file.map_err(failed)?),
        };
        recorder.line(&Header::new(command, node, stall_threshold))?;
        recorder.flush()?;
        Ok(recorder)
    }

    /// Adds an event.
    pub(crate) fn write(&mut self, event: &Event) -> Result<(), RecordingError> {
        self.line(event)
    }

    /// Adds what is no event.
    pub(crate) fn note(&mut self, note: &Note) -> Result<(), RecordingError> {
        self.line(note)
    }

    /// Hands all to the system.
    pub(crate) fn flush(&mut self) -> Result<(), RecordingError> {
        let result = self.out.flush();
        result.map_err(|source| RecordingError {
            path: self.path.clone(),
            source,
        })
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), RecordingError> {
        let result = serde_json::to_vec(value)
            .map_err(io::Error::other)
            .and_then(|mut line| {
                line.push(b'\n');
                self.out.write_all(&line)
            });
        result.map_err(|source| RecordingError {
            path: self.path.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::{clock::Timestamp, event::What};

    fn create(path: &Path) -> Result<Recorder, RecordingError> {
        let node = Node {
            root: PathBuf::from("/"),
            name: String::from("n"),
            boot_id: String::from("b"),
        };
        let threshold = Duration::from_micros(1_500);
        Recorder::create(path, Command::Scan, &node, threshold)
    }

    #[test]
    fn a_recording_is_private_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let mut recorder = create(&path).unwrap();
        let event = Event {
            time: Timestamp::from_nanos(1),
            what: What::Tick,
        };
        recorder.write(&event).unwrap();
        recorder.note(&Note::Judged).unwrap();
        recorder.flush().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        let header: Header = serde_json::from_str(lines.next().unwrap()).unwrap();
        assert_eq!(
            (header.kind.as_str(), header.command),
            ("recording", Command::Scan)
        );
        let settings = header.settings();
        assert_eq!(
            (settings.boot_id.as_str(), settings.node.as_str()),
            ("b", "n")
        );
        assert_eq!(settings.stall_threshold, Duration::from_micros(1_500));
        assert_eq!(
            serde_json::from_str::<Event>(lines.next().unwrap()).unwrap(),
            event
        );
        assert_eq!(lines.next(), Some(r#"{"type":"judged"}"#));
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn a_file_that_is_there_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        std::fs::write(&path, "precious").unwrap();
        assert!(create(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}
