//! Ties a network namespace to the sandbox that a runtime or libcni's cache
//! knows, in order of certainty: the namespace itself, a container with a task
//! in it, and last the same pod with the same address.

use super::{attachment::Cni, netns::NetnsEntry, pods::Pods, runtime::Runtime};
use crate::{
    clock::Timestamp,
    event::{Attachment, RuntimeSandbox},
};

/// Fills in what is known of a namespace's sandbox. Returns whether anything
/// is new.
pub(super) fn tie(
    entry: &mut NetnsEntry,
    runtime: &Runtime,
    cni: &Cni,
    pods: &Pods,
    time: Timestamp,
) -> bool {
    if entry.host || entry.dying.is_some() {
        return false;
    }
    let mut changed = false;
    let found = runtime
        .lists()
        .find_map(|list| Some((list, sandbox(entry, list)?)));
    if let Some((list, sandbox)) = found {
        let source = if list.source == super::runtime::CRI {
            super::runtime::CRI
        } else {
            "bundles"
        };
        let sandbox = sandbox.clone();
        changed |= entry
            .sandbox
            .note_runtime(&sandbox, source, list.at.min(time));
    }
    if let Some(attachment) = attachment(entry, cni).cloned() {
        changed |= entry.sandbox.note_attachment(&attachment);
    }
    changed | entry.sandbox.stand(pods, entry.seen)
}

fn sandbox<'a>(
    entry: &NetnsEntry,
    list: &'a super::runtime::SandboxList,
) -> Option<&'a RuntimeSandbox> {
    let pods = |sandbox: &&RuntimeSandbox| !sandbox.host_network;
    let there = list.in_netns(entry.id).filter(pods).max_by_key(newest);
    let inside = || {
        let ids = entry.sandbox.containers.iter().map(String::as_str);
        let ids = ids.chain(entry.tasks.iter().filter_map(|t| t.container_id.as_deref()));
        let mut own = entry.sandbox.id.as_deref().into_iter().chain(ids);
        // One that is known to be in another namespace is not in this one.
        own.find_map(|id| {
            list.of_container(id).filter(pods).filter(|sandbox| {
                sandbox
                    .netns
                    .is_none_or(|netns| netns.inode == entry.id.inode)
            })
        })
    };
    let same = || {
        let of_pod = list.of_pod(entry.sandbox.uid()?).filter(pods);
        let mut of_pod =
            of_pod.filter(|sandbox| sandbox.netns.is_none() && has_any(entry, &sandbox.ips));
        let only = of_pod.next()?;
        of_pod.next().is_none().then_some(only)
    };
    there.or_else(inside).or_else(same)
}

fn newest(sandbox: &&RuntimeSandbox) -> (Option<Timestamp>, u32) {
    (sandbox.created, sandbox.attempt)
}

fn attachment<'a>(entry: &NetnsEntry, cni: &'a Cni) -> Option<&'a Attachment> {
    let inode = entry.id.inode;
    let elsewhere =
        |attachment: &&Attachment| attachment.netns.is_some_and(|netns| netns.inode != inode);
    let known = || {
        let containers = entry.sandbox.containers.iter().map(String::as_str);
        let ids = entry.sandbox.id.as_deref().into_iter().chain(containers);
        let mut its = ids.flat_map(|id| cni.of_container(id));
        its.find(|attachment| !elsewhere(attachment))
    };
    if let Some(known) = known() {
        return Some(known);
    }
    let there = cni.in_netns(inode);
    let uid = entry.sandbox.uid();
    let of_pod = uid.into_iter().flat_map(|uid| cni.of_pod(uid));
    let same = of_pod.filter(|attachment| has_any(entry, &attachment.ips));
    // The latest: an address is given out again and again.
    there
        .chain(same)
        .filter(|attachment| attachment.pod.is_some() && !elsewhere(attachment))
        .max_by_key(|attachment| attachment.written)
}

fn has_any(entry: &NetnsEntry, ips: &[std::net::IpAddr]) -> bool {
    let held = entry.addresses.iter().map(|held| held.address.address);
    held.into_iter().any(|address| ips.contains(&address))
}
