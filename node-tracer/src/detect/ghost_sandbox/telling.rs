//! A ghost in words: the chain of claims, what is not known, what to do.

use std::net::IpAddr;

use super::{Fate, Ghost, fate, is_untold};
use crate::{
    clock::Timestamp,
    detect::{
        View, duplicate_address::label, evidence, fd_label, holders_of, joined, netns_of, pod_of,
        pod_word, short_id, sleeps_in, socket_label, task_label, unknown_holder,
    },
    event::PodRef,
    finding::{Detail, Evidence, Finding, Phase, Rule, Severity, finding_id},
    model::{
        allocation::{Allocation, Answer},
        pods::{Standing, reference},
        runtime::CRI,
        sandbox::Known,
    },
};

/// Stuck tasks that are claimed one by one.
const TOLD: usize = 3;

/// What the finding's parts are written from.
pub(super) struct Told<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) ghost: &'a Ghost<'a>,
    pod: PodRef,
    pub(super) fates: Vec<(IpAddr, Fate<'a>)>,
    pub(super) phase: Phase,
    due: Option<Timestamp>,
}

pub(super) fn finding<'a>(view: &'a View<'a>, ghost: &'a Ghost<'a>) -> Finding {
    let entry = ghost.entry;
    let gone = !matches!(entry.sandbox.standing, Standing::Terminating(_));
    let fates: Vec<_> = ghost
        .addresses
        .iter()
        .map(|address| (*address, fate(view, ghost, *address)))
        .collect();
    let phase = fates
        .iter()
        .map(|(_, fate)| fate.phase(gone))
        .max()
        .unwrap_or(Phase::Suspected);
    let worst = fates.iter().filter(|(_, fate)| fate.phase(gone) == phase);
    let due = worst.filter_map(|(_, fate)| fate.due(ghost, gone)).min();
    let pod = pod_of(view.model, entry).unwrap_or_default();
    let uid = entry.sandbox.uid().unwrap_or_default();
    let id = finding_id(
        &view.settings.boot_id,
        Rule::GhostSandbox,
        &format!("{} {uid}", entry.id.inode),
    );
    let told = Told {
        view,
        ghost,
        pod,
        fates,
        phase,
        due,
    };
    Finding {
        rule: Rule::GhostSandbox,
        severity: match phase {
            Phase::Suspected => Severity::Warning,
            // Only a list can say that the pod is gone.
            _ if is_untold(view, entry) => Severity::Warning,
            Phase::Armed | Phase::Conflict => Severity::Critical,
        },
        id,
        since: ghost.since,
        title: told.title(),
        sandbox_id: entry.sandbox.id.clone(),
        netns: Some(netns_of(entry)),
        addresses: ghost.addresses.clone(),
        holders: holders_of(view.model, entry),
        evidence: told.evidence(),
        unknown: told.unknown(),
        advice: told.advice(),
        detail: Detail {
            phase: Some(phase),
            due,
            ..Detail::default()
        },
        pod: Some(told.pod),
    }
}

impl Told<'_> {
    /// The namespace that has one of the addresses, too.
    fn victim(&self) -> Option<String> {
        self.fates.iter().find_map(|(_, fate)| match fate {
            Fate::TakenBy(other, _) => {
                let pod = pod_of(self.view.model, other);
                Some(pod.map_or_else(|| label(self.view.model, other), |pod| pod.label()))
            }
            _ => None,
        })
    }

    fn title(&self) -> String {
        let addresses = joined(&self.ghost.addresses);
        let state = match self.ghost.entry.sandbox.standing {
            Standing::Terminating(_) => "the terminating pod",
            _ if is_untold(self.view, self.ghost.entry) => "pod",
            _ => "the deleted pod",
        };
        let pod = pod_word(&self.pod);
        let holder = self.holder();
        let next = match (self.phase, self.victim(), self.due) {
            (Phase::Conflict, Some(victim), _) => format!("{victim} has been given it, too"),
            (Phase::Armed, _, Some(due)) if self.is_free() => match self.reserved_for() {
                Some(id) => format!("it is reserved for {} now", short_id(id)),
                None => format!("it can be given to another pod since {}", due.time_of_day()),
            },
            (Phase::Armed, _, Some(due)) => {
                format!("it may be given to another pod by {}", due.time_of_day())
            }
            _ if self.is_reserved() => String::from("it stays reserved for it"),
            _ => String::from("whether it is still reserved is not known yet"),
        };
        format!("{addresses} is still held by {state} {pod}: {holder}; {next}")
    }

    /// What keeps the namespace, in few words.
    fn holder(&self) -> String {
        let Ghost { entry, stuck, .. } = self.ghost;
        if let Some(stuck) = stuck.first() {
            format!("{} is stuck{}", task_label(&stuck.task), sleeps_in(stuck))
        } else if entry.task_count > 0 {
            String::from("its tasks still run")
        } else if let Some(path) = entry.mounts.first() {
            format!("only the mount {} is left", path.display())
        } else {
            match entry.fds.as_slice() {
                [] if !entry.sockets.is_empty() => String::from("only sockets in it are left"),
                [] => String::from("what keeps it was not found"),
                [only] => format!("only {} is left", fd_label(only)),
                [first, more @ ..] => {
                    format!("only {} and {} more are left", fd_label(first), more.len())
                }
            }
        }
    }

    fn is_free(&self) -> bool {
        self.fates
            .iter()
            .any(|(_, fate)| matches!(fate, Fate::Free(..)))
    }

    /// Who has reserved the addresses that are the ghost's no more, if none of
    /// them is free for everybody.
    fn reserved_for(&self) -> Option<&str> {
        let mut others = self.fates.iter().filter_map(|(_, fate)| match fate {
            Fate::Free(known, _) => Some(known.answer.as_ref()?.holder.as_ref()),
            _ => None,
        });
        let first = others.next()??;
        others
            .all(|holder| holder.is_some())
            .then_some(first.container_id.as_str())
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.fates
            .iter()
            .any(|(_, fate)| matches!(fate, Fate::Reserved(_)))
    }

    fn evidence(&self) -> Vec<Evidence> {
        let mut claims = Vec::new();
        self.claim_sandbox(&mut claims);
        self.claim_pod(&mut claims);
        self.claim_holders(&mut claims);
        for (address, fate) in &self.fates {
            self.claim_fate(&mut claims, *address, fate);
        }
        claims
    }

    /// The namespace is the pod's sandbox and has the addresses.
    fn claim_sandbox(&self, claims: &mut Vec<Evidence>) {
        let entry = self.ghost.entry;
        let inode = entry.id.inode;
        let born = if entry.created {
            "was created"
        } else {
            "was there when first seen"
        };
        claims.push(evidence(
            format!("netns {inode} {born}"),
            "kernel",
            entry.seen,
        ));
        let pod = pod_word(&self.pod);
        let uid = entry.sandbox.uid().unwrap_or_default();
        match entry.sandbox.known {
            Some(known @ (Known::Cni { at } | Known::Cache { at } | Known::Runtime { at, .. })) => {
                let id = short_id(entry.sandbox.id.as_deref().unwrap_or_default());
                let uid = match &self.pod.name {
                    Some(_) => format!(" ({uid})"),
                    None => String::new(),
                };
                let says = match known {
                    Known::Cache { .. } => "libcni remembers that CNI ADD made it",
                    Known::Runtime { source: CRI, .. } => "the container runtime lists it as",
                    Known::Runtime { .. } => "the container runtime's folders have it as",
                    Known::Cni { .. } | Known::Cgroup { .. } => "CNI ADD made it",
                };
                let claim = format!("{says} sandbox {id} of pod {pod}{uid}");
                claims.push(evidence(claim, known.source(), at));
            }
            Some(Known::Cgroup { pid, at }) => {
                let claim = format!("process {pid} in it is in the cgroup of pod {uid}");
                claims.push(evidence(claim, "kernel", at));
            }
            None => {}
        }
        for held in &entry.addresses {
            if self.ghost.addresses.contains(&held.address.address) {
                let claim = format!("it has {} on {}", held.address, held.address.ifname);
                claims.push(evidence(claim, "kernel", held.since));
            }
        }
    }

    /// The pod is gone.
    fn claim_pod(&self, claims: &mut Vec<Evidence>) {
        let pods = &self.view.model.pods;
        if is_untold(self.view, self.ghost.entry) {
            return;
        }
        let source = pods.list().map_or("pods", |list| list.source.as_str());
        let pod = self.pod.label();
        let at = self.ghost.since;
        let claim = match self.ghost.entry.sandbox.standing {
            Standing::Terminating(_) => format!(
                "{pod} should have been gone by now and is still listed; while it is, its address \
                 is not given to others"
            ),
            Standing::Gone(_) => format!("{pod} was listed and is not any more"),
            _ => format!("{pod} is not on the pod list, which is later than its sandbox"),
        };
        claims.push(evidence(claim, source, at));
        let names = self.pod.namespace.as_deref().zip(self.pod.name.as_deref());
        let namesake = names.and_then(|(namespace, name)| pods.namesake(namespace, name));
        let uid = self.pod.uid.as_deref().unwrap_or_default();
        if let Some(other) = namesake.filter(|other| !other.uids.contains(uid)) {
            let other = reference(other).uid.unwrap_or_default();
            let claim = format!("the pod that is now called {pod} is another one ({other})");
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
                "{} is in it, in uninterruptible sleep{}",
                task_label(&blocked.task),
                sleeps_in(blocked),
            );
            claims.push(evidence(claim, "kernel", blocked.since));
        }
        let held_at = entry.held_at.unwrap_or(*since);
        if stuck.is_empty() && entry.task_count > 0 {
            claims.push(evidence("tasks in it still run", "kernel", held_at));
        } else if stuck.is_empty() {
            let mounts = joined(entry.mounts.iter().map(|path| path.display()));
            let fds = joined(entry.fds.iter().map(fd_label));
            let sockets = joined(entry.sockets.iter().map(socket_label));
            let claim = match (entry.mounts.is_empty(), entry.fds.is_empty()) {
                (false, _) => format!("no task is in it; it is mounted at {mounts}"),
                (true, false) => {
                    format!("no task is in it and it is mounted nowhere; it is kept by {fds}")
                }
                (true, true) if !entry.sockets.is_empty() => {
                    format!("no task is in it and it is mounted nowhere; it is kept by {sockets}")
                }
                (true, true) => String::from(
                    "it lives on, so something keeps it; no task in it, no mount and no \
                     descriptor of it was found",
                ),
            };
            claims.push(evidence(claim, "kernel", held_at));
        }
        match (entry.sandbox.add, entry.sandbox.del) {
            (_, Some(del)) => {
                let end = match del.exit_code {
                    Some(0) => "reported success, and the address is still there",
                    _ => "failed",
                };
                claims.push(evidence(format!("CNI DEL for it {end}"), "cni", del.at));
            }
            (Some(add), None) => {
                claims.push(evidence(
                    "no CNI DEL for it has been seen since its ADD",
                    "cni",
                    add,
                ));
            }
            (None, None) => self.claim_attachment(claims),
        }
        self.claim_runtime(claims);
    }

    /// No DEL was seen because nobody looked; libcni forgets an attachment when
    /// its DEL has succeeded.
    fn claim_attachment(&self, claims: &mut Vec<Evidence>) {
        let id = self.ghost.entry.sandbox.id.as_deref();
        let mut its = id.into_iter().flat_map(|id| self.view.model.cni.of_container(id));
        if let Some(attachment) = its.find(|each| each.ifname != "lo") {
            let claim = format!(
                "no CNI DEL of its {} has succeeded: libcni still has the ADD",
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
            Some(Some(true)) => "the container runtime still has its sandbox as ready",
            Some(Some(false)) => "the container runtime has its sandbox as not ready",
            Some(None) => return,
            None => "the container runtime has no such sandbox any more",
        };
        claims.push(evidence(claim, CRI, list.at));
    }

    /// What became of an address.
    fn claim_fate(&self, claims: &mut Vec<Evidence>, address: IpAddr, fate: &Fate<'_>) {
        match fate {
            Fate::TakenBy(other, since) => {
                let claim = format!("{} has {address}, too", label(self.view.model, other));
                claims.push(evidence(claim, "kernel", *since));
            }
            Fate::Free(known, _) | Fate::Reserved(known) => {
                if let Some(answer) = &known.answer {
                    claims.push(reservation(address, answer));
                }
            }
            Fate::Untold | Fate::NotYet => {}
        }
    }

    fn unknown(&self) -> Vec<String> {
        let mut unknown = Vec::new();
        let entry = self.ghost.entry;
        for (address, fate) in &self.fates {
            match fate {
                Fate::Untold => unknown.push(format!(
                    "which IPAM has {address}, and when it gives the address back: no store of \
                     reservations could be looked at"
                )),
                Fate::NotYet => {
                    unknown.push(format!(
                        "whether {address} is still reserved: not answered yet"
                    ));
                }
                Fate::Free(known, _) | Fate::Reserved(known) => {
                    self.doubt_store(&mut unknown, *address, known);
                }
                Fate::TakenBy(..) => {}
            }
        }
        let untold = is_untold(self.view, entry);
        if matches!(entry.sandbox.standing, Standing::Unlisted(_)) && !untold {
            unknown.push(String::from(
                "when the pod was deleted: no list that was seen had it",
            ));
        }
        let failure = self.view.model.pods_failure();
        match (untold, failure) {
            (true, None) => unknown.push(match entry.sandbox.standing {
                Standing::Unlisted(_) => String::from(
                    "whether the pod still exists: the pod list lacks most of the pods on this \
                     node, so it is not believed",
                ),
                _ => String::from("whether the pod still exists: no pod list tells"),
            }),
            (true, Some(failure)) => {
                unknown.push(format!("whether the pod still exists: {}", failure.error));
            }
            (false, Some(failure)) => {
                unknown.push(format!("the pods as they are now: {}", failure.error));
            }
            (false, None) => {}
        }
        if let Some(failure) = self.view.model.failure(CRI) {
            unknown.push(format!("what the container runtime knows: {}", failure.error));
        }
        if entry.held_at.is_none() {
            unknown.push(String::from("what else keeps the namespace"));
        } else if entry.is_held_by_nothing_found() && self.ghost.stuck.is_empty() {
            unknown.push(unknown_holder("it"));
        } else if entry.task_count > entry.tasks.len() {
            unknown.push(format!(
                "the names of {} more tasks in the namespace",
                entry.task_count - entry.tasks.len()
            ));
        }
        unknown
    }

    fn doubt_store(&self, unknown: &mut Vec<String>, address: IpAddr, known: &Allocation) {
        if known.silent.is_some() {
            unknown.push(format!(
                "whether the reservation of {address} is still so: no store answers"
            ));
        }
        let Some(answer) = &known.answer else {
            return;
        };
        if !known.was_reserved {
            unknown.push(format!(
                "whether {} is the pod network's store: it never had {address}",
                joined(answer.stores.iter().map(|path| path.display())),
            ));
        }
        let sandbox = &self.ghost.entry.sandbox;
        let holder = answer
            .holder
            .as_ref()
            .map(|holder| holder.container_id.as_str());
        if let Some(id) = holder.filter(|id| sandbox.id.is_none() && !sandbox.has_container(id)) {
            unknown.push(format!(
                "whether {:?}, which {address} is reserved for, is this sandbox",
                short_id(id),
            ));
        }
    }
}

fn reservation(address: IpAddr, answer: &Answer) -> Evidence {
    let stores = joined(answer.stores.iter().map(|path| path.display()));
    let (claim, source) = match &answer.holder {
        None => (format!("{address} is free in {stores}"), "ipam"),
        Some(holder) if holder.container_id.is_empty() => (
            format!(
                "{address} is reserved by {}, which names nobody",
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
