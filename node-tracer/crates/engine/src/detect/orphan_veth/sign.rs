//! What shows that a veth is the host-side end of a pod's veth pair.
//!
//! Structure comes first: what a plugin has answered, which libcni's cache keeps,
//! what is routed there, and what it is a port of. A name counts by itself only
//! if no other program gives such names; docker, LXD and podman give some that
//! look like the reference plugins'.

use std::{
    cell::{OnceCell, RefCell},
    collections::HashMap,
};

use crate::{
    detect::{
        View,
        facts::veth_pairs::{cni_of_name, is_hex},
        is_routable,
    },
    model::netns::{NetnsEntry, Serial, Wiring},
};
use event::{Address, Device};

/// Switches of Open vSwitch have all their ports on this device.
const OVS: &str = "ovs-system";
/// Plugins whose host ends are named `vethXXXXXXXX`.
const PLAIN: [&str; 5] = ["bridge", "flannel", "kube-router", "kuberouter", "ptp"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign<'a> {
    /// A CNI plugin has answered an ADD of this container with it, as the call or
    /// libcni's cache says.
    Answer(&'a str),
    /// A single address is routed to it.
    Route,
    /// It is a port of the pods' bridge or switch.
    Port(&'a Device),
    /// It has a name as this CNI gives them.
    Name(&'static str),
    /// It has a name as the bridge and ptp plugins give them, and others; the
    /// node's CNI is not known.
    PlainName,
}

impl Sign<'_> {
    /// What stands behind "is a veth and".
    pub(super) fn words(self) -> String {
        match self {
            Self::Answer(id) => {
                let id = event::wording::subjects::short_id(id);
                format!("was made by CNI ADD of sandbox {id}")
            }
            Self::Route => String::from("has a single address routed to it, as a pod's host end"),
            Self::Port(bridge) => format!("is a port of {}, which pods are on", bridge.name),
            Self::Name(cni) => format!("is named as {cni} names a pod's host end"),
            Self::PlainName => String::from(
                "is named as the bridge or ptp plugin names a pod's host end, and others name theirs",
            ),
        }
    }
}

/// What is known of devices besides themselves.
pub(super) struct Signs<'v, 'a> {
    view: &'v View<'a>,
    /// Host interfaces that plugins have answered with, and for which container.
    answers: OnceCell<HashMap<&'a str, &'a str>>,
    /// Whether pods are on a bridge, by namespace and index.
    with_pods: RefCell<HashMap<(Serial, u32), bool>>,
}

impl<'v, 'a> Signs<'v, 'a> {
    pub(super) fn new(view: &'v View<'a>) -> Self {
        Self {
            view,
            answers: OnceCell::new(),
            with_pods: RefCell::default(),
        }
    }

    /// What shows that a veth is a pod's host end, if anything does.
    pub(super) fn of(
        &self,
        entry: &'a NetnsEntry,
        wiring: &'a Wiring,
        device: &Device,
    ) -> Option<Sign<'a>> {
        let name = device.name.as_str();
        if let Some(id) = self.answers().get(name).filter(|_| entry.host) {
            return Some(Sign::Answer(id));
        }
        let master = device.master.and_then(|master| wiring.device(master));
        if master.is_some_and(|master| is_others_bridge(&master.name)) {
            return None;
        }
        if let Some(master) = master {
            let is_pods = match master.name.as_str() {
                OVS => cni_of_name(name).is_some() || is_antreas(name),
                _ => is_pods_bridge(&master.name) || self.has_pods(entry, wiring, master),
            };
            if is_pods {
                return Some(Sign::Port(master));
            }
        }
        if is_others(name) {
            return None;
        }
        if let Some(by) = cni_of_name(name) {
            return Some(Sign::Name(by));
        }
        // Inside of containers, people route to what they make.
        if entry.host && is_routed(wiring, device) {
            return Some(Sign::Route);
        }
        is_plain(name).then(|| self.of_plain())?
    }

    fn answers(&self) -> &HashMap<&'a str, &'a str> {
        self.answers.get_or_init(|| {
            let mut answers = HashMap::new();
            for cached in self.view.model.cni.attachments() {
                let names = cached.host_devices.iter().map(String::as_str);
                answers.extend(names.map(|name| (name, cached.container_id.as_str())));
            }
            for calls in self.view.model.calls.attachments() {
                let adds = calls
                    .plugins
                    .iter()
                    .filter_map(|plugin| plugin.add.as_ref());
                let results = adds.filter_map(|add| add.success()?.result.as_ref());
                let interfaces = results.flat_map(|result| &result.interfaces);
                let on_host = interfaces.filter(|it| it.sandbox.is_none());
                answers.extend(on_host.map(|it| (it.name.as_str(), calls.container_id.as_str())));
            }
            answers
        })
    }

    /// Whether a device is a port of a bridge that root has made, or has given an
    /// address: whoever may make devices can give neither that nor a name that
    /// CNI has told. Ports of Open vSwitch's device are made by its daemon alone.
    pub(super) fn is_on_roots_bridge(
        &self,
        entry: &NetnsEntry,
        wiring: &Wiring,
        device: &Device,
    ) -> bool {
        let Some(bridge) = device.master.and_then(|master| wiring.device(master)) else {
            return false;
        };
        let mut addresses = entry.addresses.iter();
        bridge.kind.as_deref() == Some("openvswitch")
            || (entry.host && self.answers().contains_key(bridge.name.as_str()))
            || addresses.any(|held| {
                let Address {
                    address, ifname, ..
                } = &held.address;
                let is_its = *ifname == bridge.name && is_routable(*address);
                is_its && wiring.is_entered(held) == Some(true)
            })
    }

    /// Whether another port of a bridge leads to a pod.
    fn has_pods(&self, entry: &NetnsEntry, wiring: &'a Wiring, bridge: &Device) -> bool {
        let place = (entry.serial, bridge.index);
        if let Some(known) = self.with_pods.borrow().get(&place) {
            return *known;
        }
        let found = self.find_pods(entry, wiring, bridge);
        self.with_pods.borrow_mut().insert(place, found);
        found
    }

    fn find_pods(&self, entry: &NetnsEntry, wiring: &'a Wiring, bridge: &Device) -> bool {
        let devices = wiring.devices.iter();
        let mut ports = devices.filter(|it| it.is_veth() && it.master == Some(bridge.index));
        ports.any(|port| {
            let end = self.view.veth_pairs().other_end(entry, port);
            end.is_some_and(|end| {
                let sandbox = &end.entry.sandbox;
                !end.entry.host && (sandbox.pod.is_some() || sandbox.id.is_some())
            })
        })
    }

    /// What a plain name shows, by the node's CNI.
    fn of_plain(&self) -> Option<Sign<'a>> {
        let networks = self.view.model.cni.networks().unwrap_or_default();
        let mut plugins = networks.iter().map(|network| network.plugin.as_str());
        match networks {
            [] => Some(Sign::PlainName),
            _ if plugins.any(|plugin| PLAIN.contains(&plugin)) => {
                Some(Sign::Name("the bridge or ptp plugin"))
            }
            _ => None,
        }
    }
}

/// The beginning of a pod's name and six digits.
fn is_antreas(name: &str) -> bool {
    let parts = name.rsplit_once('-');
    parts.is_some_and(|(pod, hash)| !pod.is_empty() && hash.len() == 6 && is_hex(hash))
}

/// The reference plugins' name, which others give, too. (docker's have seven
/// digits.)
fn is_plain(name: &str) -> bool {
    let rest = name.strip_prefix("veth");
    rest.is_some_and(|rest| rest.len() == 8 && is_hex(rest))
}

/// A veth of systemd-nspawn, by its name.
fn is_others(name: &str) -> bool {
    ["ve-", "vb-", "vz-"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// A bridge of docker, podman, nerdctl, buildkit, LXC, LXD, Incus or libvirt.
fn is_others_bridge(name: &str) -> bool {
    const PREFIXES: [&str; 10] = [
        "docker",
        "podman",
        "cni-podman",
        "nerdctl",
        "buildkit",
        "lxcbr",
        "lxdbr",
        "incusbr",
        "virbr",
        "vz-",
    ];
    let numbered = |prefix: &str| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.bytes().all(|c| c.is_ascii_digit()))
    };
    let dockers = name.strip_prefix("br-");
    PREFIXES.iter().any(|prefix| numbered(prefix))
        || dockers.is_some_and(|id| id.len() == 12 && is_hex(id))
}

/// A bridge that CNI plugins make for pods, by its usual name.
fn is_pods_bridge(name: &str) -> bool {
    ["cni0", "cbr0", "kube-bridge", "weave"].contains(&name)
}

/// Whether a single address is routed to a device.
fn is_routed(wiring: &Wiring, device: &Device) -> bool {
    let mut routes = wiring
        .entered_routes()
        .filter(|route| route.device == device.index);
    routes.any(|route| {
        route
            .to
            .is_some_and(|(address, length)| length == if address.is_ipv4() { 32 } else { 128 })
    })
}
