//! What each event says of a lane.

use event::{
    CniCall, CniCommand, CniEffect, Endpoint, Event, PodRef, StartFailure, What, clock::Timestamp,
    wording::subjects::task_label,
};
use std::net::IpAddr;

use super::{Call, Lane, Lanes, MarkKind, Serial, Stall, counts};

impl Lanes {
    /// Takes in what happened.
    pub fn apply(&mut self, event: &Event) {
        let time = event.time;
        match &event.what {
            What::NetnsFound {
                netns, host: true, ..
            } => self.host = Some(*netns),
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
                made: _,
            } if counts(address.address, &address.ifname) => {
                let since = (!found).then_some(time);
                self.living(*netns, time);
                if let Some(serial) = self.live.get(&netns.inode).copied() {
                    self.holds(serial, address.address, since, true);
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
                ..
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
            What::PodChanged { pod } => self.terminates(pod, time),
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
                self.endpoint(endpoint, time, MarkKind::EndpointWritten);
            }
            What::EndpointDeleted { endpoint } => {
                self.endpoint(endpoint, time, MarkKind::EndpointDeleted);
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
            // Nobody believes what they say.
            What::UntrustedCalls { .. } | What::UntrustedNetns { .. } => {}
            // Findings tell of these.
            What::TasksBlocked { .. }
            | What::TasksOomKilled { .. }
            | What::EndpointKept { .. }
            | What::FilesystemFull { .. }
            | What::PodStarted { .. }
            | What::AddressAdded { .. }
            | What::ContainersListed { .. }
            | What::NetworksListed { .. }
            | What::PodsWithAddress { .. }
            | What::MaxPods { .. }
            | What::NetnsDevices { .. }
            | What::NetnsForwarding { .. }
            | What::NetnsForwardingOutdated { .. }
            | What::PciListed { .. }
            | What::ClockStepped { .. }
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
        let netns = asked.netns.filter(|_| asked.command == CniCommand::Add);
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
        let mut has_since = None;
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
            let kind = match (&asked.command, end.is_success()) {
                (CniCommand::Add, true) if taken => Some(MarkKind::GivenAgain),
                (CniCommand::Add, true) => Some(MarkKind::Add),
                (CniCommand::Add, false) => Some(MarkKind::AddFailed),
                (CniCommand::Del, true) => Some(MarkKind::Del),
                (CniCommand::Del, false) => Some(MarkKind::DelFailed),
                _ => None,
            };
            if let Some(kind) = kind {
                lane.mark_of(end.at, kind, text, &ips);
            }
            match kind {
                Some(MarkKind::Add | MarkKind::GivenAgain) => has_since = Some(end.at),
                Some(MarkKind::Del) => lane.loses_unseen(end.at),
                _ => {}
            }
        }
        lane.call(call);
        let serial = self.ids.get(&id).copied();
        if let (Some(_), Some(serial)) = (has_since, serial) {
            for ip in ips {
                self.holds(serial, ip, has_since, false);
            }
        }
    }

    pub fn holds(&mut self, serial: Serial, address: IpAddr, since: Option<Timestamp>, seen: bool) {
        if let Some(lane) = self.lanes.get_mut(&serial) {
            lane.holds(address, since, seen);
            if lane.has(address) {
                self.given.entry(address).or_default().insert(serial);
            }
        }
    }

    /// Whether another sandbox has an address.
    fn is_held(&self, address: IpAddr, but: &str) -> bool {
        let given = self.given.get(&address).into_iter().flatten();
        let lanes = given.filter_map(|serial| self.lanes.get(serial));
        let mut others = lanes.filter(|lane| lane.sandbox_id.as_deref() != Some(but));
        others.any(|lane| lane.is_sandbox() && lane.has(address))
    }

    fn effect(&mut self, effect: &CniEffect, time: Timestamp) {
        let failures = effect.failures().map(|trace| trace.name.as_str());
        let failures: Vec<&str> = failures.collect();
        if failures.is_empty() {
            return;
        }
        let how = match effect.command {
            CniCommand::Add => "not there after ADD",
            _ => "still there after DEL",
        };
        let text = format!("{how}: {}", failures.join(", "));
        if let Some(serial) = self.ids.get(&effect.container_id)
            && let Some(lane) = self.lanes.get_mut(serial)
        {
            lane.mark(time, MarkKind::NotDone, &text);
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

    /// Marks what became of a CNI's entry.
    fn endpoint(&mut self, endpoint: &Endpoint, time: Timestamp, kind: MarkKind) {
        let text = format!("{} {}", endpoint.store, endpoint.key);
        let id = endpoint.container_id.as_deref();
        self.mark_sandbox(id, &endpoint.pod, time, kind, &text);
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
