//! What to do about a pod that gets no network, in order.

use crate::detect::{
    Command, View,
    add_failed::Failed,
    cordon,
    facts::{calls::is_host_locals, command::is_plain, ghosts},
    logged_of, repair, uncordon,
};
use diagnosis::Cause;
use event::wording::advice::commented;

impl Failed<'_> {
    /// In order.
    pub(super) fn advice(&self, view: &View<'_>) -> Vec<String> {
        let mut advice = Vec::new();
        let is_cordoned = matches!(self.cause, Cause::AddressInUse | Cause::RangeExhausted);
        if is_cordoned {
            advice.push(cordon(view));
        }
        match self.cause {
            Cause::AddressInUse => self.free_address(view, &mut advice),
            Cause::RangeExhausted => {
                advice.push(String::from(
                    "free only what is leaked: see range-exhausted and leaked-reservation",
                ));
                advice.push(commented("node-tracer scan", "what has the IPs"));
            }
            cause => {
                let steps = cause.advice_on_call(self.remedy).iter();
                advice.extend(steps.map(ToString::to_string));
            }
        }
        if advice.is_empty() {
            advice.push(format!(
                "mend what {} complains of; the kubelet tries again by itself",
                self.failing.plugin
            ));
        }
        let id = &self.failing.last_id;
        if is_plain(id) {
            advice.push(commented(logged_of(id), "the log of the last try"));
        }
        if is_cordoned {
            advice.push(uncordon(view, "the pod has its network"));
        }
        advice
    }

    fn free_address(&self, view: &View<'_>, advice: &mut Vec<String>) {
        for other_owner in &self.other_owners {
            let address = other_owner.address;
            let explain = Command::new("node-tracer explain").word(address.to_string());
            if let Some(entry) = other_owner.entries.first() {
                let is_ghost = ghosts::gone(view, entry).is_some();
                advice.push(match is_ghost {
                    true => format!(
                        "{address} is free when netns {} is gone: its ghost-sandbox finding says \
                         what to do",
                        entry.id.inode
                    ),
                    false => format!("find out which of the two owns {address}; both live"),
                });
                advice.push(commented(explain, "who has it"));
                continue;
            }
            let Some((holder, _)) = other_owner.reservation.filter(|_| !other_owner.is_own) else {
                match other_owner.is_own {
                    true => advice.push(format!(
                        "{address} is reserved for this sandbox by an ADD before; its DEL or a new \
                         sandbox mends that"
                    )),
                    false => {
                        advice.push(format!(
                            "find out who answers for {address} on the network, and what the \
                             IPAM's records say"
                        ));
                        let arping = Command::new("arping -D -c 3 -I DEVICE");
                        let arping = arping.word(address.to_string());
                        advice.push(commented(arping, "fill in DEVICE, an answer names the MAC"));
                    }
                }
                continue;
            };
            let lives = view.model.runtime.shows(&holder.container_id).is_some();
            match !lives && is_host_locals(view.model, holder) {
                true => advice.extend(repair()),
                false => {
                    advice.push(format!(
                        "end what has {address}, or give the pod another IP"
                    ));
                    advice.push(commented(explain, "who has it"));
                }
            }
        }
        if self.other_owners.is_empty() {
            advice.push(commented(
                "node-tracer scan",
                "what holds IPs and should be gone",
            ));
        }
    }
}
