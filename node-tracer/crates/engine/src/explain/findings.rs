//! What is wrong with a subject, and what to do about it.

use std::{collections::BTreeSet, net::IpAddr};

use super::{related::Related, resolve::Seeds};
use crate::Engine;
use event::explanation::{FindingPart, NetnsPart};
use event::finding::{Finding, Holder, Rule, Severity, State};

/// Open findings about any of a subject's parts, worst first.
pub(super) fn findings(engine: &Engine, seeds: &Seeds, related: &Related<'_>) -> Vec<FindingPart> {
    let open = engine.open().into_iter();
    let about = open.filter(|finding| is_about(finding, seeds, related));
    about
        .map(|finding| FindingPart {
            state: State::Open,
            finding: finding.clone(),
        })
        .collect()
}

fn is_about(finding: &Finding, seeds: &Seeds, related: &Related<'_>) -> bool {
    let Finding {
        pod,
        sandbox_id,
        netns,
        addresses,
        holders,
        detail,
        ..
    } = finding;
    let own: BTreeSet<u32> = related
        .own()
        .filter(|entry| !entry.host)
        .map(|entry| entry.id.inode)
        .collect();
    let has = |id: &str| related.containers.contains(id);
    let held = |address: &IpAddr| related.addresses.contains(address);
    let by_holder = holders.iter().any(|holder| match holder {
        Holder::Task {
            tid, container_id, ..
        } => {
            let asked = seeds.task.as_ref().is_some_and(|task| task.tid == *tid);
            asked || container_id.as_deref().is_some_and(has)
        }
        Holder::Mount { .. } | Holder::Fd { .. } | Holder::Socket { .. } => false,
    });
    let reservations = &detail.reservations;
    let uid = pod.as_ref().and_then(|pod| pod.uid.as_deref());
    netns
        .as_ref()
        .is_some_and(|netns| own.contains(&netns.id.inode))
        || addresses.iter().any(held)
        || sandbox_id.as_deref().is_some_and(has)
        || uid.is_some_and(|uid| related.uids.contains(uid))
        || by_holder
        || reservations
            .iter()
            .any(|each| held(&each.address) || has(&each.container_id))
}

/// What the findings advise, each thing once. Where a ghost is found, its advice
/// covers what follows from it.
pub(super) fn advice(findings: &[FindingPart]) -> Vec<String> {
    let findings = findings.iter().map(|part| &part.finding);
    let (ghosts, others): (Vec<_>, Vec<_>) =
        findings.partition(|finding| finding.rule == Rule::GhostSandbox);
    let covered = |finding: &&Finding| {
        ghosts.iter().any(|ghost| match finding.rule {
            Rule::DuplicateAddress => finding
                .addresses
                .iter()
                .any(|a| ghost.addresses.contains(a)),
            Rule::BlockedTask => finding.holders.iter().any(|h| ghost.holders.contains(h)),
            _ => false,
        })
    };
    let others = others.into_iter().filter(|finding| !covered(finding));
    let mut advice: Vec<String> = Vec::new();
    for step in ghosts
        .iter()
        .copied()
        .chain(others)
        .flat_map(|finding| &finding.advice)
    {
        if !advice.contains(step) {
            advice.push(step.clone());
        }
    }
    advice
}

/// What is to be said where no finding advises anything; `partial` if not all
/// could be read.
pub(super) fn otherwise(
    findings: &[FindingPart],
    netns: &[NetnsPart],
    partial: bool,
) -> Vec<String> {
    let bad = |part: &FindingPart| part.finding.severity >= Severity::Warning;
    let stuck = netns.iter().flat_map(|part| &part.holders).any(is_stuck);
    if findings.iter().any(bad) || stuck {
        return Vec::new();
    }
    vec![String::from(match partial {
        true => "nothing to do, as far as could be seen",
        false => "nothing to do",
    })]
}

/// Whether a holder is a stuck task.
pub(super) fn is_stuck(holder: &Holder) -> bool {
    matches!(holder, Holder::Task { since: Some(_), .. })
}
