//! How a network namespace sends packets: its policy rules, the routes of all
//! tables, its neighbours and what its bridges have learnt.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Neighbour, Route, is_false};
use crate::clock::Timestamp;

/// The source that fails while the node's tables cannot be read.
pub const FORWARDING: &str = "forwarding";
/// The routing table that the kernel keeps for its own addresses.
pub const LOCAL_TABLE: u32 = 255;
/// The routing table of `ip route` without a table.
pub const MAIN_TABLE: u32 = 254;
/// The table that the kernel's last IPv4 rule asks.
pub const DEFAULT_TABLE: u32 = 253;

/// What decides where a namespace sends packets, as read in one look.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarding {
    /// In the order in which the kernel asks them, each family for itself. There
    /// always are some.
    pub rules: Vec<PolicyRule>,
    /// Routes of every table; one for each next hop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<TableRoute>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<DatedNeighbour>,
    /// Where bridges and VXLAN devices send frames.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<FrameRoute>,
    /// There is more of something than is kept.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cut: bool,
    /// There may be more local routes than these.
    #[serde(default, skip_serializing_if = "is_false")]
    pub local_cut: bool,
}

/// A policy rule (`RTM_NEWRULE`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyRule {
    /// The lower, the earlier it is asked.
    pub priority: u32,
    #[serde(default, skip_serializing_if = "is_false")]
    pub ipv6: bool,
    /// Packets of these are its; all that match what is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<(IpAddr, u8)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<(IpAddr, u8)>,
    /// The device that they came in by; `lo` for the node's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iif: Option<String>,
    /// The device that the sender is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oif: Option<String>,
    /// Mark and mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<(u32, u32)>,
    /// It selects by something else besides: ports, users, a tunnel.
    #[serde(default, skip_serializing_if = "is_false")]
    pub narrower: bool,
    /// It takes all packets but those.
    #[serde(default, skip_serializing_if = "is_false")]
    pub not: bool,
    #[serde(default, skip_serializing_if = "RuleAction::is_lookup")]
    pub action: RuleAction,
    /// The table that it asks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub table: u32,
    /// The priority of the rule to go on with.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub goto: u32,
    /// Routes of prefixes no longer than this do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress: Option<u32>,
    /// The device that it names is gone: it takes no packet.
    #[serde(default, skip_serializing_if = "is_false")]
    pub detached: bool,
    /// Who has entered it (`rtprot`): 2 the kernel.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub protocol: u32,
}

/// What a policy rule does with a packet.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum RuleAction {
    #[default]
    Lookup,
    Goto,
    Nop,
    Blackhole,
    Unreachable,
    Prohibit,
}

/// A route of some table (`RTM_NEWROUTE`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableRoute {
    pub table: u32,
    /// Destination and prefix length; the default route is to all zeros.
    pub to: (IpAddr, u8),
    #[serde(default, skip_serializing_if = "RouteKind::is_unicast")]
    pub kind: RouteKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Index of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// Of two to the same destination the kernel takes the lower.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub metric: u32,
    /// Who has entered it (`rtprot`): 2 the kernel, 3 and 4 a person or a CNI.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub protocol: u32,
    /// The kernel does not use it: the device is down.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dead: bool,
    /// As in [`Route`]. A local one is, if it is of an address that a device has, or
    /// of the loopback network.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_kernel: bool,
}

/// What a route does with a packet.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum RouteKind {
    #[default]
    Unicast,
    /// It is for the namespace itself: one of its addresses, or an anycast address
    /// that one of its programs has joined.
    Local,
    Blackhole,
    Unreachable,
    Prohibit,
    /// Go on with the next rule.
    Throw,
}

/// A neighbour, and when that was last sure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatedNeighbour {
    #[serde(flatten)]
    pub neighbour: Neighbour,
    /// When it last answered, or was entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Timestamp>,
}

/// Where a bridge or a VXLAN device sends frames for a MAC address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FrameRoute {
    pub mac: String,
    /// Index of the port, or of the VXLAN device.
    pub device: u32,
    /// The node behind the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<IpAddr>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Whether a prefix has an address.
pub fn prefix_has((net, length): (IpAddr, u8), address: IpAddr) -> bool {
    let (net, address, bits) = match (net, address) {
        (IpAddr::V4(net), IpAddr::V4(address)) => {
            (u128::from(net.to_bits()), address.to_bits().into(), 32)
        }
        (IpAddr::V6(net), IpAddr::V6(address)) => (net.to_bits(), address.to_bits(), 128),
        _ => return false,
    };
    let rest = u32::from(bits - length.min(bits));
    (net ^ address).checked_shr(rest).unwrap_or(0) == 0
}

/// The one address of a prefix that has no other.
pub fn single((address, length): (IpAddr, u8)) -> Option<IpAddr> {
    let whole = if address.is_ipv4() { 32 } else { 128 };
    (length == whole).then_some(address)
}

impl RuleAction {
    fn is_lookup(&self) -> bool {
        *self == Self::Lookup
    }

    /// The word of ip-rule(8).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Goto => "goto",
            Self::Nop => "nop",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
        }
    }
}

impl RouteKind {
    fn is_unicast(&self) -> bool {
        *self == Self::Unicast
    }

    /// The word of ip-route(8).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unicast => "unicast",
            Self::Local => "local",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
            Self::Throw => "throw",
        }
    }
}

impl PolicyRule {
    /// One of those that every namespace begins with.
    pub fn is_kernels(&self) -> bool {
        let is_one = match self.table {
            LOCAL_TABLE => self.priority == 0,
            MAIN_TABLE => self.priority == 32_766,
            DEFAULT_TABLE => self.priority == 32_767 && !self.ipv6,
            _ => false,
        };
        let Self {
            from: None,
            to: None,
            iif: None,
            oif: None,
            mark: None,
            narrower: false,
            not: false,
            action: RuleAction::Lookup,
            suppress: None,
            ..
        } = self
        else {
            return false;
        };
        is_one
    }

    /// Whether it looks up all packets to an address, whoever sends them.
    pub fn is_for_all_to(&self, address: IpAddr) -> bool {
        let Self {
            from: None,
            iif: None,
            oif: None,
            mark: None,
            narrower: false,
            not: false,
            detached: false,
            action: RuleAction::Lookup,
            ..
        } = self
        else {
            return false;
        };
        self.ipv6 == address.is_ipv6() && self.to.is_none_or(|to| prefix_has(to, address))
    }

    /// What `ip rule` calls it, without its priority: what `ip rule show` prints
    /// behind that, but for names of tables.
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        if self.not {
            words.push(String::from("not"));
        }
        let prefix = |prefix: (IpAddr, u8)| match single(prefix) {
            Some(address) => address.to_string(),
            None => format!("{}/{}", prefix.0, prefix.1),
        };
        words.push(format!(
            "from {}",
            self.from.map_or_else(|| String::from("all"), prefix)
        ));
        words.extend(self.to.map(|to| format!("to {}", prefix(to))));
        words.extend(self.mark.map(|(mark, mask)| match mask {
            u32::MAX => format!("fwmark {mark:#x}"),
            mask => format!("fwmark {mark:#x}/{mask:#x}"),
        }));
        words.extend(self.iif.iter().map(|name| format!("iif {name}")));
        words.extend(self.oif.iter().map(|name| format!("oif {name}")));
        words.push(match self.action {
            RuleAction::Lookup => format!("lookup {}", table_name(self.table)),
            RuleAction::Goto => format!("goto {}", self.goto),
            action => action.as_str().to_owned(),
        });
        words.extend(
            self.suppress
                .map(|length| format!("suppress_prefixlength {length}")),
        );
        words.join(" ")
    }

    /// The line of `ip rule show`.
    pub fn text(&self) -> String {
        let gone = if self.detached { " [detached]" } else { "" };
        format!("{}: {}{gone}", self.priority, self.words())
    }

    /// Whether its selector is this address alone, as sender or as receiver.
    pub fn is_of(&self, address: IpAddr) -> bool {
        !self.not && (self.single_from() == Some(address) || self.single_to() == Some(address))
    }

    pub fn single_from(&self) -> Option<IpAddr> {
        self.from.and_then(single)
    }

    pub fn single_to(&self) -> Option<IpAddr> {
        self.to.and_then(single)
    }
}

/// A table as ip-rule(8) names it.
pub fn table_name(table: u32) -> String {
    match table {
        LOCAL_TABLE => String::from("local"),
        MAIN_TABLE => String::from("main"),
        DEFAULT_TABLE => String::from("default"),
        other => other.to_string(),
    }
}

impl TableRoute {
    /// The route as it is listed with a namespace's devices, if it is one of
    /// those: a default route, or one to a single address.
    pub fn plain(&self) -> Option<Route> {
        let is_default = self.to.1 == 0;
        let is_plain = self.kind.is_unicast() && (is_default || single(self.to).is_some());
        is_plain.then_some(Route {
            to: (!is_default).then_some(self.to),
            gateway: self.gateway,
            device: self.device?,
            by_kernel: self.by_kernel,
        })
    }
}

impl TableRoute {
    /// Whether it makes the namespace take packets to what is no address of its
    /// devices: somebody has entered it (AnyIP), or has given its loopback device an
    /// address.
    pub fn is_any_ip(&self) -> bool {
        self.kind == RouteKind::Local && !self.by_kernel
    }

    /// What `ip route show` prints, without what the kernel adds. `name` tells a
    /// device's name.
    pub fn text(&self, name: impl Fn(u32) -> String) -> String {
        let mut words = Vec::new();
        if !self.kind.is_unicast() {
            words.push(self.kind.as_str().to_owned());
        }
        words.push(match (self.to, single(self.to)) {
            ((_, 0), _) => String::from("default"),
            (_, Some(address)) => address.to_string(),
            ((address, length), None) => format!("{address}/{length}"),
        });
        words.extend(self.gateway.map(|gateway| format!("via {gateway}")));
        words.extend(self.device.map(|index| format!("dev {}", name(index))));
        if self.metric != 0 {
            words.push(format!("metric {}", self.metric));
        }
        words.join(" ")
    }
}

impl Forwarding {
    /// Whether nobody has entered a rule, or a route outside the kernel's tables:
    /// so it is in most pods.
    pub fn is_ordinary(&self) -> bool {
        let own = |route: &TableRoute| {
            matches!(route.table, MAIN_TABLE | LOCAL_TABLE) && !route.is_any_ip()
        };
        self.rules.iter().all(PolicyRule::is_kernels)
            && self.routes.iter().all(own)
            && !self.local_cut
    }

    /// Whether packets to an address are taken by a local route, though no device
    /// has the address.
    pub fn takes(&self, address: IpAddr) -> bool {
        // ARP has no mark: what marked packets alone are looked up in, as those of a
        // transparent proxy (Istio, Cilium), answers for no address.
        let asks = |rule: &PolicyRule, table| {
            let is_marked = rule.mark.is_some_and(|(mark, mask)| mark & mask != 0);
            rule.table == table && (rule.not || !is_marked)
        };
        let is_asked = |table| self.cut || self.rules.iter().any(|rule| asks(rule, table));
        let mut local = self.routes.iter().filter(|route| route.is_any_ip());
        local.any(|route| prefix_has(route.to, address) && is_asked(route.table))
    }

    /// Whether this decides as another does: when neighbours answered does not
    /// matter.
    pub fn is_like(&self, other: &Self) -> bool {
        let neighbours = |of: &Self| -> Vec<Neighbour> {
            let all = of.neighbours.iter();
            all.map(|dated| dated.neighbour.clone()).collect()
        };
        (&self.rules, &self.routes, &self.frames) == (&other.rules, &other.routes, &other.frames)
            && (self.cut, self.local_cut) == (other.cut, other.local_cut)
            && neighbours(self) == neighbours(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_has_what_begins_with_it() {
        for (net, length, address, has) in [
            ("10.0.0.0", 8, "10.9.9.9", true),
            ("10.0.0.0", 8, "11.0.0.0", false),
            ("0.0.0.0", 0, "11.0.0.0", true),
            ("10.0.0.1", 32, "10.0.0.1", true),
            ("10.0.0.1", 32, "10.0.0.3", false),
            ("::", 0, "2001:db8::1", true),
            ("::", 0, "10.0.0.1", false),
            ("2001:db8::", 32, "2001:db8:1::", true),
            ("2001:db8::", 32, "2001:db9::", false),
        ] {
            assert_eq!(
                prefix_has((ip(net), length), ip(address)),
                has,
                "{net} {address}"
            );
        }
    }

    #[test]
    fn a_local_route_takes_what_no_mark_keeps_from_it() {
        use crate::testing::{kernels_rules, table_route};
        let local = |table, to| TableRoute {
            kind: RouteKind::Local,
            ..table_route(table, to, 2)
        };
        let taken = |route: TableRoute, rule: Option<PolicyRule>, cut| {
            let of = Forwarding {
                rules: kernels_rules().into_iter().chain(rule).collect(),
                routes: vec![route],
                cut,
                ..Forwarding::default()
            };
            assert!(!of.is_ordinary() || !of.takes(ip("10.0.0.5")));
            of.takes(ip("10.0.0.5"))
        };
        assert!(taken(local(LOCAL_TABLE, "10.0.0.5"), None, false));
        assert!(taken(local(MAIN_TABLE, "10.0.0.0/24"), None, false));
        assert!(!taken(local(LOCAL_TABLE, "10.0.0.6"), None, false));
        let of_address = TableRoute {
            by_kernel: true,
            ..local(LOCAL_TABLE, "10.0.0.5")
        };
        assert!(!taken(of_address, None, false), "an address shows itself");
        let unicast = table_route(MAIN_TABLE, "10.0.0.5", 2);
        assert!(!taken(unicast, None, false));
        let rule = PolicyRule {
            table: 100,
            ..PolicyRule::default()
        };
        let proxys = PolicyRule {
            mark: Some((1, u32::MAX)),
            ..rule.clone()
        };
        let any = || local(100, "0.0.0.0/0");
        assert!(!taken(any(), None, false), "nothing asks the table");
        assert!(taken(any(), Some(rule), false));
        assert!(!taken(any(), Some(proxys.clone()), false));
        let others = PolicyRule {
            not: true,
            ..proxys.clone()
        };
        assert!(taken(any(), Some(others), false));
        assert!(taken(any(), Some(proxys), true), "there may be more rules");
    }

    #[test]
    fn a_rule_is_named_as_ip_rule_names_it() {
        let rule = PolicyRule {
            priority: 1536,
            from: Some((ip("10.0.0.5"), 32)),
            to: Some((ip("10.0.0.0"), 8)),
            mark: Some((0x80, 0x80)),
            iif: Some(String::from("eth1")),
            table: 2,
            ..PolicyRule::default()
        };
        assert_eq!(
            rule.words(),
            "from 10.0.0.5 to 10.0.0.0/8 fwmark 0x80/0x80 iif eth1 lookup 2"
        );
        assert!(rule.is_of(ip("10.0.0.5")) && !rule.is_of(ip("10.0.0.0")));
    }

    #[test]
    fn the_kernels_own_rules_are_nobodys() {
        let kernels = |priority, table| PolicyRule {
            priority,
            table,
            ..PolicyRule::default()
        };
        assert!(kernels(0, LOCAL_TABLE).is_kernels());
        assert!(!kernels(100, LOCAL_TABLE).is_kernels(), "Cilium moves it");
        let mut rule = kernels(32_766, MAIN_TABLE);
        assert!(rule.is_kernels());
        rule.suppress = Some(0);
        assert!(!rule.is_kernels());
    }
}
