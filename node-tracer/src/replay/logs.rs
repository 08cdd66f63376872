//! Logs, told through the same engine: all of a command line are one story.
//!
//! ```text
//! LogReader, ...  ->  merge: by time  ->  Meaning, failures, Kubectl  ->  Event
//! Event           ->  window: sorted, each once  ->  node: one engine a host
//! ```
//!
//! Logs are merged as far as each is in order; what is out of order within one
//! (a page that somebody has put together, a host whose clock was set) is put
//! right within a window of events. Time is the logs' own: rules are asked at
//! the moments at which they would have been asked then.

mod frame;
mod log;
mod merge;
mod node;
mod window;

use std::{collections::BTreeMap, sync::LazyLock};

use self::{
    log::{Log, State},
    merge::Merged,
    node::{Node, Pace},
    window::Window,
};
use super::{Failure, Replayed, printed::Shared};
use crate::{outcome::Outcome, output};
use event::{
    Event,
    clock::Timestamp,
    record::{Record, Summary},
    wording::escape::Printable,
};
use logs::{
    block::Block,
    entry::Entry,
    failures, meaning,
    read::{Input, LogError, LogOptions, LogReader, Words},
};
use sink::{Sink, SinkError};

/// Hosts of one story; lines of further ones are left out.
const MAX_HOSTS: usize = 64;
/// The longest name of a host.
const MAX_NAME: usize = 253;
/// What a host is called that no line and no option names.
const UNNAMED: &str = "unknown";

/// Words of which one is in every line that is of interest.
fn needles() -> Vec<&'static str> {
    let mut all: Vec<&str> = meaning::needles().collect();
    all.extend(diagnosis::gate::NEEDLES);
    all.sort_unstable();
    all.dedup();
    // What holds another one is found by that.
    let others = all.clone();
    all.retain(|needle| {
        let mut others = others.iter().filter(|other| *other != needle);
        !others.any(|other| needle.contains(other))
    });
    all
}

/// What logs do not say of themselves.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) options: LogOptions,
    /// The name of a host that no line names.
    pub(super) node_name: Option<String>,
}

/// Tells the logs' story. Out of some the tool's own records are `sifted`.
pub(super) fn run(
    inputs: Vec<Input>,
    sifted: &[Shared],
    frame: &Frame,
    sinks: Vec<Box<dyn Sink>>,
) -> Result<Replayed, Failure> {
    let mut story = Story::new(sinks, frame.node_name.clone());
    static WORDS: LazyLock<Words> = LazyLock::new(|| Words::new(&needles()));
    let logs = inputs.into_iter().map(|input| {
        let modified = input.modified();
        let reader = LogReader::new(input, WORDS.clone(), frame.options);
        Log::new(reader, modified.into())
    });
    let mut merged = Merged::new(logs.collect());
    while merged.next(|state, entry| story.entry(state, entry)) {
        story.go_on(merged.logs(), false)?;
        if story.sinks.is_empty() {
            let found = story.found();
            return Ok(Replayed::Unheard { found });
        }
    }
    let failed = merged.take_failed();
    story.end(&mut merged);
    let sifted = || sifted.iter().map(|printed| printed.borrow());
    // What is between records and tells nothing is no story.
    let is_little = !story.nodes.iter().any(|node| node.told);
    let has_gap = || merged.logs().iter().any(|log| !log.gaps().is_empty());
    let told = sifted().filter(|printed| printed.is_told()).count();
    if failed.is_none() && is_little && told == merged.logs().len() && !has_gap() {
        let found = Outcome::default();
        return Ok(Replayed::Whole { found });
    }
    let untold = sifted().filter(|printed| !printed.is_told());
    story.unread = untold.flat_map(|printed| printed.gaps()).collect();
    if failed.is_none() && !merged.logs().iter().any(Log::is_understood) {
        let name = merged.logs().first().map(|log| log.name().to_owned());
        let name = name.unwrap_or_default();
        return Err(Failure::NotUnderstood { name });
    }
    story.go_on(merged.logs(), true)?;
    let found = story.finish(merged.logs())?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    match merged.logs().iter().find(|log| !log.is_understood()) {
        Some(log) => Err(Failure::NotUnderstood {
            name: log.name().to_owned(),
        }),
        None => Ok(Replayed::Whole { found }),
    }
}

/// All logs of a command line.
struct Story {
    sinks: Vec<Box<dyn Sink>>,
    /// The name of hosts that the logs do not name.
    name: Option<String>,
    nodes: Vec<Node>,
    by_name: BTreeMap<String, usize>,
    window: Window,
    pace: Pace,
    covered: bool,
    /// The logs had ended by then.
    whole: bool,
    /// Lines of hosts beyond [`MAX_HOSTS`].
    crowded: u64,
    /// What was left out of the logs before they were read.
    unread: Vec<String>,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl Story {
    fn new(sinks: Vec<Box<dyn Sink>>, name: Option<String>) -> Self {
        Self {
            sinks,
            name,
            nodes: Vec::new(),
            by_name: BTreeMap::new(),
            window: Window::default(),
            pace: Pace::default(),
            covered: false,
            whole: false,
            crowded: 0,
            unread: Vec::new(),
            first: None,
            last: None,
        }
    }

    /// Takes a message in.
    fn entry(&mut self, log: &mut State, entry: &mut Entry<'_>) {
        let untimed = entry.time.is_none();
        let plain = log.complete(entry);
        let host = entry.host.map(str::to_owned).or_else(|| log.host.clone());
        let host = host.or_else(|| self.name.clone());
        let host: String = host.unwrap_or_else(|| UNNAMED.to_owned());
        let Some(place) = self.node(&host) else {
            self.crowded += 1;
            return;
        };
        let Some(node) = self.nodes.get_mut(place) else {
            return;
        };
        let mut events = Vec::new();
        if plain {
            events.extend(log.kubectl.line(&entry.message));
            log.told |= !events.is_empty();
        }
        // What kubectl has printed quotes what others have logged.
        let quoted = plain && log.kubectl.took();
        if !quoted {
            let deeds = node.meaning.events(entry);
            let served = entry.time.and_then(|time| node.meaning.served(time));
            let failed = failures::events(entry, served);
            let told = deeds.len() + failed.len();
            log.events += told as u64;
            log.untimed += u64::from(untimed && told > 0);
            let of_calls = !deeds.is_empty();
            events.extend(deeds);
            let before = match plain {
                true => log.block.line(entry, failed, of_calls),
                false => {
                    events.extend(failed);
                    log.block.end()
                }
            };
            events.extend(
                before
                    .map(|block| whole(node, log, block))
                    .unwrap_or_default(),
            );
        } else if let Some(block) = log.block.end() {
            events.extend(whole(node, log, block));
        }
        log.judge(&events);
        self.put(place, events);
    }

    /// What is left when the logs have ended.
    fn end(&mut self, merged: &mut Merged) {
        self.whole = true;
        for log in merged.logs_mut() {
            let state = &mut log.state;
            let mut events = state.kubectl.end();
            state.told |= !events.is_empty();
            let host = state.host.clone().or_else(|| self.name.clone());
            let host = host.unwrap_or_else(|| UNNAMED.to_owned());
            let block = state.block.end();
            if block.is_none() && events.is_empty() {
                continue;
            }
            let Some(place) = self.node(&host) else {
                continue;
            };
            if let (Some(block), Some(node)) = (block, self.nodes.get_mut(place)) {
                events.extend(whole(node, state, block));
            }
            state.judge(&events);
            self.put(place, events);
        }
        for place in 0..self.nodes.len() {
            let node = self.nodes.get_mut(place);
            let events = node.map(|node| node.meaning.end()).unwrap_or_default();
            self.put(place, events);
        }
    }

    fn put(&mut self, place: usize, events: Vec<Event>) {
        if let Some(node) = self.nodes.get_mut(place) {
            node.told |= !events.is_empty();
        }
        for event in events {
            self.window.put(place, event);
        }
    }

    /// The host of a name; `None` if there are too many.
    fn node(&mut self, name: &str) -> Option<usize> {
        if let Some(place) = self.by_name.get(name) {
            return Some(*place);
        }
        if self.nodes.len() >= MAX_HOSTS || name.len() > MAX_NAME {
            return None;
        }
        let place = self.nodes.len();
        self.nodes.push(Node::new(name));
        self.by_name.insert(name.to_owned(), place);
        Some(place)
    }

    /// Tells what can be told by now; at the end, all of it.
    fn go_on(&mut self, logs: &[Log], all: bool) -> Result<(), SinkError> {
        self.pace.read(logs.iter().map(Log::bytes).sum());
        while let Some((place, event)) = self.window.take(all) {
            self.cover(logs, event.time)?;
            self.first = Some(self.first.map_or(event.time, |first| first.min(event.time)));
            self.last = self.last.max(Some(event.time));
            // Rules of other hosts have their times, too.
            for other in 0..self.nodes.len() {
                self.advance(other, event.time)?;
            }
            let Some(node) = self.nodes.get_mut(place) else {
                continue;
            };
            node.take(&event, logs);
            let name = node.name.clone();
            self.write(&Record::event(&name, &event))?;
        }
        Ok(())
    }

    /// Asks a host's rules at each moment before `to` at which they want to be.
    fn advance(&mut self, place: usize, to: Timestamp) -> Result<(), SinkError> {
        loop {
            let Some(node) = self.nodes.get_mut(place) else {
                return Ok(());
            };
            let Some(at) = node.due(to, &mut self.pace) else {
                return Ok(());
            };
            self.tick(place, at)?;
        }
    }

    fn tick(&mut self, place: usize, at: Timestamp) -> Result<(), SinkError> {
        let Some(node) = self.nodes.get_mut(place) else {
            return Ok(());
        };
        let told = node.tick(at);
        let name = node.name.clone();
        for (finding, state) in told {
            self.write(&Record::finding(&name, at, &finding, state))?;
        }
        Ok(())
    }

    /// Tells what the logs are, once: before anything that they say.
    fn cover(&mut self, logs: &[Log], time: Timestamp) -> Result<(), SinkError> {
        if std::mem::replace(&mut self.covered, true) {
            return Ok(());
        }
        let items = frame::coverage(logs, self.whole);
        let name = self.names();
        self.write(&Record::coverage(&name, time, &items))
    }

    /// Tells what is to be told at the end. Returns what was found.
    ///
    /// No log has what ghost-sandbox and duplicate-address need, and nobody
    /// expects it to: that they were not checked is in the coverage.
    fn finish(&mut self, logs: &[Log]) -> Result<Outcome, SinkError> {
        for place in 0..self.nodes.len() {
            if let Some(at) = self.nodes.get_mut(place).and_then(Node::last_due) {
                self.tick(place, at)?;
            }
        }
        let times = logs.iter().filter_map(Log::times);
        let last = self.last.or_else(|| times.map(|(_, last)| last).max());
        let now = last.or_else(|| logs.first().map(|log| log.state.modified));
        let now = now.unwrap_or_else(sys::clock::now);
        let partial = self.covered && !frame::is_whole(logs, self.whole, self.window.spilled());
        self.cover(logs, self.first.unwrap_or(now))?;
        let name = self.names();
        if partial {
            let items = frame::coverage(logs, true);
            self.write(&Record::coverage(&name, now, &items))?;
        }
        let summary = self.summary(logs, now);
        self.write(&Record::summary(&name, now, &summary))?;
        for sink in &mut self.sinks {
            output::quietly(sink.flush())?;
        }
        Ok(Outcome::of(summary.worst_seen, &[]))
    }

    fn found(&self) -> Outcome {
        Outcome::of(self.nodes.iter().filter_map(Node::worst).max(), &[])
    }

    fn summary(&self, logs: &[Log], now: Timestamp) -> Summary {
        let took = now.since(self.first.unwrap_or(now));
        let mut summary = frame::summary(&self.nodes, took);
        let unknown = &mut summary.unknown;
        unknown.extend_from_slice(&self.unread);
        unknown.extend(self.window.gap());
        unknown.extend(self.pace.gap());
        if self.crowded > 0 {
            unknown.push(format!(
                "what {} lines of the logs say: they are of more than {MAX_HOSTS} hosts",
                self.crowded
            ));
        }
        for log in logs {
            let gaps = log.gaps();
            unknown.extend(gaps.into_iter().map(|gap| format!("{}: {gap}", log.name())));
        }
        summary
    }

    /// The names of the hosts of which something was told.
    fn names(&self) -> String {
        let told = self.nodes.iter().filter(|node| node.told);
        let names: Vec<&str> = told.map(|node| node.name.as_str()).collect();
        match (names.as_slice(), &self.name) {
            ([], Some(name)) => name.clone(),
            ([], None) => UNNAMED.to_owned(),
            (names, _) => names.join(","),
        }
    }

    fn write(&mut self, record: &Record<'_>) -> Result<(), SinkError> {
        output::to_listeners(&mut self.sinks, record)
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

/// What a message of several lines without an envelope tells: what its lines
/// tell each for itself, unless the whole says more.
fn whole(node: &mut Node, log: &mut State, block: Block) -> Vec<Event> {
    if !block.is_wrapped() {
        return block.told;
    }
    let entry = Entry {
        time: block.time,
        host: None,
        ident: None,
        pid: None,
        level: None,
        own_level: None,
        message: block.text.into(),
        fields: Vec::new(),
        line: 0,
    };
    let deeds = match block.calls {
        true => Vec::new(),
        false => node.meaning.events(&entry),
    };
    let served = entry.time.and_then(|time| node.meaning.served(time));
    let failed = failures::events(&entry, served);
    let counted = block.calls || !block.told.is_empty();
    let mut events = match failed.is_empty() {
        true => block.told,
        false => failed,
    };
    events.extend(deeds);
    if !counted {
        log.events += events.len() as u64;
        log.untimed += u64::from(!events.is_empty());
    }
    events
}

/// Whether something that can be replayed is a recording, or meant to be one:
/// by its first bytes.
pub(super) fn is_recording(beginning: &[u8]) -> bool {
    let text = beginning.trim_ascii_start();
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let has = |part: &[u8]| line.windows(part.len()).any(|window| window == part);
    let schema = || line.starts_with(b"{") && has(b"\"schema\":\"node-tracer/");
    // A recording whose first line is missing is none, and is told so.
    let event = || line.starts_with(b"{\"time\":\"") && has(b"\"event\":\"");
    text.is_empty() || schema() || event()
}

/// Says which logs could not be understood.
pub(super) fn not_understood(name: &str) -> String {
    format!(
        "{}: nothing in it could be understood. What can be replayed: what `node-tracer trace \
         --record FILE` and `node-tracer scan --record FILE` have written, and what they have \
         printed with -o json or into the journal; logs of the kubelet, of \
         containerd, CRI-O, dockerd, of CNI plugins and of the kernel, as files, as journalctl \
         prints them (short, short-iso, json, export) or as `kubectl logs` does; and what `kubectl \
         describe pod` and `kubectl get events` print",
        Printable(name)
    )
}

/// Logs, one behind each group separator, as one story: whatever they are, it
/// is told in order, has an end, and is no longer than they are.
#[cfg(feature = "testing")]
pub(crate) fn fuzz(data: &[u8]) {
    use super::heard::{Heard, Of};

    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_763_700_000);
    let parts = data.split(|byte| *byte == 0x1d).take(6);
    let inputs = parts.enumerate().filter_map(|(number, part)| {
        let raw = Box::new(std::io::Cursor::new(part.to_vec()));
        Input::new(format!("log-{number}"), Some(modified), raw).ok()
    });
    let inputs = inputs.filter(|input| !is_recording(input.beginning()));
    let inputs: Vec<Input> = inputs.collect();
    if inputs.is_empty() || inputs.iter().any(|input| input.packed().is_some()) {
        return;
    }
    let (heard, count) = Heard::new(Of::Logs);
    let _ = run(inputs, &[], &Frame::default(), vec![Box::new(heard)]);
    let (count, lines) = (*count.borrow(), data.split(|byte| *byte == b'\n').count());
    assert!(
        count.events <= 16 * lines,
        "{} events of {lines} lines",
        count.events
    );
    assert!(
        count.bytes <= (1 << 20) + 1_024 * data.len(),
        "{} bytes",
        count.bytes
    );
}

#[cfg(test)]
mod tests;
