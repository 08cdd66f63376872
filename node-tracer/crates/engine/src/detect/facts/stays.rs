//! Whether an attachment's addresses are still reserved for it, as the stores
//! that could be looked at say.

use crate::{
    detect::{
        View, evidence,
        facts::{calls::store_kind, common::is_routable},
    },
    model::{Model, allocation::StoreAnswer, calls::AttachmentCalls},
};
use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use event::{
    Network, ReservationHolder, StoreKind, clock::Timestamp, finding::Evidence,
    wording::subjects::short_id,
};

/// What the stores of reservations may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub(in crate::detect) enum Stays<'a> {
    Reserved {
        address: IpAddr,
        /// Where that is written.
        holder: &'a ReservationHolder,
        /// Whose store it is, if that can be told.
        kind: Option<StoreKind>,
        /// For when it is true.
        at: Timestamp,
    },
    /// The store that would know has none of them for it.
    Free,
    /// No store that could be looked at would know.
    Unknown,
    /// The stores have not answered yet.
    NotYet,
}

/// What has become of the addresses of a container; the stores were asked no
/// later than at `asked`.
pub(in crate::detect) fn stays<'a>(
    view: &View<'a>,
    id: &str,
    ips: &[IpAddr],
    named: Named<'_>,
    asked: Timestamp,
) -> Stays<'a> {
    let model = view.model;
    let answer = |address: &IpAddr| model.allocations.get(*address)?.answer.as_ref();
    // What a store has given back since it fell silent nobody knows.
    let silent = |address: &IpAddr| model.allocations.get(*address)?.silent;
    let mut was_reserved = false;
    for address in ips {
        let silent = silent(address);
        if let Some((holder, at)) = of_answer(answer(address), id) {
            was_reserved = true;
            if silent.is_none() {
                return Stays::Reserved {
                    address: *address,
                    holder,
                    kind: store_kind(model, holder),
                    at,
                };
            }
        }
        for (listed, reservation) in model.cni.reservations(*address) {
            let store = &listed.store;
            let later = answer(address).is_some_and(|answer| {
                let same = answer.stores.contains(&store.path);
                same && answer.since > listed.at
            });
            if reservation.holder.container_id == id && !later {
                was_reserved = true;
                if silent.is_none_or(|since| since <= listed.at) {
                    return Stays::Reserved {
                        address: *address,
                        holder: &reservation.holder,
                        kind: Some(store.kind),
                        at: listed.at,
                    };
                }
            }
        }
    }
    if was_reserved {
        return Stays::Unknown;
    }
    // What ADD gave it is not known, but a store may name it.
    let all = model.cni.stores().filter(|_| ips.is_empty());
    let mut all = all.flat_map(|listed| listed.store.reservations.iter().map(move |r| (listed, r)));
    if let Some((listed, found)) = all.find(|(_, each)| each.holder.container_id == id) {
        return Stays::Reserved {
            address: found.address,
            holder: &found.holder,
            kind: Some(listed.store.kind),
            at: listed.at,
        };
    }
    let network = network_of(model, named.network);
    let store = network.and_then(|network| network.store.as_deref());
    let listed = model.cni.stores();
    let listed = listed.filter(|listed| named.added.is_none_or(|added| listed.at > added));
    let was_listed = listed.map(|listed| &listed.store).any(|listed| {
        let its = match listed.kind {
            StoreKind::HostLocal => Some(listed.path.as_path()) == store,
            other => network.is_some_and(|network| other.serves(network)),
        };
        its && listed.unread.is_empty()
    });
    let would_know = |address: &IpAddr| {
        let known = model.allocations.get(*address);
        let answered = known.and_then(|known| Some((known, known.answer.as_ref()?)));
        answered.is_some_and(|(known, answer)| {
            let its = store.is_some_and(|store| answer.stores.iter().any(|path| path == store));
            known.was_reserved || its || named.host_local
        })
    };
    if was_listed || ips.iter().any(would_know) {
        return Stays::Free;
    }
    let unasked = |address: &IpAddr| model.allocations.get(*address).is_none();
    let waits = !ips.is_empty() && ips.iter().all(unasked);
    match waits && !view.passed(asked.plus(ANSWER)) {
        true => Stays::NotYet,
        false => Stays::Unknown,
    }
}

fn of_answer<'a>(
    answer: Option<&'a StoreAnswer>,
    id: &str,
) -> Option<(&'a ReservationHolder, Timestamp)> {
    let answer = answer?;
    let holder = answer.holder.as_ref()?;
    (holder.container_id == id).then_some((holder, answer.since))
}

fn network_of<'a>(model: &'a Model, name: Option<&str>) -> Option<&'a Network> {
    let mut networks = model.cni.networks()?.iter();
    networks.find(|each| Some(each.name.as_str()) == name)
}

impl Stays<'_> {
    /// The claim that it is reserved, with its source and time.
    pub(in crate::detect) fn claim(&self, id: &str) -> Option<Evidence> {
        let Self::Reserved {
            address,
            holder,
            kind,
            at,
        } = self
        else {
            return None;
        };
        let path = holder.path.display();
        let claim = format!("{address} is reserved for {} by {path}", short_id(id));
        let source = kind.map_or("ipam", StoreKind::as_str);
        Some(evidence(claim, source, *at))
    }
}

/// What is known of an attachment's IPAM.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::detect) struct Named<'a> {
    pub(in crate::detect) network: Option<&'a str>,
    /// host-local was called for it.
    pub(in crate::detect) host_local: bool,
    /// When its ADD ended: what was listed before cannot know.
    pub(in crate::detect) added: Option<Timestamp>,
}

/// Whether an attachment's addresses are host-local's.
pub(in crate::detect) fn uses_host_local(calls: &AttachmentCalls) -> bool {
    const HOST_LOCAL: &str = "host-local";
    let mut plugins = calls.plugins.iter();
    plugins.any(|each| each.plugin == HOST_LOCAL || each.ipam.as_deref() == Some(HOST_LOCAL))
}

/// The addresses that an attachment was given, as far as anything tells.
pub(in crate::detect) fn given(view: &View<'_>, calls: &AttachmentCalls) -> Vec<IpAddr> {
    let delegated = calls.plugins.iter().filter(|plugin| plugin.delegated);
    let delegated = delegated
        .filter_map(|plugin| plugin.add.as_ref()?.success()?.result.as_ref())
        .flat_map(|result| result.ips.iter().copied());
    let cached = view.model.cni.of_container(&calls.container_id);
    let cached = cached
        .filter(|each| each.ifname == calls.ifname)
        .flat_map(|each| each.ips.iter().copied());
    // A namespace has the addresses of all its interfaces.
    let told: BTreeSet<IpAddr> = calls
        .ips()
        .into_iter()
        .chain(delegated)
        .chain(cached)
        .collect();
    let held = calls.held.iter().copied().filter(|_| told.is_empty());
    let all: BTreeSet<IpAddr> = told.iter().copied().chain(held).collect();
    all.into_iter()
        .filter(|address| is_routable(*address))
        .collect()
}
