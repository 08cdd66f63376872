//! A node without a container runtime: a root of its own (`own_root`) with a
//! pod network's configuration, and host-local's store in it, which the real
//! plugin fills. A [runtime by script](crate::scripted_cri) can be had besides.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::own_root::{self, Node};
use crate::{cni, helper};

/// Name of the pod network, unless another is given.
pub const NETWORK: &str = "stage";
/// To start, and to end.
const LIMIT: Duration = Duration::from_secs(10);
/// Where stores of reservations are, on the node.
pub const STORES: &str = "/var/lib/cni/networks";

#[derive(Debug)]
pub struct Bare(Node);

/// The helper itself: says that it is there, and waits for the end.
pub(crate) fn serve(folder: &Path) -> anyhow::Result<()> {
    own_root::enter(folder, &[])?;
    own_root::become_first_process()?;
    helper::ready_until_the_end()
}

/// A pod network by host-local with these ranges, each of a range set.
pub fn network(name: &str, subnets: &[&str]) -> Value {
    let ranges = subnets.iter().map(|subnet| json!([{ "subnet": subnet }]));
    let ranges: Vec<Value> = ranges.collect();
    let ipam = json!({ "type": "host-local", "ranges": ranges });
    json!({
        "cniVersion": "0.4.0",
        "name": name,
        "plugins": [{ "type": "bridge", "bridge": "nt-none0", "ipam": ipam }],
    })
}

impl Bare {
    /// Starts one with a pod network of this subnet.
    pub fn start(subnet: &str) -> anyhow::Result<Self> {
        let node = Node::start("bare", LIMIT, |_, _| Ok(()))?;
        node.helper.wait_until_ready("the node", LIMIT)?;
        let this = Self(node);
        this.configure("10-stage.conflist", &network(NETWORK, &[subnet]))?;
        Ok(this)
    }

    /// Writes a network's configuration.
    pub fn configure(&self, file: &str, network: &Value) -> anyhow::Result<()> {
        let folder = self.host_path("/etc/cni/net.d");
        fs::create_dir_all(&folder)?;
        Ok(fs::write(folder.join(file), network.to_string())?)
    }

    /// The node's root, as the host sees it: for `--root`.
    pub fn root(&self) -> PathBuf {
        self.0.root()
    }

    /// A path of the node, as the host sees it.
    pub fn host_path(&self, path: &str) -> PathBuf {
        self.0.host_path(Path::new(path))
    }

    /// The folder of the pod network's reservations, as the host sees it.
    pub fn store(&self) -> PathBuf {
        self.host_path(STORES).join(NETWORK)
    }

    /// The real host-local on this node's store.
    pub fn host_local(&self, subnet: &str) -> anyhow::Result<HostLocal> {
        self.host_local_of(&network(NETWORK, &[subnet]))
    }

    pub fn host_local_of(&self, network: &Value) -> anyhow::Result<HostLocal> {
        let mut ipam = network["plugins"][0]["ipam"].clone();
        ipam["dataDir"] = json!(self.host_path(STORES));
        let folder = cni::folder().context("the CNI plugins are not installed")?;
        Ok(HostLocal {
            plugin: folder.join("host-local"),
            config: json!({ "cniVersion": "0.4.0", "name": network["name"], "ipam": ipam })
                .to_string(),
        })
    }
}

/// The real host-local, called as a main plugin calls it.
#[derive(Clone, Debug)]
pub struct HostLocal {
    plugin: PathBuf,
    config: String,
}

impl HostLocal {
    /// ADD: returns the addresses.
    pub fn add(&self, container: &str) -> anyhow::Result<Vec<IpAddr>> {
        self.add_at(container, None)
    }

    /// ADD of this address, if it is free.
    pub fn add_at(&self, container: &str, address: Option<IpAddr>) -> anyhow::Result<Vec<IpAddr>> {
        let args = address.map(|address| format!("IP={address}"));
        let result = self.call("ADD", container, args.as_deref())?;
        let result: Value = serde_json::from_str(&result).context("host-local's result")?;
        let ips = result["ips"].as_array().context("no addresses")?;
        let address = |ip: &Value| {
            let text = ip["address"].as_str().unwrap_or_default();
            let address = text.split('/').next().unwrap_or_default();
            address.parse().with_context(|| text.to_owned())
        };
        ips.iter().map(address).collect()
    }

    pub fn del(&self, container: &str) -> anyhow::Result<()> {
        self.call("DEL", container, None).map(drop)
    }

    fn call(&self, command: &str, container: &str, args: Option<&str>) -> anyhow::Result<String> {
        let mut child = Command::new(&self.plugin)
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", "/run/netns/none")
            .env("CNI_IFNAME", "eth0")
            .env("CNI_ARGS", args.unwrap_or_default())
            .env("CNI_PATH", self.plugin.parent().unwrap_or(Path::new("/")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start host-local")?;
        if let Some(mut stdin) = child.stdin.take() {
            std::io::Write::write_all(&mut stdin, self.config.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        anyhow::ensure!(output.status.success(), "host-local {command}: {text}");
        Ok(text)
    }
}
