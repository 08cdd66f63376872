//! `bench long`: a tracer that runs for a long time on a node where much goes
//! on, at a pace that leaves it room: whether anything grows in it.
//!
//! Namespaces, programs with a plugin's variables and addresses come and go,
//! tasks sleep and wake and are stuck now and then, incidents open and
//! resolve, the container runtime is restarted and hangs. Memory and
//! descriptors are looked at all the while.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use node_tracer_tests::incident::Incident;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::scripted_cri::{Mood, ScriptedCri};
use node_tracer_tests::stage::Need;
use node_tracer_tests::stuck::Stuck;
use node_tracer_tests::wait;
use serde_json::{Value, json};

use super::budget::{Budget, Verdict};
use super::process::{cpu_time, memory};
use super::say;
use super::storm::load::{self, Stop};

/// What its incidents need; the rest is [`load::NEEDS`].
pub(super) const NEEDS: &[Need] = &[Need::Fuse, Need::Cgroup];

/// Options of `bench long`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long it runs
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
}

/// Between two looks at the tracer.
const SAMPLE: Duration = Duration::from_secs(10);
/// Some 40 namespaces and calls a second, and 100 addresses.
const PACE: Duration = Duration::from_millis(50);
const ADDRESSES: usize = 200;
const ADDRESSES_PACE: Duration = Duration::from_secs(2);
/// Tasks that sleep and wake, and their turns.
const TASKS: u32 = 200;
const TURN: Duration = Duration::from_millis(200);
/// From when on a sleep is reported, and how often all of them pass that.
const THRESHOLD: Duration = Duration::from_secs(2);
const STALLS: Duration = Duration::from_secs(60);
/// How long an incident stays in each of its phases.
const PHASE: Duration = Duration::from_secs(3);
/// How long the runtime is in each of its moods.
const MOOD: Duration = Duration::from_secs(12);
/// What may be more at the end than before: pages that the allocator happens to
/// have, in KiB.
const NOISE: u64 = 1_024;
/// From which fifth on there is to be no more of anything, the first being 0: in
/// half an hour what is remembered for ten minutes is all there by then.
const FULL: usize = 2;

/// The tracer at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Since it was started.
    at: Duration,
    /// VmRSS, KiB.
    resident: u64,
    /// RssAnon, KiB: without the program's own pages.
    anonymous: u64,
    descriptors: u64,
    threads: u64,
}

impl Sample {
    fn of(pid: u32, start: Instant) -> anyhow::Result<Self> {
        let count = |folder: &str| -> anyhow::Result<u64> {
            let path = format!("/proc/{pid}/{folder}");
            Ok(fs::read_dir(&path).context(path)?.count() as u64)
        };
        Ok(Self {
            at: start.elapsed(),
            resident: memory(pid, "VmRSS")?,
            anonymous: memory(pid, "RssAnon")?,
            descriptors: count("fd")?,
            threads: count("task")?,
        })
    }
}

/// One of a sample's numbers.
type Figure = fn(&Sample) -> u64;

/// The middle one of each fifth of the samples.
fn medians(samples: &[Sample], of: Figure) -> Option<[u64; 5]> {
    let length = samples.len() / 5;
    let mut medians = [0; 5];
    for (fifth, median) in medians.iter_mut().enumerate() {
        let part = samples.get(fifth * length..(fifth + 1) * length)?;
        let mut values: Vec<u64> = part.iter().map(of).collect();
        values.sort_unstable();
        *median = *values.get(values.len() / 2)?;
    }
    Some(medians)
}

/// From the fifth when [all is there](FULL) to the last.
fn change(samples: &[Sample], of: Figure) -> Option<(u64, u64)> {
    let medians = medians(samples, of)?;
    Some((medians[FULL], medians[4]))
}

/// The tracer; killed when it is dropped.
struct Tracer(Child);

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What it said, counted as it comes: all of it would be gigabytes.
#[derive(Debug, Default)]
struct Said {
    /// By event; by rule and state; by type.
    counts: BTreeMap<String, u64>,
    summary: Value,
}

fn listen(stdout: impl std::io::Read, ready: &Stop) -> anyhow::Result<Said> {
    let mut said = Said::default();
    for line in BufReader::new(stdout).lines() {
        let record: Value = serde_json::from_str(&line?)?;
        let text = |key: &str| record[key].as_str().unwrap_or_default();
        let name = match text("type") {
            "event" => text("event").to_owned(),
            "finding" => format!("{} {}", text("rule"), text("state")),
            other => other.to_owned(),
        };
        // What it watches with is told when it watches.
        ready.now();
        *said.counts.entry(name).or_default() += 1;
        if record["type"] == "summary" {
            said.summary = record;
        }
    }
    Ok(said)
}

/// The whole incident, again and again, each with new pods; the tracer's list
/// of pods is the incident's, for as long as that lasts.
fn incidents(pods: &Path, stop: &Stop) -> anyhow::Result<usize> {
    let next = pods.with_extension("next");
    let mut count = 0;
    while !stop.is_told() {
        let mut incident = Incident::new()?;
        let hand_over = |incident: &Incident| -> anyhow::Result<()> {
            fs::copy(incident.pods_file(), &next)?;
            fs::rename(&next, pods)?;
            // A list is read each second.
            stop.pause(PHASE)
        };
        incident.start_old_pod()?;
        hand_over(&incident)?;
        incident.force_delete()?;
        hand_over(&incident)?;
        incident.garbage_collect()?;
        incident.start_new_pod()?;
        hand_over(&incident)?;
        incident.release()?;
        incident.end_new_pod()?;
        hand_over(&incident)?;
        count += 1;
    }
    Ok(count)
}

/// A runtime that answers, hangs, and is started anew; how often.
fn runtime(socket: &Path, stop: &Stop) -> anyhow::Result<usize> {
    let mut starts = 0;
    while !stop.is_told() {
        if socket.exists() {
            fs::remove_file(socket)?;
        }
        let runtime = ScriptedCri::start(socket)?;
        starts += 1;
        for n in 0..100 {
            runtime.add(&format!("{starts:032x}{n:032x}"), None);
        }
        for mood in [Mood::Well, Mood::Silent, Mood::Well] {
            runtime.be(mood);
            stop.pause(MOOD)?;
        }
    }
    Ok(starts)
}

/// Tasks that flap, and are stuck now and then; how many were, in all.
fn stalls(stop: &Stop) -> anyhow::Result<usize> {
    let mut tasks = Stuck::start(TASKS)?;
    let mut count = 0;
    while !stop.is_told() {
        let begin = Instant::now();
        while !stop.is_told() && begin.elapsed() < STALLS {
            tasks.flap_for(TURN, TURN)?;
        }
        if !stop.is_told() {
            tasks.stall_for(THRESHOLD + THRESHOLD)?;
            count += tasks.pids().len();
        }
    }
    Ok(count)
}

#[derive(Debug, Default)]
struct Made {
    namespaces: usize,
    calls: usize,
    addresses: usize,
    stalls: usize,
    incidents: usize,
    runtimes: usize,
}

/// The load, with a look at the tracer every now and then.
fn load(
    length: Duration,
    pods: &Path,
    socket: &Path,
    pid: u32,
) -> anyhow::Result<(Made, Vec<Sample>)> {
    let (folder, netns) = (Scratch::create()?, load::place()?);
    let stop = Stop::default();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let namespaces = scope.spawn(|| load::namespaces(PACE, &stop));
        let calls = scope.spawn(|| load::calls(PACE * 2, &stop));
        let addresses = scope
            .spawn(|| load::addresses(&netns, folder.path(), ADDRESSES, ADDRESSES_PACE, &stop));
        let stalls = scope.spawn(|| stalls(&stop));
        let incidents = scope.spawn(|| incidents(pods, &stop));
        let runtimes = scope.spawn(|| runtime(socket, &stop));
        let mut samples = Vec::new();
        let mut look = || -> anyhow::Result<()> {
            while start.elapsed() < length && !stop.is_told() {
                stop.pause(SAMPLE)?;
                let sample = Sample::of(pid, start)?;
                println!(
                    "{:>6} s  {:>7} KiB, {:>7} anonymous  {:>4} descriptors  {:>3} threads",
                    sample.at.as_secs(),
                    sample.resident,
                    sample.anonymous,
                    sample.descriptors,
                    sample.threads
                );
                samples.push(sample);
                let loads = [
                    namespaces.is_finished(),
                    calls.is_finished(),
                    addresses.is_finished(),
                    stalls.is_finished(),
                    incidents.is_finished(),
                    runtimes.is_finished(),
                ];
                anyhow::ensure!(!loads.contains(&true), "a load has ended early");
            }
            Ok(())
        };
        let looked = look();
        stop.now();
        let made = Made {
            namespaces: load::end(namespaces, &stop)?,
            calls: load::end(calls, &stop)?,
            addresses: load::end(addresses, &stop)?,
            stalls: load::end(stalls, &stop)?,
            incidents: load::end(incidents, &stop)?,
            runtimes: load::end(runtimes, &stop)?,
        };
        looked?;
        Ok((made, samples))
    })
}

/// What grew and what was lost, which must be nothing.
pub(super) fn run(options: &Options, tracer: &Path) -> anyhow::Result<Vec<Budget>> {
    let scratch = Scratch::create()?;
    let (pods, socket) = (
        scratch.path().join("pods.json"),
        scratch.path().join("cri.sock"),
    );
    fs::write(&pods, r#"{"kind":"List","apiVersion":"v1","items":[]}"#)?;
    let mut command = Command::new(tracer);
    command
        .args(["trace", "-o", "json", "--cri"])
        .arg(format!("unix://{}", socket.display()))
        .arg("--pods")
        .arg(&pods)
        .args(["--stall-threshold", &format!("{}s", THRESHOLD.as_secs())])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut tracer = Tracer(command.spawn().context("start the tracer")?);
    let (pid, ready) = (tracer.0.id(), Stop::default());
    let stdout = tracer.0.stdout.take().context("no pipe")?;
    let length = Duration::from_secs(options.minutes * 60);
    let (made, samples, used, said) = std::thread::scope(|scope| {
        let listener = scope.spawn(|| listen(stdout, &ready));
        // Whatever happens, the tracer ends, and with it its listener.
        let done = wait::until("the tracer to watch", Duration::from_secs(20), || {
            anyhow::ensure!(tracer.0.try_wait()?.is_none(), "the tracer has ended");
            Ok(ready.is_told().then_some(()))
        })
        .and_then(|()| load(length, &pods, &socket, pid))
        .and_then(|done| Ok((done, cpu_time(pid)?)));
        // SAFETY: kill takes numbers; the child was not waited for yet.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGINT) };
        let said = load::end(listener, &Stop::default());
        let ended = tracer.0.wait()?;
        let ((made, samples), used) = done?;
        anyhow::ensure!(ended.success(), "the tracer ended with {ended}");
        Ok((made, samples, used, said?))
    })?;

    println!("\n{:<30} {:>10}", "records", "");
    for (name, count) in &said.counts {
        println!("{name:<30} {count:>10}");
    }
    println!("\n{made:?}");
    let lost = said.summary["events_lost"].as_object();
    let lost = lost.context("no summary")?;
    println!("lost, by cause: {}", said.summary["events_lost"]);
    let cpu = used.as_secs_f64() / length.as_secs_f64() * 100.0;
    println!("CPU: {cpu:.2} % of a core\n");
    let rows: [(&str, Figure, u64); 4] = [
        ("resident, KiB", |sample| sample.resident, NOISE),
        ("anonymous, KiB", |sample| sample.anonymous, NOISE),
        ("descriptors", |sample| sample.descriptors, 2),
        ("threads", |sample| sample.threads, 2),
    ];
    let mut grown = Vec::new();
    println!("medians of each fifth");
    let mut changes = BTreeMap::new();
    for (what, of, noise) in rows {
        let all = medians(&samples, of).context("too short for a verdict")?;
        let words: String = all.iter().map(|median| format!(" {median:>10}")).collect();
        println!("{what:<20}{words}");
        if all[4] > all[FULL] + noise {
            grown.push(what);
        }
        changes.insert(what, json!(all));
    }
    if !grown.is_empty() {
        println!("growing: {}", grown.join(", "));
    }
    let numbers = json!({
        "minutes": options.minutes,
        "made": {
            "namespaces": made.namespaces,
            "calls": made.calls,
            "addresses": made.addresses,
            "stalls": made.stalls,
            "incidents": made.incidents,
            "runtimes": made.runtimes,
        },
        "records": said.counts,
        "lost": lost,
        "cpu_percent": cpu,
        "medians": changes,
        "samples": samples.iter().map(|sample| json!({
            "at_s": sample.at.as_secs(),
            "resident_kib": sample.resident,
            "anonymous_kib": sample.anonymous,
            "descriptors": sample.descriptors,
            "threads": sample.threads,
        })).collect::<Vec<_>>(),
    });
    super::write("long", &numbers)?;
    if !lost.is_empty() {
        say("records were lost");
    }
    let resident = change(&samples, |sample| sample.resident);
    let (early, late) = resident.context("too short for a verdict")?;
    let mib = |kib: u64| kib as f64 / 1024.0;
    Ok(vec![Budget {
        what: format!("growth in {} minutes of mixed load", options.minutes),
        limit: String::from("none, nothing lost"),
        measured: format!(
            "resident {:.1} MiB, then {:.1} ({cpu:.1} % of a core)",
            mib(early),
            mib(late)
        ),
        peers: Vec::new(),
        verdict: Verdict::of(grown.is_empty() && lost.is_empty()),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(resident: impl Fn(u64) -> u64) -> Vec<Sample> {
        let sample = |n| Sample {
            at: SAMPLE * n as u32,
            resident: resident(n),
            anonymous: 0,
            descriptors: 30,
            threads: 4,
        };
        (0..100).map(sample).collect()
    }

    #[test]
    fn a_peak_is_no_growth_and_a_slope_is_one() {
        let resident = |sample: &Sample| sample.resident;
        let peaks = samples(|n| 20_000 + if n % 7 == 0 { 9_000 } else { 0 });
        assert_eq!(change(&peaks, resident), Some((20_000, 20_000)));
        let slope = samples(|n| 20_000 + 10 * n);
        assert_eq!(change(&slope, resident), Some((20_500, 20_900)));
        let begin = samples(|n| 20_000 + 1_000 * n.min(15));
        assert_eq!(change(&begin, resident), Some((35_000, 35_000)));
        assert_eq!(change(&slope[..4], resident), None);
    }
}
