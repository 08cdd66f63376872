//! `miri`: the unit tests of what reads the kernel's bytes with `unsafe`, by
//! Rust's interpreter, which sees what they do wrong with memory. It comes with
//! nightly toolchains only: where there is none, the command says so and is done.
//!
//! Most other unsafe code is a system call that the interpreter does not know:
//! mmap(2) of the kernel's maps, clone(2), netlink.

use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;

use crate::cargo::root;

/// Tests whose names have one of these in them.
const TESTS: [&str; 3] = [
    "ebpf::records::tests::",
    "ebpf::inventory::tests::",
    "clock::tests::",
];

/// How it is brought.
const INSTALL: &str = "rustup toolchain install nightly --component miri,rust-src";

fn miri(args: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "miri"])
        .args(args)
        .current_dir(root());
    command
}

/// Runs them; where there is no Miri, says so.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let mut version = miri(&["--version"]);
    let version = version.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        println!("── miri: skipped: it is not installed: {INSTALL}");
        return Ok(ExitCode::SUCCESS);
    }
    let status = miri(&[
        "test",
        "--lib",
        "--package",
        "node-tracer-kernel",
        "--package",
        "node-tracer-sys",
    ])
    .args(["--target-dir", "target/miri", "--"])
    .args(TESTS)
    // Tests look at the clock. The kernel's programs are not run.
    .env("MIRIFLAGS", "-Zmiri-disable-isolation")
    .env("AYA_BUILD_SKIP", "true")
    .status()
    .context("start rustup")?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
