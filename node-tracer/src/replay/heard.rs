//! What is told, heard out: a sink that knows what every story has in common.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io,
    rc::Rc,
};

use serde_json::Value;

use event::{
    Event, What,
    clock::Timestamp,
    finding::State,
    record::{Body, Record, SCHEMA, Summary},
    wording::escape::is_hidden,
};
use node::redact::secret;
use sink::{Shown, Sink, SinkError, TextSink, json};

/// What the story is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// A recording: whoever has written it was believed.
    Recording,
    /// Logs: what they say was put in order, and secrets were taken out.
    Logs,
}

/// Panics where a story is not as all are.
pub(super) struct Heard {
    of: Of,
    text: TextSink<Plain>,
    /// Findings that were told and are not over, by node and ID.
    open: BTreeSet<(String, String)>,
    /// The time of the last thing that happened, by node.
    last: BTreeMap<String, Timestamp>,
    count: Rc<RefCell<Count>>,
}

/// How much was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

impl Heard {
    pub(super) fn new(of: Of) -> (Self, Rc<RefCell<Count>>) {
        let count = Rc::default();
        let this = Self {
            of,
            text: TextSink::new(Plain, false),
            open: BTreeSet::new(),
            last: BTreeMap::new(),
            count: Rc::clone(&count),
        };
        (this, count)
    }

    fn in_order(&mut self, record: &Record<'_>, text: &str) {
        if matches!(record.body, Body::Event(_) | Body::Finding { .. }) {
            let last = self.last.insert(record.node.to_owned(), record.time);
            assert!(last <= Some(record.time), "{last:?}: {text}");
        }
    }

    fn event(&mut self, event: &Event, document: &Value, time: Timestamp) {
        assert_eq!(event.time, time);
        self.count.borrow_mut().events += 1;
        let read: Event = serde_json::from_value(document.clone()).expect("an event is read again");
        // A path that is no text loses what is none, and a time before 1970 is
        // written as that; what is written once stays.
        let again = serde_json::to_value(&read).expect("an event is written");
        let once = serde_json::to_value(event).expect("an event is written");
        assert_eq!(again, once);
    }

    fn summary(&self, summary: &Summary) {
        let open: u64 = summary.rules.values().map(|count| count.open).sum();
        assert_eq!(open, self.open.len() as u64, "open at the end");
        let by_severity: u64 = summary.severities.values().map(|count| count.open).sum();
        assert_eq!(open, by_severity);
        let resolved: u64 = summary.rules.values().map(|count| count.resolved).sum();
        let severities = summary.severities.values();
        let by_severity: u64 = severities.map(|count| count.resolved).sum();
        assert_eq!(resolved, by_severity);
        assert!(summary.worst_open <= summary.worst_seen);
        assert_eq!(summary.worst_open.is_some(), open > 0);
    }
}

impl Sink for Heard {
    fn write(&mut self, record: &Record<'_>) -> Result<Shown, SinkError> {
        self.text.write(record)?;
        let line = json::line(record)?;
        self.count.borrow_mut().bytes += line.len();
        let text = std::str::from_utf8(&line).expect("JSON is text");
        assert!(!text.contains(is_hidden), "{text}");
        let document: Value = serde_json::from_str(text).expect("a line is JSON");
        assert_eq!(document["schema"], SCHEMA);
        if self.of == Of::Logs {
            secret::assert_hidden_in(&document);
            self.in_order(record, text);
        }
        match record.body {
            Body::Event(event) if event.what == What::Tick => {}
            Body::Event(event) => self.event(event, &document, record.time),
            Body::Finding { finding, state } => {
                if self.of == Of::Logs {
                    assert!(finding.since <= record.time, "{text}");
                }
                let id = (record.node.to_owned(), finding.id.clone());
                let fits = match state {
                    State::Open => self.open.insert(id),
                    State::Updated => self.open.contains(&id),
                    State::Resolved => self.open.remove(&id),
                };
                assert!(fits, "{state:?}: {text}");
            }
            Body::Summary(summary) => self.summary(summary),
            _ => {}
        }
        Ok(Shown::Yes)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.text.flush()
    }
}

/// A terminal that must not be given anything but text.
struct Plain;

impl io::Write for Plain {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(data).expect("text");
        let acts = |c| c != '\n' && is_hidden(c);
        assert!(!text.contains(acts), "{text:?}");
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
