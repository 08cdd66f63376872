//! Waiting with a limit, and what cuts it short: Ctrl-C and the watchdog.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// How often a condition is looked at.
const STEP: Duration = Duration::from_millis(10);

/// The variable that says how many times longer everything is waited for, on a
/// machine that is slow.
pub const PATIENCE: &str = "NODE_TRACER_TEST_PATIENCE";

/// How many times longer than usual things are waited for here.
pub fn patience() -> u32 {
    static ASKED: LazyLock<u32> = LazyLock::new(|| {
        let asked = std::env::var(PATIENCE).ok();
        asked.and_then(|text| text.parse().ok()).unwrap_or(1)
    });
    *ASKED
}

/// A limit of time, on this machine.
pub fn here(limit: Duration) -> Duration {
    limit * patience()
}

static SIGNALLED: AtomicBool = AtomicBool::new(false);
static OVERDUE: AtomicBool = AtomicBool::new(false);

/// SIGINT or SIGTERM came while something was waited for.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

extern "C" fn on_signal(_signal: libc::c_int) {
    SIGNALLED.store(true, Ordering::Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP no longer end the process: the
/// waiting functions here fail with [`Interrupted`], and the guards unwind.
pub fn catch_signals() -> anyhow::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an all-zero sigaction is a valid value (no flags, empty mask).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(std::io::Error::last_os_error()).context("sigaction");
        }
    }
    Ok(())
}

/// Whether one of the caught signals came.
pub fn interrupted() -> bool {
    SIGNALLED.load(Ordering::Relaxed)
}

/// Tells all waits that the running test has had its time.
pub(crate) fn set_overdue() {
    OVERDUE.store(true, Ordering::Relaxed);
}

/// Fails if waiting is to end now.
fn go_on() -> anyhow::Result<()> {
    if interrupted() {
        return Err(Interrupted.into());
    }
    anyhow::ensure!(!OVERDUE.load(Ordering::Relaxed), "the test's time is up");
    Ok(())
}

/// Waits until `probe` gives a value; `what` completes "waited 5 s for …".
pub fn until<T>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let limit = here(limit);
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = probe()? {
            return Ok(value);
        }
        go_on()?;
        anyhow::ensure!(
            Instant::now() < end,
            "waited {} s for {what}",
            limit.as_secs_f32()
        );
        std::thread::sleep(STEP);
    }
}

/// Sleeps, unless it is time to stop.
pub fn pause(duration: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        go_on()?;
        std::thread::sleep(STEP.min(end.saturating_duration_since(Instant::now())));
    }
    go_on()
}

/// Waits for `done` while cleaning up: nothing cuts it short but the limit.
pub(crate) fn settle(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + here(limit);
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(STEP);
    }
}
