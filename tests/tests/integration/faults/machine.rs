//! What the machine's owner does: memory limits, and programs detached.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::calls::Calls;
use node_tracer_tests::links;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::unique_name;
use node_tracer_tests::tracer::{SOON, Tracer, is_event, netns_of};
use node_tracer_tests::wait;

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

    /// A shell that goes into it and becomes the tracer.
    fn tracer(&self) -> anyhow::Result<Tracer> {
        let mut command = std::process::Command::new("/bin/sh");
        command
            .args(["-c", "echo $$ > \"$0\"/cgroup.procs && exec \"$@\""])
            .arg(&self.folder)
            .arg(node_tracer_tests::tracer::binary()?)
            .args(["trace", "-o", "json", "--cri", "none", "--pods", "none"]);
        Tracer::start(&mut command, |_| ())
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let gone = || fs::remove_dir(&self.folder).is_ok().then_some(());
        let _ = wait::until("the cgroup to be empty", SOON, || Ok(gone()));
    }
}

/// With 64 MiB it starts and lives through a burst of calls.
pub(super) fn little_memory() -> anyhow::Result<()> {
    let limited = Limited::create(64 * MIB)?;
    let mut tracer = limited.tracer()?;
    tracer.wait_until_ready()?;
    Calls::create()?.make(1_500)?;
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

/// What another program with the rights does to its links: the kernel refuses,
/// or the tracer says what it does not see any more.
pub(super) fn detached() -> anyhow::Result<()> {
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
