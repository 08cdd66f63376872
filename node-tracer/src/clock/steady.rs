//! The wall clock without its steps.
//!
//! Verdicts rest on how long something has lasted, and on what came first. A
//! clock that is set, or that goes on after the machine was suspended, must
//! change neither. So inside the program time is steady: the wall clock's when
//! it was first asked for, and from then on as the monotonic clock counts.
//! People and other programs have the wall clock: what was added to it since is
//! added to every time that is written, and taken from every one that is read.

use std::sync::{
    OnceLock,
    atomic::{AtomicI64, Ordering},
};

use super::read;

/// Less than this is how the clocks are read, not a step, ns.
const LEAST: i64 = 100 * MILLISECOND;
const MILLISECOND: i64 = 1_000_000;
/// Readings that took longer than this are taken again, ns, so many times.
const PROMPT: i64 = MILLISECOND;
const TRIES: usize = 5;

/// Realtime less monotonic when it was first asked for, ns.
static ANCHOR: OnceLock<i64> = OnceLock::new();
/// What was added to the wall clock since, ns.
static SHIFT: AtomicI64 = AtomicI64::new(0);
/// How long the machine was suspended, when steps were last looked for, ns.
static SUSPENDED: AtomicI64 = AtomicI64::new(i64::MIN);

/// Realtime less monotonic without steps, ns.
pub(super) fn anchor() -> i64 {
    *ANCHOR.get_or_init(|| offset(libc::CLOCK_REALTIME))
}

/// What is to be added to a steady time for the wall clock's, ns.
pub(super) fn shift() -> i64 {
    SHIFT.load(Ordering::Relaxed)
}

/// How long the machine was suspended since it was started, ns.
pub(super) fn suspended() -> i64 {
    offset(libc::CLOCK_BOOTTIME)
}

/// A step of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// What was added to it, ms.
    pub(crate) by_ms: i64,
    /// The machine was suspended meanwhile.
    pub(crate) suspended: bool,
}

/// Looks for a step since the last look. Times are written accordingly from
/// now on.
pub(crate) fn step() -> Option<Step> {
    let anchor = anchor();
    let suspended = suspended();
    let before = SUSPENDED.swap(suspended, Ordering::Relaxed);
    let slept = match before {
        i64::MIN => 0,
        before => suspended - before,
    };
    let step = find(offset(libc::CLOCK_REALTIME) - anchor - shift(), slept)?;
    shift_by(step.by_ms);
    Some(step)
}

/// So much was added to the wall clock, ms: as a recording tells it.
pub(crate) fn shift_by(by_ms: i64) {
    let by = by_ms.saturating_mul(MILLISECOND);
    // Nobody else writes it meanwhile.
    SHIFT.store(shift().saturating_add(by), Ordering::Relaxed);
}

/// Forgets all steps: what is read next is of another run.
pub(crate) fn forget_steps() {
    SHIFT.store(0, Ordering::Relaxed);
}

/// What a deviation of the wall clock means, given how long the machine was
/// suspended, both ns.
fn find(deviation: i64, slept: i64) -> Option<Step> {
    (deviation.abs() >= LEAST).then(|| Step {
        by_ms: (deviation + deviation.signum() * MILLISECOND / 2) / MILLISECOND,
        suspended: slept >= LEAST,
    })
}

/// A clock less the monotonic one, ns.
fn offset(clock: libc::clockid_t) -> i64 {
    let mut best = (i64::MAX, 0);
    for _ in 0..TRIES {
        let before = read(libc::CLOCK_MONOTONIC);
        let time = read(clock);
        let took = read(libc::CLOCK_MONOTONIC) - before;
        if took < best.0 {
            best = (took, time - before - took / 2);
        }
        if took <= PROMPT {
            break;
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000 * MILLISECOND;

    #[test]
    fn a_step_is_told_from_how_clocks_are_read() {
        assert_eq!(find(0, 0), None);
        assert_eq!(find(LEAST - 1, HOUR), None);
        assert_eq!(find(1 - LEAST, 0), None);
        let step = |by_ms, suspended| Some(Step { by_ms, suspended });
        assert_eq!(find(HOUR, 0), step(3_600_000, false));
        assert_eq!(find(-HOUR - 600_000, 0), step(-3_600_001, false));
        assert_eq!(find(HOUR, HOUR), step(3_600_000, true));
    }

    #[test]
    fn steady_time_is_the_wall_clocks_as_long_as_nobody_sets_it() {
        let apart = read(libc::CLOCK_REALTIME) - (read(libc::CLOCK_MONOTONIC) + anchor());
        assert!(apart.abs() < 2_000 * MILLISECOND, "{apart} ns");
    }
}
