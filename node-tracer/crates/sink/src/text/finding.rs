//! Findings as blocks: the verdict first, then who and where, then why, and
//! last, next to the cursor, what to do.

use std::time::Duration;

use super::memory::{Memory, Printed};
use super::style::{Painter, Style, moment, pod, short_id};
use super::wrap;
use event::wording::duration::length;
use event::{
    PodRef,
    clock::Timestamp,
    finding::{Finding, Holder, Phase, Rule},
    wording::escape::Printable,
};

/// Width of the time of day and of the space after it.
const TIME: usize = 14;
/// Width of a label and of the space after it.
const LABEL: usize = 9;
/// How much of a list is printed; the JSON record has all.
const LISTED: usize = 8;
/// The column at which values begin.
const VALUE: usize = TIME + LABEL + 1;

mod calls;
mod holders;
mod reservations;

/// Lines of a block under construction.
struct Block<'a> {
    text: String,
    paint: Painter,
    now: Timestamp,
    finding: &'a Finding,
}

/// A finding's lines, each with its newline, and what is now known to the
/// reader. There are no lines if there is nothing to tell.
pub(super) fn block(
    paint: Painter,
    now: Timestamp,
    finding: &Finding,
    before: Option<Printed>,
    memory: &Memory,
) -> (String, Printed) {
    let mut block = Block {
        text: String::new(),
        paint,
        now,
        finding,
    };
    let Some(mut printed) = before else {
        let mut printed = memory.nothing(finding);
        block.header(None);
        match block.seen_with(memory) {
            Some((rule, id)) => block.see(&mut printed, rule, id),
            None => {
                block.since();
                block.due();
                block.holders(&mut printed, memory);
                block.places();
                block.reservations();
                block.calls();
                block.claims(&mut printed);
            }
        }
        printed.gone(finding);
        printed.is_other(finding);
        return (block.text, printed);
    };
    printed.keep_holders(finding);
    block.header(Some(printed.phase));
    block.due();
    block.holder_count();
    block.attempts();
    let without_news = block.text.len();
    let gone = printed.gone(finding);
    block.claims(&mut printed);
    let mut label = "no longer";
    for claim in gone.iter().filter(|claim| !is_still_so(claim, finding)) {
        block.wrapped(label, "", &Printable(claim).to_string());
        label = "";
    }
    let has_news = block.text.len() > without_news;
    if !printed.is_other(finding) && !has_news {
        block.text.clear();
    }
    (block.text, printed)
}

/// Whether a claim that is not made any more is of a task that still holds
/// what it held: it is only said in other words, or another holder is named.
fn is_still_so(claim: &str, finding: &Finding) -> bool {
    finding.holders.iter().any(|holder| {
        let Holder::Task { pid, comm, .. } = holder else {
            return false;
        };
        let name = format!("{comm} ({pid}");
        let mut now = finding.evidence.iter();
        claim.starts_with(&name)
            && (claim.contains(" holds netns ") || now.any(|one| one.claim.starts_with(&name)))
    })
}

/// The end of a finding, and `others` of the same incident, in one line.
pub(super) fn resolved(paint: Painter, now: Timestamp, finding: &Finding, others: &str) -> String {
    let head = format!("{:<16}  {}", "resolved", finding.rule.as_str());
    format!(
        "{:<TIME$}{}{}{others}  lasted {}  {}  {}\n",
        now.time_of_day(),
        paint.paint(Style::Good, head),
        if others.is_empty() { "" } else { " " },
        length(now.since(finding.since)),
        paint.paint(Style::Quiet, format!("id {}", Printable(&finding.id))),
        Printable(first_clause(&finding.title)),
    )
}

/// A title up to its first colon or semicolon. Those of an IPv6 address have no
/// space after them.
fn first_clause(title: &str) -> &str {
    let end = [": ", "; "].iter().filter_map(|end| title.find(end)).min();
    &title[..end.unwrap_or(title.len())]
}

impl Block<'_> {
    /// The verdict. `before` is the phase that was last printed.
    fn header(&mut self, before: Option<Option<Phase>>) {
        let finding = self.finding;
        let severity = finding.severity.as_str().to_uppercase();
        let stage = match (before, finding.detail.phase) {
            (None, None) => String::new(),
            (None, Some(phase)) => format!("{}  ", phase.as_str()),
            (Some(Some(before)), Some(phase)) if before != phase => {
                format!("{} → {}  ", before.as_str(), phase.as_str())
            }
            (Some(_), Some(phase)) => format!("{}, updated  ", phase.as_str()),
            (Some(_), None) => "updated  ".to_owned(),
        };
        let style = Style::from(finding.severity);
        self.text += &format!(
            "{:<TIME$}{}  {}{}\n",
            self.now.time_of_day(),
            self.paint
                .paint(style, format!("{severity:<8}  {}", finding.rule.as_str())),
            self.paint.paint(style, stage),
            self.paint.paint(Style::Title, Printable(&finding.title)),
        );
    }

    /// A labelled line; the label only before the first of its kind.
    fn line(&mut self, label: &str, value: &str) {
        let label = self.paint.paint(Style::Quiet, format!("{label:<LABEL$}"));
        self.text += &format!("{:TIME$}{label} {value}\n", "");
    }

    /// The same, in several lines if it is long. What hangs is further in than
    /// any value's beginning, so that no name can look like the next line.
    fn wrapped(&mut self, label: &str, quiet: &str, value: &str) {
        let begin = VALUE + quiet.chars().count();
        let rest = if quiet.is_empty() { begin + 4 } else { begin };
        let value = self.paint.hanging(value, begin, rest);
        let quiet = self.paint.paint(Style::Quiet, quiet);
        self.line(label, &format!("{quiet}{value}"));
    }

    /// What of a list of so many was not printed.
    fn and_more(&mut self, all: usize) {
        if all > LISTED {
            self.line("", &format!("… and {} more", all - LISTED));
        }
    }

    fn since(&mut self) {
        let since = self.finding.since;
        let first_seen = self.finding.rule == Rule::BlockedTask
            && self.finding.holders.iter().any(|holder| {
                matches!(
                    holder,
                    Holder::Task {
                        first_seen: true,
                        ..
                    }
                )
            });
        let (word, age) = match (self.finding.detail.first_seen || first_seen, first_seen) {
            (true, true) => (
                "first seen at ",
                format!("or before: {} or more", self.age(since)),
            ),
            (true, false) => ("first seen at ", self.age(since)),
            (false, _) => ("", self.age(since)),
        };
        let id = format!("id {}", Printable(&self.finding.id));
        let id = self.paint.paint(Style::Quiet, id);
        self.line(
            "since",
            &format!("{word}{} ({age})  {id}", moment(since, self.now)),
        );
    }

    /// How long ago `time` was.
    fn age(&self, time: Timestamp) -> String {
        match self.now.since(time) {
            age if age < Duration::from_secs(1) => "just now".to_owned(),
            age => length(age),
        }
    }

    /// When it gets worse. Once it has, the time says nothing.
    fn due(&mut self) {
        let detail = &self.finding.detail;
        let Some(due) = detail.due else { return };
        if matches!(detail.phase, Some(Phase::Armed | Phase::Conflict)) {
            return;
        }
        let distance = match due > self.now {
            true => format!("in {}", length(due.since(self.now))),
            false => format!("{} ago", length(self.now.since(due))),
        };
        let due = moment(due, self.now);
        self.line(
            "due",
            &format!("{due} ({distance}): by then the address can be handed out"),
        );
    }

    /// Which pod, sandbox, namespace and address it is about.
    fn places(&mut self) {
        let finding = self.finding;
        if let Some(of) = finding.pod.as_ref().filter(|of| **of != PodRef::default()) {
            self.wrapped("pod", "", &pod(of));
        }
        if let Some(id) = &finding.sandbox_id {
            self.line("sandbox", &short_id(id));
        }
        if let Some(netns) = &finding.netns {
            let mut text = netns.id.inode.to_string();
            for path in &netns.paths {
                text += &format!("  {}", Printable(path.display()));
            }
            self.wrapped("netns", "", &text);
        }
        // A reservation's line has its address.
        if !finding.addresses.is_empty() && finding.detail.reservations.is_empty() {
            let all = finding.addresses.iter();
            let first: Vec<_> = all.take(LISTED).map(ToString::to_string).collect();
            self.wrapped("address", "", &first.join("  "));
            self.and_more(finding.addresses.len());
        }
    }

    /// Why, what is not known, and what to do: what of it is new.
    fn claims(&mut self, printed: &mut Printed) {
        let finding = self.finding;
        let mut label = "because";
        let evidence: Vec<_> = finding
            .evidence
            .iter()
            .filter(|one| printed.is_new(&one.source, &one.claim))
            .map(|one| {
                (
                    moment(one.at, self.now),
                    Printable(&one.source).to_string(),
                    &one.claim,
                )
            })
            .collect();
        let times = evidence.iter().map(|(at, ..)| at.len()).max().unwrap_or(0);
        let sources = evidence
            .iter()
            .map(|(_, by, _)| by.chars().count())
            .max()
            .unwrap_or(0);
        for (at, by, claim) in &evidence {
            let by = format!("{at:>times$}  {by:<sources$}  ");
            self.wrapped(label, &by, &Printable(claim).to_string());
            label = "";
        }
        label = "unknown";
        for unknown in finding
            .unknown
            .iter()
            .filter(|one| printed.is_new("unknown", one))
        {
            self.wrapped(label, "", &Printable(unknown).to_string());
            label = "";
        }
        self.advice(printed);
    }

    fn advice(&mut self, printed: &mut Printed) {
        let mut label = "do";
        for (step, advice) in (1..).zip(&self.finding.advice) {
            if printed.is_new("do", advice) {
                let (mark, text) = (format!("{step}. "), Printable(advice).to_string());
                for line in wrap::step_lines(&mark, &text, self.paint.width, VALUE, VALUE + 4) {
                    self.line(label, &line);
                    label = "";
                }
            }
        }
    }

    /// The finding that has told all about the task that this one is about.
    fn seen_with<'a>(&self, memory: &'a Memory) -> Option<(Rule, &'a str)> {
        if self.finding.rule != Rule::BlockedTask {
            return None;
        }
        match self.finding.holders.as_slice() {
            [Holder::Task { tid, stack, .. }] => memory
                .shown(*tid, stack)
                .filter(|(rule, _)| matches!(rule, Rule::GhostSandbox | Rule::DuplicateAddress)),
            _ => None,
        }
    }

    /// Where it was told. Only a ghost's advice is about its holders.
    fn see(&mut self, printed: &mut Printed, rule: Rule, id: &str) {
        let told = match rule {
            Rule::GhostSandbox => "its holder, with the stack and what to do",
            _ => "its holder, with the stack",
        };
        let text = format!("{} {}: {told}", rule.as_str(), Printable(id));
        self.wrapped("see", "", &text);
        if rule != Rule::GhostSandbox {
            self.advice(printed);
        }
        let finding = self.finding;
        for one in &finding.evidence {
            printed.is_new(&one.source, &one.claim);
        }
        for one in &finding.unknown {
            printed.is_new("unknown", one);
        }
        for one in &finding.advice {
            printed.is_new("do", one);
        }
    }
}
