//! What the reader has seen of the findings that are open.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
};

use event::wording::stack;
use event::{
    clock::Timestamp,
    finding::{Finding, Holder, Phase, Rule, Severity},
};

/// Findings that are remembered. An update of one that has been forgotten is
/// printed in full.
pub(super) const REMEMBERED: usize = 1024;

/// The label of a step of the advice.
pub(super) const STEP: &str = "step";

/// What has been printed of a finding, so that an update prints only what is
/// new. Lines are kept as hashes: a long night has many.
#[derive(Debug)]
pub(super) struct Printed {
    rule: Rule,
    /// The incident that it was told with.
    incident: String,
    pub(super) phase: Option<Phase>,
    pub(super) severity: Severity,
    title: u64,
    due: Option<Timestamp>,
    lines: HashSet<u64>,
    /// Claims that are made at present: their sources and texts.
    claims: Vec<(String, String)>,
    /// Holders whose stack was printed, by thread, with that stack.
    stacks: HashMap<u32, u64>,
    hasher: RandomState,
}

/// The open findings that were printed.
#[derive(Debug, Default)]
pub(super) struct Memory {
    printed: HashMap<String, Printed>,
    /// The keys of `printed`, oldest first.
    order: VecDeque<String>,
    hasher: RandomState,
}

impl Memory {
    /// What is remembered of a finding, which is not remembered any more.
    pub(super) fn take(&mut self, id: &str) -> Option<Printed> {
        self.printed.remove(id)
    }

    /// Forgets a finding that was taken.
    pub(super) fn forget(&mut self, id: &str) {
        self.order.retain(|one| one != id);
    }

    /// Remembers a finding; `known` if it was taken.
    pub(super) fn keep(&mut self, id: &str, printed: Printed, known: bool) {
        if !known {
            if self.order.len() == REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.printed.remove(&oldest);
            }
            self.order.push_back(id.to_owned());
        }
        self.printed.insert(id.to_owned(), printed);
    }

    /// What is remembered of a finding.
    pub(super) fn of(&self, id: &str) -> Option<&Printed> {
        self.printed.get(id)
    }

    /// Whether the reader has seen the incident's cause, or one that explains it.
    pub(super) fn has_seen(&self, incident: &str, cause: Rule) -> bool {
        let rank = cause.rank_in_incident();
        self.printed
            .values()
            .any(|printed| printed.incident == incident && printed.rule.rank_in_incident() <= rank)
    }

    /// The reader has been told all that is new of a finding.
    pub(super) fn has_told(&mut self, finding: &Finding, incident: &str) {
        let before = self.take(&finding.id);
        let is_known = before.is_some();
        let mut printed = before.unwrap_or_else(|| self.nothing(finding));
        incident.clone_into(&mut printed.incident);
        printed.gone(finding);
        for one in &finding.evidence {
            printed.is_new(&one.source, &one.claim);
        }
        for one in &finding.unknown {
            printed.is_new("unknown", one);
        }
        for step in &finding.advice {
            printed.is_new(STEP, step);
        }
        printed.is_other(finding);
        self.keep(&finding.id, printed, is_known);
    }

    /// A finding is over.
    pub(super) fn is_over(&mut self, id: &str) {
        if self.take(id).is_some() {
            self.forget(id);
        }
    }

    /// What is known of a finding before its first line.
    pub(super) fn nothing(&self, of: &Finding) -> Printed {
        Printed {
            rule: of.rule,
            incident: String::new(),
            phase: None,
            severity: of.severity,
            title: 0,
            due: None,
            lines: HashSet::new(),
            claims: Vec::new(),
            stacks: HashMap::new(),
            hasher: self.hasher.clone(),
        }
    }

    /// The finding with which this thread's stack was printed as it is now; a
    /// ghost before others, as it says what to do about its holders.
    pub(super) fn shown(&self, tid: u32, stack: &[String]) -> Option<(Rule, &str)> {
        let stack = hash(&self.hasher, stack);
        self.printed
            .iter()
            .filter(|(_, printed)| printed.stacks.get(&tid) == Some(&stack))
            .map(|(id, printed)| (printed.rule, id.as_str()))
            .min_by_key(|(rule, id)| (*rule != Rule::GhostSandbox, *rule, *id))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.printed.len(), self.order.len());
        self.order.len()
    }
}

fn hash(hasher: &RandomState, frames: &[String]) -> u64 {
    hasher.hash_one(stack::folded(frames))
}

impl Printed {
    /// Whether `line` is new under `label`; from now on it is not.
    pub(super) fn is_new(&mut self, label: &str, line: &str) -> bool {
        self.lines.insert(self.hasher.hash_one((label, line)))
    }

    /// Whether `line` would be new under `label`.
    pub(super) fn lacks(&self, label: &str, line: &str) -> bool {
        !self.lines.contains(&self.hasher.hash_one((label, line)))
    }

    /// Whether a header that is printed now would be another.
    pub(super) fn is_other_than(&self, of: &Finding) -> bool {
        let title = self.hasher.hash_one(&of.title);
        let now = (of.detail.phase, of.severity, title, of.detail.due);
        now != (self.phase, self.severity, self.title, self.due)
    }

    /// Whether more of the header than the time is another; from now on not.
    pub(super) fn is_other(&mut self, of: &Finding) -> bool {
        let is_other = self.is_other_than(of);
        let title = self.hasher.hash_one(&of.title);
        (self.phase, self.severity, self.title, self.due) =
            (of.detail.phase, of.severity, title, of.detail.due);
        is_other
    }

    /// Replaces the claims that are made; the texts of those that no longer
    /// are. A claim that comes back is a new one.
    pub(super) fn gone(&mut self, of: &Finding) -> Vec<String> {
        let now: HashSet<_> = of
            .evidence
            .iter()
            .map(|one| (one.source.as_str(), one.claim.as_str()))
            .collect();
        let mut gone = Vec::new();
        for (source, claim) in std::mem::take(&mut self.claims) {
            if !now.contains(&(source.as_str(), claim.as_str())) {
                let key = self.hasher.hash_one((source.as_str(), claim.as_str()));
                self.lines.remove(&key);
                gone.push(claim);
            }
        }
        let own = |one: &event::finding::Evidence| (one.source.clone(), one.claim.clone());
        self.claims = of.evidence.iter().map(own).collect();
        gone
    }

    /// A holder's stack is printed.
    pub(super) fn stack_shown(&mut self, tid: u32, stack: &[String]) {
        self.stacks.insert(tid, hash(&self.hasher, stack));
    }

    /// A thread that holds no longer may have its number given to another.
    pub(super) fn keep_holders(&mut self, of: &Finding) {
        let held = |thread: &u32| {
            let is = |one: &Holder| matches!(one, Holder::Task { tid, .. } if tid == thread);
            of.holders.iter().any(is)
        };
        self.stacks.retain(|tid, _| held(tid));
    }
}
