//! What each writer's log tells.

use anyhow::{Context as _, ensure};
use node_tracer_tests::snapshot_run::SnapshotRun;
use node_tracer_tests::test;
use node_tracer_tests::tracer::{command, is_event, is_finding};
use serde_json::Value;

use super::{DOCKERSHIM, SECRET, fixture, opened, replay, replayed, rules};

const OLD: &str = "6f08cc677d95";

const NEW: &str = "58cea4c88fcb";

/// A finding as it was told last.
fn last<'l>(look: &'l SnapshotRun, rule: &str) -> anyhow::Result<&'l Value> {
    let mut all = look.ended.records.iter();
    let last = all.rfind(|record| is_finding(record, rule));
    last.with_context(|| format!("no {rule}"))
}

fn events<'l>(look: &'l SnapshotRun, kind: &str) -> Vec<&'l Value> {
    let all = look.ended.records.iter();
    all.filter(|record| is_event(record, kind)).collect()
}

fn begins(value: &Value, beginning: &str) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.starts_with(beginning))
}

test!(apart super::TRACER, logs_of_a_dockershim_night_tell_of_the_stale_del);
fn logs_of_a_dockershim_night_tell_of_the_stale_del() -> anyhow::Result<()> {
    let told = replayed(DOCKERSHIM)?;
    told.expect_code(1)?;
    ensure!(
        rules(&told) == ["del-retry", "stale-del"],
        "{:?}",
        rules(&told)
    );
    let stale = opened(&told, "stale-del")[0];
    let pod = &stale["pod"];
    ensure!(
        pod["namespace"] == "shop" && pod["name"] == "db-0",
        "{stale:#}"
    );
    ensure!(
        stale["effect"] == "harmful" && stale["severity"] == "critical",
        "{stale:#}"
    );
    ensure!(begins(&stale["old_container_id"], OLD), "{stale:#}");
    ensure!(begins(&stale["new_container_id"], NEW), "{stale:#}");
    ensure!(
        stale["addresses"] == serde_json::json!(["10.77.3.21"]),
        "{stale:#}"
    );
    ensure!(
        stale["since"] == "2018-03-14T21:06:13.000000000Z",
        "{stale:#}"
    );
    ensure!(stale["node"] == "shelf-07", "{stale:#}");
    let evidence = stale["evidence"].to_string();
    ensure!(
        evidence.contains("92 s after the newer sandbox was made"),
        "{evidence}"
    );
    let retry = opened(&told, "del-retry")[0];
    let said = &retry["error"]["msg"];
    ensure!(
        begins(
            said,
            "resource does not exist: WorkloadEndpoint(node=shelf-07"
        ),
        "{retry:#}"
    );
    ensure!(begins(&retry["sandbox_id"], OLD), "{retry:#}");
    let mut adds = events(&told, "cni-call");
    adds.retain(|call| call["command"] == "ADD" && call["delegated"] == false);
    let given: Vec<_> = adds
        .into_iter()
        .map(|add| {
            (
                add["pod"]["name"].clone(),
                add["result"]["ips"].clone(),
                add["log"].clone(),
            )
        })
        .collect();
    let expected = [("db-0", "10.77.3.21"), ("cache-1", "10.77.3.22")];
    let expected = expected.map(|(pod, ip)| (pod.into(), serde_json::json!([ip]), true.into()));
    ensure!(given == expected, "{given:?}");
    let text = command(&["replay"])?.arg(fixture(DOCKERSHIM)).output()?;
    let text = String::from_utf8(text.stdout)?;
    for words in [
        "CRITICAL  stale-del",
        "BLIND  node: only logs are replayed",
        "old       6f08cc677d95",
    ] {
        ensure!(text.contains(words), "{words} is not in:\n{text}");
    }
    ensure!(!text.contains(SECRET), "a secret came out");
    Ok(())
}

test!(apart super::TRACER, logs_of_a_containerd_night_tell_each_failure_once);
fn logs_of_a_containerd_night_tell_each_failure_once() -> anyhow::Result<()> {
    let told = replayed("containerd.log")?;
    told.expect_code(1)?;
    let expected = ["add-failed", "del-retry", "sandbox-churn"];
    ensure!(rules(&told) == expected, "{:?}", rules(&told));
    let mut failed = events(&told, "cni-call");
    failed.retain(|call| call["command"] == "ADD" && call["error"].is_object());
    ensure!(failed.len() == 4, "each of the four is told by four lines");
    let add = opened(&told, "add-failed")[0];
    ensure!(add["cause"] == "range-exhausted", "{add:#}");
    ensure!(
        add["pod"]["uid"] == "1b9f2a44-0c3e-4d1a-8a77-2f6d5e4c3b2a",
        "{add:#}"
    );
    let add = last(&told, "add-failed")?;
    ensure!(
        add["state"] == "resolved" && add["attempts"] == 4,
        "{add:#}"
    );
    ensure!(
        add["time"] == "2025-06-02T01:25:55.480000000Z",
        "its time in the log: {add:#}"
    );
    let retry = last(&told, "del-retry")?;
    ensure!(retry["attempts"] == 3, "{retry:#}");
    ensure!(
        retry["error"]["msg"].to_string().contains("[redacted]"),
        "{retry:#}"
    );
    let kinds = ["sandbox-added", "sandbox-removed", "pod-deleted"];
    for kind in kinds {
        ensure!(!events(&told, kind).is_empty(), "no {kind}");
    }
    Ok(())
}

test!(apart super::TRACER, logs_of_the_kubelet_alone_raise_no_false_alarm);
fn logs_of_the_kubelet_alone_raise_no_false_alarm() -> anyhow::Result<()> {
    let told = replay(&[&fixture("kubelet-only.log")], &["--year", "2025"])?;
    // It has no DEL of the pod that went: that proves nothing.
    let expected = ["add-failed", "del-retry", "sandbox-churn"];
    ensure!(rules(&told) == expected, "{:?}", rules(&told));
    let add = opened(&told, "add-failed")[0];
    ensure!(add["pod"]["name"] == "web-5d9c7b-qx2lp", "{add:#}");
    let coverage = told.ended.records[0]["signals"].to_string();
    ensure!(
        coverage.contains("what the logs do not contain"),
        "{coverage}"
    );
    Ok(())
}

test!(apart super::TRACER, logs_of_a_newer_calico_tell_that_it_did_no_harm);
fn logs_of_a_newer_calico_tell_that_it_did_no_harm() -> anyhow::Result<()> {
    let told = replay(&[&fixture("calico-cni.log")], &["--node-name", "rack3-n2"])?;
    told.expect_code(0)?;
    ensure!(rules(&told) == ["stale-del"], "{:?}", rules(&told));
    let stale = opened(&told, "stale-del")[0];
    ensure!(
        stale["effect"] == "harmless" && stale["severity"] == "info",
        "{stale:#}"
    );
    ensure!(stale["node"] == "rack3-n2", "{stale:#}");
    ensure!(
        stale["addresses"] == serde_json::json!(["10.77.9.4"]),
        "{stale:#}"
    );
    Ok(())
}

test!(apart super::TRACER, logs_of_crio_tell_requests_apart);
fn logs_of_crio_tell_requests_apart() -> anyhow::Result<()> {
    let told = replayed("crio.log")?;
    told.expect_code(1)?;
    ensure!(rules(&told) == ["add-failed"], "{:?}", rules(&told));
    let add = opened(&told, "add-failed")[0];
    ensure!(add["pod"]["name"] == "api-1", "{add:#}");
    ensure!(
        add["error"]["msg"] == "timed out waiting for OVS port binding",
        "{add:#}"
    );
    let ended: Vec<_> = events(&told, "cni-call")
        .into_iter()
        .map(|call| {
            (
                call["command"].clone(),
                call["pod"]["name"].clone(),
                call["exit_code"].clone(),
            )
        })
        .collect();
    let call = |command: &str, pod: &str, code: Option<i32>| {
        (Value::from(command), Value::from(pod), Value::from(code))
    };
    let expected = [
        call("ADD", "api-0", Some(0)),
        call("ADD", "api-1", None),
        call("DEL", "api-0", Some(0)),
    ];
    ensure!(ended == expected, "{ended:?}");
    Ok(())
}

test!(apart super::TRACER, logs_of_the_kernel_tell_of_stalls);
fn logs_of_the_kernel_tell_of_stalls() -> anyhow::Result<()> {
    let told = replayed("kernel.log")?;
    told.expect_code(1)?;
    let expected = ["blocked-task", "netns-teardown-stall"];
    ensure!(rules(&told) == expected, "{:?}", rules(&told));
    let blocked = opened(&told, "blocked-task")[0];
    let holder = &blocked["holders"][0];
    ensure!(
        holder["comm"] == "postgres" && holder["pid"] == 31_337,
        "{blocked:#}"
    );
    ensure!(
        holder["stack"][0] == "rpc_wait_bit_killable+0x10",
        "{blocked:#}"
    );
    ensure!(
        blocked["since"] == "2024-11-30T02:57:58.000000000Z",
        "{blocked:#}"
    );
    ensure!(
        blocked["title"]
            .to_string()
            .contains("rpc_wait_bit_killable"),
        "{blocked:#}"
    );
    let stall = last(&told, "netns-teardown-stall")?;
    ensure!(
        stall["severity"] == "critical" && stall["state"] == "resolved",
        "{stall:#}"
    );
    let killed = events(&told, "oom-killed");
    ensure!(
        killed.len() == 1 && killed[0]["limited"] == true,
        "{killed:#?}"
    );
    let uid = "0f0e0d0c-1111-4222-8333-444455556666";
    ensure!(killed[0]["task"]["pod_uid"] == uid, "{killed:#?}");
    Ok(())
}
