//! The machine itself goes to sleep while the tracer watches, and what it tells
//! afterwards has the right times.
//!
//! Nobody is stuck meanwhile: with a task in uninterruptible sleep no machine
//! falls asleep.

use std::fs;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::matrix::Stage;
use super::task;
use crate::netns::Netns;
use crate::tracer::{is_event, netns_of};

const STATE: &str = "/sys/power/state";
/// What `mem` is. The emulated clock wakes a machine that is off, not one that
/// idles.
const KIND: &str = "/sys/power/mem_sleep";
const ALARM: &str = "/sys/class/rtc/rtc0/wakealarm";
/// For how long; the alarm has whole seconds.
const SLEEP: Duration = Duration::from_secs(8);
const SURELY: Duration = Duration::from_secs(4);
/// How exact a time must be: what was not corrected is wrong by more.
const NEAR: Duration = Duration::from_secs(2);

/// Whether this machine can be off, and come back. (QEMU's for arm64 cannot.)
pub(super) fn is_possible() -> bool {
    fs::read_to_string(KIND).is_ok_and(|kinds| kinds.contains("deep"))
}

/// How long the machine has slept since it was started.
fn slept() -> anyhow::Result<Duration> {
    Ok(clock(libc::CLOCK_BOOTTIME)?.saturating_sub(clock(libc::CLOCK_MONOTONIC)?))
}

fn clock(id: libc::clockid_t) -> anyhow::Result<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: clock_gettime writes the timespec that it is given.
    let done = unsafe { libc::clock_gettime(id, &raw mut time) };
    ensure!(done == 0, "clock {id}: {}", std::io::Error::last_os_error());
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

fn write(path: &str, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("write {text} to {path}"))
}

/// Suspends the machine until its clock wakes it; for how long it was.
fn suspend() -> anyhow::Result<Duration> {
    write(KIND, "deep")?;
    let before = slept()?;
    write(ALARM, "0")?;
    write(ALARM, &format!("+{}", SLEEP.as_secs()))?;
    // Comes back when the machine is awake again.
    write(STATE, "mem")?;
    Ok(slept()?.saturating_sub(before))
}

fn time(record: &Value) -> anyhow::Result<SystemTime> {
    let text = record["time"].as_str().context("no time")?;
    Ok(humantime::parse_rfc3339(text)?)
}

/// A namespace and a stall after it, with their times; and nobody who only
/// slept with the machine is told as stuck.
pub(super) fn observe(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let first = stage.mark();
    let asleep = suspend()?;
    ensure!(asleep >= SURELY, "the machine slept for {asleep:?} only");
    let step = stage.after(first, "clock-stepped", |record| {
        is_event(record, "clock-stepped") && record["suspended"] == true
    })?;
    let by = step["by_ms"].as_u64().context("no by_ms")?;
    ensure!(
        Duration::from_millis(by).abs_diff(asleep) < NEAR,
        "{asleep:?} are told as {step}"
    );

    let (mark, begin) = (stage.mark(), SystemTime::now());
    let netns = Netns::create()?;
    let made = stage.after(mark, "netns-created", |record| {
        is_event(record, "netns-created") && netns_of(record) == Some(netns.inode())
    })?;
    let (time, end) = (time(&made)?, SystemTime::now());
    ensure!(
        begin - NEAR <= time && time <= end + NEAR,
        "between {begin:?} and {end:?}, told as {made}"
    );
    drop(netns);

    let others: Vec<Value> = stage
        .records()
        .into_iter()
        .skip(first)
        .filter(|record| is_event(record, "task-blocked"))
        .collect();
    ensure!(others.is_empty(), "told as stuck: {others:?}");
    task::stall(stage, false)
}
