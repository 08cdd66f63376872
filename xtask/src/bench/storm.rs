//! `bench storm`: as much as the machine can do at once, of all that a tracer
//! looks at, and whether anything is lost or stays behind in the tracer.
//!
//! Namespaces come and go, programs with a plugin's variables start and end
//! (each start has its parent in uninterruptible sleep, which is the flapping
//! that `sched_switch` sees), addresses come and go. Its output is read by
//! this program, so nothing of it is the reader's fault.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use node_tracer_tests::calls::Calls;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::{self, Need};
use node_tracer_tests::tracer::{Tracer, is_event};
use node_tracer_tests::wait;
use serde_json::{Value, json};

use super::process::{at_rest, forget_peak, memory};
use super::say;

/// All that it needs.
pub(super) const NEEDS: &[Need] = &[
    Need::Root,
    stage::IP,
    Need::Program("unshare", "util-linux"),
];

/// Options of `bench storm`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long it storms
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Measure this tracer instead of the one of this source
    #[arg(long, value_name = "FILE")]
    pub(super) binary: Option<PathBuf>,
}

/// How long the tracer's state at rest is measured.
const REST: Duration = Duration::from_secs(10);
/// What it has after the storm to come to rest.
const CALM: Duration = Duration::from_secs(20);
/// Addresses in one batch.
const BATCH: usize = 2_000;

/// Killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Namespaces that are made and let go; how many.
fn namespaces(stop: &AtomicBool) -> anyhow::Result<usize> {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut command = Command::new("unshare");
        let made = command.args(["-n", "true"]).stdin(Stdio::null()).status()?;
        anyhow::ensure!(made.success(), "unshare: {made}");
        count += 1;
    }
    Ok(count)
}

/// Addresses that are added and removed; how many.
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
        let mut child = Running(command.arg("-batch").arg(&path).spawn().context("ip")?);
        let status = loop {
            match child.0.try_wait()? {
                Some(status) => break status,
                None if stop.load(Ordering::Relaxed) => return Ok(count),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        anyhow::ensure!(status.success(), "ip -batch: {status}");
        count += BATCH;
    }
    Ok(count)
}

/// How much of each there was.
#[derive(Clone, Copy, Debug)]
struct Made {
    namespaces: usize,
    calls: usize,
    addresses: usize,
}

fn storm(length: Duration) -> anyhow::Result<Made> {
    let (calls, folder, netns) = (Calls::create()?, Scratch::create()?, Netns::create()?);
    netns.ip("link add eth0 type veth peer name eth1")?;
    netns.ip("link set eth0 up")?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let namespaces = scope.spawn(|| namespaces(&stop));
        let calls = scope.spawn(|| calls.make_until(&stop));
        let addresses = scope.spawn(|| addresses(&netns, folder.path(), &stop));
        let waited = wait::pause(length);
        stop.store(true, Ordering::Relaxed);
        let end = |thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<usize>>| {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a storm's thread panicked"))?
        };
        let made = Made {
            namespaces: end(namespaces)?,
            calls: end(calls)?,
            addresses: end(addresses)?,
        };
        waited.map(|()| made)
    })
}

/// Returns whether nothing was lost without a word.
pub(super) fn run(options: &Options, tracer: &Path) -> anyhow::Result<bool> {
    let mut command = Command::new(tracer);
    command.args(["trace", "-o", "json", "--cri", "none", "--pods", "none"]);
    let mut tracer = Tracer::start(&mut command, |_| ())?;
    tracer.wait_until_ready()?;
    let pid = tracer.pid();
    say("at rest");
    let before = at_rest(pid, REST)?;
    forget_peak(pid)?;
    say(&format!("{} s of storm", options.seconds));
    let made = storm(Duration::from_secs(options.seconds))?;
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
    ];
    println!("\n{:<20} {:>10} {:>10} {:>8}", "", "made", "told", "per s");
    for (what, made, told) in rows {
        let rate = made as u64 / options.seconds;
        println!("{what:<20} {made:>10} {told:>10} {rate:>8}");
    }
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
        "lost": lost,
        "resident_kib": { "before": before.resident, "peak": peak, "after": after.resident },
        "cpu_percent": { "before": before.cpu, "after": after.cpu },
    });
    super::write("storm", &numbers)?;
    // Others on the machine may add to what is told, never take from it.
    let whole = made.namespaces <= told("netns-created") && made.calls <= told("cni-call");
    Ok(lost_all > 0 || whole)
}
