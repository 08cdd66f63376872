//! `replay` of logs that nobody traced: what they tell, whatever form they
//! come in.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use node_tracer_tests::harness::Test;
use node_tracer_tests::look::{Look, run as look};
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::Need;
use node_tracer_tests::tracer::{command, is_event, is_finding};
use serde_json::Value;

use crate::command_line::{refused, run};

const TRACER: &[Need] = &[Need::Tracer];

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "logs_of_a_dockershim_night_tell_of_the_stale_del",
        needs: TRACER,
        run: dockershim_night,
    },
    Test {
        name: "logs_that_are_folded_packed_or_piped_say_the_same",
        needs: &[
            Need::Tracer,
            Need::Program("gzip", "gzip"),
            Need::Program("zstd", "zstd"),
        ],
        run: other_forms,
    },
    Test {
        name: "logs_of_a_containerd_night_tell_each_failure_once",
        needs: TRACER,
        run: containerd_night,
    },
    Test {
        name: "logs_of_the_kubelet_alone_raise_no_false_alarm",
        needs: TRACER,
        run: kubelet_alone,
    },
    Test {
        name: "logs_of_a_newer_calico_tell_that_it_did_no_harm",
        needs: TRACER,
        run: newer_calico,
    },
    Test {
        name: "logs_of_crio_tell_requests_apart",
        needs: TRACER,
        run: crio,
    },
    Test {
        name: "logs_of_the_kernel_tell_of_stalls",
        needs: TRACER,
        run: kernel,
    },
    Test {
        name: "logs_of_one_node_in_two_files_are_one_story",
        needs: TRACER,
        run: two_files,
    },
    Test {
        name: "logs_of_two_hosts_are_two_stories",
        needs: TRACER,
        run: two_hosts,
    },
    Test {
        name: "logs_that_say_things_twice_and_backwards_are_put_right",
        needs: TRACER,
        run: twice_and_backwards,
    },
    Test {
        name: "logs_need_not_name_host_year_or_zone",
        needs: TRACER,
        run: unnamed,
    },
    Test {
        name: "logs_of_which_nothing_is_understood_are_refused",
        needs: TRACER,
        run: nothing_understood,
    },
];

/// What no output may hold: it stands in the fixtures' tokens.
const SECRET: &str = "made-up-for-a-test";
const DOCKERSHIM: &str = "dockershim-calico.log";
const OLD: &str = "6f08cc677d95";
const NEW: &str = "58cea4c88fcb";

fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/logs");
    fixtures.join(name)
}

/// Replays files, and sees that the frame is right and no secret is told.
fn replay(paths: &[&Path], args: &[&str]) -> anyhow::Result<Look> {
    let mut line = command(&["replay", "-o", "json"])?;
    let look = look(line.args(args).args(paths))?;
    whole(look)
}

fn whole(look: Look) -> anyhow::Result<Look> {
    let records = &look.ended.records;
    ensure!(
        matches!(look.ended.code, Some(0 | 1)),
        "{}",
        look.ended.stderr
    );
    let kind = |record: Option<&Value>| record.map(|record| record["type"].clone());
    ensure!(kind(records.first()).is_some_and(|kind| kind == "coverage"));
    ensure!(kind(records.last()).is_some_and(|kind| kind == "summary"));
    let all = serde_json::to_string(records)?;
    ensure!(!all.contains(SECRET), "a secret came out");
    Ok(look)
}

fn replayed(name: &str) -> anyhow::Result<Look> {
    replay(&[&fixture(name)], &[])
}

/// The findings of a rule as they were first told.
fn opened<'l>(look: &'l Look, rule: &str) -> Vec<&'l Value> {
    let all = look.ended.records.iter();
    all.filter(|record| is_finding(record, rule) && record["state"] == "open")
        .collect()
}

/// All rules that found something, sorted.
fn rules(look: &Look) -> Vec<String> {
    let all = look.ended.records.iter();
    let findings = all.filter(|record| record["type"] == "finding" && record["state"] == "open");
    let mut rules: Vec<String> = findings
        .filter_map(|record| record["rule"].as_str().map(str::to_owned))
        // What keeps a pod from starting is another group's affair.
        .filter(|rule| rule != "sandbox-create-failed")
        .collect();
    rules.sort_unstable();
    rules
}

fn begins(value: &Value, beginning: &str) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.starts_with(beginning))
}

fn dockershim_night() -> anyhow::Result<()> {
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
        evidence.contains("92 s after the newer sandbox was set up"),
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
    let adds = told.ended.records.iter().filter(|record| {
        is_event(record, "cni-call") && record["command"] == "ADD" && record["delegated"] == false
    });
    let given: Vec<_> = adds
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
        "CRITICAL  stale-del  pod shop/db-0 has lost its Calico endpoint",
        "BLIND  node: only logs are replayed",
        "old       6f08cc677d95",
    ] {
        ensure!(text.contains(words), "{words} is not in:\n{text}");
    }
    ensure!(!text.contains(SECRET), "a secret came out");
    Ok(())
}

/// Each line that is longer than `width` goes on in the next, after a tab.
fn folded(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let (mut rest, mut width) = (line, width);
        while let Some((part, more)) = rest
            .split_at_checked(width)
            .filter(|(_, more)| !more.is_empty())
        {
            out.push_str(part);
            out.push_str("\n\t");
            rest = more;
            width = width.min(180);
        }
        out.push_str(rest);
        out.push('\n');
    }
    out
}

/// All that was said but for the coverage, which names the file.
fn story(look: &Look) -> Vec<Value> {
    let mut records = look.ended.records.clone();
    records.retain(|record| record["type"] != "coverage");
    for record in &mut records {
        if let Some(unknown) = record.get_mut("unknown") {
            *unknown = Value::Null;
        }
    }
    records
}

fn same(one: &Look, other: &Look) -> anyhow::Result<()> {
    let (one, other) = (story(one), story(other));
    for (one, other) in one.iter().zip(&other) {
        ensure!(one == other, "{one:#}\nand\n{other:#}");
    }
    ensure!(
        one.len() == other.len(),
        "{} and {} records",
        one.len(),
        other.len()
    );
    Ok(())
}

fn other_forms() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = fixture(DOCKERSHIM);
    let plain = replay(&[&path], &[])?;
    let text = fs::read_to_string(&path)?;
    let wrapped = folder.path().join("wrapped");
    fs::write(&wrapped, folded(&text, 197))?;
    same(&plain, &replay(&[&wrapped], &[])?).context("wrapped")?;
    for (program, name) in [("gzip", "log.gz"), ("zstd", "log.zst")] {
        let packed = folder.path().join(name);
        let status = Command::new(program)
            .arg("-c")
            .stdin(File::open(&path)?)
            .stdout(File::create(&packed)?)
            .stderr(Stdio::null())
            .status()?;
        ensure!(status.success(), "{program}: {status}");
        let told = replay(&[&packed], &[])?;
        let coverage = told.ended.records[0].to_string();
        ensure!(coverage.contains(program), "{coverage}");
        same(&plain, &told).context(program)?;
    }
    let output = command(&["replay", "-o", "json", "-"])?
        .stdin(File::open(&path)?)
        .output()?;
    let lines = String::from_utf8(output.stdout)?;
    let piped: Vec<Value> = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let kept = |record: &&Value| record["type"] != "coverage" && record["type"] != "summary";
    let whole: Vec<&Value> = plain.ended.records.iter().filter(kept).collect();
    let piped: Vec<&Value> = piped.iter().filter(kept).collect();
    ensure!(whole == piped, "standard input says otherwise");
    ensure!(output.status.code() == Some(1), "{}", output.status);
    Ok(())
}

fn containerd_night() -> anyhow::Result<()> {
    let told = replayed("containerd.log")?;
    told.expect_code(1)?;
    let expected = ["add-failed", "del-retry", "sandbox-churn"];
    ensure!(rules(&told) == expected, "{:?}", rules(&told));
    let failed = told.ended.records.iter().filter(|record| {
        is_event(record, "cni-call") && record["command"] == "ADD" && record["error"].is_object()
    });
    ensure!(
        failed.count() == 4,
        "each of the four is told by four lines"
    );
    let add = opened(&told, "add-failed")[0];
    ensure!(add["cause"] == "range-exhausted", "{add:#}");
    ensure!(
        add["pod"]["uid"] == "1b9f2a44-0c3e-4d1a-8a77-2f6d5e4c3b2a",
        "{add:#}"
    );
    let last = told
        .ended
        .records
        .iter()
        .rfind(|record| is_finding(record, "add-failed"));
    let last = last.context("add-failed")?;
    ensure!(
        last["state"] == "resolved" && last["attempts"] == 4,
        "{last:#}"
    );
    ensure!(
        last["time"] == "2025-06-02T01:25:55.480000000Z",
        "its time in the log: {last:#}"
    );
    let retry = told
        .ended
        .records
        .iter()
        .rfind(|record| is_finding(record, "del-retry"));
    let retry = retry.context("del-retry")?;
    ensure!(retry["attempts"] == 3, "{retry:#}");
    ensure!(
        retry["error"]["msg"].to_string().contains("[redacted]"),
        "{retry:#}"
    );
    let kinds = ["sandbox-added", "sandbox-removed", "pod-deleted"];
    for kind in kinds {
        let told = told
            .ended
            .records
            .iter()
            .any(|record| is_event(record, kind));
        ensure!(told, "no {kind}");
    }
    Ok(())
}

fn kubelet_alone() -> anyhow::Result<()> {
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

fn newer_calico() -> anyhow::Result<()> {
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

fn crio() -> anyhow::Result<()> {
    let told = replayed("crio.log")?;
    told.expect_code(1)?;
    ensure!(rules(&told) == ["add-failed"], "{:?}", rules(&told));
    let add = opened(&told, "add-failed")[0];
    ensure!(add["pod"]["name"] == "api-1", "{add:#}");
    ensure!(
        add["error"]["msg"] == "timed out waiting for OVS port binding",
        "{add:#}"
    );
    let ended = told
        .ended
        .records
        .iter()
        .filter(|record| is_event(record, "cni-call"));
    let ended: Vec<_> = ended
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

fn kernel() -> anyhow::Result<()> {
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
    let stall = told
        .ended
        .records
        .iter()
        .rfind(|record| is_finding(record, "netns-teardown-stall"));
    let stall = stall.context("netns-teardown-stall")?;
    ensure!(
        stall["severity"] == "critical" && stall["state"] == "resolved",
        "{stall:#}"
    );
    let killed = told
        .ended
        .records
        .iter()
        .filter(|record| is_event(record, "oom-killed"));
    let killed: Vec<&Value> = killed.collect();
    ensure!(
        killed.len() == 1 && killed[0]["limited"] == true,
        "{killed:#?}"
    );
    let uid = "0f0e0d0c-1111-4222-8333-444455556666";
    ensure!(killed[0]["task"]["pod_uid"] == uid, "{killed:#?}");
    Ok(())
}

fn two_files() -> anyhow::Result<()> {
    let whole = replayed("containerd.log")?;
    let folder = Scratch::create()?;
    let text = fs::read_to_string(fixture("containerd.log"))?;
    let mut paths = Vec::new();
    for writer in [" kubelet[", " containerd["] {
        let path = folder.path().join(writer.trim_matches([' ', '[']));
        let mut file = File::create(&path)?;
        for line in text.lines().filter(|line| line.contains(writer)) {
            writeln!(file, "{line}")?;
        }
        paths.push(path);
    }
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let parts = replay(&paths, &["--year", "2025"])?;
    same(&whole, &parts)?;
    let signals = parts.ended.records[0]["signals"]
        .as_array()
        .context("signals")?;
    let logs = signals.iter().filter(|signal| signal["signal"] == "log");
    ensure!(logs.count() == 2, "{signals:#?}");
    Ok(())
}

fn two_hosts() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let text = fs::read_to_string(fixture(DOCKERSHIM))?;
    let path = folder.path().join("both");
    fs::write(
        &path,
        format!("{text}{}", text.replace("shelf-07", "shelf-08")),
    )?;
    let told = replay(&[&path], &[])?;
    let stale = opened(&told, "stale-del");
    let nodes: Vec<&Value> = stale.iter().map(|finding| &finding["node"]).collect();
    ensure!(
        nodes.len() == 2 && nodes.contains(&&"shelf-07".into()),
        "{nodes:?}"
    );
    ensure!(nodes.contains(&&"shelf-08".into()), "{nodes:?}");
    let summary = told.summary()?;
    ensure!(summary["rules"]["stale-del"]["open"] == 2, "{summary:#}");
    ensure!(summary["node"] == "shelf-07,shelf-08", "{summary:#}");
    let text = command(&["replay"])?.arg(&path).output()?;
    let text = String::from_utf8(text.stdout)?;
    let named = |node: &str| {
        text.lines()
            .any(|line| line.ends_with(&format!("node {node}")))
    };
    ensure!(named("shelf-07") && named("shelf-08"), "{text}");
    Ok(())
}

/// As a page tells an incident: the end first, then what led to it, and some
/// of it again.
fn twice_and_backwards() -> anyhow::Result<()> {
    let plain = replayed(DOCKERSHIM)?;
    let text = fs::read_to_string(fixture(DOCKERSHIM))?;
    let part = |from: &str, to: &str| -> String {
        let lines = text.lines().filter(|line| {
            let time = line.get(7..15).unwrap_or_default();
            (from..to).contains(&time)
        });
        lines.map(|line| format!("{line}\n")).collect()
    };
    let page = [
        "This is how it ended:\n\n",
        &part("23:04:40", "23:08"),
        "\nand this is what had come before:\n\n",
        &part("23:02", "23:04:40"),
        "\nOnce more, with the newer version:\n\n",
        &part("23:02", "23:03"),
    ];
    let folder = Scratch::create()?;
    let path = folder.path().join("page");
    fs::write(&path, page.concat())?;
    same(&plain, &replay(&[&path], &[])?)
}

fn unnamed() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("kubelet.log");
    let id = "5a0f3c2e9b71d4860c1f2e3d4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978";
    let lines = format!(
        "E0301 09:00:00.000001    12 cni.go:364] Error adding shop_a-0/{id} to network \
         calico/pods: no route\n"
    );
    fs::write(&path, lines)?;
    let args = [
        "--year",
        "2021",
        "--utc-offset",
        "+05:30",
        "--node-name",
        "n9",
    ];
    let told = replay(&[&path], &args)?;
    let add = opened(&told, "add-failed")[0];
    ensure!(
        add["node"] == "n9" && add["error"]["msg"] == "no route",
        "{add:#}"
    );
    ensure!(add["time"] == "2021-03-01T03:30:00.000001000Z", "{add:#}");
    let path = path.display().to_string();
    for wrong in [["--utc-offset", "CST"], ["--year", "21"]] {
        let output = run(&[&["replay"], &wrong[..], &[&path]].concat())?;
        refused(&output, &[wrong[0]])?;
    }
    Ok(())
}

fn nothing_understood() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("diary");
    fs::write(&path, "Dear diary,\ntoday nothing happened.\n")?;
    let named = path.display().to_string();
    let output = run(&["replay", &named])?;
    refused(&output, &[&named, "kubelet", "--record"])?;
    // The others are told all the same.
    let good = fixture("kernel.log").display().to_string();
    let output = run(&["replay", "-o", "json", &named, &good])?;
    ensure!(output.status.code() == Some(2), "{}", output.status);
    let told = String::from_utf8(output.stdout)?;
    ensure!(told.contains("blocked-task"), "{told}");
    ensure!(told.contains("nothing in it was understood"), "{told}");
    Ok(())
}
