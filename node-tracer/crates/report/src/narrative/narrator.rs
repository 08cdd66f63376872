//! From what happened to sentences.

use std::{collections::BTreeSet, time::Duration};

use super::{
    super::{
        history::History,
        incident::Incident,
        lanes::{Lane, Mark, MarkKind, Serial, Stall},
        prose::{Calendar, Prose},
        sheet::Sheet,
    },
    item::{Item, Passage, items},
    naming::{list, who},
};
use event::{
    clock::Timestamp,
    wording::{duration::length, plural::counted, subjects::pod_word},
};

/// Sentences from the beginning of an incident, and from its end.
const FIRST: usize = 24;
const LAST: usize = 8;
/// Sentences of one paragraph.
const PARAGRAPH: usize = 6;
/// How much later CNI DEL comes in an ordinary deletion.
const ORDINARY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Narrator<'a> {
    pub(super) sheet: &'a Sheet,
    pub calendar: Calendar,
    /// Of each recording whether CNI calls are seen, so that one that was not seen did
    /// not come.
    sees_calls: Vec<bool>,
    /// Sandboxes that have been named in full.
    pub introduced: BTreeSet<Serial>,
    /// The last sentence was about this one.
    subject: Option<Serial>,
}

impl<'a> Narrator<'a> {
    pub fn new(sheet: &'a Sheet) -> Self {
        let sees_calls = |part: usize| {
            let items = sheet.coverage_of(part).iter();
            let mut calls = items.filter(|item| item.signal == "cni-call");
            let covered = calls.any(|item| item.mechanism.is_some());
            let mut lanes = sheet.lanes.all().filter(|(_, lane)| lane.part == part);
            covered || lanes.any(|(_, lane)| !lane.calls.is_empty())
        };
        Self {
            sheet,
            calendar: sheet.calendar(),
            sees_calls: (0..sheet.parts.len().max(1)).map(sees_calls).collect(),
            introduced: BTreeSet::new(),
            subject: None,
        }
    }

    pub fn moment(&self, at: Timestamp) -> String {
        self.calendar.moment(at)
    }

    /// What happened, in paragraphs.
    pub fn paragraphs(&mut self, incident: &Incident<'_>) -> Vec<Vec<Prose>> {
        let items = items(self.sheet, incident);
        let skipped = match items.len() > FIRST + LAST + 1 {
            true => FIRST..items.len() - LAST,
            false => 0..0,
        };
        let mut paragraphs: Vec<Vec<Prose>> = vec![Vec::new()];
        for (place, item) in items.iter().enumerate() {
            let sentences = match skipped.contains(&place) {
                true if place == skipped.start => vec![self.skip(&items[skipped.clone()])],
                true => continue,
                false => self.item(item),
            };
            let last = paragraphs.last().map_or(0, Vec::len);
            if (item.what.is_turn() && last > 0) || last >= PARAGRAPH {
                paragraphs.push(Vec::new());
            }
            if let Some(paragraph) = paragraphs.last_mut() {
                paragraph.extend(sentences);
            }
        }
        let asleep = self.asleep(incident);
        if !asleep.is_empty() {
            paragraphs.push(asleep);
        }
        paragraphs.retain(|paragraph| !paragraph.is_empty());
        if paragraphs.is_empty() {
            let found = incident.findings.iter().take(PARAGRAPH);
            let found = found.map(|history| {
                let title = &history.worst.title;
                self.on(history.opened)
                    .say("this was found: ")
                    .say(title)
                    .say(".")
            });
            paragraphs.push(found.collect());
        }
        paragraphs
    }

    /// What a finding said, and when.
    pub fn finding(&self, history: &History) -> Prose {
        let mut calendar = self.sheet.calendar();
        let mut moment = |at: Timestamp| {
            let text = calendar.moment(at);
            calendar.turn_to(at);
            text
        };
        let rule = history.worst.rule.as_str();
        let mut prose = Prose::default().name(rule).say(" was reported");
        if self.sheet.has_nodes() {
            prose = prose.say(" by ").name(self.sheet.node_of(history.part));
        }
        prose = prose.say(" at ");
        prose = prose.at(moment(history.opened));
        let mut steps = history.steps.iter();
        if let Some(phase) = steps.next().and_then(|step| step.phase) {
            prose = prose.say(format!(" ({})", phase.as_str()));
        }
        for step in steps {
            let now = match step.phase {
                Some(phase) => phase.as_str(),
                None => step.severity.as_str(),
            };
            prose = prose.say(format!(", became {now} at ")).at(moment(step.at));
        }
        match history.resolved {
            Some(at) => prose.say(" and was over at ").at(moment(at)).say("."),
            None => prose.say(" and was not over at the end of the recording."),
        }
    }

    fn skip(&mut self, items: &[Item<'_>]) -> Prose {
        let lanes: BTreeSet<Serial> = items.iter().map(|item| item.serial).collect();
        self.subject = None;
        Prose::default().say(format!(
            "{} of {} follow; the timeline has them as far as there is room.",
            counted(items.len(), "more event"),
            counted(lanes.len(), "sandbox"),
        ))
    }

    fn item(&mut self, item: &Item<'_>) -> Vec<Prose> {
        let Some(lane) = self.sheet.lanes.get(item.serial) else {
            return Vec::new();
        };
        let (serial, at) = (item.serial, item.at);
        let sentences = match &item.what {
            Passage::Had(addresses) => {
                let prose = Prose::default().say("When the recording began, ");
                let prose = self
                    .name(prose, serial, lane)
                    .say(" was there already and had ");
                vec![prose.name(list(addresses)).say(".")]
            }
            Passage::Mark(mark) => self.mark(serial, lane, mark),
            Passage::Failures(mark, more, last) => self.failures(serial, lane, mark, *more, *last),
            Passage::Slept(stall) => vec![self.slept(serial, lane, stall)],
            Passage::Woke(stall) => {
                let prose = self.on(at).say(who(stall)).say(" woke, after ");
                vec![prose.say(length(at.since(stall.since))).say(".")]
            }
            Passage::LeftAlone(held, other, since) => {
                let prose = self.on(at);
                let prose = self.name(prose, serial, lane).say(" lost ");
                let prose = prose.name(held.address).say(": from then on ");
                let Some(rest) = self.sheet.lanes.get(*other) else {
                    return Vec::new();
                };
                let both = length(at.since(*since));
                let prose = self.name(prose, *other, rest).say(" had it alone, ");
                vec![prose.say(format!("after {both} in which both had it."))]
            }
            Passage::Ended => vec![self.ended(serial, lane)],
            Passage::More(more, last) => {
                let pod = lane.pod.as_ref().map(pod_word);
                let prose =
                    Prose::default().say(format!("{} of pod ", counted(*more, "more sandbox")));
                let prose = prose.name(pod.unwrap_or_default());
                let prose = prose.say(" came and went until ").at(self.moment(*last));
                vec![prose.say("; the timeline has them as far as there is room.")]
            }
        };
        self.subject = Some(serial);
        sentences
    }

    fn mark(&mut self, serial: Serial, lane: &Lane, mark: &Mark) -> Vec<Prose> {
        let at = mark.at;
        let named = |this: &mut Self| {
            let prose = this.on(at);
            this.name(prose, serial, lane)
        };
        let sentence = match mark.kind {
            MarkKind::Add => {
                let prose = named(self).say(" was given ").name(list(&mark.addresses));
                prose.say(format!(" (CNI ADD, {}).", mark.text))
            }
            MarkKind::GivenAgain => self.given_again(serial, lane, mark),
            MarkKind::PodDeleted | MarkKind::NotListed => {
                return self.deleted(serial, lane, mark);
            }
            MarkKind::Terminating => {
                let prose = self.on(at).say("the pod of ");
                self.name(prose, serial, lane).say(" was Terminating.")
            }
            MarkKind::Freed => {
                let prose = self
                    .on(at)
                    .say("the reservation of ")
                    .name(list(&mark.addresses));
                let prose = match mark.text.as_str() {
                    "" => prose.say(" was gone"),
                    text => prose.say(format!(" was not its own any more ({text})")),
                };
                prose.say(": from then on the address could be handed out.")
            }
            MarkKind::Del => {
                let prose = self.on(at).say("CNI DEL for ");
                self.name(prose, serial, lane).say(" ended well.")
            }
            MarkKind::NotDone => {
                let prose = self
                    .on(at)
                    .say("it was looked at what the call had done for ");
                self.name(prose, serial, lane)
                    .say(format!(": {}.", mark.text))
            }
            // More than one source can say so, each with a time of its own.
            MarkKind::Made if lane.first(MarkKind::Made).is_some_and(|it| it != mark) => {
                return Vec::new();
            }
            MarkKind::Made => {
                let prose = self.on(at).say("the runtime made ");
                self.name(prose, serial, lane)
                    .say(format!(" ({}).", mark.text))
            }
            MarkKind::Removed => {
                named(self).say(format!(" was not listed by {} any more.", mark.text))
            }
            MarkKind::EndpointWritten => {
                let prose = self.on(at).say("the entry ").name(&mark.text);
                let prose = prose.say(" was written for ");
                self.name(prose, serial, lane).say(".")
            }
            MarkKind::EndpointDeleted => {
                let prose = self.on(at).say("the entry ").name(&mark.text);
                let prose = prose.say(" of ");
                self.name(prose, serial, lane).say(" was deleted.")
            }
            MarkKind::Killed => {
                let prose = self.on(at).say("memory was short, and the kernel chose ");
                let prose = prose.say(&mark.text).say(" of ");
                self.name(prose, serial, lane).say(" to be killed.")
            }
            MarkKind::AddFailed
            | MarkKind::DelFailed
            | MarkKind::StartFailed
            | MarkKind::Waiting
            | MarkKind::Source
            | MarkKind::Lost => return Vec::new(),
        };
        vec![sentence]
    }

    /// The same address again, and how long it had been free.
    fn given_again(&mut self, serial: Serial, lane: &Lane, mark: &Mark) -> Prose {
        let others = self.sheet.lanes.all();
        let others = others.filter(|(other, its)| *other != serial && its.part == lane.part);
        let had = |lane: &Lane| {
            lane.held.iter().any(|held| {
                mark.addresses.contains(&held.address)
                    && held.until.is_none_or(|until| until >= mark.at)
                    && held.since.is_none_or(|since| since < mark.at)
            })
        };
        let other = others
            .filter(|(_, lane)| had(lane))
            .map(|(other, _)| other)
            .next();
        let freed = other.and_then(|other| {
            let lane = self.sheet.lanes.get(other)?;
            let freed = lane.marks.iter().filter(|it| it.kind == MarkKind::Freed);
            let freed = freed.map(|it| it.at).filter(|at| *at <= mark.at);
            freed.max()
        });
        let prose = match freed {
            Some(freed) => Prose::default()
                .say(format!("{} later, at ", length(mark.at.since(freed))))
                .at(self.turn_to(mark.at))
                .say(", "),
            None => self.on(mark.at),
        };
        let prose = self.name(prose, serial, lane).say(" was given ");
        let prose = prose.name(list(&mark.addresses));
        let prose = prose.say(format!(" (CNI ADD, {})", mark.text));
        match other.and_then(|other| Some((other, self.sheet.lanes.get(other)?))) {
            Some((other, had)) => {
                let prose = prose.say(", which ");
                self.name(prose, other, had).say(" still had.")
            }
            None => prose.say(", which another one still had."),
        }
    }

    /// The pod has gone, and whether CNI DEL came.
    fn deleted(&mut self, serial: Serial, lane: &Lane, mark: &Mark) -> Vec<Prose> {
        let source = self.sheet.lanes.pods(lane.part).to_owned();
        let prose = self.on(mark.at).say("the pod of ");
        let prose = self.name(prose, serial, lane);
        let any_more = match mark.kind {
            MarkKind::NotListed => "",
            _ => " any more",
        };
        let prose = prose.say(format!(" was not listed{any_more} ({source})"));
        let prose = match lane.terminating {
            _ if mark.kind == MarkKind::NotListed => prose,
            Some(since) => prose
                .say(", after it had been Terminating since ")
                .at(self.moment(since)),
            None => prose.say(
                ", and had not been seen Terminating before: it was deleted by force, or quickly",
            ),
        };
        let mut sentences = vec![prose.say(".")];
        let del = lane.first_del(mark.at);
        let came = match del {
            _ if self.sees_calls.get(lane.part) != Some(&true) => None,
            Some(at) if at.since(mark.at) <= ORDINARY => None,
            Some(at) => Some(
                Prose::default()
                    .say("No CNI DEL came for it before ")
                    .at(self.moment(at))
                    .say(format!(", {} later.", length(at.since(mark.at)))),
            ),
            None => Some(Prose::default().say("No CNI DEL came for it in the whole recording.")),
        };
        sentences.extend(came);
        sentences
    }

    fn failures(
        &mut self,
        serial: Serial,
        lane: &Lane,
        mark: &Mark,
        more: usize,
        last: Timestamp,
    ) -> Vec<Prose> {
        let what = match mark.kind {
            MarkKind::AddFailed => "CNI ADD for ",
            MarkKind::DelFailed => "CNI DEL for ",
            _ => "the start of ",
        };
        let prose = self.on(mark.at).say(what);
        let prose = self
            .name(prose, serial, lane)
            .say(" failed: ")
            .quote(&mark.text);
        let sentence = match more {
            0 => prose.say("."),
            more => prose
                .say(format!(", and {} until ", counted(more, "more time")))
                .at(self.moment(last))
                .say("."),
        };
        vec![sentence]
    }

    fn slept(&mut self, serial: Serial, lane: &Lane, stall: &Stall) -> Prose {
        let prose = match stall.found {
            true => Prose::default()
                .say("Since ")
                .at(self.moment(stall.since))
                .say(" at the latest "),
            false => self.on(stall.since),
        };
        let prose = match self.subject == Some(serial) {
            true => prose.say("its process ").name(who(stall)),
            false => {
                let prose = prose.say("the process ").name(who(stall)).say(" of ");
                self.name(prose, serial, lane)
            }
        };
        let prose = match stall.found {
            true => prose.say(" was in uninterruptible sleep"),
            false => prose.say(" went into uninterruptible sleep"),
        };
        match &stall.wchan {
            Some(wchan) => prose.say(" in ").name(wchan).say("."),
            None => prose.say("."),
        }
    }

    fn ended(&mut self, serial: Serial, lane: &Lane) -> Prose {
        let netns = lane
            .netns
            .map(|netns| format!("network namespace {}", netns.inode));
        let netns = netns.unwrap_or_else(|| String::from("the network namespace"));
        self.introduced.insert(serial);
        match (lane.dying, lane.gone) {
            (Some(dying), Some(gone)) => self
                .on(dying)
                .say(format!("nothing held {netns} any more, and "))
                .say(format!(
                    "{} later the kernel had taken it down.",
                    length(gone.since(dying))
                )),
            (Some(dying), None) => self.on(dying).say(format!(
                "nothing held {netns} any more; the kernel had not taken it down by the end of the \
                 recording."
            )),
            (None, gone) => match gone {
                Some(gone) => self.on(gone).say(format!("{netns} was gone.")),
                None => Prose::default(),
            },
        }
    }

    /// Who sleeps at the end.
    fn asleep(&self, incident: &Incident<'_>) -> Vec<Prose> {
        let lanes = incident.lanes.iter();
        let lanes = lanes.filter_map(|serial| self.sheet.lanes.get(*serial));
        let asleep = lanes.flat_map(|lane| &lane.stalls);
        let asleep = asleep.filter(|stall| stall.until.is_none());
        let asleep: Vec<&Stall> = asleep.collect();
        let sentences = asleep.iter().take(PARAGRAPH).map(|stall| {
            Prose::default()
                .name(who(stall))
                .say(" still slept when the recording ended.")
        });
        sentences.collect()
    }
}
