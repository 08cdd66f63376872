//! A pinned namespace in words.

use crate::{
    detect::{
        View, commented, crictl, evidence,
        facts::{
            common::label,
            ghosts, own,
            unused::{Pinned, SandboxProof, Unused, release},
        },
        fd_label, few, fitting, has, holders_of, is_routable, joined, netns_of, pod_of, repair,
        silence, socket_label,
    },
    model::{netns::NetnsEntry, runtime::CRI, sandbox::PodEvidence},
};
use event::{
    FdHolder, PodRef,
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
    wording::subjects::{pod_word, short_id},
};

pub(super) fn finding(view: &View<'_>, pinned: &Pinned<'_>) -> Finding {
    let Unused {
        entry,
        since,
        runtime,
        ..
    } = pinned.unused;
    let addresses = own::addresses(view, entry);
    // What the runtime has stopped can be the sandbox of a pod that is being
    // deleted: only a list of pods tells.
    let may_go = pinned.unused.stopped.is_some() && ghosts::is_untold(view, entry);
    // Root in a pod can have mounted it, under that name in mounts of its own.
    let certain = since.is_some() && runtime.is_some() && !may_go && !entry.is_strangers();
    Finding {
        rule: Rule::PinnedNetns,
        severity: match certain && !addresses.is_empty() {
            true => Severity::Warning,
            false => Severity::Info,
        },
        id: finding_id(
            &view.settings.boot_id,
            Rule::PinnedNetns,
            &entry.id.inode.to_string(),
        ),
        since: since.unwrap_or(entry.seen),
        title: title(view, pinned),
        pod: pod_of(view.model, entry),
        sandbox_id: entry.sandbox.id.clone(),
        netns: Some(netns_of(entry)),
        holders: holders_of(view.model, entry),
        evidence: claims(view, pinned),
        unknown: unknown(view, pinned),
        advice: advice(view, pinned),
        addresses,
        detail: Detail {
            first_seen: since.is_none(),
            ..Detail::default()
        },
    }
}

fn title(view: &View<'_>, pinned: &Pinned<'_>) -> String {
    let entry = pinned.unused.entry;
    let inode = entry.id.inode;
    let addresses = own::addresses(view, entry);
    let held = format!("only {} holds netns {inode} open", keeper(entry));
    match addresses.is_empty() {
        true => held,
        false => fitting(format!("{held}; it has {}", few(&addresses)), || {
            held.clone()
        }),
    }
}

/// The first of its holders.
fn keeper(entry: &NetnsEntry) -> String {
    let mount = entry.mounts.first();
    mount
        .map(|_| String::from("a mount"))
        .or_else(|| entry.fds.first().map(process))
        .or_else(|| entry.sockets.first().map(process))
        .unwrap_or_default()
}

/// The process that has a descriptor or socket.
fn process(holder: &FdHolder) -> String {
    match &holder.comm {
        Some(comm) => format!("{comm} ({})", holder.pid),
        None => format!("process {}", holder.pid),
    }
}

fn claims(view: &View<'_>, pinned: &Pinned<'_>) -> Vec<Evidence> {
    let Unused { entry, stopped, .. } = pinned.unused;
    let inode = entry.id.inode;
    let born = match entry.created {
        true => "was created",
        false => "was present at first look",
    };
    let mut claims = vec![evidence(
        format!("netns {inode} {born}"),
        "kernel",
        entry.seen,
    )];
    claims.push(tied(view, pinned));
    let own = own::addresses(view, entry);
    for held in entry.addresses.iter() {
        if own.contains(&held.address.address) {
            claims.push(has(view.model, entry, held));
        }
    }
    let looked_at = entry.held_at.unwrap_or(entry.seen);
    let mounts = entry.mounts.iter().map(|path| path.display().to_string());
    let fds = entry.fds.iter().map(fd_label);
    let kept = mounts
        .chain(fds)
        .chain(entry.sockets.iter().map(socket_label));
    claims.push(evidence(
        format!(
            "no task is in the netns; it is held open by {}",
            joined(kept)
        ),
        "kernel",
        looked_at,
    ));
    if let Some(list) = pinned.unused.runtime {
        let claim = match stopped {
            Some(sandbox) => format!("CRI: sandbox {} NotReady", short_id(&sandbox.id)),
            None => {
                let all = list.sandboxes().count();
                format!("CRI: none of its {all} sandboxes is in the netns")
            }
        };
        claims.push(evidence(claim, CRI, list.at));
    }
    if let Some(gone) = ghosts::gone(view, entry) {
        let source = view.model.pods.list();
        let source = source.map_or("pods", |list| list.source.as_str());
        claims.push(evidence("its pod is not in the API", source, gone));
    }
    claims
}

/// What shows that it was a pod's.
fn tied(view: &View<'_>, pinned: &Pinned<'_>) -> Evidence {
    let entry = pinned.unused.entry;
    let known = match pinned.tie {
        SandboxProof::Sandbox(known) => known,
        SandboxProof::Mount(path) => {
            let claim = format!(
                "it is or was mounted at {}, a name that runtimes give to sandboxes",
                path.display()
            );
            return evidence(claim, "kernel", entry.held_at.unwrap_or(entry.seen));
        }
    };
    let id = short_id(entry.sandbox.id.as_deref().unwrap_or_default());
    let pod = pod_of(view.model, entry).unwrap_or_default();
    let (says, at) = match known {
        PodEvidence::Cache { at } => ("libcni's cache of CNI ADD: it is", at),
        PodEvidence::Runtime { source: CRI, at } => ("CRI: it was", at),
        PodEvidence::Runtime { at, .. } => ("the runtime's state directory: it was", at),
        PodEvidence::Cni { at } => ("CNI ADD made it", at),
        PodEvidence::Cgroup { at, .. } => ("a task in it was in the cgroup of", at),
    };
    let claim = format!("{says} sandbox {id} of pod {}", pod_word(&pod));
    evidence(claim, known.source(), at)
}

fn unknown(view: &View<'_>, pinned: &Pinned<'_>) -> Vec<String> {
    let Unused {
        entry,
        since,
        runtime,
        ..
    } = pinned.unused;
    let mut unknown = Vec::new();
    if since.is_none() {
        unknown.push(String::from(
            "since when it exists: it may be of a pod that is being made; then this finding is \
             gone in a minute",
        ));
    }
    if entry.is_strangers() {
        unknown.push(String::from(
            "whose it is: it belongs to a user namespace that root made, in a pod or not",
        ));
    }
    if entry.wiring.is_none() && view.settings.surveyed {
        unknown.push(String::from(
            "whether it still has an IP: it could not be entered",
        ));
    } else if own::addresses(view, entry).is_empty() {
        unknown.extend(hidden(entry).map(str::to_owned));
    }
    if runtime.is_none() {
        unknown.push(format!(
            "whether CRI has a sandbox of it, or removes one just now: {}",
            silence(view.model)
        ));
    }
    let pod = entry.sandbox.pod.as_ref();
    let is_known = pod.is_some_and(|pod| *pod != PodRef::default());
    match pinned.unused.stopped {
        _ if !ghosts::is_untold(view, entry) => {}
        _ if is_known => {
            let why = view.model.pods.silence();
            unknown.push(format!("whether its pod still exists: {why}"));
        }
        Some(_) => unknown.push(String::from(
            "whose it is, and whether its pod is being deleted",
        )),
        None => {}
    }
    unknown
}

/// Why a namespace of which no address is known to be the pod's may have one all
/// the same.
fn hidden(entry: &NetnsEntry) -> Option<&'static str> {
    let mut held = entry.addresses.iter();
    if held.any(|held| is_routable(held.address.address)) {
        return Some(
            "whether an IP in it is its pod's: nothing names the IP, and no device of it is seen to \
             lead out",
        );
    }
    own::hides_address(entry).then_some(
        "whether it still has an IP: the pod's device shows none, as with gVisor, and nothing \
         names one",
    )
}

fn advice(view: &View<'_>, pinned: &Pinned<'_>) -> Vec<String> {
    let entry = pinned.unused.entry;
    let mut advice = Vec::new();
    if let Some(id) = &entry.sandbox.id {
        let command = crictl(view.model, "pods --id").id(id);
        advice.push(commented(command, "must not show it as Ready"));
    }
    advice.extend(release(view, entry));
    let mut reserved = own::addresses(view, entry);
    reserved.retain(|address| view.model.cni.reservations(*address).next().is_some());
    if !reserved.is_empty() {
        advice.push(format!(
            "leave the reservation of {} where it is until {} is gone; then:",
            joined(reserved),
            label(view.model, entry),
        ));
        advice.extend(repair());
    }
    advice
}
