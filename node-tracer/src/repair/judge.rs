//! Which reservations may be released: in doubt none.
//!
//! The verdict of the engine's rule comes first
//! ([`leaked_reservation`](engine::detect::leaked_reservation)); what is asked
//! for besides is what a release has to be sure of and a finding has not. Pure:
//! what one look has seen goes in, one verdict a reservation comes out.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use engine::{
    detect::{
        View,
        facts::{
            leaks::{self, FLAT},
            paths::NodeTables,
            reservations::{Judge, Verdict, taker},
        },
    },
    model::{Model, attachment::ListedStore},
};
use event::repair::plan::{Reason, Withheld};
use event::{Reservation, StoreKind, clock::Timestamp, wording::subjects::short_id};
use kernel::live::ListedNetns;
use node::{
    cni::running::Running,
    hostlocal::{file_name, locked_store::Exact, parse},
};

/// How long an answer to ARP counts: the longest that the kernel by default takes the
/// one who gave it as REACHABLE, 1.5 times 30 s.
const ANSWERED: Duration = Duration::from_secs(45);

/// What one look has seen, as far as releases depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookContent<'v, 'a> {
    /// The model of it, at the time of it.
    pub(crate) view: &'v View<'a>,
    pub(crate) at: Timestamp,
    /// The least age of what is released.
    pub(crate) grace: Duration,
    pub(crate) plugins: &'v Running,
    /// Containers that have a cgroup of any kind.
    pub(crate) cgroups: &'v BTreeSet<String>,
    /// What could not be read, in words.
    pub(crate) unknown: &'v [String],
    /// Network namespaces that the kernel has and nothing else that was looked at leads
    /// to.
    pub(crate) unseen: &'v [ListedNetns],
}

/// A reservation that this look would release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) store: PathBuf,
    /// The network, by the CNI configuration.
    pub(crate) network: Option<String>,
    pub(crate) reservation: Reservation,
}

/// The verdicts on all reservations of host-local's stores, by path.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// What may be released.
    pub(crate) free: BTreeMap<PathBuf, Free>,
    pub(crate) withheld: BTreeMap<PathBuf, Withheld>,
}

impl Verdicts {
    /// Why a file is left alone by these; `None` if it is not, or not there.
    pub(crate) fn why(&self, path: &Path) -> Option<&Withheld> {
        self.withheld.get(path)
    }

    fn withhold(&mut self, withheld: Withheld) {
        self.withheld
            .insert(PathBuf::from(&withheld.path), withheld);
    }
}

pub(crate) fn judge(seen: LookContent<'_, '_>) -> Verdicts {
    let mut verdicts = Verdicts::default();
    let model = seen.view.model;
    let Some(judge) = seen.view.judge() else {
        return verdicts;
    };
    let stores = || {
        let all = model.cni.stores();
        all.filter(|listed| listed.store.kind == StoreKind::HostLocal)
    };
    let all = || stores().flat_map(|listed| listed.store.reservations.iter());
    // A container of which one address is in use has all of its addresses.
    let live: BTreeSet<&str> = all()
        .filter(|each| !each.holder.container_id.is_empty())
        .filter(|each| in_use(seen, judge, each).is_some())
        .map(|each| each.holder.container_id.as_str())
        .collect();
    for listed in stores() {
        let of_store = of_store(seen, judge, listed);
        let network = model.cni.network_of(&listed.store.path);
        for each in &listed.store.reservations {
            let why = in_use(seen, judge, each)
                .or_else(|| companion(&live, each))
                .or_else(|| doubtful(seen, judge, each))
                .or_else(|| of_store.clone());
            match why {
                Some((reason, why)) => verdicts.withhold(withheld(each, reason, why)),
                None => {
                    let free = Free {
                        store: listed.store.path.clone(),
                        network: network.map(|network| network.name.clone()),
                        reservation: each.clone(),
                    };
                    verdicts.free.insert(each.holder.path.clone(), free);
                }
            }
        }
        for address in &listed.store.blocked {
            let path = listed.store.path.join(file_name(*address));
            verdicts.withhold(Withheld {
                path: path.to_string_lossy().into_owned(),
                address: Some(*address),
                container_id: String::new(),
                ifname: None,
                reason: Reason::Unreadable,
                why: unread(listed, &path),
            });
        }
    }
    verdicts
}

/// One that is left alone.
pub(crate) fn withheld(each: &Reservation, reason: Reason, why: impl Into<String>) -> Withheld {
    Withheld {
        path: each.holder.path.to_string_lossy().into_owned(),
        address: Some(each.address),
        container_id: each.holder.container_id.clone(),
        ifname: each.holder.ifname.clone(),
        reason,
        why: why.into(),
    }
}

/// What shows that it is in use.
fn in_use(
    seen: LookContent<'_, '_>,
    judge: &Judge<'_>,
    each: &Reservation,
) -> Option<(Reason, String)> {
    let model = seen.view.model;
    let id = each.holder.container_id.as_str();
    let live = |why: String| Some((Reason::Live, why));
    if let Verdict::Live(proof) = judge.of(seen.view, each) {
        let (what, source, _) = judge.words(proof, seen.at);
        return live(format!("{what} ({source})"));
    }
    if seen.cgroups.contains(id) {
        return live(String::from("the container has a cgroup (kernel)"));
    }
    let cri = model.runtime.cri();
    let mut sandboxes = cri.into_iter().flat_map(|list| list.sandboxes());
    if let Some(other) = sandboxes.find(|sandbox| sandbox.ips.contains(&each.address)) {
        return live(format!(
            "the container runtime says that sandbox {} has the address (cri)",
            short_id(&other.id)
        ));
    }
    let mut unseen = seen.unseen.iter();
    let has = |netns: &&ListedNetns| {
        let mut addresses = netns.addresses.iter();
        addresses.any(|held| held.address == each.address)
    };
    if let Some(other) = unseen.find(has) {
        return live(format!(
            "network namespace {} has the address; what keeps it alive is not known (kernel)",
            other.netns.inode
        ));
    }
    if let Some(other) = taker(seen.view, each.address) {
        return live(format!(
            "network namespace {} takes packets to the address by a local route (kernel; ip route \
             show table all type local)",
            other.id.inode
        ));
    }
    if let Some(ago) = answered(seen, each.address) {
        return live(format!(
            "somebody answered the node for the address {} ago (kernel; ip neigh show {})",
            humantime::format_duration(Duration::from_secs(ago.as_secs())),
            each.address
        ));
    }
    if seen.plugins.containers.contains(id) {
        let why = "a CNI plugin runs for the container right now";
        return Some((Reason::PluginRuns, why.to_owned()));
    }
    let pod = pod_with(model, each.address)?;
    Some((
        Reason::PodHasIt,
        format!("the API server's list says that pod {pod} has the address"),
    ))
}

/// How long ago somebody answered the node for an address, if the node still goes
/// by that, or it was lately.
///
/// Other states alone would keep every leak: the entry of a pod that is gone stays
/// STALE, and is DELAY and PROBE again whenever something is sent there; PERMANENT is
/// what somebody has entered, and outlives the pod. One that was only asked by the
/// address counts as answered 60 s before.
fn answered(seen: LookContent<'_, '_>, address: IpAddr) -> Option<Duration> {
    let node = NodeTables::of(seen.view)?;
    let mut all = node.forwarding.neighbours.iter();
    all.find_map(|it| {
        let ago = node.at.since(it.confirmed?);
        let lately = match it.neighbour.state.as_str() {
            "reachable" => true,
            "stale" | "delay" | "probe" => ago < ANSWERED,
            _ => false,
        };
        (it.neighbour.address == address && lately).then_some(ago)
    })
}

/// A pod that has an address by the list.
fn pod_with(model: &Model, address: IpAddr) -> Option<String> {
    let mut pods = model.pods.list()?.pods().iter();
    let pod = pods.find(|pod| pod.ips.contains(&address))?;
    let phase = pod.phase.as_deref().unwrap_or("phase unknown");
    Some(format!("{}/{} ({phase})", pod.namespace, pod.name))
}

fn companion(live: &BTreeSet<&str>, each: &Reservation) -> Option<(Reason, String)> {
    let id = each.holder.container_id.as_str();
    (!id.is_empty() && live.contains(id)).then(|| {
        let why = "another address of the same container is in use";
        (Reason::CompanionLive, why.to_owned())
    })
}

/// What keeps it from being certain that nobody uses it.
fn doubtful(
    seen: LookContent<'_, '_>,
    judge: &Judge<'_>,
    each: &Reservation,
) -> Option<(Reason, String)> {
    let cni = &seen.view.model.cni;
    let id = each.holder.container_id.as_str();
    let not_before = |time: Timestamp| seen.at < time.plus(seen.grace);
    if not_before(each.modified) {
        return Some((Reason::Young, young("it was reserved", seen.grace)));
    }
    if let Some(other) = seen.unseen.iter().find(|netns| netns.cut) {
        let inode = other.netns.inode;
        let why = format!("network namespace {inode} has more addresses than were read (kernel)");
        return Some((Reason::Unknown, why));
    }
    if let Some(other) = seen.unseen.iter().find(|netns| is_unrouted(seen, netns)) {
        let inode = other.netns.inode;
        let why = format!("the routes of network namespace {inode} could not be read (kernel)");
        return Some((Reason::Unknown, why));
    }
    if judge.is_half_seen() {
        // gVisor keeps addresses out of the kernel's sight, and so may a route.
        return Some((Reason::Unknown, judge.doubts().join("; ")));
    }
    if !id.is_empty() {
        let mut added = cni.of_container(id);
        if added.any(|each| not_before(each.written)) {
            return Some((Reason::Young, young("its CNI ADD ended", seen.grace)));
        }
        let mut unknown = cni.unread().chain(seen.unknown.iter().map(String::as_str));
        if let Some(text) = unknown.find(|text| text.contains(id)) {
            return Some((Reason::Unknown, format!("not known: {text}")));
        }
        if !is_runtimes(id) {
            let why = "its container ID is none that a container runtime of Kubernetes gives (64 \
                       hexadecimal digits), so CRI cannot vouch for it: another tool's, or from \
                       Docker's old days";
            return Some((Reason::ForeignId, why.to_owned()));
        }
    }
    match judge.of(seen.view, each) {
        // The grace is the caller's; the rule's own is for findings.
        Verdict::Leaked | Verdict::Young => None,
        Verdict::Live(_) | Verdict::Untold(_) => {
            let why = "whether its container exists is not known";
            Some((Reason::Unknown, why.to_owned()))
        }
    }
}

/// Whether something leads to a namespace on the kernel's list and it could not be
/// read: the list shows no routes. Those of users are no pod's.
fn is_unrouted(seen: LookContent<'_, '_>, listed: &ListedNetns) -> bool {
    let entry = seen.view.model.netns.get(listed.netns);
    let is_unread = entry.is_some_and(|entry| entry.dying.is_none() && entry.wiring.is_none());
    is_unread && !listed.ends && listed.user_ns.is_none_or(|user_ns| user_ns.uid == 0)
}

fn young(what: &str, grace: Duration) -> String {
    format!(
        "{what} less than {} ago (--grace); a container may be starting",
        humantime::format_duration(grace)
    )
}

/// Why nothing of a store is touched.
fn of_store<'a>(
    seen: LookContent<'_, 'a>,
    judge: &Judge<'_>,
    listed: &'a ListedStore,
) -> Option<(Reason, String)> {
    let path = &listed.store.path;
    let networks = seen.view.model.cni.networks().unwrap_or_default();
    if path.to_str().is_none() {
        let why = "its path is no text";
        return Some((Reason::Fixed, why.to_owned()));
    }
    if !judge.can_judge(listed) {
        let why = "the store was listed before the containers were";
        return Some((Reason::Unknown, why.to_owned()));
    }
    let is_terways = |plugin: &str| plugin.starts_with("terway");
    if path.as_os_str() == FLAT && networks.iter().any(|network| is_terways(&network.plugin)) {
        let why = "Terway keeps these through host-local: its daemon gives them back, not this tool \
                   (terway-cli mapping, in the node's terway pod, shows what it has)";
        return Some((Reason::OtherIpam, why.to_owned()));
    }
    leaks::is_left_over(seen.view, listed).then(|| {
        let why = "no configured network gives the address out: nothing is gained by releasing it";
        (Reason::LeftOver, why.to_owned())
    })
}

/// What a store says of a file that it could not read.
fn unread(listed: &ListedStore, path: &Path) -> String {
    let path = path.to_string_lossy();
    let mut texts = listed.store.unread.iter();
    match texts.find(|text| text.contains(path.as_ref())) {
        Some(text) => text.clone(),
        None => String::from("it is no reservation of host-local, or cannot be read"),
    }
}

/// Whether an ID is of the form that containerd, CRI-O and Docker give: so CRI
/// would know it.
fn is_runtimes(id: &str) -> bool {
    let hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    id.len() == 64 && id.bytes().all(hex)
}

/// What of a file itself speaks against releasing it.
pub(crate) fn of_file(
    exact: &Exact,
    each: &Reservation,
    now: Timestamp,
    grace: Duration,
) -> Option<(Reason, String)> {
    let holder = &each.holder;
    if parse(&exact.content) != Some((holder.container_id.clone(), holder.ifname.clone())) {
        let why = "it was written while it was looked at";
        return Some((Reason::Changed, why.to_owned()));
    }
    if exact.links != 1 {
        let why = format!(
            "the file has {} names (hard links): the others may be in another store",
            exact.links
        );
        return Some((Reason::HardLink, why));
    }
    if exact.fixed {
        let why = "the file cannot be removed: somebody has set chattr +i or +a (see lsattr)";
        return Some((Reason::Fixed, why.to_owned()));
    }
    let last = exact.modified.max(exact.changed);
    (now < last.plus(grace)).then(|| (Reason::Young, young("the file was changed", grace)))
}

#[cfg(test)]
mod tests;
