//! What the page is made of: a sink that keeps what it can show of a run; and
//! several such as one.

use std::{cell::RefCell, rc::Rc};

use super::{
    clocks::{Clock, Moments, later},
    history::Findings,
    lanes::{Lane, Lanes},
    prose::Calendar,
};
use event::{
    Event,
    clock::{Timestamp, steady},
    record::{Body, CoverageItem, Record, Summary},
};
use sink::{Shown, Sink, SinkError};

/// Nodes of one input; what others tell is counted.
const MAX_NODES: usize = 64;

/// All of a run that a page can show. Its parts bound themselves.
#[derive(Debug, Default)]
pub struct Sheet {
    pub node: String,
    began: Option<Timestamp>,
    /// When something was last told.
    last: Option<Timestamp>,
    /// What it saw, and of what.
    pub coverage: Vec<CoverageItem>,
    pub findings: Findings,
    /// What happened to sandboxes.
    pub lanes: Lanes,
    /// The run in numbers, and when it ended.
    pub summary: Option<(Timestamp, Summary)>,
    /// The recordings of which it is made, if there are several.
    pub parts: Vec<Part>,
    /// Records of more nodes than are kept.
    pub left_out: u64,
    moments: Moments,
    /// What its times lack of the wall clock's, ns.
    shift: i64,
}

/// One of several recordings.
#[derive(Debug)]
pub struct Part {
    pub node: String,
    /// The file, and what it is.
    pub source: String,
    pub began: Timestamp,
    pub ended: Timestamp,
    pub coverage: Vec<CoverageItem>,
    pub summary: Option<Summary>,
    pub clock: Clock,
    /// What it tells of pods in the API.
    pub moments: Moments,
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
        ended.or(self.last).unwrap_or(self.began())
    }

    /// How times of the run are told.
    pub fn calendar(&self) -> Calendar {
        Calendar::new(self.began(), self.ended())
    }

    /// When the recording began that a lane is of.
    pub fn began_of(&self, lane: &Lane) -> Timestamp {
        let part = self.parts.get(lane.part);
        part.map_or(self.began(), |part| part.began)
    }

    /// When it ended.
    pub fn ended_of(&self, lane: &Lane) -> Timestamp {
        let part = self.parts.get(lane.part);
        part.map_or(self.ended(), |part| part.ended)
    }

    /// The node of one of its recordings.
    pub fn node_of(&self, part: usize) -> &str {
        let part = self.parts.get(part);
        part.map_or(self.node.as_str(), |part| part.node.as_str())
    }

    /// Whether recordings are of different nodes, so that each row names its own.
    pub fn has_nodes(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| part.node != self.parts[0].node)
    }

    /// What a recording saw.
    pub fn coverage_of(&self, part: usize) -> &[CoverageItem] {
        let part = self.parts.get(part);
        part.map_or(&self.coverage, |part| &part.coverage)
    }

    /// The recordings in numbers.
    pub fn summaries(&self) -> impl Iterator<Item = &Summary> {
        let own = self.summary.as_ref().map(|(_, summary)| summary);
        let own = own.filter(|_| self.parts.is_empty());
        own.into_iter()
            .chain(self.parts.iter().filter_map(|it| it.summary.as_ref()))
    }

    /// The file that it is from, and what that is.
    pub fn source(&self) -> Option<&str> {
        let item = |signal: &str| self.coverage.iter().find(|item| item.signal == signal);
        let item = ["recording", "printed", "log"].into_iter().find_map(item);
        item.and_then(|item| item.mechanism.as_deref())
    }

    fn apply(&mut self, event: &Event) {
        self.lanes.apply(event);
        self.moments.take(event);
    }

    fn take(&mut self, record: &Record<'_>) {
        self.began.get_or_insert(record.time);
        self.last = self.last.max(Some(record.time));
        match record.body {
            Body::Event(event) => self.apply(event),
            Body::Finding { finding, state } => {
                self.findings.record(finding, state, record.time);
                self.lanes.name(finding, record.time);
            }
            // They are of the whole input, or no run that is recorded tells of them.
            Body::Coverage(_)
            | Body::Summary(_)
            | Body::Explanation(_)
            | Body::Eni(_)
            | Body::Plan { .. }
            | Body::Repair(_)
            | Body::RepairSummary(_) => {}
        }
    }

    /// Tells all times so much later.
    fn change_clock(&mut self, by: i64) {
        if by == 0 {
            return;
        }
        let to = |at: Timestamp| later(at, by);
        self.began = self.began.map(to);
        self.last = self.last.map(to);
        if let Some((at, _)) = &mut self.summary {
            *at = to(*at);
        }
        self.lanes.change_clock(&to);
        self.findings.change_clock(&to);
        self.moments.change_clock(&to);
    }

    fn into_part(self, place: usize, clock: Clock) -> (Part, Findings, Lanes, u64) {
        let (mut findings, mut lanes) = (self.findings, self.lanes);
        findings.be_of(place);
        lanes.be_of(place);
        let part = Part {
            source: String::new(),
            began: self.began.unwrap_or(Timestamp::EPOCH),
            ended: self.last.unwrap_or(Timestamp::EPOCH),
            node: self.node,
            coverage: self.coverage,
            summary: self.summary.map(|(_, summary)| summary),
            clock,
            moments: self.moments,
        };
        (part, findings, lanes, self.left_out)
    }
}

/// What several recordings tell, as one page has it: each was evaluated by itself.
/// Times are by the first one's clock, where it is known well enough how far the
/// others are apart.
pub fn joined(mut sheets: Vec<Sheet>) -> Sheet {
    // Each has its own run's steps of the clock; what is written has the last one's.
    for sheet in &mut sheets {
        sheet.change_clock(sheet.shift.saturating_sub(steady::shift()));
    }
    if sheets.len() < 2 {
        return sheets.pop().unwrap_or_default();
    }
    let mut whole = Sheet::default();
    let mut nodes: Vec<String> = Vec::new();
    for (place, mut sheet) in sheets.into_iter().enumerate() {
        let clock = match whole.parts.first() {
            None => Clock::First,
            Some(first) if first.node == sheet.node => Clock::Same,
            Some(first) => sheet.moments.beside(&first.moments),
        };
        if let Clock::Compared { taken_off, .. } = clock {
            sheet.change_clock(taken_off.saturating_neg());
        }
        if !nodes.contains(&sheet.node) {
            nodes.push(sheet.node.clone());
        }
        let source = sheet.source().unwrap_or_default().to_owned();
        let (began, ended) = (sheet.began(), sheet.ended());
        let (part, findings, lanes, left_out) = sheet.into_part(place, clock);
        let first = whole.began.map_or(began, |known| known.min(began));
        whole.began = Some(first);
        whole.last = whole.last.max(Some(ended));
        whole.left_out += left_out;
        match place {
            0 => (whole.findings, whole.lanes) = (findings, lanes),
            _ => {
                whole.findings.join(findings);
                whole.lanes.join(lanes);
            }
        }
        whole.parts.push(Part {
            source,
            began,
            ended,
            ..part
        });
    }
    whole.node = nodes.join(", ");
    whole
}

/// One input: of several nodes, if it tells of several.
#[derive(Debug, Default)]
struct Book {
    sheets: Vec<Sheet>,
    coverage: Vec<(String, Timestamp, Vec<CoverageItem>)>,
    summary: Option<(String, Timestamp, Summary)>,
    /// The node that the first record names.
    first: Option<String>,
    left_out: u64,
    /// As a sheet has it.
    shift: i64,
}

impl Book {
    fn take(&mut self, record: &Record<'_>) {
        self.shift = steady::shift();
        self.first.get_or_insert_with(|| record.node.to_owned());
        match record.body {
            Body::Coverage(items) => {
                let has_room = self.coverage.len() < MAX_NODES;
                let mut known = self.coverage.iter_mut();
                match known.find(|(node, ..)| node == record.node) {
                    Some((_, _, known)) => *known = items.to_vec(),
                    None if has_room => {
                        let (node, time) = (record.node.to_owned(), record.time);
                        self.coverage.push((node, time, items.to_vec()));
                    }
                    None => {}
                }
            }
            Body::Summary(summary) => {
                self.summary = Some((record.node.to_owned(), record.time, summary.clone()));
            }
            _ => match self.sheet(record.node) {
                Some(sheet) => sheet.take(record),
                None => self.left_out += 1,
            },
        }
    }

    fn sheet(&mut self, node: &str) -> Option<&mut Sheet> {
        let is_its = |sheet: &Sheet| sheet.node == node || sheet.began.is_none();
        let place = match self.sheets.iter().position(is_its) {
            Some(place) => place,
            None if self.sheets.len() >= MAX_NODES => return None,
            None => {
                self.sheets.push(Sheet::default());
                self.sheets.len() - 1
            }
        };
        let sheet = self.sheets.get_mut(place)?;
        if sheet.began.is_none() {
            node.clone_into(&mut sheet.node);
        }
        Some(sheet)
    }

    /// An event that no record tells of: a scan's.
    fn look(&mut self, event: &Event) {
        self.shift = steady::shift();
        if self.sheets.is_empty() {
            self.sheets.push(Sheet::default());
        }
        if let Some(sheet) = self.sheets.first_mut() {
            sheet.apply(event);
        }
    }

    fn finish(mut self) -> Vec<Sheet> {
        if self.sheets.is_empty() && self.first.is_some() {
            self.sheets.push(Sheet::default());
        }
        let is_one = self.sheets.len() == 1;
        for sheet in &mut self.sheets {
            if let Some(node) = self.first.as_ref().filter(|_| is_one) {
                node.clone_into(&mut sheet.node);
            }
            let mut own = self.coverage.iter();
            let own = own.find(|(node, ..)| is_one || *node == sheet.node);
            if let Some((_, time, _)) = own {
                sheet.began = Some(*time);
            }
            // That of several logs is of all nodes, and is told again at their end.
            if let Some((.., items)) = own.filter(|_| !is_one).or(self.coverage.last()) {
                sheet.coverage.clone_from(items);
            }
            sheet.shift = self.shift;
        }
        if let (Some((_, time, summary)), Some(sheet)) = (self.summary, self.sheets.first_mut()) {
            sheet.summary = Some((time, summary));
            sheet.left_out = self.left_out;
        }
        self.sheets
    }
}

/// The end of it that a replay writes to.
#[derive(Clone, Debug, Default)]
pub struct Pen(Rc<RefCell<Book>>);

impl Pen {
    /// What was told, by node.
    pub fn lift(&self) -> Vec<Sheet> {
        self.0.take().finish()
    }
}

impl Sink for Pen {
    fn write(&mut self, record: &Record<'_>) -> Result<Shown, SinkError> {
        self.0.borrow_mut().take(record);
        Ok(Shown::Yes)
    }

    fn look(&mut self, event: &Event) {
        self.0.borrow_mut().look(event);
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}
