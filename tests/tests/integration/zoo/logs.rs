//! What logs, events and bare messages tell, in the forms in which people have
//! them: one text a row.

use super::expect::{Expect, Finds, finds};

/// A text, and what an expert reads in it.
pub(super) struct Text {
    pub(super) name: &'static str,
    pub(super) text: String,
    pub(super) expect: Vec<Expect>,
}

const SANDBOX: &str = "7d3f6b1c9e2a4f5087a6b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708";

fn row(name: &'static str, text: impl Into<String>, expect: Expect) -> Text {
    Text {
        name,
        text: text.into().replace("ID", SANDBOX),
        expect: vec![expect],
    }
}

/// The task itself may be told, too.
fn teardown(name: &'static str, text: &str) -> Text {
    let mut row = row(name, text, found(finds("netns-teardown-stall")));
    row.expect.push(Expect::May("blocked-task"));
    row
}

fn found(finds: Finds) -> Expect {
    Expect::Finds(finds)
}

/// A sandbox that was not made, for this reason.
fn cause(cause: &'static str) -> Expect {
    found(finds("sandbox-create-failed").with("cause", cause))
}

pub(super) fn rows() -> Vec<Text> {
    [heads(), words(), formats(), healthy()]
        .into_iter()
        .flatten()
        .collect()
}

/// What stands before a line. The time is the inner one, or the coverage says
/// that there is none.
fn heads() -> Vec<Text> {
    const SAID: &str = "E0612 08:15:01.000200    1203 pod_workers.go:1300] \"Error syncing pod, \
                        skipping\" err=\"failed to \\\"CreatePodSandbox\\\" for \
                        \\\"web-0_shop(0a1b2c3d-0000-4000-8000-000000000001)\\\" with \
                        CreatePodSandboxError: \\\"Failed to create sandbox for pod: plugin \
                        type=\\\\\\\"bridge\\\\\\\" failed (add): no IP addresses available in \
                        range set\\\"\"";
    let said = || finds("sandbox-create-failed").with("cause", "range-exhausted");
    let full = || found(said().at("2026-06-12T08:15:01"));
    let timeless = |name, text: String| {
        let mut row = row(name, text, found(said()));
        row.expect.push(Expect::Unknown(&["no time stands there"]));
        row
    };
    const BARE: &str = "Failed to create pod sandbox: plugin type=\"bridge\" failed (add): no IP \
                        addresses available in range set";
    vec![
        timeless("a message without any time", BARE.into()),
        timeless(
            "a date in a form that nobody knows",
            format!("am 12. um viertel neun n1 kubelet[1203]: {BARE}"),
        ),
        row("a line that somebody quotes", format!("> {SAID}"), full()),
        row(
            "the kubelet's name and PID in front",
            format!("kubelet[1203]: {SAID}"),
            full(),
        ),
        row(
            "a localized month in front",
            format!("juin 12 08:15:01 n1 kubelet[1203]: {SAID}"),
            full(),
        ),
        row(
            "a node's address in front of JSON",
            "10.0.0.3: {\"ts\":\"2026-06-12T08:15:01Z\",\"level\":\"error\",\"msg\":\"Failed to \
             create pod sandbox: plugin type=\\\"bridge\\\" failed (add): no IP addresses \
             available in range set\"}",
            full(),
        ),
        row(
            "a page of HTML",
            format!("<pre>{}</pre>", SAID.replace('"', "&quot;")),
            full(),
        ),
    ]
}

/// Causes by their words.
fn words() -> Vec<Text> {
    let failed = |said: &str| {
        format!(
            "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup \
             network for sandbox \"ID\": {said}"
        )
    };
    let made = |said: &str| {
        format!("Failed to create pod sandbox: rpc error: code = Unknown desc = {said}")
    };
    vec![
        row(
            "an agent's socket is not there, after a wait",
            failed(
                "plugin type=\"cilium-cni\" failed (add): failed after 30s timeout: dial unix \
                 /run/cilium/cilium.sock: connect: no such file or directory",
            ),
            cause("cni-not-ready"),
        ),
        row(
            "an agent's port of loopback refuses",
            failed(
                "plugin type=\"aws-cni\" failed (add): context deadline exceeded: dial tcp \
                 127.0.0.1:50051: connect: connection refused",
            ),
            cause("cni-not-ready"),
        ),
        row(
            "the kubelet's cgroup driver is another than the runtime's",
            made(
                "runc create failed: expected cgroupsPath to be of format \"slice:prefix:name\" \
                 for systemd cgroups, got \"/kubepods/pod1/aa\" instead",
            ),
            cause("runtime-unavailable"),
        ),
        row(
            "a cgroup hierarchy is not mounted",
            made("failed to create containerd task: cgroups: cgroup mountpoint does not exist"),
            cause("runtime-unavailable"),
        ),
        row(
            "runsc does not start",
            made(
                "failed to create shim task: OCI runtime create failed: creating container: \
                 cannot create sandbox: cannot read client sync file: waiting for sandbox to \
                 start: EOF",
            ),
            cause("runtime-unavailable"),
        ),
        row(
            "runc ends before it has made anything",
            made(
                "failed to create containerd task: unable to retrieve OCI runtime error: runc \
                 did not terminate successfully: exit status 127",
            ),
            cause("runtime-unavailable"),
        ),
        row(
            "no more processes",
            made("failed to start shim: fork/exec /usr/bin/runc: resource temporarily unavailable"),
            cause("node-memory"),
        ),
        row(
            "the kernel has no overlay",
            made(
                "failed to create containerd container: failed to mount \
                 /var/lib/containerd/tmpmounts/containerd-mount77: no such device",
            ),
            cause("runtime-unavailable"),
        ),
        row(
            "another CNI's words for a full range",
            failed(
                "plugin type=\"spiderpool\" failed (add): allocation error: all IP addresses \
                 used out in pool shop",
            ),
            cause("range-exhausted"),
        ),
        row(
            "another CNI's words for an address in use",
            failed(
                "plugin type=\"kube-ovn\" failed (add): request ip return 500: IP address \
                 10.24.8.9 has already been used by host with MAC 00:00:00:12:34:56",
            ),
            cause("address-in-use"),
        ),
        row(
            "the bridge's own address is there already",
            failed(
                "plugin type=\"bridge\" failed (add): could not add IP address to \"cni0\": file \
                 exists",
            ),
            cause("cni-plugin-error"),
        ),
        row(
            "a policy of the kernel refuses the sandbox",
            made(
                "failed to create containerd task: runc create failed: write \
                 /proc/self/attr/keycreate: invalid argument",
            ),
            cause("runtime-unavailable"),
        ),
    ]
}

fn formats() -> Vec<Text> {
    vec![
        teardown(
            "what SysRq-w prints",
            "[ 812.100000] sysrq: Show Blocked State\n\
             [ 812.100100] task:kworker/u8:3    state:D stack:0     pid:211   tgid:211   ppid:2\n\
             [ 812.100200] Workqueue: netns cleanup_net\n\
             [ 812.100300] Call Trace:\n\
             [ 812.100400]  schedule+0x5d/0xe0\n\
             [ 812.100500]  rtnl_lock+0x15/0x20\n\
             [ 812.100600]  cleanup_net+0x120/0x3b0\n",
        ),
        teardown(
            "a blocked task under cleanup_net in a kernel log",
            "[ 241.000001] INFO: task kworker/u8:1:77 blocked for more than 120 seconds.\n\
             [ 241.000002] Workqueue: netns cleanup_net\n\
             [ 241.000003] Call Trace:\n\
             [ 241.000004]  schedule+0x5d/0xe0\n\
             [ 241.000005]  cleanup_net+0x120/0x3b0\n",
        ),
        row(
            "ipamd.log: no address is left",
            "{\"level\":\"error\",\"ts\":\"2026-06-12T08:15:01.000Z\",\"caller\":\"ipamd/ipamd.go\",\
             \"msg\":\"DataStore has no available IP/Prefix addresses\"}\n\
             {\"level\":\"info\",\"ts\":\"2026-06-12T08:15:01.001Z\",\"caller\":\"rpc/rpc.pb.go\",\
             \"msg\":\"Send AddNetworkReply: IPv4Addr: , DeviceNumber: -1, err: AssignPodIPv4Address: no \
             available IP/Prefix addresses\"}",
            cause("range-exhausted"),
        ),
        row(
            "Whereabouts' log",
            "2026-06-12T08:15:01Z [error] Error at storage engine: Could not allocate IP in range: \
             ip: 10.5.0.1 / - 10.5.0.9 / range: 10.5.0.0/28",
            cause("range-exhausted"),
        ),
        row(
            "Terway's daemon",
            "time=\"2026-06-12T08:15:01Z\" level=error msg=\"error alloc ip: \
             InvalidVSwitchId.IpNotEnough\" pod=shop/web-0",
            cause("range-exhausted"),
        ),
        row(
            "kube-ovn's daemon",
            "E0612 08:15:01.000200    7 handler.go:90] configure nic eth0 for pod web-0/shop failed: \
             failed to run 'ovs-vsctl --timeout=30 add-port br-int aa_h': exit status 1",
            cause("cni-plugin-error"),
        ),
        row(
            "kubectl get events, with a sandbox that is not taken down",
            "LAST SEEN   TYPE      REASON          OBJECT      MESSAGE\n\
             12s         Warning   FailedKillPod   pod/web-0   error killing pod: failed to \
             \"KillPodSandbox\" for \"0a1b2c3d-0000-4000-8000-000000000001\" with \
             KillPodSandboxError: \"rpc error: code = Unknown desc = failed to destroy network for \
             sandbox \\\"ID\\\": plugin type=\\\"calico\\\" failed (delete): error getting \
             ClusterInformation: connection is unauthorized\"",
            found(finds("del-retry").about("web-0")),
        ),
        row(
            "a bare message",
            "failed to find plugin \"bridge\" in path [/opt/cni/bin]",
            cause("cni-not-ready"),
        ),
        {
            let mut row = row(
                "a blocked task that SIGKILL would wake (TASK_KILLABLE)",
                "[ 241.000001] INFO: task df:77 blocked for more than 120 seconds.\n\
                 [ 241.000002] Call Trace:\n\
                 [ 241.000003]  schedule+0x33/0x110\n\
                 [ 241.000004]  rpc_wait_bit_killable+0x11/0x70\n\
                 [ 241.000005]  nfs4_call_sync_sequence+0x6d/0xa0\n",
                found(finds("blocked-task").any().about("df")),
            );
            row.expect.push(Expect::Unknown(&["one would wake it"]));
            row
        },
        row(
            "a hung task without its first line",
            "[ 900.000001] \"echo 0 > /proc/sys/kernel/hung_task_timeout_secs\" disables this message.\n\
             [ 900.000002] runc            D ffff88021fc12ec0     0  4711      1 0x00000000\n\
             [ 900.000003] Call Trace:\n\
             [ 900.000004]  [<ffffffff8154a41b>] ? mutex_lock+0x1b/0x2a\n\
             [ 900.000005]  [<ffffffff814465ba>] ? copy_net_ns+0x9a/0x160\n",
            found(finds("blocked-task").any().about("runc")),
        ),
    ]
}

/// Of these nothing is wrong.
fn healthy() -> Vec<Text> {
    let quiet = |name, text: &str| row(name, text, Expect::Quiet);
    vec![
        quiet(
            "the kubelet's information names a failure of another day",
            "I0612 08:15:01.000200    1203 kubelet.go:2300] \"SyncLoop (PLEG): event for pod\" \
             pod=\"shop/web-0\" reason=\"Failed to create pod sandbox before\"",
        ),
        quiet(
            "what its writer ignores",
            "time=\"2026-06-12T08:15:01Z\" level=warning msg=\"Ignoring error: failed to set up \
             sandbox network of a pod that is gone\"",
        ),
        quiet(
            "a warning that names another way",
            "time=\"2026-06-12T08:15:01Z\" level=warning msg=\"Unable to assign additional IPs to \
             interface, will create new interface\" error=\"PrivateIpAddressLimitExceeded\"",
        ),
        quiet(
            "a runtime that works",
            "time=\"2026-06-12T08:15:01Z\" level=info msg=\"RunPodSandbox for \
             &PodSandboxMetadata{Name:web-0,Uid:0a1b2c3d-0000-4000-8000-000000000001,\
             Namespace:shop,Attempt:0,} returns sandbox id \\\"ID\\\"\"",
        ),
        quiet(
            "text that has nothing to do with pods",
            "Jun 12 08:15:01 n1 sshd[77]: Accepted publickey for admin from 192.0.2.7\n\
             Jun 12 08:15:02 n1 CRON[78]: session opened for user root",
        ),
    ]
}
