//! host-local's store, as a real plugin made it and as others have left it.

use node_tracer_tests::snapshot_run::{NEWER, NODE};
use node_tracer_tests::test;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use node_tracer_tests::containerd::{Containerd, Generation, STORE, Sandbox, Setup, Subnet};
use node_tracer_tests::pods::{Pod, PodsFile};
use node_tracer_tests::scratch::{Scratch, container_id};
use node_tracer_tests::snapshot_run::{SnapshotRun, on_node};
use serde_json::Value;

/// Older than any ADD that is under way.
const OLD: Duration = Duration::from_secs(600);

/// A node with five addresses, and its list of pods.
struct Stage {
    node: Containerd,
    pods: PodsFile,
    _scratch: Scratch,
}

impl Stage {
    fn new() -> anyhow::Result<Self> {
        Self::of(Generation::Machine)
    }

    fn of(generation: Generation) -> anyhow::Result<Self> {
        let scratch = Scratch::create()?;
        Ok(Self {
            node: Containerd::start_as(Setup {
                generation,
                subnet: Subnet::Small,
                ..Setup::default()
            })?,
            pods: PodsFile::create(scratch.path())?,
            _scratch: scratch,
        })
    }

    fn run(&mut self, name: &str) -> anyhow::Result<Sandbox> {
        let pod = Pod::new("shop", name)?;
        let sandbox = self
            .node
            .run_pod(&pod.name, &pod.namespace, &pod.uid, 0, false)?;
        self.pods.put(&pod, sandbox.ip)?;
        Ok(sandbox)
    }

    fn scan(&self, args: &[&str]) -> anyhow::Result<SnapshotRun> {
        let list = self.pods.path().display().to_string();
        on_node(&self.node, "scan", &[&["--pods", &list], args].concat())
    }

    /// Writes a reservation of this age.
    fn reserve(&self, name: impl AsRef<OsStr>, content: &str, age: Duration) -> anyhow::Result<()> {
        let path = self.node.store().join(name.as_ref());
        fs::write(&path, content)?;
        self.age(&path, age)
    }

    fn age(&self, path: &Path, age: Duration) -> anyhow::Result<()> {
        let file = File::options().write(true).open(path)?;
        Ok(file.set_modified(SystemTime::now() - age)?)
    }
}

/// The address of the same subnet with this last octet.
fn beside(sandbox: &Sandbox, octet: u8) -> anyhow::Result<Ipv4Addr> {
    let [a, b, c, _] = sandbox.ip.context("no address")?.octets();
    Ok(Ipv4Addr::new(a, b, c, octet))
}

/// As host-local writes it.
fn content(id: &str) -> String {
    format!("{id}\r\neth0")
}

fn is_leak(look: &SnapshotRun) -> anyhow::Result<&Value> {
    let all = look.findings("leaked-reservation");
    let mut of_store = all.into_iter().filter(|finding| {
        let first = finding["reservations"][0]["path"].as_str();
        first.is_some_and(|path| path.starts_with(STORE))
    });
    let one = of_store.next();
    ensure!(of_store.next().is_none(), "two: {}", look.brief());
    one.with_context(|| format!("no leaked-reservation: {}", look.brief()))
}

/// What of a store is reported: address to (container, interface).
type Leaks = BTreeSet<(IpAddr, String, Option<String>)>;

fn leaks(finding: &Value) -> anyhow::Result<Leaks> {
    let list = finding["reservations"].as_array().context("none")?;
    let leak = |each: &Value| {
        let address: IpAddr = each["address"].as_str().context("address")?.parse()?;
        let id = each["container_id"].as_str().context("container_id")?;
        let path = PathBuf::from(each["path"].as_str().context("path")?);
        let expected = Path::new(STORE).join(address.to_string());
        ensure!(path == expected, "{}", path.display());
        let ifname = each["ifname"].as_str().map(str::to_owned);
        Ok((address, id.to_owned(), ifname))
    };
    list.iter().map(leak).collect()
}

test!(
    NODE,
    scan_tells_a_running_pods_missing_reservation_and_how_to_put_it_back
);
/// A running pod's reservation is gone, and the advice, pasted as it is printed, puts
/// it back and writes over nothing.
fn scan_tells_a_running_pods_missing_reservation_and_how_to_put_it_back() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let sandbox = stage.run("web-0")?;
    let _neighbour = stage.run("web-1")?;
    let address = sandbox.ip.context("no address")?;
    // What a store says within 2 s of an ADD counts for nothing.
    node_tracer_tests::wait::pause(Duration::from_secs(3))?;
    let quiet = |look: &SnapshotRun| {
        let found = look.findings("unreserved-address");
        ensure!(found.is_empty(), "{}", look.brief());
        Ok(())
    };
    quiet(&stage.scan(&[])?)?;
    let file = stage.node.collect(address)?;
    let look = stage.scan(&[])?;
    let found = look.the("unreserved-address")?;
    ensure!(found["severity"] == "critical", "{found:#}");
    ensure!(
        found["addresses"][0] == address.to_string().as_str(),
        "{found:#}"
    );
    ensure!(found["sandbox_id"] == sandbox.id.as_str(), "{found:#}");
    let steps = found["advice"].as_array().into_iter().flatten();
    let mut steps = steps.filter_map(Value::as_str);
    let restore = steps.find(|step| step.starts_with("flock "));
    let restore = restore.with_context(|| format!("no command: {found:#}"))?;
    let paste = || -> anyhow::Result<bool> {
        let mut shell = Command::new("chroot");
        let shell = shell.arg(stage.node.root()).args(["sh", "-c", restore]);
        Ok(shell.status()?.success())
    };
    ensure!(paste()?, "{restore}");
    ensure!(
        fs::read_to_string(&file)? == content(&sandbox.id),
        "{restore}"
    );
    quiet(&stage.scan(&[])?)?;
    fs::write(&file, content("another"))?;
    ensure!(!paste()?, "it writes over what is there");
    ensure!(fs::read_to_string(&file)? == content("another"));
    Ok(())
}

test!(NODE, scan_tells_leaked_reservations_from_live_ones);
fn scan_tells_leaked_reservations_from_live_ones() -> anyhow::Result<()> {
    tells_leaks_from_live_ones(Stage::new()?)
}

test!(NEWER, scan_tells_leaked_reservations_on_containerd_2);
fn scan_tells_leaked_reservations_on_containerd_2() -> anyhow::Result<()> {
    tells_leaks_from_live_ones(Stage::of(Generation::Newer)?)
}

fn tells_leaks_from_live_ones(mut stage: Stage) -> anyhow::Result<()> {
    let (first, _second) = (stage.run("web-0")?, stage.run("web-1")?);
    let stopped = stage.run("web-2")?;
    ensure!(stage.node.stop(&stopped, Duration::from_secs(20))?, "stop");
    let quiet = stage.scan(&[])?;
    ensure!(
        quiet.findings("leaked-reservation").is_empty(),
        "{}",
        quiet.brief()
    );
    let at = |octet| beside(&first, octet);
    // Live ones, however old: one that runs, and one that has only stopped.
    let first_ip = first.ip.context("no address")?;
    stage.age(&stage.node.store().join(first_ip.to_string()), OLD)?;
    let stopped_ip = stopped.ip.context("no address")?;
    stage.reserve(stopped_ip.to_string(), &content(&stopped.id), OLD)?;
    // Of nobody: in the range, outside of it, of old host-local, empty, IPv6.
    let (id, bare, six) = (container_id()?, container_id()?, container_id()?);
    let mut expected = Leaks::new();
    let mut leak = |address: IpAddr, text: &str, id: &str, ifname: Option<&str>| {
        expected.insert((address, id.to_owned(), ifname.map(str::to_owned)));
        stage.reserve(address.to_string(), text, OLD)
    };
    leak(at(5)?.into(), &content(&id), &id, Some("eth0"))?;
    leak(at(200)?.into(), &bare, &bare, None)?;
    leak(at(201)?.into(), "", "", None)?;
    leak("fd00::5".parse()?, &content(&six), &six, Some("eth0"))?;
    // In the making, perhaps.
    stage.reserve(
        at(202)?.to_string(),
        &content(&container_id()?),
        Duration::from_secs(5),
    )?;
    for other in ["README", "198.19.1", "198.019.1.1", "last_reserved_ip.1"] {
        stage.reserve(other, "x", OLD)?;
    }

    let look = stage.scan(&[])?;
    look.expect_code(1)?;
    let finding = is_leak(&look)?;
    ensure!(finding["severity"] == "warning", "{finding:#}");
    ensure!(leaks(finding)? == expected, "{finding:#}");
    ensure!(
        look.findings("range-exhausted").is_empty(),
        "{}",
        look.brief()
    );

    // Cgroups do not show a sandbox that has stopped: worth knowing, not more.
    let look = stage.scan(&["--cri", "none"])?;
    let less = is_leak(&look)?;
    ensure!(less["severity"] == "info", "{less:#}");
    expected.insert((
        stopped_ip.into(),
        stopped.id.clone(),
        Some("eth0".to_owned()),
    ));
    ensure!(leaks(less)? == expected, "{less:#}");
    ensure!(less["id"] == finding["id"], "one finding");
    look.expect_unknown("whether CRI still has their sandboxes: CRI was not asked")
}

test!(NODE, scan_tells_a_range_that_leaks_have_filled);
fn scan_tells_a_range_that_leaks_have_filled() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let live = stage.run("web-0")?;
    let octets = 3..=6;
    for octet in octets.clone() {
        stage.reserve(
            beside(&live, octet)?.to_string(),
            &content(&container_id()?),
            OLD,
        )?;
    }
    let look = stage.scan(&[])?;
    look.expect_code(1)?;
    let full = look.the("range-exhausted")?;
    ensure!(
        full["severity"] == "critical"
            && full["used"] == 5
            && full["leaked"] == 4
            && full["size"] == 5,
        "{full:#}"
    );
    let found: BTreeSet<IpAddr> = leaks(is_leak(&look)?)?
        .into_iter()
        .map(|(address, ..)| address)
        .collect();
    let expected = octets.map(|octet| beside(&live, octet).map(IpAddr::from));
    ensure!(
        found == expected.collect::<anyhow::Result<_>>()?,
        "{found:?}"
    );
    // It is so: no pod can start.
    let error = stage.run("web-1").err().context("a pod has started")?;
    let error = format!("{error:#}");
    ensure!(error.contains("no IP addresses available"), "{error}");
    Ok(())
}

/// A name, what is there, and whether it could be a reservation.
fn plant_bad_files(stage: &Stage, live: &Sandbox, canary: &str) -> anyhow::Result<Vec<PathBuf>> {
    let (node, store) = (&stage.node, stage.node.store());
    let name = |octet: u8| beside(live, octet).map(|address| address.to_string());
    let outside = Path::new("/tmp/canary");
    fs::write(node.host_path(outside), content(canary))?;
    let mut named = Vec::new();
    let mut bad = |name: String| {
        named.push(Path::new(STORE).join(&name));
        store.join(name)
    };
    File::create(bad(name(3)?))?.set_len(100 << 20)?;
    symlink("../../../../../../../tmp/canary", bad(name(4)?))?;
    symlink(outside, bad(name(5)?))?;
    let fifo = bad(name(6)?);
    let made = Command::new("mkfifo").arg(&fifo).status()?;
    ensure!(made.success(), "mkfifo");
    fs::create_dir(bad(name(98)?))?;
    fs::write(bad(name(99)?), [0x1b, b'[', b'2', b'J', 0, 0xff])?;
    // Names that are no addresses are nobody's.
    fs::write(store.join(OsStr::from_bytes(b"198.19.\xff")), "x")?;
    fs::write(store.join("\u{1b}[2Jevil"), content(canary))?;
    // A store that leads out of the host's root, and one that is no folder.
    let stores = store.parent().context("no parent")?;
    let host = stage.pods.path().with_file_name("outside");
    fs::create_dir(&host)?;
    fs::write(host.join("198.19.9.9"), content(canary))?;
    symlink(&host, stores.join("outside"))?;
    let up: PathBuf = (0..20).map(|_| "..").collect();
    symlink(
        up.join(host.strip_prefix("/")?),
        stores.join("further-outside"),
    )?;
    symlink("/proc/1/root", stores.join("process"))?;

    let results = node.host_path("/var/lib/cni/results");
    let id = container_id()?;
    let whole = results.join(format!("stage-{}-eth0", live.id));
    let text = fs::read_to_string(&whole)?;
    for (name, text) in [
        (format!("stage-{id}-eth0"), &text[..text.len() / 2]),
        (format!("stage-{id}-eth1"), "[[[[[[[["),
        (format!("stage-{id}-eth2"), ""),
    ] {
        fs::write(results.join(&name), text)?;
        named.push(Path::new("/var/lib/cni/results").join(name));
    }
    let link = format!("stage-{id}-eth3");
    symlink("../../../../../tmp/canary", results.join(&link))?;
    named.push(Path::new("/var/lib/cni/results").join(link));
    Ok(named)
}

test!(NODE, scan_follows_and_believes_no_bad_file);
fn scan_follows_and_believes_no_bad_file() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let live = stage.run("web-0")?;
    let canary = format!("canary{}", &container_id()?[..32]);
    let named = plant_bad_files(&stage, &live, &canary)?;
    let (leaked, id) = (beside(&live, 200)?, container_id()?);
    stage.reserve(leaked.to_string(), &content(&id), OLD)?;

    let recording = stage.pods.path().with_file_name("run.jsonl");
    let written = recording.display().to_string();
    let look = stage.scan(&["--record", &written])?;
    look.expect_code(1)?;
    println!("        {:.2} s", look.elapsed.as_secs_f32());
    ensure!(look.elapsed < Duration::from_secs(10), "{:?}", look.elapsed);
    ensure!(!look.says(&canary), "a link was followed: {}", look.brief());
    ensure!(
        !fs::read_to_string(&recording)?.contains(&canary),
        "a link was followed"
    );
    // The rest is judged.
    let finding = is_leak(&look)?;
    let expected = Leaks::from([(leaked.into(), id, Some("eth0".to_owned()))]);
    ensure!(leaks(finding)? == expected, "{finding:#}");
    // Each is named, or at least counted.
    let unknown = look.unknown();
    let unnamed = named.iter().filter(|path| {
        let path = path.display().to_string();
        !unknown.iter().any(|text| text.contains(&path))
    });
    let counted = unknown
        .iter()
        .filter_map(|text| text.strip_suffix(" more like these"));
    let counted: Vec<usize> = counted.flat_map(str::parse).collect();
    ensure!(
        unnamed.clone().count() <= counted.iter().sum(),
        "{:?} are not among {unknown:#?}",
        unnamed.collect::<Vec<_>>()
    );

    // Those who read the text are told at the end: it has no coverage of what
    // was seen in part.
    let summary = &look.summary()?["unknown"];
    let told = |source: &str| summary.to_string().contains(source);
    ensure!(told("host-local: ") && told("libcni: "), "{summary:#}");

    // And each of them is what explain cannot tell about its address.
    for octet in [3, 4, 5, 6, 98, 99] {
        let address = beside(&live, octet)?.to_string();
        let list = stage.pods.path().display().to_string();
        let look = on_node(&stage.node, "explain", &["--pods", &list, &address])?;
        ensure!(!look.says(&canary), "a link was followed: {}", look.brief());
        look.expect_unknown(&format!("{STORE}/{address}"))?;
        ensure!(
            look.explanation()?["subject"]["complete"] == false,
            "{}",
            look.brief()
        );
    }
    Ok(())
}
