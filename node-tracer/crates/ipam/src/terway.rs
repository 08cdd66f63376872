//! Terway's store: `ResRelation.db`, a bbolt database whose bucket `relation`
//! has a JSON document for each pod, by `namespace/name`.
//!
//! The daemon holds an exclusive lock on the file for as long as it runs, so
//! nothing here waits for one. What is read is a copy, and it is taken again if
//! the daemon has finished a transaction meanwhile.

use std::{collections::BTreeSet, net::IpAddr, path::Path, thread, time::Duration};

use serde::{Deserialize, Deserializer};

use super::{MAX_RESERVATIONS, bbolt::Db, label, time};
use event::{
    PodRef, Reservation, ReservationHolder, Store, StoreKind, clock::Timestamp, order::Order as _,
};
use node::{
    cni::is_name,
    root::{Content, Found, Root, Unread, UnreadList},
};

pub(super) const FILE: &str = "/var/lib/cni/terway/ResRelation.db";

/// Largest database that is read; a node's has less than 1 MiB.
const MAX_FILE: usize = 64 << 20;
/// Largest document of a pod.
const MAX_DOCUMENT: usize = 256 << 10;
const BUCKET: &[u8] = b"relation";
/// How often a copy is taken while the daemon writes, and the pause after each.
const TRIES: usize = 4;
const PAUSE: Duration = Duration::from_millis(5);

/// A pod and what it was given, as the daemon writes it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PodResources {
    /// `null` is none; a document without it is of something else.
    #[serde(rename = "Resources", deserialize_with = "present")]
    resources: Option<Vec<Item>>,
    #[serde(rename = "PodInfo")]
    pod: Option<PodInfo>,
    #[serde(rename = "ContainerID")]
    container_id: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
    id: Option<String>,
    ipv4: Option<String>,
    ipv6: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct PodInfo {
    name: Option<String>,
    namespace: Option<String>,
    #[serde(rename = "PodUID")]
    uid: Option<String>,
    create_time: Option<String>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Item>>, D::Error> {
    let items = Option::<Vec<Item>>::deserialize(deserializer)?;
    Ok(Some(items.unwrap_or_default()))
}

/// Reads the store; `None` if there is none.
///
/// # Errors
/// It is there, and nothing in it can be known.
pub(super) fn read(root: &Root) -> Result<Option<Store>, Unread> {
    let path = Path::new(FILE);
    let mut copy = || match root.read(path, MAX_FILE) {
        Ok(Found::File(content)) => Ok(Some(content)),
        Ok(Found::Missing) => Ok(None),
        Ok(Found::Folder) => Err(Unread::content(path, "is a folder and no database")),
        Err(error) => Err(Unread::read(path, error)),
    };
    let Some(content) = settled(path, &mut copy)? else {
        return Ok(None);
    };
    let db = Db::open(&content.bytes).map_err(|error| Unread::content(path, error.to_string()))?;
    store(path, &db, content.modified).map(Some)
}

/// A copy of which the daemon has changed nothing while it was made.
fn settled(
    path: &Path,
    copy: &mut impl FnMut() -> Result<Option<Content>, Unread>,
) -> Result<Option<Content>, Unread> {
    let last = |content: &Content| Db::open(&content.bytes).map(|db| db.transaction());
    let Some(mut content) = copy()? else {
        return Ok(None);
    };
    for _ in 0..TRIES {
        let Some(again) = copy()? else {
            return Ok(None);
        };
        match (last(&content), last(&again)) {
            (Ok(before), Ok(after)) if before == after => return Ok(Some(content)),
            // The same bytes will not become a database by waiting.
            (Err(error), Err(_)) if content.bytes == again.bytes => {
                return Err(Unread::content(path, error.to_string()));
            }
            _ => content = again,
        }
        thread::sleep(PAUSE);
    }
    let what = "is written all the time: no copy of it is of one moment";
    Err(Unread::content(path, what))
}

/// What the daemon has given out.
fn store(path: &Path, db: &Db<'_>, modified: Timestamp) -> Result<Store, Unread> {
    let damaged = |error: super::bbolt::BoltError| Unread::content(path, error.to_string());
    let bucket = db.bucket(BUCKET).map_err(damaged)?.ok_or_else(|| {
        let what = "has no bucket relation: it is of an unknown version of Terway";
        Unread::content(path, what)
    })?;
    let mut unread = UnreadList::default();
    let mut reservations = Vec::new();
    let walked = db.each(bucket, |key, value| {
        match document(key, value) {
            Some(document) => reservations.extend(document.reservations(path, modified)),
            None => {
                let what = format!("has an entry {} that is none of a pod's", label(key));
                unread.push(Unread::content(path, what));
            }
        }
        reservations.len() < MAX_RESERVATIONS
    });
    if let Err(error) = walked {
        unread.push(damaged(error));
    }
    if reservations.len() >= MAX_RESERVATIONS {
        let what = format!("has more than {MAX_RESERVATIONS} addresses; the rest was not read");
        unread.push(Unread::content(path, what));
    }
    reservations.order_by(|a, b| {
        let key = |each: &Reservation| (each.address, each.holder.container_id.clone());
        key(a).cmp(&key(b))
    });
    Ok(Store {
        path: path.to_owned(),
        kind: StoreKind::Terway,
        reservations,
        unread: unread.texts(),
        ..Store::default()
    })
}

/// A document that was understood, all of it.
struct Document {
    addresses: Vec<IpAddr>,
    container_id: String,
    pod: PodRef,
    created: Option<Timestamp>,
}

fn document(key: &[u8], value: &[u8]) -> Option<Document> {
    if value.len() > MAX_DOCUMENT {
        return None;
    }
    let parsed: PodResources = serde_json::from_slice(value).ok()?;
    let mut seen = BTreeSet::new();
    let mut addresses = Vec::new();
    for item in parsed.resources? {
        let own = item.addresses()?.into_iter();
        addresses.extend(own.filter(|address| seen.insert(*address)));
    }
    let container_id = parsed.container_id.unwrap_or_default();
    if !container_id.is_empty() && !is_name(&container_id) {
        return None;
    }
    let named = std::str::from_utf8(key).ok()?.split_once('/');
    let info = parsed.pod.unwrap_or_default();
    let brief = |text: Option<String>| {
        let text = text.filter(|text| !text.is_empty() && text.len() <= 253);
        text.filter(|text| !text.chars().any(char::is_control))
    };
    let (namespace, name) = named.unzip();
    let pod = PodRef {
        namespace: brief(info.namespace).or_else(|| brief(namespace.map(str::to_owned))),
        name: brief(info.name).or_else(|| brief(name.map(str::to_owned))),
        uid: brief(info.uid),
    };
    Some(Document {
        addresses,
        container_id,
        pod,
        created: info.create_time.as_deref().and_then(time::parse),
    })
}

impl Document {
    fn reservations(self, path: &Path, modified: Timestamp) -> impl Iterator<Item = Reservation> {
        let holder = ReservationHolder {
            path: path.to_owned(),
            container_id: self.container_id,
            ifname: None,
            pod: Some(self.pod),
        };
        let modified = self
            .created
            .map_or(modified, |created| created.min(modified));
        self.addresses.into_iter().map(move |address| Reservation {
            address,
            holder: holder.clone(),
            modified,
        })
    }
}

impl Item {
    /// Its addresses; `None` if it has something else in their place.
    fn addresses(&self) -> Option<Vec<IpAddr>> {
        let texts = [&self.ipv4, &self.ipv6].into_iter().flatten();
        let texts: Vec<&str> = texts
            .map(String::as_str)
            .filter(|text| !text.is_empty())
            .collect();
        if texts.is_empty() && self.kind.as_deref() == Some("eniIp") {
            // Before Terway wrote addresses of their own: `MAC.address`.
            let id = self.id.as_deref()?;
            let (_, address) = id.split_once('.')?;
            return Some(vec![address.parse::<IpAddr>().ok()?.to_canonical()]);
        }
        texts.into_iter().map(address).collect()
    }
}

/// An address, or one with a prefix length.
fn address(text: &str) -> Option<IpAddr> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    match prefix.map(str::parse::<u8>) {
        None => Some(address.to_canonical()),
        Some(Ok(length)) if length <= most => Some(address.to_canonical()),
        Some(_) => None,
    }
}

#[cfg(feature = "testing")]
pub(super) fn fuzz(data: &[u8]) {
    if let Ok(db) = Db::open(&super::bbolt::with_sums(data.to_vec())) {
        let _ = store(
            Path::new("/var/lib/cni/terway/ResRelation.db"),
            &db,
            sys::clock::now(),
        );
    }
}

#[cfg(test)]
mod tests;
