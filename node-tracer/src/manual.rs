//! `node-tracer man` and `node-tracer completions`: what packages have of them is
//! printed on any node.

use crate::{nearest, output};
use cli::Shell;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ManualError {
    #[error(
        "there is no command {given:?}{}\nhelp: node-tracer --help lists all of them",
        nearest::said(nearest::of(given, manual::commands()))
    )]
    NoSuchCommand { given: String },
    #[error("there is no script for this shell")]
    NoSuchShell,
}

/// Prints the man page of a command, or of all of them.
///
/// # Errors
/// There is no such command, or standard output cannot be written.
pub(crate) fn page(command: Option<&str>) -> anyhow::Result<()> {
    let page = manual::man_page(command, "").ok_or_else(|| ManualError::NoSuchCommand {
        given: command.unwrap_or_default().to_owned(),
    })?;
    Ok(output::print(&page)?)
}

/// Prints what completes the command line in a shell.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let name = match shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    let script = manual::completions(name).ok_or(ManualError::NoSuchShell)?;
    Ok(output::print(&script)?)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn a_command_that_is_none_is_told_the_nearest() {
        let error = page(Some("sacn")).unwrap_err().to_string();
        assert!(
            error.contains("\"sacn\"; did you mean scan?\nhelp: "),
            "{error}"
        );
    }

    #[test]
    fn there_is_a_script_for_every_shell() {
        for shell in Shell::value_variants() {
            completions(*shell).unwrap();
        }
    }
}
