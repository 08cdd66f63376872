//! `lint`: rustfmt, clippy (host and eBPF), rustdoc, where warnings are errors;
//! links and wording of the documents ([`documents`]); and other people's code, by cargo-deny (`.cargo/deny.toml`), where that is
//! installed.

use std::process::{Command, ExitCode};

use anyhow::Context as _;

use crate::cargo::cargo;
use crate::{documents, setup, wording};

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

/// Licences, sources and known faults of what is built in. The list of faults is
/// not in the registry: where it is out of reach, that is said.
fn deny() -> anyhow::Result<bool> {
    println!("── lint: cargo deny");
    let said = cargo(&["deny", "--version"])?.output();
    if !said.is_ok_and(|said| said.status.success()) {
        println!("skipped: cargo-deny is not installed: cargo install cargo-deny --locked");
        return Ok(true);
    }
    let check = [
        "deny",
        "--log-level",
        "error",
        "check",
        "--hide-inclusion-graph",
    ];
    let own = cargo(&check)?
        .args(["bans", "licenses", "sources"])
        .status();
    let faults = cargo(&check)?.arg("advisories").output();
    let faults = faults.context("start cargo deny")?;
    let complaints = String::from_utf8_lossy(&faults.stderr);
    let is_known = !complaints.contains("failed to fetch advisory database");
    match (faults.status.success(), is_known) {
        (true, _) => {}
        (false, true) => print!("{complaints}"),
        (false, false) => println!("skipped: the list of known faults is out of reach"),
    }
    let own = own.context("start cargo deny")?.success();
    Ok(own && (faults.status.success() || !is_known))
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
    println!("── lint: documents and wording");
    let problems = [documents::problems()?, wording::problems()?].concat();
    problems.iter().for_each(|problem| println!("{problem}"));
    if !problems.is_empty() {
        failed.push("documents and wording");
    }
    if !deny()? {
        failed.push("cargo deny");
    }
    if failed.is_empty() {
        println!("lint: clean");
        return Ok(ExitCode::SUCCESS);
    }
    println!("lint: failed: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}
