//! Reservations of the addresses that matter, in whatever store they are: told
//! when they change.

mod others;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::Bound,
};

use self::others::Others;
use crate::config::{Config, Pods};
use event::{Event, What, clock::Timestamp, fault, record::CoverageItem};
use node::{
    hostlocal::{Asker, Lookup, Stores},
    root::{Root, RootError},
};

#[derive(Debug)]
pub(crate) struct Reservations {
    /// host-local's, looked up address by address.
    stores: Result<Asker, RootError>,
    /// The others', as they were last listed.
    others: Others,
    watcher: Option<ipam::Watcher>,
    told: BTreeMap<IpAddr, What>,
    /// The one that was asked about last of those that are asked about in turn.
    turn: Option<IpAddr>,
    failing: Option<String>,
}

impl Reservations {
    /// The stores of the node, looked at from now on.
    pub(crate) fn watch(config: &Config) -> Self {
        let folder = &config.node.root;
        let mut this = Self::with(Stores::discover(folder));
        let api = ipam::Api {
            refused: not_asked(&config.pods),
            kubeconfig: config.kubeconfig.clone(),
            node: config.node.name.clone(),
        };
        let watcher = Root::open(folder)
            .map_err(std::io::Error::from)
            .and_then(|root| ipam::Watcher::start(root, folder, api));
        match watcher {
            Ok(watcher) => {
                this.others.await_kinds(watcher.awaited());
                this.watcher = Some(watcher);
            }
            Err(error) => {
                tracing::warn!("cannot watch the stores of IPAM plugins: {error}");
                let stores = this.stores.as_mut().ok();
                let config = stores.and_then(|stores| stores.overview().ok());
                let networks = config
                    .as_ref()
                    .map(|(_, config)| config.networks.as_slice());
                let expected = ipam::expected(networks.unwrap_or_default());
                this.others.await_kinds(expected.into_keys().collect());
            }
        }
        this
    }

    /// host-local's stores, and those that are [learned](Self::learn) of.
    pub(crate) fn of(stores: Stores) -> Self {
        Self::with(Ok(stores))
    }

    fn with(stores: Result<Stores, RootError>) -> Self {
        Self {
            stores: stores.map(Asker::new),
            others: Others::default(),
            watcher: None,
            told: BTreeMap::new(),
            turn: None,
            failing: None,
        }
    }

    /// Takes in what a look has listed.
    pub(crate) fn learn(&mut self, event: &Event) {
        self.others.learn(&event.what);
    }

    /// What of them is seen. Waits for host-local's files, though not long.
    pub(crate) fn coverage(&mut self) -> Vec<CoverageItem> {
        let mut items = vec![self.coverage_of_host_local()];
        items.extend(self.watcher.iter().flat_map(ipam::Watcher::coverage));
        items
    }

    fn coverage_of_host_local(&mut self) -> CoverageItem {
        let overview = match &mut self.stores {
            Ok(stores) => stores.overview(),
            Err(error) => Err(fault::chain(error)),
        };
        let overview = overview.and_then(|(bare, config)| match bare {
            true => Err(String::from(
                "no CNI configuration and no reservations on this node yet",
            )),
            false => Ok(config),
        });
        let (mechanism, reason, unknown) = match overview {
            Ok(config) => {
                let cni = config.networks.first().map(|network| match &network.ipam {
                    Some(ipam) => format!("CNI {}, IPAM {ipam}", network.plugin),
                    None => format!("CNI {}", network.plugin),
                });
                let mechanism = String::from("reservation files, of watched addresses");
                (Some(mechanism), cni, config.unread.texts())
            }
            Err(why) => {
                let unknown = String::from("whether a ghost's address is still reserved");
                (None, Some(why), vec![unknown])
            }
        };
        CoverageItem {
            signal: String::from("host-local"),
            mechanism,
            reason,
            unknown,
        }
    }

    /// Asks about `addresses`, about the next one of those that are not `urgent`,
    /// and about no others any more; before that, takes what the stores have come to
    /// say. Never waits for anything but host-local's files, and for those only once
    /// while they do not answer.
    pub(crate) fn poll(
        &mut self,
        addresses: &BTreeSet<IpAddr>,
        not_urgent: &BTreeSet<IpAddr>,
        out: &mut Vec<Event>,
    ) {
        if let Some(watcher) = &mut self.watcher {
            watcher.want(addresses, not_urgent);
            let deleted = |event: &Event| matches!(event.what, What::PodDeleted { .. });
            if out.iter().any(deleted) {
                watcher.soon();
            }
            let from = out.len();
            watcher.poll(out);
            for event in out.get(from..).unwrap_or_default() {
                self.others.learn(&event.what);
            }
        }
        self.told
            .retain(|address, _| addresses.contains(address) || not_urgent.contains(address));
        let time = sys::clock::now();
        let mut failing = None;
        for address in addresses {
            let (what, unread) = self.ask(*address);
            failing = failing.or(unread);
            self.tell(*address, what, time, out);
        }
        if let Some(address) = self.next_in_turn(not_urgent) {
            let (what, unread) = self.ask(address);
            failing = failing.or(unread);
            // That a living pod's is free counts only as of later than its ADD.
            if matches!(what, What::Reservation { holder: None, .. }) {
                self.told.remove(&address);
            }
            self.tell(address, what, time, out);
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

    /// Asks about those of `addresses` that are not asked about yet. Whether files
    /// can be read is told when they are [asked about again](Self::poll).
    pub(crate) fn ask_new(&mut self, addresses: &BTreeSet<IpAddr>, out: &mut Vec<Event>) {
        let time = sys::clock::now();
        for address in addresses {
            if !self.told.contains_key(address) {
                let (what, _) = self.ask(*address);
                self.tell(*address, what, time, out);
            }
        }
    }

    fn next_in_turn(&mut self, addresses: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        let after = self.turn.map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = addresses.range((after, Bound::Unbounded));
        self.turn = later.next().or(addresses.first()).copied();
        self.turn
    }

    /// What the stores say of an address now, and what of host-local's could not be
    /// read.
    fn ask(&mut self, address: IpAddr) -> (What, Option<String>) {
        let asked = match &mut self.stores {
            Ok(stores) => stores.holder(address),
            Err(_) => Ok(Lookup::default()),
        };
        let (lookup, silent) = match asked {
            Ok(lookup) => (lookup, None),
            Err(why) => (Lookup::default(), Some(why)),
        };
        let Lookup {
            stores,
            holder,
            unread,
        } = lookup;
        let unread = silent.or_else(|| unread.texts().into_iter().next());
        let other = self.others.holder(address);
        // What could not be read may hold it: that is no "free".
        let unknown = unread.is_some() || other.unknown;
        // host-local's files outlive their configuration.
        let holder = other.holder.cloned().or(holder);
        let answered = holder.is_some() || !unknown;
        let stores = match answered {
            true => other.stores.into_iter().chain(stores).collect(),
            false => Vec::new(),
        };
        let what = What::Reservation {
            address,
            stores,
            holder,
        };
        (what, unread)
    }

    fn tell(&mut self, address: IpAddr, what: What, time: Timestamp, out: &mut Vec<Event>) {
        if self.told.get(&address) != Some(&what) {
            self.told.insert(address, what.clone());
            out.push(Event { time, what });
        }
    }
}

/// Why the API server is not asked for what pod networks keep there.
pub(crate) fn not_asked(pods: &Pods) -> Option<String> {
    match pods {
        Pods::Auto => None,
        Pods::None => Some(String::from("the API server is not asked (--pods none)")),
        Pods::File(_) => Some(String::from(
            "the API server is not asked (--pods with a list); without --pods it is",
        )),
    }
}

#[cfg(test)]
mod tests;
