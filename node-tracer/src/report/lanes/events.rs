//! What each event says of a lane.

use std::{collections::BTreeSet, net::IpAddr};

use super::{Call, Lane, Lanes, MAX_ADDRESSES, MarkKind, Stall};
use crate::{
    clock::Timestamp,
    detect::{short_id, task_label},
    event::{
        Attachment, CniCall, CniEffect, Event, Netns, Pod, PodRef, ReservationHolder,
        RuntimeSandbox, StartFailure, Store, What,
    },
};

impl Lanes {
    /// Takes in what happened.
    pub(in super::super) fn apply(&mut self, event: &Event) {
        let time = event.time;
        match &event.what {
            What::NetnsFound { netns, host: true } => self.host = Some(*netns),
            What::NetnsFound { netns, .. } => {
                self.living(*netns, time);
            }
            What::NetnsCreated { netns, .. } => {
                // The inode of one whose end was not seen.
                self.live.remove(&netns.inode);
                if let Some(lane) = self.living(*netns, time) {
                    lane.created = Some(time);
                }
            }
            What::NetnsDying { netns, .. } => {
                if let Some(lane) = self.living(*netns, time) {
                    lane.dying.get_or_insert(time);
                }
            }
            What::NetnsDestroyed { netns } => {
                if let Some(lane) = self.living(*netns, time) {
                    lane.ends(time);
                }
                self.live.remove(&netns.inode);
            }
            What::NetnsHolders { netns, tasks, .. } => {
                let uid = tasks.iter().find_map(|task| task.pod_uid.clone());
                let pod = uid.map(|uid| PodRef {
                    uid: Some(uid),
                    ..PodRef::default()
                });
                if let Some(lane) = self.living(*netns, time) {
                    lane.is_of(pod.as_ref());
                }
            }
            What::AddressAdded {
                netns,
                address,
                found,
            } if counts(address.address, &address.ifname) => {
                let since = (!found).then_some(time);
                if let Some(lane) = self.living(*netns, time) {
                    lane.holds(address.address, since, true);
                }
            }
            What::AddressRemoved { netns, address } => {
                if let Some(lane) = self.living(*netns, time) {
                    lane.loses(address.address, time);
                }
            }
            What::TaskBlocked {
                task,
                since,
                found,
                netns,
                wchan,
                stack: _,
            } => {
                let stall = Stall {
                    pid: task.pid,
                    tid: task.tid,
                    comm: task.comm.clone(),
                    wchan: wchan.clone(),
                    since: *since,
                    found: *found,
                    until: None,
                };
                let lane = netns.and_then(|netns| self.living(netns, time));
                match lane {
                    Some(lane) => lane.sleeps(stall),
                    None => self.node.sleeps(stall),
                }
            }
            What::TaskUnblocked { task, .. } => {
                let mut lanes = self.lanes.values_mut();
                if !self.node.wakes(task, time) {
                    lanes.any(|lane| lane.wakes(task, time));
                }
            }
            What::CniStarted { call } => self.call(call, Call::begun(call, time)),
            What::CniCall {
                call,
                exit_code,
                signal,
                duration_ms,
                result,
                error,
                unread: _,
            } => {
                let status = (*exit_code, *signal);
                let (result, error) = (result.as_ref(), error.as_ref());
                let ended = Call::ended(call, time, status, *duration_ms, result, error);
                self.call(call, ended);
            }
            What::CniEffect { effect } => self.effect(effect, time),
            What::Reservation {
                address, holder, ..
            } => self.reservation(*address, holder.as_ref(), time),
            What::StoreListed { store } => self.store(store, time),
            What::PodsListed { source, pods, .. } => self.listed(source, pods, time),
            What::PodDeleted { pod } => self.mark_pod(pod, time, MarkKind::PodDeleted, ""),
            What::AttachmentsListed { attachments, .. } => {
                for each in attachments {
                    self.attached(each, time);
                }
            }
            What::SandboxesListed { sandboxes, .. } => {
                for each in sandboxes {
                    self.runs(each, time);
                }
            }
            What::SandboxAdded { sandbox, .. } => self.runs(sandbox, time),
            What::SandboxRemoved { source, id } => {
                if let Some(serial) = self.ids.get(id)
                    && let Some(lane) = self.lanes.get_mut(serial)
                {
                    lane.mark(time, MarkKind::Removed, source);
                }
            }
            What::SandboxFailed { failure } => self.not_started(failure, time),
            What::EndpointWritten { endpoint } => {
                let text = format!("{} {}", endpoint.store, endpoint.key);
                let kind = MarkKind::EndpointWritten;
                self.mark_sandbox(
                    endpoint.container_id.as_deref(),
                    &endpoint.pod,
                    time,
                    kind,
                    &text,
                );
            }
            What::EndpointDeleted { endpoint } => {
                let text = format!("{} {}", endpoint.store, endpoint.key);
                let kind = MarkKind::EndpointDeleted;
                self.mark_sandbox(
                    endpoint.container_id.as_deref(),
                    &endpoint.pod,
                    time,
                    kind,
                    &text,
                );
            }
            What::OomKilled { kill } => {
                let pod = PodRef {
                    uid: kill.task.pod_uid.clone(),
                    ..PodRef::default()
                };
                let text = task_label(&kill.task);
                match pod.uid {
                    Some(_) => self.mark_pod(&pod, time, MarkKind::Killed, &text),
                    None => self.node.mark(time, MarkKind::Killed, &text),
                }
            }
            What::DeviceWaiting { device, references } => {
                let count = references.map(|count| format!(", {count} references"));
                let text = format!("{device}{}", count.unwrap_or_default());
                self.node.mark(time, MarkKind::Waiting, &text);
            }
            What::SourceFailed { source, error } => {
                let text = format!("{source} does not answer: {error}");
                self.node.mark(time, MarkKind::Source, &text);
            }
            What::SourceRecovered { source } => {
                let text = format!("{source} answers again");
                self.node.mark(time, MarkKind::Source, &text);
            }
            What::EventsLost { cause, count } => {
                let text = format!("{count} lost: {cause}");
                self.node.mark(time, MarkKind::Lost, &text);
            }
            What::AddressAdded { .. }
            | What::ContainersListed { .. }
            | What::NetworksListed { .. }
            | What::NetnsDevices { .. }
            | What::Tick => {}
        }
    }

    /// A CNI call. One that is not trusted says nothing of a sandbox, and is
    /// shown beside those that are.
    fn call(&mut self, asked: &CniCall, call: Call) {
        let time = call.ended.as_ref().map_or(call.began, |end| end.at);
        if !asked.trusted {
            if let Some(serial) = self.ids.get(&asked.container_id)
                && let Some(lane) = self.lanes.get_mut(serial)
            {
                lane.call(call);
            }
            return;
        }
        let infra = asked.infra_container_id.as_ref();
        let id = infra.unwrap_or(&asked.container_id).clone();
        if id.is_empty() {
            return;
        }
        // The namespace at a DEL's path may be another one by then.
        let netns = asked.netns.filter(|_| asked.command == "ADD");
        let ips = call.ended.as_ref().map(|end| end.ips.clone());
        let ips: Vec<IpAddr> = ips.unwrap_or_default();
        let ips: Vec<IpAddr> = ips
            .into_iter()
            .filter(|ip| counts(*ip, &asked.ifname))
            .collect();
        let taken = ips.iter().any(|ip| self.is_held(*ip, &id));
        let Some(lane) = self.sandbox(&id, netns, time) else {
            return;
        };
        lane.is_of(asked.pod.as_ref());
        if !asked.netns_path.is_empty() && lane.path.is_none() {
            lane.path = Some(asked.netns_path.clone());
        }
        if let Some(end) = call
            .ended
            .as_ref()
            .filter(|_| !call.delegated && !call.is_loopback())
        {
            let failure = end.failure();
            let text = match end.is_success() {
                true => call.plugin.as_str(),
                false => failure.as_str(),
            };
            let kind = match (asked.command.as_str(), end.is_success()) {
                ("ADD", true) if taken => Some(MarkKind::GivenAgain),
                ("ADD", true) => Some(MarkKind::Add),
                ("ADD", false) => Some(MarkKind::AddFailed),
                ("DEL", true) => Some(MarkKind::Del),
                ("DEL", false) => Some(MarkKind::DelFailed),
                _ => None,
            };
            if let Some(kind) = kind {
                lane.mark_of(end.at, kind, text, &ips);
            }
            match kind {
                Some(MarkKind::Add | MarkKind::GivenAgain) => {
                    for ip in &ips {
                        lane.holds(*ip, Some(end.at), false);
                    }
                }
                Some(MarkKind::Del) => lane.loses_unseen(end.at),
                _ => {}
            }
        }
        lane.call(call);
    }

    /// Whether another sandbox has an address.
    fn is_held(&self, address: IpAddr, but: &str) -> bool {
        let others = self.lanes.values();
        let mut others = others.filter(|lane| lane.sandbox_id.as_deref() != Some(but));
        // The kernel tells of the address before the plugin tells for whom.
        others.any(|lane| lane.is_sandbox() && lane.has(address))
    }

    fn effect(&mut self, effect: &CniEffect, time: Timestamp) {
        let failures = effect.failures().map(|trace| trace.name.as_str());
        let failures: Vec<&str> = failures.collect();
        if failures.is_empty() {
            return;
        }
        let how = match effect.command.as_str() {
            "ADD" => "not there after ADD",
            _ => "still there after DEL",
        };
        let text = format!("{how}: {}", failures.join(", "));
        if let Some(serial) = self.ids.get(&effect.container_id)
            && let Some(lane) = self.lanes.get_mut(serial)
        {
            lane.mark(time, MarkKind::NotDone, &text);
        }
    }

    /// For whom an address is reserved.
    fn reservation(
        &mut self,
        address: IpAddr,
        holder: Option<&ReservationHolder>,
        time: Timestamp,
    ) {
        if self.reserved.len() >= MAX_ADDRESSES && !self.reserved.contains_key(&address) {
            return;
        }
        let now = holder.map(|holder| holder.container_id.as_str());
        let before = self.reserved.insert(address, holder.cloned());
        let was = before.as_ref().map(|holder| holder.as_ref());
        let was = was.map(|holder| holder.map(|holder| holder.container_id.as_str()));
        let text = match (was, now) {
            (Some(Some(was)), Some(now)) if was != now => {
                format!("reserved for {} now", short_id(now))
            }
            (Some(Some(_)), None) => String::new(),
            (None, None) => String::from("not reserved when it was first looked at"),
            // It is as it was, or it was free before.
            _ => return,
        };
        let own = was.flatten().and_then(|id| self.ids.get(id).copied());
        for (serial, lane) in &mut self.lanes {
            let its = match own {
                Some(own) => own == *serial,
                None => lane.has(address),
            };
            if its && now.is_none_or(|now| lane.sandbox_id.as_deref() != Some(now)) {
                lane.mark_of(time, MarkKind::Freed, &text, &[address]);
            }
        }
    }

    /// A store, whole: what it held and does not hold any more is free.
    fn store(&mut self, store: &Store, time: Timestamp) {
        let listed = store.reservations.iter().map(|each| each.address);
        let listed: BTreeSet<IpAddr> = listed.collect();
        for each in &store.reservations {
            self.reservation(each.address, Some(&each.holder), time);
        }
        if !store.unread.is_empty() {
            return;
        }
        let of_it = |holder: &ReservationHolder| {
            holder.path == store.path || holder.path.parent() == Some(&store.path)
        };
        let gone = self.reserved.iter().filter(|(address, holder)| {
            !listed.contains(address) && holder.as_ref().is_some_and(of_it)
        });
        let gone: Vec<IpAddr> = gone.map(|(address, _)| *address).collect();
        for address in gone {
            self.reservation(address, None, time);
        }
    }

    /// Pods, as they are listed.
    fn listed(&mut self, source: &str, pods: &[Pod], time: Timestamp) {
        self.pods = Some(source.to_owned());
        for pod in pods.iter().filter(|pod| pod.deletion.is_some()) {
            for uid in &pod.uids {
                let pod = PodRef {
                    namespace: Some(pod.namespace.clone()),
                    name: Some(pod.name.clone()),
                    uid: Some(uid.clone()),
                };
                for serial in self.of_pod(&pod) {
                    if let Some(lane) = self.lanes.get_mut(&serial)
                        && lane.terminating.is_none()
                    {
                        lane.terminating = Some(time);
                        lane.mark(time, MarkKind::Terminating, "");
                    }
                }
            }
        }
    }

    /// What libcni remembers.
    fn attached(&mut self, of: &Attachment, time: Timestamp) {
        if of.ifname == "lo" {
            return;
        }
        let Some(lane) = self.sandbox(&of.container_id, of.netns, time) else {
            return;
        };
        lane.is_of(of.pod.as_ref());
        let ips: Vec<IpAddr> = of
            .ips
            .iter()
            .copied()
            .filter(|ip| counts(*ip, &of.ifname))
            .collect();
        if lane.first(MarkKind::Add).is_none() && lane.first(MarkKind::GivenAgain).is_none() {
            lane.mark_of(of.written, MarkKind::Add, "by libcni's cache", &ips);
            for ip in &ips {
                lane.holds(*ip, Some(of.written), false);
            }
        }
    }

    /// A sandbox as the runtime has it.
    fn runs(&mut self, sandbox: &RuntimeSandbox, time: Timestamp) {
        if sandbox.host_network {
            return;
        }
        let netns: Option<Netns> = sandbox.netns;
        let Some(lane) = self.sandbox(&sandbox.id, netns, time) else {
            return;
        };
        lane.is_of(Some(&sandbox.pod).filter(|pod| **pod != PodRef::default()));
        if lane.path.is_none() {
            lane.path.clone_from(&sandbox.netns_path);
        }
        if let Some(created) = sandbox.created {
            let text = format!("attempt {}", sandbox.attempt);
            lane.mark(created, MarkKind::Made, &text);
        }
    }

    fn not_started(&mut self, failure: &StartFailure, time: Timestamp) {
        let count = failure.count.filter(|count| *count > 1);
        let count = count
            .map(|count| format!(" ({count} times)"))
            .unwrap_or_default();
        let text = format!("{}: {}{count}", failure.source, failure.message);
        let id = failure.sandbox_id.as_deref();
        self.mark_sandbox(id, &failure.pod, time, MarkKind::StartFailed, &text);
    }

    /// Marks a sandbox's lane, or its pod's; one of a pod that has none is made.
    fn mark_sandbox(
        &mut self,
        id: Option<&str>,
        pod: &PodRef,
        time: Timestamp,
        kind: MarkKind,
        text: &str,
    ) {
        if let Some(id) = id.filter(|id| !id.is_empty()) {
            if let Some(lane) = self.sandbox(id, None, time) {
                lane.is_of(Some(pod));
                lane.mark(time, kind, text);
            }
            return;
        }
        let living = self.of_pod(pod).into_iter().rev();
        let mut living = living.filter(|it| self.get(*it).is_some_and(|lane| lane.gone.is_none()));
        let serial = living.next().unwrap_or_else(|| {
            let mut lane = Lane::heard_of(time);
            lane.is_of(Some(pod));
            self.add(lane)
        });
        if let Some(lane) = self.lanes.get_mut(&serial) {
            lane.mark(time, kind, text);
        }
    }

    /// Marks all lanes of a pod that are not over.
    fn mark_pod(&mut self, pod: &PodRef, time: Timestamp, kind: MarkKind, text: &str) {
        for serial in self.of_pod(pod) {
            if let Some(lane) = self.lanes.get_mut(&serial)
                && lane.gone.is_none()
            {
                lane.is_of(Some(pod));
                lane.mark(time, kind, text);
            }
        }
    }
}

/// Whether an address says where a pod is.
fn counts(address: IpAddr, ifname: &str) -> bool {
    let local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    ifname != "lo" && !local && !address.is_loopback() && !address.is_unspecified()
}
