//! The pods that the API server knows, as a file for `--pods`.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::scratch::pod_uid;

/// A pod's three names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Pod {
    /// One with a fresh UID.
    pub fn new(namespace: &str, name: &str) -> anyhow::Result<Self> {
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: pod_uid()?,
        })
    }
}

/// The list, kept in a file as `kubectl get pods -A -o json` prints it. As on
/// any cluster, there are pods that nobody asks about: one of the pods' own
/// Kubernetes namespace on this node, and an agent.
#[derive(Debug)]
pub struct PodsFile {
    path: PathBuf,
    node: String,
    pods: Vec<(Pod, Option<Ipv4Addr>)>,
}

/// Name of this machine, by which the tracer calls its node.
pub fn node_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

impl PodsFile {
    /// An empty list in `folder`.
    pub fn create(folder: &Path) -> anyhow::Result<Self> {
        let this = Self {
            path: folder.join("pods.json"),
            node: node_name(),
            pods: Vec::new(),
        };
        this.write()?;
        Ok(this)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a pod, or gives one its address.
    pub fn put(&mut self, pod: &Pod, address: Option<Ipv4Addr>) -> anyhow::Result<()> {
        self.pods.retain(|(other, _)| other.uid != pod.uid);
        self.pods.push((pod.clone(), address));
        self.write()
    }

    /// Removes a pod, as a forced deletion does: at once, whatever the node does.
    pub fn remove(&mut self, pod: &Pod) -> anyhow::Result<()> {
        self.pods.retain(|(other, _)| other.uid != pod.uid);
        self.write()
    }

    fn item(&self, pod: &Pod, address: Option<Ipv4Addr>) -> Value {
        let status = match address {
            Some(ip) => json!({ "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }] }),
            None => json!({ "phase": "Pending" }),
        };
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": pod.name, "namespace": pod.namespace, "uid": pod.uid },
            "spec": { "nodeName": self.node, "containers": [{ "name": "app", "image": "app" }] },
            "status": status,
        })
    }

    /// Replaces the file in one step, so that no reader sees half of it.
    fn write(&self) -> anyhow::Result<()> {
        let others = [("shop", "standing", 1), ("kube-system", "agent", 2)];
        let others = others.map(|(namespace, name, number)| Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            // Lists are read in the order of UIDs: these are the last.
            uid: format!("ffffffff-ffff-4fff-bfff-{number:012}"),
        });
        let others = others.iter().map(|pod| self.item(pod, None));
        let pods = self.pods.iter();
        let pods = pods.map(|(pod, address)| self.item(pod, *address));
        let items: Vec<Value> = pods.chain(others).collect();
        let list = json!({
            "apiVersion": "v1",
            "kind": "List",
            "metadata": { "resourceVersion": "" },
            "items": items,
        });
        let next = self.path.with_extension("json.next");
        fs::write(&next, format!("{list:#}\n"))
            .and_then(|()| fs::rename(&next, &self.path))
            .with_context(|| format!("write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_removed_pod_is_gone_from_the_list_and_the_others_stay() {
        let folder = Scratch::create().unwrap();
        let mut file = PodsFile::create(folder.path()).unwrap();
        let names = |file: &PodsFile| -> Vec<String> {
            let list: Value = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
            assert_eq!(list["kind"], "List");
            let items = list["items"].as_array().unwrap();
            items[..items.len() - 2]
                .iter()
                .map(|item| item["metadata"]["name"].to_string())
                .collect()
        };
        let (a, b) = (
            Pod::new("shop", "a").unwrap(),
            Pod::new("shop", "b").unwrap(),
        );
        file.put(&a, None).unwrap();
        file.put(&b, Some(Ipv4Addr::new(198, 18, 0, 2))).unwrap();
        file.put(&a, Some(Ipv4Addr::new(198, 18, 0, 3))).unwrap();
        assert_eq!(names(&file), ["\"b\"", "\"a\""]);
        file.remove(&b).unwrap();
        assert_eq!(names(&file), ["\"a\""]);
    }
}
