//! The tracer with the capabilities that its documentation lists, with one of
//! them missing, and what it holds on to. (Kernels, and what is taken away from
//! them: `cargo xtask vm --suite privileges`.)

use std::collections::BTreeSet;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::helper::Killed;
use node_tracer_tests::incident::Incident;
use node_tracer_tests::keeper::{By, Keeper};
use node_tracer_tests::netns::Netns;
use node_tracer_tests::process::PodProcess;
use node_tracer_tests::rights::{
    self, BPF, BPF_LOOP, Capability, DAC_READ_SEARCH, DOCUMENTED, KEPT, NET_ADMIN, Rights,
    SYS_ADMIN, SYS_PTRACE, mask, without,
};
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::snapshot_run::{SnapshotRun, run as look};
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, command, is_event, is_finding, netns_of};
use node_tracer_tests::wait;
use serde_json::{Value, json};

const NEEDS: &[Need] = &[Need::Root, Need::Tracer];
const INCIDENT: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Cgroup,
    IP,
    Need::Tracer,
    Need::Cni,
];
const SETPRIV: &[Need] = &[
    Need::Root,
    Need::Tracer,
    Need::Program("setpriv", "util-linux"),
];

/// Sources that are not the kernel are of no interest here.
const BARE: [&str; 4] = ["--pods", "none", "--cri", "none"];

fn of(capabilities: Vec<Capability>) -> Rights {
    Rights {
        capabilities: Some(capabilities),
        ..Rights::default()
    }
}

fn documented() -> Rights {
    of(DOCUMENTED.to_vec())
}

/// The tracer's command line with these rights.
fn limited(rights: &Rights, subcommand: &str, args: &[&str]) -> anyhow::Result<Command> {
    let mut line = command(&[&[subcommand, "-o", "json"], args].concat())?;
    rights.limit(&mut line)?;
    Ok(line)
}

fn trace(rights: &Rights, args: &[&str]) -> anyhow::Result<Tracer> {
    let mut tracer = Tracer::start(&mut limited(rights, "trace", args)?, |_| ())?;
    tracer.wait_until_ready()?;
    Ok(tracer)
}

/// A signal or source in a coverage record.
fn item<'a>(coverage: &'a Value, signal: &str) -> &'a Value {
    let mut items = coverage["signals"].as_array().into_iter().flatten();
    items
        .find(|item| item["signal"] == signal)
        .unwrap_or(&Value::Null)
}

/// How a signal is heard.
fn mechanism<'a>(coverage: &'a Value, signal: &str) -> &'a str {
    item(coverage, signal)["mechanism"]
        .as_str()
        .unwrap_or_default()
}

test!(
    INCIDENT,
    documented_capabilities_are_enough_for_the_incident
);
fn documented_capabilities_are_enough_for_the_incident() -> anyhow::Result<()> {
    expect_incident(&documented())
}

test!(INCIDENT, without_bpf_loop_the_whole_incident_is_told);
fn without_bpf_loop_the_whole_incident_is_told() -> anyhow::Result<()> {
    let rights = Rights {
        no_helper: Some(BPF_LOOP),
        ..documented()
    };
    let checked = look(&mut limited(&rights, "check", &BARE)?)?;
    let coverage = checked.coverage()?;
    ensure!(
        mechanism(coverage, "netns-destroyed") == "comparison"
            && item(coverage, "cni-call")["unknown"]
                .to_string()
                .contains("8 KiB"),
        "{coverage}"
    );
    expect_incident(&rights)
}

/// Who traces with these rights is told of the ghost, its holder, the calls and
/// what they did, and of the end.
fn expect_incident(rights: &Rights) -> anyhow::Result<()> {
    let mut incident = Incident::new()?;
    let pods = incident.pods_file().display().to_string();
    let args = ["--cri", "none", "--stall-threshold", "1s", "--pods", &pods];
    let mut tracer = trace(rights, &args)?;
    let old = incident.start_old_pod()?;
    incident.force_delete()?;
    incident.garbage_collect()?;
    incident.start_new_pod()?;
    let about = |record: &Value| netns_of(record) == Some(old.netns_inode);
    tracer.wait_for("the conflict, and its holder's stack", SOON, |record| {
        is_finding(record, "ghost-sandbox")
            && about(record)
            && record["phase"] == "conflict"
            && record["holders"]
                .to_string()
                .contains("request_wait_answer")
    })?;
    // From the plugin's pipes, and from inside the namespace.
    let call = tracer.wait_for("the first ADD", SOON, |record| {
        is_event(record, "cni-call") && about(record) && record["plugin"] == "bridge"
    })?;
    ensure!(
        call["result"]["ips"][0] == old.address.to_string(),
        "its result: {call}"
    );
    let effect = tracer.wait_for("its effect", SOON, |record| {
        is_event(record, "cni-effect") && about(record)
    })?;
    ensure!(
        !effect.to_string().contains("CAP_"),
        "it lacks something: {effect}"
    );
    rights::expect_no_more(tracer.pid(), mask(&KEPT))?;
    incident.release()?;
    tracer.wait_for("the ghost to be resolved", SOON, |record| {
        is_finding(record, "ghost-sandbox") && about(record) && record["state"] == "resolved"
    })?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    incident.clean()
}

test!(
    SETPRIV,
    another_user_with_the_documented_capabilities_traces
);
fn another_user_with_the_documented_capabilities_traces() -> anyhow::Result<()> {
    // The build folder may be closed to other users.
    let folder = Scratch::create()?;
    let copy = folder.path().join("node-tracer");
    std::fs::copy(node_tracer_tests::tracer::binary()?, &copy)?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open)?;
    // Those of them that this machine has to give.
    let held = rights::of_threads(std::process::id())?[0].sets[1];
    let names: Vec<String> = DOCUMENTED
        .iter()
        .filter(|(number, _)| held & 1 << number != 0)
        .map(|(_, name)| format!("+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let set = names.join(",");
    let mut line = Command::new("setpriv");
    line.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["--inh-caps", &set, "--ambient-caps", &set])
        .arg(&copy)
        .args(["trace", "-o", "json"])
        .args(BARE)
        .current_dir("/");
    let mut tracer = Tracer::start(&mut line, |_| ())?;
    tracer.wait_until_ready()?;
    let netns = Netns::create()?;
    tracer.wait_for("netns-created", SOON, |record| {
        is_event(record, "netns-created") && netns_of(record) == Some(netns.inode())
    })?;
    // The runtime's socket is closed to other users.
    let kept = mask(&KEPT) | 1 << 1;
    rights::expect_no_more(tracer.pid(), kept)?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    let coverage = ended.records.first().context("no records")?;
    ensure!(
        item(coverage, "privileges").is_null(),
        "nothing is missing: {coverage}"
    );
    Ok(())
}

test!(NEEDS, a_trace_keeps_nothing_that_only_attaching_takes);
fn a_trace_keeps_nothing_that_only_attaching_takes() -> anyhow::Result<()> {
    for rights in [Rights::default(), documented()] {
        let mut tracer = trace(&rights, &BARE)?;
        let mut netns = Netns::create()?;
        netns.delete()?;
        tracer.wait_for("netns-destroyed", SOON, |record| {
            is_event(record, "netns-destroyed") && netns_of(record) == Some(netns.inode())
        })?;
        let threads = rights::of_threads(tracer.pid())?;
        ensure!(threads.len() > 1, "threads beside the first: {threads:?}");
        rights::expect_no_more(tracer.pid(), mask(&KEPT))?;
        for thread in &threads {
            let [_, permitted, effective, bounding, _] = thread.sets;
            ensure!(
                permitted == mask(&KEPT) && effective == permitted,
                "it keeps what looking takes: {thread:x?}"
            );
            // Full root may shrink what others could be given, too.
            ensure!(
                rights.capabilities.is_some() || bounding & !mask(&KEPT) == 0,
                "what it executes could have more: {thread:x?}"
            );
        }
        let names: Vec<&str> = threads.iter().map(|thread| thread.name.as_str()).collect();
        ensure!(!names.contains(&"starter"), "it has not ended: {names:?}");
        let ended = tracer.stop()?;
        ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    }
    Ok(())
}

/// A server that takes connections and says nothing.
fn silent<S: Send + 'static>(mut accept: impl FnMut() -> std::io::Result<S> + Send + 'static) {
    std::thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok(stream) = accept() {
            held.push(stream);
        }
    });
}

/// A kubeconfig whose credentials come from a shell's command.
fn kubeconfig(path: &Path, server: &str, script: &str) -> anyhow::Result<()> {
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "/bin/sh", "args": ["-c", script],
    });
    let content = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{ "name": "c", "cluster": { "server": server } }],
        "users": [{ "name": "u", "user": { "exec": exec } }],
        "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
    });
    std::fs::write(path, content.to_string()).context("the kubeconfig")
}

test!(NEEDS, threads_that_read_what_others_say_have_no_capability);
fn threads_that_read_what_others_say_have_no_capability() -> anyhow::Result<()> {
    const BARE: [&str; 5] = [
        "pods",
        "kube-events",
        "node-condition",
        "cri-answers",
        "metrics",
    ];
    let folder = Scratch::create()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    let api = TcpListener::bind("127.0.0.1:0")?;
    let server = format!("http://{}", api.local_addr()?);
    silent(move || api.accept());
    let runtime = UnixListener::bind(at("cri.sock"))?;
    silent(move || runtime.accept());
    let script = format!(
        r#"cat /proc/self/status >>{}; echo '{{"status":{{"token":"t"}}}}'"#,
        at("plugin")
    );
    kubeconfig(Path::new(&at("kubeconfig")), &server, &script)?;
    let (config, socket) = (at("kubeconfig"), format!("unix://{}", at("cri.sock")));
    let args = ["--kubeconfig", &config, "--cri", &socket, "--kube-events"];
    let args = [&args[..], &["--node-condition", "--metrics", "127.0.0.1:0"]].concat();
    let tracer = trace(&Rights::default(), &args)?;
    let mut seen = BTreeSet::new();
    wait::until("all of these threads", SOON, || {
        for thread in rights::of_threads(tracer.pid())? {
            let [_, permitted, effective, ..] = thread.sets;
            let is_bare = BARE.contains(&thread.name.as_str());
            // What a thread begins with is its starter's for a moment.
            if is_bare && permitted | effective == 0 {
                seen.insert(thread.name);
            }
        }
        Ok((seen.len() == BARE.len()).then_some(()))
    })?;
    for thread in rights::of_threads(tracer.pid())? {
        let [_, permitted, ..] = thread.sets;
        let expected = match BARE.contains(&thread.name.as_str()) {
            true => 0,
            false => mask(&KEPT),
        };
        ensure!(permitted & !expected == 0, "{thread:x?}");
    }
    let plugin = std::fs::read_to_string(at("plugin"))?;
    let mut sets = plugin.lines().filter(|line| line.starts_with("Cap"));
    ensure!(
        sets.clone().count() >= 5
            && sets.all(|line| line.ends_with("0000000000000000") || line.starts_with("CapBnd")),
        "the plugin's: {plugin}"
    );
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    Ok(())
}

test!(
    NEEDS,
    another_users_kubeconfig_that_was_found_runs_no_program_as_root
);
fn another_users_kubeconfig_that_was_found_runs_no_program_as_root() -> anyhow::Result<()> {
    const NOBODY: u32 = 65_534;
    let folder = Scratch::create()?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open)?;
    let kube = folder.path().join(".kube");
    std::fs::create_dir(&kube)?;
    let (config, ran) = (kube.join("config"), folder.path().join("ran"));
    let script = format!("id -u >{}; exit 1", ran.display());
    kubeconfig(&config, "http://127.0.0.1:1", &script)?;
    let scan = |variable: &str, value: &Path, args: &[&str]| -> anyhow::Result<SnapshotRun> {
        let args = [&["scan", "-o", "json", "--cri", "none"], args].concat();
        let mut line = command(&args)?;
        line.env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST");
        line.env("HOME", "/nonexistent").env(variable, value);
        look(&mut line)
    };
    let ways = [("HOME", folder.path()), ("KUBECONFIG", &config)];
    // The file, a folder above it.
    for strange in [&config, &kube] {
        std::os::unix::fs::chown(strange, Some(NOBODY), None)?;
        for (variable, value) in ways {
            let said = scan(variable, value, &[])?;
            let pods = item(said.coverage()?, "pods").to_string();
            let advice = format!("--kubeconfig {}", config.display());
            ensure!(!ran.exists(), "{variable}: it ran: {pods}");
            ensure!(pods.contains(&advice), "{variable}: {pods}");
        }
        std::os::unix::fs::chown(strange, Some(0), None)?;
    }
    // Root's own is run, as is what root names.
    for (variable, value) in ways {
        scan(variable, value, &[])?;
        ensure!(ran.exists(), "{variable}: root's own was not run");
        std::fs::remove_file(&ran)?;
    }
    std::os::unix::fs::chown(&config, Some(NOBODY), None)?;
    let given = config.display().to_string();
    scan("A", Path::new("b"), &["--kubeconfig", &given])?;
    ensure!(ran.exists(), "what was given was not run");
    Ok(())
}

test!(SETPRIV, the_tracers_memory_is_roots_whoever_runs_it);
fn the_tracers_memory_is_roots_whoever_runs_it() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let copy = folder.path().join("node-tracer");
    std::fs::copy(node_tracer_tests::tracer::binary()?, &copy)?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open)?;
    let mut child = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&copy)
        .args(["replay", "-"])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("setpriv")?;
    let own = format!("/proc/{}", child.id());
    let hidden = wait::until("its memory to be root's", SOON, || {
        let name = std::fs::read_to_string(format!("{own}/comm"))?;
        let owner = std::fs::metadata(format!("{own}/environ"))?.uid();
        Ok((name == "node-tracer\n" && owner == 0).then_some(()))
    });
    let _ = child.kill();
    let _ = child.wait();
    hidden
}

test!(NEEDS, a_scan_keeps_nothing_that_it_does_not_need);
fn a_scan_keeps_nothing_that_it_does_not_need() -> anyhow::Result<()> {
    let args = [&BARE[..], &["--duration", "4s"]].concat();
    let tracer = Tracer::start(&mut limited(&Rights::default(), "scan", &args)?, |_| ())?;
    // It has begun to look by then, and does so again.
    wait::pause(Duration::from_secs(2))?;
    rights::expect_no_more(tracer.pid(), mask(&KEPT))?;
    let ended = tracer.wait_for_end(SOON)?;
    ensure!(
        matches!(ended.code, Some(1 | 3)),
        "{:?}: {}",
        ended.code,
        ended.stderr
    );
    Ok(())
}

/// A process of another user that keeps a namespace by a descriptor.
struct OtherUsersTask(Killed);

impl OtherUsersTask {
    fn start(netns: &Netns) -> anyhow::Result<Self> {
        let child = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args(["sleep", "600"])
            .stdin(File::open(netns.path())?)
            .stdout(Stdio::null())
            .spawn()
            .context("setpriv")?;
        let this = Self(Killed(child));
        // Until it is the other user's.
        wait::until("sleep", SOON, || {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", this.0.0.id()))?;
            Ok((name == "sleep\n").then_some(()))
        })?;
        Ok(this)
    }
}

/// Whether an explanation of a namespace names a holder of this kind.
fn holds(explained: &SnapshotRun, kind: &str) -> bool {
    let netns = explained.explanation().map(|record| &record["netns"]);
    netns.is_ok_and(|netns| netns.to_string().contains(&format!("\"kind\":\"{kind}\"")))
}

/// What `explain` says of a namespace with these rights.
fn explain(rights: &Rights, inode: u64) -> anyhow::Result<SnapshotRun> {
    let inode = inode.to_string();
    let args = [&BARE[..], &[inode.as_str()]].concat();
    look(&mut limited(rights, "explain", &args)?)
}

test!(
    SETPRIV,
    a_missing_capability_is_named_and_costs_no_more_than_is_said
);
fn a_missing_capability_is_named_and_costs_no_more_than_is_said() -> anyhow::Result<()> {
    // One that a process is in, one that a descriptor keeps, and one a socket.
    let mut lived_in = Netns::create()?;
    let process = PodProcess::pause(&lived_in, None)?;
    lived_in.ip("addr add 198.18.44.7/32 dev lo")?;
    lived_in.delete()?;
    let mut opened = Netns::create()?;
    let stranger = OtherUsersTask::start(&opened)?;
    opened.delete()?;
    let mut asked = Netns::create()?;
    let keeper = Keeper::start(By::Socket, asked.path())?;
    asked.delete()?;

    let cases = [
        (SYS_PTRACE, lived_in.inode(), "task"),
        (DAC_READ_SEARCH, opened.inode(), "fd"),
        (NET_ADMIN, asked.inode(), "socket"),
    ];
    for (missing, inode, kind) in cases {
        let whole = explain(&documented(), inode)?;
        ensure!(holds(&whole, kind), "no {kind}: {}", whole.brief());
        let less = of(without(&[missing]));
        let seen = explain(&less, inode)?;
        ensure!(
            !holds(&seen, kind),
            "{kind} is seen without {}: {}",
            missing.1,
            seen.brief()
        );
        // And the other two are seen all the same, where that is not the one
        // that all of it rests on.
        for (_, other, its) in cases.iter().filter(|(_, other, _)| *other != inode) {
            if missing != SYS_PTRACE {
                let seen = explain(&less, *other)?;
                ensure!(holds(&seen, its), "no {its}: {}", seen.brief());
            }
        }
    }
    for missing in [SYS_PTRACE, DAC_READ_SEARCH, NET_ADMIN, SYS_ADMIN] {
        let scan = look(&mut limited(&of(without(&[missing])), "scan", &BARE)?)?;
        let said = item(scan.coverage()?, "privileges");
        ensure!(
            said["reason"] == format!("no {}", missing.1),
            "{}: {said}",
            missing.1
        );
        ensure!(
            said["unknown"]
                .as_array()
                .is_some_and(|unknown| unknown.len() == 1),
            "{said}"
        );
    }
    // A look does not use eBPF, so it does not miss it.
    let scan = look(&mut limited(&of(without(&[BPF])), "scan", &BARE)?)?;
    ensure!(item(scan.coverage()?, "privileges").is_null());
    drop((process, stranger, keeper));
    Ok(())
}

test!(
    NEEDS,
    a_scan_without_the_kernels_list_says_so_and_judges_alike
);
fn a_scan_without_the_kernels_list_says_so_and_judges_alike() -> anyhow::Result<()> {
    let lacks = |run: &SnapshotRun| -> anyhow::Result<bool> {
        let said = |value: &Value| value.to_string().contains("kernel's own list");
        let in_coverage = said(&item(run.coverage()?, "kernel")["unknown"]);
        let in_summary = said(&run.summary()?["unknown"]);
        ensure!(in_coverage == in_summary, "{}", run.brief());
        Ok(in_summary)
    };
    let whole = look(&mut limited(&documented(), "scan", &BARE)?)?;
    let without = Rights {
        no_bpf: true,
        ..documented()
    };
    let less = look(&mut limited(&without, "scan", &BARE)?)?;
    ensure!(!lacks(&whole)?, "{}", whole.brief());
    ensure!(lacks(&less)?, "{}", less.brief());
    let (was, is) = (
        &whole.summary()?["not_checked"],
        &less.summary()?["not_checked"],
    );
    ensure!(was == is, "{was} and {is}");
    Ok(())
}

test!(NEEDS, a_trace_without_any_program_compares);
fn a_trace_without_any_program_compares() -> anyhow::Result<()> {
    let rights = Rights {
        no_bpf: true,
        ..Rights::default()
    };
    let mut tracer = trace(&rights, &BARE)?;
    let netns = Netns::create()?;
    let inode = netns.inode();
    tracer.wait_for("netns-created", SOON, |record| {
        is_event(record, "netns-created") && netns_of(record) == Some(inode)
    })?;
    drop(netns);
    tracer.wait_for("netns-destroyed", SOON, |record| {
        is_event(record, "netns-destroyed") && netns_of(record) == Some(inode)
    })?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    ensure!(ended.stderr.contains("comparison"), "{}", ended.stderr);
    let coverage = ended.records.first().context("no records")?;
    for (signal, expected) in [
        ("netns-created", "comparison"),
        ("inventory", "comparison"),
        ("cni-call", ""),
    ] {
        ensure!(
            mechanism(coverage, signal) == expected,
            "{signal}: {coverage}"
        );
    }
    Ok(())
}

test!(apart NEEDS, a_replay_needs_no_capability);
fn a_replay_needs_no_capability() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("run.jsonl").display().to_string();
    let args = [&BARE[..], &["--record", &path]].concat();
    let lived = look(&mut limited(&documented(), "scan", &args)?)?;
    let code = lived.ended.code;
    ensure!(matches!(code, Some(1 | 3)), "{}", lived.brief());
    let again = look(&mut limited(&of(Vec::new()), "replay", &[&path])?)?;
    ensure!(again.ended.code == code, "{}", again.brief());
    Ok(())
}
