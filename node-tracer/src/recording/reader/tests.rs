use std::io::BufReader;

use super::*;
use event::testing::*;

const FIRST: &str = r#"{"schema":"node-tracer/1","type":"recording","time":"2025-11-21T05:00:00Z","node":"n","boot_id":"b","stall_threshold_ms":5000}"#;

fn read(text: &[u8]) -> Result<Vec<Line>, ReadError> {
    let mut recording = Recording::new(String::from("run.jsonl"), text)?;
    let mut lines = Vec::new();
    while let Some(line) = recording.next()? {
        lines.push(line);
    }
    Ok(lines)
}

fn lines(rest: &str) -> Vec<Line> {
    read(format!("{FIRST}\n{rest}").as_bytes()).unwrap()
}

fn refused(text: &[u8]) -> String {
    let error = read(text).unwrap_err();
    event::fault::chain(&error)
}

#[test]
fn a_recording_from_before_there_were_notes_is_of_trace() {
    let recording = Recording::new(String::from("x"), FIRST.as_bytes()).unwrap();
    let header = recording.header();
    assert_eq!(header.command, super::super::Command::Trace);
    let settings = header.settings();
    assert_eq!(settings.stall_threshold.as_secs(), 5);
    assert!(!settings.surveyed, "a trace looks at single namespaces");
}

#[test]
fn what_is_no_recording_is_refused_with_what_could_be_read() {
    let cases: [(&[u8], &str); 8] = [
        (b"", "it is empty"),
        (b"\n", "no JSON"),
        (b"Nov 21 05:00:00 node kubelet[812]: E1121", "no JSON"),
        (b"{\"kind\":\"PodList\"}\n", "something else"),
        (b"[1,2]\n", "something else"),
        (b"\x1f\x8b\x08\x00\xff\xfe\n", "no text"),
        (
            br#"{"schema":"node-tracer/1","type":"coverage","signals":[]}"#,
            "something else",
        ),
        (
            br#"{"time":"2025-11-21T05:00:00Z","event":"tick"}"#,
            "first line is missing",
        ),
    ];
    for (text, part) in cases {
        let said = refused(text);
        assert!(said.contains(part), "{said}");
        assert!(
            said.contains("run.jsonl") && said.contains("--record"),
            "{said}"
        );
        assert!(said.contains("kubelet"), "{said}");
    }
    let endless = BufReader::new(io::repeat(b'{'));
    let error = Recording::new(String::from("x"), endless).err().unwrap();
    assert!(error.to_string().contains("too long"), "{error}");
}

#[test]
fn another_form_is_refused_by_its_name() {
    let newer = FIRST.replace("node-tracer/1", "node-tracer/2");
    let newer = newer.replace("\"node\"", "\"version\":\"9.1\",\"node\"");
    let said = refused(newer.as_bytes());
    assert!(
        said.contains("node-tracer/2") && said.contains("9.1"),
        "{said}"
    );
    let bare = r#"{"schema":"node-tracer/1","type":"recording","node":"n"}"#;
    assert!(refused(bare.as_bytes()).contains("missing field"));
}

#[test]
fn each_line_is_told_apart() {
    let event = serde_json::to_string(&created(1, 100)).unwrap();
    let rest = format!(
        "{event}\n\
         {{\"type\":\"looked\"}}\n\
         \n\
         {{\"time\":\"2025-11-21T05:00:00Z\",\"event\":\"pod-cloned\",\"n\":1}}\n\
         {{\"type\":\"thought\"}}\n\
         {{\"time\":\"2025-11-21T05:00:00Z\",\"event\":\"netns-created\"}}\n\
         {{\"time\":\"yesterday\",\"event\":\"tick\"}}\n\
         \x00\x00\x00\n\
         {{\"type\":\"ended\"}}\n\
         {{\"x\":1}}\n\
         {event}"
    );
    let told = lines(&rest);
    let damaged = |at: usize| match &told[at] {
        Line::Damaged { line, why } => (*line, why.as_str()),
        other => panic!("{other:?}"),
    };
    assert_eq!(told[0], Line::Event(created(1, 100)));
    assert_eq!(told[1], Line::Marker(Marker::Looked));
    assert_eq!(told[2], Line::Unknown("pod-cloned".into()));
    assert_eq!(told[3], Line::Unknown("thought".into()));
    assert_eq!(damaged(4), (7, "missing field `netns` (column 55)"));
    assert_eq!(damaged(5).0, 8);
    assert_eq!(damaged(6).0, 9);
    assert_eq!(damaged(7), (10, "missing field `time`"));
    assert_eq!(damaged(8).0, 11);
    assert_eq!(
        told[9],
        Line::Event(created(1, 100)),
        "the newline alone is missing"
    );
    assert_eq!(told.len(), 10);
}

#[test]
fn a_last_line_without_its_end_is_torn() {
    let event = serde_json::to_string(&created(1, 100)).unwrap();
    for cut in 1..event.len() {
        let Some(part) = event.get(..cut) else {
            continue;
        };
        assert_eq!(lines(part), [Line::Torn], "{part}");
    }
}

#[test]
fn a_line_that_is_too_long_costs_itself_alone() {
    let mut lines = Lines::new(&b"0123456789\nabc\n0123456789"[..]);
    assert_eq!(lines.next(5).unwrap(), LineEnd::TooLong);
    assert_eq!(lines.next(5).unwrap(), LineEnd::Newline);
    assert_eq!((lines.buffer.as_slice(), lines.number), (&b"abc"[..], 2));
    assert_eq!(lines.next(5).unwrap(), LineEnd::TooLong);
    assert_eq!(lines.next(5).unwrap(), LineEnd::Nothing);
    // Whatever the size of the pieces in which it comes.
    let mut lines = Lines::new(BufReader::with_capacity(3, &b"0123456789\nabc\n"[..]));
    assert_eq!(lines.next(10).unwrap(), LineEnd::Newline);
    assert_eq!(lines.buffer, b"0123456789");
    assert_eq!(lines.next(10).unwrap(), LineEnd::Newline);
    assert_eq!(lines.buffer, b"abc");
}

#[test]
fn a_disk_that_fails_is_no_end() {
    struct Failing;
    impl io::Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("input/output error"))
        }
    }
    let input = io::Read::chain(FIRST.as_bytes(), &b"\n"[..]);
    let input = BufReader::new(io::Read::chain(input, Failing));
    let mut recording = Recording::new(String::from("run.jsonl"), input).unwrap();
    let said = event::fault::chain(&recording.next().unwrap_err());
    assert!(said.contains("after line 1: input/output error"), "{said}");
}

#[test]
fn a_line_that_would_take_more_memory_than_there_may_be_is_damaged_and_the_rest_is_read() {
    let begin = r#"{"time":"2025-11-21T05:00:00Z","event":"tick","x":["#;
    let small = format!("{begin}{}[]]}}\n", "[],".repeat(100_000));
    assert_eq!(lines(&small).len(), 1);
    assert!(matches!(lines(&small)[0], Line::Event(_)));
    for filler in ["[],", "0,", r#"{"":0},"#, "[0],"] {
        let bomb = format!("{begin}{}0]}}\n{small}", filler.repeat(2_000_000));
        let read = lines(&bomb);
        let [Line::Damaged { line: 2, why }, Line::Event(_)] = read.as_slice() else {
            panic!("{filler}: {} lines", read.len());
        };
        assert!(why.contains("more than can be read at once"), "{why}");
    }
}

#[test]
fn as_many_pods_as_the_model_takes_are_read() {
    let pod = r#"{"namespace":"default","name":"checkout-5b7d9c-x8k2p","uids":["0f6a7b1c-3a52-4f0e-9d6e-6f1d8a9b0c1d"],"node":"n1","phase":"Running","ips":["10.0.0.1","fd00::1"]},"#;
    let pods = pod.repeat(65_536);
    let pods = pods.trim_end_matches(',');
    let list = format!(
        r#"{{"time":"2025-11-21T05:00:00Z","event":"pods-listed","source":"api","at":"2025-11-21T05:00:00Z","pods":[{pods}]}}"#
    );
    let read = lines(&format!("{list}\n"));
    let [Line::Event(event)] = read.as_slice() else {
        panic!("{read:?}");
    };
    let What::PodsListed { pods, .. } = &event.what else {
        panic!("{}", event.what.name());
    };
    assert_eq!(pods.len(), 65_536);
}

#[test]
fn a_list_of_pods_is_read_as_every_other_event_is() {
    let event = listed(5, &[pod("a", OLD, &[ip(5)])]);
    let mut long = serde_json::to_string(&event).unwrap();
    long.push_str(&" ".repeat(SMALL));
    assert_eq!(lines(&(long + "\n")), [Line::Event(event)]);
}

#[test]
fn of_a_text_that_is_too_long_the_beginning_is_read_and_it_is_counted() {
    let event = lost(1, &"x".repeat(11 << 20));
    let text = format!("{FIRST}\n{}\n", serde_json::to_string(&event).unwrap());
    let mut recording = Recording::new(String::from("x"), text.as_bytes()).unwrap();
    let Some(Line::Event(read)) = recording.next().unwrap() else {
        panic!("an event was read");
    };
    assert_eq!(read, lost(1, &"x".repeat(8 << 10)));
    assert_eq!(recording.take_cut(), 1);
}

fn lost(seconds: i64, cause: &str) -> Event {
    let cause = String::from(cause);
    at(seconds, What::EventsLost { cause, count: 1 })
}
