//! One log of a story.

use super::{Entry, LogError, LogReader, Timestamp};
use crate::source::logs::{
    kubectl::Kubectl,
    read::{Form, Seen},
};

/// A log, and what is known of it by now.
pub(super) struct Log {
    reader: LogReader,
    pub(super) state: State,
}

/// What is known of a log besides its text.
pub(super) struct State {
    /// When it was last written, or the present.
    pub(super) modified: Timestamp,
    /// The time of the last message that had one.
    time: Option<Timestamp>,
    /// The host of the last message that named one.
    pub(super) host: Option<String>,
    /// What reads it if it is no log but what kubectl has printed.
    pub(super) kubectl: Kubectl,
    /// That has understood something.
    pub(super) told: bool,
    /// What it said.
    pub(super) events: u64,
    /// The first and the last time among them.
    times: Option<(Timestamp, Timestamp)>,
}

impl Log {
    pub(super) fn new(reader: LogReader, modified: Timestamp) -> Self {
        Self {
            reader,
            state: State {
                modified,
                time: None,
                host: None,
                kubectl: Kubectl::new(modified),
                told: false,
                events: 0,
                times: None,
            },
        }
    }

    /// Hands the next message to `take`; `false` after the last.
    pub(super) fn next(
        &mut self,
        mut take: impl FnMut(&mut State, &mut Entry<'_>),
    ) -> Result<bool, LogError> {
        match self.reader.next()? {
            Some(mut entry) => {
                take(&mut self.state, &mut entry);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Its name, for people.
    pub(super) fn name(&self) -> &str {
        self.reader.name()
    }

    /// How it was compressed.
    pub(super) fn packed(&self) -> Option<&'static str> {
        self.reader.packed()
    }

    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.reader.bytes()
    }

    /// The boot that it is of, if it says so.
    pub(super) fn boot_id(&self) -> Option<&str> {
        self.reader.boot_id()
    }

    /// The forms that it has.
    pub(super) fn forms(&self) -> Vec<Seen> {
        let mut forms = self.reader.formats();
        // What a message is made of is no form of the log.
        forms.sort_by_key(|seen| std::cmp::Reverse(seen.records));
        forms
    }

    /// What it lacks, in words.
    pub(super) fn gaps(&self) -> Vec<String> {
        self.reader.gaps().texts()
    }

    /// The first and the last of its times. Its first line need not be its
    /// oldest.
    pub(super) fn times(&self) -> Option<(Timestamp, Timestamp)> {
        let forms = self.reader.formats();
        let ends = forms.iter().flat_map(|seen| [seen.first, seen.last]);
        let own = self.state.times.map(|(first, last)| [first, last]);
        let all = || ends.clone().flatten().chain(own.into_iter().flatten());
        all().min().zip(all().max())
    }

    /// Whether there was anything in it that could be understood.
    pub(super) fn is_understood(&self) -> bool {
        let forms = self.reader.formats();
        let known = forms.iter().any(|seen| seen.form != Form::Json);
        known || self.state.told || self.state.events > 0
    }

    /// Whether kubectl has printed it.
    pub(super) fn is_of_kubectl(&self) -> bool {
        self.state.told && self.reader.formats().is_empty()
    }
}

impl State {
    /// Fills in what a message does not say. Returns whether it has no
    /// envelope at all.
    pub(super) fn complete(&mut self, entry: &mut Entry<'_>) -> bool {
        let plain = entry.time.is_none() && entry.ident.is_none() && entry.fields.is_empty();
        match entry.time {
            Some(time) => {
                self.time = Some(time);
                let (first, last) = self.times.unwrap_or((time, time));
                self.times = Some((first.min(time), last.max(time)));
            }
            None => entry.time = Some(self.time.unwrap_or(self.modified)),
        }
        if let Some(host) = entry.host
            && self.host.as_deref() != Some(host)
        {
            self.host = Some(host.to_owned());
        }
        plain
    }

    /// When it is a message's turn among those of other logs.
    pub(super) fn turn(&self, time: Option<Timestamp>) -> Timestamp {
        time.or(self.time).unwrap_or(self.modified)
    }
}
