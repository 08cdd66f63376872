//! The command that removes one entry and no other.
//!
//! The kernel removes the first entry that has all that the command names; what it
//! does not name is not compared. So everything is named, and where another entry
//! comes first all the same, there is no command.

use crate::detect::Command;
use event::{
    Neighbour,
    forwarding::{Forwarding, PolicyRule, RouteKind, RuleAction, TableRoute, single},
};

pub(super) struct Remover<'a> {
    pub(super) forwarding: &'a Forwarding,
}

impl Remover<'_> {
    pub(super) fn rule(&self, rule: &PolicyRule) -> Option<Command> {
        let mut rules = self.forwarding.rules.iter();
        let first = rules.find(|other| is_meant(rule, other))?;
        // Of two that are the same it does not matter which one goes.
        if first != rule || rule.narrower || rule.not || rule.action != RuleAction::Lookup {
            return None;
        }
        let mut command = Command::new(match rule.ipv6 {
            true => "ip -6 rule del pref",
            false => "ip rule del pref",
        });
        command = command.word(rule.priority.to_string());
        let prefix = |(address, length): (std::net::IpAddr, u8)| match single((address, length)) {
            Some(address) => address.to_string(),
            None => format!("{address}/{length}"),
        };
        if let Some(from) = rule.from {
            command = command.own("from").word(prefix(from));
        }
        if let Some(to) = rule.to {
            command = command.own("to").word(prefix(to));
        }
        if let Some((mark, mask)) = rule.mark {
            command = command.own("fwmark").word(format!("{mark:#x}/{mask:#x}"));
        }
        if let Some(iif) = &rule.iif {
            command = command.own("iif").word(iif);
        }
        if let Some(oif) = &rule.oif {
            command = command.own("oif").word(oif);
        }
        command = command.own("lookup").word(rule.table.to_string());
        if let Some(length) = rule.suppress {
            command = command
                .own("suppress_prefixlength")
                .word(length.to_string());
        }
        Some(command)
    }

    pub(super) fn route(&self, route: &TableRoute, device: &str) -> Option<Command> {
        let alike = self.forwarding.routes.iter().filter(|other| {
            (other.table, other.to, other.metric) == (route.table, route.to, route.metric)
        });
        // One with several next hops is one route.
        let is_only = alike.count() == 1;
        if !is_only || route.kind != RouteKind::Unicast {
            return None;
        }
        let mut command = Command::new(match route.to.0.is_ipv6() {
            true => "ip -6 route del",
            false => "ip route del",
        });
        command = command.word(format!("{}/{}", route.to.0, route.to.1));
        if let Some(gateway) = route.gateway {
            command = command.own("via").word(gateway.to_string());
        }
        command = command.own("dev").word(device);
        command = command.own("table").word(route.table.to_string());
        if route.metric != 0 {
            command = command.own("metric").word(route.metric.to_string());
        }
        Some(command)
    }

    /// Only while it still has the same MAC address.
    pub(super) fn neighbour(&self, neighbour: &Neighbour, device: &str) -> Option<Command> {
        let address = neighbour.address.to_string();
        let show = Command::new("ip neigh show")
            .word(&address)
            .own("dev")
            .word(device);
        let check = show.own("| grep -qwF").word(neighbour.mac.as_ref()?);
        let remove = Command::new("ip neigh del")
            .word(&address)
            .own("dev")
            .word(device);
        Some(check.and(&remove))
    }
}

/// Whether the kernel takes a rule for the one that is named whole (`rule_find`).
fn is_meant(named: &PolicyRule, other: &PolicyRule) -> bool {
    let same = |named: bool, equal: bool| !named || equal;
    named.ipv6 == other.ipv6
        && named.action == other.action
        && same(named.table != 0, named.table == other.table)
        && same(named.priority != 0, named.priority == other.priority)
        && same(named.iif.is_some(), named.iif == other.iif)
        && same(named.oif.is_some(), named.oif == other.oif)
        && same(named.mark.is_some(), named.mark == other.mark)
        && same(named.suppress.is_some(), named.suppress == other.suppress)
        && same(named.from.is_some(), named.from == other.from)
        && same(named.to.is_some(), named.to == other.to)
}
