//! What must be so of the table, whatever has happened.

use std::collections::BTreeSet;

use super::*;

impl NetnsTable {
    /// What must be so whatever has happened.
    pub fn check(&self) {
        assert!(self.entries.len() <= MAX_NETNS && self.dead.len() <= MAX_DEAD);
        assert_eq!(self.by_inode.len(), self.entries.len());
        for (inode, serial) in &self.by_inode {
            assert_eq!(self.entries[serial].id.inode, *inode);
        }
        let mut by_address: BTreeMap<IpAddr, Vec<Serial>> = BTreeMap::new();
        for (serial, entry) in &self.entries {
            assert!(entry.dying.is_none() || entry.addresses.is_empty());
            for held in entry.addresses.iter() {
                by_address
                    .entry(held.address.address)
                    .or_default()
                    .push(*serial);
            }
        }
        let count: usize = by_address.values().map(Vec::len).sum();
        assert_eq!(count, self.addresses.len());
        for (address, serial, place) in &self.addresses.all {
            let held = self.entries[serial].addresses.get(*place);
            assert_eq!(held.map(|held| held.address.address), Some(*address));
        }
        for (address, serials) in &by_address {
            let distinct: BTreeSet<_> = serials.iter().copied().collect();
            assert_eq!(self.addresses.shared.contains(address), distinct.len() > 1);
            assert_eq!(self.addresses.with(*address), Vec::from_iter(distinct));
        }
        let shared = self.addresses.shared.iter();
        assert!(
            shared
                .copied()
                .all(|address| by_address.contains_key(&address))
        );
    }
}
