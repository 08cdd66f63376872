//! What becomes of it: what is told, and what is looked at again.

use super::*;

/// Effects that know the host, with a sandbox `new` of which its ADD told
/// nothing.
fn effects() -> Effects {
    let mut effects = Effects::new(&procfs(), Path::new("/nowhere"), false);
    effects.host = Some(NodeNetns { inode: 1, pid: 1 });
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
    let left = |known: &mut dyn FnMut(&mut Attachments), index: u32| {
        let mut effects = effects();
        effects.known.added(&add("new", 200), Some(&result(5)));
        let first = told_by(&mut effects, ended_well("new", "ADD"), whole(Some("new")));
        assert_eq!(first[0].failures().count(), 0);
        effects.known.leaves(&key("new"));
        effects.known.netns_gone(ns(200), Instant::now());
        known(&mut effects.known);
        let host = visit(1, &[veth(index, "veth1", 3)], &[], &[5]);
        let found = found(&[host], None);
        let told = told_by(&mut effects, ended_well("new", "DEL"), found);
        let failures = told.iter().flat_map(CniEffect::failures);
        failures.map(|it| it.kind).collect::<Vec<_>>()
    };
    let all = [TraceKind::Veth, TraceKind::Route];
    assert_eq!(left(&mut |_| {}, 8), all);
    let next = |known: &mut Attachments| known.added(&add("next", 300), Some(&result(5)));
    assert_eq!(left(&mut { next }, 8), []);
    let mut leaving = |known: &mut Attachments| {
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
