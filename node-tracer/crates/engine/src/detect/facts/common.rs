//! What findings have in common: claims, holders, and words for things that
//! more than one rule names.

use std::{iter, net::IpAddr};

use crate::{
    detect::{
        View,
        facts::{
            fuse, ghosts,
            sigkill::{Sigkill, sigkill},
            stack_hint,
        },
    },
    model::{
        Model,
        netns::{HeldAddress, NetnsEntry},
        pods::PodPresence,
        task::Blocked,
    },
};
use event::order::Order as _;
use event::{
    FdHolder, PodRef, Task,
    clock::Timestamp,
    finding::{Evidence, FindingNetns, Holder},
    sleep,
    wording::{advice::commented, subjects::task_label},
};

pub(in crate::detect) fn evidence(
    claim: impl Into<String>,
    source: &str,
    at: Timestamp,
) -> Evidence {
    Evidence {
        claim: claim.into(),
        source: source.to_owned(),
        at,
    }
}

/// A namespace as findings name it.
pub(in crate::detect) fn netns_of(entry: &NetnsEntry) -> FindingNetns {
    FindingNetns {
        id: entry.id,
        paths: entry.paths.iter().cloned().collect(),
    }
}

/// A namespace's pod, with the name that the lists have for its UID.
pub fn pod_of(model: &Model, entry: &NetnsEntry) -> Option<PodRef> {
    entry.sandbox.pod.as_ref().map(|pod| named(model, pod))
}

pub(in crate::detect) fn named(model: &Model, pod: &PodRef) -> PodRef {
    let listed = pod.uid.as_deref().and_then(|uid| model.pods.pod(uid));
    match listed {
        Some(listed) if pod.name.is_none() => PodRef {
            namespace: Some(listed.namespace.clone()),
            name: Some(listed.name.clone()),
            uid: pod.uid.clone(),
        },
        _ => pod.clone(),
    }
}

/// What keeps a namespace: stuck tasks first, then other tasks, then mounts,
/// then descriptors.
pub fn holders_of(model: &Model, entry: &NetnsEntry) -> Vec<Holder> {
    let mut stuck = stuck_in(model, entry);
    stuck.order_by_key(|blocked| (blocked.since, blocked.task.tid));
    let is_stuck = |task: &Task| stuck.iter().any(|blocked| blocked.is(task));
    let mut others: Vec<&Task> = entry.tasks.iter().filter(|task| !is_stuck(task)).collect();
    others.order_by_key(|task| (task.pid, task.tid));
    let stuck = stuck.iter().take(event::MAX_HOLDERS);
    stuck
        .map(|blocked| stuck_holder(blocked))
        .chain(others.into_iter().map(task_holder))
        .chain(
            entry
                .mounts
                .iter()
                .map(|path| Holder::Mount { path: path.clone() }),
        )
        .chain(
            entry
                .fds
                .iter()
                .map(|FdHolder { pid, fd, comm }| Holder::Fd {
                    pid: *pid,
                    fd: *fd,
                    comm: comm.clone(),
                }),
        )
        .chain(
            entry
                .sockets
                .iter()
                .map(|FdHolder { pid, fd, comm }| Holder::Socket {
                    pid: *pid,
                    fd: *fd,
                    comm: comm.clone(),
                }),
        )
        .collect()
}

/// Since when a namespace has an address, as well as that is known: by the
/// kernel's own time; else, for one that was there when first looked at, since
/// the end of the CNI ADD that libcni remembers.
pub(in crate::detect) fn held_since(
    model: &Model,
    entry: &NetnsEntry,
    held: &HeldAddress,
) -> Timestamp {
    let made = held.made.filter(|made| *made <= held.since);
    let added = || added(model, entry, held).filter(|added| *added < held.since);
    made.or_else(added).unwrap_or(held.since)
}

/// Whether [`held_since`] is when the namespace got the address, and not when
/// somebody looked.
pub(in crate::detect) fn is_dated(model: &Model, entry: &NetnsEntry, held: &HeldAddress) -> bool {
    !held.found || held.made.is_some() || added(model, entry, held).is_some()
}

/// When the CNI ADD ended that gave an address, if libcni remembers it.
fn added(model: &Model, entry: &NetnsEntry, held: &HeldAddress) -> Option<Timestamp> {
    let id = entry.sandbox.id.as_deref().filter(|_| held.found);
    let adds = id.into_iter().flat_map(|id| model.cni.of_container(id));
    let adds = adds.filter(|add| add.ips.contains(&held.address.address));
    adds.map(|add| add.written).max()
}

/// The stuck tasks in a namespace.
pub fn stuck_in<'a>(model: &'a Model, entry: &'a NetnsEntry) -> Vec<&'a Blocked> {
    let mut stuck: Vec<&Blocked> = model.blocked.in_netns(entry.id).collect();
    for blocked in entry
        .tasks
        .iter()
        .filter_map(|task| model.blocked.get(task))
    {
        // Its namespace could not be read when it was found stuck.
        if blocked.netns.is_none() {
            stuck.push(blocked);
        }
    }
    stuck
}

pub fn task_holder(task: &Task) -> Holder {
    Holder::Task {
        pid: task.pid,
        tid: task.tid,
        comm: task.comm.clone(),
        state: task.state,
        since: None,
        wchan: None,
        stack: Vec::new(),
        container_id: task.container_id.clone(),
        not_stuck: task.not_stuck,
        first_seen: false,
    }
}

pub fn stuck_holder(blocked: &Blocked) -> Holder {
    let Blocked {
        task,
        since,
        found,
        wchan,
        stack,
        ..
    } = blocked;
    Holder::Task {
        pid: task.pid,
        tid: task.tid,
        comm: task.comm.clone(),
        state: Some('D'),
        since: Some(*since),
        wchan: wchan.clone(),
        stack: stack.clone(),
        container_id: task.container_id.clone(),
        not_stuck: None,
        first_seen: *found,
    }
}

/// `descriptor 7 of cni-daemon (4242)`
pub(in crate::detect) fn fd_label(holder: &FdHolder) -> String {
    let FdHolder { pid, fd, comm } = holder;
    match comm {
        Some(comm) => format!("descriptor {fd} of {comm} ({pid})"),
        None => format!("descriptor {fd} of process {pid}"),
    }
}

/// `socket 7 of node-agent (4242)`
pub(in crate::detect) fn socket_label(holder: &FdHolder) -> String {
    fd_label(holder).replacen("descriptor", "socket", 1)
}

/// What is not known of a namespace that has no holder that can be found.
pub(in crate::detect) fn unknown_holder(whose: &str) -> String {
    format!("what holds {whose}: no task, mount or descriptor was found; a socket can do it")
}

/// ` in request_wait_answer`, if it is known.
pub(in crate::detect) fn sleeps_in(blocked: &Blocked) -> String {
    let function = sleep::function(&blocked.stack, blocked.wchan.as_deref());
    function
        .map(|function| format!(" in {function}"))
        .unwrap_or_default()
}

/// How to find out what a stuck task waits for, and how to end it, in steps.
pub(in crate::detect) fn release_advice(blocked: &Blocked) -> Vec<String> {
    let hint = stack_hint::hint(&blocked.stack, blocked.wchan.as_deref());
    let task = task_label(&blocked.task);
    let tid = blocked.task.tid;
    let (effect, kill) = match sigkill(blocked) {
        Sigkill::Not(_) => (" (kill -9 has no effect)", None),
        Sigkill::Unknown(_) => ("", None),
        Sigkill::Ends(_) => {
            let is_in_pod = blocked.task.pod_uid.is_some() || blocked.task.container_id.is_some();
            let ends = match is_in_pod {
                true => "ends it, and its container if it is the first process of it",
                false => "ends it: all of a program of the node, which is in no pod",
            };
            let command = format!("kill -9 {}", blocked.task.pid);
            ("", Some(commented(command, ends)))
        }
    };
    if let Some(steps) = fuse::steps(blocked, effect) {
        return kill.into_iter().chain(steps).collect();
    }
    // A sentence that begins with the task's own name could be a command.
    let sentence = match hint {
        Some(hint) => format!("task {task} {}{effect}: {}", hint.waits, hint.ends),
        None => format!("find out what task {task} waits for{effect}, and end that wait"),
    };
    let unread: &[(&str, &str)] = &[
        ("cat /proc/TID/stack", "where in the kernel it waits"),
        ("cat /proc/TID/mountinfo", "its mounts"),
    ];
    let commands = hint.map_or(unread, |hint| hint.commands).iter();
    let commands = commands
        .map(|(command, comment)| commented(command.replace("TID", &tid.to_string()), comment));
    iter::once(sentence).chain(kill).chain(commands).collect()
}

pub(in crate::detect) fn joined<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items
        .into_iter()
        .map(|item| item.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

/// `-n NAMESPACE NAME`, for kubectl; only from names that are names.
pub(in crate::detect) fn kubectl_words(pod: &PodRef) -> Option<String> {
    let is_name = |text: &&String| {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-.".contains(&c);
        !text.is_empty() && !text.starts_with('-') && text.bytes().all(plain)
    };
    let namespace = pod.namespace.as_ref().filter(is_name)?;
    let name = pod.name.as_ref().filter(is_name)?;
    Some(format!("-n {namespace} {name}"))
}

/// Characters of a title, at most, unless a name in it is unusual.
pub(in crate::detect) const TITLE: usize = 76;

/// The title that names more, if it is short enough.
pub(in crate::detect) fn fitting(long: String, short: impl FnOnce() -> String) -> String {
    match long.chars().count() <= TITLE {
        true => long,
        false => short(),
    }
}

/// Addresses in a title: the first one, and how many more there are.
pub(in crate::detect) fn few(addresses: &[IpAddr]) -> String {
    match addresses {
        [] => String::from("an IP"),
        [only] => only.to_string(),
        [first, more @ ..] => format!("{first} and {} more", more.len()),
    }
}

/// `is` or `are`, as so many things need.
pub(in crate::detect) fn is(number: usize) -> &'static str {
    match number {
        0 | 1 => "is",
        _ => "are",
    }
}

/// What is said of an address that a namespace has.
pub(in crate::detect) fn has(model: &Model, entry: &NetnsEntry, held: &HeldAddress) -> Evidence {
    let address = &held.address;
    let found = match is_dated(model, entry, held) {
        true => "",
        false => "; present at first look",
    };
    let claim = format!("the netns has {address} on {}{found}", address.ifname);
    evidence(claim, "kernel", held_since(model, entry, held))
}

/// Who uses an address, by [`user_kind`]: `a deleted and a running pod`.
pub(in crate::detect) fn users(kinds: &[&str]) -> String {
    match kinds {
        [] => String::from("nobody"),
        [only] => String::from(*only),
        [one, other] if one == other => match one.split_once(' ') {
            Some((_, kind)) if kind.ends_with("pod") => format!("two {kind}s"),
            Some((_, kind)) => format!("two {kind}"),
            None => format!("{one} twice"),
        },
        [one, "a pod"] if one.ends_with(" pod") => format!("{one} and another pod"),
        [one, other] if other.ends_with(" pod") && *one != "a pod" => {
            format!("{} and {other}", one.strip_suffix(" pod").unwrap_or(one))
        }
        [one, other] => format!("{one} and {other}"),
        many => format!("{} netns", many.len()),
    }
}

/// What a namespace is that has an address, in a title: `a deleted pod`. Nothing
/// is said of a pod's fate that no list tells.
pub(in crate::detect) fn user_kind(view: &View<'_>, entry: &NetnsEntry) -> &'static str {
    if entry.host {
        return "the host";
    }
    if ghosts::gone(view, entry).is_some() {
        return "a deleted pod";
    }
    match entry.sandbox.presence {
        PodPresence::Terminating(_) => "a terminating pod",
        PodPresence::Finished(_) => "a finished pod",
        PodPresence::Listed => "a running pod",
        _ if entry.sandbox.pod.is_some() => "a pod",
        _ => "an unknown netns",
    }
}

/// An address that a pod can have as its own.
pub fn is_routable(address: IpAddr) -> bool {
    let local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local()
                || v6
                    .to_ipv4_mapped()
                    .is_some_and(|v4| !is_routable(IpAddr::V4(v4)))
        }
    };
    !(local || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

/// A namespace in a sentence: `netns 4026532200 (shop/checkout)`.
pub fn label(model: &Model, entry: &NetnsEntry) -> String {
    let inode = entry.id.inode;
    match pod_of(model, entry) {
        _ if entry.host => format!("the host's netns {inode}"),
        Some(pod) => format!("netns {inode} ({})", pod.label()),
        None => match (entry.roots_mounts().next(), entry.fds.first()) {
            (Some(path), _) => format!("netns {inode} ({})", path.display()),
            (None, Some(fd)) => format!("netns {inode} ({})", fd_label(fd)),
            (None, None) => format!("netns {inode}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::wording::subjects::{pod_word, short_id};

    #[test]
    fn only_addresses_that_are_a_pods_own_count() {
        for own in ["10.0.0.5", "198.18.0.1", "fd00::5", "2001:db8::1"] {
            assert!(is_routable(own.parse().unwrap()), "{own}");
        }
        for not in [
            "127.0.0.1",
            "169.254.20.10",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(!is_routable(not.parse().unwrap()), "{not}");
        }
    }

    #[test]
    fn ids_are_cut_as_crictl_cuts_them() {
        assert_eq!(short_id("0123456789abcdef"), "0123456789abc");
        for whole in ["", "0123456789abc", "short"] {
            assert_eq!(short_id(whole), whole);
        }
        assert_eq!(short_id("\u{e4}bcdefghijklmno"), "\u{e4}bcdefghijklm");
    }

    #[test]
    fn a_pod_of_which_only_the_uid_is_known_is_called_a_pod_once() {
        let bare = PodRef {
            uid: Some("1111".into()),
            ..PodRef::default()
        };
        assert_eq!(
            format!("the deleted pod {}", pod_word(&bare)),
            "the deleted pod 1111"
        );
    }

    #[test]
    fn foreign_names_do_not_leave_their_place_in_a_command() {
        let pod = |name: &str| PodRef {
            namespace: Some("shop".into()),
            name: Some(name.into()),
            uid: None,
        };
        assert_eq!(kubectl_words(&pod("a-1")).unwrap(), "-n shop a-1");
        assert_eq!(kubectl_words(&pod("$(reboot)")), None);
        assert_eq!(kubectl_words(&pod("--all")), None);
    }
}
