//! `trace --record`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, ensure};
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, is_event, netns_of};
use serde_json::Value;

use crate::command_line::{refused, run};

const NEEDS: &[Need] = &[Need::Root, Need::Tracer];

test!(NEEDS, record_writes_private_replayable_lines);
fn record_writes_private_replayable_lines() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("run.jsonl");
    let named = path.display().to_string();
    let mut tracer = Tracer::trace(&["--record", &named])?;
    let mut netns = Netns::create()?;
    let inode = netns.inode();
    netns.delete()?;
    tracer.wait_for("netns-destroyed", SOON, |record| {
        is_event(record, "netns-destroyed") && netns_of(record) == Some(inode)
    })?;
    let mode = fs::metadata(&path)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "mode {mode:o} while it is written");
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);

    let text = fs::read_to_string(&path)?;
    ensure!(text.ends_with('\n'), "the last line is whole");
    let mut lines = Vec::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        lines.push(value);
    }
    let (header, events) = lines.split_first().context("it is empty")?;
    ensure!(
        header["type"] == "recording" && header["schema"] == "node-tracer/1",
        "the first line: {header}"
    );
    for key in ["time", "node", "boot_id"] {
        let said = header[key].as_str().is_some_and(|value| !value.is_empty());
        ensure!(said, "{key}: {header}");
    }
    let is_note = |line: &&Value| line["type"].is_string();
    let notes: Vec<&Value> = events
        .iter()
        .filter(is_note)
        .map(|note| &note["type"])
        .collect();
    ensure!(notes == ["coverage", "ended"], "besides events: {notes:?}");
    let events: Vec<&Value> = events.iter().filter(|line| !is_note(line)).collect();
    for event in &events {
        ensure!(
            event["event"].is_string() && event["time"].is_string(),
            "no event: {event}"
        );
    }
    // All that was told is in it, in the same order, key for key.
    let told = ended
        .records
        .iter()
        .filter(|record| record["type"] == "event");
    let mut recorded = events.iter();
    for record in told {
        let same = |event: &Value| {
            let event = event.as_object().into_iter().flatten();
            event.clone().all(|(key, value)| record[key] == *value)
        };
        ensure!(
            recorded.by_ref().any(|event| same(event)),
            "not recorded, or not in order: {record}"
        );
    }
    Ok(())
}

test!(NEEDS, record_leaves_an_existing_file_alone);
fn record_leaves_an_existing_file_alone() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("run.jsonl");
    fs::write(&path, "precious\n")?;
    // A dangling link would be written through.
    let link = folder.path().join("link.jsonl");
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link)?;
    for path in [&path, &link] {
        let named = path.display().to_string();
        let output = run(&[
            "trace",
            "--duration",
            "1s",
            "--cri",
            "none",
            "--pods",
            "none",
            "--record",
            &named,
        ])?;
        refused(&output, &[&named, "exists"])?;
    }
    ensure!(fs::read_to_string(&path)? == "precious\n", "its content");
    ensure!(
        !folder.path().join("elsewhere").exists(),
        "the link's target"
    );
    // Nor is a new one made where the folder is missing.
    let nowhere = folder
        .path()
        .join("no-such-folder/run.jsonl")
        .display()
        .to_string();
    let output = run(&[
        "trace",
        "--duration",
        "1s",
        "--cri",
        "none",
        "--pods",
        "none",
        "--record",
        &nowhere,
    ])?;
    refused(&output, &[&nowhere])
}
