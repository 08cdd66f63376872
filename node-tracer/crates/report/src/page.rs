//! What the template is given.

mod command;
mod parts;

use askama::Template;

use self::parts::{CallView, CoverageView, FindingView, calls, coverage, finding};
use super::{
    incident::incidents,
    narrative::{Chapter, MAX_CHAPTERS, chapters, verdict},
    prose::date,
    sheet::Sheet,
    shown::Shown,
    timeline::{Timeline, timeline},
};
use event::{
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
        let incidents = incidents(&sheet.findings, &sheet.lanes);
        let calendar = sheet.calendar();
        let all = sheet.findings.worst_first();
        let worst = all.first().map(|history| history.worst.severity);
        let timeline = timeline(sheet, &incidents);
        let (calls, more_calls) = calls(sheet, &incidents, &calendar);
        let summary = sheet.summary.as_ref().map(|(_, summary)| summary);
        let losses = summary.into_iter().flat_map(|summary| &summary.events_lost);
        let unknown = summary.into_iter().flat_map(|summary| &summary.unknown);
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
        Self {
            node: Shown::new(&sheet.node),
            class: class(worst),
            verdict: verdict(sheet, &incidents),
            facts: facts(sheet),
            counts: counts(&all.iter().map(|it| it.worst.severity).collect::<Vec<_>>()),
            chapters: chapters(sheet, &incidents),
            findings: all
                .iter()
                .take(MAX_FINDINGS)
                .map(|it| finding(it, &calendar))
                .collect(),
            calls,
            coverage: coverage(sheet),
            losses: losses
                .map(|(cause, count)| (Shown::new(cause), *count))
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

fn facts(sheet: &Sheet) -> Vec<(&'static str, Shown)> {
    let mut facts = vec![("Node", Shown::new(&sheet.node))];
    let began = sheet.began();
    let from = format!("{} {}", date(began), began.time_of_day());
    match &sheet.summary {
        Some((ended, _)) => {
            let to = match date(*ended) == date(began) {
                true => ended.time_of_day(),
                false => format!("{} {}", date(*ended), ended.time_of_day()),
            };
            let took = length(ended.since(began));
            facts.push(("Time, UTC", Shown::new(format!("{from} to {to} ({took})"))));
        }
        None => facts.push(("Time, UTC", Shown::new(format!("from {from}")))),
    }
    let own = sheet
        .coverage
        .iter()
        .find(|item| item.signal == "recording");
    if let Some(own) = own.and_then(|item| item.mechanism.as_ref()) {
        facts.push(("Recording", Shown::new(own)));
    }
    if let Some((_, summary)) = &sheet.summary {
        let lost = match total(summary.events_lost.values()) {
            0 => String::from("none lost"),
            lost => format!("{lost} lost"),
        };
        let seen = summary.events_seen as usize;
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
