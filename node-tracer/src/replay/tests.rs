//! Runs written down, some of them badly, and told again.

use std::{cell::RefCell, rc::Rc, time::Duration};

use serde_json::{Value, json};

use super::*;
use crate::recording::Marker;
use engine::confirm::Confirmation;
use engine::testing::Node;
use event::{
    Event, What,
    clock::Timestamp,
    finding::{Finding, State},
    record::{CoverageItem, Record},
    testing::*,
};
use sink::Shown;

/// Keeps what it is given.
#[derive(Clone, Default)]
struct Sheet(Rc<RefCell<Vec<Value>>>);

impl Sink for Sheet {
    fn write(&mut self, record: &Record<'_>) -> Result<Shown, SinkError> {
        self.0.borrow_mut().push(serde_json::to_value(record)?);
        Ok(Shown::Yes)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// A pipe whose reader takes so many records.
struct Pipe(usize);

impl Sink for Pipe {
    fn write(&mut self, _: &Record<'_>) -> Result<Shown, SinkError> {
        self.0 = self.0.checked_sub(1).ok_or(SinkError::Closed)?;
        Ok(Shown::Yes)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

fn header(command: &str) -> String {
    json!({
        "schema": "node-tracer/1", "type": "recording", "time": s(0), "node": "node-1",
        "boot_id": "boot", "stall_threshold_ms": 5000, "command": command,
    })
    .to_string()
}

fn line(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

/// The incident with a tick each second, up to the conflict.
fn ticked() -> Vec<Event> {
    let mut story = ghost_story();
    story.push(reserved(90, None));
    story.extend(successor(92));
    let mut events: Vec<Event> = Vec::new();
    for seconds in 0..100 {
        let now = story.iter().filter(|event| event.time == s(seconds));
        events.extend(now.cloned());
        events.push(at(seconds, What::Tick));
    }
    events
}

fn seen() -> Vec<CoverageItem> {
    vec![CoverageItem {
        signal: String::from("pods"),
        mechanism: Some(String::from("pods.json")),
        reason: None,
        unknown: vec![String::from("something")],
    }]
}

fn trace() -> Vec<String> {
    let mut lines = vec![header("trace"), line(&Marker::Coverage { signals: seen() })];
    lines.extend(ticked().iter().map(line));
    lines.push(line(&Marker::Ended { time: s(100) }));
    lines
}

fn told(lines: &[String]) -> (Replayed, Vec<Value>) {
    told_text(&(lines.join("\n") + "\n"))
}

fn told_text(text: &str) -> (Replayed, Vec<Value>) {
    let sheet = Sheet::default();
    let recording = Recording::new(String::from("run.jsonl"), text.as_bytes()).unwrap();
    let told = tell(recording, vec![Box::new(sheet.clone())]).unwrap();
    let records = sheet.0.take();
    (told, records)
}

/// What was said of findings: all of it but the frame.
fn findings(records: &[Value]) -> Vec<&Value> {
    let all = records.iter();
    all.filter(|record| record["type"] == "finding").collect()
}

fn unknown(records: &[Value]) -> String {
    records.last().unwrap()["unknown"].to_string()
}

/// What an engine says of the same events.
fn lived() -> Vec<(Finding, State, Timestamp)> {
    let mut node = Node::default();
    let events = ticked();
    let told = events.iter().flat_map(|event| {
        let told = node.0.apply(event).into_iter();
        told.map(|(finding, state)| (finding, state, event.time))
            .collect::<Vec<_>>()
    });
    told.collect()
}

#[test]
fn a_trace_is_told_as_it_was() {
    let (told, records) = told(&trace());
    assert_eq!(
        told,
        Replayed::Whole {
            found: Outcome::Something
        }
    );
    assert_eq!(records[0]["type"], "coverage", "first");
    let signals = records[0]["signals"].as_array().unwrap();
    assert_eq!(signals[0], serde_json::to_value(&seen()[0]).unwrap());
    assert_eq!(signals[1]["mechanism"], "run.jsonl, of trace");
    let expected: Vec<Value> = lived()
        .iter()
        .map(|(finding, state, time)| {
            serde_json::to_value(Record::finding("node-1", *time, finding, *state)).unwrap()
        })
        .collect();
    assert!(expected.len() > 4);
    assert_eq!(findings(&records), expected.iter().collect::<Vec<_>>());
    let events = records.iter().filter(|record| record["type"] == "event");
    assert_eq!(events.count(), ticked().len(), "each of them");
    let summary = records.last().unwrap();
    assert_eq!(
        (&summary["type"], &summary["time"], &summary["duration_ms"]),
        (&json!("summary"), &json!(s(100)), &json!(100_000))
    );
    assert_eq!(summary["unknown"], json!([]), "nothing is missing");
}

#[test]
fn a_killed_tracers_recording_is_told_up_to_its_end_and_that_is_said() {
    let mut lines = trace();
    let whole = findings(&told(&lines).1).len();
    lines.pop();
    let (_, records) = told(&lines);
    assert_eq!(findings(&records).len(), whole);
    assert!(unknown(&records).contains("stops without an end"));
    let text = lines.join("\n");
    let (_, records) = told_text(&text[..text.len() - 10]);
    assert_eq!(findings(&records).len(), whole, "a torn tick");
    assert!(unknown(&records).contains("not whole"));
    assert!(!unknown(&records).contains("without an end"), "said once");
    assert_eq!(records.last().unwrap()["events_lost"], json!({}));
}

#[test]
fn events_after_the_last_tick_count_too() {
    let mut lines = vec![header("trace")];
    lines.extend(ghost_story().iter().map(line));
    let (told, records) = told(&lines);
    assert_eq!(
        told,
        Replayed::Whole {
            found: Outcome::Something
        }
    );
    assert!(!findings(&records).is_empty());
    let said = &records[0]["signals"][0]["unknown"];
    assert_eq!(*said, json!(["what the recorded run could see"]));
}

#[test]
fn a_damaged_line_is_a_lost_event_and_the_rest_is_told() {
    let mut lines = trace();
    let whole = findings(&told(&lines).1).len();
    lines.insert(60, String::from("{\"time\":\"2025"));
    let (told, records) = told(&lines);
    assert_eq!(
        told,
        Replayed::Whole {
            found: Outcome::Something
        }
    );
    let of = |rule| {
        let all = findings(&records).into_iter();
        all.filter(|finding| finding["rule"] == rule).count()
    };
    assert_eq!(of("events-lost"), 1);
    assert_eq!(findings(&records).len(), whole + 1);
    assert!(unknown(&records).contains("run.jsonl:61: "));
    let lost = &records.last().unwrap()["events_lost"];
    assert_eq!(*lost, json!({"recording-damaged": 1}));
}

#[test]
fn damage_after_the_last_tick_is_told_too() {
    let lines = [header("trace"), line(&at(1, What::Tick)), String::from("x")];
    let (told, records) = told(&lines);
    assert_eq!(
        told,
        Replayed::Whole {
            found: Outcome::Something
        }
    );
    assert_eq!(findings(&records).len(), 1);
}

#[test]
fn many_damaged_lines_are_counted_and_few_are_named() {
    let mut lines = trace();
    lines.splice(2..2, (0..100).map(|_| String::from("\u{1b}[2J")));
    let (_, records) = told(&lines);
    let unknown = unknown(&records);
    assert!(unknown.contains("what 100 damaged lines"), "{unknown}");
    assert_eq!(unknown.matches("run.jsonl:").count(), 5, "{unknown}");
}

#[test]
fn what_only_a_newer_version_knows_is_counted_and_costs_nothing_else() {
    let mut lines = trace();
    let whole = told(&lines).1;
    for i in 0..40 {
        let newer = json!({"time": s(1), "event": format!("kind-{}", i % 20), "x": [1]});
        lines.insert(5, newer.to_string());
    }
    lines.insert(5, json!({"type": "thought", "of": "nothing"}).to_string());
    let (told, records) = told(&lines);
    assert_eq!(
        told,
        Replayed::Whole {
            found: Outcome::Something
        }
    );
    assert_eq!(findings(&records), findings(&whole));
    let unknown = unknown(&records);
    assert!(
        unknown.contains("what 41 of the recording's lines"),
        "{unknown}"
    );
    assert!(
        unknown.contains("kind-19: 2") && unknown.contains("others: "),
        "{unknown}"
    );
}

/// Two looks at the ghost, the second of which finds it free.
fn looks() -> (Vec<Event>, Vec<Event>) {
    let first = [ghost_story(), vec![at(70, What::Tick)]].concat();
    let tick = Event {
        time: s(70).plus(Duration::from_millis(50)),
        what: What::Tick,
    };
    (first, vec![reserved(70, None), tick])
}

#[test]
fn a_scan_is_told_as_it_was() {
    let (first, second) = looks();
    let mut lived = Confirmation::new(Node::of_looks(&[]).0.settings().clone());
    for look in [&first, &second] {
        look.iter().for_each(|event| lived.apply(event));
        lived.looked();
    }
    lived.judged();
    let mut lines = vec![header("scan")];
    lines.extend(first.iter().map(line));
    lines.push(line(&Marker::Looked));
    lines.extend(second.iter().map(line));
    lines.push(line(&Marker::Looked));
    lines.push(line(&Marker::Judged));
    lines.push(line(&Marker::Coverage { signals: seen() }));
    lines.push(line(&Marker::Ended { time: s(71) }));
    let (told, records) = told(&lines);
    assert_eq!(
        told,
        Replayed::Whole {
            found: Outcome::Something
        }
    );
    let kinds: Vec<_> = records
        .iter()
        .map(|record| record["type"].clone())
        .collect();
    let open = lived.engine().open();
    let expected: Vec<Value> = open
        .iter()
        .map(|finding| {
            serde_json::to_value(Record::finding("node-1", s(71), finding, State::Open)).unwrap()
        })
        .collect();
    assert_eq!(kinds.len(), expected.len() + 2, "no events: {kinds:?}");
    assert_eq!(findings(&records), expected.iter().collect::<Vec<_>>());
    assert!(expected.iter().any(|finding| finding["phase"] == "armed"));
    let unknown = unknown(&records);
    assert!(unknown.contains("pods: something"), "{unknown}");
    assert!(
        unknown.contains("2 network namespaces could not be read"),
        "{unknown}"
    );
}

#[test]
fn of_a_scan_that_was_killed_what_was_seen_once_does_not_count() {
    let (first, _) = looks();
    let mut lines = vec![header("scan")];
    lines.extend(first.iter().map(line));
    let (_, records) = told(&lines);
    let rules: Vec<_> = findings(&records)
        .iter()
        .map(|finding| finding["rule"].clone())
        .collect();
    assert_eq!(rules, ["blocked-task"], "of one source alone");
    assert!(unknown(&records).contains("without an end"));
}

#[test]
fn it_ends_when_nobody_listens_any_more() {
    let text = trace().join("\n");
    let recording = || Recording::new(String::from("x"), text.as_bytes()).unwrap();
    let told = tell(recording(), vec![Box::new(Pipe(3))]).unwrap();
    assert_eq!(
        told,
        Replayed::Unheard {
            found: Outcome::NotChecked
        }
    );
    let told = tell(
        recording(),
        vec![Box::new(Pipe(usize::MAX)), Box::new(Pipe(3))],
    )
    .unwrap();
    assert_eq!(
        told,
        Replayed::Whole {
            found: Outcome::Something
        },
        "somebody does"
    );
}

#[test]
fn whatever_is_in_a_recording_it_is_told_to_its_end() {
    let text = trace().join("\n");
    let first = text.find('\n').unwrap() + 1;
    let mut state: u64 = 7;
    let mut dice = |sides: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % sides
    };
    for _ in 0..60 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..=dice(40) {
            let place = first + dice(bytes.len() - first);
            match dice(3) {
                0 => bytes[place] = dice(256) as u8,
                1 => drop(bytes.remove(place)),
                _ => bytes[place] = b"0123456789\n"[dice(11)],
            }
        }
        let recording = Recording::new(String::from("x"), bytes.as_slice()).unwrap();
        assert!(tell(recording, vec![Box::new(Sheet::default())]).is_ok());
    }
}

#[test]
fn the_parts_of_a_recording_are_one_run_and_a_later_part_alone_says_so() {
    let whole = trace();
    let folder = tempfile::tempdir().unwrap();
    let (older, newer) = whole.split_at(whole.len() / 2);
    let header = |part: u64| {
        let mut header: Value = serde_json::from_str(&whole[0]).unwrap();
        header["part"] = part.into();
        header.to_string()
    };
    let write = |name: &str, lines: &[String]| {
        let path = folder.path().join(name);
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        path
    };
    let newer = [&[header(1)], newer].concat();
    let parts = [write("run.jsonl.1", older), write("run.jsonl", &newer)];
    let sheet = Sheet::default();
    let mut run: Option<Run> = None;
    for path in &parts {
        let input = Input::open(path, &Tally::default().read).unwrap();
        let mut part = recording(input).unwrap();
        match &mut run {
            Some(run) if run.goes_on_in(part.header()) => run.next_part(),
            Some(_) => panic!("another run"),
            None => run = Some(begin(&part, vec![Box::new(sheet.clone())])),
        }
        hear(&mut part, run.as_mut().unwrap()).unwrap();
    }
    assert_eq!(run.unwrap().finish().unwrap(), Outcome::Something);
    let (_, expected) = told(&whole);
    let records = sheet.0.take();
    assert_eq!(findings(&records), findings(&expected));
    let (_, alone) = told(&newer);
    assert!(unknown(&alone).contains("part 2"), "{}", unknown(&alone));
}

/// What is printed of it, as JSON lines.
fn printed_of(text: String) -> Vec<Value> {
    let sheet = Sheet::default();
    let input = Input::new(
        String::from("x"),
        None,
        Box::new(std::io::Cursor::new(text)),
    )
    .unwrap();
    assert!(printed::may_be_in(input.beginning()));
    let (printed, rest) = printed::sift(input, vec![Box::new(sheet.clone())]);
    assert!(rest.unwrap().is_none(), "nothing else is in it");
    printed.borrow_mut().finish().unwrap();
    sheet.0.take()
}

/// A trace of the incident, as `-o json` prints it.
fn told_as_json() -> Vec<Value> {
    let (sheet, mut lines) = (Sheet::default(), vec![header("trace")]);
    lines.extend(ticked().iter().map(line));
    let recording = Recording::new(
        String::from("r"),
        lines.join("\n").into_bytes().leak() as &[u8],
    );
    tell(recording.unwrap(), vec![Box::new(sheet.clone())]).unwrap();
    let mut told = sheet.0.take();
    // These are not printed.
    told.retain(|record| record["event"] != "tick");
    told
}

#[test]
fn what_was_printed_is_told_as_it_was_told() {
    let told = told_as_json();
    assert!(findings(&told).len() > 2);
    let again = printed_of(told.iter().map(|record| format!("{record}\n")).collect());
    assert_eq!(findings(&again), findings(&told));
    let events = |of: &[Value]| of.iter().filter(|it| it["type"] == "event").count();
    assert_eq!(events(&again), events(&told));
}

#[test]
fn an_entry_of_the_journal_is_believed_if_root_has_sent_it() {
    let told = told_as_json();
    let entries = |uid: &str| -> String {
        let record = |record: &Value| {
            let entry = json!({"SYSLOG_IDENTIFIER": "node-tracer", "_UID": uid,
                "NODE_TRACER_JSON": record.to_string()});
            format!("{entry}\n")
        };
        told.iter().map(record).collect()
    };
    assert_eq!(findings(&printed_of(entries("0"))), findings(&told));
    let forged = printed_of(entries("1000"));
    assert!(findings(&forged).is_empty());
    let said = forged.last().unwrap()["unknown"].to_string();
    assert!(said.contains("of users other than root"), "{said}");
    let cut = json!({"SYSLOG_IDENTIFIER": "node-tracer", "_UID": "0", "NODE_TRACER_JSON": null});
    let said = printed_of(format!("{cut}\n"));
    assert!(
        said.last().unwrap()["unknown"]
            .to_string()
            .contains("--all")
    );
}

/// What is told of a file, by run.
fn told_of(text: &str) -> (Outcome, Vec<Vec<Value>>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, text).unwrap();
    let mut sheets = Vec::new();
    let outcome = into_sinks(&[path], || {
        sheets.push(Sheet::default());
        Box::new(sheets.last().unwrap().clone())
    });
    let told = sheets.iter().map(|sheet| sheet.0.take());
    let told = told.filter(|records| !records.is_empty());
    (outcome.unwrap(), told.collect())
}

fn entry(uid: &str, identifier: &str, more: Value) -> String {
    let mut entry = json!({"__REALTIME_TIMESTAMP": "1764148000000000", "_HOSTNAME": "n1",
        "_TRANSPORT": "journal", "_UID": uid, "SYSLOG_IDENTIFIER": identifier});
    let more = more.as_object().unwrap().clone();
    entry.as_object_mut().unwrap().extend(more);
    format!("{entry}\n")
}

/// What the kubelet says of a sandbox that cannot be made.
fn of_kubelet() -> String {
    let failed = "E1126 09:06:40.000000     812 pod_workers.go:1301] \"Error syncing pod, skipping\" \
        err=\"failed to \\\"CreatePodSandbox\\\" for \\\"web_default(0f6a7b1c-3a52-4f0e-9d6e-6f1d8a9b0c1d)\\\" \
        with CreatePodSandboxError: \\\"Failed to create sandbox for pod \\\\\\\"web_default\
        (0f6a7b1c-3a52-4f0e-9d6e-6f1d8a9b0c1d)\\\\\\\": rpc error: code = Unknown desc = failed to setup network \
        for sandbox \\\\\\\"9cc52c1c58d11\\\\\\\": plugin type=\\\\\\\"bridge\\\\\\\" failed (add): no IP addresses \
        available in range set: 10.244.7.1-10.244.7.254\\\"\" pod=\"default/web\" \
        podUID=0f6a7b1c-3a52-4f0e-9d6e-6f1d8a9b0c1d";
    entry(
        "0",
        "kubelet",
        json!({"_SYSTEMD_UNIT": "kubelet.service", "MESSAGE": failed}),
    )
}

#[test]
fn no_text_in_a_record_keeps_it_from_being_told() {
    let mut told = told_as_json();
    for finding in told.iter_mut().filter(|record| record["type"] == "finding") {
        let path =
            "/proc/777/root/NODE_TRACER_JSON \"NODE_TRACER_JSON\":\"x\" \"type\":\"recording\"";
        finding["holders"] = json!([{"kind": "mount", "path": path}]);
    }
    let again = printed_of(told.iter().map(|record| format!("{record}\n")).collect());
    assert_eq!(findings(&again), findings(&told));
}

#[test]
fn each_line_of_a_file_counts_for_what_it_is_whatever_others_have_sent_before_it() {
    let told = told_as_json();
    let forged = entry(
        "1000",
        "node-tracer",
        json!({"NODE_TRACER_JSON": told[0].to_string()}),
    );
    let (outcome, runs) = told_of(&(forged.clone() + &of_kubelet()));
    assert_eq!((outcome, runs.len()), (Outcome::Something, 1));
    assert_eq!(findings(&runs[0])[0]["rule"], "add-failed");
    assert!(unknown(&runs[0]).contains("users other than root, not believed: 1"));

    let records = told.iter().map(|record| {
        entry(
            "0",
            "node-tracer",
            json!({"NODE_TRACER_JSON": record.to_string()}),
        )
    });
    let records: String = records.collect();
    let user = entry("1000", "kubelet", json!({"MESSAGE": "hi"}));
    let (outcome, runs) = told_of(&[user, of_kubelet(), records.clone(), forged].concat());
    assert_eq!((outcome, runs.len()), (Outcome::Something, 2));
    let [printed, log] = runs.as_slice() else {
        panic!("{runs:?}");
    };
    assert_eq!(findings(printed), findings(&told));
    assert_eq!(findings(log)[0]["rule"], "add-failed");
    assert!(unknown(printed).contains("users other than root, not believed: 1"));

    let little = entry("0", "systemd", json!({"MESSAGE": "Started node-tracer."}));
    let (_, runs) = told_of(&(little + &records));
    assert_eq!(runs.len(), 1, "what says nothing is no story");
    let stray = format!("{}{}\n", of_kubelet(), told.last().unwrap());
    assert!(unknown(&told_of(&stray).1[0]).contains("among other lines"));
}

#[test]
fn of_what_was_printed_no_text_is_longer_and_no_more_is_kept_than_of_recordings() {
    let finding = findings(&told_as_json())[0].clone();
    let long = "x".repeat(1_900_000);
    let with = |key: &str, value: Value| {
        let mut finding = finding.clone();
        finding[key] = value;
        format!("{finding}\n")
    };
    let titled = printed_of(with("title", json!(long)).repeat(3));
    let title = &findings(&titled)[0]["title"];
    assert_eq!(title.as_str().unwrap().len(), 8 << 10);
    assert!(unknown(&titled).contains("texts that are too long: 3"));
    for key in ["node", "id"] {
        let refused = printed_of(format!("{finding}\n") + &with(key, json!(long)));
        assert_eq!(findings(&refused).len(), 1, "{key}");
        assert!(unknown(&refused).contains("cannot be understood: 1"));
    }
    let many = printed_of(with("advice", json!(vec![""; 300_000])).repeat(10));
    assert_eq!(findings(&many).len(), 6);
    assert!(unknown(&many).contains("beyond what is told of one file: 4"));
}
