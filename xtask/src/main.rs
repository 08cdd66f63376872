//! Development commands: `cargo xtask COMMAND`. One module a command.
//!
//! | module | command |
//! |---|---|
//! | [`setup`] | brings what the build and the tests need ([`toolchain`], [`bpf_linker`], [`packages`], [`kube_clients`], [`newer`]) |
//! | [`demo`] | stages an incident and shows what the tracer says |
//! | [`mod@test`] | runs all tests |
//! | [`siege`] | two users and a container attack for a minute, beside the incident |
//! | [`mod@bench`] | measures, beside what one would use instead |
//! | [`mod@fuzz`] | feeds the readers what nobody would write |
//! | [`mod@miri`] | runs what reads with `unsafe` in an interpreter that sees what it does wrong |
//! | [`mod@dist`] | what is released: static binary, packages, image |
//! | [`lint`] | rustfmt, clippy, rustdoc, the documents |
//! | [`mod@vm`] | runs the tracer on other kernels, in QEMU |
//! | [`run`] | builds the tracer and runs it |

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool for people"
)]

mod apt;
mod arch;
mod bench;
mod bpf_linker;
mod cargo;
mod demo;
mod dist;
mod documents;
mod fuzz;
mod generated;
mod kube_clients;
mod lint;
mod miri;
mod newer;
mod packages;
mod run;
mod setup;
mod siege;
mod test;
mod toolchain;
mod vm;
mod wording;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development commands of node-tracer.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what the build and the tests need (does nothing where all is there)
    Setup,
    /// Stage a real incident and show what the tracer says about it (root)
    Demo,
    /// Run all tests; those that this machine cannot run are named
    Test {
        /// Run only the tests with this in their name
        #[arg(last = true)]
        filter: Vec<String>,
    },
    /// Let two users and a container attack it, beside the real incident (root)
    Siege(siege::Siege),
    /// Measure, beside what one would use instead (root)
    Bench(bench::Bench),
    /// Feed what the tool reads from others with what nobody would write
    Fuzz(fuzz::Fuzz),
    /// Run the tests of what reads the kernel's bytes under Miri, if it is installed
    Miri,
    /// Run the tracer on Debian's kernels, in QEMU
    Vm(vm::Vm),
    /// Build what is released: a static binary, packages, an image, checksums
    Dist(dist::Dist),
    /// rustfmt, clippy, rustdoc, with warnings as errors; the links of the documents
    Lint,
    /// Build node-tracer and run it
    Run {
        /// Arguments of node-tracer
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    node_tracer_tests::helper::act_if_asked();
    bench::crictl::act_if_called();
    dist::act_if_called();
    let done = match Cli::parse().command {
        Command::Setup => setup::run().map(|()| ExitCode::SUCCESS),
        Command::Demo => demo::run(),
        Command::Test { filter } => test::run(&filter),
        Command::Siege(asked) => siege::run(&asked),
        Command::Bench(asked) => bench::run(&asked),
        Command::Fuzz(asked) => fuzz::run(&asked),
        Command::Miri => miri::run(),
        Command::Vm(asked) => vm::run(&asked),
        Command::Dist(asked) => dist::run(&asked),
        Command::Lint => lint::run(),
        Command::Run { args } => run::run(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
