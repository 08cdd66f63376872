//! Against an API server that answers as it is told to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
};

use event::PodRef;
use k8s_openapi::api::core::v1::NodeCondition as Typed;

use super::*;
use crate::{
    events::tests::{ghost, until},
    server::{Asked, Reply, Server, TOKEN, status},
};

/// A node, with this condition of ours beside kubelet's.
fn node(ours: Option<Value>) -> Reply {
    let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady" });
    let conditions: Vec<Value> = [ready].into_iter().chain(ours).collect();
    Reply::Json(
        200,
        json!({ "kind": "Node", "status": { "conditions": conditions } }),
    )
}

fn as_json(said: &Condition) -> Value {
    json!({
        "type": said.kind, "status": said.status, "reason": said.reason,
        "message": said.message,
    })
}

fn nothing() -> Condition {
    condition(&[], true)
}

fn conflict() -> Condition {
    condition(&[&ghost()], true)
}

/// The patches that were more than checked.
fn written(server: &Server) -> Vec<Asked> {
    let mut all = server.asked();
    all.retain(|asked| !asked.path.contains("dryRun=All"));
    all
}

fn typed(asked: &Asked) -> Typed {
    let patch: Value = serde_json::from_str(&asked.body).unwrap();
    serde_json::from_value(patch["status"]["conditions"][0].clone()).unwrap()
}

fn is_removal(asked: &Asked) -> bool {
    asked.body.contains(r#""$patch":"delete""#)
}

/// A worker, and what it is told.
struct Work(watch::Sender<Wanted>, JoinHandle<()>);

impl Work {
    fn start(server: &Server) -> Self {
        let writer = Writer::new(server.credentials(), NODES);
        let worker = Worker::new(writer, String::from("node-1"));
        let (wanted, listener) = watch::channel(Wanted::new());
        let work = thread::spawn(|| on_this_thread(worker.run(listener)).unwrap());
        Self(wanted, work)
    }

    /// Wants this at once.
    fn want(&self, said: &Condition) {
        let _ = self.0.send(Wanted {
            said: Some(said.clone()),
            not_before: Instant::now().checked_sub(WORDS).unwrap(),
        });
    }

    fn end(self) {
        drop(self.0);
        self.1.join().unwrap();
    }
}

fn wait_for(server: &Server, number: usize) -> Asked {
    until("patch", || written(server).get(number - 1).cloned())
}

#[test]
fn the_condition_follows_what_is_open_and_nothing_is_left_at_the_end() {
    let server = Server::new(|_, _| node(None));
    let work = Work::start(&server);
    work.want(&conflict());
    let first = wait_for(&server, 1);
    assert_eq!(first.method, "PATCH");
    assert!(
        first.path.starts_with("/api/v1/nodes/node-1/status?"),
        "{first:?}"
    );
    assert!(!first.body.contains(TOKEN));
    let set = typed(&first);
    assert_eq!((&*set.type_, &*set.status), (TYPE, "True"));
    assert_eq!(set.reason.as_deref(), Some("GhostSandbox"));
    assert_eq!(
        set.message.as_deref(),
        Some(
            "1 incident: 198.18.173.2 of pod shop/checkout-x8k2p is still in use, but free for the next pod"
        )
    );
    assert!(set.last_transition_time.is_some() && set.last_heartbeat_time.is_some());
    work.want(&nothing());
    let cleared = typed(&wait_for(&server, 2));
    assert_eq!(cleared.status, "False");
    assert!(cleared.last_transition_time.is_some());
    work.end();
    assert!(is_removal(&wait_for(&server, 3)));
}

#[test]
fn since_when_it_has_its_status_is_kept_and_what_is_said_already_is_not_written() {
    let server = Server::new(|_, _| node(Some(as_json(&conflict()))));
    let work = Work::start(&server);
    work.want(&conflict());
    let mut worse = ghost();
    worse.detail.phase = Some(Phase::Conflict);
    work.want(&condition(&[&worse], true));
    let first = typed(&wait_for(&server, 1));
    assert!(first.message.unwrap().ends_with("is in use twice"));
    assert_eq!((&*first.status, first.last_transition_time), ("True", None));
    work.end();
    assert_eq!(written(&server).len(), 2);
}

#[test]
fn a_tracer_that_finds_the_same_conflict_step_by_step_writes_nothing() {
    let mut worse = ghost();
    worse.detail.phase = Some(Phase::Conflict);
    let worse = condition(&[&worse], true);
    let there = as_json(&worse);
    let server = Server::new(move |_, _| node(Some(there.clone())));
    let work = Work::start(&server);
    for said in [conflict(), worse] {
        let not_before = Instant::now();
        let _ = work.0.send(Wanted {
            said: Some(said),
            not_before,
        });
        until("reading", || (!server.asked().is_empty()).then_some(()));
        thread::sleep(Duration::from_millis(200));
    }
    assert!(written(&server).is_empty());
    work.end();
}

#[test]
fn nothing_is_written_before_what_is_there_was_read() {
    let away = Arc::new(AtomicBool::new(true));
    let is_away = Arc::clone(&away);
    let server = Server::new(move |_, _| match is_away.load(SeqCst) {
        true => Reply::Json(503, status(503, "not now")),
        false => node(Some(as_json(&conflict()))),
    });
    let work = Work::start(&server);
    work.want(&nothing());
    until("second try", || (server.asked().len() > 1).then_some(()));
    assert!(written(&server).is_empty());
    away.store(false, SeqCst);
    assert_eq!(typed(&wait_for(&server, 1)).status, "False");
    work.end();
}

#[test]
fn what_a_webhook_does_not_let_be_checked_is_written_anyway() {
    let server = Server::new(|path, _| match path.contains("dryRun=All") {
        true => Reply::Json(400, status(400, "does not support dry run")),
        false => node(None),
    });
    let work = Work::start(&server);
    work.want(&nothing());
    assert!(typed(&wait_for(&server, 1)).last_transition_time.is_some());
    work.end();
    assert!(is_removal(&wait_for(&server, 2)));
}

#[test]
fn without_rights_it_is_tried_once() {
    let server = Server::new(|_, _| Reply::Json(403, status(403, "no rights")));
    let work = Work::start(&server);
    work.want(&conflict());
    until("try", || (!server.asked().is_empty()).then_some(()));
    work.want(&nothing());
    thread::sleep(Duration::from_millis(200));
    assert_eq!(server.asked().len(), 1);
    work.end();
}

#[test]
fn a_server_that_hangs_keeps_nobody_waiting() {
    let server = Server::new(|_, _| Reply::Hang);
    let condition = NodeCondition::start(server.credentials(), "node-1").unwrap();
    let started = Instant::now();
    condition.follow(&[&ghost()], true);
    assert!(started.elapsed() < LAST_WORDS);
    condition.stop().finish();
    assert!(started.elapsed() < 3 * LAST_WORDS);
}

#[test]
fn what_comes_and_goes_is_written_ever_more_rarely() {
    let server = Server::new(|_, _| node(None));
    let work = Work::start(&server);
    for number in 1..=6 {
        work.want(&if number % 2 == 1 {
            conflict()
        } else {
            nothing()
        });
        wait_for(&server, number);
    }
    work.want(&conflict());
    thread::sleep(Duration::from_millis(200));
    assert_eq!(written(&server).len(), 6);
    work.end();
}

/// What is there is left alone until this tracer can know.
#[test]
fn nothing_found_says_little_at_first_and_a_conflict_much() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut wanted = Wanted::new();
    assert!(wanted.turn(condition(&[], false), start));
    // To and fro it takes no longer.
    assert!(wanted.turn(nothing(), at(50)) && !wanted.turn(nothing(), at(55)));
    assert_eq!(wanted.not_before, start + HOLD);
    assert!(wanted.turn(conflict(), at(59)));
    assert_eq!(wanted.not_before, at(59) + SETTLE);
    // It was found and is over.
    assert!(wanted.turn(nothing(), at(70)));
    assert_eq!(wanted.not_before, at(70) + SETTLE);
    // A source that goes away ends no conflict.
    assert!(wanted.turn(conflict(), at(80)) && wanted.turn(condition(&[], false), at(90)));
    assert_eq!(wanted.not_before, at(90) + HOLD);
    assert!(wanted.turn(conflict(), at(91)));
    assert_eq!(wanted.not_before, at(91) + SETTLE);
}

fn found(id: &str, rule: Rule, phase: Option<Phase>, severity: Severity) -> Finding {
    let mut finding = ghost();
    (finding.id, finding.rule, finding.severity) = (id.to_owned(), rule, severity);
    finding.detail.phase = phase;
    finding
}

#[test]
fn the_worst_is_named_and_what_is_no_conflict_of_a_pod_does_not_count() {
    let critical = |id, rule, phase| found(id, rule, phase, Severity::Critical);
    let mild = [
        found(
            "1",
            Rule::GhostSandbox,
            Some(Phase::Suspected),
            Severity::Warning,
        ),
        found("2", Rule::DuplicateAddress, None, Severity::Warning),
        found("3", Rule::UnreservedAddress, None, Severity::Warning),
        critical("4", Rule::StaleDel, None),
    ];
    let mut open: Vec<&Finding> = mild.iter().collect();
    assert_eq!(condition(&open, true), nothing());
    assert_eq!(condition(&open, false).status, "Unknown");
    let worse = [
        critical("9", Rule::UnreservedAddress, None),
        critical("8", Rule::GhostSandbox, Some(Phase::Armed)),
        critical("7", Rule::DuplicateAddress, None),
        critical("6", Rule::GhostSandbox, Some(Phase::Conflict)),
    ];
    let reasons = [
        "UnreservedAddress",
        "GhostSandbox",
        "DuplicateAddress",
        "GhostSandbox",
    ];
    for (number, (finding, reason)) in (1..).zip(worse.iter().zip(reasons)) {
        open.push(finding);
        // What is found stands, whatever else could not be checked.
        let said = condition(&open, false);
        assert_eq!((&*said.status, &*said.reason), (TRUE, reason));
        assert!(
            said.message.starts_with(&counted(number, "incident")),
            "{}",
            said.message
        );
    }
    let mut same = worse[3].clone();
    (same.id, same.detail.incident) = (String::from("5"), Some(worse[3].id.clone()));
    assert!(
        condition(&[&worse[3], &same], true)
            .message
            .starts_with("1 incident: ")
    );
}

#[test]
fn a_message_is_one_line_of_names_that_the_api_allows() {
    let mut finding = ghost();
    for name in ["a\nb", "x is fine", &"n".repeat(254), "ü", ""] {
        finding.pod = Some(PodRef {
            namespace: Some(String::from("shop")),
            name: Some(name.to_owned()),
            uid: None,
        });
        let message = condition(&[&finding], true).message;
        assert_eq!(
            message,
            "1 incident: 198.18.173.2 is still in use, but free for the next pod"
        );
    }
}
