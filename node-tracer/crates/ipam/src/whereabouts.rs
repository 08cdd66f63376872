//! Whereabouts' allocations: `ippools` of the API server, each of a range that
//! mostly all nodes share. An allocation is known by its distance from the
//! range's address, and has the container's ID and the pod's name, but neither
//! a node nor a time.
//!
//! So all of them are listed: the one of a pod that is gone, which matters
//! most, cannot be told by the pods of this node. As its time each has the last
//! change of its pool, than which it cannot be younger.

use std::path::PathBuf;

use serde::Deserialize;

use super::{MAX_RESERVATIONS, first_of::FirstOf, label, network::Network, time};
use event::{
    PodRef, Reservation, ReservationHolder, Store, StoreKind, clock::Timestamp, order::Order as _,
};
use kube::{ListedPage, Resource};
use node::cni::{is_ifname, is_name};

/// What is asked for.
pub(super) const POOLS: Resource = Resource {
    path: "/apis/whereabouts.cni.cncf.io/v1alpha1/ippools",
    name: "ippools.whereabouts.cni.cncf.io",
    kind: "IPPoolList",
    hint: "Whereabouts is not installed in this cluster, or keeps its pools in etcd",
};
/// The store's path in records.
pub(super) const STORE: &str = "whereabouts.cni.cncf.io/v1alpha1/ippools";
/// Reasons that are kept.
const MAX_UNREAD: usize = 64;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Page {
    kind: Option<String>,
    metadata: super::ListMeta,
    items: Option<FirstOf<Pool>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pool {
    metadata: super::Named,
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    range: String,
    allocations: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Allocation {
    id: String,
    podref: Option<String>,
    ifname: Option<String>,
}

/// What the pages have brought so far.
#[derive(Debug)]
pub(super) struct Pools {
    now: Timestamp,
    reservations: Vec<Reservation>,
    unread: Vec<String>,
}

impl Pools {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            now,
            reservations: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Takes a page of the list; `None` if it is none.
    pub(super) fn take(&mut self, body: &[u8]) -> Option<ListedPage> {
        let page: Page = serde_json::from_slice(body).ok()?;
        if page.kind.as_deref() != Some(POOLS.kind) {
            return None;
        }
        let items = page.items?;
        if items.has_more {
            self.unread("a page of the list, which has too many");
        }
        for item in items.read {
            match item {
                Some(pool) => self.pool(pool),
                None => self.unread("a pool that is none"),
            }
        }
        Some(page.metadata.into())
    }

    fn pool(&mut self, pool: Pool) {
        let name = label(pool.metadata.name.as_bytes());
        let Some(network) = Network::parse(&pool.spec.range) else {
            return self.unread(&format!("pool {name}, whose range is none"));
        };
        let changed = pool.metadata.changed().unwrap_or(self.now).min(self.now);
        let mut strange = 0;
        for (offset, value) in pool.spec.allocations.unwrap_or_default() {
            if self.reservations.len() >= MAX_RESERVATIONS {
                return self.unread(&format!("more than {MAX_RESERVATIONS} allocations"));
            }
            let address = offset.parse().ok().and_then(|offset| network.at(offset));
            let allocation = serde_json::from_value::<Allocation>(value).ok();
            let allocation = allocation.filter(|each| is_name(&each.id));
            let (Some(address), Some(allocation)) = (address, allocation) else {
                strange += 1;
                continue;
            };
            self.reservations.push(Reservation {
                address,
                holder: ReservationHolder {
                    path: PathBuf::from(STORE).join(&name),
                    container_id: allocation.id,
                    ifname: allocation.ifname.filter(|name| is_ifname(name)),
                    pod: allocation.podref.as_deref().and_then(pod),
                },
                modified: changed,
            });
        }
        if strange > 0 {
            self.unread(&format!("{strange} allocations of pool {name}"));
        }
    }

    fn unread(&mut self, what: &str) {
        if self.unread.len() < MAX_UNREAD {
            self.unread.push(format!("{}: {what}", POOLS.name));
        }
    }

    /// All of it. What was there before has not been made since.
    pub(super) fn store(mut self, before: Option<&Store>) -> Store {
        self.reservations.order_by(|a, b| {
            let key = |each: &Reservation| (each.address, each.holder.container_id.clone());
            key(a).cmp(&key(b))
        });
        if let Some(before) = before {
            super::keep_times(&mut self.reservations, &before.reservations);
        }
        Store {
            path: PathBuf::from(STORE),
            kind: StoreKind::Whereabouts,
            reservations: self.reservations,
            unread: self.unread,
            ..Store::default()
        }
    }
}

/// `namespace/name`
fn pod(text: &str) -> Option<PodRef> {
    let (namespace, name) = text.split_once('/')?;
    let fits = |text: &str| (1..=253).contains(&text.len());
    (fits(namespace) && fits(name)).then(|| PodRef {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: None,
    })
}

impl super::Named {
    /// The last change that the API server has noted.
    pub(super) fn changed(&self) -> Option<Timestamp> {
        let times = self.fields.iter().flatten();
        times
            .filter_map(|each| time::parse(each.time.as_deref()?))
            .max()
    }
}

#[cfg(test)]
mod tests;
