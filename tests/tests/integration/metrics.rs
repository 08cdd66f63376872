//! `--metrics`: what a scraper reads while `trace` runs, and scrapers that
//! mean no good.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::collect::free_port;
use node_tracer_tests::collect::prometheus::Prometheus;
use node_tracer_tests::hangfs::HangFs;
use node_tracer_tests::incident::Incident;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::process::PodProcess;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, command, is_event, is_finding, netns_of};
use node_tracer_tests::wait;
use serde_json::Value;

const NEEDS: &[Need] = &[Need::Root, Need::Tracer];

/// The answer to one request, head and all.
fn ask(port: u16, request: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(SOON))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn scrape(port: u16) -> anyhow::Result<String> {
    let answer = ask(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
    ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
    ensure!(head.contains("application/openmetrics-text"), "{head}");
    ensure!(body.ends_with("# EOF\n"), "not whole: {body}");
    Ok(body.to_owned())
}

/// A series' value.
fn value(text: &str, series: &str) -> Option<f64> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    line.parse().ok()
}

test!(
    &[Need::Root, Need::Fuse, Need::Tracer],
    metrics_follow_findings_and_events
);
fn metrics_follow_findings_and_events() -> anyhow::Result<()> {
    let port = free_port()?;
    let port_text = port.to_string();
    let mut tracer = Tracer::trace(&[
        "--stall-threshold",
        "1s",
        "--metrics",
        &port_text,
        "--metrics-findings",
    ])?;
    let open = r#"node_tracer_findings{rule="blocked-task",severity="warning"}"#;
    let opened = r#"node_tracer_findings_opened_total{rule="blocked-task"}"#;
    let before = scrape(port)?;
    ensure!(
        value(&before, r#"node_tracer_ghost_sandboxes{phase="armed"}"#) == Some(0.0),
        "no series to alert on: {before}"
    );
    // The machine's own stuck tasks count, too.
    let base = |text: &str, series| value(text, series).unwrap_or(0.0);
    let (was_open, was_opened) = (base(&before, open), base(&before, opened));

    let mut volume = HangFs::mount()?;
    let netns = Netns::create()?;
    let mut reader = PodProcess::reader("reader", &netns, None, &mut volume)?;
    reader.kill_into_d()?;
    let pid = reader.pid();
    let is_about =
        |record: &Value| is_finding(record, "blocked-task") && record["holders"][0]["pid"] == pid;
    let found = tracer.wait_for("a blocked-task finding", SOON, |record| {
        is_about(record) && record["state"] == "open"
    })?;
    let id = format!("id={}}}", found["id"]);
    let has_it = |text: &str| {
        let mut lines = text.lines();
        lines.any(|line| line.starts_with("node_tracer_open_finding_info{") && line.contains(&id))
    };
    let stuck = scrape(port)?;
    ensure!(has_it(&stuck), "no {id}: {stuck}");
    ensure!(base(&stuck, open) >= was_open + 1.0, "{stuck}");
    ensure!(base(&stuck, opened) >= was_opened + 1.0, "{stuck}");
    ensure!(base(&stuck, "node_tracer_blocked_tasks") >= 1.0, "{stuck}");
    let created = r#"node_tracer_events_total{event="netns-created"}"#;
    ensure!(base(&stuck, created) >= 1.0, "{stuck}");
    let memory = base(&stuck, "process_resident_memory_bytes");
    ensure!((1e6..1e9).contains(&memory), "{memory} bytes");

    volume.release();
    reader.wait_for_end(Duration::from_secs(10))?;
    tracer.wait_for("its end", SOON, |record| {
        is_about(record) && record["state"] == "resolved"
    })?;
    let after = scrape(port)?;
    ensure!(
        base(&after, open) < base(&stuck, open),
        "still open: {after}"
    );
    ensure!(base(&after, opened) >= base(&stuck, opened), "{after}");
    ensure!(!has_it(&after), "still shown: {after}");
    drop(netns);
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    Ok(())
}

/// Waits until alerts of this name fire, or until none does.
fn wait_for_alert(server: &mut Prometheus, name: &str, fires: bool) -> anyhow::Result<Vec<Value>> {
    let what = if fires { "fires" } else { "is over" };
    wait::until(&format!("{name}: it {what}"), SOON, || {
        let alerts = server.firing(name)?;
        Ok((alerts.is_empty() != fires).then_some(alerts))
    })
}

test!(
    &[
        Need::Root,
        Need::Fuse,
        Need::Cgroup,
        IP,
        Need::Tracer,
        Need::Cni,
        Need::Program("prometheus", "prometheus"),
    ],
    prometheus_raises_a_ghosts_alerts_and_clears_them
);
/// The rules are loaded as they are shipped: these alerts have no `for`.
fn prometheus_raises_a_ghosts_alerts_and_clears_them() -> anyhow::Result<()> {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../node-tracer/packaging/prometheus/alerts.yaml")
        .canonicalize()?;
    let port = free_port()?;
    let mut incident = Incident::new()?;
    let pods = incident.pods_file().display().to_string();
    let metrics = port.to_string();
    let mut args = vec!["--pods", &pods, "--stall-threshold", "1s"];
    args.extend(["--metrics", &metrics, "--metrics-findings"]);
    let mut tracer = Tracer::trace(&args)?;
    let mut server = Prometheus::start(&rules, port)?;
    let target = format!("127.0.0.1:{port}");
    wait::until("a scrape", SOON, || {
        let up = server.query("node_tracer_build_info")?;
        Ok((!up.is_empty()).then_some(()))
    })?;
    for alert in ["NodeTracerAddressAtRisk", "NodeTracerAddressConflict"] {
        ensure!(server.firing(alert)?.is_empty(), "{alert} without a ghost");
    }

    let old = incident.start_old_pod()?;
    incident.force_delete()?;
    tracer.wait_for("the ghost", SOON, |record| {
        is_finding(record, "ghost-sandbox") && netns_of(record) == Some(old.netns_inode)
    })?;
    incident.garbage_collect()?;
    wait_for_alert(&mut server, "NodeTracerAddressAtRisk", true)?;
    incident.start_new_pod()?;
    let alerts = wait_for_alert(&mut server, "NodeTracerAddressConflict", true)?;
    ensure!(
        alerts[0]["labels"]["instance"] == *target && alerts[0]["labels"]["severity"] == "critical",
        "{alerts:?}"
    );
    let of_cluster = wait_for_alert(&mut server, "NodeTracerClusterConflict", true)?;
    ensure!(of_cluster.len() == 1, "{of_cluster:?}");
    let address = old.address.to_string();
    let series =
        format!(r#"node_tracer_open_finding_info{{phase="conflict",address="{address}"}}"#);
    ensure!(!server.query(&series)?.is_empty(), "{series}");

    incident.release()?;
    for alert in [
        "NodeTracerAddressAtRisk",
        "NodeTracerAddressConflict",
        "NodeTracerClusterConflict",
    ] {
        wait_for_alert(&mut server, alert, false)?;
    }
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    // The stage's own check counts it among what is left.
    drop(server);
    incident.clean()
}

test!(NEEDS, metrics_are_served_whatever_other_connections_do);
fn metrics_are_served_whatever_other_connections_do() -> anyhow::Result<()> {
    let port = free_port()?;
    let mut tracer = Tracer::trace(&["--metrics", &port.to_string()])?;
    let not_found = ask(port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")?;
    ensure!(not_found.starts_with("HTTP/1.1 404 "), "{not_found}");
    let post = "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    let refused = ask(port, post)?;
    ensure!(refused.starts_with("HTTP/1.1 405 "), "{refused}");
    let _ = ask(port, "\0\u{1}\u{2}\r\n\r\n");

    // All places are taken by those who say nothing; the stream goes on.
    let silent: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(("127.0.0.1", port)))
        .collect::<Result<_, _>>()?;
    let netns = Netns::create()?;
    let inode = netns.inode();
    tracer.wait_for("the namespace's creation", SOON, |record| {
        is_event(record, "netns-created") && record["netns"]["inode"] == inode
    })?;
    drop(silent);
    let start = Instant::now();
    wait::until("an answer", SOON, || Ok(scrape(port).ok().map(drop)))?;
    println!("an answer {:?} after the silent ones went", start.elapsed());
    drop(netns);
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    Ok(())
}

/// Connections that say nothing, each made anew as soon as it is closed, until
/// this is dropped.
struct Idle {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Idle {
    fn start(port: u16, count: usize) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let hold = || {
            let end = Arc::clone(&end);
            std::thread::spawn(move || {
                while !end.load(SeqCst) {
                    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
                        continue;
                    };
                    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
                    while !end.load(SeqCst) {
                        match stream.read(&mut [0; 16]) {
                            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                            _ => break,
                        }
                    }
                }
            })
        };
        let threads = (0..count).map(|_| hold()).collect();
        Self { end, threads }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.end.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

test!(
    NEEDS,
    metrics_are_served_while_idle_connections_are_renewed_as_they_close
);
fn metrics_are_served_while_idle_connections_are_renewed_as_they_close() -> anyhow::Result<()> {
    let port = free_port()?;
    let tracer = Tracer::trace(&["--metrics", &port.to_string()])?;
    let idle = Idle::start(port, 64);
    wait::pause(Duration::from_secs(1))?;
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        let start = Instant::now();
        // One that is slow to ask may have to make room itself, and asks again.
        wait::until("an answer", SOON, || Ok(scrape(port).ok()))?;
        slowest = slowest.max(start.elapsed());
    }
    println!("        the slowest of ten scrapes took {slowest:?}");
    // Prometheus waits for ten seconds, unless told otherwise.
    ensure!(slowest < Duration::from_secs(3), "{slowest:?}");
    drop(idle);

    // A request has to come at once.
    let mut silent = TcpStream::connect(("127.0.0.1", port))?;
    silent.set_read_timeout(Some(SOON))?;
    let start = Instant::now();
    let _ = silent.read(&mut [0; 16]);
    let held = start.elapsed();
    ensure!(held < Duration::from_secs(5), "held for {held:?}");
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    Ok(())
}

test!(NEEDS, a_sign_of_life_does_not_go_by_the_port_of_the_metrics);
fn a_sign_of_life_does_not_go_by_the_port_of_the_metrics() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let file = folder.path().join("alive").display().to_string();
    let probe = || -> anyhow::Result<(Option<i32>, String)> {
        let output = command(&["check", "--heartbeat", &file])?.output()?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.code(), stderr))
    };
    let (code, said) = probe()?;
    ensure!(code == Some(2) && said.contains(&file), "{code:?}: {said}");
    let port = free_port()?;
    let metrics = port.to_string();
    let tracer = Tracer::trace(&["--metrics", &metrics, "--heartbeat", &file])?;
    let idle = Idle::start(port, 64);
    let (code, said) = probe()?;
    ensure!(code == Some(0), "{code:?}: {said}");
    let first = std::fs::read(&file)?;
    wait::until("another sign of life", SOON, || {
        Ok((std::fs::read(&file)? != first).then_some(()))
    })?;
    drop(idle);
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    // Of long ago, by the kernel's own clock.
    std::fs::write(&file, "00000000000000000001\n")?;
    let (code, said) = probe()?;
    ensure!(code == Some(2) && said.contains("sign of life"), "{said}");
    Ok(())
}

test!(NEEDS, metrics_on_a_taken_port_are_served_once_it_is_free);
fn metrics_on_a_taken_port_are_served_once_it_is_free() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let folder = Scratch::create()?;
    let alive = folder.path().join("alive");
    let file = alive.display().to_string();
    let tracer = Tracer::trace(&["--metrics", &address.to_string(), "--heartbeat", &file])?;
    let first = std::fs::read(&alive)?;
    wait::until("another sign of life", SOON, || {
        Ok((std::fs::read(&alive)? != first).then_some(()))
    })?;
    drop(listener);
    wait::until("metrics on the port", SOON, || {
        Ok(scrape(address.port()).ok())
    })?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    let told = ended.stderr.matches("is taken").count();
    ensure!(told == 1, "told {told} times: {}", ended.stderr);
    ensure!(
        ended.stderr.contains(&address.to_string()) && ended.stderr.contains("ss -ltnp"),
        "{}",
        ended.stderr
    );
    Ok(())
}

test!(NEEDS, metrics_on_an_address_of_another_machine_are_refused);
fn metrics_on_an_address_of_another_machine_are_refused() -> anyhow::Result<()> {
    let address = "192.0.2.1:9464";
    let args = ["trace", "--cri", "none", "--pods", "none", "--metrics"];
    let output = command(&args)?.arg(address).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(2),
        "{}: {stderr}",
        output.status
    );
    ensure!(
        stderr.contains(address) && stderr.contains("give another"),
        "{stderr}"
    );
    Ok(())
}
