//! How `trace` begins and ends.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use node_tracer_tests::tracer::{Ended, SOON, Tracer, command};
use node_tracer_tests::wait;

const NEEDS: &[Need] = &[Need::Root, Need::Tracer];

/// Exit code 0, coverage first, summary last, nothing but records on stdout.
fn ended_well(ended: &Ended) -> anyhow::Result<()> {
    ensure!(
        ended.code == Some(0),
        "{:?} {:?}: {}",
        ended.code,
        ended.signal,
        ended.stderr
    );
    let first = ended.records.first().context("no record")?;
    ensure!(first["type"] == "coverage", "the first record is {first}");
    let last = ended.records.last().context("no record")?;
    ensure!(last["type"] == "summary", "the last record is {last}");
    let summaries = ended
        .records
        .iter()
        .filter(|record| record["type"] == "summary")
        .count();
    ensure!(summaries == 1, "{summaries} summaries");
    ensure!(ended.text.is_empty(), "no JSON on stdout: {:?}", ended.text);
    Ok(())
}

test!(NEEDS, sigint_ends_with_a_summary);
fn sigint_ends_with_a_summary() -> anyhow::Result<()> {
    ended_well(&Tracer::trace(&[])?.stop()?)
}

test!(NEEDS, sigterm_ends_with_a_summary);
fn sigterm_ends_with_a_summary() -> anyhow::Result<()> {
    let tracer = Tracer::trace(&[])?;
    tracer.signal(libc::SIGTERM);
    ended_well(&tracer.wait_for_end(SOON)?)
}

test!(NEEDS, duration_ends_with_a_summary);
fn duration_ends_with_a_summary() -> anyhow::Result<()> {
    let start = Instant::now();
    ended_well(&Tracer::trace(&["--duration", "2s"])?.wait_for_end(SOON)?)?;
    ensure!(
        start.elapsed() >= Duration::from_secs(2),
        "after {:?}",
        start.elapsed()
    );
    Ok(())
}

fn make_a_netns() -> anyhow::Result<()> {
    ensure!(
        Command::new("unshare")
            .args(["-n", "true"])
            .status()?
            .success(),
        "unshare"
    );
    Ok(())
}

test!(NEEDS, every_record_has_the_common_keys);
fn every_record_has_the_common_keys() -> anyhow::Result<()> {
    let tracer = Tracer::trace(&["--duration", "2s"])?;
    make_a_netns()?;
    let ended = tracer.wait_for_end(SOON)?;
    for record in &ended.records {
        ensure!(record["schema"] == "node-tracer/1", "schema: {record}");
        ensure!(
            record["node"].as_str().is_some_and(|node| !node.is_empty()),
            "node: {record}"
        );
        let time = record["time"].as_str().unwrap_or_default();
        let fraction = time
            .split_once('.')
            .and_then(|(_, rest)| rest.strip_suffix('Z'));
        ensure!(
            fraction.is_some_and(|digits| digits.len() >= 6),
            "time: {record}"
        );
    }
    Ok(())
}

test!(
    &[
        Need::Root,
        Need::Tracer,
        Need::Program("unshare", "util-linux"),
    ],
    closed_output_pipe_ends_quietly
);
/// `node-tracer trace | head -1`: an end like any other, so exit code 0.
fn closed_output_pipe_ends_quietly() -> anyhow::Result<()> {
    let mut child = command(&["trace", "-o", "json", "--cri", "none", "--pods", "none"])?
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().context("no pipe")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    ensure!(line.contains("\"coverage\""), "the first record is {line}");
    // The pipe is closed now. It notices when it next has something to say.
    let status = wait::until("the tracer to end", SOON, || {
        make_a_netns()?;
        child.try_wait().context("wait for the tracer")
    });
    if status.is_err() {
        child.kill()?;
    }
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(status?.code() == Some(0), "{}: {stderr}", output.status);
    ensure!(!stderr.contains("panicked"), "{stderr}");
    Ok(())
}
