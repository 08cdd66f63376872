//! What sinks are given: the contract's records, whole and in order.
//!
//! A [`Record`] is a frame (time and node) around a body. Its serde form is
//! one line of `-o json`. What a body means is settled elsewhere: events in
//! [`What`], findings in [`finding`](crate::finding). How a
//! record looks to a person is the sinks' affair.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize, Serializer};

use crate::{
    Event, What,
    clock::Timestamp,
    eni::Enis,
    explanation::Explanation,
    finding::{Finding, Rule, Severity, State},
    not_checked::NotChecked,
    repair::{
        outcome::{Outcome, Totals},
        plan::Plan,
    },
};

/// The name of the format; it changes only if a key is renamed or removed.
pub const SCHEMA: &str = "node-tracer/1";

/// One record of the output.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// An event's own time, a finding's change of state, a run's start
    /// (coverage) or end (summary).
    pub time: Timestamp,
    pub node: &'a str,
    pub body: Body<'a>,
}

/// What a record says.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// What the tracer sees, and what it does not.
    Coverage(&'a [CoverageItem]),
    Event(&'a Event),
    /// A conclusion, and what has become of it.
    Finding {
        /// The conclusion in its present form.
        finding: &'a Finding,
        /// New, changed or over.
        state: State,
    },
    /// All that is known of one thing.
    Explanation(&'a Explanation),
    /// The node's own network devices.
    Eni(&'a Enis),
    /// The run in numbers.
    Summary(&'a Summary),
    /// What a repair would do.
    Plan {
        plan: &'a Plan,
        /// The file that it was written to, for people.
        file: Option<&'a Path>,
    },
    /// What a repair did with one reservation.
    Repair(&'a Outcome),
    /// A repair in numbers.
    RepairSummary(&'a Totals),
}

/// How the reason begins where a node has no container runtime to be asked: that
/// is no failure.
pub const NO_RUNTIME: &str = "no socket of a container runtime was found";

/// How an unknown begins that is a part of the input itself: whoever reads what
/// was found has to know of it.
pub const NOT_READ: &str = "not read: ";

/// How one signal or source is seen, or why it is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoverageItem {
    /// The signal (`netns-created`) or source (`pods`).
    pub signal: String,
    /// The mechanism in use; `None` if there is none.
    pub mechanism: Option<String>,
    /// Why there is none, or none better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What therefore cannot be known.
    #[serde(default)]
    pub unknown: Vec<String>,
}

/// A run in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub rules: BTreeMap<Rule, Count>,
    /// Findings by severity: open ones by what they are, resolved ones by the
    /// worst that they were.
    pub severities: BTreeMap<Severity, Count>,
    /// Events that the engine was given.
    pub events_seen: u64,
    /// Events that it should have been given, by cause of the loss.
    pub events_lost: BTreeMap<String, u64>,
    /// What could not be told at the end, and why.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// Rules that a missing source has switched off: that they found nothing says
    /// nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_checked: Vec<NotChecked>,
    /// How long the run took, ms.
    pub duration_ms: u64,
    /// The worst finding that is open at the end.
    pub worst_open: Option<Severity>,
    /// The worst finding that was ever open.
    pub worst_seen: Option<Severity>,
}

/// Findings by what has become of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Open at the end.
    pub open: u64,
    /// Resolved during the run.
    pub resolved: u64,
}

impl<'a> Record<'a> {
    /// What is seen on `node` from `time` on.
    pub fn coverage(node: &'a str, time: Timestamp, items: &'a [CoverageItem]) -> Self {
        Self {
            time,
            node,
            body: Body::Coverage(items),
        }
    }

    /// An event, at its own time.
    pub fn event(node: &'a str, event: &'a Event) -> Self {
        Self {
            time: event.time,
            node,
            body: Body::Event(event),
        }
    }

    /// A finding that came into `state` at `time`.
    pub fn finding(node: &'a str, time: Timestamp, finding: &'a Finding, state: State) -> Self {
        Self {
            time,
            node,
            body: Body::Finding { finding, state },
        }
    }

    /// What was known of a subject at `time`.
    pub fn explanation(node: &'a str, time: Timestamp, explanation: &'a Explanation) -> Self {
        Self {
            time,
            node,
            body: Body::Explanation(explanation),
        }
    }

    /// The node's own network devices at `time`.
    pub fn eni(node: &'a str, time: Timestamp, enis: &'a Enis) -> Self {
        Self {
            time,
            node,
            body: Body::Eni(enis),
        }
    }

    /// A run that ended at `time`.
    pub fn summary(node: &'a str, time: Timestamp, summary: &'a Summary) -> Self {
        Self {
            time,
            node,
            body: Body::Summary(summary),
        }
    }

    /// A plan that was made at `time`.
    pub fn plan(node: &'a str, time: Timestamp, plan: &'a Plan, file: Option<&'a Path>) -> Self {
        Self {
            time,
            node,
            body: Body::Plan { plan, file },
        }
    }

    /// What became of a reservation at `time`.
    pub fn repair(node: &'a str, time: Timestamp, outcome: &'a Outcome) -> Self {
        Self {
            time,
            node,
            body: Body::Repair(outcome),
        }
    }

    /// A repair that ended at `time`.
    pub fn repair_summary(node: &'a str, time: Timestamp, totals: &'a Totals) -> Self {
        Self {
            time,
            node,
            body: Body::RepairSummary(totals),
        }
    }
}

/// A record as it is serialised: the frame's keys first, then the body's.
#[derive(Serialize)]
struct Framed<'a, T: Serialize> {
    schema: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    time: Timestamp,
    node: &'a str,
    #[serde(flatten)]
    body: T,
}

/// The body of a coverage record.
#[derive(Serialize)]
struct CoverageBody<'a> {
    signals: &'a [CoverageItem],
}

/// The body of a finding record.
#[derive(Serialize)]
struct FindingBody<'a> {
    state: State,
    #[serde(flatten)]
    finding: &'a Finding,
}

impl Serialize for Record<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.body {
            Body::Coverage(signals) => self
                .framed("coverage", CoverageBody { signals })
                .serialize(serializer),
            Body::Event(Event { time: _, what }) => {
                self.framed::<&What>("event", what).serialize(serializer)
            }
            Body::Finding { finding, state } => self
                .framed("finding", FindingBody { state, finding })
                .serialize(serializer),
            Body::Explanation(explanation) => self
                .framed("explanation", explanation)
                .serialize(serializer),
            Body::Eni(enis) => self.framed("eni", enis).serialize(serializer),
            Body::Summary(summary) => self.framed("summary", summary).serialize(serializer),
            Body::Plan { plan, file: _ } => self.framed("plan", plan).serialize(serializer),
            Body::Repair(outcome) => self.framed("repair", outcome).serialize(serializer),
            Body::RepairSummary(totals) => {
                self.framed("repair-summary", totals).serialize(serializer)
            }
        }
    }
}

impl<'a> Record<'a> {
    fn framed<T: Serialize>(&self, kind: &'static str, body: T) -> Framed<'a, T> {
        Framed {
            schema: SCHEMA,
            kind,
            time: self.time,
            node: self.node,
            body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_begins_with_its_frame() {
        let event = Event {
            time: Timestamp::from_nanos(1_763_704_512_123_456_789),
            what: What::SourceRecovered {
                source: "pods".to_owned(),
            },
        };
        assert_eq!(
            serde_json::to_string(&Record::event("worker-3", &event)).unwrap(),
            r#"{"schema":"node-tracer/1","type":"event","time":"2025-11-21T05:55:12.123456789Z","#
                .to_owned()
                + r#""node":"worker-3","event":"source-recovered","source":"pods"}"#
        );
    }

    #[test]
    fn a_missing_mechanism_is_said_not_left_out() {
        let item = CoverageItem {
            signal: "pods".to_owned(),
            mechanism: None,
            reason: Some("no kubeconfig".to_owned()),
            unknown: vec![],
        };
        assert_eq!(
            serde_json::to_string(&item).unwrap(),
            r#"{"signal":"pods","mechanism":null,"reason":"no kubeconfig","unknown":[]}"#
        );
    }
}
