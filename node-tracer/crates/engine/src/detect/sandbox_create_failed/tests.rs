use std::time::Duration;

use super::*;
use crate::testing::Node;
use event::{
    Event, FullFilesystem, OomKill, StartFailure, What,
    finding::{Rule, Severity},
    testing::*,
};

const SANDBOX: &str = "5f3c9a1be07d4c2288aa01f6b3d9e4470c1a2b3c4d5e6f708192a3b4c5d6e7f8";
const CONFLICT: &str = "failed to reserve sandbox name \"a\": name \"a\" is reserved for \"77aa\"";
const FULL: &str = "Failed to create pod sandbox: mkdir /run/x: no space left on device";
const LATE: &str = "Failed to create pod sandbox: rpc error: code = DeadlineExceeded desc = \
                    context deadline exceeded";

fn told(seconds: i64, name: &str, message: &str) -> Event {
    let failure = StartFailure {
        source: String::from("kubelet"),
        pod: a_pod(&format!("uid-{name}"), name),
        message: message.to_owned(),
        ..StartFailure::default()
    };
    at(seconds, What::SandboxFailed { failure })
}

fn feed(node: &mut Node, events: impl IntoIterator<Item = Event>) {
    for event in events {
        node.0.apply(&event);
    }
}

fn findings(node: &mut Node, seconds: i64) -> Vec<Finding> {
    node.tick(seconds);
    let open = node.0.open().into_iter();
    let own = open.filter(|finding| finding.rule == Rule::SandboxCreateFailed);
    own.cloned().collect()
}

fn only(node: &mut Node, seconds: i64) -> Finding {
    let mut all = findings(node, seconds);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

fn cause(finding: &Finding) -> (&str, Option<&str>) {
    let cause = finding.detail.cause.as_deref().unwrap_or_default();
    (cause, finding.detail.earlier_cause.as_deref())
}

#[test]
fn a_failure_is_a_finding_with_its_cause() {
    let mut node = Node::default();
    feed(&mut node, [told(1, "web", FULL)]);
    let found = only(&mut node, 2);
    assert_eq!(cause(&found), ("no-space", None));
    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(
        found.title,
        "shop/web does not start: the node has no space left"
    );
    assert_eq!(found.since, s(1));
    assert!(
        found.evidence[0].claim.contains("mkdir /run/x"),
        "{found:#?}"
    );
    feed(&mut node, [told(3, "web", FULL), told(5, "web", FULL)]);
    let found = only(&mut node, 10);
    assert_eq!(
        (found.severity, found.detail.attempts),
        (Severity::Critical, Some(3))
    );
}

#[test]
fn what_is_not_understood_is_told_in_its_own_words() {
    let mut node = Node::default();
    feed(
        &mut node,
        [told(
            1,
            "web",
            "Failed to create pod sandbox: the moon is full",
        )],
    );
    let found = only(&mut node, 2);
    assert_eq!(cause(&found), ("unknown", None));
    assert!(found.title.contains("the moon is full"), "{}", found.title);
    assert!(!found.unknown.is_empty());
}

#[test]
fn a_name_that_is_taken_follows_from_what_went_wrong_before() {
    let mut node = Node::default();
    feed(&mut node, [told(1, "web", FULL), told(60, "web", CONFLICT)]);
    let found = only(&mut node, 61);
    assert_eq!(cause(&found), ("name-conflict", Some("no-space")));
    let claims: Vec<_> = found.evidence.iter().map(|one| &one.claim[..8]).collect();
    assert_eq!(claims, ["no-space", "name-con"]);
    assert!(
        found.advice.iter().any(|one| one.starts_with("make room")),
        "{found:#?}"
    );

    let mut node = Node::default();
    feed(&mut node, [told(1, "web", LATE), told(60, "web", CONFLICT)]);
    assert_eq!(
        cause(&only(&mut node, 61)),
        ("name-conflict", Some("runtime-timeout"))
    );
    let mut node = Node::default();
    feed(&mut node, [told(1, "web", CONFLICT)]);
    let found = only(&mut node, 2);
    assert_eq!(cause(&found), ("name-conflict", None));
    assert!(found.unknown[0].starts_with("what went wrong first"));
}

#[test]
fn the_latest_that_decides_is_the_cause() {
    let missing = "MountVolume.SetUp failed for volume \"a\" : configmap \"b\" not found";
    let summary = "Unable to attach or mount volumes: unmounted volumes=[a]: timed out waiting for \
                   the condition";
    let mut node = Node::default();
    feed(
        &mut node,
        [told(1, "web", missing), told(60, "web", summary)],
    );
    assert_eq!(cause(&only(&mut node, 61)), ("config-missing", None));
    feed(
        &mut node,
        [
            told(70, "web", FULL),
            told(80, "web", "Failed create pod sandbox."),
        ],
    );
    let found = only(&mut node, 81);
    assert_eq!(cause(&found), ("no-space", None), "unknown does not decide");
    let causes = found
        .evidence
        .iter()
        .map(|one| one.claim.split(':').next().unwrap());
    let causes: Vec<_> = causes.collect();
    assert_eq!(causes, ["config-missing", "volume-mount", "no-space"]);
}

#[test]
fn what_a_log_tells_is_not_over_because_time_passes() {
    let mut node = Node::default();
    feed(&mut node, [told(1, "web", FULL)]);
    assert_eq!(findings(&mut node, 100_000).len(), 1);
}

#[test]
fn of_many_pods_one_tells_the_story() {
    let mut node = Node::default();
    for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        feed(&mut node, [told(number.try_into().unwrap(), name, FULL)]);
    }
    let all = findings(&mut node, 10);
    assert_eq!(all.len(), 4);
    let (with, without): (Vec<_>, Vec<_>) = all
        .iter()
        .partition(|found| found.evidence.iter().any(|one| one.source == "node-tracer"));
    assert_eq!((with.len(), without.len()), (1, 3));
    assert_eq!(with[0].pod.as_ref().unwrap().label(), "shop/a");
    for other in without {
        assert_eq!(
            other.advice,
            [format!(
                "the same as for shop/a: see finding {}",
                with[0].id
            )]
        );
    }
    let mut node = Node::default();
    let missing = "Error: configmap \"b\" not found";
    feed(
        &mut node,
        ["a", "b", "c"].map(|name| told(1, name, missing)),
    );
    let all = findings(&mut node, 10);
    assert!(
        all.iter().all(|found| found.advice.len() > 1),
        "each has its own matter"
    );
}

/// Failed ADDs of pods named so: each with its plugin and what that says.
fn failed_adds(node: &mut Node, said: &[(&str, &str, &str)]) {
    feed(node, [host(0)]);
    for (name, plugin, error) in said {
        let container = format!("{:0>64}", name.len());
        let container = format!("{name:a>8}{}", &container[8..]).replace('-', "0");
        let mut add = call("ADD", &container, 100, &format!("uid-{name}"), name);
        add.plugin = (*plugin).to_owned();
        feed(node, [calls(1, add.clone()), failed(2, add, error)]);
    }
}

/// Findings that others refer to, by pod, each with what it says of them.
fn leaders(all: &[Finding]) -> Vec<(String, String)> {
    let leading = all.iter().filter_map(|found| {
        let claims = found.evidence.iter().map(|one| &one.claim);
        let claim = claims
            .into_iter()
            .find(|claim| claim.starts_with("the node"))?;
        Some((found.pod.as_ref()?.label(), claim.clone()))
    });
    leading.collect()
}

#[test]
fn failures_that_only_share_a_class_are_not_one_matter() {
    let mut node = Node::default();
    failed_adds(
        &mut node,
        &[
            ("d", "bridge", "invalid CIDR address: abc"),
            ("f", "macvlan", "Link not found"),
            (
                "g",
                "host-device",
                "failed to find host device: Link not found",
            ),
            ("h", "ptp", "failed to make veth pair: invalid argument"),
        ],
    );
    let all = findings(&mut node, 3);
    assert_eq!(all.len(), 4);
    assert!(
        all.iter()
            .all(|found| cause(found) == ("cni-plugin-error", None))
    );
    assert_eq!(leaders(&all), []);
    for found in &all {
        let first = &found.advice[0];
        assert!(!first.starts_with("the same as"), "{first}");
    }
}

#[test]
fn failures_in_the_same_words_are_one_matter_whichever_pod_they_name() {
    let mut node = Node::default();
    let says = |name: &str| format!("no policy 77 of shop/{name}: controller says no to {name}");
    let said = ["web", "a", "db-0"].map(|name| (name, says(name)));
    let said = said.each_ref().map(|(name, says)| (*name, "sdn", &**says));
    failed_adds(&mut node, &said);
    // Of another one a log tells, in a runtime's words.
    let log = format!(
        "rpc error: code = Unknown desc = failed to setup network for sandbox \"{SANDBOX}\": \
         plugin type=\"sdn\" name=\"pods\" failed (add): {}",
        says("api")
    );
    feed(&mut node, [told(3, "api", &log)]);
    let all = findings(&mut node, 4);
    assert_eq!(all.len(), 4);
    let [(_, claim)] = &leaders(&all)[..] else {
        panic!("{all:#?}")
    };
    assert_eq!(claim.matches("shop/").count(), 3, "{claim}");
}

#[test]
fn what_needs_another_remedy_is_another_matter() {
    let mut node = Node::default();
    let cgroup = "Failed to create pod sandbox: expected cgroupsPath to be of format \
                  \"slice:prefix:name\" for systemd cgroups";
    let overlay = "Failed to create pod sandbox: failed to mount overlay: no such device";
    for (name, message) in [("a", cgroup), ("b", cgroup), ("c", cgroup), ("d", overlay)] {
        feed(&mut node, [told(1, name, message)]);
    }
    let all = findings(&mut node, 2);
    assert!(
        all.iter()
            .all(|found| cause(found).0 == "runtime-unavailable"),
        "{all:#?}"
    );
    let [(_, claim)] = &leaders(&all)[..] else {
        panic!("{all:#?}")
    };
    assert!(!claim.contains("shop/d"), "{claim}");
}

#[test]
fn a_failed_add_is_a_pod_that_does_not_start() {
    let mut node = Node::default();
    feed(&mut node, [host(0)]);
    const ERROR: &str = "failed to allocate: no IP addresses available in range set: a-b";
    let add = call("ADD", SANDBOX, 100, NEW, "web");
    feed(&mut node, [calls(1, add.clone()), failed(2, add, ERROR)]);
    let found = only(&mut node, 3);
    assert_eq!(cause(&found), ("range-exhausted", None));
    assert!(found.advice[0].contains("add-failed"), "{found:#?}");
    assert_eq!(found.sandbox_id.as_deref(), Some(SANDBOX));

    // A log tells the same: it is one pod.
    let failure = StartFailure {
        source: String::from("kubelet"),
        pod: found.pod.clone().unwrap(),
        message: String::from(LATE),
        ..StartFailure::default()
    };
    feed(&mut node, [at(4, What::SandboxFailed { failure })]);
    let found = only(&mut node, 5);
    assert_eq!(cause(&found), ("runtime-timeout", Some("range-exhausted")));
    node.tick(2 + 601);
    assert_eq!(
        cause(&only(&mut node, 700)),
        ("runtime-timeout", None),
        "the call is long ago"
    );
}

#[test]
fn a_killed_pause_process_is_a_limit_that_is_too_small() {
    let kill = |comm: &str, container: &str, limited| OomKill {
        task: pod_task(77, comm, NEW, container),
        memcg: Some(String::from("/kubepods/pod1")),
        limited,
    };
    let mut node = Node::default();
    feed(
        &mut node,
        [at(
            1,
            What::OomKilled {
                kill: kill("java", "aa", Some(true)),
            },
        )],
    );
    assert!(
        findings(&mut node, 2).is_empty(),
        "an application has started"
    );
    feed(
        &mut node,
        [at(
            3,
            What::OomKilled {
                kill: kill("pause", SANDBOX, Some(true)),
            },
        )],
    );
    let found = only(&mut node, 4);
    assert_eq!(cause(&found), ("sandbox-oom", None));
    assert_eq!(found.sandbox_id.as_deref(), Some(SANDBOX));
    assert!(found.evidence[0].claim.contains("pause (77)"), "{found:#?}");
    assert!(findings(&mut node, 3 + 601).is_empty(), "it is over");

    let mut node = Node::default();
    feed(
        &mut node,
        [at(
            1,
            What::OomKilled {
                kill: kill("runc:[2:INIT]", "aa", Some(false)),
            },
        )],
    );
    assert_eq!(cause(&only(&mut node, 2)), ("node-memory", None));
}

#[test]
fn a_full_file_system_is_told_with_it() {
    let mut node = Node::default();
    feed(&mut node, [told(1, "web", "failed (add): write failed")]);
    let full = FullFilesystem {
        path: "/run".into(),
        bytes: 64 << 20,
        bytes_free: 0,
        inodes: 100,
        inodes_free: 7,
    };
    feed(&mut node, [at(1, What::FilesystemFull { full })]);
    let found = only(&mut node, 2);
    let last = &found.evidence.last().unwrap().claim;
    assert_eq!(last, "the file system of /run has 0 MiB of its 64 MiB free");
}

#[test]
fn a_daemon_that_may_be_late_is_not_critical_yet() {
    const LATE: &str = "failed (add): open /run/flannel/subnet.env: no such file or directory";
    let mut node = Node::default();
    for seconds in [10, 25, 40, 55, 70] {
        feed(&mut node, [told(seconds, "web", LATE)]);
    }
    let found = only(&mut node, 71);
    assert_eq!(found.detail.attempts, Some(5));
    assert_eq!(found.severity, Severity::Warning);
    assert!(found.title.contains("flannel"), "{}", found.title);
    feed(&mut node, [told(310, "web", LATE)]);
    assert_eq!(only(&mut node, 311).severity, Severity::Critical);
}

#[test]
fn where_the_end_is_known_what_the_next_try_mends_is_not_told() {
    let mut node = Node::default();
    node.0.wait_for_tries(Duration::from_secs(60));
    feed(&mut node, [told(10, "web", FULL)]);
    assert_eq!(findings(&mut node, 69), []);
    assert_eq!(findings(&mut node, 70).len(), 1, "no try came");
    let pod = a_pod("uid-web", "web");
    feed(&mut node, [at(80, What::PodStarted { pod })]);
    assert_eq!(findings(&mut node, 81), [], "it is over");
    feed(
        &mut node,
        [
            told(90, "web", FULL),
            told(100, "web", FULL),
            told(110, "web", FULL),
        ],
    );
    assert_eq!(
        findings(&mut node, 111).len(),
        1,
        "it was tried often enough"
    );
    feed(&mut node, [told(120, "api", FULL)]);
    assert_eq!(findings(&mut node, 121).len(), 1);
    node.0.wait_for_tries(Duration::ZERO);
    assert_eq!(findings(&mut node, 121).len(), 2, "nothing comes any more");
}

#[test]
fn what_the_pod_has_got_over_is_told_and_no_warning() {
    let mended = |count| {
        let mut event = told(1, "web", FULL);
        if let What::SandboxFailed { failure } = &mut event.what {
            failure.mended = true;
            failure.count = Some(count);
        }
        event
    };
    let mut node = Node::default();
    feed(&mut node, [mended(2)]);
    let found = only(&mut node, 2);
    assert_eq!(
        (found.severity, cause(&found)),
        (Severity::Info, ("no-space", None))
    );
    assert!(
        found.title.contains("did not start at first"),
        "{}",
        found.title
    );
    feed(&mut node, [mended(30)]);
    assert_eq!(
        only(&mut node, 3).severity,
        Severity::Warning,
        "it took long"
    );
    feed(&mut node, [told(4, "web", FULL)]);
    assert_eq!(
        only(&mut node, 5).severity,
        Severity::Critical,
        "it is so again"
    );
}
