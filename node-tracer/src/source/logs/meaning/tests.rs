use std::borrow::Cow;

use super::*;
use crate::{
    event::{CniCall, What},
    model::story::s,
};

const OLD: &str = "5a0f3c2e9b71d4860c1f2e3d4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978";
const NEW: &str = "c0de3c2e9b71d4860c1f2e3d4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978";
const UID: &str = "0d3c9a52-1111-4a4a-8f8f-aaaaaaaaaaaa";
const ENDPOINT: &str = "/calico/v1/host/n1/workload/k8s/shop.db-0/endpoint/eth0";

/// A log being told.
#[derive(Default)]
struct Log {
    meaning: Meaning,
    events: Vec<Event>,
}

impl Log {
    fn say(&mut self, seconds: i64, ident: &str, message: &str) -> &mut Self {
        self.with(seconds, ident, message, &[])
    }

    fn with(
        &mut self,
        seconds: i64,
        ident: &str,
        message: &str,
        fields: &[(&str, &str)],
    ) -> &mut Self {
        let entry = Entry {
            time: Some(s(seconds)),
            host: Some("n1"),
            ident: Some(ident).filter(|ident| !ident.is_empty()),
            pid: None,
            level: None,
            message: Cow::Borrowed(message),
            fields: fields
                .iter()
                .map(|(key, value)| (Cow::Borrowed(*key), Cow::Borrowed(*value)))
                .collect(),
            line: 1,
        };
        self.events.extend(self.meaning.events(&entry));
        self
    }

    /// All calls that ended, in words.
    fn calls(&mut self) -> Vec<String> {
        self.events.extend(self.meaning.end());
        let calls = self.events.iter().filter_map(|event| match &event.what {
            What::CniCall {
                call,
                exit_code,
                error,
                result,
                ..
            } => {
                assert!(call.log && call.trusted, "{call:?}");
                let ips = result.iter().flat_map(|result| &result.ips);
                let ips: Vec<String> = ips.map(ToString::to_string).collect();
                let how = match (exit_code, error) {
                    (Some(0), None) => format!("ok {}", ips.join(" ")),
                    (None, Some(error)) => format!("failed: {}", error.msg),
                    (None, None) => String::from("?"),
                    other => format!("{other:?}"),
                };
                Some(format!("{} {}", named(call), how.trim()))
            }
            _ => None,
        });
        calls.collect()
    }

    fn kinds(&mut self) -> Vec<String> {
        self.events.extend(self.meaning.end());
        let names = self.events.iter().map(|event| {
            let json = serde_json::to_value(event).unwrap();
            json["event"].as_str().unwrap().to_owned()
        });
        names.collect()
    }
}

fn named(call: &CniCall) -> String {
    let pod = call.pod.as_ref().map(crate::event::PodRef::label);
    let which = match call.container_id.as_str() {
        OLD => "old",
        NEW => "new",
        other => other,
    };
    let pod = pod.unwrap_or_default();
    format!("{} {} {which} {pod}", call.command, call.plugin)
}

fn environment(command: &str, id: &str, netns: &str) -> String {
    format!(
        "Configured environment: [LANG=C K8S_API_TOKEN=eyJhbGciOiJub25lIn0.a-secret \
         CNI_COMMAND={command} CNI_CONTAINERID={id} CNI_NETNS={netns} \
         CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=db-0; CNI_IFNAME=eth0 \
         ETCD_KEY=LS0tLS1CRUdJTiBSU0EgUFJJVkFURQ]"
    )
}

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
fn the_kubelets_lists_of_pods_are_read_old_and_new() {
    let mut log = Log::default();
    let event = format!("&{{ID:{UID} Type:ContainerStarted Data:{NEW}}}");
    let fields = [("pod", "shop/db-0"), ("event", event.as_str())];
    log.with(1, "kubelet", "SyncLoop (PLEG): event for pod", &fields);
    let fields = [("source", "api"), ("pods", "[\"shop/db-0\"]")];
    log.with(2, "kubelet", "SyncLoop REMOVE", &fields);
    let fields = [("source", "file"), ("pods", "[\"shop/static\"]")];
    log.with(2, "kubelet", "SyncLoop REMOVE", &fields);
    let old = format!("SyncLoop (REMOVE, \"api\"): \"web-1_shop({UID})\"");
    log.say(3, "kubelet", &old);
    let gone = log.events.iter().map(|event| match &event.what {
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
fn a_hung_task_has_the_stack_that_follows_it() {
    let mut log = Log::default();
    log.say(
        1_000,
        "kernel",
        "INFO: task tar:extract:77 blocked for more than 120 seconds.",
    );
    log.say(
        1_000,
        "kernel",
        "task:tar:extract  state:D stack:0 pid:77 flags:0x4",
    );
    log.say(1_000, "kernel", "Call Trace:");
    for frame in [
        " __schedule+0x2e3/0x740",
        " schedule+0x42/0xb0",
        " ? rwsem_wake+0x1/0x2",
        " request_wait_answer+0x138/0x210 [fuse]",
        " [<ffffffff8109c579>] fuse_simple_request+0x1/0x2",
    ] {
        log.say(1_000, "kernel", frame);
    }
    // An hour later, an unrelated oops.
    log.say(4_600, "kernel", "RIP: 0010:foo+0x1/0x2");
    // A kernel that says the same number each time.
    log.say(
        4_700,
        "kernel",
        "INFO: task tar:extract:77 blocked for more than 120 seconds.",
    );
    log.say(
        4_820,
        "kernel",
        "INFO: task tar:extract:77 blocked for more than 120 seconds.",
    );
    log.kinds();
    let told = log.events.iter().map(|event| match &event.what {
        What::TaskBlocked {
            task, since, stack, ..
        } => {
            assert_eq!((task.pid, task.comm.as_str()), (77, "tar:extract"));
            (*since, stack.join(" "))
        }
        other => panic!("{other:?}"),
    });
    let stack = "request_wait_answer+0x138 fuse_simple_request+0x1";
    let told: Vec<_> = told.collect();
    let expected = [(s(880), stack), (s(4_580), ""), (s(4_580), "")];
    let expected = expected.map(|(since, stack)| (since, stack.to_owned()));
    assert_eq!(told, expected);
}

#[test]
fn a_kill_is_told_once_with_whose_limit_it_was() {
    let cgroup = format!("/kubepods/burstable/pod{UID}/{OLD}");
    let mut log = Log::default();
    let whole = format!(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,\
         oom_memcg=/kubepods/burstable/pod{UID},task_memcg={cgroup},task=a,b,pid=7,uid=0"
    );
    log.say(1, "kernel", &whole);
    let killed = "Memory cgroup out of memory: Killed process 7 (a,b) total-vm:1kB, anon-rss:1kB";
    log.say(1, "kernel", killed);
    // Before 4.19.
    log.say(
        100,
        "kernel",
        &format!("Task in {cgroup} killed as a result of limit of /kubepods"),
    );
    log.say(
        100,
        "kernel",
        "Memory cgroup out of memory: Kill process 8 (java) score 9 or sacrifice",
    );
    log.say(
        100,
        "kernel",
        "Killed process 8 (java) total-vm:1kB, anon-rss:1kB",
    );
    log.say(
        200,
        "kernel",
        "Out of memory: Killed process 9 (java (x)) total-vm:1kB",
    );
    let kills = log.events.iter().map(|event| match &event.what {
        What::OomKilled { kill } => (
            kill.task.pid,
            kill.task.comm.clone(),
            kill.task.container_id.is_some(),
            kill.memcg.is_some(),
            kill.limited,
        ),
        other => panic!("{other:?}"),
    });
    let kills: Vec<_> = kills.collect();
    let kill = |pid, comm: &str, own, limit, limited| (pid, comm.to_owned(), own, limit, limited);
    let expected = [
        kill(7, "a,b", true, true, Some(true)),
        kill(8, "java", true, true, Some(true)),
        kill(9, "java (x)", false, false, Some(false)),
    ];
    assert_eq!(kills, expected);
}

#[test]
fn a_device_that_waits_is_told_with_its_references() {
    let mut log = Log::default();
    let said = "unregister_netdevice: waiting for lo to become free. Usage count = -1";
    log.say(1, "kernel", said);
    let [event] = log.events.as_slice() else {
        panic!("{:?}", log.events);
    };
    let expected = What::DeviceWaiting {
        device: String::from("lo"),
        references: Some(-1),
    };
    assert_eq!(event.what, expected);
}

#[test]
fn what_others_say_in_the_same_words_is_nothing() {
    let mut log = Log::default();
    for text in [
        "INFO: task is done",
        "StopPodSandbox for \"x\"",
        "RunPodSandbox for somebody",
        "Error deleting pod \"x\": no",
        "Configured environment: [CNI_COMMAND=VERSION]",
        "SyncLoop",
        "SyncLoop (housekeeping, skipped): sources aren't ready yet.",
        "Delete Key: /calico/ipam/v2/handle/shop.db-0",
        "Killed process in the night",
        "Got pod network &{",
        "unregister_netdevice: waiting for a while",
    ] {
        for ident in ["kubelet", "containerd", "crio", "kernel", ""] {
            log.say(1, ident, text);
        }
    }
    assert_eq!(log.kinds(), Vec::<String>::new());
}

#[test]
fn calls_that_never_end_do_not_pile_up() {
    let mut log = Log::default();
    for number in 0..5_000_u32 {
        let id = format!("{number:064x}");
        log.say(1, "kubelet", &environment("ADD", &id, "/proc/1/ns/net"));
    }
    let ended = log.events.iter();
    let ended = ended.filter(|event| matches!(event.what, What::CniCall { .. }));
    assert!(ended.count() >= 4_000);
}

#[test]
fn what_stands_where_a_name_should_is_no_way_out_for_a_secret() {
    let text = environment("ADD", NEW, "").replace(
        "CNI_IFNAME=eth0",
        "CNI_IFNAME=S_API_TOKEN=eyJhbGciOiJub25lIn0.a-secret",
    );
    let mut log = Log::default();
    log.say(1, "kubelet", &text);
    log.calls();
    let told = serde_json::to_string(&log.events).unwrap();
    assert!(
        told.contains("[redacted]") && !told.contains("eyJ"),
        "{told}"
    );
}
