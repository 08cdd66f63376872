//! Nodes as each container runtime leaves and describes them: what it answers to
//! CRI, and its socket, folders, cgroups and mounts.
//!
//! No such runtime runs here. What is in `tests/fixtures/runtimes` is written by
//! the published sources that each file names: what all versions have, and what
//! one has besides (`since`, by the beginning of a version).

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use node_tracer_tests::cri::message::VersionResponse;
use node_tracer_tests::scripted_cri::{Product, Sandbox, ScriptedCri};
use node_tracer_tests::test;
use serde_json::Value;

use super::expect::finds;
use super::node::{self, Mode, cgroup_of};
use super::situation::{InCri, Pod, Situation, Task, digits};
use super::{NODE, Table, play};

const FILES: [&str; 3] = [
    include_str!("../../../fixtures/runtimes/containerd.json"),
    include_str!("../../../fixtures/runtimes/cri-dockerd.json"),
    include_str!("../../../fixtures/runtimes/cri-o.json"),
];

/// One of one version, on a node with one of the kubelet's cgroup drivers.
#[derive(Clone, Debug)]
pub(super) struct Runtime {
    row: String,
    version: String,
    driver: &'static str,
    /// What its file says, with what is the node's and the version's own.
    facts: Value,
}

fn all() -> anyhow::Result<Vec<Runtime>> {
    let mut all = Vec::new();
    for file in FILES {
        let file: Value = serde_json::from_str(file)?;
        for node in file["nodes"].as_array().context("nodes")? {
            let mut facts = file.clone();
            merge(&mut facts, node);
            for (name, version) in node["versions"].as_object().context("versions")? {
                let version = version.as_str().context("a version")?;
                let mut facts = facts.clone();
                for (since, more) in file["since"].as_object().into_iter().flatten() {
                    if version.starts_with(since) {
                        merge(&mut facts["info"], more);
                    }
                }
                all.extend(["cgroupfs", "systemd"].map(|driver| Runtime {
                    row: format!(
                        "{} {name}, {driver}",
                        node["name"].as_str().unwrap_or_default()
                    ),
                    version: version.to_owned(),
                    driver,
                    facts: facts.clone(),
                }));
            }
        }
    }
    Ok(all)
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// A template with what is a pod's own.
fn fill(text: &str, pod: &Pod) -> String {
    let raw = digits(&format!("netns {}", pod.sandbox), 32);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &raw[part]);
    let ip = pod.ips.first().map(ToString::to_string);
    let own = [
        ("{id}", pod.sandbox.as_str()),
        ("{name}", &pod.name),
        ("{namespace}", &pod.namespace),
        ("{uid}", &pod.uid),
        ("{uid_}", &pod.uid.replace('-', "_")),
        ("{uuid}", &parts.join("-")),
        ("{key}", &raw[..12]),
        ("{ip}", &ip.unwrap_or_default()),
        ("{netns}", pod.mount.as_deref().unwrap_or_default()),
        ("{cgroup}", &cgroup_of(pod, &Task::new("app"))),
    ];
    let fill = |text: String, (key, value): (&str, &str)| text.replace(key, value);
    own.into_iter().fold(text.to_owned(), fill)
}

impl Runtime {
    fn text(&self, key: &str) -> &str {
        self.facts[key].as_str().unwrap_or_default()
    }

    /// As the tool names it.
    fn endpoint(&self) -> String {
        format!("unix://{}", self.text("socket"))
    }

    /// A pod as this runtime starts it.
    fn pod(&self, name: &str, address: &'static str) -> Pod {
        let mut pod = Pod::new(name, address);
        if self.driver == "systemd" {
            pod = pod.systemd();
        }
        pod.scope = self.text(self.driver).to_owned();
        pod.mount = Some(fill(self.text("netns"), &pod));
        if self.facts["pause"] != true {
            pod.tasks.retain(|task| task.comm != "pause");
        }
        pod
    }

    /// The verbose part of a sandbox's status, if it has any.
    pub(super) fn info(&self, pod: &Pod) -> Option<String> {
        let info = self.facts.get("info")?;
        Some(fill(&info.to_string(), pod))
    }

    pub(super) fn play(&self, cri: &ScriptedCri) {
        let absent = &self.facts["absent"];
        let lost_id = digits("lost", 64);
        let status = absent[0].as_u64().and_then(|status| status.try_into().ok());
        cri.play(Product {
            version: VersionResponse {
                runtime_name: self.text("runtime_name").to_owned(),
                runtime_version: self.version.clone(),
                runtime_api_version: String::from("v1"),
            },
            absent: (
                status.unwrap_or_default(),
                absent[1]
                    .as_str()
                    .unwrap_or_default()
                    .replace("{id}", &lost_id),
            ),
        });
        if self.facts["lost"] == true {
            let lost = Sandbox {
                name: String::from("lost"),
                namespace: String::from("shop"),
                lost: true,
                ..Sandbox::default()
            };
            cri.put(&lost_id, lost);
        }
    }

    /// Makes its socket and folders on the node.
    pub(super) fn shell(&self, situation: &Situation, scratch: &Path) -> anyhow::Result<String> {
        let mut text = String::new();
        let socket = self.text("socket");
        writeln!(text, "mkdir -p $(dirname {socket}); touch {socket}")?;
        writeln!(text, "mount --bind /run/zoo/cri.sock {socket}")?;
        let known = |pod: &&Pod| pod.in_cri != InCri::Gone;
        for pod in situation.pods.iter().filter(known) {
            let (Some(spec), Some(bundles)) = (
                self.facts["info"].get("runtimeSpec"),
                self.facts["bundles"].as_str(),
            ) else {
                continue;
            };
            let file = format!("{}.json", pod.sandbox);
            fs::write(scratch.join(&file), fill(&spec.to_string(), pod))?;
            let bundle = fill(bundles, pod);
            writeln!(
                text,
                "mkdir -p {bundle}; cp /run/zoo/{file} {bundle}/config.json"
            )?;
        }
        let lines = ["layout", "layout_of_node"].map(|key| self.facts[key].as_array());
        for line in lines
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(Value::as_str)
        {
            match line.contains("{cgroup}") {
                true => {
                    let alive = situation.pods.iter().filter(|pod| !pod.tasks.is_empty());
                    alive.for_each(|pod| text += &(fill(line, pod) + "\n"));
                }
                false => text += &(line.to_owned() + "\n"),
            }
        }
        Ok(text)
    }

    fn expect_found(&self, records: &[Value]) -> anyhow::Result<()> {
        let signals = records.iter().filter_map(|it| it["signals"].as_array());
        let mut signals = signals.flatten();
        let cri = signals.find(|signal| signal["signal"] == "cri");
        let cri = cri.context("the coverage says nothing of CRI")?;
        let (name, endpoint) = (self.text("runtime_name"), self.endpoint());
        let expected = format!("{name} {} at {endpoint} (", self.version);
        let told = cri["mechanism"].as_str().unwrap_or_default();
        let all = cri["unknown"].as_array().is_some_and(Vec::is_empty);
        ensure!(told.starts_with(&expected) && all, "not {expected}: {cri}");
        Ok(())
    }

    fn row(&self) -> Situation {
        let mut row = Situation::new(self.row.clone().leak());
        row.runtime = Some(self.clone());
        row.pod(self.pod("shop/other", "10.244.7.9/24"))
    }
}

/// Plays one situation on a node of each runtime. The runtime is found where it
/// listens, and tells all.
fn on_each(situation: impl Fn(&Runtime) -> Situation) -> anyhow::Result<()> {
    let runtimes = all()?;
    let rows: Vec<_> = runtimes.iter().map(|it| (it, situation(it))).collect();
    let came = play(&rows, |(runtime, row)| {
        let mut tries = 1..3;
        loop {
            let records = node::run(row, Mode::Look)?;
            match runtime.expect_found(&records) {
                // A busy machine answers late.
                Err(error)
                    if error.to_string().contains("does not answer") && tries.next().is_some() => {}
                found => return found.map(|()| records),
            }
        }
    })?;
    let mut table = Table::default();
    for ((_, row), came) in rows.iter().zip(came) {
        table.row(row.name, &row.expect, came);
    }
    table.end()
}

test!(NODE, the_pods_of_each_runtime_are_known_and_healthy);
fn the_pods_of_each_runtime_are_known_and_healthy() -> anyhow::Result<()> {
    let healthy = |runtime: &Runtime| {
        let pod = runtime.pod("shop/web", "10.244.7.2/24");
        let words: [&str; 3] = [pod.label().leak(), pod.sandbox.clone().leak(), "Running"];
        runtime
            .row()
            .pod(pod)
            .quiet()
            .explains("10.244.7.2", Vec::from(words).leak())
    };
    on_each(healthy)
}

test!(NODE, each_runtimes_ghost_is_removed_by_its_own_socket);
fn each_runtimes_ghost_is_removed_by_its_own_socket() -> anyhow::Result<()> {
    let ghost = |runtime: &Runtime| {
        let pod = runtime
            .pod("shop/old", "10.244.7.2/24")
            .gone()
            .stuck("dd", 300);
        let id = &pod.sandbox[..13];
        let crictl = match runtime.text("socket") {
            "/run/containerd/containerd.sock" => String::from("crictl"),
            _ => format!("crictl -r {}", runtime.endpoint()),
        };
        let remove = format!("{crictl} stopp {id} && {crictl} rmp {id}    #");
        let found = finds("ghost-sandbox").about("shop/old").about("10.244.7.2");
        let found = found.about(remove.leak());
        runtime.row().pod(pod).finds(found).may("blocked-task")
    };
    on_each(ghost)
}

test!(NODE, what_each_runtime_has_forgotten_is_found);
fn what_each_runtime_has_forgotten_is_found() -> anyhow::Result<()> {
    let orphan = |runtime: &Runtime| {
        let pod = runtime
            .pod("shop/old", "10.244.7.2/24")
            .gone()
            .in_cri(InCri::Gone);
        let found = finds("ghost-sandbox").about("shop/old").about("10.244.7.2");
        runtime
            .row()
            .pod(pod.empty())
            .finds(found)
            .may("pinned-netns")
    };
    on_each(orphan)
}

test!(NODE, each_runtime_is_found_where_it_listens);
fn each_runtime_is_found_where_it_listens() -> anyhow::Result<()> {
    on_each(|runtime| runtime.row().quiet())
}
