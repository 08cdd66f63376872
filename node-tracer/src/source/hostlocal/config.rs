//! The node's CNI configuration: which CNI it names first, and where its
//! host-local networks keep their reservations.
//!
//! Of a configuration only names, types and `dataDir` are ever taken: it can
//! hold tokens.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{
    DEFAULT_DATA_DIR, HostLocalError,
    root::{Found, Root, absolute},
};

/// Where runtimes look: by default, OpenShift's, k3s's and RKE2's.
const CONFIG_DIRS: &[&str] = &[
    "/etc/cni/net.d",
    "/etc/kubernetes/cni/net.d",
    "/var/lib/rancher/k3s/agent/etc/cni/net.d",
    "/var/lib/rancher/rke2/agent/etc/cni/net.d",
];

/// Largest configuration that is read.
const MAX_CONFIG: usize = 1 << 20;

/// Meta plugins within meta plugins that are looked into.
const MAX_DEPTH: usize = 4;

/// The CNI that sets up the pods' network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CniKind {
    /// The network's name.
    pub(crate) network: String,
    /// The plugin that makes the interface: the first of the chain, and for
    /// Multus the first of its default network.
    pub(crate) plugin: Plugin,
    /// Who gives out the addresses: as configured, or as the plugin always
    /// does; `None` if neither says so.
    pub(crate) ipam: Option<Ipam>,
    /// The configuration.
    pub(crate) file: PathBuf,
}

/// A plugin that makes interfaces, by its `type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plugin {
    /// Alibaba Cloud's.
    Terway,
    /// Amazon's.
    AwsCni,
    /// Calico.
    Calico,
    /// Cilium.
    Cilium,
    /// Flannel, which delegates to bridge with host-local.
    Flannel,
    /// The reference plugin bridge.
    Bridge,
    /// The reference plugin ptp.
    Ptp,
    /// The reference plugin ipvlan.
    Ipvlan,
    /// The reference plugin macvlan.
    Macvlan,
    /// OVN-Kubernetes.
    OvnKubernetes,
    /// Any other, by its type.
    Other(String),
}

/// A giver of addresses, by its `type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ipam {
    /// Reservations in files; released by DEL alone.
    HostLocal,
    /// Reservations in the API server.
    Whereabouts,
    /// Calico's, in its datastore.
    Calico,
    /// Given out by the CNI's own daemon.
    Daemon,
    /// A DHCP server's leases.
    Dhcp,
    /// Written into the configuration.
    Static,
    /// Any other, by its type.
    Other(String),
}

impl Plugin {
    fn of(kind: &str) -> Self {
        match kind {
            "terway" | "terway-cni" => Self::Terway,
            "aws-cni" => Self::AwsCni,
            "calico" => Self::Calico,
            "cilium-cni" | "cilium" => Self::Cilium,
            "flannel" => Self::Flannel,
            "bridge" => Self::Bridge,
            "ptp" => Self::Ptp,
            "ipvlan" => Self::Ipvlan,
            "macvlan" => Self::Macvlan,
            "ovn-k8s-cni-overlay" => Self::OvnKubernetes,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Who gives out addresses if the configuration does not say.
    fn own_ipam(&self) -> Option<Ipam> {
        match self {
            Self::Terway | Self::AwsCni | Self::Cilium | Self::OvnKubernetes => Some(Ipam::Daemon),
            Self::Flannel => Some(Ipam::HostLocal),
            _ => None,
        }
    }
}

impl Ipam {
    fn of(kind: &str) -> Self {
        match kind {
            "host-local" => Self::HostLocal,
            "whereabouts" => Self::Whereabouts,
            "calico-ipam" => Self::Calico,
            "dhcp" => Self::Dhcp,
            "static" => Self::Static,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// What the configuration says.
#[derive(Debug, Default)]
pub(super) struct Config {
    /// Folders with reservations.
    pub(super) stores: Vec<PathBuf>,
    /// Of the first usable file.
    pub(super) kind: Option<CniKind>,
    pub(super) unread: Vec<HostLocalError>,
}

/// A network, or a list of plugins.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Network {
    name: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    ipam: Option<IpamConfig>,
    plugins: Vec<Network>,
    /// Of Multus: networks, the first being the default one.
    delegates: Vec<Network>,
    /// Of flannel and such: overrides for the plugin that they call.
    delegate: Option<Box<Network>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct IpamConfig {
    #[serde(rename = "type")]
    kind: Option<String>,
    data_dir: Option<String>,
}

/// Reads all configuration files, in the order in which libcni takes them.
pub(super) fn read(root: &Root) -> Config {
    let mut config = Config::default();
    for folder in CONFIG_DIRS.iter().map(Path::new) {
        let names = match root.list(folder) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => {
                let path = folder.to_owned();
                config.unread.push(HostLocalError::Read { path, source });
                continue;
            }
        };
        let is_config = |name: &String| {
            let extension = Path::new(name).extension().and_then(|each| each.to_str());
            matches!(extension, Some("conf" | "conflist" | "json"))
        };
        for name in names.into_iter().filter(is_config) {
            config.file(root, folder.join(name));
        }
    }
    config
}

impl Config {
    fn file(&mut self, root: &Root, path: PathBuf) {
        let content = match root.read(&path, MAX_CONFIG) {
            Ok(Found::File(content)) => content,
            Ok(Found::Missing | Found::Folder) => return,
            Err(source) => return self.unread.push(HostLocalError::Read { path, source }),
        };
        // serde_json's message could quote what it does not understand.
        let Ok(network) = serde_json::from_slice::<Network>(&content) else {
            let expected = "CNI configuration";
            return self.unread.push(HostLocalError::Content { path, expected });
        };
        let name = network.name.clone().unwrap_or_default();
        self.stores(&network, &name, 0);
        if self.kind.is_none() {
            self.kind = kind(&network, &name, &path, 0);
        }
    }

    /// Adds the folders of a network and of all that is inside it.
    fn stores(&mut self, network: &Network, name: &str, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let name = network.name.as_deref().unwrap_or(name);
        if let Some(ipam) = &network.ipam
            && ipam.kind.as_deref() == Some("host-local")
        {
            let data_dir = ipam.data_dir.as_deref().filter(|dir| !dir.is_empty());
            let store = absolute(data_dir.unwrap_or(DEFAULT_DATA_DIR)).join(name);
            if !self.stores.contains(&store) {
                self.stores.push(store);
            }
        }
        let delegate = network.delegate.as_deref();
        for inner in network
            .plugins
            .iter()
            .chain(&network.delegates)
            .chain(delegate)
        {
            self.stores(inner, name, depth + 1);
        }
    }
}

/// What a network's first plugin is; `None` if it has none.
fn kind(network: &Network, name: &str, file: &Path, depth: usize) -> Option<CniKind> {
    if depth > MAX_DEPTH {
        return None;
    }
    let name = network.name.as_deref().unwrap_or(name);
    if let Some(first) = network.delegates.first().or(network.plugins.first()) {
        let mut found = kind(first, name, file, depth + 1)?;
        // Later plugins of a chain can give out addresses of other networks.
        let chained = || network.plugins.iter().find_map(configured_ipam);
        found.ipam = found.ipam.or_else(chained);
        return Some(found);
    }
    let plugin = Plugin::of(network.kind.as_deref()?);
    let delegated = || network.delegate.as_deref().and_then(configured_ipam);
    Some(CniKind {
        network: name.to_owned(),
        ipam: configured_ipam(network)
            .or_else(delegated)
            .or_else(|| plugin.own_ipam()),
        plugin,
        file: file.to_owned(),
    })
}

fn configured_ipam(network: &Network) -> Option<Ipam> {
    let kind = network.ipam.as_ref()?.kind.as_deref()?;
    (!kind.is_empty()).then(|| Ipam::of(kind))
}
