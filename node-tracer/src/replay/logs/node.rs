//! One host of a story: its engine, and when its rules are asked.

use std::time::Duration;

use super::log::Log;
use engine::{Engine, Settings};
use event::{
    Event, What,
    clock::Timestamp,
    finding::{Finding, Severity, State},
};
use logs::meaning::Meaning;

/// Rules are asked once in this time, and when they want to be.
const EVERY: Duration = Duration::from_secs(1);
/// What findings are named by where no log says of which boot it is.
const BOOT: &str = "log";
/// The kubelet tries again within this time, as a rule.
const NEXT_TRY: Duration = Duration::from_secs(60);
/// As `trace` and `scan` have it.
const STALL: Duration = Duration::from_secs(5);

pub(super) struct Node {
    pub(super) name: String,
    pub(super) meaning: Meaning,
    /// Something was told of it.
    pub(super) told: bool,
    /// It begins with the first event.
    engine: Option<Engine>,
    /// The time of the last event.
    last: Option<Timestamp>,
    /// When the rules were last asked.
    ticked: Option<Timestamp>,
    /// Something has happened since.
    changed: bool,
}

impl Node {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            meaning: Meaning::default(),
            told: false,
            engine: None,
            last: None,
            ticked: None,
            changed: false,
        }
    }

    /// Takes in what happened.
    pub(super) fn take(&mut self, event: &Event, logs: &[Log]) {
        let engine = self.engine.get_or_insert_with(|| {
            let boot = match logs {
                // Of several, one may be of another.
                [log] => log.boot_id(),
                _ => None,
            };
            let mut engine = Engine::new(Settings {
                boot_id: boot.unwrap_or(BOOT).to_owned(),
                node: self.name.clone(),
                node_is_named: false,
                stall_threshold: STALL,
                surveyed: false,
            });
            engine.wait_for_tries(NEXT_TRY);
            engine
        });
        engine.apply(event);
        self.last = self.last.max(Some(event.time));
        self.changed = true;
    }

    /// When the rules are to be asked next, if that is before `to`.
    pub(super) fn due(&self, to: Timestamp, pace: &mut Pace) -> Option<Timestamp> {
        let engine = self.engine.as_ref()?;
        let last = self.last.filter(|last| *last < to)?;
        if self.changed {
            let rested = self.ticked.is_none_or(|at| to.since(at) >= EVERY);
            return (rested && pace.may(engine)).then(|| self.not_before(engine, last));
        }
        let pending = engine.pending().filter(|due| *due < to)?;
        let due = pending.max(self.ticked.unwrap_or(pending));
        pace.may(engine).then_some(due)
    }

    /// When they are to be asked for the last time: no try will come any more.
    pub(super) fn last_due(&mut self) -> Option<Timestamp> {
        self.engine.as_mut()?.wait_for_tries(Duration::ZERO);
        let engine = self.engine.as_ref()?;
        Some(self.not_before(engine, self.last?))
    }

    fn not_before(&self, engine: &Engine, at: Timestamp) -> Timestamp {
        let at = engine.not_before().map_or(at, |pause| pause.max(at));
        self.ticked.map_or(at, |ticked| ticked.max(at))
    }

    pub(super) fn tick(&mut self, at: Timestamp) -> Vec<(Finding, State)> {
        self.ticked = Some(at);
        self.changed = false;
        let what = What::Tick;
        let engine = self.engine.as_mut();
        let told = engine.map(|engine| engine.apply(&Event { time: at, what }));
        told.unwrap_or_default()
    }

    pub(super) fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// The worst that was found.
    pub(super) fn worst(&self) -> Option<Severity> {
        self.engine.as_ref()?.summary().worst()
    }
}

/// How often rules are asked: a log of gigabytes is told in seconds, so
/// asking must not take longer than reading. What is counted is bytes and
/// entries of tables, not time, so that a log says the same each time.
#[derive(Debug)]
pub(super) struct Pace {
    /// What may still be spent, in about microseconds.
    credit: i64,
    bytes: u64,
    skipped: u64,
}

/// What a page may spend.
const CREDIT: i64 = 2_000_000;
/// Bytes that are read in about a microsecond, and as much again is left for
/// the rules.
const BYTES: u64 = 800;
/// What asking costs at least, in about microseconds.
const ONCE: i64 = 20;
/// What each open finding adds to it.
const FINDING: i64 = 20;
/// Attachments that add one.
const ATTACHMENTS: usize = 16;

impl Default for Pace {
    fn default() -> Self {
        Self {
            credit: CREDIT,
            bytes: 0,
            skipped: 0,
        }
    }
}

impl Pace {
    /// So many bytes have been read by now.
    pub(super) fn read(&mut self, bytes: u64) {
        let new = bytes.saturating_sub(self.bytes) / BYTES;
        if new > 0 {
            self.bytes += new * BYTES;
            let new = i64::try_from(new).unwrap_or(i64::MAX);
            self.credit = self.credit.saturating_add(new).min(CREDIT);
        }
    }

    /// Whether rules may be asked now.
    fn may(&mut self, engine: &Engine) -> bool {
        if self.credit <= 0 {
            self.skipped += 1;
            return false;
        }
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let findings = count(engine.open_count()).saturating_mul(FINDING);
        let attachments = count(engine.model().calls.len() / ATTACHMENTS);
        self.credit -= ONCE + findings + attachments;
        true
    }

    /// What that costs, in words.
    pub(super) fn gap(&self) -> Option<String> {
        (self.skipped > 0).then(|| {
            String::from(
                "what was wrong for some seconds only: the logs are long, and what they say was \
                 not judged at each second of them",
            )
        })
    }
}
