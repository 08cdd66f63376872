//! What happened to each sandbox, out of the events: the lanes of the timeline
//! and the material of the story.
//!
//! A lane is a network namespace, or a sandbox of which no namespace is known
//! (old logs). Which of them matter shows only when a finding names them, and
//! that can be long after their end, so many more are kept than are drawn:
//! [`MAX_LANES`]; when there are too many, those that are over and that no
//! finding names make room first, oldest first.

mod call;
mod events;
mod lane;
mod listed;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

pub use self::{
    call::Call,
    lane::{Held, Lane, Mark, MarkKind, Stall},
};
use event::{
    Netns, PodRef, ReservationHolder,
    clock::Timestamp,
    finding::{Finding, Rule},
};

/// Lanes that are kept while the recording is read.
const MAX_LANES: usize = 4_096;
/// Addresses whose reservation is remembered.
const MAX_ADDRESSES: usize = 8_192;
/// Findings that one lane remembers to be named by.
const MAX_NAMED: usize = 32;

/// A lane's name while the recording is read. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial(u64);

#[derive(Debug, Default)]
pub struct Lanes {
    lanes: BTreeMap<Serial, Lane>,
    next: u64,
    /// Namespaces that are not destroyed, by inode.
    live: HashMap<u32, Serial>,
    /// Sandboxes, by ID.
    ids: HashMap<String, Serial>,
    /// Sandboxes that were given an address; some may have lost it.
    given: HashMap<IpAddr, BTreeSet<Serial>>,
    /// The host's own namespace, which is no lane.
    host: Option<Netns>,
    /// What happened on the node outside of all sandboxes.
    node: Lane,
    /// The same of further recordings.
    nodes: Vec<Lane>,
    /// For whom each address was last reserved.
    reserved: BTreeMap<IpAddr, Option<ReservationHolder>>,
    pods: Option<String>,
    /// The same of further recordings.
    pods_of: BTreeMap<usize, String>,
    /// Lanes that had to make room, or found none.
    left_out: u64,
}

impl Lanes {
    pub fn get(&self, serial: Serial) -> Option<&Lane> {
        self.lanes.get(&serial)
    }

    /// All, in the order in which they were first heard of.
    pub fn all(&self) -> impl Iterator<Item = (Serial, &Lane)> {
        self.lanes.iter().map(|(serial, lane)| (*serial, lane))
    }

    /// What happened outside of all sandboxes, of each recording.
    pub fn nodes(&self) -> impl Iterator<Item = &Lane> {
        [&self.node].into_iter().chain(&self.nodes)
    }

    /// All are of one of the page's recordings.
    pub(super) fn be_of(&mut self, part: usize) {
        self.node.part = part;
        for lane in self.lanes.values_mut() {
            lane.part = part;
        }
    }

    /// Tells all times by another clock.
    pub(super) fn change_clock(&mut self, to: &dyn Fn(Timestamp) -> Timestamp) {
        for lane in self.lanes.values_mut().chain([&mut self.node]) {
            lane.change_clock(to);
        }
    }

    /// Takes in those of another recording, when both have been read to the end.
    pub(super) fn join(&mut self, other: Self) {
        let from = self.next;
        let lanes = other.lanes.into_iter();
        let lanes = lanes.map(|(serial, lane)| (Serial(from + serial.0), lane));
        self.lanes.extend(lanes);
        self.next += other.next;
        self.left_out += other.left_out;
        let pods = other.pods.map(|pods| (other.node.part, pods));
        self.pods_of.extend(pods);
        self.nodes.push(other.node);
        self.nodes.extend(other.nodes);
    }

    /// Lanes that are not kept.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Who lists pods: `pods.json`, `API server`.
    pub fn pods(&self, part: usize) -> &str {
        let name = match part {
            0 => self.pods.as_deref(),
            part => self.pods_of.get(&part).map(String::as_str),
        };
        let name = name.unwrap_or("the list of pods");
        name.rsplit('/').next().unwrap_or(name)
    }

    /// Notes which lanes a finding is about.
    pub fn name(&mut self, finding: &Finding, now: Timestamp) {
        let mut about = self.directly(finding);
        self.note_gone(finding);
        // Whoever else has the address is a part of the same story.
        let by_address = matches!(
            finding.rule,
            Rule::GhostSandbox | Rule::DuplicateAddress | Rule::AddFailed | Rule::MissingDel
        );
        if by_address {
            let has = |lane: &Lane| {
                let mut held = lane.held.iter();
                held.any(|held| {
                    finding.addresses.contains(&held.address)
                        && held.until.is_none_or(|until| until >= finding.since)
                })
            };
            about.extend(self.all().filter(|(_, lane)| has(lane)).map(|(it, _)| it));
        }
        for serial in about {
            let Some(lane) = self.lanes.get_mut(&serial) else {
                continue;
            };
            if lane.named.len() < MAX_NAMED {
                lane.named.insert(finding.id.clone());
            }
            lane.last = lane.last.max(Some(now));
        }
    }

    /// That a pod is gone can show without an event: it is not on the list. The
    /// ghost's finding names the list as the source of that claim.
    fn note_gone(&mut self, finding: &Finding) {
        let netns = finding.netns.as_ref().map(|netns| netns.id);
        let serial = netns.and_then(|netns| self.of_netns(netns));
        let mut claims = finding.evidence.iter();
        let claim = claims.find(|claim| Some(&claim.source) == self.pods.as_ref());
        if let (Rule::GhostSandbox, Some(serial), Some(claim)) = (finding.rule, serial, claim)
            && let Some(lane) = self.lanes.get_mut(&serial)
            && lane.pod_gone().is_none()
        {
            lane.mark(claim.at, MarkKind::NotListed, &claim.claim);
        }
    }

    /// The lanes of a finding's namespace, sandboxes and pod.
    fn directly(&mut self, finding: &Finding) -> BTreeSet<Serial> {
        let mut about = BTreeSet::new();
        let netns = finding.netns.as_ref().map(|netns| netns.id);
        if let Some(serial) = netns.and_then(|netns| self.of_netns(netns)) {
            // The engine knows more ways to tell whose a namespace is.
            if let Some(lane) = self.lanes.get_mut(&serial) {
                if lane.sandbox_id.is_none() {
                    lane.sandbox_id.clone_from(&finding.sandbox_id);
                }
                lane.is_of(finding.pod.as_ref());
            }
            about.insert(serial);
        }
        let detail = &finding.detail;
        let ids = [
            &finding.sandbox_id,
            &detail.old_container_id,
            &detail.new_container_id,
        ];
        let ids = ids.into_iter().flatten();
        let reserved = detail.reservations.iter().map(|each| &each.container_id);
        about.extend(ids.chain(reserved).filter_map(|id| self.ids.get(id)));
        if about.is_empty()
            && let Some(pod) = &finding.pod
        {
            about.extend(self.of_pod(pod));
        }
        about
    }

    fn of_pod(&self, pod: &PodRef) -> Vec<Serial> {
        let of = |lane: &Lane| lane.pod.as_ref().is_some_and(|its| is_same(its, pod));
        let all = self.all().filter(|(_, lane)| of(lane));
        all.map(|(serial, _)| serial).collect()
    }

    /// The lane of a namespace, if there is one.
    fn of_netns(&self, netns: Netns) -> Option<Serial> {
        let same = |serial: &Serial| {
            let known = self.lanes.get(serial).and_then(|lane| lane.netns);
            known.is_some_and(|known| is_same_netns(known, netns))
        };
        let live = self.live.get(&netns.inode).copied().filter(same);
        live.or_else(|| {
            let mut all = self.lanes.keys().rev().copied();
            all.find(same)
        })
    }

    /// The lane of a living namespace, made if it is new; none for the host's.
    fn living(&mut self, netns: Netns, time: Timestamp) -> Option<&mut Lane> {
        if self.host.is_some_and(|host| is_same_netns(host, netns)) {
            return None;
        }
        let serial = match self.live.get(&netns.inode).copied() {
            Some(serial) if self.is_at(serial, netns) => serial,
            _ => {
                let serial = self.add(Lane::found(netns, time));
                self.live.insert(netns.inode, serial);
                serial
            }
        };
        let lane = self.lanes.get_mut(&serial)?;
        if let Some(its) = &mut lane.netns {
            its.cookie = its.cookie.or(netns.cookie);
        }
        lane.last = lane.last.max(Some(time));
        Some(lane)
    }

    /// The lane of a sandbox, made if it is new. One that was known by its ID
    /// alone becomes one with its namespace.
    fn sandbox(&mut self, id: &str, netns: Option<Netns>, time: Timestamp) -> Option<&mut Lane> {
        let known = self.ids.get(id).copied();
        let has_netns = |serial: &Serial| {
            let lane = self.lanes.get(serial);
            lane.is_some_and(|lane| lane.netns.is_some())
        };
        let serial = match (known, netns) {
            (Some(serial), None) => serial,
            (Some(serial), Some(_)) if has_netns(&serial) => serial,
            (Some(serial), Some(netns)) => {
                self.living(netns, time)?;
                let of_netns = *self.live.get(&netns.inode)?;
                let before = self.lanes.remove(&serial)?;
                self.lanes.get_mut(&of_netns)?.absorb(before);
                of_netns
            }
            (None, Some(netns)) => {
                self.living(netns, time)?;
                *self.live.get(&netns.inode)?
            }
            (None, None) => self.add(Lane::heard_of(time)),
        };
        let lane = self.lanes.get_mut(&serial)?;
        if lane.sandbox_id.is_none() {
            lane.sandbox_id = Some(id.to_owned());
        }
        lane.last = lane.last.max(Some(time));
        self.ids.insert(id.to_owned(), serial);
        Some(lane)
    }

    fn is_at(&self, serial: Serial, netns: Netns) -> bool {
        let known = self.lanes.get(&serial).and_then(|lane| lane.netns);
        known.is_some_and(|known| is_same_netns(known, netns))
    }

    fn add(&mut self, lane: Lane) -> Serial {
        if self.lanes.len() >= MAX_LANES {
            self.make_room();
        }
        let serial = Serial(self.next);
        self.next += 1;
        self.lanes.insert(serial, lane);
        serial
    }

    /// Lets an eighth of all lanes go: those that are over and of no matter
    /// first, then others of no matter, then any; of each, what was heard of
    /// last stays.
    fn make_room(&mut self) {
        let mut all: Vec<_> = self
            .lanes
            .iter()
            .map(|(serial, lane)| {
                let matters = !lane.named.is_empty();
                ((matters, lane.gone.is_none(), lane.last), *serial)
            })
            .collect();
        all.sort_unstable();
        let gone: BTreeSet<Serial> = all.iter().take(MAX_LANES / 8).map(|(_, it)| *it).collect();
        self.left_out += gone.len() as u64;
        self.lanes.retain(|serial, _| !gone.contains(serial));
        self.live.retain(|_, serial| !gone.contains(serial));
        self.ids.retain(|_, serial| !gone.contains(serial));
        let lanes = &self.lanes;
        self.given.retain(|address, given| {
            given.retain(|serial| lanes.get(serial).is_some_and(|lane| lane.has(*address)));
            !given.is_empty()
        });
    }
}

/// Whether two names are of one pod: by UID where both have one.
fn is_same(one: &PodRef, other: &PodRef) -> bool {
    match (&one.uid, &other.uid) {
        (Some(one), Some(other)) => one == other,
        _ => one.name.is_some() && (&one.namespace, &one.name) == (&other.namespace, &other.name),
    }
}

/// Whether two names are of one namespace: inodes are used again, cookies not.
fn is_same_netns(one: Netns, other: Netns) -> bool {
    let cookies = one.cookie.zip(other.cookie);
    one.inode == other.inode && cookies.is_none_or(|(one, other)| one == other)
}

/// Whether an address says where a pod is.
fn counts(address: IpAddr, ifname: &str) -> bool {
    let local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    ifname != "lo" && !local && !address.is_loopback() && !address.is_unspecified()
}

#[cfg(test)]
mod tests;
