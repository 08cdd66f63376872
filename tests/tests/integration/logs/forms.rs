//! The same log in other forms tells the same.

use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::snapshot_run::SnapshotRun;
use node_tracer_tests::tracer::command;
use serde_json::Value;

use super::{DOCKERSHIM, fixture, opened, replay, replayed};
use crate::command_line::{refused, run};

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
fn story(look: &SnapshotRun) -> Vec<Value> {
    let mut records = look.ended.records.clone();
    records.retain(|record| record["type"] != "coverage");
    for record in &mut records {
        if let Some(unknown) = record.get_mut("unknown") {
            *unknown = Value::Null;
        }
    }
    records
}

fn same(one: &SnapshotRun, other: &SnapshotRun) -> anyhow::Result<()> {
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

test!(
    apart
        & [
            Need::Tracer,
            Need::Program("gzip", "gzip"),
            Need::Program("zstd", "zstd"),
        ],
    logs_that_are_folded_packed_or_piped_say_the_same
);
fn logs_that_are_folded_packed_or_piped_say_the_same() -> anyhow::Result<()> {
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

test!(apart super::TRACER, logs_of_one_node_in_two_files_are_one_story);
fn logs_of_one_node_in_two_files_are_one_story() -> anyhow::Result<()> {
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

test!(apart super::TRACER, logs_of_two_hosts_are_two_stories);
fn logs_of_two_hosts_are_two_stories() -> anyhow::Result<()> {
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

test!(apart super::TRACER, logs_that_say_things_twice_and_backwards_are_put_right);
/// As a page tells an incident: the end first, then what led to it, and some
/// of it again.
fn logs_that_say_things_twice_and_backwards_are_put_right() -> anyhow::Result<()> {
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

test!(apart super::TRACER, logs_need_not_name_host_year_or_zone);
fn logs_need_not_name_host_year_or_zone() -> anyhow::Result<()> {
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

test!(apart super::TRACER, logs_that_show_nothing_wrong_are_no_error);
fn logs_that_show_nothing_wrong_are_no_error() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("diary");
    fs::write(&path, "Dear diary,\ntoday nothing happened.\n")?;
    let named = path.display().to_string();
    let output = run(&["replay", &named])?;
    ensure!(output.status.code() == Some(0), "{}", output.status);
    let told = String::from_utf8(output.stdout)?;
    let told: Vec<&str> = told.split_whitespace().collect();
    let told = told.join(" ");
    ensure!(
        told.contains("read 2 lines; nothing fails to start"),
        "{told}"
    );
    Ok(())
}

test!(apart super::TRACER, logs_of_which_nothing_is_understood_are_refused);
fn logs_of_which_nothing_is_understood_are_refused() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("noise");
    fs::write(&path, b"a\0b\0c\n\x01\0\x02\n")?;
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
