//! One reservation of nobody's, and one thing at a time that keeps it.

use super::*;
use crate::repair::testing::{self, ID};
use engine::detect::Settings;
use event::{
    Event, Netns, UserNs, What,
    forwarding::{DatedNeighbour, Forwarding, LOCAL_TABLE, RouteKind, TableRoute},
    testing::*,
};

/// When the look began: long after what the stories have reserved.
const NOW: i64 = 1_000;
const GRACE: Duration = Duration::from_secs(60);
/// The container of another reservation, which lives.
const LIVES: &str = "1111111111111111111111111111111111111111111111111111111111111111";

/// What is known besides events.
#[derive(Default)]
struct Besides {
    plugins: Running,
    cgroups: BTreeSet<String>,
    unknown: Vec<String>,
    unseen: Vec<ListedNetns>,
}

/// 10.0.0.5 is reserved for [`ID`], and 10.0.0.6 for one that lives.
fn node(more: Vec<Event>) -> Vec<Event> {
    let story = vec![
        host(0),
        networks(1, &[network("bridge", &[range(1, 254)])]),
        cri(2, &[sandbox(LIVES, 200, NEW)]),
        containers(2, "cgroup", &[]),
        stored(10, &[(5, ID, -500), (6, LIVES, -500)]),
    ];
    [story, more].concat()
}

fn judged(story: &[Event], besides: &Besides) -> Verdicts {
    let mut model = Model::default();
    for event in story {
        model.apply(event);
    }
    let settings = Settings {
        boot_id: "boot".into(),
        node: "node-1".into(),
        node_is_named: true,
        stall_threshold: Duration::from_secs(5),
        surveyed: false,
    };
    let view = View::new(&model, &settings, s(NOW));
    judge(LookContent {
        view: &view,
        at: s(NOW),
        grace: GRACE,
        plugins: &besides.plugins,
        cgroups: &besides.cgroups,
        unknown: &besides.unknown,
        unseen: &besides.unseen,
    })
}

fn path(last: u8) -> PathBuf {
    Path::new(STORE).join(format!("10.0.0.{last}"))
}

/// Why 10.0.0.5 is left alone; `None` if it is free.
fn why_with(more: Vec<Event>, besides: &Besides) -> Option<Reason> {
    let verdicts = judged(&node(more), besides);
    assert_eq!(verdicts.why(&path(6)).unwrap().reason, Reason::Live);
    let withheld = verdicts.why(&path(5)).map(|withheld| withheld.reason);
    assert_eq!(withheld.is_none(), verdicts.free.contains_key(&path(5)));
    withheld
}

fn why(more: Vec<Event>) -> Option<Reason> {
    why_with(more, &Besides::default())
}

#[test]
fn what_nothing_knows_is_free() {
    assert_eq!(why(Vec::new()), None);
    let verdicts = judged(&node(Vec::new()), &Besides::default());
    let free = &verdicts.free[&path(5)];
    assert_eq!(free.network.as_deref(), Some("pods"));
    assert_eq!(free.reservation.holder.container_id, ID);
}

#[test]
fn whatever_knows_the_container_or_the_address_keeps_it() {
    let mut stopped = sandbox(ID, 300, OTHER);
    (stopped.ready, stopped.netns) = (Some(false), None);
    let lives = sandbox(LIVES, 200, NEW);
    let mut other = lives.clone();
    other.ips = vec![ip(5)];
    let live = Some(Reason::Live);
    let listed = |each| cri(3, &[lives.clone(), each]);
    let store = || stored(11, &[(5, ID, -500), (6, LIVES, -500)]);
    assert_eq!(why(vec![listed(stopped), store()]), live, "it has stopped");
    assert_eq!(
        why(vec![cri(3, &[other]), store()]),
        live,
        "another has the address"
    );
    assert_eq!(why(vec![containers(3, "shim", &[ID])]), live);
    assert_eq!(why(vec![containers(3, "cgroup", &[ID])]), live);
    assert_eq!(why(vec![found(3, 300), added(4, 300, 5)]), live, "a ghost");
    let unseen = |last: u8, cut| Besides {
        unseen: vec![ListedNetns {
            netns: Netns {
                inode: 4_026_531_999,
                cookie: None,
            },
            at: 1,
            ends: false,
            user_ns: None,
            addresses: [address(last)].into(),
            cut,
        }],
        ..Besides::default()
    };
    assert_eq!(
        why_with(Vec::new(), &unseen(5, false)),
        live,
        "out of sight"
    );
    assert_eq!(why_with(Vec::new(), &unseen(7, false)), None, "another's");
    let unknown = Some(Reason::Unknown);
    assert_eq!(
        why_with(Vec::new(), &unseen(7, true)),
        unknown,
        "not all read"
    );
    let besides = Besides {
        cgroups: [ID.to_owned()].into(),
        ..Besides::default()
    };
    assert_eq!(why_with(Vec::new(), &besides), live, "a cgroup of any kind");
    let pods = listed_pods(&[pod("web-0", NEW, &[ip(5)])]);
    assert_eq!(why(vec![pods]), Some(Reason::PodHasIt));
}

#[test]
fn a_namespace_that_takes_its_packets_by_a_local_route_keeps_it() {
    let with = |to: &str, local_cut| {
        let forwarding = Forwarding {
            rules: kernels_rules(),
            routes: vec![TableRoute {
                kind: RouteKind::Local,
                ..table_route(LOCAL_TABLE, to, 3)
            }],
            local_cut,
            ..Forwarding::default()
        };
        vec![found(3, 300), forwards(4, 300, &forwarding)]
    };
    assert_eq!(why(with("10.0.0.5", false)), Some(Reason::Live));
    assert_eq!(why(with("10.0.0.0/24", false)), Some(Reason::Live));
    assert_eq!(why(with("10.0.1.0/24", false)), None);
    assert_eq!(why(with("10.0.1.0/24", true)), Some(Reason::Unknown));
}

#[test]
fn routes_that_could_not_be_read_keep_it_unless_they_are_a_users() {
    let listed = |uid, ends| Besides {
        unseen: vec![ListedNetns {
            netns: ns(300),
            at: 1,
            ends,
            user_ns: Some(UserNs { inode: 9, uid }),
            addresses: BTreeSet::new(),
            cut: false,
        }],
        ..Besides::default()
    };
    let led_to = || vec![found(3, 300)];
    assert_eq!(why_with(led_to(), &listed(0, false)), Some(Reason::Unknown));
    assert_eq!(why_with(led_to(), &listed(1_000, false)), None);
    assert_eq!(why_with(led_to(), &listed(0, true)), None, "it ends");
    let nothing_leads_there = why_with(Vec::new(), &listed(0, false));
    assert_eq!(nothing_leads_there, None);
}

#[test]
fn who_has_just_answered_for_it_keeps_it_and_an_old_entry_does_not() {
    let with = |state: &str, confirmed| {
        let neighbour = event::Neighbour {
            address: ip(5),
            ..neighbour(2, state)
        };
        let forwarding = Forwarding {
            rules: kernels_rules(),
            neighbours: vec![DatedNeighbour {
                neighbour,
                confirmed: Some(s(confirmed)),
            }],
            ..Forwarding::default()
        };
        let hosts = devices(3, 1, &[], &[], &[]);
        why(vec![hosts, forwards(500, 1, &forwarding)])
    };
    let live = Some(Reason::Live);
    assert_eq!(with("reachable", 490), live);
    assert_eq!(with("reachable", 100), live, "the node is told to trust it");
    assert_eq!(with("stale", 456), live);
    for (state, confirmed) in [
        ("stale", 455),
        ("delay", 440),
        ("probe", 440),
        ("failed", 499),
        ("incomplete", 499),
        ("permanent", 499),
    ] {
        assert_eq!(with(state, confirmed), None, "{state}");
    }
}

fn listed_pods(pods: &[event::Pod]) -> Event {
    listed(20, pods)
}

#[test]
fn a_container_in_the_making_keeps_it() {
    let besides = Besides {
        plugins: Running {
            containers: [ID.to_owned()].into(),
            unread: Vec::new(),
        },
        ..Besides::default()
    };
    assert_eq!(why_with(Vec::new(), &besides), Some(Reason::PluginRuns));
    let young = |modified| stored(11, &[(5, ID, modified), (6, LIVES, -500)]);
    assert_eq!(why(vec![young(NOW - 59)]), Some(Reason::Young));
    assert_eq!(why(vec![young(NOW - 60)]), None);
    assert_eq!(
        why(vec![young(NOW + 500)]),
        Some(Reason::Young),
        "of the future"
    );
    let added = |written| attached(12, &[attachment(ID, None, 5, written)]);
    assert_eq!(why(vec![added(NOW - 59)]), Some(Reason::Young));
    assert_eq!(why(vec![added(NOW - 60)]), None);
}

#[test]
fn what_is_not_known_of_it_keeps_it() {
    let besides = Besides {
        unknown: vec![format!("cannot read /run/x/{ID}/config.json")],
        ..Besides::default()
    };
    assert_eq!(why_with(Vec::new(), &besides), Some(Reason::Unknown));
    let early = stored(1, &[(5, ID, -500), (6, LIVES, -500)]);
    assert_eq!(
        why(vec![early]),
        Some(Reason::Unknown),
        "listed before CRI was"
    );
    for id in [
        "k8s_POD_web_1",
        "cnitool-0123456789",
        &ID[1..],
        &ID.to_uppercase(),
    ] {
        let other = stored(11, &[(5, id, -500), (6, LIVES, -500)]);
        assert_eq!(why(vec![other]), Some(Reason::ForeignId), "{id}");
    }
}

#[test]
fn an_empty_file_is_judged_by_its_address_and_age() {
    let empty = |modified| stored(11, &[(5, "", modified), (6, LIVES, -500)]);
    assert_eq!(why(vec![empty(-500)]), None);
    assert_eq!(why(vec![empty(NOW - 1)]), Some(Reason::Young));
    let held = vec![empty(-500), found(12, 300), added(12, 300, 5)];
    assert_eq!(why(held), Some(Reason::Live));
}

#[test]
fn one_address_in_use_keeps_the_others_of_its_container() {
    let two = stored(11, &[(5, ID, -500), (6, LIVES, -500), (7, ID, -500)]);
    assert_eq!(why(vec![two.clone()]), None);
    let held = vec![two, found(12, 300), added(12, 300, 7)];
    assert_eq!(why(held), Some(Reason::CompanionLive));
}

#[test]
fn stores_that_are_not_host_locals_to_give_are_left_alone() {
    let verdicts = |events: &[Event]| judged(events, &Besides::default());
    let mut story = node(vec![networks(20, &[])]);
    let left: Vec<_> = verdicts(&story).withheld.into_values().collect();
    assert!(
        left.iter().all(|each| each.reason != Reason::LeftOver),
        "one of it is in use"
    );
    story.push(stored(21, &[(5, ID, -500)]));
    let all = verdicts(&story);
    assert_eq!(all.why(&path(5)).unwrap().reason, Reason::LeftOver);
    let mut terway = network("terway", &[]);
    (terway.ipam, terway.store) = (Some("terway".into()), None);
    let flat = PathBuf::from(FLAT);
    let mut reservation = reserve((5, ID, -500));
    reservation.holder.path = flat.join("10.0.0.5");
    let store = event::Store {
        path: flat.clone(),
        reservations: vec![reservation],
        ..event::Store::default()
    };
    let story = node(vec![
        networks(20, &[terway]),
        at(21, What::StoreListed { store }),
    ]);
    let all = verdicts(&story);
    let its = all.why(&flat.join("10.0.0.5")).unwrap();
    assert_eq!(its.reason, Reason::OtherIpam);
}

#[test]
fn the_file_itself_can_speak_against_it() {
    let release = testing::release("10.0.0.5");
    let reservation = testing::free(&release).reservation;
    let now = testing::at(0);
    let of = |edit: fn(&mut Exact)| {
        let mut exact = testing::exact(&release);
        edit(&mut exact);
        of_file(&exact, &reservation, now, GRACE).map(|(reason, _)| reason)
    };
    assert_eq!(of(|_| ()), None);
    assert_eq!(of(|it| it.content = Vec::new()), Some(Reason::Changed));
    assert_eq!(of(|it| it.links = 2), Some(Reason::HardLink));
    assert_eq!(of(|it| it.fixed = true), Some(Reason::Fixed));
    // Its time was set back, which the system notes.
    assert_eq!(of(|it| it.changed = testing::at(-59)), Some(Reason::Young));
    assert_eq!(of(|it| it.changed = testing::at(-60)), None);
}

#[test]
fn without_cri_and_cgroups_there_is_no_verdict() {
    let story = [host(0), stored(10, &[(5, ID, -500)])];
    let verdicts = judged(&story, &Besides::default());
    assert!(verdicts.free.is_empty() && verdicts.withheld.is_empty());
}
