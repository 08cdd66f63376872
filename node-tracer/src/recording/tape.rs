//! The files of a recording, and the thread that writes them.
//!
//! A disk that hangs must not hang whoever records, nor its end: lines wait in
//! a queue, and a thread that can be left behind ([`apart`]) writes them. Lines
//! for which there is no room are left out and counted. A disk that is full is
//! waited for in the same way.
//!
//! A recording has a size limit. At half of it the file becomes `FILE.1`, in
//! place of the one before, and a new one begins with the same first line and
//! the number of its part: what is newest is kept. Where that cannot be done, as
//! it may not be renamed or has been moved, the recording ends with what it has:
//! no file is emptied, and none that is not the recording's own is replaced.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Seek as _, SeekFrom, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{Header, RecordingError, recorder::failed};
use event::fault;
use sys::apart;

/// How often a full disk is tried again.
const FULL_PAUSE: Duration = Duration::from_secs(1);
/// And how often that it is full is told.
const FULL_TOLD: Duration = Duration::from_secs(60);
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

/// Standard output, for a command that does not go on.
pub(crate) const STDOUT: &str = "-";

impl Opened {
    /// A recording in memory, to be handed on as a whole at its end: a reader at the
    /// other end of a slow pipe loses no line.
    fn in_memory() -> Result<Self, RecordingError> {
        let path = PathBuf::from(STDOUT);
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        match rustix::fs::memfd_create("recording", flags) {
            Ok(file) => Ok(Self {
                path,
                file: file.into(),
            }),
            Err(error) => Err(failed(&path, error.into())),
        }
    }

    /// The file of one that is kept in memory.
    pub(super) fn memory(&self) -> io::Result<Option<File>> {
        let is_its = self.path == Path::new(STDOUT);
        is_its.then(|| self.file.try_clone()).transpose()
    }

    /// Makes a new file; one that exists is left alone. A folder gets one of
    /// the time: a service that is started again goes on in the next.
    ///
    /// # Errors
    /// The file, or the one that its older half goes to, is there; or it
    /// cannot be made.
    pub(crate) fn new(path: &Path) -> Result<Self, RecordingError> {
        if path == Path::new(STDOUT) {
            return Self::in_memory();
        }
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

#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: u64,
    /// A line of it that each later part begins with, too.
    pub(super) again: Option<Vec<u8>>,
}

/// The end of the queue that lines are put into.
#[derive(Debug)]
pub(super) struct Tape(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to write, or never will be again.
    more: Condvar,
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
    /// When it was last told that the disk has no room.
    full_at: Option<Instant>,
    /// That was told here, and to nobody yet.
    full: bool,
    /// No room is waited for any more.
    ending: bool,
    failed: Option<io::Error>,
    /// A part has begun that nobody was told of yet.
    begun: bool,
    /// The other end is gone.
    over: bool,
}

impl State {
    /// Whether the disk, which has no room, is not known to be full.
    fn is_full_anew(&mut self) -> bool {
        let known = self.full_at.is_some_and(|at| at.elapsed() < FULL_TOLD);
        if !known {
            self.full_at = Some(Instant::now());
            self.full = true;
        }
        !known
    }
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
            older: None,
            header,
            again: Vec::new(),
            left_out: 0,
        };
        apart::spawn("recording", STACK, move || {
            let mut written = own.write(&mut files, &[]);
            while written.is_ok() {
                let Some(batch) = own.next() else {
                    return;
                };
                let part = files.header.part;
                // A line that would fill the parts stands in the first alone.
                let again = batch
                    .again
                    .filter(|line| line.len() as u64 <= files.half / 4);
                files.again = again.unwrap_or(files.again);
                written = own.write(&mut files, &batch.bytes);
                let begun = files.header.part != part;
                own.wrote(std::mem::take(&mut files.left_out), begun);
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

    /// Whether the disk was found full since the last call.
    pub(super) fn take_full(&self) -> bool {
        std::mem::take(&mut self.0.lock().full)
    }

    /// Whether another part has begun since the last call.
    pub(super) fn take_begun(&self) -> bool {
        std::mem::take(&mut self.0.lock().begun)
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
        self.0.lock().ending = true;
        self.0.more.notify_one();
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

    /// Writes lines. Those for which the disk has no room are tried again until
    /// it has, and once more at the end.
    fn write(&self, files: &mut Files, mut lines: &[u8]) -> io::Result<()> {
        let path = files.path.display().to_string();
        let (mut said, mut last) = (false, false);
        loop {
            let written = files.write(&mut lines);
            let error = written.as_ref().err().filter(|error| is_full(error));
            let Some(error) = error.filter(|_| !last) else {
                if said && written.is_ok() {
                    tracing::warn!("the recording {path} goes on");
                }
                return written;
            };
            // A disk can be full again each second.
            if !said && self.lock().is_full_anew() {
                let error = fault::chain(error);
                tracing::warn!(
                    "cannot write the recording {path}: {error}; it goes on when there is room"
                );
                said = true;
            }
            let goes_on = |state: &mut State| !state.ending && !state.over;
            let waited = self
                .more
                .wait_timeout_while(self.lock(), FULL_PAUSE, goes_on);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            last = !goes_on(&mut state);
        }
    }

    fn wrote(&self, left_out: u64, begun: bool) {
        let mut state = self.lock();
        state.writing = 0;
        state.begun |= begun;
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

/// Whether the disk has no room, or none for this user.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// The files. Whatever goes wrong, each ends with a whole line, unless the
/// process is killed.
#[derive(Debug)]
struct Files {
    path: PathBuf,
    file: File,
    /// Bytes in the file: whole lines, the header first.
    length: u64,
    /// As many may there be, and the same in the older one.
    half: u64,
    /// The older one, once there is one.
    older: Option<Identity>,
    header: Header,
    /// What follows it in each part but the first.
    again: Vec<u8>,
    /// Lines for which not even a new file has room.
    left_out: u64,
}

/// Device and inode: which file it is, wherever it has been moved to.
type Identity = (u64, u64);

fn identity(of: &Metadata) -> Identity {
    (of.dev(), of.ino())
}

fn identity_at(path: &Path) -> io::Result<Option<Identity>> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(identity(&found))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Files {
    /// Writes the first line.
    fn begin(&mut self) -> io::Result<()> {
        let mut lines = self.first_line()?;
        if self.header.part > 0 {
            lines.extend(&self.again);
        }
        let written = self.add(&mut lines.as_slice());
        if written.is_err() {
            // It begins anew, with all that follows the first line.
            self.cut(0);
        }
        written
    }

    fn first_line(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(&self.header).map_err(io::Error::other)?;
        line.push(b'\n');
        Ok(line)
    }

    /// Writes whole lines, and takes what is written or left out from them.
    fn write(&mut self, lines: &mut &[u8]) -> io::Result<()> {
        if self.length == 0 {
            self.begin()?;
        }
        while !lines.is_empty() {
            if self.has_room_for(lines) {
                return self.add(lines);
            }
            let newline = lines.iter().position(|byte| *byte == b'\n');
            let (mut line, rest) = lines.split_at(newline.map_or(lines.len(), |at| at + 1));
            if self.has_room_for(line) {
                self.add(&mut line)?;
            } else if self.would_have_room_for(line)? {
                self.next_part()?;
                continue;
            } else {
                self.left_out += 1;
            }
            *lines = rest;
        }
        Ok(())
    }

    fn has_room_for(&self, lines: &[u8]) -> bool {
        self.length + lines.len() as u64 <= self.half
    }

    /// Whether a new file would, whose number has a digit more at most.
    fn would_have_room_for(&self, line: &[u8]) -> io::Result<bool> {
        const ONLY_WITH_A_NUMBER: usize = ",\"part\":1".len();
        let first = self.first_line()?.len() + ONLY_WITH_A_NUMBER + self.again.len();
        Ok((first + line.len()) as u64 <= self.half)
    }

    fn next_part(&mut self) -> io::Result<()> {
        let older = older(&self.path);
        let named = |what: &str, error: io::Error| {
            io::Error::new(error.kind(), format!("{what} {}: {error}", older.display()))
        };
        self.make_older(&older)
            .map_err(|error| named("it has reached half of its limit and cannot become", error))?;
        self.file = create(&self.path)
            .map_err(|error| named("it cannot begin anew; what was recorded is in", error))?;
        self.length = 0;
        self.header.part += 1;
        self.begin()
    }

    /// Moves the file to where the older half is.
    fn make_older(&mut self, older: &Path) -> io::Result<()> {
        let own = identity(&self.file.metadata()?);
        // There was no room for a new one.
        if self.older == Some(own) {
            return Ok(());
        }
        if identity_at(&self.path)? != Some(own) {
            return Err(io::Error::other("it was moved, or removed"));
        }
        if identity_at(older)?.is_some_and(|there| Some(there) != self.older) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::rename(&self.path, older)?;
        self.older = Some(own);
        Ok(())
    }

    /// Writes lines that there is room for, and takes those that are whole from
    /// them.
    fn add(&mut self, lines: &mut &[u8]) -> io::Result<()> {
        let (written, result) = write_all(&mut self.file, lines);
        let whole = match result {
            Ok(()) => written,
            Err(_) => after_newline(&lines[..written]),
        };
        *lines = &lines[whole..];
        self.length += whole as u64;
        if result.is_err() {
            self.cut(self.length);
        }
        result
    }

    /// Only if this fails is the last line torn.
    fn cut(&mut self, length: u64) {
        self.length = length;
        let _ = self.file.set_len(length);
        let _ = self.file.seek(SeekFrom::Start(length));
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
            again: None,
        };
        for _ in 0..20 {
            tape.put(batch()).unwrap();
        }
        assert_eq!(tape.0.lock().bytes, ROOM);
        assert_eq!(tape.take_lost(), 0, "there is no room yet");
        assert_eq!(tape.end(Duration::ZERO).unwrap(), 200);
    }

    fn files(folder: &Path) -> Files {
        let Opened { path, file } = Opened::new(&folder.join("run")).unwrap();
        let header = serde_json::json!({
            "schema": "s", "type": "recording", "time": "2026-11-22T10:00:00Z", "node": "n",
            "boot_id": "b", "stall_threshold_ms": 1,
        });
        let mut files = Files {
            path,
            file,
            length: 0,
            half: 1000,
            older: None,
            header: serde_json::from_value(header).unwrap(),
            again: Vec::new(),
            left_out: 0,
        };
        files.write(&mut &[][..]).unwrap();
        files
    }

    /// Five of them fill a file.
    fn line(of: u8) -> Vec<u8> {
        [vec![of; 150], vec![b'\n']].concat()
    }

    fn fill(files: &mut Files) {
        while files.has_room_for(&line(b'x')) {
            files.write(&mut &line(b'x')[..]).unwrap();
        }
    }

    #[test]
    fn a_recording_that_was_moved_away_ends_and_is_kept_and_so_is_what_is_in_its_place() {
        for replaced in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            let mut files = files(folder.path());
            fill(&mut files);
            fs::rename(at("run"), at("saved")).unwrap();
            if replaced {
                fs::write(at("run"), "precious").unwrap();
            }
            let before = fs::read(at("saved")).unwrap();
            let error = files.write(&mut &line(b'y')[..]).unwrap_err().to_string();
            assert!(error.contains("moved"), "{error}");
            assert_eq!(fs::read(at("saved")).unwrap(), before);
            let there = fs::read_to_string(at("run")).ok();
            assert_eq!(there.as_deref(), replaced.then_some("precious"));
            assert!(!at("run.1").exists());
        }
    }

    #[test]
    fn a_recording_that_cannot_be_renamed_ends_and_says_why_and_nothing_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut files = files(folder.path());
        fill(&mut files);
        files.write(&mut &line(b'y')[..]).unwrap();
        fill(&mut files);
        fs::rename(at("run.1"), at("saved")).unwrap();
        fs::write(at("run.1"), "precious").unwrap();
        let before = fs::read(at("run")).unwrap();
        let error = files.write(&mut &line(b'z')[..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("run.1"), "{error}");
        assert_eq!(fs::read(at("run")).unwrap(), before);
        assert_eq!(fs::read_to_string(at("run.1")).unwrap(), "precious");
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_written_once_when_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path());
        fill(&mut files);
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let lines = [line(b'y'), line(b'z')].concat();
        let mut left = &lines[..];
        let first = std::mem::replace(&mut files.file, full());
        files.length = 0;
        let error = files.write(&mut left).unwrap_err();
        assert!(is_full(&error) && left == lines, "{error}");
        files.file = first;
        files.file.set_len(0).unwrap();
        files.file.rewind().unwrap();
        files.write(&mut left).unwrap();
        let text = fs::read(folder.path().join("run")).unwrap();
        let expected = [files.first_line().unwrap(), lines.clone()].concat();
        assert_eq!((text, left), (expected, &[][..]));
    }

    #[test]
    fn a_part_begins_with_all_that_it_is_read_with_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path());
        files.write(&mut &line(b'x')[..]).unwrap();
        (files.header.part, files.length) = (1, 0);
        files.again = line(b'a');
        files.file = File::options().write(true).open("/dev/full").unwrap();
        assert!(is_full(&files.begin().unwrap_err()));
        assert_eq!(files.length, 0);
    }

    #[test]
    fn a_disk_that_is_full_each_second_is_told_once_a_minute() {
        let mut state = State::default();
        assert_eq!([0; 3].map(|_| state.is_full_anew()), [true, false, false]);
        state.full_at = Instant::now().checked_sub(FULL_TOLD);
        assert!(state.is_full_anew());
    }

    #[test]
    fn a_line_that_fits_into_no_file_is_counted_and_costs_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path());
        fill(&mut files);
        let before = fs::read(folder.path().join("run")).unwrap();
        let long = [vec![b'y'; 900], vec![b'\n']].concat();
        files
            .write(&mut &[long.clone(), long].concat()[..])
            .unwrap();
        assert_eq!(files.left_out, 2);
        assert_eq!(fs::read(folder.path().join("run")).unwrap(), before);
        assert!(!folder.path().join("run.1").exists());
    }
}
