//! One line on a terminal that says what is waited for, and for how long
//! already. It comes after a second and goes when there is something to say.
//!
//! It is on standard error, and only where that is a terminal in the foreground
//! and nobody has asked for quiet. A pipe on standard output is read by another
//! program, which has the terminal then (`| less`, `| jq`), so there is none
//! either. What else is written to the terminal goes through [`aside`], which
//! takes the line away first. The line never waits for a terminal that takes
//! nothing (Ctrl-S), and nobody waits for who does: it is left standing then, and
//! taken away with the next chance.
//!
//! It is one line without a bar and without templates: a hundred lines here in
//! place of a library that brings its own terminals and threads.

use logs::read::BytesRead;
use std::{
    fmt::Write as _,
    fs::Metadata,
    io::{self, IsTerminal as _, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, fstat},
    termios::tcgetpgrp,
};

use unicode_width::UnicodeWidthChar as _;

use crate::terminal;
use event::{
    finding::State,
    record::{Body, Record},
    wording::{duration::length, escape::Printable, plural as words},
};
use sink::{Shown as Written, Sink, SinkError};

/// What takes less is not worth a line.
const FIRST: Duration = Duration::from_secs(1);
/// Nor is a part of it that takes less than this.
const EACH: Duration = Duration::from_millis(150);
const PAUSE: Duration = Duration::from_millis(250);
/// Columns of a terminal that does not know them.
const COLUMNS: usize = 80;
/// Erases what stands behind the cursor (ECMA-48: EL).
const ERASE: &str = "\x1b[K";

static LINE: Mutex<Line> = Mutex::new(Line {
    started: None,
    stack: Vec::new(),
    next: 0,
    drawn: false,
    writers: 0,
    thread: false,
});
static CHANGED: Condvar = Condvar::new();

struct Line {
    /// When the command began; `None` where there is to be no line.
    started: Option<Instant>,
    /// What goes on; the last one is told.
    stack: Vec<Item>,
    next: u64,
    drawn: bool,
    /// Who writes to where it may be; it is not drawn meanwhile.
    writers: usize,
    thread: bool,
}

struct Item {
    number: u64,
    since: Instant,
    text: Box<dyn Fn(Duration) -> String + Send>,
}

/// What goes on until this is dropped.
#[must_use = "it is over when this is dropped"]
#[derive(Debug)]
pub(crate) struct Shown(Option<u64>);

/// Allows lines, if there is somebody to see them. The command begins now.
pub(crate) fn begin() {
    let stderr = io::stderr();
    let piped = fstat(io::stdout())
        .map(|stat| FileType::from_raw_mode(stat.st_mode))
        .is_ok_and(|kind| matches!(kind, FileType::Fifo | FileType::Socket));
    if stderr.is_terminal() && !piped && !terminal::is_quiet() && !terminal::is_dumb() {
        lock().started = Some(Instant::now());
    }
}

/// `waiting for CRI (3 s)…`
pub(crate) fn waiting(what: &'static str) -> Shown {
    show(move |since| format!("waiting for {what} ({} s)…", since.as_secs()))
}

/// `attaching (3 s)…`
pub(crate) fn doing(what: &'static str) -> Shown {
    show(move |since| format!("{what} ({} s)…", since.as_secs()))
}

/// Says what goes on, by the time for which it does.
pub(crate) fn show(text: impl Fn(Duration) -> String + Send + 'static) -> Shown {
    let mut line = lock();
    if line.started.is_none() {
        return Shown(None);
    }
    let number = line.next;
    line.next += 1;
    line.stack.push(Item {
        number,
        since: Instant::now(),
        text: Box::new(text),
    });
    if !line.thread {
        // Without one there is no line, and nothing is lost by it.
        let drawer = thread::Builder::new().name(String::from("progress"));
        line.thread = drawer.spawn(draw).is_ok();
    }
    drop(line);
    CHANGED.notify_one();
    Shown(Some(number))
}

impl Shown {
    /// Whether there is a line.
    pub(crate) fn is_shown(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let Some(number) = self.0 else {
            return;
        };
        let mut line = lock();
        line.stack.retain(|item| item.number != number);
        line.erase();
        drop(line);
        CHANGED.notify_one();
    }
}

/// Writes to where the line may be. Nobody else is kept waiting if that takes
/// nothing.
pub(crate) fn aside<T>(write: impl FnOnce() -> T) -> T {
    /// Lets the line be drawn again.
    struct Writer;
    impl Drop for Writer {
        fn drop(&mut self) {
            lock().writers -= 1;
        }
    }
    let mut line = lock();
    line.erase();
    // What could not be taken away is behind what is written now.
    line.drawn = false;
    line.writers += 1;
    drop(line);
    let _writer = Writer;
    write()
}

/// Standard output, aside the line.
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        aside(|| io::stdout().write(data))
    }

    fn flush(&mut self) -> io::Result<()> {
        aside(|| io::stdout().flush())
    }
}

fn lock() -> MutexGuard<'static, Line> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that draws, until nothing goes on.
fn draw() {
    let mut line = lock();
    let mut last: Option<Instant> = None;
    while let Some((item, started)) = line.stack.last().zip(line.started) {
        let soonest = (started + FIRST).max(item.since + EACH);
        let soonest = last.map_or(soonest, |last| soonest.max(last + PAUSE));
        let now = Instant::now();
        if now >= soonest {
            let text = (item.text)(item.since.elapsed());
            line.put(&text);
            last = Some(now);
        }
        let wait = soonest.saturating_duration_since(now).max(EACH);
        let waited = CHANGED.wait_timeout(line, wait);
        line = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    line.thread = false;
}

impl Line {
    fn put(&mut self, text: &str) {
        let stderr = io::stderr();
        if self.writers > 0 || !may_write(&stderr) {
            return;
        }
        let columns = terminal::columns(&stderr).unwrap_or(COLUMNS);
        let text = fitting(text, columns.saturating_sub(1));
        // It is only for who looks.
        let _ = stderr
            .lock()
            .write_all(format!("\r{text}{ERASE}").as_bytes());
        self.drawn = true;
    }

    fn erase(&mut self) {
        let stderr = io::stderr();
        if self.drawn && may_write(&stderr) {
            let _ = stderr.lock().write_all(format!("\r{ERASE}").as_bytes());
            self.drawn = false;
        }
    }
}

/// Whether what is written keeps nobody waiting, nor stops the process (`stty
/// tostop`, in the background).
fn may_write(stderr: &io::Stderr) -> bool {
    is_in_foreground() && takes_now(stderr)
}

/// Whoever runs it in the background has the terminal for something else.
fn is_in_foreground() -> bool {
    // Of a terminal that is not the session's own there is no foreground.
    tcgetpgrp(io::stderr()).map_or(true, |group| group == rustix::process::getpgrp())
}

fn takes_now(stderr: &io::Stderr) -> bool {
    let mut files = [PollFd::new(stderr, PollFlags::OUT)];
    poll(&mut files, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// As much of a line as there is room for. Some characters take two columns, and
/// a line that is wider than the terminal is two, of which one would be left
/// standing.
fn fitting(text: &str, columns: usize) -> String {
    let width = |c: char| c.width().unwrap_or(0);
    if text.chars().map(width).sum::<usize>() <= columns {
        return text.to_owned();
    }
    // Nor is there room for what says that there is more.
    let Some(room) = columns.checked_sub(1) else {
        return String::new();
    };
    let mut taken = 0;
    let fits = |c: &char| {
        taken += width(*c);
        taken <= room
    };
    let mut short: String = text.chars().take_while(fits).collect();
    short.push('…');
    short
}

/// How much of files was read, and what was found in it; clones count the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) read: BytesRead,
    findings: Arc<AtomicU64>,
}

impl Tally {
    /// Says how far these files are read.
    pub(crate) fn show(&self, files: &[PathBuf]) -> Shown {
        let tally = self.clone();
        let size = |path: &PathBuf| {
            let metadata = std::fs::metadata(path).ok()?;
            Some(metadata)
                .filter(Metadata::is_file)
                .map(|file| file.len())
        };
        let total: Option<u64> = files.iter().map(size).sum();
        let first = files.first().map(PathBuf::as_path);
        let name = match (files.len(), first) {
            (0, _) | (_, None) => String::new(),
            (1, Some(path)) if path == Path::new("-") => String::from("standard input"),
            (1, Some(path)) => Printable(path.display()).to_string(),
            (count, _) => format!("{count} files"),
        };
        show(move |since| {
            let findings = tally.findings.load(Relaxed);
            far(&name, tally.read.get(), total, since, findings)
        })
    }

    /// Counts findings on their way to a sink.
    pub(crate) fn findings(&self, inner: Box<dyn Sink>) -> Box<dyn Sink> {
        let findings = Arc::clone(&self.findings);
        Box::new(Counted { inner, findings })
    }
}

struct Counted {
    inner: Box<dyn Sink>,
    findings: Arc<AtomicU64>,
}

impl Sink for Counted {
    fn write(&mut self, record: &Record<'_>) -> Result<Written, SinkError> {
        if let Body::Finding {
            state: State::Open, ..
        } = record.body
        {
            self.findings.fetch_add(1, Relaxed);
        }
        self.inner.write(record)
    }

    fn look(&mut self, event: &event::Event) {
        self.inner.look(event);
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.inner.flush()
    }
}

/// `kubelet.log: 132 of 1,204 MiB (11 %), 45 MiB/s, 24 s left; 3 findings so far`
fn far(name: &str, read: u64, total: Option<u64>, since: Duration, findings: u64) -> String {
    const MIB: f64 = 1_048_576.0;
    let mib = |bytes: f64| match bytes / MIB {
        small if small < 10.0 => format!("{small:.1}"),
        large => format!("{large:.0}"),
    };
    let rate = read as f64 / since.as_secs_f64().max(0.001);
    let mut text = format!("{name}: {}", mib(read as f64));
    // What has grown meanwhile is read to its end, too.
    if let Some(total) = total.filter(|total| *total > 0 && *total >= read) {
        let percent = read.saturating_mul(100) / total;
        let _ = write!(text, " of {} MiB ({percent} %)", mib(total as f64));
    } else {
        text += " MiB";
    }
    let _ = write!(text, ", {} MiB/s", mib(rate));
    if let Some(total) = total.filter(|total| *total > read && rate >= 1.0) {
        let left = Duration::from_secs_f64((total - read) as f64 / rate);
        let left = Duration::from_secs(left.as_secs().max(1));
        let left = match left.as_secs() {
            seconds @ 0..60 => format!("{seconds} s"),
            _ => length(left),
        };
        let _ = write!(text, ", {left} left");
    }
    let findings = format!("{findings} {}", words::after(findings, "finding"));
    let _ = write!(text, "; {findings} so far");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_line_is_never_wider_than_the_terminal() {
        assert_eq!(fitting("waiting", 7), "waiting");
        assert_eq!(fitting("waiting", 4), "wai…");
        assert_eq!(fitting("ööööö", 3), "öö…");
        assert_eq!(fitting("waiting", 1), "…");
        assert_eq!(fitting("waiting", 0), "");
    }

    #[test]
    fn wide_characters_take_two_columns_and_accents_none() {
        assert_eq!(fitting("日志.log", 8), "日志.log");
        assert_eq!(fitting("日志.log", 7), "日志.l…");
        assert_eq!(fitting("日志.log", 4), "日…");
        assert_eq!(fitting("日志.log", 2), "…");
        assert_eq!(fitting("e\u{301}e\u{301}", 2), "e\u{301}e\u{301}");
    }

    #[test]
    fn how_far_it_is_and_how_long_it_still_takes() {
        let said = far(
            "k.log",
            132 * MIB,
            Some(1_204 * MIB),
            Duration::from_secs(3),
            1,
        );
        assert_eq!(
            said,
            "k.log: 132 of 1204 MiB (10 %), 44 MiB/s, 24 s left; 1 finding so far"
        );
        let said = far(
            "k.log",
            132 * MIB,
            Some(9_000 * MIB),
            Duration::from_secs(3),
            0,
        );
        assert!(said.contains(", 3 min 21 s left; 0 findings"), "{said}");
    }

    #[test]
    fn of_a_pipe_it_says_what_was_read_and_not_of_how_much() {
        let said = far("standard input", MIB, None, Duration::from_secs(2), 3);
        assert_eq!(
            said,
            "standard input: 1.0 MiB, 0.5 MiB/s; 3 findings so far"
        );
        // A file that has grown.
        let said = far("k.log", 2 * MIB, Some(MIB), Duration::from_secs(2), 3);
        assert_eq!(said, "k.log: 2.0 MiB, 1.0 MiB/s; 3 findings so far");
    }

    /// One at a time has the one line.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(number: u64) -> bool {
        lock().stack.iter().any(|item| item.number == number)
    }

    #[test]
    fn what_goes_on_is_kept_until_it_is_over_and_only_where_somebody_looks() {
        let _alone = alone();
        assert!(doing("nothing").0.is_none());
        lock().started = Some(Instant::now());
        let shown = doing("something");
        let number = shown.0.expect("somebody looks");
        assert!(kept(number));
        drop(shown);
        assert!(!kept(number));
        lock().started = None;
        assert!(doing("nothing").0.is_none());
    }

    #[test]
    fn who_writes_keeps_nobody_else_waiting_and_no_line_is_drawn_meanwhile() {
        let _alone = alone();
        lock().started = Some(Instant::now());
        let unlocked = |is: fn(&Line) -> bool| {
            // Other tests write, too.
            (0..500).any(|_| {
                let found = LINE.try_lock().is_ok_and(|line| is(&line));
                if !found {
                    thread::sleep(Duration::from_millis(10));
                }
                found
            })
        };
        assert!(aside(|| unlocked(|line| line.writers > 0)));
        let panics = || aside(|| std::panic::resume_unwind(Box::new("test")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(unlocked(|line| line.writers == 0));
        lock().started = None;
    }
}
