//! What is said of an address without a reservation, and what to do.

use super::{DEFAULT, Successor, Unreserved};
use crate::detect::{
    Command, View, cordon, evidence,
    facts::{command::is_plain, common::label, ipam},
    holders_of, joined, kubectl_words, netns_of, pod_of, shell_word, short_id, uncordon, unfound,
    unread,
};
use event::{
    StoreKind,
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
    wording::{advice::commented, subjects::pod_word},
};

impl Unreserved<'_> {
    pub(super) fn finding(&self, view: &View<'_>) -> Finding {
        let Self { entry, address, .. } = *self;
        let since = self.since;
        let pod = pod_of(view.model, entry);
        let whose = pod.as_ref().map(pod_word).unwrap_or_default();
        let place = self
            .successor
            .map(|it| format!(" in network {}", it.network.name));
        let place = place.unwrap_or_default();
        let title = match self.holder {
            None => format!("{address} of running {whose} is not reserved{place}"),
            Some(_) => {
                format!("{address} of running {whose} is reserved for somebody else{place}")
            }
        };
        let is_critical = self.holder.is_none() && self.can_give;
        let is_unsure = self.successor.is_some_and(|it| !it.is_same_link);
        Finding {
            rule: Rule::UnreservedAddress,
            severity: match is_critical {
                _ if is_unsure => Severity::Info,
                true => Severity::Critical,
                false => Severity::Warning,
            },
            id: finding_id(
                &view.settings.boot_id,
                Rule::UnreservedAddress,
                &format!("{address} {}", entry.id.inode),
            ),
            since,
            title,
            pod,
            sandbox_id: entry.sandbox.id.clone(),
            netns: Some(netns_of(entry)),
            addresses: vec![address],
            holders: holders_of(view.model, entry),
            evidence: self.evidence(view),
            unknown: self.unknown(view),
            advice: self.advice(view),
            detail: Detail {
                first_seen: !self.answer.is_news || self.successor.is_some(),
                due: Some(since),
                ..Detail::default()
            },
        }
    }

    fn evidence(&self, view: &View<'_>) -> Vec<Evidence> {
        let Self { entry, address, .. } = *self;
        let model = view.model;
        let label = label(model, entry);
        let id = entry.sandbox.id.as_deref().unwrap_or_default();
        let mut claims = Vec::new();
        let on = |ifname: &str| format!("{label} has {address} on {ifname}");
        let held = model.netns.held_at(entry, address).next();
        if let Some(held) = held {
            claims.push(evidence(on(&held.address.ifname), "kernel", held.since));
        }
        claims.push(evidence(
            format!("CNI ADD gave {address} to {} ({DEFAULT})", short_id(id)),
            "cni",
            self.added,
        ));
        if let Some(claim) = &self.allocator.claim {
            claims.push(evidence(
                claim.clone(),
                self.allocator.source,
                self.allocator.at,
            ));
        }
        let stores = match self.store.filter(|_| self.successor.is_some()) {
            Some(store) => store.display().to_string(),
            None => joined(self.answer.stores.iter().map(|path| path.display())),
        };
        let claim = match self.holder {
            None => format!("{address} is free in {stores}"),
            Some(holder) => format!(
                "{address} is reserved for {}{}: {}",
                short_id(&holder.container_id),
                match ipam::pod_of(model, holder) {
                    Some(uid) => format!(" of pod {uid}"),
                    None => String::new(),
                },
                holder.path.display()
            ),
        };
        let source = self.kind.as_str();
        claims.push(evidence(claim, source, self.known.asked()));
        claims.extend(self.renamed());
        claims
    }

    /// What shows that the pod's network was another: its store has the address.
    fn renamed(&self) -> Option<Evidence> {
        let network = &self.successor?.network.name;
        let old = self.answer.holder.as_ref();
        let old = old.filter(|old| self.entry.sandbox.has_container(&old.container_id))?;
        let claim = format!(
            "its network was renamed or changed: {} has the reservation, and new pods get IPs of \
             network {network}",
            old.path.display()
        );
        Some(evidence(claim, self.kind.as_str(), self.known.asked()))
    }

    fn unknown(&self, view: &View<'_>) -> Vec<String> {
        let address = self.address;
        let mut unknown = Vec::new();
        let id = self.entry.sandbox.id.as_deref().unwrap_or_default();
        if let Some(Successor {
            network,
            is_same_link: false,
        }) = self.successor
        {
            unknown.push(format!(
                "whether pods of network {} are on the same link as this one: what it plugs them \
                 into is not known",
                network.name
            ));
        }
        if self.successor.is_none() && view.model.calls.of_container(id).next().is_none() {
            unknown.push(String::from(
                "whether a CNI DEL has freed it: no call of this sandbox was seen (trace sees them)",
            ));
        }
        if let Some(Successor { network, .. }) = self.successor {
            unknown.push(format!("since when new pods get IPs of {}", network.name));
        } else if !self.answer.is_news {
            unknown.push(format!("since when {address} is not reserved for this pod"));
        }
        if self.holder.is_none() && !self.can_give {
            let name = self.allocator.ipam.name();
            unknown.push(match self.kind {
                StoreKind::HostLocal => format!(
                    "whether {name} gives {address} out: it is in none of the network's ranges"
                ),
                StoreKind::Calico => format!(
                    "whether {name} was to give {address}: with the annotation ipAddrsNoIpam it \
                     reserves nothing"
                ),
                _ => format!("whether {name} gives {address} out before it starts again"),
            });
        }
        if self.holder.is_some() {
            let why = match unfound(view.model).is_none() && unread(view) == 0 {
                true => "no other netns on this node has it",
                false => "not every netns of this node could be read",
            };
            unknown.push(format!("whether the other one uses it: {why}"));
        }
        unknown
    }

    fn advice(&self, view: &View<'_>) -> Vec<String> {
        let explain = Command::new("node-tracer explain").word(self.address.to_string());
        let explain = commented(explain, "it must be reserved for the pod that has it");
        if let Some(restore) = self.restore() {
            let says = match self.successor {
                None => "puts its file back, unless there is one by now",
                Some(_) => "reserves it there, too, unless there is a file by now",
            };
            let drain = self.successor.map(|_| {
                String::from(
                    "where many pods are like that, drain the node: new sandboxes reserve there",
                )
            });
            let steps = [commented(restore, says)].into_iter();
            return steps.chain(drain).chain([explain]).collect();
        }
        let mut advice = vec![cordon(view)];
        let pod = pod_of(view.model, self.entry);
        match pod.as_ref().and_then(kubectl_words) {
            Some(words) => advice.push(commented(
                format!("kubectl delete pod {words}"),
                "it gets another IP; a pod without an owner is lost, one with a local volume stays \
                 Pending",
            )),
            None => advice.push(String::from("recreate the pod: it gets another IP")),
        }
        advice.push(explain);
        advice.push(uncordon(view, "no running pod has the IP unreserved"));
        advice
    }

    /// host-local's file as the plugin writes it, under the plugin's own lock. The
    /// shell refuses to write over a file that has come to be there.
    fn restore(&self) -> Option<String> {
        if self.kind != StoreKind::HostLocal || self.holder.is_some() {
            return None;
        }
        let id = self.entry.sandbox.id.as_deref().filter(|id| is_plain(id))?;
        let store = self.store?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let is_plain = store.to_str().is_some_and(|text| text.chars().all(plain));
        let file = store.join(self.address.to_string());
        let (file, lock) = (shell_word(&file), shell_word(&store.join("lock")));
        let is_there = self.answer.stores.iter().any(|path| path == store);
        let make = match is_there {
            true => String::new(),
            // host-local makes it for the first pod.
            false => format!("mkdir -p {} && ", shell_word(store)),
        };
        is_plain
            .then(|| format!("{make}flock {lock} sh -Cc 'printf \"{id}\\r\\n{DEFAULT}\" > {file}'"))
    }
}
