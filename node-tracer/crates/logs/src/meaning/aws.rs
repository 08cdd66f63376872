//! What the AWS VPC CNI's plugin and its agent (ipamd) say.

use crate::entry::Entry;
use event::clock::Timestamp;

use super::{
    calls::{About, Calls, Reporter, Verb},
    environment,
    tokens::{after, between, id, ips, pod},
};

/// Words of which one is in each of their lines that count.
pub(super) const NEEDLES: &[&str] = &[
    "Received CNI ",
    "network response from ipamd",
    "Failed SetupPodNetwork",
    "Failed to assign an IP address",
    "Received AddNetwork",
    "Received DelNetwork",
    "Error received from ",
];

const PLUGIN: &str = "aws-cni";

/// Takes a message in.
pub(super) fn entry(time: Timestamp, entry: &Entry<'_>, calls: &mut Calls) {
    let text = &*entry.message;
    let request = [
        ("Received CNI add request", Verb::Add),
        ("Received CNI del request", Verb::Del),
    ];
    for (words, verb) in request {
        if text.contains(words)
            && let Some(container) = between(text, "ContainerID(", ")").and_then(id)
        {
            let about = About {
                pod: environment::pod_in(text),
                ifname: between(text, "IfName(", ")").map(str::to_owned),
                netns_path: between(text, "Netns(", ")").map(str::to_owned),
                pid: entry.pid,
                ..about(container)
            };
            calls.begins(time, verb, about);
        }
    }
    if let Some(rest) = after(text, "Received AddNetwork for NS ") {
        let container = after(rest, "Sandbox ").or_else(|| after(rest, "Container "));
        if let Some(container) = container.and_then(id) {
            let named = || {
                pod(
                    between(rest, "NameSpace ", ",")?,
                    between(rest, "Pod ", ",")?,
                )
            };
            let about = About {
                pod: named().unwrap_or_default(),
                netns_path: rest.split(',').next().map(str::to_owned),
                ifname: after(rest, "ifname ").map(|name| name.trim().to_owned()),
                ..about(container)
            };
            calls.about(time, Verb::Add, about);
        }
    }
    if let Some(rest) = after(text, "AddNetworkRequest: ")
        && let Some(container) = after(rest, "ContainerID:").and_then(id)
    {
        let part = |name| between(rest, name, "\"");
        let named = || pod(part("K8S_POD_NAMESPACE:\"")?, part("K8S_POD_NAME:\"")?);
        let about = About {
            pod: named().unwrap_or_default(),
            ..about(container)
        };
        calls.about(time, Verb::Add, about);
    }
    // The answer names nobody: it is of the request that was told of last.
    if let Some(said) = after(text, "Send AddNetworkReply: ")
        .and_then(|rest| after(rest, "err: "))
        .filter(|said| !said.starts_with("<nil>"))
        && let Some(key) = calls.latest(Verb::Add)
    {
        let about = About {
            plugin: Some(PLUGIN.to_owned()),
            ..calls.container(&key)
        };
        calls.fails(time, Verb::Add, about, Reporter::Plugin, said);
    }
    if let Some(container) = after(text, "Received DelNetwork for Sandbox ").and_then(id) {
        calls.about(time, Verb::Del, about(container));
    }
    if let Some(rest) = after(text, "network response from ipamd for container ")
        && let Some(container) = id(rest)
        && text.contains("add network response")
    {
        let key = calls.about(time, Verb::Add, about(container));
        let given = after(rest, "IPv4Addr:\"").or_else(|| after(rest, "IPv6Addr:\""));
        let given = given.and_then(|rest| rest.split('"').next());
        calls.gives(time, &key, given.map(ips).unwrap_or_default());
    }
    let failures = [
        ("Failed SetupPodNetwork for container ", Verb::Add),
        ("Failed to assign an IP address to container ", Verb::Add),
        (
            "Error received from AddNetwork gRPC call for container ",
            Verb::Add,
        ),
        (
            "Error received from DelNetwork gRPC call for container ",
            Verb::Del,
        ),
    ];
    for (words, verb) in failures {
        if let Some(rest) = after(text, words)
            && let Some(container) = id(rest)
        {
            let said = rest.split_once(": ").map(|(_, said)| said);
            let said = said.unwrap_or("ipamd had no address to give");
            let about = about(container);
            calls.fails(time, verb, about, Reporter::Plugin, said);
        }
    }
}

fn about(container: &str) -> About {
    About {
        container_id: container.to_owned(),
        plugin: Some(PLUGIN.to_owned()),
        ..About::default()
    }
}
