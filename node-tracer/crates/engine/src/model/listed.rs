//! Lists: what runtimes, libcni and the stores of reservations have, taken in
//! whole or change by change, and tied to the namespaces.

use super::{Model, netns::NetnsEntry, resolve_owner};
use event::{Device, Netns, RuntimeSandbox, What, clock::Timestamp};

impl Model {
    /// Takes one of them in. Returns whether a verdict may depend on what has
    /// changed by it.
    pub(super) fn take_list(&mut self, time: Timestamp, what: &What) -> bool {
        match what {
            What::SandboxesListed {
                source,
                endpoint,
                runtime,
                partial,
                sandboxes,
            } => {
                let (runtime, partial) = (runtime.as_deref(), partial.as_deref());
                // It answers, whatever it did before.
                self.failed.remove(source);
                let listed = self
                    .runtime
                    .listed(source, endpoint, runtime, time, partial, sandboxes);
                listed && self.resolve_all_owners(time)
            }
            What::SandboxAdded { source, sandbox } => {
                self.runtime.added(source, time, sandbox);
                self.resolve_owners_of(sandbox, time)
            }
            What::SandboxRemoved { source, id } => self.runtime.removed(source, time, id),
            What::ContainersListed {
                source,
                partial,
                ids,
            } => {
                self.failed.remove(source);
                self.runtime.containers(source, partial.as_deref(), ids)
            }
            What::AttachmentsListed {
                folder,
                attachments,
                unread,
            } => {
                self.failed.remove("libcni");
                let listed = self
                    .cni
                    .attachments_listed(folder, time, attachments, unread);
                listed && self.resolve_all_owners(time)
            }
            What::NetworksListed { networks, unread } => {
                self.failed.remove("networks");
                self.cni.networks_listed(time, networks, unread)
            }
            What::MaxPods { limit } => {
                let limit = Some(limit.clone());
                std::mem::replace(&mut self.max_pods, limit.clone()) != limit
            }
            What::StoreListed { store } => {
                self.failed.remove(store.kind.as_str());
                self.cni.store_listed(store, time)
            }
            _ => false,
        }
    }

    /// Looks a namespace up in what runtimes and libcni's cache list.
    pub(super) fn resolve_owner(&mut self, netns: Netns, time: Timestamp) -> bool {
        let Some(entry) = self.netns.resolve(netns, time) else {
            return false;
        };
        let (runtime, cni) = (&self.runtime, &self.cni);
        resolve_owner::resolve(entry, runtime, cni, &self.host_ends, &self.pods, time)
    }

    /// The devices of a namespace: if it is the host's, one may be the other end
    /// of what nobody has named yet.
    pub(super) fn host_wired(&mut self, netns: Netns, time: Timestamp, devices: &[Device]) -> bool {
        let host = self.netns.get(netns).is_some_and(|entry| entry.host);
        if !host || !self.host_ends.set(devices) {
            return false;
        }
        let (runtime, cni) = (&self.runtime, &self.cni);
        let unnamed = self.netns.live_mut();
        let unnamed = unnamed.filter(|entry| entry.sandbox.id.is_none());
        unnamed.fold(false, |changed, entry| {
            resolve_owner::resolve(entry, runtime, cni, &self.host_ends, &self.pods, time) | changed
        })
    }

    /// Every one of them.
    fn resolve_all_owners(&mut self, time: Timestamp) -> bool {
        let (runtime, cni) = (&self.runtime, &self.cni);
        for entry in self.netns.live_mut() {
            resolve_owner::resolve(entry, runtime, cni, &self.host_ends, &self.pods, time);
        }
        true
    }

    /// Those that a sandbox may be in: a runtime that is started again tells
    /// of thousands.
    fn resolve_owners_of(&mut self, sandbox: &RuntimeSandbox, time: Timestamp) -> bool {
        let uid = sandbox.pod.uid.as_deref();
        let may_be = |entry: &NetnsEntry| {
            let there = sandbox
                .netns
                .is_some_and(|netns| netns.inode == entry.id.inode);
            let of_pod = uid.is_some() && uid == entry.sandbox.uid();
            there || of_pod || sandbox.ids().any(|id| entry.sandbox.has_container(id))
        };
        let (runtime, cni) = (&self.runtime, &self.cni);
        for entry in self.netns.live_mut().filter(|entry| may_be(entry)) {
            resolve_owner::resolve(entry, runtime, cni, &self.host_ends, &self.pods, time);
        }
        true
    }
}
