//! `report`: a recording as one page that needs nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::incident::Incident;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, command, is_event, is_finding, netns_of};
use node_tracer_tests::wait;

use crate::command_line::{refused, run};

const INCIDENT: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Cgroup,
    IP,
    Need::Tracer,
    Need::Cni,
];
const BROWSER: &[Need] = &[Need::Tracer, Need::Program("chromium", "chromium")];

/// A short recording: a pod is stuck, deleted, and its address given to
/// another. Names are those of somebody who means harm.
fn written(folder: &Path) -> anyhow::Result<std::path::PathBuf> {
    let path = folder.join("run.jsonl");
    fs::write(&path, include_str!("report/hostile.jsonl"))?;
    Ok(path)
}

fn report(recording: &Path, page: &Path, more: &[&str]) -> anyhow::Result<std::process::Output> {
    let (recording, page) = (recording.display().to_string(), page.display().to_string());
    let mut args = vec!["report", &recording, "-o", &page];
    args.extend(more);
    run(&args)
}

/// What must be true of any page.
fn ensure_sound(page: &str) -> anyhow::Result<()> {
    for sign in [
        "=\"http", "url(http", "src=\"", "<script", "<link", "<img", "<iframe", "@import",
    ] {
        ensure!(!page.contains(sign), "{sign} is in the page");
    }
    let policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
    ensure!(page.contains(policy), "no policy");
    ensure!(page.len() < 4 << 20, "{} bytes", page.len());
    let hidden = |c: char| c.is_control() && c != '\n';
    ensure!(!page.contains(hidden), "a control character is in the page");
    for tag in [
        "html", "head", "body", "main", "section", "article", "svg", "table", "details",
    ] {
        let begins =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        let ends = page.matches(&format!("</{tag}>")).count();
        ensure!(begins == ends, "{begins} <{tag}>, {ends} </{tag}>");
    }
    Ok(())
}

/// The words of the story.
fn story(page: &str) -> &str {
    let begin = page.find("id=\"story\"").unwrap_or(0);
    let end = page.find("id=\"timeline\"").unwrap_or(page.len());
    page.get(begin..end).unwrap_or(page)
}

test!(INCIDENT, report_of_an_incident_tells_it);
fn report_of_an_incident_tells_it() -> anyhow::Result<()> {
    let mut incident = Incident::new()?;
    let folder = Scratch::create()?;
    let (path, page) = (
        folder.path().join("run.jsonl"),
        folder.path().join("page.html"),
    );
    let (named, pods) = (
        path.display().to_string(),
        incident.pods_file().display().to_string(),
    );
    let mut tracer = Tracer::trace_with(
        &[
            "--pods",
            &pods,
            "--stall-threshold",
            "900ms",
            "--record",
            &named,
        ],
        &[],
    )?;
    let old = incident.start_old_pod()?;
    let ghost = |tracer: &mut Tracer, key: &str, value: &str| -> anyhow::Result<()> {
        tracer.wait_for(&format!("ghost-sandbox: {value}"), SOON, |record| {
            let its = is_finding(record, "ghost-sandbox");
            its && netns_of(record) == Some(old.netns_inode) && record[key] == value
        })?;
        Ok(())
    };
    tracer.wait_for("the list with the pod", SOON, |record| {
        is_event(record, "pods-listed") && record["pods"][0]["name"] == old.pod.name.as_str()
    })?;
    let stuck = incident.force_delete()?;
    ghost(&mut tracer, "phase", "suspected")?;
    incident.garbage_collect()?;
    ghost(&mut tracer, "phase", "armed")?;
    let new = incident.start_new_pod()?;
    ghost(&mut tracer, "phase", "conflict")?;
    // A DEL that comes at once is not missed.
    wait::pause(Duration::from_secs(2))?;
    incident.release()?;
    ghost(&mut tracer, "state", "resolved")?;
    let lived = tracer.stop()?;
    ensure!(lived.code == Some(0), "{:?}: {}", lived.code, lived.stderr);
    drop(incident);

    let written = report(&path, &page, &[])?;
    let stderr = String::from_utf8_lossy(&written.stderr);
    ensure!(
        written.status.code() == Some(1),
        "{}: {stderr}",
        written.status
    );
    ensure!(stderr.is_empty() && written.stdout.is_empty(), "{stderr}");
    let mode = fs::metadata(&page)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "mode {mode:o}");
    let page = fs::read_to_string(&page)?;
    ensure_sound(&page)?;
    println!("        {} bytes", page.len());
    let (one, other) = (old.pod.name.as_str(), new.pod.name.as_str());
    for words in [
        format!("{} was in use twice for ", old.address),
        format!("shop/{one}"),
        format!("shop/{other}"),
        format!("checkout-api ({})", stuck.pid),
        String::from("uninterruptible sleep in "),
        String::from("it was deleted by force, or quickly"),
        String::from("No CNI DEL came for it before "),
        String::from("from then on the address could be handed out"),
        String::from("had it alone"),
        format!("conflict: both have {}", old.address),
        String::from("No records were lost."),
    ] {
        ensure!(
            page.contains(&words),
            "{words:?} is not in the page: {}",
            story(&page)
        );
    }
    for frame in &stuck.stack {
        ensure!(page.contains(frame.as_str()), "{frame} is not in the page");
    }
    Ok(())
}

test!(
    INCIDENT,
    report_of_two_nodes_has_one_timeline_and_the_address_that_both_have
);
/// A node with a ghost, and then another one, whose pod gets the ghost's address.
fn report_of_two_nodes_has_one_timeline_and_the_address_that_both_have() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let file = |name: &str| folder.path().join(name);
    let trace = |incident: &Incident, node: &str, record: &Path| {
        let pods = incident.pods_file().display().to_string();
        let record = record.display().to_string();
        let options = ["--node-name", node, "--pods", &pods, "--record", &record];
        Tracer::trace_with(
            &[&options[..], &["--stall-threshold", "900ms"]].concat(),
            &[],
        )
    };
    let (one, other) = (file("one.jsonl"), file("other.jsonl"));
    let mut incident = Incident::new()?;
    let mut tracer = trace(&incident, "n1", &one)?;
    let old = incident.start_old_pod()?;
    tracer.wait_for("the list with the pod", SOON, |record| {
        is_event(record, "pods-listed") && record["pods"][0]["name"] == old.pod.name.as_str()
    })?;
    incident.force_delete()?;
    tracer.wait_for("the ghost", SOON, |record| {
        is_finding(record, "ghost-sandbox") && netns_of(record) == Some(old.netns_inode)
    })?;
    tracer.stop()?;
    drop(incident);

    let mut incident = Incident::new()?;
    let mut tracer = trace(&incident, "n2", &other)?;
    let new = incident.start_old_pod()?;
    ensure!(
        new.address == old.address,
        "{} is not {}",
        new.address,
        old.address
    );
    tracer.wait_for("its address", SOON, |record| {
        is_event(record, "address-added") && netns_of(record) == Some(new.netns_inode)
    })?;
    wait::pause(Duration::from_secs(1))?;
    tracer.stop()?;
    drop(incident);

    let page = file("page.html");
    let (one, other) = (one.display().to_string(), other.display().to_string());
    let missing = file("missing.jsonl").display().to_string();
    let page_name = page.display().to_string();
    let written = run(&["report", &one, &missing, &other, "-o", &page_name])?;
    refused(&written, &["missing.jsonl", "1 of 3 files"])?;
    let page = fs::read_to_string(&page)?;
    ensure_sound(&page)?;
    let (old_name, new_name) = (&old.pod.name, &new.pod.name);
    for words in [
        String::from("The same address on several nodes"),
        format!(
            "{} is kept on n1 by shop/{old_name} (deleted), and shop/{new_name} on n2 got it at ",
            old.address
        ),
        String::from("Whether both are in one network is not known."),
        format!("whether shop/{old_name} (deleted) still had it then: the recording of n1 ends"),
        String::from("clock of n2: not compared with n1"),
        format!("shop/{old_name} on n1"),
        format!("shop/{new_name} on n2"),
    ] {
        ensure!(
            page.contains(&words),
            "{words:?} is not in the page: {}",
            story(&page)
        );
    }
    Ok(())
}

test!(&[Need::Root, Need::Tracer], scan_hands_its_recording_on);
fn scan_hands_its_recording_on() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let (path, page) = (folder.path().join("n.jsonl"), folder.path().join("n.html"));
    let scanned = run(&["scan", "--cri", "none", "--pods", "none", "--record", "-"])?;
    let text = String::from_utf8(scanned.stdout)?;
    let last = text.lines().last().unwrap_or_default();
    ensure!(last.contains("\"type\":\"ended\""), "{last}");
    fs::write(&path, text)?;
    let written = report(&path, &page, &[])?;
    ensure!(
        written.status.code() == scanned.status.code(),
        "{}",
        written.status
    );
    refused(&run(&["trace", "--record", "-"])?, &["scan --record -"])
}

test!(
    &[Need::Root, Need::Tracer],
    report_of_a_scan_says_what_was_seen
);
fn report_of_a_scan_says_what_was_seen() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let (path, page) = (
        folder.path().join("run.jsonl"),
        folder.path().join("page.html"),
    );
    let named = path.display().to_string();
    run(&[
        "scan", "--cri", "none", "--pods", "none", "--record", &named,
    ])?;
    let written = report(&path, &page, &[])?;
    let stderr = String::from_utf8_lossy(&written.stderr);
    ensure!(
        matches!(written.status.code(), Some(1 | 3)),
        "{}: {stderr}",
        written.status
    );
    let page = fs::read_to_string(&page)?;
    ensure_sound(&page)?;
    for words in ["of scan", "not seen", "--pods none"] {
        ensure!(page.contains(words), "{words:?} is not in the page");
    }
    Ok(())
}

test!(apart & [Need::Tracer], report_goes_where_it_may);
fn report_goes_where_it_may() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let recording = written(folder.path())?;
    let page = folder.path().join("page.html");
    fs::write(&page, "precious")?;
    refused(&report(&recording, &page, &[])?, &["page.html", "--force"])?;
    ensure!(
        fs::read_to_string(&page)? == "precious",
        "it was overwritten"
    );
    let forced = report(&recording, &page, &["--force"])?;
    ensure!(forced.status.code() == Some(1), "{}", forced.status);
    let text = fs::read_to_string(&page)?;
    ensure_sound(&text)?;
    let mode = fs::metadata(&page)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "mode {mode:o}");
    refused(
        &report(&recording, folder.path(), &["--force"])?,
        &["no regular file"],
    )?;
    let nowhere = folder.path().join("none/page.html");
    refused(&report(&recording, &nowhere, &[])?, &["none/page.html"])?;

    // From standard input, to standard output: the same but for the name.
    let piped = command(&["report", "-", "-o", "-"])?
        .stdin(fs::File::open(&recording)?)
        .stderr(Stdio::piped())
        .output()
        .context("report")?;
    ensure!(piped.status.code() == Some(1), "{}", piped.status);
    let piped = String::from_utf8_lossy(&piped.stdout);
    let name = recording.display().to_string();
    ensure!(
        piped.replace("standard input", &name) == text,
        "another page"
    );
    let left: Vec<_> = fs::read_dir(folder.path())?.collect();
    ensure!(left.len() == 2, "{left:?}");
    Ok(())
}

test!(apart & [Need::Tracer], report_refuses_what_is_no_recording);
fn report_refuses_what_is_no_recording() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let page = folder.path().join("page.html");
    let foreign = folder.path().join("foreign");
    refused(&report(&foreign, &page, &[])?, &["foreign", "No such file"])?;
    for (text, words) in [
        ("", "it is empty"),
        ("\u{7f}ELF\u{2}\u{1}\u{0}\u{0}", "is a program"),
        (
            "{\"schema\":\"node-tracer/1\",\"type\":\"event\"}\n",
            "could be understood",
        ),
    ] {
        fs::write(&foreign, text)?;
        refused(&report(&foreign, &page, &[])?, &["foreign", words])?;
    }
    ensure!(!page.exists(), "there is a page of nothing");
    refused(&run(&["report", "x"])?, &["--output"])
}

test!(
    apart & [Need::Tracer],
    report_of_a_damaged_recording_says_so
);
fn report_of_a_damaged_recording_says_so() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let recording = written(folder.path())?;
    let page = folder.path().join("page.html");
    let text = fs::read_to_string(&recording)?;
    let mut lines: Vec<&str> = text.lines().collect();
    lines.truncate(lines.len() - 1);
    lines.insert(9, "{\"time\": what");
    fs::write(&recording, lines.join("\n") + "\n{\"time\":\"2026-")?;
    let written = report(&recording, &page, &[])?;
    ensure!(written.status.code() == Some(1), "{}", written.status);
    let page = fs::read_to_string(&page)?;
    ensure_sound(&page)?;
    for words in [
        "run.jsonl:10",
        "recording-damaged",
        "its last line is not whole",
    ] {
        ensure!(page.contains(words), "{words:?} is not in the page");
    }
    Ok(())
}

test!(
    apart & [Need::Tracer],
    report_takes_little_memory_for_a_long_recording
);
/// The incident among 20,000 sandboxes that come and go.
fn report_takes_little_memory_for_a_long_recording() -> anyhow::Result<()> {
    const SANDBOXES: u32 = 20_000;
    let folder = Scratch::create()?;
    let short = written(folder.path())?;
    let (long, page) = (
        folder.path().join("long.jsonl"),
        folder.path().join("page.html"),
    );
    let text = fs::read_to_string(short)?;
    let lines: Vec<&str> = text.lines().collect();
    let mut whole = lines[..lines.len() - 1].join("\n") + "\n";
    for number in 0..SANDBOXES {
        let id = format!("{number:064x}");
        let time = format!(
            "2026-11-18T{:02}:{:02}:{:02}.{:03}Z",
            7 + number / 6_000,
            number / 100 % 60,
            number % 60,
            number % 1_000
        );
        let netns = format!(
            "{{\"inode\":{},\"cookie\":{}}}",
            4_026_600_000 + u64::from(number),
            50_000 + number
        );
        for event in [
            format!("\"event\":\"netns-created\",\"netns\":{netns}"),
            format!(
                "\"event\":\"cni-call\",\"command\":\"ADD\",\"container_id\":\"{id}\",\"ifname\":\"eth0\",\
                 \"netns_path\":\"/run/netns/{number}\",\"netns\":{netns},\"plugin\":\"bridge\",\
                 \"plugin_path\":\"/opt/cni/bin/bridge\",\"pid\":{number},\"parent_pid\":1,\
                 \"parent_comm\":\"containerd\",\"delegated\":false,\"trusted\":true,\"exit_code\":0,\
                 \"duration_ms\":1.0,\"result\":{{\"ips\":[\"10.{}.{}.{}\"]}}",
                100 + number % 100,
                number / 200 % 200,
                number % 200
            ),
            format!("\"event\":\"netns-destroyed\",\"netns\":{netns}"),
        ] {
            whole.push_str(&format!("{{\"time\":\"{time}\",{event}}}\n"));
        }
        if number.is_multiple_of(1_000) {
            whole.push_str(&format!("{{\"time\":\"{time}\",\"event\":\"tick\"}}\n"));
        }
    }
    whole.push_str(lines[lines.len() - 1]);
    fs::write(&long, whole + "\n")?;
    let bytes = fs::metadata(&long)?.len();
    let (named, paged) = (long.display().to_string(), page.display().to_string());
    let mut child = command(&["report", &named, "-o", &paged])?
        .stderr(Stdio::piped())
        .spawn()
        .context("report")?;
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let text = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok());
        peak = peak.max(kib.unwrap_or(0_u64));
        std::thread::sleep(Duration::from_millis(20));
    };
    ensure!(status.code() == Some(1), "{status}");
    let text = fs::read_to_string(&page)?;
    ensure_sound(&text)?;
    println!(
        "        {} MB read with {} MB resident at most; {} kB of page",
        bytes >> 20,
        peak >> 10,
        text.len() >> 10
    );
    ensure!(peak < 64 << 10, "{peak} kB resident");
    for words in [
        "10.0.3.7 was in use twice",
        "forgotten while the recording was read",
    ] {
        ensure!(text.contains(words), "{words:?} is not in the page");
    }
    Ok(())
}

test!(apart BROWSER, report_runs_in_a_browser_without_a_word);
/// Chromium says what a page asks for that it may not have, and what is wrong
/// with it, on its standard error.
fn report_runs_in_a_browser_without_a_word() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let recording = written(folder.path())?;
    let page = folder.path().join("page.html");
    let written = report(&recording, &page, &[])?;
    ensure!(written.status.code() == Some(1), "{}", written.status);
    let chromium = |page: &Path, log: &str| -> anyhow::Result<(String, String, String)> {
        let net = folder.path().join(log);
        let output = Command::new("timeout")
            .args([
                "60",
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
            ])
            .args(["--enable-logging=stderr", "--v=0", "--dump-dom"])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--no-first-run",
            ])
            .arg(format!(
                "--user-data-dir={}",
                folder.path().join("profile").display()
            ))
            .arg(format!("--log-net-log={}", net.display()))
            .arg(format!("file://{}", page.display()))
            .stdin(Stdio::null())
            .output()
            .context("chromium")?;
        ensure!(output.status.success(), "chromium: {}", output.status);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let requests = fs::read_to_string(&net).unwrap_or_default();
        Ok((text(&output.stdout), text(&output.stderr), requests))
    };
    let console = |log: &str| -> Vec<String> {
        let lines = log.lines().filter(|line| line.contains("CONSOLE"));
        lines.map(str::to_owned).collect()
    };
    // What is to be seen if something is wrong is seen.
    let bad = folder.path().join("bad.html");
    let text = fs::read_to_string(&page)?;
    fs::write(
        &bad,
        text.replace("<main>", "<main><img src=\"http://192.0.2.1/x.png\"/>"),
    )?;
    let (_, log, _) = chromium(&bad, "bad.json")?;
    ensure!(!console(&log).is_empty(), "chromium does not tell: {log}");

    let (dom, log, requests) = chromium(&page, "net.json")?;
    ensure!(console(&log).is_empty(), "{:?}", console(&log));
    ensure!(
        dom.contains("id=\"timeline\"") && dom.contains("</html>"),
        "no page: {dom:.200}"
    );
    for sign in ["<script", "<iframe", "onload=\"", "onerror=\""] {
        ensure!(!dom.contains(sign), "{sign} has become a part of the page");
    }
    let asked = requests.matches("evil.example").count();
    ensure!(asked == 0, "the page asks for something {asked} times");
    Ok(())
}
