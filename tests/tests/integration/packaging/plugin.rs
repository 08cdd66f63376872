//! The kubectl plugin's archive and krew's manifest, as released.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use node_tracer_tests::containerd::image::architecture;
use node_tracer_tests::kube::clients;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;

use super::{released, run, said};

const PLUGIN: &str = "kubectl-node_tracer";

/// The plugin for this machine.
fn archive() -> anyhow::Result<PathBuf> {
    released(&format!("-linux-{}.tar.gz", architecture()?))
}

test!(
    apart & [Need::Packages, Need::Program("sha256sum", "coreutils")],
    krew_manifest_names_the_released_archive_by_its_sum
);
fn krew_manifest_names_the_released_archive_by_its_sum() -> anyhow::Result<()> {
    let archive = archive()?;
    let manifest = fs::read_to_string(released("-krew.yaml")?)?;
    let value = |key: &str| {
        let mut lines = manifest.lines().map(str::trim);
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        value.with_context(|| format!("no {key} in {manifest}"))
    };
    let sum = said(Command::new("sha256sum").arg(&archive))?;
    ensure!(sum.starts_with(&format!("{} ", value("sha256")?)), "{sum}");
    let name = archive.file_name().unwrap_or_default().display();
    let version = env!("CARGO_PKG_VERSION");
    let uri = value("uri")?;
    ensure!(uri.ends_with(&format!("/v{version}/{name}")), "{uri}");
    ensure!(value("version")? == format!("v{version}") && value("bin")? == PLUGIN);
    Ok(())
}

test!(
    apart
        & [
            Need::Packages,
            Need::KubeClients,
            Need::Program("tar", "tar")
        ],
    kubectl_old_and_new_starts_the_released_plugin
);
fn kubectl_old_and_new_starts_the_released_plugin() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let archive = archive()?;
    run(Command::new("tar")
        .args(["-xzf"])
        .arg(&archive)
        .arg("-C")
        .arg(folder.path()))?;
    for file in [PLUGIN, "LICENSE", "THIRD-PARTY"] {
        ensure!(folder.path().join(file).is_file(), "no {file}");
    }
    for of in clients::all() {
        let kubectl = |args: &[&str]| {
            let mut command = of.kubectl();
            said(command.args(args).env("PATH", folder.path())).with_context(|| of.name())
        };
        let listed = kubectl(&["plugin", "list"])?;
        ensure!(listed.contains(PLUGIN), "{listed}");
        let version = kubectl(&["node-tracer", "--version"])?;
        let expected = format!("kubectl node-tracer {}", env!("CARGO_PKG_VERSION"));
        ensure!(version.trim() == expected, "{version}");
    }
    Ok(())
}
