//! What to do about a pod that gets no network, in order.

use crate::detect::{
    View,
    add_failed::Failed,
    cordon,
    facts::{calls::give_back, command::is_plain, ghosts},
    logged_of,
};
use diagnosis::Cause;
use event::wording::subjects::short_id;

impl Failed<'_> {
    /// In order.
    pub(super) fn advice(&self, view: &View<'_>) -> Vec<String> {
        let mut advice = Vec::new();
        match self.cause {
            Cause::AddressInUse => self.free_address(view, &mut advice),
            Cause::RangeExhausted => {
                advice.push(String::from(
                    "see what has the addresses: node-tracer scan (findings range-exhausted and \
                     leaked-reservation); give back only those that are leaked",
                ));
                advice.push(format!(
                    "until then keep new pods off the node: {}",
                    cordon(view)
                ));
            }
            cause => advice.extend(cause.advice_on_call(self.remedy).map(str::to_owned)),
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
                let is_ghost = ghosts::gone(view, entry).is_some();
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
