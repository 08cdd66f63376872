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
    source::{
        hostlocal::{Lookup, Stores},
        root::RootError,
    },
};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Reservations {
    stores: Result<Stores, RootError>,
    told: BTreeMap<IpAddr, What>,
    failing: Option<String>,
}

impl Reservations {
    /// The stores below the host's root.
    pub(crate) fn new(root: &Path) -> Self {
        Self::with(Stores::discover(root))
    }

    /// These stores.
    pub(crate) fn of(stores: Stores) -> Self {
        Self::with(Ok(stores))
    }

    fn with(stores: Result<Stores, RootError>) -> Self {
        Self {
            stores,
            told: BTreeMap::new(),
            failing: None,
        }
    }

    /// What of them is seen.
    pub(crate) fn coverage(&self) -> CoverageItem {
        let (mechanism, reason, unknown) = match &self.stores {
            Ok(stores) if stores.is_bare() => {
                let why = String::from("no CNI configuration and no reservations on this node yet");
                let unknown = String::from("whether a ghost's address is still reserved");
                (None, Some(why), vec![unknown])
            }
            Ok(stores) => {
                let config = stores.configuration();
                let cni = config.networks.first().map(|network| match &network.ipam {
                    Some(ipam) => format!("CNI {}, IPAM {ipam}", network.plugin),
                    None => format!("CNI {}", network.plugin),
                });
                let mechanism = String::from("reservation files, of watched addresses");
                (Some(mechanism), cni, config.unread.texts())
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
    pub(crate) fn poll(&mut self, addresses: &BTreeSet<IpAddr>, out: &mut Vec<Event>) {
        self.told.retain(|address, _| addresses.contains(address));
        let Ok(stores) = &self.stores else {
            return;
        };
        let time = Timestamp::now();
        let mut failing = None;
        for address in addresses {
            let Lookup {
                stores,
                holder,
                unread,
            } = stores.holder(*address);
            let unread = unread.texts().into_iter().next();
            // What could not be read may hold it: that is no "free".
            let answered = holder.is_some() || unread.is_none();
            failing = failing.or(unread);
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
        // Told once for all addresses, which share the stores.
        if failing != self.failing {
            let source = String::from("host-local");
            let what = match &failing {
                Some(error) => What::SourceFailed {
                    source,
                    error: error.clone(),
                },
                None => What::SourceRecovered { source },
            };
            out.push(Event { time, what });
            self.failing = failing;
        }
    }
}
