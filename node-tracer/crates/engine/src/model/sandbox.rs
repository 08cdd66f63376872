//! What ties a network namespace to a pod: the cgroups of the tasks in it, and
//! the CNI calls that set it up.
//!
//! A CNI ADD says it outright. Cgroups say it less surely: an agent of another
//! pod (a CNI daemon, a mesh, a debugger) may have a thread in the namespace
//! for a while. So a namespace is given to a pod by cgroup only while no other
//! pod comes into question, and stays with it while one of its tasks is there.

use std::collections::BTreeSet;

use super::pods::{PodPresence, Pods};
use event::{Attachment, CniCall, PodRef, RuntimeSandbox, Task, clock::Timestamp};

/// Containers that are remembered of one sandbox.
const MAX_CONTAINERS: usize = 64;

/// What is known of a namespace as a pod's sandbox.
#[derive(Debug, Default)]
pub struct Sandbox {
    /// The pod. Without a UID no list can say anything about it.
    pub pod: Option<PodRef>,
    /// How and when the pod became known.
    pub known: Option<PodEvidence>,
    /// The sandbox's ID, from CNI ADD, the runtime or libcni's cache.
    pub id: Option<String>,
    /// The runtime or libcni's cache has this very namespace for the sandbox,
    /// or its address: more than a container with a task in it, which a
    /// namespace that the pod made for itself has, too.
    pub named: bool,
    /// Containers of the pod with tasks in it, the infra container among them.
    pub containers: BTreeSet<String>,
    /// When CNI ADD for it was first seen.
    pub add: Option<Timestamp>,
    /// The last CNI DEL for it that ended: one plugin's of a chain, never that
    /// of the loopback device.
    pub del: Option<CallEnd>,
    /// A CNI DEL for it that runs: its process, and since when.
    pub deleting: Option<(u32, Timestamp)>,
    /// What the pod lists say of the pod.
    pub presence: PodPresence,
    /// The earliest time at which the pod is known to have existed.
    existed: Option<Timestamp>,
}

/// How a namespace's pod became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodEvidence {
    /// By the cgroup of this task.
    Cgroup {
        pid: u32,
        /// When it was seen.
        at: Timestamp,
    },
    /// By libcni's cache of an ADD.
    Cache {
        /// When the ADD ended.
        at: Timestamp,
    },
    /// By the runtime's list or folders.
    Runtime {
        /// `cri` or `bundles`.
        source: &'static str,
        /// When it was listed.
        at: Timestamp,
    },
    /// By a CNI call.
    Cni {
        /// When it was made.
        at: Timestamp,
    },
}

impl PodEvidence {
    /// The source, as evidence names it.
    pub fn source(self) -> &'static str {
        match self {
            Self::Cgroup { .. } => "kernel",
            Self::Cache { .. } => "libcni",
            Self::Runtime { source, .. } => source,
            Self::Cni { .. } => "cni",
        }
    }
}

/// How a CNI call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEnd {
    pub at: Timestamp,
    /// Its exit status; `None` if a signal ended it, or that was not seen.
    pub exit_code: Option<i32>,
    /// It failed: by its exit status, by a signal, or as a log tells. Of one
    /// whose end was not seen that is not known.
    pub failed: bool,
}

impl Sandbox {
    /// The pod's UID, if it is known.
    pub fn uid(&self) -> Option<&str> {
        self.pod.as_ref()?.uid.as_deref()
    }

    /// Whether a container is known to be of this sandbox.
    pub fn has_container(&self, id: &str) -> bool {
        self.id.as_deref() == Some(id) || self.containers.contains(id)
    }

    /// Whether a task is of this sandbox's pod, by its cgroup.
    pub fn has_task(&self, task: &Task) -> bool {
        let by_uid = task.pod_uid.is_some() && task.pod_uid.as_deref() == self.uid();
        let container = task.container_id.as_deref();
        by_uid || container.is_some_and(|id| self.has_container(id))
    }

    /// A trusted ADD into the namespace. Calls of others than Kubernetes'
    /// runtimes (podman, nerdctl) name no pod.
    pub(super) fn note_add(&mut self, call: &CniCall, time: Timestamp) -> bool {
        let Some(pod) = call
            .pod
            .as_ref()
            .filter(|pod| pod.name.is_some() || pod.uid.is_some())
        else {
            return false;
        };
        if self.add.is_some() && self.id.as_deref() == Some(call.container_id.as_str()) {
            return false;
        }
        let mut pod = pod.clone();
        if pod.uid.is_none() {
            // Older runtimes do not pass it; the cgroup has it.
            pod.uid = self.uid().map(str::to_owned);
        }
        self.belong_to(Some(pod));
        self.known = Some(PodEvidence::Cni { at: time });
        self.id = Some(call.container_id.clone());
        self.add = Some(time);
        self.del = None;
        self.deleting = None;
        self.existed = Some(self.existed.map_or(time, |known| known.min(time)));
        true
    }

    /// The runtime lists it as its sandbox's namespace. A CNI ADD that was seen
    /// later tells more.
    pub(super) fn note_runtime(
        &mut self,
        sandbox: &RuntimeSandbox,
        source: &'static str,
        at: Timestamp,
    ) -> bool {
        let told = matches!(self.known, Some(PodEvidence::Cni { .. }));
        if told && self.id.as_deref() != Some(sandbox.id.as_str()) {
            return false;
        }
        let mut changed = false;
        if !told {
            let pod = Some(sandbox.pod.clone()).filter(|pod| pod.uid.is_some());
            if self.pod != pod && pod.is_some() {
                changed = true;
                self.belong_to(pod);
            }
            if self.id.as_deref() != Some(sandbox.id.as_str()) {
                changed = true;
                self.id = Some(sandbox.id.clone());
            }
            let known = PodEvidence::Runtime { source, at };
            changed |=
                !matches!(self.known, Some(PodEvidence::Runtime { source: s, .. }) if s == source);
            self.known = Some(known);
        }
        let room = MAX_CONTAINERS.saturating_sub(self.containers.len());
        for id in sandbox.ids().take(room) {
            changed |= self.containers.insert(id.to_owned());
        }
        self.exist_since(sandbox.created, at);
        changed
    }

    /// libcni remembers an ADD for it.
    pub(super) fn note_attachment(&mut self, attachment: &Attachment) -> bool {
        let since = Some(attachment.written);
        let told = matches!(
            self.known,
            Some(PodEvidence::Cni { .. } | PodEvidence::Runtime { .. })
        );
        let Some(pod) = attachment.pod.as_ref().filter(|_| !told) else {
            self.exist_since(since, attachment.written);
            return false;
        };
        let mut pod = pod.clone();
        pod.uid = pod.uid.or_else(|| self.uid().map(str::to_owned));
        let known =
            self.pod.as_ref() == Some(&pod) && self.id.as_deref() == Some(&attachment.container_id);
        if !known {
            self.belong_to(Some(pod));
            self.id = Some(attachment.container_id.clone());
            self.known = Some(PodEvidence::Cache {
                at: attachment.written,
            });
        }
        // After the pod, whose age it is.
        self.exist_since(since, attachment.written);
        !known
    }

    /// The namespace itself, or its address, is known to be the sandbox's.
    pub(super) fn note_named(&mut self) -> bool {
        !std::mem::replace(&mut self.named, true)
    }

    fn belong_to(&mut self, pod: Option<PodRef>) {
        let uid = pod.as_ref().and_then(|pod| pod.uid.as_deref());
        if uid != self.uid() {
            // What was another pod's says nothing of this one.
            self.presence = PodPresence::Unknown;
            self.existed = None;
            self.containers.clear();
            self.named = false;
        }
        self.pod = pod;
    }

    fn exist_since(&mut self, since: Option<Timestamp>, now: Timestamp) {
        let since = since.filter(|since| *since <= now);
        self.existed = self.existed.into_iter().chain(since).min();
    }

    /// A trusted DEL for the sandbox, started or ended. One of the loopback
    /// device takes nothing away.
    pub(super) fn note_del(
        &mut self,
        call: &CniCall,
        time: Timestamp,
        end: Option<CallEnd>,
    ) -> bool {
        if call.ifname == "lo" {
            return false;
        }
        match end {
            // The one that a plugin delegates to ends before that plugin.
            None if call.delegated && self.deleting.is_some() => {}
            None => self.deleting = Some((call.pid, time)),
            Some(end) => {
                if self.deleting.is_some_and(|(pid, _)| pid == call.pid) {
                    self.deleting = None;
                }
                if !call.delegated {
                    self.del = Some(end);
                }
            }
        }
        true
    }

    /// Tasks that are in the namespace.
    pub(super) fn note_tasks<'a>(
        &mut self,
        tasks: impl Iterator<Item = &'a Task>,
        pods: &Pods,
        time: Timestamp,
    ) -> bool {
        // An agent's pod uses the host's network and has no namespace of its own.
        let is_agent = |uid: &str| pods.pod(uid).is_some_and(|pod| pod.host_network);
        let tasks: Vec<(&str, &Task)> = tasks
            .filter_map(|task| Some((task.pod_uid.as_deref()?, task)))
            .filter(|(uid, _)| self.uid() == Some(uid) || !is_agent(uid))
            .collect();
        let mut changed = false;
        if self
            .uid()
            .is_none_or(|uid| tasks.iter().all(|(other, _)| *other != uid))
        {
            changed = self.belong(&tasks, time);
        }
        let Some(uid) = self.pod.as_ref().and_then(|pod| pod.uid.clone()) else {
            return changed;
        };
        for (_, task) in tasks.into_iter().filter(|(other, _)| *other == uid) {
            if let Some(id) = &task.container_id
                && self.containers.len() < MAX_CONTAINERS
            {
                changed |= self.containers.insert(id.clone());
            }
            if let Some(started) = task.started.filter(|started| *started <= time)
                && self.existed.is_none_or(|known| started < known)
            {
                self.existed = Some(started);
            }
        }
        changed
    }

    /// Gives the namespace to the one pod whose tasks are in it.
    fn belong(&mut self, tasks: &[(&str, &Task)], time: Timestamp) -> bool {
        let is_told = |known: Option<PodEvidence>| {
            matches!(
                known,
                Some(
                    PodEvidence::Cni { .. }
                        | PodEvidence::Runtime { .. }
                        | PodEvidence::Cache { .. }
                )
            )
        };
        let pod_is_told = is_told(self.known) && self.uid().is_some();
        // A thread that is in another namespace than its process is a guest.
        let mut leaders = tasks
            .iter()
            .filter(|(_, task)| task.pid == task.tid)
            .peekable();
        let guests = leaders.peek().is_none();
        let candidates = tasks
            .iter()
            .filter(|(_, task)| guests || task.pid == task.tid);
        let uids: BTreeSet<&str> = candidates.clone().map(|(uid, _)| *uid).collect();
        let Some((uid, task)) = candidates.into_iter().next() else {
            return false;
        };
        if pod_is_told || uids.len() != 1 {
            return false;
        }
        let told = self.pod.take().filter(|_| is_told(self.known));
        self.pod = Some(PodRef {
            uid: Some((*uid).to_owned()),
            ..told.unwrap_or_default()
        });
        self.presence = PodPresence::Unknown;
        if !is_told(self.known) {
            self.known = Some(PodEvidence::Cgroup {
                pid: task.pid,
                at: time,
            });
            self.containers.clear();
            self.existed = None;
        }
        true
    }

    /// Looks the pod up in the lists; `seen` is when the namespace was first
    /// heard of. Returns whether the answer is another one.
    pub(super) fn stand(&mut self, pods: &Pods, seen: Timestamp) -> bool {
        let Some(uid) = self.uid() else {
            return false;
        };
        let existed = self.existed.map_or(seen, |existed| existed.min(seen));
        let mut presence = pods.presence(uid, existed);
        if let (PodPresence::Unlisted(known), PodPresence::Unlisted(_)) = (self.presence, presence)
        {
            // It is missing since the first list that could have had it.
            presence = PodPresence::Unlisted(known);
        }
        std::mem::replace(&mut self.presence, presence) != presence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::{Pod, testing::*};

    fn note(sandbox: &mut Sandbox, tasks: &[Task], pods: &Pods) -> Option<String> {
        sandbox.note_tasks(tasks.iter(), pods, s(1));
        sandbox.uid().map(str::to_owned)
    }

    #[test]
    fn a_namespace_is_the_pods_whose_tasks_are_in_it() {
        let mut sandbox = Sandbox::default();
        let tasks = [task(1, "systemd"), pod_task(7, "pause", OLD, "sandbox-old")];
        assert_eq!(note(&mut sandbox, &tasks, &Pods::default()).unwrap(), OLD);
        assert!(sandbox.has_container("sandbox-old"));
    }

    #[test]
    fn while_two_pods_come_into_question_it_is_nobodys() {
        let mut sandbox = Sandbox::default();
        let tasks = [
            pod_task(7, "pause", OLD, "a"),
            pod_task(8, "agent", NEW, "b"),
        ];
        assert_eq!(note(&mut sandbox, &tasks, &Pods::default()), None);
        assert_eq!(
            note(&mut sandbox, &tasks[..1], &Pods::default()).unwrap(),
            OLD
        );
        assert_eq!(
            note(&mut sandbox, &tasks, &Pods::default()).unwrap(),
            OLD,
            "it stays"
        );
    }

    #[test]
    fn an_agent_is_a_guest() {
        let mut sandbox = Sandbox::default();
        let thread = Task {
            tid: 99,
            ..pod_task(8, "multus", NEW, "b")
        };
        let tasks = [thread.clone(), pod_task(7, "pause", OLD, "a")];
        assert_eq!(note(&mut sandbox, &tasks, &Pods::default()).unwrap(), OLD);
        let mut pods = Pods::default();
        let agent = Pod {
            host_network: true,
            ..pod("agent", NEW, &[])
        };
        pods.listed("pods", s(1), None, false, &[agent]);
        assert_eq!(note(&mut Sandbox::default(), &[thread], &pods), None);
    }

    #[test]
    fn cni_is_believed_over_cgroups() {
        let mut sandbox = Sandbox::default();
        note(
            &mut sandbox,
            &[pod_task(8, "agent", NEW, "b")],
            &Pods::default(),
        );
        sandbox.note_add(&call("ADD", "sandbox-old", 100, OLD, "a"), s(2));
        let uid = note(
            &mut sandbox,
            &[pod_task(8, "agent", NEW, "b")],
            &Pods::default(),
        );
        assert_eq!(uid.unwrap(), OLD);
        assert_eq!(sandbox.id.as_deref(), Some("sandbox-old"));
    }

    #[test]
    fn an_add_without_uid_gets_it_from_the_cgroup() {
        let mut sandbox = Sandbox::default();
        let mut add = call("ADD", "sandbox-old", 100, OLD, "a");
        add.pod.as_mut().unwrap().uid = None;
        sandbox.note_add(&add, s(2));
        assert_eq!(sandbox.uid(), None);
        let tasks = [pod_task(7, "pause", OLD, "sandbox-old")];
        assert_eq!(note(&mut sandbox, &tasks, &Pods::default()).unwrap(), OLD);
        assert_eq!(sandbox.pod.unwrap().label(), "shop/a");
    }

    #[test]
    fn a_del_runs_until_the_plugin_itself_has_ended() {
        let mut sandbox = Sandbox::default();
        let end = |at| {
            Some(CallEnd {
                at,
                exit_code: Some(0),
                failed: false,
            })
        };
        let bridge = call("DEL", "sandbox-old", 100, OLD, "a");
        let mut host_local = bridge.clone();
        (host_local.pid, host_local.delegated) = (bridge.pid + 1, true);
        sandbox.note_del(&bridge, s(2), None);
        sandbox.note_del(&host_local, s(3), None);
        sandbox.note_del(&host_local, s(4), end(s(4)));
        assert_eq!(sandbox.deleting, Some((bridge.pid, s(2))));
        sandbox.note_del(&bridge, s(5), end(s(5)));
        assert_eq!(sandbox.deleting, None);
    }

    #[test]
    fn a_del_of_the_loopback_device_is_none_of_the_sandbox() {
        let mut sandbox = Sandbox::default();
        let mut lo = call("DEL", "sandbox-old", 100, OLD, "a");
        lo.ifname = String::from("lo");
        let end = CallEnd {
            at: s(3),
            exit_code: Some(0),
            failed: false,
        };
        assert!(!sandbox.note_del(&lo, s(2), None));
        assert!(!sandbox.note_del(&lo, s(3), Some(end)));
        assert_eq!((sandbox.deleting, sandbox.del), (None, None));
    }

    #[test]
    fn what_names_a_namespace_as_one_pods_does_not_name_it_as_anothers() {
        let mut its = Sandbox::default();
        its.note_runtime(&sandbox("sandbox-old", 100, OLD), "cri", s(1));
        assert!(its.note_named());
        assert!(!its.note_named(), "it is no news");
        its.note_runtime(&sandbox("sandbox-old", 100, OLD), "cri", s(2));
        assert!(its.named);
        its.note_runtime(&sandbox("sandbox-new", 100, NEW), "cri", s(3));
        assert!(!its.named);
    }

    #[test]
    fn a_call_that_names_no_pod_makes_no_sandbox() {
        let mut sandbox = Sandbox::default();
        let mut add = call("ADD", "podman-1", 100, OLD, "a");
        add.pod = None;
        assert!(!sandbox.note_add(&add, s(2)));
        assert_eq!((sandbox.pod, sandbox.id), (None, None));
    }
}
