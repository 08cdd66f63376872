use super::*;
use crate::model::calls::KEPT;
use event::{CniCall, Event, Store, StoreKind, What, testing::*};

/// Long after the calls at its beginning.
const LATE: i64 = 10 + KEPT.as_secs() as i64 + 1;

/// Told to a model that forgets.
fn told(events: &[Event]) -> Model {
    let mut model = Model::forgetting();
    for event in events {
        model.apply(event);
    }
    model
}

/// A sandbox that is made, taken back and gone within ten seconds.
fn come_and_gone(id: &str, inode: u32, uid: &str, name: &str) -> Vec<Event> {
    let add = call("ADD", id, inode, uid, name);
    let del = call("DEL", id, inode, uid, name);
    vec![
        created(1, inode),
        calls(2, add.clone()),
        ended(3, add),
        calls(8, del.clone()),
        ended(9, del),
        destroyed(10, inode),
    ]
}

fn old() -> Vec<Event> {
    come_and_gone("sandbox-old", 100, OLD, "db-0")
}

/// A call for another pod: at each, there is a look at what is past.
fn other(seconds: i64) -> Event {
    calls(seconds, call("ADD", "another", 300, OTHER, "other"))
}

fn knows(model: &Model, id: &str) -> bool {
    model.calls.of_container(id).next().is_some()
}

/// What is still known of the old sandbox long after, if this was told as well.
fn is_kept(also: &[Event]) -> bool {
    let events = [vec![cri(0, &[])], old(), also.to_vec(), vec![other(LATE)]];
    knows(&told(&events.concat()), "sandbox-old")
}

#[test]
fn what_was_taken_back_is_forgotten_in_time() {
    let mut events = [vec![cri(0, &[])], old()].concat();
    events.push(other(LATE - 2));
    assert!(knows(&told(&events), "sandbox-old"), "too early");
    assert!(!is_kept(&[]));
    let model = told(&[vec![cri(0, &[])], old(), vec![other(LATE)]].concat());
    assert_eq!((model.calls.len(), model.calls.pod_count()), (1, 1));
    let mut model = Model::default();
    for event in [vec![cri(0, &[])], old(), vec![other(LATE)]].concat() {
        model.apply(&event);
    }
    assert!(knows(&model, "sandbox-old"), "only a tracer forgets");
}

#[test]
fn a_look_is_not_taken_at_each_call() {
    let early = LATE - 10;
    assert!(is_kept(&[other(early)]));
    let events = [
        vec![cri(0, &[])],
        old(),
        vec![other(early), other(early + 60)],
    ];
    assert!(!knows(&told(&events.concat()), "sandbox-old"));
}

#[test]
fn what_anybody_knows_of_is_kept() {
    assert!(is_kept(&[cri(20, &[sandbox("sandbox-old", 100, OLD)])]));
    assert!(is_kept(&[containers(20, "cgroup", &["sandbox-old"])]));
    assert!(is_kept(&[attached(
        20,
        &[attachment("sandbox-old", None, 5, 3)]
    )]));
    assert!(is_kept(&[reserved(20, Some("sandbox-old"))]));
    assert!(
        !is_kept(&[reserved(5, Some("sandbox-old"))]),
        "never asked again"
    );
    assert!(!is_kept(&[
        reserved(20, Some("sandbox-old")),
        reserved(30, None)
    ]));
    let again = call("ADD", "sandbox-old", 100, OLD, "db-0");
    assert!(is_kept(&[calls(LATE - 5, again)]), "it is called for again");
    let netns = [
        created(20, 400),
        calls(21, call("ADD", "new", 400, NEW, "db-1")),
    ];
    assert!(!is_kept(&netns), "another's namespace");
}

#[test]
fn what_a_list_of_all_nodes_may_have_is_kept_until_it_is_listed_again() {
    let store = |seconds| {
        let store = Store {
            kind: StoreKind::Whereabouts,
            path: "ippools".into(),
            ..Store::default()
        };
        at(seconds, What::StoreListed { store })
    };
    let ipam = CniCall {
        plugin: String::from("whereabouts"),
        delegated: true,
        ..call("DEL", "sandbox-old", 100, OLD, "db-0")
    };
    assert!(!is_kept(&[store(5)]), "it is not used");
    assert!(is_kept(&[ended(8, ipam.clone()), store(5)]));
    assert!(!is_kept(&[ended(8, ipam), store(30)]));
}

/// A sandbox of db-0 from before the tracer, in namespace 400.
fn from_before() -> Vec<Event> {
    let mut cached = attachment("from-before", Some(400), 5, -100);
    cached.pod = call("ADD", "", 0, OTHER, "db-0").pod;
    let found = What::NetnsFound {
        netns: ns(400),
        host: false,
        node: false,
        user_ns: None,
    };
    vec![at(0, found), attached(0, &[cached])]
}

#[test]
fn what_is_to_be_judged_by_a_sandbox_from_before_the_tracer_is_kept_with_it() {
    let mut events = vec![cri(0, &[])];
    events.extend(from_before());
    events.extend(old());
    assert!(knows(
        &told(&[&events[..], &[other(LATE)]].concat()),
        "sandbox-old"
    ));
    let gone = [destroyed(20, 400), other(LATE)];
    assert!(!knows(&told(&[&events[..], &gone].concat()), "sandbox-old"));
}

#[test]
fn nothing_is_forgotten_while_the_sandboxes_are_not_known() {
    let late = || vec![other(LATE)];
    let events = [old(), late()].concat();
    assert!(knows(&told(&events), "sandbox-old"), "never listed");
    assert!(is_kept(&[cri_fails(20)]));
    assert!(is_kept(&[half_of_cri(20, &[])]));
    assert!(!is_kept(&[cri_fails(20), cri(30, &[])]));
}

#[test]
fn what_was_not_taken_back_in_good_order_is_kept() {
    let all = old();
    let without = |what: &[usize]| {
        let mut events = vec![cri(0, &[])];
        let rest = all.iter().enumerate().filter(|(at, _)| !what.contains(at));
        events.extend(rest.map(|(_, event)| event.clone()));
        events.push(other(LATE));
        knows(&told(&events), "sandbox-old")
    };
    assert!(!without(&[]));
    assert!(without(&[3, 4]), "no DEL");
    assert!(without(&[4]), "no end of it");
    assert!(without(&[5]), "its namespace lives");
    let del = call("DEL", "sandbox-old", 100, OLD, "db-0");
    assert!(is_kept(&[failed(20, del, "no")]));
    let mut refused = vec![cri(0, &[])];
    refused.push(failed(
        1,
        call("ADD", "sandbox-old", 100, OLD, "db-0"),
        "no",
    ));
    refused.extend(old());
    refused.push(other(LATE));
    assert!(knows(&told(&refused), "sandbox-old"), "an ADD had failed");
}

#[test]
fn what_overlapped_a_sandbox_of_the_same_name_is_kept_with_it() {
    let next = |seconds| calls(seconds, call("ADD", "sandbox-new", 200, NEW, "db-0"));
    assert!(is_kept(&[created(5, 200), next(5)]), "its DEL came after");
    assert!(!is_kept(&[created(20, 200), next(20)]));
    let both = [old(), come_and_gone("sandbox-new", 200, NEW, "db-0")];
    let events = [vec![cri(0, &[])], both.concat(), vec![other(LATE)]].concat();
    let model = told(&events);
    assert!(!knows(&model, "sandbox-old") && !knows(&model, "sandbox-new"));
}

#[test]
fn one_that_is_kept_for_good_keeps_no_others() {
    // Its call failed once: that is remembered.
    let mut kept = come_and_gone("kept", 200, NEW, "db-0");
    let add = call("ADD", "kept", 200, NEW, "db-0");
    kept.insert(1, failed(1, add, "no"));
    let events = [vec![cri(0, &[])], kept, old(), vec![other(LATE)]].concat();
    let model = told(&events);
    assert!(knows(&model, "kept") && !knows(&model, "sandbox-old"));
}

#[test]
fn sandboxes_of_a_pod_that_is_made_again_and_again_are_kept() {
    let mut events = vec![cri(0, &[])];
    for (nth, id) in ["one", "two", "three"].into_iter().enumerate() {
        events.extend(come_and_gone(id, 100 + nth as u32, OLD, "db-0"));
    }
    events.push(other(LATE));
    let model = told(&events);
    assert!(knows(&model, "one") && model.calls.restless_pods().count() == 1);
}

#[test]
fn a_sandbox_that_is_called_for_again_is_no_new_one() {
    let add = |id: &str| call("ADD", id, 100, OLD, "db-0");
    let model = told(&[
        cri(0, &[]),
        calls(1, add("one")),
        other(LATE),
        failed(LATE + 40, add("one"), "killed"),
        calls(LATE + 41, add("two")),
        calls(LATE + 50, add("three")),
    ]);
    let pods: Vec<u64> = model.calls.pods().map(|pod| pod.sandboxes).collect();
    assert!(
        pods.contains(&2),
        "the first was made long before: {pods:?}"
    );
}

#[test]
fn what_the_next_sandbox_may_make_worth_telling_is_kept() {
    let later = |seconds, id: &str| calls(seconds, call("ADD", id, 200, OLD, "db-0"));
    assert!(is_kept(&[later(500, "two")]));
    let events = [vec![cri(0, &[])], old(), vec![other(LATE + 500)]];
    assert!(!knows(&told(&events.concat()), "sandbox-old"));
}

#[test]
fn a_clock_that_was_set_back_stops_nothing() {
    let mut events = vec![cri(0, &[]), other(100_000)];
    events.extend(old());
    events.push(other(LATE));
    assert!(!knows(&told(&events), "sandbox-old"));
}

#[test]
fn a_log_is_kept_whole() {
    let logged = |command: &str| CniCall {
        log: true,
        ..call(command, "sandbox-old", 100, OLD, "db-0")
    };
    let mut events = vec![cri(0, &[]), created(1, 100)];
    for (seconds, command) in [(2, "ADD"), (8, "DEL")] {
        events.push(ended(seconds, logged(command)));
    }
    events.extend([destroyed(10, 100), other(LATE)]);
    assert!(knows(&told(&events), "sandbox-old"));
}
