//! Two users and a container do all at once what each hostile test does alone,
//! beside the real incident. What counts is the incident: it is told in time,
//! and nothing else is believed.
//!
//! `cargo xtask siege` runs this for a minute with the released binary.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::cgroup::Cgroup;
use node_tracer_tests::flood::{Flood, NOBODY, Restless};
use node_tracer_tests::incident::{Incident, Sandbox};
use node_tracer_tests::pods::Pod;
use node_tracer_tests::scratch::{Scratch, container_id};
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{Ended, Tracer, is_event, is_finding, names_address, netns_of};
use node_tracer_tests::wait;
use serde_json::Value;

use super::netns::memory;

/// How long, in seconds; `cargo xtask siege` sets it.
const SECONDS: &str = "NODE_TRACER_SIEGE_SECONDS";
const USUALLY: u64 = 10;
/// Another user, who owns nothing either.
const ANOTHER: u32 = NOBODY - 1;
/// Each step of the incident is told within this time.
const IN_TIME: Duration = Duration::from_secs(15);
/// The tracer's memory at its height.
const MEMORY_KIB: u64 = 64 << 10;
/// All that it writes, of an attack of a minute.
const OUTPUT: usize = 1 << 20;

fn seconds() -> anyhow::Result<u64> {
    match std::env::var(SECONDS) {
        Ok(text) => text.parse().with_context(|| format!("{SECONDS}={text}")),
        Err(_) => Ok(USUALLY),
    }
}

/// Who attacks, until this is dropped.
struct Attack {
    end: Arc<AtomicBool>,
    threads: Vec<(&'static str, JoinHandle<anyhow::Result<()>>)>,
}

impl Attack {
    fn new() -> Self {
        Self {
            end: Arc::default(),
            threads: Vec::new(),
        }
    }

    /// Does this again and again.
    fn add(
        &mut self,
        name: &'static str,
        mut round: impl FnMut() -> anyhow::Result<()> + Send + 'static,
    ) {
        let end = Arc::clone(&self.end);
        let thread = std::thread::spawn(move || {
            while !end.load(SeqCst) {
                round()?;
            }
            Ok(())
        });
        self.threads.push((name, thread));
    }

    /// Ends it. An attack that did not take place proves nothing.
    fn end(mut self) -> anyhow::Result<()> {
        self.end.store(true, SeqCst);
        for (name, thread) in self.threads.drain(..) {
            let done = thread.join();
            done.map_err(|_| anyhow::anyhow!("{name} panicked"))?
                .with_context(|| format!("the attack: {name}"))?;
        }
        Ok(())
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.end.store(true, SeqCst);
        for (_, thread) in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A user's own namespace that has the pod's address on a device like a pod's,
/// and that a process keeps.
fn forger(user: u32, address: &str) -> anyhow::Result<Child> {
    let commands = format!(
        "ip link add eth0 type veth peer name p0 && ip addr add {address}/24 dev eth0 && \
         ip link set eth0 up && ip link set p0 up && echo there && read -r _"
    );
    let user = user.to_string();
    Command::new("setpriv")
        .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
        .args(["unshare", "--map-root-user", "--net", "sh", "-c", &commands])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("setpriv")
}

/// Some of these at once, for a moment.
fn forgeries(user: u32, address: &str) -> anyhow::Result<()> {
    let forgers: Result<Vec<Child>, _> = (0..5).map(|_| forger(user, address)).collect();
    let mut forgers = forgers?;
    let mut there = 0;
    for forger in &mut forgers {
        let mut said = [0; 6];
        let stdout = forger.stdout.as_mut().context("no pipe")?;
        there += u32::from(stdout.read_exact(&mut said).is_ok());
    }
    let waited = wait::pause(Duration::from_secs(1));
    for forger in &mut forgers {
        drop(forger.stdin.take());
        forger.wait()?;
    }
    ensure!(there > 0, "no namespace was made");
    waited
}

/// Connections to the port of the metrics that ask nothing.
fn idle(port: u16) -> anyhow::Result<()> {
    let all: Vec<_> = (0..80)
        .filter_map(|_| TcpStream::connect(("127.0.0.1", port)).ok())
        .collect();
    let waited = wait::pause(Duration::from_millis(300));
    drop(all);
    waited
}

fn scrape(port: u16) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.ends_with("# EOF\n"), "a scrape: {answer}");
    Ok(start.elapsed())
}

fn is_ghost(record: &Value, sandbox: &Sandbox) -> bool {
    is_finding(record, "ghost-sandbox") && netns_of(record) == Some(sandbox.netns_inode)
}

test!(
    &[
        Need::Root,
        Need::Fuse,
        Need::Cgroup,
        IP,
        Need::Tracer,
        Need::Cni,
        Need::Program("setpriv", "util-linux"),
        Need::Program("unshare", "util-linux"),
    ],
    siege_of_two_users_and_a_container_changes_no_verdict
);
fn siege_of_two_users_and_a_container_changes_no_verdict() -> anyhow::Result<()> {
    let length = Duration::from_secs(seconds()?);
    let begin = Instant::now();
    let folder = Scratch::create()?;
    let recording = folder.path().join("recording.jsonl");
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut incident = Incident::new()?;
    let pods = incident.pods_file().display().to_string();
    let mut tracer = Tracer::trace(&[
        "--pods",
        &pods,
        "--stall-threshold",
        "1s",
        "--metrics",
        &format!("127.0.0.1:{port}"),
        "--record",
        &recording.display().to_string(),
    ])?;
    let old = incident.start_old_pod()?;
    let address = old.address.to_string();

    let mut attack = Attack::new();
    attack.add("a user's CNI calls", || {
        Flood::calls(NOBODY, 2_000, Path::new("/bin/true")).map(drop)
    });
    attack.add("another user's vfork parents", || {
        let parents = Flood::vfork_parents(ANOTHER, 1_000)?;
        let waited = wait::pause(Duration::from_secs(2));
        drop(parents);
        waited
    });
    for user in [NOBODY, ANOTHER] {
        let address = address.clone();
        attack.add("namespaces with the pod's address", move || {
            forgeries(user, &address)
        });
    }
    attack.add("namespaces and addresses that come and go", || {
        let restless = Restless::user(NOBODY)?;
        let waited = wait::pause(Duration::from_secs(2));
        drop(restless);
        waited
    });
    attack.add("connections that ask nothing", move || idle(port));
    let cgroup = Cgroup::create(&Pod::new("shop", "evil-0")?.uid, &container_id()?)?;
    attack.add("a container's impostors", move || {
        let impostors = Flood::impostors(500, Path::new("/bin/sleep"), &cgroup)?;
        let waited = wait::pause(Duration::from_secs(1));
        drop(impostors);
        waited
    });
    wait::pause(Duration::from_secs(2))?;

    incident.force_delete()?;
    let ghost = |tracer: &mut Tracer, phase: &str| {
        tracer.wait_for(&format!("the ghost, {phase}"), IN_TIME, |record| {
            is_ghost(record, &old) && record["phase"] == phase
        })
    };
    ghost(&mut tracer, "suspected")?;
    incident.garbage_collect()?;
    ghost(&mut tracer, "armed")?;
    let new = incident.start_new_pod()?;
    ghost(&mut tracer, "conflict")?;
    tracer.wait_for("duplicate-address", IN_TIME, |record| {
        is_finding(record, "duplicate-address")
            && record["severity"] == "critical"
            && names_address(record, &address)
    })?;
    let mut slowest = Duration::ZERO;
    while begin.elapsed() < length {
        slowest = slowest.max(scrape(port)?);
        wait::pause(Duration::from_millis(500))?;
    }
    ensure!(slowest < Duration::from_secs(5), "a scrape: {slowest:?}");
    let peak = memory(tracer.pid(), "VmHWM")?;
    attack.end()?;
    incident.release()?;
    tracer.wait_for("the end of the ghost", IN_TIME, |record| {
        is_ghost(record, &old) && record["state"] == "resolved"
    })?;
    let ended = tracer.stop()?;
    let written: usize = ended
        .records
        .iter()
        .map(|it| it.to_string().len() + 1)
        .sum();
    let recorded = std::fs::metadata(&recording)?.len();
    println!(
        "        {} s; {peak} KiB at the height, {written} bytes out, {recorded} recorded, the \
         slowest scrape {slowest:?}",
        begin.elapsed().as_secs()
    );
    holds(&ended, &old, &new)?;
    ensure!(peak < MEMORY_KIB, "{peak} KiB");
    ensure!(written < OUTPUT, "{written} bytes");
    drop(folder);
    incident.clean()
}

/// Nothing but the incident is believed, and all of it.
fn holds(ended: &Ended, old: &Sandbox, new: &Sandbox) -> anyhow::Result<()> {
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    ensure!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    let calls = ended
        .records
        .iter()
        .filter(|record| is_event(record, "cni-call") || is_event(record, "cni-started"));
    for call in calls {
        let is_ours = [&old.id, &new.id]
            .iter()
            .any(|id| call["container_id"] == id.as_str());
        ensure!(
            call["trusted"] == is_ours,
            "believed if it is the runtime's: {call}"
        );
    }
    let inodes = [old.netns_inode, new.netns_inode];
    for finding in ended.records.iter().filter(|it| it["type"] == "finding") {
        let is_incidents = netns_of(finding).is_some_and(|inode| inodes.contains(&inode));
        ensure!(
            finding["severity"] != "critical" || is_incidents,
            "of the incident alone: {finding}"
        );
        ensure!(
            finding["rule"] != "events-lost" || !finding.to_string().contains("cni"),
            "no call of the runtime is lost: {finding}"
        );
    }
    let rivals = ended
        .records
        .iter()
        .filter(|record| is_finding(record, "duplicate-address") && record["severity"] != "info");
    for rival in rivals {
        let text = rival.to_string();
        let of_pods = inodes.iter().all(|inode| text.contains(&inode.to_string()));
        ensure!(of_pods, "the two pods are the rivals: {rival}");
    }
    Ok(())
}
