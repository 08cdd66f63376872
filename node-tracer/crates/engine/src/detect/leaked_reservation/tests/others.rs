//! Stores that are not host-local's.

use super::*;
use event::{Attachment, PodRef, Reservation, Store, StoreKind};

/// A store of a kind, with 10.0.0.LAST for each container.
fn store(seconds: i64, kind: StoreKind, reservations: &[(u8, &str)]) -> Event {
    let path = match kind {
        StoreKind::HostLocal => STORE,
        StoreKind::Terway => "/var/lib/cni/terway/ResRelation.db",
        StoreKind::Aws => "/var/run/aws-node/ipam.json",
        StoreKind::Calico => "crd.projectcalico.org/v1/ipamblocks",
        StoreKind::Whereabouts => "whereabouts.cni.cncf.io/v1alpha1/ippools",
        StoreKind::Cilium => "/var/run/cilium/deleteQueue",
    };
    let one = |(last, id): &(u8, &str)| {
        let mut each = reserve((*last, id, -90));
        each.holder.path = path.into();
        each.holder.pod = Some(PodRef {
            namespace: Some("shop".into()),
            name: Some(format!("web-{last}")),
            uid: None,
        });
        each
    };
    let store = Store {
        path: path.into(),
        kind,
        reservations: reservations.iter().map(one).collect::<Vec<Reservation>>(),
        ..Store::default()
    };
    at(seconds, What::StoreListed { store })
}

fn of(kind: StoreKind, ipam: &str, reservations: &[(u8, &str)]) -> Vec<Event> {
    let mut network = network("main", &[]);
    (network.ipam, network.store) = (Some(ipam.into()), None);
    with(vec![
        networks(3, &[network]),
        containers(3, "cgroup", &["lives"]),
        store(10, kind, reservations),
    ])
}

#[test]
fn each_store_is_freed_by_those_whose_it_is() {
    let cases = [
        (StoreKind::Terway, "terway", "terway-cli mapping"),
        (StoreKind::Aws, "aws-cni", "spec.nodeName=node-1"),
        (
            StoreKind::Calico,
            "calico-ipam",
            "calicoctl ipam release --ip=10.0.0.5",
        ),
    ];
    for (kind, ipam, advice) in cases {
        let found = leak(&of(kind, ipam, &[(5, "gone"), (6, "lives")])).unwrap();
        assert_eq!(found.severity, Severity::Warning, "{ipam}");
        assert_eq!(found.addresses, [ip(5)]);
        assert!(
            found.title.contains(": 1 of 2 IPs is reserved for "),
            "{}",
            found.title
        );
        let has = |text: &str| found.advice.iter().any(|step| step.contains(text));
        assert!(has(advice), "{:#?}", found.advice);
        assert!(
            !has("flock") && !has("mv ") && !has("rm "),
            "{:#?}",
            found.advice
        );
        let all = serde_json::to_string(&found).unwrap();
        assert!(
            !all.contains("host-local") && !all.contains("file is empty"),
            "{all}"
        );
        assert!(found.evidence.iter().any(|it| it.source == kind.as_str()));
        assert!(
            found
                .evidence
                .iter()
                .any(|it| it.claim == "10.0.0.5 was reserved for gone (eth0) of shop/web-5"),
            "{:#?}",
            found.evidence
        );
    }
}

#[test]
fn foreign_names_are_not_put_into_commands() {
    let mut story = of(StoreKind::Terway, "terway", &[(5, "$(reboot)")]);
    if let Some(What::StoreListed { store }) = story.last_mut().map(|event| &mut event.what) {
        let pod = PodRef {
            namespace: Some("a b".into()),
            name: Some("$(reboot)".into()),
            uid: None,
        };
        store.reservations[0].holder.pod = Some(pod);
    }
    let found = leak(&story).unwrap();
    assert!(
        found.advice.iter().all(|step| !step.contains("reboot")),
        "{:#?}",
        found.advice
    );
}

#[test]
fn a_store_that_no_network_names_is_left_over() {
    let found = leak(&of(StoreKind::Aws, "host-local", &[(5, "gone")])).unwrap();
    assert_eq!(found.severity, Severity::Info);
    assert!(found.advice[0].starts_with("nothing to do"));
}

#[test]
fn an_allocation_that_names_no_container_is_no_leak() {
    assert_eq!(leak(&of(StoreKind::Terway, "terway", &[(5, "")])), None);
    let found = leak(&of(StoreKind::Terway, "terway", &[(5, ""), (6, "gone")])).unwrap();
    assert_eq!(found.addresses, [ip(6)]);
    let claims = found.evidence.iter();
    assert_eq!(
        claims
            .filter(|it| it.claim.contains("no container is named"))
            .count(),
        1
    );
}

#[test]
fn in_a_store_of_all_nodes_only_this_nodes_containers_count() {
    let story = of(
        StoreKind::Whereabouts,
        "whereabouts",
        &[(5, "gone"), (6, "another")],
    );
    assert_eq!(leak(&story), None, "nothing shows that they were here");
    let cached = Attachment {
        netns: None,
        ..attachment("gone", None, 5, -90)
    };
    let found = leak(&[story, vec![attached(11, &[cached])]].concat()).unwrap();
    assert_eq!(found.addresses, [ip(5)]);
    assert!(found.advice.iter().any(|step| step.contains("reconciler")));
    let elsewhere = |it: &&event::finding::Evidence| it.claim.contains("all nodes share");
    assert_eq!(found.evidence.iter().filter(elsewhere).count(), 1);
}

#[test]
fn a_store_that_is_watched_is_as_it_was_listed_unless_it_fails() {
    let mut story = of(StoreKind::Terway, "terway", &[(5, "gone")]);
    // Listed before the runtime's last word, and unchanged since.
    story.push(cri(20, &[]));
    assert!(leak(&story).is_some());
    let fails = |seconds| {
        let what = What::SourceFailed {
            source: "terway".into(),
            error: "is written all the time".into(),
        };
        at(seconds, what)
    };
    story.push(fails(30));
    assert_eq!(leak(&story), None);
    assert!(gap(&story).is_some());
    story.push(store(40, StoreKind::Terway, &[(5, "gone")]));
    assert!(leak(&story).is_some(), "it answers again");
}

#[test]
fn what_was_given_back_just_now_may_still_be_listed() {
    let call = event::CniCall {
        netns: None,
        ..call("DEL", "gone", 100, OLD, "checkout-x8k2p")
    };
    let after = |kind, ipam: &str, seconds: i64, again: &[Event]| {
        let story = of(kind, ipam, &[(5, "gone")]);
        let calls = vec![
            calls(seconds - 1, call.clone()),
            ended(seconds, call.clone()),
        ];
        leak(&[story, calls, again.to_vec()].concat())
    };
    let file = |seconds| after(StoreKind::Terway, "terway", seconds, &[]);
    assert_eq!(file(NOW - 30), None);
    assert!(file(NOW - 90).is_some());
    // Of the API's lists only those that came later count for so long.
    let api = |again: &[Event]| after(StoreKind::Calico, "calico-ipam", NOW - 90, again);
    assert_eq!(api(&[]), None);
    let again = store(NOW - 20, StoreKind::Calico, &[(5, "gone")]);
    assert!(api(&[again]).is_some());
}

#[test]
fn a_range_is_host_locals_alone() {
    let mut story = of(StoreKind::HostLocal, "host-local", &[]);
    story.push(networks(11, &[network("bridge", &[range(5, 5)])]));
    let exhausted = |story: &[Event]| {
        let told = Node::of(story).of_rule(NOW, Rule::RangeExhausted);
        told.len()
    };
    let mut other = store(12, StoreKind::Terway, &[(5, "gone")]);
    if let What::StoreListed { store } = &mut other.what {
        store.path = STORE.into();
    }
    assert_eq!(exhausted(&[story.clone(), vec![other]].concat()), 0);
    story.push(store(12, StoreKind::HostLocal, &[(5, "gone")]));
    assert_eq!(exhausted(&story), 1);
}
