//! Commands of advice: they are pasted into a root's shell.
//!
//! What stands in them is either their own, which is written here, or foreign: a
//! name, a path, an ID, that somebody else has chosen. A [`Command`] takes the
//! one only as what the source code says, and quotes the other.

use std::{
    fmt::{self, Write as _},
    path::Path,
};

use super::{View, short_id};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command(String);

impl Command {
    /// It begins with its own words.
    pub(super) fn new(own: &'static str) -> Self {
        Self(own.to_owned())
    }

    pub(super) fn word(self, word: impl AsRef<Path>) -> Self {
        Self(format!("{self} {}", shell_word(word.as_ref())))
    }

    /// The same of a container's ID, as `crictl` shows it.
    pub(super) fn id(self, id: &str) -> Self {
        self.word(short_id(id))
    }

    /// A foreign word behind an own one and a sign: `name=word`.
    pub(super) fn value(self, name: &'static str, word: impl AsRef<Path>) -> Self {
        Self(format!("{self} {name}={}", shell_word(word.as_ref())))
    }

    /// More words of its own.
    pub(super) fn own(mut self, own: &'static str) -> Self {
        // Writing to a text does not fail.
        let _written = write!(self.0, " {own}");
        self
    }

    /// And then another one, unless this one fails.
    pub(super) fn and(self, next: &Self) -> Self {
        Self(format!("{self} && {next}"))
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Keeps new pods off the node.
pub(super) fn cordon(view: &View<'_>) -> Command {
    Command::new("kubectl cordon").word(&view.settings.node)
}

/// Has the runtime end a sandbox.
pub(super) fn remove_sandbox(id: &str) -> Command {
    Command::new("crictl stopp")
        .id(id)
        .and(&Command::new("crictl rmp").id(id))
}

/// What the kubelet and the runtimes have logged of a container.
pub(super) fn logged_of(id: &str) -> Command {
    Command::new("journalctl -u kubelet -u containerd -u crio | grep").id(id)
}

/// A path, or another name, as a word of a shell command. One that would be an
/// option has to be filled in.
pub(super) fn shell_word(path: &Path) -> String {
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
