//! What is no longer there, from one look to the next: a look lists only what
//! is.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Snapshot;
use engine::model::{netns::NETNS, pods::deleted};
use event::{Address, Event, Netns, Pod, Task, What, clock::Timestamp};

/// What the last look found, as far as its going is an event. What could not
/// be read this time is not gone.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    netns: BTreeMap<u32, Netns>,
    addresses: HashMap<u32, HashSet<Address>>,
    blocked: HashMap<(u32, Option<u64>), (Task, Timestamp)>,
    pods: Option<Vec<Pod>>,
    /// There may have been more namespaces than it found, which was told.
    nets_partial: bool,
}

impl Differences {
    /// Takes in what a look has found. Returns what has gone since the one
    /// before, as of the time of the new look.
    pub(crate) fn next(&mut self, looked: &Snapshot) -> Vec<Event> {
        let mut new = Self {
            nets_partial: !looked.nets_whole,
            ..Self::default()
        };
        let mut time = None;
        for Event { time: at, what } in &looked.events {
            match what {
                What::NetnsFound { netns, .. } => {
                    time.get_or_insert(*at);
                    new.netns.insert(netns.inode, *netns);
                }
                What::AddressAdded { netns, address, .. } => {
                    let there = new.addresses.entry(netns.inode).or_default();
                    // It is the same one, whatever is found out about it.
                    there.insert(Address {
                        dad: None,
                        ..address.clone()
                    });
                }
                // This one was read, whether or not it has an address.
                What::NetnsDevices { netns, .. } => {
                    new.addresses.entry(netns.inode).or_default();
                }
                What::TaskBlocked { task, since, .. } => {
                    let key = (task.tid, task.start_ticks);
                    new.blocked.insert(key, (task.clone(), *since));
                }
                What::PodsListed { pods, .. } => new.pods = Some(pods.clone()),
                _ => {}
            }
        }
        let Some(time) = time else {
            self.nets_partial |= new.nets_partial;
            return Vec::new();
        };
        let mut gone = Vec::new();
        if self.nets_partial && !new.nets_partial {
            let source = NETNS.to_owned();
            gone.push(What::SourceRecovered { source });
        }
        self.gone_netns(looked, &mut new, &mut gone);
        self.gone_addresses(&mut new, &mut gone);
        for (key, (task, since)) in std::mem::take(&mut self.blocked) {
            if new.blocked.contains_key(&key) {
                continue;
            }
            if !looked.stalls_whole {
                new.blocked.insert(key, (task, since));
                continue;
            }
            let duration = time.since(since).as_millis();
            gone.push(What::TaskUnblocked {
                task,
                since,
                duration_ms: u64::try_from(duration).unwrap_or(u64::MAX),
            });
        }
        if let (Some(old), Some(new)) = (&self.pods, &new.pods) {
            let pods = deleted(old, new).into_iter();
            gone.extend(pods.map(|pod| What::PodDeleted { pod }));
        }
        // A list that could not be had this time is compared with the next.
        new.pods = new.pods.or(self.pods.take());
        *self = new;
        Event::all_of(time, gone)
    }

    fn gone_netns(&mut self, looked: &Snapshot, new: &mut Self, gone: &mut Vec<What>) {
        for (inode, old) in std::mem::take(&mut self.netns) {
            let successor = new.netns.get(&inode).is_some_and(
                |other| matches!((old.cookie, other.cookie), (Some(a), Some(b)) if a != b),
            );
            if successor || (looked.nets_whole && !looked.seen.contains(&inode)) {
                gone.push(What::NetnsDestroyed { netns: old });
                self.addresses.remove(&inode);
            } else {
                let known = new.netns.entry(inode).or_insert(old);
                known.cookie = known.cookie.or(old.cookie);
            }
        }
    }

    fn gone_addresses(&mut self, new: &mut Self, gone: &mut Vec<What>) {
        for (inode, old) in std::mem::take(&mut self.addresses) {
            let Some(netns) = new.netns.get(&inode).copied() else {
                continue;
            };
            match new.addresses.get(&inode) {
                Some(now) => gone.extend(old.difference(now).map(|address| What::AddressRemoved {
                    netns,
                    address: address.clone(),
                })),
                None => drop(new.addresses.insert(inode, old)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::testing::*;

    fn look(events: &[Event]) -> Snapshot {
        let netns = events.iter().filter_map(|event| match &event.what {
            What::NetnsFound { netns, .. } => Some(netns.inode),
            _ => None,
        });
        Snapshot {
            seen: netns.collect(),
            events: events.to_vec(),
            nets_whole: true,
            stalls_whole: true,
            ..Snapshot::default()
        }
    }

    fn read(seconds: i64, inode: u32) -> Event {
        at(
            seconds,
            What::NetnsDevices {
                netns: ns(inode),
                devices: Vec::new(),
                routes: Vec::new(),
                neighbours: Vec::new(),
                host_nsid: None,
            },
        )
    }

    #[test]
    fn what_is_not_found_again_is_gone() {
        let mut differences = Differences::default();
        let first = [
            found(0, 100),
            found(0, 200),
            added(0, 100, 5),
            added(0, 200, 6),
            stuck(0, 9, 100),
            listed(0, &[pod("a", OLD, &[]), pod("b", NEW, &[])]),
        ];
        assert_eq!(differences.next(&look(&first)), []);
        let second = [found(2, 100), added(2, 100, 7)];
        let gone: Vec<What> = differences
            .next(&look(&second))
            .into_iter()
            .map(|event| event.what)
            .collect();
        assert_eq!(gone.len(), 3, "{gone:#?}");
        assert!(gone.contains(&What::NetnsDestroyed { netns: ns(200) }));
        assert!(gone.iter().any(|what| matches!(
            what,
            What::AddressRemoved { netns, address } if *netns == ns(100) && address.address == ip(5)
        )));
        assert!(gone.iter().any(|what| matches!(
            what,
            What::TaskUnblocked {
                duration_ms: 2_000,
                ..
            }
        )));
        let third = [found(3, 100), listed(3, &[pod("b", NEW, &[])])];
        let gone = differences.next(&look(&third));
        assert!(
            gone.iter().any(|event| matches!(
                &event.what,
                What::PodDeleted { pod } if pod.uid.as_deref() == Some(OLD)
            )),
            "the list is compared with the last that there was: {gone:#?}"
        );
    }

    #[test]
    fn what_could_not_be_read_is_not_gone() {
        let mut differences = Differences::default();
        let first = [
            found(0, 100),
            added(0, 100, 5),
            found(0, 200),
            stuck(0, 9, 100),
        ];
        differences.next(&look(&first));
        // Neither the namespaces nor the stuck tasks could all be listed.
        let partial = Snapshot {
            nets_whole: false,
            stalls_whole: false,
            ..look(&[found(1, 300)])
        };
        assert_eq!(differences.next(&partial), []);
        // The namespace is there, but it could not be entered. All were found.
        let source = NETNS.to_owned();
        assert_eq!(
            differences.next(&look(&[
                found(2, 100),
                stuck(0, 9, 100),
                found(2, 200),
                found(2, 300)
            ])),
            [at(2, What::SourceRecovered { source })]
        );
        let all = [found(3, 100), read(3, 100), stuck(0, 9, 100)];
        let gone: Vec<What> = differences
            .next(&look(&all))
            .into_iter()
            .map(|event| event.what)
            .collect();
        assert_eq!(gone.len(), 3, "{gone:#?}");
        assert!(matches!(gone[2], What::AddressRemoved { .. }), "{gone:#?}");
    }

    #[test]
    fn that_all_namespaces_were_found_is_told_after_it_was_not_so() {
        let mut differences = Differences::default();
        let partial = |events: &[Event]| Snapshot {
            nets_whole: false,
            ..look(events)
        };
        assert_eq!(differences.next(&look(&[found(0, 100)])), []);
        assert_eq!(differences.next(&partial(&[found(1, 100)])), []);
        assert_eq!(differences.next(&partial(&[])), [], "nothing was found");
        let source = NETNS.to_owned();
        assert_eq!(
            differences.next(&look(&[found(3, 100)])),
            [at(3, What::SourceRecovered { source })]
        );
        assert_eq!(differences.next(&look(&[found(4, 100)])), [], "once");
    }

    #[test]
    fn another_namespace_of_the_same_number_is_not_the_same() {
        let mut differences = Differences::default();
        differences.next(&look(&[found(0, 100)]));
        let mut other = found(1, 100);
        if let What::NetnsFound { netns, .. } = &mut other.what {
            netns.cookie = Some(7);
        }
        let gone = differences.next(&look(&[other]));
        assert_eq!(gone.len(), 1, "{gone:#?}");
        assert_eq!(gone[0].what, What::NetnsDestroyed { netns: ns(100) });
    }

    #[test]
    fn a_look_that_found_nothing_says_nothing() {
        let mut differences = Differences::default();
        differences.next(&look(&[found(0, 100)]));
        assert_eq!(differences.next(&look(&[])), []);
        assert_eq!(differences.next(&look(&[found(1, 100)])), []);
    }
}
