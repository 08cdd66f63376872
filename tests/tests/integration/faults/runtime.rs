//! A container runtime that comes, goes and hangs.

use node_tracer_tests::snapshot_run::NODE;
use node_tracer_tests::test;
use std::fs;
use std::time::Duration;

use anyhow::ensure;
use node_tracer_tests::containerd::{Containerd, SOCKET};
use node_tracer_tests::tracer::{Tracer, is_event};
use serde_json::Value;

/// A question every ten seconds, an answer within five, and what a loaded
/// machine adds.
const SOON: Duration = Duration::from_secs(40);

/// The same, after the half minute for which a socket must be gone.
const MOVED: Duration = Duration::from_secs(90);

/// The runtime's other place.
const ELSEWHERE: &str = "/run/crio/crio.sock";

fn is_told(record: &Value, event: &str) -> bool {
    is_event(record, event) && record["source"] == "cri"
}

fn wait_for_list(tracer: &mut Tracer, socket: &str, within: Duration) -> anyhow::Result<()> {
    let endpoint = format!("unix://{socket}");
    tracer.wait_for(&format!("a list from {socket}"), within, |record| {
        is_told(record, "sandboxes-listed") && record["endpoint"] == endpoint.as_str()
    })?;
    Ok(())
}

test!(NODE, faults_runtime_that_comes_later_or_moves_is_found);
/// A tracer that was there before the runtime; then the runtime moves.
fn faults_runtime_that_comes_later_or_moves_is_found() -> anyhow::Result<()> {
    let node = Containerd::start()?;
    let (usual, hidden) = (node.host_path(SOCKET), node.host_path("/run/not-yet"));
    let elsewhere = node.host_path(ELSEWHERE);
    fs::rename(&usual, &hidden)?;
    let mut tracer = node.trace(&["--pods", "none"])?;
    let coverage = tracer.wait_for("coverage", SOON, |record| record["type"] == "coverage")?;
    let signals = coverage["signals"].as_array().into_iter().flatten();
    let mut cri = signals.filter(|item| item["signal"] == "cri");
    let missing = cri.next().is_some_and(|item| item["mechanism"].is_null());
    ensure!(missing, "cri is missing: {coverage}");

    fs::rename(&hidden, &usual)?;
    wait_for_list(&mut tracer, SOCKET, SOON)?;
    if let Some(folder) = elsewhere.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::rename(&usual, &elsewhere)?;
    wait_for_list(&mut tracer, ELSEWHERE, MOVED)?;
    let ended = tracer.stop();
    fs::rename(&elsewhere, &usual)?;
    let ended = ended?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    Ok(())
}

test!(NODE, faults_runtime_that_hangs_is_told_and_asked_again);
fn faults_runtime_that_hangs_is_told_and_asked_again() -> anyhow::Result<()> {
    let node = Containerd::start()?;
    let mut tracer = node.trace(&["--pods", "none"])?;
    wait_for_list(&mut tracer, SOCKET, SOON)?;
    node.freeze()?;
    let told = tracer.wait_for("the failure", SOON, |record| {
        is_told(record, "source-failed")
    });
    node.thaw()?;
    let told = told?;
    let error = told["error"].as_str().unwrap_or_default();
    ensure!(error.contains("hangs") && error.contains(SOCKET), "{told}");
    tracer.wait_for("its end", SOON, |record| {
        is_told(record, "source-recovered")
    })?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    Ok(())
}
