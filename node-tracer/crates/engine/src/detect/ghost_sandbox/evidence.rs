//! The chain of claims that makes a ghost: each with its source and its time.

use std::net::IpAddr;

use crate::{
    detect::{
        evidence,
        facts::{
            common::label,
            ghosts::{Ghost, is_removed},
        },
        fd_label,
        ghost_sandbox::{
            address_state::{AddressState, Case},
            asleep,
            finding::GhostReport,
            is_frozen,
        },
        has, joined, sleeps_in, socket_label,
    },
    model::{
        allocation::StoreAnswer,
        calls::AttachmentCalls,
        pods::{PodPresence, reference},
        runtime::CRI,
        sandbox::{CallEnd, PodEvidence},
    },
};
use event::{
    clock::Timestamp,
    finding::Evidence,
    wording::subjects::{pod_word, short_id, task_label},
};

/// Stuck tasks that are claimed one by one.
const TOLD: usize = 3;

impl GhostReport<'_, '_> {
    /// All of them, in the order in which they lead to the verdict.
    pub(super) fn evidence(&self) -> Vec<Evidence> {
        let mut claims = Vec::new();
        self.claim_sandbox(&mut claims);
        self.claim_pod(&mut claims);
        self.claim_holders(&mut claims);
        for case in &self.cases {
            self.claim_address_state(&mut claims, case);
        }
        claims.extend(self.taker_claims());
        claims
    }

    /// The namespace is the pod's sandbox and has the addresses.
    fn claim_sandbox(&self, claims: &mut Vec<Evidence>) {
        let entry = self.ghost.entry;
        let inode = entry.id.inode;
        let born = if entry.created {
            "was created"
        } else {
            "was present at first look"
        };
        claims.push(evidence(
            format!("netns {inode} {born}"),
            "kernel",
            entry.seen,
        ));
        let pod = pod_word(&self.pod);
        let uid = entry.sandbox.uid().unwrap_or_default();
        match entry.sandbox.known {
            Some(
                known @ (PodEvidence::Cni { at }
                | PodEvidence::Cache { at }
                | PodEvidence::Runtime { at, .. }),
            ) => {
                let id = short_id(entry.sandbox.id.as_deref().unwrap_or_default());
                let uid = match &self.pod.name {
                    Some(_) => format!(" ({uid})"),
                    None => String::new(),
                };
                let says = match known {
                    PodEvidence::Cache { .. } => "libcni's cache of CNI ADD: it is",
                    PodEvidence::Runtime { source: CRI, .. } => "CRI: it is",
                    PodEvidence::Runtime { .. } => "the runtime's state directory: it is",
                    PodEvidence::Cni { .. } | PodEvidence::Cgroup { .. } => "CNI ADD made it",
                };
                let claim = format!("{says} sandbox {id} of pod {pod}{uid}");
                claims.push(evidence(claim, known.source(), at));
            }
            Some(PodEvidence::Cgroup { pid, at }) => {
                let claim = format!("process {pid} in it is in the cgroup of pod {uid}");
                claims.push(evidence(claim, "kernel", at));
            }
            None => {}
        }
        for held in entry.addresses.iter() {
            if self.ghost.addresses.contains(&held.address.address) {
                claims.push(has(self.view.model, entry, held));
            }
        }
    }

    /// The pod is gone.
    fn claim_pod(&self, claims: &mut Vec<Evidence>) {
        let pods = &self.view.model.pods;
        let source = pods.list().map_or("pods", |list| list.source.as_str());
        let pod = self.pod.label();
        let at = self.ghost.since;
        let claim = match self.ghost.entry.sandbox.presence {
            PodPresence::Terminating(_) => format!(
                "{pod} is past its deletion time and still in the API; while it is, its IP is \
                 not given to others"
            ),
            PodPresence::Finished(_) => format!("{pod} has run to its end (Succeeded or Failed)"),
            PodPresence::Gone(_) => format!("{pod} disappeared from the API"),
            _ => format!("{pod} is not in the API (read after the sandbox was made)"),
        };
        claims.push(evidence(claim, source, at));
        let names = self.pod.namespace.as_deref().zip(self.pod.name.as_deref());
        let namesake = names.and_then(|(namespace, name)| pods.namesake(namespace, name));
        let uid = self.pod.uid.as_deref().unwrap_or_default();
        if let Some(other) = namesake.filter(|other| !other.uids.contains(uid)) {
            let other = reference(other).uid.unwrap_or_default();
            let claim = format!("the pod now called {pod} is another one ({other})");
            claims.push(evidence(claim, source, at));
        }
    }

    /// What keeps the namespace, and what CNI did about it.
    fn claim_holders(&self, claims: &mut Vec<Evidence>) {
        let Ghost {
            entry,
            stuck,
            since,
            ..
        } = self.ghost;
        for blocked in stuck.iter().take(TOLD) {
            let claim = format!(
                "{} is in the netns, in state D{}",
                task_label(&blocked.task),
                sleeps_in(blocked),
            );
            claims.push(evidence(claim, "kernel", blocked.since));
        }
        let held_at = entry.held_at.unwrap_or(*since);
        let asleep = asleep(entry).filter(|_| stuck.is_empty());
        if let Some(task) = asleep {
            let claim = format!(
                "{} is in the netns, in state D, for less than {} s so far",
                task_label(task),
                self.view.settings.stall_threshold.as_secs_f32(),
            );
            claims.push(evidence(claim, "kernel", held_at));
        } else if stuck.is_empty() && entry.task_count > 0 {
            let state = match is_frozen(entry) {
                true => "are frozen by their cgroup",
                false => "still run",
            };
            let claim = format!("tasks in the netns {state}");
            claims.push(evidence(claim, "kernel", held_at));
        } else if stuck.is_empty() {
            let mounts = joined(entry.mounts.iter().map(|path| path.display()));
            let fds = joined(entry.fds.iter().map(fd_label));
            let sockets = joined(entry.sockets.iter().map(socket_label));
            let claim = match (entry.mounts.is_empty(), entry.fds.is_empty()) {
                (false, _) => format!("no task is in the netns; {mounts} holds it open"),
                (true, false) => {
                    format!("no task is in the netns, no mount; {fds} holds it open")
                }
                (true, true) if !entry.sockets.is_empty() => {
                    format!("no task is in the netns, no mount; {sockets} holds it open")
                }
                (true, true) => String::from(
                    "the netns lives, so something holds it open; no task, mount or descriptor \
                     was found",
                ),
            };
            claims.push(evidence(claim, "kernel", held_at));
        }
        self.claim_del(claims);
        self.claim_runtime(claims);
    }

    /// What became of CNI DEL. While one runs, what another plugin of its chain
    /// reported says nothing of the whole.
    fn claim_del(&self, claims: &mut Vec<Evidence>) {
        let sandbox = &self.ghost.entry.sandbox;
        if let Some((_, since)) = sandbox.deleting {
            let claim = "a CNI DEL for it runs since then and has not ended";
            claims.push(evidence(claim, "cni", since));
            if let Some(del) = sandbox.del.filter(|del| del.failed) {
                claims.push(evidence("another CNI DEL for it failed", "cni", del.at));
            }
            return;
        }
        match (sandbox.add, sandbox.del) {
            (_, Some(del)) => {
                let (claim, at) = self.ended_del(del);
                claims.push(evidence(claim, "cni", at));
            }
            (Some(add), None) => {
                claims.push(evidence(
                    "no CNI DEL for it was seen since its ADD",
                    "cni",
                    add,
                ));
            }
            (None, None) => self.claim_attachment(claims),
        }
    }

    /// How far CNI DEL has come when none runs, and when that was; `last` is the
    /// plugin's that ended last. Its success is not that of the chain: the next
    /// plugin may not have been called yet, or has failed before.
    fn ended_del(&self, last: CallEnd) -> (&'static str, Timestamp) {
        let calls = self.own_calls();
        let plugins = calls.iter().flat_map(|each| each.chain());
        let failures = plugins.filter_map(|plugin| plugin.del.as_ref()?.failure());
        let failed = failures.map(|end| end.at).max();
        if let Some(at) = failed.max(last.failed.then_some(last.at)) {
            return ("CNI DEL for it failed", at);
        }
        // Which plugins there are is known by their ADDs alone.
        let is_told = |each: &&AttachmentCalls| each.chain().any(|plugin| plugin.add.is_some());
        let claim = if last.exit_code != Some(0) {
            "CNI DEL for it was called, and its end was not seen"
        } else if !calls.iter().all(|each| each.deleted().is_some()) {
            "CNI DEL for it has begun, and not all of its plugins have reported success"
        } else if calls.iter().any(is_told) {
            "CNI DEL for it reported success, and the IP is still there"
        } else {
            "a CNI DEL for it reported success, and the IP is still there; whether it was the \
             last plugin's is unknown"
        };
        (claim, last.at)
    }

    /// What the runtime itself called for the sandbox, but for its loopback
    /// device.
    fn own_calls(&self) -> Vec<&AttachmentCalls> {
        let sandbox = &self.ghost.entry.sandbox;
        // Without an ADD its ID may be known by the cgroup of the infra container.
        let ids = sandbox.id.iter().chain(&sandbox.containers);
        let all = &self.view.model.calls;
        let calls = ids.flat_map(|id| all.of_container(id));
        let is_own = |each: &&AttachmentCalls| {
            let mut plugins = each.plugins.iter();
            each.ifname != "lo" && plugins.any(|plugin| !plugin.delegated)
        };
        calls.filter(is_own).collect()
    }

    /// No DEL was seen because nobody looked; libcni forgets an attachment when
    /// its DEL has succeeded.
    fn claim_attachment(&self, claims: &mut Vec<Evidence>) {
        let id = self.ghost.entry.sandbox.id.as_deref();
        let mut its = id
            .into_iter()
            .flat_map(|id| self.view.model.cni.of_container(id));
        if let Some(attachment) = its.find(|each| each.ifname != "lo") {
            let claim = format!(
                "CNI DEL of its {} not completed (libcni's cache has the ADD)",
                attachment.ifname
            );
            claims.push(evidence(claim, "libcni", attachment.written));
        }
    }

    /// What the runtime has to say.
    fn claim_runtime(&self, claims: &mut Vec<Evidence>) {
        let entry = self.ghost.entry;
        let (Some(list), Some(id)) = (self.view.model.runtime.cri(), &entry.sandbox.id) else {
            return;
        };
        let claim = match list.of_container(id).map(|sandbox| sandbox.ready) {
            Some(Some(true)) => "CRI: sandbox Ready",
            Some(Some(false)) => "CRI: sandbox NotReady",
            None if is_removed(self.view.model, entry) => "CRI: no such sandbox",
            Some(None) | None => return,
        };
        claims.push(evidence(claim, CRI, list.at));
    }

    /// What became of an address.
    fn claim_address_state(&self, claims: &mut Vec<Evidence>, case: &Case<'_>) {
        let address = case.address;
        match &case.fate {
            AddressState::TakenBy(other, since) => {
                let claim = format!("{} has {address} as well", label(self.view.model, other));
                claims.push(evidence(claim, "kernel", *since));
            }
            AddressState::Free(known, _) | AddressState::Reserved(known) => {
                if let Some(answer) = &known.answer {
                    claims.push(reservation(address, answer));
                }
            }
            AddressState::Untold | AddressState::NotYet => {}
        }
        let over = matches!(
            case.fate,
            AddressState::TakenBy(..) | AddressState::Free(..)
        );
        if let Some(allocator) = case.allocator.as_ref().filter(|_| !over) {
            let ways = allocator.ipam.ways();
            let claim = match (&allocator.claim, ways) {
                (Some(claim), Some(ways)) => format!("{claim}; {ways}"),
                (Some(claim), None) => claim.clone(),
                (None, Some(ways)) => ways.to_owned(),
                (None, None) => return,
            };
            claims.push(evidence(claim, allocator.source, allocator.at));
        }
    }
}

fn reservation(address: IpAddr, answer: &StoreAnswer) -> Evidence {
    let stores = joined(answer.stores.iter().map(|path| path.display()));
    let (claim, source) = match &answer.holder {
        None => {
            let found = match answer.is_news {
                true => "",
                false => "; it was so at the first look",
            };
            (format!("{address} is free in {stores}{found}"), "ipam")
        }
        Some(holder) if holder.container_id.is_empty() => (
            format!(
                "{address} is reserved by {}, an empty file",
                holder.path.display()
            ),
            "ipam",
        ),
        Some(holder) => {
            let path = holder.path.display();
            (
                format!(
                    "{address} is reserved for {} by {path}",
                    short_id(&holder.container_id)
                ),
                "ipam",
            )
        }
    };
    evidence(claim, source, answer.since)
}
