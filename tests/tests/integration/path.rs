//! The node's rules, routes and neighbours: what the kernel really has, in a node that
//! is a network namespace of its own. It is found by the runtime that runs there.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::{Scratch, container_id};
use node_tracer_tests::scripted_cri::RuntimeProcess;
use node_tracer_tests::snapshot_run::{SnapshotRun, on_host};
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{self, SOON, Tracer, is_event, is_finding, netns_of};
use serde_json::Value;

const NEEDS: &[Need] = &[Need::Root, Need::Tracer, IP];

/// A pod with a veth.
struct Pod {
    netns: Netns,
    address: String,
}

/// A node with two ENIs, which veths stand for, and two pods: table 1002 leads
/// out by the second one.
struct Node {
    netns: Netns,
    /// What the ENIs lead to.
    _outside: Netns,
    pods: [Pod; 2],
    _runtime: RuntimeProcess,
    scratch: Scratch,
}

impl Node {
    fn start() -> anyhow::Result<Self> {
        Self::with(&[])
    }

    /// The same for IPv6, with an address beside the other.
    fn of_both() -> anyhow::Result<Self> {
        let node = Self::with(&["fd00:92::"])?;
        node.with_ipv6()?;
        Ok(node)
    }

    /// One whose pods have been given an address of these networks, too.
    fn with(more: &[&str]) -> anyhow::Result<Self> {
        let (netns, outside) = (Netns::create()?, Netns::create()?);
        let scratch = Scratch::create()?;
        for (name, address) in [("eth0", "198.18.90.1/24"), ("eth1", "198.18.91.1/24")] {
            netns.ip(&format!(
                "link add {name} type veth peer name {name} netns {}",
                outside.name()
            ))?;
            netns.ip(&format!("addr add {address} dev {name}"))?;
            netns.ip(&format!("link set {name} up"))?;
        }
        netns.ip("route add default via 198.18.90.254 dev eth0")?;
        netns.ip("route add default via 198.18.91.254 dev eth1 table 1002")?;
        let mut sandboxes = Vec::new();
        let mut pod = |number: u8| -> anyhow::Result<Pod> {
            let pod = Netns::create()?;
            let (address, device) = (format!("198.18.92.{number}"), device(number));
            // Numbers that no other cable on this machine has: from outside the node
            // the kernel does not say which ones lead there.
            let (here, there) = (index(number), index(number) + 1);
            netns.ip(&format!(
                "link add {device} index {here} type veth peer name eth0 index {there} netns {}",
                pod.name()
            ))?;
            netns.ip(&format!("link set {device} up"))?;
            pod.ip(&format!("addr add {address}/32 dev eth0"))?;
            pod.ip("link set eth0 up")?;
            netns.ip(&format!("route add {address} dev {device}"))?;
            netns.ip(&format!("rule add to {address} lookup main pref 512"))?;
            netns.ip(&format!("rule add from {address} lookup 1002 pref 1536"))?;
            let path = pod.path().display().to_string();
            let more = more.iter().map(|network| format!("{network}{number}"));
            let addresses = std::iter::once(address.clone()).chain(more);
            let addresses = addresses.map(|it| it.parse());
            sandboxes.push((container_id()?, addresses.collect::<Result<_, _>>()?, path));
            Ok(Pod {
                netns: pod,
                address,
            })
        };
        let pods = [pod(5)?, pod(6)?];
        let socket = scratch.path().join("cri.sock");
        let runtime = RuntimeProcess::start(&netns, &socket, &sandboxes)?;
        Ok(Self {
            netns,
            _outside: outside,
            pods,
            _runtime: runtime,
            scratch,
        })
    }

    fn run(&self, command: &str, args: &[&str]) -> anyhow::Result<SnapshotRun> {
        let socket = format!("unix://{}/cri.sock", self.scratch.path().display());
        let all = [&["--cri", &socket, "--pods", "none"], args].concat();
        on_host(command, &all)
    }

    /// The path that explain tells of a pod's address.
    fn path(&self, pod: &Pod) -> anyhow::Result<Value> {
        let look = self.run("explain", &[&pod.address])?;
        Ok(look.explanation()?["path"][0].clone())
    }

    /// A trace of it by this command line, with a recording.
    fn trace(&self, mut line: Command) -> anyhow::Result<Tracer> {
        let socket = format!("unix://{}/cri.sock", self.scratch.path().display());
        let line = line.args(["trace", "-o", "json", "--cri", &socket, "--pods", "none"]);
        let line = line.arg("--record").arg(self.recording());
        let mut tracer = Tracer::start(line, |_| ())?;
        tracer.wait_until_ready()?;
        Ok(tracer)
    }

    fn recording(&self) -> std::path::PathBuf {
        self.scratch.path().join("trace.jsonl")
    }

    /// The rule of an earlier pod, which is older than that of this one's ADD.
    fn reuse(&self, pod: &Pod) -> anyhow::Result<()> {
        let rule = format!("from {} lookup", pod.address);
        self.netns.ip(&format!("rule del {rule} 1002 pref 1536"))?;
        self.netns.ip(&format!("rule add {rule} main pref 1536"))?;
        self.netns.ip(&format!("rule add {rule} 1002 pref 1536"))
    }

    fn clean(&self, pod: &Pod) -> anyhow::Result<()> {
        self.netns.ip(&format!(
            "rule del from {} lookup main pref 1536",
            pod.address
        ))
    }

    /// Runs many commands of ip(8) at once.
    fn batch(&self, lines: &str) -> anyhow::Result<()> {
        let mut ip = self.netns.command("ip");
        let mut child = ip.args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("no pipe")?;
        stdin.write_all(lines.as_bytes())?;
        drop(stdin);
        ensure!(child.wait()?.success(), "ip -batch");
        Ok(())
    }

    /// What `ip ARGS` prints in the node.
    fn shows(&self, args: &str) -> anyhow::Result<String> {
        let output = self.netns.command("ip").args(args.split(' ')).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn with_ipv6(&self) -> anyhow::Result<()> {
        self.netns.ip("-6 route add default dev eth0")?;
        self.netns.ip("-6 route add default dev eth1 table 1002")?;
        for (pod, number) in self.pods.iter().zip([5, 6]) {
            let address = format!("fd00:92::{number}");
            pod.netns
                .ip(&format!("-6 addr add {address}/128 dev eth0 nodad"))?;
            let device = device(number);
            self.netns
                .ip(&format!("-6 route add {address} dev {device}"))?;
            self.netns
                .ip(&format!("-6 rule add to {address} lookup main pref 512"))?;
            self.netns
                .ip(&format!("-6 rule add from {address} lookup 1002 pref 1536"))?;
        }
        Ok(())
    }

    fn stale(&self) -> anyhow::Result<Vec<Value>> {
        let look = self.run("scan", &[])?;
        let its = look.findings("stale-path").into_iter();
        let its = its.filter(|it| {
            it["addresses"][0]
                .as_str()
                .is_some_and(|a| a.starts_with("198.18.92.") || a.starts_with("fd00:92::"))
        });
        Ok(its.cloned().collect())
    }
}

/// Of a device: two for each pod of a node.
fn index(number: u8) -> u32 {
    100_000 + 100 * (std::process::id() % 1_000_000) + 2 * u32::from(number)
}

fn device(number: u8) -> String {
    format!("cali1a2b3c4d5e{number}")
}

test!(NEEDS, path_is_that_of_the_kernel);
fn path_is_that_of_the_kernel() -> anyhow::Result<()> {
    let node = Node::start()?;
    let pod = &node.pods[0];
    let path = node.path(pod)?;
    let said = |key: &str| path[key].as_str().unwrap_or_default().to_owned();
    ensure!(path["netns"]["inode"] == node.netns.inode(), "{path}");
    ensure!(
        path["comes_to"]["netns"]["inode"] == pod.netns.inode(),
        "{path}"
    );
    ensure!(path["is_right"] == true, "{path}");
    ensure!(
        said("rule") == format!("512: from all to {} lookup main", pod.address)
            && said("route") == format!("{} dev {}", pod.address, device(5)),
        "{path}"
    );
    // The same by the kernel itself.
    let got = node.shows(&format!("route get {}", pod.address))?;
    ensure!(got.contains(&format!("dev {}", said("device"))), "{got}");

    // A route that is more specific than what the rule's table has for it.
    node.netns
        .ip(&format!("route replace {} dev eth0", pod.address))?;
    let path = node.path(pod)?;
    ensure!(
        path["is_right"] == false && path["device"] == "eth0",
        "{path}"
    );
    node.netns
        .ip(&format!("route replace blackhole {}", pod.address))?;
    let path = node.path(pod)?;
    ensure!(
        path["is_right"] == false && path["kind"] == "blackhole",
        "{path}"
    );
    Ok(())
}

test!(
    NEEDS,
    path_entries_that_are_stale_are_found_and_the_advice_removes_them_alone
);
fn path_entries_that_are_stale_are_found_and_the_advice_removes_them_alone() -> anyhow::Result<()> {
    let node = Node::start()?;
    let [pod, other] = &node.pods;
    ensure!(
        node.stale()?.is_empty(),
        "a healthy node: {:?}",
        node.stale()?
    );
    // An earlier pod's rule is the older one: the ADD of this one came after it.
    let (rule, mac) = (format!("from {} lookup", pod.address), "5e:00:00:00:00:99");
    node.netns.ip(&format!("rule del {rule} 1002 pref 1536"))?;
    node.netns.ip(&format!("rule add {rule} main pref 1536"))?;
    node.netns.ip(&format!("rule add {rule} 1002 pref 1536"))?;
    node.netns.ip(&format!(
        "neigh replace {} lladdr {mac} dev {} nud permanent",
        other.address,
        device(6)
    ))?;
    let stale = node.stale()?;
    ensure!(stale.len() == 2, "{stale:?}");
    let (rules, neighbours) = (node.shows("rule show")?, node.shows("neigh show")?);
    for finding in &stale {
        ensure!(finding["severity"] == "critical", "{finding}");
        let kind = &finding["path"]["kind"];
        ensure!(kind == "rule" || kind == "neighbour", "{finding}");
        let last = finding["advice"].as_array().and_then(|all| all.last());
        let line = last.and_then(Value::as_str).context("no advice")?;
        let ran = node.netns.command("sh").args(["-c", line]).status()?;
        ensure!(ran.success(), "{line}");
    }
    ensure!(node.stale()?.is_empty(), "{:?}", node.stale()?);
    let lost = |before: &str, after: &str| -> Vec<String> {
        let gone = before.lines().filter(|line| !after.contains(*line));
        gone.map(str::to_owned).collect()
    };
    let gone = lost(&rules, &node.shows("rule show")?);
    ensure!(
        gone.len() == 1 && gone[0].contains("lookup main"),
        "{gone:?}"
    );
    let gone = lost(&neighbours, &node.shows("neigh show")?);
    ensure!(gone.iter().all(|line| line.contains(mac)), "{gone:?}");
    Ok(())
}

/// Waits until a trace says this of the rule for a pod's address.
fn wait_for_rule(tracer: &mut Tracer, pod: &Pod, state: &str) -> anyhow::Result<Value> {
    tracer.wait_for(&format!("a stale rule, {state}"), SOON, |record| {
        is_finding(record, "stale-path")
            && record["state"] == state
            && record["path"]["kind"] == "rule"
            && record["addresses"][0] == pod.address.as_str()
    })
}

/// States of what a recording's replay says of the node's tables, by ID.
fn replayed(node: &Node) -> anyhow::Result<Vec<(Value, Value)>> {
    let look = on_host("replay", &[&node.recording().display().to_string()])?;
    let all = look.findings("stale-path").into_iter();
    Ok(all
        .map(|it| (it["id"].clone(), it["state"].clone()))
        .collect())
}

fn becomes_stale_and_is_cleared(node: &Node, line: Command) -> anyhow::Result<()> {
    let pod = &node.pods[0];
    let mut tracer = node.trace(line)?;
    node.reuse(pod)?;
    let found = wait_for_rule(&mut tracer, pod, "open")?;
    ensure!(found["severity"] == "critical", "{found}");
    ensure!(
        found["sandbox_id"].is_null() && found["pod"].is_object(),
        "{found}"
    );
    node.clean(pod)?;
    wait_for_rule(&mut tracer, pod, "resolved")?;
    tracer.stop()?;
    let states = [found["state"].clone(), Value::from("resolved")];
    let told: Vec<_> = states.map(|state| (found["id"].clone(), state)).into();
    let replayed = replayed(node)?;
    ensure!(replayed == told, "{replayed:?}");
    Ok(())
}

test!(
    NEEDS,
    path_that_becomes_stale_is_told_by_a_trace_as_the_kernel_says_so
);
fn path_that_becomes_stale_is_told_by_a_trace_as_the_kernel_says_so() -> anyhow::Result<()> {
    let node = Node::start()?;
    becomes_stale_and_is_cleared(&node, node.netns.command(tracer::binary()?))
}

test!(
    NEEDS,
    path_that_becomes_stale_in_a_node_that_is_a_container_is_told
);
fn path_that_becomes_stale_in_a_node_that_is_a_container_is_told() -> anyhow::Result<()> {
    let node = Node::start()?;
    becomes_stale_and_is_cleared(&node, tracer::command(&[])?)
}

test!(NEEDS, path_neighbour_that_becomes_stale_is_told_by_a_trace);
fn path_neighbour_that_becomes_stale_is_told_by_a_trace() -> anyhow::Result<()> {
    let node = Node::start()?;
    let pod = &node.pods[1];
    let mut tracer = node.trace(node.netns.command(tracer::binary()?))?;
    let entry = format!("{} dev {}", pod.address, device(6));
    node.netns.ip(&format!(
        "neigh replace {entry} lladdr 5e:00:00:00:00:99 nud permanent"
    ))?;
    let of = |record: &Value, state: &str| {
        is_finding(record, "stale-path")
            && record["path"]["kind"] == "neighbour"
            && record["state"] == state
            && record["addresses"][0] == pod.address.as_str()
    };
    tracer.wait_for("a stale neighbour", SOON, |record| of(record, "open"))?;
    node.netns.ip(&format!("neigh del {entry}"))?;
    tracer.wait_for("its end", SOON, |record| of(record, "resolved"))?;
    tracer.stop()?;
    Ok(())
}

/// CPU time that a process has used, and the most memory that it had, KiB.
fn cost(pid: u32) -> anyhow::Result<(Duration, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = stat.rsplit(") ").next().context("stat")?;
    let ticks: u64 = rest
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|it| it.parse::<u64>().ok())
        .sum();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    Ok((Duration::from_millis(10 * ticks), peak.context("VmHWM")?))
}

test!(
    NEEDS,
    path_in_a_storm_of_5000_rules_and_neighbours_is_still_told
);
/// What is stale is told in the storm, and what is mended is over after it, although
/// most messages are lost; memory and CPU time stay bounded.
fn path_in_a_storm_of_5000_rules_and_neighbours_is_still_told() -> anyhow::Result<()> {
    const STORM: u32 = 5_000;
    const PEAK: u64 = 96 << 10;
    let node = Node::start()?;
    let pod = &node.pods[0];
    let mut tracer = node.trace(node.netns.command(tracer::binary()?))?;
    let storm = |rule: &str, neighbour: &str| -> String {
        (0..STORM)
            .map(|n| {
                let address = format!("198.19.{}.{}", n / 250, n % 250);
                format!(
                    "rule {rule} from {address} lookup 1002 pref 1536\n\
                     neigh {neighbour} {address} lladdr 02:00:00:00:00:01 dev eth0\n"
                )
            })
            .collect()
    };
    node.netns.ip("route add 198.19.0.0/16 dev eth0")?;
    let (before, _) = cost(tracer.pid())?;
    let began = std::time::Instant::now();
    node.batch(&storm("add", "replace"))?;
    node.reuse(pod)?;
    wait_for_rule(&mut tracer, pod, "open")?;
    node.batch(&storm("del", "del"))?;
    node.clean(pod)?;
    wait_for_rule(&mut tracer, pod, "resolved")?;
    let (after, peak) = cost(tracer.pid())?;
    let (used, took) = (after.saturating_sub(before), began.elapsed());
    println!("        {used:?} of CPU time in {took:?}, {peak} KiB at most");
    ensure!(peak < PEAK, "{peak} KiB");
    ensure!(2 * used < took, "{used:?} in {took:?}");
    tracer.stop()?;
    let replayed = replayed(&node)?;
    ensure!(replayed.len() == 2, "{replayed:?}");
    Ok(())
}

test!(
    NEEDS,
    path_entries_of_ipv6_that_are_stale_are_found_and_removed_alone
);
fn path_entries_of_ipv6_that_are_stale_are_found_and_removed_alone() -> anyhow::Result<()> {
    let node = Node::of_both()?;
    ensure!(node.stale()?.is_empty(), "{:?}", node.stale()?);
    let rule = "from fd00:92::5 lookup";
    node.netns
        .ip(&format!("-6 rule del {rule} 1002 pref 1536"))?;
    node.netns
        .ip(&format!("-6 rule add {rule} main pref 1536"))?;
    node.netns
        .ip(&format!("-6 rule add {rule} 1002 pref 1536"))?;
    node.netns.ip(&format!(
        "-6 neigh replace fd00:92::6 lladdr 5e:00:00:00:00:99 dev {} nud permanent",
        device(6)
    ))?;
    let stale = node.stale()?;
    ensure!(stale.len() == 2, "{stale:?}");
    for finding in &stale {
        ensure!(finding["severity"] == "critical", "{finding}");
        let last = finding["advice"].as_array().and_then(|all| all.last());
        let line = last.and_then(Value::as_str).context("no advice")?;
        let ran = node.netns.command("sh").args(["-c", line]).status()?;
        ensure!(ran.success(), "{line}");
    }
    ensure!(node.stale()?.is_empty(), "{:?}", node.stale()?);
    let rules = node.shows("-6 rule show")?;
    let left: Vec<&str> = rules
        .lines()
        .filter(|line| line.contains("fd00:92::5"))
        .collect();
    ensure!(
        left.len() == 2 && left[1].contains("lookup 1002"),
        "{left:?}"
    );
    Ok(())
}

test!(
    NEEDS,
    path_a_node_that_is_a_container_is_not_kept_by_a_trace
);
fn path_a_node_that_is_a_container_is_not_kept_by_a_trace() -> anyhow::Result<()> {
    let node = Node::start()?;
    let inode = node.netns.inode();
    let mut tracer = node.trace(tracer::command(&[])?)?;
    tracer.wait_for("the node is known", SOON, |record| {
        is_event(record, "netns-found") && netns_of(record) == Some(inode)
    })?;
    tracer.wait_for("its devices", SOON, |record| {
        is_event(record, "netns-devices") && netns_of(record) == Some(inode)
    })?;
    drop(node);
    tracer.wait_for("its end", SOON, |record| {
        is_event(record, "netns-destroyed") && netns_of(record) == Some(inode)
    })?;
    tracer.stop()?;
    Ok(())
}
