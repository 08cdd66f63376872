//! `bench scan`: how long one look at a crowded node takes, and one question
//! on a node with a real runtime, beside the shell line that asks crictl.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use node_tracer_tests::containerd::{self, Containerd, Sandbox};
use node_tracer_tests::crowd::Crowd;
use node_tracer_tests::pods::Pod;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::{self, Need};
use node_tracer_tests::wait;
use serde_json::{Value, json};

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

/// One line of the result.
struct Row {
    what: String,
    series: Series,
    /// Seconds that the median may take, if there is a limit.
    limit: Option<f64>,
    /// What shows that the work was done.
    saw: String,
    more: Value,
    /// The shell line, not the tracer.
    is_peer: bool,
}

impl Row {
    fn holds(&self) -> bool {
        self.limit
            .is_none_or(|limit| self.series.median().as_secs_f64() <= limit)
    }

    fn seconds(&self) -> String {
        format!("{} {:.3} s", self.what, self.series.median().as_secs_f64())
    }

    /// In the last table.
    fn budget(&self, peer: Option<&str>) -> Budget {
        let asks = self.what.starts_with("explain");
        Budget {
            what: self.what.clone(),
            limit: match self.limit {
                Some(_) if asks => format!("≤ {EXPLAIN} s, and faster than the line"),
                Some(limit) => format!("≤ {limit:.1} s"),
                None => String::new(),
            },
            measured: self.series.spread(),
            peers: peer.into_iter().map(str::to_owned).collect(),
            verdict: match self.limit {
                Some(_) => Verdict::of(self.holds()),
                None => Verdict::NoLimit,
            },
        }
    }

    fn json(&self) -> Value {
        let mut all = self.series.json();
        all["what"] = json!(self.what);
        all["limit_s"] = json!(self.limit);
        all["saw"] = json!(self.saw);
        all["more"] = self.more.clone();
        all
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
    let mut rows = Vec::new();
    for &(netns, tasks, limit) in crowds {
        rows.extend(crowd(asked, netns, tasks, limit)?);
    }
    rows.extend(question(asked)?);

    println!("\n{:<40} {}  limit  saw", "seconds", Series::HEADER);
    for row in &rows {
        let limit = row.limit.map(|limit| format!("{limit:.1}"));
        println!(
            "{:<40} {}  {:>5}  {}{}",
            row.what,
            row.series.columns(),
            limit.unwrap_or_default(),
            row.saw,
            if row.holds() { "" } else { "  TOO SLOW" }
        );
    }
    println!();
    let numbers: Vec<Value> = rows.iter().map(Row::json).collect();
    super::write("scan", &json!({ "runs": asked.runs, "rows": numbers }))?;
    // Each peer comes before those that it is measured beside.
    let (mut budgets, mut peer) = (Vec::new(), None);
    for row in &rows {
        match row.is_peer {
            true => peer = Some(row.seconds()),
            false => budgets.push(row.budget(peer.as_deref())),
        }
    }
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
fn crowd(asked: Asked<'_>, netns: u32, tasks: u32, limit: f64) -> anyhow::Result<[Row; 2]> {
    let crowd = Crowd::build(netns, tasks)?;
    let build = crowd.build_time();
    say(&format!(
        "{netns} network namespaces and {tasks} tasks made in {:.1} s",
        build.as_secs_f64()
    ));
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
    let (seen, recorded_tasks) = taken_in(&recorded, &crowd.inodes()?);
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
    let begin = Instant::now();
    drop(crowd);
    let removal = begin.elapsed();
    say(&format!("removed in {:.1} s", removal.as_secs_f64()));
    let by_hand = Row {
        what: format!("nsenter ip addr and ps, {netns} netns"),
        series: Series::of(runs_by_hand)?,
        limit: None,
        saw: String::new(),
        more: Value::Null,
        is_peer: true,
    };
    let scan = Row {
        what: format!("scan, {netns} netns, {tasks} tasks"),
        series: Series::of(runs)?,
        limit: Some(limit),
        saw: format!("{seen} netns, {recorded_tasks} tasks"),
        more: json!({
            "build_s": build.as_secs_f64(), "removal_s": removal.as_secs_f64(),
            "netns_seen": seen, "tasks_recorded": recorded_tasks,
        }),
        is_peer: false,
    };
    Ok([by_hand, scan])
}

/// Of these inodes, how many a recording names; and how many tasks it has.
fn taken_in(recording: &str, inodes: &[u64]) -> (usize, usize) {
    let (mut found, mut tasks) = (BTreeSet::new(), BTreeSet::new());
    for record in recording.lines() {
        if let Ok(record) = serde_json::from_str::<Value>(record) {
            collect(&record, &mut found, &mut tasks);
        }
    }
    let seen = inodes.iter().filter(|inode| found.contains(inode)).count();
    (seen, tasks.len())
}

/// All inodes and thread IDs in a record, wherever they are.
fn collect(value: &Value, inodes: &mut BTreeSet<u64>, tasks: &mut BTreeSet<u64>) {
    match value {
        Value::Object(fields) => {
            inodes.extend(fields.get("inode").and_then(Value::as_u64));
            tasks.extend(fields.get("tid").and_then(Value::as_u64));
            for field in fields.values() {
                collect(field, inodes, tasks);
            }
        }
        Value::Array(items) => {
            for item in items {
                collect(item, inodes, tasks);
            }
        }
        _ => {}
    }
}

/// The same question, by the line and by `explain`, in turn.
fn question(asked: Asked<'_>) -> anyhow::Result<Vec<Row>> {
    let node = Containerd::start()?;
    let begin = Instant::now();
    let mut sandboxes = Vec::new();
    for index in 0..asked.sandboxes {
        wait::pause(Duration::ZERO)?;
        let pod = Pod::new("shop", &format!("web-{index}"))?;
        let sandbox = node.run_pod(&pod.name, &pod.namespace, &pod.uid, 0, false)?;
        node.run_container(&sandbox, "app", &["/bin/sleep", "100000"], &[])?;
        sandboxes.push(sandbox);
    }
    say(&format!(
        "{} sandboxes made by containerd in {:.1} s",
        asked.sandboxes,
        begin.elapsed().as_secs_f64()
    ));
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
        told(&run, wanted, cri)?;
        Ok(run)
    };

    let (mut by_line, mut by_explain, mut without_cri) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..asked.runs {
        wait::pause(Duration::ZERO)?;
        by_line.push(line()?);
        by_explain.push(explain("auto")?);
        without_cri.push(explain("none")?);
    }
    let row = |what: String, runs, limit| -> anyhow::Result<Row> {
        Ok(Row {
            what,
            series: Series::of(runs)?,
            limit,
            saw: format!("{ip} of {} sandboxes", asked.sandboxes),
            more: Value::Null,
            is_peer: false,
        })
    };
    // `explain` has to be faster than the line, too.
    let mut by_line = row(format!("{name} pods | xargs inspectp"), by_line, None)?;
    by_line.is_peer = true;
    let limit = Some(by_line.series.median().as_secs_f64().min(EXPLAIN));
    Ok(vec![
        by_line,
        row(String::from("explain IP"), by_explain, limit)?,
        row(String::from("explain IP --cri none"), without_cri, limit)?,
    ])
}

/// Makes sure that `explain` has told what it was asked for.
fn told(run: &Run, asked: &Sandbox, cri: &str) -> anyhow::Result<()> {
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
        let recording = "{\"netns\":{\"inode\":7},\"holders\":[{\"tid\":1},{\"tid\":2}]}\n\
            {\"task\":{\"tid\":1,\"netns\":{\"inode\":8}}}\nnot json\n";
        assert_eq!(taken_in(recording, &[7, 8, 9]), (2, 2));
        assert_eq!(taken_in("", &[7]), (0, 0));
    }
}
