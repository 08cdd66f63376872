//! `explain`: what every name of a thing leads to, and what it says when there
//! is no such thing.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::containerd::incident::RealIncident;
use node_tracer_tests::containerd::{Containerd, Generation, Sandbox};
use node_tracer_tests::incident::Stuck;
use node_tracer_tests::netns::{Netns, connect};
use node_tracer_tests::pods::{Pod, PodsFile};
use node_tracer_tests::scratch::{Scratch, container_id};
use node_tracer_tests::snapshot_run::{
    INCIDENT, NEWER_INCIDENT, NODE, SnapshotRun, on_host, on_node, whole_list,
};
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use serde_json::Value;

use crate::command_line::{refused, run};

const TRACER: &[Need] = &[Need::Root, Need::Tracer];

/// Any answer, also if the runtime hangs.
const LIMIT: Duration = Duration::from_secs(2);

/// Inodes of the namespaces in an answer, in its order.
fn inodes(look: &SnapshotRun) -> anyhow::Result<Vec<u64>> {
    let parts = look.explanation()?["netns"]
        .as_array()
        .context("no netns")?;
    let inode = |part: &Value| part["inode"].as_u64().context("no inode");
    parts.iter().map(inode).collect()
}

/// What is asked, as what it is taken, and the namespace that is the answer.
type Asked = (String, &'static str, u64);

fn every_word(old: &Sandbox, stuck: &Stuck, new: &Sandbox) -> anyhow::Result<Vec<Asked>> {
    let (was, is) = (old.netns_inode, new.netns_inode);
    let path = |sandbox: &Sandbox| -> anyhow::Result<String> {
        let path = sandbox.netns_path.as_ref().context("no path")?;
        Ok(path.display().to_string())
    };
    Ok(vec![
        ("shop/stuck".to_owned(), "pod", was),
        ("shop/reborn".to_owned(), "pod", is),
        (old.config.metadata.uid.clone(), "pod-uid", was),
        (new.config.metadata.uid.clone(), "pod-uid", is),
        (old.id.clone(), "container", was),
        (old.id[..13].to_owned(), "container", was),
        (new.id[..13].to_owned(), "container", is),
        (stuck.container_id[..13].to_owned(), "container", was),
        (format!("containerd://{}", old.id), "container", was),
        (was.to_string(), "netns", was),
        (format!("net:[{is}]"), "netns", is),
        (path(old)?, "netns-path", was),
        (path(new)?, "netns-path", is),
        (stuck.pid.to_string(), "pid", was),
        (new.pid.to_string(), "pid", is),
        (format!("/proc/{}/ns/net", stuck.pid), "netns-path", was),
    ])
}

/// Asks, and if the answer was late, once or twice more: what else the machine
/// does at the moment is not explain's fault.
fn explain(node: &Containerd, args: &[&str], word: &str) -> anyhow::Result<SnapshotRun> {
    let args = [&["--stall-threshold", "1s"], args, &[word]].concat();
    let mut took = Vec::new();
    for _ in 0..3 {
        let look = on_node(node, "explain", &args)?;
        if look.elapsed < LIMIT {
            return Ok(look);
        }
        took.push(look.elapsed);
    }
    anyhow::bail!("{word}: {took:?}")
}

fn check(look: &SnapshotRun, (word, kind, inode): &Asked) -> anyhow::Result<()> {
    look.expect_code(1)?;
    ensure!(
        look.ended.records.len() == 1,
        "one record: {}",
        look.brief()
    );
    let subject = &look.explanation()?["subject"];
    ensure!(
        subject["asked"] == word.as_str() && subject["kind"] == *kind && subject["found"] == true,
        "{subject}"
    );
    let found = inodes(look)?;
    let answer = look.explanation()?["answer"]
        .as_str()
        .context("no answer")?;
    ensure!(
        found.contains(inode) && answer.contains(" CONFLICT: "),
        "netns {found:?}, not {inode}: {answer}"
    );
    Ok(())
}

/// An address is explained whole: who has it, who else, what is wrong.
fn check_address(
    look: &SnapshotRun,
    old: &Sandbox,
    stuck: &Stuck,
    new: &Sandbox,
    with_pods: bool,
) -> anyhow::Result<()> {
    look.expect_code(1)?;
    let mut found = inodes(look)?;
    found.sort_unstable();
    let mut expected = [old.netns_inode, new.netns_inode];
    expected.sort_unstable();
    ensure!(found == expected, "netns {found:?}, not {expected:?}");
    let explanation = look.explanation()?;
    let answer = explanation["answer"].as_str().context("no answer")?;
    for word in ["CONFLICT", "shop/stuck", "shop/reborn"] {
        ensure!(answer.contains(word), "no {word} in {answer}");
    }
    let holders = explanation["netns"].as_array().into_iter().flatten();
    let mut holders = holders.flat_map(|part| part["holders"].as_array().into_iter().flatten());
    let holder = holders.find(|holder| holder["pid"] == stuck.pid);
    let holder = holder.context("the stuck one is no holder")?;
    let stack = holder["stack"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    ensure!(holder["state"] == "D" && stack, "{holder:#}");
    let findings = explanation["findings"].as_array().into_iter().flatten();
    let rules: Vec<&str> = findings.filter_map(|each| each["rule"].as_str()).collect();
    for rule in ["duplicate-address", "blocked-task"] {
        ensure!(rules.contains(&rule), "no {rule}: {rules:?}");
    }
    // Without a pod list nobody says that the pod is gone.
    ensure!(rules.contains(&"ghost-sandbox") == with_pods, "{rules:?}");
    let path = format!("/{}", new.ip.context("no address")?);
    let reserved = explanation["reservations"].as_array().into_iter().flatten();
    let mut reserved = reserved.filter(|each| {
        let file = each["path"].as_str().unwrap_or_default();
        file.ends_with(&path) && each["container_id"] == new.id.as_str()
    });
    ensure!(reserved.next().is_some(), "{}", explanation["reservations"]);
    for part in ["cni_calls", "timeline", "advice", "looked_at"] {
        let some = explanation[part]
            .as_array()
            .is_some_and(|all| !all.is_empty());
        ensure!(some, "no {part}");
    }
    Ok(())
}

test!(INCIDENT, explain_leads_from_every_name_to_the_sandbox);
fn explain_leads_from_every_name_to_the_sandbox() -> anyhow::Result<()> {
    leads_from_every_name(RealIncident::new()?)
}

test!(
    NEWER_INCIDENT,
    explain_leads_from_every_name_of_containerd_2_to_the_sandbox
);
fn explain_leads_from_every_name_of_containerd_2_to_the_sandbox() -> anyhow::Result<()> {
    leads_from_every_name(RealIncident::of(Generation::Newer)?)
}

fn leads_from_every_name(mut incident: RealIncident) -> anyhow::Result<()> {
    let (old, stuck, new) = incident.stage()?;
    let folder = Scratch::create()?;
    let list = whole_list(incident.pods_file(), folder.path())?;
    let args = ["--pods", &list];
    let mut failures = Vec::new();
    let mut slowest = Duration::ZERO;
    for asked in every_word(&old, &stuck, &new)? {
        let checked = explain(incident.node(), &args, &asked.0).and_then(|look| {
            slowest = slowest.max(look.elapsed);
            check(&look, &asked)
        });
        failures.extend(checked.err().map(|error| format!("{asked:?}: {error:#}")));
    }
    let address = old.ip.context("no address")?;
    for word in [
        address.to_string(),
        format!("{address}/29"),
        format!("::ffff:{address}"),
    ] {
        let checked = explain(incident.node(), &args, &word)
            .and_then(|look| check_address(&look, &old, &stuck, &new, true));
        failures.extend(checked.err().map(|error| format!("{word}: {error:#}")));
    }
    println!("        at most {:.2} s each", slowest.as_secs_f32());
    incident.release()?;
    drop(incident);
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

test!(INCIDENT, explain_answers_whoever_does_not);
fn explain_answers_whoever_does_not() -> anyhow::Result<()> {
    let mut incident = RealIncident::new()?;
    let (old, stuck, new) = incident.stage()?;
    let address = old.ip.context("no address")?.to_string();
    let folder = Scratch::create()?;
    let list = whole_list(incident.pods_file(), folder.path())?;
    let node = incident.node();
    let mut failures = Vec::new();
    let mut check =
        |name: &str, look: anyhow::Result<SnapshotRun>, with_pods: bool, unknown: &str| {
            let checked = look.and_then(|look| {
                println!("        {name}: {:.2} s", look.elapsed.as_secs_f32());
                check_address(&look, &old, &stuck, &new, with_pods)?;
                look.expect_unknown(unknown)
            });
            failures.extend(checked.err().map(|error| format!("{name}: {error:#}")));
        };
    let look = explain(node, &["--pods", &list, "--cri", "none"], &address);
    check("--cri none", look, true, "cri: not asked");
    let look = explain(node, &["--pods", "none"], &address);
    check("--pods none", look, false, "pods: there is no list");
    let look = explain(node, &["--pods", "none", "--cri", "none"], &address);
    check("neither", look, false, "whether the pod");
    node.freeze()?;
    let look = explain(node, &["--pods", &list], &address);
    node.thaw()?;
    check("a hanging runtime", look, true, "does not answer");
    incident.release()?;
    drop(incident);
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

test!(NODE, explain_lists_the_candidates_of_an_ambiguous_prefix);
fn explain_lists_the_candidates_of_an_ambiguous_prefix() -> anyhow::Result<()> {
    let node = Containerd::start()?;
    let pod = node.run_pod(
        "web-0",
        "shop",
        "0a1b2c3d-0000-4000-8000-000000000001",
        0,
        false,
    )?;
    let mut ids = Vec::new();
    for end in ["1", "2"] {
        // Two reservations of the past, whose IDs begin alike.
        let id = format!("abcdef{end}{}", &container_id()?[7..]);
        let [a, b, c, _] = pod.ip.context("no address")?.octets();
        let file = node.store().join(format!("{a}.{b}.{c}.20{end}"));
        std::fs::write(file, format!("{id}\r\neth0"))?;
        ids.push(id);
    }
    let args = ["--pods", "none", "abcdef"];
    let look = on_node(&node, "explain", &args)?;
    look.expect_code(2)?;
    ensure!(look.ended.records.is_empty(), "{}", look.brief());
    for id in &ids {
        ensure!(look.ended.stderr.contains(id), "{}", look.ended.stderr);
    }
    // One more digit decides, and a whole ID is its own.
    for id in &ids {
        for word in [&id[..7], id] {
            let look = on_node(&node, "explain", &["--pods", "none", word])?;
            let subject = &look.explanation()?["subject"];
            ensure!(subject["value"] == id.as_str(), "{subject}");
        }
    }
    Ok(())
}

test!(
    &[Need::Root, Need::Tracer, IP],
    explain_knows_ipv6_addresses
);
fn explain_knows_ipv6_addresses() -> anyhow::Result<()> {
    let (a, b) = (Netns::create()?, Netns::create()?);
    let address = format!("fd00:{:x}::7", std::process::id() & 0xffff);
    connect(
        (&a, "eth0", &format!("{address}/64")),
        (&b, "eth0", "198.18.249.2/24"),
    )?;
    let inode = a.inode();
    for word in [
        address.clone(),
        format!("{address}/64"),
        address.to_uppercase(),
        format!("ip:{address}"),
    ] {
        let look = on_host("explain", &["--pods", "none", "--cri", "none", &word])?;
        look.expect_code(3)?;
        ensure!(inodes(&look)? == [inode], "{word}: {}", look.brief());
        let said = &look.explanation()?["subject"]["value"];
        ensure!(*said == address.as_str(), "{said}");
    }
    Ok(())
}

test!(TRACER, explain_names_the_pod_that_a_typo_meant);
fn explain_names_the_pod_that_a_typo_meant() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let mut pods = PodsFile::create(folder.path())?;
    pods.put(&Pod::new("shop", "checkout-7d9f")?, None)?;
    let list = pods.path().display().to_string();
    for word in ["chekout-7d9f", "shop/checkout-7d9"] {
        let look = on_host("explain", &["--pods", &list, "--cri", "none", word])?;
        let answer = look.explanation()?["answer"].to_string();
        ensure!(answer.contains("shop/checkout-7d9f?"), "{word}: {answer}");
    }
    let look = on_host("explain", &["--pods", &list, "--cri", "none", "xyzzy"])?;
    let answer = look.explanation()?["answer"].to_string();
    ensure!(!answer.contains("did you mean"), "{answer}");
    Ok(())
}

test!(TRACER, explain_says_that_nobody_has_it);
/// What nobody has is an answer, with all that was looked at.
fn explain_says_that_nobody_has_it() -> anyhow::Result<()> {
    for word in [
        "203.0.113.7",
        "2001:db8::7",
        "shop/no-such-pod",
        "0a1b2c3d-0000-4000-8000-00000000dead",
        "0123456789abcdef0123456789abcdef",
        "4026999999",
        "/run/netns/no-such-name",
        "pid:4194303",
    ] {
        let look = on_host("explain", &["--pods", "none", "--cri", "none", word])?;
        look.expect_code(3).with_context(|| word.to_owned())?;
        let explanation = look.explanation()?;
        let subject = &explanation["subject"];
        ensure!(
            subject["found"] == false && subject["complete"] == false,
            "{word}: {subject}"
        );
        let looked_at = explanation["looked_at"].to_string();
        ensure!(
            looked_at.contains("network namespace"),
            "{word}: {looked_at}"
        );
        for gap in ["cri: not asked", "pods: there is no list"] {
            look.expect_unknown(gap).with_context(|| word.to_owned())?;
        }
        let answer = explanation["answer"].as_str().unwrap_or_default();
        ensure!(!answer.is_empty(), "{word}: no answer");
    }
    Ok(())
}

test!(apart TRACER, explain_refuses_what_it_does_not_understand);
fn explain_refuses_what_it_does_not_understand() -> anyhow::Result<()> {
    for word in [
        "10.0.0.300",
        "10.0.0.1/33",
        "fd00::1/129",
        "shop/",
        "x",
        "",
        "../../etc/passwd",
    ] {
        refused(&run(&["explain", word])?, &["help: ask about one of these"])
            .with_context(|| format!("{word:?}"))?;
    }
    refused(&run(&["explain"])?, &["<X>"])?;
    refused(&run(&["explain", "10.0.0.1", "10.0.0.2"])?, &["10.0.0.2"])?;
    refused(
        &run(&["explain", "--no-such-option"])?,
        &["--no-such-option"],
    )?;
    for outputs in [&["-o", "journald"][..], &["-o", "json", "-o", "journald"]] {
        let args = [&["explain", "10.0.0.1"], outputs].concat();
        refused(&run(&args)?, &["explain", "journald"])?;
    }
    refused(
        &run(&["explain", "--record", "/dev/null", "10.0.0.1"])?,
        &["--record"],
    )
}
