//! What the shipped DaemonSet says of its container.

use anyhow::Context as _;

/// What an administrator applies.
pub const MANIFEST: &str = include_str!("../../node-tracer/packaging/kubernetes/node-tracer.yaml");

/// Capabilities that it adds.
pub fn capabilities() -> Vec<&'static str> {
    let lines = MANIFEST.lines().map(str::trim);
    let mut lines = lines.skip_while(|line| *line != "add:").skip(1);
    std::iter::from_fn(|| lines.next()?.strip_prefix("- ")).collect()
}

/// The tracer's arguments there, but for the sign of life, which takes a volume.
pub fn arguments() -> anyhow::Result<String> {
    let mut lines = MANIFEST.lines();
    let line = lines.find_map(|line| line.trim().strip_prefix("args: ["));
    let line = line.and_then(|line| line.strip_suffix(']'));
    let arguments = line.context("the manifest has no args")?.replace(',', "");
    let arguments = arguments.split(" --heartbeat ").next();
    Ok(arguments.unwrap_or_default().replace('"', ""))
}
