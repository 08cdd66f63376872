//! Each open finding as a series of its own, so that a cluster's Prometheus can
//! say which pod and which address: the worst ones, and how many are left out.

use std::collections::BTreeMap;

use event::order::Order as _;
use event::{
    finding::{Finding, Severity, State},
    wording::escape::Printable,
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

/// Findings that have a series each.
pub(super) const MAX_FINDINGS: usize = 32;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OpenFinding {
    rule: &'static str,
    phase: &'static str,
    address: String,
    namespace: String,
    pod: String,
    id: String,
}

impl OpenFinding {
    fn of(finding: &Finding) -> Self {
        // As in all other output: an escape sequence is no text.
        let text = |text: Option<&str>| Printable(text.unwrap_or_default()).to_string();
        let pod = finding.pod.as_ref();
        let address = finding.addresses.first().map(ToString::to_string);
        Self {
            rule: finding.rule.as_str(),
            phase: finding.detail.phase.map_or("", |phase| phase.as_str()),
            address: address.unwrap_or_default(),
            namespace: text(pod.and_then(|pod| pod.namespace.as_deref())),
            pod: text(pod.and_then(|pod| pod.name.as_deref())),
            id: finding.id.clone(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct OpenFindings {
    open: BTreeMap<String, (Severity, OpenFinding)>,
    shown: Family<OpenFinding, Gauge>,
    left_out: Gauge,
}

impl OpenFindings {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "node_tracer_open_finding_info",
            "Findings that are open, the worst ones",
            self.shown.clone(),
        );
        registry.register(
            "node_tracer_open_findings_left_out",
            "Findings that are open and have no series of their own",
            self.left_out.clone(),
        );
    }

    pub(super) fn take(&mut self, finding: &Finding, state: State) {
        match state {
            State::Resolved => drop(self.open.remove(&finding.id)),
            State::Open | State::Updated => {
                let shown = (finding.severity, OpenFinding::of(finding));
                self.open.insert(finding.id.clone(), shown);
            }
        }
        self.shown.clear();
        let mut all: Vec<_> = self.open.values().collect();
        all.order_by_key(|(severity, _)| std::cmp::Reverse(*severity));
        for (_, labels) in all.iter().take(MAX_FINDINGS) {
            self.shown.get_or_create(labels).set(1);
        }
        let left_out = all.len().saturating_sub(MAX_FINDINGS);
        self.left_out
            .set(i64::try_from(left_out).unwrap_or(i64::MAX));
    }
}
