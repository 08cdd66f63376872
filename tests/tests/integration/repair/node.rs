//! A node with a real containerd, whose runtime has lost its sandboxes.

use node_tracer_tests::snapshot_run::{INCIDENT, NEWER, NEWER_INCIDENT, NODE};
use node_tracer_tests::test;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::containerd::incident::RealIncident;
use node_tracer_tests::containerd::{Containerd, Generation, Setup, Subnet};
use node_tracer_tests::pods::Pod;
use node_tracer_tests::scratch::{Scratch, container_id};
use node_tracer_tests::snapshot_run::{on_node, whole_list};
use serde_json::Value;

use super::{addresses, planned, with};

const GRACE: &str = "2s";

test!(NODE, repair_on_a_node_with_containerd);
fn repair_on_a_node_with_containerd() -> anyhow::Result<()> {
    repair_on_a_node(Generation::Machine)
}

test!(NEWER, repair_on_a_node_with_containerd_2);
fn repair_on_a_node_with_containerd_2() -> anyhow::Result<()> {
    repair_on_a_node(Generation::Newer)
}

fn repair_on_a_node(generation: Generation) -> anyhow::Result<()> {
    let node = Containerd::start_as(Setup {
        generation,
        subnet: Subnet::Small,
        ..Setup::default()
    })?;
    let scratch = Scratch::create()?;
    let run = |name: &str| {
        let pod = Pod::new("shop", name)?;
        node.run_pod(&pod.name, &pod.namespace, &pod.uid, 0, false)
    };
    let first = run("web-0")?;
    let ip = first.ip.context("no address")?;
    let [a, b, c, _] = ip.octets();
    let all: Vec<String> = (1..=6).map(|last| format!("{a}.{b}.{c}.{last}")).collect();
    // All that is left of a range of five: nothing can be started.
    let mut leaked: Vec<std::net::IpAddr> = Vec::new();
    for address in &all {
        let file = node.store().join(address);
        if !file.exists() && !address.ends_with(".1") {
            fs::write(&file, format!("{}\r\neth0", container_id()?))?;
            leaked.push(address.parse()?);
        }
    }
    leaked.sort_unstable();
    ensure!(leaked.len() == 4, "{leaked:?}");
    ensure!(run("web-1").is_err(), "the range is full");
    node_tracer_tests::wait::pause(Duration::from_millis(2_100))?;
    let file = scratch.path().join("plan.json").display().to_string();
    let args = ["--pods", "none", "--hurried"];
    let plan = [&args[..], &["--grace", GRACE, "--plan", &file]].concat();
    let plan = on_node(&node, "repair", &plan)?;
    plan.expect_code(1)?;
    let plan: &Value = &plan.ended.records[0];
    ensure!(planned(plan) == leaked, "{plan:#}");
    ensure!(
        addresses(plan["withheld"].as_array().into_iter().flatten()) == [ip],
        "{plan:#}"
    );
    let apply = [&args[..], &["--apply", &file]].concat();
    let applied = on_node(&node, "repair", &apply)?;
    applied.expect_code(0)?;
    ensure!(with(&applied, "released") == leaked, "{}", applied.brief());
    let second = run("web-1")?;
    ensure!(second.ip.is_some_and(|second| second != ip), "{second:?}");
    ensure!(node.store().join(ip.to_string()).exists());
    // With nothing left to do, it says so.
    let nothing = [&args[..], &["--grace", GRACE]].concat();
    let nothing = on_node(&node, "repair", &nothing)?;
    nothing.expect_code(0)?;
    ensure!(planned(&nothing.ended.records[0]).is_empty());
    Ok(())
}

test!(INCIDENT, repair_leaves_a_ghost_to_a_person);
fn repair_leaves_a_ghost_to_a_person() -> anyhow::Result<()> {
    leaves_a_ghost(RealIncident::new()?)
}

test!(NEWER_INCIDENT, repair_leaves_a_ghost_of_containerd_2);
fn repair_leaves_a_ghost_of_containerd_2() -> anyhow::Result<()> {
    leaves_a_ghost(RealIncident::of(Generation::Newer)?)
}

fn leaves_a_ghost(mut incident: RealIncident) -> anyhow::Result<()> {
    let (old, stuck, new) = incident.stage()?;
    let scratch = Scratch::create()?;
    let pods = whole_list(incident.pods_file(), scratch.path())?;
    node_tracer_tests::wait::pause(Duration::from_millis(2_100))?;
    let args = [
        "--hurried",
        "--grace",
        GRACE,
        "--stall-threshold",
        "1s",
        "--pods",
        &pods,
    ];
    let look = on_node(incident.node(), "repair", &args)?;
    look.expect_code(1)?;
    let plan = &look.ended.records[0];
    // The address is given out a second time already; nothing here makes that
    // worse.
    ensure!(planned(plan).is_empty(), "{plan:#}");
    let by_hand = plan["by_hand"].as_array().context("by_hand")?;
    let of = |kind: &str| by_hand.iter().find(|each| each["kind"] == kind);
    let ghost = of("ghost").with_context(|| format!("no ghost: {plan:#}"))?;
    ensure!(ghost["holders"][0]["pid"] == stuck.pid, "{ghost:#}");
    ensure!(
        ghost["steps"]
            .as_array()
            .is_some_and(|steps| !steps.is_empty()),
        "{ghost:#}"
    );
    ensure!(of("duplicate address").is_some(), "{plan:#}");
    drop((old, new, scratch));
    incident.release()?;
    incident.clean()
}
