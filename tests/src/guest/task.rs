//! Tasks in uninterruptible sleep: killed in the middle of a read which is
//! never answered, and writing to a file system that is frozen.

use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;

use super::matrix::{SignalResult, Stage};
use crate::frozen::FrozenFs;
use crate::hangfs::HangFs;
use crate::netns::Netns;
use crate::process::PodProcess;
use crate::tracer::{is_event, netns_of};

pub(super) fn observe(stage: &mut Stage<'_>) -> Vec<SignalResult> {
    let both = |stage: &mut Stage<'_>| {
        stall(stage, true)?;
        writer(stage)
    };
    vec![("task-blocked", both(stage))]
}

/// Not before it is killed: until then it could be interrupted. `stack`: its
/// stack is to be told, too.
pub(super) fn stall(stage: &mut Stage<'_>, stack: bool) -> anyhow::Result<()> {
    let mut volume = HangFs::mount()?;
    let netns = Netns::create()?;
    let mut reader = PodProcess::reader("reader", &netns, None, &mut volume)?;
    let mark = stage.mark();
    reader.kill_into_d()?;
    let functions: &[&str] = match stack {
        true => &["request_wait_answer", "fuse_"],
        false => &[],
    };
    blocked(stage, mark, &reader, "reader", &netns, functions)?;
    let mark = stage.mark();
    volume.release();
    unblocked(stage, mark, reader)
}

/// From the start, and SIGKILL changes nothing.
fn writer(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let mut disk = FrozenFs::mount()?;
    let netns = Netns::create()?;
    let mut writer = PodProcess::writer("writer", &netns, None, &disk.file())?;
    disk.freeze()?;
    let mark = stage.mark();
    writer.write_into_d()?;
    let functions = ["percpu_rwsem_wait", "percpu_down_read"];
    blocked(stage, mark, &writer, "writer", &netns, &functions)?;
    writer.kill()?;
    let mark = stage.mark();
    disk.thaw()?;
    unblocked(stage, mark, writer)
}

fn is_about(record: &Value, event: &str, pid: u32) -> bool {
    is_event(record, event) && record["task"]["pid"] == pid
}

/// That one is told of, with its namespace, and one of these in its stack, if
/// there are any.
fn blocked(
    stage: &mut Stage<'_>,
    mark: usize,
    task: &PodProcess,
    comm: &str,
    netns: &Netns,
    functions: &[&str],
) -> anyhow::Result<()> {
    let record = stage.after(mark, &format!("task-blocked of the {comm}"), |record| {
        is_about(record, "task-blocked", task.pid())
    })?;
    ensure!(record["task"]["comm"] == comm, "its name: {record}");
    ensure!(
        netns_of(&record) == Some(netns.inode()),
        "its netns {}: {record}",
        netns.inode()
    );
    let observed = record["stack"].to_string();
    ensure!(
        functions.is_empty() || functions.iter().any(|function| observed.contains(function)),
        "its stack: {record}"
    );
    Ok(())
}

fn unblocked(stage: &mut Stage<'_>, mark: usize, mut task: PodProcess) -> anyhow::Result<()> {
    task.wait_for_end(Duration::from_secs(10))?;
    stage.after(mark, "task-unblocked", |record| {
        is_about(record, "task-unblocked", task.pid())
    })?;
    Ok(())
}
