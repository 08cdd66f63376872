//! Tests of what is printed when; how it looks is in the golden files.

use std::time::Duration;

use super::*;
use event::{
    CniCall, What,
    finding::{Holder, Rule},
};

fn time(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn finding(id: &str, unknown: &[&str]) -> Finding {
    serde_json::from_value(serde_json::json!({
        "rule": "blocked-task", "severity": "warning", "id": id, "since": "2025-11-21T05:53:10Z",
        "title": "stuck", "addresses": [], "holders": [], "evidence": [], "unknown": unknown,
        "advice": ["wait"]
    }))
    .unwrap()
}

/// What a sink prints for one more record.
fn printed(sink: &mut TextSink<Vec<u8>>, record: &Record<'_>) -> String {
    sink.lines.out.clear();
    sink.write(record).unwrap();
    sink.flush().unwrap();
    String::from_utf8(sink.lines.out.clone()).unwrap()
}

#[test]
fn the_date_is_printed_once_a_day() {
    let mut sink = TextSink::new(Vec::new(), false);
    let mut print = |at: &str| {
        let what = What::SourceRecovered {
            source: "cri".to_owned(),
        };
        printed(
            &mut sink,
            &Record::event(
                "n",
                &Event {
                    time: time(at),
                    what,
                },
            ),
        )
    };
    let line = "source-recovered  cri\n";
    assert_eq!(
        print("2025-11-21T23:59:59Z"),
        format!("2025-11-21, times are UTC; node n\n23:59:59.000  {line}")
    );
    assert_eq!(
        print("2025-11-21T23:59:59.5Z"),
        format!("23:59:59.500  {line}")
    );
    assert_eq!(
        print("2025-11-22T00:00:00Z"),
        format!("2025-11-22\n00:00:00.000  {line}")
    );
}

#[test]
fn an_update_prints_only_what_is_new() {
    let mut sink = TextSink::new(Vec::new(), false).verbose(1);
    let now = time("2025-11-21T06:00:00Z");
    let mut print =
        |finding: &Finding, state| printed(&mut sink, &Record::finding("n", now, finding, state));
    assert!(print(&finding("1", &["a"]), State::Open).contains("unknown   a\n"));
    assert_eq!(
        print(&finding("1", &["a", "b"]), State::Updated),
        "\n06:00:00.000  WARNING   blocked-task  updated  stuck\n              unknown   b\n"
    );
    assert_eq!(
        print(&finding("1", &["a", "b"]), State::Resolved),
        "\n06:00:00.000  resolved          blocked-task  lasted 6 min 50 s  id 1  stuck\n"
    );
    // Over and back again: all of it is new.
    assert!(print(&finding("1", &["a"]), State::Open).contains("unknown   a\n"));
}

#[test]
fn a_quiet_run_says_in_one_line_that_a_rule_could_not_look() {
    let quiet = |summary: &Summary| {
        let mut sink = TextSink::new(Vec::new(), false).brief().quiet(true);
        let now = time("2025-11-21T06:00:00Z");
        printed(&mut sink, &Record::summary("n", now, summary))
    };
    let mut summary = Summary::default();
    assert_eq!(quiet(&summary), "");
    summary.not_checked.push(not_checked::NotChecked {
        rule: Rule::GhostSandbox,
        reason: String::from("no pod list\x1b"),
        fix: String::from("--kubeconfig FILE"),
    });
    let line = "NOT CHECKED: ghost-sandbox, because no pod list\\x1b. Fix: --kubeconfig FILE\n";
    assert_eq!(quiet(&summary), format!("No findings, INCOMPLETE. {line}"));
    summary.worst_open = Some(Severity::Warning);
    assert_eq!(quiet(&summary), line);
}

#[test]
fn an_event_is_cut_for_a_terminal_alone() {
    let what = What::SourceFailed {
        source: "cri".to_owned(),
        error: "word ".repeat(40),
    };
    let event = Event {
        time: time("2025-11-21T06:00:00Z"),
        what,
    };
    let of = |sink: TextSink<Vec<u8>>| {
        let mut sink = sink;
        let text = printed(&mut sink, &Record::event("n", &event));
        text.lines().last().unwrap().to_owned()
    };
    let whole = of(TextSink::new(Vec::new(), false));
    assert!(whole.contains(&"word ".repeat(39)), "{whole}");
    for (edge, room) in
        [(|| Some(80), 80), (|| Some(100), 100), (|| Some(200), 200)] as [(fn() -> _, _); 3]
    {
        let line = of(TextSink::new(Vec::new(), false).cut_at(edge));
        assert!(line.len() <= room && line.len() > room - 12, "{line}");
        assert!(line.ends_with(" word  ..."), "{line}");
    }
}

#[test]
fn a_plugin_that_says_it_is_well_is_no_news() {
    let line = |command: &str, exit_code: i32| {
        let call = CniCall {
            command: command.into(),
            plugin: String::from("bridge"),
            trusted: true,
            ..CniCall::default()
        };
        let what = What::CniCall {
            call,
            exit_code: Some(exit_code),
            signal: None,
            duration_ms: 20.0,
            result: None,
            error: None,
            unread: None,
        };
        let event = Event {
            time: time("2025-11-21T06:00:00Z"),
            what,
        };
        let mut sink = TextSink::new(Vec::new(), false);
        printed(&mut sink, &Record::event("n", &event))
    };
    assert_eq!(line("STATUS", 0), "");
    let failed = line("STATUS", 1);
    assert!(
        failed.ends_with("STATUS bridge  → exit 1 20 ms\n"),
        "{failed}"
    );
    let gc = line("GC", 0);
    assert!(gc.ends_with("GC   bridge  → ok 20 ms\n"), "{gc}");
}

#[test]
fn what_check_says_is_broken_at_words() {
    let item = CoverageItem {
        signal: String::from("pods"),
        mechanism: None,
        reason: Some("word ".repeat(40).trim_end().to_owned()),
        unknown: vec!["word ".repeat(40).trim_end().to_owned()],
    };
    let columns: [fn() -> usize; 3] = [|| 80, || 100, || 160];
    for columns in columns {
        let mut sink = TextSink::new(Vec::new(), false).wide(columns);
        let items = [item.clone()];
        let now = time("2025-11-21T06:00:00Z");
        let text = printed(&mut sink, &Record::coverage("n", now, &items));
        assert!(text.contains("BLIND  pods  word word"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= columns(), "{line}");
            assert!(line.starts_with("2025") || line.ends_with("word"), "{line}");
        }
    }
}

#[test]
fn a_descriptor_is_printed_with_its_process() {
    let mut sink = TextSink::new(Vec::new(), false).verbose(1);
    let now = time("2025-11-21T06:00:00Z");
    let mut finding = finding("1", &[]);
    finding.rule = Rule::GhostSandbox;
    let fd = |fd, comm: Option<&str>| Holder::Fd {
        pid: 77,
        fd,
        comm: comm.map(str::to_owned),
    };
    finding.holders = vec![fd(3, Some("cni\x1b[2Jd")), fd(4, None)];
    let mut print = |state| printed(&mut sink, &Record::finding("n", now, &finding, state));
    let text = print(State::Open);
    let first = "held by   descriptor 3 of cni\\x1b[2Jd[77]\n";
    assert!(text.contains(first), "{text}");
    assert!(text.contains("descriptor 4 of process 77\n"), "{text}");
}

#[test]
fn an_update_of_something_never_printed_is_printed_in_full() {
    let mut sink = TextSink::new(Vec::new(), false).verbose(1);
    let finding = finding("1", &["a"]);
    let now = finding.since.plus(Duration::from_secs(1));
    let text = printed(
        &mut sink,
        &Record::finding("n", now, &finding, State::Updated),
    );
    assert!(text.contains("since     05:53:10.000 (1.0 s)"), "{text}");
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut sink = TextSink::new(Vec::new(), false).verbose(1);
    let now = time("2025-11-21T06:00:00Z");
    for id in 0..memory::REMEMBERED + 5 {
        let finding = finding(&id.to_string(), &[]);
        printed(&mut sink, &Record::finding("n", now, &finding, State::Open));
    }
    assert_eq!(sink.memory.len(), memory::REMEMBERED);
    assert!(sink.memory.take("0").is_none());
    for id in 0..memory::REMEMBERED + 5 {
        let finding = finding(&id.to_string(), &[]);
        printed(
            &mut sink,
            &Record::finding("n", now, &finding, State::Resolved),
        );
    }
    assert_eq!(sink.memory.len(), 0);
}

#[test]
fn a_stream_tells_coverage_in_a_line_and_what_is_missing_in_one_each() {
    let item = |signal: &str, mechanism: Option<&str>| CoverageItem {
        signal: signal.to_owned(),
        mechanism: mechanism.map(str::to_owned),
        reason: mechanism.is_none().then(|| "asleep".to_owned()),
        unknown: vec!["much".to_owned()],
    };
    let items = [
        item("a", Some("tp_btf")),
        item("b", Some("tp_btf")),
        item("c", Some("x")),
        item("d", None),
    ];
    let mut sink = TextSink::new(Vec::new(), false).brief();
    sink.write(&Record::coverage("n", Timestamp::from_nanos(0), &items))
        .unwrap();
    let text = String::from_utf8(sink.lines.out).unwrap();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "sees   a, b (tp_btf); c (x)",
            "BLIND  d: asleep",
            "       unknown: much"
        ]
    );
}

/// A finding about thread 7, which is stuck.
fn stuck(rule: Rule, id: &str) -> Finding {
    let mut finding = finding(id, &[]);
    finding.rule = rule;
    finding.holders = serde_json::from_value(serde_json::json!([
        {"kind": "task", "pid": 7, "tid": 7, "comm": "dd", "stack": ["a+0x1/0x2"]}
    ]))
    .unwrap();
    finding
}

#[test]
fn what_a_ghost_has_told_of_its_holder_is_not_told_again() {
    let mut sink = TextSink::new(Vec::new(), false).verbose(1);
    let now = time("2025-11-21T06:00:00Z");
    let mut print =
        |finding: &Finding, state| printed(&mut sink, &Record::finding("n", now, finding, state));
    let blocked = stuck(Rule::BlockedTask, "b");
    let ghost = stuck(Rule::GhostSandbox, "g\x1b");
    assert!(print(&blocked, State::Open).contains("  a\n"));
    let text = print(&ghost, State::Open);
    assert!(text.contains("  a\n") && text.contains("1. wait"), "{text}");
    let text = print(&stuck(Rule::DuplicateAddress, "d"), State::Open);
    assert!(
        text.contains("dd[7]\n") && !text.contains("  a\n"),
        "{text}"
    );
    print(&blocked, State::Resolved);
    assert_eq!(
        print(&blocked, State::Open),
        "\n06:00:00.000  WARNING   blocked-task  stuck\n              \
         see       ghost-sandbox g\\x1b: its holder, with the stack and what to do\n"
    );
    print(&blocked, State::Resolved);
    print(&ghost, State::Resolved);
    assert!(print(&blocked, State::Open).contains("1. wait"));
}

#[test]
fn no_process_is_called_the_newer_pods_where_several_use_an_address() {
    let mut duplicate = stuck(Rule::DuplicateAddress, "d");
    duplicate.pod = serde_json::from_value(serde_json::json!({"namespace": "n", "name": "p"})).ok();
    let now = time("2025-11-21T06:00:00Z");
    let record = Record::finding("n", now, &duplicate, State::Open);
    let text = printed(&mut TextSink::new(Vec::new(), false), &record);
    assert!(text.contains("newer") && text.contains("n/p\n"), "{text}");
}

#[test]
fn an_update_without_news_is_silent_and_a_claim_that_goes_is_news() {
    let mut sink = TextSink::new(Vec::new(), false).verbose(1);
    let now = time("2025-11-21T06:00:00Z");
    let mut ghost = stuck(Rule::GhostSandbox, "g");
    ghost.evidence = serde_json::from_value(serde_json::json!([
        {"claim": "it is\nreserved", "source": "ipam", "at": now}
    ]))
    .unwrap();
    let mut print =
        |finding: &Finding, state| printed(&mut sink, &Record::finding("n", now, finding, state));
    print(&ghost, State::Open);
    let claims = std::mem::take(&mut ghost.evidence);
    let text = print(&ghost, State::Updated);
    assert!(text.contains("no longer it is\\nreserved\n"), "{text}");
    ghost.holders.clear();
    assert_eq!(print(&ghost, State::Updated), "");
    ghost.evidence = claims;
    assert!(print(&ghost, State::Updated).contains("it is\\nreserved\n"));
    ghost.title = "fd00::1 is held: by dd; and more".to_owned();
    assert!(print(&ghost, State::Updated).contains("updated  fd00::1"));
    let text = print(&ghost, State::Resolved);
    assert!(text.ends_with("  id g  fd00::1 is held\n"), "{text}");
}

#[test]
fn a_holder_that_holds_is_never_no_longer() {
    let mut sink = TextSink::new(Vec::new(), false).verbose(1);
    let now = time("2025-11-21T06:00:00Z");
    let claims = |words: &[&str]| {
        let all = words.iter();
        let all =
            all.map(|claim| serde_json::json!({"claim": claim, "source": "kernel", "at": now}));
        serde_json::from_value(all.collect()).unwrap()
    };
    let mut ghost = stuck(Rule::GhostSandbox, "g");
    let Some(Holder::Task { pid, comm, .. }) = ghost.holders.first().cloned() else {
        panic!("no task")
    };
    let name = format!("{comm} ({pid})");
    ghost.evidence = claims(&[
        &format!("{name} holds netns 4 open"),
        "pause (3) holds netns 4 open",
    ]);
    let mut print =
        |finding: &Finding, state| printed(&mut sink, &Record::finding("n", now, finding, state));
    print(&ghost, State::Open);
    ghost.evidence = claims(&["it is reserved"]);
    let text = print(&ghost, State::Updated);
    assert!(text.contains("no longer pause (3) holds"), "{text}");
    assert!(!text.contains(&name), "{text}");
}

#[test]
fn what_nobody_saw_begin_was_first_seen_then() {
    let now = time("2025-11-21T06:00:00Z");
    let since = |first_seen| {
        let mut sink = TextSink::new(Vec::new(), false).verbose(1);
        let mut ghost = stuck(Rule::GhostSandbox, "g");
        ghost.detail.first_seen = first_seen;
        ghost.holders.clear();
        printed(&mut sink, &Record::finding("n", now, &ghost, State::Open))
    };
    assert!(since(true).contains("since     first seen at "));
    assert!(!since(false).contains("first seen"));
}

/// A reader that takes nothing at times.
#[derive(Default)]
struct Picky {
    refuses: bool,
    data: Vec<u8>,
}

impl io::Write for Picky {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.refuses {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.data.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_was_not_taken_counts_as_not_printed() {
    let mut sink = TextSink::new(Picky::default(), false).verbose(1);
    let now = time("2025-11-21T05:54:00Z");
    let (first, second) = (finding("f", &["one"]), finding("f", &["one", "two"]));
    sink.lines.out.refuses = true;
    let refused = sink.write(&Record::finding("n", now, &first, State::Open));
    assert!(matches!(refused, Err(SinkError::Slow)));
    sink.lines.out.refuses = false;
    sink.write(&Record::finding("n", now, &second, State::Updated))
        .unwrap();
    let text = String::from_utf8(std::mem::take(&mut sink.lines.out.data)).unwrap();
    assert!(text.starts_with("2025-11-21, times are UTC"), "{text}");
    assert!(text.contains("one") && text.contains("stuck"), "{text}");
    assert_eq!(sink.memory.len(), 1);
}

#[test]
fn no_text_of_others_makes_a_record_long() {
    for verbose in [0, 1] {
        no_text_makes_a_record_long(TextSink::new(Vec::new(), false).verbose(verbose));
    }
}

fn no_text_makes_a_record_long(mut sink: TextSink<Vec<u8>>) {
    let now = time("2025-11-21T06:00:00Z");
    let long = "x".repeat(24 << 20);
    let what = What::SourceFailed {
        source: long.clone(),
        error: long.clone(),
    };
    let event = Event { time: now, what };
    let text = printed(&mut sink, &Record::event("n", &event));
    assert!(text.len() < 64 << 10, "{}", text.len());
    assert!(text.contains("(cut: "));
    let mut long_finding = finding("1", &[&long]);
    long_finding.title.clone_from(&long);
    long_finding.advice = vec![long.clone()];
    long_finding.evidence = vec![event::finding::Evidence {
        claim: long.clone(),
        source: long.clone(),
        at: now,
    }];
    long_finding.detail.error = serde_json::from_value(serde_json::json!({ "msg": long })).ok();
    for state in [State::Open, State::Updated, State::Resolved] {
        let text = printed(&mut sink, &Record::finding("n", now, &long_finding, state));
        assert!(text.len() < 128 << 10, "{}", text.len());
    }
    let items = [CoverageItem {
        signal: long.clone(),
        mechanism: Some(long.clone()),
        reason: Some(long.clone()),
        unknown: vec![long],
    }];
    let text = printed(&mut sink, &Record::coverage("n", now, &items));
    assert!(text.len() < 128 << 10, "{}", text.len());
}

/// A sink for an output of so many columns.
fn narrow<const COLUMNS: usize>() -> TextSink<Vec<u8>> {
    TextSink::new(Vec::new(), false).wide(|| COLUMNS)
}

/// What a sink prints of findings of one time.
fn together(sink: &mut TextSink<Vec<u8>>, findings: &[(&Finding, State)]) -> String {
    sink.lines.out.clear();
    let now = time("2025-11-21T06:00:00Z");
    for (finding, state) in findings {
        sink.write(&Record::finding("n", now, finding, *state))
            .unwrap();
    }
    sink.flush().unwrap();
    String::from_utf8(sink.lines.out.clone()).unwrap()
}

/// A ghost in a conflict, with more to say than there is room for.
fn conflict() -> Finding {
    let mut ghost = stuck(Rule::GhostSandbox, "g");
    let claims = (0..30).map(|n| {
        serde_json::json!({"claim": format!("claim {n} with some words"),
            "source": format!("source {n}"), "at": ghost.since})
    });
    ghost.evidence = serde_json::from_value(claims.collect()).unwrap();
    ghost.title = "a long title ".repeat(30);
    ghost.unknown = vec!["unknown things ".repeat(20); 4];
    ghost.addresses = vec!["10.0.0.2".parse().unwrap()];
    let command = format!("kubectl cordon {}", "n".repeat(120));
    ghost.advice = vec![
        command,
        "word ".repeat(60),
        "echo 1".to_owned(),
        "x".to_owned(),
    ];
    ghost.detail.incident = Some("g".to_owned());
    ghost
}

fn part(rule: Rule, id: &str) -> Finding {
    let mut part = stuck(rule, id);
    part.detail.incident = Some("g".to_owned());
    part
}

#[test]
fn an_incident_has_twelve_lines_and_no_broken_command() {
    let ghost = conflict();
    for sink in [narrow::<80>(), narrow::<100>(), narrow::<200>()] {
        let columns = (sink.columns)();
        let mut sink = sink;
        sink.is_look = true;
        let text = together(&mut sink, &[(&ghost, State::Open)]);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert!(lines.len() <= 12, "{text}");
        for line in lines {
            let is_command = line.contains("kubectl");
            assert!(is_command || line.chars().count() <= columns, "{text}");
            assert!(!is_command || line.contains(&ghost.advice[0]), "{text}");
        }
        assert!(text.contains("more: -v") && text.contains("node-tracer explain 10.0.0.2"));
    }
}

#[test]
fn findings_of_one_incident_are_one_block_with_the_cause_first() {
    let (ghost, duplicate) = (conflict(), part(Rule::DuplicateAddress, "d"));
    let stuck = part(Rule::BlockedTask, "b");
    let all = [&stuck, &duplicate, &ghost].map(|one| (one, State::Open));
    let text = together(&mut narrow::<100>(), &all);
    assert_eq!(text.matches("WARNING").count(), 1, "{text}");
    assert!(text.contains("WARNING   ghost-sandbox"), "{text}");
    assert!(
        text.contains("(+ duplicate-address, blocked-task)"),
        "{text}"
    );
}

#[test]
fn a_cause_that_is_found_later_is_a_block_and_a_part_is_a_line() {
    let mut sink = narrow::<100>();
    let lines = |text: String| text.trim().lines().count();
    let (ghost, stuck) = (conflict(), part(Rule::BlockedTask, "b"));
    assert!(lines(together(&mut sink, &[(&stuck, State::Open)])) > 2);
    assert!(lines(together(&mut sink, &[(&ghost, State::Open)])) > 6);
    let late = part(Rule::DuplicateAddress, "d");
    assert_eq!(lines(together(&mut sink, &[(&late, State::Open)])), 1);
}

#[test]
fn a_change_has_four_lines_at_most_and_without_news_none() {
    let mut sink = narrow::<100>();
    let mut ghost = conflict();
    ghost.detail.phase = Some(event::finding::Phase::Suspected);
    together(&mut sink, &[(&ghost, State::Open)]);
    assert_eq!(together(&mut sink, &[(&ghost, State::Updated)]), "");
    ghost.detail.phase = Some(event::finding::Phase::Conflict);
    for claim in &mut ghost.evidence {
        claim.claim += " and more";
    }
    ghost.unknown.push("what is new".repeat(40));
    let text = together(&mut sink, &[(&ghost, State::Updated)]);
    assert!((1..=4).contains(&text.trim().lines().count()), "{text}");
    assert!(text.contains("ghost-sandbox/conflict"), "{text}");
    let all = [(&ghost, State::Resolved)];
    assert!(together(&mut sink, &all).contains("resolved"));
    assert_eq!(sink.memory.len(), 0);
}

#[test]
fn an_incident_that_was_not_taken_is_told_in_full_again() {
    let mut sink = TextSink::new(Picky::default(), false);
    let ghost = conflict();
    let now = time("2025-11-21T05:54:00Z");
    sink.lines.out.refuses = true;
    sink.write(&Record::finding("n", now, &ghost, State::Open))
        .unwrap();
    assert!(matches!(sink.flush(), Err(SinkError::Slow)));
    sink.lines.out.refuses = false;
    sink.write(&Record::finding("n", now, &ghost, State::Updated))
        .unwrap();
    sink.flush().unwrap();
    let text = String::from_utf8(std::mem::take(&mut sink.lines.out.data)).unwrap();
    assert!(text.starts_with("2025-11-21, times are UTC"), "{text}");
    assert!(text.lines().count() > 6, "{text}");
}

#[test]
fn of_a_command_only_the_comment_is_cut() {
    let mut ghost = conflict();
    ghost.title = "short".to_owned();
    let command = "kubectl cordon node-with-a-name";
    ghost.advice = vec![format!("{command}    # {}", "what it costs ".repeat(9))];
    for sink in [narrow::<80>(), narrow::<100>(), narrow::<200>()] {
        let (columns, mut sink) = ((sink.columns)(), sink);
        let text = together(&mut sink, &[(&ghost, State::Open)]);
        let line = text.lines().find(|line| line.contains("cordon")).unwrap();
        assert!(line.contains(command) && line.contains(" # what"), "{line}");
        assert!(line.chars().count() <= columns, "{line}");
        assert_eq!(line.ends_with(" …"), columns < 200, "{line}");
    }
}

#[test]
fn a_subject_is_one_word_of_the_command_that_explains_it() {
    let mut failed = finding("a", &[]);
    failed.sandbox_id = Some("x;reboot #".to_owned());
    let text = together(&mut narrow::<100>(), &[(&failed, State::Open)]);
    assert!(text.contains("node-tracer explain 'x;reboot #'"), "{text}");
}

#[test]
fn an_incident_with_too_many_steps_leaves_out_what_its_last_line_says() {
    let mut ghost = conflict();
    (ghost.title, ghost.unknown) = (String::from("short"), Vec::new());
    let verify = "node-tracer explain 10.0.0.2    # one holder left";
    ghost.advice = (1..8).map(|step| format!("step {step}")).collect();
    ghost.advice.insert(6, verify.to_owned());
    let mut sink = narrow::<100>();
    sink.is_look = true;
    let text = together(&mut sink, &[(&ghost, State::Open)]);
    assert!(
        text.contains("6. step 7") && !text.contains(verify),
        "{text}"
    );
    assert!(
        text.contains("more      node-tracer explain 10.0.0.2"),
        "{text}"
    );
}

#[test]
fn no_line_of_a_whole_finding_is_half_a_command() {
    let long = "what it costs ".repeat(9);
    let mut ghost = stuck(Rule::GhostSandbox, "g");
    let command = "crictl stopp 4fc786aa25af5 && crictl rmp 4fc786aa25af5";
    ghost.advice = vec![format!(
        "{command}    # see kubectl get nodes. {}",
        long.trim()
    )];
    let mut sink = narrow::<80>();
    sink.verbose = 1;
    let text = together(&mut sink, &[(&ghost, State::Open)]);
    let mut lines = text.lines().skip_while(|line| !line.ends_with(command));
    assert!(lines.next().is_some(), "{text}");
    let rest: Vec<&str> = lines.take_while(|line| line.starts_with("    ")).collect();
    let is_comment = |line: &&str| line.trim_start().starts_with("# ");
    assert!(rest.len() > 1 && rest.iter().all(is_comment), "{text}");
}
