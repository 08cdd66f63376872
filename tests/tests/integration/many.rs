//! Namespaces with thousands of addresses, such as a host's with kube-proxy in
//! IPVS mode, or whatever a pod with NET_ADMIN makes.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::hangfs::HangFs;
use node_tracer_tests::netns::{Netns, connect};
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{Ended, SOON, Tracer, is_event, is_finding, names_address};
use serde_json::Value;

use crate::netns::memory;

const NEEDS: &[Need] = &[Need::Root, Need::Tracer, IP];

/// The kernel goes through a device's addresses for each new one.
const OF_DEVICE: u32 = 4_500;
/// KiB; of the unoptimised tracer, too.
const MEMORY: u64 = 128 << 10;

fn ip_of(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 64, 0, 0)) + number)
}

/// Puts so many addresses into a namespace, beginning with this number.
fn fill(netns: &Netns, first: u32, count: u32) -> anyhow::Result<()> {
    let mut batch = String::new();
    for number in 0..count {
        let device = number / OF_DEVICE;
        if number % OF_DEVICE == 0 {
            batch += &format!("link add many{device} type veth peer name peer{device}\n");
        }
        batch += &format!("addr add {}/32 dev many{device}\n", ip_of(first + number));
    }
    run_batch(netns, &batch)
}

fn run_batch(netns: &Netns, batch: &str) -> anyhow::Result<()> {
    let mut ip = netns
        .command("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("ip -batch")?;
    ip.stdin
        .take()
        .context("no pipe")?
        .write_all(batch.as_bytes())?;
    ensure!(ip.wait()?.success(), "ip -batch failed");
    Ok(())
}

/// A new namespace with this address.
fn with(address: &str) -> anyhow::Result<Netns> {
    let netns = Netns::create()?;
    netns.ip("link add eth0 type veth peer name eth1")?;
    netns.ip(&format!("addr add {address}/24 dev eth0"))?;
    Ok(netns)
}

fn expect_duplicate(tracer: &mut Tracer, address: &str) -> anyhow::Result<Value> {
    tracer.wait_for(&format!("the duplicate of {address}"), 4 * SOON, |record| {
        is_finding(record, "duplicate-address") && names_address(record, address)
    })
}

fn stop(tracer: Tracer) -> anyhow::Result<Ended> {
    let asked = Instant::now();
    let ended = tracer.stop()?;
    let took = asked.elapsed();
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    ensure!(took < Duration::from_secs(2), "it took {took:?} to end");
    Ok(ended)
}

test!(NEEDS, thousands_of_addresses_in_one_namespace_blind_nobody);
fn thousands_of_addresses_in_one_namespace_blind_nobody() -> anyhow::Result<()> {
    const VICTIM: &str = "198.18.251.2";
    let many = Netns::create()?;
    fill(&many, 0, 6_000)?;
    let mut tracer = Tracer::trace(&[])?;
    let _pair = (with(VICTIM)?, with(VICTIM)?);
    expect_duplicate(&mut tracer, VICTIM)?;
    // The last one of the many is known as well as the first.
    let _other = with(&ip_of(5_999).to_string())?;
    expect_duplicate(&mut tracer, &ip_of(5_999).to_string())?;
    stop(tracer).map(drop)
}

test!(NEEDS, thousands_of_addresses_added_meanwhile_blind_nobody);
fn thousands_of_addresses_added_meanwhile_blind_nobody() -> anyhow::Result<()> {
    const VICTIM: &str = "198.18.251.3";
    let mut tracer = Tracer::trace(&[])?;
    let many = Netns::create()?;
    fill(&many, 0, 6_000)?;
    let _pair = (with(VICTIM)?, with(VICTIM)?);
    expect_duplicate(&mut tracer, VICTIM)?;
    let last = ip_of(5_999).to_string();
    let other = with(&last)?;
    let open = expect_duplicate(&mut tracer, &last)?;
    // What goes is seen to go.
    many.ip(&format!("addr del {last}/32 dev many1"))?;
    tracer.wait_for("it to be resolved", SOON, |record| {
        record["id"] == open["id"] && record["state"] == "resolved"
    })?;
    drop(other);
    let ended = stop(tracer)?;
    let unread = ended.records.iter().find(|record| {
        is_event(record, "events-lost") && record["cause"] == "netns-list-unreadable"
    });
    ensure!(unread.is_none(), "a listing failed: {unread:?}");
    Ok(())
}

test!(
    NEEDS,
    a_hundred_thousand_addresses_of_one_namespace_are_all_seen
);
fn a_hundred_thousand_addresses_of_one_namespace_are_all_seen() -> anyhow::Result<()> {
    const ALL: u32 = 100_000;
    let many = Netns::create()?;
    fill(&many, 0, ALL)?;
    let first = with(&ip_of(0).to_string())?;
    let last = with(&ip_of(ALL - 1).to_string())?;
    let mut tracer = Tracer::trace(&[])?;
    for number in [0, ALL - 1] {
        expect_duplicate(&mut tracer, &ip_of(number).to_string())?;
    }
    within_memory(&tracer)?;
    drop((first, last));
    let ended = stop(tracer)?;
    ensure!(left_out(&ended) == 0, "{} are left out", left_out(&ended));
    Ok(())
}

test!(NEEDS, more_addresses_than_are_kept_are_counted);
fn more_addresses_than_are_kept_are_counted() -> anyhow::Result<()> {
    const VICTIM: &str = "198.18.251.4";
    const ALL: u32 = 150_000;
    let many = Netns::create()?;
    fill(&many, 0, ALL)?;
    let mut tracer = Tracer::trace(&[])?;
    let failed = tracer.wait_for("that some are left out", 4 * SOON, |record| {
        is_event(record, "source-failed") && record["source"] == "addresses"
    })?;
    ensure!(failed["error"].to_string().contains("left out"), "{failed}");
    let _pair = (with(VICTIM)?, with(VICTIM)?);
    expect_duplicate(&mut tracer, VICTIM)?;
    within_memory(&tracer)?;
    let ended = stop(tracer)?;
    let left_out = left_out(&ended);
    ensure!(
        (10_000..=u64::from(ALL) - 100_000).contains(&left_out),
        "{left_out} are left out"
    );
    Ok(())
}

fn left_out(ended: &Ended) -> u64 {
    let summary = ended.records.iter().rfind(|it| it["type"] == "summary");
    let count = summary.and_then(|it| it["events_lost"]["addresses-left-out"].as_u64());
    count.unwrap_or_default()
}

fn within_memory(tracer: &Tracer) -> anyhow::Result<()> {
    let most = memory(tracer.pid(), "VmHWM")?;
    println!("memory: {} MiB at most", most >> 10);
    ensure!(most < MEMORY, "{most} KiB of memory");
    Ok(())
}

test!(
    NEEDS,
    namespaces_that_share_thousands_of_addresses_are_one_finding
);
fn namespaces_that_share_thousands_of_addresses_are_one_finding() -> anyhow::Result<()> {
    const PAIRS: u32 = 15;
    const OF_EACH: u32 = 4_500;
    let mut all = Vec::new();
    for number in 0..PAIRS {
        let (one, other) = (Netns::create()?, Netns::create()?);
        for netns in [&one, &other] {
            fill(netns, number * OF_EACH, OF_EACH)?;
        }
        all.push((one, other));
    }
    let mut tracer = Tracer::trace(&[])?;
    let inodes = |record: &Value| -> Vec<u64> {
        let of = all.iter().flat_map(|(a, b)| [a.inode(), b.inode()]);
        let claims = record["evidence"].to_string();
        of.filter(|inode| claims.contains(&format!("netns {inode}")))
            .collect()
    };
    for (one, other) in &all {
        let open = tracer.wait_for("the pair's finding", 4 * SOON, |record| {
            is_finding(record, "duplicate-address")
                && inodes(record) == [one.inode(), other.inode()]
                && record["address_count"].as_u64() > Some(1_000)
        })?;
        let listed = open["addresses"].as_array().map_or(0, Vec::len);
        ensure!((1..=64).contains(&listed), "it lists {listed} addresses");
    }
    within_memory(&tracer)?;
    let ended = stop(tracer)?;
    let findings: Vec<&Value> = ended
        .records
        .iter()
        .filter(|it| is_finding(it, "duplicate-address") && !inodes(it).is_empty())
        .collect();
    let ids: std::collections::BTreeSet<_> =
        findings.iter().map(|it| it["id"].to_string()).collect();
    ensure!(ids.len() == PAIRS as usize, "{} findings", ids.len());
    let bytes: usize = findings.iter().map(|it| it.to_string().len()).sum();
    ensure!(bytes < 1 << 20, "{bytes} bytes of findings");
    Ok(())
}

test!(
    &[Need::Root, Need::Tracer, Need::Fuse, IP],
    a_namespace_that_cannot_be_reached_costs_its_own_addresses_alone
);
fn a_namespace_that_cannot_be_reached_costs_its_own_addresses_alone() -> anyhow::Result<()> {
    const VICTIM: &str = "198.18.251.5";
    // Two namespaces that nothing but a mount leads to, and that one below a
    // file system that answers nothing.
    let folder = Scratch::create()?;
    let hidden = [
        Netns::create_in(folder.path())?,
        Netns::create_in(folder.path())?,
    ];
    let volume = HangFs::mount()?;
    let _covered = Covered::by(volume.mount_point(), folder.path())?;
    volume.stop()?;
    let mut tracer = Tracer::trace(&["--limit", "comparison"])?;
    let (one, other) = (Netns::create()?, Netns::create()?);
    connect(
        (&one, "eth0", &format!("{VICTIM}/24")),
        (&other, "eth0", &format!("{VICTIM}/24")),
    )?;
    expect_duplicate(&mut tracer, VICTIM)?;
    let failed = tracer.wait_for("that addresses are not known", SOON, |record| {
        is_event(record, "source-failed") && record["source"] == "addresses"
    })?;
    let text = failed["error"].to_string();
    let named = hidden
        .iter()
        .any(|it| text.contains(&it.inode().to_string()));
    ensure!(named, "{failed}");
    stop(tracer).map(drop)
}

/// A folder with something mounted on it.
struct Covered<'a>(&'a Path);

impl<'a> Covered<'a> {
    fn by(cover: &Path, folder: &'a Path) -> anyhow::Result<Self> {
        let mut mount = Command::new("mount");
        let status = mount.arg("--bind").args([cover, folder]).status()?;
        ensure!(status.success(), "mount --bind: {status}");
        Ok(Self(folder))
    }
}

impl Drop for Covered<'_> {
    fn drop(&mut self) {
        let status = Command::new("umount").arg("-l").arg(self.0).status();
        if !status.as_ref().is_ok_and(|status| status.success()) {
            println!("stage: umount {}: {status:?}", self.0.display());
        }
    }
}
