//! The nodes of the stage are real: the one with a container runtime, and the
//! one with a crowd of pods.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::containerd::incident::{self, RealIncident};
use node_tracer_tests::containerd::{self, Containerd, Generation, Setup};
use node_tracer_tests::crowd::{self, Crowd};
use node_tracer_tests::netns::inode_of_process;
use node_tracer_tests::pods::Pod;
use node_tracer_tests::process::state;
use node_tracer_tests::test;
use node_tracer_tests::{stage, wait};

test!(containerd::NEEDS, stage_containerd_is_real);
fn stage_containerd_is_real() -> anyhow::Result<()> {
    is_real(Generation::Machine, "runc")
}

test!(containerd::NEWER, stage_containerd_2_is_real);
fn stage_containerd_2_is_real() -> anyhow::Result<()> {
    is_real(Generation::Newer, "runc")
}

test!(containerd::NEWER, stage_crun_is_real);
fn stage_crun_is_real() -> anyhow::Result<()> {
    is_real(Generation::Crun, "crun")
}

/// The first line that a program of the node says of its version.
fn version(node: &Containerd, program: &str) -> anyhow::Result<String> {
    let mut line = Command::new("chroot");
    let output = line
        .arg(node.root())
        .args([program, "--version"])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn is_real(generation: Generation, starter: &str) -> anyhow::Result<()> {
    let node = Containerd::start_as(Setup {
        generation,
        ..Setup::default()
    })?;
    let versions = [version(&node, "containerd")?, version(&node, starter)?];
    println!("        {}", versions.join("; "));
    ensure!(
        generation == Generation::Machine || versions[0].contains(" 2."),
        "it is containerd 2: {}",
        versions[0]
    );
    let pod = Pod::new("shop", "web-0")?;
    let first = node.run_pod(&pod.name, &pod.namespace, &pod.uid, 0, false)?;
    let ip = first.ip.context("an address")?;
    let path = first.netns_path.as_ref().context("a netns path")?;
    ensure!(
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(node.host_path(path))?)
            == first.netns_inode,
        "{} is the sandbox's",
        path.display()
    );
    let reserved = fs::read_to_string(node.store().join(ip.to_string()))?;
    ensure!(reserved.starts_with(&first.id), "reserved for {reserved}");
    ensure!(
        fs::read_to_string(format!("/proc/{}/comm", first.pid))?.trim() == "pause",
        "the first process"
    );

    let (container, pid) = node.run_container(&first, "app", &["/bin/sleep", "1000"], &[])?;
    ensure!(inode_of_process(pid)? == first.netns_inode, "same netns");
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let expected = format!("/kubepods/besteffort/pod{}/{container}", pod.uid);
    ensure!(cgroups.contains(&expected), "its cgroups:\n{cgroups}");

    let agent = Pod::new("kube-system", "agent")?;
    let second = node.run_pod(&agent.name, &agent.namespace, &agent.uid, 0, true)?;
    ensure!(
        second.netns_path.is_none() && second.netns_inode == inode_of_process(node.pid())?,
        "the host network is the node's own"
    );

    node.freeze()?;
    let answered = node.stop(&first, Duration::from_millis(300));
    node.thaw()?;
    ensure!(!answered?, "a frozen runtime does not answer");

    wait::until("the sandbox to stop", Duration::from_secs(20), || {
        let stopped = node.stop(&first, Duration::from_secs(5));
        Ok(stopped.unwrap_or(false).then_some(()))
    })?;
    let status = node.cri().sandbox_status(&first.id)?;
    ensure!(!status.ready, "it is stopped: {}", status.all);
    node.remove(&first)?;
    ensure!(
        !node.store().join(ip.to_string()).exists(),
        "the address is free"
    );
    ensure!(state(pid).is_none(), "its container is gone");

    let (helper, containerd) = (node.pid(), node.runtime_pid());
    drop(node);
    for pid in [helper, containerd, second.pid] {
        ensure!(state(pid).is_none(), "{pid} is gone");
    }
    Ok(())
}

test!(incident::NEEDS, stage_containerd_incident_is_real);
fn stage_containerd_incident_is_real() -> anyhow::Result<()> {
    let mut incident = RealIncident::new()?;
    let old = incident.start_old_pod()?;
    let stuck = incident.force_delete()?;
    ensure!(state(stuck.pid) == Some('D'), "the reader is in D");
    ensure!(
        stuck.wchan == "request_wait_answer",
        "it waits for FUSE, not in {}",
        stuck.wchan
    );
    ensure!(inode_of_process(stuck.pid)? == old.netns_inode, "its netns");
    ensure!(
        !fs::read_to_string(incident.pods_file())?.contains(&old.config.metadata.uid),
        "the API has forgotten the pod"
    );
    incident.garbage_collect()?;
    let new = incident.start_new_pod()?;
    ensure!(new.ip == old.ip, "{:?} and {:?}", new.ip, old.ip);
    ensure!(new.netns_inode != old.netns_inode, "two namespaces");
    incident.release()?;
    ensure!(state(stuck.pid).is_none(), "the reader is gone");
    ensure!(state(new.pid).is_some(), "the new pod stays");
    incident.clean()
}

test!(incident::NEEDS, stage_containerd_cleans_up_at_every_step);
fn stage_containerd_cleans_up_at_every_step() -> anyhow::Result<()> {
    type Step = fn(&mut RealIncident) -> anyhow::Result<()>;
    let steps: [Step; 4] = [
        |incident| incident.start_old_pod().map(drop),
        |incident| incident.force_delete().map(drop),
        |incident| incident.garbage_collect().map(drop),
        |incident| incident.start_new_pod().map(drop),
    ];
    for count in [0, 1, 2, 4] {
        let mut incident = RealIncident::new()?;
        for step in &steps[..count] {
            step(&mut incident)?;
        }
        drop(incident);
        let left = stage::leftovers();
        ensure!(left.is_empty(), "after {count} steps: {}", left.join(", "));
    }
    Ok(())
}

test!(crowd::NEEDS, stage_crowd_is_real);
fn stage_crowd_is_real() -> anyhow::Result<()> {
    let crowd = Crowd::build(20, 90)?;
    let names = fs::read_dir(crowd.root().join("run/netns"))?.count();
    ensure!(names == 20, "{names} names");
    let list = |args: &[&str]| -> anyhow::Result<String> {
        let mut command = crowd.command("ip".as_ref())?;
        Ok(String::from_utf8(command.args(args).output()?.stdout)?)
    };
    let veths = list(&["-o", "link", "show", "type", "veth", "up"])?;
    ensure!(veths.lines().count() == 20, "{veths}");
    let children = format!("/proc/{0}/task/{0}/children", crowd.pid());
    let children = fs::read_to_string(children)?;
    let pids: Vec<u32> = children.split(' ').flat_map(str::parse).collect();
    let mut tasks = 0;
    let mut inodes = std::collections::BTreeSet::new();
    for pid in &pids {
        tasks += fs::read_dir(format!("/proc/{pid}/task"))?.count();
        inodes.insert(inode_of_process(*pid)?);
        let addresses = fs::read_to_string(format!("/proc/{pid}/net/fib_trie"))?;
        ensure!(addresses.contains("198.18.0."), "{addresses}");
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        ensure!(cgroup.contains("/kubepods/besteffort/pod"), "{cgroup}");
    }
    ensure!(
        pids.len() == 20 && inodes.len() == 20,
        "{pids:?} {inodes:?}"
    );
    ensure!(tasks == 90, "{tasks} tasks");
    drop(crowd);
    ensure!(pids.iter().all(|pid| state(*pid).is_none()), "all are gone");
    Ok(())
}
