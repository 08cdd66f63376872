//! The wall clock without its steps.
//!
//! Verdicts rest on how long something has lasted, and on what came first. A
//! clock that is set, or that goes on after the machine was suspended, must
//! change neither. So inside the program time is steady: the wall clock's when
//! it was first asked for, and from then on as the monotonic clock counts.
//! People and other programs have the wall clock: what was added to it since is
//! added to every time that is written, and taken from every one that is read.

use std::sync::atomic::{AtomicI64, Ordering};

const MILLISECOND: i64 = 1_000_000;
/// What was added to the wall clock since, ns.
static SHIFT: AtomicI64 = AtomicI64::new(0);
/// What is to be added to a steady time for the wall clock's, ns.
pub fn shift() -> i64 {
    SHIFT.load(Ordering::Relaxed)
}

/// So much was added to the wall clock, ms: as a recording tells it.
pub fn shift_by(by_ms: i64) {
    let by = by_ms.saturating_mul(MILLISECOND);
    // Nobody else writes it meanwhile.
    SHIFT.store(shift().saturating_add(by), Ordering::Relaxed);
}

/// Forgets all steps: what is read next is of another run.
pub fn forget_steps() {
    SHIFT.store(0, Ordering::Relaxed);
}
