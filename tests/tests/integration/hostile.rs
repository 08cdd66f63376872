//! Names that want to act on a terminal, and a container that plays a CNI plugin.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::flood::NOBODY;
use node_tracer_tests::hangfs::HangFs;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::process::PodProcess;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::snapshot_run;
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, is_event, is_finding, names_address, netns_of};
use serde_json::Value;

const COMM: &str = "\x1b[31mX\n";
const POD: &str = "\x1b]0 owned\x07\r\u{202e}evil-pod";
const CONTAINER: &str = "\x1b[2Jevil-container";
const SECRET: &str = "s3cr3t-t0k3n";
const ADDRESS: &str = "198.18.250.9";

/// A plugin in a container: it has a PID namespace of its own, waits, and
/// says in its environment what a runtime would.
struct Fake {
    child: Child,
    _folder: Scratch,
}

impl Fake {
    fn call(command: &str, netns: &Netns) -> anyhow::Result<Self> {
        let folder = Scratch::create()?;
        let plugin = folder.path().join("\x1b[1mbridge\n");
        // Ends with its stdin; `cat` runs inside the script's own process.
        fs::write(&plugin, "#!/bin/sh\nexec cat\n")?;
        fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755))?;
        let child = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child"])
            .arg(&plugin)
            // As runtimes do: nothing comes behind the CNI variables.
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", CONTAINER)
            .env("CNI_NETNS", netns.path())
            .env("CNI_IFNAME", "eth0\x1b[0m")
            .env("CNI_PATH", folder.path())
            .env(
                "CNI_ARGS",
                // As long as no runtime's, of which the kernel programs read
                // the end first.
                format!(
                    "K8S_POD_NAMESPACE=shop;K8S_POD_NAME={POD};K8S_POD_UID=evil-uid;K8S_API_TOKEN={SECRET};FILL={}",
                    "x".repeat(500)
                ),
            )
            .env("CNI_TOKEN", SECRET)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("unshare")?;
        Ok(Self {
            child,
            _folder: folder,
        })
    }

    fn end(&mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "the fake plugin: {status}");
        Ok(())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether nothing in a text acts on a terminal or reorders it. A line that
/// goes to a log of many lines may end with a newline.
fn harmless(text: &str) -> bool {
    !text.chars().any(|c| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    })
}

fn is_ours(record: &Value, command: &str) -> bool {
    is_event(record, "cni-call")
        && record["command"] == command
        && record["container_id"] == CONTAINER
}

/// The call is told as what it claims, and is not believed.
fn check_call(call: &Value) -> anyhow::Result<()> {
    ensure!(call["trusted"] == false, "it is trusted: {call}");
    ensure!(
        call["distrust"]
            .as_str()
            .is_some_and(|why| why.contains("PID namespace")),
        "and why: {call}"
    );
    ensure!(call["pod"]["name"] == POD, "its claim, exactly: {call}");
    ensure!(call["plugin"] == "\x1b[1mbridge\n", "its name: {call}");
    ensure!(call["exit_code"] == 0, "{call}");
    Ok(())
}

test!(
    &[
        Need::Root,
        Need::Fuse,
        Need::Tracer,
        IP,
        Need::Program("unshare", "util-linux"),
    ],
    hostile_names_are_escaped
);
fn hostile_names_are_escaped() -> anyhow::Result<()> {
    let mut tracer = Tracer::trace(&["-o", "text", "--stall-threshold", "1s"])?;
    let (one, other) = (Netns::create()?, Netns::create()?);
    for netns in [&one, &other] {
        netns.ip("link add eth0 type veth peer name eth1")?;
    }
    // Were they believed, `one` would be a pod's, and `other` about to go.
    let mut add = Fake::call("ADD", &one)?;
    let mut del = Fake::call("DEL", &other)?;
    let started = |record: &Value, command: &str| {
        is_event(record, "cni-started")
            && record["command"] == command
            && record["container_id"] == CONTAINER
    };
    for command in ["ADD", "DEL"] {
        let event = tracer.wait_for("the fake call's start", SOON, |record| {
            started(record, command)
        })?;
        ensure!(event["trusted"] == false, "it is trusted: {event}");
    }
    add.end()?;
    for netns in [&one, &other] {
        netns.ip(&format!("addr add {ADDRESS}/24 dev eth0"))?;
    }
    // Sooner than a DEL that is believed would excuse it (10 s).
    let duplicate = tracer.wait_for("duplicate-address", Duration::from_secs(5), |record| {
        is_finding(record, "duplicate-address") && names_address(record, ADDRESS)
    })?;
    del.end()?;

    let mut volume = HangFs::mount()?;
    let mut reader = PodProcess::reader(COMM, &one, None, &mut volume)?;
    reader.kill_into_d()?;
    let pid = reader.pid();
    let blocked = tracer.wait_for("blocked-task", SOON, |record| {
        is_finding(record, "blocked-task") && record["holders"][0]["pid"] == pid
    })?;
    ensure!(
        blocked["holders"][0]["comm"] == COMM,
        "the name, exactly: {blocked}"
    );
    volume.release();
    reader.wait_for_end(SOON)?;
    tracer.wait_for("blocked-task: resolved", SOON, |record| {
        is_finding(record, "blocked-task") && record["state"] == "resolved"
    })?;

    for command in ["ADD", "DEL"] {
        let call = tracer.wait_for("the fake call", SOON, |record| is_ours(record, command))?;
        check_call(&call)?;
    }

    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    ensure!(
        ended.unsafe_lines.is_empty(),
        "raw control characters on stdout: {:?}",
        ended.unsafe_lines
    );
    let text = ended.text.join("\n");
    ensure!(harmless(&text), "text: {text:?}");
    ensure!(harmless(&ended.stderr), "stderr: {:?}", ended.stderr);
    ensure!(
        text.contains("\\x1b[31mX"),
        "the blocked task is in the text, by its escaped name:\n{text}"
    );
    let about = [one.inode(), other.inode()];
    for record in &ended.records {
        let line = record.to_string();
        ensure!(!line.contains(SECRET), "the secret: {line}");
        let ours = netns_of(record).is_some_and(|inode| about.contains(&inode))
            || record["id"] == duplicate["id"];
        if record["type"] == "finding" {
            for word in ["evil-pod", "evil-container", "evil-uid", "owned"] {
                ensure!(!line.contains(word), "a finding says {word}: {line}");
            }
            ensure!(!ours || record["pod"].is_null(), "a finding's pod: {line}");
        }
    }
    for part in [&text, &ended.stderr] {
        ensure!(!part.contains(SECRET), "the secret: {part}");
    }
    Ok(())
}

test!(
    &[
        Need::Root,
        Need::Tracer,
        IP,
        Need::Program("setpriv", "util-linux"),
        Need::Program("unshare", "util-linux"),
    ],
    hostile_names_of_mounts_elsewhere_name_nothing_on_the_node
);
/// A user without any right, or a container of root's, keeps a namespace of root's
/// by a mount of its own, over the path of another one.
fn hostile_names_of_mounts_elsewhere_name_nothing_on_the_node() -> anyhow::Result<()> {
    let user = NOBODY.to_string();
    let by_user = ["--reuid", &user, "--regid", &user, "--clear-groups"];
    let by_user = [&by_user[..], &["unshare", "--map-root-user"]].concat();
    mounted_elsewhere(&by_user, |pid| format!("/proc/{pid}/task/{pid}/root"))?;
    mounted_elsewhere(&["unshare"], |pid| format!("/proc/{pid}/root"))
}

fn mounted_elsewhere(unshare: &[&str], root: fn(u32) -> String) -> anyhow::Result<()> {
    let (mut kept, other) = (Netns::create()?, Netns::create()?);
    kept.ip("link add eth0 type veth peer name eth1")?;
    kept.ip(&format!("addr add {ADDRESS}/24 dev eth0"))?;
    let (inode, from, over) = (kept.inode(), kept.path().display(), other.path().display());
    let commands = format!(
        "mount --make-rprivate / && mount --bind {from} {over} && echo there && exec cat >/dev/null"
    );
    let mut child = Command::new("setpriv")
        .args(unshare)
        .args(["--mount", "sh", "-c", &commands])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("setpriv")?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no pipe")?).read_line(&mut line)?;
    let seen = (|| {
        ensure!(line == "there\n", "{unshare:?} cannot mount it");
        kept.delete()?;
        let look = snapshot_run::on_host("explain", &["--pods", "none", "--cri", "none", ADDRESS])?;
        let netns = look.explanation()?["netns"].as_array();
        let netns = netns.and_then(|all| all.iter().find(|one| one["inode"] == inode));
        let holders = netns.context("it is not found")?["holders"].as_array();
        let paths: Vec<&str> = holders
            .context("no holders")?
            .iter()
            .filter_map(|holder| holder["path"].as_str())
            .collect();
        let root = root(child.id());
        ensure!(
            !paths.is_empty() && paths.iter().all(|path| path.starts_with(&root)),
            "{paths:?}, not in {root}"
        );
        Ok(())
    })();
    drop(child.stdin.take());
    child.wait()?;
    seen
}
