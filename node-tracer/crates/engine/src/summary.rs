//! A run in numbers, from its engine.

use std::time::Duration;

use crate::Engine;
use event::{
    record::{Count, CoverageItem, Summary},
    wording::plural as words,
};

/// Of a stream: what was open at any time.
pub fn of_stream(engine: &Engine, took: Duration) -> Summary {
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
    for (rule, severity) in engine.worst_of_open() {
        let of_rule = summary.rules.get_mut(&rule);
        let of_severity = summary.severities.get_mut(&severity);
        for count in of_rule.into_iter().chain(of_severity) {
            count.resolved = count.resolved.saturating_sub(1);
        }
    }
    summary
}

/// How a stream stands, in one line, for the service manager.
pub fn status(engine: &Engine) -> String {
    let open = engine.open();
    let found = match open.first() {
        None => String::from("nothing found"),
        Some(worst) => {
            let worst = worst.severity.as_str();
            let findings = words::counted(open.len(), "finding");
            format!("{findings} open, the worst {worst}")
        }
    };
    match words::total(engine.summary().lost.values()) {
        0 => format!("Watching: {found}"),
        lost => format!("Watching: {found}; {lost} events lost"),
    }
}

/// Of looks: what is open at the end; with what sources could not tell.
pub fn of_looks(engine: &Engine, items: &[CoverageItem], took: Duration) -> Summary {
    let summary = open(engine, took);
    let gaps = engine.gaps();
    Summary {
        worst_seen: summary.worst_open,
        unknown: gaps.iter().cloned().chain(partly(items, gaps)).collect(),
        ..summary
    }
}

fn open(engine: &Engine, took: Duration) -> Summary {
    let run = engine.summary();
    let mut summary = Summary {
        events_seen: run.events,
        events_lost: run.lost,
        not_checked: engine.not_checked().to_vec(),
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

/// What sources that were seen could not tell, besides what has been said; those
/// that were not are named before anything else.
fn partly(items: &[CoverageItem], said: &[String]) -> impl Iterator<Item = String> {
    let seen = items.iter().filter(|item| item.mechanism.is_some());
    seen.flat_map(|item| {
        let unknown = item.unknown.iter().filter(|it| !said.contains(it));
        unknown.map(|unknown| format!("{}: {unknown}", item.signal))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Node;
    use event::testing::*;

    #[test]
    fn what_was_worse_once_and_is_open_is_not_resolved() {
        let mut node = Node::of(&ghost_story());
        node.tick(70);
        node.tell(reserved(71, None));
        node.tick(72);
        node.tell(reserved(80, Some("sandbox-old")));
        node.tick(90);
        let summary = of_stream(&node.0, Duration::ZERO);
        assert!(summary.worst_open < summary.worst_seen, "{summary:?}");
        let resolved = |count: &Count| count.resolved;
        assert_eq!(summary.rules.values().map(resolved).sum::<u64>(), 0);
        assert_eq!(summary.severities.values().map(resolved).sum::<u64>(), 0);
    }
}
