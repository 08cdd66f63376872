//! Answers as people read them, in the layout of node-tracer itself.

use std::{fmt::Write as _, net::IpAddr};

use event::wording::escape::Printable;
use serde_json::Value;

use crate::answer::{Answer, text as field};

/// Nodes that are listed as unknown one by one.
const MAX_UNKNOWN: usize = 10;

/// `name` is at the left, and one line's text behind it.
fn line(out: &mut String, name: &str, text: &str) {
    // Writing into a String does not fail.
    let _ = writeln!(out, "  {name:<8}  {}", Printable(text));
}

pub(crate) fn text(answer: &Answer) -> String {
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
    for finding in answer.incidents() {
        incident(&mut out, finding);
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

fn unknown(out: &mut String, answer: &Answer) {
    for (node, reason) in answer.unknown.iter().take(MAX_UNKNOWN) {
        line(out, "unknown", &format!("{node}: {reason}"));
    }
    let more = answer.unknown.len().saturating_sub(MAX_UNKNOWN);
    if more > 0 {
        line(out, "unknown", &format!("{more} more nodes: see -o json"));
    }
}

/// Nodes that have answered, though not everything.
fn partly(answer: &Answer) -> usize {
    let reasons = answer.unknown.values();
    reasons
        .filter(|it| it.starts_with("could not evaluate"))
        .count()
}

fn incident(out: &mut String, finding: &Value) {
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
        let more = format!("kubectl node-tracer explain {address} --node {node}");
        line(out, "more", &more);
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_incident_says_where_it_is_and_how_to_ask_for_more() {
        let mut answer = Answer::default();
        let finding = json!({"type": "finding", "rule": "ghost-sandbox", "phase": "conflict",
            "severity": "critical", "id": "1", "state": "open", "addresses": ["10.0.0.5"],
            "title": "10.0.0.5 is\u{1b}[2J used twice", "advice": ["kubectl cordon n1"]});
        answer.take(
            "n1",
            &format!("{finding}\n{}\n", json!({"type": "summary"})),
        );
        answer
            .unknown
            .insert("n2".into(), "no tracer runs there".into());
        let text = text(&answer);
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
        );
        assert!(!out.contains("reboot"), "{out}");
    }
}
