//! The stage is real: without this, a passing test of the tracer means little.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use node_tracer_tests::incident::{Incident, READER};
use node_tracer_tests::netns::{Netns, inode_of_process};
use node_tracer_tests::process::state;
use node_tracer_tests::stage::{self, IP, Need};
use node_tracer_tests::test;

/// All of [`stage::INCIDENT`], and what looks at it from outside.
const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Cgroup,
    IP,
    Need::Program("nsenter", "util-linux"),
];

/// Whether `ip` inside the namespace shows this address on eth0.
fn has_address(netns: &str, address: &str) -> anyhow::Result<bool> {
    let file = format!("--net={netns}");
    let output = std::process::Command::new("nsenter")
        .args([&file, "ip", "-o", "-4", "addr", "show", "dev", "eth0"])
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).contains(&format!(" {address}/")))
}

fn tell(mut incident: Incident) -> anyhow::Result<()> {
    let old = incident.start_old_pod()?;
    ensure!(
        inode_of_process(old.pause_pid)? == old.netns_inode,
        "pause is in the netns"
    );
    ensure!(
        fs::read_to_string(incident.pods_file())?.contains(&old.pod.uid),
        "the API knows the pod"
    );

    let stuck = incident.force_delete()?;
    ensure!(state(stuck.pid) == Some('D'), "the reader is in D");
    ensure!(
        stuck.wchan == "request_wait_answer",
        "it waits for FUSE, not in {}",
        stuck.wchan
    );
    ensure!(
        stuck
            .stack
            .iter()
            .any(|function| function == "request_wait_answer"),
        "its stack: {:?}",
        stuck.stack
    );
    ensure!(
        fs::read_to_string(format!("/proc/{}/comm", stuck.pid))?.trim() == READER,
        "its name"
    );
    ensure!(
        inode_of_process(stuck.pid)? == old.netns_inode,
        "it holds the netns"
    );
    let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", stuck.pid))?;
    let expected = format!(
        "/kubepods/besteffort/pod{}/{}",
        old.pod.uid, stuck.container_id
    );
    let unified = cgroups
        .lines()
        .any(|line| line.starts_with("0::") && line.ends_with(&expected));
    ensure!(
        unified || !cgroups.contains("0::"),
        "its cgroup of version 2:\n{cgroups}"
    );
    ensure!(cgroups.contains(&expected), "its cgroups:\n{cgroups}");
    ensure!(state(old.pause_pid).is_none(), "pause is gone");
    ensure!(
        !fs::read_to_string(incident.pods_file())?.contains(&old.pod.uid),
        "the API has forgotten the pod"
    );

    let removed = incident.garbage_collect()?;
    ensure!(
        removed.is_some() == incident.network().is_cni(),
        "the reservation was there"
    );
    let new = incident.start_new_pod()?;
    ensure!(
        new.address == old.address,
        "{} and {}",
        new.address,
        old.address
    );
    ensure!(new.netns_inode != old.netns_inode, "two namespaces");
    for sandbox in [&old, &new] {
        let path = sandbox.netns_path.display().to_string();
        ensure!(
            has_address(&path, &sandbox.address.to_string())?,
            "{path} has the address"
        );
    }

    incident.release()?;
    ensure!(
        state(stuck.pid).is_none(),
        "the reader is gone after the release"
    );
    ensure!(!old.netns_path.exists(), "and the old namespace's name");
    ensure!(
        new.netns_path.exists() && state(new.pause_pid).is_some(),
        "the new pod stays"
    );
    incident.clean()
}

test!(NEEDS, stage_incident_is_real);
fn stage_incident_is_real() -> anyhow::Result<()> {
    tell(Incident::new()?)
}

test!(NEEDS, stage_without_cni_is_real);
fn stage_without_cni_is_real() -> anyhow::Result<()> {
    tell(Incident::without_cni()?)
}

test!(NEEDS, stage_cleans_up_at_every_step);
fn stage_cleans_up_at_every_step() -> anyhow::Result<()> {
    type Step = fn(&mut Incident) -> anyhow::Result<()>;
    let steps: [Step; 5] = [
        |incident| incident.start_old_pod().map(drop),
        |incident| incident.force_delete().map(drop),
        |incident| incident.garbage_collect().map(drop),
        |incident| incident.start_new_pod().map(drop),
        Incident::drop_old_name,
    ];
    for count in 0..=steps.len() {
        let mut incident = Incident::new()?;
        for step in &steps[..count] {
            step(&mut incident)?;
        }
        let node = incident.node().path().to_owned();
        drop(incident);
        let left = stage::leftovers();
        ensure!(left.is_empty(), "after {count} steps: {}", left.join(", "));
        ensure!(!node.exists(), "the node's namespace");
    }
    // A panic unwinds the same way.
    let panicked = std::panic::catch_unwind(|| {
        let netns = Netns::create();
        std::panic::resume_unwind(Box::new(netns.map(|netns| netns.path().to_owned())));
    });
    ensure!(panicked.is_err(), "it did panic");
    ensure!(stage::leftovers().is_empty(), "after a panic");
    Ok(())
}

test!(
    apart & [],
    every_file_of_the_integration_tests_is_a_part_of_them
);
fn every_file_of_the_integration_tests_is_a_part_of_them() -> anyhow::Result<()> {
    let main = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/main.rs");
    expect_parts(&main, main.parent().context("no folder")?)
}

/// Each file of a folder is a module of this one.
fn expect_parts(of: &Path, folder: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(of)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if path.is_dir() && path.with_extension("rs").exists() {
            expect_parts(&path.with_extension("rs"), &path)?;
        } else if path != of && path.extension().is_some_and(|kind| kind == "rs") {
            let is_part = text
                .lines()
                .any(|line| line.ends_with(&format!("mod {name};")));
            ensure!(
                is_part,
                "{} is no module of {}",
                path.display(),
                of.display()
            );
        }
    }
    Ok(())
}
