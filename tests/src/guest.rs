//! What runs in the guests of `cargo xtask vm`: a kernel, this program as its
//! first process, and the tracer.
//!
//! | module | what |
//! |---|---|
//! | `init` | the first process: mounts, modules, the end |
//! | `report` | what is said to the host, one JSON object a line |
//! | `matrix` | every signal by every mechanism |
//! | `coverage` | what the tracer says that it can see |
//! | `stock` | what is there before it starts |
//! | `netns`, `address`, `task`, `teardown`, `plugin` | how a signal is made, and what must be told of it |
//! | `suspend` | the machine sleeps, and wakes |
//! | `story` | the incident, from its beginning to its end |
//! | `node` | a whole node, with the tracer as a service of it, or in a pod |
//! | `privileges` | with one fact taken away at a time |
//!
//! A test is a law about what the tracer tells, whatever the mechanism. Where
//! a mechanism cannot tell all, it says so in its coverage, and the test asks
//! no more than that.

mod address;
mod coverage;
mod incident;
mod init;
mod matrix;
mod netns;
mod node;
mod plugin;
mod privileges;
mod report;
mod stock;
mod suspend;
mod task;
mod teardown;

use std::fs;
use std::process::ExitCode;

/// The guest's program: the first process, its tests, or a CNI plugin of
/// theirs.
pub fn main() -> ExitCode {
    if plugin::act_if_called() {
        return ExitCode::SUCCESS;
    }
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some(init::TESTS) => {
            let suite = args.next().unwrap_or_default();
            let wanted: Vec<String> = args.collect();
            match suite.as_str() {
                "matrix" => matrix::run(&wanted),
                "node" => node::run(&wanted),
                "cluster" => node::cluster::run(&wanted),
                "daemonset" => node::daemonset::run(&wanted),
                "privileges" => privileges::run(&wanted),
                other => {
                    eprintln!("guest: there is no suite {other}");
                    ExitCode::FAILURE
                }
            }
        }
        _ if std::process::id() == 1 => init::run(),
        _ => {
            eprintln!("this is the first process of a guest of `cargo xtask vm`");
            ExitCode::FAILURE
        }
    }
}

/// The kernel's version: what a kernel has cannot always be asked of it without
/// the answer that is to be tested.
fn release() -> (u32, u32) {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = text.split(['.', '-']).filter_map(|part| part.parse().ok());
    (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    )
}
