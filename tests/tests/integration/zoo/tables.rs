//! Nodes with more than the kernel's own rules, routes and neighbours: those that CNIs
//! keep on purpose, and what is left over among them.

use super::expect::finds;
use super::situation::{Api, Device, InCri, Other, Pod, Situation, network};

const WHY: &str = "rules and routes are the kernel's";
/// Ways out by both ENIs.
const WAYS: &str = "ip route add default via 192.0.2.1 dev ens3; \
    ip route add default via 192.0.3.1 dev ens4 table 2; \
    ip -6 route add default via fd00:2::1 dev ens3; \
    ip -6 route add default via fd00:3::1 dev ens4 table 2";
/// The rules of the pod below, as the AWS VPC CNI enters them.
const RULES: &str = "ip rule add to 10.0.1.5 lookup main pref 512; \
    ip rule add from 10.0.1.5 lookup 2 pref 1536; \
    ip -6 rule add to fd00:1::5 lookup main pref 512; \
    ip -6 rule add from fd00:1::5 lookup 2 pref 1536";

/// A node with two ENIs, the second one with a table of its own.
fn two_ways(name: &'static str, plugin: &'static str) -> Situation {
    let mut situation = Situation::new(name).network(network(plugin, None)).host(
        Device::uplink("ens4")
            .ip("192.0.3.10/24")
            .ip("fd00:3::10/64"),
    );
    situation.host[1].addresses.push("fd00:2::10/64");
    situation.host.remove(0);
    situation.real(WHY).shell(WAYS)
}

fn pod(end: &str) -> Pod {
    let device = Device::routed("eth0", end);
    Pod::with("shop/a", device.ip("10.0.1.5/32").ip("fd00:1::5/128"))
}

fn aws(name: &'static str) -> Situation {
    two_ways(name, "aws-cni")
        .pod(pod("eni0a1b2c3d4e5"))
        .shell(RULES)
}

/// Two pods whose second devices have one address, to which no route leads yet.
fn tenants(name: &'static str) -> Situation {
    let second = |end| Device {
        attached: Some("second"),
        ..Device::routed("net1", end).ip("10.50.0.5/32")
    };
    let one = pod("cali0a1b2c3d4e5").device(second("veth00000001"));
    let other = Device::routed("eth0", "cali1a1b2c3d4e5").ip("10.0.1.6/32");
    let other = Pod::with("shop/b", other).device(second("veth00000002"));
    let situation = two_ways(name, "calico").pod(one).pod(other);
    situation.shell("ip route del 10.50.0.5")
}

/// A pod that its node's lists have, and that runs on another one.
fn far(name: &str, address: &'static str) -> Pod {
    Pod::new(name, address).elsewhere().on("worker-2")
}

pub(super) fn healthy() -> Vec<Situation> {
    let rows = vec![
        aws("AWS: rules of pods, of an ENI's own address, for marks and external services")
            .shell("ip rule add fwmark 0x80/0x80 lookup main pref 1024; ip rule add to 10.9.0.7 lookup main pref 1535")
            .shell("ip rule add from 192.0.3.10 lookup 2 pref 32765; ip route add 192.0.3.1 dev ens4 table 2"),
        two_ways("AWS: a from-rule for each CIDR of the VPC, as older versions enter them", "aws-cni")
            .pod(pod("eni0a1b2c3d4e5"))
            .shell("ip rule add to 10.0.1.5 lookup main pref 512")
            .shell("for net in 10.0.0.0/16 10.1.0.0/16; do ip rule add from 10.0.1.5 to $net lookup 2 pref 1536; done"),
        two_ways("AWS: a branch ENI in strict mode, and the local rule at 20", "aws-cni")
            .pod(pod("vlan0a1b2c3d4e5"))
            .shell("ip route del 10.0.1.5 dev vlan0a1b2c3d4e5; ip route add 10.0.1.5 dev vlan0a1b2c3d4e5 table 2")
            .shell("for dev in ens4 vlan0a1b2c3d4e5; do ip rule add iif $dev lookup 2 pref 10; done")
            .shell("ip rule add lookup local pref 20; ip rule del pref 0"),
        two_ways("Terway: from-rules with and without the device, and an onlink way out", "terway")
            .pod(pod("cali0a1b2c3d4e5"))
            .shell("ip rule add to 10.0.1.5 lookup main pref 512; ip rule add from 10.0.1.5 lookup 2 pref 2048")
            .shell("ip -6 rule add from fd00:1::5 iif cali0a1b2c3d4e5 lookup 2 pref 2048"),
        two_ways("Cilium in ENI mode: rules of a pod and of its health endpoint", "cilium-cni")
            .pod(pod("lxc0123456789ab"))
            .other(Other::at("health", "/run/netns/cilium-health").task("cilium-health")
                .device(Device::routed("cilium", "lxc_health").ip("10.0.1.99/32")))
            .shell("for ip in 10.0.1.5 10.0.1.99; do ip rule add to $ip lookup main pref 20; ip rule add from $ip to 10.0.0.0/8 lookup 2 pref 111; done")
            .shell("ip rule add lookup local pref 100; ip rule del pref 0"),
        two_ways("OVN-Kubernetes: a pod behind two EgressServices, EgressIPs of pods of two nodes", "ovn-k8s-cni-overlay")
            .pod(pod("0a1b2c3d4e5f6a7"))
            .pod(far("shop/far", "10.0.2.7/24"))
            .shell("for table in main 2; do ip rule add from 10.0.1.5 lookup $table pref 5000; done")
            .shell("for ip in 10.0.1.5 10.0.2.7; do ip rule add from $ip lookup 2 pref 6000; done"),
        two_ways("Calico: blackholes and throws of its blocks, a borrowed address, WireGuard's rule", "calico")
            .pod(pod("cali0a1b2c3d4e5"))
            .pod(far("shop/far", "10.0.1.40/24"))
            .shell("ip rule add not fwmark 0x100000/0x100000 lookup 3 pref 99; ip route add throw 10.0.1.0/26 table 3")
            .shell("ip route add blackhole 10.0.1.0/26; ip -6 route add blackhole fd00:1::/122; ip route add 10.0.1.40 via 192.0.3.7 dev ens4"),
        two_ways("Spiderpool: an address of its second device is reached by the first one", "macvlan")
            .pod(pod("cali0a1b2c3d4e5").device(Device::routed("net1", "veth1a2b3c4d").ip("10.6.0.5/24")))
            .shell("MAC=$(nsenter --net={shop/a} ip -o link show eth0 | sed 's/.*ether \\([^ ]*\\).*/\\1/')")
            .shell("ip rule add lookup 500 pref 1000; ip route add 10.6.0.5 dev cali0a1b2c3d4e5 table 500")
            .shell("for ip in 10.0.1.5 10.6.0.5; do ip neigh replace $ip lladdr $MAC dev cali0a1b2c3d4e5 nud permanent; done"),
        tenants("Multus: net1 of two pods have one address, each in its tenant's table")
            .shell("for n in 1 2; do ip rule add iif veth0000000$n lookup 20$n pref 50; ip route add 10.50.0.5 dev veth0000000$n table 20$n; done"),
        two_ways("kube-proxy in IPVS mode, VPNs, and root's own second way for a pod", "calico")
            .pod(pod("cali0a1b2c3d4e5"))
            .host(Device::dummy("kube-ipvs0").ip("10.96.0.10/32"))
            .shell("ip rule add not fwmark 0xca6c lookup 51820 pref 5209; ip rule add lookup main suppress_prefixlength 0 pref 5208")
            .shell("ip rule add from 10.8.0.4 iif tun7 lookup 53 pref 5271; for table in 2 main; do ip rule add from 10.0.1.5 lookup $table pref 1000; done"),
    ];
    rows.into_iter().map(Situation::quiet).collect()
}

pub(super) fn sick() -> Vec<Situation> {
    let stale = || finds("stale-path").times(1);
    let duplicate = || finds("duplicate-address").times(1);
    vec![
        tenants("Multus: net1 of two pods have one address, and no route of the node leads there")
            .finds(duplicate().info().about("10.50.0.5"))
            .unknown(&["network"])
            .deletes_nobody(),
        tenants("Multus: net1 of two pods have one address in one table")
            .shell("for n in 1 2; do ip route add 10.50.0.5 dev veth0000000$n metric $n table 201; done; ip rule add lookup 201 pref 50")
            .finds(duplicate().critical().about("10.50.0.5"))
            .deletes_nobody(),
        two_ways("AWS: two pods behind branch ENIs, each with a table of its own, have one address", "aws-cni")
            .pod(pod("vlan0a1b2c3d4e5"))
            .pod(Pod::with("shop/b", Device::routed("eth0", "vlan1a1b2c3d4e5").ip("10.0.1.5/32")))
            .shell("ip route del 10.0.1.5; for n in 0 1; do ip rule add iif vlan${n}a1b2c3d4e5 lookup 10$n pref 10; ip route add 10.0.1.5 dev vlan${n}a1b2c3d4e5 table 10$n; done")
            .finds(duplicate().critical().about("10.0.1.5"))
            .may("stale-path"),
        aws("AWS: an earlier pod's from-rule leads the next holder out by the wrong ENI")
            .shell("ip rule del from 10.0.1.5 lookup 2 pref 1536")
            .shell("for table in main 2; do ip rule add from 10.0.1.5 lookup $table pref 1536; done")
            .finds(stale().critical().about("1536: from 10.0.1.5 lookup main").about("shop")),
        aws("AWS: the same with IPv6")
            .shell("ip -6 rule del from fd00:1::5 lookup 2 pref 1536")
            .shell("for table in main 2; do ip -6 rule add from fd00:1::5 lookup $table pref 1536; done")
            .finds(stale().critical().about("1536: from fd00:1::5 lookup main")),
        aws("a permanent neighbour has the MAC address of an earlier pod")
            .shell("ip neigh replace 10.0.1.5 lladdr 5e:00:00:00:00:99 dev eni0a1b2c3d4e5 nud permanent")
            .finds(stale().critical().about("5e:00:00:00:00:99")),
        aws("a permanent neighbour has an earlier pod's MAC address, with IPv6")
            .shell("ip neigh replace fd00:1::5 lladdr 5e:00:00:00:00:99 dev eni0a1b2c3d4e5 nud permanent")
            .finds(stale().critical().about("fd00:1::5 dev eni0a1b2c3d4e5")),
        aws("a route to a ghost's veth keeps the pod of another node from this one")
            .api(Api::File(&["shop"]))
            .pod(Pod::with("shop/old", Device::routed("eth0", "eni9a1b2c3d4e5").ip("10.0.1.9/32"))
                .gone().in_cri(InCri::NotReady).stuck("dd", 300))
            .pod(far("shop/new", "10.0.1.9/32"))
            .finds(stale().critical().about("10.0.1.9 dev eni9a1b2c3d4e5").about("worker-2"))
            .may("ghost-sandbox")
            .may("blocked-task")
            .may("missing-del"),
    ]
}
