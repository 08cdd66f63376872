//! sandbox-create-failed: a pod stays in ContainerCreating, and why.
//!
//! One finding a pod, but for those that add-failed tells of as a crowd. What
//! keeps it is told by logs and Kubernetes events
//! ([`starts`](crate::model::starts)), by its own CNI calls, of which
//! add-failed tells more, and by the kernel that has killed its sandbox as
//! memory was short. [`Cause`] says in one word what each of them means.
//!
//! * The **cause** is the latest that decides: one that is known goes before
//!   one that is not, and what names a reason before what only sums up
//!   (`unmounted volumes=[...]`).
//! * A name that is taken and a time that ran out follow from what went wrong
//!   before, as a rule: that is the **earlier cause**.
//! * What a log tells is not over because the log goes on; calls and kills are
//!   over when nothing came for [`SILENCE`].
//! * Where many pods have one matter that is the node's, the first of them has
//!   the whole story, and the others refer to it. One matter is one cause
//!   and one remedy, and, of a cause that is not specific, the same words.

use crate::{
    detect::{
        View,
        facts::calls::{self, SILENCE},
        named,
        sandbox_create_failed::failure_report::FailureReport,
    },
    model::{Model, starts::Starting},
};
mod failure_report;
mod finding;

use std::collections::{BTreeMap, HashSet};

use diagnosis::Cause;
use event::order::Order as _;
use event::{OomKill, PodRef, clock::Timestamp, finding::Finding};

/// So many tries are more than a bad start.
const MANY: u64 = 3;
/// So many pods of one matter are told together.
const MANY_PODS: usize = 3;

/// A pod that does not start.
struct Stuck<'a> {
    id: String,
    pod: PodRef,
    sandbox_id: Option<String>,
    attempt: Option<u32>,
    /// What was told, in the order in which it began.
    told: Vec<FailureReport<'a>>,
    /// add-failed tells of it, too.
    has_calls: bool,
}

/// One finding a pod.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let mut all: Vec<Stuck<'_>> = view.model.starts.pods().map(Stuck::starting).collect();
    for calls in view.model.calls.restless_pods() {
        let Some((_, failing)) = calls::failing(view, calls) else {
            continue;
        };
        // add-failed tells of these together.
        if view.crowded().key(calls).is_some() {
            continue;
        }
        let pod = named(view.model, &calls.pod);
        let stuck = one_of(&mut all, calls.id(), pod);
        stuck.has_calls = true;
        stuck.sandbox_id = Some(failing.last_id.clone());
        stuck
            .told
            .push(FailureReport::called(view.model, calls, failing));
    }
    for (at, kill) in view.model.starts.kills() {
        if is_of_a_sandbox(view.model, kill) && !view.passed(at.plus(SILENCE)) {
            let (id, pod) = of_kill(view.model, kill);
            let stuck = one_of(&mut all, id, pod);
            if stuck.sandbox_id.is_none() {
                stuck.sandbox_id.clone_from(&kill.task.container_id);
            }
            stuck.told.push(FailureReport::killed(*at, kill));
        }
    }
    all.retain(|stuck| stuck.times() >= MANY || !view.is_early(stuck.since()));
    for stuck in &mut all {
        stuck.pod = named(view.model, &stuck.pod);
        stuck.told.order_by_key(|told| told.first);
    }
    let matters = matters(&all);
    let leaders = leaders(&all, &matters);
    let findings = all.iter().zip(&matters).map(|(stuck, matter)| {
        let leader = matter.as_ref().and_then(|matter| leaders.get(matter));
        stuck.finding(view, leader)
    });
    findings.collect()
}

/// The one of a pod that is there already, or a new one.
fn one_of<'l, 'a>(all: &'l mut Vec<Stuck<'a>>, id: String, pod: PodRef) -> &'l mut Stuck<'a> {
    let is_it = |stuck: &Stuck<'_>| {
        let same_name = stuck.pod.name.is_some()
            && (&stuck.pod.namespace, &stuck.pod.name) == (&pod.namespace, &pod.name);
        let other_uid = stuck.pod.uid.is_some() && pod.uid.is_some();
        stuck.id == id
            || (pod.uid.is_some() && stuck.pod.uid == pod.uid)
            || (same_name && !other_uid)
    };
    let at = all.iter().position(is_it).unwrap_or_else(|| {
        all.push(Stuck {
            id,
            pod: pod.clone(),
            sandbox_id: None,
            attempt: None,
            told: Vec::new(),
            has_calls: false,
        });
        all.len() - 1
    });
    let stuck = &mut all[at];
    if stuck.pod.uid.is_none() {
        stuck.pod.uid = pod.uid;
    }
    stuck
}

/// Whether what was killed is a sandbox's own, or what was to start a
/// container: an application that is killed has started.
fn is_of_a_sandbox(model: &Model, kill: &OomKill) -> bool {
    let comm = kill.task.comm.as_str();
    // Anybody can choose a name: it counts in a container's cgroup.
    let placed = kill.task.pod_uid.is_some() || kill.task.container_id.is_some();
    let placed = placed || kill.memcg.is_some();
    if placed && (comm == "pause" || comm.starts_with("runc:[")) {
        return true;
    }
    // Of a node without memory what is to start containers is killed, too.
    let starts = ["runc", "crun", "conmon"].contains(&comm) || comm.starts_with("containerd-shim");
    if starts && kill.limited == Some(false) {
        return true;
    }
    // The cgroup's container has the sandbox's ID.
    let id = kill.task.container_id.as_deref();
    id.is_some_and(|id| {
        let mut listed = model
            .runtime
            .cri()
            .into_iter()
            .flat_map(|list| list.sandboxes());
        let called = model.calls.of_container(id).next().is_some();
        called || listed.any(|sandbox| sandbox.id == id)
    })
}

/// What names the pod of a killed task, and the pod.
fn of_kill(model: &Model, kill: &OomKill) -> (String, PodRef) {
    let task = &kill.task;
    let id = task.container_id.as_deref();
    let called = id.and_then(|id| model.calls.of_container(id).find_map(|all| all.pod.clone()));
    let mut pod = called.unwrap_or_default();
    if pod.uid.is_none() {
        pod.uid.clone_from(&task.pod_uid);
    }
    let pod = named(model, &pod);
    let own = pod
        .uid
        .clone()
        .or_else(|| pod.name.is_some().then(|| pod.label()));
    let place = || task.container_id.clone().or_else(|| kill.memcg.clone());
    let id = own.or_else(place).unwrap_or_else(|| task.comm.clone());
    (id, pod)
}

/// Pods at most that a leader names.
const NAMED: usize = 5;

/// What keeps pods from starting for one reason: where these are the same, what
/// helps one pod helps the others.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Matter {
    cause: Cause,
    /// What names the remedy that is more precise than the cause's own.
    remedy: Option<&'static str>,
    /// What was said, without names and numbers, where neither says what is
    /// wrong.
    words: Option<String>,
}

/// That of each; `None` if it is the pod's own.
fn matters(all: &[Stuck<'_>]) -> Vec<Option<Matter>> {
    let pods = all.iter().map(|stuck| &stuck.pod);
    let names = pods.flat_map(|pod| [&pod.namespace, &pod.name, &pod.uid]);
    let names: HashSet<&str> = names.flatten().map(String::as_str).collect();
    let matter = |stuck: &Stuck<'_>| {
        let told = stuck.decisive()?;
        let cause = told.cause;
        let remedy = cause.remedy(&told.text).map(|remedy| remedy.clause);
        let is_clear = cause.is_specific() || remedy.is_some();
        cause.is_of_the_node().then(|| Matter {
            cause,
            remedy,
            words: (!is_clear).then(|| told.words(&names)),
        })
    };
    all.iter().map(matter).collect()
}

/// Of a matter that many pods have: who tells of it.
struct Leader {
    id: String,
    label: String,
    others: Vec<String>,
    /// How many there are besides these, in steps: it changes often.
    more: usize,
}

fn leaders<'m>(all: &[Stuck<'_>], matters: &'m [Option<Matter>]) -> BTreeMap<&'m Matter, Leader> {
    let mut by_matter: BTreeMap<&Matter, Vec<&Stuck<'_>>> = BTreeMap::new();
    for (stuck, matter) in all.iter().zip(matters) {
        if let Some(matter) = matter {
            by_matter.entry(matter).or_default().push(stuck);
        }
    }
    by_matter.retain(|_, pods| pods.len() >= MANY_PODS);
    let leader = |mut pods: Vec<&Stuck<'_>>| {
        pods.order_by_key(|stuck| (stuck.since(), stuck.id.clone()));
        let (first, rest) = pods.split_first()?;
        Some(Leader {
            id: first.id.clone(),
            label: first.label(),
            others: rest.iter().take(NAMED).map(|stuck| stuck.label()).collect(),
            more: rest.len().saturating_sub(NAMED),
        })
    };
    let leaders = by_matter.into_iter();
    leaders
        .filter_map(|(matter, pods)| Some((matter, leader(pods)?)))
        .collect()
}

impl<'a> Stuck<'a> {
    fn starting(starting: &'a Starting) -> Self {
        Self {
            id: starting.id.clone(),
            pod: starting.pod.clone(),
            sandbox_id: starting.sandboxes.back().cloned(),
            attempt: starting.attempt,
            told: starting.failures.iter().map(FailureReport::said).collect(),
            has_calls: false,
        }
    }

    fn since(&self) -> Timestamp {
        let first = self.told.iter().map(|told| told.first).min();
        first.unwrap_or(Timestamp::EPOCH)
    }

    /// How often, as far as is known.
    fn times(&self) -> u64 {
        let told = self.told.iter().map(|told| told.times).max().unwrap_or(1);
        // The first sandbox is attempt 0.
        let counted = self.attempt.map_or(0, |attempt| u64::from(attempt) + 1);
        told.max(counted)
    }

    /// What decides. Of what was told at one time, what was told last.
    fn decisive(&self) -> Option<&FailureReport<'a>> {
        self.told
            .iter()
            .max_by_key(|told| (told.weight(), told.last))
    }

    fn cause(&self) -> Cause {
        self.decisive().map_or(Cause::Unknown, |told| told.cause)
    }

    /// What that follows from, if it was told.
    fn earlier(&self) -> Option<Cause> {
        let decisive = self.decisive().filter(|told| told.cause.follows())?;
        let mut before: Vec<&FailureReport<'_>> = self
            .told
            .iter()
            .filter(|told| told.cause != decisive.cause && told.cause != Cause::Unknown)
            .filter(|told| told.first <= decisive.last)
            .collect();
        // A time-out is itself what follows, if there is anything else.
        before.order_by_key(|told| (!told.cause.follows(), told.first));
        let told = before.last().map(|told| told.cause);
        let own = Cause::before(&decisive.text).filter(|cause| *cause != decisive.cause);
        told.or(own)
    }

    /// `shop/web`, or what else is known.
    fn label(&self) -> String {
        match (&self.pod, &self.sandbox_id) {
            (pod, _) if *pod != PodRef::default() => pod.label(),
            (_, Some(id)) => format!("a pod (sandbox {})", super::short_id(id)),
            (_, None) => String::from("a pod"),
        }
    }
}

#[cfg(test)]
mod tests;
