//! `run`: builds the tracer and becomes it.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use node_tracer_tests::stage::Need;

use crate::{cargo, setup};

pub(crate) fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    setup::for_build()?;
    let tracer = cargo::build_tracer(&["--release", "--package", "node-tracer"])?;
    if let Some(line) = Need::Root.missing() {
        eprintln!("node-tracer {line}");
    }
    // Only comes back if it fails.
    Err(Command::new(&tracer).args(args).exec()).with_context(|| tracer.display().to_string())
}
