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

#[test]
fn some_nodes_have_stale_entries_in_their_tables() {
    let has_some = |seen: VerdictsOf| {
        let seeds = (0..NODES).map(|seed| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut nodes = seeds.map(|seed| Truth::any(&mut Dice::Seed(seed)));
        nodes.any(|truth| {
            let last = seen(&truth, &Missing::new()).pop().unwrap_or_default();
            last.found.keys().any(|(rule, _)| *rule == Rule::StalePath)
        })
    };
    assert!(has_some(scanned) && has_some(traced));
}

/// What stands behind every foreign name.
const HOSTILE: &str = "$(touch pwn);`id`'";

/// All names of what is told are hostile, and what belongs together still does.
fn with_hostile_names(event: &Event) -> Event {
    const NAMES: [&str; 17] = [
        "namespace",
        "name",
        "uid",
        "uids",
        "pod_uid",
        "id",
        "container_id",
        "ifname",
        "path",
        "netns_path",
        "mounts",
        "node",
        "comm",
        "folder",
        "device",
        "host_devices",
        "plugin",
    ];
    fn change(value: &mut serde_json::Value, named: bool) {
        match value {
            serde_json::Value::String(text) if named => text.push_str(HOSTILE),
            serde_json::Value::Array(all) => all.iter_mut().for_each(|each| change(each, named)),
            serde_json::Value::Object(members) => {
                for (key, value) in members {
                    change(value, NAMES.contains(&key.as_str()));
                }
            }
            _ => {}
        }
    }
    let mut json = serde_json::to_value(event).unwrap();
    change(&mut json, false);
    serde_json::from_value(json).unwrap()
}

/// From where a command begins in advice.
fn commands(advice: &str) -> Option<&str> {
    const PROGRAMS: [&str; 17] = [
        "arping ",
        "calicoctl ",
        "cat /",
        "crictl ",
        "flock ",
        "grep ",
        "ip ",
        "journalctl ",
        "kill ",
        "kubectl ",
        "ls -",
        "mv ",
        "node-tracer ",
        "nsenter ",
        "ps -",
        "tcpdump ",
        "umount ",
    ];
    let begins = |at: &usize| advice[..*at].is_empty() || advice[..*at].ends_with([' ', '(']);
    let found = PROGRAMS
        .iter()
        .flat_map(|program| advice.match_indices(program));
    let first = found.map(|(at, _)| at).filter(begins).min()?;
    advice.get(first..)
}

/// What a shell expands in a text: what stands in no quotes. Those of words, as in
/// `runtime's`, are none.
fn unquoted(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['\'', '\\']) {
        let (before, quote) = rest.split_at(at);
        out.push_str(before);
        let quote_begins = before.is_empty() || before.ends_with([' ', '=', '(']);
        if quote.starts_with('\\') {
            rest = quote.get(2..).unwrap_or_default();
        } else if quote_begins {
            rest = quote[1..].split_once('\'').map_or("", |(_, rest)| rest);
        } else {
            rest = &quote[1..];
        }
    }
    out + rest
}

#[test]
fn no_foreign_name_is_more_than_a_word_in_a_command_of_advice() {
    let mut rules = BTreeSet::new();
    let mut quoted = 0;
    for seed in 0..NODES {
        let truth = Truth::any(&mut Dice::Seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let missing = Missing::new();
        let view = SourceView {
            truth: &truth,
            missing: &missing,
        };
        let mut engine = Engine::of_trace(Settings {
            node: format!("node-1{HOSTILE}"),
            ..settings()
        });
        let quiet = [LOOK + 40, LATE].map(|time| (time, Vec::new()));
        for (time, events) in view.trace().into_iter().chain(quiet) {
            for event in &events {
                engine.apply(&with_hostile_names(event));
            }
            let time = s(time);
            let what = What::Tick;
            let time = engine.not_before().map_or(time, |pause| pause.max(time));
            for (finding, _) in engine.apply(&Event { time, what }) {
                for step in &finding.advice {
                    let command = commands(step).unwrap_or_default();
                    let bare = unquoted(command);
                    let expands = ["$(", "`", ";touch"].iter().any(|sign| bare.contains(sign));
                    assert!(!expands, "{:?}: {step}\n{bare}", finding.rule);
                    if command.contains("$(") {
                        quoted += 1;
                        rules.insert(finding.rule);
                    }
                }
            }
        }
    }
    assert!(quoted > NODES && rules.len() > 3, "{quoted}: {rules:?}");
}
