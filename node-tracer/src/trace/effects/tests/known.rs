//! Which sandboxes there are, and how their namespaces are reached.

use super::*;

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
    known.netns_gone(ns(200), Instant::now());
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
fn what_has_left_nothing_is_forgotten_after_a_while() {
    let mut known = Known::new(procfs(), Path::new("/"));
    let start = Instant::now();
    let later = |seconds: u64| start + Duration::from_secs(seconds);
    for (id, inode) in [
        ("done", 1),
        ("again", 2),
        ("left", 3),
        ("ghost", 4),
        ("slow", 5),
    ] {
        known.added(&add(id, inode), None);
        known.taken_back(&key(id), id != "left", start);
        if !["ghost", "slow"].contains(&id) {
            known.netns_gone(ns(inode), start);
        }
    }
    known.netns_gone(ns(5), later(300));
    // A DEL that is tried again changes nothing, unless it finds something.
    known.taken_back(&key("done"), true, later(500));
    known.added(&add("found", 7), None);
    known.netns_gone(ns(7), start);
    known.taken_back(&key("found"), true, start);
    known.taken_back(&key("found"), false, later(500));
    // An ADD does, too.
    known.added(&add("again", 6), None);
    let ids = |known: &mut Known, at: Instant| -> Vec<&str> {
        known.forget_past(at);
        let all = ["done", "again", "left", "ghost", "slow"].into_iter();
        all.filter(|id| known.get(&key(id)).is_some()).collect()
    };
    let all = ["done", "again", "left", "ghost", "slow"];
    assert_eq!(ids(&mut known, later(599)), all);
    assert_eq!(ids(&mut known, later(600)), all[1..]);
    assert_eq!(ids(&mut known, later(900)), all[1..4]);
    assert_eq!(ids(&mut known, later(90_000)), all[1..4]);
    assert_eq!(known.take_forgotten(), [key("done"), key("slow")]);
    // What is gone is in no index either.
    let rivals = known.rivals(&add("x", 0)).into_iter();
    let rivals: Vec<String> = rivals.map(|key| key.container_id).collect();
    assert_eq!(rivals, ["again", "ghost"]);
    assert!(known.get(&key("found")).is_some());
    assert_eq!(known.len(), [4; 4]);
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
    known.netns_gone(ns(100), Instant::now());
    assert_eq!(ways(&known, "a"), [""; 0]);
}
