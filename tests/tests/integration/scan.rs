//! `scan`: what it finds in one look, what it leaves alone, and what it says of
//! what it could not see.

mod contained;
mod holders;
mod incident;
mod options;
mod quiet;
mod stores;

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use node_tracer_tests::pods::Pod;
use node_tracer_tests::stage::Need;
use serde_json::Value;

const TRACER: &[Need] = &[Need::Root, Need::Tracer];

/// Changes one pod's object in a list of pods, until the list is next written.
fn patch(list: &Path, pod: &Pod, change: impl FnOnce(&mut Value)) -> anyhow::Result<()> {
    let mut all: Value = serde_json::from_slice(&fs::read(list)?)?;
    let items = all["items"].as_array_mut().context("items")?;
    let mut items = items.iter_mut();
    let item = items.find(|item| item["metadata"]["uid"] == pod.uid.as_str());
    change(item.context("the pod is not listed")?);
    Ok(fs::write(list, all.to_string())?)
}
