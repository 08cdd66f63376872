//! Lists as kubectl 1.20 to 1.34 and the API itself print them, shortened.

use std::collections::BTreeSet;

use serde::de::IgnoredAny;

use super::*;

fn read(text: &str) -> Result<Vec<Pod>, PodsError> {
    pods(text.as_bytes(), "pods.json").map(|parsed| parsed.pods)
}

/// The newest time on a list.
fn newest(text: &str) -> Option<Timestamp> {
    pods(text.as_bytes(), "pods.json").unwrap().newest
}

fn names(text: &str) -> Vec<String> {
    read(text)
        .unwrap()
        .into_iter()
        .map(|pod| pod.name)
        .collect()
}

fn message(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

fn pod(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"shop","uid":"uid-{name}"}}}}"#
    )
}

/// kubectl sorts the keys: the items come before the kind.
const KUBECTL: &str = r#"{
    "apiVersion": "v1",
    "items": [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{\"a\":1}\n"},
                "creationTimestamp": "2026-11-20T07:00:00Z",
                "deletionGracePeriodSeconds": 30,
                "deletionTimestamp": "2026-11-21T03:00:30Z",
                "labels": {"app": "web"},
                "name": "web-0",
                "namespace": "shop",
                "ownerReferences": [{"kind": "StatefulSet", "uid": "other"}],
                "uid": "2d3b9f5e-7a07-4c1b-9a51-0c6f2e8a4b11"
            },
            "spec": {"containers": [{"name": "web", "ports": [{"hostPort": 1}]}], "nodeName": "node-1",
                     "terminationGracePeriodSeconds": 45},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "hostIP": "192.0.2.1",
                "phase": "Running",
                "podIP": "198.18.0.2",
                "podIPs": [{"ip": "198.18.0.2"}, {"ip": "2001:db8::2"}]
            }
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "annotations": {
                    "kubernetes.io/config.hash": "a4f4d2f9b1c84e7f8e0f7c1d2b3a4958",
                    "kubernetes.io/config.mirror": "a4f4d2f9b1c84e7f8e0f7c1d2b3a4958",
                    "kubernetes.io/config.source": "file"
                },
                "name": "kube-proxy-node-1",
                "namespace": "kube-system",
                "uid": "9e0a4f58-0000-4000-8000-000000000001"
            },
            "spec": {"hostNetwork": true, "nodeName": "node-1"},
            "status": {"phase": "Pending", "podIP": ""}
        }
    ],
    "kind": "List",
    "metadata": {"resourceVersion": "", "selfLink": ""}
}
"#;

#[test]
fn a_mirrors_uid_that_may_be_another_pods_is_only_its_word() {
    let of = |hash: &str, mirror: &str| {
        let (hash, mirror) = (
            format!("config.hash\": \"{hash}"),
            format!("config.mirror\": \"{mirror}"),
        );
        let text = KUBECTL.replace("config.hash\": \"a4f4d2f9b1c84e7f8e0f7c1d2b3a4958", &hash);
        let text = text.replace(
            "config.mirror\": \"a4f4d2f9b1c84e7f8e0f7c1d2b3a4958",
            &mirror,
        );
        let pod = read(&text).unwrap().pop().unwrap();
        (pod.uids.len(), pod.claims.into_iter().collect::<Vec<_>>())
    };
    const OTHERS: &str = "2d3b9f5e-7a07-4c1b-9a51-0c6f2e8a4b11";
    assert_eq!(of(OTHERS, OTHERS), (1, vec![String::from(OTHERS)]));
    assert_eq!(of(OTHERS, ""), (1, vec![]), "no mirror");
    assert_eq!(of("0123", "0123"), (2, vec![]));
}

#[test]
fn a_list_of_kubectl_is_read_with_all_that_matters() {
    let pods = read(KUBECTL).unwrap();
    assert_eq!(
        pods,
        [
            Pod {
                namespace: String::from("shop"),
                name: String::from("web-0"),
                uids: BTreeSet::from([String::from("2d3b9f5e-7a07-4c1b-9a51-0c6f2e8a4b11")]),
                claims: BTreeSet::new(),
                node: Some(String::from("node-1")),
                host_network: false,
                phase: Some(String::from("Running")),
                deletion: Timestamp::parse("2026-11-21T03:00:30Z"),
                grace_seconds: Some(45),
                finished: None,
                ips: vec![
                    "198.18.0.2".parse().unwrap(),
                    "2001:db8::2".parse().unwrap()
                ],
            },
            Pod {
                namespace: String::from("kube-system"),
                name: String::from("kube-proxy-node-1"),
                uids: BTreeSet::from([
                    String::from("9e0a4f58-0000-4000-8000-000000000001"),
                    String::from("a4f4d2f9b1c84e7f8e0f7c1d2b3a4958"),
                ]),
                claims: BTreeSet::new(),
                node: Some(String::from("node-1")),
                host_network: true,
                phase: Some(String::from("Pending")),
                deletion: None,
                grace_seconds: None,
                finished: None,
                ips: Vec::new(),
            },
        ]
    );
    assert!(pods[0].deletion.is_some());
}

#[test]
fn a_pod_that_has_run_to_its_end_has_when_that_was() {
    let text = |status: &str| {
        format!(
            r#"{{"kind": "Pod", "metadata": {{"uid": "u", "name": "a", "namespace": "b"}},
                "spec": {{"terminationGracePeriodSeconds": "x"}}, "status": {{{status}}}}}"#
        )
    };
    let statuses = r#""containerStatuses": [{"state": {"terminated": {
        "startedAt": "2026-11-21T03:00:00Z", "finishedAt": "2026-11-21T03:07:00Z"}}}]"#;
    let job = read(&text(&format!(r#""phase": "Succeeded", {statuses}"#))).unwrap();
    assert_eq!(job[0].finished, Timestamp::parse("2026-11-21T03:07:00Z"));
    assert_eq!(job[0].grace_seconds, None, "what is no number is none");
    let runs = read(&text(&format!(r#""phase": "Running", {statuses}"#))).unwrap();
    assert_eq!(runs[0].finished, None);
    let evicted = text(
        r#""phase": "Failed", "reason": "Evicted", "conditions": [
            {"type": "DisruptionTarget", "lastTransitionTime": "2026-11-21T04:00:00Z"}]"#,
    );
    let evicted = read(&evicted).unwrap();
    assert_eq!(
        evicted[0].finished,
        Timestamp::parse("2026-11-21T04:00:00Z")
    );
}

#[test]
fn a_container_that_kubelet_lost_sight_of_does_not_date_its_pods_end() {
    let evicted = r#"{"kind":"Pod","metadata":{"uid":"u"},"status":{"phase":"Failed",
        "conditions":[{"type":"Ready","lastTransitionTime":"2026-11-21T04:00:00Z"}],
        "containerStatuses":[{
            "lastState":{"terminated":{"finishedAt":"2026-11-02T04:00:00Z"}},
            "state":{"terminated":{"reason":"ContainerStatusUnknown","finishedAt":null}}}]}}"#;
    assert_eq!(
        read(evicted).unwrap()[0].finished,
        Timestamp::parse("2026-11-21T04:00:00Z")
    );
}

#[test]
fn a_list_is_as_young_as_the_youngest_that_happened_to_a_pod() {
    let at = |time: &str| Timestamp::parse(&format!("2026-11-21T{time}Z"));
    assert_eq!(
        newest(KUBECTL),
        Timestamp::parse("2026-11-20T07:00:00Z"),
        "the time by which a pod is to be gone may be yet to come"
    );
    let one = |metadata: &str, status: &str| {
        format!(
            r#"{{"kind":"Pod","metadata":{{"uid":"u"{metadata}}},"status":{{"phase":"Running"{status}}}}}"#
        )
    };
    let created = r#","creationTimestamp":"2026-11-21T01:00:00Z""#;
    for (status, expected) in [
        ("", "01:00:00"),
        (r#","startTime":"2026-11-21T02:00:00Z""#, "02:00:00"),
        (
            r#","conditions":[{"type":"Ready","lastProbeTime":null,"lastTransitionTime":"2026-11-21T03:00:00Z"},{}]"#,
            "03:00:00",
        ),
        (
            r#","containerStatuses":[{"restartCount":1,"ready":true,"state":{"running":{"startedAt":"2026-11-21T04:00:00Z"}}}]"#,
            "04:00:00",
        ),
        (
            r#","initContainerStatuses":[{"state":{"terminated":{"startedAt":"0001-01-01T00:00:00Z","finishedAt":"2026-11-21T05:00:00Z"}}}]"#,
            "05:00:00",
        ),
    ] {
        assert_eq!(newest(&one(created, status)), at(expected), "{status}");
    }
    let old = one("", r#","startTime":"2026-11-20T00:00:00Z""#);
    let young = one(created, "");
    assert_eq!(newest(&(old.clone() + &young)), at("01:00:00"));
    assert_eq!(newest(&(young.clone() + &old)), at("01:00:00"));
    let stream =
        format!(r#"{{"type":"ADDED","object":{old}}}{{"type":"DELETED","object":{young}}}"#);
    assert_eq!(newest(&stream), at("01:00:00"));
    assert_eq!(newest(&pod("a")), None);
}

/// A pod with all that its owner can write, and a readiness gate's condition.
const OWNED: &str = r#"{"kind":"Pod","apiVersion":"v1",
    "metadata":{"name":"web","namespace":"shop","uid":"u","generateName":"web-",
        "labels":{"app":"web"},"annotations":{"k8s.v1.cni.cncf.io/network-status":"[]",
            "kubernetes.io/config.hash":"a","kubernetes.io/config.mirror":"a",
            "kubernetes.io/config.seen":"x","finishedAt":"x"},
        "creationTimestamp":"2026-11-21T01:00:00Z",
        "managedFields":[{"manager":"x","operation":"Update","time":"x"}],
        "ownerReferences":[{"kind":"Job","name":"x","uid":"x"}],"finalizers":["x"]},
    "spec":{"nodeName":"n1","hostname":"x","nodeSelector":{"startedAt":"x"},
        "readinessGates":[{"conditionType":"x"}],
        "containers":[{"name":"x","image":"x","command":["x"],"args":["x"],"workingDir":"x",
            "terminationMessagePath":"x","env":[{"name":"finishedAt","value":"x"}],
            "resources":{"limits":{"memory":"x"}}}]},
    "status":{"phase":"Failed","message":"x","reason":"x","nominatedNodeName":"x",
        "startTime":"2026-11-21T02:00:00Z",
        "conditions":[
            {"type":"Ready","status":"False","message":"x","reason":"x","lastProbeTime":null,
                "lastTransitionTime":"2026-11-21T03:00:00Z"},
            {"type":"example.com/gate","status":"True","message":"x","reason":"x",
                "lastProbeTime":"x","lastTransitionTime":"x"}],
        "containerStatuses":[
            {"name":"x","image":"x","imageID":"x","containerID":"x",
                "state":{"terminated":{"message":"x","reason":"x","containerID":"x","signal":"x",
                    "startedAt":"2026-11-21T02:00:00Z","finishedAt":"2026-11-21T03:00:00Z"}},
                "lastState":{"terminated":{"message":"x","finishedAt":"2026-11-21T02:30:00Z"}}}],
        "initContainerStatuses":[
            {"name":"x","state":{"waiting":{"message":"x","reason":"x","startedAt":"x"}}}]}}"#;

/// Texts of which Kubernetes is the writer.
const OF_KUBERNETES: [&str; 11] = [
    "/kind",
    "/metadata/creationTimestamp",
    "/metadata/uid",
    "/status/phase",
    "/status/startTime",
    "/status/conditions/0/type",
    "/status/conditions/0/lastTransitionTime",
    "/status/conditions/1/type",
    "/status/containerStatuses/0/state/terminated/startedAt",
    "/status/containerStatuses/0/state/terminated/finishedAt",
    "/status/containerStatuses/0/lastState/terminated/finishedAt",
];

fn texts(value: &serde_json::Value, path: &str) -> Vec<String> {
    use serde_json::Value::{Array, Object, String};

    let escaped = |key: &str| key.replace('/', "~1");
    match value {
        String(_) => vec![path.to_owned()],
        Array(all) => all
            .iter()
            .enumerate()
            .flat_map(|(at, each)| texts(each, &format!("{path}/{at}")))
            .collect(),
        Object(all) => all
            .iter()
            .flat_map(|(key, each)| texts(each, &format!("{path}/{}", escaped(key))))
            .collect(),
        _ => vec![],
    }
}

#[test]
fn no_text_that_a_tenant_writes_moves_the_age_of_a_list_or_the_end_of_a_pod() {
    let of = |text: &str| (newest(text), read(text).unwrap()[0].finished);
    let end = Timestamp::parse("2026-11-21T03:00:00Z");
    assert_eq!(of(OWNED), (end, end));
    let owned: serde_json::Value = serde_json::from_str(OWNED).unwrap();
    let theirs = texts(&owned, "");
    assert!(
        OF_KUBERNETES
            .iter()
            .all(|own| theirs.iter().any(|it| it == own))
    );
    for path in theirs
        .iter()
        .filter(|it| !OF_KUBERNETES.contains(&it.as_str()))
    {
        for time in ["2026-11-21T03:30:00Z", "2199-01-01T00:00:00Z"] {
            let mut forged = owned.clone();
            *forged.pointer_mut(path).unwrap() = time.into();
            for text in [
                forged.to_string(),
                format!(r#"{{"kind":"List","items":[{forged}]}}"#),
                format!(r#"{{"type":"MODIFIED","object":{forged}}}"#),
            ] {
                assert_eq!(of(&text), (end, end), "{path}");
            }
        }
    }
}

#[test]
fn odd_times_are_no_times() {
    let text = r#"{"kind":"Pod","metadata":{"uid":"u","creationTimestamp":7},
        "status":{"startTime":"soon","conditions":{"a":[true,-1,2.5,null]},
            "containerStatuses":[7,{"state":[{}],"lastState":{"running":"x","terminated":
                {"startedAt":{"a":1},"finishedAt":["2026-11-21T03:00:00Z"]}}}]}}"#;
    assert_eq!(newest(text), None);
}

#[test]
fn a_bare_pod_list_a_single_pod_and_several_pods_are_read_too() {
    let list = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},
        "items":[{"metadata":{"name":"a","uid":"1"},"status":{"podIP":"198.18.0.2"}}]}"#;
    assert_eq!(names(list), ["a"]);
    assert_eq!(read(list).unwrap()[0].ips.len(), 1);
    assert_eq!(names(&pod("a")), ["a"]);
    assert_eq!(names(&(pod("b") + "\n" + &pod("a"))), ["a", "b"]);
    assert_eq!(names(&(pod("a") + &pod("a"))), ["a"]);
    let is_list = |text: &str| pods(text.as_bytes(), "pods.json").unwrap().has_list;
    assert!(is_list(list));
    assert!(
        !is_list(&(pod("b") + &pod("a"))),
        "others can be there, too"
    );
}

#[test]
fn a_watch_stream_is_followed_to_its_end() {
    let event =
        |kind: &str, name: &str| format!(r#"{{"type":"{kind}","object":{}}}"#, pod(name)) + "\n";
    let stream = event("ADDED", "a")
        + &event("ADDED", "b")
        + &event("MODIFIED", "b")
        + &event("DELETED", "a");
    assert_eq!(names(&stream), ["b"]);
    let bookmark =
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}}"#;
    assert_eq!(names(&(stream + bookmark)), ["b"]);
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}"#;
    assert!(message(gone).contains("a watch stream with ERROR"));
}

#[test]
fn an_empty_list_is_a_list() {
    for text in [
        r#"{"kind":"List","items":[]}"#,
        r#"{"kind":"PodList","items":null,"metadata":{}}"#,
        r#"{"items":[]}"#,
    ] {
        assert_eq!(read(text).unwrap(), [], "{text}");
    }
}

#[test]
fn pods_among_other_things_are_found() {
    let service = r#"{"kind":"Service","metadata":{"name":"s","uid":"9"},"spec":{"ports":[]},"status":"odd"}"#;
    let text = format!(r#"{{"kind":"List","items":[{service},{}]}}"#, pod("a"));
    assert_eq!(names(&text), ["a"]);
}

#[test]
fn json_that_is_no_list_of_pods_is_called_what_it_is() {
    for (text, what) in [
        (r#"{"kind":"NodeList","items":[]}"#, "a NodeList"),
        (
            r#"{"kind":"Status","status":"Failure","metadata":{}}"#,
            "a Status",
        ),
        (r#"{"kind":"Table","rows":[]}"#, "a Table"),
        (r#"{"kind":"List"}"#, "a List without items"),
        (
            r#"{"kind":"List","items":[{"kind":"Node","metadata":{}}]}"#,
            "a list of kind Node",
        ),
        (
            r#"{"kind":"PodList","items":[{"metadata":{"name":"a"}}]}"#,
            "a list whose item 1 has no metadata.uid",
        ),
        (
            r#"{"kind":"Pod","metadata":{}}"#,
            "a Pod without metadata.uid",
        ),
        (r#"{"apiVersion":"v1"}"#, "an object without kind and items"),
        (r#"{"kind":"\u001b[2J"}"#, "a \\u{1b}[2J"),
        ("[]", "a JSON value that is no object"),
        ("null", "a JSON value that is no object"),
        ("4711", "a JSON value that is no object"),
    ] {
        assert!(
            message(text).contains(&format!("pods.json is no list of pods but {what};")),
            "{}",
            message(text)
        );
    }
}

#[test]
fn text_that_is_no_json_is_refused_with_its_place() {
    for (text, place) in [
        ("NAME READY\n", "expected value at line 1 column 1;"),
        (
            "{\n  \"kind\": \"List\",\n  \"items\": [\n",
            "EOF while parsing a list at line 4 column 0;",
        ),
        (
            "{\"kind\":\"List\",\"items\":[]} trailing",
            "at line 1 column 30;",
        ),
        (
            "{\"items\":\"all\"}",
            "invalid type: string \"...\", expected an array of pods at line 1 column 14;",
        ),
        ("\u{0}\u{0}", "at line 1 column 1;"),
    ] {
        let error = read(text).unwrap_err();
        assert!(matches!(error, PodsError::Json { .. }), "{text:?}: {error}");
        assert!(error.to_string().contains(place), "{text:?}: {error}");
    }
    assert!(matches!(read(""), Err(PodsError::Empty { .. })));
    assert!(matches!(read(" \n"), Err(PodsError::Empty { .. })));
}

#[test]
fn one_page_of_a_list_is_not_taken_for_all_pods() {
    let text =
        r#"{"kind":"PodList","items":[],"metadata":{"continue":"eyJ2","remainingItemCount":9}}"#;
    assert!(matches!(read(text), Err(PodsError::Partial { .. })));
    assert_eq!(
        read(r#"{"kind":"PodList","items":[],"metadata":{"continue":""}}"#).unwrap(),
        []
    );
}

#[test]
fn a_stream_without_end_is_refused_at_the_limit() {
    // A string that never ends.
    let input = io::Cursor::new("{\"kind\":\"").chain(io::repeat(b'x'));
    let mut input = Limited {
        input,
        left: 1 << 20,
        exceeded: false,
    };
    let error = serde_json::from_reader::<_, IgnoredAny>(&mut input).unwrap_err();
    assert!(error.is_io());
    assert!(input.exceeded);
}

#[test]
fn deep_nesting_is_refused_and_does_no_harm() {
    let text = format!("{{\"kind\":\"List\",\"items\":{}", "[".repeat(100_000));
    assert!(matches!(read(&text), Err(PodsError::Json { .. })));
}

#[test]
fn what_was_given_by_mistake_is_not_quoted() {
    let secret = "hunter2-is-my-pass";
    for text in [
        format!(r#"{{"items":"{secret}"}}"#),
        format!(r#"{{"items":"{secret}\", expected a \""}}"#),
        format!(r#"{{"kind":"Pod","metadata":"{secret}"}}"#),
        format!(r#"{{"kind":"Pod","metadata":{{"name":["{secret}"],"uid":"u"}}}}"#),
        format!(r#"{{"kind":"Pod","metadata":{{"uid":"u","deletionTimestamp":"{secret}"}}}}"#),
        format!(r#"{{"kind":"Pod","status":{{"podIP":"{secret}"}},"metadata":{{"uid":"u"}}}}"#),
    ] {
        if let Err(error) = read(&text) {
            let error = event::fault::chain(&error);
            assert!(!error.contains(secret), "{error}");
        }
    }
}

#[test]
fn pods_that_take_more_than_is_kept_are_refused_long_before_the_end() {
    /// A list without end.
    struct Endless {
        left: Vec<u8>,
        pods: usize,
    }

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.left.is_empty() {
                let (number, long) = (self.pods, "x".repeat(240));
                let uid = format!("{number:0120}");
                let metadata = format!(r#""name":"{long}","namespace":"{long}","uid":"{uid}""#);
                self.left = format!(r#"{{"kind":"Pod","metadata":{{{metadata}}}}}"#).into_bytes();
                self.pods += 1;
            }
            let length = self.left.len().min(buffer.len());
            buffer[..length].copy_from_slice(&self.left[..length]);
            self.left.drain(..length);
            Ok(length)
        }
    }

    let mut input = Endless {
        left: Vec::new(),
        pods: 0,
    };
    let read = pods(io::BufReader::new(&mut input), "pods.json");
    assert!(matches!(read, Err(PodsError::TooLarge { .. })));
    let most = MAX_KEPT / 480;
    assert!(input.pods < most, "{} pods are kept", input.pods);
}
