//! What happens over minutes, as recordings of a trace.

use serde_json::{Value, json};

use super::expect::{Expect, Finds, finds};
use super::recording::{after, container, header};
use super::situation::{Pod, digits};

/// A row that is told event by event.
pub(super) struct History {
    pub(super) name: &'static str,
    /// (ms since the beginning, event), in any order.
    events: Vec<(u64, Value)>,
    /// What a wall clock was set forward by, and when: (ms, ms).
    steps: Vec<(u64, i64)>,
    end: u64,
    ipam: String,
    pub(super) expect: Vec<Expect>,
}

/// A stage of a CNI call.
struct Call<'a> {
    command: &'a str,
    pod: &'a Pod,
    /// CNI_NETNS is empty, as in the second DEL of an ordinary removal.
    nameless: bool,
    plugin: &'a str,
    error: Option<&'a str>,
}

impl History {
    fn new(name: &'static str) -> Self {
        let host = json!({
            "event": "netns-found", "netns": { "inode": 4_026_531_840_u32, "cookie": 1 },
            "host": true,
        });
        let networks = json!({
            "event": "networks-listed",
            "networks": [{
                "file": "/etc/cni/net.d/10-podnet.conflist", "name": "podnet", "plugin": "bridge",
                "ipam": "host-local", "store": "/var/lib/cni/networks/podnet",
            }],
        });
        Self {
            name,
            events: vec![(0, host), (0, networks)],
            steps: Vec::new(),
            end: 60_000,
            ipam: String::from("host-local"),
            expect: Vec::new(),
        }
    }

    /// Another pod network than the bridge with host-local.
    fn network(&mut self, plugin: &str, ipam: &str) {
        for (_, event) in &mut self.events {
            if event["event"] == "networks-listed" {
                event["networks"] = json!([{
                    "file": "/etc/cni/net.d/10-podnet.conflist", "name": "podnet",
                    "plugin": plugin, "ipam": ipam,
                }]);
            }
        }
        self.ipam = ipam.to_owned();
    }

    /// The recording: all in order, and the engine's ticks between.
    pub(super) fn lines(&self) -> Vec<Value> {
        let mut events = self.events.clone();
        let ticks = (1..).map(|number| number * 500);
        events.extend(
            ticks
                .take_while(|at| *at <= self.end)
                .map(|at| (at, json!({ "event": "tick" }))),
        );
        events.sort_by_key(|(at, _)| *at);
        let mut lines = vec![header("trace")];
        for (at, mut event) in events {
            event["time"] = json!(self.clock(at));
            if event["event"] == "pods-listed" {
                event["at"] = event["time"].clone();
            }
            lines.push(event);
        }
        lines.push(json!({ "type": "ended", "time": self.clock(self.end) }));
        lines
    }

    /// What the wall clock shows.
    fn clock(&self, at: u64) -> String {
        let passed = self.steps.iter().filter(|(when, _)| *when <= at);
        let by: i64 = passed.map(|(_, by)| by).sum();
        // The beginning is late enough for a step back by an hour.
        after(7_200_000_u64.saturating_add_signed(by) + at)
    }

    /// An event so many seconds after the beginning.
    fn at(mut self, seconds: f64, event: Value) -> Self {
        let ms = (seconds * 1000.0) as u64;
        self.end = self.end.max(ms);
        self.events.push((ms, event));
        self
    }

    /// It goes on until then.
    fn until(mut self, seconds: f64) -> Self {
        self.end = self.end.max((seconds * 1000.0) as u64);
        self
    }

    /// The API server has these pods.
    fn api(self, seconds: f64, pods: &[&Pod]) -> Self {
        let mut all: Vec<Value> = pods.iter().map(|pod| listed(pod)).collect();
        all.push(json!({
            "namespace": "kube-system", "name": "kube-proxy-x2x4z",
            "uids": ["00000000-0000-4000-8000-000000000001"], "node": "worker-1",
            "host_network": true, "phase": "Running",
        }));
        let list = json!({
            "event": "pods-listed", "source": "API server", "whole": true, "pods": all,
        });
        self.at(seconds, list)
    }

    fn api_fails(self, seconds: f64) -> Self {
        let error = "the API server does not answer";
        self.at(
            seconds,
            json!({ "event": "source-failed", "source": "pods", "error": error }),
        )
    }

    fn deleted(self, seconds: f64, pod: &Pod) -> Self {
        self.at(
            seconds,
            json!({ "event": "pod-deleted", "pod": reference(pod) }),
        )
    }

    /// The wall clock is set.
    fn step(mut self, seconds: f64, by_seconds: i64) -> Self {
        self.steps
            .push(((seconds * 1000.0) as u64, by_seconds * 1000));
        self.at(
            seconds,
            json!({ "event": "clock-stepped", "by_ms": by_seconds * 1000 }),
        )
    }

    fn call(self, seconds: f64, call: &Call<'_>) -> Self {
        self.long_call(seconds, 0.02, call)
    }

    /// A call that takes so many seconds.
    fn long_call(mut self, seconds: f64, lasts: f64, call: &Call<'_>) -> Self {
        let Call {
            command,
            pod,
            nameless,
            plugin,
            error,
        } = *call;
        let path = if nameless {
            ""
        } else {
            pod.mount.as_deref().unwrap_or_default()
        };
        let mut started = json!({
            "event": "cni-started", "command": command, "container_id": pod.sandbox,
            "ifname": "eth0", "netns_path": path, "plugin": plugin,
            "plugin_path": format!("/opt/cni/bin/{plugin}"), "pid": 5000, "parent_pid": 900,
            "parent_comm": "containerd", "delegated": false, "pod": reference(pod),
            "infra_container_id": pod.sandbox, "trusted": true,
        });
        if !nameless {
            started["netns"] = netns(pod);
        }
        self = self.at(seconds, started.clone());
        let mut ended = started;
        ended["event"] = json!("cni-call");
        ended["network"] = json!("podnet");
        ended["ipam"] = json!(self.ipam);
        ended["cni_version"] = json!("1.0.0");
        ended["duration_ms"] = json!(lasts * 1000.0);
        ended["exit_code"] = json!(i32::from(error.is_some()));
        match error {
            Some(error) => ended["error"] = json!({ "code": 11, "msg": error }),
            None if command == "ADD" => {
                ended["result"] = json!({
                    "ips": pod.ips, "gateways": ["10.244.7.1"],
                    "interfaces": [
                        { "name": host_end(plugin, pod), "mac": "02:00:00:00:00:02" },
                        { "name": "eth0", "mac": "02:00:00:00:00:03", "sandbox": path },
                    ],
                });
            }
            None => {}
        }
        self.at(seconds + lasts, ended)
    }

    fn add(self, seconds: f64, pod: &Pod) -> Self {
        self.call(
            seconds,
            &Call {
                command: "ADD",
                pod,
                nameless: false,
                plugin: "bridge",
                error: None,
            },
        )
    }

    fn del(self, seconds: f64, pod: &Pod, nameless: bool) -> Self {
        self.call(
            seconds,
            &Call {
                command: "DEL",
                pod,
                nameless,
                plugin: "bridge",
                error: None,
            },
        )
    }

    /// What an ADD or DEL has done.
    fn effect(self, seconds: f64, command: &str, pod: &Pod, there: bool) -> Self {
        let mut effect = json!({
            "event": "cni-effect", "command": command, "container_id": pod.sandbox,
            "ifname": "eth0", "pod": reference(pod),
            "traces": [
                { "kind": "address", "name": pod.ips[0].to_string(), "there": there },
                { "kind": "veth", "name": host_end("bridge", pod), "there": there },
                { "kind": "reservation", "name": file(pod), "there": there },
            ],
        });
        if there {
            effect["netns"] = netns(pod);
        }
        self.at(seconds, effect)
    }

    fn address(self, seconds: f64, kind: &str, pod: &Pod) -> Self {
        let address = json!({
            "event": kind, "netns": netns(pod), "address": pod.ips[0].to_string(), "prefix": 24,
            "ifname": "eth0", "link_kind": "veth",
        });
        self.at(seconds, address)
    }

    fn holders(self, seconds: f64, pod: &Pod, alive: bool, mounted: bool) -> Self {
        let tasks: Vec<Value> = [("pause", &pod.sandbox), ("app", &container(pod))]
            .iter()
            .filter(|_| alive)
            .map(|(comm, id)| {
                json!({
                    "pid": pid(pod), "tid": pid(pod), "comm": comm, "state": "S",
                    "start_ticks": 1000, "pod_uid": pod.uid, "container_id": id,
                })
            })
            .collect();
        let mounts: Vec<&str> = pod
            .mount
            .as_deref()
            .into_iter()
            .filter(|_| mounted)
            .collect();
        let holders = json!({
            "event": "netns-holders", "netns": netns(pod), "task_count": tasks.len(),
            "tasks": tasks, "mounts": mounts,
        });
        self.at(seconds, holders)
    }

    fn devices(self, seconds: f64, pod: &Pod, route: bool) -> Self {
        let routes = match route {
            true => json!([{ "gateway": "10.244.7.1", "device": 2 }]),
            false => json!([]),
        };
        let devices = json!({
            "event": "netns-devices", "netns": netns(pod), "routes": routes,
            "devices": [{
                "index": 2, "name": "eth0", "kind": "veth", "mac": "02:00:00:00:00:03",
                "up": true, "link": 10, "link_nsid": 0,
            }],
        });
        self.at(seconds, devices)
    }

    fn reservation(self, seconds: f64, pod: &Pod, held: bool) -> Self {
        let mut answer = json!({
            "event": "reservation", "address": pod.ips[0].to_string(),
            "stores": ["/var/lib/cni/networks/podnet"],
        });
        if held {
            answer["holder"] =
                json!({ "path": file(pod), "container_id": pod.sandbox, "ifname": "eth0" });
        }
        self.at(seconds, answer)
    }

    /// A pod's sandbox is made.
    fn starts(self, seconds: f64, pod: &Pod) -> Self {
        let made = json!({
            "event": "netns-created", "netns": netns(pod),
            "task": { "pid": 900, "tid": 900, "comm": "containerd" },
        });
        self.at(seconds, made)
            .add(seconds + 0.01, pod)
            .address(seconds + 0.04, "address-added", pod)
            .devices(seconds + 0.05, pod, true)
            .effect(seconds + 0.05, "ADD", pod, true)
            .reservation(seconds + 0.06, pod, true)
            .holders(seconds + 0.1, pod, true, true)
    }

    /// It is taken down as runtimes do: processes, DEL, the namespace, and DEL again.
    fn stops(self, seconds: f64, pod: &Pod) -> Self {
        let dying = json!({ "event": "netns-dying", "netns": netns(pod) });
        let destroyed = json!({ "event": "netns-destroyed", "netns": netns(pod) });
        self.holders(seconds, pod, false, true)
            .del(seconds + 0.1, pod, false)
            .address(seconds + 0.11, "address-removed", pod)
            .effect(seconds + 0.2, "DEL", pod, false)
            .reservation(seconds + 0.2, pod, false)
            .at(seconds + 0.3, dying)
            .at(seconds + 0.35, destroyed)
            .del(seconds + 0.6, pod, true)
    }

    fn quiet(mut self) -> Self {
        self.expect.push(Expect::Quiet);
        self
    }

    fn finds(mut self, finds: Finds) -> Self {
        self.expect.push(Expect::Finds(finds));
        self
    }

    fn may(mut self, rule: &'static str) -> Self {
        self.expect.push(Expect::May(rule));
        self
    }

    fn silent(mut self, rule: &'static str) -> Self {
        self.expect.push(Expect::Silent(rule));
        self
    }
}

fn number(pod: &Pod) -> u32 {
    u32::from_str_radix(&pod.sandbox[..4], 16).unwrap_or_default()
}

fn pid(pod: &Pod) -> u32 {
    10_000 + number(pod)
}

fn netns(pod: &Pod) -> Value {
    let number = number(pod);
    json!({ "inode": 4_026_540_000_u32 + number, "cookie": 5000 + number })
}

fn host_end(plugin: &str, pod: &Pod) -> String {
    match plugin {
        "calico" => format!("cali{}", digits(&pod.label(), 11)),
        _ => format!("veth{}", &pod.sandbox[..8]),
    }
}

fn file(pod: &Pod) -> String {
    format!("/var/lib/cni/networks/podnet/{}", pod.ips[0])
}

fn reference(pod: &Pod) -> Value {
    json!({ "namespace": pod.namespace, "name": pod.name, "uid": pod.uid })
}

fn listed(pod: &Pod) -> Value {
    json!({
        "namespace": pod.namespace, "name": pod.name, "uids": [pod.uid], "node": "worker-1",
        "phase": "Running", "ips": pod.ips, "grace_seconds": pod.grace,
    })
}

/// `count` pods with an address each.
fn many(count: usize) -> Vec<Pod> {
    let pod = |number: usize| {
        let address = format!("10.244.{}.{}/24", 7 + number / 200, 2 + number % 200);
        let address: &'static str = Box::leak(address.into_boxed_str());
        Pod::new(&format!("shop/web-{number}"), address)
    };
    (0..count).map(pod).collect()
}

pub(super) fn rows() -> Vec<History> {
    let all = [turnover(), interruptions(), deletions(), failures()];
    all.into_iter().flatten().collect()
}

/// Pods that come and go.
fn turnover() -> Vec<History> {
    let pods = many(200);
    let refer: Vec<&Pod> = pods.iter().collect();
    let mut drain =
        History::new("a drain of two hundred pods, each gone within its grace period").quiet();
    for (at, pod) in pods.iter().enumerate() {
        drain = drain.starts(at as f64 * 0.01, pod);
    }
    drain = drain.api(3.0, &refer).api(40.0, &[]);
    for (at, pod) in pods.iter().enumerate() {
        drain = drain
            .deleted(20.0 + at as f64 * 0.05, pod)
            .stops(25.0 + at as f64 * 0.1, pod);
    }
    let mut jobs =
        History::new("Jobs: a pod a second, each with the address of one before").quiet();
    for at in 0..100 {
        let address: &'static str =
            Box::leak(format!("10.244.7.{}/24", 2 + at % 5).into_boxed_str());
        let pod = Pod::new(&format!("jobs/run-{at}"), address);
        let at = at as f64;
        jobs = jobs
            .api(at, &[&pod])
            .starts(at + 0.1, &pod)
            .stops(at + 3.0, &pod)
            .deleted(at + 4.0, &pod);
    }
    let victim = Pod::new("shop/victim", "10.244.7.2/24");
    let preemptor = Pod::new("shop/preemptor", "10.244.7.2/24");
    let preemption = History::new("preemption: the preemptor gets the victim's address")
        .api(0.0, &[&victim])
        .starts(0.5, &victim)
        .stops(30.0, &victim)
        .deleted(31.0, &victim)
        .api(31.0, &[&preemptor])
        .starts(31.5, &preemptor)
        .until(90.0)
        .quiet();
    let (late, heir) = (
        Pod::new("shop/late", "10.244.7.2/24"),
        Pod::new("shop/heir", "10.244.7.2/24"),
    );
    // The plugin gives the address back before it takes it from the namespace.
    let overlap = |name, removed: Option<f64>| {
        let history = History::new(name)
            .api(0.0, &[&late, &heir])
            .starts(1.0, &late)
            .holders(30.0, &late, false, true)
            .reservation(30.1, &late, false)
            .starts(31.0, &heir);
        match removed {
            Some(at) => history
                .long_call(
                    30.05,
                    at - 30.0,
                    &Call {
                        command: "DEL",
                        pod: &late,
                        nameless: false,
                        plugin: "bridge",
                        error: None,
                    },
                )
                .address(at, "address-removed", &late)
                .at(
                    at + 0.1,
                    json!({ "event": "netns-dying", "netns": netns(&late) }),
                )
                .at(
                    at + 0.2,
                    json!({ "event": "netns-destroyed", "netns": netns(&late) }),
                ),
            None => history,
        }
        .until(120.0)
    };
    let overlaps = vec![
        overlap(
            "an address is given back a few seconds before it is taken from the namespace",
            Some(34.0),
        )
        .quiet(),
        overlap(
            "an address is given to another pod, and is never taken from the first",
            None,
        )
        .finds(
            finds("duplicate-address")
                .critical()
                .about("10.244.7.2")
                .times(1),
        ),
    ];
    let sandbox = Pod::new("shop/db-0", "10.244.7.2/24").earlier_sandbox();
    let next = Pod::new("shop/db-0", "10.244.7.2/24");
    let restarted = History::new("a pod's sandbox is made anew, with the same sticky address")
        .api(0.0, &[&next])
        .starts(1.0, &sandbox)
        .stops(30.0, &sandbox)
        .starts(33.0, &next)
        .until(120.0)
        .quiet();
    let mut all = vec![drain, jobs, preemption, restarted];
    all.extend(overlaps);
    all
}

/// Sources and clocks that fail for a while.
fn interruptions() -> Vec<History> {
    let (a, b) = (
        Pod::new("shop/a", "10.244.7.2/24"),
        Pod::new("shop/b", "10.244.7.3/24"),
    );
    let stepped = |name, by| {
        History::new(name)
            .api(0.0, &[&a, &b])
            .starts(1.0, &a)
            .starts(2.0, &b)
            .step(30.0, by)
            .api(31.0, &[&a, &b])
            .deleted(40.0, &a)
            .stops(45.0, &a)
            .api(60.0, &[&b])
            .until(120.0)
            .quiet()
    };
    vec![
        History::new("the API server is away for ten minutes, and pods come and go meanwhile")
            .api(0.0, &[&a])
            .starts(1.0, &a)
            .api_fails(30.0)
            .starts(60.0, &b)
            .stops(300.0, &a)
            .api_fails(330.0)
            .api(630.0, &[&b])
            .until(700.0)
            .quiet(),
        History::new("the API server is away, and a pod that it never told of goes on")
            .api(0.0, &[&a])
            .api_fails(10.0)
            .starts(20.0, &b)
            .until(400.0)
            .quiet()
            .silent("ghost-sandbox"),
        History::new("a pod is off the list for a moment, and on the next one again")
            .api(0.0, &[&a, &b])
            .starts(1.0, &a)
            .starts(2.0, &b)
            .deleted(20.0, &a)
            .api(20.1, &[&b])
            .api(25.0, &[&a, &b])
            .until(200.0)
            .quiet(),
        History::new("the clock is set an hour forward within a pod's grace period")
            .api(0.0, &[&a])
            .starts(1.0, &a)
            .deleted(20.0, &a)
            .api(20.1, &[])
            .step(22.0, 3600)
            .stops(40.0, &a)
            .until(120.0)
            .quiet(),
        stepped("the clock is set an hour forward", 3600),
        stepped("the clock is set an hour back", -3600),
        History::new("records were lost for a moment: that is over some time later")
            .api(0.0, &[&a])
            .starts(1.0, &a)
            .at(
                5.0,
                json!({ "event": "events-lost", "cause": "ring-buffer-full", "count": 3 }),
            )
            .until(3600.0)
            .finds(finds("events-lost").resolved()),
    ]
}

/// What a DEL does, and what it does not.
fn deletions() -> Vec<History> {
    let old = Pod::new("shop/db-0", "10.244.7.2/24").earlier();
    let new = Pod::new("shop/db-0", "10.244.7.3/24");
    let replaced = |name| {
        History::new(name)
            .api(0.0, &[&old])
            .starts(1.0, &old)
            .holders(20.0, &old, false, true)
            .del(20.1, &old, false)
            .address(20.11, "address-removed", &old)
            .effect(20.2, "DEL", &old, false)
            .at(
                20.3,
                json!({ "event": "netns-dying", "netns": netns(&old) }),
            )
            .at(
                20.4,
                json!({ "event": "netns-destroyed", "netns": netns(&old) }),
            )
            .deleted(21.0, &old)
            .api(21.0, &[&new])
            .starts(22.0, &new)
    };
    let slow = Pod::new("shop/slow", "10.244.7.4/24").grace(600);
    vec![
        replaced("a StatefulSet's pod is replaced, the ordinary second DEL comes late and harms nothing")
            .del(30.0, &old, true)
            .devices(35.0, &new, true)
            .effect(35.0, "ADD", &new, true)
            .devices(41.0, &new, true)
            .until(120.0)
            .quiet(),
        replaced("a pod drops its own address ten seconds after the ordinary second DEL of the one before it")
            .del(30.0, &old, true)
            .devices(35.0, &new, true)
            .address(40.0, "address-removed", &new)
            .until(120.0)
            .quiet(),
        replaced("a pod's default route goes ten seconds after the ordinary second DEL of the one before it")
            .del(30.0, &old, true)
            .devices(35.0, &new, true)
            .devices(40.0, &new, false)
            .devices(45.0, &new, false)
            .until(120.0)
            .quiet(),
        calico_takes(&old, &new),
        History::new("forced deletion of a pod that has ten minutes to end, and takes five")
            .api(0.0, &[&slow])
            .starts(1.0, &slow)
            .deleted(20.0, &slow)
            .api(20.5, &[])
            .api(120.0, &[])
            .stops(320.0, &slow)
            .until(400.0)
            .quiet(),
        History::new("forced deletion of a pod whose processes go on")
            .api(0.0, &[&new])
            .starts(1.0, &new)
            .deleted(20.0, &new)
            .api(20.5, &[])
            .api(120.0, &[])
            .until(300.0)
            .finds(finds("ghost-sandbox").warning().with("phase", "suspected").about("shop/db-0").times(1)),
        History::new("the last reference to a namespace is gone, and the kernel does not finish")
            .api(0.0, &[&new])
            .starts(1.0, &new)
            .holders(20.0, &new, false, true)
            .del(20.1, &new, false)
            .address(20.11, "address-removed", &new)
            .effect(20.2, "DEL", &new, false)
            .deleted(20.5, &new)
            .at(20.6, json!({ "event": "netns-dying", "netns": netns(&new) }))
            .until(300.0)
            .finds(finds("netns-teardown-stall").times(1)),
    ]
}

/// Calico names the node's end of a cable by the pod's name: a late DEL of the
/// old sandbox removes the new one's, and with it the pod's.
fn calico_takes(old: &Pod, new: &Pod) -> History {
    let mut history =
        History::new("Calico: a late DEL of the old sandbox takes the new one's cable");
    history.network("calico", "calico-ipam");
    let call = |command, pod, nameless| Call {
        command,
        pod,
        nameless,
        plugin: "calico",
        error: None,
    };
    let made = |pod| {
        json!({
            "event": "netns-created", "netns": netns(pod),
            "task": { "pid": 900, "tid": 900, "comm": "containerd" },
        })
    };
    history
        .api(0.0, &[old])
        .at(1.0, made(old))
        .call(1.01, &call("ADD", old, false))
        .address(1.04, "address-added", old)
        .devices(1.05, old, true)
        .holders(1.1, old, true, true)
        .holders(20.0, old, false, true)
        .address(20.5, "address-removed", old)
        .at(20.6, json!({ "event": "netns-dying", "netns": netns(old) }))
        .at(
            20.7,
            json!({ "event": "netns-destroyed", "netns": netns(old) }),
        )
        .deleted(21.0, old)
        .api(21.0, &[new])
        .at(22.0, made(new))
        .call(22.01, &call("ADD", new, false))
        .address(22.04, "address-added", new)
        .devices(22.05, new, true)
        .holders(22.1, new, true, true)
        .call(40.0, &call("DEL", old, false))
        .address(40.01, "address-removed", new)
        .at(
            40.05,
            json!({ "event": "netns-devices", "netns": netns(new), "devices": [] }),
        )
        .until(120.0)
        .finds(
            finds("stale-del")
                .critical()
                .with("effect", "harmful")
                .about("shop/db-0"),
        )
        .may("missing-del")
}

/// Pods that do not start.
fn failures() -> Vec<History> {
    let pod = Pod::new("shop/a", "10.244.7.2/24");
    let failing = |name, plugin, error, times: u64| {
        let mut history = History::new(name).api(0.0, &[&pod]);
        for at in 0..times {
            let call = Call {
                command: "ADD",
                pod: &pod,
                nameless: false,
                plugin,
                error: Some(error),
            };
            history = history.call(1.0 + 15.0 * at as f64, &call);
        }
        history.may("sandbox-churn").may("sandbox-create-failed")
    };
    vec![
        failing(
            "the CNI's agent is not there yet: no socket",
            "cilium-cni",
            "unable to connect to Cilium agent: failed to create cilium agent client after 30.000000 seconds timeout: Get \"http://localhost/v1/config\": dial unix /var/run/cilium/cilium.sock: connect: no such file or directory",
            3,
        )
        .finds(finds("add-failed").with("cause", "cni-not-ready").times(1)),
        failing(
            "the CNI's agent is not there yet: a port of loopback refuses",
            "aws-cni",
            "add cmd: Error received from AddNetwork gRPC call: rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial tcp 127.0.0.1:50051: connect: connection refused\"",
            3,
        )
        .finds(finds("add-failed").with("cause", "cni-not-ready").times(1)),
        failing(
            "flannel after a reboot: subnet.env is not there yet",
            "flannel",
            "loadFlannelSubnetEnv failed: open /run/flannel/subnet.env: no such file or directory",
            2,
        )
        .finds(finds("add-failed").warning().with("cause", "cni-not-ready").times(1)),
        failing(
            "the range is full",
            "bridge",
            "failed to allocate for range 0: no IP addresses available in range set: 10.244.7.1-10.244.7.254",
            4,
        )
        .finds(finds("add-failed").critical().with("cause", "range-exhausted").times(1)),
    ]
}
