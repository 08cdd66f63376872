//! A situation with real kernel objects: a node of its own in namespaces of
//! every kind (processes, mounts, networks, host name, cgroups), one shell
//! script that makes all in it and runs the tool there as on any node.
//!
//! When the shell ends, so does all that is in its PID namespace, and with
//! that every namespace, mount and device; the folder of its cgroups is a guard.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use node_tracer_tests::hangfs::HangFs;
use node_tracer_tests::kubepods::Kubepods;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::scripted_cri::{Sandbox, ScriptedCri};
use node_tracer_tests::tracer;
use serde_json::{Value, json};

use super::expect::Expect;
use super::recording::{EARLIER, container, host_end, ips, mac, store_of};
use super::situation::{Api, Device, InCri, Listed, Pod, Situation, Source, Task, digits};

/// What comes first on every node: a root, mounts, the API server's files.
const PRELUDE: &str = r#"
set -e
trap 'echo END' EXIT
hostname worker-1
mount --make-rprivate /
R=$S/root; mkdir -p $R; mount -t tmpfs none $R
for d in bin lib lib32 lib64 sbin usr; do
  if [ -L /$d ]; then cp -a /$d $R/; elif [ -d /$d ]; then mkdir $R/$d; mount --rbind /$d $R/$d; fi
done
for d in proc sys dev etc/cni/net.d run/netns run/zoo tmp var/lib/cni old; do mkdir -p $R/$d; done
case $MODE in
  look) mount -t proc proc $R/proc ;;
  # The first process of a node is in the node's own namespaces.
  trace) mount --rbind /proc $R/proc; mount --bind /proc/$$ $R/proc/1 ;;
esac
mount -t sysfs none $R/sys
mount --rbind /dev $R/dev
mount --bind $S $R/run/zoo
touch $S/node-tracer $S/self
mount --bind $TOOL $R/run/zoo/node-tracer
mount --bind $SELF $R/run/zoo/self
[ -z "$HANG" ] || { mkdir $R/run/hang; mount --bind $HANG $R/run/hang; }
pivot_root $R $R/old
cd /
umount -l /old
mount -t cgroup2 none /sys/fs/cgroup
ln -s /run /var/run
cp -rp /run/zoo/etc/. /etc/cni/net.d/
cp -rp /run/zoo/cni/. /var/lib/cni/
ip link set lo up
# enter FOLDER-OF-CGROUP NAMESPACE COMM: a task.
enter() {
  mkdir -p /sys/fs/cgroup$1 /run/zoo/bin
  [ -e /run/zoo/bin/$3 ] || cp /usr/bin/sleep /run/zoo/bin/$3
  (echo 0 > /sys/fs/cgroup$1/cgroup.procs; exec nsenter --net=$2 /run/zoo/bin/$3 1000) </dev/null >/dev/null 2>&1 &
}
# hang FOLDER-OF-CGROUP NAMESPACE COMM: a task that was killed and waits for FUSE.
hang() {
  mkdir -p /sys/fs/cgroup$1
  for try in 1 2 3 4 5; do
    (echo 0 > /sys/fs/cgroup$1/cgroup.procs; exec nsenter --net=$2 /run/zoo/self stage-helper read $3 /run/hang/hang) </dev/null >/dev/null 2>&1 &
    pid=$!
    for i in $(seq 300); do
      [ "$(cat /proc/$pid/wchan 2>/dev/null)" = request_wait_answer ] && break
      sleep 0.01
    done
    # A request that the server has not taken yet is dropped with its task.
    sleep 0.05
    kill -9 $pid
    sleep 0.05
    grep -q '^State:.D' /proc/$pid/status 2>/dev/null && return
  done
  echo "$3 does not hang" >&2; exit 91
}
# settled COMM COUNT: waits until so many tasks have that name.
settled() {
  for i in $(seq 100); do
    [ $(cat /proc/[0-9]*/comm 2>/dev/null | grep -cx "$1") -ge $2 ] && return
    sleep 0.01
  done
  echo "no $2 tasks $1" >&2; exit 90
}
"#;

/// Kinds of devices that this kernel cannot make.
fn lacking(kind: &'static str) -> bool {
    static KNOWN: OnceLock<std::sync::Mutex<BTreeMap<&'static str, bool>>> = OnceLock::new();
    let known = KNOWN.get_or_init(Default::default);
    let mut known = known
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    *known.entry(kind).or_insert_with(|| {
        let more = match kind {
            "macvlan" | "ipvlan" => format!("link zoo-a type {kind}"),
            "vlan" => String::from("link zoo-a type vlan id 5"),
            "vxlan" => String::from("type vxlan id 7 dstport 4789"),
            "ipip" => String::from("type ipip local 192.0.2.1 remote 192.0.2.2"),
            "vrf" => String::from("type vrf table 10"),
            kind => format!("type {kind}"),
        };
        let script =
            format!("ip link add zoo-a type veth peer name zoo-b && ip link add zoo-c {more}");
        let made = Command::new("unshare")
            .args(["-n", "sh", "-c", &script])
            .stdin(Stdio::null())
            .output();
        !made.is_ok_and(|output| output.status.success())
    })
}

/// Why it cannot be staged here, if it cannot.
pub(super) fn obstacle(situation: &Situation) -> Option<String> {
    let kinds: BTreeSet<&str> = situation.kinds().filter(|kind| lacking(kind)).collect();
    let kinds: Vec<&str> = kinds.into_iter().collect();
    (!kinds.is_empty()).then(|| format!("this kernel has no {}", kinds.join(", ")))
}

/// Where a namespace is, by a label, in the script.
fn path(mount: Option<&str>, label: &str) -> String {
    match mount {
        Some(mount) => mount.to_owned(),
        None => format!("/run/zoo/ns/{}", digits(label, 8)),
    }
}

#[derive(Default)]
struct Script {
    text: String,
    /// Addresses, by the age at which they are to be added.
    addresses: Vec<(u64, String)>,
    counts: BTreeMap<&'static str, usize>,
}

impl Script {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn namespace(&mut self, path: &str) {
        self.line(&format!(
            "mkdir -p $(dirname {path}); touch {path}; unshare --net={path} ip link set lo up"
        ));
    }

    /// Makes a device, in the node's own namespace or in another.
    fn device(&mut self, device: &Device, inside: Option<&str>, owner: &str, age: u64) {
        let name = &device.name;
        let enter = inside
            .map(|path| format!("nsenter --net={path} "))
            .unwrap_or_default();
        let peer = inside
            .map(|path| format!(" netns {path}"))
            .unwrap_or_default();
        let kind = device.kind.unwrap_or("veth");
        match (&device.host_end, device.parent) {
            (Some((end, bridge)), _) => {
                let end = host_end(end, owner, name);
                self.line(&format!(
                    "ip link add {end} type veth peer name {name} address {}{peer}",
                    mac(&format!("{owner} {name}"))
                ));
                let master = bridge.map(|bridge| format!("master {bridge}"));
                self.line(&format!(
                    "ip link set {end} {} up",
                    master.unwrap_or_default()
                ));
                if bridge.is_none() {
                    for address in &device.addresses {
                        let bare = address.split('/').next().unwrap_or_default();
                        self.line(&format!("ip route replace {bare} dev {end} || true"));
                    }
                }
            }
            (None, Some(parent)) if device.inner => {
                let id = name.rsplit('.').next().unwrap_or("5");
                self.line(&format!(
                    "{enter}ip link add link {parent} name {name} type vlan id {id}"
                ));
            }
            (None, Some(parent)) => {
                let more = match kind {
                    "macvlan" => String::from("mode bridge"),
                    "vlan" => format!("id {}", name.rsplit('.').next().unwrap_or("5")),
                    _ => String::new(),
                };
                let temporary = format!("z{}", digits(&format!("{owner}{name}"), 8));
                self.line(&format!(
                    "ip link add link {parent} name {temporary} type {kind} {more}"
                ));
                match inside {
                    Some(_) => self.line(&format!(
                        "ip link set {temporary}{peer}; {enter}ip link set {temporary} name {name}"
                    )),
                    None => self.line(&format!("ip link set {temporary} name {name}")),
                }
            }
            (None, None) => {
                let more = match kind {
                    // Hardware is played by a cable without an end.
                    "veth" => format!("peer name z{}", digits(&format!("{owner}{name}"), 8)),
                    "vxlan" => String::from("id 7 dstport 4789"),
                    "ipip" => String::from("local 192.0.2.10 remote 192.0.2.11"),
                    "vrf" => String::from("table 10"),
                    _ => String::new(),
                };
                self.line(&format!("{enter}ip link add {name} type {kind} {more}"));
            }
        }
        if let Some(master) = device.master {
            self.line(&format!("{enter}ip link set {name} master {master}"));
        }
        self.line(&format!("{enter}ip link set {name} up"));
        for address in &device.addresses {
            let family = if address.contains(':') { "nodad" } else { "" };
            let add = format!("{enter}ip addr add {address} dev {name} {family}");
            self.addresses.push((device.made.unwrap_or(age), add));
        }
    }

    /// The default route, once there are addresses, by the pod network's device.
    fn routes(&mut self, pod: &Pod, path: &str, neighbour: bool) {
        let Some(primary) = pod.primary().map(|at| &pod.devices[at]) else {
            return;
        };
        let (name, enter) = (&primary.name, format!("nsenter --net={path} ip"));
        if primary.addresses.is_empty() || primary.master.is_some() {
            return;
        }
        let mut add = match &primary.host_end {
            Some((_, None)) => format!(
                "{enter} route add 169.254.1.1 dev {name} scope link; {enter} route add default via 169.254.1.1 dev {name}"
            ),
            Some((_, Some("cni0"))) => {
                format!("{enter} route add default via 10.244.7.1 dev {name} onlink || true")
            }
            _ => return,
        };
        if neighbour {
            add.push_str(&format!(
                "; {enter} neigh add 169.254.1.1 dev {name} lladdr 02:00:00:00:00:01 nud permanent"
            ));
        }
        self.addresses.push((0, add));
        for (device, gateway) in &pod.routes {
            let add =
                format!("{enter} route add default via {gateway} dev {device} onlink metric 100");
            self.addresses.push((0, add));
        }
    }

    fn task(&mut self, task: &Task, folder: &str, path: &str) {
        if task.stuck.is_some() {
            return self.line(&format!("hang {folder} {path} {}", task.comm));
        }
        *self.counts.entry(task.comm).or_default() += 1;
        self.line(&format!("enter {folder} {path} {}", task.comm));
    }
}

pub(super) fn cgroup_of(pod: &Pod, task: &Task) -> String {
    let id = match task.comm {
        "pause" => pod.sandbox.clone(),
        _ => container(pod),
    };
    let folder = pod.cgroup.clone();
    let folder = folder.unwrap_or_else(|| format!("/kubepods/besteffort/pod{}", pod.uid));
    format!("{folder}/{}", pod.scope.replace("{id}", &id))
}

fn script(situation: &Situation) -> String {
    let mut script = Script::default();
    for device in &situation.host {
        script.device(device, None, "host", 86_400);
    }
    let own = || situation.pods.iter().filter(|pod| pod.spaced);
    for pod in own() {
        script.namespace(&path(pod.mount.as_deref(), &pod.sandbox));
    }
    for other in &situation.others {
        script.namespace(&path(other.mount.as_deref(), other.label));
    }
    for pod in own() {
        let path = path(pod.mount.as_deref(), &pod.sandbox);
        for device in &pod.devices {
            script.device(device, Some(&path), &pod.sandbox, pod.age);
        }
        let neighbour = pod.neighbour && situation.network.writes_neighbours();
        script.routes(pod, &path, neighbour);
        for task in &pod.tasks {
            let folder = if task.in_pod {
                cgroup_of(pod, task)
            } else {
                String::from("/system")
            };
            script.task(task, &folder, &path);
        }
    }
    for pod in situation.pods.iter().filter(|pod| pod.host_network) {
        for task in &pod.tasks {
            script.task(task, &cgroup_of(pod, task), "/proc/1/ns/net");
        }
    }
    for other in &situation.others {
        let path = path(other.mount.as_deref(), other.label);
        for device in &other.devices {
            script.device(device, Some(&path), other.label, other.age);
        }
        let folder = other
            .cgroup
            .clone()
            .unwrap_or_else(|| String::from("/system"));
        for task in &other.tasks {
            script.task(task, &folder, &path);
        }
    }
    let mut addresses = std::mem::take(&mut script.addresses);
    addresses.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
    let mut before = None;
    for (age, add) in addresses {
        // The kernel notes the time of an address to a hundredth of a second.
        if before.is_some_and(|before| before != age) {
            script.line("sleep 0.03");
        }
        before = Some(age);
        script.line(&add);
    }
    for (comm, count) in std::mem::take(&mut script.counts) {
        script.line(&format!("settled {comm} {count}"));
    }
    // Who is not mounted has only its tasks from here on.
    for pod in own().filter(|pod| pod.mount.is_none()) {
        script.line(&format!("umount {}", path(None, &pod.sandbox)));
    }
    for other in situation
        .others
        .iter()
        .filter(|other| other.mount.is_none())
    {
        script.line(&format!("umount {}", path(None, other.label)));
    }
    for command in &situation.shell {
        script.line(&paths_in(situation, command));
    }
    script.text
}

/// A command of a row, with the paths of what it names.
fn paths_in(situation: &Situation, command: &str) -> String {
    let mut command = command.to_owned();
    for pod in situation.pods.iter().filter(|pod| pod.spaced) {
        let path = path(pod.mount.as_deref(), &pod.sandbox);
        command = command.replace(&format!("{{{}}}", pod.label()), &path);
        let app = cgroup_of(pod, &Task::new("app"));
        command = command.replace(&format!("{{cgroup {}}}", pod.label()), &app);
    }
    command
}

/// What `kubectl get pods -A -o json` prints of a pod.
fn item(pod: &Pod) -> Value {
    let phase = match pod.listed {
        Listed::As(phase) => phase,
        _ => "Running",
    };
    let annotations: serde_json::Map<String, Value> = pod
        .annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    let mirror = annotations.contains_key("kubernetes.io/config.hash");
    let uid = match mirror {
        true => digits(&format!("mirror {}", pod.uid), 32),
        false => pod.uid.clone(),
    };
    let ips: Vec<Value> = pod.ips.iter().map(|ip| json!({ "ip": ip })).collect();
    let mut item = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod.name, "namespace": pod.namespace, "uid": uid, "annotations": annotations,
        },
        "spec": {
            "nodeName": "worker-1", "terminationGracePeriodSeconds": pod.grace,
            "hostNetwork": pod.host_network, "containers": [{ "name": "app", "image": "app" }],
        },
        "status": { "phase": phase, "podIP": pod.ips.first(), "podIPs": ips },
    });
    if let ("Failed" | "Succeeded", Some(finished)) = (phase, pod.finished) {
        let finished = SystemTime::now() - Duration::from_secs(finished);
        let finished = humantime::format_rfc3339_seconds(finished).to_string();
        item["status"]["containerStatuses"] = json!([{
            "name": "app", "state": { "terminated": { "exitCode": 0, "finishedAt": finished } },
        }]);
    }
    if let Listed::Terminating(seconds) = pod.listed {
        let now = SystemTime::now();
        let begun = now - Duration::from_secs(seconds);
        let end = begun + Duration::from_secs(pod.grace);
        item["metadata"]["deletionTimestamp"] =
            json!(humantime::format_rfc3339_seconds(end).to_string());
        item["metadata"]["deletionGracePeriodSeconds"] = json!(pod.grace);
    }
    item
}

/// The list of pods; those of these Kubernetes namespaces.
fn pods(situation: &Situation, namespaces: &[&str]) -> Value {
    let named = |pod: &&Pod| {
        let named = namespaces.is_empty() || namespaces.contains(&pod.namespace.as_str());
        named && pod.listed != Listed::Gone
    };
    let with_node = |pod: &Pod| {
        let mut item = item(pod);
        item["spec"]["nodeName"] = json!(pod.node.unwrap_or(situation.list_node));
        item
    };
    let pods = situation.pods.iter().filter(named);
    let mut items: Vec<Value> = pods.map(with_node).collect();
    if namespaces.is_empty() {
        items.push(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "kube-proxy-x2x4z", "namespace": "kube-system",
                "uid": "00000000-0000-4000-8000-000000000001",
            },
            "spec": {
                "nodeName": situation.list_node, "hostNetwork": true,
                "containers": [{ "name": "kube-proxy", "image": "kube-proxy" }],
            },
            "status": { "phase": "Running", "podIP": "192.0.2.10", "podIPs": [{ "ip": "192.0.2.10" }] },
        }));
    }
    json!({ "apiVersion": "v1", "kind": "PodList", "metadata": { "resourceVersion": "7" }, "items": items })
}

/// Writes what libcni, host-local and the configuration have.
fn files(situation: &Situation, scratch: &Scratch) -> anyhow::Result<()> {
    let write = |path: &str, text: String| -> anyhow::Result<()> {
        let path = scratch.path().join(path);
        fs::create_dir_all(path.parent().context("no folder")?)?;
        Ok(fs::write(path, text)?)
    };
    let network = &situation.network;
    let mut plugin = json!({ "type": network.plugin });
    if let Some(ipam) = network.ipam {
        plugin["ipam"] = json!({ "type": ipam });
        if let Some(subnet) = network.subnet {
            plugin["ipam"]["ranges"] = json!([[{ "subnet": subnet }]]);
        }
    }
    let config = json!({ "cniVersion": "1.0.0", "name": network.name, "plugins": [plugin] });
    fs::create_dir_all(scratch.path().join("etc"))?;
    if !network.plugin.is_empty() {
        write("etc/10-podnet.conflist", config.to_string())?;
    }
    fs::create_dir_all(scratch.path().join("cni"))?;
    let pods = || situation.pods.iter().filter(|pod| !pod.host_network);
    if !situation.missing.contains(&Source::Cache) {
        for pod in pods().filter(|pod| pod.cached) {
            for device in &pod.devices {
                let Some(name) = device.attached else {
                    continue;
                };
                let addresses: Vec<Value> = ips(pod, device)
                    .iter()
                    .map(|ip| json!({ "address": format!("{ip}/24"), "interface": 0 }))
                    .collect();
                let end = device.host_end.as_ref();
                let end = end.map(|(end, _)| host_end(end, &pod.sandbox, &device.name));
                let end = end.map(|end| json!({ "name": end }));
                let inside = json!({
                    "name": device.cni_name(), "sandbox": pod.mount,
                    "mac": mac(&format!("{} {}", pod.sandbox, device.name)),
                });
                let interfaces: Vec<Value> = [inside].into_iter().chain(end).collect();
                let cached = json!({
                    "kind": "cniCacheV1", "containerId": pod.sandbox, "ifName": device.cni_name(),
                    "networkName": name, "netns": pod.mount,
                    "cniArgs": [
                        ["K8S_POD_NAMESPACE", pod.namespace], ["K8S_POD_NAME", pod.name],
                        ["K8S_POD_INFRA_CONTAINER_ID", pod.sandbox], ["K8S_POD_UID", pod.uid],
                    ],
                    "result": {
                        "cniVersion": "1.0.0",
                        "interfaces": interfaces,
                        "ips": addresses,
                    },
                });
                let file = format!("cni/results/{name}-{}-{}", pod.sandbox, device.cni_name());
                write(&file, cached.to_string())?;
                let written = SystemTime::now() - Duration::from_secs(pod.age);
                let file = File::options()
                    .append(true)
                    .open(scratch.path().join(file))?;
                file.set_modified(written)?;
            }
        }
    }
    for other in &situation.others {
        let Some((name, container)) = &other.cached else {
            continue;
        };
        let ips = other.devices.iter().flat_map(|device| &device.addresses);
        let ips: Vec<Value> = ips.map(|address| json!({ "address": address })).collect();
        let cached = json!({
            "kind": "cniCacheV1", "containerId": container, "ifName": "eth0",
            "networkName": name, "netns": other.mount,
            "result": { "cniVersion": "1.0.0", "ips": ips },
        });
        write(
            &format!("cni/results/{name}-{container}-eth0"),
            cached.to_string(),
        )?;
    }
    for address in &situation.earlier {
        let file = format!("{EARLIER}/{address}").replace("/var/lib/", "");
        write(&file, format!("{}\r\neth0", digits(address, 64)))?;
    }
    let store = network.store.is_some_and(|(kind, _)| kind == "host-local");
    if store && !situation.missing.contains(&Source::Store) {
        let folder = store_of(network).replace("/var/lib/", "");
        for pod in pods().filter(|pod| pod.reserved) {
            for ip in &pod.ips {
                write(
                    &format!("{folder}/{ip}"),
                    format!("{}\r\neth0", pod.sandbox),
                )?;
            }
        }
        for (address, container, _) in &situation.reserved {
            write(
                &format!("{folder}/{address}"),
                format!("{container}\r\neth0"),
            )?;
        }
    }
    Ok(())
}

fn runtime(situation: &Situation, scratch: &Scratch) -> anyhow::Result<Option<ScriptedCri>> {
    if situation.missing.contains(&Source::Cri) {
        return Ok(None);
    }
    let cri = ScriptedCri::start(&scratch.path().join("cri.sock"))?;
    let runtime = situation.runtime.as_ref();
    runtime.into_iter().for_each(|runtime| runtime.play(&cri));
    for pod in situation
        .pods
        .iter()
        .filter(|pod| pod.in_cri != InCri::Gone)
    {
        cri.put(
            &pod.sandbox,
            Sandbox {
                name: pod.name.clone(),
                namespace: pod.namespace.clone(),
                uid: pod.uid.clone(),
                ready: pod.in_cri == InCri::Ready,
                addresses: pod.ips.clone(),
                netns: pod.mount.clone().filter(|_| runtime.is_none()),
                host_network: pod.host_network,
                age: Duration::from_secs(1),
                containers: containers(pod),
                info: runtime.and_then(|runtime| runtime.info(pod)),
                lost: false,
            },
        );
    }
    Ok(Some(cri))
}

fn containers(pod: &Pod) -> Vec<(String, String)> {
    let own = |task: &&Task| task.in_pod && task.comm != "pause";
    let own = pod.tasks.iter().filter(own);
    own.map(|task| (container(pod), task.comm.to_owned()))
        .collect()
}

/// What runs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// `scan`, and `explain` where the row asks for it.
    Look,
    /// `trace` for a few seconds. It needs the host's PID namespace: processes
    /// of others are seen, too.
    Trace,
}

/// A node that is about to be.
struct Node<'a> {
    situation: &'a Situation,
    mode: Mode,
    // Dropped in this order: what runs on the node, then its cgroups and files.
    cri: Option<ScriptedCri>,
    hang: Option<HangFs>,
    kubepods: Kubepods,
    scratch: Scratch,
}

/// Stages it, runs the tool there, and returns the records.
pub(super) fn run(situation: &Situation, mode: Mode) -> anyhow::Result<Vec<Value>> {
    let scratch = Scratch::create()?;
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
    files(situation, &scratch)?;
    let stuck = |task: &Task| task.stuck.is_some();
    let others = situation.others.iter().flat_map(|other| &other.tasks);
    let mut tasks = situation
        .pods
        .iter()
        .flat_map(|pod| &pod.tasks)
        .chain(others);
    let mut shell = situation.shell.iter();
    let stuck = tasks.any(stuck) || shell.any(|line| line.contains("/run/hang"));
    let mut node = Node {
        situation,
        mode,
        cri: runtime(situation, &scratch)?,
        hang: if stuck { Some(HangFs::mount()?) } else { None },
        kubepods: Kubepods::reserve(),
        scratch,
    };
    let text = node.script()?;
    fs::write(node.scratch.path().join("node.sh"), text)?;
    node.play()
}

impl Node<'_> {
    fn script(&self) -> anyhow::Result<String> {
        let situation = self.situation;
        let mut text = String::from(PRELUDE);
        text.push_str(&script(situation));
        let options = self.options(&mut text)?;
        if self.mode == Mode::Trace {
            // Its own namespaces, by which its findings are known.
            text.push_str(concat!(
                "for n in /proc/1/ns/net $(cut -d' ' -f5 /proc/self/mountinfo); do\n",
                "  [ \"$(stat -f -Lc %T $n 2>/dev/null)\" = nsfs ] && stat -Lc 'NETNS %i' $n\n",
                "done\n",
            ));
            if !situation.later.is_empty() {
                let later = situation.later.iter();
                let later: Vec<String> = later.map(|line| paths_in(situation, line)).collect();
                writeln!(
                    text,
                    "(sleep 3; {}) </dev/null >/dev/null &",
                    later.join("; ")
                )?;
            }
            writeln!(
                text,
                "/run/zoo/node-tracer trace -o json --duration 6s{options} || true"
            )?;
            return Ok(text);
        }
        let tool = |command: &str| {
            let line = format!("/run/zoo/node-tracer {command} -o json{options}");
            // Its exit code is a part of its verdict; that there is one, the records say.
            match situation
                .tool_in
                .map(|folder| format!("/sys/fs/cgroup{folder}"))
            {
                Some(cgroup) => format!(
                    "(mkdir -p {cgroup}; echo 0 > {cgroup}/cgroup.procs; exec unshare -C {line}) || true\n"
                ),
                None => format!("{line} || true\n"),
            }
        };
        let record = if shown() {
            " --record /run/zoo/record.jsonl"
        } else {
            ""
        };
        let scan = tool(&format!("scan{record}"));
        text.push_str(&format!("{{ {scan}}} | tee /tmp/scan.jsonl\n"));
        for subject in self.subjects() {
            text.push_str(&tool(&format!("explain {subject}")));
        }
        if situation.is_sick() {
            text.push_str(concat!(
                "mkdir -p /run/containerd\n",
                "ln -s /run/zoo/cri.sock /run/containerd/containerd.sock\n",
                "printf '#!/bin/sh\\nexec /run/zoo/self stage-helper crictl \"$@\"\\n' > /run/zoo/crictl\n",
                "chmod 755 /run/zoo/crictl\n",
                "PATH=/run/zoo:$PATH /run/zoo/self stage-helper paste /tmp/scan.jsonl\n",
            ));
        }
        Ok(text)
    }

    /// What is to be explained.
    fn subjects(&self) -> impl Iterator<Item = &'static str> {
        self.situation.expect.iter().filter_map(|each| match each {
            Expect::Explains(subject, _) => Some(*subject),
            _ => None,
        })
    }

    /// The tool's options; what they need is written, or done by the script.
    fn options(&self, text: &mut String) -> anyhow::Result<String> {
        let situation = self.situation;
        let mut options = match (&self.cri, &situation.runtime) {
            (Some(_), Some(runtime)) => {
                text.push_str(&runtime.shell(situation, self.scratch.path())?);
                String::new()
            }
            (Some(_), None) => String::from(" --cri unix:///run/zoo/cri.sock"),
            (None, _) => String::from(" --cri none"),
        };
        if self.hang.is_some() || situation.stall.is_some() {
            let threshold = situation.stall.unwrap_or("50ms");
            write!(options, " --stall-threshold {threshold}")?;
        }
        let server = self.mode == Mode::Look;
        match situation.api {
            Api::None => options.push_str(" --pods none"),
            Api::File(namespaces) => self.pods_file(namespaces, text, &mut options)?,
            Api::Single(name) => {
                let mut pods = situation.pods.iter();
                let one = pods
                    .find(|pod| pod.label() == name)
                    .context("no such pod")?;
                fs::write(self.scratch.path().join("pods.json"), item(one).to_string())?;
                text.push_str("cp /run/zoo/pods.json /tmp/pods.json\n");
                options.push_str(" --pods /tmp/pods.json");
            }
            Api::Server if !server => self.pods_file(&[], text, &mut options)?,
            Api::Server | Api::Failed => {
                let api = self.scratch.path().join("api/api/v1");
                fs::create_dir_all(&api)?;
                fs::write(api.join("pods"), pods(situation, &[]).to_string())?;
                let config = json!({
                    "apiVersion": "v1", "kind": "Config", "current-context": "zoo",
                    "clusters": [{ "name": "zoo", "cluster": { "server": "http://127.0.0.1:8001" } }],
                    "users": [{ "name": "zoo", "user": { "token": "zoo" } }],
                    "contexts": [{ "name": "zoo", "context": { "cluster": "zoo", "user": "zoo" } }],
                });
                fs::write(self.scratch.path().join("kubeconfig"), config.to_string())?;
                if situation.api == Api::Server {
                    text.push_str("busybox httpd -p 127.0.0.1:8001 -h /run/zoo/api\n");
                }
                options.push_str(" --kubeconfig /run/zoo/kubeconfig");
            }
        }
        Ok(options)
    }

    fn pods_file(
        &self,
        namespaces: &[&str],
        text: &mut String,
        options: &mut String,
    ) -> anyhow::Result<()> {
        let list = pods(self.situation, namespaces).to_string();
        fs::write(self.scratch.path().join("pods.json"), list)?;
        // The list is of now, not of before the pods.
        text.push_str("cp /run/zoo/pods.json /tmp/pods.json\n");
        options.push_str(" --pods /tmp/pods.json");
        Ok(())
    }

    /// Runs the script in new namespaces, to its end and that of all it started.
    fn play(&mut self) -> anyhow::Result<Vec<Value>> {
        let top = self.kubepods.top().to_owned();
        let mut outer = String::from("set -e\n");
        for root in cgroups() {
            let folder = format!("{root}/{top}");
            writeln!(outer, "mkdir -p {folder}; echo $$ > {folder}/cgroup.procs")?;
        }
        let processes = match self.mode {
            Mode::Look => "-p -f --kill-child",
            Mode::Trace => "",
        };
        let at = self.scratch.path().display();
        writeln!(
            outer,
            "exec unshare -n -m -u -C {processes} sh {at}/node.sh"
        )?;
        let hang = self.hang.as_ref().map(HangFs::mount_point);
        let mut node = Command::new("sh")
            .args(["-c", &outer])
            .env("HOME", "/nonexistent")
            .env("S", self.scratch.path())
            .env("TOP", &top)
            .env("TOOL", tracer::binary()?)
            .env("SELF", std::env::current_exe()?)
            .env("HANG", hang.unwrap_or(Path::new("")))
            .env(
                "MODE",
                if self.mode == Mode::Trace {
                    "trace"
                } else {
                    "look"
                },
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start the node")?;
        let stdout = node.stdout.take().context("no pipe")?;
        let mut lines = Vec::new();
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            let end = line == "END";
            lines.push(line);
            if end {
                // Nothing on the node ends while one of its tasks cannot.
                drop(self.hang.take());
                break;
            }
        }
        if self.mode == Mode::Trace {
            for root in cgroups() {
                let _ = fs::write(format!("{root}/{top}/cgroup.kill"), "1");
            }
        }
        let output = node.wait_with_output()?;
        if shown() {
            let record = self.scratch.path().join("record.jsonl");
            print!("{}", fs::read_to_string(record).unwrap_or_default());
        }
        let records = self.records(&lines);
        let count = |kind: &str| {
            let records = records.iter().filter(|record| record["type"] == kind);
            records.count()
        };
        let explained = self.mode == Mode::Trace || count("explanation") == self.subjects().count();
        ensure!(
            count("summary") > 0 && explained,
            "the node: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(records)
    }

    /// Records; of findings those about what is on this node.
    fn records(&self, lines: &[String]) -> Vec<Value> {
        let own = lines.iter().filter_map(|line| line.strip_prefix("NETNS "));
        let own: Vec<u64> = own.filter_map(|inode| inode.parse().ok()).collect();
        let situation = self.situation;
        let pods = situation.pods.iter().flat_map(|pod| &pod.devices);
        let others = situation.others.iter().flat_map(|other| &other.devices);
        let all = pods.chain(others).chain(&situation.host);
        let all = all.flat_map(|device| &device.addresses);
        // One that a person's namespace has, too, may be about that.
        let addresses: Vec<String> = all
            .filter_map(|address| Some(format!("{:?}", address.split('/').next()?)))
            .collect();
        let ours = |record: &Value| {
            let inode = record["netns"]["inode"].as_u64();
            let text = record["addresses"].to_string();
            inode.is_some_and(|inode| own.contains(&inode))
                || inode.is_none() && record["rule"] != "blocked-task"
                || addresses.iter().any(|address| text.contains(address))
        };
        let records = lines
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok());
        records
            .filter(|record: &Value| {
                self.mode == Mode::Look || record["type"] != "finding" || ours(record)
            })
            .collect()
    }
}

/// Whether all that is said is to be shown.
fn shown() -> bool {
    std::env::var_os(super::WANTED).is_some()
}

/// Mount points of the hierarchies that kubelet uses.
fn cgroups() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ")
            .then(|| mount.split(' ').nth(4).map(str::to_owned))?
    });
    lines.collect()
}
