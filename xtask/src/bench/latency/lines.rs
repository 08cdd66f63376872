//! A program whose lines are taken down with the time at which they came.

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use node_tracer_tests::tracer::Tracer;
use node_tracer_tests::wait;

use super::super::peers::Peer;
use super::super::watcher::until_attached;

/// Two clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    steady: Instant,
    wall: Timestamp,
    /// Nanoseconds since the boot: the clock of the kernel's programs.
    boot: u64,
}

impl Clocks {
    pub(super) fn read() -> Self {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the place is valid for the call, which cannot fail on this clock.
        unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
        Self {
            steady: Instant::now(),
            wall: Timestamp::now(),
            boot: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        }
    }

    fn nanoseconds_after(self, at: Instant) -> i128 {
        match at.checked_duration_since(self.steady) {
            Some(later) => later.as_nanos() as i128,
            None => -(self.steady.duration_since(at).as_nanos() as i128),
        }
    }

    /// Milliseconds from a point in time to this one.
    pub(super) fn since(self, then: Timestamp, at: Instant) -> f64 {
        let now = self.wall.as_nanosecond() + self.nanoseconds_after(at);
        (now - then.as_nanosecond()) as f64 / 1e6
    }

    /// The same from a time of the kernel's programs.
    pub(super) fn since_boot(self, then: u64, at: Instant) -> f64 {
        let now = i128::from(self.boot) + self.nanoseconds_after(at);
        (now - i128::from(then)) as f64 / 1e6
    }

    /// The moment of a point in time; of one from before, that of these clocks.
    pub(super) fn moment(self, then: Timestamp) -> Instant {
        let after = then.as_nanosecond() - self.wall.as_nanosecond();
        self.steady + Duration::from_nanos(u64::try_from(after).unwrap_or(0))
    }
}

pub(super) struct Lines {
    process: Tracer,
    lines: Arc<Mutex<Vec<(Instant, String)>>>,
}

/// For a line to come: most look once a second.
const LIMIT: Duration = Duration::from_secs(20);

impl Lines {
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&lines);
        let process = Tracer::start(command, move |line| {
            let line = (Instant::now(), line.to_owned());
            to.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        })?;
        Ok(Self { process, lines })
    }

    /// The same for one with kernel programs: back when it is attached.
    pub(super) fn attached(peer: Peer) -> anyhow::Result<Self> {
        let this = Self::start(&mut peer.command())?;
        until_attached(peer.name(), this.process.pid(), || Ok(!this.is_silent()))?;
        Ok(this)
    }

    fn is_silent(&self) -> bool {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.is_empty()
    }

    /// Waits for a line that came then or later.
    pub(super) fn wait_for(
        &self,
        what: &str,
        from: Instant,
        wanted: impl Fn(&str) -> bool,
    ) -> anyhow::Result<(Instant, String)> {
        wait::until(what, LIMIT, || {
            let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            let found = |(at, line): &&(Instant, String)| *at >= from && wanted(line);
            Ok(lines.iter().find(found).cloned())
        })
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.process.signal(libc::SIGTERM);
        self.process.wait_for_end(LIMIT)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_tell_the_same_time_between_two_moments() {
        let clocks = Clocks::read();
        let at = clocks.steady + Duration::from_millis(250);
        assert!((clocks.since(clocks.wall, at) - 250.0).abs() < 1e-6);
        assert!((clocks.since_boot(clocks.boot - 1_000_000, at) - 251.0).abs() < 1e-6);
        assert!((clocks.since(clocks.wall + Duration::from_millis(300), at) + 50.0).abs() < 1e-6);
        let before = clocks.wall - Duration::from_secs(1);
        assert_eq!(clocks.moment(before), clocks.steady);
        assert_eq!(clocks.moment(clocks.wall + Duration::from_millis(250)), at);
    }
}
