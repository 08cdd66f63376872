//! Commands in advice: told apart, so that they can be selected and copied.

use super::super::prose::Prose;
use event::wording::advice::command;

/// Programs that advice names.
const PROGRAMS: [&str; 22] = [
    "kubectl",
    "crictl",
    "node-tracer",
    "grep",
    "umount",
    "nsenter",
    "journalctl",
    "systemctl",
    "kill",
    "cat",
    "ip",
    "ls",
    "ps",
    "rm",
    "lsof",
    "fuser",
    "mount",
    "dmesg",
    "echo",
    "findmnt",
    "nerdctl",
    "ctr",
];

/// Advice with its commands. A step is one; recordings of before have them in
/// parentheses, or after a colon to the end.
pub(super) fn with_commands(advice: &str) -> Prose {
    let mut prose = Prose::default();
    if let Some(step) = command(advice) {
        let comment = step.comment.map(|comment| format!("  # {comment}"));
        return prose.code(step.command).say(comment.unwrap_or_default());
    }
    let mut rest = advice;
    while let Some((start, end)) = next(rest) {
        prose = prose.say(&rest[..start]).code(&rest[start..end]);
        rest = &rest[end..];
    }
    prose.say(rest)
}

/// Where the next command begins and ends.
fn next(text: &str) -> Option<(usize, usize)> {
    let begins = |at: &usize| is_command(&text[*at..]);
    let after = |sign: &'static str| {
        let all = text.match_indices(sign);
        all.map(move |(at, sign)| at + sign.len())
    };
    let in_parentheses = after("(").find(begins);
    let to_the_end = after(": ").find(begins);
    match (in_parentheses, to_the_end) {
        (Some(start), end) if end.is_none_or(|end| start < end) => {
            Some((start, start + closing(&text[start..])))
        }
        (_, Some(start)) => Some((start, text.len())),
        (_, None) => None,
    }
}

/// Whether text begins with a program and something for it to do.
fn is_command(text: &str) -> bool {
    let mut words = text.split(' ');
    let program = words.next().unwrap_or_default();
    PROGRAMS.contains(&program) && words.next().is_some()
}

/// Where the parenthesis is closed in which a command stands, or where an
/// explanation of the command begins.
fn closing(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return at,
            ')' => depth -= 1,
            ':' if depth == 0 && text[at + 1..].starts_with(' ') => return at,
            ';' if depth == 0 && !is_command(text[at + 1..].trim_start()) => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With commands in brackets.
    fn marked(advice: &str) -> String {
        let spans = with_commands(advice).spans.into_iter();
        let texts = spans.map(|span| match span.class {
            "code" => format!("[{}]", span.text),
            _ => span.text.to_string(),
        });
        texts.collect()
    }

    #[test]
    fn commands_are_told_from_words() {
        for (advice, told) in [
            (
                "keep new pods off the node: kubectl cordon vm",
                "keep new pods off the node: [kubectl cordon vm]",
            ),
            (
                "find the mount (grep ' fuse' /proc/7/mountinfo) and its daemon; end it",
                "find the mount ([grep ' fuse' /proc/7/mountinfo]) and its daemon; end it",
            ),
            (
                "see that it is given back (node-tracer scan: leaked-reservation): then go on",
                "see that it is given back ([node-tracer scan]: leaked-reservation): then go on",
            ),
            (
                "remove the old sandbox: crictl stopp 1 && crictl rmp 1",
                "remove the old sandbox: [crictl stopp 1 && crictl rmp 1]",
            ),
            (
                "look (ls -l /proc/1/fd; ps -fp 1): it leaks; restart it",
                "look ([ls -l /proc/1/fd; ps -fp 1]): it leaks; restart it",
            ),
            (
                "kill the daemon: it is stuck",
                "kill the daemon: it is stuck",
            ),
            (
                "crictl rmp 1    # ends the retries",
                "[crictl rmp 1]  # ends the retries",
            ),
            ("(ip)", "(ip)"),
            ("", ""),
        ] {
            assert_eq!(marked(advice), told);
        }
    }
}
