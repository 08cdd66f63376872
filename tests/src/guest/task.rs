//! A task that is killed in the middle of a read which is never answered.

use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;

use super::matrix::{Stage, Told};
use crate::hangfs::HangFs;
use crate::netns::Netns;
use crate::process::PodProcess;
use crate::tracer::{is_event, netns_of};

pub(super) fn told(stage: &mut Stage<'_>) -> Vec<Told> {
    vec![("task-blocked", stall(stage, true))]
}

/// `stack`: its stack is to be told, too.
pub(super) fn stall(stage: &mut Stage<'_>, stack: bool) -> anyhow::Result<()> {
    let mut volume = HangFs::mount()?;
    let netns = Netns::create()?;
    let mut reader = PodProcess::reader("reader", &netns, None, &mut volume)?;
    let mark = stage.mark();
    reader.kill_into_d()?;
    let pid = reader.pid();
    let about = |record: &Value| record["task"]["pid"] == pid;
    let record = stage.after(mark, "task-blocked", |record| {
        is_event(record, "task-blocked") && about(record)
    })?;
    ensure!(record["task"]["comm"] == "reader", "its name: {record}");
    ensure!(
        netns_of(&record) == Some(netns.inode()),
        "its netns {}: {record}",
        netns.inode()
    );
    let told = record["stack"].to_string();
    ensure!(
        !stack || told.contains("request_wait_answer") || told.contains("fuse_"),
        "its stack: {record}"
    );
    let mark = stage.mark();
    volume.release();
    reader.wait_for_end(Duration::from_secs(10))?;
    stage.after(mark, "task-unblocked", |record| {
        is_event(record, "task-unblocked") && about(record)
    })?;
    Ok(())
}
