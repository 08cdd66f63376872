//! A thousand tasks that get stuck, and go on, at the same time.

use node_tracer_tests::test;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::stuck::Stuck;
use node_tracer_tests::tracer::{Ended, Tracer, is_event, is_finding};
use node_tracer_tests::wait;
use serde_json::Value;

const COUNT: u32 = 1_000;
/// For the records of all of them, on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(60);

/// How often each record of the tasks was written.
fn told(records: &[Value], pids: &[u32]) -> BTreeMap<String, u32> {
    let mut told = BTreeMap::new();
    for record in records {
        let tasks = record["task"]["pid"].as_u64().into_iter();
        let holders = record["holders"].as_array().into_iter().flatten();
        let all = tasks.chain(holders.filter_map(|holder| holder["pid"].as_u64()));
        if !all.into_iter().any(|pid| pids.contains(&(pid as u32))) {
            continue;
        }
        let (name, state) = match record["type"] == "event" {
            true => (&record["event"], ""),
            false => (&record["rule"], record["state"].as_str().unwrap_or("")),
        };
        let name = format!("{} {state}", name.as_str().unwrap_or(""));
        *told.entry(name.trim().to_owned()).or_default() += 1;
    }
    told
}

fn well(ended: &Ended) -> anyhow::Result<()> {
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    let last = ended.records.last().context("no summary")?;
    let none = last["events_lost"]
        .as_object()
        .is_some_and(|by| by.is_empty());
    ensure!(none, "something was lost: {last}");
    Ok(())
}

fn wait_for_all(
    tracer: &Tracer,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> anyhow::Result<()> {
    wait::until(what, LIMIT, || {
        // They are some MB: not looked through again and again.
        wait::pause(Duration::from_millis(200))?;
        let count = tracer.count(&wanted);
        Ok((count >= COUNT as usize).then_some(()))
    })
}

test!(
    super::FROZEN,
    faults_thousand_tasks_stuck_at_once_are_told_once_each
);
/// Each of them is told once when it has slept past the threshold, and once
/// when it goes on; so is each finding.
fn faults_thousand_tasks_stuck_at_once_are_told_once_each() -> anyhow::Result<()> {
    let mut tasks = Stuck::start(COUNT)?;
    let tracer = Tracer::trace(&["--stall-threshold", "2s"])?;
    tasks.freeze_all()?;
    let state = |wanted: &'static str| {
        move |record: &Value| is_finding(record, "blocked-task") && record["state"] == wanted
    };
    wait_for_all(&tracer, "1,000 findings", state("open"))?;
    tasks.thaw()?;
    wait_for_all(&tracer, "1,000 ends", state("resolved"))?;
    let pids = tasks.pids().to_vec();
    drop(tasks);
    let ended = tracer.stop()?;
    well(&ended)?;
    let told = told(&ended.records, &pids);
    let expected = [
        "blocked-task open",
        "blocked-task resolved",
        "task-blocked",
        "task-unblocked",
    ];
    let expected: BTreeMap<String, u32> = expected.map(|name| (name.to_owned(), COUNT)).into();
    ensure!(told == expected, "{told:?}");
    let stackless = ended.records.iter().filter(|record| {
        is_event(record, "task-blocked")
            && !record["stack"].to_string().contains("percpu_rwsem_wait")
    });
    let stackless = stackless.count();
    ensure!(stackless == 0, "{stackless} without their stack");
    Ok(())
}

test!(super::FROZEN, faults_thousand_tasks_that_flap_are_not_stuck);
/// Who sleeps again and again, each time shorter than the threshold, is not
/// stuck, however many they are.
fn faults_thousand_tasks_that_flap_are_not_stuck() -> anyhow::Result<()> {
    let mut tasks = Stuck::start(COUNT)?;
    // Far more than a turn takes on a machine that does much else.
    let tracer = Tracer::trace(&["--stall-threshold", "10s"])?;
    let pids = tasks.pids().to_vec();
    tasks.flap_for(Duration::from_millis(100), Duration::from_secs(12))?;
    let slept = tasks.stop()?;
    println!("        {slept} sleeps");
    ensure!(slept > u64::from(COUNT), "{slept} sleeps");
    let ended = tracer.stop()?;
    well(&ended)?;
    let told = told(&ended.records, &pids);
    ensure!(told.is_empty(), "{told:?}");
    Ok(())
}
