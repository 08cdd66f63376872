//! What to do about a pod that gets no network, in order.

use super::{Complaint, Failed};
use crate::detect::{
    View, calls::give_back, cordon, ghost_sandbox, leaked_reservation::is_plain, logged_of,
};
use event::wording::subjects::short_id;

impl Failed<'_> {
    /// In order.
    pub(super) fn advice(&self, view: &View<'_>) -> Vec<String> {
        let mut advice = Vec::new();
        match self.complaint {
            Complaint::AddressInUse => self.free_address(view, &mut advice),
            Complaint::RangeExhausted => {
                advice.push(String::from(
                    "see what has the addresses: node-tracer scan (findings range-exhausted and \
                     leaked-reservation); give back only those that are leaked",
                ));
                advice.push(format!(
                    "until then keep new pods off the node: {}",
                    cordon(view)
                ));
            }
            complaint => advice.extend(complaint.remedy(&self.failing.plugin)),
        }
        if advice.is_empty() {
            advice.push(format!(
                "mend what {} complains of; the kubelet tries again by itself",
                self.failing.plugin
            ));
        }
        let id = &self.failing.last_id;
        if is_plain(id) {
            advice.push(format!(
                "the whole story of the last try: {}",
                logged_of(id)
            ));
        }
        advice
    }

    fn free_address(&self, view: &View<'_>, advice: &mut Vec<String>) {
        for rival in &self.rivals {
            let address = rival.address;
            if let Some(entry) = rival.entries.first() {
                let is_ghost = ghost_sandbox::gone(view, entry).is_some();
                advice.push(match is_ghost {
                    true => format!(
                        "{address} is free when netns {} is gone: the finding ghost-sandbox on it \
                         says what keeps it and how to end that",
                        entry.id.inode
                    ),
                    false => format!(
                        "see whose {address} should be: node-tracer explain {address}; two of what \
                         lives want it"
                    ),
                });
                continue;
            }
            let Some((holder, _)) = rival.reservation.filter(|_| !rival.is_own) else {
                advice.push(match rival.is_own {
                    true => format!(
                        "{address} is reserved for this sandbox itself, from an ADD before; a DEL \
                         of it, or a new sandbox, mends that"
                    ),
                    false => format!(
                        "find out who answers for {address} on the network: arping -D -I DEVICE \
                         {address}; and what the IPAM's own records say of it"
                    ),
                });
                continue;
            };
            let lives = view.model.runtime.shows(&holder.container_id).is_some();
            let command = give_back(view.model, holder);
            advice.push(match (lives, command) {
                (false, Some(command)) => format!(
                    "if neither crictl pods nor /proc/[0-9]*/cgroup knows {}, give its reservation \
                     back: {command}",
                    match holder.container_id.as_str() {
                        "" => "anything that has it",
                        id => short_id(id),
                    }
                ),
                _ => format!(
                    "give the pod another address, or end what has {address}: node-tracer explain \
                     {address}"
                ),
            });
        }
        if self.rivals.is_empty() {
            advice.push(String::from(
                "see which addresses are held by what should be gone: node-tracer scan",
            ));
        }
        advice.push(format!(
            "until then keep new pods off the node: {}",
            cordon(view)
        ));
    }
}

impl Complaint {
    /// What to do about it, whatever was called.
    pub(in crate::detect) fn remedy(self, plugin: &str) -> Option<String> {
        let text = match self {
            Self::AddressInUse | Self::RangeExhausted | Self::Other => return None,
            Self::PortInUse => String::from(
                "find who listens on the host's port (ss -ltnup), and end it or give the pod \
                 another hostPort",
            ),
            Self::NameConflict => String::from(
                "find what has that name already: ip -d link show on the node and, with nsenter, in \
                 the pod's namespace; what an older plugin or configuration has left can be \
                 deleted once nothing uses it",
            ),
            Self::NetnsGone => String::from(
                "see why the sandbox ended so early: dmesg | grep -i -e oom -e killed, and the \
                 runtime's log; a memory limit that is too small for the pause container does it",
            ),
            Self::PluginMissing => String::from(
                "install the binary that the message names in the folder that it names (usually \
                 /opt/cni/bin), in the version of the others",
            ),
            Self::AgentUnreachable => format!(
                "see whether the daemon that {plugin} needs runs on this node, and why not: crictl \
                 ps -a; its pods in kube-system"
            ),
            Self::ApiUnreachable => String::from(
                "see from this node whether the address in the message answers (curl -k), and \
                 whether kube-proxy or what stands for it runs here",
            ),
            Self::Unauthorized => format!(
                "renew the credentials of {plugin}: restarting its daemon's pod on this node writes \
                 a new kubeconfig in most cases; look at the node's clock, too"
            ),
            Self::NoSpace => String::from(
                "make room: df -h and df -i of /, /run and /var/lib; host-local can have left an \
                 empty reservation file, which node-tracer scan names",
            ),
            Self::NoMemory => String::from("see what has the memory: free -m; dmesg | tail"),
            Self::Timeout | Self::Killed => format!(
                "find out what {plugin} waited for: a server that does not answer, a lock, a disk; \
                 node-tracer scan shows tasks that are stuck"
            ),
            Self::TryLater => format!(
                "wait; if it does not end by itself, see why {plugin} is not ready: its daemon's \
                 log on this node"
            ),
            Self::BadConfig => format!(
                "see what {plugin} does not like in /etc/cni/net.d: a version that it does not \
                 know, or a field"
            ),
        };
        Some(text)
    }
}
