//! One sandbox, or one network namespace: what is drawn in one lane.

use event::{CniCommand, Netns, PodRef, Task, clock::Timestamp};
use std::{collections::BTreeSet, net::IpAddr};

use super::Call;

/// Moments of one lane; what is more is counted.
const MAX_MARKS: usize = 128;
/// Stays of addresses in one lane.
const MAX_HELD: usize = 32;
/// Stalls in one lane.
const MAX_STALLS: usize = 32;
/// CNI calls of one lane.
const MAX_CALLS: usize = 128;
/// The longest text of one moment, bytes.
const MAX_TEXT: usize = 2_048;

#[derive(Debug, Default)]
pub struct Lane {
    pub netns: Option<Netns>,
    /// Where it is mounted, by the runtime.
    pub path: Option<String>,
    pub sandbox_id: Option<String>,
    pub pod: Option<PodRef>,
    /// When the namespace was made, if that was seen.
    pub created: Option<Timestamp>,
    /// When its last reference went.
    pub dying: Option<Timestamp>,
    /// When the kernel had taken it down.
    pub gone: Option<Timestamp>,
    /// Its addresses over time.
    pub held: Vec<Held>,
    /// Its tasks that slept.
    pub stalls: Vec<Stall>,
    pub marks: Vec<Mark>,
    /// CNI calls for it.
    pub calls: Vec<Call>,
    /// Since when its pod was seen to be Terminating.
    pub terminating: Option<Timestamp>,
    /// Findings about it, by ID.
    pub named: BTreeSet<String>,
    /// When it was last heard of.
    pub last: Option<Timestamp>,
    /// Which of the page's recordings it is of.
    pub part: usize,
    /// What did not fit.
    pub left_out: u64,
}

/// An address in a namespace, from then to then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub address: IpAddr,
    /// Since when; `None` if it was there before anybody looked.
    pub since: Option<Timestamp>,
    /// Until when; `None` if it was there at the end.
    pub until: Option<Timestamp>,
    /// The kernel says so, not only a plugin.
    pub seen: bool,
}

/// A task in uninterruptible sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    /// The kernel function that it sleeps in.
    pub wchan: Option<String>,
    pub since: Timestamp,
    /// It slept already when the tracer first looked: `since` is the latest
    /// possible time.
    pub found: bool,
    /// Until when; `None` if it slept at the end.
    pub until: Option<Timestamp>,
}

/// Something that happened at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub at: Timestamp,
    /// What kind of thing.
    pub kind: MarkKind,
    /// What is told of it, where there is more: an error, an address, a name.
    pub text: String,
    /// What it is about, where that is an address.
    pub addresses: Vec<IpAddr>,
}

/// Kinds of [`Mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MarkKind {
    /// CNI ADD went well.
    Add,
    /// The same, with an address that another sandbox still had.
    GivenAgain,
    AddFailed,
    /// CNI DEL went well.
    Del,
    DelFailed,
    /// After an ADD or DEL that said it went well, it has not.
    NotDone,
    /// The pod is Terminating.
    Terminating,
    /// The pod is not listed any more.
    PodDeleted,
    /// The pod was not on the list that was looked at.
    NotListed,
    /// The address is reserved for nobody, or for somebody else.
    Freed,
    /// The runtime has made the sandbox.
    Made,
    /// The runtime lists the sandbox no more.
    Removed,
    /// The sandbox, or what it needs, could not be made.
    StartFailed,
    /// The pod's entry in a CNI's own data was written.
    EndpointWritten,
    EndpointDeleted,
    /// A task was killed for want of memory.
    Killed,
    /// A device is waited for.
    Waiting,
    /// A source of what is known went silent, or came back.
    Source,
    Lost,
}

impl Lane {
    /// A namespace that was there, or is only now heard of.
    pub fn found(netns: Netns, time: Timestamp) -> Self {
        Self {
            netns: Some(netns),
            last: Some(time),
            ..Self::default()
        }
    }

    /// A sandbox whose namespace is not known.
    pub fn heard_of(time: Timestamp) -> Self {
        Self {
            last: Some(time),
            ..Self::default()
        }
    }

    /// Notes whose it is: what names more of the pod is believed.
    pub fn is_of(&mut self, pod: Option<&PodRef>) {
        let Some(pod) = pod else { return };
        let parts = |pod: &PodRef| usize::from(pod.name.is_some()) + usize::from(pod.uid.is_some());
        if self.pod.as_ref().is_none_or(|own| parts(own) < parts(pod)) {
            self.pod = Some(pod.clone());
        }
    }

    pub fn mark(&mut self, at: Timestamp, kind: MarkKind, text: &str) {
        self.mark_of(at, kind, text, &[]);
    }

    /// The same about addresses. What is told twice counts once.
    pub fn mark_of(&mut self, at: Timestamp, kind: MarkKind, text: &str, addresses: &[IpAddr]) {
        let mark = Mark {
            at,
            kind,
            text: text[..text.floor_char_boundary(MAX_TEXT)].to_owned(),
            addresses: addresses.to_vec(),
        };
        if self.marks.contains(&mark) {
            return;
        }
        if self.marks.len() >= MAX_MARKS {
            self.left_out += 1;
            return;
        }
        self.marks.push(mark);
    }

    /// It has an address. What the kernel says completes what a plugin said.
    pub fn holds(&mut self, address: IpAddr, since: Option<Timestamp>, seen: bool) {
        let open = self.held.iter_mut();
        let mut open = open.filter(|held| held.address == address && held.until.is_none());
        if let Some(held) = open.next() {
            held.seen |= seen;
            held.since = match (held.since, since) {
                (Some(known), Some(since)) => Some(known.min(since)),
                (known, since) => known.or(since),
            };
            return;
        }
        if self.held.len() >= MAX_HELD {
            self.left_out += 1;
            return;
        }
        self.held.push(Held {
            address,
            since,
            until: None,
            seen,
        });
    }

    /// Whether it has an address.
    pub fn has(&self, address: IpAddr) -> bool {
        let mut held = self.held.iter();
        held.any(|held| held.address == address && held.until.is_none())
    }

    /// It has lost an address.
    pub fn loses(&mut self, address: IpAddr, at: Timestamp) {
        for held in &mut self.held {
            if held.address == address && held.until.is_none() {
                held.until = Some(at);
            }
        }
    }

    /// What only a plugin said that it has is over.
    pub fn loses_unseen(&mut self, at: Timestamp) {
        for held in &mut self.held {
            if !held.seen && held.until.is_none() {
                held.until = Some(at);
            }
        }
    }

    pub fn ends(&mut self, at: Timestamp) {
        self.gone.get_or_insert(at);
        for held in &mut self.held {
            held.until.get_or_insert(at);
        }
        for stall in &mut self.stalls {
            stall.until.get_or_insert(at);
        }
    }

    /// A task of it sleeps.
    pub fn sleeps(&mut self, stall: Stall) {
        let full = self.stalls.len() >= MAX_STALLS;
        let mut known = self.stalls.iter_mut();
        let known = known.find(|known| known.tid == stall.tid && known.until.is_none());
        match known {
            Some(known) => {
                if stall.wchan.is_some() {
                    known.wchan = stall.wchan;
                }
            }
            None if full => self.left_out += 1,
            None => self.stalls.push(stall),
        }
    }

    /// A task sleeps no more. Returns whether it is one of its own.
    pub fn wakes(&mut self, task: &Task, at: Timestamp) -> bool {
        let mut own = self.stalls.iter_mut();
        let own = own.find(|stall| stall.tid == task.tid && stall.until.is_none());
        own.map(|stall| stall.until = Some(at)).is_some()
    }

    /// Notes a call; the end of one replaces its beginning.
    pub fn call(&mut self, mut call: Call) {
        let full = self.calls.len() >= MAX_CALLS;
        let mut begun = self.calls.iter_mut().rev();
        let begun = begun.find(|known| known.ended.is_none() && known.is_begin_of(&call));
        match begun {
            Some(begun) => {
                call.began = call.began.min(begun.began);
                *begun = call;
            }
            None if full => self.left_out += 1,
            None => self.calls.push(call),
        }
    }

    /// When CNI DEL last began before its end, and when the first after a time
    /// did.
    pub fn first_del(&self, after: Timestamp) -> Option<Timestamp> {
        let dels = self
            .calls
            .iter()
            .filter(|call| call.command == CniCommand::Del);
        let dels = dels.filter(|call| call.trusted && !call.is_loopback());
        dels.map(|call| call.began).filter(|at| *at >= after).min()
    }

    /// When something of a kind first happened.
    pub fn first(&self, kind: MarkKind) -> Option<&Mark> {
        let marks = self.marks.iter().filter(|mark| mark.kind == kind);
        marks.min_by_key(|mark| mark.at)
    }

    /// When its pod was first known to be gone.
    pub fn pod_gone(&self) -> Option<Timestamp> {
        let told = self.first(MarkKind::PodDeleted);
        let told = told.or_else(|| self.first(MarkKind::NotListed));
        told.map(|mark| mark.at)
    }

    /// Whether it is a pod's, by anything that tells.
    pub fn is_sandbox(&self) -> bool {
        self.sandbox_id.is_some() || self.pod.is_some()
    }

    /// All moments that are known of it.
    pub fn moments(&self) -> impl Iterator<Item = Timestamp> {
        let own = [self.created, self.dying, self.gone].into_iter().flatten();
        let marks = self.marks.iter().map(|mark| mark.at);
        let held = self.held.iter();
        let held = held.flat_map(|held| [held.since, held.until]).flatten();
        let stalls = self.stalls.iter();
        let stalls = stalls.flat_map(|stall| [Some(stall.since), stall.until]);
        own.chain(marks).chain(held).chain(stalls.flatten())
    }

    /// Tells all its times by another clock.
    pub fn change_clock(&mut self, to: &dyn Fn(Timestamp) -> Timestamp) {
        let own = [
            &mut self.created,
            &mut self.dying,
            &mut self.gone,
            &mut self.terminating,
            &mut self.last,
        ];
        let held = self.held.iter_mut();
        let held = held.flat_map(|held| [&mut held.since, &mut held.until]);
        let stalls = self.stalls.iter_mut();
        let stalls: Vec<_> = stalls.map(|it| (&mut it.since, &mut it.until)).collect();
        let calls: Vec<_> = self.calls.iter_mut().collect();
        for at in own.into_iter().chain(held) {
            *at = at.map(to);
        }
        for (since, until) in stalls {
            *since = to(*since);
            *until = until.map(to);
        }
        for call in calls {
            call.began = to(call.began);
            if let Some(end) = &mut call.ended {
                end.at = to(end.at);
            }
        }
        for mark in &mut self.marks {
            mark.at = to(mark.at);
        }
    }

    /// Takes in what was known by the sandbox's ID alone.
    pub fn absorb(&mut self, other: Self) {
        self.is_of(other.pod.as_ref());
        self.sandbox_id = self.sandbox_id.take().or(other.sandbox_id);
        self.path = self.path.take().or(other.path);
        self.terminating = self.terminating.or(other.terminating);
        self.named.extend(other.named);
        for mark in other.marks {
            self.mark_of(mark.at, mark.kind, &mark.text, &mark.addresses);
        }
        for call in other.calls {
            self.call(call);
        }
        for held in other.held.iter().filter(|held| held.until.is_none()) {
            self.holds(held.address, held.since, held.seen);
        }
        self.left_out += other.left_out;
    }
}
