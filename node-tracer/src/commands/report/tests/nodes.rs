//! Recordings of several nodes on one page.

use std::{fs, path::PathBuf};

use super::{lines_of, page};
use event::{Event, What, clock::Timestamp, finding::Rule, testing::*};
use report::{incident::incidents, sheet::Sheet, timeline::timeline};

/// A page's recordings, as files.
struct Files {
    folder: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let paths = Vec::new();
        Self { folder, paths }
    }

    fn with(mut self, name: &str, text: &str) -> Self {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        self.paths.push(path);
        self
    }

    fn recording(self, node: &str, events: &[Event], end: i64) -> Self {
        let number = self.paths.len();
        let text =
            lines_of((node, &format!("boot of {node}")), "trace", events, end).join("\n") + "\n";
        self.with(&format!("{number}.jsonl"), &text)
    }

    fn sheet(&self) -> Sheet {
        let (sheet, told) = super::super::read(&self.paths);
        let _ = told.unwrap();
        sheet
    }
}

/// The node that has the ghost, and what its API server says of the address.
fn of_ghost() -> Vec<Event> {
    let mut events = ghost_story();
    events.push(reserved(90, None));
    events
}

/// The node whose pod gets the address.
fn of_successor(seconds: i64) -> Vec<Event> {
    let add = call("ADD", "sandbox-new", 200, NEW, "checkout-q4w7z");
    vec![
        host(0),
        listed(seconds - 2, &[pod("checkout-q4w7z", NEW, &[])]),
        created(seconds - 1, 200),
        calls(seconds - 1, add.clone()),
        added(seconds, 200, 5),
        answered(seconds, add, 5),
        listed(seconds + 1, &[pod("checkout-q4w7z", NEW, &[ip(5)])]),
    ]
}

/// A node reads in the API who has the address.
fn read(seconds: i64, uid: &str, last: u8) -> Event {
    let what = What::PodsWithAddress {
        address: ip(last),
        at: s(seconds),
        pods: vec![pod("checkout-q4w7z", uid, &[ip(last)])],
    };
    at(seconds, what)
}

#[test]
fn a_ghost_and_the_pod_of_another_node_that_got_its_address_are_one_incident() {
    let files =
        Files::new()
            .recording("n1", &of_ghost(), 120)
            .recording("n2", &of_successor(95), 120);
    let sheet = files.sheet();
    let incidents = incidents(&sheet);
    let about = incidents.iter().find(|it| !it.shared.is_empty()).unwrap();
    let [one] = about.shared.as_slice() else {
        panic!("{:#?}", about.shared);
    };
    assert_eq!((one.address, one.given.len()), (ip(5), 1));
    assert_eq!(about.worst().unwrap().worst.rule, Rule::GhostSandbox);
    let drawn = timeline(&sheet, &incidents);
    let names = drawn.groups[0].lanes.iter();
    let names: Vec<_> = names.map(|lane| lane.name.to_string()).collect();
    assert_eq!(
        names,
        ["shop/checkout-x8k2p on n1", "shop/checkout-q4w7z on n2"]
    );
    // Nobody says that it is one network.
    let band = drawn.groups[0].bands[0].title.to_string();
    assert!(
        band.starts_with("both have 10.0.0.5 from 04:41:35.000"),
        "{band}"
    );
    let page = page(&sheet);
    for words in [
        "The same address on several nodes",
        "10.0.0.5 is kept on n1 by shop/checkout-x8k2p (deleted), and shop/checkout-q4w7z on n2 \
         got it at 04:41:35.000. Whether both are in one network is not known.",
        "whether both are in one network: no recording of n1 has shop/checkout-q4w7z on n2",
        "clock of n2: not compared with n1",
        "since 04:41:35.000, had it at the end",
    ] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn what_the_api_told_the_ghosts_node_makes_it_a_conflict() {
    let mut ghost = of_ghost();
    ghost.push(read(100, NEW, 5));
    let files = Files::new()
        .recording("n1", &ghost, 120)
        .recording("n2", &of_successor(95), 120);
    let sheet = files.sheet();
    let page = page(&sheet);
    for words in [
        "10.0.0.5 was in use twice, and still was at the end of the recording: by the deleted pod \
         shop/checkout-x8k2p on n1 and by shop/checkout-q4w7z on n2.",
        "the API gives shop/checkout-q4w7z on n2 this address (asked by n1): it is one network",
        "clock of n2: at most 5.0 s behind n1&#39;s; how far it may be ahead is not known",
    ] {
        let words = words.replace("&#39;", "'");
        let page = page.replace("&#39;", "'").replace("&#x27;", "'");
        assert!(page.contains(&words), "{words}");
    }
}

/// When the successor's lane got its address, and what is known of the clock.
fn got(sheet: &Sheet) -> (Timestamp, String) {
    let mut lanes = sheet.lanes.all().map(|(_, lane)| lane);
    let lane = lanes.find(|lane| sheet.node_of(lane.part) == "n2" && !lane.held.is_empty());
    let since = lane.unwrap().held[0].since.unwrap();
    (since, sheet.parts[1].clock.words("n1"))
}

#[test]
fn times_of_a_clock_that_is_ahead_are_told_by_the_first_nodes() {
    let mut ghost = of_ghost();
    let other = call("ADD", "sandbox-6", 300, OTHER, "other");
    ghost.extend([
        listed(70, &[pod("other", OTHER, &[])]),
        answered(80, other, 6),
        read(100, NEW, 5),
    ]);
    ghost.sort_by_key(|event| event.time);
    // A minute ahead: it is 99.5 for the first one.
    let mut successor = of_successor(160);
    let mut loose = successor.clone();
    successor.push(read(141, OTHER, 6));
    successor.sort_by_key(|event| event.time);
    let sheet = Files::new()
        .recording("n1", &ghost, 200)
        .recording("n2", &successor, 200)
        .sheet();
    let (at, words) = got(&sheet);
    assert_eq!(at, Timestamp::from_nanos(nanos(s(100)) - 500_000_000));
    assert!(
        words.starts_with("1 min 00 s to 1 min 01 s ahead of n1's") && words.contains("earlier"),
        "{words}"
    );
    // Where the bounds are wide, nothing is moved.
    loose.push(read(180, OTHER, 6));
    let sheet = Files::new()
        .recording("n1", &ghost, 200)
        .recording("n2", &loose, 200)
        .sheet();
    let (at, words) = got(&sheet);
    assert_eq!(at, s(160));
    assert!(
        words.contains("times are as this node told them"),
        "{words}"
    );
}

fn nanos(at: Timestamp) -> i64 {
    let (seconds, nanos) = at.parts();
    seconds * 1_000_000_000 + nanos
}

#[test]
fn each_node_is_judged_by_its_own_recording_alone() {
    let found = |sheet: &Sheet, node: &str| {
        let all = sheet.findings.worst_first().into_iter();
        let all = all.filter(|it| sheet.node_of(it.part) == node);
        all.map(|it| it.worst.clone()).collect::<Vec<_>>()
    };
    let (one, other) = (of_ghost(), of_successor(95));
    let both = Files::new()
        .recording("n1", &one, 120)
        .recording("n2", &other, 120)
        .sheet();
    let alone = |node: &str, events: &[Event]| {
        let sheet = Files::new().recording(node, events, 120).sheet();
        sheet
            .findings
            .worst_first()
            .into_iter()
            .map(|it| it.worst.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(found(&both, "n1"), alone("n1", &one));
    assert_eq!(found(&both, "n2"), alone("n2", &other));
}

#[test]
fn recordings_of_one_node_have_no_address_on_several() {
    let files =
        Files::new()
            .recording("n1", &of_ghost(), 120)
            .recording("n1", &of_successor(95), 120);
    let sheet = files.sheet();
    assert!(!sheet.has_nodes());
    assert!(incidents(&sheet).iter().all(|it| it.shared.is_empty()));
    let page = page(&sheet);
    assert!(!page.contains("several nodes") && !page.contains(" on n1"));
    assert!(page.contains("2 recordings"));
}

#[test]
fn an_address_that_was_free_again_is_not_on_several_nodes() {
    let mut ghost = of_ghost();
    ghost.extend([
        unstuck(91, 9),
        removed(92, 100, 5),
        dying(93, 100),
        destroyed(94, 100),
    ]);
    let sheet = Files::new()
        .recording("n1", &ghost, 120)
        .recording("n2", &of_successor(105), 120)
        .sheet();
    assert!(incidents(&sheet).iter().all(|it| it.shared.is_empty()));
}

#[test]
fn a_bad_file_is_named_and_the_others_are_told() {
    let files = Files::new()
        .recording("n1", &of_ghost(), 120)
        .with(
            "bad.jsonl",
            "{\"schema\":\"node-tracer/9\",\"type\":\"recording\"}\n",
        )
        .recording("n2", &of_successor(95), 120);
    let (sheet, told) = super::super::read(&files.paths);
    assert!(told.is_err());
    assert_eq!(sheet.parts.len(), 2);
    assert!(page(&sheet).contains("The same address on several nodes"));
}

#[test]
fn a_journal_of_several_nodes_is_read_by_node() {
    let entry = |node: &str, sheet: &Sheet| {
        let all = sheet.findings.worst_first().into_iter().map(|it| {
            let finding = &it.worst;
            let record = event::record::Record::finding(
                node,
                finding.since,
                finding,
                event::finding::State::Open,
            );
            let record = serde_json::to_string(&record).unwrap();
            serde_json::json!({"_UID": "0", "NODE_TRACER_JSON": record}).to_string() + "\n"
        });
        all.collect::<String>()
    };
    let ghost = Files::new().recording("n1", &of_ghost(), 120).sheet();
    let journal = entry("n1", &ghost) + &entry("n3", &ghost);
    let sheet = Files::new()
        .with("journal.json", &journal)
        .recording("n2", &of_successor(95), 120)
        .sheet();
    let nodes: Vec<_> = sheet.parts.iter().map(|part| part.node.as_str()).collect();
    assert_eq!(nodes, ["n1", "n3", "n2"]);
    let page = page(&sheet);
    assert!(page.contains("10.0.0.5 is kept on n1 by shop/checkout-x8k2p (deleted)"));
    assert!(
        page.contains("journal.json, what node-tracer has told"),
        "{page}"
    );
}
