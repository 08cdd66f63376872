//! `replay`: a recorded run says again what it said.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use node_tracer_tests::incident::{Incident, Sandbox};
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::{Scratch, container_id};
use node_tracer_tests::snapshot_run::{SnapshotRun, on_host, run as look, whole_list};
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, command, is_event, is_finding, netns_of};
use node_tracer_tests::wait;
use serde_json::Value;

use crate::command_line::{refused, run};

const KERNEL: &[Need] = &[Need::Root, Need::Tracer];
const INCIDENT: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Cgroup,
    IP,
    Need::Tracer,
    Need::Cni,
];

fn replay(path: &Path) -> anyhow::Result<SnapshotRun> {
    let path = path.display().to_string();
    look(&mut command(&["replay", "-o", "json", &path])?)
}

/// What was said in the run's course.
fn course(records: &[Value]) -> Vec<&Value> {
    let all = records.iter();
    all.filter(|record| record["type"] == "event" || record["type"] == "finding")
        .collect()
}

/// The same, whatever the position of the first difference.
fn ensure_same(lived: &[&Value], replayed: &[&Value]) -> anyhow::Result<()> {
    for (place, (lived, replayed)) in lived.iter().zip(replayed).enumerate() {
        ensure!(
            lived == replayed,
            "record {place} was {lived:#}\nand is {replayed:#}"
        );
    }
    ensure!(
        lived.len() == replayed.len(),
        "{} records were said, and {} in the replay",
        lived.len(),
        replayed.len()
    );
    Ok(())
}

/// What was seen is said again, with the recording as one more source; and what
/// was counted is counted again.
fn ensure_same_frame(lived: &[Value], replayed: &[Value]) -> anyhow::Result<()> {
    let of = |records: &[Value], kind: &str| -> anyhow::Result<Value> {
        let mut all = records.iter().filter(|record| record["type"] == kind);
        all.next().cloned().with_context(|| format!("no {kind}"))
    };
    ensure!(replayed[0]["type"] == "coverage", "{}", replayed[0]);
    let (was, is) = (of(lived, "coverage")?, of(replayed, "coverage")?);
    let (was, is) = (was["signals"].as_array(), is["signals"].as_array());
    let (was, is) = (was.context("signals")?, is.context("signals")?);
    ensure!(is.starts_with(was), "{was:#?}\nand {is:#?}");
    ensure!(is.len() == was.len() + 1, "{is:#?}");
    ensure!(is[was.len()]["signal"] == "recording", "{is:#?}");
    let (was, is) = (of(lived, "summary")?, of(replayed, "summary")?);
    for key in [
        "rules",
        "severities",
        "events_seen",
        "events_lost",
        "unknown",
        "worst_open",
        "worst_seen",
        "node",
    ] {
        ensure!(
            was[key] == is[key],
            "{key} was {}, is {}",
            was[key],
            is[key]
        );
    }
    Ok(())
}

fn wait_for_ghost(
    tracer: &mut Tracer,
    old: &Sandbox,
    key: &str,
    value: &str,
) -> anyhow::Result<()> {
    tracer.wait_for(&format!("ghost-sandbox: {value}"), SOON, |record| {
        let its = is_finding(record, "ghost-sandbox") && netns_of(record) == Some(old.netns_inode);
        its && record[key] == value
    })?;
    Ok(())
}

test!(INCIDENT, replay_of_a_trace_says_what_it_said);
fn replay_of_a_trace_says_what_it_said() -> anyhow::Result<()> {
    let mut incident = Incident::new()?;
    let folder = Scratch::create()?;
    let path = folder.path().join("run.jsonl");
    let (named, pods) = (
        path.display().to_string(),
        incident.pods_file().display().to_string(),
    );
    let canary = format!("canary{}", &container_id()?[..32]);
    let mut tracer = Tracer::trace_with(
        &[
            "--pods",
            &pods,
            "--stall-threshold",
            "900ms",
            "--record",
            &named,
        ],
        &[("K8S_API_TOKEN", OsStr::new(&canary))],
    )?;
    let old = incident.start_old_pod()?;
    tracer.wait_for("netns-created", SOON, |record| {
        is_event(record, "netns-created") && netns_of(record) == Some(old.netns_inode)
    })?;
    incident.force_delete()?;
    wait_for_ghost(&mut tracer, &old, "phase", "suspected")?;
    incident.garbage_collect()?;
    wait_for_ghost(&mut tracer, &old, "phase", "armed")?;
    incident.start_new_pod()?;
    wait_for_ghost(&mut tracer, &old, "phase", "conflict")?;
    incident.release()?;
    wait_for_ghost(&mut tracer, &old, "state", "resolved")?;
    let mode = fs::metadata(&path)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "mode {mode:o}");
    let lived = tracer.stop()?;
    ensure!(lived.code == Some(0), "{:?}: {}", lived.code, lived.stderr);
    drop(incident);
    ensure!(
        !fs::read_to_string(&path)?.contains(&canary),
        "the tracer's own environment is in it"
    );

    let replayed = replay(&path)?;
    replayed.expect_code(1)?;
    ensure!(
        replayed.ended.stderr.is_empty(),
        "{}",
        replayed.ended.stderr
    );
    let (was, is) = (course(&lived.records), course(&replayed.ended.records));
    let findings = was.iter().filter(|record| record["type"] == "finding");
    println!(
        "        {} records, {} of findings; replayed in {:.2} s",
        was.len(),
        findings.count(),
        replayed.elapsed.as_secs_f32()
    );
    ensure_same(&was, &is)?;
    ensure_same_frame(&lived.records, &replayed.ended.records)?;

    // From standard input, as text, and one after the other: it is all the same.
    let output = command(&["replay", "-", &named])?
        .stdin(File::open(&path)?)
        .output()
        .context("replay")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.code() == Some(1), "{}", output.status);
    let count = |word: &str| text.lines().filter(|line| line.contains(word)).count();
    ensure!(
        count("conflict") >= 2 && count("times are UTC; node") == 2,
        "two runs: {text}"
    );
    Ok(())
}

test!(INCIDENT, replay_of_a_scan_says_what_it_said);
fn replay_of_a_scan_says_what_it_said() -> anyhow::Result<()> {
    let mut incident = Incident::new()?;
    incident.start_old_pod()?;
    incident.force_delete()?;
    incident.garbage_collect()?;
    incident.start_new_pod()?;
    let folder = Scratch::create()?;
    let pods = whole_list(incident.pods_file(), folder.path())?;
    for more in [&[][..], &["--duration", "3s"]] {
        let path = folder.path().join(format!("run{}.jsonl", more.len()));
        let named = path.display().to_string();
        let args = ["--cri", "none", "--pods", &pods, "--record", &named];
        let lived = on_host("scan", &[&args[..], more].concat())?;
        let replayed = replay(&path)?;
        ensure!(
            lived.ended.code == replayed.ended.code,
            "{:?} and {:?}: {}",
            lived.ended.code,
            replayed.ended.code,
            replayed.ended.stderr
        );
        let (was, is) = (
            course(&lived.ended.records),
            course(&replayed.ended.records),
        );
        let rules: Vec<_> = was.iter().map(|record| &record["rule"]).collect();
        for rule in ["ghost-sandbox", "duplicate-address"] {
            ensure!(rules.iter().any(|said| **said == *rule), "{rules:?}");
        }
        ensure_same(&was, &is)?;
        ensure_same_frame(&lived.ended.records, &replayed.ended.records)?;
    }
    incident.release()
}

test!(KERNEL, replay_of_a_killed_trace_says_where_it_ends);
fn replay_of_a_killed_trace_says_where_it_ends() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("run.jsonl");
    let named = path.display().to_string();
    let mut tracer = Tracer::trace(&["--record", &named])?;
    let netns = Netns::create()?;
    let inode = netns.inode();
    let of_it = |record: &Value| netns_of(record) == Some(inode);
    tracer.wait_for("netns-created", SOON, |record| {
        is_event(record, "netns-created") && of_it(record)
    })?;
    // Until the next tick nothing is handed to the system.
    wait::until("the event to be written down", SOON, || {
        let text = fs::read_to_string(&path)?;
        let mut lines = text.lines();
        let written = lines.any(|line| line.contains(&inode.to_string()) && line.ends_with('}'));
        Ok(written.then_some(()))
    })?;
    tracer.signal(libc::SIGKILL);
    tracer.wait_for_end(SOON)?;
    // And its last line is not whole.
    let mut file = File::options().append(true).open(&path)?;
    file.write_all(b"{\"time\":\"2025-")?;
    let replayed = replay(&path)?;
    let stderr = &replayed.ended.stderr;
    ensure!(matches!(replayed.ended.code, Some(0 | 1 | 3)), "{stderr}");
    ensure!(
        stderr.contains(&named) && stderr.contains("not whole"),
        "{stderr}"
    );
    let unknown = &replayed.summary()?["unknown"];
    ensure!(unknown.to_string().contains("not whole"), "{unknown}");
    ensure!(
        replayed.ended.records.iter().any(of_it),
        "what was before is told"
    );
    Ok(())
}

test!(apart & [Need::Tracer], replay_refuses_what_is_no_recording);
fn replay_refuses_what_is_no_recording() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("x");
    let named = path.display().to_string();
    refused(&run(&["replay"])?, &["FILE"])?;
    refused(&run(&["replay", "-", "-"])?, &["twice"])?;
    refused(&run(&["replay", &named])?, &[&named, "no such file"])?;
    let parent = folder.path().display().to_string();
    refused(&run(&["replay", &parent])?, &[&parent, "directory"])?;
    let other = r#"{"schema":"node-tracer/9","type":"recording"}"#;
    let output = r#"{"schema":"node-tracer/1","type":"coverage","signals":[]}"#; // no time
    let cases = [
        ("", "is empty"),
        ("\u{7f}ELF\u{2}\u{1}\u{0}\u{0}", "is a program"),
        (output, "could be understood"),
        (other, "node-tracer/9"),
    ];
    for (content, word) in cases {
        fs::write(&path, content)?;
        let output = run(&["replay", &named])?;
        refused(&output, &[&named, word]).with_context(|| format!("{content:?}"))?;
    }
    // The first that can be read is told, whatever is wrong with the others.
    let header = r#"{"schema":"node-tracer/1","type":"recording","time":"2025-11-21T05:00:00Z","node":"n","boot_id":"b","stall_threshold_ms":1}"#;
    let good = folder.path().join("good");
    fs::write(&good, format!("{header}\n"))?;
    let output = command(&["replay", "-o", "json", &named])?
        .arg(&good)
        .stderr(Stdio::piped())
        .output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2), "{}", output.status);
    ensure!(stderr.contains("1 of 2 files"), "{stderr}");
    ensure!(
        String::from_utf8_lossy(&output.stdout).contains("summary"),
        "{stderr}"
    );
    Ok(())
}

test!(
    apart & [Need::Tracer],
    replay_whose_reader_goes_away_does_not_claim_that_there_was_nothing
);
/// `node-tracer replay | head`: what was not read may have had anything.
fn replay_whose_reader_goes_away_does_not_claim_that_there_was_nothing() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("recording");
    let mut lines = String::from(
        r#"{"schema":"node-tracer/1","type":"recording","time":"2025-11-21T05:00:00Z","node":"n","boot_id":"b","stall_threshold_ms":1}"#,
    );
    lines.push('\n');
    for inode in 0..5_000 {
        lines.push_str(&format!(
            r#"{{"time":"2025-11-21T05:00:01Z","event":"netns-created","netns":{{"inode":{inode}}}}}"#
        ));
        lines.push('\n');
    }
    fs::write(&path, lines)?;
    let run = |stdout: Stdio| -> anyhow::Result<(Option<i32>, String)> {
        let mut command = command(&["replay", "-o", "json"])?;
        let output = command.arg(&path).stdout(stdout).stderr(Stdio::piped());
        let output = output.spawn()?.wait_with_output()?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.code(), stderr))
    };
    let (all, _) = run(Stdio::null())?;
    ensure!(all == Some(3), "read whole: {all:?}");
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let (cut, stderr) = run(writer.into())?;
    ensure!(cut == Some(2), "{cut:?}: {stderr}");
    ensure!(stderr.contains("before all was read"), "{stderr}");
    Ok(())
}
