//! Creation and destruction of network namespaces.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::netns::{Netns, connect};
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, is_event, netns_of};
use node_tracer_tests::wait;
use serde_json::Value;

/// (created, destroyed) by inode, and whether each inode's events alternate
/// in that order.
fn lives(records: &[Value]) -> BTreeMap<u64, (usize, usize, bool)> {
    let mut lives = BTreeMap::new();
    for record in records {
        let Some(inode) = netns_of(record) else {
            continue;
        };
        let (created, destroyed, in_order) = lives.entry(inode).or_insert((0, 0, true));
        if is_event(record, "netns-created") {
            *in_order &= created == destroyed;
            *created += 1;
        } else if is_event(record, "netns-destroyed") {
            *destroyed += 1;
            *in_order &= created == destroyed;
        }
    }
    lives.retain(|_, (created, destroyed, _)| *created + *destroyed > 0);
    lives
}

fn total(lives: &BTreeMap<u64, (usize, usize, bool)>) -> (usize, usize) {
    lives
        .values()
        .fold((0, 0), |sum, life| (sum.0 + life.0, sum.1 + life.1))
}

test!(
    &[
        Need::Root,
        Need::Tracer,
        Need::Program("unshare", "util-linux"),
    ],
    netns_storm_loses_nothing
);
/// 200 namespaces in a row. Other programs on the machine may make some too,
/// so the inodes that each `unshare` had are what is looked for.
fn netns_storm_loses_nothing() -> anyhow::Result<()> {
    const COUNT: usize = 200;
    let tracer = Tracer::trace(&[])?;
    let mut expected: BTreeMap<u64, usize> = BTreeMap::new();
    for _ in 0..COUNT {
        let output = Command::new("unshare")
            .args(["-n", "stat", "-Lc", "%i", "/proc/self/ns/net"])
            .output()
            .context("unshare")?;
        let inode = String::from_utf8(output.stdout)?
            .trim()
            .parse()
            .context("an inode")?;
        *expected.entry(inode).or_default() += 1;
    }
    let complete = |lives: &BTreeMap<u64, (usize, usize, bool)>| {
        expected.iter().all(|(inode, count)| {
            lives
                .get(inode)
                .is_some_and(|life| life.0 >= *count && life.1 >= *count)
        })
    };
    // The kernel destroys namespaces a moment later; what is missing is reported below.
    let _ = wait::until("all of them", SOON, || {
        Ok(complete(&lives(&tracer.records())).then_some(()))
    });
    let ended = tracer.stop()?;
    let lives = lives(&ended.records);
    ensure!(
        complete(&lives),
        "{COUNT} made; seen (created, destroyed): {:?}; stderr: {}",
        total(&lives),
        ended.stderr.trim()
    );
    for inode in expected.keys() {
        ensure!(
            lives[inode].2,
            "netns {inode}: created and destroyed do not alternate"
        );
    }
    let (created, destroyed) = total(&lives);
    println!("        {COUNT} made: {created} created, {destroyed} destroyed were reported");
    let summary = ended.records.last().context("no summary")?;
    ensure!(summary["type"] == "summary", "the last record is {summary}");
    ensure!(
        !ended
            .records
            .iter()
            .any(|record| record["rule"] == "events-lost"),
        "events were lost: {summary}"
    );
    Ok(())
}

/// Runs `unshare -n true` until `end`; the process ID of each.
fn make_until(end: Instant) -> anyhow::Result<Vec<u32>> {
    let mut made = Vec::new();
    while Instant::now() < end {
        // It becomes `true` itself, so the ID is that of who made the namespace.
        let mut child = Command::new("unshare")
            .args(["-n", "true"])
            .stdin(Stdio::null())
            .spawn()
            .context("unshare")?;
        made.push(child.id());
        ensure!(child.wait()?.success(), "unshare");
    }
    Ok(made)
}

/// A size from /proc/PID/status, KiB.
pub(crate) fn memory(pid: u32, key: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.trim_matches(':').split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .context(key.to_owned())
}

test!(
    &[
        Need::Root,
        Need::Tracer,
        Need::Program("unshare", "util-linux"),
    ],
    tracer_memory_and_losses_in_a_storm
);
/// Namespaces made as fast as the machine can. Others on the machine may make
/// some too, so those of the storm's own processes are counted.
fn tracer_memory_and_losses_in_a_storm() -> anyhow::Result<()> {
    const LIMIT_KIB: u64 = 30_000_000 / 1024;
    let tracer = Tracer::trace(&[])?;
    let pid = tracer.pid();
    let (at_start, at_rest) = (memory(pid, "VmHWM")?, memory(pid, "VmRSS")?);
    // Starts VmHWM anew (proc(5)).
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").context("clear_refs")?;
    let end = Instant::now() + Duration::from_secs(5);
    let makers = std::thread::scope(|scope| {
        let makers = [(); 2].map(|()| scope.spawn(|| make_until(end)));
        makers.map(|maker| maker.join())
    });
    let mut made: BTreeMap<u32, usize> = BTreeMap::new();
    for maker in makers {
        let pids = maker.map_err(|_| anyhow::anyhow!("a storm's thread panicked"))??;
        pids.into_iter()
            .for_each(|pid| *made.entry(pid).or_default() += 1);
    }
    let count: usize = made.values().sum();

    let of_storm = |records: &[Value]| -> (usize, BTreeMap<String, usize>) {
        let mut destroyed: BTreeMap<String, usize> = BTreeMap::new();
        let mut created = 0;
        for record in records {
            let netns = record["netns"].to_string();
            let maker = record["task"]["pid"]
                .as_u64()
                .and_then(|pid| pid.try_into().ok());
            if is_event(record, "netns-created")
                && maker.is_some_and(|pid: u32| made.contains_key(&pid))
            {
                created += 1;
                destroyed.entry(netns).or_default();
            } else if is_event(record, "netns-destroyed")
                && let Some(count) = destroyed.get_mut(&netns)
            {
                *count += 1;
            }
        }
        (created, destroyed)
    };
    let gone = |destroyed: &BTreeMap<String, usize>| destroyed.values().sum::<usize>();
    // The kernel destroys them a moment later; what is missing is reported below.
    for _ in 0..20 {
        let (created, destroyed) = of_storm(&tracer.records());
        if created >= count && gone(&destroyed) >= count {
            break;
        }
        wait::pause(Duration::from_secs(1))?;
    }
    let (peak, after) = (memory(pid, "VmHWM")?, memory(pid, "VmRSS")?);
    let ended = tracer.stop()?;
    let (created, destroyed) = of_storm(&ended.records);
    let binary = node_tracer_tests::tracer::binary()?;
    let release = binary
        .components()
        .any(|part| part.as_os_str() == "release");
    let mib = |kib: u64| kib as f64 / 1024.0;
    println!(
        "        {count} made in 5 s: {created} created, {} destroyed were reported",
        gone(&destroyed)
    );
    println!(
        "        resident memory: at most {:.1} MiB at the start, {:.1} before the storm, at most {:.1} \
         in it, {:.1} after{}",
        mib(at_start),
        mib(at_rest),
        mib(peak),
        mib(after),
        if release {
            ""
        } else {
            "; a debug build is not judged"
        },
    );
    ensure!(
        created == count && gone(&destroyed) == count,
        "{count} made, {created} created, {} destroyed; stderr: {}",
        gone(&destroyed),
        ended.stderr.trim()
    );
    ensure!(
        destroyed.values().all(|count| *count == 1),
        "each is destroyed once"
    );
    let lost = ended
        .records
        .iter()
        .find(|record| is_event(record, "events-lost") || record["rule"] == "events-lost");
    ensure!(lost.is_none(), "{}", lost.context("none")?);
    ensure!(
        !release || peak.max(at_start) < LIMIT_KIB,
        "at most {at_start} KiB at the start, {peak} KiB in the storm"
    );
    Ok(())
}

test!(
    &[Need::Root, Need::Tracer, IP],
    netns_is_never_kept_alive_by_the_tracer
);
/// A tracer that held a descriptor or a socket would delay the end of every
/// namespace that it looks at; one with addresses gets looked at.
fn netns_is_never_kept_alive_by_the_tracer() -> anyhow::Result<()> {
    const LIMIT: Duration = Duration::from_secs(5);
    let mut tracer = Tracer::trace(&[])?;
    for round in 0..50 {
        let mut netns = Netns::create()?;
        let inode = netns.inode();
        let peer = if round % 2 == 0 {
            let peer = Netns::create()?;
            connect(
                (&netns, "eth0", &format!("198.18.255.{}/24", 10 + round)),
                (&peer, "eth0", &format!("198.18.255.{}/24", 100 + round)),
            )?;
            tracer.wait_for("the address", SOON, |record| {
                is_event(record, "address-added") && netns_of(record) == Some(inode)
            })?;
            Some(peer)
        } else {
            None
        };
        let before = tracer.records().len();
        netns.delete()?;
        // Counted from here: an inode number may have been used before.
        wait::until(
            &format!("netns {inode} (round {round}) to be destroyed"),
            LIMIT,
            || {
                Ok(tracer.records()[before..]
                    .iter()
                    .any(|record| {
                        is_event(record, "netns-destroyed") && netns_of(record) == Some(inode)
                    })
                    .then_some(()))
            },
        )?;
        drop(peer);
    }
    let ended = tracer.stop()?;
    ensure!(
        ended.code == Some(0),
        "exit code {:?}: {}",
        ended.code,
        ended.stderr
    );
    Ok(())
}
