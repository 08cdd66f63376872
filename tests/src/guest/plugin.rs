//! CNI calls: this program as a plugin, called by the stand-in runtime.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::matrix::{SignalResult, Stage};
use crate::netns::Netns;
use crate::runtime::{Run, Runtime};
use crate::scratch::{Scratch, container_id};
use crate::tracer::{is_event, netns_of};

/// Where the host has put a link to this program.
const PLUGIN: &str = "/opt/cni/bin/nt-plugin";
const ADDRESS: &str = "198.18.7.9";
const NETWORK: &str = "guest-net";

/// Acts as the plugin, if this program was started under its name.
pub(super) fn act_if_called() -> bool {
    let name = std::env::args_os().next().unwrap_or_default();
    if Path::new(&name).file_name() != Path::new(PLUGIN).file_name() {
        return false;
    }
    let mut config = String::new();
    let _ = std::io::stdin().read_to_string(&mut config);
    let config: Value = serde_json::from_str(&config).unwrap_or_default();
    let (answer, code) = match config["fail"].as_str() {
        Some(message) => (json!({ "code": 11, "msg": message }), 1),
        None => (
            json!({
                "cniVersion": "1.0.0",
                "interfaces": [{ "name": "eth0", "sandbox": std::env::var("CNI_NETNS").ok() }],
                "ips": [{ "address": format!("{ADDRESS}/24"), "interface": 0 }],
            }),
            0,
        ),
    };
    let _ = std::io::stdout().write_all(answer.to_string().as_bytes());
    std::process::exit(code)
}

/// A sandbox to be, and who calls the plugin for it.
struct Node {
    runtime: Runtime,
    netns: Netns,
    _node: Netns,
    _folder: Scratch,
}

impl Node {
    fn new() -> anyhow::Result<Self> {
        let folder = Scratch::create()?;
        let node = Netns::create()?;
        Ok(Self {
            runtime: Runtime::start(&node, folder.path())?,
            netns: Netns::create()?,
            _node: node,
            _folder: folder,
        })
    }

    fn add(&mut self, id: &str, fail: Option<&str>) -> anyhow::Result<Run> {
        let path = Path::new(PLUGIN);
        let folder = path.parent().and_then(Path::to_str).unwrap_or_default();
        let environment = BTreeMap::from([
            ("CNI_COMMAND", String::from("ADD")),
            ("CNI_CONTAINERID", id.to_owned()),
            ("CNI_NETNS", self.netns.path().display().to_string()),
            ("CNI_IFNAME", String::from("eth0")),
            (
                "CNI_ARGS",
                String::from("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0"),
            ),
            ("CNI_PATH", folder.to_owned()),
        ]);
        let config = json!({
            "cniVersion": "1.0.0",
            "name": NETWORK,
            "type": path.file_name().and_then(OsStr::to_str),
            "ipam": { "type": "host-local" },
            "fail": fail,
        });
        self.runtime.run(path, &environment, &config)
    }
}

/// An ADD that succeeds and one that fails: the call, and what was said in it.
pub(super) fn observe(stage: &mut Stage<'_>) -> Vec<SignalResult> {
    match calls(stage) {
        Ok((well, badly)) => vec![
            ("cni-call", call(&well, 0).and_then(|()| call(&badly, 1))),
            ("cni-result", answers(&well, &badly)),
        ],
        Err(error) => vec![("cni-call", Err(error))],
    }
}

/// An ADD, told by a tracer that cannot look at who has made it.
pub(super) fn told_without_trust(stage: &mut Stage<'_>) -> Vec<SignalResult> {
    let mut call = || {
        let mut node = Node::new()?;
        let id = container_id()?;
        let mark = stage.mark();
        node.add(&id, None)?;
        let record = stage.after(mark, "cni-call", |record| {
            is_event(record, "cni-call") && record["container_id"] == id.as_str()
        })?;
        ensure!(
            record["trusted"] == false && record["distrust"].is_string(),
            "it is not trusted: {record}"
        );
        Ok(())
    };
    vec![("cni-call", call())]
}

fn calls(stage: &mut Stage<'_>) -> anyhow::Result<(Value, Value)> {
    let mut node = Node::new()?;
    let mut one = |fail: Option<&str>| {
        let id = container_id()?;
        let mark = stage.mark();
        let run = node.add(&id, fail)?;
        ensure!(
            run.code == Some(i32::from(fail.is_some())),
            "the plugin itself: {run:?}"
        );
        let record = stage.after(mark, "cni-call", |record| {
            is_event(record, "cni-call") && record["container_id"] == id.as_str()
        })?;
        ensure!(
            netns_of(&record) == Some(node.netns.inode()),
            "its netns {}: {record}",
            node.netns.inode()
        );
        anyhow::Ok(record)
    };
    Ok((one(None)?, one(Some("no addresses left"))?))
}

fn call(record: &Value, code: i32) -> anyhow::Result<()> {
    ensure!(record["exit_code"] == code, "exit code {code}: {record}");
    ensure!(record["trusted"] == true, "it is trusted: {record}");
    ensure!(
        record["plugin"] == "nt-plugin" && record["pod"]["name"] == "cart-0",
        "whose it is: {record}"
    );
    Ok(())
}

fn answers(well: &Value, badly: &Value) -> anyhow::Result<()> {
    for record in [well, badly] {
        ensure!(
            record["network"] == NETWORK && record["ipam"] == "host-local",
            "its configuration: {record}"
        );
    }
    let result = well["result"]
        .as_object()
        .with_context(|| format!("no result: {well}"))?;
    ensure!(result["ips"] == json!([ADDRESS]), "its addresses: {well}");
    ensure!(
        badly["error"]["code"] == 11 && badly["error"]["msg"] == "no addresses left",
        "its error: {badly}"
    );
    Ok(())
}
