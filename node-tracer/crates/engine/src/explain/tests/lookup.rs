//! What a word is taken for, and what is said of what is not there.

use super::*;
use event::{
    Pod,
    explanation::Kind,
    forwarding::{Forwarding, LOCAL_TABLE, RouteKind, TableRoute},
};

#[test]
fn a_beginning_of_several_ids_lists_them() {
    let mut node = incident();
    let error = ask(&node, "d6f", 100).unwrap_err();
    let SubjectError::Ambiguous {
        candidates, more, ..
    } = &error
    else {
        panic!("{error}")
    };
    let ids: Vec<_> = candidates.iter().map(|each| each.id.as_str()).collect();
    assert_eq!((ids, *more), (vec![NEW_SANDBOX, OLD_SANDBOX], 0));
    let told = error.to_string();
    assert!(
        told.contains("    # sandbox of shop/checkout-x8k2p, cri"),
        "{told}"
    );
    // The whole ID is never ambiguous, nor one that only one thing begins with.
    assert!(ask(&node, OLD_SANDBOX, 100).is_ok());

    let ids = (0..25).map(|i| format!("abc{i:061}")).collect();
    node.tell(at(
        101,
        What::ContainersListed {
            source: String::from("cgroup"),
            partial: None,
            ids,
        },
    ));
    let told = ask(&node, "abc", 102).unwrap_err().to_string();
    assert!(
        told.contains("beginning of 25 IDs\nhelp: ") && told.ends_with("\n  and 15 more"),
        "{told}"
    );
}

#[test]
fn an_address_that_a_local_route_takes_has_a_user() {
    let mut node = incident();
    assert!(!explained(&node, "10.9.9.9").subject.found);
    let route = TableRoute {
        kind: RouteKind::Local,
        ..table_route(LOCAL_TABLE, "10.9.9.9", 3)
    };
    let forwarding = Forwarding {
        rules: kernels_rules(),
        routes: vec![route],
        ..Forwarding::default()
    };
    node.tell(forwards(101, 200, &forwarding));
    let explanation = explained(&node, "10.9.9.9");
    assert_eq!(explanation.netns[0].id.inode, 200);
    let said = "10.9.9.9 is on no device; a local route takes it in netns 200";
    assert!(
        explanation.answer.starts_with(said),
        "{}",
        explanation.answer
    );
}

#[test]
fn a_word_with_several_meanings_says_which_was_taken() {
    let mut node = incident();
    let ids = [format!("9999{:060}", 0)].into();
    node.tell(at(
        101,
        What::ContainersListed {
            source: String::from("cgroup"),
            partial: None,
            ids,
        },
    ));
    node.tell(holders(101, 200, &[task(9_999, "nginx")], &[]));
    let explanation = explained(&node, "9999");
    assert_eq!(explanation.subject.kind, Kind::Pid);
    assert_eq!(
        explanation.subject.also,
        ["a sandbox's or container's ID: container:9999"]
    );
    assert!(text(&explanation).contains("container:9999"));
    // 4444 is no process here, but an ID begins so.
    let ids = [format!("4444{:060}", 0)].into();
    node.tell(at(
        102,
        What::ContainersListed {
            source: String::from("shim"),
            partial: None,
            ids,
        },
    ));
    assert_eq!(explained(&node, "4444").subject.kind, Kind::Container);
}

#[test]
fn a_process_that_the_look_did_not_list_is_looked_up() {
    let node = incident();
    let asked = parse("5555").unwrap();
    assert_eq!(asked.pid(), Some(5_555));
    let hints = Hints {
        netns_of_pid: Some(Netns {
            inode: 100,
            cookie: None,
        }),
        task: Some(pod_task(5_555, "sidecar", OLD, "02af057ee0f1aa00")),
        ..Hints::default()
    };
    let explanation = explain(&asked, &node.0, &hints, s(7_300)).unwrap();
    assert_eq!(
        explanation.answer,
        "sidecar (5555) of shop/checkout-x8k2p CONFLICT: 10.0.0.5 also held by running \
         shop/checkout-q4w7z"
    );
    let hints = Hints {
        netns_of_pid: Some(Netns {
            inode: 777,
            cookie: None,
        }),
        ..Hints::default()
    };
    let elsewhere = explain(&asked, &node.0, &hints, s(7_300)).unwrap();
    assert_eq!(
        elsewhere.answer,
        "process 5555 is in a network namespace of which nothing is known"
    );
}

#[test]
fn nobody_holds_it_is_said_only_if_everything_was_read() {
    let mut node = incident();
    let explanation = explained(&node, "10.0.0.99");
    assert!(!explanation.subject.found && explanation.subject.complete);
    assert!(
        explanation
            .answer
            .starts_with("nobody here holds 10.0.0.99"),
        "{}",
        explanation.answer
    );
    assert_eq!(explanation.unknown, [""; 0]);
    let looked_at = explanation.looked_at.join("\n");
    for what in [
        "3 network namespaces",
        "2 sandboxes",
        "2 pods",
        "2 reservations",
        "2 attachments",
    ] {
        assert!(looked_at.contains(what), "{what}: {looked_at}");
    }
    compare("nobody.txt", &text(&explanation));

    node.tell(found(101, 300));
    let partial = explained(&node, "10.0.0.99");
    assert_eq!(partial.answer, "no holder of 10.0.0.99 found; incomplete");
    assert_eq!(partial.unknown, ["the addresses in netns 300"]);
    let hints = Hints {
        unread: vec![String::from("cannot enter netns 400")],
        ..Hints::default()
    };
    let asked = parse("10.0.0.99").unwrap();
    let partial = explain(&asked, &incident().0, &hints, s(7_300)).unwrap();
    assert!(
        partial.answer.ends_with("; incomplete"),
        "{}",
        partial.answer
    );
    assert_eq!(partial.unknown, ["cannot enter netns 400"]);
}

#[test]
fn what_nobody_has_heard_of_is_told_so() {
    let node = incident();
    for word in [
        "shop/nobody",
        "ffffffff",
        "4026539999",
        "/run/netns/none",
        "4000000",
        "inode:7",
    ] {
        let explanation = explained(&node, word);
        assert!(!explanation.subject.found, "{word}");
        let answer = &explanation.answer;
        assert!(
            answer.starts_with("nothing on this node knows "),
            "{word}: {answer}"
        );
        assert_eq!(explanation.advice, [""; 0], "{word}");
    }
    let blind = Node::default();
    let answer = ask(&blind, "10.0.0.5", 1).unwrap().answer;
    assert!(
        answer.starts_with("no holder of 10.0.0.5 found; incomplete"),
        "{answer}"
    );
}

#[test]
fn an_address_that_every_namespace_has_is_cut_and_said_so() {
    let mut node = incident();
    for inode in 1_000..1_100 {
        let what = What::AddressAdded {
            netns: ns(inode),
            address: event::Address {
                address: IpAddr::from([127, 0, 0, 1]),
                prefix: 8,
                ifname: String::from("lo"),
                link_kind: None,
                dad: None,
            },
            found: true,
            made: None,
        };
        node.tell(at(101, what));
    }
    let explanation = explained(&node, "127.0.0.1");
    assert!(
        explanation.unknown[0].starts_with("36 more network namespaces"),
        "{:?}",
        explanation.unknown
    );
    assert!(text(&explanation).lines().count() < 120);
}

#[test]
fn nobody_is_never_said_of_an_address_that_sources_leave_out() {
    for word in ["127.0.0.1", "fe80::1", "::"] {
        let answer = explained(&incident(), word).answer;
        assert!(answer.contains("found; incomplete"), "{answer}");
    }
}

#[test]
fn a_task_in_uninterruptible_sleep_is_never_nothing_to_do() {
    let asked = |node: &Node, task: &Task| {
        let hints = Hints {
            task: Some(task.clone()),
            ..Hints::default()
        };
        explain(&parse("5555").unwrap(), &node.0, &hints, s(7_300)).unwrap()
    };
    let asleep = Task {
        state: Some('D'),
        ..task(5_555, "sidecar")
    };
    let node = incident();
    let found = asked(&node, &asleep);
    assert_eq!(found.advice.len(), 1);
    assert!(
        found.advice[0].starts_with("look again"),
        "{:?}",
        found.advice
    );
    let awake = asked(&node, &task(5_555, "sidecar"));
    assert!(awake.advice[0].starts_with("nothing to do"));
}

#[test]
fn a_task_that_is_told_as_one_of_many_has_its_finding_here() {
    let mut node = incident();
    let of_user = |tid: u32| {
        let mut event = stuck(101, tid, 1);
        if let What::TaskBlocked { task, since, .. } = &mut event.what {
            (task.uid, task.pod_uid, task.container_id) = (Some(1_000), None, None);
            *since = s(i64::from(tid));
        }
        event
    };
    let many: Vec<Event> = (5_500..5_556).map(of_user).collect();
    node.tell_all(&many);
    node.tick(200);
    let explanation = explained(&node, "5555");
    let [found] = &explanation.findings[..] else {
        panic!("{:?}", explanation.findings)
    };
    assert!(
        found.finding.title.contains("(5555)"),
        "{}",
        found.finding.title
    );
    assert!(!explanation.advice.is_empty());
}

#[test]
fn a_pods_name_alone_is_enough_if_one_pod_has_it() {
    let mut node = incident();
    let told = explained(&node, "checkout-x8k2p");
    assert_eq!((told.subject.kind, told.subject.found), (Kind::Pod, true));
    assert_eq!(told.subject.value, "shop/checkout-x8k2p");
    assert_eq!(
        inodes(&told),
        inodes(&explained(&node, "shop/checkout-x8k2p"))
    );
    assert!(!explained(&node, "no-such-pod").subject.found);
    let namesake = Pod {
        namespace: String::from("test"),
        ..pod(
            "checkout-q4w7z",
            "0a1b2c3d-0000-4000-8000-0000000000ee",
            &[],
        )
    };
    let running = pod("checkout-q4w7z", NEW, &[ip(5)]);
    node.tell(listed(103, &[running, namesake]));
    let error = ask(&node, "checkout-q4w7z", 104).unwrap_err().to_string();
    for candidate in [
        "name of 2 pods",
        "explain shop/checkout-q4w7z    # ",
        "explain test/checkout-q4w7z    # ",
    ] {
        assert!(error.contains(candidate), "{error}");
    }
}

#[test]
fn a_veth_or_its_hardware_address_leads_to_the_pod_behind_it() {
    let node = incident();
    let netns = |word: &str| {
        let told = explained(&node, word);
        (told.subject.kind, told.subject.value)
    };
    for word in ["vetha2", "dev:vetha2"] {
        assert_eq!(netns(word), (Kind::Netns, String::from("200")), "{word}");
    }
    assert_eq!(netns("vetha1"), (Kind::Netns, String::from("100")));
    let device = Device {
        index: 2,
        name: String::from("net1"),
        mac: Some(String::from("0a:58:0a:00:00:07")),
        ..Device::default()
    };
    let mut other = incident();
    let what = What::NetnsDevices {
        netns: ns(200),
        devices: vec![device],
        routes: Vec::new(),
        neighbours: Vec::new(),
        host_nsid: None,
    };
    other.tell(at(101, what));
    let told = explained(&other, "0A-58-0A-00-00-07");
    assert_eq!(
        (told.subject.kind, told.subject.value.as_str()),
        (Kind::Netns, "200")
    );
    let error = ask(&node, "eth0", 100).unwrap_err().to_string();
    assert!(
        error.contains("explain netns:100    # eth0, of shop/checkout-x8k2p"),
        "{error}"
    );
    assert!(!explained(&node, "veth-none").subject.found);
    assert!(!explained(&node, "02:00:00:00:00:99").subject.found);
}

#[test]
fn a_reservations_file_is_its_address() {
    let node = incident();
    let told = explained(&node, "/var/lib/cni/networks/pods/10.0.0.5");
    assert_eq!(
        (told.subject.kind, told.subject.found),
        (Kind::Address, true)
    );
    assert_eq!(told.subject.value, "10.0.0.5");
}

#[test]
fn an_answer_has_a_screen_and_that_nobody_has_it_has_five_lines() {
    let full = incident();
    let mut blind = Node::of(&[host(0)]);
    for inode in 100..190 {
        blind.tell(found(1, inode));
    }
    blind.tick(60);
    for node in [&full, &blind] {
        let free = text(&explained(node, "10.0.0.99"));
        assert!(free.lines().count() <= 5, "{free}");
        for word in [
            "10.0.0.5",
            "100",
            "shop/checkout-x8k2p",
            "pid:9",
            OLD_SANDBOX,
        ] {
            let page = text(&explained(node, word));
            assert!(page.lines().count() <= 30, "{page}");
        }
    }
}

#[test]
fn a_pods_own_rules_and_tables_are_told_with_its_namespace() {
    let mut node = incident();
    node.tell(forwards(101, 100, &whole_forwarding()));
    let answer = ask(&node, OLD_SANDBOX, 102).unwrap();
    let rules = &answer.netns[0].rules;
    assert!(rules[0].starts_with("rule 20:"), "{rules:?}");
    assert!(rules[1].starts_with("table 1002: default via"), "{rules:?}");
    assert_eq!(rules.len(), 3, "{rules:?}");
}
