//! sandbox-churn: a pod's sandbox is made and killed over and over.
//!
//! Seen in one of two ways:
//!
//! * CNI ADD was called for [`MANY`] sandboxes or more of one pod within
//!   [`WINDOW`]. A StatefulSet's pod that is made anew has a new UID: that is
//!   another pod;
//! * the runtime's own count of the pod's sandboxes (`attempt`) is [`MANY`] or
//!   more, and it does not stand still: two of them were made within
//!   [`WINDOW`], or the last one was and is not ready any more. (After a
//!   reboot, every pod of the node has one new sandbox, which is ready.)
//!
//! It is over when none was made for [`WINDOW`], or when the last one has its
//! network for [`SETTLED`]: a CNI agent that starts later than the node makes
//! each pod's first sandboxes fail, and no more than these.
//!
//! What ended each of them is told as far as CNI calls show it.

mod finding;

use std::{collections::BTreeMap, time::Duration};

use crate::{
    detect::{View, facts::calls::pod_gone, heard, named},
    model::calls::PodCalls,
};
use event::order::Order as _;
use event::{PodRef, RuntimeSandbox, clock::Timestamp, finding::Finding};

/// Sandboxes of one pod that are no churn yet.
const MANY: usize = 3;
const WINDOW: Duration = Duration::from_secs(600);
/// A sandbox that has its network for so long lasts.
const SETTLED: Duration = Duration::from_secs(60);

/// A pod whose sandboxes do not last.
struct Churn<'a> {
    pod: PodRef,
    /// What names the pod.
    id: String,
    /// CNI calls for it, if they were many.
    calls: Option<&'a PodCalls>,
    /// Sandboxes that the runtime lists, if they are what shows it: the newest
    /// last.
    listed: Vec<&'a RuntimeSandbox>,
    /// The runtime's count, if it lists any.
    attempt: Option<u32>,
    since: Timestamp,
}

/// One finding a pod.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let mut all: BTreeMap<String, Churn<'_>> = BTreeMap::new();
    for calls in view
        .model
        .calls
        .restless_pods()
        .filter(|pod| is_churn(view, pod))
    {
        let pod = named(view.model, &calls.pod);
        all.insert(calls.id(), Churn::called(view, calls, pod));
    }
    for (uid, sandboxes) in by_pod(view) {
        if !all.contains_key(uid) {
            all.extend(Churn::listed(view, uid, sandboxes).map(|churn| (uid.to_owned(), churn)));
        }
    }
    all.values().map(|churn| churn.finding(view)).collect()
}

/// Whether the last sandboxes for which CNI was called are many.
fn is_churn(view: &View<'_>, pod: &PodCalls) -> bool {
    let Some(earliest) = pod.made.iter().rev().nth(MANY - 1) else {
        return false;
    };
    let Some(last) = pod.made.back() else {
        return false;
    };
    let dense = last.at.since(earliest.at) <= WINDOW;
    dense
        && !view.passed(last.at.plus(WINDOW))
        && !has_settled(view, &last.container_id)
        && pod_gone(view, &pod.pod, last.at).is_none()
}

/// Whether CNI calls show that a sandbox has its network for [`SETTLED`]: every
/// ADD has succeeded, no DEL has come, and its namespace has not gone.
fn has_settled(view: &View<'_>, container_id: &str) -> bool {
    let all = view.model.calls.of_container(container_id);
    let mut last = None;
    for calls in all.filter(|calls| calls.ifname != "lo") {
        let lasts = !calls.has_del() && calls.netns_gone.is_none();
        let Some(added) = calls.added().filter(|_| lasts) else {
            return false;
        };
        last = last.max(Some(added));
    }
    last.is_some_and(|added| view.passed(added.plus(SETTLED)))
}

/// The sandboxes of each pod that has had many, as the runtime lists them.
fn by_pod<'a>(view: &View<'a>) -> BTreeMap<&'a str, Vec<&'a RuntimeSandbox>> {
    let mut pods: BTreeMap<&str, Vec<&RuntimeSandbox>> = BTreeMap::new();
    let Some(list) = heard(view.model) else {
        return pods;
    };
    let many = list.sandboxes().filter(|sandbox| {
        let attempt = usize::try_from(sandbox.attempt).unwrap_or(usize::MAX);
        attempt >= MANY && !sandbox.host_network
    });
    let uids = many.filter_map(|sandbox| sandbox.pod.uid.as_deref());
    for uid in uids {
        pods.entry(uid).or_insert_with(|| {
            let mut all: Vec<_> = list.of_pod(uid).collect();
            all.order_by_key(|sandbox| (sandbox.attempt, sandbox.created));
            all
        });
    }
    pods
}

impl<'a> Churn<'a> {
    fn called(view: &View<'a>, calls: &'a PodCalls, pod: PodRef) -> Self {
        let list = heard(view.model);
        let of_pod = list.into_iter().flat_map(|list| {
            let uid = calls.pod.uid.as_deref();
            uid.into_iter().flat_map(|uid| list.of_pod(uid))
        });
        Self {
            pod,
            id: calls.id(),
            calls: Some(calls),
            listed: Vec::new(),
            attempt: of_pod.map(|sandbox| sandbox.attempt).max(),
            since: calls.since,
        }
    }

    fn listed(view: &View<'a>, uid: &str, all: Vec<&'a RuntimeSandbox>) -> Option<Self> {
        let last = *all.last()?;
        let created = last.created?;
        if view.passed(created.plus(WINDOW)) || pod_gone(view, &last.pod, created).is_some() {
            return None;
        }
        if last.ready != Some(false) && has_settled(view, &last.id) {
            return None;
        }
        let times = || all.iter().filter_map(|sandbox| sandbox.created);
        let recent = times().filter(|at| created.since(*at) <= WINDOW);
        let died = last.ready == Some(false);
        if recent.count() < 2 && !died {
            return None;
        }
        Some(Self {
            pod: last.pod.clone(),
            id: uid.to_owned(),
            calls: None,
            since: times().min().unwrap_or(created),
            attempt: Some(last.attempt),
            listed: all,
        })
    }

    /// The highest number that is known.
    fn attempts(&self) -> u64 {
        let seen = self.calls.map_or(0, |calls| calls.sandboxes);
        self.attempt.map_or(0, u64::from).max(seen)
    }
}

#[cfg(test)]
mod tests;
