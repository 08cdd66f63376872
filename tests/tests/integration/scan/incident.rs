//! The incident by a real runtime, already there when one looks.

use node_tracer_tests::snapshot_run::{INCIDENT, NEWER_INCIDENT};
use node_tracer_tests::test;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::containerd::incident::RealIncident;
use node_tracer_tests::containerd::{Containerd, Generation, Sandbox};
use node_tracer_tests::incident::Stuck;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::snapshot_run::{SnapshotRun, on_node, whole_list};
use node_tracer_tests::tracer::{SOON, Tracer, binary, is_finding, names_address, netns_of};
use serde_json::Value;

/// A runtime that hangs may cost no more than this.
const HANGING: Duration = Duration::from_secs(3);

/// What scan has to find out.
struct Facts {
    old: Sandbox,
    stuck: Stuck,
    new: Sandbox,
    address: String,
}

impl Facts {
    fn stage(incident: &mut RealIncident) -> anyhow::Result<Self> {
        let (old, stuck, new) = incident.stage()?;
        let address = old.ip.context("no address")?.to_string();
        Ok(Self {
            old,
            stuck,
            new,
            address,
        })
    }

    /// Whether a finding is on this incident, not on somebody else's.
    fn concerns(&self, record: &Value) -> bool {
        let inodes = [self.old.netns_inode, self.new.netns_inode];
        netns_of(record).is_some_and(|inode| inodes.contains(&inode))
            || names_address(record, &self.address)
    }

    /// Rule to finding, of this incident.
    fn findings<'a>(&self, look: &'a SnapshotRun) -> anyhow::Result<BTreeMap<&'a str, &'a Value>> {
        let mut found = BTreeMap::new();
        let records = look.ended.records.iter();
        for record in records.filter(|record| record["type"] == "finding" && self.concerns(record))
        {
            let rule = record["rule"].as_str().context("no rule")?;
            let twice = found.insert(rule, record);
            ensure!(twice.is_none(), "two of {rule}: {}", look.brief());
        }
        Ok(found)
    }

    /// The holder that does not die.
    fn check_holder(&self, finding: &Value) -> anyhow::Result<()> {
        let holders = finding["holders"].as_array().context("no holders")?;
        let mut tasks = holders.iter().filter(|holder| holder["kind"] == "task");
        let holder = tasks.find(|holder| holder["pid"] == self.stuck.pid);
        let holder = holder.with_context(|| format!("{} is no holder", self.stuck.pid))?;
        ensure!(
            holder["state"] == "D" && holder["comm"] == "dd",
            "{holder:#}"
        );
        ensure!(
            holder["container_id"] == self.stuck.container_id.as_str(),
            "{holder:#}"
        );
        ensure!(holder["wchan"] == self.stuck.wchan.as_str(), "{holder:#}");
        let stack = holder["stack"].as_array().context("no stack")?;
        let names: Vec<&str> = stack
            .iter()
            .filter_map(|frame| frame.as_str()?.split('+').next())
            .collect();
        ensure!(
            !names.is_empty() && names == self.stuck.stack,
            "{names:?}, not {:?}",
            self.stuck.stack
        );
        Ok(())
    }

    fn check_ghost(&self, ghost: &Value, severity: &str) -> anyhow::Result<()> {
        let metadata = &self.old.config.metadata;
        for (key, expected) in [
            ("namespace", &metadata.namespace),
            ("name", &metadata.name),
            ("uid", &metadata.uid),
        ] {
            let said = &ghost["pod"][key];
            ensure!(said == expected.as_str(), "pod.{key} is {said}");
        }
        ensure!(
            ghost["sandbox_id"] == self.old.id.as_str(),
            "sandbox_id {}",
            ghost["sandbox_id"]
        );
        ensure!(
            netns_of(ghost) == Some(self.old.netns_inode),
            "netns {}",
            ghost["netns"]
        );
        ensure!(
            ghost["addresses"] == serde_json::json!([self.address]),
            "addresses {}",
            ghost["addresses"]
        );
        for (key, expected) in [("phase", "conflict"), ("severity", severity)] {
            ensure!(ghost[key] == expected, "{key} is {}", ghost[key]);
        }
        for key in ["evidence", "advice"] {
            let some = ghost[key].as_array().is_some_and(|all| !all.is_empty());
            ensure!(some, "{key} is {}", ghost[key]);
        }
        self.check_holder(ghost)
    }

    /// The whole of what one scan says. Returns rule to ID.
    fn check(&self, look: &SnapshotRun) -> anyhow::Result<BTreeMap<String, String>> {
        let found = self.findings(look)?;
        let ghost = found.get("ghost-sandbox").context("no ghost-sandbox")?;
        self.check_ghost(ghost, "critical")
            .with_context(|| format!("ghost-sandbox: {ghost:#}"))?;
        self.check_rest(
            look,
            &["blocked-task", "duplicate-address", "ghost-sandbox"],
        )
    }

    /// The same where no pod list says whether a pod is gone.
    fn check_without_pods(&self, look: &SnapshotRun) -> anyhow::Result<BTreeMap<String, String>> {
        let duplicate = self.findings(look)?.remove("duplicate-address");
        let duplicate = duplicate.context("no duplicate-address")?;
        self.check_holder(duplicate)?;
        let advice = duplicate["advice"].to_string();
        ensure!(!advice.contains("delete pod"), "{advice}");
        self.check_rest(look, &["blocked-task", "duplicate-address"])
    }

    fn check_rest(
        &self,
        look: &SnapshotRun,
        expected: &[&str],
    ) -> anyhow::Result<BTreeMap<String, String>> {
        look.expect_code(1)?;
        look.coverage()?;
        look.summary()?;
        let found = self.findings(look)?;
        let rules: Vec<&str> = found.keys().copied().collect();
        ensure!(rules == expected, "findings: {rules:?}: {}", look.brief());
        let duplicate = found["duplicate-address"];
        ensure!(
            duplicate["severity"] == "critical" && names_address(duplicate, &self.address),
            "{duplicate:#}"
        );
        let claims = duplicate["evidence"].to_string();
        for netns in [self.old.netns_inode, self.new.netns_inode] {
            ensure!(claims.contains(&netns.to_string()), "{claims}");
        }
        let id = |finding: &Value| finding["id"].as_str().map(str::to_owned);
        found
            .into_iter()
            .map(|(rule, finding)| Ok((rule.to_owned(), id(finding).context("no ID")?)))
            .collect()
    }
}

fn scan(node: &Containerd, args: &[&str]) -> anyhow::Result<SnapshotRun> {
    on_node(node, "scan", &[&["--stall-threshold", "1s"], args].concat())
}

test!(INCIDENT, scan_tells_the_incident_whoever_does_not_answer);
/// Which source answers changes what is certain, and nothing else.
fn scan_tells_the_incident_whoever_does_not_answer() -> anyhow::Result<()> {
    tells_whoever_does_not_answer(RealIncident::new()?)
}

test!(NEWER_INCIDENT, scan_tells_the_incident_on_containerd_2);
fn scan_tells_the_incident_on_containerd_2() -> anyhow::Result<()> {
    tells_whoever_does_not_answer(RealIncident::of(Generation::Newer)?)
}

fn tells_whoever_does_not_answer(mut incident: RealIncident) -> anyhow::Result<()> {
    let facts = Facts::stage(&mut incident)?;
    let node = incident.node();
    let folder = Scratch::create()?;
    let pods = whole_list(incident.pods_file(), folder.path())?;
    let listed: &[&str] = &["--pods", &pods];
    let (no_cri, no_pods): (&[&str], &[&str]) = (&["--cri", "none"], &["--pods", "none"]);

    let mut failures = Vec::new();
    let mut ids: Option<BTreeMap<String, String>> = None;
    let mut check = |name: &str, look: &SnapshotRun, with_pods: bool, unknown: &[&str]| {
        println!("        {name}: {:.2} s", look.elapsed.as_secs_f32());
        let checked = match with_pods {
            true => facts.check(look),
            false => facts.check_without_pods(look),
        };
        let checked = checked.and_then(|these| {
            let first = ids.get_or_insert_with(|| these.clone());
            let same = these.iter().all(|(rule, id)| first.get(rule) == Some(id));
            ensure!(same, "{these:?} is {first:?} in another scan");
            unknown
                .iter()
                .try_for_each(|text| look.expect_unknown(text))
        });
        failures.extend(checked.err().map(|error| format!("{name}: {error:#}")));
    };
    check("all answer", &scan(node, listed)?, true, &[]);
    let unasked = "sandboxes and containers as the runtime lists them";
    let look = scan(node, &[listed, no_cri].concat())?;
    check("--cri none", &look, true, &[unasked]);
    node.freeze()?;
    let frozen = scan(node, listed);
    node.thaw()?;
    let frozen = frozen?;
    let hangs = "containerd.sock does not answer";
    check("a hanging runtime", &frozen, true, &[unasked, hangs]);
    let fate = "whether a pod still exists";
    let look = scan(node, no_pods)?;
    check("--pods none", &look, false, &[fate]);
    let look = scan(node, &[no_pods, no_cri].concat())?;
    check("neither", &look, false, &[fate, unasked]);

    incident.release()?;
    drop(incident);
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    ensure!(
        frozen.elapsed < HANGING,
        "a hanging runtime costs {:?}",
        frozen.elapsed
    );
    Ok(())
}

/// What trace says of the incident: rule to ID.
fn traced(
    incident: &RealIncident,
    facts: &Facts,
    pods: &str,
) -> anyhow::Result<BTreeMap<String, String>> {
    let node = incident.node();
    let mut line = node.command(binary()?)?;
    line.args(["trace", "-o", "json", "--stall-threshold", "1s"]);
    line.args(["--cri", "none"]).arg("--root").arg(node.root());
    line.args(["--pods", pods]);
    let mut tracer = Tracer::start(&mut line, |_| ())?;
    let mut ids = BTreeMap::new();
    for rule in ["blocked-task", "duplicate-address", "ghost-sandbox"] {
        let finding = tracer.wait_for(rule, SOON, |record| {
            is_finding(record, rule) && facts.concerns(record)
        })?;
        ids.insert(
            rule.to_owned(),
            finding["id"].as_str().context("no ID")?.to_owned(),
        );
    }
    tracer.stop()?;
    Ok(ids)
}

test!(INCIDENT, scan_and_trace_give_a_finding_the_same_id);
fn scan_and_trace_give_a_finding_the_same_id() -> anyhow::Result<()> {
    give_the_same_id(RealIncident::new()?)
}

test!(NEWER_INCIDENT, scan_and_trace_tell_the_incident_on_crun);
fn scan_and_trace_tell_the_incident_on_crun() -> anyhow::Result<()> {
    give_the_same_id(RealIncident::of(Generation::Crun)?)
}

fn give_the_same_id(mut incident: RealIncident) -> anyhow::Result<()> {
    let facts = Facts::stage(&mut incident)?;
    let folder = Scratch::create()?;
    let pods = whole_list(incident.pods_file(), folder.path())?;
    let looked = scan(incident.node(), &["--pods", &pods])?;
    let looked = facts.check(&looked)?;
    let traced = traced(&incident, &facts, &pods)?;
    ensure!(looked == traced, "{looked:?}, and trace says {traced:?}");
    incident.release()?;
    drop(incident);
    Ok(())
}

test!(
    INCIDENT,
    scan_does_not_call_a_short_uninterruptible_sleep_running
);
/// What sleeps for a moment only is no stall; but nobody may be told that it
/// takes signals.
fn scan_does_not_call_a_short_uninterruptible_sleep_running() -> anyhow::Result<()> {
    let mut incident = RealIncident::new()?;
    let facts = Facts::stage(&mut incident)?;
    let folder = Scratch::create()?;
    let list = whole_list(incident.pods_file(), folder.path())?;
    let args = ["--stall-threshold", "1h", "--pods", &list];
    let look = on_node(incident.node(), "scan", &args);
    incident.release()?;
    drop(incident);
    let look = look?;
    look.expect_code(1)?;
    let found = facts.findings(&look)?;
    ensure!(!found.contains_key("blocked-task"), "{}", look.brief());
    let ghost = found.get("ghost-sandbox").context("no ghost-sandbox")?;
    let holders = ghost["holders"].as_array().into_iter().flatten();
    let mut stuck = holders.filter(|holder| holder["pid"] == facts.stuck.pid);
    let stuck = stuck.next().context("the stuck one is no holder")?;
    ensure!(stuck["state"] == "D", "{stuck:#}");
    for text in ["signals work", "still run"] {
        ensure!(
            !ghost.to_string().contains(text),
            "{text:?} is not so: {ghost:#}"
        );
    }
    Ok(())
}
