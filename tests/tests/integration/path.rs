//! The node's rules, routes and neighbours: what the kernel really has, in a node that
//! is a network namespace of its own. It is found by the runtime that runs there.

use anyhow::{Context as _, ensure};
use node_tracer_tests::look::{Look, on_host};
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::{Scratch, container_id};
use node_tracer_tests::scripted_cri::RuntimeProcess;
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
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
            netns.ip(&format!(
                "link add {device} type veth peer name eth0 netns {}",
                pod.name()
            ))?;
            netns.ip(&format!("link set {device} up"))?;
            pod.ip(&format!("addr add {address}/32 dev eth0"))?;
            pod.ip("link set eth0 up")?;
            netns.ip(&format!("route add {address} dev {device}"))?;
            netns.ip(&format!("rule add to {address} lookup main pref 512"))?;
            netns.ip(&format!("rule add from {address} lookup 1002 pref 1536"))?;
            let path = pod.path().display().to_string();
            sandboxes.push((container_id()?, address.parse()?, path));
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

    fn run(&self, command: &str, args: &[&str]) -> anyhow::Result<Look> {
        let socket = format!("unix://{}/cri.sock", self.scratch.path().display());
        let all = [&["--cri", &socket, "--pods", "none"], args].concat();
        on_host(command, &all)
    }

    /// The path that explain tells of a pod's address.
    fn path(&self, pod: &Pod) -> anyhow::Result<Value> {
        let look = self.run("explain", &[&pod.address])?;
        Ok(look.explanation()?["path"][0].clone())
    }

    /// What `ip ARGS` prints in the node.
    fn shows(&self, args: &str) -> anyhow::Result<String> {
        let output = self.netns.command("ip").args(args.split(' ')).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn stale(&self) -> anyhow::Result<Vec<Value>> {
        let look = self.run("scan", &[])?;
        let its = look.findings("stale-path").into_iter();
        let its = its.filter(|it| {
            it["addresses"][0]
                .as_str()
                .is_some_and(|a| a.starts_with("198.18.92."))
        });
        Ok(its.cloned().collect())
    }
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
