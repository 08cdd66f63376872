//! What those log that call the plugins: kubelet, containerd, CRI-O.

use super::*;

#[test]
fn a_sandbox_that_is_stopped_has_no_del_that_fails() {
    let mut log = Log::default();
    let failed = format!("StopPodSandbox for \"{OLD}\" failed");
    let said = format!(
        "failed to destroy network for sandbox \"{OLD}\": plugin type=\"bridge\" failed (delete): busy"
    );
    log.with(1, "containerd", &failed, &[("error", &said)]);
    let stopped = format!("StopPodSandbox for \"{OLD}\" returns successfully");
    log.say(9, "containerd", &stopped);
    log.say(20, "containerd", &stopped);
    let calls = log.calls();
    let ends: Vec<_> = calls.iter().map(|call| call.contains("busy")).collect();
    assert_eq!(ends, [true, false], "{calls:?}");
}

#[test]
fn a_del_that_names_no_sandbox_is_told() {
    let mut log = Log::default();
    log.say(1, "kubelet", "Error deleting network: no route to host");
    assert!(log.calls()[0].ends_with("failed: no route to host"));
    let mut log = Log::default();
    log.say(1, "", "plugin type=\"flannel\" failed (delete): gone");
    assert!(log.calls()[0].ends_with("failed: gone"));
}

#[test]
fn one_failure_is_told_once_whoever_tells_it() {
    let md = format!("&PodSandboxMetadata{{Name:db-0,Uid:{UID},Namespace:shop,Attempt:2,}}");
    let said = format!(
        "failed to setup network for sandbox \"{NEW}\": plugin type=\"bridge\" failed (add): full"
    );
    let answered = format!("rpc error: code = Unknown desc = {said}");
    let synced = format!(
        "failed to \"CreatePodSandbox\" for \"db-0_shop({UID})\" with CreatePodSandboxError: \
         \"{}\"",
        answered.replace('"', "\\\"")
    );
    let pod = ("pod", "shop/db-0");
    let kubelet = |log: &mut Log, at| {
        log.with(
            at,
            "kubelet",
            "RunPodSandbox from runtime service failed",
            &[("err", &answered)],
        );
        log.with(
            at,
            "kubelet",
            "Failed to create sandbox for pod",
            &[("err", &answered), pod],
        );
        let fields = [("err", synced.as_str()), pod, ("podUID", UID)];
        log.with(at, "kubelet", "Error syncing pod, skipping", &fields);
    };
    let mut log = Log::default();
    log.say(1, "containerd", &format!("RunPodSandbox for {md}"));
    let failed = format!("RunPodSandbox for {md} failed, error");
    log.with(2, "containerd", &failed, &[("error", &said)]);
    kubelet(&mut log, 2);
    let once = ["ADD bridge new shop/db-0 failed: full"];
    assert_eq!(log.calls(), once);
    // The kubelet alone names the pod a line later.
    let mut log = Log::default();
    kubelet(&mut log, 2);
    assert_eq!(log.calls(), once);
    // The next try fails as well.
    let mut log = Log::default();
    kubelet(&mut log, 2);
    kubelet(&mut log, 20);
    assert_eq!(log.calls().len(), 2);
}

#[test]
fn containerd_tells_of_a_sandboxs_whole_life() {
    let md = format!("&PodSandboxMetadata{{Name:db-0,Uid:{UID},Namespace:shop,Attempt:2,}}");
    let mut log = Log::default();
    log.say(1, "containerd", &format!("RunPodSandbox for {md}"));
    log.say(
        2,
        "containerd",
        &format!("RunPodSandbox for {md} returns sandbox id \"{NEW}\""),
    );
    log.say(9, "containerd", &format!("StopPodSandbox for \"{NEW}\""));
    let down = format!("TearDown network for sandbox \"{NEW}\" successfully");
    log.say(10, "containerd", &down);
    log.say(
        10,
        "containerd",
        &format!("StopPodSandbox for \"{NEW}\" returns successfully"),
    );
    let removed = format!("RemovePodSandbox \"{NEW}\" returns successfully");
    log.say(20, "containerd", &removed);
    // Whether it has a network of its own is not told until it is taken down.
    assert_eq!(log.calls(), ["DEL cni new shop/db-0 ok"]);
    let expected = [
        "sandbox-added",
        "cni-started",
        "cni-call",
        "sandbox-added",
        "sandbox-removed",
    ];
    assert_eq!(log.kinds(), expected);
    let What::SandboxAdded { sandbox, .. } = &log.events[0].what else {
        panic!("{:?}", log.events[0]);
    };
    assert_eq!((sandbox.attempt, sandbox.created), (2, Some(s(1))));
    assert_eq!(
        log.events[1].time,
        s(9),
        "it began when stopping was asked for"
    );
}

#[test]
fn crios_requests_are_told_apart_by_their_numbers() {
    let network = |id: &str, name: &str| {
        format!(
            "Got pod network &{{Name:{name} Namespace:shop ID:{id} UID:{UID} \
             NetNS:/var/run/netns/x Networks:[{{Name:net Ifname:eth0}}]}}"
        )
    };
    let mut log = Log::default();
    for (request, id, name) in [("1", OLD, "a-0"), ("2", NEW, "b-0")] {
        log.with(1, "crio", &network(id, name), &[("id", request)]);
    }
    let adds = "Adding pod shop_x to CNI network \"net\" (type=ovn)";
    log.with(2, "crio", adds, &[("id", "2")]);
    log.with(2, "crio", adds, &[("id", "1")]);
    log.with(3, "crio", "Error adding network: no port", &[("id", "2")]);
    let ran = format!("Ran pod sandbox {OLD} with infra container: shop/a-0/POD");
    log.with(4, "crio", &ran, &[("id", "1")]);
    let expected = [
        "ADD ovn new shop/b-0 failed: no port",
        "ADD ovn old shop/a-0 ok",
    ];
    assert_eq!(log.calls(), expected);
}

#[test]
fn the_kubelets_lists_of_pods_are_read_old_and_new() {
    let mut log = Log::default();
    let event = format!("&{{ID:{UID} Type:ContainerStarted Data:{NEW}}}");
    let fields = [("pod", "shop/db-0"), ("event", event.as_str())];
    log.with(1, "kubelet", "SyncLoop (PLEG): event for pod", &fields);
    let event = format!("{{\"ID\":\"{UID}\",\"Type\":\"ContainerStarted\",\"Data\":\"{NEW}\"}}");
    let fields = [("pod", "shop/db-0"), ("event", event.as_str())];
    log.with(1, "kubelet", "SyncLoop (PLEG): event for pod", &fields);
    let fields = [("source", "api"), ("pods", "[\"shop/db-0\"]")];
    log.with(2, "kubelet", "SyncLoop REMOVE", &fields);
    let fields = [("source", "file"), ("pods", "[\"shop/static\"]")];
    log.with(2, "kubelet", "SyncLoop REMOVE", &fields);
    let old = format!("SyncLoop (REMOVE, \"api\"): \"web-1_shop({UID})\"");
    log.say(3, "kubelet", &old);
    let what = log.events.iter().map(|event| &event.what);
    let (started, gone): (Vec<_>, Vec<_>) =
        what.partition(|what| matches!(what, What::PodStarted { .. }));
    assert_eq!(started.len(), 2, "in both forms");
    let gone = gone.into_iter().map(|what| match what {
        What::PodDeleted { pod } => format!("{} {:?}", pod.label(), pod.uid.as_deref()),
        other => panic!("{other:?}"),
    });
    let gone: Vec<String> = gone.collect();
    let uid = format!("Some({UID:?})");
    assert_eq!(
        gone,
        [format!("shop/db-0 {uid}"), format!("shop/web-1 {uid}")]
    );
}

#[test]
fn a_teardown_that_names_only_the_pod_counts_where_nobody_names_more() {
    let said = format!(
        "Error syncing pod {UID} (\"db-0_shop({UID})\"), skipping: failed to \"KillPodSandbox\" for \
         \"{UID}\" with KillPodSandboxError: \"rpc error: code = Unknown desc = NetworkPlugin cni \
         failed to teardown pod \\\"db-0_shop\\\" network: no\""
    );
    let mut log = Log::default();
    for at in [1, 2, 20, 40] {
        log.say(at, "kubelet", &said);
    }
    let calls = log.calls();
    assert_eq!(calls.len(), 3, "one a try: {calls:?}");
    let named = format!(
        "StopPodSandbox \"{OLD}\" from runtime service failed: rpc error: code = Unknown desc = \
         NetworkPlugin cni failed to teardown pod \"db-0_shop\" network: no"
    );
    let mut log = Log::default();
    for at in [1, 20] {
        log.say(at, "kubelet", &named);
        log.say(at, "kubelet", &said);
    }
    let calls = log.calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls.iter().all(|call| call.contains("old")), "{calls:?}");
}
