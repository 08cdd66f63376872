//! Events on their way out: through the engine, into sinks and recording.
//!
//! Nobody who reads is waited for while the stream runs: sinks put into queues
//! ([`Outlet`]), and at the end they have a moment to empty them.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use super::status::StatusLine;
use crate::{
    config::{Config, Node},
    output::{self, Patient},
    recording::{self, Marker, Opened, Recorder, RecordingError},
};
use engine::{Engine, Settings, Watch, summary};
use event::{
    Event, What,
    clock::Timestamp,
    fault,
    record::{Body, CoverageItem, Record, Summary},
};
use kube::{condition::NodeCondition, events::KubeEvents};
use sink::{Outlet, Sink, SinkError, Weight, metrics::Metrics};
use sys::{clock as sysclock, privileges::Starter, share::Share};

/// Rules are applied at most this often, and at least once a second.
const TICK: Duration = Duration::from_millis(10);
const SLOW_TICK: Duration = Duration::from_secs(1);
/// They take at most one part in so many of the time, and after a rest so many ns
/// at once.
const TICK_SHARE: u64 = 200;
const TICK_BURST: u64 = 10_000_000;
/// But are put off by no more, ns.
const MAX_PAUSE: u64 = 500_000_000;
/// How long the end waits for a reader that takes nothing, and for one that
/// does; twice, the second time for the summary.
const PATIENCE: Duration = Duration::from_secs(1);
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long it waits for the recording's disk.
const DISK: Duration = Duration::from_secs(2);
/// How often a part of the recording is told at most what stood in the one
/// before: with a small limit that alone may fill a part.
const RETOLD: Duration = Duration::from_secs(60);

pub(super) struct Out<'a> {
    node: &'a Node,
    engine: Engine,
    sinks: Vec<Patient>,
    /// Their queues, each once.
    outlets: Vec<Outlet>,
    /// Counts what goes to the sinks; it keeps nobody waiting, and nobody
    /// waits for it.
    metrics: Option<Metrics>,
    /// Findings go there, too; it keeps nobody waiting either.
    kube_events: Option<KubeEvents>,
    /// So does what is open now.
    condition: Option<NodeCondition>,
    /// Whether all rules of the condition could be evaluated, as it was told last.
    checked: Option<bool>,
    recorder: Option<Recorder>,
    /// A part of the recording has begun and lacks what was told before.
    begun: bool,
    /// When one was last told that.
    retold: Option<Instant>,
    started: Instant,
    last_tick: Instant,
    ticks: Share,
    dirty: bool,
    /// To be told with the next tick.
    lost: Vec<(&'static str, u64)>,
    status: Option<StatusLine>,
}

impl<'a> Out<'a> {
    pub(super) fn new(config: &'a Config, starter: &Starter) -> anyhow::Result<Self> {
        let sinks = output::patient_sinks(config)?;
        let mut outlets: Vec<Outlet> = Vec::new();
        for sink in &sinks {
            if !outlets.iter().any(|known| known.is(&sink.outlet)) {
                outlets.push(sink.outlet.clone());
            }
        }
        let recorder = config.record.clone().map(|path| {
            let opened = match Recorder::open(&path) {
                // The folder is closed to who has given up root's rights.
                Err(error) if error.is_denied() => starter.run(move || Opened::new(&path))?,
                opened => opened,
            };
            anyhow::Ok(Recorder::start(
                opened?,
                config.record_limit,
                recording::Command::Trace,
                &config.node,
                config.stall_threshold,
            )?)
        });
        Ok(Self {
            node: &config.node,
            engine: Engine::of_trace(Settings {
                boot_id: config.node.boot_id.clone(),
                node: config.node.name.clone(),
                node_is_named: config.node.is_named,
                stall_threshold: config.stall_threshold,
                surveyed: false,
            }),
            sinks,
            outlets,
            metrics: None,
            kube_events: None,
            condition: None,
            checked: None,
            recorder: recorder.transpose()?,
            begun: false,
            retold: None,
            started: Instant::now(),
            last_tick: Instant::now(),
            ticks: Share::new(TICK_SHARE, TICK_BURST, MAX_PAUSE),
            dirty: false,
            lost: Vec::new(),
            status: None,
        })
    }

    /// Counts what is written as well.
    pub(super) fn count_in(&mut self, metrics: Metrics) {
        self.metrics = Some(metrics);
    }

    /// Tells Kubernetes of findings as well.
    pub(super) fn tell_kubernetes(&mut self, events: KubeEvents) {
        self.kube_events = Some(events);
    }

    /// Keeps a condition of the node as well.
    pub(super) fn keep_condition(&mut self, condition: NodeCondition) {
        self.condition = Some(condition);
    }

    pub(super) fn coverage(&mut self, items: &[CoverageItem]) {
        let signals = items.to_vec();
        self.record(|recorder| recorder.note(&Marker::Coverage { signals }));
        let node = self.node.name.clone();
        self.write(&Record::coverage(&node, sysclock::now(), items));
    }

    /// Whether what was told before is to be told again: another part of the
    /// recording has begun, which is to be understood without the one before.
    pub(super) fn begins_anew(&mut self) -> bool {
        self.begun |= self.recorder.as_ref().is_some_and(Recorder::take_begun);
        let rests = self.retold.is_some_and(|at| at.elapsed() < RETOLD);
        if !self.begun || rests {
            return false;
        }
        self.begun = false;
        self.retold = Some(Instant::now());
        true
    }

    pub(super) fn take(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.dirty = true;
            self.one(&event);
        }
    }

    /// When rules should be applied next.
    pub(super) fn until_tick(&self) -> Duration {
        let earned = self.ticks.not_before();
        let earned = Duration::from_nanos(earned.saturating_sub(sysclock::monotonic_now()));
        // Never more often, whatever is pending.
        let soonest = (self.last_tick + TICK).saturating_duration_since(Instant::now());
        let soonest = soonest.max(earned);
        let regular = match self.dirty {
            true => soonest,
            false => (self.last_tick + SLOW_TICK).saturating_duration_since(Instant::now()),
        };
        let now = sysclock::now();
        let pending = self
            .engine
            .pending()
            .map(|time| time.since(now).max(soonest));
        pending.map_or(regular, |pending| regular.min(pending))
    }

    pub(super) fn tick(&mut self) {
        self.last_tick = Instant::now();
        let start = sysclock::monotonic_now();
        self.dirty = false;
        self.tell_step();
        self.tell_lost();
        self.one(&Event {
            time: sysclock::now(),
            what: What::Tick,
        });
        self.record(Recorder::flush);
        if let Some(status) = &self.status {
            status.set(&self.engine);
        }
        self.ticks.spend(start, sysclock::monotonic_now());
    }

    /// Has the rules applied to everything that was taken, and not passed over
    /// because they have been applied just now.
    pub(super) fn last_tick(&mut self) {
        if let Some(soonest) = self.engine.not_before() {
            thread::sleep(soonest.since(sysclock::now()));
        }
        self.tick();
    }

    /// Keeps a line at the bottom of the terminal that says how things stand.
    pub(super) fn show_status(&mut self) {
        self.status = StatusLine::show();
    }

    /// Tells that the wall clock was set.
    fn tell_step(&mut self) {
        if let Some(sysclock::Step { by_ms, suspended }) = sysclock::step() {
            self.one(&Event {
                time: sysclock::now(),
                what: What::ClockStepped { by_ms, suspended },
            });
        }
    }

    fn one(&mut self, event: &Event) {
        self.record(|recorder| recorder.write(event));
        let node = self.node;
        if !event.what.is_internal() {
            self.write(&Record::event(&node.name, event));
        }
        let findings = self.engine.apply(event);
        for (finding, state) in &findings {
            self.write(&Record::finding(&node.name, event.time, finding, *state));
        }
        if !findings.is_empty() {
            self.each_sink(Weight::Finding, |sink| sink.flush());
        }
        if let Some(condition) = &self.condition
            && event.what == What::Tick
        {
            let checked = Some(self.engine.not_checked().is_empty());
            if self.checked != checked || !findings.is_empty() {
                self.checked = checked;
                condition.follow(&self.engine.open(), checked == Some(true));
            }
        }
    }

    fn write(&mut self, record: &Record<'_>) {
        if let Some(metrics) = &mut self.metrics {
            metrics.count(record);
        }
        if let (Some(events), Body::Finding { finding, state }) = (&self.kube_events, &record.body)
        {
            events.tell(record.time, finding, *state);
        }
        let weight = match record.body {
            Body::Event(_) => Weight::Event,
            _ => Weight::Finding,
        };
        self.each_sink(weight, |sink| sink.write(record).map(drop));
    }

    fn each_sink(&mut self, weight: Weight, put: impl Fn(&mut dyn Sink) -> Result<(), SinkError>) {
        for to in &mut self.sinks {
            to.outlet.next_are(weight);
            match put(to.sink.as_mut()) {
                // What there is no room or no reader for, the queue has counted.
                Ok(()) | Err(SinkError::Slow | SinkError::Closed) => {}
                Err(error) => {
                    tracing::warn!("{}", fault::chain(&error));
                    self.lost.push(("output-failed", 1));
                }
            }
        }
    }

    /// Whether there is nobody left to write to.
    pub(super) fn is_closed(&self) -> bool {
        self.recorder.is_none() && self.outlets.iter().all(Outlet::is_closed)
    }

    /// What is to be looked at again and again.
    pub(super) fn watched(&self) -> &Watch {
        self.engine.watched()
    }

    /// Addresses whose stores are to be asked before the next tick.
    pub(super) fn possible_ghosts(&self) -> BTreeSet<IpAddr> {
        self.engine.possible_ghosts(sysclock::now())
    }

    /// Writes to the recording; one that cannot be written is given up, and
    /// that is told.
    fn record(&mut self, write: impl FnOnce(&mut Recorder) -> Result<(), RecordingError>) {
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = write(recorder)
        {
            tracing::warn!("{}; it ends here", fault::chain(&error));
            self.recorder = None;
            self.lost.push(("recording-failed", 1));
        }
    }

    /// Records that an output did not take, or the recording's disk, once it
    /// takes some again.
    fn tell_lost(&mut self) {
        let unrecorded = self.recorder.as_ref().map_or(0, Recorder::take_lost);
        self.lost.push(("recording-slow", unrecorded));
        let is_full = self.recorder.as_ref().is_some_and(Recorder::take_full);
        self.lost.push(("recording-failed", is_full.into()));
        for outlet in &self.outlets {
            let lost = outlet.take_lost();
            self.lost.push(("output-slow", lost.slow));
            self.lost.push(("output-failed", lost.failed));
            self.lost.push(("output-closed", lost.closed));
            if lost.closed > 0 {
                tracing::warn!(
                    "the reader of {} is gone; what would come there is counted as lost",
                    outlet.name()
                );
            }
        }
        for (cause, count) in std::mem::take(&mut self.lost) {
            if count > 0 {
                let what = What::EventsLost {
                    cause: cause.to_owned(),
                    count,
                };
                self.one(&Event {
                    time: sysclock::now(),
                    what,
                });
            }
        }
    }

    /// How things stand, in one line.
    pub(super) fn status(&self) -> String {
        summary::status(&self.engine)
    }

    /// The run in numbers.
    fn summary(&self) -> Summary {
        let mut summary = summary::of_stream(&self.engine, self.started.elapsed());
        // What no tick has told: an output that never took anything again.
        for outlet in &self.outlets {
            let untold = outlet.untold();
            for (cause, count) in [
                ("output-slow", untold.slow),
                ("output-failed", untold.failed),
                ("output-closed", untold.closed),
            ] {
                if count > 0 {
                    *summary.events_lost.entry(cause.to_owned()).or_default() += count;
                }
            }
        }
        summary
    }

    /// Ends the recording. Returns how many lines did not get there.
    fn end_recording(&mut self, time: Timestamp) -> u64 {
        self.record(|recorder| recorder.note(&Marker::Ended { time }));
        let mut left = 0;
        self.record(|recorder| {
            left = recorder.end(DISK)?;
            if left > 0 {
                let path = recorder.path().display();
                tracing::warn!("{left} lines did not get to the recording {path}: its disk hangs");
            }
            Ok(())
        });
        left
    }

    /// Ends in bounded time, whoever does not read.
    pub(super) fn finish(mut self) {
        self.status = None;
        // It is removed while others are waited for.
        let condition = self.condition.take().map(NodeCondition::stop);
        drain(&self.outlets);
        if let Some(events) = self.kube_events.take() {
            events.finish();
        }
        if let Some(condition) = condition {
            condition.finish();
        }
        let now = sysclock::now();
        let unrecorded = self.end_recording(now);
        self.lost.push(("recording-slow", unrecorded));
        let mut summary = self.summary();
        for (cause, count) in std::mem::take(&mut self.lost) {
            if count > 0 {
                *summary.events_lost.entry(cause.to_owned()).or_default() += count;
            }
        }
        self.write(&Record::summary(&self.node.name, now, &summary));
        let before: Vec<u64> = self.outlets.iter().map(unwritten).collect();
        drain(&self.outlets);
        for (outlet, before) in self.outlets.iter().zip(before) {
            let (slow, all) = (outlet.untold().slow, unwritten(outlet));
            if all > before || slow > 0 {
                tracing::warn!(
                    "{all} records, the summary {}among them, did not get to {}",
                    if all > before { "" } else { "not " },
                    outlet.name()
                );
            }
        }
    }
}

fn unwritten(outlet: &Outlet) -> u64 {
    let lost = outlet.untold();
    lost.slow + lost.failed
}

/// All at the same time: one that is not read takes nothing from the others.
fn drain(outlets: &[Outlet]) {
    thread::scope(|scope| {
        for outlet in outlets {
            let drain = || outlet.drain(PATIENCE, LAST_WORDS);
            let own = thread::Builder::new().spawn_scoped(scope, drain);
            if own.is_err() {
                // Without a thread of its own, one after the other.
                drain();
            }
        }
    });
}
