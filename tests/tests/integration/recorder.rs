//! The flight recorder: every call of a CNI plugin that a real runtime makes is
//! one event, and says what really happened.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::containerd::{Containerd, Generation, NETWORK, Setup};
use node_tracer_tests::cri::{Cri, PodConfig};
use node_tracer_tests::pods::{Pod, PodsFile};
use node_tracer_tests::recorder::{PLUGINS, Recorded, Recorder};
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::snapshot_run::{NEWER, NODE};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{Ended, SOON, Tracer, is_event, is_finding};
use node_tracer_tests::wait;
use serde_json::{Value, json};

/// Sandboxes are made by so many at once, each with so many alive.
const WORKERS: usize = 4;
const ALIVE: usize = 5;
/// For the runtime to take one down.
const LIMIT: Duration = Duration::from_secs(30);

/// A sandbox as the runtime was told to make it, and as it said it did.
#[derive(Clone, Debug)]
struct Made {
    pod: Pod,
    ip: Ipv4Addr,
}

/// Pods to be, and the list of those that are.
struct Crowd {
    todo: Vec<(Pod, PodConfig)>,
    next: AtomicUsize,
    pods: Mutex<PodsFile>,
    made: Mutex<BTreeMap<String, Made>>,
}

impl Crowd {
    fn new(node: &Containerd, folder: &Path, count: usize) -> anyhow::Result<Self> {
        let pod = |i| -> anyhow::Result<_> {
            let pod = Pod::new("shop", &format!("web-{i}"))?;
            let config = node.pod_config(&pod.name, &pod.namespace, &pod.uid, 0, false);
            Ok((pod, config))
        };
        Ok(Self {
            todo: (0..count).map(pod).collect::<anyhow::Result<_>>()?,
            next: AtomicUsize::new(0),
            pods: Mutex::new(PodsFile::create(folder)?),
            made: Mutex::default(),
        })
    }

    /// Makes and removes sandboxes until there is no more to do. As kubelet
    /// does: the object is there before the sandbox and goes after it.
    fn work(&self, cri: &Cri) -> anyhow::Result<()> {
        let mut alive = VecDeque::new();
        while let Some((pod, config)) = self.todo.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            self.list(|pods| pods.put(pod, None))?;
            let id = cri.run_sandbox(config)?;
            let ip = cri.sandbox_status(&id)?.ip.parse().context("its address")?;
            self.list(|pods| pods.put(pod, Some(ip)))?;
            let pod = pod.clone();
            self.made
                .lock()
                .map_err(|_| anyhow::anyhow!("poisoned"))?
                .insert(id.clone(), Made { pod, ip });
            alive.push_back(id);
            if alive.len() > ALIVE {
                self.end(cri, alive.pop_front())?;
            }
        }
        while !alive.is_empty() {
            self.end(cri, alive.pop_front())?;
        }
        Ok(())
    }

    fn end(&self, cri: &Cri, id: Option<String>) -> anyhow::Result<()> {
        let id = id.context("none is alive")?;
        wait::until("a sandbox to stop", LIMIT, || {
            Ok(cri.stop_sandbox(&id, LIMIT)?.then_some(()))
        })?;
        cri.remove_sandbox(&id)?;
        let made = self.made.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
        let pod = made.get(&id).context("not made here")?.pod.clone();
        drop(made);
        self.list(|pods| pods.remove(&pod))
    }

    fn list(&self, change: impl FnOnce(&mut PodsFile) -> anyhow::Result<()>) -> anyhow::Result<()> {
        change(&mut *self.pods.lock().map_err(|_| anyhow::anyhow!("poisoned"))?)
    }

    /// All of them, by several clients at once.
    fn run(&self, node: &Containerd) -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..WORKERS)
                .map(|_| {
                    let cri = node.connect();
                    scope.spawn(move || self.work(&cri?))
                })
                .collect();
            let ends = clients.into_iter().map(|client| match client.join() {
                Ok(end) => end,
                Err(_) => Err(anyhow::anyhow!("a client panicked")),
            });
            ends.collect::<Vec<_>>().into_iter().collect()
        })
    }
}

fn of_folder(record: &Value, plugins: &Path) -> bool {
    is_event(record, "cni-call")
        && record["plugin_path"]
            .as_str()
            .is_some_and(|path| Path::new(path).parent() == Some(plugins))
}

/// What names a call.
fn key(record: &Value) -> anyhow::Result<(u32, [String; 4])> {
    let word = |name: &str| -> anyhow::Result<String> {
        let word = record[name].as_str();
        Ok(word
            .with_context(|| format!("no {name}: {record}"))?
            .to_owned())
    };
    let pid = record["pid"].as_u64().context("no pid")? as u32;
    let words = ["command", "container_id", "ifname", "plugin"].map(word);
    let [command, id, ifname, plugin] = words;
    Ok((pid, [command?, id?, ifname?, plugin?]))
}

fn key_of(call: &Recorded) -> (u32, [String; 4]) {
    let words = [
        &call.command,
        &call.container_id,
        &call.ifname,
        &call.plugin,
    ];
    (call.pid, words.map(String::clone))
}

fn ips(record: &Value) -> Vec<IpAddr> {
    let ips = record["result"]["ips"].as_array().into_iter().flatten();
    ips.filter_map(|ip| ip.as_str()?.split('/').next()?.parse().ok())
        .collect()
}

/// Nothing lost, and nothing wrong with a node on which nothing went wrong.
fn quiet(ended: &Ended) -> anyhow::Result<()> {
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    let loud = |record: &&Value| {
        is_event(record, "events-lost")
            || is_finding(record, "events-lost")
            || record["type"] == "finding"
                // How long the kernel takes is the machine's matter.
                && record["rule"] != "blocked-task"
                && record["rule"] != "netns-teardown-stall"
                && record["severity"] != "info"
    };
    let wrong = ended.records.iter().find(loud);
    ensure!(wrong.is_none(), "a false alarm: {}", wrong.context("none")?);
    Ok(())
}

fn is_bridges(plugin: &str) -> bool {
    matches!(plugin, "bridge" | "host-local")
}

/// The event of one call, by what the runtime was told and said.
fn check_pod(event: &Value, made: &Made) -> anyhow::Result<()> {
    let Made { pod, ip } = made;
    let expected = json!({ "namespace": pod.namespace, "name": pod.name, "uid": pod.uid });
    ensure!(event["pod"] == expected, "its pod {expected}: {event}");
    ensure!(event["trusted"] == true, "it is trusted: {event}");
    let plugin = event["plugin"].as_str().unwrap_or_default();
    ensure!(
        event["delegated"] == (plugin == "host-local"),
        "bridge calls host-local, the runtime the others: {event}"
    );
    if event["command"] == "ADD" && is_bridges(plugin) {
        ensure!(
            ips(event) == [IpAddr::V4(*ip)],
            "the address {ip} that the runtime tells: {event}"
        );
    }
    Ok(())
}

/// The event of a call that is for no pod.
fn check_status(event: &Value) -> anyhow::Result<()> {
    ensure!(
        event["trusted"] == true && event["container_id"] == "" && event["pod"].is_null(),
        "it is for no pod: {event}"
    );
    for key in ["netns", "result", "error", "unread"] {
        ensure!(event[key].is_null(), "it has no {key}: {event}");
    }
    Ok(())
}

/// Waits until so many calls have been told.
fn wait_for_calls(tracer: &Tracer, plugins: &Path, count: usize) -> anyhow::Result<()> {
    let mut told = 0;
    let end = Instant::now() + SOON;
    while told < count && Instant::now() < end {
        wait::pause(Duration::from_millis(200))?;
        let records = tracer.records();
        told = records
            .iter()
            .filter(|each| of_folder(each, plugins))
            .count();
    }
    Ok(())
}

test!(NODE, recorder_misses_no_call_of_200_sandboxes);
fn recorder_misses_no_call_of_200_sandboxes() -> anyhow::Result<()> {
    misses_no_call(Generation::Machine, 200)
}

test!(
    NEWER,
    recorder_misses_no_call_of_50_sandboxes_of_containerd_2
);
fn recorder_misses_no_call_of_50_sandboxes_of_containerd_2() -> anyhow::Result<()> {
    misses_no_call(Generation::Newer, 50)
}

fn misses_no_call(generation: Generation, sandboxes: usize) -> anyhow::Result<()> {
    let scratch = Scratch::create()?;
    let recorder = Recorder::create(generation)?;
    let node = Containerd::start_as(Setup {
        generation,
        volumes: &[recorder.volume()],
        plugins: Some(recorder.plugins()),
        ..Setup::default()
    })?;
    let crowd = Crowd::new(&node, scratch.path(), sandboxes)?;
    let pods = scratch.path().join("pods.json").display().to_string();
    let tracer = node.trace(&["--pods", &pods])?;
    node.cri().status()?;
    let begin = Instant::now();
    crowd.run(&node)?;
    let elapsed = begin.elapsed();
    node.cri().status()?;
    let calls = recorder.calls()?;
    let asked = calls.iter().filter(|call| call.command == "STATUS").count();
    ensure!(
        (asked > 0) == (generation != Generation::Machine),
        "plugins tell their status since containerd 2: {asked}"
    );
    wait_for_calls(&tracer, recorder.plugins(), calls.len())?;
    let ended = tracer.stop()?;
    let made = crowd.made.into_inner()?;
    println!(
        "        {} sandboxes and {} calls in {:.1} s",
        made.len(),
        calls.len(),
        elapsed.as_secs_f32()
    );
    ensure!(made.len() == sandboxes, "{} sandboxes", made.len());

    // The ground truth itself: for each sandbox each plugin is called once to
    // add, and once to stop and once more to remove.
    for (id, command, count) in made.keys().flat_map(|id| [(id, "ADD", 1), (id, "DEL", 2)]) {
        for plugin in PLUGINS {
            let is = |call: &&Recorded| {
                (
                    &call.container_id,
                    call.command.as_str(),
                    call.plugin.as_str(),
                ) == (id, command, plugin)
            };
            let all = calls.iter().filter(is).count();
            ensure!(all == count, "{command} by {plugin} for {id}: {all}");
        }
    }

    let mut told: BTreeMap<(u32, [String; 4]), Vec<&Value>> = BTreeMap::new();
    for event in ended
        .records
        .iter()
        .filter(|each| of_folder(each, recorder.plugins()))
    {
        told.entry(key(event)?).or_default().push(event);
    }
    for call in &calls {
        let events = told.remove(&key_of(call)).unwrap_or_default();
        let [event] = events[..] else {
            anyhow::bail!("{} events of {call:?}: {events:?}", events.len());
        };
        ensure!(
            event["exit_code"] == call.exit_code && event["signal"].is_null(),
            "exit code {}: {event}",
            call.exit_code
        );
        if call.command == "STATUS" {
            check_status(event)?;
            continue;
        }
        let made = made.get(&call.container_id).context("a stranger's call")?;
        check_pod(event, made)?;
        if call.command == "ADD" && is_bridges(&call.plugin) {
            ensure!(ips(event) == call.ips(), "{:?}: {event}", call.ips());
        }
    }
    ensure!(told.is_empty(), "calls that nobody made: {told:?}");
    quiet(&ended)
}

test!(NODE, recorder_tells_real_plugins_results);
/// The same with the plugins as they are: what they read and wrote is theirs.
fn recorder_tells_real_plugins_results() -> anyhow::Result<()> {
    tells_real_plugins_results(Generation::Machine)
}

test!(NEWER, recorder_tells_results_of_cni_1_1);
fn recorder_tells_results_of_cni_1_1() -> anyhow::Result<()> {
    tells_real_plugins_results(Generation::Newer)
}

fn tells_real_plugins_results(generation: Generation) -> anyhow::Result<()> {
    let scratch = Scratch::create()?;
    let node = Containerd::start_as(Setup {
        generation,
        ..Setup::default()
    })?;
    let crowd = Crowd::new(&node, scratch.path(), 20)?;
    let pods = scratch.path().join("pods.json").display().to_string();
    let tracer = node.trace(&["--pods", &pods])?;
    crowd.run(&node)?;
    let plugins = generation.plugins().context("no plugins")?;
    let made = crowd.made.into_inner()?;
    wait_for_calls(&tracer, plugins, made.len() * PLUGINS.len() * 3)?;
    let ended = tracer.stop()?;
    for (id, made) in &made {
        for (command, count) in [("ADD", 1), ("DEL", 2)] {
            for plugin in PLUGINS {
                let is = |record: &&Value| {
                    of_folder(record, plugins)
                        && record["container_id"] == id.as_str()
                        && record["command"] == command
                        && record["plugin"] == plugin
                };
                let events: Vec<&Value> = ended.records.iter().filter(is).collect();
                ensure!(
                    events.len() == count,
                    "{} events of {command} by {plugin} for {id}: {events:?}",
                    events.len()
                );
                for event in events {
                    ensure!(event["exit_code"] == 0, "{event}");
                    check_pod(event, made)?;
                    let (network, ipam) = match plugin {
                        "loopback" => ("cni-loopback", Value::Null),
                        _ => (NETWORK, json!("host-local")),
                    };
                    ensure!(
                        event["network"] == network && event["ipam"] == ipam,
                        "network {network}, IPAM {ipam}: {event}"
                    );
                    ensure!(
                        !is_bridges(plugin) || event["cni_version"] == generation.cni_version(),
                        "its version: {event}"
                    );
                }
            }
        }
    }
    quiet(&ended)
}
