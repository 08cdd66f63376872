//! Rules that could not be evaluated, why, and what lets them be: nothing found
//! is worth nothing where nobody could look.

use serde::{Deserialize, Serialize};

use crate::rule::Rule;

/// A rule that a missing source has switched off, wholly or for a part of the
/// node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotChecked {
    pub rule: Rule,
    /// Completes "because ...".
    pub reason: String,
    /// An option, or a command.
    pub fix: String,
}

/// `NOT CHECKED: RULES, because REASON. Fix: FIX`, one line for each reason.
pub fn lines(all: &[NotChecked]) -> Vec<String> {
    let mut lines: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for NotChecked { rule, reason, fix } in all {
        let rule = rule.as_str();
        match lines.iter_mut().find(|it| (it.0, it.1) == (reason, fix)) {
            Some((.., rules)) if rules.contains(&rule) => {}
            Some((.., rules)) => rules.push(rule),
            None => lines.push((reason, fix, vec![rule])),
        }
    }
    let lines = lines.into_iter().map(|(reason, fix, rules)| {
        let rules = rules.join(", ");
        format!("NOT CHECKED: {rules}, because {reason}. Fix: {fix}")
    });
    lines.collect()
}

/// All of it in one line, for who wants to hear of nothing else.
pub fn line(all: &[NotChecked]) -> String {
    format!("No findings, INCOMPLETE. {}", lines(all).join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_lack_the_same_are_named_together() {
        let one = |rule, reason: &str| NotChecked {
            rule,
            reason: reason.to_owned(),
            fix: String::from("F"),
        };
        let all = [
            one(Rule::GhostSandbox, "no pod list"),
            one(Rule::DuplicateAddress, "x"),
            one(Rule::GhostSandbox, "x"),
        ];
        assert_eq!(
            lines(&all),
            [
                "NOT CHECKED: ghost-sandbox, because no pod list. Fix: F",
                "NOT CHECKED: duplicate-address, ghost-sandbox, because x. Fix: F",
            ]
        );
        assert_eq!(
            line(&all[..1]),
            "No findings, INCOMPLETE. NOT CHECKED: ghost-sandbox, because no pod list. Fix: F"
        );
    }
}
