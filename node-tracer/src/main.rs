//! The program; [`node_tracer`] says where everything lives.

use std::process::ExitCode;

fn main() -> ExitCode {
    node_tracer::main()
}
