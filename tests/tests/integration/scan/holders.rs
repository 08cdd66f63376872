//! What keeps a network namespace, however well it hides.

use node_tracer_tests::snapshot_run::NODE;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use node_tracer_tests::cgroup::Cgroup;
use node_tracer_tests::containerd::{Containerd, Sandbox};
use node_tracer_tests::hangfs::HangFs;
use node_tracer_tests::keeper::{By, Keeper, Leaderless};
use node_tracer_tests::netns::Netns;
use node_tracer_tests::paste::Shell;
use node_tracer_tests::pods::{Pod, PodsFile};
use node_tracer_tests::scratch::{Scratch, container_id, pod_uid};
use node_tracer_tests::snapshot_run::{SnapshotRun, on_host, on_node};
use node_tracer_tests::tracer::netns_of;
use node_tracer_tests::wait;
use serde_json::{Value, json};

/// A shell in the node's mount namespace and network namespace.
fn shell(node: &Containerd, script: &str, args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("nsenter")
        .args(["--target", &node.pid().to_string(), "--mount", "--net"])
        .args(["sh", "-ec", script, "sh"])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .context("nsenter")?;
    ensure!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// libcni's file of an ADD that no DEL has followed, ten minutes old.
fn remember(
    node: &Containerd,
    like: &Sandbox,
    pod: &Pod,
    id: &str,
    (path, address): (&str, &str),
) -> anyhow::Result<()> {
    let results = node.host_path("/var/lib/cni/results");
    let text = fs::read(results.join(format!("stage-{}-eth0", like.id)))?;
    let mut cached: Value = serde_json::from_slice(&text)?;
    cached["containerId"] = json!(id);
    cached["netns"] = json!(path);
    cached["cniArgs"] = json!([
        ["IgnoreUnknown", "1"],
        ["K8S_POD_NAMESPACE", pod.namespace],
        ["K8S_POD_NAME", pod.name],
        ["K8S_POD_INFRA_CONTAINER_ID", id],
        ["K8S_POD_UID", pod.uid],
    ]);
    cached["result"]["ips"][0]["address"] = json!(format!("{address}/24"));
    let file = results.join(format!("stage-{id}-eth0"));
    fs::write(&file, cached.to_string())?;
    let file = File::options().write(true).open(file)?;
    Ok(file.set_modified(SystemTime::now() - Duration::from_secs(600))?)
}

fn on_netns<'a>(look: &'a SnapshotRun, rule: &str, inode: u64) -> anyhow::Result<&'a Value> {
    let all = look.findings(rule);
    let mut its = all.into_iter().filter(|it| netns_of(it) == Some(inode));
    its.next()
        .with_context(|| format!("no {rule} on {inode}: {}", look.brief()))
}

fn expect_holders(record: &Value, expected: &[Value]) -> anyhow::Result<()> {
    let holders = record["holders"].as_array().context("no holders")?;
    for one in expected {
        let wanted = one.as_object().context("an object")?;
        let is = |holder: &Value| wanted.iter().all(|(key, value)| holder[key] == *value);
        ensure!(
            holders.iter().any(is),
            "{one} is not among {:#}",
            record["holders"]
        );
    }
    ensure!(
        holders.len() == expected.len(),
        "not only {expected:?}: {holders:#?}"
    );
    Ok(())
}

/// The namespace in an explanation of it.
fn explained(look: &SnapshotRun, inode: u64) -> anyhow::Result<&Value> {
    let parts = look.explanation()?["netns"]
        .as_array()
        .context("no netns")?;
    let mut its = parts.iter().filter(|part| part["inode"] == inode);
    its.next().with_context(|| look.brief())
}

/// A node with a namespace that an ADD of ten minutes ago has left, that the
/// runtime does not know, and in which nobody is.
struct Pinned {
    node: Containerd,
    pods: PodsFile,
    live: Sandbox,
    pod: Pod,
    id: String,
    /// As the node has it.
    path: String,
    inode: u64,
    _scratch: Scratch,
}

const ADDRESS: &str = "198.18.251.7";

impl Pinned {
    fn new() -> anyhow::Result<Self> {
        let scratch = Scratch::create()?;
        let node = Containerd::start()?;
        let mut pods = PodsFile::create(scratch.path())?;
        let web = Pod::new("shop", "web-0")?;
        let live = node.run_pod(&web.name, &web.namespace, &web.uid, 0, false)?;
        pods.put(&web, live.ip)?;
        // One namespace alone could be all that the list is of.
        pods.put(&Pod::new("kube-system", "proxy")?, None)?;
        // A name as containerd gives them.
        let path = format!("/run/netns/cni-{}", pod_uid()?);
        let make = r#"touch "$1"; unshare --net="$1" sh -ec "
            ip link set lo up
            ip link add eth0 type veth peer name eth1
            ip addr add $2/24 dev eth0
            ip link set eth0 up""#;
        shell(&node, make, &[&path, ADDRESS])?;
        let inode = fs::metadata(node.host_path(&path))?.ino();
        let (pod, id) = (Pod::new("shop", "db-0")?, container_id()?);
        remember(&node, &live, &pod, &id, (&path, ADDRESS))?;
        pods.put(&pod, None)?;
        Ok(Self {
            node,
            pods,
            live,
            pod,
            id,
            path,
            inode,
            _scratch: scratch,
        })
    }

    fn look(&self, subcommand: &str, args: &[&str]) -> anyhow::Result<SnapshotRun> {
        let list = self.pods.path().display().to_string();
        on_node(&self.node, subcommand, &[&["--pods", &list], args].concat())
    }

    fn mount(&self) -> Value {
        json!({ "kind": "mount", "path": self.path })
    }

    /// A keeper, and as what it is a holder.
    fn keep(&self, by: By) -> anyhow::Result<(Keeper, Value)> {
        let keeper = Keeper::start(by, &self.node.host_path(&self.path))?;
        let holder = json!({ "kind": by.kind(), "pid": keeper.pid() });
        Ok((keeper, holder))
    }
}

test!(NODE, scan_tells_a_pinned_netns);
fn scan_tells_a_pinned_netns() -> anyhow::Result<()> {
    let stage = Pinned::new()?;
    let look = stage.look("scan", &[])?;
    look.expect_code(1)?;
    let finding = on_netns(&look, "pinned-netns", stage.inode)?;
    expect_holders(finding, &[stage.mount()])?;
    ensure!(
        finding["severity"] == "warning"
            && finding["pod"]["uid"] == stage.pod.uid.as_str()
            && finding["sandbox_id"] == stage.id.as_str()
            && finding["addresses"] == json!([ADDRESS]),
        "{finding:#}"
    );
    let live = look.findings_on(&[stage.live.netns_inode]);
    ensure!(live.is_empty(), "the live one: {live:#?}");
    Ok(())
}

test!(NODE, scan_tells_how_a_pinned_netns_is_let_go);
/// The advice is pasted as it is printed.
fn scan_tells_how_a_pinned_netns_is_let_go() -> anyhow::Result<()> {
    let stage = Pinned::new()?;
    let look = stage.look("scan", &[])?;
    let finding = on_netns(&look, "pinned-netns", stage.inode)?;
    let pasted = Shell::on(&stage.node)?.paste_all(finding)?;
    let gone = !stage.node.host_path(&stage.path).exists();
    ensure!(gone, "{pasted:#?}");
    let look = stage.look("scan", &[])?;
    let left = look.findings_on(&[stage.inode]);
    ensure!(left.is_empty(), "{left:#?}");
    Ok(())
}

test!(NODE, scan_tells_a_mount_that_a_removed_sandbox_has_left);
/// The runtime has removed its sandbox long ago: no deletion is under way, so
/// one look is enough.
fn scan_tells_a_mount_that_a_removed_sandbox_has_left() -> anyhow::Result<()> {
    let mut stage = Pinned::new()?;
    stage.pods.remove(&stage.pod)?;
    for round in 0..3 {
        let look = stage.look("scan", &[])?;
        let ghost = on_netns(&look, "ghost-sandbox", stage.inode)
            .with_context(|| format!("round {round}"))?;
        expect_holders(ghost, &[stage.mount()])?;
        ensure!(
            look.findings_on(&[stage.inode]).len() == 1,
            "one thing is one finding: {}",
            look.brief()
        );
    }
    Ok(())
}

test!(NODE, scan_and_explain_tell_all_that_holds_a_pinned_netns);
/// Who unmounts the one must know of the others.
fn scan_and_explain_tell_all_that_holds_a_pinned_netns() -> anyhow::Result<()> {
    let stage = Pinned::new()?;
    let (_by_fd, fd) = stage.keep(By::Descriptor)?;
    let (_by_socket, socket) = stage.keep(By::Socket)?;
    let expected = [stage.mount(), fd, socket];
    let look = stage.look("scan", &[])?;
    expect_holders(on_netns(&look, "pinned-netns", stage.inode)?, &expected)?;
    let look = stage.look("explain", &[ADDRESS])?;
    expect_holders(explained(&look, stage.inode)?, &expected)
}

test!(
    NODE,
    explain_tells_a_netns_that_only_a_descriptor_or_a_socket_holds
);
/// Without its name nothing ties it to a pod, but it is not lost.
fn explain_tells_a_netns_that_only_a_descriptor_or_a_socket_holds() -> anyhow::Result<()> {
    for by in [By::Descriptor, By::Socket] {
        kept_by(by).with_context(|| format!("{by:?}"))?;
    }
    Ok(())
}

fn kept_by(by: By) -> anyhow::Result<()> {
    let stage = Pinned::new()?;
    let (keeper, holder) = stage.keep(by)?;
    shell(&stage.node, r#"umount -l "$1"; rm "$1""#, &[&stage.path])?;
    let inode = stage.inode;
    let explain = |word: &str| stage.look("explain", &[word]);
    for word in [&inode.to_string(), ADDRESS, &keeper.pid().to_string()] {
        let look = explain(word)?;
        expect_holders(explained(&look, inode)?, std::slice::from_ref(&holder))
            .with_context(|| format!("explain {word}"))?;
    }
    drop(keeper);
    wait::until("the netns to end", Duration::from_secs(5), || {
        let look = explain(&inode.to_string())?;
        let parts = look.explanation()?["netns"].as_array().map(Vec::len);
        Ok((parts == Some(0)).then_some(()))
    })
}

test!(
    &[Need::Root, Need::Tracer, Need::Fuse, Need::Cgroup],
    scan_finds_a_stuck_thread_under_a_zombie_leader
);
fn scan_finds_a_stuck_thread_under_a_zombie_leader() -> anyhow::Result<()> {
    let netns = Netns::create()?;
    let (uid, id) = (pod_uid()?, container_id()?);
    let cgroup = Cgroup::create(&uid, &id)?;
    let mut hangfs = HangFs::mount()?;
    let mut process = Leaderless::start("orphan-reader", &netns, Some(&cgroup), &mut hangfs)?;
    process.kill_into_d()?;
    let (pid, tid) = (process.pid(), process.tid());
    wait::pause(Duration::from_millis(1_500))?;
    let args = ["--pods", "none", "--cri", "none", "--stall-threshold", "1s"];
    let look = on_host("scan", &args);
    let explained_tid = on_host("explain", &[&args[..], &[&tid.to_string()]].concat());
    let explained_pid = on_host("explain", &[&args[..], &[&pid.to_string()]].concat());
    hangfs.release();
    drop(process);

    let look = look?;
    look.expect_code(1)?;
    let all = look.findings("blocked-task");
    let is = |holder: &Value| holder["tid"] == tid;
    let finding = all
        .into_iter()
        .find(|it| {
            it["holders"]
                .as_array()
                .is_some_and(|all| all.iter().any(is))
        })
        .with_context(|| format!("no blocked-task of {tid}: {}", look.brief()))?;
    let mut holders = finding["holders"].as_array().into_iter().flatten();
    let holder = holders.find(|holder| is(holder)).context("no holder")?;
    let stack = holder["stack"].to_string();
    ensure!(
        holder["pid"] == pid && holder["state"] == "D" && holder["container_id"] == id.as_str(),
        "{holder:#}"
    );
    ensure!(stack.contains("request_wait_answer"), "{holder:#}");
    ensure!(finding["pod"]["uid"] == uid.as_str(), "{finding:#}");
    ensure!(
        netns_of(finding) == Some(netns.inode()),
        "it holds netns {} open: {finding:#}",
        netns.inode()
    );
    let explained_tid = explained_tid?;
    let asked = &explained_tid.explanation()?["tasks"][0];
    ensure!(asked["tid"] == tid && asked["state"] == "D", "{asked:#}");
    // By the leader one gets to it, too.
    for look in [explained_tid, explained_pid?] {
        let holders = &explained(&look, netns.inode())?["holders"];
        let mut all = holders.as_array().context("no holders")?.iter();
        ensure!(all.any(is), "the stuck thread is no holder: {holders:#}");
        let findings = &look.explanation()?["findings"];
        let mut rules = findings.as_array().into_iter().flatten();
        let told = rules.any(|finding| finding["rule"] == "blocked-task");
        ensure!(told, "no blocked-task: {findings:#}");
        let answer = look.explanation()?["answer"]
            .as_str()
            .context("no answer")?;
        ensure!(answer.contains("stuck"), "{answer}");
    }
    Ok(())
}
