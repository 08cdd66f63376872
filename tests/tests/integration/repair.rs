//! `repair`: what it plans, what it refuses, what it does and undoes, with the
//! real host-local.

mod changes;
mod node;
mod refusals;
mod storm;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::bare::{Bare, HostLocal};
use node_tracer_tests::cgroup::Cgroup;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::{Scratch, container_id, pod_uid};
use node_tracer_tests::scripted_cri::ScriptedCri;
use node_tracer_tests::snapshot_run::{SnapshotRun, run};
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::tracer::{binary, command};
use serde_json::Value;

const NEEDS: &[Need] = &[Need::Root, Need::Tracer, Need::Cgroup, Need::Cni, IP];

/// The grace of the tests: the rule is the same with any.
const GRACE: Duration = Duration::from_millis(1_500);

const SUBNET: &str = "198.19.64.0/21";

/// A node with a runtime by script.
struct Stage {
    node: Bare,
    cri: ScriptedCri,
    host_local: HostLocal,
    scratch: Scratch,
    plans: usize,
    /// `--pods`
    pods: String,
    /// A container that runs as it should. (Without one, another's on this
    /// machine would make the runtime look forgetful.)
    _anchor: Cgroup,
}

/// A reservation that was made.
#[derive(Clone, Debug)]
struct Reserved {
    id: String,
    address: IpAddr,
}

impl Stage {
    fn new() -> anyhow::Result<Self> {
        let node = Bare::start(SUBNET)?;
        let cri = ScriptedCri::start(&node.host_path("/run/containerd/containerd.sock"))?;
        let anchor = container_id()?;
        cri.add(&anchor, None);
        Ok(Self {
            cri,
            _anchor: Cgroup::create(&pod_uid()?, &anchor)?,
            host_local: node.host_local(SUBNET)?,
            node,
            scratch: Scratch::create()?,
            plans: 0,
            pods: String::from("none"),
        })
    }

    /// A container of which nothing but the reservation is left.
    fn leak(&self) -> anyhow::Result<Reserved> {
        let id = container_id()?;
        let address = self.host_local.add(&id)?;
        let address = *address.first().context("no address")?;
        Ok(Reserved { id, address })
    }

    /// A container that CRI lists.
    fn live(&self) -> anyhow::Result<Reserved> {
        let reserved = self.leak()?;
        self.cri.add(&reserved.id, None);
        Ok(reserved)
    }

    fn file(&self, reserved: &Reserved) -> PathBuf {
        self.node.store().join(reserved.address.to_string())
    }

    /// Whether a reservation is there, with its own content.
    fn has(&self, reserved: &Reserved) -> bool {
        let content = std::fs::read_to_string(self.file(reserved));
        content.is_ok_and(|text| text == format!("{}\r\neth0", reserved.id))
    }

    /// Until what was reserved by now is older than the grace.
    fn grow_old(&self) -> anyhow::Result<()> {
        node_tracer_tests::wait::pause(GRACE + Duration::from_millis(50))
    }

    fn repair(&self, args: &[&str]) -> anyhow::Result<SnapshotRun> {
        let mut line = command(&["repair", "-o", "json", "--pods", &self.pods, "--hurried"])?;
        run(line.arg("--root").arg(self.node.root()).args(args))
    }

    /// The same where no kernel program can be loaded: the kernel's type information
    /// is out of reach.
    fn repair_without_list(&self, args: &[&str]) -> anyhow::Result<SnapshotRun> {
        let hide = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
        let mut line = Command::new("unshare");
        line.args(["--mount", "sh", "-c", hide, "sh"])
            .arg(binary()?);
        line.args(["repair", "-o", "json", "--pods", &self.pods, "--hurried"]);
        run(line.arg("--root").arg(self.node.root()).args(args))
    }

    /// Makes a plan. Returns it, and the file that it is in.
    fn plan(&mut self, args: &[&str]) -> anyhow::Result<(Value, PathBuf)> {
        self.plans += 1;
        let file = self
            .scratch
            .path()
            .join(format!("plan-{}.json", self.plans));
        let grace = format!("{}ms", GRACE.as_millis());
        let written = file.display().to_string();
        let look = self.repair(&[&["--grace", &grace, "--plan", &written], args].concat())?;
        let [plan] = look.ended.records.as_slice() else {
            anyhow::bail!("not one record: {}", look.brief());
        };
        ensure!(
            matches!(look.ended.code, Some(0 | 1)) && plan["type"] == "plan",
            "{}",
            look.brief()
        );
        let text = std::fs::read_to_string(&file)?;
        ensure!(
            serde_json::from_str::<Value>(&text)? == *plan,
            "the file is another plan"
        );
        Ok((plan.clone(), file))
    }

    fn apply(&self, plan: &Path, args: &[&str]) -> anyhow::Result<SnapshotRun> {
        let plan = plan.display().to_string();
        self.repair(&[&["--apply", plan.as_str()], args].concat())
    }

    fn undo(&self, backup: &str) -> anyhow::Result<SnapshotRun> {
        self.repair(&["--undo", backup])
    }
}

/// A namespace that has addresses, as a ghost's has.
fn ghost(all: &[&Reserved]) -> anyhow::Result<Netns> {
    let netns = Netns::create()?;
    netns.ip("link add eth0 type veth peer name other")?;
    for each in all {
        let prefix = if each.address.is_ipv4() { 32 } else { 128 };
        netns.ip(&format!("addr add {}/{prefix} dev eth0", each.address))?;
    }
    Ok(netns)
}

/// Addresses that a plan releases.
fn planned(plan: &Value) -> Vec<IpAddr> {
    addresses(plan["releases"].as_array().into_iter().flatten())
}

/// Addresses of some records, sorted.
fn addresses<'a>(records: impl Iterator<Item = &'a Value>) -> Vec<IpAddr> {
    let address = |record: &Value| record["address"].as_str()?.parse().ok();
    let mut all: Vec<IpAddr> = records.filter_map(address).collect();
    all.sort_unstable();
    all
}

/// Addresses of these, sorted.
fn of(all: &[Reserved]) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = all.iter().map(|reserved| reserved.address).collect();
    all.sort_unstable();
    all
}

/// Addresses with this result.
fn with(look: &SnapshotRun, result: &str) -> Vec<IpAddr> {
    let records = look.ended.records.iter();
    addresses(records.filter(|record| record["type"] == "repair" && record["result"] == result))
}

/// Why a plan leaves an address alone.
fn withheld<'a>(plan: &'a Value, of: &Reserved) -> anyhow::Result<&'a str> {
    let address = of.address.to_string();
    let mut all = plan["withheld"].as_array().into_iter().flatten();
    let one = all.find(|one| one["address"] == address.as_str());
    one.and_then(|one| one["reason"].as_str())
        .with_context(|| format!("{address} is not withheld: {plan:#}"))
}

fn summary(look: &SnapshotRun) -> anyhow::Result<&Value> {
    let last = look.ended.records.last();
    last.filter(|record| record["type"] == "repair-summary")
        .with_context(|| format!("no summary: {}", look.brief()))
}

/// Fails unless it ended with this code and said this on stderr.
fn expect_refusal(look: &SnapshotRun, says: &str) -> anyhow::Result<()> {
    ensure!(look.ended.code == Some(2), "exit code: {}", look.brief());
    let stderr = &look.ended.stderr;
    ensure!(stderr.contains(says), "{says:?} is not in {stderr:?}");
    Ok(())
}

/// Waits until something is so.
fn until(what: &str, mut is: impl FnMut() -> bool) -> anyhow::Result<()> {
    let limit = Duration::from_secs(30);
    let begin = Instant::now();
    node_tracer_tests::wait::until(what, limit, || Ok(is().then_some(())))
        .with_context(|| format!("after {:?}", begin.elapsed()))
}
