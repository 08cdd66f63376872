//! What `kubectl describe pod` and `kubectl get events` print: as kubectl of
//! all ages prints it, as a terminal or a web page has wrapped it, with the
//! numbers that a page may put before lines.
//!
//! ```text
//! Name:       web-0                       the pod that what follows is of
//! ...
//!     State:  Waiting                     a container that is not started,
//!       Reason: ImagePullBackOff          and why
//! ...
//! Events:
//!   Type     Reason       Age                 From     Message
//!   Warning  FailedMount  2m (x10 over 3m)    kubelet  MountVolume.SetUp ...
//! ```

mod age;
mod object;
mod row;

use self::{
    object::Object,
    row::{Form, Row},
};
use super::{
    failures::{Whose, kept, recorded::of_event, teardown},
    meaning::kernel,
};
use std::collections::BTreeMap;

use diagnosis::gate::{Verdict, of_reason};
use event::{Event, PodRef, StartFailure, What, clock::Timestamp};

/// Lines at most that one message is wrapped into.
const MAX_WRAPPED: u8 = 32;
/// A terminal that breaks lines is at least so wide.
const MIN_WIDTH: usize = 72;
/// And no wider than this: a longer line ends where the message has a newline.
const MAX_WIDTH: usize = 320;

/// Such a text, being read.
#[derive(Debug)]
pub struct Kubectl {
    /// When it was printed, as near as that is known: ages count from there.
    printed: Timestamp,
    /// The pod that is being described.
    pod: PodRef,
    /// A container's state is being told.
    waits: bool,
    description: Description,
    /// How the events' columns stand.
    form: Form,
    /// An event whose message may go on.
    open: Option<Wrapped>,
    /// An event as an object.
    object: Object,
    /// The last line was part of such a text.
    took: bool,
    /// What was told whose time only the text's own says.
    pub untimed: u64,
    /// What was told whose time is an age.
    pub aged: u64,
    /// Descriptions that a pod before them may have written.
    pub doubtful: u64,
    /// What waits for the end of the text: it may tell of a later start.
    held: Held,
}

/// Reasons of events in which node-problem-detector quotes the kernel. Of the
/// tasks that are killed for memory, nearly all are applications.
const KERNELS: [&str; 2] = ["UnregisterNetDevice", "TaskHung"];

/// Failures at most that wait for the end of the text.
const MAX_HELD: usize = 4_096;

/// What has kept pods' sandboxes from being made, and which pods had theirs
/// made later: the same text tells of both.
#[derive(Debug, Default)]
struct Held {
    /// By the pod's name; none where the text names no pod.
    failures: Vec<(Option<String>, Event)>,
    /// The same way: when a container of it last went on.
    started: BTreeMap<Option<String>, Timestamp>,
}

impl Held {
    /// Whether a pod whose container gets so far has its sandbox.
    fn is_start(reason: &str) -> bool {
        matches!(reason, "Pulling" | "Pulled" | "Created" | "Started")
    }

    /// Whether it is over once the pod has its sandbox.
    fn is_of_sandbox(reason: &str) -> bool {
        matches!(
            reason,
            "FailedCreatePodSandBox"
                | "FailedCreatePodSandbox"
                | "FailedCreatePodContainer"
                | "FailedMount"
                | "FailedMapVolume"
                | "FailedAttachVolume"
                | "FailedSync"
                | "NetworkNotReady"
        )
    }

    fn starts(&mut self, pod: Option<String>, time: Timestamp) {
        if self.started.len() < MAX_HELD || self.started.contains_key(&pod) {
            let last = self.started.entry(pod).or_insert(time);
            *last = time.max(*last);
        }
    }

    /// All of them; those of pods that have started since are marked.
    fn take(&mut self) -> Vec<Event> {
        let started = std::mem::take(&mut self.started);
        let failures = std::mem::take(&mut self.failures).into_iter();
        let marked = failures.map(|(pod, mut event)| {
            if let What::SandboxFailed { failure } = &mut event.what {
                let started = started.get(&pod);
                failure.mended = started.is_some_and(|at| *at >= event.time);
            }
            event
        });
        marked.collect()
    }
}

/// A pod's description, in which kubectl prints some of the pod's own words as
/// they are, newlines and all: how a container ended, what a probe printed. Any
/// line may be theirs until the description's own next one is certain.
#[derive(Debug, Default)]
struct Description {
    /// A container that has ended is being told of.
    ended: bool,
    /// How far its message is indented, and how much of it was read.
    message: Option<(usize, usize)>,
    /// The pod's own words have stood in it: they may look like its end.
    spoke: bool,
    /// Another one seems to have begun since.
    is_over: bool,
    /// What its containers tell.
    waiting: Vec<Event>,
    /// What its events tell. The last table of them is kubectl's own.
    told: Vec<Event>,
}

/// The kubelet keeps less of the message of a container that has ended.
const MAX_SAID: usize = 16 << 10;
/// What stands behind such a message.
const BEHIND: [&str; 4] = ["Signal", "Exit Code", "Started", "Finished"];
/// Reasons of events that quote what a pod has printed.
const QUOTES: [&str; 4] = [
    "Unhealthy",
    "ProbeWarning",
    "FailedPostStartHook",
    "FailedPreStopHook",
];

impl Description {
    /// Whether a line is part of the message of a container that has ended.
    fn is_said(&mut self, line: &str) -> bool {
        let Some((indent, read)) = &mut self.message else {
            return false;
        };
        *read += line.len() + 1;
        let behind = key_of(line).is_some_and(|(key, _)| BEHIND.contains(&key));
        let inside = *read <= MAX_SAID && !(behind && indent_of(line) == *indent);
        if !inside {
            self.message = None;
        }
        inside
    }
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// An event whose message may go on in the next line.
#[derive(Debug)]
struct Wrapped {
    row: Row,
    lines: u8,
    /// The length of the last of them.
    width: usize,
    /// The page numbers its lines.
    numbered: bool,
    /// What ends a message that stands in quotes (`-o yaml`).
    quote: Option<char>,
}

impl Kubectl {
    pub fn new(printed: Timestamp) -> Self {
        Self {
            printed,
            pod: PodRef::default(),
            waits: false,
            description: Description::default(),
            form: Form::default(),
            open: None,
            object: Object::default(),
            took: false,
            untimed: 0,
            aged: 0,
            doubtful: 0,
            held: Held::default(),
        }
    }

    /// Whether the last line was part of such a text: nobody else need read it.
    pub fn took(&self) -> bool {
        self.took
    }

    /// Takes a line in; what it tells.
    pub fn line(&mut self, line: &str) -> Vec<Event> {
        let (line, numbered) = without_number(line.trim_end());
        self.took = true;
        if self.description.is_said(line) || self.object.is_said(line) {
            return Vec::new();
        }
        if self.pod.name.is_some() && line.starts_with("Name:") {
            self.description.is_over |= self.description.spoke;
            self.doubtful += u64::from(self.description.is_over);
        }
        if self.description.is_over {
            return Vec::new();
        }
        let mut before = Vec::new();
        if line.starts_with("Name:") {
            before = self.end();
        } else if self.pod.name.is_some() && line.starts_with("Events:") {
            // What looked like the events before it was none of kubectl's.
            self.open = None;
            self.description.told.clear();
            self.held = Held::default();
        }
        let told = self.described(line, numbered);
        if self.pod.name.is_none() || self.description.told.len() >= MAX_HELD {
            before.append(&mut self.description.told);
            before.extend(told);
        } else {
            self.description.told.extend(told);
        }
        before
    }

    fn described(&mut self, line: &str, numbered: bool) -> Vec<Event> {
        let text = line.trim_start();
        let mut told = self.held();
        let status = || self.status(text);
        let row = Row::read(text, self.form).map(|row| (row, None));
        if let Some((row, quote)) = row.or_else(status) {
            told.extend(self.close());
            self.description.spoke |= QUOTES.contains(&row.reason.as_str());
            self.open = Some(Wrapped {
                row,
                lines: 1,
                width: line.chars().count(),
                numbered,
                quote,
            });
            return told;
        }
        self.form.learn(text);
        if self.goes_on(line, text, numbered) {
            return told;
        }
        told.extend(self.close());
        let waiting = self.head(line, text);
        if waiting.is_empty() {
            told.extend(self.object(line));
        } else if self.description.waiting.len() < MAX_HELD {
            self.description.waiting.extend(waiting);
        }
        told
    }

    /// What waits, if it is too much.
    fn held(&mut self) -> Vec<Event> {
        match self.held.failures.len() >= MAX_HELD {
            true => {
                let mut told = self.close();
                told.extend(self.held.take());
                told
            }
            false => Vec::new(),
        }
    }

    /// What is left when the text has ended.
    pub fn end(&mut self) -> Vec<Event> {
        let mut told = self.close();
        if let Some(row) = self.object.end() {
            told.extend(self.event(row));
        }
        told.extend(self.held.take());
        let before = std::mem::take(&mut self.description);
        [before.waiting, before.told, told].concat()
    }

    /// The message of a container's state, as `kubectl get pod -o yaml` prints
    /// it: in quotes, as it has some of its own.
    fn status(&self, text: &str) -> Option<(Row, Option<char>)> {
        let text = text.strip_prefix("message: ")?;
        let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let is_whole = text.len() > 1 && text.ends_with(quote);
        if self.object.is_open() {
            return None;
        }
        let row = Row {
            message: text.trim_matches(quote).to_owned(),
            ..Row::default()
        };
        Some((row, Some(quote).filter(|_| !is_whole)))
    }

    /// Whether a line is the rest of the message before it.
    fn goes_on(&mut self, line: &str, text: &str, numbered: bool) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        let is_other = || {
            text.is_empty()
                || key_of(line).is_some()
                || text.starts_with(['$', '#', '{', '}'])
                || text.starts_with("----")
                || Form::is_header(text)
                // What somebody has written about it.
                || (!text.is_ascii() && open.row.message.is_ascii())
        };
        let ended = open.lines >= MAX_WRAPPED || open.numbered != numbered;
        if ended || (open.quote.is_none() && is_other()) {
            return false;
        }
        if let Some(quote) = open.quote {
            open.row.message.push(' ');
            open.row.message.push_str(text.trim_end_matches(quote));
            open.lines += 1;
            if text.ends_with(quote) && !text.ends_with("''") {
                open.lines = MAX_WRAPPED;
            }
            return true;
        }
        // A terminal breaks in the middle of a word; whoever indents what
        // follows has broken between two.
        let indented = line.len() > text.len();
        if indented || !(MIN_WIDTH..=MAX_WIDTH).contains(&open.width) {
            open.row.message.push(' ');
        }
        open.row.message.push_str(text);
        open.lines += 1;
        open.width = line.chars().count();
        true
    }

    fn close(&mut self) -> Vec<Event> {
        let open = self.open.take();
        open.map(|open| self.event(open.row)).unwrap_or_default()
    }

    /// The description's head and its containers.
    fn head(&mut self, line: &str, text: &str) -> Vec<Event> {
        let Some((key, value)) = key_of(line) else {
            self.took = Form::is_header(text) || text.starts_with("----");
            return Vec::new();
        };
        let indented = line.len() > text.len();
        match (key, indented) {
            ("Name", false) => {
                self.pod = PodRef::default();
                self.waits = false;
                self.form = Form::default();
                self.object = Object::default();
                self.pod.name = Some(value.to_owned());
            }
            ("Namespace", false) if self.pod.name.is_some() => {
                self.pod.namespace = Some(value.to_owned());
            }
            ("UID", false) if self.pod.name.is_some() => self.pod.uid = Some(value.to_owned()),
            ("Message", true) if self.description.ended => {
                self.description.message = Some((indent_of(line), 0));
                self.description.spoke = true;
            }
            ("State" | "Last State", true) => {
                self.waits = key == "State" && value == "Waiting";
                self.description.ended = value == "Terminated";
            }
            ("Reason", true) if self.waits => {
                self.waits = false;
                if of_reason(value) == Verdict::Failure {
                    return self.event(Row {
                        reason: value.to_owned(),
                        message: format!("a container is waiting: {value}"),
                        ..Row::default()
                    });
                }
            }
            // Of such keys there are many, in logs, too.
            _ => self.took = self.pod.name.is_some(),
        }
        Vec::new()
    }

    fn object(&mut self, line: &str) -> Vec<Event> {
        let row = self.object.line(line);
        self.took |= self.object.is_open();
        row.map(|row| self.event(row)).unwrap_or_default()
    }

    /// What an event tells, if it is of a pod that does not start, or is not
    /// taken down.
    fn event(&mut self, row: Row) -> Vec<Event> {
        let starts = row.normal && Held::is_start(&row.reason);
        let ends = row.reason == teardown::REASON;
        let of_kernel = KERNELS.contains(&row.reason.as_str());
        if !starts && !ends && !of_kernel && !of_event(row.normal, &row.reason, &row.message) {
            return Vec::new();
        }
        let mut whose = Whose::of_pod(row.pod.clone());
        if whose.pod == PodRef::default() {
            whose = Whose::of_pod(self.pod.clone());
        }
        let time = row.at.unwrap_or(self.printed);
        let time = row.last.map_or(time, |age| self.printed.minus(age));
        let first = row.first.map(|age| self.printed.minus(age));
        let first = first.or(row.began).filter(|first| *first < time);
        let name = whose.pod.name.clone();
        if starts {
            self.held.starts(name, time);
            return Vec::new();
        }
        let told = match ends {
            true => teardown::events(&whose.pod, &row.message, first, time),
            false if of_kernel => {
                let both = first.into_iter().chain([time]);
                both.flat_map(|at| kernel::quoted(at, &row.message))
                    .collect()
            }
            false => {
                whose.read(&row.message);
                let failure = StartFailure {
                    source: String::from("events"),
                    reason: Some(kept(&row.reason)).filter(|reason| !reason.is_empty()),
                    message: kept(&row.message),
                    count: row.count,
                    first,
                    ..whose.failure()
                };
                let what = What::SandboxFailed { failure };
                vec![Event { time, what }]
            }
        };
        match (row.last, row.at) {
            (Some(_), _) => self.aged += u64::from(!told.is_empty()),
            (None, None) => self.untimed += u64::from(!told.is_empty()),
            (None, Some(_)) => {}
        }
        match Held::is_of_sandbox(&row.reason) {
            true => {
                let told = told.into_iter().map(|event| (name.clone(), event));
                self.held.failures.extend(told);
                Vec::new()
            }
            false => told,
        }
    }
}

/// A line without the number that a page puts before it: `12. `, `12: `; and
/// whether it had one.
fn without_number(line: &str) -> (&str, bool) {
    let text = line.trim_start().trim_start_matches(['\u{2022}', '>', '|']);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text.get(digits..).unwrap_or_default();
    match rest.strip_prefix(". ").or_else(|| rest.strip_prefix(": ")) {
        Some(rest) if (1..=4).contains(&digits) => (rest, true),
        _ => (line, false),
    }
}

/// `Key:   value`, where the key is one or two words.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.trim_start().split_once(':')?;
    let is_key = key.len() <= 24
        && key.starts_with(|c: char| c.is_ascii_uppercase())
        && key.chars().all(|c| c.is_ascii_alphabetic() || c == ' ')
        && key.split(' ').count() <= 2
        && (value.is_empty() || value.starts_with([' ', '\t']));
    is_key.then(|| (key, value.trim()))
}

#[cfg(test)]
mod tests;
