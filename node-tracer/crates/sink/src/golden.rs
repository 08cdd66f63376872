//! Golden tests: whole runs as each sink prints them.
//!
//! `golden/NAME.in.jsonl` is the input, records as `-o json` prints them;
//! `NAME.txt`, `NAME.verbose.txt`, `NAME.colour.txt`, `NAME.jsonl` and `NAME.journal` are what the
//! sinks make of it. `UPDATE_GOLDEN=1 cargo test golden` writes these anew: read
//! the difference as a reader of the output would.

use std::{fs, path::PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::{JsonSink, Sink, TextSink, journald};
use event::wording::escape::is_hidden;
use event::{
    Event,
    clock::Timestamp,
    finding::{Finding, State},
    record::{CoverageItem, Record, Summary},
};

/// A record that owns its parts.
enum Owned {
    Coverage(Vec<CoverageItem>),
    Event(Box<Event>),
    Finding(Box<Finding>, State),
    Summary(Summary),
}

struct Input {
    time: Timestamp,
    node: String,
    body: Owned,
}

impl Input {
    fn parse(line: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap();
        fn part<T: for<'de> Deserialize<'de>>(value: &Value) -> T {
            serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
        }
        let body = match value["type"].as_str().unwrap() {
            "coverage" => Owned::Coverage(part(&value["signals"])),
            "event" => Owned::Event(Box::new(part(&value))),
            "finding" => Owned::Finding(part(&value), part(&value["state"])),
            "summary" => Owned::Summary(part(&value)),
            other => panic!("{other}?"),
        };
        Self {
            time: part(&value["time"]),
            node: part(&value["node"]),
            body,
        }
    }

    fn record(&self) -> Record<'_> {
        match &self.body {
            Owned::Coverage(items) => Record::coverage(&self.node, self.time, items),
            Owned::Event(event) => Record::event(&self.node, event),
            Owned::Finding(finding, state) => {
                Record::finding(&self.node, self.time, finding, *state)
            }
            Owned::Summary(summary) => Record::summary(&self.node, self.time, summary),
        }
    }
}

fn golden(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "src/golden", file]
        .iter()
        .collect()
}

fn input(name: &str) -> Vec<Input> {
    let lines = fs::read_to_string(golden(&format!("{name}.in.jsonl"))).unwrap();
    lines.lines().map(Input::parse).collect()
}

fn text(inputs: &[Input], verbose: u8, colour: bool) -> String {
    let mut out = Vec::new();
    let mut sink = TextSink::new(&mut out, colour).verbose(verbose);
    inputs.iter().for_each(|input| {
        sink.write(&input.record()).unwrap();
    });
    sink.flush().unwrap();
    drop(sink);
    String::from_utf8(out).unwrap()
}

fn json(inputs: &[Input]) -> String {
    let mut out = Vec::new();
    let mut sink = JsonSink::new(&mut out);
    inputs.iter().for_each(|input| {
        sink.write(&input.record()).unwrap();
    });
    String::from_utf8(out).unwrap()
}

fn journal(inputs: &[Input]) -> String {
    inputs
        .iter()
        .filter_map(|input| journald::tests::fields_of(&input.record()))
        .collect()
}

fn compare(file: &str, actual: &str) {
    let path = golden(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == actual, "{file} differs:\n{actual}");
}

fn compare_all(name: &str) {
    let inputs = input(name);
    compare(&format!("{name}.txt"), &text(&inputs, 0, false));
    compare(&format!("{name}.verbose.txt"), &text(&inputs, 1, false));
    compare(&format!("{name}.colour.txt"), &text(&inputs, 0, true));
    compare(&format!("{name}.jsonl"), &json(&inputs));
    compare(&format!("{name}.journal"), &journal(&inputs));
}

#[test]
fn a_ghost_from_its_first_hour_to_its_end() {
    compare_all("ghost");
}

#[test]
fn hostile_names_stay_names() {
    compare_all("hostile");
    let inputs = input("hostile");
    let text = |verbose| text(&inputs, verbose, false);
    for printed in [text(0), text(1), json(&inputs)] {
        assert!(!printed.replace('\n', "").chars().any(is_hidden));
        assert!(!printed.lines().any(|line| line.starts_with("FORGED")));
    }
}

#[test]
fn a_pod_that_does_not_start_with_what_came_before() {
    compare_all("creating");
}

#[test]
fn what_is_printed_as_json_can_be_read_back() {
    for name in ["ghost", "hostile", "creating"] {
        let printed = json(&input(name));
        let again: Vec<_> = printed.lines().map(Input::parse).collect();
        assert_eq!(json(&again), printed);
    }
}
