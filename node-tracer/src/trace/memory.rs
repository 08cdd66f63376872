//! How little memory a tracer keeps that runs for weeks.
//!
//! What it has at rest is a few MB: symbols, tables, queues. The start takes
//! some 20 MB for a moment (aya reads all of the kernel's types, twice), and
//! bursts take some. The C library's allocator, left alone, keeps most of that.

use std::time::{Duration, Instant};

use event::Event;
use sys::syscall;

/// Has the allocator keep less. To be called before there are threads.
///
/// * One arena: what one thread takes, another frees here (sources hand their
///   events over to the stream), and each arena keeps its own peak for good. No
///   two threads are busy at the same time.
/// * Large blocks are the kernel's: they go back when they are freed, and
///   grow without a copy. By itself glibc takes the first large block that is
///   freed as a sign that more are to come, and keeps blocks of that size (up
///   to 32 MB) in the arena from then on.
pub(super) fn keep_little() {
    /// From here on a block is mapped by itself, bytes. Lists of tasks and
    /// namespaces of an ordinary node are smaller.
    const LARGE: i32 = 256 << 10;
    /// So much may be free at the arena's end, bytes: a burst's batches of
    /// records need not be asked for again and again.
    const SPARE: i32 = 1 << 20;
    syscall::keep_little_memory(LARGE, SPARE);
}

/// When free blocks are given back.
#[derive(Debug)]
pub(super) struct Memory {
    given: Instant,
    events: usize,
    /// When the last of them came.
    last: Instant,
}

impl Memory {
    /// Gives back what the start took.
    pub(super) fn after_start() -> Self {
        syscall::give_memory_back();
        Self::given(Instant::now())
    }

    fn given(now: Instant) -> Self {
        Self {
            given: now,
            events: 0,
            last: now,
        }
    }

    /// So many more events were taken in.
    pub(super) fn count(&mut self, events: usize) {
        self.count_at(events, Instant::now());
    }

    fn count_at(&mut self, events: usize, now: Instant) {
        if events > 0 {
            self.events += events;
            self.last = now;
        }
    }

    /// What a burst took lies between what stays, so the allocator keeps it; it
    /// is given back a while after. `events`: the queue, which is empty.
    pub(super) fn step(&mut self, events: &mut Vec<Event>) {
        if self.take(Instant::now()) {
            events.shrink_to(BURST);
            syscall::give_memory_back();
        }
    }

    /// Whether it is time, which is noted.
    fn take(&mut self, now: Instant) -> bool {
        let (given, last) = (now - self.given, now - self.last);
        if self.events < BURST || given < PAUSE {
            return false;
        }
        if last >= QUIET {
            *self = Self::given(now);
            return true;
        }
        // It goes on and on. What comes now leaves something behind, too,
        // however little it is: the count stays.
        if given >= LONGEST {
            self.given = now;
            return true;
        }
        false
    }
}

/// So many events do not leave enough behind to look for.
const BURST: usize = 1_000;
/// All free blocks are looked at, which takes a millisecond or two.
const PAUSE: Duration = Duration::from_secs(30);
/// A burst is over when nothing has come for so long: what is given back in the
/// middle of it is asked for again at once.
const QUIET: Duration = Duration::from_secs(2);
/// So long it is kept where something comes all the time.
const LONGEST: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_burst_took_is_given_back_after_it_and_not_in_its_middle() {
        let start = Instant::now();
        let mut memory = Memory::given(start);
        let burst = start + 2 * PAUSE;
        memory.count_at(BURST, burst);
        assert!(!memory.take(burst));
        // What follows is less than a burst of its own.
        let end = burst + QUIET / 2;
        memory.count_at(BURST / 2, end);
        memory.count_at(0, end + QUIET / 2);
        assert!(!memory.take(burst + QUIET));
        assert!(memory.take(end + QUIET));
        assert!(!memory.take(end + 2 * LONGEST));
    }

    #[test]
    fn little_is_not_looked_for_and_nothing_too_often() {
        let start = Instant::now();
        let mut memory = Memory::given(start);
        memory.count_at(BURST - 1, start);
        assert!(!memory.take(start + LONGEST));
        memory.count_at(1, start);
        assert!(!memory.take(start + PAUSE - QUIET));
        assert!(memory.take(start + PAUSE));
    }

    #[test]
    fn where_it_never_ends_it_is_given_back_now_and_then_and_at_last() {
        let start = Instant::now();
        let mut memory = Memory::given(start);
        let given = |memory: &mut Memory, from: u64, to: u64| {
            let seconds = (from..to).map(|second| start + Duration::from_secs(second));
            let times = seconds.filter(|now| {
                memory.count_at(BURST, *now);
                memory.take(*now)
            });
            times.count()
        };
        let longest = LONGEST.as_secs();
        assert_eq!(given(&mut memory, 1, longest), 0);
        assert_eq!(given(&mut memory, longest, 3 * longest + 1), 3);
        assert!(memory.take(start + 3 * LONGEST + PAUSE));
        assert!(!memory.take(start + 5 * LONGEST));
    }
}
