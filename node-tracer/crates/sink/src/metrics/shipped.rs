//! The dashboard and the alert rules that are shipped ask for metrics, labels
//! and values that there are.

use std::collections::{BTreeMap, BTreeSet};

use super::{tests::told_to, *};
use event::{
    signal::Signal,
    testing::{at, s},
};

const DASHBOARD: &str = include_str!("../../../../packaging/grafana/node-tracer.json");
const ALERTS: &str = include_str!("../../../../packaging/prometheus/alerts.yaml");

/// Labels that Prometheus adds; `node` is that of the PodMonitor in the documents.
const SCRAPED: [&str; 3] = ["instance", "job", "node"];

/// Names of metrics, as they are asked for, with the labels that a series of
/// each can have.
fn metrics() -> BTreeMap<String, BTreeSet<String>> {
    let mut metrics = Metrics::new();
    metrics.show_findings();
    let mut metrics = told_to(metrics);
    let lost = What::EventsLost {
        cause: String::from("ring-full"),
        count: 1,
    };
    metrics.count(&Record::event("node-1", &at(80, lost)));
    let items = [CoverageItem {
        signal: String::from("address"),
        mechanism: Some(String::from("fentry")),
        reason: None,
        unknown: Vec::new(),
    }];
    metrics.count(&Record::coverage("node-1", s(81), &items));
    let text = metrics.shelf().text();
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in series {
        let end = line.find(['{', ' ']).unwrap();
        let labels = all.entry(line[..end].to_owned()).or_default();
        labels.extend(selectors(line).into_iter().flat_map(|(_, labels)| {
            let names = labels.into_iter().map(|(label, _)| label);
            names.collect::<Vec<_>>()
        }));
    }
    all
}

/// `name{label="value", ...}` wherever it stands in an expression: name, labels
/// and values. A name alone counts only if it is one of ours.
fn selectors(expression: &str) -> Vec<(String, Vec<(String, String)>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(from) = rest.find(is_name) {
        rest = &rest[from..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        rest = after;
        let Some(inside) = after.strip_prefix('{') else {
            if name.starts_with("node_tracer_") || name.starts_with("process_") {
                found.push((name.to_owned(), Vec::new()));
            }
            continue;
        };
        let close = inside.find('}').unwrap();
        rest = &inside[close..];
        let mut labels = Vec::new();
        let mut inside = &inside[..close];
        while let Some((label, value)) = inside.split_once('"') {
            let (value, next) = value.split_once('"').unwrap();
            let label = label.trim_matches([',', ' ', '=', '~', '!']);
            labels.push((label.to_owned(), value.to_owned()));
            inside = next;
        }
        found.push((name.to_owned(), labels));
    }
    found
}

/// The lists behind `by` and `on` in an expression.
fn grouped(expression: &str) -> Vec<String> {
    let by = expression.split(" by (").skip(1);
    let parts = by.chain(expression.split(" on (").skip(1));
    let lists = parts.filter_map(|part| part.split_once(')'));
    let of_list = |list: &str| -> Vec<String> {
        let names = list.split(',').map(|name| name.trim().to_owned());
        names.collect()
    };
    let plain = |name: &String| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let all = lists.flat_map(|(list, _)| of_list(list));
    all.filter(|name| !name.is_empty() && plain(name)).collect()
}

/// All expressions: values of `expr`, however deep.
fn expressions(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if name == "expr" => found.push(text.to_owned()),
                    _ => expressions(value, found),
                }
            }
        }
        serde_json::Value::Array(values) => {
            values.iter().for_each(|value| expressions(value, found));
        }
        _ => {}
    }
}

fn check(expression: &str, metrics: &BTreeMap<String, BTreeSet<String>>) {
    let selectors = selectors(expression);
    assert!(!selectors.is_empty(), "no metric in {expression}");
    let mut possible: BTreeSet<&str> = SCRAPED.into();
    for (name, labels) in &selectors {
        if name == "up" {
            continue;
        }
        let known = metrics.get(name);
        let known = known.unwrap_or_else(|| panic!("no metric {name}: {expression}"));
        possible.extend(known.iter().map(String::as_str));
        for (label, value) in labels {
            assert!(
                known.contains(label) || SCRAPED.contains(&label.as_str()),
                "{name} has no label {label}: {expression}"
            );
            let values = value.split('|');
            values.for_each(|value| assert!(is_value(label, value), "{label}={value}"));
        }
    }
    for label in grouped(expression) {
        assert!(
            possible.contains(label.as_str()),
            "no label {label}: {expression}"
        );
    }
}

/// Whether a label can have this value.
fn is_value(label: &str, value: &str) -> bool {
    match label {
        "rule" => Rule::ALL.iter().any(|rule| rule.as_str() == value),
        "severity" => [Severity::Critical, Severity::Warning, Severity::Info]
            .iter()
            .any(|severity| severity.as_str() == value),
        "phase" => [Phase::Suspected, Phase::Armed, Phase::Conflict]
            .iter()
            .any(|phase| phase.as_str() == value),
        "command" => command_label(&value.into()) == value,
        "outcome" => ["ok", "error", "signal"].contains(&value),
        "signal" => Signal::ALL.iter().any(|signal| signal.to_string() == value),
        _ => true,
    }
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut found = Vec::new();
    expressions(&dashboard, &mut found);
    assert!(found.len() > 10, "{found:?}");
    let metrics = metrics();
    found
        .iter()
        .for_each(|expression| check(expression, &metrics));
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len());
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let nodes = &variables[1];
    check(nodes["definition"].as_str().unwrap(), &metrics);
}

#[test]
fn the_alerts_ask_for_what_there_is_and_say_what_to_do() {
    let alerts: serde_json::Value = serde_saphyr::from_str(ALERTS).unwrap();
    let groups = alerts["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| {
        let rules = group["rules"].as_array().unwrap().iter();
        rules.map(|rule| (group["name"] == "node-tracer", rule))
    });
    let metrics = metrics();
    let mut names = BTreeSet::new();
    for (of_one_node, rule) in rules {
        let name = rule["alert"].as_str().unwrap();
        assert!(names.insert(name), "{name} twice");
        check(rule["expr"].as_str().unwrap(), &metrics);
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{name}");
        let summary = rule["annotations"]["summary"].as_str().unwrap();
        let names_node = summary.contains("{{ $labels.instance }}");
        assert_eq!(names_node, of_one_node, "{name}");
        let todo = rule["annotations"]["description"].as_str().unwrap();
        assert!(todo.len() > 40, "{name}");
    }
    assert!(names.len() > 5);
}

#[test]
fn an_expression_is_taken_apart() {
    let expression =
        r#"sum by (a, b) (rate(node_tracer_x{c="1",d=~"2|3"}[5m])) / up{job="j"} + process_y"#;
    let of = |name: &str, labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(l, v)| (l.to_string(), v.to_string()));
        (name.to_owned(), labels.collect::<Vec<_>>())
    };
    assert_eq!(
        selectors(expression),
        [
            of("node_tracer_x", &[("c", "1"), ("d", "2|3")]),
            of("up", &[("job", "j")]),
            of("process_y", &[]),
        ]
    );
    assert_eq!(grouped(expression), ["a", "b"]);
}
