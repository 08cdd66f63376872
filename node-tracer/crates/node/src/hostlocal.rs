//! The reservations of host-local: one file an address, named by it, with the
//! container's ID inside. Looked up by address, or listed as a whole.
//!
//! Where the files are is read from the node's CNI configuration; the default
//! folder is looked at besides, as what is there outlives its configuration.
//! Files and folders belong to others: links between folders are followed
//! within the host's root only, nothing but small regular files is read, and
//! what cannot be read or makes no sense leaves the answer unknown, not "free".
//!
//! Stores can be on a disk that hangs: who must not wait for them asks an
//! [`Asker`].
//!
//! Paths are given as the host has them, whatever the root.

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::fs::FileType;

use super::{
    cni::{Configuration, DEFAULT_DATA_DIR, MAX_ENTRIES},
    root::{Entry, Folder, Listing, Root, RootError, Unread, UnreadList},
};
use event::{Event, Network, ReservationHolder, Store, What, clock::Timestamp, fault};

mod asker;
pub mod locked_store;
mod store;

pub use self::{
    asker::Asker,
    store::{file_name, parse},
};

/// Folders of networks that are looked at below the default one.
const MAX_NETWORKS: usize = 256;

/// How long the configuration is believed. A pod network's agent writes it when
/// the node has been up for a while, and anew when it is upgraded.
const FRESH: Duration = Duration::from_secs(10);

/// The stores of reservations on a node.
#[derive(Debug)]
pub struct Stores {
    root: Root,
    /// Read by who asks for it: it, too, can be on a disk that hangs.
    config: Mutex<Option<CachedConfig>>,
}

/// The configuration, and when it was read.
#[derive(Debug)]
struct CachedConfig {
    config: Arc<Configuration>,
    at: Instant,
}

/// The answer to whether an address is reserved.
#[derive(Debug, Default)]
pub struct Lookup {
    /// The folders that were looked at and could be read.
    pub stores: Vec<PathBuf>,
    /// Who has the address: in the first store, should several have it.
    pub holder: Option<ReservationHolder>,
    /// Stores and reservations that are there and could not be read: for
    /// these the answer is unknown.
    pub unread: UnreadList,
}

/// Every store that there is, whole: those that the networks' configuration
/// names, and all others in host-local's default folder.
pub fn look(root: &Root, networks: &[Network], now: Timestamp) -> Vec<Event> {
    let mut stores: Vec<Store> = Vec::new();
    visit(root, networks, |path, folder| match folder {
        Ok(folder) => stores.push(store::list(path, folder, MAX_ENTRIES)),
        Err(unread) => {
            let text = fault::chain(&unread);
            match stores.iter_mut().find(|store| store.path == path) {
                Some(store) => store.unread.push(text),
                None => stores.push(Store {
                    path: path.to_owned(),
                    unread: vec![text],
                    ..Store::default()
                }),
            }
        }
    });
    // The default folder is mostly only where the networks' folders are.
    stores.retain(|store| {
        let path = Some(store.path.as_path());
        let nothing = Store {
            path: store.path.clone(),
            ..Store::default()
        };
        !is_default(&store.path)
            || *store != nothing
            || networks.iter().any(|each| each.store.as_deref() == path)
    });
    let event = |store| Event {
        time: now,
        what: What::StoreListed { store },
    };
    stores.into_iter().map(event).collect()
}

impl Stores {
    /// Those below a root folder. Nothing in it is read yet.
    ///
    /// # Errors
    /// The root cannot be opened. Configuration that cannot be read is in
    /// [`configuration`](Self::configuration).
    pub fn discover(root: &Path) -> Result<Self, RootError> {
        Ok(Self {
            root: Root::open(root)?,
            config: Mutex::default(),
        })
    }

    /// The node's CNI configuration as it was [not long ago](FRESH), and the
    /// networks of earlier ones that are not in it any more: what they have
    /// reserved outlives them, and one that could not be read is not gone.
    pub fn configuration(&self) -> Arc<Configuration> {
        self.configuration_within(FRESH)
    }

    fn configuration_within(&self, fresh: Duration) -> Arc<Configuration> {
        let mut known = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().filter(|known| known.at.elapsed() < fresh) {
            return Arc::clone(&known.config);
        }
        let mut config = Configuration::read(&self.root);
        for network in known.iter().flat_map(|known| &known.config.networks) {
            let is_same = |each: &Network| each.store == network.store;
            let room = config.networks.len() < MAX_NETWORKS;
            if room && network.store.is_some() && !config.networks.iter().any(is_same) {
                config.networks.push(network.clone());
            }
        }
        let config = Arc::new(config);
        *known = Some(CachedConfig {
            config: Arc::clone(&config),
            at: Instant::now(),
        });
        config
    }

    /// There is neither a configuration nor a folder with reservations.
    pub fn is_bare(&self) -> bool {
        let config = self.configuration();
        let networks = &config.networks;
        let mut bare = networks.is_empty();
        visit(&self.root, networks, |_, _| bare = false);
        bare
    }

    /// Who has reserved an address.
    pub fn holder(&self, address: IpAddr) -> Lookup {
        let mut lookup = Lookup::default();
        let entry = Entry::named(&file_name(address));
        visit(
            &self.root,
            &self.configuration().networks,
            |path, folder| {
                let found = folder.and_then(|folder| store::reservation(path, folder, &entry));
                match found {
                    Ok(reservation) => {
                        lookup.stores.push(path.to_owned());
                        if let Some((holder, _)) = reservation {
                            lookup.holder.get_or_insert(holder);
                        }
                    }
                    Err(unread) => lookup.unread.push(unread),
                }
            },
        );
        lookup
    }
}

/// Shows every store that there is, once: the configured ones, then the
/// default folder itself (some delegates store there without a network's
/// name), then its networks as they are now.
fn visit(root: &Root, networks: &[Network], mut show: impl FnMut(&Path, Result<&Folder, Unread>)) {
    let default = Path::new(DEFAULT_DATA_DIR);
    let mut paths: Vec<PathBuf> = networks
        .iter()
        .filter_map(|each| each.store.clone())
        .collect();
    paths.push(default.to_owned());
    let missed = match in_default(root) {
        Ok((inner, cut)) => {
            let cut = cut || inner.len() > MAX_NETWORKS;
            paths.extend(inner.into_iter().take(MAX_NETWORKS));
            let what = "has too many entries to look into all of its folders";
            cut.then(|| Unread::content(default, what))
        }
        Err(error) => {
            paths.retain(|path| path != default);
            Some(Unread::read(default, error))
        }
    };
    // By the folder, as there can be several ways to it.
    let mut seen = Vec::new();
    for path in paths {
        let folder = match root.folder(&path) {
            Ok(Some(folder)) => folder,
            Ok(None) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => continue,
            Err(error) => {
                show(&path, Err(Unread::read(&path, error)));
                continue;
            }
        };
        match folder.identity() {
            Ok(identity) if seen.contains(&identity) => continue,
            Ok(identity) => seen.push(identity),
            Err(error) => {
                show(&path, Err(Unread::read(&path, error)));
                continue;
            }
        }
        show(&path, Ok(&folder));
    }
    if let Some(missed) = missed {
        show(default, Err(missed));
    }
}

/// What may be networks' folders in the default one, and whether there can be
/// more of them.
fn in_default(root: &Root) -> io::Result<(Vec<PathBuf>, bool)> {
    let default = Path::new(DEFAULT_DATA_DIR);
    let listing = match root.folder(default) {
        Ok(Some(folder)) => folder.list(MAX_ENTRIES)?,
        Ok(None) => Listing::default(),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Listing::default(),
        Err(error) => return Err(error),
    };
    let may_be_network = |entry: &&Entry| {
        let kind = matches!(
            entry.kind,
            FileType::Directory | FileType::Symlink | FileType::Unknown
        );
        let is_address = |name: &str| name.parse::<IpAddr>().is_ok();
        kind && !entry.text().is_some_and(is_address)
    };
    let networks = listing.entries.iter().filter(may_be_network);
    let networks = networks.map(|entry| default.join(&entry.name)).collect();
    Ok((networks, listing.cut))
}

fn is_default(path: &Path) -> bool {
    path == Path::new(DEFAULT_DATA_DIR)
}

/// What is in a reservation's file.
#[cfg(feature = "testing")]
pub fn fuzz(data: &[u8]) {
    parse(data);
}

#[cfg(test)]
mod tests;
