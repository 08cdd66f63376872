//! `demo`: the tracer watches a real incident, and the terminal shows it.
//!
//! The story is [`Incident`]'s; the tracer's own text is passed through as it
//! comes, and each step waits until the tracer has seen the one before. At the
//! end, after a failure and after Ctrl-C everything that was made is removed,
//! but for the recording of the run and its report.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context as _;
use node_tracer_tests::incident::{Incident, Sandbox};
use node_tracer_tests::stage::{self, Need};
use node_tracer_tests::tracer::{Tracer, is_event, is_finding, names_address, netns_of};
use node_tracer_tests::wait::{self, Interrupted};
use serde_json::Value;

use crate::{cargo, setup};

/// For the tracer to see a step.
const LIMIT: Duration = Duration::from_secs(10);
/// To read what it said.
const READ: Duration = Duration::from_millis(1500);

fn say(line: &str) {
    println!("── demo: {line}");
}

/// Says what this machine cannot do; whether that is nothing.
fn possible(needs: &[Need]) -> bool {
    let missing = stage::missing(needs);
    missing.iter().for_each(|line| eprintln!("demo {line}"));
    missing.is_empty()
}

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    // First what setup cannot mend.
    if !possible(&[Need::Root, Need::Fuse, Need::Cgroup]) {
        return Ok(ExitCode::from(2));
    }
    setup::run()?;
    if !possible(stage::INCIDENT) {
        return Ok(ExitCode::from(2));
    }
    let tracer = cargo::build_tracer(&["--package", "node-tracer"])?;

    wait::catch_signals()?;
    for path in stage::sweep() {
        say(&format!(
            "removed {}, left by a run that was killed",
            path.display()
        ));
    }
    let shown = show(&tracer);
    // All guards are gone here.
    let left = stage::leftovers();
    match left.is_empty() {
        true => say("everything that was made is removed"),
        false => say(&format!("could not remove {}", left.join(", "))),
    }
    match shown {
        Ok(()) if left.is_empty() => Ok(ExitCode::SUCCESS),
        Ok(()) => Ok(ExitCode::FAILURE),
        Err(error) if error.is::<Interrupted>() || wait::interrupted() => {
            say("interrupted");
            Ok(ExitCode::FAILURE)
        }
        Err(error) => {
            eprintln!("demo failed: {error:#}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The tracer's text goes to the terminal; its records, which come in the same
/// stream, tell the demo how far it is.
fn watch(tracer: &Path, pods: &Path, recording: &Path) -> anyhow::Result<Tracer> {
    let mut command = Command::new(tracer);
    command
        .args([
            "trace",
            "-o",
            "text",
            "-o",
            "json",
            "--cri",
            "none",
            "--stall-threshold",
            "2s",
        ])
        .arg("--pods")
        .arg(pods)
        .arg("--record")
        .arg(recording);
    if std::io::stdout().is_terminal() {
        command.env("CLICOLOR_FORCE", "1");
    }
    let mut tracer = Tracer::start(&mut command, |line| println!("{line}"))?;
    tracer.wait_until_ready()?;
    Ok(tracer)
}

fn show(binary: &Path) -> anyhow::Result<()> {
    let mut incident = Incident::new().context("cannot set the stage")?;
    say(&format!(
        "a small node in {}: {}",
        incident.node().path().display(),
        incident.network().describe()
    ));
    let recording = folder()?.join("run.jsonl");
    let mut tracer = watch(binary, incident.pods_file(), &recording)?;
    wait::pause(READ)?;

    let old = first_pod(&mut incident, &mut tracer)?;
    deletion(&mut incident, &mut tracer, &old)?;
    collection(&mut incident, &mut tracer, &old)?;
    second_pod(&mut incident, &mut tracer, &old)?;
    ask(binary, &incident, &old)?;

    say("the volume fails the read at last; the process dies; the runtime removes the old sandbox");
    incident.release()?;
    wait_for_ghost(&mut tracer, &old, "resolved")?;
    wait::pause(READ)?;

    let ended = tracer.stop()?;
    anyhow::ensure!(
        ended.code == Some(0),
        "node-tracer ended with {:?}: {}",
        ended.code,
        ended.stderr.trim()
    );
    incident.clean()?;
    let page = report(binary, &recording)?;
    say("what you saw, all of it real kernel objects:");
    say(&format!(
        "  1. pod {}/{} was force-deleted while a process of it was in the kernel, unkillable",
        old.pod.namespace, old.pod.name
    ));
    say(&format!(
        "  2. its network namespace {} lived on and kept {}; a collector freed the address",
        old.netns_inode, old.address
    ));
    say(
        "  3. the next pod got the same address: node-tracer named the ghost and its holder before that",
    );
    say("  4. when the process could die the namespace went away, and the finding was resolved");
    say(&format!(
        "the same as a page: {}  (of the recording {})",
        page.display(),
        recording.display()
    ));
    Ok(())
}

/// Where the recording and the report stay: in cargo's target folder, and
/// empty.
fn folder() -> anyhow::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| cargo::root().join("target"));
    let folder = target.join("demo");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let recording = folder.join("run.jsonl");
    match std::fs::remove_file(&recording) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| recording.display().to_string())
        }
        _ => Ok(folder),
    }
}

/// What is handed on afterwards.
fn report(binary: &Path, recording: &Path) -> anyhow::Result<PathBuf> {
    let page = recording.with_file_name("report.html");
    let mut command = Command::new(binary);
    command.arg("report").arg(recording).arg("--force");
    command.arg("-o").arg(&page);
    let written = command.output().context("cannot run node-tracer report")?;
    anyhow::ensure!(
        written.status.code() == Some(1),
        "node-tracer report ended with {}: {}",
        written.status,
        String::from_utf8_lossy(&written.stderr).trim()
    );
    Ok(page)
}

/// What somebody is told who comes only now.
fn ask(binary: &Path, incident: &Incident, old: &Sandbox) -> anyhow::Result<()> {
    let address = old.address.to_string();
    say(&format!(
        "somebody who comes only now asks: node-tracer explain {address}"
    ));
    let mut command = Command::new(binary);
    command
        .args(["explain", &address, "--cri", "none", "--pods"])
        .arg(incident.pods_file());
    let answer = command.output().context("cannot run node-tracer explain")?;
    let text = String::from_utf8_lossy(&answer.stdout);
    println!("{}", text.trim_end());
    let conflict = format!("{address} CONFLICT: ");
    anyhow::ensure!(
        answer.status.code() == Some(1) && text.starts_with(&conflict),
        "explain does not tell the conflict ({}): {}",
        answer.status,
        String::from_utf8_lossy(&answer.stderr).trim()
    );
    wait::pause(2 * READ)
}

fn first_pod(incident: &mut Incident, tracer: &mut Tracer) -> anyhow::Result<Sandbox> {
    say("a pod starts, and its process reads from a volume that will not answer");
    let old = incident.start_old_pod()?;
    tracer.wait_for("netns-created", LIMIT, |record| {
        is_event(record, "netns-created") && netns_of(record) == Some(old.netns_inode)
    })?;
    tracer.wait_for("address-added", LIMIT, |record| {
        is_event(record, "address-added") && names_address(record, &old.address.to_string())
    })?;
    if incident.network().is_cni() {
        tracer.wait_for("the CNI call", LIMIT, |record| {
            is_event(record, "cni-call") && record["container_id"] == old.id.as_str()
        })?;
    }
    wait::pause(READ)?;
    Ok(old)
}

fn deletion(incident: &mut Incident, tracer: &mut Tracer, old: &Sandbox) -> anyhow::Result<()> {
    say(&format!(
        "kubectl delete pod {} --force --grace-period=0",
        old.pod.name
    ));
    let stuck = incident.force_delete()?;
    say(&format!(
        "the API has forgotten it; process {} got SIGKILL and is in state D ({})",
        stuck.pid, stuck.wchan
    ));
    tracer.wait_for("blocked-task", LIMIT, |record| {
        is_finding(record, "blocked-task") && record["holders"][0]["pid"] == stuck.pid
    })?;
    wait_for_ghost(tracer, old, "suspected")?;
    wait::pause(READ)
}

fn collection(incident: &mut Incident, tracer: &mut Tracer, old: &Sandbox) -> anyhow::Result<()> {
    match incident.garbage_collect()? {
        Some(path) => say(&format!(
            "a collector that trusts the API frees {}",
            path.display()
        )),
        None => say(&format!(
            "a collector that trusts the API frees {}",
            old.address
        )),
    }
    if incident.network().is_cni() {
        wait_for_ghost(tracer, old, "armed")?;
    }
    wait::pause(READ)
}

fn second_pod(incident: &mut Incident, tracer: &mut Tracer, old: &Sandbox) -> anyhow::Result<()> {
    say("another pod starts");
    let new = incident.start_new_pod()?;
    say(&format!(
        "{}/{} got {} too",
        new.pod.namespace, new.pod.name, new.address
    ));
    wait_for_ghost(tracer, old, "conflict")?;
    wait::pause(2 * READ)
}

fn wait_for_ghost(tracer: &mut Tracer, old: &Sandbox, stage: &str) -> anyhow::Result<Value> {
    tracer.wait_for(&format!("ghost-sandbox: {stage}"), LIMIT, |record| {
        is_finding(record, "ghost-sandbox")
            && netns_of(record) == Some(old.netns_inode)
            && (record["phase"] == stage || record["state"] == stage)
    })
}
