//! The tracer as a cluster runs it: in a pod on the node, with the service
//! account's token mounted by kubelet.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::account::NAME;
pub use super::account::NAMESPACE;
use super::pod::{LIMIT, Running};
use super::{ADDRESS_AND_PORT, Kube};
use crate::containerd::image;
use crate::wait;

/// Where a pod finds its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Where the node's root is, in the pod.
const ROOT: &str = "/host";
/// Where the tracer's folder is, in the pod.
const PROGRAM: &str = "/opt/tracer";
/// Where the pod writes to, in the pod and on the node.
const OUTPUT: &str = "/run/agent";

/// What a run of the tracer in a pod said.
#[derive(Debug)]
pub struct PodRun {
    pub code: Option<i64>,
    pub records: Vec<Value>,
    pub stderr: String,
}

/// A folder of the node, in the pod at another path.
pub(super) fn host_path(name: &str, path: &Path, at: &str) -> (Value, Value) {
    (
        json!({ "name": name, "hostPath": { "path": path } }),
        json!({ "name": name, "mountPath": at }),
    )
}

/// The token, by kubelet; and the authority, from the map that each namespace
/// of a cluster has.
pub(super) fn service_account() -> (Value, Value) {
    let sources = json!([
        { "serviceAccountToken": { "path": "token", "expirationSeconds": 3600 } },
        { "configMap": {
            "name": "kube-root-ca.crt",
            "items": [{ "key": "ca.crt", "path": "ca.crt" }],
        } },
    ]);
    (
        json!({ "name": "account", "projected": { "sources": sources } }),
        json!({ "name": "account", "mountPath": SERVICE_ACCOUNT, "readOnly": true }),
    )
}

/// The pod, which runs a line of sh(1). `program` is a path of the node. What it
/// needs of the C library is the node's.
fn object(kube: &Kube, program: &Path, run: &str) -> anyhow::Result<Value> {
    let folder = program.parent().context("no folder")?;
    let (volumes, mounts): (Vec<Value>, Vec<Value>) = [
        service_account(),
        host_path("root", Path::new("/"), ROOT),
        host_path("program", folder, PROGRAM),
        host_path("output", Path::new(OUTPUT), OUTPUT),
        host_path("lib", Path::new("/lib"), "/lib"),
        host_path("lib64", Path::new("/lib64"), "/lib64"),
    ]
    .into_iter()
    .unzip();
    let [host, port] = server();
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "node-tracer-",
            "labels": { "app.kubernetes.io/name": "node-tracer" },
        },
        "spec": {
            "nodeName": kube.name(),
            "serviceAccountName": NAME,
            "hostNetwork": true,
            "hostPID": true,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "volumes": volumes,
            "containers": [{
                "name": "tracer",
                "image": image::BOX,
                "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", run],
                "securityContext": { "privileged": true },
                "volumeMounts": mounts,
                "env": [
                    host,
                    port,
                    { "name": "PATH", "value": format!("{PROGRAM}:/bin") },
                    { "name": "NODE_TRACER_ROOT", "value": ROOT },
                    { "name": "NODE_NAME",
                      "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
                ],
            }],
        },
    }))
}

/// Where the API server is for a pod, where nothing serves the cluster's own
/// addresses.
pub(super) fn server() -> [Value; 2] {
    let (server, port) = ADDRESS_AND_PORT;
    [
        json!({ "name": "KUBERNETES_SERVICE_HOST", "value": server }),
        json!({ "name": "KUBERNETES_SERVICE_PORT", "value": port }),
    ]
}

/// Makes the map with the authority, as a controller does in each namespace.
pub fn publish_authority(kube: &Kube) -> anyhow::Result<()> {
    publish_authority_in(kube, NAMESPACE)
}

/// The same in another namespace than the account's.
pub(super) fn publish_authority_in(kube: &Kube, namespace: &str) -> anyhow::Result<()> {
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "kube-root-ca.crt" },
        "data": { "ca.crt": kube.authority.text("ca.crt")? },
    });
    kube.expect("POST", &maps, Some(&map)).map(drop)
}

/// A pod of the DaemonSet, in which a tracer can be asked. No controller runs here:
/// the pod is made as the DaemonSet's would make it.
pub fn deploy(kube: &Kube, program: &Path) -> anyhow::Result<Running> {
    fs::create_dir_all(kube.node().host_path(OUTPUT)).context("mkdir for the output")?;
    let mut object = object(kube, program, "exec sleep 100000")?;
    let labels = object["metadata"]["labels"].clone();
    let mut template = object["spec"].clone();
    template["restartPolicy"] = "Always".into();
    let set = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": NAME, "labels": labels },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": template },
        },
    });
    let sets = format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets");
    let set = kube.expect("POST", &sets, Some(&set))?;
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": NAME,
        "uid": set["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    kube.wait_until_running(&kube.create_object(NAMESPACE, &object)?)
}

/// A pod that has the tracer's label and is not its DaemonSet's, as whoever may
/// create pods there can make one. `node` is an object alone: nothing runs.
pub fn forge(kube: &Kube, namespace: &str, node: &str) -> anyhow::Result<()> {
    let pod = kube.create_object(
        namespace,
        &json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "forged",
                "labels": { "app.kubernetes.io/name": "node-tracer" },
            },
            "spec": {
                "nodeName": node,
                "serviceAccountName": NAME,
                "containers": [{ "name": "tracer", "image": image::BOX }],
            },
        }),
    )?;
    let mut object = kube.object(&pod)?.context("the pod is gone")?;
    object["status"]["phase"] = "Running".into();
    let status = format!("/api/v1/namespaces/{namespace}/pods/forged/status");
    kube.expect("PUT", &status, Some(&object)).map(drop)
}

/// Runs the tracer in a pod to its end. The node has `program` at this path.
pub fn run(kube: &Kube, program: &Path, arguments: &str) -> anyhow::Result<PodRun> {
    let output = kube.node().host_path(OUTPUT);
    fs::create_dir_all(&output).context("mkdir for the output")?;
    let name = program.file_name().context("no file")?.to_string_lossy();
    let run = format!("{name} {arguments} -o json >{OUTPUT}/out 2>{OUTPUT}/err");
    let object = object(kube, program, &run)?;
    let pod = kube.create_object(NAMESPACE, &object)?;
    let mut status = Value::Null;
    let ended = wait::until("the pod to end", LIMIT, || {
        status = kube.object(&pod)?.context("the pod is gone")?["status"].clone();
        let ended = &status["containerStatuses"][0]["state"]["terminated"];
        Ok(ended.is_object().then(|| ended.clone()))
    });
    let ended = ended.with_context(|| format!("{status}; {}", kube.words()))?;
    kube.force_delete(&pod)?;
    let text = fs::read_to_string(output.join("out")).context("its output")?;
    Ok(PodRun {
        code: ended["exitCode"].as_i64(),
        records: text
            .lines()
            .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
            .collect::<anyhow::Result<_>>()?,
        stderr: fs::read_to_string(output.join("err")).unwrap_or_default(),
    })
}
