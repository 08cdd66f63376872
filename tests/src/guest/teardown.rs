//! A namespace whose teardown does not finish: the lock that it takes is held.

use anyhow::ensure;
use serde_json::Value;

use super::matrix::{SignalResult, Stage};
use crate::hangfs::HangFs;
use crate::netns::Netns;
use crate::rtnl::{self, RtnlHolder};
use crate::tracer::{is_event, is_finding, netns_of};

pub(super) fn observe(stage: &mut Stage<'_>) -> Vec<SignalResult> {
    vec![("teardown-stall", stall(stage))]
}

fn stall(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let mut volume = HangFs::mount()?;
    let other = Netns::create()?;
    // What is told is the first in the queue.
    stage.settle()?;
    let mark = stage.mark();
    let mut netns = Netns::create()?;
    let inode = netns.inode();
    let of_it = |record: &Value| netns_of(record) == Some(inode);
    stage.after(mark, "netns-created", |record| {
        is_event(record, "netns-created") && of_it(record)
    })?;
    let holder = RtnlHolder::start(&other, &mut volume)?;
    let mark = stage.mark();
    netns.delete()?;
    stage.after(mark, &format!("netns-dying {inode}"), |record| {
        is_event(record, "netns-dying") && of_it(record)
    })?;
    let finding = stage.after(mark, "netns-teardown-stall", |record| {
        is_finding(record, "netns-teardown-stall") && of_it(record)
    })?;
    let holders = finding["holders"].to_string();
    ensure!(
        holders.contains("cleanup_net"),
        "the worker that takes it down: {finding}"
    );
    let culprit = finding["evidence"].to_string();
    ensure!(
        culprit.contains(&*rtnl::COMM.to_string_lossy()) && culprit.contains("dev_ethtool"),
        "who has the lock: {finding}"
    );
    // It is off the kernel's list all the time, and not at its end for that.
    stage.after(mark, "netns-teardown-stall to be critical", |record| {
        is_finding(record, "netns-teardown-stall")
            && of_it(record)
            && record["severity"] == "critical"
    })?;
    let records = stage.records();
    let ended = records.get(mark..).into_iter().flatten().find(|record| {
        of_it(record) && (is_event(record, "netns-destroyed") || record["state"] == "resolved")
    });
    ensure!(ended.is_none(), "it has not ended: {ended:?}");
    let mark = stage.mark();
    volume.release();
    drop(holder);
    stage.after(mark, &format!("netns-destroyed {inode}"), |record| {
        is_event(record, "netns-destroyed") && of_it(record)
    })?;
    stage.after(mark, "the finding to be resolved", |record| {
        is_finding(record, "netns-teardown-stall") && record["state"] == "resolved"
    })?;
    Ok(())
}
