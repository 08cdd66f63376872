//! The Rust toolchain in use: what it is, and parts of it that are missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::setup::{installing, ok};

/// Where the sources of Rust's own libraries are, in the sysroot.
pub(crate) const RUST_SRC: &str = "lib/rustlib/src/rust";

/// What `rustc -vV` and `rustc --print sysroot` say.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    pub(crate) release: String,
    /// That it was built from, in hexadecimal digits.
    pub(crate) commit: String,
    pub(crate) llvm_major: u32,
    pub(crate) sysroot: PathBuf,
}

impl Toolchain {
    /// The folder with LLD, under the name that a C compiler looks for.
    pub(crate) fn linker(&self) -> anyhow::Result<PathBuf> {
        let targets = self.sysroot.join("lib/rustlib");
        let all = fs::read_dir(&targets).with_context(|| targets.display().to_string())?;
        let all = all.flatten().map(|target| target.path().join("bin/gcc-ld"));
        let mut all = all.filter(|folder| folder.join("ld.lld").exists());
        let missing = || {
            format!(
                "{}: no bin/gcc-ld/ld.lld of this toolchain",
                targets.display()
            )
        };
        all.next().with_context(missing)
    }
}

fn rustc(args: &[&str]) -> anyhow::Result<String> {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(program)
        .args(args)
        .output()
        .context("start rustc")?;
    anyhow::ensure!(output.status.success(), "rustc {args:?}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// (release, commit, major version of LLVM) in the output of `rustc -vV`.
fn parse(version: &str) -> Option<(String, String, u32)> {
    let field = |name: &str| version.lines().find_map(|line| line.strip_prefix(name));
    let major = field("LLVM version: ")?.split('.').next()?.parse().ok()?;
    let commit = field("commit-hash: ")?.to_owned();
    Some((field("release: ")?.to_owned(), commit, major))
}

impl Toolchain {
    pub(crate) fn current() -> anyhow::Result<Self> {
        let version = rustc(&["-vV"])?;
        let (release, commit, llvm_major) =
            parse(&version).with_context(|| format!("cannot read `rustc -vV`:\n{version}"))?;
        let sysroot = PathBuf::from(rustc(&["--print", "sysroot"])?.trim_end());
        Ok(Self {
            release,
            commit,
            llvm_major,
            sysroot,
        })
    }

    fn has(&self, component: &str) -> bool {
        let inside = match component {
            "rust-src" => Path::new(RUST_SRC).join("library/core/src/lib.rs"),
            "rustfmt" => PathBuf::from("bin/rustfmt"),
            _ => PathBuf::from("bin/cargo-clippy"),
        };
        self.sysroot.join(inside).exists()
    }

    /// Adds the standard library for a target, if it is missing.
    pub(crate) fn bring_target(&self, target: &str) -> anyhow::Result<()> {
        let there = || {
            self.sysroot
                .join("lib/rustlib")
                .join(target)
                .join("lib")
                .exists()
        };
        if there() {
            ok("target", target);
            return Ok(());
        }
        installing("target", &format!("{target}, by rustup"));
        let added = Command::new("rustup")
            .args(["target", "add", target])
            .stdin(Stdio::null())
            .output();
        match added {
            Err(_) => anyhow::bail!(
                "{target} is missing and there is no rustup: install Rust by https://rustup.rs, or the rust-std of {target}"
            ),
            Ok(output) if output.status.success() && there() => Ok(()),
            Ok(output) => anyhow::bail!(
                "rustup target add {target}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ),
        }
    }

    /// Adds a component, if it is missing.
    pub(crate) fn bring(&self, component: &str) -> anyhow::Result<()> {
        if self.has(component) {
            ok(component, &format!("of rustc {}", self.release));
            return Ok(());
        }
        installing(component, &format!("of rustc {}, by rustup", self.release));
        // rustup takes RUSTUP_TOOLCHAIN from the environment, where its own
        // cargo has put it: the toolchain in use, not the default one.
        let added = Command::new("rustup")
            .args(["component", "add", component])
            .stdin(Stdio::null())
            .output();
        match added {
            Err(_) => anyhow::bail!(
                "{component} is missing and there is no rustup: install Rust by https://rustup.rs, or the {component} of rustc {}",
                self.release
            ),
            Ok(output) if output.status.success() && self.has(component) => Ok(()),
            Ok(output) => anyhow::bail!(
                "rustup component add {component}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_version_of_llvm_is_found() {
        let version = "rustc 1.95.0 (59807616e 2026-04-14)\ncommit-hash: 59807616e\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n";
        assert_eq!(
            parse(version),
            Some((String::from("1.95.0"), String::from("59807616e"), 22))
        );
        assert_eq!(parse("release: 1.95.0\n"), None);
    }
}
