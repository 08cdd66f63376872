//! `bench`: measures the tracer, beside what an engineer would use instead.
//!
//! What is measured on is real and made here ([`node_tracer_tests`]); all of it
//! is removed at the end, after a failure and after Ctrl-C. Tables go to
//! stdout, numbers to `target/bench/`.

pub(crate) mod crictl;
mod long;
mod measure;
mod replay;
mod scan;
mod storm;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use node_tracer_tests::stage;
use node_tracer_tests::wait::{self, Interrupted};
use serde_json::Value;

use crate::cargo;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// One look at a node with many pods, and one question, beside crictl
    Scan(scan::Options),
    /// All that a tracer looks at, as fast as the machine can, and rest after it
    Storm(storm::Options),
    /// A node's mixed load for half an hour, and whether anything grows
    Long(long::Options),
    /// A large log that says little, beside grep
    Replay(replay::Options),
}

fn say(line: &str) {
    println!("── bench: {line}");
}

/// Where numbers are kept.
fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target
        .unwrap_or_else(|| cargo::root().join("target"))
        .join("bench")
}

/// Writes the numbers of one bench.
fn write(name: &str, numbers: &Value) -> anyhow::Result<()> {
    let file = folder().join(name).with_extension("json");
    std::fs::create_dir_all(folder())
        .and_then(|()| std::fs::write(&file, format!("{numbers:#}\n")))
        .with_context(|| format!("write {}", file.display()))?;
    say(&format!("numbers are in {}", file.display()));
    Ok(())
}

pub(crate) fn run(what: &Bench) -> anyhow::Result<ExitCode> {
    let missing = stage::missing(match what {
        Bench::Scan(_) => scan::NEEDS,
        Bench::Storm(_) => storm::NEEDS,
        Bench::Long(_) => long::NEEDS,
        Bench::Replay(_) => replay::NEEDS,
    });
    missing.iter().for_each(|line| eprintln!("bench {line}"));
    if !missing.is_empty() {
        return Ok(ExitCode::from(2));
    }
    let tracer = match what {
        Bench::Storm(storm::Options {
            binary: Some(binary),
            ..
        })
        | Bench::Long(long::Options {
            binary: Some(binary),
            ..
        }) => binary.clone(),
        _ => cargo::build_tracer(&["--release", "--package", "node-tracer"])?,
    };
    wait::catch_signals()?;
    stage::sweep();
    let done = match what {
        Bench::Scan(options) => scan::run(options, &tracer),
        Bench::Storm(options) => storm::run(options, &tracer),
        Bench::Long(options) => long::run(options, &tracer),
        Bench::Replay(options) => replay::run(options, &tracer),
    };
    // All guards are gone here.
    let left = stage::leftovers();
    anyhow::ensure!(left.is_empty(), "left behind: {}", left.join(", "));
    match done {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(error) if error.is::<Interrupted>() || wait::interrupted() => {
            say("interrupted; everything that was made is removed");
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error),
    }
}
