//! Which namespaces have an address.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
};

use super::Serial;

/// Namespaces by address; knows at any time which addresses more than one has.
#[derive(Debug, Default)]
pub(super) struct AddressIndex {
    /// One element per address on a device.
    pub(super) by_address: HashMap<IpAddr, Vec<Serial>>,
    pub(super) shared: BTreeSet<IpAddr>,
    pub(super) count: usize,
}

impl AddressIndex {
    /// The namespaces that have an address, oldest first.
    pub(super) fn with(&self, address: IpAddr) -> BTreeSet<Serial> {
        let serials = self.by_address.get(&address).into_iter().flatten();
        serials.copied().collect()
    }

    /// A namespace has an address on one device more.
    pub(super) fn add(&mut self, address: IpAddr, serial: Serial) {
        let serials = self.by_address.entry(address).or_default();
        serials.push(serial);
        self.count += 1;
        if serials.iter().any(|other| *other != serial) {
            self.shared.insert(address);
        }
    }

    /// It has the address on one device less.
    pub(super) fn remove(&mut self, address: IpAddr, serial: Serial) {
        let Some(serials) = self.by_address.get_mut(&address) else {
            return;
        };
        if let Some(place) = serials.iter().position(|other| *other == serial) {
            serials.swap_remove(place);
            self.count -= 1;
        }
        if serials.windows(2).all(|pair| pair[0] == pair[1]) {
            self.shared.remove(&address);
        }
        if serials.is_empty() {
            self.by_address.remove(&address);
        }
    }
}
