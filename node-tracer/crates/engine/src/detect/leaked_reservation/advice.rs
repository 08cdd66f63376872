//! How to give leaked reservations back without taking one from a pod that
//! runs: never by hand in the store.

use crate::{
    detect::{crictl, facts::command::is_plain, logged_of, repair},
    model::Model,
};

use super::Leak;
use event::{
    StoreKind,
    wording::{advice::commented, subjects::short_id},
};

impl Leak<'_, '_> {
    /// In order.
    pub(super) fn advice(&self) -> Vec<String> {
        if self.judge.is_blind() {
            return vec![String::from(
                "leave them where they are: a netns that was not found or read may use their IPs; \
                 mend what unknown names, then scan again",
            )];
        }
        if self.judge.is_half_seen() {
            return vec![String::from(
                "leave them where they are until what unknown names is known: they may be in use",
            )];
        }
        if self.store().kind != StoreKind::HostLocal {
            return self.advice_of_others();
        }
        if self.is_left_over() {
            return vec![String::from(
                "nothing to do: no configured network gives these IPs out",
            )];
        }
        let mut advice = Vec::new();
        let kept: usize = self.live.values().sum::<usize>() + self.young;
        if kept > 0 {
            advice.push(format!(
                "never empty the directory: {kept} of its reservations are in use, and their IPs \
                 would be given out twice"
            ));
        }
        let network = self.view.model.cni.network_of(&self.store().path);
        if network.is_some_and(|network| network.plugin == "antrea") {
            advice.push(String::from(
                "restart Antrea's agent on this node: it frees what no pod has each time it starts",
            ));
            let command = "kubectl -n kube-system delete pod -l component=antrea-agent";
            advice.push(self.of_its_pods(command, "pods keep their network meanwhile"));
            return advice;
        }
        advice.extend(repair());
        advice.extend(self.first_id().map(find_out_why));
        advice
    }

    /// The oldest one's container that can be put into a command.
    pub(super) fn first_id(&self) -> Option<&str> {
        let mut ids = self
            .leaked
            .iter()
            .map(|each| each.holder.container_id.as_str());
        ids.find(|id| is_plain(id))
    }
}

/// A container of that ID must not be there.
pub(super) fn look_once_more(model: &Model, id: &str) -> [String; 2] {
    let short = short_id(id);
    [
        commented(crictl(model, "pods --id").id(id), "must print no sandbox"),
        commented(
            format!("grep -rls {short} /proc/[0-9]*/cgroup"),
            "must print nothing",
        ),
    ]
}

/// What has led to it goes on.
pub(super) fn find_out_why(id: &str) -> String {
    commented(logged_of(id), "why CNI DEL did not free them")
}
