//! range-exhausted: host-local has no address left to give out, or few.
//!
//! Counted for each range set of each configured network: an attachment gets
//! one address of each set, so the first full one makes CNI ADD fail. The
//! gateway is not given out. A set is few when one address in [`FEW`] or less is
//! left; of one of less than that many addresses nothing is said before it is
//! full, as such a range is made to be used up.
//!
//! A range that has as many addresses left as the kubelet can still start pods
//! (`maxPods`) lacks none, and is `info`: as full as it is, no pod waits for an
//! address. How many pods there are is how many sandboxes the runtime has ready,
//! those on the host's network included, as the kubelet counts them, less those
//! whose pod is gone. Where it does not answer, the containers that have an
//! address count. Without a list that has all of these pods, some may be deleted
//! ones: then it is `info`, and not known whether an address is lacking. Without
//! `maxPods` any pod may come.
//!
//! How many of the reservations are leaked is [`leaked_reservation`](super::leaked_reservation)'s verdict.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::Path,
};

use crate::{
    detect::{
        View, commented, cordon, evidence,
        facts::{
            calls::pod_gone,
            reservations::{Judge, Proof, Verdict},
        },
        repair, silence, uncordon,
    },
    model::attachment::ListedStore,
};
use event::{
    MaxPods, Network, Range, Reservation, RuntimeSandbox, StoreKind,
    clock::Timestamp,
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
};

/// One address in so many is few.
const FEW: u128 = 20;

/// A range set that is used up, or nearly.
struct Exhausted<'v, 'a> {
    view: &'v View<'a>,
    network: &'a Network,
    listed: &'a ListedStore,
    set: usize,
    ranges: Vec<&'a Range>,
    /// Addresses that can be given out.
    size: u128,
    used: u128,
    /// Whose they are; `None` if that cannot be told.
    uses: Option<Uses<'v, 'a>>,
    /// How many pods the node can run, if that is known.
    room: Option<Room<'a>>,
}

/// How many pods the node can still run.
#[derive(Clone, Copy)]
struct Room<'a> {
    limit: &'a MaxPods,
    /// Pods that have a sandbox.
    pods: u128,
    /// When the runtime had that many; `None` if it was not asked.
    at: Option<Timestamp>,
    /// Whether each of them is known to be there.
    certain: bool,
}

impl<'a> Room<'a> {
    /// `live` are the pods that have an address.
    fn of(view: &View<'a>, live: u64) -> Option<Self> {
        let limit = view.model.max_pods.as_ref()?;
        let Some(list) = super::answering(view.model) else {
            return Some(Self {
                limit,
                pods: u128::from(live),
                at: None,
                certain: false,
            });
        };
        let is_there = |sandbox: &RuntimeSandbox| {
            let existed = sandbox.created.unwrap_or(list.at);
            pod_gone(view, &sandbox.pod, existed).is_none()
        };
        // A static pod need not be on the list.
        let is_known = |sandbox: &RuntimeSandbox| {
            let uid = sandbox.pod.uid.as_deref();
            uid.is_some_and(|uid| !uid.contains('-') || view.model.pods.listed_pod(uid).is_some())
        };
        let ready = list.sandboxes().filter(|it| it.ready == Some(true));
        let there: Vec<_> = ready.filter(|it| is_there(it)).collect();
        Some(Self {
            limit,
            pods: there.len() as u128,
            at: Some(list.at),
            certain: view.model.pods_failure().is_none() && there.iter().all(|it| is_known(it)),
        })
    }

    /// Pods that may still come.
    fn left(&self) -> u128 {
        u128::from(self.limit.pods).saturating_sub(self.pods)
    }
}

/// What has become of the containers of a range's reservations.
struct Uses<'v, 'a> {
    judge: &'v Judge<'a>,
    live: u64,
    /// They are not there, but a namespace has the address.
    held: u64,
    /// They are not there, and may be in the making.
    young: u64,
    leaked: u64,
}

impl<'v, 'a> Uses<'v, 'a> {
    fn of<'r>(
        view: &View<'a>,
        judge: &'v Judge<'a>,
        reservations: impl Iterator<Item = &'r Reservation>,
    ) -> Self {
        let mut uses = Self {
            judge,
            live: 0,
            held: 0,
            young: 0,
            leaked: 0,
        };
        for reservation in reservations {
            *match judge.of(view, reservation) {
                Verdict::Live(Proof::Address) => &mut uses.held,
                Verdict::Live(Proof::Source(_) | Proof::Netns | Proof::Attachment) => {
                    &mut uses.live
                }
                Verdict::Young | Verdict::Untold(_) => &mut uses.young,
                Verdict::Leaked => &mut uses.leaked,
            } += 1;
        }
        uses
    }

    /// Each kind that there is, in words.
    fn claims(&self) -> Vec<String> {
        let leaked = match self.judge.is_vouched() {
            true => "are of containers that are gone",
            false => "are of containers without a cgroup",
        };
        let kinds = [
            (self.live, "are of containers that exist"),
            (
                self.held,
                "are of containers that are gone, but a netns still has the IP",
            ),
            (
                self.young,
                "have no container yet and are younger than a minute",
            ),
            (self.leaked, leaked),
        ];
        let there = kinds.into_iter().filter(|(number, _)| *number > 0);
        there
            .map(|(number, what)| format!("{number} of these {what}"))
            .collect()
    }
}

/// One finding a range set.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let judge = view.judge();
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for network in view.model.cni.networks().unwrap_or_default() {
        let Some(store) = &network.store else {
            continue;
        };
        let mut stores = view.model.cni.stores();
        let Some(listed) = stores.find(|listed| is_of(listed, store)) else {
            continue;
        };
        let mut sets: BTreeMap<usize, Vec<&Range>> = BTreeMap::new();
        for range in &network.ranges {
            sets.entry(range.set).or_default().push(range);
        }
        for (set, ranges) in sets {
            // Several files can name the same network.
            if seen.insert((store, span_of(&ranges))) {
                let found = Exhausted::of(view, judge, network, listed, set, ranges);
                findings.extend(found.map(|found| found.finding()));
            }
        }
    }
    findings
}

/// Whether it is host-local's store of that path.
fn is_of(listed: &ListedStore, path: &Path) -> bool {
    listed.store.kind == StoreKind::HostLocal && listed.store.path == path
}

impl<'v, 'a> Exhausted<'v, 'a> {
    fn of(
        view: &'v View<'a>,
        judge: Option<&'v Judge<'a>>,
        network: &'a Network,
        listed: &'a ListedStore,
        set: usize,
        ranges: Vec<&'a Range>,
    ) -> Option<Self> {
        let sizes = ranges.iter().map(|range| size(range));
        let size = sizes.fold(0, u128::saturating_add);
        let reserved = || {
            let all = listed.store.reservations.iter();
            all.filter(|each| ranges.iter().any(|range| gives(range, each.address)))
        };
        // Nor is an address given out whose file cannot be read.
        let blocked = listed.store.blocked.iter();
        let blocked = blocked.filter(|address| ranges.iter().any(|range| gives(range, **address)));
        let used = (reserved().count() + blocked.count()) as u128;
        let left = size.saturating_sub(used);
        if size == 0 || (left > 0 && (size < FEW || left > size / FEW)) {
            return None;
        }
        let judge = judge.filter(|judge| judge.can_judge(listed));
        let uses = judge.map(|judge| Uses::of(view, judge, reserved()));
        let room = Room::of(view, uses.as_ref().map_or(0, |uses| uses.live));
        Some(Self {
            view,
            network,
            listed,
            set,
            ranges,
            size,
            used,
            uses,
            room,
        })
    }

    fn left(&self) -> u128 {
        self.size.saturating_sub(self.used)
    }

    /// How many pods can run, if there is an address for each that may come.
    fn enough(&self) -> Option<Room<'a>> {
        self.room
            .filter(|room| room.certain && self.left() >= room.left())
    }

    /// Whether there is one for each, if all that look like pods are there.
    fn perhaps_enough(&self) -> bool {
        let room = self.room.filter(|room| !room.certain);
        room.is_some_and(|room| self.left() >= room.left())
    }

    fn finding(&self) -> Finding {
        let store = &self.listed.store;
        let spans = span_of(&self.ranges);
        let subject = format!("{} {spans}", store.path.display());
        let full = self.left() == 0;
        Finding {
            rule: Rule::RangeExhausted,
            severity: match full {
                _ if self.enough().is_some() || self.perhaps_enough() => Severity::Info,
                true => Severity::Critical,
                false => Severity::Warning,
            },
            id: finding_id(&self.view.settings.boot_id, Rule::RangeExhausted, &subject),
            since: self.since(),
            title: self.title(),
            pod: None,
            sandbox_id: None,
            netns: None,
            addresses: Vec::new(),
            holders: Vec::new(),
            evidence: self.evidence(&spans),
            unknown: self.unknown(),
            advice: self.advice(full),
            detail: Detail {
                used: Some(number(self.used)),
                leaked: self.uses.as_ref().map(|uses| uses.leaked),
                size: Some(number(self.size)),
                ..Detail::default()
            },
        }
    }

    /// The last reservation has made it so, as far as the files tell.
    fn since(&self) -> Timestamp {
        let all = self.listed.store.reservations.iter();
        let inside = all.filter(|each| self.ranges.iter().any(|range| gives(range, each.address)));
        let last = inside.map(|each| each.modified).max();
        last.map_or(self.listed.at, |last| last.min(self.listed.at))
    }

    fn title(&self) -> String {
        let name = &self.network.name;
        let (used, size) = (self.used, self.size);
        let leaked = match &self.uses {
            None | Some(Uses { leaked: 0, .. }) => String::new(),
            Some(Uses { leaked, judge, .. }) if judge.is_certain() => {
                format!(", {leaked} leaked")
            }
            Some(Uses { leaked, .. }) => format!(", {leaked} perhaps leaked"),
        };
        if let Some(room) = self.enough() {
            let (left, pods) = (self.left(), room.limit.pods);
            return format!("{name}: {left} of {size} IPs left, enough for maxPods {pods}{leaked}");
        }
        match self.left() {
            0 => format!("{name} has no IP left: {used} of {size} are reserved{leaked}"),
            left => format!("{name}: {left} of {size} IPs left, {used} are reserved{leaked}"),
        }
    }

    fn evidence(&self, spans: &str) -> Vec<Evidence> {
        let at = self.listed.at;
        let Network { file, name, .. } = self.network;
        let mut claims = Vec::new();
        for range in &self.ranges {
            let Range {
                subnet,
                first,
                last,
                gateway,
                ..
            } = range;
            let but = match gateway.filter(|gateway| contains(range, *gateway)) {
                Some(gateway) => format!(", less the gateway {gateway}"),
                None => String::new(),
            };
            let claim = format!(
                "network {name} ({}) gives out {first}-{last} of {subnet}{but}: {} addresses",
                file.display(),
                size(range)
            );
            claims.push(evidence(claim, "cni", at));
            let all = self.listed.store.reservations.iter();
            let used = all.filter(|each| gives(range, each.address)).count();
            let path = self.listed.store.path.display();
            let blocked = self.listed.store.blocked.iter();
            let claim = match blocked.filter(|address| gives(range, **address)).count() {
                0 => format!("{used} of them are reserved in {path}"),
                some => format!(
                    "{used} of them are reserved in {path}, and {some} more by files that cannot be \
                     read"
                ),
            };
            claims.push(evidence(claim, "host-local", at));
        }
        let uses = self.uses.iter().flat_map(|uses| uses.claims());
        claims.extend(uses.map(|claim| evidence(claim, "tracer", at)));
        claims.extend(self.room.map(|room| self.capacity(room)));
        let set = self.set.to_string();
        let mut last = self.listed.store.last_reserved.iter();
        if let Some((_, last)) = last.find(|(of, _)| *of == set) {
            let claim = format!(
                "{last} was given out last; host-local goes round the range, so a freed IP is given \
                 out late"
            );
            claims.push(evidence(claim, "host-local", at));
        }
        if self.left() == 0 && self.enough().is_none() {
            let claim = format!("CNI ADD fails: no IP addresses available in range set: {spans}");
            claims.push(evidence(claim, "host-local", at));
        }
        claims
    }

    /// The range against what the node can run.
    fn capacity(&self, room: Room<'_>) -> Evidence {
        let MaxPods { pods, file } = room.limit;
        let (most, size) = (u128::from(*pods), self.size);
        let range = match most {
            most if size < most => String::from("more than the range has IPs"),
            most if self.used > most => {
                let over = self.used - most;
                format!("so at least {over} reservations are too many, with one IP a pod")
            }
            _ => String::from("the range is large enough"),
        };
        let running = match room.at {
            Some(_) => format!("; CRI has {} Ready", room.pods),
            None => String::new(),
        };
        let claim = format!(
            "the kubelet runs {pods} pods at most (maxPods in {}), {range}{running}",
            file.display()
        );
        evidence(claim, "kubelet", room.at.unwrap_or(self.listed.at))
    }

    fn unknown(&self) -> Vec<String> {
        let mut unknown = Vec::new();
        match &self.uses {
            Some(uses) if uses.leaked > 0 => unknown.extend(uses.judge.doubts()),
            Some(_) => {}
            None if super::answering(self.view.model).is_some() => unknown.push(String::from(
                "how many are leaked: the store was listed before the containers",
            )),
            None => unknown.push(format!("how many are leaked: {}", silence(self.view.model))),
        }
        if self.room.is_none() {
            unknown.push(String::from(
                "whether the node has room for another pod: no kubelet file that was read has \
                 maxPods",
            ));
        }
        if let Some(room) = self.room.filter(|room| !room.certain) {
            let why = match room.at {
                None => silence(self.view.model),
                Some(_) => String::from("no list of pods is complete"),
            };
            unknown.push(format!(
                "how many pods the node runs, and whether it has room for another one: {why}"
            ));
        }
        let unread = self.listed.store.unread.len();
        if unread > 0 {
            unknown.push(format!(
                "whether {unread} more files in the store reserve an IP: they could not be read"
            ));
        }
        unknown
    }

    fn advice(&self, full: bool) -> Vec<String> {
        let mut advice = Vec::new();
        let enough = self.enough().is_some();
        if enough && self.uses.as_ref().is_none_or(|uses| uses.leaked == 0) {
            return vec![String::from(
                "nothing to do: the range has an IP for every pod that the node can run",
            )];
        }
        let is_cordoned = full && !enough;
        if is_cordoned {
            advice.push(cordon(self.view));
        }
        match &self.uses {
            Some(uses) => advice.extend(self.advice_on(uses)),
            None => advice.extend([
                String::from(
                    "find out which are leaked before you free any: CRI must answer (--cri)",
                ),
                commented("node-tracer scan", "which are leaked"),
            ]),
        }
        if is_cordoned {
            advice.push(uncordon(self.view, "the range has free IPs"));
        }
        advice
    }

    /// What frees addresses.
    fn advice_on(&self, uses: &Uses<'_, '_>) -> Vec<String> {
        let Uses {
            held,
            young,
            leaked,
            ..
        } = *uses;
        let mut advice = Vec::new();
        if leaked > 0 {
            advice.push(String::from(
                "free the leaked ones, which leaked-reservation names; never empty the directory",
            ));
            advice.extend(repair());
        }
        if held > 0 {
            advice.push(format!(
                "end what holds the netns of the {held} open whose containers are gone; leave their \
                 reservations until then"
            ));
            let explain = "node-tracer explain ADDRESS";
            advice.push(commented(
                explain,
                "fill in ADDRESS, shows what holds the netns",
            ));
        }
        if young > 0 {
            advice.push(format!(
                "scan again in a minute: {young} of them are new, or leaked"
            ));
        }
        if leaked + held + young == 0 {
            let now = match self.room {
                Some(room) => format!("{} now, ", room.limit.pods),
                None => String::new(),
            };
            advice.push(format!(
                "nothing to clean up: containers use all of them; allow fewer pods on the node \
                 (maxPods: {now}at most {} fit), or give it a larger range",
                self.size
            ));
        }
        advice
    }
}

/// As host-local names a set: `A-B,C-D`.
fn span_of(ranges: &[&Range]) -> String {
    let spans: Vec<_> = ranges
        .iter()
        .map(|Range { first, last, .. }| format!("{first}-{last}"))
        .collect();
    spans.join(",")
}

/// An address as a number; those of one family only compare.
fn bits(address: IpAddr) -> (bool, u128) {
    match address.to_canonical() {
        IpAddr::V4(v4) => (false, u128::from(v4.to_bits())),
        IpAddr::V6(v6) => (true, v6.to_bits()),
    }
}

fn contains(range: &Range, address: IpAddr) -> bool {
    let (first, last, address) = (bits(range.first), bits(range.last), bits(address));
    first.0 == last.0 && address.0 == first.0 && (first.1..=last.1).contains(&address.1)
}

/// Whether it is one that can be given out.
fn gives(range: &Range, address: IpAddr) -> bool {
    let gateway = range.gateway.map(bits);
    contains(range, address) && gateway != Some(bits(address))
}

/// How many can be given out.
fn size(range: &Range) -> u128 {
    let (first, last) = (bits(range.first), bits(range.last));
    if first.0 != last.0 || last.1 < first.1 {
        return 0;
    }
    let gateway = range.gateway.is_some_and(|it| contains(range, it));
    let all = (last.1 - first.1).saturating_add(1);
    all.saturating_sub(u128::from(gateway))
}

/// As JSON has it.
fn number(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
