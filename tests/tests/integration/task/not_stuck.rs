//! Tasks in state D that are not stuck: vfork parents, and those that a cgroup
//! of version 1 has frozen. Each time another one is stuck beside them, which
//! is told: so the tracer has looked, by each of its ways.

use node_tracer_tests::test;
use std::time::Duration;

use anyhow::ensure;
use node_tracer_tests::freezer::Freezer;
use node_tracer_tests::hangfs::HangFs;
use node_tracer_tests::helper::Killed;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::process::{self, PodProcess, state};
use node_tracer_tests::snapshot_run::on_host;
use node_tracer_tests::stage::Need;
use node_tracer_tests::stuck::Stuck;
use node_tracer_tests::tracer::{SOON, Tracer, is_event, is_finding};
use serde_json::Value;

use super::{is_about, is_blocked};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Freezer, Need::Tracer];

const THRESHOLD: [&str; 2] = ["--stall-threshold", "1s"];
const WAYS: [&[&str]; 4] = [
    &[],
    &["--limit", "raw_tp"],
    &["--limit", "iterator"],
    &["--limit", "comparison"],
];

/// Looks in every way until the stuck one is told, and once more by a scan.
/// Nothing may be said of the others.
fn told_alone(stuck: u32, others: &[u32]) -> anyhow::Result<()> {
    let check = |records: &[Value], way: &str| -> anyhow::Result<()> {
        let of_others = |record: &&Value| others.iter().any(|pid| is_about(record, *pid));
        let wrong = records.iter().filter(of_others).find(|record| {
            is_finding(record, "blocked-task")
                || is_event(record, "task-blocked")
                || is_event(record, "task-unblocked")
        });
        ensure!(wrong.is_none(), "{way}: a false alarm: {wrong:?}");
        let told = records.iter().any(|record| is_blocked(record, stuck, true));
        ensure!(told, "{way}: process {stuck} is stuck");
        Ok(())
    };
    for way in WAYS {
        let mut tracer = Tracer::trace(&[&THRESHOLD[..], way].concat())?;
        let both = |record: &Value| is_blocked(record, stuck, true);
        tracer.wait_for("a blocked-task finding", SOON, both)?;
        // The others have slept for longer by then.
        let ended = tracer.stop()?;
        check(&ended.records, &way.join(" "))?;
    }
    let look = on_host("scan", &THRESHOLD)?;
    check(&look.ended.records, "scan")
}

test!(
    super::NEEDS,
    stall_of_a_vfork_parent_is_none_and_its_childs_is_one
);
fn stall_of_a_vfork_parent_is_none_and_its_childs_is_one() -> anyhow::Result<()> {
    let mut volume = HangFs::mount()?;
    let mut other = HangFs::mount()?;
    let netns = Netns::create()?;
    let (parent, child) = PodProcess::vfork_parent("shell", &netns, None, &mut volume)?;
    let mut reader = PodProcess::reader("reader", &netns, None, &mut other)?;
    reader.kill_into_d()?;
    // The child waits interruptibly yet.
    told_alone(reader.pid(), &[parent.pid(), child])?;
    // It is not reaped, as its parent sleeps.
    process::signal(child, libc::SIGKILL)?;
    told_alone(child, &[parent.pid()])?;
    ensure!(state(parent.pid()) == Some('D'), "the parent has gone on");
    for mut held in [volume, other] {
        held.release();
    }
    Ok(())
}

test!(NEEDS, stall_of_a_frozen_task_is_none);
fn stall_of_a_frozen_task_is_none() -> anyhow::Result<()> {
    let netns = Netns::create()?;
    // The one is frozen in its sleep, the other one in the freezer.
    let asleep = Killed(netns.command("sleep").arg("1000").spawn()?);
    let pause = PodProcess::pause(&netns, None)?;
    let mut volume = HangFs::mount()?;
    let mut reader = PodProcess::reader("reader", &netns, None, &mut volume)?;
    reader.kill_into_d()?;
    let freezer = Freezer::create()?;
    let frozen = [asleep.0.id(), pause.pid()];
    for pid in frozen {
        freezer.add(pid)?;
    }
    freezer.freeze()?;
    for pid in frozen {
        ensure!(state(pid) == Some('D'), "{pid} is {:?}", state(pid));
    }
    told_alone(reader.pid(), &frozen)?;
    volume.release();
    Ok(())
}

test!(NEEDS, stall_in_a_cgroup_that_cannot_be_frozen_for_it_is_one);
/// Who is stuck keeps its cgroup from being frozen as a whole, and is told all
/// the same.
fn stall_in_a_cgroup_that_cannot_be_frozen_for_it_is_one() -> anyhow::Result<()> {
    let mut volume = HangFs::mount()?;
    let netns = Netns::create()?;
    let mut reader = PodProcess::reader("reader", &netns, None, &mut volume)?;
    reader.kill_into_d()?;
    let pause = PodProcess::pause(&netns, None)?;
    let freezer = Freezer::create()?;
    freezer.add(pause.pid())?;
    freezer.add(reader.pid())?;
    ensure!(freezer.freeze().is_err(), "one that is stuck was frozen");
    told_alone(reader.pid(), &[pause.pid()])?;
    volume.release();
    Ok(())
}

test!(super::FROZEN, stall_of_many_short_sleeps_is_none);
/// Who uses a disk that is slow is in state D nearly whenever somebody looks,
/// and has run each time in between.
fn stall_of_many_short_sleeps_is_none() -> anyhow::Result<()> {
    const FROZEN: Duration = Duration::from_millis(700);
    const THAWED: Duration = Duration::from_millis(150);
    let mut tasks = Stuck::start(4)?;
    for way in WAYS {
        let tracer = Tracer::trace(&[&THRESHOLD[..], way].concat())?;
        tasks.take_turns(FROZEN, THAWED, Duration::from_secs(6))?;
        let ended = tracer.stop()?;
        let wrong = ended.records.iter().find(|record| {
            let told = is_finding(record, "blocked-task") || is_event(record, "task-blocked");
            told && tasks.pids().iter().any(|pid| is_about(record, *pid))
        });
        ensure!(wrong.is_none(), "{way:?}: a false alarm: {wrong:?}");
    }
    let slept = tasks.stop()?;
    ensure!(slept > 50, "only {slept} sleeps");
    Ok(())
}
