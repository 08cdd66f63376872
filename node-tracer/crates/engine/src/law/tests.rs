use std::time::Instant;

use super::*;

/// How many nodes are made up where nobody asks for more.
const NODES: u64 = 40;
/// For how many seconds to go on making them up.
const SECONDS: &str = "NODE_TRACER_LAW_SECONDS";
/// The first one's number, to see it again.
const SEED: &str = "NODE_TRACER_LAW_SEED";

fn asked(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

#[test]
fn a_missing_source_makes_neither_a_yes_nor_a_no_and_the_truth_is_found() {
    let started = Instant::now();
    let first = asked(SEED).unwrap_or(0);
    let seconds = asked(SECONDS);
    let mut seed = first;
    while match seconds {
        Some(seconds) => started.elapsed().as_secs() < seconds,
        None => seed < first + NODES,
    } {
        let mut dice = Dice::Seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let held = std::panic::catch_unwind(move || check_one(&mut dice));
        assert!(held.is_ok(), "see it again with {SEED}={seed}");
        seed += 1;
    }
    assert!(seed > first, "no time for any node");
}

#[test]
fn what_a_fuzzer_found_once_stays_found() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/law");
    let seeds: Vec<_> = std::fs::read_dir(seeds).unwrap().collect();
    assert!(!seeds.is_empty());
    for seed in seeds {
        let path = seed.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let held = std::panic::catch_unwind(|| check(&bytes));
        assert!(held.is_ok(), "{}", path.display());
    }
}
