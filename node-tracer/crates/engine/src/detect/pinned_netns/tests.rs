//! A pinned namespace, and everything that looks like one.

use crate::testing::Node;
use event::{
    Event, FdHolder, RuntimeSandbox, What,
    finding::{Finding, Holder, Rule, Severity, State},
    testing::*,
    wording::advice::command,
};

const PINNED: Rule = Rule::PinnedNetns;
/// Long after all that happens in the stories.
const NOW: i64 = 1_000;

fn pinned(story: &[Event]) -> Option<Finding> {
    let told = Node::of(story).of_rule(NOW, PINNED);
    told.into_iter().next().map(|(finding, _)| finding)
}

/// A sandbox of which only the mount is left; CRI does not know it.
fn node() -> Vec<Event> {
    vec![
        host(0),
        found(1, 100),
        added(2, 100, 5),
        holders(3, 100, &[], &[SANDBOX_MOUNT]),
        cri(4, &[]),
    ]
}

fn with(events: Vec<Event>) -> Vec<Event> {
    [node(), events].concat()
}

/// The same as a look at the node finds it: nothing was seen before.
fn at_a_glance(events: Vec<Event>) -> Vec<Event> {
    let mut story = with(events);
    for event in &mut story {
        event.time = s(NOW);
    }
    story
}

/// The mount at another place.
fn mounted_at(path: &str) -> Vec<Event> {
    let mut story = node();
    story[3] = holders(3, 100, &[], &[path]);
    story
}

#[test]
fn a_mount_that_no_runtime_claims_is_pinned() {
    let found = pinned(&node()).unwrap();
    assert_eq!((found.severity, found.since), (Severity::Warning, s(1)));
    assert_eq!(
        found.title,
        "only a mount holds netns 100 open; it has 10.0.0.5"
    );
    assert_eq!(found.addresses, [ip(5)]);
    assert!(matches!(&found.holders[..], [Holder::Mount { .. }]));
    assert_eq!(
        command(&found.advice[0]).unwrap().command,
        format!("umount {SANDBOX_MOUNT} && rm -f {SANDBOX_MOUNT}")
    );
    assert!(found.advice[1].contains("another mount namespace"));
    assert_eq!(found.unknown, [""; 0]);
}

#[test]
fn one_without_an_address_is_worth_knowing() {
    let mut story = node();
    story.remove(2);
    assert_eq!(pinned(&story).unwrap().severity, Severity::Info);
}

#[test]
fn libcni_names_its_pod_and_the_reservation_is_to_stay() {
    let mut story = with(vec![
        attached(5, &[attachment("sandbox-old", Some(100), 5, -90)]),
        stored(6, &[(5, "sandbox-old", -90)]),
    ]);
    story[3] = holders(3, 100, &[], &["/run/netns/odd"]);
    let found = pinned(&story).unwrap();
    assert_eq!(found.since, s(-90));
    assert_eq!(found.pod.unwrap().label(), "shop/checkout-x8k2p");
    assert_eq!(found.sandbox_id.as_deref(), Some("sandbox-old"));
    assert!(
        found
            .advice
            .iter()
            .any(|step| step.starts_with("leave the reservation of 10.0.0.5"))
    );
    assert!(found.unknown[0].contains("no API access"));
}

#[test]
fn descriptors_and_sockets_pin_as_well() {
    let of = |what: fn(FdHolder) -> (Vec<FdHolder>, Vec<FdHolder>)| {
        let (fds, sockets) = what(leaked_fd(7));
        let mut held = held_by_fds(3, 100, &fds);
        if let What::NetnsHolders { sockets: there, .. } = &mut held.what {
            *there = sockets;
        }
        let mut story = with(vec![attached(
            5,
            &[attachment("sandbox-old", Some(100), 5, -90)],
        )]);
        story[3] = held;
        pinned(&story).unwrap()
    };
    let fd = of(|holder| (vec![holder], vec![]));
    assert!(
        fd.title
            .contains("only cni-daemon (77) holds netns 100 open")
    );
    assert!(
        fd.advice
            .iter()
            .any(|step| step.starts_with("ls -l /proc/77/fd/7"))
    );
    let socket = of(|holder| (vec![], vec![holder]));
    assert!(
        socket
            .title
            .contains("only cni-daemon (77) holds netns 100 open")
    );
    assert!(matches!(&socket.holders[..], [Holder::Socket { .. }]));
}

#[test]
fn what_others_have_made_is_theirs() {
    let uuid = "4f2a7c1e-9d3b-4f60-8a51-0c6e2d9b7f13";
    for path in [
        "/run/netns/blue",
        "/run/docker/netns/8d0f2b1c3a4e",
        "/run/docker/netns/default",
        &format!("/run/netns/netns-{uuid}"),
        &format!("/run/netns/{uuid}"),
    ] {
        assert_eq!(pinned(&mounted_at(path)), None, "{path}");
    }
    // A container of podman or nerdctl: libcni's memory of it names no pod.
    let mut other = attachment("podman-1", Some(100), 5, -90);
    other.pod = None;
    let mut story = mounted_at("/run/netns/blue");
    story.push(attached(5, &[other]));
    assert_eq!(pinned(&story), None);
    // A guest's thread was in it once.
    let mut story = mounted_at("/run/netns/blue");
    let guest = pod_task(8, "agent", NEW, "b");
    story.insert(3, holders(2, 100, &[guest], &["/run/netns/blue"]));
    assert_eq!(pinned(&story), None);
}

#[test]
fn cri_o_names_its_mounts_by_a_plain_uuid() {
    let mut story = mounted_at("/run/netns/4f2a7c1e-9d3b-4f60-8a51-0c6e2d9b7f13");
    if let What::SandboxesListed { runtime, .. } = &mut story[4].what {
        *runtime = Some("cri-o 1.33.1".into());
    }
    assert_eq!(pinned(&story).unwrap().severity, Severity::Warning);
}

#[test]
fn one_with_a_task_in_it_is_in_use() {
    let unit = task(9, "PrivateNetwork");
    let mut story = node();
    story[3] = holders(3, 100, &[unit], &[SANDBOX_MOUNT]);
    assert_eq!(pinned(&story), None);
    let mut story = node();
    story.push(stuck(5, 9, 100));
    assert_eq!(pinned(&story), None, "a task that only its stall tells of");
}

#[test]
fn a_ready_sandbox_keeps_its_namespace() {
    let story = with(vec![cri(5, &[sandbox("a", 100, OLD)])]);
    assert_eq!(pinned(&story), None);
    // The runtime tells of it only by path.
    let by_path = RuntimeSandbox {
        netns: None,
        netns_path: Some(SANDBOX_MOUNT.replace("/run", "/var/run")),
        ..sandbox("a", 0, OLD)
    };
    let story = with(vec![cri(5, &[by_path])]);
    assert_eq!(pinned(&story), None);
}

#[test]
fn an_ordinary_deletion_has_its_time() {
    let stopped = RuntimeSandbox {
        ready: Some(false),
        ..sandbox("a", 100, OLD)
    };
    let pause = pod_task(7, "pause", OLD, "a");
    let mut story = with(vec![cri(5, &[stopped])]);
    story.insert(3, holders(2, 100, &[pause], &[SANDBOX_MOUNT]));
    if let Some(last) = story
        .iter_mut()
        .find(|event| matches!(&event.what, What::NetnsHolders { tasks, .. } if tasks.is_empty()))
    {
        // The last task has gone just now.
        last.time = s(NOW - 10);
    }
    story.sort_by_key(|event| event.time);
    let mut node = Node::of(&story);
    assert_eq!(node.of_rule(NOW, PINNED), []);
    let (found, _) = node.only(NOW + 50, PINNED, State::Open);
    assert!(
        found
            .evidence
            .iter()
            .any(|it| it.claim.contains("NotReady"))
    );
}

#[test]
fn a_sandbox_that_the_runtime_has_stopped_it_removes_before_the_mount_goes() {
    let stopped = RuntimeSandbox {
        ready: Some(false),
        ..sandbox("a", 100, OLD)
    };
    let by_path = RuntimeSandbox {
        netns: None,
        netns_path: Some(SANDBOX_MOUNT.replace("/run", "/var/run")),
        ..stopped.clone()
    };
    for listed in [stopped, by_path] {
        let advice = pinned(&with(vec![cri(5, &[listed])])).unwrap().advice;
        let order = [
            "crictl stopp a && crictl rmp a    # ",
            "when the sandbox is removed and netns 100 still exists",
            &format!("umount {SANDBOX_MOUNT} "),
        ];
        let is_look = |step: &&String| step.starts_with("crictl pods ");
        let mut pairs = advice.iter().skip_while(is_look).zip(order);
        assert!(
            pairs.all(|(step, begin)| step.starts_with(begin)),
            "{advice:#?}"
        );
    }
}

#[test]
fn at_a_glance_a_deletion_or_an_add_in_progress_is_nothing() {
    let stopped = RuntimeSandbox {
        ready: Some(false),
        ..sandbox("a", 100, OLD)
    };
    assert_eq!(pinned(&at_a_glance(vec![cri(5, &[stopped])])), None);
    // The plugin has reserved, or ADD has just ended.
    let mut story = at_a_glance(vec![]);
    story.push(stored(NOW, &[(5, "a", NOW - 3)]));
    assert_eq!(pinned(&story), None);
    let mut story = at_a_glance(vec![]);
    let add = attachment("a", Some(100), 5, NOW - 1);
    story.push(attached(NOW, &[add]));
    assert_eq!(pinned(&story), None);
    // Nothing is in it yet.
    let mut story = at_a_glance(vec![]);
    story.remove(2);
    assert_eq!(pinned(&story), None);
}

#[test]
fn at_a_glance_old_files_tell_its_age() {
    let mut story = at_a_glance(vec![]);
    story.push(stored(NOW, &[(5, "a", 7)]));
    let found = pinned(&story).unwrap();
    assert_eq!((found.severity, found.since), (Severity::Warning, s(7)));
    let found = pinned(&at_a_glance(vec![])).unwrap();
    assert_eq!(found.severity, Severity::Info);
    assert!(found.unknown[0].starts_with("since when"));
}

#[test]
fn what_a_user_mounts_under_a_sandboxs_name_is_none() {
    let of = |uid| {
        let mut story = at_a_glance(vec![]);
        story[1] = of_user(story[1].clone(), uid);
        assert!(matches!(
            story[1].what,
            What::NetnsFound {
                user_ns: Some(_),
                ..
            }
        ));
        story.push(stored(NOW, &[(5, "a", 7)]));
        pinned(&story)
    };
    assert_eq!(of(65_534), None);
    let found = of(0).unwrap();
    assert_eq!(found.severity, Severity::Info, "a pod's root can have");
    assert!(
        found
            .unknown
            .iter()
            .any(|text| text.starts_with("whose it is"))
    );
}

#[test]
fn one_that_was_just_created_is_left_alone() {
    let mut story = node();
    story[1] = created(1, 100);
    let mut node = Node::of(&story);
    assert_eq!(node.of_rule(60, PINNED), []);
    // CRI was asked when the namespace was there.
    node.only(61, PINNED, State::Open);
}

#[test]
fn a_list_from_before_the_namespace_proves_nothing() {
    let mut story = node();
    let list = story.remove(4);
    story.insert(0, list);
    story[0].time = s(0);
    story[2] = created(1, 100);
    assert_eq!(pinned(&story), None);
}

#[test]
fn a_ghost_is_told_as_a_ghost() {
    let mut story = ghost_story();
    story.retain(|event| !matches!(event.what, What::TaskBlocked { .. }));
    story.push(holders(62, 100, &[], &[SANDBOX_MOUNT]));
    story.push(cri(63, &[]));
    let told = Node::of(&story).tick(NOW);
    assert!(told.iter().any(|(it, _)| it.rule == Rule::GhostSandbox));
    assert!(told.iter().all(|(it, _)| it.rule != PINNED), "{told:#?}");
}

#[test]
fn a_ghost_without_an_address_is_pinned() {
    let mut story = ghost_story();
    story.retain(|event| !matches!(event.what, What::TaskBlocked { .. }));
    story.push(holders(62, 100, &[], &[SANDBOX_MOUNT]));
    story.push(removed(62, 100, 5));
    story.push(cri(63, &[]));
    let found = pinned(&story).unwrap();
    assert!(
        found
            .evidence
            .iter()
            .any(|it| it.claim == "its pod is not in the API")
    );
}

#[test]
fn without_cri_only_what_cni_remembers_is_worth_a_remark() {
    let without = |events: Vec<Event>| {
        let mut story = with(events);
        story.remove(4);
        pinned(&story)
    };
    assert_eq!(without(vec![]), None);
    let add = || attached(5, &[attachment("sandbox-old", Some(100), 5, -90)]);
    let found = without(vec![add()]).unwrap();
    assert_eq!(found.severity, Severity::Info);
    assert!(found.unknown[0].ends_with("CRI was not asked"));
    // The runtime's folders still have it.
    let bundles = What::SandboxesListed {
        source: "bundles".into(),
        endpoint: "/run/containerd".into(),
        runtime: None,
        partial: None,
        sandboxes: vec![RuntimeSandbox {
            ready: None,
            ..sandbox("sandbox-old", 100, OLD)
        }],
    };
    assert_eq!(without(vec![add(), at(6, bundles)]), None);
    // An answer of earlier is no answer.
    let failed = pinned(&with(vec![add(), cri_fails(6)])).unwrap();
    assert_eq!(failed.severity, Severity::Info);
    assert!(failed.unknown[0].contains("no answer in 1 s"));
}

#[test]
fn a_ghost_to_be_is_left_to_its_rule() {
    let mut story = ghost_story();
    story.retain(|event| !matches!(event.what, What::TaskBlocked { .. }));
    story.push(holders(62, 100, &[], &[SANDBOX_MOUNT]));
    let told = Node::of(&story).tick(80);
    assert_eq!(told, [], "its pod has been gone for 20 s");
}

#[test]
fn a_part_of_cris_list_proves_no_absence() {
    let mut story = node();
    story[4] = half_of_cri(4, &[]);
    assert_eq!(
        pinned(&story),
        None,
        "only its mount tells that it was a pod's"
    );
    story.push(attached(5, &[attachment("sandbox-old", Some(100), 5, -90)]));
    let found = pinned(&story).unwrap();
    assert_eq!(found.severity, Severity::Info);
    assert!(found.unknown[0].ends_with("CRI does not list all: no status of 1 sandbox"));
    // What it has is there.
    story[4] = half_of_cri(4, &[sandbox("sandbox-old", 100, OLD)]);
    assert_eq!(pinned(&story), None);
}

#[test]
fn a_sandbox_of_which_only_the_path_is_known_is_the_one_there() {
    let at = |path: &str| {
        let mut there = sandbox("a", 100, OLD);
        (there.netns, there.netns_path) = (None, Some(path.to_owned()));
        let mut story = node();
        story[4] = cri(4, &[there]);
        pinned(&story)
    };
    assert_eq!(at(&format!("/var{SANDBOX_MOUNT}")), None);
    assert!(at("/run/netns/cni-other").is_some());
}
