//! Outputs that are not read, and disks that are full.

use node_tracer_tests::process;
use node_tracer_tests::test;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::calls::Calls;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::small_disk::SmallDisk;
use node_tracer_tests::tracer::{SOON, Tracer, command, is_event, is_finding, netns_of};
use node_tracer_tests::wait;
use serde_json::Value;

use super::piped::Piped;
use super::{recorded, whole_lines};

/// Calls: more than the queue and the pipe hold.
const MANY: usize = 3_500;
/// Longer than the end may take, on a busy machine too.
const BOUNDED: Duration = Duration::from_secs(8);

/// A size from /proc/PID/status, KiB.
fn memory(pid: u32, key: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.trim_matches(':').split_whitespace().next());
    Ok(number.context(key.to_owned())?.parse()?)
}

/// Waits until a namespace that is made now is in the recording.
fn goes_on(recording: &Path) -> anyhow::Result<()> {
    let marker = Netns::create()?;
    let name = format!("\"inode\":{}", marker.inode());
    wait::until("the recording to go on", SOON, || {
        let text = fs::read_to_string(recording)?;
        let told = |line: &str| line.contains("netns-created") && line.contains(&name);
        Ok(text.lines().any(told).then_some(()))
    })
}

/// Starts a trace that records, with this as its standard output.
fn recording(to: &Path, change: impl FnOnce(&mut Command)) -> anyhow::Result<Child> {
    let args = ["trace", "-o", "json", "--pods", "none", "--cri", "none"];
    let mut line = command(&args)?;
    line.arg("--record").arg(to).stderr(Stdio::piped());
    change(&mut line);
    line.spawn().context("start the tracer")
}

/// Ends it; what it said on stderr.
fn end(mut child: Child) -> anyhow::Result<String> {
    process::signal(child.id(), libc::SIGTERM)?;
    let mut said = String::new();
    let stderr = child.stderr.take().context("no pipe")?;
    BufReader::new(stderr).read_to_string(&mut said)?;
    let status = child.wait()?;
    ensure!(status.code() == Some(0), "{status}: {said}");
    Ok(said)
}

test!(
    super::NEEDS,
    faults_reader_that_goes_is_counted_as_loss_where_others_read_on
);
fn faults_reader_that_goes_is_counted_as_loss_where_others_read_on() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("run.jsonl");
    let mut child = recording(&path, |line| {
        line.stdout(Stdio::piped());
    })?;
    let stdout = child.stdout.take().context("no pipe")?;
    let mut first = String::new();
    BufReader::new(stdout).read_line(&mut first)?;
    ensure!(first.contains("coverage"), "{first}");
    // The reader is gone by now.
    let told = goes_on(&path).and_then(|()| goes_on(&path)).and_then(|()| {
        wait::until("the loss to be told", SOON, || {
            let text = fs::read_to_string(&path)?;
            Ok(text.contains("\"output-closed\"").then_some(()))
        })
    });
    let said = end(child)?;
    told.with_context(|| said.clone())?;
    ensure!(
        said.contains("the reader of standard output is gone"),
        "{said}"
    );
    let told = fs::read_to_string(&path)?
        .matches("\"output-closed\"")
        .count();
    ensure!(told == 1, "told {told} times");
    Ok(())
}

test!(super::NEEDS, faults_start_without_standard_output_is_said);
fn faults_start_without_standard_output_is_said() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("run.jsonl");
    let child = recording(&path, |line| {
        let close = || {
            // SAFETY: close takes no pointers.
            match unsafe { libc::close(libc::STDOUT_FILENO) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        line.args(["--duration", "3s"]);
        // SAFETY: the closure makes one system call.
        unsafe { line.pre_exec(close) };
    })?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(0), "{}: {said}", output.status);
    ensure!(said.contains("cannot write the output"), "{said}");
    let recorded = fs::read_to_string(&path)?;
    ensure!(
        recorded.contains("\"type\":\"ended\""),
        "it is not whole: {recorded}"
    );
    Ok(())
}

test!(super::NEEDS, faults_reader_that_stops_stops_nobody_else);
fn faults_reader_that_stops_stops_nobody_else() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let recording = folder.path().join("run.jsonl");
    let named = recording.display().to_string();
    let calls = Calls::create()?;
    let mut tracer = Piped::start(&["--record", &named], Some(folder.path()))?;
    let before = memory(tracer.pid(), "VmRSS")?;
    calls.make(MANY)?;
    goes_on(&recording)?;
    let grown = memory(tracer.pid(), "VmHWM")?.saturating_sub(before) / 1024;
    println!("        nobody reads: {grown} MiB more at most");
    ensure!(grown < 24, "{grown} MiB more");
    let said = tracer.stderr()?;
    ensure!(said.contains("standard output is not read"), "{said}");

    tracer.signal(libc::SIGTERM);
    let (status, took) = tracer.end()?;
    println!("        ended {} ms after SIGTERM", took.as_millis());
    ensure!(took < BOUNDED, "{took:?}");
    let said = tracer.stderr()?;
    ensure!(status.code() == Some(0), "{status}: {said}");
    ensure!(
        said.contains("did not get to standard output"),
        "what did not get out is not said: {said}"
    );
    // What did get out is whole.
    let read = tracer.read()?.join();
    let read = read.map_err(|_| anyhow::anyhow!("panicked"))?;
    let printed = whole_lines(&read)?;
    let lines = whole_lines(&fs::read_to_string(&recording)?)?;
    let last = lines.last().context("nothing recorded")?;
    ensure!(last["type"] == "ended", "the last line recorded: {last}");
    let all: Vec<&Value> = recorded(&lines).collect();
    let events = printed.iter().filter(|line| line["type"] == "event");
    for (event, expected) in events.zip(&all) {
        ensure!(
            event["time"] == expected["time"] && event["event"] == expected["event"],
            "out of order: {event}, not {expected}"
        );
    }
    ensure!(all.len() > MANY / 2, "{} recorded", all.len());
    Ok(())
}

test!(
    super::NEEDS,
    faults_reader_that_reads_again_is_told_of_the_gap
);
fn faults_reader_that_reads_again_is_told_of_the_gap() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let recording = folder.path().join("run.jsonl");
    let named = recording.display().to_string();
    let calls = Calls::create()?;
    let mut tracer = Piped::start(&["--record", &named], Some(folder.path()))?;
    calls.make(MANY)?;
    goes_on(&recording)?;
    // The pager goes on.
    let reading = tracer.read()?;
    wait::until("the loss to be told", SOON, || {
        let text = fs::read_to_string(&recording)?;
        Ok(text.contains("\"output-slow\"").then_some(()))
    })?;
    goes_on(&recording)?;
    tracer.signal(libc::SIGTERM);
    let (status, _) = tracer.end()?;
    ensure!(status.code() == Some(0), "{status}: {}", tracer.stderr()?);
    let read = reading.join().map_err(|_| anyhow::anyhow!("panicked"))?;
    let printed = whole_lines(&read)?;
    let summary = printed.last().context("nothing printed")?;
    ensure!(summary["type"] == "summary", "the last line: {summary}");
    let lost = summary["events_lost"]["output-slow"].as_u64();
    let lost = lost.with_context(|| format!("nothing lost: {summary}"))?;
    ensure!(
        printed.iter().any(|line| is_finding(line, "events-lost")),
        "no finding"
    );
    // The number that is told is the number that is missing.
    let lines = whole_lines(&fs::read_to_string(&recording)?)?;
    let all = recorded(&lines).count() as u64;
    let events = printed.iter().filter(|line| line["type"] == "event");
    let events = events.count() as u64;
    println!("        {all} recorded, {events} read, {lost} counted as lost");
    ensure!(lost > 0 && events + lost == all, "{all}, {events}, {lost}");
    Ok(())
}

test!(
    super::NEEDS,
    faults_stopped_reader_of_stderr_too_does_not_keep_it_from_ending
);
fn faults_stopped_reader_of_stderr_too_does_not_keep_it_from_ending() -> anyhow::Result<()> {
    let calls = Calls::create()?;
    let mut tracer = Piped::start(&[], None)?;
    calls.make(MANY)?;
    tracer.signal(libc::SIGINT);
    let (status, took) = tracer.end()?;
    ensure!(
        took < BOUNDED && status.code() == Some(0),
        "{status}, {took:?}"
    );
    Ok(())
}

/// Makes an event, and returns the namespace that it names.
fn event() -> anyhow::Result<u64> {
    Ok(Netns::create()?.inode())
}

test!(super::NEEDS, faults_full_disk_costs_records_and_no_line);
fn faults_full_disk_costs_records_and_no_line() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let disk = SmallDisk::mount(512)?;
    let path = disk.path().join("out.jsonl");
    let args = ["trace", "-o", "json", "--cri", "none", "--pods", "none"];
    let stderr = folder.path().join("stderr");
    let mut child = command(&args)?
        .stdout(fs::File::create(&path)?)
        .stderr(fs::File::create(&stderr)?)
        .spawn()?;
    let outcome = fill_and_free(&path, &stderr, &disk);
    process::signal(child.id(), libc::SIGTERM)?;
    let status = wait::until("the tracer to end", SOON, || Ok(child.try_wait()?));
    if status.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    outcome?;
    ensure!(
        status?.code() == Some(0),
        "{}",
        fs::read_to_string(&stderr)?
    );
    // One line was torn when the disk was full; all others are whole.
    let text = fs::read_to_string(&path)?;
    ensure!(text.ends_with('\n'), "the last line is torn");
    let torn = text
        .lines()
        .filter(|line| serde_json::from_str::<Value>(line).is_err());
    let torn = torn.count();
    ensure!(torn <= 1, "{torn} torn lines");
    let whole: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let told = whole
        .iter()
        .any(|line| is_event(line, "events-lost") && line["cause"] == "output-failed");
    ensure!(told, "the loss is not told");
    let last = whole.last().context("empty")?;
    ensure!(last["type"] == "summary", "the last line: {last}");
    Ok(())
}

fn fill_and_free(out: &Path, stderr: &Path, disk: &SmallDisk) -> anyhow::Result<()> {
    let names = |inode: u64| format!("\"inode\":{inode}");
    let is_told = |inode: u64| -> anyhow::Result<()> {
        wait::until("an event on the disk", SOON, || {
            Ok(fs::read_to_string(out)?
                .contains(&names(inode))
                .then_some(()))
        })
    };
    wait::until("the first record", SOON, || {
        Ok(fs::read_to_string(out)?.contains("coverage").then_some(()))
    })?;
    is_told(event()?)?;
    disk.fill()?;
    wait::until("the failure to be said", SOON, || {
        event()?;
        let said = fs::read_to_string(stderr)?;
        Ok(said.contains("cannot write the output").then_some(()))
    })?;
    disk.free()?;
    is_told(event()?)?;
    wait::until("the loss to be told", SOON, || {
        let told = fs::read_to_string(out)?.contains("\"output-failed\"");
        Ok(told.then_some(()))
    })
}

test!(
    super::NEEDS,
    faults_full_disk_ends_no_recording_and_costs_it_nothing
);
fn faults_full_disk_ends_no_recording_and_costs_it_nothing() -> anyhow::Result<()> {
    let disk = SmallDisk::mount(512)?;
    let path = disk.path().join("run.jsonl");
    let mut tracer = Tracer::trace(&["--record", &path.display().to_string()])?;
    goes_on(&path)?;
    disk.fill()?;
    let mut made = Vec::new();
    for _ in 0..30 {
        made.push(event()?);
        std::thread::sleep(Duration::from_millis(100));
    }
    // The stream goes on.
    let last = made.last().copied();
    tracer.wait_for("an event on a full disk", SOON, |record| {
        netns_of(record) == last
    })?;
    tracer.wait_for("the loss to be told", SOON, |record| {
        is_event(record, "events-lost") && record["cause"] == "recording-failed"
    })?;
    let before = fs::metadata(&path)?.len();
    disk.free()?;
    wait::until("the recording to go on", SOON, || {
        Ok((fs::metadata(&path)?.len() > before).then_some(()))
    })?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    for said in ["goes on when there is room", "run.jsonl goes on"] {
        ensure!(ended.stderr.contains(said), "{}", ended.stderr);
    }
    let lines = whole_lines(&fs::read_to_string(&path)?)?;
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    ensure!((of("recording"), of("ended")) == (1, 1), "{lines:#?}");
    let told = recorded(&lines).filter(|line| line["event"] == "netns-created");
    let told: Vec<u64> = told.filter_map(netns_of).collect();
    ensure!(
        told.ends_with(&made),
        "{made:?} were made, {told:?} are told"
    );
    Ok(())
}

test!(
    super::NEEDS,
    faults_recording_that_ends_on_a_full_disk_has_whole_lines
);
fn faults_recording_that_ends_on_a_full_disk_has_whole_lines() -> anyhow::Result<()> {
    let disk = SmallDisk::mount(512)?;
    let path = disk.path().join("run.jsonl");
    let tracer = Tracer::trace(&["--record", &path.display().to_string()])?;
    goes_on(&path)?;
    disk.fill()?;
    for _ in 0..20 {
        event()?;
    }
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    ensure!(ended.stderr.contains("it ends here"), "{}", ended.stderr);
    let summary = ended.records.iter().find(|it| it["type"] == "summary");
    let lost = summary.context("no summary")?["events_lost"]["recording-failed"].as_u64();
    ensure!(lost.is_some_and(|lost| lost > 0), "{summary:?}");
    let lines = whole_lines(&fs::read_to_string(&path)?)?;
    let last = lines.last().context("empty")?;
    ensure!(last["type"] != "ended", "it says that it is complete");
    let replayed = command(&["replay", &path.display().to_string()])?.output()?;
    let code = replayed.status.code();
    ensure!(matches!(code, Some(0 | 1 | 3)), "{code:?}");
    Ok(())
}
