//! What another process uses: its memory, and its time on a CPU.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// A number from /proc/PID/status, KiB.
pub(crate) fn memory(pid: u32, key: &str) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| path)?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    Ok(number.context(key.to_owned())?.parse()?)
}

/// From here on VmHWM is the largest resident memory since now.
pub(crate) fn forget_peak(pid: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| path)
}

/// Time that it was on a CPU, all its threads', those that have ended too. By
/// the scheduler's clock: the ticks of /proc/PID/stat are as long as what a
/// program at rest uses in seconds.
pub(crate) fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let (mut clock, mut time) = (
        0,
        libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
    );
    // SAFETY: the place is valid for the call.
    let error = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error)).context("clock_getcpuclockid");
    }
    // SAFETY: the place is valid for the call.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error()).context("the CPU clock of a process");
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Percent of one core that it uses while this goes on.
pub(crate) fn share_of_core<T>(
    pid: u32,
    meanwhile: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(f64, T)> {
    let (before, start) = (cpu_time(pid)?, Instant::now());
    let value = meanwhile()?;
    let used = cpu_time(pid)?.saturating_sub(before);
    let share = used.as_secs_f64() / start.elapsed().as_secs_f64() * 100.0;
    Ok((share, value))
}

#[cfg(test)]
mod tests {
    use node_tracer_tests::wait;

    use super::*;

    #[test]
    fn work_is_told_from_rest() {
        let own = std::process::id();
        let begin = cpu_time(own).unwrap();
        while cpu_time(own).unwrap() < begin + Duration::from_millis(50) {}
        let mut sleeper = std::process::Command::new("sleep")
            .arg("5")
            .spawn()
            .unwrap();
        let rest = share_of_core(sleeper.id(), || wait::pause(Duration::from_millis(300)));
        let resident = memory(sleeper.id(), "VmRSS");
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        let ((share, ()), resident) = (rest.unwrap(), resident.unwrap());
        assert!(share < 20.0, "{share}");
        assert!((100..32 << 10).contains(&resident), "{resident}");
        assert!(cpu_time(sleeper.id()).is_err());
    }
}
