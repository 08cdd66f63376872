//! Where a device is trapped, and where it is meant to be.

use crate::testing::Node;
use event::{
    Device, Event, RuntimeSandbox, What,
    finding::{Finding, Rule, Severity},
    testing::*,
};

const NOW: i64 = 1_000;

fn trapped(story: &[Event]) -> Option<Finding> {
    let told = Node::of(story).of_rule(NOW, Rule::TrappedDevice);
    assert!(told.len() < 2, "{told:#?}");
    told.into_iter().next().map(|(finding, _)| finding)
}

fn with_device(seconds: i64) -> Event {
    let lo = Device {
        index: 1,
        name: "lo".into(),
        ..Device::default()
    };
    devices(seconds, 100, &[lo, physical(6, "eth1")], &[], &[])
}

/// Nothing but a mount is left of a sandbox.
fn unused(mount: &str) -> Vec<Event> {
    vec![
        host(0),
        found(1, 100),
        holders(3, 100, &[], &[mount]),
        cri(4, &[]),
        with_device(5),
    ]
}

#[test]
fn a_device_in_a_ghost_is_trapped() {
    let mut story = ghost_story();
    assert_eq!(trapped(&story), None);
    story.push(with_device(63));
    let found = trapped(&story).unwrap();
    assert_eq!((found.severity, found.since), (Severity::Critical, s(60)));
    assert_eq!(
        found.title,
        "eth1 (pci 0000:00:06.0) is trapped in a ghost netns"
    );
    assert!(found.advice[0].contains("by itself"));
    let last = found.advice.last().unwrap();
    assert!(
        last.starts_with("nsenter --net=/proc/9/ns/net ip link set eth1 netns 1    # "),
        "{last}"
    );
}

#[test]
fn a_device_whose_name_the_host_has_gets_another_one_there() {
    let with_name = |name: &str| {
        let mut story = unused(SANDBOX_MOUNT);
        story.push(devices(6, 1, &[veth(2, name, 9)], &[], &[]));
        trapped(&story).unwrap().advice.pop().unwrap()
    };
    assert!(with_name("eth1").contains("eth1 netns 1 name dev%d    # "));
    assert!(with_name("eth0").contains("eth1 netns 1    # "));
}

#[test]
fn a_device_in_a_namespace_that_is_kept_for_nothing_is_trapped() {
    let mut story = unused(SANDBOX_MOUNT);
    let found = trapped(&story).unwrap();
    assert_eq!(found.severity, Severity::Warning);
    assert!(found.title.ends_with("an unused netns"), "{}", found.title);
    assert!(
        found
            .advice
            .last()
            .unwrap()
            .contains(&format!("nsenter --net={SANDBOX_MOUNT} ip link"))
    );
    // Only a daemon's descriptor keeps it, and nothing tells whose it was.
    story[2] = held_by_fds(3, 100, &[leaked_fd(7)]);
    let found = trapped(&story).unwrap();
    assert!(found.title.ends_with("an empty netns"), "{}", found.title);
    assert!(found.advice.last().unwrap().contains("--net=/proc/77/fd/7"));
}

#[test]
fn a_device_is_not_known_to_be_trapped_while_the_runtime_does_not_tell_all() {
    let mut story = unused(SANDBOX_MOUNT);
    story.push(attached(6, &[attachment("sandbox-old", Some(100), 5, 4)]));
    assert_eq!(trapped(&story).unwrap().severity, Severity::Warning);
    for silent in [half_of_cri(7, &[]), cri_fails(7)] {
        let found = trapped(&[&story[..], &[silent]].concat()).unwrap();
        assert_eq!(found.severity, Severity::Info);
        assert!(found.unknown[0].contains("CRI"), "{:?}", found.unknown);
    }
}

#[test]
fn a_device_is_told_apart_from_what_programs_make() {
    for bend in [
        |device: &mut Device| device.hardware = None,
        |device: &mut Device| device.kind = Some("ipvlan".into()),
    ] {
        let mut story = unused(SANDBOX_MOUNT);
        if let What::NetnsDevices { devices, .. } = &mut story[4].what {
            bend(&mut devices[1]);
        }
        assert_eq!(trapped(&story), None);
    }
}

#[test]
fn a_device_that_somebody_uses_or_has_put_there_is_none() {
    for mount in ["/run/netns/blue", "/run/docker/netns/8d0f2b1c3a4e"] {
        assert_eq!(trapped(&unused(mount)), None, "{mount}");
    }
    let mut story = unused(SANDBOX_MOUNT);
    story[2] = holders(3, 100, &[task(9, "dpdk")], &[SANDBOX_MOUNT]);
    assert_eq!(trapped(&story), None, "a task is in it");
    let mut story = unused(SANDBOX_MOUNT);
    story[3] = cri(4, &[sandbox("a", 100, OLD)]);
    assert_eq!(trapped(&story), None, "its sandbox is ready");
    let mut story = unused(SANDBOX_MOUNT);
    story[4] = devices(5, 1, &[physical(6, "eth1")], &[], &[]);
    assert_eq!(trapped(&story), None, "it is on the host");
}

#[test]
fn add_and_del_move_devices() {
    let mut story = unused(SANDBOX_MOUNT);
    for event in &mut story {
        event.time = s(NOW);
    }
    assert_eq!(trapped(&story), None, "it may just be set up");
    let stopped = RuntimeSandbox {
        ready: Some(false),
        ..sandbox("a", 100, OLD)
    };
    story[3] = at(NOW, cri(0, &[stopped]).what);
    assert_eq!(trapped(&story), None, "it may just be removed");
}

#[test]
fn devices_of_unknown_hardware_are_told_apart_by_name() {
    let device = |index, name: &str| Device {
        hardware: Some("unknown".into()),
        ..physical(index, name)
    };
    let mut story = unused(SANDBOX_MOUNT);
    story[4] = devices(5, 100, &[device(6, "eth1"), device(7, "eth2")], &[], &[]);
    let told = Node::of(&story).of_rule(NOW, Rule::TrappedDevice);
    assert_eq!(told.len(), 2, "{told:#?}");
}

#[test]
fn a_device_may_be_a_stopped_sandboxs_that_the_runtime_does_not_place() {
    let mut story = unused("/run/docker/netns/8d0f2b1c3a4e");
    story[2] = held_by_fds(NOW - 30, 100, &[leaked_fd(3)]);
    assert!(trapped(&story).is_some(), "the runtime has none");
    let stopped = RuntimeSandbox {
        ready: Some(false),
        netns: None,
        ..sandbox("sandbox-old", 100, OLD)
    };
    story[3] = cri(NOW - 20, &[stopped]);
    assert_eq!(trapped(&story), None, "it may be on its way out");
    story[2] = held_by_fds(NOW - 61, 100, &[leaked_fd(3)]);
    assert!(trapped(&story).is_some(), "it is not");
}
