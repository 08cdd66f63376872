//! Which sandboxes there are, and how their namespaces are reached.

use super::*;

#[test]
fn rivals_are_living_sandboxes_of_the_same_name() {
    let mut known = Attachments::new(procfs(), Path::new("/"));
    let start = Instant::now();
    known.added(&add("a", 100), None);
    known.added(&add("b", 200), None);
    let other = call("ADD", "c", 300, OTHER, "db-1");
    known.added(&other, None);
    let ids = |known: &Attachments, call: &CniCall| -> Vec<String> {
        let namesakes = known.namesakes(call).into_iter();
        namesakes.map(|key| key.container_id).collect()
    };
    assert_eq!(ids(&known, &add("a", 100)), ["b"]);
    assert_eq!(ids(&known, &add("unknown", 0)), ["a", "b"]);
    assert_eq!(ids(&known, &other), [""; 0]);
    known.leaves(&key("a"));
    assert_eq!(ids(&known, &add("unknown", 0)), ["b"]);
    known.netns_gone(ns(200), Instant::now());
    assert_eq!(ids(&known, &add("a", 100)), [""; 0]);
    assert!(known.has_others(&add("a", 100), start) && !known.has_others(&other, start));
}

#[test]
fn what_is_known_is_bounded_and_the_oldest_makes_room() {
    let mut known = Attachments::new(procfs(), Path::new("/"));
    for i in 0..9_000 {
        known.added(&add(&format!("c{i}"), 1_000 + i), None);
    }
    assert!(known.get(&key("c0")).is_none() && known.get(&key("c8999")).is_some());
    assert_eq!(known.namesakes(&add("x", 0)).len(), 4_096);
}

/// Its DEL has begun, and was looked at.
fn taken_back(known: &mut Attachments, id: &str, clean: bool, at: Instant) {
    known.leaves(&key(id));
    known.taken_back(&key(id), clean, at);
}

#[test]
fn what_has_left_nothing_is_forgotten_after_a_while() {
    let mut known = Attachments::new(procfs(), Path::new("/"));
    let start = Instant::now();
    let later = |seconds: u64| start + Duration::from_secs(seconds);
    let all = ["done", "again", "found", "left", "ghost", "slow"];
    for (id, inode) in all.into_iter().zip(1..) {
        known.added(&add(id, inode), None);
        taken_back(&mut known, id, id != "left", start);
        if !["ghost", "slow"].contains(&id) {
            known.netns_gone(ns(inode), start);
        }
    }
    known.netns_gone(ns(6), later(300));
    // A DEL that is tried again decides anew; an ADD makes it another.
    taken_back(&mut known, "found", false, later(500));
    known.added(&add("again", 7), None);
    known.taken_back(&key("again"), true, later(501));
    let ids = |known: &mut Attachments, at: Instant| -> Vec<&str> {
        known.forget_past(at);
        let there = all.into_iter();
        there.filter(|id| known.get(&key(id)).is_some()).collect()
    };
    assert_eq!(ids(&mut known, later(599)), all);
    assert_eq!(ids(&mut known, later(600)), all[1..]);
    assert_eq!(ids(&mut known, later(900)), all[1..5]);
    known.netns_gone(ns(7), later(950));
    assert_eq!(ids(&mut known, later(90_000)), all[1..5]);
    assert_eq!(known.take_forgotten(), [key("done"), key("slow")]);
    // What is gone is in no index either.
    assert_eq!(known.len(), [4; 4]);
}

#[test]
fn a_del_of_one_that_is_forgotten_may_take_from_the_next() {
    let mut known = Attachments::new(procfs(), Path::new("/"));
    let start = Instant::now();
    let del = |id: &str| call("DEL", id, 0, NEW, "db-0");
    known.del_seen(&del("forgotten"), start);
    known.added(&add("new", 100), None);
    let after = |seconds: u64| start + Duration::from_secs(seconds);
    assert!(known.has_others(&add("new", 100), after(29)));
    assert!(!known.has_others(&add("new", 100), after(30)));
    assert!(!known.has_others(&call("ADD", "else", 300, OTHER, "db-1"), start));
    known.del_seen(&del("new"), start);
    assert!(!known.has_others(&add("new", 100), start), "its own");
}

#[test]
fn a_namespace_is_reached_by_its_tasks_and_as_the_runtime_sees_it() {
    let procfs = Procfs::new(Path::new("/h"), Bounded::default());
    let mut known = Attachments::new(procfs, Path::new("/h"));
    known.added(&add("a", 100), None);
    known.held(ns(100), &[task(40, "pause")], &[PathBuf::from("/x/netns")]);
    let ways = |known: &Attachments, id: &str| -> Vec<String> {
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
            "/h /x/netns",
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
