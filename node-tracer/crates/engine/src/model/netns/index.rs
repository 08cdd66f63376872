//! Which namespaces have an address.

use std::{collections::BTreeSet, net::IpAddr};

use super::Serial;

/// Namespaces by address; knows at any time which addresses more than one has.
#[derive(Debug, Default)]
pub(super) struct AddressIndex {
    /// One element per address on a device, with its place in the namespace.
    pub(super) all: BTreeSet<(IpAddr, Serial, u64)>,
    pub(super) shared: BTreeSet<IpAddr>,
}

impl AddressIndex {
    /// How many there are, in all namespaces.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The namespaces that have an address, oldest first.
    pub(super) fn with(&self, address: IpAddr) -> Vec<Serial> {
        let mut serials: Vec<Serial> = self.range(address).map(|(serial, _)| serial).collect();
        serials.dedup();
        serials
    }

    /// Where a namespace has an address.
    pub(super) fn places(&self, address: IpAddr, serial: Serial) -> impl Iterator<Item = u64> {
        let range = (address, serial, 0)..=(address, serial, u64::MAX);
        self.all.range(range).map(|(_, _, place)| *place)
    }

    fn range(&self, address: IpAddr) -> impl Iterator<Item = (Serial, u64)> {
        let range = (address, Serial(0), 0)..=(address, Serial(u64::MAX), u64::MAX);
        self.all
            .range(range)
            .map(|(_, serial, place)| (*serial, *place))
    }

    /// A namespace has an address on one device more.
    pub(super) fn add(&mut self, address: IpAddr, serial: Serial, place: u64) {
        if self.range(address).any(|(other, _)| other != serial) {
            self.shared.insert(address);
        }
        self.all.insert((address, serial, place));
    }

    /// It has the address on one device less.
    pub(super) fn remove(&mut self, address: IpAddr, serial: Serial, place: u64) {
        self.all.remove(&(address, serial, place));
        let mut left = self.range(address).map(|(serial, _)| serial);
        let first = left.next();
        let has_one = left.all(|serial| Some(serial) == first);
        drop(left);
        if has_one {
            self.shared.remove(&address);
        }
    }
}
