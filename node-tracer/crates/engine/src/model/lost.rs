//! What living sandboxes had and have lost: addresses, devices, routes, their
//! gateway's neighbour entry; on the host their end of the veth pair and the
//! routes to them; their reservation.
//!
//! Only what its CNI attachments gave a sandbox counts: what a pod makes itself
//! comes and goes with the pod's own work.
//!
//! An address is told as it goes. Everything else is compared from one listing
//! to the next, so that a loss has two times: when it was last seen there and
//! when it was first seen missing. What a sandbox loses after its own DEL has
//! begun, or with its namespace, is no loss.
//!
//! A DEL of another sandbox of the same pod name that runs, or ended shortly
//! before, is noted with the loss: agents of a CNI take things away with some
//! delay. Which sandbox of the two is the older one, and whether that DEL can
//! have taken the thing at all, is for the rule to say.

mod dels;
mod given;
mod listed;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use self::{dels::RecentDel, given::Given};
use super::{
    attachment::Cni,
    calls::Calls,
    netns::{MAX_NETNS, NetnsEntry, NetnsTable, Wiring},
};
use event::{Address, Netns, PodRef, What, clock::Timestamp};

/// How long after its end a DEL may still take effect.
pub const AFTERMATH: Duration = Duration::from_secs(15);
/// How long a DEL of which no end was seen is taken to run: no runtime waits
/// for a plugin for so long, so the record of its end was lost.
pub const LONGEST: Duration = Duration::from_secs(10 * 60);
/// Things that are remembered of one sandbox.
const MAX_ITEMS: usize = 64;

/// The source of what the kernel lists.
const KERNEL: &str = "kernel";
/// The source of what host-local's files say.
const HOST_LOCAL: &str = "host-local";

/// What can be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An address in the sandbox.
    Address,
    /// A device in the sandbox.
    Device,
    /// A default route, or one to a single address, in the sandbox.
    Route,
    /// The permanent neighbour entry of the sandbox's gateway.
    Neighbour,
    /// The host-side end of the veth pair.
    Veth,
    /// The host's route to one of the addresses.
    HostRoute,
    /// The reservation of one of the addresses.
    Reservation,
}

/// Something that a sandbox has or had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// When it was first seen there.
    pub since: Timestamp,
    /// When it was last seen there.
    pub seen: Timestamp,
    /// That it is gone.
    pub loss: Option<Loss>,
    /// What had taken it, and when it was there again.
    pub repaired: Option<(Timestamp, Option<Del>)>,
}

/// That something is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When it was taken, or first seen missing.
    pub at: Timestamp,
    pub source: &'static str,
    /// The DEL of another sandbox of the same pod name that it came with.
    pub del: Option<Del>,
}

/// A DEL, as losses name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Del {
    pub container_id: String,
    pub started: Timestamp,
    /// When it ended, or a later one of the same container began; `None` while
    /// it runs, or where its end was not seen.
    pub ended: Option<Timestamp>,
    /// The namespace that it was given.
    pub netns: Option<Netns>,
}

/// What is known apart from this: that of which something can be lost, and
/// what it was given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables<'a> {
    pub(super) netns: &'a NetnsTable,
    pub(super) calls: &'a Calls,
    pub(super) cni: &'a Cni,
}

impl<'a> Tables<'a> {
    fn given(&self, entry: &'a NetnsEntry) -> Given<'a> {
        Given::of(entry, self.calls, self.cni)
    }
}

#[derive(Debug, Default)]
pub struct Lost {
    /// By the namespace's inode.
    sandboxes: HashMap<u32, Had>,
    /// Those of them with a loss that no DEL was found for, or one that runs.
    unexplained: BTreeSet<u32>,
    /// Those of them with a loss that a DEL was found for.
    blamed: BTreeSet<u32>,
    /// DELs that run or may still take effect.
    dels: VecDeque<RecentDel>,
    /// When the host's devices were last listed.
    host_listed: Option<Timestamp>,
    dropped: u64,
}

/// All that a sandbox has or had.
#[derive(Debug)]
struct Had {
    netns: Netns,
    /// `namespace/name` of the pod.
    pod: Option<(String, String)>,
    container_id: Option<String>,
    items: BTreeMap<(Kind, String), Item>,
    /// When what it has on the host was last looked at for it alone.
    looked: Option<Timestamp>,
}

impl Lost {
    /// What a sandbox has and had.
    pub fn of(&self, netns: Netns) -> impl Iterator<Item = (Kind, &str, &Item)> {
        let had = self.sandboxes.get(&netns.inode);
        let had = had.filter(|had| !differs(had.netns, netns));
        let items = had.into_iter().flat_map(|had| &had.items);
        items.map(|((kind, name), item)| (*kind, name.as_str(), item))
    }

    /// Whether a DEL was found for something that a sandbox has lost.
    pub fn is_blamed(&self, netns: Netns) -> bool {
        self.blamed.contains(&netns.inode)
    }

    /// When what a sandbox has on the host was last looked at: by a look at
    /// this sandbox, or as far as the host's devices were listed at all.
    pub fn looked(&self, netns: Netns) -> Option<Timestamp> {
        let had = self.sandboxes.get(&netns.inode);
        let own = had.filter(|had| !differs(had.netns, netns));
        own.and_then(|had| had.looked).max(self.host_listed)
    }

    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Takes an event in, before the tables do: what they still have is what
    /// can be lost. Returns whether anything was lost, or is there again.
    pub(super) fn take(&mut self, tables: Tables<'_>, time: Timestamp, what: &What) -> bool {
        let table = tables.netns;
        match what {
            What::NetnsCreated { netns, .. }
            | What::NetnsDying { netns, .. }
            | What::NetnsDestroyed { netns } => self.forget(*netns),
            What::AddressAdded { netns, address, .. } => {
                self.address_added(*netns, address.address, time)
            }
            What::AddressRemoved { netns, address } => {
                let held = table.get(*netns).filter(|entry| {
                    let mut held = table.held_at(entry, address.address);
                    held.next().is_some()
                });
                held.is_some_and(|entry| {
                    let given = tables.given(entry);
                    self.address_removed(entry, &given, address, time)
                })
            }
            What::NetnsDevices {
                netns,
                devices,
                routes,
                neighbours,
                host_nsid,
            } => {
                let Some(entry) = table.get(*netns) else {
                    return false;
                };
                let wiring = Wiring {
                    at: time,
                    devices: devices.clone(),
                    routes: routes.clone(),
                    neighbours: neighbours.clone(),
                    host_nsid: *host_nsid,
                };
                match entry.host {
                    true => self.host_listed(tables, &wiring),
                    false => self.sandbox_listed(entry, &tables.given(entry), &wiring),
                }
            }
            What::CniStarted { call } => self.del(call, time, None),
            What::CniCall { call, .. } => self.del(call, time, Some(time)),
            What::CniEffect { effect } => self.looked_at(table, effect, time),
            What::StoreListed { store } => self.store_listed(table, store, time),
            What::Reservation {
                address,
                stores,
                holder,
            } => {
                let holder = holder.as_ref();
                let mut changed = false;
                for entry in table.with_address(*address).filter(|entry| !entry.host) {
                    let id = entry.sandbox.id.as_deref();
                    match holder.filter(|holder| Some(holder.container_id.as_str()) == id) {
                        Some(holder) => {
                            let name = holder.path.display().to_string();
                            changed |= self.seen(entry, Kind::Reservation, &name, time);
                        }
                        None if stores.is_empty() => {}
                        None => {
                            let name = |path: &str| names_address(path, *address);
                            changed |= self.lost_all(entry, Kind::Reservation, time, name);
                        }
                    }
                }
                changed
            }
            _ => false,
        }
    }

    fn forget(&mut self, netns: Netns) -> bool {
        let known = self.sandboxes.get(&netns.inode);
        if known.is_some_and(|had| !differs(had.netns, netns)) {
            self.sandboxes.remove(&netns.inode);
            self.unexplained.remove(&netns.inode);
            self.blamed.remove(&netns.inode);
        }
        false
    }

    /// What is remembered of a sandbox.
    fn had(&mut self, entry: &NetnsEntry) -> Option<&mut Had> {
        if entry.host || entry.dying.is_some() {
            return None;
        }
        let inode = entry.id.inode;
        if !self.sandboxes.contains_key(&inode) && self.sandboxes.len() >= MAX_NETNS {
            self.dropped += 1;
            return None;
        }
        let new = || Had {
            netns: entry.id,
            pod: None,
            container_id: None,
            items: BTreeMap::new(),
            looked: None,
        };
        let had = self.sandboxes.entry(inode).or_insert_with(new);
        if differs(had.netns, entry.id) {
            *had = new();
            self.unexplained.remove(&inode);
            self.blamed.remove(&inode);
        }
        had.netns.cookie = had.netns.cookie.or(entry.id.cookie);
        had.pod = entry.sandbox.pod.as_ref().and_then(name_of);
        had.container_id.clone_from(&entry.sandbox.id);
        Some(had)
    }

    fn seen(&mut self, entry: &NetnsEntry, kind: Kind, name: &str, time: Timestamp) -> bool {
        let Some(had) = self.had(entry) else {
            return false;
        };
        let full = had.items.len() >= MAX_ITEMS;
        let key = (kind, name.to_owned());
        match had.items.get_mut(&key) {
            Some(item) => item.is_there(time),
            None if full => false,
            None => {
                let item = Item {
                    since: time,
                    seen: time,
                    loss: None,
                    repaired: None,
                };
                had.items.insert(key, item);
                false
            }
        }
    }

    /// Of a kind, those that are not there any more, unless the sandbox is
    /// being taken down.
    fn lost_all(
        &mut self,
        entry: &NetnsEntry,
        kind: Kind,
        time: Timestamp,
        is_gone: impl Fn(&str) -> bool,
    ) -> bool {
        if is_leaving(entry) {
            return false;
        }
        let Some(had) = self.had(entry) else {
            return false;
        };
        let mut changed = false;
        let items = had.items.iter_mut();
        for ((_, name), item) in items.filter(|((its, _), _)| *its == kind) {
            if item.loss.is_none() && item.seen <= time && is_gone(name) {
                let source = match kind {
                    Kind::Reservation => HOST_LOCAL,
                    _ => KERNEL,
                };
                let del = None;
                let at = time;
                item.loss = Some(Loss { at, source, del });
                changed = true;
            }
        }
        if changed {
            self.explain(entry.id.inode, time);
        }
        changed
    }

    fn address_added(&mut self, netns: Netns, address: IpAddr, time: Timestamp) -> bool {
        let had = self.sandboxes.get_mut(&netns.inode);
        let had = had.filter(|had| !differs(had.netns, netns));
        let key = (Kind::Address, address.to_string());
        let item = had.and_then(|had| had.items.get_mut(&key));
        item.is_some_and(|item| item.is_there(time))
    }

    fn address_removed(
        &mut self,
        entry: &NetnsEntry,
        given: &Given<'_>,
        address: &Address,
        time: Timestamp,
    ) -> bool {
        if is_leaving(entry) || !is_own(address.address) || !given.has_address(address) {
            return false;
        }
        let name = address.address.to_string();
        self.seen(entry, Kind::Address, &name, time);
        self.lost_all(entry, Kind::Address, time, |its| its == name)
    }
}

impl Item {
    /// Returns whether it was lost before.
    fn is_there(&mut self, time: Timestamp) -> bool {
        self.seen = self.seen.max(time);
        let Some(loss) = self.loss.take() else {
            return false;
        };
        self.repaired = Some((time, loss.del));
        true
    }
}

/// Whether a sandbox is being taken down in the ordinary way.
fn is_leaving(entry: &NetnsEntry) -> bool {
    entry.dying.is_some() || entry.sandbox.deleting.is_some() || entry.sandbox.del.is_some()
}

fn differs(one: Netns, other: Netns) -> bool {
    let cookies = matches!((one.cookie, other.cookie), (Some(a), Some(b)) if a != b);
    one.inode != other.inode || cookies
}

/// An address that is not every device's.
fn is_own(address: IpAddr) -> bool {
    let local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !local && !address.is_loopback()
}

fn name_of(pod: &PodRef) -> Option<(String, String)> {
    let (namespace, name) = pod.full_name()?;
    Some((namespace.to_owned(), name.to_owned()))
}

/// Whether a reservation's file is of an address.
fn names_address(path: &str, address: IpAddr) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    file.parse() == Ok(address.to_canonical())
}

#[cfg(test)]
mod tests;
