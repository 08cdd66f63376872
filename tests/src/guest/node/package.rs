//! Laws about the package, on a Debian that has never seen it: what it brings,
//! and that all of it goes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::machine::{property, run};
use super::output::UNIT;
use super::{PACKAGE, Stage};

const NAME: &str = "node-tracer";
/// What the administrator writes into it.
const OPTIONS: (&str, &str) = ("/etc/default/node-tracer", include_str!("files/options"));
/// Files with the package's name that are the tests' own.
const OWN: [&str; 3] = [
    "/usr/local/bin/node-tracer-guest",
    "/etc/systemd/system/node-tracer.service.d",
    PACKAGE,
];

/// Files and folders of this system with the package's name. (Not below mounts:
/// /proc has one for each process of it.)
fn named() -> anyhow::Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for place in ["/", "/run", "/tmp", "/dev/shm"] {
        let args = [place, "-xdev", "-name", "*node-tracer*"];
        all.extend(run("find", &args)?.lines().map(str::to_owned));
    }
    all.retain(|path| !OWN.contains(&path.as_str()));
    Ok(all)
}

/// What dpkg says its state is; nothing if it has never heard of it.
fn state() -> anyhow::Result<String> {
    let args = ["-W", "-f", "${db:Status-Status}", NAME];
    let output = Command::new("dpkg-query").args(args).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// As an administrator does it. It is off until it is wanted; then it is
/// started, and watches when that is done.
pub(super) fn installed(_: &mut Stage) -> anyhow::Result<()> {
    let (state_before, before) = (state()?, named()?);
    ensure!(
        state_before.is_empty() && before.is_empty(),
        "not a clean system: {state_before} {before:?}"
    );
    run("dpkg", &["-i", PACKAGE])?;
    ensure!(state()? == "installed", "it is {}", state()?);
    let enabled = Command::new("systemctl")
        .args(["is-enabled", UNIT])
        .output()?;
    let enabled = String::from_utf8_lossy(&enabled.stdout).trim().to_owned();
    ensure!(enabled == "disabled", "{UNIT} is {enabled}");
    let active = property(UNIT, "ActiveState")?;
    ensure!(active == "inactive", "{UNIT} is {active}");
    let (path, options) = OPTIONS;
    fs::write(path, options).context(path)?;
    run("systemctl", &["enable", "--now", UNIT])?;
    ensure!(property(UNIT, "Type")? == "notify");
    let status = property(UNIT, "StatusText")?;
    ensure!(status.starts_with("Watching"), "its status: {status:?}");
    let limit = property(UNIT, "WatchdogUSec")?;
    ensure!(limit == "1min", "it is to be alive within {limit}");
    Ok(())
}

/// Every file of it is as it was packed but for the options, and those by which
/// people and shells find their way are there.
pub(super) fn documented(_: &mut Stage) -> anyhow::Result<()> {
    for path in [
        "/usr/share/man/man8/node-tracer.8.gz",
        "/usr/share/man/man8/node-tracer-trace.8.gz",
        "/usr/share/bash-completion/completions/node-tracer",
        "/usr/share/zsh/vendor-completions/_node-tracer",
        "/usr/share/fish/vendor_completions.d/node-tracer.fish",
    ] {
        ensure!(Path::new(path).exists(), "there is no {path}");
    }
    // It has an exit code for each of them that differs, and says which.
    let verified = Command::new("dpkg").args(["--verify", NAME]).output()?;
    let differ = String::from_utf8_lossy(&verified.stdout).trim().to_owned();
    let (options, _) = OPTIONS;
    ensure!(
        differ.lines().count() == 1 && differ.ends_with(options),
        "not as it was packed: {differ}"
    );
    let script =
        "source /usr/share/bash-completion/completions/node-tracer; complete -p node-tracer";
    let completed = run("bash", &["--norc", "-c", script])?;
    ensure!(completed.contains("-F"), "{completed}");
    Ok(())
}

/// Gone with all that it has made: nothing has its name any more, and neither
/// systemd nor the journal's catalog knows it.
pub(super) fn purged(_: &mut Stage) -> anyhow::Result<()> {
    // Still on, as it is where somebody has had enough of it.
    run("systemctl", &["start", UNIT])?;
    run("apt-get", &["purge", "-y", NAME])?;
    ensure!(state()?.is_empty(), "it is {}", state()?);
    let left = named()?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    ensure!(property(UNIT, "ActiveState")? == "inactive");
    let catalog = run("journalctl", &["--list-catalog"])?;
    ensure!(!catalog.contains("node-tracer:"), "{catalog}");
    Ok(())
}
