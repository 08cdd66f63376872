//! duplicate-address: two network namespaces on the node have the same address.
//!
//! Left out, because people and programs share them on purpose: addresses on
//! bridges, dummies and tunnels (gateways, service addresses, VPN clients that
//! all get the same one), addresses on the loopback device (anycast, direct
//! server return), and namespaces that a pod made for itself (docker in
//! docker: every such pod has a 172.17.0.2). A sandbox whose CNI DEL runs is
//! given a moment: some plugins release the address before they remove it.

use std::{net::IpAddr, time::Duration};

use super::{
    View, evidence, fd_label, ghost_sandbox, held_since, holders_of, is_routable, joined,
    kubectl_words, netns_of, pod_of, pod_word, short_id, sleeps_in, stuck_in, task_label,
    unknown_holder,
};
use crate::{
    event::PodRef,
    finding::{Detail, Finding, Rule, Severity, finding_id},
    model::{
        Model,
        netns::{HeldAddress, NetnsEntry, Wiring},
        sandbox::Known,
    },
};

/// Kinds of devices whose addresses do not count.
const SHARED_KINDS: [&str; 12] = [
    "bridge",
    "dummy",
    "tun",
    "wireguard",
    "ipip",
    "ip6tnl",
    "sit",
    "gre",
    "ip6gre",
    "vti",
    "xfrm",
    "nlmon",
];
/// How long a running CNI DEL excuses a duplicate.
const DEL_TIME: Duration = Duration::from_secs(10);
/// How long one that went well does: the plugins of a list are called one after
/// the other, and only the last leaves nothing behind.
const BETWEEN_DELS: Duration = Duration::from_millis(500);

/// One finding an address.
pub(crate) fn detect(view: &View<'_>) -> Vec<Finding> {
    let shared = view.model.netns.shared();
    shared
        .filter_map(|address| finding(view, address))
        .collect()
}

/// The namespaces that really have an address, each with when it got it,
/// earliest first.
pub(crate) fn owners<'a>(
    view: &View<'a>,
    address: IpAddr,
) -> Vec<(&'a NetnsEntry, &'a HeldAddress)> {
    if !is_routable(address) {
        return Vec::new();
    }
    let with = view.model.netns.with_address(address);
    let mut owners: Vec<_> = with
        .filter(|entry| !is_inner(view.model, entry) && !is_leaving(view, entry))
        .filter_map(|entry| {
            let mut held = entry.addresses.iter().filter(|held| counts(held));
            Some((entry, held.find(|held| held.address.address == address)?))
        })
        .collect();
    owners.sort_by_key(|(entry, held)| (held.since, entry.serial));
    owners
}

fn counts(held: &HeldAddress) -> bool {
    let kind = held.address.link_kind.as_deref();
    held.address.ifname != "lo" && !kind.is_some_and(|kind| SHARED_KINDS.contains(&kind))
}

/// A namespace that a pod made for itself: the API server has other addresses
/// for the pod; or the runtime or CNI have another namespace for it than this
/// one, which only a cgroup ties to the pod; or it is cabled to another one of
/// the pod, where a sandbox is cabled to the host. What an ADD, a runtime's
/// list or libcni names is a sandbox, if not the pod's newest.
pub(crate) fn is_inner(model: &Model, entry: &NetnsEntry) -> bool {
    let own = entry.sandbox.add.is_some() || entry.sandbox.named;
    let Some(uid) = entry.sandbox.uid().filter(|_| !own) else {
        return false;
    };
    let ips = model
        .pods
        .pod(uid)
        .map(|pod| pod.ips.as_slice())
        .unwrap_or_default();
    let has = |entry: &NetnsEntry| {
        let mut held = entry.addresses.iter();
        held.any(|held| ips.contains(&held.address.address))
    };
    let others: Vec<&NetnsEntry> = model
        .netns
        .live()
        .filter(|other| other.serial != entry.serial && other.sandbox.uid() == Some(uid))
        .collect();
    // The API server knows the addresses of the pod's newest sandbox alone: of
    // another one's namespace they say nothing.
    let is_older = || {
        let id = entry.sandbox.id.as_deref();
        let differs = |other: &str| id.is_some_and(|id| id != other);
        let mut others = others.iter();
        others.any(|other| other.sandbox.id.as_deref().is_some_and(differs) && has(other))
    };
    if !ips.is_empty() && !has(entry) && !is_older() {
        return true;
    }
    let by_cgroup = matches!(entry.sandbox.known, Some(Known::Cgroup { .. }));
    others.iter().any(|other| {
        let earlier = other.sandbox.add.is_some_and(|add| add < entry.seen);
        let told = other.sandbox.id.is_some() || other.sandbox.add.is_some();
        (entry.created && earlier) || (by_cgroup && (told || is_cabled(entry, other)))
    })
}

/// Whether a veth pair leads from one namespace to the other.
fn is_cabled(one: &NetnsEntry, other: &NetnsEntry) -> bool {
    let (Some(one), Some(other)) = (&one.wiring, &other.wiring) else {
        return false;
    };
    let ends = |wiring: &Wiring| -> Vec<(u32, u32)> {
        let veths = wiring.devices.iter().filter(|device| device.is_veth());
        let far = veths.filter(|device| device.link_nsid.is_some());
        far.filter_map(|device| Some((device.index, device.link?)))
            .collect()
    };
    let others = ends(other);
    ends(one)
        .iter()
        .any(|(own, far)| others.contains(&(*far, *own)))
}

fn is_leaving(view: &View<'_>, entry: &NetnsEntry) -> bool {
    let deleting = entry.sandbox.deleting;
    let ended = entry.sandbox.del.filter(|del| del.exit_code == Some(0));
    deleting.is_some_and(|(_, since)| !view.passed(since.plus(DEL_TIME)))
        || ended.is_some_and(|del| !view.passed(del.at.plus(BETWEEN_DELS)))
}

fn finding(view: &View<'_>, address: IpAddr) -> Option<Finding> {
    let mut owners = owners(view, address);
    let mut times: Vec<_> = owners
        .iter()
        .map(|(entry, held)| held_since(view.model, entry, held))
        .collect();
    times.sort_unstable();
    let since = *times.get(1)?;
    owners.sort_by_key(|(entry, held)| (held_since(view.model, entry, held), entry.serial));
    // Those that were there before the tracer are of unknown age: what is left
    // of a pod is older than what suffers from it.
    owners.sort_by_key(|(entry, _)| {
        let left = ghost_sandbox::gone(view, entry).is_some()
            || ghost_sandbox::verdict(view, entry).is_some();
        !left
    });
    let (newest, _) = owners.last()?;
    let is_pods = |entry: &NetnsEntry| entry.sandbox.pod.is_some();
    let pods = owners.iter().any(|(entry, _)| is_pods(entry));
    let mut inodes: Vec<u32> = owners.iter().map(|(entry, _)| entry.id.inode).collect();
    inodes.sort_unstable();

    let labels: Vec<String> = owners
        .iter()
        .map(|(entry, _)| label(view.model, entry))
        .collect();
    let mut claims = Vec::new();
    let mut unknown = Vec::new();
    let mut advice = Vec::new();
    let users: Vec<String> = owners
        .iter()
        .map(|(entry, _)| format!("by {}", user(view, entry)))
        .collect();
    for ((entry, held), label) in owners.iter().zip(&labels) {
        let found = if held.found {
            "; it had it before the tracer looked"
        } else {
            ""
        };
        let ifname = &held.address.ifname;
        let claim = format!("{label} has {} on {ifname}{found}", held.address);
        let held_since = held_since(view.model, entry, held);
        claims.push(evidence(claim, "kernel", held_since));
        match entry.sandbox.known {
            Some(known @ (Known::Cni { at } | Known::Cache { at } | Known::Runtime { at, .. })) => {
                let id = short_id(entry.sandbox.id.as_deref().unwrap_or_default());
                let source = known.source();
                claims.push(evidence(format!("{label} is sandbox {id}"), source, at));
            }
            Some(Known::Cgroup { pid, at }) => {
                let claim = format!("{label} is a pod's by the cgroup of process {pid}");
                claims.push(evidence(claim, "kernel", at));
            }
            None => {}
        }
        let whose = whose(view, entry);
        let stuck = stuck_in(view.model, entry);
        for blocked in &stuck {
            let claim = format!(
                "{}, in uninterruptible sleep{}, keeps {whose}",
                task_label(&blocked.task),
                sleeps_in(blocked),
            );
            claims.push(evidence(claim, "kernel", blocked.since));
        }
        if let Some(at) = entry.held_at.filter(|_| stuck.is_empty()) {
            let task = entry.tasks.iter().min_by_key(|task| (task.pid, task.tid));
            let mount = entry.mounts.first();
            let holder = task.map(task_label);
            let holder =
                holder.or_else(|| mount.map(|path| format!("the mount {}", path.display())));
            if let Some(holder) = holder {
                claims.push(evidence(format!("{holder} keeps {whose}"), "kernel", at));
            }
        }
        if let (Some(first), Some(at)) = (entry.fds.first(), entry.held_at) {
            let fd = fd_label(first);
            let claim = format!("no task is in {label}, and it is mounted nowhere; {fd} keeps it");
            claims.push(evidence(claim, "kernel", at));
        }
        if let Some(since) = ghost_sandbox::verdict(view, entry).map(|ghost| ghost.since) {
            claims.push(evidence(
                format!("{label} is a ghost: its pod is gone"),
                "tracer",
                since,
            ));
            advice.push(format!(
                "{label} is a ghost; the ghost-sandbox finding on it says how to release it"
            ));
        }
        if entry.held_at.is_none() && !entry.host {
            unknown.push(format!("what keeps {label}: it has not been looked at yet"));
        } else if entry.is_held_by_nothing_found() && !entry.host {
            unknown.push(unknown_holder(label));
        }
        if is_pods(entry) && ghost_sandbox::is_untold(view, entry) {
            unknown.push(format!(
                "whether the pod of {label} still exists: no pod list tells"
            ));
        }
    }
    let pod = pod_of(view.model, newest);
    if pods {
        let node = &view.settings.node;
        advice.insert(
            0,
            format!("keep new pods off the node: kubectl cordon {node}"),
        );
        if let Some(words) = pod.as_ref().and_then(kubectl_words) {
            advice.push(format!(
                "the newer pod loses packets; have it replaced with another address, once the \
                 node is cordoned: kubectl delete pod {words}"
            ));
        }
    } else {
        advice.push(String::from(
            "see whether both are in one network; if so, take the address from one of them",
        ));
    }
    Some(Finding {
        rule: Rule::DuplicateAddress,
        severity: if pods {
            Severity::Critical
        } else {
            Severity::Warning
        },
        id: finding_id(
            &view.settings.boot_id,
            Rule::DuplicateAddress,
            &format!("{address} {}", joined(inodes)),
        ),
        since,
        title: match users.as_slice() {
            [one, other] => format!("{address} is used twice: {one} and {other}"),
            many => format!(
                "{address} is used {} times: {}",
                many.len(),
                many.join(", ")
            ),
        },
        pod,
        sandbox_id: newest.sandbox.id.clone(),
        netns: Some(netns_of(newest)),
        addresses: vec![address],
        holders: owners
            .iter()
            .flat_map(|(entry, _)| holders_of(view.model, entry))
            .collect(),
        evidence: claims,
        unknown,
        advice,
        detail: Detail::default(),
    })
}

/// A namespace's pod as a user of an address: `the deleted pod shop/checkout
/// (netns 4026532200)`.
fn user(view: &View<'_>, entry: &NetnsEntry) -> String {
    let inode = entry.id.inode;
    match pod_of(view.model, entry).filter(|_| !entry.host) {
        Some(pod) => format!("{} (netns {inode})", pod_words(view, entry, &pod)),
        None => label(view.model, entry),
    }
}

/// A namespace as its pod's: `netns 4026532200 of the deleted pod
/// shop/checkout`.
fn whose(view: &View<'_>, entry: &NetnsEntry) -> String {
    let inode = entry.id.inode;
    match pod_of(view.model, entry).filter(|_| !entry.host) {
        Some(pod) => format!("netns {inode} of {}", pod_words(view, entry, &pod)),
        None => label(view.model, entry),
    }
}

fn pod_words(view: &View<'_>, entry: &NetnsEntry, pod: &PodRef) -> String {
    match ghost_sandbox::gone(view, entry) {
        Some(_) => format!("the deleted pod {}", pod_word(pod)),
        None => pod.label(),
    }
}

/// A namespace in a sentence: `netns 4026532200 (shop/checkout)`.
pub(crate) fn label(model: &Model, entry: &NetnsEntry) -> String {
    let inode = entry.id.inode;
    match pod_of(model, entry) {
        _ if entry.host => format!("the host's netns {inode}"),
        Some(pod) => format!("netns {inode} ({})", pod.label()),
        None => match (entry.mounts.first(), entry.fds.first()) {
            (Some(path), _) => format!("netns {inode} ({})", path.display()),
            (None, Some(fd)) => format!("netns {inode} ({})", fd_label(fd)),
            (None, None) => format!("netns {inode}"),
        },
    }
}

#[cfg(test)]
mod tests;
