//! Signals at a bad moment.

use node_tracer_tests::test;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::calls::Calls;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::tracer::Tracer;
use node_tracer_tests::wait;
use serde_json::Value;

use super::piped::Piped;
use super::{recorded, whole_lines};

/// What was printed and what was recorded by a tracer that got a signal while
/// events came as fast as they can.
fn struck(signal: i32) -> anyhow::Result<(String, String)> {
    let folder = Scratch::create()?;
    let recording = folder.path().join("run.jsonl");
    let named = recording.display().to_string();
    let mut tracer = Piped::start(&["--record", &named], Some(folder.path()))?;
    let reading = tracer.read()?;
    let (calls, stop) = (Calls::create()?, AtomicBool::new(false));
    let took = std::thread::scope(|scope| {
        let burst = scope.spawn(|| calls.make_until(&stop));
        let took = wait::pause(Duration::from_secs(2)).and_then(|()| {
            tracer.signal(signal);
            Ok(tracer.end()?.1)
        });
        stop.store(true, Ordering::Relaxed);
        let made = burst.join().map_err(|_| anyhow::anyhow!("panicked"))?;
        match made {
            Ok(_) => took,
            Err(error) => Err(error),
        }
    })?;
    println!("        ended {} ms after the signal", took.as_millis());
    ensure!(took < Duration::from_secs(10), "{took:?}");
    let printed = reading.join().map_err(|_| anyhow::anyhow!("panicked"))?;
    Ok((printed, fs::read_to_string(&recording)?))
}

test!(
    super::NEEDS,
    faults_sigterm_in_a_burst_leaves_nothing_half_written
);
fn faults_sigterm_in_a_burst_leaves_nothing_half_written() -> anyhow::Result<()> {
    let (printed, recording) = struck(libc::SIGTERM)?;
    let (printed, lines) = (whole_lines(&printed)?, whole_lines(&recording)?);
    let last = printed.last().context("nothing printed")?;
    ensure!(last["type"] == "summary", "the last line: {last}");
    let last = lines.last().context("nothing recorded")?;
    ensure!(last["type"] == "ended", "the last line recorded: {last}");
    let events = printed.iter().filter(|line| line["type"] == "event");
    let (events, all) = (events.count(), recorded(&lines).count());
    println!("        {all} events in the burst");
    let slow = printed
        .last()
        .and_then(|line| line["events_lost"]["output-slow"].as_u64());
    ensure!(
        all > 200 && events as u64 + slow.unwrap_or(0) == all as u64,
        "{all} recorded, {events} printed, {slow:?} lost"
    );
    Ok(())
}

/// All lines but the last, which may be torn.
pub(super) fn but_the_last(text: &str) -> anyhow::Result<Vec<Value>> {
    let end = text.rfind('\n').map_or(0, |end| end + 1);
    whole_lines(&text[..end])
}

test!(
    super::NEEDS,
    faults_sigkill_in_a_burst_tears_the_last_line_at_most
);
fn faults_sigkill_in_a_burst_tears_the_last_line_at_most() -> anyhow::Result<()> {
    let (printed, recording) = struck(libc::SIGKILL)?;
    let (printed, lines) = (but_the_last(&printed)?, but_the_last(&recording)?);
    ensure!(printed.len() > 100 && lines.len() > 100);
    let last = lines.last().context("nothing recorded")?;
    ensure!(last["type"] != "ended", "it says that it is complete");
    Ok(())
}

test!(
    super::NEEDS,
    faults_hangup_ends_the_stream_but_not_under_nohup
);
fn faults_hangup_ends_the_stream_but_not_under_nohup() -> anyhow::Result<()> {
    let tracer = Tracer::trace(&[])?;
    tracer.signal(libc::SIGHUP);
    let ended = tracer.wait_for_end(Duration::from_secs(10))?;
    let last = ended.records.last().context("nothing")?;
    ensure!(ended.code == Some(0) && last["type"] == "summary", "{last}");

    let mut command = std::process::Command::new("nohup");
    command
        .arg(node_tracer_tests::tracer::binary()?)
        .args(["trace", "-o", "json", "--cri", "none", "--pods", "none"]);
    let mut tracer = Tracer::start(&mut command, |_| ())?;
    tracer.wait_until_ready()?;
    tracer.signal(libc::SIGHUP);
    wait::pause(Duration::from_secs(1))?;
    let netns = Netns::create()?;
    let inode = netns.inode();
    tracer.wait_for("an event after SIGHUP", Duration::from_secs(10), |record| {
        node_tracer_tests::tracer::netns_of(record) == Some(inode)
    })?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}", ended.code);
    Ok(())
}
