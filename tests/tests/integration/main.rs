//! Integration tests: the real tracer on the real kernel, and the stage itself.
//!
//! Run by `cargo xtask test`, which builds the tracer and names it in
//! `NODE_TRACER_BIN`. A test is a law about the tracer's contract; its name
//! says which.

#![expect(clippy::print_stdout, reason = "tests report what they measured")]

mod address;
mod calico;
mod cause;
mod cni;
mod command_line;
mod daemonset;
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

use node_tracer_tests::harness::{self, Test};

fn main() -> std::process::ExitCode {
    node_tracer_tests::helper::act_if_asked();
    let groups: &[&[Test]] = &[
        stage::TESTS,
        node::TESTS,
        command_line::TESTS,
        lifecycle::TESTS,
        metrics::TESTS,
        notify::TESTS,
        packaging::TESTS,
        path::TESTS,
        privileges::TESTS,
        recording::TESTS,
        replay::TESTS,
        logs::TESTS,
        report::TESTS,
        netns::TESTS,
        address::TESTS,
        many::TESTS,
        task::TESTS,
        cni::TESTS,
        recorder::TESTS,
        calico::TESTS,
        terway::TESTS,
        incident::TESTS,
        hang::TESTS,
        hostile::TESTS,
        hostile_cni::TESTS,
        hostile_flood::TESTS,
        siege::TESTS,
        journald::TESTS,
        scan::TESTS,
        explain::TESTS,
        kube::TESTS,
        daemonset::TESTS,
        faults::TESTS,
        cause::TESTS,
        repair::TESTS,
        zoo::TESTS,
    ];
    harness::run(&groups.concat())
}
