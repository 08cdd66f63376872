//! Who gives an address out, and what becomes of it while its pod is gone and
//! its sandbox lives.
//!
//! An IPAM whose pool is cleaned by what the API server has releases the
//! address under the ghost: a conflict, with a time by which it is due. One
//! that releases by CNI DEL alone keeps it for nobody: a leak.

use std::{net::IpAddr, path::Path, time::Duration};

use crate::{
    detect::{View, facts::ghosts::Ghost, heard},
    model::{
        Model,
        allocation::StoreAnswer,
        calls::{AttachmentCalls, PluginCalls},
        netns::NetnsEntry,
        pods::PodPresence,
    },
};
use event::{
    Network, Pod, PodRef, ReservationHolder, StoreKind, clock::Timestamp,
    wording::subjects::short_id,
};

/// Terway: `gcPeriod`; the first run comes within it.
const TERWAY: Duration = Duration::from_secs(5 * 60);
/// Calico's kube-controllers: `leakGracePeriod`, of two observations.
const CALICO: Duration = Duration::from_secs(15 * 60);
/// Whereabouts: its reconciler's schedule, if nobody has set another one.
const WHEREABOUTS: Duration = Duration::from_secs(24 * 3600);

/// What gives an address out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::detect) enum Ipam {
    /// One whose ways are known.
    Store(StoreKind),
    /// Another one: its `type`.
    Other(String),
}

/// What gave an address out, and who says so.
#[derive(Clone, Debug)]
pub(in crate::detect) struct Allocator {
    pub(in crate::detect) ipam: Ipam,
    /// The claim in words; none where the reservation itself says it.
    pub(in crate::detect) claim: Option<String>,
    pub(in crate::detect) source: &'static str,
    pub(in crate::detect) at: Timestamp,
}

/// What becomes of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::detect) enum Outlook {
    /// It goes back to the pool and is given to another.
    Conflict {
        /// At the latest; not known where nobody saw when the pod went.
        due: Option<Timestamp>,
        /// How soon at the earliest.
        from: Start,
    },
    /// Only CNI DEL releases it, and nobody gets it until then.
    Leak,
    /// The IPAM is not known, or its ways are not.
    Unknown,
}

/// When an address can go back at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::detect) enum Start {
    /// At any time since the pod has gone.
    Anytime,
    /// Not before it is due.
    Due,
    /// Another pod has a claim on it already.
    Claimed,
}

impl Ipam {
    /// By the `type` of an IPAM plugin, or of a plugin that brings its own.
    fn named(name: &str) -> Option<Self> {
        Some(Self::Store(match name {
            "host-local" => StoreKind::HostLocal,
            "terway" | "terway-cni" => StoreKind::Terway,
            "aws-cni" => StoreKind::Aws,
            "calico-ipam" => StoreKind::Calico,
            "whereabouts" => StoreKind::Whereabouts,
            "cilium" | "cilium-cni" => StoreKind::Cilium,
            "" => return None,
            other => return Some(Self::Other(other.to_owned())),
        }))
    }

    /// The same; only those that are known: a plugin of any other name may have
    /// nothing to do with addresses.
    fn of_plugin(name: &str) -> Option<Self> {
        Self::named(name).filter(|ipam| matches!(ipam, Self::Store(_)))
    }

    /// Its name, for people.
    pub(in crate::detect) fn name(&self) -> &str {
        match self {
            Self::Store(StoreKind::HostLocal) => "host-local",
            Self::Store(StoreKind::Terway) => "Terway",
            Self::Store(StoreKind::Aws) => "the AWS VPC CNI",
            Self::Store(StoreKind::Calico) => "Calico",
            Self::Store(StoreKind::Whereabouts) => "Whereabouts",
            Self::Store(StoreKind::Cilium) => "Cilium",
            Self::Other(name) => name,
        }
    }

    /// What it does with the address of a pod that is gone; `None` if that is
    /// not known.
    pub(in crate::detect) fn ways(&self) -> Option<&'static str> {
        let kind = match self {
            Self::Store(kind) => kind,
            Self::Other(name) => return other_ways(name),
        };
        Some(match kind {
            StoreKind::Terway => {
                "Terway frees the IP of a pod that is not in the API within 5 min, even if in use"
            }
            StoreKind::Calico => {
                "calico-kube-controllers frees the IP of a pod that is not in the API after 15 \
                 min, even if in use"
            }
            StoreKind::Whereabouts => {
                "Whereabouts frees the IP of a pod that is not in the API, even if in use: at once \
                 if its control loop sees the deletion, otherwise when its reconciler runs"
            }
            StoreKind::HostLocal => {
                "host-local frees an IP by CNI DEL alone: the IP stays reserved until CNI DEL \
                 runs or somebody removes the reservation's file"
            }
            StoreKind::Aws => {
                "the AWS VPC CNI's ipamd frees an IP by CNI DEL alone, and not while the \
                 sandbox's veth exists"
            }
            StoreKind::Cilium => {
                "Cilium's agent frees an IP by CNI DEL, or when the agent restarts"
            }
        })
    }

    /// Whether it gives the same addresses out on other nodes.
    pub(in crate::detect) fn is_of_cluster(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreKind::Calico | StoreKind::Whereabouts)
        )
    }
}

/// What IPAM plugins of the CNI project that keep no store do with the address
/// of a pod that is gone.
fn other_ways(name: &str) -> Option<&'static str> {
    match name {
        "static" => Some(
            "static addresses stand in the pod's or the network's configuration: no pool gives them \
             to others",
        ),
        "dhcp" => Some(
            "the DHCP server gives the address to others once its lease has ended, which the CNI \
             DHCP daemon renews until CNI DEL",
        ),
        _ => None,
    }
}

/// What gave an address of a namespace out: the best source that tells.
pub(in crate::detect) fn allocator(
    view: &View<'_>,
    entry: &NetnsEntry,
    address: IpAddr,
) -> Option<Allocator> {
    called(view, entry, address)
        .or_else(|| reserved(view, entry, address))
        .or_else(|| configured(view, entry, address))
        .or_else(|| only_store(view))
}

/// The same by what says it of this very address: its CNI ADD, or the configuration
/// of the network that libcni attached it to.
pub(in crate::detect) fn named_giver(
    view: &View<'_>,
    entry: &NetnsEntry,
    address: IpAddr,
) -> Option<Allocator> {
    called(view, entry, address).or_else(|| configured(view, entry, address))
}

/// The device that an address is on.
fn ifname(entry: &NetnsEntry, address: IpAddr) -> Option<&str> {
    let mut held = entry.addresses.iter().map(|held| &held.address);
    let its = held.find(|held| held.address == address)?;
    Some(its.ifname.as_str())
}

/// The plugin that was called for it.
fn called(view: &View<'_>, entry: &NetnsEntry, address: IpAddr) -> Option<Allocator> {
    let id = entry.sandbox.id.as_deref()?;
    let ifname = ifname(entry, address);
    let gave = |attachment: &&AttachmentCalls| {
        attachment.ips().contains(&address) || Some(attachment.ifname.as_str()) == ifname
    };
    let attachment = view.model.calls.of_container(id).find(gave)?;
    let all = || attachment.plugins.iter();
    // What its configuration says; then an IPAM plugin itself; then a plugin
    // that brings its own.
    let by_type = |plugin: &PluginCalls| Ipam::named(plugin.ipam.as_deref()?);
    let by_name = |plugin: &PluginCalls| Ipam::of_plugin(&plugin.plugin);
    let found = all().find_map(|plugin| Some((plugin, by_type(plugin)?)));
    let delegated = || all().filter(|plugin| plugin.delegated);
    let found = found
        .or_else(|| delegated().find_map(|plugin| Some((plugin, by_name(plugin)?))))
        .or_else(|| all().find_map(|plugin| Some((plugin, by_name(plugin)?))));
    let (plugin, ipam) = found?;
    let call = plugin.add.as_ref().or(plugin.del.as_ref())?;
    let command = match plugin.add {
        Some(_) => "ADD",
        None => "DEL",
    };
    Some(Allocator {
        claim: Some(format!(
            "CNI {command} for {} had its IP from {}",
            short_id(id),
            ipam.name()
        )),
        ipam,
        source: "cni",
        at: call.end.as_ref().map_or(call.started, |end| end.at),
    })
}

/// The store that has it, or had it last.
fn reserved(view: &View<'_>, entry: &NetnsEntry, address: IpAddr) -> Option<Allocator> {
    let of = |kind, at| Allocator {
        ipam: Ipam::Store(kind),
        claim: None,
        source: "ipam",
        at,
    };
    let known = view.model.allocations.get(address);
    let answer = known.and_then(|known| known.answer.as_ref());
    if let Some(answer) = answer
        && let Some(holder) = &answer.holder
        && (holder.container_id.is_empty() || entry.sandbox.has_container(&holder.container_id))
    {
        return Some(of(kind_of(view, &holder.path), answer.since));
    }
    let mut listed = view.model.cni.reservations(address);
    let (store, _) = listed.find(|(_, reservation)| {
        entry
            .sandbox
            .has_container(&reservation.holder.container_id)
    })?;
    Some(of(store.store.kind, store.at))
}

/// What keeps a reservation that is written at a path. Stores of host-local may
/// be told of without having been listed, others never.
pub(in crate::detect) fn kind_of(view: &View<'_>, path: &Path) -> StoreKind {
    let mut stores = view.model.cni.stores();
    let its = stores.find(|listed| path.starts_with(&listed.store.path));
    its.map_or(StoreKind::HostLocal, |listed| listed.store.kind)
}

/// The network's, by libcni's memory of the attachment and the configuration.
fn configured(view: &View<'_>, entry: &NetnsEntry, address: IpAddr) -> Option<Allocator> {
    /// What Kubernetes' runtimes call a pod's own interface.
    const DEFAULT: &str = "eth0";
    let networks = view.model.cni.networks()?;
    let ifname = ifname(entry, address)?;
    let id = entry.sandbox.id.as_deref();
    let mut attachments = id
        .into_iter()
        .flat_map(|id| view.model.cni.of_container(id));
    let attachment = attachments.find(|each| each.ips.contains(&address) || each.ifname == ifname);
    let network = match attachment {
        Some(attachment) => networks
            .iter()
            .find(|network| network.name == attachment.network)?,
        None if ifname == DEFAULT => networks.first()?,
        None => return None,
    };
    of_network(view, entry, network)
}

/// What gives out the addresses of a configured network.
pub(in crate::detect) fn of_network(
    view: &View<'_>,
    entry: &NetnsEntry,
    network: &Network,
) -> Option<Allocator> {
    let by_type = network.ipam.as_deref().and_then(Ipam::named);
    let ipam = by_type.or_else(|| Ipam::of_plugin(&network.plugin))?;
    Some(Allocator {
        claim: Some(format!(
            "{}: network {:?} gets its IPs from {}",
            network.file.display(),
            network.name,
            ipam.name()
        )),
        ipam,
        source: "cni",
        at: view.model.cni.attachments_at().unwrap_or(entry.seen),
    })
}

/// The only one that keeps reservations on this node.
fn only_store(view: &View<'_>) -> Option<Allocator> {
    let used = || {
        let all = view.model.cni.stores();
        all.filter(|listed| !listed.store.reservations.is_empty())
    };
    let first = used().next()?;
    let kind = first.store.kind;
    used()
        .all(|listed| listed.store.kind == kind)
        .then(|| Allocator {
            ipam: Ipam::Store(kind),
            claim: Some(format!(
                "the only reservations on this node are in {}",
                first.store.path.display()
            )),
            source: "ipam",
            at: first.at,
        })
}

/// Whether an answer is of a store of this IPAM: what was left over by another
/// pod network says nothing.
pub(in crate::detect) fn is_answered_by(
    view: &View<'_>,
    ipam: &Ipam,
    answer: &StoreAnswer,
) -> bool {
    let Ipam::Store(kind) = ipam else {
        return true;
    };
    let mut stores = answer.stores.iter();
    stores.any(|path| kind_of(view, path) == *kind)
}

/// Whether one of the stores that answered is known to give an address out: that
/// host-local has no file of it means nothing if it is of another network.
pub(in crate::detect) fn can_give(view: &View<'_>, answer: &StoreAnswer, address: IpAddr) -> bool {
    let mut stores = answer.stores.iter();
    stores.any(|store| kind_of(view, store) != StoreKind::HostLocal || gives(view, store, address))
}

/// Whether a store of host-local is of a network that has the address in its
/// ranges.
pub(in crate::detect) fn gives(view: &View<'_>, store: &Path, address: IpAddr) -> bool {
    let network = view.model.cni.network_of(store);
    network.is_some_and(|network| covers(network, address))
}

/// Whether an address is in a network's ranges.
pub(in crate::detect) fn covers(network: &Network, address: IpAddr) -> bool {
    let mut ranges = network.ranges.iter();
    ranges.any(|it| (it.first..=it.last).contains(&address))
}

/// What becomes of an address. `gone` is whether the API server has forgotten
/// the pod: while it has not, nobody takes the address back.
pub(in crate::detect) fn outlook(
    view: &View<'_>,
    ghost: &Ghost<'_>,
    address: IpAddr,
    allocator: Option<&Allocator>,
    pod: &PodRef,
    gone: bool,
) -> Outlook {
    let Some(Allocator {
        ipam: Ipam::Store(kind),
        ..
    }) = allocator
    else {
        return Outlook::Unknown;
    };
    let is_seen = !matches!(ghost.entry.sandbox.presence, PodPresence::Unlisted(_));
    let conflict = |after, from| match gone {
        true => Outlook::Conflict {
            due: is_seen.then(|| ghost.since.plus(after)),
            from,
        },
        false => Outlook::Unknown,
    };
    match kind {
        StoreKind::Terway if successor(view, pod, address).is_some() => {
            conflict(Duration::ZERO, Start::Claimed)
        }
        StoreKind::Terway => conflict(TERWAY, Start::Anytime),
        StoreKind::Calico => conflict(CALICO, Start::Due),
        StoreKind::Whereabouts => conflict(WHEREABOUTS, Start::Anytime),
        StoreKind::HostLocal if is_emptied_at_starts(view) => Outlook::Unknown,
        StoreKind::HostLocal | StoreKind::Aws | StoreKind::Cilium => Outlook::Leak,
    }
}

/// Whether the pod network's agent takes back what host-local has given to pods
/// that are gone, each time that it starts: Antrea's does.
pub(in crate::detect) fn is_emptied_at_starts(view: &View<'_>) -> bool {
    let networks = view.model.cni.networks().unwrap_or_default();
    networks.iter().any(|network| network.plugin == "antrea")
}

/// The pod of the same name on this node that Terway, which keeps addresses by
/// name, gives this one: unless it has another already.
pub(in crate::detect) fn successor<'a>(
    view: &View<'a>,
    pod: &PodRef,
    address: IpAddr,
) -> Option<&'a Pod> {
    let (namespace, name) = (pod.namespace.as_deref()?, pod.name.as_deref()?);
    let other = view.model.pods.namesake(namespace, name)?;
    let same = pod.uid.as_ref().is_none_or(|uid| other.uids.contains(uid));
    let node = other.node.as_deref();
    let here = node.is_none_or(|node| node == view.settings.node);
    let free = other.ips.is_empty() || other.ips.contains(&address);
    (!same && here && free && !other.host_network).then_some(other)
}

/// The UID of the pod that a reservation is for, if anything tells.
pub(in crate::detect) fn pod_of<'a>(
    model: &'a Model,
    holder: &'a ReservationHolder,
) -> Option<&'a str> {
    let id = holder.container_id.as_str();
    let called = || {
        let mut calls = model.calls.of_container(id);
        calls.find_map(|call| call.pod.as_ref()?.uid.as_deref())
    };
    let listed = || {
        let listed = heard(model)?.of_container(id)?;
        listed.pod.uid.as_deref()
    };
    let inside = || {
        let mut live = model.netns.live();
        let its = live.find(|other| other.sandbox.has_container(id))?;
        its.sandbox.uid()
    };
    let stored = || holder.pod.as_ref()?.uid.as_deref();
    called().or_else(listed).or_else(inside).or_else(stored)
}
