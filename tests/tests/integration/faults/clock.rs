//! A clock that is set while a trace is recorded.

use node_tracer_tests::stage::IP;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::tracer::{SOON, Tracer, command, is_finding, names_address};
use node_tracer_tests::wait;
use serde_json::Value;

const ADDRESS: &str = "198.18.246.2";
/// Any four years that follow each other, for as long as this is used.
const FOUR_YEARS_MS: i64 = 1_461 * 86_400_000;

/// What is found in a recording; times and all, but for the year.
fn replayed(path: &Path, year: &str, later: &str) -> anyhow::Result<Vec<String>> {
    let output = command(&["replay", "-o", "json"])?.arg(path).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(matches!(output.status.code(), Some(0 | 1 | 3)), "{stderr}");
    let text = String::from_utf8_lossy(&output.stdout).replace(later, year);
    let mut told = Vec::new();
    for line in text.lines() {
        let record: Value = serde_json::from_str(line)?;
        if matches!(record["type"].as_str(), Some("finding" | "summary")) {
            let mut record = record;
            // The step itself is one more.
            record["events_seen"] = Value::Null;
            told.push(record.to_string());
        }
    }
    Ok(told)
}

test!(
    &[Need::Root, Need::Tracer, IP],
    faults_clock_step_in_a_recording_changes_no_verdict
);
/// As the tracer writes it: from the step on, all times are the new clock's.
fn faults_clock_step_in_a_recording_changes_no_verdict() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("run.jsonl");
    let mut tracer = Tracer::trace(&["--record", &path.display().to_string()])?;
    let pair = [Netns::create()?, Netns::create()?];
    for netns in &pair {
        netns.ip("link add eth0 type veth peer name eth1")?;
        netns.ip(&format!("addr add {ADDRESS}/24 dev eth0"))?;
    }
    let mut wait_for = |state: &str| {
        tracer.wait_for(&format!("a finding: {state}"), SOON, |record| {
            is_finding(record, "duplicate-address")
                && names_address(record, ADDRESS)
                && record["state"] == state
        })
    };
    wait_for("open")?;
    wait::pause(std::time::Duration::from_millis(300))?;
    let middle = fs::read_to_string(&path)?.lines().count();
    drop(pair);
    wait_for("resolved")?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);

    let text = fs::read_to_string(&path)?;
    let lines: Vec<&str> = text.lines().collect();
    let time = |line: &str| -> anyhow::Result<String> {
        let value: Value = serde_json::from_str(line)?;
        Ok(value["time"].as_str().context("no time")?.to_owned())
    };
    let at = (middle..lines.len())
        .find(|at| time(lines[*at]).is_ok())
        .context("nothing came after")?;
    let at_time = time(lines[at])?;
    let year = at_time[..4].to_owned();
    let later = (year.parse::<u32>()? + 4).to_string();
    let (year, later) = (format!("\"{year}-"), format!("\"{later}-"));
    let steps = [
        (FOUR_YEARS_MS, false, "forward"),
        (-FOUR_YEARS_MS, false, "back"),
        // The machine was suspended, and what is monotonic stood still.
        (FOUR_YEARS_MS, true, "suspended"),
    ];
    for (by_ms, suspended, name) in steps {
        let (first, second) = match by_ms > 0 {
            true => (&year, &later),
            false => (&later, &year),
        };
        let shift = |line: &&str, to: &String| line.replace(&year, to) + "\n";
        let mut stepped: String = lines[..at].iter().map(|line| shift(line, first)).collect();
        let step = format!(
            r#"{{"time":"{at_time}","event":"clock-stepped","by_ms":{by_ms},"suspended":{suspended}}}"#
        );
        stepped += &shift(&step.as_str(), second);
        stepped.extend(lines[at..].iter().map(|line| shift(line, second)));
        let other = folder.path().join(name);
        fs::write(&other, stepped)?;
        let (told, expected) = (
            replayed(&other, &year, &later)?,
            replayed(&path, &year, &later)?,
        );
        ensure!(!expected.is_empty(), "nothing was found");
        ensure!(told == expected, "{name}: {told:#?}\nnot {expected:#?}");
    }
    Ok(())
}
