//! What goes just after a DEL need not be that DEL's work.

use super::*;

/// The old sandbox's DEL by a plugin, from 20 to 21, and what happens then;
/// what is found at 33.
fn after(plugin: &str, tale: &[Event]) -> Option<(Effect, Finding)> {
    let by = |call: CniCall| CniCall {
        plugin: String::from(plugin),
        ..call
    };
    let dels = vec![calls(20, by(old_del())), ended(21, by(old_del()))];
    told(&[two(), dels, tale.to_vec()].concat())
}

fn told(story: &[Event]) -> Option<(Effect, Finding)> {
    let mut found = Node::of(story).of_rule(33, RULE);
    let (finding, _) = found.pop()?;
    assert!(found.is_empty(), "{found:#?}");
    Some((finding.detail.effect.unwrap(), finding))
}

/// A pod, or a person in it: `ip address flush dev eth0`, with which the routes
/// go; the device and the host-side end stay.
fn flushed(seconds: i64) -> Vec<Event> {
    let eth0 = [veth(3, "eth0", 8)];
    let end = [veth(8, "cali1", 3)];
    vec![
        removed(seconds, 200, 5),
        devices(seconds + 1, 200, &eth0, &[], &[]),
        outside(seconds + 1, &end, &[5]),
        devices(31, 200, &eth0, &[], &[]),
        outside(31, &end, &[5]),
    ]
}

/// The host-side end is deleted, and the pod's end goes with it.
fn cut(seconds: i64) -> Vec<Event> {
    vec![
        removed(seconds, 200, 5),
        devices(seconds + 1, 200, &[], &[], &[]),
        outside(seconds + 1, &[], &[]),
        devices(31, 200, &[], &[], &[]),
        outside(31, &[], &[]),
    ]
}

#[test]
fn a_plugin_that_goes_by_the_container_takes_nothing_of_another_sandbox() {
    for plugin in ["bridge", "ptp", "macvlan", "cilium-cni", "flannel"] {
        for tale in [flushed(21), flushed(25), cut(22)] {
            let (effect, finding) = after(plugin, &tale).unwrap();
            assert_eq!(effect, Effect::Harmless, "{plugin}: {finding:#?}");
            let claims: Vec<&str> = finding
                .evidence
                .iter()
                .map(|it| it.claim.as_str())
                .collect();
            let other = "10.0.0.5; this DEL cannot have taken it";
            assert!(
                claims.iter().any(|claim| claim.ends_with(other)),
                "{claims:?}"
            );
        }
    }
}

#[test]
fn the_runtimes_second_del_explains_no_flush() {
    let second = |plugin: &str| {
        let by = |call: CniCall| CniCall {
            plugin: String::from(plugin),
            ..call
        };
        let mut story = two();
        story.insert(4, calls(4, by(old_del())));
        story.insert(5, ended(5, by(old_del())));
        story.extend([calls(20, by(old_del())), ended(21, by(old_del()))]);
        story.extend(flushed(23));
        told(&story)
    };
    assert!(second("bridge").is_none());
    assert!(second("calico").is_none());
    let (effect, finding) = second("some-cni").unwrap();
    assert_eq!(effect, Effect::Unknown);
    assert_eq!(finding.severity, Severity::Info);
}

#[test]
fn what_a_plugin_keeps_under_the_pods_name_can_go_with_it() {
    for plugin in ["calico", "terway", "some-cni"] {
        let (effect, finding) = after(plugin, &cut(22)).unwrap();
        assert_eq!(effect, Effect::Harmful, "{plugin}: {finding:#?}");
        assert!(
            finding.title.contains("its address 10.0.0.5"),
            "{}",
            finding.title
        );
    }
}

#[test]
fn an_address_that_goes_alone_goes_by_a_del_only_while_it_runs() {
    let (effect, _) = after("calico", &flushed(21)).unwrap();
    assert_eq!(effect, Effect::Harmful);
    let (effect, _) = after("calico", &flushed(24)).unwrap();
    assert_eq!(effect, Effect::Harmless);
    let (effect, finding) = after("some-cni", &flushed(24)).unwrap();
    assert_eq!(effect, Effect::Unknown);
    assert!(
        finding.unknown[0].contains("the pod, a person or an agent"),
        "{:?}",
        finding.unknown
    );
    // Whether the device went with it was not looked at.
    let (effect, _) = after("calico", &[removed(24, 200, 5)]).unwrap();
    assert_eq!(effect, Effect::Unknown);
}

#[test]
fn a_device_whose_host_end_is_there_was_moved_by_the_pod() {
    let end = [veth(8, "cali1", 3)];
    let renamed = devices(23, 200, &[veth(3, "ext0", 8)], &[], &[]);
    let (effect, _) = after("calico", &[renamed, outside(31, &end, &[5])]).unwrap();
    assert_ne!(effect, Effect::Harmful);
}

#[test]
fn the_delegates_of_a_meta_plugin_tell_what_it_goes_by() {
    let by = |plugin: &str, delegated: bool| CniCall {
        plugin: String::from(plugin),
        delegated,
        pid: if delegated { 98 } else { 99 },
        ..old_del()
    };
    let with = |delegate: &str| {
        let all = [by("multus", false), by(delegate, true)];
        let dels = all
            .iter()
            .flat_map(|call| [calls(20, call.clone()), ended(21, call.clone())]);
        told(&[two(), dels.collect(), cut(22)].concat()).unwrap().0
    };
    assert_eq!(with("bridge"), Effect::Harmless);
    assert_eq!(with("calico"), Effect::Harmful);
    // Which it had called was not seen.
    assert_eq!(after("multus", &cut(22)).unwrap().0, Effect::Unknown);
}

#[test]
fn with_the_newer_sandboxs_own_namespace_any_plugin_reaches_it() {
    // A path of a process that has the number of the old one's.
    let del = CniCall {
        plugin: String::from("bridge"),
        netns: Some(ns(200)),
        netns_path: String::from("/proc/77/ns/net"),
        ..old_del()
    };
    let dels = vec![calls(20, del.clone()), ended(21, del)];
    let (effect, _) = told(&[two(), dels, cut(21)].concat()).unwrap();
    assert_eq!(effect, Effect::Harmful);
}

#[test]
fn a_third_sandbox_of_the_name_can_have_taken_over() {
    let third = CniCall {
        plugin: String::from("calico"),
        ..call("ADD", "third", 300, OTHER, "db-0")
    };
    let tale = [vec![created(21, 300), calls(21, third)], cut(22)].concat();
    let (effect, _) = after("calico", &tale).unwrap();
    assert_eq!(effect, Effect::Unknown);
}
