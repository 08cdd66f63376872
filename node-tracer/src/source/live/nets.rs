//! Which network namespaces there are: kernel records and walks of the
//! kernel's list in, events out. No I/O.
//!
//! Where functions can be hooked, each record names its namespace and the walk
//! only fills gaps. With tracepoints, records say that something happened and
//! the walk says what: a namespace that is on the list and was not known has
//! been made; one whose count is zero is dying; one that is no longer on the
//! list is being taken down, and is destroyed once the run of `cleanup_net`
//! that may be about it has returned. Cookies are never reused, so the
//! comparison cannot mistake a successor for its predecessor.

use std::collections::{BTreeSet, HashMap};

use node_tracer_ebpf::record::{Net, Task as KernelTask};

use crate::event::{Address, Netns};

/// What the table concludes. Times are the kernel's, monotonic ns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// Made, by this task where known.
    Created(Netns, u64, Option<KernelTask>),
    /// Last reference gone, dropped by this task where known.
    Dying(Netns, u64, Option<KernelTask>),
    /// Taken down.
    Destroyed(Netns, u64),
    /// An address appeared.
    AddressAdded(Netns, u64, Address),
    /// An address is gone.
    AddressRemoved(Netns, u64, Address),
}

/// One namespace of a walk.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The namespace.
    pub(crate) net: Net,
    /// All its addresses.
    pub(crate) addresses: BTreeSet<Address>,
}

/// What is believed of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trust {
    /// No hook names the namespaces that are made.
    pub(crate) creations: bool,
    /// No hook names the namespaces that end.
    pub(crate) ends: bool,
    /// No hook names the addresses that change.
    pub(crate) addresses: bool,
}

/// A namespace that is not announced within this time of being seen on the
/// list is reported on the list's word, ns.
const ANNOUNCEMENT_GRACE: u64 = 60_000_000;
/// Where ends are announced: one that has been missing from the list for so
/// long was announced in a record that got lost, ns.
const LOST_AFTER: u64 = 30_000_000_000;
/// Namespaces kept; beyond, new ones are counted as lost.
const MAX_NETS: usize = 65_536;

#[derive(Debug)]
struct Known {
    net: Net,
    addresses: BTreeSet<Address>,
    reported: bool,
    first_seen: u64,
    dying: bool,
    missing_since: Option<u64>,
    maker: Option<KernelTask>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct NetTable {
    trust: Trust,
    /// By the address of `struct net`, which is unique among the living.
    known: HashMap<u64, Known>,
    /// `cleanup_net` runs since.
    cleanup_since: Option<u64>,
    cleanup_ended: u64,
    queued: Vec<(u64, KernelTask)>,
    /// Tasks that changed a device since the last walk.
    makers: Vec<KernelTask>,
    overflow: u64,
}

impl NetTable {
    /// An empty table.
    pub(crate) fn new(trust: Trust) -> Self {
        Self {
            trust,
            known: HashMap::new(),
            cleanup_since: None,
            cleanup_ended: 0,
            queued: Vec::new(),
            makers: Vec::new(),
            overflow: 0,
        }
    }

    /// Namespaces that could not be kept, since the last call.
    pub(crate) fn take_overflow(&mut self) -> u64 {
        std::mem::take(&mut self.overflow)
    }

    /// Takes in what was there at the start, without a word.
    pub(crate) fn seed(&mut self, seen: &[Seen], now: u64) {
        for Seen { net, addresses } in seen {
            if let Some(known) = self.insert(*net, now, None) {
                known.reported = true;
                known.addresses.clone_from(addresses);
                known.dying = net.refs == 0;
            }
        }
    }

    /// The living namespace with this inode number.
    pub(crate) fn by_inode(&self, inode: u32) -> Option<Netns> {
        let known = self.known.values().find(|known| known.net.inum == inode && !known.dying);
        known.map(|known| identity(known.net))
    }

    /// Namespaces that were reported and are not dying.
    pub(crate) fn living(&self) -> impl Iterator<Item = Netns> {
        let living = self.known.values().filter(|known| known.reported && !known.dying);
        living.map(|known| identity(known.net))
    }

    /// When a walk is wanted for namespaces that wait to be announced.
    pub(crate) fn unannounced(&self) -> Option<u64> {
        let waiting = self.known.values().filter(|known| !known.reported);
        waiting.map(|known| known.first_seen + ANNOUNCEMENT_GRACE).min()
    }

    fn insert(&mut self, net: Net, now: u64, maker: Option<KernelTask>) -> Option<&mut Known> {
        if self.known.len() >= MAX_NETS {
            self.overflow += 1;
            return None;
        }
        let known = Known {
            net,
            addresses: BTreeSet::new(),
            reported: false,
            first_seen: now,
            dying: false,
            missing_since: None,
            maker,
        };
        Some(self.known.entry(net.address).insert_entry(known).into_mut())
    }

    /// The entry of `net`. One that was known by its number alone gets the
    /// address that is told now.
    fn entry(&mut self, net: Net) -> Option<&mut Known> {
        let by_number = u64::from(net.inum);
        if net.address != by_number && !self.known.contains_key(&net.address) {
            if let Some(mut known) = self.known.remove(&by_number) {
                known.net.address = net.address;
                self.known.insert(net.address, known);
            }
        } else if net.address == by_number && !self.known.contains_key(&by_number) {
            // Listed by number: whoever has it, by whatever address.
            let address = self.known.values().find(|known| known.net.inum == net.inum);
            let address = address?.net.address;
            let known = self.known.get_mut(&address)?;
            return Self::same(known, net).then_some(known);
        }
        let known = self.known.get_mut(&net.address)?;
        Self::same(known, net).then_some(known)
    }

    /// Whether `net` is the namespace known at its address, and not a later
    /// one in the same place. A cookie given after creation is taken over.
    fn same(known: &mut Known, net: Net) -> bool {
        if known.net.inum != net.inum {
            return false;
        }
        if known.net.cookie == 0 {
            known.net.cookie = net.cookie;
        }
        net.cookie == 0 || known.net.cookie == net.cookie
    }

    /// What was at this address, and at this inode number, has ended unseen.
    fn evict(&mut self, net: Net, now: u64, out: &mut Vec<Change>) {
        let gone: Vec<u64> = self
            .known
            .iter()
            .filter(|(address, known)| **address == net.address || known.net.inum == net.inum)
            .map(|(address, _)| *address)
            .collect();
        for address in gone {
            self.end(address, now, out);
        }
    }

    fn end(&mut self, address: u64, time: u64, out: &mut Vec<Change>) {
        let Some(mut known) = self.known.remove(&address) else {
            return;
        };
        Self::report(&mut known, out);
        let netns = identity(known.net);
        if !known.dying {
            let time = known.missing_since.unwrap_or(time).min(time);
            out.push(Change::Dying(netns, time, None));
        }
        out.push(Change::Destroyed(netns, time));
    }

    fn report(known: &mut Known, out: &mut Vec<Change>) {
        if !known.reported {
            known.reported = true;
            let netns = identity(known.net);
            out.push(Change::Created(netns, known.first_seen, known.maker));
        }
    }

    /// A record says that `net` was made by `task`.
    pub(crate) fn created(&mut self, net: Net, time: u64, task: KernelTask, out: &mut Vec<Change>) {
        if let Some(known) = self.entry(net) {
            // The walk was quicker.
            known.maker = Some(task);
            known.first_seen = known.first_seen.min(time);
            Self::report(known, out);
            return;
        }
        self.evict(net, time, out);
        if let Some(known) = self.insert(net, time, Some(task)) {
            Self::report(known, out);
        }
    }

    /// A record says that the last reference to `net` is gone.
    pub(crate) fn dying(&mut self, net: Net, time: u64, task: KernelTask, out: &mut Vec<Change>) {
        if self.entry(net).is_none() {
            // Its creation was lost; its end need not be.
            self.evict(net, time, out);
            self.insert(net, time, None);
        }
        if let Some(known) = self.known.get_mut(&net.address) {
            Self::report(known, out);
            if !std::mem::replace(&mut known.dying, true) {
                out.push(Change::Dying(identity(known.net), time, Some(task)));
            }
        }
    }

    /// A record says that `net` was taken down.
    pub(crate) fn destroyed(&mut self, net: Net, time: u64, out: &mut Vec<Change>) {
        if let Some(known) = self.entry(net) {
            let address = known.net.address;
            self.end(address, time, out);
        }
    }

    /// `cleanup_net` was queued by `task`: the last reference to at least one
    /// namespace is gone.
    pub(crate) fn cleanup_queued(&mut self, time: u64, task: KernelTask) {
        self.queued.push((time, task));
    }

    /// `cleanup_net` has started.
    pub(crate) fn cleanup_started(&mut self, time: u64) {
        self.cleanup_since = Some(time);
    }

    /// `cleanup_net` has returned.
    pub(crate) fn cleanup_ended(&mut self, time: u64) {
        self.cleanup_since = None;
        self.cleanup_ended = time;
    }

    /// A device was made or changed by `task`.
    pub(crate) fn device_changed(&mut self, task: KernelTask) {
        if !self.makers.iter().any(|maker| maker.tid == task.tid) && self.makers.len() < 64 {
            self.makers.push(task);
        }
    }

    /// A record says that an address was added or removed.
    pub(crate) fn address(
        &mut self,
        net: Net,
        time: u64,
        address: Address,
        added: bool,
        out: &mut Vec<Change>,
    ) {
        let Some(known) = self.entry(net) else {
            return;
        };
        let netns = identity(known.net);
        if added && known.addresses.insert(address.clone()) {
            out.push(Change::AddressAdded(netns, time, address));
        } else if !added && known.addresses.remove(&address) {
            out.push(Change::AddressRemoved(netns, time, address));
        }
    }

    /// A walk of the kernel's list, begun at `time`. All records written
    /// before it must have been taken in.
    pub(crate) fn walked(&mut self, seen: Vec<Seen>, time: u64, out: &mut Vec<Change>) {
        let listed: HashMap<u64, Net> = seen
            .iter()
            .flat_map(|s| [(s.net.address, s.net), (u64::from(s.net.inum), s.net)])
            .collect();
        self.missing(&listed, time, out);
        let maker = match self.makers.as_slice() {
            [only] => Some(*only),
            _ => None,
        };
        let mut dying = Vec::new();
        for Seen { net, addresses } in seen {
            self.listed(net, addresses, maker, time, &mut dying, out);
        }
        // Which task dropped which reference is certain only for one of each.
        let queued = self.queued.last().map(|(time, _)| *time);
        let task = match (self.queued.as_slice(), dying.len()) {
            ([(_, task)], 1) => Some(*task),
            _ => None,
        };
        for netns in dying {
            out.push(Change::Dying(netns, queued.unwrap_or(time), task));
        }
        self.queued.clear();
        self.makers.clear();
    }

    fn listed(
        &mut self,
        net: Net,
        addresses: BTreeSet<Address>,
        maker: Option<KernelTask>,
        time: u64,
        dying: &mut Vec<Netns>,
        out: &mut Vec<Change>,
    ) {
        if self.entry(net).is_none() {
            self.evict(net, time, out);
            if self.insert(net, time, maker).is_none() {
                return;
            }
        }
        let trust = self.trust;
        let Some(known) = self.entry(net) else {
            return;
        };
        known.missing_since = None;
        let waited = time.saturating_sub(known.first_seen) >= ANNOUNCEMENT_GRACE;
        let has_addresses = trust.addresses && !addresses.is_empty();
        if net.refs == 0 || has_addresses || (waited && trust.creations) {
            Self::report(known, out);
        }
        if net.refs == 0 && trust.ends && !std::mem::replace(&mut known.dying, true) {
            dying.push(identity(known.net));
        }
        if trust.addresses {
            let netns = identity(known.net);
            for address in known.addresses.difference(&addresses) {
                out.push(Change::AddressRemoved(netns, time, address.clone()));
            }
            for address in addresses.difference(&known.addresses) {
                out.push(Change::AddressAdded(netns, time, address.clone()));
            }
            known.addresses = addresses;
        }
    }

    /// Looks for namespaces that are no longer on the list.
    fn missing(&mut self, listed: &HashMap<u64, Net>, time: u64, out: &mut Vec<Change>) {
        // The run of cleanup_net that is under way may be about those that
        // were missing before it began to return, and only that one: they are
        // done when it is.
        let busy = self.cleanup_since.is_some_and(|since| since <= time);
        let mut ended = Vec::new();
        for (address, known) in &mut self.known {
            let net = listed.get(address).or_else(|| {
                // A list by numbers has no addresses.
                let net = listed.get(&u64::from(known.net.inum));
                net.filter(|net| net.address == u64::from(net.inum))
            });
            if net.is_some_and(|net| Self::same(known, *net)) {
                continue;
            }
            let since = *known.missing_since.get_or_insert(time);
            let ends = match self.trust.ends {
                true => !busy || self.cleanup_ended > since,
                false => time.saturating_sub(since) > LOST_AFTER,
            };
            if ends {
                ended.push(*address);
            } else if self.trust.ends && !known.dying {
                Self::report(known, out);
                known.dying = true;
                let queued = self.queued.last().map_or(time, |(time, _)| *time);
                out.push(Change::Dying(identity(known.net), queued, None));
            }
        }
        for address in ended {
            let seen = self.known.get(&address).map_or(0, |known| known.first_seen);
            // The end of the run, unless that was before the namespace.
            let end = if self.cleanup_ended > seen { self.cleanup_ended } else { time };
            self.end(address, end, out);
        }
    }
}

/// A namespace's identity as events have it.
pub(crate) fn identity(net: Net) -> Netns {
    Netns { inode: net.inum, cookie: (net.cookie != 0).then_some(net.cookie) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACEPOINTS: Trust = Trust { creations: true, ends: true, addresses: true };
    const HOOKS: Trust = Trust { creations: false, ends: false, addresses: false };

    fn net(address: u64, cookie: u64, inum: u32, refs: i32) -> Net {
        Net { address, cookie, inum, refs }
    }

    fn task(tid: u32) -> KernelTask {
        KernelTask { tid, tgid: tid, ..KernelTask::default() }
    }

    fn seen(net: Net) -> Seen {
        Seen { net, addresses: BTreeSet::new() }
    }

    fn with_address(net: Net, address: &str) -> Seen {
        let address = Address {
            address: address.parse().unwrap(),
            prefix: 24,
            ifname: String::from("eth0"),
            link_kind: None,
        };
        Seen { net, addresses: BTreeSet::from([address]) }
    }

    fn id(cookie: u64, inode: u32) -> Netns {
        Netns { inode, cookie: Some(cookie) }
    }

    #[test]
    fn a_namespace_that_was_announced_is_reported_once() {
        let mut table = NetTable::new(TRACEPOINTS);
        let mut out = Vec::new();
        table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
        table.walked(vec![seen(net(1, 10, 100, 1))], 90_000_000, &mut out);
        table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
        assert_eq!(out, [Change::Created(id(10, 100), 5, Some(task(7)))]);
    }

    #[test]
    fn a_namespace_on_the_list_is_given_time_to_be_announced() {
        let mut table = NetTable::new(TRACEPOINTS);
        let mut out = Vec::new();
        table.device_changed(task(7));
        table.walked(vec![seen(net(1, 10, 100, 1))], 1_000_000, &mut out);
        assert_eq!(out, []);
        table.walked(vec![seen(net(1, 10, 100, 1))], 70_000_000, &mut out);
        assert_eq!(out, [Change::Created(id(10, 100), 1_000_000, Some(task(7)))]);
    }

    #[test]
    fn a_namespace_with_an_address_is_reported_before_the_address() {
        let mut table = NetTable::new(TRACEPOINTS);
        let mut out = Vec::new();
        table.walked(vec![with_address(net(1, 10, 100, 1), "10.0.0.2")], 1, &mut out);
        assert!(matches!(out[0], Change::Created(..)));
        assert!(matches!(out[1], Change::AddressAdded(..)));
    }

    #[test]
    fn a_count_of_zero_is_dying_and_the_end_of_the_run_is_destroyed() {
        let mut table = NetTable::new(TRACEPOINTS);
        let mut out = Vec::new();
        table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
        out.clear();
        table.cleanup_queued(10, task(8));
        table.walked(vec![seen(net(1, 10, 100, 0))], 11, &mut out);
        assert_eq!(out, [Change::Dying(id(10, 100), 10, Some(task(8)))]);
        out.clear();
        table.cleanup_started(12);
        table.walked(vec![], 13, &mut out);
        assert_eq!(out, [], "the run is under way");
        table.cleanup_ended(20);
        table.walked(vec![], 21, &mut out);
        assert_eq!(out, [Change::Destroyed(id(10, 100), 20)]);
    }

    #[test]
    fn a_namespace_of_the_next_run_is_not_destroyed_by_the_end_of_this_one() {
        let mut table = NetTable::new(TRACEPOINTS);
        let mut out = Vec::new();
        table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
        out.clear();
        table.cleanup_ended(20);
        table.cleanup_started(21);
        table.walked(vec![], 22, &mut out);
        assert_eq!(out, [Change::Dying(id(10, 100), 22, None)]);
        table.cleanup_ended(30);
        out.clear();
        table.walked(vec![], 31, &mut out);
        assert_eq!(out, [Change::Destroyed(id(10, 100), 30)]);
    }

    #[test]
    fn a_successor_at_the_same_place_with_the_same_number_is_another() {
        let mut table = NetTable::new(TRACEPOINTS);
        let mut out = Vec::new();
        table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
        out.clear();
        table.created(net(1, 11, 100, 1), 9, task(7), &mut out);
        assert_eq!(
            out,
            [
                Change::Dying(id(10, 100), 9, None),
                Change::Destroyed(id(10, 100), 9),
                Change::Created(id(11, 100), 9, Some(task(7))),
            ]
        );
    }

    #[test]
    fn a_cookie_that_is_given_later_is_taken_over() {
        let mut table = NetTable::new(HOOKS);
        let mut out = Vec::new();
        table.created(net(1, 0, 100, 1), 5, task(7), &mut out);
        table.walked(vec![seen(net(1, 42, 100, 1))], 6, &mut out);
        out.clear();
        table.dying(net(1, 42, 100, 0), 7, task(7), &mut out);
        table.destroyed(net(1, 42, 100, 0), 8, &mut out);
        assert_eq!(
            out,
            [
                Change::Dying(id(42, 100), 7, Some(task(7))),
                Change::Destroyed(id(42, 100), 8),
            ]
        );
    }

    #[test]
    fn with_hooks_the_walk_ends_nothing_until_a_record_must_have_been_lost() {
        let mut table = NetTable::new(HOOKS);
        let mut out = Vec::new();
        table.created(net(1, 10, 100, 1), 5, task(7), &mut out);
        out.clear();
        table.walked(vec![], 10, &mut out);
        assert_eq!(out, []);
        table.walked(vec![], 11 + LOST_AFTER, &mut out);
        assert!(matches!(out.as_slice(), [Change::Dying(..), Change::Destroyed(..)]));
    }

    #[test]
    fn a_namespace_known_by_number_gets_the_address_that_a_record_tells() {
        let mut table = NetTable::new(HOOKS);
        let mut out = Vec::new();
        table.seed(&[seen(net(100, 0, 100, -1))], 0);
        table.dying(net(0xffff_8880_0000_1000, 7, 100, 0), 5, task(1), &mut out);
        table.destroyed(net(0xffff_8880_0000_1000, 7, 100, 0), 6, &mut out);
        assert_eq!(
            out,
            [Change::Dying(id(7, 100), 5, Some(task(1))), Change::Destroyed(id(7, 100), 6)]
        );
    }

    #[test]
    fn a_list_by_numbers_finds_those_known_by_address() {
        let mut table = NetTable::new(TRACEPOINTS);
        let mut out = Vec::new();
        table.created(net(0xffff_8880_0000_1000, 7, 100, 1), 5, task(1), &mut out);
        out.clear();
        table.walked(vec![seen(net(100, 0, 100, -1))], 10, &mut out);
        assert_eq!(out, []);
        table.walked(vec![], 20, &mut out);
        assert!(matches!(out.as_slice(), [Change::Dying(..), Change::Destroyed(..)]));
    }

    #[test]
    fn addresses_are_compared_from_walk_to_walk() {
        let mut table = NetTable::new(TRACEPOINTS);
        let mut out = Vec::new();
        table.seed(&[with_address(net(1, 10, 100, 1), "10.0.0.2")], 0);
        table.walked(vec![with_address(net(1, 10, 100, 1), "10.0.0.3")], 1, &mut out);
        assert!(matches!(
            out.as_slice(),
            [Change::AddressRemoved(..), Change::AddressAdded(..)]
        ));
    }
}
