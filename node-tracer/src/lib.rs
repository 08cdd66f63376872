//! node-tracer: finds Kubernetes pod sandboxes whose network namespace
//! outlives the pod and still holds its IP.
//!
//! One direction: what looks ([`kernel`], [`node`], [`kube`], [`ipam`], [`logs`])
//! -> [`event`] -> [`engine`] -> [`event::finding`] -> what writes ([`sink`],
//! [`report`], [`kube::events`]). Neither end knows the other, and the engine does
//! no I/O. The commands ([`trace`], [`scan`], [`replay`], [`repair`], [`check`] and
//! those of [`commands`]) are here, and know both.
//!
//! | crate | what |
//! |---|---|
//! | [`event`] | what happened, when, and what follows from it: events, findings, records, and how they are worded |
//! | [`engine`] | the model of the node, one rule a file, explanations: events in, changes of findings out; no I/O, no clock |
//! | [`kernel`] | the kernel programs: loaded, and what they write as events |
//! | [`node`] | what a node says of itself: /proc, netlink, cgroups, CNI, CRI, the kubelet's files |
//! | [`kube`] | what the API server is asked, and the Events that are written there |
//! | [`ipam`] | who gives out addresses, and to whom |
//! | [`logs`] | logs of the node's daemons, read as events |
//! | [`sink`] | what is written: text, JSON, journald, metrics |
//! | [`report`] | the page of an incident |
//! | [`sys`] | clocks, root's powers and giving them up, threads that may hang |
//! | [`cli`] | the command line as typed |
//!
//! | module | what |
//! |---|---|
//! | [`config`] | what the command line means |
//! | [`snapshot`], [`reservations`] | every source once; single addresses again and again |
//! | [`output`], [`outcome`] | where records go; what the exit code says |
//! | [`nearest`] | what was meant by a word that is none |
//! | [`log`], [`progress`], [`terminal`] | what the tool says about itself, and what it goes on with; to whom |
//! | [`notify`], [`heartbeat`] | what a service manager, and a probe, is told of `trace` |
//! | [`repair`] | the one command that changes the node, and only if told to |
//! | [`rules`], [`manual`] | the rules' pages, for people; man pages and completions |
//! | [`recording`], [`coverage`], [`platform`] | what the commands have in common; what was tested |

#![cfg_attr(not(test), forbid(unsafe_code))]

mod check;
mod cluster;
mod commands;
mod config;
mod coverage;
mod heartbeat;
mod log;
mod manual;
mod nearest;
mod notify;
mod outcome;
mod output;
#[cfg(test)]
mod packaging;
mod platform;
mod progress;
mod recording;
mod repair;
mod replay;
mod reservations;
mod rules;
mod scan;
#[cfg(test)]
mod schema;
mod snapshot;
mod terminal;
mod trace;

/// What fuzz targets try of the commands.
#[cfg(feature = "testing")]
pub mod testing {
    pub use crate::commands::report::fuzz as report;
    pub use crate::repair::{backup::fuzz as backup, load::fuzz as plan};
    pub use crate::replay::{fuzz as recording, fuzz_logs as logs};
}

use std::{io::Write as _, process::ExitCode};

use clap::Parser as _;

use crate::config::Config;
use cli::{Cli, Command};
use engine::explain::SubjectError;
use event::{fault, wording::escape::Printable};
use sys::{apart, privileges};

/// All is well, or there is nothing to say.
const NOTHING: u8 = 0;
const SOMETHING: u8 = 1;
/// An error.
const FAILED: u8 = 2;

pub fn main() -> ExitCode {
    let cli = Cli::parse();
    terminal::set(&cli.manner);
    log::to_stderr();
    privileges::hide_memory();
    progress::begin();
    let code = match run(&cli.command) {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to do if even this cannot be written.
            let _ = log::Stderr.write_all(said(&error).as_bytes());
            FAILED
        }
    };
    log::flush();
    apart::exit(code)
}

/// What is wrong, and below it what to do, of errors that say so apart: these
/// quote what others have named.
fn said(error: &anyhow::Error) -> String {
    let text = fault::chain(error.as_ref());
    let has_help = error.is::<SubjectError>()
        || error.is::<rules::NoSuchRule>()
        || error.is::<manual::ManualError>();
    match (text.split_once("\nhelp: "), help(error)) {
        (Some((what, help)), _) if has_help => {
            // What others have named in it is escaped where it is put in.
            let lines: Vec<String> = help
                .lines()
                .map(|line| Printable(line).to_string())
                .collect();
            format!("error: {}\n\nhelp: {}\n", Printable(what), lines.join("\n"))
        }
        (_, Some(help)) => format!("error: {}\n\nhelp: {help}\n", Printable(text)),
        (_, None) => format!("error: {}\n", Printable(text)),
    }
}

/// What to do about a file that cannot be read.
fn help(error: &anyhow::Error) -> Option<&'static str> {
    if let Some(node::pods::PodsError::Read { .. }) = error.downcast_ref() {
        return Some("make it with: kubectl get pods -A -o json > FILE");
    }
    if let Some(kube::KubeError::Read { .. }) = error.downcast_ref() {
        return Some(
            "--kubeconfig takes the file that kubectl reads; on a node often \
             /etc/kubernetes/kubelet.conf",
        );
    }
    match error.downcast_ref()? {
        logs::read::LogError::Open { .. } => {
            Some("name a recording (--record), a log, or - for standard input")
        }
        _ => None,
    }
}

/// A node in trouble is short of processor time. Who takes it must not decide
/// when this program runs, which itself needs little: atop(1) does the same. In a
/// container without CAP_SYS_NICE it stays as it is.
fn run_before_others() {
    let _ = rustix::process::setpriority_process(None, -20);
}

fn run(command: &Command) -> anyhow::Result<u8> {
    if let Command::Trace(_) | Command::Scan(_) | Command::Explain(_) | Command::Eni(_) = command {
        run_before_others();
    }
    match command {
        Command::Trace(options) => {
            trace::run(&Config::trace(options)?)?;
            Ok(NOTHING)
        }
        Command::Scan(options) => {
            let config = Config::scan(options)?;
            let write = match config.record {
                Some(_) => privileges::WRITE,
                None => privileges::CapabilitySet::empty(),
            };
            privileges::keep(config.privileges.look() | write);
            apart::begin();
            Ok(scan::run(&config)?.code())
        }
        Command::Explain(options) => {
            let config = Config::explain(options)?;
            privileges::keep(config.privileges.look());
            apart::begin();
            Ok(commands::explain::run(&options.subject, &config)?.code())
        }
        Command::Eni(cli::Eni { common, stall }) => {
            let config = Config::answer(common, stall)?;
            privileges::keep(config.privileges.look());
            apart::begin();
            Ok(commands::eni::run(&config)?.code())
        }
        Command::Replay(options) => {
            privileges::keep(privileges::READ);
            Ok(replay::run(&config::Replay::new(options)?)?.code())
        }
        Command::ExplainRule(options) => {
            rules::run(options.rule.as_deref())?;
            Ok(NOTHING)
        }
        Command::Completions(options) => {
            manual::completions(options.shell)?;
            Ok(NOTHING)
        }
        Command::Man(options) => {
            manual::page(options.command.as_deref())?;
            Ok(NOTHING)
        }
        Command::Report(options) => {
            privileges::keep(privileges::READ | privileges::WRITE);
            Ok(commands::report::run(&config::Report::new(options)?)?.code())
        }
        Command::Check(cli::Check {
            heartbeat: Some(file),
            ..
        }) => {
            heartbeat::check(file)?;
            Ok(NOTHING)
        }
        Command::Check(options) => {
            let whole = check::run(&Config::check(options)?)?;
            Ok(if whole { NOTHING } else { SOMETHING })
        }
        Command::Repair(options) => {
            let (config, repair) = Config::repair(options)?;
            repair::run(&config, &repair)
        }
    }
}
