//! Who has an address that a pod should get: a network namespace, or a
//! reservation, or nobody on this node.

use crate::{
    detect::{
        View, evidence,
        facts::{
            calls::{owner, store_kind},
            common::{label, user_kind},
            ghosts,
        },
        held_since, holders_of, sleeps_in, stuck_in,
    },
    model::netns::NetnsEntry,
};
use std::net::IpAddr;

use event::order::Order as _;
use event::{
    ReservationHolder, StoreKind,
    clock::Timestamp,
    finding::{Evidence, Holder},
    wording::subjects::{short_id, task_label},
};

pub(super) struct OtherOwner<'a> {
    pub(super) address: IpAddr,
    /// Namespaces that have it, the one longest gone first.
    pub(super) entries: Vec<&'a NetnsEntry>,
    /// Who has it reserved.
    pub(super) reservation: Option<(&'a ReservationHolder, Timestamp)>,
    /// That is the sandbox itself.
    pub(super) is_own: bool,
    /// A store has said something of it.
    pub(super) asked: bool,
}

impl<'a> OtherOwner<'a> {
    /// Who has `address`, which sandbox `own` should get.
    pub(super) fn of(view: &View<'a>, address: IpAddr, own: &str) -> Self {
        let model = view.model;
        let with = model.netns.with_address(address);
        let mut entries: Vec<_> = with
            .filter(|entry| entry.dying.is_none() && !view.is_bystander(entry))
            .filter(|entry| !entry.sandbox.has_container(own))
            .collect();
        entries.order_by_key(|entry| ghosts::gone(view, entry).is_none());
        let known = model.allocations.get(address);
        let answer = known.and_then(|known| known.answer.as_ref());
        let answered = answer.and_then(|answer| Some((answer.holder.as_ref()?, answer.since)));
        let mut listed = model.cni.reservations(address);
        let listed = listed
            .next()
            .map(|(listed, each)| (&each.holder, listed.at));
        // What was asked for it is later than what was listed.
        let reservation = match answer {
            Some(_) => answered,
            None => listed,
        };
        let is_own = reservation.is_some_and(|(holder, _)| holder.container_id == own);
        Self {
            address,
            entries,
            reservation,
            is_own,
            asked: answer.is_some() || listed.is_some(),
        }
    }

    /// What keeps the namespaces.
    pub(super) fn holders(&self, view: &View<'_>) -> Vec<Holder> {
        let guests = self.entries.iter().filter(|entry| !entry.host);
        guests
            .flat_map(|entry| holders_of(view.model, entry))
            .collect()
    }

    /// `is held by a deleted pod`
    pub(super) fn words(&self, view: &View<'_>) -> String {
        if let Some(entry) = self.entries.first() {
            return format!("is held by {}", user_kind(view, entry));
        }
        match self.reservation {
            Some(_) if self.is_own => String::from("is in use although reserved for it"),
            Some((holder, _)) if holder.container_id.is_empty() => {
                let kind = store_kind(view.model, holder);
                match &holder.pod {
                    Some(pod) => format!("is reserved for {}", pod.label()),
                    None if kind.is_none_or(|kind| kind == StoreKind::HostLocal) => {
                        String::from("is reserved by an empty file")
                    }
                    // Calico keeps that of a machine that is stopped.
                    None => format!("is reserved by {}", holder.path.display()),
                }
            }
            Some((holder, _)) => {
                format!("is reserved for {}", short_id(&holder.container_id))
            }
            None => String::from("is in use; no holder found on this node"),
        }
    }

    /// What leads to it.
    pub(super) fn evidence(&self, view: &View<'_>) -> Vec<Evidence> {
        let model = view.model;
        let address = self.address;
        let mut claims = Vec::new();
        for entry in &self.entries {
            let label = label(model, entry);
            let held = entry.addresses.iter();
            let held = held.filter(|held| held.address.address == address);
            for held in held.take(1) {
                let since = held_since(model, entry, held);
                let claim = format!("{label} has {} on {}", held.address, held.address.ifname);
                claims.push(evidence(claim, "kernel", since));
            }
            if let Some(since) = ghosts::gone(view, entry) {
                let list = model.pods.list();
                let source = list.map_or("pods", |list| list.source.as_str());
                claims.push(evidence(
                    format!("{label} is of a deleted pod"),
                    source,
                    since,
                ));
            }
            for blocked in stuck_in(model, entry).iter().take(1) {
                let claim = format!(
                    "{} is in the netns, in state D{}",
                    task_label(&blocked.task),
                    sleeps_in(blocked)
                );
                claims.push(evidence(claim, "kernel", blocked.since));
            }
        }
        if let Some((holder, at)) = self.reservation {
            let path = holder.path.display();
            let claim = match holder.container_id.as_str() {
                "" => format!("{address} is reserved by {path}, an empty file"),
                id => {
                    let owner = owner(view, id);
                    format!(
                        "{address} is reserved for {} by {path}: {owner}",
                        short_id(id)
                    )
                }
            };
            claims.push(evidence(claim, "ipam", at));
        }
        claims
    }
}
