//! What is released for a cluster: the image and the manifest, taken as they
//! are by containerd, the API server and kubelet. From inside, with the rights
//! that the manifest asks for, the tracer finds what happens outside; and so it
//! does in the pod of `kubectl debug node`.

use anyhow::{Context as _, ensure};
use node_tracer_tests::kube::incident::KubeIncident;
use node_tracer_tests::kube::released::{Daemon, apply, debug, import};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{is_finding, names_address, netns_of};
use serde_json::Value;

use super::address_of;
use super::incident::{check_ghost, stage_of};
use crate::packaging::{MANIFEST, released};

/// What the DaemonSet's pod is to see of the node.
const SIGNALS: [&str; 8] = [
    "netns-created",
    "netns-dying",
    "netns-destroyed",
    "address",
    "task-blocked",
    "cni-call",
    "cri",
    "pods",
];

/// Where kubelet's credentials are, in the pod of `kubectl debug`.
const KUBELET: [&str; 2] = ["--kubeconfig", "/host/etc/kubernetes/kubelet.conf"];

test!(
    node_tracer_tests::kube::released::NEEDS,
    kube_released_daemon_set_and_debug_pod_find_the_incident
);
fn kube_released_daemon_set_and_debug_pod_find_the_incident() -> anyhow::Result<()> {
    let mut incident = KubeIncident::new()?;
    let program = released("-linux-musl")?;
    let manifest = std::fs::read_to_string(released(MANIFEST)?)?;
    import(incident.kube(), &released("-image.tar")?, &manifest)?;
    let made = apply(incident.kube(), &manifest)?;
    let set = made.iter().find(|(kind, _)| *kind == "DaemonSet");
    let (_, set) = set.context("no DaemonSet")?;
    let daemon = Daemon::start(incident.kube(), set, &program)?;
    let coverage = daemon.wait_for("coverage", |record| record["type"] == "coverage")?;
    sees_all(&coverage)?;

    let old = incident.start_old_pod("stuck")?;
    let address = address_of(&old)?;
    let stuck = incident.force_delete()?;
    let ghost = |stage: &str| {
        daemon.wait_for(&format!("ghost-sandbox: {stage}"), |record| {
            is_finding(record, "ghost-sandbox")
                && netns_of(record) == Some(old.sandbox.netns_inode)
                && stage_of(record) == stage
        })
    };
    check_ghost(&ghost("suspected")?, &old, &stuck)?;
    incident.garbage_collect()?;
    ghost("armed")?;
    incident.start_new_pod("reborn")?;
    let conflict = ghost("conflict")?;
    check_ghost(&conflict, &old, &stuck)?;
    ensure!(names_address(&conflict, &address), "{conflict:#}");

    let image = set["spec"]["template"]["spec"]["containers"][0]["image"].as_str();
    let image = image.context("no image")?;
    let explain = |more: &[&str]| -> anyhow::Result<String> {
        let command = [&["node-tracer", "explain", &address][..], more].concat();
        let (code, text) = debug(incident.kube(), image, &program, &command)?;
        let text = plain(&text);
        ensure!(code == 1, "exit code {code}: {text}");
        let holder = format!("dd ({})", stuck.pid);
        for words in [&holder, &stuck.wchan, &old.sandbox.netns_inode.to_string()] {
            ensure!(text.contains(words.as_str()), "no {words:?} in {text}");
        }
        Ok(text)
    };
    // The account that kubectl's pod has may list no pods, and none else's
    // credentials are taken unasked.
    let alone = explain(&[])?;
    ensure!(alone.contains("no API access"), "{alone}");
    let told = explain(&KUBELET)?;
    let words = format!("deleted {}/{}", old.pod.namespace, old.pod.name);
    ensure!(told.contains(&words), "no {words:?} in {told}");

    incident.release()?;
    ghost("resolved")?;
    daemon.stop(incident.kube())
}

/// Fails unless everything that is watched has a mechanism, and none of them is
/// the lowest.
fn sees_all(coverage: &Value) -> anyhow::Result<()> {
    let signals = coverage["signals"].as_array().context("no signals")?;
    for wanted in SIGNALS {
        let found = signals.iter().find(|item| item["signal"] == wanted);
        let mechanism = found.and_then(|item| item["mechanism"].as_str());
        ensure!(
            mechanism.is_some_and(|mechanism| mechanism != "comparison"),
            "{wanted}: {}",
            found.unwrap_or(coverage)
        );
    }
    Ok(())
}

/// What a terminal was shown: without colours, on one line.
fn plain(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic());
        out.push_str(&part[end.map_or(0, |at| at + 1)..]);
    }
    let words: Vec<&str> = out.split_whitespace().collect();
    words.join(" ")
}
