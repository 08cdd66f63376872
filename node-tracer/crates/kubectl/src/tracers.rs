//! Who speaks for a node: the pod there that a DaemonSet of the tracer's own
//! namespace controls. A label proves nothing, as whoever may create a pod anywhere
//! can set it: such a pod could say that its node has no ghost, and would run a
//! command of the caller's.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The objects of a list.
#[derive(Deserialize)]
pub(crate) struct List<T> {
    pub(crate) items: Vec<T>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Meta {
    namespace: String,
    name: String,
    uid: String,
    owner_references: Vec<Owner>,
    deletion_timestamp: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Owner {
    api_version: String,
    kind: String,
    uid: String,
    controller: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: String,
    service_account_name: String,
    containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    name: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DaemonSet {
    metadata: Meta,
    spec: SetSpec,
}

#[derive(Debug, Deserialize)]
struct SetSpec {
    template: Template,
}

#[derive(Debug, Deserialize)]
struct Template {
    spec: PodSpec,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Pod {
    metadata: Meta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

/// One tracer's pod.
#[derive(Debug)]
pub(crate) struct Tracer {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
}

/// Who speaks for the nodes.
#[derive(Debug, Default)]
pub(crate) struct Speakers {
    /// By node; or why nobody does.
    pub(crate) of: BTreeMap<String, Result<Tracer, String>>,
    /// Pods with the tracer's labels that are not asked, and why.
    pub(crate) not_asked: Vec<String>,
}

impl PodSpec {
    fn account(&self) -> &str {
        match self.service_account_name.as_str() {
            "" => "default",
            name => name,
        }
    }
}

impl Pod {
    /// Its DaemonSet; or why it is no tracer.
    fn set<'a>(&self, namespace: &str, sets: &'a [DaemonSet]) -> Result<&'a DaemonSet, String> {
        if self.metadata.namespace != namespace {
            return Err(format!("it is not in namespace {namespace}"));
        }
        let owners = &self.metadata.owner_references;
        let controls = |it: &&Owner| {
            it.controller && it.kind == "DaemonSet" && it.api_version.starts_with("apps/")
        };
        let owner = owners.iter().find(controls);
        let set = owner.and_then(|owner| sets.iter().find(|it| it.metadata.uid == owner.uid));
        let set = set.ok_or("no DaemonSet of the tracer controls it")?;
        if self.spec.account() != set.spec.template.spec.account() {
            return Err("its service account is not the tracer's".into());
        }
        Ok(set)
    }

    fn is_running(&self) -> bool {
        self.status.phase == "Running"
    }

    fn is_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn label(&self) -> String {
        let Meta {
            namespace, name, ..
        } = &self.metadata;
        match self.spec.node_name.as_str() {
            "" => format!("{namespace}/{name}"),
            node => format!("{namespace}/{name} on {node}"),
        }
    }
}

impl Speakers {
    /// Among pods that have the tracer's labels.
    pub(crate) fn among(namespace: &str, sets: &[DaemonSet], pods: &[Pod]) -> Self {
        let mut this = Self::default();
        let mut own: BTreeMap<&str, Vec<(&Pod, &DaemonSet)>> = BTreeMap::new();
        for pod in pods {
            match pod.set(namespace, sets) {
                // Without a node it cannot be running anywhere.
                Ok(_) if pod.spec.node_name.is_empty() => {}
                Ok(set) => own.entry(&pod.spec.node_name).or_default().push((pod, set)),
                Err(why) => this.not_asked.push(format!("{}: {why}", pod.label())),
            }
        }
        for (node, pods) in own {
            let speaker = this.speaker(&pods);
            this.of.insert(node.to_owned(), speaker);
        }
        this
    }

    /// Which of a node's own pods.
    fn speaker(&mut self, pods: &[(&Pod, &DaemonSet)]) -> Result<Tracer, String> {
        let mut alive: Vec<_> = pods.iter().filter(|(pod, _)| pod.is_running()).collect();
        // While it is updated a node has two, of which the old one is being deleted.
        if alive.iter().any(|(pod, _)| !pod.is_deleted()) {
            alive.retain(|(pod, _)| !pod.is_deleted());
        }
        match *alive.as_slice() {
            [] => {
                let names = pods.iter().map(|(pod, _)| pod.metadata.name.as_str());
                let names: Vec<&str> = names.collect();
                Err(format!("its tracer {} does not run", names.join(", ")))
            }
            [(pod, set)] => {
                let container = set.spec.template.spec.containers.first();
                Ok(Tracer {
                    namespace: pod.metadata.namespace.clone(),
                    pod: pod.metadata.name.clone(),
                    container: container.map(|it| it.name.clone()).unwrap_or_default(),
                })
            }
            _ => {
                let why = "its node has several tracers";
                let named = alive
                    .iter()
                    .map(|(pod, _)| format!("{}: {why}", pod.label()));
                self.not_asked.extend(named);
                let number = alive.len();
                Err(format!(
                    "{number} tracers run there, of which none is asked"
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sets() -> Vec<DaemonSet> {
        let set = json!({
            "metadata": {"name": "node-tracer", "uid": "right"},
            "spec": {"template": {"spec": {
                "serviceAccountName": "node-tracer", "containers": [{"name": "tracer"}],
            }}},
        });
        vec![serde_json::from_value(set).unwrap()]
    }

    fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "metadata": {"namespace": "node-tracer", "name": name, "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "node-tracer",
                "uid": "right", "controller": true,
            }]},
            "spec": {"nodeName": "n1", "serviceAccountName": "node-tracer"},
            "status": {"phase": "Running"},
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    fn among(pods: &[Pod]) -> Speakers {
        Speakers::among("node-tracer", &sets(), pods)
    }

    #[test]
    fn only_a_pod_that_the_tracers_daemonset_controls_speaks_for_its_node() {
        let own = |it: &mut Value| it["metadata"]["ownerReferences"][0]["controller"] = true.into();
        let forgeries: [(&str, &str, Value); 6] = [
            ("/metadata/namespace", "acme", "acme".into()),
            ("/metadata/ownerReferences", "no owner", json!([])),
            ("/metadata/ownerReferences/0/uid", "uid", "wrong".into()),
            (
                "/metadata/ownerReferences/0/kind",
                "kind",
                "ReplicaSet".into(),
            ),
            (
                "/metadata/ownerReferences/0/controller",
                "no-controller",
                false.into(),
            ),
            ("/spec/serviceAccountName", "account", "default".into()),
        ];
        for (field, name, value) in forgeries {
            let forged = || pod(name, |it| *it.pointer_mut(field).unwrap() = value.clone());
            let alone = among(&[forged()]);
            assert!(alone.of.is_empty() && alone.not_asked.len() == 1, "{name}");
            let both = among(&[forged(), pod("node-tracer-abcde", own)]);
            let tracer = both.of["n1"].as_ref().unwrap();
            assert_eq!(tracer.pod, "node-tracer-abcde", "{name}");
            assert_eq!(tracer.container, "tracer");
            assert!(both.not_asked[0].contains(name), "{:?}", both.not_asked);
        }
    }

    #[test]
    fn of_several_that_run_on_a_node_none_is_asked() {
        let both = among(&[pod("a", |_| {}), pod("b", |_| {})]);
        assert!(
            both.of["n1"]
                .as_ref()
                .unwrap_err()
                .contains("none is asked")
        );
        assert_eq!(both.not_asked.len(), 2);
        let ends =
            |it: &mut Value| it["metadata"]["deletionTimestamp"] = "2026-11-26T13:00:00Z".into();
        let waits = |it: &mut Value| it["status"]["phase"] = "Pending".into();
        let update = among(&[pod("old", ends), pod("new", |_| {}), pod("next", waits)]);
        assert_eq!(update.of["n1"].as_ref().unwrap().pod, "new");
        assert!(update.not_asked.is_empty());
        let stopped = among(&[pod("next", waits)]);
        assert!(
            stopped.of["n1"]
                .as_ref()
                .unwrap_err()
                .contains("does not run")
        );
    }
}
