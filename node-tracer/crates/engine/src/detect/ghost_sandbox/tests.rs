//! The incident with one fact taken away at a time.

mod address_state;
mod elsewhere;
mod ipam;
mod untold;

use std::{net::Ipv6Addr, path::Path, slice};

use crate::testing::Node;
use event::{
    Event, FdHolder, Pod, RuntimeSandbox, Task, What,
    finding::{Finding, Holder, Phase, Rule, Severity, State},
    mount,
    testing::*,
};

const GHOST: Rule = Rule::GhostSandbox;

/// What the rule says of a story at its end.
fn ghost(story: &[Event], seconds: i64) -> Option<Finding> {
    let mut node = Node::of(story);
    node.of_rule(seconds, GHOST)
        .pop()
        .map(|(finding, _)| finding)
}

/// The story without the events that match.
fn without(wanted: impl Fn(&What) -> bool) -> Vec<Event> {
    ghost_story()
        .into_iter()
        .filter(|event| !wanted(&event.what))
        .collect()
}

/// The story with every event bent.
fn bent(mut bend: impl FnMut(&mut What)) -> Vec<Event> {
    let mut story = ghost_story();
    story.iter_mut().for_each(|event| bend(&mut event.what));
    story
}

fn phase(finding: &Finding) -> Phase {
    finding.detail.phase.unwrap()
}

#[test]
fn a_sandbox_that_the_runtime_does_not_have_is_not_removed_there() {
    let is_removed = |events: &[Event]| {
        let story = [&ghost_story()[..], events].concat();
        let advice = ghost(&story, 80).unwrap().advice;
        advice.iter().any(|step| step.starts_with("crictl stopp "))
    };
    let listed = sandbox("sandbox-old", 100, OLD);
    assert!(is_removed(&[]) && is_removed(&[cri(63, &[listed])]));
    assert!(is_removed(&[half_of_cri(63, &[])]), "it may have it");
    assert!(!is_removed(&[cri(63, &[])]));
}

#[test]
fn without_a_pod_list_there_is_no_verdict() {
    let story = without(|what| matches!(what, What::PodsListed { .. }));
    let mut node = Node::of(&story);
    assert_eq!(node.of_rule(500, GHOST), []);
    assert!(node.0.gaps()[0].contains("no pod list"));
    let open = node.0.open();
    let blocked = open
        .iter()
        .find(|finding| finding.rule == Rule::BlockedTask)
        .unwrap();
    assert!(
        blocked
            .unknown
            .iter()
            .any(|unknown| unknown.contains("still exists"))
    );
}

#[test]
fn a_list_from_before_the_sandbox_proves_nothing() {
    let story = bent(|what| {
        if let What::PodsListed { at, pods, .. } = what {
            *at = s(0);
            pods.retain(|pod| !pod.uids.contains(OLD));
        }
    });
    assert!(ghost(&story, 500).is_none());
}

#[test]
fn a_list_that_was_copied_after_the_pod_began_proves_nothing() {
    let told = |after: Option<i64>| {
        let story = bent(|what| {
            if let What::PodsListed {
                made_after, pods, ..
            } = what
            {
                *made_after = after.map(s);
                pods.retain(|pod| !pod.uids.contains(OLD));
            }
        });
        ghost(&story, 500)
    };
    assert!(told(None).is_some());
    assert!(told(Some(2)).is_some(), "made after the sandbox");
    assert!(told(Some(1)).is_none());
    assert!(told(Some(-50)).is_none());
}

#[test]
fn a_list_between_the_tasks_start_and_the_tracers_counts() {
    let early = |started: i64| {
        let app = Task {
            started: Some(s(started)),
            ..pod_task(9, "app", OLD, "app-old")
        };
        let pods = vec![pod("other", OTHER, &[]), of_another_namespace()];
        let list = What::PodsListed {
            source: "pods".into(),
            at: s(-100),
            made_after: None,
            whole: false,
            doubt: None,
            pods,
        };
        let story = [host(0), found(0, 100), added(0, 100, 5), at(0, list)];
        let story = [&story[..], &[holders(0, 100, &[app], &[])]].concat();
        ghost(&story, 1)
    };
    let finding = early(-1_000).unwrap();
    assert_eq!(finding.since, s(-100));
    assert!(
        finding
            .unknown
            .iter()
            .any(|unknown| unknown.ends_with("was deleted: already gone at the first look"))
    );
    assert!(finding.detail.first_seen, "nobody saw the pod go");
    assert!(early(-50).is_none(), "the pod is younger than the list");
}

#[test]
fn a_pod_that_is_listed_is_no_ghost() {
    let with = |bend: fn(&mut Pod)| {
        let mut story = ghost_story();
        let mut old = pod("checkout-x8k2p", OLD, &[ip(5)]);
        bend(&mut old);
        story.push(listed(64, &[old]));
        story
    };
    assert!(ghost(&with(|_| {}), 500).is_none());
    assert!(ghost(&with(|pod| pod.host_network = true), 500).is_none());
    assert!(
        ghost(&with(|pod| pod.deletion = Some(s(480))), 500).is_none(),
        "it may take its time"
    );
    let late = ghost(&with(|pod| pod.deletion = Some(s(400))), 500).unwrap();
    assert_eq!((phase(&late), late.since), (Phase::Suspected, s(400)));
    assert!(
        late.evidence
            .iter()
            .any(|claim| claim.claim.contains("still in the API"))
    );
}

#[test]
fn a_pod_that_terminates_late_is_no_ghost_while_nothing_is_stuck() {
    let late = |phase: &str| {
        let pod = pod("checkout-x8k2p", OLD, &[ip(5)]);
        let pod = Pod {
            deletion: Some(s(70)),
            phase: Some(phase.into()),
            ..pod
        };
        listed(64, &[pod])
    };
    let mut story = ghost_story();
    story.push(late("Running"));
    assert!(ghost(&story, 500).is_some());
    let mut story = without(|what| matches!(what, What::TaskBlocked { .. }));
    story.push(late("Running"));
    assert!(ghost(&story, 500).is_none());
}

#[test]
fn what_a_host_network_pod_leaves_behind_is_no_ghost() {
    let story = bent(|what| {
        if let What::PodsListed { pods, .. } = what {
            let old = pods.iter_mut().filter(|pod| pod.uids.contains(OLD));
            old.for_each(|pod| pod.host_network = true);
        }
    });
    assert!(ghost(&story, 500).is_none());
}

#[test]
fn a_pod_of_the_same_name_is_another_one() {
    let mut story = ghost_story();
    story.push(listed(64, &[pod("checkout-x8k2p", NEW, &[])]));
    let finding = ghost(&story, 67).unwrap();
    assert!(
        finding
            .evidence
            .iter()
            .any(|claim| claim.claim.contains(NEW))
    );
}

#[test]
fn an_ordinary_deletion_is_given_time() {
    let story = without(|what| matches!(what, What::TaskBlocked { .. }));
    let mut node = Node::of(&story);
    assert_eq!(node.of_rule(89, GHOST), []);
    assert_eq!(node.0.pending(), Some(s(90)), "a tick is wanted then");
    let (late, _) = node.only(90, GHOST, State::Open);
    assert!(
        late.evidence
            .iter()
            .any(|it| it.claim == "tasks in the netns still run")
    );
    let mut node = Node::of(&story);
    node.tell(dying(80, 100));
    assert_eq!(node.of_rule(500, GHOST), []);
}

/// containerd is in the netns of a pod for as long as `kubectl port-forward` runs.
#[test]
fn a_program_of_the_node_with_a_thread_in_a_ghosts_netns_is_not_killed() {
    let containerd = Task {
        tid: 8066,
        ..task(6186, "containerd")
    };
    let pause = pod_task(7, "pause", OLD, "sandbox-old");
    let kills = |tasks: &[Task]| {
        let mut story = without(|what| matches!(what, What::TaskBlocked { .. }));
        story.push(holders(64, 100, tasks, &[]));
        let advice = ghost(&story, 90).unwrap().advice;
        assert!(
            said(&advice, "do not just end containerd (6186"),
            "{advice:?}"
        );
        let mut kills = advice.into_iter().filter(|step| step.starts_with("kill "));
        kills.next()
    };
    let kill = kills(&[containerd.clone(), pause]);
    assert!(kill.is_some_and(|it| it.starts_with("kill -9 7    # ")));
    assert_eq!(kills(&[containerd]), None);
}

/// The pause process of a sandbox ends by nothing else.
#[test]
fn tasks_that_take_signals_end_by_the_runtime_that_has_their_sandbox() {
    let told = |pause: Task, lists: &[Event]| {
        let mut story = without(|what| matches!(what, What::TaskBlocked { .. }));
        story.extend_from_slice(lists);
        story.push(holders(
            64,
            100,
            &[pause, task(6186, "containerd")],
            &[MOUNT],
        ));
        let steps = ghost(&story, 90).unwrap().advice.into_iter();
        let wanted = |step: &String| {
            let verbs = ["crictl", "kill", "do not just", "see whether the kubelet"];
            verbs.iter().any(|verb| step.starts_with(verb)) || step.contains("still in state D")
        };
        steps.filter(wanted).collect::<Vec<_>>()
    };
    let begins = |steps: &[String], with: &[&str]| {
        let pairs = || steps.iter().zip(with);
        steps.len() == with.len() && pairs().all(|(step, begin)| step.starts_with(begin))
    };
    let pause = pod_task(7, "pause", OLD, "sandbox-old");
    let listed = cri(63, &[sandbox("sandbox-old", 100, OLD)]);

    let steps = told(pause.clone(), slice::from_ref(&listed));
    let order = [
        "crictl stopp ",
        "see whether the kubelet",
        "do not just end containerd",
    ];
    assert!(begins(&steps, &order), "{steps:#?}");
    assert!(steps[0].contains("    # ends its tasks"), "{steps:#?}");

    let steps = told(pause.clone(), &[half_of_cri(63, &[])]);
    let order = ["crictl stopp ", "do not just end containerd", "kill -9 7 "];
    assert!(begins(&steps, &order), "it may have it: {steps:#?}");

    let steps = told(pause.clone(), &[cri(63, &[])]);
    let order = ["do not just end containerd", "kill -9 7 "];
    assert!(begins(&steps, &order), "{steps:#?}");

    let asleep = Task {
        state: Some('D'),
        ..pause
    };
    let steps = told(asleep, &[listed]);
    assert!(
        begins(&steps, &["look again", "crictl stopp "]),
        "{steps:#?}"
    );
    assert!(
        steps[1].contains("    # after the holder ends"),
        "{steps:#?}"
    );
}

/// The path of another pod that runs, by which whoever has the mount calls it.
#[test]
fn what_is_mounted_elsewhere_is_unmounted_there_and_not_on_the_node() {
    let path = Path::new("/run/netns/cni-0a1b2c3d-0000-4000-8000-000000000001");
    let elsewhere = [mount::of_user(77, path), mount::of_process(77, path)];
    let unmount = format!("umount -N 77 {}    # ", path.display());
    for (place, step) in elsewhere.into_iter().zip(["kill -9 77    # ", &unmount]) {
        let mut story = without(|what| matches!(what, What::TaskBlocked { .. }));
        story.push(holders(64, 100, &[], &[place.to_str().unwrap()]));
        let finding = ghost(&story, 90).unwrap();
        assert_eq!(finding.holders, [Holder::Mount { path: place }]);
        let (there, others): (Vec<_>, Vec<_>) =
            finding.advice.iter().partition(|it| it.starts_with(step));
        let names = |it: &&String| it.contains("/run/netns");
        assert!(
            there.len() == 1 && !others.iter().any(names),
            "{finding:#?}"
        );
    }
}

#[test]
fn a_mount_alone_counts_after_the_same_time() {
    let mut story = without(|what| matches!(what, What::TaskBlocked { .. }));
    story.push(holders(64, 100, &[], &[MOUNT]));
    assert!(ghost(&story, 89).is_none());
    let finding = ghost(&story, 90).unwrap();
    assert_eq!(finding.holders, [Holder::Mount { path: MOUNT.into() }]);
    assert!(
        finding
            .advice
            .iter()
            .any(|advice| advice.starts_with(&format!("umount {MOUNT} ")))
    );
}

/// CNI DEL needs the namespace: without it a bridge leaves its chains, and a device
/// that was the host's is not given back.
#[test]
fn what_the_runtime_may_have_it_removes_before_anything_is_unmounted() {
    let path = Path::new(MOUNT);
    let elsewhere = [mount::of_user(77, path), mount::of_process(77, path)];
    let stopped = RuntimeSandbox {
        ready: Some(false),
        ..sandbox("sandbox-old", 100, OLD)
    };
    for place in elsewhere.iter().map(|it| it.as_path()).chain([path]) {
        let steps = |list: Event| {
            let mut story = without(|what| matches!(what, What::TaskBlocked { .. }));
            story.push(list);
            story.push(holders(64, 100, &[], &[place.to_str().unwrap()]));
            let advice = ghost(&story, 90).unwrap().advice;
            let first = |verbs: &[&str]| {
                let is = |step: &String| verbs.iter().any(|verb| step.starts_with(verb));
                advice.iter().position(is)
            };
            let is_if =
                |step: &String| step.starts_with("when the sandbox is removed and netns 100");
            let end = first(&["umount ", "kill "]).unwrap();
            (
                first(&["crictl stopp "]),
                advice.iter().position(is_if),
                end,
            )
        };
        for list in [cri(63, slice::from_ref(&stopped)), half_of_cri(63, &[])] {
            let (removed, looked, ended) = steps(list);
            assert!(removed.unwrap() < looked.unwrap() && looked.unwrap() < ended);
        }
        let (removed, looked, _) = steps(cri(63, &[]));
        assert_eq!((removed, looked), (None, None));
    }
}

/// Its tasks and its mount are gone, and what is left are these descriptors.
fn left_with(fds: &[FdHolder]) -> Vec<Event> {
    let mut story = without(|what| matches!(what, What::TaskBlocked { .. }));
    story.push(held_by_fds(64, 100, fds));
    story
}

fn said(lines: &[String], part: &str) -> bool {
    lines.iter().any(|line| line.contains(part))
}

#[test]
fn a_descriptor_alone_counts_after_the_same_time() {
    let story = left_with(&[leaked_fd(12)]);
    assert!(ghost(&story, 89).is_none());
    let finding = ghost(&story, 90).unwrap();
    let holder = Holder::Fd {
        pid: 77,
        fd: 12,
        comm: Some("cni-daemon".into()),
    };
    assert_eq!(finding.holders, [holder]);
    assert!(finding.evidence.iter().any(|claim| {
        claim
            .claim
            .ends_with("descriptor 12 of cni-daemon (77) holds it open")
            && (claim.source.as_str(), claim.at) == ("kernel", s(64))
    }));
    assert!(said(&finding.advice, "ls -l /proc/77/fd/12"));
    assert!(!said(&finding.unknown, "what holds"));
}

#[test]
fn a_ghost_of_a_descriptor_ends_with_the_namespace() {
    let mut node = Node::of(&left_with(&[leaked_fd(12), leaked_fd(13)]));
    let (open, _) = node.only(90, GHOST, State::Open);
    assert_eq!(open.holders.len(), 2);
    node.tell(held_by_fds(94, 100, &[leaked_fd(13)]));
    let (fewer, _) = node.only(95, GHOST, State::Updated);
    assert_eq!(fewer.holders.len(), 1);
    node.tell_all(&[dying(100, 100), destroyed(100, 100)]);
    node.only(101, GHOST, State::Resolved);
}

#[test]
fn what_lives_although_nothing_was_found_to_hold_it_is_a_ghost_with_an_unknown() {
    let story = left_with(&[]);
    assert!(ghost(&story, 89).is_none());
    let finding = ghost(&story, 90).unwrap();
    assert_eq!(finding.holders, []);
    let unknown =
        "what holds the netns open: no task, mount or descriptor was found; a socket can do it";
    assert!(
        finding.unknown.contains(&unknown.to_owned()),
        "{:#?}",
        finding.unknown
    );
    let mut node = Node::of(&story);
    node.tell(dying(89, 100));
    assert_eq!(node.of_rule(500, GHOST), []);
}

#[test]
fn without_an_address_of_its_own_it_is_no_ghost() {
    assert!(
        ghost(
            &without(|what| matches!(what, What::AddressAdded { .. })),
            500
        )
        .is_none()
    );
    let story = bent(|what| {
        if let What::AddressAdded { address, .. } = what {
            address.address = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into();
        }
    });
    assert!(ghost(&story, 500).is_none());
}

#[test]
fn a_namespace_of_no_pod_is_no_ghost() {
    let story = bent(|what| match what {
        What::NetnsHolders { tasks, .. } => tasks.iter_mut().for_each(|task| task.pod_uid = None),
        What::TaskBlocked { task, .. } => task.pod_uid = None,
        What::CniStarted { call } | What::CniCall { call, .. } => call.pod = None,
        _ => {}
    });
    assert!(ghost(&story, 500).is_none());
}

#[test]
fn a_call_that_is_not_trusted_makes_nobody_a_ghost() {
    let story = bent(|what| match what {
        What::NetnsHolders { tasks, .. } => tasks.iter_mut().for_each(|task| task.pod_uid = None),
        What::TaskBlocked { task, .. } => task.pod_uid = None,
        What::CniStarted { call } | What::CniCall { call, .. } => call.trusted = false,
        _ => {}
    });
    assert!(ghost(&story, 500).is_none());
}

#[test]
fn the_cgroup_alone_is_enough() {
    let is_call = |what: &What| matches!(what, What::CniStarted { .. } | What::CniCall { .. });
    let finding = ghost(&without(is_call), 67).unwrap();
    assert_eq!(
        (phase(&finding), finding.sandbox_id),
        (Phase::Suspected, None)
    );
    assert_eq!(
        finding.pod.unwrap().label(),
        "shop/checkout-x8k2p",
        "named by the list"
    );
}

/// A pod of a Kubernetes namespace that no other pod of these tests is in.
fn of_another_namespace() -> Pod {
    Pod {
        namespace: "kube-system".into(),
        ..pod("dns", "0a1b2c3d-0000-4000-8000-0000000000dd", &[])
    }
}

/// Sandboxes without a pod on any list, and how many of them are ghosts by one.
fn ghosts_of(sandboxes: u32, pods: &[Pod]) -> usize {
    let mut story = vec![host(0)];
    for i in 0..sandboxes {
        let uid = format!("0a1b2c3d-0000-4000-9000-00000000000{i}");
        let add = call("ADD", &format!("sandbox-{i}"), 100 + i, &uid, "a");
        story.extend([
            created(1, 100 + i),
            calls(1, add),
            added(2, 100 + i, 50 + i as u8),
        ]);
        story.push(holders(3, 100 + i, &[], &["/run/netns/cni-1"]));
    }
    story.push(listed(50, pods));
    let mut node = Node::of(&story);
    let ghosts = node.of_rule(500, GHOST).len();
    let gaps = node.0.gaps().iter();
    let told = gaps.filter(|gap| gap.contains("still exist")).count();
    assert_eq!(told == 1, ghosts == 0, "what a list does not show is said");
    ghosts
}

#[test]
fn a_list_shows_that_a_pod_is_gone_if_it_has_pods_of_its_namespace_and_node() {
    for sandboxes in [1, 2, 4] {
        let same = pod("other", OTHER, &[]);
        let is = |pods: &[Pod]| ghosts_of(sandboxes, pods);
        assert_eq!(is(slice::from_ref(&same)), sandboxes as usize);
        assert_eq!(is(&[of_another_namespace()]), 0);
        let elsewhere = Pod {
            node: Some("node-2".into()),
            ..same
        };
        assert_eq!(is(&[elsewhere]), 0, "the list is of another node");
    }
}

#[test]
fn a_list_of_one_namespace_says_nothing_of_a_pod_whose_namespace_is_not_known() {
    let of = |pods: &[Pod]| {
        let tasks = [pod_task(9, "app", OLD, "app-old")];
        let story = [
            host(0),
            found(0, 100),
            added(0, 100, 5),
            holders(0, 100, &tasks, &[]),
        ];
        ghost(&[&story[..], &[listed(5, pods)]].concat(), 500)
    };
    let other = pod("other", OTHER, &[]);
    assert!(of(slice::from_ref(&other)).is_none());
    assert!(of(&[other, of_another_namespace()]).is_some());
}

#[test]
fn a_list_of_another_namespace_does_not_end_the_pods_of_the_first() {
    let mut story = ghost_story();
    story.retain(|event| event.time != s(60));
    story.push(listed(60, &[of_another_namespace()]));
    assert!(ghost(&story, 500).is_none());
}

#[test]
fn a_pod_that_has_run_to_its_end_leaves_a_ghost_like_one_that_is_gone() {
    let finished = |at: i64| Pod {
        phase: Some("Failed".into()),
        finished: Some(s(at)),
        ..pod("checkout-x8k2p", OLD, &[ip(5)])
    };
    let mut story = ghost_story();
    story.retain(|event| event.time != s(60));
    story.push(listed(60, &[finished(58)]));
    let told = ghost(&story, 65).unwrap();
    assert_eq!(told.since, s(58));
    assert!(told.title.contains("finished pod"), "{}", told.title);
    let calm = |event: &&Event| !matches!(event.what, What::TaskBlocked { .. });
    let calm: Vec<Event> = story.iter().filter(calm).cloned().collect();
    assert!(ghost(&calm, 65).is_none(), "kubelet stops its sandbox soon");
    assert!(ghost(&calm, 100).is_some());
}

#[test]
fn a_pod_has_its_own_grace_period_also_after_a_forced_deletion() {
    let mut story = bent(|what| {
        if let What::PodsListed { pods, .. } = what {
            pods.iter_mut()
                .for_each(|pod| pod.grace_seconds = Some(300));
        }
    });
    story.retain(|event| !matches!(event.what, What::TaskBlocked { .. }));
    assert!(ghost(&story, 200).is_none());
    let told = ghost(&story, 400).unwrap();
    assert_eq!(told.since, s(60));
}

#[test]
fn an_address_that_a_pod_has_on_a_dummy_or_a_bridge_is_its_own_if_somebody_names_it() {
    // KubeVirt: the pod's address on a dummy that is called eth0.
    let on = |kind: &'static str| {
        bent(move |what| {
            if let What::AddressAdded { address, .. } = what {
                address.link_kind = Some(kind.into());
            }
        })
    };
    for kind in ["dummy", "bridge", "tun"] {
        assert!(ghost(&on(kind), 67).is_some(), "{kind}: the API names it");
        let mut nameless = on(kind);
        for event in &mut nameless {
            match &mut event.what {
                What::PodsListed { pods, .. } => pods.iter_mut().for_each(|pod| pod.ips.clear()),
                What::Reservation { holder, .. } => *holder = None,
                What::CniCall { result, .. } => *result = None,
                _ => {}
            }
        }
        assert!(ghost(&nameless, 67).is_none(), "{kind}: nobody names it");
    }
}

#[test]
fn a_static_pod_needs_no_mirror() {
    const STATIC: &str = "0a1b2c3d00004000800000000000000f";
    let tasks = [pod_task(9, "etcd", STATIC, "etcd")];
    let story = [
        host(0),
        created(1, 100),
        added(2, 100, 5),
        holders(3, 100, &tasks, &[]),
    ];
    let story = [&story[..], &[listed(10, &[pod("other", OTHER, &[])])]].concat();
    assert!(ghost(&story, 500).is_none());
}

#[test]
fn a_namespace_that_the_pod_made_for_itself_is_no_sandbox() {
    for ips in [vec![ip(5)], vec![]] {
        let mut story = bent(|what| {
            if let What::PodsListed { pods, .. } = what {
                pods.iter_mut().for_each(|pod| pod.ips.clone_from(&ips));
            }
        });
        let inner = [
            created(6, 300),
            added(6, 300, 77),
            holders(6, 300, &[pod_task(31, "dind", OLD, "app-old")], &[]),
        ];
        story.splice(7..7, inner);
        let told = Node::of(&story).of_rule(500, GHOST);
        assert_eq!(told.len(), 1, "only the sandbox: {told:#?}");
    }
}
