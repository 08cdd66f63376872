//! `siege`: two users and a container attack the released tracer, all at once,
//! beside the real incident; see `tests/tests/integration/siege.rs`.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use crate::{
    cargo::{build_tracer, cargo},
    setup,
};

#[derive(Debug, Args)]
pub(crate) struct Siege {
    /// How long it lasts
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

pub(crate) fn run(asked: &Siege) -> anyhow::Result<ExitCode> {
    setup::run()?;
    println!("── siege: build");
    let tracer = build_tracer(&["--release", "--package", "node-tracer"])?;
    let test = ["--package", "node-tracer-tests", "--test", "integration"];
    let status = cargo(&["test", "--quiet"])?
        .args(test)
        .args(["--", "siege_"])
        .env("NODE_TRACER_BIN", &tracer)
        .env("NODE_TRACER_SIEGE_SECONDS", asked.seconds.to_string())
        .status()
        .context("start cargo")?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
