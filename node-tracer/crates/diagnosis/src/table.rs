//! What the causes are known by.
//!
//! The first row that fits decides. What comes before what, and why:
//!
//! 1. **What is missing by name** (a ConfigMap, a Secret, a key) is known by
//!    those words alone, although it is told as a failed mount.
//! 2. **What is used up on the node** (space, memory) makes everything else
//!    fail: mounts, pulls, plugins. It decides wherever it is named.
//! 3. **The runtime's own socket** comes before what was asked through it.
//! 4. **Names that are taken** are told with time-outs of the request that has
//!    taken them.
//! 5. **Volumes and images** have names of their own, in which words of the
//!    network occur (`calico/cni:v3`, `cni-net-dir`).
//! 6. **The network**: addresses, then what is not there yet, then time-outs,
//!    then whatever else a plugin said. A daemon of the network whose socket is
//!    missing or refuses is not there yet, whatever ran out of time over it;
//!    "connection refused" of the API server is the plugin's error; the time
//!    running out inside a plugin is its time-out.
//! 7. **The runtime's time-outs** are what is left of those words, and what it
//!    cannot do otherwise.
//! 8. **An event's reason**, where its message says nothing.

mod network;
mod reasons;
mod runtime;
mod storage;
mod used_up;

use crate::{Cause, phrase::SearchText};

/// What a text must be like.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) cause: Cause,
    /// One of these is in it. See [`phrase`](crate::phrase) for their form.
    any: &'static [&'static str],
    /// And one of these; empty if nothing more is needed.
    with: &'static [&'static str],
    /// And none of these.
    without: &'static [&'static str],
    /// And the event has one of these reasons; empty if that does not matter.
    reasons: &'static [&'static str],
}

impl Row {
    const fn with(self, with: &'static [&'static str]) -> Self {
        Self { with, ..self }
    }

    const fn without(self, without: &'static [&'static str]) -> Self {
        Self { without, ..self }
    }

    pub(crate) fn fits(&self, reason: Option<&str>, said: &SearchText) -> bool {
        let Self {
            cause: _,
            any,
            with,
            without,
            reasons,
        } = self;
        let reason = reason.unwrap_or_default();
        let of_reason = reasons.is_empty() || reasons.contains(&reason);
        of_reason
            && (any.is_empty() || said.has_one(any))
            && (with.is_empty() || said.has_one(with))
            && !said.has_one(without)
    }
}

const fn row(cause: Cause, any: &'static [&'static str]) -> Row {
    Row {
        cause,
        any,
        with: &[],
        without: &[],
        reasons: &[],
    }
}

const fn reason(cause: Cause, reasons: &'static [&'static str]) -> Row {
    Row {
        cause,
        any: &[],
        with: &[],
        without: &[],
        reasons,
    }
}

/// A CNI plugin was called, or is spoken of.
const CNI: &[&str] = &[
    "cni",
    "cni0",
    "cni-server",
    "networkplugin",
    "network plugin",
    "netplugin",
    "hns",
    "endpoint",
    "eni",
    "eniip",
    "cnierr",
    "cni_error",
    "cnierror",
    "adding pod to network",
    "adding to network",
    "adding network",
    "adding .. to network",
    "pod network",
    "container network",
    "plugin type=*",
    "(add)",
    "set up pod .. network",
    "setup pod .. network",
    "set up network for",
    "setup network for",
    "set up sandbox container .. network",
    "setup sandbox network",
    "set up sandbox network",
    "pod network sandbox",
    "network for pod",
    "network for sandbox",
    "sandbox network creation",
    "delegateadd",
    "delegate add",
    "confadd",
    "conflistadd",
    "cmdadd",
    "add cmd",
    "ipam",
    "addnetworkreply*",
    "multus",
    "clusterinformation",
    "network-attachment-definition*",
    "calico",
    "calico/node",
    "flannel",
    "flanneld",
    "cilium",
    "cilium-agent",
    "weave",
    "weave-net",
    "terway",
    "antrea",
    "kube-ovn",
    "ovn-kubernetes",
    "aws-node",
    "kube-router",
    "whereabouts",
    "spiderpool",
    "romana",
    "azure-vnet",
    "azure-vnet-ipam",
    "ovnkube",
    "dhcp",
    "netd",
    "sriov",
    "sriov-cni",
    "azure cns",
    "azure-cns",
    "ovs interface",
    "ovs port",
    "ovs-vsctl",
    "openvswitch",
    "configure nic",
    "configure pod interface",
    "configuring pod interface",
    "configure pod network",
    "configure pod networking",
    "configure interface .. for pod",
    "pod interface",
    "pod annotations",
    "port binding",
    "logical switch",
    "logical switch port",
    "addnetworkreply",
    "add network reply",
    "veth",
    "veth pair",
    "kindnet",
    "canal",
    "nsx",
    "nsx-ncp",
    "nsx-node-agent",
    "contiv",
    "contrail",
    "kuryr",
    "kuryr-cni",
    "kuryr-daemon",
    "tungsten",
    "hybridnet",
    "galaxy",
    "cni-genie",
    "danm",
    "vpc-cni",
    "vpc-bridge",
    "vpc-shared-eni",
    "eniipamd",
    "ipamd",
    "nodelocaldns",
    "kube-ovn-cni",
    "kube-ovn-controller",
    "macvlan",
    "ipvlan",
    "bandwidth",
    "portmap",
];

/// The time ran out.
const TIME_IS_UP: &[&str] = &[
    "deadline exceeded",
    "deadlineexceeded",
    "deadline was exceeded",
    "operation timeout",
    "operation timed out",
    "timed out",
    "timeout",
    "time out",
    "timeouts",
    "context canceled",
    "context cancelled",
    "did not respond in time",
    "took too long",
    "timing out",
    "is not ready after",
    "not ready after",
    "not ready within",
    "not available after",
    "not found after",
    "did not become ready",
    "didn't become ready",
    "never became ready",
    "gave up waiting",
    "giving up waiting",
    "timed-out",
];

pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    let parts = [
        used_up::ROWS,
        runtime::ROWS,
        storage::ROWS,
        network::ROWS,
        reasons::ROWS,
    ];
    parts.into_iter().flatten()
}

/// A text for each phrase, with the words beside it that its row needs.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn phrases() -> Vec<String> {
    let plain = |phrase: &str| phrase.replace('*', "").replace(" .. ", " x ");
    let texts = rows().flat_map(|row| {
        let beside = row.with.first().copied().map(plain).unwrap_or_default();
        let any = row.any.iter();
        any.map(move |phrase| format!("{} {beside}", plain(phrase)))
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phrase_can_be_found() {
        for row in rows() {
            for phrase in row.any.iter().chain(row.with).chain(row.without) {
                let plain = phrase.replace('*', "").replace(" .. ", " x ");
                assert!(SearchText::new(&plain).has(phrase), "{phrase}");
                assert_eq!(phrase.to_ascii_lowercase(), **phrase);
            }
        }
    }

    #[test]
    fn every_row_looks_at_something() {
        for row in rows() {
            assert!(!row.any.is_empty() || !row.reasons.is_empty(), "{row:?}");
        }
    }
}
