//! What a ghost leads to, by what gives the addresses out.

use std::path::PathBuf;

use super::*;
use event::{CniCall, Network, Reservation, Store, StoreKind};

/// Where a store that is not host-local's is.
const DB: &str = "/var/lib/cni/store.db";

/// The pod's network has its addresses from there.
fn configured(plugin: &str, ipam: &str) -> Event {
    let network = Network {
        ipam: (!ipam.is_empty()).then(|| ipam.to_owned()),
        store: None,
        ..network(plugin, &[])
    };
    networks(0, &[network])
}

fn holder(container: &str) -> event::ReservationHolder {
    event::ReservationHolder {
        path: PathBuf::from(DB),
        ..reservation(container)
    }
}

/// The store as it is listed, with 10.0.0.5 for a container.
fn listed_store(seconds: i64, kind: StoreKind, container: &str) -> Event {
    let store = Store {
        path: PathBuf::from(DB),
        kind,
        reservations: vec![Reservation {
            address: ip(5),
            holder: holder(container),
            modified: s(4),
        }],
        ..Store::default()
    };
    at(seconds, What::StoreListed { store })
}

/// What it says of 10.0.0.5.
fn told(seconds: i64, container: Option<&str>) -> Event {
    let what = What::Reservation {
        address: ip(5),
        stores: vec![PathBuf::from(DB)],
        holder: container.map(holder),
    };
    at(seconds, what)
}

/// The incident where such a store holds the address for the ghost, and where
/// what was called for it names no IPAM.
fn stored_in(kind: StoreKind) -> Vec<Event> {
    let mut story = without(|what| matches!(what, What::Reservation { .. }));
    story.push(listed_store(61, kind, "sandbox-old"));
    story.push(told(61, Some("sandbox-old")));
    story
}

/// The incident where no store answers.
fn untold_by(network: Event) -> Vec<Event> {
    let mut story = without(|what| matches!(what, What::Reservation { .. }));
    story.insert(1, network);
    story
}

/// The incident where the calls for the ghost were such.
fn called(bend: impl Fn(&mut CniCall)) -> Vec<Event> {
    let mut story = without(|what| matches!(what, What::Reservation { .. }));
    for event in &mut story {
        if let What::CniStarted { call } | What::CniCall { call, .. } = &mut event.what {
            bend(call);
        }
    }
    story
}

fn claimed(finding: &Finding, part: &str) -> bool {
    finding
        .evidence
        .iter()
        .any(|claim| claim.claim.contains(part))
}

#[test]
fn terways_is_due_before_it_is_given_out_and_goes_through_each_phase() {
    let mut node = Node::of(&stored_in(StoreKind::Terway));
    let (first, _) = node.only(67, GHOST, State::Open);
    assert_eq!(
        (phase(&first), first.severity, first.detail.due),
        (Phase::Suspected, Severity::Warning, Some(s(360)))
    );
    let end = format!("Terway frees it by {}", s(360).time_of_day());
    assert!(first.title.ends_with(&end), "{}", first.title);
    assert!(
        claimed(&first, "Terway frees the IP"),
        "{:#?}",
        first.evidence
    );
    assert!(
        first.advice[0].contains("kubectl cordon node-1"),
        "before it hurts"
    );
    assert!(said(
        &first.advice,
        "do not rely on the reservation of 10.0.0.5"
    ));
    assert!(!said(&first.advice, "leave the reservation"));
    assert!(first.unknown.is_empty(), "{:?}", first.unknown);

    node.tell(told(200, None));
    let (armed, _) = node.only(201, GHOST, State::Updated);
    assert_eq!(
        (phase(&armed), armed.severity, armed.detail.due),
        (Phase::Armed, Severity::Critical, Some(s(200)))
    );
    assert!(!said(&armed.advice, "do not rely"), "{:?}", armed.advice);

    let mut next = successor(210);
    next.retain(|event| !matches!(event.what, What::Reservation { .. }));
    next.push(told(210, Some("sandbox-new")));
    node.tell_all(&next);
    let (conflict, _) = node.only(211, GHOST, State::Updated);
    assert_eq!(phase(&conflict), Phase::Conflict);
    assert_eq!(conflict.id, first.id);
}

#[test]
fn what_is_overdue_is_said_to_be() {
    let mut node = Node::of(&stored_in(StoreKind::Terway));
    node.only(67, GHOST, State::Open);
    let late = ghost(&stored_in(StoreKind::Terway), 400).unwrap();
    assert_eq!(
        (phase(&late), late.detail.due),
        (Phase::Suspected, Some(s(360)))
    );
    assert!(
        late.title.contains("should have freed it"),
        "{}",
        late.title
    );
    assert_eq!(node.0.pending(), Some(s(360)), "the title changes then");
}

#[test]
fn terway_gives_it_to_a_pod_of_the_same_name_at_once() {
    let new = pod("checkout-x8k2p", NEW, &[]);
    let of = |other: &Pod| {
        let mut story = stored_in(StoreKind::Terway);
        story.push(listed(64, &[pod("other", OTHER, &[ip(9)]), other.clone()]));
        ghost(&story, 67).unwrap()
    };
    let claimed = of(&new);
    assert_eq!(
        (phase(&claimed), claimed.severity, claimed.detail.due),
        (Phase::Armed, Severity::Critical, Some(s(60)))
    );
    let title = "Terway gives it to its namesake";
    assert!(claimed.title.ends_with(title), "{}", claimed.title);

    let elsewhere = Pod {
        node: Some("node-2".into()),
        ..new.clone()
    };
    let served = Pod {
        ips: vec![ip(77)],
        ..new.clone()
    };
    for other in [elsewhere, served] {
        let finding = of(&other);
        assert_eq!(
            (phase(&finding), finding.detail.due),
            (Phase::Suspected, Some(s(360)))
        );
    }
}

#[test]
fn calicos_is_due_after_its_grace_period() {
    let finding = ghost(&stored_in(StoreKind::Calico), 67).unwrap();
    assert_eq!(
        (phase(&finding), finding.detail.due),
        (Phase::Suspected, Some(s(960)))
    );
    assert!(
        finding.title.contains("Calico frees it by"),
        "{}",
        finding.title
    );
    assert!(claimed(&finding, "kube-controllers"));
    assert!(said(
        &finding.advice,
        "Calico can give the IP to a pod on any node"
    ));
    // Without the API, nothing happens before that either.
    let story = untold_by(configured("calico", "calico-ipam"));
    let early = ghost(&story, 900).unwrap();
    assert_eq!(
        (phase(&early), early.detail.due),
        (Phase::Suspected, Some(s(960)))
    );
    assert!(said(
        &early.unknown,
        "the store of its IPAM could not be read"
    ));
    let late = ghost(&story, 960).unwrap();
    assert_eq!(phase(&late), Phase::Suspected, "nobody saw it free");
    assert!(
        late.title.contains("should have freed it"),
        "{}",
        late.title
    );
}

#[test]
fn nothing_is_due_at_a_time_that_depends_on_when_the_pod_was_first_missed() {
    // The first list that there is does not have it.
    for kind in [StoreKind::Calico, StoreKind::Terway] {
        let mut story = stored_in(kind);
        story.retain(|event| event.time != s(6));
        let finding = ghost(&story, 67).unwrap();
        assert_eq!(finding.detail.due, None, "{kind:?}");
        assert!(
            finding.title.ends_with("frees it, unknown when"),
            "{}",
            finding.title
        );
    }
}

#[test]
fn antreas_agent_frees_what_host_local_has_when_it_starts() {
    let mut story = stored_in(StoreKind::HostLocal);
    story.insert(1, configured("antrea", "host-local"));
    let finding = ghost(&story, 5_000).unwrap();
    assert_eq!(
        (phase(&finding), finding.detail.due),
        (Phase::Suspected, None)
    );
    assert!(!finding.title.contains("leak"), "{}", finding.title);
    assert!(said(&finding.unknown, "when antrea-agent restarts"));
}

#[test]
fn what_no_pool_gives_out_is_said() {
    let finding = ghost(&untold_by(configured("macvlan", "static")), 5_000).unwrap();
    assert_eq!(
        (phase(&finding), finding.detail.due),
        (Phase::Suspected, None)
    );
    assert!(said(&finding.unknown, "no pool"), "{:?}", finding.unknown);
}

#[test]
fn whereabouts_takes_it_back_at_once_or_within_a_day() {
    let finding = ghost(&stored_in(StoreKind::Whereabouts), 67).unwrap();
    let day = 24 * 3600;
    assert_eq!(
        (phase(&finding), finding.detail.due),
        (Phase::Suspected, Some(s(60 + day)))
    );
    assert!(claimed(&finding, "control loop"));
    assert!(
        said(&finding.unknown, "once a day"),
        "{:?}",
        finding.unknown
    );
    let untold = ghost(&untold_by(configured("macvlan", "whereabouts")), 67).unwrap();
    assert_eq!(phase(&untold), Phase::Suspected, "nobody saw it free");
}

#[test]
fn what_only_del_releases_is_a_leak_and_never_due() {
    for (kind, name) in [
        (StoreKind::HostLocal, "host-local"),
        (StoreKind::Aws, "AWS"),
        (StoreKind::Cilium, "Cilium"),
    ] {
        let finding = ghost(&stored_in(kind), 5_000).unwrap();
        assert_eq!(
            (phase(&finding), finding.detail.due),
            (Phase::Suspected, None),
            "{kind:?}"
        );
        assert_eq!(finding.severity, Severity::Warning);
        let end = "; leak: reserved until CNI DEL runs";
        assert!(finding.title.ends_with(end), "{}", finding.title);
        assert!(
            claimed(&finding, name) && claimed(&finding, "by CNI DEL"),
            "{kind:?}"
        );
        assert!(said(&finding.advice, "leave the reservation of 10.0.0.5"));
        assert!(said(&finding.advice, "node-tracer repair --plan"));
        assert!(!said(&finding.advice, "cordon"), "nobody is harmed");
        // The same where the store cannot be read.
        let (plugin, ipam) = match kind {
            StoreKind::HostLocal => ("bridge", "host-local"),
            StoreKind::Aws => ("aws-cni", ""),
            _ => ("cilium-cni", "cilium"),
        };
        let untold = ghost(&untold_by(configured(plugin, ipam)), 5_000).unwrap();
        assert_eq!(
            (phase(&untold), untold.detail.due),
            (Phase::Suspected, None),
            "{kind:?}"
        );
        assert!(untold.title.contains("leak: "), "{}", untold.title);
        assert!(said(&untold.unknown, "whether 10.0.0.5 is still reserved"));
    }
}

#[test]
fn a_leak_whose_file_somebody_removes_is_armed() {
    let mut story = stored_in(StoreKind::HostLocal);
    story.push(told(90, None));
    let finding = ghost(&story, 91).unwrap();
    assert_eq!(
        (phase(&finding), finding.detail.due),
        (Phase::Armed, Some(s(90)))
    );
    assert!(
        finding.title.contains("free for others since"),
        "{}",
        finding.title
    );
}

#[test]
fn of_an_ipam_that_is_not_known_that_is_said() {
    let finding = ghost(&untold_by(configured("bridge", "spiderpool")), 67).unwrap();
    assert_eq!(
        (phase(&finding), finding.detail.due),
        (Phase::Suspected, None)
    );
    assert!(
        said(&finding.unknown, "\"spiderpool\""),
        "{:?}",
        finding.unknown
    );
    assert!(claimed(&finding, "gets its IPs from spiderpool"));
    let nothing = without(|what| matches!(what, What::Reservation { .. }));
    let finding = ghost(&nothing, 67).unwrap();
    assert!(said(&finding.unknown, "which IPAM has 10.0.0.5"));
}

#[test]
fn what_was_called_for_the_sandbox_is_believed_before_the_configuration() {
    // The configuration was changed, and what is left of it is host-local's.
    let of = |mut story: Vec<Event>| {
        story.insert(1, configured("bridge", "host-local"));
        story.push(stored(63, &[(9, "sandbox-other", 4)]));
        ghost(&story, 67).unwrap()
    };
    let by_type = called(|call| call.ipam = Some("calico-ipam".into()));
    assert_eq!(of(by_type).detail.due, Some(s(960)));
    let by_plugin = called(|call| call.plugin = "terway".into());
    let finding = of(by_plugin);
    assert_eq!(finding.detail.due, Some(s(360)));
    let claim = finding
        .evidence
        .iter()
        .find(|claim| claim.claim.contains("Terway"));
    let claim = claim.unwrap();
    assert_eq!((claim.source.as_str(), claim.at), ("cni", s(4)));
    assert!(
        claim
            .claim
            .starts_with("CNI ADD for sandbox-old had its IP from Terway; ")
    );
    // A main plugin's IPAM is the one it names.
    let delegated = called(|call| {
        call.plugin = "cilium-cni".into();
        call.ipam = Some("calico-ipam".into());
    });
    assert_eq!(of(delegated).detail.due, Some(s(960)));
    let silent = called(|_| {});
    assert_eq!(
        of(silent).detail.due,
        None,
        "host-local, by the configuration"
    );
}

#[test]
fn an_address_of_another_interface_is_not_the_networks() {
    let mut story = untold_by(configured("bridge", "host-local"));
    for event in &mut story {
        if let What::AddressAdded { address, .. } = &mut event.what {
            address.ifname = "net1".into();
        }
    }
    let finding = ghost(&story, 67).unwrap();
    assert!(
        said(&finding.unknown, "which IPAM has 10.0.0.5"),
        "{:?}",
        finding.unknown
    );
}

#[test]
fn a_left_over_store_frees_nothing_of_another_ipams() {
    let mut story = stored_in(StoreKind::Terway);
    story.retain(|event| !matches!(event.what, What::Reservation { .. }));
    story.push(reserved(64, None));
    let finding = ghost(&story, 67).unwrap();
    assert!(
        !finding.title.contains("since"),
        "host-local never had it: {}",
        finding.title
    );
    assert_eq!(finding.detail.due, Some(s(360)));
}

#[test]
fn while_the_pod_is_listed_nothing_is_due() {
    let mut story = stored_in(StoreKind::Terway);
    let terminating = Pod {
        deletion: Some(s(70)),
        ..pod("checkout-x8k2p", OLD, &[ip(5)])
    };
    story.push(listed(64, &[pod("other", OTHER, &[ip(9)]), terminating]));
    let finding = ghost(&story, 1_000).unwrap();
    assert_eq!(
        (phase(&finding), finding.detail.due),
        (Phase::Suspected, None)
    );
    assert!(
        finding.title.ends_with(" and still reserved for it"),
        "{}",
        finding.title
    );
}

#[test]
fn calicos_set_aside_is_one_line_of_shell_with_a_whole_manifest() {
    let finding = ghost(&stored_in(StoreKind::Calico), 67).unwrap();
    let step = &finding.advice[0];
    // A shell takes what is quoted as it is, and so does its echo.
    let quoted = step.strip_prefix("echo '").unwrap();
    let (quoted, rest) = quoted.split_once('\'').unwrap();
    assert!(rest.starts_with(" | calicoctl create -f -    # ") && !rest.contains('\''));
    assert!(!quoted.contains('\\'), "{quoted}");
    let manifest: serde_json::Value = serde_json::from_str(quoted).unwrap();
    let expected = serde_json::json!({
        "apiVersion": "projectcalico.org/v3",
        "kind": "IPReservation",
        "metadata": { "name": "ghost-10-0-0-5" },
        "spec": { "reservedCIDRs": ["10.0.0.5/32"] },
    });
    assert_eq!(manifest, expected);
    let undo = "calicoctl delete ipreservation ghost-10-0-0-5 ";
    assert!(finding.advice.iter().any(|step| step.starts_with(undo)));
}
