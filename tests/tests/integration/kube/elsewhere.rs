//! A ghost whose address a pod of another node has, by the real API server.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::kube::incident::KubeIncident;
use node_tracer_tests::kube::{Account, Kube};
use node_tracer_tests::snapshot_run::KUBE;
use node_tracer_tests::{test, wait};
use serde_json::{Value, json};

use super::{SOON, address_of, incident::stage_of, scan, trace};
use node_tracer_tests::tracer::{is_finding, netns_of};

/// From the question to the finding.
const AT_ONCE: Duration = Duration::from_secs(2);
/// With some seconds more.
const MINUTE: Duration = Duration::from_secs(64);

/// A pod that is bound to a node without a kubelet, whose status says that it runs
/// and has an address.
fn pod_elsewhere(kube: &Kube, name: &str, address: &str) -> anyhow::Result<Value> {
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": "n2",
            "automountServiceAccountToken": false,
            "containers": [{ "name": "app", "image": "none" }],
        },
    });
    let mut made = kube.expect("POST", pods, Some(&pod))?;
    made["status"] = json!({
        "phase": "Running",
        "podIP": address,
        "podIPs": [{ "ip": address }],
    });
    let path = format!("{pods}/{name}/status");
    kube.expect("PUT", &path, Some(&made))
}

test!(
    KUBE,
    kube_ghost_whose_address_another_nodes_pod_has_is_a_conflict
);
/// The conflict is told with the pod's name, by a trace and by a look.
fn kube_ghost_whose_address_another_nodes_pod_has_is_a_conflict() -> anyhow::Result<()> {
    let mut incident = KubeIncident::new()?;
    let account = Account::create(incident.kube())?;
    account.grant(incident.kube())?;
    let config = account.kubeconfig().display().to_string();
    let args = ["--kubeconfig", &config];
    let old = incident.start_old_pod("stuck")?;
    let address = address_of(&old)?;
    let other = pod_elsewhere(incident.kube(), "reborn", &address)?;
    let mut tracer = trace(incident.kube(), &args)?;
    incident.force_delete()?;
    let is_ghost = |record: &Value| {
        is_finding(record, "ghost-sandbox") && netns_of(record) == Some(old.sandbox.netns_inode)
    };
    tracer.wait_for("the ghost", SOON, is_ghost)?;
    let began = Instant::now();
    let found = tracer.wait_for("its conflict", SOON, |record| {
        is_ghost(record) && stage_of(record) == "conflict"
    })?;
    let took = began.elapsed();
    println!("        from the ghost to its conflict on another node: {took:.2?}");
    ensure!(took < AT_ONCE, "{took:?}");
    let expected = json!({
        "node": "n2",
        "namespace": "default",
        "name": "reborn",
        "uid": other["metadata"]["uid"],
    });
    ensure!(found["taken_by"] == expected, "{found:#}");
    // While it is open the server is asked once a minute; for IPv4 by either field.
    let before = incident.kube().pod_requests("LIST")?;
    wait::pause(MINUTE)?;
    let asked = incident.kube().pod_requests("LIST")? - before;
    println!("        lists of pods that the server counts in a minute: {asked}");
    ensure!((1..=4).contains(&asked), "{asked} lists of pods");
    let look = scan(incident.kube(), &args)?;
    let ghost = look.the("ghost-sandbox")?;
    ensure!(ghost["taken_by"] == expected, "{ghost:#}");
    ensure!(ghost["id"] == found["id"], "the same finding");
    Ok(())
}

test!(
    KUBE,
    kube_server_that_does_not_tell_of_other_nodes_is_unknown
);
/// Who may list the pods of its own Kubernetes namespace alone is refused: no
/// conflict, and why is said once.
fn kube_server_that_does_not_tell_of_other_nodes_is_unknown() -> anyhow::Result<()> {
    let mut incident = KubeIncident::new()?;
    let account = Account::create(incident.kube())?;
    account.grant(incident.kube())?;
    let config = account.kubeconfig().display().to_string();
    let args = ["--kubeconfig", &config];
    let old = incident.start_old_pod("stuck")?;
    let address = address_of(&old)?;
    pod_elsewhere(incident.kube(), "reborn", &address)?;
    let mut tracer = trace(incident.kube(), &args)?;
    // The watch goes on; whoever asks anew is refused.
    account.revoke(incident.kube())?;
    incident.force_delete()?;
    let found = tracer.wait_for("the ghost, and what is not known", SOON, |record| {
        let unknown = record["unknown"].to_string();
        is_finding(record, "ghost-sandbox") && unknown.contains("another node")
    })?;
    ensure!(found["taken_by"].is_null(), "{found:#}");
    ensure!(stage_of(&found) != "conflict", "{found:#}");
    let unknown = found["unknown"].as_array().context("no list")?;
    let mut of_others = unknown.iter().filter_map(Value::as_str);
    let why = of_others.find(|text| text.contains("another node"));
    ensure!(why.is_some_and(|why| why.contains("403")), "{why:?}");
    Ok(())
}
