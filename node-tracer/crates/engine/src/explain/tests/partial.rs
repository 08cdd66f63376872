//! What is said of a subject that is known while not everything was read.

use super::*;
use event::explanation::Explanation;

/// The same when a look could not read all namespaces.
fn explained_blindly(node: &Node, word: &str) -> Explanation {
    let hints = Hints {
        unread: vec![String::from("cannot enter netns 400")],
        ..Hints::default()
    };
    explain(&parse(word).unwrap(), &node.0, &hints, s(7_300)).unwrap()
}

fn store(seconds: i64, path: &str, unread: &[&str]) -> Event {
    let store = Store {
        path: PathBuf::from(path),
        unread: unread.iter().map(|why| (*why).to_owned()).collect(),
        ..Store::default()
    };
    at(seconds, What::StoreListed { store })
}

#[test]
fn that_no_namespace_has_an_address_is_said_of_those_that_were_read() {
    let mut node = incident();
    assert_eq!(
        explained_blindly(&node, "10.0.0.77").answer,
        "no netns has 10.0.0.77; it is reserved for a container of \
         which nothing is left; incomplete"
    );
    // Whose it is is not known then, but that no namespace has it.
    node.tell(cri_fails(101));
    let answer = explained(&node, "10.0.0.77").answer;
    assert!(answer.starts_with("no netns has 10.0.0.77; "), "{answer}");
    node.tell(found(102, 300));
    let answer = explained(&node, "10.0.0.77").answer;
    assert!(answer.starts_with("no netns has 10.0.0.77; "), "{answer}");
}

#[test]
fn that_a_pod_or_container_has_no_namespace_is_said_only_if_everything_was_read() {
    let mut node = incident();
    node.tell(listed(101, &[pod("fine", OTHER, &[ip(9)])]));
    let whole = "it has no netns here";
    let part = "no netns of it found; incomplete";
    let pod = "pod shop/fine is Running";
    assert_eq!(
        explained(&node, "shop/fine").answer,
        format!("{pod}; {whole}")
    );
    assert_eq!(
        explained_blindly(&node, "shop/fine").answer,
        format!("{pod}; {part}")
    );
    // One of which only a reservation is left.
    let word = "container:77777777";
    let reserved = ", and 10.0.0.77 is still reserved for it";
    let answer = explained(&node, word).answer;
    assert!(
        answer.ends_with(&format!("; {whole}{reserved}")),
        "{answer}"
    );
    let answer = explained_blindly(&node, word).answer;
    assert!(answer.ends_with(&format!("; {part}{reserved}")), "{answer}");
}

#[test]
fn a_namespace_that_was_not_visited_is_not_said_to_have_no_address() {
    let mut node = incident();
    node.tell(found(101, 300));
    assert_eq!(
        explained(&node, "inode:300").answer,
        "netns 300, of which no pod is known (its addresses were not read)"
    );
    node.tell_all(&[
        listed(101, &[pod("fine", OTHER, &[ip(9)])]),
        found(102, 500),
        holders(102, 500, &[pod_task(50, "nginx", OTHER, "0e0e0e")], &[]),
    ]);
    let pod = "pod shop/fine is Running; it has netns 500";
    assert_eq!(
        explained(&node, "shop/fine").answer,
        format!("{pod} (its addresses were not read)")
    );
    // Its devices were read, and there is no address on them.
    node.tell(wired(103, 500, 90, 0));
    assert_eq!(
        explained(&node, "shop/fine").answer,
        format!("{pod} and no address")
    );
    let answer = explained(&node, "inode:500").answer;
    assert!(answer.ends_with(" has no address of its own"), "{answer}");
}

#[test]
fn nobody_is_said_of_stores_that_were_read_whole() {
    let page = |node: &Node| whole(&explained(node, "10.0.0.99"));
    let mut node = incident();
    let whole = page(&node);
    let line = format!("reserved  for nobody, in {STORE}\n");
    assert!(whole.contains(&line), "{whole}");
    let cut = "has more than 65536 files; the rest was not read";
    node.tell(store(101, STORE, &[cut]));
    let part = page(&node);
    assert!(!part.contains("for nobody"), "{part}");
    assert!(part.contains(cut), "{part}");
    // Another one was.
    node.tell(store(102, "/data/ipam", &[]));
    let both = page(&node);
    assert!(
        both.contains("reserved  for nobody, in /data/ipam\n"),
        "{both}"
    );
    // The record has that in `unknown` alone.
    assert!(!json(&explained(&node, "10.0.0.99")).contains("partial"));
}

#[test]
fn why_there_may_be_more_namespaces_is_said_once() {
    let why = "the network namespaces of 3 tasks: permission denied";
    let mut node = incident();
    let error = format!(
        "not all that can lead to a network namespace could be looked at: {why}; mounts: no \
         answer; 11 more of this kind"
    );
    let source = String::from("netns");
    node.tell(at(101, What::SourceFailed { source, error }));
    let other = "1 more of this kind";
    let unread = [why, other, "mounts: no answer"];
    let hints = Hints {
        unread: unread.map(String::from).into(),
        ..Hints::default()
    };
    // Both what is known and what is not found are told with it.
    let told = |word: &str| explain(&parse(word).unwrap(), &node.0, &hints, s(7_300)).unwrap();
    let known = told("10.0.0.5");
    let times = |part: &str| {
        let lines = known.unknown.iter();
        lines.filter(|line| line.contains(part)).count()
    };
    assert_eq!((times(why), times("mounts: no answer")), (1, 1));
    assert!(known.unknown.iter().any(|line| line == other));
    assert!(!known.subject.complete);
    let unknown = told("10.0.0.99").unknown.join("\n");
    assert_eq!(unknown.matches(why).count(), 1, "{unknown}");
}
