//! When to look at what. No clock: the caller says what time it is.
//!
//! Looks come in batches, at least [`APART`] apart and of at most
//! [`MAX_BATCH`] attachments, so that neither a namespace nor the host is
//! looked at more often than that, however much is called.

use event::CniCommand;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::attachments::Key;

/// How long after the last plugin's end its effect is looked at.
const AFTER: Duration = Duration::from_millis(50);
const APART: Duration = Duration::from_millis(100);
/// Attachments in one batch.
const MAX_BATCH: usize = 32;
/// When a sandbox is looked at after a DEL of another of the same pod name.
const WATCH: [Duration; 4] = [
    AFTER,
    Duration::from_millis(1_050),
    Duration::from_millis(5_050),
    Duration::from_millis(10_200),
];
/// When something is looked for again that may not be there as the ADD ends:
/// later than `missing-gateway-neighbour` waits for.
const SETTLED: Duration = Duration::from_millis(5_050);
/// A plugin that runs for longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Operations, and looks, that can wait.
const MAX_WAITING: usize = 8_192;
/// When something that was missing is looked for again: soon, then for some
/// minutes, then for an hour.
const DOUBTS: [(u32, Duration); 3] = [
    (1, Duration::from_secs(1)),
    (30, Duration::from_secs(10)),
    (90, Duration::from_secs(60)),
];

/// An ADD or DEL of an attachment: all plugins of the chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Operation {
    pub(super) key: Key,
    /// ADD or DEL.
    pub(super) command: CniCommand,
}

/// One that runs, or has ended and is to be looked at.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    running: BTreeSet<u32>,
    /// When the last plugin ended, and whether all succeeded.
    ended: Option<(Instant, bool)>,
}

impl Waiting {
    fn due(&self) -> Option<Instant> {
        match (self.running.is_empty(), self.ended) {
            (true, Some((ended, _))) => Some(ended + AFTER),
            (true, None) => Some(self.since + PATIENCE),
            (false, _) => Some(self.since + PATIENCE),
        }
    }
}

/// What is to be looked at now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Operations that have ended, and whether they succeeded.
    pub(super) operations: Vec<(Operation, bool)>,
    /// Attachments that are looked at for another reason.
    pub(super) again: BTreeSet<Key>,
}

impl Due {
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        let operations = self.operations.iter().map(|(it, _)| &it.key);
        operations.chain(&self.again)
    }
}

#[derive(Debug, Default)]
pub(super) struct Schedule {
    operations: BTreeMap<Operation, Waiting>,
    looks: BTreeSet<(Instant, Key)>,
    /// How often each was found lacking something.
    doubts: BTreeMap<Key, u32>,
    last: Option<Instant>,
    dropped: u64,
}

impl Schedule {
    /// A plugin has started.
    pub(super) fn started(&mut self, operation: Operation, pid: u32, now: Instant) {
        if let Some(waiting) = self.waiting(operation, now) {
            waiting.running.insert(pid);
        }
    }

    /// A plugin has ended.
    pub(super) fn ended(&mut self, operation: Operation, pid: u32, ok: bool, now: Instant) {
        if let Some(waiting) = self.waiting(operation, now) {
            waiting.running.remove(&pid);
            let before = waiting.ended.is_none_or(|(_, ok)| ok);
            waiting.ended = Some((now, ok && before));
        }
    }

    fn waiting(&mut self, operation: Operation, now: Instant) -> Option<&mut Waiting> {
        let full = self.operations.len() >= MAX_WAITING;
        if full && !self.operations.contains_key(&operation) {
            self.dropped += 1;
            return None;
        }
        let new = || Waiting {
            since: now,
            running: BTreeSet::new(),
            ended: None,
        };
        Some(self.operations.entry(operation).or_insert_with(new))
    }

    /// An attachment is to be looked at, once.
    pub(super) fn look(&mut self, key: Key, at: Instant) {
        if self.looks.len() >= MAX_WAITING {
            self.dropped += 1;
            return;
        }
        self.looks.insert((at, key));
    }

    /// A DEL of another sandbox of its pod's name has ended.
    pub(super) fn watch(&mut self, key: &Key, now: Instant) {
        // A DEL that is tried again and again moves the looks that are to come.
        self.looks.retain(|(at, its)| its != key || *at <= now);
        for after in WATCH {
            self.look(key.clone(), now + after);
        }
    }

    /// Its ADD has ended, and what comes within some seconds was not there yet.
    pub(super) fn settle(&mut self, key: &Key, now: Instant) {
        self.look(key.clone(), now + SETTLED);
    }

    /// Something that it should have is missing.
    pub(super) fn doubt(&mut self, key: &Key, now: Instant) {
        let times = self.doubts.entry(key.clone()).or_default();
        *times += 1;
        let mut doubts = DOUBTS.iter();
        if let Some((_, pause)) = doubts.find(|(until, _)| *times <= *until) {
            self.look(key.clone(), now + *pause);
        }
    }

    /// It has all that it should have.
    pub(super) fn sound(&mut self, key: &Key) {
        self.doubts.remove(key);
    }

    /// It is being taken down, or gone: what its ADD has done is not looked at
    /// any more.
    pub(super) fn forget(&mut self, key: &Key) {
        let key = key.clone();
        let command = CniCommand::Add;
        let operation = Operation { key, command };
        self.operations.remove(&operation);
        let key = &operation.key;
        self.doubts.remove(key);
        self.looks.retain(|(_, its)| its != key);
    }

    /// When something is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let operations = self.operations.values().filter_map(Waiting::due).min();
        let looks = self.looks.first().map(|(at, _)| *at);
        let next = operations.into_iter().chain(looks).min()?;
        Some(self.last.map_or(next, |last| next.max(last + APART)))
    }

    /// What is due; what was too much for one batch stays.
    pub(super) fn due(&mut self, now: Instant) -> Option<Due> {
        if self.next().is_none_or(|next| now < next) {
            return None;
        }
        let mut due = Due::default();
        let ready = |waiting: &Waiting| waiting.due().is_some_and(|at| at <= now);
        let operations = self.operations.iter().filter(|(_, it)| ready(it));
        let mut operations: Vec<_> = operations
            .map(|(operation, it)| (it.due(), operation.clone()))
            .collect();
        operations.sort();
        for (_, operation) in operations.into_iter().take(MAX_BATCH) {
            let waiting = self.operations.remove(&operation);
            // One that runs for so long is looked at when it ends.
            let ended = waiting.and_then(|it| it.ended.filter(|_| it.running.is_empty()));
            if let Some((_, ok)) = ended {
                due.operations.push((operation, ok));
            }
        }
        while due.operations.len() + due.again.len() < MAX_BATCH {
            match self.looks.first() {
                Some((at, _)) if *at <= now => {}
                _ => break,
            }
            if let Some((_, key)) = self.looks.pop_first() {
                due.again.insert(key);
            }
        }
        if due == Due::default() {
            return None;
        }
        self.last = Some(now);
        Some(due)
    }

    /// What was not looked at, since the last time.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}
