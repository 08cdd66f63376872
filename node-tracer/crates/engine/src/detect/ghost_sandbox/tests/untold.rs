//! The incident where no list tells of the pods, and what the runtime adds.

use super::*;
use event::{Attachment, RuntimeSandbox};

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
fn without_a_list_nothing_is_said_of_a_pod_whatever_else_points_to_its_end() {
    let mut story = conflict();
    let mut node = Node::of(&story);
    assert_eq!(node.of_rule(500, GHOST), []);
    let shared = node.0.open();
    let told = shared.iter().find(|it| it.rule == Rule::DuplicateAddress);
    let doubt = |text: &String| text.contains("still exists");
    assert!(told.unwrap().unknown.iter().any(doubt));
    story.push(reserved(71, None));
    assert!(ghost(&story, 500).is_none());
}

#[test]
fn a_list_that_need_not_be_whole_is_said_to_be_so_whether_or_not_there_is_a_sandbox() {
    let mut list = listed(3, &[]);
    let mut gaps = |why: Option<&str>, story: &[Event]| {
        if let What::PodsListed { doubt, .. } = &mut list.what {
            *doubt = why.map(str::to_owned);
        }
        let mut node = Node::of(&[story, &[list.clone()]].concat());
        assert_eq!(node.of_rule(500, GHOST), []);
        let gaps = node.0.gaps().iter();
        gaps.filter(|gap| gap.contains("nodes get")).count()
    };
    for story in [&[host(0)][..], &conflict()] {
        assert_eq!(gaps(Some("the account lacks nodes get"), story), 1);
        assert_eq!(gaps(None, story), 0);
    }
}

#[test]
fn a_sandbox_that_the_runtime_has_removed_is_in_no_ordinary_deletion() {
    let mut story = ghost_story();
    story.retain(|event| !matches!(event.what, What::TaskBlocked { .. }));
    let mut node = Node::of(&story);
    node.tell(cri(63, &[]));
    let (told, _) = node.only(64, GHOST, State::Open);
    let removed = |claim: &event::finding::Evidence| claim.claim.contains("no such sandbox");
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
fn a_sandbox_that_the_runtime_does_not_list_yet_is_not_removed() {
    let mut story = ghost_story();
    story.retain(|event| !matches!(event.what, What::TaskBlocked { .. }));
    // The pod ends while its sandbox starts.
    let early = |event: &mut Event| event.time = event.time.min(at(8, host(0).what).time);
    story.iter_mut().for_each(early);
    let told_after = |listed_at: i64| {
        let mut node = Node::of(&story);
        node.tell(cri(listed_at, &[]));
        node.of_rule(listed_at + 1, GHOST).len()
    };
    assert_eq!((told_after(10), told_after(33)), (0, 0));
    assert_eq!(told_after(35), 1);
    // One that it had listed is removed at once.
    let mut node = Node::of(&story);
    let id = String::from("sandbox-old");
    let listed = RuntimeSandbox {
        id: id.clone(),
        ..RuntimeSandbox::default()
    };
    let source = String::from("cri");
    node.tell(cri(10, &[listed]));
    node.tell(at(20, What::SandboxRemoved { source, id }));
    assert_eq!(node.of_rule(21, GHOST).len(), 1);
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
        host_devices: Vec::new(),
        pod: Some(event::PodRef {
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
    assert!(of_libcni[1].0.contains("not completed"), "{of_libcni:?}");
}

#[test]
fn of_tasks_that_are_frozen_nobody_is_told_to_send_signals() {
    let mut story = ghost_story();
    story.retain(|event| !matches!(event.what, What::TaskBlocked { .. }));
    for event in &mut story {
        if let What::NetnsHolders { tasks, .. } = &mut event.what {
            let frozen = Some(event::NotStuck::Frozen);
            tasks.iter_mut().for_each(|task| task.not_stuck = frozen);
        }
    }
    let told = ghost(&story, 100).unwrap();
    assert!(
        format!("{:?}", told.evidence).contains("are frozen"),
        "{}",
        told.title
    );
    let words = format!("{:?} {:?}", told.evidence, told.advice);
    assert!(
        words.contains("thaw") && !words.contains("still run"),
        "{words}"
    );
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
        format!("{:?}", told.evidence).contains("in state D, for less than"),
        "{}",
        told.title
    );
    let words = format!("{:?} {:?}", told.evidence, told.advice);
    assert!(!words.contains("still run"), "{words}");
    assert!(words.contains("/stack"), "{words}");
}

#[test]
fn whether_a_static_pod_exists_whose_mirror_is_gone_is_a_gap() {
    const HASH: &str = "a4f4d2f9b1c84e7f8e0f7c1d2b3a4958";
    let other = pod("other", OTHER, &[ip(9)]);
    let mut mirror = pod("checkout-x8k2p", NEW, &[ip(5)]);
    mirror.uids.insert(HASH.to_owned());
    let add = call("ADD", "sandbox-old", 100, HASH, "checkout-x8k2p");
    let mut node = Node::of(&[
        host(0),
        created(1, 100),
        calls(2, add.clone()),
        added(3, 100, 5),
        ended(4, add),
        holders(
            5,
            100,
            &[pod_task(7, "pause", HASH, "sandbox-old")],
            &[MOUNT],
        ),
        listed(6, &[other.clone(), mirror]),
        listed(60, &[other]),
    ]);
    assert_eq!(node.of_rule(500, GHOST), []);
    let gap = |text: &String| text.contains("static pods shop/checkout-x8k2p");
    assert!(node.0.gaps().iter().any(gap), "{:?}", node.0.gaps());
}

/// The rules that could not look, and why.
fn not_checked(node: &Node) -> Vec<(Rule, &str)> {
    let all = node.0.not_checked().iter();
    all.map(|it| (it.rule, it.reason.as_str())).collect()
}

#[test]
fn a_rule_that_a_missing_source_switches_off_is_named() {
    let judged = |mut node: Node| {
        node.tick(500);
        node
    };
    assert_eq!(not_checked(&Node::default()), [(GHOST, "no pod list")]);
    let node = judged(Node::of(&conflict()));
    assert_eq!(not_checked(&node), [(GHOST, "no pod list")]);
    assert_eq!(node.0.not_checked()[0].fix, "--pods auto, or --pods FILE");
    let what = What::SourceFailed {
        source: String::from("pods"),
        error: String::from("refused"),
    };
    let node = judged(Node::of(&[host(0), at(1, what)]));
    assert_eq!(node.0.not_checked()[0].fix, "--kubeconfig FILE");
    // A list that is believed: nothing is switched off.
    let node = judged(Node::of(&ghost_story()));
    assert_eq!(not_checked(&node), []);
    // One that is older than a sandbox, and of another Kubernetes namespace.
    let older = listed(0, &[]);
    let node = judged(Node::of(&[vec![older], conflict()].concat()));
    let [(GHOST, reason)] = not_checked(&node)[..] else {
        panic!("{:?}", node.0.not_checked())
    };
    assert!(
        reason.starts_with("the pod list is older than "),
        "{reason}"
    );
}

#[test]
fn what_could_not_be_entered_switches_off_the_rules_that_read_it() {
    let list = listed(50, &[]);
    let read = |netns: u32| {
        let what = What::NetnsDevices {
            netns: ns(netns),
            devices: Vec::new(),
            routes: Vec::new(),
            neighbours: Vec::new(),
            host_nsid: None,
        };
        at(2, what)
    };
    let of = |more: &[Event]| {
        let story = [&[host(0), found(0, 100), list.clone()], more].concat();
        let mut node = Node::of_looks(&story);
        node.tick(60);
        let reasons = not_checked(&node).into_iter();
        reasons
            .map(|(rule, why)| (rule, why.to_owned()))
            .collect::<Vec<_>>()
    };
    let both = |why: &str| [GHOST, Rule::DuplicateAddress].map(|rule| (rule, why.to_owned()));
    assert_eq!(of(&[]), both("no network namespace could be read"));
    assert_eq!(
        of(&[read(1)]),
        both("1 network namespace could not be read")
    );
    assert_eq!(of(&[read(1), read(100)]), []);
    let hidden = What::SourceFailed {
        source: String::from("netns"),
        error: String::from("x"),
    };
    assert_eq!(
        of(&[read(1), read(100), at(3, hidden)]),
        both("not all network namespaces could be found")
    );
}
