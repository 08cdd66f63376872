//! What things and moments are called in a sentence.

use std::net::IpAddr;

use super::{
    super::{
        lanes::{Lane, Serial, Stall},
        prose::Prose,
    },
    Narrator,
};
use event::{
    clock::Timestamp,
    wording::subjects::{pod_word, short_id},
};

impl Narrator<'_> {
    /// Whose a lane is, in short.
    pub fn whose(&self, lane: &Lane) -> String {
        let whose = self.pod_or_sandbox(lane);
        match self.sheet.has_nodes() {
            true => format!("{whose} on {}", self.sheet.node_of(lane.part)),
            false => whose,
        }
    }

    fn pod_or_sandbox(&self, lane: &Lane) -> String {
        match (&lane.pod, &lane.sandbox_id, lane.netns) {
            (Some(pod), ..) if pod.name.is_some() => pod.label(),
            (_, Some(id), _) => format!("sandbox {}", short_id(id)),
            (Some(pod), None, _) => pod.label(),
            (None, None, Some(netns)) => format!("network namespace {}", netns.inode),
            (None, None, None) => String::from("a sandbox of an unknown pod"),
        }
    }

    /// `At 08:53:37.510 `
    pub fn on(&mut self, at: Timestamp) -> Prose {
        Prose::default().say("At ").at(self.turn_to(at)).say(" ")
    }

    /// A moment, whose day is clear from then on.
    pub fn turn_to(&mut self, at: Timestamp) -> String {
        let text = self.moment(at);
        self.calendar.turn_to(at);
        text
    }

    /// A sandbox: at first with its pod and namespace, then in short.
    pub fn name(&mut self, prose: Prose, serial: Serial, lane: &Lane) -> Prose {
        let new = self.introduced.insert(serial);
        let id = lane.sandbox_id.as_deref().map(short_id);
        let netns = lane
            .netns
            .map(|netns| format!("network namespace {}", netns.inode));
        let prose = match (id, &lane.pod, &netns) {
            (Some(id), ..) => prose.say("sandbox ").name(id),
            (None, Some(_), _) => prose.say("a sandbox"),
            (None, None, Some(netns)) => prose.name(netns),
            (None, None, None) => prose.say("a sandbox of an unknown pod"),
        };
        if !new && id.is_some() {
            return prose;
        }
        let prose = match &lane.pod {
            Some(pod) => prose.say(" of pod ").name(pod_word(pod)),
            None => prose,
        };
        let prose = match netns.filter(|_| new && (id.is_some() || lane.pod.is_some())) {
            Some(netns) => prose.say(format!(" ({netns})")),
            None => prose,
        };
        match new && self.sheet.has_nodes() {
            true => prose.say(" on ").name(self.sheet.node_of(lane.part)),
            false => prose,
        }
    }
}

/// `checkout-api (26310)`
pub(super) fn who(stall: &Stall) -> String {
    let Stall { pid, tid, comm, .. } = stall;
    match pid == tid {
        true => format!("{comm} ({pid})"),
        false => format!("{comm} ({pid}, thread {tid})"),
    }
}

pub(super) fn list(addresses: &[IpAddr]) -> String {
    let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    match all.is_empty() {
        true => String::from("no address that is known"),
        false => all.join(", "),
    }
}
