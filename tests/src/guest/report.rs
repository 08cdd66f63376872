//! What is said to the host: one JSON object a line, on the second serial
//! line. (The first is the kernel's console, where anything may come between.)

use std::fs::File;
use std::io::Write as _;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::init;

/// What the host is told in one piece at most.
const LONGEST: usize = 16 * 1024;

/// The line to the host.
#[derive(Debug)]
pub(super) struct Host(File);

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As it must be.
    Ok,
    /// Not as it must be.
    Failed,
    /// The kernel does not allow the mechanism, and the tracer says so.
    Refused,
    /// This kernel or this guest cannot have it.
    Skipped,
}

impl Verdict {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "FAILED",
            Self::Refused => "refused",
            Self::Skipped => "skipped",
        }
    }
}

/// One signal by one mechanism.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    pub(super) signal: &'a str,
    pub(super) mechanism: &'a str,
    pub(super) verdict: Verdict,
    pub(super) detail: String,
    pub(super) seconds: f32,
}

/// One case of a suite that is a list of cases.
#[derive(Debug)]
pub(super) struct Case<'a> {
    pub(super) suite: &'a str,
    pub(super) name: &'a str,
    pub(super) verdict: Verdict,
    pub(super) detail: String,
    pub(super) seconds: f32,
}

impl Host {
    pub(super) fn open() -> anyhow::Result<Self> {
        let line = init::line()?;
        let file = File::options().write(true).open(&line);
        Ok(Self(file.context(line)?))
    }

    fn say(&mut self, report: &Value) {
        // Nobody is left to be told if even this fails.
        let _ = self.0.write_all(format!("{report}\n").as_bytes());
    }

    pub(super) fn cell(&mut self, cell: &Cell<'_>) {
        self.say(&json!({
            "kind": "cell",
            "signal": cell.signal,
            "mechanism": cell.mechanism,
            "verdict": cell.verdict.as_str(),
            "detail": end_of(&cell.detail),
            "seconds": cell.seconds,
        }));
    }

    /// A case of a suite, and what came of it.
    pub(super) fn case(&mut self, case: &Case<'_>) {
        self.say(&json!({
            "kind": "case",
            "suite": case.suite,
            "case": case.name,
            "verdict": case.verdict.as_str(),
            "detail": end_of(&case.detail),
            "seconds": case.seconds,
        }));
    }

    /// Something longer, for the log.
    pub(super) fn note(&mut self, title: &str, text: &str) {
        self.say(&json!({ "kind": "note", "title": title, "text": end_of(text) }));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.say(&json!({ "kind": "text", "text": end_of(text) }));
    }

    /// Nothing but that the guest goes on.
    pub(super) fn alive(&mut self) {
        self.say(&json!({ "kind": "alive" }));
    }

    pub(super) fn end(&mut self) {
        self.say(&json!({ "kind": "end" }));
    }
}

/// What matters of a long text is its end.
fn end_of(text: &str) -> &str {
    let mut from = text.len().saturating_sub(LONGEST);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}
