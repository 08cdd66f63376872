//! Stores with reservations of containers that do not exist.

use std::{collections::BTreeMap, net::IpAddr, path::Path};

use super::{
    ipam,
    reservations::{Doubt, Judge, Proof, Verdict},
};
use crate::{detect::View, model::attachment::ListedStore};
use event::order::Order as _;
use event::{Network, Reservation, Store, StoreKind};

/// Where Terway's delegate keeps its reservations, whatever the configuration
/// says.
pub const FLAT: &str = "/var/lib/cni/networks";

/// Plugins that take networks from the API server.
const META: [&str; 4] = ["multus", "multus-shim", "danm", "genie"];

/// A store with leaked reservations.
pub(in crate::detect) struct Leak<'v, 'a> {
    pub(in crate::detect) view: &'v View<'a>,
    pub(in crate::detect) judge: &'v Judge<'a>,
    pub(in crate::detect) listed: &'a ListedStore,
    /// The leaked ones, oldest first.
    pub(in crate::detect) leaked: Vec<&'a Reservation>,
    /// The others, by what shows that they are in use.
    pub(in crate::detect) live: BTreeMap<Proof<'a>, usize>,
    /// Those that may be in the making.
    pub(in crate::detect) young: usize,
    /// Whether somebody of whom nothing tells has an address of it.
    pub(in crate::detect) has_strangers: bool,
    /// Those of which it cannot be told, by why.
    pub(in crate::detect) untold: BTreeMap<Doubt, usize>,
}

/// Whether no network that is configured gives a store's addresses out, and
/// none of its containers exists.
pub fn is_left_over<'a>(view: &View<'a>, listed: &'a ListedStore) -> bool {
    // That is soon known, and mostly enough.
    if !is_unnamed(view, &listed.store.path, listed.store.kind) {
        return false;
    }
    let leak = view.judge().and_then(|judge| Leak::of(view, judge, listed));
    leak.is_some_and(|leak| leak.is_left_over())
}

/// Whether no network that is configured keeps its reservations in a store, as
/// far as the configuration is known.
fn is_unnamed(view: &View<'_>, path: &Path, kind: StoreKind) -> bool {
    let cni = &view.model.cni;
    let Some(networks) = cni.networks() else {
        return false;
    };
    let flat = path.as_os_str() == FLAT
        && networks
            .iter()
            .any(|network| network.plugin.starts_with("terway"));
    let named = match kind {
        StoreKind::HostLocal => flat || cni.network_of(path).is_some(),
        other => networks.iter().any(|network| other.serves(network)),
    };
    // Multus has networks in the API that no file of the node names.
    let elsewhere = networks
        .iter()
        .any(|network| META.contains(&network.plugin.as_str()));
    !named && !elsewhere && cni.unread().next().is_none()
}

/// The network that gives an address out now, where host-local has it reserved in a
/// folder that no configured network uses any more: a CNI DEL looks into the new one's.
pub(in crate::detect) fn successor<'a>(
    view: &View<'a>,
    store: &Path,
    address: IpAddr,
) -> Option<&'a Network> {
    let mut networks = view.model.cni.networks_in_use();
    let gives = |network: &&Network| network.store.is_some() && ipam::covers(network, address);
    let network = networks.find(gives)?;
    is_unnamed(view, store, StoreKind::HostLocal).then_some(network)
}

impl<'v, 'a> Leak<'v, 'a> {
    pub(in crate::detect) fn of(
        view: &'v View<'a>,
        judge: &'v Judge<'a>,
        listed: &'a ListedStore,
    ) -> Option<Self> {
        if !judge.can_judge(listed) {
            return None;
        }
        let mut leak = Leak {
            view,
            judge,
            listed,
            leaked: Vec::new(),
            live: BTreeMap::new(),
            young: 0,
            has_strangers: false,
            untold: BTreeMap::new(),
        };
        for reservation in &listed.store.reservations {
            match judge.of(view, reservation) {
                Verdict::Live(proof) => {
                    *leak.live.entry(proof).or_default() += 1;
                    let mut with = view.model.netns.with_address(reservation.address);
                    leak.has_strangers |= with.any(|entry| entry.sandbox.id.is_none());
                }
                Verdict::Young => leak.young += 1,
                Verdict::Leaked => leak.leaked.push(reservation),
                Verdict::Untold(doubt) => *leak.untold.entry(doubt).or_default() += 1,
            }
        }
        leak.leaked
            .order_by_key(|each| (each.modified, each.address));
        (!leak.leaked.is_empty()).then_some(leak)
    }

    pub(in crate::detect) fn store(&self) -> &'a Store {
        &self.listed.store
    }

    /// No network that is configured keeps its reservations here, and none of
    /// the containers exists: it is left over from an earlier CNI. Its addresses
    /// may be in use all the same, given out by another network to sandboxes that
    /// are known. Other programs (buildkit) have stores and configurations of
    /// their own.
    pub(in crate::detect) fn is_left_over(&self) -> bool {
        let others = |proof: &Proof<'_>| *proof == Proof::Address;
        let unused = self.live.keys().all(others) && self.young == 0 && !self.has_strangers;
        unused && is_unnamed(self.view, &self.store().path, self.store().kind)
    }
}
