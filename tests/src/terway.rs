//! Terway's ways: a daemon keeps who has which address in a bbolt file, gives
//! an address out when its plugin asks, and takes back, every few minutes,
//! what belongs to pods that the API server does not know.
//!
//! The file is a real bbolt file in Terway's schema, locked as bbolt locks it.
//! The plugin is a script that makes a pod's cable as Terway's does, with the
//! next address of a pool. The daemon's part is played step by step:
//! [`Store::allocate`], [`Store::collect`], [`Plugin::give_next`].

pub mod bbolt;

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::containerd::Sandbox;
use crate::pods::Pod;
use crate::scripted::{Folder, pods};
use bbolt::Bbolt;

/// The file, on the node.
pub const STORE: &str = "/var/lib/cni/terway/ResRelation.db";
const BUCKET: &str = "relation";

/// The plugin, and the pool that it takes addresses from.
#[derive(Debug)]
pub struct Plugin {
    folder: Folder,
}

impl Plugin {
    /// One with an empty pool.
    pub fn create() -> anyhow::Result<Self> {
        let folder = Folder::create("terway", script)?;
        Ok(Self { folder })
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    pub fn network() -> Value {
        json!({
            "cniVersion": "0.4.0",
            "name": "terway",
            "plugins": [{ "type": "terway" }],
        })
    }

    /// The address that the next pod gets.
    pub fn give_next(&self, address: Ipv4Addr) -> anyhow::Result<()> {
        let path = self.folder.state().join("next");
        fs::write(&path, format!("{address}\n")).context("the pool")
    }
}

#[derive(Debug)]
pub struct Store {
    file: Bbolt,
    entries: BTreeMap<String, String>,
}

impl Store {
    /// An empty one at this path.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        Ok(Self {
            file: Bbolt::create(path, BUCKET)?,
            entries: BTreeMap::new(),
        })
    }

    /// What the daemon does at ADD: the address is the pod's.
    pub fn allocate(
        &mut self,
        pod: &Pod,
        sandbox: &Sandbox,
        address: Ipv4Addr,
    ) -> anyhow::Result<()> {
        let netns = sandbox.netns_path.clone();
        let value = resources(pod, &sandbox.id, netns, address);
        let key = format!("{}/{}", pod.namespace, pod.name);
        self.entries.insert(key, value.to_string());
        self.file.replace(&self.entries)
    }

    /// What the daemon's garbage collection does: entries of pods that are not
    /// listed go. Returns the keys of those.
    pub fn collect(&mut self, pods: &Path) -> anyhow::Result<Vec<String>> {
        let list: Value = serde_json::from_slice(&fs::read(pods)?)?;
        let listed = |key: &str| {
            let mut items = list["items"].as_array().into_iter().flatten();
            items.any(|item| {
                let name = |what: &str| item["metadata"][what].as_str().unwrap_or_default();
                format!("{}/{}", name("namespace"), name("name")) == key
            })
        };
        let gone = self.entries.keys().filter(|key| !listed(key));
        let gone: Vec<String> = gone.cloned().collect();
        self.entries.retain(|key, _| !gone.contains(key));
        self.file.replace(&self.entries)?;
        Ok(gone)
    }
}

/// Terway's `PodResources`.
fn resources(pod: &Pod, id: &str, netns: Option<PathBuf>, address: Ipv4Addr) -> Value {
    let mac = "00:16:3e:0a:1b:2c";
    let net = json!([{
        "BasicInfo": { "PodIP": { "IPv4": address }, "GatewayIP": { "IPv4": "198.19.0.253" } },
        "ENIInfo": { "MAC": mac, "GatewayIP": { "IPv4": "198.19.0.253" } },
        "Pod": {},
        "IfName": "eth0",
        "DefaultRoute": true,
    }]);
    json!({
        "Resources": [{
            "type": "eniIp",
            "id": format!("{mac}.{address}"),
            "extra_eip_info": null,
            "eni_id": "eni-2zeexample0000000001",
            "eni_mac": mac,
            "ipv4": address,
            "ipv6": "",
        }],
        "PodInfo": {
            "Name": pod.name,
            "Namespace": pod.namespace,
            "TcIngress": 0,
            "TcEgress": 0,
            "PodNetworkType": "ENIMultiIP",
            "PodIP": "",
            "PodIPs": { "IPv4": "", "IPv6": "" },
            "SandboxExited": false,
            "EipInfo": {
                "PodEip": false, "PodEipID": "", "PodEipIP": "", "PodEipBandWidth": 0,
                "PodEipChargeType": "", "PodEipISP": "", "PodEipPoolID": "",
                "PodEipBandwidthPackageID": "",
            },
            "IPStickTime": 0,
            "PodENI": false,
            "PodUID": pod.uid,
            "NetworkPriority": "",
            "ERdma": false,
        },
        "NetNs": netns,
        "ContainerID": id,
        "NetConf": net.to_string(),
    })
}

fn script(state: &Path) -> String {
    let functions = pods::FUNCTIONS;
    let state = state.display();
    format!(
        r#"{functions}
cd '{state}' || exit 1
case $CNI_COMMAND in
ADD)
    read -r address <next || fail 100 "error get ip from terway, no ip available"
    rm -f next
    wire "$address" || fail 101 "cannot set the cable up"
    echo "$address" >"address.$CNI_CONTAINERID"
    answer "$address"
    ;;
DEL)
    [ -e "address.$CNI_CONTAINERID" ] || exit 0
    read -r address <"address.$CNI_CONTAINERID"
    rm -f "address.$CNI_CONTAINERID"
    unwire "$address" "$device"
    ;;
esac
exit 0"#
    )
}
