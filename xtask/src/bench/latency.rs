//! `bench latency`: how long after something happens in the kernel the tracer
//! has written its record, beside what one would have a terminal open with.
//!
//! When it happened is what the kernel said, to the tracer or to bpftrace; when
//! it was written is when this program had read the line.

mod beside;
mod lines;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use node_tracer_tests::calls::Calls;
use node_tracer_tests::hangfs::HangFs;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::process::PodProcess;
use node_tracer_tests::scratch::own_prefix;
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::tracer::{SOON, Tracer, is_event, is_finding, names_address, netns_of};
use serde_json::Value;

use self::beside::Beside;
use self::lines::Clocks;
use super::budget::{Budget, Verdict};
use super::peers::Peer;
use super::sample::Sample;
use super::{Setting, say};

/// All that it needs, but for bpftrace.
pub(super) const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    IP,
    Need::Program("ps", "procps"),
    Need::Program("nsenter", "util-linux"),
];

/// Milliseconds that 99 of 100 may take.
const LIMIT: f64 = 100.0;
/// From when on the tracer reports a stall.
const THRESHOLD: Duration = Duration::from_millis(500);
/// So many tasks are stuck at once, at most.
const STUCK: u32 = 10;

/// What shows tasks in state D, as one would watch for them.
const PS: &str = "while :; do ps -eo pid=,stat= | awk '$2 ~ /^D/ { print $1 }'; sleep 1; done";
/// What shows addresses that are there twice.
const TWICE: &str = "while :; do \
    for n in /run/netns/*; do nsenter --net=\"$n\" ip -o -4 addr show scope global; done 2>/dev/null \
    | awk '{ print $4 }' | sort | uniq -d; sleep 1; done";

/// Options of `bench latency`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often each thing is made to happen [default: 100, quick 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    times: Option<u32>,
}

/// Milliseconds by one way to know.
#[derive(Debug, Default)]
struct Times(Vec<f64>);

/// One thing that happens, and who told of it when.
struct Row {
    what: &'static str,
    who: &'static str,
    /// A peer's: there is no limit.
    is_peer: bool,
    sample: Sample,
}

impl Row {
    fn beside(&self) -> String {
        let sample = &self.sample;
        format!(
            "{} {:.1} ms, p99 {:.1}, max {:.1}",
            self.who,
            sample.median(),
            sample.quantile(0.99),
            sample.max()
        )
    }
}

/// Collects rows of one kind of happening.
struct Rows(Vec<Row>);

impl Rows {
    fn add(&mut self, what: &'static str, times: Times) -> anyhow::Result<()> {
        self.push(what, "node-tracer", false, times)
    }

    fn beside(
        &mut self,
        what: &'static str,
        who: &'static str,
        times: Times,
    ) -> anyhow::Result<()> {
        self.push(what, who, true, times)
    }

    fn push(
        &mut self,
        what: &'static str,
        who: &'static str,
        is_peer: bool,
        Times(times): Times,
    ) -> anyhow::Result<()> {
        if times.is_empty() && is_peer {
            // It is not installed; that was said.
            return Ok(());
        }
        self.0.push(Row {
            what,
            who,
            is_peer,
            sample: Sample::of(times).context(what)?,
        });
        Ok(())
    }
}

pub(super) fn run(options: &Options, setting: &Setting) -> anyhow::Result<Vec<Budget>> {
    let times = setting.number(options.times, 5, 100);
    let peers = Peer::here(&[Peer::Namespaces, Peer::Execs])?;
    let mut rows = Rows(Vec::new());
    let mut command = Command::new(&setting.tracer);
    command
        .args(["trace", "-o", "json", "--cri", "none", "--pods", "none"])
        .arg(format!("--stall-threshold={}ms", THRESHOLD.as_millis()));
    let mut tracer = Tracer::start(&mut command, |_| ())?;
    tracer.wait_until_ready()?;
    say(&format!("{times} namespaces"));
    namespaces(&mut rows, &mut tracer, times, &peers)?;
    say(&format!("{times} calls"));
    calls(&mut rows, &mut tracer, times, &peers)?;
    say(&format!("{times} addresses that are there twice"));
    addresses(&mut rows, &mut tracer, times)?;
    say(&format!("{times} tasks in uninterruptible sleep"));
    stalls(&mut rows, &mut tracer, times)?;
    let ended = tracer.stop()?;
    anyhow::ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);

    Ok(budgets(&rows.0))
}

fn budgets(rows: &[Row]) -> Vec<Budget> {
    let beside = |what: &str| -> Vec<String> {
        let peers = rows.iter().filter(|row| row.is_peer && row.what == what);
        peers.map(Row::beside).collect()
    };
    rows.iter()
        .filter(|row| !row.is_peer)
        .map(|row| Budget {
            what: row.what.to_owned(),
            limit: format!("p99 ≤ {LIMIT} ms"),
            measured: format!(
                "{:.1} ms, p99 {:.1}, max {:.1}",
                row.sample,
                row.sample.quantile(0.99),
                row.sample.max()
            ),
            peers: beside(row.what),
            verdict: Verdict::of(row.sample.quantile(0.99) <= LIMIT),
        })
        .collect()
}

/// A record's own time, or another of it.
fn time(record: &Value, key: &str) -> anyhow::Result<Timestamp> {
    let text = record[key].as_str();
    let text = text.with_context(|| format!("a record without {key}"))?;
    text.parse().with_context(|| format!("{key}: {text}"))
}

fn namespaces(
    rows: &mut Rows,
    tracer: &mut Tracer,
    times: u32,
    here: &[Peer],
) -> anyhow::Result<()> {
    let mut beside = Beside::peer(Peer::Namespaces, here)?;
    let mut ours = Times::default();
    let own = format!(" {} ", std::process::id());
    for _ in 0..times {
        let clocks = Clocks::read();
        let begin = Instant::now();
        let netns = Netns::create()?;
        let (at, record) = tracer.wait_with_time("netns-created", SOON, |record| {
            is_event(record, "netns-created") && netns_of(record) == Some(netns.inode())
                // Inode numbers are used again.
                && time(record, "time").is_ok_and(|time| clocks.since(time, begin) <= 0.0)
        })?;
        ours.0.push(clocks.since(time(&record, "time")?, at));
        beside.tells(clocks, begin, |line| line.contains(&own))?;
    }
    let what = "namespace made → netns-created";
    rows.add(what, ours)?;
    beside.stop(rows, what)
}

fn calls(rows: &mut Rows, tracer: &mut Tracer, times: u32, here: &[Peer]) -> anyhow::Result<()> {
    let mut beside = Beside::peer(Peer::Execs, here)?;
    let calls = Calls::create()?;
    let (mut begins, mut ends) = (Times::default(), Times::default());
    let mut counted = BTreeSet::new();
    let own = own_prefix();
    for _ in 0..times {
        let (clocks, begin) = (Clocks::read(), Instant::now());
        calls.make(1)?;
        for (event, into) in [("cni-started", &mut begins), ("cni-call", &mut ends)] {
            let (at, record) = tracer.wait_with_time(event, SOON, |record| {
                let path = record["plugin_path"].as_str().unwrap_or_default();
                is_event(record, event)
                    && path.contains(&own)
                    && !counted.contains(&(event, record["pid"].as_u64()))
            })?;
            counted.insert((event, record["pid"].as_u64()));
            into.0.push(clocks.since(time(&record, "time")?, at));
        }
        beside.tells(clocks, begin, |line| {
            line.contains(&own) && line.ends_with("/plugin")
        })?;
    }
    let started = "plugin executed → cni-started";
    rows.add(started, begins)?;
    beside.stop(rows, started)?;
    rows.add("plugin ended → cni-call", ends)
}

fn addresses(rows: &mut Rows, tracer: &mut Tracer, times: u32) -> anyhow::Result<()> {
    let mut beside = Beside::shell("ip addr, every second", TWICE)?;
    let (mut added, mut found) = (Times::default(), Times::default());
    for index in 0..times {
        let clocks = Clocks::read();
        let address = format!("198.18.{}.{}", 200 + index / 250, 1 + index % 250);
        let (one, other) = (Netns::create()?, Netns::create()?);
        for netns in [&one, &other] {
            netns.ip("link add eth0 type veth peer name eth1")?;
            netns.ip(&format!("addr add {address}/24 dev eth0"))?;
        }
        let (at, second) = tracer.wait_with_time("address-added", SOON, |record| {
            is_event(record, "address-added")
                && names_address(record, &address)
                && netns_of(record) == Some(other.inode())
        })?;
        let inserted = time(&second, "time")?;
        added.0.push(clocks.since(inserted, at));
        let (at, _) = tracer.wait_with_time("duplicate-address", SOON, |record| {
            is_finding(record, "duplicate-address")
                && record["state"] == "open"
                && names_address(record, &address)
        })?;
        found.0.push(clocks.since(inserted, at));
        let begins = format!("{address}/");
        beside.tells_of(clocks, inserted, |line| line.starts_with(&begins))?;
    }
    rows.add("address inserted → address-added", added)?;
    let what = "second insertion → duplicate-address";
    rows.add(what, found)?;
    beside.stop(rows, what)
}

fn stalls(rows: &mut Rows, tracer: &mut Tracer, times: u32) -> anyhow::Result<()> {
    let mut beside = Beside::shell("ps, every second", PS)?;
    let (mut events, mut findings) = (Times::default(), Times::default());
    let mut left = times;
    while left > 0 {
        let (mut file, netns) = (HangFs::mount()?, Netns::create()?);
        let mut stuck = Vec::new();
        for _ in 0..left.min(STUCK) {
            left -= 1;
            let clocks = Clocks::read();
            let mut task = PodProcess::reader("reader", &netns, None, &mut file)?;
            task.kill_into_d()?;
            let pid = task.pid();
            stuck.push(task);
            let (at, record) = tracer.wait_with_time("task-blocked", SOON, |record| {
                is_event(record, "task-blocked") && record["task"]["pid"] == pid
            })?;
            let due = time(&record, "since")? + THRESHOLD;
            events.0.push(clocks.since(due, at));
            let (at, _) = tracer.wait_with_time("blocked-task", SOON, |record| {
                is_finding(record, "blocked-task")
                    && record["state"] == "open"
                    && record["holders"][0]["pid"] == pid
                    && time(record, "since").is_ok_and(|since| since + THRESHOLD == due)
            })?;
            findings.0.push(clocks.since(due, at));
            let pid = pid.to_string();
            beside.tells_of(clocks, due, |line| line.trim() == pid)?;
        }
        file.release();
    }
    rows.add("threshold passed → task-blocked", events)?;
    let what = "threshold passed → blocked-task";
    rows.add(what, findings)?;
    beside.stop(rows, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_a_hundred_do_not_miss_a_budget_that_others_keep() {
        let row = |slow: usize| {
            let times = (0..100).map(|index| if index < slow { 250.0 } else { 5.0 });
            let mut rows = Rows(Vec::new());
            rows.add("a", Times(times.collect())).unwrap();
            rows.beside("a", "b", Times(vec![900.0])).unwrap();
            rows.beside("a", "c", Times::default()).unwrap();
            budgets(&rows.0)
        };
        assert_eq!(row(0)[0].verdict, Verdict::Met);
        assert_eq!(row(3)[0].verdict, Verdict::Missed);
        assert_eq!(row(0)[0].peers, ["b 900.0 ms, p99 900.0, max 900.0"]);
        assert_eq!(row(0).len(), 1);
    }
}
