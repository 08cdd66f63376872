use node_tracer_ebpf::record::{CniExitRecord, Owner};

use super::*;

pub(super) const HOST: Host = Host {
    pid_ns: 1,
    mnt_ns: 2,
};
const ENV: &[u8] = b"CNI_COMMAND=ADD\0CNI_CONTAINERID=abc\0CNI_NETNS=/run/netns/x\0\
    CNI_IFNAME=eth0\0CNI_PATH=/usr/lib/cni:/opt/cni/bin/\0\
    CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID=u1;K8S_POD_INFRA_CONTAINER_ID=abc;\
    K8S_API_TOKEN=secret\0";

pub(super) fn root(pid: u32, comm: &str) -> KernelTask {
    let mut task = KernelTask {
        tid: pid,
        tgid: pid,
        pid_inum: 1,
        mnt_inum: 2,
        ..KernelTask::default()
    };
    task.comm[..comm.len()].copy_from_slice(comm.as_bytes());
    task
}

pub(super) fn exec(pid: u32, parent: KernelTask, path: &str) -> CniExec {
    CniExec {
        time: 1_000,
        task: root(pid, "bridge"),
        parent,
        owner: Owner::default(),
        path: path.as_bytes().to_vec(),
        env: ENV.to_vec(),
        truncated: false,
    }
}

pub(super) fn containerd() -> Parent {
    Parent {
        exe: Some(String::from("containerd")),
        in_pod: Some(false),
        lives: Some(true),
        ..Parent::default()
    }
}

fn exit(pid: u32, wait_status: u32) -> CniExit {
    let mut record = CniExitRecord {
        tgid: pid,
        wait_status,
        ..CniExitRecord::default()
    };
    record.header.time = 36_000;
    record.started = 35_000;
    CniExit {
        record,
        config: Vec::new(),
        output: Vec::new(),
    }
}

fn call(started: Started) -> CniCall {
    match started {
        Started::Call(call) => *call,
        other => panic!("no call: {other:?}"),
    }
}

#[test]
fn a_plugin_of_a_runtime_is_a_trusted_call() {
    let mut table = CniTable::new(HOST);
    let started = table.exec(
        &exec(5, root(4, "containerd"), "/opt/cni/bin/bridge"),
        containerd,
    );
    let call = call(started);
    assert!(call.trusted, "{:?}", call.distrust);
    assert_eq!(call.plugin, "bridge");
    assert_eq!(call.infra_container_id.as_deref(), Some("abc"));
    assert_eq!(call.pod.unwrap().label(), "default/web");
    let ended = table.exit(&exit(5, 0x100)).unwrap();
    assert_eq!(
        (ended.exit_code, ended.signal, ended.duration),
        (Some(1), None, 35_000)
    );
    assert!(table.exit(&exit(5, 0)).is_none());
}

#[test]
fn a_signal_is_told_from_a_status() {
    let mut table = CniTable::new(HOST);
    table.exec(
        &exec(5, root(4, "containerd"), "/opt/cni/bin/bridge"),
        containerd,
    );
    let ended = table.exit(&exit(5, 9)).unwrap();
    assert_eq!((ended.exit_code, ended.signal), (None, Some(9)));
}

#[test]
fn a_plugin_called_by_a_plugin_is_delegated() {
    let mut table = CniTable::new(HOST);
    table.exec(
        &exec(5, root(4, "containerd"), "/opt/cni/bin/bridge"),
        containerd,
    );
    let child = exec(6, root(5, "bridge"), "/opt/cni/bin/host-local");
    let child = call(table.exec(&child, || panic!("the parent is known")));
    assert!(child.delegated && child.trusted);
}

#[test]
fn a_helper_with_the_plugins_environment_is_no_call() {
    let mut table = CniTable::new(HOST);
    table.exec(
        &exec(5, root(4, "containerd"), "/opt/cni/bin/bridge"),
        containerd,
    );
    let helper = exec(6, root(5, "bridge"), "/usr/sbin/iptables");
    assert!(matches!(table.exec(&helper, containerd), Started::Nothing));
    assert!(table.exit(&exit(6, 0)).is_none());
}

#[test]
fn a_wrapper_and_the_plugin_it_becomes_are_one_call() {
    let mut table = CniTable::new(HOST);
    table.exec(
        &exec(5, root(4, "containerd"), "/opt/cni/bin/bridge"),
        containerd,
    );
    let again = exec(5, root(4, "containerd"), "/opt/cni/bin/bridge");
    assert!(matches!(table.exec(&again, containerd), Started::Nothing));
    assert!(table.exit(&exit(5, 0)).is_some());
}

#[test]
fn what_the_plugin_behind_a_wrapper_calls_is_the_wrappers_delegate() {
    let mut table = CniTable::new(HOST);
    table.exec(
        &exec(5, root(4, "containerd"), "/opt/cni/bin/bridge"),
        containerd,
    );
    let real = || exec(6, root(5, "bridge"), "/opt/cni/real/bridge");
    let child = || exec(7, root(6, "bridge"), "/opt/cni/bin/host-local");
    assert!(matches!(table.exec(&real(), containerd), Started::Nothing));
    let told = call(table.exec(&child(), || panic!("the parent is known")));
    assert!(told.delegated && told.trusted, "{:?}", told.distrust);
    // Its end is no call's, and then nothing is known of it.
    assert!(table.exit(&exit(6, 0)).is_none());
    let mut later = child();
    later.task.tgid = 8;
    assert!(!call(table.exec(&later, Parent::default)).delegated);

    // A stranger's helpers are strangers.
    let mut table = CniTable::new(HOST);
    table.exec(
        &exec(5, root(4, "sh"), "/opt/cni/bin/bridge"),
        Parent::default,
    );
    table.exec(&real(), containerd);
    let told = call(table.exec(&child(), containerd));
    assert!(told.delegated && !told.trusted);
}

#[test]
fn a_container_that_plays_a_plugin_is_not_trusted() {
    let runtime = || root(4, "containerd");
    let path = "/opt/cni/bin/bridge";
    let distrusted = |exec: CniExec, parent: Parent| {
        call(CniTable::new(HOST).exec(&exec, || parent))
            .distrust
            .is_some()
    };
    let mut other_pid_ns = exec(5, runtime(), path);
    other_pid_ns.task.pid_inum = 9;
    assert!(distrusted(other_pid_ns, containerd()));
    let mut other_mnt_ns = exec(5, runtime(), path);
    other_mnt_ns.task.mnt_inum = 9;
    assert!(distrusted(other_mnt_ns, containerd()));
    let mut not_root = exec(5, runtime(), path);
    not_root.task.euid = 1000;
    assert!(distrusted(not_root, containerd()));
    let mut user_ns = exec(5, runtime(), path);
    user_ns.task.user_level = 1;
    assert!(distrusted(user_ns, containerd()));
    let in_pod = Parent {
        in_pod: Some(true),
        ..containerd()
    };
    assert!(distrusted(exec(5, runtime(), path), in_pod));
    let unknown = Parent {
        in_pod: None,
        ..containerd()
    };
    assert!(distrusted(exec(5, runtime(), path), unknown));
    let renamed = Parent {
        exe: Some(String::from("sh")),
        ..containerd()
    };
    assert!(distrusted(exec(5, runtime(), path), renamed));
    let gone = Parent {
        exe: None,
        ..containerd()
    };
    assert!(distrusted(exec(5, runtime(), path), gone));
}

#[test]
fn a_runtime_with_mounts_of_its_own_is_vouched_for_by_its_socket_or_by_systemd() {
    let apart = |parent: Parent| {
        let mut exec = exec(5, root(4, "containerd"), "/opt/cni/bin/bridge");
        exec.task.mnt_inum = 9;
        exec.parent.mnt_inum = 9;
        call(CniTable::new(HOST).exec(&exec, || parent)).trusted
    };
    let listens = Parent {
        listens: true,
        ..containerd()
    };
    let service = Parent {
        is_service: true,
        ..containerd()
    };
    assert!(apart(listens) && apart(service));
    assert!(!apart(containerd()), "docker run --pid=host");
}

#[test]
fn what_is_read_of_a_parent_that_has_ended_is_not_believed() {
    for lives in [Some(false), None] {
        let ended = Parent {
            lives,
            ..containerd()
        };
        let exec = exec(5, root(4, "containerd"), "/opt/cni/bin/bridge");
        assert!(!call(CniTable::new(HOST).exec(&exec, || ended)).trusted);
    }
}

#[test]
fn strangers_do_not_crowd_out_the_hosts_plugins() {
    let mut table = CniTable::new(HOST);
    let path = "/opt/cni/bin/bridge";
    for pid in 1000..1000 + 2 * MAX_STRANGERS as u32 {
        let mut stranger = exec(pid, root(4, "containerd"), path);
        stranger.task.euid = 1000;
        assert!(!call(table.exec(&stranger, containerd)).trusted);
    }
    assert!(call(table.exec(&exec(5, root(4, "containerd"), path), containerd)).trusted);
    assert!(table.exit(&exit(5, 0)).is_some());
}

#[test]
fn helpers_of_strangers_do_not_crowd_out_those_of_plugins() {
    let mut table = CniTable::new(HOST);
    table.exec(
        &exec(5, root(4, "sh"), "/opt/cni/bin/bridge"),
        Parent::default,
    );
    for pid in 1000..1000 + MAX_HELPERS as u32 {
        let helper = exec(pid, root(5, "bridge"), "/usr/sbin/iptables");
        assert!(matches!(table.exec(&helper, containerd), Started::Nothing));
    }
    table.exec(
        &exec(6, root(4, "containerd"), "/opt/cni/bin/bridge"),
        containerd,
    );
    let wrapped = exec(7, root(6, "bridge"), "/opt/cni/real/bridge");
    table.exec(&wrapped, containerd);
    assert!(table.believes(6) && table.believes(7) && !table.believes(5));
    let inner = exec(8, root(7, "bridge"), "/opt/cni/bin/host-local");
    assert!(call(table.exec(&inner, || panic!("the parent is known"))).trusted);
}

#[test]
fn a_number_that_is_used_again_is_another_process() {
    let mut table = CniTable::new(HOST);
    let path = "/opt/cni/bin/bridge";
    table.exec(&exec(5, root(4, "containerd"), path), containerd);
    let mut later = exec(5, root(4, "containerd"), path);
    later.task.start_boottime = 77;
    later.time = 30_000;
    call(table.exec(&later, containerd));
    let mut old = exit(5, 0);
    old.record.started = 1_000;
    assert!(table.exit(&old).is_none(), "the end of the first");
    let mut child = exec(6, root(5, "bridge"), "/opt/cni/bin/host-local");
    child.parent.start_boottime = 1;
    let child = call(table.exec(&child, Parent::default));
    assert!(!child.delegated, "its parent is yet another of that number");
}

#[test]
fn tokens_in_the_arguments_are_dropped() {
    let mut table = CniTable::new(HOST);
    let call = call(table.exec(
        &exec(5, root(4, "containerd"), "/opt/cni/bin/bridge"),
        containerd,
    ));
    assert!(!serde_json::to_string(&call).unwrap().contains("secret"));
}

#[test]
fn names_that_are_no_text_are_kept_as_far_as_they_go() {
    let mut start = exec(5, root(4, "containerd"), "/opt/cni/bin/bridge");
    start.env =
        b"CNI_COMMAND=A\xffD\0CNI_PATH=/opt/cni/bin\0=\0CNI_ARGS=;;=;K8S_POD_NAME=\0".to_vec();
    let call = call(CniTable::new(HOST).exec(&start, containerd));
    assert_eq!(call.command.as_str(), "A\u{fffd}D");
    assert_eq!(call.pod, None);
}
