//! What each source tells of a node: the engine's events, in the order of a
//! look.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::PathBuf,
};

use super::truth::{
    Attached, CNI0, DOCKER0, Held, Ipam, Kind, LOOK, Life, Link, MULTUS, OtherNetns, PARENTS,
    Place, TruePod, TrueSandbox, Truth, VRFS,
};
use crate::model::netns::NETNS;
use event::{
    Address, Attachment, Device, Event, Neighbour, Network, Pod, PodRef, Reservation,
    ReservationHolder, Route, RuntimeContainer, RuntimeSandbox, Store, StoreKind, Task, What,
    forwarding::{DatedNeighbour, Forwarding, MAIN_TABLE, PolicyRule, TableRoute},
    testing as story,
    testing::{at, ns, s, task},
};

/// What can be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// Entering namespaces: their addresses and devices.
    Visits,
    /// Entering the host's own.
    Host,
    /// Tasks' cgroups: whose they are.
    Cgroups,
    Mounts,
    /// Descriptors and sockets of processes.
    Descriptors,
    /// Tasks in uninterruptible sleep.
    Stalls,
    Cri,
    Bundles,
    Containers,
    Shims,
    Networks,
    Libcni,
    Store,
    Pods,
    /// CNI calls, which only a tracer sees.
    Calls,
}

impl Source {
    pub(super) const ALL: [Self; 15] = [
        Self::Visits,
        Self::Host,
        Self::Cgroups,
        Self::Mounts,
        Self::Descriptors,
        Self::Stalls,
        Self::Cri,
        Self::Bundles,
        Self::Containers,
        Self::Shims,
        Self::Networks,
        Self::Libcni,
        Self::Store,
        Self::Pods,
        Self::Calls,
    ];

    /// How it can be missing.
    pub(super) fn absences(self) -> &'static [Absence] {
        use Absence::{Failed, Half, NotAsked, Old};
        match self {
            Self::Pods => &[Failed, NotAsked, Half, Old],
            // What was lost is counted.
            Self::Cgroups | Self::Calls | Self::Stalls => &[Failed, Half],
            Self::Mounts | Self::Descriptors => &[Failed, Half],
            Self::Host => &[Failed],
            _ => &[Failed, NotAsked, Half],
        }
    }
}

/// How it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Absence {
    /// It does not answer, and that is told.
    Failed,
    /// It was never asked, or is not there.
    NotAsked,
    /// It tells a part, and that it is a part.
    Half,
    /// What it tells is old: of pods alone.
    Old,
}

pub(super) type Missing = BTreeMap<Source, Absence>;

/// When an old list of pods was made.
pub(super) const OLD_LIST: i64 = LOOK - 5_000;

/// Where the pod network's store is.
fn store_path(kind: StoreKind) -> &'static str {
    match kind {
        StoreKind::HostLocal => story::STORE,
        StoreKind::Terway => "/var/lib/cni/terway/ResRelation.db",
        StoreKind::Aws => "/var/run/aws-node/ipam.json",
        StoreKind::Calico => "crd.projectcalico.org/v1/ipamblocks",
        StoreKind::Whereabouts => "whereabouts.cni.cncf.io/v1alpha1/ippools",
        StoreKind::Cilium => "/var/run/cilium/deleteQueue",
    }
}

pub(super) fn mount(inode: u32) -> String {
    format!("/run/netns/cni-{inode:08x}-9d3b-4f60-8a51-0c6e2d9b7f13")
}

/// Whether its infra container runs.
pub(super) fn has_pause(sandbox: &TrueSandbox) -> bool {
    sandbox.held == Some(Held::Running) || sandbox.cri == Some(true)
}

fn app(sandbox: &TrueSandbox) -> String {
    format!("a{}", &sandbox.id[1..])
}

pub(super) fn pod_ref(pod: &TruePod) -> PodRef {
    PodRef {
        namespace: Some(pod.namespace.to_owned()),
        name: Some(pod.name.clone()),
        uid: Some(pod.uid.clone()),
    }
}

/// What a node's sources say, of which some do not answer.
#[derive(Debug)]
pub(super) struct SourceView<'a> {
    pub(super) truth: &'a Truth,
    pub(super) missing: &'a Missing,
}

impl SourceView<'_> {
    fn lacks(&self, source: Source) -> Option<Absence> {
        self.missing.get(&source).copied()
    }

    /// Whether one of some things is told.
    pub(super) fn tells(&self, source: Source, number: u32) -> bool {
        match self.lacks(source) {
            None | Some(Absence::Old) => true,
            Some(Absence::Half) => number.is_multiple_of(2),
            Some(Absence::Failed | Absence::NotAsked) => false,
        }
    }

    /// That a source does not answer, if that is how it is missing.
    fn failure(&self, source: Source, name: &str, time: i64) -> Option<Event> {
        let failed = self.lacks(source) == Some(Absence::Failed);
        failed.then(|| {
            let what = What::SourceFailed {
                source: name.to_owned(),
                error: String::from("no answer"),
            };
            at(time, what)
        })
    }

    /// What a source that lists a part says of the rest.
    fn partial(&self, source: Source) -> Option<String> {
        let half = self.lacks(source) == Some(Absence::Half);
        half.then(|| String::from("some could not be read"))
    }

    fn sandboxes(&self) -> impl Iterator<Item = (&TruePod, &TrueSandbox)> {
        let pods = self.truth.pods.iter();
        pods.flat_map(|pod| pod.sandboxes.iter().map(move |sandbox| (pod, sandbox)))
    }

    /// All that a look at the node brings.
    pub(super) fn look(&self, time: i64) -> Vec<Event> {
        let mut told = self.kernel(time);
        told.extend(self.remains(time));
        told.extend(self.cri(time));
        told.extend(self.cni(time));
        told.extend(self.pods(time));
        told
    }

    /// What a second look brings, which asks neither the runtime nor the API.
    pub(super) fn look_again(&self, time: i64) -> Vec<Event> {
        let mut told = self.kernel(time);
        told.extend(self.remains(time));
        told.extend(self.cni(time));
        told
    }

    /// Namespaces, addresses, devices, holders; then what is stuck.
    pub(super) fn kernel(&self, time: i64) -> Vec<Event> {
        let mut told = Vec::new();
        self.host(time, &mut told);
        let mut stuck = Vec::new();
        let mut all_found = true;
        for (pod, sandbox) in self.sandboxes() {
            all_found &= self.namespace(pod, sandbox, time, &mut told, &mut stuck);
        }
        for other in &self.truth.others {
            all_found &= self.other(other, time, &mut told);
        }
        told.extend(stuck);
        if self.lacks(Source::Cgroups).is_some() {
            let what = What::SourceFailed {
                source: String::from("pods by cgroup"),
                error: String::from("cgroups could not be read"),
            };
            told.push(at(time, what));
        }
        let blind = [Source::Mounts, Source::Descriptors];
        if !all_found || blind.iter().any(|source| self.lacks(*source).is_some()) {
            let what = What::SourceFailed {
                source: String::from(NETNS),
                error: String::from("not all that can lead to a namespace could be read"),
            };
            told.push(at(time, what));
        }
        told
    }

    /// A sandbox's namespace, and what is stuck in it. Returns whether it is
    /// found, if it is there.
    pub(super) fn namespace(
        &self,
        pod: &TruePod,
        sandbox: &TrueSandbox,
        time: i64,
        told: &mut Vec<Event>,
        stuck: &mut Vec<Event>,
    ) -> bool {
        let Some(held) = sandbox.held else {
            return true;
        };
        let tasks = self.tasks(pod, sandbox);
        let mounted = sandbox.is_mounted() && self.tells(Source::Mounts, sandbox.inode);
        let path = mount(sandbox.inode);
        let mounts: Vec<&str> = mounted.then_some(path.as_str()).into_iter().collect();
        let mut holders = story::holders(time, sandbox.inode, &tasks, &mounts);
        let looked = self.tells(Source::Descriptors, sandbox.inode);
        let is_kept = match (&mut holders.what, held) {
            (What::NetnsHolders { fds, .. }, Held::Descriptor) if looked => {
                fds.push(story::leaked_fd(3));
                true
            }
            (What::NetnsHolders { sockets, .. }, Held::Socket) if looked => {
                sockets.push(story::leaked_fd(5));
                true
            }
            _ => !tasks.is_empty() || mounted,
        };
        if !is_kept {
            // Nothing that was looked through leads to it.
            return false;
        }
        let index = index(sandbox);
        let (addresses, devices, routes, neighbours) = self.inside(pod, sandbox, index);
        self.visit(time, sandbox.inode, &addresses, &devices, told);
        if let Some(What::NetnsDevices {
            routes: its_routes,
            neighbours: its_neighbours,
            ..
        }) = told.last_mut().map(|event| &mut event.what)
        {
            (*its_routes, *its_neighbours) = (routes, neighbours);
        }
        told.push(holders);
        if let (Held::Stuck(_), Some(task), true) = (
            held,
            tasks.last(),
            self.tells(Source::Stalls, sandbox.inode),
        ) {
            let mut event = story::stuck(time, task.pid, sandbox.inode);
            if let What::TaskBlocked {
                task: told,
                since,
                found,
                ..
            } = &mut event.what
            {
                (*told, *since, *found) = (task.clone(), s(time.min(LOOK - 100)), true);
            }
            stuck.push(event);
        }
        if pod.inner && sandbox.has_tasks() {
            self.inner(pod, sandbox, time, told);
        }
        true
    }

    /// One namespace, entered or not.
    fn visit(
        &self,
        time: i64,
        inode: u32,
        addresses: &[Address],
        devices: &[Device],
        told: &mut Vec<Event>,
    ) {
        let mut found = story::found(time, inode);
        if !self.tells(Source::Visits, inode) {
            if let What::NetnsFound { netns, .. } = &mut found.what {
                netns.cookie = None;
            }
            told.push(found);
            return;
        }
        told.push(found);
        for each in addresses {
            let mut event = story::added(time, inode, 0);
            if let What::AddressAdded { address, found, .. } = &mut event.what {
                *address = each.clone();
                *found = true;
            }
            told.push(event);
        }
        let devices = story::devices(time, inode, devices, &[], &[]);
        told.push(story::host_called(0, devices));
    }

    /// The host's own namespace, with its ends of the pods' veth pairs.
    fn host(&self, time: i64, told: &mut Vec<Event>) {
        told.push(story::host(time));
        if self.lacks(Source::Host).is_some() {
            return;
        }
        let mut devices = vec![story::physical(2, "eth0")];
        for parent in PARENTS {
            devices.push(match parent {
                5 => Device {
                    link: Some(3),
                    ..device(5, "eth1.100", Some("vlan"))
                },
                _ => story::physical(parent, &format!("eth{}", parent - 2)),
            });
        }
        devices.push(device(CNI0, "cni0", Some("bridge")));
        devices.push(device(DOCKER0, "docker0", Some("bridge")));
        devices.push(device(MULTUS, "br-multus", Some("bridge")));
        for vrf in VRFS {
            devices.push(device(vrf, &format!("vrf{vrf}"), Some("vrf")));
        }
        let mut routes = Vec::new();
        let ends = self
            .sandboxes()
            .filter(|(_, sandbox)| sandbox.lives())
            .flat_map(|(_, sandbox)| {
                let index = index(sandbox);
                let second = sandbox.second.map(|second| (second, index + 1));
                let all = std::iter::once((sandbox.primary, index)).chain(second);
                all.map(move |(attached, index)| (sandbox.inode, attached, index))
            });
        let others = self.truth.others.iter();
        let others = others.filter_map(|each| Some((each.inode, each.attached?, 2)));
        for (inode, attached, inside) in ends.chain(others) {
            let master = match attached.link {
                Link::Bridge(bridge) => Some(bridge),
                Link::Vrf(vrf) => Some(vrf),
                Link::Routed | Link::Tenant(_) | Link::Loose => None,
                Link::Macvlan(_) | Link::Ipvlan(_) | Link::Physical(_) => continue,
            };
            let index = host_end(inode, inside);
            let name = host_end_name(attached, index);
            devices.push(Device {
                master,
                link_nsid: Some(inode as i32),
                ..story::veth(index, &name, inside)
            });
            if attached.link == Link::Routed {
                routes.push(Route {
                    to: Some((IpAddr::from(attached.address), 32)),
                    device: index,
                    ..Route::default()
                });
            }
        }
        for orphan in 0..self.truth.orphans {
            let index = 90_000 + orphan;
            let name = format!("cali{index:011x}");
            devices.push(Device {
                link_nsid: Some(77),
                ..story::veth(index, &name, 3)
            });
            routes.push(story::route_to(250, index));
        }
        for (address, ifname, kind) in [
            ([192, 168, 0, 10], "eth0", None),
            ([10, 0, 0, 1], "cni0", Some("bridge")),
            ([172, 17, 0, 1], "docker0", Some("bridge")),
        ] {
            let mut event = story::added(time, 1, 0);
            if let What::AddressAdded {
                address: told,
                found,
                ..
            } = &mut event.what
            {
                *told = on(address, ifname, kind);
                *found = true;
            }
            told.push(event);
        }
        told.push(story::devices(time, 1, &devices, &routes, &[]));
        told.push(story::forwards(time, 1, &self.tables()));
    }

    /// The node's rules, routes and neighbours: those of each pod, as a CNI of ENIs
    /// enters them, with what a DEL that never came has left; those for others'.
    pub(super) fn tables(&self) -> Forwarding {
        let default = |table, device| TableRoute {
            gateway: Some(story::GATEWAY),
            ..story::table_route(table, "0.0.0.0/0", device)
        };
        let mut tables = Forwarding {
            rules: story::kernels_rules(),
            routes: vec![default(MAIN_TABLE, 2), default(2, 3), default(3, 4)],
            ..Forwarding::default()
        };
        let single = |address| Some((IpAddr::from(address), 32));
        let mut own: Vec<_> = self.sandboxes().map(|(_, sandbox)| sandbox).collect();
        own.retain(|it| it.primary.link == Link::Routed && (it.lives() || it.cached));
        own.sort_by_key(|sandbox| sandbox.made);
        for sandbox in own {
            let address = sandbox.primary.address;
            tables.rules.extend([
                PolicyRule {
                    priority: 512,
                    to: single(address),
                    table: MAIN_TABLE,
                    ..PolicyRule::default()
                },
                PolicyRule {
                    priority: 1_536,
                    from: single(address),
                    table: 2 + sandbox.inode % 2,
                    ..PolicyRule::default()
                },
            ]);
            let device = match sandbox.lives() {
                true => host_end(sandbox.inode, index(sandbox)),
                false => CNI0,
            };
            tables.neighbours.push(DatedNeighbour {
                neighbour: Neighbour {
                    address: IpAddr::from(address),
                    device,
                    mac: Some(mac(sandbox.inode)),
                    state: String::from("permanent"),
                },
                confirmed: None,
            });
            if sandbox.lives() {
                tables
                    .routes
                    .retain(|route| Some(route.to) != single(address));
                let to = IpAddr::from(address).to_string();
                let route = story::table_route(MAIN_TABLE, &to, device);
                tables.routes.push(route);
            }
        }
        for (_, sandbox) in self.sandboxes().filter(|(_, sandbox)| sandbox.lives()) {
            let Some(second) = sandbox.second else {
                continue;
            };
            if let Link::Tenant(table) = second.link {
                let device = host_end(sandbox.inode, index(sandbox) + 1);
                tables.rules.push(PolicyRule {
                    priority: 50,
                    iif: Some(host_end_name(second, device)),
                    table,
                    ..PolicyRule::default()
                });
                let to = IpAddr::from(second.address).to_string();
                tables.routes.push(story::table_route(table, &to, device));
            }
        }
        for far in 1..3 {
            tables.rules.extend([2, 3].map(|table| PolicyRule {
                priority: 6_000,
                from: single([10, 2, 0, far]),
                table,
                ..PolicyRule::default()
            }));
        }
        tables.rules.sort_by_key(|rule| rule.priority);
        tables.rules.dedup();
        tables
    }

    fn tasks(&self, pod: &TruePod, sandbox: &TrueSandbox) -> Vec<Task> {
        if !sandbox.has_tasks() {
            return Vec::new();
        }
        let pid = sandbox.inode * 10;
        let of = |pid: u32, comm: &str, container: String| Task {
            pod_uid: Some(pod.uid.clone()),
            container_id: Some(container),
            started: Some(s(sandbox.made)),
            ..task(pid, comm)
        };
        let mut tasks = Vec::new();
        if has_pause(sandbox) {
            tasks.push(of(pid, "pause", sandbox.id.clone()));
        }
        if sandbox.guest {
            tasks.push(Task {
                tid: pid + 7,
                pod_uid: Some(String::from("0a1b2c3d-0000-4000-8000-00000000ffff")),
                container_id: Some("f".repeat(64)),
                ..task(7, "agent")
            });
        }
        tasks.push(of(pid + 1, "app", app(sandbox)));
        if let (Some(Held::Stuck(_)), Some(last)) = (sandbox.held, tasks.last_mut()) {
            last.state = Some('D');
        }
        if !self.tells(Source::Cgroups, sandbox.inode) {
            for task in &mut tasks {
                (task.pod_uid, task.container_id) = (None, None);
            }
        }
        tasks
    }

    /// What is in a sandbox's namespace.
    fn inside(
        &self,
        pod: &TruePod,
        sandbox: &TrueSandbox,
        index: u32,
    ) -> (Vec<Address>, Vec<Device>, Vec<Route>, Vec<Neighbour>) {
        let mut addresses = vec![on([127, 0, 0, 1], "lo", None)];
        let mut devices = vec![device(1, "lo", None)];
        let own = sandbox.primary.address;
        let mut eth0 = end(sandbox.inode, sandbox.primary, index, "eth0");
        eth0.mac = Some(mac(sandbox.inode));
        let kind = eth0.kind.clone();
        let kind = kind.as_deref();
        match sandbox.place {
            Place::Eth0 => addresses.push(on(own, "eth0", kind)),
            Place::Nowhere => {}
            Place::Lo => {
                eth0.name = String::from("lo");
                devices[0].name = String::from("lo0");
                addresses[0].ifname = String::from("lo0");
                addresses.push(on(own, "lo", kind));
            }
            Place::Dummy => {
                eth0.name = String::from("eth0-nic");
                eth0.master = Some(20);
                devices.push(device(20, "k6t-eth0", Some("bridge")));
                devices.push(device(21, "eth0", Some("dummy")));
                addresses.push(on(own, "eth0", Some("dummy")));
            }
            Place::Bridge => {
                eth0.master = Some(20);
                devices.push(device(20, "br0", Some("bridge")));
                addresses.push(on(own, "br0", Some("bridge")));
            }
        }
        let (mut routes, mut neighbours) = (Vec::new(), Vec::new());
        if sandbox.primary.link == Link::Routed && sandbox.place == Place::Eth0 {
            routes.push(story::default_route(story::GATEWAY, index));
            let statics = [StoreKind::Aws, StoreKind::Terway].map(Ipam::Kept);
            if statics.contains(&self.truth.ipam) && sandbox.neighbour {
                neighbours.push(story::neighbour(index, "permanent"));
            }
        }
        devices.push(eth0);
        if let Some(second) = sandbox.second {
            let net1 = end(sandbox.inode, second, index + 1, "net1");
            addresses.push(on(second.address, "net1", net1.kind.as_deref()));
            devices.push(net1);
        }
        if pod.inner && sandbox.has_tasks() {
            devices.push(device(30, "docker0", Some("bridge")));
            addresses.push(on([172, 17, 0, 1], "docker0", Some("bridge")));
            // A namespace has one ID for each other one, and 0 is the host's.
            devices.push(Device {
                master: Some(30),
                link_nsid: Some(1),
                ..story::veth(31, "veth1234567", 2)
            });
        }
        (addresses, devices, routes, neighbours)
    }

    /// What a pod with docker in it has made for a container of its own.
    fn inner(&self, pod: &TruePod, sandbox: &TrueSandbox, time: i64, told: &mut Vec<Event>) {
        let inode = inner(sandbox.inode);
        let eth0 = story::veth(2, "eth0", 31);
        let addresses = [on([172, 17, 0, 2], "eth0", Some("veth"))];
        self.visit(
            time,
            inode,
            &addresses,
            &[device(1, "lo", None), eth0],
            told,
        );
        // It leads to the pod.
        let last = told.pop().map(|devices| story::host_called(-1, devices));
        told.extend(last);
        let mut task = Task {
            pod_uid: Some(pod.uid.clone()),
            container_id: Some(app(sandbox)),
            started: Some(s(sandbox.made + 10)),
            ..task(inode * 10, "server")
        };
        if !self.tells(Source::Cgroups, sandbox.inode) {
            (task.pod_uid, task.container_id) = (None, None);
        }
        told.push(story::holders(time, inode, &[task], &[]));
    }

    /// A namespace that is no pod's. Returns whether it is found.
    fn other(&self, other: &OtherNetns, time: i64, told: &mut Vec<Event>) -> bool {
        let inode = other.inode;
        let (tasks, mounts) = match other.kind {
            Kind::Docker => {
                let mut task = task(inode * 10, "nginx");
                task.container_id = Some(format!("{inode:08x}").repeat(8))
                    .filter(|_| self.tells(Source::Cgroups, inode));
                (vec![task], vec![format!("/run/docker/netns/{inode:012x}")])
            }
            Kind::Private => (vec![task(inode * 10, "systemd-udevd")], Vec::new()),
            Kind::Named => (Vec::new(), vec![format!("/run/netns/blue{inode}")]),
        };
        let mounts: Vec<&str> = mounts
            .iter()
            .map(String::as_str)
            .filter(|_| self.tells(Source::Mounts, inode))
            .collect();
        if tasks.is_empty() && mounts.is_empty() {
            return false;
        }
        let mut devices = vec![device(1, "lo", None)];
        let mut addresses = Vec::new();
        if let Some(attached) = other.attached {
            let eth0 = end(inode, attached, 2, "eth0");
            addresses.push(on(attached.address, "eth0", eth0.kind.as_deref()));
            devices.push(eth0);
        }
        self.visit(time, inode, &addresses, &devices, told);
        told.push(story::holders(time, inode, &tasks, &mounts));
        true
    }

    /// What the runtime has left on disk, cgroups and shims.
    fn remains(&self, time: i64) -> Vec<Event> {
        let mut told = Vec::new();
        if !matches!(
            self.lacks(Source::Bundles),
            Some(Absence::Failed | Absence::NotAsked)
        ) {
            let there = self.sandboxes().filter(|(_, sandbox)| sandbox.remains);
            let there = there.filter(|(_, sandbox)| self.tells(Source::Bundles, sandbox.inode));
            let what = What::SandboxesListed {
                source: String::from("bundles"),
                endpoint: String::from("/run/containerd"),
                runtime: None,
                partial: self.partial(Source::Bundles),
                sandboxes: there
                    .map(|(pod, sandbox)| RuntimeSandbox {
                        ready: None,
                        ips: Vec::new(),
                        containers: Vec::new(),
                        ..listed(pod, sandbox)
                    })
                    .collect(),
            };
            told.push(at(time, what));
        }
        for (source, name) in [(Source::Containers, "cgroup"), (Source::Shims, "shim")] {
            told.extend(self.failure(source, name, time));
            if matches!(
                self.lacks(source),
                Some(Absence::Failed | Absence::NotAsked)
            ) {
                continue;
            }
            let there = self.sandboxes().filter(|(_, sandbox)| {
                let shown = match source {
                    // The shim of a sandbox lives as long as its infra container.
                    Source::Shims => sandbox.remains && has_pause(sandbox),
                    _ => sandbox.has_tasks(),
                };
                shown && self.tells(source, sandbox.inode)
            });
            let ids: BTreeSet<String> = there
                .flat_map(|(_, sandbox)| {
                    let pause = has_pause(sandbox).then(|| sandbox.id.clone());
                    pause.into_iter().chain([app(sandbox)])
                })
                .collect();
            let what = What::ContainersListed {
                source: name.to_owned(),
                partial: self.partial(source),
                ids,
            };
            told.push(at(time, what));
        }
        told
    }

    pub(super) fn cri(&self, time: i64) -> Vec<Event> {
        let failure = self.failure(Source::Cri, "cri", time);
        if matches!(
            self.lacks(Source::Cri),
            Some(Absence::Failed | Absence::NotAsked)
        ) {
            return failure.into_iter().collect();
        }
        let there = self
            .sandboxes()
            .filter(|(_, sandbox)| sandbox.cri.is_some());
        let there = there.filter(|(_, sandbox)| self.tells(Source::Cri, sandbox.inode));
        let sandboxes: Vec<_> = there.map(|(pod, sandbox)| listed(pod, sandbox)).collect();
        let mut event = story::cri(time, &sandboxes);
        if let What::SandboxesListed { partial, .. } = &mut event.what {
            *partial = self.partial(Source::Cri);
        }
        vec![event]
    }

    /// CNI's configuration, libcni's cache, the store of reservations.
    fn cni(&self, time: i64) -> Vec<Event> {
        let mut told = Vec::new();
        told.extend(self.failure(Source::Networks, "networks", time));
        let unread = |source| self.partial(source).into_iter().collect::<Vec<_>>();
        if matches!(self.lacks(Source::Networks), None | Some(Absence::Half)) {
            let all = self.lacks(Source::Networks).is_none();
            let what = What::NetworksListed {
                networks: all.then(|| self.network()).into_iter().collect(),
                unread: unread(Source::Networks),
            };
            told.push(at(time, what));
        }
        told.extend(self.failure(Source::Libcni, "libcni", time));
        if matches!(self.lacks(Source::Libcni), None | Some(Absence::Half)) {
            let there = self.sandboxes().filter(|(_, sandbox)| sandbox.cached);
            let there = there.filter(|(_, sandbox)| self.tells(Source::Libcni, sandbox.inode));
            let attachments: Vec<_> = there
                .flat_map(|(pod, sandbox)| attachments(pod, sandbox))
                .collect();
            let what = What::AttachmentsListed {
                folder: PathBuf::from("/var/lib/cni/results"),
                attachments,
                unread: unread(Source::Libcni),
            };
            told.push(at(time, what));
        }
        told.extend(self.store(time));
        told
    }

    /// The store of reservations, whole.
    pub(super) fn store(&self, time: i64) -> Vec<Event> {
        let mut told = Vec::new();
        let Ipam::Kept(kind) = self.truth.ipam else {
            return told;
        };
        told.extend(self.failure(Source::Store, kind.as_str(), time));
        if matches!(self.lacks(Source::Store), None | Some(Absence::Half)) {
            let reservations = self.reservations(kind);
            let reservations = reservations.into_iter();
            let store = Store {
                path: PathBuf::from(store_path(kind)),
                kind,
                reservations: reservations
                    .filter(|each| self.tells(Source::Store, last(each.address)))
                    .collect(),
                unread: self.partial(Source::Store).into_iter().collect(),
                ..Store::default()
            };
            told.push(at(time, What::StoreListed { store }));
        }
        told
    }

    pub(super) fn network(&self) -> Network {
        let (plugin, ipam) = match self.truth.ipam {
            Ipam::Kept(StoreKind::HostLocal) => ("bridge", "host-local"),
            Ipam::Kept(StoreKind::Calico) => ("calico", "calico-ipam"),
            Ipam::Kept(StoreKind::Terway) => ("terway", "terway"),
            Ipam::Kept(StoreKind::Aws) => ("aws-cni", "aws-cni"),
            Ipam::Kept(StoreKind::Whereabouts) => ("macvlan", "whereabouts"),
            Ipam::Kept(StoreKind::Cilium) => ("cilium-cni", "cilium"),
            Ipam::Other(name) => ("azure-vnet", name),
        };
        let is_host_local = self.truth.ipam == Ipam::Kept(StoreKind::HostLocal);
        Network {
            plugin: plugin.to_owned(),
            ipam: Some(ipam.to_owned()),
            store: is_host_local.then(|| PathBuf::from(story::STORE)),
            ..story::network(
                plugin,
                &is_host_local
                    .then(|| story::range(2, 254))
                    .into_iter()
                    .collect::<Vec<_>>(),
            )
        }
    }

    fn reservations(&self, kind: StoreKind) -> Vec<Reservation> {
        let path = |address: IpAddr| match kind {
            StoreKind::HostLocal => PathBuf::from(store_path(kind)).join(address.to_string()),
            _ => PathBuf::from(store_path(kind)),
        };
        let mut all: Vec<_> = self
            .sandboxes()
            .filter(|(_, sandbox)| sandbox.reserved)
            .map(|(pod, sandbox)| Reservation {
                address: sandbox.own(),
                holder: ReservationHolder {
                    path: path(sandbox.own()),
                    container_id: sandbox.id.clone(),
                    ifname: Some(String::from("eth0")),
                    pod: (kind != StoreKind::HostLocal).then(|| pod_ref(pod)),
                },
                modified: s(sandbox.made),
            })
            .collect();
        all.extend(self.truth.leaks.iter().map(|leak| {
            let address = story::ip(*leak);
            Reservation {
                address,
                holder: ReservationHolder {
                    path: path(address),
                    container_id: format!("dead{leak:04x}").repeat(8),
                    ifname: Some(String::from("eth0")),
                    pod: None,
                },
                modified: s(1_000),
            }
        }));
        all
    }

    /// What the store says of an address that is asked about.
    pub(super) fn answer(&self, address: IpAddr, time: i64) -> Event {
        let silent = |stores| What::Reservation {
            address,
            stores,
            holder: None,
        };
        let Ipam::Kept(kind) = self.truth.ipam else {
            return at(time, silent(Vec::new()));
        };
        let all = self.reservations(kind);
        let holder = all.into_iter().find(|each| each.address == address);
        let told = self.lacks(Source::Store).is_none();
        let half = self.lacks(Source::Store) == Some(Absence::Half)
            && holder.is_some()
            && self.tells(Source::Store, last(address));
        if !told && !half {
            return at(time, silent(Vec::new()));
        }
        let what = What::Reservation {
            address,
            stores: vec![PathBuf::from(store_path(kind))],
            holder: holder.map(|each| each.holder),
        };
        at(time, what)
    }

    /// The pods that the API has.
    pub(super) fn listed_pods(&self, time: i64) -> impl Iterator<Item = Pod> {
        let there = self
            .truth
            .pods
            .iter()
            .filter(move |pod| pod.is_listed(time));
        there.map(listed_pod)
    }

    pub(super) fn pods(&self, time: i64) -> Vec<Event> {
        let absence = self.lacks(Source::Pods);
        if matches!(absence, Some(Absence::Failed | Absence::NotAsked)) {
            let failure = self.failure(Source::Pods, "pods", time);
            return failure.into_iter().collect();
        }
        let there = self.truth.pods.iter().filter(|pod| match absence {
            Some(Absence::Half) => pod.is_listed(time) && pod.namespace == "shop",
            Some(Absence::Old) => pod.is_listed(OLD_LIST) && pod.made() <= OLD_LIST,
            _ => pod.is_listed(time),
        });
        let pods: Vec<Pod> = there.clone().map(listed_pod).collect();
        let mut event = story::listed(time, &pods);
        if let What::PodsListed {
            made_after, whole, ..
        } = &mut event.what
        {
            *whole = absence.is_none();
            if absence == Some(Absence::Old) {
                *made_after = Some(s(there.map(TruePod::made).max().unwrap_or(0)));
            }
        }
        vec![event]
    }
}

fn listed_pod(pod: &TruePod) -> Pod {
    let newest = pod.sandboxes.last();
    let mut uids = BTreeSet::from([pod.uid.clone()]);
    if matches!(pod.life, Life::Static(_)) {
        uids.insert(format!(
            "9a1b2c3d-0000-4000-8000-00000000{}",
            &pod.uid[28..]
        ));
    }
    Pod {
        namespace: pod.namespace.to_owned(),
        uids,
        host_network: pod.host_network,
        phase: Some(String::from(match pod.life {
            Life::Finished(phase, _) => phase,
            _ => "Running",
        })),
        grace_seconds: u64::try_from(pod.grace).ok(),
        finished: match pod.life {
            Life::Finished(_, since) => Some(s(since)),
            _ => None,
        },
        deletion: match pod.life {
            Life::Terminating(by) => Some(s(by)),
            _ => None,
        },
        ips: match newest {
            Some(newest) => vec![newest.own()],
            None => vec![IpAddr::from([192, 168, 0, 10])],
        },
        ..story::pod(&pod.name, &pod.uid, &[])
    }
}

fn listed(pod: &TruePod, sandbox: &TrueSandbox) -> RuntimeSandbox {
    let ready = sandbox.cri == Some(true);
    RuntimeSandbox {
        id: sandbox.id.clone(),
        pod: pod_ref(pod),
        attempt: sandbox.attempt,
        ready: Some(ready),
        created: Some(s(sandbox.made)),
        pid: ready.then_some(sandbox.inode * 10),
        netns_path: Some(mount(sandbox.inode)),
        netns: sandbox.is_mounted().then(|| ns(sandbox.inode)),
        ips: vec![sandbox.own()],
        containers: vec![RuntimeContainer {
            id: app(sandbox),
            name: String::from("app"),
            ..RuntimeContainer::default()
        }],
        ..RuntimeSandbox::default()
    }
}

/// What libcni remembers of it.
fn attachments(pod: &TruePod, sandbox: &TrueSandbox) -> Vec<Attachment> {
    let one = |network: &str, ifname: &str, attached: Attached, mac: Option<String>| Attachment {
        path: PathBuf::from(format!(
            "/var/lib/cni/results/{network}-{}-{ifname}",
            sandbox.id
        )),
        network: network.to_owned(),
        container_id: sandbox.id.clone(),
        ifname: ifname.to_owned(),
        netns_path: mount(sandbox.inode),
        netns: sandbox.is_mounted().then(|| ns(sandbox.inode)),
        host_devices: host_devices(sandbox, attached),
        mac,
        pod: Some(pod_ref(pod)),
        ips: vec![IpAddr::from(attached.address)],
        written: s(sandbox.made + 1),
    };
    let first = one("pods", "eth0", sandbox.primary, Some(mac(sandbox.inode)));
    let second = sandbox
        .second
        .map(|second| one("fast", "net1", second, None));
    std::iter::once(first).chain(second).collect()
}

fn host_devices(sandbox: &TrueSandbox, attached: Attached) -> Vec<String> {
    let host_end = host_end(sandbox.inode, index(sandbox));
    match attached.link {
        Link::Macvlan(_) | Link::Ipvlan(_) | Link::Physical(_) => Vec::new(),
        _ => vec![host_end_name(attached, host_end)],
    }
}

/// The inode of what a pod has made inside.
pub(super) fn inner(inode: u32) -> u32 {
    inode + 10
}

/// The index of a sandbox's own device.
fn index(sandbox: &TrueSandbox) -> u32 {
    3 + sandbox.inode % 7
}

fn host_end(inode: u32, inside: u32) -> u32 {
    inode * 20 + inside
}

/// Its name, which CNI tells.
fn host_end_name(attached: Attached, index: u32) -> String {
    match attached.link {
        Link::Bridge(_) => format!("veth{index:08x}"),
        _ => format!("cali{index:011x}"),
    }
}

fn mac(inode: u32) -> String {
    format!("0a:00:00:00:{:02x}:{:02x}", inode / 256, inode % 256)
}

fn last(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(v4) => u32::from(v4.octets()[3]),
        IpAddr::V6(_) => 0,
    }
}

fn device(index: u32, name: &str, kind: Option<&str>) -> Device {
    Device {
        index,
        name: name.to_owned(),
        kind: kind.map(str::to_owned),
        up: true,
        ..Device::default()
    }
}

fn on(address: [u8; 4], ifname: &str, kind: Option<&str>) -> Address {
    Address {
        address: IpAddr::from(address),
        ifname: ifname.to_owned(),
        link_kind: kind.map(str::to_owned),
        dad: None,
        ..story::address(0)
    }
}

/// A pod's end of what it is attached to.
fn end(inode: u32, attached: Attached, index: u32, name: &str) -> Device {
    let stacked = |kind, parent| Device {
        link: Some(parent),
        link_nsid: Some(0),
        mac: Some(mac(inode)),
        ..device(index, name, Some(kind))
    };
    match attached.link {
        Link::Bridge(_) | Link::Routed | Link::Vrf(_) | Link::Tenant(_) | Link::Loose => {
            story::veth(index, name, host_end(inode, index))
        }
        Link::Macvlan(parent) => stacked("macvlan", parent),
        Link::Ipvlan(parent) => stacked("ipvlan", parent),
        Link::Physical(slot) => Device {
            hardware: Some(format!("pci 0000:{:02x}:06.0", slot % 256)),
            ..device(index, name, None)
        },
    }
}
