//! Where the node sends what it has for an address.

use super::Page;
use crate::text::{eni, style::Style};
use event::{eni::Eni, explanation::PathPart, wording::escape::Printable};

/// Policy rules of one address that are listed.
const RULES: usize = 8;

impl Page {
    /// The way in one line, and what is to be said of it.
    pub(super) fn short_path(&mut self, part: &PathPart) {
        // The rule by its priority: what it selects shows in the route, mostly.
        let rule = |rule: &String| match rule.split_once(':') {
            Some((priority, _)) => format!("rule {priority}"),
            None => rule.clone(),
        };
        let table = part.table.iter().map(|table| format!("table {table}"));
        let steps: Vec<String> = part.rule.iter().map(rule).chain(table).collect();
        let short = match steps.is_empty() {
            true => way(part),
            false => [steps, after_rule(part)].concat().join(" > "),
        };
        self.one("path", &Printable(short).to_string());
        let style = style(part);
        if style != Style::Plain {
            self.verdict(part, style);
        }
    }

    /// The node's network device that was asked about.
    pub(super) fn enis(&mut self, enis: &[Eni], verbose: u8) {
        if !enis.is_empty() {
            self.text += &eni::table(self.paint, enis, verbose);
        }
    }

    /// The way, who gets it, and all policy rules of the address.
    pub(super) fn path(&mut self, label: &str, part: &PathPart) {
        self.line(
            label,
            0,
            &Printable(format!("to {}: {}", part.to, way(part))).to_string(),
        );
        if let Some(neighbour) = &part.neighbour {
            let mac = neighbour.mac.as_deref().unwrap_or("no MAC");
            let confirmed = part
                .confirmed
                .map(|at| format!(", confirmed {}", self.time(at)));
            let text = format!(
                "neighbour {} {mac} {}{}",
                neighbour.address,
                neighbour.state,
                confirmed.unwrap_or_default()
            );
            self.line("", 2, &Printable(text).to_string());
        }
        self.verdict(part, style(part));
        for rule in part.rules.iter().take(RULES) {
            self.line("", 2, &Printable(format!("rule {rule}")).to_string());
        }
        self.more(part.rules.len().saturating_sub(RULES));
    }

    fn verdict(&mut self, part: &PathPart, style: Style) {
        let begin = super::LABEL + 2;
        let text = Printable(&part.verdict).to_string();
        let text = self.paint.hanging(&text, begin, begin + 4);
        self.styled("", 2, style, &text);
    }
}

fn style(part: &PathPart) -> Style {
    match part.is_right {
        Some(false) => Style::Warning,
        Some(true) | None => Style::Plain,
    }
}

/// Rule, table, route, port and pod.
fn way(part: &PathPart) -> String {
    let Some(rule) = &part.rule else {
        return String::from("no route");
    };
    let steps = [vec![format!("rule {rule}")], after_rule(part)].concat();
    steps.join(" > ")
}

/// Route, port and pod.
fn after_rule(part: &PathPart) -> Vec<String> {
    let mut steps = vec![part.route.clone().unwrap_or_else(|| part.kind.clone())];
    steps.extend(part.port.as_ref().map(|port| format!("port {port}")));
    steps.extend(part.comes_to.as_ref().map(|end| match &end.pod {
        Some(pod) => pod.label(),
        None => format!("netns {}", end.netns.inode),
    }));
    steps
}
