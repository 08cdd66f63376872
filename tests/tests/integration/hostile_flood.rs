//! Floods by those whom nobody trusts: nothing that counts is displaced by
//! them, and what is said of them is short.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use aya::maps::{HashMap, Map, MapData, MapInfo};
use node_tracer_ebpf::{map, record};
use node_tracer_tests::cgroup::Cgroup;
use node_tracer_tests::flood::{Flood, NOBODY, Restless};
use node_tracer_tests::hangfs::HangFs;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::pods::Pod;
use node_tracer_tests::process::{self, PodProcess};
use node_tracer_tests::runtime::Runtime;
use node_tracer_tests::scratch::{Scratch, container_id};
use node_tracer_tests::scripted;
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{Ended, SOON, Tracer, is_event, is_finding, netns_of};
use node_tracer_tests::wait;
use serde_json::{Value, json};

const CALLS: u32 = 20_000;
const IMPOSTORS: u32 = 4_200;
const REAL_CALLS: u32 = 50;
const SLEEPERS: u32 = 3_000;
/// Of each of two users.
const STUCK: u32 = 2_000;

/// Bytes that the records come to.
fn length(records: &[Value]) -> usize {
    let lines = records.iter().map(|record| record.to_string().len() + 1);
    lines.sum()
}

/// A map of a running tracer.
fn open(tracer: &Tracer, name: &str) -> anyhow::Result<MapData> {
    let ids = process::fd_numbers(tracer.pid(), "map_id:")?;
    let is_named =
        |id: &&u32| MapInfo::from_id(**id).is_ok_and(|info| info.name_as_str() == Some(name));
    let id = ids.iter().find(is_named);
    MapData::from_id(*id.with_context(|| format!("the tracer has no map {name}"))?)
        .with_context(|| format!("map {name}"))
}

/// But for addresses that are not known, which is said.
fn nothing_is_lost(ended: &Ended) -> anyhow::Result<()> {
    let lost = ended.records.iter().find(|record| {
        let is_told = is_finding(record, "events-lost") || is_event(record, "events-lost");
        is_told && !record.to_string().contains("addresses-left-out")
    });
    ensure!(lost.is_none(), "{}", lost.context("none")?);
    Ok(())
}

/// A runtime that calls one plugin again and again.
struct Node {
    runtime: Runtime,
    variables: BTreeMap<&'static str, String>,
    folder: Scratch,
    _netns: Netns,
}

impl Node {
    fn new() -> anyhow::Result<Self> {
        let folder = Scratch::create()?;
        let netns = Netns::create()?;
        scripted::write(&folder.path().join("plugin"), "cat >/dev/null; exit 3")?;
        let Pod {
            namespace,
            name,
            uid,
        } = Pod::new("shop", "cart-0")?;
        let variables = BTreeMap::from([
            ("CNI_COMMAND", String::from("DEL")),
            ("CNI_IFNAME", String::from("eth0")),
            ("CNI_NETNS", netns.path().display().to_string()),
            ("CNI_PATH", folder.path().display().to_string()),
            (
                "CNI_ARGS",
                format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_UID={uid}"),
            ),
        ]);
        Ok(Self {
            runtime: Runtime::start(&netns, folder.path())?,
            variables,
            folder,
            _netns: netns,
        })
    }

    /// Returns the container ID of the call.
    fn call(&mut self) -> anyhow::Result<String> {
        let id = container_id()?;
        self.variables.insert("CNI_CONTAINERID", id.clone());
        let plugin = self.folder.path().join("plugin");
        self.runtime.run(&plugin, &self.variables, &json!({}))?;
        Ok(id)
    }
}

/// The calls that are told and believed, with their exit codes.
fn all_are_believed(ended: &Ended, ids: &[String]) -> anyhow::Result<()> {
    let is_told = |id: &&String| {
        ended.records.iter().any(|record| {
            is_event(record, "cni-call")
                && record["container_id"] == id.as_str()
                && record["trusted"] == true
                && record["exit_code"] == 3
        })
    };
    let told = ids.iter().filter(is_told).count();
    ensure!(told == ids.len(), "{told} of {} real calls", ids.len());
    Ok(())
}

test!(
    &[Need::Root, Need::Tracer],
    hostile_flood_of_a_users_calls_is_told_as_a_number
);
fn hostile_flood_of_a_users_calls_is_told_as_a_number() -> anyhow::Result<()> {
    let mut node = Node::new()?;
    let tracer = Tracer::trace(&[])?;
    let mut ids = vec![node.call()?];
    let flood = std::thread::spawn(|| Flood::calls(NOBODY, CALLS, Path::new("/bin/true")));
    while !flood.is_finished() {
        ids.push(node.call()?);
        wait::pause(Duration::from_millis(50))?;
    }
    drop(flood.join().map_err(|_| anyhow::anyhow!("panicked"))??);
    let ended = tracer.stop()?;
    nothing_is_lost(&ended)?;
    all_are_believed(&ended, &ids)?;

    let of_user = |record: &&Value| {
        record["container_id"] == "stranger" || is_event(record, "untrusted-calls")
    };
    let theirs: Vec<Value> = ended.records.iter().filter(of_user).cloned().collect();
    let bytes = length(&theirs);
    println!(
        "        {} records, {bytes} bytes of {CALLS} calls",
        theirs.len()
    );
    ensure!(
        theirs.len() < 100 && bytes < 100_000,
        "{} records",
        theirs.len()
    );
    ensure!(
        theirs.iter().all(|it| it["trusted"] != true),
        "one is trusted"
    );
    let singly = theirs.iter().filter(|it| is_event(it, "cni-started"));
    let numbers: Vec<&Value> = theirs
        .iter()
        .filter(|it| is_event(it, "untrusted-calls"))
        .collect();
    let told: u64 = numbers.iter().filter_map(|it| it["count"].as_u64()).sum();
    let all = told + singly.count() as u64;
    ensure!(all == u64::from(CALLS), "{all} are told");
    let last = numbers.last().context("no number")?;
    ensure!(
        last["uid"] == NOBODY && last["task"]["comm"] == "true" && last["since"].is_string(),
        "who, and since when: {last}"
    );
    Ok(())
}

test!(
    &[
        Need::Root,
        IP,
        Need::Tracer,
        Need::Program("setpriv", "util-linux"),
        Need::Program("unshare", "util-linux"),
    ],
    hostile_flood_of_a_users_namespaces_and_addresses_is_told_within_a_budget
);
fn hostile_flood_of_a_users_namespaces_and_addresses_is_told_within_a_budget() -> anyhow::Result<()>
{
    // 29 MB without a budget.
    changes(|| Restless::user(NOBODY), 1_000_000)
}

test!(
    &[
        Need::Root,
        IP,
        Need::Tracer,
        Need::Program("unshare", "util-linux"),
    ],
    hostile_flood_of_a_containers_namespaces_is_told_within_a_budget
);
fn hostile_flood_of_a_containers_namespaces_is_told_within_a_budget() -> anyhow::Result<()> {
    changes(Restless::container, 1_000_000)
}

test!(
    &[
        Need::Root,
        IP,
        Need::Tracer,
        Need::Program("unshare", "util-linux"),
    ],
    hostile_flood_of_a_pods_addresses_is_told_within_a_budget
);
fn hostile_flood_of_a_pods_addresses_is_told_within_a_budget() -> anyhow::Result<()> {
    changes(Restless::pod, 4_000_000)
}

fn changes(restless: impl FnOnce() -> anyhow::Result<Restless>, most: usize) -> anyhow::Result<()> {
    let mut node = Node::new()?;
    let mut tracer = Tracer::trace(&[])?;
    let restless = restless()?;
    let begin = Instant::now();
    let mut ids = Vec::new();
    while begin.elapsed() < Duration::from_secs(15) {
        ids.push(node.call()?);
        let netns = Netns::create()?;
        let inode = netns.inode();
        tracer.wait_for("a namespace of root's", SOON, |record| {
            is_event(record, "netns-created") && netns_of(record) == Some(inode)
        })?;
        wait::pause(Duration::from_millis(100))?;
    }
    drop(restless);
    let ended = tracer.stop()?;
    nothing_is_lost(&ended)?;
    all_are_believed(&ended, &ids)?;
    let bytes = length(&ended.records);
    println!("        {} records, {bytes} bytes", ended.records.len());
    ensure!(bytes < most, "{bytes} bytes");
    Ok(())
}

test!(
    &[Need::Root, Need::Cgroup, Need::Tracer],
    hostile_flood_of_impostors_takes_no_call_away
);
fn hostile_flood_of_impostors_takes_no_call_away() -> anyhow::Result<()> {
    let mut node = Node::new()?;
    let pod = Cgroup::create(&Pod::new("shop", "evil-0")?.uid, &container_id()?)?;
    let tracer = Tracer::trace(&[])?;
    let flood = Flood::impostors(IMPOSTORS, Path::new("/bin/sleep"), &pod)?;
    let ids: Vec<String> = (0..REAL_CALLS)
        .map(|_| node.call())
        .collect::<Result<_, _>>()?;
    wait::pause(Duration::from_secs(3))?;
    let running: HashMap<MapData, u32, u64> =
        HashMap::try_from(Map::HashMap(open(&tracer, map::CNI_RUNNING)?))?;
    let room = running.keys().count();
    drop(flood);
    let ended = tracer.stop()?;
    nothing_is_lost(&ended)?;
    all_are_believed(&ended, &ids)?;
    ensure!(room < 100, "impostors have {room} places of plugins");
    let bytes = length(&ended.records);
    ensure!(bytes < 500_000, "{bytes} bytes");
    Ok(())
}

test!(
    &[Need::Root, Need::Fuse, Need::Tracer],
    hostile_flood_of_sleepers_leaves_room_for_others
);
fn hostile_flood_of_sleepers_leaves_room_for_others() -> anyhow::Result<()> {
    let tracer = Tracer::trace(&["--stall-threshold", "1s"])?;
    let blocked: HashMap<MapData, u32, [u64; 3]> =
        HashMap::try_from(Map::HashMap(open(&tracer, map::BLOCKED)?))?;
    let flood = Flood::vfork_parents(NOBODY, SLEEPERS)?;
    let entries = blocked.keys().filter_map(Result::ok).count();

    let mut tracer = tracer;
    stall_of_the_hosts(&mut tracer)?;
    drop(flood);
    let ended = tracer.stop()?;
    ensure!(
        entries <= record::MAX_OF_CROWD as usize + 100,
        "a user's tasks have {entries} entries"
    );
    let bytes = length(&ended.records);
    println!("        {} records, {bytes} bytes", ended.records.len());
    ensure!(bytes < 500_000, "{bytes} bytes");
    nothing_is_lost(&ended)
}

/// One is stuck that is nobody's but the host's, and is told.
fn stall_of_the_hosts(tracer: &mut Tracer) -> anyhow::Result<()> {
    let mut volume = HangFs::mount()?;
    let netns = Netns::create()?;
    let mut reader = PodProcess::reader("reader", &netns, None, &mut volume)?;
    reader.kill_into_d()?;
    let pid = reader.pid();
    tracer.wait_for("the stall beside them", SOON, |record| {
        is_finding(record, "blocked-task") && record["holders"][0]["pid"] == pid
    })?;
    wait::pause(Duration::from_secs(5))?;
    volume.release();
    reader.wait_for_end(SOON)
}

test!(
    &[Need::Root, Need::Fuse, Need::Tracer],
    hostile_flood_of_stalls_is_told_as_a_number
);
/// Thousands that are stuck indeed: a few of them are told one by one, all of
/// them as a number, before the tracer starts and while it runs.
fn hostile_flood_of_stalls_is_told_as_a_number() -> anyhow::Result<()> {
    let mut first = HangFs::mount()?;
    let before = Flood::stuck_readers(NOBODY, STUCK, &first)?;
    let mut tracer = Tracer::trace(&["--stall-threshold", "1s"])?;
    let mut volume = HangFs::mount()?;
    let since = Flood::stuck_readers(NOBODY - 1, STUCK, &volume)?;
    let is_many = |record: &Value, user: u32, begin: &str| {
        let title = record["title"].as_str().unwrap_or_default();
        is_finding(record, "blocked-task")
            && title.starts_with(begin)
            && title.contains(&format!("more tasks of user {user} "))
    };
    for user in [NOBODY, NOBODY - 1] {
        tracer.wait_for("the one finding on all", SOON * 2, |record| {
            is_many(record, user, "at least 1000 ")
        })?;
    }
    stall_of_the_hosts(&mut tracer)?;
    first.release();
    volume.release();
    drop((before, since));
    for user in [NOBODY, NOBODY - 1] {
        tracer.wait_for("its end", SOON * 2, |record| {
            is_many(record, user, "") && record["state"] == "resolved"
        })?;
    }
    let ended = tracer.stop()?;
    nothing_is_lost(&ended)?;
    let (count, bytes) = (ended.records.len(), length(&ended.records));
    println!("        {count} records, {bytes} bytes");
    ensure!(bytes < 500_000, "{bytes} bytes");
    Ok(())
}

test!(
    &[Need::Root, Need::Fuse, Need::Tracer],
    hostile_flood_of_a_users_file_systems_is_told_as_a_number
);
/// A user whose file systems take nothing of what the kernel writes back: its
/// workers are stuck, as many as there are file systems.
fn hostile_flood_of_a_users_file_systems_is_told_as_a_number() -> anyhow::Result<()> {
    const FILE_SYSTEMS: u32 = 80;
    let folder = Scratch::create()?;
    let mut tracer = Tracer::trace(&["--stall-threshold", "1s"])?;
    let flood = Flood::written_file_systems(NOBODY, FILE_SYSTEMS, folder.path())?;
    // Of a user or, where the kernel's list of connections is not mounted, of
    // nobody who can be told.
    let is_number = |record: &Value, begin: &str| {
        let title = record["title"].as_str().unwrap_or_default();
        is_finding(record, "blocked-task") && title.starts_with(begin) && title.contains(" more ")
    };
    let more = (FILE_SYSTEMS - 16).to_string();
    tracer.wait_for("their number", SOON * 5, |record| is_number(record, &more))?;
    stall_of_the_hosts(&mut tracer)?;
    drop(flood);
    tracer.wait_for("its end", SOON * 2, |record| {
        is_number(record, "") && record["state"] == "resolved"
    })?;
    let ended = tracer.stop()?;
    nothing_is_lost(&ended)?;
    let (count, bytes) = (ended.records.len(), length(&ended.records));
    println!("        {count} records, {bytes} bytes");
    ensure!(bytes < 200_000, "{bytes} bytes");
    Ok(())
}

test!(
    &[Need::Root, Need::Tracer],
    hostile_flood_of_stalls_that_come_and_go_is_told_within_a_budget
);
/// A user whose tasks are stuck for a moment each, and new ones all the time;
/// beside them a container's is stuck.
fn hostile_flood_of_stalls_that_come_and_go_is_told_within_a_budget() -> anyhow::Result<()> {
    let mut tracer = Tracer::trace(&["--stall-threshold", "1s"])?;
    let stream = Flood::stream_of_execs(NOBODY, 8, Duration::from_millis(1_500))?;
    let is_told = |record: &Value, user: bool| {
        is_finding(record, "blocked-task") && (record["uid"] == NOBODY) == user
    };
    tracer.wait_for("the user's first", SOON, |record| is_told(record, true))?;
    wait::pause(Duration::from_secs(5))?;
    let container = Flood::container_exec()?;
    tracer.wait_for("the container's", SOON, |record| is_told(record, false))?;
    wait::pause(Duration::from_secs(5))?;
    drop((container, stream));
    let ended = tracer.stop()?;
    nothing_is_lost(&ended)?;
    let singly = ended
        .records
        .iter()
        .filter(|it| is_event(it, "task-blocked"));
    let counted = ended
        .records
        .iter()
        .filter(|it| is_event(it, "tasks-blocked"));
    let counted: u64 = counted.filter_map(|it| it["ended"].as_u64()).sum();
    let (singly, bytes) = (singly.count(), length(&ended.records));
    println!("        {singly} singly, {counted} counted, {bytes} bytes");
    ensure!((1..32).contains(&singly), "{singly} are told one by one");
    ensure!(counted > 200, "only {counted} are counted");
    ensure!(bytes < 200_000, "{bytes} bytes");
    Ok(())
}

test!(
    &[Need::Root, Need::Tracer],
    hostile_flood_of_missed_returns_leaves_room
);
/// As many entries as a return that is missed leaves behind, and then one more.
fn hostile_flood_of_missed_returns_leaves_room() -> anyhow::Result<()> {
    let tracer = Tracer::trace(&[])?;
    let map = open(&tracer, map::ARGUMENTS)?;
    let map = match map.info()?.map_type()? {
        aya::maps::MapType::LruHash => Map::LruHashMap(map),
        _ => Map::HashMap(map),
    };
    let mut arguments: HashMap<MapData, u64, u64> = HashMap::try_from(map)?;
    for thread in 0..20_000 {
        arguments
            .insert(thread, 1, 0)
            .with_context(|| format!("after {thread} missed returns"))?;
        ensure!(arguments.get(&thread, 0).is_ok(), "{thread} is not kept");
    }
    Ok(())
}
