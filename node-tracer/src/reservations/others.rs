//! Stores that are listed whole: whatever is not host-local's.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::IpAddr,
    path::PathBuf,
};

use event::{ReservationHolder, Store, StoreKind, What};

/// The stores as they were last listed.
#[derive(Debug, Default)]
pub(super) struct Others {
    stores: BTreeMap<PathBuf, StoreContent>,
    /// Kinds of which some store does not answer, or has not answered yet.
    silent: BTreeSet<StoreKind>,
}

#[derive(Debug)]
struct StoreContent {
    kind: StoreKind,
    holders: HashMap<IpAddr, ReservationHolder>,
    /// Taken by something that is no container.
    blocked: HashSet<IpAddr>,
    /// A part of it could not be read.
    partial: bool,
}

/// What they say of an address.
#[derive(Debug, Default)]
pub(super) struct Occupant<'a> {
    /// Those that could be read.
    pub(super) stores: Vec<PathBuf>,
    pub(super) holder: Option<&'a ReservationHolder>,
    /// One that could not be read may have it.
    pub(super) unknown: bool,
}

impl Others {
    /// These are there, and have not answered yet.
    pub(super) fn await_kinds(&mut self, kinds: BTreeSet<StoreKind>) {
        self.silent.extend(kinds);
    }

    /// Takes in what was listed, or could not be.
    pub(super) fn learn(&mut self, what: &What) {
        match what {
            What::StoreListed { store } if store.kind != StoreKind::HostLocal => {
                self.silent.remove(&store.kind);
                self.stores
                    .insert(store.path.clone(), StoreContent::of(store));
            }
            What::SourceFailed { source, error: _ } => self.silent.extend(ipam::kind_of(source)),
            What::SourceRecovered { source } => {
                if let Some(kind) = ipam::kind_of(source) {
                    self.silent.remove(&kind);
                }
            }
            _ => {}
        }
    }

    /// Who has an address. What is silent now says nothing, whatever it said
    /// before.
    pub(super) fn holder(&self, address: IpAddr) -> Occupant<'_> {
        let mut answer = Occupant {
            unknown: !self.silent.is_empty(),
            ..Occupant::default()
        };
        for (path, known) in &self.stores {
            if self.silent.contains(&known.kind) {
                continue;
            }
            let holder = known.holders.get(&address);
            answer.holder = answer.holder.or(holder);
            answer.unknown |= known.blocked.contains(&address);
            match known.partial && holder.is_none() {
                true => answer.unknown = true,
                false => answer.stores.push(path.clone()),
            }
        }
        answer
    }
}

impl StoreContent {
    fn of(store: &Store) -> Self {
        let mut holders = HashMap::new();
        for each in &store.reservations {
            let holder = || each.holder.clone();
            holders.entry(each.address).or_insert_with(holder);
        }
        Self {
            kind: store.kind,
            holders,
            blocked: store.blocked.iter().copied().collect(),
            partial: !store.unread.is_empty(),
        }
    }
}
