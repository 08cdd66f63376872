//! One recorded run, being told again.

use super::gaps::Gaps;
use crate::{
    outcome::Outcome,
    recording::{Command, Header, Marker},
};
use engine::{Engine, confirm::Confirmation, summary};
use event::{
    Event, What,
    clock::Timestamp,
    finding::{Finding, State},
    record::{Body, CoverageItem, Record, Summary},
};
use sink::{Sink, SinkError};

/// The cause under which damaged lines are counted.
const DAMAGED: &str = "recording-damaged";

/// Changes of findings that are told of one recording: who reads more than
/// these reads none of them, and a recording can be somebody else's.
const MAX_TOLD: u64 = 16_384;

/// Claims and holders of all that is told: one finding can have thousands.
const MAX_ITEMS: u64 = 200_000;

/// How much was told of what can be somebody else's.
#[derive(Debug, Default)]
pub(super) struct FindingBudget {
    /// Changes of findings.
    changes: u64,
    /// Claims and holders of these.
    items: u64,
}

impl FindingBudget {
    /// Whether this one is to be told as well.
    pub(super) fn has_room_for(&mut self, finding: &Finding) -> bool {
        self.changes += 1;
        self.items += (finding.evidence.len() + finding.holders.len()) as u64;
        self.changes <= MAX_TOLD && self.items <= MAX_ITEMS
    }
}

/// More findings than so many at a time are an attack, or a disaster.
const FEW: usize = 100;
/// So many beyond these may be judged again, all ticks together: some 20 s.
const MAX_JUDGED: u64 = 2_000_000;
/// After that so many ticks are passed over at a time, at most.
const MOST_PASSED_OVER: u64 = 4_096;

pub(super) struct Run {
    header: Header,
    name: String,
    sinks: Vec<Box<dyn Sink>>,
    engine: Telling,
    /// What the run saw, once that is known.
    items: Option<Vec<CoverageItem>>,
    /// It has been told.
    covered: bool,
    gaps: Gaps,
    /// When the last thing happened.
    last: Timestamp,
    /// When the run ended, if it says so.
    ended: Option<Timestamp>,
    /// Events came after the last tick, or after the last judgement.
    pending: bool,
    told: FindingBudget,
    judging: Judging,
}

/// How often findings are judged: whoever has made a recording chooses how many
/// there are, and how often they are asked for.
#[derive(Debug, Default)]
struct Judging {
    judged: u64,
    /// Ticks that are passed over now, and the next time.
    wait: u64,
    next: u64,
}

impl Judging {
    /// Whether a tick counts, with so many findings open.
    fn counts(&mut self, open: usize) -> bool {
        self.judged += open.saturating_sub(FEW) as u64;
        if self.judged <= MAX_JUDGED {
            return true;
        }
        if self.wait > 0 {
            self.wait -= 1;
            return false;
        }
        self.next = (2 * self.next).clamp(1, MOST_PASSED_OVER);
        self.wait = self.next;
        true
    }
}

/// When findings are told.
enum Telling {
    Stream(Box<Engine>),
    Confirmation(Box<Confirmation>),
}

impl Run {
    pub(super) fn new(header: Header, name: &str, sinks: Vec<Box<dyn Sink>>) -> Self {
        let settings = header.settings();
        let mut gaps = Gaps::default();
        if header.part > 0 {
            gaps.begins(name, header.part);
        }
        Self {
            engine: match header.command {
                Command::Trace => Telling::Stream(Box::new(Engine::of_trace(settings))),
                Command::Scan => Telling::Confirmation(Box::new(Confirmation::new(settings))),
            },
            name: name.to_owned(),
            sinks,
            items: None,
            covered: false,
            gaps,
            last: header.time,
            ended: None,
            pending: false,
            told: FindingBudget::default(),
            judging: Judging::default(),
            header,
        }
    }

    /// Whether another file has the next part of this recording.
    pub(super) fn goes_on_in(&self, header: &Header) -> bool {
        self.ended.is_none() && self.header.goes_on_in(header)
    }

    pub(super) fn next_part(&mut self) {
        self.header.part += 1;
    }

    /// Takes in what happened.
    pub(super) fn event(&mut self, event: &Event) -> Result<(), SinkError> {
        if event.what == What::Tick
            && let Telling::Stream(engine) = &self.engine
            && !self.judging.counts(engine.open_count())
        {
            self.pending = true;
            self.gaps.passed_over();
            return Ok(());
        }
        self.judge(event)
    }

    fn judge(&mut self, event: &Event) -> Result<(), SinkError> {
        self.last = self.last.max(event.time);
        self.pending = event.what != What::Tick || matches!(self.engine, Telling::Confirmation(_));
        let told = match &mut self.engine {
            Telling::Stream(engine) => engine.apply(event),
            Telling::Confirmation(looks) => {
                looks.apply(event);
                self.sinks.iter_mut().for_each(|sink| sink.look(event));
                return Ok(());
            }
        };
        self.cover()?;
        let node = self.header.node.clone();
        if !event.what.is_internal() {
            self.write(&Record::event(&node, event))?;
        }
        for (finding, state) in told {
            self.write(&Record::finding(&node, event.time, &finding, state))?;
        }
        Ok(())
    }

    /// Takes in what is no event.
    pub(super) fn note(&mut self, note: Marker) -> Result<(), SinkError> {
        match (note, &mut self.engine) {
            (Marker::Coverage { signals }, telling) => {
                self.items = Some(signals);
                if matches!(telling, Telling::Stream(_)) {
                    self.cover()?;
                }
            }
            (Marker::Looked, Telling::Confirmation(looks)) => looks.looked(),
            (Marker::Judged, Telling::Confirmation(looks)) => {
                looks.judged();
                self.pending = false;
            }
            (Marker::Looked | Marker::Judged, Telling::Stream(_)) => {}
            (Marker::Ended { time }, _) => self.ended = Some(time),
        }
        Ok(())
    }

    /// Something that only a newer version knows.
    pub(super) fn unknown(&mut self, kind: &str) {
        self.gaps.unknown(kind);
    }

    /// A line that cannot be understood: an event is lost, and so may findings
    /// be.
    pub(super) fn damaged(&mut self, line: u64, why: &str) -> Result<(), SinkError> {
        self.gaps.damaged(&self.name, line, why);
        self.event(&Event {
            time: self.last,
            what: What::EventsLost {
                cause: String::from(DAMAGED),
                count: 1,
            },
        })
    }

    /// So many texts were too long, and were cut.
    pub(super) fn texts_cut(&mut self, number: u64) {
        self.gaps.texts_cut(number);
    }

    /// The last line is not whole.
    pub(super) fn torn(&mut self) {
        self.gaps.ends(
            &self.name,
            "its last line is not whole: the recording run was killed, or the disk was full",
        );
    }

    /// It cannot be read to its end.
    pub(super) fn breaks_off(&mut self) {
        self.gaps
            .ends(&self.name, "it could not be read to its end");
    }

    /// Whether the readers of all outputs have gone.
    pub(super) fn is_unheard(&self) -> bool {
        self.sinks.is_empty()
    }

    /// What was found so far.
    pub(super) fn found(&self) -> Outcome {
        outcome(&self.summary())
    }

    /// Tells what is to be told at the end. Returns what was found.
    pub(super) fn finish(mut self) -> Result<Outcome, SinkError> {
        if self.ended.is_none() {
            self.gaps.ends(
                &self.name,
                "it stops without an end: the recording run was killed, the disk was full, or it \
                 still goes on",
            );
        }
        if self.pending {
            self.settle()?;
        }
        self.cover()?;
        let now = self.ended.unwrap_or(self.last);
        let node = self.header.node.clone();
        if let Telling::Confirmation(looks) = &self.engine {
            let open: Vec<_> = looks.engine().open().into_iter().cloned().collect();
            for finding in open {
                self.write(&Record::finding(&node, now, &finding, State::Open))?;
            }
        }
        let summary = self.summary();
        self.write(&Record::summary(&node, now, &summary))?;
        for sink in &mut self.sinks {
            crate::output::quietly(sink.flush())?;
        }
        Ok(outcome(&summary))
    }

    /// What came after the last tick counts, too; what was seen in one look
    /// only does not.
    fn settle(&mut self) -> Result<(), SinkError> {
        let engine = match &self.engine {
            Telling::Stream(engine) => engine,
            Telling::Confirmation(looks) => looks.engine(),
        };
        let not_before = engine.not_before();
        let time = not_before.map_or(self.last, |pause| pause.max(self.last));
        self.judge(&Event {
            time,
            what: What::Tick,
        })?;
        if let Telling::Confirmation(looks) = &mut self.engine {
            looks.looked();
            looks.judged();
        }
        Ok(())
    }

    /// Tells what the run saw, once.
    fn cover(&mut self) -> Result<(), SinkError> {
        if std::mem::replace(&mut self.covered, true) {
            return Ok(());
        }
        let Header {
            command,
            time,
            node,
            version,
            ..
        } = &self.header;
        let by = match version {
            Some(version) => format!(" (node-tracer {version})"),
            None => String::new(),
        };
        let own = CoverageItem {
            signal: String::from("recording"),
            mechanism: Some(format!("{}, of {}{by}", self.name, command.as_str())),
            reason: None,
            unknown: match self.items {
                Some(_) => Vec::new(),
                None => vec![String::from("what the recorded run could see")],
            },
        };
        let mut items = self.items.clone().unwrap_or_default();
        items.push(own);
        let (time, node) = (*time, node.clone());
        self.write(&Record::coverage(&node, time, &items))
    }

    fn summary(&self) -> Summary {
        let took = self.ended.unwrap_or(self.last).since(self.header.time);
        let items = self.items.as_deref().unwrap_or_default();
        let mut summary = match &self.engine {
            Telling::Stream(engine) => summary::of_stream(engine, took),
            Telling::Confirmation(looks) => summary::of_looks(looks.engine(), items, took),
        };
        for rule in &mut summary.not_checked {
            rule.fix = format!("record again with {}", rule.fix);
        }
        summary.unknown.extend(self.gaps.texts());
        summary
    }

    fn write(&mut self, record: &Record<'_>) -> Result<(), SinkError> {
        if let Body::Finding { finding, .. } = record.body
            && !self.told.has_room_for(finding)
        {
            self.gaps.too_many();
            return Ok(());
        }
        crate::output::to_listeners(&mut self.sinks, record)
    }
}

fn outcome(summary: &Summary) -> Outcome {
    Outcome::of(summary.worst_seen, &summary.not_checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_run_is_judged_at_every_tick_and_a_hostile_one_ever_more_rarely() {
        let judged = |open: usize, ticks: usize| {
            let mut judging = Judging::default();
            (0..ticks).filter(|_| judging.counts(open)).count()
        };
        assert_eq!(judged(FEW, 1_000_000), 1_000_000);
        let hostile = judged(FEW + 2_000, 100_000);
        assert!((1_000..1_100).contains(&hostile), "{hostile}");
    }
}
