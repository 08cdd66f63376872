//! What one would have a terminal open with instead of the tracer.

use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;
use jiff::Timestamp;

use super::super::peers::Peer;
use super::lines::{Clocks, Lines};
use super::{Rows, Times};

/// One of them, and how long after each thing it told of it.
pub(super) struct Beside {
    who: &'static str,
    /// `None` if it is not installed.
    lines: Option<Lines>,
    times: Times,
}

impl Beside {
    /// One with kernel programs, if it is among those that are here.
    pub(super) fn peer(peer: Peer, here: &[Peer]) -> anyhow::Result<Self> {
        let lines = here.contains(&peer).then(|| Lines::attached(peer));
        Ok(Self {
            who: peer.name(),
            lines: lines.transpose()?,
            times: Times::default(),
        })
    }

    /// One that looks again and again.
    pub(super) fn shell(who: &'static str, script: &str) -> anyhow::Result<Self> {
        Ok(Self {
            who,
            lines: Some(Lines::start(Command::new("sh").args(["-c", script]))?),
            times: Times::default(),
        })
    }

    /// Waits for a line that came then or later, and begins with the time at
    /// which the kernel saw it happen.
    pub(super) fn tells(
        &mut self,
        clocks: Clocks,
        from: Instant,
        wanted: impl Fn(&str) -> bool,
    ) -> anyhow::Result<()> {
        if let Some(lines) = &self.lines {
            let (at, line) = lines.wait_for(&self.line(), from, wanted)?;
            let number = line.split(' ').next().unwrap_or_default();
            let then = number
                .parse()
                .with_context(|| format!("bpftrace: {line}"))?;
            self.times.0.push(clocks.since_boot(then, at));
        }
        Ok(())
    }

    /// Waits for a line about what happened then.
    pub(super) fn tells_of(
        &mut self,
        clocks: Clocks,
        then: Timestamp,
        wanted: impl Fn(&str) -> bool,
    ) -> anyhow::Result<()> {
        if let Some(lines) = &self.lines {
            let (at, _) = lines.wait_for(&self.line(), clocks.moment(then), wanted)?;
            self.times.0.push(clocks.since(then, at));
        }
        Ok(())
    }

    fn line(&self) -> String {
        format!("{} to tell of it", self.who)
    }

    /// Ends it. Its times go beside the tracer's.
    pub(super) fn stop(self, rows: &mut Rows, what: &'static str) -> anyhow::Result<()> {
        self.lines.map(Lines::stop).transpose()?;
        rows.beside(what, self.who, self.times)
    }
}
