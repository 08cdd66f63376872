//! host-local's reservations of the addresses that matter: told when they
//! change.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::Path,
};

use crate::{
    clock::Timestamp,
    event::{Event, What},
    record::CoverageItem,
    report,
    source::hostlocal::{HostLocalError, Lookup, Stores},
};

/// See the module's documentation.
pub(super) struct Reservations {
    stores: Result<Stores, HostLocalError>,
    told: BTreeMap<IpAddr, What>,
    failing: Option<String>,
}

impl Reservations {
    /// The stores below the host's root.
    pub(super) fn new(root: &Path) -> Self {
        Self {
            stores: Stores::discover(root),
            told: BTreeMap::new(),
            failing: None,
        }
    }

    /// What of them is seen.
    pub(super) fn coverage(&self) -> CoverageItem {
        let (mechanism, reason, unknown) = match &self.stores {
            Ok(stores) if stores.is_bare() => {
                let why = String::from("no CNI configuration and no reservations on this node yet");
                let unknown = String::from("whether a ghost's address is still reserved");
                (None, Some(why), vec![unknown])
            }
            Ok(stores) => {
                let cni = stores.cni_type().map(|cni| match &cni.ipam {
                    Some(ipam) => format!("CNI {:?}, IPAM {ipam:?}", cni.plugin),
                    None => format!("CNI {:?}", cni.plugin),
                });
                let unread = stores
                    .unread
                    .iter()
                    .map(|error| report::chain(error))
                    .collect();
                (
                    Some(String::from("reservation files, of watched addresses")),
                    cni,
                    unread,
                )
            }
            Err(error) => {
                let unknown = String::from("whether a ghost's address is still reserved");
                (None, Some(report::chain(error)), vec![unknown])
            }
        };
        CoverageItem {
            signal: String::from("host-local"),
            mechanism,
            reason,
            unknown,
        }
    }

    /// Asks about `addresses`, and about no others any more.
    pub(super) fn poll(&mut self, addresses: &BTreeSet<IpAddr>, out: &mut Vec<Event>) {
        self.told.retain(|address, _| addresses.contains(address));
        let Ok(stores) = &self.stores else {
            return;
        };
        let time = Timestamp::now();
        for address in addresses {
            let Lookup {
                stores,
                holder,
                unread,
            } = stores.holder(*address);
            let failing = unread.first().map(|error| report::chain(error));
            if failing != self.failing {
                let source = String::from("host-local");
                out.push(Event {
                    time,
                    what: match &failing {
                        Some(error) => What::SourceFailed {
                            source,
                            error: error.clone(),
                        },
                        None => What::SourceRecovered { source },
                    },
                });
                self.failing = failing;
            }
            // What could not be read may hold it: that is no "free".
            let answered = holder.is_some() || self.failing.is_none();
            let stores = if answered { stores } else { Vec::new() };
            let what = What::Reservation {
                address: *address,
                stores,
                holder,
            };
            if self.told.get(address) != Some(&what) {
                self.told.insert(*address, what.clone());
                out.push(Event { time, what });
            }
        }
    }
}
