//! Where a namespace sends packets, and since when each entry is known.

use std::{collections::HashMap, hash::Hash, ptr};

use event::{
    clock::Timestamp,
    forwarding::{DatedNeighbour, Forwarding, PolicyRule, TableRoute},
};

/// Where a namespace sends packets, as it was last read.
#[derive(Debug)]
pub struct KnownForwarding {
    /// When that was.
    pub at: Timestamp,
    /// When it was read first.
    pub first: Timestamp,
    pub forwarding: Forwarding,
    /// It is told again whenever it changes.
    pub followed: bool,
    /// Since when there are changes that were not read yet.
    pub outdated: Option<Timestamp>,
    /// Since when each is known, in the order of its list.
    rules: Vec<Timestamp>,
    routes: Vec<Timestamp>,
    neighbours: Vec<Timestamp>,
}

impl KnownForwarding {
    /// What was read takes the place of what was known.
    pub(super) fn new(
        old: Option<&Self>,
        at: Timestamp,
        followed: bool,
        forwarding: &Forwarding,
    ) -> Self {
        let new = forwarding;
        let before = |list: fn(&Self) -> &[Timestamp]| old.map(list).unwrap_or_default();
        let known = old.map(|old| &old.forwarding);
        let rules = known.map_or(&[][..], |known| &known.rules);
        let routes = known.map_or(&[][..], |known| &known.routes);
        let neighbours = known.map_or(&[][..], |known| &known.neighbours);
        Self {
            at,
            first: old.map_or(at, |old| old.first),
            followed,
            outdated: None,
            rules: ages(rules, before(|it| &it.rules), &new.rules, at, |it| it),
            routes: ages(routes, before(|it| &it.routes), &new.routes, at, |it| it),
            neighbours: ages(
                neighbours,
                before(|it| &it.neighbours),
                &new.neighbours,
                at,
                identity,
            ),
            forwarding: new.clone(),
        }
    }

    /// Since when this rule of its list is known.
    pub fn rule_since(&self, rule: &PolicyRule) -> Timestamp {
        self.since(&self.forwarding.rules, &self.rules, rule)
    }

    /// The same of a route.
    pub fn route_since(&self, route: &TableRoute) -> Timestamp {
        self.since(&self.forwarding.routes, &self.routes, route)
    }

    /// The same of a neighbour with its MAC address.
    pub fn neighbour_since(&self, neighbour: &DatedNeighbour) -> Timestamp {
        self.since(&self.forwarding.neighbours, &self.neighbours, neighbour)
    }

    fn since<T>(&self, list: &[T], since: &[Timestamp], one: &T) -> Timestamp {
        let place = list.iter().position(|it| ptr::eq(it, one));
        let since = place.and_then(|place| since.get(place));
        since.copied().unwrap_or(self.at)
    }
}

/// What stays the same while the kernel asks a neighbour again and again.
fn identity(dated: &DatedNeighbour) -> (u32, std::net::IpAddr, Option<&str>) {
    let neighbour = &dated.neighbour;
    (
        neighbour.device,
        neighbour.address,
        neighbour.mac.as_deref(),
    )
}

fn ages<'a, T, K: Hash + Eq>(
    old: &'a [T],
    since: &[Timestamp],
    new: &'a [T],
    now: Timestamp,
    key: impl Fn(&'a T) -> K,
) -> Vec<Timestamp> {
    // Of several that are the same the first is the oldest.
    let mut known = HashMap::with_capacity(old.len());
    for (one, since) in old.iter().zip(since) {
        known.entry(key(one)).or_insert(*since);
    }
    let age = |one| known.get(&key(one)).copied().unwrap_or(now);
    new.iter().map(age).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::{forwarding::MAIN_TABLE, testing::*};

    fn rule(table: u32) -> PolicyRule {
        PolicyRule {
            table,
            ..PolicyRule::default()
        }
    }

    #[test]
    fn an_entry_is_as_old_as_the_first_list_that_has_had_it_ever_since() {
        let with = |tables: &[u32]| Forwarding {
            rules: tables.iter().map(|table| rule(*table)).collect(),
            routes: vec![table_route(MAIN_TABLE, "10.0.0.5", 8)],
            ..Forwarding::default()
        };
        let first = KnownForwarding::new(None, s(1), true, &with(&[1, 2]));
        let second = KnownForwarding::new(Some(&first), s(2), true, &with(&[2, 3]));
        let third = KnownForwarding::new(Some(&second), s(3), true, &with(&[1, 2, 3]));
        let ages: Vec<_> = third
            .forwarding
            .rules
            .iter()
            .map(|it| third.rule_since(it))
            .collect();
        assert_eq!(ages, [s(3), s(1), s(2)]);
        assert_eq!(third.route_since(&third.forwarding.routes[0]), s(1));
        assert_eq!((third.first, third.at), (s(1), s(3)));
    }

    #[test]
    fn a_neighbour_that_is_asked_again_is_no_younger_and_one_with_another_mac_is() {
        let with = |mac: &str, state: &str| Forwarding {
            neighbours: vec![DatedNeighbour {
                neighbour: event::Neighbour {
                    mac: Some(mac.to_owned()),
                    ..neighbour(2, state)
                },
                confirmed: None,
            }],
            ..Forwarding::default()
        };
        let mut known = KnownForwarding::new(None, s(1), true, &with("a", "stale"));
        known = KnownForwarding::new(Some(&known), s(2), true, &with("a", "delay"));
        assert_eq!(known.neighbour_since(&known.forwarding.neighbours[0]), s(1));
        known = KnownForwarding::new(Some(&known), s(3), true, &with("b", "delay"));
        assert_eq!(known.neighbour_since(&known.forwarding.neighbours[0]), s(3));
    }
}
