//! How little memory a tracer keeps that runs for weeks.
//!
//! What it has at rest is a few MB: symbols, tables, queues. The start takes
//! some 20 MB for a moment (aya reads all of the kernel's types, twice), and
//! bursts take some. The C library's allocator, left alone, keeps most of that.

use std::time::{Duration, Instant};

use crate::event::Event;

/// Has the allocator keep less. To be called before there are threads.
///
/// * One arena: what one thread takes, another frees here (sources hand their
///   events over to the stream), and each arena keeps its own peak for good. No
///   two threads are busy at the same time.
/// * Large blocks are the kernel's: they go back when they are freed, and
///   grow without a copy. By itself glibc takes the first large block that is
///   freed as a sign that more are to come, and keeps blocks of that size (up
///   to 32 MB) in the arena from then on.
///
/// musl, which released binaries are linked with, has one arena and gives
/// large blocks back as it is.
pub(super) fn keep_little() {
    #[cfg(target_env = "gnu")]
    {
        /// From here on a block is mapped by itself, bytes. Lists of tasks and
        /// namespaces of an ordinary node are smaller.
        const LARGE: libc::c_int = 256 << 10;
        /// So much may be free at the arena's end, bytes: a burst's batches of
        /// records need not be asked for again and again.
        const SPARE: libc::c_int = 1 << 20;
        let options = [
            (libc::M_ARENA_MAX, 1),
            (libc::M_MMAP_THRESHOLD, LARGE),
            (libc::M_TRIM_THRESHOLD, SPARE),
        ];
        for (option, value) in options {
            // SAFETY: mallopt takes numbers, and no other thread runs yet.
            if unsafe { libc::mallopt(option, value) } == 0 {
                tracing::debug!(option, value, "the allocator refuses this");
            }
        }
    }
}

/// When free blocks are given back.
#[derive(Debug)]
pub(super) struct Memory {
    given: Instant,
    /// Events since then.
    events: usize,
}

impl Memory {
    /// Gives back what the start took.
    pub(super) fn after_start() -> Self {
        give_back();
        Self {
            given: Instant::now(),
            events: 0,
        }
    }

    /// So many more events were taken in.
    pub(super) fn count(&mut self, events: usize) {
        self.events += events;
    }

    /// What a burst took lies between what stays, so the allocator keeps it; it
    /// is given back a while after. `events`: the queue, which is empty.
    pub(super) fn step(&mut self, events: &mut Vec<Event>) {
        if self.events >= BURST && self.given.elapsed() >= PAUSE {
            events.shrink_to(BURST);
            *self = Self::after_start();
        }
    }
}

/// So many events do not leave enough behind to look for.
const BURST: usize = 1_000;
/// All free blocks are looked at, which takes a millisecond or two.
const PAUSE: Duration = Duration::from_secs(30);

/// Gives back what is free between what is used.
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}
