//! What the stores of IPAM reservations said of the addresses that were asked
//! about.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use event::{ReservationHolder, clock::Timestamp};

pub const MAX_ANSWERS: usize = 4_096;
/// Stores that are kept by path for one answer.
const MAX_STORES: usize = 16;

/// What is known of one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The last answer of a store that could be read; `None` if none ever
    /// could.
    pub answer: Option<StoreAnswer>,
    /// Since when no store can be read, if none can now.
    pub silent: Option<Timestamp>,
    /// Some store once had it reserved. Otherwise the stores may be left over
    /// from another pod network.
    pub was_reserved: bool,
    asked: Timestamp,
}

/// What the stores said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAnswer {
    /// Who has the address; `None` if it is free in all of the stores.
    pub holder: Option<ReservationHolder>,
    pub stores: Vec<PathBuf>,
    /// Since when they have been saying so.
    pub since: Timestamp,
    /// They said something else before.
    pub is_news: bool,
}

impl Allocation {
    /// When the last answer was given, or none.
    pub fn asked(&self) -> Timestamp {
        self.asked
    }
}

#[derive(Debug, Default)]
pub struct Allocations {
    by_address: BTreeMap<IpAddr, Allocation>,
    dropped: u64,
}

impl Allocations {
    /// What is known of an address; `None` if it was never asked about.
    pub fn get(&self, address: IpAddr) -> Option<&Allocation> {
        self.by_address.get(&address)
    }

    /// Who has one of the addresses, by the last answers, and when each was
    /// given.
    pub(super) fn holders(&self) -> impl Iterator<Item = (&ReservationHolder, Timestamp)> {
        let known = self.by_address.values();
        known.filter_map(|known| Some((known.answer.as_ref()?.holder.as_ref()?, known.asked)))
    }

    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn answer(
        &mut self,
        address: IpAddr,
        time: Timestamp,
        stores: &[PathBuf],
        holder: Option<&ReservationHolder>,
    ) -> bool {
        if !self.by_address.contains_key(&address) && self.by_address.len() >= MAX_ANSWERS {
            self.dropped += 1;
            let oldest = self.by_address.iter().min_by_key(|(_, known)| known.asked);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.by_address.remove(&oldest);
            }
        }
        let mut changed = false;
        let known = self.by_address.entry(address).or_insert_with(|| {
            changed = true;
            Allocation {
                answer: None,
                silent: None,
                was_reserved: false,
                asked: time,
            }
        });
        known.asked = time;
        if stores.is_empty() {
            // Nobody answered: what was said before is still the last word.
            changed |= known.silent.is_none();
            known.silent.get_or_insert(time);
            return changed;
        }
        changed |= known.silent.take().is_some();
        known.was_reserved |= holder.is_some();
        let stores = &stores[..stores.len().min(MAX_STORES)];
        let same = |last: &&mut StoreAnswer| last.holder.as_ref() == holder;
        match known.answer.as_mut().filter(same) {
            Some(last) => {
                changed |= last.stores != stores;
                last.stores = stores.to_vec();
            }
            None => {
                let stores = stores.to_vec();
                known.answer = Some(StoreAnswer {
                    holder: holder.cloned(),
                    stores,
                    since: time,
                    is_news: known.answer.is_some(),
                });
                changed = true;
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::testing::*;

    #[test]
    fn an_answer_holds_since_it_was_first_given() {
        let mut table = Allocations::default();
        let stores = [PathBuf::from("/var/lib/cni/networks/pods")];
        let holder = reservation("old");
        assert!(table.answer(ip(5), s(1), &stores, Some(&holder)));
        assert!(!table.answer(ip(5), s(2), &stores, Some(&holder)));
        assert_eq!(
            table.get(ip(5)).unwrap().answer.as_ref().unwrap().since,
            s(1)
        );
        assert!(table.answer(ip(5), s(3), &stores, None));
        assert_eq!(
            table.get(ip(5)).unwrap().answer.as_ref().unwrap().since,
            s(3)
        );
    }

    #[test]
    fn silence_is_not_an_answer() {
        let mut table = Allocations::default();
        assert!(table.answer(ip(5), s(1), &[], None));
        assert_eq!(table.get(ip(5)).unwrap().answer, None);
        table.answer(
            ip(5),
            s(2),
            &[PathBuf::from("/a")],
            Some(&reservation("old")),
        );
        assert!(table.answer(ip(5), s(3), &[], None));
        let known = table.get(ip(5)).unwrap();
        assert_eq!(known.silent, Some(s(3)));
        assert!(
            known.answer.as_ref().unwrap().holder.is_some(),
            "the last word stays"
        );
    }

    #[test]
    fn a_full_table_forgets_what_was_asked_longest_ago() {
        let mut table = Allocations::default();
        for i in 0..=MAX_ANSWERS as u32 {
            let address = IpAddr::from(std::net::Ipv4Addr::from(i + 1));
            table.answer(address, s(i64::from(i)), &[], None);
        }
        assert_eq!(
            (table.by_address.len(), table.take_dropped()),
            (MAX_ANSWERS, 1)
        );
        assert!(table.get("0.0.0.1".parse().unwrap()).is_none());
    }
}
