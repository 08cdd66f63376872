//! A situation: what is on a node, what its sources say of it, and what an
//! expert expects of a verdict. [`recording`](super::recording) and
//! [`node`](super::node) make of it what the tool is given.

use std::net::IpAddr;

use super::expect::{Expect, Finds};
use super::runtimes::Runtime;

/// A row of the table.
#[derive(Clone, Debug)]
pub(super) struct Situation {
    pub(super) name: &'static str,
    /// Devices of the node's own namespace, besides the host ends of pods'.
    pub(super) host: Vec<Device>,
    /// Pods, each with a namespace of its own, in the order in which the
    /// kernel's namespaces are made.
    pub(super) pods: Vec<Pod>,
    /// Namespaces that are no pod's.
    pub(super) others: Vec<Other>,
    pub(super) network: Network,
    /// Whose answers, folders and names it has, where that matters.
    pub(super) runtime: Option<Runtime>,
    pub(super) api: Api,
    /// The node whose pods they are.
    pub(super) list_node: &'static str,
    /// How old their list is, s.
    pub(super) list_age: u64,
    pub(super) missing: Vec<Source>,
    /// Reservations besides those of pods: (address, container, age in s).
    pub(super) reserved: Vec<(&'static str, String, u64)>,
    /// Addresses in the store of a pod network that is no longer configured.
    pub(super) earlier: Vec<&'static str>,
    /// The tool runs in a container of this cgroup, in a namespace of its own.
    pub(super) tool_in: Option<&'static str>,
    /// When it was looked at before, s ago; the oldest first.
    pub(super) watched: Vec<u64>,
    /// `--stall-threshold`
    pub(super) stall: Option<&'static str>,
    /// Where it can be staged.
    pub(super) staging: Staging,
    /// Commands of the shell on the node, once all else is there.
    pub(super) shell: Vec<String>,
    /// Commands while a trace runs.
    pub(super) later: Vec<String>,
    /// What a verdict must say, and must not.
    pub(super) expect: Vec<Expect>,
}

/// Where a situation can be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Staging {
    /// With real kernel objects, and as a recording of a look.
    Both,
    /// Only as a recording: why.
    Recorded(&'static str),
    /// Only with real objects: a recording would hold what is to be found out.
    Real(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// The API server: every pod of this node.
    Server,
    /// A file with the pods of these Kubernetes namespaces; all if none is named.
    File(&'static [&'static str]),
    /// A file with one pod alone, `kubectl get pod NAME -o json`.
    Single(&'static str),
    /// The server does not answer.
    Failed,
    None,
}

/// A source that can be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Cri,
    Cache,
    Store,
}

#[derive(Clone, Debug)]
pub(super) struct Network {
    /// Its name, and what its files are named by.
    pub(super) name: &'static str,
    /// The main plugin; empty if the node has no configuration.
    pub(super) plugin: &'static str,
    /// `ipam.type`, as the configuration has it.
    pub(super) ipam: Option<&'static str>,
    /// `subnet` of host-local.
    pub(super) subnet: Option<&'static str>,
    /// Its store of reservations, where there is one: what it is, and its path.
    pub(super) store: Option<(&'static str, &'static str)>,
}

#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) name: String,
    /// As rtnetlink has it; `None` for hardware.
    pub(super) kind: Option<&'static str>,
    /// A device of the node that it is stacked on.
    pub(super) parent: Option<&'static str>,
    /// The one that it is stacked on is of its own namespace.
    pub(super) inner: bool,
    /// A device of the same namespace that it is a port of.
    pub(super) master: Option<&'static str>,
    /// The node's end of a veth pair: its name, and its bridge.
    pub(super) host_end: Option<(String, Option<&'static str>)>,
    /// Addresses with prefix lengths.
    pub(super) addresses: Vec<&'static str>,
    /// How long ago they were added; as old as the pod if not said.
    pub(super) made: Option<u64>,
    /// A cable whose other end is in a namespace that nobody can find.
    pub(super) orphan: bool,
    /// CNI made it: libcni knows of it under this network's name.
    pub(super) attached: Option<&'static str>,
}

/// What the API server has of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// It has it, in this phase.
    As(&'static str),
    /// Being deleted since so many seconds.
    Terminating(u64),
    Gone,
}

/// What the runtime has of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InCri {
    Ready,
    NotReady,
    Gone,
}

/// A task in a namespace.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) comm: &'static str,
    /// In state D for so many seconds, here.
    pub(super) stuck: Option<(u64, &'static [&'static str])>,
    /// Its cgroup is one of the pod's.
    pub(super) in_pod: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Tells sandboxes and UIDs of one name apart.
    pub(super) sandbox: String,
    pub(super) uid: String,
    /// Since when its sandbox is there, s.
    pub(super) age: u64,
    pub(super) devices: Vec<Device>,
    /// What API, CRI and libcni call its addresses.
    pub(super) ips: Vec<IpAddr>,
    pub(super) listed: Listed,
    /// When it went off the list, s ago, where that was seen.
    pub(super) deleted: Option<u64>,
    /// When it ended, s ago, if it has, and that is known.
    pub(super) finished: Option<u64>,
    /// terminationGracePeriodSeconds
    pub(super) grace: u64,
    pub(super) in_cri: InCri,
    pub(super) cached: bool,
    /// Its addresses are reserved in host-local's store.
    pub(super) reserved: bool,
    pub(super) tasks: Vec<Task>,
    pub(super) mount: Option<String>,
    /// More of `metadata` and `spec`, as the API has it.
    pub(super) host_network: bool,
    pub(super) annotations: Vec<(&'static str, String)>,
    /// Folder of its cgroup, where it is not kubelet's.
    pub(super) cgroup: Option<String>,
    /// What a container's cgroup is called in that folder; `{id}` is its ID.
    pub(super) scope: String,
    /// It has a namespace of its own.
    pub(super) spaced: bool,
    /// The node that the API has it on, if that is not the list's.
    pub(super) node: Option<&'static str>,
    /// Default routes besides the pod network's: a device and its gateway.
    pub(super) routes: Vec<(&'static str, &'static str)>,
    /// It has the gateway's permanent entry, if its CNI writes one.
    pub(super) neighbour: bool,
}

/// A namespace that is no pod's.
#[derive(Clone, Debug)]
pub(super) struct Other {
    pub(super) label: &'static str,
    pub(super) mount: Option<String>,
    pub(super) devices: Vec<Device>,
    pub(super) tasks: Vec<Task>,
    /// Folder of its tasks' cgroup.
    pub(super) cgroup: Option<String>,
    /// Its network and container, if libcni knows of it.
    pub(super) cached: Option<(&'static str, String)>,
    pub(super) age: u64,
}

/// `length` hexadecimal digits that stand for a text (FNV-1a).
pub(super) fn digits(text: &str, length: usize) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut digits = String::new();
    while digits.len() < length {
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        digits.push_str(&format!("{hash:016x}"));
    }
    digits.truncate(length);
    digits
}

fn ip(address: &str) -> IpAddr {
    let bare = address.split('/').next().unwrap_or_default();
    bare.parse().expect("an address of the table")
}

/// The bridge plugin with host-local, the network of most rows.
pub(super) const BRIDGE: Network = Network {
    name: "podnet",
    plugin: "bridge",
    ipam: Some("host-local"),
    subnet: Some("10.244.7.0/24"),
    store: Some(("host-local", "/var/lib/cni/networks/podnet")),
};

/// A network whose addresses something else gives out.
pub(super) const fn network(plugin: &'static str, ipam: Option<&'static str>) -> Network {
    Network {
        name: "podnet",
        plugin,
        ipam,
        subnet: None,
        store: None,
    }
}

impl Network {
    /// The same with another range.
    pub(super) fn range(mut self, subnet: &'static str) -> Self {
        self.subnet = Some(subnet);
        self
    }

    /// With a store of reservations that can be read.
    pub(super) fn stored(mut self, kind: &'static str, path: &'static str) -> Self {
        self.store = Some((kind, path));
        self
    }

    /// The plugin writes a permanent neighbour entry for a pod's gateway.
    pub(super) fn writes_neighbours(&self) -> bool {
        matches!(self.plugin, "aws-cni" | "terway" | "azure-vnet")
    }
}

impl Situation {
    /// A node with the pod network's bridge and an uplink.
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            host: vec![
                Device::bridge("cni0").ip("10.244.7.1/24"),
                Device::uplink("ens3").ip("192.0.2.10/24"),
            ],
            pods: Vec::new(),
            others: Vec::new(),
            network: BRIDGE,
            runtime: None,
            api: Api::Server,
            list_node: "worker-1",
            list_age: 0,
            missing: Vec::new(),
            reserved: Vec::new(),
            earlier: Vec::new(),
            tool_in: None,
            watched: Vec::new(),
            stall: None,
            staging: Staging::Both,
            shell: Vec::new(),
            later: Vec::new(),
            expect: Vec::new(),
        }
    }

    pub(super) fn pod(mut self, pod: Pod) -> Self {
        self.pods.push(pod);
        self
    }

    pub(super) fn pods(mut self, pods: impl Iterator<Item = Pod>) -> Self {
        self.pods.extend(pods);
        self
    }

    /// From so long in state D on a task counts as stuck.
    pub(super) fn stall(mut self, threshold: &'static str) -> Self {
        self.stall = Some(threshold);
        self
    }

    pub(super) fn other(mut self, other: Other) -> Self {
        self.others.push(other);
        self
    }

    pub(super) fn host(mut self, device: Device) -> Self {
        self.host.push(device);
        self
    }

    pub(super) fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    pub(super) fn api(mut self, api: Api) -> Self {
        self.api = api;
        self
    }

    /// The list is of another node's pods.
    pub(super) fn list_node(mut self, node: &'static str) -> Self {
        self.list_node = node;
        self
    }

    /// The list of pods was made so many seconds ago.
    pub(super) fn list_age(mut self, seconds: u64) -> Self {
        self.list_age = seconds;
        self.recorded("a list that is old")
    }

    pub(super) fn without(mut self, source: Source) -> Self {
        self.missing.push(source);
        self
    }

    pub(super) fn reserved(mut self, address: &'static str, container: &str, age: u64) -> Self {
        self.reserved.push((address, container.to_owned(), age));
        self
    }

    /// These addresses are in the store of an earlier pod network.
    pub(super) fn earlier_store(mut self, addresses: &[&'static str]) -> Self {
        self.earlier = addresses.to_vec();
        self
    }

    /// The tool runs in an unprivileged container, with this cgroup as the root
    /// of its cgroup namespace.
    pub(super) fn tool_in(mut self, folder: &'static str) -> Self {
        self.tool_in = Some(folder);
        self.real("cgroup namespaces are the kernel's")
    }

    /// It was looked at so many seconds ago, too. (Time cannot be staged.)
    pub(super) fn watched(mut self, seconds: &[u64]) -> Self {
        self.watched = seconds.to_vec();
        self.recorded("it takes minutes")
    }

    /// It cannot be staged, because of this.
    pub(super) fn recorded(mut self, why: &'static str) -> Self {
        self.staging = Staging::Recorded(why);
        self
    }

    /// Only the kernel can play it, because of this.
    pub(super) fn real(mut self, why: &'static str) -> Self {
        self.staging = Staging::Real(why);
        self
    }

    /// A command on the node; `{shop/a}` is the path of a pod's
    /// namespace, `{cgroup shop/a}` that of its container's cgroup.
    pub(super) fn shell(mut self, command: &str) -> Self {
        self.shell.push(command.to_owned());
        self
    }

    /// A command while a trace runs.
    pub(super) fn later(mut self, command: &str) -> Self {
        self.later.push(command.to_owned());
        self
    }

    /// Nothing of severity warning or above.
    pub(super) fn quiet(mut self) -> Self {
        self.expect.push(Expect::Quiet);
        self
    }

    /// A finding that must be there. Findings of other rules must not, unless
    /// they are expected, too.
    pub(super) fn finds(mut self, finds: Finds) -> Self {
        self.expect.push(Expect::Finds(finds));
        self
    }

    /// A rule that may find something besides.
    pub(super) fn may(mut self, rule: &'static str) -> Self {
        self.expect.push(Expect::May(rule));
        self
    }

    /// A rule that must say nothing at all, not even as information.
    pub(super) fn silent(mut self, rule: &'static str) -> Self {
        self.expect.push(Expect::Silent(rule));
        self
    }

    /// One of these words stands under `unknown`, in a finding, the coverage or
    /// the summary.
    pub(super) fn unknown(mut self, words: &'static [&'static str]) -> Self {
        self.expect.push(Expect::Unknown(words));
        self
    }

    /// No advice has all of these words in one line.
    pub(super) fn never_advises(mut self, words: &'static [&'static str]) -> Self {
        self.expect.push(Expect::NeverAdvises(words));
        self
    }

    /// `explain SUBJECT` says all of these words. (Asked of staged nodes alone.)
    pub(super) fn explains(
        mut self,
        subject: &'static str,
        words: &'static [&'static str],
    ) -> Self {
        self.expect.push(Expect::Explains(subject, words));
        self
    }

    /// Nobody's deletion is advised.
    pub(super) fn deletes_nobody(self) -> Self {
        self.never_advises(&["kubectl delete pod"])
    }

    /// `sick` if a finding is expected.
    pub(super) fn is_sick(&self) -> bool {
        let finds = |each: &Expect| matches!(each, Expect::Finds(finds) if finds.is_bad());
        self.expect.iter().any(finds)
    }

    /// Kinds of devices that the kernel must know for it to be staged.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let pods = self.pods.iter().flat_map(|pod| &pod.devices);
        let others = self.others.iter().flat_map(|other| &other.devices);
        let all = self.host.iter().chain(pods).chain(others);
        all.filter_map(|device| device.kind)
    }
}

impl Device {
    fn new(name: &str, kind: Option<&'static str>) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            parent: None,
            inner: false,
            master: None,
            host_end: None,
            addresses: Vec::new(),
            made: None,
            orphan: false,
            attached: None,
        }
    }

    /// Any virtual device that is on nothing: `dummy`, `bridge`, `vxlan`, ...
    pub(super) fn of(kind: &'static str, name: &str) -> Self {
        Self::new(name, Some(kind))
    }

    pub(super) fn bridge(name: &str) -> Self {
        Self::of("bridge", name)
    }

    pub(super) fn dummy(name: &str) -> Self {
        Self::of("dummy", name)
    }

    /// Hardware: the node's uplink, or a virtual function in a pod. (Staged as
    /// a macvlan of it, or as one end of a cable.)
    pub(super) fn uplink(name: &str) -> Self {
        Self::new(name, None)
    }

    /// A cable whose other end is gone, still a port of the bridge.
    pub(super) fn orphan(name: &str) -> Self {
        Self {
            orphan: true,
            master: Some("cni0"),
            ..Self::of("veth", name)
        }
    }

    /// A cable to the pod network's bridge.
    pub(super) fn veth(name: &str) -> Self {
        Self {
            host_end: Some((String::new(), Some("cni0"))),
            attached: Some("podnet"),
            ..Self::new(name, Some("veth"))
        }
    }

    /// A cable whose node's end is routed, under this name.
    pub(super) fn routed(name: &str, host_end: &str) -> Self {
        Self {
            host_end: Some((host_end.to_owned(), None)),
            attached: Some("podnet"),
            ..Self::new(name, Some("veth"))
        }
    }

    pub(super) fn netkit(name: &str, host_end: &str) -> Self {
        Self {
            kind: Some("netkit"),
            ..Self::routed(name, host_end)
        }
    }

    /// A macvlan, ipvlan or VLAN of a device of the node.
    pub(super) fn on(kind: &'static str, name: &str, parent: &'static str) -> Self {
        Self {
            parent: Some(parent),
            attached: Some(if name == "eth0" { "podnet" } else { "second" }),
            ..Self::new(name, Some(kind))
        }
    }

    /// A VLAN of a device of the same namespace, made by the pod itself.
    pub(super) fn tagged(name: &str, parent: &'static str) -> Self {
        Self {
            inner: true,
            attached: None,
            ..Self::on("vlan", name, parent)
        }
    }

    /// The cable goes to this bridge of the node.
    pub(super) fn to(mut self, bridge: &'static str) -> Self {
        let name = self.host_end.take().map(|(name, _)| name);
        self.host_end = Some((name.unwrap_or_default(), Some(bridge)));
        self
    }

    pub(super) fn ip(mut self, address: &'static str) -> Self {
        self.addresses.push(address);
        self
    }

    /// The addresses were added so many seconds ago.
    pub(super) fn made(mut self, age: u64) -> Self {
        self.made = Some(age);
        self
    }

    /// What CNI calls it, whatever the pod does with it.
    pub(super) fn cni_name(&self) -> &str {
        match self.attached {
            Some("podnet") => "eth0",
            _ => &self.name,
        }
    }

    /// CNI knows nothing of it.
    pub(super) fn unattached(mut self) -> Self {
        self.attached = None;
        self
    }
}

/// The stack of a task that waits for a FUSE mount.
const FUSE: &[&str] = &[
    "request_wait_answer+0x10d/0x1f0",
    "__fuse_simple_request+0xf0/0x2b0",
    "fuse_direct_io+0x37e/0x730",
    "vfs_read+0x2b7/0x340",
    "ksys_read+0x63/0xf0",
];

impl Task {
    pub(super) fn new(comm: &'static str) -> Self {
        Self {
            comm,
            stuck: None,
            in_pod: true,
        }
    }
}

impl Pod {
    /// A pod that has run for an hour: listed, Ready, in libcni's cache, its
    /// address reserved, two processes in it.
    pub(super) fn new(name: &str, address: &'static str) -> Self {
        Self::with(name, Device::veth("eth0").ip(address))
    }

    /// The same with another device.
    pub(super) fn with(name: &str, device: Device) -> Self {
        let (namespace, short) = name.split_once('/').expect("NAMESPACE/NAME");
        let mut this = Self {
            namespace: namespace.to_owned(),
            name: short.to_owned(),
            sandbox: String::new(),
            uid: String::new(),
            age: 3600,
            ips: device.addresses.iter().map(|address| ip(address)).collect(),
            devices: vec![device],
            listed: Listed::As("Running"),
            deleted: None,
            finished: Some(120),
            grace: 30,
            in_cri: InCri::Ready,
            cached: true,
            reserved: true,
            tasks: vec![Task::new("pause"), Task::new("app")],
            mount: None,
            host_network: false,
            annotations: Vec::new(),
            cgroup: None,
            scope: String::from("{id}"),
            spaced: true,
            node: None,
            routes: Vec::new(),
            neighbour: true,
        };
        this.identify("0", "0");
        this
    }

    fn identify(&mut self, uid: &str, sandbox: &str) {
        let name = format!("{}/{}", self.namespace, self.name);
        let raw = digits(&format!("uid {name} {uid}"), 32);
        self.uid = format!(
            "{}-{}-4{}-8{}-{}",
            &raw[..8],
            &raw[8..12],
            &raw[13..16],
            &raw[17..20],
            &raw[20..]
        );
        self.sandbox = digits(&format!("sandbox {name} {uid} {sandbox}"), 64);
        self.mount = Some(format!(
            "/run/netns/cni-{}",
            digits(&format!("netns {}", self.sandbox), 8)
        ));
    }

    /// An earlier pod of the same name.
    pub(super) fn earlier(mut self) -> Self {
        self.identify("earlier", "0");
        self
    }

    pub(super) fn earlier_sandbox(mut self) -> Self {
        self.identify("0", "earlier");
        self
    }

    pub(super) fn device(mut self, device: Device) -> Self {
        self.devices.push(device);
        self
    }

    /// What API, CRI and libcni say its addresses are.
    pub(super) fn known_as(mut self, addresses: &[&str]) -> Self {
        self.ips = addresses.iter().map(|address| ip(address)).collect();
        self
    }

    pub(super) fn age(mut self, seconds: u64) -> Self {
        self.age = seconds;
        self
    }

    /// Deleted by force: the API server knows nothing of it.
    pub(super) fn gone(mut self) -> Self {
        self.listed = Listed::Gone;
        self
    }

    /// The same, so many seconds ago: looks before that have it on their list.
    pub(super) fn deleted(mut self, seconds: u64) -> Self {
        self.deleted = Some(seconds);
        self.gone()
    }

    /// It ended so many seconds ago.
    pub(super) fn finished(mut self, seconds: u64) -> Self {
        self.finished = Some(seconds);
        self
    }

    /// Nobody says when it ended.
    pub(super) fn unfinished(mut self) -> Self {
        self.finished = None;
        self
    }

    pub(super) fn listed(mut self, listed: Listed) -> Self {
        self.listed = listed;
        self
    }

    pub(super) fn grace(mut self, seconds: u64) -> Self {
        self.grace = seconds;
        self
    }

    pub(super) fn in_cri(mut self, in_cri: InCri) -> Self {
        self.in_cri = in_cri;
        self
    }

    /// Its address is free in host-local's store.
    pub(super) fn unreserved(mut self) -> Self {
        self.reserved = false;
        self
    }

    pub(super) fn uncached(mut self) -> Self {
        self.cached = false;
        self
    }

    /// Nothing runs in it.
    pub(super) fn empty(mut self) -> Self {
        self.tasks.clear();
        self
    }

    /// All that runs in it is this, in uninterruptible sleep on a FUSE mount.
    pub(super) fn stuck(mut self, comm: &'static str, seconds: u64) -> Self {
        self.tasks = vec![Task {
            stuck: Some((seconds, FUSE)),
            ..Task::new(comm)
        }];
        self
    }

    pub(super) fn task(mut self, task: Task) -> Self {
        self.tasks.push(task);
        self
    }

    pub(super) fn mount(mut self, path: &str) -> Self {
        self.mount = Some(path.to_owned());
        self
    }

    pub(super) fn host_network(mut self) -> Self {
        self.host_network = true;
        self.spaced = false;
        self.devices.clear();
        self.reserved = false;
        self.cached = false;
        self.mount = None;
        self
    }

    /// It has one more default route.
    pub(super) fn route(mut self, device: &'static str, gateway: &'static str) -> Self {
        self.routes.push((device, gateway));
        self
    }

    /// Its gateway's entry is gone.
    pub(super) fn without_neighbour(mut self) -> Self {
        self.neighbour = false;
        self
    }

    /// It runs on another node: this one's lists of pods are all that has it.
    pub(super) fn elsewhere(self) -> Self {
        let this = self.uncached().unreserved().in_cri(InCri::Gone);
        this.empty().unspaced()
    }

    /// The API has it on this node.
    pub(super) fn on(mut self, node: &'static str) -> Self {
        self.node = Some(node);
        self
    }

    /// Its namespace is gone.
    pub(super) fn unspaced(mut self) -> Self {
        self.spaced = false;
        self.devices.clear();
        self
    }

    pub(super) fn annotation(mut self, key: &'static str, value: &str) -> Self {
        self.annotations.push((key, value.to_owned()));
        self
    }

    /// The device that has the pod network's attachment.
    pub(super) fn primary(&self) -> Option<usize> {
        let primary = |device: &Device| device.attached == Some("podnet");
        self.devices.iter().position(primary)
    }

    /// Its cgroup is as kubelet's systemd driver names it.
    pub(super) fn systemd(mut self) -> Self {
        let slice = format!(
            "kubepods-besteffort-pod{}.slice",
            self.uid.replace('-', "_")
        );
        self.cgroup = Some(format!("/kubepods.slice/kubepods-besteffort.slice/{slice}"));
        self
    }

    /// `NAMESPACE/NAME`
    pub(super) fn label(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl Other {
    /// One that is mounted there, with nothing running in it.
    pub(super) fn at(label: &'static str, mount: &str) -> Self {
        Self {
            label,
            mount: Some(mount.to_owned()),
            devices: Vec::new(),
            tasks: Vec::new(),
            cgroup: None,
            cached: None,
            age: 3600,
        }
    }

    /// One that only a process holds.
    pub(super) fn of(label: &'static str, comm: &'static str) -> Self {
        let task = Task {
            in_pod: false,
            ..Task::new(comm)
        };
        Self {
            mount: None,
            tasks: vec![task],
            ..Self::at(label, "")
        }
    }

    pub(super) fn device(mut self, device: Device) -> Self {
        self.devices.push(device.unattached());
        self
    }

    pub(super) fn task(mut self, comm: &'static str) -> Self {
        self.tasks.push(Task {
            in_pod: false,
            ..Task::new(comm)
        });
        self
    }

    /// libcni has its ADD, which was for no pod.
    pub(super) fn cached(mut self, network: &'static str, container: &str) -> Self {
        self.cached = Some((network, container.to_owned()));
        self
    }

    /// A task in it hangs.
    pub(super) fn stuck(mut self, comm: &'static str, seconds: u64) -> Self {
        self.tasks.push(Task {
            stuck: Some((seconds, FUSE)),
            in_pod: false,
            ..Task::new(comm)
        });
        self
    }

    pub(super) fn cgroup(mut self, folder: &str) -> Self {
        self.cgroup = Some(folder.to_owned());
        self
    }
}
