//! What the tool itself has printed: records of `-o json`, as they are or in
//! entries of the journal (`journalctl -t node-tracer -o json`).
//!
//! What was found is told again as it was told. Nothing is judged anew: a verdict
//! takes more than what is printed.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    io::BufReader,
};

use serde::Deserialize;

use super::{BUFFER, Failure, Input, Replayed, run::Told};
use crate::{
    outcome::Outcome,
    output,
    recording::{KIND, LineEnd, Lines, ReadError},
};
use event::{
    Event,
    clock::Timestamp,
    finding::{Finding, Rule, Severity, State},
    not_checked::NotChecked,
    record::{CoverageItem, Record, Summary},
};
use sink::{Sink, SinkError};

/// The longest record has half a megabyte; in an entry it is a quoted text.
const MAX_LINE: usize = 2 << 20;
/// The field of an entry that has a record.
const FIELD: &str = "NODE_TRACER_JSON";
/// How a record says what it is; fields of entries have capitals.
const OF_RECORD: &str = r#""schema":"node-tracer/1""#;
const IDENTIFIER: &str = r#""SYSLOG_IDENTIFIER":"node-tracer""#;

/// Whether something is that, by its first bytes.
pub(super) fn is_printed(beginning: &[u8]) -> bool {
    let text = beginning.trim_ascii_start();
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let has = |part: &str| line.windows(part.len()).any(|it| it == part.as_bytes());
    let is_record = has(OF_RECORD) && !has(&format!("\"type\":\"{KIND}\""));
    line.starts_with(b"{") && (is_record || has("\"NODE_TRACER_") || has(IDENTIFIER))
}

/// An entry of the journal, as journalctl(1) prints it.
#[derive(Deserialize)]
struct Entry<'a> {
    /// null if it is longer than journalctl prints without `--all`.
    #[serde(borrow, rename = "NODE_TRACER_JSON")]
    record: Option<Cow<'a, str>>,
    /// Of whoever has sent it, as the kernel says (systemd.journal-fields(7)).
    #[serde(borrow, rename = "_UID", default)]
    uid: Option<Cow<'a, str>>,
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
struct Printed {
    name: String,
    sinks: Vec<Box<dyn Sink>>,
    told: Told,
    /// What became of each finding of each node.
    findings: BTreeMap<(String, String), (Rule, Severity, State)>,
    not_checked: Vec<NotChecked>,
    /// Nodes of which it was told what they saw.
    covered: BTreeSet<String>,
    first: Option<Timestamp>,
    last: Timestamp,
    node: String,
    events: u64,
    /// Changes of findings beyond what is told of one file.
    untold: u64,
    /// Entries of other programs.
    others: u64,
    /// Entries that somebody else than root has sent.
    untrusted: u64,
    /// Entries without their record.
    cut: u64,
    damaged: u64,
}

pub(super) fn run(input: Input, sinks: Vec<Box<dyn Sink>>) -> Result<Replayed, Failure> {
    let name = input.name().to_owned();
    let mut lines = Lines::new(BufReader::with_capacity(BUFFER, input));
    let mut printed = Printed {
        name: name.clone(),
        sinks,
        told: Told::default(),
        findings: BTreeMap::new(),
        not_checked: Vec::new(),
        covered: BTreeSet::new(),
        first: None,
        last: Timestamp::from_nanos(0),
        node: String::new(),
        events: 0,
        untold: 0,
        others: 0,
        untrusted: 0,
        cut: 0,
        damaged: 0,
    };
    loop {
        match lines.next(MAX_LINE) {
            Ok(LineEnd::Nothing) => break,
            Ok(LineEnd::TooLong) => printed.damaged += 1,
            Ok(LineEnd::Newline | LineEnd::File) => printed.line(&lines.buffer)?,
            Err(source) => {
                printed.finish()?;
                let line = lines.number;
                return Err(ReadError::Read { name, line, source }.into());
            }
        }
        if printed.sinks.is_empty() {
            let found = printed.found();
            return Ok(Replayed::Unheard { found });
        }
    }
    printed.finish()
}

impl Printed {
    fn line(&mut self, line: &[u8]) -> Result<(), SinkError> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let has = |part: &str| line.windows(part.len()).any(|it| it == part.as_bytes());
        if !has(FIELD) {
            return match has(OF_RECORD) {
                true => self.record(line),
                // What the tool has said besides is no record.
                false => {
                    self.others += u64::from(!has(IDENTIFIER));
                    Ok(())
                }
            };
        }
        let Ok(entry) = serde_json::from_slice::<Entry<'_>>(line) else {
            self.damaged += 1;
            return Ok(());
        };
        match (entry.uid.as_deref(), entry.record) {
            // Any user can write entries of this form.
            (Some("0"), Some(record)) => self.record(record.as_bytes()),
            (Some("0"), None) => {
                self.cut += 1;
                Ok(())
            }
            _ => {
                self.untrusted += 1;
                Ok(())
            }
        }
    }

    fn record(&mut self, line: &[u8]) -> Result<(), SinkError> {
        let Ok(frame) = serde_json::from_slice::<Frame<'_>>(line) else {
            self.damaged += 1;
            return Ok(());
        };
        self.first.get_or_insert(frame.time);
        self.last = self.last.max(frame.time);
        // The journal has findings alone.
        if matches!(&*frame.kind, "event" | "finding") && !self.covered.contains(&*frame.node) {
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
                Err(_) => {
                    self.damaged += 1;
                    Ok(())
                }
            },
            "finding" => match (serde_json::from_slice::<Finding>(line), frame.state) {
                (Ok(finding), Some(state)) => self.finding(&frame, &finding, state),
                _ => {
                    self.damaged += 1;
                    Ok(())
                }
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
            self.untold += 1;
            return Ok(());
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

    fn finish(mut self) -> Result<Replayed, Failure> {
        if self.first.is_none() && self.untrusted + self.cut == 0 {
            return Err(Failure::NotUnderstood { name: self.name });
        }
        let took = self.last.since(self.first.unwrap_or(self.last));
        let mut summary = Summary {
            events_seen: self.events,
            not_checked: self.not_checked.clone(),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
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
        let said = [
            (self.untold, "findings beyond what is told of one file"),
            (
                self.others,
                "entries of other programs, not read (replay these by themselves)",
            ),
            (
                self.untrusted,
                "entries of users other than root, not believed",
            ),
            (
                self.cut,
                "entries without their record (run journalctl with --all)",
            ),
            (self.damaged, "lines that cannot be understood"),
        ];
        let said = said.iter().filter(|(count, _)| *count > 0);
        let text = |(count, what): &(u64, &str)| format!("{}: {what}: {count}", self.name);
        summary.unknown = said.map(text).collect();
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
