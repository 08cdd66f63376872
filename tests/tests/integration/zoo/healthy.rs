//! Nodes on which nothing is wrong: what is found there is a false alarm.

use super::situation::{
    Api, BRIDGE, Device, InCri, Listed, Other, Pod, Situation, Source, Task, digits, network,
};
use super::{tables, users};

pub(super) fn rows() -> Vec<Situation> {
    [
        nodes(),
        addresses(),
        strangers(),
        ends(),
        sources(),
        users::rows(),
        tables::healthy(),
    ]
    .concat()
}

fn row(name: &'static str) -> Situation {
    Situation::new(name).quiet()
}

/// A routed network with a device name of its own for the node's end.
fn routed(name: &'static str, plugin: &'static str, ipam: Option<&'static str>) -> Situation {
    let mut situation = row(name).network(network(plugin, ipam));
    situation.host.remove(0);
    situation
}

/// Ordinary nodes of many kinds of clusters.
fn nodes() -> Vec<Situation> {
    let hash = "5f3a1c0de5f3a1c0de5f3a1c0de5f3a1";
    let mut static_pod = Pod::new("kube-system/etcd-worker-1", "10.244.7.9/24").host_network();
    static_pod.uid = hash.to_owned();
    let mut static_own = Pod::new("kube-system/proxy-worker-1", "10.244.7.8/24");
    static_own.uid = "6f3a1c0de5f3a1c0de5f3a1c0de5f3a1".to_owned();
    vec![
        row("kubeadm: static pods, pods on the host's network, pods of the network")
            .pod(static_pod.annotation("kubernetes.io/config.hash", hash))
            .pod(static_own.annotation(
                "kubernetes.io/config.hash",
                "6f3a1c0de5f3a1c0de5f3a1c0de5f3a1",
            ))
            .pod(Pod::new("kube-system/flannel-j8k2l", "10.244.7.7/24").host_network())
            .pod(Pod::new("shop/web", "10.244.7.2/24"))
            .pod(Pod::new("shop/db-0", "10.244.7.3/24")),
        row("Istio: a sidecar in every pod, 127.0.0.6 on lo, and hostPort")
            .pod(Pod::new("shop/web", "10.244.7.2/24").task(Task::new("envoy")))
            .pod(Pod::new("shop/api", "10.244.7.3/24").task(Task::new("envoy")))
            .shell("nsenter --net={shop/web} ip addr add 127.0.0.6/32 dev lo")
            .shell("nsenter --net={shop/api} ip addr add 127.0.0.6/32 dev lo"),
        row("dual stack: every pod has an address of each family")
            .pod(Pod::with("shop/a", Device::veth("eth0").ip("10.244.7.2/24").ip("fd00:10:244:7::2/64")))
            .pod(Pod::with("shop/b", Device::veth("eth0").ip("10.244.7.3/24").ip("fd00:10:244:7::3/64"))),
        routed("Calico: routed pods, the same gateway for all", "calico", Some("calico-ipam"))
            .host(Device::of("vxlan", "vxlan.calico").ip("10.244.64.0/32"))
            .pod(Pod::with("shop/a", Device::routed("eth0", "cali0a1b2c3d4e5").ip("10.244.64.2/32")))
            .pod(Pod::with("shop/b", Device::routed("eth0", "cali1a1b2c3d4e5").ip("10.244.64.3/32"))),
        routed("Calico with IPIP: tunl0 on the node and, without an address, in pods", "calico", Some("calico-ipam"))
            .host(Device::of("ipip", "tunl0").ip("10.244.64.64/32"))
            .pod(Pod::with("shop/a", Device::routed("eth0", "cali0a1b2c3d4e5").ip("10.244.64.2/32"))),
        routed("Cilium: lxc devices, cilium_host, and its own health namespace", "cilium-cni", None)
            .host(Device::of("veth", "cilium_host").ip("10.0.1.17/32"))
            .pod(Pod::with("shop/a", Device::routed("eth0", "lxc0123456789ab").ip("10.0.1.5/32")))
            .other(Other::at("health", "/run/netns/cilium-health").task("cilium-health")
                .device(Device::routed("cilium", "lxc_health").ip("10.0.1.99/32"))),
        routed("AWS VPC CNI: eni devices and two uplinks", "aws-cni", None)
            .host(Device::uplink("ens4").ip("192.0.2.20/24"))
            .pod(Pod::with("shop/a", Device::routed("eth0", "eni0a1b2c3d4e5").ip("192.0.2.31/32")))
            .pod(Pod::with("shop/b", Device::routed("eth0", "eni1a1b2c3d4e5").ip("192.0.2.32/32"))),
        routed("AWS VPC CNI with Multus: net1 has no entry for its gateway, and needs none", "aws-cni", None)
            .pod(Pod::with("shop/a", Device::routed("eth0", "eni0a1b2c3d4e5").ip("192.0.2.31/32"))
                .device(Device::on("macvlan", "net1", "ens3").ip("198.51.100.31/24"))
                .route("net1", "198.51.100.1")),
        routed("AWS VPC CNI with Multus: net1 is routed by a plugin that writes no entries", "aws-cni", None)
            .pod(Pod::with("shop/a", Device::routed("eth0", "eni0a1b2c3d4e5").ip("192.0.2.31/32"))
                .device(Device { attached: Some("second"), ..Device::routed("net1", "cali1a1b2c3d4e5").ip("10.99.0.31/32") })
                .route("net1", "169.254.1.1"))
            .recorded("a namespace has one route to one gateway"),
        routed("Azure: azure-vnet in transparent mode", "azure-vnet", Some("azure-vnet-ipam"))
            .pod(Pod::with("shop/a", Device::routed("eth0", "azv0a1b2c3d4e5").ip("10.240.0.5/16")))
            .pod(Pod::with("shop/b", Device::routed("eth0", "azv1a1b2c3d4e5").ip("10.240.0.6/16"))),
        routed("GKE: every node's end has the same gateway address", "ptp", Some("host-local"))
            .pod(Pod::with("shop/a", Device::routed("eth0", "gke0a1b2c3d4e5").ip("10.8.1.5/24")).unreserved())
            .pod(Pod::with("shop/b", Device::routed("eth0", "gke1a1b2c3d4e5").ip("10.8.1.6/24")).unreserved())
            .without(Source::Store)
            .shell("ip addr add 10.8.1.1/32 dev gke0a1b2c3d4e5; ip addr add 10.8.1.1/32 dev gke1a1b2c3d4e5"),
        row("flannel: flannel.1 and the bridge have the first addresses")
            .host(Device::of("vxlan", "flannel.1").ip("10.244.7.0/32"))
            .pod(Pod::new("shop/a", "10.244.7.2/24")),
        routed("Antrea: its own gateway, host-local by its agent", "antrea", Some("host-local"))
            .host(Device::of("veth", "antrea-gw0").ip("10.10.1.1/24"))
            .pod(Pod::with("shop/a", Device::routed("eth0", "web-0a1b2c").ip("10.10.1.5/24"))),
        routed("OVN-Kubernetes: a port on the node with an address of the subnet", "ovn-k8s-cni-overlay", None)
            .host(Device::of("veth", "ovn-k8s-mp0").ip("10.128.1.2/23"))
            .pod(Pod::with("shop/a", Device::routed("eth0", "0a1b2c3d4e5f6a7").ip("10.128.1.9/23"))),
        routed("Terway: a pod with an ENI of its own", "terway", None)
            .pod(Pod::with("shop/a", Device { attached: Some("podnet"), ..Device::uplink("eth0").ip("192.0.2.77/24") }))
            .recorded("it takes hardware"),
        row("CRI-O with pinns: no pause process, and a container between two restarts")
            .pod(Pod::new("shop/a", "10.244.7.2/24").mount("/run/netns/1f0a9c6e-8a7d-4b6a-9a39-5f5a0d8f6b11"))
            .pod(Pod::new("shop/crashing", "10.244.7.3/24").mount("/run/netns/2f0a9c6e-8a7d-4b6a-9a39-5f5a0d8f6b11").empty()),
        row("KubeVirt with masquerade: every virtual machine has 10.0.2.1 on its k6t-eth0")
            .pod(Pod::new("vms/virt-launcher-a", "10.244.7.2/24").task(Task::new("qemu-kvm"))
                .device(Device::bridge("k6t-eth0").ip("10.0.2.1/24")))
            .pod(Pod::new("vms/virt-launcher-b", "10.244.7.3/24").task(Task::new("qemu-kvm"))
                .device(Device::bridge("k6t-eth0").ip("10.0.2.1/24"))),
        row("KubeVirt bound to a bridge: the pod's address is on a dummy named eth0")
            .pod(kubevirt("vms/virt-launcher-a", "10.244.7.2/24", "10.244.7.2"))
            .pod(kubevirt("vms/virt-launcher-b", "10.244.7.3/24", "10.244.7.3")),
        row("gVisor: the sentry has the address, the kernel's interface has none")
            .pod(Pod::with("shop/a", Device::veth("eth0")).known_as(&["10.244.7.2"]).task(Task::new("runsc-sandbox")))
            .pod(Pod::with("shop/b", Device::veth("eth0")).known_as(&["10.244.7.3"]).task(Task::new("runsc-sandbox"))),
        row("Kata: a virtual machine's tap beside the pod's interface")
            .pod(Pod::new("shop/a", "10.244.7.2/24").task(Task::new("qemu-system"))),
        row("a pod that moves its address to a bridge of its own")
            .pod(Pod::with("shop/a", Device::veth("eth0")).known_as(&["10.244.7.2"])
                .device(Device::bridge("br0").ip("10.244.7.2/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24")),
        routed("a store of an earlier pod network, which nobody gives addresses out of", "calico", Some("calico-ipam"))
            .pod(Pod::with("shop/a", Device::routed("eth0", "cali0a1b2c3d4e5").ip("10.244.64.2/32")))
            .earlier_store(&["10.32.0.2", "10.32.0.3", "10.32.0.4"]),
        // Calico 3.32: its allocation is the machine's, of no pod in particular.
        routed("Calico: a virtual machine that is stopped keeps its address", "calico", Some("calico-ipam"))
            .network(network("calico", Some("calico-ipam")).stored("calico", "ipamblocks"))
            .pod(Pod::with("shop/a", Device::routed("eth0", "cali0a1b2c3d4e5").ip("10.244.64.2/32")))
            .reserved("10.244.64.9", "", 864_000)
            .recorded("it takes Calico's resources"),
        routed("Calico: a virtual machine's address outlives the pod that ran it", "calico", Some("calico-ipam"))
            .pod(Pod::with("shop/a", Device::routed("eth0", "cali0a1b2c3d4e5").ip("10.244.64.1/32")))
            .shell(&blocks(r#"{"handle_id":"k8s-pod-network.vmi.vms.vm1","secondary":{"node":"worker-1","namespace":"vms","pod":"virt-launcher-vm1","timestamp":"2026-01-01T00:00:00Z"}}"#))
            .silent("leaked-reservation")
            .real("Calico's resources are read from the API server"),
        five("the range is full, and so is the node: five pods, and maxPods is five").shell(
            "mkdir -p /var/lib/kubelet; printf 'kind: KubeletConfiguration\nmaxPods: 5\n' > /var/lib/kubelet/config.yaml",
        )
        .quiet(),
        row("the tool in an unprivileged container, among healthy pods")
            .pod(Pod::new("shop/a", "10.244.7.2/24"))
            .pod(Pod::new("shop/b", "10.244.7.3/24").systemd())
            .explains("10.244.7.2", &["shop", "Running"])
            .tool_in("/kubepods/besteffort/pod00000000-0000-4000-8000-00000000000f/aaaa"),
        row("two hundred pods")
            .pods((2..=201).map(|last| {
                let address: &'static str = Box::leak(format!("10.244.7.{last}/24").into_boxed_str());
                Pod::new(&format!("shop/web-{last}"), address)
            }))
            .recorded("it takes its time"),
    ]
}

/// Writes Calico's block, whose third address has this attribute, to where the
/// API server has it.
fn blocks(attribute: &str) -> String {
    let list = format!(
        r#"{{"kind":"IPAMBlockList","metadata":{{}},"items":[{{"metadata":{{"name":"10-244-64-0-30"}},"spec":{{"cidr":"10.244.64.0/30","affinity":"host:worker-1","allocations":[null,null,0,null],"attributes":[{attribute}]}}}}]}}"#
    );
    let folder = "/run/zoo/api/apis/crd.projectcalico.org/v1";
    format!("mkdir -p {folder}; printf '%s' '{list}' > {folder}/ipamblocks")
}

/// A node with a range of five addresses, all of which pods have.
pub(super) fn five(name: &'static str) -> Situation {
    Situation::new(name)
        .network(BRIDGE.range("10.244.7.0/29"))
        .pod(Pod::new("shop/a", "10.244.7.2/29"))
        .pod(Pod::new("shop/b", "10.244.7.3/29"))
        .pod(Pod::new("shop/c", "10.244.7.4/29"))
        .pod(Pod::new("shop/d", "10.244.7.5/29"))
        .pod(Pod::new("shop/e", "10.244.7.6/29"))
        .real("ranges and maxPods are read from the node's files")
}

/// A virtual machine's pod: the cable has lost its address to a dummy.
pub(super) fn kubevirt(name: &str, address: &'static str, known: &str) -> Pod {
    let mut pod = Pod::with(name, Device::veth("eth0-nic")).known_as(&[known]);
    pod.devices[0].master = Some("k6t-eth0");
    pod.devices.push(Device::dummy("eth0").ip(address));
    // A port is made after its bridge.
    pod.devices
        .insert(0, Device::bridge("k6t-eth0").ip("169.254.75.10/32"));
    pod.task(Task::new("qemu-kvm"))
}

/// Addresses that several have, and may have.
fn addresses() -> Vec<Situation> {
    let vlan = |name, parent| Device::on("vlan", name, parent);
    vec![
        row("kube-proxy with IPVS: service addresses on a dummy, nodelocaldns with one of them")
            .host(Device::dummy("kube-ipvs0").ip("10.96.0.1/32").ip("10.96.0.10/32"))
            .host(Device::dummy("nodelocaldns").ip("169.254.20.10/32").ip("10.96.0.10/32"))
            .pod(Pod::new("shop/a", "10.244.7.2/24")),
        row("MetalLB and kube-vip: an address for services on the uplink and on kube-ipvs0")
            .host(Device::dummy("kube-ipvs0").ip("203.0.113.7/32"))
            .shell("ip addr add 203.0.113.7/32 dev ens3")
            .pod(Pod::new("shop/a", "10.244.7.2/24")),
        row("keepalived in a pod holds a virtual address, and the node another one")
            .pod(Pod::with("infra/keepalived", Device::veth("eth0").ip("10.244.7.2/24").ip("203.0.113.8/32")).known_as(&["10.244.7.2"]))
            .shell("ip addr add 203.0.113.9/32 dev ens3")
            .pod(Pod::new("shop/a", "10.244.7.3/24")),
        row("direct return: every backend has the virtual address on lo")
            .pod(Pod::new("shop/a", "10.244.7.2/24"))
            .pod(Pod::new("shop/b", "10.244.7.3/24"))
            .shell("nsenter --net={shop/a} ip addr add 203.0.113.10/32 dev lo")
            .shell("nsenter --net={shop/b} ip addr add 203.0.113.10/32 dev lo")
            .real("the survey leaves lo out"),
        row("direct return: every backend has the virtual address on a dummy")
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(Device::dummy("vip0").ip("203.0.113.10/32")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(Device::dummy("vip0").ip("203.0.113.10/32"))),
        row("Multus: net1 of two pods on different uplinks, one address")
            .host(Device::uplink("ens4").ip("198.51.100.10/24"))
            .host(Device::uplink("ens5").ip("198.51.100.11/24"))
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(Device::on("macvlan", "net1", "ens4").ip("192.168.50.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(Device::on("macvlan", "net1", "ens5").ip("192.168.50.5/24"))),
        row("Multus: net1 of two pods on different VLANs of one uplink, one address")
            .host(vlan("ens3.101", "ens3"))
            .host(vlan("ens3.102", "ens3"))
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(Device::on("macvlan", "net1", "ens3.101").ip("192.168.50.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(Device::on("macvlan", "net1", "ens3.102").ip("192.168.50.5/24"))),
        row("Multus: net1 of two pods on two bridges, one address")
            .host(Device::bridge("br-a"))
            .host(Device::bridge("br-b"))
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(second("br-a").ip("192.168.50.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(second("br-b").ip("192.168.50.5/24"))),
        row("ipvlan: pods share the uplink's MAC address, not its address")
            .pod(Pod::with("shop/a", Device::on("ipvlan", "eth0", "ens3").ip("192.0.2.31/24")))
            .pod(Pod::with("shop/b", Device::on("ipvlan", "eth0", "ens3").ip("192.0.2.32/24"))),
        row("macvlan: pods on the uplink's network, addresses by DHCP")
            .network(network("macvlan", Some("dhcp")))
            .pod(Pod::with("shop/a", Device::on("macvlan", "eth0", "ens3").ip("192.0.2.31/24")))
            .pod(Pod::with("shop/b", Device::on("macvlan", "eth0", "ens3").ip("192.0.2.32/24"))),
        row("SR-IOV: virtual functions in pods")
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(Device::uplink("net1").ip("198.51.100.31/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(Device::uplink("net1").ip("198.51.100.32/24")))
            .recorded("it takes hardware"),
        row("VRF: two routing tables of the node, and pods of each with one address")
            .host(Device::of("vrf", "red"))
            .host(Device::of("vrf", "blue"))
            .host(Device { master: Some("red"), ..Device::bridge("br-red").ip("192.168.60.1/24") })
            .host(Device { master: Some("blue"), ..Device::bridge("br-blue").ip("192.168.60.1/24") })
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(second("br-red").ip("192.168.60.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(second("br-blue").ip("192.168.60.5/24"))),
        row("direct return: backends have the virtual address on lo, the node has it on its uplink")
            .pod(Pod::new("shop/a", "10.244.7.2/24"))
            .pod(Pod::new("shop/b", "10.244.7.3/24"))
            .shell("for n in {shop/a} {shop/b}; do nsenter --net=$n ip addr add 203.0.113.10/32 dev lo; done")
            .shell("ip addr add 203.0.113.10/32 dev ens3; ip addr add 203.0.113.11/32 dev lo")
            .real("the survey leaves lo out"),
        row("kube-router: direct return by a tunnel device in every backend, and a dummy on the node")
            .host(Device::dummy("kube-dummy-if").ip("203.0.113.10/32"))
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(Device::of("ipip", "kube-tunnel-if").ip("203.0.113.10/32")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(Device::of("ipip", "kube-tunnel-if").ip("203.0.113.10/32"))),
        routed("Cilium with netkit: pods behind pairs that are routed", "cilium-cni", None)
            .pod(Pod::with("shop/a", Device::netkit("eth0", "lxc0123456789ab").ip("10.0.1.5/32")))
            .pod(Pod::with("shop/b", Device::netkit("eth0", "lxc1123456789ab").ip("10.0.1.6/32"))),
        row("two pods with the same address in a VPN: both sides are tunnels")
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(Device::of("wireguard", "wg0").ip("10.9.0.2/32")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(Device::of("wireguard", "wg0").ip("10.9.0.2/32"))),
        row("two pods with the same address in a VPN, by taps")
            .pod(Pod::new("shop/a", "10.244.7.2/24"))
            .pod(Pod::new("shop/b", "10.244.7.3/24"))
            .shell("for n in {shop/a} {shop/b}; do nsenter --net=$n ip tuntap add dev tun0 mode tun; nsenter --net=$n ip addr add 10.9.0.2/24 dev tun0; nsenter --net=$n ip link set tun0 up; done")
            .real("the kind of a tun device is the kernel's to tell"),
        row("docker in docker: inner containers of two pods have one address")
            .pod(Pod::new("ci/runner-a", "10.244.7.2/24").device(Device::bridge("docker0").ip("172.17.0.1/16")))
            .pod(Pod::new("ci/runner-b", "10.244.7.3/24").device(Device::bridge("docker0").ip("172.17.0.1/16")))
            .shell(&nested("ci/runner-a", "a"))
            .shell(&nested("ci/runner-b", "b"))
            .real("containers within pods are told by their cgroups"),
    ]
}

/// A container inside a pod, on the pod's own docker0, in a cgroup below it.
fn nested(pod: &str, letter: &str) -> String {
    let id = letter.repeat(64);
    format!(
        "n={{{pod}}}; touch /tmp/in-{letter}; unshare --net=/tmp/in-{letter} ip link set lo up; \
         nsenter --net=$n ip link add v{letter} type veth peer name eth0 netns /tmp/in-{letter}; \
         nsenter --net=$n ip link set v{letter} master docker0 up; \
         nsenter --net=/tmp/in-{letter} ip addr add 172.17.0.2/16 dev eth0; \
         nsenter --net=/tmp/in-{letter} ip link set eth0 up; \
         enter {{cgroup {pod}}}/docker/{id} /tmp/in-{letter} inner{letter}; \
         settled inner{letter} 1; umount /tmp/in-{letter}"
    )
}

/// A second interface on a bridge of the node.
pub(super) fn second(bridge: &'static str) -> Device {
    Device {
        attached: Some("second"),
        ..Device::veth("net1").to(bridge)
    }
}

/// Namespaces that are not kubelet's.
fn strangers() -> Vec<Situation> {
    let tap = |address| Device::of("veth", "tap0").ip(address);
    let busy = || row("").pod(Pod::new("shop/a", "10.244.7.2/24"));
    let named = |name: &'static str| Situation { name, ..busy() };
    vec![
        named("podman: rootful containers on podman0, and two rootless ones with 10.0.2.100 each")
            .host(Device::bridge("podman0").ip("10.88.0.1/16"))
            .other(
                Other::at("p1", "/run/netns/netns-0f5e7a52-0001")
                    .task("nginx")
                    .device(Device::veth("eth0").to("podman0").ip("10.88.0.2/16")),
            )
            .other(Other::of("r1", "slirp1").device(tap("10.0.2.100/24")))
            .other(Other::of("r2", "slirp2").device(tap("10.0.2.100/24"))),
        named("buildkit: namespaces in its pool, mounted, with addresses, nothing in them")
            .host(Device::bridge("buildkit0").ip("10.10.0.1/16"))
            .other(
                Other::at("b1", "/var/lib/buildkit/net/cni/0a1b2c")
                    .device(Device::veth("eth0").to("buildkit0").ip("10.10.0.2/16")),
            )
            .other(
                Other::at("b2", "/var/lib/buildkit/net/cni/1a1b2c")
                    .device(Device::veth("eth0").to("buildkit0").ip("10.10.0.3/16")),
            ),
        named("docker beside Kubernetes")
            .host(Device::bridge("docker0").ip("172.17.0.1/16"))
            .other(
                Other::at("d1", "/run/docker/netns/0a1b2c3d4e5f")
                    .task("registry")
                    .device(Device::veth("eth0").to("docker0").ip("172.17.0.2/16"))
                    .cgroup(
                        "/docker/0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b",
                    ),
            ),
        named("containerlab: two labs, each with its own 172.20.20.2, and no pod in either")
            .host(Device::bridge("br-lab1"))
            .host(Device::bridge("br-lab2"))
            .other(
                Other::at("l1", "/run/netns/clab-one-leaf1")
                    .task("bgpd")
                    .device(Device::veth("eth0").to("br-lab1").ip("172.20.20.2/24")),
            )
            .other(
                Other::at("l2", "/run/netns/clab-two-leaf1")
                    .task("bgpd")
                    .device(Device::veth("eth0").to("br-lab2").ip("172.20.20.2/24")),
            ),
        named("OpenStack: routers and DHCP servers of tenants with the same networks")
            .host(Device::bridge("qbr-one"))
            .host(Device::bridge("qbr-two"))
            .other(
                Other::at(
                    "q1",
                    "/run/netns/qrouter-0f5e7a52-0001-4000-8000-000000000001",
                )
                .device(Device::veth("qr-1").to("qbr-one").ip("192.168.0.1/24")),
            )
            .other(
                Other::at(
                    "q2",
                    "/run/netns/qrouter-0f5e7a52-0002-4000-8000-000000000002",
                )
                .device(Device::veth("qr-2").to("qbr-two").ip("192.168.0.1/24")),
            )
            .other(
                Other::at(
                    "q3",
                    "/run/netns/qdhcp-0f5e7a52-0003-4000-8000-000000000003",
                )
                .task("dnsmasq")
                .device(Device::veth("tap1").to("qbr-one").ip("192.168.0.2/24")),
            )
            .other(
                Other::at(
                    "q4",
                    "/run/netns/qdhcp-0f5e7a52-0004-4000-8000-000000000004",
                )
                .task("dnsmasq")
                .device(Device::veth("tap2").to("qbr-two").ip("192.168.0.2/24")),
            ),
        named("OpenStack with OVN: metadata namespaces of tenants with the same networks")
            .host(Device::of("openvswitch", "ovs-system"))
            .other(Other::at("m1", "/run/netns/ovnmeta-0f5e7a52-0001-4000-8000-000000000001").task("haproxy").device(second("ovs-system").ip("169.254.169.254/32").ip("192.168.0.2/24")))
            .other(Other::at("m2", "/run/netns/ovnmeta-0f5e7a52-0002-4000-8000-000000000002").task("haproxy").device(second("ovs-system").ip("169.254.169.254/32").ip("192.168.0.2/24"))),
        named("nerdctl and podman by CNI: containers that libcni has, and no runtime of Kubernetes")
            .host(Device::bridge("nerdctl0").ip("10.4.0.1/24"))
            .other(Other::at("nc", "/run/netns/cni-5f0c1a2b-0001-4000-8000-000000000001").task("nginx").cgroup(&format!("/default/{}", digits("nc", 64)))
                .cached("bridge", &digits("nc", 64))
                .device(Device::veth("eth0").to("nerdctl0").ip("10.4.0.5/24")))
            .other(Other::at("pc", "/run/netns/cni-5f0c1a2b-0002-4000-8000-000000000002").task("redis").cgroup(&format!("/machine.slice/libpod-{}.scope", digits("pc", 64)))
                .cached("podman", &digits("pc", 64))
                .device(Device::veth("eth0").to("nerdctl0").ip("10.4.0.6/24"))),
        named("two namespaces without any pod, joined to nothing, with one address")
            .other(
                Other::at("n1", "/run/netns/test-a")
                    .device(Device::of("veth", "v0").ip("10.99.0.1/24")),
            )
            .other(
                Other::at("n2", "/run/netns/test-b")
                    .device(Device::of("veth", "v0").ip("10.99.0.1/24")),
            ),
        named("a service with PrivateNetwork= and a VPN's namespace")
            .other(Other::of("private", "daemon"))
            .other(
                Other::at("vpn", "/run/netns/vpn")
                    .task("openvpn")
                    .device(Device::of("veth", "uplink").ip("10.8.0.2/24")),
            ),
        named("a person's namespace with the address of a pod, on no network of the node").other(
            Other::at("mine", "/run/netns/mine")
                .device(Device::of("veth", "v0").ip("10.244.7.2/24")),
        ),
        named("kind: a kubelet inside of a container, whose pods have addresses of their own")
            .other(nested_kubelet("kind-a", "/docker/{id}/kubelet/kubepods/besteffort/pod{uid}/{pod}", "10.244.9.5/24"))
            .other(nested_kubelet("kind-b", "/docker/{id}/kubelet/kubepods/besteffort/pod{uid}/{pod}", "10.244.9.5/24"))
            .may("blocked-task")
            .real(BY_CGROUP),
        named("k3d: a kubelet inside of a container, with the address of a pod of this node")
            .other(nested_kubelet("k3d-a", "/docker/{id}/kubepods/besteffort/pod{uid}/{pod}", "10.244.7.2/24"))
            .may("blocked-task")
            .real(BY_CGROUP),
        named("kind with the systemd driver, and by podman")
            .other(nested_kubelet("kind-c", "/docker/{id}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{uid_}.slice/cri-containerd-{pod}.scope", "10.244.7.2/24"))
            .other(nested_kubelet("kind-d", "/system.slice/docker-{id}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{uid_}.slice/cri-containerd-{pod}.scope", "10.244.7.2/24"))
            .other(nested_kubelet("kind-e", "/machine.slice/libpod-{id}.scope/container/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{uid_}.slice/cri-containerd-{pod}.scope", "10.244.7.2/24"))
            .may("blocked-task")
            .real(BY_CGROUP),
        named("a kubelet inside of an LXC container")
            .other(nested_kubelet("lxc-a", "/lxc.payload.k8s-one/kubepods/besteffort/pod{uid}/{pod}", "10.244.7.2/24"))
            .other(nested_kubelet("lxc-b", "/lxc.payload.k8s-two/kubepods/besteffort/pod{uid}/{pod}", "10.244.7.2/24"))
            .may("blocked-task")
            .real(BY_CGROUP),
        row("kind inside of two pods, as CI does: inner pods with one address")
            .pod(Pod::new("ci/prow-a", "10.244.7.2/24").device(Device::bridge("docker0").ip("172.17.0.1/16")))
            .pod(Pod::new("ci/prow-b", "10.244.7.3/24").device(Device::bridge("docker0").ip("172.17.0.1/16")))
            .shell(&kind_in_pod("ci/prow-a", "a"))
            .shell(&kind_in_pod("ci/prow-b", "b"))
            .real(BY_CGROUP),
    ]
}

/// A pod of a kubelet that runs inside of a container of this node: it is
/// joined to that node's bridge, which is in the container's namespace.
fn nested_kubelet(label: &'static str, cgroup: &str, address: &'static str) -> Other {
    let uid = "0f5e7a52-0001-4000-8000-00000000000a";
    let cgroup = cgroup
        .replace("{id}", &digits(label, 64))
        .replace("{pod}", &digits(&format!("pod {label}"), 64))
        .replace("{uid}", uid)
        .replace("{uid_}", &uid.replace('-', "_"));
    // Of a pod of this node that no list has, this would be a ghost's.
    Other::of(label, "nestedpause")
        .stuck("inner", 300)
        .cgroup(&cgroup)
        .device(Device::of("veth", "eth0").ip(address))
}

/// Why a row can only be staged.
const BY_CGROUP: &str = "pods of others are told by their cgroups";

/// A pod of a kubelet that runs inside of a pod.
fn kind_in_pod(pod: &str, letter: &str) -> String {
    let docker = letter.repeat(64);
    let inner = digits(letter, 64);
    let uid = "0f5e7a52-0001-4000-8000-00000000000a";
    let below = format!("/docker/{docker}/kubelet/kubepods/besteffort/pod{uid}/{inner}");
    nested(pod, letter).replace(&format!("/docker/{docker}"), &below)
}

/// Pods that come and go as they should.
fn ends() -> Vec<Situation> {
    let other = || Pod::new("shop/other", "10.244.7.9/24");
    let terminating =
        |seconds| Pod::new("shop/a", "10.244.7.2/24").listed(Listed::Terminating(seconds));
    vec![
        row("Jobs: completed pods whose sandboxes wait for kubelet's garbage collection")
            .pod(other())
            .pod(completed("jobs/one", "Succeeded"))
            .pod(completed("jobs/two", "Succeeded"))
            .pod(completed("jobs/three", "Failed")),
        row("a pod in ordinary deletion").pod(other()).pod(terminating(5)),
        row("kubelet is down: a pod is Terminating for an hour and runs").pod(other()).pod(terminating(3600)),
        row("Terminating for an hour: a task hangs, and the pod is there")
            .pod(other())
            .pod(Pod::new("shop/a", "10.244.7.2/24").listed(Listed::Terminating(3600)).stuck("dd", 3600))
            .may("ghost-sandbox")
            .may("blocked-task"),
        row("a pod is being evicted: it has Failed already, and its containers are being stopped")
            .pod(other())
            .pod(Pod::new("shop/evicted", "10.244.7.2/24").listed(Listed::As("Failed")).unfinished()),
        row("a static pod whose mirror is missing in the API")
            .pod(other())
            .pod(static_pod())
            .watched(&[300, 120]),
        row("the node was lost for a while: its pods are in phase Unknown")
            .pod(Pod::new("shop/a", "10.244.7.2/24").listed(Listed::As("Unknown")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").listed(Listed::As("Unknown"))),
        row("preemption: the victim terminates, the preemptor waits for it")
            .pod(terminating(10))
            .pod(other()),
        row("forced deletion, within the pod's own terminationGracePeriodSeconds")
            .pod(other())
            .pod(Pod::new("shop/slow", "10.244.7.2/24").grace(600).deleted(60))
            .watched(&[120, 90, 50]),
        row("forced deletion, a moment ago")
            .pod(other())
            .pod(Pod::new("shop/a", "10.244.7.2/24").deleted(5))
            .watched(&[60, 10]),
        row("rolling update: the old pod is gone, its sandbox is being taken down, the new one has another address")
            .pod(other())
            .pod(Pod::new("shop/web", "10.244.7.2/24").earlier().deleted(4).in_cri(InCri::NotReady).empty())
            .pod(Pod::new("shop/web", "10.244.7.3/24").age(10))
            .watched(&[20]),
        row("reboot: sandboxes of before are NotReady, their reservations wait for kubelet")
            .pod(Pod::new("shop/a", "10.244.7.5/24").age(60))
            .pod(before_boot("shop/a", "10.244.7.2/24"))
            .pod(before_boot("shop/b", "10.244.7.3/24").earlier_sandbox()),
        row("live migration: the source has completed, its sandbox is NotReady")
            .pod(other())
            .pod(Pod::new("vms/virt-launcher-vm1-src", "10.244.7.2/24").listed(Listed::As("Succeeded")).in_cri(InCri::NotReady).empty()
                    .finished(10).age(20))
            .recorded("the namespace lives for a moment only"),
        row("a pod is just being started: sandbox and address are there, the API has no address yet")
            .pod(other())
            .pod(Pod::new("shop/new", "10.244.7.2/24").age(2).listed(Listed::As("Pending"))),
        row("a list in a file of an hour ago, and a pod that was made and got stuck since")
            .api(Api::File(&[]))
            .pod(other())
            .pod(Pod::new("shop/new", "10.244.7.2/24").age(600).gone().stuck("dd", 300))
            .may("blocked-task")
            .silent("ghost-sandbox")
            .list_age(3600),
        row("a sandbox of a pod that the list is too old for")
            .api(Api::File(&[]))
            .pod(other())
            .pod(Pod::new("shop/new", "10.244.7.2/24").age(0).gone()),
    ]
}

/// A static pod with a namespace of its own, which kubelet has not told the API of.
fn static_pod() -> Pod {
    let mut pod = Pod::new("kube-system/proxy-worker-1", "10.244.7.8/24").gone();
    // kubelet's own hash of the manifest, by which its cgroup is named.
    pod.uid = "6f3a1c0de5f3a1c0de5f3a1c0de5f3a1".to_owned();
    pod
}

/// A pod that has run to its end: nothing of it is on the node but what the
/// runtime remembers.
fn completed(name: &str, phase: &'static str) -> Pod {
    let mut pod = Pod::new(name, "10.244.7.66/24")
        .listed(Listed::As(phase))
        .in_cri(InCri::NotReady);
    pod.ips.clear();
    pod.uncached().unreserved().empty().unspaced()
}

/// A sandbox of before a reboot: its pod lives and has another one by now.
fn before_boot(name: &str, address: &'static str) -> Pod {
    Pod::new(name, address)
        .earlier_sandbox()
        .in_cri(InCri::NotReady)
        .empty()
        .age(86_400)
        .unspaced()
}

/// Sources that are missing, or know only a part.
fn sources() -> Vec<Situation> {
    let two = |name| {
        row(name)
            .pod(Pod::new("shop/a", "10.244.7.2/24"))
            .pod(Pod::new("payments/b", "10.244.7.3/24"))
    };
    vec![
        two("the API server does not answer").api(Api::Failed).silent("ghost-sandbox").unknown(&["pod list", "whether a pod", "API server"]),
        two("nobody lists pods").api(Api::None).silent("ghost-sandbox").unknown(&["pod list", "whether a pod", "pods"]),
        two("the runtime does not answer").without(Source::Cri),
        two("libcni has no cache").without(Source::Cache),
        two("nothing but the kernel and a list of pods").without(Source::Cri).without(Source::Cache).without(Source::Store),
        two("nothing but the kernel").without(Source::Cri).without(Source::Cache).without(Source::Store).api(Api::None).silent("ghost-sandbox"),
        two("a list of one Kubernetes namespace").api(Api::File(&["shop"])).silent("ghost-sandbox"),
        row("a list of one Kubernetes namespace, one sandbox of another")
            .pod(Pod::new("shop/a", "10.244.7.2/24"))
            .pod(Pod::new("payments/b", "10.244.7.3/24").age(3600).stuck("dd", 300))
            .explains("10.244.7.3", &["payments", "dd"])
            .api(Api::File(&["shop"]))
            .silent("ghost-sandbox")
            .may("blocked-task")
            .unknown(&["payments", "namespaces", "not on the list"]),
        row("a list of one Kubernetes namespace, four sandboxes of others, one of them stuck")
            .pod(Pod::new("shop/a", "10.244.7.2/24"))
            .pod(Pod::new("payments/b", "10.244.7.3/24").stuck("dd", 300))
            .pod(Pod::new("payments/c", "10.244.7.4/24"))
            .pod(Pod::new("infra/d", "10.244.7.5/24"))
            .pod(Pod::new("infra/e", "10.244.7.6/24"))
            .api(Api::File(&["shop"]))
            .silent("ghost-sandbox")
            .may("blocked-task")
            .unknown(&["payments", "namespaces", "not on the list"]),
        row("a list that has the Kubernetes namespace, and no pod of this node")
            .pod(Pod::new("shop/a", "10.244.7.2/24").gone().stuck("dd", 300))
            .pod(Pod::new("shop/b", "10.244.9.3/24").elsewhere())
            .api(Api::File(&[]))
            .list_node("worker-2")
            .silent("ghost-sandbox")
            .may("blocked-task")
            .unknown(&["this node", "worker-1", "pod list", "whether a pod"]),
        row("a file with one pod alone is no list")
            .pod(Pod::new("shop/a", "10.244.7.2/24"))
            .pod(Pod::new("shop/b", "10.244.7.3/24").stuck("dd", 300))
            .api(Api::Single("shop/a"))
            .silent("ghost-sandbox")
            .may("blocked-task")
            .real("a recording does not have the file"),
        row("the runtime has just been started and lists nothing")
            .pod(Pod::new("shop/a", "10.244.7.2/24").in_cri(InCri::Gone))
            .pod(Pod::new("shop/b", "10.244.7.3/24").in_cri(InCri::Gone)),
        row("the runtime has just been started and lists nothing, and nobody lists pods")
            .pod(Pod::new("shop/a", "10.244.7.2/24").in_cri(InCri::Gone))
            .pod(Pod::new("shop/b", "10.244.7.3/24").in_cri(InCri::Gone))
            .api(Api::None)
            .silent("ghost-sandbox"),
        row("a reservation of a moment ago, whose sandbox is not there yet")
            .pod(Pod::new("shop/a", "10.244.7.2/24"))
            .reserved("10.244.7.50", &digits("in the making", 64), 5),
        row("a list of another node's or cluster's pods proves nothing")
            .pod(Pod::new("shop/a", "10.244.7.2/24").gone().stuck("dd", 300))
            .api(Api::File(&["elsewhere"]))
            .silent("ghost-sandbox")
            .may("blocked-task"),
        row("a pod that is stuck and lives is no ghost, and its name stays out of it")
            .pod(Pod::new("shop/a", "10.244.7.2/24").stuck("dd", 300))
            .silent("ghost-sandbox")
            .may("blocked-task"),
        row("tasks that are frozen are not stuck")
            .pod(Pod::new("shop/a", "10.244.7.2/24"))
            .shell("mkdir /tmp/fz; mount -t cgroup -o freezer none /tmp/fz; F=/tmp/fz/$TOP/zoo; mkdir -p $F")
            .shell("for p in $(grep -lx app /proc/[0-9]*/comm | cut -d/ -f3); do echo $p > $F/cgroup.procs; done")
            // Who is frozen cannot be killed.
            .shell("trap 'echo THAWED > $F/freezer.state; echo END' EXIT; echo FROZEN > $F/freezer.state; sleep 0.1")
            .stall("50ms")
            .real("it is about what the kernel shows of a task"),
        row("who waits for a child of vfork is not stuck")
            .pod(Pod::new("shop/a", "10.244.7.2/24"))
            .shell("(echo 0 > /sys/fs/cgroup{cgroup shop/a}/cgroup.procs; exec nsenter --net={shop/a} /run/zoo/self stage-helper vfork parent /run/hang/hang) </dev/null >/dev/null 2>&1 &")
            .shell("settled parent 2; sleep 0.1")
            .stall("50ms")
            .real("it is about what the kernel shows of a task"),
    ]
}
