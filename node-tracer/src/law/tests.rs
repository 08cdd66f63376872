use std::time::Instant;

use super::*;

/// How long to try; without it, a few hundred nodes.
const SECONDS: &str = "NODE_TRACER_LAW_SECONDS";
/// Where to begin, to see one again.
const SEED: &str = "NODE_TRACER_LAW_SEED";

#[test]
fn histogram() {
    let mut hist: BTreeMap<String, (u32, u64, String)> = BTreeMap::new();
    let from: u64 = std::env::var(SEED).ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let n: u64 = std::env::var("N").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
    let started = Instant::now();
    for seed in from..from + n {
        let mut dice = Dice::Seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let truth = Truth::any(&mut dice);
        for (how, seen) in [("SCAN", scanned as Seen), ("TRACE", traced)] {
        let whole = seen(&truth, &Missing::new());
        if let Some(why) = disagreement(&truth, &whole) {
            let key: String = why.chars().filter(|c| !c.is_ascii_digit()).take(60).collect();
            let e = hist.entry(format!("{how} ORACLE {key}")).or_insert((0, seed, why));
            e.0 += 1;
        }
        for missing in subsets(&mut dice) {
            if missing.len() > 1 { continue; }
            let less = seen(&truth, &missing);
            for ((when, whole), less) in [1, 2].iter().zip(&whole).zip(&less) {
                compare(whole, less, &missing, &mut |rule, subject, what| {
                    let short: String = what.chars().filter(|c| !c.is_ascii_digit()).take(34).collect();
                    let key = format!("{how} {} {:?} {} {short}", rule.as_str(), missing.iter().next().unwrap(), when);
                    let e = hist.entry(key).or_insert((0, seed, format!("{subject:?} {what}")));
                    e.0 += 1;
                });
            }
        }
        }
    }
    println!("{:?}", started.elapsed());
    for (key, (n, seed, why)) in hist {
        println!("{n:5} seed {seed:4} {key} || {why}");
    }
}
