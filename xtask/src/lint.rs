//! `lint`: rustfmt, clippy (host and eBPF), rustdoc; warnings are errors.

use std::process::{Command, ExitCode};

use anyhow::Context as _;

use crate::cargo::cargo;
use crate::setup;

/// The programs for eBPF are linted for their own target: on the host they
/// are compiled away.
fn clippy_ebpf() -> anyhow::Result<Command> {
    let mut command = cargo(&["clippy", "--package", "node-tracer-ebpf", "--bins"])?;
    command
        .args([
            "--target",
            "bpfel-unknown-none",
            "-Zbuild-std=core",
            "--",
            "-Dwarnings",
        ])
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env(
            "RUSTFLAGS",
            format!("--cfg=bpf_target_arch=\"{}\"", std::env::consts::ARCH),
        );
    Ok(command)
}

fn rustdoc() -> anyhow::Result<Command> {
    let mut command = cargo(&[
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ])?;
    // The documentation is for who works on it: private items are always there.
    let flags = "-Dwarnings -Arustdoc::private_intra_doc_links";
    command.env("RUSTDOCFLAGS", flags);
    Ok(command)
}

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let toolchain = setup::for_build()?;
    toolchain.bring("rustfmt")?;
    toolchain.bring("clippy")?;
    let steps = [
        ("rustfmt", cargo(&["fmt", "--all", "--check"])?),
        (
            "clippy",
            cargo(&["clippy", "--workspace", "--all-targets", "--", "-Dwarnings"])?,
        ),
        ("clippy for eBPF", clippy_ebpf()?),
        ("rustdoc", rustdoc()?),
    ];
    let mut failed = Vec::new();
    for (name, mut command) in steps {
        println!("── lint: {name}");
        if !command
            .status()
            .with_context(|| format!("start {name}"))?
            .success()
        {
            failed.push(name);
        }
    }
    if failed.is_empty() {
        println!("lint: clean");
        return Ok(ExitCode::SUCCESS);
    }
    println!("lint: failed: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}
