//! The story of a StatefulSet's pod whose old sandbox is deleted late: CNI DEL
//! of the old container, for a pod name that a newer sandbox has by now.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::containerd::{Containerd, Sandbox, Setup};
use node_tracer_tests::paste::Shell;
use node_tracer_tests::pods::{Pod, PodsFile};
use node_tracer_tests::process;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::scripted::calico::{Calico, Keyed};
use node_tracer_tests::snapshot_run::NODE;
use node_tracer_tests::test;
use node_tracer_tests::tracer::{Ended, SOON, Tracer, is_event, is_finding};
use node_tracer_tests::wait;
use serde_json::Value;

/// For a call of the runtime.
const LIMIT: Duration = Duration::from_secs(20);
/// For what is said after a minute.
const LATE: Duration = Duration::from_secs(100);
/// For what could be said wrongly to be said.
const LATER: Duration = Duration::from_secs(4);
/// As long as a newer sandbox is looked at after a DEL.
const WATCHED: Duration = Duration::from_secs(12);

/// A node with Calico's ways, and the StatefulSet's one pod.
struct Stage {
    node: Containerd,
    calico: Calico,
    pods: PodsFile,
    _scratch: Scratch,
}

impl Stage {
    fn new(keyed: Keyed) -> anyhow::Result<Self> {
        let scratch = Scratch::create()?;
        let octet = (std::process::id() % 255) as u8;
        let calico = Calico::create(keyed, [198, 19, octet])?;
        let node = Containerd::start_as(Setup {
            volumes: &[calico.folder().volume()],
            plugins: Some(calico.folder().plugins()),
            network: Some(&Calico::network()),
            ..Setup::default()
        })?;
        Ok(Self {
            node,
            calico,
            pods: PodsFile::create(scratch.path())?,
            _scratch: scratch,
        })
    }

    fn trace(&self) -> anyhow::Result<Tracer> {
        let pods = self.pods.path().display().to_string();
        self.node.trace(&["--pods", &pods])
    }

    /// The pod of this name comes: another object each time.
    fn start(&mut self, name: &str) -> anyhow::Result<(Pod, Sandbox)> {
        let pod = Pod::new("shop", name)?;
        self.pods.put(&pod, None)?;
        let node = &self.node;
        let sandbox = node.run_pod(&pod.name, &pod.namespace, &pod.uid, 0, false)?;
        self.pods.put(&pod, sandbox.ip)?;
        Ok((pod, sandbox))
    }

    /// StopPodSandbox, which is CNI DEL.
    fn stop(&self, sandbox: &Sandbox) -> anyhow::Result<()> {
        wait::until("the sandbox to stop", LIMIT, || {
            Ok(self.node.stop(sandbox, LIMIT)?.then_some(()))
        })
    }

    /// The first sandbox cannot be taken down, its object goes all the same,
    /// and the StatefulSet's controller makes the pod again.
    fn old_and_new(&mut self) -> anyhow::Result<(Sandbox, Sandbox)> {
        let (pod, old) = self.start("etcd1-0")?;
        self.calico.set_datastore(false)?;
        let stopped = self.node.stop(&old, LIMIT);
        ensure!(stopped.is_err(), "DEL fails: {stopped:?}");
        self.calico.set_datastore(true)?;
        self.pods.remove(&pod)?;
        let (_, new) = self.start("etcd1-0")?;
        ensure!(old.ip != new.ip && old.id != new.id, "two sandboxes");
        Ok((old, new))
    }

    fn devices(sandbox: &Sandbox) -> anyhow::Result<String> {
        let path = format!("/proc/{}/net/dev", sandbox.pid);
        std::fs::read_to_string(&path).context(path)
    }

    fn ip(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut command: Command = self.node.command("ip")?;
        Ok(String::from_utf8(command.args(args).output()?.stdout)?)
    }

    /// Whether a sandbox's network is whole: its device, and the host's route.
    fn is_whole(&self, sandbox: &Sandbox) -> anyhow::Result<bool> {
        let ip = sandbox.ip.context("no address")?.to_string();
        let route = self.ip(&["-o", "route", "show", &ip])?;
        Ok(Self::devices(sandbox)?.contains("eth0") && route.contains(&ip))
    }
}

fn is_stale(record: &Value) -> bool {
    is_finding(record, "stale-del")
}

/// The finding on a late DEL of `old`.
fn verdict(tracer: &mut Tracer, old: &Sandbox, effect: &str) -> anyhow::Result<Value> {
    let is = |record: &Value| is_stale(record) && record["old_container_id"] == old.id.as_str();
    let found = tracer.wait_for(&format!("stale-del, {effect}"), SOON, |record| {
        is(record) && record["state"] != "resolved" && record["effect"] == effect
    });
    found.map_err(|error| match tracer.records().into_iter().rfind(is) {
        Some(last) => error.context(format!("the last that was said: {last}")),
        None => error,
    })
}

fn says_nothing_stale(ended: &Ended) -> anyhow::Result<()> {
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    let wrong = ended.records.iter().find(|record| is_stale(record));
    ensure!(wrong.is_none(), "a false alarm: {}", wrong.context("none")?);
    Ok(())
}

/// No DEL that came later made it worse than it was called.
fn never_says(ended: &Ended, effect: &str) -> anyhow::Result<()> {
    let is = |record: &&Value| is_stale(record) && record["effect"] == effect;
    let wrong = ended.records.iter().find(is);
    ensure!(wrong.is_none(), "{effect}: {}", wrong.context("none")?);
    Ok(())
}

fn names_both(finding: &Value, old: &Sandbox, new: &Sandbox) -> anyhow::Result<()> {
    ensure!(
        finding["new_container_id"] == new.id.as_str(),
        "the newer sandbox {}: {finding}",
        new.id
    );
    ensure!(
        finding["pod"]["namespace"] == "shop" && finding["pod"]["name"] == "etcd1-0",
        "the pod: {finding}"
    );
    ensure!(
        finding["evidence"]
            .as_array()
            .is_some_and(|claims| !claims.is_empty()),
        "why: {finding}"
    );
    ensure!(finding["old_container_id"] == old.id.as_str(), "{finding}");
    Ok(())
}

test!(NODE, stage_calico_by_name_is_real);
fn stage_calico_by_name_is_real() -> anyhow::Result<()> {
    let mut stage = Stage::new(Keyed::ByName)?;
    let (pod, first) = stage.start("etcd1-0")?;
    let endpoint = stage.calico.endpoint(&pod)?.context("no endpoint")?;
    ensure!(
        endpoint.container_id == first.id && Some(endpoint.address) == first.ip,
        "{endpoint:?} is the sandbox's, {first:?}"
    );
    // printf '%s' shop.etcd1-0 | sha1sum
    ensure!(endpoint.device == "cali600d2b3a040", "{endpoint:?}");
    ensure!(stage.is_whole(&first)?, "its network is there");
    let link = stage.ip(&["-o", "link", "show", &endpoint.device])?;
    ensure!(link.contains("ee:ee:ee:ee:ee:ee"), "{link}");
    let arp = std::fs::read_to_string(format!("/proc/{}/net/arp", first.pid))?;
    // Flags: complete and permanent.
    ensure!(
        arp.lines()
            .any(|line| line.starts_with("169.254.1.1") && line.contains("0x6")),
        "{arp}"
    );
    stage.stop(&first)?;
    stage.node.remove(&first)?;
    ensure!(stage.calico.endpoint(&pod)?.is_none(), "DEL removes it");
    ensure!(
        stage
            .ip(&["-o", "link", "show", &endpoint.device])?
            .is_empty(),
        "and the cable"
    );

    let (old, new) = stage.old_and_new()?;
    ensure!(stage.is_whole(&new)?, "the new pod's network is there");
    stage.stop(&old)?;
    ensure!(!stage.is_whole(&new)?, "and gone with the old one's DEL");
    Ok(())
}

test!(NODE, stale_del_that_takes_the_new_pod_down_is_harmful);
fn stale_del_that_takes_the_new_pod_down_is_harmful() -> anyhow::Result<()> {
    let mut stage = Stage::new(Keyed::ByName)?;
    let mut tracer = stage.trace()?;
    let (old, new) = stage.old_and_new()?;
    wait::pause(LATER)?;
    let early = tracer.records().into_iter().find(is_stale);
    ensure!(
        early.is_none(),
        "before it came: {}",
        early.context("none")?
    );
    stage.stop(&old)?;
    ensure!(!stage.is_whole(&new)?, "the stage harms the new pod");
    let finding = verdict(&mut tracer, &old, "harmful")?;
    names_both(&finding, &old, &new)?;
    ensure!(finding["severity"] == "critical", "{finding}");
    let address = IpAddr::V4(new.ip.context("no address")?).to_string();
    ensure!(
        finding["addresses"]
            .as_array()
            .is_some_and(|all| all.iter().any(|each| *each == address.as_str())),
        "whose address {address} is lost: {finding}"
    );
    ensure!(
        !finding["advice"].as_array().is_none_or(Vec::is_empty),
        "what to do: {finding}"
    );
    let ended = tracer.stop()?;
    never_says(&ended, "harmless")
}

/// What this node has none of.
const LACKING: [&str; 2] = ["calicoctl", "kubectl"];

test!(
    NODE,
    stale_del_its_retries_and_a_missing_del_end_as_their_advice_says
);
fn stale_del_its_retries_and_a_missing_del_end_as_their_advice_says() -> anyhow::Result<()> {
    let mut stage = Stage::new(Keyed::ByName)?;
    let shell = Shell::on(&stage.node)?;
    let mut tracer = stage.trace()?;
    // One loses its namespace, and nobody calls DEL: that counts after a minute.
    let (pod, lost) = stage.start("lost-0")?;
    stage.pods.remove(&pod)?;
    let path = lost.netns_path.as_deref().context("no path")?.display();
    process::signal(lost.pid, libc::SIGKILL)?;
    let unmounted = shell.run(&format!("umount {path} && rm {path}"))?;
    ensure!(unmounted.done, "{unmounted:#?}");

    let (old, new) = stage.old_and_new()?;
    stage.calico.set_datastore(false)?;
    for _ in 0..2 {
        ensure!(stage.node.stop(&old, LIMIT).is_err(), "DEL fails again");
    }
    stage.calico.set_datastore(true)?;
    let is_retry = |record: &Value| is_finding(record, "del-retry");
    let retried = tracer.wait_for("del-retry", SOON, is_retry)?;
    let pasted = shell.paste(&retried, &LACKING)?;
    let mut answers = pasted.iter();
    let is_listed =
        answers.any(|it| it.line.starts_with("crictl pods") && it.stdout.contains(&old.id));
    ensure!(is_listed, "{pasted:#?}");

    stage.stop(&old)?;
    let stale = verdict(&mut tracer, &old, "harmful")?;
    shell.paste(&stale, &LACKING)?;
    let listed = |sandbox: &Sandbox| -> anyhow::Result<bool> {
        let all = stage.node.cri().sandboxes()?;
        Ok(all.iter().any(|one| one.id == sandbox.id))
    };
    ensure!(!listed(&old)? && listed(&new)?, "the old one goes, alone");

    let is_lost =
        |record: &Value| is_finding(record, "missing-del") && record.to_string().contains(&lost.id);
    let missing = tracer.wait_for("missing-del", LATE, is_lost)?;
    shell.paste(&missing, &LACKING)?;
    ensure!(!listed(&lost)? && listed(&new)?, "the lost one goes, alone");
    tracer.wait_for("missing-del: resolved", SOON, |record| {
        is_lost(record) && record["state"] == "resolved"
    })?;
    tracer.stop().map(drop)
}

test!(NODE, stale_del_that_the_plugin_guards_against_is_harmless);
fn stale_del_that_the_plugin_guards_against_is_harmless() -> anyhow::Result<()> {
    let mut stage = Stage::new(Keyed::Guarded)?;
    let mut tracer = stage.trace()?;
    let (old, new) = stage.old_and_new()?;
    stage.stop(&old)?;
    ensure!(stage.is_whole(&new)?, "the stage leaves the new pod alone");
    let finding = verdict(&mut tracer, &old, "harmless")?;
    names_both(&finding, &old, &new)?;
    ensure!(finding["severity"] == "info", "{finding}");
    // And the second one, with no CNI_NETNS.
    stage.node.remove(&old)?;
    wait::pause(LATER)?;
    let ended = tracer.stop()?;
    never_says(&ended, "harmful")
}

test!(
    NODE,
    stale_del_of_an_ordinary_second_del_is_harmful_only_if_it_harms
);
/// RemovePodSandbox calls DEL again, with no CNI_NETNS, however long after
/// StopPodSandbox: that is how it is, and only what it does can be wrong.
fn stale_del_of_an_ordinary_second_del_is_harmful_only_if_it_harms() -> anyhow::Result<()> {
    for (keyed, harms) in [(Keyed::Guarded, false), (Keyed::ByName, true)] {
        let mut stage = Stage::new(keyed)?;
        let mut tracer = stage.trace()?;
        let (pod, old) = stage.start("etcd1-0")?;
        stage.stop(&old)?;
        stage.pods.remove(&pod)?;
        let (_, new) = stage.start("etcd1-0")?;
        stage.node.remove(&old)?;
        tracer.wait_for("the second DEL", SOON, |record| {
            is_event(record, "cni-call")
                && record["command"] == "DEL"
                && record["container_id"] == old.id.as_str()
                && record["netns_path"] == ""
                && record["plugin"] == "calico"
        })?;
        ensure!(stage.is_whole(&new)? != harms, "{keyed:?}: the stage");
        if harms {
            let finding = verdict(&mut tracer, &old, "harmful")?;
            names_both(&finding, &old, &new)?;
        } else {
            wait::pause(LATER)?;
            says_nothing_stale(&tracer.stop()?)?;
        }
    }
    Ok(())
}

test!(NODE, stale_del_is_not_said_of_what_a_pod_takes_away_itself);
/// Right after the ordinary second DEL somebody in the new pod flushes its
/// device.
fn stale_del_is_not_said_of_what_a_pod_takes_away_itself() -> anyhow::Result<()> {
    let mut stage = Stage::new(Keyed::Guarded)?;
    let mut tracer = stage.trace()?;
    let (pod, old) = stage.start("etcd1-0")?;
    stage.stop(&old)?;
    stage.pods.remove(&pod)?;
    let (_, new) = stage.start("etcd1-0")?;
    stage.node.remove(&old)?;
    let flush = ["ip", "address", "flush", "dev", "eth0"];
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{}/ns/net", new.pid));
    ensure!(command.args(flush).status()?.success(), "the flush");
    let address = new.ip.context("no address")?.to_string();
    tracer.wait_for("the address to go", SOON, |record| {
        is_event(record, "address-removed") && record["address"] == address.as_str()
    })?;
    // All the looks at what a DEL can have done.
    wait::pause(WATCHED)?;
    never_says(&tracer.stop()?, "harmful")
}

test!(NODE, stale_del_is_not_said_of_ordinary_removals);
/// Removals and restarts as they are every day.
fn stale_del_is_not_said_of_ordinary_removals() -> anyhow::Result<()> {
    for keyed in [Keyed::ByName, Keyed::Guarded] {
        let mut stage = Stage::new(keyed)?;
        let tracer = stage.trace()?;
        let (pod, old) = stage.start("etcd1-0")?;
        let (_, other) = stage.start("etcd1-1")?;
        stage.stop(&old)?;
        stage.node.remove(&old)?;
        stage.pods.remove(&pod)?;
        let (_, new) = stage.start("etcd1-0")?;
        ensure!(
            stage.is_whole(&new)? && stage.is_whole(&other)?,
            "the stage"
        );
        wait::pause(LATER)?;
        says_nothing_stale(&tracer.stop()?)?;
    }
    Ok(())
}
