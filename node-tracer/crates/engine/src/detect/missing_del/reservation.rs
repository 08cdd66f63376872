//! Whether an attachment's addresses are still reserved for it, as the stores
//! that could be looked at say.

use std::{net::IpAddr, time::Duration};

use super::Named;
use crate::{
    detect::{View, calls::store_kind, evidence},
    model::{Model, allocation::StoreAnswer},
};
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
