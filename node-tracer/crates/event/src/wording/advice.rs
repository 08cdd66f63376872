//! Steps of advice: each is a sentence, or a command that stands alone.
//!
//! A command is complete and on one line, so that it can be pasted as it is
//! printed; what it costs stands behind it as a comment of the shell. Not every
//! shell has comments at its prompt (zsh has none), so a comment holds nothing
//! that a shell would act on.

use std::path::Path;

/// Programs that a command can begin with. No sentence begins with one, nor with
/// a name that somebody else has chosen.
const PROGRAMS: [&str; 42] = [
    "arping",
    "bridge",
    "calicoctl",
    "cat",
    "ceph",
    "chmod",
    "cp",
    "crictl",
    "ctr",
    "dmesg",
    "dmsetup",
    "docker",
    "echo",
    "find",
    "findmnt",
    "flock",
    "fsfreeze",
    "fuser",
    "grep",
    "iostat",
    "ip",
    "journalctl",
    "kill",
    "kubectl",
    "ls",
    "lsns",
    "lsof",
    "mount",
    "mv",
    "node-tracer",
    "nsenter",
    "ps",
    "rm",
    "rpcinfo",
    "ss",
    "sysctl",
    "systemctl",
    "tail",
    "tcpdump",
    "terway-cli",
    "timeout",
    "umount",
];

/// Those of them that are words as well; as commands they have an option, or a path.
const VERBS: [&str; 3] = ["find", "kill", "mount"];

/// What stands between a command and its comment.
const COMMENT: &str = "    # ";

/// A step that is a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// What is pasted.
    pub command: &'a str,
    /// What it costs, or what it is good for.
    pub comment: Option<&'a str>,
}

/// The command that a step is; `None` for a sentence.
pub fn command(step: &str) -> Option<Command<'_>> {
    let (program, rest) = step.split_once(' ').unwrap_or((step, ""));
    let is_verb = VERBS.contains(&program) && !rest.starts_with(['-', '/']);
    if is_verb || !PROGRAMS.contains(&program) || step.contains('\n') {
        return None;
    }
    Some(match step.rsplit_once(COMMENT) {
        Some((command, comment)) => Command {
            command,
            comment: Some(comment),
        },
        None => Command {
            command: step,
            comment: None,
        },
    })
}

/// A command with its comment, as a step.
pub fn commented(command: impl std::fmt::Display, comment: &str) -> String {
    format!("{command}{COMMENT}{comment}")
}

/// A path, or another name, as a word of a shell command. One that would be an
/// option has to be filled in.
pub fn shell_word(word: &Path) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@+=,".contains(c);
    if text.starts_with('-') {
        String::from("NAME")
    } else if text.chars().all(plain) && !text.is_empty() {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Whether a comment does nothing in a shell that has no comments.
pub fn is_harmless(comment: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || " ,.:/-_+@%".contains(c);
    comment.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_from_a_sentence_and_from_its_comment() {
        let step = commented("kubectl cordon n1", "static pods still start");
        let both = Command {
            command: "kubectl cordon n1",
            comment: Some("static pods still start"),
        };
        assert_eq!(command(&step), Some(both));
        assert_eq!(command("crictl rmp 1").unwrap().comment, None);
        for sentence in [
            "restart the daemon: it hangs",
            "kill the daemon: it hangs",
            "",
            "killing pods does not help",
        ] {
            assert_eq!(command(sentence), None, "{sentence}");
        }
    }

    #[test]
    fn a_comment_that_a_shell_would_act_on_is_known() {
        assert!(is_harmless(
            "all users of /hang get I/O errors, SIGKILL too"
        ));
        for comment in [
            "a; reboot",
            "a && b",
            "$(reboot)",
            "a > b",
            "it's",
            "`a`",
            "(a)",
        ] {
            assert!(!is_harmless(comment), "{comment}");
        }
    }
}
