//! Calls of cargo.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde_json::Value;

use crate::arch::Arch;

pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The files below `root` that git knows, or would, and that are still there.
pub(crate) fn own_files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .context("start git")?;
    anyhow::ensure!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let names = String::from_utf8(output.stdout).context("git ls-files")?;
    let names = names.split_terminator('\0').map(PathBuf::from);
    // One that was removed, and git has not been told.
    Ok(names.filter(|name| root.join(name).exists()).collect())
}

/// Where cargo puts the programs that it installs.
pub(crate) fn home() -> anyhow::Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(Path::new(&home).join(".cargo"))
}

/// Cargo's target folder.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let output = cargo(&["metadata", "--no-deps", "--format-version=1"])?
        .output()
        .context("start cargo")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let target = metadata["target_directory"].as_str();
    target
        .map(PathBuf::from)
        .context("cargo names no target folder")
}

/// PATH with cargo's own programs first, so that builds find bpf-linker.
fn path() -> anyhow::Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(home()?.join("bin")).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).context("PATH")
}

/// `cargo ARGS` in the repository.
pub(crate) fn cargo(args: &[&str]) -> anyhow::Result<Command> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).env("PATH", path()?);
    Ok(command)
}

/// Builds, and returns the path of the program `node-tracer`. One that
/// `NODE_TRACER_BIN` names is taken as it is.
pub(crate) fn build_tracer(args: &[&str]) -> anyhow::Result<PathBuf> {
    if let Some(tracer) = std::env::var_os("NODE_TRACER_BIN") {
        println!(
            "NODE_TRACER_BIN is set: not built, {} is used",
            Path::new(&tracer).display()
        );
        return Ok(tracer.into());
    }
    build(args, "node-tracer")
}

/// Builds, and returns the path of the program `name`.
pub(crate) fn build(args: &[&str], name: &str) -> anyhow::Result<PathBuf> {
    build_with(args, name, |_| {})
}

/// The same of a program of tests.
pub(crate) fn build_tests(args: &[&str], name: &str) -> anyhow::Result<PathBuf> {
    build_one(args, name, true, |_| {})
}

/// The same, with the command made ready by the caller.
pub(crate) fn build_with(
    args: &[&str],
    name: &str,
    prepare: impl FnOnce(&mut Command),
) -> anyhow::Result<PathBuf> {
    build_one(args, name, false, prepare)
}

fn build_one(
    args: &[&str],
    name: &str,
    is_test: bool,
    prepare: impl FnOnce(&mut Command),
) -> anyhow::Result<PathBuf> {
    let mut command = cargo(&["build", "--message-format", "json-render-diagnostics"])?;
    prepare(command.args(args));
    command.envs(Arch::ALL.into_iter().flat_map(Arch::variables));
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("start cargo")?;
    let messages = BufReader::new(child.stdout.take().context("no pipe")?).lines();
    let executable = messages
        .map_while(Result::ok)
        .filter_map(|line| serde_json::from_str::<Value>(&line).ok())
        .filter(|message| {
            message["target"]["name"] == name && message["profile"]["test"] == is_test
        })
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .last();
    let status = child.wait().context("wait for cargo")?;
    anyhow::ensure!(status.success(), "the build failed");
    executable.with_context(|| format!("cargo has built no program {name}"))
}
