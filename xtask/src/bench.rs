//! `bench`: measures the tracer, beside what an engineer would use instead.
//!
//! | module | what |
//! |---|---|
//! | [`hooks`] | what a run of each kernel program takes, beside an empty one |
//! | [`sched`] | what the tracer slows down, and by how much |
//! | [`latency`] | from what happens in the kernel to the record of it |
//! | [`footprint`] | start, memory and time on a CPU on a node with many pods |
//! | [`scan`], [`storm`], [`replay`] | one look; all at once; a large log |
//! | [`evaluation`] | all rules after one change |
//! | [`size`] | the binary |
//! | [`fleet`] | what the tracers of thousands of nodes ask of an API server |
//! | [`budget`] | what each may take, and the table of all |
//! | [`machine`], [`sample`], [`mod@measure`], [`process`] | what is measured on, and how |
//! | [`work`], [`load`], [`watcher`], [`peers`], [`programs`] | what is done, and what looks on |
//!
//! What is measured on is real and made here ([`node_tracer_tests`]); all of it
//! is removed at the end, after a failure and after Ctrl-C. Tables go to
//! stdout and, of a whole run, to `target/bench/`.

mod budget;
pub(crate) mod crictl;
mod evaluation;
mod fleet;
mod footprint;
mod hooks;
mod latency;
mod load;
mod machine;
mod measure;
mod peers;
mod process;
mod programs;
mod replay;
mod sample;
mod scan;
mod sched;
mod size;
mod storm;
mod watcher;
mod work;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use node_tracer_tests::stage::{self, Need};
use node_tracer_tests::wait::{self, Interrupted};

use self::budget::{Budget, Verdict};
use self::machine::Machine;
use crate::{cargo, generated};

/// What `bench` is asked for.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// What is measured [default: all of it]
    #[command(subcommand)]
    what: Option<What>,
    /// Measure this tracer instead of the one of this source
    #[arg(long, global = true, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Seconds instead of minutes: to see that it works
    #[arg(long, global = true)]
    quick: bool,
    /// Measure nothing; put what the last whole run (or that of fleet) said into
    /// node-tracer/doc/performance.md
    #[arg(long, global = true)]
    doc: bool,
}

/// What can be measured.
#[derive(Debug, Subcommand)]
enum What {
    /// What a run of each kernel program takes, beside an empty one
    Hooks(work::Rounds),
    /// What the tracer slows down, beside bpftrace and libbpf-tools
    Sched(work::Rounds),
    /// From what happens in the kernel to the record of it
    Latency(latency::Options),
    /// Start, memory and time on a CPU on a node with many pods
    Footprint(footprint::Options),
    /// One look at a node with many pods, and one question, beside crictl
    Scan(scan::Options),
    /// All that a tracer looks at, as fast as the machine can, and rest after it
    Storm(storm::Options),
    /// A large log that says little, beside grep
    Replay(replay::Options),
    /// All rules after one small change, on large nodes
    Evaluation,
    /// The static binary
    Size,
    /// What the tracers of a whole cluster ask of a real API server (not part of all)
    Fleet(fleet::Options),
}

/// A command line of one bench, for the defaults of its options.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    what: What,
}

/// What all benches are told.
#[derive(Clone, Debug)]
struct Setting {
    tracer: PathBuf,
    /// It was named, not built.
    given: bool,
    quick: bool,
}

impl Setting {
    /// How often, or how long: as it was asked for, or else by what there is time for.
    fn number<T: Copy>(&self, asked: Option<T>, quick: T, usual: T) -> T {
        asked.unwrap_or(if self.quick { quick } else { usual })
    }
}

fn say(line: &str) {
    println!("── bench: {line}");
}

/// Where something of the last run is kept.
fn kept(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| cargo::root().join("target"));
    target.join("bench").join(name)
}

/// The file with the last whole run's table, for the document.
const TABLE: &str = "table.md";
const FLEET: &str = "fleet.md";

impl What {
    /// All of them, in the order in which they are run.
    fn all() -> anyhow::Result<Vec<Self>> {
        let names = [
            "hooks",
            "sched",
            "latency",
            "footprint",
            "scan",
            "storm",
            "replay",
            "evaluation",
            "size",
        ];
        let parsed = names.map(|name| Ok(Line::try_parse_from([name])?.what));
        parsed.into_iter().collect()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Hooks(_) => "hooks",
            Self::Sched(_) => "sched",
            Self::Latency(_) => "latency",
            Self::Footprint(_) => "footprint",
            Self::Scan(_) => "scan",
            Self::Storm(_) => "storm",
            Self::Replay(_) => "replay",
            Self::Evaluation => "evaluation",
            Self::Size => "size",
            Self::Fleet(_) => "fleet",
        }
    }

    fn missing(&self) -> Vec<String> {
        let needs: &[Need] = match self {
            Self::Hooks(_) | Self::Sched(_) => work::NEEDS,
            Self::Latency(_) => latency::NEEDS,
            Self::Footprint(_) => footprint::NEEDS,
            Self::Scan(_) => scan::NEEDS,
            Self::Storm(_) => storm::NEEDS,
            Self::Replay(_) => replay::NEEDS,
            Self::Evaluation | Self::Size => &[],
            Self::Fleet(_) => fleet::NEEDS,
        };
        stage::missing(needs)
    }

    fn measure(&self, setting: &Setting) -> anyhow::Result<Vec<Budget>> {
        match self {
            Self::Hooks(options) => hooks::run(options, setting),
            Self::Sched(options) => sched::run(options, setting),
            Self::Latency(options) => latency::run(options, setting),
            Self::Footprint(options) => footprint::run(options, setting),
            Self::Scan(options) => scan::run(options, setting),
            Self::Storm(options) => storm::run(options, setting),
            Self::Replay(options) => replay::run(options, setting),
            Self::Evaluation => evaluation::run(),
            Self::Size => size::run(setting),
            Self::Fleet(options) => fleet::run(options, setting),
        }
    }
}

pub(crate) fn run(asked: &Bench) -> anyhow::Result<ExitCode> {
    if asked.doc {
        let (command, file) = match &asked.what {
            None => ("bench", kept(TABLE)),
            Some(What::Fleet(_)) => ("bench fleet", kept(FLEET)),
            Some(_) => anyhow::bail!("--doc takes the table of a whole run, or of fleet"),
        };
        let table = fs::read_to_string(&file)
            .with_context(|| format!("{}: run `cargo xtask {command}` first", file.display()))?;
        generated::write("performance.md", command, &table)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(what) = &asked.what {
        let missing = what.missing();
        missing.iter().for_each(|line| eprintln!("bench {line}"));
        if !missing.is_empty() {
            return Ok(ExitCode::from(2));
        }
    }
    let tracer = match &asked.binary {
        Some(binary) => std::path::absolute(binary)?,
        None if matches!(asked.what, Some(What::Size | What::Fleet(_))) => PathBuf::new(),
        None => cargo::build_tracer(&["--release", "--package", "node-tracer"])?,
    };
    let setting = Setting {
        tracer,
        given: asked.binary.is_some(),
        quick: asked.quick,
    };
    wait::catch_signals()?;
    let swept = stage::sweep();
    for path in swept {
        say(&format!(
            "removed, of a run that was killed: {}",
            path.display()
        ));
    }
    let done = measure(asked, &setting);
    // All guards are gone here.
    let left = stage::leftovers();
    anyhow::ensure!(left.is_empty(), "left behind: {}", left.join(", "));
    match done {
        Err(error) if error.is::<Interrupted>() || wait::interrupted() => {
            say("interrupted; everything that was made is removed");
            Ok(ExitCode::FAILURE)
        }
        done => done,
    }
}

fn measure(asked: &Bench, setting: &Setting) -> anyhow::Result<ExitCode> {
    let machine = Machine::look()?;
    say(&machine.to_string());
    let warning = machine.warning();
    warning.iter().for_each(|warning| say(warning));
    let Some(what) = &asked.what else {
        return all(setting, &machine);
    };
    let budgets = what.measure(setting)?;
    match what {
        What::Fleet(_) => keep(FLEET, &budgets, setting, &machine)?,
        _ => println!("{}", budget::table(&budgets)),
    }
    warning.iter().for_each(|warning| say(warning));
    Ok(verdict(&budgets))
}

/// 1 if a budget is missed.
fn verdict(budgets: &[Budget]) -> ExitCode {
    let missed = |budget: &Budget| budget.verdict == Verdict::Missed;
    match budgets.iter().any(missed) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// All benches. One that cannot be run here does not end the others.
fn all(setting: &Setting, machine: &Machine) -> anyhow::Result<ExitCode> {
    let mut budgets = Vec::new();
    let mut failed = false;
    for what in What::all()? {
        let name = what.name();
        say(&format!("═══ {name}"));
        let missing = what.missing();
        if !missing.is_empty() {
            missing.iter().for_each(|line| eprintln!("bench {line}"));
            budgets.push(Budget::not_measured(name, &missing.join("; ")));
            continue;
        }
        let start = Instant::now();
        match what.measure(setting) {
            Ok(more) => budgets.extend(more),
            Err(error) if error.is::<Interrupted>() || wait::interrupted() => return Err(error),
            Err(error) => {
                failed = true;
                eprintln!("error: bench {name}: {error:#}");
                budgets.push(Budget::not_measured(name, &format!("{error:#}")));
            }
        }
        say(&format!("{name}: {:.0} s", start.elapsed().as_secs_f64()));
    }
    keep(TABLE, &budgets, setting, machine)?;
    Ok(match failed {
        true => ExitCode::from(2),
        false => verdict(&budgets),
    })
}

/// Tells the table with what is to be known of the run, and keeps both.
fn keep(
    name: &str,
    budgets: &[Budget],
    setting: &Setting,
    machine: &Machine,
) -> anyhow::Result<()> {
    let table = budget::table(budgets);
    let mut remarks = vec![machine.to_string()];
    remarks.extend(machine.warning());
    if setting.quick {
        remarks.push(String::from(
            "--quick: to see that it works, not to be quoted",
        ));
    }
    let list: String = remarks.iter().map(|line| format!("* {line}\n")).collect();
    println!("\n{table}\n{list}");
    let file = kept(name);
    let folder = file.parent().context("no folder")?;
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&file, format!("{table}\n{list}")))
        .with_context(|| file.display().to_string())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[derive(Debug, Parser)]
    struct Outer {
        #[command(flatten)]
        bench: Bench,
    }

    #[test]
    fn all_benches_can_be_asked_for_at_once_and_one_by_one() {
        Outer::command().debug_assert();
        for what in What::all().unwrap() {
            let one = Outer::try_parse_from(["bench", what.name(), "--quick"]).unwrap();
            assert!(one.bench.quick);
            assert_eq!(one.bench.what.unwrap().name(), what.name());
        }
    }

    #[test]
    fn the_binary_may_be_named_before_and_after() {
        for line in [
            ["bench", "--binary", "/x", "scan"],
            ["bench", "scan", "--binary", "/x"],
            ["bench", "storm", "--binary", "/x"],
        ] {
            let asked = Outer::try_parse_from(line).unwrap();
            assert_eq!(asked.bench.binary, Some(PathBuf::from("/x")));
        }
    }
}
