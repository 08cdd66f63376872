use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::*;
use event::{
    Reservation, Store, StoreKind,
    testing::{ip, reservation, s},
};

const TERWAY: &str = "/var/lib/cni/terway/ResRelation.db";

fn node(files: &[(&str, &str)]) -> (tempfile::TempDir, Reservations) {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let stores = Stores::discover(root.path()).unwrap();
    (root, Reservations::of(stores))
}

fn listed(reservations: &[(u8, &str)], unread: &[&str]) -> Event {
    let one = |(last, id): &(u8, &str)| Reservation {
        address: ip(*last),
        holder: reservation(id),
        modified: s(1),
    };
    let store = Store {
        path: PathBuf::from(TERWAY),
        kind: StoreKind::Terway,
        reservations: reservations.iter().map(one).collect(),
        blocked: vec![ip(9)],
        unread: unread.iter().map(|text| (*text).to_owned()).collect(),
        ..Store::default()
    };
    event(What::StoreListed { store })
}

fn event(what: What) -> Event {
    Event { time: s(1), what }
}

fn failed(source: &str) -> Event {
    event(What::SourceFailed {
        source: source.to_owned(),
        error: String::from("busy"),
    })
}

fn recovered(source: &str) -> Event {
    event(What::SourceRecovered {
        source: source.to_owned(),
    })
}

/// What is answered about 10.0.0.LAST: nothing new, unknown, free, or who has
/// it.
fn ask(reservations: &mut Reservations, last: u8) -> Option<String> {
    let mut out = Vec::new();
    reservations.poll(&BTreeSet::from([ip(last)]), &BTreeSet::new(), &mut out);
    assert!(out.len() < 2, "{out:?}");
    out.pop().map(|event| match event.what {
        What::Reservation { stores, holder, .. } => match holder {
            None if stores.is_empty() => String::from("unknown"),
            None => format!("free in {} stores", stores.len()),
            Some(holder) => format!("{} of {} stores", holder.container_id, stores.len()),
        },
        other => format!("{other:?}"),
    })
}

#[test]
fn an_address_is_asked_for_in_every_store() {
    let (_root, mut all) = node(&[("var/lib/cni/networks/pods/10.0.0.6", "bbb")]);
    assert_eq!(ask(&mut all, 5).as_deref(), Some("free in 2 stores"));
    all.learn(&listed(&[(5, "aaa")], &[]));
    assert_eq!(ask(&mut all, 5).as_deref(), Some("aaa of 3 stores"));
    assert_eq!(ask(&mut all, 5), None, "told once");
    assert_eq!(ask(&mut all, 6).as_deref(), Some("bbb of 3 stores"));
    assert_eq!(ask(&mut all, 7).as_deref(), Some("free in 3 stores"));
    assert_eq!(
        ask(&mut all, 9).as_deref(),
        Some("unknown"),
        "taken by no container"
    );
    // The collection of what is of no pod.
    assert_eq!(ask(&mut all, 5).as_deref(), Some("aaa of 3 stores"));
    all.learn(&listed(&[], &[]));
    assert_eq!(ask(&mut all, 5).as_deref(), Some("free in 3 stores"));
}

#[test]
fn what_is_asked_before_a_tick_is_asked_again_after_it() {
    let (root, mut all) = node(&[("var/lib/cni/networks/pods/10.0.0.5", "aaa")]);
    let mut out = Vec::new();
    all.ask_new(&BTreeSet::from([ip(5)]), &mut out);
    all.ask_new(&BTreeSet::from([ip(5)]), &mut out);
    assert_eq!(out.len(), 1, "{out:?}");
    assert_eq!(ask(&mut all, 5), None, "told before");
    fs::remove_file(root.path().join("var/lib/cni/networks/pods/10.0.0.5")).unwrap();
    all.ask_new(&BTreeSet::from([ip(5)]), &mut out);
    assert_eq!(out.len(), 1, "not new");
    assert!(ask(&mut all, 5).is_some_and(|said| said.starts_with("free")));
}

#[test]
fn a_store_that_is_silent_does_not_say_free() {
    let (_root, mut all) = node(&[("var/lib/cni/networks/pods/10.0.0.6", "bbb")]);
    all.others.await_kinds(BTreeSet::from([StoreKind::Terway]));
    assert_eq!(
        ask(&mut all, 5).as_deref(),
        Some("unknown"),
        "no answer yet"
    );
    all.learn(&listed(&[(5, "aaa")], &[]));
    assert_eq!(ask(&mut all, 5).as_deref(), Some("aaa of 3 stores"));
    all.learn(&failed("terway"));
    assert_eq!(
        ask(&mut all, 5).as_deref(),
        Some("unknown"),
        "it may have changed"
    );
    assert_eq!(ask(&mut all, 6).as_deref(), Some("bbb of 2 stores"));
    all.learn(&recovered("terway"));
    assert_eq!(ask(&mut all, 5).as_deref(), Some("aaa of 3 stores"));
    all.learn(&failed("pods"));
    assert_eq!(ask(&mut all, 5), None, "another source");
    all.learn(&listed(&[(6, "ccc")], &["something"]));
    assert_eq!(
        ask(&mut all, 5).as_deref(),
        Some("unknown"),
        "it may be in the rest"
    );
    assert_eq!(ask(&mut all, 6).as_deref(), Some("ccc of 3 stores"));
}

#[test]
fn stores_that_hang_hold_up_once_and_do_not_say_free() {
    let (_root, mut all) = node(&[("var/lib/cni/networks/pods/10.0.0.5", "aaa")]);
    let release = all.stores.as_mut().unwrap().hang();
    let addresses: BTreeSet<IpAddr> = (5..9).map(ip).collect();
    let started = Instant::now();
    let mut out = Vec::new();
    all.poll(&addresses, &BTreeSet::new(), &mut out);
    let mut unknown = 0;
    let mut failures = Vec::new();
    for event in out.drain(..) {
        match event.what {
            What::Reservation { stores, holder, .. } => {
                assert_eq!((stores.len(), holder), (0, None));
                unknown += 1;
            }
            What::SourceFailed { source, error } => failures.push(format!("{source}: {error}")),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(unknown, 4);
    assert_eq!(
        failures,
        ["host-local: the reservations of host-local: no answer within 250 ms"]
    );
    for _ in 0..200 {
        all.poll(&addresses, &BTreeSet::new(), &mut out);
    }
    assert_eq!(out, [], "told once");
    // Four waits a poll would be 200 s, and one a poll 50 s.
    assert!(started.elapsed() < Duration::from_secs(10));

    drop(release);
    let is_recovery = |event: &Event| matches!(event.what, What::SourceRecovered { .. });
    while !out.iter().any(is_recovery) {
        assert!(started.elapsed() < Duration::from_secs(30), "{out:?}");
        std::thread::sleep(Duration::from_millis(10));
        all.poll(&addresses, &BTreeSet::new(), &mut out);
    }
    let mut answers = BTreeMap::new();
    for event in out {
        if let What::Reservation {
            address,
            stores,
            holder,
        } = event.what
        {
            answers.insert(address, (stores.len(), holder.is_some()));
        }
    }
    let wanted = (5..9).map(|last| (ip(last), (2, last == 5)));
    let wanted: BTreeMap<IpAddr, (usize, bool)> = wanted.collect();
    assert_eq!(answers, wanted);
}

#[test]
fn a_node_that_does_not_answer_at_the_start_has_no_coverage_of_host_local() {
    let (_root, mut all) = node(&[("var/lib/cni/networks/pods/10.0.0.5", "aaa")]);
    let release = all.stores.as_mut().unwrap().hang();
    let item = all.coverage_of_host_local();
    assert_eq!(item.mechanism, None);
    assert!(item.reason.unwrap().contains("no answer within"));
    assert_eq!(
        item.unknown,
        ["whether a ghost's address is still reserved"]
    );
    drop(release);
}

#[test]
fn the_api_server_is_not_asked_against_the_users_wish() {
    assert_eq!(not_asked(&Pods::Auto), None);
    assert!(not_asked(&Pods::None).unwrap().contains("--pods none"));
    assert!(not_asked(&Pods::File(PathBuf::from("x"))).is_some());
}
