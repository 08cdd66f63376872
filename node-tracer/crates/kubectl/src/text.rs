//! Answers as people read them, in the layout of node-tracer itself.

use std::{collections::BTreeMap, fmt::Write as _, net::IpAddr};

use event::wording::escape::{Printable, is_hidden};
use serde_json::Value;

use crate::NAMESPACE;
use crate::answer::{ClusterAnswer, text as field};

/// Nodes that are listed as unknown one by one.
const MAX_UNKNOWN: usize = 10;
/// Incidents of one node that are shown: it could hide those of the others.
const MAX_INCIDENTS: usize = 50;

/// `name` is at the left, and one line's text behind it.
fn line(out: &mut String, name: &str, text: &str) {
    // Writing into a String does not fail.
    let _ = writeln!(out, "  {name:<8}  {}", Printable(text));
}

/// One line; what is hidden can only be in strings, and is escaped there.
pub(crate) fn json(answer: ClusterAnswer) -> String {
    let mut out = String::new();
    for c in answer.into_json().to_string().chars() {
        if is_hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out.push('\n');
    out
}

/// `namespace` is where the tracer is.
pub(crate) fn text(answer: &ClusterAnswer, namespace: &str) -> String {
    let mut out = String::new();
    if !answer.pages.is_empty() {
        for (node, page) in &answer.pages {
            let _ = writeln!(out, "node {}", Printable(node));
            for line in page.lines() {
                let _ = writeln!(out, "{}", Printable(line));
            }
        }
        unknown(&mut out, answer);
        return out;
    }
    if let Some(subject) = &answer.subject {
        let _ = writeln!(out, "{}", Printable(subject));
    }
    for holder in answer.holders.iter().flatten() {
        let on = match holder.node.as_str() {
            "" => "not bound to a node".to_owned(),
            node => format!("on {node}"),
        };
        let pod = format!("{}/{} {on} (API)", holder.namespace, holder.name);
        line(&mut out, "rightful", &pod);
    }
    if answer.holders.as_ref().is_some_and(Vec::is_empty) {
        line(&mut out, "rightful", "no pod has it in the API");
    }
    for explanation in &answer.explanations {
        let said = format!(
            "{}: {}",
            field(explanation, "/node"),
            field(explanation, "/answer")
        );
        line(&mut out, "node", &said);
    }
    if !out.is_empty() {
        out.push('\n');
    }
    let mut shown: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in answer.incidents() {
        let number = shown.entry(field(finding, "/node")).or_default();
        *number += 1;
        if *number <= MAX_INCIDENTS {
            incident(&mut out, finding, namespace);
        }
    }
    for (node, number) in shown {
        if let Some(more @ 1..) = number.checked_sub(MAX_INCIDENTS) {
            line(
                &mut out,
                "more",
                &format!("{more} incidents of {node}: see -o json"),
            );
        }
    }
    unknown(&mut out, answer);
    let incidents = answer.incidents().len();
    let plural = if incidents == 1 { "" } else { "s" };
    let asked = answer.answered + answer.unknown.len().saturating_sub(partly(answer));
    let _ = writeln!(
        out,
        "{incidents} incident{plural}; {} of {asked} nodes answered",
        answer.answered
    );
    out
}

fn unknown(out: &mut String, answer: &ClusterAnswer) {
    for (node, reason) in answer.unknown.iter().take(MAX_UNKNOWN) {
        line(out, "unknown", &format!("{node}: {reason}"));
    }
    let more = answer.unknown.len().saturating_sub(MAX_UNKNOWN);
    if more > 0 {
        line(out, "unknown", &format!("{more} more nodes: see -o json"));
    }
}

/// Nodes that have answered, though not everything.
fn partly(answer: &ClusterAnswer) -> usize {
    let reasons = answer.unknown.values();
    reasons
        .filter(|it| it.starts_with("could not evaluate"))
        .count()
}

fn incident(out: &mut String, finding: &Value, namespace: &str) {
    let severity = field(finding, "/severity").to_uppercase();
    let mut rule = field(finding, "/rule").to_owned();
    if let Some(phase) = finding["phase"].as_str() {
        let _ = write!(rule, "/{phase}");
    }
    let (node, title) = (field(finding, "/node"), field(finding, "/title"));
    let _ = writeln!(
        out,
        "{:<8}  {}  {}  {}",
        Printable(&severity),
        Printable(&rule),
        Printable(node),
        Printable(title)
    );
    let steps = finding["advice"].as_array().into_iter().flatten();
    if let Some(first) = steps.filter_map(Value::as_str).next() {
        line(out, "first", first);
    }
    // It is to be pasted, and a node is not trusted with what a shell reads.
    let address = field(finding, "/addresses/0").parse::<IpAddr>().ok();
    if let Some(address) = address {
        let place = match namespace {
            NAMESPACE => String::new(),
            namespace => format!(" -n {namespace}"),
        };
        let more = format!("kubectl node-tracer explain {address} --node {node}{place}");
        line(out, "more", &more);
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::answer::{Reader, Room};

    /// Has a node answer with these findings.
    fn say(answer: &mut ClusterAnswer, node: &str, findings: &[Value]) {
        let room = Room::default();
        let mut reader = Reader::new(node, &room, |_| true);
        for record in findings.iter().chain([&json!({"type": "summary"})]) {
            assert!(reader.take(format!("{record}\n").as_bytes()));
        }
        answer.take(node, reader.end());
    }

    #[test]
    fn json_is_harmless_to_look_at_and_the_same_data() {
        let mut answer = ClusterAnswer::default();
        let title = "a\u{1b}[2J\u{9b}\u{202e}\u{e0001} \"x\\";
        say(
            &mut answer,
            "n1",
            &[json!({"type": "finding", "title": title})],
        );
        let text = json(answer);
        assert!(!text.trim_end().contains(is_hidden), "{text}");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["findings"][0]["title"], title);
    }

    #[test]
    fn a_node_with_very_many_incidents_hides_none_of_another() {
        let mut answer = ClusterAnswer::default();
        let one =
            |id: usize| json!({"type": "finding", "id": id.to_string(), "severity": "critical"});
        say(&mut answer, "a", &(0..60).map(one).collect::<Vec<_>>());
        say(&mut answer, "b", &[one(7)]);
        let text = text(&answer, "elsewhere");
        assert_eq!(text.matches("CRITICAL").count(), 51);
        assert!(text.contains("10 incidents of a: see -o json"), "{text}");
    }

    #[test]
    fn an_incident_says_where_it_is_and_how_to_ask_for_more() {
        let mut answer = ClusterAnswer::default();
        let finding = json!({"type": "finding", "rule": "ghost-sandbox", "phase": "conflict",
            "severity": "critical", "id": "1", "state": "open", "addresses": ["10.0.0.5"],
            "title": "10.0.0.5 is\u{1b}[2J used twice", "advice": ["kubectl cordon n1"]});
        say(&mut answer, "n1", &[finding]);
        answer
            .unknown
            .insert("n2".into(), "no tracer runs there".into());
        let text = text(&answer, NAMESPACE);
        let want = "CRITICAL  ghost-sandbox/conflict  n1  10.0.0.5 is\\x1b[2J used twice\n  \
                    first     kubectl cordon n1\n  \
                    more      kubectl node-tracer explain 10.0.0.5 --node n1\n\n  \
                    unknown   n2: no tracer runs there\n1 incident; 1 of 2 nodes answered\n";
        assert_eq!(text, want);
    }

    #[test]
    fn what_is_to_be_pasted_is_an_address_and_nothing_else() {
        let mut out = String::new();
        incident(
            &mut out,
            &json!({"addresses": ["10.0.0.5; reboot"], "node": "n1"}),
            NAMESPACE,
        );
        assert!(!out.contains("reboot"), "{out}");
    }
}
