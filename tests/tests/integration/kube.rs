//! The incident on a node of a real cluster: pods come and go by the API, and
//! the tracer asks the API server with each kind of credentials.

mod advice;
mod blocks;
mod condition;
mod elsewhere;
mod events;
mod helm;
mod incident;
mod plugin;
mod released;
mod restart;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::kube::incident::{KubeIncident, NEEDS};
use node_tracer_tests::kube::{Account, Kube, PodSpec, Running, agent};
use node_tracer_tests::netns::inode_of_process;
use node_tracer_tests::process;
use node_tracer_tests::process::state;
use node_tracer_tests::snapshot_run::{self, SnapshotRun};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{Tracer, binary, is_event, netns_of};
use node_tracer_tests::{stage, wait};

/// Time for what the API server or kubelet has a part in.
const SOON: Duration = Duration::from_secs(40);

/// `node-tracer COMMAND -o json` on the node, with no credentials but those that
/// are told or found on it.
fn line(kube: &Kube, command: &str, args: &[&str]) -> anyhow::Result<Command> {
    let node = kube.node();
    let mut line = node.command(binary()?)?;
    line.args([command, "-o", "json", "--stall-threshold", "1s", "--root"])
        .arg(node.root())
        .args(args)
        .env("HOME", kube.scratch());
    for name in ["KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NODE_NAME"] {
        line.env_remove(name);
    }
    Ok(line)
}

/// Starts a trace, and waits until it watches.
fn trace(kube: &Kube, args: &[&str]) -> anyhow::Result<Tracer> {
    let mut tracer = Tracer::start(&mut line(kube, "trace", args)?, |_| ())?;
    tracer.wait_until_ready()?;
    Ok(tracer)
}

fn address_of(pod: &Running) -> anyhow::Result<String> {
    Ok(pod.sandbox.ip.context("no address")?.to_string())
}

test!(NEEDS, stage_kube_is_real);
/// Without this, a passing test of the tracer means little.
fn stage_kube_is_real() -> anyhow::Result<()> {
    let mut incident = KubeIncident::new()?;
    let old = incident.start_old_pod("stuck")?;
    let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", old.pid))?;
    let expected = format!(
        "/{}/kubepods/besteffort/pod{}/{}",
        incident.kube().node().cgroup_top(),
        old.pod.uid,
        old.container_id
    );
    ensure!(cgroups.contains(&expected), "its cgroups:\n{cgroups}");
    let object = incident.kube().object(&old.pod)?.context("no object")?;
    let address = address_of(&old)?;
    ensure!(
        object["status"]["podIP"] == address.as_str(),
        "kubelet has told its address: {}",
        object["status"]
    );

    let stuck = incident.force_delete()?;
    ensure!(
        stuck.wchan == "request_wait_answer",
        "it waits for FUSE, not in {}",
        stuck.wchan
    );
    ensure!(
        inode_of_process(stuck.pid)? == old.sandbox.netns_inode,
        "its netns"
    );
    // kubelet looks after its pods every two seconds.
    wait::pause(Duration::from_secs(4))?;
    ensure!(state(stuck.pid) == Some('D'), "the reader stays in D");
    let still = incident.kube().sandbox_of(&old.pod)?;
    let still = still.context("kubelet has got rid of the sandbox")?;
    ensure!(still.netns_inode == old.sandbox.netns_inode, "its netns");

    // Dropped as it is: nobody lets go of anything in order.
    let kube = incident.kube();
    let mut pids = kube.pids();
    pids.extend([kube.node().pid(), kube.node().runtime_pid(), stuck.pid]);
    ensure!(pids.len() == 6, "{pids:?}");
    // What kubelet sets is the node's, and not the machine's.
    let set = kube.node().host_path("/run/sysctl/vm/overcommit_memory");
    let set = std::fs::read_to_string(set)?;
    ensure!(set.trim() == "1", "kubelet has set its sysctls: {set}");
    let left = stage::leftovers();
    let changed = left.iter().find(|left| left.starts_with("sysctl"));
    ensure!(changed.is_none(), "{}", changed.context("")?);
    drop(incident);
    for pid in pids {
        ensure!(state(pid).is_none(), "{pid} is gone");
    }
    stage::nothing_left()
}

/// Looks, and if something of the machine's own did not answer in time, once or
/// twice more: it may have had much else to do.
fn scan(kube: &Kube, args: &[&str]) -> anyhow::Result<SnapshotRun> {
    let mut look = snapshot_run::run(&mut line(kube, "scan", args)?)?;
    for _ in 0..2 {
        let unknown = look.unknown();
        if !unknown.iter().any(|text| text.contains("no answer within")) {
            break;
        }
        look = snapshot_run::run(&mut line(kube, "scan", args)?)?;
    }
    Ok(look)
}

test!(snapshot_run::KUBE, kube_ordinary_deletion_is_no_ghost);
/// A pod that takes its time to end, as it may: here until it has been looked at.
fn kube_ordinary_deletion_is_no_ghost() -> anyhow::Result<()> {
    let kube = Kube::start(&[])?;
    let account = Account::create(&kube)?;
    account.grant(&kube)?;
    let config = account.kubeconfig().display().to_string();
    let args = ["--kubeconfig", &config];
    let mut tracer = trace(&kube, &args)?;
    // As a first process it does not hear SIGTERM.
    let pod = kube.run_pod(&PodSpec {
        name: "slow",
        argv: &["/bin/sleep", "100000"],
        volume: None,
        grace: 300,
    })?;
    let inode = pod.sandbox.netns_inode;
    kube.delete(&pod.pod)?;
    let object = kube.object(&pod.pod)?.context("the object is gone")?;
    ensure!(
        object["metadata"]["deletionTimestamp"].is_string(),
        "it is being deleted: {}",
        object["metadata"]
    );
    let during = scan(&kube, &args)?;
    let still = kube.object(&pod.pod)?.is_some() && state(pod.pid).is_some();
    ensure!(still, "the pod is still being deleted then");
    during.expect_nothing_on(&[inode])?;

    process::signal(pod.pid, libc::SIGKILL)?;
    tracer.wait_for("netns-destroyed", SOON, |record| {
        is_event(record, "netns-destroyed") && netns_of(record) == Some(inode)
    })?;
    wait::until("the object to go", SOON, || {
        Ok(kube.object(&pod.pod)?.is_none().then_some(()))
    })?;
    // What is said late would be said within this.
    wait::pause(Duration::from_secs(3))?;
    let ended = tracer.stop()?;
    let wrong = ended
        .records
        .iter()
        .find(|record| record["type"] == "finding" && netns_of(record) == Some(inode));
    ensure!(wrong.is_none(), "a false alarm: {:#}", wrong.context("")?);
    let mut deleted = ended.records.iter().filter(|record| {
        is_event(record, "pod-deleted") && record["pod"]["uid"] == pod.pod.uid.as_str()
    });
    ensure!(deleted.next().is_some(), "the deletion was not told");
    Ok(())
}

test!(snapshot_run::KUBE, kube_pod_asks_with_its_service_account);
/// As a DaemonSet has it: what the account may not do is told as such, and no
/// other credentials are taken instead.
fn kube_pod_asks_with_its_service_account() -> anyhow::Result<()> {
    let program = binary()?.canonicalize()?;
    let folder = program.parent().context("no folder")?;
    let kube = Kube::start(&[folder])?;
    let account = Account::create(&kube)?;
    agent::publish_authority(&kube)?;
    let token = "/var/run/secrets/kubernetes.io/serviceaccount/token";

    let refused = agent::run(&kube, &program, "scan")?;
    let text = serde_json::to_string(&refused.records)?;
    for words in ["403 Forbidden", token, "list pods"] {
        ensure!(text.contains(words), "no {words:?} in {refused:#?}");
    }
    account.grant(&kube)?;
    let pod = kube.run_pod(&PodSpec {
        name: "web-0",
        argv: &["/bin/sleep", "100000"],
        volume: None,
        grace: 0,
    })?;
    let granted = agent::run(&kube, &program, &format!("explain {}", address_of(&pod)?))?;
    ensure!(granted.code == Some(0), "{granted:#?}");
    let explanation = granted.records.first().context("no record")?;
    let listed = &explanation["pods"];
    ensure!(listed.to_string().contains(&pod.pod.uid), "{explanation:#}");
    Ok(())
}
