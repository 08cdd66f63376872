//! duplicate-address: two network namespaces on the node have the same address
//! in the same network. That is one finding, however many addresses they share.
//!
//! Which network an address is on is told by what its device is plugged into
//! ([`super::links`]): gateways, service addresses, VPN clients, docker
//! in docker and the nodes of a lab on one machine share addresses and never
//! meet. The addresses by which pods are reached meet always: Kubernetes has
//! each once. Where that is not known, the finding says so and no more.
//!
//! Anybody may make a user namespace, network namespaces in it, and any address
//! in these. One that neither CNI nor a runtime knows is nobody's rival: that it
//! has addresses of others is told as information, once for each user. If root
//! has made it and it is plugged into the host, it is a pod's or a container's,
//! and a rival.
//!
//! Left out are addresses on the loopback device (anycast, direct server
//! return), unless they are a pod's own, and namespaces that a pod made for
//! itself. A sandbox whose CNI DEL runs is given a moment: some plugins release
//! the address before they remove it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::IpAddr,
    time::Duration,
};

use super::{
    View, cordon, evidence, fd_label, ghost_sandbox, held_since, holders_of, is_dated, is_routable,
    joined, kubectl_words, leaked_reservation::Judge, links, links::Link, netns_of, own, pod_of,
    pod_word, short_id, sleeps_in, stuck_in, task_label, unknown_holder,
};
use crate::model::{
    Model,
    netns::{HeldAddress, NetnsEntry, Serial},
    pods::Standing,
    sandbox::PodEvidence,
};
use event::{
    PodRef, UserNs,
    clock::Timestamp,
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
};

/// How long a running CNI DEL excuses a duplicate.
const DEL_TIME: Duration = Duration::from_secs(10);
/// How long one that went well does: the plugins of a list are called one after
/// the other, and only the last leaves nothing behind.
const BETWEEN_DELS: Duration = Duration::from_millis(500);
/// Users who are told one by one of those with namespaces of their own, and
/// namespaces of one that are named: there can be any number.
const MAX_STRANGERS: usize = 3;

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
    is_dated: bool,
    /// The address is the one by which the namespace's pod is reached.
    is_primary: bool,
}

/// Namespaces that have one address in one network.
#[derive(Debug)]
struct Conflict<'a> {
    owners: Vec<Owner<'a>>,
    /// Whether they are known to share a network.
    is_certain: bool,
    /// Others with the same address of which that is not known.
    doubtful: Vec<Owner<'a>>,
}

/// What an address is to the namespaces that have it.
#[derive(Debug)]
pub struct Shared<'a> {
    /// Those that really have it, earliest first.
    pub owners: Vec<Owner<'a>>,
    conflicts: Vec<Conflict<'a>>,
    /// Users' own namespaces that have it, too, and may meet one of the owners:
    /// one of each user, and of no more users than show that they are many.
    strangers: Vec<Owner<'a>>,
}

/// Addresses that several namespaces have.
#[derive(Debug, Default)]
pub struct AllShared<'a> {
    /// Each that was looked at.
    each: BTreeMap<IpAddr, Shared<'a>>,
    /// How many more the same namespaces have.
    more: HashMap<Vec<Serial>, usize>,
    /// Addresses that were not looked at, of namespaces of which no other one
    /// was.
    unjudged: usize,
    /// How many of those each namespace has.
    unjudged_of: HashMap<Serial, usize>,
}

impl Conflict<'_> {
    /// Since when there are two.
    fn since(&self) -> Option<Timestamp> {
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
/// Addresses besides the first that a finding makes claims of.
const MAX_CLAIMED: usize = 8;

/// One finding for namespaces that share addresses in one network.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let mut groups: BTreeMap<_, Vec<(IpAddr, &Conflict<'_>)>> = BTreeMap::new();
    for (address, shared) in &view.shared().each {
        for conflict in &shared.conflicts {
            let owners = conflict.owners.iter();
            let mut owners: Vec<Serial> = owners.map(|owner| owner.entry.serial).collect();
            owners.sort_unstable();
            let group = groups.entry((owners, conflict.is_certain)).or_default();
            group.push((*address, conflict));
        }
    }
    // Each counts once, with those that it was found with.
    let mut more = view.shared().more.clone();
    let found = groups.into_values().filter_map(|mut group| {
        // What was first stays first: the finding has its ID from it.
        group.sort_by_key(|(address, conflict)| (conflict.since(), *address));
        let netns = &view.model.netns;
        let more = group
            .iter()
            .filter_map(|(address, _)| more.remove(&netns.owners(*address)));
        let more = more.sum();
        finding(view, &group, more)
    });
    found.chain(strangers_findings(view)).collect()
}

/// See [`View::shared`].
pub(super) fn all_shared<'a>(view: &View<'a>) -> AllShared<'a> {
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
    shares.sort_by_key(Vec::len);
    let mut turns = Vec::new();
    for (place, mut share) in shares.into_iter().enumerate() {
        share.sort_unstable();
        let addresses = share.into_iter().enumerate();
        turns.extend(addresses.map(|(turn, (_, address))| (turn, place, address)));
    }
    turns.sort_unstable();
    turns.into_iter().map(|(_, _, address)| address)
}

/// What was not looked at, and who has most of it.
pub fn gap(view: &View<'_>) -> Option<String> {
    let AllShared {
        unjudged,
        unjudged_of,
        ..
    } = view.shared();
    if *unjudged == 0 {
        return None;
    }
    let of = |entry: &NetnsEntry| unjudged_of.get(&entry.serial).copied();
    let most = view.model.netns.live().max_by_key(|entry| of(entry));
    let most = most.map(|entry| format!(", most of them in {}", label(view.model, entry)));
    Some(format!(
        "duplicate-address: too many addresses are in several network namespaces: {unjudged} that \
         nothing calls a pod's were not looked at{}",
        most.unwrap_or_default()
    ))
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
    strangers.sort_by_key(|stranger| !view.may_be_pods(stranger.entry));
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
        Some(Owner {
            entry,
            held: Some(its),
            since: held_since(view.model, entry, its),
            is_dated: is_dated(view.model, entry, its),
            is_primary: own::is_primary(view, entry, address, Some(&its.address.ifname)),
        })
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
    owners.sort_by_key(|owner| (owner.since, owner.entry.serial));
    owners
}

/// The other namespaces that have an address of one in the same network, as far
/// as that is known.
pub fn rivals<'a>(view: &View<'a>, entry: &NetnsEntry, address: IpAddr) -> Vec<Owner<'a>> {
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
        .map(|owner| links(view, owner, address))
        .collect();
    let any = !owners.is_empty();
    let may_be_anywhere = of_owners.iter().any(Vec::is_empty);
    let places: HashSet<Place> = of_owners.into_iter().flatten().collect();
    strangers.retain(|stranger| {
        let its = links(view, stranger, address);
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
    for owner in owners.iter().copied() {
        let links = links(view, &owner, address);
        if links.is_empty() {
            doubtful.push(owner);
            continue;
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
    let mut conflicts: Vec<_> = certain
        .into_iter()
        .map(|owners| Conflict {
            owners,
            is_certain: true,
            doubtful: doubtful.clone(),
        })
        .collect();
    if conflicts.is_empty() && !doubtful.is_empty() {
        let owners: Vec<_> = alone.into_iter().flatten().chain(doubtful).collect();
        conflicts.extend((owners.len() > 1).then_some(Conflict {
            owners,
            is_certain: false,
            doubtful: Vec::new(),
        }));
    }
    for conflict in &mut conflicts {
        conflict
            .owners
            .sort_by_key(|owner| (owner.since, owner.entry.serial));
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

/// Where an owner meets others; nowhere if that is not known.
fn links(view: &View<'_>, owner: &Owner<'_>, address: IpAddr) -> Vec<Place> {
    let entry = owner.entry;
    let held = owner.held.map(|held| &held.address);
    let links = links::links(view, entry, held, address, owner.is_primary);
    let is_routed = |link: &Link| !matches!(link, Link::Routing(_, Some(_)));
    let in_host = entry.host
        && links
            .as_ref()
            .is_none_or(|links| links.iter().all(is_routed));
    let links = links.into_iter().flatten().map(Place::At);
    let network = (owner.is_primary || in_host).then_some(Place::PodNetwork);
    links.chain(network).collect()
}

/// Whether an address is one that others can reach: not one of the loopback
/// device, unless it is known to be the pod's own.
fn counts(model: &Model, entry: &NetnsEntry, held: &HeldAddress) -> bool {
    let is_loopback = held.address.ifname == "lo" && held.address.link_kind.is_none();
    !is_loopback || own::is_named(model, entry, held.address.address)
}

/// Whether a namespace is one that a pod made for itself; see [`inner`].
pub fn is_inner(view: &View<'_>, entry: &NetnsEntry) -> bool {
    let known = view.inner.borrow().get(&entry.serial).copied();
    known.unwrap_or_else(|| {
        let is_inner = inner(view, entry);
        view.inner.borrow_mut().insert(entry.serial, is_inner);
        is_inner
    })
}

/// A namespace that a pod made for itself: another user than root has made its
/// user namespace; or the API server has other addresses
/// for the pod; or the runtime or CNI have another namespace for it than this
/// one, which only a cgroup ties to the pod; or it is cabled to another one of
/// the pod, where a sandbox is cabled to the host. What an ADD, a runtime's
/// list or libcni names is a sandbox, if not the pod's newest, and so is what
/// has an address of the pod's own or of another of its sandboxes.
fn inner(view: &View<'_>, entry: &NetnsEntry) -> bool {
    let model = view.model;
    let own = entry.sandbox.add.is_some() || entry.sandbox.named;
    let Some(uid) = entry.sandbox.uid().filter(|_| !own) else {
        return false;
    };
    if entry.is_users() {
        return true;
    }
    let ips = model
        .pods
        .pod(uid)
        .map(|pod| pod.ips.as_slice())
        .unwrap_or_default();
    let has = |entry: &NetnsEntry, address: IpAddr| model.netns.has(entry, address);
    let others = || {
        let its = view.of_pod(uid).iter();
        its.filter(|other| other.serial != entry.serial)
    };
    let is_sandbox = |other: &NetnsEntry| other.sandbox.add.is_some() || other.sandbox.named;
    // Of two that have very many addresses, the one with fewer is gone through.
    let shares = |other: &NetnsEntry| {
        let (few, many) = match other.addresses.len() < entry.addresses.len() {
            true => (other, entry),
            false => (entry, other),
        };
        let mut held = few.addresses.iter().map(|held| held.address.address);
        held.any(|address| is_routable(address) && has(many, address))
    };
    let of_sibling = || others().any(|other| is_sandbox(other) && shares(other));
    let is_own = |address: &IpAddr| is_routable(*address) && has(entry, *address);
    let of_runtime = || {
        let mut lists = model.runtime.lists();
        lists.any(|list| {
            list.of_pod(uid)
                .any(|sandbox| sandbox.ips.iter().any(is_own))
        })
    };
    let of_cni = || {
        let mut its = model.cni.of_pod(uid);
        its.any(|each| each.ips.iter().any(is_own))
    };
    if ips.iter().any(is_own) || of_sibling() || of_runtime() || of_cni() {
        return false;
    }
    if let Some(leads_out) = leads_out(view, entry, uid) {
        return !leads_out;
    }
    // The API server knows the addresses of the pod's newest sandbox alone: of
    // another one's namespace they say nothing.
    let is_older = || {
        let id = entry.sandbox.id.as_deref();
        let differs = |other: &str| id.is_some_and(|id| id != other);
        let has_any = |other: &NetnsEntry| ips.iter().any(|ip| has(other, *ip));
        others().any(|other| other.sandbox.id.as_deref().is_some_and(differs) && has_any(other))
    };
    if !ips.is_empty() && !is_older() {
        return true;
    }
    let by_cgroup = matches!(entry.sandbox.known, Some(PodEvidence::Cgroup { .. }));
    others().any(|other| {
        let earlier = other.sandbox.add.is_some_and(|add| add < entry.seen);
        let told = other.sandbox.id.is_some() || other.sandbox.add.is_some();
        (entry.created && earlier) || (by_cgroup && told)
    })
}

/// Whether anything leads out of a namespace to where no other one of its pod
/// is, as a sandbox's device does; `None` if its devices are not known, or if it
/// has no such device and no other namespace of the pod is known.
fn leads_out(view: &View<'_>, entry: &NetnsEntry, uid: &str) -> Option<bool> {
    let others = || {
        let its = view.of_pod(uid).iter();
        its.filter(|other| other.serial != entry.serial)
    };
    let wiring = entry.wiring.as_ref()?;
    let has = |other: &NetnsEntry, index: u32, far: Option<u32>| {
        let wiring = other.wiring.as_ref();
        let device = wiring.and_then(|wiring| wiring.device(index));
        device.is_some_and(|device| match far {
            Some(far) => device.link == Some(far),
            None => device.can_be_parent(),
        })
    };
    let mut is_cabled = false;
    for device in &wiring.devices {
        if device.hardware.is_some() {
            return Some(true);
        }
        let Some(link) = device.link.filter(|_| device.link_nsid.is_some()) else {
            continue;
        };
        // The other end of a veth names this one; a parent names nobody.
        let far = device.is_veth().then_some(device.index);
        let mut hosts = view.model.netns.live().filter(|other| other.host);
        let in_pod = others().any(|other| has(other, link, far));
        let on_host = hosts.any(|host| has(host, link, far));
        match (in_pod, on_host) {
            (true, false) => is_cabled = true,
            (false, true) => return Some(true),
            (true, true) | (false, false) => return None,
        }
    }
    is_cabled.then_some(false)
}

fn is_leaving(view: &View<'_>, entry: &NetnsEntry) -> bool {
    let deleting = entry.sandbox.deleting;
    let ended = entry.sandbox.del.filter(|del| del.exit_code == Some(0));
    deleting.is_some_and(|(_, since)| !view.passed(since.plus(DEL_TIME)))
        || ended.is_some_and(|del| !view.passed(del.at.plus(BETWEEN_DELS)))
}

/// `more`: addresses of the same namespaces that were not looked at.
fn finding<'a>(
    view: &View<'a>,
    conflicts: &[(IpAddr, &Conflict<'a>)],
    more: usize,
) -> Option<Finding> {
    let [(address, conflict), others @ ..] = conflicts else {
        return None;
    };
    let address = *address;
    let Conflict {
        owners,
        is_certain,
        doubtful,
    } = conflict;
    let (mut owners, is_certain) = (owners.clone(), *is_certain);
    let since = owners.get(1)?.since;
    // What is left of a pod is older than what suffers from it, also where the
    // kernel does not tell.
    let is_ghost = |owner: &Owner<'a>| ghost_sandbox::verdict(view, owner.entry).is_some();
    let is_left =
        |owner: &Owner<'a>| ghost_sandbox::gone(view, owner.entry).is_some() || is_ghost(owner);
    owners.sort_by_key(|owner| !is_left(owner));
    let newest = owners.last()?;
    let pods = owners.iter().filter(|owner| is_pods(owner)).count();
    let named = owners.iter().filter(|owner| !owner.entry.is_strangers());
    let named = named.count();
    let with_host = owners.iter().any(|owner| owner.entry.host);
    let ghosts = owners.iter().any(is_left);
    let mut inodes: Vec<u32> = owners.iter().map(|owner| owner.entry.id.inode).collect();
    inodes.sort_unstable();

    let mut said = Said::default();
    let users: Vec<String> = owners
        .iter()
        .map(|owner| format!("by {}", user(view, owner.entry)))
        .collect();
    for owner in &owners {
        claim_address(view, address, owner, &mut said);
        claim_owner(view, owner, &mut said);
    }
    for (address, conflict) in others.iter().take(MAX_CLAIMED) {
        for owner in &conflict.owners {
            claim_address(view, *address, owner, &mut said);
        }
    }
    let count = conflicts.len() + more;
    if count > 1 {
        let labels = joined(owners.iter().map(|owner| label(view.model, owner.entry)));
        let claim = format!("{labels} have other addresses in common, too");
        said.claims.push(evidence(claim, "kernel", since));
    }
    let Said {
        claims,
        mut unknown,
        mut advice,
    } = said;
    for owner in owners.iter().filter(|owner| owner.entry.is_strangers()) {
        unknown.push(format!(
            "whose {} is: root has made it in a user namespace of its own and plugged it in, and \
             neither CNI nor a runtime names it",
            label(view.model, owner.entry)
        ));
    }
    for owner in doubtful {
        let label = label(view.model, owner.entry);
        unknown.push(format!(
            "whether {label}, which has {address} as well, is in the same network"
        ));
    }
    if !is_certain {
        unknown.push(format!(
            "whether they share a network: what {} are plugged into could not be read",
            joined(owners.iter().map(|owner| label(view.model, owner.entry)))
        ));
    }
    if pods > 0 && is_certain {
        let first = format!("keep new pods off the node: {}", cordon(view));
        advice.insert(0, first);
    }
    match (is_certain, ghosts) {
        // Once the ghost is released, the other one has the address to itself.
        (true, true) => {}
        (true, false) => {
            let is_sure = unknown.is_empty() && are_all(view, address, &owners);
            advice.push(closing_advice(view, address, &owners, is_sure));
        }
        (false, _) => advice.push(String::from(
            "see what each is plugged into (ip -d link, bridge link): in different networks both \
             can keep it",
        )),
    }
    let are_used = match count - 1 {
        0 => format!("{address} is used"),
        more => format!("{address} and {more} more are used"),
    };
    Some(Finding {
        rule: Rule::DuplicateAddress,
        severity: match (is_certain, pods) {
            (false, _) => Severity::Info,
            _ if named < 2 => Severity::Warning,
            (true, 2..) => Severity::Critical,
            (true, 1) if with_host || ghosts => Severity::Critical,
            (true, _) => Severity::Warning,
        },
        id: finding_id(
            &view.settings.boot_id,
            Rule::DuplicateAddress,
            &format!("{address} {}", joined(inodes)),
        ),
        since,
        title: match (is_certain, users.as_slice()) {
            (true, [one, other]) => format!("{are_used} twice: {one} and {other}"),
            (true, many) => format!("{are_used} {} times: {}", many.len(), first(many)),
            (false, many) => format!(
                "{are_used} {} times, perhaps in different networks: {}",
                many.len(),
                first(many)
            ),
        },
        pod: pod_of(view.model, newest.entry),
        sandbox_id: newest.entry.sandbox.id.clone(),
        netns: Some(netns_of(newest.entry)),
        addresses: conflicts
            .iter()
            .map(|(address, _)| *address)
            .take(own::MAX_LISTED)
            .collect(),
        holders: owners
            .iter()
            .flat_map(|owner| holders_of(view.model, owner.entry))
            .collect(),
        evidence: claims,
        unknown,
        advice,
        detail: Detail {
            address_count: (count > 1).then_some(count as u64),
            ..Detail::default()
        },
    })
}

/// An address of a user's own namespace that another namespace has.
struct Imitated<'a, 'b> {
    address: IpAddr,
    owner: &'b Owner<'a>,
    stranger: &'b Owner<'a>,
}

/// That users have made network namespaces with others' addresses: one finding
/// for each user, however many addresses these are, and one for all users if
/// they are many.
fn strangers_findings(view: &View<'_>) -> Vec<Finding> {
    let mut by_user: BTreeMap<u32, Vec<Imitated<'_, '_>>> = BTreeMap::new();
    for (address, shared) in &view.shared().each {
        let Some(owner) = shared.owners.first() else {
            continue;
        };
        for stranger in &shared.strangers {
            let uid = stranger.entry.user_ns.map_or(0, |its| its.uid);
            by_user.entry(uid).or_default().push(Imitated {
                address: *address,
                owner,
                stranger,
            });
        }
    }
    if by_user.len() > MAX_STRANGERS {
        let users: Vec<u32> = by_user.keys().copied().collect();
        let all = by_user.into_values().flatten().collect();
        return strangers_finding(view, &users, all).into_iter().collect();
    }
    let each = by_user.into_iter();
    each.filter_map(|(user, all)| strangers_finding(view, &[user], all))
        .collect()
}

fn strangers_finding(
    view: &View<'_>,
    users: &[u32],
    mut all: Vec<Imitated<'_, '_>>,
) -> Option<Finding> {
    all.sort_by_key(|it| (it.stranger.since, it.address, it.stranger.entry.serial));
    let Imitated {
        address,
        owner,
        stranger: first,
    } = all.first()?;
    let mut seen = HashSet::new();
    let addresses: Vec<IpAddr> = all.iter().map(|it| it.address).collect();
    let addresses: Vec<IpAddr> = addresses
        .into_iter()
        .filter(|it| seen.insert(*it))
        .collect();
    let netns = &view.model.netns;
    let owners: HashSet<Vec<Serial>> = addresses.iter().map(|it| netns.owners(*it)).collect();
    let more = owners.iter().filter_map(|it| view.shared().more.get(it));
    let count = addresses.len() + more.sum::<usize>();
    let mut known = HashSet::new();
    let mut strangers: Vec<&Owner<'_>> = all.iter().map(|it| it.stranger).collect();
    strangers.retain(|stranger| known.insert(stranger.entry.serial));

    let mut claims = Vec::new();
    for stranger in strangers.iter().take(MAX_STRANGERS) {
        let entry = stranger.entry;
        let label = label(view.model, entry);
        if let Some(held) = stranger.held {
            let (held, ifname) = (&held.address, &held.address.ifname);
            let claim = format!("{label} has {held} on {ifname}");
            claims.push(evidence(claim, "kernel", stranger.since));
        }
        if let Some(UserNs { inode, uid }) = entry.user_ns {
            let claim = format!("{label} belongs to user namespace {inode}, made by user {uid}");
            claims.push(evidence(claim, "kernel", entry.seen));
        }
    }
    let mut unknown = Vec::new();
    let is_asked = view.model.runtime.lists().next().is_some()
        || view.model.cni.attachments().next().is_some();
    if !is_asked {
        unknown.push(format!(
            "whether {} is the sandbox of a pod with a user namespace of its own: neither CRI nor \
             libcni tells",
            label(view.model, first.entry)
        ));
    }
    if strangers
        .iter()
        .any(|stranger| stranger.entry.wiring.is_none())
    {
        unknown.push(String::from(
            "whether anything leads from there to the pod network: its devices have not been read",
        ));
    }
    let whose = match (users, strangers.len()) {
        ([user], 1) => format!("netns {}, which user {user} made", first.entry.id.inode),
        ([user], _) => format!("network namespaces that user {user} made"),
        _ => format!("network namespaces of more than {MAX_STRANGERS} users"),
    };
    let user = user(view, owner.entry);
    let mut others = all.iter().map(|it| it.owner.entry.serial);
    let others = match others.any(|serial| serial != owner.entry.serial) {
        true => " and others",
        false => "",
    };
    let title = match count - 1 {
        0 => format!("{address}, used by {user}, is also in {whose}"),
        more => format!("{address} and {more} more, used by {user}{others}, are also in {whose}"),
    };
    let users: Vec<u32> = users.iter().copied().take(MAX_STRANGERS).collect();
    let subject = match users.as_slice() {
        [user] => format!("user {user}"),
        _ => String::from("users"),
    };
    let mut may_be_pods = strangers.iter();
    let may_be_pods = may_be_pods.find(|stranger| view.may_be_pods(stranger.entry));
    Some(Finding {
        rule: Rule::DuplicateAddress,
        severity: Severity::Info,
        id: finding_id(&view.settings.boot_id, Rule::DuplicateAddress, &subject),
        since: first.since,
        title,
        pod: pod_of(view.model, owner.entry),
        sandbox_id: owner.entry.sandbox.id.clone(),
        netns: Some(netns_of(first.entry)),
        addresses: addresses.into_iter().take(own::MAX_LISTED).collect(),
        holders: holders_of(view.model, first.entry),
        evidence: claims,
        unknown,
        advice: vec![match may_be_pods {
            Some(stranger) => format!(
                "see whose {} is and what its devices lead to before you take anything from it: \
                 root has made it, as a runtime does for a pod with a user namespace of its own",
                label(view.model, stranger.entry)
            ),
            None => String::from(
                "nothing to do for the pod: without root's help nothing that a user makes in a \
                 user namespace is plugged into the pod network",
            ),
        }],
        detail: Detail {
            address_count: (count > 1).then_some(count as u64),
            users,
            ..Detail::default()
        },
    })
}

/// Whether nobody besides these can have an address: every source has told all
/// that it knows, and whoever has it anywhere is one of them.
fn are_all(view: &View<'_>, address: IpAddr, owners: &[Owner<'_>]) -> bool {
    let model = view.model;
    let is_owner = |entry: &NetnsEntry| {
        let mut owners = owners.iter();
        owners.any(|owner| owner.entry.serial == entry.serial)
    };
    let mut with = model.netns.with_address(address);
    with.all(|entry| entry.dying.is_some() || is_owner(entry))
        && view.judge().is_some_and(Judge::is_certain)
        && model.failures().next().is_none()
        && model.losses.last.is_none()
}

fn is_pods(owner: &Owner<'_>) -> bool {
    owner.entry.sandbox.pod.is_some()
}

/// What ends a conflict of which no owner is a ghost, and everything else is
/// known. A pod is named for deletion only if the IPAM has the address for the
/// other one, who is its rightful holder then: who came later proves nothing.
fn closing_advice(view: &View<'_>, address: IpAddr, owners: &[Owner<'_>], is_sure: bool) -> String {
    let is_rightful = |owner: &&Owner<'_>| own::is_reserved(view.model, owner.entry, address);
    let (rightful, others): (Vec<&Owner<'_>>, Vec<&Owner<'_>>) =
        owners.iter().partition(is_rightful);
    let lives = |owner: &Owner<'_>| owner.entry.sandbox.standing == Standing::Listed;
    // A file can be of yesterday.
    let is_of_now = view.model.pods.list().is_some_and(|list| list.vouched);
    let is_sure = is_sure && is_of_now && owners.iter().all(lives);
    let wrong = match (rightful.as_slice(), others.as_slice()) {
        // A pod that has both would lose both.
        ([right], [wrong]) if is_sure && right.entry.sandbox.uid() != wrong.entry.sandbox.uid() => {
            pod_of(view.model, wrong.entry)
        }
        _ => None,
    };
    match wrong.as_ref().and_then(kubectl_words) {
        Some(words) => format!(
            "the address is reserved for the other one; give this pod another one, once the node \
             is cordoned: kubectl delete pod {words}"
        ),
        None => String::from(
            "find out which of them has a right to it (the store of the IPAM, kubectl get pods -A \
             -o wide) before you recreate one of them or take the address from it",
        ),
    }
}

/// The first few names, and how many more there are.
fn first(names: &[String]) -> String {
    const FEW: usize = 8;
    match names.split_at_checked(FEW) {
        Some((few, more)) if !more.is_empty() => {
            format!("{} and {} more", few.join(", "), more.len())
        }
        _ => names.join(", "),
    }
}

/// What a finding says besides its title.
#[derive(Default)]
struct Said {
    claims: Vec<Evidence>,
    unknown: Vec<String>,
    advice: Vec<String>,
}

fn claim_address<'a>(view: &View<'a>, address: IpAddr, owner: &Owner<'a>, said: &mut Said) {
    let label = label(view.model, owner.entry);
    match owner.held {
        Some(held) => {
            let found = match owner.is_dated {
                true => "",
                false => "; it had it before the tracer looked",
            };
            let ifname = &held.address.ifname;
            let claim = format!("{label} has {} on {ifname}{found}", held.address);
            said.claims.push(evidence(claim, "kernel", owner.since));
        }
        None => {
            let claim = format!("{address} is the address of {label}");
            said.claims.push(evidence(claim, "cni", owner.since));
            said.unknown.push(format!(
                "whether {label} still uses {address}: no device there has it, as with gVisor, \
                 which answers for it itself, or after it was taken away"
            ));
        }
    }
}

/// What is known of one owner, what is not, and what follows.
fn claim_owner<'a>(view: &View<'a>, owner: &Owner<'a>, said: &mut Said) {
    let Said {
        claims,
        unknown,
        advice,
    } = said;
    let entry = owner.entry;
    let label = label(view.model, entry);
    match entry.sandbox.known {
        Some(
            known @ (PodEvidence::Cni { at }
            | PodEvidence::Cache { at }
            | PodEvidence::Runtime { at, .. }),
        ) => {
            let id = short_id(entry.sandbox.id.as_deref().unwrap_or_default());
            let source = known.source();
            claims.push(evidence(format!("{label} is sandbox {id}"), source, at));
        }
        Some(PodEvidence::Cgroup { pid, at }) => {
            let claim = format!("{label} is a pod's by the cgroup of process {pid}");
            claims.push(evidence(claim, "kernel", at));
        }
        None => {}
    }
    let whose = whose(view, entry);
    let stuck = stuck_in(view.model, entry);
    for blocked in &stuck {
        let claim = format!(
            "{}, in uninterruptible sleep{}, keeps {whose}",
            task_label(&blocked.task),
            sleeps_in(blocked),
        );
        claims.push(evidence(claim, "kernel", blocked.since));
    }
    if let Some(at) = entry.held_at.filter(|_| stuck.is_empty()) {
        let task = entry.tasks.iter().min_by_key(|task| (task.pid, task.tid));
        let mount = entry.mounts.first();
        let holder = task.map(task_label);
        let holder = holder.or_else(|| mount.map(|path| format!("the mount {}", path.display())));
        if let Some(holder) = holder {
            claims.push(evidence(format!("{holder} keeps {whose}"), "kernel", at));
        }
    }
    if let (Some(first), Some(at)) = (entry.fds.first(), entry.held_at) {
        let fd = fd_label(first);
        let claim = format!("no task is in {label}, and it is mounted nowhere; {fd} keeps it");
        claims.push(evidence(claim, "kernel", at));
    }
    if let Some(since) = ghost_sandbox::verdict(view, entry).map(|ghost| ghost.since) {
        claims.push(evidence(
            format!("{label} is a ghost: its pod is gone"),
            "tracer",
            since,
        ));
        advice.push(format!(
            "{label} is a ghost; the ghost-sandbox finding on it says how to release it"
        ));
    }
    if entry.held_at.is_none() && !entry.host {
        unknown.push(format!(
            "what keeps {label}: not all that can keep it was looked through so far"
        ));
    } else if entry.is_held_by_nothing_found() && !entry.host {
        unknown.push(unknown_holder(&label));
    }
    if !is_pods(owner) && !entry.host {
        unknown.push(format!("whose {label} is"));
    } else if is_pods(owner) && ghost_sandbox::is_untold(view, entry) {
        unknown.push(format!(
            "whether the pod of {label} still exists: no pod list tells"
        ));
    }
}

/// A namespace's pod as a user of an address: `the deleted pod shop/checkout
/// (netns 4026532200)`.
fn user(view: &View<'_>, entry: &NetnsEntry) -> String {
    let inode = entry.id.inode;
    match pod_of(view.model, entry).filter(|_| !entry.host) {
        Some(pod) => format!("{} (netns {inode})", pod_words(view, entry, &pod)),
        None => label(view.model, entry),
    }
}

/// A namespace as its pod's: `netns 4026532200 of the deleted pod
/// shop/checkout`.
fn whose(view: &View<'_>, entry: &NetnsEntry) -> String {
    let inode = entry.id.inode;
    match pod_of(view.model, entry).filter(|_| !entry.host) {
        Some(pod) => format!("netns {inode} of {}", pod_words(view, entry, &pod)),
        None => label(view.model, entry),
    }
}

fn pod_words(view: &View<'_>, entry: &NetnsEntry, pod: &PodRef) -> String {
    match ghost_sandbox::gone(view, entry) {
        Some(_) => format!("the deleted pod {}", pod_word(pod)),
        None => pod.label(),
    }
}

/// A namespace in a sentence: `netns 4026532200 (shop/checkout)`.
pub fn label(model: &Model, entry: &NetnsEntry) -> String {
    let inode = entry.id.inode;
    match pod_of(model, entry) {
        _ if entry.host => format!("the host's netns {inode}"),
        Some(pod) => format!("netns {inode} ({})", pod.label()),
        None => match (entry.mounts.first(), entry.fds.first()) {
            (Some(path), _) => format!("netns {inode} ({})", path.display()),
            (None, Some(fd)) => format!("netns {inode} ({})", fd_label(fd)),
            (None, None) => format!("netns {inode}"),
        },
    }
}

#[cfg(test)]
mod tests;
