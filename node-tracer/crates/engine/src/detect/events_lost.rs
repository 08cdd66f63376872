//! events-lost: records that never became events, so that there may be more
//! than is reported. What was lost stays unknown. But a tracer that has lost
//! nothing for a while has looked at the node anew since, and is as good as one
//! that was started then: there the finding resolves, and the summary keeps the
//! number. A scan and a replay say it of all that they were given.

use super::{View, commented, evidence};
use crate::model::Losses;
use event::{
    finding::{Detail, Finding, Rule, Severity, finding_id},
    wording::plural as words,
};

/// One finding, as soon as anything is lost.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let losses = &view.model.losses;
    let since = match view.model.runs_on() {
        true => losses.spell,
        false => losses.first,
    };
    let Some((first, last)) = since.zip(losses.last) else {
        return Vec::new();
    };
    if view.model.runs_on() && view.passed(last.plus(Losses::QUIET)) {
        return Vec::new();
    }
    let total = words::total(losses.by_cause.values());
    let claims = losses.by_cause.keys();
    let finding = Finding {
        rule: Rule::EventsLost,
        severity: Severity::Warning,
        id: finding_id(&view.settings.boot_id, Rule::EventsLost, ""),
        since: first,
        title: format!("{total} events were lost; findings may be missing"),
        pod: None,
        sandbox_id: None,
        netns: None,
        addresses: Vec::new(),
        holders: Vec::new(),
        evidence: claims
            .map(|cause| evidence(format!("lost: {cause}"), "tracer", first))
            .collect(),
        unknown: vec![String::from("what the lost events would have shown")],
        advice: vec![commented("node-tracer scan", "looks at everything again")],
        detail: Detail {
            lost: Some(losses.by_cause.clone()),
            ..Detail::default()
        },
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use event::{
        What,
        finding::{Rule, State},
        testing::*,
    };

    fn lost(seconds: i64, count: u64) -> event::Event {
        let cause = String::from("ring-full");
        at(seconds, What::EventsLost { cause, count })
    }

    #[test]
    fn a_tracer_that_has_lost_nothing_for_a_while_is_no_longer_in_doubt() {
        let mut node = Node::of(&[lost(1, 3), lost(500, 1)]);
        let (open, _) = node.only(501, Rule::EventsLost, State::Open);
        assert_eq!(open.since, s(1));
        assert_eq!(node.tick(1_099), [], "it is not over yet");
        let (over, _) = node.only(1_100, Rule::EventsLost, State::Resolved);
        assert_eq!(over.id, open.id);
        assert_eq!(node.0.summary().lost["ring-full"], 4, "it stays counted");
        node.tell(lost(2_000, 1));
        let (again, _) = node.only(2_001, Rule::EventsLost, State::Open);
        assert_eq!((again.id, again.since), (open.id, s(2_000)));
    }

    #[test]
    fn what_a_scan_or_a_replay_lost_is_never_taken_back() {
        let mut node = Node::of_looks(&[lost(1, 3), lost(2_000, 1)]);
        let (open, _) = node.only(2_001, Rule::EventsLost, State::Open);
        assert_eq!(open.since, s(1));
        assert_eq!(node.tick(9_999), []);
    }

    #[test]
    fn losses_are_told_with_their_causes() {
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
