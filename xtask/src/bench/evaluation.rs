//! `bench evaluation`: what it takes to apply all rules after one small change on a
//! large node. It is measured in one process, without a kernel
//! (`node-tracer/crates/engine/examples/evaluation.rs`).

use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::budget::{Budget, Verdict};
use super::say;
use crate::cargo;

/// What one may take, ms.
const LIMIT: f64 = 2.0;

pub(super) fn run() -> anyhow::Result<Vec<Budget>> {
    let arguments = [
        "--release",
        "--package",
        "node-tracer-engine",
        "--features",
        "testing",
        "--example",
        "evaluation",
    ];
    let program = cargo::build(&arguments, "evaluation")?;
    say("one evaluation after a change, on nodes of several kinds");
    let output = Command::new(&program).output();
    let output = output.with_context(|| program.display().to_string())?;
    ensure!(
        output.status.success(),
        "{}: {}",
        program.display(),
        output.status
    );
    let text = String::from_utf8(output.stdout).context("what it says")?;
    text.lines().map(budget).collect()
}

/// The budget of one of the program's lines.
fn budget(line: &str) -> anyhow::Result<Budget> {
    let said: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
    let node = said["node"].as_str().context("no node")?;
    let taken = said["us"].as_array().context("no times")?;
    let taken: Option<Vec<f64>> = taken
        .iter()
        .map(|us| Some(us.as_f64()? / 1_000.0))
        .collect();
    let taken = taken
        .filter(|taken| !taken.is_empty())
        .context("no times")?;
    let (least, median) = (taken[0], taken[taken.len() / 2]);
    let most = taken[taken.len() - 1];
    Ok(Budget {
        what: format!("one evaluation, {node}"),
        limit: format!("≤ {LIMIT} ms"),
        measured: format!("{median:.2} ({least:.2}–{most:.2}) ms"),
        peers: Vec::new(),
        verdict: Verdict::of(median <= LIMIT),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evaluation_is_judged_by_its_median() {
        let line = r#"{"node":"a","us":[100,1900,90000],"findings":0}"#;
        let budget = budget(line).unwrap();
        assert_eq!(budget.measured, "1.90 (0.10–90.00) ms");
        assert_eq!(budget.verdict, Verdict::Met);
    }
}
