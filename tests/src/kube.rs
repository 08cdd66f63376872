//! A node with all that makes it one of a cluster: etcd, the API server and
//! kubelet, next to the runtime of [`containerd`].
//!
//! The three programs run in the namespaces and on the root of a
//! [`Containerd`], with the paths of a node that kubeadm has set up: kubelet's
//! credentials are in `/etc/kubernetes/kubelet.conf`, with a client certificate
//! by path. No scheduler and no controllers: pods say which node they are for.
//! The cgroups of pods are below `/nt-test-PID-N/kubepods`, and kubelet's
//! changes of sysctls go to files of the node (`inside`).
//!
//! Needs besides ([`NEEDS`]) a folder with the programs, named by
//! [`assets::FOLDER`]. On drop, or when the program that made it dies,
//! everything it started is killed.

mod account;
pub mod agent;
pub mod assets;
pub mod calico;
mod certificates;
pub mod clients;
pub mod incident;
pub(crate) mod inside;
mod many;
mod part;
mod pod;
pub mod released;
mod settings;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::containerd::{self, Containerd, Setup, Subnet};
use crate::kubepods::hierarchies;
use crate::paste::Shell;
use crate::pods::node_name;
use crate::scratch::Scratch;
use crate::stage::Need;
use crate::{helper, wait};

use assets::Assets;
use certificates::Authority;
use part::Part;
use settings::Settings;

pub use account::Account;
pub use many::Call;
pub use pod::{PodSpec, Running};

pub const NEEDS: &[Need] = &{
    const OWN: [Need; 3] = [
        Need::Program("openssl", "openssl"),
        Need::Program("curl", "curl"),
        // Last: what is not in a distribution is told after what is.
        Need::KubeAssets,
    ];
    let mut needs = [Need::KubeAssets; containerd::NEEDS.len() + OWN.len()];
    let mut at = 0;
    while at < containerd::NEEDS.len() {
        needs[at] = containerd::NEEDS[at];
        at += 1;
    }
    let mut own = 0;
    while own < OWN.len() {
        needs[at + own] = OWN[own];
        own += 1;
    }
    needs
};

/// The API server, as the node reaches it.
const SERVER: &str = "https://127.0.0.1:6443";
const ADDRESS_AND_PORT: (&str, &str) = ("127.0.0.1", "6443");
/// kubelet's credentials, on the node: where kubeadm has them.
pub const KUBELET_CONFIG: &str = "/etc/kubernetes/kubelet.conf";
/// Time to start, with a machine that does much else.
const START: Duration = Duration::from_secs(120);

/// A running node of a cluster.
#[derive(Debug)]
pub struct Kube {
    // Dropped in this order: kubelet would start again what the node ends.
    kubelet: Option<Part>,
    api_server: Option<Part>,
    etcd: Option<Part>,
    node: Containerd,
    name: String,
    authority: Authority,
    scratch: Scratch,
    /// Programs and arguments, to start them again.
    kubelet_line: (PathBuf, Vec<String>),
    api_server_line: (PathBuf, Vec<String>),
}

/// An answer of the API server: its status, and its body.
pub type Response = (u16, Value);

impl Kube {
    /// Starts one that has these folders of the host too, at the same paths.
    /// Back when the node is ready for pods.
    pub fn start(volumes: &[&Path]) -> anyhow::Result<Self> {
        let scratch = Scratch::create()?;
        let assets = Assets::find(scratch.path())?;
        let folders = assets.folders();
        let shared: Vec<&Path> = volumes
            .iter()
            .copied()
            .chain(folders.iter().map(PathBuf::as_path))
            .collect();
        let authority = Authority::create(scratch.path())?;
        let node = Containerd::start_as(Setup {
            subnet: Subnet::Small,
            volumes: &shared,
            ..Setup::default()
        })?;
        let mut this = Self {
            kubelet: None,
            api_server: None,
            etcd: None,
            node,
            name: node_name().to_lowercase(),
            authority,
            scratch,
            kubelet_line: (assets.kubelet.clone(), Vec::new()),
            api_server_line: (assets.api_server.clone(), settings::api_server()),
        };
        this.start_parts(&assets)
            .with_context(|| format!("start the cluster's part of the node; {}", this.words()))?;
        Ok(this)
    }

    fn start_parts(&mut self, assets: &Assets) -> anyhow::Result<()> {
        inside::prepare(&self.node)?;
        let settings = Settings {
            node: &self.name,
            cgroup_root: self.node.cgroup_top(),
        };
        self.authority.sign_node(&self.name)?;
        settings.write(&self.node, &self.authority)?;
        // kubelet makes cgroups only below one that is there.
        for hierarchy in hierarchies() {
            let folder = hierarchy.join(self.node.cgroup_top());
            fs::create_dir_all(&folder).with_context(|| format!("mkdir {}", folder.display()))?;
        }
        self.kubelet_line.1 = settings.kubelet();
        let (node, log) = (&self.node, self.scratch.path());
        self.etcd = Some(Part::start(node, log, &assets.etcd, &settings::etcd())?);
        self.start_api_server(&[])?;
        self.start_kubelet()
    }

    /// Kills the API server.
    pub fn kill_api_server(&mut self) {
        self.api_server = None;
    }

    /// Starts the API server, for the first time or again, with these arguments
    /// besides its own. Back when it is ready.
    pub fn start_api_server(&mut self, more: &[String]) -> anyhow::Result<()> {
        let (program, args) = &self.api_server_line;
        let args = [args.as_slice(), more].concat();
        let server = Part::start(&self.node, self.scratch.path(), program, &args)?;
        self.api_server = Some(server);
        self.until("the API server", |this| {
            Ok(this.call("GET", "/readyz", None)?.0 == 200)
        })
    }

    /// Kills kubelet, as a crash or an upgrade does.
    pub fn kill_kubelet(&mut self) {
        self.kubelet = None;
    }

    /// Starts kubelet, for the first time or again. Back when the node is ready.
    pub fn start_kubelet(&mut self) -> anyhow::Result<()> {
        let (program, args) = &self.kubelet_line;
        let kubelet = Part::start(&self.node, self.scratch.path(), program, args)?;
        self.kubelet = Some(kubelet);
        let own = format!("/api/v1/nodes/{}", self.name);
        self.until("the node to be ready", |this| {
            let (_, node) = this.call("GET", &own, None)?;
            let conditions = node["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten();
            let ready = |each: &Value| each["type"] == "Ready" && each["status"] == "True";
            Ok(conditions.clone().any(ready))
        })
    }

    /// Waits for something that takes until all parts have started. A part that
    /// has ended is told at once.
    fn until(
        &mut self,
        what: &str,
        done: impl Fn(&Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let this = &mut *self;
        wait::until(what, START, || {
            for part in [&mut this.etcd, &mut this.api_server, &mut this.kubelet] {
                part.as_mut().map_or(Ok(()), Part::lives)?;
            }
            // Not reachable yet is no failure.
            Ok(done(this).unwrap_or(false).then_some(()))
        })
    }

    /// A root's shell on the node, of somebody who may do all in the cluster.
    pub fn shell(&self) -> anyhow::Result<Shell> {
        let shell = Shell::on(&self.node)?;
        Settings::write_admin(&self.node)?;
        Ok(shell)
    }

    /// The last lines of each part's log, for a failed test's message.
    pub fn words(&self) -> String {
        let parts = [&self.etcd, &self.api_server, &self.kubelet];
        parts.into_iter().flatten().map(Part::words).collect()
    }

    /// The node's part that is not the cluster's.
    pub fn node(&self) -> &Containerd {
        &self.node
    }

    /// The node's name in the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Process ID of the API server.
    pub fn api_server_pid(&self) -> anyhow::Result<u32> {
        let part = self.api_server.as_ref().context("no API server")?;
        Ok(part.pid())
    }

    /// Process IDs of etcd, the API server and kubelet.
    pub fn pids(&self) -> Vec<u32> {
        let parts = [&self.etcd, &self.api_server, &self.kubelet];
        parts.into_iter().flatten().map(Part::pid).collect()
    }

    /// A folder of this guard's, on the host.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Stops the API server in its tracks: it accepts and never answers. Until
    /// [`thaw`](Self::thaw) no call here works.
    pub fn freeze(&self) -> anyhow::Result<()> {
        let part = self.api_server.as_ref().context("no API server")?;
        part.signal(libc::SIGSTOP)
    }

    /// Lets it go on.
    pub fn thaw(&self) -> anyhow::Result<()> {
        let part = self.api_server.as_ref().context("no API server")?;
        part.signal(libc::SIGCONT)
    }

    /// Calls the API as the cluster's administrator.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Response> {
        let body = body.map(Value::to_string);
        self.send(method, path, "application/json", body.as_deref())
    }

    /// The same with any kind of body.
    fn send(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: Option<&str>,
    ) -> anyhow::Result<Response> {
        let mut curl = self.node.command("curl")?;
        curl.args(["--silent", "--show-error", "--max-time", "30"])
            .args(["--request", method])
            .args(["--header", &format!("Content-Type: {kind}")])
            .args(["--write-out", "\n%{http_code}"])
            .arg("--cacert")
            .arg(self.authority.certificate())
            .arg("--cert")
            .arg(self.authority.file("admin.crt"))
            .arg("--key")
            .arg(self.authority.file("admin.key"))
            .arg(format!("{SERVER}{path}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if body.is_some() {
            curl.args(["--data-binary", "@-"]);
        }
        let what = || format!("{method} {path}");
        let mut child = curl.spawn().context("start curl")?;
        if let (Some(mut stdin), Some(body)) = (child.stdin.take(), body) {
            stdin.write_all(body.as_bytes())?;
        }
        let output = child.wait_with_output().with_context(what)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}", what(), stderr.trim());
        let text = String::from_utf8(output.stdout).with_context(what)?;
        let (text, code) = text.rsplit_once('\n').with_context(what)?;
        // What is no JSON is text: `ok`, or metrics.
        let body = serde_json::from_str(text).unwrap_or_else(|_| text.into());
        Ok((code.parse().with_context(what)?, body))
    }

    /// Requests for the pods of the cluster that the server has counted, whoever
    /// made them, by verb.
    pub fn pod_requests(&self, verb: &str) -> anyhow::Result<u64> {
        let verb = format!("verb=\"{verb}\"");
        self.requests(&[&verb, "resource=\"pods\"", "scope=\"cluster\""])
    }

    /// Requests that the server has counted with these labels, whoever made them.
    pub fn requests(&self, labels: &[&str]) -> anyhow::Result<u64> {
        let metrics = self.expect("GET", "/metrics", None)?;
        let lines = metrics.as_str().context("no metrics")?.lines();
        let counted = lines
            .filter(|line| line.starts_with("apiserver_request_total{"))
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Ok(counted.sum())
    }

    /// The same, for what is to go well. Returns the body.
    pub fn expect(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let (code, answer) = self.call(method, path, body)?;
        let well = (200..300).contains(&code);
        ensure!(well, "{method} {path}: {code} {}", answer["message"]);
        Ok(answer)
    }
}

/// The helper role that makes a node's namespaces ready; see [`inside`].
const PREPARE: &str = "kube-prepare";

fn run_helper(args: &[&str]) -> anyhow::Result<()> {
    let output = helper::command(None, None, PREPARE)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .context("start a helper")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", stderr.trim());
    Ok(())
}
