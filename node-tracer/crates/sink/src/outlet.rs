//! A bounded queue between the tracer and an output that may be slow: a pager,
//! a terminal that was stopped, a journald that hangs, a disk on a network.
//!
//! The kernel's records do not wait, so nobody who takes them may wait for a
//! reader. Each output has a thread that writes; the tracer only puts records
//! into its queue, whole ones and in their order. What the queue has no room
//! for is left out and counted, findings last: single events leave the last
//! part of the queue to them. At rest the thread sleeps, and a record that
//! comes then is written at once.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::SinkError;
use event::fault;
use sys::apart::{self, Work};

/// Bytes of records that wait, the one that is being written too.
const ROOM: usize = 4 << 20;
/// What a record takes besides its bytes.
const EACH: usize = 64;

/// Of the thread; the memory is given page by page.
const STACK: usize = 512 << 10;

/// How much it matters that a record is not left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// One event of many: three quarters of the room are for these.
    Event,
    #[default]
    Finding,
}

/// Records that did not get out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// There was no room for them.
    pub slow: u64,
    /// They could not be written.
    pub failed: u64,
    /// There was nobody left to write them to.
    pub closed: u64,
}

/// The tracer's end of a queue; clones are of the same one. The thread lives
/// until the output is gone or the process ends.
#[derive(Clone, Debug)]
pub struct Outlet(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// What the output is, for messages.
    name: String,
    room: usize,
    state: Mutex<State>,
    /// There is something to write.
    more: Condvar,
    less: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    /// What the record takes that is being written.
    writing: usize,
    /// Nobody waits for that one any more, and it is counted as lost.
    given_up: bool,
    /// Of the record that comes next.
    weight: Weight,
    lost: Lost,
    /// There was no room for the last record.
    full: bool,
    /// The last record could not be written.
    failing: bool,
    /// There is nobody left to write to.
    closed: bool,
    /// That has been told.
    told_closed: bool,
}

impl Outlet {
    /// Starts the thread. Of the errors of `deliver`, [`SinkError::Closed`]
    /// ends it; [`SinkError::Slow`], which `deliver` takes its time to return,
    /// has it try that record again; any other costs that record.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start(
        name: impl Into<String>,
        deliver: impl FnMut(&[u8]) -> Result<(), SinkError> + Send + 'static,
    ) -> io::Result<Self> {
        Self::with_room(ROOM, name, apart::spawn, deliver)
    }

    /// The same where what is written to cannot hang: by the tracer's own
    /// process, as which the other end then knows it.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start_here(
        name: impl Into<String>,
        deliver: impl FnMut(&[u8]) -> Result<(), SinkError> + Send + 'static,
    ) -> io::Result<Self> {
        let spawn = |name: &'static str, stack, work: Work| {
            let thread = thread::Builder::new().name(name.to_owned());
            thread.stack_size(stack).spawn(work).map(drop)
        };
        Self::with_room(ROOM, name, spawn, deliver)
    }

    fn with_room(
        room: usize,
        name: impl Into<String>,
        spawn: impl FnOnce(&'static str, usize, Work) -> io::Result<()>,
        mut deliver: impl FnMut(&[u8]) -> Result<(), SinkError> + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            name: name.into(),
            room,
            state: Mutex::default(),
            more: Condvar::new(),
            less: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        spawn(
            "output",
            STACK,
            Box::new(move || while own.write_one(&mut deliver) {}),
        )?;
        Ok(Self(shared))
    }

    /// Says how much the records that come next matter.
    pub fn next_are(&self, weight: Weight) {
        self.0.lock().weight = weight;
    }

    /// Has a record written; never waits.
    ///
    /// # Errors
    /// The reader is gone, or there is no room.
    pub fn put(&self, record: &[u8]) -> Result<(), SinkError> {
        let mut state = self.0.lock();
        if state.closed {
            state.lost.closed += 1;
            return Err(SinkError::Closed);
        }
        let room = match state.weight {
            Weight::Event => self.0.room / 4 * 3,
            Weight::Finding => self.0.room,
        };
        let (taken, bytes) = (state.bytes + state.writing, record.len() + EACH);
        // One record that is larger than the queue has it for itself.
        if taken > 0 && taken + bytes > room {
            state.lost.slow += 1;
            let first = !std::mem::replace(&mut state.full, true);
            drop(state);
            if first {
                tracing::warn!(
                    "{} is not read, or too slowly; what comes now is left out there and counted, \
                     until there is room again",
                    self.0.name
                );
            }
            return Err(SinkError::Slow);
        }
        state.bytes += bytes;
        state.waiting.push_back(record.to_vec());
        drop(state);
        self.0.more.notify_one();
        Ok(())
    }

    /// What was lost since the last call, as far as that is over: told while
    /// the output still takes nothing, a loss would only add to itself. So that
    /// there is nobody left is told once.
    pub fn take_lost(&self) -> Lost {
        let mut state = self.0.lock();
        let mut told = Lost::default();
        if state.bytes + state.writing <= self.0.room / 2 {
            told.slow = std::mem::take(&mut state.lost.slow);
            state.full = false;
        }
        if !state.failing {
            told.failed = std::mem::take(&mut state.lost.failed);
        }
        if state.closed && !std::mem::replace(&mut state.told_closed, true) {
            told.closed = std::mem::take(&mut state.lost.closed);
        }
        told
    }

    /// What was lost and has not been taken.
    pub fn untold(&self) -> Lost {
        self.0.lock().lost
    }

    /// Whether there is nobody left to write to.
    pub fn is_closed(&self) -> bool {
        self.0.lock().closed
    }

    /// Waits until all is written: for `most` at most, and for `patience` if
    /// nothing moves. What is left then is given up and counted.
    pub fn drain(&self, patience: Duration, most: Duration) {
        let end = Instant::now() + most;
        let mut state = self.0.lock();
        loop {
            let left = state.waiting.len() + usize::from(state.writing > 0);
            if left == 0 || state.closed {
                return;
            }
            let wait = patience.min(end.saturating_duration_since(Instant::now()));
            let still = |state: &mut State| {
                let now = state.waiting.len() + usize::from(state.writing > 0);
                now == left && !state.closed
            };
            let waited = self.0.less.wait_timeout_while(state, wait, still);
            let (now, result) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            if result.timed_out() || wait.is_zero() {
                break;
            }
        }
        state.lost.slow += state.waiting.len() as u64;
        state.waiting.clear();
        state.bytes = 0;
        if state.writing > 0 && !std::mem::replace(&mut state.given_up, true) {
            state.lost.slow += 1;
        }
    }

    /// Whether another is of the same queue.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What it is, for messages.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

/// Each write is one record.
impl io::Write for Outlet {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        match self.put(record) {
            Ok(()) => Ok(record.len()),
            Err(SinkError::Closed) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's turn: waits for a record and writes it. Returns whether
    /// there may be another one.
    fn write_one(&self, deliver: &mut impl FnMut(&[u8]) -> Result<(), SinkError>) -> bool {
        let record = {
            let state = self.lock();
            let waited = self
                .more
                .wait_while(state, |state| state.waiting.is_empty());
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            let Some(record) = state.waiting.pop_front() else {
                return true;
            };
            state.writing = record.len() + EACH;
            state.bytes -= state.writing;
            record
        };
        loop {
            let result = deliver(&record);
            let mut state = self.lock();
            if matches!(result, Err(SinkError::Slow)) && !state.given_up {
                continue;
            }
            state.writing = 0;
            let given_up = std::mem::take(&mut state.given_up);
            let before = state.failing;
            match &result {
                Ok(()) => {
                    state.failing = false;
                    // It got through after all.
                    state.lost.slow -= u64::from(given_up && state.lost.slow > 0);
                }
                Err(SinkError::Slow) => {}
                Err(SinkError::Closed) => {
                    state.closed = true;
                    // This one, unless it is counted already, and the rest.
                    let waiting = state.waiting.len() as u64;
                    state.lost.closed += waiting + u64::from(!given_up);
                    state.waiting.clear();
                    state.bytes = 0;
                }
                Err(_) => {
                    state.failing = true;
                    state.lost.failed += u64::from(!given_up);
                }
            }
            let (closed, failing) = (state.closed, state.failing);
            drop(state);
            self.less.notify_all();
            match (&result, before) {
                (Err(error), false) if failing => tracing::warn!("{}", fault::chain(error)),
                (Ok(()), true) => tracing::warn!("{} works again", self.name),
                _ => {}
            }
            return !closed;
        }
    }
}

#[cfg(test)]
mod tests;
