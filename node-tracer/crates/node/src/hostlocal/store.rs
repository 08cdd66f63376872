//! One folder of reservations (plugins/ipam/host-local/backend/disk): what
//! each file in it is, by its name, and what it says.
//!
//! What keeps an address from being given out is that its name is there:
//! host-local makes the file with `O_EXCL`. So a name that is another spelling
//! of an address holds nothing, and whatever has the right one holds it, be it
//! a folder.

use std::{net::IpAddr, path::Path};

use rustix::fs::FileType;

use super::is_default;
use crate::{
    cni::{is_ifname, is_name},
    root::{Entry, Folder, Found, Listing, Unread, UnreadList},
};
use event::{Reservation, ReservationHolder, Store, clock::Timestamp};

/// Largest reservation that is read; real ones have 70 to 90 bytes.
pub(super) const MAX_FILE: usize = 4 << 10;

/// Foreign names that are told of one store.
pub(super) const MAX_FOREIGN: usize = 256;

/// What a name stands for.
enum Name {
    Address(IpAddr),
    /// What host-local gave out last of a range set.
    LastReserved(String),
    /// The file that host-local locks.
    Lock,
    Foreign,
}

impl Name {
    fn of(entry: &Entry) -> Self {
        let Some(name) = entry.text() else {
            return Self::Foreign;
        };
        if name == "lock" {
            return Self::Lock;
        }
        if let Some(set) = name.strip_prefix("last_reserved_ip.") {
            let number = (1..=10).contains(&set.len()) && set.bytes().all(|c| c.is_ascii_digit());
            return if number {
                Self::LastReserved(set.to_owned())
            } else {
                Self::Foreign
            };
        }
        match name.parse::<IpAddr>() {
            Ok(address) if file_name(address) == name => Self::Address(address),
            _ => Self::Foreign,
        }
    }
}

/// The name of an address's file: Go's `net.IP.String()`.
pub fn file_name(address: IpAddr) -> String {
    // Go prints an IPv4 address mapped into IPv6 as IPv4.
    address.to_canonical().to_string()
}

/// Lists a store, up to a number of files.
pub(super) fn list(path: &Path, folder: &Folder, limit: usize) -> Store {
    let mut unread = UnreadList::default();
    let listing = folder.list(limit).unwrap_or_else(|error| {
        unread.push(Unread::read(path, error));
        Listing::default()
    });
    if listing.cut {
        let what = format!("has more than {limit} files; the rest was not read");
        unread.push(Unread::content(path, what));
    }
    judge(path, folder, &listing, unread)
}

/// What the entries of a store are.
pub(super) fn judge(
    path: &Path,
    folder: &Folder,
    listing: &Listing,
    mut unread: UnreadList,
) -> Store {
    let mut store = Store {
        path: path.to_owned(),
        ..Store::default()
    };
    for entry in &listing.entries {
        match Name::of(entry) {
            Name::Address(address) => match reservation(path, folder, entry) {
                Ok(Some((holder, modified))) => store.reservations.push(Reservation {
                    address,
                    holder,
                    modified,
                }),
                // Released meanwhile.
                Ok(None) => {}
                Err(error) => {
                    store.blocked.push(address);
                    unread.push(error);
                }
            },
            Name::LastReserved(set) => {
                let address = last_reserved(folder, entry);
                store
                    .last_reserved
                    .extend(address.map(|address| (set, address)));
            }
            Name::Lock => {}
            // Networks' folders.
            Name::Foreign if is_default(path) && may_be_folder(folder, entry) => {}
            Name::Foreign if store.foreign.len() >= MAX_FOREIGN => {}
            Name::Foreign => {
                let name = entry.name.to_string_lossy().into_owned();
                store.foreign.push(name);
            }
        }
    }
    store.blocked.sort_unstable();
    store.reservations.sort_unstable_by_key(|each| each.address);
    store.unread = unread.texts();
    store
}

fn may_be_folder(folder: &Folder, entry: &Entry) -> bool {
    let kind = folder.kind(entry).ok().flatten();
    matches!(kind, Some(FileType::Directory | FileType::Symlink))
}

/// The reservation in a file, and when it was made; `None` if there is none.
pub(super) fn reservation(
    path: &Path,
    folder: &Folder,
    entry: &Entry,
) -> Result<Option<(ReservationHolder, Timestamp)>, Unread> {
    let path = path.join(&entry.name);
    match folder.read(entry, MAX_FILE) {
        Ok(Found::File(content)) => match parse(&content.bytes) {
            Some((container_id, ifname)) => {
                let holder = ReservationHolder {
                    path,
                    container_id,
                    ifname,
                    pod: None,
                };
                Ok(Some((holder, content.modified)))
            }
            None => Err(Unread::content(&path, "is no reservation of host-local")),
        },
        Ok(Found::Missing) => Ok(None),
        Ok(Found::Folder) => {
            let what = "is a folder: host-local cannot give out the address";
            Err(Unread::content(&path, what))
        }
        Err(error) => Err(Unread::read(&path, error)),
    }
}

/// The address that was given out last; `None` if the file does not say. No
/// address depends on it: host-local then starts from the beginning.
fn last_reserved(folder: &Folder, entry: &Entry) -> Option<IpAddr> {
    match folder.read(entry, MAX_FILE) {
        Ok(Found::File(content)) => {
            let text = std::str::from_utf8(&content.bytes).ok()?;
            text.trim().parse().ok()
        }
        _ => None,
    }
}

/// The container ID and the interface in a reservation; old files have only
/// the ID, and one whose writer was cut off has nothing. `None` if it is
/// something else.
pub fn parse(content: &[u8]) -> Option<(String, Option<String>)> {
    let text = std::str::from_utf8(content).ok()?.trim_end();
    let (id, ifname) = match text.split_once('\n') {
        Some((id, ifname)) => (id.trim(), Some(ifname.trim())),
        None => (text.trim(), None),
    };
    let valid = (id.is_empty() || is_name(id)) && ifname.is_none_or(is_ifname);
    valid.then(|| (id.to_owned(), ifname.map(str::to_owned)))
}
