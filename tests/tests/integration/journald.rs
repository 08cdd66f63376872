//! Findings in the journal, with a real systemd-journald.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::collect::journal::JournalRemote;
use node_tracer_tests::incident::{Incident, Sandbox, Stuck};
use node_tracer_tests::journald::{Journald, values};
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{
    Ended, SOON, Tracer, command, is_event, is_finding, names_address, netns_of,
};
use node_tracer_tests::wait;
use serde_json::Value;

use crate::command_line::refused;

const NEEDS: &[Need] = &[Need::Root, Need::Tracer, IP, Need::Journald];

/// Names the socket to the tracer.
const SOCKET: &str = "NODE_TRACER_JOURNAL_SOCKET";

/// What a script greps for: SYSLOG_IDENTIFIER.
const OURS: &str = "SYSLOG_IDENTIFIER=node-tracer";

/// JSON on stdout, and the journal.
fn trace(journald: &Journald, args: &[&str]) -> anyhow::Result<Tracer> {
    let args = [&["-o", "journald"], args].concat();
    Tracer::trace_with(&args, &[(SOCKET, journald.socket().as_os_str())])
}

/// Rule (or other kind of record) to message ID, from the catalog.
fn catalog() -> anyhow::Result<BTreeMap<String, String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../node-tracer/packaging/journald/node-tracer.catalog");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines: Vec<&str> = text.lines().collect();
    let entry = |pair: &[&str]| {
        let id = pair[1].strip_prefix("-- ")?;
        Some((pair[0].strip_prefix("# ")?.to_owned(), id.to_owned()))
    };
    Ok(lines.windows(2).filter_map(entry).collect())
}

/// The record that an entry carries.
fn record_of(entry: &Value) -> anyhow::Result<Value> {
    let json = values(entry, "NODE_TRACER_JSON");
    let [json] = json.as_slice() else {
        anyhow::bail!("{} times NODE_TRACER_JSON: {entry}", json.len());
    };
    serde_json::from_str(json).context("NODE_TRACER_JSON")
}

/// Waits for the last record, so that all entries are there.
fn entries(journald: &Journald, ended: &Ended) -> anyhow::Result<Vec<Value>> {
    let summary = ended.records.last().context("no record")?;
    ensure!(summary["type"] == "summary", "the last record: {summary}");
    journald.wait_for("the summary", &[OURS], |entry| {
        record_of(entry).is_ok_and(|record| record == *summary)
    })?;
    journald.records(&[OURS])
}

/// The strings at a path, of one value or of each in a list.
fn texts<'a>(values: impl IntoIterator<Item = &'a Value>) -> BTreeSet<String> {
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    values.into_iter().filter_map(text).collect()
}

/// Each field of the contract against the record, value for value.
fn check_entry(
    entry: &Value,
    record: &Value,
    message_ids: &BTreeMap<String, String>,
) -> anyhow::Result<()> {
    let rule = record["rule"].as_str().context("no rule")?;
    let state = record["state"].as_str().context("no state")?;
    let priority = match (state, record["severity"].as_str()) {
        ("resolved", _) => "5",
        (_, Some("critical")) => "2",
        (_, Some("warning")) => "4",
        (_, Some("info")) => "6",
        _ => anyhow::bail!("no severity: {record}"),
    };
    let holders = || record["holders"].as_array().into_iter().flatten();
    let addresses = record["addresses"].as_array().into_iter().flatten();
    let pod = &record["pod"];
    let name = match (pod["namespace"].as_str(), pod["name"].as_str()) {
        (Some(namespace), Some(name)) => Value::from(format!("{namespace}/{name}")),
        _ => Value::Null,
    };
    let expected: [(&str, BTreeSet<String>); 14] = [
        ("SYSLOG_IDENTIFIER", BTreeSet::from(["node-tracer".into()])),
        ("PRIORITY", BTreeSet::from([priority.into()])),
        (
            "MESSAGE_ID",
            BTreeSet::from([message_ids.get(rule).context("not in the catalog")?.clone()]),
        ),
        ("NODE_TRACER_RULE", texts([&record["rule"]])),
        ("NODE_TRACER_SEVERITY", texts([&record["severity"]])),
        ("NODE_TRACER_STATE", texts([&record["state"]])),
        ("NODE_TRACER_FINDING_ID", texts([&record["id"]])),
        ("NODE_TRACER_IP", texts(addresses)),
        ("NODE_TRACER_NETNS", texts([&record["netns"]["inode"]])),
        ("NODE_TRACER_POD", texts([&name])),
        ("NODE_TRACER_POD_UID", texts([&pod["uid"]])),
        ("NODE_TRACER_SANDBOX_ID", texts([&record["sandbox_id"]])),
        (
            "NODE_TRACER_CONTAINER_ID",
            texts(holders().map(|holder| &holder["container_id"])),
        ),
        (
            "NODE_TRACER_PID",
            texts(holders().map(|holder| &holder["pid"])),
        ),
    ];
    for (field, expected) in expected {
        let found = values(entry, field);
        let distinct: BTreeSet<String> = found.iter().cloned().collect();
        ensure!(
            distinct == expected && found.len() == expected.len(),
            "{field}: {found:?}, not {expected:?}, for {record}"
        );
    }
    let message = values(entry, "MESSAGE").concat();
    let title = record["title"].as_str().context("no title")?;
    let said = match state {
        "open" => message == title,
        "updated" => message == format!("updated: {title}"),
        _ => message.starts_with("resolved after ") && message.ends_with(title),
    };
    ensure!(said, "MESSAGE {message:?} for the title {title:?}");
    Ok(())
}

/// The incident as a script that reads the journal looks for it.
fn check_ghost(journald: &Journald, old: &Sandbox, stuck: &Stuck) -> anyhow::Result<()> {
    let uid = format!("NODE_TRACER_POD_UID={}", old.pod.uid);
    let entries = journald.records(&[OURS, "NODE_TRACER_RULE=ghost-sandbox", &uid])?;
    let first = entries.first().context("no entry of the ghost")?;
    let last = entries.last().context("no entry of the ghost")?;
    let has = |entry: &Value, field: &str, value: &str| {
        ensure!(
            values(entry, field).iter().any(|one| one == value),
            "{field} has no {value}: {entry}"
        );
        Ok(())
    };
    has(first, "NODE_TRACER_STATE", "open")?;
    has(last, "NODE_TRACER_STATE", "resolved")?;
    for entry in &entries {
        has(entry, "NODE_TRACER_IP", &old.address.to_string())?;
        has(entry, "NODE_TRACER_NETNS", &old.netns_inode.to_string())?;
        has(entry, "NODE_TRACER_SANDBOX_ID", &old.id)?;
        let pod = format!("{}/{}", old.pod.namespace, old.pod.name);
        has(entry, "NODE_TRACER_POD", &pod)?;
    }
    let held = |entry: &&Value| values(entry, "NODE_TRACER_PID").contains(&stuck.pid.to_string());
    let entry = entries
        .iter()
        .find(held)
        .context("no entry names the holder")?;
    has(entry, "NODE_TRACER_CONTAINER_ID", &stuck.container_id)?;
    for rule in ["blocked-task", "duplicate-address"] {
        let of_rule = format!("NODE_TRACER_RULE={rule}");
        let entries = journald.records(&[OURS, &of_rule])?;
        ensure!(!entries.is_empty(), "no entry of {rule}");
    }
    Ok(())
}

test!(
    &[
        Need::Root,
        Need::Fuse,
        Need::Cgroup,
        IP,
        Need::Tracer,
        Need::Cni,
        Need::Journald,
    ],
    findings_reach_journald_with_their_fields
);
fn findings_reach_journald_with_their_fields() -> anyhow::Result<()> {
    let message_ids = catalog()?;
    let journald = Journald::start()?;
    let mut incident = Incident::new()?;
    let pods = incident.pods_file().display().to_string();
    let mut tracer = trace(&journald, &["--pods", &pods, "--stall-threshold", "1s"])?;
    let pid = tracer.pid().to_string();
    let old = incident.start_old_pod()?;
    let mut wait_for_ghost = |what: &str, key: &str, value: &str| {
        tracer.wait_for(&format!("ghost-sandbox: {what}"), SOON, |record| {
            is_finding(record, "ghost-sandbox")
                && netns_of(record) == Some(old.netns_inode)
                && record[key] == value
        })
    };
    let stuck = incident.force_delete()?;
    wait_for_ghost("suspected", "phase", "suspected")?;
    incident.garbage_collect()?;
    wait_for_ghost("armed", "phase", "armed")?;
    incident.start_new_pod()?;
    wait_for_ghost("conflict", "phase", "conflict")?;
    incident.release()?;
    wait_for_ghost("resolved", "state", "resolved")?;
    let address = old.address.to_string();
    tracer.wait_for("duplicate-address: resolved", SOON, |record| {
        is_finding(record, "duplicate-address")
            && names_address(record, &address)
            && record["state"] == "resolved"
    })?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);

    let entries = entries(&journald, &ended)?;
    // Everything but single events, in the order of stdout, and nothing else.
    let told = ended
        .records
        .iter()
        .filter(|record| record["type"] != "event");
    let told: Vec<&Value> = told.collect();
    ensure!(
        told.len() == entries.len(),
        "{} records on stdout, {} entries",
        told.len(),
        entries.len()
    );
    for (record, entry) in told.iter().zip(&entries) {
        ensure!(
            record_of(entry)? == **record,
            "NODE_TRACER_JSON is not the record on stdout:\n{record}\n{entry}"
        );
        ensure!(values(entry, "_PID") == [pid.as_str()], "_PID: {entry}");
        match record["type"].as_str() {
            Some("finding") => check_entry(entry, record, &message_ids)?,
            kind => {
                let id = message_ids.get(kind.unwrap_or_default());
                ensure!(
                    Some(&values(entry, "MESSAGE_ID").concat()) == id
                        && values(entry, "PRIORITY") == ["6"]
                        && !values(entry, "MESSAGE").is_empty(),
                    "{kind:?}: {entry}"
                );
            }
        }
    }
    check_ghost(&journald, &old, &stuck)?;
    let findings = told.iter().filter(|record| record["type"] == "finding");
    replays(&entries, &findings.copied().collect::<Vec<_>>())?;
    // The stage's own check counts it among what is left.
    drop(journald);
    incident.clean()
}

/// What `journalctl -o json` prints is replayed as it was told, and made a page of.
fn replays(entries: &[Value], findings: &[&Value]) -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let file = folder.path().join("journal").display().to_string();
    let lines: Vec<String> = entries.iter().map(Value::to_string).collect();
    fs::write(&file, lines.join("\n"))?;
    let output = command(&["replay", "-o", "json", &file])?.output()?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout)?;
    let records = text.lines().map(serde_json::from_str::<Value>);
    let mut records = records.collect::<Result<Vec<_>, _>>()?;
    records.retain(|record| record["type"] == "finding");
    ensure!(records.iter().eq(findings.iter().copied()), "{text}");
    let page = command(&["report", &file, "-o", "-"])?.output()?;
    let page = String::from_utf8(page.stdout)?;
    ensure!(page.contains("ghost-sandbox"), "{page}");
    Ok(())
}

/// Two namespaces with the same address.
fn duplicate(address: &str) -> anyhow::Result<(Netns, Netns)> {
    let pair = (Netns::create()?, Netns::create()?);
    for netns in [&pair.0, &pair.1] {
        give(netns, address)?;
    }
    Ok(pair)
}

fn give(netns: &Netns, address: &str) -> anyhow::Result<()> {
    netns.ip("link add eth0 type veth peer name eth1")?;
    netns.ip(&format!("addr add {address}/24 dev eth0"))
}

fn wait_for_duplicate(tracer: &mut Tracer, address: &str) -> anyhow::Result<Value> {
    tracer.wait_for(&format!("duplicate-address of {address}"), SOON, |record| {
        is_finding(record, "duplicate-address") && names_address(record, address)
    })
}

test!(
    &[
        Need::Root,
        Need::Tracer,
        IP,
        Need::Journald,
        Need::JournalRemote,
    ],
    one_journalctl_finds_an_address_on_all_nodes
);
/// Each node has a journald and systemd-journal-upload; what these send to one
/// systemd-journal-remote is asked once.
fn one_journalctl_finds_an_address_on_all_nodes() -> anyhow::Result<()> {
    const ADDRESS: &str = "198.18.247.2";
    let mut remote = JournalRemote::start()?;
    let _holders = duplicate(ADDRESS)?;
    let mut nodes = Vec::new();
    for name in ["n1", "n2"] {
        let journald = Journald::start()?;
        remote.upload(&journald)?;
        let mut tracer = trace(&journald, &["--node-name", name])?;
        wait_for_duplicate(&mut tracer, ADDRESS)?;
        let ended = tracer.stop()?;
        ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
        let about = format!("NODE_TRACER_IP={ADDRESS}");
        let own = journald.wait_for("the finding", &[OURS, &about], |_| true)?;
        nodes.push((name, own, journald));
    }
    let about = format!("NODE_TRACER_IP={ADDRESS}");
    let found = wait::until("both nodes' entries", SOON, || {
        let found = remote.records(&[&about])?;
        let has = |own: &Value| found.iter().any(|entry| is_same(entry, own));
        Ok(nodes.iter().all(|(_, own, _)| has(own)).then_some(found))
    })?;
    for (name, own, _) in &nodes {
        let entry = found.iter().find(|entry| is_same(entry, own));
        let entry = entry.context("it was there")?;
        ensure!(record_of(entry)?["node"] == *name, "{entry}");
        // Who sent it is told too: replay asks for that.
        ensure!(values(entry, "_UID") == ["0"], "{entry}");
    }
    ensure!(
        remote.records(&["NODE_TRACER_IP=198.18.247.3"])?.is_empty(),
        "of another address there is none"
    );
    Ok(())
}

/// The same entry of the same node.
fn is_same(one: &Value, other: &Value) -> bool {
    let fields = ["_MACHINE_ID", "NODE_TRACER_JSON", "NODE_TRACER_FINDING_ID"];
    fields
        .iter()
        .all(|field| !one[*field].is_null() && one[*field] == other[*field])
}

test!(NEEDS, a_record_larger_than_a_datagram_reaches_journald);
/// Many namespaces with one address, whose names are as long as any that is
/// told: the finding names each several times.
fn a_record_larger_than_a_datagram_reaches_journald() -> anyhow::Result<()> {
    const ADDRESS: &str = "198.18.249.2";
    const COUNT: usize = 120;
    const PATH: usize = 800;
    let limit: usize = fs::read_to_string("/proc/sys/net/core/wmem_default")?
        .trim()
        .parse()?;
    let journald = Journald::start()?;
    let scratch = Scratch::create()?;
    let mut folder = scratch.path().to_owned();
    while folder.as_os_str().len() < PATH {
        folder.push("long".repeat(50));
        fs::create_dir(&folder)?;
    }
    let all = (0..COUNT)
        .map(|_| Netns::create_in(&folder))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for netns in &all {
        give(netns, ADDRESS)?;
    }
    // From before the start, so that one finding names them all.
    let mut tracer = trace(&journald, &[])?;
    wait_for_duplicate(&mut tracer, ADDRESS)?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    drop(all);

    let about = format!("NODE_TRACER_IP={ADDRESS}");
    entries(&journald, &ended)?;
    let entries = journald.records(&[OURS, &about])?;
    let findings = ended.records.iter();
    let findings: Vec<&Value> = findings
        .filter(|record| is_finding(record, "duplicate-address") && names_address(record, ADDRESS))
        .collect();
    let largest = findings.iter().map(|record| record.to_string().len()).max();
    let largest = largest.context("no finding")?;
    println!("        the largest record has {largest} bytes; a datagram has {limit} at most");
    ensure!(largest > limit, "no record is larger than a datagram");
    ensure!(
        findings.len() == entries.len(),
        "{} findings, {} entries; stderr: {}",
        findings.len(),
        entries.len(),
        ended.stderr
    );
    let message_ids = catalog()?;
    for (record, entry) in findings.iter().zip(&entries) {
        ensure!(record_of(entry)? == **record, "another record");
        check_entry(entry, record, &message_ids)?;
    }
    Ok(())
}

test!(NEEDS, journald_that_goes_away_does_not_stop_the_stream);
fn journald_that_goes_away_does_not_stop_the_stream() -> anyhow::Result<()> {
    let [before, during, after] = ["198.18.248.2", "198.18.248.3", "198.18.248.4"];
    let about = |address: &str| format!("NODE_TRACER_IP={address}");
    let mut journald = Journald::start()?;
    let mut tracer = trace(&journald, &[])?;
    let _first = duplicate(before)?;
    wait_for_duplicate(&mut tracer, before)?;
    journald.wait_for("the first finding", &[OURS, &about(before)], |_| true)?;

    journald.stop()?;
    let stopped = tracer.records().len();
    let _second = duplicate(during)?;
    wait_for_duplicate(&mut tracer, during)?;
    // Nothing happens for a while: nothing more is lost.
    wait::pause(Duration::from_secs(4))?;
    let is_told = |record: &&Value| is_finding(record, "events-lost");
    let told = tracer.records()[stopped..].iter().filter(is_told).count();

    journald.start_again()?;
    let _third = duplicate(after)?;
    wait_for_duplicate(&mut tracer, after)?;
    journald.wait_for("a later finding", &[OURS, &about(after)], |_| true)?;
    tracer.wait_for("events-lost", SOON, |record| {
        is_event(record, "events-lost") && record["cause"] == "output-failed"
    })?;
    let lost = journald.wait_for(
        "the loss",
        &[OURS, "NODE_TRACER_RULE=events-lost"],
        |entry| record_of(entry).is_ok_and(|record| record["lost"]["output-failed"].is_u64()),
    )?;
    ensure!(values(&lost, "PRIORITY") == ["4"], "its priority: {lost}");
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    ensure!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    let socket = journald.socket().display().to_string();
    ensure!(
        ended.stderr.contains(&socket),
        "stderr names the socket: {}",
        ended.stderr
    );

    // The number that is told is the number that is missing.
    let arrived = entries(&journald, &ended)?;
    let arrived = arrived
        .iter()
        .map(record_of)
        .collect::<Result<Vec<_>, _>>()?;
    let meant = ended
        .records
        .iter()
        .filter(|record| record["type"] != "event");
    let missing = meant.filter(|record| !arrived.contains(record)).count() as u64;
    let counts = ended
        .records
        .iter()
        .filter(|record| is_event(record, "events-lost"));
    let counted: u64 = counts.filter_map(|record| record["count"].as_u64()).sum();
    ensure!(
        missing > 0 && missing == counted,
        "{missing} records are not in the journal, {counted} were told to be lost"
    );
    ensure!(
        told <= 1,
        "while journald was away the loss itself was told, and lost, {told} times over; stderr:\n{}",
        ended.stderr
    );
    Ok(())
}

test!(
    &[Need::Root, Need::Tracer],
    journald_that_is_not_there_is_an_error
);
fn journald_that_is_not_there_is_an_error() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let nothing = folder.path().join("no-such-socket");
    // Left by one that has ended: nobody listens.
    let deserted = folder.path().join("deserted");
    drop(UnixDatagram::bind(&deserted)?);
    for socket in [nothing, deserted] {
        let output = command(&[
            "trace",
            "-o",
            "journald",
            "--duration",
            "1s",
            "--cri",
            "none",
            "--pods",
            "none",
        ])?
        .env(SOCKET, OsStr::new(&socket))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()?;
        refused(&output, &["journald", &socket.display().to_string()])?;
    }
    Ok(())
}
