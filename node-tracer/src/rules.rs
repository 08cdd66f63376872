//! `node-tracer explain-rule RULE`: what a rule means, how it decides, what to
//! do, and what it cannot know. The pages are in `node-tracer/rules/`, one a
//! rule, for people to read there, too.

use crate::nearest;
use event::rule::Rule;

#[derive(Debug, thiserror::Error)]
#[error(
    "there is no rule {given:?}{}\nhelp: node-tracer explain-rule lists all of them",
    nearest::said(nearest::of(given, Rule::ALL.iter().map(|rule| rule.as_str())))
)]
pub(crate) struct NoSuchRule {
    given: String,
}

/// Prints a rule's page, or what rules there are.
///
/// # Errors
/// There is no such rule, or standard output cannot be written.
pub(crate) fn run(rule: Option<&str>) -> anyhow::Result<()> {
    let text = match rule {
        Some(rule) => page(rule)?.to_owned(),
        None => list(),
    };
    Ok(crate::output::print(&text)?)
}

fn page(rule: &str) -> Result<&'static str, NoSuchRule> {
    let mut all = Rule::ALL.iter().map(|rule| rule.spec());
    let spec = all.find(|spec| spec.name == rule);
    spec.map(|spec| spec.page).ok_or_else(|| NoSuchRule {
        given: rule.to_owned(),
    })
}

/// Each rule with the first sentence of what it means.
fn list() -> String {
    let lines = Rule::ALL.iter().map(|rule| {
        let spec = rule.spec();
        format!("{:<26} {}\n", spec.name, meaning(spec.page))
    });
    lines.collect()
}

/// The first sentence of the page, in one line.
fn meaning(page: &str) -> String {
    let text = page.split("## What it means\n").nth(1).unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let ends = [":", ".", " ("]
        .into_iter()
        .filter_map(|end| text.find(end));
    let end = ends.min().unwrap_or(text.len());
    text.get(..end).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_line_a_rule_and_a_wrong_name_is_told_the_right_ones() {
        let list = list();
        assert_eq!(list.lines().count(), Rule::ALL.len());
        assert!(
            list.lines().all(|line| line.chars().count() <= 150),
            "{list}"
        );
        for typed in ["ghost", "gost-sandbox", "Ghost_Sandbox"] {
            let error = page(typed).unwrap_err().to_string();
            assert!(error.contains("did you mean ghost-sandbox?"), "{error}");
            assert!(error.contains("\nhelp: "), "{error}");
        }
        let error = page("x").unwrap_err().to_string();
        assert!(!error.contains("did you mean"), "{error}");
    }
}
