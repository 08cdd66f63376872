//! Commands of advice: they are pasted into a root's shell.
//!
//! What stands in them is either their own, which is written here, or foreign: a
//! name, a path, an ID, that somebody else has chosen. A [`Command`] takes the
//! one only as what the source code says, and quotes the other.

use event::wording::advice::{commented, shell_word};
use std::{
    fmt::{self, Write as _},
    path::Path,
};

use crate::{
    detect::{View, short_id, way_in},
    model::{Model, netns::NetnsEntry},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::detect) struct Command(String);

impl Command {
    /// It begins with its own words.
    pub(in crate::detect) fn new(own: &'static str) -> Self {
        Self(own.to_owned())
    }

    pub(in crate::detect) fn word(self, word: impl AsRef<Path>) -> Self {
        Self(format!("{self} {}", shell_word(word.as_ref())))
    }

    /// The same of a container's ID, as `crictl` shows it.
    pub(in crate::detect) fn id(self, id: &str) -> Self {
        self.word(short_id(id))
    }

    /// A foreign word behind an own one and a sign: `name=word`.
    pub(in crate::detect) fn value(self, name: &'static str, word: impl AsRef<Path>) -> Self {
        Self(format!("{self} {name}={}", shell_word(word.as_ref())))
    }

    /// More words of its own.
    pub(in crate::detect) fn own(mut self, own: &'static str) -> Self {
        // Writing to a text does not fail.
        let _written = write!(self.0, " {own}");
        self
    }

    /// And then another one, unless this one fails.
    pub(in crate::detect) fn and(self, next: &Self) -> Self {
        Self(format!("{self} && {next}"))
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The node in a command: its name in Kubernetes where that is known, by what it
/// was given or by a listed pod of it; otherwise what is to be filled in.
pub(in crate::detect) fn node_word<'v>(view: &'v View<'_>) -> Option<&'v str> {
    let node = view.settings.node.as_str();
    let listed = || {
        let list = view.model.pods.list();
        list.is_some_and(|list| list.names_node(node))
    };
    (view.settings.node_is_named || listed()).then_some(node)
}

/// A command that names the node. Where its name is not known, the comment says
/// that it is to be filled in.
fn of_node(view: &View<'_>, command: impl FnOnce(&str) -> Command, comment: &str) -> String {
    match node_word(view) {
        Some(node) => commented(command(node), comment),
        None => {
            let comment = format!("fill in the node name, see kubectl get nodes. {comment}");
            commented(command("NODE"), &comment)
        }
    }
}

/// Keeps new pods off the node, as far as that does.
pub(in crate::detect) fn cordon(view: &View<'_>) -> String {
    let cordon = |node: &str| Command::new("kubectl cordon").word(node);
    of_node(
        view,
        cordon,
        "DaemonSet, static and already bound pods still start",
    )
}

/// What undoes [`cordon`]; `when` completes "when ...".
pub(in crate::detect) fn uncordon(view: &View<'_>, when: &'static str) -> String {
    let uncordon = |node: &str| Command::new("kubectl uncordon").word(node);
    of_node(view, uncordon, &format!("when {when}"))
}

/// What `kubectl` does to the node's pods alone, and `rest` of the line.
pub(in crate::detect) fn of_its_pods(
    view: &View<'_>,
    command: &'static str,
    rest: impl FnOnce(Command) -> Command,
    comment: &str,
) -> String {
    let command = Command::new(command).own("--field-selector");
    of_node(
        view,
        |node| rest(command.value("spec.nodeName", node)),
        comment,
    )
}

/// A command in a namespace; `None` if there is no way in. What is pasted is
/// pasted on the node.
pub(in crate::detect) fn inside(entry: &NetnsEntry, command: &Command) -> Option<Command> {
    if entry.host {
        return Some(command.clone());
    }
    let way = way_in(entry)?;
    Some(Command(format!("nsenter {way} {command}")))
}

/// `crictl` with the socket of the runtime that has told its sandboxes, unless
/// that is the one which crictl asks first. Of several nobody says whose a
/// sandbox is.
pub(in crate::detect) fn crictl(model: &Model, own: &'static str) -> Command {
    const FIRST: &str = "unix:///run/containerd/containerd.sock";
    let told = model.runtime.cri().map(|list| list.endpoint.as_str());
    match told.filter(|it| it.starts_with("unix://") && *it != FIRST && !it.contains(", ")) {
        Some(endpoint) => Command::new("crictl -r").word(endpoint).own(own),
        None => Command::new("crictl").own(own),
    }
}

/// Has the runtime end a sandbox.
pub(in crate::detect) fn remove_sandbox(model: &Model, id: &str) -> Command {
    crictl(model, "stopp")
        .id(id)
        .and(&crictl(model, "rmp").id(id))
}

/// What the kubelet and the runtimes have logged of a container.
pub(in crate::detect) fn logged_of(id: &str) -> Command {
    Command::new("journalctl -u kubelet -u containerd -u crio | grep").id(id)
}

/// What gives leaked reservations back: it looks twice, takes the IPAM's own
/// lock, asks again, and keeps a copy.
pub(in crate::detect) fn repair() -> [String; 2] {
    [
        commented(
            "node-tracer repair --plan plan.json",
            "takes a minute, changes nothing",
        ),
        commented(
            "node-tracer repair --apply plan.json",
            "locks, rechecks, keeps a backup",
        ),
    ]
}

/// What the CNI specification allows in a container's ID.
pub(in crate::detect) fn is_plain(id: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"_.-".contains(&c);
    id.bytes().all(plain) && id.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::What;

    #[test]
    fn a_foreign_word_stays_one_word() {
        for (word, written) in [
            ("/run/netns/cni-1", "/run/netns/cni-1"),
            ("/a b'; rm -rf /", r"'/a b'\''; rm -rf /'"),
            ("a$(reboot)", "'a$(reboot)'"),
            ("", "''"),
            ("--all", "NAME"),
        ] {
            let command = Command::new("umount").word(word).own("-f");
            assert_eq!(command.to_string(), format!("umount {written} -f"));
        }
        assert_eq!(
            Command::new("x").value("--a", "b c").to_string(),
            "x --a='b c'"
        );
    }

    #[test]
    fn crictl_is_told_the_socket_unless_it_asks_that_one_first() {
        for (endpoint, crictl) in [
            ("unix:///run/containerd/containerd.sock", "crictl"),
            (
                "unix:///run/crio/crio.sock",
                "crictl -r unix:///run/crio/crio.sock",
            ),
            ("unix:///run/a.sock, unix:///run/b.sock", "crictl"),
        ] {
            let mut listed = event::testing::cri(0, &[]);
            if let What::SandboxesListed { endpoint: told, .. } = &mut listed.what {
                *told = endpoint.to_owned();
            }
            let mut model = Model::default();
            model.apply(&listed);
            let id = "0123456789abc";
            assert_eq!(
                remove_sandbox(&model, &format!("{id}def")).to_string(),
                format!("{crictl} stopp {id} && {crictl} rmp {id}")
            );
        }
    }
}
