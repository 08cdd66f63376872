//! When is looked at what and what is told of it; that looking works is tested
//! on real namespaces, which needs root.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
    thread,
};

use super::{known::Attachment, *};
use crate::{
    event::{
        Address, CniEffect, CniInterface, CniResult, Device, Netns, ReservationHolder, Route,
        TraceKind,
    },
    model::story::*,
    source::{
        hostlocal::Lookup,
        netlink::{Target, Visit, Way},
        procfs::Bounded,
    },
};

mod real;

const MS: Duration = Duration::from_millis(1);

fn key(id: &str) -> Key {
    Key {
        container_id: id.to_owned(),
        ifname: String::from("eth0"),
    }
}

fn procfs() -> Procfs {
    Procfs::new(Path::new("/"), Bounded::default())
}

fn op(id: &str, command: &'static str) -> Operation {
    let key = key(id);
    Operation { key, command }
}

/// Sandbox `id` of pod shop/db-0 in a namespace: its ADD.
fn add(id: &str, inode: u32) -> CniCall {
    CniCall {
        ipam: Some(String::from("host-local")),
        parent_pid: 7,
        ..call("ADD", id, inode, NEW, "db-0")
    }
}

fn result(last: u8) -> CniResult {
    let interface = |name: &str, sandbox: Option<&str>| CniInterface {
        name: name.to_owned(),
        mac: None,
        sandbox: sandbox.map(str::to_owned),
    };
    CniResult {
        ips: vec![ip(last)],
        gateways: Vec::new(),
        interfaces: vec![
            interface("cni0", None),
            interface("veth1", None),
            interface("eth0", Some(MOUNT)),
        ],
    }
}

#[test]
fn an_operation_is_looked_at_when_the_last_of_its_plugins_has_ended() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    schedule.started(op("a", "ADD"), 1, t);
    schedule.ended(op("a", "ADD"), 1, true, t + 10 * MS);
    assert_eq!(schedule.next(), Some(t + 60 * MS));
    // The next one of the chain takes long.
    schedule.started(op("a", "ADD"), 2, t + 20 * MS);
    assert_eq!(schedule.due(t + 500 * MS), None);
    schedule.ended(op("a", "ADD"), 2, true, t + 600 * MS);
    assert_eq!(schedule.due(t + 649 * MS), None);
    let due = schedule.due(t + 650 * MS).unwrap();
    assert_eq!(due.operations, [(op("a", "ADD"), true)]);
    assert_eq!(
        (schedule.next(), schedule.due(t + 2_000 * MS)),
        (None, None)
    );
}

#[test]
fn an_operation_of_which_one_plugin_failed_has_failed() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    schedule.ended(op("a", "DEL"), 1, false, t);
    schedule.ended(op("a", "DEL"), 2, true, t + MS);
    let due = schedule.due(t + 60 * MS).unwrap();
    assert_eq!(due.operations, [(op("a", "DEL"), false)]);
}

#[test]
fn a_plugin_that_never_ends_is_not_waited_for_nor_called_a_loss() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    schedule.started(op("a", "ADD"), 1, t);
    let due = schedule
        .due(t + Duration::from_secs(60))
        .unwrap_or_default();
    assert_eq!(due, Due::default());
    assert_eq!((schedule.next(), schedule.take_dropped()), (None, 0));
}

#[test]
fn batches_are_apart_and_bounded_and_nothing_gets_lost_between_them() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    for i in 0..100 {
        schedule.ended(op(&format!("c{i}"), "ADD"), 1, true, t);
    }
    let (mut now, mut sizes) = (t + 50 * MS, Vec::new());
    while let Some(due) = schedule.due(now) {
        sizes.push(due.operations.len());
        assert_eq!(schedule.due(now + 99 * MS), None);
        now += 100 * MS;
    }
    assert_eq!(sizes, [32, 32, 32, 4]);
    assert_eq!(schedule.take_dropped(), 0);
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    for i in 0..10_000 {
        schedule.ended(op(&format!("c{i}"), "ADD"), 1, true, t);
    }
    assert_eq!(schedule.take_dropped(), 10_000 - 8_192);
}

#[test]
fn a_sandbox_is_watched_for_ten_seconds_after_the_last_del_of_another() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    schedule.watch(&key("b"), t);
    schedule.watch(&key("b"), t + 20 * MS);
    let mut looks = Vec::new();
    let mut now = t;
    while let Some(next) = schedule.next() {
        now = now.max(next);
        if schedule.due(now).is_some() {
            looks.push(now.duration_since(t).as_millis());
        }
    }
    assert_eq!(looks, [70, 1_070, 5_070, 10_220]);
}

#[test]
fn what_is_taken_down_is_not_looked_at_as_if_it_were_set_up() {
    let mut schedule = Schedule::default();
    let t = Instant::now();
    schedule.ended(op("a", "ADD"), 1, true, t);
    schedule.watch(&key("a"), t);
    schedule.forget(&key("a"));
    schedule.ended(op("a", "DEL"), 2, true, t + MS);
    let due = schedule.due(t + 60 * MS).unwrap();
    assert_eq!(due.operations, [(op("a", "DEL"), true)]);
    assert_eq!((due.again.len(), schedule.next()), (0, None));
}

#[test]
fn what_is_missing_is_looked_for_again_and_not_for_ever() {
    let mut schedule = Schedule::default();
    let mut now = Instant::now();
    let begin = now;
    schedule.doubt(&key("b"), now);
    assert_eq!(schedule.next(), Some(now + 1_000 * MS));
    let mut looks = 0;
    while let Some(next) = schedule.next() {
        now = next;
        assert!(schedule.due(now).is_some());
        schedule.doubt(&key("b"), now);
        looks += 1;
    }
    assert_eq!(looks, 90);
    let hours = now.duration_since(begin).as_secs() / 3_600;
    assert_eq!(hours, 1);
    schedule.sound(&key("b"));
    schedule.doubt(&key("b"), now);
    assert!(schedule.next().is_some());
    schedule.forget(&key("b"));
    assert_eq!(schedule.next(), None);
}

#[test]
fn rivals_are_living_sandboxes_of_the_same_name() {
    let mut known = Known::new(procfs(), Path::new("/"));
    known.added(&add("a", 100), None);
    known.added(&add("b", 200), None);
    let other = call("ADD", "c", 300, OTHER, "db-1");
    known.added(&other, None);
    let ids = |known: &Known, call: &CniCall| -> Vec<String> {
        let rivals = known.rivals(call).into_iter();
        rivals.map(|key| key.container_id).collect()
    };
    assert_eq!(ids(&known, &add("a", 100)), ["b"]);
    assert_eq!(ids(&known, &add("unknown", 0)), ["a", "b"]);
    assert_eq!(ids(&known, &other), [""; 0]);
    known.leaves(&key("a"));
    assert_eq!(ids(&known, &add("unknown", 0)), ["b"]);
    known.netns_gone(ns(200));
    assert_eq!(ids(&known, &add("a", 100)), [""; 0]);
    assert!(known.has_others(&add("a", 100)) && !known.has_others(&other));
}

#[test]
fn what_is_known_is_bounded_and_the_oldest_makes_room() {
    let mut known = Known::new(procfs(), Path::new("/"));
    for i in 0..9_000 {
        known.added(&add(&format!("c{i}"), 1_000 + i), None);
    }
    assert!(known.get(&key("c0")).is_none() && known.get(&key("c8999")).is_some());
    assert_eq!(known.rivals(&add("x", 0)).len(), 4_096);
}

#[test]
fn a_namespace_is_reached_by_its_tasks_and_as_the_runtime_sees_it() {
    let procfs = Procfs::new(Path::new("/h"), Bounded::default());
    let mut known = Known::new(procfs, Path::new("/h"));
    known.added(&add("a", 100), None);
    known.held(ns(100), &[task(40, "pause")], &[PathBuf::from("/x/netns")]);
    let ways = |known: &Known, id: &str| -> Vec<String> {
        let target = known.target(known.get(&key(id)).unwrap());
        let ways = target.into_iter().flat_map(|target| target.ways);
        let plain = |way| match way {
            Way::File(path) => path.display().to_string(),
            Way::Mount { root, path } => format!("{} {}", root.display(), path.display()),
            Way::Socket { .. } => String::from("socket"),
        };
        ways.map(plain).collect()
    };
    assert_eq!(
        ways(&known, "a"),
        [
            "/h/proc/40/ns/net",
            "/h/proc/7/root /run/netns/cni-1",
            "/h/proc/1/root /run/netns/cni-1",
            "/h /run/netns/cni-1",
            "/h/proc/1/root /x/netns",
        ]
    );
    let docker = CniCall {
        netns_path: String::from("/proc/55/ns/net"),
        ..add("d", 300)
    };
    known.added(&docker, None);
    assert_eq!(ways(&known, "d"), ["/h/proc/55/ns/net"]);
    // A place that no runtime uses is not gone to.
    let odd = CniCall {
        netns_path: String::from("/mnt/nfs/netns"),
        ..add("o", 400)
    };
    known.added(&odd, None);
    assert_eq!(ways(&known, "o"), [""; 0]);
    known.netns_gone(ns(100));
    assert_eq!(ways(&known, "a"), [""; 0]);
}

/// A namespace's contents.
fn visit(inode: u32, devices: &[Device], addresses: &[u8], routed: &[u8]) -> Visit {
    let route = |last: &u8| -> Route { route_to(*last, 8) };
    let at = |last: &u8| -> Address { address(*last) };
    Visit {
        netns: ns(inode),
        addresses: addresses.iter().map(at).collect(),
        devices: devices.to_vec(),
        routes: routed.iter().map(route).collect(),
        neighbours: Vec::new(),
        cut: false,
    }
}

fn held_by(id: Option<&str>) -> Lookup {
    Lookup {
        stores: vec![PathBuf::from(STORE)],
        holder: id.map(|id| ReservationHolder {
            path: PathBuf::from(STORE).join("10.0.0.5"),
            container_id: id.to_owned(),
            ifname: None,
            pod: None,
        }),
        ..Lookup::default()
    }
}

fn found(visits: &[Visit], id: Option<&str>) -> Found {
    let visits = visits.iter().cloned();
    Found {
        at: s(9),
        visits: visits.map(|it| (it.netns.inode, Some(it))).collect(),
        lookups: BTreeMap::from([(ip(5), held_by(id))]),
    }
}

fn whole(id: Option<&str>) -> Found {
    let sandbox = visit(200, &[veth(3, "eth0", 8)], &[5], &[]);
    let host = visit(1, &[veth(8, "veth1", 3)], &[], &[5]);
    found(&[sandbox, host], id)
}

fn effect_of(found: &Found, attachment: &mut Attachment, command: &str) -> CniEffect {
    let sights = Sights {
        found,
        host: Some(1),
    };
    sights.effect(attachment, &key("new"), command)
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

fn new_sandbox() -> Known {
    let mut known = Known::new(procfs(), Path::new("/"));
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
    known.netns_gone(ns(200));
    let attachment = known.get_mut(&key("new")).unwrap();
    let effect = effect_of(&nothing, attachment, "DEL");
    assert_eq!(told(&effect), all(Some(false)));
    assert_eq!((effect.netns, effect.failures().count()), (None, 0));
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
        let sights = Sights {
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

#[test]
fn calls_of_others_and_of_loopback_are_not_looked_at() {
    assert!(operation(&add("a", 100)).is_some());
    let not = [
        CniCall {
            trusted: false,
            ..add("a", 100)
        },
        CniCall {
            delegated: true,
            ..add("a", 100)
        },
        CniCall {
            ifname: String::from("lo"),
            ..add("a", 100)
        },
        call("CHECK", "a", 100, NEW, "db-0"),
    ];
    for call in not {
        assert_eq!(operation(&call), None, "{call:?}");
    }
}

#[test]
fn a_look_that_reaches_nothing_says_so() {
    let worker = Worker::start(None).unwrap();
    let job = Job {
        targets: vec![Target {
            inode: 5,
            ways: vec![Way::File(PathBuf::from("/nowhere"))],
        }],
        addresses: BTreeSet::from([IpAddr::from([10, 0, 0, 5])]),
    };
    worker.ask(job).unwrap();
    let found = loop {
        match worker.answer().unwrap() {
            Some(found) => break found,
            None => thread::sleep(MS),
        }
    };
    assert_eq!(found.visits, BTreeMap::from([(5, None)]));
    assert!(found.lookups.is_empty(), "without stores nothing is free");
}

/// Effects that know the host, with a sandbox `new` of which its ADD told
/// nothing.
fn effects() -> Effects {
    let mut effects = Effects::new(&procfs(), Path::new("/nowhere"));
    effects.host = Some(Host { inode: 1, pid: 1 });
    effects.known.added(&add("new", 200), None);
    effects
}

fn told_by(effects: &mut Effects, due: Due, found: Found) -> Vec<CniEffect> {
    let mut out = Vec::new();
    effects.tell(due, found, Instant::now(), &mut out);
    let told = out.into_iter().filter_map(|event| match event.what {
        What::CniEffect { effect } => Some(effect),
        _ => None,
    });
    told.collect()
}

fn ended_well(id: &str, command: &'static str) -> Due {
    Due {
        operations: vec![(op(id, command), true)],
        again: BTreeSet::new(),
    }
}

fn again(id: &str) -> Due {
    Due {
        operations: Vec::new(),
        again: BTreeSet::from([key(id)]),
    }
}

#[test]
fn that_a_sandbox_without_traces_was_looked_at_is_told() {
    let ipvlan = Device {
        kind: Some(String::from("ipvlan")),
        ..veth(3, "eth0", 8)
    };
    let both = || {
        let own = std::slice::from_ref(&ipvlan);
        found(&[visit(200, own, &[], &[]), visit(1, &[], &[], &[])], None)
    };
    let mut effects = effects();
    let first = told_by(&mut effects, ended_well("new", "ADD"), both());
    assert_eq!(first, []);
    let watched = told_by(&mut effects, again("new"), both());
    assert_eq!((watched.len(), watched[0].traces.len()), (1, 0));
    let mut silent = both();
    silent.visits.insert(1, None);
    assert_eq!(told_by(&mut effects, again("new"), silent), []);
}

#[test]
fn what_is_the_next_sandboxs_is_not_what_a_del_has_left() {
    // Named after the pod, the veth is the same.
    let left = |known: &mut dyn FnMut(&mut Known), index: u32| {
        let mut effects = effects();
        effects.known.added(&add("new", 200), Some(&result(5)));
        let first = told_by(&mut effects, ended_well("new", "ADD"), whole(Some("new")));
        assert_eq!(first[0].failures().count(), 0);
        effects.known.leaves(&key("new"));
        effects.known.netns_gone(ns(200));
        known(&mut effects.known);
        let host = visit(1, &[veth(index, "veth1", 3)], &[], &[5]);
        let found = found(&[host], None);
        let told = told_by(&mut effects, ended_well("new", "DEL"), found);
        let failures = told.iter().flat_map(CniEffect::failures);
        failures.map(|it| it.kind).collect::<Vec<_>>()
    };
    let all = [TraceKind::Veth, TraceKind::Route];
    assert_eq!(left(&mut |_| {}, 8), all);
    let next = |known: &mut Known| known.added(&add("next", 300), Some(&result(5)));
    assert_eq!(left(&mut { next }, 8), []);
    let mut leaving = |known: &mut Known| {
        next(known);
        known.leaves(&key("next"));
    };
    assert_eq!(left(&mut leaving, 8), all);
    // Made anew by an ADD that still runs.
    assert_eq!(left(&mut |_| {}, 20), [TraceKind::Route]);
}

#[test]
fn a_gateway_that_has_no_neighbour_entry_yet_is_looked_at_again() {
    let next = |state: Option<&str>, due: Due| {
        let mut effects = effects();
        let mut found = whole(None);
        let sandbox = found.visits.get_mut(&200).unwrap().as_mut().unwrap();
        sandbox.routes = vec![default_route(GATEWAY, 3)];
        sandbox.neighbours = state.map(|state| neighbour(3, state)).into_iter().collect();
        let before = Instant::now();
        told_by(&mut effects, due, found);
        let mut all = Vec::new();
        let mut now = before;
        while let Some(next) = effects.schedule.next() {
            now = now.max(next);
            effects.schedule.due(now);
            all.push(now.duration_since(before).as_secs());
        }
        all
    };
    let add = || ended_well("new", "ADD");
    assert_eq!(next(None, add()), [5]);
    assert_eq!(next(None, again("new")), [0; 0]);
    assert_eq!(next(Some("incomplete"), add()), [1, 5]);
    assert_eq!(next(Some("permanent"), add()), [0; 0]);
    assert_eq!(next(Some("reachable"), add()), [0; 0]);
}

#[test]
fn doubts_of_what_made_room_are_forgotten() {
    let mut effects = effects();
    let now = Instant::now();
    effects.schedule.doubt(&key("new"), now);
    effects.see(&[], now);
    assert!(effects.schedule.next().is_some());
    let adds: Vec<Event> = (0..9_000)
        .map(|i| {
            let pod = format!("p{i}");
            ended(1, call("ADD", &format!("c{i}"), 1_000 + i, NEW, &pod))
        })
        .collect();
    effects.see(&adds, now);
    assert!(effects.known.get(&key("new")).is_none());
    // The first doubt of something comes to a look after a second, the next
    // after ten.
    let mut schedule = std::mem::take(&mut effects.schedule);
    let mut now = now;
    while let Some(next) = schedule.next() {
        now = now.max(next);
        schedule.due(now);
    }
    let now = now + Duration::from_secs(60);
    schedule.doubt(&key("new"), now);
    assert_eq!(schedule.next(), Some(now + MS * 1_000));
}
