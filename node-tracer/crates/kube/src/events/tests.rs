//! Against an API server that answers as it is told to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::*;
use crate::server::{Asked, Reply, Server, TOKEN, status};

/// Time for what happens at once, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

pub(crate) fn ghost() -> Finding {
    serde_json::from_value(json!({
        "rule": "ghost-sandbox", "severity": "critical", "id": "4436a737a919c29a",
        "since": "2026-11-21T08:53:37.51Z",
        "title": "198.18.173.2 is still held by the deleted pod shop/checkout-x8k2p",
        "pod": { "namespace": "shop", "name": "checkout-x8k2p", "uid": "331ebeea" },
        "addresses": ["198.18.173.2"], "holders": [], "evidence": [], "unknown": [],
        "advice": ["keep new pods off the node: kubectl cordon node-1", "wait"],
        "phase": "armed",
    }))
    .unwrap()
}

/// Creates as an API server does, patches as an Event that was seen five times.
fn works(path: &str) -> Reply {
    match path.split('?').next() {
        Some(path) if path.ends_with("/events") => Reply::Json(201, json!({ "kind": "Event" })),
        _ => Reply::Json(200, json!({ "kind": "Event", "series": { "count": 5 } })),
    }
}

fn start(server: &Server, floor: Severity) -> KubeEvents {
    KubeEvents::start(server.credentials(), "Node-1", floor).unwrap()
}

/// Waits until something is so.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < SOON, "no {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Requests but the one that only tries.
fn asked(server: &Server) -> Vec<Asked> {
    let mut all = server.asked();
    all.retain(|asked| !asked.path.contains("dryRun=All"));
    all
}

fn wait_for(events: &KubeEvents, outcome: Outcome, count: u64) {
    until(outcome.as_str(), || {
        (events.counts.of(outcome) >= count).then_some(())
    });
}

#[test]
fn a_finding_is_an_event_on_its_pod_and_on_the_node() {
    let server = Server::new(|path, _| works(path));
    let events = start(&server, Severity::Warning);
    events.tell(sys::clock::now(), &ghost(), State::Open);
    wait_for(&events, Outcome::Created, 2);
    let asked = asked(&server);
    assert_eq!(asked.len(), 2);
    for (asked, namespace, kind) in [
        (&asked[0], "kube-system", "Node"),
        (&asked[1], "shop", "Pod"),
    ] {
        assert_eq!(asked.method, "POST");
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        assert_eq!(asked.path.trim_end_matches('?'), path);
        let event: Value = serde_json::from_str(&asked.body).unwrap();
        // As the API itself has them: a misspelt field would be missing.
        let typed: k8s_openapi::api::events::v1::Event =
            serde_json::from_value(event.clone()).unwrap();
        let regarding = typed.regarding.unwrap();
        assert_eq!(regarding.kind.as_deref(), Some(kind));
        assert_eq!(typed.reason.as_deref(), Some("GhostSandbox"));
        assert_eq!(typed.type_.as_deref(), Some("Warning"));
        assert_eq!(typed.reporting_instance.as_deref(), Some("node-1"));
        assert!(typed.event_time.is_some() && typed.action.is_some());
        let note = typed.note.unwrap();
        assert!(
            note.contains("198.18.173.2 is still held") && note.contains("First: keep new pods"),
            "{note}"
        );
        assert!(!asked.body.contains(TOKEN));
        if kind == "Pod" {
            assert_eq!(regarding.uid.as_deref(), Some("331ebeea"));
            assert_eq!(regarding.name.as_deref(), Some("checkout-x8k2p"));
        } else {
            assert_eq!(regarding.name.as_deref(), Some("node-1"));
        }
    }
    events.finish();
}

#[test]
fn what_is_not_bad_enough_stays_here() {
    let server = Server::new(|path, _| works(path));
    let events = start(&server, Severity::Critical);
    let mut mild = ghost();
    mild.severity = Severity::Warning;
    mild.id = String::from("0000000000000001");
    events.tell(sys::clock::now(), &mild, State::Open);
    events.tell(sys::clock::now(), &ghost(), State::Open);
    events.tell(sys::clock::now(), &mild, State::Resolved);
    events.tell(sys::clock::now(), &ghost(), State::Resolved);
    wait_for(&events, Outcome::Created, 4);
    events.finish();
    let asked = asked(&server);
    assert!(asked.iter().all(|asked| !asked.body.contains(&mild.id)));
    let over = asked
        .iter()
        .filter(|asked| asked.body.contains("GhostSandboxResolved"));
    assert_eq!(over.count(), 2);
}

#[test]
fn what_a_tracer_before_has_written_is_counted_on() {
    let server = Server::new(|path, _| match works(path) {
        Reply::Json(201, _) if !path.contains("dryRun") => {
            Reply::Json(409, status(409, "already exists"))
        }
        other => other,
    });
    let events = start(&server, Severity::Warning);
    events.tell(sys::clock::now(), &ghost(), State::Open);
    wait_for(&events, Outcome::Updated, 2);
    events.finish();
    let counted: Vec<u64> = asked(&server)
        .iter()
        .filter(|asked| asked.method == "PATCH")
        .filter_map(|asked| {
            serde_json::from_str::<Value>(&asked.body).unwrap()["series"]["count"].as_u64()
        })
        .collect();
    assert_eq!(counted, [6, 6]);
}

#[test]
fn without_rights_each_is_tried_once_and_counted() {
    let server = Server::new(|_, _| Reply::Json(403, status(403, "no rights")));
    let events = start(&server, Severity::Warning);
    for _ in 0..5 {
        events.tell(sys::clock::now(), &ghost(), State::Updated);
    }
    wait_for(&events, Outcome::Forbidden, 2);
    events.finish();
    assert_eq!(asked(&server).len(), 2);
}

#[test]
fn a_namespace_that_is_gone_costs_nothing_else() {
    let server = Server::new(|path, _| match path.contains("/shop/") {
        true => Reply::Json(404, status(404, "namespaces \"shop\" not found")),
        false => works(path),
    });
    let events = start(&server, Severity::Warning);
    events.tell(sys::clock::now(), &ghost(), State::Open);
    wait_for(&events, Outcome::NamespaceGone, 1);
    wait_for(&events, Outcome::Created, 1);
    events.finish();
}

#[test]
fn a_server_that_comes_back_gets_what_it_has_missed() {
    let server = Server::new(|path, before| match before {
        0..3 => Reply::Json(503, status(503, "not now")),
        _ => works(path),
    });
    let events = start(&server, Severity::Warning);
    events.tell(sys::clock::now(), &ghost(), State::Open);
    wait_for(&events, Outcome::Created, 2);
    events.finish();
}

#[test]
fn a_server_that_hangs_keeps_nobody_waiting() {
    let server = Server::new(|_, _| Reply::Hang);
    let events = start(&server, Severity::Warning);
    let started = Instant::now();
    for number in 0..u64::try_from(changes::MOST).unwrap() * 2 {
        let mut finding = ghost();
        finding.id = format!("{number:016x}");
        events.tell(sys::clock::now(), &finding, State::Open);
    }
    assert!(events.counts.of(Outcome::Dropped) > 0);
    events.finish();
    assert!(started.elapsed() < LAST_WORDS + SOON / 2);
}

/// Ends that are told while the server hangs, of more findings than there is
/// room for.
#[test]
fn a_server_that_comes_back_leaves_nothing_to_be_counted_of_what_is_over() {
    let hangs = Arc::new(AtomicBool::new(false));
    let hung = Arc::clone(&hangs);
    let server = Server::new(move |path, _| match hung.load(SeqCst) {
        true => Reply::Hang,
        false => works(path),
    });
    let (told, listener) = changes::pair();
    let counts = Counts::new();
    let writer = Writer::new(server.credentials(), EVENTS);
    let worker = Worker::new(Ledger::new("node-1"), writer, counts.clone());
    let work = thread::spawn(move || kube::on_this_thread(worker.run(listener)).unwrap());
    let tell = |state| {
        let all = 0..2 * changes::MOST;
        let room = all.filter(|number| {
            let mut finding = ghost();
            finding.id = format!("{number:016x}");
            told.tell(EventChange::of(sys::clock::now(), &finding, state))
        });
        room.count()
    };
    assert!(tell(State::Open) >= changes::MOST);
    until("Event", || (counts.of(Outcome::Created) > 0).then_some(()));
    hangs.store(true, SeqCst);
    let before = server.asked().len();
    until("request", || (server.asked().len() > before).then_some(()));
    assert_eq!(tell(State::Resolved), 2 * changes::MOST);
    hangs.store(false, SeqCst);
    let written = counts.of(Outcome::Created);
    until("Event after the pause", || {
        (counts.of(Outcome::Created) > written + 1).then_some(())
    });
    drop(told);
    let ledger = work.join().unwrap();
    assert!(ledger.is_empty());
    let mut asked = asked(&server);
    asked.retain(|asked| asked.body.contains("GhostSandboxResolved"));
    assert!(!asked.is_empty());
}

#[test]
fn what_is_milder_by_now_is_told_as_such_and_what_always_was_is_not() {
    let (told, listener) = changes::pair();
    let (_finished, done) = mpsc::sync_channel(1);
    let events = KubeEvents {
        floor: Severity::Critical,
        told,
        counts: Counts::new(),
        done,
    };
    let tell = |severity, id: &str, state| {
        let mut finding = ghost();
        finding.severity = severity;
        finding.id = id.to_owned();
        events.tell(sys::clock::now(), &finding, state);
    };
    for id in ["1", "2"] {
        tell(Severity::Warning, id, State::Open);
    }
    tell(Severity::Critical, "1", State::Updated);
    for id in ["1", "2"] {
        tell(Severity::Warning, id, State::Updated);
        tell(Severity::Warning, id, State::Resolved);
    }
    let told = listener.take().changes;
    let told: Vec<_> = told.iter().map(|told| (&*told.id, told.stage())).collect();
    assert_eq!(told, [("1", "armed"), ("1", "mild"), ("1", "resolved")]);
    assert_eq!(events.counts.of(Outcome::Dropped), 0);
}

#[test]
fn nodes_that_share_a_kernel_have_events_of_their_own() {
    let told = EventChange::of(sys::clock::now(), &ghost(), State::Open);
    let names = |node| -> Vec<String> {
        let objects = object::objects(&told, node);
        objects.into_iter().map(|object| object.name).collect()
    };
    let (one, other) = (names("node-1"), names("node-2"));
    assert_eq!(one, names("node-1"));
    assert!(one.iter().all(|name| !other.contains(name)), "{one:?}");
    assert!(one[0].starts_with("ghost-sandbox.4436a737a919c29a."));
    assert!(one[0].ends_with(".pod.armed"), "{one:?}");
}

#[test]
fn a_note_is_as_long_as_it_may_be_and_still_says_which_finding() {
    let mut finding = ghost();
    finding.title = "ü".repeat(2_000);
    let told = EventChange::of(sys::clock::now(), &finding, State::Open);
    let objects = object::objects(&told, "node-1");
    let note = objects[0].body["note"].as_str().unwrap();
    assert!((1_000..=1_024).contains(&note.len()), "{}", note.len());
    assert!(
        note.ends_with("… (node-tracer finding 4436a737a919c29a)"),
        "{note}"
    );
}

#[test]
fn events_are_labelled_with_an_address_of_each_family() {
    let labels = |addresses: &[&str]| {
        let mut finding = ghost();
        finding.addresses = addresses.iter().map(|one| one.parse().unwrap()).collect();
        let told = EventChange::of(sys::clock::now(), &finding, State::Open);
        object::objects(&told, "node-1").remove(0).body["metadata"]["labels"].take()
    };
    let both = labels(&["fd00:10:244::7", "10.0.4.61", "10.0.4.62", "fd00::8"]);
    assert_eq!(both["node-tracer/address"], "10.0.4.61");
    assert_eq!(both["node-tracer/address-v6"], "fd00-10-244--7");
    assert_eq!(labels(&[])["node-tracer/address"], Value::Null);
    // What the API takes for a label's value.
    for address in ["::", "::1", "fd00::", "::ffff:10.0.4.61", "1:2:3:4:5:6:7:8"] {
        let labels = labels(&[address]);
        let value = labels["node-tracer/address-v6"].as_str().unwrap();
        let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        let at_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        assert!(value.len() <= 63 && value.chars().all(inside), "{value}");
        let (first, last) = (value.chars().next(), value.chars().last());
        assert!(at_end(first) && at_end(last), "{value}");
    }
}

#[test]
fn names_that_lead_elsewhere_are_no_names() {
    let mut finding = ghost();
    let pod = finding.pod.as_mut().unwrap();
    pod.namespace = Some(String::from("../../secrets"));
    let told = EventChange::of(sys::clock::now(), &finding, State::Open);
    let objects = object::objects(&told, "node-1");
    let about: Vec<_> = objects.iter().map(|object| object.about).collect();
    assert_eq!(about, [object::About::Node]);
    assert!(object::objects(&told, "a/b").is_empty());
}

#[test]
fn every_outcome_has_a_series_from_the_start() {
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register("events", "", Counts::new().family());
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for outcome in ["created", "updated", "forbidden", "dropped"] {
        let series = format!("events_total{{outcome=\"{outcome}\"}} 0");
        assert!(text.contains(&series), "{text}");
    }
}
