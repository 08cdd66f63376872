//! `--kube-events`: what `kubectl describe` shows of the incident.

use node_tracer_tests::snapshot_run::KUBE;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::hangfs::HangFs;
use node_tracer_tests::kube::incident::KubeIncident;
use node_tracer_tests::kube::{Account, Kube, Running};
use node_tracer_tests::process::state;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::tracer::{SOON as END, Tracer, command, is_finding, netns_of};
use node_tracer_tests::wait;
use serde_json::{Value, json};

use super::{SOON, trace};

/// Events of the tracer's in a namespace, or in all.
fn listed(kube: &Kube, namespace: Option<&str>) -> anyhow::Result<Vec<Value>> {
    let place = namespace.map_or(String::new(), |name| format!("/namespaces/{name}"));
    let path = format!(
        "/apis/events.k8s.io/v1{place}/events?labelSelector=app.kubernetes.io/name=node-tracer"
    );
    let list = kube.expect("GET", &path, None)?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// The ghost's Events of this stage: on its pod, and on the node.
fn ghost_events(kube: &Kube, old: &Running, stage: &str) -> anyhow::Result<[Value; 2]> {
    wait::until(&format!("the Events: {stage}"), SOON, || {
        let all = listed(kube, None)?;
        let of = |kind: &str, name: &str| {
            let found = all.iter().find(|event| {
                let regarding = &event["regarding"];
                let named = event["metadata"]["name"].as_str().unwrap_or_default();
                regarding["kind"] == kind
                    && regarding["name"] == name
                    && named.starts_with("ghost-sandbox.")
                    && named.ends_with(&format!(".{stage}"))
            });
            found.cloned()
        };
        let pair = of("Pod", &old.pod.name).zip(of("Node", kube.name()));
        Ok(pair.map(|(pod, node)| [pod, node]))
    })
}

fn count(event: &Value) -> u64 {
    event["series"]["count"].as_u64().unwrap_or(1)
}

test!(KUBE, kube_events_tell_of_the_incident_once_and_go_on);
/// Without the right it is said once; with it the Events are there, and a second
/// tracer goes on with the first one's.
fn kube_events_tell_of_the_incident_once_and_go_on() -> anyhow::Result<()> {
    let mut incident = KubeIncident::new()?;
    let account = Account::create(incident.kube())?;
    account.grant(incident.kube())?;
    let config = account.kubeconfig().display().to_string();
    let args = ["--kubeconfig", &config, "--kube-events"];

    let mut refused = trace(incident.kube(), &args)?;
    let old = incident.start_old_pod("stuck")?;
    incident.force_delete()?;
    // Others may have ghosts on this machine at the same time.
    let is_ghost = |record: &Value| {
        is_finding(record, "ghost-sandbox") && netns_of(record) == Some(old.sandbox.netns_inode)
    };
    refused.wait_for("the ghost", SOON, is_ghost)?;
    wait::pause(Duration::from_secs(2))?;
    let ended = refused.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    let told = ended
        .stderr
        .matches("do not allow to create events.events.k8s.io");
    ensure!(told.count() == 1, "{}", ended.stderr);
    ensure!(
        ended.stderr.contains("grant create and patch"),
        "{}",
        ended.stderr
    );
    ensure!(listed(incident.kube(), None)?.is_empty(), "none is written");

    account.grant_events(incident.kube())?;
    wait::until("the right to come into force", SOON, || {
        Ok(account.may_write_events(incident.kube())?.then_some(()))
    })?;
    let mut tracer = trace(incident.kube(), &args)?;
    let ghost = tracer.wait_for("the ghost", SOON, is_ghost)?;
    let id = ghost["id"].as_str().context("no ID")?.to_owned();
    let kube = incident.kube();
    let [on_pod, on_node] = ghost_events(kube, &old, "suspected")?;
    println!(
        "        on the pod: {}",
        on_pod["note"].as_str().unwrap_or_default()
    );
    for (event, namespace) in [(&on_pod, &*old.pod.namespace), (&on_node, "kube-system")] {
        ensure!(
            event["reason"] == "GhostSandbox"
                && event["type"] == "Warning"
                && event["reportingController"] == "node-tracer"
                && event["reportingInstance"] == kube.name()
                && event["metadata"]["namespace"] == namespace,
            "{event:#}"
        );
        let note = event["note"].as_str().context("no note")?;
        ensure!(note.len() <= 1_024 && note.contains("First: "), "{note}");
    }
    ensure!(
        on_pod["regarding"]["uid"] == old.pod.uid.as_str(),
        "{on_pod:#}"
    );
    // kubectl reads them by the older API.
    let path = format!(
        "/api/v1/namespaces/{}/events?fieldSelector=involvedObject.name={}",
        old.pod.namespace, old.pod.name
    );
    let older = kube.expect("GET", &path, None)?;
    let of_ours = |event: &Value| event["reportingComponent"] == "node-tracer";
    let mut older = older["items"].as_array().into_iter().flatten();
    ensure!(older.any(of_ours), "kubectl describe pod shows it");
    // kubectl get events -A -l node-tracer/address=…
    let found = |address: &str| -> anyhow::Result<Vec<Value>> {
        let path = format!("/api/v1/events?labelSelector=node-tracer/address={address}");
        let list = kube.expect("GET", &path, None)?;
        let names = list["items"].as_array().into_iter().flatten();
        Ok(names
            .map(|event| event["metadata"]["name"].clone())
            .collect())
    };
    let address = old.sandbox.ip.context("no address")?;
    let names = found(&address.to_string())?;
    let both = [&on_pod, &on_node].map(|event| &event["metadata"]["name"]);
    ensure!(both.iter().all(|name| names.contains(name)), "{names:?}");
    ensure!(found("192.0.2.1")?.is_empty(), "another address has none");
    incident.garbage_collect()?;
    ghost_events(incident.kube(), &old, "armed")?;
    tracer.stop()?;

    let before = listed(incident.kube(), None)?.len();
    let again = trace(incident.kube(), &args)?;
    let kube = incident.kube();
    wait::until("the Events to be counted on", SOON, || {
        let events = ghost_events(kube, &old, "armed")?;
        Ok(events.iter().all(|event| count(event) == 2).then_some(()))
    })?;
    incident.release()?;
    let [over, _] = ghost_events(incident.kube(), &old, "resolved")?;
    ensure!(
        over["type"] == "Normal" && over["reason"] == "GhostSandboxResolved",
        "{over:#}"
    );
    let ended = again.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    let after = listed(incident.kube(), None)?;
    let news: Vec<&Value> = after
        .iter()
        .filter(|event| event["type"] == "Warning")
        .map(|event| &event["metadata"]["name"])
        .collect();
    println!(
        "        {before} Events before the second tracer, {} Warnings after",
        news.len()
    );
    let ghosts = news.iter().filter(|name| {
        let name = name.as_str().unwrap_or_default();
        name.starts_with(&format!("ghost-sandbox.{id}."))
    });
    ensure!(
        ghosts.count() == 4,
        "two phases, on pod and node: {news:#?}"
    );
    Ok(())
}

test!(
    &[Need::Root, Need::Tracer],
    kube_events_without_an_api_server_say_so
);
/// Nothing to ask it with is a mistake; one that is not there may come later.
fn kube_events_without_an_api_server_say_so() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let line = |options: &[&str]| -> anyhow::Result<(Option<i32>, String)> {
        let args = [
            "trace",
            "--cri",
            "none",
            "--pods",
            "none",
            "--duration",
            "2s",
        ];
        let output = command(&args)?
            .args(options)
            .env("HOME", folder.path())
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdout(Stdio::null())
            .output()?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.code(), stderr))
    };
    let (code, stderr) = line(&["--kube-events"])?;
    ensure!(
        code == Some(2) && stderr.contains("--kube-events") && stderr.contains("no credentials"),
        "{code:?}: {stderr}"
    );

    let (code, stderr) = line(&["--node-condition"])?;
    ensure!(
        code == Some(2) && stderr.contains("--node-condition needs the API server"),
        "{code:?}: {stderr}"
    );

    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let config = folder.path().join("kubeconfig");
    let server = format!("http://127.0.0.1:{port}");
    let content = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{ "name": "c", "cluster": { "server": server } }],
        "users": [{ "name": "u", "user": { "token": "s3cr3t" } }],
        "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
    });
    std::fs::write(&config, content.to_string())?;
    let config = config.display().to_string();
    let (code, stderr) = line(&["--kube-events=critical", "--kubeconfig", &config])?;
    let told = stderr.matches("cannot be reached").count();
    ensure!(
        code == Some(0) && told == 1 && !stderr.contains("s3cr3t"),
        "{code:?}: {stderr}"
    );
    let (code, stderr) = line(&["--kube-events=mild"])?;
    ensure!(code == Some(2) && stderr.contains("critical"), "{stderr}");
    Ok(())
}

test!(
    &[Need::Root, Need::Fuse, Need::Tracer],
    kube_events_with_a_kubeconfig_that_hangs_say_so
);
/// A file server that hangs, hangs nobody who starts a trace.
fn kube_events_with_a_kubeconfig_that_hangs_say_so() -> anyhow::Result<()> {
    let mut volume = HangFs::mount()?;
    let config = volume.file().display().to_string();
    let mut line = command(&["trace", "--cri", "none", "--pods", "none"])?;
    line.args(["--kube-events", "--kubeconfig", &config]);
    let tracer = Tracer::start(&mut line, |_| ())?;
    // The thread that reads keeps the process until the file is released.
    wait::until("the tracer to give up", SOON, || {
        Ok((state(tracer.pid()) == Some('Z')).then_some(()))
    })?;
    volume.release();
    let ended = tracer.wait_for_end(END)?;
    ensure!(
        ended.code == Some(2)
            && ended.stderr.contains("--kube-events")
            && ended.stderr.contains("no answer within"),
        "{:?}: {}",
        ended.code,
        ended.stderr
    );
    Ok(())
}
