//! A journald that is stopped in its tracks.

use node_tracer_tests::test;
use std::ffi::OsStr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use node_tracer_tests::journald::{Journald, values};
use node_tracer_tests::netns::Netns;
use node_tracer_tests::tracer::{SOON, Tracer, is_event, is_finding};
use node_tracer_tests::wait;
use serde_json::Value;

const NAMESPACES: usize = 10;
/// Findings, one for any two of them: more than the socket's queue holds.
const MANY: usize = NAMESPACES * (NAMESPACES - 1) / 2;
/// Their addresses; what is after it counts.
const NET: &str = "198.18.247.";

fn trace(journald: &Journald) -> anyhow::Result<Tracer> {
    let socket: &OsStr = journald.socket().as_os_str().to_owned().leak();
    Tracer::trace_with(
        &["-o", "journald"],
        &[("NODE_TRACER_JOURNAL_SOCKET", socket)],
    )
}

/// Namespaces of which any two have an address in common that no other has.
fn duplicates() -> anyhow::Result<Vec<Netns>> {
    let all: Vec<Netns> = (0..NAMESPACES)
        .map(|_| Netns::create())
        .collect::<Result<_, _>>()?;
    for netns in &all {
        netns.ip("link add eth0 type veth peer name eth1")?;
    }
    let mut last = 0;
    for (number, one) in all.iter().enumerate() {
        for other in &all[..number] {
            last += 1;
            for netns in [one, other] {
                netns.ip(&format!("addr add {NET}{last}/32 dev eth0"))?;
            }
        }
    }
    Ok(all)
}

fn is_ours(record: &Value) -> bool {
    is_finding(record, "duplicate-address")
        && record["state"] == "open"
        && record["addresses"].to_string().contains(NET)
}

/// Waits until all findings are on stdout.
fn told(tracer: &Tracer) -> anyhow::Result<Vec<String>> {
    wait::until("the findings on stdout", SOON, || {
        let records = tracer.records();
        let ids = records.iter().filter(|record| is_ours(record));
        let ids: Vec<String> = ids.map(|record| record["id"].to_string()).collect();
        Ok((ids.len() >= MANY).then_some(ids))
    })
}

test!(
    super::JOURNALD,
    faults_journald_stopped_in_its_tracks_gets_all_when_it_goes_on
);
fn faults_journald_stopped_in_its_tracks_gets_all_when_it_goes_on() -> anyhow::Result<()> {
    let journald = Journald::start()?;
    let mut tracer = trace(&journald)?;
    journald.freeze()?;
    let pair = duplicates();
    // The stream goes on at once while the journal does not.
    let ids = pair.as_ref().map(|_| told(&tracer));
    journald.thaw()?;
    let ids = match ids {
        Ok(ids) => ids?,
        Err(_) => return pair.map(drop),
    };
    let ours = [
        "SYSLOG_IDENTIFIER=node-tracer",
        "NODE_TRACER_RULE=duplicate-address",
    ];
    let arrived = wait::until("the findings in the journal", SOON, || {
        let entries = journald.records(&ours)?;
        let ids = entries.iter().filter(|entry| {
            values(entry, "NODE_TRACER_STATE") == ["open"]
                && values(entry, "NODE_TRACER_IP").concat().starts_with(NET)
        });
        let ids: Vec<String> = ids
            .flat_map(|entry| values(entry, "NODE_TRACER_FINDING_ID"))
            .map(|id| Value::from(id).to_string())
            .collect();
        Ok((ids.len() >= MANY).then_some(ids))
    })?;
    ensure!(arrived == ids, "another order: {arrived:?}, not {ids:?}");
    tracer.wait_for("its coverage", SOON, |record| record["type"] == "coverage")?;
    let ended = tracer.stop()?;
    let lost = ended
        .records
        .iter()
        .find(|record| is_event(record, "events-lost"));
    ensure!(lost.is_none(), "nothing is lost: {lost:?}");
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    drop(pair);
    Ok(())
}

test!(
    super::JOURNALD,
    faults_journald_stopped_for_good_does_not_keep_it_from_ending
);
fn faults_journald_stopped_for_good_does_not_keep_it_from_ending() -> anyhow::Result<()> {
    let journald = Journald::start()?;
    let tracer = trace(&journald)?;
    journald.freeze()?;
    let outcome = duplicates().and_then(|pair| {
        told(&tracer)?;
        drop(pair);
        let start = Instant::now();
        tracer.signal(libc::SIGTERM);
        let ended = tracer.wait_for_end(SOON)?;
        Ok((ended, start.elapsed()))
    });
    journald.thaw()?;
    let (ended, took) = outcome?;
    println!("        ended {} ms after SIGTERM", took.as_millis());
    ensure!(took < Duration::from_secs(8), "{took:?}");
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    // The other output has its summary, which says what the journal lacks.
    let last = ended.records.last();
    let slow = last.and_then(|last| last["events_lost"]["output-slow"].as_u64());
    ensure!(slow.is_some_and(|count| count > 0), "{last:?}");
    ensure!(
        ended.stderr.contains("did not get to journald"),
        "{}",
        ended.stderr
    );
    Ok(())
}
