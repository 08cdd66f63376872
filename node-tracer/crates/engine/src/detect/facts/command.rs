//! Commands of advice: they are pasted into a root's shell.
//!
//! What stands in them is either their own, which is written here, or foreign: a
//! name, a path, an ID, that somebody else has chosen. A [`Command`] takes the
//! one only as what the source code says, and quotes the other.

use event::ReservationHolder;
use std::{
    fmt::{self, Write as _},
    path::Path,
};

use crate::detect::{View, short_id};

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

/// Keeps new pods off the node.
pub(in crate::detect) fn cordon(view: &View<'_>) -> Command {
    Command::new("kubectl cordon").word(&view.settings.node)
}

/// Has the runtime end a sandbox.
pub(in crate::detect) fn remove_sandbox(id: &str) -> Command {
    Command::new("crictl stopp")
        .id(id)
        .and(&Command::new("crictl rmp").id(id))
}

/// What the kubelet and the runtimes have logged of a container.
pub(in crate::detect) fn logged_of(id: &str) -> Command {
    Command::new("journalctl -u kubelet -u containerd -u crio | grep").id(id)
}

/// A path, or another name, as a word of a shell command. One that would be an
/// option has to be filled in.
pub(in crate::detect) fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@+=,".contains(c);
    if text.starts_with('-') {
        String::from("NAME")
    } else if text.chars().all(plain) && !text.is_empty() {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Where what is moved away goes: outside of every store.
pub(in crate::detect) const AWAY: &str = "/var/tmp/";

/// The command that gives one of host-local's reservations back. Only of names
/// that are names: foreign text is not put into commands.
pub(in crate::detect) fn move_away(store: &Path, holder: &ReservationHolder) -> Option<String> {
    let lock = store.join("lock");
    let (lock, file) = (shell_word(&lock), shell_word(&holder.path));
    if [&lock, &file].iter().any(|word| word.contains('\'')) {
        return None;
    }
    let test = match holder.container_id.as_str() {
        "" => format!("test ! -s {file}"),
        id if is_plain(id) => format!("grep -qF {id} {file}"),
        _ => return None,
    };
    Some(format!("flock {lock} sh -c '{test} && mv {file} {AWAY}'"))
}

/// What the CNI specification allows in a container's ID.
pub(in crate::detect) fn is_plain(id: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"_.-".contains(&c);
    id.bytes().all(plain) && id.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let id = "0123456789abcdef";
        assert_eq!(
            remove_sandbox(id).to_string(),
            "crictl stopp 0123456789abc && crictl rmp 0123456789abc"
        );
        assert_eq!(
            Command::new("x").value("--a", "b c").to_string(),
            "x --a='b c'"
        );
    }
}
