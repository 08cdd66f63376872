//! Several logs, merged by time. Of a single one nothing is copied.

use std::borrow::Cow;

use super::{
    Entry, LogError, Timestamp,
    log::{Log, State},
};
use logs::entry::Level;

pub(super) struct Merged {
    logs: Vec<Log>,
    /// The next message of each.
    next: Vec<Option<Owned>>,
    begun: bool,
    failed: Option<LogError>,
}

/// A message that outlives its log's next.
#[derive(Debug)]
struct Owned {
    time: Option<Timestamp>,
    host: Option<String>,
    ident: Option<String>,
    pid: Option<u32>,
    level: Option<Level>,
    own_level: Option<Level>,
    message: String,
    fields: Vec<(String, String)>,
    line: u64,
    turn: Timestamp,
}

impl Owned {
    fn of(entry: &mut Entry<'_>, turn: Timestamp) -> Self {
        let fields = std::mem::take(&mut entry.fields).into_iter();
        Self {
            time: entry.time,
            host: entry.host.map(str::to_owned),
            ident: entry.ident.map(str::to_owned),
            pid: entry.pid,
            level: entry.level,
            own_level: entry.own_level,
            message: std::mem::take(&mut entry.message).into_owned(),
            fields: fields
                .map(|(key, value)| (key.into_owned(), value.into_owned()))
                .collect(),
            line: entry.line,
            turn,
        }
    }

    fn entry(&self) -> Entry<'_> {
        let fields = self.fields.iter();
        Entry {
            time: self.time,
            host: self.host.as_deref(),
            ident: self.ident.as_deref(),
            pid: self.pid,
            level: self.level,
            own_level: self.own_level,
            message: Cow::Borrowed(&self.message),
            fields: fields
                .map(|(key, value)| (Cow::Borrowed(key.as_str()), Cow::Borrowed(value.as_str())))
                .collect(),
            line: self.line,
        }
    }
}

impl Merged {
    pub(super) fn new(logs: Vec<Log>) -> Self {
        Self {
            next: logs.iter().map(|_| None).collect(),
            logs,
            begun: false,
            failed: None,
        }
    }

    pub(super) fn logs(&self) -> &[Log] {
        &self.logs
    }

    pub(super) fn logs_mut(&mut self) -> &mut [Log] {
        &mut self.logs
    }

    /// Why one of them cannot be read on, the first.
    pub(super) fn take_failed(&mut self) -> Option<LogError> {
        self.failed.take()
    }

    /// Hands the next message to `take`; `false` after the last. A log that
    /// cannot be read on ends there; the others go on.
    pub(super) fn next(&mut self, mut take: impl FnMut(&mut State, &mut Entry<'_>)) -> bool {
        if let [log] = self.logs.as_mut_slice() {
            return log.next(take).unwrap_or_else(|error| {
                self.failed = Some(error);
                false
            });
        }
        if !std::mem::replace(&mut self.begun, true) {
            for place in 0..self.logs.len() {
                self.fill(place);
            }
        }
        let turns = self.next.iter().enumerate();
        let turns = turns.filter_map(|(place, next)| Some((next.as_ref()?.turn, place)));
        let Some((_, place)) = turns.min() else {
            return false;
        };
        let owned = self.next.get_mut(place).and_then(Option::take);
        if let (Some(owned), Some(log)) = (owned, self.logs.get_mut(place)) {
            take(&mut log.state, &mut owned.entry());
        }
        self.fill(place);
        true
    }

    /// Reads the next message of a log.
    fn fill(&mut self, place: usize) {
        let (Some(log), Some(next)) = (self.logs.get_mut(place), self.next.get_mut(place)) else {
            return;
        };
        let mut owned = None;
        let read = log.next(|state, entry| {
            owned = Some(Owned::of(entry, state.turn(entry.time)));
        });
        if let Err(error) = read {
            self.failed.get_or_insert(error);
        }
        *next = owned;
    }
}
