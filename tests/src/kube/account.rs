//! The tracer's own service account, with the rights that its documentation asks
//! for and no other.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{Kube, settings::kubeconfig};

/// The namespace of the account.
pub const NAMESPACE: &str = "kube-system";
/// Its name, and that of its role.
pub(super) const NAME: &str = "node-tracer";

const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A service account of the tracer.
#[derive(Debug)]
pub struct Account {
    kubeconfig: PathBuf,
}

fn named(kind: &str, version: &str, name: &str) -> Value {
    json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } })
}

impl Account {
    /// Creates it in the cluster, without any rights, and asks for a token.
    pub fn create(kube: &Kube) -> anyhow::Result<Self> {
        kube.expect("POST", ACCOUNTS, Some(&named("ServiceAccount", "v1", NAME)))?;
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": 3600 },
        });
        let answer = kube.expect("POST", &format!("{ACCOUNTS}/{NAME}/token"), Some(&request))?;
        let token = answer["status"]["token"].as_str().context("no token")?;
        let this = Self {
            kubeconfig: kube.scratch().join("tracer.kubeconfig"),
        };
        let user = json!({ "token": token });
        let text = kubeconfig(&kube.authority.certificate(), NAME, &user);
        fs::write(&this.kubeconfig, text).context("write the kubeconfig")?;
        Ok(this)
    }

    /// Lets it list and watch pods, and ask whether the node exists, as the
    /// shipped role does.
    pub fn grant(&self, kube: &Kube) -> anyhow::Result<()> {
        let verbs = ["list", "watch"];
        let rules = json!([
            { "apiGroups": [""], "resources": ["pods"], "verbs": verbs },
            // Without it an empty list does not show that the node has no pods.
            { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] },
        ]);
        self.allow(kube, NAME, &rules)
    }

    /// Takes back what was [granted](Self::grant).
    pub fn revoke(&self, kube: &Kube) -> anyhow::Result<()> {
        let path = format!("{RBAC}/clusterrolebindings/{NAME}");
        kube.expect("DELETE", &path, None).map(drop)
    }

    /// Has the account do this, by a role of this name.
    fn allow(&self, kube: &Kube, name: &str, rules: &Value) -> anyhow::Result<()> {
        let version = "rbac.authorization.k8s.io/v1";
        let named = |kind| named(kind, version, name);
        let mut role = named("ClusterRole");
        role["rules"] = rules.clone();
        kube.expect("POST", &format!("{RBAC}/clusterroles"), Some(&role))?;
        let mut binding = named("ClusterRoleBinding");
        binding["roleRef"] =
            json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
        binding["subjects"] =
            json!([{ "kind": "ServiceAccount", "namespace": NAMESPACE, "name": NAME }]);
        let bindings = format!("{RBAC}/clusterrolebindings");
        kube.expect("POST", &bindings, Some(&binding)).map(drop)
    }

    /// Lets it get Calico's blocks, too, and list them.
    pub fn grant_blocks(&self, kube: &Kube) -> anyhow::Result<()> {
        let group = "crd.projectcalico.org";
        self.allow(
            kube,
            "node-tracer-blocks",
            &json!([{ "apiGroups": [group], "resources": ["ipamblocks"], "verbs": ["get", "list"] }]),
        )
    }

    /// Lets it write Events, too.
    pub fn grant_events(&self, kube: &Kube) -> anyhow::Result<()> {
        self.allow(
            kube,
            "node-tracer-events",
            &json!([{
                "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"],
            }]),
        )
    }

    /// Lets it change nodes' status, too.
    pub fn grant_condition(&self, kube: &Kube) -> anyhow::Result<()> {
        self.allow(
            kube,
            "node-tracer-node-condition",
            &json!([{ "apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"] }]),
        )
    }

    /// Whether the API server lets it, by now: roles take a moment.
    pub fn may_write_events(&self, kube: &Kube) -> anyhow::Result<bool> {
        let events = json!({
            "group": "events.k8s.io", "resource": "events", "verb": "create",
            "namespace": "default",
        });
        Self::may(kube, &events)
    }

    /// The same for nodes' status.
    pub fn may_set_condition(&self, kube: &Kube) -> anyhow::Result<bool> {
        let status = json!({ "resource": "nodes", "subresource": "status", "verb": "patch" });
        Self::may(kube, &status)
    }

    fn may(kube: &Kube, what: &Value) -> anyhow::Result<bool> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": format!("system:serviceaccount:{NAMESPACE}:{NAME}"),
                "resourceAttributes": what,
            },
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = kube.expect("POST", path, Some(&review))?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// The file for `--kubeconfig`.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}
