//! Incidents with the sandboxes that they are about.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    history::History,
    lanes::{Held, Serial},
    shared::{Giver, Shared, shared},
    sheet::Sheet,
};
use event::{
    clock::Timestamp,
    finding::{Finding, Phase, Rule, Severity},
    order::Order as _,
};

#[derive(Debug, Default)]
pub struct Incident<'a> {
    /// What was found, worst first; of equals, what the others follow from.
    pub findings: Vec<&'a History>,
    /// The sandboxes concerned, in the order of what first happened to them.
    pub lanes: Vec<Serial>,
    /// Addresses of it that sandboxes of several nodes have.
    pub shared: Vec<Shared<'a>>,
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
    /// It is one network; otherwise they only have the same address.
    pub certain: bool,
}

/// All incidents, worst first.
pub fn incidents(sheet: &Sheet) -> Vec<Incident<'_>> {
    let lanes = &sheet.lanes;
    let mut incidents: Vec<Incident<'_>> = Vec::new();
    // Nodes may call different things the same.
    let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut of_finding: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for history in sheet.findings.worst_first() {
        let node = sheet.node_of(history.part);
        let place = *places
            .entry((node, history.worst.incident()))
            .or_insert(incidents.len());
        if place == incidents.len() {
            incidents.push(Incident {
                findings: Vec::new(),
                lanes: Vec::new(),
                shared: Vec::new(),
            });
        }
        of_finding.insert((node, &history.worst.id), place);
        incidents[place].findings.push(history);
    }
    for (serial, lane) in lanes.all() {
        let node = sheet.node_of(lane.part);
        let mut named = lane.named.iter();
        if let Some(place) = named.find_map(|id| of_finding.get(&(node, id.as_str()))) {
            incidents[*place].lanes.push(serial);
        }
    }
    for one in shared(sheet) {
        put_together(&mut incidents, one);
    }
    incidents.retain(|incident| !incident.findings.is_empty());
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

/// What is about an address that several nodes have is one incident.
fn put_together<'a>(incidents: &mut [Incident<'a>], one: Shared<'a>) {
    let given = one.given.iter().filter_map(|given| match given.by {
        Giver::Lane(serial, _) => Some(serial),
        Giver::Api(_) => None,
    });
    let given: Vec<Serial> = given.collect();
    let is_about = |incident: &Incident<'_>| {
        let is_held = |it: &&History| one.held.iter().any(|held| std::ptr::eq(*held, *it));
        let is_given = |it: &&History| it.worst.addresses.contains(&one.address);
        let has_lane = incident.lanes.iter().any(|it| given.contains(it));
        let mut findings = incident.findings.iter();
        findings.any(|it| is_held(it) || (has_lane && is_given(it)))
    };
    let about = incidents.iter().enumerate().filter(|(_, it)| is_about(it));
    let about: Vec<usize> = about.map(|(place, _)| place).collect();
    let Some((first, others)) = about.split_first() else {
        return;
    };
    let mut whole = std::mem::take(&mut incidents[*first]);
    for place in others {
        let other = std::mem::take(&mut incidents[*place]);
        whole.findings.extend(other.findings);
        whole.lanes.extend(other.lanes);
        whole.shared.extend(other.shared);
    }
    whole.lanes.extend(given);
    whole.lanes.sort_unstable();
    whole.lanes.dedup();
    whole.shared.push(one);
    incidents[*first] = whole;
}

impl Incident<'_> {
    pub fn worst(&self) -> Option<&History> {
        self.findings.first().copied()
    }

    /// Addresses that two of its sandboxes had at the same time, in order. Only
    /// those count that a finding says it of: some addresses are shared on
    /// purpose.
    pub fn conflicts(&self, sheet: &Sheet) -> Vec<Conflict> {
        let lanes = &sheet.lanes;
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
        let is_told: BTreeSet<IpAddr> = addresses.keys().copied().collect();
        let node = |serial: Serial| lanes.get(serial).map(|lane| sheet.node_of(lane.part));
        let spread = |address| self.shared.iter().find(|one| one.address == address);
        for one in &self.shared {
            let at = one.given.iter().find_map(|given| given.at());
            addresses
                .entry(one.address)
                .or_insert(at.unwrap_or(sheet.began()));
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
                for other in others {
                    let certain = match (node(one.0) == node(other.0), spread(address)) {
                        (true, _) => is_told.contains(&address),
                        (false, Some(spread)) => spread.is_certain(),
                        (false, None) => continue,
                    };
                    if node(one.0) == node(other.0) && !certain {
                        continue;
                    }
                    let conflict = overlap(*one, *other, told);
                    conflicts.extend(conflict.map(|it| Conflict { certain, ..it }));
                }
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
        certain: true,
    })
}
