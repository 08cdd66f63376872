//! The node's CNI configuration: which pod networks it names, who gives out
//! their addresses, and for host-local which and where that is written down.
//!
//! Of a configuration only names, types, paths and what host-local reads are
//! ever taken: it can hold tokens.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{
    DEFAULT_DATA_DIR, MAX_ENTRIES, flannel, is_name,
    ranges::{self, RangeConf},
};
use crate::root::{Found, Root, Unread, UnreadList, absolute};
use event::{Event, Network, What, clock::Timestamp};

/// Where runtimes look: by default, OpenShift's, k3s's, RKE2's and microk8s's.
/// After them Multus's, for networks of its own.
const CONFIG_DIRS: &[&str] = &[
    "/etc/cni/net.d",
    "/etc/kubernetes/cni/net.d",
    "/var/lib/rancher/k3s/agent/etc/cni/net.d",
    "/var/lib/rancher/rke2/agent/etc/cni/net.d",
    "/var/snap/microk8s/current/args/cni-network",
    "/etc/cni/multus/net.d",
];

/// Largest configuration that is read.
const MAX_CONFIG: usize = 1 << 20;

/// Meta plugins within meta plugins that are looked into.
const MAX_DEPTH: usize = 4;

/// Networks that are kept.
const MAX_NETWORKS: usize = 256;

/// What the configuration says.
#[derive(Debug, Default)]
pub struct Configuration {
    /// The networks, the one in use first.
    pub networks: Vec<Network>,
    /// Parts that could not be read: there may be more networks.
    pub unread: UnreadList,
    /// The default network that a Multus without delegates names, and where
    /// that Multus is in the list.
    cluster_network: Option<(usize, String)>,
}

/// A network, or a list of plugins.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Conf {
    name: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    ipam: Option<IpamConf>,
    #[serde(deserialize_with = "list")]
    plugins: Vec<Conf>,
    /// Of Multus: networks, the first being the default one.
    #[serde(deserialize_with = "list")]
    delegates: Vec<Conf>,
    /// Of Multus, instead: the default network's name or file.
    #[serde(rename = "clusterNetwork")]
    cluster_network: Option<String>,
    /// Of flannel and such: overrides for the plugin that they call.
    delegate: Option<Box<Conf>>,
    /// Of bridge: its name.
    bridge: Value,
    /// Of macvlan and ipvlan: the parent, and whether it is in the pod itself.
    master: Value,
    #[serde(rename = "linkInContainer")]
    link_in_container: Value,
    /// Of flannel: where flanneld writes its subnet.
    #[serde(rename = "subnetFile")]
    subnet_file: Option<String>,
}

/// What is of another form in other IPAM plugins is looked at only for
/// host-local.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct IpamConf {
    #[serde(rename = "type")]
    kind: Option<String>,
    data_dir: Value,
    subnet: Value,
    range_start: Value,
    range_end: Value,
    gateway: Value,
    ranges: Value,
}

/// A list, which can be `null`.
fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Conf>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The IPAM of plugins that bring their own.
fn own_ipam(plugin: &str) -> Option<&'static str> {
    Some(match plugin {
        "terway" | "terway-cni" => "terway",
        "aws-cni" => "aws-cni",
        "cilium-cni" | "cilium" => "cilium",
        "ovn-k8s-cni-overlay" => "ovn-kubernetes",
        "kube-ovn" => "kube-ovn",
        "flannel" => "host-local",
        _ => return None,
    })
}

impl Configuration {
    /// Reads all configuration files, in the order in which libcni takes them.
    pub fn read(root: &Root) -> Self {
        let mut config = Self::default();
        for folder in CONFIG_DIRS.iter().map(Path::new) {
            let listing = match root.folder(folder) {
                Ok(Some(folder)) => folder.list(MAX_ENTRIES),
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            let listing = match listing {
                Ok(listing) => listing,
                Err(error) => {
                    config.unread.push(Unread::read(folder, error));
                    continue;
                }
            };
            if listing.cut {
                let what = format!("has more than {MAX_ENTRIES} files; the rest was not read");
                config.unread.push(Unread::content(folder, what));
            }
            for name in listing.entries.iter().filter_map(|entry| entry.text()) {
                let extension = name.rsplit_once('.').map(|(_, extension)| extension);
                if matches!(extension, Some("conf" | "conflist" | "json")) {
                    config.file(root, &folder.join(name));
                }
            }
        }
        config.put_cluster_network_first();
        config
    }

    /// What it says, as an event.
    pub fn event(&self, time: Timestamp) -> Event {
        let networks = self.networks.clone();
        let unread = self.unread.texts();
        let what = What::NetworksListed { networks, unread };
        Event { time, what }
    }

    fn file(&mut self, root: &Root, path: &Path) {
        // libcni follows links, and some systems have nothing else in /etc.
        let content = match root.read_linked(path, MAX_CONFIG) {
            Ok(Found::File(content)) => content,
            Ok(Found::Missing | Found::Folder) => return,
            Err(error) => return self.unread.push(Unread::read(path, error)),
        };
        // serde_json's message could quote what it does not understand.
        let Ok(conf) = serde_json::from_slice::<Conf>(&content.bytes) else {
            let what = "is no CNI configuration";
            return self.unread.push(Unread::content(path, what));
        };
        let name = conf.name.clone().unwrap_or_default();
        self.network(root, path, &conf, &name, 0);
    }

    /// Adds a network, and all that is inside it.
    fn network(&mut self, root: &Root, file: &Path, conf: &Conf, name: &str, depth: usize) {
        if depth > MAX_DEPTH {
            let what = "has networks in networks, too many to look into";
            return self.unread.push(Unread::content(file, what));
        }
        if !conf.delegates.is_empty() {
            for inner in &conf.delegates {
                let name = inner.name.as_deref().unwrap_or(name);
                self.network(root, file, inner, name, depth + 1);
            }
            return;
        }
        let Some((first, chained)) = conf.plugins.split_first() else {
            return self.plugin(root, file, conf, name);
        };
        // libcni gives each plugin of a list the list's name.
        let main = self.networks.len();
        self.network(root, file, first, name, depth + 1);
        // Later plugins can give out addresses, too, mostly of another network.
        for plugin in chained {
            let Some(ipam) = plugin.ipam_kind() else {
                continue;
            };
            if let Some(main) = self.networks.get_mut(main) {
                main.ipam.get_or_insert(ipam.to_owned());
            }
            self.network(root, file, plugin, name, depth + 1);
        }
    }

    fn plugin(&mut self, root: &Root, file: &Path, conf: &Conf, name: &str) {
        let Some(plugin) = conf.kind.as_deref().filter(|kind| !kind.is_empty()) else {
            return;
        };
        if !name.is_empty() && !is_name(name) {
            let what = "has a network name that libcni refuses";
            return self.unread.push(Unread::content(file, what));
        }
        let ipam = conf.ipam_kind().or_else(|| own_ipam(plugin));
        let mut network = Network {
            file: file.to_owned(),
            name: name.to_owned(),
            plugin: brief(plugin),
            ipam: ipam.map(brief),
            device: conf.device(plugin).map(brief),
            ..Network::default()
        };
        if ipam == Some("host-local") && !name.is_empty() {
            network.store = Some(conf.store(name));
            if let Err(unread) = conf.ranges(root, file, &mut network) {
                self.unread.push(unread);
            }
        }
        if let Some(cluster) = &conf.cluster_network {
            let this = (self.networks.len(), cluster.clone());
            self.cluster_network.get_or_insert(this);
        }
        // Multus repeats the configuration of its default network.
        let same = |other: &Network| {
            let file = network.file.clone();
            let other = other.clone();
            Network { file, ..other } == network
        };
        if self.networks.iter().any(same) {
            return;
        }
        if self.networks.len() >= MAX_NETWORKS {
            let what = format!("is left out: there are more than {MAX_NETWORKS} networks");
            return self.unread.push(Unread::content(file, what));
        }
        self.networks.push(network);
    }

    /// If the configuration in use only names another one, that is in use.
    fn put_cluster_network_first(&mut self) {
        let Some((0, cluster)) = &self.cluster_network else {
            return;
        };
        let file = Path::new(cluster).file_name();
        let named =
            |network: &Network| network.name == *cluster || network.file.file_name() == file;
        let mut others = self.networks.iter().skip(1);
        if let Some(at) = others.position(named)
            && let Some(upto) = self.networks.get_mut(..=at + 1)
        {
            upto.rotate_right(1);
        }
    }
}

impl Conf {
    /// The plugin's IPAM configuration, or that for the plugin that it calls.
    fn ipam(&self) -> Option<&IpamConf> {
        let delegated = || self.delegate.as_deref()?.ipam.as_ref();
        self.ipam.as_ref().or_else(delegated)
    }

    fn ipam_kind(&self) -> Option<&str> {
        let kind = self.ipam()?.kind.as_deref();
        kind.filter(|kind| !kind.is_empty())
    }

    /// The device of the host that a plugin of the CNI project plugs pods into.
    fn device(&self, plugin: &str) -> Option<&str> {
        fn name(value: &Value) -> Option<&str> {
            value.as_str().filter(|name| !name.is_empty())
        }
        match plugin {
            "bridge" => name(&self.bridge).or(Some("cni0")),
            "macvlan" | "ipvlan" => {
                name(&self.master).filter(|_| self.link_in_container != Value::Bool(true))
            }
            // It calls bridge, unless it is told otherwise.
            "flannel" => match &self.delegate {
                None => Some("cni0"),
                Some(inner) => inner.device(inner.kind.as_deref().unwrap_or("bridge")),
            },
            _ => None,
        }
    }

    /// host-local's folder of a network.
    fn store(&self, name: &str) -> PathBuf {
        let data_dir = self.ipam().and_then(|ipam| ipam.data_dir.as_str());
        let data_dir = data_dir.filter(|dir| !dir.is_empty());
        absolute(data_dir.unwrap_or(DEFAULT_DATA_DIR)).join(name)
    }

    /// Adds host-local's ranges.
    fn ranges(&self, root: &Root, file: &Path, network: &mut Network) -> Result<(), Unread> {
        let none = IpamConf::default();
        let ipam = self.ipam().unwrap_or(&none);
        let list = if network.plugin == "flannel" {
            let path = self.subnet_file.as_deref();
            let path = path.filter(|path| !path.is_empty());
            let path = absolute(path.unwrap_or(flannel::DEFAULT_SUBNET_FILE));
            let subnets = flannel::subnets(root, &path)?;
            let set = |subnet| serde_json::json!([{ "subnet": subnet }]);
            Value::Array(subnets.into_iter().map(set).collect())
        } else {
            ipam.ranges.clone()
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let old = RangeConf {
            subnet: text(&ipam.subnet),
            range_start: text(&ipam.range_start),
            range_end: text(&ipam.range_end),
            gateway: text(&ipam.gateway),
        };
        network.ranges = ranges::ranges(old, list)
            .map_err(|error| Unread::content(file, format!("{error}; host-local refuses it")))?;
        Ok(())
    }
}

/// A type, which is a program's name.
fn brief(text: &str) -> String {
    text.chars().take(64).collect()
}

/// A configuration file; what it leads to is looked for where nothing is.
#[cfg(feature = "testing")]
pub(super) fn fuzz(data: &[u8]) {
    if let (Ok(root), Ok(conf)) = (
        Root::open(Path::new("/proc/self/task")),
        serde_json::from_slice::<Conf>(data),
    ) {
        let mut config = Configuration::default();
        let name = conf.name.clone().unwrap_or_default();
        config.network(
            &root,
            Path::new("/etc/cni/net.d/10-x.conf"),
            &conf,
            &name,
            0,
        );
        config.put_cluster_network_first();
    }
}
