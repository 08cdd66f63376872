//! Events in, findings out: applies the model, evaluates the rules at ticks,
//! and tells what is new, what has changed and what is over.
//!
//! Time is the events' time. Rules are evaluated at [`What::Tick`] only, and
//! only if the model has changed or a rule's time has come, so a recording
//! gives the same findings at the same ticks again.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests read what is expected from files"
    )
)]

pub mod confirm;
pub mod detect;
pub mod eni;
pub mod explain;
mod incident;
#[cfg(any(test, feature = "testing"))]
pub mod law;
pub mod model;
pub mod summary;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    detect::{
        View,
        facts::{common::label, conflicts, ghosts, own},
        ghost_sandbox::{self, Uncovered},
        stale_path, unreserved_address,
    },
    model::{Model, OWNERS},
};
use event::order::Order as _;
use event::{
    Event, Netns, What,
    clock::Timestamp,
    finding::{Evidence, Finding, Holder, Phase, Rule, Severity, State},
    not_checked::NotChecked,
    wording,
};

pub use crate::detect::Settings;

/// A finding is told at most once in this time, unless it gets worse or ends; if
/// it changes all the time, ever more rarely.
const UPDATES: Duration = Duration::from_secs(1);
/// So often it is told before that, and so often the time doubles: to a minute.
const PROMPT: u32 = 4;
const DOUBLED: u32 = 6;
/// In a stream, what a user does at will is not over before it has been absent
/// for so long: it can come and go without end.
const ABSENCE: Duration = Duration::from_secs(60);
/// Users who are told of at a time; with that, one with many IDs is told of no
/// more often.
const MAX_USERS: usize = 4;
/// Addresses of which the stores are asked all the time; of more living pods in turn.
const MAX_ASKED: usize = 64;
/// A finding that has ended so often, each time within a minute of the last,
/// comes and goes: it is over once it has been away for a while.
const ENDS: u32 = 3;
const QUIET: Duration = Duration::from_secs(60);
/// So many findings may be evaluated again after one millisecond each.
const FINDINGS_PER_MS: usize = 16;
/// As many reservations, and attachments that were called for: each evaluation
/// looks at all of them.
const RESERVATIONS_PER_MS: usize = 1_024;
const ATTACHMENTS_PER_MS: usize = 1_024;
/// The longest time between evaluations that are due.
const MAX_PAUSE_MS: usize = 500;

#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    model: Model,
    /// What has been told and is not over, by ID.
    open: BTreeMap<String, Open>,
    /// How often findings have ended of late, and when last, by ID.
    ended: BTreeMap<String, (u32, Timestamp)>,
    /// The model has changed since the last evaluation.
    stale: bool,
    /// When a rule or a finding that waits to be told again has its time.
    next: Option<Timestamp>,
    /// No evaluation before that.
    pause: Option<Timestamp>,
    /// See [`View::patient`].
    patience: Duration,
    /// See [`ABSENCE`].
    absence: Duration,
    /// What the node's tables showed, and when they were judged.
    paths: Option<(Timestamp, stale_path::Judged)>,
    /// The last tick's time.
    ticked: Option<Timestamp>,
    watch: Watch,
    gaps: Vec<String>,
    not_checked: Vec<NotChecked>,
    summary: Summary,
}

/// A finding that is not over.
#[derive(Clone, Debug)]
struct Open {
    /// As it was told last.
    told: Finding,
    told_at: Timestamp,
    latest: Finding,
    /// When it was last found.
    found_at: Timestamp,
    /// It was not found the last time.
    away: bool,
    /// How often it was told again of late, without being worse.
    updates: u32,
    /// The worst it has been.
    worst: Severity,
}

/// What the source is to look at again and again while it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// Namespaces whose holders matter.
    pub netns: BTreeSet<Netns>,
    /// Addresses whose reservations matter.
    pub addresses: BTreeSet<IpAddr>,
    /// Namespaces of which it matters what their devices are plugged into, and
    /// is not known.
    pub unplaced: BTreeSet<Netns>,
    /// Addresses of living pods: whether they are still reserved matters, but is
    /// not urgent.
    pub living: BTreeSet<IpAddr>,
    /// Ghosts' addresses, each with how far its ghost has come: who has them in the
    /// whole cluster matters.
    pub of_ghosts: BTreeMap<IpAddr, Phase>,
    /// Whether it matters that the pod list shows which pods are not there.
    pub proof: bool,
}

/// What has been found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events, ticks not counted.
    pub events: u64,
    /// Findings by rule and by the worst severity that each has had.
    pub findings: BTreeMap<Rule, BTreeMap<Severity, u64>>,
    /// Lost records by cause.
    pub lost: BTreeMap<String, u64>,
}

impl Summary {
    /// The worst there has been.
    pub fn worst(&self) -> Option<Severity> {
        let counts = self.findings.values().flatten();
        counts
            .filter(|(_, count)| **count > 0)
            .map(|(severity, _)| *severity)
            .max()
    }
}

impl Engine {
    /// An engine that knows nothing yet, and forgets nothing that it has room
    /// for.
    pub fn new(settings: Settings) -> Self {
        Self::with(settings, Model::default())
    }

    /// The same for a tracer, which may run for long.
    pub fn of_trace(settings: Settings) -> Self {
        Self {
            absence: ABSENCE,
            ..Self::with(settings, Model::forgetting())
        }
    }

    fn with(settings: Settings, model: Model) -> Self {
        Self {
            settings,
            model,
            open: BTreeMap::new(),
            ended: BTreeMap::new(),
            stale: true,
            next: None,
            pause: None,
            patience: Duration::ZERO,
            absence: Duration::ZERO,
            paths: None,
            ticked: None,
            watch: Watch::default(),
            gaps: Vec::new(),
            not_checked: vec![no_pod_list(&Model::default())],
            summary: Summary::default(),
        }
    }

    /// Takes an event in. At ticks, returns what is new, changed or over:
    /// worst first, what is over last.
    pub fn apply(&mut self, event: &Event) -> Vec<(Finding, State)> {
        if event.what != What::Tick {
            self.summary.events += 1;
            self.stale |= self.model.apply(event);
            return Vec::new();
        }
        let now = event.time;
        if self.ticked.replace(now).is_some_and(|last| now < last) {
            self.go_back(now);
        }
        let due = self.stale || self.next.is_some_and(|next| now >= next);
        if !due || self.pause.is_some_and(|pause| now < pause) {
            return Vec::new();
        }
        self.evaluate(now)
    }

    /// Failures that the next try may end are told after that time: where the
    /// end of the story is known, one that was mended is none.
    pub fn wait_for_tries(&mut self, patience: Duration) {
        self.stale |= self.patience != patience;
        self.patience = patience;
    }

    /// What the source is to look at while it matters, as of the last tick.
    pub fn watched(&self) -> &Watch {
        &self.watch
    }

    /// Addresses that the next tick may call a ghost's: their stores are to be
    /// asked before. As soon as a ghost is told, somebody may free its address,
    /// and a store that was never seen to have it does not tell that it is free.
    pub fn possible_ghosts(&self, now: Timestamp) -> BTreeSet<IpAddr> {
        if !self.stale {
            return BTreeSet::new();
        }
        let view = View::new(&self.model, &self.settings, now);
        ghosts::candidates(&view)
            .flat_map(|entry| own::addresses(&view, entry))
            .collect()
    }

    /// When the next tick is wanted although nothing happens: something timed
    /// is pending.
    pub fn pending(&self) -> Option<Timestamp> {
        let stale = self.pause.filter(|_| self.stale);
        let next = self
            .next
            .map(|next| self.pause.map_or(next, |pause| next.max(pause)));
        stale.into_iter().chain(next).min()
    }

    /// No tick before this is answered.
    pub fn not_before(&self) -> Option<Timestamp> {
        self.pause
    }

    /// Forgets findings that are not to be told, without a word.
    pub fn retain(&mut self, keep: impl Fn(&Finding) -> bool) {
        self.open.retain(|_, open| keep(&open.latest));
    }

    /// Findings that are not over, worst first.
    pub fn open(&self) -> Vec<&Finding> {
        let mut open: Vec<&Finding> = self.open.values().map(|open| &open.latest).collect();
        open.order_by_key(|finding| order(finding));
        open
    }

    /// The worst that each of them has been.
    pub fn worst_of_open(&self) -> impl Iterator<Item = (Rule, Severity)> {
        let open = self.open.values();
        open.map(|open| (open.latest.rule, open.worst))
    }

    /// How many incidents they are.
    pub fn incident_count(&self) -> usize {
        let open = self.open.values();
        let ids: BTreeSet<&str> = open.map(|open| open.latest.incident()).collect();
        ids.len()
    }

    /// How many there are.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// What the rules are told besides the model.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// All that is known of the node.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Rules that could not be applied, and why.
    pub fn gaps(&self) -> &[String] {
        &self.gaps
    }

    /// Those of ghost-sandbox and duplicate-address that a missing source has
    /// switched off, as of the last tick.
    pub fn not_checked(&self) -> &[NotChecked] {
        &self.not_checked
    }

    /// What has been found so far.
    pub fn summary(&self) -> Summary {
        Summary {
            lost: self.model.losses.by_cause.clone(),
            ..self.summary.clone()
        }
    }

    /// Time that goes back, as in the log of a node whose clock was set, makes
    /// nobody wait until it has caught up.
    fn go_back(&mut self, now: Timestamp) {
        self.stale = true;
        self.pause = None;
        self.paths = None;
        self.ended.clear();
        for open in self.open.values_mut() {
            open.told_at = open.told_at.min(now);
            open.found_at = open.found_at.min(now);
        }
    }

    fn evaluate(&mut self, now: Timestamp) -> Vec<(Finding, State)> {
        let view = View::new(&self.model, &self.settings, now).patient(self.patience);
        let paths = self.paths.take();
        let paths = paths.filter(|_| stale_path::has_many(&self.model));
        let view = match &paths {
            Some((at, judged)) => view.with_paths(judged.clone(), at.plus(stale_path::PAUSE)),
            None => view,
        };
        let mut findings = detect::detect(&view);
        incident::assign(&mut findings, |id| {
            self.open.get(id)?.latest.detail.incident.clone()
        });
        let reservations = self
            .model
            .cni
            .stores()
            .map(|it| it.store.reservations.len());
        let pause = findings.len() / FINDINGS_PER_MS
            + reservations.sum::<usize>() / RESERVATIONS_PER_MS
            + self.model.calls.len() / ATTACHMENTS_PER_MS
            + view.shared().len() / FINDINGS_PER_MS;
        let pause = pause.min(MAX_PAUSE_MS);
        let judged_at = paths.map_or(now, |(at, _)| match now < at.plus(stale_path::PAUSE) {
            true => at,
            false => now,
        });
        self.paths = Some((judged_at, view.paths().clone()));
        self.watch = watch(&view);
        let uncovered = ghost_sandbox::uncovered(&view);
        self.gaps = gaps(&view, &uncovered);
        self.not_checked = not_checked(&view, &uncovered);
        self.next = view.next();
        self.stale = false;
        self.pause = Some(now.plus(Duration::from_millis(pause as u64)));
        self.compare(findings, now)
    }

    /// Notes that a finding is not there any more.
    fn ends(&mut self, id: &str, now: Timestamp) {
        let (times, last) = self.ended.entry(id.to_owned()).or_insert((0, now));
        (*times, *last) = (*times + 1, now);
    }

    /// Whether a finding has ended so often of late that its next end says
    /// little.
    fn comes_and_goes(&self, id: &str, now: Timestamp) -> bool {
        let ended = self.ended.get(id);
        ended.is_some_and(|(times, last)| *times >= ENDS && now.since(*last) < QUIET)
    }

    /// Tells apart what is new, what has changed and what is over.
    fn compare(&mut self, findings: Vec<Finding>, now: Timestamp) -> Vec<(Finding, State)> {
        let mut told = Vec::new();
        let mut before = std::mem::take(&mut self.open);
        let of_users = before.values().filter(|open| is_of_users(&open.latest));
        let mut users = of_users.count();
        let mut left_out = 0;
        for finding in findings {
            if self.open.contains_key(&finding.id) {
                continue;
            }
            let is_restless = self.comes_and_goes(&finding.id, now);
            let counts = self.summary.findings.entry(finding.rule).or_default();
            let known = before.remove(&finding.id);
            let finding = match &known {
                Some(open) if finding.rule.spec().is_dated_by_looks => Finding {
                    since: finding.since.min(open.latest.since),
                    ..finding
                },
                _ => finding,
            };
            let finding = match is_restless {
                true => restless(finding),
                false => finding,
            };
            let Some(mut open) = known else {
                if is_of_users(&finding) {
                    if users >= MAX_USERS {
                        left_out += 1;
                        continue;
                    }
                    users += 1;
                }
                *counts.entry(finding.severity).or_default() += 1;
                told.push((finding.clone(), State::Open));
                let open = Open {
                    told: finding.clone(),
                    told_at: now,
                    updates: 0,
                    worst: finding.severity,
                    latest: finding,
                    found_at: now,
                    away: false,
                };
                self.open.insert(open.latest.id.clone(), open);
                continue;
            };
            if finding.severity > open.worst {
                *counts.entry(open.worst).or_default() -= 1;
                *counts.entry(finding.severity).or_default() += 1;
                open.worst = finding.severity;
            }
            let times = open.updates.saturating_sub(PROMPT).min(DOUBLED);
            let pause = UPDATES * 2_u32.pow(times);
            if now.since(open.told_at) > 2 * pause {
                open.updates = 0;
            }
            let again = open.told_at.plus(pause);
            let urgent = is_urgent(&open.told, &finding);
            if urgent || (now >= again && is_news(&open.told, &finding)) {
                told.push((finding.clone(), State::Updated));
                open.updates += u32::from(!urgent);
                open.told = finding.clone();
                open.told_at = now;
            } else if now < again && is_news(&open.told, &finding) {
                self.next = Some(self.next.map_or(again, |next| next.min(again)));
            }
            open.latest = finding;
            open.found_at = now;
            open.away = false;
            self.open.insert(open.latest.id.clone(), open);
        }
        if left_out > 0 {
            self.gaps.push(format!(
                "duplicate-address: {} with others' addresses in namespaces of their own: no more \
                 than {MAX_USERS} are told of at a time",
                wording::plural::counted(left_out, "more user")
            ));
        }
        before.retain(|id, open| {
            if !std::mem::replace(&mut open.away, true) {
                self.ends(id, now);
            }
            let over = open.found_at.plus(self.absence);
            let is_held = is_of_users(&open.latest) || self.comes_and_goes(id, now);
            let is_over = now >= over || !is_held;
            if !is_over {
                self.next = Some(self.next.map_or(over, |next| next.min(over)));
                self.open.insert(id.clone(), open.clone());
            }
            is_over
        });
        self.ended.retain(|_, (_, last)| now.since(*last) < QUIET);
        told.order_by_key(|(finding, _)| order(finding));
        let mut over: Vec<Finding> = before.into_values().map(|open| open.latest).collect();
        over.order_by_key(order);
        told.extend(over.into_iter().map(|finding| (finding, State::Resolved)));
        told
    }
}

/// What is not known of a finding that comes and goes.
const RESTLESS: &str = "whether it is so right now: it comes and goes, and is told as over when it \
                        has been away for a minute";

fn restless(mut finding: Finding) -> Finding {
    finding.unknown.push(RESTLESS.to_owned());
    finding
}

/// Worst first, then by rule, oldest first.
fn order(finding: &Finding) -> impl Ord + use<> {
    let Finding {
        rule,
        severity,
        since,
        id,
        ..
    } = finding;
    (std::cmp::Reverse(*severity), *rule, *since, id.clone())
}

/// Whether a user can make it come, change and go at will.
fn is_of_users(finding: &Finding) -> bool {
    !finding.detail.users.is_empty()
}

/// Whether a change is told at once.
fn is_urgent(old: &Finding, new: &Finding) -> bool {
    let detail = |finding: &Finding| (finding.detail.phase, finding.detail.effect);
    old.severity != new.severity || detail(old) != detail(new)
}

/// Whether a change is worth telling. That time has passed is not, nor that
/// something is not so any more without changing the verdict.
fn is_news(old: &Finding, new: &Finding) -> bool {
    let has_doubled = has_doubled(old.detail.address_count, new.detail.address_count);
    if is_of_users(new) {
        return is_urgent(old, new) || has_doubled;
    }
    let is_claimed = |new: &Evidence| {
        let mut claims = old.evidence.iter();
        claims.any(|old| (&old.claim, &old.source) == (&new.claim, &new.source))
    };
    is_urgent(old, new)
        || old.detail.lost != new.detail.lost
        || old.detail.due != new.detail.due
        || old.detail.cause != new.detail.cause
        || old.detail.earlier_cause != new.detail.earlier_cause
        || old.detail.attempts != new.detail.attempts
        || old.pod != new.pod
        || old.sandbox_id != new.sandbox_id
        || old.addresses != new.addresses
        || has_doubled
        || old.unknown != new.unknown
        || paths(old) != paths(new)
        || (old.holders != new.holders && identities(old) != identities(new))
        || !new.evidence.iter().all(is_claimed)
}

fn paths(finding: &Finding) -> Option<&[PathBuf]> {
    finding.netns.as_ref().map(|netns| netns.paths.as_slice())
}

fn has_doubled(old: Option<u64>, new: Option<u64>) -> bool {
    new.is_some_and(|new| new >= 2 * old.unwrap_or(1))
}

/// A holder without what changes by itself.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identity<'a> {
    /// Process, thread, and whether it is stuck.
    Task(u32, u32, bool),
    /// By its name, whatever process of a container has it.
    Mount(Cow<'a, Path>),
    Fd(u32, u32),
}

fn identities(finding: &Finding) -> BTreeSet<Identity<'_>> {
    let identity = |holder| match holder {
        &Holder::Task {
            pid, tid, since, ..
        } => Identity::Task(pid, tid, since.is_some()),
        Holder::Mount { path } => {
            Identity::Mount(event::mount::name(path).unwrap_or(Cow::Borrowed(path)))
        }
        &Holder::Fd { pid, fd, .. } | &Holder::Socket { pid, fd, .. } => Identity::Fd(pid, fd),
    };
    finding.holders.iter().map(identity).collect()
}

fn watch(view: &View<'_>) -> Watch {
    let mut watch = Watch::default();
    for entry in ghosts::candidates(view) {
        watch.netns.insert(entry.id);
        watch.addresses.extend(own::addresses(view, entry));
    }
    for shared in view.shared().values() {
        if shared.owners.len() > 1 {
            let guests = shared.owners.iter().filter(|owner| !owner.entry.host);
            watch.netns.extend(guests.map(|owner| owner.entry.id));
        }
    }
    let unplaced = conflicts::unplaced(view);
    watch.unplaced.extend(unplaced.map(|entry| entry.id));
    watch.unplaced.extend(&view.paths().unlooked);
    for netns in view
        .model
        .blocked
        .iter()
        .filter_map(|blocked| blocked.netns)
    {
        let entry = view.model.netns.get(netns).filter(|entry| !entry.host);
        watch.netns.extend(entry.map(|entry| entry.id));
    }
    watch.addresses.extend(detect::called_for(view));
    watch.of_ghosts = ghost_sandbox::addresses(view);
    watch.proof = ghost_sandbox::needs_proof(view);
    for (address, is_unreserved) in unreserved_address::addresses(view) {
        watch.living.insert(address);
        if is_unreserved && watch.addresses.len() < MAX_ASKED {
            watch.addresses.insert(address);
        }
    }
    watch
}

fn gaps(view: &View<'_>, uncovered: &Uncovered) -> Vec<String> {
    let list = view.model.pods.list();
    let mut gaps = Vec::new();
    let failure = view.model.pods_failure();
    match (list, failure) {
        (None, None) => gaps.push(String::from("ghost-sandbox: no pod list")),
        (None, Some(failure)) => {
            gaps.push(format!("ghost-sandbox: no pod list: {}", failure.error))
        }
        (Some(_), None) => {}
        (Some(_), Some(failure)) => gaps.push(format!(
            "ghost-sandbox: the pod list is old: {}",
            failure.error
        )),
    }
    gaps.extend(uncovered.gaps());
    if let Some(failure) = view.model.failure(OWNERS) {
        gaps.push(format!(
            "ghost-sandbox, duplicate-address: pods that only processes show: {}",
            failure.error
        ));
    }
    for entry in ghost_sandbox::undecided(view) {
        gaps.push(format!(
            "ghost-sandbox: {}: its pod is not in the API; whether its deletion is still under \
             way shows in 30 s (scan --duration 40s waits)",
            label(view.model, entry),
        ));
    }
    if let Some(why) = detect::blindness(view) {
        gaps.push(format!(
            "ghost-sandbox, duplicate-address: there may be more: {why}"
        ));
    }
    gaps.extend(detect::gaps(view));
    gaps
}

/// What says of each source why it does not answer.
const CHECK: &str = "node-tracer check";

/// A source that says nothing of a part of the node switches the rule off for
/// that part. What is only late or being deleted does not, nor does what anybody
/// but root can bring about by a name.
fn not_checked(view: &View<'_>, uncovered: &Uncovered) -> Vec<NotChecked> {
    let of = |rule, reason: String, fix: &str| NotChecked {
        rule,
        reason,
        fix: fix.to_owned(),
    };
    let model = view.model;
    let hidden = || detect::hidden(view);
    let ghosts = if model.pods.list().is_none() {
        Some(no_pod_list(model))
    } else if let Some(reason) = uncovered.off() {
        let fix = "--kubeconfig FILE, or --pods FILE (kubectl get pods -A -o json)";
        Some(of(Rule::GhostSandbox, reason, fix))
    } else if model.failure(OWNERS).is_some() {
        let reason = String::from("nothing tells which pods processes belong to");
        Some(of(Rule::GhostSandbox, reason, CHECK))
    } else {
        hidden().map(|reason| of(Rule::GhostSandbox, reason, CHECK))
    };
    let doubles = hidden().map(|reason| of(Rule::DuplicateAddress, reason, CHECK));
    ghosts.into_iter().chain(doubles).collect()
}

fn no_pod_list(model: &Model) -> NotChecked {
    let fix = match model.pods_failure() {
        Some(_) => "--kubeconfig FILE",
        None => "--pods auto, or --pods FILE",
    };
    NotChecked {
        rule: Rule::GhostSandbox,
        reason: String::from("no pod list"),
        fix: fix.to_owned(),
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod orders;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
