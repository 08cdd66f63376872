//! Recordings, written.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;

use super::{
    Command, Header, Marker,
    tape::{Batch, Opened, Tape},
};
use crate::config::Node;
use event::Event;
use node::procfs::Bounded;

/// A recording cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the recording {}", path.display())]
pub(crate) struct RecordingError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

pub(super) fn failed(path: &Path, source: io::Error) -> RecordingError {
    RecordingError {
        path: path.to_owned(),
        source,
    }
}

impl RecordingError {
    /// Whether somebody with more rights could.
    pub(crate) fn is_denied(&self) -> bool {
        self.source.kind() == io::ErrorKind::PermissionDenied
    }
}

/// Bytes that are written together.
const TOGETHER: usize = 64 << 10;
/// How long a disk may take to make a file.
const OPEN: Duration = Duration::from_secs(10);

/// A recording being written, by a thread of its own: nobody here waits for
/// the disk.
#[derive(Debug)]
pub(crate) struct Recorder {
    path: PathBuf,
    tape: Tape,
    /// Lines that nobody was given yet.
    waiting: Batch,
    /// What is to go to standard output.
    memory: Option<File>,
}

impl Recorder {
    /// Makes the file of a recording.
    ///
    /// # Errors
    /// See [`Opened::new`]; or the disk does not answer.
    pub(crate) fn open(path: &Path) -> Result<Opened, RecordingError> {
        let of = path.to_owned();
        let opened = Bounded::default().read(OPEN, move || Opened::new(&of));
        opened.unwrap_or_else(|error| Err(failed(path, io::Error::other(error))))
    }

    /// Begins a recording of at most so many bytes.
    ///
    /// # Errors
    /// There can be no thread.
    pub(crate) fn start(
        opened: Opened,
        limit: u64,
        command: Command,
        node: &Node,
        stall_threshold: Duration,
    ) -> Result<Self, RecordingError> {
        let path = opened.path.clone();
        let memory = opened.memory().map_err(|source| failed(&path, source))?;
        let header = Header::new(command, node, stall_threshold);
        match Tape::start(opened, header, limit) {
            Ok(tape) => Ok(Self {
                path,
                tape,
                waiting: Batch::default(),
                memory,
            }),
            Err(source) => Err(failed(&path, source)),
        }
    }

    /// Adds an event.
    ///
    /// # Errors
    /// Earlier lines could not be written.
    pub(crate) fn write(&mut self, event: &Event) -> Result<(), RecordingError> {
        self.line(event)
    }

    /// Adds what is no event.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn note(&mut self, note: &Marker) -> Result<(), RecordingError> {
        if matches!(note, Marker::Coverage { .. }) {
            // A part is read without the one before as well.
            self.flush()?;
            self.line_of(note)?;
            self.waiting.again = Some(self.waiting.bytes.clone());
            return self.flush();
        }
        self.line(note)
    }

    /// Hands all over to be written.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn flush(&mut self) -> Result<(), RecordingError> {
        let batch = std::mem::take(&mut self.waiting);
        self.tape.put(batch).map_err(|source| self.failed(source))
    }

    /// Lines that are not in the recording as the disk was too slow, since the
    /// last call, and as far as that is over.
    pub(crate) fn take_lost(&self) -> u64 {
        self.tape.take_lost()
    }

    /// Whether its disk was found full since the last call; it is told once a minute.
    pub(crate) fn take_full(&self) -> bool {
        self.tape.take_full()
    }

    /// Whether another part has begun since the last call, which has nothing of
    /// what was told before it.
    pub(crate) fn take_begun(&self) -> bool {
        self.tape.take_begun()
    }

    /// Waits until all is written, for so long at most. Returns how many lines
    /// did not get there.
    ///
    /// # Errors
    /// They could not be written.
    pub(crate) fn end(&mut self, patience: Duration) -> Result<u64, RecordingError> {
        self.flush()?;
        let left = self.tape.end(patience);
        left.map_err(|source| self.failed(source))
    }

    /// Writes one that was kept in memory to standard output, when it has ended.
    ///
    /// # Errors
    /// It cannot be written there.
    pub(crate) fn hand_on(&mut self) -> Result<(), RecordingError> {
        let Some(mut memory) = self.memory.take() else {
            return Ok(());
        };
        let mut out = io::stdout().lock();
        let copied = memory.rewind().and_then(|()| {
            io::copy(&mut memory, &mut out)?;
            out.flush()
        });
        copied.map_err(|source| failed(Path::new("standard output"), source))
    }

    /// Its file, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), RecordingError> {
        self.line_of(value)?;
        match self.waiting.bytes.len() < TOGETHER {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn line_of(&mut self, value: &impl Serialize) -> Result<(), RecordingError> {
        let Batch { bytes, lines, .. } = &mut self.waiting;
        let written = serde_json::to_writer(&mut *bytes, value);
        written.map_err(|error| failed(&self.path, io::Error::other(error)))?;
        bytes.push(b'\n');
        *lines += 1;
        Ok(())
    }

    fn failed(&self, source: io::Error) -> RecordingError {
        failed(&self.path, source)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use event::{What, clock::Timestamp};

    const LONG: Duration = Duration::from_secs(20);

    fn create(path: &Path, limit: u64) -> Result<Recorder, RecordingError> {
        let node = Node {
            root: PathBuf::from("/"),
            name: String::from("n"),
            boot_id: String::from("b"),
            is_named: true,
        };
        let threshold = Duration::from_micros(1_500);
        let opened = Recorder::open(path)?;
        Recorder::start(opened, limit, Command::Scan, &node, threshold)
    }

    fn tick(nanos: i64) -> Event {
        Event {
            time: Timestamp::from_nanos(nanos),
            what: What::Tick,
        }
    }

    #[test]
    fn a_recording_is_private_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let mut recorder = create(&path, 1 << 20).unwrap();
        recorder.write(&tick(1)).unwrap();
        recorder.note(&Marker::Judged).unwrap();
        assert_eq!(recorder.end(LONG).unwrap(), 0);
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
            tick(1)
        );
        assert_eq!(lines.next(), Some(r#"{"type":"judged"}"#));
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn at_its_limit_the_newest_half_is_kept_in_parts_with_a_header_each() {
        const LIMIT: u64 = 64 << 10;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let mut recorder = create(&path, LIMIT).unwrap();
        for n in 0..10_000 {
            recorder.write(&tick(n)).unwrap();
        }
        assert_eq!(recorder.end(LONG).unwrap(), 0);
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let (older, newer) = (read("run.jsonl.1"), read("run.jsonl"));
        assert!((older.len() + newer.len()) as u64 <= LIMIT);
        assert!(older.len() as u64 > LIMIT / 4, "{}", older.len());
        let part = |text: &str| {
            let line = text.lines().next().unwrap();
            serde_json::from_str::<Header>(line).unwrap().part
        };
        assert!(part(&older) > 0);
        assert_eq!(part(&newer), part(&older) + 1);
        let events = older.lines().skip(1).chain(newer.lines().skip(1));
        let events: Vec<Event> = events
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let first = 10_000 - events.len() as i64;
        let expected: Vec<Event> = (first..10_000).map(tick).collect();
        assert_eq!(events, expected);
    }

    #[test]
    fn each_part_after_the_first_is_told_of_once_and_says_what_the_run_can_see() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let mut recorder = create(&path, 64 << 10).unwrap();
        let signals = Vec::new();
        recorder.note(&Marker::Coverage { signals }).unwrap();
        recorder.end(LONG).unwrap();
        assert!(!recorder.take_begun());
        for n in 0..1_000 {
            recorder.write(&tick(n)).unwrap();
        }
        recorder.end(LONG).unwrap();
        assert!(recorder.take_begun());
        assert!(!recorder.take_begun());
        let text = std::fs::read_to_string(&path).unwrap();
        let second: Marker = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
        assert!(matches!(second, Marker::Coverage { .. }), "{second:?}");
    }

    #[test]
    fn in_a_folder_each_run_has_a_file_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        create(folder.path(), 1 << 20).unwrap().end(LONG).unwrap();
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
    fn a_file_that_is_there_is_left_alone_and_so_is_one_in_the_older_ones_place() {
        let folder = tempfile::tempdir().unwrap();
        for (there, asked) in [("a", "a"), ("b.1", "b")] {
            let path = folder.path().join(there);
            std::fs::write(&path, "precious").unwrap();
            assert!(create(&folder.path().join(asked), 1 << 20).is_err());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        }
    }
}
