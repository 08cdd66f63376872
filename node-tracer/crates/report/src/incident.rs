//! Incidents with the sandboxes that they are about.

use std::{cmp::Reverse, collections::BTreeMap, net::IpAddr};

use super::{
    history::{Findings, History},
    lanes::{Held, Lanes, Serial},
};
use event::{
    clock::Timestamp,
    finding::{Finding, Phase, Rule, Severity},
    order::Order as _,
};

#[derive(Debug)]
pub struct Incident<'a> {
    /// What was found, worst first; of equals, what the others follow from.
    pub findings: Vec<&'a History>,
    /// The sandboxes concerned, in the order of what first happened to them.
    pub lanes: Vec<Serial>,
}

/// An address that two sandboxes had at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub address: IpAddr,
    pub from: Timestamp,
    /// Until when; `None` if it was so at the end.
    pub to: Option<Timestamp>,
    /// Who had it first, and who later.
    pub lanes: [Serial; 2],
}

/// All incidents, worst first.
pub fn incidents<'a>(findings: &'a Findings, lanes: &Lanes) -> Vec<Incident<'a>> {
    let mut incidents: Vec<Incident<'_>> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut of_finding: BTreeMap<&str, usize> = BTreeMap::new();
    for history in findings.worst_first() {
        let place = *places
            .entry(history.worst.incident())
            .or_insert(incidents.len());
        if place == incidents.len() {
            incidents.push(Incident {
                findings: Vec::new(),
                lanes: Vec::new(),
            });
        }
        of_finding.insert(&history.worst.id, place);
        incidents[place].findings.push(history);
    }
    for (serial, lane) in lanes.all() {
        let mut named = lane.named.iter();
        if let Some(place) = named.find_map(|id| of_finding.get(id.as_str())) {
            incidents[*place].lanes.push(serial);
        }
    }
    for incident in &mut incidents {
        incident.findings.order_by_key(|history| {
            let Finding { severity, rule, .. } = &history.worst;
            (Reverse(*severity), rule.rank_in_incident())
        });
        let first = |serial: &Serial| {
            let lane = lanes.get(*serial);
            lane.and_then(|lane| lane.moments().min())
        };
        incident
            .lanes
            .order_by_key(|serial| (first(serial), *serial));
    }
    incidents
}

impl Incident<'_> {
    pub fn worst(&self) -> Option<&History> {
        self.findings.first().copied()
    }

    /// Addresses that two of its sandboxes had at the same time, in order. Only
    /// those count that a finding says it of: some addresses are shared on
    /// purpose.
    pub fn conflicts(&self, lanes: &Lanes) -> Vec<Conflict> {
        let mut addresses: BTreeMap<IpAddr, Timestamp> = BTreeMap::new();
        for history in &self.findings {
            let finding = &history.worst;
            let is_one = match finding.rule {
                Rule::DuplicateAddress => finding.severity > Severity::Info,
                Rule::GhostSandbox => finding.detail.phase == Some(Phase::Conflict),
                _ => false,
            };
            for address in finding.addresses.iter().filter(|_| is_one) {
                addresses.entry(*address).or_insert(history.opened);
            }
        }
        let mut conflicts = Vec::new();
        for (address, told) in addresses {
            let held: Vec<(Serial, &Held)> = self
                .lanes
                .iter()
                .filter_map(|serial| Some((*serial, lanes.get(*serial)?)))
                .flat_map(|(serial, lane)| lane.held.iter().map(move |held| (serial, held)))
                .filter(|(_, held)| held.address == address)
                .collect();
            for (place, one) in held.iter().enumerate() {
                let others = held.iter().skip(place + 1).filter(|other| other.0 != one.0);
                conflicts.extend(others.filter_map(|other| overlap(*one, *other, told)));
            }
        }
        conflicts.order_by_key(|conflict| (conflict.from, conflict.address));
        conflicts
    }
}

/// When two had the same address; what began before anybody looked was told at
/// `told` at the latest.
fn overlap(one: (Serial, &Held), other: (Serial, &Held), told: Timestamp) -> Option<Conflict> {
    let (first, second) = match one.1.since <= other.1.since {
        true => (one, other),
        false => (other, one),
    };
    let from = second.1.since.unwrap_or(told);
    let to = match (first.1.until, second.1.until) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    to.is_none_or(|to| from < to).then_some(Conflict {
        address: one.1.address,
        from,
        to,
        lanes: [first.0, second.0],
    })
}
