//! The tracer as the shipped DaemonSet runs it, in a container of containerd and
//! runc on a node of its own: the manifest's arguments, capabilities and mounts.
//! (With each of kubelet's cgroup drivers, on cgroup v2: `cargo xtask vm`.)

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use node_tracer_tests::containerd::incident::RealIncident;
use node_tracer_tests::containerd::{NEEDS, Sandbox, image};
use node_tracer_tests::cri::{Daemon, PodConfig};
use node_tracer_tests::manifest;
use node_tracer_tests::pods::Pod;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::snapshot_run::whole_list;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use node_tracer_tests::tracer::{self, SOON, is_finding, netns_of};
use node_tracer_tests::wait;
use serde_json::Value;

/// The program, its list of pods, and what it says, on the node.
const FOLDER: &str = "/var/lib/nt";
/// A file system below the node's root.
const BELOW: &str = "/var/lib/nt-below";

/// Tries to write into each file system below the node's root.
const WRITE: &str = "while read -r _ _ _ _ at _; do case $at in /host|/host/*) \
    [ -d $at ] && touch $at/nt-sealed 2>/dev/null && rm $at/nt-sealed && echo $at ;; \
    esac; done < /proc/self/mountinfo; echo end";

struct Deployed<'a> {
    incident: &'a RealIncident,
    sandbox: Sandbox,
    container: String,
    pid: u32,
}

impl<'a> Deployed<'a> {
    fn start(incident: &'a RealIncident, name: &str, argv: &[&str]) -> anyhow::Result<Self> {
        let (node, cri) = (incident.node(), incident.node().cri());
        let Pod {
            namespace,
            name,
            uid,
        } = Pod::new("node-tracer", name)?;
        let config = PodConfig {
            host_pid: true,
            ..node.pod_config(&name, &namespace, &uid, 0, true)
        };
        let sandbox = node.sandbox(cri.run_sandbox(&config)?, config)?;
        let capabilities = manifest::capabilities();
        // A debug build takes the system's libraries.
        let mut mounts = vec![(PathBuf::from(FOLDER), FOLDER)];
        for libraries in ["/lib", "/lib64"] {
            mounts.extend(fs::canonicalize(libraries).ok().map(|it| (it, libraries)));
        }
        let mounts: Vec<(&Path, &str)> = mounts.iter().map(|(from, to)| (&**from, *to)).collect();
        let daemon = Daemon {
            name: "node-tracer",
            image: image::BOX,
            argv,
            capabilities: &capabilities,
            root: "/host",
            mounts: &mounts,
        };
        let (container, pid) = cri.run_daemon(&sandbox.id, &sandbox.config, &daemon)?;
        Ok(Self {
            incident,
            sandbox,
            container,
            pid,
        })
    }

    fn exec(&self, argv: &[&str]) -> anyhow::Result<String> {
        self.incident.node().cri().exec(&self.container, argv)
    }

    /// Where it can write below the node's root.
    fn writes(&self) -> anyhow::Result<Vec<String>> {
        let said = self.exec(&["/bin/sh", "-c", WRITE])?;
        let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
        ensure!(lines.pop().as_deref() == Some("end"), "{said}");
        Ok(lines)
    }

    /// File systems below the node's root that are not read-only for it.
    fn writable(&self) -> anyhow::Result<Vec<String>> {
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", self.pid))?;
        let mut below = 0;
        let mut writable = Vec::new();
        for line in table.lines() {
            let mut fields = line.split(' ').skip(4);
            let (at, options) = (fields.next().context("no path")?, fields.next());
            if at == "/host" || at.starts_with("/host/") {
                below += 1;
                let mut options = options.context("no options")?.split(',');
                writable.extend((!options.any(|option| option == "ro")).then(|| at.to_owned()));
            }
        }
        ensure!(below > 3, "only {below} mounts below /host");
        Ok(writable)
    }
}

impl Drop for Deployed<'_> {
    fn drop(&mut self) {
        let node = self.incident.node();
        let stopped = node.stop(&self.sandbox, SOON);
        if let Err(error) = stopped.and_then(|_| node.remove(&self.sandbox)) {
            println!("        the tracer's pod is left: {error:#}");
        }
    }
}

fn records(text: &str) -> impl Iterator<Item = Value> {
    let lines = text.lines();
    lines.filter_map(|line| serde_json::from_str(line).ok())
}

test!(
    &{
        let mut needs = [Need::Tracer; NEEDS.len() + 2];
        let mut at = 0;
        while at < NEEDS.len() {
            needs[at] = NEEDS[at];
            at += 1;
        }
        needs[at] = Need::Fuse;
        needs
    },
    the_daemonsets_container_finds_the_ghost_and_writes_nothing_of_the_node
);
fn the_daemonsets_container_finds_the_ghost_and_writes_nothing_of_the_node() -> anyhow::Result<()> {
    let mut incident = RealIncident::new()?;
    let (old, stuck, _) = incident.stage()?;
    let node = incident.node();
    let folder = node.host_path(FOLDER);
    fs::create_dir_all(&folder)?;
    fs::copy(tracer::binary()?, folder.join("node-tracer"))?;
    let scratch = Scratch::create()?;
    let pods = whole_list(incident.pods_file(), scratch.path())?;
    fs::copy(pods, folder.join("pods.json"))?;
    let below = node.host_path(BELOW);
    fs::create_dir_all(&below)?;
    let namespace = format!("--mount=/proc/{}/ns/mnt", node.pid());
    let mount = |argv: &[&str]| -> anyhow::Result<()> {
        let mut line = Command::new("nsenter");
        let done = line.args([&namespace, "mount"]).args(argv).status()?;
        ensure!(done.success(), "mount {argv:?}");
        Ok(())
    };
    // As systemd has it.
    mount(&["--make-rshared", "/"])?;
    mount(&["-t", "tmpfs", "none", BELOW])?;

    // As Kubernetes alone leaves it.
    let idle = Deployed::start(&incident, "idle", &["/bin/sleep", "1000"])?;
    let below = format!("/host{BELOW}");
    ensure!(idle.writable()?.contains(&below), "it is read-only anyway");
    drop(idle);

    let arguments = manifest::arguments()?;
    ensure!(arguments.contains(" --seal-root"), "{arguments}");
    let run = format!(
        "exec {FOLDER}/node-tracer {arguments} --cri none --pods /host{FOLDER}/pods.json \
         >{FOLDER}/out 2>{FOLDER}/err"
    );
    let deployed = Deployed::start(&incident, "node-tracer", &["/bin/sh", "-c", &run])?;
    let said = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let is_ghost = |record: &Value| {
        is_finding(record, "ghost-sandbox") && netns_of(record) == Some(old.netns_inode)
    };
    wait::until("the ghost, by trace", SOON, || {
        ensure!(
            Path::new(&format!("/proc/{}", deployed.pid)).exists(),
            "{}",
            said("err")
        );
        Ok(records(&said("out"))
            .any(|record| is_ghost(&record))
            .then_some(()))
    })
    .with_context(|| said("err"))?;
    ensure!(!said("err").contains("stays writable"), "{}", said("err"));
    let (writable, writes) = (deployed.writable()?, deployed.writes()?);
    ensure!(
        writable.is_empty() && writes.is_empty(),
        "{writable:?} {writes:?}"
    );

    let line = format!(
        "{FOLDER}/node-tracer scan -o json --cri none --root /host --pods /host{FOLDER}/pods.json"
    );
    let argv: Vec<&str> = line.split(' ').collect();
    let scan = deployed.exec(&argv)?;
    let found = records(&scan)
        .find(is_ghost)
        .context("scan finds no ghost")?;
    let mut holders = found["holders"].as_array().into_iter().flatten();
    ensure!(
        holders.any(|holder| holder["pid"] == stuck.pid),
        "{found:#}"
    );
    drop(deployed);
    incident.release()
}
