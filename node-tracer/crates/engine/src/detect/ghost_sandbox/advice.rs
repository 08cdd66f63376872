//! What to do about a ghost, in order: first keep it from doing more harm, then
//! end it, then clean up.

use crate::detect::{
    Command, answering, cordon,
    facts::{ghosts::Ghost, unused},
    ghost_sandbox::{
        address_state::{AddressState, Case},
        asleep,
        finding::GhostReport,
        ipam::Outlook,
        is_frozen,
        set_aside::set_aside,
    },
    joined, logged_of, pod_of, release_advice, repair, uncordon,
};
use event::{
    Task,
    finding::Phase,
    wording::{
        advice::{commented, is_harmless},
        subjects::{pod_word, task_label},
    },
};
use std::collections::BTreeSet;

/// Processes whose end is advised by their IDs.
const KILLED: usize = 8;
/// Tasks of others that are named.
const NAMED: usize = 3;

impl GhostReport<'_, '_> {
    pub(super) fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        let cases = self.cases.iter();
        let set_aside: Vec<_> = cases.filter_map(|it| set_aside(self.view, it)).collect();
        advice.extend(set_aside.iter().map(|it| it.step.clone()));
        let is_cordoned = self.phase >= Phase::Armed || self.coming().is_some();
        if is_cordoned {
            advice.push(cordon(self.view));
        }
        if let Some(name) = self.coming().filter(|case| is_of_cluster(case)).map(name) {
            advice.push(format!(
                "be quick: {name} can give the IP to a pod on any node, which cordon does not stop"
            ));
        }
        self.advise_on_reservations(&mut advice);
        self.advise_on_holder(&mut advice);
        if let Some(address) = self.ghost.addresses.first() {
            let command = Command::new("node-tracer explain").word(address.to_string());
            let comment = match self.victim_name() {
                Some(name) => format!("one holder left, do not delete {name} before that"),
                None => String::from("the ghost must no longer hold it"),
            };
            advice.push(commented(command, &comment));
        }
        let mut cases = self.cases.iter();
        if cases.any(|case| is_ahead(case) && case.outlook == Outlook::Leak) {
            advice.push(String::from(
                "when the ghost is gone and leaked-reservation shows its IP, give the IP back:",
            ));
            advice.extend(repair());
        }
        advice.extend(set_aside.into_iter().filter_map(|it| it.undo));
        if is_cordoned {
            advice.push(uncordon(self.view, "only one netns has the IP"));
        }
        advice
    }

    /// Who has the address now, and keeps it from a third pod: its end would free
    /// it. Only if the name does nothing in a shell.
    fn victim_name(&self) -> Option<String> {
        let name = pod_word(&pod_of(self.view.model, self.victim()?)?);
        is_harmless(&name).then_some(name)
    }

    /// What ends what holds the namespace open, and what removes the sandbox. The
    /// runtime ends its own tasks, unless they take no signal.
    fn advise_on_holder(&self, advice: &mut Vec<String>) {
        let entry = self.ghost.entry;
        let removal = unused::removal(self.view, entry);
        let is_listed = removal.is_some() && answering(self.view.model).is_some();
        if self.advise_on_hanging(advice) {
            let comment = "after the holder ends, not found: kubelet was first";
            advice.extend(removal.map(|removal| commented(removal, comment)));
        } else if entry.task_count > 0 {
            let comment = "ends its tasks and runs CNI DEL, not found: kubelet was first";
            advice.extend(removal.map(|removal| commented(removal, comment)));
            self.advise_on_tasks(is_listed, advice);
        } else {
            advice.extend(unused::release(self.view, entry));
        }
    }

    /// How to end what takes no signal; whether there is any.
    fn advise_on_hanging(&self, advice: &mut Vec<String>) -> bool {
        let Ghost { entry, stuck, .. } = self.ghost;
        if let Some(first) = stuck.first() {
            advice.extend(release_advice(first));
        } else if let Some(task) = asleep(entry) {
            let tid = task.tid;
            advice.push(format!(
                "look again in a moment: if {} is still in state D then, it is stuck",
                task_label(task),
            ));
            let command = format!("cat /proc/{tid}/stack");
            advice.push(commented(command, "where in the kernel it waits"));
        } else if is_frozen(entry) {
            advice.push(String::from(
                "thaw its tasks: their cgroup is frozen, and they take no signal until then",
            ));
            if let Some(task) = entry.tasks.first() {
                let command = format!("cat /proc/{}/cgroup", task.tid);
                advice.push(commented(command, "names the cgroup"));
            }
            advice.push(commented(
                "echo 0 > /sys/fs/cgroup/CGROUP/cgroup.freeze",
                "fill in CGROUP. With cgroup v1 write THAWED to its freezer.state",
            ));
        } else {
            return false;
        }
        true
    }

    /// How to end tasks that take signals. A program of the node can have a thread
    /// in the namespace: containerd has one for as long as `kubectl port-forward`
    /// runs. Only what is in a cgroup of the pod is the pod's.
    fn advise_on_tasks(&self, is_listed: bool, advice: &mut Vec<String>) {
        let sandbox = &self.ghost.entry.sandbox;
        let tasks = self.ghost.entry.tasks.iter();
        let (own, others): (Vec<&Task>, Vec<&Task>) =
            tasks.partition(|task| sandbox.has_task(task));
        if !own.is_empty() {
            advice.push(String::from(match is_listed {
                true => {
                    "see whether the kubelet runs: it has the runtime stop sandboxes of deleted pods"
                }
                false => {
                    "find out why the runtime did not stop its tasks; if nothing needs them, end \
                     them; signals work"
                }
            }));
        }
        if !others.is_empty() {
            let labels = others.iter().take(NAMED).map(|task| task_label(task));
            advice.push(format!(
                "do not just end {}: its cgroup is not known to be the pod's; a program of the \
                 node can have a thread in its netns (containerd during kubectl port-forward)",
                joined(labels),
            ));
        }
        if let Some(id) = &sandbox.id {
            advice.push(commented(
                logged_of(id),
                "what the kubelet and the runtime did with the sandbox",
            ));
        }
        let pids: BTreeSet<u32> = own.iter().map(|task| task.pid).collect();
        let pids: Vec<String> = pids.iter().take(KILLED).map(u32::to_string).collect();
        // A runtime that ends its tasks fails while they are killed.
        if !pids.is_empty() && !is_listed {
            let command = format!("kill -9 {}", pids.join(" "));
            advice.push(commented(command, "ends these processes of the old pod"));
        }
    }

    /// What is still reserved and goes back to the pool by itself.
    fn coming(&self) -> Option<&Case<'_>> {
        let mut cases = self.cases.iter();
        cases.find(|case| is_ahead(case) && matches!(case.outlook, Outlook::Conflict { .. }))
    }

    fn advise_on_reservations(&self, advice: &mut Vec<String>) {
        let reserved = |leak: bool| {
            let cases = self.cases.iter();
            let wanted = cases.filter(move |case| {
                let is_conflict = matches!(case.outlook, Outlook::Conflict { .. });
                matches!(case.fate, AddressState::Reserved(_)) && is_conflict != leak
            });
            wanted.map(|case| case.address)
        };
        if reserved(true).next().is_some() {
            advice.push(format!(
                "leave the reservation of {} where it is: without it another pod gets an IP that \
                 this one still has",
                joined(reserved(true)),
            ));
        }
        if reserved(false).next().is_some() {
            advice.push(format!(
                "do not rely on the reservation of {}: the IPAM frees it while the ghost lives",
                joined(reserved(false)),
            ));
        }
    }
}

/// Whether nothing has become of it yet.
fn is_ahead(case: &Case<'_>) -> bool {
    !matches!(
        case.fate,
        AddressState::TakenBy(..) | AddressState::Free(..)
    )
}

fn is_of_cluster(case: &&Case<'_>) -> bool {
    let allocator = case.allocator.as_ref();
    allocator.is_some_and(|allocator| allocator.ipam.is_of_cluster())
}

fn name<'a>(case: &'a Case<'_>) -> &'a str {
    case.allocator
        .as_ref()
        .map_or("", |allocator| allocator.ipam.name())
}
