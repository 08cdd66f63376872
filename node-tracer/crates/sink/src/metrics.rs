//! The run in numbers, for Prometheus: counters and gauges that are kept as
//! records pass, in the OpenMetrics text format.
//!
//! | metric | labels | what |
//! |---|---|---|
//! | `node_tracer_findings` | `rule`, `severity` | findings that are open now |
//! | `node_tracer_findings_opened_total` | `rule` | findings that were opened |
//! | `node_tracer_ghost_sandboxes` | `phase` | open ghosts: `suspected`, `armed`, `conflict` |
//! | `node_tracer_events_total` | `event` | events by kind |
//! | `node_tracer_events_lost_total` | `cause` | records that were lost |
//! | `node_tracer_cni_calls_total` | `command`, `plugin`, `outcome` | trusted CNI calls that ended: `ok`, `error`, `signal` |
//! | `node_tracer_cni_call_duration_seconds` | `command` | how long these took, from exec to exit |
//! | `node_tracer_blocked_tasks` | | tasks that sleep uninterruptibly past the threshold |
//! | `node_tracer_signal_info` | `signal`, `mechanism` | how each signal is seen; `none` for one that is not |
//! | `node_tracer_kube_events_total` | `outcome` | with `--kube-events`: what became of Events of Kubernetes: `created`, `updated`; `forbidden`, `namespace-gone`, `refused`, `expired`, `dropped` |
//! | `node_tracer_open_finding_info` | `rule`, `phase`, `address`, `namespace`, `pod`, `id` | with `--metrics-findings`: 1 for each open finding, for the worst [`open_findings::MAX_FINDINGS`] |
//! | `node_tracer_open_findings_left_out` | | with `--metrics-findings`: open findings beyond these |
//! | `node_tracer_build_info` | `version` | 1 |
//! | `process_resident_memory_bytes`, `process_cpu_seconds_total`, `process_start_time_seconds` | | the tracer's own, as is customary |
//!
//! Label sets are bounded: no pod, container, address or process is in them, but
//! with `--metrics-findings`. A plugin's name is whatever a runtime calls: after [`MAX_PLUGINS`] of them,
//! and for one of unusual characters, it is `other`.

mod open_findings;
mod own;
pub mod server;

use self::open_findings::OpenFindings;

use event::{
    CniCall, CniCommand, Task, What,
    finding::{Finding, Phase, Rule, Severity, State},
    record::{Body, CoverageItem, Record},
};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
        info::Info,
    },
    registry::{Metric, Registry, Unit},
};

/// Plugins that are counted by name.
const MAX_PLUGINS: usize = 32;
/// Causes of loss, signals and sources that are.
const MAX_NAMES: usize = 64;
/// What the others are counted under.
const OTHER: &str = "other";
/// Seconds: from a plugin that only looks something up to a runtime's patience.
const BUCKETS: [f64; 12] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0,
];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfFinding {
    rule: &'static str,
    severity: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfRule {
    rule: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfPhase {
    phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfEvent {
    event: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfCause {
    cause: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfCall {
    command: String,
    plugin: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfCommand {
    command: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfSignal {
    signal: String,
    mechanism: String,
}

/// Makes histograms of [`BUCKETS`].
#[derive(Clone)]
struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

/// What is shown, shared by the sink and the server.
#[derive(Clone, Debug)]
pub struct Shelf(Arc<Mutex<Registry>>);

impl Shelf {
    /// All of it as OpenMetrics text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing into a String does not fail.
        let _ = text::encode(&mut out, &registry);
        out
    }
}

/// Counts records as they pass.
pub struct Metrics {
    shelf: Shelf,
    findings: Family<OfFinding, Gauge>,
    opened: Family<OfRule, Counter>,
    ghosts: Family<OfPhase, Gauge>,
    events: Family<OfEvent, Counter>,
    lost: Family<OfCause, Counter>,
    calls: Family<OfCall, Counter>,
    durations: Family<OfCommand, Histogram, Buckets>,
    blocked: Gauge,
    signals: Family<OfSignal, Gauge>,
    /// Findings that are open: what they were counted as.
    open: HashMap<String, (Rule, Severity, Option<Phase>)>,
    /// Tasks that sleep, by thread ID and start.
    asleep: HashSet<(u32, Option<u64>)>,
    /// How many more there are of each crowd.
    crowds: HashMap<u32, u64>,
    plugins: BTreeSet<String>,
    causes: BTreeSet<String>,
    /// Where each open finding is shown.
    each: Option<OpenFindings>,
}

impl Metrics {
    pub fn new() -> Self {
        let this = Self {
            shelf: Shelf(Arc::new(Mutex::new(Registry::default()))),
            findings: Family::default(),
            opened: Family::default(),
            ghosts: Family::default(),
            events: Family::default(),
            lost: Family::default(),
            calls: Family::default(),
            durations: Family::new_with_constructor(Buckets),
            blocked: Gauge::default(),
            signals: Family::default(),
            open: HashMap::new(),
            asleep: HashSet::new(),
            crowds: HashMap::new(),
            plugins: BTreeSet::new(),
            causes: BTreeSet::new(),
            each: None,
        };
        this.register();
        this
    }

    /// What a server shows.
    pub fn shelf(&self) -> Shelf {
        self.shelf.clone()
    }

    fn register(&self) {
        let mut registry = self.shelf.0.lock().unwrap_or_else(PoisonError::into_inner);
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        registry.register("node_tracer_build", "What runs", Info::new(version));
        registry.register_collector(Box::new(own::Process::new()));
        let ours = registry.sub_registry_with_prefix("node_tracer");
        ours.register("findings", "Findings that are open", self.findings.clone());
        ours.register(
            "findings_opened",
            "Findings that were opened",
            self.opened.clone(),
        );
        ours.register(
            "ghost_sandboxes",
            "Sandboxes whose network namespace outlives their pod, by phase",
            self.ghosts.clone(),
        );
        ours.register("events", "Events", self.events.clone());
        ours.register("events_lost", "Records that were lost", self.lost.clone());
        ours.register(
            "cni_calls",
            "CNI plugins that a runtime called and that have ended",
            self.calls.clone(),
        );
        ours.register_with_unit(
            "cni_call_duration",
            "How long they took, from exec to exit",
            Unit::Seconds,
            self.durations.clone(),
        );
        ours.register(
            "blocked_tasks",
            "Tasks in uninterruptible sleep for longer than the threshold",
            self.blocked.clone(),
        );
        ours.register(
            "signal_info",
            "How each signal and source is seen; 0 for one that is not",
            self.signals.clone(),
        );
        // Series that alerts are written on are there before anything happens.
        for phase in [Phase::Suspected, Phase::Armed, Phase::Conflict] {
            let phase = phase.as_str();
            self.ghosts.get_or_create(&OfPhase { phase }).set(0);
        }
    }

    /// Shows what becomes of Events of Kubernetes as well.
    pub fn show_kube_events(&self, counts: impl Metric) {
        let mut registry = self.shelf.0.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register(
            "node_tracer_kube_events",
            "Events of Kubernetes, by what became of them",
            counts,
        );
    }

    /// Shows what the API server is asked as well.
    pub fn show_api(&self, requests: impl Metric, bytes: impl Metric) {
        let mut registry = self.shelf.0.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register(
            "node_tracer_api_requests",
            "Requests to the API server; a watch is one",
            requests,
        );
        registry.register_with_unit(
            "node_tracer_api_received",
            "What the API server has answered",
            Unit::Bytes,
            bytes,
        );
    }

    /// Shows each open finding as well, with its pod and its address.
    pub fn show_findings(&mut self) {
        let each = OpenFindings::default();
        let mut registry = self.shelf.0.lock().unwrap_or_else(PoisonError::into_inner);
        each.register(&mut registry);
        drop(registry);
        self.each = Some(each);
    }

    pub fn count(&mut self, record: &Record<'_>) {
        match record.body {
            Body::Event(event) if event.what == What::Tick => {}
            Body::Event(event) => self.event(&event.what),
            Body::Finding { finding, state } => self.finding(finding, state),
            Body::Coverage(items) => self.coverage(items),
            Body::Explanation(_)
            | Body::Eni(_)
            | Body::Summary(_)
            | Body::Plan { .. }
            | Body::Repair(_)
            | Body::RepairSummary(_) => {}
        }
    }

    fn finding(&mut self, finding: &Finding, state: State) {
        if let Some(each) = &mut self.each {
            each.take(finding, state);
        }
        if let Some((rule, severity, phase)) = self.open.remove(&finding.id) {
            self.open_by(rule, severity, phase, -1);
        } else if state != State::Resolved {
            let rule = finding.rule.as_str();
            self.opened.get_or_create(&OfRule { rule }).inc();
        }
        if state != State::Resolved {
            let now = (finding.rule, finding.severity, finding.detail.phase);
            self.open_by(now.0, now.1, now.2, 1);
            self.open.insert(finding.id.clone(), now);
        }
    }

    fn open_by(&self, rule: Rule, severity: Severity, phase: Option<Phase>, by: i64) {
        let label = OfFinding {
            rule: rule.as_str(),
            severity: severity.as_str(),
        };
        self.findings.get_or_create(&label).inc_by(by);
        if let Some(phase) = phase {
            let phase = phase.as_str();
            self.ghosts.get_or_create(&OfPhase { phase }).inc_by(by);
        }
    }

    fn event(&mut self, what: &What) {
        let event = what.name();
        self.events.get_or_create(&OfEvent { event }).inc();
        match what {
            What::CniCall {
                call,
                exit_code,
                signal,
                duration_ms,
                ..
            } if call.trusted => {
                let outcome = match (exit_code, signal) {
                    (_, Some(_)) => "signal",
                    (Some(0), None) => "ok",
                    _ => "error",
                };
                self.call(call, outcome, *duration_ms);
            }
            What::TaskBlocked { task, .. } => self.sleeps(task, true),
            What::TaskUnblocked { task, .. } => self.sleeps(task, false),
            What::TasksBlocked { crowd, count, .. } => {
                match count {
                    0 => drop(self.crowds.remove(crowd)),
                    _ => drop(self.crowds.insert(*crowd, *count)),
                }
                self.show_blocked();
            }
            What::EventsLost { cause, count } => {
                let cause = bounded(&mut self.causes, cause, MAX_NAMES);
                self.lost.get_or_create(&OfCause { cause }).inc_by(*count);
            }
            _ => {}
        }
    }

    fn call(&mut self, call: &CniCall, outcome: &'static str, duration_ms: f64) {
        let command = command_label(&call.command);
        let plugin = bounded(&mut self.plugins, &call.plugin, MAX_PLUGINS);
        let label = OfCall {
            command: command.clone(),
            plugin,
            outcome,
        };
        self.calls.get_or_create(&label).inc();
        let duration = self.durations.get_or_create(&OfCommand { command });
        duration.observe(duration_ms / 1_000.0);
    }

    fn sleeps(&mut self, task: &Task, asleep: bool) {
        let key = (task.tid, task.start_ticks);
        match asleep {
            true => self.asleep.insert(key),
            false => self.asleep.remove(&key),
        };
        self.show_blocked();
    }

    fn show_blocked(&self) {
        let counted: u64 = self.crowds.values().sum();
        let count = i64::try_from(self.asleep.len() as u64 + counted);
        self.blocked.set(count.unwrap_or(i64::MAX));
    }

    fn coverage(&self, items: &[CoverageItem]) {
        for item in items.iter().take(MAX_NAMES) {
            // Paths and endpoints are no label: the kind of mechanism is.
            let word = item.mechanism.as_deref().unwrap_or("none");
            let word = word.split([' ', ',', ';']).next().unwrap_or_default();
            let label = OfSignal {
                signal: plain(&item.signal).to_owned(),
                mechanism: plain(word).to_owned(),
            };
            let seen = i64::from(item.mechanism.is_some());
            self.signals.get_or_create(&label).set(seen);
        }
    }
}

/// The specification's commands; anything else is `other`.
fn command_label(command: &CniCommand) -> String {
    match command {
        CniCommand::Other(_) => OTHER.to_owned(),
        known => known.to_string(),
    }
}

/// A name, if it is one of so many.
fn bounded(known: &mut BTreeSet<String>, name: &str, most: usize) -> String {
    let name = plain(name);
    if known.contains(name) {
        return name.to_owned();
    }
    if name == OTHER || known.len() >= most {
        return OTHER.to_owned();
    }
    known.insert(name.to_owned());
    name.to_owned()
}

/// A name that needs no escaping anywhere.
fn plain(name: &str) -> &str {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let good = !name.is_empty() && name.len() <= 64 && name.chars().all(is_plain);
    if good { name } else { OTHER }
}

#[cfg(test)]
mod shipped;
#[cfg(test)]
mod tests;
