//! What is wrong with a subject, and what to do about it.

use std::{collections::BTreeSet, net::IpAddr};

use super::{related::Related, resolve::Seeds};
use crate::{
    Engine,
    detect::{View, add_failed, blocked_task},
};
use event::explanation::{FindingPart, NetnsPart, PodState};
use event::finding::{Finding, Holder, Rule, Severity, State};
use event::order::Order as _;
use event::wording::subjects::pod_word;

/// Open findings about any of a subject's parts, worst first. That the task asked
/// about is stuck is one, also where it is told as one of many.
pub(super) fn findings(
    engine: &Engine,
    view: &View<'_>,
    seeds: &Seeds,
    related: &Related<'_>,
) -> Vec<FindingPart> {
    let open = engine.open().into_iter();
    let about = open.filter(|finding| is_about(finding, seeds, related));
    let mut about: Vec<Finding> = about.cloned().collect();
    let asked = seeds.task.as_ref();
    if let Some(blocked) = asked.and_then(|task| view.model.blocked.get(task)) {
        let its = blocked_task::finding(view, blocked);
        if about.iter().all(|finding| finding.id != its.id) {
            about.push(its);
            about.order_by_key(|finding| std::cmp::Reverse(finding.severity));
        }
    }
    // So is that one of many pods does not start.
    let crowded = add_failed::of_crowds(view).into_iter();
    about.extend(crowded.filter(|its| is_about(its, seeds, related)));
    let state = State::Open;
    about
        .into_iter()
        .map(|finding| FindingPart { state, finding })
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

/// What the findings advise, each thing once: what keeps pods away first, what
/// undoes that last. Where a ghost is found, its advice covers what follows from
/// it.
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
    advice.order_by_key(|step| match step {
        step if step.starts_with("kubectl cordon ") => 0,
        step if step.starts_with("kubectl uncordon ") => 2,
        _ => 1,
    });
    let mut undone = false;
    advice.retain(|step| {
        !(step.starts_with("kubectl uncordon ") && std::mem::replace(&mut undone, true))
    });
    advice
}

/// What is to be said where no finding advises anything; `tasks` are the
/// subject's besides those in its namespaces, and `partial` says that not all could
/// be read.
pub(super) fn otherwise(
    findings: &[FindingPart],
    netns: &[NetnsPart],
    tasks: &[Holder],
    partial: bool,
) -> Vec<String> {
    let bad = |part: &FindingPart| part.finding.severity >= Severity::Warning;
    let inside = netns.iter().flat_map(|part| &part.holders);
    let mut all = inside.chain(tasks);
    if findings.iter().any(bad) || all.clone().any(is_stuck) {
        return Vec::new();
    }
    // It may be stuck, or wait for a disk for a moment.
    if let Some((comm, tid)) = all.find_map(asleep) {
        return vec![format!(
            "look again in some seconds: {comm} ({tid}) is in state D, unknown since when"
        )];
    }
    let gone = |part: &&NetnsPart| part.pod_state == Some(PodState::Gone);
    let gone = netns.iter().find(gone);
    if let Some(pod) = gone.and_then(|part| part.pod.as_ref()) {
        return vec![format!(
            "look again in a minute: the deletion of {} may still be under way",
            pod_word(pod)
        )];
    }
    vec![String::from(match partial {
        true => "no problem found; incomplete",
        false => "nothing to do",
    })]
}

/// A task in uninterruptible sleep, by name and thread ID, if a holder is one.
fn asleep(holder: &Holder) -> Option<(&str, u32)> {
    match holder {
        Holder::Task {
            comm,
            tid,
            state: Some('D'),
            not_stuck: None,
            ..
        } => Some((comm, *tid)),
        _ => None,
    }
}

/// Whether a holder is a stuck task.
pub(super) fn is_stuck(holder: &Holder) -> bool {
    matches!(holder, Holder::Task { since: Some(_), .. })
}
