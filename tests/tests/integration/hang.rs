//! File systems that never answer: what hangs costs its own entry alone, and
//! keeps nobody from ending.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::frozen::FrozenFs;
use node_tracer_tests::hangfs::SilentFs;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::snapshot_run::{self, SnapshotRun};
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::Tracer;
use node_tracer_tests::wait;

const NEEDS: &[Need] = &[Need::Root, Need::Tracer, Need::Fuse, IP];
const FROZEN: &[Need] = &[Need::Root, Need::StaticBusybox, Need::Loop, Need::Tracer];

/// All that one look may take on a busy machine; what hangs takes for ever.
const ENOUGH: Duration = Duration::from_secs(15);

/// A namespace with an address.
fn with_address(netns: Netns, address: &str) -> anyhow::Result<Netns> {
    netns.ip("link add eth0 type veth peer name eth1")?;
    netns.ip(&format!("addr add {address}/24 dev eth0"))?;
    Ok(netns)
}

fn explain(address: &str) -> anyhow::Result<SnapshotRun> {
    snapshot_run::on_host("explain", &["--pods", "none", "--cri", "none", address])
}

/// Whether an explanation has found the namespace of the address.
fn finds(look: &SnapshotRun, netns: &Netns) -> anyhow::Result<()> {
    let all = &look.ended.records;
    let explanation = all.iter().find(|record| record["type"] == "explanation");
    let found = explanation.context("no explanation")?["netns"].as_array();
    let found = found.context("no namespaces")?;
    ensure!(
        found.iter().any(|one| one["inode"] == netns.inode()),
        "not found: {}",
        look.brief()
    );
    Ok(())
}

fn scan() -> anyhow::Result<SnapshotRun> {
    snapshot_run::on_host("scan", &["--pods", "none", "--cri", "none"])
}

/// That it came to its end in time, and that its coverage names all of these.
fn names(look: &SnapshotRun, paths: &[&Path]) -> anyhow::Result<()> {
    ensure!(look.elapsed < ENOUGH, "it took {:?}", look.elapsed);
    let coverage = look.coverage()?.to_string();
    for path in paths {
        let path = path.display().to_string();
        ensure!(coverage.contains(&path), "{path} is not in {coverage}");
    }
    Ok(())
}

test!(NEEDS, hang_of_two_covered_namespaces_costs_these_alone);
fn hang_of_two_covered_namespaces_costs_these_alone() -> anyhow::Result<()> {
    let netns = [1, 2].map(|_| Netns::create());
    let [one, two] = netns;
    let (one, two) = (one?, two?);
    let other = with_address(Netns::create()?, "10.99.7.3")?;
    let _hang = [SilentFs::cover(one.path())?, SilentFs::cover(two.path())?];
    names(&scan()?, &[one.path(), two.path()])?;
    finds(&explain("10.99.7.3")?, &other)
}

test!(NEEDS, hang_of_the_folder_of_namespaces_costs_no_others);
fn hang_of_the_folder_of_namespaces_costs_no_others() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let many: anyhow::Result<Vec<Netns>> =
        (0..12).map(|_| Netns::create_in(folder.path())).collect();
    let many = many?;
    let other = with_address(Netns::create()?, "10.99.7.4")?;
    let hang = SilentFs::cover(folder.path())?;
    names(&scan()?, &[folder.path()])?;
    finds(&explain("10.99.7.4")?, &other)?;
    drop(hang);
    drop(many);
    Ok(())
}

test!(
    NEEDS,
    hang_of_a_read_keeps_scan_explain_and_check_from_nothing
);
fn hang_of_a_read_keeps_scan_explain_and_check_from_nothing() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let _hang = SilentFs::cover(folder.path())?;
    let kubeconfig = folder.path().join("config").display().to_string();
    // Readers of standard output are told of the end, too: `SnapshotRun` waits for it.
    for subcommand in [&["scan"][..], &["explain", "10.99.7.5"], &["check"]] {
        let options = ["--cri", "none", "--kubeconfig", &kubeconfig];
        let line = [&subcommand[1..], &options[..]].concat();
        let look = snapshot_run::on_host(subcommand[0], &line)?;
        ensure!(look.elapsed < ENOUGH, "it took {:?}", look.elapsed);
        ensure!(look.ended.code.is_some(), "{:?}", look.ended.signal);
        ensure!(!look.ended.records.is_empty(), "{}", look.ended.stderr);
    }
    Ok(())
}

test!(
    NEEDS,
    hang_of_the_list_of_pods_keeps_scan_explain_and_trace_from_nothing
);
fn hang_of_the_list_of_pods_keeps_scan_explain_and_trace_from_nothing() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let _hang = SilentFs::cover(folder.path())?;
    let pods = folder.path().join("pods.json").display().to_string();
    let options = ["--cri", "none", "--pods", &pods];
    for subcommand in [&["scan"][..], &["explain", "10.99.7.5"]] {
        let line = [&subcommand[1..], &options[..]].concat();
        let look = snapshot_run::on_host(subcommand[0], &line)?;
        ensure!(look.elapsed < ENOUGH, "it took {:?}", look.elapsed);
        let told = serde_json::to_string(&look.ended.records)?;
        ensure!(told.contains("its disk or file server hangs"), "{told}");
    }
    let mut tracer = Tracer::trace(&["--pods", &pods])?;
    let netns = Netns::create()?;
    tracer.wait_for("the namespace", ENOUGH, |record| {
        record["event"] == "netns-created" && record["netns"]["inode"] == netns.inode()
    })?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    let mut records = ended.records.iter();
    ensure!(
        records.any(|it| it["event"] == "source-failed" && it.to_string().contains("hangs")),
        "that it hangs is not told"
    );
    Ok(())
}

test!(
    FROZEN,
    hang_of_a_recording_stops_neither_the_trace_nor_its_end
);
fn hang_of_a_recording_stops_neither_the_trace_nor_its_end() -> anyhow::Result<()> {
    let disk = Arc::new(Mutex::new(FrozenFs::mount()?));
    let frozen = || disk.lock().map_err(|_| anyhow::anyhow!("panicked"));
    let file = frozen()?.file().with_file_name("run.jsonl");
    let recording = file.display().to_string();
    let mut tracer = Tracer::trace(&["--record", &recording])?;
    wait::until("the recording to begin", ENOUGH, || {
        Ok((fs::metadata(&file)?.len() > 0).then_some(()))
    })?;
    frozen()?.freeze()?;
    // Should the tracer not end, it is not to keep this from ending.
    let late = Arc::downgrade(&disk);
    std::thread::spawn(move || {
        std::thread::sleep(4 * ENOUGH);
        let disk = late.upgrade()?;
        disk.lock().ok()?.thaw().ok()
    });
    // Its events are told although nobody records them.
    wait::pause(Duration::from_secs(2))?;
    let netns = Netns::create()?;
    tracer.wait_for("the namespace", ENOUGH, |record| {
        record["event"] == "netns-created" && record["netns"]["inode"] == netns.inode()
    })?;
    let begin = Instant::now();
    let ended = tracer.stop()?;
    ensure!(begin.elapsed() < ENOUGH, "it took {:?}", begin.elapsed());
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    let last = ended.records.last().context("no record")?;
    ensure!(last["type"] == "summary", "{last}");
    ensure!(
        ended.stderr.contains(&recording),
        "what is not in the recording is not said: {}",
        ended.stderr
    );
    frozen()?.thaw()?;
    // What got there is whole.
    let text = fs::read_to_string(&file)?;
    let broken = text
        .lines()
        .filter(|line| serde_json::from_str::<serde_json::Value>(line).is_err());
    ensure!(broken.count() == 0, "a line that is not whole");
    Ok(())
}
