//! `replay` of logs that nobody traced: what they tell, whatever form they
//! come in.

mod forms;
mod writers;

use std::path::{Path, PathBuf};

use anyhow::ensure;
use node_tracer_tests::snapshot_run::{SnapshotRun, run as look};
use node_tracer_tests::stage::Need;
use node_tracer_tests::tracer::{command, is_finding};
use serde_json::Value;

const TRACER: &[Need] = &[Need::Tracer];

/// What no output may hold: it stands in the fixtures' tokens.
const SECRET: &str = "made-up-for-a-test";
const DOCKERSHIM: &str = "dockershim-calico.log";

fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/logs");
    fixtures.join(name)
}

/// Replays files, and sees that the frame is right and no secret is told.
fn replay(paths: &[&Path], args: &[&str]) -> anyhow::Result<SnapshotRun> {
    let mut line = command(&["replay", "-o", "json"])?;
    let look = look(line.args(args).args(paths))?;
    whole(look)
}

fn whole(look: SnapshotRun) -> anyhow::Result<SnapshotRun> {
    let records = &look.ended.records;
    ensure!(
        matches!(look.ended.code, Some(0 | 1)),
        "{}",
        look.ended.stderr
    );
    let kind = |record: Option<&Value>| record.map(|record| record["type"].clone());
    ensure!(kind(records.first()).is_some_and(|kind| kind == "coverage"));
    ensure!(kind(records.last()).is_some_and(|kind| kind == "summary"));
    let all = serde_json::to_string(records)?;
    ensure!(!all.contains(SECRET), "a secret came out");
    Ok(look)
}

fn replayed(name: &str) -> anyhow::Result<SnapshotRun> {
    replay(&[&fixture(name)], &[])
}

/// The findings of a rule as they were first told.
fn opened<'l>(look: &'l SnapshotRun, rule: &str) -> Vec<&'l Value> {
    let all = look.ended.records.iter();
    all.filter(|record| is_finding(record, rule) && record["state"] == "open")
        .collect()
}

/// All rules that found something, sorted.
fn rules(look: &SnapshotRun) -> Vec<String> {
    let all = look.ended.records.iter();
    let findings = all.filter(|record| record["type"] == "finding" && record["state"] == "open");
    let mut rules: Vec<String> = findings
        .filter_map(|record| record["rule"].as_str().map(str::to_owned))
        // What keeps a pod from starting is another group's affair.
        .filter(|rule| rule != "sandbox-create-failed")
        .collect();
    rules.sort_unstable();
    rules
}
