//! Text for somebody at a terminal on a bad night: aligned, short, the
//! important thing first.
//!
//! Events are single quiet lines, incidents are blocks set apart: findings of
//! one time are held until something else comes, and those that belong together
//! are one block. What changes prints only what is new; for that the sink
//! remembers, within bounds, what it has printed. A verbose sink prints every
//! finding by itself, with all of its evidence. Colours come only if the caller says that the
//! output is a terminal. All times are UTC, and the date is printed once a day.
//! Nothing that the kernel, a pod or a plugin has named is printed unescaped.

use std::{borrow::Cow, collections::BTreeMap, io, time::Duration};

use self::{
    memory::Memory,
    style::{Painter, Style},
};
use super::{Lines, Shown, Sink, SinkError};
use event::wording::{duration::length, escape::Printable};
use event::{
    Event,
    clock::Timestamp,
    finding::{Finding, Rule, Severity, State},
    not_checked,
    record::{Body, Count, CoverageItem, Record, Summary},
};

mod eni;
mod events;
mod explanation;
mod finding;
mod frame;
mod incident;
mod memory;
mod repair;
mod style;
mod wrap;

/// Columns of text that is not for a terminal.
pub const COLUMNS: usize = 100;

/// Prints records as text.
pub struct TextSink<W> {
    lines: Lines<W>,
    paint: Painter,
    /// How wide a line is, now.
    columns: fn() -> usize,
    /// Coverage is told in a few lines.
    brief: bool,
    /// The worst of each incident of a look.
    incidents: BTreeMap<String, Severity>,
    /// Findings of one time that are not printed yet.
    held: Vec<incident::Held>,
    /// Findings and answers are told, and nothing else.
    quiet: bool,
    /// How much more is told than what has to be done: with 1 what was seen and what
    /// was not, and the run in numbers.
    verbose: u8,
    /// Columns that an event's line may take, now; `None` if it is for no terminal.
    edge: fn() -> Option<usize>,
    /// The same as of that time.
    edge_at: Option<(Timestamp, Option<usize>)>,
    /// What is told is a look: it has a header and a footer.
    is_look: bool,
    /// The date that was last printed.
    date: String,
    /// The node that was last named.
    node: String,
    /// The last thing printed was a block, and what follows is set apart.
    after_block: bool,
    memory: Memory,
}

impl<W: io::Write> TextSink<W> {
    /// Prints to `out`, with colours if it is a terminal that has them.
    pub fn new(out: W, colour: bool) -> Self {
        Self {
            lines: Lines::new(out),
            paint: Painter {
                colour,
                width: COLUMNS,
            },
            columns: || COLUMNS,
            quiet: false,
            verbose: 0,
            edge: || None,
            edge_at: None,
            is_look: false,
            brief: false,
            incidents: BTreeMap::new(),
            held: Vec::new(),
            date: String::new(),
            node: String::new(),
            after_block: false,
            memory: Memory::default(),
        }
    }

    /// The same, with coverage in a few lines: for a stream, where it is not
    /// what the reader came for.
    pub fn brief(self) -> Self {
        Self {
            brief: true,
            ..self
        }
    }

    /// The same for an output that is as wide as this says whenever it is asked.
    pub fn wide(self, columns: fn() -> usize) -> Self {
        Self { columns, ..self }
    }

    /// The same without what is neither a finding nor an answer: single events,
    /// what is seen and what is not, the run in numbers.
    pub fn quiet(self, quiet: bool) -> Self {
        Self { quiet, ..self }
    }

    /// The same with more of what is known.
    pub fn verbose(self, verbose: u8) -> Self {
        Self { verbose, ..self }
    }

    /// The same for a terminal: an event takes one line of it.
    pub fn cut_at(self, edge: fn() -> Option<usize>) -> Self {
        Self { edge, ..self }
    }

    /// The date and the node, if they are not those last printed.
    fn day(&mut self, time: Timestamp, node: &str) -> String {
        let today = style::date(time);
        let same = node == self.node;
        if today == self.date && same {
            return String::new();
        }
        let first = self.date.is_empty();
        self.date.clone_from(&today);
        node.clone_into(&mut self.node);
        let node = Printable(node);
        let line = match first {
            true => format!("{today}, times are UTC; node {node}"),
            false if same => today,
            false => format!("{today}, node {node}"),
        };
        self.paint.paint(Style::Title, line) + "\n"
    }

    /// A finding's lines; `None` if there is nothing to tell.
    fn finding(&mut self, now: Timestamp, finding: &Finding, state: State) -> Option<String> {
        let before = self.memory.take(&finding.id);
        let known = before.is_some();
        if state == State::Resolved {
            if known {
                self.memory.forget(&finding.id);
            }
            return Some(finding::resolved(self.paint, now, finding, ""));
        }
        let before = before.filter(|_| state == State::Updated);
        let (text, printed) = finding::block(self.paint, now, finding, before, &self.memory);
        self.memory.keep(&finding.id, printed, known);
        (!text.is_empty()).then_some(text)
    }

    fn event(&mut self, event: &Event) -> Option<String> {
        let line = events::line(event)?;
        let time = event.time.time_of_day();
        let text = format!("{:<16}  {}", line.kind, line.text);
        let text = match self.edge(event.time) {
            Some(edge) => wrap::cut(&text, edge.saturating_sub(time.len() + 2)),
            None => Cow::Borrowed(text.as_str()),
        };
        let text = self.paint.paint(line.style, text);
        Some(format!("{time}  {text}\n"))
    }

    /// A window changes, though not a thousand times a second.
    fn edge(&mut self, now: Timestamp) -> Option<usize> {
        match self.edge_at {
            Some((at, edge)) if now >= at && now.since(at) < Duration::from_secs(1) => edge,
            _ => {
                let edge = (self.edge)();
                self.edge_at = Some((now, edge));
                edge
            }
        }
    }

    /// Signals by mechanism in one line; then what is not seen, and what that
    /// leaves unknown.
    fn brief_coverage(&self, items: &[CoverageItem]) -> String {
        let mut ways: Vec<(&str, Vec<String>)> = Vec::new();
        for item in items {
            let Some(how) = &item.mechanism else {
                continue;
            };
            let signal = Printable(&item.signal).to_string();
            match ways.iter_mut().find(|(way, _)| way == how) {
                Some((_, signals)) => signals.push(signal),
                None => ways.push((how, vec![signal])),
            }
        }
        let ways: Vec<String> = ways
            .into_iter()
            .map(|(how, signals)| format!("{} ({})", signals.join(", "), Printable(how)))
            .collect();
        let mut text = format!("sees   {}\n", self.paint.hanging(&ways.join("; "), 7, 9));
        for item in items.iter().filter(|item| item.mechanism.is_none()) {
            let signal = Printable(&item.signal);
            let blind = self.paint.paint(Style::Warning, format!("BLIND  {signal}"));
            let why = item.reason.as_deref().unwrap_or("no mechanism");
            let begin = 9 + signal.to_string().chars().count();
            let why = self.paint.hanging(&Printable(why).to_string(), begin, 9);
            text += &format!("{blind}: {why}\n");
            for unknown in &item.unknown {
                let unknown = self.paint.hanging(&Printable(unknown).to_string(), 16, 16);
                text += &format!("       unknown: {unknown}\n");
            }
        }
        text
    }

    fn coverage(&mut self, record: &Record<'_>, items: &[CoverageItem]) -> String {
        self.is_look = self.brief && frame::is_of_look(items);
        if self.is_look {
            // It has the date and the node, and the day of what follows.
            self.date = style::date(record.time);
            record.node.clone_into(&mut self.node);
            let header = frame::header(self.paint, record.node, record.time, items);
            return match self.verbose {
                0 => header,
                _ => header + "\n" + &self.brief_coverage(items),
            };
        }
        if self.brief {
            return self.brief_coverage(items);
        }
        let width = |cell: fn(&CoverageItem) -> usize| items.iter().map(cell).max().unwrap_or(0);
        let signals = width(|item| Printable(&item.signal).to_string().chars().count());
        let mut text = String::new();
        let mut above = None;
        for item in items {
            let signal = format!("{:<signals$}", Printable(&item.signal).to_string());
            let column = 9 + signal.chars().count();
            let reason = item.reason.as_deref();
            let said = match (&item.mechanism, reason) {
                (Some(how), None) => how.clone(),
                (Some(how), Some(_)) if above == reason => format!("{how} (as above)"),
                (Some(how), Some(why)) => format!("{how} ({why})"),
                (None, why) => why.unwrap_or("no mechanism").to_owned(),
            };
            above = reason;
            let said = Printable(said).to_string();
            let said = self.paint.hanging(&said, column, column + 2);
            text += &match item.mechanism {
                Some(_) => format!("sees   {signal}  {said}\n"),
                None => {
                    let blind = self.paint.paint(Style::Warning, format!("BLIND  {signal}"));
                    format!("{blind}  {said}\n")
                }
            };
            for unknown in &item.unknown {
                let unknown = format!("unknown: {}", Printable(unknown));
                let unknown = self.paint.hanging(&unknown, column, column + 2);
                text += &format!("{:column$}{unknown}\n", "");
            }
        }
        text
    }

    fn summary(&self, summary: &Summary) -> String {
        let mut incidents: BTreeMap<Severity, u64> = BTreeMap::new();
        for severity in self.incidents.values() {
            *incidents.entry(*severity).or_default() += 1;
        }
        let not_checked = frame::not_checked(self.paint, summary);
        if !self.is_look {
            return self.numbers(summary) + &not_checked;
        }
        let footer = frame::footer(self.paint, summary, &incidents);
        match self.verbose {
            0 => not_checked + &frame::gaps(self.paint, summary) + &footer,
            _ => {
                self.numbers(summary)
                    + "
" + &not_checked + &footer
            }
        }
    }

    /// What is told with --quiet, too: that a rule could not look.
    fn last_words(&mut self, summary: &Summary) -> Result<Shown, SinkError> {
        let all = &summary.not_checked;
        if all.is_empty() {
            return Ok(Shown::No);
        }
        let found = summary.worst_open >= Some(Severity::Info);
        let text = match found {
            true => not_checked::lines(all).join("\n"),
            false => not_checked::line(all),
        };
        let lines = text.lines().map(|line| Printable(line).to_string() + "\n");
        self.lines.put(lines.collect::<String>().as_bytes())?;
        Ok(Shown::Yes)
    }

    /// The run in numbers.
    fn numbers(&self, summary: &Summary) -> String {
        let Summary {
            rules,
            severities,
            events_seen,
            events_lost,
            unknown,
            not_checked: _,
            duration_ms,
            worst_open,
            worst_seen,
        } = summary;
        let took = length(Duration::from_millis(*duration_ms));
        let style = worst_open.map_or(Style::Good, Style::from);
        let open = match findings(severities.iter().rev(), Severity::as_str, |count| {
            count.open
        }) {
            Some(list) => format!("open: {list}"),
            None => "nothing open".to_owned(),
        };
        let mut text = format!("{}; ran for {took}", self.paint.paint(style, open));
        if let (None, Some(worst)) = (worst_open, worst_seen) {
            text += &format!("; the worst that was: {}", worst.as_str());
        }
        text.push('\n');
        if let Some(list) = findings(rules.iter(), Rule::as_str, |count| count.open) {
            text += &format!("  open      {list}\n");
        }
        if let Some(list) = findings(rules.iter(), Rule::as_str, |count| count.resolved) {
            text += &format!("  resolved  {list}\n");
        }
        text += &format!("  {} seen, ", style::count(*events_seen, "event"));
        text += &match events_lost.values().all(|count| *count == 0) {
            true => "none lost\n".to_owned(),
            false => {
                let lost = format!("LOST {}", events::losses(events_lost));
                format!(
                    "{}: there may be more\n",
                    self.paint.paint(Style::Warning, lost)
                )
            }
        };
        for unknown in unknown {
            let unknown = self.paint.hanging(&Printable(unknown).to_string(), 12, 14);
            text += &format!("  unknown   {unknown}\n");
        }
        text
    }
}

/// `2 ghost-sandbox, 1 blocked-task`: what `number` counts, worst first.
fn findings<'a, K: Copy + 'a>(
    counts: impl Iterator<Item = (&'a K, &'a Count)>,
    name: fn(K) -> &'static str,
    number: fn(&Count) -> u64,
) -> Option<String> {
    let list: Vec<_> = counts
        .filter(|(_, count)| number(count) > 0)
        .map(|(key, count)| format!("{} {}", style::grouped(number(count)), name(*key)))
        .collect();
    (!list.is_empty()).then(|| list.join(", "))
}

impl<W: io::Write> TextSink<W> {
    /// Prints the findings that were held, as incidents.
    fn release(&mut self) -> Result<(), SinkError> {
        if self.held.is_empty() {
            return Ok(());
        }
        self.paint.width = (self.columns)();
        let held = std::mem::take(&mut self.held);
        let ids: Vec<String> = held.iter().map(|one| one.finding.id.clone()).collect();
        let (time, node) = (held[0].time, held[0].node.clone());
        let printed = incident::text(self.paint, !self.is_look, held, &mut self.memory);
        let incident::Printed { text, has_blocks } = printed;
        if text.is_empty() {
            return Ok(());
        }
        let is_apart = !self.date.is_empty() && (has_blocks || self.after_block);
        let date = self.date.clone();
        let day = self.day(time, &node);
        let apart = if is_apart { "\n" } else { "" };
        if let Err(error) = self.lines.put(format!("{apart}{day}{text}").as_bytes()) {
            // The reader has not seen it: what builds on it is told in full.
            self.date = date;
            for id in ids {
                self.memory.is_over(&id);
            }
            return Err(error);
        }
        self.after_block = has_blocks;
        Ok(())
    }

    /// Keeps a finding until those of the same time have come.
    fn hold(
        &mut self,
        record: &Record<'_>,
        finding: &Finding,
        state: State,
    ) -> Result<Shown, SinkError> {
        let is_other =
            |first: &incident::Held| first.time != record.time || first.node != record.node;
        if self.held.first().is_some_and(is_other) {
            self.release()?;
        }
        self.held.push(incident::Held {
            time: record.time,
            node: record.node.to_owned(),
            finding: finding.clone(),
            state,
        });
        Ok(Shown::Yes)
    }
}

impl<W: io::Write> Sink for TextSink<W> {
    fn write(&mut self, record: &Record<'_>) -> Result<Shown, SinkError> {
        if let Body::Finding { finding, .. } = record.body
            && self.is_look
        {
            let incident = finding.incident().to_owned();
            let worst = self.incidents.entry(incident).or_insert(finding.severity);
            *worst = finding.severity.max(*worst);
        }
        match record.body {
            Body::Finding { finding, state } if self.verbose == 0 => {
                return self.hold(record, finding, state);
            }
            _ => self.release()?,
        }
        if self.quiet {
            match record.body {
                Body::Summary(summary) => return self.last_words(summary),
                Body::Event(_) | Body::Coverage(_) => return Ok(Shown::No),
                _ => {}
            }
        }
        if !matches!(record.body, Body::Event(_)) {
            self.paint.width = (self.columns)();
        }
        let first = self.date.is_empty();
        // Blocks have an empty line on both sides, and never two.
        let (text, is_block) = match record.body {
            Body::Event(event) => match self.event(event) {
                Some(line) => (line, false),
                None => return Ok(Shown::No),
            },
            Body::Finding { finding, state } => match self.finding(record.time, finding, state) {
                Some(text) => (text, state != State::Resolved),
                None => return Ok(Shown::No),
            },
            Body::Coverage(items) => {
                let text = self.coverage(record, items);
                let apart = if first { "" } else { "\n" };
                if self.is_look {
                    self.lines.put(format!("{apart}{text}").as_bytes())?;
                    self.after_block = true;
                    return Ok(Shown::Yes);
                }
                (text, true)
            }
            Body::Explanation(explained) => {
                // The answer comes first, even before the date.
                self.date = style::date(record.time);
                let text = explanation::text(
                    self.paint,
                    record.time,
                    record.node,
                    explained,
                    self.verbose,
                );
                self.lines.put(text.as_bytes())?;
                self.after_block = true;
                return Ok(Shown::Yes);
            }
            Body::Eni(enis) => (eni::text(self.paint, enis, self.verbose), false),
            Body::Summary(summary) => (self.summary(summary), true),
            Body::Plan { plan, file } => (repair::plan(self.paint, record.time, plan, file), false),
            Body::Repair(outcome) => (repair::outcome(self.paint, outcome), false),
            Body::RepairSummary(totals) => (repair::summary(self.paint, totals), true),
        };
        let date = self.date.clone();
        let day = self.day(record.time, record.node);
        let apart = if !first && (is_block || self.after_block) {
            "\n"
        } else {
            ""
        };
        if let Err(error) = self.lines.put(format!("{apart}{day}{text}").as_bytes()) {
            // The reader has not seen it: what builds on it is told in full.
            self.date = date;
            if let Body::Finding { finding, .. } = record.body {
                self.memory.take(&finding.id);
                self.memory.forget(&finding.id);
            }
            return Err(error);
        }
        self.after_block = is_block;
        Ok(Shown::Yes)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.release()?;
        self.lines.flush()
    }
}

#[cfg(test)]
mod tests;
