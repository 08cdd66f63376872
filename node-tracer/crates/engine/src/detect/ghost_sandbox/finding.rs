//! A ghost in words: the verdict in one line. The claims that lead to it are in
//! [`evidence`](super::evidence), what is not known in [`unknowns`](super::unknowns),
//! what to do in [`advice`](super::advice).

use crate::{
    detect::{
        View,
        facts::{
            common::{user_kind, users},
            ghosts::Ghost,
        },
        few, fitting,
        ghost_sandbox::{
            address_state::{AddressState, Case},
            ipam::{Outlook, Start},
        },
        holders_of, is, netns_of, pod_of,
    },
    model::{allocation::StoreAnswer, netns::NetnsEntry, pods::PodPresence},
};
use std::net::IpAddr;

use event::{
    PodRef,
    finding::{Detail, Finding, Phase, Rule, Severity, finding_id},
    wording::subjects::short_id,
};

/// What the finding's parts are written from.
pub(super) struct GhostReport<'v, 'a> {
    pub(super) view: &'v View<'a>,
    pub(super) ghost: &'v Ghost<'a>,
    pub(super) pod: PodRef,
    /// One for each address.
    pub(super) cases: Vec<Case<'a>>,
    pub(super) phase: Phase,
}

/// How far a ghost has come by each of its addresses.
pub(super) fn phases<'a>(view: &View<'a>, ghost: &Ghost<'a>) -> Vec<(IpAddr, Phase)> {
    let pod = pod_of(view.model, ghost.entry).unwrap_or_default();
    let cases = cases(view, ghost, &pod).into_iter();
    cases.map(|case| (case.address, case.phase)).collect()
}

fn cases<'a>(view: &View<'a>, ghost: &Ghost<'a>, pod: &PodRef) -> Vec<Case<'a>> {
    let gone = !matches!(ghost.entry.sandbox.presence, PodPresence::Terminating(_));
    let addresses = ghost.addresses.iter();
    addresses
        .map(|address| Case::new(view, ghost, *address, pod, gone))
        .collect()
}

pub(super) fn finding<'a>(view: &View<'a>, ghost: &Ghost<'a>) -> Finding {
    let entry = ghost.entry;
    let pod = pod_of(view.model, entry).unwrap_or_default();
    let cases = cases(view, ghost, &pod);
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
        advice: told.advice_with_taker(),
        detail: Detail {
            first_seen: is_first_seen(view, entry),
            phase: Some(phase),
            due,
            taken_by: told.taken_by(),
            ..Detail::default()
        },
        pod: Some(told.pod),
    }
}

impl GhostReport<'_, '_> {
    /// The namespace that has one of the addresses as well.
    pub(super) fn victim(&self) -> Option<&NetnsEntry> {
        self.cases.iter().find_map(|case| match &case.fate {
            AddressState::TakenBy(other, _) => Some(*other),
            _ => None,
        })
    }

    /// What is wrong in one line: the cause first, and no name that can be long.
    fn title(&self) -> String {
        let all = self.ghost.addresses.as_slice();
        fitting(self.title_of(all), || {
            self.title_of(all.get(..1).unwrap_or(all))
        })
    }

    fn title_of(&self, all: &[IpAddr]) -> String {
        let (addresses, is) = (few(all), is(all.len()));
        let state = match self.ghost.entry.sandbox.presence {
            PodPresence::Terminating(_) => "a terminating",
            PodPresence::Finished(_) => "a finished",
            _ => "a deleted",
        };
        let held = format!("{addresses} {is} held by {state} pod");
        let free = self.free();
        match (self.phase, self.victim()) {
            (Phase::Conflict, Some(victim)) => {
                let state = format!("{state} pod");
                let users = users(&[&state, user_kind(self.view, victim)]);
                format!("{addresses} {is} used by {users}")
            }
            (Phase::Conflict, None) if let Some((address, taker)) = self.taker() => {
                taker.title(address, state)
            }
            (Phase::Armed, _) if let Some(answer) = free => match self.reserved_for() {
                Some(id) => format!("{held} and reserved for {}", short_id(id)),
                None if answer.is_news => {
                    format!(
                        "{held}; free for others since {}",
                        answer.since.time_of_day()
                    )
                }
                None => format!("{held}; free for others"),
            },
            _ => format!("{held}{}", self.outlook()),
        }
    }

    /// What will become of the address that is worst off.
    fn outlook(&self) -> String {
        let worst = self.cases.iter().filter(|case| case.phase == self.phase);
        let Some(case) = worst.min_by_key(|case| (case.due.is_none(), case.due)) else {
            return String::new();
        };
        let name = case
            .allocator
            .as_ref()
            .map_or("", |allocator| allocator.ipam.name());
        let reserved = matches!(case.fate, AddressState::Reserved(_));
        match (case.outlook, case.due) {
            (Outlook::Conflict { from, .. }, due) => match (from, due) {
                (Start::Claimed, _) => format!("; {name} gives it to its namesake"),
                (_, None) => format!("; {name} frees it, unknown when"),
                (_, Some(due)) if self.view.passed(due) => {
                    format!("; {name} should have freed it")
                }
                (_, Some(due)) => format!("; {name} frees it by {}", due.time_of_day()),
            },
            (Outlook::Leak, _) if reserved => String::from("; leak: reserved until CNI DEL runs"),
            (Outlook::Leak, _) => String::from("; leak: kept until CNI DEL runs"),
            (Outlook::Unknown, _) if reserved => String::from(" and still reserved for it"),
            (Outlook::Unknown, _) => String::from("; unknown if reserved"),
        }
    }

    /// The answer by which one of the addresses is the ghost's no more.
    fn free(&self) -> Option<&StoreAnswer> {
        self.cases.iter().find_map(|case| match &case.fate {
            AddressState::Free(known, _) => known.answer.as_ref(),
            _ => None,
        })
    }

    /// Who has reserved the addresses that are the ghost's no more, if none of
    /// them is free for everybody.
    fn reserved_for(&self) -> Option<&str> {
        let mut others = self.cases.iter().filter_map(|case| match &case.fate {
            AddressState::Free(known, _) => Some(known.answer.as_ref()?.holder.as_ref()),
            _ => None,
        });
        let first = others.next()??;
        others
            .all(|holder| holder.is_some())
            .then_some(first.container_id.as_str())
    }
}

/// Whether nobody saw the pod's end: `since` is when it was first missed.
fn is_first_seen(view: &View<'_>, entry: &NetnsEntry) -> bool {
    let pod = || view.model.pods.pod(entry.sandbox.uid()?);
    match entry.sandbox.presence {
        PodPresence::Unlisted(_) => true,
        PodPresence::Finished(_) => pod().is_none_or(|pod| pod.finished.is_none()),
        _ => false,
    }
}
