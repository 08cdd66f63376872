//! The incident as a look at the node finds it: the ghost of a deleted pod, and
//! the pod that got its address, with everything that any source says of them.

use super::*;

pub(super) const OLD_SANDBOX: &str =
    "d6fe7d733426b0000000000000000000000000000000000000000000000000aa";
pub(super) const NEW_SANDBOX: &str =
    "d6f1f29504b540000000000000000000000000000000000000000000000000bb";
/// The container that is stuck.
pub(super) const OLD_APP: &str = "02af057ee0f1a0000000000000000000000000000000000000000000000000cc";
/// A container of which only a reservation is left.
const LOST: &str = "77777777333333330000000000000000000000000000000000000000000000dd";

pub(super) fn incident() -> Node {
    let old = reference("checkout-x8k2p", OLD);
    let new = reference("checkout-q4w7z", NEW);
    let app = pod_task(9, "checkout-api", OLD, OLD_APP);
    let before = [pod("checkout-x8k2p", OLD, &[ip(5)]), running()];
    let after = [pod("other", OTHER, &[ip(9)]), running()];
    let mut node = Node::of(&[
        host(0),
        wired(2, 1, 0, 0),
        created(1, 100),
        added(3, 100, 5),
        wired(3, 100, 41, 1),
        listed(6, &before),
        listed(60, &after),
        holders(61, 100, &[app], &[MOUNT]),
        stuck_in_fuse(62),
        created(90, 200),
        added(90, 200, 5),
        wired(91, 200, 42, 1),
        holders(
            91,
            200,
            &[pod_task(70, "nginx", NEW, "5b5b5b")],
            &["/run/netns/cni-2"],
        ),
        at(92, runtime(&old, &new)),
        at(
            92,
            What::ContainersListed {
                source: String::from("cgroup"),
                partial: None,
                ids: [OLD_APP.to_owned(), NEW_SANDBOX.to_owned()].into(),
            },
        ),
        at(92, attachments(&old, &new)),
        at(
            92,
            What::NetworksListed {
                networks: vec![Network {
                    file: PathBuf::from("/etc/cni/net.d/10-pods.conflist"),
                    name: String::from("pods"),
                    plugin: String::from("bridge"),
                    ipam: Some(String::from("host-local")),
                    device: None,
                    store: Some(PathBuf::from(STORE)),
                    ranges: Vec::new(),
                }],
                unread: Vec::new(),
            },
        ),
        at(92, store()),
    ]);
    node.tick(100);
    node
}

const STORE: &str = "/var/lib/cni/networks/pods";

fn reference(name: &str, uid: &str) -> PodRef {
    PodRef {
        namespace: Some(String::from("shop")),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
    }
}

fn running() -> event::Pod {
    pod("checkout-q4w7z", NEW, &[ip(5)])
}

fn stuck_in_fuse(seconds: i64) -> Event {
    let mut event = stuck(seconds, 9, 100);
    if let What::TaskBlocked { task, .. } = &mut event.what {
        task.container_id = Some(OLD_APP.to_owned());
    }
    event
}

fn runtime(old: &PodRef, new: &PodRef) -> What {
    let sandbox = |id: &str, pod: &PodRef, inode, created, path: &str| RuntimeSandbox {
        id: id.to_owned(),
        pod: pod.clone(),
        ready: Some(true),
        created: Some(s(created)),
        netns_path: Some(path.to_owned()),
        netns: Some(ns(inode)),
        ips: vec![ip(5)],
        ..RuntimeSandbox::default()
    };
    let mut ghost = sandbox(OLD_SANDBOX, old, 100, 0, MOUNT);
    ghost.containers = vec![RuntimeContainer {
        id: OLD_APP.to_owned(),
        name: String::from("checkout"),
        state: Some(String::from("running")),
        pid: Some(9),
    }];
    What::SandboxesListed {
        source: String::from("cri"),
        endpoint: String::from("/run/containerd/containerd.sock"),
        runtime: Some(String::from("containerd 2.1.4")),
        partial: None,
        sandboxes: vec![
            ghost,
            sandbox(NEW_SANDBOX, new, 200, 89, "/run/netns/cni-2"),
        ],
    }
}

fn attachments(old: &PodRef, new: &PodRef) -> What {
    let attachment = |id: &str, pod: &PodRef, inode, written, path: &str| Attachment {
        path: PathBuf::from(format!("/var/lib/cni/results/pods-{id}-eth0")),
        network: String::from("pods"),
        container_id: id.to_owned(),
        ifname: String::from("eth0"),
        netns_path: path.to_owned(),
        netns: Some(ns(inode)),
        mac: None,
        host_devices: Vec::new(),
        pod: Some(pod.clone()),
        ips: vec![ip(5)],
        written: s(written),
    };
    What::AttachmentsListed {
        folder: PathBuf::from("/var/lib/cni/results"),
        attachments: vec![
            attachment(OLD_SANDBOX, old, 100, 4, MOUNT),
            attachment(NEW_SANDBOX, new, 200, 90, "/run/netns/cni-2"),
        ],
        unread: Vec::new(),
    }
}

fn store() -> What {
    let reservation = |last: u8, id: &str, modified| Reservation {
        address: ip(last),
        holder: event::ReservationHolder {
            path: PathBuf::from(format!("{STORE}/10.0.0.{last}")),
            container_id: id.to_owned(),
            ifname: Some(String::from("eth0")),
            pod: None,
        },
        modified: s(modified),
    };
    What::StoreListed {
        store: Store {
            path: PathBuf::from(STORE),
            reservations: vec![reservation(5, NEW_SANDBOX, 90), reservation(77, LOST, -900)],
            ..Store::default()
        },
    }
}

/// The devices of a namespace: those of a pod's with a veth pair to the host's
/// device of an index, or the host's own.
pub(super) fn wired(seconds: i64, inode: u32, link: u32, nsid: i32) -> Event {
    let device = |index, name: &str, kind: &str| Device {
        index,
        name: name.to_owned(),
        kind: Some(kind.to_owned()),
        up: true,
        ..Device::default()
    };
    let veth = |index, name: &str, link, nsid, master| Device {
        link: Some(link),
        link_nsid: Some(nsid),
        master,
        ..device(index, name, "veth")
    };
    let gateway = ip(1);
    let what = match link {
        0 => What::NetnsDevices {
            netns: ns(inode),
            devices: vec![
                device(3, "cni0", "bridge"),
                veth(41, "vetha1", 2, 4, Some(3)),
                veth(42, "vetha2", 2, 5, Some(3)),
            ],
            routes: Vec::new(),
            neighbours: Vec::new(),
            host_nsid: None,
        },
        _ => What::NetnsDevices {
            netns: ns(inode),
            devices: vec![veth(2, "eth0", link, nsid, None)],
            routes: vec![Route {
                gateway: Some(gateway),
                device: 2,
                ..Route::default()
            }],
            host_nsid: None,
            neighbours: vec![Neighbour {
                address: gateway,
                device: 2,
                mac: Some(String::from("0a:58:0a:00:00:01")),
                state: String::from("reachable"),
            }],
        },
    };
    at(seconds, what)
}
