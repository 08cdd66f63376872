//! A gateway that cannot be reached, in words.

use std::{iter, net::IpAddr};

use crate::detect::{
    Command, View, evidence,
    facts::{common::label, own, veth_pairs::VethEnd},
    fitting, inside, kubectl_words,
    missing_gateway_neighbour::{Missing, Sign},
    netns_of, pod_of,
};
use event::{
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
    wording::{advice::commented, plural::counted, subjects::pod_word},
};

impl Missing<'_> {
    pub(super) fn finding(&self, view: &View<'_>) -> Finding {
        let entry = self.entry;
        let subject = format!("{} {} {}", entry.id.inode, self.device.name, self.gateway);
        let pod = pod_of(view.model, entry);
        let whose = pod.as_ref().map(pod_word);
        let whose = whose.unwrap_or_else(|| format!("netns {}", entry.id.inode));
        Finding {
            rule: Rule::MissingGatewayNeighbour,
            severity: self.severity,
            id: finding_id(
                &view.settings.boot_id,
                Rule::MissingGatewayNeighbour,
                &subject,
            ),
            since: self.wiring.at,
            title: fitting(self.title(&whose), || self.title("a pod")),
            pod,
            sandbox_id: entry.sandbox.id.clone(),
            netns: Some(netns_of(entry)),
            addresses: own::addresses(view, entry),
            holders: Vec::new(),
            evidence: self.evidence(view),
            unknown: self.unknown(),
            advice: self.advice(view),
            detail: Detail {
                first_seen: true,
                ..Detail::default()
            },
        }
    }

    fn title(&self, whose: &str) -> String {
        let gateway = self.gateway;
        match self.neighbour {
            None => format!("{whose} has no neighbour entry for its gateway {gateway}"),
            Some(_) => format!("{whose} gets no answer from its gateway {gateway}"),
        }
    }

    fn evidence(&self, view: &View<'_>) -> Vec<Evidence> {
        const KERNEL: &str = "kernel";
        let at = self.wiring.at;
        let (gateway, name) = (self.gateway, &self.device.name);
        let mut claims = Vec::new();
        let claim = format!("its default route goes to {gateway} on {name}");
        claims.push(evidence(claim, KERNEL, at));
        let claim = match self.neighbour {
            None => format!("there is no neighbour entry for {gateway} on {name}"),
            Some(neighbour) => format!(
                "the neighbour entry for {gateway} on {name} is {}: no answer",
                neighbour.state
            ),
        };
        claims.push(evidence(claim, KERNEL, at));
        match self.sign {
            Some(Sign::Plugin(plugin)) => {
                let claim =
                    format!("the pod's CNI, {plugin}, writes a permanent entry for the gateway");
                claims.push(evidence(claim, "cni", at));
            }
            Some(Sign::Others(number)) => {
                let pods = counted(number, "other namespace");
                let claim = format!("{pods} on the node: the entry for {gateway} is permanent");
                claims.push(evidence(claim, KERNEL, at));
            }
            None => {}
        }
        if let Some(other) = view.veth_pairs().other_end(self.entry, self.device) {
            let end = other.device;
            let state = if end.up { "up" } else { "down" };
            let mac = end.mac.as_deref().unwrap_or("unknown");
            let claim = format!(
                "the other end of {name} is {} in {}: {state}, MAC {mac}",
                end.name,
                label(view.model, other.entry),
            );
            claims.push(evidence(claim, KERNEL, at));
        }
        claims
    }

    fn unknown(&self) -> Vec<String> {
        let mut unknown = vec![String::from("when the entry went, and what removed it")];
        if self.sign.is_none() && self.severity < Severity::Critical {
            unknown.push(String::from(
                "whether the kernel had only just asked for it: scan again",
            ));
        }
        unknown
    }

    fn advice(&self, view: &View<'_>) -> Vec<String> {
        let mut advice = Vec::new();
        let end = view.veth_pairs().other_end(self.entry, self.device);
        let mac = end
            .and_then(|end| end.device.mac.as_deref())
            .filter(|mac| is_mac(mac));
        if let Some(mac) = mac {
            let write = Command::new("ip neigh replace").word(self.gateway.to_string());
            let write = write.own("lladdr").word(mac).own("dev");
            let write = write.word(&self.device.name).own("nud permanent");
            let write = inside(self.entry, &write);
            advice.extend(
                write.map(|write| commented(write, "writes the entry, the pod keeps running")),
            );
        }
        if let (None, Some(end)) = (self.sign, end) {
            advice.extend(self.why_silent(&end));
        }
        advice.push(String::from(
            "find out what took it: a late CNI DEL of an older sandbox of the same pod can take the \
             entry and the route",
        ));
        advice.push(commented(
            "journalctl -u kubelet -u containerd -u crio | grep -i del",
            "late DELs",
        ));
        let pod = pod_of(view.model, self.entry);
        if let Some(words) = pod.as_ref().and_then(kubectl_words) {
            advice.push(commented(
                format!("kubectl delete pod {words}"),
                "recreates its network, a pod without an owner is lost",
            ));
        }
        advice
    }
}

impl Missing<'_> {
    /// What shows why the other end does not answer for the gateway. For IPv4 it
    /// answers for all addresses; of IPv6 it has the gateway's itself.
    fn why_silent(&self, end: &VethEnd<'_>) -> Vec<String> {
        let name = &end.device.name;
        let (answer, must, routes) = match self.gateway {
            IpAddr::V4(_) => {
                let proxy = format!("/proc/sys/net/ipv4/conf/{name}/proxy_arp");
                let proxy = Command::new("cat").word(proxy);
                (proxy, "must be 1", "ip route show dev")
            }
            IpAddr::V6(_) => {
                let held = Command::new("ip -6 addr show dev").word(name);
                (
                    held,
                    "must have the IP of the gateway",
                    "ip -6 route show dev",
                )
            }
        };
        let commands = [
            (Command::new("ip link show").word(name), "must be UP"),
            (answer, must),
            (
                Command::new(routes).word(name),
                "must have the IP of the pod",
            ),
        ];
        let steps = commands
            .iter()
            .filter_map(|(command, comment)| Some(commented(inside(end.entry, command)?, comment)));
        let first = String::from("see why the host-side veth does not answer:");
        iter::once(first).chain(steps).collect()
    }
}

fn is_mac(text: &str) -> bool {
    let parts = text.split(':').filter(|part| part.len() == 2);
    parts.count() == 6 && text.bytes().all(|c| c == b':' || c.is_ascii_hexdigit())
}
