//! The incident told whole, and what reservations make of it.

use super::*;
use event::{CniCall, clock::Timestamp};

#[test]
fn the_whole_story_is_told_in_order_and_each_phase_once() {
    let mut node = Node::of(&ghost_story());
    let (first, _) = node.only(67, GHOST, State::Open);
    assert_eq!(
        (phase(&first), first.severity),
        (Phase::Suspected, Severity::Warning)
    );
    assert_eq!((first.since, first.addresses.clone()), (s(60), vec![ip(5)]));
    assert_eq!(first.sandbox_id.as_deref(), Some("sandbox-old"));
    assert_eq!(first.pod.as_ref().unwrap().label(), "shop/checkout-x8k2p");
    assert!(matches!(
        &first.holders[0],
        Holder::Task {
            pid: 9,
            state: Some('D'),
            ..
        }
    ));
    assert!(first.unknown.is_empty());
    assert!(
        first
            .advice
            .iter()
            .any(|advice| advice.contains("leave the reservation"))
    );

    node.tell(reserved(90, None));
    let (armed, _) = node.only(91, GHOST, State::Updated);
    assert_eq!(
        (phase(&armed), armed.severity),
        (Phase::Armed, Severity::Critical)
    );
    assert_eq!(armed.detail.due, Some(s(90)));
    assert!(
        armed.advice[0].contains("kubectl cordon node-1"),
        "{:?}",
        armed.advice
    );

    node.tell_all(&successor(92));
    let told = node.tick(92);
    let rules: Vec<Rule> = told.iter().map(|(finding, _)| finding.rule).collect();
    assert_eq!(rules, [Rule::DuplicateAddress, GHOST], "worst first");
    let conflict = &told[1].0;
    assert_eq!(phase(conflict), Phase::Conflict);
    assert!(
        conflict.title == "10.0.0.5 is used by a deleted pod and another pod",
        "{}",
        conflict.title
    );

    node.tell(unstuck(100, 9));
    node.tell(removed(101, 100, 5));
    let told = node.tick(101);
    assert!(
        told.iter().all(|(_, state)| *state == State::Resolved),
        "{told:#?}"
    );
    let over = told
        .iter()
        .find(|(finding, _)| finding.rule == GHOST)
        .unwrap();
    assert_eq!(over.0.id, first.id);
}

#[test]
fn when_the_other_namespace_goes_the_ghost_is_armed_again() {
    let mut node = Node::of(&ghost_story());
    node.tell_all(&successor(64));
    assert_eq!(phase(&node.only(67, GHOST, State::Open).0), Phase::Conflict);
    node.tell(dying(70, 200));
    node.tell(reserved(70, None));
    assert_eq!(phase(&node.only(71, GHOST, State::Updated).0), Phase::Armed);
}

#[test]
fn a_reservation_for_nobody_known_is_not_another_containers() {
    let mut story = without(|what| {
        matches!(
            what,
            What::CniStarted { .. } | What::CniCall { .. } | What::Reservation { .. }
        )
    });
    story.push(reserved(64, Some("who-knows")));
    let finding = ghost(&story, 67).unwrap();
    assert_eq!(phase(&finding), Phase::Suspected);
    assert!(
        finding
            .unknown
            .iter()
            .any(|unknown| unknown.contains("who-knows"))
    );
    story.push(created(65, 200));
    story.push(holders(
        65,
        200,
        &[pod_task(20, "pause", NEW, "who-knows")],
        &[],
    ));
    assert_eq!(
        phase(&ghost(&story, 67).unwrap()),
        Phase::Armed,
        "another sandbox's"
    );
}

#[test]
fn stores_that_say_nothing_leave_it_unknown_whether_the_address_is_free() {
    let story = without(|what| matches!(what, What::Reservation { .. }));
    let early = ghost(&story, 61).unwrap();
    assert_eq!(
        phase(&early),
        Phase::Suspected,
        "there was no time to answer"
    );
    let late = ghost(&story, 67).unwrap();
    assert_eq!(
        (phase(&late), late.detail.due),
        (Phase::Suspected, None),
        "what is not known is not free"
    );
    assert!(
        late.unknown
            .iter()
            .any(|unknown| unknown.contains("which IPAM"))
    );
    let silence = What::Reservation {
        address: ip(5),
        stores: vec![],
        holder: None,
    };
    let mut story = ghost_story();
    story.push(at(64, silence.clone()));
    let finding = ghost(&story, 67).unwrap();
    assert_eq!(phase(&finding), Phase::Suspected, "the last word stays");
    assert!(
        finding
            .unknown
            .iter()
            .any(|unknown| unknown.contains("no store answers"))
    );
}

#[test]
fn a_reservation_for_another_container_arms_it() {
    let mut story = ghost_story();
    story.push(reserved(64, Some("who-knows")));
    let untold = ghost(&story, 67).unwrap();
    assert_eq!(phase(&untold), Phase::Suspected, "nobody says whose");
    let doubts = |unknown: &String| unknown.starts_with("whose sandbox \"who-knows\" is");
    assert!(untold.unknown.iter().any(doubts), "{:?}", untold.unknown);
    let with = |sandboxes: &[RuntimeSandbox]| [&story[..], &[cri(65, sandboxes)]].concat();
    let finding = ghost(&with(&[]), 67).unwrap();
    assert_eq!(phase(&finding), Phase::Armed, "it was its own before");
    let mut old = with(&[]);
    old.retain(|event| event.time == s(64) || !matches!(event.what, What::Reservation { .. }));
    let finding = ghost(&old, 67).unwrap();
    assert_eq!(phase(&finding), Phase::Suspected, "of one long forgotten");
    assert!(finding.unknown.iter().any(doubts), "{:?}", finding.unknown);
    let of = |uid| RuntimeSandbox {
        netns: None,
        ..sandbox("who-knows", 200, uid)
    };
    let given = ghost(&with(&[of(OTHER)]), 67).unwrap();
    assert_eq!(phase(&given), Phase::Armed);
    let own = ghost(&with(&[of(OLD)]), 67).unwrap();
    assert_eq!(
        phase(&own),
        Phase::Suspected,
        "of the same pod, which is gone"
    );
}

#[test]
fn while_the_pod_is_in_the_api_silence_arms_nothing() {
    let mut story = without(|what| matches!(what, What::Reservation { .. }));
    let terminating = pod("checkout-x8k2p", OLD, &[ip(5)]);
    let terminating = Pod {
        deletion: Some(s(400)),
        ..terminating
    };
    story.push(listed(64, &[terminating]));
    let finding = ghost(&story, 500).unwrap();
    assert_eq!(
        (phase(&finding), finding.detail.due),
        (Phase::Suspected, None)
    );
}

/// Nothing is stuck in the old sandbox, and the new pod has its address.
fn taken() -> Vec<Event> {
    let mut story = without(|what| matches!(what, What::TaskBlocked { .. }));
    story.extend(successor(64));
    story
}

#[test]
fn what_another_has_already_is_a_ghosts_at_once() {
    let finding = ghost(&taken(), 65).unwrap();
    assert_eq!((phase(&finding), finding.since), (Phase::Conflict, s(60)));
    let mut story = taken();
    story.push(listed(
        64,
        &[
            pod("other", OTHER, &[]),
            pod("checkout-x8k2p", OLD, &[ip(5)]),
        ],
    ));
    assert!(ghost(&story, 500).is_none(), "its pod lives");
}

#[test]
fn a_running_del_of_either_side_is_given_a_moment() {
    for (container, inode, uid) in [("sandbox-old", 100, OLD), ("sandbox-new", 200, NEW)] {
        let mut story = taken();
        story.push(calls(65, call("DEL", container, inode, uid, "a")));
        assert!(ghost(&story, 74).is_none(), "{container}");
        assert_eq!(phase(&ghost(&story, 75).unwrap()), Phase::Conflict);
    }
}

#[test]
fn the_hosts_own_address_hastens_nothing() {
    let mut story = without(|what| matches!(what, What::TaskBlocked { .. }));
    story.push(added(64, 1, 5));
    assert!(ghost(&story, 89).is_none());
    assert!(ghost(&story, 90).is_some());
}

#[test]
fn a_conflict_outlives_the_task_that_was_stuck() {
    let mut node = Node::of(&ghost_story());
    node.tell_all(&successor(64));
    node.only(65, GHOST, State::Open);
    node.tell(unstuck(70, 9));
    node.tell(holders(70, 100, &[], &[MOUNT]));
    let (still, _) = node.only(71, GHOST, State::Updated);
    assert_eq!(phase(&still), Phase::Conflict);
    assert_eq!(still.holders, [Holder::Mount { path: MOUNT.into() }]);
}

#[test]
fn an_address_that_is_reserved_for_another_is_not_called_free() {
    const LONG: &str = "0123456789abcdef0123456789abcdef";
    let mut story = ghost_story();
    story.extend([cri(63, &[]), reserved(64, Some(LONG))]);
    let finding = ghost(&story, 67).unwrap();
    assert_eq!(phase(&finding), Phase::Armed);
    let end = " and reserved for 0123456789abc";
    assert!(finding.title.ends_with(end), "{}", finding.title);
    assert!(
        finding
            .evidence
            .iter()
            .all(|claim| !claim.claim.contains(LONG))
    );
    story.push(reserved(65, None));
    let finding = ghost(&story, 67).unwrap();
    assert!(finding.title.contains("free for others since"));
}

#[test]
fn a_pod_of_which_only_the_uid_is_known_is_named_by_it() {
    let is_call = |what: &What| matches!(what, What::CniStarted { .. } | What::CniCall { .. });
    let mut story = without(is_call);
    story.retain(|event| event.time != s(6));
    for event in &mut story {
        if let What::PodsListed { pods, .. } = &mut event.what {
            pods.push(of_another_namespace());
        }
    }
    let finding = ghost(&story, 67).unwrap();
    let says = |part: &str| finding.evidence.iter().any(|it| it.claim.contains(part));
    assert!(
        says(OLD) && says("not in the API"),
        "{:?}",
        finding.evidence
    );
}

/// What the ghost says of CNI DEL at 70, with when that was.
fn dels(events: &[Event]) -> Vec<(String, Timestamp)> {
    dels_after(&ghost_story(), events)
}

/// The same of another story.
fn dels_after(story: &[Event], events: &[Event]) -> Vec<(String, Timestamp)> {
    let told = ghost(&[story, events].concat(), 70).unwrap();
    let claims = told.evidence.into_iter();
    let claims = claims.filter(|it| it.source == "cni" && it.claim.contains("CNI DEL for it"));
    claims.map(|it| (it.claim, it.at)).collect()
}

/// A DEL of the old sandbox by one plugin of its chain.
fn del_by(plugin: &str, pid: u32) -> CniCall {
    CniCall {
        plugin: plugin.to_owned(),
        pid,
        ..call("DEL", "sandbox-old", 100, OLD, "checkout-x8k2p")
    }
}

#[test]
fn a_del_that_runs_is_told_whatever_the_plugin_before_it_reported() {
    let runs = "a CNI DEL for it runs since then and has not ended";
    let (portmap, bridge) = (del_by("portmap", 80), del_by("bridge", 81));
    let loopback = CniCall {
        ifname: String::from("lo"),
        ..del_by("loopback", 82)
    };
    let chain = [
        calls(63, portmap.clone()),
        ended(64, portmap.clone()),
        calls(65, bridge.clone()),
    ];
    assert_eq!(dels(&chain), [(runs.to_owned(), s(65))]);
    let again = [
        calls(63, bridge.clone()),
        failed(64, bridge.clone(), "no such device"),
        calls(65, portmap),
    ];
    let another = String::from("another CNI DEL for it failed");
    assert_eq!(dels(&again), [(runs.to_owned(), s(65)), (another, s(64))]);
    let all = [&chain[..], &[ended(66, bridge)]].concat();
    let all = dels(&all);
    assert!(all[0].0.contains("reported success"), "{all:?}");
    assert_eq!((all.len(), all[0].1), (1, s(66)));
    let lo = [calls(63, loopback.clone()), ended(64, loopback)];
    let lo = dels(&lo);
    assert!(lo[0].0.starts_with("no CNI DEL for it"), "{lo:?}");
}

#[test]
fn a_del_has_succeeded_once_each_plugin_of_the_chain_has() {
    let begun = "CNI DEL for it has begun, and not all of its plugins have reported success";
    let fails = "CNI DEL for it failed";
    let (portmap, bridge) = (del_by("portmap", 80), del_by("bridge", 81));
    let first = [calls(63, portmap.clone()), ended(64, portmap.clone())];
    assert_eq!(dels(&first), [(begun.to_owned(), s(64))]);
    let second = [
        calls(65, bridge.clone()),
        failed(66, bridge.clone(), "no such device"),
    ];
    let chain = [&first[..], &second].concat();
    assert_eq!(dels(&chain), [(fails.to_owned(), s(66))]);
    // The chain is called again, and begins with the plugin that succeeds.
    let again = [calls(67, portmap.clone()), ended(68, portmap)];
    let again = [&chain[..], &again].concat();
    assert_eq!(dels(&again), [(fails.to_owned(), s(66))]);
    let all = [&again[..], &[calls(68, bridge.clone()), ended(69, bridge)]].concat();
    let all = dels(&all);
    assert!(
        all[0].0.starts_with("CNI DEL for it reported success"),
        "{all:?}"
    );
    assert_eq!((all.len(), all[0].1), (1, s(69)));
}

#[test]
fn of_a_chain_whose_add_was_not_seen_the_last_plugin_is_not_known() {
    let is_call = |what: &What| matches!(what, What::CniStarted { .. } | What::CniCall { .. });
    let portmap = del_by("portmap", 80);
    let dels = [calls(63, portmap.clone()), ended(64, portmap)];
    let told = dels_after(&without(is_call), &dels);
    assert_eq!((told.len(), told[0].1), (1, s(64)), "{told:?}");
    assert!(told[0].0.ends_with("last plugin's is unknown"), "{told:?}");
}

#[test]
fn a_del_whose_end_was_not_seen_has_neither_failed_nor_succeeded() {
    let end = |signal: Option<i32>, error: Option<&str>| {
        let mut end = failed(64, del_by("bridge", 81), error.unwrap_or_default());
        if let What::CniCall {
            exit_code,
            signal: by,
            error: answer,
            ..
        } = &mut end.what
        {
            (*exit_code, *by) = (None, signal);
            *answer = answer.take().filter(|_| error.is_some());
        }
        let told = dels(&[calls(63, del_by("bridge", 81)), end]);
        assert_eq!((told.len(), told[0].1), (1, s(64)), "{told:?}");
        told[0].0.clone()
    };
    let unseen = "CNI DEL for it was called, and its end was not seen";
    assert_eq!(end(None, None), unseen);
    assert_eq!(end(Some(9), None), "CNI DEL for it failed");
    let logged = end(None, Some("no such device"));
    assert_eq!(
        logged, "CNI DEL for it failed",
        "a log tells no exit status"
    );
}

#[test]
fn what_a_user_has_made_hastens_nothing() {
    let told = |uid: Option<u32>, seconds| {
        let mut story = without(|what| matches!(what, What::TaskBlocked { .. }));
        let made = created(64, 200);
        story.push(match uid {
            Some(uid) => of_user(made, uid),
            None => made,
        });
        story.push(added(64, 200, 5));
        for inode in [100, 200] {
            story.push(devices(64, inode, &[veth(3, "eth0", 8)], &[], &[]));
        }
        story.push(devices(64, 1, &[veth(8, "veth1", 3)], &[], &[]));
        ghost(&story, seconds).is_some()
    };
    assert!(told(None, 65));
    assert!(!told(Some(1_000), 89));
    assert!(told(Some(1_000), 90));
}
