//! How to give leaked reservations back without taking one from a pod that
//! runs.

use crate::detect::{
    Command,
    facts::command::{AWAY, is_plain, move_away},
    logged_of, shell_word,
};

use super::{Leak, TOLD};
use event::{Reservation, StoreKind, wording::subjects::short_id};

impl Leak<'_, '_> {
    /// In order.
    pub(super) fn advice(&self) -> Vec<String> {
        let path = shell_word(&self.store().path);
        if self.judge.is_blind() {
            return vec![String::from(
                "leave them where they are: a network namespace that could not be found or read \
                 may have their addresses; scan again, and see in the first lines what could not \
                 be read and why",
            )];
        }
        if self.judge.is_half_seen() {
            return vec![String::from(
                "leave them where they are until what is unknown here is known: what could not be \
                 read may show that they are in use",
            )];
        }
        if self.store().kind != StoreKind::HostLocal {
            return self.advice_of_others();
        }
        if self.is_left_over() {
            return vec![format!(
                "nothing has to be done: no configured network gives these addresses out; if the \
                 runtime uses no other configuration either, the folder can go: {}",
                Command::new("mv").word(&self.store().path).own(AWAY)
            )];
        }
        let mut advice = Vec::new();
        let kept: usize = self.live.values().sum::<usize>() + self.young;
        if kept > 0 {
            advice.push(format!(
                "do not empty the folder (rm -f {path}/*): {kept} of the reservations in it are in \
                 use, and without them their addresses are given out a second time"
            ));
        }
        let network = self.view.model.cni.network_of(&self.store().path);
        if network.is_some_and(|network| network.plugin == "antrea") {
            advice.push(String::from(
                "Antrea's agent gives back what no pod has each time it starts; the node's pods \
                 keep their network meanwhile:",
            ));
            let command = "kubectl -n kube-system delete pod -l component=antrea-agent";
            advice.push(self.of_node(command).to_string());
            return advice;
        }
        let first = self.first_id();
        advice.extend(first.map(look_once_more));
        let mut commands = self
            .leaked
            .iter()
            .filter_map(|each| self.command(each))
            .peekable();
        if commands.peek().is_some() {
            advice.push(String::from(
                "then move the file away, under host-local's own lock and only if it still says \
                 the same:",
            ));
            advice.extend(commands.take(TOLD));
        }
        if self.leaked.len() > TOLD {
            advice.push(format!(
                "and so on with the other {}: -o json has them under reservations",
                self.leaked.len() - TOLD
            ));
        }
        advice.extend(first.map(find_out_why));
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

    fn command(&self, each: &Reservation) -> Option<String> {
        move_away(&self.store().path, &each.holder)
    }
}

/// A container of that ID must not be there.
pub(super) fn look_once_more(id: &str) -> String {
    let short = short_id(id);
    format!(
        "look once more before each: neither crictl pods --id {short} nor grep -rl {short} \
         /proc/[0-9]*/cgroup may print anything"
    )
}

/// What has led to it goes on.
pub(super) fn find_out_why(id: &str) -> String {
    format!(
        "find out why CNI DEL did not give them back, or there will be more: {}",
        logged_of(id)
    )
}
