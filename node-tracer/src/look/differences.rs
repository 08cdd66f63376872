//! What is no longer there, from one look to the next: a look lists only what
//! is.

use std::collections::{HashMap, HashSet};

use crate::{
    clock::Timestamp,
    event::{Address, Event, Netns, Pod, Task, What},
    model::pods::deleted,
};

/// What the last look found, as far as its going is an event.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    netns: HashSet<Netns>,
    addresses: HashSet<(Netns, Address)>,
    blocked: HashMap<(u32, Option<u64>), (Task, Timestamp)>,
    pods: Option<Vec<Pod>>,
}

impl Differences {
    /// Takes in what a look has found. Returns what has gone since the one
    /// before, as of the time of the new look.
    pub(crate) fn next(&mut self, found: &[Event]) -> Vec<Event> {
        let mut new = Self::default();
        let mut time = None;
        for Event { time: at, what } in found {
            match what {
                What::NetnsFound { netns, .. } => {
                    time.get_or_insert(*at);
                    new.netns.insert(*netns);
                }
                What::AddressAdded { netns, address, .. } => {
                    new.addresses.insert((*netns, address.clone()));
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
            return Vec::new();
        };
        let mut gone = Vec::new();
        let gone_netns = self.netns.difference(&new.netns);
        gone.extend(gone_netns.map(|netns| What::NetnsDestroyed { netns: *netns }));
        let removed = self.addresses.difference(&new.addresses);
        let removed = removed.filter(|(netns, _)| new.netns.contains(netns));
        gone.extend(removed.map(|(netns, address)| What::AddressRemoved {
            netns: *netns,
            address: address.clone(),
        }));
        for (key, (task, since)) in &self.blocked {
            if !new.blocked.contains_key(key) {
                let duration = time.since(*since).as_millis();
                gone.push(What::TaskUnblocked {
                    task: task.clone(),
                    since: *since,
                    duration_ms: u64::try_from(duration).unwrap_or(u64::MAX),
                });
            }
        }
        if let (Some(old), Some(new)) = (&self.pods, &new.pods) {
            let pods = deleted(old, new).into_iter();
            gone.extend(pods.map(|pod| What::PodDeleted { pod }));
        }
        // A list that could not be had this time is compared with the next.
        new.pods = new.pods.or(self.pods.take());
        *self = new;
        gone.into_iter().map(|what| Event { time, what }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::story::*;

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
        assert_eq!(differences.next(&first), []);
        let second = [found(2, 100), added(2, 100, 7)];
        let gone: Vec<What> = differences.next(&second).into_iter().map(|e| e.what).collect();
        assert_eq!(gone.len(), 3, "{gone:#?}");
        assert!(gone.contains(&What::NetnsDestroyed { netns: ns(200) }));
        assert!(gone.iter().any(|what| matches!(
            what,
            What::AddressRemoved { netns, address } if *netns == ns(100) && address.address == ip(5)
        )));
        assert!(gone.iter().any(|what| matches!(
            what,
            What::TaskUnblocked { duration_ms: 2_000, .. }
        )));
        let third = [found(3, 100), listed(3, &[pod("b", NEW, &[])])];
        let gone = differences.next(&third);
        assert!(
            gone.iter().any(|event| matches!(
                &event.what,
                What::PodDeleted { pod } if pod.uid.as_deref() == Some(OLD)
            )),
            "the list is compared with the last that there was: {gone:#?}"
        );
    }

    #[test]
    fn a_look_that_found_nothing_says_nothing() {
        let mut differences = Differences::default();
        differences.next(&[found(0, 100)]);
        assert_eq!(differences.next(&[]), []);
        assert_eq!(differences.next(&[found(1, 100)]), []);
    }
}
