//! What is released for a cluster, on a node of one: the manifest's objects by
//! the API, the pod of its DaemonSet as the controller makes it, and the pod of
//! `kubectl debug node`.
//!
//! kubelet gives each pod its image, mounts, capabilities and probes as they are
//! asked for. What is added here is what the cluster's other parts do, and
//! there are none: a node by name, the account's token, and the API server's
//! address.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::Kube;
use super::agent::{host_path, publish_authority_in, server, service_account};
use super::pod::LIMIT;
use crate::containerd::{SOCKET, image};
use crate::pods::Pod;
use crate::{stage, wait};

/// Where the objects of each kind are.
const COLLECTIONS: [(&str, &str); 5] = [
    ("Namespace", "/api/v1/namespaces"),
    (
        "ServiceAccount",
        "/api/v1/namespaces/node-tracer/serviceaccounts",
    ),
    (
        "ClusterRole",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ),
    (
        "ClusterRoleBinding",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    ),
    (
        "DaemonSet",
        "/apis/apps/v1/namespaces/node-tracer/daemonsets",
    ),
];
/// The namespace that `kubectl debug` makes its pod in, and its account.
const DEFAULT: &str = "default";

/// Takes an image into the node's runtime, under the name that the manifest has
/// it by, with the two commands that the manifest gives.
pub fn import(kube: &Kube, file: &Path, manifest: &str) -> anyhow::Result<()> {
    let node = kube.node();
    let ctr = |args: &[&str]| -> anyhow::Result<()> {
        let output = node
            .command("ctr")?
            .arg("--address")
            .arg(node.host_path(SOCKET))
            .args(["--namespace", "k8s.io", "images"])
            .args(args)
            .output()
            .context("start ctr")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ctr images {args:?}: {stderr}");
        Ok(())
    };
    ctr(&["import", file.to_str().context("a path in UTF-8")?])?;
    let mut lines = manifest.lines().map(str::trim);
    let image = lines.find_map(|line| line.strip_prefix("image: "));
    let (tagged, digest) = image
        .and_then(|image| image.split_once('@'))
        .context("no image by its digest in the manifest")?;
    let (name, _) = tagged.rsplit_once(':').context("no tag")?;
    ctr(&["tag", tagged, &format!("{name}@{digest}")])
}

/// Creates the objects of a manifest, as `kubectl apply -f` does where there are
/// none. Returns them as the API server has them, by kind.
pub fn apply(kube: &Kube, manifest: &str) -> anyhow::Result<Vec<(&'static str, Value)>> {
    let mut made = Vec::new();
    for document in manifest.split("\n---\n") {
        let kind = document
            .lines()
            .find_map(|line| line.strip_prefix("kind: "));
        let kind = kind.context("an object without its kind")?.trim();
        let found = COLLECTIONS.iter().find(|(known, _)| *known == kind);
        let (kind, path) = found.with_context(|| format!("a {kind} in the manifest"))?;
        let (code, answer) = kube.send("POST", path, "application/yaml", Some(document))?;
        ensure!(code == 201, "{kind}: {code} {}", answer["message"]);
        made.push((*kind, answer));
    }
    Ok(made)
}

fn container(pod: &mut Value) -> &mut Value {
    &mut pod["spec"]["containers"][0]
}

/// Adds to a list that may not be there.
fn add(to: &mut Value, items: impl IntoIterator<Item = Value>) {
    let mut all = to.as_array().cloned().unwrap_or_default();
    all.extend(items);
    *to = Value::Array(all);
}

/// What the cluster's other parts do to a pod before kubelet has it.
fn complete(kube: &Kube, pod: &mut Value, program: &Path) {
    pod["spec"]["nodeName"] = json!(kube.name());
    if pod["spec"]["serviceAccountName"].is_null() {
        pod["spec"]["serviceAccountName"] = json!(DEFAULT);
    }
    let mut mounts = vec![service_account()];
    if !image::is_static(program) {
        // The build that is tested, unlike the released one, has the C library
        // elsewhere: the node's.
        mounts.push(host_path("lib", Path::new("/lib"), "/lib"));
        mounts.push(host_path("lib64", Path::new("/lib64"), "/lib64"));
    }
    for (volume, mount) in mounts {
        add(&mut pod["spec"]["volumes"], [volume]);
        add(&mut container(pod)["volumeMounts"], [mount]);
    }
    add(&mut container(pod)["env"], server());
}

/// The pod of a DaemonSet, on the node.
#[derive(Debug)]
pub struct Daemon {
    pod: Pod,
    log: PathBuf,
}

impl Daemon {
    /// Makes it; back when kubelet's probes say that it is ready. `program` is
    /// the one that is in the image.
    pub fn start(kube: &Kube, set: &Value, program: &Path) -> anyhow::Result<Self> {
        let namespace = set["metadata"]["namespace"].as_str().context("namespace")?;
        let name = set["metadata"]["name"].as_str().context("name")?;
        publish_authority_in(kube, namespace)?;
        let mut pod = set["spec"]["template"].clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["generateName"] = json!(format!("{name}-"));
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": name,
            "uid": set["metadata"]["uid"],
            "controller": true,
        }]);
        complete(kube, &mut pod, program);
        let container = container(&mut pod)["name"]
            .as_str()
            .context("name")?
            .to_owned();
        let pod = kube.create_object(namespace, &pod)?;
        let log = log(kube, &pod, &container);
        let this = Self { pod, log };
        this.ready(kube)?;
        Ok(this)
    }

    fn ready(&self, kube: &Kube) -> anyhow::Result<()> {
        let mut status = Value::Null;
        let ready = wait::until("the pod to be ready", LIMIT, || {
            let object = kube.object(&self.pod)?.context("the pod is gone")?;
            status = object["status"].clone();
            let container = &status["containerStatuses"][0];
            ensure!(
                container["restartCount"].as_u64().unwrap_or(0) == 0
                    && !container["state"]["terminated"].is_object(),
                "it has ended: {container}"
            );
            wait::pause(Duration::from_millis(200))?;
            Ok((container["ready"] == true).then_some(()))
        });
        ready.with_context(|| {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            format!("{status}; {said}; {}", kube.words())
        })
    }

    /// The records so far, as kubelet and the runtime keep them.
    pub fn records(&self) -> anyhow::Result<Vec<Value>> {
        let lines = lines(&fs::read_to_string(&self.log).context("the pod's log")?)?;
        let records = lines.iter().filter(|line| line.starts_with('{'));
        records
            .map(|line| serde_json::from_str(line).with_context(|| line.clone()))
            .collect()
    }

    /// Waits for a record, among those that came already too.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let found = wait::until(what, LIMIT, || {
            wait::pause(Duration::from_millis(200))?;
            Ok(self.records()?.into_iter().find(|record| wanted(record)))
        });
        found.with_context(|| {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            let last: Vec<&str> = said.lines().rev().take(8).collect();
            format!("last lines first:\n{}", last.join("\n"))
        })
    }

    /// Ends it, as a deletion of the DaemonSet does.
    pub fn stop(self, kube: &Kube) -> anyhow::Result<()> {
        kube.delete(&self.pod)?;
        wait::until("the pod to go", LIMIT, || {
            Ok(kube.object(&self.pod)?.is_none().then_some(()))
        })
    }
}

/// What `kubectl debug node/NODE -it --profile=sysadmin --image=IMAGE -- COMMAND`
/// shows, and the exit code.
pub fn debug(
    kube: &Kube,
    image: &str,
    program: &Path,
    command: &[&str],
) -> anyhow::Result<(i64, String)> {
    const CONTAINER: &str = "debugger";
    let accounts = format!("/api/v1/namespaces/{DEFAULT}/serviceaccounts");
    let account =
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": DEFAULT } });
    let (code, answer) = kube.call("POST", &accounts, Some(&account))?;
    if code == 201 {
        publish_authority_in(kube, DEFAULT)?;
    } else {
        ensure!(code == 409, "an account: {code} {}", answer["message"]);
    }
    // As kubectl 1.32 makes it (generateNodeDebugPod and sysadminProfile in its
    // source).
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": format!("node-debugger-{}-", kube.name()),
            "labels": { "app.kubernetes.io/managed-by": "kubectl-debug" },
        },
        "spec": {
            "containers": [{
                "name": CONTAINER,
                "image": image,
                "command": command,
                "stdin": true,
                "tty": true,
                "terminationMessagePolicy": "File",
                "securityContext": { "privileged": true },
                "volumeMounts": [{ "name": "host-root", "mountPath": "/host" }],
            }],
            "restartPolicy": "Never",
            "hostNetwork": true,
            "hostPID": true,
            "hostIPC": true,
            "tolerations": [{ "operator": "Exists" }],
            "volumes": [{ "name": "host-root", "hostPath": { "path": "/" } }],
        },
    });
    complete(kube, &mut pod, program);
    let pod = kube.create_object(DEFAULT, &pod)?;
    let mut status = Value::Null;
    let ended = wait::until("the debugger to end", LIMIT, || {
        status = kube.object(&pod)?.context("the pod is gone")?["status"].clone();
        let code = &status["containerStatuses"][0]["state"]["terminated"]["exitCode"];
        wait::pause(Duration::from_millis(200))?;
        Ok(code.as_i64())
    });
    let code = ended.with_context(|| format!("{status}; {}", kube.words()))?;
    let said = fs::read_to_string(log(kube, &pod, CONTAINER)).context("its log")?;
    kube.force_delete(&pod)?;
    Ok((code, lines(&said)?.join("\n")))
}

/// Where kubelet has the first log of a pod's container, as the host sees it.
fn log(kube: &Kube, pod: &Pod, container: &str) -> PathBuf {
    let Pod {
        namespace,
        name,
        uid,
    } = pod;
    let path = format!("/var/log/pods/{namespace}_{name}_{uid}/{container}/0.log");
    kube.node().host_path(path)
}

/// The lines of stdout in a log of CRI's form: `TIME STREAM P|F TEXT`, a long
/// line in pieces of which all but the last are `P`. One whose end is not there
/// yet is left out.
fn lines(log: &str) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for piece in log.split_inclusive('\n') {
        let Some(piece) = piece.strip_suffix('\n') else {
            break;
        };
        let mut fields = piece.splitn(4, ' ').skip(1);
        let (stream, tag) = (fields.next(), fields.next());
        let text = fields
            .next()
            .with_context(|| format!("no CRI log: {piece}"))?;
        if stream != Some("stdout") {
            continue;
        }
        line.push_str(text);
        if tag == Some("F") {
            lines.push(std::mem::take(&mut line));
        }
    }
    Ok(lines)
}

/// All that the incident with the released image needs.
pub const NEEDS: &[stage::Need] = &{
    const OWN: stage::Need = stage::Need::Packages;
    let mut needs = [OWN; crate::snapshot_run::KUBE.len() + 1];
    let mut at = 0;
    while at < crate::snapshot_run::KUBE.len() {
        needs[at + 1] = crate::snapshot_run::KUBE[at];
        at += 1;
    }
    needs
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_in_pieces_is_one_and_stderr_is_none_of_it() {
        let log = "2026-11-22T10:00:00.1Z stdout F {\"a\":1}\n\
                   2026-11-22T10:00:00.2Z stderr F warning: x\n\
                   2026-11-22T10:00:00.3Z stdout P one \n\
                   2026-11-22T10:00:00.3Z stdout F line\n\
                   2026-11-22T10:00:00.4Z stdout F not yet";
        assert_eq!(lines(log).unwrap(), ["{\"a\":1}", "one line"]);
        assert!(lines("hello\n").is_err());
    }
}
