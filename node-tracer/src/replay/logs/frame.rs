//! What is told before and after the story: what the logs are, and what came
//! of them.

use std::time::Duration;

use super::{log::Log, node::Node};
use engine::summary;
use event::{
    record::{CoverageItem, Summary},
    wording::{escape::Printable, plural::counted},
};

/// What no log tells, whatever is in it.
const NEVER: [&str; 3] = [
    "network namespaces, addresses, devices and what holds them: a log tells of calls and messages",
    "what the logs do not contain: that no line tells of something does not mean that it did not \
     happen",
    "what was reserved in stores of addresses, and what the runtime and the API server had: they \
     were not asked",
];

/// What each log is, and what none tells.
pub(super) fn coverage(logs: &[Log], whole: bool) -> Vec<CoverageItem> {
    let mut items: Vec<CoverageItem> = logs.iter().map(|log| item(log, whole)).collect();
    items.push(CoverageItem {
        signal: String::from("node"),
        mechanism: None,
        reason: Some(String::from("only logs are replayed")),
        unknown: NEVER.map(String::from).into(),
    });
    items
}

/// Whether the coverage that was told first was of the logs as a whole.
pub(super) fn is_whole(logs: &[Log], whole: bool, spilled: bool) -> bool {
    logs.is_empty() || (whole && !spilled)
}

fn item(log: &Log, whole: bool) -> CoverageItem {
    let forms = log.forms();
    let records: u64 = forms.iter().map(|seen| seen.records).sum();
    let name = Printable(log.name());
    let mut said = vec![match log.is_of_kubectl() {
        true => format!("{name}: what kubectl has printed"),
        false => {
            let forms: Vec<&str> = forms.iter().map(|seen| seen.form.name()).collect();
            let forms = match forms.as_slice() {
                [] => String::from("plain text"),
                forms => forms.join(", "),
            };
            format!("{name}: {forms}")
        }
    }];
    said.extend(log.packed().map(|packed| format!("packed with {packed}")));
    if records > 0 {
        let records = usize::try_from(records).unwrap_or(usize::MAX);
        said.push(counted(records, "record"));
    }
    if let Some((first, last)) = log.times() {
        said.push(format!("{first} to {last}"));
    }
    if !whole {
        said.push(String::from("and more to come"));
    } else if log.is_fine() {
        let lines = usize::try_from(log.lines()).unwrap_or(usize::MAX);
        let lines = counted(lines, "line");
        said.push(format!("read {lines}; nothing fails to start"));
    }
    let understood = log.is_understood();
    CoverageItem {
        signal: String::from("log"),
        mechanism: understood.then(|| said.join(", ")),
        reason: (!understood).then(|| format!("{name}: nothing in it was understood")),
        unknown: log.gaps(),
    }
}

/// All hosts' runs in numbers, as one.
pub(super) fn summary(nodes: &[Node], took: Duration) -> Summary {
    let mut sum = Summary {
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        ..Summary::default()
    };
    for engine in nodes.iter().filter_map(Node::engine) {
        // What rules that need more than a log could not judge is in the
        // coverage already.
        let one = summary::of_stream(engine, took);
        for (rule, count) in one.rules {
            let all = sum.rules.entry(rule).or_default();
            all.open += count.open;
            all.resolved += count.resolved;
        }
        for (severity, count) in one.severities {
            let all = sum.severities.entry(severity).or_default();
            all.open += count.open;
            all.resolved += count.resolved;
        }
        for (cause, count) in one.events_lost {
            *sum.events_lost.entry(cause).or_default() += count;
        }
        sum.events_seen += one.events_seen;
        sum.worst_open = sum.worst_open.max(one.worst_open);
        sum.worst_seen = sum.worst_seen.max(one.worst_seen);
    }
    sum
}
