//! A tracer that does not run for a while: stopped, or on a machine that is
//! overloaded or suspended.

use node_tracer_tests::test;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::netns::Netns;
use node_tracer_tests::stuck::Stuck;
use node_tracer_tests::tracer::{SOON, Tracer, is_event, is_finding, netns_of};
use node_tracer_tests::wait;
use serde_json::Value;

const TASKS: u32 = 20;
/// The kernel counts the sleep, and the test when it had it begin and end.
const SLACK: Duration = Duration::from_millis(500);

test!(
    super::FROZEN,
    faults_tracer_stopped_in_its_tracks_tells_the_true_times
);
/// What happens meanwhile is told afterwards, with the times at which it
/// happened; what began and ended meanwhile is no finding that stays.
fn faults_tracer_stopped_in_its_tracks_tells_the_true_times() -> anyhow::Result<()> {
    let mut tasks = Stuck::start(TASKS)?;
    let mut tracer = Tracer::trace(&["--stall-threshold", "1s"])?;
    tracer.signal(libc::SIGSTOP);
    let stopped = (|| {
        tasks.freeze_all()?;
        let begin = Instant::now();
        wait::pause(Duration::from_secs(3))?;
        tasks.thaw()?;
        let slept = begin.elapsed();
        let netns = Netns::create()?;
        anyhow::Ok((slept, netns.inode()))
    })();
    tracer.signal(libc::SIGCONT);
    let (slept, inode) = stopped?;
    tracer.wait_for("the namespace", SOON, |record| {
        is_event(record, "netns-destroyed") && netns_of(record) == Some(inode)
    })?;
    let is_ours = |record: &Value| {
        let pid = record["task"]["pid"].as_u64().unwrap_or(0);
        tasks.pids().contains(&(pid as u32))
    };
    let over = |record: &Value| is_event(record, "task-unblocked") && is_ours(record);
    wait::until("the end of each stall", SOON, || {
        Ok((tracer.count(over) >= TASKS as usize).then_some(()))
    })?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    for record in ended.records.iter().filter(|record| over(record)) {
        let lasted = record["duration_ms"].as_u64().context("no duration")?;
        let lasted = Duration::from_millis(lasted);
        // Each began to write a moment before or after.
        ensure!(
            lasted + SLACK >= slept && lasted < slept + SOON,
            "it slept {slept:?}: {record}"
        );
    }
    let last = ended.records.last().context("no summary")?;
    let lost = last["events_lost"]
        .as_object()
        .is_some_and(|by| !by.is_empty());
    ensure!(!lost, "{last}");
    let stays = ended.records.iter().find(|record| {
        let pid = record["holders"][0]["pid"].as_u64().unwrap_or(0);
        is_finding(record, "blocked-task") && tasks.pids().contains(&(pid as u32))
    });
    ensure!(stays.is_none(), "nobody is stuck: {:#}", stays.context("")?);
    Ok(())
}
