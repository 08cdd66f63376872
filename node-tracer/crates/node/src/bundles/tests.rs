use std::{fs, os::unix::fs::symlink};

use super::*;
use crate::procfs::Bounded;
use event::PodRef;

const UID: &str = "2d3b9f5e-7a07-4c1b-9a51-0c6f2e8a4b11";
const CONTAINERD: &str = "run/containerd/io.containerd.runtime.v2.task/k8s.io";
const CRIO: &str = "run/containers/storage/overlay-containers";

/// A container's ID that begins with `start`.
fn id(start: &str) -> String {
    format!("{start:0<64}")
}

struct Node(tempfile::TempDir);

impl Node {
    fn new() -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        node.write("proc/1/cgroup", "0::/init.scope\n");
        node
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A process in a container's cgroup, and in a namespace.
    fn process(&self, pid: u32, container: &str, netns: u32) {
        let line = format!("0::/kubepods/besteffort/pod{UID}/{container}\n");
        self.write(&format!("proc/{pid}/cgroup"), &line);
        fs::create_dir_all(self.0.path().join(format!("proc/{pid}/ns"))).unwrap();
        let link = self.0.path().join(format!("proc/{pid}/ns/net"));
        symlink(format!("net:[{netns}]"), link).unwrap();
    }

    fn list(&self) -> Vec<Listing> {
        let procfs = Procfs::new(self.0.path(), Bounded::default());
        list(self.0.path(), &procfs).unwrap()
    }

    fn only(&self) -> Listing {
        let mut lists = self.list();
        assert_eq!(lists.len(), 1, "{lists:?}");
        lists.remove(0)
    }
}

fn containerd_spec(kind: &str, sandbox: &str, network: &str) -> String {
    format!(
        r#"{{"ociVersion": "1.0.2", "process": {{"args": ["/x"], "env": ["TOKEN=hunter2"]}},
        "annotations": {{"io.kubernetes.cri.container-type": "{kind}", "io.kubernetes.cri.sandbox-id": "{sandbox}",
            "io.kubernetes.cri.sandbox-namespace": "shop", "io.kubernetes.cri.sandbox-name": "checkout",
            "io.kubernetes.cri.sandbox-uid": "{UID}", "io.kubernetes.cri.container-name": "api"}},
        "linux": {{"cgroupsPath": "/kubepods/pod{UID}/x", "namespaces": [{{"type": "pid"}}{network}]}}}}"#
    )
}

const NETWORK: &str = r#", {"type": "network", "path": "/var/run/netns/cni-1"}"#;

#[test]
fn containerds_bundles_are_its_sandboxes_and_containers() {
    let node = Node::new();
    let (sandbox, container) = (id("a"), id("b"));
    node.write(
        &format!("{CONTAINERD}/{sandbox}/config.json"),
        &containerd_spec("sandbox", &sandbox, NETWORK),
    );
    node.write(&format!("{CONTAINERD}/{sandbox}/init.pid"), "71");
    let inner = r#", {"type": "network", "path": "/proc/71/ns/net"}"#;
    node.write(
        &format!("{CONTAINERD}/{container}/config.json"),
        &containerd_spec("container", &sandbox, inner),
    );
    node.write(&format!("{CONTAINERD}/{container}/init.pid"), "72\n");
    node.process(71, &sandbox, 4711);
    node.process(72, &container, 4711);

    let listing = node.only();
    assert_eq!(listing.folder, Path::new("/").join(CONTAINERD));
    assert!(listing.unread.is_empty(), "{:?}", listing.unread);
    let mut sandboxes = listing.sandboxes;
    assert!(sandboxes[0].created.take().is_some());
    let expected = RuntimeSandbox {
        id: sandbox,
        pod: PodRef {
            namespace: Some(String::from("shop")),
            name: Some(String::from("checkout")),
            uid: Some(UID.to_owned()),
        },
        ready: None,
        pid: Some(71),
        netns_path: Some(String::from("/var/run/netns/cni-1")),
        netns: Some(Netns {
            inode: 4711,
            cookie: None,
        }),
        containers: vec![RuntimeContainer {
            id: container,
            name: String::from("api"),
            state: None,
            pid: Some(72),
        }],
        ..RuntimeSandbox::default()
    };
    assert_eq!(sandboxes, [expected]);
    assert!(!format!("{sandboxes:?}").contains("hunter2"));
}

#[test]
fn a_process_id_that_is_anothers_by_now_is_not_believed() {
    let node = Node::new();
    for (name, pid) in [
        ("a", "71"),
        ("b", "72"),
        ("c", "0"),
        ("d", "x"),
        ("e", "74"),
    ] {
        let id = id(name);
        node.write(
            &format!("{CONTAINERD}/{id}/config.json"),
            &containerd_spec("sandbox", &id, NETWORK),
        );
        node.write(&format!("{CONTAINERD}/{id}/init.pid"), pid);
    }
    node.process(71, &id("b"), 1);
    node.write("proc/72/cgroup", "0::/system.slice/cron.service\n");
    node.process(74, &id("e"), 5);
    let sandboxes = node.only().sandboxes;
    let pids: Vec<_> = sandboxes.iter().map(|each| each.pid).collect();
    assert_eq!(pids, [None, None, None, None, Some(74)]);
    let netns: Vec<_> = sandboxes
        .iter()
        .map(|each| each.netns.map(|it| it.inode))
        .collect();
    assert_eq!(netns, [None, None, None, None, Some(5)]);
}

#[test]
fn a_sandbox_without_a_network_namespace_uses_the_hosts() {
    let node = Node::new();
    let id = id("a");
    node.write(
        &format!("{CONTAINERD}/{id}/config.json"),
        &containerd_spec("sandbox", &id, ""),
    );
    node.write(&format!("{CONTAINERD}/{id}/init.pid"), "71");
    node.process(71, &id, 1);
    let sandbox = node.only().sandboxes.remove(0);
    assert!(sandbox.host_network);
    assert_eq!(
        (sandbox.pid, sandbox.netns, sandbox.netns_path),
        (Some(71), None, None)
    );
}

#[test]
fn a_container_whose_sandbox_has_no_folder_still_names_it() {
    let node = Node::new();
    let (sandbox, container) = (id("a"), id("b"));
    node.write(
        &format!("{CONTAINERD}/{container}/config.json"),
        &containerd_spec("container", &sandbox, NETWORK),
    );
    let found = node.only().sandboxes.remove(0);
    assert_eq!(
        (found.id, found.created, found.netns_path),
        (sandbox, None, None)
    );
    assert_eq!(found.pod.label(), "shop/checkout");
    assert_eq!(found.containers[0].id, container);
}

#[test]
fn an_old_containerds_uid_is_in_the_cgroups_path() {
    let node = Node::new();
    let id = id("a");
    let spec = format!(
        r#"{{"annotations": {{"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": "{id}"}},
            "linux": {{"cgroupsPath": "kubepods-besteffort-pod{}.slice:cri-containerd:{id}", "namespaces": []}}}}"#,
        UID.replace('-', "_")
    );
    node.write(
        &format!("run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json"),
        &spec,
    );
    let sandbox = node.only().sandboxes.remove(0);
    assert_eq!(sandbox.pod.uid.as_deref(), Some(UID));
}

/// What CRI-O and the kubelet write, and `more`, as a pod's own annotations.
fn crio_spec(name: &str, sandbox: &str, network: &str, more: &str) -> String {
    let kind = if name == "POD" {
        "sandbox"
    } else {
        "container"
    };
    let uid = UID.replace('-', "_");
    format!(
        r#"{{"annotations": {{"io.kubernetes.cri-o.ContainerType": "{kind}",
            "io.kubernetes.cri-o.SandboxID": "{sandbox}", "io.kubernetes.pod.uid": "{UID}",
            "io.kubernetes.cri-o.KubeName": "checkout", "io.kubernetes.pod.name": "checkout",
            "io.kubernetes.cri-o.Namespace": "shop", "io.kubernetes.pod.namespace": "shop",
            "io.kubernetes.container.name": "{name}"{more}}},
            "linux": {{"cgroupsPath": "kubepods-besteffort-pod{uid}.slice:crio:x",
                "namespaces": [{{"type": "pid"}}{network}]}}}}"#
    )
}

const RESULT: &str = r#", "io.kubernetes.cri-o.CNIResult":
    "{\"ips\": [{\"interface\": 2, \"address\": \"10.85.0.9/16\"}]}""#;

#[test]
fn cri_os_bundles_are_its_sandboxes_and_podmans_are_none() {
    let node = Node::new();
    let (sandbox, container, podman) = (id("a"), id("b"), id("c"));
    node.write(
        &format!("{CRIO}/{sandbox}/userdata/config.json"),
        &crio_spec("POD", &sandbox, NETWORK, RESULT),
    );
    node.write(&format!("{CRIO}/{sandbox}/userdata/pidfile"), "71");
    node.write(
        &format!("{CRIO}/{container}/userdata/config.json"),
        &crio_spec("api", &sandbox, NETWORK, ""),
    );
    node.write(
        &format!("{CRIO}/{podman}/userdata/config.json"),
        r#"{"annotations": {"io.container.manager": "libpod"}}"#,
    );
    fs::create_dir_all(node.0.path().join(CRIO).join("overlay-layers")).unwrap();
    node.process(71, &sandbox, 9);

    let listing = node.only();
    assert!(listing.unread.is_empty(), "{:?}", listing.unread);
    let [found] = listing.sandboxes.as_slice() else {
        panic!("{listing:?}");
    };
    assert_eq!(found.id, sandbox);
    assert_eq!(found.pod.label(), "shop/checkout");
    assert_eq!(found.pod.uid.as_deref(), Some(UID));
    assert_eq!(found.pid, Some(71));
    assert_eq!(found.netns_path.as_deref(), Some("/var/run/netns/cni-1"));
    assert_eq!(
        found.ips,
        ["10.85.0.9".parse::<std::net::IpAddr>().unwrap()]
    );
    assert_eq!(found.containers.len(), 1);
    assert_eq!(
        (
            found.containers[0].id.as_str(),
            found.containers[0].name.as_str()
        ),
        (container.as_str(), "api")
    );
}

#[test]
fn what_a_pods_owner_annotates_makes_its_containers_no_others() {
    const VICTIM: &str = "11111111-1111-4111-8111-111111111111";
    let victim = id("f");
    // Of a sandbox they are over CRI-O's own, of which the first come here.
    let over = |spec: String| {
        let forged = [
            ("cri-o.ContainerType", "container"),
            ("cri-o.SandboxID", victim.as_str()),
            ("cri-o.KubeName", "victim"),
            ("cri-o.Namespace", "bank"),
        ];
        let mut spec: serde_json::Value = serde_json::from_str(&spec).unwrap();
        for (key, value) in forged {
            spec["annotations"][format!("io.kubernetes.{key}")] = value.into();
        }
        spec.to_string()
    };
    let more = format!(
        r#", "io.kubernetes.cri-o.Metadata": "{{\"uid\": \"{VICTIM}\", \"attempt\": 688}}",
            "io.kubernetes.cri-o.IP.0": "10.85.0.7", "io.kubernetes.cri-o.IP.5": "10.85.0.8",
            "io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": "{victim}",
            "io.kubernetes.cri.sandbox-name": "victim", "io.kubernetes.cri.sandbox-namespace": "bank",
            "io.kubernetes.cri.sandbox-uid": "{VICTIM}""#
    );
    let read = |more: &str, network: &str, over: &dyn Fn(String) -> String| {
        let node = Node::new();
        let (sandbox, container) = (id("a"), id("b"));
        for (id, name) in [(&sandbox, "POD"), (&container, "api")] {
            let spec = crio_spec(name, &sandbox, network, more);
            let spec = if name == "POD" { over(spec) } else { spec };
            node.write(&format!("{CRIO}/{id}/userdata/config.json"), &spec);
        }
        let mut sandboxes = node.only().sandboxes;
        for sandbox in &mut sandboxes {
            sandbox.created = None;
        }
        sandboxes
    };
    let honest = read(RESULT, NETWORK, &|spec| spec);
    assert_eq!(read(&format!("{more}{RESULT}"), NETWORK, &over), honest);
    // On the host's network CRI-O writes no result.
    let honest = read("", "", &|spec| spec);
    assert_eq!(read(&format!("{more}{RESULT}"), "", &over), honest);
}

#[test]
fn what_cannot_be_read_is_told_and_hides_nothing() {
    let node = Node::new();
    let outside = tempfile::tempdir().unwrap();
    let good = id("0");
    node.write(
        &format!("{CONTAINERD}/{good}/config.json"),
        &containerd_spec("sandbox", &good, NETWORK),
    );
    node.write(
        &format!("{CONTAINERD}/{}/config.json", id("1")),
        "{\"annotations\": {",
    );
    let huge = node.0.path().join(CONTAINERD).join(id("2"));
    fs::create_dir_all(&huge).unwrap();
    fs::File::create(huge.join("config.json"))
        .unwrap()
        .set_len(100 << 20)
        .unwrap();
    let linked = node.0.path().join(CONTAINERD).join(id("3"));
    fs::create_dir_all(&linked).unwrap();
    let evil = containerd_spec("sandbox", &id("3"), NETWORK);
    fs::write(outside.path().join("config.json"), evil).unwrap();
    symlink(
        outside.path().join("config.json"),
        linked.join("config.json"),
    )
    .unwrap();
    symlink(outside.path(), node.0.path().join(CONTAINERD).join(id("4"))).unwrap();
    fs::create_dir_all(node.0.path().join(CONTAINERD).join(id("5"))).unwrap();

    let listing = node.only();
    let ids: Vec<_> = listing
        .sandboxes
        .iter()
        .map(|each| each.id.as_str())
        .collect();
    assert_eq!(ids, [good.as_str()]);
    assert_eq!(listing.unread.len(), 3, "{:?}", listing.unread);
    for (told, start) in listing.unread.iter().zip(["1", "2", "3"]) {
        assert!(told.contains(&id(start)), "{told}");
    }
}

#[test]
fn a_node_without_runtimes_has_no_lists() {
    assert!(Node::new().list().is_empty());
}

#[test]
fn an_ipv4_address_that_is_written_as_ipv6_is_the_same_address() {
    let ips = spec::collect_ips(["::ffff:10.1.0.5", "10.1.0.5/24", "::ffff:127.0.0.1"].into_iter());
    assert_eq!(ips, ["10.1.0.5".parse::<std::net::IpAddr>().unwrap()]);
}
