//! Messages, and what kubectl prints, of chance.

use std::{borrow::Cow, time::Duration};

use super::{
    entry::{Entry, Level},
    failures,
    kubectl::Kubectl,
    meaning::Meaning,
};
use event::{Event, clock::Timestamp};
use node::redact::secret;

/// Events of all messages in a row, each.
const EACH: usize = 16;

/// Messages, a line each: what stands for its writer, a tab, the message, and
/// after each further tab a field (`name=value`). Their meaning has no secrets,
/// is not of later than the message, and is not more than they are.
pub fn fuzz_meaning(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut meaning = Meaning::default();
    let mut time = started();
    let (mut told, mut lines) = (0, 0);
    for line in text.lines() {
        let mut parts = line.split('\t');
        let writer = parts.next().unwrap_or_default();
        let ident = match writer.bytes().next() {
            Some(b'k') => Some("kubelet"),
            Some(b'c') => Some("containerd"),
            Some(b'o') => Some("crio"),
            Some(b'n') => Some("kernel"),
            Some(b'd') => Some("dockerd"),
            _ => None,
        };
        // A second letter says how long after the last one it was.
        let pause = u32::from(writer.as_bytes().get(1).copied().unwrap_or_default());
        time = match writer.as_bytes().get(2) {
            Some(b'<') => time.minus(Duration::from_millis(100) * pause),
            _ => time.plus(Duration::from_millis(100) * pause),
        };
        let entry = Entry {
            time: Some(time),
            host: None,
            ident,
            pid: Some(1),
            level: Some(Level::Error).filter(|_| writer.len() % 2 == 1),
            own_level: None,
            message: Cow::Borrowed(parts.next().unwrap_or_default()),
            fields: parts
                .filter_map(|field| field.split_once('='))
                .map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value)))
                .collect(),
            line: 1,
        };
        lines += 1;
        let mut events = meaning.events(&entry);
        events.extend(failures::events(&entry, None));
        told += events.len();
        check(&events);
        assert!(told <= EACH * lines, "{told} events of {lines} messages");
    }
    let events = meaning.end();
    check(&events);
    assert!(told + events.len() <= EACH * lines);
}

/// What kubectl prints: no secrets, no more events than lines, none later than
/// it was printed.
pub fn fuzz_kubectl(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let printed = started();
    let mut kubectl = Kubectl::new(printed);
    let mut told = 0;
    let mut take = |events: Vec<Event>, lines: usize| {
        told += events.len();
        // A DEL that was called again is three.
        assert!(told <= 3 * (lines + 1));
        check(&events);
        // Where no time is written out, ages are counted back from then.
        let dated = text.contains("imestamp") || text.contains("Time");
        assert!(
            dated || events.iter().all(|event| event.time <= printed),
            "{events:?}"
        );
    };
    let mut lines = 0;
    for line in text.lines() {
        lines += 1;
        take(kubectl.line(line), lines);
        kubectl.took();
    }
    take(kubectl.end(), lines);
}

fn started() -> Timestamp {
    Timestamp::from_parts(1_763_700_000, 0)
}

fn check(events: &[Event]) {
    for event in events {
        let document = serde_json::to_value(event).expect("an event is written");
        secret::assert_hidden_in(&document);
        let text = document.to_string();
        assert!(text.len() < 256 << 10, "{} bytes", text.len());
        let read: Event = serde_json::from_str(&text).expect("an event is read");
        assert_eq!(read, *event);
    }
}
