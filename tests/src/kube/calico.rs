//! Calico's blocks as objects of a real API server.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Kube;
use crate::wait;

pub const BLOCKS: &str = "/apis/crd.projectcalico.org/v1/ipamblocks";
const CONFIG: &str = r#"{"cniVersion":"0.3.1","name":"k8s-pod-network","plugins":[
    {"type":"calico","ipam":{"type":"calico-ipam"}}]}"#;
/// Of a block.
const ADDRESSES: usize = 64;

/// Has the CNI configuration below this root name Calico, too.
pub fn configure(root: &Path) -> anyhow::Result<()> {
    let folder = root.join("etc/cni/net.d");
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join("99-calico.conflist"), CONFIG))
        .with_context(|| folder.display().to_string())
}

/// Has the server know blocks.
pub fn define(kube: &Kube) -> anyhow::Result<()> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    kube.expect("POST", path, Some(&definition()))?;
    wait::until("the blocks' resource", Duration::from_secs(60), || {
        let (code, _) = kube.call("GET", BLOCKS, None)?;
        Ok((code == 200).then_some(()))
    })
}

/// A node's block from this address on. Its first addresses are given out: to a
/// container of a pod (ID, namespace, name) each.
pub fn block(first: [u8; 4], node: &str, pods: &[(String, String, String)]) -> Value {
    let [a, b, c, d] = first;
    let attribute = |(id, namespace, pod): &(String, String, String)| {
        json!({
            "handle_id": format!("k8s-pod-network.{id}"),
            "secondary": {
                "node": node, "namespace": namespace, "pod": pod,
                "timestamp": "2026-11-26 10:00:00.000000000 +0000 UTC",
            },
        })
    };
    let allocations = (0..ADDRESSES).map(|at| (at < pods.len()).then_some(at));
    json!({
        "apiVersion": "crd.projectcalico.org/v1",
        "kind": "IPAMBlock",
        "metadata": { "name": format!("{a}-{b}-{c}-{d}-26") },
        "spec": {
            "cidr": format!("{a}.{b}.{c}.{d}/26"), "affinity": format!("host:{node}"),
            "allocations": allocations.collect::<Vec<_>>(),
            "attributes": pods.iter().map(attribute).collect::<Vec<_>>(),
            "unallocated": (pods.len()..ADDRESSES).collect::<Vec<_>>(),
            "strictAffinity": false, "deleted": false,
        },
    })
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "ipamblocks.crd.projectcalico.org" },
        "spec": {
            "group": "crd.projectcalico.org",
            "scope": "Cluster",
            "names": {
                "kind": "IPAMBlock", "listKind": "IPAMBlockList",
                "plural": "ipamblocks", "singular": "ipamblock",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    })
}
