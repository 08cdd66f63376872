//! `node-tracer explain-rule RULE`: what a rule means, how it decides, what to
//! do, and what it cannot know. The pages are in `node-tracer/rules/`, one a
//! rule, for people to read there, too.

use std::io::{self, Write as _};

use sink::SinkError;

/// A rule and its page.
macro_rules! page {
    ($rule:literal) => {
        ($rule, include_str!(concat!("../rules/", $rule, ".md")))
    };
}

/// Rules and their pages, worst first.
const PAGES: [(&str, &str); 17] = [
    page!("ghost-sandbox"),
    page!("duplicate-address"),
    page!("stale-del"),
    page!("range-exhausted"),
    page!("netns-teardown-stall"),
    page!("trapped-device"),
    page!("missing-gateway-neighbour"),
    page!("sandbox-create-failed"),
    page!("add-failed"),
    page!("sandbox-churn"),
    page!("missing-del"),
    page!("del-retry"),
    page!("leaked-reservation"),
    page!("pinned-netns"),
    page!("blocked-task"),
    page!("orphan-veth"),
    page!("events-lost"),
];

/// There is no such rule.
#[derive(Debug, thiserror::Error)]
#[error("there is no rule {given:?}; there are: {}", names())]
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
    crate::output::has_stdout()?;
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(crate::output::quietly(written.map_err(SinkError::from))?)
}

fn page(rule: &str) -> Result<&'static str, NoSuchRule> {
    let page = PAGES.iter().find(|(name, _)| *name == rule);
    page.map(|(_, page)| *page).ok_or_else(|| NoSuchRule {
        given: rule.to_owned(),
    })
}

/// Each rule with the first sentence of what it means.
fn list() -> String {
    let lines = PAGES.iter().map(|(rule, page)| {
        let meaning = meaning(page);
        format!("{rule:<26} {meaning}\n")
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

fn names() -> String {
    let names: Vec<&str> = PAGES.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use event::finding::Rule;

    #[test]
    fn every_rule_has_a_page_with_all_its_parts() {
        let pages: BTreeSet<&str> = PAGES.iter().map(|(rule, _)| *rule).collect();
        assert_eq!(pages.len(), PAGES.len());
        for rule in Rule::ALL {
            assert!(pages.contains(rule.as_str()), "{}", rule.as_str());
        }
        for (rule, page) in PAGES {
            assert!(page.starts_with(&format!("# {rule}\n\n## What it means\n")));
            for part in ["How it is decided", "What to do", "What it cannot know"] {
                assert!(page.contains(&format!("\n## {part}")), "{rule}: {part}");
            }
            let widest = page.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(84), "{rule} is {widest:?} wide");
            assert!(page.is_ascii() && page.ends_with("\n"), "{rule}");
        }
    }

    #[test]
    fn rules_that_pages_name_exist() {
        let known: BTreeSet<&str> = PAGES.iter().map(|(rule, _)| *rule).collect();
        for (rule, page) in PAGES {
            let words: Vec<&str> = page.split_whitespace().collect();
            for pair in words.windows(2).filter(|pair| pair[0].ends_with("finding")) {
                let named = pair[1].trim_end_matches(|c: char| !c.is_ascii_lowercase());
                let is_name = named.contains('-');
                assert!(!is_name || known.contains(named), "{rule} names {named}");
            }
        }
    }

    #[test]
    fn a_list_has_a_line_a_rule_and_a_wrong_name_is_told_the_right_ones() {
        let list = list();
        assert_eq!(list.lines().count(), PAGES.len());
        assert!(
            list.lines().all(|line| line.chars().count() <= 150),
            "{list}"
        );
        let error = page("ghost").unwrap_err().to_string();
        assert!(
            error.contains("ghost-sandbox, duplicate-address"),
            "{error}"
        );
    }
}
