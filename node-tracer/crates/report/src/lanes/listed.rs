//! What lists say of lanes: stores of reservations, pods, libcni's cache, the
//! runtime.

use std::{collections::BTreeSet, net::IpAddr};

use super::{Lanes, MAX_ADDRESSES, MarkKind, counts};
use event::{
    Attachment, Netns, Pod, PodRef, ReservationHolder, RuntimeSandbox, Store, clock::Timestamp,
    wording::subjects::short_id,
};

impl Lanes {
    /// For whom an address is reserved.
    pub fn reservation(
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
    pub fn store(&mut self, store: &Store, time: Timestamp) {
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

    pub fn listed(&mut self, source: &str, pods: &[Pod], time: Timestamp) {
        self.pods = Some(source.to_owned());
        for pod in pods {
            self.terminates(pod, time);
        }
    }

    /// Marks the lanes of a pod that is on its way out.
    pub fn terminates(&mut self, pod: &Pod, time: Timestamp) {
        for uid in pod.uids.iter().filter(|_| pod.deletion.is_some()) {
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

    pub fn attached(&mut self, of: &Attachment, time: Timestamp) {
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
            if let Some(serial) = self.ids.get(&of.container_id).copied() {
                for ip in ips {
                    self.holds(serial, ip, Some(of.written), false);
                }
            }
        }
    }

    pub fn runs(&mut self, sandbox: &RuntimeSandbox, time: Timestamp) {
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
}
