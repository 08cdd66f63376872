//! Work that keeps the scheduler, and what watches it, busy.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use node_tracer_tests::stage::Need;
use node_tracer_tests::wait;

use super::Setting;

pub(crate) const NEEDS: &[Need] = &[
    Need::Root,
    Need::Program("perf", "linux-perf"),
    Need::Program("taskset", "util-linux"),
    Need::Program("unshare", "util-linux"),
];

/// Options of the benches that do it.
#[derive(Debug, Args)]
pub(crate) struct Rounds {
    /// How often each work is measured, beside each that looks on
    /// [default: hooks 9, quick 2; sched 7, quick 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// How long a work takes, in milliseconds
    /// [default: hooks 2000, quick 300; sched 500, quick 100]
    #[arg(long, value_parser = clap::value_parser!(u64).range(50..))]
    length: Option<u64>,
}

impl Rounds {
    /// How many, and how long a work takes in each: as asked for, or else so
    /// many and so many milliseconds.
    pub(super) fn of(
        &self,
        setting: &Setting,
        quick: (u32, u64),
        usual: (u32, u64),
    ) -> (u32, Duration) {
        let rounds = setting.number(self.rounds, quick.0, usual.0);
        let length = setting.number(self.length, quick.1, usual.1);
        (rounds, Duration::from_millis(length))
    }
}

/// One kind of work, of which there can be more and less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Two processes that wake each other by pipes.
    Pipe,
    /// The same on one CPU: each message is two switches and nothing else.
    PipeOnOneCpu,
    /// Groups of processes that all write to each other.
    Messaging,
    /// Network namespaces that come and go.
    Unshare,
    /// Programs that are executed.
    Exec,
}

impl Work {
    /// As tables call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pipe => "perf bench sched pipe",
            Self::PipeOnOneCpu => "sched pipe on one CPU",
            Self::Messaging => "perf bench sched messaging",
            Self::Unshare => "unshare -n true",
            Self::Exec => "/bin/true",
        }
    }

    /// So much that it takes a moment.
    fn little(self) -> u64 {
        match self {
            Self::Pipe | Self::PipeOnOneCpu => 20_000,
            Self::Messaging => 50,
            Self::Unshare => 50,
            Self::Exec => 100,
        }
    }

    /// Does so much of it; how many seconds that took.
    pub(crate) fn run(self, amount: u64) -> anyhow::Result<f64> {
        let loops = amount.to_string();
        match self {
            Self::Pipe => perf(Command::new("perf").args(PIPE).arg(loops)),
            Self::PipeOnOneCpu => {
                let mut command = Command::new("taskset");
                perf(command.args(["-c", "0", "perf"]).args(PIPE).arg(loops))
            }
            Self::Messaging => perf(Command::new("perf").args(MESSAGING).arg(loops)),
            Self::Unshare => one_by_one(amount, "unshare", &["-n", "true"]),
            Self::Exec => one_by_one(amount, "/bin/true", &[]),
        }
    }

    /// How much of it takes so long here.
    pub(crate) fn amount_for(self, length: Duration) -> anyhow::Result<u64> {
        // The first one finds caches cold.
        self.run(self.little())?;
        let mut amount = self.little();
        loop {
            let seconds = self.run(amount)?.max(1e-3);
            let part = length.as_secs_f64() / seconds;
            let wanted = (amount as f64 * part).ceil() as u64;
            if part <= 4.0 {
                return Ok(wanted.max(1));
            }
            amount = (amount * 4).min(wanted);
        }
    }
}

const PIPE: [&str; 4] = ["bench", "sched", "pipe", "-l"];
const MESSAGING: [&str; 6] = ["bench", "sched", "messaging", "-g", "2", "-l"];

/// Runs it, and reads the time that it has taken itself.
fn perf(command: &mut Command) -> anyhow::Result<f64> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("start perf")?;
    wait::pause(Duration::ZERO)?;
    let text = String::from_utf8_lossy(&output.stdout);
    anyhow::ensure!(
        output.status.success(),
        "perf: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    total_time(&text).with_context(|| format!("perf says no time: {text}"))
}

/// Seconds, of `     Total time: 0.818 [sec]`; or the same with more digits, of
/// `       8.183130 usecs/op` and the number of operations.
fn total_time(text: &str) -> Option<f64> {
    let total = text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("Total time:")?;
        rest.trim().strip_suffix("[sec]")?.trim().parse().ok()
    });
    let operation = text.lines().find_map(|line| {
        let number: f64 = line.trim().strip_suffix("usecs/op")?.trim().parse().ok()?;
        Some(number)
    });
    let count = text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("# Executed ")?;
        let number: f64 = rest.split(' ').next()?.parse().ok()?;
        Some(number)
    });
    operation
        .zip(count)
        .map(|(operation, count)| operation * count / 1e6)
        .or(total)
}

/// Runs a program so often, one at a time.
fn one_by_one(amount: u64, program: &str, args: &[&str]) -> anyhow::Result<f64> {
    let begin = Instant::now();
    for _ in 0..amount {
        let status = Command::new(program).args(args).status();
        let status = status.with_context(|| format!("start {program}"))?;
        anyhow::ensure!(status.success(), "{program}: {status}");
        if wait::interrupted() {
            wait::pause(Duration::ZERO)?;
        }
    }
    Ok(begin.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_perf_is_read_as_exactly_as_it_is_said() {
        let pipe = "# Running 'sched/pipe' benchmark:\n# Executed 100000 pipe operations between \
            two processes\n\n     Total time: 0.818 [sec]\n\n       8.183130 usecs/op\n         \
            122202 ops/sec\n";
        assert!((total_time(pipe).unwrap() - 0.818_313).abs() < 1e-9);
        assert_eq!(total_time("     Total time: 0.722 [sec]\n"), Some(0.722));
        assert_eq!(total_time("nothing"), None);
    }
}
