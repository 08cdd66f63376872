//! AWS VPC CNI's stores: the checkpoints of its daemon ipamd, one for each
//! network card. They are replaced whole (written beside and renamed), so that
//! one read is of one moment.

use std::{net::IpAddr, path::Path};

use serde::Deserialize;

use super::{MAX_RESERVATIONS, StoreReading, first_of::FirstOf, label, time};
use event::{
    PodRef, Reservation, ReservationHolder, Store, StoreKind, clock::Timestamp, fault,
    order::Order as _,
};
use node::{
    cni::{is_ifname, is_name},
    root::{Content, Found, Root, Unread, UnreadList},
};

pub(super) const FOLDER: &str = "/var/run/aws-node";
/// The first card's file.
pub(super) const FILE: &str = "/var/run/aws-node/ipam.json";
/// The version that is understood.
const VERSION: &str = "vpc-cni-ipam/1";
/// Largest file that is read; a node's has less than 1 MiB.
const MAX_FILE: usize = 32 << 20;
/// Cards; instances have up to 16.
const MAX_CARDS: usize = 64;
/// Entries of the folder that are looked at.
const MAX_ENTRIES: usize = 4_096;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Checkpoint {
    version: Option<String>,
    allocations: Option<FirstOf<Allocation>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Allocation {
    #[serde(rename = "containerID")]
    container_id: String,
    if_name: Option<String>,
    ipv4: Option<String>,
    ipv6: Option<String>,
    allocation_timestamp: Option<i64>,
    metadata: Option<Metadata>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    #[serde(rename = "k8sPodNamespace")]
    namespace: Option<String>,
    #[serde(rename = "k8sPodName")]
    name: Option<String>,
}

pub(super) fn read(root: &Root) -> Vec<StoreReading> {
    let folder = Path::new(FOLDER);
    let answer = |path: &Path, store| StoreReading::new(StoreKind::Aws, path, store);
    let failed = |path: &Path, error: Unread| answer(path, Err(fault::chain(&error)));
    let opened = match root.folder(folder) {
        Ok(Some(opened)) => opened,
        Ok(None) => return Vec::new(),
        Err(error) => return vec![failed(Path::new(FILE), Unread::read(folder, error))],
    };
    let listing = match opened.list(MAX_ENTRIES) {
        Ok(listing) => listing,
        Err(error) => return vec![failed(Path::new(FILE), Unread::read(folder, error))],
    };
    let cards = listing
        .entries
        .iter()
        .filter(|entry| entry.text().is_some_and(is_card));
    let read = cards.take(MAX_CARDS).filter_map(|entry| {
        let path = folder.join(&entry.name);
        match opened.read(entry, MAX_FILE) {
            Ok(Found::File(content)) => Some(match store(&path, &content) {
                Ok(store) => answer(&path, Ok(store)),
                Err(error) => failed(&path, error),
            }),
            Ok(Found::Missing) => None,
            Ok(Found::Folder) => Some(failed(&path, Unread::content(&path, "is a folder"))),
            Err(error) => Some(failed(&path, Unread::read(&path, error))),
        }
    });
    read.collect()
}

/// `ipam.json`, `ipam-nic-1.json`, ...
pub(super) fn is_card(name: &str) -> bool {
    let number = name.strip_prefix("ipam-nic-");
    let number = number.and_then(|rest| rest.strip_suffix(".json"));
    let is_number =
        |text: &str| (1..=3).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
    name == "ipam.json" || number.is_some_and(is_number)
}

fn store(path: &Path, content: &Content) -> Result<Store, Unread> {
    let checkpoint: Checkpoint = serde_json::from_slice(&content.bytes)
        .map_err(|_| Unread::content(path, "is no checkpoint of ipamd"))?;
    match checkpoint.version.as_deref() {
        Some(VERSION) => {}
        Some(other) => {
            let version = label(other.as_bytes());
            let what = format!("is of an unknown version {version}; {VERSION} is understood");
            return Err(Unread::content(path, what));
        }
        None => return Err(Unread::content(path, "is no checkpoint of ipamd")),
    }
    let allocations = checkpoint.allocations.unwrap_or_default();
    let mut unread = UnreadList::default();
    if allocations.has_more {
        let what = format!("has more than {MAX_RESERVATIONS} allocations; the rest was not read");
        unread.push(Unread::content(path, what));
    }
    let mut reservations = Vec::new();
    for (place, found) in allocations.read.into_iter().enumerate() {
        match found.and_then(|found| reservations_of(found, path, content.modified)) {
            Some(found) => reservations.extend(found),
            None => {
                let what = format!("has an allocation (number {place}) that is none");
                unread.push(Unread::content(path, what));
            }
        }
    }
    reservations.order_by_key(|each| each.address);
    Ok(Store {
        path: path.to_owned(),
        kind: StoreKind::Aws,
        reservations,
        unread: unread.texts(),
        ..Store::default()
    })
}

fn reservations_of(
    found: Allocation,
    path: &Path,
    modified: Timestamp,
) -> Option<Vec<Reservation>> {
    if !is_name(&found.container_id) || found.container_id.is_empty() {
        return None;
    }
    let texts = [found.ipv4, found.ipv6].into_iter().flatten();
    let addresses: Option<Vec<IpAddr>> = texts
        .filter(|text| !text.is_empty())
        .map(|text| Some(text.parse::<IpAddr>().ok()?.to_canonical()))
        .collect();
    let addresses = addresses.filter(|addresses| !addresses.is_empty())?;
    let pod = found.metadata.and_then(|metadata| {
        let brief = |text: Option<String>| text.filter(|text| (1..=253).contains(&text.len()));
        Some(PodRef {
            namespace: brief(metadata.namespace),
            name: Some(brief(metadata.name)?),
            uid: None,
        })
    });
    let holder = ReservationHolder {
        path: path.to_owned(),
        container_id: found.container_id,
        ifname: found.if_name.filter(|name| is_ifname(name)),
        pod,
    };
    let made = found.allocation_timestamp.and_then(time::unix_nanos);
    let one = |address| Reservation {
        address,
        holder: holder.clone(),
        modified: made.unwrap_or(modified),
    };
    Some(addresses.into_iter().map(one).collect())
}

#[cfg(feature = "testing")]
pub(super) fn fuzz(data: &[u8]) {
    let content = Content {
        bytes: data.to_vec(),
        modified: sys::clock::now(),
    };
    let _ = store(Path::new("/var/run/aws-node/ipam.json"), &content);
}

#[cfg(test)]
mod tests;
