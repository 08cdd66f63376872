//! Recordings: one line that says what was recorded, then one event a line in
//! its serde form. Readable by the owner alone.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{clock::Timestamp, event::Event, record::SCHEMA};

/// A recording cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the recording {}", path.display())]
pub(crate) struct RecordingError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// [`SCHEMA`]
    pub(crate) schema: String,
    /// `recording`
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// When it began.
    pub(crate) time: Timestamp,
    /// The node.
    pub(crate) node: String,
    /// The boot that findings' IDs belong to.
    pub(crate) boot_id: String,
    /// The threshold of stalls, ms.
    pub(crate) stall_threshold_ms: u64,
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
        node: &str,
        boot_id: &str,
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
        recorder.line(&Header {
            schema: SCHEMA.to_owned(),
            kind: String::from("recording"),
            time: Timestamp::now(),
            node: node.to_owned(),
            boot_id: boot_id.to_owned(),
            stall_threshold_ms: u64::try_from(stall_threshold.as_millis()).unwrap_or(u64::MAX),
        })?;
        recorder.flush()?;
        Ok(recorder)
    }

    /// Adds an event.
    pub(crate) fn write(&mut self, event: &Event) -> Result<(), RecordingError> {
        self.line(event)
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
    use crate::event::What;

    #[test]
    fn a_recording_is_private_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let mut recorder = Recorder::create(&path, "n", "b", Duration::from_secs(5)).unwrap();
        let event = Event {
            time: Timestamp::from_nanos(1),
            what: What::Tick,
        };
        recorder.write(&event).unwrap();
        recorder.flush().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        let header: Header = serde_json::from_str(lines.next().unwrap()).unwrap();
        assert_eq!(
            (header.kind.as_str(), header.boot_id.as_str()),
            ("recording", "b")
        );
        assert_eq!(
            serde_json::from_str::<Event>(lines.next().unwrap()).unwrap(),
            event
        );
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
        assert!(Recorder::create(&path, "n", "b", Duration::from_secs(5)).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}
