//! The custom plugin for node-problem-detector, as that runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use node_tracer_tests::incident::Incident;
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::binary;
use serde_json::Value;

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../node-tracer/packaging/node-problem-detector")
        .join(name)
}

/// Exit code, and the line that becomes the condition's message.
fn plugin(args: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let output = Command::new(packaging("node-problem-detector"))
        .args(args)
        .env("NODE_TRACER", binary()?)
        .output()?;
    ensure!(output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout)?;
    let line = text.trim_end().to_owned();
    let (length, lines) = (line.chars().count(), text.lines().count());
    ensure!((1..=80).contains(&length) && lines == 1, "{text:?}");
    println!("        {:?}: {line}", output.status.code());
    Ok((output.status.code(), line))
}

test!(
    &[
        Need::Root,
        Need::Fuse,
        Need::Cgroup,
        IP,
        Need::Tracer,
        Need::Cni,
    ],
    node_problem_detector_gets_one_line_and_its_exit_codes
);
fn node_problem_detector_gets_one_line_and_its_exit_codes() -> anyhow::Result<()> {
    let mut incident = Incident::new()?;
    let pods = incident.pods_file().display().to_string();
    let look = || plugin(&["--pods", &pods, "--cri", "none"]);
    let old = incident.start_old_pod()?;
    let (code, line) = look()?;
    ensure!(code == Some(0), "a node that is well: {code:?}: {line}");

    incident.force_delete()?;
    incident.garbage_collect()?;
    incident.start_new_pod()?;
    let (code, line) = look()?;
    let names = line.contains(&old.address.to_string());
    ensure!(code == Some(1) && names, "a conflict: {code:?}: {line}");

    incident.release()?;
    let (code, line) = look()?;
    ensure!(code == Some(0), "after its end: {code:?}: {line}");

    // Without a list of pods nobody can tell, and with one that is not there.
    for pods in ["none", "/no/such/list"] {
        let (code, line) = plugin(&["--pods", pods, "--cri", "none"])?;
        let why = line.contains("no pod list") || line.contains(pods);
        ensure!(code == Some(2) && why, "--pods {pods}: {code:?}: {line}");
    }
    incident.clean()
}

test!(
    apart & [],
    node_problem_detectors_configuration_is_one_that_it_takes
);
/// By what it checks when it reads one.
fn node_problem_detectors_configuration_is_one_that_it_takes() -> anyhow::Result<()> {
    let config = std::fs::read(packaging("node-tracer.json"))?;
    let config: Value = serde_json::from_slice(&config)?;
    let (all, rule) = (&config["pluginConfig"], &config["rules"][0]);
    ensure!(config["plugin"] == "custom" && rule["type"] == "permanent");
    ensure!(all["max_output_length"] == 80 && all["timeout"] == rule["timeout"]);
    ensure!(config["conditions"][0]["type"] == rule["condition"]);
    ensure!(config["conditions"][0]["reason"] != rule["reason"]);
    Ok(())
}
