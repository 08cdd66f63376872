//! The incident where no list tells of the pods, and what the runtime adds.

use super::*;
use crate::event::{Attachment, RuntimeSandbox};

fn unlisted(story: Vec<Event>) -> Vec<Event> {
    let is_list = |event: &Event| matches!(event.what, What::PodsListed { .. });
    story.into_iter().filter(|event| !is_list(event)).collect()
}

/// The story up to the conflict, without any list.
fn conflict() -> Vec<Event> {
    unlisted([ghost_story(), successor(70)].concat())
}

fn cri(seconds: i64, sandboxes: &[RuntimeSandbox]) -> Event {
    at(
        seconds,
        What::SandboxesListed {
            source: String::from("cri"),
            endpoint: String::from("/run/containerd/containerd.sock"),
            runtime: None,
            partial: None,
            sandboxes: sandboxes.to_vec(),
        },
    )
}

#[test]
fn a_stuck_pod_whose_address_is_anothers_is_a_ghost_without_any_list() {
    let told = ghost(&conflict(), 75).unwrap();
    assert_eq!(
        (phase(&told), told.severity, told.since),
        (Phase::Conflict, Severity::Warning, s(70))
    );
    assert!(!told.title.contains("deleted"), "{}", told.title);
    let doubt = |text: &String| text.contains("whether the pod still exists");
    assert!(told.unknown.iter().any(doubt), "{:?}", told.unknown);
    assert!(
        told.evidence.iter().all(|claim| claim.source != "pods"),
        "no claim is made in the name of a list: {:#?}",
        told.evidence
    );
    let listed = ghost(&[ghost_story(), successor(70)].concat(), 75).unwrap();
    assert_eq!(told.id, listed.id, "it is the same finding");
    assert_eq!(listed.severity, Severity::Critical);
}

#[test]
fn an_address_that_is_reserved_for_another_sandbox_is_enough() {
    let mut story = conflict();
    story.retain(
        |event| !matches!(&event.what, What::AddressAdded { netns, .. } if *netns == ns(200)),
    );
    let told = ghost(&story, 75).unwrap();
    assert_eq!(
        (phase(&told), told.severity),
        (Phase::Armed, Severity::Warning)
    );
}

#[test]
fn one_that_is_reserved_for_nobody_known_is_not() {
    let mut story = unlisted(ghost_story());
    story.push(reserved(70, Some("never-heard-of")));
    assert!(ghost(&story, 500).is_none());
    story.push(reserved(71, None));
    assert!(ghost(&story, 500).is_none());
}

#[test]
fn without_a_stuck_task_either_pod_may_be_the_live_one() {
    let story: Vec<Event> = conflict()
        .into_iter()
        .filter(|event| !matches!(event.what, What::TaskBlocked { .. }))
        .collect();
    assert!(ghost(&story, 75).is_none());
}

#[test]
fn a_namespace_of_the_same_pod_takes_nothing_away() {
    let mut story = conflict();
    for event in &mut story {
        let (What::CniStarted { call } | What::CniCall { call, .. }) = &mut event.what else {
            continue;
        };
        if let Some(pod) = &mut call.pod {
            pod.uid = Some(OLD.to_owned());
        }
        call.container_id = String::from("sandbox-old");
    }
    story.retain(|event| !matches!(event.what, What::Reservation { .. }));
    assert!(ghost(&story, 75).is_none());
}

#[test]
fn a_sandbox_that_the_runtime_has_removed_is_in_no_ordinary_deletion() {
    let mut story = ghost_story();
    story.retain(|event| !matches!(event.what, What::TaskBlocked { .. }));
    let mut node = Node::of(&story);
    node.tell(cri(63, &[]));
    let (told, _) = node.only(64, GHOST, State::Open);
    let removed = |claim: &crate::finding::Evidence| claim.claim.contains("no such sandbox");
    assert!(told.evidence.iter().any(removed), "{:#?}", told.evidence);

    let listed = RuntimeSandbox {
        id: String::from("sandbox-old"),
        ready: Some(false),
        ..RuntimeSandbox::default()
    };
    let mut node = Node::of(&story);
    node.tell(cri(63, &[listed]));
    assert_eq!(node.of_rule(64, GHOST), [], "it may be being stopped");
    assert!(
        node.0.gaps().iter().any(|gap| gap.contains("30 s")),
        "and that is said: {:?}",
        node.0.gaps()
    );
}

#[test]
fn libcnis_memory_ties_a_namespace_to_its_sandbox_and_tells_of_no_del() {
    let is_call = |what: &What| matches!(what, What::CniStarted { .. } | What::CniCall { .. });
    let mut story = without(is_call);
    let attachment = Attachment {
        path: "/var/lib/cni/results/pods-sandbox-old-eth0".into(),
        network: String::from("pods"),
        container_id: String::from("sandbox-old"),
        ifname: String::from("eth0"),
        netns_path: MOUNT.to_owned(),
        netns: None,
        mac: None,
        pod: Some(crate::event::PodRef {
            namespace: Some(String::from("shop")),
            name: Some(String::from("checkout-x8k2p")),
            uid: Some(OLD.to_owned()),
        }),
        ips: vec![ip(5)],
        written: s(4),
    };
    story.push(at(
        63,
        What::AttachmentsListed {
            folder: "/var/lib/cni/results".into(),
            attachments: vec![attachment],
            unread: Vec::new(),
        },
    ));
    let told = ghost(&story, 67).unwrap();
    assert_eq!(told.sandbox_id.as_deref(), Some("sandbox-old"));
    let of_libcni: Vec<_> = told
        .evidence
        .iter()
        .filter(|claim| claim.source == "libcni")
        .map(|claim| (claim.claim.as_str(), claim.at))
        .collect();
    assert_eq!(of_libcni.len(), 2, "{of_libcni:?}");
    assert!(of_libcni[1].0.contains("no CNI DEL"), "{of_libcni:?}");
}

#[test]
fn a_list_that_is_not_believed_is_as_good_as_none() {
    let mut story = conflict();
    for i in 0..4_u32 {
        let uid = format!("0a1b2c3d-0000-4000-9000-00000000000{i}");
        story.push(found(71, 300 + i));
        story.push(added(71, 300 + i, 50 + i as u8));
        let task = pod_task(70 + i, "pause", &uid, "c");
        story.push(holders(71, 300 + i, &[task], &[]));
    }
    story.push(listed(72, &[pod("checkout-q4w7z", NEW, &[ip(5)])]));
    let told = ghost(&story, 75).unwrap();
    assert_eq!(
        (phase(&told), told.severity),
        (Phase::Conflict, Severity::Warning)
    );
    let doubt = |text: &String| text.contains("not believed");
    assert!(told.unknown.iter().any(doubt), "{:?}", told.unknown);
    assert!(!told.title.contains("deleted"), "{}", told.title);
}

#[test]
fn a_task_that_has_not_slept_for_long_is_not_said_to_run() {
    let mut story = [ghost_story(), successor(70)].concat();
    story.retain(|event| !matches!(event.what, What::TaskBlocked { .. }));
    for event in &mut story {
        if let What::NetnsHolders { tasks, .. } = &mut event.what {
            tasks.iter_mut().for_each(|task| task.state = Some('D'));
        }
    }
    let told = ghost(&story, 71).unwrap();
    assert!(
        told.title.contains("in uninterruptible sleep"),
        "{}",
        told.title
    );
    let words = format!("{:?} {:?}", told.evidence, told.advice);
    assert!(!words.contains("still run"), "{words}");
    assert!(words.contains("/stack"), "{words}");
}

#[test]
fn sandboxes_that_the_runtime_has_removed_do_not_make_a_list_doubtful() {
    let mut story = vec![host(0), listed(50, &[pod("other", OTHER, &[])])];
    for i in 0..4_u32 {
        let uid = format!("0a1b2c3d-0000-4000-9000-00000000000{i}");
        let add = call("ADD", &format!("sandbox-{i}"), 100 + i, &uid, "a");
        story.push(created(1, 100 + i));
        story.push(calls(1, add));
        story.push(added(2, 100 + i, 50 + i as u8));
        story.push(holders(3, 100 + i, &[], &["/run/netns/cni-1"]));
    }
    assert_eq!(Node::of(&story).of_rule(500, GHOST), []);
    story.push(cri(60, &[]));
    assert_eq!(Node::of(&story).of_rule(500, GHOST).len(), 4);
}
