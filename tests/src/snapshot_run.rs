//! `scan` and `explain` under test: one run each, to its end.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::containerd::{self, Containerd, incident};
use crate::kube;
use crate::scratch::pod_uid;
use crate::stage::{Need, and};
use crate::tracer::{Ended, Tracer, command, is_finding, netns_of};

/// All that it needs to look at a node with a runtime.
pub const NODE: &[Need] = &with_tracer::<{ containerd::NEEDS.len() + 1 }>(containerd::NEEDS);
/// The same with newer programs.
pub const NEWER: &[Need] = &with_tracer::<{ containerd::NEWER.len() + 1 }>(containerd::NEWER);
/// All that it needs to look at an incident there.
pub const INCIDENT: &[Need] = &with_tracer::<{ incident::NEEDS.len() + 1 }>(incident::NEEDS);
/// The same with newer programs.
pub const NEWER_INCIDENT: &[Need] = &with_tracer::<{ incident::NEWER.len() + 1 }>(incident::NEWER);
/// All that it needs to look at an incident on a node of a cluster.
pub const KUBE: &[Need] =
    &with_tracer::<{ kube::incident::NEEDS.len() + 1 }>(kube::incident::NEEDS);

const fn with_tracer<const N: usize>(base: &[Need]) -> [Need; N] {
    and(base, Need::Tracer)
}

/// Time for one snapshot_run, on a busy machine and with a debug build.
const LIMIT: Duration = Duration::from_secs(60);

/// What one run said.
#[derive(Debug)]
pub struct SnapshotRun {
    /// How it ended, and all that it wrote.
    pub ended: Ended,
    /// How long it took, with the start of the program.
    pub elapsed: Duration,
    pub pid: u32,
}

/// A run that is under way.
#[derive(Debug)]
pub struct RunningSnapshot {
    tracer: Tracer,
    begin: Instant,
}

/// Runs `COMMAND -o json ARGS` on the host.
pub fn on_host(subcommand: &str, args: &[&str]) -> anyhow::Result<SnapshotRun> {
    let mut line = command(&[subcommand])?;
    run(line.args(json(args)))
}

/// Runs `COMMAND -o json ARGS` in a node's network namespace, on its root.
pub fn on_node(node: &Containerd, subcommand: &str, args: &[&str]) -> anyhow::Result<SnapshotRun> {
    start_on_node(node, subcommand, args)?.end()
}

/// Starts what [`on_node`] runs.
pub fn start_on_node(
    node: &Containerd,
    subcommand: &str,
    args: &[&str],
) -> anyhow::Result<RunningSnapshot> {
    let mut line = node.command(crate::tracer::binary()?)?;
    line.arg(subcommand).arg("--root").arg(node.root());
    start(line.args(json(args)))
}

fn json<'a>(args: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    ["-o", "json"].into_iter().chain(args.iter().copied())
}

/// Runs any command line to its end.
pub fn run(line: &mut Command) -> anyhow::Result<SnapshotRun> {
    start(line)?.end()
}

pub fn start(line: &mut Command) -> anyhow::Result<RunningSnapshot> {
    let begin = Instant::now();
    let tracer = Tracer::start(line, |_| ())?;
    Ok(RunningSnapshot { tracer, begin })
}

/// Copies a list of pods to `folder` with one more pod, of another namespace:
/// one that is of a single namespace is not believed where the kernel has more
/// pods, as it has while another run is under way.
pub fn whole_list(pods: &Path, folder: &Path) -> anyhow::Result<String> {
    let mut list: Value = serde_json::from_slice(&fs::read(pods)?)?;
    let items = list["items"].as_array_mut().context("items")?;
    let mut more = items.first().context("no pod is listed")?.clone();
    let metadata = json!({ "name": "proxy", "namespace": "kube-system", "uid": pod_uid()? });
    more["metadata"] = metadata;
    more["spec"]["hostNetwork"] = json!(true);
    more["status"] = json!({ "phase": "Running" });
    items.push(more);
    let path = folder.join("whole.json");
    fs::write(&path, list.to_string())?;
    Ok(path.display().to_string())
}

impl RunningSnapshot {
    /// Waits for the end.
    pub fn end(self) -> anyhow::Result<SnapshotRun> {
        let pid = self.tracer.pid();
        Ok(SnapshotRun {
            ended: self.tracer.wait_for_end(LIMIT)?,
            elapsed: self.begin.elapsed(),
            pid,
        })
    }
}

impl SnapshotRun {
    pub fn findings(&self, rule: &str) -> Vec<&Value> {
        let records = self.ended.records.iter();
        records.filter(|record| is_finding(record, rule)).collect()
    }

    /// Findings, of whatever severity, but those on network namespaces and stuck
    /// tasks of others: the kernel belongs to all.
    pub fn findings_on(&self, inodes: &[u64]) -> Vec<&Value> {
        let own = |record: &&Value| {
            let inode = netns_of(record);
            let general = inode.is_none() && record["rule"] != "blocked-task";
            general || inode.is_some_and(|inode| inodes.contains(&inode))
        };
        let records = self.ended.records.iter();
        let findings = records.filter(|record| record["type"] == "finding");
        findings.filter(own).collect()
    }

    /// Fails if there is any finding on these network namespaces, or on what
    /// is in none; see [`findings_on`](Self::findings_on).
    pub fn expect_nothing_on(&self, inodes: &[u64]) -> anyhow::Result<()> {
        let found = self.findings_on(inodes);
        ensure!(found.is_empty(), "false alarms: {found:#?}");
        let code = self.ended.code;
        ensure!(
            matches!(code, Some(0 | 1 | 3)),
            "exit code: {}",
            self.brief()
        );
        // Findings of others are not this one's business, but then it is 1.
        let records = &self.ended.records;
        let quiet = !records.iter().any(|record| record["type"] == "finding");
        ensure!(
            !quiet || code == Some(self.code_of_nothing()),
            "exit code: {}",
            self.brief()
        );
        Ok(())
    }

    /// What nothing found is worth: not 0 where a rule could not be evaluated.
    fn code_of_nothing(&self) -> i32 {
        let mut last = self.ended.records.iter().rev();
        let last =
            last.find(|record| record["type"] == "summary" || record["type"] == "explanation");
        match last.is_some_and(|record| !record["not_checked"].is_null()) {
            true => 3,
            false => 0,
        }
    }

    /// The one finding by this rule.
    pub fn the(&self, rule: &str) -> anyhow::Result<&Value> {
        match self.findings(rule).as_slice() {
            [one] => Ok(one),
            all => anyhow::bail!("{} findings of {rule}: {}", all.len(), self.brief()),
        }
    }

    pub fn explanation(&self) -> anyhow::Result<&Value> {
        let mut records = self.ended.records.iter();
        records
            .find(|record| record["type"] == "explanation")
            .with_context(|| format!("no explanation: {}", self.brief()))
    }

    /// The first record, which says what was looked at.
    pub fn coverage(&self) -> anyhow::Result<&Value> {
        let first = self.ended.records.first();
        first
            .filter(|record| record["type"] == "coverage")
            .with_context(|| format!("the first record is no coverage: {}", self.brief()))
    }

    pub fn summary(&self) -> anyhow::Result<&Value> {
        let last = self.ended.records.last();
        last.filter(|record| record["type"] == "summary")
            .with_context(|| format!("the last record is no summary: {}", self.brief()))
    }

    /// Fails unless it ended with this exit code, all of stdout being records
    /// that are safe to print.
    pub fn expect_code(&self, code: i32) -> anyhow::Result<()> {
        let Ended {
            text, unsafe_lines, ..
        } = &self.ended;
        ensure!(
            self.ended.code == Some(code),
            "exit code {:?}, not {code}: {}",
            self.ended.code,
            self.brief()
        );
        ensure!(text.is_empty(), "not records: {text:?}");
        ensure!(unsafe_lines.is_empty(), "unsafe: {unsafe_lines:?}");
        Ok(())
    }

    /// Whether any record says this, wherever.
    pub fn says(&self, text: &str) -> bool {
        let mut records = self.ended.records.iter();
        records.any(|record| record.to_string().contains(text))
    }

    /// What is not known: by coverage, findings, explanation and summary.
    pub fn unknown(&self) -> Vec<String> {
        let records = self.ended.records.iter();
        let items = |record: &Value| record["signals"].as_array().cloned().unwrap_or_default();
        let parts = records.flat_map(|record| [vec![record.clone()], items(record)].concat());
        parts
            .flat_map(|part| {
                let unknown = part["unknown"].as_array().cloned().unwrap_or_default();
                let reason = part["reason"].clone();
                unknown.into_iter().chain([reason])
            })
            .filter_map(|text| text.as_str().map(str::to_owned))
            .collect()
    }

    /// Fails unless something that is not known says this.
    pub fn expect_unknown(&self, text: &str) -> anyhow::Result<()> {
        let unknown = self.unknown();
        let named = unknown.iter().any(|each| each.contains(text));
        ensure!(named, "{text:?} is not among {unknown:#?}");
        Ok(())
    }

    /// For a failed test's message.
    pub fn brief(&self) -> String {
        let lines: String = self
            .ended
            .records
            .iter()
            .map(|record| {
                let line: String = record.to_string().chars().take(1_500).collect();
                format!("    {line}\n")
            })
            .collect();
        format!(
            "exit code {:?} after {:.2} s\n{lines}  stderr: {}",
            self.ended.code,
            self.elapsed.as_secs_f32(),
            self.ended.stderr.trim()
        )
    }
}
