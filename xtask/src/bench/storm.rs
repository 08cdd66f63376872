//! `bench storm`: as much as the machine can do at once, of all that a tracer
//! looks at, and whether anything is lost.
//!
//! Namespaces come and go, programs with a plugin's variables start and end,
//! addresses come and go, a thousand tasks go in and out of uninterruptible
//! sleep, and once all of them past the threshold. Its output is read by this
//! program, so nothing of it is the reader's fault.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use node_tracer_tests::calls::Calls;
use node_tracer_tests::helper::Killed;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::{self, Need};
use node_tracer_tests::stuck::Stuck;
use node_tracer_tests::tracer::{Tracer, is_event};
use node_tracer_tests::wait;

use super::budget::{Budget, Verdict};
use super::{Setting, load, say};

pub(super) const NEEDS: &[Need] = &[
    Need::Root,
    stage::IP,
    Need::Program("unshare", "util-linux"),
    Need::StaticBusybox,
    Need::Loop,
];

/// Options of `bench storm`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long it storms, in seconds [default: 60, quick 5]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// Tasks that sleep and wake
    #[arg(long, default_value_t = 1_000)]
    tasks: u32,
}

/// What it has after the storm to say what is left.
const CALM: Duration = Duration::from_secs(20);
/// From when on a sleep is reported.
const THRESHOLD: Duration = Duration::from_secs(5);
/// How long the tasks sleep, and are awake.
const TURN: Duration = Duration::from_millis(100);
/// Addresses in one batch.
const BATCH: usize = 2_000;

/// How much of each there was.
#[derive(Clone, Copy, Debug)]
struct Made {
    namespaces: usize,
    calls: usize,
    addresses: usize,
    /// Tasks that slept past the threshold.
    stalls: usize,
}

/// Addresses that are added and removed, as fast as can be.
fn addresses(netns: &Netns, folder: &Path, stop: &AtomicBool) -> anyhow::Result<usize> {
    let line = |n: usize| {
        let address = format!("198.18.{}.{}/32 dev eth0", 200 + n / 250 % 8, 1 + n % 250);
        format!("addr add {address}\naddr del {address}\n")
    };
    let path = folder.join("batch");
    fs::write(&path, (0..BATCH).map(line).collect::<String>())?;
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut command = netns.command("ip");
        let mut ip = Killed(command.arg("-batch").arg(&path).spawn().context("ip")?);
        let status = loop {
            match ip.0.try_wait()? {
                Some(status) => break status,
                // What was begun is not counted.
                None if stop.load(Ordering::Relaxed) => return Ok(count),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        anyhow::ensure!(status.success(), "ip -batch: {status}");
        count += BATCH;
    }
    Ok(count)
}

fn namespaces(stop: &AtomicBool) -> anyhow::Result<usize> {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        load::namespace()?;
        count += 1;
    }
    Ok(count)
}

fn storm(seconds: u64, tasks: u32) -> anyhow::Result<Made> {
    let (folder, netns, calls) = (Scratch::create()?, load::place()?, Calls::create()?);
    let mut tasks = Stuck::start(tasks)?;
    let stop = AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        let namespaces = scope.spawn(|| namespaces(&stop));
        let calls = scope.spawn(|| calls.make_until(&stop));
        let addresses = scope.spawn(|| addresses(&netns, folder.path(), &stop));
        let half = Duration::from_secs(seconds) / 2;
        let mut flap = || -> anyhow::Result<usize> {
            tasks.flap_for(TURN, half)?;
            // In the middle of it all, once: all of them past the threshold.
            tasks.stall_for(THRESHOLD + THRESHOLD)?;
            tasks.flap_for(TURN, half)?;
            Ok(tasks.pids().len())
        };
        let stalls = flap();
        stop.store(true, Ordering::Relaxed);
        anyhow::Ok(Made {
            namespaces: load::end(namespaces, &stop)?,
            calls: load::end(calls, &stop)?,
            addresses: load::end(addresses, &stop)?,
            stalls: stalls?,
        })
    })?;
    tasks.stop()?;
    Ok(made)
}

pub(super) fn run(options: &Options, setting: &Setting) -> anyhow::Result<Vec<Budget>> {
    let seconds = setting.number(options.seconds, 5, 60);
    let mut command = Command::new(&setting.tracer);
    command.args(["trace", "-o", "json", "--cri", "none", "--pods", "none"]);
    command.args(["--stall-threshold", &format!("{}s", THRESHOLD.as_secs())]);
    let mut tracer = Tracer::start(&mut command, |_| ())?;
    tracer.wait_until_ready()?;
    say(&format!("{seconds} s of storm"));
    let made = storm(seconds, options.tasks)?;
    wait::pause(CALM)?;
    let ended = tracer.stop()?;
    anyhow::ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);

    let recorded = |event: &str| {
        let records = ended.records.iter();
        records.filter(|record| is_event(record, event)).count()
    };
    let rows = [
        (
            "namespaces made",
            made.namespaces,
            recorded("netns-created"),
        ),
        (
            "namespaces let go",
            made.namespaces,
            recorded("netns-destroyed"),
        ),
        ("calls", made.calls, recorded("cni-call")),
        ("addresses added", made.addresses, recorded("address-added")),
        ("tasks stuck", made.stalls, recorded("task-blocked")),
        ("tasks going on", made.stalls, recorded("task-unblocked")),
    ];
    let summary = ended.records.last().context("no summary")?;
    let lost = summary["events_lost"].as_object().context("no summary")?;
    let lost = lost
        .iter()
        .filter_map(|(cause, count)| Some((cause.as_str(), count.as_u64()?)));
    Ok(vec![budget(seconds, &rows, &lost.collect::<Vec<_>>())])
}

/// `rows`: what was made, how often, and how often the tracer said so.
fn budget(seconds: u64, rows: &[(&str, usize, usize)], lost: &[(&str, u64)]) -> Budget {
    let count: u64 = lost.iter().map(|(_, count)| count).sum();
    // Others on the machine may add to what is recorded, never take from it. An
    // address that is taken off at once may be missed where no function can be
    // hooked; the coverage record says so.
    let mut counted = rows.iter().filter(|(what, ..)| *what != "addresses added");
    let silent = count == 0 && !counted.all(|(_, made, recorded)| made <= recorded);
    let causes = lost.iter().filter(|(_, count)| *count > 0);
    let causes = causes.map(|(cause, count)| format!("{count} {cause}"));
    let rates = rows
        .iter()
        .map(|(what, made, _)| format!("{}/s {what}", *made as u64 / seconds));
    let details: Vec<String> = causes.chain(rates).collect();
    Budget {
        what: format!("events lost, storm of {seconds} s at full speed"),
        limit: String::from("0"),
        measured: format!(
            "{count}{} ({})",
            if silent {
                ", and some without a word"
            } else {
                ""
            },
            details.join(", ")
        ),
        peers: Vec::new(),
        verdict: Verdict::of(count == 0 && !silent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_which_something_is_lost_misses_its_budget() {
        let verdict = |recorded: usize, lost: u64| {
            let rows = [("calls", 20, recorded), ("addresses added", 20, 0)];
            budget(10, &rows, &[("ring", lost), ("queue", 0)])
        };
        assert_eq!(verdict(21, 0).verdict, Verdict::Met);
        assert_eq!(verdict(19, 0).verdict, Verdict::Missed);
        let lost = verdict(19, 1);
        assert_eq!(lost.verdict, Verdict::Missed);
        assert_eq!(lost.measured, "1 (1 ring, 2/s calls, 2/s addresses added)");
    }
}
