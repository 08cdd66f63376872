//! What happened to a subject, in order.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    cni::call_of,
    phrases::{holder_name, list},
    related::Related,
};
use crate::detect::is_routable;
use crate::model::netns::NetnsEntry;
use event::explanation::{
    CallPart, FindingPart, Moment, NetnsPart, PodPart, ReservationPart, SandboxPart,
};
use event::{
    clock::Timestamp,
    finding::{Holder, Rule, Severity},
    order::Order as _,
    sleep,
    wording::subjects::{pod_word, short_id, task_label},
};

/// Tasks of one namespace whose start is told.
const TASKS: usize = 4;
/// Functions of a sleeping task's stack that are named.
const FRAMES: usize = 3;

/// What the timeline is made of.
pub(super) struct Parts<'a> {
    /// The subject, and each other that has one of its addresses.
    pub(super) related: &'a [Related<'a>],
    pub(super) netns: &'a [NetnsPart],
    pub(super) tasks: &'a [Holder],
    pub(super) reservations: &'a [ReservationPart],
    pub(super) calls: &'a [CallPart],
    pub(super) sandboxes: &'a [SandboxPart],
    pub(super) pods: &'a [PodPart],
    pub(super) findings: &'a [FindingPart],
}

/// Everything that has a time.
pub(super) fn timeline(parts: &Parts<'_>) -> Vec<Moment> {
    let mut all = Vec::new();
    let entries = parts.related.iter().flat_map(Related::own);
    for entry in entries.filter(|entry| !entry.host) {
        namespace(entry, &mut all);
    }
    addresses(parts, &mut all);
    let inside = parts.netns.iter().flat_map(|part| &part.holders);
    for holder in inside.chain(parts.tasks) {
        asleep(holder, &mut all);
    }
    for SandboxPart {
        source, sandbox, ..
    } in parts.sandboxes
    {
        if let Some(at) = sandbox.created {
            let id = short_id(&sandbox.id);
            let pod = sandbox.pod.label();
            let what = format!("sandbox {id} of {pod} was made");
            minor(&mut all, at, source, what);
        }
    }
    for call in parts.calls {
        calls(call, &mut all);
    }
    for reservation in parts.reservations {
        if let Some(at) = reservation.modified {
            let id = match reservation.container_id.as_str() {
                "" => "nobody",
                id => short_id(id),
            };
            let what = format!("{} was reserved for {id}", reservation.address);
            minor(&mut all, at, "host-local", what);
        }
    }
    for pod in parts.pods {
        pods(pod, &mut all);
    }
    // Of one moment, what was put first: a namespace before what happened in it.
    all.order_by_key(|moment| moment.at);
    let mut told = BTreeSet::new();
    all.retain(|moment| told.insert((moment.at, moment.what.clone())));
    all
}

fn say(all: &mut Vec<Moment>, at: Timestamp, source: &str, what: String) {
    all.push(Moment {
        at,
        what,
        source: source.to_owned(),
        conflict: false,
        minor: false,
    });
}

fn minor(all: &mut Vec<Moment>, at: Timestamp, source: &str, what: String) {
    say(all, at, source, what);
    if let Some(last) = all.last_mut() {
        last.minor = true;
    }
}

fn namespace(entry: &NetnsEntry, all: &mut Vec<Moment>) {
    let inode = entry.id.inode;
    if entry.created {
        minor(all, entry.seen, "kernel", format!("netns {inode} was made"));
    }
    let mut started: Vec<_> = entry
        .tasks
        .iter()
        .filter(|task| task.pid == task.tid)
        .filter_map(|task| Some((task.started?, task)))
        .collect();
    started.order_by_key(|(at, task)| (*at, task.pid));
    for (at, task) in started.into_iter().take(TASKS) {
        let what = format!("{} in netns {inode} was started", task_label(task));
        minor(all, at, "kernel", what);
    }
    if let Some(at) = entry.dying {
        let what = format!("the last reference to netns {inode} was dropped");
        say(all, at, "kernel", what);
    }
}

/// Who got which address when. The second of two that have the same one makes
/// the conflict.
fn addresses(parts: &Parts<'_>, all: &mut Vec<Moment>) {
    let conflicts: BTreeSet<IpAddr> = parts
        .findings
        .iter()
        .map(|part| &part.finding)
        .filter(|finding| finding.rule == Rule::DuplicateAddress)
        .filter(|finding| finding.severity > Severity::Info)
        .flat_map(|finding| finding.addresses.iter().copied())
        .collect();
    for part in parts.netns.iter().filter(|part| !part.host) {
        let inode = part.id.inode;
        let who = match &part.pod {
            Some(pod) => pod_word(pod),
            None => format!("netns {inode}"),
        };
        for own in part.addresses.iter().filter(|own| own.ifname != "lo") {
            let Some(since) = own.since else { continue };
            let ip = own.address;
            let what = format!("{who} gets {ip} (netns {inode}, {})", own.ifname);
            if !is_routable(ip) {
                minor(all, since, "kernel", what);
                continue;
            }
            say(all, since, "kernel", what);
            let has_it_before = |other: &NetnsPart| {
                let mut addresses = other.addresses.iter().filter(|its| its.address == ip);
                other.id != part.id && addresses.any(|its| its.since.is_some_and(|at| at < since))
            };
            if conflicts.contains(&ip)
                && parts.netns.iter().any(has_it_before)
                && let Some(last) = all.last_mut()
            {
                last.conflict = true;
            }
        }
    }
}

fn asleep(holder: &Holder, all: &mut Vec<Moment>) {
    let Holder::Task {
        since: Some(at),
        first_seen,
        stack,
        wchan,
        ..
    } = holder
    else {
        return;
    };
    let Some(name) = holder_name(holder) else {
        return;
    };
    let frames = stack.iter().map(|frame| sleep::name(frame));
    // The kernel's inner helpers say nothing that their callers do not.
    let frames = frames.filter(|name| !name.starts_with("__"));
    let mut frames: Vec<&str> = frames.take(FRAMES).collect();
    if frames.is_empty() {
        frames.extend(sleep::function(stack, wchan.as_deref()));
    }
    let place = match frames.is_empty() {
        true => String::new(),
        false => format!(": {}", frames.join(" < ")),
    };
    let verb = match first_seen {
        true => "is in D when first seen",
        false => "enters D",
    };
    say(all, *at, "kernel", format!("{name} {verb}{place}"));
}

fn calls(call: &CallPart, all: &mut Vec<Moment>) {
    let CallPart {
        command,
        started,
        ended,
        exit_code,
        ..
    } = call;
    let of = call_of(call);
    if let Some(at) = started {
        let what = format!("CNI {command} of {of} begins");
        match ended {
            Some(_) => minor(all, *at, &call.source, what),
            None => say(all, *at, &call.source, what),
        }
    }
    let Some(at) = ended else { return };
    let given = call.result.iter().flat_map(|result| &result.ips);
    let given: Vec<IpAddr> = given.copied().collect();
    let who = match &call.pod {
        Some(pod) => pod_word(pod),
        None => of.clone(),
    };
    let what = match exit_code {
        Some(code) if *code != 0 => format!("CNI {command} of {of} fails with exit status {code}"),
        _ if given.is_empty() => format!("CNI {command} of {of} ends"),
        _ => format!("CNI {command}: {who} gets {}", list(&given)),
    };
    // That of the loopback plugin.
    match !given.is_empty() && !given.iter().copied().any(is_routable) {
        true => minor(all, *at, &call.source, what),
        false => say(all, *at, &call.source, what),
    }
}

fn pods(pod: &PodPart, all: &mut Vec<Moment>) {
    let label = pod.reference().label();
    let source = pod.source.as_deref().unwrap_or("pods");
    if let Some(at) = pod.deletion {
        let what = format!("{label} is to be gone by then (deletionTimestamp)");
        say(all, at, source, what);
    }
    if let Some(at) = pod.missing_since {
        let when = match pod.deletion {
            Some(_) => "",
            None => " (deletion time unknown)",
        };
        say(all, at, source, format!("{label} is absent{when}"));
    }
}
