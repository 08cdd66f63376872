//! What a look shows of one operation: there, gone, or not seen.

use super::*;

fn effect_of(found: &Found, attachment: &mut Attachment, command: &str) -> CniEffect {
    let sights = Observations {
        found,
        host: Some(1),
    };
    sights.effect(attachment, &key("new"), &command.into())
}

fn told(effect: &CniEffect) -> Vec<(TraceKind, &str, Option<bool>)> {
    let traces = effect.traces.iter();
    traces
        .map(|it| (it.kind, it.name.as_str(), it.there))
        .collect()
}

fn all(there: Option<bool>) -> [(TraceKind, &'static str, Option<bool>); 4] {
    [
        (TraceKind::Address, "10.0.0.5", there),
        (TraceKind::Veth, "veth1", there),
        (TraceKind::Route, "10.0.0.5", there),
        (
            TraceKind::Reservation,
            "/var/lib/cni/networks/pods/10.0.0.5",
            there,
        ),
    ]
}

fn new_sandbox() -> Attachments {
    let mut known = Attachments::new(procfs(), Path::new("/"));
    known.added(&add("new", 200), Some(&result(5)));
    known
}

#[test]
fn an_add_leaves_four_traces_and_a_del_takes_them_away() {
    let mut known = new_sandbox();
    let attachment = known.get_mut(&key("new")).unwrap();
    let effect = effect_of(&whole(Some("new")), attachment, "ADD");
    assert_eq!(told(&effect), all(Some(true)));
    assert_eq!(effect.netns, Some(ns(200)));
    assert_eq!(effect.pod.as_ref().unwrap().label(), "shop/db-0");
    // Nothing is there any more.
    let nothing = found(&[visit(1, &[], &[], &[])], None);
    known.netns_gone(ns(200), Instant::now());
    let attachment = known.get_mut(&key("new")).unwrap();
    let effect = effect_of(&nothing, attachment, "DEL");
    assert_eq!(told(&effect), all(Some(false)));
    assert_eq!((effect.netns, effect.failures().count()), (None, 0));
}

#[test]
fn a_pods_host_end_is_known_by_its_number_and_where_the_kernel_says_it_leads() {
    let host_end = |index, name: &str| visit(1, &[veth(index, name, 3)], &[5], &[5]);
    let sandbox = |leads_to: i32| {
        let own = Device {
            link_nsid: Some(leads_to),
            ..veth(3, "eth0", 8)
        };
        Visit {
            home_nsid: Some((1, 0)),
            ..visit(200, &[own], &[5], &[])
        }
    };
    let veth_of = |looks: &[(&str, Visit, Visit)]| {
        let mut known = new_sandbox();
        let attachment = known.get_mut(&key("new")).unwrap();
        let mut last = None;
        for (command, sandbox, host) in looks {
            let effect = effect_of(
                &found(&[sandbox.clone(), host.clone()], None),
                attachment,
                command,
            );
            let mut traces = effect.traces.into_iter();
            last = traces.find(|it| it.kind == TraceKind::Veth);
        }
        last.map(|it| (it.name, it.there))
    };
    let own = || ("ADD", sandbox(0), host_end(8, "own"));
    let told = |name: &str, there| Some((name.to_owned(), there));
    assert_eq!(veth_of(&[own()]), told("own", Some(true)));
    // The numbers of another pod's, on a veth pair that leads elsewhere.
    let others = ("ADD", sandbox(7), host_end(8, "others"));
    assert_eq!(veth_of(&[others]), told("veth1", Some(false)));
    // Another device has its name, and it has another name.
    let renamed = ("DEL", sandbox(0), host_end(8, "renamed"));
    assert_eq!(veth_of(&[own(), renamed]), told("own", Some(true)));
    let without = |host| ("ADD", visit(200, &[], &[], &[]), host);
    let named = without(host_end(9, "own"));
    assert_eq!(veth_of(&[own(), named]), told("own", Some(false)));
}

#[test]
fn a_del_that_has_released_nothing_shows() {
    let mut known = new_sandbox();
    let attachment = known.get_mut(&key("new")).unwrap();
    effect_of(&whole(Some("new")), attachment, "ADD");
    let effect = effect_of(&whole(Some("new")), attachment, "DEL");
    assert_eq!(effect.failures().count(), 4);
    // The address is another's by now.
    let effect = effect_of(&whole(Some("other")), attachment, "DEL");
    let failed: Vec<_> = effect.failures().map(|it| it.kind).collect();
    let own = [TraceKind::Address, TraceKind::Veth, TraceKind::Route];
    assert_eq!(failed, own);
}

#[test]
fn what_could_not_be_looked_at_is_neither_there_nor_gone() {
    let mut known = new_sandbox();
    let attachment = known.get_mut(&key("new")).unwrap();
    effect_of(&whole(Some("new")), attachment, "ADD");
    let silent = Found {
        at: s(9),
        visits: BTreeMap::from([(200, None), (1, None)]),
        lookups: BTreeMap::new(),
    };
    let effect = effect_of(&silent, attachment, "DEL");
    assert_eq!(told(&effect), all(None));
    // What is not on a list that was cut may be there.
    let mut cut = found(&[visit(1, &[], &[], &[]), visit(200, &[], &[], &[])], None);
    for visit in cut.visits.values_mut().flatten() {
        visit.cut = true;
    }
    let effect = effect_of(&cut, attachment, "ADD");
    assert_eq!(told(&effect)[..3], all(None)[..3]);
}

#[test]
fn nothing_is_left_only_if_all_was_looked_at() {
    let mut known = new_sandbox();
    let attachment = known.get_mut(&key("new")).unwrap();
    effect_of(&whole(Some("new")), attachment, "ADD");
    let mut is_clean = |found: &Found| {
        let host = Some(1);
        let sights = Observations { found, host };
        let effect = sights.effect(attachment, &key("new"), &CniCommand::Del);
        sights.is_clean(attachment, &effect)
    };
    let host = || visit(1, &[], &[], &[]);
    // The sandbox itself is waited for.
    assert!(is_clean(&found(&[host()], None)));
    assert!(is_clean(&found(&[host()], Some("other"))));
    assert!(!is_clean(&found(&[host()], Some("new"))));
    assert!(!is_clean(&whole(None)), "its pair is there");
    assert!(!is_clean(&found(&[], None)), "the host was not seen");
    let no_stores = Found {
        lookups: BTreeMap::new(),
        ..found(&[host()], None)
    };
    assert!(!is_clean(&no_stores));
}

#[test]
fn an_add_that_has_not_done_what_it_says_shows() {
    let mut known = new_sandbox();
    let attachment = known.get_mut(&key("new")).unwrap();
    let bare = found(&[visit(1, &[], &[], &[]), visit(200, &[], &[], &[])], None);
    let effect = effect_of(&bare, attachment, "ADD");
    let failed: Vec<_> = effect.failures().map(|it| it.kind).collect();
    // A route on the host is not every CNI's way.
    let kinds = [TraceKind::Address, TraceKind::Veth, TraceKind::Reservation];
    assert_eq!(failed, kinds);
}

#[test]
fn an_interface_that_is_no_cable_has_no_other_end() {
    let mut known = new_sandbox();
    let attachment = known.get_mut(&key("new")).unwrap();
    let ipvlan = Device {
        kind: Some(String::from("ipvlan")),
        ..veth(3, "eth0", 8)
    };
    let visits = [visit(200, &[ipvlan], &[5], &[]), visit(1, &[], &[], &[])];
    let effect = effect_of(&found(&visits, Some("new")), attachment, "ADD");
    let kinds: BTreeSet<_> = effect.traces.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [TraceKind::Address, TraceKind::Reservation].into());
}

#[test]
fn a_sandbox_is_sound_while_it_has_what_it_had() {
    let mut known = new_sandbox();
    let attachment = known.get_mut(&key("new")).unwrap();
    let mut sound = |found: &Found| {
        let effect = effect_of(found, attachment, "ADD");
        let sights = Observations {
            found,
            host: Some(1),
        };
        sights.is_sound(attachment, &effect)
    };
    let with = |state: &str, routes: &[Route]| {
        let mut found = whole(Some("new"));
        let sandbox = found.visits.get_mut(&200).unwrap().as_mut().unwrap();
        sandbox.neighbours = vec![neighbour(3, state)];
        sandbox.routes = routes.to_vec();
        found
    };
    let routes = [default_route(GATEWAY, 3)];
    assert!(sound(&with("permanent", &routes)));
    assert!(!sound(&with("permanent", &[])));
    assert!(!sound(&with("reachable", &routes)), "it was permanent");
    assert!(!sound(&with("failed", &routes)));
    assert!(sound(&with("permanent", &routes)));
    assert!(!sound(&whole(Some("other"))));
}
