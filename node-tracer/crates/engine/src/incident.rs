//! Which findings are one incident: a ghost, the pod that has been given its
//! address, the task that holds it, the reservation that leaked.
//!
//! Every finding belongs to the first cause
//! ([`rank_in_incident`](event::finding::Rule::rank_in_incident)) that it shares
//! its namespace, its sandbox, or an address and a holder with. It is a cause of
//! its own if there is none. Causes are not joined: two ghosts are two
//! incidents, whatever else names both.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::Path,
};

use event::order::Order as _;
use event::{
    Netns,
    finding::{Finding, Holder},
};

/// Says of each finding to which incident it belongs. `earlier` knows the
/// incident of a finding that was told before: an incident keeps its ID when a
/// worse finding joins it.
pub(crate) fn assign(findings: &mut [Finding], earlier: impl Fn(&str) -> Option<String>) {
    let mut order: Vec<usize> = (0..findings.len()).collect();
    order.order_by_key(|&at| {
        let Finding {
            rule, since, id, ..
        } = &findings[at];
        (rule.rank_in_incident(), *since, id.clone())
    });
    let mut causes = Causes::default();
    let mut members: Vec<Vec<usize>> = Vec::new();
    for at in order {
        match causes.of(&findings[at]) {
            Some(cause) => members[cause].push(at),
            None => {
                causes.add(&findings[at], members.len());
                members.push(vec![at]);
            }
        }
    }
    let mut given = BTreeSet::new();
    for group in members {
        let known = group
            .iter()
            .find_map(|&at| earlier(&findings[at].id).filter(|incident| !given.contains(incident)));
        let incident = known.unwrap_or_else(|| findings[group[0]].id.clone());
        for at in group {
            findings[at].detail.incident = Some(incident.clone());
        }
        given.insert(incident);
    }
}

/// What findings are recognised by; of each, the first cause that has it.
#[derive(Default)]
struct Causes {
    nets: BTreeMap<Netns, usize>,
    sandboxes: BTreeMap<String, usize>,
    /// An address alone may be many pods': a holder must be the same, too.
    held: BTreeMap<(IpAddr, Subject), usize>,
}

/// Who holds, without what changes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Thread(u32),
    Mount(Box<Path>),
    Descriptor(u32, u32),
}

impl Causes {
    fn of(&self, finding: &Finding) -> Option<usize> {
        let net = finding.netns.as_ref().map(|netns| &netns.id);
        if let Some(cause) = net.and_then(|net| self.nets.get(net)) {
            return Some(*cause);
        }
        // A finding about many reservations is no part of what one of them is.
        let mut sandboxes = sandboxes(finding).map(|id| self.sandboxes.get(id).copied());
        if let Some(first) = sandboxes.next().flatten()
            && sandboxes.all(|other| other == Some(first))
        {
            return Some(first);
        }
        held(finding).find_map(|key| self.held.get(&key).copied())
    }

    fn add(&mut self, finding: &Finding, cause: usize) {
        if let Some(netns) = &finding.netns {
            self.nets.entry(netns.id).or_insert(cause);
        }
        for id in sandboxes(finding) {
            self.sandboxes.entry(id.to_owned()).or_insert(cause);
        }
        for key in held(finding) {
            self.held.entry(key).or_insert(cause);
        }
    }
}

fn sandboxes(finding: &Finding) -> impl Iterator<Item = &str> {
    let reserved = finding.detail.reservations.iter();
    let ids = reserved.map(|each| each.container_id.as_str());
    let own = [&finding.sandbox_id, &finding.detail.old_container_id];
    let own = own.into_iter().flatten().map(String::as_str);
    own.chain(ids).filter(|id| !id.is_empty())
}

fn held(finding: &Finding) -> impl Iterator<Item = (IpAddr, Subject)> {
    let subjects: BTreeSet<Subject> = finding
        .holders
        .iter()
        .map(|holder| match holder {
            Holder::Task { tid, .. } => Subject::Thread(*tid),
            Holder::Mount { path } => Subject::Mount(path.as_path().into()),
            Holder::Fd { pid, fd, .. } | Holder::Socket { pid, fd, .. } => {
                Subject::Descriptor(*pid, *fd)
            }
        })
        .collect();
    let addresses = finding.addresses.iter().copied();
    addresses.flat_map(move |address| {
        let subjects = subjects.clone();
        subjects.into_iter().map(move |subject| (address, subject))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(id: &str, rule: &str, more: &serde_json::Value) -> Finding {
        let mut json = serde_json::json!({
            "rule": rule, "severity": "warning", "id": id, "since": "2025-11-21T05:53:10Z",
            "title": "t", "addresses": [], "holders": [], "evidence": [], "unknown": [],
            "advice": []
        });
        let map = json.as_object_mut().unwrap();
        map.extend(more.as_object().unwrap().clone());
        serde_json::from_value(json).unwrap()
    }

    fn task(tid: u32) -> serde_json::Value {
        serde_json::json!({"kind": "task", "pid": tid, "tid": tid, "comm": "dd"})
    }

    fn ghost(id: &str, inode: u32, tid: u32) -> Finding {
        let more = serde_json::json!({
            "netns": {"inode": inode, "paths": []}, "sandbox_id": format!("s{inode}"),
            "addresses": ["10.0.0.2"], "holders": [task(tid)],
        });
        finding(id, "ghost-sandbox", &more)
    }

    fn duplicate(tids: &[u32]) -> Finding {
        let holders: Vec<_> = tids.iter().copied().map(task).collect();
        let more = serde_json::json!({
            "netns": {"inode": 9, "paths": []}, "sandbox_id": "s9",
            "addresses": ["10.0.0.2"], "holders": holders,
        });
        finding("d", "duplicate-address", &more)
    }

    fn incidents(mut findings: Vec<Finding>, earlier: &[(&str, &str)]) -> Vec<String> {
        let earlier: BTreeMap<_, _> = earlier.iter().copied().collect();
        assign(&mut findings, |id| {
            earlier.get(id).map(|it| (*it).to_owned())
        });
        let all = findings.into_iter();
        all.map(|finding| finding.detail.incident.unwrap())
            .collect()
    }

    #[test]
    fn the_conflict_the_stuck_task_and_the_leak_belong_to_the_ghost() {
        let stuck = serde_json::json!({"netns": {"inode": 1, "paths": []}, "holders": [task(7)]});
        let leak = serde_json::json!({"addresses": ["10.0.0.2"], "reservations": [
            {"path": "/net/10.0.0.2", "address": "10.0.0.2", "container_id": "s1"}]});
        let findings = vec![
            duplicate(&[7, 8]),
            finding("b", "blocked-task", &stuck),
            finding("l", "leaked-reservation", &leak),
            ghost("g", 1, 7),
        ];
        assert_eq!(incidents(findings, &[]), ["g"; 4]);
    }

    #[test]
    fn two_ghosts_of_one_address_are_two_incidents() {
        let both = vec![ghost("g", 1, 7), ghost("h", 2, 8), duplicate(&[7, 8])];
        assert_eq!(incidents(both, &[]), ["g", "h", "g"]);
    }

    #[test]
    fn an_address_alone_joins_nothing() {
        assert_eq!(
            incidents(vec![ghost("g", 1, 7), duplicate(&[8])], &[]),
            ["g", "d"]
        );
    }

    #[test]
    fn a_store_with_others_leaks_is_no_part_of_one_ghost() {
        let leak = serde_json::json!({"reservations": [
            {"path": "/net/10.0.0.2", "address": "10.0.0.2", "container_id": "s1"},
            {"path": "/net/10.0.0.3", "address": "10.0.0.3", "container_id": "x"}]});
        let findings = vec![ghost("g", 1, 7), finding("l", "leaked-reservation", &leak)];
        assert_eq!(incidents(findings, &[]), ["g", "l"]);
    }

    #[test]
    fn an_incident_keeps_its_id_when_its_cause_is_found() {
        let stuck = serde_json::json!({"netns": {"inode": 1, "paths": []}, "holders": [task(7)]});
        let findings = vec![finding("b", "blocked-task", &stuck), ghost("g", 1, 7)];
        assert_eq!(incidents(findings, &[("b", "b")]), ["b", "b"]);
    }

    #[test]
    fn an_incident_that_falls_apart_leaves_its_id_to_one_part() {
        let both = vec![ghost("g", 1, 7), ghost("h", 2, 8)];
        assert_eq!(incidents(both, &[("g", "b"), ("h", "b")]), ["b", "h"]);
    }
}
