//! Reads that may never return.
//!
//! A file of a task in uninterruptible sleep can block its reader in the same
//! sleep: `/proc/TID/stack` waits for the lock that a stuck exec holds,
//! `/proc/TID/cgroup` for one that a stuck cgroup operation holds, mountinfo
//! for one that a stuck mount holds. No signal ends such a wait, so the reader
//! must be somebody who can be left behind.
//!
//! The policy:
//! * each read has a thread of its own. One that has answered is kept for the
//!   next read, if that leaves a thread as it found it ([`Bounded::read`]; to
//!   start one costs more than most reads), or has ended
//!   ([`Bounded::run_apart`]);
//! * after the time-out the thread is abandoned: its answer, should it ever
//!   come, is dropped, and nothing waits for the thread, not even the end of
//!   the tracer ([`apart`]);
//! * abandoned threads are counted, and those that end are counted off again.
//!   While there are [`MAX_ABANDONED`], no further read is started: the answer
//!   is [`NoAnswer::Refused`] at once. A node on which nothing answers thus
//!   costs a known number of threads and of time-outs, then nothing.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use sys::apart;

/// Threads that may hang at the same time.
pub(super) const MAX_ABANDONED: usize = 8;

/// Room for a directory walk and a netlink buffer; the memory is the kernel's
/// to give page by page.
const STACK_SIZE: usize = 512 << 10;

#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// It did not come in time; the thread is left behind.
    #[error("no answer within {} ms", after.as_millis())]
    TimedOut {
        /// How long was waited.
        after: Duration,
    },
    /// Too many earlier reads hang; this one was not tried.
    #[error("not tried: {MAX_ABANDONED} earlier reads still hang")]
    Refused,
    /// The thread could not be started.
    #[error("no thread to read with")]
    Thread {
        #[source]
        source: io::Error,
    },
    /// The read panicked, which is a bug; the tracer goes on.
    #[error("the read failed inside")]
    Panicked,
}

/// Starts reads and counts those that hang. Clones share the count, and the
/// thread that is kept.
#[derive(Clone, Debug, Default)]
pub struct Bounded {
    abandoned: Arc<AtomicUsize>,
    idle: Arc<Mutex<Option<Reader>>>,
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that reads one after the other, and ends when this is dropped.
#[derive(Debug)]
struct Reader {
    jobs: mpsc::Sender<Job>,
}

impl Reader {
    fn start() -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        spawn(move || queue.into_iter().for_each(|job| job()))?;
        Ok(Self { jobs })
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // What hangs is a task in state D for all who look, and stays when the tracer
    // has ended: its name says whose it is.
    apart::spawn("node-tracer-rd", STACK_SIZE, work)
}

const RUNNING: u8 = 0;
const DONE: u8 = 1;
const ABANDONED: u8 = 2;

/// The thread's side of the count: on any way out it says that it is done.
struct Running {
    state: Arc<AtomicU8>,
    abandoned: Arc<AtomicUsize>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.state.swap(DONE, SeqCst) == ABANDONED {
            self.abandoned.fetch_sub(1, SeqCst);
        }
    }
}

impl Bounded {
    /// How many reads hang.
    pub fn abandoned(&self) -> usize {
        self.abandoned.load(SeqCst)
    }

    /// Runs `read` and waits at most `timeout` for it. It must leave its thread
    /// as it found it: the next read has the same.
    ///
    /// # Errors
    /// See [`NoAnswer`].
    pub fn read<T, F>(&self, timeout: Duration, read: F) -> Result<T, NoAnswer>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        // Before the thread that is kept: what is not tried needs none.
        self.admit()?;
        let kept = self.idle().take();
        let reader = kept.map_or_else(Reader::start, Ok);
        let reader = reader.map_err(|source| NoAnswer::Thread { source })?;
        let answer = self.wait(timeout, read, &|job| {
            let gone = |_| io::Error::other("the thread has ended");
            reader.jobs.send(job).map_err(gone)
        })?;
        // Of several at once one is kept.
        *self.idle() = Some(reader);
        Ok(answer)
    }

    /// As [`read`](Self::read), in a thread that ends with it; for what may
    /// change the thread, such as its namespace.
    ///
    /// # Errors
    /// See [`NoAnswer`].
    pub fn run_apart<T, F>(&self, timeout: Duration, read: F) -> Result<T, NoAnswer>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.admit()?;
        self.wait(timeout, read, &|job| spawn(job))
    }

    /// Whether one more may be tried.
    fn admit(&self) -> Result<(), NoAnswer> {
        match self.abandoned() {
            0..MAX_ABANDONED => Ok(()),
            _ => Err(NoAnswer::Refused),
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Option<Reader>> {
        // Nothing that panics runs under the lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `start` start the read, and waits for its answer.
    fn wait<T, F>(
        &self,
        timeout: Duration,
        read: F,
        start: &dyn Fn(Job) -> io::Result<()>,
    ) -> Result<T, NoAnswer>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let state = Arc::new(AtomicU8::new(RUNNING));
        let running = Running {
            state: Arc::clone(&state),
            abandoned: Arc::clone(&self.abandoned),
        };
        // What comes by a channel is compiled for each type anew, and much.
        let answer = Arc::new(Mutex::new(None));
        let place = Arc::clone(&answer);
        let (sender, answered) = mpsc::sync_channel(1);
        let job = move || {
            let _running = running;
            let read = read();
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
            // Nobody listens any more if it was abandoned.
            let _ = sender.send(());
        };
        start(Box::new(job)).map_err(|source| NoAnswer::Thread { source })?;
        self.answered(timeout, &state, &answered)?;
        let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        answer.ok_or(NoAnswer::Panicked)
    }

    /// Waits until there is an answer, or leaves the thread behind.
    fn answered(
        &self,
        timeout: Duration,
        state: &AtomicU8,
        answered: &mpsc::Receiver<()>,
    ) -> Result<(), NoAnswer> {
        match answered.recv_timeout(timeout) {
            Ok(()) => return Ok(()),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(NoAnswer::Panicked),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        // Counted before the thread can see that it is abandoned and count
        // itself off.
        self.abandoned.fetch_add(1, SeqCst);
        if state
            .compare_exchange(RUNNING, ABANDONED, SeqCst, SeqCst)
            .is_ok()
        {
            return Err(NoAnswer::TimedOut { after: timeout });
        }
        // It finished just now, so the answer is there.
        self.abandoned.fetch_sub(1, SeqCst);
        answered.try_recv().map_err(|_| NoAnswer::Panicked)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(20);

    fn wait_until(condition: impl Fn() -> bool) {
        for _ in 0..2000 {
            if condition() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("did not happen in 20 s");
    }

    #[test]
    fn an_answer_in_time_is_returned_and_counts_for_nothing() {
        let bounded = Bounded::default();
        assert_eq!(bounded.read(LONG, || 7).unwrap(), 7);
        assert_eq!(bounded.run_apart(LONG, || 8).unwrap(), 8);
        assert_eq!(bounded.abandoned(), 0);
    }

    #[test]
    fn a_thread_that_has_answered_is_kept_and_one_that_hangs_is_not() {
        let bounded = Bounded::default();
        let id = || thread::current().id();
        let first = bounded.read(LONG, id).unwrap();
        assert_eq!(bounded.clone().read(LONG, id).unwrap(), first);
        assert_ne!(bounded.run_apart(LONG, id).unwrap(), first);
        let (release, wait) = mpsc::channel::<()>();
        let hang = bounded.read(SOON, move || wait.recv().is_ok());
        assert!(matches!(hang, Err(NoAnswer::TimedOut { .. })));
        assert_ne!(bounded.read(LONG, id).unwrap(), first);
        drop(release);
        wait_until(|| bounded.abandoned() == 0);
    }

    #[test]
    fn reads_do_not_wait_for_each_other() {
        let bounded = Bounded::default();
        let other = bounded.clone();
        let inner = bounded.read(LONG, move || other.read(LONG, || 7).unwrap());
        assert_eq!(inner.unwrap(), 7);
    }

    #[test]
    fn reads_that_hang_are_left_behind_then_refused_and_forgotten_once_they_end() {
        let bounded = Bounded::default();
        let mut stuck = Vec::new();
        for n in 0..MAX_ABANDONED {
            let (release, wait) = mpsc::channel::<()>();
            stuck.push(release);
            let hang = bounded.read(SOON, move || wait.recv().is_ok());
            assert!(matches!(hang, Err(NoAnswer::TimedOut { .. })));
            assert_eq!(bounded.abandoned(), n + 1);
        }
        assert!(matches!(bounded.read(LONG, || ()), Err(NoAnswer::Refused)));
        stuck.pop();
        wait_until(|| bounded.abandoned() == MAX_ABANDONED - 1);
        bounded.read(LONG, || ()).unwrap();
        drop(stuck);
        wait_until(|| bounded.abandoned() == 0);
    }

    #[test]
    fn a_read_that_is_refused_takes_no_thread() {
        let bounded = Bounded::default();
        let id = || thread::current().id();
        let kept = bounded.read(LONG, id).unwrap();
        let mut stuck = Vec::new();
        for _ in 0..MAX_ABANDONED {
            let (release, wait) = mpsc::channel::<()>();
            stuck.push(release);
            let hang = bounded.run_apart(SOON, move || wait.recv().is_ok());
            assert!(matches!(hang, Err(NoAnswer::TimedOut { .. })));
        }
        assert!(matches!(bounded.read(LONG, id), Err(NoAnswer::Refused)));
        assert!(bounded.idle().is_some());
        let apart = bounded.run_apart(LONG, id);
        assert!(matches!(apart, Err(NoAnswer::Refused)));
        drop(stuck);
        wait_until(|| bounded.abandoned() == 0);
        assert_eq!(bounded.read(LONG, id).unwrap(), kept);
    }

    #[test]
    fn a_read_that_panics_is_an_error_of_its_own() {
        let bounded = Bounded::default();
        let result = bounded.read(LONG, || std::panic::resume_unwind(Box::new("test")));
        assert!(matches!(result, Err::<(), _>(NoAnswer::Panicked)));
        assert_eq!(bounded.abandoned(), 0);
        assert_eq!(bounded.read(LONG, || 7).unwrap(), 7);
    }

    #[test]
    fn the_count_stays_true_when_answers_come_just_at_the_time_out() {
        let bounded = Bounded::default();
        for _ in 0..50 {
            let _ = bounded.read(Duration::from_millis(1), || {
                thread::sleep(Duration::from_millis(1));
            });
        }
        wait_until(|| bounded.abandoned() == 0);
    }
}
