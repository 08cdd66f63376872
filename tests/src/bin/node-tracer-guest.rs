//! The first process of a guest of `cargo xtask vm`, and all of its tests.

fn main() -> std::process::ExitCode {
    node_tracer_tests::helper::act_if_asked();
    node_tracer_tests::guest::main()
}
