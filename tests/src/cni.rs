//! The real CNI plugins, called as a runtime calls them.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::containerd::{Generation, generation};
use crate::netns::Netns;
use crate::pods::Pod;
use crate::runtime::{Run, Runtime};
use crate::scratch::own_prefix;

/// Where Debian's package and everyone else have the plugins.
const FOLDERS: [&str; 2] = ["/opt/cni/bin", "/usr/lib/cni"];
/// What is needed of them.
const PLUGINS: [&str; 3] = ["bridge", "host-local", "loopback"];
/// The bridge that the plugin makes in the node's network namespace.
pub(crate) const BRIDGE: &str = "nt-br0";

/// The folder that has all plugins that are needed.
pub fn folder() -> Option<&'static Path> {
    let complete = |folder: &&Path| PLUGINS.iter().all(|plugin| folder.join(plugin).is_file());
    FOLDERS.map(Path::new).into_iter().find(complete)
}

/// A pod network by `bridge` and `host-local`, with a name of its own and so
/// its own reservations.
#[derive(Debug)]
pub struct Cni {
    runtime: Runtime,
    plugins: PathBuf,
    version: &'static str,
    name: String,
    store: Store,
    subnet: String,
}

/// Where host-local keeps reservations unless told otherwise, which is where
/// the tracer looks; each network has a folder of its own there.
pub(crate) const STORES: &str = "/var/lib/cni/networks";

/// This network's reservations, removed at the end.
#[derive(Debug)]
struct Store(PathBuf);

impl Drop for Store {
    fn drop(&mut self) {
        // It is not there if no plugin was ever called.
        let _ = fs::remove_dir_all(&self.0);
        // The folders above only if they are empty, and so nobody's.
        for above in self.0.ancestors().skip(1).take(2) {
            if fs::remove_dir(above).is_err() {
                break;
            }
        }
    }
}

/// What an attachment is called in CNI: who and where.
#[derive(Clone, Copy, Debug)]
pub struct Attachment<'a> {
    pub container_id: &'a str,
    pub netns: &'a Netns,
    pub pod: &'a Pod,
}

impl Cni {
    /// Starts the stand-in runtime in `node`.
    pub fn start(node: &Netns, scratch: &Path, subnet: &str) -> anyhow::Result<Self> {
        let plugins = folder().context("the CNI plugins are not installed")?;
        Self::start_with(plugins.to_owned(), "1.0.0", (node, scratch, subnet))
    }

    /// The same with the newer plugins, which this machine runs, too.
    pub fn start_newer(node: &Netns, scratch: &Path, subnet: &str) -> anyhow::Result<Self> {
        let newer = Generation::Newer;
        let folder = newer.plugins().context("no plugins")?;
        let root = generation::folder().context("they are not there")?;
        let plugins = root.join(folder.strip_prefix("/")?);
        Self::start_with(plugins, newer.cni_version(), (node, scratch, subnet))
    }

    fn start_with(
        plugins: PathBuf,
        version: &'static str,
        (node, scratch, subnet): (&Netns, &Path, &str),
    ) -> anyhow::Result<Self> {
        Ok(Self {
            runtime: Runtime::start(node, scratch)?,
            plugins,
            version,
            name: own_prefix(),
            store: Store(Path::new(STORES).join(own_prefix())),
            subnet: subnet.to_owned(),
        })
    }

    /// The folder of the real plugins.
    pub fn plugins(&self) -> &Path {
        &self.plugins
    }

    /// Process ID of the stand-in runtime.
    pub fn runtime_pid(&self) -> u32 {
        self.runtime.pid()
    }

    /// The host-local store of this network.
    pub fn store(&self) -> &Path {
        &self.store.0
    }

    /// A plugin's configuration as it should be.
    pub fn config(&self, plugin: &str) -> Value {
        if plugin == "loopback" {
            return json!({ "cniVersion": self.version, "name": "cni-loopback", "type": "loopback" });
        }
        json!({
            "cniVersion": self.version,
            "name": self.name,
            "type": plugin,
            "bridge": BRIDGE,
            "isGateway": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": self.subnet }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        })
    }

    /// Has the runtime call a plugin, wherever it is, with this configuration.
    pub fn run(
        &mut self,
        command: &str,
        plugin: &Path,
        ifname: &str,
        attachment: Attachment<'_>,
        config: &Value,
    ) -> anyhow::Result<Run> {
        let Attachment {
            container_id,
            netns,
            pod,
        } = attachment;
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={container_id};K8S_POD_UID={}",
            pod.namespace, pod.name, pod.uid
        );
        let environment = BTreeMap::from([
            ("CNI_COMMAND", command.to_owned()),
            ("CNI_CONTAINERID", container_id.to_owned()),
            ("CNI_NETNS", netns.path().display().to_string()),
            ("CNI_IFNAME", ifname.to_owned()),
            ("CNI_ARGS", args),
            ("CNI_PATH", self.path_to(plugin)),
        ]);
        self.runtime.run(plugin, &environment, config)
    }

    /// Has it call a plugin for no container (STATUS, GC), as libcni does.
    pub fn ask(&mut self, command: &str, plugin: &Path, config: &Value) -> anyhow::Result<Run> {
        let none = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"];
        let mut environment = BTreeMap::from(none.map(|name| (name, String::new())));
        environment.insert("CNI_COMMAND", command.to_owned());
        environment.insert("CNI_PATH", self.path_to(plugin));
        self.runtime.run(plugin, &environment, config)
    }

    /// `CNI_PATH`: the plugins, and the folder of one that is elsewhere.
    fn path_to(&self, plugin: &Path) -> String {
        let mut folders = vec![self.plugins.as_path()];
        folders.extend(plugin.parent().filter(|folder| *folder != self.plugins));
        let folders: Vec<String> = folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        folders.join(":")
    }

    fn call(
        &mut self,
        command: &str,
        plugin: &str,
        ifname: &str,
        attachment: Attachment<'_>,
    ) -> anyhow::Result<Value> {
        let config = self.config(plugin);
        let path = self.plugins.join(plugin);
        let run = self.run(command, &path, ifname, attachment, &config)?;
        anyhow::ensure!(
            run.code == Some(0),
            "CNI {command} by {plugin}: exit code {:?}: {} {}",
            run.code,
            run.stdout.trim(),
            run.stderr.trim()
        );
        if run.stdout.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&run.stdout)
            .with_context(|| format!("CNI {command} by {plugin}: {}", run.stdout.trim()))
    }

    /// ADD: `lo`, then `eth0`. Returns the address, and the result as printed.
    pub fn add(&mut self, attachment: Attachment<'_>) -> anyhow::Result<(Ipv4Addr, Value)> {
        self.call("ADD", "loopback", "lo", attachment)?;
        let result = self.call("ADD", "bridge", "eth0", attachment)?;
        let address = result["ips"][0]["address"]
            .as_str()
            .and_then(|address| address.split('/').next()?.parse().ok())
            .with_context(|| format!("no address in the CNI result {result}"))?;
        Ok((address, result))
    }

    /// DEL: in the reverse order.
    pub fn del(&mut self, attachment: Attachment<'_>) -> anyhow::Result<()> {
        self.call("DEL", "bridge", "eth0", attachment)?;
        self.call("DEL", "loopback", "lo", attachment)?;
        Ok(())
    }

    /// Frees an address as a collector does that trusts the API server alone:
    /// the reservation goes, and this address is the next to be given out.
    pub fn collect(&self, address: Ipv4Addr) -> anyhow::Result<PathBuf> {
        let reservation = self.store().join(address.to_string());
        fs::remove_file(&reservation).with_context(|| format!("rm {}", reservation.display()))?;
        let before = Ipv4Addr::from(u32::from(address) - 1);
        fs::write(self.store().join("last_reserved_ip.0"), before.to_string())
            .context("set last_reserved_ip.0 back")?;
        Ok(reservation)
    }
}
