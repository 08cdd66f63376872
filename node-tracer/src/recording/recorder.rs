//! Recordings, written.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
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

/// Bytes that are written together.
const TOGETHER: usize = 64 << 10;

/// A recording being written. Whatever goes wrong, the file ends with a whole
/// line, unless the process is killed.
#[derive(Debug)]
pub(crate) struct Recorder {
    path: PathBuf,
    file: File,
    /// Lines that are not in the file yet.
    waiting: Vec<u8>,
    /// Bytes in the file: whole lines.
    length: u64,
}

impl Recorder {
    /// Begins a recording in a new file; one that exists is left alone. A
    /// folder gets one of the time: a service that is started again goes on in
    /// the next.
    pub(crate) fn create(
        path: &Path,
        command: Command,
        node: &Node,
        stall_threshold: Duration,
    ) -> Result<Self, RecordingError> {
        let path = &match path.is_dir() {
            true => path.join(name(jiff::Timestamp::now())),
            false => path.to_owned(),
        };
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
            file: file.map_err(failed)?,
            waiting: Vec::new(),
            length: 0,
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
        let (written, result) = write_all(&mut self.file, &self.waiting);
        let whole = match result {
            Ok(()) => written,
            Err(_) => after_newline(&self.waiting[..written]),
        };
        self.waiting.clear();
        self.length += whole as u64;
        if result.is_err() {
            // Only if this fails too is the last line torn.
            let _ = self.file.set_len(self.length);
        }
        result.map_err(|source| self.failed(source))
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), RecordingError> {
        let line = serde_json::to_vec(value);
        let line = line.map_err(|error| self.failed(io::Error::other(error)))?;
        self.waiting.extend_from_slice(&line);
        self.waiting.push(b'\n');
        match self.waiting.len() < TOGETHER {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn failed(&self, source: io::Error) -> RecordingError {
        RecordingError {
            path: self.path.clone(),
            source,
        }
    }
}

/// Of a recording in a folder: names in order are recordings in order.
fn name(begin: jiff::Timestamp) -> String {
    begin.strftime("run-%Y%m%dT%H%M%S.%3fZ.jsonl").to_string()
}

/// Writes, and says how much of it was written also if not all was.
fn write_all(out: &mut impl Write, data: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < data.len() {
        match out.write(&data[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

/// How much of it is whole lines.
fn after_newline(data: &[u8]) -> usize {
    let last = data.iter().rposition(|byte| *byte == b'\n');
    last.map_or(0, |at| at + 1)
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
        assert!(settings.surveyed, "a scan visits all namespaces");
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
    fn lines_that_are_written_in_part_are_told_from_whole_ones() {
        let mut room = [0; 10];
        let (written, result) = write_all(&mut &mut room[..], b"one\ntwo\nthree\n");
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::WriteZero);
        assert_eq!(after_newline(&room[..written]), 8);
        assert_eq!(after_newline(b"none"), 0);
    }

    #[test]
    fn in_a_folder_each_run_has_a_file_of_its_own() {
        let moment = |text: &str| name(text.parse().unwrap());
        let first = moment("2026-11-22T09:59:59.9987Z");
        assert_eq!(first, "run-20261122T095959.998Z.jsonl");
        assert!(first < moment("2026-11-22T10:00:00Z"));
        let folder = tempfile::tempdir().unwrap();
        drop(create(folder.path()).unwrap());
        let mut files = std::fs::read_dir(folder.path()).unwrap();
        let made = files.next().unwrap().unwrap().file_name();
        let made = made.to_string_lossy();
        assert!(
            made.starts_with("run-") && made.ends_with("Z.jsonl"),
            "{made}"
        );
        assert!(files.next().is_none());
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
