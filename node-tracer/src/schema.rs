//! Tests that hold records to the JSON Schemas of `doc/schema`.

use std::{fs, net::IpAddr, path::Path};

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Value, json};

use crate::repair::testing::{at, plan, release};
use event::{
    PodRef,
    eni::{Eni, EniKind, EniPod, EniProblem, Enis},
    finding::Severity,
    record::Record,
    repair::outcome::{Action, Outcome, Result as Became, Totals},
};

/// `doc/schema/record.json` and what it refers to.
struct Schema {
    all: Schemas,
    record: SchemaIndex,
}

impl Schema {
    fn read() -> Self {
        const PLACE: &str = "https://schema.example";
        let folder = here("doc/schema");
        let mut compiler = Compiler::new();
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let schema = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            compiler
                .add_resource(&format!("{PLACE}/{name}"), schema)
                .unwrap();
        }
        let mut all = Schemas::new();
        let record = compiler
            .compile(&format!("{PLACE}/record.json"), &mut all)
            .unwrap();
        Self { all, record }
    }

    /// Whether this is a record as the schemas have it; if not, why.
    fn check(&self, record: &Value) -> Result<(), String> {
        let checked = self.all.validate(record, self.record);
        checked.map_err(|error| format!("{record}: {error:#}"))
    }
}

fn here(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// What outputs are held to elsewhere: each record of a golden file.
fn golden() -> Vec<Value> {
    let mut records = Vec::new();
    for folder in ["crates/sink/src/golden", "crates/engine/src/explain/golden"] {
        for entry in fs::read_dir(here(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_string_lossy();
            // Input is what older versions recorded.
            let is_output = !name.ends_with(".in.jsonl");
            if is_output && (name.ends_with(".jsonl") || name.ends_with(".json")) {
                let text = fs::read_to_string(&path).unwrap();
                let values = serde_json::Deserializer::from_str(&text).into_iter();
                records.extend(values.map(Result::unwrap));
            }
        }
    }
    records
}

/// A network device of the node, and what depends on it.
fn of_eni() -> Value {
    let eni = Eni {
        name: Some(String::from("eth1")),
        kind: EniKind::VirtualFunction,
        mac: Some(String::from("02:00:00:00:00:03")),
        pci: Some(String::from("0000:00:06.2")),
        physical_function: Some(String::from("0000:00:06.0")),
        netns: None,
        host: true,
        up: true,
        addresses: vec![IpAddr::from([10, 0, 0, 9])],
        tables: vec![2],
        rules: vec![String::from("1536: from 10.0.0.5 lookup 2")],
        pods: vec![EniPod {
            pod: PodRef::default(),
            address: None,
            by: String::from("rule"),
        }],
        problems: vec![EniProblem {
            severity: Severity::Warning,
            text: String::from("it is down"),
            finding: None,
        }],
    };
    let enis = Enis {
        interfaces: vec![eni],
        unknown: vec![String::from("netns 5")],
    };
    serde_json::to_value(Record::eni("node-1", at(0), &enis)).unwrap()
}

/// A plan, what became of it, and the totals.
fn of_repair() -> [Value; 3] {
    let plan = plan(vec![release("10.0.0.5"), release("fd00::5")]);
    let outcome = Outcome {
        action: Action::Apply,
        path: String::from("/var/lib/cni/networks/pods/10.0.0.5"),
        address: IpAddr::from([10, 0, 0, 5]),
        container_id: String::from("0a"),
        ifname: None,
        result: Became::Kept,
        why: Some(String::from("it has changed")),
    };
    let mut totals = Totals::new(Action::Apply, Path::new("/"), String::from("/backup"));
    totals.count(&outcome);
    [
        Record::plan("node-1", at(0), &plan, None),
        Record::repair("node-1", at(1), &outcome),
        Record::repair_summary("node-1", at(2), &totals),
    ]
    .map(|record| serde_json::to_value(record).unwrap())
}

#[test]
fn each_record_is_as_its_schema_says() {
    let schema = Schema::read();
    let records: Vec<Value> = golden()
        .into_iter()
        .chain(of_repair())
        .chain([of_eni()])
        .collect();
    for record in &records {
        schema.check(record).unwrap();
    }
    for kind in [
        "coverage",
        "event",
        "finding",
        "explanation",
        "eni",
        "plan",
        "repair",
        "repair-summary",
        "summary",
    ] {
        assert!(
            records.iter().any(|record| record["type"] == kind),
            "{kind}"
        );
    }
}

#[test]
fn what_lacks_a_key_or_has_a_wrong_value_is_no_record() {
    let schema = Schema::read();
    let mut tried = 0;
    for record in golden().into_iter().chain(of_repair()) {
        let keys: &[(&str, Value)] = match record["type"].as_str() {
            Some("coverage") => &[("signals", json!([{"signal": "x"}]))],
            Some("event") => &[("event", json!("Netns")), ("netns", json!({}))],
            Some("finding") => &[
                ("severity", json!("fatal")),
                ("since", json!("now")),
                ("holders", json!([{"kind": "task"}])),
                ("phase", json!("over")),
            ],
            Some("explanation") => &[("findings", json!([{}])), ("subject", json!("x"))],
            Some("summary") => &[("rules", json!({"No rule": {}}))],
            Some("plan") => &[("also", json!(1)), ("releases", json!([{}]))],
            Some("repair" | "repair-summary") => &[("action", json!("undone"))],
            other => panic!("{other:?}"),
        };
        // An event has what its kind has.
        let matters = |key: &str| record["type"] != "event" || record.get(key).is_some();
        for (key, wrong) in keys.iter().filter(|(key, _)| matters(key)) {
            let mut changed = record.clone();
            changed[*key] = wrong.clone();
            assert!(schema.check(&changed).is_err(), "{changed}");
            tried += 1;
        }
        for key in ["schema", "type", "time", "node"] {
            let mut changed = record.clone();
            changed.as_object_mut().unwrap().remove(key);
            assert!(schema.check(&changed).is_err(), "{changed}");
        }
    }
    assert!(tried > 0);
}
