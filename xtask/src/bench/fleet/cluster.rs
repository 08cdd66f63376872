//! The cluster: its server, and the objects of its nodes.

use std::fs;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use node_tracer_tests::kube::{Account, Call, Kube, calico};
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::wait;
use serde_json::{Value, json};

use super::clients::Clients;
use super::span::{Counts, Span};
use super::{PACE, PODS};
use crate::bench::process::{cpu_time, memory};

const NAMESPACES: usize = 10;
/// Of the node, as it sees them.
const POLICY: &str = "/etc/kubernetes/audit-policy.yaml";
const LOG: &str = "/var/log/audit.log";

#[derive(Debug)]
pub(super) struct Cluster {
    kube: Kube,
    account: Account,
    /// Root folder of every node.
    root: Scratch,
    nodes: usize,
}

impl Cluster {
    pub(super) fn start() -> anyhow::Result<Self> {
        let mut kube = Kube::start(&[])?;
        kube.kill_kubelet();
        let account = Account::create(&kube)?;
        account.grant(&kube)?;
        account.grant_blocks(&kube)?;
        calico::define(&kube)?;
        let namespace = |number| Call {
            method: "POST",
            path: String::from("/api/v1/namespaces"),
            body: Some(json!({ "metadata": { "name": format!("fleet-{number}") } })),
        };
        kube.call_all(&(0..NAMESPACES).map(namespace).collect::<Vec<_>>())?;
        let root = Scratch::create()?;
        calico::configure(root.path())?;
        fs::write(kube.node().host_path(POLICY), policy().to_string())?;
        let mut this = Self {
            kube,
            account,
            root,
            nodes: 0,
        };
        this.restart_server(Duration::ZERO)?;
        Ok(this)
    }

    /// The clients' command line.
    pub(super) fn command(&self, program: &Path) -> anyhow::Result<Command> {
        // Each client has a handful of descriptors.
        let line = r#"ulimit -n "$(ulimit -H -n)"; exec "$@""#;
        let mut command = self.kube.node().command("sh")?;
        command
            .args(["-c", line, "sh"])
            .arg(program)
            .arg(self.account.kubeconfig())
            .arg(self.root.path());
        Ok(command)
    }

    /// Ends the server, and starts it again after this time. Back when it is ready.
    pub(super) fn restart_server(&mut self, pause: Duration) -> anyhow::Result<()> {
        self.kube.kill_api_server();
        wait::pause(pause)?;
        let audit = [
            format!("--audit-policy-file={POLICY}"),
            format!("--audit-log-path={LOG}"),
            // MB: one file.
            String::from("--audit-log-maxsize=4096"),
        ];
        self.kube.start_api_server(&audit)
    }

    /// Has the cluster have so many nodes, with their pods and blocks.
    pub(super) fn grow(&mut self, nodes: usize) -> anyhow::Result<()> {
        let new = self.nodes..nodes.max(self.nodes);
        self.kube
            .call_all(&new.clone().flat_map(node).collect::<Vec<_>>())?;
        let pods = new.flat_map(|node| (0..PODS).map(move |number| Pod { node, number }));
        self.make(&pods.collect::<Vec<_>>())?;
        self.nodes = nodes.max(self.nodes);
        Ok(())
    }

    fn make(&self, pods: &[Pod]) -> anyhow::Result<()> {
        self.kube
            .call_all(&pods.iter().map(Pod::create).collect::<Vec<_>>())?;
        self.kube
            .call_all(&pods.iter().map(Pod::run).collect::<Vec<_>>())
    }

    fn delete(&self, pods: &[Pod]) -> anyhow::Result<()> {
        self.kube
            .call_all(&pods.iter().map(Pod::delete).collect::<Vec<_>>())
    }

    fn of_first_nodes(nodes: usize) -> Vec<Pod> {
        let pods = (0..nodes).flat_map(|node| (0..PODS).map(move |number| Pod { node, number }));
        pods.collect()
    }

    /// Where the pods of the first so many nodes go.
    fn elsewhere(&self, leaving: usize) -> Vec<Pod> {
        let others = self.nodes - leaving;
        let place = |index| Pod {
            node: leaving + index % others,
            number: PODS + index / others,
        };
        (0..leaving * PODS).map(place).collect()
    }

    /// Deletes the pods of the first so many nodes, and makes as many on the others, as
    /// fast as controllers do.
    /// Returns how many.
    pub(super) fn drain(&self, leaving: usize) -> anyhow::Result<usize> {
        let (pods, places) = (Self::of_first_nodes(leaving), self.elsewhere(leaving));
        for (old, new) in pods.chunks(PACE).zip(places.chunks(PACE)) {
            let second = Instant::now() + Duration::from_secs(1);
            self.delete(old)?;
            self.make(new)?;
            wait::pause(second.saturating_duration_since(Instant::now()))?;
        }
        Ok(pods.len())
    }

    pub(super) fn undo_drain(&self, leaving: usize) -> anyhow::Result<()> {
        self.delete(&self.elsewhere(leaving))?;
        self.make(&Self::of_first_nodes(leaving))
    }

    /// Counts while something goes on.
    pub(super) fn during<T>(
        &mut self,
        clients: Option<&Clients>,
        what: impl FnOnce(&mut Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<(Span, T)> {
        let log = self.kube.node().host_path(LOG);
        let end = fs::metadata(&log).map_or(0, |file| file.len());
        let (bytes, pids, used) = (self.bytes(clients)?, self.kube.pids(), self.used()?);
        let (from, start) = (Timestamp::now(), Instant::now());
        let value = what(self)?;
        let (to, length) = (Timestamp::now(), start.elapsed());
        let now = self.used()?;
        let used = match self.kube.pids() == pids {
            true => now.saturating_sub(used),
            // The server is another one.
            false => now,
        };
        let memory = self.kube.pids().into_iter().try_fold(0, |sum, pid| {
            Ok::<u64, anyhow::Error>(sum + memory(pid, "VmRSS")? * 1024)
        })?;
        let span = Span {
            length,
            counts: Counts::of(&tail(&log, end)?, from, to)?,
            bytes: (self.bytes(clients)? - bytes).max(0.0),
            used,
            memory: memory as f64,
        };
        Ok((span, value))
    }

    fn used(&self) -> anyhow::Result<Duration> {
        let mut pids = self.kube.pids().into_iter();
        pids.try_fold(Duration::ZERO, |sum, pid| Ok(sum + cpu_time(pid)?))
    }

    /// What the clients were answered: as they count it, or else as the server counts
    /// lists and gets.
    fn bytes(&self, clients: Option<&Clients>) -> anyhow::Result<f64> {
        let counted = clients.map_or(0, Clients::bytes);
        if counted > 0 {
            return Ok(counted as f64);
        }
        let metrics = self.kube.expect("GET", "/metrics", None)?;
        let sums = metrics.as_str().context("no metrics")?.lines();
        let sums = sums.filter(|line| {
            let is = |label: &str| line.contains(label);
            line.starts_with("apiserver_response_sizes_sum{")
                && (is("verb=\"LIST\"") || is("verb=\"GET\""))
                && (is("resource=\"pods\"") || is("resource=\"ipamblocks\""))
        });
        let numbers = sums.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(numbers.sum())
    }
}

/// A file from there on.
fn tail(path: &PathBuf, from: u64) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        // Nothing was asked yet.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(text),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    file.seek(SeekFrom::Start(from))?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        // When a request comes in: a watch says that it has begun only with its first event.
        "omitStages": ["ResponseStarted", "ResponseComplete", "Panic"],
        "rules": [
            { "level": "Metadata", "users": ["system:serviceaccount:kube-system:node-tracer"] },
            { "level": "None" },
        ],
    })
}

fn block_of(node: usize) -> [usize; 3] {
    [64 + node / 1_024, node % 1_024 / 4, node % 4 * 64]
}

/// A node and its block.
fn node(node: usize) -> [Call; 2] {
    let [b, c, d] = block_of(node);
    let name = format!("node-{node}");
    let pods = (0..PODS).map(|number| Pod { node, number });
    let allocated: Vec<(String, String, String)> = pods
        .map(|pod| (pod.id(), pod.namespace(), pod.name()))
        .collect();
    let block = calico::block([10, b as u8, c as u8, d as u8], &name, &allocated);
    let object = json!({ "metadata": { "name": name } });
    [("/api/v1/nodes", object), (calico::BLOCKS, block)].map(|(path, body)| Call {
        method: "POST",
        path: path.to_owned(),
        body: Some(body),
    })
}

#[derive(Clone, Copy, Debug)]
struct Pod {
    node: usize,
    /// On its node.
    number: usize,
}

impl Pod {
    fn namespace(&self) -> String {
        format!("fleet-{}", self.number % NAMESPACES)
    }

    fn name(&self) -> String {
        format!("application-{}-7d4b9c6f58-{:05}", self.number, self.node)
    }

    /// Of its container.
    fn id(&self) -> String {
        format!("{:064x}", self.node * 1_000 + self.number)
    }

    fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace())
    }

    fn create(&self) -> Call {
        let application = format!("application-{}", self.number);
        let probe = json!({ "httpGet": { "path": "/healthz", "port": 8080 }, "periodSeconds": 10 });
        let variable = |number| json!({ "name": format!("SETTING_{number}"), "value": "a value of some length" });
        let pod = json!({
            "metadata": {
                "name": self.name(),
                "labels": {
                    "app.kubernetes.io/name": application, "app.kubernetes.io/part-of": "shop",
                    "pod-template-hash": "7d4b9c6f58",
                },
                "annotations": { "prometheus.io/scrape": "true", "prometheus.io/port": "9100" },
            },
            "spec": {
                "nodeName": format!("node-{}", self.node),
                "containers": [{
                    "name": "server",
                    "image": format!("registry.example/shop/{application}:1.27.3"),
                    "args": ["--listen=:8080", "--log-level=info"],
                    "env": (0..8).map(variable).collect::<Vec<_>>(),
                    "ports": [{ "containerPort": 8080, "name": "http" }],
                    "resources": {
                        "requests": { "cpu": "100m", "memory": "128Mi" },
                        "limits": { "memory": "256Mi" },
                    },
                    "livenessProbe": probe, "readinessProbe": probe,
                    "volumeMounts": [{ "name": "settings", "mountPath": "/etc/settings" }],
                }],
                "volumes": [{ "name": "settings", "configMap": { "name": application } }],
                "tolerations": [
                    { "key": "node.kubernetes.io/not-ready", "operator": "Exists",
                      "effect": "NoExecute", "tolerationSeconds": 300 },
                    { "key": "node.kubernetes.io/unreachable", "operator": "Exists",
                      "effect": "NoExecute", "tolerationSeconds": 300 },
                ],
            },
        });
        Call {
            method: "POST",
            path: self.collection(),
            body: Some(pod),
        }
    }

    /// kubelet says that it runs.
    fn run(&self) -> Call {
        let [b, c, d] = block_of(self.node);
        let address = format!("10.{b}.{c}.{}", d + self.number);
        let at = "2026-11-26T10:00:00Z";
        let condition = |kind| json!({ "type": kind, "status": "True", "lastTransitionTime": at });
        let kinds = ["Initialized", "Ready", "ContainersReady", "PodScheduled"];
        let id = self.id();
        let status = json!({
            "phase": "Running", "hostIP": "192.168.0.1", "podIP": address,
            "podIPs": [{ "ip": address }], "qosClass": "Burstable", "startTime": at,
            "conditions": kinds.map(condition),
            "containerStatuses": [{
                "name": "server", "ready": true, "started": true, "restartCount": 0,
                "image": "registry.example/shop/application:1.27.3",
                "imageID": format!("registry.example/shop/application@sha256:{id}"),
                "containerID": format!("containerd://{id}"),
                "state": { "running": { "startedAt": at } }, "lastState": {},
            }],
        });
        Call {
            method: "PATCH",
            path: format!("{}/{}/status", self.collection(), self.name()),
            body: Some(json!({ "status": status })),
        }
    }

    fn delete(&self) -> Call {
        Call {
            method: "DELETE",
            path: format!("{}/{}", self.collection(), self.name()),
            body: Some(json!({ "gracePeriodSeconds": 0 })),
        }
    }
}
