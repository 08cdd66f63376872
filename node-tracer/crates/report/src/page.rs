//! What the template is given.

mod command;
mod parts;

use std::collections::BTreeMap;

use askama::Template;

use self::parts::{CallView, CoverageView, FindingView, PartView, calls, coverage, finding, parts};
use super::{
    incident::incidents,
    narrative::{Chapter, MAX_CHAPTERS, chapters, verdict},
    prose::date,
    shared::{SharedView, view},
    sheet::Sheet,
    shown::Shown,
    timeline::{Timeline, timeline},
};
use event::{
    clock::Timestamp,
    finding::Severity,
    wording::{
        duration::length,
        plural::{after, counted, total},
    },
};

/// Findings that are shown.
const MAX_FINDINGS: usize = 100;

#[derive(Debug, Template)]
#[template(path = "report.html")]
pub struct Page {
    node: Shown,
    /// The worst there was: a class of the style sheet.
    class: &'static str,
    verdict: Shown,
    /// When it was, how long, what it was seen by, ...
    facts: Vec<(&'static str, Shown)>,
    /// `2 critical`, `1 warning`
    counts: Vec<(&'static str, String)>,
    /// Addresses that sandboxes of several nodes have.
    shared: Vec<SharedView>,
    /// The recordings, if there are several.
    parts: Vec<PartView>,
    /// They are of different nodes.
    has_nodes: bool,
    chapters: Vec<Chapter>,
    timeline: Timeline,
    findings: Vec<FindingView>,
    calls: Vec<CallView>,
    coverage: Vec<CoverageView>,
    /// Records that were lost, by cause.
    losses: Vec<(Shown, u64)>,
    /// What the run could not tell.
    unknown: Vec<Shown>,
    /// What the page has no room for.
    left_out: Vec<String>,
    version: &'static str,
}

impl Page {
    pub fn new(sheet: &Sheet) -> Self {
        let incidents = incidents(sheet);
        let calendar = sheet.calendar();
        let all = sheet.findings.worst_first();
        let worst = all.first().map(|history| history.worst.severity);
        let timeline = timeline(sheet, &incidents);
        let (calls, more_calls) = calls(sheet, &incidents, &calendar);
        let mut losses: BTreeMap<&str, u64> = BTreeMap::new();
        for (cause, count) in sheet.summaries().flat_map(|it| &it.events_lost) {
            *losses.entry(cause).or_default() += count;
        }
        let unknown = sheet.summaries().flat_map(|summary| &summary.unknown);
        let more_findings =
            all.len().saturating_sub(MAX_FINDINGS) as u64 + sheet.findings.left_out();
        let mut left_out = Vec::new();
        let mut cut = |number: u64, noun: &str, why: &str| {
            if number > 0 {
                left_out.push(format!("{number} {}: {why}", after(number, noun)));
            }
        };
        cut(
            more_findings,
            "more finding",
            "only the worst are here; replay tells them all",
        );
        cut(
            incidents.len().saturating_sub(MAX_CHAPTERS) as u64,
            "more incident",
            "only the worst are told in words; their findings are here",
        );
        cut(
            more_calls as u64,
            "more CNI call",
            "only the first of each sandbox are here",
        );
        cut(
            timeline.left_out as u64,
            "more sandbox",
            "only those with most to show are drawn",
        );
        cut(
            sheet.lanes.left_out(),
            "sandbox",
            "forgotten while the recording was read, as there were too many",
        );
        cut(
            sheet.left_out,
            "record",
            "of more nodes than one input may have",
        );
        let shared = incidents.iter().flat_map(|incident| &incident.shared);
        let shared = shared.map(|one| view(sheet, one)).collect();
        Self {
            shared,
            parts: parts(sheet),
            has_nodes: sheet.has_nodes(),
            node: Shown::new(&sheet.node),
            class: class(worst),
            verdict: verdict(sheet, &incidents),
            facts: facts(sheet),
            counts: counts(&all.iter().map(|it| it.worst.severity).collect::<Vec<_>>()),
            chapters: chapters(sheet, &incidents),
            findings: all
                .iter()
                .take(MAX_FINDINGS)
                .map(|it| finding(sheet, it, &calendar))
                .collect(),
            calls,
            coverage: coverage(sheet),
            losses: losses
                .into_iter()
                .map(|(cause, count)| (Shown::new(cause), count))
                .collect(),
            unknown: unknown.map(Shown::new).collect(),
            left_out,
            timeline,
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    pub fn html(&self) -> askama::Result<String> {
        self.render()
    }
}

/// How a severity looks.
fn class(severity: Option<Severity>) -> &'static str {
    match severity {
        Some(severity) => severity.as_str(),
        None => "nothing",
    }
}

/// From when to when, and how long.
fn times(began: Timestamp, ended: Timestamp) -> String {
    let from = format!("{} {}", date(began), began.time_of_day());
    let to = match date(ended) == date(began) {
        true => ended.time_of_day(),
        false => format!("{} {}", date(ended), ended.time_of_day()),
    };
    format!("{from} to {to} ({})", length(ended.since(began)))
}

fn facts(sheet: &Sheet) -> Vec<(&'static str, Shown)> {
    let label = match sheet.has_nodes() {
        true => "Nodes",
        false => "Node",
    };
    let mut facts = vec![(label, Shown::new(&sheet.node))];
    let began = sheet.began();
    match &sheet.summary {
        None if sheet.parts.is_empty() => {
            let from = format!("from {} {}", date(began), began.time_of_day());
            facts.push(("Time, UTC", Shown::new(from)));
        }
        _ => {
            let times = times(began, sheet.ended());
            facts.push(("Time, UTC", Shown::new(times)));
        }
    }
    let own = sheet
        .coverage
        .iter()
        .find(|item| item.signal == "recording");
    if let Some(own) = own.and_then(|item| item.mechanism.as_ref()) {
        facts.push(("Recording", Shown::new(own)));
    }
    if !sheet.parts.is_empty() {
        let recordings = counted(sheet.parts.len(), "recording");
        facts.push(("Made of", Shown::new(recordings)));
    }
    if sheet.summaries().next().is_some() {
        let lost = sheet.summaries().flat_map(|it| it.events_lost.values());
        let lost = match total(lost) {
            0 => String::from("none lost"),
            lost => format!("{lost} lost"),
        };
        let seen: u64 = sheet.summaries().map(|it| it.events_seen).sum();
        let seen = seen as usize;
        facts.push((
            "Events",
            Shown::new(format!("{}, {lost}", counted(seen, "event"))),
        ));
    }
    facts
}

fn counts(all: &[Severity]) -> Vec<(&'static str, String)> {
    let severities = [Severity::Critical, Severity::Warning, Severity::Info];
    let counts = severities.into_iter().map(|severity| {
        let count = all.iter().filter(|each| **each == severity).count();
        (severity.as_str(), count)
    });
    let some = counts.filter(|(_, count)| *count > 0);
    some.map(|(severity, count)| (severity, format!("{count} {severity}")))
        .collect()
}
