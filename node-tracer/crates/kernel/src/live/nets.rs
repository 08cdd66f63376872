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
//!
//! A namespace leaves the list when `cleanup_net` begins with it, so one that
//! is missing can still be being taken down, for hours. That a record of its
//! end was lost is believed only if records were lost since it was last listed,
//! or if no run was heard of that can have taken it off the list, and the
//! kernel's worker was then seen at rest.

use std::collections::{BTreeSet, HashMap};

use node_tracer_ebpf::record::{Net, NetUser, Task as KernelTask};

use foldhash::fast::RandomState;

use self::held::{Held, Marked};
use super::allowance::Allowance;
use event::{Address, Dad, Netns, has_room};

/// What the table concludes. Times are the kernel's, monotonic ns.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// Made, by this task where known; whose it is.
    Created(Netns, u64, Option<KernelTask>, NetUser),
    /// Last reference gone, dropped by this task where known.
    Dying(Netns, u64, Option<KernelTask>),
    Destroyed(Netns, u64),
    /// Or another host has it, or has it no more.
    AddressAdded(Netns, u64, Address),
    /// An address is found that was there at the start.
    AddressFound(Netns, u64, Address),
    /// An address is gone.
    AddressRemoved(Netns, u64, Address),
}

/// One namespace of a walk.
#[derive(Clone, Debug)]
pub(super) struct ListedNet {
    pub net: Net,
    /// All its addresses; `None` if they could not be read.
    pub addresses: Option<BTreeSet<Address>>,
    /// There can be more: these are the first of those that it has.
    pub cut: bool,
    /// So many are there and are not among them, whoever reads on.
    pub left_out: u64,
}

/// A list of namespaces, made between two times.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub nets: Vec<ListedNet>,
    /// Nothing that leads to a namespace was left out for not being readable.
    pub whole: bool,
    /// What was told before is on it, monotonic ns.
    pub start: u64,
    /// What is not on it was off the kernel's list by then, monotonic ns.
    pub end: u64,
}

/// What is believed of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trust {
    /// No hook names the namespaces that are made.
    pub creations: bool,
    /// No hook names the namespaces that end.
    pub ends: bool,
    /// Records tell when `cleanup_net` begins and returns.
    pub runs: bool,
    /// The list is the kernel's own. A comparison of `/proc` lacks those that
    /// only a descriptor or a socket keeps.
    pub list: bool,
}

/// A namespace that is not announced within this time of being seen on the
/// list is reported on the list's word, ns.
const ANNOUNCEMENT_GRACE: u64 = 60_000_000;
/// The same where a hook announces each: only a lost record takes so long, ns.
const HOOK_GRACE: u64 = 1_000_000_000;
/// Where records were lost, and nothing better tells: one that has been missing
/// from a comparison for so long was announced in one of those, ns.
const LOST_AFTER: u64 = 30_000_000_000;
/// How long after its loopback device a namespace is on the list at the
/// latest, ns.
const MAKING: u64 = 10_000_000;
/// Tasks that changed a device and are remembered.
const MAX_MAKERS: usize = 64;
/// A reading of addresses that changed meanwhile can have missed some of them,
/// but hardly the same ones so often in a row.
const TORN_READINGS: u32 = 2;
/// Changes of the addresses of one namespace that are told at once, and in a
/// minute after that: a pod that is allowed to make any can do so without end.
const CHANGES_AT_ONCE: u32 = 8_192;
const CHANGES_A_MINUTE: u32 = 1_024;
/// Namespaces kept; beyond, new ones are counted as lost.
const MAX_NETS: usize = 65_536;

#[derive(Debug)]
struct NetRow {
    net: Net,
    addresses: Held,
    /// Number of the last reading of its addresses.
    reading: u32,
    /// The last list had not all of its addresses: they are to be read on.
    cut: bool,
    /// It was there at the start, and its addresses have not all been read.
    found: Option<u64>,
    /// Addresses that it has and that are not kept, as of the last reading.
    left_out: u64,
    /// Those of the reading that goes on.
    refused: u64,
    reported: bool,
    /// A record has announced it, or it was there at the start.
    announced: bool,
    first_seen: u64,
    dying: bool,
    /// When it was last on the list, or was made known otherwise.
    listed: u64,
    missing_since: Option<u64>,
    maker: Option<KernelTask>,
    /// Whose it is was not known when it was reported, and has not been told
    /// since.
    learned: bool,
    /// Changes of its addresses that may be told.
    budget: Allowance,
}

#[derive(Debug)]
pub(super) struct NetTable {
    trust: Trust,
    /// By the address of `struct net`, which is unique among the living.
    known: HashMap<u64, NetRow, RandomState>,
    /// Their addresses, by inode number.
    by_inode: HashMap<u32, u64, RandomState>,
    /// Namespaces that were reported before it was known whose they are.
    learned: Vec<(Netns, NetUser)>,
    /// `cleanup_net` runs since.
    cleanup_since: Option<u64>,
    cleanup_ended: u64,
    /// When `cleanup_net` was last queued.
    queued: Option<u64>,
    /// When records were last found to be lost.
    lost: Option<u64>,
    /// Tasks that changed a device since the last walk.
    makers: Vec<(u64, KernelTask)>,
    overflow: u64,
    addresses: usize,
    /// The host's namespaces: only root changes them.
    pub host: Hosts,
}

/// The host's network namespaces, by inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hosts {
    /// That of process 1.
    pub(super) first: u32,
    /// The kernel's own threads are in another.
    pub(super) are_two: bool,
    /// The node's, if it was told.
    pub(super) node: Option<u32>,
}

impl Hosts {
    pub(super) fn has(self, inode: u32) -> bool {
        inode == self.first || Some(inode) == self.node
    }
}

impl NetTable {
    pub(super) fn new(trust: Trust) -> Self {
        Self {
            trust,
            known: HashMap::default(),
            by_inode: HashMap::default(),
            learned: Vec::new(),
            cleanup_since: None,
            cleanup_ended: 0,
            queued: None,
            lost: None,
            makers: Vec::new(),
            overflow: 0,
            addresses: 0,
            host: Hosts::default(),
        }
    }

    /// Namespaces that could not be kept, since the last call.
    pub(super) fn take_overflow(&mut self) -> u64 {
        std::mem::take(&mut self.overflow)
    }

    /// Namespaces that were reported before it was known whose they are, and
    /// whose they are; each once.
    pub(super) fn take_learned(&mut self) -> Vec<(Netns, NetUser)> {
        std::mem::take(&mut self.learned)
    }

    /// Takes in what was there at the start.
    pub(super) fn seed(&mut self, seen: Vec<ListedNet>, now: u64, out: &mut Vec<Change>) {
        for ListedNet {
            net,
            addresses,
            cut,
            left_out,
        } in seen
        {
            let Some(known) = self.insert(net, now, None) else {
                continue;
            };
            known.reported = true;
            known.announced = true;
            known.dying = net.refs == 0;
            known.found = Some(now);
            self.read(net, now, &addresses.unwrap_or_default(), out);
            if let Some(known) = self.known.get_mut(&net.address) {
                known.cut = cut;
                known.left_out = std::mem::take(&mut known.refused) + left_out;
                known.found = known.found.filter(|_| cut);
            }
        }
    }

    /// How many namespaces there are.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Addresses that are there and are not kept.
    pub(super) fn left_out(&self) -> u64 {
        self.known.values().map(|known| known.left_out).sum()
    }

    /// Namespaces of which the last list had not all addresses, and that these
    /// may be told of.
    pub(super) fn cut(&mut self, time: u64) -> impl Iterator<Item = Net> {
        let host = self.host;
        let all = self.known.values_mut();
        all.filter_map(move |known| {
            let told = host.has(known.net.inum) || known.budget.has_room(time);
            (known.cut && told).then_some(known.net)
        })
    }

    /// Whether it is in the table.
    pub(super) fn has(&mut self, net: Net) -> bool {
        self.entry(net).is_some()
    }

    /// The addresses of a namespace are about to be read, from the first one.
    pub(super) fn reads(&mut self, net: Net) {
        if let Some(known) = self.entry(net) {
            known.reading += 1;
            known.refused = 0;
        }
    }

    /// Some addresses of a namespace, of a reading that goes on.
    pub(super) fn read(
        &mut self,
        net: Net,
        time: u64,
        addresses: &BTreeSet<Address>,
        out: &mut Vec<Change>,
    ) {
        let (all, host) = (self.addresses, self.host);
        let Some(known) = self.entry(net) else {
            return;
        };
        let is_counted = known.found.is_none() && !host.has(known.net.inum);
        if !addresses.is_empty() {
            Self::report(known, out);
        }
        let before = known.addresses.len();
        let netns = identity(known.net);
        for address in addresses {
            let own = known.addresses.len();
            match known.addresses.mark(address, known.reading) {
                Marked::AsBefore => continue,
                Marked::Changed => {}
                Marked::Absent if !has_room(own, all + own - before) => {
                    known.refused += 1;
                    continue;
                }
                // It is read again when it may be told.
                Marked::Absent if is_counted && known.budget.room() == 0 => {
                    known.refused += 1;
                    known.cut = true;
                    continue;
                }
                Marked::Absent => known.addresses.insert(address, known.reading),
            }
            // That one is tentative ends by itself, within seconds.
            let address = Address {
                dad: address.dad.filter(|dad| *dad == Dad::Failed),
                ..address.clone()
            };
            known.budget.spend(usize::from(is_counted));
            out.push(match known.found {
                Some(time) => Change::AddressFound(netns, time, address),
                None => Change::AddressAdded(netns, time, address),
            });
        }
        self.addresses += known.addresses.len() - before;
    }

    /// A reading has come to the end of the addresses, or has passed over some;
    /// `torn`: they changed meanwhile, so that it may have missed some.
    pub(super) fn has_read(
        &mut self,
        net: Net,
        time: u64,
        passed_over: u64,
        torn: bool,
        out: &mut Vec<Change>,
    ) {
        let oldest = if torn { TORN_READINGS } else { 0 };
        let gone = self.gone(net, passed_over, oldest);
        for address in gone {
            let known = self.known.get(&net.address);
            let alike = known.and_then(|known| known.addresses.alike(&address));
            let netns = self.identify(net);
            out.push(Change::AddressRemoved(netns, time, address));
            // Whoever is told takes the two for one.
            out.extend(alike.map(|address| Change::AddressAdded(netns, time, address)));
        }
    }

    /// Takes out the addresses of a namespace that the last readings, so many
    /// and the one that has ended now, have not come across.
    fn gone(&mut self, net: Net, passed_over: u64, readings: u32) -> Vec<Address> {
        let host = self.host;
        let Some(known) = self.entry(net) else {
            return Vec::new();
        };
        let is_host = host.has(known.net.inum);
        known.found = None;
        known.left_out = std::mem::take(&mut known.refused) + passed_over;
        let oldest = known.reading.saturating_sub(readings);
        let most = if is_host {
            usize::MAX
        } else {
            known.budget.room()
        };
        let gone = known.addresses.take_older(oldest, most);
        if !is_host {
            known.budget.spend(gone.len());
            if gone.len() == most {
                // There may be more that are gone.
                known.cut = true;
                known.left_out = known.left_out.max(1);
            }
        }
        self.addresses -= gone.len();
        gone
    }

    /// The living namespace with this inode number, reported now if it has
    /// not been: somebody else spoke of it at `time`, so it was there then,
    /// however late it was found.
    pub(super) fn claim(&mut self, inode: u32, time: u64, out: &mut Vec<Change>) -> Option<Netns> {
        let known = self.known.get_mut(self.by_inode.get(&inode)?)?;
        if known.net.inum != inode || known.dying {
            return None;
        }
        known.first_seen = known.first_seen.min(time);
        Self::report(known, out);
        Some(identity(known.net))
    }

    /// Whether somebody holds the namespace with this inode number, for all that is
    /// known.
    pub(super) fn lives(&self, inode: u32) -> bool {
        let known = self.by_inode.get(&inode);
        let known = known.and_then(|address| self.known.get(address));
        known.is_some_and(|known| !known.dying && known.missing_since.is_none())
    }

    /// Namespaces that were reported and are not dying.
    pub(super) fn living(&self) -> impl Iterator<Item = Netns> {
        let living = self
            .known
            .values()
            .filter(|known| known.reported && !known.dying);
        living.map(|known| identity(known.net))
    }

    /// When a walk is wanted for namespaces that wait to be announced.
    pub(super) fn unannounced(&self) -> Option<u64> {
        let waiting = self.known.values().filter(|known| !known.reported);
        waiting.map(|known| known.first_seen + self.grace()).min()
    }

    /// Namespaces are missing from the list and not yet destroyed, for all
    /// that is known: another walk will tell.
    pub(super) fn has_missing(&self) -> bool {
        self.trust.ends
            && self
                .known
                .values()
                .any(|known| known.missing_since.is_some())
    }

    /// How long one on the list may take to be announced.
    fn grace(&self) -> u64 {
        if self.trust.creations {
            ANNOUNCEMENT_GRACE
        } else {
            HOOK_GRACE
        }
    }

    /// By this time records were lost, the end of a namespace or of a run of
    /// `cleanup_net` perhaps among them.
    pub(super) fn records_lost(&mut self, time: u64) {
        self.lost = Some(time);
    }

    /// The end of a namespace that is missing may be among what was lost: the
    /// kernel's worker is to be looked at.
    pub(super) fn in_doubt(&self) -> bool {
        let mut missing = self.known.values().filter(|k| k.missing_since.is_some());
        missing.any(|known| self.lost_since_listed(known) || self.no_run_heard_of(known))
    }

    /// `cleanup_net` has taken it off the list, and neither is a run known to
    /// be under way nor one to have returned since: a record has been lost, or
    /// is still to come.
    fn no_run_heard_of(&self, known: &NetRow) -> bool {
        self.trust.runs && self.cleanup_since.is_none() && self.cleanup_ended <= known.listed
    }

    /// At this time `cleanup_net` was not under way, so that all runs that began
    /// before have returned.
    pub(super) fn worker_rests(&mut self, time: u64) {
        self.cleanup_ended(time);
    }

    fn lost_since_listed(&self, known: &NetRow) -> bool {
        self.lost.is_some_and(|lost| lost > known.listed)
    }

    /// The identity that events have of the namespace at this address. What is
    /// told of it here and was not known is taken over.
    pub(super) fn identify(&mut self, net: Net) -> Netns {
        identity(self.entry(net).map_or(net, |known| known.net))
    }

    fn insert(&mut self, net: Net, now: u64, maker: Option<KernelTask>) -> Option<&mut NetRow> {
        if self.known.len() >= MAX_NETS {
            self.overflow += 1;
            return None;
        }
        let known = NetRow {
            net,
            addresses: Held::default(),
            reading: 0,
            cut: false,
            found: None,
            left_out: 0,
            refused: 0,
            reported: false,
            announced: false,
            first_seen: now,
            dying: false,
            listed: now,
            missing_since: None,
            maker,
            learned: false,
            budget: Allowance::new(CHANGES_AT_ONCE, CHANGES_A_MINUTE),
        };
        let before = self.known.insert(net.address, known);
        self.by_inode.insert(net.inum, net.address);
        self.addresses -= before.map_or(0, |known| known.addresses.len());
        self.known.get_mut(&net.address)
    }

    /// The entry of `net`. One that was known by its number alone gets the
    /// address that is told now.
    fn entry(&mut self, net: Net) -> Option<&mut NetRow> {
        let by_number = u64::from(net.inum);
        let mut address = net.address;
        if address != by_number && !self.known.contains_key(&address) {
            if let Some(mut known) = self.known.remove(&by_number) {
                known.net.address = address;
                self.known.insert(address, known);
                self.by_inode.insert(net.inum, address);
            }
        } else if address == by_number && !self.known.contains_key(&by_number) {
            // Listed by number: whoever has it, by whatever address.
            address = *self.by_inode.get(&net.inum)?;
        }
        let known = self.known.get_mut(&address)?;
        let is_same = Self::same(known, net);
        if std::mem::take(&mut known.learned) {
            self.learned.push((identity(known.net), known.net.user));
        }
        is_same.then_some(known)
    }

    /// Whether `net` is the namespace known at its address, and not a later
    /// one in the same place. What was not told of it before is taken over.
    fn same(known: &mut NetRow, net: Net) -> bool {
        let cookies = (known.net.cookie, net.cookie);
        let differ = cookies.0 != 0 && cookies.1 != 0 && cookies.0 != cookies.1;
        if known.net.inum != net.inum || differ {
            return false;
        }
        if known.net.cookie == 0 {
            known.net.cookie = net.cookie;
        }
        if known.net.user.inum == 0 && net.user.inum != 0 {
            known.net.user = net.user;
            known.learned = known.reported;
        }
        true
    }

    /// What was at this address, and at this inode number, has ended unseen.
    fn evict(&mut self, net: Net, now: u64, out: &mut Vec<Change>) {
        self.end(net.address, now, out);
        if let Some(&address) = self.by_inode.get(&net.inum) {
            self.end(address, now, out);
        }
    }

    fn end(&mut self, address: u64, time: u64, out: &mut Vec<Change>) {
        let Some(mut known) = self.known.remove(&address) else {
            return;
        };
        self.addresses -= known.addresses.len();
        let inode = known.net.inum;
        if self.by_inode.get(&inode) == Some(&address) {
            self.by_inode.remove(&inode);
        }
        self.learned.retain(|(netns, _)| netns.inode != inode);
        Self::report(&mut known, out);
        let netns = identity(known.net);
        if !known.dying {
            let time = known.missing_since.unwrap_or(time).min(time);
            out.push(Change::Dying(netns, time, None));
        }
        out.push(Change::Destroyed(netns, time));
    }

    fn report(known: &mut NetRow, out: &mut Vec<Change>) {
        if !known.reported {
            known.reported = true;
            let netns = identity(known.net);
            let NetRow {
                net,
                first_seen,
                maker,
                ..
            } = *known;
            out.push(Change::Created(netns, first_seen, maker, net.user));
        }
    }

    /// A record says that `net` was made by `task`.
    pub(super) fn created(&mut self, net: Net, time: u64, task: KernelTask, out: &mut Vec<Change>) {
        // A hook announces each namespace once: a second time it is another,
        // in the same place, and the end of the first got lost.
        let again = !self.trust.creations;
        if let Some(known) = self.entry(net)
            && !(again && known.announced)
        {
            // The walk was quicker.
            known.maker = Some(task);
            known.announced = true;
            known.first_seen = known.first_seen.min(time);
            Self::report(known, out);
            return;
        }
        self.evict(net, time, out);
        if let Some(known) = self.insert(net, time, Some(task)) {
            known.announced = true;
            Self::report(known, out);
        }
    }

    /// A single namespace was found on the list, outside a walk.
    pub(super) fn noticed(&mut self, net: Net, time: u64, out: &mut Vec<Change>) {
        if self.entry(net).is_none() {
            self.evict(net, time, out);
            self.insert(net, time, None);
        }
    }

    /// A record says that the last reference to `net` is gone.
    pub(super) fn dying(&mut self, net: Net, time: u64, task: KernelTask, out: &mut Vec<Change>) {
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
    pub(super) fn destroyed(&mut self, net: Net, time: u64, out: &mut Vec<Change>) {
        if let Some(known) = self.entry(net) {
            let address = known.net.address;
            self.end(address, time, out);
        }
    }

    /// `cleanup_net` was queued: the last reference to at least one namespace
    /// is gone. By which task is not known: references go in softirq and RCU
    /// context, in whatever task that interrupts.
    pub(super) fn cleanup_queued(&mut self, time: u64) {
        self.queued = Some(time);
    }

    /// `cleanup_net` has started.
    pub(super) fn cleanup_started(&mut self, time: u64) {
        self.cleanup_since = Some(time);
    }

    /// Whether `cleanup_net` is under way.
    pub(super) fn is_cleaning(&self) -> bool {
        self.cleanup_since.is_some()
    }

    /// `cleanup_net` has returned.
    pub(super) fn cleanup_ended(&mut self, time: u64) {
        // The next run can have been heard of before.
        self.cleanup_since = self.cleanup_since.filter(|run| *run > time);
        self.cleanup_ended = self.cleanup_ended.max(time);
    }

    /// A device was made or changed by `task`: the loopback device of a new
    /// namespace, perhaps.
    pub(super) fn device_changed(&mut self, time: u64, task: KernelTask) {
        if !self.makers.iter().any(|(_, maker)| maker.tid == task.tid)
            && self.makers.len() < MAX_MAKERS
        {
            self.makers.push((time, task));
        }
    }

    /// Whether a namespace may be about to appear on the list.
    pub(super) fn expects_one(&self) -> bool {
        !self.makers.is_empty()
    }

    /// A record says that an address was added or removed. Whether the
    /// namespace is known.
    pub(super) fn address(
        &mut self,
        net: Net,
        time: u64,
        address: Address,
        added: bool,
        out: &mut Vec<Change>,
    ) -> bool {
        let (all, host) = (self.addresses, self.host);
        let Some(known) = self.entry(net) else {
            return false;
        };
        Self::report(known, out);
        if !host.has(known.net.inum) && !known.budget.has_room(time) {
            // What it has is read when it may be told again.
            known.cut = true;
            known.left_out = known.left_out.max(1);
            return true;
        }
        let netns = identity(known.net);
        let (before, reading) = (known.addresses.len(), known.reading);
        if !added {
            if known.addresses.remove(&address) {
                known.budget.spend(1);
                out.push(Change::AddressRemoved(netns, time, address));
            }
        } else if known.addresses.mark(&address, reading) == Marked::Absent {
            if has_room(before, all) {
                known.addresses.insert(&address, reading);
                known.budget.spend(1);
                out.push(Change::AddressAdded(netns, time, address));
            } else {
                known.left_out += 1;
            }
        }
        self.addresses = all - before + known.addresses.len();
        true
    }
}

/// A namespace's identity as events have it.
pub(super) fn identity(net: Net) -> Netns {
    Netns {
        inode: net.inum,
        cookie: (net.cookie != 0).then_some(net.cookie),
    }
}

mod held;
mod walk;

#[cfg(test)]
mod tests;
