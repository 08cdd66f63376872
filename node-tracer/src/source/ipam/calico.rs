//! Calico's allocations: `ipamblocks` of the API server. A block is a range of
//! 64 addresses that is mostly one node's; what of it is given out, and to
//! whom, is in the block (libcalico-go/lib/backend/model/block.go).
//!
//! A container's allocation has the handle `<network>.<container ID>`. Others
//! are of tunnels and services: they take an address and are no container's.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{MAX_RESERVATIONS, label, network::Network, time};
use crate::{
    clock::Timestamp,
    event::{PodRef, Reservation, ReservationHolder, Store, StoreKind},
    source::{
        cni::is_name,
        kube::{ListedPage, Resource},
        root::{Found, Root},
    },
};

/// What is asked for.
pub(super) const BLOCKS: Resource = Resource {
    path: "/apis/crd.projectcalico.org/v1/ipamblocks",
    name: "ipamblocks.crd.projectcalico.org",
    kind: "IPAMBlockList",
    hint: "Calico keeps its blocks in etcd, or is not installed in this cluster",
};
/// The store's path in records.
pub(super) const STORE: &str = "crd.projectcalico.org/v1/ipamblocks";
/// Where Calico keeps the name that it has for the node.
const NODENAME: &str = "/var/lib/calico/nodename";
/// Reasons that are kept.
const MAX_UNREAD: usize = 64;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Page {
    kind: Option<String>,
    metadata: super::ListMeta,
    items: Option<Vec<serde_json::Value>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Block {
    metadata: super::Named,
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    cidr: String,
    affinity: Option<String>,
    deleted: Option<bool>,
    allocations: Option<Vec<Option<u32>>>,
    attributes: Option<Vec<Attribute>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Attribute {
    handle_id: Option<String>,
    secondary: Option<BTreeMap<String, String>>,
    /// It was given back, and waits for its time before it is given out again.
    #[serde(rename = "releasedAt")]
    released: Option<serde_json::Value>,
}

/// What the pages have brought so far.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    nodes: BTreeSet<String>,
    now: Option<Timestamp>,
    reservations: Vec<Reservation>,
    blocked: Vec<IpAddr>,
    unread: Vec<String>,
}

/// The names that the node may have there: Kubernetes', and Calico's own if
/// that is another.
pub(super) fn nodes(root: &Root, node: &str) -> BTreeSet<String> {
    let mut nodes = BTreeSet::from([node.to_owned(), node.to_lowercase()]);
    if let Ok(Found::File(content)) = root.read(Path::new(NODENAME), 4 << 10)
        && let Ok(name) = std::str::from_utf8(&content.bytes)
        && is_name(name.trim())
    {
        nodes.insert(name.trim().to_owned());
    }
    nodes
}

impl Blocks {
    /// None yet, of nodes of these names.
    pub(super) fn new(nodes: BTreeSet<String>, now: Timestamp) -> Self {
        Self {
            nodes,
            now: Some(now),
            ..Self::default()
        }
    }

    /// Takes a page of the list; `None` if it is none.
    pub(super) fn take(&mut self, body: &[u8]) -> Option<ListedPage> {
        let page: Page = serde_json::from_slice(body).ok()?;
        if page.kind.as_deref() != Some(BLOCKS.kind) {
            return None;
        }
        for item in page.items? {
            match serde_json::from_value::<Block>(item) {
                Ok(block) => self.block(&block),
                Err(_) => self.unread("a block that is none"),
            }
        }
        Some(page.metadata.into())
    }

    fn block(&mut self, block: &Block) {
        let Spec {
            cidr,
            affinity,
            deleted,
            allocations,
            attributes,
        } = &block.spec;
        if *deleted == Some(true) {
            return;
        }
        let name = label(block.metadata.name.as_bytes());
        let Some(network) = Network::parse(cidr) else {
            return self.unread(&format!("block {name}, whose network is none"));
        };
        let host = affinity
            .as_deref()
            .and_then(|text| text.strip_prefix("host:"));
        let is_ours = |node: Option<&str>| node.is_some_and(|node| self.nodes.contains(node));
        let (mut found, mut blocked, mut strange) = (Vec::new(), Vec::new(), false);
        for (ordinal, attribute) in allocations.iter().flatten().enumerate() {
            let Some(attribute) = attribute else {
                continue;
            };
            let attributes = attributes.as_deref().unwrap_or_default();
            let attribute = attributes.get(*attribute as usize);
            let secondary = |key| attribute?.secondary.as_ref()?.get(key).map(String::as_str);
            if !is_ours(secondary("node").or(host)) {
                continue;
            }
            let Some(address) = network.at(ordinal as u128) else {
                strange = true;
                continue;
            };
            if attribute.is_some_and(|it| it.released.as_ref().is_some_and(|at| !at.is_null())) {
                continue;
            }
            let handle = attribute.and_then(|it| it.handle_id.as_deref());
            match handle.and_then(|handle| container(handle, secondary("pod").is_some())) {
                Some(container_id) => found.push(Reservation {
                    address,
                    holder: ReservationHolder {
                        path: PathBuf::from(STORE).join(&name),
                        container_id: container_id.to_owned(),
                        ifname: None,
                        pod: pod(secondary("namespace"), secondary("pod")),
                    },
                    modified: self.made(secondary("timestamp")),
                }),
                None => blocked.push(address),
            }
        }
        self.reservations.append(&mut found);
        self.blocked.append(&mut blocked);
        if strange {
            self.unread(&format!(
                "block {name}, which gives out more than its network has"
            ));
        }
    }

    /// When an allocation was made. One that does not say may be of just now.
    fn made(&self, text: Option<&str>) -> Timestamp {
        let made = text.and_then(time::parse);
        made.or(self.now).unwrap_or_else(Timestamp::now)
    }

    fn unread(&mut self, what: &str) {
        if self.unread.len() < MAX_UNREAD {
            self.unread.push(format!("{}: {what}", BLOCKS.name));
        }
    }

    /// All of it. What names no time is of the one when it was first listed.
    pub(super) fn store(mut self, before: Option<&Store>) -> Store {
        if self.reservations.len() > MAX_RESERVATIONS {
            self.reservations.truncate(MAX_RESERVATIONS);
            self.unread
                .push(format!("more than {MAX_RESERVATIONS} allocations"));
        }
        self.reservations.sort_by_key(|each| each.address);
        if let Some(before) = before {
            super::keep_times(&mut self.reservations, &before.reservations);
        }
        self.blocked.sort_unstable();
        self.blocked.truncate(MAX_RESERVATIONS);
        Store {
            path: PathBuf::from(STORE),
            kind: StoreKind::Calico,
            reservations: self.reservations,
            blocked: self.blocked,
            unread: self.unread,
            ..Store::default()
        }
    }
}

/// The container in a handle. Only a pod's allocation has one.
fn container(handle: &str, of_pod: bool) -> Option<&str> {
    let (_, id) = handle.rsplit_once('.')?;
    (of_pod && is_name(id)).then_some(id)
}

fn pod(namespace: Option<&str>, name: Option<&str>) -> Option<PodRef> {
    let brief = |text: &str| (1..=253).contains(&text.len()).then(|| text.to_owned());
    Some(PodRef {
        namespace: namespace.and_then(brief),
        name: Some(name.and_then(brief)?),
        uid: None,
    })
}

#[cfg(test)]
mod tests;
