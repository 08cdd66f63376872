//! What to do about a ghost, in order: first keep it from doing more harm, then
//! end it, then clean up.

use crate::detect::{
    Command, cordon,
    facts::{common::label, ghosts::Ghost},
    fd_label,
    ghost_sandbox::{
        asleep,
        fate::{Case, Fate},
        ipam::Outlook,
        is_frozen,
        telling::GhostReport,
    },
    joined, release_advice, remove_sandbox,
};
use event::{finding::Phase, wording::subjects::task_label};

impl GhostReport<'_, '_> {
    pub(super) fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        let Ghost { entry, stuck, .. } = self.ghost;
        if self.phase >= Phase::Armed || self.coming().is_some() {
            let command = cordon(self.view);
            advice.push(format!("keep new pods off the node: {command}"));
        }
        if let Some(name) = self.coming().filter(|case| is_of_cluster(case)).map(name) {
            advice.push(format!(
                "be quick: {name} can give the address to a pod on any node, and cordoning this one \
                 does not keep it from that"
            ));
        }
        if let Some(first) = stuck.first() {
            advice.extend(release_advice(first));
        } else if let Some(task) = asleep(entry) {
            let tid = task.tid;
            advice.push(format!(
                "look again in a moment: if {} is still in state D then, it is stuck, and where \
                 shows in /proc/{tid}/stack",
                task_label(task),
            ));
        } else if is_frozen(entry) {
            advice.push(String::from(
                "thaw its tasks: they take no signal while their cgroup is frozen (the runtime's \
                 resume, or freezer.state and cgroup.freeze in the cgroup that /proc/PID/cgroup \
                 names); then remove the sandbox",
            ));
        } else if entry.task_count > 0 {
            advice.push(String::from(
                "find out why the runtime did not stop its tasks (journalctl -u containerd -u crio \
                 -u kubelet); if nothing needs them any more, end them: they take signals",
            ));
        } else if let Some(path) = entry.mounts.first() {
            advice.push(format!(
                "find out why the runtime did not unmount it; if crictl pods knows no sandbox of \
                 it: {}",
                Command::new("umount").word(path),
            ));
        } else if let Some(first) = entry.fds.first() {
            let (pid, fd) = (first.pid, first.fd);
            advice.push(format!(
                "look at {} (ls -l /proc/{pid}/fd/{fd}; ps -fp {pid}){}: once its process closes it \
                 or ends, the namespace goes; restart that daemon, and tell its makers that it \
                 leaks descriptors of sandboxes",
                fd_label(first),
                match entry.fds.len() {
                    1 => "",
                    _ => ", and the others under holders",
                },
            ));
        } else {
            advice.push(String::from(
                "find the process that has a socket in it: one that was in the namespace and has \
                 left it, as node agents and CNI daemons do; ending it releases the namespace",
            ));
        }
        for Case { address, fate, .. } in &self.cases {
            if let Fate::TakenBy(other, _) = fate {
                advice.push(format!(
                    "{} has {address} to itself again once the ghost is gone; do not delete it \
                     before: its reservation would go to the next pod",
                    label(self.view.model, other),
                ));
            }
        }
        self.advise_on_reservations(&mut advice);
        if let Some(id) = &entry.sandbox.id {
            advice.push(format!(
                "when the holder has gone, have the runtime finish: {}",
                remove_sandbox(id)
            ));
        }
        if !stuck.is_empty() {
            advice.push(String::from(
                "give this finding (-o json: stack, times, ids) to the storage or kernel team",
            ));
        }
        advice
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
                matches!(case.fate, Fate::Reserved(_)) && is_conflict != leak
            });
            wanted.map(|case| case.address)
        };
        if reserved(true).next().is_some() {
            advice.push(format!(
                "leave the reservation of {} where it is: without it the address is given to \
                 another pod while this one still has it",
                joined(reserved(true)),
            ));
        }
        if reserved(false).next().is_some() {
            advice.push(format!(
                "do not rely on the reservation of {}: it is taken away under the ghost",
                joined(reserved(false)),
            ));
        }
        let mut cases = self.cases.iter();
        if cases.any(|case| is_ahead(case) && case.outlook == Outlook::Leak) {
            advice.push(String::from(
                "when the namespace has gone, see that the address is given back (node-tracer scan: \
                 leaked-reservation): without CNI DEL it stays blocked, and the range is one \
                 address smaller",
            ));
        }
    }
}

/// Whether nothing has become of it yet.
fn is_ahead(case: &Case<'_>) -> bool {
    !matches!(case.fate, Fate::TakenBy(..) | Fate::Free(..))
}

fn is_of_cluster(case: &&Case<'_>) -> bool {
    let giver = case.giver.as_ref();
    giver.is_some_and(|giver| giver.ipam.is_of_cluster())
}

fn name<'a>(case: &'a Case<'_>) -> &'a str {
    case.giver.as_ref().map_or("", |giver| giver.ipam.name())
}
