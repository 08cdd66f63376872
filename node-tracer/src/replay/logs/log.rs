//! One log of a story.

use super::{Entry, LogError, LogReader, Timestamp};
use event::order::Order as _;
use event::{Event, What, wording::plural::counted};
use logs::{block::Block, kubectl::Kubectl, read::FormCount};

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
    /// Lines without an envelope that may be one message.
    pub(super) block: Block,
    /// That has understood something.
    pub(super) told: bool,
    pub(super) events: u64,
    /// Lines that said something and bear no time.
    pub(super) untimed: u64,
    /// Something in it failed.
    fails: bool,
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
                block: Block::default(),
                told: false,
                events: 0,
                untimed: 0,
                fails: false,
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

    pub(super) fn forms(&self) -> Vec<FormCount> {
        let mut forms = self.reader.formats();
        // What a message is made of is no form of the log.
        forms.order_by_key(|seen| std::cmp::Reverse(seen.records));
        forms
    }

    /// What it lacks, in words.
    pub(super) fn gaps(&self) -> Vec<String> {
        let mut gaps = self.reader.gaps().texts();
        let State {
            modified,
            untimed,
            kubectl,
            times,
            ..
        } = &self.state;
        let count =
            |number: u64, what: &str| counted(usize::try_from(number).unwrap_or(usize::MAX), what);
        let untimed = untimed + kubectl.untimed;
        if untimed > 0 {
            let instead = match times {
                Some(_) => String::from("the time of a line before it"),
                None => format!("the time at which the file was last written, {modified},"),
            };
            gaps.push(format!(
                "when {} written: no time stands there, so {instead} was taken",
                match untimed {
                    1 => String::from("1 line of the log was"),
                    _ => format!("{} of the log were", count(untimed, "line")),
                }
            ));
        }
        if kubectl.aged > 0 {
            gaps.push(format!(
                "when kubectl printed {}: ages were counted back from the time at which the file \
                 was last written, {modified}",
                count(kubectl.aged, "event")
            ));
        }
        if kubectl.doubtful > 0 {
            gaps.push(format!(
                "{} of pods: what a probe or a container has printed stands in the description \
                 before, and may go on like this; print each pod's alone",
                count(kubectl.doubtful, "description")
            ));
        }
        gaps
    }

    /// How many lines it has.
    pub(super) fn lines(&self) -> u64 {
        self.reader.lines()
    }

    /// Whether nothing in it fails, to start or otherwise.
    pub(super) fn is_fine(&self) -> bool {
        !self.state.fails
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

    /// Whether it could be read: anything that is text.
    pub(super) fn is_understood(&self) -> bool {
        let known = !self.reader.formats().is_empty() || self.state.told || self.state.events > 0;
        known || (self.lines() > 0 && self.reader.is_text())
    }

    /// Whether kubectl has printed it.
    pub(super) fn is_of_kubectl(&self) -> bool {
        self.state.told && self.reader.formats().is_empty()
    }
}

impl State {
    /// Takes in what it tells.
    pub(super) fn judge(&mut self, events: &[Event]) {
        self.fails |= events.iter().any(|event| match &event.what {
            What::SandboxFailed { .. }
            | What::TaskBlocked { .. }
            | What::OomKilled { .. }
            | What::TasksOomKilled { .. }
            | What::DeviceWaiting { .. } => true,
            What::CniCall { error, .. } => error.is_some(),
            _ => false,
        });
    }

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
