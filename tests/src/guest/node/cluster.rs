//! The integration tests that need API server and kubelet, on a system with
//! cgroup v2 alone: each starts a node of its own there.

use std::fs;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::super::init;
use super::super::report::{Case, Host, Verdict};
use super::{PACKAGE, machine};
use crate::{kube, stage, wait};

/// Where everything of it is, on the node.
const TESTS: &str = "/var/lib/nt/integration";
pub(super) const KUBE: &str = "/var/lib/nt/kube";
pub(super) const PACKAGES: &str = "/var/lib/nt/packages";
const UNPACKED: &str = "/var/lib/nt/unpacked";
const TRACER: &str = "/var/lib/nt/unpacked/usr/bin/node-tracer";
/// What an emulated machine takes longer.
const PATIENCE: &str = "8";

/// The incident with kubelet, and what is released for a cluster.
const DEFAULT: [&str; 2] = [
    "kube_incident_is_told_by_the_api",
    "kube_released_daemon_set_and_debug_pod_find_the_incident",
];

/// Runs the tests in whose names is one of `wanted`.
pub(in crate::guest) fn run(wanted: &[String]) -> ExitCode {
    let Ok(mut host) = Host::open() else {
        return ExitCode::FAILURE;
    };
    if let Err(error) = init::raw() {
        host.text(&format!("{error:#}"));
    }
    let wanted: Vec<&str> = match wanted {
        [] => DEFAULT.to_vec(),
        wanted => wanted.iter().map(String::as_str).collect(),
    };
    let mut names = Vec::new();
    case(&mut host, "systemd is up on cgroup v2", |host| {
        machine::up()?;
        machine::run("dpkg-deb", &["-x", PACKAGE, UNPACKED])?;
        enable_controllers()?;
        names = list(host, &wanted)?;
        Ok(Verdict::Ok)
    });
    for name in &names {
        case(&mut host, name, |host| test(host, name));
    }
    host.end();
    ExitCode::SUCCESS
}

fn case(host: &mut Host, name: &str, run: impl FnOnce(&mut Host) -> anyhow::Result<Verdict>) {
    let begin = Instant::now();
    let (verdict, detail) = match run(host) {
        Ok(verdict) => (verdict, String::new()),
        Err(error) => (Verdict::Failed, format!("{error:#}")),
    };
    host.case(&Case {
        suite: "cluster",
        name,
        verdict,
        detail,
        seconds: begin.elapsed().as_secs_f32(),
    });
}

/// kubelet takes a cgroup for its root only if it has all controllers.
fn enable_controllers() -> anyhow::Result<()> {
    const TOP: &str = "/sys/fs/cgroup";
    let all = fs::read_to_string(format!("{TOP}/cgroup.controllers"))?;
    let all: Vec<String> = all
        .split_whitespace()
        .map(|one| format!("+{one}"))
        .collect();
    fs::write(format!("{TOP}/cgroup.subtree_control"), all.join(" ")).context("controllers")
}

fn list(host: &mut Host, wanted: &[&str]) -> anyhow::Result<Vec<String>> {
    let output = integration(host, &[&["--list"], wanted].concat())?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    let names: Vec<String> = names.map(str::to_owned).collect();
    ensure!(
        !names.is_empty(),
        "no test has one of {wanted:?} in its name"
    );
    Ok(names)
}

fn test(host: &mut Host, name: &str) -> anyhow::Result<Verdict> {
    let output = integration(host, &["--exact", name])?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}");
    Ok(match said.contains("1 passed") {
        true => Verdict::Ok,
        false => Verdict::Skipped,
    })
}

/// Runs the program of the tests to its end.
fn integration(host: &mut Host, args: &[&str]) -> anyhow::Result<Output> {
    let mut tests = Command::new(TESTS)
        .args(args)
        .env("NODE_TRACER_BIN", TRACER)
        .env(kube::assets::FOLDER, KUBE)
        .env(stage::PACKAGES, PACKAGES)
        .env(wait::PATIENCE, PATIENCE)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("start the tests")?;
    let mut told = Instant::now();
    // What they say fits into the pipe.
    while tests.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(100));
        if told.elapsed() > Duration::from_secs(60) {
            host.alive();
            told = Instant::now();
        }
    }
    Ok(tests.wait_with_output()?)
}
