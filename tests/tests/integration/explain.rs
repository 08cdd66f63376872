//! `explain` on a real node.
use node_tracer_tests::harness::Test;
pub(crate) const TESTS: &[Test] = &[];
