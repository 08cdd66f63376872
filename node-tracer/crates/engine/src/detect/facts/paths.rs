//! Where a namespace sends a packet: as the kernel decides it, by policy rules in
//! their order, then by the longest prefix in the table that a rule names.
//!
//! What the tables cannot tell is left out: packets are unmarked, of no particular
//! protocol, and no program (eBPF, netfilter) diverts them.

use std::{collections::HashMap, net::IpAddr, ptr};

use super::{ghosts, veth_pairs::VethEnd};
use crate::{
    detect::View,
    model::netns::{KnownForwarding, NetnsEntry, Wiring},
};
use event::order::Order as _;
use event::{
    Device,
    clock::Timestamp,
    forwarding::{
        DatedNeighbour, Forwarding, FrameRoute, PolicyRule, RouteKind, RuleAction, TableRoute,
        prefix_has,
    },
};

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The sender, if it is bound to an address.
    pub from: Option<IpAddr>,
    pub to: IpAddr,
    /// The device that it came in by; `None` for what the namespace sends itself.
    pub iif: Option<&'a str>,
}

/// An entry of a table.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    Rule(&'a PolicyRule),
    Route(&'a TableRoute),
}

impl Entry<'_> {
    fn is_rule(&self, rule: &PolicyRule) -> bool {
        matches!(self, Self::Rule(it) if ptr::eq(*it, rule))
    }

    fn is_route(&self, route: &TableRoute) -> bool {
        matches!(self, Self::Route(it) if ptr::eq(*it, route))
    }
}

/// What decides about a packet.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    pub rule: &'a PolicyRule,
    /// The route in the rule's table; `None` if the rule itself refuses.
    pub route: Option<&'a TableRoute>,
    /// So many routes share the traffic.
    pub shared: usize,
}

impl Decision<'_> {
    /// Where a packet leaves, for comparison.
    pub fn way(&self) -> Option<(Option<u32>, Option<IpAddr>, RouteKind)> {
        let route = self.route?;
        Some((route.device, route.gateway, route.kind))
    }
}

/// The tables of one namespace, for many questions.
#[derive(Debug)]
pub struct Tables<'a> {
    rules: Vec<&'a PolicyRule>,
    routes: HashMap<u32, Vec<&'a TableRoute>>,
}

impl<'a> Tables<'a> {
    pub fn new(forwarding: &'a Forwarding) -> Self {
        let mut rules: Vec<_> = forwarding.rules.iter().collect();
        // Those of one priority stay as the kernel asks them: the older first.
        rules.order_by_key(|rule| rule.priority);
        let mut routes: HashMap<_, Vec<_>> = HashMap::new();
        for route in &forwarding.routes {
            routes.entry(route.table).or_default().push(route);
        }
        Self { rules, routes }
    }

    /// Rules in the order in which they are asked.
    pub fn rules(&self) -> impl Iterator<Item = &'a PolicyRule> {
        self.rules.iter().copied()
    }

    /// What decides about a packet, if an entry were not there; `None` if nothing
    /// does: there is no route.
    pub fn decide(&self, packet: Packet<'_>, without: Option<Entry<'_>>) -> Option<Decision<'a>> {
        let is_out = |rule: &PolicyRule| without.is_some_and(|it| it.is_rule(rule));
        let mut go_on_at = 0;
        for rule in self.rules() {
            if rule.priority < go_on_at || is_out(rule) || !takes(rule, packet) {
                continue;
            }
            match rule.action {
                RuleAction::Nop => {}
                RuleAction::Goto => go_on_at = rule.goto,
                RuleAction::Lookup => {
                    let found = self.lookup(rule.table, packet.to, without);
                    let found = found.filter(|(route, _)| {
                        let suppressed =
                            rule.suppress.is_some_and(|it| u32::from(route.to.1) <= it);
                        route.kind != RouteKind::Throw && !suppressed
                    });
                    if let Some((route, shared)) = found {
                        return Some(Decision {
                            rule,
                            route: Some(route),
                            shared,
                        });
                    }
                }
                RuleAction::Blackhole | RuleAction::Unreachable | RuleAction::Prohibit => {
                    return Some(Decision {
                        rule,
                        route: None,
                        shared: 1,
                    });
                }
            }
        }
        None
    }

    /// The route that a table has for an address, and how many share its traffic.
    fn lookup(
        &self,
        table: u32,
        to: IpAddr,
        without: Option<Entry<'_>>,
    ) -> Option<(&'a TableRoute, usize)> {
        let all = self.routes.get(&table)?.iter().copied();
        let all = all.filter(|route| {
            !route.dead && prefix_has(route.to, to) && !without.is_some_and(|it| it.is_route(route))
        });
        let rank = |route: &TableRoute| (u8::MAX - route.to.1, route.metric);
        let mut best: Option<(&TableRoute, usize)> = None;
        for route in all {
            match &mut best {
                Some((known, shared)) if rank(known) == rank(route) => *shared += 1,
                Some((known, _)) if rank(known) < rank(route) => {}
                _ => best = Some((route, 1)),
            }
        }
        best
    }
}

/// Whether a rule is asked about a packet.
fn takes(rule: &PolicyRule, packet: Packet<'_>) -> bool {
    if rule.ipv6 != packet.to.is_ipv6() {
        return false;
    }
    let nobody = match packet.to {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    };
    let from = packet.from.unwrap_or(nobody);
    let iif = packet.iif.unwrap_or("lo");
    let is_its = !rule.detached
        && !rule.narrower
        && rule.oif.is_none()
        && rule.iif.as_ref().is_none_or(|name| name == iif)
        && rule.mark.is_none_or(|(mark, mask)| mark & mask == 0)
        && rule.from.is_none_or(|prefix| prefix_has(prefix, from))
        && rule.to.is_none_or(|prefix| prefix_has(prefix, packet.to));
    is_its != rule.not
}

/// The node's tables, and its devices.
#[derive(Clone, Copy, Debug)]
pub struct NodeTables<'a> {
    pub entry: &'a NetnsEntry,
    pub wiring: &'a Wiring,
    pub forwarding: &'a Forwarding,
    /// The same, with since when each entry is known.
    pub known: &'a KnownForwarding,
    /// When that was read.
    pub at: Timestamp,
}

impl<'a> NodeTables<'a> {
    /// Those of the node, if they were read.
    pub fn of(view: &View<'a>) -> Option<Self> {
        let entry = view.model.netns.node()?;
        let known = entry.forwarding.as_ref()?;
        Some(Self {
            entry,
            wiring: entry.wiring.as_ref()?,
            forwarding: &known.forwarding,
            known,
            at: known.at,
        })
    }

    fn neighbour(&self, device: u32, address: IpAddr) -> Option<&'a DatedNeighbour> {
        let mut all = self.forwarding.neighbours.iter();
        all.find(|it| it.neighbour.device == device && it.neighbour.address == address)
    }

    /// Where a bridge or a tunnel sends frames for a MAC address: to one port, or to
    /// one in each VLAN.
    fn frames(self, device: u32, mac: &str) -> impl Iterator<Item = &'a FrameRoute> {
        let is_behind = move |frame: &FrameRoute| {
            let port = self.wiring.device(frame.device);
            let is_port = port.is_some_and(|port| port.master == Some(device));
            frame.device == device || is_port
        };
        let all = self.forwarding.frames.iter();
        all.filter(move |frame| frame.mac == mac && is_behind(frame))
    }

    /// The namespace behind the only port that a bridge sends frames for a MAC address
    /// to.
    pub fn behind_port(self, view: &View<'a>, bridge: u32, mac: &str) -> Option<&'a NetnsEntry> {
        let mut frames = self.frames(bridge, mac);
        let port = self.wiring.device(frames.next()?.device)?;
        let end = view.veth_pairs().other_end(self.entry, port);
        end.map(|end| end.entry).filter(|_| frames.next().is_none())
    }
}

/// The way of a packet to an address, as far as this node decides it.
#[derive(Debug)]
pub struct Path<'a> {
    pub tables: NodeTables<'a>,
    /// `None`: there is no route.
    pub decision: Option<Decision<'a>>,
    pub device: Option<&'a Device>,
    pub neighbour: Option<&'a DatedNeighbour>,
    /// The port of a bridge, or the node behind a tunnel, that its frame goes to.
    pub frame: Option<&'a FrameRoute>,
    pub port: Option<&'a Device>,
    /// The namespace that it comes to, if that is on this node and another.
    pub end: Option<VethEnd<'a>>,
}

/// The way of what the node sends to an address; `None` if that was not read.
pub fn to<'a>(view: &View<'a>, tables: &Tables<'a>, address: IpAddr) -> Option<Path<'a>> {
    let node = NodeTables::of(view)?;
    let packet = Packet {
        from: None,
        to: address,
        iif: None,
    };
    let decision = tables.decide(packet, None);
    Some(follow(view, node, decision, address))
}

/// From a decision to who gets the packet.
pub fn follow<'a>(
    view: &View<'a>,
    node: NodeTables<'a>,
    decision: Option<Decision<'a>>,
    address: IpAddr,
) -> Path<'a> {
    let mut path = Path {
        tables: node,
        decision,
        device: None,
        neighbour: None,
        frame: None,
        port: None,
        end: None,
    };
    let route = decision.and_then(|decision| decision.route);
    let Some(route) = route.filter(|route| route.kind == RouteKind::Unicast) else {
        return path;
    };
    let Some(index) = route.device else {
        return path;
    };
    path.device = node.wiring.device(index);
    path.neighbour = node.neighbour(index, route.gateway.unwrap_or(address));
    let mac = path.neighbour.and_then(|it| it.neighbour.mac.as_deref());
    let Some(device) = path.device else {
        return path;
    };
    if let Some(mac) = mac {
        path.frame = node.frames(index, mac).next();
        let port = path.frame.filter(|frame| frame.device != index);
        path.port = port.and_then(|frame| node.wiring.device(frame.device));
    }
    let end = path.port.unwrap_or(device);
    path.end = view.veth_pairs().other_end(node.entry, end);
    path
}

/// Living namespaces that may have an address: not those of pods that are gone.
pub fn rightful<'a>(view: &View<'a>, address: IpAddr) -> Vec<&'a NetnsEntry> {
    let with = view.model.netns.with_address(address);
    let with = with.filter(|entry| entry.dying.is_none() && !view.is_bystander(entry));
    with.filter(|entry| !is_over(view, entry)).collect()
}

/// Whether a namespace's pod is gone.
pub fn is_over<'a>(view: &View<'a>, entry: &'a NetnsEntry) -> bool {
    ghosts::gone(view, entry).is_some() || ghosts::verdict(view, entry).is_some()
}

/// The end on the node of what a namespace is plugged in by, with the address:
/// a veth, or what an ipvlan or macvlan device is stacked on.
pub fn plugs<'a>(
    view: &View<'a>,
    node: NodeTables<'a>,
    entry: &'a NetnsEntry,
    address: IpAddr,
) -> Vec<&'a Device> {
    let held = view.model.netns.held_at(entry, address);
    let names: Vec<&str> = held.map(|held| held.address.ifname.as_str()).collect();
    let devices = entry.wiring.iter().flat_map(|wiring| &wiring.devices);
    let its = devices.filter(|device| names.contains(&device.name.as_str()));
    its.filter_map(|device| {
        if device.is_pair_end() {
            let end = view.veth_pairs().other_end(entry, device)?;
            return (end.entry.serial == node.entry.serial).then_some(end.device);
        }
        // What CNI stacks it stacks on the node's.
        let parent = device.link.filter(|_| device.link_nsid.is_some())?;
        node.wiring.device(parent)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::{
        forwarding::{LOCAL_TABLE, MAIN_TABLE},
        testing::*,
    };

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn rule(priority: u32, table: u32) -> PolicyRule {
        PolicyRule {
            priority,
            table,
            ..PolicyRule::default()
        }
    }

    /// The tables of a node of AWS's kind: two ENIs (2 and 3), a pod behind 8.
    fn node() -> Forwarding {
        let of_pod = PolicyRule {
            to: Some((ip(5), 32)),
            ..rule(512, MAIN_TABLE)
        };
        let from_pod = PolicyRule {
            from: Some((ip(5), 32)),
            ..rule(1_536, 2)
        };
        let mut rules = kernels_rules();
        rules.splice(1..1, [of_pod, from_pod]);
        let default = |table, device| TableRoute {
            gateway: Some(address("10.0.0.1")),
            ..table_route(table, "0.0.0.0/0", device)
        };
        Forwarding {
            rules,
            routes: vec![
                TableRoute {
                    kind: RouteKind::Local,
                    ..table_route(LOCAL_TABLE, "10.0.0.9", 2)
                },
                default(MAIN_TABLE, 2),
                table_route(MAIN_TABLE, "10.0.0.0/24", 2),
                table_route(MAIN_TABLE, "10.0.0.5", 8),
                default(2, 3),
            ],
            ..Forwarding::default()
        }
    }

    fn device(forwarding: &Forwarding, from: Option<IpAddr>, to: &str, iif: Option<&str>) -> u32 {
        let packet = Packet {
            from,
            to: address(to),
            iif,
        };
        let decision = Tables::new(forwarding).decide(packet, None);
        let route = decision.and_then(|decision| decision.route);
        route.and_then(|route| route.device).unwrap_or(0)
    }

    #[test]
    fn the_first_rule_whose_table_has_a_route_decides() {
        let node = node();
        assert_eq!(device(&node, None, "10.0.0.5", None), 8);
        assert_eq!(
            device(&node, None, "10.0.0.6", None),
            2,
            "the longest prefix"
        );
        assert_eq!(device(&node, None, "10.9.9.9", None), 2);
        assert_eq!(device(&node, Some(ip(5)), "10.9.9.9", Some("eni8")), 3);
        assert_eq!(device(&node, Some(ip(6)), "10.9.9.9", Some("eni9")), 2);
        assert_eq!(device(&node, None, "2001:db8::1", None), 0, "no route");
    }

    #[test]
    fn what_a_rule_does_not_take_goes_on_to_the_next() {
        type Change = fn(&mut PolicyRule);
        let taken: [(&str, Change, u32); 9] = [
            ("nothing changed", |_| {}, 3),
            ("another device", |it| it.iif = Some("eth9".into()), 2),
            ("its device", |it| it.iif = Some("eni8".into()), 3),
            ("a device that is gone", |it| it.detached = true, 2),
            ("a mark", |it| it.mark = Some((0x80, 0x80)), 2),
            ("no mark", |it| it.mark = Some((0, 0x80)), 3),
            ("a port", |it| it.narrower = true, 2),
            ("all but it", |it| it.not = true, 2),
            ("no default route", |it| it.suppress = Some(0), 2),
        ];
        for (what, change, expected) in taken {
            let mut node = node();
            change(&mut node.rules[2]);
            let found = device(&node, Some(ip(5)), "10.9.9.9", Some("eni8"));
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn throw_goes_on_and_blackhole_ends() {
        let with = |kind| {
            let mut node = node();
            node.routes.push(TableRoute {
                kind,
                device: None,
                ..table_route(2, "10.9.0.0/16", 0)
            });
            device(&node, Some(ip(5)), "10.9.9.9", None)
        };
        assert_eq!(with(RouteKind::Throw), 2);
        assert_eq!(with(RouteKind::Blackhole), 0);
    }

    #[test]
    fn goto_passes_over_what_is_between() {
        let mut node = node();
        let jump = PolicyRule {
            action: RuleAction::Goto,
            goto: 32_766,
            ..rule(100, 0)
        };
        node.rules.insert(1, jump);
        assert_eq!(device(&node, Some(ip(5)), "10.9.9.9", None), 2);
    }

    #[test]
    fn of_equal_routes_the_lower_metric_is_taken_and_dead_ones_never() {
        let mut node = node();
        let other = |metric, dead| TableRoute {
            metric,
            dead,
            ..table_route(MAIN_TABLE, "10.0.0.5", 9)
        };
        node.routes.insert(0, other(100, false));
        assert_eq!(device(&node, None, "10.0.0.5", None), 8);
        node.routes[0].metric = 0;
        node.routes[4].metric = 100;
        assert_eq!(device(&node, None, "10.0.0.5", None), 9);
        node.routes[0].dead = true;
        assert_eq!(device(&node, None, "10.0.0.5", None), 8);
    }

    #[test]
    fn of_two_rules_of_one_priority_the_older_decides() {
        let mut node = node();
        let older = PolicyRule {
            table: MAIN_TABLE,
            ..node.rules[2].clone()
        };
        node.rules.insert(2, older);
        assert_eq!(device(&node, Some(ip(5)), "10.9.9.9", None), 2);
        let tables = Tables::new(&node);
        let packet = Packet {
            from: Some(ip(5)),
            to: address("10.9.9.9"),
            iif: None,
        };
        let without = tables.decide(packet, Some(Entry::Rule(&node.rules[2])));
        assert_eq!(without.unwrap().way().unwrap().0, Some(3));
    }
}
