//! Explanations of stories, and how they are printed.
//!
//! `golden/*` is what the sinks make of them. `UPDATE_GOLDEN=1 cargo test
//! explain` writes these anew: read the difference as a reader of the output
//! would.

use event::explanation::{Explanation, Kind};
use std::{fs, net::IpAddr, path::PathBuf};

use super::*;
use crate::testing::Node;
use event::{
    Attachment, Device, Event, Neighbour, Network, PodRef, Reservation, Route, RuntimeContainer,
    RuntimeSandbox, Store, What, record::Record, testing::*, wording::escape::is_hidden,
};
use sink::{JsonSink, Sink as _, TextSink};

mod incident;
mod lookup;
mod partial;
mod pods;

use self::incident::*;

fn ask(node: &Node, word: &str, seconds: i64) -> Result<Explanation, SubjectError> {
    explain(
        &parse(word).unwrap(),
        &node.0,
        &Hints::default(),
        s(seconds),
    )
}

fn explained(node: &Node, word: &str) -> Explanation {
    ask(node, word, 7_300).unwrap()
}

fn text(explanation: &Explanation) -> String {
    let mut out = Vec::new();
    let record = Record::explanation("node-1", s(7_300), explanation);
    TextSink::new(&mut out, false).write(&record).unwrap();
    String::from_utf8(out).unwrap()
}

/// All that is known, as text.
fn whole(explanation: &Explanation) -> String {
    let mut out = Vec::new();
    let record = Record::explanation("node-1", s(7_300), explanation);
    let mut sink = TextSink::new(&mut out, false).verbose(1);
    sink.write(&record).unwrap();
    String::from_utf8(out).unwrap()
}

fn json(explanation: &Explanation) -> String {
    let mut out = Vec::new();
    let record = Record::explanation("node-1", s(7_300), explanation);
    JsonSink::new(&mut out).write(&record).unwrap();
    String::from_utf8(out).unwrap()
}

fn compare(file: &str, actual: &str) {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "src/explain/golden", file]
        .iter()
        .collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == actual, "{file} differs:\n{actual}");
}

fn inodes(explanation: &Explanation) -> Vec<u32> {
    let all = explanation.netns.iter();
    all.map(|part| part.id.inode).collect()
}

#[test]
fn the_address_of_a_ghost_and_of_its_victim() {
    let explanation = explained(&incident(), "10.0.0.5/24");
    compare("address.txt", &whole(&explanation));
    let brief = text(&explanation);
    assert!(brief.lines().count() <= 30, "{brief}");
    compare("address.brief.txt", &brief);
    let json = json(&explanation);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["type"], "explanation");
    let again: Explanation = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(again, explanation, "it can be read back");
    let pretty = serde_json::to_string_pretty(&value).unwrap() + "\n";
    compare("address.json", &pretty);
}

#[test]
fn every_word_for_the_incident_leads_to_it() {
    let node = incident();
    let words = [
        ("10.0.0.5", Kind::Address),
        ("::ffff:10.0.0.5", Kind::Address),
        ("shop/checkout-x8k2p", Kind::Pod),
        (OLD, Kind::PodUid),
        ("d6fe7d", Kind::Container),
        ("containerd://02af057ee0f1", Kind::Container),
        ("02af057ee0f1", Kind::Container),
        ("inode:100", Kind::Netns),
        (MOUNT, Kind::NetnsPath),
        ("/var/run/netns/cni-1", Kind::NetnsPath),
        ("/proc/9/ns/net", Kind::NetnsPath),
        ("9", Kind::Pid),
    ];
    for (word, kind) in words {
        let explanation = explained(&node, word);
        assert_eq!(explanation.subject.kind, kind, "{word}");
        assert!(explanation.subject.found, "{word}");
        assert!(inodes(&explanation).contains(&100), "{word}");
        let answer = &explanation.answer;
        assert!(answer.contains(" CONFLICT: "), "{word}: {answer}");
        assert!(answer.len() <= 100, "{word}: {answer}");
        let rules = explanation
            .findings
            .iter()
            .map(|part| part.finding.rule.as_str());
        let rules: Vec<_> = rules.collect();
        for rule in ["ghost-sandbox", "duplicate-address"] {
            assert!(rules.contains(&rule), "{word}: {rules:?}");
        }
        let first = explanation.advice.first().unwrap();
        assert!(first.starts_with("kubectl cordon "), "{word}: {first}");
        let last = explanation.advice.last().unwrap();
        assert!(last.starts_with("kubectl uncordon "), "{word}: {last}");
        let times: Vec<_> = explanation
            .timeline
            .iter()
            .map(|moment| moment.at)
            .collect();
        assert!(times.is_sorted() && times.len() > 8, "{word}");
    }
}

#[test]
fn the_answers_are_sentences() {
    let node = incident();
    let answer = |word: &str| explained(&node, word).answer;
    let answers = [
        (
            "10.0.0.5",
            "10.0.0.5 CONFLICT: held by deleted GHOST and running VICTIM",
        ),
        (
            "GHOST",
            "GHOST (deleted) CONFLICT: 10.0.0.5 also held by running VICTIM",
        ),
        (
            "VICTIM",
            "VICTIM CONFLICT: 10.0.0.5 also held by deleted GHOST",
        ),
        (
            "02af05",
            "02af057ee0f1a of GHOST CONFLICT: 10.0.0.5 also held by running VICTIM",
        ),
        (
            "inode:200",
            "netns 200 of VICTIM CONFLICT: 10.0.0.5 also held by deleted GHOST",
        ),
        (
            "9",
            "checkout-api (9) of GHOST CONFLICT: 10.0.0.5 also held by running VICTIM",
        ),
    ];
    let names = |text: &str| {
        let text = text.replace("GHOST", "shop/checkout-x8k2p");
        text.replace("VICTIM", "shop/checkout-q4w7z")
    };
    for (word, expected) in answers {
        assert_eq!(answer(&names(word)), names(expected));
    }
    assert_eq!(answer("inode:1"), "netns 1 is the host's own");
}

#[test]
fn what_is_known_of_a_ghost_is_told_to_whoever_asks_about_its_victim() {
    let node = incident();
    let row = |word: &str| {
        let page = text(&explained(&node, word));
        let row = page.lines().find(|line| line.starts_with("ghost "));
        row.unwrap().to_owned()
    };
    assert!(row("10.0.0.5").ends_with("no        gone"));
    assert_eq!(row("shop/checkout-q4w7z"), row("10.0.0.5"));
    let page = text(&explained(&node, "shop/checkout-q4w7z"));
    for line in [
        "checkout-api (9) enters D: ",
        "gets 10.0.0.5 (netns 200, eth0)  <-- conflict",
    ] {
        assert!(page.contains(line), "no {line:?} in {page}");
    }
}

#[test]
fn a_ghost_that_nobody_suffers_from_is_called_one() {
    let app = pod_task(9, "checkout-api", OLD, OLD_APP);
    let mut node = Node::of(&[
        host(0),
        created(1, 100),
        added(3, 100, 5),
        listed(6, &[pod("checkout-x8k2p", OLD, &[ip(5)])]),
        listed(60, &[pod("other", OTHER, &[ip(9)])]),
        holders(61, 100, &[app], &[MOUNT]),
        stuck(62, 9, 100),
    ]);
    node.tick(200);
    assert_eq!(
        explained(&node, "10.0.0.5").answer,
        "10.0.0.5 GHOST: held by deleted shop/checkout-x8k2p; checkout-api (9) in state D for 2 h"
    );
}

#[test]
fn a_cable_is_followed_to_the_host() {
    let explanation = explained(&incident(), "inode:100");
    let part = explanation.netns.iter().find(|part| part.id.inode == 100);
    let part = part.unwrap();
    let eth0 = part.devices.iter().find(|device| device.name == "eth0");
    let peer = eth0.unwrap().peer.clone().unwrap();
    assert_eq!((peer.name.as_str(), peer.host), ("vetha1", true));
    assert_eq!(peer.master.as_deref(), Some("cni0"));
    let [gateway] = part.gateways.as_slice() else {
        panic!("{:?}", part.gateways)
    };
    assert_eq!(gateway.neighbour.as_deref(), Some("reachable"));
}

#[test]
fn a_reservation_is_told_whose_it_is() {
    let node = incident();
    let explanation = explained(&node, "10.0.0.5");
    let [one] = explanation.reservations.as_slice() else {
        panic!("{:?}", explanation.reservations)
    };
    assert_eq!(
        (one.live, one.shown_by.as_deref()),
        (Some(true), Some("cri"))
    );
    assert_eq!(one.whose, "netns 200 (shop/checkout-q4w7z)");
    let leaked = explained(&node, "10.0.0.77");
    assert_eq!(
        leaked.answer,
        "no netns has 10.0.0.77; it is reserved for a container of which nothing is left"
    );
    assert_eq!(leaked.reservations[0].live, Some(false));
}

#[test]
fn whether_a_container_exists_is_not_known_while_cri_does_not_answer() {
    let mut node = incident();
    node.tell(at(
        101,
        What::SourceFailed {
            source: String::from("cri"),
            error: String::from("/run/containerd/containerd.sock: no answer in 1 s"),
        },
    ));
    let leaked = explained(&node, "10.0.0.77");
    assert_eq!(leaked.reservations[0].live, None);
    assert!(!leaked.subject.complete);
    let unknown = leaked.unknown.join("\n");
    assert!(unknown.contains("no answer in 1 s"), "{unknown}");
}

#[test]
fn a_pod_without_faults_needs_nothing_done() {
    let mut node = incident();
    let all = pod("fine", OTHER, &[ip(9)]);
    node.tell(listed(101, &[all]));
    node.tell_all(&[
        created(101, 500),
        added(101, 500, 9),
        holders(101, 500, &[pod_task(50, "nginx", OTHER, "0e0e0e")], &[]),
    ]);
    node.tell(wired(102, 500, 90, 0));
    node.tick(200);
    let explanation = explained(&node, "shop/fine");
    assert_eq!(
        explanation.answer,
        "pod shop/fine is Running; it has 10.0.0.9 in netns 500"
    );
    assert_eq!(explanation.findings, []);
    assert!(
        explanation.advice[0].starts_with("nothing to do"),
        "{:?}",
        explanation.advice
    );
}

#[test]
fn the_host_is_shown_and_not_followed() {
    let mut node = incident();
    let what = What::AddressAdded {
        netns: ns(1),
        address: address(1),
        found: true,
        made: None,
    };
    node.tell(at(101, what));
    let explanation = explained(&node, "10.0.0.1");
    assert_eq!(
        explanation.answer,
        "10.0.0.1 is held by the host itself, on eth0"
    );
    assert_eq!(inodes(&explanation), [1]);
    assert_eq!(
        (explanation.pods.len(), explanation.sandboxes.len()),
        (0, 0)
    );
}

#[test]
fn names_of_others_cannot_forge_a_line() {
    let hostile = "x\nFORGED  CRITICAL\x1b[2J\u{202e}";
    let mut node = incident();
    let sandbox = RuntimeSandbox {
        id: format!("aaaa{hostile}"),
        pod: PodRef {
            namespace: Some(hostile.to_owned()),
            name: Some(hostile.to_owned()),
            uid: Some(OTHER.to_owned()),
        },
        netns_path: Some(hostile.to_owned()),
        ips: vec![ip(66)],
        containers: vec![RuntimeContainer {
            id: hostile.to_owned(),
            name: hostile.to_owned(),
            state: Some(hostile.to_owned()),
            pid: None,
        }],
        ..RuntimeSandbox::default()
    };
    node.tell(at(
        101,
        What::SandboxAdded {
            source: String::from("cri"),
            sandbox,
        },
    ));
    node.tell(holders(
        101,
        600,
        &[pod_task(60, hostile, OTHER, hostile)],
        &[hostile],
    ));
    node.tell(added(101, 600, 66));
    let what = What::SourceFailed {
        source: hostile.to_owned(),
        error: hostile.to_owned(),
    };
    node.tell(at(101, what));
    node.tick(200);
    for word in ["10.0.0.66", OTHER, "60", "inode:600", "10.0.0.98"] {
        let explanation = explained(&node, word);
        for printed in [text(&explanation), json(&explanation)] {
            assert!(
                !printed.replace('\n', "").chars().any(is_hidden),
                "{printed}"
            );
            assert!(
                !printed
                    .lines()
                    .any(|line| line.trim().starts_with("FORGED")),
                "{printed}"
            );
        }
    }
}

#[test]
fn a_pod_of_which_only_the_uid_is_known_is_called_a_pod_once() {
    let task = pod_task(7, "app", OLD, "app-old");
    let node = Node::of(&[
        host(0),
        found(1, 100),
        added(2, 100, 5),
        holders(3, 100, &[task], &[MOUNT]),
    ]);
    let page = whole(&explained(&node, "10.0.0.5"));
    assert!(page.contains(&format!("  pod {OLD}")), "{page}");
    assert!(!page.contains("pod pod"), "{page}");
}
