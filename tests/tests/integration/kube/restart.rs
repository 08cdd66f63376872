//! A kubelet that is killed, is away for a while and comes back. The tracer
//! asks the API server with its credentials.

use node_tracer_tests::snapshot_run::KUBE;
use node_tracer_tests::test;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::kube::{Kube, PodSpec};
use node_tracer_tests::tracer::{is_event, netns_of};
use node_tracer_tests::wait;
use serde_json::Value;

use super::{SOON, trace};

const fn pod(name: &str) -> PodSpec<'_> {
    PodSpec {
        name,
        argv: &["/bin/sleep", "100000"],
        volume: None,
        // As a first process it does not hear SIGTERM.
        grace: 1,
    }
}

test!(KUBE, faults_kubelet_that_restarts_is_no_deletion);
/// What happens without it stays undone, and is done when it is back; none of
/// that is a finding, and the list of pods is known all the while.
fn faults_kubelet_that_restarts_is_no_deletion() -> anyhow::Result<()> {
    let mut kube = Kube::start(&[])?;
    let mut tracer = trace(&kube, &[])?;
    let old = kube.run_pod(&pod("web-0"))?;

    kube.kill_kubelet();
    kube.delete(&old.pod)?;
    let new = kube.create_pod(&pod("web-1"))?;
    // Longer than what is asked for again and again takes.
    wait::pause(Duration::from_secs(5))?;
    let object = kube.object(&old.pod)?.context("the object is gone")?;
    ensure!(
        object["metadata"]["deletionTimestamp"].is_string(),
        "it is being deleted: {object:#}"
    );

    kube.start_kubelet()?;
    let new = kube.wait_until_running(&new)?;
    let inodes = [old.sandbox.netns_inode, new.sandbox.netns_inode];
    tracer.wait_for("the end of the old pod", SOON, |record| {
        is_event(record, "netns-destroyed") && netns_of(record) == Some(inodes[0])
    })?;
    tracer.wait_for("the old pod's deletion", SOON, |record| {
        is_event(record, "pod-deleted") && record["pod"]["uid"] == old.pod.uid.as_str()
    })?;
    tracer.wait_for("the new pod's ADD", SOON, |record| {
        is_event(record, "cni-call")
            && record["command"] == "ADD"
            && record["pod"]["uid"] == new.pod.uid.as_str()
    })?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    let wrong = |record: &&Value| {
        let about = || netns_of(record).is_some_and(|inode| inodes.contains(&inode));
        record["type"] == "finding" && about()
            || is_event(record, "source-failed") && record["source"] != "cri"
    };
    let wrong = ended.records.iter().find(wrong);
    ensure!(wrong.is_none(), "{:#}", wrong.context("")?);
    Ok(())
}
