//! Calls of CNI plugins that are not as they should be: that never end, with
//! names that are no text, with secrets, with answers that act on a terminal,
//! from inside a container.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::containerd::Containerd;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::pods::Pod;
use node_tracer_tests::runtime::{Run, Runtime};
use node_tracer_tests::scratch::{Scratch, container_id};
use node_tracer_tests::scripted;
use node_tracer_tests::snapshot_run::NODE;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, is_event};
use node_tracer_tests::wait;
use serde_json::{Value, json};

const RUNTIME: &[Need] = &[Need::Root, Need::Tracer];

const SECRET: &str = "eyJhbGciOi-s3cr3t-t0k3n";

/// A runtime, and a folder for plugins.
struct Stage {
    runtime: Runtime,
    netns: Netns,
    pod: Pod,
    plugins: PathBuf,
    _node: Netns,
    folder: Scratch,
}

impl Stage {
    fn new() -> anyhow::Result<Self> {
        Self::apart(0)
    }

    /// With a runtime in new namespaces of these kinds.
    fn apart(kinds: i32) -> anyhow::Result<Self> {
        let folder = Scratch::create()?;
        let node = Netns::create()?;
        let plugins = folder.path().join("plugins");
        fs::create_dir(&plugins)?;
        Ok(Self {
            runtime: Runtime::start_apart(&node, folder.path(), kinds)?,
            netns: Netns::create()?,
            pod: Pod::new("shop", "cart-0")?,
            plugins,
            _node: node,
            folder,
        })
    }

    fn plugin(&self, name: &str, commands: &str) -> anyhow::Result<PathBuf> {
        let path = self.plugins.join(name);
        scripted::write(&path, commands)?;
        Ok(path)
    }

    fn variables(&self, command: &str, id: &str) -> BTreeMap<&'static str, String> {
        let Pod {
            namespace,
            name,
            uid,
        } = &self.pod;
        BTreeMap::from([
            ("CNI_COMMAND", command.to_owned()),
            ("CNI_CONTAINERID", id.to_owned()),
            ("CNI_NETNS", self.netns.path().display().to_string()),
            ("CNI_IFNAME", "eth0".to_owned()),
            (
                "CNI_ARGS",
                format!(
                    "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_UID={uid}"
                ),
            ),
            ("CNI_PATH", self.plugins.display().to_string()),
        ])
    }

    fn add(&mut self, plugin: &Path, id: &str, config: &Value) -> anyhow::Result<Run> {
        let variables = self.variables("ADD", id);
        self.runtime.run(plugin, &variables, config)
    }
}

fn is_of(record: &Value, event: &str, id: &str) -> bool {
    is_event(record, event) && record["container_id"] == id
}

fn wait_for_call(tracer: &mut Tracer, id: &str) -> anyhow::Result<Value> {
    tracer.wait_for("the call", SOON, |record| is_of(record, "cni-call", id))
}

test!(RUNTIME, hostile_cni_plugin_that_never_ends_has_started);
/// It is told that it runs; the tracer does not wait for it, nor to end.
fn hostile_cni_plugin_that_never_ends_has_started() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let id = container_id()?;
    // Ends when the test says so, or the test is gone.
    let stop = stage.folder.path().join("stop");
    let until = format!(
        "while [ ! -e '{}' ] && [ -e '{}' ]; do sleep 0.1; done",
        stop.display(),
        stage.folder.path().display()
    );
    let plugin = stage.plugin("endless", &until)?;
    let mut tracer = Tracer::trace(&[])?;
    let pod = stage.pod.clone();
    let waiter = std::thread::spawn({
        let id = id.clone();
        move || stage.add(&plugin, &id, &json!({})).map(|_| stage)
    });
    let seen = (|| {
        let started = tracer.wait_for("its start", SOON, |record| {
            is_of(record, "cni-started", &id)
        })?;
        ensure!(
            started["plugin"] == "endless" && started["trusted"] == true,
            "{started}"
        );
        ensure!(started["pod"]["uid"] == pod.uid.as_str(), "{started}");
        wait::pause(Duration::from_secs(2))?;
        let ended = tracer.stop()?;
        ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
        let call = ended
            .records
            .iter()
            .find(|each| is_of(each, "cni-call", &id));
        ensure!(
            call.is_none(),
            "it has not ended: {}",
            call.context("none")?
        );
        Ok(())
    })();
    fs::write(&stop, "")?;
    let joined = waiter.join().map_err(|_| anyhow::anyhow!("panicked"))?;
    seen.and(joined.map(drop))
}

test!(RUNTIME, hostile_cni_names_that_are_no_text_are_told);
/// The kernel takes any bytes for names, and JSON does not.
fn hostile_cni_names_that_are_no_text_are_told() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let id = container_id()?;
    stage.plugin("inner", "cat >/dev/null; exit 4")?;
    // An order to the runtime is text, so the plugin passes the bytes on.
    let outer = stage.plugin(
        "outer",
        r#"export CNI_IFNAME="$(printf 'e\377\033[31mh')"
export CNI_ARGS="$CNI_ARGS;K8S_POD_NAMESPACE=$(printf 's\300\257\033]0;x')"
"$CNI_PATH/inner" </dev/null
exit 0"#,
    )?;
    let mut tracer = Tracer::trace(&["-o", "text"])?;
    stage.add(&outer, &id, &json!({}))?;
    let inner = tracer.wait_for("the inner call", SOON, |record| {
        is_of(record, "cni-call", &id) && record["plugin"] == "inner"
    })?;
    ensure!(
        inner["ifname"] == "e\u{fffd}\u{1b}[31mh",
        "what is no text is replaced: {inner}"
    );
    ensure!(
        inner["pod"]["namespace"] == "s\u{fffd}\u{fffd}\u{1b}]0",
        "{inner}"
    );
    ensure!(
        inner["delegated"] == true && inner["trusted"] == true && inner["exit_code"] == 4,
        "{inner}"
    );
    let ended = tracer.stop()?;
    ensure!(ended.unsafe_lines.is_empty(), "{:?}", ended.unsafe_lines);
    let text = ended.text.join("\n");
    ensure!(text.contains("inner"), "it is in the text:\n{text}");
    Ok(())
}

test!(RUNTIME, hostile_cni_secrets_are_nowhere);
/// Tokens are in the environment and the configuration of real plugins.
fn hostile_cni_secrets_are_nowhere() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let id = container_id()?;
    let result = json!({
        "cniVersion": "0.4.0",
        "ips": [{ "version": "4", "address": "198.18.250.7/32", "token": SECRET }],
        "interfaces": [{ "name": "cali0", "token": SECRET }],
        "dns": { "options": [SECRET] },
        "K8S_API_TOKEN": SECRET,
    });
    let plugin = stage.plugin(
        "calico",
        &format!("cat >/dev/null; printf '%s' '{result}'; echo {SECRET} >&2; exit 0"),
    )?;
    let config = json!({
        "cniVersion": "0.4.0",
        "name": "k8s-pod-network",
        "type": "calico",
        "etcd_key": SECRET,
        "policy": { "type": "k8s", "k8s_api_token": SECRET, "k8s_client_key": SECRET },
        "kubernetes": { "K8S_API_TOKEN": SECRET, "kubeconfig": SECRET },
        "ipam": { "type": "calico-ipam", "password": SECRET },
        "prevResult": { "dns": { "options": [SECRET] } },
        "args": { "cni": { "token": SECRET } },
    });
    let mut variables = stage.variables("ADD", &id);
    for name in [
        "K8S_API_TOKEN",
        "CNI_TOKEN",
        "CNI_K8S_API_TOKEN",
        "ETCD_KEY",
    ] {
        variables.insert(name, SECRET.to_owned());
    }
    if let Some(args) = variables.get_mut("CNI_ARGS") {
        args.push_str(&format!(";K8S_API_TOKEN={SECRET};TOKEN={SECRET}"));
    }
    let recording = stage.folder.path().join("run.jsonl");
    let named = recording.display().to_string();
    let mut tracer = Tracer::trace(&["-o", "text", "--record", &named])?;
    let run = stage.runtime.run(&plugin, &variables, &config)?;
    ensure!(run.code == Some(0), "{run:?}");
    let call = wait_for_call(&mut tracer, &id)?;
    let ended = tracer.stop()?;
    // Otherwise there is nothing that a secret could be in.
    ensure!(call["pod"]["uid"] == stage.pod.uid.as_str(), "{call}");
    let recorded = fs::read_to_string(&recording)?;
    let lines = |records: &[Value]| -> String {
        let lines = records.iter().map(Value::to_string);
        lines.collect::<Vec<_>>().join("\n")
    };
    for (place, text) in [
        ("JSON", lines(&ended.records)),
        ("text", ended.text.join("\n")),
        ("stderr", ended.stderr),
        ("the recording", recorded),
    ] {
        ensure!(
            place == "stderr" || text.contains(&id[..12]),
            "the call is in {place}"
        );
        let found = text.lines().find(|line| line.contains(SECRET));
        ensure!(found.is_none(), "in {place}: {}", found.unwrap_or_default());
    }
    ensure!(
        call["network"] == "k8s-pod-network" && call["ipam"] == "calico-ipam",
        "what may be told is: {call}"
    );
    ensure!(
        call["result"]["ips"][0] == "198.18.250.7",
        "and the result: {call}"
    );
    Ok(())
}

test!(RUNTIME, hostile_cni_answers_do_not_act_on_a_terminal);
/// Answers that are no JSON, or JSON that is more than an answer.
fn hostile_cni_answers_do_not_act_on_a_terminal() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let mut tracer = Tracer::trace(&["-o", "text"])?;
    let evil = r#"{"cniVersion":"0.4.0","code":7,"msg":"\u001b[31mno\u0007 address\nleft","details":"\u202egnp\u001b]0;x"}"#;
    let deep = format!("{}1{}", "[".repeat(30_000), "]".repeat(30_000));
    let long = format!(r#"{{"code":100,"msg":"{}"}}"#, "long ".repeat(40_000));
    let cases: [(&str, &str, i64); 5] = [
        ("evil", evil, 1),
        ("raw", "\u{1b}[2J no JSON at all", 1),
        ("deep", &deep, 0),
        ("long", &long, 1),
        ("huge-number", r#"{"code":1e999,"msg":7}"#, 1),
    ];
    for (name, answer, code) in cases {
        let id = container_id()?;
        let file = stage.folder.path().join(name);
        fs::write(&file, answer)?;
        let plugin = stage.plugin(
            name,
            &format!("cat >/dev/null; cat '{}'; exit {code}", file.display()),
        )?;
        stage.add(
            &plugin,
            &id,
            &json!({ "name": "\u{1b}[1mnet", "type": name }),
        )?;
        let call = wait_for_call(&mut tracer, &id).context(name)?;
        ensure!(call["exit_code"] == code, "{name}: {call}");
        ensure!(
            call.to_string().len() < 20_000,
            "{name}: what is kept is bounded, not {} bytes",
            call.to_string().len()
        );
        if name == "evil" {
            ensure!(
                call["error"]["code"] == 7
                    && call["error"]["msg"] == "\u{1b}[31mno\u{7} address\nleft",
                "the error, exactly: {call}"
            );
        }
    }
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    ensure!(ended.unsafe_lines.is_empty(), "{:?}", ended.unsafe_lines);
    let text = ended.text.join("\n");
    ensure!(!text.contains('\u{202e}'), "it reorders: {text:?}");
    Ok(())
}

test!(
    RUNTIME,
    hostile_cni_runtime_in_a_container_with_the_hosts_processes_is_not_believed
);
/// An executable named containerd, of root, in the host's PID namespace and in
/// no pod's cgroup: what is left to tell it by are its mounts.
fn hostile_cni_runtime_in_a_container_with_the_hosts_processes_is_not_believed()
-> anyhow::Result<()> {
    let mut tracer = Tracer::trace(&[])?;
    for kinds in [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWNS | libc::CLONE_NEWCGROUP | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC,
    ] {
        let mut stage = Stage::apart(kinds)?;
        let (plugin, id) = (stage.plugin("bridge", "true")?, container_id()?);
        stage.add(&plugin, &id, &json!({}))?;
        let call = wait_for_call(&mut tracer, &id)?;
        ensure!(
            call["trusted"] == false
                && call["distrust"]
                    .as_str()
                    .is_some_and(|why| why.contains("mount namespace")),
            "it is not trusted, and why: {call}"
        );
    }
    tracer.stop()?;
    Ok(())
}

test!(NODE, hostile_cni_call_of_a_real_container_is_not_believed);
/// What a container says is recorded, and nobody believes it.
fn hostile_cni_call_of_a_real_container_is_not_believed() -> anyhow::Result<()> {
    let node = Containerd::start()?;
    let (victim, evil) = (Pod::new("shop", "web-0")?, Pod::new("shop", "evil-0")?);
    let run = |pod: &Pod| node.run_pod(&pod.name, &pod.namespace, &pod.uid, 0, false);
    let (target, home) = (run(&victim)?, run(&evil)?);
    let mut tracer = node.trace(&["--pods", "none"])?;
    let netns = target.netns_path.as_ref().context("no netns")?;
    let fake = format!(
        "export CNI_COMMAND=DEL CNI_CONTAINERID={id} CNI_IFNAME=eth0 CNI_NETNS={netns} \
         CNI_PATH=/bin CNI_ARGS='K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID={uid}'; \
         /bin/sleep 0; exec /bin/sleep 100000",
        id = target.id,
        netns = netns.display(),
        uid = victim.uid,
    );
    node.run_container(&home, "app", &["/bin/sh", "-c", &fake], &[])?;
    let call = wait_for_call(&mut tracer, &target.id)?;
    ensure!(
        call["trusted"] == false && call["distrust"].is_string(),
        "it is not trusted, and why: {call}"
    );
    wait::pause(Duration::from_secs(2))?;
    let ended = tracer.stop()?;
    let believed = ended.records.iter().find(|record| {
        record["type"] == "finding" && record["rule"] != "blocked-task"
            || is_event(record, "cni-effect") && record["command"] == "DEL"
    });
    ensure!(believed.is_none(), "{}", believed.context("none")?);
    Ok(())
}
