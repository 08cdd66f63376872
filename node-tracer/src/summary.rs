//! A run in numbers, from its engine.

use std::time::Duration;

use crate::{
    engine::Engine,
    record::{Count, CoverageItem, Summary},
    words,
};

/// Of a stream: what was open at any time.
pub(crate) fn of_stream(engine: &Engine, took: Duration) -> Summary {
    let run = engine.summary();
    let mut summary = Summary {
        worst_seen: run.worst(),
        unknown: engine.gaps().to_vec(),
        ..open(engine, took)
    };
    for (rule, severities) in run.findings {
        for (severity, seen) in severities {
            // Counted under the worst severity that each has had.
            summary.rules.entry(rule).or_default().resolved += seen;
            summary.severities.entry(severity).or_default().resolved += seen;
        }
    }
    for count in summary
        .rules
        .values_mut()
        .chain(summary.severities.values_mut())
    {
        count.resolved = count.resolved.saturating_sub(count.open);
    }
    summary
}

/// How a stream stands, in one line, for the service manager.
pub(crate) fn status(engine: &Engine) -> String {
    let open = engine.open();
    let found = match open.first() {
        None => String::from("nothing found"),
        Some(worst) => {
            let worst = worst.severity.as_str();
            let findings = words::counted(open.len(), "finding");
            format!("{findings} open, the worst {worst}")
        }
    };
    match engine.summary().lost.values().sum() {
        0_u64 => format!("Watching: {found}"),
        lost => format!("Watching: {found}; {lost} events lost"),
    }
}

/// Of looks: what is open at the end; with what sources could not tell.
pub(crate) fn of_looks(engine: &Engine, items: &[CoverageItem], took: Duration) -> Summary {
    let summary = open(engine, took);
    let gaps = engine.gaps().iter().cloned();
    Summary {
        worst_seen: summary.worst_open,
        unknown: gaps.chain(partly(items)).collect(),
        ..summary
    }
}

/// What is open.
fn open(engine: &Engine, took: Duration) -> Summary {
    let run = engine.summary();
    let mut summary = Summary {
        events_seen: run.events,
        events_lost: run.lost,
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        ..Summary::default()
    };
    let one = |count: &mut Count| count.open += 1;
    for finding in engine.open() {
        one(summary.rules.entry(finding.rule).or_default());
        one(summary.severities.entry(finding.severity).or_default());
        summary.worst_open = summary.worst_open.max(Some(finding.severity));
    }
    summary
}

/// What sources that were seen could not tell; those that were not are named
/// before anything else.
fn partly(items: &[CoverageItem]) -> impl Iterator<Item = String> {
    let seen = items.iter().filter(|item| item.mechanism.is_some());
    seen.flat_map(|item| {
        let unknown = item.unknown.iter();
        unknown.map(|unknown| format!("{}: {unknown}", item.signal))
    })
}
