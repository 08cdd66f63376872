//! Pods that get no network, and why.

use crate::testing::Node;
use event::{
    CniCall, CniResult, Event, Pod, What,
    finding::{Finding, Rule, Severity, State},
    testing::*,
};

const FAILED: Rule = Rule::AddFailed;
const IN_USE: &str = "failed to add IP addr {Version:4 Address:{IP:10.0.0.5 Mask:ffffff00}} to \
                      \"eth0\": address already in use";
const FULL: &str =
    "failed to allocate for range 0: no IP addresses available in range set: 10.0.0.2-10.0.0.6";

fn of(command: &str, i: i64) -> CniCall {
    let inode = 200 + i as u32;
    call(
        command,
        &format!("sandbox-{i}"),
        inode,
        NEW,
        "checkout-q4w7z",
    )
}

/// Sandbox `i` gets no network; the runtime cleans up, which succeeds.
fn tried(seconds: i64, i: i64, msg: &str) -> [Event; 5] {
    [
        created(seconds, 200 + i as u32),
        calls(seconds, of("ADD", i)),
        failed(seconds, of("ADD", i), msg),
        calls(seconds, of("DEL", i)),
        ended(seconds, of("DEL", i)),
    ]
}

fn at_end(story: &[Event], seconds: i64) -> Option<Finding> {
    let told = Node::of(story).of_rule(seconds, FAILED);
    assert!(told.len() <= 1, "{told:#?}");
    told.into_iter().next().map(|(finding, _)| finding)
}

fn said(lines: &[String], part: &str) -> bool {
    lines.iter().any(|line| line.contains(part))
}

fn claims(finding: &Finding) -> Vec<String> {
    finding.evidence.iter().map(|e| e.claim.clone()).collect()
}

#[test]
fn one_finding_a_pod_counts_all_its_sandboxes() {
    let mut node = Node::default();
    node.tell_all(&tried(10, 0, "boom"));
    let (first, _) = node.only(11, FAILED, State::Open);
    assert_eq!((first.severity, first.since), (Severity::Warning, s(10)));
    assert_eq!(first.detail.cause.as_deref(), Some("cni-plugin-error"));
    assert_eq!(first.detail.attempts, Some(1));
    assert_eq!(first.detail.error.as_ref().unwrap().msg, "boom");
    assert_eq!(first.pod.unwrap().uid.as_deref(), Some(NEW));
    node.tell_all(&tried(20, 1, "boom"));
    node.tell_all(&tried(30, 2, "boom"));
    let (third, _) = node.only(31, FAILED, State::Updated);
    assert_eq!((third.id, third.severity), (first.id, Severity::Critical));
    assert_eq!(third.detail.attempts, Some(3));
    assert_eq!(third.sandbox_id.as_deref(), Some("sandbox-2"));
    node.tell_all(&[calls(40, of("ADD", 3)), ended(41, of("ADD", 3))]);
    node.only(42, FAILED, State::Resolved);
}

#[test]
fn a_retry_that_succeeds_before_anybody_looks_is_none() {
    let mut story = tried(10, 0, "boom").to_vec();
    story.extend([calls(20, of("ADD", 1)), ended(20, of("ADD", 1))]);
    assert!(at_end(&story, 21).is_none());
}

#[test]
fn silence_and_the_pods_end_end_it() {
    let mut node = Node::of(&tried(10, 0, "boom"));
    node.only(11, FAILED, State::Open);
    assert_eq!(node.of_rule(609, FAILED), []);
    node.only(610, FAILED, State::Resolved);
    let mut node = Node::of(&tried(10, 0, "boom"));
    node.tell(listed(11, &[pod("checkout-q4w7z", NEW, &[])]));
    node.only(12, FAILED, State::Open);
    node.tell(listed(13, &[]));
    node.only(14, FAILED, State::Resolved);
}

#[test]
fn the_plugins_before_the_one_that_fails_succeed_each_time() {
    let mut story = Vec::new();
    for i in 0..3 {
        let bridge = of("ADD", i);
        let portmap = CniCall {
            plugin: "portmap".into(),
            pid: 78,
            ..of("ADD", i)
        };
        story.extend([calls(i * 10, bridge.clone()), ended(i * 10, bridge)]);
        story.extend([
            calls(i * 10, portmap.clone()),
            failed(
                i * 10,
                portmap,
                "cannot open hostport 80: listen tcp4 :80: bind: address already in use",
            ),
        ]);
    }
    let found = at_end(&story, 25).unwrap();
    assert_eq!(found.detail.attempts, Some(3));
    assert_eq!(found.detail.cause.as_deref(), Some("cni-plugin-error"));
    assert!(found.holders.is_empty());
}

#[test]
fn containers_without_a_pod_and_calls_that_are_not_trusted_are_none() {
    let bent = |bend: fn(&mut CniCall)| {
        let mut story = tried(10, 0, "boom");
        for event in &mut story {
            if let What::CniStarted { call } | What::CniCall { call, .. } = &mut event.what {
                bend(call);
            }
        }
        at_end(&story, 20)
    };
    assert!(bent(|call| call.pod = None).is_none());
    assert!(bent(|call| call.trusted = false).is_none());
    assert!(bent(|_| {}).is_some());
}

#[test]
fn an_address_in_use_is_told_with_its_holder() {
    let mut story = ghost_story();
    story.extend(tried(70, 0, IN_USE));
    let found = at_end(&story, 71).unwrap();
    assert_eq!(found.detail.cause.as_deref(), Some("address-in-use"));
    assert_eq!(found.addresses, [ip(5)]);
    let title = "10.0.0.5 is held by a deleted pod";
    assert!(found.title.ends_with(title), "{}", found.title);
    let claims = claims(&found);
    assert!(said(
        &claims,
        "netns 100 (shop/checkout-x8k2p) has 10.0.0.5/24 on eth0"
    ));
    assert!(said(
        &claims,
        "checkout-api (9) is in the netns, in state D"
    ));
    assert!(said(
        &claims,
        "netns 100 (shop/checkout-x8k2p) is of a deleted pod"
    ));
    let stuck = serde_json::to_value(&found.holders[0]).unwrap();
    assert_eq!((&stuck["pid"], &stuck["state"]), (&9.into(), &"D".into()));
    assert!(said(&found.advice, "ghost-sandbox"));
}

#[test]
fn an_address_that_only_the_ipam_named_is_found_in_its_answer() {
    let mut story = ghost_story();
    let ipam = CniCall {
        plugin: "host-local".into(),
        delegated: true,
        pid: 78,
        ..of("ADD", 0)
    };
    let mut gave = answered(70, ipam.clone(), 5);
    if let What::CniCall { result, .. } = &mut gave.what {
        *result = Some(CniResult {
            ips: vec![ip(5)],
            ..CniResult::default()
        });
    }
    story.extend([
        created(70, 200),
        calls(70, of("ADD", 0)),
        calls(70, ipam),
        gave,
    ]);
    story.push(failed(
        70,
        of("ADD", 0),
        "failed to add IP addr to \"eth0\": file exists",
    ));
    let found = at_end(&story, 71).unwrap();
    assert_eq!(found.addresses, [ip(5)]);
    assert!(said(
        &claims(&found),
        "host-local, which bridge called, gave 10.0.0.5"
    ));
    assert!(
        found.title.ends_with("10.0.0.5 is held by a deleted pod"),
        "{}",
        found.title
    );
}

#[test]
fn a_static_address_that_is_reserved_is_told_with_its_reservation() {
    let refused = "failed to allocate for range 0: requested IP address 10.0.0.5 is not available \
                   in range set 10.0.0.2-10.0.0.254";
    let mut node = Node::of(&tried(10, 0, refused));
    let (first, _) = node.only(11, FAILED, State::Open);
    assert_eq!(first.addresses, [ip(5)]);
    assert!(said(&first.unknown, "who has reserved 10.0.0.5"));
    assert!(node.0.watched().addresses.contains(&ip(5)), "it is asked");
    node.tell(reserved(12, Some("0123456789abcdef")));
    let (told, _) = node.only(13, FAILED, State::Updated);
    let title = "10.0.0.5 is reserved for 0123456789abc";
    assert!(told.title.ends_with(title), "{}", told.title);
    assert!(said(&told.advice, "node-tracer repair --plan"), "{told:#?}");
    assert!(said(&told.unknown, "it can be on another node"));
    // It is the sandbox's own.
    node.tell(reserved(14, Some("sandbox-0")));
    let (own, _) = node.only(15, FAILED, State::Updated);
    assert!(said(
        &own.advice,
        "is reserved for this sandbox by an ADD before"
    ));
}

#[test]
fn a_full_range_points_to_what_is_leaked() {
    let mut story = tried(100, 0, FULL).to_vec();
    let bare = at_end(&story, 101).unwrap();
    assert_eq!(bare.detail.cause.as_deref(), Some("range-exhausted"));
    assert!(
        bare.title.ends_with("no IP is left in 10.0.0.2-10.0.0.6"),
        "{}",
        bare.title
    );
    assert!(said(
        &bare.unknown,
        "how many of the range's IPs are leaked"
    ));
    story.extend([
        cri(100, &[]),
        stored(100, &[(2, "dead-1", 0), (3, "dead-2", 0)]),
    ]);
    let found = at_end(&story, 101).unwrap();
    let claim = "2 reservations in /var/lib/cni/networks/pods: of no container";
    assert!(said(&claims(&found), claim), "{found:#?}");
    assert!(!said(&found.unknown, "leaked"));
}

#[test]
fn a_plugin_that_was_killed_or_said_nothing_is_told_as_such() {
    let mut story = tried(10, 0, "boom");
    if let What::CniCall {
        exit_code,
        signal,
        error,
        duration_ms,
        ..
    } = &mut story[2].what
    {
        (*exit_code, *signal, *error, *duration_ms) = (None, Some(9), None, 120_000.0);
    }
    let found = at_end(&story, 20).unwrap();
    assert_eq!(found.detail.cause.as_deref(), Some("cni-timeout"));
    assert!(
        found
            .title
            .ends_with("bridge was ended by SIGKILL after 120.0 s")
    );
    assert!(said(&found.unknown, "who sent the signal"));
    if let What::CniCall {
        exit_code, signal, ..
    } = &mut story[2].what
    {
        (*exit_code, *signal) = (Some(1), None);
    }
    let found = at_end(&story, 20).unwrap();
    assert_eq!(found.detail.cause.as_deref(), Some("cni-plugin-error"));
    assert!(said(&found.unknown, "the message of"));
}

#[test]
fn what_a_plugin_that_says_nothing_had_called_says_it() {
    let ipam = CniCall {
        plugin: "host-local".into(),
        delegated: true,
        pid: 78,
        ..of("ADD", 0)
    };
    let mut story = tried(10, 0, "boom").to_vec();
    story.insert(2, failed(10, ipam, FULL));
    let found = at_end(&story, 20).unwrap();
    assert_eq!(found.detail.cause.as_deref(), Some("range-exhausted"));
}

#[test]
fn addresses_are_found_in_every_writing() {
    let first = |text: &str| super::addresses_in(text).next().map(|a| a.to_string());
    for (text, address) in [
        ("Address:{IP:10.0.4.61 Mask:ffffff00}", Some("10.0.4.61")),
        ("10.1.0.5/24 has been allocated", Some("10.1.0.5")),
        ("the address is 10.0.0.9.", Some("10.0.0.9")),
        ("{IP:fd00::5 Mask:ffff}", Some("fd00::5")),
        ("route Dst: fd00:1::5/128, Scope", Some("fd00:1::5")),
        ("dead beef 127.0.0.1 version 1.2.3", None),
    ] {
        assert_eq!(first(text).as_deref(), address, "{text}");
    }
}

#[test]
fn foreign_words_do_not_break_the_title() {
    let msg = format!("a\nb\u{1b}[31m {}", "x".repeat(5_000));
    let found = at_end(&tried(10, 0, &msg), 20).unwrap();
    assert!(!found.title.contains('\n') && found.title.chars().count() < 250);
}

#[test]
fn a_daemon_that_starts_with_its_node_is_given_time() {
    const GONE: &str = "dial unix /run/x/cni.sock: connect: no such file or directory";
    let tries = |seconds: &[i64]| -> Vec<Event> {
        let tries = seconds.iter().enumerate();
        tries
            .flat_map(|(i, at)| tried(*at, i as i64, GONE))
            .collect()
    };
    let early = at_end(&tries(&[10, 30, 50, 70]), 71).unwrap();
    assert_eq!(early.detail.cause.as_deref(), Some("cni-not-ready"));
    assert_eq!(early.severity, Severity::Warning);
    let late = at_end(&tries(&[10, 30, 50, 310]), 311).unwrap();
    assert_eq!(late.severity, Severity::Critical);
}

/// Pod `i` of a namespace gets no network, and is gone at once.
fn short_lived(seconds: i64, i: i64, namespace: &str) -> Vec<Event> {
    let uid = format!("{i:08}-0000-4000-8000-000000000000");
    let name = format!("{namespace}-{i}");
    let of = |command| {
        let mut call = call(
            command,
            &format!("sandbox-{i}"),
            300 + i as u32,
            &uid,
            &name,
        );
        if let Some(pod) = &mut call.pod {
            pod.namespace = Some(namespace.to_owned());
        }
        call
    };
    let listed_pod = Pod {
        namespace: namespace.to_owned(),
        ..pod(&name, &uid, &[])
    };
    vec![
        at(
            seconds,
            What::PodChanged {
                pod: Box::new(listed_pod),
            },
        ),
        calls(seconds, of("ADD")),
        failed(seconds, of("ADD"), "boom"),
    ]
}

#[test]
fn pods_that_fail_in_a_crowd_are_one_finding_and_others_keep_theirs() {
    let mut node = Node::of(&[host(0), listed(0, &[])]);
    for i in 0..100 {
        node.tell_all(&short_lived(10, i, "flood"));
    }
    node.tell_all(&short_lived(11, 200, "shop"));
    let told: Vec<Finding> = node
        .tick(12)
        .into_iter()
        .map(|(finding, _)| finding)
        .collect();
    let of = |rule: Rule, part: &str| {
        let all = told.iter().filter(|finding| finding.rule == rule);
        all.filter(|finding| finding.title.contains(part)).count()
    };
    assert_eq!(of(FAILED, "flood/flood-"), 16);
    assert_eq!(of(FAILED, "84 more pods of flood get no network"), 1);
    assert_eq!(of(FAILED, "shop/shop-200"), 1);
    assert_eq!(of(Rule::SandboxCreateFailed, "flood/flood-"), 16);
}

#[test]
fn pods_that_fail_and_go_without_end_are_told_a_few_times() {
    let mut node = Node::of(&[host(0), listed(0, &[])]);
    let mut told = 0;
    for i in 0..600 {
        let seconds = 10 + i / 5;
        let events = short_lived(seconds, i, "flood");
        let gone = match &events[0].what {
            What::PodChanged { pod } => crate::model::pods::reference(pod),
            other => panic!("{other:?}"),
        };
        node.tell_all(&events);
        told += node.tick(seconds).len();
        node.tell(at(seconds, What::PodDeleted { pod: gone }));
        told += node.tick(seconds).len();
    }
    assert!(told < 120, "{told} changes of findings in two minutes");
}
