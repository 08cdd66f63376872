//! Calls by pod: how often its sandbox was made of late, and which ADDs fail.
//!
//! A pod is known by its UID; a runtime that does not pass it leaves the name,
//! which the pod of the same name before and after has, too.

use event::{CniCall, CniCommand, PodRef, clock::Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::{CallResult, pod_key};

/// Pods at most; the one that was called for longest ago makes room.
pub(super) const MAX_PODS: usize = 2_048;
/// Sandboxes that are kept of one pod: the last.
const MAX_MADE: usize = 16;
/// Interfaces of one pod whose ADDs fail.
const MAX_FAILING: usize = 8;
/// Sandboxes that are further apart are not made in one go.
pub(super) const PAUSE: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
pub struct PodCalls {
    pub pod: PodRef,
    /// Its sandboxes since [`since`](Self::since).
    pub sandboxes: u64,
    /// When the first of these was made: no two of them are further apart than
    /// [`PAUSE`].
    pub since: Timestamp,
    /// The last of them.
    pub made: VecDeque<Made>,
    /// ADDs that fail, by interface.
    pub failing: BTreeMap<String, Failing>,
    last: Timestamp,
}

/// A sandbox for which ADD was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub at: Timestamp,
    pub container_id: String,
}

/// ADDs of one interface that fail, since the last that succeeded.
#[derive(Clone, Debug)]
pub struct Failing {
    /// The plugin that failed last.
    pub plugin: String,
    /// How often, in all sandboxes.
    pub times: u64,
    /// When the first failed.
    pub since: Timestamp,
    /// The sandbox of which it was the ADD.
    pub first_id: String,
    pub last_id: String,
    /// How the last one ended.
    pub end: CallResult,
}

#[derive(Debug, Default)]
pub(super) struct PodTable {
    by_id: BTreeMap<String, PodCalls>,
    by_age: BTreeSet<(Timestamp, String)>,
    /// Those with [`PodCalls::is_restless`].
    restless: BTreeSet<String>,
}

impl PodTable {
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &PodCalls> {
        self.by_id.values()
    }

    pub(super) fn restless(&self) -> impl Iterator<Item = &PodCalls> {
        self.restless.iter().filter_map(|id| self.by_id.get(id))
    }

    /// See [`Calls::made`](super::Calls::made).
    pub(super) fn made_sandbox(&mut self, pod: &PodRef, time: Timestamp) -> bool {
        let Self {
            by_id, restless, ..
        } = self;
        let ids = pod.uid.clone().into_iter().chain(pod_key(pod));
        let mut changed = false;
        for id in ids {
            let Some(known) = by_id.get_mut(&id) else {
                continue;
            };
            let before = known.failing.len();
            known
                .failing
                .retain(|_, failing| !failing.end.log || failing.end.at > time);
            changed |= known.failing.len() < before;
            if !known.is_restless() {
                restless.remove(&id);
            }
        }
        changed
    }

    /// Sandboxes of pods that rules tell of, or will tell of once the next is
    /// made.
    pub(super) fn in_findings(&self, now: Timestamp) -> BTreeSet<&str> {
        let mut told = BTreeSet::new();
        for (id, pod) in &self.by_id {
            if pod.is_paused(now) && !self.restless.contains(id) {
                continue;
            }
            told.extend(pod.made.iter().map(|made| made.container_id.as_str()));
            for failing in pod.failing.values() {
                told.extend([failing.first_id.as_str(), failing.last_id.as_str()]);
            }
        }
        told
    }

    /// Forgets pods that their next sandbox would find as if they were new: no
    /// rule tells of them. `is_there` is whether a sandbox has not been taken
    /// back.
    pub(super) fn forget_past(&mut self, now: Timestamp, is_there: impl Fn(&str) -> bool) {
        let Self {
            by_id,
            by_age,
            restless,
        } = self;
        by_age.retain(|(last, id)| {
            let is_past = by_id.get(id).is_none_or(|pod| {
                let made = pod.made.back();
                let there = made.is_some_and(|made| is_there(&made.container_id));
                pod.is_paused(now) && !there
            });
            let kept = now.since(*last) <= PAUSE || !is_past || restless.contains(id);
            if !kept {
                by_id.remove(id);
            }
            kept
        });
    }

    /// A trusted ADD or DEL of the runtime, started (`end` is none) or ended.
    pub(super) fn note(&mut self, call: &CniCall, time: Timestamp, end: Option<&CallResult>) {
        if call.delegated || call.command != CniCommand::Add {
            return;
        }
        let Some(pod) = &call.pod else {
            return;
        };
        let Some(id) = pod.uid.clone().or_else(|| pod_key(pod)) else {
            return;
        };
        if !self.by_id.contains_key(&id)
            && self.by_id.len() >= MAX_PODS
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_id.remove(&oldest);
            self.restless.remove(&oldest);
        }
        let known = self.by_id.entry(id.clone()).or_insert_with(|| PodCalls {
            pod: pod.clone(),
            sandboxes: 0,
            since: time,
            made: VecDeque::new(),
            failing: BTreeMap::new(),
            last: time,
        });
        self.by_age.remove(&(known.last, id.clone()));
        known.last = known.last.max(time);
        self.by_age.insert((known.last, id.clone()));
        known.make(&call.container_id, time);
        if let Some(end) = end.filter(|end| end.is_ok() || end.is_failed()) {
            known.ended(call, end);
        }
        match known.is_restless() {
            true => self.restless.insert(id),
            false => self.restless.remove(&id),
        };
    }
}

impl PodCalls {
    /// What names it: its UID, or else `namespace/name`.
    pub fn id(&self) -> String {
        let uid = self.pod.uid.clone();
        uid.or_else(|| pod_key(&self.pod)).unwrap_or_default()
    }

    /// Whether an ADD of it fails, or it has had more than two sandboxes.
    fn is_restless(&self) -> bool {
        !self.failing.is_empty() || self.made.len() > 2
    }

    /// Whether a sandbox that is made now begins a new count.
    fn is_paused(&self, now: Timestamp) -> bool {
        let last = self.made.back();
        last.is_none_or(|last| now.since(last.at) > PAUSE)
    }

    fn make(&mut self, container_id: &str, time: Timestamp) {
        if self
            .made
            .iter()
            .any(|made| made.container_id == container_id)
        {
            return;
        }
        if self.is_paused(time) {
            self.made.clear();
            self.sandboxes = 0;
            self.since = time;
        }
        self.sandboxes += 1;
        self.made.push_back(Made {
            at: time,
            container_id: container_id.to_owned(),
        });
        if self.made.len() > MAX_MADE {
            self.made.pop_front();
        }
    }

    fn ended(&mut self, call: &CniCall, end: &CallResult) {
        let old = |known: &Failing| end.at.since(known.end.at) > PAUSE;
        if self.failing.get(&call.ifname).is_some_and(old) {
            self.failing.remove(&call.ifname);
        }
        let full = self.failing.len() >= MAX_FAILING;
        let known = self.failing.get_mut(&call.ifname);
        match known {
            // A plugin before it in the chain succeeds each time.
            Some(known) if end.is_ok() => {
                if known.plugin == call.plugin {
                    self.failing.remove(&call.ifname);
                }
            }
            Some(known) => {
                known.plugin.clone_from(&call.plugin);
                known.times += 1;
                known.last_id.clone_from(&call.container_id);
                known.end = end.clone();
            }
            None if end.is_ok() || full => {}
            None => {
                let failing = Failing {
                    plugin: call.plugin.clone(),
                    times: 1,
                    since: end.at,
                    first_id: call.container_id.clone(),
                    last_id: call.container_id.clone(),
                    end: end.clone(),
                };
                self.failing.insert(call.ifname.clone(), failing);
            }
        }
    }
}
