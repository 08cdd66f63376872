//! Integration tests: the real tracer on the real kernel, and the stage itself.
//!
//! Run by `cargo xtask test`, which builds the tracer and names it in
//! `NODE_TRACER_BIN`. A test is a law about the tracer's contract; its name
//! says which.

#![expect(clippy::print_stdout, reason = "tests report what they measured")]

mod address;
mod command_line;
mod incident;
mod lifecycle;
mod netns;
mod stage;
mod task;

use node_tracer_tests::harness::{self, Test};

fn main() -> std::process::ExitCode {
    node_tracer_tests::helper::act_if_asked();
    let groups: [&[Test]; 7] = [
        stage::TESTS,
        command_line::TESTS,
        lifecycle::TESTS,
        netns::TESTS,
        address::TESTS,
        task::TESTS,
        incident::TESTS,
    ];
    harness::run(&groups.concat())
}
