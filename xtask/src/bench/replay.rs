//! `bench replay`: how fast a large log is read that says little, and in how
//! much memory, beside grep.

mod log;

use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::Need;
use node_tracer_tests::wait;

use super::budget::{Budget, Verdict};
use super::measure::{self, Run, Series};
use super::{Setting, say};

pub(super) const NEEDS: &[Need] = &[Need::Program("grep", "grep"), Need::Program("zcat", "gzip")];

/// MB (10^6 bytes) of an uncompressed log in a second on a CPU, at least.
const SPEED: f64 = 200.0;
/// MiB resident at most, however long the log is.
const MEMORY: u64 = 64;
/// What an engineer would look for.
const WORDS: &str = "CNI_COMMAND|PodSandbox|sandbox|hung_task|unregister_netdevice|ailed";

/// Options of `bench replay`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often each thing is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// How long the log is, in MB [default: 1000, quick 20]
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    size: Option<u64>,
}

/// How it went with a log of so many bytes.
#[derive(Clone, Copy)]
struct Figures {
    /// MB a second on a CPU: what one core does that nobody else uses.
    core: f64,
    /// MiB.
    memory: f64,
}

impl Figures {
    fn of(runs: Vec<Run>, bytes: u64) -> anyhow::Result<Self> {
        let series = Series::of(runs)?;
        Ok(Self {
            core: bytes as f64 / 1e6 / series.middle_cpu().as_secs_f64(),
            memory: series.memory() as f64 / 1024.0,
        })
    }

    /// In the last table; `is_fast`: there is a limit for its speed, too.
    fn budget(self, what: String, is_fast: bool, beside: String) -> Budget {
        let limit = format!("≤ {MEMORY} MiB");
        Budget {
            what,
            limit: match is_fast {
                true => format!("≥ {SPEED:.0} MB/s of one core, {limit}"),
                false => limit,
            },
            measured: self.to_string(),
            peers: vec![beside],
            verdict: Verdict::of(self.memory <= MEMORY as f64 && (!is_fast || self.core >= SPEED)),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} MB/s, {:.0} MiB", self.core, self.memory)
    }
}

pub(super) fn run(options: &Options, setting: &Setting) -> anyhow::Result<Vec<Budget>> {
    let size = setting.number(options.size, 20, 1_000);
    let scratch = Scratch::create()?;
    let (plain, packed) = (
        scratch.path().join("kubelet.log"),
        scratch.path().join("kubelet.log.gz"),
    );
    let lines = write(&plain, size * 1_000_000)?;
    pack(&plain, &packed)?;
    let bytes = plain.metadata()?.len();
    say(&format!("{lines} lines, {size} MB"));

    let replay = |output: &str, log: &Path| -> anyhow::Result<Run> {
        let mut command = Command::new(&setting.tracer);
        command.args(["replay", "-o", output]).arg(log);
        found(measure::run_watched(&mut command)?)
    };
    let line = |line: &str, log: &Path| -> anyhow::Result<Run> {
        let mut command = Command::new("bash");
        command.args(["-c", line, "bash"]).arg(log);
        // grep asks the locale what a letter is.
        let run = measure::run_watched(command.env("LC_ALL", "C"))?;
        anyhow::ensure!(run.code == Some(0), "{line}: {}", run.stderr.trim());
        Ok(run)
    };
    let grep = format!("grep -cE '{WORDS}' \"$1\"");
    let zgrep = format!("zcat \"$1\" | grep -cE '{WORDS}'");
    let mut runs: [Vec<Run>; 5] = Default::default();
    for _ in 0..options.runs {
        wait::pause(Duration::ZERO)?;
        let [json, text, gzip, by_grep, by_zgrep] = &mut runs;
        by_grep.push(line(&grep, &plain)?);
        json.push(replay("json", &plain)?);
        text.push(replay("text", &plain)?);
        by_zgrep.push(line(&zgrep, &packed)?);
        gzip.push(replay("json", &packed)?);
    }
    let [json, text, gzip, by_grep, by_zgrep] = runs.map(|runs| Figures::of(runs, bytes));
    let by_grep = format!("grep -cE WORDS {}", by_grep?);
    let by_zgrep = format!("zcat | grep -cE WORDS {}", by_zgrep?);
    let name = |what: &str| format!("{what}, log of {size} MB");
    Ok(vec![
        json?.budget(name("replay -o json"), true, by_grep.clone()),
        text?.budget(name("replay -o text"), true, by_grep),
        gzip?.budget(name("replay -o json, gzip"), false, by_zgrep),
    ])
}

/// Writes the log; how many lines it has.
fn write(path: &Path, bytes: u64) -> anyhow::Result<u64> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let mut log = log::Log::new(bytes);
    let mut line = String::new();
    while log.next(&mut line) {
        if log.lines().is_multiple_of(1 << 16) {
            wait::pause(Duration::ZERO)?;
        }
        file.write_all(line.as_bytes()).context("write the log")?;
    }
    file.flush().context("write the log")?;
    Ok(log.lines())
}

fn pack(plain: &Path, packed: &Path) -> anyhow::Result<()> {
    let into = File::create(packed).with_context(|| format!("create {}", packed.display()))?;
    let status = Command::new("gzip")
        .args(["-1", "--stdout"])
        .arg(plain)
        .stdout(into)
        .status()
        .context("start gzip")?;
    anyhow::ensure!(status.success(), "gzip: {status}");
    Ok(())
}

/// Makes sure that a replay has found what is in the log: a time without it
/// would mean nothing.
fn found(run: Run) -> anyhow::Result<Run> {
    anyhow::ensure!(
        run.code == Some(1),
        "replay: exit code {:?}: {}",
        run.code,
        run.stderr.trim()
    );
    // For people, IDs are shortened.
    let ghost = log::GHOST.get(..12).unwrap_or(log::GHOST);
    anyhow::ensure!(
        run.stdout.contains("stale-del") && run.stdout.contains(ghost),
        "replay does not tell of the stale DEL of {}:\n{}",
        log::GHOST,
        run.stdout.get(..2_000).unwrap_or(&run.stdout)
    );
    Ok(run)
}
