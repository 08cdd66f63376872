//! Reading the clocks: now, the kernel's times, and steps of the wall clock.
//!
//! Kernel records carry `CLOCK_MONOTONIC`; [`KernelClock`] converts them.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use event::clock::{
    Timestamp,
    steady::{shift, shift_by},
};

/// Less than this is how the clocks are read, not a step, ns.
const LEAST: i64 = 100 * MILLISECOND;
const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;
/// Readings that took longer than this are taken again, ns, so many times.
const PROMPT: i64 = MILLISECOND;
const TRIES: usize = 5;

/// A hundredth of a second (`USER_HZ`), ns.
const HUNDREDTH: u64 = 10_000_000;
/// How long a tick is on Linux, ns: 250, 1,000, 100 or 300 in a second.
const LENGTHS: [u64; 4] = [4_000_000, 1_000_000, 10_000_000, 3_333_333];

/// Realtime less monotonic when it was first asked for, ns.
static ANCHOR: OnceLock<i64> = OnceLock::new();
/// How long the machine was suspended, when steps were last looked for, ns.
static SUSPENDED: AtomicI64 = AtomicI64::new(i64::MIN);

pub fn now() -> Timestamp {
    Timestamp::from_nanos(read(libc::CLOCK_MONOTONIC).saturating_add(anchor()))
}

/// Realtime less monotonic without steps, ns.
fn anchor() -> i64 {
    *ANCHOR.get_or_init(|| offset(libc::CLOCK_REALTIME))
}

/// How long the machine was suspended since it was started, ns.
fn suspended() -> i64 {
    offset(libc::CLOCK_BOOTTIME)
}

/// A step of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What was added to it, ms.
    pub by_ms: i64,
    /// The machine was suspended meanwhile.
    pub suspended: bool,
}

/// Looks for a step since the last look. Times are written accordingly from
/// now on.
pub fn step() -> Option<Step> {
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

fn read(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec; the clocks asked for here always exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * SECOND + time.tv_nsec
}

/// The kernel's monotonic clock, ns: the one that its records carry.
pub fn monotonic_now() -> u64 {
    u64::try_from(read(libc::CLOCK_MONOTONIC)).unwrap_or(0)
}

/// How long the node has been up, suspended or not (`CLOCK_BOOTTIME`): no step
/// of the wall clock changes it.
pub fn uptime() -> Duration {
    Duration::from_nanos(u64::try_from(read(libc::CLOCK_BOOTTIME)).unwrap_or(0))
}

/// The kernel's ticks since its start, in hundredths of a second, as rtnetlink
/// counts them: they begin up to a second after the clock. `times` has them, from
/// five minutes before 32 bits are full (`INITIAL_JIFFIES`), in ticks of unknown
/// length: the one that fits the clock is the kernel's.
fn ticks(monotonic_ns: u64) -> u64 {
    let clock = monotonic_ns / HUNDREDTH;
    // SAFETY: `times` takes no buffer as well.
    let times = unsafe { libc::times(std::ptr::null_mut()) };
    let times = u64::try_from(times).unwrap_or(0);
    let mut fitting = LENGTHS.into_iter().filter_map(|tick| {
        let ticks = times.checked_sub(first_tick(tick) * tick / HUNDREDTH)?;
        (ticks.abs_diff(clock) < 60 * 100).then_some(ticks)
    });
    fitting.next().unwrap_or(clock)
}

/// What the kernel counts its first tick as, where a tick takes so many ns.
fn first_tick(tick: u64) -> u64 {
    let in_five_minutes = 300 * ((SECOND.unsigned_abs() + tick / 2) / tick);
    (1 << 32) - in_five_minutes
}

/// Turns the kernel's monotonic clock into [`Timestamp`]s.
#[derive(Clone, Copy, Debug)]
pub struct KernelClock {
    /// Steady time less monotonic, ns.
    monotonic_offset: i64,
    /// Steady time less boottime, ns: a machine that is suspended changes it.
    boottime_offset: i64,
}

impl KernelClock {
    /// Measures the offsets now.
    pub fn now() -> Self {
        let anchor = anchor();
        let suspended = suspended();
        Self {
            monotonic_offset: anchor,
            boottime_offset: anchor - suspended,
        }
    }

    /// A kernel time stamp (`bpf_ktime_get_ns`) as a point in time.
    pub fn timestamp(self, monotonic_ns: u64) -> Timestamp {
        Timestamp::from_nanos(
            i64::try_from(monotonic_ns)
                .unwrap_or(i64::MAX)
                .saturating_add(self.monotonic_offset),
        )
    }

    /// A time of rtnetlink, in hundredths of a second of the kernel's ticks, as a
    /// point in time. The count has 32 bits, so that it begins anew every 497
    /// days.
    pub fn of_jiffies(self, hundredths: u32) -> Timestamp {
        let now = monotonic_now();
        let age = (ticks(now) as u32).wrapping_sub(hundredths);
        // Of what was made while the clock was read.
        let age = if age > u32::MAX - 1_000 { 0 } else { age };
        self.timestamp(now.saturating_sub(u64::from(age) * HUNDREDTH))
    }

    /// A task's start (`CLOCK_BOOTTIME` ns) as a point in time.
    pub fn since_boot(self, boottime_ns: u64) -> Timestamp {
        Timestamp::from_nanos(
            i64::try_from(boottime_ns)
                .unwrap_or(i64::MAX)
                .saturating_add(self.boottime_offset),
        )
    }
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

    #[test]
    fn the_kernels_ticks_are_counted_as_it_counts_them() {
        let clock = monotonic_now() / HUNDREDTH;
        let ticks = ticks(monotonic_now());
        assert!(
            clock >= ticks,
            "the ticks begin after the clock: {ticks} {clock}"
        );
        assert!(clock - ticks < 60 * 100, "{ticks} {clock}");
    }

    #[test]
    fn kernel_time_and_the_wall_clock_agree() {
        let before = now();
        let kernel = KernelClock::now().timestamp(monotonic_now());
        let apart = kernel.since(before).max(before.since(kernel));
        assert!(apart < Duration::from_secs(1), "{apart:?}");
    }
}
