//! What is known of the terminal: whether it shows colours, how wide it is, and
//! whether whoever sits there wants to hear more than the answer.
//!
//! A process has one standard output and one standard error. What the command
//! line says of them is set once, before anything is written.

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal},
    os::fd::AsFd,
    sync::OnceLock,
};

use rustix::termios::tcgetwinsize;

use cli::{self, Color};
use sink::text::COLUMNS;

/// The narrowest and the widest that text is made for: in less it cannot be read,
/// and more cannot be read either.
const NARROWEST: usize = 72;
const WIDEST: usize = 160;

static MANNER: OnceLock<Manner> = OnceLock::new();

#[derive(Clone, Copy, Debug)]
struct Manner {
    quiet: bool,
    verbose: u8,
    colour: bool,
}

/// Takes what the command line says.
pub(crate) fn set(cli: &cli::Manner) {
    let manner = Manner {
        quiet: cli.quiet,
        verbose: cli.verbose,
        colour: coloured(cli.color, env::var_os, io::stdout().is_terminal()),
    };
    // There is one command line.
    let _ = MANNER.set(manner);
}

/// Whether only the answer is wanted.
pub(crate) fn is_quiet() -> bool {
    MANNER.get().is_some_and(|manner| manner.quiet)
}

/// How much more than usual is wanted.
pub(crate) fn verbosity() -> u8 {
    MANNER.get().map_or(0, |manner| manner.verbose)
}

/// Columns of standard output, now, if it is a terminal.
pub(crate) fn edge() -> Option<usize> {
    columns(&io::stdout())
}

/// Whether standard output is to be coloured.
pub(crate) fn colours() -> bool {
    MANNER.get().is_some_and(|manner| manner.colour)
}

/// Columns of text on standard output, now: a terminal's window changes.
pub(crate) fn text_columns() -> usize {
    let columns = columns(&io::stdout());
    columns.map_or(COLUMNS, |columns| columns.clamp(NARROWEST, WIDEST))
}

/// Columns of a terminal that knows them.
pub(crate) fn columns(file: &(impl AsFd + IsTerminal)) -> Option<usize> {
    if !file.is_terminal() {
        return None;
    }
    let columns = tcgetwinsize(file).ok()?.ws_col;
    (columns > 0).then_some(usize::from(columns))
}

/// Whether a terminal takes more than plain text.
pub(crate) fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// What is said on the command line counts most; then `NO_COLOR`
/// (no-color.org), whatever its value; then `CLICOLOR_FORCE` and `CLICOLOR`
/// (bixense.com/clicolors); or else terminals that have colours get them.
fn coloured(
    asked: Color,
    environment: impl Fn(&'static str) -> Option<OsString>,
    is_terminal: bool,
) -> bool {
    let set = |name| environment(name).filter(|value| !value.is_empty());
    match asked {
        Color::Always => return true,
        Color::Never => return false,
        Color::Auto => {}
    }
    if set("NO_COLOR").is_some() {
        return false;
    }
    if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return true;
    }
    let unwanted = set("CLICOLOR").is_some_and(|value| value == "0");
    let dumb = set("TERM").is_some_and(|value| value == "dumb");
    is_terminal && !unwanted && !dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(asked: Color, environment: &[(&str, &str)], is_terminal: bool) -> bool {
        let of = |name| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        coloured(asked, of, is_terminal)
    }

    #[test]
    fn a_terminal_has_colours_and_nothing_else_has() {
        assert!(is(Color::Auto, &[("TERM", "xterm")], true));
        assert!(is(Color::Auto, &[], true));
        assert!(!is(Color::Auto, &[("TERM", "xterm")], false));
        assert!(!is(Color::Auto, &[("TERM", "dumb")], true));
    }

    #[test]
    fn the_environment_is_heard() {
        for value in ["1", "0", "yes"] {
            assert!(!is(Color::Auto, &[("NO_COLOR", value)], true), "{value}");
        }
        assert!(is(Color::Auto, &[("NO_COLOR", "")], true));
        assert!(is(Color::Auto, &[("CLICOLOR_FORCE", "1")], false));
        assert!(!is(Color::Auto, &[("CLICOLOR_FORCE", "0")], false));
        assert!(!is(Color::Auto, &[("CLICOLOR", "0")], true));
        let both = [("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")];
        assert!(!is(Color::Auto, &both, true));
    }

    #[test]
    fn the_command_line_is_heard_before_it() {
        assert!(is(Color::Always, &[("NO_COLOR", "1")], false));
        assert!(!is(Color::Never, &[("CLICOLOR_FORCE", "1")], true));
    }
}
