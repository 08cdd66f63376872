//! What happened to a subject, in order.

use std::collections::BTreeSet;

use super::{
    cni::call_of,
    related::Related,
    words::{holder_name, sleeps},
};
use crate::model::netns::NetnsEntry;
use event::explanation::{
    CallPart, FindingPart, Moment, NetnsPart, PodPart, ReservationPart, SandboxPart,
};
use event::{
    clock::Timestamp,
    finding::{Holder, Rule, Severity},
    order::Order as _,
    wording::subjects::{short_id, task_label},
};

/// Tasks of one namespace whose start is told.
const TASKS: usize = 4;

/// What the timeline is made of.
pub(super) struct Parts<'a> {
    pub(super) related: &'a Related<'a>,
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
    for entry in parts.related.netns.values().filter(|entry| !entry.host) {
        namespace(entry, &mut all);
    }
    let inside = parts.netns.iter().flat_map(|part| {
        let place = format!(" in netns {}", part.id.inode);
        part.holders
            .iter()
            .map(move |holder| (holder, place.clone()))
    });
    let outside = parts.tasks.iter().map(|task| (task, String::new()));
    for (holder, place) in inside.chain(outside) {
        if let (
            Some(name),
            Some(how),
            Holder::Task {
                since: Some(at),
                first_seen,
                ..
            },
        ) = (holder_name(holder), sleeps(holder), holder)
        {
            let verb = match first_seen {
                true => "was asleep already",
                false => "went to sleep",
            };
            let what = format!("{name}{place} {verb}{how}");
            say(&mut all, *at, "kernel", what);
        }
    }
    for SandboxPart {
        source, sandbox, ..
    } in parts.sandboxes
    {
        if let Some(at) = sandbox.created {
            let id = short_id(&sandbox.id);
            let pod = sandbox.pod.label();
            let what = format!("sandbox {id} of {pod} was made");
            say(&mut all, at, source, what);
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
            say(&mut all, at, "host-local", what);
        }
    }
    for pod in parts.pods {
        pods(pod, &mut all);
    }
    for part in parts.findings {
        let finding = &part.finding;
        if finding.rule == Rule::DuplicateAddress && finding.severity > Severity::Info {
            let what = format!(
                "{} was in use twice",
                super::words::list(&finding.addresses)
            );
            say(&mut all, finding.since, "kernel", what);
        }
    }
    // Of one moment, what was put first: a namespace before what happened in it.
    all.order_by_key(|moment| moment.at);
    let mut told = BTreeSet::new();
    all.retain(|moment| told.insert(moment.clone()));
    all
}

fn say(all: &mut Vec<Moment>, at: Timestamp, source: &str, what: String) {
    let source = source.to_owned();
    all.push(Moment { at, what, source });
}

fn namespace(entry: &NetnsEntry, all: &mut Vec<Moment>) {
    let inode = entry.id.inode;
    if entry.created {
        say(all, entry.seen, "kernel", format!("netns {inode} was made"));
    }
    for held in entry.addresses.iter().filter(|held| !held.found) {
        let ifname = &held.address.ifname;
        if ifname != "lo" {
            let what = format!("netns {inode} got {} on {ifname}", held.address);
            say(all, held.since, "kernel", what);
        }
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
        say(all, at, "kernel", what);
    }
    if let Some(at) = entry.dying {
        let what = format!("the last reference to netns {inode} was dropped");
        say(all, at, "kernel", what);
    }
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
        say(
            all,
            *at,
            &call.source,
            format!("CNI {command} of {of} began"),
        );
    }
    let Some(at) = ended else { return };
    let result = call.result.as_ref().filter(|result| !result.ips.is_empty());
    let gave = match (result, exit_code) {
        (Some(result), _) => format!(" and gave {}", super::words::list(&result.ips)),
        (None, Some(code)) if *code != 0 => format!(" with exit status {code}"),
        (None, _) => String::new(),
    };
    let what = format!("CNI {command} of {of} ended{gave}");
    say(all, *at, &call.source, what);
}

fn pods(pod: &PodPart, all: &mut Vec<Moment>) {
    let label = pod.reference().label();
    let source = pod.source.as_deref().unwrap_or("pods");
    if let Some(at) = pod.deletion {
        let what = format!("{label} is to be gone by then (deletionTimestamp)");
        say(all, at, source, what);
    }
    if let Some(at) = pod.missing_since {
        say(
            all,
            at,
            source,
            format!("{label} is not on the list any more"),
        );
    }
}
