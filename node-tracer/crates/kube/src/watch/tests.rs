use serde_json::Value;

use super::{retry::Retry, *};
use crate::server::{Reply, Server, StreamEnd as Ends, TOKEN, event, page, pod, status};

const SOON: Duration = Duration::from_secs(5);
const NOW: Duration = Duration::ZERO;

fn quick() -> Timing {
    Timing {
        answer: Duration::from_secs(5),
        watch: Duration::from_secs(20),
        overdue: Duration::from_secs(1),
        // Never early.
        early: Duration::from_secs(60),
        retry: (Duration::from_millis(20), Duration::from_millis(80)),
        together: Duration::from_millis(20),
        needed: Duration::from_millis(20),
        pause: Duration::from_millis(200),
        anew: Duration::from_millis(200),
        whole: Duration::from_secs(600),
        grace: Duration::from_secs(2),
    }
}

/// A server with pod `a` on its list, version 10, whose watches go like this.
fn watched(watch: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Server {
    Server::new(move |path, count| match path.contains("watch=") {
        true => watch(path, count),
        false => Reply::Json(200, page(&["a"], 10, "")),
    })
}

fn follow(server: &Server) -> Watch {
    follow_with(server, quick())
}

fn follow_with(server: &Server, timing: Timing) -> Watch {
    Watch::with(server.credentials(), "node-1", timing).unwrap()
}

fn next(watch: &mut Watch) -> WatchUpdate {
    watch.wait(SOON).expect("nothing was told")
}

/// In short: `[a b]` for a list, `+a` for a change, `-a` for a deletion.
fn news(watch: &mut Watch, count: usize) -> Vec<String> {
    let short = |told| match told {
        WatchUpdate::Listed(listing) => {
            let names: Vec<&str> = listing.pods.iter().map(|pod| pod.name.as_str()).collect();
            format!("[{}]", names.join(" "))
        }
        WatchUpdate::Changed(pod) => format!("+{}", pod.name),
        WatchUpdate::Deleted { pod, .. } => format!("-{}", pod.name),
        WatchUpdate::Failed(error) => {
            assert!(!error.contains(TOKEN));
            format!(
                "failed: {}",
                error.split_once("): ").map_or("", |(_, text)| text)
            )
        }
        WatchUpdate::Following => String::from("following"),
    };
    (0..count).map(|_| short(next(watch))).collect()
}

fn stream(events: &[(u64, Value)], end: Ends) -> Reply {
    let line = |(pause, event): &(u64, Value)| (Duration::from_millis(*pause), event.clone());
    Reply::Stream(events.iter().map(line).collect(), end)
}

/// What was asked for and from which version: `list 0` is of any age, `list` as of
/// now.
fn asked(server: &Server) -> Vec<String> {
    let brief = |path: &String| {
        let version = path.split_once("resourceVersion=");
        let version = version.map_or("", |(_, version)| version);
        let verb = match path.contains("watch=") {
            true => "watch",
            false => "list",
        };
        format!("{verb} {version}").trim_end().to_owned()
    };
    server.requests().iter().map(brief).collect()
}

#[test]
fn changes_are_told_together_and_deletions_at_once() {
    let server = watched(|_, _| {
        let gone = event("DELETED", pod("a", 14));
        stream(
            &[
                (0, event("ADDED", pod("b", 11))),
                (0, event("ADDED", pod("c", 12))),
                (0, event("BOOKMARK", pod("", 13))),
                (0, gone),
            ],
            Ends::Hang,
        )
    });
    let mut watch = follow(&server);
    let WatchUpdate::Listed(first) = next(&mut watch) else {
        panic!()
    };
    assert_eq!(first.pods.len(), 1);
    assert_eq!(news(&mut watch, 4), ["following", "-a", "+b", "+c"]);
    assert_eq!(watch.wait(NOW), None);
    let path = server.requests().pop().unwrap();
    for part in [
        "fieldSelector=spec.nodeName%3Dnode-1",
        "allowWatchBookmarks=true",
        "resourceVersion=10",
        "timeoutSeconds=",
    ] {
        assert!(path.contains(part), "{path}");
    }
}

#[test]
fn a_pod_that_comes_and_goes_between_two_lists_is_told() {
    let server = watched(|_, _| {
        stream(
            &[
                (0, event("ADDED", pod("b", 11))),
                (0, event("DELETED", pod("b", 12))),
            ],
            Ends::Hang,
        )
    });
    let mut watch = follow(&server);
    assert_eq!(news(&mut watch, 4), ["[a]", "following", "+b", "-b"]);
    assert_eq!(watch.wait(4 * quick().pause), None);
}

#[test]
fn a_mirror_pod_that_is_made_anew_has_not_gone() {
    let mirror = |version| {
        let mut pod = pod("etcd", version);
        pod["metadata"]["annotations"] = serde_json::json!({ "kubernetes.io/config.hash": "0a1b" });
        pod
    };
    let server = watched(move |_, _| {
        stream(
            &[
                (0, event("ADDED", mirror(11))),
                (300, event("DELETED", mirror(12))),
                (0, event("ADDED", mirror(13))),
            ],
            Ends::Hang,
        )
    });
    let mut watch = follow(&server);
    assert_eq!(news(&mut watch, 3), ["[a]", "following", "+etcd"]);
    assert_eq!(watch.wait(4 * quick().pause), None);
}

#[test]
fn a_mirror_pod_that_another_one_has_replaced_has_not_gone() {
    for new in ["uid-0", "uid-z"] {
        let mirror = move |uid: &str, version| {
            let mut pod = pod("etcd", version);
            pod["metadata"]["uid"] = uid.into();
            pod["metadata"]["annotations"] =
                serde_json::json!({ "kubernetes.io/config.hash": "0a1b" });
            pod
        };
        let server = watched(move |_, _| {
            stream(
                &[
                    (0, event("ADDED", mirror("uid-etcd", 11))),
                    (300, event("DELETED", mirror("uid-etcd", 12))),
                    (0, event("ADDED", mirror(new, 13))),
                ],
                Ends::Hang,
            )
        });
        let mut watch = follow(&server);
        let told = news(&mut watch, 4);
        assert_eq!(told, ["[a]", "following", "+etcd", "+etcd"], "{new}");
        assert_eq!(watch.wait(4 * quick().pause), None, "{new}");
    }
}

#[test]
fn a_pod_has_gone_whatever_another_writes_that_it_is_the_mirror_of() {
    let forged = |name, version| {
        let mut pod = pod(name, version);
        pod["metadata"]["annotations"] = serde_json::json!({ "kubernetes.io/config.hash": "0a1b" });
        pod
    };
    let server = watched(move |_, _| {
        stream(
            &[
                (0, event("ADDED", forged("b", 11))),
                (0, event("ADDED", forged("c", 12))),
                (300, event("DELETED", forged("b", 13))),
            ],
            Ends::Hang,
        )
    });
    let mut watch = follow(&server);
    let told = news(&mut watch, 5);
    assert_eq!(told, ["[a]", "following", "+b", "+c", "-b"]);
}

#[test]
fn a_watch_that_ends_in_order_is_taken_up_where_it_ended() {
    let server = watched(|path, _| match path.ends_with("=10") {
        true => stream(&[(50, event("BOOKMARK", pod("", 15)))], Ends::Clean),
        false => stream(&[(0, event("ADDED", pod("b", 16)))], Ends::Hang),
    });
    let mut watch = follow(&server);
    assert_eq!(news(&mut watch, 4), ["[a]", "following", "following", "+b"]);
    assert_eq!(asked(&server), ["list 0", "watch 10", "watch 15"]);
}

#[test]
fn after_anything_else_the_pods_are_listed_anew() {
    let expired = event("ERROR", status(410, "too old resource version"));
    for first in [
        stream(&[(0, expired)], Ends::Clean),
        stream(&[(0, event("ADDED", pod("b", 11)))], Ends::Cut),
        stream(
            &[(0, event("ADDED", serde_json::json!({ "kind": "Node" })))],
            Ends::Hang,
        ),
        stream(&[(0, Value::from("what"))], Ends::Hang),
        Reply::Json(410, status(410, "too old")),
        Reply::Json(500, status(500, "etcd")),
        stream(&[], Ends::Clean),
    ] {
        let server = watched(move |_, count| match count {
            1 => first.clone(),
            _ => stream(&[(0, event("DELETED", pod("a", 20)))], Ends::Hang),
        });
        let timing = Timing {
            early: NOW,
            ..quick()
        };
        let mut watch = follow_with(&server, timing);
        let mut told = news(&mut watch, 1);
        while told.last().unwrap() != "-a" {
            told.extend(news(&mut watch, 1));
        }
        let asked = asked(&server);
        assert_eq!(asked[..2], ["list 0", "watch 10"]);
        assert!(
            asked[2].starts_with("list 1"),
            "not an older one: {asked:?}"
        );
        assert_eq!(asked[3..], ["watch 10"]);
        let failed = told.iter().any(|told| told.starts_with("failed"));
        assert!(!failed, "it was over soon: {told:?}");
    }
}

#[test]
fn changes_before_a_break_are_told() {
    let server = watched(|_, count| match count {
        1 => stream(
            &[
                (0, event("ADDED", pod("b", 11))),
                (0, event("MODIFIED", pod("a", 12))),
            ],
            Ends::Cut,
        ),
        _ => stream(&[], Ends::Hang),
    });
    let mut watch = follow(&server);
    assert_eq!(
        news(&mut watch, 5),
        ["[a]", "following", "+b", "[a]", "following"]
    );
}

#[test]
fn a_first_failure_is_told_at_once_and_its_end_when_it_is_over() {
    let server = Server::new(|path, count| match count {
        0..3 => Reply::Json(403, status(403, "no")),
        _ if path.contains("watch=") => stream(&[], Ends::Hang),
        _ => Reply::Json(200, page(&["a"], 10, "")),
    });
    let mut watch = follow(&server);
    let told = news(&mut watch, 3);
    assert!(
        told[0].starts_with("failed: they do not allow to list pods (403"),
        "{told:?}"
    );
    assert_eq!(told[1..], ["[a]", "following"], "told once");
}

#[test]
fn a_long_failure_is_told_once_for_each_reason() {
    let server = Server::new(|path, count| match count {
        0 => Reply::Json(200, page(&["a"], 10, "")),
        1 => stream(&[], Ends::Cut),
        _ if path.contains("watch=") => stream(&[], Ends::Hang),
        2..12 => Reply::Json(503, status(503, "starting")),
        _ => Reply::Json(200, page(&["b"], 30, "")),
    });
    let mut watch = follow_with(
        &server,
        Timing {
            grace: Duration::from_millis(20),
            ..quick()
        },
    );
    assert_eq!(
        news(&mut watch, 5),
        [
            "[a]",
            "following",
            "failed: it answers with status 503; it says: starting",
            "[b]",
            "following"
        ]
    );
}

#[test]
fn rights_to_list_alone_give_lists_and_stay_told() {
    let server = Server::new(|path, _| match path.contains("watch=") {
        true => Reply::Json(403, status(403, "no")),
        false => Reply::Json(200, page(&["a"], 10, "")),
    });
    let mut watch = follow_with(
        &server,
        Timing {
            grace: Duration::from_millis(20),
            ..quick()
        },
    );
    let mut told = Vec::new();
    while !told.iter().any(|told: &String| told.starts_with("failed")) {
        told.extend(news(&mut watch, 1));
    }
    assert!(
        told.last().unwrap().contains("allow to watch pods"),
        "{told:?}"
    );
    assert_eq!(news(&mut watch, 2), ["[a]", "[a]"]);
}

#[test]
fn a_watch_that_falls_silent_is_dead() {
    let server = watched(|_, _| stream(&[], Ends::Hang));
    let timing = Timing {
        watch: Duration::from_millis(100),
        overdue: Duration::from_millis(100),
        ..quick()
    };
    let mut watch = follow_with(&server, timing);
    assert_eq!(
        news(&mut watch, 4),
        ["[a]", "following", "[a]", "following"]
    );
}

#[test]
fn the_thread_ends_with_its_watch() {
    let server = watched(|_, _| stream(&[], Ends::Hang));
    let mut watch = follow(&server);
    assert_eq!(news(&mut watch, 2), ["[a]", "following"]);
    let (_keep, told) = mpsc::sync_channel(1);
    let told = std::mem::replace(&mut watch.told, told);
    drop(watch);
    assert_eq!(told.recv_timeout(SOON), Err(RecvTimeoutError::Disconnected));
}

/// A pod as it was, but for what is not kept.
fn annotated(name: &str, version: u64) -> Value {
    let mut pod = pod(name, version);
    pod["metadata"]["annotations"] = serde_json::json!({ "at": version });
    pod
}

#[test]
fn a_change_of_what_is_not_kept_is_none() {
    let server = watched(|_, _| {
        let same = (11..20).map(|version| (0, event("MODIFIED", annotated("a", version))));
        let mut events: Vec<_> = same.collect();
        events.push((300, event("ADDED", pod("b", 20))));
        stream(&events, Ends::Hang)
    });
    let mut watch = follow(&server);
    assert_eq!(news(&mut watch, 3), ["[a]", "following", "+b"]);
}

#[test]
fn what_changes_back_before_it_was_told_has_not_changed() {
    let server = watched(|_, _| {
        let mut failed = pod("a", 11);
        failed["status"]["phase"] = Value::from("Failed");
        let events = [
            (0, event("MODIFIED", failed)),
            (0, event("MODIFIED", pod("a", 12))),
        ];
        stream(&events, Ends::Hang)
    });
    let mut watch = follow(&server);
    assert_eq!(news(&mut watch, 2), ["[a]", "following"]);
    assert_eq!(watch.wait(4 * quick().pause), None);
}

/// Pods with names of their own, and as long as may be.
fn flood(count: u32, kinds: &[&str]) -> Vec<(u64, Value)> {
    let name = |number: u32| format!("{number:0>120}");
    let events = |number| {
        let pod = pod(&name(number), 11);
        kinds.iter().map(move |kind| (0, event(kind, pod.clone())))
    };
    (0..count).flat_map(events).collect()
}

#[test]
fn a_server_that_adds_pods_without_end_is_told_to_have_failed_and_takes_no_memory() {
    let many = u32::try_from(crate::MAX_KEPT / 550).unwrap();
    let server = watched(move |_, _| stream(&flood(many, &["ADDED"]), Ends::Hang));
    let mut watch = follow(&server);
    let mut told = Vec::new();
    while !told
        .iter()
        .any(|told: &String| told.contains("more than the pods of a node are"))
    {
        told.extend(news(&mut watch, 1));
    }
    let changes = told.iter().filter(|told| told.starts_with('+')).count();
    assert!((1..2_000).contains(&changes), "{changes} changes were told");
}

#[test]
fn pods_that_come_and_go_faster_than_can_be_told_are_shown_to_be_gone_by_a_later_list() {
    let server = watched(|path, count| match (path, count) {
        (_, 1) => stream(&flood(2_000, &["ADDED", "DELETED"]), Ends::Hang),
        _ => stream(&[], Ends::Hang),
    });
    let mut watch = follow(&server);
    let mut told = news(&mut watch, 3);
    while told.last().unwrap() != "[a]" {
        told.extend(news(&mut watch, 1));
    }
    assert!(told.len() < 1_000, "{}", told.len());
    assert_eq!(asked(&server)[..3], ["list 0", "watch 10", "list"]);
}

#[test]
fn no_list_is_asked_for_before_the_last_one_is_read() {
    let server = Server::new(|path, _| match path.contains("watch=") {
        true => Reply::Json(500, status(500, "no")),
        false => Reply::Json(200, page(&["a"], 10, "")),
    });
    let mut watch = follow(&server);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(asked(&server), ["list 0", "watch 10"]);
    assert_eq!(news(&mut watch, 2), ["[a]", "[a]"]);
}

#[test]
fn a_list_is_told_whole_again_after_a_while_if_there_were_changes() {
    let server = watched(|_, _| stream(&[(300, event("ADDED", pod("b", 11)))], Ends::Hang));
    let timing = Timing {
        whole: NOW,
        ..quick()
    };
    let mut watch = follow_with(&server, timing);
    let WatchUpdate::Listed(first) = next(&mut watch) else {
        panic!()
    };
    assert_eq!(next(&mut watch), WatchUpdate::Following);
    let WatchUpdate::Listed(second) = next(&mut watch) else {
        panic!()
    };
    assert_eq!(second.pods.len(), 2);
    assert_eq!(second.at, first.at, "an event does not make a list truer");
}

#[test]
fn the_first_list_proves_nothing_and_one_that_does_is_asked_for_no_more_often_than_so() {
    let server = watched(|_, _| stream(&[], Ends::Hang));
    let mut watch = follow(&server);
    let mut listed = |prove: bool| {
        let told = loop {
            if prove {
                watch.prove();
            }
            if let Some(told) = watch.wait(Duration::from_millis(100)) {
                break told;
            }
        };
        let WatchUpdate::Listed(listing) = told else {
            panic!()
        };
        assert_eq!(next(&mut watch), WatchUpdate::Following);
        listing
    };
    let since = std::time::Instant::now();
    assert_eq!(listed(false).made_after, Some(Timestamp::EPOCH));
    assert_eq!(listed(true).made_after, None, "true as of now");
    listed(true);
    assert!(since.elapsed() >= quick().anew, "{:?}", since.elapsed());
    let of_now = asked(&server).iter().filter(|it| *it == "list").count();
    assert_eq!((asked(&server)[0].as_str(), of_now), ("list 0", 2));
}

#[test]
fn a_server_that_cannot_have_what_is_known_is_asked_for_what_it_has() {
    let too_large = || Reply::Json(504, status(504, "Too large resource version"));
    let server = Server::new(move |path, count| match (path.contains("watch="), count) {
        (true, 1) => stream(&[], Ends::Cut),
        (true, _) => stream(&[], Ends::Hang),
        (false, 0) => Reply::Json(200, page(&["a"], 90, "")),
        (false, _) if path.contains("resourceVersion=90") => too_large(),
        (false, _) => Reply::Json(200, page(&["b"], 7, "")),
    });
    let mut watch = follow(&server);
    assert_eq!(
        news(&mut watch, 4),
        ["[a]", "following", "[b]", "following"]
    );
    let asked = asked(&server);
    assert_eq!(asked[2..], ["list 90", "list 90", "list", "watch 7"]);
}

#[test]
fn a_server_that_wants_to_be_left_alone_is_left_alone() {
    let server = Server::new(|path, count| match count {
        0 => Reply::Later(429, 1),
        _ if path.contains("watch=") => stream(&[], Ends::Hang),
        _ => Reply::Json(200, page(&["a"], 10, "")),
    });
    let since = std::time::Instant::now();
    let mut watch = follow(&server);
    let told = news(&mut watch, 2);
    assert!(told[0].starts_with("failed: it answers with status 429"));
    assert_eq!(told[1], "[a]");
    assert!(
        since.elapsed() >= Duration::from_secs(1),
        "{:?}",
        since.elapsed()
    );
}

#[test]
fn all_nodes_that_lose_the_server_together_come_back_over_the_whole_pause() {
    let Timing {
        retry, together, ..
    } = Timing::default();
    let pause = |_| {
        let mut retry = Retry::new(retry);
        retry.spread(together);
        retry.pause().as_secs_f64()
    };
    let pauses: Vec<f64> = (0..5_000).map(pause).collect();
    // A server that starts answers those of some seconds at once. With more of them,
    // chance alone would go beyond the limit now and then.
    const STARTS: f64 = 4.0;
    for second in 0..together.as_secs() {
        let at = second as f64;
        let asking = pauses
            .iter()
            .filter(|it| (at..at + STARTS).contains(*it))
            .count();
        // A list and a watch of each.
        assert!(2 * asking <= 500, "{asking} nodes from second {second}");
    }
}

#[test]
fn who_needs_the_pods_comes_back_sooner() {
    let mut lists = 0;
    let server = watched(|_, count| match count {
        1 => stream(&[], Ends::Cut),
        _ => stream(&[], Ends::Hang),
    });
    let timing = Timing {
        together: Duration::from_secs(3_600),
        ..quick()
    };
    let mut watch = follow_with(&server, timing);
    let begin = std::time::Instant::now();
    while lists < 2 && begin.elapsed() < SOON {
        match watch.wait(NOW) {
            Some(WatchUpdate::Listed(listing)) => {
                lists += 1;
                assert_eq!(listing.made_after.is_none(), lists == 2, "the proof");
            }
            // Until then nothing is needed.
            Some(WatchUpdate::Failed(_)) | None => watch.prove(),
            Some(_) => {}
        }
    }
    assert_eq!(lists, 2);
}

#[test]
fn pauses_grow_to_a_limit() {
    let longest = |failures: u32| {
        let one = |_| {
            let mut retry = Retry::new((Duration::from_secs(1), Duration::from_secs(30)));
            for _ in 0..failures {
                retry.pause();
            }
            retry.pause()
        };
        (0..200).map(one).max().unwrap()
    };
    assert!(longest(0) <= Duration::from_secs(1));
    assert!(longest(3) > Duration::from_secs(4));
    assert!(longest(40) <= Duration::from_secs(30));
}
