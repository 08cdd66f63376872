//! Pods of the whole cluster that have an address, as far as somebody asked.

use std::{collections::BTreeMap, net::IpAddr};

use event::{Pod, clock::Timestamp};

pub const MAX_ADDRESSES: usize = 256;
/// Pods of one address that are kept.
const MAX_PODS: usize = 64;

/// What the API server said of an address.
#[derive(Debug)]
pub struct AddressInCluster {
    /// For when that is true.
    pub at: Timestamp,
    pub pods: Vec<Pod>,
}

#[derive(Debug, Default)]
pub struct Cluster {
    by_address: BTreeMap<IpAddr, AddressInCluster>,
    dropped: u64,
}

impl Cluster {
    /// `None` if nobody asked, or the server did not tell.
    pub fn get(&self, address: IpAddr) -> Option<&AddressInCluster> {
        self.by_address.get(&address)
    }

    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Whether anything has changed by it.
    pub(super) fn take_answer(&mut self, address: IpAddr, at: Timestamp, pods: &[Pod]) -> bool {
        let pods = &pods[..pods.len().min(MAX_PODS)];
        let is_full = self.by_address.len() >= MAX_ADDRESSES;
        if is_full && !self.by_address.contains_key(&address) {
            self.dropped += 1;
            let oldest = self.by_address.iter().min_by_key(|(_, known)| known.at);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.by_address.remove(&oldest);
            }
        }
        let pods = pods.to_vec();
        let before = self
            .by_address
            .get(&address)
            .map(|known| known.pods.clone());
        let changed = before.as_ref() != Some(&pods);
        self.by_address
            .insert(address, AddressInCluster { at, pods });
        changed
    }
}
