//! Findings as Events of Kubernetes (`events.k8s.io/v1`), for who asks
//! `kubectl describe` why a pod does not start and has no way onto the node.
//!
//! Each finding of the severity that was asked for has an Event on the node,
//! and one on its pod if it has one. A finding that becomes worse (`suspected`,
//! `armed`, `conflict`, or another severity) has another one, so that what
//! happened stands there in its order and with its times, and one for its end;
//! everything else that happens to it is counted in the Event's series. Names
//! are made of the finding's ID and the node's name: a tracer that is started
//! again goes on where it was.
//!
//! | module | what |
//! |---|---|
//! | [`changes`] | what was told and is not taken in yet |
//! | [`object`] | what an Event says |
//! | [`ledger`] | what is to be written, and when: no I/O, no clock |
//! | [`worker`] | writes it, on a thread of its own |
//!
//! A trace never waits for it. What there is no room for, what the API server
//! does not take, and what it has not taken in ten minutes is given up and
//! counted; each kind of failure is told in one line, and in another one after
//! the API server was away. Nothing but pods' names and what the finding itself
//! says gets there.

mod changes;
mod ledger;
mod object;
mod worker;

use std::{
    io,
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};

pub(crate) use self::object::{is_name, reason};
use self::{changes::Sender, ledger::Ledger, object::EventChange, worker::Worker};
use event::{
    clock::Timestamp,
    finding::{Finding, Severity, State},
};
use sys::privileges::start_bare;
use {
    crate as kube,
    crate::{Credentials, Objects, Writer},
};

/// How long the end waits for what is not written yet.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Events of the API, as they are written.
pub const EVENTS: Objects = Objects {
    api: "/apis/events.k8s.io/v1",
    plural: "events",
    name: "events.events.k8s.io",
    verbs: "create and patch",
};

/// What became of an Event that was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    Created,
    /// It is counted once more.
    Updated,
    /// The credentials do not allow it.
    Forbidden,
    NamespaceGone,
    /// The API server takes it for none.
    Refused,
    /// It was not taken for so long that it was given up, or put off.
    Expired,
    /// There was no room for it.
    Dropped,
}

impl Outcome {
    /// Those that are none.
    const FAILURES: [Self; 5] = [
        Self::Forbidden,
        Self::NamespaceGone,
        Self::Refused,
        Self::Expired,
        Self::Dropped,
    ];

    /// As metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Forbidden => "forbidden",
            Self::NamespaceGone => "namespace-gone",
            Self::Refused => "refused",
            Self::Expired => "expired",
            Self::Dropped => "dropped",
        }
    }
}

/// The label of [`Counts`].
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OfOutcome {
    outcome: &'static str,
}

/// Events by what became of them; clones count the same.
#[derive(Clone, Debug, Default)]
pub struct Counts(Family<OfOutcome, Counter>);

impl Counts {
    /// All outcomes, none counted yet: alerts are written on series that are
    /// there.
    pub fn new() -> Self {
        let this = Self::default();
        for outcome in [Outcome::Created, Outcome::Updated] {
            this.of(outcome);
        }
        for outcome in Outcome::FAILURES {
            this.of(outcome);
        }
        this
    }

    pub fn family(&self) -> Family<OfOutcome, Counter> {
        self.0.clone()
    }

    fn add(&self, outcome: Outcome) {
        let outcome = outcome.as_str();
        self.0.get_or_create(&OfOutcome { outcome }).inc();
    }

    fn of(&self, outcome: Outcome) -> u64 {
        let outcome = outcome.as_str();
        self.0.get_or_create(&OfOutcome { outcome }).get()
    }
}

/// The trace's end of it.
pub struct KubeEvents {
    floor: Severity,
    told: Sender,
    counts: Counts,
    /// Says that all is written.
    done: Receiver<()>,
}

impl KubeEvents {
    /// Starts the thread that writes; `node` is the name as configured, see
    /// [`Credentials::node`]. It first asks whether it may.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start(credentials: Credentials, node: &str, floor: Severity) -> io::Result<Self> {
        let node = credentials.node(node);
        let (told, listener) = changes::pair();
        let (finished, done) = mpsc::sync_channel(1);
        let counts = Counts::new();
        let worker = Worker::new(
            Ledger::new(&node),
            Writer::new(credentials, EVENTS),
            counts.clone(),
        );
        let work = move || {
            // Without an event loop nothing is written, and no one waits.
            if let Err(error) = kube::on_this_thread(worker.run(listener)) {
                tracing::warn!("Kubernetes Events: {error}");
            }
            let _ = finished.send(());
        };
        start_bare("kube-events", work)?;
        Ok(Self {
            floor,
            told,
            counts,
            done,
        })
    }

    /// What became of them, for metrics.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Has a change of a finding written; never waits.
    pub fn tell(&self, time: Timestamp, finding: &Finding, state: State) {
        let mild = state != State::Resolved && finding.severity < self.floor;
        // That a finding is milder or over is for those that were told of it.
        if (mild || state == State::Resolved) && !self.told.follows(&finding.id) {
            return;
        }
        let mut told = EventChange::of(time, finding, state);
        if mild {
            told = told.into_mild();
        }
        if !self.told.tell(told) {
            self.counts.add(Outcome::Dropped);
        }
    }

    /// Waits a moment until all is written, and tells what was not.
    pub fn finish(self) {
        let Self {
            told, counts, done, ..
        } = self;
        drop(told);
        let in_time = done.recv_timeout(LAST_WORDS).is_ok();
        let failures: Vec<String> = Outcome::FAILURES
            .into_iter()
            .map(|outcome| (counts.of(outcome), outcome.as_str()))
            .filter(|(count, _)| *count > 0)
            .map(|(count, outcome)| format!("{count} {outcome}"))
            .collect();
        let written = counts.of(Outcome::Created) + counts.of(Outcome::Updated);
        if !failures.is_empty() {
            tracing::warn!(
                "Kubernetes Events: written {written} times, not written: {}",
                failures.join(", ")
            );
        }
        if !in_time {
            tracing::warn!("Kubernetes Events: the API server is slow; the last are not written");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
