//! Ghosts whose address a pod of another node has.

use crate::{detect::ghost_sandbox::PODS_BY_IP, testing::Node};
use event::{
    Event, Pod, What,
    finding::{Finding, Phase, Rule, Severity},
    testing::*,
};

/// The incident, and what the API server says of its address then.
fn with(pods: Vec<Pod>) -> Finding {
    ghost(&[told(pods)])
}

fn told(pods: Vec<Pod>) -> Event {
    at(
        95,
        What::PodsWithAddress {
            address: ip(5),
            at: s(95),
            pods,
        },
    )
}

fn ghost(more: &[Event]) -> Finding {
    let story = [ghost_story(), more.to_vec()].concat();
    let mut told = Node::of(&story).of_rule(100, Rule::GhostSandbox);
    assert_eq!(told.len(), 1, "{told:#?}");
    told.remove(0).0
}

fn on_n2() -> Pod {
    Pod {
        node: Some(String::from("n2")),
        phase: Some(String::from("Running")),
        ..pod("reborn", NEW, &[ip(5)])
    }
}

#[test]
fn a_running_pod_of_another_node_with_its_address_is_a_conflict_and_named() {
    let found = with(vec![on_n2()]);
    assert_eq!(found.detail.phase, Some(Phase::Conflict));
    assert_eq!(found.severity, Severity::Critical);
    assert!(found.title.ends_with("on node n2"), "{}", found.title);
    let by = found.detail.taken_by.unwrap();
    assert_eq!((by.node.as_str(), by.name.as_str()), ("n2", "reborn"));
    assert_eq!(by.uid.as_deref(), Some(NEW));
    let says = |words: &str| found.advice.iter().any(|step| step.contains(words));
    assert!(
        says("do not delete") && says("tell who runs n2"),
        "{:?}",
        found.advice
    );
    assert!(found.advice[0].starts_with("kubectl cordon"));
}

#[test]
fn who_does_not_use_the_address_or_is_no_other_is_no_conflict() {
    let n2 = on_n2;
    let own = || Pod {
        node: Some(String::from("n2")),
        ..pod("stuck", OLD, &[ip(5)])
    };
    let harmless = [
        Pod {
            host_network: true,
            ..n2()
        },
        Pod {
            phase: Some(String::from("Succeeded")),
            ..n2()
        },
        Pod { node: None, ..n2() },
        Pod {
            node: Some(String::from("node-1")),
            ..n2()
        },
        own(),
    ];
    for pod in harmless {
        let found = with(vec![pod.clone()]);
        assert_ne!(found.detail.phase, Some(Phase::Conflict), "{pod:?}");
        assert_eq!(found.detail.taken_by, None);
    }
    assert_eq!(with(Vec::new()).detail.taken_by, None);
}

#[test]
fn a_virtual_machine_that_was_moved_keeps_its_address() {
    let moved = |before: &str, after: &str| {
        let mut story = ghost_story();
        for event in &mut story {
            if let What::CniStarted { call } | What::CniCall { call, .. } = &mut event.what
                && let Some(pod) = &mut call.pod
            {
                pod.name = Some(before.to_owned());
            }
            if let What::PodsListed { pods, .. } = &mut event.what {
                pods.iter_mut()
                    .for_each(|pod| before.clone_into(&mut pod.name));
            }
        }
        let namespace = story.iter().find_map(|event| match &event.what {
            What::CniStarted { call } | What::CniCall { call, .. } => {
                call.pod.as_ref()?.namespace.clone()
            }
            _ => None,
        });
        story.push(told(vec![Pod {
            name: after.to_owned(),
            namespace: namespace.unwrap(),
            ..on_n2()
        }]));
        let mut told = Node::of(&story).of_rule(100, Rule::GhostSandbox);
        told.remove(0).0.detail.taken_by.is_none()
    };
    assert!(moved("virt-launcher-db-abcde", "virt-launcher-db-fghij"));
    assert!(!moved("virt-launcher-db-abcde", "virt-launcher-web-fghij"));
}

#[test]
fn a_server_that_does_not_tell_is_named_once_under_unknown() {
    let failed = at(
        95,
        What::SourceFailed {
            source: PODS_BY_IP.to_owned(),
            error: String::from("403 Forbidden"),
        },
    );
    let found = ghost(std::slice::from_ref(&failed));
    let of_others = |text: &&String| text.contains("another node");
    assert_eq!(found.unknown.iter().filter(of_others).count(), 1);
    assert_eq!(found.detail.taken_by, None);
    // What it told before stays true until it tells otherwise.
    let found = ghost(&[told(vec![on_n2()]), failed]);
    assert_eq!(found.unknown.iter().filter(of_others).count(), 0);
    assert!(found.detail.taken_by.is_some());
}
