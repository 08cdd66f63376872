//! The unit and the catalog.

use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::{run, said, unpacked};

/// What systemd-analyze may say of the unit, in tenths: a service that sees all
/// of a node is not at 0.
const EXPOSURE: &str = "52";

test!(
    apart & [Need::Packages, super::DPKG_DEB, super::SYSTEMD],
    systemd_understands_the_unit_and_it_is_hardened
);
fn systemd_understands_the_unit_and_it_is_hardened() -> anyhow::Result<()> {
    let package = unpacked()?;
    let path = package
        .path()
        .join("usr/lib/systemd/system/node-tracer.service");
    // The one that is looked at has its program where it was unpacked.
    let unit = fs::read_to_string(&path)?;
    let tracer = package.path().join("usr/bin/node-tracer");
    let unit = unit.replace("=/usr/bin/node-tracer", &format!("={}", tracer.display()));
    ensure!(unit.contains(package.path().to_str().context("a path in UTF-8")?));
    fs::write(&path, unit)?;
    let verified = run(Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&path))?;
    let warnings = String::from_utf8_lossy(&verified.stderr);
    // It looks at what is installed here, too.
    let ours: Vec<&str> = warnings
        .lines()
        .filter(|line| line.contains("node-tracer"))
        .collect();
    ensure!(ours.is_empty(), "{}", ours.join("\n"));
    let output = said(
        Command::new("systemd-analyze")
            .args([
                "security",
                "--offline=yes",
                "--no-pager",
                "--threshold",
                EXPOSURE,
            ])
            .arg(&path),
    )?;
    println!("{}", output.lines().last().unwrap_or_default());
    Ok(())
}

test!(
    apart & [Need::Packages, super::DPKG_DEB, Need::Journald],
    journald_takes_the_catalog_with_an_entry_for_every_rule
);
fn journald_takes_the_catalog_with_an_entry_for_every_rule() -> anyhow::Result<()> {
    let package = unpacked()?;
    let root = format!("--root={}", package.path().display());
    run(Command::new("journalctl").args([&root, "--update-catalog"]))?;
    let dump = said(Command::new("journalctl").args([&root, "--dump-catalog"]))?;
    let tracer = package.path().join("usr/bin/node-tracer");
    let rules = said(Command::new(tracer).arg("explain-rule"))?;
    let source = fs::read_to_string(
        package
            .path()
            .join("usr/lib/systemd/catalog/node-tracer.catalog"),
    )?;
    let mut count = 0;
    for line in rules.lines() {
        let Some(rule) = line.split_whitespace().next() else {
            continue;
        };
        let Some((_, after)) = source.split_once(&format!("\n# {rule}\n-- ")) else {
            continue;
        };
        let id = after.lines().next().unwrap_or_default();
        ensure!(dump.contains(&format!("-- {id}\n")), "{rule}: {id}");
        count += 1;
    }
    ensure!(count >= 17, "{count} rules of\n{rules}");
    Ok(())
}
