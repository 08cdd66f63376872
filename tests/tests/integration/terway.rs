//! What a ghost leads to, foretold: on a node with Terway, whose garbage
//! collection takes the address back and gives it to the next pod, a conflict;
//! with host-local, which releases nothing but by DEL, a leak.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::containerd::incident::RealIncident;
use node_tracer_tests::containerd::{Containerd, Sandbox, Setup};
use node_tracer_tests::hangfs::HangFs;
use node_tracer_tests::pods::{Pod, PodsFile};
use node_tracer_tests::process::{state, wchan};
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::snapshot_run::INCIDENT;
use node_tracer_tests::terway::{self, Plugin, Store};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, is_event, is_finding, names_address, netns_of};
use node_tracer_tests::wait;
use serde_json::Value;

/// Time that kubelet would give the runtime; here as short as it may be.
const DEADLINE: Duration = Duration::from_secs(2);
/// Terway's period of garbage collection.
const PERIOD: f64 = 300.0;
/// What may pass between the second address and the verdict is 100 ms. This
/// is for a debug build on a machine that does much else; the time is printed.
const NOISE: Duration = Duration::from_secs(1);

/// A node with Terway's ways. Dropping it, at any step, removes all.
struct Stage {
    // Dropped in this order: the file system lets go of the reader first.
    hangfs: HangFs,
    node: Containerd,
    plugin: Plugin,
    store: Store,
    pods: PodsFile,
    _scratch: Scratch,
}

impl Stage {
    fn new() -> anyhow::Result<Self> {
        let scratch = Scratch::create()?;
        let hangfs = HangFs::mount()?;
        let plugin = Plugin::create()?;
        let node = Containerd::start_as(Setup {
            volumes: &[hangfs.mount_point(), plugin.folder().volume()],
            plugins: Some(plugin.folder().plugins()),
            network: Some(&Plugin::network()),
            ..Setup::default()
        })?;
        Ok(Self {
            store: Store::create(&node.host_path(terway::STORE))?,
            hangfs,
            node,
            plugin,
            pods: PodsFile::create(scratch.path())?,
            _scratch: scratch,
        })
    }

    /// A pod gets this address; the daemon writes it down.
    fn start(&mut self, name: &str, address: Ipv4Addr) -> anyhow::Result<(Pod, Sandbox)> {
        let pod = Pod::new("shop", name)?;
        self.pods.put(&pod, None)?;
        self.plugin.give_next(address)?;
        let node = &self.node;
        let sandbox = node.run_pod(&pod.name, &pod.namespace, &pod.uid, 0, false)?;
        ensure!(sandbox.ip == Some(address), "{sandbox:?} has {address}");
        self.store.allocate(&pod, &sandbox, address)?;
        self.pods.put(&pod, Some(address))?;
        Ok((pod, sandbox))
    }

    /// A container that reads from the volume.
    fn start_reader(&mut self, sandbox: &Sandbox) -> anyhow::Result<u32> {
        let argv = [
            "/bin/dd",
            "if=/hang/hang",
            "of=/dev/null",
            "bs=4",
            "count=1",
        ];
        let volume = self.hangfs.mount_point().to_owned();
        let mounts = [(volume.as_path(), "/hang")];
        let (_, pid) = self.node.run_container(sandbox, "app", &argv, &mounts)?;
        self.hangfs.wait_for_reader(pid)?;
        Ok(pid)
    }

    /// The object goes at once; the runtime kills all processes, and does not
    /// come back because one does not die.
    fn force_delete(&mut self, pod: &Pod, sandbox: &Sandbox, reader: u32) -> anyhow::Result<()> {
        self.pods.remove(pod)?;
        let stopped = self.node.stop(sandbox, DEADLINE)?;
        ensure!(!stopped, "StopPodSandbox came back");
        wait::until("the reader to be in state D", SOON, || {
            Ok((state(reader) == Some('D') && wchan(reader) != "0").then_some(()))
        })
    }
}

/// Seconds since midnight, UTC, of a record's time.
fn seconds(time: &Value) -> anyhow::Result<f64> {
    let text = time.as_str().context("no time")?;
    let clock = text.split('T').nth(1).context("no time of day")?;
    let mut parts = clock
        .trim_end_matches('Z')
        .split(':')
        .map(str::parse::<f64>);
    let mut next = || parts.next().context("no time of day");
    Ok(next()?? * 3600.0 + next()?? * 60.0 + next()??)
}

/// From one time to another, whichever day.
fn between(from: &Value, to: &Value) -> anyhow::Result<f64> {
    let day = 86_400.0;
    let difference = seconds(to)? - seconds(from)?;
    Ok((difference + day / 2.0).rem_euclid(day) - day / 2.0)
}

fn is_ghost(record: &Value, sandbox: &Sandbox, phase: &str) -> bool {
    is_finding(record, "ghost-sandbox")
        && netns_of(record) == Some(sandbox.netns_inode)
        && record["state"] != "resolved"
        && record["phase"] == phase
}

fn ghost(tracer: &mut Tracer, old: &Sandbox, phase: &str) -> anyhow::Result<(Instant, Value)> {
    tracer.wait_with_time(&format!("ghost-sandbox: {phase}"), SOON, |record| {
        is_ghost(record, old, phase)
    })
}

test!(
    INCIDENT,
    terway_ghost_is_armed_before_its_address_is_given_out
);
fn terway_ghost_is_armed_before_its_address_is_given_out() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let pods = stage.pods.path().display().to_string();
    let mut tracer = stage
        .node
        .trace(&["--pods", &pods, "--stall-threshold", "1s"])?;
    let octet = (std::process::id() % 255) as u8;
    let address = Ipv4Addr::new(198, 19, octet, 7);
    let named = address.to_string();
    let (bystander, _) = stage.start("cart-0", Ipv4Addr::new(198, 19, octet, 8))?;
    let (pod, old) = stage.start("checkout-0", address)?;
    let reader = stage.start_reader(&old)?;
    // For the store to be read once with both in it.
    wait::pause(Duration::from_secs(2))?;
    stage.force_delete(&pod, &old, reader)?;

    let (_, suspected) = ghost(&mut tracer, &old, "suspected")?;
    ensure!(names_address(&suspected, &named), "{suspected}");
    let due = tracer.wait_for("when it is due", SOON, |record| {
        is_ghost(record, &old, "suspected") && !record["due"].is_null()
    })?;
    let until = between(&due["time"], &due["due"])?;
    ensure!(
        until > 0.0 && until <= PERIOD,
        "due within one period of the garbage collection: {due}"
    );
    println!("        suspected: due in {until:.0} s");

    let early = tracer
        .records()
        .into_iter()
        .find(|record| is_ghost(record, &old, "armed") || is_ghost(record, &old, "conflict"));
    ensure!(
        early.is_none(),
        "it is still the pod's own: {}",
        early.context("none")?
    );

    let gone = stage.store.collect(stage.pods.path())?;
    ensure!(gone == ["shop/checkout-0"], "{gone:?} were collected");
    let (_, armed) = ghost(&mut tracer, &old, "armed")?;
    ensure!(!armed["due"].is_null(), "armed since when: {armed}");
    ensure!(armed["severity"] == "critical", "{armed}");
    let early = tracer.records().into_iter().find(|record| {
        is_finding(record, "duplicate-address") || is_ghost(record, &old, "conflict")
    });
    ensure!(
        early.is_none(),
        "nobody has it yet: {}",
        early.context("none")?
    );

    let (_, new) = stage.start("checkout-1", address)?;
    let (seen, second) = tracer.wait_with_time("the second address", SOON, |record| {
        is_event(record, "address-added")
            && names_address(record, &named)
            && netns_of(record) == Some(new.netns_inode)
    })?;
    let (said, conflict) = ghost(&mut tracer, &old, "conflict")?;
    let (doubled, duplicate) = tracer.wait_with_time("duplicate-address", SOON, |record| {
        is_finding(record, "duplicate-address") && names_address(record, &named)
    })?;
    for (what, at, record) in [
        ("conflict", said, &conflict),
        ("duplicate-address", doubled, &duplicate),
    ] {
        let took = between(&second["time"], &record["time"])?;
        println!(
            "        {what}: {:.1} ms after the second address by the records' times, read {:.1} ms after it",
            took * 1e3,
            at.saturating_duration_since(seen).as_secs_f64() * 1e3
        );
        ensure!(took < NOISE.as_secs_f64(), "{what} took {took} s: {record}");
    }
    ensure!(conflict["id"] == suspected["id"], "one finding all along");
    let ended = tracer.stop()?;
    let wrong = ended.records.iter().find(|record| {
        is_finding(record, "ghost-sandbox") && record["pod"]["uid"] == bystander.uid.as_str()
    });
    ensure!(
        wrong.is_none(),
        "the other pod is none: {}",
        wrong.context("none")?
    );
    Ok(())
}

/// All that a finding says in words.
fn words(finding: &Value) -> String {
    let claims = finding["evidence"].as_array().into_iter().flatten();
    let claims = claims.filter_map(|each| each["claim"].as_str());
    let lists = ["advice", "unknown"].map(|key| finding[key].as_array());
    let lists = lists.into_iter().flatten().flatten();
    let title = finding["title"].as_str().into_iter();
    let words = title.chain(claims).chain(lists.filter_map(Value::as_str));
    words.collect::<Vec<_>>().join("\n")
}

test!(INCIDENT, host_local_ghost_is_foretold_as_a_leak);
fn host_local_ghost_is_foretold_as_a_leak() -> anyhow::Result<()> {
    let mut incident = RealIncident::new()?;
    let pods = incident.pods_file().display().to_string();
    let mut tracer = incident
        .node()
        .trace(&["--pods", &pods, "--stall-threshold", "1s"])?;
    let old = incident.start_old_pod()?;
    incident.force_delete()?;
    ghost(&mut tracer, &old, "suspected")?;
    // Time for all sources to be asked, and for a verdict to change.
    wait::pause(Duration::from_secs(8))?;
    let told = tracer.records();
    let told: Vec<&Value> = told
        .iter()
        .filter(|record| {
            is_finding(record, "ghost-sandbox") && netns_of(record) == Some(old.netns_inode)
        })
        .collect();
    for finding in &told {
        ensure!(
            finding["phase"] == "suspected" && finding["due"].is_null(),
            "it is reserved, and nobody frees it: {finding}"
        );
    }
    let last = told.last().context("none")?;
    ensure!(words(last).contains("leak"), "what will come of it: {last}");
    incident.release()?;
    tracer.wait_for("the end", SOON, |record| {
        is_finding(record, "ghost-sandbox")
            && netns_of(record) == Some(old.netns_inode)
            && record["state"] == "resolved"
    })?;
    drop(tracer);
    incident.clean()
}
