//! CNI's own memory: attachments that libcni has in its cache, networks that
//! the configuration names, and reservations in host-local's stores.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    path::{Path, PathBuf},
};

use event::{Attachment, Network, Reservation, Store, clock::Timestamp};

/// Attachments at most, in all folders.
pub const MAX_ATTACHMENTS: usize = 65_536;
pub const MAX_STORES: usize = 256;
/// Reservations at most, of one store.
pub const MAX_RESERVATIONS: usize = 131_072;

/// Attachments, networks and stores as last listed.
#[derive(Debug, Default)]
pub struct Cni {
    attachments: BTreeMap<PathBuf, Vec<Attachment>>,
    attachments_at: Option<Timestamp>,
    by_container: HashMap<String, Vec<Place>>,
    by_inode: HashMap<u32, Vec<Place>>,
    by_uid: HashMap<String, Vec<Place>>,
    by_mac: HashMap<String, Vec<Place>>,
    networks: Option<Vec<Network>>,
    networks_since: Option<Timestamp>,
    stores: BTreeMap<PathBuf, ListedStore>,
    by_address: HashMap<IpAddr, Vec<Place>>,
    /// What could not be read, by what was asked for it.
    unread: BTreeMap<String, Vec<String>>,
    dropped: u64,
}

/// Folder, and place in its list.
type Place = (PathBuf, usize);

#[derive(Debug)]
pub struct ListedStore {
    pub store: Store,
    pub at: Timestamp,
}

impl Cni {
    /// Folders of libcni's cache that were looked at.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.attachments.keys().map(PathBuf::as_path)
    }

    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.attachments.values().flatten()
    }

    /// When they were last listed.
    pub fn attachments_at(&self) -> Option<Timestamp> {
        self.attachments_at
    }

    /// Attachments of a sandbox or container.
    pub fn of_container(&self, id: &str) -> impl Iterator<Item = &Attachment> {
        self.at(self.by_container.get(id))
    }

    /// Attachments whose namespace's path leads to this inode now.
    pub fn in_netns(&self, inode: u32) -> impl Iterator<Item = &Attachment> {
        self.at(self.by_inode.get(&inode))
    }

    pub fn of_pod(&self, uid: &str) -> impl Iterator<Item = &Attachment> {
        self.at(self.by_uid.get(uid))
    }

    /// Attachments whose interface in the sandbox has a MAC address.
    pub fn with_mac(&self, mac: &str) -> impl Iterator<Item = &Attachment> {
        self.at(self.by_mac.get(mac))
    }

    fn at<'a>(&'a self, places: Option<&'a Vec<Place>>) -> impl Iterator<Item = &'a Attachment> {
        let places = places.into_iter().flatten();
        places.filter_map(|(folder, place)| self.attachments.get(folder)?.get(*place))
    }

    /// Networks, the one in use first; `None` if the configuration was never
    /// looked at.
    pub fn networks(&self) -> Option<&[Network]> {
        self.networks.as_deref()
    }

    /// Since when the configuration has been saying so.
    pub fn networks_since(&self) -> Option<Timestamp> {
        self.networks_since
    }

    /// The networks that new pods are attached to: those of the file in use.
    pub fn networks_in_use(&self) -> impl Iterator<Item = &Network> {
        let networks = self.networks.as_deref().unwrap_or_default();
        let file = networks.first().map(|network| &network.file);
        let networks = networks.iter();
        networks.filter(move |network| Some(&network.file) == file)
    }

    /// The network whose reservations are in a store.
    pub fn network_of(&self, store: &Path) -> Option<&Network> {
        let mut networks = self.networks.iter().flatten();
        networks.find(|network| network.store.as_deref() == Some(store))
    }

    /// Stores that were listed, by path.
    pub fn stores(&self) -> impl Iterator<Item = &ListedStore> {
        self.stores.values()
    }

    /// Reservations of an address, in any store.
    pub fn reservations(
        &self,
        address: IpAddr,
    ) -> impl Iterator<Item = (&ListedStore, &Reservation)> {
        let places = self.by_address.get(&address).into_iter().flatten();
        places.filter_map(|(store, place)| {
            let listed = self.stores.get(store)?;
            Some((listed, listed.store.reservations.get(*place)?))
        })
    }

    /// What could not be read or understood.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        self.unread.values().flatten().map(String::as_str)
    }

    /// What of libcni's cache could not be read or understood.
    pub fn unread_in_cache(&self) -> impl Iterator<Item = &str> {
        let folders = self.attachments.keys();
        let unread = folders.filter_map(|folder| self.unread.get(folder.to_str()?));
        unread.flatten().map(String::as_str)
    }

    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn attachments_listed(
        &mut self,
        folder: &Path,
        at: Timestamp,
        attachments: &[Attachment],
        unread: &[String],
    ) -> bool {
        self.attachments.remove(folder);
        self.attachments_at = Some(at);
        let room = MAX_ATTACHMENTS.saturating_sub(self.attachments().count());
        self.dropped += attachments.len().saturating_sub(room) as u64;
        let kept = attachments[..attachments.len().min(room)].to_vec();
        self.attachments.insert(folder.to_owned(), kept);
        self.index();
        self.set_unread(&folder.display().to_string(), unread);
        true
    }

    fn index(&mut self) {
        self.by_container.clear();
        self.by_inode.clear();
        self.by_uid.clear();
        self.by_mac.clear();
        for (folder, attachments) in &self.attachments {
            for (place, attachment) in attachments.iter().enumerate() {
                let place = (folder.clone(), place);
                let container = self.by_container.entry(attachment.container_id.clone());
                container.or_default().push(place.clone());
                if let Some(netns) = attachment.netns {
                    let there = self.by_inode.entry(netns.inode).or_default();
                    there.push(place.clone());
                }
                let uid = attachment.pod.as_ref().and_then(|pod| pod.uid.clone());
                if let Some(uid) = uid {
                    self.by_uid.entry(uid).or_default().push(place.clone());
                }
                if let Some(mac) = attachment.mac.clone() {
                    self.by_mac.entry(mac).or_default().push(place);
                }
            }
        }
    }

    pub(super) fn networks_listed(
        &mut self,
        at: Timestamp,
        networks: &[Network],
        unread: &[String],
    ) -> bool {
        let changed = self.networks.as_deref() != Some(networks);
        if changed {
            self.networks_since = Some(at);
        }
        self.networks = Some(networks.to_vec());
        self.set_unread("networks", unread) | changed
    }

    pub(super) fn store_listed(&mut self, store: &Store, at: Timestamp) -> bool {
        if !self.stores.contains_key(&store.path) && self.stores.len() >= MAX_STORES {
            self.dropped += store.reservations.len() as u64;
            return false;
        }
        let mut store = store.clone();
        self.dropped += store.reservations.len().saturating_sub(MAX_RESERVATIONS) as u64;
        store.reservations.truncate(MAX_RESERVATIONS);
        let listed = ListedStore { store, at };
        let path = listed.store.path.clone();
        for places in self.by_address.values_mut() {
            places.retain(|(store, _)| *store != path);
        }
        self.by_address.retain(|_, places| !places.is_empty());
        for (place, reservation) in listed.store.reservations.iter().enumerate() {
            let there = self.by_address.entry(reservation.address).or_default();
            there.push((path.clone(), place));
        }
        self.stores.insert(path, listed);
        true
    }

    fn set_unread(&mut self, of: &str, unread: &[String]) -> bool {
        let old = match unread {
            [] => self.unread.remove(of),
            some => self.unread.insert(of.to_owned(), some.to_vec()),
        };
        old.as_deref().unwrap_or_default() != unread
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::testing::*;

    fn attachment(container: &str) -> Attachment {
        Attachment {
            path: PathBuf::from(format!("/var/lib/cni/results/pods-{container}-eth0")),
            network: String::from("pods"),
            container_id: container.to_owned(),
            ifname: String::from("eth0"),
            netns_path: String::new(),
            netns: None,
            mac: None,
            host_devices: Vec::new(),
            pod: None,
            ips: vec![ip(5)],
            written: s(0),
        }
    }

    #[test]
    fn a_new_listing_of_a_folder_takes_the_place_of_the_old() {
        let mut cni = Cni::default();
        let folder = Path::new("/var/lib/cni/results");
        cni.attachments_listed(folder, s(1), &[attachment("a"), attachment("b")], &[]);
        cni.attachments_listed(Path::new("/other"), s(1), &[attachment("a")], &[]);
        assert_eq!(cni.of_container("a").count(), 2);
        cni.attachments_listed(
            folder,
            s(1),
            &[attachment("b")],
            &[String::from("x: no JSON")],
        );
        assert_eq!(cni.of_container("a").count(), 1);
        assert_eq!(cni.of_container("b").count(), 1);
        assert_eq!(cni.unread().collect::<Vec<_>>(), ["x: no JSON"]);
        cni.attachments_listed(folder, s(1), &[], &[]);
        assert_eq!((cni.attachments().count(), cni.unread().count()), (1, 0));
    }

    #[test]
    fn an_address_is_looked_up_in_every_store() {
        let mut cni = Cni::default();
        for path in ["/a", "/b"] {
            let store = Store {
                path: PathBuf::from(path),
                reservations: vec![Reservation {
                    address: ip(5),
                    holder: reservation("old"),
                    modified: s(0),
                }],
                ..Store::default()
            };
            cni.store_listed(&store, s(1));
        }
        assert_eq!(cni.reservations(ip(5)).count(), 2);
        assert_eq!(cni.reservations(ip(6)).count(), 0);
    }
}
