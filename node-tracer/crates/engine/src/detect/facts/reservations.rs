//! Whether a reservation's container exists: in doubt it does.

use std::{net::IpAddr, path::Path, time::Duration};

use crate::{
    detect::{
        CGROUP, View, answering,
        facts::{own, unused::has_sandbox_mount},
        is_routable, silence, unfound, unlisted, unread,
    },
    model::{Model, attachment::ListedStore, netns::NetnsEntry, runtime::CRI},
};
use event::{
    Netns, Reservation, StoreKind,
    clock::Timestamp,
    forwarding::{Forwarding, TableRoute},
    wording::plural::counted,
};

/// host-local reserves before the sandbox shows anywhere: what is younger may
/// be a CNI ADD in progress.
const YOUNG: Duration = Duration::from_secs(60);
/// How long after CNI DEL a store that is listed from time to time can still
/// have what was given back.
const GIVEN_BACK: Duration = Duration::from_secs(60);
/// The same of a list from the API that has not changed since: a long one is
/// asked for every ten minutes.
const GIVEN_BACK_IN_API: Duration = Duration::from_secs(15 * 60);
/// Judges reservations by all that is known of containers.
#[derive(Debug)]
pub struct Judge<'a> {
    model: &'a Model,
    namespaces: usize,
    /// Those that could not be visited.
    unread: usize,
    /// Why there may be others, which were not found.
    unfound: Option<&'a str>,
    /// Why a container may live that only its cgroup shows.
    unlisted: Option<String>,
    /// Sandboxes' namespaces of which it is not known whose they are, and that
    /// show no address: the sandbox may answer for it itself (gVisor).
    nameless: usize,
    /// Those with more local routes than are kept: one of these may be for the address.
    unrouted: usize,
    /// Stores that are not host-local's, with when they were told last.
    others: Vec<(&'a Path, StoreKind, Timestamp)>,
}

/// What became of a reservation's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It exists, or the address is in use all the same.
    Live(Proof<'a>),
    /// It is not there, and may be in the making.
    Young,
    Leaked,
    /// It is not there, and that says nothing.
    Untold(Doubt),
}

/// Why a reservation whose container is not there may be no leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// It names no container.
    Nameless,
    /// All nodes have the store, and nothing shows that the container was on
    /// this one.
    Elsewhere,
    /// CNI DEL was called just now; the list may be older.
    GivenBack,
    /// A namespace that nobody names has the address.
    Stranger,
    /// A namespace takes packets to the address by a local route.
    Routed,
}

impl Doubt {
    /// In words, after a number of reservations.
    pub(in crate::detect) fn words(self) -> &'static str {
        match self {
            Self::Nameless => "no container is named, so whether the pod still has it is unknown",
            Self::Elsewhere => {
                "nothing shows that the container was on this node: all nodes share the store"
            }
            Self::GivenBack => "CNI DEL ran just now; the list may be older",
            Self::Stranger => {
                "a network namespace that nobody names has the address: root has made it in a user \
                 namespace, as for a pod with one of its own, or in a pod"
            }
            Self::Routed => {
                "a network namespace takes packets to the address by a local route (ip route show \
                 table all type local)"
            }
        }
    }
}

/// What shows that a reservation is no leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof<'a> {
    /// A source has the container: `cri`, `bundles`, `cgroup`, `shim`.
    Source(&'a str),
    /// It is of a sandbox whose network namespace exists.
    Netns,
    /// libcni attached it to a network namespace that exists.
    Attachment,
    /// A network namespace has the address: a ghost's, or another's.
    Address,
}

impl<'a> Judge<'a> {
    /// `None` if too little is known to judge anything.
    pub(in crate::detect) fn new(view: &View<'a>) -> Option<Self> {
        let model = view.model;
        let mut sources = model.runtime.container_sources();
        let cgroups = sources.any(|(source, _)| source == CGROUP);
        if !cgroups && answering(model).is_none() {
            return None;
        }
        let (mut namespaces, mut nameless) = (0, 0);
        for entry in model.netns.live() {
            namespaces += 1;
            nameless += usize::from(is_nameless(model, entry));
        }
        Some(Self {
            model,
            namespaces,
            unread: unread(view),
            unfound: unfound(model),
            unlisted: unlisted(view),
            nameless,
            unrouted: routed(view)
                .filter(|(_, forwarding)| forwarding.local_cut)
                .count(),
            others: model
                .cni
                .stores()
                .filter(|listed| listed.store.kind != StoreKind::HostLocal)
                .map(|listed| (listed.store.path.as_path(), listed.store.kind, listed.at))
                .collect(),
        })
    }

    /// Whether what nothing shows is not there: CRI vouches for what it does
    /// not list (cgroups alone do not show sandboxes that have stopped), every
    /// namespace could be asked for its addresses, and what shows a sandbox
    /// that CRI has forgotten was there to read: cgroups, libcni's cache.
    pub fn is_certain(&self) -> bool {
        self.is_vouched() && !self.is_blind() && !self.is_half_seen()
    }

    /// Whether what shows a sandbox that CRI has forgotten was not all there to
    /// read.
    pub fn is_half_seen(&self) -> bool {
        let in_sight = self.nameless == 0 && self.unrouted == 0;
        self.unlisted.is_some() || !in_sight || self.uncached().is_some()
    }

    /// Why libcni may have attached a container of which nothing tells.
    fn uncached(&self) -> Option<String> {
        let failed = self.model.failure("libcni");
        let failed = failed.map(|failure| failure.error.clone());
        failed.or_else(|| self.model.cni.unread_in_cache().next().map(str::to_owned))
    }

    /// Whether CRI vouches for what it does not list.
    pub(in crate::detect) fn is_vouched(&self) -> bool {
        answering(self.model).is_some()
    }

    /// Whether any namespace can have any address: it could not be visited, or
    /// not even found.
    pub fn is_blind(&self) -> bool {
        self.unread > 0 || self.unfound.is_some()
    }

    /// Why the verdict is none that is certain, in words.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if !self.is_vouched() {
            doubts.push(format!(
                "whether CRI still has their sandboxes: {}",
                silence(self.model)
            ));
        }
        if let Some(why) = &self.unlisted {
            doubts.push(format!("whether their containers still run: {why}"));
        }
        if let Some(why) = self.uncached() {
            doubts.push(format!(
                "whether libcni attached them to a netns that exists: {why}"
            ));
        }
        if self.nameless > 0 {
            doubts.push(format!(
                "whose {} are, of sandboxes and without an address: one of them may be theirs",
                counted(self.nameless, "network namespace")
            ));
        }
        if self.unrouted > 0 {
            doubts.push(format!(
                "whether their addresses are in use all the same: {} with more local routes than \
                 are kept",
                counted(self.unrouted, "network namespace")
            ));
        }
        if self.unread > 0 {
            doubts.push(format!(
                "whether their addresses are in use all the same: {} could not be read",
                counted(self.unread, "network namespace")
            ));
        }
        if let Some(why) = self.unfound {
            doubts.push(format!(
                "whether their addresses are in use all the same: {why}"
            ));
        }
        doubts
    }

    /// Whether a store was listed when the containers were known already: of
    /// one that was listed before, an ordinary deletion may have removed both
    /// container and reservation since. Stores that are listed whenever they
    /// change are as they were listed, as long as they can be read.
    pub fn can_judge(&self, listed: &ListedStore) -> bool {
        let kind = listed.store.kind;
        if kind != StoreKind::HostLocal {
            return self.model.failure(kind.as_str()).is_none();
        }
        let cri = self.model.runtime.cri();
        cri.is_none_or(|list| listed.at >= list.at)
    }

    pub fn of(&self, view: &View<'_>, reservation: &Reservation) -> Verdict<'a> {
        let model = self.model;
        let id = reservation.holder.container_id.as_str();
        if !id.is_empty() {
            if let Some(source) = model.runtime.shows(id) {
                return Verdict::Live(Proof::Source(source));
            }
            if view.containers().contains(id) {
                return Verdict::Live(Proof::Netns);
            }
            let mut namespaces = model.cni.of_container(id).filter_map(|each| each.netns);
            if namespaces.any(|netns| exists(model, netns)) {
                return Verdict::Live(Proof::Attachment);
            }
        }
        let with = model.netns.with_address(reservation.address);
        let with: Vec<&NetnsEntry> = with.filter(|entry| entry.dying.is_none()).collect();
        if with.iter().any(|entry| !view.is_bystander(entry)) {
            return Verdict::Live(Proof::Address);
        }
        if !view.passed(reservation.modified.plus(YOUNG)) {
            return Verdict::Young;
        }
        let is_strangers = with.iter().any(|entry| view.may_be_pods(entry));
        let is_taken = || taker(view, reservation.address).is_some();
        let doubt = self
            .doubt(view, reservation)
            .or(is_strangers.then_some(Doubt::Stranger));
        match doubt.or_else(|| is_taken().then_some(Doubt::Routed)) {
            Some(doubt) => Verdict::Untold(doubt),
            None => Verdict::Leaked,
        }
    }

    /// Why a container that is not there shows nothing.
    fn doubt(&self, view: &View<'_>, reservation: &Reservation) -> Option<Doubt> {
        let holder = &reservation.holder;
        let mut others = self.others.iter();
        let (_, kind, listed) = others.find(|(path, ..)| holder.path.starts_with(path))?;
        let id = holder.container_id.as_str();
        if id.is_empty() {
            return Some(Doubt::Nameless);
        }
        let calls = || self.model.calls.of_container(id);
        let was_here =
            || self.model.cni.of_container(id).next().is_some() || calls().next().is_some();
        if *kind == StoreKind::Whereabouts && !was_here() {
            return Some(Doubt::Elsewhere);
        }
        let mut given_back = calls().filter_map(|calls| calls.deleted());
        let in_api = matches!(kind, StoreKind::Calico | StoreKind::Whereabouts);
        let lately = given_back.any(|at| {
            let patience = match in_api && *listed <= at {
                true => GIVEN_BACK_IN_API,
                false => GIVEN_BACK,
            };
            !view.passed(at.plus(patience))
        });
        lately.then_some(Doubt::GivenBack)
    }

    /// A proof in words, with its source and the time for which it holds.
    pub fn words(&self, proof: Proof<'a>, at: Timestamp) -> (&'static str, &'a str, Timestamp) {
        match proof {
            Proof::Source(source) => {
                let listed = self.model.runtime.cri();
                let listed = listed.map_or(at, |list| list.at);
                match source {
                    CRI => ("CRI: sandbox Ready or NotReady", source, listed),
                    "bundles" => (
                        "the runtime's state directory has the container",
                        source,
                        at,
                    ),
                    CGROUP => ("the container has a cgroup", "kernel", at),
                    "shim" => ("the container has a shim", source, at),
                    _ => ("the container exists", source, at),
                }
            }
            Proof::Netns => ("the sandbox's netns exists", "kernel", at),
            Proof::Attachment => ("libcni attached it to a netns that exists", "libcni", at),
            Proof::Address => (
                "no such container, but a netns still has the IP",
                "kernel",
                at,
            ),
        }
    }

    /// What was looked at.
    pub(in crate::detect) fn basis(&self) -> String {
        let runtime = &self.model.runtime;
        let mut parts = Vec::new();
        for list in runtime.lists() {
            let sandboxes = counted(list.sandboxes().count(), "sandbox");
            parts.push(match list.source.as_str() {
                CRI if list.partial.is_some() => format!("{CRI} ({sandboxes}, not all)"),
                CRI => format!("{CRI} ({sandboxes}, ready or not)"),
                other => format!("{other} ({sandboxes})"),
            });
        }
        for (source, ids) in runtime.container_sources() {
            parts.push(format!("{source} ({})", counted(ids.len(), "container")));
        }
        let namespaces = counted(self.namespaces, "network namespace");
        parts.push(match (self.unread, self.unfound) {
            (0, None) => namespaces,
            (0, Some(_)) => format!("{namespaces} (there may be more)"),
            (unread, None) => format!("{namespaces} ({unread} of which could not be read)"),
            (unread, Some(_)) => {
                format!("{namespaces} ({unread} of which could not be read, and there may be more)")
            }
        });
        parts.join(", ")
    }
}

/// A namespace that takes packets to an address by a local route, and may be a
/// pod's or the host's.
pub fn taker<'a>(view: &View<'a>, address: IpAddr) -> Option<&'a NetnsEntry> {
    let takes = |(_, forwarding): &(_, &Forwarding)| forwarding.takes(address);
    routed(view).find(takes).map(|(entry, _)| entry)
}

/// Namespaces with local routes that somebody has entered, that may be a pod's or the host's.
fn routed<'v, 'a>(
    view: &'v View<'a>,
) -> impl Iterator<Item = (&'a NetnsEntry, &'a Forwarding)> + use<'v, 'a> {
    let model = view.model;
    let known = |entry: &'a NetnsEntry| Some((entry, &entry.forwarding.as_ref()?.forwarding));
    let all = model.netns.live().filter_map(known);
    all.filter(|(entry, forwarding)| {
        let mut routes = forwarding.routes.iter();
        (forwarding.local_cut || routes.any(TableRoute::is_any_ip))
            && (!view.is_bystander(entry) || view.may_be_pods(entry))
    })
}

/// Whether a namespace that was at a libcni attachment's path is still there.
/// The host's own is none, nor is a user's: its path was `/proc/PID/ns/net`, and
/// the PID is another process's now.
fn exists(model: &Model, netns: Netns) -> bool {
    let entry = model.netns.get(netns);
    entry.is_none_or(|entry| !entry.host && !entry.is_users() && entry.dying.is_none())
}

/// Whether a namespace is a sandbox's by its mount, or, mounted nowhere, has a pod's
/// own device, and nothing tells which sandbox's, nor its address. One in which no
/// device is left is nobody's any more.
fn is_nameless(model: &Model, entry: &NetnsEntry) -> bool {
    let is_sandboxes = || {
        has_sandbox_mount(entry)
            || (entry.roots_mounts().next().is_none() && own::hides_address(entry))
    };
    let devices = entry.wiring.as_ref().map(|wiring| &wiring.devices);
    let is_wired = devices.is_some_and(|devices| !devices.is_empty());
    let mut held = entry.addresses.iter();
    let shows_address = held.any(|held| is_routable(held.address.address));
    let is_hidden = !shows_address || own::hides_address(entry);
    // Users name mounts of their own as they like.
    let can_be = !entry.host && !entry.is_users();
    can_be && is_wired && is_hidden && !is_told(model, entry) && is_sandboxes()
}

/// Whether the sandbox of a namespace is known by its ID, which is that of its
/// infra container, and not only by a container that it has besides.
fn is_told(model: &Model, entry: &NetnsEntry) -> bool {
    let sandbox = &entry.sandbox;
    let is_reserved_for = |id: &String| {
        let stores = model.cni.stores();
        let mut all = stores.flat_map(|listed| &listed.store.reservations);
        all.any(|each| each.holder.container_id == *id)
    };
    sandbox.id.is_some() || sandbox.containers.iter().any(is_reserved_for)
}
