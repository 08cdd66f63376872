//! Nodes on which something is wrong: it must be found, and told as it is.

use super::expect::finds;
use super::healthy::{five, kubevirt, second};
use super::situation::{Api, Device, InCri, Listed, Other, Pod, Situation, Source, network};
use super::tables;

pub(super) fn rows() -> Vec<Situation> {
    let all = [
        ghosts(),
        cgroups(),
        dues(),
        deletions(),
        duplicates(),
        order(),
        leftovers(),
        cables(),
        tables::sick(),
    ];
    all.concat()
}

fn row(name: &'static str) -> Situation {
    Situation::new(name)
}

/// A pod whose deletion was forced; a process in it hangs.
fn ghost(name: &str, address: &'static str) -> Pod {
    Pod::new(name, address)
        .gone()
        .in_cri(InCri::NotReady)
        .stuck("dd", 300)
}

/// Sandboxes that outlive their pods.
fn ghosts() -> Vec<Situation> {
    let other = || Pod::new("shop/other", "10.244.7.9/24");
    let conflict = |name| {
        row(name)
            .pod(other())
            .pod(ghost("shop/old", "10.244.7.2/24").unreserved())
            .pod(Pod::new("shop/new", "10.244.7.2/24").age(60))
            .finds(
                finds("ghost-sandbox")
                    .critical()
                    .with("phase", "conflict")
                    .about("shop/old")
                    .about("10.244.7.2"),
            )
            .finds(finds("duplicate-address").critical().about("10.244.7.2"))
            .may("blocked-task")
            .never_advises(&["delete pod", "old"])
    };
    vec![
        conflict("a ghost's address was given to the next pod")
            .explains("10.244.7.2", &["shop", "old", "new", "request_wait_answer"]),
        row("the tool in an unprivileged container, cgroupfs driver: a ghost and its heir are known by their cgroups")
            .pod(other())
            .pod(ghost("shop/old", "10.244.7.2/24").unreserved().uncached().in_cri(InCri::Gone))
            .pod(Pod::new("shop/new", "10.244.7.2/24").uncached())
            .without(Source::Cri)
            .without(Source::Cache)
            .finds(finds("ghost-sandbox").critical().with("phase", "conflict").about("10.244.7.2"))
            .finds(finds("duplicate-address").critical().about("shop/new"))
            .may("blocked-task")
            .tool_in("/kubepods/besteffort/pod00000000-0000-4000-8000-00000000000f/aaaa"),
        row("the tool in an unprivileged container, systemd driver: a ghost and its heir are known by their cgroups")
            .pod(other().systemd())
            .pod(ghost("shop/old", "10.244.7.2/24").unreserved().uncached().in_cri(InCri::Gone).systemd())
            .pod(Pod::new("shop/new", "10.244.7.2/24").uncached().systemd())
            .without(Source::Cri)
            .without(Source::Cache)
            .finds(finds("ghost-sandbox").critical().with("phase", "conflict").about("10.244.7.2"))
            .finds(finds("duplicate-address").critical().about("shop/new"))
            .may("blocked-task")
            .tool_in("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod00000000_0000_4000_8000_00000000000f.slice/cri-containerd-aaaa.scope"),
        conflict("the same without libcni's cache").without(Source::Cache),
        conflict("the same with a runtime that does not answer").without(Source::Cri),
        conflict("the same with three more sandboxes on the node")
            .pod(Pod::new("payments/a", "10.244.7.20/24"))
            .pod(Pod::new("payments/b", "10.244.7.21/24"))
            .pod(Pod::new("payments/c", "10.244.7.22/24")),
        conflict("the same by a list in a file that has this Kubernetes namespace").api(Api::File(&["shop"])),
        row("the same without any list: the kernel's truth, and no ghost")
            .api(Api::None)
            .pod(ghost("shop/old", "10.244.7.2/24").unreserved())
            .pod(Pod::new("shop/new", "10.244.7.2/24").age(60))
            .finds(finds("duplicate-address").about("10.244.7.2"))
            .silent("ghost-sandbox")
            .may("blocked-task")
            .unknown(&["pod list", "whether a pod", "API"])
            ,
        row("a ghost whose address is free in host-local's store")
            .pod(other())
            .pod(ghost("shop/old", "10.244.7.2/24").unreserved())
            .finds(finds("ghost-sandbox").critical().with("phase", "armed").about("shop/old"))
            .may("blocked-task")
            .may("missing-del")
            ,
        row("a ghost whose address stays reserved: a leak")
            .pod(other())
            .pod(ghost("shop/old", "10.244.7.2/24"))
            .finds(finds("ghost-sandbox").warning().with("phase", "suspected").without("due").about("shop/old"))
            .explains("shop/old", &["10.244.7.2", "dd", "request_wait_answer"])
            .may("blocked-task")
            ,
        row("gVisor: a ghost that has its address in the sentry only")
            .pod(other())
            .pod(Pod::with("shop/old", Device::veth("eth0")).known_as(&["10.244.7.2"]).gone().in_cri(InCri::NotReady).unreserved().stuck("runsc-sandbox", 300))
            .pod(Pod::new("shop/new", "10.244.7.2/24").age(60))
            .finds(finds("ghost-sandbox").critical().about("10.244.7.2").about("shop/old"))
            .may("duplicate-address")
            .may("blocked-task")
            ,
        row("KubeVirt: a ghost that has its address on a dummy")
            .pod(other())
            .pod(kubevirt("vms/virt-launcher-old", "10.244.7.2/24", "10.244.7.2").gone().in_cri(InCri::NotReady).unreserved().stuck("qemu-kvm", 300))
            .pod(Pod::new("shop/new", "10.244.7.2/24").age(60))
            .finds(finds("ghost-sandbox").critical().with("phase", "conflict").about("10.244.7.2"))
            .finds(finds("duplicate-address").critical().about("10.244.7.2"))
            .may("blocked-task")
            ,
        row("dual stack: of a ghost's addresses only the one of IPv6 was given away")
            .pod(other())
            .pod(Pod::with("shop/old", Device::veth("eth0").ip("10.244.7.2/24").ip("fd00:10:244:7::2/64")).gone().in_cri(InCri::NotReady).stuck("dd", 300).unreserved())
            .pod(Pod::with("shop/new", Device::veth("eth0").ip("10.244.7.3/24").ip("fd00:10:244:7::2/64")).age(60))
            .finds(finds("ghost-sandbox").critical().with("phase", "conflict").about("fd00:10:244:7::2"))
            .finds(finds("duplicate-address").critical().about("fd00:10:244:7::2").times(1))
            .may("blocked-task"),
        row("Multus: a ghost's net1 address was given to the next pod, eth0's was not")
            .pod(other())
            .pod(ghost("shop/old", "10.244.7.2/24").device(Device::on("macvlan", "net1", "ens3").ip("192.168.50.5/24")))
            .pod(Pod::new("shop/new", "10.244.7.3/24").device(Device::on("macvlan", "net1", "ens3").ip("192.168.50.5/24")).age(60))
            .finds(finds("ghost-sandbox").critical().with("phase", "conflict").about("shop/old"))
            .finds(finds("duplicate-address").about("192.168.50.5").times(1))
            .may("blocked-task"),
        row("Terminating for an hour, a task hangs, and its address was given to the next pod")
            .pod(other())
            .pod(Pod::new("shop/old", "10.244.7.2/24").listed(Listed::Terminating(3600)).unreserved().stuck("dd", 3600))
            .pod(Pod::new("shop/new", "10.244.7.2/24").age(60))
            .finds(finds("duplicate-address").critical().about("10.244.7.2").times(1))
            .may("ghost-sandbox")
            .may("blocked-task"),
        row("a ghost, and host-local's store cannot be read")
            .pod(other())
            .pod(ghost("shop/old", "10.244.7.2/24"))
            .without(Source::Store)
            .finds(finds("ghost-sandbox").with("phase", "suspected").without("due").about("shop/old"))
            .unknown(&["store", "reserved"])
            .may("blocked-task"),
        row("a StatefulSet's pod that came back while the old one hangs")
            .pod(other())
            .pod(ghost("shop/db-0", "10.244.7.2/24").earlier().unreserved())
            .pod(Pod::new("shop/db-0", "10.244.7.3/24").age(200))
            .finds(finds("ghost-sandbox").critical().with("phase", "armed").about("shop/db-0"))
            .may("blocked-task")
            .may("missing-del")
            .never_advises(&["delete pod", "db-0"])
            ,
        row("a sticky address: the pod of a StatefulSet came back with it while the old one hangs")
            .pod(other())
            .pod(ghost("shop/db-0", "10.244.7.2/24").earlier())
            .pod(Pod::new("shop/db-0", "10.244.7.2/24").age(200))
            .finds(finds("ghost-sandbox").critical().with("phase", "conflict").about("shop/db-0"))
            .finds(finds("duplicate-address").critical().about("10.244.7.2").times(1))
            .may("blocked-task")
            .never_advises(&["delete pod", "db-0"]),
        row("a sticky address: the living pod's older sandbox hangs and has it, too")
            .pod(other())
            .pod(Pod::new("shop/vm-0", "10.244.7.2/24").earlier_sandbox().in_cri(InCri::NotReady).stuck("dd", 300))
            .pod(Pod::new("shop/vm-0", "10.244.7.2/24").age(100))
            .finds(finds("duplicate-address").critical().about("10.244.7.2"))
            .may("ghost-sandbox")
            .may("blocked-task")
            ,
        row("a sticky address: the living pod's older sandbox is known by its cgroup alone")
            .pod(other())
            .pod(Pod::new("shop/vm-0", "10.244.7.2/24").earlier_sandbox().in_cri(InCri::Gone).uncached().stuck("dd", 300))
            .pod(Pod::new("shop/vm-0", "10.244.7.2/24").age(100))
            .finds(finds("duplicate-address").critical().about("10.244.7.2"))
            .may("ghost-sandbox")
            .may("blocked-task"),
    ]
}

/// A ghost and its heir that only their cgroups tell of, as kubelets and
/// runtimes name them.
fn cgroups() -> Vec<Situation> {
    let known = |name, folder: &str, scope: &str| {
        let pod = |mut pod: Pod| {
            let folder = folder.replace("{uid}", &pod.uid);
            let folder = folder.replace("{uid_}", &pod.uid.replace('-', "_"));
            pod.cgroup = Some(folder);
            pod.scope = scope.to_owned();
            pod.uncached().in_cri(InCri::Gone)
        };
        row(name)
            .without(Source::Cri)
            .without(Source::Cache)
            .pod(pod(Pod::new("shop/other", "10.244.7.9/24")))
            .pod(pod(ghost("shop/old", "10.244.7.2/24").unreserved()))
            .pod(pod(Pod::new("shop/new", "10.244.7.2/24")))
            .finds(
                finds("ghost-sandbox")
                    .critical()
                    .with("phase", "conflict")
                    .about("10.244.7.2"),
            )
            .finds(finds("duplicate-address").critical().about("shop/new"))
            .may("blocked-task")
            .real("cgroups are the kernel's")
    };
    vec![
        known(
            "by their cgroups: guaranteed, cgroupfs",
            "/kubepods/pod{uid}",
            "{id}",
        ),
        known(
            "by their cgroups: burstable, cgroupfs",
            "/kubepods/burstable/pod{uid}",
            "{id}",
        ),
        known(
            "by their cgroups: kubelet with a root of its own",
            "/reserved/pods/kubepods/burstable/pod{uid}",
            "{id}",
        ),
        known(
            "by their cgroups: CRI-O, systemd",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid_}.slice",
            "crio-{id}.scope",
        ),
        known(
            "by their cgroups: cri-dockerd, systemd",
            "/kubepods.slice/kubepods-pod{uid_}.slice",
            "docker-{id}.scope",
        ),
        known(
            "by their cgroups: containerd, systemd, kubelet with a root of its own",
            "/reserved.slice/reserved-kubepods.slice/reserved-kubepods-besteffort.slice/reserved-kubepods-besteffort-pod{uid_}.slice",
            "cri-containerd-{id}.scope",
        ),
        known(
            "by their cgroups: systemd inside of the container",
            "/kubepods/burstable/pod{uid}",
            "{id}/init.scope",
        ),
    ]
}

/// When the address can be handed out, by its IPAM.
fn dues() -> Vec<Situation> {
    let unknown = |name, plugin, ipam| {
        row(name)
            .network(network(plugin, ipam))
            .pod(Pod::new("shop/other", "10.244.7.9/24"))
            .pod(ghost("shop/old", "10.244.7.2/24"))
            .finds(
                finds("ghost-sandbox")
                    .with("phase", "suspected")
                    .without("due")
                    .about("shop/old"),
            )
            .may("blocked-task")
    };
    vec![
        unknown(
            "azure-vnet-ipam: nobody knows when it frees",
            "azure-vnet",
            Some("azure-vnet-ipam"),
        )
        .unknown(&["azure-vnet-ipam", "IPAM"]),
        unknown(
            "dhcp: the lease is the server's affair",
            "macvlan",
            Some("dhcp"),
        )
        .unknown(&["dhcp", "lease"]),
        unknown("static addresses are in no pool", "macvlan", Some("static"))
            .silent("leaked-reservation"),
        unknown("an IPAM of somebody's own", "acme-net", Some("acme-ipam"))
            .unknown(&["acme-ipam", "IPAM"]),
        unknown(
            "Calico, without rights on its blocks",
            "calico",
            Some("calico-ipam"),
        )
        .unknown(&["Calico", "block", "store of its IPAM"]),
        unknown("no configuration says which IPAM it is", "", None).unknown(&[
            "IPAM",
            "network",
            "configuration",
        ]),
        row("azure-vnet-ipam: a ghost's address was given to the next pod")
            .network(network("azure-vnet", Some("azure-vnet-ipam")))
            .pod(ghost("shop/old", "10.244.7.2/24"))
            .pod(Pod::new("shop/new", "10.244.7.2/24").age(60))
            .finds(
                finds("ghost-sandbox")
                    .critical()
                    .with("phase", "conflict")
                    .about("shop/old"),
            )
            .finds(finds("duplicate-address").critical().about("10.244.7.2"))
            .may("blocked-task"),
        row("Multus is the configured network, host-local that of its delegate")
            .network(network("multus", None).stored("host-local", "/var/lib/cni/networks/podnet"))
            .pod(Pod::new("shop/other", "10.244.7.9/24"))
            .pod(ghost("shop/old", "10.244.7.2/24"))
            .finds(
                finds("ghost-sandbox")
                    .warning()
                    .with("phase", "suspected")
                    .without("due")
                    .about("shop/old"),
            )
            .may("blocked-task"),
        row("Terway has given the address back, its pod hangs")
            .network(network("terway", None).stored("terway", "/var/lib/cni/terway/ResRelation.db"))
            .pod(Pod::new("shop/other", "10.244.7.9/24"))
            .pod(ghost("shop/old", "10.244.7.2/24").unreserved())
            .finds(
                finds("ghost-sandbox")
                    .critical()
                    .with("phase", "armed")
                    .about("shop/old"),
            )
            .may("blocked-task")
            .recorded("it takes Terway's daemon"),
        row("Calico has given the address back, its pod hangs")
            .network(network("calico", Some("calico-ipam")).stored("calico", "ipamblocks"))
            .pod(Pod::new("shop/other", "10.244.7.9/24"))
            .pod(ghost("shop/old", "10.244.7.2/24").unreserved())
            .finds(
                finds("ghost-sandbox")
                    .critical()
                    .with("phase", "armed")
                    .about("shop/old"),
            )
            .may("blocked-task")
            .recorded("it takes Calico's resources"),
        row("Calico still has the address, its pod hangs")
            .network(network("calico", Some("calico-ipam")).stored("calico", "ipamblocks"))
            .pod(Pod::new("shop/other", "10.244.7.9/24"))
            .pod(ghost("shop/old", "10.244.7.2/24"))
            .finds(
                finds("ghost-sandbox")
                    .with("phase", "suspected")
                    .about("shop/old"),
            )
            .may("blocked-task")
            .recorded("it takes Calico's resources"),
        unknown("Cilium: its agent frees by DEL alone", "cilium-cni", None),
        row("Whereabouts still has the address, its pod hangs")
            .network(network("macvlan", Some("whereabouts")).stored("whereabouts", "ippools"))
            .pod(Pod::new("shop/other", "10.244.7.9/24"))
            .pod(ghost("shop/old", "10.244.7.2/24"))
            .finds(
                finds("ghost-sandbox")
                    .with("phase", "suspected")
                    .about("shop/old"),
            )
            .may("blocked-task")
            .recorded("it takes Whereabouts' resources"),
        unknown(
            "Antrea: its agent frees host-local's files when it starts",
            "antrea",
            Some("host-local"),
        )
        .unknown(&["Antrea"]),
    ]
}

/// Pods that are gone, and those that only look so.
fn deletions() -> Vec<Situation> {
    let other = || Pod::new("shop/other", "10.244.7.9/24");
    vec![
        row("an evicted pod whose sandbox stays, and its address is given away")
            .pod(other())
            .pod(
                Pod::new("shop/evicted", "10.244.7.2/24")
                    .listed(Listed::As("Failed"))
                    .unreserved()
                    .stuck("dd", 300),
            )
            .pod(Pod::new("shop/new", "10.244.7.2/24").age(60))
            .finds(
                finds("ghost-sandbox")
                    .critical()
                    .with("phase", "conflict")
                    .about("shop/evicted"),
            )
            .finds(finds("duplicate-address").critical())
            .may("blocked-task"),
        row("an evicted pod whose sandbox stays for minutes")
            .pod(other())
            .pod(
                Pod::new("shop/evicted", "10.244.7.2/24")
                    .listed(Listed::As("Failed"))
                    .stuck("dd", 300),
            )
            .finds(finds("ghost-sandbox").about("shop/evicted"))
            .may("blocked-task")
            .watched(&[110, 60]),
        row("an evicted pod whose sandbox stays, and nobody says when it ended")
            .pod(other())
            .pod(
                Pod::new("shop/evicted", "10.244.7.2/24")
                    .listed(Listed::As("Failed"))
                    .unfinished()
                    .stuck("dd", 300),
            )
            .finds(finds("ghost-sandbox").about("shop/evicted"))
            .may("blocked-task")
            .watched(&[110, 60]),
        row("a Job's pod has succeeded, its sandbox hangs")
            .pod(other())
            .pod(
                Pod::new("jobs/one", "10.244.7.2/24")
                    .listed(Listed::As("Succeeded"))
                    .in_cri(InCri::NotReady)
                    .unreserved()
                    .stuck("dd", 300),
            )
            .finds(
                finds("ghost-sandbox")
                    .critical()
                    .with("phase", "armed")
                    .about("jobs/one"),
            )
            .may("blocked-task")
            .may("missing-del")
            .watched(&[110, 60]),
        row("forced deletion, long after the grace period, nothing is stuck")
            .pod(other())
            .pod(
                Pod::new("shop/slow", "10.244.7.2/24")
                    .grace(30)
                    .deleted(300)
                    .age(7200),
            )
            .finds(finds("ghost-sandbox").about("shop/slow"))
            .watched(&[360, 240, 120]),
        row("forced deletion, after a grace period of ten minutes")
            .pod(other())
            .pod(
                Pod::new("shop/slow", "10.244.7.2/24")
                    .grace(600)
                    .deleted(900)
                    .age(7200),
            )
            .finds(finds("ghost-sandbox").about("shop/slow"))
            .watched(&[960, 840, 120]),
        row("the runtime has removed the sandbox, its namespace is still mounted")
            .pod(other())
            .pod(
                Pod::new("shop/old", "10.244.7.2/24")
                    .gone()
                    .in_cri(InCri::Gone)
                    .unreserved()
                    .empty(),
            )
            .finds(
                finds("ghost-sandbox")
                    .critical()
                    .with("phase", "armed")
                    .about("shop/old"),
            )
            .may("pinned-netns")
            .may("missing-del"),
        row("a drain of eighty pods, of which one hangs")
            .pods((20..100).map(|last| {
                let address: &'static str =
                    Box::leak(format!("10.244.7.{last}/24").into_boxed_str());
                Pod::new(&format!("shop/web-{last}"), address)
                    .deleted(20)
                    .in_cri(InCri::NotReady)
                    .empty()
            }))
            .pod(ghost("shop/old", "10.244.7.2/24").deleted(20))
            .pod(other())
            .finds(finds("ghost-sandbox").about("shop/old").times(1))
            .may("blocked-task")
            .watched(&[40, 10]),
    ]
}

/// Two holders that share a network.
fn duplicates() -> Vec<Situation> {
    let both = |name| {
        row(name)
            .finds(
                finds("duplicate-address")
                    .critical()
                    .about("10.244.7.2")
                    .times(1),
            )
            .deletes_nobody()
    };
    let shared = |name| row(name).finds(finds("duplicate-address").about("192.168.50.5").times(1));
    vec![
        both("two living pods have one address, nobody knows who had it first")
            .recorded("the kernel knows what was made first")
            .without(Source::Cache)
            .without(Source::Cri)
            .without(Source::Store)
            .pod(Pod::with("shop/a", Device::veth("eth0").ip("10.244.7.2/24").made(500)).age(500))
            .pod(Pod::with("shop/b", Device::veth("eth0").ip("10.244.7.2/24").made(500)).age(500)),
        both("three living pods have one address")
            .pod(Pod::with("shop/a", Device::veth("eth0").ip("10.244.7.2/24").made(500)).age(500))
            .pod(Pod::with("shop/b", Device::veth("eth0").ip("10.244.7.2/24").made(90)).age(91))
            .pod(Pod::with("shop/c", Device::veth("eth0").ip("10.244.7.2/24").made(30)).age(31)),
        row("dual stack: only the addresses of IPv6 are the same")
            .pod(Pod::with("shop/a", Device::veth("eth0").ip("10.244.7.2/24").ip("fd00:10:244:7::2/64")).age(500))
            .pod(Pod::with("shop/b", Device::veth("eth0").ip("10.244.7.3/24").ip("fd00:10:244:7::2/64")).age(50))
            .finds(finds("duplicate-address").critical().about("fd00:10:244:7::2").times(1)),
        shared("Multus: net1 of two pods on one uplink, one address")
            .host(Device::uplink("ens4").ip("198.51.100.10/24"))
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(Device::on("macvlan", "net1", "ens4").ip("192.168.50.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(Device::on("macvlan", "net1", "ens4").ip("192.168.50.5/24"))),
        shared("Multus: net1 of two pods on one VLAN, one address")
            .host(Device::on("vlan", "ens3.101", "ens3"))
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(Device::on("macvlan", "net1", "ens3.101").ip("192.168.50.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(Device::on("macvlan", "net1", "ens3.101").ip("192.168.50.5/24"))),
        shared("Multus: net1 of two pods on one bridge, one address")
            .host(Device::bridge("br-a"))
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(second("br-a").ip("192.168.50.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(second("br-a").ip("192.168.50.5/24"))),
        shared("Multus: net1 of two pods by ipvlan on one uplink, one address")
            .host(Device::uplink("ens4").ip("198.51.100.10/24"))
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(Device::on("ipvlan", "net1", "ens4").ip("192.168.50.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(Device::on("ipvlan", "net1", "ens4").ip("192.168.50.5/24"))),
        shared("VRF: two pods of one routing table have one address, on two bridges")
            .host(Device::of("vrf", "red"))
            .host(Device { master: Some("red"), ..Device::bridge("br-a").ip("192.168.50.1/24") })
            .host(Device { master: Some("red"), ..Device::bridge("br-b").ip("192.168.51.1/24") })
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(second("br-a").ip("192.168.50.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(second("br-b").ip("192.168.50.5/24"))),
        row("two pods tag VLAN 100 on their macvlans of one uplink, one address: a list of devices has no VLANs")
            .host(Device::uplink("ens4").ip("198.51.100.10/24"))
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(Device::on("macvlan", "net1", "ens4")).device(Device::tagged("net1.100", "net1").ip("192.168.50.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(Device::on("macvlan", "net1", "ens4")).device(Device::tagged("net1.100", "net1").ip("192.168.50.5/24")))
            .finds(finds("duplicate-address").any().about("192.168.50.5").times(1))
            .deletes_nobody(),
        shared("Multus: net1 of two pods by macvlan on one bond, one address")
            .host(Device::of("bond", "bond0"))
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(Device::on("macvlan", "net1", "bond0").ip("192.168.50.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(Device::on("macvlan", "net1", "bond0").ip("192.168.50.5/24"))),
        shared("a pod by macvlan has the address of the node's device below it")
            .host(Device::uplink("ens4").ip("192.168.50.5/24"))
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(Device::on("macvlan", "net1", "ens4").ip("192.168.50.5/24"))),
        shared("two bridges that a cable joins, a pod on each, one address")
            .host(Device::bridge("br-a"))
            .host(Device::bridge("br-b"))
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(second("br-a").ip("192.168.50.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(second("br-b").ip("192.168.50.5/24")))
            .shell("ip link add patch-a type veth peer name patch-b; ip link set patch-a master br-a up; ip link set patch-b master br-b up")
            .real("the cable is made by hand"),
        row("keepalived: two pods on the bridge hold one virtual address")
            .pod(Pod::with("infra/keepalived-a", Device::veth("eth0").ip("10.244.7.2/24").ip("203.0.113.8/32")).known_as(&["10.244.7.2"]))
            .pod(Pod::with("infra/keepalived-b", Device::veth("eth0").ip("10.244.7.3/24").ip("203.0.113.8/32")).known_as(&["10.244.7.3"]))
            .finds(finds("duplicate-address").about("203.0.113.8").times(1)),
        row("SR-IOV: net1 of two pods have one address, by virtual functions of which nobody knows the network")
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(function().ip("192.168.50.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(function().ip("192.168.50.5/24")))
            .finds(finds("duplicate-address").info().about("192.168.50.5").times(1))
            .unknown(&["network", "plugged", "wire"])
            .deletes_nobody()
            .recorded("it takes hardware"),
        row("Open vSwitch: net1 of two pods have one address, on a switch whose VLANs nobody knows")
            .host(Device::of("openvswitch", "ovs-system"))
            .pod(Pod::new("shop/a", "10.244.7.2/24").device(second("ovs-system").ip("192.168.50.5/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24").device(second("ovs-system").ip("192.168.50.5/24")))
            .finds(finds("duplicate-address").info().about("192.168.50.5").times(1))
            .unknown(&["network", "plugged", "ovs-system", "switch"])
            .deletes_nobody(),
        row("Open vSwitch: two pods have one address of the pod network")
            .network(network("kube-ovn", None))
            .host(Device::of("openvswitch", "ovs-system"))
            .pod(Pod::with("shop/a", Device::veth("eth0").to("ovs-system").ip("10.16.0.5/16")).age(500))
            .pod(Pod::with("shop/b", Device::veth("eth0").to("ovs-system").ip("10.16.0.5/16")).age(50))
            .finds(finds("duplicate-address").critical().about("10.16.0.5").times(1)),
        row("Terway: two pods with ENIs of their own have one address")
            .network(network("terway", None))
            .pod(Pod::with("shop/a", Device { attached: Some("podnet"), ..Device::uplink("eth0").ip("192.0.2.77/24") }).age(500))
            .pod(Pod::with("shop/b", Device { attached: Some("podnet"), ..Device::uplink("eth0").ip("192.0.2.77/24") }).age(50))
            .finds(finds("duplicate-address").critical().about("192.0.2.77").times(1))
            .recorded("it takes hardware"),
        row("Cilium with netkit: two routed pods have one address")
            .network(network("cilium-cni", None))
            .pod(Pod::with("shop/a", Device::netkit("eth0", "lxc0123456789ab").ip("10.0.1.5/32")).age(500))
            .pod(Pod::with("shop/b", Device::netkit("eth0", "lxc1123456789ab").ip("10.0.1.5/32")).age(50))
            .finds(finds("duplicate-address").critical().about("10.0.1.5").times(1)),
        row("Calico: two routed pods with one address")
            .network(network("calico", Some("calico-ipam")))
            .pod(Pod::with("shop/a", Device::routed("eth0", "cali0a1b2c3d4e5").ip("10.244.64.2/32")).age(500))
            .pod(Pod::with("shop/b", Device::routed("eth0", "cali1a1b2c3d4e5").ip("10.244.64.2/32")).age(50))
            .finds(finds("duplicate-address").critical().about("10.244.64.2")),
        row("KubeVirt: the address on a virtual machine's dummy and a pod's are one")
            .pod(kubevirt("vms/virt-launcher-a", "10.244.7.2/24", "10.244.7.2"))
            .pod(Pod::new("shop/b", "10.244.7.2/24").age(50).unreserved())
            .finds(finds("duplicate-address").critical().about("10.244.7.2"))
            .never_advises(&["delete pod", "virt-launcher-a"]),
        row("a pod that moved its address to a bridge of its own, and another pod with it")
            .pod(Pod::with("shop/a", Device::veth("eth0")).known_as(&["10.244.7.2"]).device(Device::bridge("br0").ip("10.244.7.2/24").made(3600)))
            .pod(Pod::new("shop/b", "10.244.7.2/24").age(50))
            .finds(finds("duplicate-address").critical().about("10.244.7.2")),
        row("a pod that renames its device to lo, and another pod with its address")
            .pod(Pod::new("shop/a", "10.244.7.2/24").age(500))
            .pod(Pod::new("shop/b", "10.244.7.2/24").age(50))
            .shell("nsenter --net={shop/a} sh -c 'ip link set lo down; ip link set lo name lo0; ip link set eth0 down; ip link set eth0 name lo; ip link set lo up'")
            .finds(finds("duplicate-address").critical().about("10.244.7.2"))
            .real("names of devices are the kernel's"),
        row("a pod has the node's tunnel address")
            .host(Device::of("vxlan", "flannel.1").ip("10.244.7.0/32"))
            .pod(Pod::with("shop/a", Device::veth("eth0").ip("10.244.7.0/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24"))
            .finds(finds("duplicate-address").about("10.244.7.0")),
        row("Calico with IPIP: a pod has the node's tunnel address")
            .network(network("calico", Some("calico-ipam")))
            .host(Device::of("ipip", "tunl0").ip("10.244.64.64/32"))
            .pod(Pod::with("shop/a", Device::routed("eth0", "cali0a1b2c3d4e5").ip("10.244.64.64/32")))
            .finds(finds("duplicate-address").about("10.244.64.64").times(1)),
        row("Calico with WireGuard: a pod has the node's tunnel address")
            .network(network("calico", Some("calico-ipam")))
            .host(Device::of("wireguard", "wireguard.cali").ip("10.244.64.65/32"))
            .pod(Pod::with("shop/a", Device::routed("eth0", "cali0a1b2c3d4e5").ip("10.244.64.65/32")))
            .finds(finds("duplicate-address").about("10.244.64.65").times(1)),
        row("a pod has the address of the pod network's bridge")
            .pod(Pod::with("shop/a", Device::veth("eth0").ip("10.244.7.1/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24"))
            .finds(finds("duplicate-address").about("10.244.7.1")),
        row("a pod has the node's own address")
            .pod(Pod::with("shop/a", Device::veth("eth0").ip("192.0.2.10/24")))
            .pod(Pod::new("shop/b", "10.244.7.3/24"))
            .finds(finds("duplicate-address").about("192.0.2.10")),
        row("a person's namespace on the pod network's bridge has a pod's address")
            .pod(Pod::new("shop/a", "10.244.7.2/24"))
            .other(Other::at("mine", "/run/netns/mine").device(Device::veth("eth0").ip("10.244.7.2/24")))
            .finds(finds("duplicate-address").about("10.244.7.2"))
            .deletes_nobody(),
    ]
}

/// A virtual function as a pod's second interface.
fn function() -> Device {
    Device {
        attached: Some("second"),
        ..Device::uplink("net1")
    }
}

/// Who had an address first.
fn order() -> Vec<Situation> {
    // The kernel's order of namespaces is the wrong one in both.
    let newer = || {
        Pod::with(
            "shop/newer",
            Device::veth("eth0").ip("10.244.7.2/24").made(40),
        )
        .age(41)
    };
    let rightful = || {
        Pod::with(
            "shop/rightful",
            Device::veth("eth0").ip("10.244.7.2/24").made(3000),
        )
        .age(3001)
    };
    let both = |name| {
        row(name)
            .pod(newer())
            .pod(rightful())
            .finds(
                finds("duplicate-address")
                    .critical()
                    .about("10.244.7.2")
                    .times(1),
            )
            .never_advises(&["delete pod", "rightful"])
    };
    vec![
        both(
            "two living pods have one address: libcni's cache, the runtime and the kernel say who came first",
        ),
        both("two living pods have one address: only the kernel says who came first")
            .without(Source::Cache)
            .without(Source::Cri)
            .without(Source::Store),
        row("two living pods have one address: the rightful holder's was added anew a moment ago")
            .without(Source::Store)
            .pod(Pod::with("shop/rightful", Device::veth("eth0").ip("10.244.7.2/24").made(10)).age(3600))
            .pod(Pod::with("shop/newer", Device::veth("eth0").ip("10.244.7.2/24").made(600)).age(600))
            .finds(finds("duplicate-address").critical().about("10.244.7.2").times(1))
            .never_advises(&["delete pod", "rightful"])
            .recorded("it takes hours"),
        row("two living pods have one address: the rightful holder's was added anew, and only the kernel knows anything")
            .without(Source::Store)
            .without(Source::Cache)
            .without(Source::Cri)
            .pod(Pod::with("shop/rightful", Device::veth("eth0").ip("10.244.7.2/24").made(10)).age(3600))
            .pod(Pod::with("shop/newer", Device::veth("eth0").ip("10.244.7.2/24").made(600)).age(600))
            .finds(finds("duplicate-address").critical().about("10.244.7.2").times(1))
            .never_advises(&["delete pod", "rightful"])
            .recorded("it takes hours"),
        both("the rightful holder was made first and found last").without(Source::Cache),
    ]
}

/// What is left over when pods have gone.
fn leftovers() -> Vec<Situation> {
    let other = || Pod::new("shop/other", "10.244.7.9/24");
    let gone = |letter: &str| letter.repeat(64);
    vec![
        row("host-local keeps addresses for containers that do not exist")
            .pod(other())
            .reserved("10.244.7.101", &gone("a"), 86_400)
            .reserved("10.244.7.102", &gone("b"), 86_400)
            .finds(
                finds("leaked-reservation")
                    .warning()
                    .about("10.244.7.101")
                    .about("10.244.7.102"),
            )
            .recorded("reservations that are a day old"),
        row("host-local has the address of a running pod free")
            .pod(other())
            .pod(Pod::new("shop/a", "10.244.7.2/24").unreserved())
            .finds(
                finds("unreserved-address")
                    .critical()
                    .about("10.244.7.2")
                    .times(1),
            )
            .deletes_nobody()
            .recorded("what a store says counts from 2 s after the ADD on"),
        row("without the runtime nobody knows whether a reservation is leaked")
            .pod(other())
            .reserved("10.244.7.101", &gone("a"), 86_400)
            .without(Source::Cri)
            .finds(finds("leaked-reservation").info().about("10.244.7.101"))
            .recorded("reservations that are a day old"),
        row("a namespace without task, sandbox or pod that a mount keeps")
            .pod(other())
            .pod(
                Pod::new("shop/old", "10.244.7.2/24")
                    .gone()
                    .in_cri(InCri::Gone)
                    .empty(),
            )
            .finds(finds("ghost-sandbox").about("shop/old"))
            .may("pinned-netns")
            .watched(&[300, 100]),
        row("a namespace with a runtime's name that no source knows, on the pod network, with an address")
            .pod(other())
            .other(Other::at("left", "/run/netns/cni-5f0c1a2b-0003-4000-8000-000000000003").device(Device::veth("eth0").ip("10.244.7.2/24")))
            .finds(finds("pinned-netns").warning().about("cni-5f0c1a2b-0003"))
            .watched(&[300, 100]),
        row("a namespace with a runtime's name that no source knows has the address of a pod")
            .pod(Pod::new("shop/a", "10.244.7.2/24"))
            .other(Other::at("left", "/run/netns/cni-5f0c1a2b-0003-4000-8000-000000000003").device(Device::veth("eth0").ip("10.244.7.2/24")))
            .finds(finds("duplicate-address").about("10.244.7.2").times(1))
            .may("pinned-netns")
            .deletes_nobody(),
        row("a ghost keeps an ENI from the node")
            .network(network("terway", None))
            .pod(other())
            .pod(
                Pod::with(
                    "shop/old",
                    Device {
                        attached: Some("podnet"),
                        ..Device::uplink("eth0").ip("192.0.2.77/24")
                    },
                )
                .gone()
                .in_cri(InCri::NotReady)
                .stuck("dd", 300),
            )
            .finds(finds("ghost-sandbox").about("shop/old"))
            .finds(finds("trapped-device").about("eth0"))
            .may("blocked-task")
            .recorded("it takes hardware"),
        five("the range is full, and nobody says that no pod can come")
            .finds(finds("range-exhausted").critical()),
        five("the range is full, and maxPods is 110")
            .shell("mkdir -p /var/lib/kubelet; printf 'kind: KubeletConfiguration\nmaxPods: 110\n' > /var/lib/kubelet/config.yaml")
            .finds(finds("range-exhausted").critical()),
        row("AWS: a pod has lost its gateway's permanent entry")
            .network(network("aws-cni", None))
            .pod(
                Pod::with(
                    "shop/a",
                    Device::routed("eth0", "eni0a1b2c3d4e5").ip("192.0.2.31/32"),
                )
                .without_neighbour(),
            )
            .pod(Pod::with(
                "shop/b",
                Device::routed("eth0", "eni1a1b2c3d4e5").ip("192.0.2.32/32"),
            ))
            .finds(
                finds("missing-gateway-neighbour")
                    .about("shop/a")
                    .times(1)
                    .since_ago(100),
            )
            .watched(&[120, 60]),
        row("Calico: both ends of a pod's cable are on the node, and an IP is routed there")
            .network(network("calico", Some("calico-ipam")))
            .pod(Pod::with("shop/other", Device::routed("eth0", "cali1a1b2c3d4e5").ip("10.244.64.2/32")))
            .shell("ip link add cali0a1b2c3d4e5 type veth peer name tmp0a1b2")
            .shell("ip link set cali0a1b2c3d4e5 up; ip route add 10.244.64.7/32 dev cali0a1b2c3d4e5")
            .finds(finds("orphan-veth").warning().about("cali0a1b2c3d4e5").times(1))
            .real("the cable is made by hand"),
        row("a living pod's task hangs on a FUSE mount")
            .pod(other())
            .pod(Pod::new("shop/a", "10.244.7.2/24").stuck("dd", 300))
            .finds(finds("blocked-task").warning().about("dd"))
            .explains("shop/a", &["10.244.7.2", "dd", "Running"])
            .silent("ghost-sandbox")
            .deletes_nobody(),
    ]
}

/// A cable whose other end is gone, by the name that a pod network's plugin
/// gives to the node's end.
fn cables() -> Vec<Situation> {
    let cable = |name, network, device| {
        row(name)
            .network(network)
            .pod(Pod::new("shop/other", "10.244.7.9/24"))
            .host(Device::orphan(device))
            .finds(
                finds("orphan-veth")
                    .warning()
                    .about(device)
                    .since_ago(100)
                    .times(1),
            )
            .watched(&[120, 60])
    };
    vec![
        cable(
            "Calico: a cali device without another end",
            network("calico", Some("calico-ipam")),
            "cali0a1b2c3d4e5",
        ),
        cable(
            "Azure: an azv device without another end",
            network("azure-vnet", Some("azure-vnet-ipam")),
            "azv0a1b2c3d4e5",
        ),
        cable(
            "GKE: a gke device without another end",
            network("ptp", Some("host-local")),
            "gke0a1b2c3d4e5",
        ),
        cable(
            "OVN-Kubernetes: a device without another end",
            network("ovn-k8s-cni-overlay", None),
            "0a1b2c3d4e5f6a7",
        ),
        cable(
            "kube-ovn: a device without another end",
            network("kube-ovn", None),
            "0a1b2c3d4e5f_h",
        ),
        cable(
            "Antrea: a device without another end",
            network("antrea", Some("host-local")),
            "web-0-0a1b2c",
        ),
    ]
}
