//! Calls of CNI plugins: whose, how they ended, in whatever environment.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use node_tracer_tests::cni::{Attachment, Cni};
use node_tracer_tests::incident::Incident;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::pods::Pod;
use node_tracer_tests::runtime::Runtime;
use node_tracer_tests::scratch::{Scratch, container_id};
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, is_event, is_finding, netns_of};
use node_tracer_tests::wait;
use serde_json::{Value, json};

const CNI: &[Need] = &[Need::Root, IP, Need::Tracer, Need::Cni];
const RUNTIME: &[Need] = &[Need::Root, Need::Tracer];

fn is_call(record: &Value, command: &str, plugin: &str, container_id: &str) -> bool {
    is_event(record, "cni-call")
        && record["command"] == command
        && record["plugin"] == plugin
        && record["container_id"] == container_id
}

/// The record of a call, which comes when the plugin has ended.
fn wait_for_call(
    tracer: &mut Tracer,
    command: &str,
    plugin: &str,
    container_id: &str,
) -> anyhow::Result<Value> {
    tracer.wait_for(&format!("{command} by {plugin}"), SOON, |record| {
        is_call(record, command, plugin, container_id)
    })
}

/// What every record of a call by the stand-in runtime says.
fn names_all(call: &Value, attachment: Attachment<'_>) -> anyhow::Result<()> {
    let Attachment { netns, pod, .. } = attachment;
    ensure!(call["ifname"] == "eth0", "its interface: {call}");
    ensure!(
        call["netns_path"] == netns.path().display().to_string(),
        "the path of its netns: {call}"
    );
    ensure!(
        netns_of(call) == Some(netns.inode()),
        "its netns {}: {call}",
        netns.inode()
    );
    ensure!(
        call["pod"] == json!({ "namespace": pod.namespace, "name": pod.name, "uid": pod.uid }),
        "its pod: {call}"
    );
    ensure!(
        call["trusted"] == true && call["distrust"].is_null(),
        "it is trusted: {call}"
    );
    lasted(call)
}

fn lasted(call: &Value) -> anyhow::Result<()> {
    let duration = call["duration_ms"].as_f64().context("no duration_ms")?;
    ensure!(duration > 0.0 && duration < 60_000.0, "it lasted: {call}");
    Ok(())
}

/// Exit code, and no signal.
fn exited(call: &Value, code: i64) -> anyhow::Result<()> {
    ensure!(
        call["exit_code"] == code && call["signal"].is_null(),
        "exit code {code}: {call}"
    );
    Ok(())
}

test!(
    &[
        Need::Root,
        Need::Fuse,
        Need::Cgroup,
        IP,
        Need::Tracer,
        Need::Cni,
    ],
    cni_calls_name_pod_and_exit
);
fn cni_calls_name_pod_and_exit() -> anyhow::Result<()> {
    let mut incident = Incident::new()?;
    let pods = incident.pods_file().display().to_string();
    let mut tracer = Tracer::trace(&["--pods", &pods])?;
    let old = incident.start_old_pod()?;

    let add = wait_for_call(&mut tracer, "ADD", "bridge", &old.id)?;
    exited(&add, 0)?;
    ensure!(add["delegated"] == false, "bridge is no delegate: {add}");
    ensure!(add["ifname"] == "eth0", "{add}");
    ensure!(
        add["netns_path"] == old.netns_path.display().to_string()
            && netns_of(&add) == Some(old.netns_inode),
        "its netns: {add}"
    );
    let pod = json!({ "namespace": old.pod.namespace, "name": old.pod.name, "uid": old.pod.uid });
    ensure!(add["pod"] == pod, "its pod {pod}: {add}");
    ensure!(add["trusted"] == true && add["distrust"].is_null(), "{add}");
    lasted(&add)?;

    let delegate = wait_for_call(&mut tracer, "ADD", "host-local", &old.id)?;
    exited(&delegate, 0)?;
    ensure!(
        delegate["delegated"] == true
            && delegate["parent_pid"] == add["pid"]
            && delegate["parent_comm"] == "bridge",
        "host-local is bridge's delegate: {delegate}; {add}"
    );
    ensure!(
        delegate["pod"] == pod && delegate["trusted"] == true,
        "it is for the same pod: {delegate}"
    );
    lasted(&delegate)?;

    let lo = wait_for_call(&mut tracer, "ADD", "loopback", &old.id)?;
    exited(&lo, 0)?;
    ensure!(lo["ifname"] == "lo" && lo["delegated"] == false, "{lo}");

    incident.force_delete()?;
    incident.release()?;
    let del = wait_for_call(&mut tracer, "DEL", "bridge", &old.id)?;
    exited(&del, 0)?;
    ensure!(del["pod"] == pod, "{del}");
    let ended = tracer.stop()?;
    // One record a call: the runtime made four, bridge delegated two.
    for command in ["ADD", "DEL"] {
        for plugin in ["loopback", "bridge", "host-local"] {
            let is = |record: &&Value| is_call(record, command, plugin, &old.id);
            let count = ended.records.iter().filter(is).count();
            ensure!(count == 1, "{command} by {plugin}: {count} records");
        }
    }
    incident.clean()
}

/// A node with a pod to be: what the plugins are called for.
struct Node {
    cni: Cni,
    pod: Pod,
    id: String,
    netns: Netns,
    _node: Netns,
    folder: Scratch,
}

impl Node {
    fn new() -> anyhow::Result<Self> {
        Self::with(Cni::start)
    }

    fn with(start: fn(&Netns, &Path, &str) -> anyhow::Result<Cni>) -> anyhow::Result<Self> {
        let folder = Scratch::create()?;
        let node = Netns::create()?;
        node.ip("link set lo up")?;
        Ok(Self {
            cni: start(&node, folder.path(), "198.18.251.0/24")?,
            pod: Pod::new("shop", "cart-0")?,
            id: container_id()?,
            netns: Netns::create()?,
            _node: node,
            folder,
        })
    }
}

test!(CNI, cni_call_that_fails_tells_its_exit_code);
fn cni_call_that_fails_tells_its_exit_code() -> anyhow::Result<()> {
    let mut node = Node::new()?;
    let Node {
        cni,
        pod,
        id,
        netns,
        ..
    } = &mut node;
    let attachment = Attachment {
        container_id: id,
        netns,
        pod,
    };
    let mut tracer = Tracer::trace(&[])?;
    let mut config = cni.config("bridge");
    config["ipam"]["ranges"] = json!([[{ "subnet": "no such thing" }]]);
    let plugin = cni.plugins().join("bridge");
    let run = cni.run("ADD", &plugin, "eth0", attachment, &config)?;
    ensure!(run.code == Some(1), "the plugin fails: {run:?}");
    let call = wait_for_call(&mut tracer, "ADD", "bridge", id)?;
    exited(&call, 1)?;
    names_all(&call, attachment)?;
    let delegate = wait_for_call(&mut tracer, "ADD", "host-local", id)?;
    exited(&delegate, 1)?;
    ensure!(
        delegate["delegated"] == true && delegate["parent_pid"] == call["pid"],
        "{delegate}"
    );
    Ok(())
}

fn script(path: &Path, commands: &str) -> anyhow::Result<()> {
    fs::write(path, format!("#!/bin/sh\n{commands}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

test!(CNI, cni_call_killed_by_a_signal_tells_which);
fn cni_call_killed_by_a_signal_tells_which() -> anyhow::Result<()> {
    let mut node = Node::new()?;
    let Node {
        cni,
        pod,
        id,
        netns,
        folder,
        ..
    } = &mut node;
    let attachment = Attachment {
        container_id: id,
        netns,
        pod,
    };
    let mut tracer = Tracer::trace(&[])?;
    // The second leaves a core dump's flag in its status, where those are on.
    for (plugin, signal) in [("killed", libc::SIGKILL), ("crashed", libc::SIGSEGV)] {
        let path = folder.path().join(plugin);
        script(&path, &format!("kill -{signal} $$"))?;
        let run = cni.run("ADD", &path, "eth0", attachment, &json!({}))?;
        ensure!(run.code.is_none(), "the plugin was killed: {run:?}");
        let call = wait_for_call(&mut tracer, "ADD", plugin, id)?;
        ensure!(
            call["signal"] == signal && call["exit_code"].is_null(),
            "signal {signal}: {call}"
        );
        ensure!(
            call["plugin_path"] == path.display().to_string(),
            "its path: {call}"
        );
        names_all(&call, attachment)?;
    }
    Ok(())
}

test!(
    &[Need::Root, IP, Need::Tracer, Need::NewerNode],
    cni_1_1_calls_are_told_with_their_results
);
/// What version 1.1 of the specification has added: more in a result, and calls for
/// no container.
fn cni_1_1_calls_are_told_with_their_results() -> anyhow::Result<()> {
    let mut node = Node::with(Cni::start_newer)?;
    let Node {
        cni,
        pod,
        id,
        netns,
        folder,
        ..
    } = &mut node;
    let attachment = Attachment {
        container_id: id,
        netns,
        pod,
    };
    let mut tracer = Tracer::trace(&[])?;
    let bridge = cni.plugins().join("bridge");
    let mut config = cni.config("bridge");
    config["mtu"] = json!(1400);
    config["ipam"]["routes"] = json!([
        { "dst": "0.0.0.0/0", "mtu": 1300, "advmss": 1260, "priority": 7, "table": 10, "scope": 0 },
    ]);
    let run = cni.run("ADD", &bridge, "eth0", attachment, &config)?;
    ensure!(run.code == Some(0), "{run:?}");
    let said: Value = serde_json::from_str(&run.stdout)?;
    ensure!(
        said["cniVersion"] == "1.1.0" && said["routes"][0]["table"] == 10,
        "it is of version 1.1: {said}"
    );
    let ip = said["ips"][0]["address"].as_str();
    let ip = ip.and_then(|ip| ip.split('/').next()).context("no IP")?;
    for plugin in ["bridge", "host-local"] {
        let call = wait_for_call(&mut tracer, "ADD", plugin, id)?;
        exited(&call, 0)?;
        names_all(&call, attachment)?;
        ensure!(call["cni_version"] == "1.1.0", "{call}");
        ensure!(call["result"]["ips"] == json!([ip]), "{ip}: {call}");
    }

    // These are for no container. They may fail, which is told and no finding.
    let status = cni.ask("STATUS", &bridge, &config)?;
    ensure!(status.code == Some(0), "{status:?}");
    for (plugin, delegated) in [("bridge", false), ("host-local", true)] {
        let call = wait_for_call(&mut tracer, "STATUS", plugin, "")?;
        exited(&call, 0)?;
        for_none(&call)?;
        ensure!(call["delegated"] == delegated, "{call}");
        ensure!(call["network"] == config["name"], "{call}");
        ensure!(call["error"].is_null(), "{call}");
    }
    config["cni.dev/valid-attachments"] = json!([{ "containerID": id, "ifname": "eth0" }]);
    let gc = cni.ask("GC", &bridge, &config)?;
    ensure!(gc.code == Some(0), "{gc:?}");
    let call = wait_for_call(&mut tracer, "GC", "bridge", "")?;
    exited(&call, 0)?;
    for_none(&call)?;
    ensure!(call["network"] == config["name"], "{call}");
    for (command, code) in [("STATUS", 51), ("GC", 102)] {
        let broken = folder.path().join(format!("broken-{code}"));
        let error = json!({ "cniVersion": "1.1.0", "code": code, "msg": "out of order" });
        script(&broken, &format!("echo '{error}'; exit 1"))?;
        let run = cni.ask(command, &broken, &config)?;
        ensure!(run.code == Some(1), "{run:?}");
        let call = wait_for_call(&mut tracer, command, &format!("broken-{code}"), "")?;
        exited(&call, 1)?;
        for_none(&call)?;
        ensure!(
            call["error"]["code"] == code && call["error"]["msg"] == "out of order",
            "{call}"
        );
    }
    let ended = tracer.stop()?;
    // Of what a call says; that no process is in the namespace is another matter.
    let rules = ["add-failed", "del-retry", "missing-del", "stale-del"];
    let of_calls = |record: &&Value| {
        let mut rules = rules.iter();
        rules.any(|rule| is_finding(record, rule))
    };
    let finding = ended.records.iter().find(of_calls);
    ensure!(finding.is_none(), "a finding: {}", finding.context("none")?);
    ensure!(cni.store().join(ip).exists(), "the address is kept");
    Ok(())
}

/// What a record of a call says that is for no container.
fn for_none(call: &Value) -> anyhow::Result<()> {
    ensure!(
        call["ifname"] == "" && call["netns_path"] == "" && netns_of(call).is_none(),
        "no interface and no netns: {call}"
    );
    ensure!(
        call["pod"].is_null() && call["result"].is_null() && call["unread"].is_null(),
        "no pod and no result: {call}"
    );
    ensure!(
        call["trusted"] == true && call["distrust"].is_null(),
        "it is trusted: {call}"
    );
    lasted(call)
}

/// Reproducible numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn new() -> anyhow::Result<Self> {
        let mut seed = [0; 8];
        fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
        Ok(Self(u64::from_ne_bytes(seed)))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as usize % limit
    }
}

/// `NAME=xxx…` of exactly this many bytes.
fn filler(name: &str, length: usize) -> String {
    let start = format!("{name}=");
    let rest = length.saturating_sub(start.len());
    start + &"x".repeat(rest)
}

/// Environments around the CNI variables of one call, each with a name.
fn environments(cni: &[String], numbers: &mut Numbers) -> Vec<(String, Vec<String>)> {
    let after = |fillers: Vec<String>| [fillers, cni.to_vec()].concat();
    let many = |count: usize, length: usize| -> Vec<String> {
        (0..count)
            .map(|i| filler(&format!("V{i}"), length))
            .collect()
    };
    let mut all = vec![
        ("nothing else".to_owned(), cni.to_vec()),
        ("128 KiB in 32 variables".to_owned(), after(many(32, 4096))),
        // The longest that the kernel allows, its NUL included, is 128 KiB.
        (
            "128 KiB in one variable".to_owned(),
            after(vec![filler("LONG", (128 << 10) - 1)]),
        ),
        ("5,000 variables".to_owned(), after(many(5_000, 20))),
        (
            "empty and nameless variables".to_owned(),
            after(vec![String::new(), "=".into(), "CNI".into(), "CNI_".into()]),
        ),
    ];
    // Strings are read in pieces: what a piece begins with is no variable.
    for length in 4093..=4098 {
        let mut fake = filler("FAKE", length);
        fake.push_str("CNI_COMMAND=DEL");
        all.push((
            format!("a command inside a value, at {length}"),
            [vec![fake], cni.to_vec(), vec![filler("LONG", length)]].concat(),
        ));
    }
    for round in 0..8 {
        let lengths = [1, 2, 12, 100, 4094, 4095, 4096, 8190, 8191];
        let mut strings: Vec<String> = (0..300 + numbers.below(1500))
            .map(|i| match numbers.below(20) {
                0 => filler(&format!("V{i}"), lengths[numbers.below(lengths.len())]),
                _ => filler(&format!("V{i}"), numbers.below(60)),
            })
            .collect();
        for variable in cni {
            strings.insert(numbers.below(strings.len() + 1), variable.clone());
        }
        all.push((format!("random positions, round {round}"), strings));
    }
    all
}

/// A runtime, and a plugin that does nothing.
struct Quiet {
    runtime: Runtime,
    plugin: PathBuf,
    netns: Netns,
    _node: Netns,
    _folder: Scratch,
}

impl Quiet {
    fn new() -> anyhow::Result<Self> {
        let folder = Scratch::create()?;
        let node = Netns::create()?;
        let plugins = folder.path().join("plugins");
        fs::create_dir(&plugins)?;
        let plugin = plugins.join("quiet");
        script(&plugin, "exit 0")?;
        Ok(Self {
            runtime: Runtime::start(&node, folder.path())?,
            plugin,
            netns: Netns::create()?,
            _node: node,
            _folder: folder,
        })
    }

    fn variables(&self, container_id: &str, pod: &Pod) -> Vec<String> {
        let folder = self.plugin.parent().unwrap_or(Path::new("/"));
        vec![
            "CNI_COMMAND=ADD".to_owned(),
            format!("CNI_CONTAINERID={container_id}"),
            format!("CNI_NETNS={}", self.netns.path().display()),
            "CNI_IFNAME=eth0".to_owned(),
            format!(
                "CNI_ARGS=K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_UID={}",
                pod.namespace, pod.name, pod.uid
            ),
            format!("CNI_PATH={}", folder.display()),
        ]
    }
}

test!(RUNTIME, cni_call_is_seen_in_any_environment);
fn cni_call_is_seen_in_any_environment() -> anyhow::Result<()> {
    let mut quiet = Quiet::new()?;
    let numbers = Numbers::new()?;
    let seed = numbers.0;
    let mut tracer = Tracer::trace(&[])?;
    let pod = Pod::new("shop", "cart-0")?;
    let count = environments(&[], &mut Numbers(seed)).len();
    for which in 0..count {
        let id = container_id()?;
        let variables = quiet.variables(&id, &pod);
        let mut cases = environments(&variables, &mut Numbers(seed));
        let (name, environment) = cases.swap_remove(which);
        let about = || format!("{name} (seed {seed})");
        let run = quiet.runtime.run_exactly(&quiet.plugin, &environment)?;
        ensure!(run.code == Some(0), "{}: {run:?}", about());
        let call = tracer
            .wait_for("the call", SOON, |record| {
                is_event(record, "cni-call") && record["container_id"] == id.as_str()
            })
            .with_context(about)?;
        let attachment = Attachment {
            container_id: &id,
            netns: &quiet.netns,
            pod: &pod,
        };
        ensure!(call["command"] == "ADD", "{}: {call}", about());
        exited(&call, 0).with_context(about)?;
        names_all(&call, attachment).with_context(about)?;
    }
    let ended = tracer.stop()?;
    let lost = ended
        .records
        .iter()
        .find(|record| is_finding(record, "events-lost"));
    ensure!(lost.is_none(), "seed {seed}: {}", lost.context("none")?);
    Ok(())
}

test!(
    RUNTIME,
    cni_call_in_an_endless_environment_is_seen_or_told_lost
);
/// More strings than a kernel program may look at.
fn cni_call_in_an_endless_environment_is_seen_or_told_lost() -> anyhow::Result<()> {
    let mut quiet = Quiet::new()?;
    let tracer = Tracer::trace(&[])?;
    let pod = Pod::new("shop", "cart-0")?;
    for count in [20_000, 60_000] {
        let id = container_id()?;
        let mut environment: Vec<String> = (0..count).map(|i| format!("V{i}=")).collect();
        environment.extend(quiet.variables(&id, &pod));
        let before = tracer.records().len();
        let run = quiet.runtime.run_exactly(&quiet.plugin, &environment)?;
        ensure!(run.code == Some(0), "{count} variables: {run:?}");
        let seen =
            |record: &Value| is_event(record, "cni-call") && record["container_id"] == id.as_str();
        let told = |record: &Value| is_event(record, "events-lost");
        let what = format!("the call with {count} variables, or its loss");
        let is_seen = wait::until(&what, SOON, || {
            let records = tracer.records();
            let fresh = &records[before..];
            let is_seen = fresh.iter().any(seen);
            Ok((is_seen || fresh.iter().any(told)).then_some(is_seen))
        })?;
        let outcome = if is_seen { "seen" } else { "told to be lost" };
        println!("        a call with {count} variables before its own: {outcome}");
    }
    Ok(())
}
