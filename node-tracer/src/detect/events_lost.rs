//! events-lost: records that never became events, so that there may be more
//! than is reported. Never resolved: what was lost stays unknown.

use super::{View, evidence};
use crate::{
    finding::{Detail, Finding, Rule, Severity, finding_id},
    words,
};

/// One finding, as soon as anything is lost.
pub(crate) fn detect(view: &View<'_>) -> Vec<Finding> {
    let losses = &view.model.losses;
    let Some(first) = losses.first else {
        return Vec::new();
    };
    let total = words::total(losses.by_cause.values());
    let claims = losses.by_cause.keys();
    let finding = Finding {
        rule: Rule::EventsLost,
        severity: Severity::Warning,
        id: finding_id(&view.settings.boot_id, Rule::EventsLost, ""),
        since: first,
        title: format!("{total} records were lost; there may be more than is reported"),
        pod: None,
        sandbox_id: None,
        netns: None,
        addresses: Vec::new(),
        holders: Vec::new(),
        evidence: claims
            .map(|cause| evidence(format!("lost: {cause}"), "tracer", first))
            .collect(),
        unknown: vec![String::from("what the lost records would have said")],
        advice: vec![String::from("take stock anew: node-tracer scan")],
        detail: Detail {
            lost: Some(losses.by_cause.clone()),
            ..Detail::default()
        },
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use crate::{
        event::What,
        finding::{Rule, State},
        model::story::*,
    };

    #[test]
    fn losses_are_told_with_their_causes_and_never_taken_back() {
        let mut node = Node::default();
        node.tell(at(
            1,
            What::EventsLost {
                cause: "ring-full".into(),
                count: 3,
            },
        ));
        let (finding, _) = node.only(2, Rule::EventsLost, State::Open);
        assert_eq!(finding.since, s(1));
        node.tell(at(
            3,
            What::EventsLost {
                cause: "ring-full".into(),
                count: 4,
            },
        ));
        let (finding, _) = node.only(4, Rule::EventsLost, State::Updated);
        assert_eq!(finding.detail.lost.unwrap()["ring-full"], 7);
        assert_eq!(node.tick(9_999), []);
    }

    #[test]
    fn no_sum_of_losses_is_too_large() {
        let mut node = Node::default();
        for cause in ["ring-full", "other"] {
            let (cause, count) = (cause.to_owned(), u64::MAX);
            node.tell(at(1, What::EventsLost { cause, count }));
        }
        let (finding, _) = node.only(2, Rule::EventsLost, State::Open);
        let total = u64::MAX.to_string();
        assert!(finding.title.starts_with(&total), "{}", finding.title);
    }

    #[test]
    fn nothing_lost_is_no_finding() {
        let mut node = Node::default();
        node.tell(at(
            1,
            What::EventsLost {
                cause: "ring-full".into(),
                count: 0,
            },
        ));
        assert_eq!(node.tick(2), []);
    }
}
