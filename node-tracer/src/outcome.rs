//! What a command has found, as its exit code says it.

use std::io::Write as _;

use crate::log;
use cli::Output;
use event::{
    finding::Severity,
    not_checked::{self, NotChecked},
    wording::escape::Printable,
};

/// From what says least to what says most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Nothing of severity warning or above.
    #[default]
    Nothing,
    /// The same, and the rules that this tool is for could not look.
    NotChecked,
    Something,
}

impl Outcome {
    pub(crate) fn of(worst: Option<Severity>, not_checked: &[NotChecked]) -> Self {
        match worst >= Some(Severity::Warning) {
            true => Self::Something,
            false if not_checked.is_empty() => Self::Nothing,
            false => Self::NotChecked,
        }
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Something => 1,
            Self::NotChecked => 3,
        }
    }
}

/// Says on standard error which rules were not checked, where no record on
/// standard output does.
pub(crate) fn say_not_checked(outputs: &[Output], not_checked: &[NotChecked]) {
    if outputs.iter().any(|output| *output != Output::Journald) {
        return;
    }
    for line in not_checked::lines(not_checked) {
        // Nothing is left to do if even this cannot be written.
        let _ = log::Stderr.write_all(format!("{}\n", Printable(line)).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use event::finding::Rule;

    use super::*;

    #[test]
    fn nothing_found_is_not_nothing_where_nobody_could_look() {
        let blind = [NotChecked {
            rule: Rule::GhostSandbox,
            reason: String::from("no pod list"),
            fix: String::from("--kubeconfig FILE"),
        }];
        let code = |worst, not_checked| Outcome::of(worst, not_checked).code();
        assert_eq!(code(None, &[]), 0);
        assert_eq!(code(Some(Severity::Info), &[]), 0);
        assert_eq!(code(None, &blind), 3);
        assert_eq!(code(Some(Severity::Info), &blind), 3);
        assert_eq!(code(Some(Severity::Warning), &blind), 1);
        assert_eq!(code(Some(Severity::Critical), &[]), 1);
    }
}
