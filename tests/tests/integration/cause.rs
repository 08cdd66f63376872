//! Why a pod stays in ContainerCreating: from lines that somebody has copied,
//! from logs and from what kubectl prints, and live.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use node_tracer_tests::cgroup::Cgroup;
use node_tracer_tests::cni::{Attachment, Cni};
use node_tracer_tests::memory::Limit;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::pods::Pod;
use node_tracer_tests::scratch::{Scratch, container_id, pod_uid};
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, command, is_event, is_finding};
use serde_json::{Value, json};

const RULE: &str = "sandbox-create-failed";
/// The rule's own lines: each is understood by its words; here, by the whole
/// program.
const LINES: &str = include_str!("../../../node-tracer/crates/diagnosis/src/lines.txt");
const NOTHING: &str = include_str!("../../../node-tracer/crates/logs/src/failures/nothing.txt");

/// What the rule says of a text in the end: by finding, the last state of each.
fn findings(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut child = command(&["replay", "-o", "json", "-"])?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("the tracer")?;
    let mut input = child.stdin.take().context("stdin")?;
    input.write_all(text.as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    let mut found: Vec<Value> = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let record: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        if is_finding(&record, RULE) {
            found.retain(|known| known["id"] != record["id"]);
            found.push(record);
        }
    }
    Ok(found)
}

fn each_line(frame: impl Fn(&str) -> String) -> anyhow::Result<()> {
    let mut expected = "";
    let mut wrong = Vec::new();
    for line in LINES.lines() {
        if let Some(cause) = line.strip_prefix("== ") {
            expected = cause;
            continue;
        }
        let found = findings(&frame(line))?;
        let causes: Vec<_> = found.iter().map(|one| one["cause"].as_str()).collect();
        if causes != [Some(expected)] {
            wrong.push(format!("{causes:?} instead of {expected}: {line}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

test!(apart & [Need::Tracer], cause_is_told_from_any_single_line);
fn cause_is_told_from_any_single_line() -> anyhow::Result<()> {
    each_line(|line| format!("{line}\n"))
}

test!(
    apart & [Need::Tracer],
    cause_is_told_from_the_same_line_in_a_journal
);
fn cause_is_told_from_the_same_line_in_a_journal() -> anyhow::Result<()> {
    each_line(|line| {
        let entry = json!({
            "__REALTIME_TIMESTAMP": "1709374272000000",
            "_HOSTNAME": "node-b",
            "SYSLOG_IDENTIFIER": "kubelet",
            "MESSAGE": line.trim(),
        });
        format!("{entry}\n")
    })
}

test!(
    apart & [Need::Tracer],
    cause_is_not_told_of_what_is_no_failure
);
fn cause_is_not_told_of_what_is_no_failure() -> anyhow::Result<()> {
    for line in NOTHING.lines() {
        let found = findings(&format!("{line}\n"))?;
        ensure!(found.is_empty(), "{line}: {found:#?}");
    }
    Ok(())
}

const UID: &str = "0a1b2c3d-0000-4000-8000-000000000001";

test!(
    apart & [Need::Tracer],
    cause_that_four_have_told_is_one_finding_with_what_came_before
);
fn cause_that_four_have_told_is_one_finding_with_what_came_before() -> anyhow::Result<()> {
    let mut log = String::new();
    let pod = format!("web-0_shop({UID})");
    let mut fail = |at: &str, error: &str| {
        let once = error.replace('"', "\\\"");
        let twice = once.replace('\\', "\\\\").replace("\\\\\"", "\\\\\\\"");
        log += &format!(
            "Mar 02 10:{at} node-b containerd[700]: time=\"2024-03-02T10:{at}.1Z\" level=error \
             msg=\"RunPodSandbox for &PodSandboxMetadata{{Name:web-0,Uid:{UID},Namespace:shop,\
             Attempt:0,}} failed, error\" error=\"{once}\"\n\
             Mar 02 10:{at} node-b kubelet[900]: E0302 10:{at}.200000     900 \
             remote_runtime.go:176] \"RunPodSandbox from runtime service failed\" err=\"rpc error: \
             code = Unknown desc = {once}\"\n\
             Mar 02 10:{at} node-b kubelet[900]: E0302 10:{at}.300000     900 \
             kuberuntime_manager.go:815] \"CreatePodSandbox for pod failed\" err=\"rpc error: code \
             = Unknown desc = {once}\" pod=\"shop/web-0\"\n\
             Mar 02 10:{at} node-b kubelet[900]: E0302 10:{at}.400000     900 pod_workers.go:965] \
             \"Error syncing pod, skipping\" err=\"failed to \\\"CreatePodSandbox\\\" for \\\"{pod}\\\" \
             with CreatePodSandboxError: \\\"CreatePodSandbox for pod \\\\\\\"{pod}\\\\\\\" failed: \
             rpc error: code = Unknown desc = {twice}\\\"\" pod=\"shop/web-0\" podUID={UID}\n"
        );
    };
    fail(
        "11:12",
        "failed to create containerd task: mkdir /run/containerd/x: no space left on device",
    );
    fail(
        "12:30",
        "failed to reserve sandbox name \"web-0_shop_x_0\": name \"web-0_shop_x_0\" is reserved for \
         \"77aa\"",
    );
    let found = findings(&log)?;
    ensure!(found.len() == 1, "one finding: {found:#?}");
    let found = &found[0];
    ensure!(found["cause"] == "name-conflict", "{found:#}");
    ensure!(found["earlier_cause"] == "no-space", "{found:#}");
    let pod = json!({ "namespace": "shop", "name": "web-0", "uid": UID });
    ensure!(found["pod"] == pod, "{found:#}");
    let claims = found["evidence"].as_array().context("evidence")?;
    ensure!(claims.len() == 2, "one claim a cause: {found:#}");
    ensure!(
        claims[0]["source"] == "containerd",
        "who told it first: {found:#}"
    );
    ensure!(found["attempts"] == 1, "each was tried once: {found:#}");
    Ok(())
}

test!(
    apart & [Need::Tracer],
    cause_is_told_from_what_kubectl_prints
);
fn cause_is_told_from_what_kubectl_prints() -> anyhow::Result<()> {
    let described = "\
Name:         web-0
Namespace:    shop
Node:         node-b/10.0.0.4
Status:       Pending
Containers:
  web:
    State:          Waiting
      Reason:       ContainerCreating
Events:
  Type     Reason                  Age                From               Message
  ----     ------                  ----               ----               -------
  Normal   Scheduled               3m                 default-scheduler  Successfully assigned shop/web-0 to node-b
  Warning  FailedMount             2m (x10 over 3m)   kubelet            MountVolume.SetUp failed for volume \"config\" : configmap \"web-env\" not found
  Warning  FailedMount             60s                kubelet            Unable to attach or mount volumes: unmounted volumes=[config], unattached volumes=[config token]: timed out waiting for the condition
";
    let listed = "\
NAMESPACE   LAST SEEN   TYPE      REASON                   OBJECT      MESSAGE
shop        4m2s        Warning   FailedCreatePodSandBox   pod/web-0   Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"aa\": plugin type=\"calico\" failed (add): connection is unauthorized: Unauthorized
shop        3m          Normal    Pulled                   pod/db-0    Container image already present on machine
";
    for (text, cause) in [(described, "config-missing"), (listed, "cni-plugin-error")] {
        let found = findings(text)?;
        ensure!(found.len() == 1, "{found:#?}");
        ensure!(found[0]["cause"] == cause, "{:#}", found[0]);
        let pod = json!({ "namespace": "shop", "name": "web-0" });
        ensure!(found[0]["pod"] == pod, "{:#}", found[0]);
    }
    Ok(())
}

test!(
    &[Need::Root, IP, Need::Tracer, Need::Cni],
    cause_of_a_real_add_that_fails_is_told_live
);
/// A range of one address, taken by the first of two interfaces.
fn cause_of_a_real_add_that_fails_is_told_live() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let node = Netns::create()?;
    node.ip("link set lo up")?;
    let mut cni = Cni::start(&node, folder.path(), "198.18.250.0/24")?;
    let pod = Pod::new("shop", "cart-0")?;
    let netns = Netns::create()?;
    let mut tracer = Tracer::trace(&[])?;
    let mut config = cni.config("bridge");
    config["ipam"]["ranges"] = json!([[{
        "subnet": "198.18.250.0/24",
        "rangeStart": "198.18.250.9",
        "rangeEnd": "198.18.250.9",
    }]]);
    let plugin = cni.plugins().join("bridge");
    let ids = [container_id()?, container_id()?];
    for (id, ifname, code) in [(&ids[0], "eth0", 0), (&ids[1], "eth1", 1)] {
        let attachment = Attachment {
            container_id: id,
            netns: &netns,
            pod: &pod,
        };
        let run = cni.run("ADD", &plugin, ifname, attachment, &config)?;
        ensure!(run.code == Some(code), "{run:?}");
    }
    let found = tracer.wait_for("the finding", SOON, |record| {
        is_finding(record, RULE) && record["cause"] == "range-exhausted"
    })?;
    ensure!(found["pod"]["uid"] == pod.uid, "{found:#}");
    ensure!(found["sandbox_id"] == ids[1], "{found:#}");
    let advice = found["advice"][0].as_str().unwrap_or_default();
    ensure!(advice.contains("add-failed"), "{found:#}");
    let records = tracer.records();
    ensure!(
        records
            .iter()
            .any(|record| is_finding(record, "add-failed")),
        "it is told as add-failed, too"
    );
    Ok(())
}

/// How often a kill is tried.
const TRIES: usize = 4;

test!(
    &[
        Need::Root,
        Need::Tracer,
        Need::Cgroup,
        Need::MemoryController,
    ],
    cause_of_a_real_oom_kill_of_a_pause_process_is_told_live
);
fn cause_of_a_real_oom_kill_of_a_pause_process_is_told_live() -> anyhow::Result<()> {
    let (uid, id) = (pod_uid()?, container_id()?);
    let cgroup = Cgroup::create(&uid, &id)?;
    let limit = Limit::of(&cgroup, 4 << 20)?;
    let mut tracer = Tracer::trace(&[])?;
    // One that is not a sandbox's is an event, and no finding.
    for (comm, is_found) in [("java", false), ("pause", true)] {
        // Whose it was is read after the kill, if it is not gone by then: of one in
        // many it is not known while the tracer has just begun.
        let mut before: Vec<Value> = Vec::new();
        let killed = loop {
            let status = limit.burst(comm, &cgroup)?;
            ensure!(status.signal() == Some(libc::SIGKILL), "{comm}: {status}");
            let killed = tracer.wait_for("oom-killed", SOON, |record| {
                let task = &record["task"];
                let is_new = task["comm"] == comm && !before.contains(task);
                is_event(record, "oom-killed") && is_new
            })?;
            if killed["task"]["pod_uid"].is_string() || before.len() + 1 == TRIES {
                break killed;
            }
            before.push(killed["task"].clone());
        };
        ensure!(killed["task"]["pod_uid"] == uid, "{killed:#}");
        ensure!(killed["task"]["container_id"] == id, "{killed:#}");
        if is_found {
            let found = tracer.wait_for("the finding", SOON, |record| is_finding(record, RULE))?;
            ensure!(found["cause"] == "sandbox-oom", "{found:#}");
            ensure!(
                found["pod"]["uid"] == uid && found["sandbox_id"] == id,
                "{found:#}"
            );
            let claim = found["evidence"][0]["claim"].as_str().unwrap_or_default();
            ensure!(claim.contains("pause"), "{found:#}");
        }
    }
    Ok(())
}
