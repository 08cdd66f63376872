//! What only a person can do, grouped by what kind of trouble it is: the
//! findings' own advice, which names processes, mounts and the commands of
//! each CNI.

use std::path::Path;

use super::observe::Observation;
use event::finding::{Finding, Rule};
use event::repair::plan::ByHand;

/// Findings that a release does nothing about.
pub(crate) fn by_hand(findings: &[&Finding], seen: &Observation) -> Vec<ByHand> {
    let stores: Vec<&Path> = seen.stores().map(|(path, ..)| path).collect();
    let of = |rule: Rule| findings.iter().filter(move |finding| finding.rule == rule);
    let mut all = Vec::new();
    for &rule in Rule::ALL {
        let Some(kind) = rule.spec().by_hand else {
            continue;
        };
        let wanted = of(rule).filter(|finding| match rule {
            // What holds a ghost is told with the ghost.
            Rule::BlockedTask => !is_told(finding, findings),
            Rule::LeakedReservation => !is_releasable(finding, &stores),
            _ => true,
        });
        all.extend(wanted.map(|finding| step(kind, finding)));
    }
    all
}

fn step(kind: &str, finding: &Finding) -> ByHand {
    ByHand {
        kind: kind.to_owned(),
        rule: finding.rule,
        severity: finding.severity,
        finding: finding.id.clone(),
        title: finding.title.clone(),
        pod: finding.pod.as_ref().map(event::wording::subjects::pod_word),
        addresses: finding.addresses.clone(),
        holders: finding.holders.clone(),
        steps: finding.advice.clone(),
    }
}

/// Whether a stuck task holds a namespace that another finding is about.
fn is_told(task: &Finding, findings: &[&Finding]) -> bool {
    let Some(netns) = &task.netns else {
        return false;
    };
    let mut others = findings.iter().filter(|other| {
        matches!(
            other.rule,
            Rule::GhostSandbox | Rule::TrappedDevice | Rule::PinnedNetns
        )
    });
    others.any(|other| {
        let its = other.netns.as_ref();
        its.is_some_and(|its| its.id.inode == netns.id.inode)
    })
}

/// Whether the reservations are in stores of host-local's that are in use: what
/// of them can be released is in the plan.
fn is_releasable(finding: &Finding, stores: &[&Path]) -> bool {
    use event::finding::Severity;
    let mut reservations = finding.detail.reservations.iter();
    let own = reservations.any(|each| {
        let parent = each.path.parent();
        parent.is_some_and(|parent| stores.contains(&parent))
    });
    own && finding.severity >= Severity::Warning
}
