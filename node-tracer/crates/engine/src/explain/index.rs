//! The model's tables by what an explanation looks for: built once, so that
//! following relations costs no more than what is found.

use std::{collections::HashMap, path::Path};

use crate::model::{Model, attachment::ListedStore, netns::NetnsEntry, runtime::SandboxList};
use event::{Reservation, RuntimeSandbox, Task};

pub(super) struct Index<'a> {
    pub(super) model: &'a Model,
    /// Network namespaces, living ones first.
    pub(super) entries: Vec<&'a NetnsEntry>,
    by_uid: HashMap<&'a str, Vec<&'a NetnsEntry>>,
    by_container: HashMap<&'a str, Vec<&'a NetnsEntry>>,
    reservations: HashMap<&'a str, Vec<(&'a ListedStore, &'a Reservation)>>,
}

impl<'a> Index<'a> {
    /// Of all that is known.
    pub(super) fn new(model: &'a Model) -> Self {
        let dying = model.netns.all_dying().map(|(entry, _)| entry);
        let entries: Vec<_> = model.netns.live().chain(dying).collect();
        let mut index = Self {
            model,
            entries,
            by_uid: HashMap::new(),
            by_container: HashMap::new(),
            reservations: HashMap::new(),
        };
        for entry in index.entries.iter().copied().filter(|entry| !entry.host) {
            if let Some(uid) = entry.sandbox.uid() {
                index.by_uid.entry(uid).or_default().push(entry);
            }
            for id in containers(entry) {
                index.by_container.entry(id).or_default().push(entry);
            }
        }
        for listed in model.cni.stores() {
            for reservation in &listed.store.reservations {
                let id = reservation.holder.container_id.as_str();
                let there = index.reservations.entry(id);
                there.or_default().push((listed, reservation));
            }
        }
        index
    }

    /// Namespaces of a pod.
    pub(super) fn of_uid(&self, uid: &str) -> &[&'a NetnsEntry] {
        self.by_uid.get(uid).map_or(&[], Vec::as_slice)
    }

    /// Namespaces of a sandbox, or with a container's tasks in them.
    pub(super) fn of_container(&self, id: &str) -> &[&'a NetnsEntry] {
        self.by_container.get(id).map_or(&[], Vec::as_slice)
    }

    /// Reservations for a container.
    pub(super) fn reservations_for(&self, id: &str) -> &[(&'a ListedStore, &'a Reservation)] {
        self.reservations.get(id).map_or(&[], Vec::as_slice)
    }

    /// Sandboxes in every list.
    pub(super) fn sandboxes(&self) -> impl Iterator<Item = (&'a SandboxList, &'a RuntimeSandbox)> {
        let lists = self.model.runtime.lists();
        lists.flat_map(|list| list.sandboxes().map(move |sandbox| (list, sandbox)))
    }

    /// Tasks that are known by name: in namespaces, and stuck ones.
    pub(super) fn tasks(&self) -> impl Iterator<Item = (&'a Task, Option<&'a NetnsEntry>)> {
        let inside = self.entries.iter();
        let inside = inside.flat_map(|entry| entry.tasks.iter().map(|task| (task, Some(*entry))));
        let model = self.model;
        let stuck = model.blocked.iter().map(move |blocked| {
            let entry = blocked.netns.and_then(|netns| model.netns.get(netns));
            (&blocked.task, entry)
        });
        inside.chain(stuck)
    }

    /// Every container ID that anything names, with what it is there; the same
    /// ID comes as often as it is named, what tells most first.
    pub(super) fn container_ids(&self) -> Vec<(&'a str, String)> {
        let mut ids = Vec::new();
        for (list, sandbox) in self.sandboxes() {
            let pod = sandbox.pod.label();
            let source = &list.source;
            ids.push((sandbox.id.as_str(), format!("sandbox of {pod}, {source}")));
            for container in &sandbox.containers {
                let name = match container.name.as_str() {
                    "" => String::from("container"),
                    name => format!("container {name}"),
                };
                ids.push((container.id.as_str(), format!("{name} of {pod}, {source}")));
            }
        }
        for entry in &self.entries {
            let pod = entry.sandbox.pod.as_ref().map(|pod| pod.label());
            let of = pod.map(|pod| format!(" of {pod}")).unwrap_or_default();
            let inode = entry.id.inode;
            let sandbox = entry.sandbox.id.as_deref();
            ids.extend(sandbox.map(|id| (id, format!("sandbox{of}, netns {inode}"))));
            let others = containers(entry).filter(|id| Some(*id) != sandbox);
            ids.extend(others.map(|id| (id, format!("container{of}, netns {inode}"))));
        }
        for attachment in self.model.cni.attachments() {
            let pod = attachment.pod.as_ref().map(|pod| pod.label());
            let of = pod.map(|pod| format!(" of {pod}")).unwrap_or_default();
            let id = attachment.container_id.as_str();
            ids.push((id, format!("sandbox{of}, libcni's cache")));
        }
        for (task, _) in self.tasks() {
            let id = task.container_id.as_deref();
            ids.extend(id.map(|id| (id, format!("container of {} ({})", task.comm, task.pid))));
        }
        for (source, known) in self.model.runtime.container_sources() {
            let what = format!("container, by its {source}");
            ids.extend(known.iter().map(|id| (id.as_str(), what.clone())));
        }
        for (id, reservations) in &self.reservations {
            if let Some((_, reservation)) = reservations.first() {
                ids.push((id, format!("reservation of {}", reservation.address)));
            }
        }
        ids
    }

    /// Whether anything was ever mounted, or is said to be, at a path.
    pub(super) fn at_path(&self, path: &Path) -> Vec<&'a NetnsEntry> {
        let there = |entry: &&&NetnsEntry| {
            let mut paths = entry.paths.iter().chain(&entry.mounts);
            paths.any(|other| super::subject::same_path(other, path))
        };
        self.entries.iter().filter(there).copied().collect()
    }
}

/// Containers that are known to be in a namespace. Where it is a pod's, a guest
/// of another pod does not count.
pub(super) fn containers(entry: &NetnsEntry) -> impl Iterator<Item = &str> {
    let sandbox = &entry.sandbox;
    let known = sandbox.id.as_deref().into_iter();
    let known = known.chain(sandbox.containers.iter().map(String::as_str));
    let guests = entry.tasks.iter().filter(|_| sandbox.pod.is_none());
    known.chain(guests.filter_map(|task| task.container_id.as_deref()))
}
