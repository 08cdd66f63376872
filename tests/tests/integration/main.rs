//! Integration tests: the real tracer on the real kernel, and the stage itself.
//!
//! Run by `cargo xtask test`, which builds the tracer and names it in
//! `NODE_TRACER_BIN`. A test is a law about the tracer's contract; its name
//! says which, and [`test!`](node_tracer_tests::test) registers it.

#![expect(clippy::print_stdout, reason = "tests report what they measured")]

mod address;
mod calico;
mod cause;
mod cni;
mod command_line;
mod daemonset;
mod examples;
mod explain;
mod faults;
mod hang;
mod hostile;
mod hostile_cni;
mod hostile_flood;
mod incident;
mod journald;
mod kube;
mod lifecycle;
mod logs;
mod many;
mod metrics;
mod netns;
mod node;
mod notify;
mod packaging;
mod path;
mod privileges;
mod problem_detector;
mod recorder;
mod recording;
mod repair;
mod replay;
mod report;
mod scan;
mod siege;
mod stage;
mod task;
mod terway;
mod zoo;

fn main() -> std::process::ExitCode {
    node_tracer_tests::helper::act_if_asked();
    node_tracer_tests::harness::run()
}
