//! What a DEL of one sandbox can have taken from another one.
//!
//! A pod, its administrator, a DHCP client or a CNI's agent remove addresses
//! and routes, too: that something goes just after a DEL does not make it that
//! DEL's work. A plugin has only two ways to another sandbox: the network
//! namespace that it is given, and what it keeps on the host under a name that
//! the two sandboxes share.
//!
//! | the DEL's plugins find what to delete by | what is on the host | the sandbox's veth device | what is on a device that is still there |
//! |---|---|---|---|
//! | the container ID | cannot | cannot | cannot |
//! | the pod's name | can | can, with the host-side end | cannot, unless it went while the DEL ran |
//! | that is not known of this plugin | can | can, with the host-side end | perhaps, unless it went while the DEL ran |
//! | which plugin it was is not known | perhaps | perhaps | perhaps |
//!
//! With the newer sandbox's own namespace a DEL can take anything. What is on a
//! device goes with the device. A gateway that does not answer any more depends
//! on the host-side end, which answers for it. host-local's files are deleted by the
//! container ID, whichever plugin asks for it.

use std::time::Duration;

use super::Newer;
use crate::{
    detect::View,
    model::{
        calls::{AttachmentCalls, PluginCalls},
        lost::{Del, Item, Kind, Loss},
    },
};
use event::clock::Timestamp;

/// Parts of the names of plugins that have deleted by the pod's name.
const BY_NAME: [&str; 2] = ["calico", "terway"];
/// Plugins that go by the container ID and the namespace that they are given,
/// or that take nothing away at all.
const BY_CONTAINER: [&str; 33] = [
    "antrea",
    "bandwidth",
    "bridge",
    "cilium-cni",
    "dhcp",
    "dummy",
    "firewall",
    "flannel",
    "host-device",
    "host-local",
    "ib-sriov",
    "ipvlan",
    "istio-cni",
    "kube-ovn",
    "kuberouter",
    "linkerd-cni",
    "loopback",
    "macvlan",
    "ovs",
    "ovs-cni",
    "portmap",
    "ptp",
    "route-override",
    "sbr",
    "sriov",
    "static",
    "tap",
    "tuning",
    "vlan",
    "vrf",
    "weave-ipam",
    "weave-net",
    "whereabouts",
];
/// Plugins that have others do the work.
const META: [&str; 3] = ["multus", "multus-shim", "flannel"];
/// A DEL that takes longer says little about what went meanwhile.
const SHORT: Duration = Duration::from_secs(5);
/// Where the thing was last seen so long before the DEL, it may have gone
/// before it.
const LONG_AGO: Duration = Duration::from_secs(60);

/// Whether a DEL can have taken something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// It has no way to it.
    Cannot,
    /// It may have a way to it, or another has taken it.
    Perhaps,
    /// It has a way to it, and nothing else explains the loss.
    Can,
}

/// By what a DEL's plugins find what to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyed {
    Container,
    Name,
    /// What this plugin goes by is not known.
    Unknown,
    /// Which plugin did the work was not seen.
    Unseen,
}

/// Judges what the DELs of one old sandbox can have taken from a newer one.
pub(super) struct Judge<'v, 'a> {
    view: &'v View<'a>,
    newer: &'v Newer<'a>,
    old: &'a str,
    keyed: Keyed,
    /// The old sandbox's addresses are host-local's.
    host_local: bool,
}

impl<'v, 'a> Judge<'v, 'a> {
    pub(super) fn new(view: &'v View<'a>, newer: &'v Newer<'a>, old: &'a str) -> Self {
        let calls: Vec<_> = calls(view, old).collect();
        let ipam = |plugin: &&PluginCalls| {
            plugin.plugin == "host-local" || plugin.ipam.as_deref() == Some("host-local")
        };
        let mut plugins = calls.iter().flat_map(|calls| &calls.plugins);
        Self {
            view,
            newer,
            old,
            keyed: keyed(&calls),
            host_local: plugins.any(|plugin| ipam(&plugin)),
        }
    }

    /// Whether a DEL can have taken something.
    pub(super) fn of(&self, kind: Kind, name: &str, item: &Item, loss: &Loss, del: &Del) -> Reach {
        let inode = self.newer.entry.id.inode;
        if del.netns.is_some_and(|netns| netns.inode == inode) {
            return Reach::Can;
        }
        if self.keyed == Keyed::Container {
            return Reach::Cannot;
        }
        let reach = match kind {
            Kind::Veth | Kind::HostRoute => self.on_host(item, del),
            Kind::Device => self.device(item, loss, del),
            Kind::Reservation => match (self.host_local, self.keyed) {
                (true, _) => Reach::Cannot,
                (false, Keyed::Name) => Reach::Can,
                (false, _) => Reach::Perhaps,
            },
            Kind::Neighbour if self.is_unanswered(name) => match self.keyed {
                Keyed::Name => Reach::Can,
                _ => Reach::Perhaps,
            },
            Kind::Address | Kind::Route | Kind::Neighbour => self.on_device(kind, loss, del),
        };
        match self.keyed == Keyed::Unseen || self.is_taken_over(loss.at) {
            true => reach.min(Reach::Perhaps),
            false => reach,
        }
    }

    fn on_host(&self, item: &Item, del: &Del) -> Reach {
        let long_ago = del.started.since(item.seen) > LONG_AGO;
        match self.keyed {
            Keyed::Unknown if long_ago => Reach::Perhaps,
            _ => Reach::Can,
        }
    }

    /// A veth goes with its other end. One whose other end is still there was
    /// renamed or moved by who is in the sandbox.
    fn device(&self, item: &Item, loss: &Loss, del: &Del) -> Reach {
        let mut ends = self.items(Kind::Veth).peekable();
        if ends.peek().is_none() {
            return match self.keyed {
                Keyed::Name => self.on_host(item, del),
                _ => Reach::Perhaps,
            };
        }
        if ends.any(|end| end.loss.is_some()) {
            return self.on_host(item, del);
        }
        let looked = self.view.model.lost.looked(self.newer.entry.id);
        match looked.is_some_and(|at| at >= loss.at) {
            true => Reach::Cannot,
            false => Reach::Perhaps,
        }
    }

    /// Whether a neighbour was asked for and nobody has answered.
    fn is_unanswered(&self, name: &str) -> bool {
        let wiring = self.newer.entry.wiring.iter();
        let mut neighbours = wiring.flat_map(|wiring| &wiring.neighbours);
        neighbours.any(|it| {
            let asked = matches!(it.state.as_str(), "failed" | "incomplete");
            asked && it.address.to_string() == name
        })
    }

    /// What was on a device: it went with the device, while the DEL ran, or by
    /// the work of somebody who was inside.
    fn on_device(&self, kind: Kind, loss: &Loss, del: &Del) -> Reach {
        let gone = self.items(Kind::Device).filter_map(|item| {
            let loss = item.loss.as_ref()?;
            Some(self.device(item, loss, loss.del.as_ref()?))
        });
        if let Some(reach) = gone.max() {
            return reach;
        }
        if self.went_meanwhile(kind, loss, del) {
            return Reach::Can;
        }
        let wiring = self.newer.entry.wiring.as_ref();
        let looked = wiring.is_some_and(|wiring| wiring.at > loss.at);
        match self.keyed {
            Keyed::Name if looked => Reach::Cannot,
            _ => Reach::Perhaps,
        }
    }

    /// Whether an address went while a short DEL ran: the kernel tells that
    /// time exactly. The routes over its device go with it.
    fn went_meanwhile(&self, kind: Kind, loss: &Loss, del: &Del) -> bool {
        let Some(ended) = del.ended.filter(|end| end.since(del.started) <= SHORT) else {
            return false;
        };
        let meanwhile = |at: Timestamp| at >= del.started && at <= ended;
        match kind {
            Kind::Address => meanwhile(loss.at),
            _ => {
                let mut addresses = self.items(Kind::Address);
                addresses.any(|item| item.loss.as_ref().is_some_and(|loss| meanwhile(loss.at)))
            }
        }
    }

    /// Whether a third sandbox of the name was set up before: a plugin that
    /// goes by the name gives it what the newer one had.
    fn is_taken_over(&self, at: Timestamp) -> bool {
        let named = self.view.model.calls.of_pod_name(&self.newer.pod);
        let mut others = named.filter(|calls| {
            calls.container_id != self.old
                && !self.newer.entry.sandbox.has_container(&calls.container_id)
        });
        others.any(|calls| {
            let mut adds = calls.chain().filter_map(|plugin| plugin.add.as_ref());
            adds.any(|add| add.started > self.newer.added && add.started <= at)
        })
    }

    fn items(&self, kind: Kind) -> impl Iterator<Item = &'a Item> {
        let items = self.view.model.lost.of(self.newer.entry.id);
        items.filter_map(move |(its, _, item)| (its == kind).then_some(item))
    }
}

/// What was called for a sandbox, without its loopback device.
fn calls<'a>(view: &View<'a>, id: &'a str) -> impl Iterator<Item = &'a AttachmentCalls> {
    let calls = view.model.calls.of_container(id);
    calls.filter(|calls| calls.ifname != "lo")
}

/// By what the plugins find what to delete: one that goes by the name is
/// enough, and all must be known to go by the container. Of a plugin that has
/// others do the work these must have been seen.
fn keyed(calls: &[&AttachmentCalls]) -> Keyed {
    let plugins = calls.iter().flat_map(|calls| &calls.plugins);
    let called: Vec<&PluginCalls> = plugins.filter(|plugin| plugin.del.is_some()).collect();
    let delegates = called.iter().any(|plugin| plugin.delegated);
    let names = called.iter().map(|plugin| plugin.plugin.as_str());
    let mut names = names
        .filter(|name| !(delegates && META.contains(name)))
        .peekable();
    if names.peek().is_none() {
        return Keyed::Unseen;
    }
    let mut known = Keyed::Container;
    for name in names {
        if BY_NAME.iter().any(|part| name.contains(part)) {
            return Keyed::Name;
        }
        if META.contains(&name) && !BY_CONTAINER.contains(&name) {
            known = Keyed::Unseen;
        } else if !BY_CONTAINER.contains(&name) && known != Keyed::Unseen {
            known = Keyed::Unknown;
        }
    }
    known
}
