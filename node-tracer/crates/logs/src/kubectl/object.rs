//! One event as an object: `kubectl get events -o yaml` and `-o json`.
//!
//! Both print one key a line, in the order of the alphabet: so `type` is the
//! last key of an event, and `involvedObject` comes before `metadata`.

use super::row::Row;
use event::clock::Timestamp;

/// An event has some thirty lines, and managed fields in between.
const MAX_LINES: u16 = 200;

/// An event, being read.
#[derive(Debug, Default)]
pub(super) struct Object {
    row: Row,
    /// The part of it that the next keys are of.
    part: Part,
    /// `involvedObject` has begun.
    open: bool,
    lines: u16,
    is_pod: bool,
    /// A value that goes on in the next lines (YAML).
    folds: bool,
    /// How far that is indented.
    indent: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Itself,
    Object,
    Other,
}

impl Object {
    /// Whether an event has begun.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Takes a line in if it is part of the message (YAML): that is deeper than
    /// its key and may hold whatever a container has printed.
    pub(super) fn is_said(&mut self, line: &str) -> bool {
        let text = line.trim_start();
        let inside = self.open && self.folds && line.len() - text.len() > self.indent;
        if inside && self.lines < MAX_LINES {
            self.lines += 1;
            self.row.message.push(' ');
            self.row.message.push_str(text.trim_matches(['"', '\'']));
        }
        inside
    }

    /// Takes a line in; an event that has ended with it.
    pub(super) fn line(&mut self, line: &str) -> Option<Row> {
        let text = line.trim_start();
        self.lines += u16::from(self.open);
        if self.lines > MAX_LINES {
            *self = Self::default();
        }
        let Some((key, value)) = pair(text) else {
            if self.open && self.folds && !text.is_empty() {
                self.row.message.push(' ');
                self.row.message.push_str(text.trim_matches(['"', '\'']));
            }
            return None;
        };
        self.folds = false;
        match key {
            "involvedObject" | "regarding" => {
                self.open = true;
                self.is_pod = false;
                self.part = Part::Object;
                return None;
            }
            _ if !self.open => {
                match key {
                    "count" => self.row.count = value.parse().ok(),
                    "firstTimestamp" => self.row.began = Timestamp::parse(&value),
                    "apiVersion" => self.row = Row::default(),
                    _ => {}
                }
                return None;
            }
            "metadata" | "source" | "managedFields" | "series" => self.part = Part::Other,
            "lastTimestamp" => {
                self.part = Part::Itself;
                self.row.at = Timestamp::parse(&value);
            }
            "message" | "note" => {
                self.part = Part::Itself;
                self.row.message = value;
                self.folds = true;
                self.indent = line.len() - text.len();
            }
            "reason" => {
                self.part = Part::Itself;
                self.row.reason = value;
            }
            "kind" if value == "Event" => self.part = Part::Itself,
            "kind" if self.part == Part::Object => self.is_pod = value == "Pod",
            "name" if self.part == Part::Object => self.row.pod.name = Some(value),
            "namespace" if self.part == Part::Object => self.row.pod.namespace = Some(value),
            "uid" if self.part == Part::Object => self.row.pod.uid = Some(value),
            "type" if matches!(value.as_str(), "Normal" | "Warning") => {
                self.row.normal = value == "Normal";
                return self.end();
            }
            _ => {}
        }
        None
    }

    /// What there is of an event that does not go on.
    pub(super) fn end(&mut self) -> Option<Row> {
        let Self {
            row, open, is_pod, ..
        } = std::mem::take(self);
        (open && is_pod && !row.reason.is_empty()).then_some(row)
    }
}

/// `key: value` of YAML, `"key": "value",` of JSON.
fn pair(text: &str) -> Option<(&str, String)> {
    let text = text.strip_prefix("- ").unwrap_or(text);
    let (key, value) = text.split_once(':')?;
    let key = key.trim_matches('"');
    let is_key = !key.is_empty() && key.bytes().all(|c| c.is_ascii_alphanumeric());
    let value = value.trim().trim_end_matches(',');
    let value = match serde_json::from_slice::<String>(value.as_bytes()) {
        Ok(value) => value,
        Err(_) => value
            .trim_matches(['"', '\''])
            .trim_start_matches('|')
            .to_owned(),
    };
    is_key.then_some((key, value))
}
