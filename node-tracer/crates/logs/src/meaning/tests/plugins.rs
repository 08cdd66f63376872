//! What plugins log of their own calls: Calico's old and new, AWS's.

use super::*;

const ENDPOINT: &str = "/calico/v1/host/n1/workload/k8s/shop.db-0/endpoint/eth0";

/// A DEL as an old Calico logs it, up to where it deletes the endpoint.
fn calicos_del(log: &mut Log, at: i64) {
    log.say(at, "kubelet", &environment("DEL", OLD, ""));
    log.with(
        at,
        "kubelet",
        "Releasing address using workloadID",
        &[("Workload", "shop.db-0")],
    );
    log.with(
        at,
        "kubelet",
        "Released address using workloadID",
        &[("Workload", "shop.db-0")],
    );
    log.say(at, "kubelet", &environment("DEL", OLD, ""));
    log.say(at, "kubelet", &format!("Delete Key: {ENDPOINT}"));
}

#[test]
fn a_plugin_and_its_ipam_are_one_call_and_a_retry_is_another() {
    let mut log = Log::default();
    for at in [0, 60] {
        calicos_del(&mut log, at);
        log.say(
            at,
            "kubelet",
            "Error deleting network: resource does not exist: WorkloadEndpoint(node=n1)",
        );
        // The same failure again, by who called it.
        let said = format!(
            "StopPodSandbox \"{OLD}\" from runtime service failed: rpc error: code = 2 desc = \
             NetworkPlugin cni failed to teardown pod \"db-0_shop\" network: resource does not \
             exist: WorkloadEndpoint(node=n1)"
        );
        log.say(at, "kubelet", &said);
    }
    let failed = "DEL calico old shop/db-0 failed: resource does not exist: \
                  WorkloadEndpoint(node=n1)";
    let ipam = "DEL calico-ipam old shop/db-0 ok";
    assert_eq!(log.calls(), [ipam, failed, ipam, failed]);
    let deleted = log.kinds().iter().any(|kind| kind == "endpoint-deleted");
    assert!(!deleted, "it was not there");
    let all = serde_json::to_string(&log.events).unwrap();
    assert!(!all.contains("secret") && !all.contains("LS0t"), "{all}");
}

#[test]
fn an_endpoint_is_deleted_unless_something_is_said_against_it() {
    let mut log = Log::default();
    calicos_del(&mut log, 0);
    log.say(0, "kubelet", &format!("Delete empty Key: {ENDPOINT}"));
    assert!(log.kinds().contains(&String::from("endpoint-deleted")));
    let mut log = Log::default();
    calicos_del(&mut log, 0);
    log.say(0, "kubelet", "Key not found error");
    assert!(!log.kinds().contains(&String::from("endpoint-deleted")));
    // Nothing is said: the log ends.
    let mut log = Log::default();
    calicos_del(&mut log, 0);
    assert!(log.kinds().contains(&String::from("endpoint-deleted")));
}

#[test]
fn an_add_has_its_addresses_and_the_pods_uid() {
    let mut log = Log::default();
    let said = format!("SyncLoop (ADD, \"api\"): \"db-0_shop({UID})\"");
    log.say(0, "kubelet", &said);
    let environment = environment("ADD", NEW, "/proc/77/ns/net");
    log.say(1, "kubelet", &environment);
    log.say(1, "kubelet", &environment);
    log.with(
        1,
        "kubelet",
        "Auto assigning IP",
        &[("Workload", "shop.db-0")],
    );
    log.say(
        1,
        "kubelet",
        "Calico CNI IPAM assigned addresses IPv4=[10.9.8.7] IPv6=[]",
    );
    log.say(1, "kubelet", "Calico CNI using IPs: [10.9.8.7/32]");
    log.with(
        2,
        "kubelet",
        "Wrote updated endpoint to datastore",
        &[("Workload", "shop.db-0")],
    );
    assert_eq!(
        log.calls(),
        [
            "ADD calico-ipam new shop/db-0 ok 10.9.8.7",
            "ADD calico new shop/db-0 ok 10.9.8.7",
        ]
    );
    let written = log.events.iter().find_map(|event| match &event.what {
        What::EndpointWritten { endpoint } => Some(endpoint.clone()),
        _ => None,
    });
    let written = written.unwrap();
    assert_eq!((written.key.as_str(), written.ips.len()), (ENDPOINT, 1));
    let started = log.events.iter().find_map(|event| match &event.what {
        What::CniStarted { call } => Some(call.clone()),
        _ => None,
    });
    let started = started.unwrap();
    assert_eq!(started.pod.unwrap().uid.as_deref(), Some(UID));
    assert_eq!(started.netns_path, "/proc/77/ns/net");
}

#[test]
fn a_log_that_goes_back_in_time_tells_another_part_of_the_story() {
    let mut log = Log::default();
    calicos_del(&mut log, 100);
    // An error of an earlier call, of which this excerpt has only the end.
    let said = "Error deleting network: resource does not exist: WorkloadEndpoint(x)";
    log.say(40, "kubelet", said);
    let said = format!(
        "StopPodSandbox \"{OLD}\" from runtime service failed: rpc error: NetworkPlugin cni failed \
         to teardown pod \"db-0_shop\" network: resource does not exist: WorkloadEndpoint(x)"
    );
    log.say(41, "kubelet", &said);
    assert_eq!(
        log.calls(),
        [
            "DEL calico-ipam old shop/db-0 ok",
            "DEL calico old shop/db-0 ?",
            "DEL calico old shop/db-0 failed: resource does not exist: WorkloadEndpoint(x)",
        ]
    );
}

#[test]
fn newer_calicos_lines_name_the_sandbox_and_may_leave_an_endpoint() {
    let fields = |id: &'static str| {
        [
            ("ContainerID", id),
            ("Namespace", "shop"),
            ("Pod", "db-0"),
            ("WorkloadEndpoint", "n1-k8s-db--0-eth0"),
        ]
    };
    let mut log = Log::default();
    log.with(1, "", "Extracted identifiers for CmdAddK8s", &fields(NEW));
    log.with(2, "", "Calico CNI using IPs: [10.9.8.7/32]", &fields(NEW));
    log.with(2, "", "Wrote updated endpoint to datastore", &fields(NEW));
    let text = format!(
        "CNI_CONTAINERID does not match WorkloadEndpoint ConainerID, don't delete WEP. \
         x=Spec{{Node:\"n1\", ContainerID:\"{NEW}\"}}"
    );
    log.with(9, "", &text, &fields(OLD));
    log.with(9, "", "Teardown processing complete.", &fields(OLD));
    assert_eq!(
        log.calls(),
        [
            "ADD calico new shop/db-0 ok 10.9.8.7",
            "DEL calico old shop/db-0 ok"
        ]
    );
    let kept = log.events.iter().find_map(|event| match &event.what {
        What::EndpointKept { del, endpoint } => Some((del.clone(), endpoint.clone())),
        _ => None,
    });
    let (del, endpoint) = kept.unwrap();
    assert_eq!(
        (del.as_str(), endpoint.container_id.as_deref()),
        (OLD, Some(NEW))
    );
}

#[test]
fn awss_plugin_names_all_in_its_requests() {
    let mut log = Log::default();
    let request = format!(
        "Received CNI add request: ContainerID({NEW}) Netns(/var/run/netns/cni-1) IfName(eth0) \
         Args(IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=db-0;K8S_POD_UID={UID}) \
         Path(/opt/cni/bin) argsStdinData({{}})"
    );
    log.say(1, "", &request);
    let answer = format!(
        "Received add network response from ipamd for container {NEW} interface eth0: \
         Success:true IPv4Addr:\"10.9.8.7\""
    );
    log.say(1, "", &answer);
    log.say(
        2,
        "",
        &format!("Failed SetupPodNetwork for container {NEW}: no device"),
    );
    assert_eq!(log.calls(), ["ADD aws-cni new shop/db-0 failed: no device"]);
}

#[test]
fn ipamd_says_of_which_pod_and_why() {
    let mut log = Log::default();
    let request = format!(
        "AddNetworkRequest: K8S_POD_NAME:\"web-0\" K8S_POD_NAMESPACE:\"shop\" \
         K8S_POD_INFRA_CONTAINER_ID:\"{NEW}\" ContainerID:\"{NEW}\" IfName:\"eth0\""
    );
    log.say(
        1,
        "",
        &format!("Received AddNetwork for NS /proc/1/ns/net, Sandbox {NEW}, ifname eth0"),
    );
    log.say(1, "", &request);
    assert_eq!(log.meaning.served(s(1)).unwrap().label(), "shop/web-0");
    log.say(
        1,
        "",
        "Send AddNetworkReply: IPv4Addr , DeviceNumber: -1, err: no available IP/Prefix addresses",
    );
    assert_eq!(log.meaning.served(s(1)), None);
    let calls = log.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert!(calls[0].contains("shop/web-0"), "{calls:?}");
    assert!(
        calls[0].ends_with("failed: no available IP/Prefix addresses"),
        "{calls:?}"
    );
}

#[test]
fn a_daemon_that_serves_two_pods_speaks_of_neither() {
    let mut log = Log::default();
    let request = |name: &str| {
        format!(
            "add port request: {{kube-ovn {name} shop {NEW} /var/run/netns/cni-1 eth0 ovn [] }}"
        )
    };
    log.say(1, "", &request("web-0"));
    log.say(1, "", &request("web-0"));
    assert_eq!(log.meaning.served(s(2)).unwrap().label(), "shop/web-0");
    log.say(2, "", &request("web-1"));
    assert_eq!(log.meaning.served(s(2)), None);
    log.say(
        3,
        "",
        "[2023-07-13T10:40:24Z] Outgoing response POST /api/v1/add with 200 status code",
    );
    log.say(60, "", &request("web-1"));
    assert_eq!(log.meaning.served(s(61)).unwrap().label(), "shop/web-1");
    assert_eq!(log.meaning.served(s(600)), None);
}
