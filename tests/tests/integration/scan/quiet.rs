//! What scan has nothing to say about, and that it changes nothing.

use node_tracer_tests::snapshot_run::{NEWER, NODE};
use node_tracer_tests::stage::IP;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use node_tracer_tests::containerd::{Containerd, Generation, Sandbox, Setup};
use node_tracer_tests::keeper::Private;
use node_tracer_tests::netns::{Netns, connect, inode_of_process};
use node_tracer_tests::pods::{Pod, PodsFile};
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::snapshot_run::{on_host, on_node, start_on_node};
use node_tracer_tests::tracer::{Tracer, is_event, netns_of};
use node_tracer_tests::wait;
use serde_json::json;

use super::patch;

/// A node with two ordinary pods and one on the host network.
struct Healthy {
    node: Containerd,
    pods: PodsFile,
    inodes: Vec<u64>,
    on_host: Pod,
    _scratch: Scratch,
}

/// A pod with a container, which is listed.
fn run_pod(node: &Containerd, pods: &mut PodsFile, name: &str) -> anyhow::Result<(Pod, Sandbox)> {
    let pod = Pod::new("shop", name)?;
    pods.put(&pod, None)?;
    let sandbox = node.run_pod(&pod.name, &pod.namespace, &pod.uid, 0, false)?;
    node.run_container(&sandbox, "app", &["/bin/sleep", "100000"], &[])?;
    pods.put(&pod, sandbox.ip)?;
    Ok((pod, sandbox))
}

impl Healthy {
    fn start() -> anyhow::Result<Self> {
        Self::of(Generation::Machine)
    }

    fn of(generation: Generation) -> anyhow::Result<Self> {
        let scratch = Scratch::create()?;
        let node = Containerd::start_as(Setup {
            generation,
            ..Setup::default()
        })?;
        let mut pods = PodsFile::create(scratch.path())?;
        let mut inodes = vec![inode_of_process(node.pid())?];
        for name in ["web-0", "web-1"] {
            inodes.push(run_pod(&node, &mut pods, name)?.1.netns_inode);
        }
        let agent = Pod::new("kube-system", "agent")?;
        let sandbox = node.run_pod(&agent.name, &agent.namespace, &agent.uid, 0, true)?;
        node.run_container(&sandbox, "agent", &["/bin/sleep", "100000"], &[])?;
        pods.put(&agent, None)?;
        let this = Self {
            node,
            pods,
            inodes,
            on_host: agent,
            _scratch: scratch,
        };
        this.finish_list()?;
        Ok(this)
    }

    /// Says in the list what [`PodsFile`] cannot say.
    fn finish_list(&self) -> anyhow::Result<()> {
        patch(self.pods.path(), &self.on_host, |item| {
            item["spec"]["hostNetwork"] = json!(true);
            item["status"] = json!({ "phase": "Running", "podIP": "192.0.2.1" });
        })
    }

    fn list(&self) -> String {
        self.pods.path().display().to_string()
    }
}

/// All files below a folder, with what shows that one was written.
type Files = BTreeMap<PathBuf, (u64, Option<SystemTime>)>;

fn files(folder: &Path, found: &mut Files) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let (path, about) = entry.map(|entry| (entry.path(), entry.metadata()))?;
        let about = about?;
        if about.is_dir() {
            files(&path, found)?;
        }
        found.insert(path, (about.len(), about.modified().ok()));
    }
    Ok(())
}

/// What is to be the same after a scan.
fn state(node: &Containerd) -> anyhow::Result<(Files, Vec<String>)> {
    let mut found = Files::new();
    for folder in ["/etc", "/var/lib/cni", "/run/netns", "/tmp"] {
        files(&node.host_path(folder), &mut found)?;
    }
    let mut texts = vec![fs::read_to_string(format!(
        "/proc/{}/mountinfo",
        node.pid()
    ))?];
    for what in ["link", "route", "rule", "nsid"] {
        let mut line = node.command("ip")?;
        let output = line.arg(what).stdin(Stdio::null()).output()?;
        texts.push(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Ok((found, texts))
}

test!(NODE, scan_says_nothing_of_a_healthy_node_and_leaves_it_so);
fn scan_says_nothing_of_a_healthy_node_and_leaves_it_so() -> anyhow::Result<()> {
    says_nothing_and_leaves_it_so(&Healthy::start()?)
}

test!(NEWER, scan_says_nothing_of_a_healthy_node_with_containerd_2);
fn scan_says_nothing_of_a_healthy_node_with_containerd_2() -> anyhow::Result<()> {
    says_nothing_and_leaves_it_so(&Healthy::of(Generation::Newer)?)
}

fn says_nothing_and_leaves_it_so(healthy: &Healthy) -> anyhow::Result<()> {
    let list = healthy.list();
    let before = state(&healthy.node)?;
    for args in [
        &["--pods", &list][..],
        &["--pods", &list, "--cri", "none"],
        &["--pods", "none"],
        &["--pods", "none", "--cri", "none"],
        &["--pods", &list, "--duration", "3s"],
    ] {
        let look = on_node(&healthy.node, "scan", args)?;
        look.expect_nothing_on(&healthy.inodes)
            .with_context(|| format!("{args:?}"))?;
        look.coverage()?;
        look.summary()?;
    }
    ensure!(state(&healthy.node)? == before, "the node is not as it was");
    Ok(())
}

test!(NODE, scan_says_nothing_of_ordinary_deletions);
/// One pod after another goes as kubelet has it go, and scan looks at every
/// step of it.
fn scan_says_nothing_of_ordinary_deletions() -> anyhow::Result<()> {
    let mut healthy = Healthy::start()?;
    let mut failures = Vec::new();
    for round in 0..6 {
        let (pod, sandbox) = run_pod(&healthy.node, &mut healthy.pods, &format!("old-{round}"))?;
        let address = sandbox.ip.context("no address")?;
        healthy.finish_list()?;
        patch(healthy.pods.path(), &pod, |item| {
            item["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            item["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        })?;
        let list = healthy.list();
        let node = &healthy.node;
        let args = ["--pods", &list];
        let mut inodes = healthy.inodes.clone();
        inodes.push(sandbox.netns_inode);

        let during_stop = start_on_node(node, "scan", &args)?;
        wait::pause(Duration::from_millis(60 * round))?;
        ensure!(node.stop(&sandbox, Duration::from_secs(20))?, "stop");
        let stopped = during_stop.end()?;
        // Not removed yet, and still in the API.
        let between = on_node(node, "scan", &args)?;
        healthy.pods.remove(&pod)?;
        healthy.finish_list()?;
        let during_removal = start_on_node(&healthy.node, "scan", &args)?;
        wait::pause(Duration::from_millis(40 * round))?;
        healthy.node.remove(&sandbox)?;
        for (when, look) in [
            ("while it is stopped", stopped),
            ("when it is stopped", between),
            ("while it is removed", during_removal.end()?),
        ] {
            let quiet = look.expect_nothing_on(&inodes);
            let quiet = quiet.with_context(|| format!("round {round}, {address}, {when}"));
            failures.extend(quiet.err().map(|error| format!("{error:#}")));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

test!(NODE, scan_waits_for_a_forced_deletion_as_long_as_it_is_told);
/// A pod that is off the list and still runs may be on its way out: one look
/// cannot tell, a longer one does.
fn scan_waits_for_a_forced_deletion_as_long_as_it_is_told() -> anyhow::Result<()> {
    let mut healthy = Healthy::start()?;
    let (pod, sandbox) = run_pod(&healthy.node, &mut healthy.pods, "old")?;
    healthy.pods.remove(&pod)?;
    healthy.finish_list()?;
    let list = healthy.list();
    let args = ["--pods", &list];
    let look = on_node(&healthy.node, "scan", &args)?;
    look.expect_nothing_on(&[&healthy.inodes[..], &[sandbox.netns_inode]].concat())?;
    let unknown = look.summary()?["unknown"].to_string();
    ensure!(
        unknown.contains(&sandbox.netns_inode.to_string()),
        "{unknown}"
    );
    let look = on_node(
        &healthy.node,
        "scan",
        &[&args[..], &["--duration", "36s"]].concat(),
    )?;
    look.expect_code(1)?;
    look.expect_nothing_on(&healthy.inodes)?;
    let found = look.findings_on(&[sandbox.netns_inode]);
    ensure!(
        found.len() == 1
            && found[0]["rule"] == "ghost-sandbox"
            && found[0]["pod"]["uid"] == pod.uid.as_str(),
        "{found:#?}"
    );
    Ok(())
}

test!(NODE, scan_says_nothing_of_namespaces_that_are_no_pods);
/// Namespaces of people, routers, docker and services.
fn scan_says_nothing_of_namespaces_that_are_no_pods() -> anyhow::Result<()> {
    let healthy = Healthy::start()?;
    let (a, b, empty) = (Netns::create()?, Netns::create()?, Netns::create()?);
    connect(
        (&a, "eth0", "198.18.254.1/24"),
        (&b, "eth0", "198.18.254.2/24"),
    )?;
    a.ip("link set lo up")?;
    b.ip("link set lo up")?;
    // Whose other end is on the node, as docker's are.
    let pid = healthy.node.pid();
    empty.ip(&format!(
        "link add eth1 type veth peer name veth1 netns {pid}"
    ))?;
    empty.ip("addr add 198.18.253.2/24 dev eth1")?;
    empty.ip("link set eth1 up")?;
    let services = [Private::start()?, Private::start()?];
    let mut inodes = healthy.inodes.clone();
    inodes.extend([a.inode(), b.inode(), empty.inode()]);
    for service in &services {
        inodes.push(inode_of_process(service.pid())?);
    }
    let list = healthy.list();
    for args in [
        &["--pods", &list][..],
        &["--pods", &list, "--cri", "none"],
        &["--pods", "none", "--cri", "none"],
    ] {
        on_node(&healthy.node, "scan", args)?
            .expect_nothing_on(&inodes)
            .with_context(|| format!("{args:?}"))?;
    }
    Ok(())
}

test!(
    &[Need::Root, Need::Tracer, IP],
    scan_keeps_no_namespace_alive_and_makes_none
);
/// Judged by the kernel's own account: the tracer sees every namespace come
/// and go.
fn scan_keeps_no_namespace_alive_and_makes_none() -> anyhow::Result<()> {
    const AT_ONCE: Duration = Duration::from_secs(2);
    let tracer = Tracer::trace(&[])?;
    for round in 0..6 {
        let (mut a, mut b) = (Netns::create()?, Netns::create()?);
        connect(
            (&a, "eth0", "198.18.252.1/24"),
            (&b, "eth0", "198.18.252.2/24"),
        )?;
        let before = tracer.records().len();
        let look = on_host("scan", &["--pods", "none", "--cri", "none"])?;
        let seen = tracer.records().len();
        a.delete()?;
        b.delete()?;
        for inode in [a.inode(), b.inode()] {
            wait::until(
                &format!("netns {inode} to end (round {round})"),
                AT_ONCE,
                || {
                    let ended = tracer.records()[seen..].iter().any(|record| {
                        is_event(record, "netns-destroyed") && netns_of(record) == Some(inode)
                    });
                    Ok(ended.then_some(()))
                },
            )?;
        }
        let records = tracer.records();
        let made = records[before..]
            .iter()
            .find(|record| is_event(record, "netns-created") && record["task"]["pid"] == look.pid);
        ensure!(made.is_none(), "scan made {made:?}");
    }
    // Also one that ends under its eyes.
    let mut own = Netns::create()?;
    own.ip("link set lo up")?;
    let args = [
        "scan",
        "--pods",
        "none",
        "--cri",
        "none",
        "--duration",
        "6s",
    ];
    let looking =
        node_tracer_tests::snapshot_run::start(&mut node_tracer_tests::tracer::command(&args)?)?;
    wait::pause(Duration::from_secs(3))?;
    let seen = tracer.records().len();
    own.delete()?;
    wait::until("a netns to end during a scan", AT_ONCE, || {
        let ended = tracer.records()[seen..].iter().any(|record| {
            is_event(record, "netns-destroyed") && netns_of(record) == Some(own.inode())
        });
        Ok(ended.then_some(()))
    })?;
    looking.end()?;
    tracer.stop()?;
    Ok(())
}
