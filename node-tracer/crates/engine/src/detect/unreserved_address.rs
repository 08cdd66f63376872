//! unreserved-address: a pod lives and has an address that its IPAM's store has
//! free, or has given to somebody else: the inverse of leaked-reservation. The
//! next pod can be given it.
//!
//! All of these must be so:
//!
//! 1. the pod lives: the API server lists it, it is to stay, and CRI says that its
//!    sandbox is ready. One of the two alone does not prove it;
//! 2. its CNI ADD is over, gave this very address to the pod's own interface, and
//!    came from an IPAM whose store is read. A second network's interface, a static
//!    address and a pod on the host's network have none;
//! 3. every store answered, in whole, after that ADD;
//! 4. the store is the one in use: host-local's folder of this very network; any
//!    other has an address of another pod that lives here.
//!
//! Whatever has it for the pod, host-local looks into the folder of the network that
//! it is called for. Where new pods are attached to another network by now, whose
//! ranges have the address and which plugs them into the same link, that one's folder
//! counts. What it plugs them into may not be known: then it is `info`.
//!
//! A CNI DEL of the sandbox, begun or ended, explains it. That another namespace of
//! this node has the address, too, is duplicate-address, which asks the store itself.

mod finding;

use std::{net::IpAddr, path::Path, time::Duration};

use crate::{
    detect::{
        View,
        facts::{
            conflicts, ghosts,
            inner::is_inner,
            ipam::{self, Allocator, Ipam},
            links,
        },
        heard, is_routable,
    },
    model::{
        Model,
        allocation::{Allocation, StoreAnswer},
        attachment::ListedStore,
        netns::NetnsEntry,
        pods::PodPresence,
    },
};
use event::order::Order as _;
use event::{Network, ReservationHolder, StoreKind, clock::Timestamp, finding::Finding};

/// The interface by which Kubernetes reaches a pod.
const DEFAULT: &str = "eth0";
/// How long after an ADD an answer counts: clocks of files are coarse, and a
/// runtime writes its list last.
const SETTLED: Duration = Duration::from_secs(2);
/// How long the stores must have been saying so: a CNI DEL that has just released it
/// is heard of by then.
const STANDS: Duration = Duration::from_secs(5);

/// An address that a pod has and its store has not for it.
struct Unreserved<'a> {
    entry: &'a NetnsEntry,
    address: IpAddr,
    added: Timestamp,
    allocator: Allocator,
    kind: StoreKind,
    known: &'a Allocation,
    answer: &'a StoreAnswer,
    /// Since when the store has been seen without it.
    since: Timestamp,
    /// Who the store has it for.
    holder: Option<&'a ReservationHolder>,
    /// host-local: the folder of the network.
    store: Option<&'a Path>,
    /// The network that new pods are attached to, if it is another than the pod's.
    successor: Option<Successor<'a>>,
    /// The store can give it out.
    can_give: bool,
}

/// A network that new pods are attached to in the place of an older one.
#[derive(Clone, Copy)]
struct Successor<'a> {
    network: &'a Network,
    /// It is known to plug them into what the older one's pods are on.
    is_same_link: bool,
}

/// One finding an address.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let given = view.given().iter();
    let all = given.filter_map(|given| Unreserved::of(view, given));
    let all = all.filter(|unreserved| unreserved.stands(view));
    all.map(|unreserved| unreserved.finding(view)).collect()
}

/// Addresses of living pods, which the stores are to be asked about from time to
/// time, and whether all the time.
pub fn addresses<'v>(view: &'v View<'_>) -> impl Iterator<Item = (IpAddr, bool)> + 'v {
    let given = view.given().iter();
    given.map(|given| (given.address, Unreserved::of(view, given).is_some()))
}

/// An address that CNI gave to a pod that lives.
#[derive(Debug)]
pub(super) struct Given<'a> {
    entry: &'a NetnsEntry,
    address: IpAddr,
    /// When the ADD was over.
    added: Timestamp,
}

pub(super) fn given<'a>(view: &View<'a>) -> Vec<Given<'a>> {
    let live = view.model.netns.live().filter(|entry| lives(view, entry));
    let given = live.flat_map(|entry| {
        let id = entry.sandbox.id.as_deref().unwrap_or_default();
        let model = view.model;
        let cached = model.cni.of_container(id);
        let cached = cached.filter(|add| add.ifname == DEFAULT);
        let cached = cached.flat_map(|add| add.ips.iter().map(|ip| (*ip, add.written)));
        let called = model.calls.of_container(id);
        let called = called.filter(|add| add.ifname == DEFAULT && !add.has_del());
        let called = called.filter_map(|add| Some((add.ips(), add.added()?)));
        let called = called.flat_map(|(ips, at)| ips.into_iter().map(move |ip| (ip, at)));
        let mut all: Vec<(IpAddr, Timestamp)> = cached.chain(called).collect();
        // Of two that tell of one, the ADD was over when the later says so.
        all.order_by(|a, b| b.cmp(a));
        all.dedup_by_key(|(address, _)| *address);
        all.retain(|(address, _)| is_routable(*address) && model.netns.has(entry, *address));
        all.into_iter().map(move |(address, added)| Given {
            entry,
            address,
            added,
        })
    });
    given.collect()
}

/// Whether a pod is known to live in its namespace and to stay.
fn lives<'a>(view: &View<'a>, entry: &'a NetnsEntry) -> bool {
    let sandbox = &entry.sandbox;
    let Some(id) = sandbox.id.as_deref().filter(|_| !entry.host) else {
        return false;
    };
    let is_going = sandbox.del.is_some() || sandbox.deleting.is_some();
    let listed = heard(view.model).and_then(|list| list.of_container(id));
    let is_ready = listed.is_some_and(|listed| listed.ready == Some(true));
    let stays = sandbox.presence == PodPresence::Listed && is_ready;
    stays
        && !is_going
        && sandbox.uid().is_some()
        && !view.is_bystander(entry)
        && !is_inner(view, entry)
        && ghosts::verdict(view, entry).is_none()
}

impl<'a> Unreserved<'a> {
    /// Whether it stays so: meanwhile the stores are asked all the time, and a change
    /// is told. A scan has a second look for that.
    fn stands(&self, view: &View<'_>) -> bool {
        view.settings.surveyed || view.passed(self.since.plus(STANDS))
    }

    fn of(view: &View<'a>, given: &Given<'a>) -> Option<Self> {
        let &Given {
            entry,
            address,
            added,
        } = given;
        let model = view.model;
        let known = model.allocations.get(address)?;
        let answer = known.answer.as_ref().filter(|_| known.silent.is_none())?;
        if known.asked() < added.plus(SETTLED) {
            return None;
        }
        // Whose an address is that two have on this node is the matter of
        // duplicate-address, also where it cannot tell their networks or pods.
        let mut others = model.netns.with_address(address);
        let is_another = |other: &NetnsEntry| {
            other.serial != entry.serial && !other.host && !view.is_bystander(other)
        };
        if others.any(is_another) || !conflicts::other_owners(view, entry, address).is_empty() {
            return None;
        }
        Self::in_its_store(view, given, known, answer)
            .or_else(|| Self::in_successors_store(view, given, known, answer))
    }

    /// By the store of what gave the address.
    fn in_its_store(
        view: &View<'a>,
        given: &Given<'a>,
        known: &'a Allocation,
        answer: &'a StoreAnswer,
    ) -> Option<Self> {
        let &Given {
            entry,
            address,
            added,
        } = given;
        let model = view.model;
        if let Some(holder) = &answer.holder
            && !is_anothers(model, entry, holder)
        {
            return None;
        }
        let allocator = ipam::named_giver(view, entry, address)?;
        let Ipam::Store(kind) = allocator.ipam else {
            return None;
        };
        let store = folder(model, entry);
        let is_proven = match kind {
            StoreKind::HostLocal => store.is_some_and(|store| has_answered(store, answer)),
            // What is in neither, the agent keeps to itself.
            StoreKind::Cilium => false,
            _ => in_use(view, entry, kind, answer, added),
        };
        let is_branch = kind == StoreKind::Aws && !has_pool_address(model, entry);
        if !is_proven || is_branch {
            return None;
        }
        Some(Self {
            entry,
            address,
            added,
            allocator,
            kind,
            known,
            answer,
            since: answer.since,
            holder: answer.holder.as_ref(),
            store,
            successor: None,
            can_give: match kind {
                StoreKind::HostLocal => ipam::can_give(view, answer, address),
                // Its datastore writes the file with each address that it gives.
                StoreKind::Aws => true,
                _ => false,
            },
        })
    }

    /// By the store of the network that new pods are attached to, if it is another
    /// than the pod's by now.
    fn in_successors_store(
        view: &View<'a>,
        given: &Given<'a>,
        known: &'a Allocation,
        answer: &'a StoreAnswer,
    ) -> Option<Self> {
        let &Given {
            entry,
            address,
            added,
        } = given;
        let model = view.model;
        let own = folder(model, entry);
        let mut networks = model.cni.networks_in_use();
        let (network, store) = networks.find_map(|network| {
            let store = network.store.as_deref()?;
            let is_other = Some(store) != own && ipam::covers(network, address);
            is_other.then_some((network, store))
        })?;
        let holder = answer.holder.as_ref();
        let holder = holder.filter(|holder| holder.path.starts_with(store));
        let has_it = holder.is_some_and(|holder| !is_anothers(model, entry, holder));
        if has_it || !is_read(model, store, answer) {
            return None;
        }
        let held = model.netns.held_at(entry, address).next();
        let held = held.map(|held| &held.address);
        let own = links::links(view, entry, held, address, true);
        let meets = own
            .zip(links::of_network(view, network, address))
            .map(|(own, its)| !own.is_disjoint(&its));
        if meets == Some(false) {
            return None;
        }
        let since = model.cni.networks_since().unwrap_or(answer.since);
        Some(Self {
            entry,
            address,
            added,
            allocator: ipam::of_network(view, entry, network)?,
            kind: StoreKind::HostLocal,
            known,
            answer,
            since: since.max(answer.since),
            holder,
            store: Some(store),
            successor: Some(Successor {
                network,
                is_same_link: meets.is_some(),
            }),
            can_give: true,
        })
    }
}

/// Whether a reservation is for another pod than the one of a namespace. One that
/// names nobody may be for that.
fn is_anothers(model: &Model, entry: &NetnsEntry, holder: &ReservationHolder) -> bool {
    let sandbox = &entry.sandbox;
    let id = holder.container_id.as_str();
    let is_own = id.is_empty() || sandbox.has_container(id);
    let uid = ipam::pod_of(model, holder);
    let own_uid = uid.is_some() && uid == sandbox.uid();
    let named = holder.pod.as_ref().zip(sandbox.pod.as_ref());
    let own_name = named.is_some_and(|(its, own)| {
        its.name.is_some() && (&its.namespace, &its.name) == (&own.namespace, &own.name)
    });
    !is_own && !own_uid && !own_name
}

/// host-local's folder of the network that a pod was attached to.
fn folder<'a>(model: &'a Model, entry: &NetnsEntry) -> Option<&'a Path> {
    let id = entry.sandbox.id.as_deref()?;
    let cached = model.cni.of_container(id);
    let cached = cached.filter(|add| add.ifname == DEFAULT);
    let called = model.calls.of_container(id);
    let called = called.filter(|add| add.ifname == DEFAULT);
    let called = called.flat_map(|add| add.chain().filter_map(|it| it.network.as_deref()));
    let name = cached
        .map(|add| add.network.as_str())
        .chain(called)
        .next()?;
    let networks = model.cni.networks()?.iter();
    let mut networks = networks.filter(|network| network.name == name);
    let store = networks.next()?.store.as_deref()?;
    networks.next().is_none().then_some(store)
}

/// Whether it is this folder that has answered, and that names the holder if there
/// is one.
fn has_answered(store: &Path, answer: &StoreAnswer) -> bool {
    let holder = answer.holder.as_ref();
    let is_its = holder.is_none_or(|holder| holder.path.starts_with(store));
    is_its && answer.stores.iter().any(|path| path == store)
}

/// Whether a folder was read for an answer, and would be named by it: of several
/// that have an address it names the first. One that is not there yet has none.
fn is_read(model: &Model, store: &Path, answer: &StoreAnswer) -> bool {
    let mut stores = answer.stores.iter();
    let first = stores.find(|path| {
        let holder = answer.holder.as_ref();
        *path == store || holder.is_some_and(|holder| holder.path.starts_with(path))
    });
    let is_there = answer.stores.iter().any(|path| path == store)
        || model.cni.stores().any(|listed| listed.store.path == store);
    match is_there {
        true => first.is_some_and(|path| path == store),
        false => model.failure(StoreKind::HostLocal.as_str()).is_none(),
    }
}

/// Whether a store of a kind was listed after an ADD and has an address of another
/// pod that lives here, and none of that kind lacks anything.
fn in_use(
    view: &View<'_>,
    entry: &NetnsEntry,
    kind: StoreKind,
    answer: &StoreAnswer,
    added: Timestamp,
) -> bool {
    let model = view.model;
    let stores = || {
        let stores = model.cni.stores();
        stores.filter(|listed| listed.store.kind == kind)
    };
    let is_later = |listed: &ListedStore| listed.at >= added.plus(SETTLED);
    let is_whole = |listed: &ListedStore| {
        listed.store.unread.is_empty() && answer.stores.contains(&listed.store.path)
    };
    let of_others = || {
        let others = model.netns.live();
        let mut others = others.filter(|other| other.serial != entry.serial);
        others.any(|other| {
            other.addresses.iter().any(|held| {
                let reserved = model.cni.reservations(held.address.address);
                let mut reserved = reserved.filter(|(listed, _)| listed.store.kind == kind);
                reserved.any(|(_, each)| !is_anothers(model, other, &each.holder))
                    && lives(view, other)
            })
        })
    };
    stores().next().is_some()
        && stores().all(|listed| is_later(listed) && is_whole(listed))
        && model.failure(kind.as_str()).is_none()
        && of_others()
}

/// Whether a pod of the AWS VPC CNI has its address from the pool: one with a
/// branch interface of its own has it from elsewhere.
fn has_pool_address(model: &Model, entry: &NetnsEntry) -> bool {
    let id = entry.sandbox.id.as_deref().unwrap_or_default();
    let devices = model.cni.of_container(id).flat_map(|add| &add.host_devices);
    let mut devices = devices.peekable();
    devices.peek().is_some() && devices.all(|name| name.starts_with("eni"))
}

#[cfg(test)]
mod tests;
