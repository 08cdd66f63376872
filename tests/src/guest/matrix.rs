//! Every signal by every mechanism: the tracer is started once for each
//! mechanism, with that one as its limit, and each signal is made for it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::coverage::Coverage;
use super::report::{Cell, Host, Verdict};
use super::stock::Stock;
use super::{address, incident, netns, plugin, release, suspend, task, teardown};
use crate::tracer::{Tracer, command, is_event, netns_of};
use crate::{process, stage, wait};

/// The best first; with it as the limit nothing is limited.
pub(super) const MECHANISMS: [&str; 6] = [
    "fentry",
    "kprobe",
    "tp_btf",
    "raw_tp",
    "iterator",
    "comparison",
];
/// What some of these kernels do not have. Any other reason not to use a
/// mechanism, a program that the verifier refuses, say, is the tracer's fault.
const LACKED: [&str; 2] = ["no tracepoint notifier_run", "no bpf_loop helper"];
/// The same on arm64 alone, until Linux 6.4.
const LACKED_BY_ARM64: &str = "fentry refused by the kernel";

fn is_lacked(reason: &str) -> bool {
    LACKED.iter().any(|lacked| reason.starts_with(lacked))
        || cfg!(target_arch = "aarch64") && release() < (6, 4) && reason == LACKED_BY_ARM64
}
/// The rungs on which every namespace must be told of, however fast.
const IN_A_STORM: [&str; 3] = ["fentry", "kprobe", "tp_btf"];

/// A signal, and whether what had to be told of it was.
pub(super) type SignalResult = (&'static str, anyhow::Result<()>);

/// The tracer, and what is true of this run.
pub(super) struct Stage<'a> {
    tracer: Tracer,
    host: &'a mut Host,
}

impl<'a> Stage<'a> {
    /// For a suite that starts the tracer itself.
    pub(super) fn over(tracer: Tracer, host: &'a mut Host) -> Self {
        Self { tracer, host }
    }

    /// The tracer, to be ended.
    pub(super) fn into_tracer(self) -> Tracer {
        self.tracer
    }

    /// Long enough for the slowest mechanism on an emulated machine.
    const SOON: Duration = Duration::from_secs(90);

    /// What comes from here on.
    pub(super) fn mark(&self) -> usize {
        self.tracer.records().len()
    }

    /// Waits for a record that came after a mark: the kernel uses numbers
    /// again, so an earlier one may be of another.
    pub(super) fn after(
        &mut self,
        mark: usize,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        // The host gives up on a guest that is silent for long.
        self.host.alive();
        // Each record is asked about once, in order.
        let seen = std::cell::Cell::new(0);
        self.tracer.wait_for(what, Self::SOON, |record| {
            let at = seen.replace(seen.get() + 1);
            at >= mark && wanted(record)
        })
    }

    pub(super) fn records(&self) -> Vec<Value> {
        self.tracer.records()
    }

    /// Waits until what was done before has been told.
    pub(super) fn settle(&self) -> anyhow::Result<()> {
        let mut before = 0;
        for _ in 0..20 {
            let now = self.tracer.records().len();
            if now == before {
                break;
            }
            before = now;
            wait::pause(Duration::from_secs(2))?;
        }
        Ok(())
    }

    pub(super) fn say(&mut self, text: &str) {
        self.host.text(text);
    }
}

/// A group of signals that are made together.
struct Scenario {
    name: &'static str,
    signals: &'static [&'static str],
    run: fn(&mut Stage<'_>) -> Vec<SignalResult>,
}

const SCENARIOS: [Scenario; 5] = [
    Scenario {
        name: "netns",
        signals: &["netns-created", "netns-dying", "netns-destroyed"],
        run: netns::observe,
    },
    Scenario {
        name: "address",
        signals: &["address"],
        run: address::observe,
    },
    Scenario {
        name: "task",
        signals: &["task-blocked"],
        run: task::observe,
    },
    Scenario {
        name: "cni",
        signals: &["cni-call", "cni-result"],
        run: plugin::observe,
    },
    Scenario {
        name: "teardown",
        signals: &["teardown-stall"],
        run: teardown::observe,
    },
];

/// Runs the tests whose names (`netns@kprobe`) hold one of `wanted`; all, if
/// none is named.
pub(super) fn run(wanted: &[String]) -> ExitCode {
    let has =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let Ok(mut host) = Host::open() else {
        return ExitCode::FAILURE;
    };
    for mechanism in MECHANISMS {
        let begin = Instant::now();
        if let Err(error) = rung(&mut host, mechanism, &has) {
            say(&mut host, "tracer", mechanism, Err(error), begin);
        }
        if let Err(error) = stage::nothing_left() {
            say(&mut host, "tracer", mechanism, Err(error), Instant::now());
        }
    }
    ExitCode::SUCCESS
}

/// The signal of the tracer's that makes a test's.
fn rests_on(signal: &str) -> &str {
    match signal {
        "teardown-stall" => "netns-dying",
        storm if storm.starts_with("storm") => "netns-created",
        signal => signal,
    }
}

fn say(
    host: &mut Host,
    signal: &str,
    mechanism: &str,
    observed: anyhow::Result<()>,
    begin: Instant,
) {
    host.cell(&Cell {
        signal,
        mechanism,
        verdict: match observed {
            Ok(()) => Verdict::Ok,
            Err(_) => Verdict::Failed,
        },
        detail: observed
            .err()
            .map(|error| format!("{error:#}"))
            .unwrap_or_default(),
        seconds: begin.elapsed().as_secs_f32(),
    });
}

/// All that is tested with one limit.
fn rung(host: &mut Host, mechanism: &str, has: &dyn Fn(&str) -> bool) -> anyhow::Result<()> {
    let named = |scenario: &str| has(&format!("{scenario}@{mechanism}"));
    let scenarios = SCENARIOS.iter().filter(|scenario| named(scenario.name));
    let scenarios: Vec<&Scenario> = scenarios.collect();
    if scenarios.is_empty()
        && !["check", "incident", "storm", "inventory", "suspend"]
            .into_iter()
            .any(named)
    {
        return Ok(());
    }
    let begin = Instant::now();
    let coverage = check(host, mechanism)?;
    for (signal, mechanism, reason) in coverage.refusals() {
        host.cell(&Cell {
            signal,
            mechanism,
            verdict: match is_lacked(reason) {
                true => Verdict::Refused,
                false => Verdict::Failed,
            },
            detail: reason.to_owned(),
            seconds: begin.elapsed().as_secs_f32(),
        });
    }
    // Without a limit all signals are tested, whatever they rest on: that is
    // what a node has. With one, those that it makes a difference to.
    let matters =
        |signal: &str| mechanism == MECHANISMS[0] || coverage.mechanism(signal) == mechanism;

    // With a tracer of its own, since that is told of the pods.
    if named("incident") && matters("netns-created") {
        let begin = Instant::now();
        let observed = incident::observe(host, mechanism);
        say(host, "incident", mechanism, observed, begin);
    }
    let stock = Stock::new()?;
    let tracer = start(mechanism, &["--pods", "none"])?;
    let mut stage = Stage { tracer, host };
    let tell = |stage: &mut Stage<'_>, begin: Instant, observed: Vec<SignalResult>| {
        for (signal, observed) in observed {
            let by = coverage.mechanism(rests_on(signal));
            // Where nothing is promised, nothing is asked.
            if by.is_empty() || !matters(rests_on(signal)) {
                continue;
            }
            say(stage.host, signal, by, observed, begin);
        }
    };
    if named("inventory") && matters("inventory") {
        let begin = Instant::now();
        let observed = stock.observe(&mut stage, coverage.finds_hidden());
        tell(&mut stage, begin, vec![("inventory", observed)]);
    }
    // What comes next may get the same number: only when this one is over can
    // every mechanism tell the two apart.
    let (mark, inode) = (stage.mark(), stock.named.inode());
    drop(stock);
    stage.after(mark, &format!("netns-destroyed {inode}"), |record| {
        is_event(record, "netns-destroyed") && netns_of(record) == Some(inode)
    })?;
    stage.settle()?;
    for scenario in scenarios {
        // A comparison cannot tell one that is gone from one that is not yet.
        let observed = mechanism != "comparison" || scenario.name != "teardown";
        let mut signals = scenario.signals.iter();
        if observed && signals.any(|signal| matters(rests_on(signal))) {
            let begin = Instant::now();
            let observed = (scenario.run)(&mut stage);
            tell(&mut stage, begin, observed);
        }
    }
    let mut lives = SCENARIOS[0].signals.iter();
    let all = lives.all(|signal| coverage.mechanism(signal) == mechanism);
    if named("storm") && all && IN_A_STORM.contains(&mechanism) {
        let begin = Instant::now();
        let observed = netns::storm(&mut stage);
        tell(&mut stage, begin, observed);
    }
    // A clock is the same on every rung.
    if named("suspend") && mechanism == MECHANISMS[0] {
        let begin = Instant::now();
        match suspend::is_possible() {
            true => {
                let observed = suspend::observe(&mut stage);
                say(stage.host, "suspend", mechanism, observed, begin);
            }
            false => stage.host.cell(&Cell {
                signal: "suspend",
                mechanism,
                verdict: Verdict::Skipped,
                detail: String::from("this machine does not suspend to memory"),
                seconds: 0.0,
            }),
        }
    }
    let Stage { tracer, host } = stage;
    let ended = tracer.stop()?;
    if !ended.stderr.trim().is_empty() {
        host.note(&format!("trace --limit {mechanism}: stderr"), &ended.stderr);
    }
    ensure!(
        ended.code == Some(0),
        "exit code {:?}, signal {:?}: {}",
        ended.code,
        ended.signal,
        ended.stderr.trim()
    );
    let lost = ended
        .records
        .iter()
        .find(|record| is_event(record, "events-lost"));
    ensure!(
        lost.is_none(),
        "events were lost: {}",
        lost.context("none")?
    );
    let own = fs::metadata("/proc/self/ns/net")?.ino();
    let is_own = |record: &&Value| netns_of(record) == Some(own);
    let mut dying = ended
        .records
        .iter()
        .filter(|it| is_event(it, "netns-dying"));
    ensure!(
        !dying.any(|it| is_own(&it)),
        "the host's namespace is dying"
    );
    host.cell(&Cell {
        signal: "tracer",
        mechanism,
        verdict: Verdict::Ok,
        detail: String::new(),
        seconds: begin.elapsed().as_secs_f32(),
    });
    Ok(())
}

/// `trace`, when it watches.
pub(super) fn start(mechanism: &str, args: &[&str]) -> anyhow::Result<Tracer> {
    let mut command = command(&["trace", "-o", "json", "--cri", "none"])?;
    command.args(args);
    command.args(["--limit", mechanism, "--stall-threshold", "1s"]);
    let mut tracer = Tracer::start(&mut command, |_| ())?;
    // Loading takes long where everything is emulated.
    let ready = tracer.wait_for("a coverage record", Duration::from_secs(90), |record| {
        record["type"] == "coverage"
    });
    // One that hangs hangs somewhere.
    let pid = tracer.pid();
    ready.with_context(|| {
        format!(
            "it is in {}: {:?}",
            process::wchan(pid),
            process::stack(pid)
        )
    })?;
    Ok(tracer)
}

/// `check`: ends well and says how each signal is heard.
fn check(host: &mut Host, mechanism: &str) -> anyhow::Result<Coverage> {
    let args = ["check", "-o", "json", "--pods", "none", "--cri", "none"];
    let output = command(&[&args[..], &["--limit", mechanism]].concat())?
        .env("NODE_TRACER_LOG", "info")
        .output()
        .context("check")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let record = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .find(|record| record["type"] == "coverage");
    let record = record.with_context(|| format!("check: {}: {stderr}", output.status))?;
    host.note(&format!("check --limit {mechanism}"), &record.to_string());
    if !stderr.trim().is_empty() {
        let title = format!("check --limit {mechanism}: stderr");
        host.note(&title, &stderr);
    }
    ensure!(
        output.status.code().is_some_and(|code| code < 2),
        "check: {}: {stderr}",
        output.status
    );
    Ok(Coverage::of(&record))
}
