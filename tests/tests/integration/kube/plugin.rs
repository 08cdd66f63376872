//! `kubectl node-tracer`, with a real kubectl (the oldest and the newest that are
//! here), API server and kubelet between it and the tracer's pod, and a second node
//! that is only an object, with pods that pretend to be its tracer.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use node_tracer_tests::kube::Account;
use node_tracer_tests::kube::agent;
use node_tracer_tests::kube::clients;
use node_tracer_tests::kube::incident::KubeIncident;
use node_tracer_tests::snapshot_run;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use node_tracer_tests::tracer::binary;
use serde_json::{Value, json};

use super::helm::Terminal;

/// The tracer, on the node.
const FOLDER: &str = "/var/lib/nt";
const PLUGIN: &str = "kubectl-node_tracer";

const NEEDS: &[Need] = &{
    let mut needs = [Need::Kubectl; snapshot_run::KUBE.len() + 1];
    let mut at = 0;
    while at < snapshot_run::KUBE.len() {
        needs[at] = snapshot_run::KUBE[at];
        at += 1;
    }
    needs
};

test!(
    NEEDS,
    kube_plugin_asks_all_nodes_and_says_which_did_not_answer
);
fn kube_plugin_asks_all_nodes_and_says_which_did_not_answer() -> anyhow::Result<()> {
    let mut incident = KubeIncident::new()?;
    let old = incident.start_old_pod("stuck")?;
    let address = old.sandbox.ip.context("no address")?;
    incident.force_delete()?;
    incident.garbage_collect()?;
    let new = incident.start_new_pod("reborn")?;
    let kube = incident.kube();
    let shell = kube.shell()?;
    let folder = kube.node().host_path(FOLDER);
    fs::create_dir_all(&folder)?;
    for name in ["node-tracer", PLUGIN] {
        fs::copy(binary()?.with_file_name(name), folder.join(name)).context(name)?;
    }
    let account = Account::create(kube)?;
    agent::publish_authority(kube)?;
    account.grant(kube)?;
    agent::deploy(kube, &Path::new(FOLDER).join("node-tracer"))?;
    let other = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}});
    kube.expect("POST", "/api/v1/nodes", Some(&other))?;
    for namespace in ["default", agent::NAMESPACE] {
        agent::forge(kube, namespace, "n2")?;
    }
    // The API server finds a kubelet by its node's name.
    let name = kube.name();
    let hosts =
        format!("echo 127.0.0.1 {name} > {FOLDER}/hosts && mount --bind {FOLDER}/hosts /etc/hosts");
    ensure!(shell.run(&hosts)?.code == Some(0), "{hosts}");

    let is_told = |answer: &Value| {
        let mut findings = answer["findings"].as_array().into_iter().flatten();
        let is_ghost = findings.any(|it| {
            it["rule"] == "ghost-sandbox" && it["phase"] == "conflict" && it["node"] == name
        });
        let unknown = &answer["unknown"][0];
        let reason = unknown["reason"].as_str().unwrap_or_default();
        is_ghost && unknown["node"] == "n2" && reason.starts_with("no tracer runs there")
    };
    let mut all: Vec<_> = clients::all().into_iter().map(Some).collect();
    if all.is_empty() {
        all.push(None);
    }
    for of in &all {
        let terminal = Terminal::new(&shell, of.as_ref());
        let ask = |question: &str| -> anyhow::Result<String> {
            let place = agent::NAMESPACE;
            let ask = format!("PATH=$PATH:{FOLDER} kubectl node-tracer -n {place} {question}");
            // What it says of pods that it does not ask is on standard error.
            let line = format!("{ask} 2>{FOLDER}/stderr");
            let (code, text) = terminal.ends(&line)?;
            let stderr = fs::read_to_string(kube.node().host_path(format!("{FOLDER}/stderr")))?;
            ensure!(code == Some(1), "{of:?}: {line}: {code:?} {text} {stderr}");
            for forged in [
                "default/forged on n2: it is not in",
                "forged on n2: no DaemonSet",
            ] {
                ensure!(stderr.contains(forged), "{line}: {stderr}");
            }
            Ok(text + &unknown_of(&stderr))
        };
        let who: Value = serde_json::from_str(&ask(&format!("who {address} -o json"))?)?;
        ensure!(is_told(&who), "{who:#}");
        ensure!(who["holders"][0]["uid"] == new.pod.uid.as_str(), "{who:#}");
        let ghosts: Value = serde_json::from_str(&ask("ghosts -o json")?)?;
        ensure!(is_told(&ghosts), "{ghosts:#}");
        let explained = ask(&format!("explain {address} --node {name}"))?;
        let is_whole = ["default/stuck", "default/reborn"]
            .iter()
            .all(|it| explained.contains(it));
        ensure!(is_whole, "{explained}");
        let report = ask(&format!(
            "report --node {name} --node n2 --out {FOLDER}/page.html"
        ))?;
        ensure!(report.contains("n2: no tracer runs there"), "{report}");
        let page = folder.join("page.html");
        let text = fs::read_to_string(&page)?;
        ensure!(
            text.contains("default/stuck") && text.contains("default/reborn"),
            "the page does not tell the incident"
        );
        fs::remove_file(page)?;
    }
    // Where the tracer is not, nobody is asked.
    let terminal = Terminal::new(&shell, all[0].as_ref());
    let line = format!("PATH=$PATH:{FOLDER} kubectl node-tracer -n default ghosts");
    let (code, text) = terminal.ends(&line)?;
    let is_refused = text.contains("no DaemonSet in namespace default");
    ensure!(code == Some(2) && is_refused, "{line}: {code:?} {text}");
    incident.release()
}

/// The nodes of which a page has nothing.
fn unknown_of(stderr: &str) -> String {
    let lines = stderr.lines();
    lines.filter(|line| line.starts_with("unknown")).collect()
}
