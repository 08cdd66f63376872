//! One network namespace.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{Held, KnownForwarding, Serial};
use crate::model::sandbox::Sandbox;
use event::{Address, Device, FdHolder, Neighbour, Netns, Route, Task, UserNs, clock::Timestamp};

/// One network namespace that is not destroyed.
#[derive(Debug)]
pub struct NetnsEntry {
    /// Its identity; the cookie as soon as any event tells it.
    pub id: Netns,
    /// Its place in the table.
    pub serial: Serial,
    pub host: bool,
    /// It is the host's, and the container runtime runs in it.
    pub node: bool,
    /// The user namespace that it belongs to, if that is known not to be the
    /// host's.
    pub user_ns: Option<UserNs>,
    /// When it was created, or first heard of.
    pub seen: Timestamp,
    /// Its creation was seen; otherwise it is older than `seen`.
    pub created: bool,
    /// Since when its last reference is gone.
    pub dying: Option<Timestamp>,
    /// Its addresses, in the order in which they came.
    pub addresses: HeldAddresses,
    /// Tasks in it, as last told.
    pub tasks: Vec<Task>,
    /// How many there are.
    pub task_count: usize,
    /// Where it is mounted, as last told.
    pub mounts: Vec<PathBuf>,
    /// Descriptors of it, as last told; looked for only where there is neither
    /// a task nor a mount.
    pub fds: Vec<FdHolder>,
    /// Sockets in it whose processes are not, as last told; looked for only
    /// where there is nothing else.
    pub sockets: Vec<FdHolder>,
    /// When these holders were last told anew.
    pub held_at: Option<Timestamp>,
    /// Where it is or was mounted.
    pub paths: BTreeSet<PathBuf>,
    /// Its devices, if they were ever listed.
    pub wiring: Option<Wiring>,
    /// Where it sends packets, if that was read.
    pub forwarding: Option<KnownForwarding>,
    /// What ties it to a pod.
    pub sandbox: Sandbox,
}

/// The devices of a namespace, as they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    pub at: Timestamp,
    /// Devices, by index.
    pub devices: Vec<Device>,
    /// Default routes, and routes to single addresses.
    pub routes: Vec<Route>,
    /// Neighbours that are gateways of these, and permanent ones.
    pub neighbours: Vec<Neighbour>,
    /// The ID that it has for the host's namespace; negative if it has none.
    pub host_nsid: Option<i32>,
}

impl Wiring {
    /// Routes that somebody has entered: what the kernel makes of what a pod
    /// advertises is no trace of CNI.
    pub fn entered_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().filter(|route| !route.by_kernel)
    }

    /// Whether somebody has given a bridge of the namespace its address. `None` if
    /// that came after the list: of what a pod advertises the kernel makes IPv6
    /// addresses.
    pub fn is_entered(&self, held: &HeldAddress) -> Option<bool> {
        let Address {
            address, ifname, ..
        } = &held.address;
        let mut of_name = self.devices.iter().filter(|it| it.name == *ifname);
        if of_name.any(|device| device.advertised.contains(address)) {
            return Some(false);
        }
        let is_listed = held.found || held.made.unwrap_or(held.since) <= self.at;
        (is_listed || address.is_ipv4()).then_some(true)
    }

    pub fn device(&self, index: u32) -> Option<&Device> {
        self.devices.iter().find(|device| device.index == index)
    }

    /// Whether a device leads to the host, as the kernel says: whoever makes one
    /// chooses its index, the other end's and names, but not where that is. `None`
    /// if the kernel was not asked.
    pub fn leads_to_host(&self, device: &Device) -> Option<bool> {
        let host = self.host_nsid?;
        Some(host >= 0 && device.link_nsid == Some(host))
    }

    /// Whether nothing has changed.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.devices, &self.routes, &self.neighbours)
            == (&other.devices, &other.routes, &other.neighbours)
            && self.host_nsid == other.host_nsid
    }
}

/// An address in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldAddress {
    pub address: Address,
    pub since: Timestamp,
    /// It was present at the first look.
    pub found: bool,
    /// When the kernel says that it was added.
    pub made: Option<Timestamp>,
}

/// The addresses of a namespace, in the order in which they came. There can be
/// very many: one comes or goes without a look at the others.
#[derive(Debug, Default)]
pub struct HeldAddresses {
    /// By place, which ascends. `None` for one that has gone, until they are
    /// half of all.
    slots: Vec<(u64, Option<HeldAddress>)>,
    next: u64,
    count: usize,
    /// How many another host has.
    refused: usize,
}

/// From so many on, room is made for few more at a time.
const MANY: usize = 64;

impl HeldAddresses {
    pub fn iter(&self) -> impl Iterator<Item = &HeldAddress> {
        self.slots.iter().filter_map(|(_, held)| held.as_ref())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Those that the kernel has found in use by another host on the link.
    pub fn refused(&self) -> impl Iterator<Item = &HeldAddress> {
        let any = (self.refused > 0).then(|| self.iter());
        let all = any.into_iter().flatten();
        all.filter(|held| held.address.is_refused())
    }

    fn slot(&self, place: u64) -> Option<usize> {
        self.slots.binary_search_by_key(&place, |slot| slot.0).ok()
    }

    pub(super) fn get(&self, place: u64) -> Option<&HeldAddress> {
        self.slots[self.slot(place)?].1.as_ref()
    }

    /// The same address is told again; whether anything about it is new.
    pub(super) fn update(
        &mut self,
        place: u64,
        address: &Address,
        made: Option<Timestamp>,
    ) -> Option<bool> {
        let slot = self.slot(place)?;
        let held = self.slots[slot].1.as_mut()?;
        let dated = held.made.is_none() && made.is_some();
        let changed = held.address != *address || dated;
        self.refused -= usize::from(held.address.is_refused());
        self.refused += usize::from(address.is_refused());
        held.made = held.made.or(made);
        held.address = address.clone();
        Some(changed)
    }

    /// Returns its place, which nothing else will have.
    pub(super) fn push(&mut self, held: HeldAddress) -> u64 {
        let place = self.next;
        self.next += 1;
        self.count += 1;
        self.refused += usize::from(held.address.is_refused());
        if self.slots.len() == self.slots.capacity() && self.slots.len() >= MANY {
            self.slots.reserve_exact(self.slots.len() / 8);
        }
        self.slots.push((place, Some(held)));
        place
    }

    pub(super) fn remove(&mut self, place: u64) {
        let Some(slot) = self.slot(place) else {
            return;
        };
        let gone = self.slots[slot].1.take();
        self.count -= usize::from(gone.is_some());
        self.refused -= usize::from(gone.is_some_and(|held| held.address.is_refused()));
        if self.slots.len() > 2 * self.count {
            self.slots.retain(|(_, held)| held.is_some());
            self.slots.shrink_to(2 * self.count);
        }
    }

    /// Takes out all, with their places.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (u64, HeldAddress)> + use<> {
        (self.count, self.refused) = (0, 0);
        let slots = std::mem::take(&mut self.slots).into_iter();
        slots.filter_map(|(place, held)| Some((place, held?)))
    }
}

impl NetnsEntry {
    /// One of which nothing else is known yet.
    pub(super) fn new(id: Netns, serial: Serial, seen: Timestamp) -> Self {
        Self {
            id,
            serial,
            host: false,
            node: false,
            user_ns: None,
            seen,
            created: false,
            dying: None,
            addresses: HeldAddresses::default(),
            tasks: Vec::new(),
            task_count: 0,
            mounts: Vec::new(),
            fds: Vec::new(),
            sockets: Vec::new(),
            held_at: None,
            paths: BTreeSet::new(),
            wiring: None,
            forwarding: None,
            sandbox: Sandbox::default(),
        }
    }

    /// Where root has mounted it, on the node or for a container: a user's mounts
    /// keep it as well, but what they are called says nothing.
    pub fn roots_mounts(&self) -> impl Iterator<Item = &PathBuf> {
        let mounts = self.mounts.iter();
        mounts.filter(|path| event::mount::name(path).is_some())
    }

    /// The names of these.
    pub fn mount_names(&self) -> impl Iterator<Item = Cow<'_, Path>> {
        self.mounts
            .iter()
            .filter_map(|path| event::mount::name(path))
    }

    /// Whether its holders were looked for and there was none: the kernel
    /// keeps it for something else, such as a socket.
    pub fn is_held_by_nothing_found(&self) -> bool {
        self.held_at.is_some()
            && self.task_count == 0
            && self.mounts.is_empty()
            && self.fds.is_empty()
            && self.sockets.is_empty()
    }

    /// Whether it is what a user has made: it belongs to a user namespace other
    /// than the host's, and nobody who makes pods' namespaces names it. Those of
    /// pods with a user namespace of their own are named.
    pub fn is_strangers(&self) -> bool {
        let named = self.sandbox.named || self.sandbox.add.is_some();
        self.user_ns.is_some() && !self.host && !named
    }

    /// Whether it is that, and another user than root has made it: a runtime is
    /// root, so that it is no pod's sandbox that nobody remembers either.
    pub fn is_users(&self) -> bool {
        self.is_strangers() && self.user_ns.is_some_and(|user_ns| user_ns.uid != 0)
    }

    /// Whether it came into being after a time.
    pub(super) fn is_after(&self, time: Timestamp) -> bool {
        self.created && time < self.seen
    }

    /// Whether this is what was told of its holders last, by whatever process of a
    /// container a mount is told.
    pub(super) fn is_held_by(&self, held: Held<'_>) -> bool {
        self.held_at.is_some()
            && self.task_count == held.task_count
            && self.mounts.len() == held.mounts.len()
            && self
                .mounts
                .iter()
                .zip(held.mounts)
                .all(|(a, b)| event::mount::is_same(a, b))
            && self.fds == held.fds
            && self.sockets == held.sockets
            && self.tasks.len() == held.tasks.len()
            && self
                .tasks
                .iter()
                .zip(held.tasks)
                .all(|(a, b)| same_task(a, b))
    }
}

impl HeldAddress {
    /// Whether this is the same address on the same device.
    pub(super) fn is_at(&self, other: &Address) -> bool {
        self.address.address == other.address && self.address.ifname == other.ifname
    }
}

/// The start as a point in time moves a little with every look at the clock.
fn same_task(a: &Task, b: &Task) -> bool {
    let Task {
        pid,
        tid,
        comm,
        state,
        start_ticks,
        started: _,
        pod_uid,
        container_id,
        by_name_alone,
        not_stuck,
        kernel_thread: _,
        uid: _,
    } = a;
    (pid, tid, comm) == (&b.pid, &b.tid, &b.comm)
        && *by_name_alone == b.by_name_alone
        && (state, not_stuck) == (&b.state, &b.not_stuck)
        && (start_ticks, pod_uid, container_id) == (&b.start_ticks, &b.pod_uid, &b.container_id)
}
