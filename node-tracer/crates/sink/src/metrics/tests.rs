//! What a scraper reads after a story was told.

use super::*;
use engine::testing::Node;
use event::{Event, finding::Finding, testing::*};

fn count(metrics: &mut Metrics, event: &Event) {
    metrics.count(&Record::event("node-1", event));
}

fn find(metrics: &mut Metrics, finding: &Finding, state: State) {
    metrics.count(&Record::finding("node-1", s(0), finding, state));
}

/// The value of a series, as it is written.
fn value(metrics: &Metrics, series: &str) -> Option<f64> {
    let text = metrics.shelf().text();
    let line = text.lines().find(|line| {
        let rest = line.strip_prefix(series);
        rest.is_some_and(|rest| rest.starts_with(' '))
    })?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The incident, and what is found of it.
pub(super) fn told() -> Metrics {
    told_to(Metrics::new())
}

pub(super) fn told_to(mut metrics: Metrics) -> Metrics {
    let mut node = Node::default();
    let mut story = ghost_story();
    story.push(at(70, What::Tick));
    for event in &story {
        count(&mut metrics, event);
        for (finding, state) in node.0.apply(event) {
            find(&mut metrics, &finding, state);
        }
    }
    metrics
}

#[test]
fn open_findings_are_a_gauge_and_opened_ones_a_counter() {
    let mut metrics = told();
    let ghosts = r#"node_tracer_ghost_sandboxes{phase="suspected"}"#;
    assert_eq!(value(&metrics, ghosts), Some(1.0));
    let opened = r#"node_tracer_findings_opened_total{rule="ghost-sandbox"}"#;
    assert_eq!(value(&metrics, opened), Some(1.0));
    let mut node = Node::default();
    let mut story = ghost_story();
    story.push(at(70, What::Tick));
    let all = story.iter().flat_map(|event| node.0.apply(event));
    let mut ghosts_found = all.filter(|(finding, _)| finding.rule == Rule::GhostSandbox);
    let (mut ghost, _) = ghosts_found.next().unwrap();
    ghost.detail.phase = Some(Phase::Conflict);
    ghost.severity = Severity::Critical;
    find(&mut metrics, &ghost, State::Updated);
    assert_eq!(value(&metrics, ghosts), Some(0.0));
    let conflict = r#"node_tracer_ghost_sandboxes{phase="conflict"}"#;
    assert_eq!(value(&metrics, conflict), Some(1.0));
    let critical = r#"node_tracer_findings{rule="ghost-sandbox",severity="critical"}"#;
    assert_eq!(value(&metrics, critical), Some(1.0));
    find(&mut metrics, &ghost, State::Resolved);
    assert_eq!(value(&metrics, conflict), Some(0.0));
    assert_eq!(value(&metrics, critical), Some(0.0));
    assert_eq!(value(&metrics, opened), Some(1.0), "it was opened once");
}

#[test]
fn events_are_counted_by_kind_and_calls_by_how_they_ended() {
    let mut metrics = told();
    let deleted = r#"node_tracer_events_total{event="pod-deleted"}"#;
    let deletions = ghost_story();
    let deletions = deletions
        .iter()
        .filter(|it| it.what.name() == "pod-deleted");
    assert_eq!(
        value(&metrics, deleted).unwrap_or(0.0),
        deletions.count() as f64
    );
    let failure = failed(1, call("ADD", "x", 100, OLD, "a"), "no");
    count(&mut metrics, &failure);
    let series = r#"node_tracer_cni_calls_total{command="ADD",plugin="bridge",outcome="error"}"#;
    assert_eq!(
        value(&metrics, series),
        Some(1.0),
        "{}",
        metrics.shelf().text()
    );
    let What::CniCall { mut call, .. } = failure.what.clone() else {
        panic!("it is a call");
    };
    call.trusted = false;
    let mut untrusted = failure.clone();
    if let What::CniCall { call: its, .. } = &mut untrusted.what {
        *its = call;
    }
    count(&mut metrics, &untrusted);
    assert_eq!(
        value(&metrics, series),
        Some(1.0),
        "what a pod says does not count"
    );
    let count = r#"node_tracer_cni_call_duration_seconds_count{command="ADD"}"#;
    assert!(value(&metrics, count).unwrap() >= 1.0);
}

#[test]
fn label_sets_are_bounded_and_hold_no_foreign_text() {
    let mut metrics = Metrics::new();
    for i in 0..200 {
        let mut event = failed(1, call("ADD", "x", 100, OLD, "a"), "no");
        if let What::CniCall { call, .. } = &mut event.what {
            call.plugin = format!("plugin{i}");
            call.command = format!("COMMAND{i}").into();
        }
        count(&mut metrics, &event);
        let cause = format!("cause\"\n{i}");
        count(&mut metrics, &at(1, What::EventsLost { cause, count: 2 }));
    }
    let text = metrics.shelf().text();
    let calls = text
        .lines()
        .filter(|line| line.starts_with("node_tracer_cni_calls_total"));
    assert_eq!(calls.count(), MAX_PLUGINS + 1);
    let lost = r#"node_tracer_events_lost_total{cause="other"}"#;
    assert_eq!(value(&metrics, lost), Some(400.0));
    assert!(text.ends_with("# EOF\n"));
    assert!(text.lines().all(|line| line.len() < 300));
}

#[test]
fn sleepers_are_counted_once() {
    let mut metrics = Metrics::new();
    let sleeps = |pid| What::TaskBlocked {
        task: task(pid, "dd"),
        since: s(0),
        found: false,
        netns: None,
        wchan: None,
        stack: Vec::new(),
        killable: None,
        sigkill_pending: None,
        fuse: Vec::new(),
    };
    let series = "node_tracer_blocked_tasks";
    for pid in [7, 7, 8] {
        count(&mut metrics, &at(1, sleeps(pid)));
    }
    assert_eq!(value(&metrics, series), Some(2.0));
    let woken = What::TaskUnblocked {
        task: task(7, "dd"),
        since: s(0),
        duration_ms: 1,
    };
    count(&mut metrics, &at(2, woken));
    assert_eq!(value(&metrics, series), Some(1.0));
}

#[test]
fn mechanisms_are_labels_and_paths_are_not() {
    let mut metrics = Metrics::new();
    let item = |signal: &str, mechanism: Option<&str>| CoverageItem {
        signal: signal.to_owned(),
        mechanism: mechanism.map(str::to_owned),
        reason: None,
        unknown: Vec::new(),
    };
    let items = [
        item("cni-call", Some("tp_btf")),
        item("cri", None),
        item("pods", Some("/etc/pods.json")),
    ];
    metrics.count(&Record::coverage("node-1", sys::clock::now(), &items));
    let info = |signal: &str, mechanism: &str| {
        let series =
            format!("node_tracer_signal_info{{signal=\"{signal}\",mechanism=\"{mechanism}\"}}");
        value(&metrics, &series)
    };
    assert_eq!(info("cni-call", "tp_btf"), Some(1.0));
    assert_eq!(info("cri", "none"), Some(0.0));
    assert_eq!(info("pods", "other"), Some(1.0));
    assert!(value(&metrics, "process_resident_memory_bytes").unwrap() > 1e6);
    assert!(value(&metrics, "process_cpu_seconds_total").is_some());
}

#[test]
fn the_worst_open_findings_have_a_series_each_and_the_others_are_counted() {
    let mut metrics = Metrics::new();
    metrics.show_findings();
    let mut node = Node::default();
    let mut story = ghost_story();
    story.push(at(70, What::Tick));
    let all = story.iter().flat_map(|event| node.0.apply(event));
    let mut ghosts_found = all.filter(|(finding, _)| finding.rule == Rule::GhostSandbox);
    let (ghost, _) = ghosts_found.next().unwrap();
    for number in 0..40 {
        let mut one = ghost.clone();
        one.id = format!("{number:016}");
        one.severity = match number {
            39 => Severity::Critical,
            _ => Severity::Warning,
        };
        find(&mut metrics, &one, State::Open);
    }
    let shown = |metrics: &Metrics| {
        let text = metrics.shelf().text();
        let series = "node_tracer_open_finding_info{";
        let lines = text.lines().filter(|line| line.starts_with(series));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let series = shown(&metrics);
    assert_eq!(series.len(), 32);
    let worst =
        r#"address="10.0.0.5",namespace="shop",pod="checkout-x8k2p",id="0000000000000039"} 1"#;
    assert!(
        series.iter().any(|line| line.ends_with(worst)),
        "{series:#?}"
    );
    let left_out = "node_tracer_open_findings_left_out";
    assert_eq!(value(&metrics, left_out), Some(8.0));

    for number in 0..40 {
        let mut one = ghost.clone();
        one.id = format!("{number:016}");
        find(&mut metrics, &one, State::Resolved);
    }
    assert!(shown(&metrics).is_empty());
    assert_eq!(value(&metrics, left_out), Some(0.0));
}
