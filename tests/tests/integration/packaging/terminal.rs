//! Man pages and completions.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;

use super::{run, said, unpacked};

pub(super) fn man_pages() -> anyhow::Result<()> {
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

pub(super) fn bash() -> anyhow::Result<()> {
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

pub(super) fn zsh() -> anyhow::Result<()> {
    let package = unpacked()?;
    let script = package
        .path()
        .join("usr/share/zsh/vendor-completions/_node-tracer");
    run(Command::new("zsh").arg("-n").arg(script))?;
    Ok(())
}

pub(super) fn fish() -> anyhow::Result<()> {
    let package = unpacked()?;
    let script = package
        .path()
        .join("usr/share/fish/vendor_completions.d/node-tracer.fish");
    let asked = format!("source {}; complete -C 'node-tracer tr'", script.display());
    let commands = said(Command::new("fish").args(["--no-config", "-c", &asked]))?;
    ensure!(commands.starts_with("trace"), "{commands}");
    Ok(())
}
