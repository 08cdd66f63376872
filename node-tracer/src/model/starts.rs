//! Pods that do not start: what was said of their sandboxes and of what they
//! need besides, and tasks that were killed as memory was short.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    clock::Timestamp,
    event::{OomKill, PodRef, StartFailure},
};

/// Pods at most; the one that was told of longest ago makes room.
pub(crate) const MAX_PODS: usize = 1_024;
/// Different failures of one pod; the last takes the latest's place.
const MAX_FAILURES: usize = 32;
/// Killed tasks at most; the oldest makes room.
const MAX_KILLS: usize = 256;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    pods: BTreeMap<String, Starting>,
    kills: VecDeque<(Timestamp, OomKill)>,
    dropped: u64,
}

/// What was said of one pod, in the order in which it was first said.
#[derive(Clone, Debug)]
pub(crate) struct Starting {
    /// The pod; without a name where none was told.
    pub(crate) pod: PodRef,
    /// Different failures.
    pub(crate) failures: Vec<Failed>,
    /// When something was last said.
    pub(crate) last: Timestamp,
}

/// A failure, and how often.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    /// As it was told last.
    pub(crate) failure: StartFailure,
    /// When it was first so.
    pub(crate) first: Timestamp,
    /// When it was last so.
    pub(crate) last: Timestamp,
    /// How often.
    pub(crate) times: u64,
}

impl Starts {
    /// Pods of which a failure was told.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Starting> {
        self.pods.values()
    }

    /// Tasks that were killed, oldest first.
    pub(crate) fn kills(&self) -> impl Iterator<Item = &(Timestamp, OomKill)> {
        self.kills.iter()
    }

    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn failed(&mut self, failure: &StartFailure, time: Timestamp) -> bool {
        let key = key(&failure.pod, &failure.message);
        if !self.pods.contains_key(&key) && self.pods.len() >= MAX_PODS {
            self.dropped += 1;
            let oldest = self.pods.iter().min_by_key(|(_, pod)| pod.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.pods.remove(&oldest);
            }
        }
        let first = failure.first.unwrap_or(time).min(time);
        let pod = self.pods.entry(key).or_insert_with(|| Starting {
            pod: failure.pod.clone(),
            failures: Vec::new(),
            last: time,
        });
        pod.last = pod.last.max(time);
        if pod.pod.uid.is_none() {
            pod.pod.uid.clone_from(&failure.pod.uid);
        }
        let times = failure.count.unwrap_or(1);
        let same = |known: &&mut Failed| {
            known.failure.message == failure.message && known.failure.source == failure.source
        };
        if let Some(known) = pod.failures.iter_mut().find(same) {
            known.first = known.first.min(first);
            known.last = known.last.max(time);
            known.times = match failure.count {
                // It is a count from the beginning on.
                Some(count) => known.times.max(count),
                None => known.times + 1,
            };
            known.failure = failure.clone();
            return true;
        }
        if pod.failures.len() >= MAX_FAILURES {
            pod.failures.pop();
        }
        pod.failures.push(Failed {
            failure: failure.clone(),
            first,
            last: time,
            times,
        });
        true
    }

    pub(super) fn killed(&mut self, kill: &OomKill, time: Timestamp) -> bool {
        if self.kills.len() >= MAX_KILLS {
            self.kills.pop_front();
        }
        self.kills.push_back((time, kill.clone()));
        true
    }
}

/// What a pod's failures are kept under. Of one that is not named each message
/// stands for itself.
fn key(pod: &PodRef, message: &str) -> String {
    match (&pod.namespace, &pod.name, &pod.uid) {
        (namespace, Some(name), _) => {
            format!("{}/{name}", namespace.as_deref().unwrap_or_default())
        }
        (_, None, Some(uid)) => uid.clone(),
        (_, None, None) => format!(" {message}"),
    }
}
