//! A task in uninterruptible sleep.

mod not_stuck;
mod table;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::frozen::FrozenFs;
use node_tracer_tests::hangfs::HangFs;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::process::PodProcess;
use node_tracer_tests::snapshot_run::on_host;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, is_event, is_finding, netns_of};
use serde_json::Value;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Tracer];

const FROZEN: &[Need] = &[Need::Root, Need::StaticBusybox, Need::Loop, Need::Tracer];

/// Whether a record is about this task: an event, or a finding that holds it.
fn is_about(record: &Value, pid: u32) -> bool {
    let holds = |holder: &Value| holder["pid"] == pid;
    record["task"]["pid"] == pid
        || record["holders"]
            .as_array()
            .is_some_and(|all| all.iter().any(holds))
}

fn is_blocked(record: &Value, pid: u32, open: bool) -> bool {
    is_finding(record, "blocked-task")
        && is_about(record, pid)
        && (record["state"] != "resolved") == open
}

/// Function names anywhere in the record's stacks.
fn waits_for_fuse(finding: &Value) -> bool {
    let stacks = finding["holders"].as_array().into_iter().flatten();
    stacks
        .filter_map(|holder| holder["stack"].as_array())
        .flatten()
        .any(|frame| frame.to_string().contains("request_wait_answer"))
}

/// Checks the finding on this reader, then its end.
fn check(mut tracer: Tracer, reader: &mut PodProcess, mut volume: HangFs) -> anyhow::Result<()> {
    let pid = reader.pid();
    let open = tracer.wait_for("a blocked-task finding", SOON, |record| {
        is_blocked(record, pid, true)
    })?;
    ensure!(waits_for_fuse(&open), "no FUSE wait in its stack: {open}");
    let task = open["holders"][0].clone();
    ensure!(
        task["comm"] == "reader" && task["state"] == "D",
        "its holder: {task}"
    );

    volume.release();
    reader.wait_for_end(Duration::from_secs(10))?;
    tracer.wait_for("task-unblocked", SOON, |record| {
        is_event(record, "task-unblocked") && is_about(record, pid)
    })?;
    let resolved = tracer.wait_for("the finding to be resolved", SOON, |record| {
        is_blocked(record, pid, false)
    })?;
    ensure!(resolved["id"] == open["id"], "another finding: {resolved}");
    Ok(())
}

test!(NEEDS, stall_is_reported_with_its_stack);
fn stall_is_reported_with_its_stack() -> anyhow::Result<()> {
    let mut tracer = Tracer::trace(&["--stall-threshold", "1s"])?;
    let mut volume = HangFs::mount()?;
    let netns = Netns::create()?;
    let mut reader = PodProcess::reader("reader", &netns, None, &mut volume)?;
    reader.kill_into_d()?;
    let blocked_at = Instant::now();
    let pid = reader.pid();
    let event = tracer.wait_for("task-blocked", SOON, |record| {
        is_event(record, "task-blocked") && is_about(record, pid)
    })?;
    ensure!(
        netns_of(&event).is_none_or(|inode| inode == netns.inode()),
        "its netns: {event}"
    );
    let (at, _) = tracer.wait_with_time("a blocked-task finding", SOON, |record| {
        is_blocked(record, pid, true)
    })?;
    println!(
        "        reported {:.2} s after it blocked (threshold 1 s)",
        (at - blocked_at).as_secs_f32()
    );
    check(tracer, &mut reader, volume)
}

/// Whether a record's evidence, or what it does not know, says so.
fn says(record: &Value, part: &str, words: &str) -> bool {
    let all = record[part].as_array().into_iter().flatten();
    all.into_iter().any(|it| it.to_string().contains(words))
}

test!(NEEDS, stall_tells_what_a_sigkill_does);
/// Who was killed into its sleep is told so, by eBPF and without.
fn stall_tells_what_a_sigkill_does() -> anyhow::Result<()> {
    let mut volume = HangFs::mount()?;
    let netns = Netns::create()?;
    let mut reader = PodProcess::reader("reader", &netns, None, &mut volume)?;
    reader.kill_into_d()?;
    let pid = reader.pid();
    let mut tracer = Tracer::trace(&["--stall-threshold", "1s"])?;
    let traced = tracer.wait_for("a blocked-task finding", SOON, |record| {
        is_blocked(record, pid, true)
    })?;
    let look = on_host("scan", &["--stall-threshold", "1s"])?;
    let scanned = look.ended.records.into_iter();
    let scanned = scanned.filter(|record| is_blocked(record, pid, true));
    let scanned: Vec<Value> = scanned.collect();
    ensure!(scanned.len() == 1, "the scan's: {scanned:?}");
    for finding in scanned.iter().chain([&traced]) {
        ensure!(says(finding, "evidence", "SIGKILL is pending"), "{finding}");
        ensure!(!says(finding, "unknown", "SIGKILL"), "{finding}");
        // The kernel says since when it sleeps, though nobody looked then.
        ensure!(finding["holders"][0]["first_seen"].is_null(), "{finding}");
    }
    volume.release();
    Ok(())
}

test!(FROZEN, stall_on_a_frozen_file_system_is_one_from_the_start);
/// Nobody has killed it yet.
fn stall_on_a_frozen_file_system_is_one_from_the_start() -> anyhow::Result<()> {
    let mut tracer = Tracer::trace(&["--stall-threshold", "1s"])?;
    let mut disk = FrozenFs::mount()?;
    let netns = Netns::create()?;
    let mut writer = PodProcess::writer("writer", &netns, None, &disk.file())?;
    disk.freeze()?;
    writer.write_into_d()?;
    let pid = writer.pid();
    let finding = tracer.wait_for("a blocked-task finding", SOON, |record| {
        is_blocked(record, pid, true)
    })?;
    ensure!(
        finding.to_string().contains("percpu_rwsem_wait"),
        "its stack: {finding}"
    );
    disk.thaw()?;
    writer.wait_for_end(Duration::from_secs(10))?;
    tracer.wait_for("the finding to be resolved", SOON, |record| {
        is_blocked(record, pid, false)
    })?;
    Ok(())
}

test!(NEEDS, stall_from_before_the_start_is_found);
fn stall_from_before_the_start_is_found() -> anyhow::Result<()> {
    let mut volume = HangFs::mount()?;
    let netns = Netns::create()?;
    let mut reader = PodProcess::reader("reader", &netns, None, &mut volume)?;
    reader.kill_into_d()?;
    let tracer = Tracer::trace(&["--stall-threshold", "1s"])?;
    check(tracer, &mut reader, volume)
}

test!(NEEDS, stall_shorter_than_the_threshold_is_none);
fn stall_shorter_than_the_threshold_is_none() -> anyhow::Result<()> {
    let tracer = Tracer::trace(&["--stall-threshold", "60s"])?;
    let mut volume = HangFs::mount()?;
    let netns = Netns::create()?;
    let mut reader = PodProcess::reader("reader", &netns, None, &mut volume)?;
    reader.kill_into_d()?;
    let pid = reader.pid();
    volume.release();
    reader.wait_for_end(Duration::from_secs(10))?;
    let ended = tracer.stop()?;
    let wrong = ended
        .records
        .iter()
        .find(|record| is_blocked(record, pid, true));
    ensure!(wrong.is_none(), "a false alarm: {}", wrong.context("none")?);
    Ok(())
}
