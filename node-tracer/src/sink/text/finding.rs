//! Findings as blocks: the verdict first, then who and where, then why, and
//! last, next to the cursor, what to do.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use super::stack;
use super::style::{Painter, Style, count, length, moment, pod, short_id, task};
use crate::{
    clock::Timestamp,
    event::PodRef,
    finding::{Finding, Holder, Phase, Rule, State},
    sink::escape::Printable,
};

/// Holders that are listed; the JSON record has all.
const HOLDERS: usize = 8;
/// Width of the time of day and of the space after it.
const TIME: usize = 14;
/// Width of a label and of the space after it.
const LABEL: usize = 9;

/// What has been printed of a finding, so that an update prints only what is
/// new. Claims are kept as hashes: a long night has many.
#[derive(Debug, Default)]
pub(super) struct Printed {
    phase: Option<Phase>,
    lines: HashSet<u64>,
    hasher: RandomState,
}

/// Lines of a block under construction.
struct Block<'a> {
    text: String,
    paint: Painter,
    now: Timestamp,
    finding: &'a Finding,
}

/// A finding's lines, each with its newline, and what is now known to the
/// reader.
pub(super) fn block(
    paint: Painter,
    now: Timestamp,
    finding: &Finding,
    state: State,
    before: Option<Printed>,
) -> (String, Printed) {
    let mut block = Block {
        text: String::new(),
        paint,
        now,
        finding,
    };
    let mut printed = match (state, before) {
        (State::Resolved, _) => {
            block.resolved();
            return (block.text, Printed::default());
        }
        (State::Updated, Some(printed)) => {
            block.header(Some(printed.phase));
            block.due();
            block.holder_count();
            printed
        }
        (State::Open | State::Updated, _) => {
            block.header(None);
            block.since();
            block.due();
            block.holders();
            block.places();
            Printed::default()
        }
    };
    block.claims(&mut printed);
    printed.phase = finding.detail.phase;
    (block.text, printed)
}

impl Printed {
    /// Whether `line` is new under `label`; from now on it is not.
    fn is_new(&mut self, label: &str, line: &str) -> bool {
        self.lines.insert(self.hasher.hash_one((label, line)))
    }
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

    /// The end, in one line that is aligned with the events.
    fn resolved(&mut self) {
        let finding = self.finding;
        let head = format!("{:<16}  {}", "resolved", finding.rule.as_str());
        self.text += &format!(
            "{:<TIME$}{}  lasted {}  was: {}  {}\n",
            self.now.time_of_day(),
            self.paint.paint(Style::Good, head),
            length(self.now.since(finding.since)),
            Printable(&finding.title),
            self.paint
                .paint(Style::Quiet, format!("id {}", Printable(&finding.id))),
        );
    }

    /// A labelled line; the label only before the first of its kind.
    fn line(&mut self, label: &str, value: &str) {
        let label = self.paint.paint(Style::Quiet, format!("{label:<LABEL$}"));
        self.text += &format!("{:TIME$}{label} {value}\n", "");
    }

    fn since(&mut self) {
        let since = self.finding.since;
        let age = self.age(since);
        let id = format!("id {}", Printable(&self.finding.id));
        let id = self.paint.paint(Style::Quiet, id);
        self.line(
            "since",
            &format!("{} ({age})  {id}", moment(since, self.now)),
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

    fn holders_label(&self) -> &'static str {
        match self.finding.rule {
            Rule::BlockedTask => "task",
            _ => "held by",
        }
    }

    fn holder_count(&mut self) {
        let (mut tasks, mut mounts, mut fds) = (0, 0, 0);
        for holder in &self.finding.holders {
            match holder {
                Holder::Task { .. } => tasks += 1,
                Holder::Mount { .. } => mounts += 1,
                Holder::Fd { .. } => fds += 1,
            }
        }
        let counts: Vec<_> = [(tasks, "task"), (mounts, "mount"), (fds, "descriptor")]
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, noun)| count(*number, noun))
            .collect();
        if !counts.is_empty() {
            self.line(self.holders_label(), &counts.join(", "));
        }
    }

    fn holders(&mut self) {
        let finding = self.finding;
        let mut label = self.holders_label();
        let mut last_stack: &[String] = &[];
        for holder in finding.holders.iter().take(HOLDERS) {
            match holder {
                Holder::Task {
                    pid,
                    tid,
                    comm,
                    state,
                    since,
                    wchan,
                    stack,
                    container_id,
                } => {
                    let mut text = task(comm, *pid, *tid);
                    if let Some(state) = state {
                        text += &format!("  {}", state_name(*state));
                    }
                    if let Some(since) = since {
                        let age = self.age(*since);
                        text += &format!(" since {} ({age})", moment(*since, self.now));
                    }
                    if let Some(wchan) = wchan {
                        text += &format!(" in {}", Printable(wchan));
                    }
                    if let Some(id) = container_id {
                        text += &format!("  container {}", short_id(id));
                    }
                    self.line(label, &text);
                    if !stack.is_empty() {
                        let frames = match stack == last_stack {
                            true => "same stack".to_owned(),
                            false => stack::folded(stack),
                        };
                        let frames = self.paint.paint(Style::Quiet, frames);
                        self.line("", &format!("  {frames}"));
                        last_stack = stack;
                    }
                }
                Holder::Mount { path } => {
                    self.line(label, &format!("mount {}", Printable(path.display())));
                }
                Holder::Fd { pid, fd, comm } => {
                    let process = match comm {
                        Some(comm) => task(comm, *pid, *pid),
                        None => format!("process {pid}"),
                    };
                    self.line(label, &format!("descriptor {fd} of {process}"));
                }
            }
            label = "";
        }
        if finding.holders.len() > HOLDERS {
            self.line(
                "",
                &format!("… and {} more", finding.holders.len() - HOLDERS),
            );
        }
    }

    /// Which pod, sandbox, namespace and address it is about.
    fn places(&mut self) {
        let finding = self.finding;
        if let Some(of) = finding.pod.as_ref().filter(|of| **of != PodRef::default()) {
            self.line("pod", &pod(of));
        }
        if let Some(id) = &finding.sandbox_id {
            self.line("sandbox", &short_id(id));
        }
        if let Some(netns) = &finding.netns {
            let mut text = netns.id.inode.to_string();
            for path in &netns.paths {
                text += &format!("  {}", Printable(path.display()));
            }
            self.line("netns", &text);
        }
        if !finding.addresses.is_empty() {
            let all: Vec<_> = finding.addresses.iter().map(ToString::to_string).collect();
            self.line("address", &all.join("  "));
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
            let by = self
                .paint
                .paint(Style::Quiet, format!("{at:>times$}  {by:<sources$}"));
            self.line(label, &format!("{by}  {}", Printable(claim)));
            label = "";
        }
        label = "unknown";
        for unknown in finding
            .unknown
            .iter()
            .filter(|one| printed.is_new("unknown", one))
        {
            self.line(label, &Printable(unknown).to_string());
            label = "";
        }
        label = "do";
        for (step, advice) in (1..).zip(&finding.advice) {
            if printed.is_new("do", advice) {
                self.line(label, &format!("{step}. {}", Printable(advice)));
                label = "";
            }
        }
    }
}

/// A state letter of ps(1) in words, where the letter alone says too little.
fn state_name(state: char) -> String {
    match state {
        'D' => "D (uninterruptible)".to_owned(),
        'Z' => "Z (zombie)".to_owned(),
        'T' => "T (stopped)".to_owned(),
        other => Printable(other).to_string(),
    }
}
