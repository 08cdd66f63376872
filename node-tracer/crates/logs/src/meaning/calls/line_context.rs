//! What lines have told of sandboxes and pods, for lines that tell less.

use std::collections::{BTreeMap, VecDeque};

use super::{About, Verb};
use event::{PodRef, clock::Timestamp};

/// Sandboxes at most; the one that was first told of makes room.
const MAX_SANDBOXES: usize = 4_096;
/// Pods at most, the same way.
const MAX_PODS: usize = 4_096;

#[derive(Debug, Default)]
pub(in super::super) struct LineContext {
    sandboxes: Bounded<About>,
    /// UID of the latest pod of a name.
    uids: Bounded<String>,
    /// When something was last asked of the runtime.
    asked: Bounded<Timestamp>,
}

/// A table in which the first makes room.
#[derive(Debug)]
struct Bounded<T> {
    by_key: BTreeMap<String, T>,
    order: VecDeque<String>,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T> Bounded<T> {
    fn put(&mut self, key: &str, value: T, max: usize) {
        if self.by_key.insert(key.to_owned(), value).is_some() {
            return;
        }
        self.order.push_back(key.to_owned());
        while self.order.len() > max
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
        }
    }
}

impl About {
    /// Takes in what another line tells besides.
    pub(super) fn fill(&mut self, other: &Self) {
        let Self {
            container_id: _,
            pod,
            ifname,
            netns_path,
            plugin,
            pid: _,
            caller,
        } = other;
        if self.pod.name.is_none() {
            self.pod.name.clone_from(&pod.name);
            self.pod.namespace.clone_from(&pod.namespace);
        }
        let fill = |own: &mut Option<String>, new: &Option<String>| {
            if own.is_none() {
                own.clone_from(new);
            }
        };
        fill(&mut self.pod.uid, &pod.uid);
        fill(&mut self.ifname, ifname);
        fill(&mut self.netns_path, netns_path);
        fill(&mut self.plugin, plugin);
        fill(&mut self.caller, caller);
    }
}

impl LineContext {
    /// The pod of a sandbox.
    pub(in super::super) fn pod_of(&self, container_id: &str) -> Option<&PodRef> {
        let known = self.sandboxes.by_key.get(container_id);
        known.map(|about| &about.pod)
    }

    /// A sandbox of a pod, by its name.
    pub(in super::super) fn sandbox_of(&self, pod: &PodRef) -> Option<String> {
        let name = key(pod)?;
        let order = self.sandboxes.order.iter().rev();
        let is_its = |id: &&String| {
            let about = self.sandboxes.by_key.get(*id);
            about.is_some_and(|about| key(&about.pod).as_ref() == Some(&name))
        };
        order.clone().find(is_its).cloned()
    }

    /// A pod's UID. A pod of the same name that comes later has another.
    pub(in super::super) fn note_pod(&mut self, pod: &PodRef) {
        if let (Some(name), Some(uid)) = (key(pod), &pod.uid) {
            self.uids.put(&name, uid.clone(), MAX_PODS);
        }
    }

    /// The UID of the latest pod of a name.
    pub(in super::super) fn uid(&self, pod: &PodRef) -> Option<String> {
        let own = pod.uid.clone();
        own.or_else(|| self.uids.by_key.get(&key(pod)?).cloned())
    }

    pub(in super::super) fn note_sandbox(&mut self, container_id: &str, pod: &PodRef) {
        self.note_pod(pod);
        self.put(&About {
            container_id: container_id.to_owned(),
            pod: pod.clone(),
            ..About::default()
        });
    }

    /// Something was asked of the runtime, for a sandbox or a pod.
    pub(in super::super) fn note_asked(&mut self, subject: &str, time: Timestamp) {
        self.asked.put(subject, time, MAX_PODS);
    }

    /// When it last was.
    pub(in super::super) fn asked(&self, subject: &str) -> Option<Timestamp> {
        self.asked.by_key.get(subject).copied()
    }

    /// What a line says of a call.
    pub(super) fn note(&mut self, about: &About, verb: Verb) {
        let mut about = about.clone();
        // Of two pods of a name it is the later that is being set up.
        if verb == Verb::Add && about.pod.uid.is_none() {
            about.pod.uid = self.uid(&about.pod);
        }
        // The first DEL has one, and the second has not.
        about.netns_path = None;
        self.put(&about);
    }

    fn put(&mut self, about: &About) {
        let known = self.sandboxes.by_key.get_mut(&about.container_id);
        match known {
            Some(known) => known.fill(about),
            None => {
                let id = &about.container_id;
                self.sandboxes.put(id, about.clone(), MAX_SANDBOXES);
            }
        }
    }

    /// Fills in what other lines have told of the sandbox.
    pub(super) fn complete(&self, about: &mut About) {
        if let Some(known) = self.sandboxes.by_key.get(&about.container_id) {
            let caller = about.caller.clone();
            about.fill(known);
            about.caller = caller;
        }
    }
}

fn key(pod: &PodRef) -> Option<String> {
    let (namespace, name) = (pod.namespace.as_ref()?, pod.name.as_ref()?);
    Some(format!("{namespace}/{name}"))
}
