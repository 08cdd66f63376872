//! Recordings of the story, and the pages that they make.

use std::{fs, path::PathBuf};

mod narrative;
mod nodes;
mod timeline;

use crate::recording::Marker;
use event::{CniCall, Event, Task, What, record::CoverageItem, testing::*};
use report::{outline::outline, page::Page, sheet::Sheet};

/// What a recording of these events makes, with a tick each second.
pub(super) fn sheet(events: &[Event], end: i64) -> Sheet {
    sheet_of(&lines("trace", events, end))
}

fn sheet_of(lines: &[String]) -> Sheet {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    let (mut sheet, told) = super::read(std::slice::from_ref(&path));
    // What was found is asked elsewhere.
    let _ = told.unwrap();
    for item in &mut sheet.coverage {
        let name = path.display().to_string();
        item.mechanism = item
            .mechanism
            .as_ref()
            .map(|it| it.replace(&name, "run.jsonl"));
    }
    sheet
}

fn lines(command: &str, events: &[Event], end: i64) -> Vec<String> {
    lines_of(("node-1", "boot"), command, events, end)
}

fn lines_of((node, boot): (&str, &str), command: &str, events: &[Event], end: i64) -> Vec<String> {
    let header = serde_json::json!({
        "schema": "node-tracer/1", "type": "recording", "time": s(0), "node": node,
        "boot_id": boot, "stall_threshold_ms": 5000, "command": command, "version": "0.1.0",
    });
    let seen = |signal: &str, mechanism: Option<&str>| CoverageItem {
        signal: signal.to_owned(),
        mechanism: mechanism.map(str::to_owned),
        reason: mechanism.is_none().then(|| String::from("--cri none")),
        unknown: Vec::new(),
    };
    let signals = vec![seen("cni-call", Some("tp_btf")), seen("cri", None)];
    let line = |event: &Event| serde_json::to_string(event).unwrap();
    let note = |note: &Marker| serde_json::to_string(note).unwrap();
    let mut lines = vec![header.to_string(), note(&Marker::Coverage { signals })];
    for seconds in 0..end {
        lines.extend(events.iter().filter(|it| it.time == s(seconds)).map(line));
        lines.push(line(&at(seconds, What::Tick)));
    }
    if command == "scan" {
        lines.extend([note(&Marker::Looked), note(&Marker::Judged)]);
    }
    lines.push(note(&Marker::Ended { time: s(end) }));
    lines
}

/// The incident to its end: the ghost, the conflict, the release.
pub(super) fn incident() -> Vec<Event> {
    let mut story = ghost_story();
    story.push(reserved(90, None));
    story.extend(successor(92));
    let del = call("DEL", "sandbox-old", 100, OLD, "checkout-x8k2p");
    let del = CniCall { pid: 78, ..del };
    story.extend([
        unstuck(110, 9),
        calls(111, del.clone()),
        removed(112, 100, 5),
        ended(113, del),
        dying(114, 100),
        destroyed(115, 100),
    ]);
    story
}

fn page(sheet: &Sheet) -> String {
    Page::new(sheet).html().unwrap()
}

#[test]
fn the_page_of_the_incident_is_as_it_was() {
    let page = page(&sheet(&incident(), 120));
    let is = outline(&page)
        .join("\n")
        .replace(env!("CARGO_PKG_VERSION"), "VERSION")
        + "\n";
    let path: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "src/commands/report/golden/incident.txt",
    ]
    .iter()
    .collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &is).unwrap();
    }
    let was = fs::read_to_string(&path).unwrap();
    for (number, (was, is)) in was.lines().zip(is.lines()).enumerate() {
        assert_eq!(is, was, "line {}", number + 1);
    }
    assert_eq!(is.lines().count(), was.lines().count());
}

#[test]
fn a_page_loads_nothing_and_runs_nothing() {
    let page = page(&sheet(&incident(), 120));
    let policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:;";
    assert!(page.contains(policy));
    for sign in [
        "http://",
        "https://",
        "<script",
        "<link",
        "<img",
        "<iframe",
        "<object",
        "@import",
        "javascript:",
        " src=",
        " onload",
        "url(h",
        "url(\"",
        "//cdn",
    ] {
        assert!(!page.contains(sign), "{sign}");
    }
    // What is referred to is in the page.
    for part in page
        .split("url(#")
        .skip(1)
        .chain(page.split("href=\"#").skip(1))
    {
        let id = part.split([')', '"']).next().unwrap();
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
}

/// Text that would be more than text.
const BAD: &str = "</title><script>alert(1)</script>\"'&<b>\u{202e}x\u{1b}[31m\u{200b}";

#[test]
fn foreign_text_stays_text() {
    let mut events = incident();
    let replace = |text: &str| -> String {
        let mut text = text.to_owned();
        for word in [
            "checkout-api",
            "checkout-x8k2p",
            "sandbox-new",
            "request_wait_answer",
        ] {
            let bad = serde_json::to_string(BAD).unwrap();
            text = text.replace(word, &format!("{word}{}", &bad[1..bad.len() - 1]));
        }
        text
    };
    events = events
        .iter()
        .map(|event| {
            let json = serde_json::to_string(event).unwrap();
            serde_json::from_str(&replace(&json)).unwrap()
        })
        .collect();
    let add = call("ADD", "sandbox-3", 300, OTHER, "other");
    events.push(failed(100, add, BAD));
    events.push(at(
        101,
        What::EventsLost {
            cause: BAD.to_owned(),
            count: 1,
        },
    ));
    let mut lines = lines("trace", &events, 120);
    lines[0] = lines[0].replace("node-1", "node-1<script>");
    lines.insert(5, format!("{{\"time\": {BAD}"));
    let page = page(&sheet_of(&lines));
    // It is all there, and harmless.
    assert!(page.contains("alert(1)"));
    outline(&page);
    assert!(!page.contains("<script") && !page.contains("<b>\\u"));
    let hidden = |c: char| c != '\n' && event::wording::escape::is_hidden(c);
    assert!(!page.contains(hidden));
    assert!(page.contains(r"\u{202e}x\x1b[31m\u{200b}"));
    assert!(page.contains("recording-damaged"));
}

#[test]
fn a_run_without_findings_says_so_and_what_it_did_not_see() {
    let page = page(&sheet(&[host(0), created(1, 100)], 5));
    outline(&page);
    let says = "Nothing of severity warning or above was found; incomplete: 1 source \
                could not.";
    assert!(page.contains(says));
    assert!(!page.contains("id=\"findings\""));
    assert!(page.contains("No records were lost."));
}

#[test]
fn a_scan_is_told_by_what_it_shows() {
    let mut events = vec![
        host(0),
        found(0, 100),
        added(0, 100, 5),
        attached(0, &[attachment("sandbox-old", Some(100), 5, -3_600)]),
        stuck(0, 9, 100),
        listed(0, &[pod("other", OTHER, &[ip(9)])]),
        reserved(0, Some("sandbox-old")),
    ];
    if let What::AddressAdded { found, .. } = &mut events[2].what {
        *found = true;
    }
    let lines = lines("scan", &events, 2);
    let sheet = sheet_of(&lines);
    let (_, lane) = sheet.lanes.all().next().unwrap();
    // The cache knows since when.
    assert_eq!(lane.held[0].since, Some(s(-3_600)));
    let page = page(&sheet);
    outline(&page);
    assert!(page.contains("blocked-task"));
}

#[test]
fn a_page_stays_small_whatever_a_recording_holds() {
    let mut events = vec![host(0), listed(0, &[])];
    for number in 0..150_u32 {
        let seconds = i64::from(number / 30) + 1;
        let uid = format!("uid-{number}");
        let add = call(
            "ADD",
            &format!("sandbox-{number}"),
            1_000 + number,
            &uid,
            &uid,
        );
        events.push(created(seconds, 1_000 + number));
        events.push(failed(seconds, add, &"long ".repeat(600)));
        for call in 0..10 {
            let task = Task {
                tid: number * 10 + call,
                ..task(number, "dd")
            };
            events.push(holders(seconds, 1_000 + number, &[task], &[]));
        }
    }
    let sheet = sheet(&events, 10);
    let page = page(&sheet);
    assert!(page.len() < 4 << 20, "{}", page.len());
    assert!(page.contains("What this page leaves out"));
}
