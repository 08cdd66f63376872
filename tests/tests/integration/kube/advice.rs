//! What is advised is pasted into a root's shell of the node as it is printed.

use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use node_tracer_tests::kube::incident::KubeIncident;
use node_tracer_tests::kube::{Kube, PodSpec};
use node_tracer_tests::look::{self, Look};
use node_tracer_tests::paste::{Shell, commands};
use node_tracer_tests::process::state;
use node_tracer_tests::scratch::container_id;
use node_tracer_tests::stage::Need;
use node_tracer_tests::tracer::netns_of;
use node_tracer_tests::{test, wait};

use serde_json::Value;

use super::SOON;

const NEEDS: &[Need] = &{
    const KUBECTL: Need = Need::Program("kubectl", "kubernetes-client");
    let mut needs = [KUBECTL; look::KUBE.len() + 1];
    let mut at = 0;
    while at < look::KUBE.len() {
        needs[at] = look::KUBE[at];
        at += 1;
    }
    needs
};

/// `scan`, as root runs it there.
fn scan(shell: &Shell, args: &str) -> anyhow::Result<Look> {
    let scan = format!("exec node-tracer scan --stall-threshold 1s -o json {args}");
    look::run(&mut shell.command(&scan))
}

/// The finding on a namespace that belongs to this test.
fn the_on(look: &Look, rule: &str, inode: u64) -> Option<Value> {
    let mut all = look.findings(rule).into_iter();
    all.find(|it| netns_of(it) == Some(inode)).cloned()
}

fn is_cordoned(kube: &Kube) -> anyhow::Result<bool> {
    let node = kube.expect("GET", &format!("/api/v1/nodes/{}", kube.name()), None)?;
    Ok(node["spec"]["unschedulable"] == true)
}

fn sleeper(name: &str) -> PodSpec<'_> {
    PodSpec {
        name,
        argv: &["/bin/sleep", "100000"],
        volume: None,
        grace: 0,
    }
}

/// Whether a step's command is whole on a line of its own; its comment may be on
/// the next ones.
fn is_printed(text: &str, step: &str) -> bool {
    let command = step.split("    # ").next().unwrap_or(step);
    let mut lines = text.lines().filter_map(|line| line.split_once(". "));
    lines.any(|(_, line)| line == command || line.starts_with(&format!("{command}    # ")))
}

test!(NEEDS, kube_each_command_of_a_ghosts_advice_does_what_it_says);
/// A ghost whose IP is free: each command is pasted in its order, and each is seen
/// to have done what it says before the next one.
fn kube_each_command_of_a_ghosts_advice_does_what_it_says() -> anyhow::Result<()> {
    let mut incident = KubeIncident::new()?;
    let shell = incident.kube().shell()?;
    // The list of pods names the node, as it does on one that is in use.
    incident.kube().run_pod(&sleeper("neighbour"))?;
    let old = incident.start_old_pod("stuck")?;
    let address = old.sandbox.ip.context("no address")?;
    let stuck = incident.force_delete()?;
    let file = incident.garbage_collect()?;
    // Not before the task has been stuck for so long.
    let ghost = wait::until("a look that tells the ghost", SOON, || {
        let look = scan(&shell, "")?;
        Ok(the_on(&look, "ghost-sandbox", old.sandbox.netns_inode))
    })?;
    let text = shell.run("node-tracer scan -v --stall-threshold 1s")?.stdout;

    let kube = incident.kube();
    let sandbox = kube.node().host_path(old.sandbox.netns_path.context("no netns")?);
    let mut did = Vec::new();
    for step in commands(&ghost) {
        ensure!(is_printed(&text, step), "-v breaks {step:?}:\n{text}");
        let pasted = shell.run(step)?;
        // Its comment says so: kubelet may have removed the sandbox.
        let was_late = step.starts_with("crictl ") && pasted.stderr.contains("not found");
        let ok = pasted.code == Some(0) || was_late;
        let mut words = step.split(' ');
        let verb = match words.next() {
            Some("kubectl") => words.next(),
            program => program,
        };
        let verb = verb.context("an empty command")?;
        let done = match verb {
            "cp" => {
                let other = kube.run_pod(&sleeper("other"))?;
                fs::read(&file)?.is_empty() && other.sandbox.ip != Some(address)
            }
            "cordon" => is_cordoned(kube)?,
            "mount" => state(stuck.pid) == Some('D'),
            "echo" => {
                wait::until("the reader to end", SOON, || {
                    Ok(matches!(state(stuck.pid), None | Some('Z')).then_some(()))
                })?;
                true
            }
            "crictl" => !sandbox.exists(),
            "node-tracer" => !pasted.stdout.contains("stuck"),
            "find" => !file.exists(),
            "uncordon" => !is_cordoned(kube)?,
            _ => false,
        };
        ensure!(ok && done, "{pasted:#?}");
        did.push(verb);
    }
    let all = [
        "cp",
        "cordon",
        "mount",
        "echo",
        "crictl",
        "node-tracer",
        "find",
        "uncordon",
    ];
    ensure!(did == all, "{did:?}");
    let look = scan(&shell, "")?;
    look.expect_nothing_on(&[old.sandbox.netns_inode])?;

    // The undo takes no reservation from a pod that has the IP by then.
    let before = file.with_file_name("last_reserved_ip.0");
    fs::write(before, Ipv4Addr::from(u32::from(address) - 1).to_string())?;
    let next = kube.run_pod(&sleeper("next"))?;
    ensure!(next.sandbox.ip == Some(address), "{next:#?}");
    let undo = commands(&ghost).into_iter().find(|step| step.starts_with("find "));
    let undone = shell.run(undo.context("no undo")?)?;
    ensure!(undone.code == Some(0), "{undone:#?}");
    ensure!(fs::read_to_string(&file)?.starts_with(&next.sandbox.id));
    incident.release()
}

test!(NEEDS, kube_ghost_that_nobody_has_stopped_goes_as_its_advice_says);
/// Its tasks live: kubelet was gone when the pod was deleted. The runtime lets go
/// of the sandbox when that is pasted.
fn kube_ghost_that_nobody_has_stopped_goes_as_its_advice_says() -> anyhow::Result<()> {
    let mut kube = Kube::start(&[])?;
    let shell = kube.shell()?;
    kube.run_pod(&sleeper("neighbour"))?;
    let old = kube.run_pod(&sleeper("old"))?;
    kube.kill_kubelet();
    kube.force_delete(&old.pod)?;
    // Longer than a deletion takes.
    let look = scan(&shell, "--duration 40s")?;
    let inode = old.sandbox.netns_inode;
    let ghost = the_on(&look, "ghost-sandbox", inode).with_context(|| look.brief())?;
    let programs = shell.paste_all(&ghost)?;
    for program in ["kubectl", "kill", "crictl", "node-tracer"] {
        ensure!(programs.iter().any(|it| it == program), "{programs:?}: {ghost:#}");
    }
    let path = old.sandbox.netns_path.context("no netns")?;
    ensure!(!kube.node().host_path(path).exists(), "{ghost:#}");
    scan(&shell, "")?.expect_nothing_on(&[inode])
}

test!(NEEDS, kube_leaked_reservation_is_given_back_as_its_advice_says);
fn kube_leaked_reservation_is_given_back_as_its_advice_says() -> anyhow::Result<()> {
    let kube = Kube::start(&[])?;
    let shell = kube.shell()?;
    let pod = kube.run_pod(&sleeper("neighbour"))?;
    let address = pod.sandbox.ip.context("no address")?;
    let used = kube.node().store().join(address.to_string());
    let leaked = used.with_file_name(Ipv4Addr::from(u32::from(address) + 1).to_string());
    fs::write(&leaked, format!("{}\r\neth0", container_id()?))?;
    let day = Duration::from_secs(24 * 3600);
    fs::File::options().write(true).open(&leaked)?.set_modified(SystemTime::now() - day)?;
    let look = scan(&shell, "")?;
    let leak = look.the("leaked-reservation")?;
    let programs = shell.paste_all(leak)?;
    ensure!(!leaked.exists() && used.exists(), "{programs:?}: {leak:#}");
    Ok(())
}
