//! Network namespaces: from creation to destruction, their addresses and what
//! holds them.
//!
//! The kernel uses inode numbers again at once, cookies never. Where both
//! sides have a cookie, it decides; where not, the order of times does: an
//! inode that is created while an older namespace of that number is known
//! means that the older one died unseen. (Cookies say nothing of the order:
//! the kernel gives each CPU a batch of them.) Events of a namespace that is
//! gone may come late; a short memory of the dead keeps them from raising it.

mod entry;
mod forwarding;
mod index;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, VecDeque},
    net::IpAddr,
    path::PathBuf,
};

pub use self::{
    entry::{HeldAddress, NetnsEntry, Wiring},
    forwarding::KnownForwarding,
};

use self::index::AddressIndex;
use event::{
    Address, FdHolder, MAX_HOLDERS, Netns, Task, UserNs, clock::Timestamp, forwarding::Forwarding,
    has_room,
};

/// The source that fails while not all that can lead to a namespace could be
/// looked through: then there may be more of them than are known.
pub const NETNS: &str = "netns";
pub const MAX_NETNS: usize = 16_384;
/// The dead that are remembered; the oldest are forgotten.
const MAX_DEAD: usize = 1_024;
/// Paths that are remembered of one namespace.
const MAX_PATHS: usize = 8;

/// Names an entry; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(u64);

/// What keeps a namespace, as it is told.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    pub tasks: &'a [Task],
    /// How many there are.
    pub task_count: usize,
    pub mounts: &'a [PathBuf],
    pub fds: &'a [FdHolder],
    pub sockets: &'a [FdHolder],
}

impl Held<'_> {
    /// No more of each than is kept.
    fn cut(self) -> Self {
        fn first<T>(all: &[T]) -> &[T] {
            &all[..all.len().min(MAX_HOLDERS)]
        }
        Self {
            tasks: first(self.tasks),
            task_count: self.task_count.max(self.tasks.len().min(MAX_HOLDERS)),
            mounts: first(self.mounts),
            fds: first(self.fds),
            sockets: first(self.sockets),
        }
    }
}

#[derive(Debug, Default)]
pub struct NetnsTable {
    entries: BTreeMap<Serial, NetnsEntry>,
    by_inode: HashMap<u32, Serial>,
    addresses: AddressIndex,
    dead: VecDeque<(Netns, Timestamp)>,
    last_destroyed: Option<Timestamp>,
    next: u64,
    dropped: u64,
    /// One was removed, for whatever reason, since that was last asked.
    removed: bool,
}

impl NetnsTable {
    /// Those that are not dying, oldest first.
    pub fn live(&self) -> impl Iterator<Item = &NetnsEntry> {
        self.entries.values().filter(|entry| entry.dying.is_none())
    }

    /// Like [`live`](Self::live).
    pub(super) fn live_mut(&mut self) -> impl Iterator<Item = &mut NetnsEntry> {
        self.entries
            .values_mut()
            .filter(|entry| entry.dying.is_none())
    }

    /// Those that are dying, with the time since when.
    pub fn all_dying(&self) -> impl Iterator<Item = (&NetnsEntry, Timestamp)> {
        self.entries
            .values()
            .filter_map(|entry| Some((entry, entry.dying?)))
    }

    /// Which entry an identity names, if any that is not destroyed.
    pub fn get(&self, netns: Netns) -> Option<&NetnsEntry> {
        let entry = self.entries.get(self.by_inode.get(&netns.inode)?)?;
        let differs = matches!((entry.id.cookie, netns.cookie), (Some(a), Some(b)) if a != b);
        (!differs).then_some(entry)
    }

    /// Addresses that more than one namespace has.
    pub fn shared(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.shared.iter().copied()
    }

    /// The namespaces that have an address, by what names them, oldest first.
    pub fn owners(&self, address: IpAddr) -> Vec<Serial> {
        self.addresses.with(address)
    }

    /// The namespaces that have an address, oldest first.
    pub fn with_address(&self, address: IpAddr) -> impl Iterator<Item = &NetnsEntry> {
        let serials = self.owners(address).into_iter();
        serials.filter_map(|serial| self.entries.get(&serial))
    }

    /// When a namespace was last seen destroyed.
    pub fn last_destroyed(&self) -> Option<Timestamp> {
        self.last_destroyed
    }

    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Whether a namespace was removed since the last call: news of another of
    /// its number can do so, whether or not that is then taken in.
    pub(super) fn take_removed(&mut self) -> bool {
        std::mem::take(&mut self.removed)
    }

    pub(super) fn created(&mut self, netns: Netns, time: Timestamp) -> bool {
        if self.is_dead(netns, time) {
            return false;
        }
        if let Some(&serial) = self.by_inode.get(&netns.inode)
            && let Some(entry) = self.entries.get_mut(&serial)
        {
            let cookies = (entry.id.cookie, netns.cookie);
            let differs = matches!(cookies, (Some(a), Some(b)) if a != b);
            let late = time <= entry.seen;
            if differs && late {
                return false;
            }
            // Others may have told of it before its creation is told, and who
            // did so did not always know the cookie.
            let first_told = cookies.0.is_none()
                && cookies.1.is_some()
                && !entry.created
                && entry.dying.is_none();
            if late || first_told || (cookies.0.is_some() && cookies.0 == cookies.1) {
                entry.id.cookie = entry.id.cookie.or(netns.cookie);
                entry.seen = entry.seen.min(time);
                return !std::mem::replace(&mut entry.created, true);
            }
            self.remove(serial, time);
        }
        match self.insert(netns, time) {
            Some(entry) => {
                entry.created = true;
                true
            }
            None => false,
        }
    }

    pub(super) fn found(&mut self, netns: Netns, host: bool, node: bool, time: Timestamp) -> bool {
        let known = self.by_inode.contains_key(&netns.inode);
        if node {
            // It is one.
            self.live_mut().for_each(|entry| entry.node = false);
        }
        let Some(entry) = self.resolve(netns, time) else {
            return false;
        };
        let changed = !known || (entry.host, entry.node) != (host, node);
        entry.host |= host;
        entry.node |= node;
        changed
    }

    /// The node's own: that in which the container runtime runs, if that is known,
    /// else the first of the host's.
    pub fn node(&self) -> Option<&NetnsEntry> {
        let hosts = || self.live().filter(|entry| entry.host);
        hosts().find(|entry| entry.node).or_else(|| hosts().next())
    }

    /// Where a namespace sends packets.
    pub(super) fn forwards(
        &mut self,
        netns: Netns,
        time: Timestamp,
        followed: bool,
        forwarding: &Forwarding,
    ) -> bool {
        let Some(entry) = self.resolve(netns, time) else {
            return false;
        };
        let old = entry.forwarding.as_ref();
        let same =
            old.is_some_and(|old| old.followed == followed && old.forwarding.is_like(forwarding));
        entry.forwarding = Some(KnownForwarding::new(old, time, followed, forwarding));
        !same
    }

    /// Since when that is out of date.
    pub(super) fn forwarding_outdated(
        &mut self,
        netns: Netns,
        time: Timestamp,
        since: Option<Timestamp>,
    ) -> bool {
        let entry = self.resolve(netns, time);
        let known = entry.and_then(|entry| entry.forwarding.as_mut());
        known.is_some_and(|known| std::mem::replace(&mut known.outdated, since) != since)
    }

    /// The user namespace that a namespace belongs to, if that is not the host's.
    pub(super) fn owned(&mut self, netns: Netns, user_ns: Option<UserNs>) -> bool {
        let serial = self.get(netns).map(|entry| entry.serial);
        let entry = serial.and_then(|serial| self.entries.get_mut(&serial));
        let Some(entry) = entry.filter(|entry| entry.user_ns.is_none() && user_ns.is_some()) else {
            return false;
        };
        entry.user_ns = user_ns;
        true
    }

    pub(super) fn dying(&mut self, netns: Netns, time: Timestamp) -> bool {
        let serial = self
            .get(netns)
            .filter(|entry| !entry.host && !entry.is_after(time));
        let Some(serial) = serial.map(|entry| entry.serial) else {
            // Never heard of: late news of its life must not raise it.
            self.bury(netns, time);
            return false;
        };
        let Some(entry) = self
            .entries
            .get_mut(&serial)
            .filter(|entry| entry.dying.is_none())
        else {
            return false;
        };
        entry.id.cookie = entry.id.cookie.or(netns.cookie);
        entry.dying = Some(time);
        // Nobody reaches them any more.
        self.forget_addresses(serial);
        true
    }

    pub(super) fn destroyed(&mut self, netns: Netns, time: Timestamp) -> bool {
        self.last_destroyed = self.last_destroyed.max(Some(time));
        match self
            .get(netns)
            .filter(|entry| !entry.host && !entry.is_after(time))
        {
            Some(entry) => {
                let serial = entry.serial;
                self.remove(serial, time);
            }
            None => self.bury(netns, time),
        }
        true
    }

    pub(super) fn held(&mut self, netns: Netns, time: Timestamp, held: Held<'_>) -> bool {
        let held = held.cut();
        if held.task_count > 0 {
            self.revive(netns, time);
        }
        let Some(entry) = self.resolve(netns, time) else {
            return false;
        };
        if entry.is_held_by(held) {
            let same = entry.mounts == held.mounts;
            entry.mounts = held.mounts.to_vec();
            return !same;
        }
        entry.held_at = Some(time);
        entry.tasks = held.tasks.to_vec();
        entry.task_count = held.task_count;
        entry.mounts = held.mounts.to_vec();
        entry.fds = held.fds.to_vec();
        entry.sockets = held.sockets.to_vec();
        let room = MAX_PATHS.saturating_sub(entry.paths.len());
        let paths: Vec<_> = entry
            .mount_names()
            .take(room)
            .map(Cow::into_owned)
            .collect();
        entry.paths.extend(paths);
        true
    }

    /// The devices of a namespace.
    pub(super) fn wired(&mut self, netns: Netns, time: Timestamp, wiring: Wiring) -> bool {
        let Some(entry) = self.resolve(netns, time) else {
            return false;
        };
        let same = entry
            .wiring
            .as_ref()
            .is_some_and(|old| old.is_like(&wiring));
        entry.wiring = Some(wiring);
        // That a pod still has the same devices was asked for.
        !same || !entry.host
    }

    pub(super) fn address_added(
        &mut self,
        netns: Netns,
        time: Timestamp,
        address: &Address,
        found: bool,
        made: Option<Timestamp>,
    ) -> bool {
        let all = self.addresses.len();
        let entry = self.resolve(netns, time);
        let Some(entry) = entry.filter(|entry| entry.dying.is_none()) else {
            return false;
        };
        let serial = entry.serial;
        if let Some(place) = self.place(serial, address)
            && let Some(entry) = self.entries.get_mut(&serial)
            && let Some(changed) = entry.addresses.update(place, address, made)
        {
            return changed;
        }
        let Some(entry) = self.entries.get_mut(&serial) else {
            return false;
        };
        if !has_room(entry.addresses.len(), all) {
            self.dropped += 1;
            return true;
        }
        let place = entry.addresses.push(HeldAddress {
            address: address.clone(),
            since: time,
            found,
            made,
        });
        self.addresses.add(address.address, serial, place);
        true
    }

    pub(super) fn address_removed(
        &mut self,
        netns: Netns,
        time: Timestamp,
        address: &Address,
    ) -> bool {
        let Some(entry) = self.get(netns).filter(|entry| !entry.is_after(time)) else {
            return false;
        };
        let serial = entry.serial;
        let Some(place) = self.place(serial, address) else {
            return false;
        };
        if let Some(entry) = self.entries.get_mut(&serial) {
            entry.addresses.remove(place);
        }
        self.addresses.remove(address.address, serial, place);
        true
    }

    /// Where a namespace has an address, if it has it on that device.
    fn place(&self, serial: Serial, address: &Address) -> Option<u64> {
        let entry = self.entries.get(&serial)?;
        let mut places = self.addresses.places(address.address, serial);
        let is_at = |held: &HeldAddress| held.is_at(address);
        places.find(|place| entry.addresses.get(*place).is_some_and(is_at))
    }

    /// Whether a namespace has an address.
    pub fn has(&self, entry: &NetnsEntry, address: IpAddr) -> bool {
        let mut places = self.addresses.places(address, entry.serial);
        places.next().is_some()
    }

    /// How a namespace has an address, on each device that has it.
    pub fn held_at<'a>(
        &'a self,
        entry: &'a NetnsEntry,
        address: IpAddr,
    ) -> impl Iterator<Item = &'a HeldAddress> {
        let places = self.addresses.places(address, entry.serial);
        places.filter_map(|place| entry.addresses.get(place))
    }

    /// A task that was stuck goes on: what was told of its state is not so any
    /// more, whichever namespace it was seen in.
    pub(super) fn unblocked(&mut self, task: &Task) -> bool {
        let mut changed = false;
        let entries = self.entries.values_mut();
        for held in entries.flat_map(|entry| &mut entry.tasks) {
            let start = (held.start_ticks, task.start_ticks);
            let same = held.tid == task.tid && !matches!(start, (Some(a), Some(b)) if a != b);
            if same && held.is_in_d() {
                held.state = None;
                changed = true;
            }
        }
        changed
    }

    /// The entry that an event is about, made if it is not known yet; `None`
    /// if the event is about one that is gone, or the table is full.
    pub(super) fn resolve(&mut self, netns: Netns, time: Timestamp) -> Option<&mut NetnsEntry> {
        if let Some(&serial) = self.by_inode.get(&netns.inode) {
            let known = self.get(netns).map(|entry| entry.is_after(time));
            match known {
                Some(true) => return None,
                Some(false) => {
                    let entry = self.entries.get_mut(&serial)?;
                    entry.id.cookie = entry.id.cookie.or(netns.cookie);
                    return Some(entry);
                }
                // Another cookie: either one is gone.
                None if self.is_dead(netns, time) => return None,
                None if self
                    .entries
                    .get(&serial)
                    .is_some_and(|entry| time < entry.seen) =>
                {
                    return None;
                }
                None => self.remove(serial, time),
            }
        }
        if self.is_dead(netns, time) {
            return None;
        }
        self.insert(netns, time)
    }

    /// A dying namespace with tasks in it was mistaken for dying, or is another
    /// one of its number.
    fn revive(&mut self, netns: Netns, time: Timestamp) {
        let dying = self
            .get(netns)
            .filter(|entry| entry.dying.is_some_and(|end| time > end));
        let Some((serial, cookie)) = dying.map(|entry| (entry.serial, entry.id.cookie)) else {
            return;
        };
        if cookie.is_none() || cookie != netns.cookie {
            self.remove(serial, time);
        } else if let Some(entry) = self.entries.get_mut(&serial) {
            entry.dying = None;
        }
    }

    fn insert(&mut self, netns: Netns, time: Timestamp) -> Option<&mut NetnsEntry> {
        if self.entries.len() >= MAX_NETNS {
            self.dropped += 1;
            let longest = self.all_dying().min_by_key(|(_, since)| *since);
            let longest = longest.map(|(entry, _)| entry.serial)?;
            self.remove(longest, time);
        }
        let serial = Serial(self.next);
        self.next += 1;
        self.by_inode.insert(netns.inode, serial);
        let entry = NetnsEntry::new(netns, serial, time);
        Some(self.entries.entry(serial).or_insert(entry))
    }

    fn remove(&mut self, serial: Serial, time: Timestamp) {
        self.forget_addresses(serial);
        if let Some(entry) = self.entries.remove(&serial) {
            self.removed = true;
            self.by_inode.remove(&entry.id.inode);
            self.bury(entry.id, time);
        }
    }

    fn forget_addresses(&mut self, serial: Serial) {
        let entry = self.entries.get_mut(&serial);
        let addresses = entry.map(|entry| entry.addresses.take());
        for (place, held) in addresses.into_iter().flatten() {
            self.addresses.remove(held.address.address, serial, place);
        }
    }

    fn bury(&mut self, netns: Netns, time: Timestamp) {
        if self.dead.len() >= MAX_DEAD {
            self.dead.pop_front();
        }
        self.dead.push_back((netns, time));
    }

    /// Whether this is news of a namespace that is gone: by its cookie, or
    /// because one of its number went no earlier.
    fn is_dead(&self, netns: Netns, time: Timestamp) -> bool {
        self.dead
            .iter()
            .filter(|(dead, _)| dead.inode == netns.inode)
            .any(|(dead, end)| match (dead.cookie, netns.cookie) {
                (Some(a), Some(b)) => a == b,
                _ => time < *end,
            })
    }
}

#[cfg(any(test, feature = "testing"))]
mod check;
#[cfg(test)]
mod tests;
