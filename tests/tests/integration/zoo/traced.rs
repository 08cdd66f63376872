//! Whole nodes, under `trace`: much at once, and what comes while it watches.

use super::expect::finds;
use super::healthy::second;
use super::situation::{Device, InCri, Other, Pod, Situation, Source, Task};
use super::users;

/// All rows. Each takes seconds.
pub(super) fn rows() -> Vec<Situation> {
    let shared = |name| {
        Situation::new(name)
            .host(Device::uplink("ens4").ip("198.51.100.10/24"))
            .host(Device::uplink("ens5").ip("198.51.100.11/24"))
            .host(Device::bridge("br-a"))
            .host(Device::bridge("br-b"))
            .pod(
                Pod::new("shop/web", "10.244.7.2/24")
                    .task(Task::new("envoy"))
                    .device(Device::on("macvlan", "net1", "ens4").ip("192.168.50.5/24")),
            )
            .pod(
                Pod::new("shop/api", "10.244.7.3/24")
                    .device(Device::on("macvlan", "net1", "ens5").ip("192.168.50.5/24")),
            )
            .pod(
                Pod::new("vms/virt-launcher-a", "10.244.7.4/24")
                    .device(Device::bridge("k6t-eth0").ip("10.0.2.1/24")),
            )
            .pod(
                Pod::new("vms/virt-launcher-b", "10.244.7.5/24")
                    .device(Device::bridge("k6t-eth0").ip("10.0.2.1/24")),
            )
            .other(
                Other::at("q1", "/run/netns/qrouter-one")
                    .device(second("br-a").ip("192.168.0.1/24")),
            )
            .other(
                Other::at("q2", "/run/netns/qrouter-two")
                    .device(second("br-b").ip("192.168.0.1/24")),
            )
            .other(Other::at("b1", "/var/lib/buildkit/net/cni/0a1b2c"))
    };
    let own = vec![
        shared("traced: much that is healthy, and a person's namespace that comes and goes")
            .later("ip netns add mine")
            .later("ip -n mine link add v0 type veth peer name v1")
            .later("ip -n mine addr add 10.244.7.2/24 dev v0")
            .later("ip -n mine link set v0 up")
            .later("sleep 1")
            .later("ip netns del mine")
            .quiet(),
        shared("traced: a ghost among much that is healthy, and its heir comes")
            .pod(
                Pod::new("shop/old", "10.244.7.66/24")
                    .gone()
                    .in_cri(InCri::NotReady)
                    .unreserved()
                    .stuck("dd", 300),
            )
            .pod(Pod::with("shop/new", Device::veth("eth0")).known_as(&["10.244.7.66"]))
            .without(Source::Cri)
            .later("nsenter --net={shop/new} ip addr add 10.244.7.66/24 dev eth0")
            .finds(
                finds("ghost-sandbox")
                    .critical()
                    .with("phase", "conflict")
                    .about("shop/old"),
            )
            .finds(
                finds("duplicate-address")
                    .critical()
                    .about("10.244.7.66")
                    .times(1),
            )
            .may("blocked-task")
            .never_advises(&["delete pod", "old"]),
    ];
    [own, users::traced()].concat()
}
