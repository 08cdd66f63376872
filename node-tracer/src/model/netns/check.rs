//! What must be so of the table, whatever has happened.

use std::collections::BTreeSet;

use super::*;

impl NetnsTable {
    /// What must be so whatever has happened.
    pub(crate) fn check(&self) {
        assert!(self.entries.len() <= MAX_NETNS && self.dead.len() <= MAX_DEAD);
        assert_eq!(self.by_inode.len(), self.entries.len());
        for (inode, serial) in &self.by_inode {
            assert_eq!(self.entries[serial].id.inode, *inode);
        }
        let mut by_address: BTreeMap<IpAddr, Vec<Serial>> = BTreeMap::new();
        for (serial, entry) in &self.entries {
            assert!(entry.dying.is_none() || entry.addresses.is_empty());
            for held in &entry.addresses {
                by_address
                    .entry(held.address.address)
                    .or_default()
                    .push(*serial);
            }
        }
        let count: usize = by_address.values().map(Vec::len).sum();
        assert_eq!(
            (count, by_address.len()),
            (self.addresses.count, self.addresses.by_address.len())
        );
        for (address, serials) in by_address {
            let mut indexed = self.addresses.by_address[&address].clone();
            indexed.sort_unstable();
            let distinct = serials.iter().collect::<BTreeSet<_>>().len();
            assert_eq!(indexed, serials);
            assert_eq!(self.addresses.shared.contains(&address), distinct > 1);
        }
        assert!(
            self.addresses
                .shared
                .iter()
                .all(|address| self.addresses.by_address.contains_key(address))
        );
    }
}
