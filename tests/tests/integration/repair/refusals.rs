//! What a repair refuses, with the reason and what to do.

use node_tracer_tests::test;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use node_tracer_tests::cgroup::Cgroup;
use node_tracer_tests::keeper::{By, Keeper, NOBODY};
use node_tracer_tests::scratch::{container_id, pod_uid};
use node_tracer_tests::scripted_cri::Mood;
use node_tracer_tests::snapshot_run::run;
use node_tracer_tests::tracer::command;
use serde_json::{Value, json};

use super::{GRACE, SUBNET, Stage, expect_refusal, ghost, planned, withheld};

test!(super::NEEDS, repair_plans_nothing_while_a_source_is_silent);
fn repair_plans_nothing_while_a_source_is_silent() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let leaked = stage.leak()?;
    // Of a container that runs, so that a runtime that lists nothing shows.
    let live = stage.live()?;
    let cgroup = Cgroup::create(&pod_uid()?, &live.id)?;
    stage.grow_old()?;
    let grace = format!("{}ms", GRACE.as_millis());
    let file = stage.scratch.path().join("none.json").display().to_string();
    let args = ["--grace", &grace, "--plan", &file];
    for (mood, says) in [
        (Mood::Silent, "does not answer"),
        (
            Mood::InPart,
            "CRI does not answer, or not for all sandboxes",
        ),
        (Mood::Empty, "lists 0 sandboxes, and none of the"),
    ] {
        stage.cri.be(mood);
        let look = stage.repair(&args)?;
        expect_refusal(&look, says)?;
        let plan = &look.ended.records[0];
        ensure!(
            planned(plan).is_empty() && plan["refused"][0].is_string(),
            "{plan:#}"
        );
        ensure!(!std::path::Path::new(&file).exists(), "a plan was written");
    }
    stage.cri.be(Mood::Well);
    let look = stage.repair(&[&args[..], &["--cri", "none"]].concat())?;
    expect_refusal(&look, "--cri none")?;
    // Nor is a plan carried out then.
    let look = stage.repair(&args)?;
    ensure!(
        planned(&look.ended.records[0]) == [leaked.address],
        "{}",
        look.brief()
    );
    for mood in [Mood::Silent, Mood::InPart, Mood::Empty] {
        stage.cri.be(mood);
        let look = stage.repair(&["--apply", &file])?;
        expect_refusal(&look, "nothing was released")?;
        ensure!(stage.has(&leaked), "{}", look.brief());
    }
    drop(cgroup);
    Ok(())
}

test!(
    super::NEEDS,
    repair_releases_no_address_of_a_namespace_whatever_keeps_it_alive
);
/// A user without any right keeps a pod's namespace so that no process's table of
/// descriptors has it, once the runtime has unmounted it.
fn repair_releases_no_address_of_a_namespace_whatever_keeps_it_alive() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let leaked = stage.leak()?;
    stage.grow_old()?;
    let (plan, file) = stage.plan(&[])?;
    ensure!(planned(&plan) == [leaked.address], "{plan:#}");
    for by in [
        By::InFlight,
        By::IoUring,
        By::Watch,
        By::Thread,
        By::Covered,
    ] {
        let mut netns = ghost(&[])?;
        // Before it are more than are read of each namespace at first.
        for last in 1..=40 {
            netns.ip(&format!("addr add 198.18.77.{last}/32 dev eth0"))?;
        }
        netns.ip(&format!("addr add {}/32 dev eth0", leaked.address))?;
        let inode = netns.inode();
        let keeper = Keeper::start(by, netns.path())?;
        netns.delete()?;
        let (plan, _) = stage.plan(&[])?;
        ensure!(planned(&plan).is_empty(), "{by:?}: {plan:#}");
        let mut withheld = plan["withheld"].as_array().into_iter().flatten();
        let why = withheld.find(|each| each["address"] == leaked.address.to_string());
        let why = why.map(|each| each["why"].to_string()).unwrap_or_default();
        ensure!(why.contains(&inode.to_string()), "{by:?}: {plan:#}");
        let look = stage.apply(&file, &[])?;
        ensure!(stage.has(&leaked), "{by:?}: {}", look.brief());
        // A look knows it, too: nothing leads to it, and its address is in use.
        let root = stage.node.root().display().to_string();
        let mut scan = command(&["scan", "-o", "json", "--pods", "none", "--root", &root])?;
        let look = run(&mut scan)?;
        let is_leak = |record: &Value| {
            record["rule"] == "leaked-reservation"
                && record.to_string().contains(&leaked.address.to_string())
        };
        let claims = look.ended.records.iter().any(is_leak);
        ensure!(!claims, "{by:?}: {}", look.brief());
        let address = leaked.address.to_string();
        let asked = [
            "explain", &address, "-o", "json", "--pods", "none", "--root", &root,
        ];
        let look = run(&mut command(&asked)?)?;
        let mut parts = look.explanation()?["netns"]
            .as_array()
            .into_iter()
            .flatten();
        let is_told = parts.any(|part| part["inode"] == inode);
        ensure!(is_told, "{by:?}: {}", look.brief());
        drop(keeper);
    }
    // Of one without the address nothing has to be known.
    let mut netns = ghost(&[])?;
    let _keeper = Keeper::start(By::IoUring, netns.path())?;
    netns.delete()?;
    let look = stage.apply(&file, &[])?;
    ensure!(!stage.has(&leaked), "{}", look.brief());
    Ok(())
}

test!(
    super::NEEDS,
    repair_releases_no_address_that_a_local_route_takes
);
/// A namespace serves the address, and no device of it that is listed has it.
fn repair_releases_no_address_that_a_local_route_takes() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let leaked = stage.leak()?;
    stage.grow_old()?;
    let (plan, file) = stage.plan(&[])?;
    ensure!(planned(&plan) == [leaked.address], "{plan:#}");
    let address = leaked.address.to_string();
    for by in [
        format!("route add local {address}/32 dev eth0 proto kernel scope host table local"),
        format!("route add local {SUBNET} dev lo"),
        format!("addr add {address}/32 dev lo"),
    ] {
        let netns = ghost(&[])?;
        for change in ["addr add 192.0.2.9/32 dev eth0", "link set lo up"] {
            netns.ip(change)?;
        }
        netns.ip("link set eth0 up")?;
        netns.ip(&by)?;
        let (plan, _) = stage.plan(&[])?;
        ensure!(planned(&plan).is_empty(), "{by}: {plan:#}");
        ensure!(withheld(&plan, &leaked)? == "live", "{by}: {plan:#}");
        let why = plan["withheld"].to_string();
        let says = format!("network namespace {} takes packets", netns.inode());
        ensure!(why.contains(&says), "{by}: {plan:#}");
        let look = stage.apply(&file, &[])?;
        ensure!(stage.has(&leaked), "{by}: {}", look.brief());
        let root = stage.node.root().display().to_string();
        let mut scan = command(&["scan", "-o", "json", "--pods", "none", "--root", &root])?;
        let look = run(&mut scan)?;
        let is_leak = |record: &Value| {
            record["rule"] == "leaked-reservation" && record.to_string().contains(&address)
        };
        let claims = look.ended.records.iter().any(is_leak);
        ensure!(!claims, "{by}: {}", look.brief());
    }
    // One that only marked packets are looked up by is a proxy's.
    let netns = ghost(&[])?;
    netns.ip("link set lo up")?;
    netns.ip("rule add fwmark 1 lookup 100")?;
    netns.ip("route add local default dev lo table 100")?;
    let look = stage.apply(&file, &[])?;
    ensure!(!stage.has(&leaked), "{}", look.brief());
    Ok(())
}

test!(
    super::NEEDS,
    repair_releases_no_address_that_a_list_leaves_out
);
/// A namespace has more addresses than are kept, and the one that matters comes last.
fn repair_releases_no_address_that_a_list_leaves_out() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let leaked = stage.leak()?;
    stage.grow_old()?;
    let (plan, file) = stage.plan(&[])?;
    ensure!(planned(&plan) == [leaked.address], "{plan:#}");
    let netns = ghost(&[&leaked])?;
    netns.ip("addr add 1.1.1.1/32 dev eth0")?;
    let mut batch = String::new();
    for bridge in 0..70 {
        batch += &format!("link add b{bridge} type bridge\n");
        for last in 0..1_000 {
            let (high, low) = (last / 250, last % 250);
            batch += &format!("addr add 9.{bridge}.{high}.{low}/32 dev b{bridge}\n");
        }
    }
    let commands = stage.node.root().join("batch");
    fs::write(&commands, batch)?;
    netns.ip(&format!("-batch {}", commands.display()))?;
    let (plan, _) = stage.plan(&[])?;
    ensure!(planned(&plan).is_empty(), "{plan:#}");
    let look = stage.apply(&file, &[])?;
    ensure!(stage.has(&leaked), "{}", look.brief());
    let root = stage.node.root().display().to_string();
    let mut scan = command(&["scan", "-o", "json", "--pods", "none", "--root", &root])?;
    let look = run(&mut scan)?;
    let not_checked = |record: &Value| record["not_checked"].to_string();
    let mut records = look.ended.records.iter();
    ensure!(
        records.any(|record| not_checked(record).contains("duplicate-address")),
        "{}",
        look.brief()
    );
    Ok(())
}

test!(
    super::NEEDS,
    repair_without_the_kernels_list_releases_nothing_while_a_user_can_hide_a_namespace
);
fn repair_without_the_kernels_list_releases_nothing_while_a_user_can_hide_a_namespace()
-> anyhow::Result<()> {
    let stage = Stage::new()?;
    let leaked = stage.leak()?;
    stage.grow_old()?;
    let grace = format!("{}ms", GRACE.as_millis());
    for (by, says) in [
        (By::InFlight, "in flight in a unix socket"),
        (By::IoUring, "registered with an io_uring"),
        (By::Watch, "watches a namespace's file"),
    ] {
        let mut netns = ghost(&[&leaked])?;
        let keeper = Keeper::start(by, netns.path())?;
        netns.delete()?;
        let look = stage.repair_without_list(&["--grace", &grace])?;
        expect_refusal(&look, says)?;
        expect_refusal(&look, &format!("(PID {}, user {NOBODY})", keeper.pid()))?;
        let plan = &look.ended.records[0];
        ensure!(planned(plan).is_empty(), "{plan:#}");
        // What leads there is no orphan, nor is anything certain to be leaked.
        let root = stage.node.root().display().to_string();
        let mut scan = command(&["scan", "-o", "json", "--pods", "none", "--root", &root])?;
        let look = run(&mut scan)?;
        let is_claimed = |record: &&Value| {
            record["rule"] == "orphan-veth"
                || (record["rule"] == "leaked-reservation" && record["severity"] != "info")
        };
        ensure!(
            !look.ended.records.iter().any(|record| is_claimed(&record)),
            "{}",
            look.brief()
        );
    }
    Ok(())
}

/// A plan, changed.
fn edited(plan: &Value, edit: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut plan = plan.clone();
    edit(&mut plan);
    plan.to_string().into_bytes()
}

impl Stage {
    fn expect_refused(&self, plan: &[u8], says: &str) -> anyhow::Result<()> {
        let file = self.scratch.path().join("edited.json");
        fs::write(&file, plan)?;
        let look = self.apply(&file, &[])?;
        expect_refusal(&look, says)?;
        ensure!(look.ended.records.is_empty(), "{}", look.brief());
        Ok(())
    }
}

test!(
    super::NEEDS,
    repair_refuses_a_plan_that_is_not_for_here_and_now
);
fn repair_refuses_a_plan_that_is_not_for_here_and_now() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let leaked = stage.leak()?;
    stage.grow_old()?;
    let (plan, file) = stage.plan(&[])?;
    let cases: [(&str, Value, &str); 6] = [
        (
            "/node",
            json!("worker-9"),
            "is of node worker-9, and this is",
        ),
        ("/boot_id", json!("x"), "started again since the plan"),
        ("/root/inode", json!(4_242_424), "give the same --root"),
        ("/version", json!(2), "is of version 2"),
        ("/type", json!("finding"), "is no plan, or is damaged"),
        (
            "/schema",
            json!("node-tracer/2"),
            "is no plan, or is damaged",
        ),
    ];
    for (key, value, says) in cases {
        let text = edited(&plan, |plan| {
            if let Some(place) = plan.pointer_mut(key) {
                *place = value;
            }
        });
        stage.expect_refused(&text, says)?;
    }
    // Of yesterday, and of tomorrow.
    let up = plan["uptime_ms"].as_u64().unwrap_or_default();
    stage.expect_refused(
        &edited(&plan, |plan| plan["uptime_ms"] = json!(up + 90_000)),
        "future",
    )?;
    let before = json!(up.saturating_sub(700_000));
    if up > 700_000 {
        stage.expect_refused(
            &edited(&plan, |plan| plan["uptime_ms"] = before),
            "valid for 10m",
        )?;
    }
    let (_, short) = stage.plan(&["--valid-for", "100ms"])?;
    node_tracer_tests::wait::pause(Duration::from_millis(200))?;
    expect_refusal(&stage.apply(&short, &[])?, "make it anew")?;
    // Another root, and one that others could have written.
    let mut line = command(&["repair", "--pods", "none", "--apply"])?;
    expect_refusal(
        &run(line.arg(&file).arg("--hurried"))?,
        "give the same --root",
    )?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666))?;
    expect_refusal(&stage.apply(&file, &[])?, "can be written by everybody")?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o664))?;
    expect_refusal(&stage.apply(&file, &[])?, "can be written by its group")?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    // One that nobody ever writes into.
    let fifo = stage.scratch.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status()?;
    ensure!(made.success(), "mkfifo: {made}");
    expect_refusal(&stage.apply(&fifo, &[])?, "is no regular file")?;
    // Not root, whatever else it may do.
    let copy = stage.scratch.path().join("node-tracer");
    fs::copy(node_tracer_tests::tracer::binary()?, &copy)?;
    fs::set_permissions(stage.scratch.path(), fs::Permissions::from_mode(0o755))?;
    if node_tracer_tests::stage::in_path("setpriv").is_some() {
        let caps = "+sys_ptrace,+sys_admin,+dac_read_search,+net_admin";
        let mut line = Command::new("setpriv");
        line.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args(["--inh-caps", caps, "--ambient-caps", caps])
            .arg(&copy)
            .args(["repair", "--pods", "none", "--hurried", "--root"])
            .arg(stage.node.root())
            .arg("--apply")
            .arg(&file);
        expect_refusal(&run(&mut line)?, "only root may change them")?;
    }
    // A grace in which nothing is certain is taken from tests alone.
    let mut line = command(&["repair", "--grace", "5s"])?;
    expect_refusal(&run(&mut line)?, "--grace 5s: at least 30s")?;
    ensure!(stage.has(&leaked));
    stage.apply(&file, &[])?.expect_code(0)
}

test!(super::NEEDS, repair_refuses_a_plan_that_no_look_has_made);
fn repair_refuses_a_plan_that_no_look_has_made() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let leaked = stage.leak()?;
    let victim = stage.node.host_path("/etc/198.19.65.9");
    fs::write(&victim, format!("{}\r\neth0", container_id()?))?;
    stage.grow_old()?;
    let (plan, file) = stage.plan(&[])?;
    ensure!(planned(&plan) == [leaked.address], "{plan:#}");
    let of_first = |key: &str, value: Value| edited(&plan, |plan| plan["releases"][0][key] = value);
    let said = "changed in a way that no look at a node gives";
    stage.expect_refused(&of_first("path", json!("/etc/passwd")), said)?;
    stage.expect_refused(&of_first("address", json!("198.19.65.9")), said)?;
    stage.expect_refused(&of_first("content", json!("eA==")), said)?;
    stage.expect_refused(&of_first("content", json!("%")), "damaged")?;
    stage.expect_refused(&of_first("wish", json!(1)), "unknown field `wish`")?;
    let at = |store: &str, address: &str| {
        edited(&plan, |plan| {
            let release = &mut plan["releases"][0];
            release["store"] = json!(store);
            release["address"] = json!(address);
            release["path"] = json!(format!("{store}/{address}"));
        })
    };
    let address = leaked.address.to_string();
    stage.expect_refused(
        &at("/var/lib/cni/networks/../networks/stage", &address),
        said,
    )?;
    stage.expect_refused(&at("var/lib/cni/networks/stage", &address), said)?;
    stage.expect_refused(&at("/etc", "198.19.65.9"), "is in no store of host-local's")?;
    // A store that is a link to the real one.
    let link = stage.node.host_path("/var/lib/cni/networks/link");
    symlink("stage", &link)?;
    let look = {
        let file = stage.scratch.path().join("link.json");
        fs::write(&file, at("/var/lib/cni/networks/link", &address))?;
        stage.apply(&file, &[])?
    };
    ensure!(look.ended.code == Some(2), "{}", look.brief());
    let twice = edited(&plan, |plan| {
        let release = plan["releases"][0].clone();
        if let Some(all) = plan["releases"].as_array_mut() {
            all.push(release);
        }
    });
    stage.expect_refused(&twice, "is in it twice")?;
    stage.expect_refused(
        &edited(&plan, |plan| plan["grace_ms"] = json!(600_000)),
        said,
    )?;
    let mut cut = plan.to_string().into_bytes();
    cut.truncate(cut.len() / 2);
    stage.expect_refused(&cut, "is no plan, or is damaged")?;
    stage.expect_refused(b"", "is no plan, or is damaged")?;
    ensure!(victim.exists() && stage.has(&leaked));
    stage.apply(&file, &[])?.expect_code(0)
}
