//! Pods by the API.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::Kube;
use crate::containerd::{Sandbox, image};
use crate::pods::Pod;
use crate::wait;

/// The namespace that all pods of tests are in; each cluster has it.
pub(super) const NAMESPACE: &str = "default";
/// Name of the one container.
const CONTAINER: &str = "app";
/// Time for kubelet to do something, with a machine that does much else.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub struct PodSpec<'a> {
    pub name: &'a str,
    /// The program of its container, of the box image.
    pub argv: &'a [&'a str],
    /// A folder of the node, and where the container has it.
    pub volume: Option<(&'a Path, &'a str)>,
    /// Seconds that an ordinary deletion leaves it.
    pub grace: u32,
}

/// A pod that runs.
#[derive(Clone, Debug)]
pub struct Running {
    pub pod: Pod,
    /// Its sandbox, as the runtime has it.
    pub sandbox: Sandbox,
    pub container_id: String,
    /// The process of its container.
    pub pid: u32,
}

fn path(pod: &Pod) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name)
}

impl PodSpec<'_> {
    /// As it goes to the API server, on this node.
    fn object(&self, node: &str) -> Value {
        let (mounts, volumes) = match self.volume {
            Some((from, to)) => (
                json!([{ "name": "volume", "mountPath": to }]),
                json!([{ "name": "volume", "hostPath": { "path": from } }]),
            ),
            None => (json!([]), json!([])),
        };
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": self.name },
            "spec": {
                // There is no scheduler.
                "nodeName": node,
                // What a test has killed is to stay so.
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": self.grace,
                "automountServiceAccountToken": false,
                "volumes": volumes,
                "containers": [{
                    "name": CONTAINER,
                    "image": image::BOX,
                    "imagePullPolicy": "Never",
                    "command": self.argv,
                    "volumeMounts": mounts,
                }],
            },
        })
    }
}

impl Kube {
    pub fn create_pod(&self, spec: &PodSpec<'_>) -> anyhow::Result<Pod> {
        self.create_object(NAMESPACE, &spec.object(self.name()))
    }

    /// Creates a pod of any form.
    pub fn create_object(&self, namespace: &str, object: &Value) -> anyhow::Result<Pod> {
        let all = format!("/api/v1/namespaces/{namespace}/pods");
        let made = self.expect("POST", &all, Some(object))?;
        let text = |key: &str| {
            let text = made["metadata"][key].as_str().map(str::to_owned);
            text.with_context(|| format!("a pod without {key}"))
        };
        Ok(Pod {
            namespace: text("namespace")?,
            name: text("name")?,
            uid: text("uid")?,
        })
    }

    /// A pod's object; `None` if there is none of this UID.
    pub fn object(&self, pod: &Pod) -> anyhow::Result<Option<Value>> {
        let (code, object) = self.call("GET", &path(pod), None)?;
        ensure!(matches!(code, 200 | 404), "GET {}: {code}", path(pod));
        let same = object["metadata"]["uid"] == pod.uid.as_str();
        Ok((code == 200 && same).then_some(object))
    }

    /// Waits until a pod's container runs.
    pub fn wait_until_running(&self, pod: &Pod) -> anyhow::Result<Running> {
        let mut last = Value::Null;
        let id = wait::until("the pod to run", LIMIT, || {
            let object = self.object(pod)?.context("the pod is gone")?;
            last = object["status"].clone();
            let container = &last["containerStatuses"][0];
            let runs = last["phase"] == "Running" && container["state"]["running"].is_object();
            let id = container["containerID"].as_str().filter(|_| runs);
            Ok(id.and_then(|id| Some(id.split_once("://")?.1.to_owned())))
        });
        let container_id = id.with_context(|| format!("{}: {last}; {}", pod.name, self.words()))?;
        let sandbox = self.sandbox_of(pod)?.context("there is no sandbox of it")?;
        let pid = self.node().cri().container_pid(&container_id)?;
        Ok(Running {
            pod: pod.clone(),
            sandbox,
            container_id,
            pid,
        })
    }

    /// Creates a pod, and waits until it runs.
    pub fn run_pod(&self, spec: &PodSpec<'_>) -> anyhow::Result<Running> {
        self.wait_until_running(&self.create_pod(spec)?)
    }

    /// A pod's sandbox, if one is ready.
    pub fn sandbox_of(&self, pod: &Pod) -> anyhow::Result<Option<Sandbox>> {
        let node = self.node();
        let found = node.cri().sandboxes()?.into_iter().find_map(|sandbox| {
            let metadata = sandbox.metadata?;
            let ready = sandbox.state == 0 && metadata.uid == pod.uid;
            ready.then_some((sandbox.id, metadata.attempt))
        });
        let Some((id, attempt)) = found else {
            return Ok(None);
        };
        let config = node.pod_config(&pod.name, &pod.namespace, &pod.uid, attempt, false);
        node.sandbox(id, config).map(Some)
    }

    /// Deletes a pod as `kubectl delete` does.
    pub fn delete(&self, pod: &Pod) -> anyhow::Result<()> {
        self.delete_with(pod, &json!({ "propagationPolicy": "Background" }))
    }

    /// Deletes a pod as `kubectl delete --force --grace-period=0` does.
    pub fn force_delete(&self, pod: &Pod) -> anyhow::Result<()> {
        let options = json!({ "gracePeriodSeconds": 0, "propagationPolicy": "Background" });
        self.delete_with(pod, &options)
    }

    fn delete_with(&self, pod: &Pod, options: &Value) -> anyhow::Result<()> {
        let mut options = options.clone();
        options["kind"] = json!("DeleteOptions");
        options["apiVersion"] = json!("v1");
        options["preconditions"] = json!({ "uid": pod.uid });
        self.expect("DELETE", &path(pod), Some(&options)).map(drop)
    }
}
