//! Which namespaces have the same address in the same network.
//!
//! Which network an address is on is told by what its device is plugged into
//! ([`links`](mod@super::links)). The addresses by which pods are reached are in one network:
//! Kubernetes has each once. A sandbox whose CNI DEL runs is given a moment:
//! some plugins release the address before they remove it.

use crate::{
    detect::{
        View,
        facts::{
            inner::is_inner,
            links::{self, Link},
            own,
        },
        held_since, is_dated, is_routable,
    },
    model::{
        Model,
        netns::{HeldAddress, NetnsEntry, Serial},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::IpAddr,
    time::Duration,
};

use event::order::Order as _;
use event::{Address, clock::Timestamp};

/// How long a running CNI DEL excuses a duplicate.
const DEL_TIME: Duration = Duration::from_secs(10);
/// How long one that went well does: the plugins of a list are called one after
/// the other, and only the last leaves nothing behind.
const BETWEEN_DELS: Duration = Duration::from_millis(500);
/// Users who are told one by one of those with namespaces of their own, and
/// namespaces of one that are named: there can be any number.
pub(in crate::detect) const MAX_STRANGERS: usize = 3;

/// A namespace that has an address.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    pub entry: &'a NetnsEntry,
    /// The address as the kernel has it; `None` for one that the pod is called
    /// by and that the kernel does not show.
    pub held: Option<&'a HeldAddress>,
    /// Since when, as well as that is known.
    pub since: Timestamp,
    /// Whether that is when it got the address, not when it was looked at.
    pub(in crate::detect) is_dated: bool,
    /// The address is the one by which the namespace's pod is reached.
    is_primary: bool,
}

/// Namespaces that have one address in one network.
#[derive(Debug)]
pub(in crate::detect) struct Conflict<'a> {
    pub(in crate::detect) owners: Vec<Owner<'a>>,
    /// Whether they are known to share a network.
    pub(in crate::detect) is_certain: bool,
    /// Others with the same address of which that is not known.
    pub(in crate::detect) doubtful: Vec<Owner<'a>>,
}

/// What an address is to the namespaces that have it.
#[derive(Debug)]
pub struct Shared<'a> {
    /// Those that really have it, earliest first.
    pub owners: Vec<Owner<'a>>,
    pub(in crate::detect) conflicts: Vec<Conflict<'a>>,
    /// Users' own namespaces that have it, too, and may meet one of the owners:
    /// one of each user, and of no more users than show that they are many.
    pub(in crate::detect) strangers: Vec<Owner<'a>>,
}

/// Addresses that several namespaces have.
#[derive(Debug, Default)]
pub struct AllShared<'a> {
    /// Each that was looked at.
    pub(in crate::detect) each: BTreeMap<IpAddr, Shared<'a>>,
    /// How many more the same namespaces have.
    pub(in crate::detect) more: HashMap<Vec<Serial>, usize>,
    /// Addresses that were not looked at, of namespaces of which no other one
    /// was.
    pub(in crate::detect) unjudged: usize,
    /// How many of those each namespace has.
    pub(in crate::detect) unjudged_of: HashMap<Serial, usize>,
}

impl<'a> Owner<'a> {
    /// A namespace with an address that the kernel shows in it.
    pub(in crate::detect) fn of_held(
        view: &View<'a>,
        entry: &'a NetnsEntry,
        held: &'a HeldAddress,
    ) -> Self {
        let Address {
            address, ifname, ..
        } = &held.address;
        Self {
            entry,
            held: Some(held),
            since: held_since(view.model, entry, held),
            is_dated: is_dated(view.model, entry, held),
            is_primary: own::is_primary(view, entry, *address, Some(ifname)),
        }
    }
}

impl Conflict<'_> {
    /// Since when there are two.
    pub(in crate::detect) fn since(&self) -> Option<Timestamp> {
        self.owners.get(1).map(|owner| owner.since)
    }
}

impl<'a> AllShared<'a> {
    /// Each that was looked at.
    pub fn values(&self) -> impl Iterator<Item = &Shared<'a>> {
        self.each.values()
    }

    /// How many were looked at.
    pub fn len(&self) -> usize {
        self.each.len()
    }
}

/// Addresses of the same namespaces that are looked at one by one; who has one
/// in common can have thousands. What something calls a pod's is always looked
/// at.
const MAX_OF_ONE: usize = 32;
/// The same of all namespaces together, in turns.
const MAX_JUDGED: usize = 2_048;
/// See [`View::shared`].
pub(in crate::detect) fn all_shared<'a>(view: &View<'a>) -> AllShared<'a> {
    let netns = &view.model.netns;
    let mut all = AllShared::default();
    let mut by_owners: BTreeMap<Vec<Serial>, Vec<IpAddr>> = BTreeMap::new();
    let mut count = 0;
    for address in netns.shared().filter(|address| is_routable(*address)) {
        let addresses = by_owners.entry(netns.owners(address)).or_default();
        addresses.push(address);
        count += 1;
    }
    let mut groups = by_owners.values();
    if count > MAX_JUDGED || groups.any(|addresses| addresses.len() > MAX_OF_ONE) {
        let named = all_named(view.model);
        let addresses = by_owners.values().flatten();
        let addresses = addresses.filter(|address| named.contains(address));
        all.each
            .extend(addresses.map(|address| (*address, shared(view, *address))));
    }
    let most = all.each.len() + MAX_JUDGED;
    for address in in_turns(view, &by_owners) {
        if all.each.len() >= most {
            break;
        }
        let entry = all.each.entry(address);
        entry.or_insert_with(|| shared(view, address));
    }
    for (address, entries) in view.unseen() {
        let is_shared = entries.len() > 1 || !netns.owners(*address).is_empty();
        if is_shared && is_routable(*address) && !all.each.contains_key(address) {
            all.each.insert(*address, shared(view, *address));
        }
    }
    for (serials, addresses) in by_owners {
        let is_left = |address: &&IpAddr| !all.each.contains_key(*address);
        let left = addresses.iter().filter(is_left).count();
        if left == addresses.len() {
            all.unjudged += left;
            for serial in serials {
                *all.unjudged_of.entry(serial).or_default() += left;
            }
        } else if left > 0 {
            all.more.insert(serials, left);
        }
    }
    all
}

/// Who has a share in what is looked at.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Party<'a> {
    Pod(&'a str),
    Namespace(Serial),
    /// All users' own namespaces.
    Strangers,
}

/// Addresses in the order in which they are looked at: one of each party after
/// the other, so that nobody's many hide another's few; of one party, one of
/// each set of namespaces after the other.
fn in_turns(
    view: &View<'_>,
    by_owners: &BTreeMap<Vec<Serial>, Vec<IpAddr>>,
) -> impl Iterator<Item = IpAddr> + use<> {
    let mut shares: BTreeMap<Party<'_>, Vec<(usize, IpAddr)>> = BTreeMap::new();
    for addresses in by_owners.values() {
        let owners = addresses.first().into_iter();
        let owners = owners.flat_map(|first| view.model.netns.with_address(*first));
        let parties: BTreeSet<Party<'_>> = owners
            .map(|entry| match entry.sandbox.uid() {
                _ if entry.is_strangers() => Party::Strangers,
                Some(uid) => Party::Pod(uid),
                None => Party::Namespace(entry.serial),
            })
            .collect();
        for party in parties {
            let share = shares.entry(party).or_default();
            share.extend(addresses.iter().copied().take(MAX_OF_ONE).enumerate());
        }
    }
    let mut shares: Vec<_> = shares.into_values().collect();
    // Should there be more parties than can have a turn.
    shares.order_by_key(Vec::len);
    let mut turns = Vec::new();
    for (place, mut share) in shares.into_iter().enumerate() {
        share.sort_unstable();
        let addresses = share.into_iter().enumerate();
        turns.extend(addresses.map(|(turn, (_, address))| (turn, place, address)));
    }
    turns.sort_unstable();
    turns.into_iter().map(|(_, _, address)| address)
}

/// Addresses that anything but the kernel calls somebody's.
fn all_named(model: &Model) -> HashSet<IpAddr> {
    let pods = model.pods.list().into_iter().flat_map(|list| list.pods());
    let pods = pods.flat_map(|pod| pod.ips.iter().copied());
    let lists = model.runtime.lists();
    let sandboxes = lists.flat_map(|list| list.sandboxes());
    let sandboxes = sandboxes.flat_map(|sandbox| sandbox.ips.iter().copied());
    let cached = model.cni.attachments();
    let cached = cached.flat_map(|each| each.ips.iter().copied());
    let called = model.calls.attachments().flat_map(|each| each.ips());
    let stores = model.cni.stores();
    let reserved = stores.flat_map(|it| it.store.reservations.iter().map(|it| it.address));
    let named = pods.chain(sandboxes).chain(cached);
    named.chain(called).chain(reserved).collect()
}

fn shared<'a>(view: &View<'a>, address: IpAddr) -> Shared<'a> {
    let all = owners(view, address).into_iter();
    let (mut strangers, owners): (Vec<_>, Vec<_>) =
        all.partition(|owner| view.is_bystander(owner.entry));
    let conflicts = conflicts(view, address, &owners);
    retain_near(view, address, &owners, &mut strangers);
    strangers.order_by_key(|stranger| !view.may_be_pods(stranger.entry));
    let mut users = HashSet::new();
    strangers.retain(|stranger| users.insert(stranger.entry.user_ns.map(|its| its.uid)));
    strangers.truncate(MAX_STRANGERS + 1);
    Shared {
        owners,
        conflicts,
        strangers,
    }
}

/// The namespaces that really have an address, earliest first.
fn owners<'a>(view: &View<'a>, address: IpAddr) -> Vec<Owner<'a>> {
    let netns = &view.model.netns;
    let held = netns.with_address(address).filter_map(|entry| {
        let mut held = netns.held_at(entry, address);
        let its = held.find(|held| counts(view.model, entry, held))?;
        Some(Owner::of_held(view, entry, its))
    });
    let unseen = view.unseen().get(&address).into_iter().flatten();
    let unseen = unseen.map(|entry| Owner {
        entry,
        held: None,
        since: own::named_since(view.model, entry, address),
        is_dated: false,
        is_primary: own::is_primary(view, entry, address, None),
    });
    let mut owners: Vec<_> = held.chain(unseen).collect();
    owners.retain(|owner| !is_inner(view, owner.entry) && !is_leaving(view, owner.entry));
    owners.order_by_key(|owner| (owner.since, owner.entry.serial));
    owners
}

/// The other namespaces that have an address of one in the same network, as far
/// as that is known.
pub fn other_owners<'a>(view: &View<'a>, entry: &NetnsEntry, address: IpAddr) -> Vec<Owner<'a>> {
    let is_own = |owner: &Owner<'_>| owner.entry.serial == entry.serial;
    let of = |shared: &Shared<'a>| -> Vec<Owner<'a>> {
        let conflicts = shared.conflicts.iter();
        let its =
            conflicts.filter(|conflict| conflict.is_certain && conflict.owners.iter().any(is_own));
        its.flat_map(|conflict| conflict.owners.iter().copied())
            .filter(|owner| !is_own(owner))
            .collect()
    };
    match view.shared().each.get(&address) {
        Some(shared) => of(shared),
        None if view.model.netns.owners(address).len() > 1 => of(&shared(view, address)),
        None => Vec::new(),
    }
}

/// Namespaces with a shared address of which it is not known whether they share
/// a network: what they are plugged into is to be read.
pub fn unplaced<'a>(view: &View<'a>) -> impl Iterator<Item = &'a NetnsEntry> {
    let conflicts = view.shared().values().flat_map(|shared| &shared.conflicts);
    let doubtful = conflicts.flat_map(|conflict| match conflict.is_certain {
        true => &conflict.doubtful,
        false => &conflict.owners,
    });
    let strangers = view.shared().values().flat_map(|shared| &shared.strangers);
    let unread = strangers.filter(|owner| owner.entry.wiring.is_none());
    let entries: BTreeMap<_, _> = doubtful
        .chain(unread)
        .map(|owner| (owner.entry.serial, owner.entry))
        .collect();
    entries.into_values()
}

/// Leaves those strangers that meet one of the owners, or may.
fn retain_near(
    view: &View<'_>,
    address: IpAddr,
    owners: &[Owner<'_>],
    strangers: &mut Vec<Owner<'_>>,
) {
    if strangers.is_empty() {
        return;
    }
    let of_owners: Vec<_> = owners
        .iter()
        .map(|owner| links(view, owner, address).0)
        .collect();
    let any = !owners.is_empty();
    let may_be_anywhere = of_owners.iter().any(Vec::is_empty);
    let places: HashSet<Place> = of_owners.into_iter().flatten().collect();
    strangers.retain(|stranger| {
        let (its, _) = links(view, stranger, address);
        let is_near = its.iter().any(|place| places.contains(place));
        any && (its.is_empty() || may_be_anywhere || is_near)
    });
}

/// Who has an address together with whom.
fn conflicts<'a>(view: &View<'a>, address: IpAddr, owners: &[Owner<'a>]) -> Vec<Conflict<'a>> {
    if owners.len() < 2 {
        return Vec::new();
    }
    // The owners that meet, by any place where they do.
    let mut groups: Vec<Vec<Owner<'a>>> = Vec::new();
    let mut places: HashMap<Place, usize> = HashMap::new();
    let mut doubtful = Vec::new();
    // Those that may be in other places, too.
    let mut unread = HashSet::new();
    for owner in owners.iter().copied() {
        let (links, is_whole) = links(view, &owner, address);
        if links.is_empty() {
            doubtful.push(owner);
            continue;
        }
        if !is_whole {
            unread.insert(owner.entry.serial);
        }
        let mut met: Vec<usize> = links
            .iter()
            .filter_map(|link| places.get(link).copied())
            .collect();
        met.sort_unstable();
        met.dedup();
        let group = met.first().copied().unwrap_or(groups.len());
        if group == groups.len() {
            groups.push(Vec::new());
        }
        for other in met.into_iter().skip(1) {
            let moved = std::mem::take(&mut groups[other]);
            groups[group].extend(moved);
            places
                .values_mut()
                .filter(|place| **place == other)
                .for_each(|place| *place = group);
        }
        places.extend(links.into_iter().map(|link| (link, group)));
        groups[group].push(owner);
    }
    let (certain, alone): (Vec<_>, Vec<_>) = groups
        .into_iter()
        .filter(|group| !group.is_empty())
        .partition(|group| group.len() > 1);
    let (may_meet, alone): (Vec<_>, Vec<_>) = alone
        .into_iter()
        .flatten()
        .partition(|owner| unread.contains(&owner.entry.serial));
    doubtful.extend(may_meet);
    let mut conflicts: Vec<_> = certain
        .into_iter()
        .map(|owners| Conflict {
            owners,
            is_certain: true,
            doubtful: doubtful.clone(),
        })
        .collect();
    if conflicts.is_empty() && !doubtful.is_empty() {
        let owners: Vec<_> = alone.into_iter().chain(doubtful).collect();
        conflicts.extend((owners.len() > 1).then_some(Conflict {
            owners,
            is_certain: false,
            doubtful: Vec::new(),
        }));
    }
    for conflict in &mut conflicts {
        conflict
            .owners
            .order_by_key(|owner| (owner.since, owner.entry.serial));
    }
    conflicts
}

/// Where owners of an address meet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    At(Link),
    /// The pod network, which the host's own routing is a part of.
    PodNetwork,
}

/// Where an owner meets others, and whether these are all places: a pod's own
/// address is in the pod network, whatever its device is plugged into.
fn links(view: &View<'_>, owner: &Owner<'_>, address: IpAddr) -> (Vec<Place>, bool) {
    let entry = owner.entry;
    let held = owner.held.map(|held| &held.address);
    let links = links::links(view, entry, held, address, owner.is_primary);
    let is_routed = |link: &Link| !matches!(link, Link::Routing(_, Some(_)));
    let in_host = entry.host
        && links
            .as_ref()
            .is_none_or(|links| links.iter().all(is_routed));
    let is_whole = links.is_some() || in_host;
    let links = links.into_iter().flatten().map(Place::At);
    let network = (owner.is_primary || in_host).then_some(Place::PodNetwork);
    (links.chain(network).collect(), is_whole)
}

/// Whether an address is one that others can reach: not one of the loopback
/// device, unless it is known to be the pod's own.
fn counts(model: &Model, entry: &NetnsEntry, held: &HeldAddress) -> bool {
    let is_loopback = held.address.ifname == "lo" && held.address.link_kind.is_none();
    !is_loopback || own::is_named(model, entry, held.address.address)
}

pub(in crate::detect) fn is_leaving(view: &View<'_>, entry: &NetnsEntry) -> bool {
    let deleting = entry.sandbox.deleting;
    let ended = entry.sandbox.del.filter(|del| del.exit_code == Some(0));
    deleting.is_some_and(|(_, since)| !view.passed(since.plus(DEL_TIME)))
        || ended.is_some_and(|del| !view.passed(del.at.plus(BETWEEN_DELS)))
}
