//! A gateway that cannot be reached, in words.

use crate::detect::{
    Command, View, evidence,
    facts::{common::label, own},
    kubectl_words,
    missing_gateway_neighbour::{Missing, Sign},
    netns_of, pod_of, shell_word, way_in,
};
use event::{
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
    wording::plural::counted,
};

impl Missing<'_> {
    pub(super) fn finding(&self, view: &View<'_>) -> Finding {
        let entry = self.entry;
        let subject = format!("{} {} {}", entry.id.inode, self.device.name, self.gateway);
        let whose = label(view.model, entry);
        Finding {
            rule: Rule::MissingGatewayNeighbour,
            severity: self.severity,
            id: finding_id(
                &view.settings.boot_id,
                Rule::MissingGatewayNeighbour,
                &subject,
            ),
            since: self.wiring.at,
            title: format!(
                "{whose} cannot reach its gateway {}: the neighbour entry {}",
                self.gateway,
                self.state(),
            ),
            pod: pod_of(view.model, entry),
            sandbox_id: entry.sandbox.id.clone(),
            netns: Some(netns_of(entry)),
            addresses: own::addresses(view, entry),
            holders: Vec::new(),
            evidence: self.evidence(view),
            unknown: self.unknown(),
            advice: self.advice(view),
            detail: Detail::default(),
        }
    }

    fn state(&self) -> &'static str {
        match self.neighbour.map(|neighbour| neighbour.state.as_str()) {
            None => "is missing",
            Some("incomplete") => "is incomplete",
            Some(_) => "has failed",
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
                "the neighbour entry for {gateway} on {name} is {}: nobody has answered",
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
        if let Some(other) = view.cables().other_end(self.entry, self.device) {
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
        let mut unknown = vec![String::from(
            "since when, and what removed the entry: a look tells only that it is so",
        )];
        if self.sign.is_none() && self.severity < Severity::Critical {
            unknown.push(String::from(
                "whether it had only just been asked for: look again; it is so if the finding is \
                 gone",
            ));
        }
        unknown
    }

    fn advice(&self, view: &View<'_>) -> Vec<String> {
        let mut advice = Vec::new();
        let pod = pod_of(view.model, self.entry);
        if let Some(words) = pod.as_ref().and_then(kubectl_words) {
            advice.push(format!(
                "a new pod has its network set up anew (one without an owner is lost): kubectl \
                 delete pod {words}"
            ));
        }
        let end = view.cables().other_end(self.entry, self.device);
        let end = end.map(|end| end.device);
        if let (None, Some(end)) = (self.sign, end) {
            let proxy = format!("/proc/sys/net/ipv4/conf/{}/proxy_arp", end.name);
            advice.push(format!(
                "see why the host's end does not answer: {} (it must be UP), {} (1), {} (the pod's \
                 address)",
                Command::new("ip link show").word(&end.name),
                Command::new("cat").word(proxy),
                Command::new("ip route show dev").word(&end.name),
            ));
        }
        let mac = end
            .and_then(|end| end.mac.as_deref())
            .filter(|mac| is_mac(mac));
        if let (Some(way), Some(mac)) = (way_in(self.entry), mac) {
            advice.push(format!(
                "if the pod must stay, write the entry: nsenter {way} ip neigh replace {} lladdr \
                 {mac} dev {} nud permanent",
                self.gateway,
                shell_word(self.device.name.as_ref()),
            ));
        }
        advice.push(String::from(
            "look for a late CNI DEL of an older sandbox of the same pod, which can have taken \
             the entry and the route with it: journalctl -u kubelet -u containerd -u crio",
        ));
        advice
    }
}

fn is_mac(text: &str) -> bool {
    let parts = text.split(':').filter(|part| part.len() == 2);
    parts.count() == 6 && text.bytes().all(|c| c == b':' || c.is_ascii_hexdigit())
}
