//! Tests of what goes into an entry, and of a socket that comes and goes.

use std::os::unix::net::UnixDatagram;

use super::*;
use event::{clock::Timestamp, finding::Rule, record::Count};

/// A record's entry as lines, for the golden files.
pub(crate) fn fields_of(record: &Record<'_>) -> Option<String> {
    let entry = entry(record).unwrap()?;
    let lines = entry
        .fields()
        .iter()
        .map(|(name, value)| format!("{name}={value}\n"));
    Some(lines.chain([String::from("\n")]).collect())
}

/// A directory for sockets, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("node-tracer-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// journald starts: it listens at the path, whatever was there.
    fn listen(&self) -> UnixDatagram {
        let _ = std::fs::remove_file(self.socket());
        UnixDatagram::bind(self.socket()).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn finding(title: &str) -> Finding {
    serde_json::from_value(serde_json::json!({
        "rule": "blocked-task", "severity": "warning", "id": "1", "since": "2025-11-21T05:53:10Z",
        "title": title, "addresses": [], "holders": [], "evidence": [], "unknown": [], "advice": []
    }))
    .unwrap()
}

fn write(sink: &mut JournaldSink, finding: &Finding) -> Result<Shown, SinkError> {
    sink.write(&Record::finding(
        "n",
        Timestamp::from_nanos(0),
        finding,
        State::Open,
    ))
}

fn receive(journald: &UnixDatagram) -> String {
    let mut data = vec![0; 65_536];
    let length = journald.recv(&mut data).unwrap();
    String::from_utf8_lossy(&data[..length]).into_owned()
}

#[test]
fn priorities_are_those_of_the_contract() {
    let of = |severity, state| priority(severity, state);
    assert_eq!(of(Severity::Critical, State::Open), "2");
    assert_eq!(of(Severity::Warning, State::Updated), "4");
    assert_eq!(of(Severity::Info, State::Open), "6");
    assert_eq!(of(Severity::Critical, State::Resolved), "5");
}

#[test]
fn without_journald_connecting_fails_and_says_where() {
    let error = JournaldSink::connect(Path::new("/nonexistent/socket"))
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "journald does not take a record at /nonexistent/socket"
    );
}

#[test]
fn a_journald_that_is_started_again_gets_the_next_record() {
    let scratch = Scratch::new("restart");
    let journald = scratch.listen();
    let mut sink = JournaldSink::connect(&scratch.socket()).unwrap();
    assert_eq!(receive(&journald), "");
    write(&mut sink, &finding("first")).unwrap();
    assert!(receive(&journald).contains("\nMESSAGE=first\n"));

    drop(journald);
    assert!(matches!(
        write(&mut sink, &finding("lost")),
        Err(SinkError::Journal { .. })
    ));

    let journald = scratch.listen();
    write(&mut sink, &finding("second")).unwrap();
    assert!(receive(&journald).contains("\nMESSAGE=second\n"));
}

#[test]
fn a_journald_that_reads_nothing_costs_one_wait_and_no_more() {
    let scratch = Scratch::new("stopped");
    let journald = scratch.listen();
    let mut sink = JournaldSink::connect(&scratch.socket()).unwrap();
    let started = std::time::Instant::now();
    let results: Vec<_> = (0..2000).map(|_| write(&mut sink, &finding("x"))).collect();
    assert!(
        results.iter().any(Result::is_err),
        "the queue is longer than thought"
    );
    assert!(
        started.elapsed() < std::time::Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );

    // It goes on; so does the sink.
    let taken = results.iter().filter(|result| result.is_ok()).count();
    (0..=taken).for_each(|_| drop(receive(&journald)));
    write(&mut sink, &finding("after")).unwrap();
    assert!(receive(&journald).contains("\nMESSAGE=after\n"));
}

#[test]
fn a_record_too_large_for_a_datagram_is_sent_as_a_file() {
    let scratch = Scratch::new("large");
    let journald = scratch.listen();
    let mut sink = JournaldSink::connect(&scratch.socket()).unwrap();
    assert_eq!(receive(&journald), "");
    let mut large = finding("large");
    large.unknown.push("x".repeat(400_000));
    write(&mut sink, &large).unwrap();
    // The datagram itself is empty; the data is in the file that came with it.
    assert_eq!(receive(&journald), "");
}

#[test]
fn the_messages_of_a_run_are_short() {
    let item = |signal: &str, mechanism: Option<&str>| CoverageItem {
        signal: signal.to_owned(),
        mechanism: mechanism.map(str::to_owned),
        reason: None,
        unknown: vec![],
    };
    let mut items = vec![item("netns-created", Some("tp_btf"))];
    assert_eq!(coverage_message(&items), "started; sees all 1 signals");
    items.push(item("pods", None));
    assert_eq!(
        coverage_message(&items),
        "started; sees 1 of 2 signals, not: pods"
    );

    let mut summary = Summary {
        events_seen: 12,
        ..Summary::default()
    };
    summary.rules.insert(
        Rule::GhostSandbox,
        Count {
            open: 1,
            resolved: 2,
        },
    );
    summary.events_lost.insert("ring full".to_owned(), 3);
    assert_eq!(
        summary_message(&summary),
        "ended; findings open: 1, resolved: 2; events seen: 12, lost: 3"
    );
}

#[test]
fn the_process_with_a_descriptor_is_a_pid_of_the_entry() {
    let mut finding = finding("held");
    finding.holders = vec![Holder::Fd {
        pid: 77,
        fd: 3,
        comm: None,
    }];
    let record = Record::finding("n", Timestamp::from_nanos(0), &finding, State::Open);
    let fields = fields_of(&record).unwrap();
    assert!(fields.contains("\nNODE_TRACER_PID=77\n"), "{fields}");
}
