//! What the machine's owner does: memory limits, and programs detached.

use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::calls::Calls;
use node_tracer_tests::helper::Killed;
use node_tracer_tests::links;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::{Scratch, unique_name};
use node_tracer_tests::stuck::Stuck;
use node_tracer_tests::tracer::{SOON, Tracer, is_event, is_finding, netns_of};
use node_tracer_tests::wait;
use serde_json::Value;

use super::{recorded, signals, whole_lines};

const MIB: u64 = 1 << 20;

/// A cgroup with a memory limit; version 2 where it has that controller, else
/// version 1.
struct Limited {
    folder: PathBuf,
}

impl Limited {
    fn create(limit: u64) -> anyhow::Result<Self> {
        let unified = Path::new("/sys/fs/cgroup");
        let controllers = fs::read_to_string(unified.join("cgroup.controllers"));
        let version_2 =
            controllers.is_ok_and(|all| all.split(' ').any(|one| one.trim() == "memory"));
        let (top, file) = match version_2 {
            true => (unified.to_owned(), "memory.max"),
            false => (unified.join("memory"), "memory.limit_in_bytes"),
        };
        let this = Self {
            folder: top.join(unique_name()),
        };
        fs::create_dir(&this.folder).with_context(|| this.folder.display().to_string())?;
        fs::write(this.folder.join(file), limit.to_string()).context(file)?;
        Ok(this)
    }

    fn tracer(&self, args: &[&str]) -> anyhow::Result<Tracer> {
        let mut command = self.command(&node_tracer_tests::tracer::binary()?);
        command
            .args(["trace", "-o", "json", "--cri", "none", "--pods", "none"])
            .args(args);
        Tracer::start(&mut command, |_| ())
    }

    /// A shell that goes into it and becomes this program.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "echo $$ > \"$0\"/cgroup.procs && exec \"$@\""])
            .arg(&self.folder)
            .arg(program);
        command
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let gone = || fs::remove_dir(&self.folder).is_ok().then_some(());
        let _ = wait::until("the cgroup to be empty", SOON, || Ok(gone()));
    }
}

/// What is tried here.
const LITTLE: u64 = 64 * MIB;

test!(
    &[
        Need::Root,
        Need::Tracer,
        Need::Cgroup,
        Need::StaticBusybox,
        Need::Loop,
    ],
    faults_little_memory_is_enough
);
/// It starts, and lives through a burst of calls while a thousand tasks sleep
/// and wake, and then get stuck.
fn faults_little_memory_is_enough() -> anyhow::Result<()> {
    let mut tasks = Stuck::start(1_000)?;
    let limited = Limited::create(LITTLE)?;
    let mut tracer = limited.tracer(&["--stall-threshold", "2s"])?;
    tracer.wait_until_ready()?;
    tasks.freeze_all()?;
    Calls::create()?.make(1_500)?;
    let stuck = |record: &Value| is_finding(record, "blocked-task");
    wait::until("1,000 findings", SOON * 3, || {
        Ok((tracer.count(stuck) >= 1_000).then_some(()))
    })?;
    tasks.thaw()?;
    let netns = Netns::create()?;
    let inode = netns.inode();
    tracer.wait_for("an event after the burst", SOON, |record| {
        is_event(record, "netns-created") && netns_of(record) == Some(inode)
    })?;
    let ended = tracer.stop()?;
    ensure!(
        ended.code == Some(0),
        "{:?} {:?}: {}",
        ended.code,
        ended.signal,
        ended.stderr
    );
    drop(limited);
    Ok(())
}

test!(
    apart & [],
    faults_documented_memory_limits_are_no_less_than_is_tested
);
/// What the packages allow it.
fn faults_documented_memory_limits_are_no_less_than_is_tested() -> anyhow::Result<()> {
    let folder = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../node-tracer/packaging"
    ));
    let read = |path: &str| fs::read_to_string(folder.join(path)).context(path.to_owned());
    let (unit, manifest) = (
        read("systemd/node-tracer.service")?,
        read("kubernetes/node-tracer.yaml")?,
    );
    let limits = manifest.split("limits:").nth(1).context("no limits")?;
    for (text, key, unit) in [
        (unit.as_str(), "MemoryMax=", "M"),
        (unit.as_str(), "MemoryHigh=", "M"),
        (limits, "memory: ", "Mi"),
    ] {
        let mut lines = text.lines().map(str::trim);
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_suffix(unit));
        let value: u64 = value.with_context(|| key.to_owned())?.parse()?;
        ensure!(value * MIB >= LITTLE, "{key}{value}{unit} is not tested");
    }
    Ok(())
}

test!(
    &[Need::Root, Need::Tracer, Need::Cgroup],
    faults_tracer_killed_for_memory_leaves_a_usable_recording
);
/// What the kernel ends in the middle of a burst has recorded whole lines, of
/// which the last one may be torn, and they can be replayed.
fn faults_tracer_killed_for_memory_leaves_a_usable_recording() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let recording = folder.path().join("run.jsonl");
    let limited = Limited::create(LITTLE)?;
    let mut tracer = limited.tracer(&["--record", &recording.display().to_string()])?;
    tracer.wait_until_ready()?;
    // The one that the kernel takes first.
    fs::write(format!("/proc/{}/oom_score_adj", tracer.pid()), "1000")?;
    let (calls, stop) = (Calls::create()?, AtomicBool::new(false));
    let ended = std::thread::scope(|scope| {
        let burst = scope.spawn(|| calls.make_until(&stop));
        let ended = wait::pause(Duration::from_secs(1)).and_then(|()| {
            // It keeps what it may have to print; so it does not fit, and ends.
            let mut hog = limited.command(Path::new("sh"));
            hog.args(["-c", "head -c 256M /dev/zero | tail -c 256M"]);
            let _hog = Killed(
                hog.stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .context("sh")?,
            );
            tracer.wait_for_end(SOON)
        });
        stop.store(true, Ordering::Relaxed);
        let made = burst.join().map_err(|_| anyhow::anyhow!("panicked"))?;
        made.and(ended)
    })?;
    ensure!(ended.signal == Some(libc::SIGKILL), "{ended:?}");
    drop(limited);
    let text = fs::read_to_string(&recording)?;
    let lines = signals::but_the_last(&text)?;
    let events = recorded(&lines).count();
    println!("        {events} events recorded");
    ensure!(events > 100, "{events} events recorded");
    let mut replay = node_tracer_tests::tracer::command(&["replay", "-o", "json"])?;
    let output = replay.arg(&recording).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        matches!(output.status.code(), Some(0 | 1 | 3)),
        "{}: {stderr}",
        output.status
    );
    let printed = whole_lines(&String::from_utf8(output.stdout)?)?;
    let last = printed.last().context("nothing printed")?;
    let seen = last["events_seen"].as_u64().context("no summary")?;
    ensure!(seen >= events as u64, "{seen} of {events} replayed");
    Ok(())
}

test!(
    super::NEEDS,
    faults_links_that_others_detach_are_missed_by_nobody
);
/// What another program with the rights does to its links: the kernel refuses,
/// or the tracer says what it does not see any more.
fn faults_links_that_others_detach_are_missed_by_nobody() -> anyhow::Result<()> {
    let mut tracer = Tracer::trace(&[])?;
    let links = links::of_process(tracer.pid())?;
    ensure!(!links.is_empty(), "it has no links");
    let detached = links
        .iter()
        .filter(|id| links::detach(**id).is_ok())
        .count();
    println!("        {} links, {detached} of them detached", links.len());
    if detached > 0 {
        tracer.wait_for("to be told", SOON, |record| {
            is_event(record, "source-failed")
        })?;
    }
    wait::pause(Duration::from_millis(200))?;
    let netns = Netns::create()?;
    let inode = netns.inode();
    tracer.wait_for("an event afterwards", SOON, |record| {
        is_event(record, "netns-created") && netns_of(record) == Some(inode)
    })?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    Ok(())
}
