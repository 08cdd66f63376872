//! The files of a recording, and the thread that writes them.
//!
//! A disk that hangs must not hang whoever records, nor its end: lines wait in
//! a queue, and a thread that can be left behind ([`apart`]) writes them. Lines
//! for which there is no room are left out and counted.
//!
//! A recording has a size limit. At half of it the file becomes `FILE.1`, in
//! place of the one before, and a new one begins with the same first line and
//! the number of its part: what is newest is kept. Where the file cannot be
//! renamed, what it holds is given up and it begins anew.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Seek as _, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Header, RecordingError, recorder::failed};
use crate::apart;

/// Bytes of lines that wait.
const ROOM: usize = 8 << 20;
/// Of the thread; the memory is given page by page.
const STACK: usize = 256 << 10;

/// A file that has been opened for a recording.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(super) path: PathBuf,
    file: File,
}

impl Opened {
    /// Makes a new file; one that exists is left alone. A folder gets one of
    /// the time: a service that is started again goes on in the next.
    ///
    /// # Errors
    /// The file, or the one that its older half goes to, is there; or it
    /// cannot be made.
    pub(crate) fn new(path: &Path) -> Result<Self, RecordingError> {
        let path = match path.is_dir() {
            true => path.join(name(jiff::Timestamp::now())),
            false => path.to_owned(),
        };
        let older = older(&path);
        if fs::symlink_metadata(&older).is_ok() {
            return Err(failed(&older, io::ErrorKind::AlreadyExists.into()));
        }
        match create(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(failed(&path, source)),
        }
    }
}

/// What pods are called and where they ran is nobody else's business.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Of a recording in a folder: names in order are recordings in order.
fn name(begin: jiff::Timestamp) -> String {
    begin.strftime("run-%Y%m%dT%H%M%S.%3fZ.jsonl").to_string()
}

/// Where a recording's older half goes.
fn older(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".1");
    PathBuf::from(name)
}

/// Whole lines.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: u64,
}

/// The end of the queue that lines are put into.
#[derive(Debug)]
pub(super) struct Tape(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to write, or never will be again.
    more: Condvar,
    /// Something was written.
    less: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Batch>,
    /// What these take, and the one that is being written.
    bytes: usize,
    /// The lines of that one.
    writing: u64,
    /// Lines for which there was no room.
    lost: u64,
    failed: Option<io::Error>,
    /// The other end is gone.
    over: bool,
}

impl Tape {
    /// Starts the thread, which begins with the header.
    pub(super) fn start(opened: Opened, header: Header, limit: u64) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let mut files = Files {
            path: opened.path,
            file: opened.file,
            length: 0,
            half: limit / 2,
            header,
            left_out: 0,
        };
        apart::spawn("recording", STACK, move || {
            let mut written = files.begin();
            while written.is_ok() {
                let Some(batch) = own.next() else {
                    return;
                };
                written = files.write(&batch.bytes);
                own.wrote(std::mem::take(&mut files.left_out));
            }
            own.fail(written);
        })?;
        Ok(Self(shared))
    }

    /// Has these lines written; never waits.
    ///
    /// # Errors
    /// Earlier ones could not be written, and no more will be.
    pub(super) fn put(&self, batch: Batch) -> io::Result<()> {
        let mut state = self.0.lock();
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        if batch.lines == 0 {
            return Ok(());
        }
        // What is larger than the queue has it for itself.
        if state.bytes > 0 && state.bytes + batch.bytes.len() > ROOM {
            state.lost += batch.lines;
            return Ok(());
        }
        state.bytes += batch.bytes.len();
        state.waiting.push_back(batch);
        drop(state);
        self.0.more.notify_one();
        Ok(())
    }

    /// Lines that were left out since the last call, once there is room again:
    /// told before, they would be left out as well.
    pub(super) fn take_lost(&self) -> u64 {
        let mut state = self.0.lock();
        match state.bytes <= ROOM / 2 {
            true => std::mem::take(&mut state.lost),
            false => 0,
        }
    }

    /// Waits until all is written, for so long at most. Returns how many lines
    /// were not, with those that nobody was told of yet.
    ///
    /// # Errors
    /// Some could not be written.
    pub(super) fn end(&self, patience: Duration) -> io::Result<u64> {
        let busy = |state: &mut State| {
            let idle = state.waiting.is_empty() && state.writing == 0;
            !idle && state.failed.is_none()
        };
        let waited = self
            .0
            .less
            .wait_timeout_while(self.0.lock(), patience, busy);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        let waiting: u64 = state.waiting.iter().map(|batch| batch.lines).sum();
        state.waiting.clear();
        Ok(std::mem::take(&mut state.lost) + waiting + state.writing)
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.more.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be written next; `None` if nothing comes any more.
    fn next(&self) -> Option<Batch> {
        let idle = |state: &mut State| state.waiting.is_empty() && !state.over;
        let waited = self.more.wait_while(self.lock(), idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let batch = state.waiting.pop_front()?;
        state.writing = batch.lines;
        // It stays in the queue's account until it is written.
        Some(batch)
    }

    fn wrote(&self, left_out: u64) {
        let mut state = self.lock();
        state.writing = 0;
        state.lost += left_out;
        state.bytes = state.waiting.iter().map(|batch| batch.bytes.len()).sum();
        drop(state);
        self.less.notify_all();
    }

    fn fail(&self, how: io::Result<()>) {
        let mut state = self.lock();
        state.writing = 0;
        state.waiting.clear();
        state.failed = how.err();
        drop(state);
        self.less.notify_all();
    }
}

/// The files. Whatever goes wrong, each ends with a whole line, unless the
/// process is killed.
#[derive(Debug)]
struct Files {
    path: PathBuf,
    file: File,
    /// Bytes in the file: whole lines.
    length: u64,
    /// As many may there be, and the same in the older one.
    half: u64,
    header: Header,
    /// Lines for which not even a new file has room.
    left_out: u64,
}

impl Files {
    /// Writes the first line.
    fn begin(&mut self) -> io::Result<()> {
        let mut line = serde_json::to_vec(&self.header).map_err(io::Error::other)?;
        line.push(b'\n');
        self.add(&line)
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.has_room_for(lines) {
            return self.add(lines);
        }
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if !self.has_room_for(line) {
                self.next_part()?;
            }
            match self.has_room_for(line) {
                true => self.add(line)?,
                false => self.left_out += 1,
            }
        }
        Ok(())
    }

    fn has_room_for(&self, lines: &[u8]) -> bool {
        self.length + lines.len() as u64 <= self.half
    }

    fn next_part(&mut self) -> io::Result<()> {
        let renamed = fs::rename(&self.path, older(&self.path));
        match renamed.and_then(|()| create(&self.path)) {
            Ok(file) => self.file = file,
            Err(_) => {
                self.file.set_len(0)?;
                self.file.rewind()?;
            }
        }
        self.length = 0;
        self.header.part += 1;
        self.begin()
    }

    fn add(&mut self, lines: &[u8]) -> io::Result<()> {
        let (written, result) = write_all(&mut self.file, lines);
        let whole = match result {
            Ok(()) => written,
            Err(_) => after_newline(&lines[..written]),
        };
        self.length += whole as u64;
        if result.is_err() {
            // Only if this fails too is the last line torn.
            let _ = self.file.set_len(self.length);
        }
        result
    }
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
    use super::*;

    #[test]
    fn lines_that_are_written_in_part_are_told_from_whole_ones() {
        let mut room = [0; 10];
        let (written, result) = write_all(&mut &mut room[..], b"one\ntwo\nthree\n");
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::WriteZero);
        assert_eq!(after_newline(&room[..written]), 8);
        assert_eq!(after_newline(b"none"), 0);
    }

    #[test]
    fn in_a_folder_names_are_in_the_order_of_time() {
        let moment = |text: &str| name(text.parse().unwrap());
        let first = moment("2026-11-22T09:59:59.9987Z");
        assert_eq!(first, "run-20261122T095959.998Z.jsonl");
        assert!(first < moment("2026-11-22T10:00:00Z"));
    }

    #[test]
    fn a_queue_that_nobody_empties_is_bounded_and_what_it_leaves_out_is_counted() {
        let tape = Tape(Arc::default());
        let batch = || Batch {
            bytes: vec![b'x'; 1 << 20],
            lines: 10,
        };
        for _ in 0..20 {
            tape.put(batch()).unwrap();
        }
        assert_eq!(tape.0.lock().bytes, ROOM);
        assert_eq!(tape.take_lost(), 0, "there is no room yet");
        assert_eq!(tape.end(Duration::ZERO).unwrap(), 200);
    }
}
