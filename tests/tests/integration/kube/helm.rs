//! Helm and kubectl, the oldest and the newest that are here, with what is
//! shipped for a cluster, against a real API server.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, ensure};
use node_tracer_tests::kube::Kube;
use node_tracer_tests::kube::clients::{self, Clients};
use node_tracer_tests::paste::Shell;
use node_tracer_tests::snapshot_run;
use node_tracer_tests::stage::Need;
use node_tracer_tests::{test, wait};
use serde_json::json;

use super::SOON;
use crate::packaging::helm::{ALL, CHART, rendered};

const NEEDS: &[Need] = &{
    let mut needs = [Need::KubeClients; snapshot_run::KUBE.len() + 1];
    let mut at = 0;
    while at < snapshot_run::KUBE.len() {
        needs[at] = snapshot_run::KUBE[at];
        at += 1;
    }
    needs
};

/// A root's shell of the node with these clients in front of its own.
pub(super) struct Terminal<'a> {
    shell: &'a Shell,
    path: String,
}

impl<'a> Terminal<'a> {
    pub(super) fn new(shell: &'a Shell, clients: Option<&Clients>) -> Self {
        let folder = clients.map(|it| on_node(&it.folder().display().to_string()) + ":");
        let path = folder.unwrap_or_default();
        Self { shell, path }
    }

    /// What a line prints and how it ends.
    pub(super) fn ends(&self, line: &str) -> anyhow::Result<(Option<i32>, String)> {
        let pasted = self
            .shell
            .run(&format!("export PATH={}$PATH; {line}", self.path))?;
        let text = pasted.stdout;
        Ok((pasted.code, text + &pasted.stderr))
    }

    /// What a line prints that goes well.
    pub(super) fn says(&self, line: &str) -> anyhow::Result<String> {
        let (code, text) = self.ends(line)?;
        ensure!(code == Some(0), "{}{line}: {code:?} {text}", self.path);
        Ok(text)
    }
}

/// A path of the host, as the node reaches it.
fn on_node(path: &str) -> String {
    format!("/proc/{}/root{path}", std::process::id())
}

/// All objects of the cluster but those that the node's own life makes.
fn objects(terminal: &Terminal<'_>) -> anyhow::Result<BTreeSet<String>> {
    const COLUMNS: &str = "KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name";
    let kinds = terminal.says("kubectl api-resources --verbs=list -o name 2>/dev/null")?;
    let of_the_node = |kind: &&str| !kind.starts_with("events") && !kind.starts_with("leases");
    let kinds: Vec<&str> = kinds.lines().filter(of_the_node).collect();
    let line = format!(
        "kubectl get {} -A --no-headers -o custom-columns={COLUMNS} 2>/dev/null",
        kinds.join(",")
    );
    let lines = terminal.says(&line)?;
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(lines.lines().map(words).collect())
}

/// Verb, group, resource and subresource.
type Right = (&'static str, &'static str, &'static str, &'static str);

/// Whether the API server's own authorizer lets the chart's account.
fn is_allowed(kube: &Kube, right: &Right) -> anyhow::Result<bool> {
    let (verb, group, resource, subresource) = right;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "system:serviceaccount:node-tracer:node-tracer",
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": subresource,
            },
        },
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = kube.expect("POST", path, Some(&review))?;
    Ok(answer["status"]["allowed"] == true)
}

/// The kind of which the Prometheus operator has one, as far as the API server
/// cares.
fn define_pod_monitors(kube: &Kube) -> anyhow::Result<()> {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "podmonitors.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": "PodMonitor", "plural": "podmonitors"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": any},
            }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    kube.expect("POST", path, Some(&definition))?;
    wait::until("the kind PodMonitor", SOON, || {
        let path = "/apis/monitoring.coreos.com/v1/podmonitors";
        Ok((kube.call("GET", path, None)?.0 == 200).then_some(()))
    })
}

test!(
    NEEDS,
    kube_helm_grants_what_is_switched_on_and_removes_all_of_it
);
fn kube_helm_grants_what_is_switched_on_and_removes_all_of_it() -> anyhow::Result<()> {
    const LOOKS: [Right; 2] = [
        ("list", "", "pods", ""),
        ("list", "crd.projectcalico.org", "ipamblocks", ""),
    ];
    const WRITES: [Right; 2] = [
        ("create", "events.k8s.io", "events", ""),
        ("patch", "", "nodes", "status"),
    ];
    let kube = Kube::start(&[])?;
    let shell = kube.shell()?;
    define_pod_monitors(&kube)?;
    let chart = on_node(CHART);
    for of in clients::all() {
        let terminal = Terminal::new(&shell, Some(&of));
        let namespace = "kubectl create namespace node-tracer --dry-run=client -o yaml";
        terminal.says(&format!("{namespace} | kubectl apply -f -"))?;
        let may = |rights: &[Right], expected: bool| {
            // A change of roles takes the authorizer a moment.
            wait::until("the rights", SOON, || {
                let answers = rights.iter().map(|right| is_allowed(&kube, right));
                let answers = answers.collect::<anyhow::Result<Vec<bool>>>()?;
                Ok(answers.iter().all(|it| *it == expected).then_some(()))
            })
            .with_context(|| format!("{}: {rights:?} {expected}", of.name()))
        };
        let before = objects(&terminal)?;
        let helm = "-n node-tracer node-tracer";
        terminal.says(&format!("helm install {helm} {chart}"))?;
        may(&LOOKS, true)?;
        may(&WRITES, false)?;
        terminal.says(&format!("helm upgrade {helm} {chart} --set '{ALL}'"))?;
        may(&WRITES, true)?;
        let during = objects(&terminal)?;
        for object in [
            "PodMonitor node-tracer node-tracer",
            "DaemonSet node-tracer node-tracer",
        ] {
            ensure!(during.contains(object), "no {object} in {during:?}");
        }
        terminal.says(&format!("helm upgrade {helm} {chart} --reset-values"))?;
        may(&WRITES, false)?;
        may(&LOOKS, true)?;
        terminal.says(&format!("helm uninstall {helm}"))?;
        let after = objects(&terminal)?;
        let left: Vec<&String> = after.difference(&before).collect();
        ensure!(left.is_empty(), "{} leaves {left:?}", of.name());
        may(&LOOKS, false)?;
    }
    Ok(())
}

test!(NEEDS, kube_api_server_takes_the_manifests_and_the_chart);
fn kube_api_server_takes_the_manifests_and_the_chart() -> anyhow::Result<()> {
    let kube = Kube::start(&[])?;
    let shell = kube.shell()?;
    define_pod_monitors(&kube)?;
    let namespace = json!({"metadata": {"name": "node-tracer"}});
    kube.expect("POST", "/api/v1/namespaces", Some(&namespace))?;
    let manifests = on_node(&format!("{CHART}/../kubernetes"));
    for of in clients::all() {
        let terminal = Terminal::new(&shell, Some(&of));
        let all = rendered(&of, CHART, "1.20.0", &["--set", ALL])?;
        fs::write(kube.node().host_path("/root/all.yaml"), all)?;
        for side in ["client", "server"] {
            // This server is older than 1.30.
            for line in [
                format!("--validate=false -f {manifests}"),
                String::from("-f /root/all.yaml"),
            ] {
                terminal.says(&format!("kubectl apply --dry-run={side} {line}"))?;
            }
        }
    }
    Ok(())
}
