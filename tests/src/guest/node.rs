//! A whole node: Debian with systemd, containerd, runc and the CNI plugins, and
//! the tracer's package. The incident happens there.
//!
//! | module | what |
//! |---|---|
//! | [`boot`] | how the guest becomes the node |
//! | [`package`] | laws about the package: what it brings, and that all of it goes |
//! | [`machine`] | laws about the system and the service |
//! | [`manager`] | laws about the service's life in systemd's hands |
//! | [`incident`] | laws about what the service tells of the incident |
//! | [`commands`] | laws about what scan, explain and check answer meanwhile |
//! | [`output`] | what the service has written |
//! | [`daemonset`] | a suite of its own: the tracer in a pod |
//! | [`cluster`] | another: the integration tests that need API server and kubelet |
//!
//! The laws are a story and come in its order. After one that a later one
//! rests on has failed, the rest is skipped.

pub(super) mod boot;
pub(super) mod cluster;
mod commands;
pub(super) mod daemonset;
mod incident;
mod machine;
mod manager;
mod output;
mod package;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::init;
use super::report::{Case, Host, Verdict};
use crate::containerd::incident::{Node, RealIncident};
use crate::containerd::{SOCKET, STORE, Sandbox};
use crate::cri::message::PodSandboxMetadata;
use crate::cri::{Cri, PodConfig};
use crate::incident::Stuck;
use crate::pods::{Pod, PodsFile};
use crate::tracer::{names_address, netns_of};
use output::WrittenLines;

/// What is the tests' own, on the node.
const FOLDER: &str = "/var/lib/nt";
/// The tracer, as it is released.
const PACKAGE: &str = "/var/lib/nt/node-tracer.deb";
/// The list of pods for the service; [`PodsFile`] writes it.
const PODS: &str = "/var/lib/nt/pods.json";
/// What the service tells as JSON.
const TRACE: &str = "/var/lib/nt/trace.jsonl";
const RECORDINGS: &str = "/var/lib/node-tracer";
/// In the configuration of the pod network, and nowhere else.
const SECRET: &str = "token-that-nobody-may-see";
/// Long enough for anything that is to happen at once, in an emulated machine
/// whose host does much else.
const SOON: Duration = Duration::from_secs(240);

/// What the laws have made and found out so far.
struct Stage {
    output: WrittenLines,
    /// Until the incident has it.
    pods: Option<PodsFile>,
    incident: Option<RealIncident<Guest>>,
    facts: Option<Facts>,
    /// Inodes of network namespaces that there is nothing to say about.
    innocent: Vec<u64>,
    /// How often systemd has started the service again.
    restarts: u32,
    /// What people are to be told of a law, in one line.
    remarks: Vec<String>,
}

/// What has to be found out about the incident.
struct Facts {
    old: Sandbox,
    address: String,
    stuck: Option<Stuck>,
    new: Option<Sandbox>,
}

impl Stage {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            output: WrittenLines::of(TRACE),
            pods: Some(PodsFile::create(std::path::Path::new(FOLDER))?),
            incident: None,
            facts: None,
            innocent: Vec::new(),
            restarts: 0,
            remarks: Vec::new(),
        })
    }

    fn incident(&mut self) -> anyhow::Result<&mut RealIncident<Guest>> {
        self.incident.as_mut().context("there is no incident")
    }

    fn facts(&self) -> anyhow::Result<&Facts> {
        self.facts.as_ref().context("there is no incident")
    }
}

impl Facts {
    /// Whether a finding is on this incident: tasks of the emulated machine
    /// itself are slow, and at times stuck for long.
    fn concerns(&self, finding: &serde_json::Value) -> bool {
        netns_of(finding) == Some(self.old.netns_inode) || names_address(finding, &self.address)
    }

    fn stuck(&self) -> anyhow::Result<&Stuck> {
        self.stuck.as_ref().context("nothing is stuck")
    }

    fn new_sandbox(&self) -> anyhow::Result<&Sandbox> {
        self.new.as_ref().context("there is no new pod")
    }
}

/// The guest's own runtime, with the cgroups that kubelet's systemd driver
/// would make.
struct Guest {
    cri: Cri,
}

impl Guest {
    fn connect() -> anyhow::Result<Self> {
        let cri = Cri::connect(std::path::Path::new(SOCKET))?;
        Ok(Self { cri })
    }
}

impl Node for Guest {
    fn cri(&self) -> &Cri {
        &self.cri
    }

    fn pod_config(&self, pod: &Pod) -> PodConfig {
        let Pod {
            namespace,
            name,
            uid,
        } = pod.clone();
        PodConfig {
            cgroup_parent: slice(&uid),
            metadata: PodSandboxMetadata {
                name,
                uid,
                namespace,
                attempt: 0,
            },
            host_network: false,
            host_pid: false,
        }
    }

    fn store(&self) -> PathBuf {
        PathBuf::from(STORE)
    }

    fn deadline(&self) -> Duration {
        // To kill the container takes the runtime seconds here.
        Duration::from_secs(15)
    }
}

/// A pod's slice: in its name a dash says what it is below.
fn slice(uid: &str) -> String {
    format!("kubepods-besteffort-pod{}.slice", uid.replace('-', "_"))
}

/// One law. `S` is what those before it have made and found out.
struct Law<S = Stage> {
    name: &'static str,
    /// Whether the rest makes no sense without it.
    vital: bool,
    run: fn(&mut S) -> anyhow::Result<()>,
}

const fn law<S>(name: &'static str, run: fn(&mut S) -> anyhow::Result<()>) -> Law<S> {
    Law {
        name,
        vital: false,
        run,
    }
}

const fn step<S>(name: &'static str, run: fn(&mut S) -> anyhow::Result<()>) -> Law<S> {
    Law {
        name,
        vital: true,
        run,
    }
}

const LAWS: [Law; 23] = [
    step(
        "the package installs, the service starts",
        package::installed,
    ),
    law("man pages and completions", package::documented),
    law("systemd-analyze security", manager::hardened),
    step("systemd is up on cgroup v2", machine::booted),
    step("the service sees every signal", machine::coverage),
    law("it gives signs of life", manager::alive),
    law("a hung service is started again", manager::hung),
    step("a killed service is started again", manager::killed),
    step("containerd has its images", machine::images),
    law("PrivateNetwork= is seen", machine::private_network),
    step("an ordinary pod", incident::ordinary_pod),
    step("stuck and force-deleted: suspected", incident::suspected),
    law("blocked-task with its stack", incident::blocked),
    step("address freed: armed", incident::armed),
    step("address given away: conflict", incident::conflict),
    law("journalctl by field", incident::journal),
    law("scan agrees", commands::scan),
    law("explain agrees", commands::explain),
    law("check agrees", commands::check),
    step("released: resolved", incident::resolved),
    law("no false alarm, nothing lost", incident::quiet),
    step("systemctl stop; nothing secret", machine::stopped),
    law("the package is purged; nothing stays", package::purged),
];

/// Runs the laws whose names hold one of `wanted`, and those that they rest on.
pub(super) fn run(wanted: &[String]) -> ExitCode {
    let remarks = |stage: &mut Stage| std::mem::take(&mut stage.remarks);
    laws("node", &LAWS, Stage::new, remarks, wanted)
}

fn laws<S>(
    suite: &str,
    all: &[Law<S>],
    stage: impl FnOnce() -> anyhow::Result<S>,
    remarks: impl Fn(&mut S) -> Vec<String>,
    wanted: &[String],
) -> ExitCode {
    let Ok(mut host) = Host::open() else {
        return ExitCode::FAILURE;
    };
    if let Err(error) = init::raw() {
        host.text(&format!("{error:#}"));
    }
    let done = stage().map(|mut stage| {
        run_all(&mut host, suite, all, &mut stage, &remarks, wanted);
    });
    if let Err(error) = done {
        host.text(&format!("{error:#}"));
        return ExitCode::FAILURE;
    }
    host.end();
    ExitCode::SUCCESS
}

fn run_all<S>(
    host: &mut Host,
    suite: &str,
    all: &[Law<S>],
    stage: &mut S,
    remarks: &impl Fn(&mut S) -> Vec<String>,
    wanted: &[String],
) {
    let has =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let mut broken = None;
    for law in all {
        if !law.vital && !has(law.name) {
            continue;
        }
        let begin = Instant::now();
        let (verdict, detail) = match broken {
            Some(name) => (Verdict::Skipped, format!("after {name:?} has failed")),
            None => match (law.run)(stage) {
                Ok(()) => (Verdict::Ok, String::new()),
                Err(error) => (Verdict::Failed, format!("{error:#}")),
            },
        };
        if law.vital && verdict == Verdict::Failed {
            broken = Some(law.name);
            for (title, text) in machine::evidence() {
                host.note(&title, &text);
            }
        }
        for remark in remarks(stage) {
            host.text(&format!("{}: {remark}", law.name));
        }
        host.case(&Case {
            suite,
            name: law.name,
            verdict,
            detail,
            seconds: begin.elapsed().as_secs_f32(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_slice_is_below_its_class() {
        assert_eq!(
            slice("c0f50105-e6ba-496d"),
            "kubepods-besteffort-podc0f50105_e6ba_496d.slice"
        );
    }
}
