//! `bench scan`: how long one look at a crowded node takes, and one question
//! on a node with a real runtime, beside the shell line that asks crictl.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use node_tracer_tests::containerd::{self, Containerd, Sandbox};
use node_tracer_tests::crowd::Crowd;
use node_tracer_tests::pods::Pod;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::{self, Need};
use node_tracer_tests::wait;
use serde_json::Value;

use super::budget::{Budget, Verdict};
use super::measure::{self, Run, Series};
use super::{Setting, crictl, say};

/// All that it needs; that of [`Crowd`] is part of it.
pub(super) const NEEDS: &[Need] = containerd::NEEDS;

/// (namespaces, tasks, seconds that a scan may take).
const CROWDS: [(u32, u32, f64); 2] = [(250, 2_000, 0.3), (2_000, 20_000, 3.0)];
/// Seconds that an answer may take.
const EXPLAIN: f64 = 2.0;
/// What engineers type today. (xargs passes the table's header on, too.)
const LINE: &str =
    "crictl pods | awk '{print $1}' | xargs -n1 -I{} bash -c 'crictl inspectp {} | grep IP'";
/// The same on a node whose runtime does not answer: all addresses, and all
/// tasks in state D. `$1` is the node's root.
const BY_HAND: &str = "for n in \"$1\"/run/netns/*; do nsenter --net=\"$n\" ip -o addr; done; \
    ps -eLo pid,tid,stat,comm | awk '$3 ~ /^D/'";
/// How often that is measured, at most: it takes long.
const BY_HAND_RUNS: u32 = 3;

/// Options of `bench scan`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often each thing is measured [default: 9, quick 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Sandboxes on the node with a runtime
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=200))]
    sandboxes: u32,
}

/// How long something took, and how long it may take in seconds.
fn budget(what: String, series: &Series, limit: (f64, String), peer: (&str, &Series)) -> Budget {
    let (limit, words) = limit;
    let (name, peer) = (peer.0, peer.1.median().as_secs_f64());
    Budget {
        what,
        limit: words,
        measured: series.spread(),
        peers: vec![format!("{name} {peer:.3} s")],
        verdict: Verdict::of(series.median().as_secs_f64() <= limit),
    }
}

/// What is asked for, as it is run.
#[derive(Clone, Copy)]
struct Asked<'a> {
    tracer: &'a Path,
    runs: u32,
    sandboxes: u32,
}

/// Quickly: the smaller crowd alone.
pub(super) fn run(options: &Options, setting: &Setting) -> anyhow::Result<Vec<Budget>> {
    let asked = Asked {
        tracer: &setting.tracer,
        runs: setting.number(options.runs, 3, 9),
        sandboxes: options.sandboxes,
    };
    let crowds = match setting.quick {
        true => &CROWDS[..1],
        false => &CROWDS[..],
    };
    let mut budgets = Vec::new();
    for &(netns, tasks, limit) in crowds {
        budgets.push(crowd(asked, netns, tasks, limit)?);
    }
    budgets.extend(question(asked)?);
    Ok(budgets)
}

/// A run that did its job, whatever it found or could not look at.
fn done(run: Run, what: &str) -> anyhow::Result<Run> {
    anyhow::ensure!(
        matches!(run.code, Some(0 | 1 | 3)),
        "{what}: exit code {:?}: {}",
        run.code,
        run.stderr.trim()
    );
    Ok(run)
}

/// `scan` of a node with so many pods.
fn crowd(asked: Asked<'_>, netns: u32, tasks: u32, limit: f64) -> anyhow::Result<Budget> {
    let crowd = Crowd::build(netns, tasks)?;
    say(&format!("{netns} network namespaces and {tasks} tasks"));
    let scan = |more: &[&str]| -> anyhow::Result<Run> {
        let mut command = crowd.command(asked.tracer)?;
        command
            .args([
                "scan", "-o", "json", "--cri", "none", "--pods", "none", "--root",
            ])
            .arg(crowd.root())
            .args(more);
        done(measure::run(&mut command)?, "scan")
    };
    // Not measured: what a scan takes in, by its own recording.
    let scratch = Scratch::create()?;
    let recording = scratch.path().join("scan.jsonl");
    scan(&["--record", &recording.display().to_string()])?;
    let recorded = fs::read_to_string(&recording).context("the recording of a scan")?;
    let seen = taken_in(&recorded, &crowd.inodes()?);
    anyhow::ensure!(
        seen == netns as usize,
        "scan saw {seen} of {netns} namespaces: a time would mean nothing"
    );

    let by_hand = || -> anyhow::Result<Run> {
        let mut command = crowd.command(Path::new("bash"))?;
        command.args(["-c", BY_HAND, "bash"]).arg(crowd.root());
        let run = measure::run(&mut command)?;
        // Each of them has lo and its own.
        let lines = run.stdout.lines().count();
        anyhow::ensure!(
            lines >= netns as usize,
            "{lines} lines: {}",
            run.stderr.trim()
        );
        Ok(run)
    };

    let (mut runs, mut runs_by_hand) = (Vec::new(), Vec::new());
    for turn in 0..asked.runs {
        wait::pause(Duration::ZERO)?;
        if turn < BY_HAND_RUNS {
            runs_by_hand.push(by_hand()?);
        }
        let run = scan(&[])?;
        let summary = run.stdout.lines().last().is_some_and(|line| {
            serde_json::from_str::<Value>(line).is_ok_and(|record| record["type"] == "summary")
        });
        anyhow::ensure!(summary, "scan printed no summary");
        runs.push(run);
    }
    Ok(budget(
        format!("scan, {netns} netns, {tasks} tasks"),
        &Series::of(runs)?,
        (limit, format!("≤ {limit:.1} s")),
        (
            &format!("nsenter ip addr and ps, {netns} netns"),
            &Series::of(runs_by_hand)?,
        ),
    ))
}

/// Of these inodes, how many a recording names.
fn taken_in(recording: &str, inodes: &[u64]) -> usize {
    let mut found = BTreeSet::new();
    for record in recording.lines() {
        if let Ok(record) = serde_json::from_str::<Value>(record) {
            collect(&record, &mut found);
        }
    }
    inodes.iter().filter(|inode| found.contains(inode)).count()
}

/// All inodes in a record, wherever they are.
fn collect(value: &Value, inodes: &mut BTreeSet<u64>) {
    match value {
        Value::Object(fields) => {
            inodes.extend(fields.get("inode").and_then(Value::as_u64));
            fields.values().for_each(|field| collect(field, inodes));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, inodes)),
        _ => {}
    }
}

/// The same question, by the line and by `explain`, in turn.
fn question(asked: Asked<'_>) -> anyhow::Result<[Budget; 2]> {
    let node = Containerd::start()?;
    let mut sandboxes = Vec::new();
    for index in 0..asked.sandboxes {
        wait::pause(Duration::ZERO)?;
        let pod = Pod::new("shop", &format!("web-{index}"))?;
        let sandbox = node.run_pod(&pod.name, &pod.namespace, &pod.uid, 0, false)?;
        node.run_container(&sandbox, "app", &["/bin/sleep", "100000"], &[])?;
        sandboxes.push(sandbox);
    }
    say(&format!("{} sandboxes made by containerd", asked.sandboxes));
    // Any; the line asks for all of them.
    let wanted = &sandboxes[sandboxes.len() / 2];
    let ip = wanted
        .ip
        .context("a sandbox without an address")?
        .to_string();

    let scratch = Scratch::create()?;
    let real = stage::in_path("crictl");
    let name = match &real {
        Some(_) => "crictl",
        None => "crictl (stand-in)",
    };
    let program = match real {
        Some(real) => real,
        None => std::env::current_exe().context("this program")?,
    };
    symlink(program, scratch.path().join("crictl")).context("the link crictl")?;
    let line = || -> anyhow::Result<Run> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders =
            std::iter::once(scratch.path().to_owned()).chain(std::env::split_paths(&path));
        let run = measure::run(
            Command::new("bash")
                .args(["-c", LINE])
                .env("PATH", std::env::join_paths(folders)?)
                .env(crictl::ENDPOINT, crictl::endpoint(&node.socket())),
        )?;
        // The line's own exit code tells nothing: the header is no sandbox.
        let found = run.stdout.matches(&format!("\"{ip}\"")).count();
        anyhow::ensure!(
            found > 0,
            "the line does not find {ip}: {}",
            run.stderr.trim()
        );
        Ok(run)
    };
    let explain = |cri: &str| -> anyhow::Result<Run> {
        let mut command = node.command(asked.tracer)?;
        command
            .args(["explain", &ip, "--pods", "none", "--cri", cri, "--root"])
            .arg(node.root());
        let run = done(measure::run(&mut command)?, "explain")?;
        expect_named(&run, wanted, cri)?;
        Ok(run)
    };

    let (mut by_line, mut by_explain, mut without_cri) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..asked.runs {
        wait::pause(Duration::ZERO)?;
        by_line.push(line()?);
        by_explain.push(explain("auto")?);
        without_cri.push(explain("none")?);
    }
    let (by_line, name) = (
        Series::of(by_line)?,
        format!("{name} pods | xargs inspectp"),
    );
    // `explain` has to be faster than the line, too.
    let limit = by_line.median().as_secs_f64().min(EXPLAIN);
    let row = |what: &str, runs: Vec<Run>| -> anyhow::Result<Budget> {
        let words = format!("≤ {EXPLAIN} s, and faster than the line");
        let series = Series::of(runs)?;
        Ok(budget(
            what.to_owned(),
            &series,
            (limit, words),
            (&name, &by_line),
        ))
    };
    Ok([
        row("explain IP", by_explain)?,
        row("explain IP --cri none", without_cri)?,
    ])
}

/// Makes sure that `explain` names what it was asked for.
fn expect_named(run: &Run, asked: &Sandbox, cri: &str) -> anyhow::Result<()> {
    let holder = asked.netns_inode.to_string();
    for part in [asked.id.get(..12).unwrap_or_default(), &holder] {
        anyhow::ensure!(
            run.stdout.contains(part),
            "explain (--cri {cri}) does not name {part}:\n{}",
            run.stdout
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_recording_names_is_counted_once_and_wherever_it_is() {
        let recording = "{\"netns\":{\"inode\":7},\"holders\":[{\"tid\":1}]}\n\
            {\"task\":{\"tid\":1,\"netns\":{\"inode\":8}}}\nnot json\n";
        assert_eq!(taken_in(recording, &[7, 8, 9]), 2);
        assert_eq!(taken_in("", &[7]), 0);
    }
}
