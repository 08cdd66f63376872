//! What a repair changes, what it leaves alone, and what it takes back.

use node_tracer_tests::helper::Killed;
use node_tracer_tests::test;
use std::fs::{self, File};
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::bare::network;
use node_tracer_tests::cgroup::Cgroup;
use node_tracer_tests::rights;
use node_tracer_tests::scratch::{container_id, pod_uid};
use node_tracer_tests::tracer::{SOON, Tracer, command};

use super::{Reserved, Stage, ghost, of, planned, summary, until, with, withheld};

test!(
    super::NEEDS,
    repair_releases_what_is_leaked_and_undo_puts_it_back
);
fn repair_releases_what_is_leaked_and_undo_puts_it_back() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let leaked = [stage.leak()?, stage.leak()?, stage.leak()?];
    let live = stage.live()?;
    // One that no CNI DEL can give back.
    let empty = stage.node.store().join("198.19.65.1");
    File::create(&empty)?;
    let last = fs::read(stage.node.store().join("last_reserved_ip.0"))?;
    stage.grow_old()?;
    let (plan, file) = stage.plan(&[])?;
    let mut expected = of(&leaked);
    expected.push("198.19.65.1".parse()?);
    ensure!(planned(&plan) == expected, "{plan:#}");
    ensure!(withheld(&plan, &live)? == "live", "{plan:#}");
    ensure!(
        leaked.iter().all(|each| stage.has(each)),
        "a plan changes nothing"
    );
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file)?.permissions());
    ensure!(mode & 0o777 == 0o600, "{mode:o}");
    let before: Vec<_> = leaked
        .iter()
        .map(|each| fs::metadata(stage.file(each)))
        .collect();

    let applied = stage.apply(&file, &[])?;
    applied.expect_code(0)?;
    ensure!(
        with(&applied, "released") == expected,
        "{}",
        applied.brief()
    );
    ensure!(!leaked.iter().any(|each| stage.file(each).exists()) && !empty.exists());
    ensure!(stage.has(&live), "the live one's is gone");
    ensure!(fs::read(stage.node.store().join("last_reserved_ip.0"))? == last);
    // The plan is used up.
    let again = stage.apply(&file, &[])?;
    again.expect_code(1)?;
    ensure!(with(&again, "kept") == expected, "{}", again.brief());

    let backup = summary(&applied)?["backup"].as_str().context("no backup")?;
    let undone = stage.undo(backup)?;
    undone.expect_code(0)?;
    ensure!(with(&undone, "restored") == expected, "{}", undone.brief());
    ensure!(empty.exists() && fs::read(&empty)?.is_empty());
    for (each, before) in leaked.iter().zip(before) {
        ensure!(stage.has(each), "{each:?}");
        let (now, before) = (fs::metadata(stage.file(each))?, before?);
        ensure!(now.modified()? == before.modified()? && now.permissions() == before.permissions());
    }
    let undone = stage.undo(backup)?;
    undone.expect_code(0)?;
    ensure!(with(&undone, "unchanged") == expected, "{}", undone.brief());
    Ok(())
}

/// A plugin that runs for a container, as one of a slow chain does.
pub(super) struct SlowPlugin {
    _process: Killed,
}

impl SlowPlugin {
    pub(super) fn start(stage: &Stage, id: &str) -> anyhow::Result<Self> {
        let program = stage.scratch.path().join("bridge");
        if !program.exists() {
            fs::copy("/bin/sleep", &program)?;
        }
        let mut command = Command::new(&program);
        command.arg("600").env_clear().env("CNI_CONTAINERID", id);
        let child = command.stdin(Stdio::null()).spawn().context("sleep")?;
        Ok(Self {
            _process: Killed(child),
        })
    }
}

fn at(address: IpAddr) -> Reserved {
    Reserved {
        id: String::new(),
        address,
    }
}

test!(super::NEEDS, repair_leaves_alone_what_anything_knows);
fn repair_leaves_alone_what_anything_knows() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let live = stage.live()?;
    let known = Cgroup::create(&pod_uid()?, &live.id)?;
    let by_cgroup = stage.leak()?;
    let cgroup = Cgroup::create(&pod_uid()?, &by_cgroup.id)?;
    let by_address = stage.leak()?;
    let by_cri_address = stage.leak()?;
    stage
        .cri
        .add(&container_id()?, Some(by_cri_address.address));
    let starting = stage.leak()?;
    let plugin = SlowPlugin::start(&stage, &starting.id)?;
    let by_pod = stage.leak()?;
    let linked = stage.leak()?;
    fs::hard_link(stage.file(&linked), stage.scratch.path().join("other"))
        .or_else(|_| fs::hard_link(stage.file(&linked), stage.node.store().join("other")))?;
    // Not of a runtime: CRI would not know it.
    let foreign = "198.19.65.7";
    fs::write(stage.node.store().join(foreign), "k8s_POD_web_1")?;
    fs::write(stage.node.store().join("198.19.65.8"), "a\nb\nc d\n")?;
    // Two addresses of one container, one of which is in use.
    let two = network("two", &["198.19.72.0/24", "fd00:72::/64"]);
    stage.node.configure("20-two.conflist", &two)?;
    let two = stage.node.host_local_of(&two)?;
    let (half, whole) = (container_id()?, container_id()?);
    let halves = two.add(&half)?;
    let ghost = ghost(&[&by_address, &at(halves[1])])?;
    let wholes = two.add(&whole)?;
    let leaked = stage.leak()?;
    stage.grow_old()?;
    let young = stage.leak()?;

    let list = stage.scratch.path().join("pods.json");
    let pod = serde_json::json!({
        "metadata": { "namespace": "shop", "name": "web-0", "uid": pod_uid()? },
        "spec": { "nodeName": "elsewhere" },
        "status": { "phase": "Running", "podIPs": [{ "ip": by_pod.address.to_string() }] },
    });
    let pods = serde_json::json!({ "kind": "List", "items": [pod] });
    fs::write(&list, pods.to_string())?;
    stage.pods = list.display().to_string();
    let (plan, _) = stage.plan(&[])?;
    let mut expected = wholes.clone();
    expected.push(leaked.address);
    expected.sort_unstable();
    ensure!(planned(&plan) == expected, "{expected:?}: {plan:#}");
    for (reserved, reason) in [
        (&live, "live"),
        (&by_cgroup, "live"),
        (&by_address, "live"),
        (&by_cri_address, "live"),
        (&starting, "plugin-runs"),
        (&by_pod, "pod-has-it"),
        (&linked, "hard-link"),
        (&young, "young"),
        (&at(foreign.parse()?), "foreign-id"),
        (&at("198.19.65.8".parse()?), "unreadable"),
        (&at(halves[0]), "companion-live"),
        (&at(halves[1]), "live"),
    ] {
        let said = withheld(&plan, reserved)?;
        ensure!(said == reason, "{said}, not {reason}: {plan:#}");
    }
    drop((known, cgroup, plugin, ghost));
    Ok(())
}

test!(
    super::NEEDS,
    repair_leaves_alone_what_has_changed_since_the_plan
);
fn repair_leaves_alone_what_has_changed_since_the_plan() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let leaked = stage.leak()?;
    let (late, again, alive, seen) = (stage.leak()?, stage.leak()?, stage.leak()?, stage.leak()?);
    let (touched, starting) = (stage.leak()?, stage.leak()?);
    stage.grow_old()?;
    let (plan, file) = stage.plan(&[])?;
    ensure!(planned(&plan).len() == 7, "{plan:#}");
    // The old container's DEL came at last, and the address has a new one.
    stage.host_local.del(&late.id)?;
    let new = container_id()?;
    stage.host_local.add_at(&new, Some(late.address))?;
    // The same ID with the same address: the same bytes in another file.
    stage.host_local.del(&again.id)?;
    stage.host_local.add_at(&again.id, Some(again.address))?;
    // The container is listed after all; its address shows up; it is started.
    stage.cri.add(&alive.id, None);
    let ghost = ghost(&[&seen])?;
    let plugin = SlowPlugin::start(&stage, &starting.id)?;
    let modified = fs::metadata(stage.file(&touched))?.modified()?;
    let writing = File::options().write(true).open(stage.file(&touched))?;
    writing.set_modified(modified)?;
    // By its age alone nothing of this would be kept.
    stage.grow_old()?;

    let applied = stage.apply(&file, &[])?;
    applied.expect_code(1)?;
    ensure!(
        with(&applied, "released") == [leaked.address],
        "{}",
        applied.brief()
    );
    ensure!(with(&applied, "kept").len() == 6, "{}", applied.brief());
    for each in [&again, &alive, &seen, &touched, &starting] {
        ensure!(
            stage.has(each),
            "{each:?} was released: {}",
            applied.brief()
        );
    }
    let new = Reserved {
        id: new,
        address: late.address,
    };
    ensure!(
        stage.has(&new),
        "the new owner's was released: {}",
        applied.brief()
    );
    drop((plugin, ghost));
    Ok(())
}

test!(super::NEEDS, repair_undo_gives_nobodys_address_away);
fn repair_undo_gives_nobodys_address_away() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let leaked = [stage.leak()?, stage.leak()?];
    stage.grow_old()?;
    let (_, file) = stage.plan(&[])?;
    let folder = stage.scratch.path().join("backup");
    let inside = stage.node.store().join("backup");
    let refused = stage.apply(&file, &["--backup", &inside.display().to_string()])?;
    super::expect_refusal(&refused, "inside of the store")?;
    ensure!(leaked.iter().all(|each| stage.has(each)));
    let backup = folder.display().to_string();
    let applied = stage.apply(&file, &["--backup", &backup])?;
    applied.expect_code(0)?;
    let new = container_id()?;
    stage.host_local.add_at(&new, Some(leaked[0].address))?;
    stage.cri.add(&new, Some(leaked[0].address));
    let undone = stage.undo(&backup)?;
    undone.expect_code(1)?;
    ensure!(
        with(&undone, "taken") == [leaked[0].address],
        "{}",
        undone.brief()
    );
    ensure!(
        undone.says(&format!("shop/pod-{}", &new[..8])),
        "{}",
        undone.brief()
    );
    ensure!(
        with(&undone, "restored") == [leaked[1].address],
        "{}",
        undone.brief()
    );
    let new = Reserved {
        id: new,
        address: leaked[0].address,
    };
    ensure!(stage.has(&new) && stage.has(&leaked[1]));
    // A folder that is there is no place for another one.
    stage.grow_old()?;
    let (_, file) = stage.plan(&[])?;
    let refused = stage.apply(&file, &["--backup", &backup])?;
    super::expect_refusal(&refused, "cannot make the backup")
}

/// Holds host-local's lock of a store.
struct Held(#[expect(dead_code, reason = "closing it is what unlocks")] File);

impl Held {
    fn of(store: &Path) -> anyhow::Result<Self> {
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(store.join("lock"))?;
        // SAFETY: flock takes a descriptor, which is open.
        let locked = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) };
        ensure!(locked == 0, "flock: {}", std::io::Error::last_os_error());
        Ok(Self(lock))
    }
}

/// One thread may write, and can hardly look; all others are as those of a scan.
fn expect_few_rights(pid: u32) -> anyhow::Result<()> {
    const WRITES: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 19;
    for thread in rights::of_threads(pid)? {
        let [_, permitted, effective, ..] = thread.sets;
        let may = match thread.name.as_str() {
            "starter" => WRITES,
            _ => rights::mask(&rights::KEPT),
        };
        ensure!((permitted | effective) & !may == 0, "too much: {thread:x?}");
        ensure!(thread.no_new_privs, "{thread:x?}");
    }
    Ok(())
}

test!(super::NEEDS, repair_killed_in_the_middle_can_be_undone);
fn repair_killed_in_the_middle_can_be_undone() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    // Stores are done one after the other, by name: it is killed while it waits
    // for the second one's lock.
    let first: Vec<Reserved> = {
        let other = network("a-first", &["198.19.80.0/24"]);
        stage.node.configure("20-first.conflist", &other)?;
        let host_local = stage.node.host_local_of(&other)?;
        let mut all = Vec::new();
        for _ in 0..5 {
            let id = container_id()?;
            let address = host_local.add(&id)?[0];
            all.push(Reserved { id, address });
        }
        all
    };
    let second = [stage.leak()?, stage.leak()?];
    let store = stage.node.host_path("/var/lib/cni/networks/a-first");
    stage.grow_old()?;
    let (plan, file) = stage.plan(&[])?;
    ensure!(planned(&plan).len() == 7, "{plan:#}");
    let held = Held::of(&stage.node.store())?;
    let backup = stage.scratch.path().join("backup").display().to_string();
    let mut line = command(&["repair", "-o", "json", "--pods", "none", "--hurried"])?;
    line.arg("--root")
        .arg(stage.node.root())
        .args(["--backup", &backup, "--apply"])
        .arg(&file);
    let tracer = Tracer::start(&mut line, |_| ())?;
    until("the first store to be done", || {
        first
            .iter()
            .all(|each| !store.join(each.address.to_string()).exists())
    })?;
    expect_few_rights(tracer.pid())?;
    tracer.signal(libc::SIGKILL);
    let ended = tracer.wait_for_end(SOON)?;
    ensure!(ended.signal == Some(libc::SIGKILL), "{:?}", ended.code);
    drop(held);
    ensure!(second.iter().all(|each| stage.has(each)));
    // As a crash in the middle of a line would leave it.
    let manifest = Path::new(&backup).join("manifest.jsonl");
    let mut text = fs::read(&manifest)?;
    text.extend(br#"{"type":"released","path":"/var/l"#);
    fs::write(&manifest, text)?;

    let undone = stage.undo(&backup)?;
    undone.expect_code(0)?;
    ensure!(
        with(&undone, "restored") == of(&first),
        "{}",
        undone.brief()
    );
    let notes = summary(&undone)?["notes"].to_string();
    ensure!(notes.contains("1 line of the manifest"), "{notes}");
    for each in &first {
        let content = fs::read_to_string(store.join(each.address.to_string()))?;
        ensure!(content == format!("{}\r\neth0", each.id), "{content:?}");
    }
    ensure!(second.iter().all(|each| stage.has(each)));
    Ok(())
}

test!(super::NEEDS, repair_waits_for_host_locals_lock_and_gives_up);
fn repair_waits_for_host_locals_lock_and_gives_up() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let leaked = stage.leak()?;
    stage.grow_old()?;
    let (_, file) = stage.plan(&[])?;
    let held = Held::of(&stage.node.store())?;
    let applied = stage.apply(&file, &[])?;
    ensure!(applied.ended.code == Some(2), "{}", applied.brief());
    ensure!(
        with(&applied, "failed") == [leaked.address],
        "{}",
        applied.brief()
    );
    ensure!(applied.says("was locked for 15 s"), "{}", applied.brief());
    ensure!(stage.has(&leaked) && applied.elapsed > Duration::from_secs(15));
    // Whoever has the lock waits for no disk but the store's.
    let backup = summary(&applied)?["backup"].as_str().context("no backup")?;
    let noted = fs::read_to_string(Path::new(backup).join("manifest.jsonl"))?;
    ensure!(noted.contains(r#""type":"releasing""#), "{noted}");
    drop(held);
    stage.apply(&file, &[])?.expect_code(0)
}
