//! Commands in advice: told apart, so that they can be selected and copied.

use super::super::prose::Prose;
use event::wording::advice::{Command, command};

/// A step of advice. One that is a command stands out; no part of a sentence
/// does, because names in it are somebody else's.
pub(super) fn step(advice: &str) -> Prose {
    let prose = Prose::default();
    match command(advice) {
        Some(Command { command, comment }) => {
            let comment = comment.map(|comment| format!("  # {comment}"));
            prose.code(command).say(comment.unwrap_or_default())
        }
        None => prose.say(advice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With commands in brackets.
    fn marked(advice: &str) -> String {
        let spans = step(advice).spans.into_iter();
        let texts = spans.map(|span| match span.class {
            "code" => format!("[{}]", span.text),
            _ => span.text.to_string(),
        });
        texts.collect()
    }

    #[test]
    fn only_a_step_that_is_a_command_stands_out() {
        for (advice, told) in [
            ("kubectl cordon vm", "[kubectl cordon vm]"),
            (
                "crictl rmp 1    # ends the retries",
                "[crictl rmp 1]  # ends the retries",
            ),
            ("kill the daemon: it hangs", "kill the daemon: it hangs"),
            (
                "task x: rm -rf / # (9) waits (rm -rf / #)",
                "task x: rm -rf / # (9) waits (rm -rf / #)",
            ),
            ("", ""),
        ] {
            assert_eq!(marked(advice), told);
        }
    }
}
