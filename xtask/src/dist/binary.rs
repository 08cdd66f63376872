//! The released binary: static, and with nothing of this machine in it.
//!
//! Compilers write paths into what they make (where a panic came from, the
//! names of the kernel programs' sources), and the kernel programs are built by
//! a cargo of their own, to which flags do not come. So rustc is started by way
//! of this program ([`act_if_called`]), which tells it what to write in place of
//! each folder: of the repository, of cargo's registry, of the toolchain, of the
//! build.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::Release;
use crate::{cargo, setup};

/// What it is built for.
pub(super) const TARGET: &str = setup::GUESTS;

/// What each folder is called, one `FOLDER=NAME` a line; tells this program
/// that it is called in place of rustc.
const NAMES: &str = "NODE_TRACER_DIST_NAMES";

/// Names a binary that is packed as it is.
const GIVEN: &str = "NODE_TRACER_BIN";

/// Settings of whoever builds, which are none of the release's.
const REMOVED: [&str; 5] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "RUSTC_WRAPPER",
];

/// Where things are.
#[derive(Debug)]
pub(super) struct Folders {
    /// Cargo's target folder.
    pub(super) target: PathBuf,
    /// That of the release.
    pub(super) build: PathBuf,
    /// That of the second build of `--verify`. (Longer, so that a path that is
    /// written somewhere shows.)
    pub(super) again: PathBuf,
    registry: PathBuf,
    toolchain: PathBuf,
}

impl Folders {
    /// Asks cargo and rustc.
    pub(super) fn find() -> anyhow::Result<Self> {
        let output = cargo::cargo(&["metadata", "--no-deps", "--format-version=1"])?
            .output()
            .context("start cargo")?;
        let metadata: serde_json::Value =
            serde_json::from_slice(&output.stdout).context("cargo metadata")?;
        let target = metadata["target_directory"].as_str();
        let target = PathBuf::from(target.context("cargo names no target folder")?);
        Ok(Self {
            build: target.join("dist/build"),
            again: target.join("dist/build-again"),
            target,
            registry: cargo::home()?.join("registry/src"),
            toolchain: setup::for_build()?.sysroot,
        })
    }

    /// (folder, what it is called). Of two that fit, rustc takes the later one.
    fn names(&self, build: &Path) -> anyhow::Result<Vec<(PathBuf, &'static str)>> {
        let mut names = vec![(cargo::root().to_owned(), "/node-tracer")];
        let registries = fs::read_dir(&self.registry);
        let registries = registries.with_context(|| self.registry.display().to_string())?;
        for registry in registries {
            names.push((registry?.path(), "/registry"));
        }
        names.push((self.toolchain.join("lib/rustlib/src/rust"), "/rust"));
        names.push((self.toolchain.clone(), "/toolchain"));
        names.push((build.to_owned(), "/build"));
        Ok(names)
    }
}

/// Whether a binary is packed that was built elsewhere.
pub(super) fn is_given() -> bool {
    std::env::var_os(GIVEN).is_some()
}

/// Builds into this folder, and returns the binary's path.
pub(super) fn build(folders: &Folders, build: &Path, release: &Release) -> anyhow::Result<PathBuf> {
    if is_given() {
        return cargo::build_tracer(&[]);
    }
    setup::for_guests()?;
    let names = folders.names(build)?;
    let lines: Vec<String> = names
        .iter()
        .map(|(folder, name)| format!("{}={name}", folder.display()))
        .collect();
    let in_c: Vec<String> = lines
        .iter()
        .map(|line| format!("-ffile-prefix-map={line}"))
        .collect();
    let me = std::env::current_exe().context("this program")?;
    let args = [
        "--locked",
        "--release",
        "--target",
        TARGET,
        "--package",
        "node-tracer",
    ];
    let binary = cargo::build_with(&args, "node-tracer", |command| {
        REMOVED.iter().for_each(|name| {
            command.env_remove(name);
        });
        command
            .env("CARGO_TARGET_DIR", build)
            .env("RUSTC_WRAPPER", &me)
            .env(NAMES, lines.join("\n"))
            .env("CFLAGS", in_c.join(" "))
            .env("SOURCE_DATE_EPOCH", release.time.to_string());
    })?;
    let content = fs::read(&binary).with_context(|| binary.display().to_string())?;
    is_static(&content)?;
    has_no_paths(&content, &names)?;
    Ok(binary)
}

/// If cargo has started this program in place of rustc: goes on as rustc, with
/// the folders' names. Comes back otherwise.
pub(crate) fn act_if_called() {
    let Some(names) = std::env::var_os(NAMES) else {
        return;
    };
    let mut args = std::env::args_os().skip(1);
    let Some(rustc) = args.next() else {
        return;
    };
    let error = Command::new(rustc).args(args).args(flags(&names)).exec();
    eprintln!("error: rustc: {error}");
    std::process::exit(2);
}

fn flags(names: &OsString) -> Vec<String> {
    let names = names.to_string_lossy();
    let flags = names
        .lines()
        .map(|line| format!("--remap-path-prefix={line}"));
    flags.collect()
}

/// It runs on a node whatever is, or is not, installed there.
fn is_static(binary: &[u8]) -> anyhow::Result<()> {
    /// Type of the program header that names a dynamic linker.
    const INTERPRETER: u32 = 3;
    let number = |at: usize, length: usize| -> anyhow::Result<u64> {
        let bytes = binary.get(at..at + length).context("it ends too early")?;
        let number = bytes.iter().rev();
        Ok(number.fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    ensure!(
        binary.starts_with(b"\x7fELF\x02\x01"),
        "no 64-bit little-endian ELF file"
    );
    // Of the ELF header: where program headers are, their size, and how many.
    let (from, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for header in 0..count {
        let at = usize::try_from(from + header * size)?;
        if number(at, 4)? == u64::from(INTERPRETER) {
            bail!("the binary is linked dynamically");
        }
    }
    Ok(())
}

/// Another machine's would be others.
fn has_no_paths(binary: &[u8], names: &[(PathBuf, &str)]) -> anyhow::Result<()> {
    for (folder, _) in names {
        let path = folder.as_os_str().as_encoded_bytes();
        if let Some(at) = find(binary, path) {
            let text = &binary[at..binary.len().min(at + 120)];
            let end = text.iter().position(|byte| !byte.is_ascii_graphic());
            let text = String::from_utf8_lossy(&text[..end.unwrap_or(text.len())]);
            bail!("the binary has a path of this machine in it: {text}");
        }
    }
    Ok(())
}

fn find(content: &[u8], part: &[u8]) -> Option<usize> {
    let first = part.first()?;
    let mut from = 0;
    while let Some(at) = content[from..].iter().position(|byte| byte == first) {
        let at = from + at;
        if content[at..].starts_with(part) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_is_one_flag() {
        let names = OsString::from("/home/me/x=/x\n/home/me/a=b=/y");
        assert_eq!(
            flags(&names),
            [
                "--remap-path-prefix=/home/me/x=/x",
                "--remap-path-prefix=/home/me/a=b=/y"
            ]
        );
    }

    #[test]
    fn a_program_with_a_dynamic_linker_is_told_from_one_without() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(
            is_static(&own).is_err(),
            "these tests are linked dynamically"
        );
        let mut header = vec![0; 64 + 56];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (header[32], header[54], header[56]) = (64, 56, 1);
        header[64] = 1;
        is_static(&header).unwrap();
        header[64] = 3;
        assert!(is_static(&header).is_err());
        assert!(is_static(&header[..64]).is_err());
        assert!(is_static(b"#!/bin/sh").is_err());
    }

    #[test]
    fn a_path_of_this_machine_is_found_and_named() {
        let names = [(PathBuf::from("/home/me"), "/x")];
        assert!(has_no_paths(b"/home/you", &names).is_ok());
        let error = has_no_paths(b"..//home/me/src/a.rs\0rest", &names).unwrap_err();
        assert!(
            error.to_string().ends_with(": /home/me/src/a.rs"),
            "{error}"
        );
    }
}
