//! Namespaces of users' own: in a user namespace that a user has made.
//!
//! They are nobody's rivals, and everybody can make any number of them, so
//! nothing that is done in them is a record. They are compared with what was on
//! the list before, in a table, with room and with a budget of their own.

use std::collections::{BTreeSet, HashMap};

use node_tracer_ebpf::record::Net;

use super::{
    SECOND,
    allowance::Allowance,
    nets::{Change, ListedNet, identity},
};
use event::{Address, Netns};

/// Namespaces that are followed.
const MAX_NETS: usize = 1_024;
const MAX_ADDRESSES: usize = 16;
/// Between two comparisons at least, ns.
const PAUSE: u64 = 2 * SECOND;
/// Changes that are told at once, and in a minute after that.
const AT_ONCE: u32 = 1_024;
const A_MINUTE: u32 = 256;
/// Between two times that it is told how many are not followed, ns.
const TOLD_PAUSE: u64 = 60 * SECOND;

#[derive(Debug)]
pub(super) struct UserNets {
    /// By the address of their `struct net`.
    known: HashMap<u64, FollowedNet>,
    budget: Allowance,
    not_before: u64,
    /// Those of the last list that are not followed.
    others: Others,
    told: (Others, u64),
}

/// Namespaces that are not followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Others {
    pub(super) count: u64,
    /// The user who has most of them.
    pub(super) uid: Option<u32>,
}

#[derive(Debug)]
struct FollowedNet {
    net: Net,
    addresses: BTreeSet<Address>,
}

impl UserNets {
    pub(super) fn new() -> Self {
        Self {
            known: HashMap::new(),
            budget: Allowance::new(AT_ONCE, A_MINUTE),
            not_before: 0,
            others: Others::default(),
            told: Default::default(),
        }
    }

    /// Takes in those that are there at the start; returns which are followed.
    pub(super) fn seed(
        &mut self,
        seen: Vec<ListedNet>,
        time: u64,
        out: &mut Vec<Change>,
    ) -> Vec<Net> {
        let mut followed = Vec::new();
        let mut changes = Vec::new();
        self.compare(seen, true, time, &mut changes);
        for change in changes {
            match change {
                Change::AddressAdded(netns, time, address) => {
                    out.push(Change::AddressFound(netns, time, address));
                }
                Change::Created(..) => {}
                other => out.push(other),
            }
        }
        followed.extend(self.known.values().map(|known| known.net));
        followed.sort_unstable_by_key(|net| net.inum);
        followed
    }

    /// Takes in those of a list, which lacks none if it is `whole`.
    pub(super) fn listed(
        &mut self,
        seen: Vec<ListedNet>,
        whole: bool,
        time: u64,
        out: &mut Vec<Change>,
    ) {
        if time >= self.not_before {
            self.not_before = time + PAUSE;
            self.compare(seen, whole, time, out);
        }
    }

    fn compare(&mut self, seen: Vec<ListedNet>, whole: bool, time: u64, out: &mut Vec<Change>) {
        let listed: HashMap<u64, Net> = seen
            .iter()
            .map(|seen| (seen.net.address, seen.net))
            .collect();
        let mut changes = Vec::new();
        let mut budget = Room(&mut self.budget, time);
        self.known.retain(|address, known| {
            let same = listed
                .get(address)
                .is_some_and(|net| is_same(net, &known.net));
            let stays = same || !whole && !listed.contains_key(address);
            if stays || !budget.left() {
                return true;
            }
            let netns = identity(known.net);
            budget.tell(&mut changes, Change::Dying(netns, time, None));
            budget.tell(&mut changes, Change::Destroyed(netns, time));
            false
        });
        self.others = Others::default();
        let mut others: HashMap<u32, u64> = HashMap::new();
        for ListedNet { net, addresses, .. } in seen {
            let room = self.known.len() < MAX_NETS && budget.left();
            let known = match self.known.get_mut(&net.address) {
                // Its end waits to be told.
                Some(known) if !is_same(&net, &known.net) => continue,
                Some(known) => known,
                None if room => {
                    let netns = identity(net);
                    budget.tell(&mut changes, Change::Created(netns, time, None, net.user));
                    let addresses = BTreeSet::new();
                    self.known
                        .entry(net.address)
                        .or_insert(FollowedNet { net, addresses })
                }
                None => {
                    self.others.count += 1;
                    *others.entry(net.user.owner).or_default() += 1;
                    continue;
                }
            };
            if let Some(addresses) = addresses.filter(|_| budget.left()) {
                let netns = identity(known.net);
                let addresses = addresses.into_iter().take(MAX_ADDRESSES);
                // Who else has one that is nobody's rival is of no interest.
                let addresses = addresses.map(|address| Address {
                    dad: None,
                    ..address
                });
                let now: BTreeSet<Address> = addresses.collect();
                for gone in known.addresses.difference(&now) {
                    let gone = Change::AddressRemoved(netns, time, gone.clone());
                    budget.tell(&mut changes, gone);
                }
                for added in now.difference(&known.addresses) {
                    let added = Change::AddressAdded(netns, time, added.clone());
                    budget.tell(&mut changes, added);
                }
                known.addresses = now;
            }
        }
        let most = others.into_iter().max_by_key(|(uid, count)| (*count, *uid));
        self.others.uid = most.map(|(uid, _)| uid);
        out.append(&mut changes);
    }

    /// Another table has it from now on; whether it was in this one.
    pub(super) fn forget(&mut self, net: &Net) -> bool {
        let known = self.known.get(&net.address);
        let same = known.is_some_and(|known| is_same(net, &known.net));
        same && self.known.remove(&net.address).is_some()
    }

    /// Those that are followed.
    pub(super) fn living(&self) -> impl Iterator<Item = Netns> {
        self.known.values().map(|known| identity(known.net))
    }

    /// Whether something of this size, in changes, may be told of a namespace:
    /// there is room for it, or it is none of these.
    pub(super) fn tells(&mut self, netns: Netns, size: usize, time: u64) -> bool {
        if !self
            .known
            .values()
            .any(|known| identity(known.net) == netns)
        {
            return true;
        }
        let room = self.budget.has_room(time);
        self.budget.spend(if room { size } else { 0 });
        room
    }

    /// Those that are not followed, if it is time to tell how many there are.
    pub(super) fn others(&mut self, time: u64) -> Option<Others> {
        let (told, at) = &self.told;
        let due = *told != self.others && (*at == 0 || time >= at + TOLD_PAUSE);
        due.then(|| {
            self.told = (self.others.clone(), time);
            self.others.clone()
        })
    }
}

fn is_same(net: &Net, known: &Net) -> bool {
    net.inum == known.inum && net.cookie == known.cookie
}

/// What is left of the budget.
struct Room<'a>(&'a mut Allowance, u64);

impl Room<'_> {
    fn left(&mut self) -> bool {
        self.0.has_room(self.1)
    }

    fn tell(&mut self, changes: &mut Vec<Change>, change: Change) {
        self.0.spend(1);
        changes.push(change);
    }
}

#[cfg(test)]
mod tests {
    use node_tracer_ebpf::record::NetUser;

    use super::*;

    fn net(number: u32) -> Net {
        Net {
            address: 0xffff_0000_0000_0000 + u64::from(number),
            cookie: number.into(),
            inum: number,
            refs: 1,
            user: NetUser {
                inum: 7,
                owner: 1_000,
            },
        }
    }

    fn seen(number: u32, addresses: std::ops::Range<u8>) -> ListedNet {
        let address = |last| Address {
            address: [10, 0, 0, last].into(),
            prefix: 24,
            ifname: "eth0".into(),
            link_kind: None,
            dad: None,
        };
        ListedNet {
            net: net(number),
            addresses: Some(addresses.map(address).collect()),
            cut: false,
            left_out: 0,
        }
    }

    fn compared(nets: &mut UserNets, seen: Vec<ListedNet>, second: u64) -> Vec<Change> {
        let mut out = Vec::new();
        nets.listed(seen, true, second * SECOND, &mut out);
        out
    }

    #[test]
    fn what_is_on_the_list_is_told_once_and_its_end_when_it_is_no_longer() {
        let mut nets = UserNets::new();
        assert_eq!(compared(&mut nets, vec![seen(1, 0..2)], 2).len(), 3);
        assert_eq!(compared(&mut nets, vec![seen(1, 0..2)], 4), []);
        assert_eq!(compared(&mut nets, vec![seen(1, 1..2)], 6).len(), 1);
        let ended = compared(&mut nets, vec![], 8);
        assert!(matches!(
            ended[..],
            [Change::Dying(..), Change::Destroyed(..)]
        ));
    }

    #[test]
    fn who_makes_and_changes_without_end_is_told_of_within_a_budget() {
        let mut nets = UserNets::new();
        let told: usize = (1..=600)
            .map(|round: u32| {
                let all = (0..2_000).map(|one| seen(round * 2_000 + one, 0..10));
                compared(&mut nets, all.collect(), 2 * u64::from(round)).len()
            })
            .sum();
        let most = AT_ONCE + 20 * A_MINUTE + 600 * MAX_ADDRESSES as u32;
        assert!(told <= most as usize, "{told}");
        assert!(nets.known.len() <= MAX_NETS);
        let others = nets.others(2_000 * SECOND).unwrap();
        assert!(
            others.count > 900 && others.uid == Some(1_000),
            "{others:?}"
        );
        assert_eq!(nets.others(2_001 * SECOND), None);
    }

    #[test]
    fn a_list_that_may_lack_some_ends_none() {
        let mut nets = UserNets::new();
        compared(&mut nets, vec![seen(1, 0..1)], 2);
        let mut out = Vec::new();
        nets.listed(Vec::new(), false, 4 * SECOND, &mut out);
        assert_eq!(out, []);
    }
}
