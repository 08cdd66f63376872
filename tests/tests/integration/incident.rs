//! The whole incident, as the tracer tells it.

use anyhow::{Context as _, ensure};
use node_tracer_tests::incident::{Incident, READER, Sandbox};
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{
    Ended, SOON, Tracer, is_event, is_finding, names_address, netns_of,
};
use serde_json::Value;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Cgroup, IP, Need::Tracer];
const CNI: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Cgroup,
    IP,
    Need::Tracer,
    Need::Cni,
];

fn trace(incident: &Incident) -> anyhow::Result<Tracer> {
    let pods = incident.pods_file().display().to_string();
    Tracer::trace(&["--pods", &pods, "--stall-threshold", "1s"])
}

fn is_ghost(record: &Value, sandbox: &Sandbox) -> bool {
    is_finding(record, "ghost-sandbox") && netns_of(record) == Some(sandbox.netns_inode)
}

/// `resolved`, or the phase.
fn stage_of(record: &Value) -> &str {
    match record["state"].as_str() {
        Some("resolved") => "resolved",
        _ => record["phase"].as_str().unwrap_or_default(),
    }
}

fn wait_for_stage(tracer: &mut Tracer, old: &Sandbox, stage: &str) -> anyhow::Result<Value> {
    tracer.wait_for(&format!("ghost-sandbox: {stage}"), SOON, |record| {
        is_ghost(record, old) && stage_of(record) == stage
    })
}

/// The stages that one ghost went through, each once, in order.
fn stages(ended: &Ended, old: &Sandbox) -> Vec<String> {
    let mut stages: Vec<String> = ended
        .records
        .iter()
        .filter(|record| is_ghost(record, old))
        .map(|record| stage_of(record).to_owned())
        .collect();
    stages.dedup();
    stages
}

test!(CNI, incident_is_told_in_order);
fn incident_is_told_in_order() -> anyhow::Result<()> {
    let mut incident = Incident::new()?;
    let mut tracer = trace(&incident)?;
    let old = incident.start_old_pod()?;
    let address = old.address.to_string();
    tracer.wait_for("netns-created", SOON, |record| {
        is_event(record, "netns-created") && netns_of(record) == Some(old.netns_inode)
    })?;
    tracer.wait_for("address-added", SOON, |record| {
        is_event(record, "address-added")
            && names_address(record, &address)
            && netns_of(record) == Some(old.netns_inode)
    })?;

    let stuck = incident.force_delete()?;
    let ghost = wait_for_stage(&mut tracer, &old, "suspected")?;
    ensure!(
        names_address(&ghost, &address),
        "it names {address}: {ghost}"
    );
    ensure!(
        ghost["pod"]["uid"] == old.pod.uid.as_str(),
        "it names the pod: {ghost}"
    );
    let holds = |ghost: &Value| {
        let mut holders = ghost["holders"].as_array().into_iter().flatten();
        holders.any(|holder| {
            holder["kind"] == "task" && holder["pid"] == stuck.pid && holder["comm"] == READER
        })
    };
    tracer.wait_for("the ghost's holder", SOON, |record| {
        is_ghost(record, &old) && holds(record)
    })?;

    incident.garbage_collect()?;
    wait_for_stage(&mut tracer, &old, "armed")?;
    let new = incident.start_new_pod()?;
    ensure!(
        new.address == old.address,
        "the stage gives out the same address"
    );
    let conflict = wait_for_stage(&mut tracer, &old, "conflict")?;
    ensure!(
        !conflict["advice"].as_array().is_none_or(Vec::is_empty),
        "it says what to do: {conflict}"
    );
    tracer.wait_for("duplicate-address", SOON, |record| {
        is_finding(record, "duplicate-address") && names_address(record, &address)
    })?;
    let wrong = tracer
        .records()
        .into_iter()
        .find(|record| is_ghost(record, &new));
    ensure!(
        wrong.is_none(),
        "the new pod is no ghost: {}",
        wrong.context("none")?
    );

    incident.release()?;
    let resolved = wait_for_stage(&mut tracer, &old, "resolved")?;
    ensure!(resolved["id"] == ghost["id"], "one finding all along");
    let ended = tracer.stop()?;
    ensure!(
        stages(&ended, &old) == ["suspected", "armed", "conflict", "resolved"],
        "in order and each once: {:?}",
        stages(&ended, &old)
    );
    incident.clean()
}

test!(NEEDS, incident_without_cni_is_told_too);
/// Without reservations nothing says when the address can be given out, so
/// only the beginning and the end are the same.
fn incident_without_cni_is_told_too() -> anyhow::Result<()> {
    let mut incident = Incident::without_cni()?;
    let mut tracer = trace(&incident)?;
    let old = incident.start_old_pod()?;
    incident.force_delete()?;
    tracer.wait_for("ghost-sandbox", SOON, |record| {
        is_ghost(record, &old) && record["state"] != "resolved"
    })?;
    incident.garbage_collect()?;
    incident.start_new_pod()?;
    wait_for_stage(&mut tracer, &old, "conflict")?;
    incident.release()?;
    wait_for_stage(&mut tracer, &old, "resolved")?;
    drop(tracer);
    incident.clean()
}

test!(CNI, incident_without_a_netns_file_is_found);
/// The name is gone, as after MNT_DETACH: only the task holds the namespace.
fn incident_without_a_netns_file_is_found() -> anyhow::Result<()> {
    let mut incident = Incident::new()?;
    let mut tracer = trace(&incident)?;
    let old = incident.start_old_pod()?;
    incident.force_delete()?;
    incident.drop_old_name()?;
    tracer.wait_for("ghost-sandbox", SOON, |record| {
        is_ghost(record, &old) && record["state"] != "resolved"
    })?;
    incident.release()?;
    wait_for_stage(&mut tracer, &old, "resolved")?;
    drop(tracer);
    incident.clean()
}

test!(CNI, healthy_pods_are_no_findings);
/// A pod that runs, and one whose deletion goes well, are worth no finding.
fn healthy_pods_are_no_findings() -> anyhow::Result<()> {
    let mut incident = Incident::new()?;
    let tracer = trace(&incident)?;
    let old = incident.start_old_pod()?;
    let new = incident.start_new_pod()?;
    node_tracer_tests::wait::pause(std::time::Duration::from_secs(3))?;
    let ended = tracer.stop()?;
    let inodes = [old.netns_inode, new.netns_inode, incident.node().inode()];
    let wrong = ended.records.iter().find(|record| {
        record["type"] == "finding" && netns_of(record).is_some_and(|inode| inodes.contains(&inode))
    });
    ensure!(wrong.is_none(), "a false alarm: {}", wrong.context("none")?);
    incident.clean()
}
