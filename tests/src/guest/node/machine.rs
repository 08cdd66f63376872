//! Laws about the system, and about the service as systemd runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::output::{UNIT, entries};
use super::{Guest, RECORDINGS, SECRET, SOON, Stage, TRACE};
use crate::containerd::image;
use crate::guest::coverage::SIGNALS;
use crate::netns::inode_of_process;
use crate::tracer::{is_event, netns_of};
use crate::{stage, wait};

/// For systemd to start everything that it starts.
const BOOT: Duration = Duration::from_secs(480);
/// A service with a network namespace of its own.
const PRIVATE: &str = "nt-private.service";
/// What it must have asked, on every kernel that this suite is for.
const SOURCES: [&str; 2] = ["cri", "pods"];

/// Runs a program to its end; its output, or why it failed.
pub(super) fn run(program: &str, args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {program}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    ensure!(
        output.status.success(),
        "{program} {}: {}: {}{}",
        args.join(" "),
        output.status,
        text(&output.stderr),
        text(&output.stdout)
    );
    Ok(text(&output.stdout))
}

pub(super) fn property(unit: &str, name: &str) -> anyhow::Result<String> {
    run("systemctl", &["show", "--value", "-p", name, unit])
}

/// For the log, when a law that others rest on was broken.
pub(super) fn evidence() -> Vec<(String, String)> {
    let asked: [(&str, &[&str]); 3] = [
        ("systemctl", &["list-units", "--no-pager", "--failed"]),
        ("journalctl", &["-b", "--no-pager", "-n", "150"]),
        ("ps", &["-eo", "pid,ppid,stat,wchan:24,args"]),
    ];
    let said = asked.map(|(program, args)| {
        let text = run(program, args).unwrap_or_else(|error| format!("{error:#}"));
        (format!("{program} {}", args.join(" ")), text)
    });
    said.into()
}

/// systemd is the first process and has started everything; there is cgroup2
/// and no older hierarchy.
pub(super) fn booted(_: &mut Stage) -> anyhow::Result<()> {
    up()?;
    let state = property(UNIT, "ActiveState")?;
    ensure!(state == "active", "{UNIT} is {state}");
    expect_restarts(0)
}

/// The same without the tracer's service.
pub(super) fn up() -> anyhow::Result<()> {
    let first = fs::read_to_string("/proc/1/comm").context("process 1")?;
    ensure!(first.trim() == "systemd", "process 1 is {first}");
    wait::until("systemd to be up", BOOT, || {
        // Its exit code says no more than its word.
        let state = Command::new("systemctl")
            .arg("is-system-running")
            .output()?;
        let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
        ensure!(
            state != "degraded",
            "failed: {}",
            run("systemctl", &["list-units", "--failed", "--plain", "-q"])?
        );
        Ok((state == "running").then_some(()))
    })?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let of_kind = |kind: &str| mounts.lines().filter(|line| line.contains(kind)).count();
    ensure!(
        of_kind(" - cgroup2 ") == 1 && of_kind(" - cgroup ") == 0,
        "not cgroup2 alone:\n{mounts}"
    );
    for unit in ["containerd.service", "systemd-journald.service"] {
        let state = property(unit, "ActiveState")?;
        ensure!(state == "active", "{unit} is {state}");
    }
    Ok(())
}

/// Fails unless systemd has started the service again so often.
pub(super) fn expect_restarts(wanted: u32) -> anyhow::Result<()> {
    let restarts = property(UNIT, "NRestarts")?;
    ensure!(
        restarts == wanted.to_string(),
        "{UNIT} was started again {restarts} times, not {wanted}"
    );
    Ok(())
}

/// Fails unless a coverage record names a mechanism for everything that there
/// is on such a node.
pub(super) fn sees_all(coverage: &Value, sources: &[&str]) -> anyhow::Result<()> {
    let signals = coverage["signals"].as_array().context("no signals")?;
    for wanted in SIGNALS.iter().chain(sources) {
        let found = signals.iter().find(|item| item["signal"] == *wanted);
        let mechanism = found.and_then(|item| item["mechanism"].as_str());
        ensure!(
            mechanism.is_some_and(|mechanism| mechanism != "comparison"),
            "{wanted}: {}",
            found.unwrap_or(coverage)
        );
    }
    Ok(())
}

/// The first record, in the file and in the journal.
pub(super) fn coverage(stage: &mut Stage) -> anyhow::Result<()> {
    let record = stage.output.wait_for("a coverage record", SOON, |record| {
        record["type"] == "coverage"
    })?;
    ensure!(
        stage.output.records()?.first() == Some(&record),
        "it is not the first record"
    );
    sees_all(&record, &SOURCES)?;
    let entry = wait::until("coverage in the journal", SOON, || {
        let entries = entries(&[])?;
        let mut texts = entries
            .iter()
            .filter_map(|entry| entry["NODE_TRACER_JSON"].as_str());
        Ok(texts.find_map(|text| {
            let record: Value = serde_json::from_str(text).ok()?;
            (record["type"] == "coverage").then_some(record)
        }))
    })?;
    ensure!(
        entry["signals"] == record["signals"],
        "the journal's is another: {entry}"
    );
    Ok(())
}

/// Images for the pods: nothing is pulled.
pub(super) fn images(_: &mut Stage) -> anyhow::Result<()> {
    import_images()
}

pub(super) fn import_images() -> anyhow::Result<()> {
    let busybox = stage::in_path("busybox").context("no busybox")?;
    let (pause, busy) = (
        PathBuf::from("/tmp/pause.tar"),
        PathBuf::from("/tmp/box.tar"),
    );
    image::write_pause(&pause)?;
    image::write_box(&busy, &busybox)?;
    for archive in [&pause, &busy] {
        let archive = archive.to_str().context("a path")?;
        run("ctr", &["-n", "k8s.io", "images", "import", archive])?;
        fs::remove_file(archive)?;
    }
    let guest = Guest::connect()?;
    wait::until("the images", SOON, || {
        let there = guest.cri.images()?;
        let has = |image: &str| there.iter().any(|tag| tag == image);
        Ok((has(image::PAUSE) && has(image::BOX)).then_some(()))
    })
}

/// A service with a network namespace of its own. It stays to the end, and
/// nothing may be said about it but that it is there.
pub(super) fn private_network(stage: &mut Stage) -> anyhow::Result<()> {
    run("systemctl", &["start", PRIVATE])?;
    let pid: u32 = property(PRIVATE, "MainPID")?.parse().context("MainPID")?;
    let inode = inode_of_process(pid)?;
    ensure!(inode != inode_of_process(1)?, "it has none of its own");
    stage
        .output
        .wait_for("netns-created of a service", SOON, |record| {
            is_event(record, "netns-created") && netns_of(record) == Some(inode)
        })?;
    stage.innocent.push(inode);
    Ok(())
}

/// The service ends well when it is told to, and has written no secret.
pub(super) fn stopped(stage: &mut Stage) -> anyhow::Result<()> {
    run("systemctl", &["stop", UNIT])?;
    for (name, expected) in [
        ("ActiveState", "inactive"),
        ("Result", "success"),
        ("ExecMainCode", "1"),
        ("ExecMainStatus", "0"),
    ] {
        let value = property(UNIT, name)?;
        ensure!(value == expected, "{name} is {value}, not {expected}");
    }
    expect_restarts(stage.restarts)?;
    let last = stage.output.records()?.last().context("no records")?;
    ensure!(last["type"] == "summary", "the last record is {last}");
    wait::until("the summary in the journal", SOON, || {
        let entries = entries(&[])?;
        let last = entries.last().and_then(|entry| entry["MESSAGE"].as_str());
        Ok(last
            .is_some_and(|text| text.starts_with("ended;"))
            .then_some(()))
    })?;
    no_secret(stage)
}

/// The plugins were given the secret; nobody wrote it down.
fn no_secret(stage: &Stage) -> anyhow::Result<()> {
    let config = Path::new("/etc/cni/net.d/10-stage.conflist");
    ensure!(
        fs::read_to_string(config)?.contains(SECRET),
        "there is no secret to keep"
    );
    // One recording of each start.
    let recordings = fs::read_dir(RECORDINGS).context(RECORDINGS)?;
    let mut files = recordings
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<Vec<PathBuf>>>()?;
    let starts = usize::try_from(stage.restarts)? + 1;
    ensure!(files.len() == starts, "of {starts} starts: {files:?}");
    files.push(PathBuf::from(TRACE));
    for file in files {
        let file = file.display().to_string();
        let content = fs::read_to_string(&file).with_context(|| file.clone())?;
        ensure!(!content.is_empty(), "{file} is empty");
        ensure!(!content.contains(SECRET), "{file} holds the secret");
    }
    for entry in entries(&[])? {
        ensure!(
            !entry.to_string().contains(SECRET),
            "the secret is in {entry}"
        );
    }
    Ok(())
}
