//! `bench replay`: how fast a large log is read that says little, and in how
//! much memory, beside grep.

mod log;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::Need;
use node_tracer_tests::wait;
use serde_json::{Value, json};

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

/// One line of the result.
struct Row {
    what: &'static str,
    series: Series,
    /// MB/s of the log as it is unpacked.
    speed: f64,
    /// MB a second on a CPU: what one core does that nobody else uses.
    core: f64,
    /// How many of them there must be, if there is a limit.
    limit: Option<f64>,
    /// MiB that it may have, if there is a limit.
    memory: Option<u64>,
    /// What shows that the work was done.
    saw: String,
}

impl Row {
    fn holds(&self) -> bool {
        self.limit.is_none_or(|limit| self.core >= limit)
            && (self.memory).is_none_or(|limit| self.series.memory() <= limit << 10)
    }

    fn told(&self) -> String {
        let (core, memory) = (self.core, self.series.memory() as f64 / 1024.0);
        format!("{} {core:.0} MB/s, {memory:.0} MiB", self.what)
    }

    /// In the last table.
    fn budget(&self, size: u64, peers: Vec<String>) -> Budget {
        let limits = [
            self.limit
                .map(|limit| format!("≥ {limit:.0} MB/s of one core")),
            self.memory.map(|limit| format!("≤ {limit} MiB")),
        ];
        let (core, memory) = (self.core, self.series.memory() as f64 / 1024.0);
        Budget {
            what: format!("{}, log of {size} MB", self.what),
            limit: limits.into_iter().flatten().collect::<Vec<_>>().join(", "),
            measured: format!("{core:.0} MB/s, {memory:.0} MiB"),
            peers,
            verdict: Verdict::of(self.holds()),
        }
    }

    fn json(&self) -> Value {
        let mut all = self.series.json();
        all["what"] = json!(self.what);
        all["mb_per_s"] = json!(self.speed);
        all["mb_per_cpu_s"] = json!(self.core);
        all["limit_mb_per_cpu_s"] = json!(self.limit);
        all["limit_mib"] = json!(self.memory);
        all["saw"] = json!(self.saw);
        all
    }
}

pub(super) fn run(options: &Options, setting: &Setting) -> anyhow::Result<Vec<Budget>> {
    let size = setting.number(options.size, 20, 1_000);
    let scratch = Scratch::create()?;
    let (plain, packed) = (
        scratch.path().join("kubelet.log"),
        scratch.path().join("kubelet.log.gz"),
    );
    let begin = Instant::now();
    let lines = write(&plain, size * 1_000_000)?;
    pack(&plain, &packed)?;
    let bytes = plain.metadata()?.len();
    say(&format!(
        "{lines} lines, {:.0} MB, {:.0} MB as gzip, made in {:.1} s",
        bytes as f64 / 1e6,
        packed.metadata()?.len() as f64 / 1e6,
        begin.elapsed().as_secs_f64()
    ));

    let replay = |output: &str, log: &Path| -> anyhow::Result<Run> {
        let mut command = Command::new(&setting.tracer);
        command.args(["replay", "-o", output]).arg(log);
        told(measure::run_watched(&mut command)?)
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
    let counted = |runs: &[Run]| {
        let count = runs.first().map(|run| run.stdout.trim().to_owned());
        format!("{} lines", count.unwrap_or_default())
    };
    let (found, memory) = (String::from("the stale DEL"), Some(MEMORY));
    let [json, text, gzip, by_grep, by_zgrep] = runs;
    let by_grep = ("grep -cE WORDS", counted(&by_grep), by_grep, None, None);
    let by_zgrep = (
        "zcat | grep -cE WORDS",
        counted(&by_zgrep),
        by_zgrep,
        None,
        None,
    );
    let all = [
        ("replay -o json", found.clone(), json, Some(SPEED), memory),
        ("replay -o text", found.clone(), text, Some(SPEED), memory),
        by_grep,
        ("replay -o json, gzip", found, gzip, None, memory),
        by_zgrep,
    ];
    let mut rows = Vec::new();
    for (what, saw, runs, limit, memory) in all {
        let series = Series::of(runs)?;
        let per = |time: Duration| bytes as f64 / 1e6 / time.as_secs_f64();
        let (speed, core) = (per(series.median()), per(series.middle_cpu()));
        rows.push(Row {
            what,
            series,
            speed,
            core,
            limit,
            memory,
            saw,
        });
    }
    println!(
        "\n{:<24} {}    MB/s  per CPU  saw",
        "seconds",
        Series::HEADER
    );
    for row in &rows {
        println!(
            "{:<24} {}  {:>6.0}  {:>7.0}  {}{}",
            row.what,
            row.series.columns(),
            row.speed,
            row.core,
            row.saw,
            if row.holds() { "" } else { "  OVER ITS LIMIT" }
        );
    }
    println!(
        "\nlimits of replay: {SPEED:.0} MB a second on a CPU uncompressed, {MEMORY} MiB resident\n"
    );
    let numbers: Vec<Value> = rows.iter().map(Row::json).collect();
    super::write(
        "replay",
        &json!({ "runs": options.runs, "bytes": bytes, "lines": lines, "rows": numbers }),
    )?;
    let (peers, replays): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| row.what.contains("grep"));
    let beside = |replay: &Row| -> Vec<String> {
        let packed = replay.what.contains("gzip");
        let same = |peer: &&Row| peer.what.contains("zcat") == packed;
        peers.iter().filter(same).map(Row::told).collect()
    };
    Ok(replays
        .iter()
        .map(|row| row.budget(size, beside(row)))
        .collect())
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
fn told(run: Run) -> anyhow::Result<Run> {
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
