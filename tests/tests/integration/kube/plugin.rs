//! `kubectl node-tracer`, with a real kubectl, API server and kubelet between it
//! and the tracer's pod, and a second node that is only an object.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use node_tracer_tests::kube::Account;
use node_tracer_tests::kube::agent;
use node_tracer_tests::kube::incident::KubeIncident;
use node_tracer_tests::test;
use node_tracer_tests::tracer::binary;
use serde_json::{Value, json};

use super::advice::NEEDS;

/// The tracer, on the node.
const FOLDER: &str = "/var/lib/nt";
const PLUGIN: &str = "kubectl-node_tracer";

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
    // The API server finds a kubelet by its node's name.
    let name = kube.name();
    let hosts =
        format!("echo 127.0.0.1 {name} > {FOLDER}/hosts && mount --bind {FOLDER}/hosts /etc/hosts");
    ensure!(shell.run(&hosts)?.code == Some(0), "{hosts}");

    let ask = |question: &str| -> anyhow::Result<Value> {
        let asked = shell.run(&format!("{FOLDER}/{PLUGIN} {question} -o json"))?;
        ensure!(asked.code == Some(1), "{asked:#?}");
        Ok(serde_json::from_str(&asked.stdout)?)
    };
    let is_told = |answer: &Value| {
        let mut findings = answer["findings"].as_array().into_iter().flatten();
        let is_ghost = findings.any(|it| {
            it["rule"] == "ghost-sandbox" && it["phase"] == "conflict" && it["node"] == name
        });
        is_ghost && answer["unknown"][0]["node"] == "n2"
    };
    let who = ask(&format!("who {address}"))?;
    ensure!(is_told(&who), "{who:#}");
    ensure!(who["holders"][0]["uid"] == new.pod.uid.as_str(), "{who:#}");
    let ghosts = ask("ghosts")?;
    ensure!(is_told(&ghosts), "{ghosts:#}");
    let pasted = shell.run(&format!(
        "{FOLDER}/{PLUGIN} explain {address} --node {name}"
    ))?;
    let page = format!("{FOLDER}/page.html");
    let report = format!("{FOLDER}/{PLUGIN} report --node {name} --node n2 --out {page}");
    let written = shell.run(&report)?;
    ensure!(written.code == Some(1), "{written:#?}");
    ensure!(
        written.stderr.contains("unknown  n2: no tracer runs there"),
        "{written:#?}"
    );
    let page = fs::read_to_string(kube.node().host_path(&page))?;
    ensure!(
        page.contains("default/stuck") && page.contains("default/reborn"),
        "the page does not tell the incident"
    );
    let again = shell.run(&report)?;
    ensure!(
        again.code == Some(2) && again.stderr.contains("--force"),
        "{again:#?}"
    );
    let is_whole = ["default/stuck", "default/reborn"]
        .iter()
        .all(|it| pasted.stdout.contains(it));
    ensure!(pasted.code == Some(1) && is_whole, "{pasted:#?}");
    incident.release()
}
