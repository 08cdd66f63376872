//! The reservations of host-local: one file an address, named by it, with the
//! container's ID inside. Looked up by address, never listed.
//!
//! Where the files are is read from the node's CNI configuration; the default
//! folder is looked at besides, as what is there outlives its configuration.
//! Files and folders belong to others: links are followed within the host's
//! root only, nothing but small regular files is read, and what cannot be read
//! or makes no sense leaves the answer unknown, not "free".
//!
//! Paths are given as the host has them, whatever the root.

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use self::root::{Found, Root};
use crate::event::ReservationHolder;

pub(crate) use self::config::CniKind;

mod config;
mod root;

/// host-local's `dataDir` if the configuration has none.
const DEFAULT_DATA_DIR: &str = "/var/lib/cni/networks";

/// Largest reservation that is read; real ones have 70 to 90 bytes.
const MAX_FILE: usize = 4 << 10;

/// Folders of networks that are looked at below the default one.
const MAX_NETWORKS: usize = 256;

/// Why the node's CNI files give no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostLocalError {
    /// The host's root cannot be opened.
    #[error("cannot open the host's root {}", path.display())]
    Root {
        /// The folder.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A file or folder is there and cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which, on the host.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A file is there and holds something else than it should.
    #[error("{} is no {expected}", path.display())]
    Content {
        /// Which, on the host.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
    },
}

/// The stores of reservations on a node.
#[derive(Debug)]
pub(crate) struct Stores {
    root: Root,
    /// Folders with reservations that the configuration names.
    configured: Vec<PathBuf>,
    cni: Option<CniKind>,
    /// Parts of the configuration that could not be read: there may be more
    /// stores.
    pub(crate) unread: Vec<HostLocalError>,
}

/// The answer to whether an address is reserved.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    /// The folders that were looked at and could be read.
    pub(crate) stores: Vec<PathBuf>,
    /// Who has the address: in the first store, should several have it.
    pub(crate) holder: Option<ReservationHolder>,
    /// Stores and reservations that are there and could not be read: for
    /// these the answer is unknown.
    pub(crate) unread: Vec<HostLocalError>,
}

impl Stores {
    /// Reads the node's CNI configuration below a root folder.
    ///
    /// # Errors
    /// The root cannot be opened. Configuration that cannot be read is in
    /// [`unread`](Self::unread).
    pub(crate) fn discover(root: &Path) -> Result<Self, HostLocalError> {
        let root = Root::open(root)?;
        let config = config::read(&root);
        Ok(Self {
            root,
            configured: config.stores,
            cni: config.kind,
            unread: config.unread,
        })
    }

    /// The CNI that sets up the pods' network; `None` if the node has no
    /// configuration that can be read.
    pub(crate) fn cni_type(&self) -> Option<&CniKind> {
        self.cni.as_ref()
    }

    /// There is neither a configuration nor a folder with reservations.
    pub(crate) fn is_bare(&self) -> bool {
        self.cni.is_none() && self.folders(&mut Lookup::default()).is_empty()
    }

    /// Who has reserved an address.
    pub(crate) fn holder(&self, address: IpAddr) -> Lookup {
        let mut lookup = Lookup::default();
        let name = file_name(address);
        for store in self.folders(&mut lookup) {
            let path = store.join(&name);
            match self.root.read(&path, MAX_FILE) {
                Ok(Found::File(content)) => match reservation(&content) {
                    Some((container_id, ifname)) => {
                        lookup.holder.get_or_insert(ReservationHolder {
                            path,
                            container_id,
                            ifname,
                        });
                    }
                    None => {
                        let expected = "reservation of host-local";
                        lookup
                            .unread
                            .push(HostLocalError::Content { path, expected });
                        continue;
                    }
                },
                Ok(Found::Missing | Found::Folder) => {}
                Err(source) => {
                    lookup.unread.push(HostLocalError::Read { path, source });
                    continue;
                }
            }
            lookup.stores.push(store);
        }
        lookup
    }

    /// Every folder that there is: the configured ones, then the default one
    /// itself (some delegates store there without a network's name), then its
    /// networks as they are now.
    fn folders(&self, lookup: &mut Lookup) -> Vec<PathBuf> {
        let default = Path::new(DEFAULT_DATA_DIR);
        let mut folders = self.configured.clone();
        folders.push(default.to_owned());
        match self.root.list(default) {
            Ok(entries) => {
                let names = entries
                    .into_iter()
                    .filter(|name| name.parse::<IpAddr>().is_err());
                folders.extend(names.take(MAX_NETWORKS).map(|name| default.join(name)));
            }
            Err(source) if source.kind() == io::ErrorKind::NotFound => {}
            Err(source) => lookup.unread.push(HostLocalError::Read {
                path: default.to_owned(),
                source,
            }),
        }
        let mut seen = BTreeSet::new();
        folders.retain(|path| {
            seen.insert(path.clone())
                && self.root.is_folder(path).unwrap_or_else(|source| {
                    let path = path.clone();
                    lookup.unread.push(HostLocalError::Read { path, source });
                    false
                })
        });
        folders
    }
}

/// The name of an address's file: Go's `net.IP.String()`.
fn file_name(address: IpAddr) -> String {
    // Go prints an IPv4 address mapped into IPv6 as IPv4.
    address.to_canonical().to_string()
}

/// The container ID and the interface in a reservation; old files have only
/// the ID, and one whose writer was cut off has nothing. `None` if it is
/// something else.
fn reservation(content: &[u8]) -> Option<(String, Option<String>)> {
    let text = std::str::from_utf8(content).ok()?.trim();
    let (id, ifname) = match text.split_once('\n') {
        Some((id, ifname)) => (id.trim_end(), Some(ifname.trim())),
        None => (text, None),
    };
    // What the CNI specification allows in an ID, and the kernel in a name.
    let id_ok = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-');
    let name_ok =
        |name: &str| name.len() < 16 && name.bytes().all(|c| c.is_ascii_graphic() && c != b'/');
    let valid = id.bytes().all(id_ok) && ifname.is_none_or(name_ok);
    valid.then(|| {
        let ifname = ifname.filter(|name| !name.is_empty());
        (id.to_owned(), ifname.map(str::to_owned))
    })
}

#[cfg(test)]
mod tests;
