//! What is a loss and what is not.

use super::{dels::MAX_DELS, *};
use crate::model::Model;
use event::CniCommand;
use event::{
    Address, CniCall, CniEffect, Device, Event, Route, Trace, TraceKind, What, testing::*,
};

/// Sandbox `new` of pod shop/db-0: 10.0.0.5 in namespace 200, its veth pair to the
/// host, its route there, its gateway.
fn sandbox() -> Vec<Event> {
    let add = call("ADD", "new", 200, NEW, "db-0");
    vec![
        host(0),
        created(1, 200),
        calls(2, add.clone()),
        added(2, 200, 5),
        answered(3, add, 5),
        inside(4, "permanent"),
        outside(4, &[veth(8, "cali1", 3)], &[5]),
    ]
}

fn inside(seconds: i64, state: &str) -> Event {
    let routes = [default_route(GATEWAY, 3)];
    let neighbours = [neighbour(3, state)];
    devices(seconds, 200, &[veth(3, "eth0", 8)], &routes, &neighbours)
}

fn outside(seconds: i64, ends: &[Device], routed: &[u8]) -> Event {
    let routes: Vec<Route> = routed.iter().map(|last| route_to(*last, 8)).collect();
    devices(seconds, 1, ends, &routes, &[])
}

fn told(events: &[Event]) -> Model {
    let mut model = Model::default();
    for event in events {
        model.apply(event);
    }
    model
}

/// What is lost in namespace 200, each with the DEL that it came with.
fn losses(model: &Model) -> Vec<(Kind, String, Option<String>)> {
    let lost = model.lost.of(ns(200));
    let lost = lost.filter_map(|(kind, name, item)| {
        let del = item.loss.as_ref()?.del.as_ref();
        Some((
            kind,
            name.to_owned(),
            del.map(|del| del.container_id.clone()),
        ))
    });
    lost.collect()
}

fn kinds(model: &Model) -> Vec<Kind> {
    losses(model).into_iter().map(|(kind, ..)| kind).collect()
}

fn of(kind: Kind, name: &str) -> Vec<(Kind, String, Option<String>)> {
    vec![(kind, name.to_owned(), None)]
}

fn old_del() -> CniCall {
    CniCall {
        netns: None,
        netns_path: String::new(),
        pid: 99,
        ..call("DEL", "old", 0, OLD, "db-0")
    }
}

#[test]
fn what_is_there_is_not_lost() {
    let mut story = sandbox();
    story.push(inside(9, "permanent"));
    story.push(outside(9, &[veth(8, "cali1", 3)], &[5]));
    let model = told(&story);
    assert_eq!(losses(&model), []);
    let seen = model.lost.of(ns(200)).map(|(kind, _, item)| {
        assert_eq!((item.since, item.seen), (s(4), s(9)), "{kind:?}");
        kind
    });
    let all = [
        Kind::Device,
        Kind::Route,
        Kind::Neighbour,
        Kind::Veth,
        Kind::HostRoute,
    ];
    assert_eq!(seen.collect::<Vec<_>>(), all);
}

#[test]
fn a_route_that_the_kernel_made_of_what_a_pod_advertised_is_nothing_to_lose() {
    let mut story = sandbox();
    for event in &mut story {
        if let What::NetnsDevices { routes, .. } = &mut event.what {
            routes.iter_mut().for_each(|route| route.by_kernel = true);
        }
    }
    story.push(devices(9, 200, &[veth(3, "eth0", 8)], &[], &[]));
    story.push(outside(9, &[veth(8, "cali1", 3)], &[]));
    assert_eq!(losses(&told(&story)), []);
}

#[test]
fn each_thing_is_missed_when_it_goes_and_no_other_with_it() {
    let mut model = told(&sandbox());
    assert!(model.apply(&removed(5, 200, 5)));
    assert_eq!(losses(&model), of(Kind::Address, "10.0.0.5"));

    let model = |event: Event| told(&[sandbox(), vec![event]].concat());
    let gone = model(inside(9, "failed"));
    assert_eq!(losses(&gone), of(Kind::Neighbour, "169.254.1.1"));
    let gone = model(outside(9, &[veth(8, "cali1", 3)], &[]));
    assert_eq!(losses(&gone), of(Kind::HostRoute, "10.0.0.5"));
    let gone = model(outside(9, &[veth(8, "cali2", 77)], &[5]));
    assert_eq!(losses(&gone), of(Kind::Veth, "cali1"));
    let gone = model(devices(
        9,
        200,
        &[veth(3, "eth0", 8)],
        &[],
        &[neighbour(3, "permanent")],
    ));
    assert_eq!(
        kinds(&gone),
        [Kind::Route, Kind::Neighbour],
        "of no gateway"
    );
    let gone = model(devices(9, 200, &[], &[], &[]));
    assert_eq!(kinds(&gone), [Kind::Device, Kind::Route, Kind::Neighbour]);
}

#[test]
fn a_reservation_is_lost_by_a_listing_an_answer_or_a_look() {
    let had = |last: u8| stored(4, &[(last, "new", 2), (9, "other", 1)]);
    let path = format!("{STORE}/10.0.0.5");
    let base = || [sandbox(), vec![had(5)]].concat();
    assert_eq!(losses(&told(&base())), []);
    let lost = |event: Event| losses(&told(&[base(), vec![event]].concat()));
    assert_eq!(
        lost(stored(9, &[(9, "other", 1)])),
        of(Kind::Reservation, &path)
    );
    assert_eq!(lost(reserved(9, None)), of(Kind::Reservation, &path));
    assert_eq!(
        lost(reserved(9, Some("other"))),
        of(Kind::Reservation, &path)
    );
    assert_eq!(lost(reserved(9, Some("new"))), []);
    assert_eq!(lost(effect(9, Some(false))), of(Kind::Reservation, &path));
    assert_eq!(lost(effect(9, None)), []);
    // A store that cannot be read proves nothing.
    let mut unread = stored(9, &[]);
    if let What::StoreListed { store } = &mut unread.what {
        store
            .unread
            .push(String::from("10.0.0.5: input/output error"));
    }
    assert_eq!(lost(unread), []);
    let silent = What::Reservation {
        address: ip(5),
        stores: Vec::new(),
        holder: None,
    };
    assert_eq!(lost(at(9, silent)), []);
}

fn effect(seconds: i64, there: Option<bool>) -> Event {
    let effect = CniEffect {
        command: CniCommand::Add,
        container_id: String::from("new"),
        ifname: String::from("eth0"),
        pod: None,
        netns: Some(ns(200)),
        traces: vec![Trace {
            kind: TraceKind::Reservation,
            name: format!("{STORE}/10.0.0.5"),
            there,
        }],
    };
    at(seconds, What::CniEffect { effect })
}

#[test]
fn what_comes_back_is_not_lost_any_more() {
    let mut model = told(&sandbox());
    model.apply(&removed(5, 200, 5));
    assert!(model.apply(&added(6, 200, 5)));
    assert!(model.apply(&outside(7, &[], &[])));
    assert!(model.apply(&outside(8, &[veth(8, "cali1", 3)], &[5])));
    assert_eq!(losses(&model), []);
    let repaired = model.lost.of(ns(200));
    assert_eq!(repaired.filter(|(.., it)| it.repaired.is_some()).count(), 3);
}

#[test]
fn ordinary_removal_is_no_loss() {
    let del = call("DEL", "new", 200, NEW, "db-0");
    let taken = [
        removed(21, 200, 5),
        devices(22, 200, &[], &[], &[]),
        outside(22, &[], &[]),
    ];
    let own = [sandbox(), vec![calls(20, del.clone())], taken.to_vec()].concat();
    assert_eq!(losses(&told(&own)), []);
    let after = [sandbox(), vec![ended(20, del)], taken.to_vec()].concat();
    assert_eq!(losses(&told(&after)), []);
    // Its namespace goes without any DEL.
    let dies = [sandbox(), vec![dying(20, 200)], taken.to_vec()].concat();
    let model = told(&dies);
    assert_eq!(model.lost.of(ns(200)).count(), 0);
}

#[test]
fn a_loss_comes_with_a_del_of_the_same_pod_name_that_is_recent() {
    let with = |del: CniCall, lost: i64| {
        let tale = [
            calls(20, del.clone()),
            ended(21, del),
            outside(lost, &[veth(8, "cali1", 3)], &[]),
        ];
        let lost = losses(&told(&[sandbox(), tale.to_vec()].concat()));
        let [(Kind::HostRoute, _, del)] = lost.as_slice() else {
            panic!("{lost:?}")
        };
        del.clone()
    };
    let old = Some(String::from("old"));
    assert_eq!(with(old_del(), 21), old);
    assert_eq!(with(old_del(), 36), old);
    assert_eq!(with(old_del(), 37), None);
    let mut other = old_del();
    other.pod = Some(PodRef {
        namespace: Some(String::from("test")),
        ..a_pod(OLD, "db-0")
    });
    assert_eq!(with(other, 21), None, "of another namespace");
    assert_eq!(with(call("DEL", "old", 0, OLD, "db-1"), 21), None);
    let delegated = CniCall {
        delegated: true,
        ..old_del()
    };
    assert_eq!(with(delegated, 21), None);
    let stranger = CniCall {
        trusted: false,
        ..old_del()
    };
    assert_eq!(with(stranger, 21), None);
}

#[test]
fn a_del_that_is_told_late_explains_what_was_told_before_it() {
    let mut model = told(&sandbox());
    model.apply(&removed(21, 200, 5));
    assert_eq!(losses(&model)[0].2, None);
    assert!(model.apply(&calls(20, old_del())));
    assert_eq!(losses(&model)[0].2.as_deref(), Some("old"));
    // What was lost before it has nothing to do with it.
    let mut model = told(&sandbox());
    model.apply(&removed(19, 200, 5));
    model.apply(&calls(20, old_del()));
    model.apply(&ended(21, old_del()));
    assert_eq!(losses(&model)[0].2, None);
}

#[test]
fn a_process_number_that_is_used_again_ends_no_other_call() {
    let mut model = told(&sandbox());
    model.apply(&calls(20, old_del()));
    let other = CniCall {
        pid: 99,
        ..call("DEL", "third", 0, OTHER, "db-7")
    };
    model.apply(&ended(21, other));
    model.apply(&removed(60, 200, 5));
    assert_eq!(losses(&model)[0].2.as_deref(), Some("old"), "it still runs");
}

#[test]
fn a_namespace_of_the_same_number_has_lost_nothing() {
    let mut model = told(&sandbox());
    model.apply(&destroyed(20, 200));
    model.apply(&created(21, 200));
    model.apply(&devices(22, 200, &[], &[], &[]));
    model.apply(&outside(22, &[], &[]));
    assert_eq!(losses(&model), []);
}

#[test]
fn what_is_remembered_of_one_sandbox_is_bounded() {
    let mut model = told(&sandbox());
    for i in 0..200_u8 {
        let eth0 = [veth(3, "eth0", 8)];
        model.apply(&devices(
            30 + i64::from(i),
            200,
            &eth0,
            &[route_to(i, 3)],
            &[],
        ));
    }
    assert_eq!(model.lost.of(ns(200)).count(), MAX_ITEMS);
    for i in 0..5_000 {
        let del = CniCall {
            container_id: format!("c{i}"),
            ..old_del()
        };
        model.apply(&calls(300, del));
    }
    assert!(model.lost.unexplained.is_empty(), "too long ago");
    assert_eq!(model.lost.dels.len(), MAX_DELS);
}

#[test]
fn link_local_addresses_come_and_go() {
    let local = Address {
        address: "fe80::1".parse().unwrap(),
        ..address(5)
    };
    let mut model = told(&sandbox());
    let event = |removed| {
        let (netns, address) = (ns(200), local.clone());
        match removed {
            true => What::AddressRemoved { netns, address },
            false => What::AddressAdded {
                netns,
                address,
                found: false,
                made: None,
            },
        }
    };
    model.apply(&at(5, event(false)));
    model.apply(&at(6, event(true)));
    assert_eq!(losses(&model), []);
}

/// `10.0.0.LAST` on a device.
fn address_on(seconds: i64, last: u8, device: &str, there: bool) -> Event {
    let netns = ns(200);
    let address = Address {
        ifname: device.to_owned(),
        ..address(last)
    };
    let found = false;
    let what = match there {
        true => What::AddressAdded {
            netns,
            address,
            found,
            made: None,
        },
        false => What::AddressRemoved { netns, address },
    };
    at(seconds, what)
}

#[test]
fn what_a_pod_makes_itself_is_its_own_affair() {
    let routes = [
        default_route(GATEWAY, 3),
        default_route("10.8.0.1".parse().unwrap(), 20),
    ];
    let tunnel = Device {
        kind: Some(String::from("tun")),
        ..veth(20, "tun0", 0)
    };
    let eth0 = veth(3, "eth0", 8);
    let own = [eth0.clone(), tunnel, veth(21, "vethdind", 9)];
    let ends = [veth(8, "cali1", 3), veth(9, "other", 21)];
    let entries = [neighbour(3, "permanent")];
    let mut story = sandbox();
    story.extend([
        address_on(5, 77, "eth0", true), // keepalived's
        address_on(5, 78, "tun0", true),
        devices(6, 200, &own, &routes, &entries),
        outside(6, &ends, &[5, 77, 78]),
        calls(20, old_del()),
        address_on(21, 77, "eth0", false),
        address_on(21, 78, "tun0", false),
        inside(22, "permanent"),
        outside(22, &ends[..1], &[5]),
    ]);
    assert_eq!(losses(&told(&story)), []);
}

#[test]
fn any_attachments_interface_counts() {
    let second = CniCall {
        ifname: String::from("net1"),
        delegated: true,
        ..call("ADD", "new", 200, NEW, "db-0")
    };
    let both = [veth(3, "eth0", 8), veth(4, "net1", 9)];
    let with = |calls: &[Event]| {
        let mut story = sandbox();
        story.extend_from_slice(calls);
        story.push(devices(6, 200, &both, &[default_route(GATEWAY, 3)], &[]));
        story.push(devices(
            7,
            200,
            &both[..1],
            &[default_route(GATEWAY, 3)],
            &[],
        ));
        let lost = losses(&told(&story)).into_iter();
        lost.filter(|(kind, ..)| *kind == Kind::Device)
            .map(|(_, name, _)| name)
            .collect::<Vec<_>>()
    };
    assert_eq!(with(&[calls(5, second.clone())]), ["net1"]);
    assert_eq!(with(&[]), [""; 0]);
    let cached = event::Attachment {
        ifname: String::from("net1"),
        ..attachment("new", Some(200), 6, 5)
    };
    assert_eq!(with(&[attached(5, &[cached])]), ["net1"]);
}

#[test]
fn a_del_whose_end_was_lost_does_not_take_effect_for_ever() {
    let lost = |tale: &[Event], seconds: i64| {
        let tale = [sandbox(), tale.to_vec(), vec![removed(seconds, 200, 5)]];
        losses(&told(&tale.concat())).remove(0).2
    };
    let starts = [calls(20, old_del())];
    assert_eq!(lost(&starts, 20 + 600).as_deref(), Some("old"));
    assert_eq!(lost(&starts, 20 + 601), None);
    // The next one of the same container ends it.
    let next = CniCall {
        pid: 100,
        ..old_del()
    };
    let tries = [starts[0].clone(), calls(30, next.clone()), ended(31, next)];
    assert_eq!(lost(&tries, 46).as_deref(), Some("old"));
    assert_eq!(lost(&tries, 47), None);
    // Its own end comes all the same, told late.
    let late = [tries.to_vec(), vec![ended(50, old_del())]].concat();
    assert_eq!(lost(&late, 65).as_deref(), Some("old"));
    assert_eq!(lost(&late, 66), None);
}

#[test]
fn a_hosts_end_that_is_renamed_is_not_lost() {
    let story = |ends: &[&str]| {
        let mut story = sandbox();
        for (at, name) in (5..).zip(ends) {
            story.push(outside(at, &[veth(8, name, 3)], &[5]));
        }
        story
    };
    let renamed = story(&["cali1", "else", "else"]);
    assert_eq!(losses(&told(&renamed)), []);
    let gone = [&renamed[..], &[outside(9, &[], &[5])]].concat();
    assert_eq!(losses(&told(&gone)), of(Kind::Veth, "else"));
}
