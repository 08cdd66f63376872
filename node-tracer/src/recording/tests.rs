//! What goes into a recording comes out of it again, and nothing goes in that
//! is nobody's business.

use event::CniCommand;
use std::{collections::BTreeSet, ffi::OsString, os::unix::ffi::OsStringExt as _, path::PathBuf};

use serde_json::{Value, json};

use event::{
    CniEffect, CniInterface, CniResult, Endpoint, Event, FdHolder, FullFilesystem, OomKill,
    RuntimeContainer, StartFailure, Store, StoreKind, Trace, TraceKind, What, testing::*,
};

/// One event of each kind, with all that it can say.
fn samples() -> Vec<Event> {
    let story = [ghost_story(), successor(92)].concat();
    let more = [
        dying(1, 100),
        destroyed(1, 100),
        removed(1, 100, 5),
        unstuck(1, 9),
        held_by_fds(
            1,
            100,
            &[
                leaked_fd(3),
                FdHolder {
                    comm: None,
                    ..leaked_fd(4)
                },
            ],
        ),
        failed(1, call("ADD", "x", 100, OLD, "a"), "no such thing"),
        whole_call(),
        at(1, What::CniEffect { effect: effect() }),
        at(
            1,
            What::MaxPods {
                limit: event::MaxPods {
                    pods: 110,
                    file: "/var/lib/kubelet/config.yaml".into(),
                },
            },
        ),
        at(
            1,
            What::PodChanged {
                pod: Box::new(pod("a", OLD, &[])),
            },
        ),
        at(
            1,
            What::PodDeleted {
                pod: a_pod(OLD, "a"),
            },
        ),
        cri(1, &[whole_sandbox()]),
        at(
            1,
            What::SandboxAdded {
                source: "cri".into(),
                sandbox: whole_sandbox(),
            },
        ),
        at(
            1,
            What::SandboxRemoved {
                source: "cri".into(),
                id: "x".into(),
            },
        ),
        containers(1, "cgroup", &["a", "b"]),
        attached(1, &[attachment("x", Some(100), 5, 0)]),
        networks(1, &[network("bridge", &[range(2, 9)])]),
        stored(1, &[(5, "x", 0)]),
        at(
            1,
            What::StoreListed {
                store: whole_store(),
            },
        ),
        devices(
            1,
            100,
            &[veth(2, "eth0", 7), physical(3, "ens5")],
            &[route_to(5, 2), default_route(ip(1), 2)],
            &[neighbour(2, "permanent")],
        ),
        follows(1, 100, &whole_forwarding()),
        at(
            1,
            What::PodsWithAddress {
                address: ip(5),
                at: s(1),
                pods: Vec::new(),
            },
        ),
        at(
            1,
            What::NetnsForwardingOutdated {
                netns: ns(1),
                outdated: true,
            },
        ),
        at(
            1,
            What::PciListed {
                functions: vec![event::PciFunction {
                    address: "0000:00:06.2".into(),
                    driver: "mlx5_core".into(),
                    physical: Some("0000:00:06.0".into()),
                    carries: vec!["virtio1".into()],
                }],
            },
        ),
        at(
            1,
            What::SourceFailed {
                source: "cri".into(),
                error: "time-out".into(),
            },
        ),
        at(
            1,
            What::SourceRecovered {
                source: "cri".into(),
            },
        ),
        at(
            1,
            What::EventsLost {
                cause: "ring-full".into(),
                count: u64::MAX,
            },
        ),
        at(1, What::Tick),
    ];
    [found(0, 100)]
        .into_iter()
        .chain(story)
        .chain(more)
        .chain(of_logs())
        .collect()
}

/// What logs tell of.
fn of_logs() -> Vec<Event> {
    let failure = StartFailure {
        source: "kubelet".into(),
        pod: a_pod(OLD, "a"),
        sandbox_id: Some("x".into()),
        attempt: Some(3),
        reason: Some("FailedCreatePodSandBox".into()),
        message: "no space left on device".into(),
        count: Some(u64::MAX),
        first: Some(s(0)),
        mended: true,
    };
    let endpoint = Endpoint {
        store: "calico".into(),
        key: "/calico/v1/host/n/workload/k8s/a.b/endpoint/eth0".into(),
        pod: a_pod(OLD, "a"),
        ifname: Some("eth0".into()),
        container_id: Some("x".into()),
        ips: vec![ip(5)],
    };
    let kill = OomKill {
        task: pod_task(9, "pause", OLD, "x"),
        memcg: Some("/kubepods/pod1".into()),
        limited: Some(true),
    };
    let (deleted, kept) = (endpoint.clone(), endpoint.clone());
    let waiting = What::DeviceWaiting {
        device: "eth0".into(),
        references: Some(-1),
    };
    let full = FullFilesystem {
        path: "/run".into(),
        bytes: 1 << 30,
        bytes_free: 0,
        inodes: 4_096,
        inodes_free: 7,
    };
    vec![
        at(1, What::SandboxFailed { failure }),
        at(1, What::EndpointWritten { endpoint }),
        at(2, What::EndpointDeleted { endpoint: deleted }),
        at(
            2,
            What::EndpointKept {
                del: "y".into(),
                endpoint: kept,
            },
        ),
        at(2, What::OomKilled { kill }),
        at(2, waiting),
        at(
            2,
            What::ClockStepped {
                by_ms: -3_600_000,
                suspended: true,
            },
        ),
        at(3, What::FilesystemFull { full }),
        at(
            3,
            What::PodStarted {
                pod: a_pod(OLD, "a"),
            },
        ),
        at(
            3,
            What::UntrustedCalls {
                uid: Some(1000),
                task: Some(task(7, "sh")),
                count: 19_984,
                total: 20_000,
                since: s(2),
            },
        ),
        at(
            3,
            What::TasksOomKilled {
                uid: Some(1000),
                task: Some(task(7, "sh")),
                count: 4_984,
                total: 5_000,
                since: s(2),
            },
        ),
        at(
            3,
            What::UntrustedNetns {
                uid: Some(1000),
                count: 18_976,
            },
        ),
        at(
            3,
            What::TasksBlocked {
                crowd: 7,
                pod_uid: Some(OLD.into()),
                uid: Some(1000),
                count: 2_984,
                at_least: true,
                ended: 16,
                since: s(2),
                examples: vec![task(7, "sh")],
            },
        ),
    ]
}

fn whole_call() -> Event {
    let mut call = call("ADD", "x", 100, OLD, "a");
    call.network = Some("pods".into());
    call.ipam = Some("host-local".into());
    call.cni_version = Some("1.1.0".into());
    call.trusted = false;
    call.distrust = Some("in a container".into());
    let interface = CniInterface {
        name: "eth0".into(),
        mac: Some("02:00:00:00:00:01".into()),
        sandbox: Some(MOUNT.into()),
    };
    let result = CniResult {
        ips: vec![ip(5), "fd00::5".parse().unwrap()],
        gateways: vec![ip(1)],
        interfaces: vec![interface],
    };
    let what = What::CniCall {
        call,
        exit_code: None,
        signal: Some(9),
        duration_ms: 0.1 + 0.2,
        result: Some(result),
        error: None,
        unread: Some("it wrote too much".into()),
    };
    at(1, what)
}

fn effect() -> CniEffect {
    CniEffect {
        command: CniCommand::Del,
        container_id: "x".into(),
        ifname: "eth0".into(),
        pod: Some(a_pod(OLD, "a")),
        netns: Some(ns(100)),
        traces: [
            TraceKind::Address,
            TraceKind::Veth,
            TraceKind::Route,
            TraceKind::Reservation,
        ]
        .map(|kind| Trace {
            kind,
            name: "10.0.0.5".into(),
            there: Some(true),
        })
        .to_vec(),
    }
}

fn whole_sandbox() -> event::RuntimeSandbox {
    let container = RuntimeContainer {
        id: "c".into(),
        name: "app".into(),
        state: Some("running".into()),
        pid: Some(9),
    };
    event::RuntimeSandbox {
        host_network: true,
        ips: vec![ip(5)],
        containers: vec![container],
        ready: Some(true),
        pid: Some(7),
        netns_path: Some(MOUNT.into()),
        ..sandbox("x", 100, OLD)
    }
}

fn whole_store() -> Store {
    Store {
        path: "/var/lib/cni/terway/ResRelation.db".into(),
        kind: StoreKind::Terway,
        reservations: vec![reserve((5, "x", 0))],
        blocked: vec![ip(6)],
        last_reserved: vec![("0".into(), ip(7))],
        foreign: vec!["README".into()],
        unread: vec!["10.0.0.8: permission denied".into()],
    }
}

/// Fails to compile when a kind is added, and that one then belongs into
/// [`samples`].
fn kind(what: &What) -> usize {
    match what {
        What::NetnsCreated { .. } => 0,
        What::NetnsFound { .. } => 1,
        What::NetnsDying { .. } => 2,
        What::NetnsDestroyed { .. } => 3,
        What::NetnsHolders { .. } => 4,
        What::AddressAdded { .. } => 5,
        What::AddressRemoved { .. } => 6,
        What::TaskBlocked { .. } => 7,
        What::TaskUnblocked { .. } => 8,
        What::CniStarted { .. } => 9,
        What::CniCall { .. } => 10,
        What::CniEffect { .. } => 11,
        What::Reservation { .. } => 12,
        What::PodsListed { .. } => 13,
        What::PodDeleted { .. } => 14,
        What::PodChanged { .. } => 40,
        What::SandboxesListed { .. } => 15,
        What::SandboxAdded { .. } => 16,
        What::SandboxRemoved { .. } => 17,
        What::ContainersListed { .. } => 18,
        What::AttachmentsListed { .. } => 19,
        What::NetworksListed { .. } => 20,
        What::StoreListed { .. } => 21,
        What::NetnsDevices { .. } => 22,
        What::NetnsForwarding { .. } => 42,
        What::NetnsForwardingOutdated { .. } => 45,
        What::PciListed { .. } => 43,
        What::SourceFailed { .. } => 23,
        What::SourceRecovered { .. } => 24,
        What::EventsLost { .. } => 25,
        What::SandboxFailed { .. } => 26,
        What::EndpointWritten { .. } => 27,
        What::EndpointDeleted { .. } => 28,
        What::OomKilled { .. } => 29,
        What::DeviceWaiting { .. } => 30,
        What::EndpointKept { .. } => 31,
        What::Tick => 32,
        What::FilesystemFull { .. } => 33,
        What::ClockStepped { .. } => 34,
        What::MaxPods { .. } => 35,
        What::PodStarted { .. } => 36,
        What::UntrustedCalls { .. } => 37,
        What::TasksBlocked { .. } => 38,
        What::UntrustedNetns { .. } => 39,
        What::TasksOomKilled { .. } => 41,
        What::PodsWithAddress { .. } => 44,
    }
}

#[test]
fn every_kind_of_event_reads_back_as_it_was() {
    let samples = samples();
    let kinds: BTreeSet<usize> = samples.iter().map(|event| kind(&event.what)).collect();
    assert_eq!(kinds, (0..46).collect(), "one of each");
    for event in samples {
        let line = serde_json::to_string(&event).unwrap();
        let read: Event = serde_json::from_str(&line).unwrap();
        assert_eq!(read, event, "{line}");
        assert_eq!(serde_json::to_string(&read).unwrap(), line);
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["event"], event.what.name());
    }
}

#[test]
fn durations_read_back_to_the_last_bit() {
    let mut micros: u64 = 1;
    for _ in 0..20_000 {
        // As the kernel's records give them.
        let duration = (micros % 100_000_000_000) as f64 / 1_000.0;
        let text = serde_json::to_string(&duration).unwrap();
        let read: f64 = serde_json::from_str(&text).unwrap();
        assert_eq!(read.to_bits(), duration.to_bits(), "{text}");
        micros = micros
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
    }
}

fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                into.insert(key.clone());
                keys(value, into);
            }
        }
        Value::Array(all) => all.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

#[test]
fn no_event_has_a_place_for_a_secret() {
    let mut all = BTreeSet::new();
    for event in samples() {
        keys(&serde_json::to_value(event).unwrap(), &mut all);
    }
    assert!(
        all.contains("cni_version") && all.contains("parent_comm"),
        "{all:?}"
    );
    // What a plugin is given: its environment, its arguments, its standard
    // input with the whole configuration; and what would be named so.
    const FORBIDDEN: [&str; 13] = [
        "env", "args", "argv", "cmdline", "stdin", "stdout", "config", "conf", "token", "secret",
        "cert", "password", "auth",
    ];
    let places: Vec<&String> = all
        .iter()
        .filter(|key| key.split('_').any(|word| FORBIDDEN.contains(&word)))
        .collect();
    assert_eq!(places, Vec::<&String>::new());
}

#[test]
fn a_path_that_is_no_text_costs_its_bytes_and_not_the_recording() {
    let odd = PathBuf::from(OsString::from_vec(b"/run/netns/\xffx".to_vec()));
    let mut event = holders(5, 100, &[], &[MOUNT]);
    let What::NetnsHolders { mounts, .. } = &mut event.what else {
        unreachable!()
    };
    mounts.push(odd);
    let value = serde_json::to_value(&event).unwrap();
    assert_eq!(value["mounts"], json!([MOUNT, "/run/netns/\u{fffd}x"]));
}
