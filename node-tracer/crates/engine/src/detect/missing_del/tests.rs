//! Sandboxes that end with and without their DEL.

use std::path::PathBuf;

use crate::testing::Node;
use event::{
    CniCall, Event, What,
    finding::{Finding, Rule, Severity, State},
    testing::*,
};

const MISSING: Rule = Rule::MissingDel;
const ID: &str = "sandbox-old";

fn add(id: &str) -> CniCall {
    call("ADD", id, 100, OLD, "checkout-x8k2p")
}

fn del(id: &str) -> CniCall {
    call("DEL", id, 100, OLD, "checkout-x8k2p")
}

/// The sandbox is set up with 10.0.0.5.
fn set_up() -> Vec<Event> {
    vec![
        host(0),
        cri(0, &[]),
        created(1, 100),
        calls(2, add(ID)),
        added(3, 100, 5),
        answered(4, add(ID), 5),
    ]
}

/// And its namespace goes.
fn gone() -> Vec<Event> {
    let mut story = set_up();
    story.extend([dying(100, 100), destroyed(100, 100)]);
    story
}

fn at_end(story: &[Event], seconds: i64) -> Option<Finding> {
    let told = Node::of(story).of_rule(seconds, MISSING);
    assert!(told.len() <= 1, "{told:#?}");
    told.into_iter().next().map(|(finding, _)| finding)
}

fn said(lines: &[String], part: &str) -> bool {
    lines.iter().any(|line| line.contains(part))
}

#[test]
fn a_namespace_that_goes_without_del_leaves_its_reservation() {
    let mut node = Node::of(&gone());
    assert_eq!(node.of_rule(159, MISSING), [], "it may come late");
    assert!(node.0.watched().addresses.contains(&ip(5)), "it is asked");
    node.tell(reserved(159, Some(ID)));
    let (found, _) = node.only(160, MISSING, State::Open);
    assert_eq!((found.severity, found.since), (Severity::Warning, s(100)));
    assert_eq!(found.sandbox_id.as_deref(), Some(ID));
    assert_eq!(found.pod.as_ref().unwrap().label(), "shop/checkout-x8k2p");
    assert_eq!(found.addresses, [ip(5)]);
    assert_eq!(found.detail.reservations[0].container_id, ID);
    let title = "10.0.0.5 stays reserved: no CNI DEL";
    assert!(found.title.starts_with(title), "{}", found.title);
    assert!(said(&found.advice, "node-tracer repair --plan"));
    let no_more = "CRI: no such sandbox";
    assert!(found.evidence.iter().any(|e| e.claim.contains(no_more)));
    // The runtime comes back, and frees it after all.
    node.tell(calls(200, del(ID)));
    node.only(201, MISSING, State::Resolved);
    assert!(!node.0.watched().addresses.contains(&ip(5)));
}

#[test]
fn what_has_been_given_back_all_the_same_is_no_finding() {
    let mut node = Node::of(&gone());
    node.tell_all(&[reserved(110, Some(ID)), reserved(120, None)]);
    assert_eq!(node.of_rule(500, MISSING), []);
    let mut node = Node::of(&gone());
    node.tell_all(&[reserved(110, Some(ID)), reserved(120, Some("other"))]);
    assert_eq!(node.of_rule(500, MISSING), []);
}

#[test]
fn without_a_store_that_would_know_it_is_only_worth_knowing() {
    let found = at_end(&gone(), 500).unwrap();
    assert_eq!(found.severity, Severity::Info);
    assert!(said(&found.unknown, "no store that was read"));
    // A store that never had the address may be another network's.
    let mut story = gone();
    story.push(reserved(110, None));
    assert_eq!(at_end(&story, 500).unwrap().severity, Severity::Info);
    // Unless it is that network's.
    let ipam = CniCall {
        plugin: "host-local".into(),
        delegated: true,
        ..add(ID)
    };
    story.insert(3, ended(3, ipam));
    assert!(at_end(&story, 500).is_none());
}

#[test]
fn what_a_store_said_before_it_fell_silent_may_have_changed() {
    let silence = What::Reservation {
        address: ip(5),
        stores: vec![],
        holder: None,
    };
    let mut story = gone();
    story.insert(5, stored(5, &[(5, ID, 4)]));
    story.push(reserved(110, Some(ID)));
    assert_eq!(at_end(&story, 200).unwrap().severity, Severity::Warning);
    story.push(at(120, silence));
    assert_eq!(at_end(&story, 200).unwrap().severity, Severity::Info);
    story.push(stored(130, &[(5, ID, 4)]));
    assert_eq!(at_end(&story, 200).unwrap().severity, Severity::Warning);
}

#[test]
fn an_ordinary_removal_is_none_nor_are_two_hundred() {
    let mut story = vec![host(0)];
    for i in 0..200_u32 {
        let (inode, at) = (100 + i, i64::from(i));
        let id = format!("sandbox-{i}");
        let uid = format!("0a1b2c3d-0000-4000-8000-{i:012}");
        let of = |command: &str| call(command, &id, inode, &uid, &format!("pod-{i}"));
        let second = CniCall {
            netns_path: String::new(),
            netns: None,
            pid: 78,
            ..of("DEL")
        };
        story.extend([
            created(at, inode),
            calls(at, of("ADD")),
            answered(at + 1, of("ADD"), 5),
            calls(at + 30, of("DEL")),
            ended(at + 30, of("DEL")),
            dying(at + 31, inode),
            destroyed(at + 31, inode),
            calls(at + 32, second.clone()),
            ended(at + 32, second),
        ]);
    }
    let mut node = Node::of(&story);
    assert_eq!(node.tick(1_000), []);
}

#[test]
fn a_del_that_runs_or_has_failed_is_none_that_is_missing() {
    let mut story = set_up();
    story.extend([calls(99, del(ID)), dying(100, 100)]);
    assert!(at_end(&story, 500).is_none());
    story.push(failed(101, del(ID), "no"));
    assert!(at_end(&story, 500).is_none());
}

#[test]
fn containers_of_others_than_kubernetes_and_the_loopback_are_none() {
    let bent = |bend: fn(&mut CniCall)| {
        let mut story = gone();
        for event in &mut story {
            if let What::CniStarted { call } | What::CniCall { call, .. } = &mut event.what {
                bend(call);
            }
        }
        at_end(&story, 500)
    };
    assert!(bent(|_| {}).is_some());
    assert!(bent(|call| call.pod = None).is_none());
    assert!(bent(|call| call.ifname = "lo".into()).is_none());
    assert!(bent(|call| call.trusted = false).is_none());
}

#[test]
fn an_add_that_failed_has_nothing_to_give_back_unless_a_store_says_so() {
    let mut story = set_up();
    story.pop();
    story.extend([failed(4, add(ID), "no"), dying(100, 100)]);
    assert!(at_end(&story, 500).is_none());
    story.push(reserved(110, Some(ID)));
    let found = at_end(&story, 500).unwrap();
    assert_eq!(found.severity, Severity::Warning);
    assert!(found.evidence[0].claim.ends_with("failed"), "{found:#?}");
}

#[test]
fn a_ghost_is_not_told_twice() {
    let mut story = ghost_story();
    story.push(reserved(70, Some(ID)));
    assert!(at_end(&story, 500).is_none());
    let told = Node::of(&story).of_rule(500, Rule::GhostSandbox);
    assert_eq!(told.len(), 1);
}

#[test]
fn a_namespace_without_pod_and_without_address_is_told_where_no_ghost_is() {
    let mut story = ghost_story();
    story.extend([removed(63, 100, 5), devices(64, 100, &[], &[], &[])]);
    story.push(cri(65, &[]));
    let last = ended(4, add(ID));
    story.push(answered(4, add(ID), 5));
    assert_ne!(story.last(), Some(&last));
    let found = at_end(&story, 500).unwrap();
    assert_eq!((found.severity, found.since), (Severity::Warning, s(60)));
    let lives = "lives and has no IP";
    assert!(found.evidence.iter().any(|e| e.claim.contains(lives)));
    assert!(Node::of(&story).of_rule(500, Rule::GhostSandbox).is_empty());
}

#[test]
fn where_the_namespace_was_never_known_the_pods_end_counts() {
    let unseen = |mut call: CniCall| {
        call.netns = None;
        call
    };
    let mut story = vec![
        cri(0, &[]),
        calls(2, unseen(add(ID))),
        answered(4, unseen(add(ID)), 5),
        listed(6, &[pod("checkout-x8k2p", OLD, &[ip(5)])]),
        reserved(7, Some(ID)),
    ];
    assert!(at_end(&story, 500).is_none(), "the pod is there");
    story.push(listed(60, &[]));
    assert!(at_end(&story, 119).is_none());
    let found = at_end(&story, 120).unwrap();
    assert_eq!((found.severity, found.since), (Severity::Warning, s(60)));
    story.push(calls(70, unseen(del(ID))));
    assert!(at_end(&story, 500).is_none());
}

#[test]
fn while_the_runtime_lists_it_del_can_still_come() {
    let mut story = gone();
    story.push(reserved(110, Some(ID)));
    story.push(cri(120, &[sandbox(ID, 100, OLD)]));
    let found = at_end(&story, 300).unwrap();
    assert_eq!(found.severity, Severity::Info);
    assert!(said(&found.unknown, "whether DEL will still run"));
    assert!(said(&found.advice, "crictl stopp sandbox-old"));
    assert!(!said(&found.advice, "repair"), "{found:#?}");
    assert_eq!(at_end(&story, 800).unwrap().severity, Severity::Warning);
    story.push(cri(130, &[]));
    let found = at_end(&story, 300).unwrap();
    assert_eq!(found.severity, Severity::Warning);
    assert!(!said(&found.unknown, "runtime"), "{found:#?}");
}

#[test]
fn lost_records_may_have_told_of_it() {
    let mut story = gone();
    let lost = What::EventsLost {
        cause: "ring-full".into(),
        count: 3,
    };
    story.push(at(105, lost));
    assert!(said(&at_end(&story, 500).unwrap().unknown, "were lost"));
}

/// What a look finds: libcni's cache, the store that has these, and a runtime
/// that has no sandbox.
fn look(cached: &[(&str, Option<u32>, u8)], reservations: &[(u8, &str, i64)]) -> Vec<Event> {
    let cached: Vec<_> = cached
        .iter()
        .map(|(id, inode, last)| attachment(id, *inode, *last, 0))
        .collect();
    vec![
        host(500),
        networks(500, &[network("bridge", &[range(2, 254)])]),
        attached(500, &cached),
        stored(500, reservations),
        cri(500, &[]),
    ]
}

/// The same while the runtime has not answered.
fn look_before_the_runtime() -> Vec<Event> {
    let mut story = look(&[(ID, None, 5)], &[(5, ID, 0)]);
    story.pop();
    story
}

#[test]
fn what_libcni_still_has_and_nobody_holds_is_told_by_one_look() {
    let found = at_end(&look(&[(ID, None, 5)], &[(5, ID, 0)]), 501).unwrap();
    assert_eq!(found.severity, Severity::Warning);
    assert!(
        found.detail.first_seen && found.since > s(5),
        "not when it was made"
    );
    assert_eq!(found.sandbox_id.as_deref(), Some(ID));
    assert!(said(&found.unknown, "already gone at the first look"));
    assert_eq!(
        found.detail.reservations[0].path,
        PathBuf::from("/var/lib/cni/networks/pods/10.0.0.5")
    );
    assert!(found.evidence.iter().any(|e| e.source == "libcni"));
    // The store of that network has it no more.
    let given_back = look(&[(ID, None, 5)], &[(6, "other", 0)]);
    assert!(at_end(&given_back, 501).is_none());
}

#[test]
fn what_lives_is_not_told_although_its_path_leads_nowhere() {
    let dead = look(&[(ID, None, 5)], &[(5, ID, 0)]);
    let and = |more: &[Event]| at_end(&[&dead[..], more].concat(), 501);
    assert!(and(&[]).is_some());
    assert!(and(&[found(500, 100), added(500, 100, 5)]).is_none());
    let pause = [pod_task(7, "pause", OLD, ID)];
    assert!(and(&[found(500, 100), holders(500, 100, &pause, &[])]).is_none());
    assert!(and(&[containers(500, "shim", &[ID])]).is_none());
    assert!(and(&[cri(500, &[sandbox(ID, 100, OLD)])]).is_none());
    let over = event::RuntimeSandbox {
        ready: Some(false),
        netns: None,
        ..sandbox(ID, 100, OLD)
    };
    let not_ready = [&dead[..], &[cri(500, &[over])]].concat();
    assert!(at_end(&not_ready, 559).is_none(), "DEL follows");
    let listed = at_end(&not_ready, 560).unwrap();
    assert_eq!(listed.severity, Severity::Info, "it is NotReady");
    assert!(and(&[calls(500, del(ID))]).is_none());
    assert!(at_end(&look(&[(ID, Some(100), 5)], &[(5, ID, 0)]), 501).is_none());
}

#[test]
fn an_attachment_from_before_the_tracer_is_followed_to_its_end() {
    let mut story = look(&[(ID, Some(100), 5)], &[(5, ID, 0)]);
    story.extend([found(500, 100), added(500, 100, 5)]);
    story.push(dying(600, 100));
    assert!(at_end(&story, 659).is_none());
    let found = at_end(&story, 660).unwrap();
    assert_eq!((found.severity, found.since), (Severity::Warning, s(600)));
    assert_eq!(found.netns.unwrap().id.inode, 100);
    story.push(ended(661, del(ID)));
    assert!(at_end(&story, 900).is_none());
}

#[test]
fn many_of_one_network_are_told_together() {
    let ids: Vec<String> = (2..12).map(|last| format!("sandbox-{last}")).collect();
    let cached: Vec<_> = ids.iter().zip(2_u8..).collect();
    let cached: Vec<_> = cached
        .iter()
        .map(|(id, n)| (id.as_str(), None, *n))
        .collect();
    let kept: Vec<_> = cached.iter().map(|(id, _, n)| (*n, *id, 0)).collect();
    let found = at_end(&look(&cached, &kept), 501).unwrap();
    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(
        (found.addresses.len(), found.detail.reservations.len()),
        (10, 10)
    );
    assert!(found.title.starts_with("pods: 10 sandboxes are gone"));
    let commands = found
        .advice
        .iter()
        .filter(|line| line.starts_with("node-tracer repair"));
    assert_eq!(commands.count(), 2);
}

#[test]
fn after_a_restart_of_the_node_old_attachments_wait_for_the_runtime() {
    let mut node = Node::of(&look_before_the_runtime());
    assert_eq!(node.of_rule(501, MISSING), [], "it may answer in a moment");
    assert_eq!(node.of_rule(559, MISSING), []);
    let (found, _) = node.only(560, MISSING, State::Open);
    assert_eq!(found.severity, Severity::Info);
    assert!(said(&found.unknown, "CRI was not asked"), "{found:#?}");
    node.tell(cri(570, &[]));
    let (found, _) = node.only(571, MISSING, State::Updated);
    assert_eq!(found.severity, Severity::Warning);
    // What it has said stays true while it does not answer.
    node.tell(cri_fails(580));
    let told = node.of_rule(581, MISSING);
    let worst = told.iter().map(|(finding, _)| finding.severity).max();
    assert_ne!(worst, Some(Severity::Info), "{told:#?}");
    // One that does not answer is no better than one that was not asked.
    let mut silent = look_before_the_runtime();
    silent.push(cri_fails(501));
    assert!(at_end(&silent, 559).is_none());
    assert_eq!(at_end(&silent, 560).unwrap().severity, Severity::Info);
    // A list from before the ADD cannot have it.
    let mut early = vec![cri(-10, &[])];
    early.extend(look_before_the_runtime());
    assert!(at_end(&early, 559).is_none());
}

#[test]
fn the_runtimes_word_that_it_has_none_needs_no_grace_and_does_not_flap() {
    let mut node = Node::of(&look(&[(ID, None, 5)], &[(5, ID, 0)]));
    node.only(501, MISSING, State::Open);
    node.tell(cri_fails(502));
    let told = node.of_rule(503, MISSING);
    let over = told.iter().any(|(_, state)| *state == State::Resolved);
    assert!(!over, "{told:#?}");
}

#[test]
fn a_namespace_that_was_mistaken_for_dying_is_not_gone() {
    let mut story = set_up();
    story.extend([dying(100, 100), reserved(101, Some(ID))]);
    assert!(at_end(&story, 500).is_some());
    story.push(holders(110, 100, &[task(7, "app")], &[MOUNT]));
    assert!(at_end(&story, 500).is_none());
    // Another one of its number is no sign of life.
    let mut story = gone();
    let other = event::Netns {
        cookie: Some(7),
        ..ns(100)
    };
    let what = What::NetnsCreated {
        netns: other,
        task: None,
        user_ns: None,
    };
    story.extend([at(110, what), reserved(111, Some(ID))]);
    assert!(at_end(&story, 500).is_some());
}

#[test]
fn a_store_that_was_listed_before_the_add_does_not_know_of_it() {
    let bridge = [network("bridge", &[range(2, 254)])];
    let mut story = vec![networks(0, &bridge), stored(0, &[])];
    let named = |mut call: CniCall| {
        call.network = Some("pods".into());
        call
    };
    story.extend(gone());
    story.insert(4, calls(2, named(add(ID))));
    assert_eq!(at_end(&story, 500).unwrap().severity, Severity::Info);
    story.push(stored(110, &[]));
    assert!(at_end(&story, 500).is_none());
}

#[test]
fn so_many_addresses_are_asked_for_and_each_has_its_turn() {
    let mut story = vec![host(0)];
    for i in 0..200_u8 {
        let inode = 100 + u32::from(i);
        let id = format!("sandbox-{i}");
        let add = call("ADD", &id, inode, OLD, "checkout-x8k2p");
        story.extend([
            created(1, inode),
            calls(2, add.clone()),
            answered(4, add, i),
            dying(100 + i64::from(i), inode),
        ]);
    }
    let mut node = Node::of(&story);
    let mut asked = std::collections::BTreeSet::new();
    for seconds in 400..404 {
        node.tick(seconds);
        let now = node.0.watched().addresses.clone();
        assert!(now.len() <= 64, "{}", now.len());
        assert!(asked.len() >= 200 || now.iter().any(|each| !asked.contains(each)));
        for address in &now {
            let what = What::Reservation {
                address: *address,
                stores: vec![PathBuf::from(STORE)],
                holder: None,
            };
            node.tell(at(seconds, what));
        }
        asked.extend(now);
    }
    assert_eq!(asked.len(), 200);
    node.tick(410);
    assert!(node.0.watched().addresses.contains(&ip(199)), "the latest");
    assert!(!node.0.watched().addresses.contains(&ip(0)));
}

#[test]
fn those_that_are_told_together_are_not_asked_for_one_by_one() {
    let watched = |number: u8| {
        let ids: Vec<String> = (2..2 + number).map(|n| format!("sandbox-{n}")).collect();
        let cached: Vec<_> = ids.iter().zip(2_u8..).collect();
        let cached: Vec<_> = cached
            .iter()
            .map(|(id, n)| (id.as_str(), None, *n))
            .collect();
        let mut node = Node::of(&look(&cached, &[]));
        node.tick(501);
        node.0.watched().addresses.len()
    };
    assert_eq!((watched(4), watched(5)), (4, 0));
}

/// libcni remembers ADDs of an earlier CNI, and the store of that has them; the
/// node's network is `configured`.
fn migrated(configured: &str, ids: &[&str]) -> Vec<Event> {
    let mut network = network(configured, &[]);
    network.name = String::from("new");
    network.store = Some(PathBuf::from("/var/lib/cni/networks/new"));
    let places = || (5..).zip(ids);
    let cached: Vec<_> = places()
        .map(|(last, id)| attachment(id, None, last, -90))
        .collect();
    let files: Vec<_> = places().map(|(last, id)| (last, *id, -90)).collect();
    vec![
        host(0),
        networks(1, &[network]),
        cri(2, &[]),
        containers(2, "cgroup", &[]),
        attached(3, &cached),
        stored(4, &files),
    ]
}

#[test]
fn on_a_store_of_an_earlier_cni_it_agrees_with_leaked_reservation() {
    for ids in [&["a"][..], &["a", "b", "c", "d", "e", "f"]] {
        let mut node = Node::of(&migrated("bridge", ids));
        for (found, _) in node.tick(1_000) {
            if !matches!(found.rule, Rule::MissingDel | Rule::LeakedReservation) {
                continue;
            }
            assert_eq!(found.severity, Severity::Info, "{found:#?}");
            assert!(said(&found.advice, "nothing to do"), "{found:#?}");
            let claims: Vec<String> = found.evidence.into_iter().map(|it| it.claim).collect();
            assert!(said(&claims, "the store is unused"), "{claims:?}");
        }
        assert_eq!(node.0.open_count(), 2);
    }
    // A container still has an address out of it.
    let mut story = migrated("bridge", &["a", "lives"]);
    story[3] = containers(2, "cgroup", &["lives"]);
    let found = at_end(&story, 1_000).unwrap();
    assert_eq!(found.severity, Severity::Warning);
    // Multus has networks that no file names.
    let found = at_end(&migrated("multus", &["a"]), 1_000).unwrap();
    assert_eq!(found.severity, Severity::Warning);
}

#[test]
fn a_runtime_that_has_not_told_all_may_have_it_and_a_lost_record_may_be_its_del() {
    let story = |more: &[Event]| {
        let reserved = reserved(150, Some(ID));
        [&gone()[..], &[reserved], more].concat()
    };
    let severity = |more: &[Event], at| at_end(&story(more), at).map(|found| found.severity);
    let all = cri(140, &[]);
    assert_eq!(severity(&[all], 160), Some(Severity::Warning));
    for silent in [half_of_cri(140, &[]), cri_fails(140)] {
        let some = std::slice::from_ref(&silent);
        assert_eq!(severity(some, 160), Some(Severity::Info));
        assert_eq!(severity(some, 701), Some(Severity::Warning), "long enough");
    }
    let mut unasked = story(&[]);
    unasked.retain(|event| !matches!(event.what, What::SandboxesListed { .. }));
    let found = at_end(&unasked, 160).unwrap();
    assert_eq!(found.severity, Severity::Info);
    assert!(said(&found.unknown, "CRI was not asked"), "{found:#?}");
    assert_eq!(
        at_end(&unasked, 701).unwrap().severity,
        Severity::Warning,
        "long enough"
    );
    let lost = |seconds| {
        let cause = String::from("ring-full");
        at(seconds, What::EventsLost { cause, count: 1 })
    };
    assert_eq!(severity(&[lost(3)], 160), Some(Severity::Warning), "before");
    let found = at_end(&story(&[lost(90)]), 160).unwrap();
    assert_eq!(found.severity, Severity::Info);
    assert!(said(&found.unknown, "records that were lost"), "{found:#?}");
}

/// One look after the network was renamed, whose ranges are these by now; one more
/// sandbox of the old one lives.
fn renamed(ranges: &[event::Range], ids: &[&str]) -> Option<Finding> {
    let all: Vec<_> = (5..).zip(ids).collect();
    let cached: Vec<_> = all.iter().map(|(n, id)| (**id, None, *n)).collect();
    let lives = [(99, "lives", 0)];
    let kept: Vec<_> = all
        .iter()
        .map(|(n, id)| (*n, **id, 0))
        .chain(lives)
        .collect();
    let mut story = look(&cached, &kept);
    let mut network = network("bridge", ranges);
    network.name = String::from("newnet");
    network.store = Some(PathBuf::from("/var/lib/cni/networks/newnet"));
    story[1] = networks(500, &[network]);
    story.push(containers(500, "cgroup", &["lives"]));
    at_end(&story, 501)
}

#[test]
fn a_del_with_the_configuration_of_now_frees_nothing_in_the_store_of_a_renamed_network() {
    for ids in [&[ID][..], &["a", "b", "c", "d", "e", "f"]] {
        let found = renamed(&[range(2, 254)], ids).unwrap();
        assert_eq!(found.severity, Severity::Warning);
        assert!(found.title.contains("renamed"), "{}", found.title);
        assert!(!found.title.contains("no CNI DEL"), "{}", found.title);
        let claims: Vec<_> = found.evidence.into_iter().map(|it| it.claim).collect();
        assert!(said(&claims, "DEL runs with the configuration of now"));
        assert!(said(&claims, "newnet"), "{claims:#?}");
        assert!(!said(&claims, "DEL not completed"), "{claims:#?}");
        assert!(said(&found.unknown, "whether DEL ran"));
        assert!(said(&found.advice, "node-tracer repair --plan"));
        assert!(!said(&found.advice, "why DEL did not run"));
        assert!(!said(&found.advice, "journalctl"), "{:#?}", found.advice);
    }
    // Nobody gives out its addresses: the old text.
    let found = renamed(&[range(100, 254)], &[ID]).unwrap();
    assert!(found.title.contains("no CNI DEL"), "{}", found.title);
    assert!(said(&found.advice, "why DEL did not run"));
}

/// The cgroups as a scan lists them, and as it does not.
fn cgroups(partial: Option<&str>) -> Event {
    let mut event = containers(500, "cgroup", &[]);
    if let What::ContainersListed { partial: why, .. } = &mut event.what {
        *why = partial.map(str::to_owned);
    }
    event
}

#[test]
fn a_task_may_live_of_which_only_an_unread_cgroup_tells() {
    let of_scan = |more: &[Event]| {
        let mut story = look(&[(ID, None, 5)], &[(5, ID, 0)]);
        story.push(devices(500, 1, &[], &[], &[]));
        story.extend_from_slice(more);
        let mut told = Node::of_looks(&story).of_rule(501, MISSING);
        let (found, _) = told.pop().unwrap();
        (
            found.severity,
            said(&found.unknown, "whether a task of it still runs"),
        )
    };
    assert_eq!(of_scan(&[cgroups(None)]), (Severity::Warning, false));
    assert_eq!(of_scan(&[]), (Severity::Info, true), "never listed");
    assert_eq!(
        of_scan(&[cgroups(Some("too many"))]),
        (Severity::Info, true)
    );
    let failed = What::SourceFailed {
        source: "cgroup".into(),
        error: "no answer in 5 s".into(),
    };
    let failed = [cgroups(None), at(501, failed)];
    assert_eq!(of_scan(&failed), (Severity::Info, true));
    // Whose namespace was seen to go has no task.
    let mut story = gone();
    story.extend([reserved(110, Some(ID)), failed[1].clone()]);
    assert_eq!(at_end(&story, 500).unwrap().severity, Severity::Warning);
}
