//! What the page is made of: a sink that keeps what it can show of a run.

use std::{cell::RefCell, rc::Rc};

use super::{history::Findings, lanes::Lanes, prose::Calendar};
use event::{
    Event,
    clock::Timestamp,
    record::{Body, CoverageItem, Record, Summary},
};
use sink::{Shown, Sink, SinkError};

/// All of a run that a page can show. Its parts bound themselves.
#[derive(Debug, Default)]
pub struct Sheet {
    pub node: String,
    began: Option<Timestamp>,
    /// What it saw, and of what.
    pub coverage: Vec<CoverageItem>,
    pub findings: Findings,
    /// What happened to sandboxes.
    pub lanes: Lanes,
    /// The run in numbers, and when it ended.
    pub summary: Option<(Timestamp, Summary)>,
}

impl Sheet {
    /// When the run began.
    pub fn began(&self) -> Timestamp {
        let epoch = Timestamp::from(std::time::SystemTime::UNIX_EPOCH);
        self.began.unwrap_or(epoch)
    }

    /// When it ended, as far as that is known.
    pub fn ended(&self) -> Timestamp {
        let ended = self.summary.as_ref().map(|(at, _)| *at);
        ended.unwrap_or(self.began())
    }

    /// How times of the run are told.
    pub fn calendar(&self) -> Calendar {
        Calendar::new(self.began(), self.ended())
    }

    fn take(&mut self, record: &Record<'_>) {
        if self.began.is_none() {
            record.node.clone_into(&mut self.node);
            self.began = Some(record.time);
        }
        match record.body {
            Body::Coverage(items) => {
                self.began = Some(record.time);
                self.coverage = items.to_vec();
            }
            Body::Event(event) => self.lanes.apply(event),
            Body::Finding { finding, state } => {
                self.findings.told(finding, state, record.time);
                self.lanes.name(finding, record.time);
            }
            Body::Summary(summary) => self.summary = Some((record.time, summary.clone())),
            // No run that is recorded tells of these.
            Body::Explanation(_)
            | Body::Eni(_)
            | Body::Plan { .. }
            | Body::Repair(_)
            | Body::RepairSummary(_) => {}
        }
    }
}

/// The end of it that a replay writes to.
#[derive(Clone, Debug, Default)]
pub struct Pen(Rc<RefCell<Sheet>>);

impl Pen {
    pub fn lift(&self) -> Sheet {
        self.0.take()
    }
}

impl Sink for Pen {
    fn write(&mut self, record: &Record<'_>) -> Result<Shown, SinkError> {
        self.0.borrow_mut().take(record);
        Ok(Shown::Yes)
    }

    fn look(&mut self, event: &Event) {
        self.0.borrow_mut().lanes.apply(event);
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}
