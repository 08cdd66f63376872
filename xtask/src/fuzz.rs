//! `fuzz`: whatever the tool reads from others, made of chance and of what was
//! read before, by libFuzzer. On the stable toolchain: the coverage is LLVM's,
//! asked for by the compiler's flags. What is read is read in safe Rust, nearly
//! all; `--sanitize` sees what the rest does with memory.
//!
//! Targets are the folders of `node-tracer/fuzz/`; what is in them are the
//! seeds, which are kept. What is found beyond them is below the target folder.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use clap::Args;
use node_tracer_tests::stage::in_path;

use crate::cargo::{cargo, root};

/// Longest input, bytes.
const LONGEST: u32 = 64 << 10;
/// Seeds of a target that are kept by themselves, at most, and their longest:
/// those that lead to most that no smaller one leads to.
const KEPT: usize = 24;
const LONGEST_KEPT: usize = 2 << 10;
/// Longest that one input may take, seconds.
const PATIENCE: u32 = 10;
/// Most memory, MiB.
const MEMORY: u32 = 2048;
/// The triple must be named, so that build scripts are built without coverage.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// What the compiler is to add.
const FLAGS: &str = "-Cpasses=sancov-module -Ccodegen-units=1 -Cdebug-assertions \
                     -Coverflow-checks -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares";

/// What the compiler is to add under `--sanitize`: asked of a stable toolchain,
/// so under `RUSTC_BOOTSTRAP`.
const SANITIZER: &str = "-Zsanitizer=address";

/// What to fuzz, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    /// Targets; all without any
    targets: Vec<String>,
    /// How long for each; 0 is once through what is there
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u32,
    /// Where there is no C++ compiler for libFuzzer, say so and end with 0
    #[arg(long)]
    if_possible: bool,
    /// Build, and run nothing
    #[arg(long)]
    no_run: bool,
    /// Afterwards add what was found to the seeds: a few small ones that cover most
    #[arg(long)]
    keep: bool,
    /// With LLVM's address sanitizer, which is slower
    #[arg(long)]
    sanitize: bool,
}

/// Runs each target. A crash, a hang or too much memory is told with the input
/// that does it, and ends with 1.
pub(crate) fn run(asked: &Fuzz) -> anyhow::Result<ExitCode> {
    if in_path("g++").is_none() && in_path("c++").is_none() {
        let why = "no C++ compiler, which libFuzzer needs: cargo xtask setup";
        anyhow::ensure!(asked.if_possible, "{why}");
        println!("── fuzz: skipped: {why}");
        return Ok(ExitCode::SUCCESS);
    }
    let seeds = root().join("node-tracer/fuzz");
    let targets = match asked.targets.as_slice() {
        [] => folders(&seeds)?,
        named => named.to_vec(),
    };
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root().join("target"), PathBuf::from);
    let out = std::path::absolute(target.join("fuzz"))?;
    let binary = build(&out, asked.sanitize)?;
    if asked.no_run {
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "── fuzz: {} targets, {} s each",
        targets.len(),
        asked.seconds
    );
    let mut failed = Vec::new();
    for target in &targets {
        let place = Place::new(&seeds, &out, target)?;
        if !place.fuzz(&binary, asked.seconds)? {
            failed.push(target.as_str());
        } else if asked.keep {
            place.keep(&binary)?;
        }
    }
    match failed.as_slice() {
        [] => {
            println!("── fuzz: {} targets, nothing found", targets.len());
            Ok(ExitCode::SUCCESS)
        }
        failed => {
            let out = out.join("found");
            println!(
                "── fuzz: FAILED {}: see {}",
                failed.join(", "),
                out.display()
            );
            Ok(ExitCode::FAILURE)
        }
    }
}

fn folders(path: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(path).with_context(|| path.display().to_string())?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() && name != "src" {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Builds what libFuzzer runs.
fn build(out: &Path, sanitize: bool) -> anyhow::Result<PathBuf> {
    println!("── fuzz: build");
    let (out, flags) = match sanitize {
        true => (out.join("sanitized"), format!("{FLAGS} {SANITIZER}")),
        false => (out.to_owned(), FLAGS.to_owned()),
    };
    let mut command = cargo(&[
        "build",
        "--quiet",
        "--profile",
        "guest",
        "--package",
        "node-tracer-fuzz",
        "--features",
        "libfuzzer",
    ])?;
    command
        .args([
            "--bin",
            "node-tracer-fuzz",
            "--target",
            TRIPLE,
            "--target-dir",
        ])
        .arg(&out)
        .env("RUSTFLAGS", flags);
    if sanitize {
        command.env("RUSTC_BOOTSTRAP", "1");
    }
    let built = command.status()?;
    anyhow::ensure!(built.success(), "the build for fuzzing failed");
    Ok(out.join(TRIPLE).join("guest/node-tracer-fuzz"))
}

/// Where a target's inputs are.
struct Place {
    target: String,
    /// What is kept in the repository.
    seeds: PathBuf,
    /// What was found to lead somewhere else.
    corpus: PathBuf,
    found: PathBuf,
}

impl Place {
    fn new(seeds: &Path, out: &Path, target: &str) -> anyhow::Result<Self> {
        let this = Self {
            target: target.to_owned(),
            seeds: seeds.join(target),
            corpus: out.join("corpus").join(target),
            found: out.join("found").join(target),
        };
        anyhow::ensure!(this.seeds.is_dir(), "there is no {}", this.seeds.display());
        for folder in [&this.corpus, &this.found] {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        Ok(this)
    }

    fn command(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        let mut found = self.found.clone().into_os_string();
        found.push("/");
        let mut artifacts = OsStr::new("-artifact_prefix=").to_owned();
        artifacts.push(found);
        command
            .env("NODE_TRACER_FUZZ", &self.target)
            .arg(format!("-max_len={LONGEST}"))
            .arg(format!("-timeout={PATIENCE}"))
            .arg(format!("-rss_limit_mb={MEMORY}"))
            .arg(artifacts);
        command
    }

    /// Whether nothing was found. What libFuzzer says is shown if something
    /// was; it is much.
    fn fuzz(&self, binary: &Path, seconds: u32) -> anyhow::Result<bool> {
        let output = self
            .command(binary)
            .arg(match seconds {
                0 => String::from("-runs=0"),
                seconds => format!("-max_total_time={seconds}"),
            })
            .args(["-print_final_stats=1", "-use_value_profile=1"])
            .args([&self.corpus, &self.seeds])
            .stdin(Stdio::null())
            .output()
            .with_context(|| binary.display().to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            println!("{said}");
            return Ok(false);
        }
        let figure = |name: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or("?").trim().to_owned()
        };
        // `#1024 NEW    cov: 113 ft: 1626 corp: ...`
        let edges = said.rsplit_once(" cov: ").map_or("?", |(_, rest)| {
            rest.split_whitespace().next().unwrap_or_default()
        });
        println!(
            "   {:<16} {:>10} runs, {:>6} edges, {:>6} inputs found, {:>4} MB, slowest {} s",
            self.target,
            figure("stat::number_of_executed_units:"),
            edges,
            figure("stat::new_units_added:"),
            figure("stat::peak_rss_mb:"),
            figure("stat::slowest_unit_time_sec:"),
        );
        Ok(true)
    }

    /// Adds to the seeds what leads to most that none of them leads to.
    fn keep(&self, binary: &Path) -> anyhow::Result<()> {
        let kept = fs::read_dir(&self.seeds)?.count();
        let control = self.corpus.with_extension("account");
        let into = self.corpus.with_extension("merged");
        for left in [&control, &into] {
            remove(left)?;
        }
        fs::create_dir(&into)?;
        let merged = self
            .command(binary)
            .arg("-merge=1")
            .arg(format!("-max_len={LONGEST_KEPT}"))
            .arg(format!("-merge_control_file={}", control.display()))
            // The first one's files count as there already.
            .args([&into, &self.seeds, &self.corpus])
            .stderr(Stdio::null())
            .status()?;
        anyhow::ensure!(merged.success(), "{}: merging failed", self.target);
        let text = fs::read_to_string(&control)?;
        for done in [&control, &into] {
            remove(done)?;
        }
        for path in best(&text, KEPT.saturating_sub(kept)) {
            let path = Path::new(path);
            let new = path.starts_with(&self.corpus);
            if let Some(name) = path.file_name().filter(|_| new) {
                // No more of it was looked at.
                let mut bytes = fs::read(path)?;
                bytes.truncate(LONGEST_KEPT);
                fs::write(self.seeds.join(name), bytes)?;
            }
        }
        Ok(())
    }
}

fn remove(path: &Path) -> anyhow::Result<()> {
    let removed = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Of libFuzzer's account of a merge the files that have brought most, `most`
/// of them. It lists the files, after two numbers, and then of each what it has
/// brought that those before it had not (`FT INDEX FEATURE...`).
fn best(account: &str, most: usize) -> Vec<&str> {
    let lines: Vec<&str> = account.lines().collect();
    let number = |line: Option<&&str>| line.and_then(|line| line.parse::<usize>().ok());
    let count = number(lines.first()).unwrap_or_default();
    let files = lines.get(2..).unwrap_or_default();
    let files = files.get(..count).unwrap_or_default();
    let mut brought: Vec<(usize, &str)> = lines
        .iter()
        .filter_map(|line| {
            let mut words = line.strip_prefix("FT ")?.split_whitespace();
            let file = files.get(words.next()?.parse::<usize>().ok()?)?;
            Some((words.count(), *file))
        })
        .collect();
    brought.sort_by_key(|(features, _)| std::cmp::Reverse(*features));
    let some = brought.into_iter().filter(|(features, _)| *features > 0);
    some.take(most).map(|(_, file)| file).collect()
}
