//! How far the clocks of several nodes are apart, by what both tell of the same
//! moment: never by the order in which things seem to have happened.
//!
//! A CNI ADD gives a pod its address before the API server can say that the pod
//! has it. So the clock of the node that ran the ADD is ahead of another one's by at
//! least what it shows for the end of the ADD, less what the other one shows when
//! it has read the pod with that address. Each such pair is a bound to one side.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use event::{CniCommand, Event, Pod, What, clock::Timestamp, wording::duration::length};

/// Pods of one recording whose moments are kept.
const MAX_PODS: usize = 4_096;
/// What is less certain corrects nothing.
const TIGHT: i64 = 2_000_000_000;

/// A pod with an address.
type Key = (String, IpAddr);

/// What one recording tells of moments that others can have seen.
#[derive(Debug, Default)]
pub struct Moments {
    /// Pods that were on a list before any ADD gave them an address.
    waiting: BTreeSet<String>,
    /// When an ADD had given it: the API cannot have said so before.
    given: BTreeMap<Key, Timestamp>,
    /// When the API had said so.
    said: BTreeMap<Key, Timestamp>,
}

/// How far a clock is ahead of the first recording's, ns; negative if it is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub at_least: Option<i64>,
    pub at_most: Option<i64>,
}

/// What is known of a recording's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// All others are compared with it.
    #[default]
    First,
    /// It is the same node's.
    Same,
    Compared {
        bounds: Bounds,
        /// So much was taken off all its times, ns.
        taken_off: i64,
    },
    /// Nothing that both tell bounds the difference.
    Unknown,
    /// What both tell cannot be true together.
    Contradictory,
}

impl Moments {
    pub(super) fn take(&mut self, event: &Event) {
        let time = event.time;
        match &event.what {
            What::PodsListed { pods, .. } | What::PodsWithAddress { pods, .. } => {
                pods.iter().for_each(|pod| self.pod(pod, time));
            }
            What::PodChanged { pod } => self.pod(pod, time),
            What::CniCall {
                call,
                exit_code: Some(0),
                error: None,
                result: Some(result),
                ..
            } if call.trusted && call.command == CniCommand::Add => {
                let uid = call.pod.as_ref().and_then(|pod| pod.uid.clone());
                // Of a pod that was not seen to wait, this may be a later sandbox.
                let Some(uid) = uid.filter(|uid| self.waiting.contains(uid)) else {
                    return;
                };
                for ip in &result.ips {
                    let key = (uid.clone(), *ip);
                    if self.given.len() < MAX_PODS && !self.said.contains_key(&key) {
                        // Of a plugin and those that it calls, the first has it first.
                        self.given.entry(key).or_insert(time);
                    }
                }
            }
            _ => {}
        }
    }

    fn pod(&mut self, pod: &Pod, time: Timestamp) {
        for uid in &pod.uids {
            if pod.ips.is_empty() && self.waiting.len() < MAX_PODS {
                self.waiting.insert(uid.clone());
            }
            for ip in pod.ips.iter().filter(|_| !pod.host_network) {
                if self.said.len() < MAX_PODS {
                    self.said.entry((uid.clone(), *ip)).or_insert(time);
                }
            }
        }
    }

    /// Tells all times by another clock.
    pub(super) fn change_clock(&mut self, to: &dyn Fn(Timestamp) -> Timestamp) {
        for at in self.given.values_mut().chain(self.said.values_mut()) {
            *at = to(*at);
        }
    }

    /// Whether the API said that a pod has an address.
    pub fn says(&self, uid: &str, address: IpAddr) -> bool {
        self.said.contains_key(&(uid.to_owned(), address))
    }

    /// How far this recording's clock is ahead of another one's.
    fn ahead_of(&self, other: &Self) -> Bounds {
        let apart = |given: &Self, said: &Self| {
            let pairs = given.given.iter();
            let pairs = pairs.filter_map(|(key, at)| Some(nanos(*at, *said.said.get(key)?)));
            pairs.max()
        };
        Bounds {
            at_least: apart(self, other),
            at_most: apart(other, self).map(|it| it.saturating_neg()),
        }
    }

    /// What is known of this recording's clock beside the first one's, and how much
    /// is to be taken off its times.
    pub(super) fn beside(&self, first: &Self) -> Clock {
        let bounds = self.ahead_of(first);
        match (bounds.at_least, bounds.at_most) {
            (None, None) => Clock::Unknown,
            (Some(least), Some(most)) if least > most => Clock::Contradictory,
            (Some(least), Some(most))
                if most.saturating_sub(least) <= TIGHT && (least > 0 || most < 0) =>
            {
                Clock::Compared {
                    bounds,
                    taken_off: least + (most - least) / 2,
                }
            }
            _ => Clock::Compared {
                bounds,
                taken_off: 0,
            },
        }
    }
}

/// How much later one is than the other, ns.
fn nanos(one: Timestamp, other: Timestamp) -> i64 {
    let of = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    of(one.since(other)).saturating_sub(of(other.since(one)))
}

/// A time, so much later.
pub(super) fn later(at: Timestamp, by: i64) -> Timestamp {
    let length = Duration::from_nanos(by.unsigned_abs());
    match by < 0 {
        true => at.minus(length),
        false => at.plus(length),
    }
}

impl Clock {
    /// How much the clock, as its times are told now, may be ahead of the first
    /// one's, from and to, ns.
    pub fn slack(&self) -> (Option<i64>, Option<i64>) {
        match self {
            Self::First | Self::Same => (Some(0), Some(0)),
            Self::Compared { bounds, taken_off } => {
                let rest = |it: i64| it.saturating_sub(*taken_off);
                (bounds.at_least.map(rest), bounds.at_most.map(rest))
            }
            Self::Unknown | Self::Contradictory => (None, None),
        }
    }

    /// The same in words.
    pub fn words(&self, first: &str) -> String {
        let long = |by: i64| length(Duration::from_nanos(by.unsigned_abs()));
        let (bounds, taken_off) = match self {
            Self::First => return String::from("the times of this page are by it"),
            Self::Same => return format!("{first}'s own"),
            Self::Unknown => {
                return format!(
                    "not compared with {first}'s: these recordings have no moment that bounds how \
                     far they are apart; times are as this node told them"
                );
            }
            Self::Contradictory => {
                return format!(
                    "not compared with {first}'s: what the recordings tell of the same moments \
                     contradicts itself, so a clock was set meanwhile; times are as this node \
                     told them"
                );
            }
            Self::Compared { bounds, taken_off } => (bounds, *taken_off),
        };
        let side = |by: i64| match by < 0 {
            true => format!("{} behind", long(by)),
            false => format!("{} ahead of", long(by)),
        };
        let how = match (bounds.at_least, bounds.at_most) {
            (Some(least), Some(most)) if least <= 0 && most >= 0 => format!(
                "at most {} behind and at most {} ahead of {first}'s",
                long(least),
                long(most)
            ),
            (Some(least), Some(most)) => {
                let (near, far) = match least > 0 {
                    true => (least, most),
                    false => (most, least),
                };
                format!("{} to {} {first}'s", long(near), side(far))
            }
            (Some(least), None) if least > 0 => {
                format!("at least {} {first}'s, maybe more", side(least))
            }
            (Some(least), None) => format!(
                "at most {} behind {first}'s; how far it may be ahead is not known",
                long(least)
            ),
            (None, Some(most)) if most < 0 => {
                format!("at least {} {first}'s, maybe more", side(most))
            }
            (None, Some(most)) => format!(
                "at most {} ahead of {first}'s; how far it may be behind is not known",
                long(most)
            ),
            (None, None) => String::from("not compared"),
        };
        let corrected = match taken_off {
            0 => String::from("; times are as this node told them"),
            by => format!(
                "; its times are told {} {} here, by {first}'s clock; words of findings keep its own",
                long(by),
                match by > 0 {
                    true => "earlier",
                    false => "later",
                }
            ),
        };
        format!("{how} (CNI results here, pods in the API there){corrected}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::testing::{NEW, OLD, answered, at, call, ip, listed, pod, s};

    fn moments(events: &[Event]) -> Moments {
        let mut moments = Moments::default();
        events.iter().for_each(|event| moments.take(event));
        moments
    }

    /// A pod that gets an address, on its own node.
    fn given(seconds: i64, uid: &str, last: u8) -> Vec<Event> {
        let add = answered(seconds, call("ADD", "sandbox", 200, uid, "a"), last);
        vec![listed(seconds - 1, &[pod("a", uid, &[])]), add]
    }

    /// Another node reads it in the API.
    fn read(seconds: i64, uid: &str, last: u8) -> Event {
        let what = What::PodsWithAddress {
            address: ip(last),
            at: s(seconds),
            pods: vec![pod("a", uid, &[ip(last)])],
        };
        at(seconds, what)
    }

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_clock_is_bounded_by_what_must_have_come_first() {
        let n1 = moments(&[read(30, NEW, 5)]);
        let n2 = moments(&given(90, NEW, 5));
        let bounds = n2.ahead_of(&n1);
        assert_eq!((bounds.at_least, bounds.at_most), (Some(60 * SECOND), None));
        // From the other side it is the same, and corrects nothing.
        let Clock::Compared { bounds, taken_off } = n1.beside(&n2) else {
            panic!("not compared");
        };
        assert_eq!((bounds.at_most, taken_off), (Some(-60 * SECOND), 0));
    }

    #[test]
    fn a_clock_is_corrected_only_within_tight_bounds() {
        let mut of_n1 = given(20, OLD, 6);
        of_n1.push(read(30, NEW, 5));
        let mut of_n2 = given(90, NEW, 5);
        of_n2.push(read(81, OLD, 6));
        let clock = moments(&of_n2).beside(&moments(&of_n1));
        let Clock::Compared { taken_off, .. } = clock else {
            panic!("{clock:?}");
        };
        assert_eq!(taken_off, 60 * SECOND + SECOND / 2);
        assert_eq!(clock.slack(), (Some(-SECOND / 2), Some(SECOND / 2)));
        let words = clock.words("n1");
        assert!(
            words.starts_with("1 min 00 s to 1 min 01 s ahead of n1's"),
            "{words}"
        );
        of_n2.pop();
        of_n2.push(read(100, OLD, 6));
        let Clock::Compared { taken_off, .. } = moments(&of_n2).beside(&moments(&of_n1)) else {
            panic!("not compared");
        };
        assert_eq!(taken_off, 0);
    }

    #[test]
    fn what_bounds_nothing_or_contradicts_itself_is_said() {
        let nothing = Moments::default();
        let clock = nothing.beside(&moments(&given(20, OLD, 6)));
        assert_eq!(clock, Clock::Unknown);
        assert!(clock.words("n1").starts_with("not compared with n1's"));
        let mut of_n1 = given(50, OLD, 6);
        of_n1.push(read(30, NEW, 5));
        let mut of_n2 = given(90, NEW, 5);
        of_n2.push(read(81, OLD, 6));
        let clock = moments(&of_n2).beside(&moments(&of_n1));
        assert_eq!(clock, Clock::Contradictory);
    }

    #[test]
    fn an_add_for_a_pod_that_may_have_had_the_address_before_bounds_nothing() {
        let n1 = moments(&[read(30, NEW, 5)]);
        let mut events = given(90, NEW, 5);
        events.remove(0);
        assert_eq!(moments(&events).beside(&n1), Clock::Unknown);
    }
}
