//! Man pages and completions of shells, made of the command line's definition when
//! this is built: they say what it takes, and what makes them is no part of the
//! tracer.

#![forbid(unsafe_code)]

use std::io::Read as _;

use flate2::read::DeflateDecoder;

/// Where the manual has it: commands of administrators.
pub const SECTION: &str = "8";

/// (name, beginning, end) of each text.
const INDEX: &[(&str, usize, usize)] = &include!(concat!(env!("OUT_DIR"), "/index.rs"));
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/texts"));

/// What the title's line has where the day is to be.
const DAY: &str = " DAY ";

/// The script that completes the command line in a shell: `bash`, `zsh` or `fish`.
pub fn completions(shell: &str) -> Option<String> {
    text(shell)
}

/// The man page of a command, or of all of them, as it is on that day.
pub fn man_page(command: Option<&str>, day: &str) -> Option<String> {
    let name = match command {
        Some(command) => format!("node-tracer-{command}.{SECTION}"),
        None => format!("node-tracer.{SECTION}"),
    };
    Some(text(&name)?.replacen(DAY, &format!(" \"{day}\" "), 1))
}

/// Commands that have a page of their own.
pub fn commands() -> impl Iterator<Item = &'static str> {
    INDEX.iter().filter_map(|(name, ..)| {
        let page = name.strip_prefix("node-tracer-")?;
        page.strip_suffix(SECTION)?.strip_suffix('.')
    })
}

fn text(name: &str) -> Option<String> {
    let (_, begin, end) = INDEX.iter().find(|(known, ..)| *known == name)?;
    let mut all = String::new();
    DeflateDecoder::new(PACKED).read_to_string(&mut all).ok()?;
    Some(all.get(*begin..*end)?.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn definition() -> clap::Command {
        cli::Cli::command()
    }

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let pages: Vec<&str> = commands().collect();
        for command in definition().get_subcommands() {
            let name = command.get_name();
            assert!(pages.contains(&name), "{name}: {pages:?}");
            let page = man_page(Some(name), "2023-11-14")
                .unwrap()
                .replace('\\', "");
            let title = page.lines().find(|line| line.starts_with(".TH")).unwrap();
            assert!(title.contains("2023-11-14"), "{title}");
            assert!(title.contains(env!("CARGO_PKG_VERSION")), "{title}");
            for option in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                if let Some(long) = option.get_long() {
                    assert!(page.contains(&format!("--{long}")), "{name}: {long}");
                }
            }
        }
        assert!(man_page(None, "").unwrap().contains("FILES"));
        assert_eq!(man_page(Some("no-such-command"), ""), None);
    }

    #[test]
    fn what_stands_below_the_options_stands_in_every_page() {
        let whole = definition();
        let commands = whole.get_subcommands().map(|it| (Some(it.get_name()), it));
        for (name, command) in commands.chain([(None, &whole)]) {
            let page = man_page(name, "").unwrap();
            let section = match command.get_after_help().map(ToString::to_string) {
                Some(text) if text.starts_with("Examples:") => "EXAMPLES",
                Some(text) if text.starts_with("Exit codes:") => "EXIT STATUS",
                Some(text) => panic!("{name:?} has a section for neither: {text}"),
                None => continue,
            };
            assert!(page.contains(section), "{name:?}: {section}");
        }
    }

    #[test]
    fn every_shell_completes_every_command() {
        for shell in ["bash", "zsh", "fish"] {
            let script = completions(shell).unwrap();
            for command in definition().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {command}");
            }
            assert!(script.contains("stall-threshold"), "{shell}");
        }
    }

    #[test]
    fn the_description_is_the_packages() {
        let manifest = include_str!("../../../Cargo.toml");
        let about = definition().get_about().unwrap().to_string();
        assert!(
            manifest.contains(&format!("description = \"{about}\"")),
            "{about}"
        );
    }
}
