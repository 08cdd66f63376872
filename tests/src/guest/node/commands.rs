//! Laws about what the other commands answer on the node while the incident is
//! on. They ask the same kernel and the same runtime, and may not disagree with
//! the service.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::incident::INCIDENT;
use super::{PODS, SOON, Stage, machine};
use crate::guest::coverage::SIGNALS;
use crate::snapshot_run::{self, SnapshotRun};
use crate::tracer::{is_finding, netns_of};

/// What every one of them is told.
const ARGS: [&str; 2] = ["--pods", PODS];

/// Rule to finding, each once.
fn by_rule<'a>(
    findings: impl IntoIterator<Item = &'a Value>,
) -> anyhow::Result<BTreeMap<&'a str, &'a Value>> {
    let mut all = BTreeMap::new();
    for finding in findings {
        let rule = finding["rule"].as_str().context("no rule")?;
        let twice = all.insert(rule, finding);
        ensure!(twice.is_none(), "two of {rule}: {finding} and {twice:?}");
    }
    Ok(all)
}

/// The service's own, as they were told last.
fn told_last(stage: &mut Stage) -> anyhow::Result<BTreeMap<&'static str, Value>> {
    let facts = stage.facts.as_ref().context("there is no incident")?;
    let records = stage.output.records()?;
    let last = INCIDENT.map(|rule| {
        let mut records = records.iter().rev();
        let last = records.find(|record| is_finding(record, rule) && facts.concerns(record));
        let last = last.with_context(|| format!("the service has told no {rule}"));
        last.map(|record| (rule, record.clone()))
    });
    last.into_iter().collect()
}

/// Fails unless these are the findings of the service: the same rules, with the
/// same IDs, about the same.
fn same(stage: &mut Stage, found: &BTreeMap<&str, &Value>) -> anyhow::Result<()> {
    let rules: Vec<&str> = found.keys().copied().collect();
    ensure!(rules == INCIDENT, "rules: {rules:?}");
    for (rule, observed) in told_last(stage)? {
        for key in ["id", "severity", "addresses", "pod", "sandbox_id", "phase"] {
            let (here, there) = (&found[rule][key], &observed[key]);
            ensure!(
                here == there,
                "{rule}: {key} is {here}, and for the service {there}"
            );
        }
        ensure!(
            netns_of(found[rule]) == netns_of(&observed),
            "{rule}: netns {}, and for the service {}",
            found[rule]["netns"],
            observed["netns"]
        );
    }
    Ok(())
}

/// Asks, and once more as long as a source has not answered in its time: that
/// the machine is slow is told, and is not what is asked for here.
fn ask(command: &str, args: &[&str]) -> anyhow::Result<SnapshotRun> {
    let begin = Instant::now();
    loop {
        let look = snapshot_run::on_host(command, &[args, &ARGS].concat())?;
        let late = |text: &String| text.contains("no answer within") || text.contains("not answer");
        if !look.unknown().iter().any(late) || begin.elapsed() > SOON {
            return Ok(look);
        }
    }
}

/// One look finds what the service finds.
pub(super) fn scan(stage: &mut Stage) -> anyhow::Result<()> {
    let look = ask("scan", &[])?;
    look.expect_code(1)?;
    look.coverage()?;
    look.summary()?;
    let findings = look.ended.records.iter();
    let findings = findings.filter(|record| record["type"] == "finding");
    // Tasks that the emulated disk keeps waiting are no matter of this.
    let facts = stage.facts()?;
    let found = by_rule(
        findings.filter(|finding| finding["rule"] != "blocked-task" || facts.concerns(finding)),
    )?;
    same(stage, &found).with_context(|| look.brief())
}

/// Who has this address: both, and what comes of it.
pub(super) fn explain(stage: &mut Stage) -> anyhow::Result<()> {
    let facts = stage.facts()?;
    let address = facts.address.clone();
    let (old, new) = (facts.old.clone(), facts.new_sandbox()?.clone());
    let stuck = facts.stuck()?.clone();
    let look = ask("explain", &[&address])?;
    look.expect_code(1)?;
    let explanation = look.explanation()?;
    let all = explanation["netns"].as_array().context("no netns")?;
    let mut inodes: Vec<u64> = all
        .iter()
        .filter_map(|item| item["inode"].as_u64().or_else(|| netns_of(item)))
        .collect();
    inodes.sort_unstable();
    let mut expected = vec![old.netns_inode, new.netns_inode];
    expected.sort_unstable();
    ensure!(
        inodes == expected,
        "namespaces {inodes:?}, not {expected:?}: {explanation}"
    );
    let text = explanation.to_string();
    for id in [&old.id, &new.id, &stuck.container_id] {
        ensure!(text.contains(id.as_str()), "nothing of {id}: {explanation}");
    }
    let reservations = explanation["reservations"].as_array();
    let reservations = reservations.context("no reservations")?;
    let reserved: Vec<&Value> = reservations
        .iter()
        .map(|reservation| &reservation["container_id"])
        .collect();
    ensure!(reserved == [new.id.as_str()], "reserved for {reserved:?}");
    let found = by_rule(explanation["findings"].as_array().context("no findings")?)?;
    same(stage, &found)
}

/// `check` promises no more and no less than the service has.
pub(super) fn check(stage: &mut Stage) -> anyhow::Result<()> {
    let look = ask("check", &[])?;
    look.expect_code(0)?;
    let coverage = look.coverage()?;
    machine::sees_all(coverage, &["cri", "pods"])?;
    let observed = stage.output.wait_for("a coverage record", SOON, |record| {
        record["type"] == "coverage"
    })?;
    let mechanisms = |coverage: &Value| -> BTreeMap<String, String> {
        let signals = coverage["signals"].as_array().into_iter().flatten();
        let kernel = signals.filter(|item| {
            let signal = item["signal"].as_str().unwrap_or_default();
            SIGNALS.contains(&signal)
        });
        kernel
            .map(|item| (item["signal"].to_string(), item["mechanism"].to_string()))
            .collect()
    };
    let (here, there) = (mechanisms(coverage), mechanisms(&observed));
    ensure!(here == there, "{here:?}, and for the service {there:?}");
    Ok(())
}
