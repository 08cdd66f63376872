//! Whether a shell parses a command as it is printed, and whether its programs
//! have the options that it gives them.
//!
//! The programs of this machine say so themselves. What those have that it may
//! lack is written here, as their documentation has it ([`ABSENT`]).

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Programs that not every machine has: their commands and options.
const ABSENT: [(&str, &str); 8] = [
    ("arping", "-D -c -I"),
    (
        "calicoctl",
        "create delete get ipam -f -n -o --show-problem-ips --ip",
    ),
    (
        "crictl",
        "info pods ps pull rmi rmp stopp --id -a --prune -r",
    ),
    ("dmsetup", "info resume"),
    ("iostat", "-x"),
    ("rpcinfo", "-p"),
    ("tcpdump", "-c -n -i"),
    ("terway-cli", "mapping"),
];

/// Programs whose first word is a command of theirs.
const WITH_COMMANDS: [&str; 7] = [
    "calicoctl",
    "crictl",
    "dmsetup",
    "kubectl",
    "node-tracer",
    "systemctl",
    "terway-cli",
];

/// What is wrong with a printed command, if anything is.
pub fn fault(line: &str) -> Option<String> {
    static GOOD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let good = || GOOD.lock().unwrap_or_else(PoisonError::into_inner);
    // Other numbers make no other command of it.
    let shape = line.replace(|c: char| c.is_ascii_digit(), "0");
    if good().contains(&shape) {
        return None;
    }
    let mut shells = ["bash", "sh"].into_iter();
    let unparsed = shells.find_map(|shell| unparsed(shell, line));
    let command = line.split("    # ").next().unwrap_or(line);
    let fault = unparsed.or_else(|| programs(command).iter().find_map(|words| misused(words)));
    if fault.is_none() {
        good().insert(shape);
    }
    fault.map(|fault| format!("{line}: {fault}"))
}

/// What a shell says against a line, if it says anything.
fn unparsed(shell: &str, line: &str) -> Option<String> {
    said(shell, &["-n", "-c", line]).filter(|errors| !errors.is_empty())
}

/// The programs of a line, each with its words.
fn programs(command: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let (mut word, mut quote) = (String::new(), None);
    // What ends a word ends the last one, too.
    for c in command.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ') if matches!(word.as_str(), "|" | "||" | "&&") => {
                word.clear();
                all.push(Vec::new());
            }
            (None, ' ') => all.last_mut().into_iter().for_each(|words| {
                let word = std::mem::take(&mut word);
                words.extend((!word.is_empty()).then_some(word));
            }),
            _ => word.push(c),
        }
    }
    all
}

/// What a program would not understand of its words.
fn misused(words: &[String]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (program, words) = words.split_first()?;
    match (*program, words) {
        ("nsenter", [way, inner @ ..]) if way.starts_with("--net=") => return inner_misused(inner),
        ("flock" | "timeout", [_, inner @ ..]) => return inner_misused(inner),
        ("sh", [.., "-Cc", script]) => return unparsed("sh", script),
        // Builtins of the shell.
        ("echo" | "kill", _) => return None,
        _ => {}
    }
    // An option before the command has its value behind it.
    let own = match words {
        ["-n" | "-r", _, rest @ ..] => rest,
        words => words,
    };
    let count = match *program {
        "ip" => 2,
        program => usize::from(WITH_COMMANDS.contains(&program)),
    };
    let commands = own.iter().filter(|word| !word.starts_with('-'));
    let commands: Vec<&str> = commands.take(count).copied().collect();
    let Some(help) = help(program, &commands) else {
        return Some(format!("{program} is not known here"));
    };
    let lacks = |option: &str| !help.contains(option);
    let missing = commands.iter().find(|command| lacks(command));
    let mut options = words.iter().filter(|word| word.starts_with('-'));
    let missing = missing.map(ToString::to_string).or_else(|| {
        options.find_map(|option| {
            if option.starts_with("--") {
                let name = option.split('=').next().unwrap_or(option);
                return lacks(name).then(|| name.to_owned());
            }
            // Several letters, and perhaps a value of the last one.
            let is_whole = WORDS.contains(program);
            let letters = option.chars().skip(1);
            let mut letters = letters.take_while(|c| c.is_ascii_alphabetic() && !is_whole);
            letters.find_map(|c| {
                let letter = format!("-{c}");
                lacks(&letter).then_some(letter)
            })
        })
    });
    missing.map(|missing| format!("{program} has no {missing}"))
}

/// Programs whose options are whole words behind one dash.
const WORDS: [&str; 1] = ["find"];

fn inner_misused(words: &[&str]) -> Option<String> {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    misused(&words)
}

/// What a program says of itself, or what is written here.
fn help(program: &str, commands: &[&str]) -> Option<String> {
    let (command, whole): (Vec<&str>, Option<&str>) = match (program, commands) {
        ("ip", [object, ..]) => (vec![object, "help"], Some("-h")),
        ("kubectl", [command]) => (vec![command, "--help"], Some("options")),
        ("ps", _) => (vec!["--help", "all"], None),
        (_, commands) => ([commands, &["--help"]].concat(), None),
    };
    let own = said(program, &command);
    let whole = whole.and_then(|whole| said(program, &[whole]));
    let written = ABSENT.iter().find(|(name, _)| *name == program);
    let own = own.map(|own| own + &whole.unwrap_or_default());
    own.or_else(|| Some(written?.1.to_owned()))
}

/// All that a program says; `None` if there is none.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let mut line = match program {
        "node-tracer" => crate::tracer::command(&[]).ok()?,
        _ => Command::new(program),
    };
    let output = line.args(args).stdin(Stdio::null()).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn what_no_shell_parses_and_no_program_has_is_a_fault() {
        for good in [
            "echo 1 > /sys/fs/fuse/connections/5/abort    # else: I/O errors",
            "journalctl -u kubelet -u crio | grep 0123    # why",
            "ps -eLo pid,tid,stat,wchan:32,comm    # who sleeps where",
            "nsenter --net=/run/netns/a ip link del eth0    # removes it",
            "mountpoint -q /a || mount -t fusectl none /a    # changes nothing",
        ] {
            assert_eq!(fault(good), None);
        }
        for bad in [
            "grep 'a /proc/1/cgroup    # an open quote",
            "journalctl --unitt kubelet    # no such option",
            "nsenter --net=/run/netns/a ip lnk del eth0    # no such object",
            "nosuchprogram 1    # no such program",
            "crictl remove 1    # no such command",
        ] {
            assert!(fault(bad).is_some(), "{bad}");
        }
    }
}
