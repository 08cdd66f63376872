//! The tracer as the DaemonSet runs it: an unprivileged container of a pod, with
//! a cgroup namespace of its own, on cgroup v2, with each of kubelet's cgroup
//! drivers. Its pod is burstable, the ghost's guaranteed and the others' of best
//! effort, so that they share as little of their paths as pods can.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::machine::{self, run as program};
use super::output::WrittenLines;
use super::{FOLDER, Law, PACKAGE, PODS, SOON, laws, step};
use crate::containerd::incident::{Node, RealIncident};
use crate::containerd::{SOCKET, STORE, Sandbox, image};
use crate::cri::message::PodSandboxMetadata;
use crate::cri::{Cri, Daemon, PodConfig};
use crate::incident::Stuck;
use crate::manifest::{self, MANIFEST, capabilities};
use crate::pods::{Pod, PodsFile};
use crate::tracer::{is_finding, netns_of};
use crate::wait;

/// Lines of the manifest that say what [`Daemon`] is.
const SHAPE: [&str; 8] = [
    "hostPID: true",
    "hostNetwork: true",
    "privileged: false",
    "allowPrivilegeEscalation: false",
    "readOnlyRootFilesystem: true",
    "type: RuntimeDefault",
    "mountPath: /host",
    "mountPropagation: HostToContainer",
];
/// The tracer, unpacked and not installed.
const UNPACKED: &str = "/var/lib/nt/unpacked";
/// Where the container writes, there and on the node.
const OUT: &str = "/var/lib/nt/out";
const TRACE: &str = "/var/lib/nt/out/trace.jsonl";
const RUNTIME: &str = "containerd.service";
const CONFIG: &str = "/etc/containerd/config.toml";

/// Who makes the cgroups of kubelet's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    Systemd,
    Cgroupfs,
}

impl Driver {
    /// The cgroup of a pod; a guaranteed one has no class.
    fn parent(self, class: Option<&str>, uid: &str) -> String {
        match (self, class) {
            (Self::Systemd, Some(class)) => {
                format!("kubepods-{class}-pod{}.slice", uid.replace('-', "_"))
            }
            (Self::Systemd, None) => format!("kubepods-pod{}.slice", uid.replace('-', "_")),
            (Self::Cgroupfs, Some(class)) => format!("/kubepods/{class}/pod{uid}"),
            (Self::Cgroupfs, None) => format!("/kubepods/pod{uid}"),
        }
    }

    /// Has the runtime go by it.
    fn set(self) -> anyhow::Result<()> {
        let line = |on: bool| format!("SystemdCgroup = {on}");
        let config = fs::read_to_string(CONFIG).context(CONFIG)?;
        let wanted = self == Self::Systemd;
        fs::write(CONFIG, config.replace(&line(!wanted), &line(wanted))).context(CONFIG)?;
        program("systemctl", &["restart", RUNTIME])?;
        let (pause, busybox) = (image::PAUSE.to_owned(), image::BOX.to_owned());
        wait::until("the runtime", SOON, || {
            let images = Cri::connect(Path::new(SOCKET)).and_then(|cri| cri.images());
            let images = images.unwrap_or_default();
            Ok((images.contains(&pause) && images.contains(&busybox)).then_some(()))
        })
    }
}

/// The guest's own runtime, with the cgroups that kubelet would name.
struct Guest {
    cri: Cri,
    driver: Driver,
}

impl Guest {
    fn connect(driver: Driver) -> anyhow::Result<Self> {
        let cri = Cri::connect(Path::new(SOCKET))?;
        Ok(Self { cri, driver })
    }

    fn config(&self, pod: &Pod, class: Option<&str>) -> PodConfig {
        let Pod {
            namespace,
            name,
            uid,
        } = pod.clone();
        PodConfig {
            cgroup_parent: self.driver.parent(class, &uid),
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
}

impl Node for Guest {
    fn cri(&self) -> &Cri {
        &self.cri
    }

    fn pod_config(&self, pod: &Pod) -> PodConfig {
        let class = (pod.name != "stuck").then_some("besteffort");
        self.config(pod, class)
    }

    fn store(&self) -> PathBuf {
        PathBuf::from(STORE)
    }

    fn deadline(&self) -> std::time::Duration {
        // To kill the container takes the runtime seconds here.
        std::time::Duration::from_secs(15)
    }
}

/// The tracer's arguments there, and the list of pods: nothing serves an API.
fn arguments() -> anyhow::Result<String> {
    Ok(format!("{} --pods /host{PODS}", manifest::arguments()?))
}

/// One tracer in its pod, and what it says.
struct Deployed {
    guest: Guest,
    sandbox: Sandbox,
    container: String,
    output: WrittenLines,
}

impl Deployed {
    fn start(guest: Guest, pods: &mut PodsFile) -> anyhow::Result<Self> {
        let pod = Pod::new("node-tracer", "node-tracer-4xk2p")?;
        pods.put(&pod, None)?;
        let config = PodConfig {
            host_network: true,
            host_pid: true,
            ..guest.config(&pod, Some("burstable"))
        };
        let sandbox = Sandbox::make(&guest.cri, config)?;
        // What the last one has said.
        let _ = fs::remove_dir_all(OUT);
        fs::create_dir_all(OUT).context(OUT)?;
        fs::write(TRACE, "").context(TRACE)?;
        let run = format!("exec /node-tracer {} >{TRACE} 2>{OUT}/err", arguments()?);
        let tracer = Path::new(UNPACKED).join("usr/bin/node-tracer");
        let capabilities = capabilities();
        let daemon = Daemon {
            name: "node-tracer",
            image: image::BOX,
            argv: &["/bin/sh", "-c", &run],
            capabilities: &capabilities,
            root: "/host",
            mounts: &[(&tracer, "/node-tracer"), (Path::new(OUT), OUT)],
        };
        let (container, pid) = guest
            .cri
            .run_daemon(&sandbox.id, &sandbox.config, &daemon)?;
        let namespace = |pid: u32| {
            let link = format!("/proc/{pid}/ns/cgroup");
            fs::read_link(&link).context(link)
        };
        ensure!(
            namespace(pid)? != namespace(1)?,
            "the container is in the node's cgroup namespace"
        );
        Ok(Self {
            guest,
            sandbox,
            container,
            output: WrittenLines::of(TRACE),
        })
    }

    /// Waits for its first record.
    fn wait(&mut self) -> anyhow::Result<Value> {
        let coverage = self.output.wait_for("a coverage record", SOON, |record| {
            record["type"] == "coverage"
        });
        coverage.with_context(|| {
            let errors = fs::read_to_string(format!("{OUT}/err"));
            errors.unwrap_or_else(|error| error.to_string())
        })
    }

    /// It knows where on the node it is.
    fn expect_place(&mut self) -> anyhow::Result<()> {
        let coverage = self.wait()?;
        machine::sees_all(&coverage, &["pods", "pods by cgroup"])?;
        let mut signals = coverage["signals"].as_array().into_iter().flatten();
        let item = signals.find(|item| item["signal"] == "pods by cgroup");
        let text = item.map(Value::to_string).unwrap_or_default();
        ensure!(
            text.contains("seen from /kubepods") && text.contains(&self.container),
            "it does not know its place: {text}"
        );
        Ok(())
    }

    /// As `kubectl exec` asks: one look by the kernel alone.
    fn scan(&self) -> anyhow::Result<Vec<Value>> {
        let line = format!("scan -o json --cri none --root /host --pods /host{PODS}");
        let argv: Vec<&str> = ["/node-tracer"]
            .into_iter()
            .chain(line.split(' '))
            .collect();
        let said = self.guest.cri.exec(&self.container, &argv)?;
        let lines = said.lines();
        let records = lines.map(|line| serde_json::from_str(line).context(line.to_owned()));
        records.collect()
    }
}

impl Drop for Deployed {
    fn drop(&mut self) {
        let cri = &self.guest.cri;
        let stopped = cri.stop_sandbox(&self.sandbox.id, SOON);
        if let Err(error) = stopped.and_then(|_| cri.remove_sandbox(&self.sandbox.id)) {
            eprintln!("the tracer's pod is left: {error:#}");
        }
    }
}

/// Whether it is the ghost with its pod, held by that container.
fn is_ghost(record: &Value, old: &Sandbox, stuck: &Stuck) -> bool {
    let mut holders = record["holders"].as_array().into_iter().flatten();
    is_finding(record, "ghost-sandbox")
        && netns_of(record) == Some(old.netns_inode)
        && record["pod"]["uid"] == old.config.metadata.uid.as_str()
        && holders.any(|holder| {
            holder["pid"] == stuck.pid && holder["container_id"] == stuck.container_id.as_str()
        })
}

/// The incident beside the DaemonSet's pod.
fn incident(driver: Driver) -> anyhow::Result<()> {
    driver.set()?;
    let mut pods = PodsFile::create(Path::new(FOLDER))?;
    let mut deployed = Deployed::start(Guest::connect(driver)?, &mut pods)?;
    deployed.wait()?;
    let mut incident = RealIncident::on(Guest::connect(driver)?, pods)?;
    let old = incident.start_old_pod()?;
    let stuck = incident.force_delete()?;
    let observed = &mut deployed.output;
    observed.finding("ghost-sandbox", SOON, |record| {
        is_ghost(record, &old, &stuck)
    })?;
    incident.garbage_collect()?;
    incident.start_new_pod()?;
    observed.finding("duplicate-address", SOON, |record| {
        record["severity"] == "critical"
    })?;
    let found = deployed.scan()?;
    ensure!(
        found.iter().any(|record| is_ghost(record, &old, &stuck)),
        "scan has not found the ghost: {found:?}"
    );
    deployed.expect_place()?;
    incident.release()
}

fn ready(_: &mut ()) -> anyhow::Result<()> {
    for line in SHAPE {
        ensure!(MANIFEST.contains(line), "the manifest does not say {line}");
    }
    machine::up()?;
    program("dpkg-deb", &["-x", PACKAGE, UNPACKED])?;
    machine::import_images()
}

const LAWS: [Law<()>; 3] = [
    step("systemd is up on cgroup v2", ready),
    super::law("systemd driver: the ghost is told with its pod", |()| {
        incident(Driver::Systemd)
    }),
    super::law("cgroupfs driver: the ghost is told with its pod", |()| {
        incident(Driver::Cgroupfs)
    }),
];

/// Runs the laws whose names hold one of `wanted`, and the first.
pub(in crate::guest) fn run(wanted: &[String]) -> ExitCode {
    laws("daemonset", &LAWS, || Ok(()), |()| Vec::new(), wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_is_the_manifests() {
        assert!(capabilities().contains(&"SYS_PTRACE"));
        assert!(arguments().unwrap().starts_with("trace --root /host "));
        for line in SHAPE {
            assert!(MANIFEST.contains(line), "{line}");
        }
    }

    #[test]
    fn a_guaranteed_pod_has_no_class() {
        let parent = |driver: Driver, class| driver.parent(class, "a-b");
        assert_eq!(parent(Driver::Systemd, None), "kubepods-poda_b.slice");
        assert_eq!(
            parent(Driver::Cgroupfs, Some("burstable")),
            "/kubepods/burstable/poda-b"
        );
    }
}
