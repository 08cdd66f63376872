//! Man pages and completions.

use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;

use super::{run, said, unpacked};

test!(
    apart
        & [
            Need::Packages,
            super::DPKG_DEB,
            Need::Program("groff", "groff-base"),
        ],
    man_pages_are_formatted_without_a_warning
);
fn man_pages_are_formatted_without_a_warning() -> anyhow::Result<()> {
    let package = unpacked()?;
    let folder = package.path().join("usr/share/man/man8");
    let mut count = 0;
    for entry in fs::read_dir(&folder)? {
        let page = entry?.path();
        run(Command::new("gunzip").arg(&page))?;
        let page = page.with_extension("");
        let formatted = run(Command::new("groff")
            .args(["-man", "-Tutf8", "-ww", "-K", "utf8"])
            .arg(&page))?;
        let warnings = String::from_utf8_lossy(&formatted.stderr).into_owned();
        ensure!(warnings.is_empty(), "{}: {warnings}", page.display());
        let text = String::from_utf8_lossy(&formatted.stdout);
        ensure!(text.contains("node-tracer"), "{}", page.display());
        count += 1;
    }
    ensure!(count >= 6, "{count} pages");
    Ok(())
}

/// What bash offers for a line.
fn offered(script: &Path, words: &[&str]) -> anyhow::Result<String> {
    // As bash does it, by the function that the script has named to it.
    const ASK: &str = r#"
        source "$1"; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        by=$(complete -p node-tracer); by=${by#*-F }; by=${by%% *}
        "$by" node-tracer "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        echo "${COMPREPLY[*]}"
    "#;
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", ASK, "bash"]).arg(script);
    said(command.args(words))
}

test!(
    apart
        & [
            Need::Packages,
            super::DPKG_DEB,
            Need::Program("bash", "bash")
        ],
    bash_completes_commands_and_options
);
fn bash_completes_commands_and_options() -> anyhow::Result<()> {
    let package = unpacked()?;
    let script = package
        .path()
        .join("usr/share/bash-completion/completions/node-tracer");
    let commands = offered(&script, &["node-tracer", "tr"])?;
    ensure!(commands.trim() == "trace", "{commands}");
    let options = offered(&script, &["node-tracer", "trace", "--stall"])?;
    ensure!(options.trim() == "--stall-threshold", "{options}");
    let values = offered(&script, &["node-tracer", "trace", "--output", "j"])?;
    ensure!(values.trim() == "json journald", "{values}");
    Ok(())
}

test!(
    apart & [Need::Packages, super::DPKG_DEB, Need::Program("zsh", "zsh")],
    zsh_understands_its_completions
);
fn zsh_understands_its_completions() -> anyhow::Result<()> {
    let package = unpacked()?;
    let script = package
        .path()
        .join("usr/share/zsh/vendor-completions/_node-tracer");
    run(Command::new("zsh").arg("-n").arg(script))?;
    Ok(())
}

test!(
    apart
        & [
            Need::Packages,
            super::DPKG_DEB,
            Need::Program("fish", "fish")
        ],
    fish_completes_commands_and_options
);
fn fish_completes_commands_and_options() -> anyhow::Result<()> {
    let package = unpacked()?;
    let script = package
        .path()
        .join("usr/share/fish/vendor_completions.d/node-tracer.fish");
    let asked = format!("source {}; complete -C 'node-tracer tr'", script.display());
    let commands = said(Command::new("fish").args(["--no-config", "-c", &asked]))?;
    ensure!(commands.starts_with("trace"), "{commands}");
    Ok(())
}
