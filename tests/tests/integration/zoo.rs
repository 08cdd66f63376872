//! The zoo: situations of real clusters, and what an expert expects of a
//! verdict on each.
//!
//! A row is a [`Situation`](situation::Situation): what is on a node, what its
//! sources say of it, and the demands. It is played twice where that can be:
//! with real kernel objects on a node of its own ([`node`]), and as the
//! recording of a look ([`recording`]), which can have devices that this kernel
//! lacks and times long past. [`healthy`] rows fail by any finding of severity
//! warning or above; [`sick`] ones by what is missing, and by any such finding
//! of a rule that they do not name. Every recorded look is played again with
//! each of its sources missing. [`histories`] are recordings of a trace, and
//! [`traced`] are nodes on which one runs, and [`logs`] are texts. [`runtimes`]
//! are nodes as each container runtime leaves and describes them.
//!
//! All rows run; those that fail are told with what was expected and what came.
//! `NODE_TRACER_ZOO=PART-OF-A-NAME` runs some, with all that the tool says and,
//! of a staged one, what a recording of it holds.

mod expect;
mod healthy;
mod histories;
mod logs;
mod node;
mod recording;
mod runtimes;
mod sick;
mod situation;
mod tables;
mod traced;
mod users;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer;
use node_tracer_tests::wait;
use serde_json::Value;

use expect::{Expect, describe, failures, summarize};
use node::Mode;
use situation::{Api, Situation, Source, Staging};

/// What a node of the zoo needs.
const NODE: &[Need] = &[
    Need::Root,
    Need::Tracer,
    Need::Cgroup,
    Need::Fuse,
    IP,
    Need::Program("unshare", "util-linux"),
    Need::Program("nsenter", "util-linux"),
    Need::Program("setpriv", "util-linux"),
    Need::Program("busybox", "busybox"),
];

/// Of so many wrong things a row is told.
const MOST: usize = 6;

#[derive(Default)]
struct Table {
    text: String,
    rows: usize,
    failed: Vec<&'static str>,
    skipped: Vec<String>,
}

/// Names the rows that are wanted, by a part of their names.
const WANTED: &str = "NODE_TRACER_ZOO";

/// What of the zoo is wanted.
fn wanted() -> Option<String> {
    std::env::var(WANTED).ok()
}

impl Table {
    fn row(&mut self, name: &'static str, expect: &[Expect], came: anyhow::Result<Vec<Value>>) {
        self.rows += 1;
        let (got, wrong) = match &came {
            Ok(records) => (summarize(records), failures(expect, records)),
            Err(error) => (String::from("-"), vec![format!("{error:#}")]),
        };
        if let (Some(_), Ok(records)) = (wanted(), &came) {
            println!("{name}");
            records.iter().for_each(|record| println!("    {record}"));
        }
        if wrong.is_empty() {
            return;
        }
        self.failed.push(name);
        let _ = write!(
            self.text,
            "{name}\n    expected  {}\n    got       {got}\n",
            describe(expect)
        );
        for each in wrong.iter().take(MOST) {
            let _ = writeln!(self.text, "    wrong     {each}");
        }
        if let Some(more @ 1..) = wrong.len().checked_sub(MOST) {
            let _ = writeln!(self.text, "    wrong     and {more} more");
        }
    }

    fn end(self) -> anyhow::Result<()> {
        for each in &self.skipped {
            println!("        {each}");
        }
        println!(
            "        {} rows: {} as expected, {} not; {} not played here",
            self.rows,
            self.rows - self.failed.len(),
            self.failed.len(),
            self.skipped.len()
        );
        ensure!(
            self.failed.is_empty(),
            "{} of {} rows are not as expected:\n{}",
            self.failed.len(),
            self.rows,
            self.text
        );
        Ok(())
    }
}

fn situations() -> Vec<Situation> {
    let wanted = wanted();
    let mut all = healthy::rows();
    all.extend(sick::rows());
    all.retain(|row| {
        wanted
            .as_ref()
            .is_none_or(|part| row.name.contains(part.as_str()))
    });
    all
}

/// Runs `replay -o json` on lines.
fn replay(lines: &[Value]) -> anyhow::Result<Vec<Value>> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    replay_text("recording.jsonl", &text)
}

fn replay_text(name: &str, text: &str) -> anyhow::Result<Vec<Value>> {
    let scratch = Scratch::create()?;
    let file = scratch.path().join(name);
    fs::write(&file, text)?;
    let output = Command::new(tracer::binary()?)
        .args(["replay", "-o", "json"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        matches!(output.status.code(), Some(0 | 1 | 3)) && !stderr.contains("damaged"),
        "replay: {}: {}",
        output.status,
        stderr.trim()
    );
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}

/// What came of each row. Rows do not see each other: several at once.
fn play<T: Sync>(
    rows: &[T],
    one: impl Fn(&T) -> anyhow::Result<Vec<Value>> + Sync,
) -> anyhow::Result<Vec<anyhow::Result<Vec<Value>>>> {
    const AT_ONCE: usize = 4;
    let next = AtomicUsize::new(0);
    let player = || {
        let mut came = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(row) = rows.get(number) else {
                return anyhow::Ok(came);
            };
            wait::pause(Duration::ZERO)?;
            came.push((number, one(row)));
        }
    };
    let came = thread::scope(|scope| {
        let players = [(); AT_ONCE].map(|()| scope.spawn(player));
        players.map(thread::ScopedJoinHandle::join)
    });
    let mut all = Vec::new();
    for each in came {
        all.extend(each.map_err(|_| anyhow::anyhow!("a thread panicked"))??);
    }
    all.sort_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, came)| came).collect())
}

test!(apart & [Need::Tracer], zoo_of_recorded_looks);
fn zoo_of_recorded_looks() -> anyhow::Result<()> {
    let mut table = Table::default();
    let (mut rows, mut sick) = (Vec::new(), 0);
    for situation in situations() {
        match situation.staging {
            Staging::Real(why) => table
                .skipped
                .push(format!("not recorded: {}: {why}", situation.name)),
            _ => {
                sick += usize::from(situation.is_sick());
                rows.push(situation);
            }
        }
    }
    println!(
        "        {} healthy and {sick} sick looks",
        rows.len() - sick
    );
    let came = play(&rows, |row| replay(&recording::lines(row)))?;
    for (row, came) in rows.iter().zip(came) {
        table.row(row.name, &row.expect, came);
    }
    table.end()
}

test!(apart & [Need::Tracer], zoo_of_looks_with_less);
/// A source that is missing makes unknown: nothing that is healthy gets sick by
/// it, and of what is sick nothing else is said.
fn zoo_of_looks_with_less() -> anyhow::Result<()> {
    let sources = [Source::Cri, Source::Cache, Source::Store];
    let mut rows = Vec::new();
    let recorded = |row: &Situation| !matches!(row.staging, Staging::Real(_));
    for mut situation in situations().into_iter().filter(recorded) {
        situation.expect = situation
            .expect
            .iter()
            .filter_map(Expect::with_less)
            .collect();
        let less = |source| situation.clone().without(source);
        let least = sources
            .into_iter()
            .fold(situation.clone(), Situation::without);
        rows.extend(sources.map(less));
        rows.push(situation.clone().api(Api::None));
        rows.push(least.clone());
        rows.push(least.api(Api::None));
    }
    let mut table = Table::default();
    let came = play(&rows, |row| replay(&recording::lines(row)))?;
    for (row, came) in rows.iter().zip(came) {
        table.row(row.name, &row.expect, came);
    }
    table.end()
}

test!(NODE, zoo_of_staged_nodes);
/// What is advised of one that is sick is pasted on it as it is printed.
fn zoo_of_staged_nodes() -> anyhow::Result<()> {
    let mut table = Table::default();
    let mut rows = Vec::new();
    for situation in situations() {
        let obstacle = match situation.staging {
            Staging::Recorded(why) => Some(why.to_owned()),
            _ => node::obstacle(&situation),
        };
        match obstacle {
            Some(why) => table
                .skipped
                .push(format!("not staged: {}: {why}", situation.name)),
            None => rows.push(situation),
        }
    }
    let came = play(&rows, |row| node::run(row, Mode::Look))?;
    // By rule: how many commands were pasted, and how many printed.
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (row, came) in rows.iter().zip(came) {
        for record in came.iter().flatten().filter(|it| it["type"] == "printed") {
            let count = counts.entry(record["rule"].to_string()).or_default();
            count.0 += usize::from(record["pasted"].is_object());
            count.1 += 1;
        }
        table.row(row.name, &row.expect, came);
    }
    let pasted: usize = counts.values().map(|(pasted, _)| pasted).sum();
    let printed: usize = counts.values().map(|(_, printed)| printed).sum();
    println!("        pasted: {pasted} of {printed} commands: {counts:?}");
    ensure!(pasted > 0 || wanted().is_some(), "nothing was pasted");
    table.end()
}

test!(NODE, zoo_of_traced_nodes);
/// One trace at a time: there can be only one.
fn zoo_of_traced_nodes() -> anyhow::Result<()> {
    let mut table = Table::default();
    let wanted = wanted();
    for situation in traced::rows() {
        wait::pause(Duration::ZERO)?;
        if wanted
            .as_ref()
            .is_none_or(|part| situation.name.contains(part.as_str()))
        {
            let came = node::run(&situation, Mode::Trace);
            table.row(situation.name, &situation.expect, came);
        }
    }
    table.end()
}

test!(apart & [Need::Tracer], zoo_of_texts);
fn zoo_of_texts() -> anyhow::Result<()> {
    let mut table = Table::default();
    let wanted = wanted();
    let mut rows = logs::rows();
    rows.retain(|row| {
        wanted
            .as_ref()
            .is_none_or(|part| row.name.contains(part.as_str()))
    });
    let came = play(&rows, |row| replay_text("node.log", &row.text))?;
    for (row, came) in rows.iter().zip(came) {
        table.row(row.name, &row.expect, came);
    }
    table.end()
}

test!(apart & [Need::Tracer], zoo_of_recorded_histories);
fn zoo_of_recorded_histories() -> anyhow::Result<()> {
    let mut table = Table::default();
    let wanted = wanted();
    for history in histories::rows() {
        wait::pause(Duration::ZERO)?;
        if wanted
            .as_ref()
            .is_some_and(|part| !history.name.contains(part.as_str()))
        {
            continue;
        }
        table.row(history.name, &history.expect, replay(&history.lines()));
    }
    table.end()
}
