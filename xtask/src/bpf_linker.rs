//! bpf-linker, built against the LLVM of the toolchain in use.
//!
//! It links the bitcode that rustc writes, so it must have rustc's own LLVM or
//! a newer one. The toolchain has that LLVM as a shared library: linked
//! against it, bpf-linker is built without any LLVM on the system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use node_tracer_tests::scratch::Scratch;

use crate::cargo;
use crate::setup::{installing, ok};
use crate::toolchain::Toolchain;

const VERSION: &str = "0.13.0";
/// Major versions of LLVM for which that version has a feature.
const LLVM: std::ops::RangeInclusive<u32> = 21..=23;

/// The toolchain's own LLVM.
fn library(toolchain: &Toolchain) -> anyhow::Result<PathBuf> {
    let folder = toolchain.sysroot.join("lib");
    fs::read_dir(&folder)
        .with_context(|| folder.display().to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        // Not the linker script `libLLVM-22-….so` beside it.
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libLLVM.so.")))
        .max()
        .with_context(|| {
            format!(
                "rustc {} has no LLVM of its own in {} (not from rustup?): install Rust by https://rustup.rs, or bpf-linker {VERSION} by hand",
                toolchain.release,
                folder.display()
            )
        })
}

/// Whether this bpf-linker starts, is the right version, and is linked against
/// that library: the name and the folder are in the program as they are.
fn fits(program: &Path, library: &Path) -> bool {
    let version = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    let right = version.is_ok_and(|output| {
        output.status.success()
            && String::from_utf8_lossy(&output.stdout).trim() == format!("bpf-linker {VERSION}")
    });
    let (Some(folder), Some(name)) = (library.parent(), library.file_name()) else {
        return false;
    };
    right
        && fs::read(program).is_ok_and(|content| {
            [folder.as_os_str(), name]
                .iter()
                .all(|part| contains(&content, part.as_encoded_bytes()))
        })
}

fn contains(content: &[u8], part: &[u8]) -> bool {
    let Some((first, _)) = part.split_first() else {
        return true;
    };
    let mut rest = content;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        if rest[at..].starts_with(part) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

/// Installs it into cargo's folder, unless one that fits is there.
pub(crate) fn bring(toolchain: &Toolchain) -> anyhow::Result<()> {
    let home = cargo::home()?;
    let program = home.join("bin/bpf-linker");
    let library = library(toolchain)?;
    let llvm = toolchain.llvm_major;
    if fits(&program, &library) {
        ok("bpf-linker", &format!("{VERSION} with LLVM {llvm}"));
        return Ok(());
    }
    anyhow::ensure!(
        LLVM.contains(&llvm),
        "rustc {} has LLVM {llvm}, and bpf-linker {VERSION} takes {} to {}: use another toolchain",
        toolchain.release,
        LLVM.start(),
        LLVM.end()
    );
    installing(
        "bpf-linker",
        &format!("{VERSION} with LLVM {llvm}, built in about a minute"),
    );

    // Away from this repository's settings and target folder.
    let build = Scratch::create()?;
    let flags = [
        format!("-Clink-arg={}", library.display()),
        format!(
            "-Clink-arg=-Wl,-rpath,{}",
            toolchain.sysroot.join("lib").display()
        ),
    ];
    let features = format!("llvm-{llvm},no-llvm-linking");
    let mut install = cargo::cargo(&["install", "bpf-linker", "--version", VERSION])?;
    install
        .args([
            "--locked",
            "--force",
            "--quiet",
            "--no-default-features",
            "--features",
            &features,
        ])
        .arg("--root")
        .arg(&home)
        .arg("--target-dir")
        .arg(build.path())
        .current_dir(build.path())
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    for outer in [
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_BUILD_TARGET",
        "RUSTFLAGS",
    ] {
        install.env_remove(outer);
    }
    let status = install
        .stdin(Stdio::null())
        .status()
        .context("start cargo")?;
    anyhow::ensure!(
        status.success(),
        "cargo install bpf-linker {VERSION}: {status}"
    );
    anyhow::ensure!(
        fits(&program, &library),
        "{} was built but does not work",
        program.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::contains;

    #[test]
    fn a_part_is_found_wherever_it_is() {
        assert!(contains(b"abcabd", b"abd"));
        assert!(contains(b"aab", b"ab"));
        assert!(contains(b"", b""));
        assert!(!contains(b"abcab", b"abd"));
    }
}
