//! A list of pods that nobody waits for longer than is worth it: its file can
//! be on a disk or a server that hangs, so it is read where hanging keeps
//! nobody ([`apart`]).

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use super::{Listing, PodsError, PodsFile};
use sys::apart;

/// A list of a few megabytes takes a part of that.
const STACK: usize = 512 << 10;
/// A file that answers at all says in less that it has not changed.
const AT_ONCE: Duration = Duration::from_millis(10);
/// A file of which nothing came for so long hangs.
const HANGS: Duration = Duration::from_secs(2);

/// How far a reading has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// It is a pipe, which says something when its writer does.
    pub(super) is_stream: AtomicBool,
    /// Bytes that were read.
    pub(super) read: AtomicU64,
}

/// Counts what is read.
pub(super) struct Counted<'a, R>(pub(super) R, pub(super) &'a Progress);

impl<R: io::Read> io::Read for Counted<'_, R> {
    fn read(&mut self, data: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(data)?;
        self.1.read.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

type ListRead = Option<Result<Listing, PodsError>>;

#[derive(Debug)]
pub struct PodsReader {
    source: String,
    progress: Arc<Progress>,
    /// Before there is a thread for it.
    file: Option<PodsFile>,
    thread: Option<Thread>,
    /// A reading goes on: when something last came of it, and how much had.
    waiting: Option<(Instant, u64)>,
    /// That it hangs has been told.
    told: bool,
}

#[derive(Debug)]
struct Thread {
    /// Whether it is to be read although it has not changed.
    wanted: Sender<bool>,
    answers: Receiver<ListRead>,
}

impl PodsReader {
    /// A list in a file; `-` is standard input.
    pub fn new(path: &Path) -> Self {
        let file = PodsFile::new(path);
        Self {
            source: file.source(),
            progress: Arc::clone(&file.progress),
            file: Some(file),
            thread: None,
            waiting: None,
            told: false,
        }
    }

    /// Where the list is from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// As [`PodsFile::poll`], without waiting. That the file hangs is an error,
    /// told once; the list is told when it comes all the same.
    pub fn poll(&mut self) -> ListRead {
        let patience = match self.waiting {
            Some(_) => Duration::ZERO,
            None => AT_ONCE,
        };
        self.answer(patience, HANGS)
    }

    /// The same, waited for while something comes of it, for so long after the
    /// last that did. A pipe has all the time that its writer takes.
    pub fn wait(&mut self, patience: Duration) -> ListRead {
        loop {
            let answer = self.answer(patience, patience);
            if answer.is_some() || self.waiting.is_none() || self.told {
                return answer;
            }
        }
    }

    fn answer(&mut self, wait: Duration, hangs: Duration) -> ListRead {
        if self.waiting.is_none()
            && let Err(source) = self.want(false)
        {
            return Some(Err(self.no_thread(source)));
        }
        let thread = self.thread.as_ref()?;
        match thread.answers.recv_timeout(wait) {
            Ok(answer) => {
                self.waiting = None;
                // Whoever was told that it hangs is told what there is.
                if std::mem::take(&mut self.told) && answer.is_none() {
                    let wanted = self.want(true);
                    return wanted.err().map(|source| Err(self.no_thread(source)));
                }
                answer
            }
            Err(RecvTimeoutError::Timeout) => self.is_late(hangs).then(|| {
                Err(PodsError::Hangs {
                    from: self.source.clone(),
                    after: hangs,
                })
            }),
            Err(RecvTimeoutError::Disconnected) => {
                (self.waiting, self.thread) = (None, None);
                let ended = io::Error::other("its thread has ended");
                Some(Err(self.no_thread(ended)))
            }
        }
    }

    /// Whether it is to be told now that it hangs.
    fn is_late(&mut self, hangs: Duration) -> bool {
        let read = self.progress.read.load(Relaxed);
        let is_stream = self.progress.is_stream.load(Relaxed);
        let (since, before) = self.waiting.get_or_insert((Instant::now(), read));
        if is_stream || read != *before {
            (*since, *before) = (Instant::now(), read);
            return false;
        }
        since.elapsed() >= hangs && !std::mem::replace(&mut self.told, true)
    }

    fn want(&mut self, again: bool) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            self.thread = Some(Thread::start(file)?);
        }
        let gone = || io::Error::other("its thread has ended");
        let thread = self.thread.as_ref().ok_or_else(gone)?;
        thread.wanted.send(again).map_err(|_| gone())?;
        let read = self.progress.read.load(Relaxed);
        self.waiting = Some((Instant::now(), read));
        Ok(())
    }

    fn no_thread(&self, source: io::Error) -> PodsError {
        let from = self.source.clone();
        PodsError::Read { from, source }
    }
}

impl Thread {
    fn start(mut file: PodsFile) -> io::Result<Self> {
        let (wanted, requests) = mpsc::channel();
        let (sender, answers) = mpsc::channel();
        apart::spawn("pods-file", STACK, move || {
            for again in requests {
                // Nobody listens any more at the end.
                let _ = sender.send(file.poll_again(again));
            }
        })?;
        Ok(Self { wanted, answers })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;

    const LIST: &str =
        r#"{"kind":"List","items":[{"metadata":{"name":"a","namespace":"a","uid":"u"}}]}"#;

    /// A reader of a file that hangs for so long when it is asked first.
    fn hanging(path: &Path, time: Duration) -> PodsReader {
        let mut reader = PodsReader::new(path);
        let mut file = reader.file.take().unwrap();
        let (wanted, requests) = mpsc::channel();
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            let mut time = Some(time);
            for again in requests {
                time.take().into_iter().for_each(thread::sleep);
                let _ = sender.send(file.poll_again(again));
            }
        });
        reader.thread = Some(Thread { wanted, answers });
        reader
    }

    #[test]
    fn a_file_that_hangs_keeps_nobody_is_told_once_and_is_read_when_it_answers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pods.json");
        fs::write(&path, LIST).unwrap();
        let mut reader = hanging(&path, HANGS + Duration::from_secs(1));
        let (mut hangs, mut slowest) = (0, Duration::ZERO);
        let begun = Instant::now();
        let listing = loop {
            let asked = Instant::now();
            let answer = reader.poll();
            slowest = slowest.max(asked.elapsed());
            match answer {
                Some(Ok(listing)) => break listing,
                Some(Err(PodsError::Hangs { .. })) => hangs += 1,
                other => assert!(other.is_none(), "{other:?}"),
            }
            assert!(begun.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(20));
        };
        assert_eq!((hangs, listing.pods.len()), (1, 1));
        assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    }

    #[test]
    fn a_file_that_hung_and_has_not_changed_is_told_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pods.json");
        fs::write(&path, LIST).unwrap();
        let mut reader = hanging(&path, Duration::ZERO);
        let patience = Duration::from_secs(20);
        assert!(matches!(reader.wait(patience), Some(Ok(_))));
        assert!(reader.wait(patience).is_none());
        reader.told = true;
        let mut answers = (0..500).map_while(|_| match reader.poll() {
            None => {
                thread::sleep(Duration::from_millis(10));
                Some(false)
            }
            Some(answer) => Some(answer.is_ok()),
        });
        assert!(answers.any(|told| told));
    }

    #[test]
    fn whoever_waits_for_a_list_waits_for_a_slow_pipe_and_not_for_a_file_that_hangs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pods.json");
        fs::write(&path, LIST).unwrap();
        let soon = Duration::from_millis(50);
        let mut reader = hanging(&path, Duration::from_secs(3));
        let started = Instant::now();
        assert!(matches!(
            reader.wait(soon),
            Some(Err(PodsError::Hangs { .. }))
        ));
        assert!(started.elapsed() < Duration::from_secs(2));

        let pipe = folder.path().join("pipe");
        let fifo = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).unwrap();
        let to = pipe.clone();
        let writer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(500));
            fs::write(to, LIST)
        });
        let mut reader = PodsReader::new(&pipe);
        assert!(matches!(reader.wait(soon), Some(Ok(_))));
        writer.join().unwrap().unwrap();
    }
}
