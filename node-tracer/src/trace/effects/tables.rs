//! The node's rules, routes, neighbours and devices: read in the beginning, and again
//! when the kernel says that something has changed.
//!
//! What has changed is not taken from its messages. They have the tables read again,
//! a moment later, and not too often: a storm of them costs as much as a few, those
//! that are lost cost nothing, and what is told is what one look has shown. While a
//! look is due the messages stay where they are; there is little room for them.
//!
//! A socket that listens keeps its network namespace. In one that is neither the
//! tracer's nor that of process 1, as of a node that is a container, nobody listens:
//! there the tables are read every few seconds.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    time::{Duration, Instant},
};

use event::{
    Event, Neighbour, Netns, What, clock::Timestamp, fault, forwarding::FORWARDING,
    record::CoverageItem,
};
use node::{
    home::NodeNetns,
    netlink::{Changes, News, Visit, Way},
    procfs::{Bounded, Procfs},
};

/// How often it is asked for messages.
const LISTEN: Duration = Duration::from_millis(250);
/// What one operation changes it changes in that time.
const QUIET: Duration = Duration::from_millis(500);
/// What the kernel has learnt by itself matters no sooner.
const LITTLE: Duration = Duration::from_secs(10);
/// Between two looks at the least,
const REST: Duration = Duration::from_secs(3);
/// a second more for so many entries, as each of them may be told,
const PER_SECOND: usize = 4_096;
/// and looking takes at most one part in so many of the time.
const SHARE: u32 = 50;
/// Between two looks where nobody listens, or where a look has failed.
const POLL: Duration = Duration::from_secs(5);
/// How long it may take to begin to listen.
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) struct Tables {
    /// Whose they are.
    node: Option<NodeNetns>,
    changes: Option<Changes>,
    /// Why nobody listens.
    deaf: Option<String>,
    listen: Instant,
    /// When they are read next.
    due: Option<Instant>,
    not_before: Option<Instant>,
    /// Since when they are being read, and whose.
    begun: Option<(Instant, u32)>,
    hasher: RandomState,
    /// What was told last: devices, and what decides about packets.
    told: (Option<u64>, Option<u64>),
    /// That it is out of date was told.
    outdated: bool,
    failed: bool,
}

impl Tables {
    pub(super) fn new() -> Self {
        Self {
            node: None,
            changes: None,
            deaf: None,
            listen: Instant::now(),
            due: None,
            not_before: None,
            begun: None,
            hasher: RandomState::new(),
            told: (None, None),
            outdated: false,
            failed: false,
        }
    }

    /// What of them is seen.
    pub(super) fn coverage(&self, read: Result<(), &str>) -> CoverageItem {
        if let Err(why) = read {
            return CoverageItem {
                signal: String::from(FORWARDING),
                mechanism: None,
                reason: Some(why.to_owned()),
                unknown: vec![String::from("the node's rules, routes and neighbours")],
            };
        }
        let how = match self.changes {
            Some(_) => "rtnetlink, read again after each change",
            None => "rtnetlink, read every few seconds",
        };
        CoverageItem {
            signal: String::from(FORWARDING),
            mechanism: Some(String::from(how)),
            reason: self.deaf.clone(),
            unknown: Vec::new(),
        }
    }

    /// Whose they are from now on.
    pub(super) fn of(&mut self, node: NodeNetns, procfs: &Procfs, now: Instant) {
        let known = self.node.replace(node);
        if known.is_some_and(|known| known.inode == node.inode) {
            return;
        }
        self.told = (None, None);
        self.outdated = false;
        self.due = Some(now);
        (self.changes, self.deaf) = match listen(node, procfs) {
            Ok(changes) => (Some(changes), None),
            Err(error) => (None, Some(error)),
        };
    }

    /// Everything is to be told again.
    pub(super) fn tell_again(&mut self, now: Instant) {
        self.told = (None, None);
        self.due_at(now);
    }

    /// Asks what is new, unless it is to be read anyway; tells if it is not to be read
    /// soon.
    pub(super) fn step(&mut self, now: Instant, out: &mut Vec<Event>) {
        let is_near = self.due.is_some_and(|due| due <= now + QUIET);
        if self.begun.is_some() || is_near || now < self.listen {
            return;
        }
        self.listen = now + LISTEN;
        let Some(changes) = &mut self.changes else {
            return;
        };
        match changes.news() {
            Ok(None) => {}
            Ok(Some(news)) => self.heard(&news, now, out),
            Err(error) => {
                self.changes = None;
                self.deaf = Some(error.to_string());
                self.due_at(now + QUIET);
            }
        }
    }

    pub(super) fn heard(&mut self, news: &News, now: Instant, out: &mut Vec<Event>) {
        match news {
            News::Little => self.due_at(now + LITTLE),
            News::Much => {
                self.due_at(now + QUIET);
                if self.due.is_some_and(|due| due > now + QUIET) {
                    self.is_outdated(true, sys::clock::now(), out);
                }
            }
        }
    }

    fn is_outdated(&mut self, outdated: bool, time: Timestamp, out: &mut Vec<Event>) {
        if let Some(node) = self.node
            && std::mem::replace(&mut self.outdated, outdated) != outdated
        {
            let netns = Netns {
                inode: node.inode,
                cookie: None,
            };
            let what = What::NetnsForwardingOutdated { netns, outdated };
            out.push(Event { time, what });
        }
    }

    fn due_at(&mut self, time: Instant) {
        let time = self.not_before.map_or(time, |soonest| time.max(soonest));
        self.due = Some(self.due.map_or(time, |due| due.min(time)));
    }

    /// When there is something to do.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.filter(|_| self.begun.is_none())
    }

    /// Whether they are to be read now. What comes from now on is news.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        if self.begun.is_some() || self.due.is_none_or(|due| now < due) {
            return false;
        }
        let Some(node) = self.node else {
            return false;
        };
        self.due = None;
        self.begun = Some((now, node.inode));
        if let Some(changes) = &mut self.changes
            && let Err(error) = changes.pass_over()
        {
            self.changes = None;
            self.deaf = Some(error.to_string());
        }
        true
    }

    /// Tells what was read, if it is new.
    pub(super) fn take<'v>(
        &mut self,
        visit: impl FnOnce(u32) -> Option<&'v Visit>,
        time: Timestamp,
        now: Instant,
        out: &mut Vec<Event>,
    ) {
        let Some((begun, inode)) = self.begun.take() else {
            return;
        };
        // The node has turned out to be another meanwhile.
        if self.node.is_none_or(|node| node.inode != inode) {
            return self.due_at(now);
        }
        let took = now.saturating_duration_since(begun);
        let mut rest = REST.max(took * SHARE);
        match visit(inode) {
            Some(visit) => {
                rest += entries(visit);
                self.tell(visit, time, out);
            }
            None => self.fails(time, out),
        }
        // Not all nodes of a cluster at once, which change together.
        let part = self.hasher.hash_one(time) % 64;
        rest += rest * part as u32 / 256;
        self.not_before = Some(now + rest);
        if self.changes.is_none() || self.failed {
            self.due_at(now + POLL);
        }
    }

    fn fails(&mut self, time: Timestamp, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.failed, true) {
            let source = String::from(FORWARDING);
            let error = String::from("they could not be read: no way in, or no answer");
            let what = What::SourceFailed { source, error };
            out.push(Event { time, what });
        }
    }

    fn tell(&mut self, visit: &Visit, time: Timestamp, out: &mut Vec<Event>) {
        if std::mem::replace(&mut self.failed, false) {
            let source = String::from(FORWARDING);
            let what = What::SourceRecovered { source };
            out.push(Event { time, what });
        }
        let told = (Some(self.devices(visit)), Some(self.forwarding(visit)));
        if self.told.0 != told.0 && !visit.cut {
            let what = What::NetnsDevices {
                netns: visit.netns,
                devices: visit.devices.clone(),
                routes: visit.routes.clone(),
                neighbours: visit.neighbours.clone(),
                host_nsid: visit.host_nsid(|home| home == visit.netns.inode),
            };
            out.push(Event { time, what });
        }
        if self.told.1 != told.1 {
            let what = What::NetnsForwarding {
                netns: visit.netns,
                followed: true,
                forwarding: visit.forwarding.clone(),
            };
            out.push(Event { time, what });
            self.outdated = false;
        }
        self.is_outdated(false, time, out);
        self.told = told;
    }

    fn devices(&self, visit: &Visit) -> u64 {
        let of = &self.hasher;
        let neighbours = visit.neighbours.iter();
        sum(&visit.devices, of)
            .wrapping_add(sum(&visit.routes, of))
            .wrapping_add(
                neighbours
                    .map(|it| of.hash_one(lasting(it)))
                    .fold(0, u64::wrapping_add),
            )
    }

    fn forwarding(&self, visit: &Visit) -> u64 {
        let (of, forwarding) = (&self.hasher, &visit.forwarding);
        let neighbours = forwarding.neighbours.iter();
        let neighbours = neighbours.map(|it| of.hash_one(lasting(&it.neighbour)));
        // Of rules the order matters; of the others it is the kernel's.
        of.hash_one((&forwarding.rules, forwarding.cut, forwarding.local_cut))
            .wrapping_add(sum(&forwarding.routes, of))
            .wrapping_add(sum(&forwarding.frames, of))
            .wrapping_add(neighbours.fold(0, u64::wrapping_add))
    }
}

/// The same in whatever order they come.
fn sum<T: Hash>(all: &[T], hasher: &RandomState) -> u64 {
    let all = all.iter().map(|one| hasher.hash_one(one));
    all.fold(0, u64::wrapping_add)
}

/// A neighbour without what changes by itself: the kernel asks again and again.
fn lasting(neighbour: &Neighbour) -> impl Hash {
    let state = match neighbour.state.as_str() {
        lasts @ ("permanent" | "noarp") => lasts,
        "failed" | "incomplete" | "none" => "none",
        _ => "known",
    };
    (
        neighbour.device,
        neighbour.address,
        neighbour.mac.clone(),
        state.to_owned(),
    )
}

/// The rest for what there is to be told.
fn entries(visit: &Visit) -> Duration {
    let forwarding = &visit.forwarding;
    let entries = forwarding.rules.len()
        + forwarding.routes.len()
        + forwarding.neighbours.len()
        + visit.devices.len();
    Duration::from_secs((entries / PER_SECOND) as u64)
}

/// Begins to listen, where that keeps no namespace.
fn listen(node: NodeNetns, procfs: &Procfs) -> Result<Changes, String> {
    if Procfs::own_netns() == Some(node.inode) {
        return Changes::here().map_err(|error| fault::chain(&error));
    }
    let netns_of = |pid: &u32| procfs.netns_of(*pid) == Some(node.inode);
    // The kernel's first thread is there, too, where process 1 is guarded.
    let Some(pid) = [1, 2].into_iter().find(netns_of) else {
        return Err(String::from(
            "the node's network namespace is a container's: a socket would keep it",
        ));
    };
    let way = Way::File(procfs.task_netns_path(pid));
    let changes = Changes::there(&way, node.inode, &Bounded::default(), PATIENCE);
    changes.map_err(|error| fault::chain(&error))
}
