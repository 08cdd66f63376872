//! What logs tell of CNI calls, sandboxes, endpoints and the kernel.
//!
//! | module | whose words |
//! |---|---|
//! | [`kubelet`] | the kubelet's, with dockershim and without |
//! | [`containerd`], [`crio`] | the runtimes' |
//! | [`calico`], [`aws`] | plugins' that log what they do |
//! | [`serving`] | daemons' of networks: whom they serve |
//! | [`kernel`] | the kernel's |
//! | [`calls`] | puts together what they say of one CNI call |
//!
//! Nothing is guessed: a call whose end no line tells of has no end, and what a
//! log does not contain is not said to be absent. Nothing is told that looks
//! like a secret ([`hide`]).

mod aws;
mod calico;
pub(super) mod calls;
mod containerd;
mod crio;
mod environment;
pub(super) mod failure;
pub(super) mod hide;
pub(super) mod kernel;
mod kubelet;
mod serving;
mod tokens;

use std::{borrow::Cow, time::Duration};

use super::{entry::Entry, failures::CARRIERS};
use diagnosis::{gate, speaker};
use event::{Event, PodRef, clock::Timestamp};

/// Words of which one is in every line that is of interest here. Lines without
/// any are not looked at.
pub fn needles() -> impl Iterator<Item = &'static str> {
    let all = [
        calico::NEEDLES,
        containerd::NEEDLES,
        crio::NEEDLES,
        kubelet::NEEDLES,
        aws::NEEDLES,
        serving::NEEDLES,
        kernel::NEEDLES,
    ];
    all.into_iter().flatten().copied()
}

/// What is being told of one node: calls that have begun and not ended.
#[derive(Debug, Default)]
pub struct Meaning {
    calls: calls::Calls,
    calico: calico::Calico,
    crio: crio::Crio,
    kubelet: kubelet::Kubelet,
    kernel: kernel::Kernel,
    serving: serving::Serving,
    /// The time of the last message.
    last: Option<Timestamp>,
}

/// A message that is so much older than the one before is of another part of
/// the story: what was being told is not told on.
const JUMP: Duration = Duration::from_secs(5);

impl Meaning {
    /// Takes a message in; what it tells. One without a time tells nothing.
    pub fn events(&mut self, entry: &Entry<'_>) -> Vec<Event> {
        let mut out = Vec::new();
        if let Some(time) = entry.time {
            self.entry(time, entry, &mut out);
        }
        hide::all(&mut out);
        out
    }

    /// The pod that a network's daemon serves, if it is one alone: what it says
    /// without naming any is of that one.
    pub fn served(&self, time: Timestamp) -> Option<&PodRef> {
        self.serving.only(time)
    }

    /// What is left when the log has ended.
    pub fn end(&mut self) -> Vec<Event> {
        let mut out = Vec::new();
        self.settle(&mut out);
        hide::all(&mut out);
        out
    }

    fn entry(&mut self, time: Timestamp, entry: &Entry<'_>, out: &mut Vec<Event>) {
        if self.last.is_some_and(|last| last.since(time) > JUMP) {
            self.settle(out);
        }
        self.last = Some(time);
        let heard = heard(entry);
        let entry = heard.as_ref().unwrap_or(entry);
        if entry.ident.is_some_and(gate::is_another) {
            return;
        }
        let writer = Writer::of(entry.ident);
        // Who has a name or a level of his own does not speak as the kernel.
        let unnamed = entry.ident.is_none() && entry.own_level.is_none();
        if writer == Writer::Kernel || unnamed {
            self.kernel.passes(time, out);
            self.kernel.entry(time, entry, out);
        }
        if writer == Writer::Kernel {
            return;
        }
        self.kubelet.passes(time, &mut self.calls);
        self.calico.entry(time, entry, &mut self.calls);
        if writer.may_be(Writer::Containerd) {
            containerd::entry(time, entry, &mut self.calls);
        }
        if writer.may_be(Writer::Crio) && self.crio.is_its(entry) {
            self.crio.entry(time, entry, &mut self.calls);
        } else if writer.may_be(Writer::Kubelet) {
            self.kubelet.entry(time, entry, &mut self.calls);
        }
        aws::entry(time, entry, &mut self.calls);
        self.serving.entry(time, entry);
        out.extend(self.calls.take());
    }

    fn settle(&mut self, out: &mut Vec<Event>) {
        self.kernel.settle(out);
        self.calico.settle(&mut self.calls);
        self.kubelet.end(&mut self.calls);
        self.crio.end(&mut self.calls);
        self.calls.close_all();
        out.extend(self.calls.take());
    }
}

/// What of a message can be about a sandbox, if that is not all of it. Behind
/// words about a container, an image, a volume or a probe, anybody may speak.
fn heard<'e>(entry: &'e Entry<'_>) -> Option<Entry<'e>> {
    let message = speaker::of_sandbox(&entry.message);
    let elsewhere = message.len() < entry.message.len();
    let turns = |(name, value): &(Cow<'_, str>, Cow<'_, str>)| {
        CARRIERS.contains(&name.as_ref()) && (elsewhere || speaker::turns_elsewhere(value))
    };
    if !elsewhere && !entry.fields.iter().any(turns) {
        return None;
    }
    let fields = entry.fields.iter().map(|(name, value)| {
        let carries = CARRIERS.contains(&name.as_ref());
        let value = match (carries, elsewhere) {
            (true, true) => "",
            (true, false) => speaker::of_sandbox(value),
            (false, _) => value,
        };
        (Cow::Borrowed(name.as_ref()), Cow::Borrowed(value))
    });
    Some(Entry {
        message: Cow::Borrowed(message),
        fields: fields.collect(),
        ..entry.clone()
    })
}

/// Who has written a line, by its envelope. Plugins write into the log of who
/// calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Kernel,
    Containerd,
    Crio,
    Kubelet,
    /// There is no envelope, or that of somebody else.
    Unknown,
}

impl Writer {
    fn of(ident: Option<&str>) -> Self {
        let ident = ident.unwrap_or_default();
        let bare = ident.rsplit('/').next().unwrap_or_default();
        match bare {
            "kernel" | "kern" => Self::Kernel,
            "crio" | "cri-o" => Self::Crio,
            "kubelet" => Self::Kubelet,
            // k3s and its like are the kubelet, too.
            "containerd" => Self::Containerd,
            _ => Self::Unknown,
        }
    }

    fn may_be(self, other: Self) -> bool {
        self == other || self == Self::Unknown
    }
}

#[cfg(test)]
mod tests;
