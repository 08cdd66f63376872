//! Calico's allocations: `ipamblocks` of the API server. A block is a range of
//! 64 addresses that is mostly one node's; what of it is given out, and to
//! whom, is in the block (libcalico-go/lib/backend/model/block.go).
//!
//! A container's allocation has the handle `<network>.<container ID>`. Others
//! are of tunnels and services: they take an address and are no container's.
//! That of a KubeVirt machine, `<network>.vmi.<namespace>.<name>`, stays while
//! the machine is stopped, and is of two pods on two nodes while it migrates
//! (`alternate`): it names no container, so it is nobody's leak.
//!
//! Calico 3.32 can keep its blocks under `projectcalico.org/v3`. What is left
//! under `crd.projectcalico.org/v1` after a migration is no truth: where the
//! server has the newer resource and anything is in it, only that is believed.
//! An older server, or an aggregated one, does not have it.

mod own_blocks;

pub(super) use self::own_blocks::has_routes;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::Deserialize;

use super::{MAX_RESERVATIONS, Own, first_of::FirstOf, label, network::Network, time};
use event::{
    PodRef, Reservation, ReservationHolder, Store, StoreKind, clock::Timestamp, fault,
    order::Order as _,
};
use kube::{
    Credentials, ListedPage, Resource, ResourceError, get_resources_blocking,
    list_resource_blocking,
};
use node::{
    cni::is_name,
    root::{Found, Root},
};

/// What is asked for.
pub(super) const BLOCKS: Resource = Resource {
    path: "/apis/crd.projectcalico.org/v1/ipamblocks",
    name: "ipamblocks.crd.projectcalico.org",
    kind: "IPAMBlockList",
    hint: "Calico keeps its blocks in etcd, or is not installed in this cluster",
};
/// The same since 3.32, where the cluster has been set up so.
pub(super) const NATIVE: Resource = Resource {
    path: "/apis/projectcalico.org/v3/ipamblocks",
    name: "ipamblocks.projectcalico.org",
    ..BLOCKS
};
/// What tells whether there is [`NATIVE`]. Every user may ask for it.
const GROUP: Resource = Resource {
    path: "/apis/projectcalico.org/v3",
    name: "projectcalico.org",
    kind: "APIResourceList",
    hint: "Calico keeps its data under crd.projectcalico.org",
};
/// `kind` of one.
const KIND: &str = "IPAMBlock";
/// The stores' paths in records.
pub(super) const STORE: &str = "crd.projectcalico.org/v1/ipamblocks";
pub(super) const NATIVE_STORE: &str = "projectcalico.org/v3/ipamblocks";
/// Where Calico keeps the name that it has for the node.
const NODENAME: &str = "/var/lib/calico/nodename";
/// Reasons that are kept.
const MAX_UNREAD: usize = 64;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Page {
    kind: Option<String>,
    metadata: super::ListMeta,
    items: Option<FirstOf<Block>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Block {
    kind: Option<String>,
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
    /// Of the pod that a machine migrates to.
    alternate: Option<BTreeMap<String, String>>,
    /// It was given back, and waits for its time before it is given out again.
    #[serde(rename = "releasedAt")]
    released: Option<serde_json::Value>,
}

/// What the pages have brought so far.
#[derive(Debug)]
pub(super) struct Blocks {
    store: &'static str,
    nodes: BTreeSet<String>,
    now: Timestamp,
    any: bool,
    /// Networks of those that were got by name.
    got: Vec<Network>,
    /// There are more than are kept.
    has_more: bool,
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
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn new(nodes: BTreeSet<String>, now: Timestamp) -> Self {
        Self::of(STORE, nodes, now)
    }

    fn of(store: &'static str, nodes: BTreeSet<String>, now: Timestamp) -> Self {
        Self {
            store,
            nodes,
            now,
            any: false,
            got: Vec::new(),
            has_more: false,
            reservations: Vec::new(),
            blocked: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Takes a page of the list; `None` if it is none.
    pub(super) fn take(&mut self, body: &[u8]) -> Option<ListedPage> {
        let page: Page = serde_json::from_slice(body).ok()?;
        if page.kind.as_deref() != Some(BLOCKS.kind) {
            return None;
        }
        let items = page.items?;
        if items.has_more {
            self.unread("a page of the list, which has too many");
        }
        for item in items.read {
            self.any = true;
            match item {
                Some(block) => self.block(&block),
                None => self.unread("a block that is none"),
            }
        }
        Some(page.metadata.into())
    }

    /// Takes one that was got by name; whether it is one.
    fn take_one(&mut self, body: &[u8]) -> bool {
        let block = serde_json::from_slice::<Block>(body).ok();
        let block = block.filter(|block| block.kind.as_deref() == Some(KIND));
        let Some(block) = block else {
            return false;
        };
        self.any = true;
        self.got.extend(Network::parse(&block.spec.cidr));
        self.block(&block);
        true
    }

    fn has_got(&self, address: IpAddr) -> bool {
        self.got.iter().any(|block| block.contains(address))
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
        // An allocation cannot be younger than its block's last change.
        let changed = block.metadata.changed().unwrap_or(self.now).min(self.now);
        let room = MAX_RESERVATIONS.saturating_sub(self.reservations.len());
        let (mut found, mut blocked, mut strange) = (Vec::new(), Vec::new(), false);
        for (ordinal, attribute) in allocations.iter().flatten().enumerate() {
            let Some(attribute) = attribute else {
                continue;
            };
            let attributes = attributes.as_deref().unwrap_or_default();
            let attribute = attributes.get(*attribute as usize);
            let secondary = |key| attribute?.secondary.as_ref()?.get(key).map(String::as_str);
            let alternate = |key| attribute?.alternate.as_ref()?.get(key).map(String::as_str);
            // A machine that is stopped has no node: its block's has the address.
            let named = secondary("node").or(alternate("node"));
            if !is_ours(named.or(host)) && !is_ours(alternate("node")) {
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
            let of_pod = secondary("pod").is_some();
            let container_id = match handle {
                Some(handle) if is_machines(handle) => Some(""),
                Some(handle) => container(handle, of_pod),
                None => None,
            };
            let Some(container_id) = container_id else {
                if self.blocked.len() + blocked.len() < MAX_RESERVATIONS {
                    blocked.push(address);
                }
                continue;
            };
            if found.len() >= room {
                self.has_more = true;
                break;
            }
            let made = secondary("timestamp").and_then(time::parse);
            found.push(Reservation {
                address,
                holder: ReservationHolder {
                    path: PathBuf::from(self.store).join(&name),
                    container_id: container_id.to_owned(),
                    ifname: None,
                    pod: pod(secondary("namespace"), secondary("pod")),
                },
                modified: made.unwrap_or(changed),
            });
        }
        self.reservations.append(&mut found);
        self.blocked.append(&mut blocked);
        if strange {
            self.unread(&format!(
                "block {name}, which gives out more than its network has"
            ));
        }
    }

    fn unread(&mut self, what: &str) {
        if self.unread.len() < MAX_UNREAD {
            self.unread.push(format!("{}: {what}", BLOCKS.name));
        }
    }

    /// All of it. What names no time is of the one when it was first listed, or
    /// when its block was last changed before.
    pub(super) fn store(mut self, before: Option<&Store>) -> Store {
        if self.has_more {
            self.unread
                .push(format!("more than {MAX_RESERVATIONS} allocations"));
        }
        self.reservations.order_by_key(|each| each.address);
        if let Some(before) = before {
            super::keep_times(&mut self.reservations, &before.reservations);
        }
        self.blocked.sort_unstable();
        Store {
            path: PathBuf::from(self.store),
            kind: StoreKind::Calico,
            reservations: self.reservations,
            blocked: self.blocked,
            unread: self.unread,
            ..Store::default()
        }
    }
}

/// Whether a handle is of a KubeVirt machine and not of a container, whose IDs
/// are longer than a machine's name can be.
fn is_machines(handle: &str) -> bool {
    let last = handle.rsplit('.').next().unwrap_or_default();
    let is_id = last.len() == 64 && last.bytes().all(|c| c.is_ascii_hexdigit());
    handle.contains(".vmi.") && !is_id
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

/// What is known before the API server is asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PriorKnowledge<'a> {
    /// The store as it was.
    pub(super) before: Option<&'a Store>,
    /// The addresses that matter. Without them all blocks are listed.
    pub(super) own: Option<&'a Own>,
    /// Where the blocks are was found out not long ago.
    pub(super) place: bool,
}

/// Asks the API server for the blocks, within a time. Returns the size of what
/// it has answered, too.
///
/// # Errors
/// They are not known; why, and what to do.
pub(super) fn ask(
    credentials: &Credentials,
    nodes: &BTreeSet<String>,
    timeout: Duration,
    known: PriorKnowledge<'_>,
) -> Result<(Store, usize), ResourceError> {
    let before = known.before;
    let mut question = Question {
        credentials,
        nodes,
        own: known.own,
        until: Instant::now() + timeout,
        now: sys::clock::now(),
        size: 0,
    };
    let was_native = before.is_some_and(|before| before.path == Path::new(NATIVE_STORE));
    let native = match before {
        Some(_) if was_native || known.place => Ok(was_native),
        _ => has_native(credentials, timeout),
    };
    if let Ok(true) = native {
        match question.blocks(NATIVE, NATIVE_STORE) {
            // The resource can be there before anything was migrated to it.
            Ok(blocks) if blocks.any || was_native => {
                return Ok((blocks.store(before), question.size));
            }
            // It was there, and the migration was taken back.
            Err(ResourceError::Missing { .. }) | Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
    let mut blocks = question.blocks(BLOCKS, STORE)?;
    if let Err(why) = native {
        blocks.unread.push(format!(
            "whether {} has the blocks instead: {}",
            NATIVE.name,
            fault::chain(&why)
        ));
    }
    Ok((blocks.store(before), question.size))
}

struct Question<'a> {
    credentials: &'a Credentials,
    nodes: &'a BTreeSet<String>,
    own: Option<&'a Own>,
    until: Instant,
    now: Timestamp,
    /// Of all answers.
    size: usize,
}

impl Question<'_> {
    /// The node's own blocks by name, or all of them where that does not show what
    /// matters.
    fn blocks(&mut self, resource: Resource, store: &'static str) -> Result<Blocks, ResourceError> {
        if let Some(own) = self.own {
            match self.by_name(resource, store, own) {
                Ok(Some(blocks)) => return Ok(blocks),
                // A role of before may allow lists alone.
                Ok(None) | Err(ResourceError::Forbidden { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let (nodes, now) = (self.nodes.clone(), self.now);
        let begin = move || Blocks::of(store, nodes.clone(), now);
        let left = self.left();
        let listed = list_resource_blocking(self.credentials, resource, left, begin, Blocks::take);
        listed.map(|(blocks, size)| {
            self.size += size;
            blocks
        })
    }

    /// `None` if they are not known by name, or lack an address of which it matters
    /// now whether it is given out.
    fn by_name(
        &mut self,
        resource: Resource,
        store: &'static str,
        own: &Own,
    ) -> Result<Option<Blocks>, ResourceError> {
        let Some(names) = own_blocks::of_node(own) else {
            return Ok(None);
        };
        let mut blocks = Blocks::of(store, self.nodes.clone(), self.now);
        if names.is_empty() {
            // A list of all would cost the server as much for each node that has no pods.
            blocks.unread("this node's blocks: no route and no pod's address names one");
            return Ok(Some(blocks));
        }
        let names = names.iter().map(own_blocks::name).collect();
        let bodies = get_resources_blocking(self.credentials, resource, names, self.left())?;
        for body in &bodies {
            self.size += body.len();
            if !blocks.take_one(body) {
                return Ok(None);
            }
        }
        if blocks.got.is_empty() || own.urgent.iter().any(|it| !blocks.has_got(*it)) {
            return Ok(None);
        }
        let mut others = own.living.iter().filter(|it| !blocks.has_got(**it));
        if let Some(first) = others.next() {
            let more = match others.count() {
                0 => String::new(),
                more => format!(" and {more} other addresses"),
            };
            blocks.unread(&format!("the block of {first}{more}"));
        }
        Ok(Some(blocks))
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// Whether the API server has [`NATIVE`].
fn has_native(credentials: &Credentials, timeout: Duration) -> Result<bool, ResourceError> {
    #[derive(Deserialize)]
    struct Group {
        resources: Vec<Named>,
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let take = |found: &mut bool, body: &[u8]| {
        let group: Group = serde_json::from_slice(body).ok()?;
        *found = group.resources.iter().any(|it| it.name == "ipamblocks");
        Some(ListedPage::default())
    };
    match list_resource_blocking(credentials, GROUP, timeout, || false, take) {
        Ok((found, _)) => Ok(found),
        Err(ResourceError::Missing { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
