//! Events for tests, and the incident told with them.

use std::{net::IpAddr, path::PathBuf};

use crate::{
    Address, CniCall, CniError, CniResult, Event, FdHolder, Netns, Pod, PodRef, ReservationHolder,
    Task, UserNs, What, clock::Timestamp,
};

pub mod generator;
mod state;

pub use self::state::*;

/// UID of the pod that is force-deleted.
pub const OLD: &str = "0a1b2c3d-0000-4000-8000-000000000001";
/// UID of the pod that gets its address.
pub const NEW: &str = "0a1b2c3d-0000-4000-8000-000000000002";
/// UID of a pod that has nothing to do with it.
pub const OTHER: &str = "0a1b2c3d-0000-4000-8000-000000000003";
/// Where the old sandbox is mounted.
pub const MOUNT: &str = "/run/netns/cni-1";

/// Seconds after the story's beginning.
pub fn s(seconds: i64) -> Timestamp {
    Timestamp::from_nanos((1_763_700_000 + seconds) * 1_000_000_000)
}

pub fn at(seconds: i64, what: What) -> Event {
    Event {
        time: s(seconds),
        what,
    }
}

/// A namespace with a cookie.
pub fn ns(inode: u32) -> Netns {
    Netns {
        inode,
        cookie: Some(u64::from(inode) + 1_000),
    }
}

/// `10.0.0.LAST`
pub fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

pub fn address(last: u8) -> Address {
    Address {
        address: ip(last),
        prefix: 24,
        ifname: String::from("eth0"),
        link_kind: Some(String::from("veth")),
        dad: None,
    }
}

pub fn task(pid: u32, comm: &str) -> Task {
    Task {
        pid,
        tid: pid,
        comm: comm.to_owned(),
        state: Some('S'),
        start_ticks: Some(u64::from(pid) * 100),
        ..Task::default()
    }
}

pub fn pod_task(pid: u32, comm: &str, uid: &str, container: &str) -> Task {
    Task {
        pod_uid: Some(uid.to_owned()),
        container_id: Some(container.to_owned()),
        ..task(pid, comm)
    }
}

pub fn host(seconds: i64) -> Event {
    at(
        seconds,
        What::NetnsFound {
            netns: ns(1),
            host: true,
            node: false,
            user_ns: None,
        },
    )
}

pub fn found(seconds: i64, inode: u32) -> Event {
    at(
        seconds,
        What::NetnsFound {
            netns: ns(inode),
            host: false,
            node: false,
            user_ns: None,
        },
    )
}

pub fn created(seconds: i64, inode: u32) -> Event {
    at(
        seconds,
        What::NetnsCreated {
            netns: ns(inode),
            task: None,
            user_ns: None,
        },
    )
}

/// A namespace as one that a user has made in a user namespace.
pub fn of_user(mut event: Event, uid: u32) -> Event {
    if let What::NetnsCreated { user_ns, .. } | What::NetnsFound { user_ns, .. } = &mut event.what {
        *user_ns = Some(UserNs { inode: 9, uid });
    }
    event
}

pub fn dying(seconds: i64, inode: u32) -> Event {
    at(
        seconds,
        What::NetnsDying {
            netns: ns(inode),
            task: None,
        },
    )
}

pub fn destroyed(seconds: i64, inode: u32) -> Event {
    at(seconds, What::NetnsDestroyed { netns: ns(inode) })
}

pub fn added(seconds: i64, inode: u32, last: u8) -> Event {
    let what = What::AddressAdded {
        netns: ns(inode),
        address: address(last),
        found: false,
        made: None,
    };
    at(seconds, what)
}

pub fn removed(seconds: i64, inode: u32, last: u8) -> Event {
    at(
        seconds,
        What::AddressRemoved {
            netns: ns(inode),
            address: address(last),
        },
    )
}

pub fn holders(seconds: i64, inode: u32, tasks: &[Task], mounts: &[&str]) -> Event {
    let what = What::NetnsHolders {
        netns: ns(inode),
        tasks: tasks.to_vec(),
        task_count: tasks.len(),
        mounts: mounts.iter().map(PathBuf::from).collect(),
        fds: Vec::new(),
        sockets: Vec::new(),
    };
    at(seconds, what)
}

/// Nobody is in it and it is mounted nowhere.
pub fn held_by_fds(seconds: i64, inode: u32, fds: &[FdHolder]) -> Event {
    let what = What::NetnsHolders {
        netns: ns(inode),
        tasks: Vec::new(),
        task_count: 0,
        mounts: Vec::new(),
        fds: fds.to_vec(),
        sockets: Vec::new(),
    };
    at(seconds, what)
}

/// A descriptor that a daemon has forgotten to close.
pub fn leaked_fd(fd: u32) -> FdHolder {
    FdHolder {
        pid: 77,
        fd,
        comm: Some(String::from("cni-daemon")),
    }
}

/// The old pod's container sleeps in a FUSE read.
pub fn stuck(seconds: i64, pid: u32, inode: u32) -> Event {
    let what = What::TaskBlocked {
        task: pod_task(pid, "checkout-api", OLD, "app-old"),
        since: s(seconds),
        found: false,
        netns: Some(ns(inode)),
        wchan: Some(String::from("request_wait_answer")),
        stack: vec![
            String::from("request_wait_answer+0x12d/0x220"),
            String::from("__fuse_simple_request+0xd1/0x2f0"),
        ],
        killable: None,
        sigkill_pending: None,
        fuse: Vec::new(),
    };
    at(seconds, what)
}

pub fn unstuck(seconds: i64, pid: u32) -> Event {
    let task = pod_task(pid, "checkout-api", OLD, "app-old");
    at(
        seconds,
        What::TaskUnblocked {
            task,
            since: s(0),
            duration_ms: 1_000,
        },
    )
}

pub fn call(command: &str, container: &str, inode: u32, uid: &str, name: &str) -> CniCall {
    CniCall {
        command: command.into(),
        container_id: container.to_owned(),
        ifname: String::from("eth0"),
        netns_path: String::from(MOUNT),
        netns: Some(ns(inode)),
        plugin: String::from("bridge"),
        pid: 77,
        pod: Some(PodRef {
            namespace: Some(String::from("shop")),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
        }),
        trusted: true,
        ..CniCall::default()
    }
}

pub fn calls(seconds: i64, call: CniCall) -> Event {
    at(seconds, What::CniStarted { call })
}

pub fn ended(seconds: i64, call: CniCall) -> Event {
    at(
        seconds,
        What::CniCall {
            call,
            exit_code: Some(0),
            signal: None,
            duration_ms: 9.5,
            result: None,
            error: None,
            unread: None,
        },
    )
}

/// A call that failed with exit status 1 and this message.
pub fn failed(seconds: i64, call: CniCall, msg: &str) -> Event {
    let error = CniError {
        code: Some(999),
        msg: msg.to_owned(),
        details: None,
    };
    let what = What::CniCall {
        call,
        exit_code: Some(1),
        signal: None,
        duration_ms: 9.5,
        result: None,
        error: Some(error),
        unread: None,
    };
    at(seconds, what)
}

/// A call that gave an address.
pub fn answered(seconds: i64, call: CniCall, last: u8) -> Event {
    let result = CniResult {
        ips: vec![ip(last)],
        ..CniResult::default()
    };
    let what = What::CniCall {
        call,
        exit_code: Some(0),
        signal: None,
        duration_ms: 9.5,
        result: Some(result),
        error: None,
        unread: None,
    };
    at(seconds, what)
}

pub fn pod(name: &str, uid: &str, ips: &[IpAddr]) -> Pod {
    Pod {
        namespace: String::from("shop"),
        name: name.to_owned(),
        uids: [uid.to_owned()].into(),
        node: Some(String::from("node-1")),
        phase: Some(String::from("Running")),
        ips: ips.to_vec(),
        ..Pod::default()
    }
}

pub fn listed(seconds: i64, pods: &[Pod]) -> Event {
    let source = String::from("pods");
    at(
        seconds,
        What::PodsListed {
            source,
            at: s(seconds),
            made_after: None,
            whole: false,
            doubt: None,
            pods: pods.to_vec(),
        },
    )
}

pub fn reservation(container: &str) -> ReservationHolder {
    ReservationHolder {
        path: PathBuf::from("/var/lib/cni/networks/pods/10.0.0.5"),
        container_id: container.to_owned(),
        ifname: None,
        pod: None,
    }
}

/// What the host-local store says of 10.0.0.5.
pub fn reserved(seconds: i64, holder: Option<&str>) -> Event {
    let what = What::Reservation {
        address: ip(5),
        stores: vec![PathBuf::from("/var/lib/cni/networks/pods")],
        holder: holder.map(reservation),
    };
    at(seconds, what)
}

/// The incident up to the ghost: the pod is set up, gets stuck, is
/// force-deleted at 60; its address stays reserved.
pub fn ghost_story() -> Vec<Event> {
    let add = call("ADD", "sandbox-old", 100, OLD, "checkout-x8k2p");
    let pause = pod_task(7, "pause", OLD, "sandbox-old");
    let app = pod_task(9, "checkout-api", OLD, "app-old");
    let others = [pod("other", OTHER, &[ip(9)])];
    let all = [others[0].clone(), pod("checkout-x8k2p", OLD, &[ip(5)])];
    vec![
        host(0),
        created(1, 100),
        calls(2, add.clone()),
        added(3, 100, 5),
        ended(4, add),
        holders(5, 100, &[pause, app.clone()], &[MOUNT]),
        listed(6, &all),
        listed(60, &others),
        holders(61, 100, &[app], &[MOUNT]),
        reserved(61, Some("sandbox-old")),
        stuck(62, 9, 100),
    ]
}

/// How it goes on: the new pod gets the address.
pub fn successor(seconds: i64) -> Vec<Event> {
    let add = call("ADD", "sandbox-new", 200, NEW, "checkout-q4w7z");
    vec![
        created(seconds, 200),
        calls(seconds, add.clone()),
        reserved(seconds, Some("sandbox-new")),
        added(seconds, 200, 5),
        ended(seconds, add),
    ]
}
