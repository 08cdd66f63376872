use super::*;
use crate::model::Model;
use event::{What, testing::*};

fn pods(lists: &[(i64, &[Pod])]) -> Pods {
    let mut pods = Pods::default();
    for (at, list) in lists {
        pods.listed("pods", s(*at), None, false, list);
    }
    pods
}

#[test]
fn a_list_says_who_is_there_and_who_was() {
    let (a, b) = (pod("a", OLD, &[]), pod("b", NEW, &[]));
    let pods = pods(&[(10, &[a, b.clone()]), (20, &[b])]);
    assert_eq!(pods.presence(NEW, s(0)), PodPresence::Listed);
    assert_eq!(pods.presence(OLD, s(0)), PodPresence::Gone(s(20)));
    assert_eq!(pods.presence(OTHER, s(0)), PodPresence::Unlisted(s(20)));
    assert_eq!(
        pods.presence(OTHER, s(20)),
        PodPresence::Unknown,
        "younger than the list"
    );
    assert_eq!(pods.pod(OLD).unwrap().name, "a");
}

#[test]
fn a_list_proves_nothing_of_what_may_be_younger_than_it() {
    let mut pods = Pods::default();
    pods.listed("file", s(90), Some(s(10)), false, &[pod("a", OLD, &[])]);
    assert_eq!(pods.presence(OTHER, s(9)), PodPresence::Unlisted(s(90)));
    assert_eq!(pods.presence(OTHER, s(10)), PodPresence::Unknown);
    assert_eq!(pods.presence(OTHER, s(40)), PodPresence::Unknown);
    assert_eq!(pods.presence(OLD, s(40)), PodPresence::Listed);
    // The next is later, although its newest pod is older; and one that was on
    // the list before is gone whatever its age.
    pods.listed("file", s(95), Some(s(5)), false, &[]);
    assert_eq!(pods.presence(OTHER, s(9)), PodPresence::Unlisted(s(95)));
    assert_eq!(pods.presence(OTHER, s(40)), PodPresence::Unknown);
    assert_eq!(pods.presence(OLD, s(40)), PodPresence::Gone(s(95)));
    // A time that is still to come shows no age.
    pods.listed("file", s(99), Some(s(500)), false, &[]);
    assert_eq!(pods.presence(OTHER, s(10)), PodPresence::Unknown);
    assert_eq!(pods.presence(OTHER, s(9)), PodPresence::Unlisted(s(99)));
}

#[test]
fn a_pod_had_run_to_its_end_when_it_was_first_seen_so() {
    let of = |finished: Option<i64>| Pod {
        phase: Some(String::from("Succeeded")),
        finished: finished.map(s),
        ..pod("job", OLD, &[])
    };
    let end = |pods: &Pods| pods.presence(OLD, s(0));
    for later in [None, Some(500)] {
        let mut pods = pods(&[(10, &[of(later)]), (20, &[of(later)])]);
        assert_eq!(end(&pods), PodPresence::Finished(s(10)), "{later:?}");
        assert!(!pods.changed(&of(later), s(30)), "as it was");
        assert!(pods.changed(&of(Some(7)), s(40)));
        assert_eq!(end(&pods), PodPresence::Finished(s(7)));
        pods.listed("pods", s(600), None, false, &[of(later)]);
        assert_eq!(end(&pods), PodPresence::Finished(s(7)));
    }
    let mut pods = pods(&[(10, &[pod("job", OLD, &[])])]);
    assert!(pods.changed(&of(Some(500)), s(30)));
    assert_eq!(end(&pods), PodPresence::Finished(s(30)));
}

#[test]
fn an_older_list_does_not_replace_a_later_one() {
    let a = pod("a", OLD, &[]);
    let pods = pods(&[(20, &[]), (10, &[a])]);
    assert_eq!(pods.presence(OLD, s(0)), PodPresence::Unlisted(s(20)));
}

#[test]
fn a_pod_that_comes_back_was_never_gone() {
    let a = [pod("a", OLD, &[])];
    let pods = pods(&[(10, &a), (20, &[]), (30, &a)]);
    assert_eq!(pods.presence(OLD, s(0)), PodPresence::Listed);
}

#[test]
fn a_deletion_needs_no_new_list() {
    let mut pods = pods(&[(10, &[pod("a", OLD, &[]), pod("b", NEW, &[])])]);
    let gone = reference(&pod("a", OLD, &[]));
    assert!(pods.deleted(&gone, s(15)));
    assert!(!pods.deleted(&gone, s(16)), "told twice");
    assert_eq!(pods.presence(OLD, s(0)), PodPresence::Gone(s(15)));
    assert_eq!(pods.presence(NEW, s(0)), PodPresence::Listed);
}

#[test]
fn a_mirror_pod_is_known_by_its_static_pods_uid() {
    const HASH: &str = "0a1b2c3d00004000800000000000000f";
    let mut mirror = pod("etcd", OLD, &[]);
    mirror.uids.insert(HASH.to_owned());
    assert_eq!(reference(&mirror).uid.as_deref(), Some(HASH));
    let mut again = mirror.clone();
    again.uids = [NEW.to_owned(), HASH.to_owned()].into();
    assert_eq!(
        deleted(&[mirror.clone()], &[again.clone()]),
        [],
        "only the mirror was made anew"
    );
    let pods = pods(&[(10, &[mirror]), (20, &[again])]);
    assert_eq!(pods.presence(HASH, s(0)), PodPresence::Listed);
}

#[test]
fn deleted_pods_are_those_that_the_next_list_lacks() {
    let (a, b, c) = (pod("a", OLD, &[]), pod("b", NEW, &[]), pod("a", OTHER, &[]));
    assert_eq!(deleted(&[a.clone(), b.clone()], &[b, c]), [reference(&a)]);
}

#[test]
fn a_list_of_other_pods_alone_shows_of_none_that_it_is_gone() {
    let on = |namespace: &str, name: &str, node: &str| Pod {
        namespace: namespace.to_owned(),
        node: Some(node.to_owned()),
        ..pod(name, name, &[])
    };
    let proxy = on("kube-system", "proxy", "n1");
    let other = on("kube-system", "other", "n2");
    let all = [on("shop", "web", "n1"), proxy.clone(), other.clone()];
    let gone = |new: &[Pod]| deleted(&all, new).len();
    assert_eq!(
        gone(&[proxy.clone(), other.clone()]),
        0,
        "one namespace of many nodes"
    );
    assert_eq!(
        gone(&[other.clone(), on("shop", "db", "n2")]),
        0,
        "another node"
    );
    assert_eq!(
        gone(std::slice::from_ref(&proxy)),
        1,
        "this node has one namespace's alone"
    );
    assert_eq!(gone(&[proxy, other, on("shop", "db", "n2")]), 1);
    assert_eq!(gone(&[]), 3);
}

#[test]
fn a_pod_is_gone_whatever_others_write_that_they_are_the_mirror_of() {
    const HASH: &str = "a4f4d2f9b1c84e7f8e0f7c1d2b3a4958";
    let of = |name: &str, uid: &str| Pod {
        uids: [uid, HASH].map(str::to_owned).into(),
        ..pod(name, uid, &[])
    };
    let (a, b) = (of("a", OLD), of("b", NEW));
    assert_eq!(
        deleted(&[a.clone(), b.clone()], std::slice::from_ref(&b)),
        [reference(&a)]
    );
    let mut pods = pods(&[(10, &[a, b.clone()])]);
    pods.listed("file", s(20), Some(s(0)), false, &[b]);
    assert_eq!(pods.presence(OLD, s(15)), PodPresence::Gone(s(20)));
}

#[test]
fn a_list_that_is_too_long_proves_no_absence() {
    let many: Vec<Pod> = (0..=MAX_PODS)
        .map(|i| pod("x", &format!("a-{i}"), &[]))
        .collect();
    let mut pods = pods(&[(10, &many)]);
    assert_eq!(pods.presence(OLD, s(0)), PodPresence::Unknown);
    assert_eq!(pods.take_dropped(), 1);
}

#[test]
fn the_memory_of_the_departed_is_bounded() {
    let many: Vec<Pod> = (0..MAX_DEPARTED + 9)
        .map(|i| pod("x", &format!("a-{i}"), &[]))
        .collect();
    let pods = pods(&[(10, &many), (20, &[])]);
    assert_eq!(pods.departed.len(), MAX_DEPARTED);
    // One that came back and went again has gone last.
    let a = pod("a", OLD, &[]);
    let mut all = many[..MAX_DEPARTED - 1].to_vec();
    all.push(a.clone());
    let a: &[Pod] = &[a];
    let pods = self::pods(&[(10, a), (20, &[]), (30, &all), (40, a), (50, &[])]);
    assert_eq!(pods.presence(OLD, s(0)), PodPresence::Gone(s(50)));
    assert!(pods.order.len() == MAX_DEPARTED && pods.departed.len() == MAX_DEPARTED);
}

#[test]
fn a_list_from_the_future_does_not_keep_later_ones_out() {
    let mut model = Model::default();
    let list = |at, pods: &[Pod]| What::PodsListed {
        source: "f".into(),
        at,
        made_after: None,
        whole: false,
        doubt: None,
        pods: pods.to_vec(),
    };
    model.apply(&at(10, list(s(9_999), &[])));
    model.apply(&at(20, list(s(20), &[pod("a", OLD, &[])])));
    assert!(model.pods.listed_pod(OLD).is_some());
}

#[test]
fn when_a_pod_went_is_known_by_each_of_its_uids() {
    let mut mirror = pod("etcd", OLD, &[]);
    mirror.uids.insert(NEW.to_owned());
    let mut pods = pods(&[(10, &[mirror.clone()]), (20, &[])]);
    assert_eq!(pods.departed_at(OLD), Some(s(20)));
    assert_eq!(pods.departed_at(NEW), Some(s(20)));
    assert_eq!(pods.departed_at(OTHER), None);
    pods.listed("pods", s(30), None, false, &[mirror]);
    assert_eq!(pods.departed_at(OLD), None, "it is back");
}

#[test]
fn what_a_pod_says_it_is_the_mirror_of_makes_no_pod_there_or_gone() {
    const HASH: &str = "a4f4d2f9b1c84e7f8e0f7c1d2b3a4958";
    let hostile = |uids: &[&str]| Pod {
        uids: uids.iter().map(|uid| (*uid).to_owned()).collect(),
        claims: [OLD.to_owned()].into(),
        phase: Some(String::from("Failed")),
        deletion: Some(s(1)),
        ..pod("evil", OTHER, &[])
    };
    let evil = hostile(&[OTHER, HASH]);
    let alone = pods(&[(10, std::slice::from_ref(&evil))]);
    assert_eq!(alone.presence(OLD, s(0)), PodPresence::Unknown);
    assert!(alone.is_claimed(OLD) && alone.pod(OLD).is_none());
    assert_eq!(alone.presence(HASH, s(0)), PodPresence::Listed);
    assert_eq!(alone.presence(OTHER, s(0)), PodPresence::Finished(s(10)));
    // Of a pod that is or was listed it says nothing.
    let web = pod("web", OLD, &[]);
    for list in [[web.clone(), evil.clone()], [evil.clone(), web.clone()]] {
        let mut both = pods(&[(10, &list)]);
        assert_eq!(both.presence(OLD, s(0)), PodPresence::Listed);
        both.listed("pods", s(20), None, true, std::slice::from_ref(&evil));
        assert_eq!(both.presence(OLD, s(0)), PodPresence::Gone(s(20)));
    }
    // Nobody says so any more.
    let mut over = alone;
    over.deleted(&reference(&hostile(&[OTHER])), s(30));
    assert_eq!(over.presence(OLD, s(0)), PodPresence::Unlisted(s(10)));
}

#[test]
fn a_static_pod_outlives_its_mirror() {
    const HASH: &str = "a4f4d2f9b1c84e7f8e0f7c1d2b3a4958";
    let of = |uids: &[&str]| Pod {
        uids: uids.iter().map(|uid| (*uid).to_owned()).collect(),
        ..pod("web", OLD, &[])
    };
    let lost = pods(&[(10, &[of(&[OLD, HASH])]), (20, &[])]);
    assert_eq!(lost.presence(HASH, s(0)), PodPresence::Unknown);
    assert_eq!(lost.departed_at(HASH), None);
    assert!(lost.has_lost_mirror(HASH) && !lost.has_lost_mirror(OLD));
    // Kubelet's own list has the pod itself.
    let gone = pods(&[(10, &[of(&[HASH])]), (20, &[])]);
    assert_eq!(gone.presence(HASH, s(0)), PodPresence::Gone(s(20)));
}

#[test]
fn a_pod_that_changes_is_so_now_and_shows_nothing_of_others() {
    let (a, b) = (pod("a", OLD, &[]), pod("b", NEW, &[]));
    let mut pods = pods(&[(10, &[a, b])]);
    let going = Pod {
        deletion: Some(s(40)),
        ..pod("a", OLD, &[])
    };
    assert!(pods.changed(&going, s(20)));
    assert!(!pods.changed(&going, s(20)), "as it was");
    assert_eq!(pods.presence(OLD, s(0)), PodPresence::Terminating(s(40)));
    assert_eq!(pods.presence(NEW, s(0)), PodPresence::Listed);
    assert_eq!(pods.presence(OTHER, s(20)), PodPresence::Unknown);
    assert_eq!(pods.list().unwrap().pods().len(), 2);
    assert!(!Pods::default().changed(&going, s(20)), "of no list");
}

#[test]
fn pods_that_come_and_go_do_not_make_the_list_longer() {
    let mut pods = pods(&[(10, &[pod("a", OLD, &[])])]);
    for i in 0..100 {
        let one = pod("x", &format!("{i}-x"), &[]);
        assert!(pods.changed(&one, s(20 + i)));
        assert!(pods.deleted(&reference(&one), s(20 + i)));
        assert_eq!(
            pods.presence(&format!("{i}-x"), s(0)),
            PodPresence::Gone(s(20 + i))
        );
        assert_eq!(pods.presence(OLD, s(0)), PodPresence::Listed);
        assert_eq!(pods.list().unwrap().pods().len(), 1);
    }
}

#[test]
fn a_pod_that_claims_the_uid_of_another_takes_it_off_no_list() {
    let mut pods = pods(&[(10, &[pod("victim", OLD, &[])])]);
    let mut forged = pod("mallory", NEW, &[]);
    forged.uids.insert(OLD.to_owned());
    forged.phase = Some(String::from("Succeeded"));
    assert!(pods.changed(&forged, s(20)));
    assert_eq!(pods.presence(OLD, s(0)), PodPresence::Listed);
    for uid in [OLD, NEW] {
        let reference = PodRef {
            uid: Some(uid.to_owned()),
            ..reference(&forged)
        };
        pods.deleted(&reference, s(20));
        assert_eq!(pods.presence(OLD, s(0)), PodPresence::Listed);
    }
    assert_eq!(pods.presence(NEW, s(0)), PodPresence::Gone(s(20)));
}
