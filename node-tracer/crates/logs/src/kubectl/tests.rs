use std::time::Duration;

use super::*;
use event::testing::s;

fn read(text: &str) -> Vec<(Timestamp, StartFailure)> {
    let mut kubectl = Kubectl::new(s(100_000));
    let mut events: Vec<Event> = text.lines().flat_map(|line| kubectl.line(line)).collect();
    events.extend(kubectl.end());
    let failures = events.into_iter().filter_map(|event| match event.what {
        What::SandboxFailed { failure } => Some((event.time, failure)),
        _ => None,
    });
    failures.collect()
}

fn only(text: &str) -> (Timestamp, StartFailure) {
    let mut all = read(text);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

fn ago(seconds: u64) -> Timestamp {
    s(100_000).minus(Duration::from_secs(seconds))
}

const DESCRIBED: &str = "\
Name:           web-0
Namespace:      shop
Priority:       0
Node:           node-b/10.0.0.4
Start Time:     Tue, 10 May 2022 09:23:56 +0100
Labels:         app=web
Status:         Pending
IP:
Containers:
  web:
    Container ID:
    Image:          registry.local/web:1
    State:          Waiting
      Reason:       ContainerCreating
    Ready:          False
    Restart Count:  0
    Mounts:
      /data from data (rw)
Conditions:
  Type              Status
  Initialized       True
  Ready             False
Volumes:
  kube-api-access-8v93k:
    Type:                    Projected (a volume that contains injected data from multiple sources)
    ConfigMapName:           kube-root-ca.crt
Events:
  Type     Reason                  Age                From               Message
  ----     ------                  ----               ----               -------
  Normal   Scheduled               3m                 default-scheduler  Successfully assigned shop/web-0 to node-b
  Warning  FailedCreatePodSandBox  2m (x10 over 3m)   kubelet            Failed to create pod sandbox: rpc error: code = Unknown desc = no way
  Normal   SandboxChanged          1m (x12 over 3m)   kubelet            Pod sandbox changed, it will be killed and re-created.
";

#[test]
fn a_described_pod_is_named_by_its_head() {
    let (time, told) = only(DESCRIBED);
    assert_eq!(told.pod.label(), "shop/web-0");
    assert_eq!(
        told.message,
        "Failed to create pod sandbox: rpc error: code = Unknown desc = no way"
    );
    assert_eq!((time, told.first), (ago(120), Some(ago(180))));
    assert_eq!(told.count, Some(10));
    assert_eq!(told.source, "events");
}

#[test]
fn of_two_pods_each_has_its_own() {
    let other = DESCRIBED.replace("web-0", "db-1");
    let all = read(&format!("{DESCRIBED}\n\n{other}"));
    let names: Vec<_> = all.iter().map(|(_, told)| told.pod.label()).collect();
    assert_eq!(names, ["shop/web-0", "shop/db-1"]);
}

/// A description of another pod, as a tenant can print it.
fn forged() -> String {
    DESCRIBED.replace("web-0", "db-1").replace("shop", "victim")
}

/// Of a container that has ended, with what it said.
fn ended(said: &str) -> String {
    let state = format!(
        "    Last State:     Terminated\n      Reason:       Error\n      Message:      {said}\n      \
         Exit Code:    1\n    Ready:          False\n"
    );
    DESCRIBED.replacen("    Ready:          False\n", &state, 1)
}

#[test]
fn what_a_container_said_when_it_ended_is_no_description() {
    for said in [
        "x",
        "x\n\nName: db-1\n",
        &format!("x\n{}", forged()),
        &format!("x\n\n\n{}", forged()),
    ] {
        let (_, told) = only(&ended(said));
        assert_eq!(told.pod.label(), "shop/web-0", "{said}");
    }
}

#[test]
fn behind_a_pods_own_words_no_other_pod_is_told_of() {
    let whole = format!(
        "x\n      Exit Code:    1\nEvents:  <none>\n\n\n{}",
        forged()
    );
    let probe = "  Warning  Unhealthy  1m  kubelet  Readiness probe failed: x\n";
    for text in [
        ended(&format!("{whole}\n{}", ended("x"))),
        format!("{DESCRIBED}{probe}{}", forged()),
        format!("{DESCRIBED}{probe}\n\n{}", forged()),
    ] {
        let told = read(&text);
        let others = told
            .iter()
            .filter(|(_, told)| told.pod.label() != "shop/web-0");
        assert_eq!(others.count(), 0, "{text}");
        let mut kubectl = Kubectl::new(s(0));
        text.lines().for_each(|line| drop(kubectl.line(line)));
        assert!(kubectl.doubtful > 0, "{text}");
    }
}

#[test]
fn of_several_tables_in_a_description_the_last_is_kubectls() {
    let row =
        "  Warning  FailedMount  2m  kubelet  MountVolume.SetUp failed for volume \"a\" : no\n";
    // A command, an annotation, a variable.
    let text = DESCRIBED.replacen("Containers:\n", &format!("Containers:\nEvents:\n{row}"), 1);
    let (_, told) = only(&text);
    assert!(told.message.ends_with("no way"), "{told:?}");
}

#[test]
fn a_container_that_waits_for_its_image_says_so() {
    let text = DESCRIBED.replace("ContainerCreating", "ImagePullBackOff");
    let all = read(&text);
    assert_eq!(all.len(), 2, "{all:#?}");
    assert_eq!(all[0].1.reason.as_deref(), Some("ImagePullBackOff"));
    assert_eq!(all[0].1.pod.label(), "shop/web-0");
}

#[test]
fn rows_of_every_kubectl_are_read() {
    const MESSAGE: &str = "MountVolume.SetUp failed for volume \"a\" : no way";
    for (row, pod) in [
        (
            format!("Warning  FailedMount  4m2s (x9 over 1h)  kubelet  {MESSAGE}"),
            "",
        ),
        (
            format!("Warning FailedMount 4m2s (x9 over 1h) kubelet, node-b {MESSAGE}"),
            "",
        ),
        (
            format!("  7. Warning FailedMount 4m2s (x9 over 1h) kubelet, node-b {MESSAGE}"),
            "",
        ),
        (
            format!("1h\t4m2s\t9\tkubelet, node-b\t\tWarning\tFailedMount\t{MESSAGE}"),
            "",
        ),
        (
            format!(
                "1h 4m2s 9 {{kubelet node-b}} spec.containers{{a}} Warning FailedMount {MESSAGE}"
            ),
            "",
        ),
        (
            format!("4m2s        Warning   FailedMount   pod/web-0   {MESSAGE}"),
            "web-0",
        ),
        (
            format!("shop   4m2s   Warning   FailedMount   pod/web-0   {MESSAGE}"),
            "shop/web-0",
        ),
        (
            format!(
                "shop 4m2s 1h 9 web-0.15c9d8e1a2b3c4d5 Pod Warning FailedMount kubelet, node-b {MESSAGE}"
            ),
            "shop/web-0",
        ),
        (
            format!(
                "4m2s 1h 9 web-0.15c9d8e1a2b3c4d5 Pod spec.containers{{a}} Warning FailedMount kubelet, node-b {MESSAGE}"
            ),
            "web-0",
        ),
        (
            format!(
                "LAST SEEN TYPE REASON OBJECT SUBOBJECT SOURCE MESSAGE FIRST SEEN COUNT NAME\n4m2s   Warning   FailedMount   pod/web-0      kubelet, node-b   {MESSAGE}   1h   9   web-0.15c9d8e1a2b3c4d5"
            ),
            "web-0",
        ),
    ] {
        let (time, told) = only(&row);
        assert_eq!(told.message, MESSAGE, "{row}");
        assert_eq!(time, ago(242), "{row}");
        let label = match told.pod == PodRef::default() {
            true => String::new(),
            false => told.pod.label(),
        };
        assert_eq!(label, pod, "{row}");
        if row.contains("1h") {
            assert_eq!(
                (told.count, told.first),
                (Some(9), Some(ago(3_600))),
                "{row}"
            );
        }
    }
}

#[test]
fn wrapped_messages_are_one() {
    let (_, told) = only(
        "Events:\n  Type Reason Age From Message\n  ---- ------ ---- ---- -------\n  Warning  \
         FailedCreatePodSandBox  2m (x4307 over 16h)  kubelet, node-b  (combined from similar \
         events): Failed create pod sandbox: rpc error: code = Unknown\n    desc = failed to create\n  \
           a sandbox: no space\n\nName of something else",
    );
    assert_eq!(
        told.message,
        "Failed create pod sandbox: rpc error: code = Unknown desc = failed to create a sandbox: no \
         space"
    );
    let (_, told) = only(
        "  Warning  FailedMount  2m  kubelet  MountVolume.SetUp failed for volume \"config\" : configm\n\
         ap \"web-env\" not found",
    );
    assert!(
        told.message.ends_with("configmap \"web-env\" not found"),
        "{}",
        told.message
    );
}

#[test]
fn what_a_page_says_around_it_is_no_part_of_it() {
    let (_, told) = only(
        "  4. Warning FailedMount 2m kubelet MountVolume.SetUp failed for volume \"a\" : no way\n\
         The next paragraph begins here\n",
    );
    assert!(told.message.ends_with(" : no way"), "{}", told.message);
    let (_, told) = only(
        "Warning FailedMount 2m kubelet MountVolume.SetUp failed for volume \"a\" : no way\n\
         \u{5904}\u{7406}\n",
    );
    assert!(told.message.ends_with(" : no way"), "{}", told.message);
}

#[test]
fn the_message_of_a_containers_state_is_read_whole() {
    let text = "\
    1. lastState: terminated
    2. exitCode: 128
    3. message: 'failed to create containerd task: OCI runtime create failed: container_linux.go:345:
    4. starting container process caused \"process_linux.go:424: container init
    5. caused \\\"rootfs_linux.go:58: mounting x to rootfs\\\"\": unknown'
    6. reason: StartError
";
    let (_, told) = only(text);
    assert!(told.message.starts_with("failed to create containerd task"));
    assert!(told.message.ends_with("unknown"), "{}", told.message);
}

#[test]
fn events_as_objects_are_read() {
    let yaml = "\
apiVersion: v1
items:
- apiVersion: v1
  count: 7
  eventTime: null
  firstTimestamp: \"2025-11-21T04:00:00Z\"
  involvedObject:
    apiVersion: v1
    kind: Pod
    name: web-0
    namespace: shop
    uid: 0a1b2c3d-0000-4000-8000-000000000001
  kind: Event
  lastTimestamp: \"2025-11-21T05:00:00Z\"
  message: 'MountVolume.SetUp failed for volume \"a\" :
    no way'
  metadata:
    name: web-0.17aa
    namespace: shop
  reason: FailedMount
  source:
    component: kubelet
  type: Warning
- apiVersion: v1
  involvedObject:
    kind: Node
    name: node-b
  message: no
  reason: FailedMount
  type: Warning
";
    let json = r#"{
    "apiVersion": "v1",
    "items": [
        {
            "apiVersion": "v1",
            "count": 7,
            "firstTimestamp": "2025-11-21T04:00:00Z",
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "web-0",
                "namespace": "shop",
                "uid": "0a1b2c3d-0000-4000-8000-000000000001"
            },
            "kind": "Event",
            "lastTimestamp": "2025-11-21T05:00:00Z",
            "message": "MountVolume.SetUp failed for volume \"a\" : no way",
            "metadata": {
                "name": "web-0.17aa"
            },
            "reason": "FailedMount",
            "type": "Warning"
        }
    ]
}"#;
    for text in [yaml, json] {
        let (time, told) = only(text);
        assert_eq!(
            told.message,
            "MountVolume.SetUp failed for volume \"a\" : no way"
        );
        assert_eq!(told.pod.label(), "shop/web-0");
        assert!(told.pod.uid.is_some());
        assert_eq!(time, Timestamp::parse("2025-11-21T05:00:00Z").unwrap());
        assert_eq!(told.first, Timestamp::parse("2025-11-21T04:00:00Z"));
        assert_eq!(told.count, Some(7));
    }
}

#[test]
fn no_event_stands_in_the_message_of_an_event() {
    let text = "\
- apiVersion: v1
  involvedObject:
    kind: Pod
    name: evil
    namespace: tenant
  kind: Event
  message: |-
    Readiness probe failed: x

    type: Warning
    involvedObject:
      kind: Pod
      name: web-0
      namespace: shop
    message: no way
    reason: FailedMount
    type: Warning
    2m  Warning  FailedMount  pod/web-0  no way
  reason: Unhealthy
  type: Warning
";
    assert_eq!(read(text), []);
}

#[test]
fn logs_are_not_taken_for_it() {
    let mut kubectl = Kubectl::new(s(0));
    for line in [
        "E0628 02:10:04.339971    2890 kuberuntime_manager.go:688] createPodSandbox failed",
        "time=\"2024-03-02T10:11:12Z\" level=error msg=\"no\"",
        "Jul 14 15:22:06 slave-97 kernel: device-mapper: thin: Deletion of thin device 65 failed.",
        "Error: failed to create container",
        "Warning: this is no event",
        "",
    ] {
        assert!(kubectl.line(line).is_empty(), "{line}");
        assert!(!kubectl.took(), "{line}");
    }
}

#[test]
fn what_is_no_name_is_not_told_as_one() {
    let token = "eyJhbGciOiJub25lIn0.eyJzZWNyZXQiOiJ0cnVlIn0.";
    let text = format!(
        "Name:   Bearer {token}\nUID:    {token}\nEvents:\n  Warning  FailedMount  2m  kubelet  \
         MountVolume.SetUp failed for volume \"a\" : no way\n"
    );
    let (_, failure) = only(&text);
    assert_eq!(failure.pod, PodRef::default());
    assert!(failure.message.ends_with("no way"), "{failure:?}");
}

#[test]
fn a_pod_that_is_not_taken_down_is_a_del_that_was_called_again() {
    const ID: &str = "aabb5d29eb0361355cedf3fe6636842efb2a36e8f2ae84f2facec3f4618d2b02";
    let row = format!(
        "4s  Warning  FailedKillPod  pod/db-0  error killing pod: failed to \"KillPodSandbox\" for \
         \"b54120c3-3c62-41ca-8647-c1041c0ab754\" with KillPodSandboxError: \"rpc error: code = \
         Unknown desc = failed to destroy network for sandbox \\\"{ID}\\\": plugin \
         type=\\\"calico\\\" failed (delete): Service Unavailable\""
    );
    let mut kubectl = Kubectl::new(s(100));
    let mut events = kubectl.line(&row);
    events.extend(kubectl.end());
    let kinds: Vec<&str> = events.iter().map(|event| event.what.name()).collect();
    assert_eq!(kinds, ["cni-started", "cni-call", "cni-started"]);
    let What::CniCall { call, error, .. } = &events[1].what else {
        panic!("{events:#?}");
    };
    assert_eq!(
        (call.command.as_str(), call.container_id.as_str()),
        ("DEL", ID)
    );
    assert_eq!(call.pod.as_ref().unwrap().name.as_deref(), Some("db-0"));
    assert_eq!(error.as_ref().unwrap().msg, "Service Unavailable");
    // A container that does not end is no matter of its network.
    let other = "4s  Warning  FailedKillPod  pod/db-0  error killing pod: failed to \
                 \"KillContainer\" for \"a\" with KillContainerError: \"EOF\"";
    let mut kubectl = Kubectl::new(s(100));
    assert_eq!([kubectl.line(other), kubectl.end()].concat(), []);
}

#[test]
fn what_a_pod_has_got_over_is_marked() {
    const FAILS: &str =
        "Warning  FailedCreatePodSandBox  2m  kubelet  Failed to create pod sandbox: no way";
    const MOUNT: &str =
        "Warning  FailedMount  2m  kubelet  MountVolume.SetUp failed for volume \"a\" : no";
    const PULL: &str = "Warning  Failed  2m  kubelet  Failed to pull image \"x\": no";
    let mended = |rows: &[&str]| -> Vec<bool> {
        let head = String::from("Name:  web-0\nNamespace:  shop\n");
        let told = read(&(head + &rows.join("\n"))).into_iter();
        told.map(|(_, failure)| failure.mended).collect()
    };
    let started = "Normal  Started  1m  kubelet  Started container web";
    assert_eq!(mended(&[FAILS, MOUNT]), [false, false]);
    assert_eq!(mended(&[FAILS, MOUNT, started]), [true, true]);
    assert_eq!(mended(&[PULL, started]), [false], "an image comes later");
    let before = "Normal  Started  3m  kubelet  Started container web";
    assert_eq!(mended(&[before, FAILS]), [false], "it was before");
    let text = format!("Name:  web-0\n{FAILS}\n{started}\nName:  web-1\n{FAILS}\n");
    let told: Vec<bool> = read(&text)
        .into_iter()
        .map(|(_, each)| each.mended)
        .collect();
    assert_eq!(told, [true, false], "another pod's");
}

#[test]
fn an_event_that_quotes_the_kernel_is_the_kernels() {
    let row = "  Warning  UnregisterNetDevice  2s (x310 over 3h)  kernel-monitor, node-b  \
               unregister_netdevice: waiting for eth0 to become free. Usage count = 2";
    let mut kubectl = Kubectl::new(Timestamp::EPOCH);
    let told = [kubectl.line(row), kubectl.end()].concat();
    let waits = |event: &Event| matches!(event.what, What::DeviceWaiting { .. });
    assert_eq!(
        told.iter().filter(|event| waits(event)).count(),
        2,
        "{told:?}"
    );
}

#[test]
fn what_is_wider_than_any_terminal_was_broken_by_its_writer() {
    let long = format!(
        "  Warning  FailedCreatePodSandBox  2s  kubelet  Failed to create pod sandbox: {} in use",
        "x".repeat(400)
    );
    let mut kubectl = Kubectl::new(Timestamp::EPOCH);
    let mut told = kubectl.line(&long);
    told.extend(kubectl.line("CNI of another failed"));
    told.extend(kubectl.end());
    let What::SandboxFailed { failure } = &told[0].what else {
        panic!("{told:?}");
    };
    assert!(
        failure.message.ends_with("in use CNI of another failed"),
        "{}",
        failure.message
    );
}
