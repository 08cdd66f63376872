//! What the CNI of a pod does about its gateway's neighbour entry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::model::{Model, calls::AttachmentCalls, netns::NetnsEntry};
use event::Device;

/// CNIs that write a permanent entry for the gateway that they make up.
const WRITE: [&str; 3] = ["aws-cni", "terway", "terway-cni"];
/// CNIs whose name does not tell: their gateway is answered for, they write an
/// entry in one of their modes, or another plugin does the work.
const OPEN: [&str; 4] = ["azure-vnet", "calico", "multus", "multus-shim"];
/// The gateway that all of them make up.
const MADE_UP: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The same of AWS and Terway where addresses are IPv6.
const MADE_UP_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// The interface that runtimes ask for.
const USUAL: &str = "eth0";

/// What is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit<'a> {
    /// The CNI of this name writes a permanent entry.
    Writes(&'a str),
    /// Others on the node show whether it does.
    Open,
}

impl<'a> Habit<'a> {
    /// `None` if the gateway on this device is none that the pod's CNI made up.
    pub(super) fn of(
        model: &'a Model,
        entry: &'a NetnsEntry,
        device: &Device,
        gateway: IpAddr,
    ) -> Option<Self> {
        let plugin = plugin(model, entry, device)?;
        let is_made_up = match gateway {
            IpAddr::V4(v4) => v4 == MADE_UP,
            IpAddr::V6(v6) => v6 == MADE_UP_V6,
        };
        match plugin {
            Some(plugin) if WRITE.contains(&plugin) => is_made_up.then_some(Self::Writes(plugin)),
            // Calico's IPv6 gateway is the host end's own link-local address.
            Some(plugin) if OPEN.contains(&plugin) => {
                (is_made_up || gateway.is_ipv6()).then_some(Self::Open)
            }
            // One with a gateway of its own, or one that nobody knows.
            Some(plugin) => (is_made_up && !has_real_gateway(plugin)).then_some(Self::Open),
            None => is_made_up.then_some(Self::Open),
        }
    }
}

/// Plugins that give pods a gateway that is there, on the network.
fn has_real_gateway(plugin: &str) -> bool {
    const REAL: [&str; 18] = [
        "antrea",
        "bridge",
        "cilium-cni",
        "dummy",
        "flannel",
        "host-device",
        "ib-sriov",
        "ipvlan",
        "kube-ovn",
        "macvlan",
        "ovn-k8s-cni-overlay",
        "ovs",
        "ovs-cni",
        "ptp",
        "sriov",
        "tap",
        "vlan",
        "weave-net",
    ];
    REAL.contains(&plugin)
}

/// The plugin that made a device for the pod's own network. `None` if another
/// did, or nobody tells of such a device; `Some(None)` if its name is not known.
fn plugin<'a>(model: &'a Model, entry: &'a NetnsEntry, device: &Device) -> Option<Option<&'a str>> {
    let networks = model.cni.networks().unwrap_or_default();
    let first = networks.first();
    let id = entry.sandbox.id.as_deref();
    let calls = || id.into_iter().flat_map(|id| model.calls.of_container(id));
    let cached = || id.into_iter().flat_map(|id| model.cni.of_container(id));
    // Multus calls others for the same interface, and for others.
    let own = |calls: &&AttachmentCalls| calls.plugins.iter().any(|plugin| !plugin.delegated);
    if let Some(calls) = calls().filter(own).find(|it| it.ifname == device.name) {
        let chain = || calls.chain().map(|plugin| plugin.plugin.as_str());
        let known =
            |name: &&str| WRITE.contains(name) || OPEN.contains(name) || has_real_gateway(name);
        // A DEL calls the chain from its end.
        let main = chain().find(|name| WRITE.contains(name));
        let main = main.or_else(|| chain().find(known));
        return Some(main.or_else(|| chain().next()));
    }
    if calls().any(|calls| calls.ifname == device.name) {
        return None;
    }
    if let Some(cached) = cached().find(|it| it.ifname == device.name) {
        let mut known = networks.iter();
        let known = known.find(|network| network.name == cached.network);
        // A network of which the node's configuration tells nothing is one that
        // Multus attached, or an earlier CNI's.
        let plugin = known.map(|network| network.plugin.as_str());
        let is_first = first.is_none_or(|first| first.name == cached.network);
        return (is_first || device.name == USUAL).then_some(plugin);
    }
    let plugin = first.map(|network| network.plugin.as_str());
    (device.name == USUAL).then_some(plugin)
}
