//! How the programs of the cluster are configured: files of the node, and
//! command lines.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::certificates::Authority;
use super::inside::ADDRESS;
use super::{KUBELET_CONFIG, SERVER};
use crate::containerd::{Containerd, SOCKET};

/// Certificates of the control plane, as kubeadm has them.
const PKI: &str = "/etc/kubernetes/pki";
/// kubelet's own, which it replaces by itself where it may.
const NODE_PKI: &str = "/var/lib/kubelet/pki";
const CURRENT: &str = "kubelet-client-current.pem";
const KUBELET_SETTINGS: &str = "/var/lib/kubelet/config.yaml";
const ETCD: &str = "http://127.0.0.1:2379";

/// What differs from node to node.
pub(super) struct Settings<'a> {
    /// Its name in the cluster.
    pub(super) node: &'a str,
    /// Name of the cgroup below which all others are.
    pub(super) cgroup_root: &'a str,
}

/// A kubeconfig of one cluster and one user. (JSON is YAML.) `authority` is a
/// path.
pub(super) fn kubeconfig(authority: &Path, name: &str, user: &Value) -> String {
    let cluster = json!({ "server": SERVER, "certificate-authority": authority });
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "stage", "cluster": cluster }],
        "users": [{ "name": name, "user": user }],
        "contexts": [{ "name": "stage", "context": { "cluster": "stage", "user": name } }],
        "current-context": "stage",
    })
    .to_string()
}

impl Settings<'_> {
    /// Writes all files to the node's root.
    pub(super) fn write(&self, node: &Containerd, authority: &Authority) -> anyhow::Result<()> {
        let write = |path: &str, text: &str| -> anyhow::Result<()> {
            let path = node.host_path(path);
            let folder = path.parent().context("no folder")?;
            fs::create_dir_all(folder)?;
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))
        };
        for file in [
            "ca.crt",
            "api-server.crt",
            "api-server.key",
            "accounts.crt",
            "accounts.key",
            "admin.crt",
            "admin.key",
        ] {
            write(&format!("{PKI}/{file}"), &authority.text(file)?)?;
        }
        // As kubelet leaves it: key and certificate in one file, with a date in
        // its name, and a link to the newest.
        let both = authority.text("node.crt")? + &authority.text("node.key")?;
        let newest = "kubelet-client-2026-01-01-00-00-00.pem";
        write(&format!("{NODE_PKI}/{newest}"), &both)?;
        let current = format!("{NODE_PKI}/{CURRENT}");
        symlink(format!("{NODE_PKI}/{newest}"), node.host_path(&current))?;
        let user = json!({ "client-certificate": current, "client-key": current });
        let trusted = format!("{PKI}/ca.crt");
        // kubeadm's name for it, which does not tell the node.
        let config = kubeconfig(Path::new(&trusted), "default-auth", &user);
        write(KUBELET_CONFIG, &config)?;
        write(KUBELET_SETTINGS, &self.kubelet_settings().to_string())
    }

    /// Gives the node's root the administrator's credentials.
    pub(super) fn write_admin(node: &Containerd) -> anyhow::Result<()> {
        let [certificate, key] = ["admin.crt", "admin.key"].map(|file| format!("{PKI}/{file}"));
        let user = json!({ "client-certificate": certificate, "client-key": key });
        let config = kubeconfig(Path::new(&format!("{PKI}/ca.crt")), "admin", &user);
        let folder = node.host_path("/root/.kube");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("config"), config).context("write root's kubeconfig")
    }

    fn kubelet_settings(&self) -> Value {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "authentication": {
                "anonymous": { "enabled": false },
                "webhook": { "enabled": false },
                "x509": { "clientCAFile": format!("{PKI}/ca.crt") },
            },
            "authorization": { "mode": "AlwaysAllow" },
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", self.cgroup_root),
            "failSwapOn": false,
            "makeIPTablesUtilChains": false,
            "enableControllerAttachDetach": false,
            "resolvConf": "",
            "serializeImagePulls": false,
            "imageGCHighThresholdPercent": 100,
            // A full disk is not what is looked for.
            "evictionHard": { "memory.available": "50Mi", "nodefs.available": "1%" },
            "nodeStatusUpdateFrequency": "2s",
        })
    }

    pub(super) fn kubelet(&self) -> Vec<String> {
        vec![
            format!("--config={KUBELET_SETTINGS}"),
            format!("--kubeconfig={KUBELET_CONFIG}"),
            format!("--hostname-override={}", self.node),
            format!("--node-ip={ADDRESS}"),
            "--container-runtime=remote".to_owned(),
            format!("--container-runtime-endpoint=unix://{SOCKET}"),
            format!("--cert-dir={NODE_PKI}"),
            "--volume-plugin-dir=/var/lib/kubelet/plugins".to_owned(),
        ]
    }
}

pub(super) fn etcd() -> Vec<String> {
    vec![
        "--data-dir=/var/lib/etcd".to_owned(),
        format!("--listen-client-urls={ETCD}"),
        format!("--advertise-client-urls={ETCD}"),
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
        "--unsafe-no-fsync".to_owned(),
    ]
}

pub(super) fn api_server() -> Vec<String> {
    vec![
        format!("--etcd-servers={ETCD}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--advertise-address={ADDRESS}"),
        "--secure-port=6443".to_owned(),
        format!("--tls-cert-file={PKI}/api-server.crt"),
        format!("--tls-private-key-file={PKI}/api-server.key"),
        format!("--client-ca-file={PKI}/ca.crt"),
        // For exec and logs.
        format!("--kubelet-client-certificate={PKI}/admin.crt"),
        format!("--kubelet-client-key={PKI}/admin.key"),
        format!("--service-account-key-file={PKI}/accounts.crt"),
        format!("--service-account-signing-key-file={PKI}/accounts.key"),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        // Without the controllers no namespace has the account that this asks for.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
        "--allow-privileged=true".to_owned(),
    ]
}
