//! An incident in at most twelve lines: what is wrong, who holds what, what is
//! certain, what to do. The evidence, stacks and IDs are with `-v`.
//!
//! A change of an incident that the reader has seen takes at most four lines.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use super::{
    memory::{self, Memory, STEP},
    style::{Painter, Style, count, moment, pod_name, short_id},
};
use event::order::Order as _;
use event::{
    clock::Timestamp,
    finding::{Finding, Holder, Phase, Rule, State},
    wording::{
        advice::{self, Command},
        duration::length,
        escape::Printable,
    },
};

/// Lines of an incident, and of a change of one.
const LINES: usize = 12;
const CHANGED: usize = 4;
/// Of a change, lines of what to do now.
const NEW_STEPS: usize = 2;
/// Lines of what is certain, and of one step that is a sentence, where there is
/// room.
const CERTAIN: usize = 2;
const SENTENCE: usize = 2;
/// Items of a list that may have room.
const LISTED: usize = 16;
/// The column at which values begin.
const VALUE: usize = 12;
/// The column at which news go on.
const NEWS: usize = 32;
/// The column after the number of a step.
const NUMBERED: usize = VALUE + 3;

/// A finding that is not printed yet.
pub(super) struct Held {
    pub(super) time: Timestamp,
    pub(super) node: String,
    pub(super) finding: Finding,
    pub(super) state: State,
}

/// What is printed of findings that came at one time.
#[derive(Default)]
pub(super) struct Printed {
    /// Empty if there is nothing to tell.
    pub(super) text: String,
    /// It has whole incidents, which are set apart from what follows.
    pub(super) has_blocks: bool,
}

/// The text of findings that came at one time, each incident once.
pub(super) fn text(
    paint: Painter,
    is_timed: bool,
    held: Vec<Held>,
    memory: &mut Memory,
) -> Printed {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut incidents: Vec<Vec<Held>> = Vec::new();
    for one in held {
        let next = incidents.len();
        let place = *places
            .entry(one.finding.incident().to_owned())
            .or_insert(next);
        if place == next {
            incidents.push(Vec::new());
        }
        incidents[place].push(one);
    }
    let mut blocks: Vec<String> = Vec::new();
    let mut lines = String::new();
    for mut parts in incidents {
        parts.order_by_key(|part| part.finding.rule.rank_in_incident());
        let cause = &parts[0].finding;
        let is_new = parts.iter().any(|part| part.state != State::Resolved)
            && !memory.has_seen(cause.incident(), cause.rule);
        let text = told(paint, is_timed, &parts, is_new, memory);
        match is_new {
            true => blocks.push(text),
            false => lines += &text,
        }
    }
    let has_blocks = !blocks.is_empty();
    if !lines.is_empty() {
        blocks.insert(0, lines);
    }
    Printed {
        text: blocks.join("\n"),
        has_blocks,
    }
}

/// One incident: a block if its cause is new, or else what has changed.
fn told(
    paint: Painter,
    is_timed: bool,
    parts: &[Held],
    is_new: bool,
    memory: &mut Memory,
) -> String {
    let (over, alive): (Vec<&Held>, Vec<&Held>) =
        parts.iter().partition(|part| part.state == State::Resolved);
    let mut text = String::new();
    if let Some(cause) = alive.first() {
        let findings: Vec<&Finding> = alive.iter().map(|part| &part.finding).collect();
        let block = Block {
            paint,
            now: cause.time,
            is_timed,
            findings: &findings,
            lines: Vec::new(),
        };
        text = match is_new {
            true => block.whole(),
            false => block.changes(memory),
        };
        for part in &alive {
            memory.has_told(&part.finding, part.finding.incident());
        }
    }
    if let Some(cause) = over.first() {
        text += &super::finding::resolved(
            paint,
            cause.time,
            &cause.finding,
            &with(over[1..].iter().map(|part| &part.finding)),
        );
    }
    for part in over {
        memory.is_over(&part.finding.id);
    }
    text
}

/// The rules of other findings of an incident: `(+ blocked-task)`.
fn with<'a>(others: impl IntoIterator<Item = &'a Finding>) -> String {
    let mut rules: Vec<&str> = Vec::new();
    for other in others {
        let rule = other.rule.as_str();
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    match rules.is_empty() {
        true => String::new(),
        false => format!("(+ {})", rules.join(", ")),
    }
}

/// Lines of a block under construction.
struct Block<'a> {
    paint: Painter,
    now: Timestamp,
    is_timed: bool,
    /// The cause first.
    findings: &'a [&'a Finding],
    lines: Vec<String>,
}

impl Block<'_> {
    fn whole(mut self) -> String {
        self.headline(self.findings[0], 2);
        self.who();
        // A victim's line has the time at which it began to suffer.
        if !self.victims() {
            self.since();
        }
        self.calls();
        let unknown = self.unknowns();
        // The last line leads to the rest, and all steps come before the second
        // line of what is certain.
        let room = (LINES - 1).saturating_sub(self.lines.len() + unknown.len().min(1));
        let steps = self.steps(self.advice(), 1).concat().len();
        self.certain(room.saturating_sub(steps).clamp(1, CERTAIN));
        if !unknown.is_empty() {
            self.values("unknown", &unknown, 1);
        }
        self.all_steps(LINES - 1);
        self.more();
        self.lines.concat()
    }

    /// What is new of the cause; of its parts only what the cause does not say.
    fn changes(mut self, memory: &Memory) -> String {
        let mut told: HashSet<&str> = HashSet::new();
        for (at, finding) in self.findings.iter().enumerate() {
            let Some(before) = memory.of(&finding.id) else {
                self.headline(finding, 1);
                continue;
            };
            let from = self.lines.len();
            let is_worse =
                before.severity != finding.severity || before.phase != finding.detail.phase;
            if is_worse {
                self.headline(finding, 2);
                self.victims();
            }
            let claims: Vec<String> = finding
                .evidence
                .iter()
                .filter(|one| before.lacks(&one.source, &one.claim))
                .filter(|one| told.insert(&one.source) || at == 0)
                .map(|one| format!("{} ({})", one.claim, one.source))
                .collect();
            let unknown: Vec<String> = finding
                .unknown
                .iter()
                .filter(|one| before.lacks("unknown", one) && told.insert(one))
                .cloned()
                .collect();
            let steps = match at {
                0 => self.new_steps(before),
                _ => Vec::new(),
            };
            let room = from + CHANGED - steps.len();
            for (block, line, news) in [("certain", "now", claims), ("unknown", "unknown", unknown)]
            {
                match (news.is_empty(), is_worse) {
                    (true, _) => {}
                    (false, true) => self.values(block, &news, 1),
                    (false, false) => self.news(finding, line, &news),
                }
            }
            self.lines.truncate(room);
            if !steps.is_empty() && self.lines.len() == from {
                self.headline(finding, 1);
            }
            let mut last = "";
            for (label, step) in steps {
                self.line(if label == last { "" } else { label }, &step);
                last = label;
            }
        }
        self.lines.concat()
    }

    /// The first steps that were not told, each as one line.
    fn new_steps(&self, before: &memory::Printed) -> Vec<(&'static str, String)> {
        let lines = self.steps(self.advice(), 1).into_iter();
        let new = lines
            .map(|lines| lines.concat())
            .zip(self.advice())
            .enumerate()
            .filter_map(|(at, (line, step))| {
                let label = if at == 0 { "first" } else { "then" };
                before.lacks(STEP, step).then_some((label, line))
            });
        new.take(NEW_STEPS).collect()
    }

    /// What stands between events.
    fn news(&mut self, finding: &Finding, label: &str, news: &[String]) {
        let time = self.now.time_of_day();
        let subject = subject(finding).unwrap_or_default();
        let head = format!("{time}  {:<16}  ", finding.rule.as_str());
        let label = format!("{subject} {label}: ");
        let begin = head.chars().count() + label.trim_start().chars().count();
        let mut head = head + label.trim_start();
        for line in self.list(news, begin, NEWS, 2) {
            self.lines.push(format!("{head}{line}\n"));
            head = format!("{:NEWS$}", "");
        }
    }

    /// How bad, which rule, what.
    fn headline(&mut self, finding: &Finding, most: usize) {
        let mut rule = finding.rule.as_str().to_owned();
        if let Some(phase) = finding.detail.phase {
            rule += &format!("/{}", phase.as_str());
        }
        let severity = finding.severity.as_str().to_uppercase();
        let time = match self.is_timed {
            true => format!("{:<14}", self.now.time_of_day()),
            false => String::new(),
        };
        let head = format!("{severity:<8}  {rule}");
        let begin = time.chars().count() + head.chars().count() + 2;
        let title = Printable(&finding.title).to_string();
        let mut lines = self.cut(&title, begin, VALUE, most).into_iter();
        let first = lines.next().unwrap_or_default();
        let head = self.paint.paint(Style::from(finding.severity), head);
        let first = self.paint.paint(Style::Title, first);
        self.lines.push(format!("{time}{head}  {first}\n"));
        for line in lines {
            let line = self.paint.paint(Style::Title, line);
            self.lines.push(format!("{:VALUE$}{line}\n", ""));
        }
    }

    /// The pod, what holds its namespace, and who suffers.
    fn who(&mut self) {
        let cause = self.findings[0];
        let label = match cause.rule {
            Rule::GhostSandbox => "ghost",
            Rule::DuplicateAddress => "newer",
            _ => "pod",
        };
        let pod = cause.pod.as_ref().map(pod_name);
        let sandbox = cause.sandbox_id.as_deref().map(short_id);
        let whose = pod.or_else(|| sandbox.map(|id| format!("sandbox {id}")));
        let text = match (whose, self.holder()) {
            (Some(whose), Some((holder, more))) => (format!("{whose}: {holder}"), more),
            (Some(whose), None) => (whose, String::new()),
            (None, Some(holder)) => holder,
            (None, None) => return,
        };
        let whole = text.0.clone() + &text.1;
        let fits = VALUE + Printable(&whole).to_string().chars().count() <= self.paint.width;
        let text = if fits { whole } else { text.0 };
        if !text.is_empty() {
            self.value(label, &text, 1);
        }
    }

    /// Pods that have an address of the cause's, too. Returns whether there are.
    fn victims(&mut self) -> bool {
        let cause = self.findings[0];
        let others = self.findings.iter().filter(|other| {
            other.rule == Rule::DuplicateAddress && other.id != cause.id && other.pod != cause.pod
        });
        let texts: Vec<String> = others
            .map(|other| {
                let pod = other.pod.as_ref().map(pod_name);
                let whose = pod.unwrap_or_else(|| match &other.netns {
                    Some(netns) => format!("netns {}", netns.id.inode),
                    None => String::from("another namespace"),
                });
                // Whoever has the reservation keeps it from a third one.
                let keep = match cause.detail.phase {
                    Some(Phase::Conflict) => "; do not delete it yet",
                    _ => "",
                };
                format!(
                    "{whose}: has the IP since {}{keep}",
                    second(other.since, self.now)
                )
            })
            .collect();
        if !texts.is_empty() {
            self.values("victim", &texts, 1);
        }
        !texts.is_empty()
    }

    /// What holds the namespace, or is stuck: the worst, and how many more.
    fn holder(&self) -> Option<(String, String)> {
        if self.findings[0].rule == Rule::DuplicateAddress {
            // They are of all who share the address, and nothing says whose each is.
            return None;
        }
        let tasks = self.findings.iter().flat_map(|finding| &finding.holders);
        // A part's holders are not the cause's, apart from what is stuck in it.
        let own = &self.findings[0].holders;
        let is_own = |tid: u32| {
            own.iter()
                .any(|one| matches!(one, Holder::Task { tid: own, .. } if *own == tid))
        };
        let stuck = tasks.filter_map(|holder| match holder {
            Holder::Task {
                tid,
                since: Some(since),
                not_stuck: None,
                ..
            } if is_own(*tid) => Some((*since, holder)),
            _ => None,
        });
        let longest = stuck.min_by_key(|(since, _)| *since).map(|(_, it)| it);
        let is_in_d = |one: &&Holder| {
            matches!(
                one,
                Holder::Task {
                    state: Some('D'),
                    ..
                }
            )
        };
        let worst = longest
            .or_else(|| own.iter().find(is_in_d))
            .or_else(|| own.first())?;
        let others: HashSet<u32> = own
            .iter()
            .filter_map(|one| match one {
                Holder::Task { pid, .. } => Some(*pid),
                _ => None,
            })
            .collect();
        let text = match worst {
            Holder::Task {
                pid,
                comm,
                state,
                since,
                wchan,
                not_stuck,
                first_seen,
                ..
            } => {
                let mut text = format!("{} ({pid})", Printable(comm));
                match (state, not_stuck) {
                    (_, Some(why)) => text += &format!(" {}", why.as_str()),
                    (Some(state), None) => text += &format!(" in state {}", Printable(state)),
                    (None, None) => {}
                }
                if let Some(since) = since {
                    let least = if *first_seen { "at least " } else { "" };
                    text += &format!(" for {least}{}", self.age(*since));
                }
                if let Some(wchan) = wchan {
                    text += &format!(" in {}", Printable(wchan));
                }
                text
            }
            Holder::Mount { path } => format!("mount {}", Printable(path.display())),
            Holder::Fd { pid, fd, comm } | Holder::Socket { pid, fd, comm } => {
                let kind = match worst {
                    Holder::Socket { .. } => "socket",
                    _ => "descriptor",
                };
                let comm = comm.as_deref().unwrap_or("process");
                format!("{kind} {fd} of {} ({pid})", Printable(comm))
            }
        };
        let more = match others.len().saturating_sub(1) {
            0 => String::new(),
            more => format!("; {}", count(more as u64, "more process")),
        };
        Some((text, more))
    }

    /// Since when, and when it gets worse.
    fn since(&mut self) {
        let cause = self.findings[0];
        let mut text = format!(
            "{} ({})",
            second(cause.since, self.now),
            self.age(cause.since)
        );
        let is_to_come = !matches!(
            cause.detail.phase,
            Some(Phase::Armed | Phase::Conflict) | None
        );
        if let Some(due) = cause.detail.due.filter(|_| is_to_come) {
            text += &format!("; the IP can be given away from {}", second(due, self.now));
            if due > self.now {
                text += &format!(" (in {})", length(due.since(self.now)));
            }
        }
        let label = match cause.detail.first_seen {
            true => "seen from",
            false => "since",
        };
        self.value(label, &text, 1);
    }

    fn age(&self, since: Timestamp) -> String {
        match self.now.since(since) {
            age if age < Duration::from_secs(1) => "less than 1 s".to_owned(),
            age => length(age),
        }
    }

    /// What a rule says of calls and of reservations.
    fn calls(&mut self) {
        let detail = &self.findings[0].detail;
        if let Some(cause) = &detail.cause {
            let mut text = Printable(cause).to_string();
            if let Some(error) = &detail.error {
                let said = [error.msg.as_str(), error.details.as_deref().unwrap_or("")];
                let said: Vec<&str> = said.into_iter().filter(|one| !one.is_empty()).collect();
                text += &format!(": {}", Printable(said.join(": ")));
            }
            self.value("cause", &text, 2);
        }
        if let (Some(old), Some(new)) = (&detail.old_container_id, &detail.new_container_id) {
            let text = format!("{}; the newer one: {}", short_id(old), short_id(new));
            self.value("old", &text, 1);
        }
        if let [first, others @ ..] = detail.reservations.as_slice() {
            let whose = match first.container_id.as_str() {
                "" => String::from("nobody (empty file)"),
                id => format!("container {}", short_id(id)),
            };
            let mut text = format!("{}  {whose}", first.address);
            if let Some(reserved) = first.reserved {
                text += &format!("  reserved {} ago", self.age(reserved));
            }
            if !others.is_empty() {
                text += &format!("; {} more", others.len());
            }
            self.value("leaked", &text, 1);
        }
    }

    /// The last claim of each source: earlier ones lead there.
    fn certain(&mut self, most: usize) {
        let cause = self.findings[0];
        let mut sources: Vec<&str> = Vec::new();
        for one in &cause.evidence {
            if !sources.contains(&one.source.as_str()) {
                sources.push(&one.source);
            }
        }
        sources.order_by_key(|source| match *source {
            "kernel" => 0,
            "API server" | "kubelet" | "pods" => 1,
            _ => 2,
        });
        let claims: Vec<String> = sources
            .iter()
            .filter_map(|source| {
                let mut last = cause.evidence.iter().rev();
                let last = last.find(|one| one.source == **source)?;
                Some(briefly(&last.claim, source))
            })
            .collect();
        if !claims.is_empty() {
            self.values("certain", &claims, most);
        }
    }

    /// What is not known of any part.
    fn unknowns(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for one in self.findings.iter().flat_map(|finding| &finding.unknown) {
            if !all.contains(one) {
                all.push(one.clone());
            }
        }
        all
    }

    fn advice(&self) -> impl Iterator<Item = &str> {
        self.findings[0].advice.iter().map(String::as_str)
    }

    /// The lines of each step. A command is never broken.
    fn steps<'s>(
        &self,
        advice: impl Iterator<Item = &'s str>,
        sentence: usize,
    ) -> Vec<Vec<String>> {
        let lines = advice.enumerate().map(|(number, step)| {
            let text = Printable(step).to_string();
            let (begin, mark) = match number {
                0 => (VALUE, String::new()),
                _ => (NUMBERED, format!("{number}. ")),
            };
            let width = self.paint.width.saturating_sub(begin);
            let lines = match advice::command(&text) {
                Some(it) if it.command.chars().count() > width && it.comment.is_some() => {
                    let why = it.comment.unwrap_or_default();
                    self.cut(&format!("{why}: command in -v"), begin, begin, 1)
                }
                Some(_) => vec![self.command(&text, begin)],
                None => self.cut(&text, begin, begin, sentence),
            };
            let under = " ".repeat(mark.len());
            let marks = std::iter::once(mark).chain(std::iter::repeat(under));
            let lines = marks.zip(lines);
            lines.map(|(mark, line)| format!("{mark}{line}")).collect()
        });
        lines.collect()
    }

    /// What to do, as far as there is room. A step that is not printed is
    /// counted, unless the last line is that command.
    fn all_steps(&mut self, most: usize) {
        let room = most.saturating_sub(self.lines.len());
        let fits = |steps: &Vec<Vec<String>>| steps.concat().len() <= room;
        let mut steps = self.steps(self.advice(), SENTENCE);
        if !fits(&steps) {
            steps = self.steps(self.advice(), 1);
        }
        if !fits(&steps) {
            let more = explain(self.findings[0]);
            let is_other = |step: &&str| {
                let command = advice::command(step).map(|it| it.command);
                command.is_none() || command != more.as_deref()
            };
            steps = self.steps(self.advice().filter(is_other), 1);
        }
        let count_of = steps.len();
        for (number, lines) in steps.into_iter().enumerate() {
            let mut label = match number {
                0 => "first",
                1 => "then",
                _ => "",
            };
            let left = count_of - number - 1;
            if self.lines.len() + lines.len() + usize::from(left > 0) > most {
                let more = format!("{}: -v", count(left as u64 + 1, "more step"));
                self.line(label, &more);
                return;
            }
            for line in lines {
                self.line(label, &line);
                label = "";
            }
        }
    }

    /// A command, whole, and as much of its comment as fits.
    fn command(&self, step: &str, begin: usize) -> String {
        let Some(Command {
            command,
            comment: Some(comment),
        }) = advice::command(step)
        else {
            return step.to_owned();
        };
        let from = begin + command.chars().count();
        let room = self.paint.width.saturating_sub(from);
        let whole = advice::commented("", comment);
        if whole.chars().count() <= room {
            return step.to_owned();
        }
        let mut kept = String::new();
        for word in comment.split(' ') {
            let more = format!("{kept} {word}");
            if advice::commented("", &more).chars().count() + 1 > room {
                break;
            }
            kept = more;
        }
        match kept.trim_start().trim_end_matches(',') {
            "" => command.to_owned(),
            kept => advice::commented(command, &format!("{kept} …")),
        }
    }

    /// Where the rest is.
    fn more(&mut self) {
        let cause = self.findings[0];
        let id = || format!("id {}", Printable(&cause.id));
        let mut text = explain(cause).unwrap_or_else(id);
        let others = with(self.findings[1..].iter().copied());
        if !others.is_empty() {
            text += &format!("     {others}");
        }
        self.line("more", &text);
    }

    /// A labelled value in at most so many lines.
    fn value(&mut self, label: &str, text: &str, most: usize) {
        let text = Printable(text).to_string();
        let mut label = label;
        for line in self.cut(&text, VALUE, VALUE, most) {
            self.line(label, &line);
            label = "";
        }
    }

    /// The same for a list, of which only whole items are printed.
    fn values(&mut self, label: &str, items: &[String], most: usize) {
        let mut label = label;
        for line in self.list(items, VALUE, VALUE, most) {
            self.line(label, &line);
            label = "";
        }
    }

    /// As many items as there is room for; the others are counted. One that has
    /// no room by itself is cut.
    fn list(&self, items: &[String], first: usize, rest: usize, most: usize) -> Vec<String> {
        for shown in (1..=items.len().min(LISTED)).rev() {
            let mut text = items[..shown].join("; ");
            if let left @ 1.. = items.len() - shown {
                text += &format!("; {left} more: -v");
            }
            let text = Printable(text).to_string();
            let lines = self.paint.lines(&text, first, rest);
            if lines.len() <= most {
                return lines;
            }
        }
        let only = items.first().map(|one| Printable(one).to_string());
        self.cut(&only.unwrap_or_default(), first, rest, most)
    }

    fn line(&mut self, label: &str, text: &str) {
        let label = self.paint.paint(Style::Quiet, format!("{label:<9}"));
        self.lines.push(format!("  {label} {text}\n"));
    }

    /// `text` in at most so many lines; what is left out is marked.
    fn cut(&self, text: &str, first: usize, rest: usize, most: usize) -> Vec<String> {
        let mut lines = self.paint.lines(text, first, rest);
        if lines.len() > most {
            // Room for the mark.
            lines = Painter {
                width: self.paint.width - 2,
                ..self.paint
            }
            .lines(text, first, rest);
            lines.truncate(most);
            if let Some(last) = lines.last_mut() {
                *last += " …";
            }
        }
        lines
    }
}

/// The command that tells all of it.
fn explain(cause: &Finding) -> Option<String> {
    Some(format!("node-tracer explain {}", subject(cause)?))
}

/// What `explain` takes, and what the finding is about, as a word of a shell.
fn subject(finding: &Finding) -> Option<String> {
    let address = finding.addresses.first().map(ToString::to_string);
    let netns = || {
        finding
            .netns
            .as_ref()
            .map(|netns| netns.id.inode.to_string())
    };
    address
        .or_else(|| finding.sandbox_id.as_deref().map(short_id))
        .or_else(netns)
        .or_else(|| finding.pod.as_ref().map(pod_name))
        .map(|word| advice::shell_word(word.as_ref()))
}

/// A claim without when it was read, and with its source unless it names that
/// itself.
fn briefly(claim: &str, source: &str) -> String {
    let claim = claim
        .split_once(" (read ")
        .map_or(claim, |(claim, _)| claim);
    let names_it = match source {
        "API server" => claim.contains("the API"),
        _ => claim.to_lowercase().contains(source),
    };
    match names_it {
        true => claim.to_owned(),
        false => format!("{claim} ({source})"),
    }
}

/// A moment to the second.
fn second(time: Timestamp, now: Timestamp) -> String {
    let text = moment(time, now);
    let end = text.rfind('.').unwrap_or(text.len());
    text[..end].to_owned()
}
