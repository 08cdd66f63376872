//! Exact counts, and when they are worth telling.

use std::net::IpAddr;

use crate::testing::Node;
use event::{
    Event, Network, Range, What,
    finding::{Finding, Rule, Severity},
    testing::*,
};

const NOW: i64 = 1_000;

fn all(story: &[Event]) -> Vec<Finding> {
    let told = Node::of(story).of_rule(NOW, Rule::RangeExhausted);
    told.into_iter().map(|(finding, _)| finding).collect()
}

/// The addresses from 2 to LAST are reserved; those up to LEAKED for nobody.
fn node(network: Network, last: u8, leaked: u8) -> Vec<Event> {
    let reservations: Vec<_> = (2..=last)
        .map(|each| (each, if each <= leaked { "gone" } else { "lives" }, -90))
        .collect();
    vec![
        host(0),
        networks(1, &[network]),
        cri(2, &[sandbox("lives", 200, NEW)]),
        stored(10, &reservations),
    ]
}

#[test]
fn a_full_range_is_critical_and_says_what_add_will_say() {
    let story = node(network("bridge", &[range(1, 254)]), 254, 232);
    let [found] = &all(&story)[..] else { panic!() };
    assert_eq!(found.severity, Severity::Critical);
    let detail = &found.detail;
    assert_eq!(
        (detail.used, detail.leaked, detail.size),
        (Some(253), Some(231), Some(253))
    );
    assert_eq!(
        found.title,
        "pods has no IP left: 253 of 253 are reserved, 231 leaked"
    );
    let last = &found.evidence.last().unwrap().claim;
    assert!(
        last.ends_with("no IP addresses available in range set: 10.0.0.1-10.0.0.254"),
        "{last}"
    );
    assert!(found.advice[1].contains("leaked-reservation"));
    assert_eq!(found.unknown.len(), 1, "{:?}", found.unknown);
    assert!(found.unknown[0].ends_with("has maxPods"));
}

#[test]
fn what_is_cordoned_is_uncordoned_whatever_is_known() {
    let mut story = node(network("bridge", &[range(1, 254)]), 254, 232);
    for silent in [false, true] {
        if silent {
            story.push(cri_fails(11));
        }
        let advice = all(&story).remove(0).advice;
        assert!(advice[0].starts_with("kubectl cordon "));
        assert!(advice.last().unwrap().starts_with("kubectl uncordon "));
    }
}

#[test]
fn one_address_in_twenty_is_few() {
    let of = |last| all(&node(network("bridge", &[range(1, 254)]), last, 1));
    // 253 addresses: 12 are few, 13 are not.
    assert_eq!(of(241), []);
    let [found] = &of(242)[..] else { panic!() };
    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(
        (found.detail.used, found.detail.leaked),
        (Some(241), Some(0))
    );
    assert!(found.title.starts_with("pods: 12 of 253 IPs left"));
    assert!(found.advice[0].contains("maxPods"));
}

/// The kubelet runs so many pods at most, and the runtime has so many ready.
fn kubelet(max: u32, ready: usize) -> Vec<Event> {
    let limit = event::MaxPods {
        pods: max,
        file: "/var/lib/kubelet/config.yaml".into(),
    };
    let sandboxes: Vec<_> = (0..ready)
        .map(|place| match place {
            0 => sandbox("lives", 200, NEW),
            _ => sandbox(&format!("s{place}"), 200 + place as u32, OTHER),
        })
        .collect();
    let pods = [pod("a", NEW, &[]), pod("b", OTHER, &[])];
    vec![
        at(1, What::MaxPods { limit }),
        cri(2, &sandboxes),
        listed(3, &pods),
    ]
}

#[test]
fn a_sandbox_whose_pod_is_gone_is_no_pod_that_the_kubelet_counts() {
    let of = |uid: &str, with_list: bool| {
        let mut story = node(network("bridge", &[range(1, 111)]), 111, 1);
        let mut kubelet = kubelet(110, 110);
        if let What::SandboxesListed { sandboxes, .. } = &mut kubelet[1].what {
            sandboxes[9].pod.uid = Some(uid.to_owned());
        }
        kubelet.truncate(if with_list { 3 } else { 2 });
        story.splice(2..3, kubelet);
        all(&story).remove(0)
    };
    let full = of(OTHER, true);
    assert_eq!(full.severity, Severity::Info);
    assert!(full.title.contains("enough for maxPods"), "{}", full.title);
    // One that was force-deleted: another comes, and gets no address.
    assert_eq!(of(OLD, true).severity, Severity::Critical);
    // Without a list of pods that is not known.
    let unlisted = of(OTHER, false);
    assert_eq!(unlisted.severity, Severity::Info);
    assert!(!unlisted.title.contains("enough for maxPods"));
    let mut unknown = unlisted.unknown.iter();
    assert!(unknown.any(|it| it.starts_with("how many pods the node runs")));
}

#[test]
fn a_range_that_has_an_address_for_each_pod_that_can_come_lacks_none() {
    let with = |last: u8, leaked: u8, max: u32, ready: usize| {
        let mut story = node(network("bridge", &[range(1, 111)]), last, leaked);
        story.splice(2..3, kubelet(max, ready));
        let [found] = <[Finding; 1]>::try_from(all(&story)).unwrap();
        found
    };
    // 110 addresses for 110 pods, of which 5 are on the host's network.
    let none = with(106, 1, 110, 110);
    assert_eq!(none.severity, Severity::Info);
    assert!(none.title.contains("enough for maxPods"), "{}", none.title);
    assert!(none.advice[0].starts_with("nothing to do"));
    assert_eq!(with(111, 1, 110, 110).severity, Severity::Info);
    assert_eq!(
        with(106, 1, 110, 105).severity,
        Severity::Info,
        "5 left, 5 may come"
    );
    // One pod has no sandbox yet, and there is no address for it.
    assert_eq!(with(111, 1, 110, 109).severity, Severity::Critical);
    assert_eq!(with(107, 1, 110, 105).severity, Severity::Warning);
    // The range cannot hold what the kubelet would start.
    let small = with(111, 1, 250, 110);
    assert_eq!(small.severity, Severity::Critical);
    let said = |found: &Finding, part: &str| {
        let mut claims = found.evidence.iter();
        assert!(claims.any(|it| it.claim.contains(part)), "{found:#?}");
    };
    said(&small, "more than the range has IPs");
    assert!(
        small.advice[1].contains("250 now, at most 110 fit"),
        "{:?}",
        small.advice
    );
    // It could hold them; leaks have used it up.
    let leaky = with(111, 90, 64, 21);
    assert_eq!(leaky.severity, Severity::Critical);
    said(&leaky, "at least 46 reservations are too many");
}

#[test]
fn without_a_word_of_the_pods_only_those_with_an_address_count() {
    let mut story = node(network("bridge", &[range(1, 111)]), 111, 1);
    story.splice(2..3, kubelet(110, 110).into_iter().take(1));
    story.push(containers(3, "cgroup", &["lives"]));
    let [found] = &all(&story)[..] else { panic!() };
    assert_eq!(found.severity, Severity::Info, "110 have one");
    let silent = |found: &Finding| {
        let mut unknown = found.unknown.iter();
        unknown.any(|it| it.starts_with("how many pods the node runs"))
    };
    assert!(silent(found), "{found:#?}");
    // Some of them can be a deleted pod's.
    assert!(found.title.contains("has no IP left"), "{}", found.title);
    assert!(!found.advice[0].starts_with("nothing to do"));
    story.pop();
    let [found] = &all(&story)[..] else { panic!() };
    assert_eq!(found.severity, Severity::Critical, "nobody tells");
    assert!(silent(found), "{found:#?}");
}

#[test]
fn a_small_range_is_made_to_be_used_up() {
    let of = |last| all(&node(network("bridge", &[range(1, 6)]), last, 1));
    assert_eq!(of(5), [], "one of five is left");
    assert_eq!(of(6)[0].severity, Severity::Critical);
}

#[test]
fn what_is_outside_the_range_and_the_gateway_does_not_count() {
    let mut story = node(network("bridge", &[range(1, 6)]), 5, 1);
    if let What::StoreListed { store } = &mut story[3].what {
        let outside = [(1, "lives", -9), (7, "lives", -9), (200, "gone", -9)];
        store.reservations.extend(outside.map(reserve));
    }
    assert_eq!(all(&story), []);
}

#[test]
fn each_range_set_is_counted_for_itself_and_its_ranges_together() {
    let second = Range {
        set: 1,
        ..range(101, 110)
    };
    let split = network("bridge", &[range(2, 4), range(9, 10), second]);
    let mut story = node(split, 4, 1);
    assert_eq!(all(&story), [], "9 and 10 are left");
    if let What::StoreListed { store } = &mut story[3].what {
        store
            .reservations
            .extend([(9, "lives", -9), (10, "gone", -8)].map(reserve));
        store.last_reserved.push(("0".into(), ip(10)));
    }
    let [found] = &all(&story)[..] else { panic!() };
    assert!(
        found
            .evidence
            .iter()
            .any(|it| it.claim.ends_with("10.0.0.2-10.0.0.4,10.0.0.9-10.0.0.10"))
    );
    assert_eq!(
        (found.detail.used, found.detail.leaked, found.detail.size),
        (Some(5), Some(1), Some(5))
    );
    let claims: Vec<_> = found.evidence.iter().map(|it| it.claim.as_str()).collect();
    assert!(
        claims[1].starts_with("3 of them are reserved"),
        "{claims:?}"
    );
    assert!(
        claims[3].starts_with("2 of them are reserved"),
        "{claims:?}"
    );
    assert!(
        claims[6].starts_with("10.0.0.10 was given out last"),
        "{claims:?}"
    );
}

#[test]
fn a_range_of_ipv6_can_be_larger_than_a_number() {
    let v6 = |text: &str| text.parse::<IpAddr>().unwrap();
    let whole = |first, last| Range {
        first: v6(first),
        last: v6(last),
        gateway: None,
        ..range(1, 1)
    };
    assert_eq!(super::size(&whole("::", "ffff::")), 0xffff << 112 | 1);
    let most = whole("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    assert_eq!(super::size(&most), u128::MAX);
    assert_eq!(super::number(super::size(&most)), u64::MAX);
    assert_eq!(super::size(&whole("fd00::9", "fd00::1")), 0, "upside down");
    let mixed = Range {
        last: ip(9),
        ..whole("fd00::1", "fd00::9")
    };
    assert_eq!(super::size(&mixed), 0);
    let story = node(network("bridge", &[most]), 200, 1);
    assert_eq!(all(&story), []);
}

#[test]
fn without_a_word_of_the_containers_the_leaked_are_unknown() {
    let mut story = node(network("bridge", &[range(1, 6)]), 6, 3);
    story.remove(2);
    let found = all(&story).remove(0);
    assert_eq!((found.detail.used, found.detail.leaked), (Some(5), None));
    assert_eq!(found.unknown[0], "how many are leaked: CRI was not asked");
    assert!(found.advice[1].contains("before you free any"));

    story.push(containers(3, "cgroup", &["lives"]));
    let found = all(&story).remove(0);
    assert_eq!(found.detail.leaked, Some(2));
    assert!(found.title.ends_with("2 perhaps leaked"));
    assert!(found.unknown[0].contains("CRI was not asked"));
}

#[test]
fn a_network_that_two_files_name_is_told_once() {
    let mut story = node(network("bridge", &[range(1, 6)]), 6, 1);
    let twice = [0, 1].map(|_| network("bridge", &[range(1, 6)]));
    story.push(networks(11, &twice));
    assert_eq!(all(&story).len(), 1);
}

#[test]
fn a_network_without_a_listed_store_or_ranges_says_nothing() {
    let mut story = node(network("bridge", &[]), 6, 1);
    assert_eq!(all(&story), []);
    story[1] = networks(1, &[network("bridge", &[range(1, 6)])]);
    story.remove(3);
    assert_eq!(all(&story), []);
}

#[test]
fn what_is_young_or_held_is_not_said_to_be_in_use_by_a_container() {
    let claims = |found: &Finding| -> Vec<String> {
        let all = found.evidence.iter().filter(|each| each.source == "tracer");
        all.map(|each| each.claim.clone()).collect()
    };
    let mut story = node(network("bridge", &[range(1, 6)]), 4, 1);
    if let What::StoreListed { store } = &mut story[3].what {
        let more = [(5, "young", NOW - 9), (6, "gone", -9)];
        store.reservations.extend(more.map(reserve));
    }
    story.extend([found(11, 100), added(12, 100, 6)]);
    let found = all(&story).remove(0);
    assert_eq!(found.detail.leaked, Some(0));
    assert_eq!(
        claims(&found),
        [
            "3 of these are of containers that exist",
            "1 of these are of containers that are gone, but a netns still has the IP",
            "1 of these have no container yet and are younger than a minute",
        ]
    );
    assert!(found.advice[1].contains("whose containers are gone"));
    assert!(
        found
            .advice
            .iter()
            .any(|it| it.starts_with("scan again in a minute: 1 of them"))
    );
    assert!(
        found
            .advice
            .iter()
            .all(|step| !step.contains("nothing to clean up"))
    );

    let used = all(&node(network("bridge", &[range(1, 6)]), 6, 1)).remove(0);
    assert_eq!(claims(&used), ["5 of these are of containers that exist"]);
    assert!(used.advice[1].starts_with("nothing to clean up"));
}

#[test]
fn with_a_namespace_unread_the_leaked_are_apparent() {
    let mut story = node(network("bridge", &[range(1, 6)]), 6, 3);
    story.push(containers(3, "cgroup", &[]));
    story.push(devices(11, 1, &[], &[], &[]));
    let of_scan = |story: &[Event]| {
        let told = Node::of_looks(story).of_rule(NOW, Rule::RangeExhausted);
        told.into_iter().next().unwrap().0
    };
    assert!(of_scan(&story).title.ends_with(", 2 leaked"));
    story.push(found(12, 100));
    let found = of_scan(&story);
    assert!(found.title.ends_with("2 perhaps leaked"));
    assert!(found.unknown[0].ends_with("1 network namespace could not be read"));
}
