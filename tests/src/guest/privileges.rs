//! The tracer with one thing taken away at a time: what `check` says of it,
//! and that `trace` does exactly that.
//!
//! What is there without anything taken away is the measure: `check` by full
//! root, once for each limit. Each case then says what is different from that,
//! and the events of every mechanism that is claimed must come.

mod cases;
mod sysctl;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use self::cases::{Case, Expected};
use self::sysctl::Sysctls;
use super::coverage::SIGNALS;
use super::matrix::{SignalResult, Stage};
use super::report::{self, Host, Verdict};
use super::{address, netns, plugin, task};
use crate::rights::{self, Rights};
use crate::stage;
use crate::tracer::{Tracer, command, is_event};

/// Runs the cases in whose names is one of `wanted`; all, if none is named.
pub(super) fn run(wanted: &[String]) -> ExitCode {
    let has =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let Ok(mut host) = Host::open() else {
        return ExitCode::FAILURE;
    };
    let mut measures = BTreeMap::new();
    for case in cases::of_this_boot() {
        if !has(case.name) {
            continue;
        }
        let begin = Instant::now();
        let (verdict, detail) = match cases::not_locked_down() {
            Some(why) => (Verdict::Skipped, why),
            None => match one(&mut host, &case, &mut measures)
                .and_then(|detail| stage::nothing_left().map(|()| detail))
            {
                Ok(detail) => (Verdict::Ok, detail),
                Err(error) => (Verdict::Failed, format!("{error:#}")),
            },
        };
        host.case(&report::Case {
            suite: "privileges",
            name: case.name,
            verdict,
            detail,
            seconds: begin.elapsed().as_secs_f32(),
        });
    }
    ExitCode::SUCCESS
}

/// What the tracer says that it sees.
#[derive(Clone, Debug)]
struct Coverage(Vec<Value>);

impl Coverage {
    fn of(record: &Value) -> anyhow::Result<Self> {
        let signals = record["signals"].as_array().context("no signals")?;
        Ok(Self(signals.clone()))
    }

    fn item(&self, signal: &str) -> &Value {
        let mut items = self.0.iter();
        items
            .find(|item| item["signal"] == signal)
            .unwrap_or(&Value::Null)
    }

    /// Empty if there is none.
    fn mechanism(&self, signal: &str) -> &str {
        self.item(signal)["mechanism"].as_str().unwrap_or_default()
    }

    fn reason(&self, signal: &str) -> &str {
        self.item(signal)["reason"].as_str().unwrap_or_default()
    }
}

/// Runs one case; what is worth saying of it.
fn one(
    host: &mut Host,
    case: &Case,
    measures: &mut BTreeMap<&'static str, Coverage>,
) -> anyhow::Result<String> {
    if !measures.contains_key(case.limit) {
        let whole = check(host, &Rights::default(), case.limit)?;
        measures.insert(case.limit, whole);
    }
    let measure = &measures[case.limit];
    let _sysctls = Sysctls::set(case.sysctls)?;
    let rights = case.rights();
    if case.expected == Expected::Refused {
        return refused(&rights);
    }
    let coverage = check(host, &rights, case.limit)?;
    expect(case, &coverage, measure)?;
    trace(host, case, &rights, &coverage)?;
    let said = coverage.item("privileges")["reason"].as_str();
    Ok(format!(
        "{}{}{}",
        coverage.mechanism("netns-created"),
        if said.is_some() { "; " } else { "" },
        said.unwrap_or_default()
    ))
}

/// The tracer's command line with these rights.
fn tracer(subcommand: &str, rights: &Rights, limit: &str) -> anyhow::Result<std::process::Command> {
    let args = [
        subcommand, "-o", "json", "--pods", "none", "--cri", "none", "--limit", limit,
    ];
    let mut command = command(&args)?;
    rights.limit(&mut command)?;
    Ok(command)
}

/// Who can see nothing is told so.
fn refused(rights: &Rights) -> anyhow::Result<String> {
    for subcommand in ["trace", "scan", "check"] {
        let args = [subcommand, "--pods", "none", "--cri", "none"];
        let mut command = command(&args)?;
        rights.limit(&mut command)?;
        let output = command.output().context(subcommand)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(2) && stderr.contains("needs root"),
            "{subcommand}: {}: {stderr}",
            output.status
        );
    }
    Ok(String::from("exit code 2, and what to do"))
}

fn check(host: &mut Host, rights: &Rights, limit: &str) -> anyhow::Result<Coverage> {
    host.alive();
    let output = tracer("check", rights, limit)?.output().context("check")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let record = lines
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .find(|record| record["type"] == "coverage")
        .with_context(|| format!("check: {}: {stderr}", output.status))?;
    host.note("check", &format!("{rights:?} {limit}: {record}\n{stderr}"));
    let coverage = Coverage::of(&record)?;
    // What the README says of check's exit code.
    let whole = SIGNALS
        .iter()
        .all(|signal| !coverage.mechanism(signal).is_empty());
    let code = i32::from(!whole);
    ensure!(
        output.status.code() == Some(code),
        "check: {}, not {code}: {stderr}",
        output.status
    );
    Ok(coverage)
}

/// Compares what is said with what must be.
fn expect(case: &Case, coverage: &Coverage, measure: &Coverage) -> anyhow::Result<()> {
    for signal in SIGNALS {
        let item = coverage.item(signal);
        let (mechanism, why) = match case.expected {
            Expected::Same => (measure.mechanism(signal), ""),
            Expected::SameBut(others) => others
                .iter()
                .find(|(other, ..)| *other == signal)
                .map_or((measure.mechanism(signal), ""), |(_, mechanism, why)| {
                    (*mechanism, *why)
                }),
            Expected::Compared { why, addresses } => match signal {
                "cni-call" | "cni-result" | "oom-kill" => ("", why),
                "address" if !addresses => ("", "CAP_SYS_ADMIN"),
                _ => ("comparison", why),
            },
            Expected::Hidden => hidden(signal, measure),
            Expected::Refused => ("", ""),
        };
        ensure!(
            coverage.mechanism(signal) == mechanism,
            "{signal}: not {mechanism:?}: {item}"
        );
        ensure!(
            coverage.reason(signal).contains(why),
            "{signal}: the reason does not say {why:?}: {item}"
        );
        // Who sees less says what is unknown.
        let less = mechanism != measure.mechanism(signal);
        let unknown = item["unknown"].as_array().map_or(0, Vec::len);
        ensure!(!less || unknown > 0, "{signal}: nothing unknown: {item}");
    }
    let said = coverage.reason("privileges");
    let mut expected: Vec<&str> = case.missing.iter().map(|(_, name)| *name).collect();
    expected.sort_unstable();
    let names = said.trim_start_matches("no ").split(", ");
    let mut names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    ensure!(names == expected, "missing: {expected:?}, said: {said:?}");
    let unknown = coverage.item("privileges")["unknown"].as_array();
    ensure!(
        names.is_empty() || unknown.is_some_and(|unknown| !unknown.is_empty()),
        "it is not said what that costs"
    );
    Ok(())
}

/// How a signal is heard where the addresses of functions are hidden.
fn hidden<'a>(signal: &str, measure: &'a Coverage) -> (&'a str, &'static str) {
    match (signal, measure.mechanism(signal)) {
        ("netns-dying" | "netns-destroyed", "tp_btf") => ("comparison", "cleanup_net is hidden"),
        ("address", "tp_btf") => ("iterator", "fib_inetaddr_event is hidden"),
        (_, same) => (same, ""),
    }
}

/// `trace` does what `check` has said.
fn trace(host: &mut Host, case: &Case, rights: &Rights, coverage: &Coverage) -> anyhow::Result<()> {
    let mut command = tracer("trace", rights, case.limit)?;
    command.args(["--stall-threshold", "1s"]);
    let mut tracer = Tracer::start(&mut command, |_| ())?;
    let first = tracer.wait_for("a coverage record", Duration::from_secs(90), |record| {
        record["type"] == "coverage"
    })?;
    let says = Coverage::of(&first)?;
    for signal in SIGNALS {
        ensure!(
            says.item(signal) == coverage.item(signal),
            "check says {}, trace {}",
            coverage.item(signal),
            says.item(signal)
        );
    }
    let pid = tracer.pid();
    let mut stage = Stage::over(tracer, host);
    let mut observed = netns::told_of_a_mount(&mut stage);
    let sees = |signal: &str| !coverage.mechanism(signal).is_empty();
    // Where nothing is different, the loading is what matters, and that what
    // was loaded is heard.
    let all = case.rung || case.expected != Expected::Same || case.hides_addresses();
    if all && sees("address") {
        observed.extend(address::observe(&mut stage));
    }
    let stack = case.shows_stacks(coverage.mechanism("task-blocked"));
    if all {
        observed.push(("task-blocked", task::stall(&mut stage, stack)));
    }
    if sees("cni-call") && case.may_look() {
        observed.extend(plugin::observe(&mut stage));
    } else if sees("cni-call") {
        observed.extend(plugin::told_without_trust(&mut stage));
    }
    let wrong = |(signal, observed): SignalResult| match observed {
        Err(error) if sees(signal) => Some(format!("{signal}: {error:#}")),
        Ok(()) if !sees(signal) => Some(format!("{signal} is told of, and check says it is not")),
        _ => None,
    };
    let wrong: Vec<String> = observed.into_iter().filter_map(wrong).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    // After all this there are the threads that there will ever be.
    rights::expect_no_more(pid, case.kept())?;
    let ended = stage.into_tracer().stop()?;
    let stderr = ended.stderr.trim();
    ensure!(
        ended.code == Some(0),
        "exit code {:?}, signal {:?}: {stderr}",
        ended.code,
        ended.signal
    );
    let mut records = ended.records.iter();
    if let Some(lost) = records.find(|record| is_event(record, "events-lost")) {
        anyhow::bail!("events were lost: {lost}; {stderr}");
    }
    Ok(())
}
