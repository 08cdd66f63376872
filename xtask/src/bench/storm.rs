//! `bench storm`: as much as the machine can do at once, of all that a tracer
//! looks at, and whether anything is lost or stays behind in the tracer.
//!
//! Namespaces come and go, programs with a plugin's variables start and end,
//! addresses come and go, a thousand tasks go in and out of uninterruptible
//! sleep, and once all of them past the threshold. Its output is read by this
//! program, so nothing of it is the reader's fault.

pub(super) mod load;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stuck::Stuck;
use node_tracer_tests::tracer::{Tracer, is_event};
use node_tracer_tests::wait;
use serde_json::{Value, json};

use self::load::Stop;
use super::process::{at_rest, forget_peak, memory};
use super::say;

/// Options of `bench storm`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long it storms
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Tasks that sleep and wake
    #[arg(long, default_value_t = 1_000)]
    tasks: u32,
}

/// How long the tracer's state at rest is measured.
const REST: Duration = Duration::from_secs(10);
/// What it has after the storm to come to rest.
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
    /// How often tasks slept, most of the time shorter.
    sleeps: u64,
}

fn storm(options: &Options) -> anyhow::Result<Made> {
    let (folder, netns) = (Scratch::create()?, load::place()?);
    let mut tasks = Stuck::start(options.tasks)?;
    let stop = Stop::default();
    let full = Duration::ZERO;
    let (namespaces, calls, addresses, stalls) = std::thread::scope(|scope| {
        let namespaces = scope.spawn(|| load::namespaces(full, &stop));
        let calls = scope.spawn(|| load::calls(full, &stop));
        let addresses = scope.spawn(|| load::addresses(&netns, folder.path(), BATCH, full, &stop));
        let half = Duration::from_secs(options.seconds) / 2;
        let mut flap = || -> anyhow::Result<usize> {
            tasks.flap_for(TURN, half)?;
            // In the middle of it all, once: all of them past the threshold.
            tasks.stall_for(THRESHOLD + THRESHOLD)?;
            tasks.flap_for(TURN, half)?;
            Ok(tasks.pids().len())
        };
        let stalls = flap();
        stop.now();
        let made = (
            load::end(namespaces, &stop)?,
            load::end(calls, &stop)?,
            load::end(addresses, &stop)?,
        );
        anyhow::Ok((made.0, made.1, made.2, stalls?))
    })?;
    Ok(Made {
        namespaces,
        calls,
        addresses,
        stalls,
        sleeps: tasks.stop()?,
    })
}

/// Returns whether nothing was lost without a word.
pub(super) fn run(options: &Options, tracer: &Path) -> anyhow::Result<bool> {
    let mut command = Command::new(tracer);
    command.args(["trace", "-o", "json", "--cri", "none", "--pods", "none"]);
    command.args(["--stall-threshold", &format!("{}s", THRESHOLD.as_secs())]);
    let mut tracer = Tracer::start(&mut command, |_| ())?;
    tracer.wait_until_ready()?;
    let pid = tracer.pid();
    say("at rest");
    let before = at_rest(pid, REST)?;
    forget_peak(pid)?;
    say(&format!("{} s of storm", options.seconds));
    let made = storm(options)?;
    let peak = memory(pid, "VmHWM")?;
    wait::pause(CALM)?;
    say("at rest again");
    let after = at_rest(pid, REST)?;
    let ended = tracer.stop()?;
    anyhow::ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);

    let told = |event: &str| {
        ended
            .records
            .iter()
            .filter(|record| is_event(record, event))
            .count()
    };
    let summary = ended.records.last().context("no summary")?;
    let lost = summary["events_lost"].as_object().context("no summary")?;
    let lost_all: u64 = lost.values().filter_map(Value::as_u64).sum();
    let rows = [
        ("namespaces made", made.namespaces, told("netns-created")),
        (
            "namespaces let go",
            made.namespaces,
            told("netns-destroyed"),
        ),
        ("calls", made.calls, told("cni-call")),
        ("addresses added", made.addresses, told("address-added")),
        ("tasks stuck", made.stalls, told("task-blocked")),
        ("tasks going on", made.stalls, told("task-unblocked")),
    ];
    println!("\n{:<20} {:>10} {:>10} {:>8}", "", "made", "told", "per s");
    for (what, made, told) in rows {
        let rate = made as u64 / options.seconds;
        println!("{what:<20} {made:>10} {told:>10} {rate:>8}");
    }
    println!(
        "{:<20} {:>10} {:>10} {:>8}",
        "sleeps in state D",
        made.sleeps,
        "",
        made.sleeps / options.seconds
    );
    println!("lost, by cause        {}", summary["events_lost"]);
    let mib = |kib: u64| kib as f64 / 1024.0;
    println!(
        "\n{:<20} {:>10} {:>10} {:>10}",
        "", "before", "in it", "after"
    );
    println!(
        "{:<20} {:>10.1} {:>10.1} {:>10.1}",
        "resident, MiB",
        mib(before.resident),
        mib(peak),
        mib(after.resident)
    );
    println!(
        "{:<20} {:>10.2} {:>10} {:>10.2}\n",
        "CPU, % of a core", before.cpu, "", after.cpu
    );
    let numbers = json!({
        "seconds": options.seconds,
        "rows": rows.map(|(what, made, told)| json!({ "what": what, "made": made, "told": told })),
        "sleeps": made.sleeps,
        "lost": lost,
        "resident_kib": { "before": before.resident, "peak": peak, "after": after.resident },
        "cpu_percent": { "before": before.cpu, "after": after.cpu },
    });
    super::write("storm", &numbers)?;
    // Others on the machine may add to what is told, never take from it. An
    // address that is taken off at once may be missed where no function can be
    // hooked; the coverage record says so.
    let mut counted = rows.iter().filter(|(what, ..)| *what != "addresses added");
    let whole = counted.all(|(_, made, told)| made <= told);
    Ok(lost_all > 0 || whole)
}
