//! A ghost in words: the verdict in one line. The claims that lead to it are in
//! [`claims`](super::claims), what is not known in [`doubts`](super::doubts),
//! what to do in [`advice`](super::advice).

use crate::{
    detect::{
        View,
        facts::{common::label, ghosts::Ghost},
        fd_label,
        ghost_sandbox::{
            asleep,
            fate::{Case, Fate},
            ipam::{self, Outlook, Start},
            is_frozen,
        },
        holders_of, joined, netns_of, pod_of, sleeps_in,
    },
    model::pods::{Standing, reference},
};
use event::{
    PodRef,
    clock::Timestamp,
    finding::{Detail, Finding, Phase, Rule, Severity, finding_id},
    wording::subjects::{pod_word, short_id, task_label},
};

/// What the finding's parts are written from.
pub(super) struct GhostReport<'v, 'a> {
    pub(super) view: &'v View<'a>,
    pub(super) ghost: &'v Ghost<'a>,
    pub(super) pod: PodRef,
    /// One for each address.
    pub(super) cases: Vec<Case<'a>>,
    pub(super) phase: Phase,
    due: Option<Timestamp>,
}

pub(super) fn finding<'a>(view: &View<'a>, ghost: &Ghost<'a>) -> Finding {
    let entry = ghost.entry;
    let gone = !matches!(entry.sandbox.standing, Standing::Terminating(_));
    let pod = pod_of(view.model, entry).unwrap_or_default();
    let addresses = ghost.addresses.iter();
    let cases: Vec<_> = addresses
        .map(|address| Case::new(view, ghost, *address, &pod, gone))
        .collect();
    let phases = cases.iter().map(|case| case.phase);
    let phase = phases.max().unwrap_or(Phase::Suspected);
    let worst = cases.iter().filter(|case| case.phase == phase);
    let due = worst.filter_map(|case| case.due).min();
    let uid = entry.sandbox.uid().unwrap_or_default();
    let id = finding_id(
        &view.settings.boot_id,
        Rule::GhostSandbox,
        &format!("{} {uid}", entry.id.inode),
    );
    let told = GhostReport {
        view,
        ghost,
        pod,
        cases,
        phase,
        due,
    };
    Finding {
        rule: Rule::GhostSandbox,
        severity: match phase {
            Phase::Suspected => Severity::Warning,
            Phase::Armed | Phase::Conflict => Severity::Critical,
        },
        id,
        since: ghost.since,
        title: told.title(),
        sandbox_id: entry.sandbox.id.clone(),
        netns: Some(netns_of(entry)),
        addresses: ghost.addresses.clone(),
        holders: holders_of(view.model, entry),
        evidence: told.evidence(),
        unknown: told.unknown(),
        advice: told.advice(),
        detail: Detail {
            phase: Some(phase),
            due,
            ..Detail::default()
        },
        pod: Some(told.pod),
    }
}

impl GhostReport<'_, '_> {
    /// The namespace that has one of the addresses, too.
    fn victim(&self) -> Option<String> {
        self.cases.iter().find_map(|case| match &case.fate {
            Fate::TakenBy(other, _) => {
                let pod = pod_of(self.view.model, other);
                Some(pod.map_or_else(|| label(self.view.model, other), |pod| pod.label()))
            }
            _ => None,
        })
    }

    fn title(&self) -> String {
        let addresses = joined(&self.ghost.addresses);
        let state = match self.ghost.entry.sandbox.standing {
            Standing::Terminating(_) => "the terminating pod",
            Standing::Finished(_) => "the finished pod",
            _ => "the deleted pod",
        };
        let pod = pod_word(&self.pod);
        let holder = self.holder();
        let next = match (self.phase, self.victim(), self.due) {
            (Phase::Conflict, Some(victim), _) => format!("{victim} has been given it, too"),
            (Phase::Armed, _, Some(due)) if self.is_free() => match self.reserved_for() {
                Some(id) => format!("it is reserved for {} now", short_id(id)),
                None => format!("it can be given to another pod since {}", due.time_of_day()),
            },
            _ => self.outlook(),
        };
        format!("{addresses} is still held by {state} {pod}: {holder}; {next}")
    }

    /// What will become of the address that is worst off.
    fn outlook(&self) -> String {
        let worst = self.cases.iter().filter(|case| case.phase == self.phase);
        let Some(case) = worst.min_by_key(|case| (case.due.is_none(), case.due)) else {
            return String::new();
        };
        let name = case.giver.as_ref().map_or("", |giver| giver.ipam.name());
        let reserved = matches!(case.fate, Fate::Reserved(_));
        match (case.outlook, case.due) {
            (Outlook::Conflict { due, from }, _) => match (from, due) {
                (Start::Claimed, _) => {
                    let heir = ipam::heir(self.view, &self.pod, case.address);
                    let heir = heir.and_then(|pod| reference(pod).uid).unwrap_or_default();
                    format!(
                        "conflict due at any time: {name} gives it to the pod that has the same \
                         name now ({heir})"
                    )
                }
                (_, None) => format!(
                    "conflict due: {name} frees it even if in use, some time after the pod's \
                     deletion, and when that was is not known"
                ),
                (_, Some(due)) if self.view.passed(due) => format!(
                    "conflict due since {}: {name} should have freed it",
                    due.time_of_day()
                ),
                (_, Some(due)) => format!(
                    "conflict due by {}: {name} frees it even if in use",
                    due.time_of_day()
                ),
            },
            (Outlook::Leak, _) if reserved => {
                String::from("leak: it stays reserved for it, and for nobody else, until CNI DEL")
            }
            (Outlook::Leak, _) => format!("leak: {name} keeps it from others until CNI DEL"),
            (Outlook::Unknown, _) if reserved => String::from("it is still reserved for it"),
            (Outlook::Unknown, _) => String::from("whether another pod can get it is not known"),
        }
    }

    /// What keeps the namespace, in few words.
    fn holder(&self) -> String {
        let Ghost { entry, stuck, .. } = self.ghost;
        if let Some(stuck) = stuck.first() {
            format!("{} is stuck{}", task_label(&stuck.task), sleeps_in(stuck))
        } else if let Some(task) = asleep(entry) {
            format!("{} is in uninterruptible sleep", task_label(task))
        } else if entry.task_count > 0 {
            match is_frozen(entry) {
                true => String::from("its tasks are frozen"),
                false => String::from("its tasks still run"),
            }
        } else if let Some(path) = entry.mounts.first() {
            format!("only the mount {} is left", path.display())
        } else {
            match entry.fds.as_slice() {
                [] if !entry.sockets.is_empty() => String::from("only sockets in it are left"),
                [] => String::from("what keeps it was not found"),
                [only] => format!("only {} is left", fd_label(only)),
                [first, more @ ..] => {
                    format!("only {} and {} more are left", fd_label(first), more.len())
                }
            }
        }
    }

    fn is_free(&self) -> bool {
        let mut cases = self.cases.iter();
        cases.any(|case| matches!(case.fate, Fate::Free(..)))
    }

    /// Who has reserved the addresses that are the ghost's no more, if none of
    /// them is free for everybody.
    fn reserved_for(&self) -> Option<&str> {
        let mut others = self.cases.iter().filter_map(|case| match &case.fate {
            Fate::Free(known, _) => Some(known.answer.as_ref()?.holder.as_ref()),
            _ => None,
        });
        let first = others.next()??;
        others
            .all(|holder| holder.is_some())
            .then_some(first.container_id.as_str())
    }
}
