//! scan's options.

use node_tracer_tests::stage::IP;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, ensure};
use node_tracer_tests::journald::{Journald, values};
use node_tracer_tests::netns::{Netns, connect};
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::snapshot_run::{on_host, run as look};
use node_tracer_tests::tracer::{command, is_finding, names_address};
use serde_json::Value;

use crate::command_line::{refused, run};

/// The kernel is all that is asked.
const BARE: [&str; 4] = ["--pods", "none", "--cri", "none"];

test!(super::TRACER, scan_records_private_replayable_lines);
fn scan_records_private_replayable_lines() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("run.jsonl");
    let named = path.display().to_string();
    let netns = Netns::create()?;
    let args = [&BARE[..], &["--record", &named]].concat();
    let seen = on_host("scan", &args)?;
    ensure!(matches!(seen.ended.code, Some(1 | 3)), "{}", seen.brief());
    let mode = fs::metadata(&path)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "mode {mode:o}");
    let text = fs::read_to_string(&path)?;
    ensure!(text.ends_with('\n'), "the last line is whole");
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    let lines = lines?;
    let (header, events) = lines.split_first().context("it is empty")?;
    ensure!(
        header["type"] == "recording" && header["schema"] == "node-tracer/1",
        "{header}"
    );
    let whole = |event: &Value| event["event"].is_string() && event["time"].is_string();
    let is_note = |line: &Value| line["type"].is_string();
    let all = events.iter().all(|line| whole(line) || is_note(line));
    ensure!(all, "an event without name or time");
    let found = |event: &Value| event["netns"]["inode"] == netns.inode();
    ensure!(
        events.iter().any(found),
        "netns {} is not in it",
        netns.inode()
    );
    // What is there is left alone.
    let again = run(&[&["scan"], &args[..]].concat())?;
    refused(&again, &[&named])?;
    ensure!(fs::read_to_string(&path)? == text, "it was written to");
    Ok(())
}

test!(
    super::TRACER,
    scan_that_is_blind_ends_with_3_and_says_so_however_quiet
);
/// Without a list of pods no ghost can be told from a pod. Whether something else
/// is wrong with this machine is not this test's business.
fn scan_that_is_blind_ends_with_3_and_says_so_however_quiet() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let recording = folder.path().join("run.jsonl").display().to_string();
    let look = on_host("scan", &[&BARE[..], &["--record", &recording]].concat())?;
    let why = &look.summary()?["not_checked"][0];
    ensure!(
        why["rule"] == "ghost-sandbox" && why["reason"] == "no pod list" && why["fix"].is_string(),
        "{why}"
    );
    let is_found = |record: &Value| record["type"] == "finding" && record["severity"] != "info";
    let found = look.ended.records.iter().any(is_found);
    let code = Some(if found { 1 } else { 3 });
    let page = folder.path().join("page.html").display().to_string();
    for (args, is_short) in [
        (
            &["scan", "--quiet", "--pods", "none", "--cri", "none"][..],
            !found,
        ),
        (&["scan", "--pods", "none", "--cri", "none"], false),
        (&["replay", &recording], false),
        (&["report", &recording, "-o", &page], false),
        (
            &["explain", "--pods", "none", "--cri", "none", "203.0.113.7"],
            false,
        ),
    ] {
        let output = run(args)?;
        let text = String::from_utf8([output.stdout, output.stderr].concat())?;
        ensure!(
            text.contains("NOT CHECKED: ghost-sandbox"),
            "{args:?}: {text}"
        );
        ensure!(!is_short || text.lines().count() == 1, "{args:?}: {text}");
        let nothing = args[0] == "explain";
        let code = if nothing { Some(3) } else { code };
        ensure!(
            output.status.code() == code,
            "{args:?}: {}: {text}",
            output.status
        );
    }
    Ok(())
}

test!(apart super::TRACER, scan_refuses_what_it_does_not_understand);
fn scan_refuses_what_it_does_not_understand() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("pods.json");
    let named = path.display().to_string();
    refused(&run(&["scan", "--no-such-option"])?, &["--no-such-option"])?;
    refused(&run(&["scan", "surplus"])?, &["surplus"])?;
    refused(&run(&["scan", "--duration", "soon"])?, &["--duration"])?;
    refused(
        &run(&["scan", "--cri", "ftp://x", "--pods", "none"])?,
        &["ftp://x"],
    )?;
    let root = ["scan", "--cri", "none", "--pods", "none", "--root", &named];
    refused(&run(&root)?, &[&named])?;
    let listed = ["scan", "--cri", "none", "--pods", &named];
    refused(&run(&listed)?, &[&named]).context("no such file")?;
    for content in [
        "",
        "{",
        "[]",
        "null",
        r#"{"kind":"List","items":7}"#,
        "No resources found\n",
    ] {
        fs::write(&path, content)?;
        for subcommand in [&["scan"][..], &["explain", "203.0.113.7"]] {
            let output = run(&[subcommand, &listed[1..]].concat())?;
            refused(&output, &[&named])
                .with_context(|| format!("{subcommand:?} with {content:?}"))?;
        }
    }
    Ok(())
}

test!(
    &[Need::Root, Need::Tracer, IP, Need::Journald],
    scan_sends_findings_to_journald
);
fn scan_sends_findings_to_journald() -> anyhow::Result<()> {
    let journald = Journald::start()?;
    let address = "198.18.250.9";
    let pair = [Netns::create()?, Netns::create()?];
    let held = format!("{address}/24");
    connect((&pair[0], "eth0", &held), (&pair[1], "eth0", &held))?;
    let args = [&["scan", "-o", "json", "-o", "journald"], &BARE[..]].concat();
    let seen = look(command(&args)?.env("NODE_TRACER_JOURNAL_SOCKET", journald.socket()))?;
    seen.expect_code(1)?;
    let told =
        seen.ended.records.iter().find(|record| {
            is_finding(record, "duplicate-address") && names_address(record, address)
        });
    let told = told.with_context(|| format!("no duplicate-address: {}", seen.brief()))?;
    let id = told["id"].as_str().context("no ID")?;
    let ours = ["SYSLOG_IDENTIFIER=node-tracer"];
    let entry = journald.wait_for("the finding", &ours, |entry| {
        values(entry, "NODE_TRACER_FINDING_ID") == [id]
    })?;
    ensure!(
        values(&entry, "NODE_TRACER_RULE") == ["duplicate-address"]
            && values(&entry, "NODE_TRACER_IP").contains(&address.to_owned()),
        "{entry}"
    );
    Ok(())
}
