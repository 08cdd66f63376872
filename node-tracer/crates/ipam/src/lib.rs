//! The stores of other IPAM plugins than host-local, read-only: Terway's
//! database, the checkpoints of AWS's daemon, Cilium's queue of deletions, and
//! what Calico and Whereabouts keep in the API.
//!
//! Nothing is locked and nothing is held: a file is copied into memory, and
//! what cannot be read, or is not of a known version, leaves the answer unknown,
//! never "free". Which stores there are is told by their files and by the CNI
//! configuration; those in the API are asked for only where it names them.
//!
//! Paths are given as the host has them, whatever the root.

#![forbid(unsafe_code)]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use event::{
    Event, Network, Reservation, Store, StoreKind, What, clock::Timestamp, fault,
    record::CoverageItem, wording::plural::counted,
};
use kube::{Credentials, ListedPage};
use node::root::{Root, Unread};

mod aws;
mod bbolt;
mod calico;
mod changes;
mod cilium;
mod first_of;
mod network;
mod stamp;
mod terway;
#[cfg(test)]
mod tests;
mod time;
mod watcher;
mod whereabouts;

pub use self::watcher::{Api, Watcher};

pub const FILES: [StoreKind; 3] = [StoreKind::Terway, StoreKind::Aws, StoreKind::Cilium];
pub const IN_API: [StoreKind; 2] = [StoreKind::Calico, StoreKind::Whereabouts];

/// Reservations at most, of one store.
const MAX_RESERVATIONS: usize = 65_536;
/// Reasons that are told of one store in the coverage.
const NAMED: usize = 4;

/// What was found of one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReading {
    pub kind: StoreKind,
    /// The file, or the API's resource.
    pub path: PathBuf,
    /// What is in it; or why nothing of that is known.
    pub store: Result<Store, String>,
}

impl StoreReading {
    fn new(kind: StoreKind, path: &Path, store: Result<Store, String>) -> Self {
        let path = path.to_owned();
        Self { kind, path, store }
    }

    /// Nothing is known of a kind's store, and why.
    pub fn failed(kind: StoreKind, why: String) -> Self {
        Self::new(kind, Path::new(place(kind)), Err(why))
    }
}

fn place(kind: StoreKind) -> &'static str {
    match kind {
        StoreKind::HostLocal => node::cni::DEFAULT_DATA_DIR,
        StoreKind::Terway => terway::FILE,
        StoreKind::Aws => aws::FILE,
        StoreKind::Calico => calico::STORE,
        StoreKind::Whereabouts => whereabouts::STORE,
        StoreKind::Cilium => cilium::FOLDER,
    }
}

/// Kinds that the configuration names, each with a network that does.
pub fn expected(networks: &[Network]) -> BTreeMap<StoreKind, String> {
    let kinds = FILES.into_iter().chain(IN_API);
    let named = |kind: StoreKind| {
        let network = networks.iter().find(|network| kind.serves(network))?;
        Some((kind, network.name.clone()))
    };
    kinds.filter_map(named).collect()
}

/// The stores of a kind whose stores are files. `by` is the network that says
/// that there is one.
pub fn files(root: &Root, kind: StoreKind, by: Option<&str>) -> Vec<StoreReading> {
    let one = |read: Result<Option<Store>, Unread>| {
        let read = read.map_err(|error| fault::chain(&error)).transpose();
        let answer = read.map(|store| StoreReading::new(kind, Path::new(place(kind)), store));
        answer.into_iter().collect()
    };
    let answers: Vec<StoreReading> = match kind {
        StoreKind::Terway => one(terway::read(root)),
        StoreKind::Cilium => one(cilium::read(root)),
        StoreKind::Aws => aws::read(root),
        StoreKind::HostLocal | StoreKind::Calico | StoreKind::Whereabouts => Vec::new(),
    };
    match by {
        Some(network) if answers.is_empty() => vec![absent(kind, network)],
        _ => answers,
    }
}

/// There is no store, although there should be one.
fn absent(kind: StoreKind, network: &str) -> StoreReading {
    let place = place(kind);
    if kind == StoreKind::Cilium {
        // It is made only when it is needed.
        let store = Store {
            path: PathBuf::from(place),
            kind,
            unread: vec![cilium::IN_MEMORY.to_owned()],
            ..Store::default()
        };
        return StoreReading::new(kind, Path::new(place), Ok(store));
    }
    let hint = match kind {
        StoreKind::Aws => " (AWS_VPC_K8S_CNI_BACKING_STORE of aws-node may name another file)",
        _ => "",
    };
    let why = format!("there is no {place}, although network {network} needs it{hint}");
    StoreReading::failed(kind, why)
}

/// What is asked of the API server, as roles name it.
pub fn resources() -> impl Iterator<Item = &'static str> {
    [
        calico::BLOCKS.name,
        calico::NATIVE.name,
        whereabouts::POOLS.name,
    ]
    .into_iter()
}

/// Those of them of which a node gets its own objects by their names.
pub fn resources_by_name() -> impl Iterator<Item = &'static str> {
    [calico::BLOCKS.name, calico::NATIVE.name].into_iter()
}

/// Addresses on this node that a store may have given out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Whether these are given out decides something now.
    pub urgent: BTreeSet<IpAddr>,
    /// Those of living pods.
    pub living: BTreeSet<IpAddr>,
}

/// Asks the API server for a store that is there, within a time: of Calico's blocks
/// for those of the node and of the pods' addresses, and for all of them only where no
/// route names the node's.
pub fn ask(
    kind: StoreKind,
    credentials: &Credentials,
    root: &Root,
    node: &str,
    timeout: Duration,
    pods: BTreeSet<IpAddr>,
) -> StoreReading {
    let own = Own {
        urgent: pods,
        living: BTreeSet::new(),
    };
    let known = calico::PriorKnowledge {
        own: calico::has_routes().then_some(&own),
        ..calico::PriorKnowledge::default()
    };
    ask_again(kind, credentials, root, node, timeout, known).0
}

/// The same, of what matters to whom it was told before. Returns the size of what
/// was answered, too.
fn ask_again(
    kind: StoreKind,
    credentials: &Credentials,
    root: &Root,
    node: &str,
    timeout: Duration,
    known: calico::PriorKnowledge<'_>,
) -> (StoreReading, usize) {
    // What is answered may be of any moment since.
    let now = sys::clock::now();
    let listed = match kind {
        StoreKind::Calico => {
            let nodes: BTreeSet<String> = calico::nodes(root, &credentials.node(node));
            calico::ask(credentials, &nodes, timeout, known)
        }
        StoreKind::Whereabouts => {
            let begin = move || whereabouts::Pools::new(now);
            let take = whereabouts::Pools::take;
            kube::list_resource_blocking(credentials, whereabouts::POOLS, timeout, begin, take)
                .map(|(pools, size)| (pools.store(known.before), size))
        }
        StoreKind::HostLocal | StoreKind::Terway | StoreKind::Aws | StoreKind::Cilium => {
            let why = String::from("it is not in the API");
            return (StoreReading::failed(kind, why), 0);
        }
    };
    match listed {
        Ok((store, size)) => {
            let path = store.path.clone();
            (StoreReading::new(kind, &path, Ok(store)), size)
        }
        Err(error) => (StoreReading::failed(kind, fault::chain(&error)), 0),
    }
}

/// Where the stores of a kind can be, the likeliest first.
fn places(kind: StoreKind) -> impl Iterator<Item = &'static Path> {
    let other = (kind == StoreKind::Calico).then_some(calico::NATIVE_STORE);
    std::iter::once(place(kind)).chain(other).map(Path::new)
}

/// Answers as events, of a time at which nothing was asked yet.
pub fn events(answers: &[StoreReading], time: Timestamp) -> Vec<Event> {
    let told = changes::Last::default().changes(answers);
    Event::all_of(time, told)
}

/// Answers as coverage: one item a kind.
pub fn coverage(answers: &[StoreReading]) -> Vec<CoverageItem> {
    let kinds: BTreeSet<StoreKind> = answers.iter().map(|answer| answer.kind).collect();
    let item = |kind| {
        let own = answers.iter().filter(move |answer| answer.kind == kind);
        let read: Vec<&Store> = own
            .clone()
            .filter_map(|it| it.store.as_ref().ok())
            .collect();
        let failed: Vec<&str> = own
            .filter_map(|it| it.store.as_ref().err().map(String::as_str))
            .collect();
        let reservations = read.iter().map(|store| store.reservations.len()).sum();
        let mechanism = match (kind, read.as_slice()) {
            (_, []) => None,
            (StoreKind::Cilium, _) => Some(format!("the queue of deletions, {}", place(kind))),
            (_, [store]) => Some(format!(
                "{} in {}",
                counted(reservations, "reservation"),
                store.path.display()
            )),
            (_, stores) => Some(format!(
                "{} in {}",
                counted(reservations, "reservation"),
                counted(stores.len(), "store")
            )),
        };
        let unread: Vec<String> = read.iter().flat_map(|it| it.unread.clone()).collect();
        let mut unknown: Vec<String> = unread.iter().take(NAMED).cloned().collect();
        if unread.len() > NAMED {
            unknown.push(format!("{} more like these", unread.len() - NAMED));
        }
        if !failed.is_empty() {
            unknown.push(format!("which addresses {} has given out", kind.as_str()));
        }
        CoverageItem {
            signal: kind.as_str().to_owned(),
            mechanism,
            reason: (!failed.is_empty()).then(|| failed.join("; ")),
            unknown,
        }
    };
    kinds.into_iter().map(item).collect()
}

/// The kind of a source by its name in records.
pub fn kind_of(source: &str) -> Option<StoreKind> {
    let mut kinds = FILES.into_iter().chain(IN_API);
    kinds.find(|kind| kind.as_str() == source)
}

/// A name out of a store, fit for a message.
fn label(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let short = text.chars().take(128).flat_map(char::escape_default);
    short.collect()
}

/// `metadata` of a list in the API.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListMeta {
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl From<ListMeta> for ListedPage {
    fn from(meta: ListMeta) -> Self {
        Self { next: meta.next }
    }
}

/// `metadata` of an object in the API.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
    #[serde(rename = "managedFields")]
    fields: Option<Vec<Changed>>,
}

/// Who has changed an object, and when.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Changed {
    time: Option<String>,
}

/// A store of which nothing is known was never told of: it is told as one that
/// cannot be read.
fn unread_store(kind: StoreKind, path: &Path, why: &str) -> What {
    let store = Store {
        path: path.to_owned(),
        kind,
        unread: vec![why.to_owned()],
        ..Store::default()
    };
    What::StoreListed { store }
}

/// Gives what was listed before, and says nothing of its age itself, the time
/// at which it was first listed. Both are sorted by address.
fn keep_times(now: &mut [Reservation], before: &[Reservation]) {
    let mut before = before.iter().peekable();
    for each in now {
        while before.next_if(|old| old.address < each.address).is_some() {}
        let mut same = before.clone().take_while(|old| old.address == each.address);
        if let Some(old) = same.find(|old| old.holder.container_id == each.holder.container_id) {
            each.modified = each.modified.min(old.modified);
        }
    }
}

#[cfg(feature = "testing")]
pub fn fuzz_terway(data: &[u8]) {
    terway::fuzz(data);
}

#[cfg(feature = "testing")]
pub fn fuzz_documents(data: &[u8]) {
    aws::fuzz(data);
    let now = sys::clock::now();
    let mut blocks = calico::Blocks::new(["node".to_owned()].into(), now);
    if blocks.take(data).is_some() {
        blocks.store(None);
    }
    let mut pools = whereabouts::Pools::new(now);
    if pools.take(data).is_some() {
        pools.store(None);
    }
}
