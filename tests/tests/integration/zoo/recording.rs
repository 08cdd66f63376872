//! A situation as the recording of a `scan`: what a look would have told the
//! engine, twice, for `replay`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::situation::{Api, Device, InCri, Listed, Network, Pod, Situation, Source, Task, digits};

/// When the look was.
fn now() -> SystemTime {
    humantime::parse_rfc3339("2026-11-23T12:00:00Z").expect("a time")
}

/// So many seconds before the look.
pub(super) fn ago(seconds: u64) -> String {
    humantime::format_rfc3339_micros(now() - Duration::from_secs(seconds)).to_string()
}

/// So many milliseconds after the look.
pub(super) fn after(ms: u64) -> String {
    humantime::format_rfc3339_micros(now() + Duration::from_millis(ms)).to_string()
}

/// The first line.
pub(super) fn header(command: &str) -> Value {
    json!({
        "schema": "node-tracer/1", "type": "recording", "time": ago(0), "node": "worker-1",
        "boot_id": "3b893922-8aa7-4101-984c-51f49b9a5edd", "stall_threshold_ms": 5000,
        "command": command, "version": "0.1.0",
    })
}

/// Where a device is: the namespace's inode, and its index there.
type Place = (u32, u32);

/// The store of a pod network of before.
pub(super) const EARLIER: &str = "/var/lib/cni/networks/k8s-before";

const HOST: u32 = 4_026_531_840;

/// A namespace while it is written down.
struct Space<'a> {
    inode: u32,
    devices: &'a [Device],
    tasks: &'a [Task],
    mount: Option<&'a str>,
    pod: Option<&'a Pod>,
    age: u64,
}

struct Writer<'a> {
    situation: &'a Situation,
    spaces: Vec<Space<'a>>,
    /// Host ends of cables, with what they lead to: (name, bridge, inode, index).
    ends: Vec<(String, Option<&'static str>, Place)>,
    /// When this look is, s ago.
    look: u64,
    events: Vec<Value>,
}

/// The name of the node's end of a pod's cable.
pub(super) fn host_end(given: &str, owner: &str, device: &str) -> String {
    match given {
        "" => format!("veth{}", digits(&format!("{owner} {device}"), 8)),
        given => given.to_owned(),
    }
}

/// The MAC address of a device.
pub(super) fn mac(of: &str) -> String {
    let raw = digits(of, 10);
    let pairs: Vec<&str> = (0..5).map(|at| &raw[at * 2..at * 2 + 2]).collect();
    format!("02:{}", pairs.join(":"))
}

/// All lines of a situation's recording.
pub(super) fn lines(situation: &Situation) -> Vec<Value> {
    let mut spaces = Vec::new();
    let own = situation.pods.iter().filter(|pod| pod.spaced);
    for (number, pod) in own.enumerate() {
        spaces.push(Space {
            inode: 4_026_532_200 + 10 * number as u32,
            devices: &pod.devices,
            tasks: &pod.tasks,
            mount: pod.mount.as_deref(),
            pod: Some(pod),
            age: pod.age,
        });
    }
    for (number, other) in situation.others.iter().enumerate() {
        spaces.push(Space {
            inode: 4_026_533_200 + 10 * number as u32,
            devices: &other.devices,
            tasks: &other.tasks,
            mount: other.mount.as_deref(),
            pod: None,
            age: other.age,
        });
    }
    let mut ends = Vec::new();
    for space in &spaces {
        for (at, device) in space.devices.iter().enumerate() {
            if let Some((name, bridge)) = &device.host_end {
                let owner = space.inode.to_string();
                let name = host_end(name, &owner, &device.name);
                ends.push((name, *bridge, (space.inode, at as u32 + 2)));
            }
        }
    }
    let mut writer = Writer {
        situation,
        spaces,
        ends,
        look: 0,
        events: Vec::new(),
    };
    let mut lines = vec![header("scan")];
    lines[0]["time"] = json!(ago(situation.watched.first().copied().unwrap_or(0)));
    for &look in situation.watched.iter().chain(&[0]) {
        writer.look = look;
        writer.events.clear();
        writer.look();
        // The look, and the one that confirms it.
        let begun = now() - Duration::from_secs(look);
        for begun in [begun, begun + Duration::from_millis(50)] {
            for (number, event) in writer.events.iter().enumerate() {
                // One thing is read after the other, the pods last.
                let at = begun + Duration::from_micros(10 * number as u64);
                let at = humantime::format_rfc3339_micros(at).to_string();
                let mut event = event.clone();
                if event["event"] == "pods-listed" && situation.list_age == 0 {
                    event["at"] = json!(at);
                }
                event["time"] = json!(at);
                lines.push(event);
            }
            lines.push(json!({ "type": "looked" }));
        }
        lines.push(json!({ "type": "judged" }));
    }
    lines.push(json!({ "type": "ended", "time": after(100) }));
    lines
}

impl Writer<'_> {
    fn event(&mut self, kind: &str, fields: Value) {
        let mut event = Map::new();
        event.insert("event".to_owned(), json!(kind));
        if let Value::Object(fields) = fields {
            event.extend(fields);
        }
        self.events.push(Value::Object(event));
    }

    fn missing(&self, source: Source) -> bool {
        self.situation.missing.contains(&source)
    }

    fn look(&mut self) {
        self.host();
        for at in 0..self.spaces.len() {
            self.space(at);
        }
        self.containers();
        if self.missing(Source::Cri) {
            self.event(
                "source-failed",
                json!({ "source": "cri", "error": "containerd.sock does not answer" }),
            );
        } else {
            self.runtime();
        }
        let network = network(&self.situation.network);
        self.event("networks-listed", json!({ "networks": network }));
        if !self.missing(Source::Cache) {
            self.cache();
        }
        let store = self.situation.network.store.is_some() && !self.missing(Source::Store);
        if store {
            self.store();
        }
        self.earlier_store();
        if self.situation.network.ipam == Some("calico-ipam") && !store {
            let error = "the API server refuses ipamblocks.crd.projectcalico.org (403 Forbidden)";
            self.event(
                "source-failed",
                json!({ "source": "calico", "error": error }),
            );
        }
        self.api();
        self.event("tick", json!({}));
        self.reservations(store);
        self.event("tick", json!({}));
    }

    /// Index of a device of the node.
    fn host_index(&self, name: &str) -> Option<u32> {
        let at = self
            .situation
            .host
            .iter()
            .position(|device| device.name == name)?;
        Some(at as u32 + 2)
    }

    fn host(&mut self) {
        let situation = self.situation;
        let netns = json!({ "inode": HOST, "cookie": 1 });
        self.event("netns-found", json!({ "netns": netns, "host": true }));
        let mut devices = Vec::new();
        for (at, device) in situation.host.iter().enumerate() {
            let index = at as u32 + 2;
            self.addresses(&netns, device, 86_400);
            let master = device.master.and_then(|name| self.host_index(name));
            let parent = device.parent.and_then(|name| self.host_index(name));
            let hardware = device.kind.is_none().then_some("pci 0000:00:03.0");
            let twin = self.twin(device, HOST, index);
            let link = parent.or(twin.as_ref().map(|_| index + 100));
            let (link, nsid) = if device.orphan {
                (Some(2), Some(99))
            } else {
                (link, None)
            };
            devices.push(entry(device, (HOST, index), link, nsid, master, hardware));
            devices.extend(twin);
        }
        let ends = self.ends.clone();
        let mut routes = Vec::new();
        for (at, (name, bridge, (inode, index))) in ends.iter().enumerate() {
            let own = (situation.host.len() + at) as u32 + 2;
            let nsid = self.spaces.iter().position(|space| space.inode == *inode);
            let master = bridge.and_then(|name| self.host_index(name));
            let space = self.spaces.iter().find(|space| space.inode == *inode);
            let of = space.and_then(|space| space.devices.get(*index as usize - 2));
            let device = Device::of(of.and_then(|of| of.kind).unwrap_or("veth"), name);
            let nsid = nsid.and_then(|nsid| i32::try_from(nsid).ok());
            devices.push(entry(
                &device,
                (HOST, own),
                Some(*index),
                nsid,
                master,
                None,
            ));
            let space = self.spaces.iter().find(|space| space.inode == *inode);
            let of = space.and_then(|space| space.devices.get(*index as usize - 2));
            if let (None, Some(of)) = (bridge, of) {
                for address in &of.addresses {
                    let bare = address.split('/').next();
                    let length = if address.contains(':') { 128 } else { 32 };
                    routes.push(json!({ "to": [bare, length], "device": own }));
                }
            }
        }
        let devices = json!({ "netns": netns, "devices": devices, "routes": routes });
        self.event("netns-devices", devices);
    }

    /// The other end of a cable that stays in its namespace.
    fn twin(&self, device: &Device, inode: u32, index: u32) -> Option<Value> {
        let alone = device.kind == Some("veth") && device.host_end.is_none() && !device.orphan;
        let name = format!("z{}", digits(&format!("{inode}{}", device.name), 8));
        let other = Device::of("veth", &name);
        let place = (inode, index + 100);
        alone.then(|| entry(&other, place, Some(index), None, None, None))
    }

    fn addresses(&mut self, netns: &Value, device: &Device, age: u64) {
        for address in &device.addresses {
            let (bare, prefix) = address.split_once('/').unwrap_or((address, "32"));
            let prefix: u8 = prefix.parse().unwrap_or(32);
            let mut added = json!({
                "netns": netns, "address": bare, "prefix": prefix, "ifname": device.name,
                "made": ago(device.made.unwrap_or(age)), "found": true,
            });
            if let Some(kind) = device.kind {
                added["link_kind"] = json!(kind);
            }
            self.event("address-added", added);
        }
        // The kernel gives every device that is up one of its own.
        if let Some(kind @ ("veth" | "bridge" | "macvlan" | "vxlan")) = device.kind {
            let id = digits(&format!("{netns} {}", device.name), 4);
            let link_local = json!({
                "netns": netns, "address": format!("fe80::ff:fe00:{id}"), "prefix": 64,
                "ifname": device.name, "link_kind": kind, "made": ago(age), "found": true,
            });
            self.event("address-added", link_local);
        }
    }

    fn space(&mut self, at: usize) {
        let space = &self.spaces[at];
        let (inode, devices, age) = (space.inode, space.devices, space.age);
        let (pod, mount, tasks) = (space.pod, space.mount, space.tasks);
        let netns = json!({ "inode": inode, "cookie": 1000 + at });
        self.event("netns-found", json!({ "netns": netns, "host": false }));
        for device in devices {
            self.addresses(&netns, device, age);
        }
        let tasks: Vec<Value> = tasks
            .iter()
            .enumerate()
            .map(|(number, each)| task(each, pod, (at * 20 + number) as u32, age))
            .collect();
        let holders = json!({
            "netns": netns, "tasks": tasks, "task_count": tasks.len(),
            "mounts": mount.into_iter().collect::<Vec<_>>(),
        });
        self.event("netns-holders", holders);
        let mut listed = Vec::new();
        for (number, device) in devices.iter().enumerate() {
            let index = number as u32 + 2;
            let end = self
                .ends
                .iter()
                .position(|(_, _, place)| *place == (inode, index));
            let in_own = |name: &str| devices.iter().position(|each| each.name == name);
            let link = match (device.parent, end) {
                (Some(parent), _) if device.inner => in_own(parent).map(|at| at as u32 + 2),
                (Some(parent), _) => self.host_index(parent),
                (None, Some(end)) => Some((self.situation.host.len() + end) as u32 + 2),
                (None, None) => None,
            };
            let nsid = link.filter(|_| !device.inner).map(|_| 0);
            let twin = self.twin(device, inode, index);
            let link = link.or(twin.as_ref().map(|_| index + 100));
            let master = device.master.and_then(in_own).map(|at| at as u32 + 2);
            let hardware = device.kind.is_none().then_some("pci 0000:00:1f.2");
            listed.push(entry(device, (inode, index), link, nsid, master, hardware));
            listed.extend(twin);
        }
        let mut routes = Vec::new();
        if let Some(primary) = pod.and_then(Pod::primary) {
            let routed = matches!(&devices[primary].host_end, Some((_, None)));
            let gateway = if routed { "169.254.1.1" } else { "10.244.7.1" };
            routes.push(json!({ "gateway": gateway, "device": primary + 2 }));
        }
        for (name, gateway) in pod.map(|pod| pod.routes.as_slice()).unwrap_or_default() {
            if let Some(at) = devices.iter().position(|device| device.name == *name) {
                routes.push(json!({ "gateway": gateway, "device": at + 2 }));
            }
        }
        let mut neighbours = Vec::new();
        if let Some(primary) = pod.filter(|pod| pod.neighbour).and_then(Pod::primary)
            && self.situation.network.writes_neighbours()
        {
            neighbours.push(json!({
                "address": "169.254.1.1", "device": primary + 2, "mac": "02:00:00:00:00:01",
                "state": "permanent",
            }));
        }
        let devices = json!({
            "netns": netns, "devices": listed, "routes": routes, "neighbours": neighbours,
            "host_nsid": 0,
        });
        self.event("netns-devices", devices);
        self.stalls(at, &netns);
    }

    fn stalls(&mut self, at: usize, netns: &Value) {
        let space = &self.spaces[at];
        let (pod, age, tasks) = (space.pod, space.age, space.tasks);
        for (number, each) in tasks.iter().enumerate() {
            if let Some((seconds, stack)) = each.stuck {
                let task = task(each, pod, (at * 20 + number) as u32, age);
                let wchan = stack.first().and_then(|line| line.split('+').next());
                let blocked = json!({
                    "task": task, "since": ago(seconds), "found": true, "netns": netns,
                    "wchan": wchan, "stack": stack,
                });
                self.event("task-blocked", blocked);
            }
        }
    }

    fn containers(&mut self) {
        let pods = self.situation.pods.iter();
        let alive = pods.filter(|pod| pod.tasks.iter().any(|task| task.in_pod));
        let ids: Vec<String> = alive
            .flat_map(|pod| [pod.sandbox.clone(), container(pod)])
            .collect();
        self.event(
            "containers-listed",
            json!({ "source": "cgroup", "ids": ids }),
        );
        self.event("containers-listed", json!({ "source": "shim", "ids": ids }));
    }

    fn netns_of(&self, pod: &Pod) -> Option<Value> {
        let same = |other: &&Pod| std::ptr::eq(*other, pod);
        let at = self
            .spaces
            .iter()
            .position(|space| space.pod.as_ref().is_some_and(same))?;
        Some(json!({ "inode": self.spaces[at].inode }))
    }

    fn runtime(&mut self) {
        let pods = self.situation.pods.iter();
        let mut sandboxes = Vec::new();
        for pod in pods.filter(|pod| pod.in_cri != InCri::Gone) {
            let containers: Vec<Value> = pod
                .tasks
                .iter()
                .filter(|task| task.in_pod && task.comm != "pause")
                .map(|task| json!({ "id": container(pod), "name": task.comm, "state": "running" }))
                .collect();
            let mut sandbox = json!({
                "id": pod.sandbox, "pod": reference(pod), "attempt": 0,
                "ready": pod.in_cri == InCri::Ready, "created": ago(pod.age),
                "ips": if pod.host_network { json!([]) } else { json!(pod.ips) },
                "containers": containers,
            });
            if pod.host_network {
                sandbox["host_network"] = json!(true);
            } else {
                sandbox["netns_path"] = json!(pod.mount);
                sandbox["netns"] = json!(self.netns_of(pod));
            }
            sandboxes.push(sandbox);
        }
        let list = json!({
            "source": "cri", "endpoint": "/run/containerd/containerd.sock",
            "runtime": "containerd 1.7.27", "sandboxes": sandboxes,
        });
        self.event("sandboxes-listed", list);
    }

    /// What CNI made on the host for a device.
    fn host_devices(&self, place: Place) -> Vec<&str> {
        let ends = self.ends.iter().filter(|(_, _, its)| *its == place);
        let names = ends.flat_map(|(name, bridge, _)| [*bridge, Some(name.as_str())]);
        names.flatten().collect()
    }

    fn cache(&mut self) {
        let folder = "/var/lib/cni/results";
        let mut attachments = Vec::new();
        for pod in self.situation.pods.iter().filter(|pod| pod.cached) {
            for (at, device) in pod.devices.iter().enumerate() {
                let Some(name) = device.attached else {
                    continue;
                };
                let inode = self.netns_of(pod).and_then(|netns| netns["inode"].as_u64());
                let inode = inode.unwrap_or_default() as u32;
                attachments.push(json!({
                    "path": format!("{folder}/{name}-{}-{}", pod.sandbox, device.cni_name()),
                    "network": name, "container_id": pod.sandbox, "ifname": device.cni_name(),
                    "netns_path": pod.mount, "netns": self.netns_of(pod),
                    "mac": mac(&format!("{inode} {}", at + 2)), "pod": reference(pod),
                    "host_devices": self.host_devices((inode, at as u32 + 2)),
                    "ips": ips(pod, device), "written": ago(pod.age),
                }));
            }
        }
        for (at, other) in self.situation.others.iter().enumerate() {
            let Some((network, container)) = &other.cached else {
                continue;
            };
            let ips = other.devices.iter().flat_map(|device| &device.addresses);
            let ips: Vec<_> = ips
                .filter_map(|address| address.split('/').next())
                .collect();
            let netns = 4_026_533_200_u32 + 10 * at as u32;
            attachments.push(json!({
                "path": format!("{folder}/{network}-{container}-eth0"), "network": network,
                "container_id": container, "ifname": "eth0", "netns_path": other.mount,
                "netns": { "inode": netns }, "ips": ips, "written": ago(other.age),
            }));
        }
        for address in &self.situation.earlier {
            let container = digits(address, 64);
            attachments.push(json!({
                "path": format!("{folder}/k8s-before-{container}-eth0"), "network": "k8s-before",
                "container_id": container, "ifname": "eth0",
                "netns_path": format!("/run/netns/cni-{}", &container[..8]), "ips": [address],
                "pod": { "namespace": "shop", "name": format!("before-{}", &container[..5]) },
                "written": ago(864_000),
            }));
        }
        let list = json!({ "folder": folder, "attachments": attachments });
        self.event("attachments-listed", list);
    }

    /// Reservations by address: container and age.
    fn taken(&self) -> BTreeMap<String, (String, u64)> {
        let mut taken = BTreeMap::new();
        for pod in self.situation.pods.iter().filter(|pod| pod.reserved) {
            for ip in &pod.ips {
                taken.insert(ip.to_string(), (pod.sandbox.clone(), pod.age));
            }
        }
        for (address, container, age) in &self.situation.reserved {
            taken.insert((*address).to_owned(), (container.clone(), *age));
        }
        taken
    }

    fn store(&mut self) {
        let folder = store_of(&self.situation.network);
        let taken = self.taken();
        let reservations: Vec<Value> = taken
            .iter()
            .map(|(address, (container, age))| {
                json!({
                    "address": address, "path": format!("{folder}/{address}"),
                    "container_id": container, "ifname": "eth0", "modified": ago(*age),
                })
            })
            .collect();
        let (kind, _) = self.situation.network.store.unwrap_or_default();
        let mut store = json!({ "path": folder, "reservations": reservations });
        if kind != "host-local" {
            store["kind"] = json!(kind);
        }
        self.event("store-listed", store);
    }

    fn earlier_store(&mut self) {
        let addresses = &self.situation.earlier;
        if addresses.is_empty() {
            return;
        }
        let reservations: Vec<Value> = addresses
            .iter()
            .map(|address| {
                json!({
                    "address": address, "path": format!("{EARLIER}/{address}"),
                    "container_id": digits(address, 64), "ifname": "eth0", "modified": ago(864_000),
                })
            })
            .collect();
        self.event(
            "store-listed",
            json!({ "path": EARLIER, "reservations": reservations }),
        );
    }

    /// What the store says of each address; where there is none, that.
    fn reservations(&mut self, store: bool) {
        let folder = store_of(&self.situation.network);
        let stores: Vec<&String> = Some(&folder).filter(|_| store).into_iter().collect();
        let taken = if store { self.taken() } else { BTreeMap::new() };
        let mut addresses: Vec<String> = taken.keys().cloned().collect();
        for pod in &self.situation.pods {
            addresses.extend(pod.ips.iter().map(ToString::to_string));
        }
        addresses.sort();
        addresses.dedup();
        for address in addresses {
            let mut answer = json!({ "address": address, "stores": stores });
            if let Some((container, _)) = taken.get(&address) {
                let path = format!("{folder}/{address}");
                answer["holder"] =
                    json!({ "path": path, "container_id": container, "ifname": "eth0" });
            }
            self.event("reservation", answer);
        }
    }

    fn api(&mut self) {
        let look = self.look;
        let listed = |pod: &&Pod| {
            pod.listed != Listed::Gone || pod.deleted.is_some_and(|deleted| look > deleted)
        };
        let all = self.situation.pods.iter().filter(listed);
        let (source, whole, some): (_, _, &[&str]) = match self.situation.api {
            Api::None => return,
            Api::Failed => {
                let failed = json!({ "source": "pods", "error": "the API server does not answer" });
                return self.event("source-failed", failed);
            }
            Api::Server => ("API server", true, &[]),
            Api::File(namespaces) => ("/root/pods.json", false, namespaces),
            // What a file's document says of itself, a recording has lost.
            Api::Single(_) => return,
        };
        let named = |pod: &&Pod| some.is_empty() || some.contains(&pod.namespace.as_str());
        let mut pods: Vec<Value> = all.filter(named).map(listing).collect();
        if some.is_empty() {
            pods.push(proxy());
        }
        for pod in &mut pods {
            pod["node"] = json!(self.situation.list_node);
        }
        let mut list = json!({ "source": source, "at": ago(self.look + self.situation.list_age), "whole": whole, "pods": pods });
        if !whole {
            list["made_after"] = json!(ago(self.look + self.situation.list_age));
        }
        self.event("pods-listed", list);
    }
}

/// A pod that every node has.
fn proxy() -> Value {
    json!({
        "namespace": "kube-system", "name": "kube-proxy-x2x4z",
        "uids": ["00000000-0000-4000-8000-000000000001"], "node": "worker-1",
        "host_network": true, "phase": "Running", "ips": ["192.0.2.10"],
    })
}

fn listing(pod: &Pod) -> Value {
    let mut uids = vec![pod.uid.clone()];
    let hash = pod
        .annotations
        .iter()
        .find(|(key, _)| *key == "kubernetes.io/config.hash");
    // A mirror pod has a UID of the API server's own.
    if let Some((_, hash)) = hash {
        uids = vec![digits(&format!("mirror {}", pod.uid), 32), hash.clone()];
    }
    let phase = match pod.listed {
        Listed::As(phase) => phase,
        _ => "Running",
    };
    let mut item = json!({
        "namespace": pod.namespace, "name": pod.name, "uids": uids, "node": "worker-1",
        "phase": phase, "ips": pod.ips, "grace_seconds": pod.grace,
    });
    if let ("Failed" | "Succeeded", Some(finished)) = (phase, pod.finished) {
        item["finished"] = json!(ago(finished));
    }
    if let Listed::Terminating(seconds) = pod.listed {
        // deletionTimestamp is the end of the grace period.
        let end = i64::try_from(pod.grace).unwrap_or(0) - i64::try_from(seconds).unwrap_or(0);
        item["deletion"] = match u64::try_from(end) {
            Ok(end) => json!(after(end * 1000)),
            Err(_) => json!(ago(end.unsigned_abs())),
        };
    }
    if pod.host_network {
        item["host_network"] = json!(true);
        item["ips"] = json!(["192.0.2.10"]);
    }
    item
}

pub(super) fn container(pod: &Pod) -> String {
    digits(&format!("container {}", pod.sandbox), 64)
}

fn reference(pod: &Pod) -> Value {
    json!({ "namespace": pod.namespace, "name": pod.name, "uid": pod.uid })
}

/// What CNI calls the addresses of a device: the first one's are the pod's.
pub(super) fn ips(pod: &Pod, device: &Device) -> Vec<String> {
    let bare = |address: &&str| address.split('/').next().unwrap_or_default().to_owned();
    match device.attached {
        Some("podnet") => pod.ips.iter().map(ToString::to_string).collect(),
        _ => device.addresses.iter().map(bare).collect(),
    }
}

fn task(task: &Task, pod: Option<&Pod>, number: u32, age: u64) -> Value {
    let pid = 3000 + number;
    let mut value = json!({
        "pid": pid, "tid": pid, "comm": task.comm,
        "state": if task.stuck.is_some() { "D" } else { "S" },
        "start_ticks": 100_000 + number, "started": ago(age),
    });
    if let (Some(pod), true) = (pod, task.in_pod) {
        value["pod_uid"] = json!(pod.uid);
        value["container_id"] = match task.comm {
            "pause" => json!(pod.sandbox),
            _ => json!(container(pod)),
        };
    }
    value
}

fn entry(
    device: &Device,
    (inode, index): Place,
    link: Option<u32>,
    nsid: Option<i32>,
    master: Option<u32>,
    hardware: Option<&str>,
) -> Value {
    let mut entry = json!({
        "index": index, "name": device.name, "mac": mac(&format!("{inode} {index}")), "up": true,
    });
    let optional = [
        ("kind", json!(device.kind)),
        ("link", json!(link)),
        ("link_nsid", json!(nsid)),
        ("master", json!(master)),
        ("hardware", json!(hardware)),
    ];
    for (key, value) in optional {
        if !value.is_null() {
            entry[key] = value;
        }
    }
    entry
}

/// Where a network's reservations are.
pub(super) fn store_of(network: &Network) -> String {
    network
        .store
        .map(|(_, path)| path.to_owned())
        .unwrap_or_default()
}

fn network(network: &Network) -> Value {
    let mut value = json!({
        "file": "/etc/cni/net.d/10-podnet.conflist", "name": network.name,
        "plugin": network.plugin, "ipam": network.ipam,
    });
    if let Some(subnet) = network.subnet {
        let net = subnet.trim_end_matches("0/24");
        value["store"] = json!(store_of(network));
        value["ranges"] = json!([{
            "set": 0, "subnet": subnet, "first": format!("{net}2"), "last": format!("{net}254"),
            "gateway": format!("{net}1"),
        }]);
    }
    match network.plugin {
        "" => json!([]),
        _ => json!([value]),
    }
}
