//! In a container with a cgroup namespace of its own, beside the pods: the
//! names of what is above them are not shown there.

use node_tracer_tests::stage::IP;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use node_tracer_tests::cgroup::Cgroup;
use node_tracer_tests::incident::Incident;
use node_tracer_tests::scratch::{Scratch, container_id, pod_uid};
use node_tracer_tests::snapshot_run::{self, SnapshotRun, whole_list};
use node_tracer_tests::tracer::{SOON, Tracer, binary, is_finding, netns_of};
use serde_json::Value;

/// `$PROCS` are the files of the tracer's own cgroup, in each hierarchy.
const CONTAINED: &str =
    r#"for procs in $PROCS; do echo $$ >"$procs"; done; exec unshare --cgroup --mount "$@""#;

/// Whether the node's cgroups are below the tracer's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mounted {
    Yes,
    No,
}

/// The tracer's command line in a container of another pod.
fn contained(cgroup: &Cgroup, mounted: Mounted, args: &[&str]) -> anyhow::Result<Command> {
    let procs: Vec<String> = cgroup
        .procs()
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let hide = match mounted {
        Mounted::Yes => r#"exec "$@""#,
        Mounted::No => r#"mount -t tmpfs none /sys/fs/cgroup; exec "$@""#,
    };
    let mut line = Command::new("sh");
    line.env("PROCS", procs.join(" "))
        .args(["-ec", CONTAINED, "sh", "sh", "-ec", hide, "sh"])
        .arg(binary()?)
        .args(args)
        .stdin(Stdio::null());
    Ok(line)
}

/// The tracer's own container.
fn own_cgroup() -> anyhow::Result<Cgroup> {
    Cgroup::create(&pod_uid()?, &container_id()?)
}

fn ghosts(look: &SnapshotRun, inode: u64) -> Vec<&Value> {
    let all = look.findings("ghost-sandbox").into_iter();
    all.filter(|ghost| netns_of(ghost) == Some(inode)).collect()
}

/// What the coverage says of pods by cgroup.
fn coverage(look: &SnapshotRun) -> anyhow::Result<&Value> {
    let signals = look.coverage()?["signals"].as_array();
    let mut signals = signals.context("no signals")?.iter();
    let item = signals.find(|item| item["signal"] == "pods by cgroup");
    item.with_context(|| look.brief())
}

const OPTIONS: [&str; 6] = ["-o", "json", "--cri", "none", "--stall-threshold", "1s"];

test!(
    &[Need::Root, Need::Tracer, Need::Fuse, Need::Cgroup, IP],
    trace_tells_pods_beside_its_own_from_a_cgroup_namespace
);
fn trace_tells_pods_beside_its_own_from_a_cgroup_namespace() -> anyhow::Result<()> {
    let cgroup = own_cgroup()?;
    let mut incident = Incident::without_cni()?;
    let pods = incident.pods_file().display().to_string();
    let trace = [&["trace", "--pods", &pods], &OPTIONS[..]].concat();
    let mut tracer = Tracer::start(&mut contained(&cgroup, Mounted::Yes, &trace)?, |_| ())?;
    tracer.wait_until_ready()?;
    let old = incident.start_old_pod()?;
    incident.force_delete()?;
    let ghost = tracer.wait_for("the ghost", SOON, |record| {
        is_finding(record, "ghost-sandbox") && netns_of(record) == Some(old.netns_inode)
    })?;
    ensure!(ghost["pod"]["uid"] == old.pod.uid.as_str(), "{ghost}");
    tracer.stop()?;
    drop(cgroup);
    incident.clean()
}

test!(
    &[Need::Root, Need::Tracer, Need::Fuse, Need::Cgroup, IP],
    scan_tells_pods_beside_its_own_from_a_cgroup_namespace
);
fn scan_tells_pods_beside_its_own_from_a_cgroup_namespace() -> anyhow::Result<()> {
    let (scratch, cgroup) = (Scratch::create()?, own_cgroup()?);
    let mut incident = Incident::without_cni()?;
    let old = incident.start_old_pod()?;
    let inode = old.netns_inode;
    incident.force_delete()?;
    incident.garbage_collect()?;
    incident.start_new_pod()?;
    let pods = whole_list(incident.pods_file(), scratch.path())?;
    let scan = [&["scan", "--pods", &pods], &OPTIONS[..]].concat();
    let known = snapshot_run::run(&mut contained(&cgroup, Mounted::Yes, &scan)?)?;
    let [ghost] = ghosts(&known, inode)[..] else {
        anyhow::bail!("not one ghost: {}", known.brief());
    };
    ensure!(ghost["pod"]["uid"] == old.pod.uid.as_str(), "{ghost}");
    let item = coverage(&known)?;
    let mechanism = item["mechanism"].as_str().unwrap_or_default();
    ensure!(mechanism.ends_with(cgroup.path()), "{item}");

    let unknown = snapshot_run::run(&mut contained(&cgroup, Mounted::No, &scan)?)?;
    ensure!(ghosts(&unknown, inode).is_empty(), "{}", unknown.brief());
    let item = coverage(&unknown)?;
    let reason = item["reason"].as_str().unwrap_or_default();
    ensure!(
        item["mechanism"].is_null() && reason.contains("cgroup namespace of its own"),
        "{item}"
    );
    let said = unknown.summary()?["unknown"].to_string();
    ensure!(
        said.contains("ghost-sandbox") && said.contains(reason),
        "{said}"
    );
    drop((scratch, cgroup));
    incident.clean()
}

test!(
    &[Need::Root, Need::Tracer, Need::Fuse, Need::Cgroup, IP],
    scan_judges_no_pod_of_a_node_in_a_container
);
/// A process of a pod is looked at in the cgroup of a node that is a container.
fn scan_judges_no_pod_of_a_node_in_a_container() -> anyhow::Result<()> {
    let kubelet = format!("/docker/{}/kubelet", container_id()?);
    let cgroup = Cgroup::create_below(&kubelet, &pod_uid()?, &container_id()?)?;
    let scratch = Scratch::create()?;
    let mut incident = Incident::without_cni()?;
    let old = incident.start_old_pod()?;
    let stuck = incident.force_delete()?;
    incident.garbage_collect()?;
    incident.start_new_pod()?;
    let pods = whole_list(incident.pods_file(), scratch.path())?;
    let args = [&["--pods", &pods], &OPTIONS[2..]].concat();
    let own = snapshot_run::on_host("scan", &args)?;
    ensure!(ghosts(&own, old.netns_inode).len() == 1, "{}", own.brief());

    cgroup.enter(stuck.pid)?;
    let nested = snapshot_run::on_host("scan", &args)?;
    let about: Vec<&Value> = nested
        .findings_on(&[old.netns_inode])
        .into_iter()
        .filter(|finding| netns_of(finding).is_some() && finding["rule"] != "blocked-task")
        .collect();
    ensure!(about.is_empty(), "{about:?}");
    incident.release()?;
    drop((scratch, cgroup));
    incident.clean()
}
