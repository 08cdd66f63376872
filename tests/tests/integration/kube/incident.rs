//! The incident itself: what comes from the API, and whose pod it was.

use node_tracer_tests::test;
use node_tracer_tests::wait;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::kube::incident::{KubeIncident, Stuck};
use node_tracer_tests::kube::{Account, Kube, Running};
use node_tracer_tests::snapshot_run::{self, SnapshotRun};
use node_tracer_tests::tracer::{Ended, Tracer, is_event, is_finding, names_address, netns_of};
use serde_json::Value;

use super::{SOON, address_of, line, scan, trace};

/// Any answer, also while the API server hangs, which costs a second.
const LIMIT: Duration = Duration::from_secs(3);

/// The rules that tell of the incident.
const RULES: [&str; 3] = ["blocked-task", "duplicate-address", "ghost-sandbox"];

fn is_ghost(record: &Value, of: &Running) -> bool {
    is_finding(record, "ghost-sandbox") && netns_of(record) == Some(of.sandbox.netns_inode)
}

/// `resolved`, or the phase.
pub(super) fn stage_of(record: &Value) -> &str {
    match record["state"].as_str() {
        Some("resolved") => "resolved",
        _ => record["phase"].as_str().unwrap_or_default(),
    }
}

fn wait_for_stage(tracer: &mut Tracer, old: &Running, stage: &str) -> anyhow::Result<Value> {
    tracer.wait_for(&format!("ghost-sandbox: {stage}"), SOON, |record| {
        is_ghost(record, old) && stage_of(record) == stage
    })
}

/// Fails unless the API server is what a finding's claim with these words is
/// from.
fn claimed_by_the_api(finding: &Value, words: &str) -> anyhow::Result<()> {
    let evidence = finding["evidence"].as_array().into_iter().flatten();
    let mut claims = evidence.filter(|one| one["source"] == "API server");
    let said = claims.any(|one| {
        let claim = one["claim"].as_str();
        claim.is_some_and(|claim| claim.contains(words))
    });
    ensure!(said, "the API server does not say {words:?}: {finding:#}");
    Ok(())
}

/// Fails unless a ghost is this pod's, and this process is what holds it.
pub(super) fn check_ghost(ghost: &Value, old: &Running, stuck: &Stuck) -> anyhow::Result<()> {
    let pod = &ghost["pod"];
    for (key, expected) in [
        ("namespace", &old.pod.namespace),
        ("name", &old.pod.name),
        ("uid", &old.pod.uid),
    ] {
        ensure!(pod[key] == expected.as_str(), "its pod is {pod}");
    }
    ensure!(ghost["sandbox_id"] == old.sandbox.id.as_str(), "{ghost:#}");
    let holders = ghost["holders"].as_array().into_iter().flatten();
    let mut stuck_ones = holders.filter(|holder| holder["pid"] == stuck.pid);
    let holder = stuck_ones.next().context("the stuck one is no holder")?;
    ensure!(
        holder["state"] == "D"
            && holder["comm"] == "dd"
            && holder["wchan"] == stuck.wchan.as_str()
            && holder["container_id"] == old.container_id.as_str(),
        "{holder:#}"
    );
    Ok(())
}

/// A finding of the incident by this rule.
fn concerns(record: &Value, rule: &str, old: &Running, address: &str) -> bool {
    is_finding(record, rule)
        && (netns_of(record) == Some(old.sandbox.netns_inode) || names_address(record, address))
}

/// The phases that one ghost went through, each once, in order.
fn stages(ended: &Ended, old: &Running) -> Vec<String> {
    let ghosts = ended.records.iter().filter(|record| is_ghost(record, old));
    let mut stages: Vec<String> = ghosts.map(|record| stage_of(record).to_owned()).collect();
    stages.dedup();
    stages
}

test!(snapshot_run::KUBE, kube_incident_is_told_by_the_api);
/// Everything from the API: the list, the deletion, the verdict; also by a snapshot_run,
/// and by one while the API server hangs.
fn kube_incident_is_told_by_the_api() -> anyhow::Result<()> {
    let mut incident = KubeIncident::new()?;
    let account = Account::create(incident.kube())?;
    account.grant(incident.kube())?;
    let config = account.kubeconfig().display().to_string();
    let args = ["--kubeconfig", &config];
    let mut tracer = trace(incident.kube(), &args)?;

    let old = incident.start_old_pod("stuck")?;
    let address = address_of(&old)?;
    let stuck = incident.force_delete()?;
    tracer.wait_for("pod-deleted", SOON, |record| {
        is_event(record, "pod-deleted") && record["pod"]["uid"] == old.pod.uid.as_str()
    })?;
    let ghost = wait_for_stage(&mut tracer, &old, "suspected")?;
    check_ghost(&ghost, &old, &stuck)?;
    claimed_by_the_api(&ghost, "disappeared from the API")?;
    incident.garbage_collect()?;
    wait_for_stage(&mut tracer, &old, "armed")?;
    let new = incident.start_new_pod("reborn")?;
    ensure!(
        new.sandbox.ip == old.sandbox.ip,
        "the stage gives out the same address"
    );
    wait_for_stage(&mut tracer, &old, "conflict")?;
    let mut ids = Vec::new();
    for rule in RULES {
        let finding =
            tracer.wait_for(rule, SOON, |record| concerns(record, rule, &old, &address))?;
        ids.push(finding["id"].clone());
    }

    // Where the machine is slow no source answers a look in its time.
    if wait::patience() == 1 {
        looks_agree(&incident, &args, &ids, [&old, &new], &stuck)?;
    }

    incident.release()?;
    for (rule, id) in RULES.iter().zip(&ids) {
        tracer.wait_for(&format!("{rule}: resolved"), SOON, |record| {
            record["id"] == *id && record["state"] == "resolved"
        })?;
    }
    let ended = tracer.stop()?;
    let stages = stages(&ended, &old);
    ensure!(
        stages == ["suspected", "armed", "conflict", "resolved"],
        "in order and each once: {stages:?}"
    );
    let mut wrong = ended.records.iter().filter(|record| is_ghost(record, &new));
    ensure!(wrong.next().is_none(), "the new pod is no ghost");
    Ok(())
}

/// A scan finds what the trace has, and explain answers while the API server
/// hangs.
fn looks_agree(
    incident: &KubeIncident,
    args: &[&str],
    ids: &[Value],
    [old, new]: [&Running; 2],
    stuck: &Stuck,
) -> anyhow::Result<()> {
    let look = scan(incident.kube(), args)?;
    look.expect_code(1)?;
    let mut found = Vec::new();
    for rule in RULES {
        let finding = look.the(rule)?;
        found.push(finding["id"].clone());
    }
    ensure!(found == *ids, "scan: {found:?}; trace: {ids:?}");
    let ghost = look.the("ghost-sandbox")?;
    check_ghost(ghost, old, stuck)?;
    claimed_by_the_api(ghost, "is not in the API (read after the sandbox was made)")?;

    let address = address_of(old)?;
    incident.kube().freeze()?;
    let hung = explain(incident.kube(), args, &address);
    incident.kube().thaw()?;
    let hung = hung?;
    println!(
        "        explain, the API server hanging: {:.2} s",
        hung.elapsed.as_secs_f32()
    );
    hung.expect_code(1)?;
    hung.expect_unknown("API server 127.0.0.1:6443")?;
    hung.expect_unknown("no answer within")?;
    let netns = &hung.explanation()?["netns"];
    for inode in [old.sandbox.netns_inode, new.sandbox.netns_inode] {
        let mut parts = netns.as_array().into_iter().flatten();
        ensure!(parts.any(|part| part["inode"] == inode), "{netns:#}");
    }
    Ok(())
}

/// Asks, and if the answer was late, once or twice more: what else the machine
/// does at the moment is not explain's fault.
fn explain(kube: &Kube, args: &[&str], word: &str) -> anyhow::Result<SnapshotRun> {
    let args = [args, &[word]].concat();
    let mut took = Vec::new();
    for _ in 0..3 {
        let look = snapshot_run::run(&mut line(kube, "explain", &args)?)?;
        if look.elapsed < LIMIT {
            return Ok(look);
        }
        took.push(look.elapsed);
    }
    anyhow::bail!("explain took {took:?}")
}

test!(snapshot_run::KUBE, kube_pod_of_the_same_name_is_another_one);
/// As a StatefulSet does it. The credentials are the kubelet's, found below the
/// node's root, and of one node only: its name is in the certificate.
fn kube_pod_of_the_same_name_is_another_one() -> anyhow::Result<()> {
    let mut incident = KubeIncident::new()?;
    let args = ["--node-name", "not-its-name-in-the-cluster"];
    let mut tracer = trace(incident.kube(), &args)?;
    let old = incident.start_old_pod("web-0")?;
    let stuck = incident.force_delete()?;
    let new = incident.start_new_pod("web-0")?;
    ensure!(new.pod.uid != old.pod.uid, "two pods");
    let ghost = wait_for_stage(&mut tracer, &old, "suspected")?;
    check_ghost(&ghost, &old, &stuck)?;
    let other = format!("is another one ({})", new.pod.uid);
    let ghost = tracer.wait_for("the namesake", SOON, |record| {
        is_ghost(record, &old) && record.to_string().contains(&other)
    })?;
    claimed_by_the_api(&ghost, &other)?;

    let look = scan(incident.kube(), &args)?;
    let ghost = look.the("ghost-sandbox")?;
    check_ghost(ghost, &old, &stuck)?;
    claimed_by_the_api(ghost, &other)?;

    incident.release()?;
    wait_for_stage(&mut tracer, &old, "resolved")?;
    // The old sandbox's DEL comes while the new one lives: to be told, as what
    // has done no harm.
    let del = tracer.wait_for("stale-del: harmless", SOON, |record| {
        is_finding(record, "stale-del") && record["effect"] == "harmless"
    })?;
    ensure!(
        del["old_container_id"] == old.sandbox.id.as_str()
            && del["new_container_id"] == new.sandbox.id.as_str()
            && del["severity"] == "info",
        "{del:#}"
    );
    let ended = tracer.stop()?;
    let wrong = ended.records.iter().find(|record| {
        record["type"] == "finding"
            && record["rule"] != "stale-del"
            && netns_of(record) == Some(new.sandbox.netns_inode)
    });
    ensure!(wrong.is_none(), "a false alarm: {:#}", wrong.context("")?);
    Ok(())
}
