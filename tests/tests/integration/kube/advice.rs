//! What is advised is pasted into a root's shell of the node as it is printed.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use node_tracer_tests::kube::incident::KubeIncident;
use node_tracer_tests::kube::{Kube, PodSpec};
use node_tracer_tests::paste::{Shell, commands};
use node_tracer_tests::process::state;
use node_tracer_tests::scratch::container_id;
use node_tracer_tests::snapshot_run::{self, SnapshotRun};
use node_tracer_tests::stage::Need;
use node_tracer_tests::tracer::{command, is_finding, names_address, netns_of};
use node_tracer_tests::{test, wait};

use serde_json::Value;

use super::{SOON, trace};

/// For what the kubelet tries several times.
const LATE: Duration = Duration::from_secs(120);

const NEEDS: &[Need] = &{
    const KUBECTL: Need = Need::Program("kubectl", "kubernetes-client");
    let mut needs = [KUBECTL; snapshot_run::KUBE.len() + 1];
    let mut at = 0;
    while at < snapshot_run::KUBE.len() {
        needs[at] = snapshot_run::KUBE[at];
        at += 1;
    }
    needs
};

/// `scan`, as root runs it there.
fn scan(shell: &Shell, args: &str) -> anyhow::Result<SnapshotRun> {
    let scan = format!("exec node-tracer scan --stall-threshold 1s -o json {args}");
    snapshot_run::run(&mut shell.command(&scan))
}

/// The finding on a namespace that belongs to this test.
fn the_on(look: &SnapshotRun, rule: &str, inode: u64) -> Option<Value> {
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

/// The findings of some rules in what somebody wrote.
fn replayed(file: &Path, rule: &str) -> anyhow::Result<Vec<Value>> {
    let file = file.display().to_string();
    let look = snapshot_run::run(&mut command(&["replay", "-o", "json", &file])?)?;
    Ok(look.findings(rule).into_iter().cloned().collect())
}

/// Whether a step's command is whole on a line of its own; its comment may be on
/// the next ones.
fn is_printed(text: &str, step: &str) -> bool {
    let command = step.split("    # ").next().unwrap_or(step);
    let mut lines = text.lines().filter_map(|line| line.split_once(". "));
    lines.any(|(_, line)| line == command || line.starts_with(&format!("{command}    # ")))
}

test!(
    NEEDS,
    kube_each_command_of_a_ghosts_advice_does_what_it_says
);
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
    let text = shell
        .run("node-tracer scan -v --stall-threshold 1s")?
        .stdout;

    let kube = incident.kube();
    let sandbox = kube
        .node()
        .host_path(old.sandbox.netns_path.context("no netns")?);
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
            "findmnt" => state(stuck.pid) == Some('D'),
            "echo" => {
                wait::until("the reader to end", SOON, || {
                    Ok(matches!(state(stuck.pid), None | Some('Z')).then_some(()))
                })?;
                true
            }
            // kubelet may be at it just then.
            "crictl" => {
                wait::until("the sandbox to go", SOON, || {
                    Ok((!sandbox.exists()).then_some(()))
                })?;
                true
            }
            "node-tracer" => {
                wait::until("nothing stuck to be explained", SOON, || {
                    let again = shell.run(step)?;
                    Ok((!again.stdout.contains("stuck")).then_some(()))
                })?;
                true
            }
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
        "findmnt",
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
    let undo = commands(&ghost)
        .into_iter()
        .find(|step| step.starts_with("find "));
    let undone = shell.run(undo.context("no undo")?)?;
    ensure!(undone.code == Some(0), "{undone:#?}");
    ensure!(fs::read_to_string(&file)?.starts_with(&next.sandbox.id));
    incident.release()
}

test!(
    NEEDS,
    kube_ghost_that_nobody_has_stopped_and_a_leak_go_as_their_advice_says
);
/// The ghost's tasks live: kubelet was gone when its pod was deleted. A reservation
/// counts as leaked once nobody has written it for a minute.
fn kube_ghost_that_nobody_has_stopped_and_a_leak_go_as_their_advice_says() -> anyhow::Result<()> {
    let mut kube = Kube::start(&[])?;
    let shell = kube.shell()?;
    let (alive, old) = (
        kube.run_pod(&sleeper("alive"))?,
        kube.run_pod(&sleeper("old"))?,
    );
    let address = old.sandbox.ip.context("no address")?;
    let store = kube.node().store();
    let leaked = store.join(Ipv4Addr::from(u32::from(address) + 1).to_string());
    fs::write(&leaked, format!("{}\r\neth0", container_id()?))?;
    let day = Duration::from_secs(24 * 3600);
    let file = fs::File::options().write(true).open(&leaked)?;
    file.set_modified(SystemTime::now() - day)?;
    kube.kill_kubelet();
    kube.force_delete(&old.pod)?;
    // Longer than a deletion takes, and than a container takes to start.
    let look = scan(&shell, "--duration 50s")?;
    wait::pause(Duration::from_secs(12))?;
    let inode = old.sandbox.netns_inode;
    let ghost = the_on(&look, "ghost-sandbox", inode).with_context(|| look.brief())?;
    let pasted = shell.paste_all(&ghost)?;
    let path = old.sandbox.netns_path.context("no netns")?;
    let gone = !kube.node().host_path(path).exists() && state(old.pid).is_none();
    ensure!(gone, "{pasted:#?}");
    let after = scan(&shell, "")?;
    let again = the_on(&after, "ghost-sandbox", inode);
    ensure!(again.is_none(), "{again:#?}");

    // The ghost's advice, too, is to give back what is leaked after it.
    if leaked.exists() {
        shell.paste_all(look.the("leaked-reservation")?)?;
    }
    let used = store.join(alive.sandbox.ip.context("no address")?.to_string());
    ensure!(!leaked.exists() && used.exists(), "{pasted:#?}");
    Ok(())
}

test!(
    NEEDS,
    kube_pod_with_anothers_ip_is_recreated_as_its_advice_says
);
fn kube_pod_with_anothers_ip_is_recreated_as_its_advice_says() -> anyhow::Result<()> {
    let kube = Kube::start(&[])?;
    let shell = kube.shell()?;
    let right = kube.run_pod(&sleeper("right"))?;
    let wrong = kube.run_pod(&sleeper("wrong"))?;
    let address = right.sandbox.ip.context("no address")?;
    let into = format!("nsenter --net=/proc/{}/ns/net", wrong.pid);
    let added = shell.run(&format!("{into} ip addr add {address}/29 dev eth0"))?;
    ensure!(added.code == Some(0), "{added:#?}");
    let look = scan(&shell, "")?;
    let mut all = look.findings("duplicate-address").into_iter();
    let found = all.find(|it| names_address(it, &address.to_string()));
    let pasted = shell.paste_all(found.with_context(|| look.brief())?)?;
    let objects = (kube.object(&right.pod)?, kube.object(&wrong.pod)?);
    ensure!(matches!(objects, (Some(_), None)), "{pasted:#?}");
    ensure!(!is_cordoned(&kube)?, "{pasted:#?}");
    Ok(())
}

test!(NEEDS, kube_pod_that_gets_no_ip_gets_one_as_each_advice_says);
/// All IPs are reserved for containers that are gone: the kubelet makes a sandbox
/// again and again, and none gets an IP.
fn kube_pod_that_gets_no_ip_gets_one_as_each_advice_says() -> anyhow::Result<()> {
    let kube = Kube::start(&[])?;
    let shell = kube.shell()?;
    let first = kube.run_pod(&sleeper("first"))?;
    let own = first.sandbox.ip.context("no address")?;
    let store = kube.node().store();
    let day = SystemTime::now() - Duration::from_secs(24 * 3600);
    let others = (2..7).map(|more| Ipv4Addr::from((u32::from(own) & !7) + more));
    let others: Vec<_> = others.filter(|ip| *ip != own).collect();
    for ip in &others {
        let file = store.join(ip.to_string());
        fs::write(&file, format!("{}\r\neth0", container_id()?))?;
        fs::File::options()
            .write(true)
            .open(&file)?
            .set_modified(day)?;
    }
    let written = Instant::now();
    let mut tracer = trace(&kube, &[])?;
    let pod = kube.create_pod(&sleeper("late"))?;
    let mut findings = Vec::new();
    for rule in ["add-failed", "sandbox-churn"] {
        let is_its =
            |record: &Value| is_finding(record, rule) && record["pod"]["name"] == pod.name.as_str();
        findings.push(tracer.wait_for(rule, LATE, is_its)?);
    }
    let of_log = replayed(&kube.scratch().join("kubelet.log"), "sandbox-create-failed")?;
    // The kubelet names a failed sandbox before it names its pod: the log may end
    // between the two lines.
    let of_pod = of_log
        .into_iter()
        .find(|it| it["pod"]["name"] == pod.name.as_str());
    findings.push(of_pod.context("nothing on the pod in the log")?);
    let look = scan(&shell, "")?;
    findings.push(look.the("range-exhausted")?.clone());
    // What has been written within a minute may be a container's that starts.
    wait::pause(Duration::from_secs(62).saturating_sub(written.elapsed()))?;
    let mut pasted = Vec::new();
    for finding in &findings {
        let all = shell.paste_all(finding)?;
        ensure!(!all.is_empty(), "{finding:#}");
        pasted.extend(all);
    }
    let left = others
        .iter()
        .filter(|ip| store.join(ip.to_string()).exists());
    // The pod has one of them by now.
    ensure!(left.count() <= 1, "{pasted:#?}");
    ensure!(store.join(own.to_string()).exists(), "{pasted:#?}");
    ensure!(!is_cordoned(&kube)?, "{pasted:#?}");
    kube.wait_until_running(&pod)?;
    Ok(())
}
