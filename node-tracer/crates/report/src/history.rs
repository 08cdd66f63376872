//! Findings over time: how each began, what it came to, and how it ended.

use std::collections::{BTreeMap, BTreeSet};

use event::{
    clock::Timestamp,
    finding::{Evidence, Finding, Holder, Phase, Severity, State},
    order::Order as _,
};

/// Findings that are kept. When there are more, a less severe one makes room.
const MAX_FINDINGS: usize = 500;
/// Changes of one finding that are kept, and claims of other times.
const MAX_STEPS: usize = 24;
const MAX_OTHERS: usize = 16;

#[derive(Debug, Default)]
pub struct Findings {
    all: BTreeMap<String, History>,
    left_out: u64,
}

#[derive(Debug)]
pub struct History {
    /// As it was told at its worst: of equals, the one that shows most, or the
    /// latest.
    pub worst: Finding,
    /// When it was first told.
    pub opened: Timestamp,
    /// When it was over.
    pub resolved: Option<Timestamp>,
    /// Changes of severity and phase, the first telling among them.
    pub steps: Vec<Step>,
    /// Claims that were made at other times only.
    pub others: Vec<Evidence>,
    /// Steps and claims that are not kept.
    pub left_out: u64,
    /// Which of the page's recordings tells it.
    pub part: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub at: Timestamp,
    pub severity: Severity,
    pub phase: Option<Phase>,
    pub title: String,
}

impl Findings {
    /// Takes in what was told of one.
    pub fn record(&mut self, finding: &Finding, state: State, at: Timestamp) {
        if let Some(known) = self.all.get_mut(&finding.id) {
            known.record(finding, state, at);
            return;
        }
        if self.all.len() >= MAX_FINDINGS {
            self.left_out += 1;
            let least = self.all.values().max_by_key(|it| it.order());
            let least = least.map(|it| (it.worst.severity, it.worst.id.clone()));
            match least {
                Some((severity, id)) if severity < finding.severity => self.all.remove(&id),
                _ => return,
            };
        }
        let mut history = History {
            worst: finding.clone(),
            opened: at,
            resolved: None,
            steps: Vec::new(),
            others: Vec::new(),
            left_out: 0,
            part: 0,
        };
        history.record(finding, state, at);
        self.all.insert(finding.id.clone(), history);
    }

    /// All that are kept, worst first.
    pub fn worst_first(&self) -> Vec<&History> {
        let mut all: Vec<&History> = self.all.values().collect();
        all.order_by_key(|history| history.order());
        all
    }

    /// All are of one of the page's recordings.
    pub(super) fn be_of(&mut self, part: usize) {
        for history in self.all.values_mut() {
            history.part = part;
        }
    }

    /// Tells all times by another clock. What is said in words stays as it was said.
    pub(super) fn change_clock(&mut self, to: &dyn Fn(Timestamp) -> Timestamp) {
        for history in self.all.values_mut() {
            history.opened = to(history.opened);
            history.resolved = history.resolved.map(to);
            for step in &mut history.steps {
                step.at = to(step.at);
            }
            for claim in &mut history.others {
                claim.at = to(claim.at);
            }
            history.worst.change_clock(to);
        }
    }

    /// Takes in those of another recording. Nodes may call different findings the
    /// same.
    pub(super) fn join(&mut self, other: Self) {
        let all = other.all.into_iter();
        let all = all.map(|(id, history)| (format!("{id} {}", history.part), history));
        self.all.extend(all);
        self.left_out += other.left_out;
    }

    /// How many are not kept.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl History {
    fn record(&mut self, finding: &Finding, state: State, at: Timestamp) {
        if state == State::Resolved {
            self.resolved = Some(at);
            return;
        }
        self.resolved = None;
        let step = Step {
            at,
            severity: finding.severity,
            phase: finding.detail.phase,
            title: finding.title.clone(),
        };
        let last = self.steps.last();
        if last.is_none_or(|last| (last.severity, last.phase) != (step.severity, step.phase)) {
            match self.steps.len() < MAX_STEPS {
                true => self.steps.push(step),
                false => self.left_out += 1,
            }
        }
        let before = match rank(finding) >= rank(&self.worst) {
            true => std::mem::replace(&mut self.worst, finding.clone()),
            false => finding.clone(),
        };
        self.note_others(before.evidence);
    }

    /// What is not claimed at its worst.
    fn note_others(&mut self, claims: Vec<Evidence>) {
        let key = |claim: &Evidence| (claim.claim.clone(), claim.source.clone());
        let worst: BTreeSet<_> = self.worst.evidence.iter().map(key).collect();
        self.others.retain(|claim| !worst.contains(&key(claim)));
        let mut known: BTreeSet<_> = self.others.iter().map(key).chain(worst).collect();
        for claim in claims {
            match known.insert(key(&claim)) {
                false => {}
                true if self.others.len() < MAX_OTHERS => self.others.push(claim),
                true => self.left_out += 1,
            }
        }
    }

    /// Worst first, then by rule, oldest first.
    fn order(&self) -> impl Ord + use<> {
        let Finding {
            severity, rule, id, ..
        } = &self.worst;
        (std::cmp::Reverse(*severity), *rule, self.opened, id.clone())
    }
}

/// How much a telling shows: how bad it was, and then, as a task that wakes
/// before all is over takes the proof with it, how much is known to be stuck.
fn rank(finding: &Finding) -> impl Ord + use<> {
    let stuck = finding.holders.iter().filter(|holder| match holder {
        Holder::Task { stack, since, .. } => since.is_some() || !stack.is_empty(),
        _ => false,
    });
    let stuck = stuck.count();
    let held = !finding.holders.is_empty();
    (finding.severity, finding.detail.phase, stuck, held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::testing::Node;
    use event::{
        finding::Rule,
        testing::{ghost_story, reserved, s, successor},
    };

    /// The incident's ghost over time.
    fn ghost() -> Findings {
        let mut node = Node::of(&ghost_story());
        let mut findings = Findings::default();
        let mut tick = |node: &mut Node, seconds| {
            for (finding, state) in node.tick(seconds) {
                findings.record(&finding, state, s(seconds));
            }
        };
        tick(&mut node, 70);
        node.tell(reserved(90, None));
        tick(&mut node, 90);
        node.tell_all(&successor(92));
        tick(&mut node, 95);
        findings
    }

    #[test]
    fn a_finding_has_its_phases_with_their_times_and_what_was_claimed_before() {
        let findings = ghost();
        let all = findings.worst_first();
        let ghost = all.iter().find(|it| it.worst.rule == Rule::GhostSandbox);
        let ghost = ghost.unwrap();
        let steps: Vec<_> = ghost
            .steps
            .iter()
            .map(|step| (step.at, step.phase))
            .collect();
        assert_eq!(
            steps,
            [
                (s(70), Some(Phase::Suspected)),
                (s(90), Some(Phase::Armed)),
                (s(95), Some(Phase::Conflict)),
            ]
        );
        assert_eq!(ghost.worst.detail.phase, Some(Phase::Conflict));
        let was = ghost.others.iter().map(|claim| claim.claim.as_str());
        assert!(
            was.into_iter()
                .any(|claim| claim.contains("is reserved for sandbox-old"))
        );
        assert_eq!(ghost.resolved, None);
    }

    #[test]
    fn when_there_are_too_many_the_worst_stay_and_the_others_are_counted() {
        let template = ghost().worst_first()[0].worst.clone();
        let mut findings = Findings::default();
        let told = |findings: &mut Findings, number: usize, severity| {
            let finding = Finding {
                id: format!("{number:04}"),
                severity,
                ..template.clone()
            };
            findings.record(&finding, State::Open, s(1));
        };
        for number in 0..MAX_FINDINGS {
            told(&mut findings, number, Severity::Info);
        }
        told(&mut findings, 9_000, Severity::Critical);
        told(&mut findings, 9_001, Severity::Info);
        let all = findings.worst_first();
        assert_eq!((all.len(), findings.left_out()), (MAX_FINDINGS, 2));
        assert_eq!(all[0].worst.id, "9000");
        assert!(all.iter().all(|it| it.worst.id != "9001"));
    }
}
