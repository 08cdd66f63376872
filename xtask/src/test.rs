//! `test`: unit tests and integration tests, and their counts in one line.

use std::io::{BufRead as _, BufReader};
use std::ops::AddAssign;
use std::process::{ExitCode, Stdio};

use anyhow::Context as _;

use node_tracer_tests::containerd::generation;
use node_tracer_tests::kube::clients;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::{self, Need, PACKAGES};

use crate::cargo::{build_tracer, cargo};
use crate::{dist, kube_clients, newer, setup};

/// Tests that passed, failed, and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The closing line of a test program: Rust's own harness, or ours.
fn closing(line: &str) -> Option<Counts> {
    let counts = match line.strip_prefix("test result: ") {
        Some(rest) => rest.split_once(". ")?.1,
        None if line.ends_with(" skipped") => line,
        None => return None,
    };
    let mut numbers = counts.split([';', ',']).map(|part| {
        let (number, what) = part.trim().split_once(' ')?;
        Some((number.parse().ok()?, what))
    });
    let mut next = |names: &[&str]| {
        numbers
            .next()
            .flatten()
            .and_then(|(number, what)| names.contains(&what).then_some(number))
    };
    Some(Counts {
        passed: next(&["passed"])?,
        failed: next(&["failed"])?,
        skipped: next(&["ignored", "skipped"])?,
    })
}

/// What has tests. Fuzz targets have none, and what they need of the others is
/// to be in no build but theirs.
const TESTED: [&str; 3] = ["--workspace", "--exclude", "node-tracer-fuzz"];

pub(crate) fn run(filter: &[String]) -> anyhow::Result<ExitCode> {
    setup::run()?;
    println!("── test: build");
    // In one build: tests ask for more features, and with those every crate of
    // the tracer would be another one.
    let tests = [
        "--tests",
        "--bin",
        "node-tracer",
        "--bin",
        "kubectl-node_tracer",
    ];
    let tracer = build_tracer(&[&TESTED[..], &tests].concat())?;

    let packages = Scratch::create()?;
    dist::pack_into(&tracer, packages.path()).context("the packages")?;

    println!("── test: run");
    // Unit tests that make namespaces are ignored unless they can.
    let missing = stage::missing(&[Need::Root, stage::IP]);
    let ignored: &[&str] = match missing.as_slice() {
        [] => &["--include-ignored"],
        missing => {
            println!("skipped: unit tests of rtnetlink: {}", missing.join("; "));
            &[]
        }
    };
    let mut child = cargo(&["test", "--no-fail-fast", "--quiet"])?
        .args(TESTED)
        .arg("--")
        .args(ignored)
        .args(filter)
        .env("NODE_TRACER_BIN", &tracer)
        .env(PACKAGES, packages.path())
        .env(clients::FOLDER, kube_clients::folder()?)
        .env(generation::FOLDER, newer::folder()?)
        .stdout(Stdio::piped())
        .spawn()
        .context("start cargo")?;
    let mut total = Counts::default();
    for line in BufReader::new(child.stdout.take().context("no pipe")?).lines() {
        let line = line.context("the output of cargo test")?;
        match closing(&line) {
            Some(counts) => total += counts,
            None if line.is_empty() || line.starts_with("running ") => {}
            None => println!("{line}"),
        }
    }
    let status = child.wait().context("wait for cargo")?;
    let Counts {
        passed,
        failed,
        skipped,
    } = total;
    if !status.success() && failed == 0 {
        println!("cargo test: {status}");
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::{Counts, closing};

    #[test]
    fn both_harnesses_are_counted() {
        let rust = "test result: FAILED. 11 passed; 2 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.00s";
        assert_eq!(
            closing(rust),
            Some(Counts {
                passed: 11,
                failed: 2,
                skipped: 1
            })
        );
        let ours = "3 passed, 0 failed, 28 skipped";
        assert_eq!(
            closing(ours),
            Some(Counts {
                passed: 3,
                failed: 0,
                skipped: 28
            })
        );
    }

    #[test]
    fn other_lines_are_not() {
        for line in [
            "",
            "running 3 tests",
            "skipped: x: needs root",
            "test a ... ok",
            "it was skipped",
        ] {
            assert_eq!(closing(line), None, "{line}");
        }
    }
}
