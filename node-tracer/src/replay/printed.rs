//! What the tool itself has printed: records of `-o json`, as they are or in
//! entries of the journal (`journalctl -t node-tracer -o json`).
//!
//! What was found is told again as it was told. Nothing is judged anew: a verdict
//! takes more than what is printed.
//!
//! Each line counts for what its own members say, wherever it stands: what is of
//! other programs goes on to the reader of logs ([`Sieve`]).

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io::{self, BufReader, Read},
    rc::Rc,
};

use memchr::memmem;
use serde::{Deserialize, de::IgnoredAny};

use super::{Failure, Input, LogError, Replayed, logs, run::FindingBudget};
use crate::{
    outcome::Outcome,
    output,
    recording::{KIND, LineEnd, Lines, LongTexts, takes_too_much, values},
};
use event::{
    Event,
    clock::Timestamp,
    finding::{Finding, Rule, Severity, State},
    not_checked::NotChecked,
    record::{CoverageItem, NOT_READ, Record, SCHEMA, Summary},
};
use sink::{Sink, SinkError};

/// The longest record has half a megabyte; in an entry it is a quoted text.
const MAX_LINE: usize = 2 << 20;
/// What is read at a time; many files can wait to be read.
const BUFFER: usize = 64 << 10;
/// No node has a longer name,
const MAX_NODE: usize = 253;
/// and no finding such an ID.
const MAX_ID: usize = 128;
/// Nodes of one file: as many as a cluster has.
const MAX_NODES: usize = 5_000;
/// Values of all that is told besides events. A finding has about a hundred.
const MAX_VALUES: usize = 2_000_000;
const NAME: &str = "node-tracer";
/// What a line has that has a record in it: its schema, or the field of an entry.
const WORDS: [&str; 2] = [NAME, "NODE_TRACER_JSON"];

/// Whether something may have that in it, by its first bytes. No text in a line
/// has such quotes: they are escaped there.
pub(super) fn may_be_in(beginning: &[u8]) -> bool {
    let line = beginning.trim_ascii_start();
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let has = |part: &str| memmem::find(line, part.as_bytes()).is_some();
    let is_record =
        || has(&format!("\"schema\":\"{SCHEMA}\"")) && !has(&format!("\"type\":\"{KIND}\""));
    line.starts_with(b"{") && (!logs::is_recording(beginning) || is_record())
}

/// What a line says of itself: a record, or an entry as journalctl(1) prints it.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    schema: Option<Field<'a>>,
    #[serde(borrow, rename = "SYSLOG_IDENTIFIER")]
    identifier: Option<Field<'a>>,
    /// null if it is longer than journalctl prints without `--all`.
    #[serde(
        borrow,
        default,
        rename = "NODE_TRACER_JSON",
        deserialize_with = "there"
    )]
    record: Option<Field<'a>>,
    /// Of whoever has sent it, as the kernel says (systemd.journal-fields(7)).
    #[serde(borrow, rename = "_UID")]
    uid: Option<Field<'a>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Field<'a> {
    Text(#[serde(borrow)] Cow<'a, str>),
    Other(IgnoredAny),
}

impl Field<'_> {
    fn is(this: Option<&Self>, text: &str) -> bool {
        matches!(this, Some(Self::Text(own)) if own == text)
    }
}

/// A field that is null is there.
fn there<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Field<'de>>, D::Error> {
    Field::deserialize(from).map(Some)
}

/// What is read of every record.
#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    time: Timestamp,
    #[serde(borrow)]
    node: Cow<'a, str>,
    state: Option<State>,
    #[serde(default)]
    signals: Vec<CoverageItem>,
    #[serde(default)]
    not_checked: Vec<NotChecked>,
}

/// What was told so far.
pub(super) struct Printed {
    name: String,
    /// The file is of records as they are printed; its first line says so.
    is_raw: Option<bool>,
    sinks: Vec<Box<dyn Sink>>,
    /// Why they cannot be written to.
    failed: Option<SinkError>,
    told: FindingBudget,
    texts: LongTexts,
    values: usize,
    /// What became of each finding of each node.
    findings: BTreeMap<(String, String), (Rule, Severity, State)>,
    not_checked: Vec<NotChecked>,
    /// Nodes of which it was told what they saw.
    covered: BTreeSet<String>,
    first: Option<Timestamp>,
    last: Timestamp,
    node: String,
    events: u64,
    dropped: Dropped,
}

/// What is not told, by why.
#[derive(Default)]
struct Dropped {
    /// Beyond what is told of one file.
    untold: u64,
    /// Records as they are printed, in a file of something else.
    stray: u64,
    /// Entries that somebody else than root has sent.
    untrusted: u64,
    /// Entries without their record.
    cut: u64,
    damaged: u64,
    /// Texts of which the beginning is told.
    texts: u64,
}

/// One file's, while what else is in it is still read.
pub(super) type Shared = Rc<RefCell<Printed>>;

/// Tells what the tool has printed, up to the first line of something else. The
/// rest of it is told as that, and what is between, is read.
pub(super) fn sift(
    input: Input,
    sinks: Vec<Box<dyn Sink>>,
) -> (Shared, Result<Option<Input>, LogError>) {
    let printed = Rc::new(RefCell::new(Printed {
        name: input.name().to_owned(),
        is_raw: None,
        sinks,
        failed: None,
        told: FindingBudget::default(),
        texts: LongTexts::default(),
        values: 0,
        findings: BTreeMap::new(),
        not_checked: Vec::new(),
        covered: BTreeSet::new(),
        first: None,
        last: Timestamp::from_nanos(0),
        node: String::new(),
        events: 0,
        dropped: Dropped::default(),
    }));
    let of = Rc::clone(&printed);
    let rest = input.through(|input| {
        Box::new(Sieve {
            lines: Lines::new(BufReader::with_capacity(BUFFER, input)),
            given: 0,
            printed: of,
        })
    });
    let rest = rest.map(|rest| Some(rest).filter(|rest| !rest.beginning().is_empty()));
    (printed, rest)
}

/// An input without what the tool has printed.
struct Sieve {
    lines: Lines<BufReader<Input>>,
    /// How much of the line was given out.
    given: usize,
    printed: Shared,
}

impl Read for Sieve {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut left = self.lines.buffer.get(self.given..).unwrap_or_default();
            if !left.is_empty() {
                let read = left.read(buffer)?;
                self.given += read;
                return Ok(read);
            }
            let end = self.lines.next(MAX_LINE)?;
            self.given = 0;
            let mut printed = self.printed.borrow_mut();
            if end == LineEnd::Nothing || printed.failed.is_some() || printed.sinks.is_empty() {
                return Ok(0);
            }
            let line = &mut self.lines.buffer;
            if line.trim_ascii().is_empty() || (end != LineEnd::TooLong && printed.takes(line)) {
                line.clear();
            } else if end != LineEnd::File {
                line.push(b'\n');
            }
        }
    }
}

impl Printed {
    /// Whether a line is of the tool; then it is told.
    fn takes(&mut self, line: &mut Vec<u8>) -> bool {
        let has = |part: &&str| memmem::find(line, part.as_bytes()).is_some();
        if !line.trim_ascii_start().starts_with(b"{") || !WORDS.iter().any(has) {
            self.is_raw.get_or_insert(false);
            return false;
        }
        let Ok(head) = serde_json::from_slice::<Head<'_>>(line) else {
            self.dropped.damaged += 1;
            return true;
        };
        let is_record = Field::is(head.schema.as_ref(), SCHEMA);
        let is_raw = *self.is_raw.get_or_insert(is_record);
        let is_roots = Field::is(head.uid.as_ref(), "0");
        let told = match head.record {
            _ if is_record => match is_raw {
                true => self.record(line),
                false => Self::drop(&mut self.dropped.stray),
            },
            // Any user can write entries of this form.
            Some(_) if !is_roots => Self::drop(&mut self.dropped.untrusted),
            Some(Field::Text(record)) => self.record(&mut record.into_owned().into_bytes()),
            Some(Field::Other(_)) => Self::drop(&mut self.dropped.cut),
            // What the tool has said besides is no record.
            None if is_roots && Field::is(head.identifier.as_ref(), NAME) => Ok(()),
            None => return false,
        };
        if let Err(error) = told {
            self.failed.get_or_insert(error);
        }
        true
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "it is one of several ways to tell a line"
    )]
    fn drop(count: &mut u64) -> Result<(), SinkError> {
        *count += 1;
        Ok(())
    }

    fn record(&mut self, line: &mut Vec<u8>) -> Result<(), SinkError> {
        self.texts.cut_in(line);
        self.dropped.texts += self.texts.take_cut();
        let line = line.as_slice();
        if takes_too_much(line) {
            return Self::drop(&mut self.dropped.damaged);
        }
        let frame = match serde_json::from_slice::<Frame<'_>>(line) {
            Ok(frame) if frame.node.len() <= MAX_NODE => frame,
            _ => return Self::drop(&mut self.dropped.damaged),
        };
        let is_known = self.covered.contains(&*frame.node);
        if frame.kind != "event" {
            self.values += values(line);
        }
        if self.values > MAX_VALUES || (!is_known && self.covered.len() >= MAX_NODES) {
            return Self::drop(&mut self.dropped.untold);
        }
        self.first.get_or_insert(frame.time);
        self.last = self.last.max(frame.time);
        // The journal has findings alone.
        if matches!(&*frame.kind, "event" | "finding") && !is_known {
            self.cover(&frame)?;
        }
        match &*frame.kind {
            "coverage" => self.cover(&frame),
            "event" => match serde_json::from_slice::<Event>(line) {
                Ok(event) => {
                    self.events += 1;
                    self.write(&Record::event(&frame.node, &event))
                }
                // Of a newer version.
                Err(_) => Self::drop(&mut self.dropped.damaged),
            },
            "finding" => match (serde_json::from_slice::<Finding>(line), frame.state) {
                (Ok(finding), Some(state)) if finding.id.len() <= MAX_ID => {
                    self.finding(&frame, &finding, state)
                }
                _ => Self::drop(&mut self.dropped.damaged),
            },
            "summary" => {
                self.not_checked = frame.not_checked;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn cover(&mut self, frame: &Frame<'_>) -> Result<(), SinkError> {
        let own = CoverageItem {
            signal: String::from("printed"),
            mechanism: Some(format!("{}, what node-tracer has told", self.name)),
            reason: None,
            unknown: vec![String::from("what was not told when this was printed")],
        };
        let mut items = frame.signals.clone();
        items.push(own);
        self.node = frame.node.clone().into_owned();
        self.covered.insert(self.node.clone());
        self.write(&Record::coverage(&frame.node, frame.time, &items))
    }

    fn finding(
        &mut self,
        frame: &Frame<'_>,
        finding: &Finding,
        state: State,
    ) -> Result<(), SinkError> {
        if !self.told.has_room_for(finding) {
            return Self::drop(&mut self.dropped.untold);
        }
        let key = (frame.node.clone().into_owned(), finding.id.clone());
        let what = (finding.rule, finding.severity, state);
        self.findings.insert(key, what);
        self.write(&Record::finding(&frame.node, frame.time, finding, state))
    }

    fn write(&mut self, record: &Record<'_>) -> Result<(), SinkError> {
        output::to_listeners(&mut self.sinks, record)
    }

    fn found(&self) -> Outcome {
        let worst = self.findings.values().map(|(_, severity, _)| *severity);
        Outcome::of(worst.max(), &self.not_checked)
    }

    /// Whether something of it was told.
    pub(super) fn is_told(&self) -> bool {
        self.first.is_some()
    }

    /// Whether it could not be told.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// What was left out, in words.
    pub(super) fn gaps(&self) -> Vec<String> {
        let Dropped {
            untold,
            stray,
            untrusted,
            cut,
            damaged,
            texts,
        } = self.dropped;
        let said = [
            (untold, "records beyond what is told of one file"),
            (
                stray,
                "records among other lines (replay these by themselves)",
            ),
            (untrusted, "entries of users other than root, not believed"),
            (
                cut,
                "entries without their record (run journalctl with --all)",
            ),
            (damaged, "lines that cannot be understood"),
            (texts, "ends of texts that are too long"),
        ];
        let said = said.iter().filter(|(count, _)| *count > 0);
        let text =
            |(count, what): &(u64, &str)| format!("{NOT_READ}{}: {what}: {count}", self.name);
        said.map(text).collect()
    }

    /// Tells what is to be told once all was read.
    pub(super) fn finish(&mut self) -> Result<Replayed, Failure> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        if self.sinks.is_empty() {
            let found = self.found();
            return Ok(Replayed::Unheard { found });
        }
        let gaps = self.gaps();
        // What is wrong with entries of the journal is said with their number.
        let entries = self.dropped.untrusted + self.dropped.cut;
        if !self.is_told() && entries == 0 {
            let name = self.name.clone();
            return Err(Failure::NotUnderstood { name });
        }
        let took = self.last.since(self.first.unwrap_or(self.last));
        let mut summary = Summary {
            events_seen: self.events,
            not_checked: self.not_checked.clone(),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            unknown: gaps,
            ..Summary::default()
        };
        for (rule, severity, state) in self.findings.values() {
            let is_open = *state != State::Resolved;
            for count in [
                summary.rules.entry(*rule).or_default(),
                summary.severities.entry(*severity).or_default(),
            ] {
                count.open += u64::from(is_open);
                count.resolved += u64::from(!is_open);
            }
            summary.worst_seen = summary.worst_seen.max(Some(*severity));
            if is_open {
                summary.worst_open = summary.worst_open.max(Some(*severity));
            }
        }
        let (node, last) = (self.node.clone(), self.last);
        self.write(&Record::summary(&node, last, &summary))?;
        for sink in &mut self.sinks {
            output::quietly(sink.flush())?;
        }
        Ok(Replayed::Whole {
            found: self.found(),
        })
    }
}
