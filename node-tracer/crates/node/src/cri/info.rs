//! What runtimes tell about a sandbox besides the status: JSON of their own,
//! which differs from one to the other and from version to version. What is
//! not there, or has another shape, is not known; that is no error.

use std::{collections::HashMap, net::IpAddr};

use serde::Deserialize as _;
use serde_json::Value;

use super::api::{NAMESPACE_NODE, PodSandboxStatusResponse};
use crate::bundles::spec::{Network, Spec, collect_ips, text};

/// Longest JSON that is read. A pod's annotations alone can have 1.5 MB there, as Go
/// writes `<` in six bytes.
const MAX_INFO: usize = 16 << 20;

/// What is known of a sandbox beyond its place in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Details {
    /// Process ID of the infra container, if it is running.
    pub(super) pid: Option<u32>,
    /// Where its network namespace is mounted.
    pub(super) netns_path: Option<String>,
    /// It uses the host's network.
    pub(super) host_network: bool,
    pub(super) ips: Vec<IpAddr>,
}

impl Details {
    /// From the answer to a verbose `PodSandboxStatus`.
    pub(super) fn new(answer: &PodSandboxStatusResponse) -> Self {
        let info = parse(&answer.info);
        let spec = info.get("runtimeSpec");
        let spec = spec
            .and_then(|spec| Spec::deserialize(spec).ok())
            .unwrap_or_default();
        // Versioned: {"Version": "v1", "Metadata": {…}}.
        let metadata = info.get("sandboxMetadata");
        let metadata = metadata.map(|outer| outer.get("Metadata").unwrap_or(outer));

        let told = answer.status.as_ref();
        let linux = told.and_then(|status| status.linux.as_ref());
        let namespaces = linux.and_then(|linux| linux.namespaces.as_ref());
        let options = namespaces.and_then(|namespaces| namespaces.options.as_ref());
        let network = spec.network();
        let host_network = options.is_some_and(|options| options.network == NAMESPACE_NODE)
            || network == Some(Network::Host);
        let netns_path = match network {
            Some(Network::At(path)) => Some(path),
            _ => metadata.and_then(|metadata| string(metadata, "NetNSPath")),
        };
        let mut ips = Vec::new();
        if let Some(network) = told.and_then(|status| status.network.as_ref()) {
            let more = network.additional_ips.iter().map(|each| each.ip.as_str());
            ips = collect_ips(std::iter::once(network.ip.as_str()).chain(more));
        }
        // containerd leaves them out once the namespace's file is gone,
        // although a process may still have them.
        for result in [
            info.get("cniResult"),
            metadata.and_then(|m| m.get("CNIResult")),
        ] {
            if ips.is_empty() {
                ips = cni_ips(result);
            }
        }
        if ips.is_empty() {
            ips = spec.ips();
        }
        Self {
            pid: pid(&info),
            netns_path: netns_path.filter(|_| !host_network),
            host_network,
            ips,
        }
    }
}

/// The JSON under the key that containerd and CRI-O use.
fn parse(info: &HashMap<String, String>) -> Value {
    let text = info.get("info").map(String::as_str).unwrap_or_default();
    if text.len() > MAX_INFO {
        return Value::Null;
    }
    serde_json::from_slice(text.as_bytes()).unwrap_or_default()
}

fn pid(info: &Value) -> Option<u32> {
    // containerd keeps the number after the process's end.
    let ended = matches!(
        info.get("processStatus").and_then(Value::as_str),
        Some("deleted" | "stopped")
    );
    let pid = info.get("pid")?.as_u64()?;
    u32::try_from(pid).ok().filter(|pid| *pid > 0 && !ended)
}

fn string(value: &Value, key: &str) -> Option<String> {
    let found = value.get(key)?.as_str()?;
    (!found.is_empty()).then(|| text(found))
}

/// Addresses in go-cni's result: `{"Interfaces": {"eth0": {"IPConfigs":
/// [{"IP": …}]}}}`; those of eth0, the pod's own, first.
fn cni_ips(result: Option<&Value>) -> Vec<IpAddr> {
    let interfaces = result.and_then(|result| result.get("Interfaces"));
    let Some(interfaces) = interfaces.and_then(Value::as_object) else {
        return Vec::new();
    };
    let (first, others): (Vec<_>, Vec<_>) = interfaces
        .iter()
        .partition(|(name, _)| name.as_str() == "eth0");
    let configs = first
        .into_iter()
        .chain(others)
        .filter_map(|(_, interface)| interface.get("IPConfigs")?.as_array())
        .flatten();
    collect_ips(configs.filter_map(|config| config.get("IP")?.as_str()))
}

/// A runtime's JSON, or the whole of its answer.
#[cfg(feature = "testing")]
pub(super) fn fuzz(data: &[u8]) {
    use crate::bundles::spec::Writer;
    use prost::Message as _;

    let text = String::from_utf8_lossy(data).into_owned();
    let told = PodSandboxStatusResponse {
        info: [(String::from("info"), text)].into(),
        ..PodSandboxStatusResponse::default()
    };
    for answer in [Ok(told), PodSandboxStatusResponse::decode(data)] {
        let Ok(answer) = answer else { continue };
        let details = Details::new(&answer);
        assert!(details.pid != Some(0));
        assert!(details.ips.iter().all(|ip| !ip.is_loopback()));
        assert!(!details.host_network || details.netns_path.is_none());
    }
    if let Ok(spec) = serde_json::from_slice::<Spec>(data) {
        spec.network();
        spec.ips();
        for writer in [Writer::Containerd, Writer::Crio] {
            if let Some(role) = spec.role(writer, "a") {
                assert!(crate::bundles::spec::is_id(&role.sandbox_id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::api::*;

    fn answer(info: &str, ip: &str, network: i32) -> PodSandboxStatusResponse {
        PodSandboxStatusResponse {
            status: Some(PodSandboxStatus {
                network: Some(PodSandboxNetworkStatus {
                    ip: ip.to_owned(),
                    additional_ips: vec![PodIp {
                        ip: String::from("fd00::7"),
                    }],
                }),
                linux: Some(LinuxPodSandboxStatus {
                    namespaces: Some(Namespace {
                        options: Some(NamespaceOption { network }),
                    }),
                }),
            }),
            info: HashMap::from([(String::from("info"), info.to_owned())]),
        }
    }

    fn bare(info: &str) -> Details {
        Details::new(&PodSandboxStatusResponse {
            status: None,
            info: HashMap::from([(String::from("info"), info.to_owned())]),
        })
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    const CONTAINERD: &str = r#"{"pid": 21627, "processStatus": "running", "netNamespaceClosed": false,
        "runtimeSpec": {"ociVersion": "1.0.2", "process": {"env": ["SECRET=x"]},
            "linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": "/var/run/netns/cni-1"}]}},
        "cniResult": {"Interfaces": {
            "cni0": {"IPConfigs": null, "Mac": "02:e6"},
            "aux1": {"IPConfigs": [{"IP": "192.0.2.9"}]},
            "eth0": {"IPConfigs": [{"IP": "10.244.7.2", "Gateway": "10.244.7.1"}]},
            "lo": {"IPConfigs": [{"IP": "127.0.0.1"}, {"IP": "::1"}]}}, "Routes": [{"dst": "0.0.0.0/0"}]}}"#;

    #[test]
    fn containerd_tells_process_namespace_and_addresses() {
        let details = Details::new(&answer(CONTAINERD, "10.244.7.2", 0));
        let expected = Details {
            pid: Some(21627),
            netns_path: Some(String::from("/var/run/netns/cni-1")),
            host_network: false,
            ips: ips(&["10.244.7.2", "fd00::7"]),
        };
        assert_eq!(details, expected);
    }

    #[test]
    fn addresses_that_the_status_has_dropped_are_still_in_the_cni_result() {
        assert_eq!(bare(CONTAINERD).ips, ips(&["10.244.7.2", "192.0.2.9"]));
        let versioned = r#"{"sandboxMetadata": {"Version": "v1", "Metadata": {
            "NetNSPath": "/var/run/netns/cni-2", "IP": "",
            "CNIResult": {"Interfaces": {"eth0": {"IPConfigs": [{"IP": "10.0.0.1"}]}}}}}}"#;
        let details = bare(versioned);
        assert_eq!(details.ips, ips(&["10.0.0.1"]));
        assert_eq!(details.netns_path.as_deref(), Some("/var/run/netns/cni-2"));
    }

    #[test]
    fn cri_o_tells_addresses_in_the_cni_result() {
        let details = bare(
            r#"{"image": "pause", "pid": 77, "runtimeSpec": {
                "annotations": {"io.kubernetes.cri-o.IP.7": "10.85.0.9", "io.kubernetes.cri-o.CNIResult":
                    "{\"ips\": [{\"address\": \"10.85.0.5/16\"}, {\"address\": \"fd00::5/64\"}]}"},
                "linux": {"namespaces": [{"type": "network", "path": "/var/run/netns/5a2c"}]}}}"#,
        );
        assert_eq!(details.pid, Some(77));
        assert_eq!(details.netns_path.as_deref(), Some("/var/run/netns/5a2c"));
        assert_eq!(details.ips, ips(&["10.85.0.5", "fd00::5"]));
    }

    #[test]
    fn the_hosts_network_is_seen_in_the_status_and_in_the_specification() {
        assert!(Details::new(&answer("", "", NAMESPACE_NODE)).host_network);
        let details = bare(r#"{"runtimeSpec": {"linux": {"namespaces": [{"type": "pid"}]}}}"#);
        assert!(details.host_network);
        let unsaid = bare(r#"{"runtimeSpec": {"linux": {}}}"#);
        assert!(!unsaid.host_network);
    }

    #[test]
    fn a_process_that_has_ended_is_none() {
        assert_eq!(bare(r#"{"pid": 5, "processStatus": "deleted"}"#).pid, None);
        assert_eq!(bare(r#"{"pid": 0, "processStatus": "running"}"#).pid, None);
    }

    #[test]
    fn what_a_pods_owner_adds_to_the_answer_hides_nothing_of_it() {
        let annotation = r"\u003c".repeat(256 << 10);
        let config = format!(r#""config": {{"annotations": {{"a": "{annotation}"}}}}, "pid""#);
        let info = CONTAINERD.replacen(r#""pid""#, &config, 1);
        assert_eq!(bare(&info), bare(CONTAINERD));
        assert_eq!(bare(&info).pid, Some(21627));
    }

    #[test]
    fn unknown_shapes_are_no_error() {
        for info in [
            "",
            "null",
            "[]",
            "\"x\"",
            "{",
            "{\"pid\": \"7\"}",
            "{\"pid\": -1}",
            r#"{"runtimeSpec": 5, "cniResult": [], "sandboxMetadata": "x"}"#,
            r#"{"runtimeSpec": {"annotations": null, "linux": {"namespaces": null}}}"#,
            r#"{"cniResult": {"Interfaces": {"eth0": null, "eth1": {"IPConfigs": [5, {"IP": "no"}]}}}}"#,
        ] {
            assert_eq!(bare(info), Details::default(), "{info}");
        }
    }
}
