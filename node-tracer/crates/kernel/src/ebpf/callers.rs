//! The tables by which the kernel's programs tell the callers of CNI plugins
//! apart, seen from the tracer: where runtimes are at home, which plugins run,
//! and what untrusted callers did beyond their budget.

use std::collections::HashMap as Map;

use aya::{
    Ebpf,
    maps::{HashMap, MapData},
};
use node_tracer_ebpf::{
    map,
    record::{Calls, MAX_CALLERS, Owner, owner},
};

use super::probes::{LoadError, Probes, Value, take_map};

/// Owners that may be kept; beyond, those that have done nothing of late are
/// forgotten, so that there is room for new ones.
const MANY: usize = MAX_CALLERS as usize / 2;
/// Who has done nothing for so long, ns, is forgotten first.
const IDLE: u64 = 60_000_000_000;

#[derive(Debug)]
pub(super) struct Callers {
    homes: HashMap<MapData, u32, u32>,
    /// The first of these, the host's.
    hosts: Option<u32>,
    calls: HashMap<MapData, Value<Owner>, Value<Calls>>,
    running: HashMap<MapData, u32, u64>,
    strangers: HashMap<MapData, u32, u64>,
    /// How many calls of each owner were taken already.
    taken: Map<Owner, u64>,
}

impl Callers {
    /// Takes the tables out of the loaded object.
    pub(super) fn new(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        let mut calls: HashMap<_, Value<Owner>, Value<Calls>> =
            take_map(ebpf, map::CALLERS, HashMap::try_from)?;
        let others = Owner {
            kind: owner::OTHERS,
            id: 0,
        };
        let made = calls.insert(Value(others), Value(Calls::NONE), 0);
        made.map_err(|source| LoadError::Map {
            name: map::CALLERS,
            source: Some(source),
        })?;
        Ok(Self {
            homes: take_map(ebpf, map::HOMES, HashMap::try_from)?,
            hosts: None,
            calls,
            running: take_map(ebpf, map::CNI_RUNNING, HashMap::try_from)?,
            strangers: take_map(ebpf, map::CNI_STRANGERS, HashMap::try_from)?,
            taken: Map::new(),
        })
    }
}

/// Calls of one owner that were not handed over one by one.
#[derive(Clone, Copy, Debug)]
pub struct Withheld {
    pub owner: Owner,
    /// How many, since the last look.
    pub count: u64,
    pub calls: Calls,
}

impl Probes {
    /// What runs in this mount namespace may be a runtime's: its records come
    /// among those that count.
    pub fn is_home(&mut self, mnt_inum: u32) {
        let Callers { homes, hosts, .. } = &mut self.callers;
        if mnt_inum == 0 || homes.get(&mnt_inum, 0).is_ok() {
            return;
        }
        let hosts = *hosts.get_or_insert(mnt_inum);
        if homes.insert(mnt_inum, 1, 0).is_err() {
            // Runtimes that were started again and again, each in a namespace
            // of its own. Those that still run are put in again by their next
            // call, which comes among those of others.
            let all: Vec<u32> = homes.keys().take(MANY).filter_map(Result::ok).collect();
            for old in all.iter().filter(|old| **old != hosts) {
                let _ = homes.remove(old);
            }
            let _ = homes.insert(mnt_inum, 1, 0);
        }
    }

    /// A process of which the kernel thought that it may be a runtime's plugin
    /// is none: it takes no room from those that are.
    pub fn is_stranger(&mut self, tgid: u32, started: u64) {
        let Callers {
            running, strangers, ..
        } = &mut self.callers;
        if running.get(&tgid, 0).is_ok_and(|time| time == started) {
            // Its end is told all the same. One that ends just now stays in
            // there until it is the oldest.
            let _ = strangers.insert(tgid, started, 0);
            let _ = running.remove(&tgid);
        }
    }

    /// What untrusted callers did beyond their budget since the last look.
    pub fn withheld(&mut self, now: u64) -> Vec<Withheld> {
        let Callers { calls, taken, .. } = &mut self.callers;
        let entries = calls.iter().take(2 * MAX_CALLERS as usize);
        let entries: Vec<(Owner, Calls)> = entries
            .filter_map(Result::ok)
            .map(|(Value(owner), Value(calls))| (owner, calls))
            .collect();
        let mut found = Vec::new();
        for (owner, calls) in &entries {
            let taken = taken.entry(*owner).or_default();
            let count = calls.withheld.saturating_sub(*taken);
            *taken = calls.withheld;
            if count > 0 {
                found.push(Withheld {
                    owner: *owner,
                    count,
                    calls: *calls,
                });
            }
        }
        if entries.len() > MANY {
            for (owner, calls) in entries {
                let last = calls.last.max(calls.window);
                if owner.kind != owner::OTHERS && last + IDLE < now {
                    let _ = self.callers.calls.remove(&Value(owner));
                    self.callers.taken.remove(&owner);
                }
            }
        }
        found
    }
}
