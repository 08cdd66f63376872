//! Laws about what the service tells of the incident, from the first pod to
//! the end.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::output::entries;
use super::{Facts, Guest, SOON, Stage};
use crate::containerd::Sandbox;
use crate::containerd::incident::{Node as _, RealIncident};
use crate::netns::inode_of_process;
use crate::pods::Pod;
use crate::tracer::{is_event, is_finding, names_address, netns_of};
use crate::{journald, wait};

/// The rules that the incident is found by, all of them, in order of name.
pub(super) const INCIDENT: [&str; 3] = ["blocked-task", "duplicate-address", "ghost-sandbox"];

/// Runs one pod to an orderly end, and leaves another running: nothing is to be
/// found about them, ever.
pub(super) fn ordinary_pod(stage: &mut Stage) -> anyhow::Result<()> {
    let guest = Guest::connect()?;
    let mut pods = stage.pods.take().context("no list of pods")?;
    let mut run = |namespace: &str, name: &str| -> anyhow::Result<(Pod, Sandbox)> {
        let pod = Pod::new(namespace, name)?;
        pods.put(&pod, None)?;
        let sandbox = Sandbox::make(&guest.cri, guest.pod_config(&pod))?;
        pods.put(&pod, sandbox.ip)?;
        sandbox.run_container(&guest.cri, "app", &["/bin/sleep", "100000"], &[])?;
        Ok((pod, sandbox))
    };
    let (_, agent) = run("kube-system", "agent")?;
    let (plain, sandbox) = run("shop", "plain")?;
    stage.innocent.push(agent.netns_inode);
    added(stage, &sandbox)?;
    ensure!(
        guest.cri.stop_sandbox(&sandbox.id, SOON)?,
        "an ordinary sandbox does not stop"
    );
    guest.cri.remove_sandbox(&sandbox.id)?;
    pods.remove(&plain)?;
    // Its number may be the next one's.
    destroyed(stage, &sandbox)?;
    stage.incident = Some(RealIncident::on(guest, pods)?);
    Ok(())
}

/// The runtime's ADD of a sandbox, with all that it is about.
fn added(stage: &mut Stage, sandbox: &Sandbox) -> anyhow::Result<()> {
    let call = stage.output.wait_for("the ADD of bridge", SOON, |record| {
        is_event(record, "cni-call")
            && record["container_id"] == sandbox.id.as_str()
            && record["plugin"] == "bridge"
    })?;
    let metadata = &sandbox.config.metadata;
    ensure!(
        call["command"] == "ADD"
            && call["exit_code"] == 0
            && call["trusted"] == true
            && call["pod"]["namespace"] == metadata.namespace.as_str()
            && call["pod"]["name"] == metadata.name.as_str()
            && call["pod"]["uid"] == metadata.uid.as_str()
            && netns_of(&call) == Some(sandbox.netns_inode),
        "{} of {metadata:?}: {call}",
        sandbox.id
    );
    let address = sandbox.ip.context("no address")?.to_string();
    let ips = call["result"]["ips"].as_array().context("no result")?;
    ensure!(
        ips.iter()
            .any(|ip| ip.as_str().is_some_and(|ip| ip.starts_with(&address))),
        "not {address}: {call}"
    );
    stage.output.wait_for("its address", SOON, |record| {
        is_event(record, "address-added")
            && names_address(record, &address)
            && netns_of(record) == Some(sandbox.netns_inode)
    })?;
    Ok(())
}

fn destroyed(stage: &mut Stage, sandbox: &Sandbox) -> anyhow::Result<()> {
    let inode = sandbox.netns_inode;
    let what = format!("netns-destroyed {inode}");
    stage.output.wait_for(&what, SOON, |record| {
        is_event(record, "netns-destroyed") && netns_of(record) == Some(inode)
    })?;
    Ok(())
}

/// The pod is force-deleted, the runtime does not come back: the ghost is found
/// with who holds it, and where.
pub(super) fn suspected(stage: &mut Stage) -> anyhow::Result<()> {
    let old = stage.incident()?.start_old_pod()?;
    let address = old.ip.context("no address")?.to_string();
    added(stage, &old)?;
    let facts = Facts {
        old: old.clone(),
        address,
        stuck: None,
        new: None,
    };
    let facts = stage.facts.insert(facts);
    let incident = stage.incident.as_mut().context("there is no incident")?;
    facts.stuck = Some(incident.force_delete()?);
    let pid = facts.stuck()?.pid;
    let ghost = stage.output.finding("ghost-sandbox", SOON, |finding| {
        // It may be told before the task counts as stuck, and its stack is read.
        let holders = finding["holders"].as_array().into_iter().flatten();
        let mut holders = holders.filter(|holder| holder["pid"] == pid);
        let stack = |holder: &Value| {
            holder["stack"]
                .as_array()
                .is_some_and(|all| !all.is_empty())
        };
        finding["phase"] == "suspected" && holders.any(stack)
    })?;
    check_ghost(stage.facts()?, &ghost)
}

/// What is true of the ghost in every phase.
fn check_ghost(facts: &Facts, ghost: &Value) -> anyhow::Result<()> {
    let metadata = &facts.old.config.metadata;
    let stuck = facts.stuck()?;
    let netns_path = facts.old.netns_path.as_ref().context("no netns path")?;
    let holders = ghost["holders"].as_array().context("no holders")?;
    let mut tasks = holders.iter().filter(|holder| holder["kind"] == "task");
    let task = tasks.find(|holder| holder["pid"] == stuck.pid);
    let task = task.with_context(|| format!("{} is no holder: {ghost}", stuck.pid))?;
    ensure!(
        ghost["pod"]["namespace"] == metadata.namespace.as_str()
            && ghost["pod"]["name"] == metadata.name.as_str()
            && ghost["pod"]["uid"] == metadata.uid.as_str()
            && ghost["sandbox_id"] == facts.old.id.as_str()
            && netns_of(ghost) == Some(facts.old.netns_inode)
            && names_address(ghost, &facts.address),
        "it is about {} of {metadata:?}, netns {}, {}: {ghost}",
        facts.old.id,
        facts.old.netns_inode,
        facts.address
    );
    // The node's mounts are looked at now and then. Until then none is named,
    // and another one's never.
    let others = paths(ghost).into_iter().find(|path| !is(path, netns_path));
    ensure!(
        others.is_none(),
        "{others:?} is not its path {netns_path:?}: {ghost}"
    );
    ensure!(
        task["state"] == "D"
            && task["comm"] == "dd"
            && task["wchan"] == stuck.wchan.as_str()
            && task["container_id"] == stuck.container_id.as_str(),
        "{stuck:?} holds it: {task}"
    );
    same_stack(task, &stuck.stack)
}

/// Where a finding's namespace is mounted.
fn paths(finding: &Value) -> Vec<&str> {
    let paths = finding["netns"]["paths"].as_array().into_iter().flatten();
    paths.filter_map(Value::as_str).collect()
}

/// Whether two paths are of the same mount: /var/run is /run.
fn is(path: &str, other: &Path) -> bool {
    Path::new(path).file_name() == other.file_name()
}

/// The same functions as the kernel shows for the task.
fn same_stack(holder: &Value, expected: &[String]) -> anyhow::Result<()> {
    let frames = holder["stack"].as_array().context("no stack")?;
    let names: Vec<&str> = frames
        .iter()
        .filter_map(|frame| frame.as_str()?.split('+').next())
        .collect();
    ensure!(
        !names.is_empty() && names == expected,
        "stack {names:?}, not {expected:?}"
    );
    Ok(())
}

/// The stuck task is found for itself, too.
pub(super) fn blocked(stage: &mut Stage) -> anyhow::Result<()> {
    let stuck = stage.facts()?.stuck()?.clone();
    let finding = stage.output.finding("blocked-task", SOON, |finding| {
        let holder = &finding["holders"][0];
        let stack = holder["stack"].as_array();
        holder["pid"] == stuck.pid && stack.is_some_and(|stack| !stack.is_empty())
    })?;
    let facts = stage.facts()?;
    ensure!(
        finding["severity"] == "warning"
            && netns_of(&finding) == Some(facts.old.netns_inode)
            && names_address(&finding, &facts.address)
            && finding["pod"]["name"] == facts.old.config.metadata.name.as_str(),
        "whose it is: {finding}"
    );
    same_stack(&finding["holders"][0], &stuck.stack)
}

/// Somebody frees the address: it can be handed out from here on.
pub(super) fn armed(stage: &mut Stage) -> anyhow::Result<()> {
    stage.incident()?.garbage_collect()?;
    let ghost = stage
        .output
        .finding("ghost-sandbox", SOON, |finding| finding["phase"] == "armed")?;
    ensure!(ghost["severity"] == "critical", "{ghost}");
    check_ghost(stage.facts()?, &ghost)
}

/// The next pod gets it: two findings, and both name it.
pub(super) fn conflict(stage: &mut Stage) -> anyhow::Result<()> {
    let new = stage.incident()?.start_new_pod()?;
    added(stage, &new)?;
    let facts = stage.facts.as_mut().context("there is no incident")?;
    ensure!(new.ip == facts.old.ip, "{:?}, {:?}", new.ip, facts.old.ip);
    let (inode, name) = (new.netns_inode, new.config.metadata.name.clone());
    facts.new = Some(new);
    let path = facts.old.netns_path.clone().context("no netns path")?;
    let ghost = stage.output.finding("ghost-sandbox", SOON, |finding| {
        // Somewhen on the way it is told where the namespace is mounted.
        finding["phase"] == "conflict" && paths(finding).iter().any(|named| is(named, &path))
    })?;
    let facts = stage.facts()?;
    check_ghost(facts, &ghost)?;
    ensure!(ghost["severity"] == "critical", "{ghost}");
    let (old_inode, address) = (facts.old.netns_inode, facts.address.clone());
    let duplicate = stage.output.finding("duplicate-address", SOON, |finding| {
        // The pod's name is known a moment after its namespace is.
        names_address(finding, &address) && finding.to_string().contains(&name)
    })?;
    let text = duplicate.to_string();
    ensure!(
        duplicate["severity"] == "critical"
            && [old_inode, inode]
                .iter()
                .all(|inode| text.contains(&inode.to_string())),
        "{address} is in {old_inode} and {inode}: {duplicate}"
    );
    let who = ghost.to_string();
    ensure!(who.contains(&name), "who has been given it: {who}");
    Ok(())
}

/// The findings by the journal's fields, and by nothing else; what they hold is
/// what the service has told otherwise.
pub(super) fn journal(stage: &mut Stage) -> anyhow::Result<()> {
    let facts = stage.facts()?;
    let metadata = &facts.old.config.metadata;
    let pid = facts.stuck()?.pid;
    let ghost = vec![
        String::from("NODE_TRACER_RULE=ghost-sandbox"),
        format!("NODE_TRACER_IP={}", facts.address),
        format!("NODE_TRACER_POD={}/{}", metadata.namespace, metadata.name),
        format!("NODE_TRACER_POD_UID={}", metadata.uid),
        format!("NODE_TRACER_SANDBOX_ID={}", facts.old.id),
        format!("NODE_TRACER_NETNS={}", facts.old.netns_inode),
        format!("NODE_TRACER_PID={pid}"),
        String::from("NODE_TRACER_SEVERITY=critical"),
        String::from("NODE_TRACER_STATE=updated"),
    ];
    let address = facts.address.clone();
    let duplicate = vec![
        String::from("NODE_TRACER_RULE=duplicate-address"),
        format!("NODE_TRACER_IP={address}"),
    ];
    let blocked = vec![
        String::from("NODE_TRACER_RULE=blocked-task"),
        format!("NODE_TRACER_PID={pid}"),
        format!("NODE_TRACER_CONTAINER_ID={}", facts.stuck()?.container_id),
    ];
    for matches in [&ghost, &duplicate, &blocked] {
        let entry = wait::until(&matches.join(" "), SOON, || Ok(entries(matches)?.pop()))?;
        let text = journald::values(&entry, "NODE_TRACER_JSON").pop();
        let record: Value = serde_json::from_str(&text.context("no NODE_TRACER_JSON")?)?;
        let priority = if record["severity"] == "critical" {
            "2"
        } else {
            "4"
        };
        ensure!(entry["PRIORITY"] == priority, "PRIORITY: {entry}");
        ensure!(
            entry["_UID"] == "0" && entry["NODE_TRACER_FINDING_ID"] == record["id"],
            "{entry}"
        );
        // journald gets it before or after the file does.
        stage
            .output
            .wait_for("the same record in the file", SOON, |other| {
                *other == record
            })?;
    }
    let title = entries(&ghost)?.pop().unwrap_or_default();
    ensure!(
        title["NODE_TRACER_JSON"]
            .as_str()
            .is_some_and(|text| text.contains("\"conflict\"")),
        "the last word on it is the conflict: {title}"
    );
    let other = entries(&[String::from("NODE_TRACER_IP=192.0.2.1")])?;
    ensure!(other.is_empty(), "an address that nobody has: {other:?}");
    explained(&address)
}

/// `journalctl -t node-tracer` tells the incident, and with `-x` what such a
/// finding means.
fn explained(address: &str) -> anyhow::Result<()> {
    let journalctl = |args: &[&str]| -> anyhow::Result<String> {
        let mut line = Command::new("journalctl");
        let output = line.args(args).stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "journalctl {args:?}: {output:?}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let matches = format!("NODE_TRACER_IP={address}");
    let rule = "NODE_TRACER_RULE=ghost-sandbox";
    let all = ["-t", "node-tracer", "--no-pager"];
    let observed = journalctl(&[&all[..], &["-o", "cat"]].concat())?;
    let title = format!("{address} is held by a deleted pod");
    ensure!(
        observed.contains(&title),
        "journalctl -t node-tracer: {observed}"
    );
    // The package has put the catalog in its place, and told journald of it.
    let text = journalctl(&[&all[..], &["-x", "-n", "1", rule, &matches]].concat())?;
    let meaning = format!("A network namespace outlives its pod and still holds {address}");
    ensure!(text.contains(&meaning), "journalctl -x: {text}");
    Ok(())
}

/// The volume fails the read, the task ends, the runtime finishes with the
/// sandbox: everything that was open is over.
pub(super) fn resolved(stage: &mut Stage) -> anyhow::Result<()> {
    stage.incident()?.release()?;
    let Stage { output, facts, .. } = stage;
    let facts = facts.as_ref().context("there is no incident")?;
    for rule in INCIDENT {
        output.finding(rule, SOON, |finding| {
            finding["state"] == "resolved" && facts.concerns(finding)
        })?;
    }
    let old = stage.facts()?.old.clone();
    destroyed(stage, &old)
}

/// Nothing but the incident was found, nothing is open any more, and no record
/// was lost.
pub(super) fn quiet(stage: &mut Stage) -> anyhow::Result<()> {
    // Longer than any rule takes to make up its mind about what was left over.
    wait::pause(Duration::from_secs(15))?;
    let Stage {
        output,
        facts,
        innocent,
        ..
    } = stage;
    let facts = facts.as_ref().context("there is no incident")?;
    let host = inode_of_process(1)?;
    let records = output.records()?;
    let findings = records.iter().filter(|record| record["type"] == "finding");
    let mut last = BTreeMap::new();
    for finding in findings {
        let rule = finding["rule"].as_str().unwrap_or_default();
        let inode = netns_of(finding);
        let innocent = inode.is_some_and(|inode| innocent.contains(&inode));
        ensure!(
            INCIDENT.contains(&rule) && !innocent,
            "a false alarm: {finding}"
        );
        // A task of the machine itself may have waited for its disk.
        if facts.concerns(finding) {
            last.insert(finding["id"].to_string(), finding);
        } else {
            ensure!(
                rule == "blocked-task" && inode.is_none_or(|inode| inode == host),
                "a false alarm: {finding}"
            );
        }
    }
    let rules: Vec<&str> = last
        .values()
        .filter_map(|one| one["rule"].as_str())
        .collect();
    ensure!(rules.len() == INCIDENT.len(), "found: {rules:?}");
    for finding in last.values() {
        ensure!(
            finding["state"] == "resolved",
            "it is still open: {finding}"
        );
    }
    let lost = records
        .iter()
        .find(|record| is_finding(record, "events-lost"));
    ensure!(lost.is_none(), "{lost:?}");
    Ok(())
}
