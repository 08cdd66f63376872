//! Man pages and completions of shells, made of the definition of the tracer's
//! command line: its own crate, so that they say what it takes, and so that what
//! makes them is no part of the tracer.

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::Release;

/// Where the manual has it: commands of administrators.
pub(super) const SECTION: &str = "8";

const NAME: &str = "node-tracer";

fn definition() -> clap::Command {
    cli::Cli::command()
}

/// (name, source) of the man pages: of the command, and of each of its own.
pub(super) fn man_pages(release: &Release) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut whole = definition().disable_help_subcommand(true);
    whole.build();
    let subcommands = whole.get_subcommands().filter(|it| !it.is_hide_set());
    let pages = std::iter::once(whole.clone()).chain(subcommands.cloned());
    let day = release.day()?;
    pages
        .map(|command| {
            let after = command.get_after_help().map(ToString::to_string);
            let man = Man::new(command)
                .section(SECTION)
                .date(&day)
                .source(format!("{NAME} {}", release.version))
                .manual(NAME);
            let mut source = Vec::new();
            man.render_title(&mut source)?;
            man.render_name_section(&mut source)?;
            man.render_synopsis_section(&mut source)?;
            man.render_description_section(&mut source)?;
            man.render_options_section(&mut source)?;
            let name = man.get_filename();
            let whole = name == format!("{NAME}.{SECTION}");
            if whole {
                man.render_subcommands_section(&mut source)?;
            }
            after_help(&after.unwrap_or_default()).to_writer(&mut source)?;
            if whole {
                files().to_writer(&mut source)?;
            }
            Ok((name, source))
        })
        .collect()
}

/// What stands below the options: examples as they are typed, or what exit
/// codes mean.
fn after_help(text: &str) -> Roff {
    let mut page = Roff::new();
    if let Some(examples) = text.strip_prefix("Examples:\n") {
        page.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.lines() {
            page.text([roman(line.trim())]);
        }
        page.control("fi", []);
    } else if let Some(codes) = text.strip_prefix("Exit codes: ") {
        page.control("SH", ["EXIT STATUS"]).text([roman(codes)]);
    }
    page
}

/// What belongs to the command on a node.
fn files() -> Roff {
    const FILES: [(&str, &str); 4] = [
        (
            "/usr/lib/systemd/system/node-tracer.service",
            "trace as a service; off until systemctl enable --now node-tracer.",
        ),
        ("/etc/default/node-tracer", "Its options."),
        (
            "/var/lib/node-tracer",
            "For its recordings, and the backups of repair.",
        ),
        (
            "/usr/share/doc/node-tracer/examples",
            "Manifest for Kubernetes, alerts for Prometheus, dashboard for Grafana.",
        ),
    ];
    let mut page = Roff::new();
    page.control("SH", ["FILES"]);
    for (path, what) in FILES {
        page.control("TP", []).text([bold(path)]);
        page.text([roman(what)]);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("journalctl"),
        roman("(1), "),
        bold("crictl"),
        roman("(1)"),
    ]);
    page
}

/// (path below `usr/share`, content) of the completions.
pub(super) fn completions() -> Vec<(&'static str, Vec<u8>)> {
    let shells = [
        (Shell::Bash, "bash-completion/completions/node-tracer"),
        (Shell::Zsh, "zsh/vendor-completions/_node-tracer"),
        (Shell::Fish, "fish/vendor_completions.d/node-tracer.fish"),
    ];
    shells
        .map(|(shell, path)| {
            let mut script = Vec::new();
            generate(shell, &mut definition(), NAME, &mut script);
            (path, script)
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release() -> Release {
        Release {
            version: String::from("1.2.3"),
            time: 1_700_000_000,
        }
    }

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let pages = man_pages(&release()).unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in [
            "node-tracer.8",
            "node-tracer-trace.8",
            "node-tracer-explain.8",
        ] {
            assert!(names.contains(&name), "{names:?}");
        }
        for command in definition().get_subcommands() {
            let name = format!("node-tracer-{}.8", command.get_name());
            let (_, page) = pages.iter().find(|(page, _)| *page == name).unwrap();
            let page = String::from_utf8(page.clone()).unwrap().replace('\\', "");
            assert!(
                page.contains("2023-11-14") && page.contains("1.2.3"),
                "{name}"
            );
            for option in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                if let Some(long) = option.get_long() {
                    assert!(page.contains(&format!("--{long}")), "{name}: {long}");
                }
            }
        }
    }

    #[test]
    fn what_stands_below_the_options_stands_in_every_page() {
        for (name, page) in man_pages(&release()).unwrap() {
            let page = String::from_utf8(page).unwrap();
            let command = definition()
                .get_subcommands()
                .find(|it| name == format!("node-tracer-{}.8", it.get_name()))
                .map_or_else(definition, Clone::clone);
            let section = match command.get_after_help().map(ToString::to_string) {
                Some(text) if text.starts_with("Examples:") => "EXAMPLES",
                Some(text) if text.starts_with("Exit codes:") => "EXIT STATUS",
                Some(text) => panic!("{name} has a section for neither: {text}"),
                None => continue,
            };
            assert!(page.contains(section), "{name}: {section}");
        }
    }

    #[test]
    fn every_shell_completes_every_command() {
        for (path, script) in completions() {
            let script = String::from_utf8(script).unwrap();
            for command in definition().get_subcommands() {
                assert!(script.contains(command.get_name()), "{path}: {command}");
            }
            assert!(script.contains("stall-threshold"), "{path}");
        }
    }

    #[test]
    fn the_description_is_the_packages() {
        let manifest = include_str!("../../../node-tracer/Cargo.toml");
        let about = definition().get_about().unwrap().to_string();
        assert!(
            manifest.contains(&format!("description = \"{about}\"")),
            "{about}"
        );
    }
}
